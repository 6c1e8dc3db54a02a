/* SPDX-License-Identifier: Apache-2.0 */
/* Queues: what is in them, what they did, their settings, and their end. */
#include <assert.h>

#include "broker/redis/look.h"
#include "broker/result.h"
#include "broker/settings.h"

/* ---- figures -------------------------------------------------------------------------------- */

static uint64_t figure(const struct mr_reply *reply, enum figure which)
{
    int64_t number = mr_reply_int(mr_reply_at(reply, which), 0);
    return number > 0 ? (uint64_t)number : 0;
}

static void add_figures(const struct mr_reply *reply, struct mr_queue_info *info)
{
    int64_t oldest_ms = (int64_t)figure(reply, FIGURE_OLDEST);
    info->paused |= figure(reply, FIGURE_PAUSED) != 0;
    if (oldest_ms > info->oldest_pending_ms)
        info->oldest_pending_ms = oldest_ms;
    info->processed_total += figure(reply, FIGURE_PROCESSED);
    info->failed_total += figure(reply, FIGURE_FAILED);
    info->processed_today += figure(reply, FIGURE_PROCESSED_TODAY);
    info->failed_today += figure(reply, FIGURE_FAILED_TODAY);
    info->trimmed += figure(reply, FIGURE_TRIMMED);
    info->quarantined += figure(reply, FIGURE_QUARANTINED);
    static_assert(FIGURE_AGGREGATING + 1 == MR_AGGREGATING, "figures begin with the states");
    for (size_t state = MR_SCHEDULED; state < MR_STATE_COUNT; state++)
        info->counts[state] += figure(reply, (enum figure)(state - 1));
}

/* What is known of a queue here. */
static void begin_info(const struct rqueue *queue, struct mr_queue_info *info)
{
    *info = (struct mr_queue_info){.partitions = queue->partitions, .assign = queue->assign};
    /* Only runs of this process are known. */
    latency_show(queue->latency, mr_redis_now(queue->engine->redis), info);
    struct mr_slice name = mr_queue_shown(queue->name);
    memcpy(info->name, name.data, name.len < MR_NAME_MAX ? name.len : MR_NAME_MAX);
}

/* A partition of one of those that are listed. */
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

/* Settings, which are those of the first partition. */
static void first_figures(const struct mr_reply *reply, struct mr_queue_info *info)
{
    uint64_t mode = figure(reply, FIGURE_RETRY_MODE);
    struct mr_queue_settings settings = {
        .retry_mode = mode < MR_RETRY_MODE_COUNT ? (enum mr_retry_mode)mode : MR_RETRY_GATE,
        .retry_wait_ms = (int64_t)figure(reply, FIGURE_RETRY_WAIT)};
    info->max_length = figure(reply, FIGURE_MAX);
    mr_queue_settings_show(&settings, info);
}

static void row_answered(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct row *row = call->arg;
    struct rows *rows = row->rows;
    if (err != MR_OK || reply->kind != MR_REPLY_ARRAY)
        err = rqueue_refused(row->queue, err, reply); /* of many, the one that is meant */
    if (err == MR_OK) {
        add_figures(reply, row->info);
        if (row->queue->part_of == NULL) /* the limit is that of each of them */
            first_figures(reply, row->info);
        if (row->queue->part_of == NULL)
            limits_show(mr_reply_at(reply, FIGURE_LIMITS), row->info);
    } else if (rows->err == MR_OK) {
        rows->err = err;
    }
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
        if (req->only.len == 0 && mr_slice_compare(name, req->after) > 0)
            chosen.queues[chosen.n++] = all.queues[i];
    }
    struct rqueue *only = req->only.len > 0 ? known_queue(engine, req->only) : NULL;
    if (only != NULL && req->max > 0) /* also a partition by its own name */
        chosen = (struct known){.queues = all.queues, .n = 1}, chosen.queues[0] = only;
    if (req->only.len > 0 && req->max == 0)
        return MR_INVALID;
    if (req->only.len > 0 && chosen.n == 0)
        return MR_NOT_FOUND;
    *ret_known = chosen;
    return MR_OK;
}

static size_t rows_of(const struct known *known)
{
    size_t n = 0;
    for (size_t i = 0; i < known->n; i++)
        n += known->queues[i]->widest;
    return n;
}

