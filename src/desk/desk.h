/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A service's own thread, and what it lives on: messages that others send it, timers of its wheel, and errands, which are
 * requests to the broker and to the store whose answers come back to it as messages. All state of the service belongs to this
 * thread. A turn is: messages, then the wheel, then what the service does in every turn. Told to stop, the thread
 * goes on until nothing is under way any more.
 */
#ifndef MR_DESK_DESK_H
#define MR_DESK_DESK_H

#include <pthread.h>
#include <stdatomic.h>

#include "base/chan.h"
#include "base/clock.h"
#include "broker/broker.h"
#include "store/store.h"
#include "wheel/wheel.h"

struct mr_desk_options {
    struct mr_broker *broker;
    struct mr_store *store;
    struct mr_clock *clock;
    const char *node;   /* for the owner's name; or NULL */
    const char *thread; /* its name */
    void *service;      /* what messages are delivered to, and what timers and these are given */
    void (*heard)(void *service); /* behind the messages of a turn, before its timers; or NULL */
    void (*turn)(void *service);
    int64_t (*rest_ns)(const void *service); /* how long it may wait if nothing happens */
    void (*stop)(void *service);             /* once; stopping is set */
};

/* Memory of the service's. Fields are read on its thread, and set by desk.c alone. */
struct mr_desk {
    struct mr_desk_options options;
    struct mr_broker *broker;
    struct mr_store *store;
    struct mr_clock *clock;
    char owner[MR_STORE_OWNER_MAX + 1]; /* of leases: of another life it is another one */
    bool stopping;
    size_t under_way; /* errands, and what is held */
    struct mr_wheel *wheel;
    mr_mono base; /* tick 0 */
    struct mr_chan inbox;
    _Atomic uint32_t answering; /* threads that are sending to it what they were asked */
    pthread_t thread;
    struct mr_msg stop_msg;
};

/* Zeroed memory is fine for done, too. */
MR_MUST_USE enum mr_err mr_desk_init(struct mr_desk *desk, const struct mr_desk_options *options);
void mr_desk_done(struct mr_desk *desk);
MR_MUST_USE enum mr_err mr_desk_start(struct mr_desk *desk);
/* Tells it to stop, waits until nothing is under way, and until whoever sent to it is through. */
void mr_desk_stop(struct mr_desk *desk);

/* Thread: any, also one that may outlast the desk. */
void mr_desk_send(struct mr_desk *desk, struct mr_msg *msg);
/* Something that is no errand is under way, and comes back by a message; it is back. */
void mr_desk_hold(struct mr_desk *desk);
void mr_desk_release(struct mr_desk *desk);

/* The timer fires, never early: after so long, or when it is that late. */
void mr_desk_after(struct mr_desk *desk, struct mr_timer *timer, int64_t ms);
void mr_desk_at(struct mr_desk *desk, struct mr_timer *timer, mr_mono at);
void mr_desk_cancel(struct mr_desk *desk, struct mr_timer *timer);

/* The head of everything that is under way. */
struct mr_errand {
    struct mr_msg msg;
    struct mr_desk *desk;
    void *of;            /* these two are for whoever makes it: whose it is, ... */
    uint64_t generation; /* ... and of which life of that */
    void (*done)(struct mr_errand *errand); /* on the desk's thread; frees it */
};

/* Submits. The request is the errand's until done is called, which is always behind this call. */
void mr_errand_store(struct mr_errand *errand, struct mr_store_req *req);
void mr_errand_broker(struct mr_errand *errand, struct mr_req *req);

#endif
