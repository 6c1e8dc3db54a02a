/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

enum { READ_BYTES = 256 * 1024, EVENTS = 64 };

struct connection {
    int fd;
    char *out; /* to be sent */
    size_t out_len, out_cap;
    char in[READ_BYTES]; /* the front of it is an answer that is not whole yet */
    size_t in_len;
};

void connection_put(struct pipeline *pipeline, struct connection *connection, const void *bytes,
                    size_t n, unsigned expects)
{
    if (connection->out_len + n > connection->out_cap) {
        connection->out_cap = 2 * (connection->out_len + n);
        connection->out = realloc(connection->out, connection->out_cap);
        if (!connection->out)
            peer_die("out of memory");
    }
    memcpy(connection->out + connection->out_len, bytes, n);
    connection->out_len += n;
    pipeline->waiting += expects;
}

/* A whole turn of requests fits the buffers of the sockets, so nobody waits for anybody here. */
static void flush(struct connection *connection)
{
    for (size_t sent = 0; sent < connection->out_len;) {
        ssize_t n =
            send(connection->fd, connection->out + sent, connection->out_len - sent, MSG_NOSIGNAL);
        if (n < 0)
            peer_die("send: %s", strerror(errno));
        sent += (size_t)n;
    }
    connection->out_len = 0;
}

static void take_answers(struct pipeline *pipeline, struct connection *connection)
{
    size_t at = 0;
    while (at < connection->in_len) {
        size_t n = pipeline->ops->answer(pipeline, connection, connection->in + at,
                                         connection->in_len - at);
        if (n == 0)
            break;
        if (pipeline->waiting == 0)
            peer_die("an answer to nothing");
        pipeline->waiting--;
        at += n;
    }
    memmove(connection->in, connection->in + at, connection->in_len - at);
    connection->in_len -= at;
}

static void turn(struct pipeline *pipeline, struct connection *connection)
{
    ssize_t n = recv(connection->fd, connection->in + connection->in_len,
                     READ_BYTES - connection->in_len, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n <= 0)
        peer_die("receive: %s", n < 0 ? strerror(errno) : "the server has closed");
    connection->in_len += (size_t)n;
    if (!pipeline->over)
        pipeline->over = peer_over(pipeline->phase);
    take_answers(pipeline, connection);
    flush(connection);
}

static void dial(struct connection *connection, const char *address, int epoll)
{
    char host[64];
    int on = 1, bytes = 4 * READ_BYTES;
    struct sockaddr_in to = {.sin_family = AF_INET};
    to.sin_port = htons((uint16_t)peer_address(address, host));
    if (inet_pton(AF_INET, host, &to.sin_addr) != 1)
        peer_die("%s is no address", host);
    connection->fd = socket(AF_INET, SOCK_STREAM, 0);
    if (connection->fd < 0 || connect(connection->fd, (struct sockaddr *)&to, sizeof to) < 0)
        peer_die("%s: %s", address, strerror(errno));
    setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(connection->fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
    if (epoll_ctl(epoll, EPOLL_CTL_ADD, connection->fd, &event) < 0)
        peer_die("epoll: %s", strerror(errno));
}

static void loop(struct pipeline *pipeline, int epoll)
{
    struct epoll_event events[EVENTS];
    while (pipeline->waiting > 0) {
        int n = epoll_wait(epoll, events, EVENTS, 1000);
        for (int i = 0; i < n; i++)
            turn(pipeline, events[i].data.ptr);
        if (n == 0 && peer_over(pipeline->phase)) /* a worker that waits in vain */
            return;
    }
}

/* ---- the client ----------------------------------------------------------------------------- */

struct peer {
    const struct pipeline_ops *ops;
    struct connection *connections;
    int epoll;
};

static const struct pipeline_phases *the_phases; /* a client is one process for one phase */

/* Connections are made before the phase begins. */
static void *peer_open(const char *address, const char *phase)
{
    struct peer *peer = peer_alloc(1, sizeof *peer);
    peer->ops = strcmp(phase, "single") == 0  ? the_phases->single
                : strcmp(phase, "batch") == 0 ? the_phases->batch
                                              : the_phases->work;
    peer->connections = peer_alloc(peer->ops->connections, sizeof *peer->connections);
    peer->epoll = epoll_create1(0);
    for (unsigned i = 0; i < peer->ops->connections; i++)
        dial(&peer->connections[i], address, peer->epoll);
    return peer;
}

/* Until all is answered behind the end of the phase, or nothing is to come; how many are done. */
static uint64_t run(void *arg, const struct peer_phase *phase)
{
    struct peer *peer = arg;
    struct pipeline pipeline = {.ops = peer->ops, .phase = phase};
    for (unsigned i = 0; i < peer->ops->connections; i++) {
        peer->ops->begin(&pipeline, &peer->connections[i]);
        flush(&peer->connections[i]);
    }
    loop(&pipeline, peer->epoll);
    return pipeline.done;
}

static void peer_close(void *arg)
{
    struct peer *peer = arg;
    for (unsigned i = 0; i < peer->ops->connections; i++) {
        close(peer->connections[i].fd);
        free(peer->connections[i].out);
    }
    close(peer->epoll);
    free(peer->connections);
    free(peer);
}

int pipeline_main(int argc, char **argv, const struct pipeline_phases *phases)
{
    static const struct peer_ops ops = {
        .open = peer_open, .single = run, .batch = run, .work = run, .close = peer_close};
    the_phases = phases;
    return peer_main(argc, argv, &ops);
}
