/* SPDX-License-Identifier: Apache-2.0 */
/*
 * PostgreSQL: the parts and what they share.
 *
 * postgres.c  the connection: waiting, errors, transactions
 * values.c    parameters as arrays, rows as values
 *
 * Thread: the store's.
 */
#ifndef MR_STORE_POSTGRES_INTERNAL_H
#define MR_STORE_POSTGRES_INTERNAL_H

#include <libpq-fe.h>

#include "base/buf.h"
#include "store/internal.h"

/* What goes with a statement: each parameter in the binary form of its type. */
struct pg_params {
    struct mr_buf bytes[DB_PARAMS_MAX];
    const char *values[DB_PARAMS_MAX];
    int lengths[DB_PARAMS_MAX];
    int formats[DB_PARAMS_MAX];
    int n;
};

void pg_params_done(struct pg_params *params);
/* Of n items, whose values follow each other; an array each if the statement is for many. */
MR_MUST_USE enum mr_err pg_params_set(struct pg_params *params, const struct statement *statement,
                                      const struct db_value *values, size_t n);
/* The types of its parameters, in the numbers of PostgreSQL; answers how many there are. */
int pg_types(const struct statement *statement, Oid types[DB_PARAMS_MAX]);
/* Gives each row of an answer to take. MR_DAMAGED: it is not of the form that the statement says. */
MR_MUST_USE enum mr_err pg_rows(const PGresult *result, const struct statement *statement, size_t n,
                                db_row *take, void *arg);
/* A number of 2, 4 or 8 bytes. */
int64_t pg_number(const PGresult *result, int row, int column);

#endif
