/* SPDX-License-Identifier: Apache-2.0 */
/* Listeners, the beginning of their calls, and draining. */
#include <stdlib.h>

#include "rpc/internal.h"

enum {
    ACCEPTS_MAX = 64, /* in a turn */
    PAUSE_MS = 100,   /* while there is no descriptor for another connection */
};

/* ---- listening ------------------------------------------------------------------------------ */

/* There are as many connections as there may be: the one that has had no call for longest goes, so
 * that clients who hold many for nothing keep nobody out. False when each has a call. */
static bool make_room(struct mr_rpc *rpc)
{
    struct rpc_conn *idlest = NULL;
    for (struct mr_link *link = rpc->conns.next; link != &rpc->conns; link = link->next) {
        struct rpc_conn *conn = mr_container(link, struct rpc_conn, link);
        bool idle = conn->listener != NULL && conn->calls_n == 0 && !rpc_conn_is_doomed(conn);
        if (idle && (idlest == NULL || conn->idle_since.ns < idlest->idle_since.ns))
            idlest = conn;
    }
    if (idlest == NULL)
        return false;
    rpc_conn_doom(idlest, NGHTTP2_NO_ERROR, "others wait for a connection");
    return true;
}

static void accept_some(struct mr_watch *watch, unsigned events)
{
    (void)events;
    struct rpc_listener *listener = mr_container(watch, struct rpc_listener, watch);
    struct mr_rpc *rpc = listener->rpc;
    for (int i = 0; i < ACCEPTS_MAX; i++) {
        int fd;
        struct mr_addr peer;
        enum mr_err err = mr_net_accept(watch->fd, &fd, &peer);
        if (err == MR_BUSY) {
            mr_loop_change(rpc->loop, watch, MR_LOOP_NONE);
            mr_rpc_timer_start(rpc, &listener->timer, mr_mono_add_ms(rpc->now, PAUSE_MS));
        }
        if (err != MR_OK)
            return;
        bool room = rpc->served_n < rpc->limits.connections_max || make_room(rpc);
        if (!room || rpc_conn_new(rpc, fd, &peer, listener, NULL) != MR_OK)
            mr_net_close(fd);
    }
}

static void accept_again(struct mr_timer *timer, void *arg)
{
    (void)arg;
    struct rpc_listener *listener = mr_container(timer, struct rpc_listener, timer);
    mr_loop_change(listener->rpc->loop, &listener->watch, MR_LOOP_READ);
}

void rpc_listener_close(struct rpc_listener *listener)
{
    if (listener->watch.fd < 0)
        return;
    mr_wheel_stop(listener->rpc->wheel, &listener->timer);
    mr_loop_remove(listener->rpc->loop, &listener->watch);
    mr_net_close(listener->watch.fd);
    listener->watch.fd = -1;
}

void rpc_listener_free(struct rpc_listener *listener)
{
    if (listener->watch.fd >= 0)
        mr_net_close(listener->watch.fd);
    mr_tls_free(listener->tls);
    free(listener);
}

/* The first address of the host that can be had. */
static enum mr_err bind_one(const char *address, int *ret_fd, struct mr_addr *ret_bound,
                            struct mr_detail *detail)
{
    char host[MR_HOST_MAX + 1];
    uint16_t port;
    struct mr_addr addrs[RPC_ADDRS_MAX];
    size_t n;
    enum mr_err err = mr_host_parse(address, host, &port);
    if (err != MR_OK) {
        mr_detail_set(detail, "'%s' is not of the form HOST:PORT", address);
        return err;
    }
    MR_TRY(mr_host_resolve(host, port, MR_RESOLVE_NAMES, addrs, RPC_ADDRS_MAX, &n, detail));
    for (size_t i = 0; i < n; i++) {
        err = mr_net_listen(&addrs[i], ret_fd, ret_bound);
        if (err == MR_OK)
            return MR_OK;
    }
    mr_detail_set(detail, "%s: %s", address, mr_net_listen_text(err));
    return err;
}

/* A listener on its way to the loop; whoever sent it waits. */
struct adding {
    struct mr_msg msg;
    struct mr_event done;
    struct rpc_listener *listener;
    enum mr_err err;
};

static void add_listener(struct mr_msg *msg, void *receiver)
{
    struct mr_rpc *rpc = receiver;
    struct adding *adding = mr_container(msg, struct adding, msg);
    struct rpc_listener *listener = adding->listener;
    adding->err =
        rpc->draining ? MR_CLOSED : mr_loop_add(rpc->loop, &listener->watch, MR_LOOP_READ);
    if (adding->err == MR_OK)
        mr_list_push_back(&rpc->listeners, &listener->link);
    mr_event_set(&adding->done);
}

static enum mr_err start_listener(struct mr_rpc *rpc, struct rpc_listener *listener)
{
    struct adding adding = {.msg.deliver = add_listener, .listener = listener};
    mr_event_init(&adding.done);
    mr_rpc_post(rpc, &adding.msg);
    (void)mr_event_wait(&adding.done, INT64_MAX);
    return adding.err;
}

