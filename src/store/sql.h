/* SPDX-License-Identifier: Apache-2.0 */
/* The statements of a store and the steps of its schema, as tables of texts. */
#ifndef MR_STORE_SQL_H
#define MR_STORE_SQL_H

#include "store/db.h"

enum sql {
    /* Locks; every transaction that writes takes them first, in the order of names. */
    SQL_APP_TOUCH, /* app -> changed, and the clock when it was locked, where that is the database's */
    SQL_APP_COUNT, /* what was added or taken away */
    SQL_LEASE_ADD, /* name */
    SQL_LEASE_LOCK,
    SQL_LEASE_SET,
    SQL_LEASE_LIST,
    SQL_SERVER_PUT,
    SQL_SERVER_REMOVE,
    SQL_SERVER_LIST,
    SQL_APP_LIST,
    SQL_APP_CHANGED,
    SQL_TIMER_BY_NAME,
    SQL_TIMER_BY_UID,
    SQL_TIMER_HEAD_BY_NAME,
    SQL_TIMER_HEAD_BY_UID,
    SQL_TIMER_PUT,
    SQL_TIMER_MOVE,
    SQL_TIMER_TOUCH,
    SQL_TIMER_LIST,
    SQL_TIMER_LIST_APP,
    SQL_TIMER_PLACE,
    SQL_TIMER_PLACE_APP,
    SQL_DUE,
    SQL_DUE_SINCE,
    SQL_FIRING_GET,
    SQL_FIRING_ADD,
    SQL_FIRING_SET,
    SQL_FIRING_LIST,
    SQL_FIRING_OPEN,
    SQL_FIRING_OPEN_OF,
    SQL_FIRING_RUNNING,
    SQL_SUBAPPS_GET,
    SQL_SUBAPPS_PUT,
    SQL_SUBAPPS_LIST,
    SQL_MOVE_ADD,
    SQL_MOVE_TRIM,
    SQL_MOVE_LIST,
    SQL_RETAIN_FIRINGS,
    SQL_RETAIN_TIMERS,
    SQL_COUNT_TIMERS,
    SQL_COUNT_FIRINGS,
    SQL_COUNT_REST,
    SQL_COUNT
};

extern const struct statement sql_statements[SQL_COUNT];

/* SQLite knows a file of ours by this: "mill". */
#define SQL_APPLICATION_ID 0x6d696c6c

enum sql_dialect { SQL_SQLITE, SQL_POSTGRES, SQL_DIALECTS };

/* Step n brings schema n to n + 1. */
extern const char *const sql_steps[][SQL_DIALECTS];
extern const uint32_t sql_schema; /* the one that the statements need: how many steps there are */

/* Brings the schema to the one that is needed. MR_VERSION, MR_NOT_A_STORE, or what the database says;
 * detail has a line for people. */
MR_MUST_USE enum mr_err sql_migrate(struct db *db, struct mr_detail *detail);

#endif
