/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GET /leader/history: who has led, newest first. The broker knows who leads now; so it is looked at every few seconds, and what
 * changes is kept, in memory, since the start of this server. Who led for less than the time between two looks may not be among
 * them. When one has ended is known where nobody leads at the next look; else it was when the next one began, at the latest.
 */
#include <stdlib.h>

#include "api/http_leaders.h"

enum { LEADERS_MAX = 64 };

struct led {
    char node[MR_NAME_MAX + 1];
    uint64_t incarnation, term;
    int64_t since_ms, until_ms; /* until: 0 while it leads */
};

struct http_leaders {
    struct mr_http_api *api;
    struct mr_req_node_list req;
    struct mr_msg msg;
    bool looks;
    int64_t watched_ms; /* since then */
    struct led at[LEADERS_MAX];
    size_t n; /* the newest is the last */
};

static int64_t now_ms(void)
{
    return mr_wall_ms(mr_wall_now(mr_clock_system()));
}

static void see(struct http_leaders *leaders, const struct mr_leader *now)
{
    struct led *last = leaders->n > 0 ? &leaders->at[leaders->n - 1] : NULL;
    bool same = last != NULL && last->term == now->term && last->incarnation == now->incarnation;
    if (last != NULL && last->until_ms == 0 && (!same || now->node.len == 0))
        last->until_ms = now->node.len == 0 ? now_ms() - now->leaderless_ms : now->since_ms;
    if (same || now->node.len == 0 || now->node.len > MR_NAME_MAX)
        return;
    if (leaders->n == LEADERS_MAX) {
        memmove(leaders->at, leaders->at + 1, (LEADERS_MAX - 1) * sizeof *leaders->at);
        leaders->n--;
    }
    struct led *led = &leaders->at[leaders->n++];
    *led =
        (struct led){.incarnation = now->incarnation, .term = now->term, .since_ms = now->since_ms};
    memcpy(led->node, now->node.data, now->node.len);
}

static void delivered(struct mr_msg *msg, void *receiver)
{
    struct http_leaders *leaders = mr_container(msg, struct http_leaders, msg);
    mr_http_release(receiver);
    if (leaders->req.req.err == MR_OK) {
        leaders->watched_ms = leaders->watched_ms == 0 ? now_ms() : leaders->watched_ms;
        see(leaders, &leaders->req.leader);
    }
    mr_req_done(&leaders->req.req);
    leaders->looks = false;
}

/* Thread: the broker's. */
static void on_done(struct mr_req *req)
{
    struct http_leaders *leaders = req->arg;
    leaders->msg.deliver = delivered;
    mr_http_post(leaders->api->http, &leaders->msg);
}

void http_leaders_beat(struct http_leaders *leaders, struct mr_http *http)
{
    struct mr_broker *broker = atomic_load(&leaders->api->broker);
    if (leaders->looks || broker == NULL)
        return;
    leaders->api->http = http;
    leaders->looks = true;
    leaders->req = (struct mr_req_node_list){
        .req = {.op = MR_OP_NODE_LIST, .done = on_done, .arg = leaders},
        .for_assignments = true, /* the nodes are not wanted */
    };
    mr_http_hold(http);
    mr_broker_submit(broker, &leaders->req.req);
}

static void write_led(struct jw *jw, const struct led *led)
{
    jw_object_begin(jw, NULL);
    jw_text(jw, "node", led->node);
    jw_uint(jw, "incarnation", led->incarnation);
    jw_uint(jw, "term", led->term);
    jw_int(jw, "since_ms", led->since_ms);
    if (led->until_ms > 0)
        jw_int(jw, "until_ms", led->until_ms);
    else
        jw_null(jw, "until_ms");
    jw_object_end(jw);
}

void http_leader_history(struct mr_http_request *request, void *arg)
{
    struct mr_http_api *api = arg;
    const struct http_leaders *leaders = api->leaders;
    struct mr_token token;
    struct jw jw = {0};
    if (!http_door_admit(&api->options.door, request, &token))
        return;
    jw_object_begin(&jw, NULL);
    jw_array_begin(&jw, "items");
    for (size_t i = leaders->n; i > 0; i--)
        write_led(&jw, &leaders->at[i - 1]);
    jw_array_end(&jw);
    jw_null(&jw, "next");
    jw_int(&jw, "watched_ms", leaders->watched_ms);
    jw_object_end(&jw);
    http_reply(request, http_row_of(request)->status, &jw);
}

enum mr_err http_leaders_new(struct mr_http_api *api, struct http_leaders **ret_leaders)
{
    struct http_leaders *leaders = calloc(1, sizeof *leaders);
    if (leaders == NULL)
        return MR_NOMEM;
    leaders->api = api;
    *ret_leaders = leaders;
    return MR_OK;
}

void http_leaders_free(struct http_leaders *leaders)
{
    if (leaders == NULL)
        return;
    mr_assert(!leaders->looks);
    free(leaders);
}
