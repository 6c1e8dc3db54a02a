/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A flow of calls to a Redis deployment, to see what becomes of them while servers fail and slots
 * move. Each call is not repeatable and has a number of its own, which a script adds to a set while it
 * counts itself. So afterwards the servers tell which calls were carried out, and whether one was
 * carried out twice.
 */
#ifndef MR_TESTS_REDIS_FLOW_H
#define MR_TESTS_REDIS_FLOW_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "redis/redis.h"
#include "redis/slot.h"
#include "support/redis_rig.h"

enum { FLOW_CALLS = 32, FLOW_KEYS = 8, FLOW_MAX = 1 << 20 };

static const int64_t flow_patience_ns = 60 * MR_NS_PER_S;

static const struct mr_redis_script flow_scripts[] = {
    {.name = "flow",
     .text = "redis.call('INCR', KEYS[2]) return redis.call('SADD', KEYS[1], ARGV[1])"},
};

/* What is known of a call. */
enum flow_end { FLOW_NONE, FLOW_DONE, FLOW_DOUBT, FLOW_REFUSED };

struct flow_call {
    struct mr_redis_call call;
    struct flow *flow;
    uint32_t number;
    char set[16], count[16], text[16];
};

struct flow {
    struct mr_redis *redis;
    bool durable;
    struct mr_msg begin;
    struct flow_call calls[FLOW_CALLS];
    uint8_t *ends;            /* enum flow_end, by number */
    uint32_t numbers;         /* given so far; the loop's */
    uint32_t in_flight;       /* the loop's */
    _Atomic uint32_t done;    /* answered with success */
    _Atomic uint32_t strange; /* answered twice, or by a script that had run before */
    _Atomic bool stop;
    struct mr_event over;
};

static inline void flow_send(struct flow_call *fc);

static inline void flow_answered(struct mr_redis_call *call, enum mr_err err,
                                 const struct mr_reply *reply)
{
    struct flow_call *fc = mr_container(call, struct flow_call, call);
    struct flow *flow = fc->flow;
    if (flow->ends[fc->number] != FLOW_NONE || (err == MR_OK && mr_reply_int(reply, 0) != 1))
        atomic_fetch_add(&flow->strange, 1);
    flow->ends[fc->number] = err == MR_OK ? FLOW_DONE : call->doubt ? FLOW_DOUBT : FLOW_REFUSED;
    if (err == MR_OK)
        atomic_fetch_add(&flow->done, 1);
    if (err == MR_FAILED || err == MR_DENIED)
        (void)fprintf(stderr, "call %u: %.*s\n", fc->number, (int)reply->text.len,
                      (const char *)reply->text.data);
    flow->in_flight--;
    if (!atomic_load(&flow->stop) && err != MR_CLOSED && flow->numbers < FLOW_MAX)
        flow_send(fc);
    else if (flow->in_flight == 0)
        mr_event_set(&flow->over);
}

static inline void flow_send(struct flow_call *fc)
{
    struct flow *flow = fc->flow;
    fc->number = flow->numbers++;
    flow->in_flight++;
    (void)snprintf(fc->set, sizeof fc->set, "{%u}:set", fc->number % FLOW_KEYS);
    (void)snprintf(fc->count, sizeof fc->count, "{%u}:count", fc->number % FLOW_KEYS);
    (void)snprintf(fc->text, sizeof fc->text, "%u", fc->number);
    struct mr_slice keys[] = {mr_slice_str(fc->set), mr_slice_str(fc->count)};
    struct mr_slice args[] = {mr_slice_str(fc->text)};
    fc->call.answered = flow_answered;
    fc->call.durable = flow->durable;
    mr_redis_eval(flow->redis, &fc->call, 0, keys, 2, args, 1);
}

static inline void flow_begin(struct mr_msg *msg, void *receiver)
{
    (void)receiver;
    struct flow *flow = mr_container(msg, struct flow, begin);
    for (size_t i = 0; i < FLOW_CALLS; i++) {
        flow->calls[i].flow = flow;
        flow_send(&flow->calls[i]);
    }
}

