/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on timers: through the client's producer. Thread: any. */
#include <stdlib.h>

#include "client/producer.h"
#include "timer/service.h"

enum { TRIES = 8 }; /* of a pause or a resume, while others change the timer */

/* ---- the producer --------------------------------------------------------------------------- */

/* Of a Redis: its operations are queued here, and applied by a server. */
static enum mr_err own_door(struct mr_client *client, struct mr_timer_door **ret_door)
{
    struct mr_timer_door_options options = {.broker = client->broker,
                                            .payload_max = client->payload_max};
    if (client->zones == NULL)
        MR_TRY(mr_zones_new(mr_fs_system(), NULL, &client->zones));
    options.zones = client->zones;
    if (client->door == NULL)
        MR_TRY(mr_timer_door_new(&options, &client->door));
    *ret_door = client->door;
    return MR_OK;
}

/* Lock. */
static enum mr_err make_producer(struct mr_client *client, struct mr_timer_service *service)
{
    struct mr_producer_options options = {
        .many = client->is_many ? client->broker : NULL,
        .servers = &client->broker,
        .servers_n = client->is_many ? 0 : 1,
        .affinity = client->affinity,
        .answer_ms = client->answer_ms,
        .pending_max = client->timers_max,
    };
    if (service != NULL)
        options.door = mr_timer_service_door(service);
    else if (client->is_redis)
        MR_TRY(own_door(client, &options.door));
    return mr_producer_new(&options, &client->producer);
}

static enum mr_err producer_of(struct mr_client *client, struct mr_producer **ret_producer)
{
    struct mr_timer_service *service = NULL;
    enum mr_err err = mr_client_timers(client, MR_TIMERS_FIRE, &service, NULL);
    if (err != MR_OK)
        return err;
    mr_lock_enter(&client->timers_lock);
    if (client->producer == NULL)
        err = make_producer(client, service);
    if (err == MR_OK)
        *ret_producer = client->producer;
    mr_lock_leave(&client->timers_lock);
    return err;
}

/* ---- sending -------------------------------------------------------------------------------- */

enum mr_err mr_timer_send_async(struct mr_client *client, const struct mr_timer_op *ops, size_t n,
                                struct mr_timer_result *ret_ids, mr_timer_done *done, void *arg)
{
    struct mr_producer *producer;
    if (done == NULL)
        return MR_INVALID;
    MR_TRY(producer_of(client, &producer));
    return mr_producer_send(producer, ops, n, MR_TIMER_DURABLE, ret_ids, done, arg);
}

struct waiting {
    struct mr_event answered;
    enum mr_err err;
    struct mr_timer_result *results;
};

static void answered(enum mr_err err, const struct mr_timer_result *results, size_t n, void *arg)
{
    struct waiting *waiting = arg;
    memcpy(waiting->results, results, n * sizeof *results);
    waiting->err = err;
    mr_event_set(&waiting->answered);
}

enum mr_err mr_timer_send(struct mr_client *client, const struct mr_timer_op *ops, size_t n,
                          enum mr_timer_wait wait, struct mr_timer_result *ret_results)
{
    struct mr_producer *producer;
    struct waiting waiting = {.results = ret_results};
    if (n == 0)
        return MR_OK;
    mr_event_init(&waiting.answered);
    MR_TRY(producer_of(client, &producer));
    MR_TRY(mr_producer_send(producer, ops, n, wait, NULL, answered, &waiting));
    mr_event_wait(&waiting.answered, INT64_MAX);
    return waiting.err;
}

/* ---- one operation -------------------------------------------------------------------------- */

static enum mr_err send_one(struct mr_client *client, const struct mr_timer_op *op,
                            struct mr_timer_result *ret_result)
{
    struct mr_timer_result result;
    struct mr_timer_result *to = ret_result != NULL ? ret_result : &result;
    *to = (struct mr_timer_result){.err = MR_OK};
    enum mr_err err = mr_timer_send(client, op, 1, MR_TIMER_APPLIED, to);
    if (err != MR_OK)
        to->err = err;
    return to->err;
}

enum mr_err mr_timer_put(struct mr_client *client, const struct mr_timer_options *timer,
                         struct mr_timer_result *ret_result)
{
    return send_one(client, &(struct mr_timer_op){.verb = MR_TIMER_PUT, .timer = timer},
                    ret_result);
}

enum mr_err mr_timer_delete(struct mr_client *client, struct mr_slice app, struct mr_slice name,
                            struct mr_timer_result *ret_result)
{
    struct mr_timer_op op = {.verb = MR_TIMER_DELETE, .app = app, .name = name};
    struct mr_timer_result result;
    struct mr_timer_result *to = ret_result != NULL ? ret_result : &result;
    if (send_one(client, &op, to) != MR_STALE)
        return to->err;
    /* What is there may be of a producer whose clock is ahead of ours: this comes after it. */
    op.if_version = to->version;
    if (send_one(client, &op, to) == MR_CONFLICT)
        to->err = MR_STALE;
    return to->err;
}

enum mr_err mr_timer_run(struct mr_client *client, struct mr_slice app, struct mr_slice name,
                         struct mr_timer_result *ret_result)
{
    struct mr_timer_op op = {.verb = MR_TIMER_RUN, .app = app, .name = name};
    return send_one(client, &op, ret_result);
}

/* An operation has the whole definition; so it is looked at, and put as it was then or not at all. */
static enum mr_err put_paused(struct mr_client *client, struct mr_slice app, struct mr_slice name,
                              bool paused, struct mr_timer_result *ret_result)
{
    struct mr_timer_list *list;
    MR_TRY(mr_timer_get(client, app, name, &list));
    const struct mr_timer_info *info = mr_timer_list_at(list, 0);
    struct mr_timer_options timer = info->timer;
    timer.paused = paused;
    struct mr_timer_op op = {.verb = MR_TIMER_PUT,
                             .timer = &timer,
                             .id = info->id,
                             .created_ms = info->created_ms,
                             .if_version = info->version};
    enum mr_err err = send_one(client, &op, ret_result);
    mr_timer_list_free(list);
    return err;
}

static enum mr_err pause_or_resume(struct mr_client *client, struct mr_slice app,
                                   struct mr_slice name, bool paused,
                                   struct mr_timer_result *ret_result)
{
    enum mr_err err = MR_CONFLICT;
    for (size_t i = 0; i < TRIES && (err == MR_CONFLICT || err == MR_STALE); i++)
        err = put_paused(client, app, name, paused, ret_result);
    return err;
}

enum mr_err mr_timer_pause(struct mr_client *client, struct mr_slice app, struct mr_slice name,
                           struct mr_timer_result *ret_result)
{
    return pause_or_resume(client, app, name, true, ret_result);
}

enum mr_err mr_timer_resume(struct mr_client *client, struct mr_slice app, struct mr_slice name,
                            struct mr_timer_result *ret_result)
{
    return pause_or_resume(client, app, name, false, ret_result);
}
