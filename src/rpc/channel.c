/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client's connection, made again whenever it breaks. An attempt takes the addresses of the host
 * one after another; when all have failed it waits, longer each time, and looks the host up again.
 * Hosts that are names are looked up on a thread of their own, since that may take long.
 */
#include <stdlib.h>

#include "rpc/internal.h"

enum {
    BACKOFF_MIN_MS = 20,
    BACKOFF_EARLY_MAX_MS = 500, /* while a worker may still come back to what it held */
    BACKOFF_MAX_MS = 2000,
    EARLY_MS = 5000,
};

/* ---- connecting ----------------------------------------------------------------------------- */

/* Between half and all of it, so that many clients do not come back at the same moment. */
int64_t rpc_backoff(int64_t *backoff_ms, int64_t away_ms, struct mr_rand *rand)
{
    int64_t max_ms = away_ms < EARLY_MS ? BACKOFF_EARLY_MAX_MS : BACKOFF_MAX_MS;
    *backoff_ms = *backoff_ms == 0 ? BACKOFF_MIN_MS : 2 * *backoff_ms;
    if (*backoff_ms > max_ms)
        *backoff_ms = max_ms;
    uint64_t half = (uint64_t)*backoff_ms / 2;
    return (int64_t)(half + mr_rand_below(rand, half + 1));
}

static void attempt_failed(struct mr_channel *channel, const char *why)
{
    struct mr_rpc *rpc = channel->rpc;
    if (channel->changed != NULL)
        channel->changed(channel, false, why, channel->arg);
    if (channel->freed)
        return;
    if (channel->backoff_ms == 0)
        channel->away_since = rpc->now;
    bool is_eager = channel->haste == MR_CHANNEL_EAGER;
    int64_t away_ms = is_eager ? 0 : (rpc->now.ns - channel->away_since.ns) / MR_NS_PER_MS;
    int64_t delay_ms = rpc_backoff(&channel->backoff_ms, away_ms, &rpc->rand);
    mr_rpc_timer_start(rpc, &channel->timer, mr_mono_add_ms(rpc->now, delay_ms));
}

/* From the address whose turn it is; why: what the one before it said. */
static void try_addresses(struct mr_channel *channel, const char *why)
{
    for (; channel->addr_at < channel->addrs_n; channel->addr_at++) {
        const struct mr_addr *addr = &channel->addrs[channel->addr_at];
        int fd;
        enum mr_err err = mr_net_connect(addr, &fd);
        if (err == MR_OK) {
            err = rpc_conn_new(channel->rpc, fd, addr, NULL, channel);
            if (err == MR_OK)
                return;
            mr_net_close(fd);
        }
        why = mr_err_text(err);
    }
    attempt_failed(channel, why);
}

static void resolve(struct mr_chore *chore)
{
    struct mr_channel *channel = mr_container(chore, struct mr_channel, resolving);
    channel->resolve_err =
        mr_host_resolve(channel->host, channel->port, MR_RESOLVE_NAMES, channel->addrs,
                        RPC_ADDRS_MAX, &channel->addrs_n, &channel->detail);
}

static void resolved(struct mr_chore *chore)
{
    struct mr_channel *channel = mr_container(chore, struct mr_channel, resolving);
    channel->resolve_out = false;
    if (channel->freed)
        return;
    if (channel->resolve_err == MR_OK)
        try_addresses(channel, "");
    else
        attempt_failed(channel, channel->detail.text);
}

static void attempt(struct mr_channel *channel)
{
    struct mr_rpc *rpc = channel->rpc;
    channel->addr_at = 0;
    if (mr_host_resolve(channel->host, channel->port, MR_RESOLVE_NUMBERS, channel->addrs,
                        RPC_ADDRS_MAX, &channel->addrs_n, NULL) == MR_OK) {
        try_addresses(channel, "");
        return;
    }
    if (rpc->resolver == NULL && mr_exec_thread_new("mr-resolve", false, mr_loop_inbox(rpc->loop),
                                                    &rpc->resolver) != MR_OK) {
        attempt_failed(channel, "out of memory");
        return;
    }
    mr_chore_init(&channel->resolving, resolve, resolved);
    channel->resolve_out = true;
    struct mr_exec *exec = mr_exec_thread_exec(rpc->resolver);
    exec->submit(exec, &channel->resolving);
}

static void attempt_again(struct mr_timer *timer, void *arg)
{
    (void)arg;
    attempt(mr_container(timer, struct mr_channel, timer));
}

