/* SPDX-License-Identifier: Apache-2.0 */
#include "desk/desk.h"

#include <stdio.h>

#include "base/id.h"
#include "base/rand.h"

/* ---- messages and errands -------------------------------------------------------------------- */

void mr_desk_send(struct mr_desk *desk, struct mr_msg *msg)
{
    /* It may have ended before this returns, but is not freed before. */
    atomic_fetch_add(&desk->answering, 1);
    mr_chan_send(&desk->inbox, msg);
    atomic_fetch_sub(&desk->answering, 1);
}

void mr_desk_hold(struct mr_desk *desk)
{
    desk->under_way++;
}

void mr_desk_release(struct mr_desk *desk)
{
    mr_assert(desk->under_way > 0);
    desk->under_way--;
}

static void errand_deliver(struct mr_msg *msg, void *receiver)
{
    struct mr_errand *errand = mr_container(msg, struct mr_errand, msg);
    (void)receiver;
    mr_desk_release(errand->desk);
    errand->done(errand);
}

static void errand_back(struct mr_errand *errand)
{
    mr_desk_send(errand->desk, &errand->msg);
}

static void store_done(struct mr_store_req *req)
{
    errand_back(req->arg);
}

static void broker_done(struct mr_req *req)
{
    errand_back(req->arg);
}

static void errand_begin(struct mr_errand *errand)
{
    errand->msg.deliver = errand_deliver;
    mr_desk_hold(errand->desk);
}

void mr_errand_store(struct mr_errand *errand, struct mr_store_req *req)
{
    errand_begin(errand);
    req->done = store_done;
    req->arg = errand;
    mr_store_submit(errand->desk->store, req);
}

void mr_errand_broker(struct mr_errand *errand, struct mr_req *req)
{
    errand_begin(errand);
    req->done = broker_done;
    req->arg = errand;
    mr_broker_submit(errand->desk->broker, req);
}

/* ---- time ------------------------------------------------------------------------------------ */

static uint64_t tick_now(const struct mr_desk *desk)
{
    return (uint64_t)((mr_mono_now(desk->clock).ns - desk->base.ns) / MR_NS_PER_MS);
}

void mr_desk_at(struct mr_desk *desk, struct mr_timer *timer, mr_mono at)
{
    int64_t ns = at.ns - desk->base.ns;
    mr_wheel_start(desk->wheel, timer, ns > 0 ? (uint64_t)((ns - 1) / MR_NS_PER_MS + 1) : 0);
}

void mr_desk_after(struct mr_desk *desk, struct mr_timer *timer, int64_t ms)
{
    mr_desk_at(desk, timer, mr_mono_add_ms(mr_mono_now(desk->clock), ms));
}

void mr_desk_cancel(struct mr_desk *desk, struct mr_timer *timer)
{
    mr_wheel_stop(desk->wheel, timer);
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void turn(struct mr_desk *desk)
{
    const struct mr_desk_options *options = &desk->options;
    struct mr_msg *msg = mr_chan_take_all(&desk->inbox);
    while (msg != NULL) {
        struct mr_msg *next = msg->next;
        msg->deliver(msg, options->service);
        msg = next;
    }
    if (options->heard != NULL)
        options->heard(options->service);
    mr_wheel_advance(desk->wheel, tick_now(desk), options->service);
    options->turn(options->service);
}

static int64_t wait_ns(const struct mr_desk *desk)
{
    uint64_t next = mr_wheel_next(desk->wheel);
    int64_t max_ns = desk->options.rest_ns(desk->options.service);
    if (next >= UINT64_MAX / MR_NS_PER_MS)
        return max_ns;
    int64_t ns = desk->base.ns + (int64_t)next * MR_NS_PER_MS - mr_mono_now(desk->clock).ns;
    return ns > max_ns ? max_ns : ns > 0 ? ns : 0;
}

static bool goes_on(const struct mr_desk *desk)
{
    return !desk->stopping || desk->under_way > 0;
}

static void *run(void *arg)
{
    struct mr_desk *desk = arg;
    while (goes_on(desk)) {
        turn(desk);
        if (goes_on(desk))
            mr_chan_wait(&desk->inbox, wait_ns(desk));
    }
    return NULL;
}

static void stop_deliver(struct mr_msg *msg, void *receiver)
{
    struct mr_desk *desk = mr_container(msg, struct mr_desk, stop_msg);
    desk->stopping = true;
    desk->options.stop(receiver);
}

/* ---- life ------------------------------------------------------------------------------------ */

/* Two servers of one machine, and two lives of one server, are different owners. */
static void name_owner(struct mr_desk *desk)
{
    const char *node = desk->options.node != NULL ? desk->options.node : "";
    struct mr_uuid uuid;
    char text[MR_UUID_TEXT_LEN + 1];
    mr_uuid_make(&uuid, mr_wall_now(desk->clock), mr_rand_of_thread());
    mr_uuid_format(&uuid, text);
    snprintf(desk->owner, sizeof desk->owner, "%.*s%s%s", (int)MR_NAME_MAX, node,
             node[0] != '\0' ? "/" : "", text);
}

enum mr_err mr_desk_init(struct mr_desk *desk, const struct mr_desk_options *options)
{
    *desk = (struct mr_desk){
        .options = *options,
        .broker = options->broker,
        .store = options->store,
        .clock = options->clock != NULL ? options->clock : mr_clock_system(),
        .stop_msg.deliver = stop_deliver,
    };
    mr_chan_init(&desk->inbox);
    desk->base = mr_mono_now(desk->clock);
    name_owner(desk);
    return mr_wheel_new(0, &desk->wheel);
}

void mr_desk_done(struct mr_desk *desk)
{
    mr_wheel_free(desk->wheel);
    desk->wheel = NULL;
}

enum mr_err mr_desk_start(struct mr_desk *desk)
{
    return mr_thread_start(&desk->thread, desk->options.thread, run, desk);
}

void mr_desk_stop(struct mr_desk *desk)
{
    struct mr_event never;
    mr_event_init(&never);
    mr_chan_send(&desk->inbox, &desk->stop_msg);
    mr_thread_join(desk->thread);
    turn(desk);                               /* what came too late */
    while (atomic_load(&desk->answering) > 0) /* what they said was heard before they are through */
        (void)mr_event_wait(&never, MR_NS_PER_MS);
}
