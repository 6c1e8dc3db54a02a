/* SPDX-License-Identifier: Apache-2.0 */
/* The loop: one thread, its turns, and how others reach it. */
#include "rpc/rpc.h"

#include <stdlib.h>

#include "rpc/internal.h"

/* The loop that this thread runs, if it runs one. */
static _Thread_local const struct mr_rpc *this_loop;

bool rpc_is_loop(const struct mr_rpc *rpc)
{
    return this_loop == rpc;
}

#define LIMIT(value, otherwise) ((value) != 0 ? (value) : (otherwise))

static struct mr_rpc_limits full_limits(const struct mr_rpc_limits *given)
{
    struct mr_rpc_limits limits = given != NULL ? *given : (struct mr_rpc_limits){0};
    limits.message_max = LIMIT(limits.message_max, 4u << 20);
    limits.calls_max = LIMIT(limits.calls_max, 1000);
    limits.client_calls_max = LIMIT(limits.client_calls_max, 200000);
    limits.queued_max = LIMIT(limits.queued_max, 16u << 20);
    limits.memory_max = LIMIT(limits.memory_max, 16 * limits.queued_max);
    limits.connections_max = LIMIT(limits.connections_max, 20000);
    limits.idle_ms = LIMIT(limits.idle_ms, 5 * 60 * MR_MS_PER_S);
    limits.keepalive_ms = LIMIT(limits.keepalive_ms, 10 * MR_MS_PER_S);
    limits.handshake_ms = LIMIT(limits.handshake_ms, 10 * MR_MS_PER_S);
    return limits;
}

/* ---- time ----------------------------------------------------------------------------------- */

static uint64_t tick_of(mr_mono at)
{
    return (uint64_t)(at.ns / MR_NS_PER_MS);
}

void mr_rpc_timer_start(struct mr_rpc *rpc, struct mr_timer *timer, mr_mono at)
{
    bool never = at.ns > INT64_MAX - MR_NS_PER_MS;
    /* Rounded up: never early. */
    mr_wheel_start(rpc->wheel, timer,
                   never ? MR_TICK_NEVER - 1 : tick_of((mr_mono){at.ns + MR_NS_PER_MS - 1}));
}

void mr_rpc_timer_stop(struct mr_rpc *rpc, struct mr_timer *timer)
{
    mr_wheel_stop(rpc->wheel, timer);
}

mr_mono mr_rpc_now(const struct mr_rpc *rpc)
{
    return rpc->now;
}

/* ---- turns ---------------------------------------------------------------------------------- */

static void deliver_posts(struct mr_rpc *rpc)
{
    struct mr_msg *next;
    for (struct mr_msg *msg = mr_chan_take_all(mr_loop_inbox(rpc->loop)); msg; msg = next) {
        next = msg->next;
        msg->deliver(msg, rpc);
    }
}

static struct mr_call *call_of(struct mr_link *link)
{
    return mr_container(link, struct mr_call, turn_link);
}

/* What was there when it began; what its callbacks cause is the next round's. */
static void settle_calls(struct mr_rpc *rpc)
{
    struct mr_link stirred, *link;
    mr_list_init(&stirred);
    mr_list_splice_back(&stirred, &rpc->stirred);
    while ((link = mr_list_pop_front(&stirred)) != NULL)
        rpc_call_stirred(call_of(link));
    while ((link = mr_list_pop_front(&rpc->over)) != NULL)
        rpc_call_tell(call_of(link));
}

/* A connection is freed, and its channel told, when its calls know. */
static void settle_conns(struct mr_rpc *rpc)
{
    struct mr_link *link;
    while ((link = rpc->doomed.next) != &rpc->doomed)
        rpc_conn_close(mr_container(link, struct rpc_conn, doom_link));
    rpc->going = 0;
    while ((link = mr_list_pop_front(&rpc->over)) != NULL)
        rpc_call_tell(call_of(link));
    while ((link = rpc->dead.next) != &rpc->dead)
        rpc_conn_free(mr_container(link, struct rpc_conn, link));
}

static void settle_channels(struct mr_rpc *rpc)
{
    struct mr_link leaving, *link;
    mr_list_init(&leaving);
    mr_list_splice_back(&leaving, &rpc->leaving);
    while ((link = mr_list_pop_front(&leaving)) != NULL) {
        struct mr_channel *channel = mr_container(link, struct mr_channel, link);
        if (!rpc_channel_end(channel))
            mr_list_push_back(&rpc->leaving, &channel->link);
    }
}

static void rpc_settle(struct mr_rpc *rpc)
{
    settle_calls(rpc);
    settle_conns(rpc);
    settle_channels(rpc);
}

static void flush_all(struct mr_rpc *rpc)
{
    struct mr_link dirty, *link;
    mr_list_init(&dirty);
    mr_list_splice_back(&dirty, &rpc->dirty);
    while ((link = dirty.next) != &dirty)
        rpc_conn_flush(mr_container(link, struct rpc_conn, dirty_link));
}

/* Nothing is left to do before something happens. Channels that leave wait for a resolver. */
static bool settled(const struct mr_rpc *rpc)
{
    return mr_list_empty(&rpc->stirred) && mr_list_empty(&rpc->over) &&
           mr_list_empty(&rpc->dirty) && mr_list_empty(&rpc->doomed) && mr_list_empty(&rpc->dead);
}

static int64_t wait_ns(struct mr_rpc *rpc)
{
    if (!settled(rpc))
        return 0;
    uint64_t next = mr_wheel_next(rpc->wheel);
    if (next >= (uint64_t)(INT64_MAX / MR_NS_PER_MS))
        return INT64_MAX;
    int64_t ns = (int64_t)next * MR_NS_PER_MS - mr_mono_now(mr_clock_system()).ns;
    return ns > 0 ? ns : 0;
}

