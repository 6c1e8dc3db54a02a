/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RabbitMQ by the client for C that Debian has. The address is KIND@HOST:PORT, where KIND is classic or
 * quorum. Messages are persistent, and each is confirmed to its publisher.
 */
#include <amqp.h>
#include <amqp_framing.h>
#include <amqp_tcp_socket.h>
#include <pthread.h>
#include <string.h>
#include <sys/time.h>

#include "client.h"

enum { CHANNEL = 1, FRAME_MAX = 131072, PERSISTENT = 2, CONSUMERS = 2 };

struct peer {
    const char *kind, *address;
    amqp_connection_state_t connection;
};

static void check(amqp_connection_state_t connection, const char *what)
{
    amqp_rpc_reply_t reply = amqp_get_rpc_reply(connection);
    if (reply.reply_type != AMQP_RESPONSE_NORMAL)
        peer_die("rabbitmq: %s: %s", what,
                 reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION
                     ? amqp_error_string2(reply.library_error)
                     : "refused");
}

static amqp_connection_state_t dial(const char *address)
{
    char host[64];
    int port = peer_address(address, host);
    amqp_connection_state_t connection = amqp_new_connection();
    amqp_socket_t *socket = amqp_tcp_socket_new(connection);
    if (!socket || amqp_socket_open(socket, host, port) != AMQP_STATUS_OK)
        peer_die("rabbitmq: cannot reach %s", address);
    amqp_rpc_reply_t reply =
        amqp_login(connection, "/", 0, FRAME_MAX, 0, AMQP_SASL_METHOD_PLAIN, "guest", "guest");
    if (reply.reply_type != AMQP_RESPONSE_NORMAL)
        peer_die("rabbitmq: login");
    amqp_channel_open(connection, CHANNEL);
    check(connection, "channel");
    return connection;
}

static void hang_up(amqp_connection_state_t connection)
{
    amqp_connection_close(connection, AMQP_REPLY_SUCCESS);
    amqp_destroy_connection(connection);
}

/* A queue has the name of its kind. */
static amqp_bytes_t queue_of(const struct peer *peer)
{
    return amqp_cstring_bytes(peer->kind);
}

/* Both kinds are durable. */
static void declare(struct peer *peer)
{
    amqp_table_entry_t entry = {.key = amqp_cstring_bytes("x-queue-type"),
                                .value = {.kind = AMQP_FIELD_KIND_UTF8}};
    entry.value.value.bytes = amqp_cstring_bytes(peer->kind);
    amqp_table_t arguments = {.num_entries = 1, .entries = &entry};
    amqp_queue_declare(peer->connection, CHANNEL, queue_of(peer), 0, 1, 0, 0, arguments);
    check(peer->connection, "queue");
}

static void *peer_open(const char *address, const char *phase)
{
    (void)phase;
    struct peer *peer = peer_alloc(1, sizeof *peer);
    const char *at = strchr(address, '@');
    if (!at)
        peer_die("%s is not KIND@HOST:PORT", address);
    peer->kind = strndup(address, (size_t)(at - address));
    peer->address = at + 1;
    peer->connection = dial(peer->address);
    declare(peer);
    return peer;
}

static void peer_close(void *arg)
{
    struct peer *peer = arg;
    hang_up(peer->connection);
}

/* ---- enqueue -------------------------------------------------------------------------------- */

/* Which messages were confirmed: all up to low, and of those behind it the ones that are marked. */
struct confirms {
    uint64_t low;
    bool marked[2 * PEER_BATCH * PEER_BATCHES]; /* by number, modulo */
};

static bool *mark(struct confirms *confirms, uint64_t number)
{
    return &confirms->marked[number % (sizeof confirms->marked / sizeof confirms->marked[0])];
}

/* One confirmation may stand for all before it, and they come in any order. */
static void await_confirm(amqp_connection_state_t connection, struct confirms *confirms)
{
    amqp_frame_t frame;
    amqp_maybe_release_buffers(connection);
    int status = amqp_simple_wait_frame(connection, &frame);
    if (status != AMQP_STATUS_OK)
        peer_die("rabbitmq: confirm: %s", amqp_error_string2(status));
    if (frame.frame_type != AMQP_FRAME_METHOD || frame.payload.method.id != AMQP_BASIC_ACK_METHOD)
        peer_die("rabbitmq: not a confirmation");
    const amqp_basic_ack_t *ack = frame.payload.method.decoded;
    for (uint64_t i = confirms->low + 1; ack->multiple && i < ack->delivery_tag; i++)
        *mark(confirms, i) = true;
    *mark(confirms, ack->delivery_tag) = true;
    while (*mark(confirms, confirms->low + 1))
        *mark(confirms, ++confirms->low) = false;
}

