/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker that has nothing but HTTP: take, extend, finish.
 *
 * What was taken together is in one hand, and has one lease: a node of the broker, opened for it and closed when
 * the last of its tasks has ended. So a worker that is gone loses what it had after its own lease_ms, whatever else
 * it has taken under the same name, and nothing of it is left here. A task counts as begun when it is sent; what nobody
 * was there to get, goes back as if it had never been taken.
 */
#include "api/http_take.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- epochs --------------------------------------------------------------------------------- */

static struct mr_link *bucket_of(struct http_hands *hands, uint64_t epoch)
{
    return &hands->buckets[(epoch * 0x9e3779b97f4a7c15u >> 32) % HTTP_HELD_BUCKETS];
}

struct http_held *http_held_find(struct http_hands *hands, uint64_t epoch)
{
    struct mr_link *bucket = bucket_of(hands, epoch);
    for (struct mr_link *link = bucket->next; link != bucket; link = link->next)
        if (mr_container(link, struct http_held, link)->epoch == epoch)
            return mr_container(link, struct http_held, link);
    return NULL;
}

void http_hands_init(struct http_hands *hands)
{
    mr_list_init(&hands->list);
    mr_rand_seed_system(&hands->rand);
    for (size_t i = 0; i < HTTP_HELD_BUCKETS; i++)
        mr_list_init(&hands->buckets[i]);
}

/* ---- hands ---------------------------------------------------------------------------------- */

static void hand_free(struct http_hand *hand)
{
    for (size_t i = 0; i < hand->n; i++)
        mr_list_remove(&hand->helds[i].link);
    mr_list_remove(&hand->link);
    hand->api->hands.n--;
    mr_arena_done(&hand->arena);
    free(hand->helds);
    free(hand);
}

static void closed_delivered(struct mr_msg *msg, void *receiver)
{
    struct http_hand *hand = mr_container(msg, struct http_hand, msg);
    mr_http_release(receiver);
    mr_req_done(&hand->closing.req);
    hand_free(hand);
}

/* Thread: the broker's. */
static void on_closed(struct mr_req *req)
{
    struct http_hand *hand = req->arg;
    hand->msg.deliver = closed_delivered;
    mr_http_post(hand->api->http, &hand->msg);
}

/* What it holds goes back. Its memory lives until the broker has said so, behind everything it had to tell. */
static void hand_close(struct http_hand *hand)
{
    if (hand->is_closing)
        return;
    hand->is_closing = true;
    hand->closing = (struct mr_req_node_close){
        .req = {.op = MR_OP_NODE_CLOSE, .done = on_closed, .arg = hand}, .node = hand->node};
    mr_http_hold(hand->api->http);
    mr_broker_submit(hand->broker, &hand->closing.req);
}

void http_held_over(struct http_held *held)
{
    struct http_hand *hand = held->hand;
    if (held->over)
        return;
    held->over = true;
    mr_list_remove(&held->link);
    if (--hand->left == 0)
        hand_close(hand);
}

struct telling {
    struct mr_msg msg;
    struct http_hand *hand;
    uint64_t epoch;
    enum mr_stop_reason reason;
};

static void stop_delivered(struct mr_msg *msg, void *receiver)
{
    (void)receiver;
    struct telling *telling = mr_container(msg, struct telling, msg);
    struct http_held *held = http_held_find(&telling->hand->api->hands, telling->epoch);
    if (held != NULL && held->hand == telling->hand) {
        if (telling->reason == MR_STOP_CANCEL)
            held->cancelled = true;
        else
            http_held_over(held);
    }
    free(telling);
}

/* Thread: the broker's. Without memory for it the worker hears of it when it finishes. */
static void on_stop(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    struct http_hand *hand = arg;
    struct telling *telling = calloc(1, sizeof *telling);
    if (telling == NULL)
        return;
    *telling = (struct telling){
        .msg.deliver = stop_delivered, .hand = hand, .epoch = epoch, .reason = reason};
    mr_http_post(hand->api->http, &telling->msg);
}

/* The server goes, and that is no crash of what they run. */
void http_takes_end(struct mr_http_api *api)
{
    api->hands.stopped = true;
    for (struct mr_link *link = api->hands.list.next, *next; link != &api->hands.list;
         link = next) {
        struct http_hand *hand = mr_container(link, struct http_hand, link);
        next = link->next;
        for (size_t i = 0; i < hand->n; i++)
            mr_broker_begun(hand->broker, hand->first_slot + (uint32_t)i, 0);
        if (hand->is_open)
            hand_close(hand);
    }
}