void rpc_channel_up(struct mr_channel *channel)
{
    if (channel->freed)
        return;
    channel->up = true;
    channel->backoff_ms = 0;
    if (channel->changed != NULL)
        channel->changed(channel, true, "", channel->arg);
}

void rpc_channel_lost(struct mr_channel *channel, const char *why)
{
    bool was_up = channel->up;
    channel->conn = NULL;
    channel->up = false;
    if (channel->freed)
        return;
    if (was_up) {
        attempt_failed(channel, why);
    } else {
        channel->addr_at++;
        try_addresses(channel, why);
    }
}

/* ---- life ----------------------------------------------------------------------------------- */

static void begin(struct mr_msg *msg, void *receiver)
{
    struct mr_rpc *rpc = receiver;
    struct mr_channel *channel = mr_container(msg, struct mr_channel, begin_msg);
    mr_list_push_back(&rpc->channels, &channel->link);
    attempt(channel);
}

static void free_memory(struct mr_channel *channel)
{
    mr_tls_free(channel->tls);
    free(channel->authority);
    free(channel->authorization);
    free(channel->extra_value);
    free(channel->server_name);
    free(channel);
}

static enum mr_err copy_text(const char *text, char **ret_copy)
{
    if (text == NULL)
        return MR_OK;
    *ret_copy = strdup(text);
    return *ret_copy != NULL ? MR_OK : MR_NOMEM;
}

static enum mr_err fill(struct mr_channel *channel, const struct mr_channel_options *options,
                        struct mr_detail *detail)
{
    enum mr_err err = mr_host_parse(options->address, channel->host, &channel->port);
    if (err != MR_OK || channel->port == 0) {
        mr_detail_set(detail, "'%s' is not of the form HOST:PORT", options->address);
        return MR_INVALID;
    }
    const struct mr_rpc_tls *tls = options->tls;
    const char *name = tls != NULL && tls->server_name != NULL ? tls->server_name : channel->host;
    MR_TRY(copy_text(options->address, &channel->authority));
    MR_TRY(copy_text(options->authorization, &channel->authorization));
    channel->extra_name = options->extra_name;
    MR_TRY(copy_text(options->extra_value, &channel->extra_value));
    MR_TRY(copy_text(name, &channel->server_name));
    return tls != NULL ? rpc_tls_new(tls, MR_TLS_CLIENT, &channel->tls, detail) : MR_OK;
}

enum mr_err mr_channel_new(struct mr_rpc *rpc, const struct mr_channel_options *options,
                           struct mr_channel **ret_channel, struct mr_detail *detail)
{
    struct mr_channel *channel = calloc(1, sizeof *channel);
    if (channel == NULL)
        return MR_NOMEM;
    channel->rpc = rpc;
    channel->haste = options->haste;
    channel->changed = options->changed;
    channel->arg = options->arg;
    mr_list_init(&channel->lingering);
    mr_timer_init(&channel->timer, attempt_again);
    enum mr_err err = fill(channel, options, detail);
    if (err != MR_OK) {
        free_memory(channel);
        return err;
    }
    *ret_channel = channel;
    channel->begin_msg.deliver = begin;
    mr_rpc_post(rpc, &channel->begin_msg);
    return MR_OK;
}

static void end_calls(struct mr_link *calls)
{
    for (struct mr_link *link = calls->next; link != calls; link = link->next)
        rpc_call_over(mr_container(link, struct mr_call, link), MR_RPC_CANCELLED,
                      MR_SLICE_LIT("the channel was closed"));
}

static void leave(struct mr_channel *channel)
{
    struct mr_rpc *rpc = channel->rpc;
    channel->freed = true;
    channel->up = false;
    mr_list_remove(&channel->link);
    mr_list_push_back(&rpc->leaving, &channel->link);
    mr_wheel_stop(rpc->wheel, &channel->timer);
    end_calls(&channel->lingering);
    if (channel->conn != NULL) {
        end_calls(&channel->conn->calls);
        rpc_conn_doom(channel->conn, NGHTTP2_NO_ERROR, "closed here");
    }
}

static void deliver_leave(struct mr_msg *msg, void *receiver)
{
    (void)receiver;
    leave(mr_container(msg, struct mr_channel, free_msg));
}

bool rpc_channel_end(struct mr_channel *channel)
{
    if (channel->conn != NULL || channel->resolve_out || channel->calls_n > 0)
        return false;
    struct mr_event *done = channel->free_done;
    free_memory(channel);
    if (done != NULL)
        mr_event_set(done);
    return true;
}