static void list_queues(struct ticket *ticket)
{
    struct mr_req_queue_list *req = mr_container(ticket->req, struct mr_req_queue_list, req);
    struct known known = {0};
    struct rows *rows = NULL;
    enum mr_err err = choose(req, ticket->engine, &known);
    size_t n = rows_of(&known);
    if (err == MR_OK && n > 0) {
        rows = mr_arena_calloc(&req->req.arena, 1, sizeof *rows + n * sizeof(struct row));
        err = rows != NULL ? MR_OK : MR_NOMEM;
    }
    if (err != MR_OK || n == 0) {
        ticket_done(ticket, err);
        return;
    }
    *rows = (struct rows){.ticket = ticket, .left = n};
    req->n = known.n;
    struct row *row = rows->row;
    for (size_t i = 0; i < known.n; i++) {
        begin_info(known.queues[i], &req->infos[i]);
        if (req->meters != NULL)
            latency_meters(known.queues[i]->latency, &req->meters[i]);
        for (uint32_t part = 1; part <= known.queues[i]->widest; part++, row++) {
            *row = (struct row){
                .call = {.answered = row_answered, .arg = row, .repeatable = true, .urgent = true},
                .rows = rows,
                .queue = rqueue_part(known.queues[i], part),
                .info = &req->infos[i]};
            rqueue_eval(row->queue, &row->call, SCRIPT_QUEUE, NULL, 0);
        }
    }
}

static enum mr_err topic_said(struct fan *fan, struct rqueue *queue, const struct mr_reply *reply)
{
    (void)queue;
    add_figures(reply, mr_container(fan->ticket->req, struct mr_req_queue_list, req)->infos);
    return MR_OK;
}

/* One that has no results is not there. */
static void topic_done(struct fan *fan, enum mr_err err)
{
    struct mr_req_queue_list *req = mr_container(fan->ticket->req, struct mr_req_queue_list, req);
    uint64_t n = 0;
    for (size_t state = MR_SCHEDULED; state < MR_STATE_COUNT; state++)
        n += req->infos[0].counts[state];
    req->n = err == MR_OK && n > 0;
    ticket_done(fan->ticket, err == MR_OK && n == 0 ? MR_NOT_FOUND : err);
}

/* What waits for masters of a topic, of all queues. */
static void list_topic(struct ticket *ticket, struct mr_slice topic)
{
    struct mr_req_queue_list *req = mr_container(ticket->req, struct mr_req_queue_list, req);
    struct fan *fan = mr_arena_calloc(&req->req.arena, 1, sizeof *fan);
    struct mr_slice *arg = mr_arena_calloc(&req->req.arena, 1, sizeof *arg);
    if (req->max == 0 || topic.len > MR_TOPIC_MAX || fan == NULL || arg == NULL) {
        ticket_done(ticket, fan == NULL || arg == NULL ? MR_NOMEM : MR_INVALID);
        return;
    }
    req->infos[0] = (struct mr_queue_info){.partitions = 1};
    memcpy(req->infos[0].name, topic.data, topic.len);
    *arg = topic;
    *fan = (struct fan){.ticket = ticket,
                        .script = SCRIPT_QUEUE,
                        .whom = FAN_LEAVING,
                        .args = arg,
                        .args_n = 1,
                        .said = topic_said,
                        .done = topic_done};
    fan_out(fan);
}

void queue_list_begin(struct ticket *ticket)
{
    struct mr_req_queue_list *req = mr_container(ticket->req, struct mr_req_queue_list, req);
    struct mr_slice topic = mr_result_topic(req->only);
    req->n = 0;
    if (topic.len > 0)
        list_topic(ticket, topic);
    else
        look_names(ticket, list_queues);
}

/* ---- history -------------------------------------------------------------------------------- */

/* Adds a day where it belongs: newest first. */
static void add_day(struct mr_req_queue_history *req, struct mr_queue_day day)
{
    size_t at = 0;
    while (at < req->n && req->days[at].start_ms > day.start_ms)
        at++;
    if (at < req->n && req->days[at].start_ms == day.start_ms) {
        req->days[at].processed += day.processed;
        req->days[at].failed += day.failed;
        return;
    }
    if (at == req->max)
        return;
    size_t behind = (req->n < req->max ? req->n : req->max - 1) - at;
    memmove(&req->days[at + 1], &req->days[at], behind * sizeof day);
    req->days[at] = day;
    req->n += req->n < req->max;
}

static enum mr_err history_said(struct fan *fan, struct rqueue *queue, const struct mr_reply *reply)
{
    struct mr_req_queue_history *req =
        mr_container(fan->ticket->req, struct mr_req_queue_history, req);
    (void)queue;
    for (size_t i = 0; i + 2 < reply->n; i += 3)
        add_day(req, (struct mr_queue_day){
                         .start_ms = mr_reply_int(mr_reply_at(reply, i), 0) * MR_MS_PER_DAY,
                         .processed = (uint64_t)mr_reply_int(mr_reply_at(reply, i + 1), 0),
                         .failed = (uint64_t)mr_reply_int(mr_reply_at(reply, i + 2), 0),
                     });
    return MR_OK;
}

static void fan_is_done(struct fan *fan, enum mr_err err)
{
    ticket_done(fan->ticket, err);
}

