/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many who read one stream of events over HTTP, each on a connection of its own. A thread of theirs reads what comes and looks for
 * no more than whether it was the end, since what readers do with it happens on other machines than the server's.
 * The first of them never reads, and has next to no room for what it does not read.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/exec.h"
#include "base/loop.h"
#include "base/net.h"
#include "cli/bench/server.h"

enum { READ_BYTES = 64 * 1024, ROOM_BYTES = 2048, WAIT_S = 60 };

#define END "event: end"

struct reader {
    struct mr_watch watch; /* fd -1: it has ended, or never was */
    struct bench_readers *readers;
    uint64_t bytes;
    char tail[sizeof END]; /* of what it read last */
    size_t tail_len;
    bool saw_end;
};

struct bench_readers {
    struct reader *all;
    unsigned n; /* the first is stuck */
    struct mr_loop *loop;
    pthread_t id;
    bool running;
    struct mr_msg stop_msg;
    bool stopping; /* the thread's */
    _Atomic unsigned begun, ended, lost;
    _Atomic uint64_t bytes;
};

/* ---- on the thread -------------------------------------------------------------------------- */

static void reader_end(struct reader *reader)
{
    struct bench_readers *readers = reader->readers;
    mr_loop_remove(readers->loop, &reader->watch);
    mr_net_close(reader->watch.fd);
    reader->watch.fd = -1;
    atomic_fetch_add(reader->saw_end ? &readers->ended : &readers->lost, 1);
}

/* The word may be cut in two by the reads. */
static bool has_end(struct reader *reader, const char *bytes, size_t n)
{
    char seam[2 * sizeof END];
    size_t first = n < sizeof END ? n : sizeof END;
    memcpy(seam, reader->tail, reader->tail_len);
    memcpy(seam + reader->tail_len, bytes, first);
    bool found = memmem(seam, reader->tail_len + first, END, strlen(END)) != NULL ||
                 memmem(bytes, n, END, strlen(END)) != NULL;
    reader->tail_len = first;
    memcpy(reader->tail, bytes + n - first, first);
    return found;
}

static void on_readable(struct mr_watch *watch, unsigned events)
{
    static char bytes[READ_BYTES]; /* of one thread */
    struct reader *reader = mr_container(watch, struct reader, watch);
    size_t n;
    (void)events;
    enum mr_err err = mr_net_read(watch->fd, bytes, sizeof bytes, &n);
    if (err == MR_EMPTY)
        return;
    if (err != MR_OK) {
        reader_end(reader);
        return;
    }
    if (reader->bytes == 0)
        atomic_fetch_add(&reader->readers->begun, 1);
    reader->bytes += n;
    atomic_fetch_add(&reader->readers->bytes, n);
    reader->saw_end = has_end(reader, bytes, n) || reader->saw_end;
}

static void stop(struct mr_msg *msg, void *receiver)
{
    (void)msg;
    ((struct bench_readers *)receiver)->stopping = true;
}

static void *run(void *arg)
{
    struct bench_readers *readers = arg;
    while (!readers->stopping) {
        mr_loop_wait(readers->loop, INT64_MAX);
        mr_loop_dispatch(readers->loop);
        for (struct mr_msg *msg = mr_chan_take_all(mr_loop_inbox(readers->loop)), *next; msg;
             msg = next) {
            next = msg->next;
            msg->deliver(msg, readers);
        }
    }
    return NULL;
}

/* ---- outside -------------------------------------------------------------------------------- */

static enum mr_err write_request(int fd, const char *path)
{
    char text[256];
    int len =
        snprintf(text, sizeof text, "GET %s HTTP/1.0\r\nAccept: text/event-stream\r\n\r\n", path);
    size_t n = 0;
    MR_TRY(mr_net_write(fd, text, (size_t)len, &n));
    return n == (size_t)len ? MR_OK : MR_FAILED;
}