void rpc_turn(struct mr_rpc *rpc, int64_t max_ns)
{
    this_loop = rpc;
    int64_t ns = wait_ns(rpc);
    mr_loop_wait(rpc->loop, ns < max_ns ? ns : max_ns);
    rpc->now = mr_mono_now(mr_clock_system());
    mr_loop_dispatch(rpc->loop);
    deliver_posts(rpc);
    mr_wheel_advance(rpc->wheel, tick_of(rpc->now), rpc);
    rpc_settle(rpc);
    flush_all(rpc);
    rpc_settle(rpc);
    rpc_server_drained(rpc);
}

/* Channels that leave may still wait for a resolver, which posts. */
static void close_all(struct mr_rpc *rpc)
{
    struct mr_link *link;
    for (link = rpc->listeners.next; link != &rpc->listeners; link = link->next)
        rpc_listener_close(mr_container(link, struct rpc_listener, link));
    for (link = rpc->conns.next; link != &rpc->conns; link = link->next)
        rpc_conn_doom(mr_container(link, struct rpc_conn, link), NGHTTP2_NO_ERROR, "closed here");
    rpc_settle(rpc);
    while (!mr_list_empty(&rpc->conns) || !mr_list_empty(&rpc->leaving) || !settled(rpc)) {
        mr_loop_wait(rpc->loop, wait_ns(rpc));
        mr_loop_dispatch(rpc->loop);
        deliver_posts(rpc);
        rpc_settle(rpc);
    }
}

static void *run(void *arg)
{
    struct mr_rpc *rpc = arg;
    while (!rpc->stopping)
        rpc_turn(rpc, INT64_MAX);
    close_all(rpc);
    return NULL;
}

/* ---- life ----------------------------------------------------------------------------------- */

static void init_lists(struct mr_rpc *rpc)
{
    mr_list_init(&rpc->listeners);
    mr_list_init(&rpc->channels);
    mr_list_init(&rpc->conns);
    mr_list_init(&rpc->stirred);
    mr_list_init(&rpc->over);
    mr_list_init(&rpc->dirty);
    mr_list_init(&rpc->doomed);
    mr_list_init(&rpc->dead);
    mr_list_init(&rpc->leaving);
}

void rpc_free(struct mr_rpc *rpc)
{
    mr_assert(mr_list_empty(&rpc->channels) && mr_list_empty(&rpc->leaving));
    mr_assert(rpc->conns_n == 0 && rpc->memory == 0);
    while (rpc->spare != NULL) {
        struct mr_call *call = rpc->spare;
        rpc->spare = call->next_spare;
        free(call);
    }
    struct mr_link *link;
    while ((link = mr_list_pop_front(&rpc->listeners)) != NULL)
        rpc_listener_free(mr_container(link, struct rpc_listener, link));
    mr_exec_thread_free(rpc->resolver);
    rpc_session_free_shared(rpc);
    mr_buf_done(&rpc->out);
    mr_buf_done(&rpc->unpacked);
    free(rpc->in);
    mr_wheel_free(rpc->wheel);
    mr_loop_free(rpc->loop);
    free(rpc);
}

static enum mr_err make_parts(struct mr_rpc *rpc)
{
    rpc->now = mr_mono_now(mr_clock_system());
    mr_rand_seed_system(&rpc->rand);
    MR_TRY(mr_loop_new(&rpc->loop));
    MR_TRY(mr_wheel_new(tick_of(rpc->now), &rpc->wheel));
    MR_TRY(mr_buf_reserve(&rpc->out, RPC_OUT_CAP));
    rpc->in = malloc(RPC_IN_MAX);
    if (rpc->in == NULL)
        return MR_NOMEM;
    return rpc_session_new_shared(rpc);
}

enum mr_err rpc_new(const struct mr_rpc_limits *limits, struct mr_rpc **ret_rpc)
{
    struct mr_rpc *rpc = calloc(1, sizeof *rpc);
    if (rpc == NULL)
        return MR_NOMEM;
    rpc->limits = full_limits(limits);
    init_lists(rpc);
    enum mr_err err = make_parts(rpc);
    if (err != MR_OK) {
        rpc_free(rpc);
        return err;
    }
    *ret_rpc = rpc;
    return MR_OK;
}

enum mr_err mr_rpc_new(const char *thread_name, const struct mr_rpc_limits *limits,
                       struct mr_rpc **ret_rpc)
{
    struct mr_rpc *rpc;
    MR_TRY(rpc_new(limits, &rpc));
    enum mr_err err = mr_thread_start(&rpc->thread, thread_name, run, rpc);
    if (err != MR_OK) {
        rpc_free(rpc);
        return err;
    }
    *ret_rpc = rpc;
    return MR_OK;
}

static void stop(struct mr_msg *msg, void *receiver)
{
    (void)msg;
    ((struct mr_rpc *)receiver)->stopping = true;
}

void mr_rpc_free(struct mr_rpc *rpc)
{
    if (rpc == NULL)
        return;
    rpc->stop_msg.deliver = stop;
    mr_rpc_post(rpc, &rpc->stop_msg);
    mr_thread_join(rpc->thread);
    rpc_free(rpc);
}

struct mr_chan *mr_rpc_inbox(struct mr_rpc *rpc)
{
    return mr_loop_inbox(rpc->loop);
}

void mr_rpc_post(struct mr_rpc *rpc, struct mr_msg *msg)
{
    mr_chan_send(mr_rpc_inbox(rpc), msg);
}
