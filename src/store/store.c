/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store's thread. What waits when it is free becomes one transaction, up to a limit; answers are
 * given when it is committed. A transaction that fails for a passing reason is repeated as a whole;
 * one that fails for good is taken apart, so that each request gets the answer that is its own.
 */
#include "store/internal.h"

#include <stdlib.h>

enum {
    /* Items and rows of a transaction of several requests. More would be little faster, and whoever comes
     * next, to fire at a moment, waits for all of it. */
    TX_COST_MAX = 2000,
    PAUSE_FIRST_MS = 1, /* before a repeat; doubled each time */
    PAUSE_MAX_MS = 200,
    NOTE_MS = 1000, /* what has passed by then was no problem */
};

struct mr_store {
    struct db *db;
    struct mr_clock *clock;
    int64_t away_ms;
    void (*stopped)(enum mr_err err, const char *text, void *arg);
    void *arg;
    pthread_t thread;
    struct mr_chan inbox;
    _Atomic bool closing;
    /* The thread's: */
    struct mr_link waiting; /* requests in order */
    bool connected;
    enum mr_err broken; /* it has stopped */
    /* Shared: */
    struct mr_lock lock;
    enum mr_err problem;
    struct mr_detail problem_line;
    struct mr_store_counts counts;
};

static const struct store_op *const ops[MR_STORE_OP_COUNT] = {
    [MR_STORE_TIMERS_APPLY] = &op_timers_apply,
    [MR_STORE_TIMER_GET] = &op_timer_get,
    [MR_STORE_TIMER_LIST] = &op_timer_list,
    [MR_STORE_DUE] = &op_due,
    [MR_STORE_FIRE] = &op_fire,
    [MR_STORE_FIRING_SET] = &op_firing_set,
    [MR_STORE_FIRING_GET] = &op_firing_get,
    [MR_STORE_FIRING_LIST] = &op_firing_list,
    [MR_STORE_FIRING_OPEN] = &op_firing_open,
    [MR_STORE_LEASE] = &op_lease,
    [MR_STORE_LEASE_LIST] = &op_lease_list,
    [MR_STORE_SERVER_BEAT] = &op_server_beat,
    [MR_STORE_SERVER_LIST] = &op_server_list,
    [MR_STORE_APP_LIST] = &op_app_list,
    [MR_STORE_SUBAPPS_SET] = &op_subapps_set,
    [MR_STORE_SUBAPPS_LIST] = &op_subapps_list,
    [MR_STORE_MOVES_LIST] = &op_moves_list,
    [MR_STORE_RETAIN] = &op_retain,
    [MR_STORE_STATS] = &op_stats,
    [MR_STORE_JOB_BEGIN] = &op_job_begin,
    [MR_STORE_PARTS_ADD] = &op_parts_add,
    [MR_STORE_JOB_COMMIT] = &op_job_commit,
    [MR_STORE_JOB_ABORT] = &op_job_abort,
    [MR_STORE_JOB_CANCEL] = &op_job_cancel,
    [MR_STORE_JOB_RETRY] = &op_job_retry,
    [MR_STORE_JOB_END] = &op_job_end,
    [MR_STORE_JOB_GET] = &op_job_get,
    [MR_STORE_JOB_LIST] = &op_job_list,
    [MR_STORE_JOB_LIVE] = &op_job_live,
    [MR_STORE_JOB_QUEUES] = &op_job_queues,
    [MR_STORE_JOB_EVENTS] = &op_job_events,
    [MR_STORE_PARTS_LIST] = &op_parts_list,
    [MR_STORE_PARTS_READ] = &op_parts_read,
    [MR_STORE_READY_READ] = &op_ready_read,
    [MR_STORE_JOB_ADVANCE] = &op_job_advance,
    [MR_STORE_PARTS_AGAIN] = &op_parts_again,
    [MR_STORE_PARTS_END] = &op_parts_end,
    [MR_STORE_RESULT_ADD] = &op_result_add,
    [MR_STORE_RESULT_READ] = &op_result_read,
    [MR_STORE_SEGMENTS] = &op_segments,
    [MR_STORE_SEGMENT_RETAIN] = &op_segment_retain,
    [MR_STORE_JOB_RETAIN] = &op_job_retain,
};

void mr_store_req_done(struct mr_store_req *req)
{
    mr_arena_done(&req->arena);
}

/* ---- what is told --------------------------------------------------------------------------- */

static void note_problem(struct mr_store *store, enum mr_err err, const char *text)
{
    mr_lock_enter(&store->lock);
    store->problem = err;
    mr_detail_set(&store->problem_line, "%s", text);
    mr_lock_leave(&store->lock);
}

