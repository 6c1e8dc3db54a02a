/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages to the server's services: whatever they say, each call ends, and not by a fault of the
 * server's. The broker behind it answers at once, well or badly as the input says.
 *
 * An input: a line that ends the path of a method (of no method: its first byte chooses one), how the
 * broker answers, then messages, each behind its length in two bytes.
 */
#include <stdio.h>
#include <stdlib.h>

#include "api/api.h"
#include "fuzz/fuzz.h"

enum { MESSAGES_MAX = 8, LASTS_MS = 5, ENDS_MS = 20 * 1000 };

/* ---- the broker ----------------------------------------------------------------------------- */

static _Atomic int broker_err;

static struct mr_task some_task(struct mr_slice id)
{
    return (struct mr_task){.id = id,
                            .queue = MR_SLICE_LIT("default"),
                            .type = MR_SLICE_LIT("type"),
                            .payload = MR_SLICE_LIT("payload"),
                            .state = MR_PENDING};
}

/* What goes with MR_OK. */
static void fill(struct mr_req *req)
{
    if (req->op == MR_OP_ENQUEUE) {
        struct mr_req_enqueue *enqueue = mr_container(req, struct mr_req_enqueue, req);
        for (size_t i = 0; i < enqueue->n; i++)
            enqueue->results[i] = (struct mr_enqueue_result){.err = MR_OK};
    } else if (req->op == MR_OP_NODE_OPEN) {
        mr_container(req, struct mr_req_node_open, req)->node = 1;
    } else if (req->op == MR_OP_TAKE) {
        req->err = MR_EMPTY;
    } else if (req->op == MR_OP_FINISH) {
        struct mr_req_finish *finish = mr_container(req, struct mr_req_finish, req);
        for (size_t i = 0; i < finish->n; i++)
            finish->errs[i] = MR_OK;
    } else if (req->op == MR_OP_CONTROL) {
        struct mr_req_control *control = mr_container(req, struct mr_req_control, req);
        for (size_t i = 0; i < control->n; i++)
            control->errs[i] = MR_OK;
    } else if (req->op == MR_OP_GET) {
        struct mr_req_get *get = mr_container(req, struct mr_req_get, req);
        get->task = some_task(get->id);
    } else if (req->op == MR_OP_AWAIT) {
        struct mr_req_await *await = mr_container(req, struct mr_req_await, req);
        await->task = some_task(await->id);
    }
}

static void broker_submit(struct mr_broker *broker, struct mr_req *req)
{
    (void)broker;
    int err = atomic_load(&broker_err);
    /* A node is always welcome: what comes after it is of interest. */
    bool good = err == MR_OK || req->op == MR_OP_NODE_OPEN || req->op == MR_OP_NODE_CLOSE ||
                req->op == MR_OP_UNAWAIT;
    if (good)
        fill(req);
    else
        mr_req_answer(req, (enum mr_err)err);
    if (good)
        req->done(req);
}

static void broker_begun(struct mr_broker *broker, uint32_t slot, uint64_t epoch)
{
    (void)broker, (void)slot, (void)epoch;
}

static const struct mr_broker_ops broker_ops = {.submit = broker_submit, .begun = broker_begun};

/* ---- server and client, once for all inputs ------------------------------------------------- */

static struct {
    struct mr_broker broker;
    struct mr_rpc *server, *client;
    struct mr_api *api;
    struct mr_channel *channel;
    struct mr_event up;
    const struct mr_rpc_method *methods;
    size_t methods_n;
} rig = {.broker.ops = &broker_ops};

static void changed(struct mr_channel *channel, bool up, const char *why, void *arg)
{
    (void)channel, (void)why, (void)arg;
    if (up)
        mr_event_set(&rig.up);
}

