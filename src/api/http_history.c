/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GET /history: figures of the last hour, so that a chart has something to show when it is opened. Every few seconds the queues
 * are looked at, and what has changed since the look before is a point of a ring: one ring for all queues together, and one for
 * each of the first RINGS_MAX. In memory only.
 *
 * The broker counts runs; what was enqueued follows from them and from how the sets have grown. How long tasks waited and ran is
 * the broker's figure for the last minute of each queue; for all queues together it is the mean of the medians, weighted by runs,
 * and the worst of the 99th percentiles.
 */
#include <stdlib.h>

#include "api/http_history.h"

enum {
    POINTS = 720, /* an hour */
    RINGS_MAX = 128,
    QUEUES_MAX = 10 * 1000, /* that are looked at */
    PAGE = 1000,
};
static_assert(POINTS * (int64_t)MR_HTTP_BEAT_MS == 60 * 60 * MR_MS_PER_S, "an hour");

/* Quantiles in µs; 0: nothing was measured. */
struct point {
    bool known;
    uint64_t enqueued, succeeded, failed, backlog;
    uint64_t quantiles[4];
};

struct ring {
    char name[MR_NAME_MAX + 1]; /* "": of all queues */
    bool used;
    struct point points[POINTS];
};

/* What a look has found of a queue. */
struct sight {
    char name[MR_NAME_MAX + 1];
    uint64_t succeeded, failed, backlog, archived;
    uint64_t quantiles[4];
};

struct http_history {
    struct mr_http_api *api;
    struct mr_req_queue_list req;
    struct mr_msg msg;
    struct mr_queue_info page[PAGE];
    bool looks;
    struct sight *before, *now; /* by name; before: of the last look */
    size_t before_n, now_n;
    bool whole; /* there was a look before */
    struct ring all, rings[RINGS_MAX];
    size_t rings_n;
    size_t at; /* the newest point; they go round */
    int64_t end_ms;
    uint64_t weight; /* runs that the medians of this look are weighted by */
};

/* ---- points --------------------------------------------------------------------------------- */

static void see(struct sight *sight, const struct mr_queue_info *info)
{
    const uint64_t *counts = info->counts;
    memcpy(sight->name, info->name, sizeof sight->name);
    sight->failed = info->failed_total;
    sight->succeeded =
        info->processed_total > info->failed_total ? info->processed_total - info->failed_total : 0;
    sight->archived = counts[MR_ARCHIVED];
    sight->backlog = counts[MR_PENDING] + counts[MR_ACTIVE] + counts[MR_SCHEDULED] +
                     counts[MR_RETRY] + counts[MR_AGGREGATING];
    const uint64_t quantiles[] = {info->wait_p50_us, info->wait_p99_us, info->run_p50_us,
                                  info->run_p99_us};
    memcpy(sight->quantiles, quantiles, sizeof quantiles);
}

static uint64_t above(uint64_t now, uint64_t before)
{
    return now > before ? now - before : 0;
}

/* before: NULL for a queue that has just come. */
static struct point point_of(const struct sight *before, const struct sight *now)
{
    static const struct sight none = {.name = ""};
    if (before == NULL)
        before = &none;
    struct point point = {.known = true, .backlog = now->backlog};
    point.succeeded = above(now->succeeded, before->succeeded);
    point.failed = above(now->failed, before->failed);
    point.enqueued =
        above(now->backlog + point.succeeded + now->archived, before->backlog + before->archived);
    memcpy(point.quantiles, now->quantiles, sizeof point.quantiles);
    return point;
}

static void add_quantiles(struct http_history *history, struct point *sum,
                          const struct point *point)
{
    uint64_t runs = point->succeeded + point->failed + 1;
    for (size_t i = 0; i < 4; i += 2) {
        if (point->quantiles[i + 1] > sum->quantiles[i + 1])
            sum->quantiles[i + 1] = point->quantiles[i + 1];
        if (point->quantiles[i] > 0)
            sum->quantiles[i] = (sum->quantiles[i] * history->weight + point->quantiles[i] * runs) /
                                (history->weight + runs);
    }
    history->weight += point->quantiles[0] > 0 || point->quantiles[2] > 0 ? runs : 0;
}

