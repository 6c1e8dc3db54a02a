/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of a store and what they share.
 *
 * store.c    its thread: requests in, transactions, repeats, answers
 * tx.c       a transaction: locks, the leases and apps in it, helpers of the operations
 * apply.c    timers: what is applied to them
 * timers.c   timers: looking
 * fire.c     the ledger and what moves timers on
 * ledger.c   the ledger: looking
 * lease.c    leases
 * server.c   servers that share the apps
 * subapps.c  how apps are cut, and what of that has moved
 * rest.c     retention, figures
 * sql.c      the statements; schema.c the steps of the schema
 * jobs_internal.h    the parts that are about jobs
 * sqlite/, postgres/   the databases (db.h)
 *
 * A transaction that writes begins with its locks: the rows of all leases and of all apps that its
 * requests are about, each kind in the order of names. Timers of an app change only under the lock of
 * its row, so what an operation has read stays true until it has written, on every server, and no two
 * transactions can wait for each other.
 *
 * An operation reads what is there for all its items, decides in memory, and writes what has changed
 * for all of them: a few statements, however many items. Whatever it leaves in its request is
 * overwritten when the transaction is repeated.
 */
#ifndef MR_STORE_INTERNAL_H
#define MR_STORE_INTERNAL_H

#include "store/db.h"
#include "store/sql_jobs.h"
#include "store/store.h"

struct tx_lease {
    struct mr_slice name, owner;
    uint64_t token;
    int64_t until_ms, ttl_ms;
    bool there;
};

struct tx_app {
    struct mr_slice name;
    uint64_t changed; /* for all that this transaction applies to it */
    /* Timers more or fewer, of the states that are counted. */
    int64_t counts[MR_ROW_FINISHED + 1];
};

struct tx {
    struct db *db;
    struct mr_arena scratch; /* until its end */
    int64_t now_ms;          /* the store's clock, when all locks were taken */
    struct tx_lease *leases; /* by name, locked */
    size_t leases_n;
    struct tx_app *apps; /* likewise */
    size_t apps_n;
    struct tx_job *jobs; /* by uid, locked */
    size_t jobs_n;
    /* The last segment, where it is locked, and what is in it. */
    uint64_t segment, segment_parts;
};

/* Names to be locked, gathered from requests. */
struct tx_names {
    struct mr_arena *arena;
    struct mr_slice *names;
    size_t n, cap;
};
MR_MUST_USE enum mr_err tx_names_add(struct tx_names *names, struct mr_slice name);

struct tx_locks {
    struct tx_names leases; /* rows that are made when they are missing */
    struct tx_names fences;
    struct tx_names apps;
    struct tx_names jobs; /* uids */
    bool segment;         /* the last one */
    bool clock;           /* somebody wants to know the time */
};

MR_MUST_USE enum mr_err tx_lock(struct tx *tx, struct tx_locks *locks);
/* Of jobs (job_tx.c): the last segment and jobs are locked; what is missing of them is made anew; what was
 * changed of them is written. */
MR_MUST_USE enum mr_err tx_jobs_lock(struct tx *tx, struct tx_locks *locks);
MR_MUST_USE enum mr_err tx_jobs_mend(struct tx *tx);
MR_MUST_USE enum mr_err tx_jobs_write(struct tx *tx);
/* What is locked; NULL when there is no such row. */
struct tx_lease *tx_lease(struct tx *tx, struct mr_slice name);
struct tx_app *tx_app(struct tx *tx, struct mr_slice name);
/* A timer of the app goes from one state to another. */
void tx_app_count(struct tx_app *app, enum mr_row_state from, enum mr_row_state to);
/* A lease as it is in the transaction is written. */
MR_MUST_USE enum mr_err tx_lease_write(struct tx *tx, const struct tx_lease *lease);
/* Writes what is left to be written, before the commit. */
MR_MUST_USE enum mr_err tx_end(struct tx *tx);
bool tx_lease_held(const struct tx_lease *lease, int64_t now_ms);
/* MR_STALE: not the holder. */
MR_MUST_USE enum mr_err tx_fence(struct tx *tx, const struct mr_store_fence *fence);
/* The name of a fence need not be one that a lease can have: then nobody holds it. */
MR_MUST_USE enum mr_err fence_check(const struct mr_store_fence *fence);

static inline enum mr_err tx_run(struct tx *tx, enum sql statement, const struct db_value *values,
                                 size_t n, db_row *row, void *arg)
{
    return n == 0 ? MR_OK : tx->db->ops->run(tx->db, statement, values, n, row, arg);
}

/* An operation of this cost has a transaction for itself. */
enum { COST_ALONE = 1000000 };