enum mr_err mr_rpc_listen(struct mr_rpc *rpc, const struct mr_rpc_service *service,
                          uint16_t *ret_port, struct mr_detail *detail)
{
    struct rpc_listener *listener = calloc(1, sizeof *listener);
    if (listener == NULL)
        return MR_NOMEM;
    listener->rpc = rpc;
    listener->methods = service->methods;
    listener->methods_n = service->methods_n;
    listener->arg = service->arg;
    listener->watch = (struct mr_watch){.fd = -1, .ready = accept_some};
    mr_timer_init(&listener->timer, accept_again);
    struct mr_addr bound;
    enum mr_err err = MR_OK;
    if (service->tls != NULL)
        err = rpc_tls_new(service->tls, MR_TLS_SERVER, &listener->tls, detail);
    if (err == MR_OK)
        err = bind_one(service->address, &listener->watch.fd, &bound, detail);
    if (err == MR_OK)
        err = start_listener(rpc, listener);
    if (err != MR_OK)
        rpc_listener_free(listener);
    else if (ret_port != NULL)
        *ret_port = mr_addr_port(&bound);
    return err;
}

/* ---- calls ---------------------------------------------------------------------------------- */

const struct mr_rpc_method *rpc_server_find(const struct rpc_conn *conn, struct mr_slice path)
{
    const struct rpc_listener *listener = conn->listener;
    for (size_t i = 0; i < listener->methods_n; i++) {
        if (mr_slice_equal(path, mr_slice_str(listener->methods[i].path)))
            return &listener->methods[i];
    }
    return NULL;
}

/* What is wrong with the head of a request, NULL: nothing. */
static const char *objection(const struct mr_call *call, int *ret_status)
{
    *ret_status = MR_RPC_UNIMPLEMENTED;
    if (!call->is_post || !call->is_grpc)
        return "not a gRPC call";
    if (call->method == NULL)
        return "no such method";
    if (call->encoding == RPC_ENCODING_UNKNOWN)
        return "messages are packed in a way that is not supported: only gzip is";
    *ret_status = MR_RPC_INVALID;
    return call->timeout_bad ? "bad grpc-timeout" : NULL;
}

void rpc_server_begin(struct mr_call *call)
{
    int status;
    const char *wrong = objection(call, &status);
    if (wrong != NULL) {
        mr_call_end(call, status, mr_slice_str(wrong));
        return;
    }
    if (call->timeout_ns >= 0)
        rpc_call_set_timeout(call, call->timeout_ns);
    call->method->begin(call, call->conn->listener->arg);
    mr_assert(call->ops != NULL || call->ending);
}

/* ---- draining ------------------------------------------------------------------------------- */

struct draining {
    struct mr_msg msg;
    struct mr_event done;
    int64_t max_ms;
};

static void cut_served(struct mr_rpc *rpc)
{
    for (struct mr_link *link = rpc->conns.next; link != &rpc->conns; link = link->next) {
        struct rpc_conn *conn = mr_container(link, struct rpc_conn, link);
        if (conn->listener != NULL)
            rpc_conn_doom(conn, NGHTTP2_NO_ERROR, "the server ends");
    }
}

static void drain_over(struct mr_timer *timer, void *arg)
{
    (void)timer;
    cut_served(arg);
}

static void start_drain(struct mr_msg *msg, void *receiver)
{
    struct mr_rpc *rpc = receiver;
    struct draining *draining = mr_container(msg, struct draining, msg);
    rpc->draining = true;
    rpc->drain_done = &draining->done;
    struct mr_link *link;
    for (link = rpc->listeners.next; link != &rpc->listeners; link = link->next)
        rpc_listener_close(mr_container(link, struct rpc_listener, link));
    for (link = rpc->conns.next; link != &rpc->conns; link = link->next) {
        struct rpc_conn *conn = mr_container(link, struct rpc_conn, link);
        if (conn->listener != NULL)
            rpc_conn_leave(conn);
    }
    mr_timer_init(&rpc->drain_timer, drain_over);
    mr_rpc_timer_start(rpc, &rpc->drain_timer, mr_mono_add_ms(rpc->now, draining->max_ms));
}

void rpc_server_drained(struct mr_rpc *rpc)
{
    if (rpc->drain_done == NULL || rpc->served_n > 0)
        return;
    mr_wheel_stop(rpc->wheel, &rpc->drain_timer);
    struct mr_event *done = rpc->drain_done;
    rpc->drain_done = NULL;
    mr_event_set(done);
}

void mr_rpc_drain(struct mr_rpc *rpc, int64_t max_ms)
{
    mr_assert(!rpc_is_loop(rpc));
    struct draining draining = {.msg.deliver = start_drain, .max_ms = max_ms};
    mr_event_init(&draining.done);
    mr_rpc_post(rpc, &draining.msg);
    (void)mr_event_wait(&draining.done, INT64_MAX);
}
