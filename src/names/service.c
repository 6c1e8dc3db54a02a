/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a nameserver: see service.h. */
#include "names/service.h"

#include <stdlib.h>

#include "base/rand.h"
#include "names/service_internal.h"

enum { QUEUED_MAX = 8 * 1024 * 1024 }; /* of answers to one that does not take them */

/* ---- messages --------------------------------------------------------------------------------- */

/* What is too much now, a digest makes up for later. */
enum mr_err names_say(struct mr_names *names, struct mr_call *call, const struct mr_names_msg *msg)
{
    if (call == NULL)
        return MR_CLOSED;
    if (mr_call_queued(call) > QUEUED_MAX)
        return MR_BUSY;
    mr_buf_clear(&names->buf);
    MR_TRY(mr_names_encode(msg, &names->buf));
    return mr_call_send(call, mr_buf_slice(&names->buf));
}

struct answering {
    struct mr_names *names;
    struct mr_call *call;
};

static enum mr_err answer(const struct mr_names_msg *msg, void *arg)
{
    struct answering *a = arg;
    return names_say(a->names, a->call, msg);
}

enum mr_err names_hear(struct mr_names *names, struct mr_call *call, struct mr_slice bytes)
{
    struct mr_arena arena = {0};
    struct mr_names_msg msg;
    struct answering a = {.names = names, .call = call};
    enum mr_err err = names->stopped ? MR_CLOSED : mr_names_decode(bytes, &arena, &msg);
    if (err == MR_OK)
        err = mr_registry_hear(names->registry, mr_rpc_now(names->options.rpc), &msg, answer, &a);
    mr_arena_done(&arena);
    return err;
}

static enum mr_err to_all(const struct mr_names_msg *msg, void *arg)
{
    struct mr_names *names = arg;
    mr_buf_clear(&names->buf);
    MR_TRY(mr_names_encode(msg, &names->buf));
    for (size_t i = 0; i < names->peers_n; i++) {
        struct mr_call *call = names->peers[i].call;
        enum mr_err err = MR_OK;
        if (call != NULL && mr_call_queued(call) <= QUEUED_MAX)
            err = mr_call_send(call, mr_buf_slice(&names->buf));
        (void)err; /* its next stream begins with a digest */
    }
    return MR_OK;
}

/* ---- time ------------------------------------------------------------------------------------- */

static void look(struct mr_timer *timer, void *arg)
{
    struct mr_names *names = mr_container(timer, struct mr_names, timer);
    mr_mono now = mr_rpc_now(arg);
    mr_registry_tick(names->registry, now);
    for (size_t i = 0; i < names->peers_n; i++)
        peer_look(&names->peers[i]);
    enum mr_err err = mr_registry_push(names->registry, now, to_all, names);
    if (err == MR_OK && now.ns >= names->digest.ns) {
        names->digest = mr_mono_add_ms(now, names->options.interval_ms);
        err = mr_registry_digest(names->registry, to_all, names);
    }
    (void)err; /* for want of memory: the next digest makes up for it */
    calls_look(names, now);
    mr_rpc_timer_start(arg, timer, mr_mono_add_ms(now, names->options.push_ms));
}

/* ---- life ------------------------------------------------------------------------------------- */

struct order {
    struct mr_msg msg;
    struct mr_names *names;
    struct mr_event done;
};

static void give_order(struct mr_names *names, void (*deliver)(struct mr_msg *msg, void *receiver))
{
    struct order order = {.msg.deliver = deliver, .names = names};
    mr_event_init(&order.done);
    mr_rpc_post(names->options.rpc, &order.msg);
    mr_event_wait(&order.done, INT64_MAX);
}

static void begin(struct mr_msg *msg, void *receiver)
{
    struct order *order = mr_container(msg, struct order, msg);
    look(&order->names->timer, receiver);
    mr_event_set(&order->done);
}

static void stop(struct mr_msg *msg, void *receiver)
{
    struct order *order = mr_container(msg, struct order, msg);
    struct mr_names *names = order->names;
    names->stopped = true;
    mr_rpc_timer_stop(receiver, &names->timer);
    calls_look(names, mr_rpc_now(receiver));
    mr_event_set(&order->done);
}

static enum mr_err open_peers(struct mr_names *names, const struct mr_names_options *options,
                              struct mr_detail *detail)
{
    for (size_t i = 0; i < options->peers_n; i++) {
        struct peer *peer = &names->peers[names->peers_n++];
        MR_TRY(peer_open(peer, names, options->peers[i], detail));
    }
    return MR_OK;
}

enum mr_err mr_names_new(const struct mr_names_options *options, struct mr_names **ret_names,
                         struct mr_detail *detail)
{
    if (options->peers_n > MR_NAMES_PEERS_MAX) {
        mr_detail_set(detail, "%zu other nameservers, the most is %d", options->peers_n,
                      MR_NAMES_PEERS_MAX);
        return MR_INVALID;
    }
    struct mr_names *names = calloc(1, sizeof *names);
    if (names == NULL)
        return MR_NOMEM;
    names->options = *options;
    names->options.interval_ms =
        options->interval_ms > 0 ? options->interval_ms : MR_NAMES_INTERVAL_MS;
    names->options.push_ms = options->push_ms > 0 ? options->push_ms : MR_NAMES_PUSH_MS;
    names->id = mr_rand_next(mr_rand_of_thread()) | 1;
    mr_list_init(&names->waits);
    mr_timer_init(&names->timer, look);
    mr_mono now = mr_mono_now(mr_clock_system());
    enum mr_err err = mr_registry_new(&options->registry, now, &names->registry);
    if (err == MR_OK)
        err = open_peers(names, options, detail);
    if (err != MR_OK) {
        for (size_t i = 0; i < names->peers_n; i++)
            peer_close(&names->peers[i]);
        mr_names_free(names);
        return err;
    }
    give_order(names, begin);
    *ret_names = names;
    return MR_OK;
}

void mr_names_stop(struct mr_names *names)
{
    give_order(names, stop);
    for (size_t i = 0; i < names->peers_n; i++)
        peer_close(&names->peers[i]);
}

void mr_names_free(struct mr_names *names)
{
    if (names == NULL)
        return;
    for (size_t i = 0; i < names->peers_n; i++)
        free(names->peers[i].address);
    mr_registry_free(names->registry);
    mr_buf_done(&names->buf);
    free(names);
}

struct mr_registry *mr_names_registry(struct mr_names *names)
{
    return names->registry;
}
