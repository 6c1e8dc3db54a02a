/* SPDX-License-Identifier: Apache-2.0 */
/* A server that answers what a test wants: real Redis cannot be made to misbehave. */
#ifndef MR_TESTS_REDIS_FAKE_H
#define MR_TESTS_REDIS_FAKE_H

#include "base/loop.h"
#include "base/net.h"
#include "redis/internal.h"
#include "redis_user.h"

enum { FAKE_CONNS_MAX = 256 };

struct fake;

/* A connection; n: the how manieth, from 1. */
struct fake_conn {
    struct mr_watch watch;
    struct fake *fake;
    struct redis_reader reader;
    unsigned n, commands; /* commands: behind the hello, from 1 */
    bool closed;
};

/*
 * What to answer a command behind the hello with: bytes of the protocol; "": nothing; NULL: the
 * connection ends. Called by the fake's own thread.
 */
typedef const char *fake_answer(struct fake_conn *conn, const struct mr_reply *command);

struct fake {
    struct mr_loop *loop;
    struct mr_watch listener;
    pthread_t thread;
    uint16_t port;
    char url[64];
    fake_answer *answer;
    fake_answer *hello; /* NULL, or it answers NULL: as a good server would */
    struct fake_conn conns[FAKE_CONNS_MAX];
    unsigned conns_n;
    _Atomic uint32_t seen;  /* commands behind the hello */
    _Atomic uint32_t waits; /* WAITs among them */
    _Atomic bool stop;
};

static inline bool fake_is(const struct mr_reply *command, const char *word)
{
    return mr_slice_equal(mr_reply_at(command, 0)->text, mr_slice_str(word));
}

static inline const char *fake_good_hello(const struct mr_reply *command)
{
    if (fake_is(command, "INFO"))
        return "$43\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\n";
    if (fake_is(command, "ROLE"))
        return "*1\r\n$6\r\nmaster\r\n";
    if (mr_slice_equal(mr_reply_at(command, 1)->text, MR_SLICE_LIT("EXISTS")))
        return "*2\r\n:0\r\n:1\r\n";
    if (fake_is(command, "SCRIPT"))
        return "$3\r\nsha\r\n";
    if (fake_is(command, "PING"))
        return "+PONG\r\n";
    if (fake_is(command, "CLIENT") || fake_is(command, "AUTH") || fake_is(command, "SELECT"))
        return "+OK\r\n";
    return NULL;
}

static inline void fake_close(struct fake_conn *conn)
{
    if (conn->closed)
        return;
    conn->closed = true;
    mr_loop_remove(conn->fake->loop, &conn->watch);
    mr_net_close(conn->watch.fd);
    redis_reader_done(&conn->reader);
}

static inline void fake_write(struct fake_conn *conn, const char *bytes)
{
    size_t len = strlen(bytes), n = 0;
    while (len > 0) {
        enum mr_err err = mr_net_write(conn->watch.fd, bytes, len, &n);
        if (err != MR_OK && err != MR_EMPTY) {
            fake_close(conn);
            return;
        }
        bytes += err == MR_OK ? n : 0;
        len -= err == MR_OK ? n : 0;
    }
}

static inline void fake_command(struct fake_conn *conn, const struct mr_reply *command)
{
    struct fake *fake = conn->fake;
    const char *bytes = fake->hello != NULL ? fake->hello(conn, command) : NULL;
    if (bytes == NULL)
        bytes = fake_good_hello(command);
    if (bytes == NULL) {
        conn->commands++;
        atomic_fetch_add(&fake->seen, 1);
        atomic_fetch_add(&fake->waits, fake_is(command, "WAIT"));
        bytes = fake->answer(conn, command);
    }
    if (bytes != NULL)
        fake_write(conn, bytes);
    else
        fake_close(conn);
}

static inline void fake_ready(struct mr_watch *watch, unsigned events)
{
    (void)events;
    struct fake_conn *conn = mr_container(watch, struct fake_conn, watch);
    char bytes[8192];
    size_t n;
    enum mr_err err = mr_net_read(watch->fd, bytes, sizeof bytes, &n);
    if (err == MR_EMPTY)
        return;
    if (err != MR_OK || redis_reader_feed(&conn->reader, bytes, n) != MR_OK) {
        fake_close(conn);
        return;
    }
    const struct mr_reply *command;
    while (!conn->closed && redis_reader_next(&conn->reader, &command) == MR_OK) {
        fake_command(conn, command);
        if (!conn->closed)
            redis_reader_reset(&conn->reader);
    }
}

static inline void fake_accept(struct mr_watch *watch, unsigned events)
{
    (void)events;
    struct fake *fake = mr_container(watch, struct fake, listener);
    struct mr_addr peer;
    int fd;
    if (fake->conns_n == FAKE_CONNS_MAX || mr_net_accept(watch->fd, &fd, &peer) != MR_OK)
        return;
    struct fake_conn *conn = &fake->conns[fake->conns_n++];
    *conn = (struct fake_conn){.fake = fake, .n = fake->conns_n};
    conn->watch = (struct mr_watch){.fd = fd, .ready = fake_ready};
    if (redis_reader_init(&conn->reader) != MR_OK ||
        mr_loop_add(fake->loop, &conn->watch, MR_LOOP_READ) != MR_OK)
        abort();
}

static inline void *fake_run(void *arg)
{
    struct fake *fake = arg;
    while (!atomic_load(&fake->stop)) {
        mr_loop_wait(fake->loop, INT64_MAX);
        (void)mr_chan_take_all(mr_loop_inbox(fake->loop));
        mr_loop_dispatch(fake->loop);
    }
    for (unsigned i = 0; i < fake->conns_n; i++)
        fake_close(&fake->conns[i]);
    return NULL;
}

static inline struct fake *fake_start(fake_answer *answer, fake_answer *hello)
{
    struct fake *fake = calloc(1, sizeof *fake);
    assert_non_null(fake);
    struct mr_addr addr, bound;
    size_t n;
    fake->answer = answer;
    fake->hello = hello;
    assert_int_equal(mr_loop_new(&fake->loop), MR_OK);
    assert_int_equal(mr_host_resolve("127.0.0.1", 0, MR_RESOLVE_NUMBERS, &addr, 1, &n, NULL),
                     MR_OK);
    assert_int_equal(mr_net_listen(&addr, &fake->listener.fd, &bound), MR_OK);
    fake->listener.ready = fake_accept;
    assert_int_equal(mr_loop_add(fake->loop, &fake->listener, MR_LOOP_READ), MR_OK);
    fake->port = mr_addr_port(&bound);
    snprintf(fake->url, sizeof fake->url, "redis://127.0.0.1:%u", fake->port);
    assert_int_equal(mr_thread_start(&fake->thread, "fake-redis", fake_run, fake), MR_OK);
    return fake;
}

static inline void fake_stop(struct fake *fake)
{
    atomic_store(&fake->stop, true);
    mr_chan_wake(mr_loop_inbox(fake->loop));
    mr_thread_join(fake->thread);
    mr_loop_remove(fake->loop, &fake->listener);
    mr_net_close(fake->listener.fd);
    mr_loop_free(fake->loop);
    free(fake);
}

#endif
