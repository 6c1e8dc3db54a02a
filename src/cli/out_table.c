/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables. Cells are kept until the flush, which measures them; columns never get narrower from one
 * flush to the next. On a terminal the stretching column gives way until the line fits.
 */
#include <stdarg.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "cli/out.h"
#include "cli/out_internal.h"

enum { GAP = 2, STRETCH_MIN = 8 };

struct cell {
    char *text;
    enum out_colour colour;
    size_t width;
};

struct out_table {
    const struct out_column *columns;
    size_t columns_n;
    size_t *widths;
    struct cell *cells;
    size_t cells_n, cells_cap;
    bool header_printed;
};

struct out_table *out_table_new(const struct out_column *columns, size_t n)
{
    struct out_table *table = cli_alloc(1, sizeof *table);
    table->columns = columns;
    table->columns_n = n;
    table->widths = cli_alloc(n, sizeof *table->widths);
    for (size_t i = 0; i < n; i++)
        table->widths[i] = strlen(columns[i].title);
    return table;
}

void out_cell(struct out_table *table, enum out_colour colour, const char *text)
{
    if (table->cells_n == table->cells_cap) {
        table->cells_cap = table->cells_cap ? table->cells_cap * 2 : 64;
        table->cells = cli_grow(table->cells, table->cells_cap, sizeof *table->cells);
    }
    char *copy = strdup(text);
    if (!copy)
        cli_must(MR_NOMEM);
    size_t width = out_width(mr_slice_str(text));
    size_t column = table->cells_n % table->columns_n;
    if (width > table->widths[column])
        table->widths[column] = width;
    table->cells[table->cells_n++] = (struct cell){copy, colour, width};
}

void out_cellf(struct out_table *table, enum out_colour colour, const char *fmt, ...)
{
    char *text = NULL;
    va_list ap;
    va_start(ap, fmt);
    int len = vasprintf(&text, fmt, ap);
    va_end(ap);
    if (len < 0)
        cli_must(MR_NOMEM);
    out_cell(table, colour, text);
    free(text);
}

/* The longest start of text that fits into width - 1 columns. */
static size_t cut_at(const char *text, size_t width)
{
    size_t end = 0;
    while (text[end]) {
        size_t next = end + 1;
        while ((text[next] & 0xc0) == 0x80)
            next++;
        if (out_width(mr_slice_make(text, next)) > width - 1)
            break;
        end = next;
    }
    return end;
}

/* A long payload would only be cut: no need to carry all of it. */
void out_cell_bytes(struct out_table *table, enum out_colour colour, struct mr_slice bytes)
{
    enum { SHOWN_MAX = 200 };
    struct mr_buf scratch = {0};
    size_t len = mr_utf8_cut(bytes, SHOWN_MAX);
    const char *text = out_escaped(&scratch, mr_slice_make(bytes.data, len));
    if (len < bytes.len || out_width(mr_slice_str(text)) > SHOWN_MAX)
        out_cellf(table, colour, "%.*s…", (int)cut_at(text, SHOWN_MAX), text);
    else
        out_cell(table, colour, text);
    mr_buf_done(&scratch);
}

/* The width left for the stretching column, SIZE_MAX when it need not give way. */
static size_t stretch_width(const struct out_table *table)
{
    size_t columns = out_columns(), fixed = 0;
    if (columns == 0)
        return SIZE_MAX;
    for (size_t i = 0; i < table->columns_n; i++)
        fixed += GAP + (table->columns[i].fit == OUT_STRETCH ? 0 : table->widths[i]);
    return columns > fixed + STRETCH_MIN ? columns - fixed : STRETCH_MIN;
}

static void print_cell(const struct cell *cell, const struct out_column *column, size_t width,
                       bool last)
{
    size_t shown = cell->width < width ? cell->width : width;
    size_t pad = width - shown;
    if (column->fit == OUT_RIGHT)
        out_printf("%*s", (int)pad, "");
    bool coloured = cell->colour != OUT_PLAIN && cell->text[0];
    if (coloured)
        out_printf("%s", out_colour(cell->colour));
    if (cell->width > width)
        out_printf("%.*s…", (int)cut_at(cell->text, width), cell->text);
    else
        out_printf("%s", cell->text);
    if (coloured)
        out_printf("%s", out_colour(OUT_PLAIN));
    if (!last)
        out_printf("%*s", (int)(GAP + (column->fit == OUT_RIGHT ? 0 : pad)), "");
}

static void print_row(const struct out_table *table, const struct cell *cells, size_t stretch)
{
    for (size_t i = 0; i < table->columns_n; i++) {
        size_t width = table->widths[i];
        if (table->columns[i].fit == OUT_STRETCH && width > stretch)
            width = stretch;
        print_cell(&cells[i], &table->columns[i], width, i + 1 == table->columns_n);
    }
    out_printf("\n");
}

static void print_header(struct out_table *table, size_t stretch)
{
    struct cell *cells = cli_alloc(table->columns_n, sizeof *cells);
    for (size_t i = 0; i < table->columns_n; i++)
        cells[i] = (struct cell){(char *)table->columns[i].title, OUT_BOLD,
                                 strlen(table->columns[i].title)};
    print_row(table, cells, stretch);
    free(cells);
    table->header_printed = true;
}

void out_table_flush(struct out_table *table)
{
    size_t stretch = stretch_width(table);
    if (!table->header_printed)
        print_header(table, stretch);
    for (size_t i = 0; i + table->columns_n <= table->cells_n; i += table->columns_n)
        print_row(table, table->cells + i, stretch);
    for (size_t i = 0; i < table->cells_n; i++)
        free(table->cells[i].text);
    table->cells_n = 0;
}

void out_table_free(struct out_table *table)
{
    if (!table)
        return;
    for (size_t i = 0; i < table->cells_n; i++)
        free(table->cells[i].text);
    free(table->cells);
    free(table->widths);
    free(table);
}
