/* SPDX-License-Identifier: Apache-2.0 */
#include "accept/fault.h"

#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "accept/accept.h"
#include "base/net.h"
#include "support/forwarder.h"

enum { PREFACE_LEN = 24, FRAME_HEAD = 9, READ_BYTES = 64 * 1024, POLL_MS = 1 };

enum side { FROM_WORKER, FROM_SERVER };

struct fault_pipe {
    int fd; /* read from here, written to the other one's */
    uint8_t *data;
    size_t len, max;
    bool begun; /* the preface of HTTP/2 has passed */
};

/* ---- where a message ends ------------------------------------------------------------------- */

/* 0: not yet. */
static size_t resp_line(const uint8_t *data, size_t len)
{
    const uint8_t *end = len > 1 ? memchr(data, '\n', len) : NULL;
    return end ? (size_t)(end - data) + 1 : 0;
}

static size_t resp_message(const uint8_t *data, size_t len)
{
    size_t at = resp_line(data, len);
    if (at == 0)
        return 0;
    long n = strtol((const char *)data + 1, NULL, 10);
    if (strchr("$=", data[0]) != NULL)
        return n < 0 ? at : at + (size_t)n + 2 <= len ? at + (size_t)n + 2 : 0;
    if (strchr("*~>%", data[0]) == NULL)
        return at;
    for (long i = 0; i < (data[0] == '%' ? 2 * n : n); i++) {
        size_t one = at < len ? resp_message(data + at, len - at) : 0;
        if (one == 0)
            return 0;
        at += one;
    }
    return at;
}

static size_t http2_message(struct fault_pipe *pipe, enum side side)
{
    if (side == FROM_WORKER && !pipe->begun) {
        if (pipe->len < PREFACE_LEN)
            return 0;
        pipe->begun = true;
        return PREFACE_LEN;
    }
    if (pipe->len < FRAME_HEAD)
        return 0;
    size_t len = FRAME_HEAD +
                 ((size_t)pipe->data[0] << 16 | (size_t)pipe->data[1] << 8 | (size_t)pipe->data[2]);
    return len <= pipe->len ? len : 0;
}

/* ---- passing on ----------------------------------------------------------------------------- */

static void drop(struct fault *f, size_t pair)
{
    for (size_t side = 0; side < 2; side++) {
        struct fault_pipe *pipe = f->pipes[pair][side];
        f->pipes[pair][side] = NULL;
        if (!pipe)
            continue;
        mr_net_close(pipe->fd);
        free(pipe->data);
        free(pipe);
    }
}

static void strike(struct fault *f)
{
    while (f->kind == FAULT_KILL && f->victim == 0)
        (void)poll(NULL, 0, POLL_MS);
    if (f->kind == FAULT_KILL)
        (void)kill(f->victim, SIGKILL);
    for (size_t i = 0; i < FAULT_PAIRS; i++)
        drop(f, i);
    f->fired = true;
}

static bool is_at(const struct fault *f, enum fault_point point, uint64_t count)
{
    return !f->fired && f->point == point && f->nth == count && f->nth != 0;
}

/* One whole message of len bytes. False: the connection is gone. */
static bool pass_message(struct fault *f, size_t pair, enum side side, size_t len)
{
    struct fault_pipe *from = f->pipes[pair][side], *to = f->pipes[pair][1 - side];
    uint64_t count = side == FROM_WORKER ? f->requests + 1 : f->answers + 1;
    if (is_at(f, side == FROM_WORKER ? FAULT_BEFORE_REQUEST : FAULT_BEFORE_ANSWER, count)) {
        strike(f);
        return false;
    }
    if (!forwarder_write(to->fd, (const char *)from->data, len)) {
        drop(f, pair);
        return false;
    }
    from->len -= len;
    memmove(from->data, from->data + len, from->len);
    atomic_fetch_add(side == FROM_WORKER ? &f->requests : &f->answers, 1);
    if (side == FROM_SERVER && is_at(f, FAULT_AFTER_ANSWER, count)) {
        strike(f);
        return false;
    }
    return true;
}

static void pass(struct fault *f, size_t pair, enum side side)
{
    struct fault_pipe *pipe = f->pipes[pair][side];
    size_t n = 0, len;
    if (pipe->max - pipe->len < READ_BYTES) {
        pipe->max = 2 * pipe->max + READ_BYTES;
        pipe->data = realloc(pipe->data, pipe->max + 1);
        if (!pipe->data)
            abort();
    }
    enum mr_err err = mr_net_read(pipe->fd, pipe->data + pipe->len, READ_BYTES, &n);
    if (err == MR_EMPTY)
        return;
    if (err != MR_OK) {
        drop(f, pair);
        return;
    }
    pipe->len += n;
    pipe->data[pipe->len] = '\0';
    while (pipe->len > 0) {
        len = f->redis ? resp_message(pipe->data, pipe->len) : http2_message(pipe, side);
        if (len == 0 || !pass_message(f, pair, side, len))
            return;
    }
}

static struct fault_pipe *pipe_of(int fd)
{
    struct fault_pipe *pipe = calloc(1, sizeof *pipe);
    if (!pipe)
        abort();
    pipe->fd = fd;
    return pipe;
}

static void let_in(struct fault *f)
{
    int fd;
    struct mr_addr peer;
    while (mr_net_accept(f->listen_fd, &fd, &peer) == MR_OK) {
        bool refused = f->fired && f->kind == FAULT_KILL;
        int server = refused ? -1 : forwarder_connect(f->to);
        size_t i = 0;
        while (i < FAULT_PAIRS && f->pipes[i][0])
            i++;
        if (server < 0 || i == FAULT_PAIRS) {
            mr_net_close(fd);
            continue;
        }
        f->pipes[i][FROM_WORKER] = pipe_of(fd);
        f->pipes[i][FROM_SERVER] = pipe_of(server);
    }
}

static void *run(void *arg)
{
    struct fault *f = arg;
    while (!f->stop) {
        struct pollfd fds[1 + 2 * FAULT_PAIRS] = {{.fd = f->listen_fd, .events = POLLIN}};
        for (size_t i = 0; i < 2 * FAULT_PAIRS; i++) {
            struct fault_pipe *pipe = f->pipes[i / 2][i % 2];
            fds[1 + i] = (struct pollfd){.fd = pipe ? pipe->fd : -1, .events = POLLIN};
        }
        if (poll(fds, sizeof fds / sizeof *fds, POLL_MS) <= 0)
            continue;
        for (size_t i = 0; i < 2 * FAULT_PAIRS; i++)
            if (fds[1 + i].revents && f->pipes[i / 2][i % 2])
                pass(f, i / 2, i % 2 ? FROM_SERVER : FROM_WORKER);
        let_in(f);
    }
    for (size_t i = 0; i < FAULT_PAIRS; i++)
        drop(f, i);
    return NULL;
}

void fault_start(struct fault *f)
{
    struct mr_addr addr, bound;
    size_t n;
    assert_err(mr_host_resolve("127.0.0.1", 0, MR_RESOLVE_NUMBERS, &addr, 1, &n, NULL), MR_OK);
    assert_err(mr_net_listen(&addr, &f->listen_fd, &bound), MR_OK);
    f->port = mr_addr_port(&bound);
    assert_err(mr_thread_start(&f->thread, "fault", run, f), MR_OK);
}

void fault_stop(struct fault *f)
{
    f->stop = true;
    mr_thread_join(f->thread);
    mr_net_close(f->listen_fd);
}
