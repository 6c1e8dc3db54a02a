/* SPDX-License-Identifier: Apache-2.0 */
/* Addresses, sockets and the loop that watches them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/list.h"
#include "base/loop.h"
#include "base/net.h"

static const int64_t patience_ns = 20 * MR_NS_PER_S;

/* ---- addresses ------------------------------------------------------------------------------ */

static void hosts_and_ports_are_taken_apart(void **state)
{
    (void)state;
    static const struct {
        const char *text, *host; /* NULL: refused */
        uint16_t port;
    } rows[] = {
        {"127.0.0.1:7401", "127.0.0.1", 7401},
        {"localhost:0", "localhost", 0},
        {"[::1]:65535", "::1", 65535},
        {"[fe80::1%lo]:1", "fe80::1%lo", 1},
        {"", NULL, 0},
        {"localhost", NULL, 0},
        {":7401", NULL, 0},
        {"[]:7401", NULL, 0},
        {"[::1]7401", NULL, 0},
        {"[::1:7401", NULL, 0},
        {"::1:7401", NULL, 0},
        {"localhost:", NULL, 0},
        {"localhost:65536", NULL, 0},
        {"localhost:99999999999999999999", NULL, 0},
        {"localhost:-1", NULL, 0},
        {"localhost:80x", NULL, 0},
        {"a b:80", NULL, 0},
        {" localhost:80", NULL, 0},
        {"local\thost:80", NULL, 0},
        {"localhost\x7f:80", NULL, 0},
        {"[::1 ]:80", NULL, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        char host[MR_HOST_MAX + 1] = "untouched";
        uint16_t port = 7;
        enum mr_err err = mr_host_parse(rows[i].text, host, &port);
        assert_int_equal(err, rows[i].host != NULL ? MR_OK : MR_INVALID);
        assert_string_equal(host, rows[i].host != NULL ? rows[i].host : "untouched");
        assert_int_equal(port, rows[i].host != NULL ? rows[i].port : 7);
    }
    char longest[MR_HOST_MAX + 8], host[MR_HOST_MAX + 1];
    uint16_t port;
    memset(longest, 'a', sizeof longest);
    memcpy(longest + MR_HOST_MAX, ":80", 4);
    assert_int_equal(mr_host_parse(longest, host, &port), MR_OK);
    memcpy(longest + MR_HOST_MAX, "a:80", 5);
    assert_int_equal(mr_host_parse(longest, host, &port), MR_TOO_BIG);
}

static struct mr_addr number(const char *host, uint16_t port)
{
    struct mr_addr addr;
    size_t n;
    assert_int_equal(mr_host_resolve(host, port, MR_RESOLVE_NUMBERS, &addr, 1, &n, NULL), MR_OK);
    assert_int_equal(n, 1);
    return addr;
}

static void addresses_read_as_they_were_written(void **state)
{
    (void)state;
    static const struct {
        const char *host, *text;
        bool loopback;
    } rows[] = {
        {"127.0.0.1", "127.0.0.1:80", true},
        {"127.8.9.10", "127.8.9.10:80", true},
        {"::1", "[::1]:80", true},
        {"::ffff:127.0.0.1", "[::ffff:127.0.0.1]:80", true},
        {"0.0.0.0", "0.0.0.0:80", false},
        {"::", "[::]:80", false},
        {"10.0.0.1", "10.0.0.1:80", false},
        {"::ffff:10.0.0.1", "[::ffff:10.0.0.1]:80", false},
        {"2001:db8::1", "[2001:db8::1]:80", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct mr_addr addr = number(rows[i].host, 80);
        char text[MR_ADDR_TEXT_MAX];
        mr_addr_text(&addr, text);
        assert_string_equal(text, rows[i].text);
        assert_int_equal(mr_addr_port(&addr), 80);
        assert_int_equal(mr_addr_is_loopback(&addr), rows[i].loopback);
    }
}

static void names_are_looked_up_only_when_that_is_wanted(void **state)
{
    (void)state;
    struct mr_addr addrs[8];
    struct mr_detail detail = {""};
    size_t n = 77;
    assert_int_equal(mr_host_resolve("localhost", 1, MR_RESOLVE_NUMBERS, addrs, 8, &n, NULL),
                     MR_INVALID);
    assert_int_equal(n, 77);
    assert_int_equal(mr_host_resolve("localhost", 1, MR_RESOLVE_NAMES, addrs, 8, &n, &detail),
                     MR_OK);
    assert_true(n >= 1 && n <= 8);
    for (size_t i = 0; i < n; i++)
        assert_true(mr_addr_is_loopback(&addrs[i]));
    assert_int_equal(
        mr_host_resolve("no.such.host.invalid", 1, MR_RESOLVE_NAMES, addrs, 8, &n, &detail),
        MR_UNAVAILABLE);
    assert_non_null(strstr(detail.text, "no.such.host.invalid"));
}

/* ---- sockets -------------------------------------------------------------------------------- */

/* A listening socket, and a connection to it with its two ends. */
struct wire {
    int listen_fd, client_fd, server_fd;
    struct mr_addr bound, peer;
};

/* Waits until the operation says something else than "not now". */
static enum mr_err accept_soon(struct wire *wire)
{
    enum mr_err err;
    while ((err = mr_net_accept(wire->listen_fd, &wire->server_fd, &wire->peer)) == MR_EMPTY)
        sched_yield();
    return err;
}

static void wire_open(struct wire *wire, const char *host)
{
    struct mr_addr addr = number(host, 0);
    assert_int_equal(mr_net_listen(&addr, &wire->listen_fd, &wire->bound), MR_OK);
    assert_true(mr_addr_port(&wire->bound) != 0);
    assert_int_equal(mr_net_accept(wire->listen_fd, &wire->server_fd, &wire->peer), MR_EMPTY);
    assert_int_equal(mr_net_connect(&wire->bound, &wire->client_fd), MR_OK);
    assert_int_equal(accept_soon(wire), MR_OK);
    assert_int_equal(mr_net_connected(wire->client_fd), MR_OK);
}

static void wire_close(struct wire *wire)
{
    mr_net_close(wire->client_fd);
    mr_net_close(wire->server_fd);
    mr_net_close(wire->listen_fd);
}

static enum mr_err read_soon(int fd, void *data, size_t max, size_t *ret_n)
{
    enum mr_err err;
    while ((err = mr_net_read(fd, data, max, ret_n)) == MR_EMPTY)
        sched_yield();
    return err;
}

static void bytes_pass_and_the_end_is_told(void **state)
{
    (void)state;
    static const char *const hosts[] = {"127.0.0.1", "::1"};
    for (size_t i = 0; i < 2; i++) {
        struct wire wire;
        wire_open(&wire, hosts[i]);
        assert_true(mr_addr_is_loopback(&wire.peer));
        char data[16];
        size_t n = 0;
        assert_int_equal(mr_net_read(wire.server_fd, data, sizeof data, &n), MR_EMPTY);
        assert_int_equal(mr_net_write(wire.client_fd, "hello", 5, &n), MR_OK);
        assert_int_equal(n, 5);
        assert_int_equal(read_soon(wire.server_fd, data, sizeof data, &n), MR_OK);
        assert_int_equal(n, 5);
        assert_memory_equal(data, "hello", 5);
        mr_net_close(wire.client_fd);
        assert_int_equal(read_soon(wire.server_fd, data, sizeof data, &n), MR_CLOSED);
        /* The first write after that may still go out; no later one kills the process. */
        enum mr_err err;
        while ((err = mr_net_write(wire.server_fd, "x", 1, &n)) == MR_OK)
            sched_yield();
        assert_int_equal(err, MR_UNAVAILABLE);
        mr_net_close(wire.server_fd);
        mr_net_close(wire.listen_fd);
    }
}

static void unix_sockets_are_reached_by_their_path(void **state)
{
    (void)state;
    const char *tmp = getenv("TMPDIR");
    char dir[64], path[80], longest[256], got[8];
    snprintf(dir, sizeof dir, "%s/mr-net-XXXXXX", tmp != NULL ? tmp : P_tmpdir);
    struct mr_addr addr;
    int listener, here, there;
    size_t n;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/socket", dir);
    assert_int_equal(mr_addr_unix(path, &addr), MR_OK);
    assert_int_equal(mr_net_connect(&addr, &here), MR_NOT_FOUND);
    listener = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_true(listener >= 0);
    assert_int_equal(bind(listener, (struct sockaddr *)&addr.storage, addr.len), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(mr_net_connect(&addr, &here), MR_OK);
    assert_int_equal(mr_net_connected(here), MR_OK);
    mr_net_keepalive(here, 5000); /* there is no such thing, which is fine */
    there = accept(listener, NULL, NULL);
    assert_true(there >= 0);
    assert_int_equal(mr_net_write(here, "hello", 5, &n), MR_OK);
    assert_int_equal(mr_net_read(there, got, sizeof got, &n), MR_OK);
    assert_int_equal(n, 5);
    mr_net_close(here);
    mr_net_close(there);
    mr_net_close(listener);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(dir), 0);
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    assert_int_equal(mr_addr_unix(longest, &addr), MR_TOO_BIG);
}

static void a_full_socket_takes_no_more_and_does_not_block(void **state)
{
    (void)state;
    struct wire wire;
    wire_open(&wire, "127.0.0.1");
    char block[65536] = {0};
    size_t n;
    enum mr_err err;
    while ((err = mr_net_write(wire.client_fd, block, sizeof block, &n)) == MR_OK)
        continue;
    assert_int_equal(err, MR_EMPTY);
    wire_close(&wire);
}

static void ports_in_use_and_ports_without_listener_are_told(void **state)
{
    (void)state;
    struct wire wire;
    wire_open(&wire, "127.0.0.1");
    int fd;
    struct mr_addr bound;
    assert_int_equal(mr_net_listen(&wire.bound, &fd, &bound), MR_IN_USE);
    wire_close(&wire);
    enum mr_err err = mr_net_connect(&wire.bound, &fd);
    if (err == MR_OK) {
        while ((err = mr_net_connected(fd)) == MR_OK)
            sched_yield();
        mr_net_close(fd);
    }
    assert_int_equal(err, MR_UNAVAILABLE);
    struct mr_addr elsewhere;
    size_t n;
    /* TEST-NET-1, which no machine has. */
    assert_int_equal(mr_host_resolve("192.0.2.1", 0, MR_RESOLVE_NUMBERS, &elsewhere, 1, &n, NULL),
                     MR_OK);
    assert_int_equal(mr_net_listen(&elsewhere, &fd, &bound), MR_INVALID);
    assert_non_null(strstr(mr_net_listen_text(MR_INVALID), "no such address"));
    /* The port of connections that just ended can be had again at once. */
    assert_int_equal(mr_net_listen(&wire.bound, &fd, &bound), MR_OK);
    mr_net_close(fd);
}

/* ---- the loop ------------------------------------------------------------------------------- */

static void turn(struct mr_loop *loop, int64_t max_ns)
{
    mr_loop_wait(loop, max_ns);
    mr_loop_dispatch(loop);
}

struct watched {
    struct mr_watch watch;
    struct mr_loop *loop;
    struct watched *removes; /* what its ready takes out of the loop */
    unsigned events;
    size_t calls;
};

static void note_ready(struct mr_watch *watch, unsigned events)
{
    struct watched *watched = mr_container(watch, struct watched, watch);
    watched->events = events;
    watched->calls++;
    if (watched->removes != NULL)
        mr_loop_remove(watched->loop, &watched->removes->watch);
    watched->removes = NULL;
}

static void watch_fd(struct mr_loop *loop, struct watched *watched, int fd, unsigned events)
{
    *watched = (struct watched){.watch = {.fd = fd, .ready = note_ready}, .loop = loop};
    assert_int_equal(mr_loop_add(loop, &watched->watch, events), MR_OK);
}

static void descriptors_are_ready_for_what_was_asked(void **state)
{
    (void)state;
    struct wire wire;
    struct mr_loop *loop;
    struct watched watched;
    wire_open(&wire, "127.0.0.1");
    assert_int_equal(mr_loop_new(&loop), MR_OK);
    watch_fd(loop, &watched, wire.server_fd, MR_LOOP_READ);
    turn(loop, 0);
    assert_int_equal(watched.calls, 0);
    mr_loop_change(loop, &watched.watch, MR_LOOP_READ | MR_LOOP_WRITE);
    turn(loop, patience_ns);
    assert_int_equal(watched.events, MR_LOOP_WRITE);
    mr_loop_change(loop, &watched.watch, MR_LOOP_READ);
    size_t n;
    assert_int_equal(mr_net_write(wire.client_fd, "x", 1, &n), MR_OK);
    turn(loop, patience_ns);
    assert_int_equal(watched.events, MR_LOOP_READ);
    assert_int_equal(watched.calls, 2);
    mr_loop_remove(loop, &watched.watch);
    turn(loop, 0);
    assert_int_equal(watched.calls, 2);
    mr_loop_free(loop);
    wire_close(&wire);
}

static void a_descriptor_removed_in_a_turn_is_not_told_in_it(void **state)
{
    (void)state;
    struct wire wire;
    struct mr_loop *loop;
    struct watched first, second;
    wire_open(&wire, "127.0.0.1");
    assert_int_equal(mr_loop_new(&loop), MR_OK);
    watch_fd(loop, &first, wire.client_fd, MR_LOOP_WRITE);
    watch_fd(loop, &second, wire.server_fd, MR_LOOP_WRITE);
    first.removes = &second;
    second.removes = &first;
    turn(loop, patience_ns);
    assert_int_equal(first.calls + second.calls, 1);
    mr_loop_remove(loop, first.calls == 1 ? &first.watch : &second.watch);
    mr_loop_free(loop);
    wire_close(&wire);
}

static void a_turn_lasts_as_long_as_told(void **state)
{
    (void)state;
    struct mr_loop *loop;
    assert_int_equal(mr_loop_new(&loop), MR_OK);
    turn(loop, 0);
    int64_t begin = mr_mono_now(mr_clock_system()).ns;
    turn(loop, 3 * MR_NS_PER_MS + 1);
    assert_true(mr_mono_now(mr_clock_system()).ns - begin >= 3 * MR_NS_PER_MS);
    mr_loop_free(loop);
}

enum { SENDERS = 4, SENT = 20000 };

struct sender {
    struct mr_chan *inbox;
    struct mr_msg *msgs;
};

static void *send_all(void *arg)
{
    struct sender *sender = arg;
    for (int i = 0; i < SENT; i++) {
        mr_chan_send(sender->inbox, &sender->msgs[i]);
        if (i % 3 == 0)
            sched_yield();
    }
    return NULL;
}

static void messages_wake_a_loop_that_polls(void **state)
{
    (void)state;
    struct mr_loop *loop;
    assert_int_equal(mr_loop_new(&loop), MR_OK);
    struct mr_chan *inbox = mr_loop_inbox(loop);
    struct sender senders[SENDERS];
    pthread_t threads[SENDERS];
    for (int i = 0; i < SENDERS; i++) {
        senders[i] = (struct sender){inbox, calloc(SENT, sizeof(struct mr_msg))};
        assert_non_null(senders[i].msgs);
        assert_int_equal(mr_thread_start(&threads[i], "sender", send_all, &senders[i]), MR_OK);
    }
    size_t got = 0;
    while (got < SENDERS * SENT) {
        struct mr_msg *msg = mr_chan_take_all(inbox);
        if (msg == NULL) {
            int64_t begin = mr_mono_now(mr_clock_system()).ns;
            turn(loop, patience_ns);
            assert_true(mr_mono_now(mr_clock_system()).ns - begin < patience_ns);
        }
        for (; msg != NULL; msg = msg->next)
            got++;
    }
    for (int i = 0; i < SENDERS; i++) {
        mr_thread_join(threads[i]);
        free(senders[i].msgs);
    }
    /* A wake without a message ends one turn, also when it came before. */
    turn(loop, 0);
    mr_chan_wake(inbox);
    turn(loop, INT64_MAX);
    mr_loop_free(loop);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hosts_and_ports_are_taken_apart),
        cmocka_unit_test(addresses_read_as_they_were_written),
        cmocka_unit_test(names_are_looked_up_only_when_that_is_wanted),
        cmocka_unit_test(bytes_pass_and_the_end_is_told),
        cmocka_unit_test(unix_sockets_are_reached_by_their_path),
        cmocka_unit_test(a_full_socket_takes_no_more_and_does_not_block),
        cmocka_unit_test(ports_in_use_and_ports_without_listener_are_told),
        cmocka_unit_test(descriptors_are_ready_for_what_was_asked),
        cmocka_unit_test(a_descriptor_removed_in_a_turn_is_not_told_in_it),
        cmocka_unit_test(a_turn_lasts_as_long_as_told),
        cmocka_unit_test(messages_wake_a_loop_that_polls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