static void count(struct mr_store *store, uint64_t *counter, uint64_t n)
{
    mr_lock_enter(&store->lock);
    *counter += n;
    mr_lock_leave(&store->lock);
}

void mr_store_counts(struct mr_store *store, struct mr_store_counts *ret_counts)
{
    mr_lock_enter(&store->lock);
    *ret_counts = store->counts;
    mr_lock_leave(&store->lock);
}

enum mr_err mr_store_problem(struct mr_store *store, struct mr_detail *ret_line)
{
    mr_lock_enter(&store->lock);
    enum mr_err err = store->problem;
    *ret_line = store->problem_line;
    mr_lock_leave(&store->lock);
    return err;
}

static void stop(struct mr_store *store, enum mr_err err)
{
    if (store->broken != MR_OK)
        return;
    store->broken = err;
    note_problem(store, err, store->db->text);
    if (store->stopped)
        store->stopped(err, store->db->text, store->arg);
}

static void answer(struct mr_store *store, struct mr_store_req *req, enum mr_err err)
{
    const struct store_op *op = ops[req->op];
    mr_list_remove(&req->link);
    if (err != MR_OK)
        req->err = err;
    if (req->err != MR_OK && op->fail)
        op->fail(req, req->err);
    count(store, &store->counts.requests, 1);
    req->done(req);
}

static void answer_all(struct mr_store *store, struct mr_link *batch, enum mr_err err)
{
    while (!mr_list_empty(batch))
        answer(store, mr_container(batch->next, struct mr_store_req, link), err);
}

/* ---- a transaction -------------------------------------------------------------------------- */

#define for_each_req(batch, req)                                                                   \
    for (struct mr_store_req *req = mr_container((batch)->next, struct mr_store_req, link);        \
         &req->link != (batch); req = mr_container(req->link.next, struct mr_store_req, link))

static enum mr_err lock_all(struct tx *tx, struct mr_link *batch)
{
    struct tx_locks locks = {.leases.arena = &tx->scratch,
                             .fences.arena = &tx->scratch,
                             .apps.arena = &tx->scratch,
                             .jobs.arena = &tx->scratch};
    for_each_req(batch, req)
    {
        if (req->err != MR_OK)
            continue;
        locks.clock = locks.clock || !ops[req->op]->timeless;
        if (ops[req->op]->locks)
            MR_TRY(ops[req->op]->locks(req, &locks));
    }
    return tx_lock(tx, &locks);
}

static enum mr_err carry_all(struct tx *tx, struct mr_link *batch)
{
    MR_TRY(lock_all(tx, batch));
    for_each_req(batch, req)
    {
        if (req->err == MR_OK)
            MR_TRY(ops[req->op]->carry(tx, req));
    }
    for_each_req(batch, req)
    {
        if (req->err == MR_OK && ops[req->op]->answer)
            MR_TRY(ops[req->op]->answer(tx, req));
    }
    return tx_end(tx);
}

static enum db_access access_of(struct mr_link *batch)
{
    enum db_access access = DB_READ;
    for_each_req(batch, req)
    {
        if (req->err == MR_OK && ops[req->op]->access == DB_WRITE)
            access = DB_WRITE;
    }
    return access;
}

static enum mr_err connect_again(struct mr_store *store)
{
    if (store->connected)
        return MR_OK;
    MR_TRY(store->db->ops->connect(store->db));
    /* What we come back to may be another database under the same name. */
    MR_TRY(sql_migrate(store->db, NULL));
    store->connected = true;
    count(store, &store->counts.connects, 1);
    return MR_OK;
}

/* From the state that requests were submitted in. */
static void begin_again(struct mr_link *batch)
{
    for_each_req(batch, req)
    {
        mr_arena_reset(&req->arena);
        req->err = ops[req->op]->check ? ops[req->op]->check(req) : MR_OK;
    }
}

static enum mr_err attempt(struct mr_store *store, struct mr_link *batch)
{
    struct db *db = store->db;
    begin_again(batch);
    MR_TRY(connect_again(store));
    struct tx tx = {.db = db};
    enum db_access access = access_of(batch);
    enum mr_err err = db->ops->begin(db, access);
    if (err == MR_OK)
        err = carry_all(&tx, batch);
    if (err == MR_OK)
        err = db->ops->commit(db);
    if (err != MR_OK)
        db->ops->rollback(db);
    mr_arena_done(&tx.scratch);
    if (err == MR_UNAVAILABLE)
        store->connected = false;
    if (err == MR_OK) {
        count(store, &store->counts.transactions, 1);
        /* That there is space again shows only when something was written. */
        if (store->problem == MR_UNAVAILABLE || (store->problem != MR_OK && access == DB_WRITE))
            note_problem(store, MR_OK, "");
    }
    return err;
}