/* Who waits for tasks is not listened to by the library: that it has gone is seen only by looking. */
void http_takes_look(struct mr_http_api *api)
{
    for (struct mr_link *link = api->hands.list.next; link != &api->hands.list; link = link->next) {
        struct http_hand *hand = mr_container(link, struct http_hand, link);
        if (hand->waiting != NULL && mr_http_is_gone(hand->waiting->request))
            hand_close(hand);
    }
}

/* ---- take ----------------------------------------------------------------------------------- */

static void leases_free(struct http_call *call)
{
    for (struct mr_lease *lease = call->req.take.leases, *next; lease != NULL; lease = next) {
        next = lease->next;
        mr_lease_free(lease);
    }
    call->req.take.leases = NULL;
}

/* They are in the worker's hand now, and each has a slot. */
static enum mr_err keep(struct http_hand *hand, const struct mr_req_take *take)
{
    hand->helds = calloc(take->n, sizeof *hand->helds);
    if (hand->helds == NULL)
        return MR_NOMEM;
    size_t n = 0;
    for (const struct mr_lease *lease = take->leases; lease != NULL; lease = lease->next)
        MR_TRY(mr_arena_copy(&hand->arena, lease->task.id, &hand->helds[n++].id));
    for (const struct mr_lease *lease = take->leases; lease != NULL; lease = lease->next) {
        struct http_held *held = &hand->helds[hand->n];
        *held = (struct http_held){.hand = hand,
                                   .id = held->id,
                                   .epoch = lease->epoch,
                                   .ref = lease->ref,
                                   .retried = lease->task.retried};
        mr_list_push_back(bucket_of(&hand->api->hands, held->epoch), &held->link);
        mr_broker_begun(hand->broker, hand->first_slot + (uint32_t)hand->n, held->epoch);
        hand->n++;
        hand->left++;
    }
    if (hand->api->options.handed != NULL)
        atomic_fetch_add(hand->api->options.handed, take->n);
    return MR_OK;
}

static enum mr_err write_leases(struct http_call *call, struct jw *jw)
{
    http_page_begin(jw);
    for (struct mr_lease *lease = call->req.take.leases; lease != NULL; lease = lease->next) {
        MR_TRY(mr_broker_lease_open(call->broker, lease));
        lease->task.epoch = lease->epoch;
        jw_task(jw, &lease->task);
    }
    http_page_end(jw, "");
    return jw->err;
}

static void taken(struct http_call *call)
{
    struct http_hand *hand = call->data;
    enum mr_err err = call->req.head.err;
    struct jw jw = {0};
    hand->waiting = NULL;
    if (hand->is_closing || call->api->hands.stopped) /* so will be its node: what came goes back */
        err = MR_CLOSED;
    bool none = err == MR_EMPTY || (err == MR_OK && mr_http_is_gone(call->request));
    if (none) {
        http_page_begin(&jw);
        http_page_end(&jw, "");
    } else if (err == MR_OK) {
        err = write_leases(call, &jw);
        if (err == MR_OK)
            err = keep(hand, &call->req.take);
    }
    leases_free(call);
    if (hand->left == 0)
        hand_close(hand);
    if (err == MR_OK || none) {
        http_call_reply(call, &jw);
        return;
    }
    mr_buf_done(&jw.buf);
    http_call_fail(call, err == MR_CLOSED ? MR_UNAVAILABLE : err, "%s",
                   err == MR_CLOSED ? "the server is stopping" : mr_err_text(err));
}

static void opened(struct http_call *call)
{
    struct http_hand *hand = call->data;
    enum mr_err err = call->req.head.err;
    if (err != MR_OK) {
        hand_free(hand);
        http_call_fail(call, err, "%s", mr_err_text(err));
        return;
    }
    hand->node = call->req.node_open.node;
    hand->first_slot = call->req.node_open.first_slot;
    hand->is_open = true;
    http_call_clear(call);
    if (hand->api->hands.stopped) {
        hand_close(hand);
        http_call_fail(call, MR_UNAVAILABLE, "the server is stopping");
        return;
    }
    call->req.take.node = hand->node;
    call->req.take.max = hand->max;
    call->req.take.wait_ms = hand->wait_ms;
    call->req.take.bytes_max = ANSWER_BYTES;
    hand->waiting = call;
    http_call_submit_any(call, MR_OP_TAKE, taken);
}

/* What a take asks for. */
struct wish {
    struct mr_slice node;
    int64_t max, wait_ms, lease_ms;
    const json_t *queues;
};