static struct ring *ring_of(struct http_history *history, const char *name)
{
    for (size_t i = 0; i < history->rings_n; i++)
        if (strcmp(history->rings[i].name, name) == 0)
            return &history->rings[i];
    if (history->rings_n == RINGS_MAX)
        return NULL;
    struct ring *ring = &history->rings[history->rings_n++];
    *ring = (struct ring){.used = true};
    memcpy(ring->name, name, strlen(name) + 1);
    return ring;
}

/* A ring whose queue has gone is free for another. */
static void drop_rings(struct http_history *history)
{
    size_t n = 0;
    for (size_t i = 0; i < history->rings_n; i++) {
        const struct ring *ring = &history->rings[i];
        if (!ring->used)
            continue;
        if (n != i)
            history->rings[n] = *ring;
        n++;
    }
    history->rings_n = n;
}

/* Both are in the order of names, so both are walked once. */
static void make_points(struct http_history *history)
{
    struct point sum = {.known = true};
    size_t old = 0;
    history->weight = 0;
    history->at = (history->at + 1) % POINTS;
    for (size_t i = 0; i < history->rings_n; i++) {
        history->rings[i].used = false;
        history->rings[i].points[history->at] = (struct point){0};
    }
    for (size_t i = 0; i < history->now_n; i++) {
        const struct sight *now = &history->now[i];
        while (old < history->before_n && strcmp(history->before[old].name, now->name) < 0)
            old++;
        bool was = old < history->before_n && strcmp(history->before[old].name, now->name) == 0;
        struct point point = point_of(was ? &history->before[old] : NULL, now);
        struct ring *ring = ring_of(history, now->name);
        sum.enqueued += point.enqueued;
        sum.succeeded += point.succeeded;
        sum.failed += point.failed;
        sum.backlog += point.backlog;
        add_quantiles(history, &sum, &point);
        if (ring == NULL)
            continue;
        ring->used = true;
        if (history->whole)
            ring->points[history->at] = point;
    }
    drop_rings(history);
    history->all.points[history->at] = history->whole ? sum : (struct point){0};
}

/* ---- looks ---------------------------------------------------------------------------------- */

static void look_over(struct http_history *history, bool well)
{
    struct sight *now = history->now;
    history->looks = false;
    history->end_ms = mr_wall_ms(mr_wall_now(mr_clock_system()));
    if (!well) { /* a hole, and nothing to hold the next one against */
        history->now_n = 0;
        history->whole = false;
    }
    make_points(history);
    history->now = history->before;
    history->before = now;
    history->before_n = history->now_n;
    history->now_n = 0;
    history->whole = well;
}

static void ask(struct http_history *history);

static void delivered(struct mr_msg *msg, void *receiver)
{
    struct http_history *history = mr_container(msg, struct http_history, msg);
    struct mr_req_queue_list *req = &history->req;
    mr_http_release(receiver);
    bool well = req->req.err == MR_OK;
    bool more = well && req->n == PAGE;
    for (size_t i = 0; well && i < req->n && history->now_n < QUEUES_MAX; i++)
        see(&history->now[history->now_n++], &req->infos[i]);
    mr_req_done(&req->req);
    if (more && history->now_n < QUEUES_MAX)
        ask(history);
    else
        look_over(history, well);
}

/* Thread: the broker's. */
static void on_done(struct mr_req *req)
{
    struct http_history *history = req->arg;
    history->msg.deliver = delivered;
    mr_http_post(history->api->http, &history->msg);
}

static void ask(struct http_history *history)
{
    struct mr_broker *broker = atomic_load(&history->api->broker);
    size_t n = history->now_n;
    if (broker == NULL) {
        look_over(history, false);
        return;
    }
    history->req = (struct mr_req_queue_list){
        .req = {.op = MR_OP_QUEUE_LIST, .done = on_done, .arg = history},
        .after = n > 0 ? mr_slice_str(history->now[n - 1].name) : (struct mr_slice){0},
        .infos = history->page,
        .max = PAGE,
    };
    mr_http_hold(history->api->http);
    mr_broker_submit(broker, &history->req.req);
}

void http_history_beat(struct http_history *history, struct mr_http *http)
{
    if (history->looks || atomic_load(&history->api->broker) == NULL)
        return;
    history->api->http = http;
    history->looks = true;
    ask(history);
}

/* ---- the answer ----------------------------------------------------------------------------- */