/* ---- repeating ------------------------------------------------------------------------------ */

static bool is_passing(enum mr_err err)
{
    return err == MR_BUSY || err == MR_UNAVAILABLE;
}

static void take_inbox(struct mr_store *store)
{
    for (struct mr_msg *msg = mr_chan_take_all(&store->inbox); msg;) {
        struct mr_store_req *req = mr_container(msg, struct mr_store_req, msg);
        msg = msg->next;
        mr_list_push_back(&store->waiting, &req->link);
    }
}

static bool is_overdue(struct mr_store *store, const struct mr_store_req *req)
{
    mr_mono end = mr_mono_add_ms(req->submitted, store->away_ms);
    return store->closing || mr_mono_now(store->clock).ns >= end.ns;
}

/* Who has waited for too long gets an answer, also behind those that are being repeated. */
static void answer_overdue(struct mr_store *store, struct mr_link *list)
{
    struct mr_link *next;
    for (struct mr_link *link = list->next; link != list; link = next) {
        next = link->next;
        struct mr_store_req *req = mr_container(link, struct mr_store_req, link);
        if (is_overdue(store, req))
            answer(store, req, store->closing ? MR_CLOSED : MR_UNAVAILABLE);
    }
}

/* Lets a moment pass, and ends before it when the store is closed. */
static void pause_ms(struct mr_store *store, int64_t ms)
{
    mr_mono end = mr_mono_add_ms(mr_mono_now(store->clock), ms);
    for (;;) {
        int64_t left = end.ns - mr_mono_now(store->clock).ns;
        if (left <= 0 || store->closing)
            return;
        take_inbox(store);
        mr_chan_wait(&store->inbox, left);
    }
}

/* Once, and again until it is not for a passing reason that it fails. Those that were overdue have left
 * the batch. */
static enum mr_err attempt_until_clear(struct mr_store *store, struct mr_link *batch)
{
    int64_t wait_ms = PAUSE_FIRST_MS;
    mr_mono since = mr_mono_now(store->clock);
    for (;;) {
        enum mr_err err = attempt(store, batch);
        if (!is_passing(err))
            return err;
        int64_t lasted_ns = mr_mono_now(store->clock).ns - since.ns;
        if (lasted_ns >= NOTE_MS * MR_NS_PER_MS || lasted_ns >= store->away_ms * MR_NS_PER_MS)
            note_problem(store, MR_UNAVAILABLE, store->db->text);
        answer_overdue(store, batch);
        answer_overdue(store, &store->waiting);
        if (mr_list_empty(batch))
            return MR_OK;
        count(store, &store->counts.repeats, 1);
        pause_ms(store, wait_ms);
        wait_ms = 2 * wait_ms < PAUSE_MAX_MS ? 2 * wait_ms : PAUSE_MAX_MS;
    }
}

static void carry_out_one(struct mr_store *store, struct mr_link *batch)
{
    enum mr_err err = attempt_until_clear(store, batch);
    if (err == MR_IO || err == MR_DAMAGED)
        stop(store, err);
    else if (err == MR_DISK_FULL)
        note_problem(store, err, store->db->text);
    answer_all(store, batch, err);
}

static void carry_out(struct mr_store *store, struct mr_link *batch)
{
    if (batch->next->next == batch) {
        carry_out_one(store, batch);
        return;
    }
    enum mr_err err = attempt_until_clear(store, batch);
    if (err == MR_OK) {
        answer_all(store, batch, MR_OK);
        return;
    }
    struct mr_link one;
    mr_list_init(&one);
    for (struct mr_link *link; (link = mr_list_pop_front(batch)) != NULL;) {
        mr_list_push_back(&one, link);
        if (store->broken != MR_OK)
            answer_all(store, &one, store->broken);
        else
            carry_out_one(store, &one);
    }
}

/* ---- the thread ----------------------------------------------------------------------------- */

static size_t cost_of(const struct mr_store_req *req)
{
    size_t cost = ops[req->op]->cost ? ops[req->op]->cost(req) : 1;
    return cost > 0 ? cost : 1;
}

/* The first of those that wait, as many as fit into a transaction. */
static void take_batch(struct mr_store *store, struct mr_link *batch)
{
    size_t sum = 0;
    while (!mr_list_empty(&store->waiting)) {
        size_t cost = cost_of(mr_container(store->waiting.next, struct mr_store_req, link));
        if (sum > 0 && (cost > TX_COST_MAX || sum + cost > TX_COST_MAX))
            return;
        sum += cost;
        mr_list_push_back(batch, mr_list_pop_front(&store->waiting));
    }
}