static void read_history(struct ticket *ticket)
{
    struct mr_req_queue_history *req = mr_container(ticket->req, struct mr_req_queue_history, req);
    struct mr_arena *arena = &req->req.arena;
    struct rqueue *queue = known_queue(ticket->engine, req->queue);
    struct fan *fan = mr_arena_calloc(arena, 1, sizeof *fan);
    struct mr_slice *arg = mr_arena_calloc(arena, 1, sizeof *arg);
    char number[NUMBER_MAX];
    int64_t max = req->max < MR_QUEUE_DAYS_MAX ? (int64_t)req->max : MR_QUEUE_DAYS_MAX;
    enum mr_err err = queue == NULL ? MR_NOT_FOUND : MR_NOMEM;
    if (queue != NULL && fan != NULL && arg != NULL)
        err = mr_arena_copy(arena, number_arg(max, number), arg);
    if (err != MR_OK) {
        ticket_done(ticket, err);
        return;
    }
    *fan = (struct fan){.ticket = ticket,
                        .script = SCRIPT_HISTORY,
                        .args = arg,
                        .args_n = 1,
                        .said = history_said,
                        .done = fan_is_done};
    fan_parts(fan, queue);
}

void queue_history_begin(struct ticket *ticket)
{
    mr_container(ticket->req, struct mr_req_queue_history, req)->n = 0;
    look_names(ticket, read_history);
}

/* ---- settings ------------------------------------------------------------------------------- */

static bool is_limit(const struct mr_req_queue_set *req)
{
    return req->setting == MR_QUEUE_RATE || req->setting == MR_QUEUE_CONCURRENCY;
}

enum mr_err queue_set_prepare(struct ticket *ticket)
{
    const struct mr_req_queue_set *req = mr_container(ticket->req, struct mr_req_queue_set, req);
    MR_TRY(mr_queue_set_check(req));
    return req->setting <= MR_QUEUE_RETRY_WAIT || is_limit(req) ? MR_OK : MR_UNSUPPORTED;
}

static enum mr_err set_said(struct fan *fan, struct rqueue *queue, const struct mr_reply *reply)
{
    (void)fan, (void)queue, (void)reply;
    return MR_OK;
}

/* What holds for a queue holds for each of its partitions. */
static void set(struct ticket *ticket)
{
    static const char *const fields[] = {
        [MR_QUEUE_RETRY_MODE] = "retry", [MR_QUEUE_RETRY_WAIT] = "wait"};
    enum { HEAD = 3, ARGS = HEAD + 2 }; /* of set.lua */
    const struct mr_req_queue_set *req = mr_container(ticket->req, struct mr_req_queue_set, req);
    struct mr_arena *arena = &ticket->req->arena;
    bool pause = req->setting == MR_QUEUE_PAUSED, one = req->setting <= MR_QUEUE_MAX_LENGTH;
    struct rqueue *queue =
        pause ? known_queue(ticket->engine, req->queue) : rqueue_of(ticket->engine, req->queue);
    struct fan *fan = mr_arena_calloc(arena, 1, sizeof *fan);
    struct mr_slice *args = mr_arena_calloc(arena, ARGS, sizeof *args);
    char number[NUMBER_MAX];
    int64_t value = req->value < INT64_MAX ? (int64_t)req->value : INT64_MAX;
    enum mr_err err = queue == NULL && pause ? MR_NOT_FOUND : MR_NOMEM;
    if (queue != NULL && fan != NULL && args != NULL)
        err = mr_arena_copy(arena, number_arg(pause ? value != 0 : value, number),
                            &args[pause ? 0
                                  : one ? 1
                                        : HEAD + 1]);
    if (err != MR_OK) {
        ticket_done(ticket, err);
        return;
    }
    if (!pause)
        rqueue_used(queue);
    if (!one)
        args[HEAD] = mr_slice_str(fields[req->setting]);
    *fan = (struct fan){.ticket = ticket,
                        .script = SCRIPT_SET,
                        .args = args,
                        .args_n = one ? HEAD : ARGS,
                        .said = set_said,
                        .done = fan_is_done,
                        .acts = true};
    fan_parts(fan, queue);
}

void queue_set_begin(struct ticket *ticket)
{
    const struct mr_req_queue_set *req = mr_container(ticket->req, struct mr_req_queue_set, req);
    bool parts = req->setting == MR_QUEUE_PARTITIONS || req->setting == MR_QUEUE_ASSIGN;
    look_names(ticket, is_limit(req) ? limit_set_begin : parts ? parts_set_begin : set);
}

/* ---- the end of one ------------------------------------------------------------------------- */

enum { REMOVE_DONE = 1, REMOVE_MORE, REMOVE_FILLED, REMOVE_RUNNING };

/* One partition after the other, the first of them at last; then its row in the table, and whose they were. The row stays, since whoever
 * has not heard of it puts tasks into all of them yet: they are worked off, and seen. */
