/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A piece of network inside the test: a port that forwards to another one of this machine until it
 * is told to cut what is there, to let nobody in, to hold back what the server says, or everything.
 */
#ifndef MR_TESTS_FORWARDER_H
#define MR_TESTS_FORWARDER_H

#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "base/chan.h"
#include "base/net.h"

enum { FORWARDER_PAIRS = 16, FORWARDER_BYTES = 64 * 1024, FORWARDER_LOOK_MS = 5 };

struct forwarder {
    int listen_fd;
    uint16_t port, to;
    pthread_t thread;
    _Atomic bool refuse; /* nobody gets in */
    _Atomic bool mute;   /* nothing comes back from the server */
    _Atomic bool frozen; /* nothing passes, and nobody is told */
    _Atomic bool stop;
    _Atomic uint32_t cuts_asked, cuts_done;
    _Atomic uint64_t passed;     /* bytes, in both directions */
    int fds[FORWARDER_PAIRS][2]; /* client, server; -1: free */
    char bytes[FORWARDER_BYTES];
};

static inline int forwarder_connect(uint16_t port)
{
    struct mr_addr addr;
    size_t n;
    int fd;
    if (mr_host_resolve("127.0.0.1", port, MR_RESOLVE_NUMBERS, &addr, 1, &n, NULL) != MR_OK ||
        mr_net_connect(&addr, &fd) != MR_OK)
        return -1;
    struct pollfd ready = {.fd = fd, .events = POLLOUT};
    (void)poll(&ready, 1, 1000);
    if (mr_net_connected(fd) == MR_OK)
        return fd;
    mr_net_close(fd);
    return -1;
}

static inline void forwarder_accept(struct forwarder *f)
{
    int fd;
    struct mr_addr peer;
    while (mr_net_accept(f->listen_fd, &fd, &peer) == MR_OK) {
        int server = f->refuse ? -1 : forwarder_connect(f->to);
        size_t i = 0;
        while (i < FORWARDER_PAIRS && f->fds[i][0] >= 0)
            i++;
        if (server < 0 || i == FORWARDER_PAIRS) {
            mr_net_close(fd);
            continue;
        }
        f->fds[i][0] = fd;
        f->fds[i][1] = server;
    }
}

static inline void forwarder_drop(struct forwarder *f, size_t i)
{
    for (size_t side = 0; side < 2; side++) {
        if (f->fds[i][side] >= 0)
            mr_net_close(f->fds[i][side]);
        f->fds[i][side] = -1;
    }
}

/* All of it goes on, however long that takes. False: a side is gone. */
static inline bool forwarder_write(int fd, const char *bytes, size_t len)
{
    while (len > 0) {
        size_t n = 0;
        enum mr_err err = mr_net_write(fd, bytes, len, &n);
        if (err == MR_EMPTY) {
            struct pollfd ready = {.fd = fd, .events = POLLOUT};
            (void)poll(&ready, 1, 100);
        } else if (err != MR_OK) {
            return false;
        }
        bytes += n;
        len -= n;
    }
    return true;
}

static inline void forwarder_pass(struct forwarder *f, size_t i)
{
    char *bytes = f->bytes;
    for (size_t side = 0; side < 2 && f->fds[i][0] >= 0; side++) {
        size_t n = 0;
        if (f->frozen || (side == 1 && f->mute))
            continue;
        enum mr_err err = mr_net_read(f->fds[i][side], bytes, sizeof f->bytes, &n);
        if (err == MR_EMPTY)
            continue;
        f->passed += n;
        if (err != MR_OK || !forwarder_write(f->fds[i][1 - side], bytes, n))
            forwarder_drop(f, i);
    }
}

static inline void *forwarder_run(void *arg)
{
    struct forwarder *f = arg;
    while (!f->stop) {
        uint32_t cuts = f->cuts_asked;
        for (size_t i = 0; cuts != f->cuts_done && i < FORWARDER_PAIRS; i++)
            forwarder_drop(f, i);
        f->cuts_done = cuts;
        forwarder_accept(f);
        struct pollfd fds[1 + 2 * FORWARDER_PAIRS] = {{.fd = f->listen_fd, .events = POLLIN}};
        for (size_t i = 0; i < 2 * FORWARDER_PAIRS; i++) {
            bool deaf = f->frozen || (i % 2 == 1 && f->mute);
            fds[1 + i] = (struct pollfd){.fd = deaf ? -1 : f->fds[i / 2][i % 2], .events = POLLIN};
        }
        (void)poll(fds, sizeof fds / sizeof *fds, FORWARDER_LOOK_MS);
        for (size_t i = 0; i < FORWARDER_PAIRS; i++)
            forwarder_pass(f, i);
    }
    for (size_t i = 0; i < FORWARDER_PAIRS; i++)
        forwarder_drop(f, i);
    return NULL;
}

static inline enum mr_err forwarder_start(struct forwarder *f, uint16_t to)
{
    struct mr_addr addr, bound;
    size_t n;
    memset(f, 0, sizeof *f);
    memset(f->fds, -1, sizeof f->fds);
    f->to = to;
    MR_TRY(mr_host_resolve("127.0.0.1", 0, MR_RESOLVE_NUMBERS, &addr, 1, &n, NULL));
    MR_TRY(mr_net_listen(&addr, &f->listen_fd, &bound));
    f->port = mr_addr_port(&bound);
    return mr_thread_start(&f->thread, "forwarder", forwarder_run, f);
}

/* Every connection there is, ended before it returns. */
static inline void forwarder_cut(struct forwarder *f)
{
    uint32_t asked = ++f->cuts_asked;
    while (f->cuts_done != asked)
        (void)poll(NULL, 0, FORWARDER_LOOK_MS);
}

static inline void forwarder_stop(struct forwarder *f)
{
    f->stop = true;
    mr_thread_join(f->thread);
    mr_net_close(f->listen_fd);
}

#endif
