/* SPDX-License-Identifier: Apache-2.0 */
/* The life of the services. */
#include "api/api.h"

#include <stdlib.h>

#include "api/work.h"

static void set_defaults(struct mr_api_options *options)
{
    struct mr_api_limits *limits = &options->limits;
    if (options->grace_ms == 0)
        options->grace_ms = 5000;
    if (limits->requests_max == 0)
        limits->requests_max = 4096;
    if (limits->bytes_max == 0)
        limits->bytes_max = 16u << 20;
    if (limits->bytes_total == 0)
        limits->bytes_total = 512u << 20;
    if (limits->payload_max == 0)
        limits->payload_max = MR_PAYLOAD_MAX;
}

enum mr_err mr_api_new(const struct mr_api_options *options, struct mr_api **ret_api)
{
    struct mr_api *api = calloc(1, sizeof *api);
    if (api == NULL)
        return MR_NOMEM;
    api->options = *options;
    set_defaults(&api->options);
    for (size_t i = 0; i < CONN_BUCKETS; i++)
        mr_list_init(&api->conns[i]);
    for (size_t i = 0; i < SESSION_BUCKETS; i++)
        mr_list_init(&api->sessions[i]);
    mr_list_init(&api->streams);
    mr_list_init(&api->watchers);
    jobs_feeds_init(api);
    mr_timer_init(&api->conns_timer, conns_sweep);
    mr_timer_init(&api->tokens_timer, tokens_look);
    mr_timer_init(&api->health_timer, health_look);
    mr_event_init(&api->quiet);
    const char *name = options->namespace_ != NULL ? options->namespace_ : "";
    enum mr_err err = mr_rpc_percent_encode(mr_slice_str(name), &api->namespace_);
    if (err != MR_OK) {
        free(api);
        return err;
    }
    *ret_api = api;
    return MR_OK;
}

/* ---- stopping ------------------------------------------------------------------------------- */

struct order {
    struct mr_msg msg;
    struct mr_api *api;
    struct mr_event done;
};

static void give_order(struct mr_api *api, void (*deliver)(struct mr_msg *msg, void *receiver))
{
    struct order order = {.msg.deliver = deliver, .api = api};
    mr_event_init(&order.done);
    mr_rpc_post(api->options.rpc, &order.msg);
    mr_event_wait(&order.done, INT64_MAX);
}

static void begin_stop(struct mr_msg *msg, void *receiver)
{
    (void)receiver;
    struct order *order = mr_container(msg, struct order, msg);
    struct mr_api *api = order->api;
    api->stopping = true;
    health_tell(api, false);
    for (struct mr_link *link = api->streams.next; link != &api->streams; link = link->next) {
        struct stream *stream = mr_container(link, struct stream, link);
        stream->end(stream, STREAM_STOPPING);
    }
    mr_event_set(&order->done);
}

void api_look_quiet(struct mr_api *api)
{
    if (api->stopped && api->errands_n == 0 && api->sessions_n == 0)
        mr_event_set(&api->quiet);
}

static void end_stop(struct mr_msg *msg, void *receiver)
{
    struct order *order = mr_container(msg, struct order, msg);
    struct mr_api *api = order->api;
    api->stopped = true;
    sessions_close_all(api);
    mr_rpc_timer_stop(receiver, &api->conns_timer);
    mr_rpc_timer_stop(receiver, &api->tokens_timer);
    mr_rpc_timer_stop(receiver, &api->health_timer);
    api_look_quiet(api);
    mr_event_set(&order->done);
}

/* The broker's thread has left the function that posted its last answer: it is answering this. */
static void await_broker(struct mr_broker *broker)
{
    struct mr_req_stats req = {.req.op = MR_OP_STATS};
    enum mr_err ignored = mr_broker_call(broker, &req.req);
    (void)ignored;
    mr_req_done(&req.req);
}

void mr_api_stop(struct mr_api *api, int64_t max_ms)
{
    give_order(api, begin_stop);
    mr_rpc_drain(api->options.rpc, max_ms);
    give_order(api, end_stop);
    mr_event_wait(&api->quiet, INT64_MAX);
    mr_exec_thread_free(api->slow);
    mr_exec_thread_free(api->looks);
    api->slow = api->looks = NULL;
    await_broker(api->options.broker);
}

void mr_api_free(struct mr_api *api)
{
    if (api == NULL)
        return;
    mr_assert(api->errands_n == 0 && mr_list_empty(&api->streams));
    conns_free(api);
    mr_buf_done(&api->namespace_);
    free(api);
}
