/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The standard health service. It serves while it is not stopping and the broker answers and has
 * not failed; the services of timers and jobs, while their store is well, too. While somebody watches, the broker is asked
 * once a second.
 */
#include <stdlib.h>

#include "api/internal.h"
#include "grpc/health/v1/health.pb-c.h"
#include "timer/service.h"

typedef Grpc__Health__V1__HealthCheckResponse__ServingStatus serving_status;
#define STATUS(name) GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__SERVING_STATUS__##name

static bool is_service(const char *name)
{
    struct mr_slice service;
    char text[SERVICE_NAME_MAX];
    if (name[0] == '\0')
        return true;
    for (size_t i = 0; (service = descriptor_service(i, text)).len > 0; i++)
        if (mr_slice_equal(service, mr_slice_str(name)))
            return true;
    return false;
}

static bool is_serving(const struct mr_api *api, const struct mr_req_stats *req)
{
    return !api->stopping && req->req.err == MR_OK && !req->stats.failed;
}

static bool timers_serve(const struct mr_api *api)
{
    struct mr_timer_health health = {0};
    if (api->options.timers == NULL)
        return false;
    mr_timer_service_health(api->options.timers, &health);
    return health.store == MR_OK;
}

static bool jobs_serve(const struct mr_api *api)
{
    struct mr_job_health health = {0};
    if (api->options.jobs == NULL)
        return false;
    mr_job_service_health(api->options.jobs, &health);
    return health.store == MR_OK;
}

/* What else a service needs; NULL: nothing. */
typedef bool serves(const struct mr_api *api);

static serves *serves_of(const char *service)
{
    if (strcmp(service, "millrace.v1.Timers") == 0)
        return timers_serve;
    return strcmp(service, "millrace.v1.Jobs") == 0 ? jobs_serve : NULL;
}

/* ---- once ----------------------------------------------------------------------------------- */

static void check_back(struct errand *errand)
{
    struct unary *u = mr_container(errand, struct unary, errand);
    Grpc__Health__V1__HealthCheckResponse out = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    const Grpc__Health__V1__HealthCheckRequest *in = (const void *)u->message;
    serves *also = serves_of(in->service);
    bool serving = is_serving(u->api, &errand->req.stats) && (also == NULL || also(u->api));
    out.status = serving ? STATUS(SERVING) : STATUS(NOT_SERVING);
    unary_send(u, &out.base);
    unary_idle(u);
}

void health_check(struct unary *u)
{
    const Grpc__Health__V1__HealthCheckRequest *in = (const void *)u->message;
    if (!is_service(in->service)) {
        unary_fail(u, MR_NOT_FOUND, "no service %.*s", MR_NAME_MAX, in->service);
        return;
    }
    u->busy = true;
    errand_submit(&u->errand, u->api, MR_OP_STATS, check_back);
}

/* ---- for as long as one likes --------------------------------------------------------------- */

struct watch {
    struct stream head;
    struct mr_link link; /* in the api's watchers, once it has asked */
    struct valve valve;  /* nothing is read behind its question */
    bool known;          /* it asked for a service that is here */
    serves *also;        /* what that needs, too; NULL: nothing */
    serving_status told;
};

static void watch_tell(struct watch *watch, serving_status status)
{
    Grpc__Health__V1__HealthCheckResponse out = GRPC__HEALTH__V1__HEALTH_CHECK_RESPONSE__INIT;
    out.status = watch->known ? status : STATUS(SERVICE_UNKNOWN);
    if (out.status == watch->told)
        return;
    watch->told = out.status;
    if (stream_send(watch->head.call, &out.base) == MR_NOMEM)
        call_end(watch->head.call, MR_NOMEM, (struct mr_slice){0});
}

void health_tell(struct mr_api *api, bool serving)
{
    for (struct mr_link *link = api->watchers.next; link != &api->watchers; link = link->next) {
        struct watch *watch = mr_container(link, struct watch, link);
        bool well = serving && (watch->also == NULL || watch->also(api));
        watch_tell(watch, well ? STATUS(SERVING) : STATUS(NOT_SERVING));
    }
}

static void look_back(struct errand *errand)
{
    struct mr_api *api = errand->api;
    struct mr_rpc *rpc = api->options.rpc;
    api->health_asked = false;
    health_tell(api, is_serving(api, &errand->req.stats));
    if (!mr_list_empty(&api->watchers) && !api->stopping)
        mr_rpc_timer_start(rpc, &api->health_timer,
                           mr_mono_add_ms(mr_rpc_now(rpc), HEALTH_LOOK_MS));
    errand_clear(errand);
    free(errand);
}

void health_look(struct mr_timer *timer, void *arg)
{
    (void)arg;
    struct mr_api *api = mr_container(timer, struct mr_api, health_timer);
    struct errand *errand = api->health_asked ? NULL : calloc(1, sizeof *errand);
    if (errand == NULL)
        return;
    api->health_asked = true;
    errand_submit(errand, api, MR_OP_STATS, look_back);
}

static void watch_message(struct mr_call *call, struct mr_slice bytes)
{
    struct watch *watch = mr_call_data(call);
    struct mr_api *api = watch->head.api;
    struct mr_arena arena = {0};
    ProtobufCMessage *message;
    if (decode_small(&grpc__health__v1__health_check_request__descriptor, bytes, &arena,
                     &message) != MR_OK) {
        call_end(call, MR_INVALID, MR_SLICE_LIT("the message cannot be read"));
    } else {
        const Grpc__Health__V1__HealthCheckRequest *in = (const void *)message;
        watch->known = is_service(in->service);
        watch->also = serves_of(in->service);
        valve_hold(&watch->valve);
        mr_list_push_back(&api->watchers, &watch->link);
        if (!watch->known)
            watch_tell(watch, STATUS(SERVICE_UNKNOWN));
        health_look(&api->health_timer, api->options.rpc);
    }
    mr_arena_done(&arena);
}

static void watch_half_closed(struct mr_call *call)
{
    const struct watch *watch = mr_call_data(call);
    if (mr_list_empty(&watch->link))
        call_end(call, MR_INVALID, MR_SLICE_LIT("no message"));
}

static void watch_closed(struct mr_call *call, int status, struct mr_slice text)
{
    struct watch *watch = mr_call_data(call);
    (void)status, (void)text;
    valve_close(&watch->valve);
    mr_list_remove(&watch->link);
    stream_close(&watch->head);
    free(watch);
}

static const struct mr_call_ops watch_ops = {
    .message = watch_message,
    .half_closed = watch_half_closed,
    .closed = watch_closed,
};

void health_watch_open(struct mr_api *api, struct mr_call *call, const struct mr_token *token)
{
    struct watch *watch = calloc(1, sizeof *watch);
    if (watch == NULL) {
        call_end(call, MR_NOMEM, (struct mr_slice){0});
        return;
    }
    mr_list_init(&watch->link);
    mr_call_set(call, &watch_ops, watch);
    valve_open(&watch->valve, NULL, call);
    stream_open(&watch->head, api, call, token, stream_end_now);
}