void mr_channel_free(struct mr_channel *channel)
{
    if (channel == NULL)
        return;
    if (rpc_is_loop(channel->rpc)) {
        leave(channel);
        return;
    }
    struct mr_event done;
    mr_event_init(&done);
    channel->free_done = &done;
    channel->free_msg.deliver = deliver_leave;
    mr_rpc_post(channel->rpc, &channel->free_msg);
    (void)mr_event_wait(&done, INT64_MAX);
}

/* ---- calls ---------------------------------------------------------------------------------- */

enum { REQUEST_HEADERS_MAX = 9 };

#define DEADLINE_MAX_MS (1000 * MR_MS_PER_DAY)

static size_t request_headers(const struct mr_channel *channel, const char *path,
                              const char *timeout, nghttp2_nv *nva)
{
    const uint8_t keep = NGHTTP2_NV_FLAG_NO_COPY_VALUE;
    size_t n = 0;
    nva[n++] = rpc_nv(":method", MR_SLICE_LIT("POST"), keep);
    nva[n++] = rpc_nv(":scheme", mr_slice_str(channel->tls != NULL ? "https" : "http"), keep);
    nva[n++] = rpc_nv(":path", mr_slice_str(path), keep);
    nva[n++] = rpc_nv(":authority", mr_slice_str(channel->authority), keep);
    nva[n++] = rpc_nv("te", MR_SLICE_LIT("trailers"), keep);
    nva[n++] = rpc_nv("content-type", MR_SLICE_LIT("application/grpc"), keep);
    if (timeout != NULL)
        nva[n++] = rpc_nv("grpc-timeout", mr_slice_str(timeout), 0);
    if (channel->authorization != NULL)
        nva[n++] = rpc_nv("authorization", mr_slice_str(channel->authorization), keep);
    if (channel->extra_value != NULL)
        nva[n++] = rpc_nv(channel->extra_name, mr_slice_str(channel->extra_value), keep);
    mr_assert(n <= REQUEST_HEADERS_MAX);
    return n;
}

/* nghttp2 keeps calls beyond what the server allows at once until others have ended. */
static enum mr_err submit(struct mr_call *call, const char *path, const char *timeout)
{
    struct rpc_conn *conn = call->conn;
    nghttp2_nv nva[REQUEST_HEADERS_MAX];
    size_t n = request_headers(call->channel, path, timeout, nva);
    nghttp2_data_provider provider = {.source.ptr = call, .read_callback = rpc_call_read};
    int32_t id = nghttp2_submit_request(conn->session, NULL, nva, n, &provider, call);
    if (id >= 0) {
        rpc_call_has_stream(call, id);
        rpc_conn_dirty(conn);
        return MR_OK;
    }
    if (id == NGHTTP2_ERR_NOMEM)
        return MR_NOMEM;
    /* The numbers of calls are used up: another connection begins anew. */
    conn->leave = RPC_GOAWAY;
    if (conn->calls_n == 0)
        rpc_conn_doom(conn, NGHTTP2_NO_ERROR, "the connection is used up");
    return MR_UNAVAILABLE;
}

enum mr_err mr_channel_call(struct mr_channel *channel, const char *path, int64_t deadline_ms,
                            const struct mr_call_ops *ops, void *data, struct mr_call **ret_call)
{
    struct mr_rpc *rpc = channel->rpc;
    mr_assert(rpc_is_loop(rpc));
    const struct rpc_conn *conn = channel->up ? channel->conn : NULL;
    /* Between its end and the word of it, those whose calls are closed may want to make others. */
    if (conn == NULL || conn->leave != RPC_STAY || conn->phase == RPC_CLOSED)
        return MR_UNAVAILABLE;
    if (channel->calls_n >= rpc->limits.client_calls_max)
        return MR_BUSY;
    struct mr_call *call = rpc_call_new(rpc, channel->conn);
    if (call == NULL)
        return MR_NOMEM;
    mr_call_set(call, ops, data);
    char timeout[RPC_TIMEOUT_TEXT_MAX];
    if (deadline_ms > DEADLINE_MAX_MS)
        deadline_ms = DEADLINE_MAX_MS;
    if (deadline_ms > 0)
        rpc_timeout_format(deadline_ms * MR_NS_PER_MS, timeout);
    enum mr_err err = submit(call, path, deadline_ms > 0 ? timeout : NULL);
    if (err != MR_OK) {
        rpc_call_free(call);
        return err;
    }
    if (deadline_ms > 0)
        rpc_call_set_timeout(call, deadline_ms * MR_NS_PER_MS);
    channel->calls_n++;
    *ret_call = call;
    return MR_OK;
}