static void *run(void *arg)
{
    struct mr_store *store = arg;
    struct mr_link batch;
    mr_list_init(&batch);
    for (;;) {
        bool closing = store->closing;
        take_inbox(store);
        if (mr_list_empty(&store->waiting)) {
            if (closing)
                return NULL;
            mr_chan_wait(&store->inbox, INT64_MAX);
            continue;
        }
        take_batch(store, &batch);
        if (store->broken != MR_OK)
            answer_all(store, &batch, store->broken);
        else
            carry_out(store, &batch);
    }
}

void mr_store_submit(struct mr_store *store, struct mr_store_req *req)
{
    mr_assert(req->op < MR_STORE_OP_COUNT && req->done);
    req->err = MR_OK;
    req->submitted = mr_mono_now(store->clock);
    mr_list_init(&req->link);
    mr_chan_send(&store->inbox, &req->msg);
}

static void call_done(struct mr_store_req *req)
{
    mr_event_set(req->arg);
}

enum mr_err mr_store_call(struct mr_store *store, struct mr_store_req *req)
{
    struct mr_event answered;
    mr_event_init(&answered);
    req->done = call_done;
    req->arg = &answered;
    mr_store_submit(store, req);
    mr_event_wait(&answered, INT64_MAX);
    return req->err;
}

/* ---- opening -------------------------------------------------------------------------------- */

static const struct {
    const char *scheme;
    enum mr_err (*make)(const struct mr_store_options *options, const char *rest,
                        struct db **ret_db, struct mr_detail *detail);
} engines[] = {
    {"sqlite:", sqlite_db_new},
    {"postgres://", postgres_db_new},
    {"postgresql://", postgres_db_new},
};

static enum mr_err make_db(const struct mr_store_options *options, struct db **ret_db,
                           struct mr_detail *detail)
{
    const char *url = options->url ? options->url : "";
    for (size_t i = 0; i < sizeof engines / sizeof *engines; i++) {
        size_t len = strlen(engines[i].scheme);
        if (strncmp(url, engines[i].scheme, len) == 0)
            return engines[i].make(options, url + len, ret_db, detail);
    }
    mr_detail_set(detail, "a store is sqlite:PATH or postgres://HOST/DATABASE");
    return MR_INVALID;
}

/* Another process that starts at the same time may be in the way: that passes. A server that is not there
 * is told at once. */
static enum mr_err open_db(struct mr_store *store, struct mr_detail *detail)
{
    mr_mono end = mr_mono_add_ms(mr_mono_now(store->clock), store->away_ms);
    for (;;) {
        mr_detail_set(detail, "%s", "");
        enum mr_err err = store->db->ops->connect(store->db);
        if (err == MR_OK)
            err = sql_migrate(store->db, detail);
        if (err != MR_OK && detail && detail->text[0] == '\0')
            mr_detail_set(detail, "%s", store->db->text);
        if (err != MR_BUSY)
            return err;
        if (mr_mono_now(store->clock).ns >= end.ns)
            return MR_IN_USE;
        mr_chan_wait(&store->inbox, PAUSE_MAX_MS * MR_NS_PER_MS);
    }
}

static void store_free(struct mr_store *store)
{
    if (store->db)
        store->db->ops->free(store->db);
    mr_lock_done(&store->lock);
    free(store);
}

enum mr_err mr_store_open(const struct mr_store_options *options, struct mr_store **ret_store,
                          struct mr_detail *detail)
{
    struct mr_store *store = calloc(1, sizeof *store);
    if (!store)
        return MR_NOMEM;
    store->clock = options->clock ? options->clock : mr_clock_system();
    store->away_ms = options->away_ms > 0 ? options->away_ms : MR_STORE_AWAY_MS;
    store->stopped = options->stopped;
    store->arg = options->arg;
    mr_lock_init(&store->lock);
    mr_chan_init(&store->inbox);
    mr_list_init(&store->waiting);
    enum mr_err err = make_db(options, &store->db, detail);
    if (err == MR_OK)
        err = open_db(store, detail);
    if (err == MR_OK) {
        store->connected = true;
        store->counts.connects = 1;
        err = mr_thread_start(&store->thread, "store", run, store);
    }
    if (err != MR_OK) {
        store_free(store);
        return err;
    }
    *ret_store = store;
    return MR_OK;
}

void mr_store_close(struct mr_store *store)
{
    if (!store)
        return;
    store->closing = true;
    mr_chan_wake(&store->inbox);
    mr_thread_join(store->thread);
    store_free(store);
}
