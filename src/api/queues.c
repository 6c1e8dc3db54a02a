/* SPDX-License-Identifier: Apache-2.0 */
/* Queues: looking at them, stopping and starting them. */
#include "api/internal.h"
#include "broker/limit.h"
#include "broker/result.h"
#include "millrace/v1/results.pb-c.h"

static void empty_reply(struct unary *u)
{
    Millrace__V1__Empty out = MILLRACE__V1__EMPTY__INIT;
    unary_send(u, &out.base);
}

static void name_it(struct unary *u, const char *queue)
{
    mr_detail_set(&u->detail, "queue %.*s", MR_NAME_MAX, queue);
}

/* Whether that is the name of a queue; when not, the call is ended. */
static bool is_named(struct unary *u, const char *queue)
{
    struct mr_detail detail;
    enum mr_err err = mr_name_check_of("queue", mr_pb_text(queue), &detail);
    name_it(u, queue);
    if (err != MR_OK)
        unary_fail(u, err, "%s", detail.text);
    return err == MR_OK;
}

/* ---- looking -------------------------------------------------------------------------------- */

enum { LIST_DEFAULT = 1000, LIST_MAX = 1000 };

/* What the token may see of the page. */
static size_t list_filter(const struct unary *u, struct mr_req_queue_list *req)
{
    size_t n = 0;
    for (size_t i = 0; i < req->n; i++)
        if (mr_access_queue(&u->token, mr_slice_str(req->infos[i].name)))
            req->infos[n++] = req->infos[i];
    return n;
}

static void list_reply(struct unary *u)
{
    enum { FIELD_QUEUES = 1, FIELD_NEXT = 2 };
    struct mr_req_queue_list *req = &u->errand.req.queue_list;
    char next[MR_NAME_MAX + 1] = "";
    if (req->n == req->max) /* there may be more, also when the token may see none of these */
        memcpy(next, req->infos[req->n - 1].name, sizeof next);
    size_t n = list_filter(u, req), next_len = strlen(next);
    size_t size = next_len > 0 ? mr_flat_head_size(next_len) + next_len : 0;
    for (size_t i = 0; i < n; i++) {
        size_t len = mr_flat_size(&mr_flat_queue, &req->infos[i]);
        size += mr_flat_head_size(len) + len;
    }
    uint8_t *at = unary_room(u, size);
    if (at == NULL)
        return;
    for (size_t i = 0; i < n; i++) {
        at = mr_flat_put_head(at, FIELD_QUEUES, mr_flat_size(&mr_flat_queue, &req->infos[i]));
        at = mr_flat_write(&mr_flat_queue, &req->infos[i], at);
    }
    if (next_len > 0)
        memcpy(mr_flat_put_head(at, FIELD_NEXT, next_len), next, next_len);
    unary_sent(u);
}

void queues_list(struct unary *u)
{
    const Millrace__V1__QueueListRequest *in = (const void *)u->message;
    struct mr_req_queue_list *req = &u->errand.req.queue_list;
    req->max = in->limit == 0 ? LIST_DEFAULT : in->limit;
    if (req->max > LIST_MAX) {
        unary_fail(u, MR_INVALID, "limit: %u, the most is %d", in->limit, LIST_MAX);
        return;
    }
    req->after = mr_pb_text(in->after);
    req->infos = mr_arena_calloc(unary_arena(u), req->max, sizeof *req->infos);
    if (req->infos == NULL)
        unary_fail(u, MR_NOMEM, NULL);
    else
        unary_submit(u, MR_OP_QUEUE_LIST, list_reply);
}

static void get_reply(struct unary *u)
{
    const struct mr_queue_info *info = &u->errand.req.queue_list.infos[0];
    uint8_t *room = unary_room(u, mr_flat_size(&mr_flat_queue, info));
    if (room == NULL)
        return;
    mr_flat_write(&mr_flat_queue, info, room);
    unary_sent(u);
}

