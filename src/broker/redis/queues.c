/* SPDX-License-Identifier: Apache-2.0 */
/* Queues: what is in them, what they did, their settings, and their end. */
#include <assert.h>

#include "broker/redis/look.h"

/* ---- figures -------------------------------------------------------------------------------- */

static uint64_t figure(const struct mr_reply *reply, enum figure which)
{
    int64_t number = mr_reply_int(mr_reply_at(reply, which), 0);
    return number > 0 ? (uint64_t)number : 0;
}

static void fill_info(const struct rqueue *queue, const struct mr_reply *reply,
                      struct mr_queue_info *info)
{
    *info = (struct mr_queue_info){
        .paused = figure(reply, FIGURE_PAUSED) != 0,
        .oldest_pending_ms = (int64_t)figure(reply, FIGURE_OLDEST),
        .processed_total = figure(reply, FIGURE_PROCESSED),
        .failed_total = figure(reply, FIGURE_FAILED),
        .processed_today = figure(reply, FIGURE_PROCESSED_TODAY),
        .failed_today = figure(reply, FIGURE_FAILED_TODAY),
        .max_length = figure(reply, FIGURE_MAX),
        .trimmed = figure(reply, FIGURE_TRIMMED),
        .quarantined = figure(reply, FIGURE_QUARANTINED),
        .partitions = 1,
    };
    static_assert(FIGURE_AGGREGATING + 1 == MR_AGGREGATING, "figures begin with the states");
    for (size_t state = MR_SCHEDULED; state < MR_STATE_COUNT; state++)
        info->counts[state] = figure(reply, (enum figure)(state - 1));
    /* Only runs of this process are known. */
    latency_show(queue->latency, mr_redis_now(queue->engine->redis), info);
    size_t len = queue->name.len < MR_NAME_MAX ? queue->name.len : MR_NAME_MAX;
    memcpy(info->name, queue->name.data, len);
}

/* One of those that are listed. */
struct row {
    struct mr_redis_call call;
    struct rows *rows;
    struct rqueue *queue;
    struct mr_queue_info *info;
};

struct rows {
    struct ticket *ticket;
    size_t left;
    enum mr_err err;
    struct row row[];
};

static void row_answered(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct row *row = call->arg;
    struct rows *rows = row->rows;
    err = look_array(row->queue->engine, err, reply);
    if (err == MR_OK)
        fill_info(row->queue, reply, row->info);
    else if (rows->err == MR_OK)
        rows->err = err;
    if (--rows->left == 0)
        ticket_done(rows->ticket, rows->err);
}

static enum mr_err choose(struct mr_req_queue_list *req, struct engine *engine,
                          struct known *ret_known)
{
    struct known all, chosen;
    MR_TRY(known_queues(engine, &req->req.arena, &all));
    chosen = (struct known){.queues = all.queues};
    for (size_t i = 0; i < all.n && chosen.n < req->max; i++) {
        struct mr_slice name = all.queues[i]->name;
        if (req->only.len > 0 ? mr_slice_equal(name, req->only)
                              : mr_slice_compare(name, req->after) > 0)
            chosen.queues[chosen.n++] = all.queues[i];
    }
    if (req->only.len > 0 && req->max == 0)
        return MR_INVALID;
    if (req->only.len > 0 && chosen.n == 0)
        return MR_NOT_FOUND;
    *ret_known = chosen;
    return MR_OK;
}

static void list_queues(struct ticket *ticket)
{
    struct mr_req_queue_list *req = mr_container(ticket->req, struct mr_req_queue_list, req);
    struct known known = {0};
    struct rows *rows = NULL;
    enum mr_err err = choose(req, ticket->engine, &known);
    if (err == MR_OK && known.n > 0) {
        rows = mr_arena_calloc(&req->req.arena, 1, sizeof *rows + known.n * sizeof(struct row));
        err = rows != NULL ? MR_OK : MR_NOMEM;
    }
    if (err != MR_OK || known.n == 0) {
        ticket_done(ticket, err);
        return;
    }
    *rows = (struct rows){.ticket = ticket, .left = known.n};
    req->n = known.n;
    for (size_t i = 0; i < known.n; i++) {
        struct row *row = &rows->row[i];
        *row = (struct row){
            .call = {.answered = row_answered, .arg = row, .repeatable = true, .urgent = true},
            .rows = rows,
            .queue = known.queues[i],
            .info = &req->infos[i]};
        rqueue_eval(row->queue, &row->call, SCRIPT_QUEUE, NULL, 0);
    }
}

void queue_list_begin(struct ticket *ticket)
{
    mr_container(ticket->req, struct mr_req_queue_list, req)->n = 0;
    look_names(ticket, list_queues);
}

