/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A database as the operations of a store see it: one connection, transactions, and statements of a
 * table (sql.c). An engine is these functions for one kind of database; the operations are written
 * once, over them.
 *
 * Errors: MR_BUSY (passing: the transaction is to be repeated), MR_UNAVAILABLE (the connection is
 * gone; so is the transaction, unless it was its commit), MR_DISK_FULL, MR_IO and MR_DAMAGED (nothing
 * more can be done), MR_NOMEM, MR_FAILED. After any of them the transaction is over but for the call
 * of rollback. Thread: the store's.
 */
#ifndef MR_STORE_DB_H
#define MR_STORE_DB_H

#include "base/clock.h"
#include "base/slice.h"

/* A parameter or a column; the statement says which of the two it is. */
struct db_value {
    int64_t number;
    struct mr_slice bytes;
};

static inline struct db_value db_number(int64_t number)
{
    return (struct db_value){.number = number};
}
static inline struct db_value db_bytes(struct mr_slice bytes)
{
    return (struct db_value){.bytes = bytes};
}

enum { DB_PARAMS_MAX = 24, DB_COLUMNS_MAX = 32, DB_TEXT_MAX = 512 };

/* Parameters are written $1, $2 ... in the texts of both. */
struct statement {
    /* One letter each: i a number, t text in UTF-8, b bytes; I a number of which only the first item's counts on
     * PostgreSQL: it is no array. */
    const char *params;
    const char *columns; /* of the rows it answers; empty: none */
    const char *sqlite;
    /* NULL: the same. Of a statement for many items each parameter is an array, and the first of the
     * columns, which stands in the text alone, is the number of the item, from 1. */
    const char *postgres;
    bool many;
};

/* What a db_row answers to have no more rows: nothing has failed. */
#define DB_ENOUGH MR_CANCELLED

/* Row `row` of what item `item` answered; it is valid during the call. */
typedef enum mr_err db_row(size_t item, const struct db_value *row, void *arg);

enum db_access { DB_READ, DB_WRITE };

struct db {
    const struct db_ops *ops;
    char text[DB_TEXT_MAX]; /* of the last error, for people */
};

struct db_ops {
    /* Connects (again); the old connection is gone. */
    enum mr_err (*connect)(struct db *db);
    void (*free)(struct db *db);
    enum mr_err (*begin)(struct db *db, enum db_access access);
    enum mr_err (*commit)(struct db *db);
    void (*rollback)(struct db *db);
    /* Carries a statement out for each of n items, whose parameters follow each other in values. A
     * statement that is not for many has one. */
    enum mr_err (*run)(struct db *db, size_t statement, const struct db_value *values, size_t n,
                       db_row *row, void *arg);
    /* A text of several statements without parameters or answers. */
    enum mr_err (*script)(struct db *db, const char *text);
    /* The clock that leases go by. */
    enum mr_err (*now)(struct db *db, int64_t *ret_ms);
    /* The schema that is there, 0: none; MR_NOT_A_STORE. In a transaction that writes. */
    enum mr_err (*schema)(struct db *db, uint32_t *ret_schema);
    /* "sqlite 3.40.1", and how much it takes up. */
    enum mr_err (*about)(struct db *db, char *engine, size_t cap, uint64_t *ret_bytes);
    /* The tables of a new segment are made, and those of one that nobody needs are dropped. NULL: segments are
     * no tables of their own. */
    enum mr_err (*segment_make)(struct db *db, uint64_t n);
    enum mr_err (*segment_drop)(struct db *db, uint64_t n);
    /* Which of the texts of schemas are this one's. */
    size_t dialect;
};

#endif
