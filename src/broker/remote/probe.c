/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whoever names a namespace is to hear at once that the server has another one, not when a task is not
 * found there. Any call would tell; this one is for everybody.
 */
#include "broker/remote/internal.h"

struct probe {
    struct mr_msg msg;
    struct remote *remote;
    struct mr_detail *detail;
    enum mr_err err;
    struct mr_event done;
};

static void on_message(struct mr_call *call, struct mr_slice bytes)
{
    (void)call, (void)bytes;
}

static void on_closed(struct mr_call *call, int status, struct mr_slice text)
{
    struct probe *probe = mr_call_data(call);
    probe->err = call_err(call, status);
    if (probe->err != MR_OK)
        mr_detail_set(probe->detail, "%.*s", (int)text.len,
                      text.len > 0 ? (const char *)text.data : "");
    mr_event_set(&probe->done);
}

static void begin(struct mr_msg *msg, void *receiver)
{
    static const struct mr_call_ops ops = {.message = on_message, .closed = on_closed};
    struct probe *probe = mr_container(msg, struct probe, msg);
    struct remote *remote = probe->remote;
    struct mr_call *call;
    (void)receiver;
    probe->err = mr_channel_call(remote->channel, "/grpc.health.v1.Health/Check", remote->answer_ms,
                                 &ops, probe, &call);
    if (probe->err != MR_OK)
        mr_event_set(&probe->done);
    else if (mr_call_send(call, (struct mr_slice){0}) == MR_OK)
        mr_call_half_close(call);
    else
        mr_call_cancel(call);
}

enum mr_err remote_probe(struct remote *remote, struct mr_detail *detail)
{
    struct mr_detail unwanted;
    struct probe probe = {
        .msg.deliver = begin, .remote = remote, .detail = detail != NULL ? detail : &unwanted};
    mr_event_init(&probe.done);
    mr_rpc_post(remote->rpc, &probe.msg);
    mr_event_wait(&probe.done, INT64_MAX);
    return probe.err;
}