/* One after the other, waiting for each: the server's line of new connections is not that long. */
static enum mr_err reader_open(struct reader *reader, const struct mr_addr *addr, const char *path,
                               bool stuck)
{
    static const int room = ROOM_BYTES;
    int fd = socket(addr->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return mr_err_from_errno(errno);
    enum mr_err err = MR_OK;
    if (stuck && setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room) != 0)
        err = mr_err_from_errno(errno);
    if (err == MR_OK && connect(fd, (const struct sockaddr *)&addr->storage, addr->len) != 0)
        err = mr_err_from_errno(errno);
    if (err == MR_OK)
        err = write_request(fd, path);
    if (err != MR_OK) {
        mr_net_close(fd);
        return err;
    }
    reader->watch.fd = fd;
    reader->watch.ready = on_readable;
    return stuck ? MR_OK : mr_loop_add(reader->readers->loop, &reader->watch, MR_LOOP_READ);
}

static enum mr_err open_all(struct bench_readers *readers, const char *address, const char *path,
                            struct mr_detail *detail)
{
    char host[MR_HOST_MAX + 1];
    uint16_t port;
    struct mr_addr addr;
    size_t n;
    MR_TRY(mr_host_parse(address, host, &port));
    MR_TRY(mr_host_resolve(host, port, MR_RESOLVE_NUMBERS, &addr, 1, &n, detail));
    MR_TRY(mr_loop_new(&readers->loop));
    for (unsigned i = 0; i < readers->n; i++)
        MR_TRY(reader_open(&readers->all[i], &addr, path, i == 0));
    MR_TRY(mr_thread_start(&readers->id, "readers", run, readers));
    readers->running = true;
    return MR_OK;
}

/* Until so many of them were counted, but for the stuck one. */
static enum mr_err await(struct bench_readers *readers, const _Atomic unsigned *count)
{
    static const double LOOK_S = 0.01;
    int64_t start = bench_now_ns();
    while (atomic_load(count) < readers->n - 1) {
        if (bench_interrupted())
            return MR_CANCELLED;
        if (atomic_load(&readers->lost) > 0)
            return MR_FAILED;
        if (bench_seconds_since(start) > WAIT_S)
            return MR_TIMEOUT;
        bench_sleep(LOOK_S);
    }
    return MR_OK;
}

enum mr_err bench_readers_open(struct bench_server *server, const char *path, unsigned n,
                               struct bench_readers **ret_readers)
{
    struct bench_readers *readers = cli_alloc(1, sizeof *readers);
    readers->all = cli_alloc(n, sizeof *readers->all);
    readers->n = n;
    for (unsigned i = 0; i < n; i++) {
        readers->all[i].readers = readers;
        readers->all[i].watch.fd = -1;
    }
    enum mr_err err = open_all(readers, server->own.http, path, &server->bench->detail);
    if (err == MR_OK)
        err = await(readers, &readers->begun);
    if (err != MR_OK) {
        bench_readers_close(readers);
        return err;
    }
    *ret_readers = readers;
    return MR_OK;
}

enum mr_err bench_readers_await_end(struct bench_readers *readers, uint64_t *ret_bytes)
{
    MR_TRY(await(readers, &readers->ended));
    *ret_bytes = atomic_load(&readers->bytes);
    return MR_OK;
}

enum mr_err bench_readers_none_lost(struct bench_readers *readers, uint64_t *ret_bytes)
{
    *ret_bytes = atomic_load(&readers->bytes);
    return atomic_load(&readers->lost) == 0 ? MR_OK : MR_FAILED;
}

void bench_readers_close(struct bench_readers *readers)
{
    if (!readers)
        return;
    if (readers->running) {
        readers->stop_msg.deliver = stop;
        mr_chan_send(mr_loop_inbox(readers->loop), &readers->stop_msg);
        mr_thread_join(readers->id);
    }
    for (unsigned i = 0; i < readers->n; i++)
        if (readers->all[i].watch.fd >= 0)
            mr_net_close(readers->all[i].watch.fd);
    mr_loop_free(readers->loop);
    free(readers->all);
    free(readers);
}