/* An operation; one row each. */
struct store_op {
    enum db_access access;
    /* Items, or rows to be read: how much of a transaction it takes up. NULL: one. */
    size_t (*cost)(const struct mr_store_req *req);
    /* What is wrong with the request as a whole. NULL: nothing. */
    enum mr_err (*check)(const struct mr_store_req *req);
    /* NULL: none. */
    enum mr_err (*locks)(const struct mr_store_req *req, struct tx_locks *locks);
    /* What is not MR_OK ends the transaction; what is wrong with the request goes into req->err. */
    enum mr_err (*carry)(struct tx *tx, struct mr_store_req *req);
    /* What of the answer is known when all requests of the transaction were carried out. NULL: nothing. */
    enum mr_err (*answer)(struct tx *tx, struct mr_store_req *req);
    /* Gives err to every item. NULL: it has none. */
    void (*fail)(struct mr_store_req *req, enum mr_err err);
    bool timeless; /* it does without tx.now_ms */
};

extern const struct store_op op_timers_apply, op_timer_get, op_timer_list, op_due, op_app_list;
extern const struct store_op op_fire, op_firing_set, op_firing_get, op_firing_list, op_firing_open;
extern const struct store_op op_lease, op_lease_list, op_server_beat, op_server_list;
extern const struct store_op op_subapps_set, op_subapps_list, op_moves_list;
extern const struct store_op op_retain, op_stats;
extern const struct store_op op_job_begin, op_parts_add, op_job_commit, op_job_abort, op_job_cancel,
    op_job_retry, op_job_end;
extern const struct store_op op_job_get, op_job_list, op_job_live, op_job_queues, op_job_events,
    op_parts_list;
extern const struct store_op op_parts_read, op_ready_read, op_job_advance, op_parts_again,
    op_parts_end;
extern const struct store_op op_result_add, op_result_read, op_segments, op_segment_retain,
    op_job_retain;

#define store_request(req, type) mr_container((req), struct type, req)

/* ---- rows ----------------------------------------------------------------------------------- */

/* Beyond so many bytes a page ends. */
#define PAGE_BYTES_MAX ((size_t)64 * 1024 * 1024)

/* A page that is being read: rows as they come, one more than asked for. */
struct page {
    struct mr_arena *arena;
    size_t max;
    size_t n;
    bool more;
    void *rows;
};
/* Rows of so many bytes each. max is checked at the door. */
MR_MUST_USE enum mr_err page_init(struct page *page, struct mr_arena *arena, size_t max,
                                  size_t size);
/* Whether there is room for one more; else that is noted. A page of big rows is shorter than was asked
 * for. */
static inline bool page_takes(struct page *page)
{
    bool has_room = page->n == 0 || page->arena->bytes < PAGE_BYTES_MAX;
    if (page->more || page->n >= page->max || !has_room)
        page->more = true;
    return !page->more;
}
MR_MUST_USE enum mr_err page_check(size_t max);

MR_MUST_USE enum mr_err row_timer(const struct db_value *row, struct mr_arena *arena,
                                  struct mr_store_timer *ret_timer);
MR_MUST_USE enum mr_err row_firing(const struct db_value *row, struct mr_arena *arena,
                                   struct mr_store_firing *ret_firing);
/* MR_DAMAGED: not 16 bytes. */
MR_MUST_USE enum mr_err row_uid(struct mr_slice bytes, struct mr_uuid *ret_uid);

static inline struct mr_slice uid_slice(const struct mr_uuid *uid)
{
    return mr_slice_make(uid->bytes, sizeof uid->bytes);
}
bool uid_is_zero(const struct mr_uuid *uid);
/* Times are not negative, so that pages can begin before all of them. */
static inline bool time_is_valid(int64_t ms)
{
    return ms >= 0;
}
/* A copy that any database takes: cut, UTF-8, without NUL. */
MR_MUST_USE enum mr_err text_copy(struct mr_arena *arena, struct mr_slice text, size_t max,
                                  struct mr_slice *ret_copy);
/* The same, to MR_STORE_REASON_MAX. */
MR_MUST_USE enum mr_err reason_copy(struct mr_arena *arena, struct mr_slice reason,
                                    struct mr_slice *ret_copy);
/* A hundred years: sums with it fit. */
#define TTL_MAX_MS (36525 * MR_MS_PER_DAY)
/* Not empty, UTF-8, without NUL. */
MR_MUST_USE enum mr_err text_check(struct mr_slice text, size_t max);
/* 0 of a request means all. */
static inline struct db_value slots_value(uint64_t slots)
{
    return db_number(slots != 0 ? (int64_t)slots : -1);
}
/* Of a home: empty, or a text. */
MR_MUST_USE enum mr_err home_check(struct mr_slice home);
/* Of a name that may be left out: empty, or as mr_name_check says. */
MR_MUST_USE enum mr_err name_or_empty(struct mr_slice name);

/* ---- databases ------------------------------------------------------------------------------ */

/* rest: of the URL, behind its scheme. Not connected yet. */
MR_MUST_USE enum mr_err sqlite_db_new(const struct mr_store_options *options, const char *rest,
                                      struct db **ret_db, struct mr_detail *detail);
MR_MUST_USE enum mr_err postgres_db_new(const struct mr_store_options *options, const char *rest,
                                        struct db **ret_db, struct mr_detail *detail);

#endif