/* ---- one queue ------------------------------------------------------------------------------ */

/* One call about one queue. */
struct single {
    struct mr_redis_call call;
    struct ticket *ticket;
    struct rqueue *queue;
};

static struct single *single_new(struct ticket *ticket, struct rqueue *queue,
                                 void (*answered)(struct mr_redis_call *, enum mr_err,
                                                  const struct mr_reply *))
{
    struct single *single = mr_arena_calloc(&ticket->req->arena, 1, sizeof *single);
    if (single == NULL || queue == NULL) {
        ticket_done(ticket, single == NULL ? MR_NOMEM : MR_NOT_FOUND);
        return NULL;
    }
    *single = (struct single){
        .call = {.answered = answered, .arg = single, .repeatable = true, .urgent = true},
        .ticket = ticket,
        .queue = queue};
    return single;
}

/* Whatever it was, it was done. */
static void single_done(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct single *single = call->arg;
    if (err != MR_OK)
        err = engine_refused(single->queue->engine, err, reply);
    ticket_done(single->ticket, err);
}

/* ---- history -------------------------------------------------------------------------------- */

static void history_answered(struct mr_redis_call *call, enum mr_err err,
                             const struct mr_reply *reply)
{
    struct single *single = call->arg;
    struct mr_req_queue_history *req =
        mr_container(single->ticket->req, struct mr_req_queue_history, req);
    err = look_array(single->queue->engine, err, reply);
    for (size_t i = 0; err == MR_OK && i + 2 < reply->n && req->n < req->max; i += 3)
        req->days[req->n++] = (struct mr_queue_day){
            .start_ms = mr_reply_int(mr_reply_at(reply, i), 0) * MR_MS_PER_DAY,
            .processed = (uint64_t)mr_reply_int(mr_reply_at(reply, i + 1), 0),
            .failed = (uint64_t)mr_reply_int(mr_reply_at(reply, i + 2), 0),
        };
    ticket_done(single->ticket, err);
}

static void read_history(struct ticket *ticket)
{
    struct mr_req_queue_history *req = mr_container(ticket->req, struct mr_req_queue_history, req);
    struct rqueue *queue = known_queue(ticket->engine, req->queue);
    struct single *single = single_new(ticket, queue, history_answered);
    char number[NUMBER_MAX];
    if (single == NULL)
        return;
    int64_t max = req->max < MR_QUEUE_DAYS_MAX ? (int64_t)req->max : MR_QUEUE_DAYS_MAX;
    struct mr_slice arg = number_arg(max, number);
    rqueue_eval(queue, &single->call, SCRIPT_HISTORY, &arg, 1);
}

void queue_history_begin(struct ticket *ticket)
{
    mr_container(ticket->req, struct mr_req_queue_history, req)->n = 0;
    look_names(ticket, read_history);
}

/* ---- settings ------------------------------------------------------------------------------- */

enum mr_err queue_set_prepare(struct ticket *ticket)
{
    const struct mr_req_queue_set *req = mr_container(ticket->req, struct mr_req_queue_set, req);
    MR_TRY(mr_queue_set_check(req));
    return req->setting > MR_QUEUE_MAX_LENGTH ? MR_UNSUPPORTED : MR_OK;
}

static void set_paused(struct ticket *ticket)
{
    struct mr_req_queue_set *req = mr_container(ticket->req, struct mr_req_queue_set, req);
    struct rqueue *queue = known_queue(ticket->engine, req->queue);
    struct mr_slice arg = req->value != 0 ? MR_SLICE_LIT("1") : MR_SLICE_LIT("0");
    struct single *single = single_new(ticket, queue, single_done); /* NULL: it is answered */
    if (single == NULL)
        return;
    single->call.durable = true;
    rqueue_eval(queue, &single->call, SCRIPT_PAUSE, &arg, 1);
}

static void set_max(struct ticket *ticket)
{
    struct mr_req_queue_set *req = mr_container(ticket->req, struct mr_req_queue_set, req);
    struct rqueue *queue = rqueue_of(ticket->engine, req->queue);
    struct single *single = single_new(ticket, queue, single_done);
    struct mr_buf key = {0};
    char number[NUMBER_MAX];
    if (single == NULL)
        return;
    if (mr_buf_append_slice(&key, queue->prefix) != MR_OK ||
        mr_buf_append(&key, "mr:max", strlen("mr:max")) != MR_OK) {
        ticket_done(ticket, MR_NOMEM);
    } else {
        int64_t most = req->value < INT64_MAX ? (int64_t)req->value : INT64_MAX;
        const struct mr_slice name = mr_buf_slice(&key);
        const struct mr_slice set[] = {MR_SLICE_LIT("SET"), name, number_arg(most, number)};
        const struct mr_slice unset[] = {MR_SLICE_LIT("DEL"), name};
        rqueue_used(queue);
        single->call.durable = true;
        mr_redis_send(ticket->engine->redis, &single->call, name, most > 0 ? set : unset,
                      most > 0 ? 3 : 2);
    }
    mr_buf_done(&key);
}