static const struct {
    const char *name;
    size_t offset;
} counts[] = {
    {"enqueued", offsetof(struct point, enqueued)},
    {"succeeded", offsetof(struct point, succeeded)},
    {"failed", offsetof(struct point, failed)},
    {"backlog", offsetof(struct point, backlog)},
};
static const char *const quantile_names[] = {"wait_p50_ms", "wait_p99_ms", "run_p50_ms",
                                             "run_p99_ms"};

static const struct point *point_at(const struct http_history *history, const struct ring *ring,
                                    size_t i)
{
    return &ring->points[(history->at + 1 + i) % POINTS];
}

static void series_json(struct jw *jw, const struct http_history *history, const struct ring *ring,
                        size_t first, size_t row)
{
    jw_array_begin(jw, counts[row].name);
    for (size_t i = first; i < POINTS; i++) {
        const struct point *point = point_at(history, ring, i);
        uint64_t value;
        memcpy(&value, (const char *)point + counts[row].offset, sizeof value);
        if (point->known)
            jw_uint(jw, NULL, value);
        else
            jw_null(jw, NULL);
    }
    jw_array_end(jw);
}

static void quantiles_json(struct jw *jw, const struct http_history *history,
                           const struct ring *ring, size_t first, size_t row)
{
    jw_array_begin(jw, quantile_names[row]);
    for (size_t i = first; i < POINTS; i++) {
        const struct point *point = point_at(history, ring, i);
        if (point->known && point->quantiles[row] > 0)
            jw_real(jw, NULL, (double)point->quantiles[row] / 1000);
        else
            jw_null(jw, NULL);
    }
    jw_array_end(jw);
}

static void write_history(struct jw *jw, const struct http_history *history,
                          const struct ring *ring)
{
    size_t first = 0;
    while (first < POINTS && !point_at(history, ring, first)->known)
        first++; /* from before the start */
    jw_object_begin(jw, NULL);
    jw_int(jw, "step_ms", MR_HTTP_BEAT_MS);
    jw_int(jw, "end_ms", history->end_ms);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        series_json(jw, history, ring, first, i);
    for (size_t i = 0; i < sizeof quantile_names / sizeof *quantile_names; i++)
        quantiles_json(jw, history, ring, first, i);
    jw_object_end(jw);
}

static const struct ring *find_ring(const struct http_history *history, struct mr_slice name)
{
    if (name.len == 0)
        return &history->all;
    for (size_t i = 0; i < history->rings_n; i++)
        if (mr_slice_equal(name, mr_slice_str(history->rings[i].name)))
            return &history->rings[i];
    return NULL;
}

void http_history(struct mr_http_request *request, void *arg)
{
    struct mr_http_api *api = arg;
    struct http_call *call = http_call_new(api, request);
    struct jw jw = {0};
    if (call == NULL)
        return;
    struct mr_slice queue = http_query(call, "queue");
    if (queue.len > 0 && (!http_read_name(call, "queue", queue) || !http_may_touch(call, queue)))
        return;
    if (queue.len == 0 && !http_may_touch_all(call, ": say which, queue=Q"))
        return;
    const struct ring *ring = find_ring(api->history, queue);
    if (ring == NULL) {
        http_call_fail(call, MR_NOT_FOUND,
                       "queue %.*s: none, or it is new, or there are too many to keep figures of",
                       (int)queue.len, (const char *)queue.data);
        return;
    }
    write_history(&jw, api->history, ring);
    http_call_reply(call, &jw);
}

/* ---- life ----------------------------------------------------------------------------------- */

enum mr_err http_history_new(struct mr_http_api *api, struct http_history **ret_history)
{
    struct http_history *history = calloc(1, sizeof *history);
    if (history == NULL)
        return MR_NOMEM;
    history->api = api;
    history->before = calloc(QUEUES_MAX, sizeof *history->before);
    history->now = calloc(QUEUES_MAX, sizeof *history->now);
    if (history->before == NULL || history->now == NULL) {
        http_history_free(history);
        return MR_NOMEM;
    }
    *ret_history = history;
    return MR_OK;
}

void http_history_free(struct http_history *history)
{
    if (history == NULL)
        return;
    mr_assert(!history->looks);
    free(history->before);
    free(history->now);
    free(history);
}
