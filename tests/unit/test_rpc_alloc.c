/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every allocation of a server and a client fails once, those of nghttp2 included: a call ends well
 * or with a status, and nothing is left. Both loops are turned by the test, so that which allocation
 * is the n-th is the same in every run.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include <cmocka.h>

#include "rpc/internal.h"
#include "unit/failing_alloc.h"

enum { TURNS_MAX = 400, MESSAGE_LEN = 40000, MESSAGES = 3 };

struct tally {
    size_t begun, closed, messages;
    int status;
};

static struct tally of_server, of_client;

/* ---- the two owners ------------------------------------------------------------------------- */

static void echo(struct mr_call *call, struct mr_slice bytes)
{
    of_server.messages++;
    if (mr_call_send(call, bytes) != MR_OK)
        mr_call_end(call, MR_RPC_EXHAUSTED, MR_SLICE_LIT("no memory"));
}

static void end(struct mr_call *call)
{
    mr_call_trailer(call, "x-code", MR_SLICE_LIT("17"));
    mr_call_end(call, MR_RPC_OK, MR_SLICE_LIT("well done"));
}

static void server_closed(struct mr_call *call, int status, struct mr_slice text)
{
    (void)call;
    (void)status;
    (void)text;
    of_server.closed++;
}

static const struct mr_call_ops server_ops = {
    .message = echo, .half_closed = end, .closed = server_closed};

static void begin(struct mr_call *call, void *arg)
{
    (void)arg;
    of_server.begun++;
    mr_call_set(call, &server_ops, NULL);
}

static const struct mr_rpc_method methods[] = {{"/t/Echo", begin}};

static void take(struct mr_call *call, struct mr_slice bytes)
{
    (void)call;
    assert_int_equal(bytes.len, MESSAGE_LEN);
    of_client.messages++;
}

static void client_closed(struct mr_call *call, int status, struct mr_slice text)
{
    (void)call;
    (void)text;
    of_client.closed++;
    of_client.status = status;
}

static const struct mr_call_ops client_ops = {.message = take, .closed = client_closed};

static void changed(struct mr_channel *channel, bool up, const char *why, void *arg)
{
    static const char message[MESSAGE_LEN];
    (void)why;
    (void)arg;
    struct mr_call *call;
    if (!up || mr_channel_call(channel, "/t/Echo", 60000, &client_ops, NULL, &call) != MR_OK)
        return;
    of_client.begun++;
    for (int i = 0; i < MESSAGES; i++) {
        if (mr_call_send(call, mr_slice_make(message, sizeof message)) != MR_OK) {
            mr_call_cancel(call);
            return;
        }
    }
    mr_call_half_close(call);
}

/* ---- one run -------------------------------------------------------------------------------- */

/* A channel whose first connection is one end of a pair; the port leads nowhere. */
static struct mr_channel *connect_pair(struct mr_rpc *server, struct rpc_listener *listener,
                                       struct mr_rpc *client)
{
    int fds[2];
    struct mr_addr nowhere = {0};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
    listener->rpc = server;
    if (rpc_conn_new(server, fds[0], &nowhere, listener, NULL) != MR_OK)
        mr_net_close(fds[0]);
    struct mr_channel *channel = NULL;
    struct mr_channel_options options = {.address = "127.0.0.1:1", .changed = changed};
    if (mr_channel_new(client, &options, &channel, NULL) == MR_OK) {
        /* Taken from the inbox: it would begin with a connection of its own. */
        assert_ptr_equal(mr_chan_take_all(mr_loop_inbox(client->loop)), &channel->begin_msg);
        mr_list_push_back(&client->channels, &channel->link);
    }
    if (channel == NULL || rpc_conn_new(client, fds[1], &nowhere, NULL, channel) != MR_OK)
        mr_net_close(fds[1]);
    return channel;
}

static void turn_both(struct mr_rpc *server, struct mr_rpc *client)
{
    for (int i = 0; i < TURNS_MAX && (client->conns_n > 0 || server->conns_n > 0); i++) {
        rpc_turn(client, 0);
        rpc_turn(server, 0);
        if (of_client.closed > 0 && of_client.closed == of_client.begun)
            return;
    }
}

static void run_once(void)
{
    struct mr_rpc *server = NULL, *client = NULL;
    struct rpc_listener listener = {.methods = methods, .methods_n = 1};
    of_server = of_client = (struct tally){0};
    if (rpc_new(NULL, &server) == MR_OK && rpc_new(NULL, &client) == MR_OK) {
        struct mr_channel *channel = connect_pair(server, &listener, client);
        turn_both(server, client);
        rpc_turn(client, 0);
        mr_channel_free(channel);
    }
    for (int i = 0; i < TURNS_MAX && client != NULL; i++) {
        rpc_turn(client, 0);
        rpc_turn(server, 0);
    }
    if (client != NULL)
        rpc_free(client);
    if (server != NULL)
        rpc_free(server);
    assert_int_equal(of_server.begun, of_server.closed);
    assert_int_equal(of_client.begun, of_client.closed);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    run_once();
    assert_int_equal(of_client.closed, 1);
    assert_int_equal(of_client.status, MR_RPC_OK);
    assert_int_equal(of_client.messages, MESSAGES);
    size_t runs = 0, good = 0;
    for (long n = 0;; n++, runs++) {
        fail_alloc_after(n);
        run_once();
        if (fail_alloc_stop() == 0)
            break;
        good += of_client.closed == 1 && of_client.status == MR_RPC_OK;
    }
    /* Most of them are needed, and there are many. */
    assert_true(!FAILING_ALLOC || (runs > 50 && good < runs));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
