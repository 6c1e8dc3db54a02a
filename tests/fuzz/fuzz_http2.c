/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes from a peer, to a server and to a client, in pieces of any size: they are judged without
 * harm, and nothing is left when the connection is gone. The first byte chooses the side, whether
 * the good beginning of a session is put before the rest, and how the bytes are cut.
 */
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "rpc/internal.h"

enum { OF_CLIENT = 1, BEGUN = 2, PIECES_MASK = 0xf0, CALLS = 3, TURNS_MAX = 100 };

/* ---- owners of calls ------------------------------------------------------------------------ */

static size_t open_calls;

/* Every third message holds the call for a while. */
static void on_message(struct mr_call *call, struct mr_slice bytes)
{
    static size_t count;
    enum mr_err err = mr_call_send(call, bytes);
    mr_assert(err == MR_OK || err == MR_CLOSED || err == MR_BUSY || err == MR_TOO_BIG);
    if (++count % 3 == 0) {
        mr_call_hold(call, true);
        if (count % 2 == 0)
            mr_call_hold(call, false);
    }
}

static void on_half_closed(struct mr_call *call)
{
    mr_call_end(call, MR_RPC_OK, MR_SLICE_LIT("done"));
}

static void on_closed(struct mr_call *call, int status, struct mr_slice text)
{
    (void)call;
    mr_assert(status >= 0 && (text.len == 0 || text.data != NULL));
    mr_assert(open_calls > 0);
    open_calls--;
}

static const struct mr_call_ops ops = {
    .message = on_message, .half_closed = on_half_closed, .closed = on_closed};

static void begin(struct mr_call *call, void *arg)
{
    (void)arg;
    (void)mr_call_metadata(call, "authorization");
    mr_call_set(call, &ops, NULL);
    open_calls++;
}

static void refuse(struct mr_call *call, void *arg)
{
    (void)arg;
    mr_call_end(call, MR_RPC_DENIED, MR_SLICE_LIT("no"));
}

static const struct mr_rpc_method methods[] = {{"/t/Echo", begin}, {"/t/No", refuse}};

/* ---- a connection without a network --------------------------------------------------------- */

static struct mr_rpc *rpc;

static struct mr_rpc *the_rpc(void)
{
    static const struct mr_rpc_limits limits = {.message_max = 4096, .queued_max = 65536};
    if (rpc == NULL)
        mr_assert(rpc_new(&limits, &rpc) == MR_OK);
    return rpc;
}

static void changed(struct mr_channel *channel, bool up, const char *why, void *arg)
{
    (void)why;
    (void)arg;
    for (int i = 0; up && i < CALLS; i++) {
        struct mr_call *call;
        if (mr_channel_call(channel, "/t/Echo", 60000, &ops, NULL, &call) != MR_OK)
            return;
        open_calls++;
        mr_assert(mr_call_send(call, MR_SLICE_LIT("hello")) == MR_OK);
        if (i % 2 == 0)
            mr_call_half_close(call);
    }
}

/* A connection that is gone stays gone. */
static void no_attempt(struct mr_timer *timer, void *arg)
{
    (void)timer;
    (void)arg;
}

static struct mr_channel *channel_by_hand(void)
{
    struct mr_channel *channel = calloc(1, sizeof *channel);
    mr_assert(channel != NULL);
    channel->rpc = rpc;
    channel->changed = changed;
    channel->authority = strdup("test");
    mr_list_init(&channel->link);
    mr_list_init(&channel->lingering);
    mr_timer_init(&channel->timer, no_attempt);
    return channel;
}

static struct rpc_listener *the_listener(void)
{
    static struct rpc_listener listener = {.methods = methods, .methods_n = 2};
    listener.rpc = rpc;
    return &listener;
}

/* Turns until nothing more happens; what comes out is read and forgotten. */
static void turns(int peer_fd)
{
    static uint8_t said[65536];
    for (int i = 0; i < TURNS_MAX; i++) {
        rpc_turn(rpc, 0);
        if (recv(peer_fd, said, sizeof said, MSG_DONTWAIT) <= 0)
            break;
    }
}

static void say(int peer_fd, const void *data, size_t len)
{
    ssize_t n = send(peer_fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL);
    (void)n; /* once the connection is gone, nobody listens */
    turns(peer_fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_in in = {data, size};
    uint8_t how = fuzz_u8(&in);
    int fds[2];
    mr_assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) == 0);
    struct mr_addr nowhere = {0};
    the_rpc();
    struct mr_channel *channel = how & OF_CLIENT ? channel_by_hand() : NULL;
    mr_assert(rpc_conn_new(rpc, fds[0], &nowhere, channel ? NULL : the_listener(), channel) ==
              MR_OK);
    turns(fds[1]);
    if (how & BEGUN) {
        if (channel == NULL)
            say(fds[1], NGHTTP2_CLIENT_MAGIC, NGHTTP2_CLIENT_MAGIC_LEN);
        say(fds[1], "\0\0\0\4\0\0\0\0\0", 9);
    }
    size_t piece = how & PIECES_MASK ? how >> 4 : size + 1;
    while (in.left > 0) {
        struct mr_slice bytes = fuzz_bytes(&in, piece);
        say(fds[1], bytes.data, bytes.len);
    }
    close(fds[1]);
    rpc_turn(rpc, 0);
    if (channel != NULL)
        mr_channel_free(channel);
    for (int i = 0; i < TURNS_MAX && rpc->conns_n > 0; i++)
        rpc_turn(rpc, 0);
    rpc_turn(rpc, 0);
    mr_assert(rpc->conns_n == 0 && rpc->memory == 0 && open_calls == 0);
    return 0;
}
