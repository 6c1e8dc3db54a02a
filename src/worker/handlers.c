/* SPDX-License-Identifier: Apache-2.0 */
/* Exact types are found by bisection, prefixes by walking a list that has the longest first. */
#include "worker/handlers.h"

#include <stdlib.h>

static struct mr_slice row_name(const struct mr_handler_row *row)
{
    return mr_slice_make(row->name, row->len);
}

static int compare_exact(struct mr_slice a, struct mr_slice b)
{
    return mr_slice_compare(a, b);
}

static int compare_prefix(struct mr_slice a, struct mr_slice b)
{
    if (a.len != b.len)
        return a.len > b.len ? -1 : 1;
    return mr_slice_compare(a, b);
}

typedef int compare(struct mr_slice a, struct mr_slice b);

/* The first row that does not sort before name. */
static size_t lower_bound(const struct mr_handler_rows *list, struct mr_slice name, compare *order)
{
    size_t low = 0, high = list->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (order(row_name(&list->rows[middle]), name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static enum mr_err insert(struct mr_handler_rows *list, struct mr_handler_row row, compare *order)
{
    struct mr_slice name = row_name(&row);
    size_t at = lower_bound(list, name, order);
    if (at < list->n && mr_slice_equal(row_name(&list->rows[at]), name))
        return MR_CONFLICT;
    struct mr_handler_row *rows = realloc(list->rows, (list->n + 1) * sizeof *rows);
    if (!rows)
        return MR_NOMEM;
    list->rows = rows;
    row.name = strdup(row.name);
    if (!row.name)
        return MR_NOMEM;
    memmove(rows + at + 1, rows + at, (list->n - at) * sizeof *rows);
    rows[at] = row;
    list->n++;
    return MR_OK;
}

enum mr_err mr_handlers_add(struct mr_handlers *handlers, const char *pattern, mr_handler *handler,
                            void *arg)
{
    if (!pattern || !handler)
        return MR_INVALID;
    MR_TRY(mr_name_check(mr_slice_str(pattern)));
    struct mr_handler_row row = {(char *)pattern, strlen(pattern), handler, arg};
    if (pattern[row.len - 1] != '*')
        return insert(&handlers->exact, row, compare_exact);
    row.len--;
    return insert(&handlers->prefixes, row, compare_prefix);
}

const struct mr_handler_row *mr_handlers_find(const struct mr_handlers *handlers,
                                              struct mr_slice type)
{
    const struct mr_handler_rows *exact = &handlers->exact;
    size_t at = lower_bound(exact, type, compare_exact);
    if (at < exact->n && mr_slice_equal(row_name(&exact->rows[at]), type))
        return &exact->rows[at];
    const struct mr_handler_rows *prefixes = &handlers->prefixes;
    for (size_t i = 0; i < prefixes->n; i++)
        if (mr_slice_starts_with(type, row_name(&prefixes->rows[i])))
            return &prefixes->rows[i];
    return NULL;
}

size_t mr_handlers_patterns(const struct mr_handlers *handlers, struct mr_slice *ret_patterns,
                            size_t max)
{
    const struct mr_handler_rows *lists[] = {&handlers->exact, &handlers->prefixes};
    size_t n = 0;
    if (handlers->exact.n + handlers->prefixes.n > max)
        return 0;
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        for (size_t j = 0; j < lists[i]->n; j++) {
            if (lists[i]->rows[j].len == 0)
                return 0; /* "*" */
            ret_patterns[n++] = mr_slice_str(lists[i]->rows[j].name);
        }
    return n;
}

static void rows_done(struct mr_handler_rows *list)
{
    for (size_t i = 0; i < list->n; i++)
        free(list->rows[i].name);
    free(list->rows);
    *list = (struct mr_handler_rows){0};
}

void mr_handlers_done(struct mr_handlers *handlers)
{
    rows_done(&handlers->exact);
    rows_done(&handlers->prefixes);
}