static enum mr_err read_queues(struct http_call *call, const json_t *json, struct mr_detail *detail)
{
    struct mr_req_node_open *req = &call->req.node_open;
    size_t n = json_object_size(json);
    const char *name;
    json_t *weight;
    mr_detail_set(detail, "queues: must be an object of 1 to %d names with weights of 1 and more",
                  MR_TAKE_QUEUES_MAX);
    if (!json_is_object(json) || n == 0 || n > MR_TAKE_QUEUES_MAX)
        return MR_INVALID;
    struct mr_worker_queue *queues = mr_arena_calloc(&req->req.arena, n, sizeof *queues);
    req->queues = queues;
    if (queues == NULL)
        return MR_NOMEM;
    json_object_foreach((json_t *)(uintptr_t)json, name, weight)
    {
        json_int_t number = json_integer_value(weight);
        struct mr_slice queue = mr_slice_str(name);
        if (number < 1 || number > INT32_MAX)
            return MR_INVALID;
        MR_TRY(mr_name_check_of("queue", queue, detail));
        if (!mr_access_queue(&call->token, queue)) {
            mr_access_not_covered(&call->token, queue, detail);
            return MR_DENIED;
        }
        queues[req->queues_n++] =
            (struct mr_worker_queue){.name = queue, .weight = (uint32_t)number};
    }
    return MR_OK;
}

static enum mr_err check_wish(const struct wish *wish, struct mr_detail *detail)
{
    const struct {
        const char *name;
        int64_t value, low, high;
    } rows[] = {
        {"max", wish->max, 1, HTTP_TAKE_MAX},
        {"wait_ms", wish->wait_ms, 0, HTTP_WAIT_MAX_MS},
        {"lease_ms", wish->lease_ms, HTTP_LEASE_MIN_MS, HTTP_LEASE_MAX_MS},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].value >= rows[i].low && rows[i].value <= rows[i].high)
            continue;
        mr_detail_set(detail, "%s: must be a whole number from %lld to %lld", rows[i].name,
                      (long long)rows[i].low, (long long)rows[i].high);
        return MR_INVALID;
    }
    return mr_name_check_of("node", wish->node, detail);
}

static enum mr_err read_wish(struct http_call *call, struct wish *wish, struct mr_detail *detail)
{
    const struct http_field fields[] = {
        {"queues", HTTP_ANY, &wish->queues},        {"node", HTTP_TEXT, &wish->node},
        {"max", HTTP_NUMBER, &wish->max},           {"wait_ms", HTTP_NUMBER, &wish->wait_ms},
        {"lease_ms", HTTP_NUMBER, &wish->lease_ms},
    };
    MR_TRY(http_read_object(call->json, fields, sizeof fields / sizeof *fields, detail));
    MR_TRY(check_wish(wish, detail));
    return read_queues(call, wish->queues, detail);
}

static struct http_hand *hand_new(struct http_call *call, const struct wish *wish)
{
    struct http_hand *hand = calloc(1, sizeof *hand);
    if (hand == NULL)
        return NULL;
    hand->api = call->api;
    hand->broker = call->broker;
    hand->max = (size_t)wish->max;
    hand->wait_ms = wish->wait_ms;
    memcpy(hand->token, call->token.id, sizeof hand->token);
    mr_list_push_back(&hand->api->hands.list, &hand->link);
    hand->api->hands.n++;
    return hand;
}

void http_take(struct mr_http_request *request, void *arg)
{
    static const struct http_bounds bounds = {
        .depth = 2, .containers = 2, .commas = MR_TAKE_QUEUES_MAX + 8};
    struct http_call *call = http_call_new(arg, request);
    struct wish wish = {.node = MR_SLICE_LIT("http"), .max = 1, .lease_ms = HTTP_LEASE_MS};
    struct mr_detail detail = {.text = ""};
    if (call == NULL || !http_read_json(call, &bounds))
        return;
    enum mr_err err = read_wish(call, &wish, &detail);
    if (err == MR_OK && call->api->hands.n >= HTTP_HANDS_MAX) {
        err = MR_BUSY;
        mr_detail_set(&detail, "too many takes are under way or in hand: try again");
    }
    struct http_hand *hand = err == MR_OK ? hand_new(call, &wish) : NULL;
    if (hand == NULL) {
        err = err != MR_OK ? err : MR_NOMEM;
        http_call_fail(call, err, "%s", err == MR_NOMEM ? mr_err_text(err) : detail.text);
        return;
    }
    call->data = hand;
    struct mr_req_node_open *req = &call->req.node_open;
    req->role = MR_NODE_WORKER;
    req->name = wish.node;
    req->order = MR_QUEUES_WEIGHTED;
    req->slots = (uint32_t)hand->max;
    req->lease_ms = wish.lease_ms;
    req->lasts = true;
    req->fall_ms = HTTP_FALL_MS;
    req->events = (struct mr_node_events){.stop = on_stop, .arg = hand};
    http_call_submit_any(call, MR_OP_NODE_OPEN, opened);
}
