/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits of queues: setting them, and how they stand. What they do is in lua/limit.lua. All partitions of a
 * queue share their permits, which stand where the first of them does: so a Cluster, where the others may be
 * elsewhere, has limits for queues of one partition only.
 */
#include "broker/limit.h"

#include <stdio.h>

#include "broker/redis/look.h"

enum { SET_ARGS = 7, ROW = 6, W_MAX = MR_NAME_MAX + 3 };

/* Whether the permits of its partitions can stand in one place. */
static bool can_limit(const struct rqueue *queue)
{
    return queue->widest <= 1 || mr_redis_kind(queue->engine->redis) != MR_REDIS_CLUSTER;
}

/* 'q', 't:TYPE' or 'k:KEY'. */
static const char scope_letters[MR_LIMIT_SCOPE_COUNT] = {
    [MR_LIMIT_QUEUE] = 'q', [MR_LIMIT_TYPE] = 't', [MR_LIMIT_KEY] = 'k'};

/* ---- setting -------------------------------------------------------------------------------- */

struct limit_set {
    struct fan fan;
    struct mr_slice args[SET_ARGS];
    char w[W_MAX + 1];
    char numbers[5][NUMBER_MAX];
};

static enum mr_err set_said(struct fan *fan, struct rqueue *queue, const struct mr_reply *reply)
{
    (void)fan, (void)queue;
    return mr_reply_int(mr_reply_at(reply, 0), 0) == 1 ? MR_OK : MR_TOO_BIG;
}

static void set_done(struct fan *fan, enum mr_err err)
{
    ticket_done(fan->ticket, err);
}

static void set_args(struct limit_set *set, const struct mr_req_queue_set *req,
                     const struct rqueue *whole)
{
    struct mr_limit limit = {.rate = (uint32_t)req->value, .rate_ms = req->rate_ms};
    bool is_rate = req->setting == MR_QUEUE_RATE;
    int len = snprintf(set->w, sizeof set->w, "%c%s%.*s", scope_letters[req->scope],
                       req->name.len > 0 ? ":" : "", (int)req->name.len,
                       req->name.len > 0 ? (const char *)req->name.data : "");
    struct mr_slice value = number_arg((int64_t)req->value, set->numbers[0]);
    set->args[0] = whole->prefix;
    set->args[1] = mr_slice_make(set->w, (size_t)len);
    set->args[2] = is_rate ? value : MR_SLICE_LIT("");
    set->args[3] = number_arg(req->rate_ms, set->numbers[1]);
    set->args[4] = number_arg(mr_limit_span_us(&limit), set->numbers[2]);
    set->args[5] = is_rate ? MR_SLICE_LIT("") : value;
    set->args[6] = number_arg(MR_LIMITS_MAX, set->numbers[3]);
}

void limit_set_begin(struct ticket *ticket)
{
    const struct mr_req_queue_set *req = mr_container(ticket->req, struct mr_req_queue_set, req);
    struct rqueue *queue = rqueue_of(ticket->engine, req->queue);
    struct limit_set *set = mr_arena_calloc(&ticket->req->arena, 1, sizeof *set);
    enum mr_err err = queue == NULL || set == NULL ? MR_NOMEM
                      : queue->part_of != NULL     ? MR_INVALID
                      : can_limit(queue)           ? MR_OK
                                                   : MR_UNSUPPORTED;
    if (err != MR_OK) {
        ticket_done(ticket, err);
        return;
    }
    rqueue_used(queue);
    set_args(set, req, queue);
    set->fan = (struct fan){.ticket = ticket,
                            .script = SCRIPT_SET_LIMIT,
                            .args = set->args,
                            .args_n = SET_ARGS,
                            .said = set_said,
                            .done = set_done,
                            .acts = true};
    fan_parts(&set->fan, queue);
}

/* ---- asking --------------------------------------------------------------------------------- */