/* redis was made with flow_scripts. */
static inline struct flow *flow_start(struct mr_redis *redis, bool durable)
{
    struct flow *flow = calloc(1, sizeof *flow);
    mr_assert(flow != NULL);
    flow->ends = calloc(FLOW_MAX, 1);
    mr_assert(flow->ends != NULL);
    flow->redis = redis;
    flow->durable = durable;
    flow->begin.deliver = flow_begin;
    mr_event_init(&flow->over);
    mr_redis_post(redis, &flow->begin);
    return flow;
}

/* Waits until n more calls were answered with success. */
static inline void flow_go_on(struct flow *flow, uint32_t n)
{
    uint32_t until = atomic_load(&flow->done) + n;
    struct mr_event never;
    mr_event_init(&never);
    for (int i = 0; atomic_load(&flow->done) < until; i++) {
        if (i > 60000) {
            (void)fprintf(stderr, "the flow stands still at %u: %s\n", atomic_load(&flow->done),
                          mr_redis_why(flow->redis));
            exit(EXIT_FAILURE);
        }
        (void)mr_event_wait(&never, MR_NS_PER_MS);
    }
}

/* No more calls; all are answered afterwards. */
static inline void flow_stop(struct flow *flow)
{
    atomic_store(&flow->stop, true);
    mr_assert(mr_event_wait(&flow->over, flow_patience_ns));
}

struct flow_sum {
    uint32_t sent, done, doubtful, refused;
    uint32_t lost; /* answered with success, and not there */
    uint32_t refused_but_there;
    uint32_t doubled; /* carried out more than once */
    uint32_t strange;
};

/* Asks the servers what there is. */
static inline struct flow_sum flow_sum(struct flow *flow, struct redis_rig *rig, bool cluster)
{
    struct flow_sum sum = {.sent = flow->numbers, .strange = atomic_load(&flow->strange)};
    bool *there = calloc(FLOW_MAX, sizeof *there);
    mr_assert(there != NULL);
    for (unsigned k = 0; k < FLOW_KEYS; k++) {
        char set[16], count[16];
        int64_t members = 0;
        (void)snprintf(set, sizeof set, "{%u}:set", k);
        (void)snprintf(count, sizeof count, "{%u}:count", k);
        struct redis_rig_server *at =
            cluster ? redis_rig_owner(rig, redis_slot(mr_slice_str(set))) : redis_rig_primary(rig);
        const char *text = RIG(at, "SMEMBERS", set);
        for (char *end; *text != '\0'; text = *end == '\n' ? end + 1 : end, members++)
            there[strtoul(text, &end, 10)] = true;
        int64_t counted = strtoll(RIG(at, "GET", count), NULL, 10);
        sum.doubled += (uint32_t)(counted - members);
    }
    for (uint32_t i = 0; i < flow->numbers; i++) {
        sum.done += flow->ends[i] == FLOW_DONE;
        sum.doubtful += flow->ends[i] == FLOW_DOUBT;
        sum.refused += flow->ends[i] == FLOW_REFUSED;
        sum.lost += flow->ends[i] == FLOW_DONE && !there[i];
        sum.refused_but_there += flow->ends[i] == FLOW_REFUSED && there[i];
    }
    free(there);
    return sum;
}

static inline void flow_free(struct flow *flow)
{
    free(flow->ends);
    free(flow);
}

/* What a flow is sent over. */
static inline struct mr_redis *flow_open(struct redis_rig *rig, uint32_t wait_replicas)
{
    struct mr_redis_options options = {.url = redis_rig_url(rig),
                                       .scripts = flow_scripts,
                                       .scripts_n = 1,
                                       .wait_replicas = wait_replicas,
                                       .wait_ms = 5000,
                                       .away_ms = 30000};
    struct mr_redis *redis = NULL;
    struct mr_detail detail = {.text = ""};
    if (mr_redis_new("test", &options, &redis, &detail) != MR_OK)
        fail_msg("%s", detail.text);
    return redis;
}

/* Nothing that was sent came back strange, or was carried out twice. */
static inline struct flow_sum flow_end(struct flow *flow, struct redis_rig *rig, bool cluster)
{
    flow_stop(flow);
    struct flow_sum sum = flow_sum(flow, rig, cluster);
    print_message("%u calls: %u done, %u doubtful, %u refused; %u lost\n", sum.sent, sum.done,
                  sum.doubtful, sum.refused, sum.lost);
    assert_int_equal(sum.strange, 0);
    assert_int_equal(sum.doubled, 0);
    flow_free(flow);
    return sum;
}

#endif