static void get_one(struct unary *u, struct mr_slice queue)
{
    struct mr_req_queue_list *req = &u->errand.req.queue_list;
    req->only = queue;
    req->max = 1;
    req->infos = mr_arena_calloc(unary_arena(u), 1, sizeof *req->infos);
    if (req->infos == NULL)
        unary_fail(u, MR_NOMEM, NULL);
    else
        unary_submit(u, MR_OP_QUEUE_LIST, get_reply);
}

void queues_get(struct unary *u)
{
    const Millrace__V1__QueueRequest *in = (const void *)u->message;
    if (is_named(u, in->queue))
        get_one(u, mr_pb_text(in->queue));
}

void results_get(struct unary *u)
{
    const Millrace__V1__TopicRequest *in = (const void *)u->message;
    struct mr_slice topic = mr_pb_text(in->topic), queue = {0};
    char name[MR_NAME_MAX + 1];
    struct mr_detail detail;
    enum mr_err err = mr_name_check_of("topic", topic, &detail);
    if (topic.len > MR_TOPIC_MAX) /* less than of a name */
        unary_fail(u, MR_TOO_BIG, "topic: %zu bytes, the limit is %d", topic.len, MR_TOPIC_MAX);
    else if (err != MR_OK)
        unary_fail(u, err, "%s", detail.text);
    else if (mr_arena_copy(unary_arena(u), mr_result_queue(topic, name), &queue) != MR_OK)
        unary_fail(u, MR_NOMEM, NULL);
    else
        get_one(u, queue);
}

static void history_reply(struct unary *u)
{
    const struct mr_req_queue_history *req = &u->errand.req.queue_history;
    Millrace__V1__QueueHistoryResponse out = MILLRACE__V1__QUEUE_HISTORY_RESPONSE__INIT;
    Millrace__V1__QueueDay *rows = mr_arena_calloc(unary_arena(u), req->n + 1, sizeof *rows);
    out.days = mr_arena_calloc(unary_arena(u), req->n + 1, sizeof *out.days);
    if (rows == NULL || out.days == NULL) {
        unary_fail(u, MR_NOMEM, NULL);
        return;
    }
    for (; out.n_days < req->n; out.n_days++) {
        Millrace__V1__QueueDay *row = &rows[out.n_days];
        const struct mr_queue_day *day = &req->days[out.n_days];
        millrace__v1__queue_day__init(row);
        row->start_ms = day->start_ms;
        row->processed = day->processed;
        row->failed = day->failed;
        out.days[out.n_days] = row;
    }
    unary_send(u, &out.base);
}

void queues_history(struct unary *u)
{
    const Millrace__V1__QueueHistoryRequest *in = (const void *)u->message;
    struct mr_req_queue_history *req = &u->errand.req.queue_history;
    if (!is_named(u, in->queue))
        return;
    req->queue = mr_pb_text(in->queue);
    req->max = in->days > 0 && in->days < MR_QUEUE_DAYS_MAX ? in->days : MR_QUEUE_DAYS_MAX;
    req->days = mr_arena_calloc(unary_arena(u), req->max, sizeof *req->days);
    if (req->days == NULL)
        unary_fail(u, MR_NOMEM, NULL);
    else
        unary_submit(u, MR_OP_QUEUE_HISTORY, history_reply);
}

static void limits_reply(struct unary *u)
{
    enum { FIELD_LIMITS = 1 };
    const struct mr_req_queue_limits *req = &u->errand.req.queue_limits;
    size_t size = 0;
    for (size_t i = 0; i < req->n; i++) {
        size_t len = mr_flat_size(&mr_flat_limit, &req->limits[i]);
        size += mr_flat_head_size(len) + len;
    }
    uint8_t *at = unary_room(u, size);
    if (at == NULL)
        return;
    for (size_t i = 0; i < req->n; i++) {
        at = mr_flat_put_head(at, FIELD_LIMITS, mr_flat_size(&mr_flat_limit, &req->limits[i]));
        at = mr_flat_write(&mr_flat_limit, &req->limits[i], at);
    }
    unary_sent(u);
}

