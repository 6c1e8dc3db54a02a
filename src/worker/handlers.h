/* SPDX-License-Identifier: Apache-2.0 */
/* Which handler runs a type: the exact one, else the longest prefix. Built once, then only read. */
#ifndef MR_WORKER_HANDLERS_H
#define MR_WORKER_HANDLERS_H

#include "base/slice.h"

struct mr_handler_row {
    char *name;
    size_t len; /* without the '*' of a prefix */
    mr_handler *handler;
    void *arg;
};

/* Sorted rows of one kind. */
struct mr_handler_rows {
    struct mr_handler_row *rows;
    size_t n;
};

/* Zero-initialised is empty. */
struct mr_handlers {
    struct mr_handler_rows exact;    /* by name */
    struct mr_handler_rows prefixes; /* longest first */
};

/* MR_INVALID, MR_TOO_BIG for a bad pattern, MR_CONFLICT when it is there already, MR_NOMEM. */
MR_MUST_USE enum mr_err mr_handlers_add(struct mr_handlers *handlers, const char *pattern,
                                        mr_handler *handler, void *arg);
/* NULL when nobody handles this type. Thread: any, after the last add. */
const struct mr_handler_row *mr_handlers_find(const struct mr_handlers *handlers,
                                              struct mr_slice type);
/* Fills in what is handled, as patterns that live as long as the handlers do, and answers how many.
 * None when everything is, or when there are more than max. */
size_t mr_handlers_patterns(const struct mr_handlers *handlers, struct mr_slice *ret_patterns,
                            size_t max);
void mr_handlers_done(struct mr_handlers *handlers);

#endif