static void start(void)
{
    char address[32];
    uint16_t port;
    mr_assert(mr_rpc_new("server", NULL, &rig.server) == MR_OK);
    mr_assert(mr_rpc_new("client", NULL, &rig.client) == MR_OK);
    struct mr_api_options options = {.broker = &rig.broker, .rpc = rig.server, .grace_ms = 1};
    mr_assert(mr_api_new(&options, &rig.api) == MR_OK);
    struct mr_rpc_service service = {.address = "127.0.0.1:0", .arg = rig.api};
    rig.methods = service.methods = mr_api_methods(&service.methods_n);
    rig.methods_n = service.methods_n;
    mr_assert(mr_rpc_listen(rig.server, &service, &port, NULL) == MR_OK);
    snprintf(address, sizeof address, "127.0.0.1:%u", (unsigned)port);
    mr_event_init(&rig.up);
    struct mr_channel_options channel = {.address = address, .changed = changed};
    mr_assert(mr_channel_new(rig.client, &channel, &rig.channel, NULL) == MR_OK);
    mr_assert(mr_event_wait(&rig.up, ENDS_MS * MR_NS_PER_MS));
}

/* ---- a call --------------------------------------------------------------------------------- */

struct talk {
    struct mr_msg msg;
    struct fuzz_in in;
    const char *path;
    struct mr_event over;
    int status;
};

static void on_message(struct mr_call *call, struct mr_slice bytes)
{
    (void)call, (void)bytes;
}

static void on_closed(struct mr_call *call, int status, struct mr_slice text)
{
    struct talk *talk = mr_call_data(call);
    (void)text;
    talk->status = status;
    mr_event_set(&talk->over);
}

static const struct mr_call_ops ops = {.message = on_message, .closed = on_closed};

static void begin(struct mr_msg *msg, void *receiver)
{
    struct talk *talk = mr_container(msg, struct talk, msg);
    struct mr_call *call;
    (void)receiver;
    bool lasts = strstr(talk->path, "/Wa") != NULL; /* Wait, Watch */
    mr_assert(mr_channel_call(rig.channel, talk->path, lasts ? LASTS_MS : ENDS_MS, &ops, talk,
                              &call) == MR_OK);
    for (int i = 0; i < MESSAGES_MAX && (i == 0 || talk->in.left > 0); i++) {
        size_t len = fuzz_u8(&talk->in);
        len = len << 8 | fuzz_u8(&talk->in);
        mr_assert(mr_call_send(call, fuzz_bytes(&talk->in, len)) == MR_OK);
    }
    mr_call_half_close(call);
}

static const char *path_of(struct fuzz_in *in)
{
    const uint8_t *end = in->left > 0 ? memchr(in->at, '\n', in->left) : NULL;
    struct mr_slice line = fuzz_bytes(in, end != NULL ? (size_t)(end - in->at) : 1);
    (void)fuzz_bytes(in, end != NULL);
    for (size_t i = 0; i < rig.methods_n; i++) {
        struct mr_slice path = mr_slice_str(rig.methods[i].path);
        if (line.len > 0 && line.len < path.len &&
            memcmp((const char *)path.data + path.len - line.len, line.data, line.len) == 0)
            return rig.methods[i].path;
    }
    uint8_t number = line.len > 0 ? *(const uint8_t *)line.data : 0;
    return rig.methods[number % rig.methods_n].path;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct talk talk = {.msg.deliver = begin, .in = {data, size}};
    if (rig.server == NULL)
        start();
    talk.path = path_of(&talk.in);
    atomic_store(&broker_err, fuzz_u8(&talk.in) % MR_ERR_COUNT);
    bool own_fault = atomic_load(&broker_err) != MR_OK; /* the broker may have said so */
    mr_event_init(&talk.over);
    mr_rpc_post(rig.client, &talk.msg);
    mr_assert(mr_event_wait(&talk.over, 2 * ENDS_MS * MR_NS_PER_MS));
    mr_assert(talk.status != MR_RPC_UNAVAILABLE || own_fault);
    mr_assert(talk.status != MR_RPC_INTERNAL || own_fault);
    mr_assert(talk.status != MR_RPC_DEADLINE || own_fault || strstr(talk.path, "/Wa") != NULL);
    return 0;
}