void queues_limits(struct unary *u)
{
    const Millrace__V1__QueueLimitsRequest *in = (const void *)u->message;
    struct mr_req_queue_limits *req = &u->errand.req.queue_limits;
    if (!is_named(u, in->queue))
        return;
    req->queue = mr_pb_text(in->queue);
    req->id = mr_pb_text(in->id);
    req->limits = mr_arena_calloc(unary_arena(u), MR_LIMITS_MAX, sizeof *req->limits);
    if (req->limits == NULL)
        unary_fail(u, MR_NOMEM, NULL);
    else
        unary_submit(u, MR_OP_QUEUE_LIMITS, limits_reply);
}

/* ---- changing ------------------------------------------------------------------------------- */

static void set(struct unary *u, const char *queue, enum mr_queue_setting setting, uint64_t value)
{
    struct mr_req_queue_set *req = &u->errand.req.queue_set;
    req->queue = mr_pb_text(queue);
    req->setting = setting;
    req->value = value;
    name_it(u, queue);
    unary_submit(u, MR_OP_QUEUE_SET, empty_reply);
}

void queues_pause(struct unary *u)
{
    set(u, ((const Millrace__V1__QueueRequest *)(const void *)u->message)->queue, MR_QUEUE_PAUSED,
        1);
}

void queues_resume(struct unary *u)
{
    set(u, ((const Millrace__V1__QueueRequest *)(const void *)u->message)->queue, MR_QUEUE_PAUSED,
        0);
}

void queues_set_max_length(struct unary *u)
{
    const Millrace__V1__QueueMaxLengthRequest *in = (const void *)u->message;
    set(u, in->queue, MR_QUEUE_MAX_LENGTH, in->max_length);
}

void queues_set_partitions(struct unary *u)
{
    const Millrace__V1__QueuePartitionsRequest *in = (const void *)u->message;
    set(u, in->queue, MR_QUEUE_PARTITIONS, in->partitions);
}

void queues_set_assign(struct unary *u)
{
    const Millrace__V1__QueueAssignRequest *in = (const void *)u->message;
    set(u, in->queue, MR_QUEUE_ASSIGN, (uint64_t)in->assign);
}

void queues_set_retry_mode(struct unary *u)
{
    const Millrace__V1__QueueRetryModeRequest *in = (const void *)u->message;
    set(u, in->queue, MR_QUEUE_RETRY_MODE, (uint64_t)in->retry_mode);
}

void queues_set_retry_wait(struct unary *u)
{
    const Millrace__V1__QueueRetryWaitRequest *in = (const void *)u->message;
    set(u, in->queue, MR_QUEUE_RETRY_WAIT, (uint64_t)in->retry_wait_ms);
}

static void set_limit(struct unary *u, enum mr_queue_setting setting)
{
    const Millrace__V1__QueueLimitRequest *in = (const void *)u->message;
    struct mr_req_queue_set *req = &u->errand.req.queue_set;
    req->scope = (enum mr_limit_scope)in->scope;
    req->name = mr_pb_text(in->name);
    req->rate_ms = in->rate_ms;
    set(u, in->queue, setting, in->value);
}

void queues_set_rate(struct unary *u)
{
    set_limit(u, MR_QUEUE_RATE);
}

void queues_set_concurrency(struct unary *u)
{
    set_limit(u, MR_QUEUE_CONCURRENCY);
}

void queues_remove(struct unary *u)
{
    const Millrace__V1__QueueRemoveRequest *in = (const void *)u->message;
    struct mr_req_queue_remove *req = &u->errand.req.queue_remove;
    req->queue = mr_pb_text(in->queue);
    req->mode = in->force ? MR_QUEUE_REMOVE_FORCE : MR_QUEUE_REMOVE_EMPTY;
    name_it(u, in->queue);
    unary_submit(u, MR_OP_QUEUE_REMOVE, empty_reply);
}