static void read_row(const struct mr_reply *row, struct mr_limit *limit)
{
    struct mr_slice w = row[0].text;
    const char *text = w.data;
    *limit = (struct mr_limit){.rate = (uint32_t)mr_reply_int(&row[1], 0),
                               .rate_ms = mr_reply_int(&row[2], 0),
                               .concurrency = (uint32_t)mr_reply_int(&row[3], 0),
                               .active = (uint32_t)mr_reply_int(&row[4], 0),
                               .rate_until_ms = mr_reply_int(&row[5], 0)};
    for (int scope = 0; w.len > 0 && scope < MR_LIMIT_SCOPE_COUNT; scope++)
        if (text[0] == scope_letters[scope])
            limit->scope = (enum mr_limit_scope)scope;
    if (w.len > 2 && w.len - 2 <= MR_NAME_MAX)
        memcpy(limit->name, text + 2, w.len - 2);
}

/* By scope, and within that by name: as the rows come, but for the letters of scopes. */
static void insert(struct mr_req_queue_limits *req, const struct mr_limit *limit)
{
    size_t at = req->n++;
    while (at > 0 && req->limits[at - 1].scope > limit->scope) {
        req->limits[at] = req->limits[at - 1];
        at--;
    }
    req->limits[at] = *limit;
}

struct limits_ask {
    struct fan fan;
    bool found;
};

/* Each partition has all limits, and knows how they stand; one of them has the task. */
static enum mr_err limits_said(struct fan *fan, struct rqueue *queue, const struct mr_reply *reply)
{
    struct mr_req_queue_limits *req =
        mr_container(fan->ticket->req, struct mr_req_queue_limits, req);
    struct limits_ask *ask = mr_container(fan, struct limits_ask, fan);
    size_t most = req->id.len > 0 ? MR_LIMIT_SCOPE_COUNT : MR_LIMITS_MAX;
    (void)queue;
    if (ask->found || mr_reply_int(mr_reply_at(reply, 0), 0) == 0)
        return MR_OK;
    ask->found = true;
    for (size_t i = 1; i + ROW <= reply->n && req->n < most; i += ROW) {
        struct mr_limit limit;
        read_row(&reply->items[i], &limit);
        insert(req, &limit);
    }
    return MR_OK;
}

static void limits_done(struct fan *fan, enum mr_err err)
{
    struct limits_ask *ask = mr_container(fan, struct limits_ask, fan);
    ticket_done(fan->ticket, err == MR_OK && !ask->found ? MR_NOT_FOUND : err);
}

static void ask_limits(struct ticket *ticket)
{
    struct mr_req_queue_limits *req = mr_container(ticket->req, struct mr_req_queue_limits, req);
    struct rqueue *queue = known_queue(ticket->engine, req->queue);
    struct limits_ask *ask = mr_arena_calloc(&req->req.arena, 1, sizeof *ask);
    if (queue == NULL || ask == NULL) {
        ticket_done(ticket, queue == NULL ? MR_NOT_FOUND : MR_NOMEM);
        return;
    }
    ask->fan = (struct fan){.ticket = ticket,
                            .script = SCRIPT_LIMITS,
                            .args = &req->id,
                            .args_n = 1,
                            .said = limits_said,
                            .done = limits_done};
    fan_parts(&ask->fan, queue);
}

void limits_begin(struct ticket *ticket)
{
    struct mr_req_queue_limits *req = mr_container(ticket->req, struct mr_req_queue_limits, req);
    req->n = 0;
    if (req->id.len > MR_ID_MAX)
        ticket_done(ticket, MR_NOT_FOUND);
    else
        look_names(ticket, ask_limits);
}

/* ---- in the figures of a queue -------------------------------------------------------------- */

void limits_show(const struct mr_reply *fields, struct mr_queue_info *info)
{
    for (size_t i = 0; fields != NULL && i + 1 < fields->n; i += 2) {
        unsigned rate, concurrency;
        long long rate_ms;
        char value[4 * NUMBER_MAX];
        struct mr_slice w = fields->items[i].text, text = fields->items[i + 1].text;
        if (mr_slice_equal(w, MR_SLICE_LIT("@")))
            continue;
        info->limits += !mr_slice_equal(w, MR_SLICE_LIT("q"));
        (void)snprintf(value, sizeof value, "%.*s", (int)text.len, (const char *)text.data);
        if (!mr_slice_equal(w, MR_SLICE_LIT("q")) ||
            sscanf(value, "%u %lld %*s %u", &rate, &rate_ms, &concurrency) != 3)
            continue;
        info->rate = rate;
        info->rate_ms = rate_ms;
        info->concurrency = concurrency;
    }
}
