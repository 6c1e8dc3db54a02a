/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables. Cells are kept until the flush, which measures them; columns never get narrower from one
 * flush to the next. On a terminal the stretching column gives way until the line fits, then spare
 * columns are left out; one that was left out once does not come back.
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
    bool chosen;
    size_t width;
};

struct out_table {
    const struct out_column *columns;
    size_t columns_n;
    size_t *widths;
    bool *hidden;
    struct cell *cells;
    size_t cells_n, cells_cap;
    bool header_printed, choose;
};

static enum out_fit fit_of(const struct out_column *column)
{
    return (enum out_fit)(column->fit & OUT_FITS);
}

static unsigned spare_of(const struct out_column *column)
{
    return column->fit / OUT_SPARE(1);
}

struct out_table *out_table_new(const struct out_column *columns, size_t n)
{
    struct out_table *table = cli_alloc(1, sizeof *table);
    table->columns = columns;
    table->columns_n = n;
    table->widths = cli_alloc(n, sizeof *table->widths);
    table->hidden = cli_alloc(n, sizeof *table->hidden);
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
    table->cells[table->cells_n++] = (struct cell){copy, colour, table->choose, width};
    table->choose = false;
}

void out_table_choose(struct out_table *table)
{
    table->choose = true;
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

/* What a line takes, the text of the stretching column apart. */
static size_t fixed_width(const struct out_table *table)
{
    size_t fixed = 0;
    for (size_t i = 0; i < table->columns_n; i++)
        if (!table->hidden[i])
            fixed += GAP + (fit_of(&table->columns[i]) == OUT_STRETCH ? 0 : table->widths[i]);
    return fixed > GAP ? fixed - GAP : 0;
}

static size_t least_width(const struct out_table *table)
{
    size_t least = fixed_width(table);
    for (size_t i = 0; i < table->columns_n; i++)
        if (!table->hidden[i] && fit_of(&table->columns[i]) == OUT_STRETCH)
            least += table->widths[i] < STRETCH_MIN ? table->widths[i] : STRETCH_MIN;
    return least;
}

/* Leaves out spare columns until a line fits. */
static void hide_columns(struct out_table *table)
{
    while (out_columns() > 0 && least_width(table) > out_columns()) {
        size_t worst = 0;
        for (size_t i = 1; i < table->columns_n; i++)
            if (!table->hidden[i] && spare_of(&table->columns[i]) > 0 &&
                (worst == 0 || spare_of(&table->columns[i]) > spare_of(&table->columns[worst])))
                worst = i;
        if (worst == 0) /* the first column always stays */
            return;
        table->hidden[worst] = true;
    }
}

/* The width left for the stretching column, SIZE_MAX when it need not give way. */
static size_t stretch_width(const struct out_table *table)
{
    size_t columns = out_columns(), fixed = fixed_width(table);
    if (columns == 0)
        return SIZE_MAX;
    return columns > fixed + STRETCH_MIN ? columns - fixed : STRETCH_MIN;
}

static void print_cell(const struct cell *cell, const struct out_column *column, size_t width,
                       bool last)
{
    size_t shown = cell->width < width ? cell->width : width;
    size_t pad = width - shown;
    if (fit_of(column) == OUT_RIGHT)
        out_printf("%*s", (int)pad, "");
    bool coloured = cell->colour != OUT_PLAIN && cell->text[0] && !cell->chosen;
    if (coloured)
        out_printf("%s", out_colour(cell->colour));
    if (cell->width > width)
        out_printf("%.*s…", (int)cut_at(cell->text, width), cell->text);
    else
        out_printf("%s", cell->text);
    if (coloured)
        out_printf("%s", out_colour(OUT_PLAIN));
    if (!last)
        out_printf("%*s", (int)(GAP + (fit_of(column) == OUT_RIGHT ? 0 : pad)), "");
}

static void print_row(const struct out_table *table, struct cell *cells, size_t stretch)
{
    size_t last = table->columns_n - 1;
    bool chosen = cells[0].chosen;
    while (last > 0 && table->hidden[last])
        last--;
    if (chosen)
        out_printf("%s", out_colour(OUT_REVERSE));
    for (size_t i = 0; i <= last; i++) {
        size_t width = table->widths[i];
        if (fit_of(&table->columns[i]) == OUT_STRETCH && width > stretch)
            width = stretch;
        cells[i].chosen = chosen;
        if (!table->hidden[i])
            print_cell(&cells[i], &table->columns[i], width, i == last);
    }
    out_printf("%s\n", chosen ? out_colour(OUT_PLAIN) : "");
}

static void print_header(struct out_table *table, size_t stretch)
{
    struct cell *cells = cli_alloc(table->columns_n, sizeof *cells);
    for (size_t i = 0; i < table->columns_n; i++)
        cells[i] = (struct cell){(char *)table->columns[i].title, OUT_BOLD, false,
                                 strlen(table->columns[i].title)};
    print_row(table, cells, stretch);
    free(cells);
    table->header_printed = true;
}

void out_table_flush(struct out_table *table)
{
    if (!table->header_printed)
        hide_columns(table);
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
    free(table->hidden);
    free(table);
}