struct removal {
    struct mr_redis_call call;
    struct ticket *ticket;
    struct fan fan; /* looks whether something runs */
    struct rqueue *whole, *queue;
    bool runs;
    struct mr_slice queues, counts, table; /* keys */
    struct mr_redis_call count[8];         /* what it counted */
    size_t left;
    enum mr_err err;
};

static void remove_step(struct removal *removal);

static void owners_gone(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct removal *removal = call->arg;
    ticket_done(removal->ticket, cluster_fitted(removal->whole->engine, err, reply));
}

static void row_reset(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct removal *removal = call->arg;
    if (err != MR_OK) {
        ticket_done(removal->ticket, engine_refused(removal->whole->engine, err, reply));
        return;
    }
    removal->call = (struct mr_redis_call){
        .answered = owners_gone, .arg = removal, .repeatable = true, .durable = true};
    cluster_fit(removal->whole, &removal->call, 1, true);
}

static void reset_row(struct removal *removal)
{
    const struct mr_slice row[3] = {removal->whole->name, MR_SLICE_LIT("1"), MR_SLICE_LIT("0")};
    if (removal->whole->part_of != NULL || !removal->whole->in_table) {
        ticket_done(removal->ticket, MR_OK);
        return;
    }
    removal->call = (struct mr_redis_call){
        .answered = row_reset, .arg = removal, .repeatable = true, .durable = true};
    parts_write(removal->whole->engine, &removal->call, removal->table, row);
}

static void removed(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct removal *removal = call->arg;
    if (err != MR_OK)
        removal->err = engine_refused(removal->queue->engine, err, reply);
    if (--removal->left > 0)
        return;
    if (removal->err != MR_OK) {
        ticket_done(removal->ticket, removal->err);
        return;
    }
    rqueue_removed(removal->queue);
    if (removal->queue == removal->whole) {
        reset_row(removal);
        return;
    }
    removal->queue = rqueue_part(removal->whole, removal->queue->number - 1);
    remove_step(removal);
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
    bool cluster = mr_redis_kind(removal->queue->engine->redis) == MR_REDIS_CLUSTER;
    struct mr_slice args[] = {force ? MR_SLICE_LIT("1") : MR_SLICE_LIT("0"),
                              cluster ? MR_SLICE_LIT("0") : MR_SLICE_LIT("1")};
    removal->call = (struct mr_redis_call){
        .answered = step_answered, .arg = removal, .urgent = true, .durable = true};
    rqueue_eval(removal->queue, &removal->call, SCRIPT_REMOVE, args, 2);
}

static enum mr_err part_said(struct fan *fan, struct rqueue *queue, const struct mr_reply *reply)
{
    struct removal *removal = fan->arg;
    (void)queue;
    removal->runs |= figure(reply, FIGURE_ACTIVE) > 0;
    return MR_OK;
}

static void parts_said(struct fan *fan, enum mr_err err)
{
    struct removal *removal = fan->arg;
    const struct mr_req_queue_remove *req =
        mr_container(removal->ticket->req, struct mr_req_queue_remove, req);
    enum mr_err refusal = req->mode == MR_QUEUE_REMOVE_FORCE ? MR_RUNNING : MR_WRONG_STATE;
    if (err != MR_OK || removal->runs)
        ticket_done(removal->ticket, err != MR_OK ? err : refusal);
    else
        remove_step(removal);
}

static void remove_queue(struct ticket *ticket)
{
    struct mr_req_queue_remove *req = mr_container(ticket->req, struct mr_req_queue_remove, req);
    struct mr_arena *arena = &req->req.arena;
    struct removal *removal = mr_arena_calloc(arena, 1, sizeof *removal);
    struct rqueue *queue = known_queue(ticket->engine, req->queue);
    struct mr_slice queues = global_key(ticket->engine, "queues", arena);
    struct mr_slice counts = global_key(ticket->engine, "mr:counts", arena);
    struct mr_slice table = global_key(ticket->engine, "mr:parts", arena);
    if (queue == NULL || removal == NULL || queues.len == 0 || counts.len == 0 || table.len == 0) {
        ticket_done(ticket, queue == NULL ? MR_NOT_FOUND : MR_NOMEM);
        return;
    }
    *removal = (struct removal){.ticket = ticket,
                                .whole = queue,
                                .queue = rqueue_part(queue, queue->widest),
                                .queues = queues,
                                .counts = counts,
                                .table = table};
    removal->fan = (struct fan){.ticket = ticket,
                                .script = SCRIPT_QUEUE,
                                .said = part_said,
                                .done = parts_said,
                                .arg = removal};
    fan_parts(&removal->fan, queue);
}

void queue_remove_begin(struct ticket *ticket)
{
    look_names(ticket, remove_queue);
}