static void publish_one(struct peer *peer)
{
    static const amqp_basic_properties_t properties = {._flags = AMQP_BASIC_DELIVERY_MODE_FLAG,
                                                       .delivery_mode = PERSISTENT};
    amqp_bytes_t body = {.len = PEER_PAYLOAD, .bytes = (void *)(uintptr_t)peer_payload};
    int status = amqp_basic_publish(peer->connection, CHANNEL, amqp_empty_bytes, queue_of(peer), 1,
                                    0, &properties, body);
    if (status != AMQP_STATUS_OK)
        peer_die("rabbitmq: publish: %s", amqp_error_string2(status));
}

static uint64_t publish(struct peer *peer, const struct peer_phase *phase, unsigned in_flight)
{
    amqp_connection_state_t connection = peer->connection;
    struct confirms confirms = {0};
    uint64_t sent = 0;
    amqp_confirm_select(connection, CHANNEL);
    check(connection, "confirm");
    while (!peer_over(phase)) {
        for (; sent - confirms.low < in_flight; sent++)
            publish_one(peer);
        do
            await_confirm(connection, &confirms);
        while (confirms.low < sent &&
               (amqp_frames_enqueued(connection) || amqp_data_in_buffer(connection)));
    }
    while (confirms.low < sent)
        await_confirm(connection, &confirms);
    return sent;
}

static uint64_t single(void *peer, const struct peer_phase *phase)
{
    return publish(peer, phase, PEER_SINGLE);
}

static uint64_t batch(void *peer, const struct peer_phase *phase)
{
    return publish(peer, phase, PEER_BATCH * PEER_BATCHES);
}

/* ---- take, run, finish ---------------------------------------------------------------------- */

struct crew {
    struct peer *peer;
    const struct peer_phase *phase;
    _Atomic uint64_t done;
};

/* False when nothing comes any more. */
static bool consume_one(amqp_connection_state_t connection)
{
    static const struct timeval patience = {.tv_usec = 200 * 1000};
    amqp_envelope_t envelope;
    amqp_maybe_release_buffers(connection);
    amqp_rpc_reply_t reply = amqp_consume_message(connection, &envelope, &patience, 0);
    if (reply.reply_type == AMQP_RESPONSE_LIBRARY_EXCEPTION &&
        reply.library_error == AMQP_STATUS_TIMEOUT)
        return false;
    if (reply.reply_type != AMQP_RESPONSE_NORMAL)
        peer_die("rabbitmq: consume");
    int status = amqp_basic_ack(connection, CHANNEL, envelope.delivery_tag, 0);
    if (status != AMQP_STATUS_OK)
        peer_die("rabbitmq: ack: %s", amqp_error_string2(status));
    amqp_destroy_envelope(&envelope);
    return true;
}

static void *consume(void *arg)
{
    struct crew *crew = arg;
    amqp_connection_state_t connection = dial(crew->peer->address);
    amqp_basic_qos(connection, CHANNEL, 0, PEER_PREFETCH, 0);
    check(connection, "prefetch");
    amqp_basic_consume(connection, CHANNEL, queue_of(crew->peer), amqp_empty_bytes, 0, 0, 0,
                       amqp_empty_table);
    check(connection, "consume");
    while (crew->done < crew->phase->tasks && !peer_over(crew->phase))
        if (consume_one(connection))
            crew->done++;
    /* No answer is given to an ack; closing is answered behind the last one. */
    amqp_channel_close(connection, CHANNEL, AMQP_REPLY_SUCCESS);
    hang_up(connection);
    return NULL;
}

static uint64_t work(void *peer, const struct peer_phase *phase)
{
    struct crew crew = {.peer = peer, .phase = phase};
    pthread_t threads[CONSUMERS];
    for (int i = 0; i < CONSUMERS; i++)
        if (pthread_create(&threads[i], NULL, consume, &crew) != 0)
            peer_die("no thread");
    for (int i = 0; i < CONSUMERS; i++)
        pthread_join(threads[i], NULL);
    return crew.done;
}

int main(int argc, char **argv)
{
    static const struct peer_ops ops = {
        .open = peer_open, .single = single, .batch = batch, .work = work, .close = peer_close};
    return peer_main(argc, argv, &ops);
}
