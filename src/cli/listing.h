/* SPDX-License-Identifier: Apache-2.0 */
/* A list that comes in pages: as a table, or as an array of JSON; and what is said of how much of it was shown. */
#ifndef MR_CLI_LISTING_H
#define MR_CLI_LISTING_H

#include "cli/cli.h"
#include "cli/jw.h"
#include "cli/out.h"

enum { LISTING_LIMIT = 50 /* where none is given */, LISTING_CURSOR_MAX = 512 };

/* A list on its way. */
struct listing {
    struct jw *jw;           /* where items go; NULL: */
    struct out_table *table; /* here */
    size_t limit;            /* of the next page */
    size_t shown;
    char cursor[LISTING_CURSOR_MAX]; /* where the next page begins; empty: there is none */
};

/* What is listed. */
struct listing_kind {
    struct out_table *(*table)(void);
    /* Asks for the next page, prints its items, and tells listing_turn. */
    enum mr_err (*page)(struct cli *cli, const void *args, struct listing *listing);
    const char *none; /* said when there are no items */
};

/* As the options of a page have it: NULL, from the start. */
const char *listing_cursor(const struct listing *listing);
/* A page of n items was printed; next: where the one behind it begins, empty: nowhere. */
void listing_turn(struct listing *listing, size_t n, const char *next);

/* Prints all of it up to the limit, and what there is to say. Who called says what went wrong. */
MR_MUST_USE enum mr_err listing_print(struct cli *cli, const struct listing_kind *kind,
                                      const void *args, const struct cli_value *limit);

#endif