void queue_set_begin(struct ticket *ticket)
{
    struct mr_req_queue_set *req = mr_container(ticket->req, struct mr_req_queue_set, req);
    if (req->setting == MR_QUEUE_PAUSED)
        look_names(ticket, set_paused);
    else
        set_max(ticket);
}

/* ---- the end of one ------------------------------------------------------------------------- */

enum { REMOVE_DONE = 1, REMOVE_MORE, REMOVE_FILLED, REMOVE_RUNNING };

struct removal {
    struct mr_redis_call call;
    struct ticket *ticket;
    struct rqueue *queue;
    struct mr_slice queues, counts; /* keys */
    struct mr_redis_call count[8];  /* what it counted */
    size_t left;
    enum mr_err err;
};

static void remove_step(struct removal *removal);

static void removed(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct removal *removal = call->arg;
    if (err != MR_OK)
        removal->err = engine_refused(removal->queue->engine, err, reply);
    if (--removal->left > 0)
        return;
    if (removal->err == MR_OK)
        rqueue_removed(removal->queue);
    ticket_done(removal->ticket, removal->err);
}

/* What it counted is still true of the whole. Then its name goes, as the last of it. */
static void forget(struct removal *removal, const struct mr_reply *reply)
{
    struct mr_redis *redis = removal->queue->engine->redis;
    enum { MOST = sizeof removal->count / sizeof *removal->count };
    const struct mr_redis_call blank = {.answered = removed, .arg = removal};
    for (size_t i = 1; i + 1 < reply->n && removal->left < MOST; i += 2) {
        const struct mr_slice add[] = {MR_SLICE_LIT("HINCRBY"), removal->counts,
                                       mr_reply_at(reply, i)->text,
                                       mr_reply_at(reply, i + 1)->text};
        struct mr_redis_call *call = &removal->count[removal->left++];
        *call = blank;
        mr_redis_send(redis, call, removal->counts, add, 4);
    }
    const struct mr_slice rem[] = {MR_SLICE_LIT("SREM"), removal->queues, removal->queue->name};
    removal->left++;
    removal->call = blank;
    mr_redis_send(redis, &removal->call, removal->queues, rem, 3);
}

static void step_answered(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct removal *removal = call->arg;
    err = look_array(removal->queue->engine, err, reply);
    int64_t how = err == MR_OK ? mr_reply_int(mr_reply_at(reply, 0), 0) : 0;
    if (how == REMOVE_MORE)
        remove_step(removal);
    else if (how == REMOVE_DONE)
        forget(removal, reply);
    else
        ticket_done(removal->ticket, err != MR_OK           ? err
                                     : how == REMOVE_FILLED ? MR_WRONG_STATE
                                                            : MR_RUNNING);
}

static void remove_step(struct removal *removal)
{
    struct mr_req_queue_remove *req =
        mr_container(removal->ticket->req, struct mr_req_queue_remove, req);
    bool force = req->mode == MR_QUEUE_REMOVE_FORCE;
    struct mr_slice arg = force ? MR_SLICE_LIT("1") : MR_SLICE_LIT("0");
    removal->call = (struct mr_redis_call){
        .answered = step_answered, .arg = removal, .urgent = true, .durable = true};
    rqueue_eval(removal->queue, &removal->call, SCRIPT_REMOVE, &arg, 1);
}

static void remove_queue(struct ticket *ticket)
{
    struct mr_req_queue_remove *req = mr_container(ticket->req, struct mr_req_queue_remove, req);
    struct mr_arena *arena = &req->req.arena;
    struct removal *removal = mr_arena_calloc(arena, 1, sizeof *removal);
    struct rqueue *queue = known_queue(ticket->engine, req->queue);
    struct mr_slice queues = global_key(ticket->engine, "queues", arena);
    struct mr_slice counts = global_key(ticket->engine, "mr:counts", arena);
    if (queue == NULL || removal == NULL || queues.len == 0 || counts.len == 0) {
        ticket_done(ticket, queue == NULL ? MR_NOT_FOUND : MR_NOMEM);
        return;
    }
    *removal =
        (struct removal){.ticket = ticket, .queue = queue, .queues = queues, .counts = counts};
    remove_step(removal);
}

void queue_remove_begin(struct ticket *ticket)
{
    look_names(ticket, remove_queue);
}
