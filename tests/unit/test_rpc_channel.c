/* SPDX-License-Identifier: Apache-2.0 */
/* Connections that break, come back, are drained, or never come. */
#include "rpc/internal.h"
#include "support/forwarder.h"
#include "unit/rpc_raw.h"
#include "unit/rpc_rig.h"

/* ---- breaking and coming back --------------------------------------------------------------- */

/* What was said of the channel when a call of it was closed. */
struct witness {
    struct probe probe;
    bool was_down;     /* "gone" came before closed */
    enum mr_err again; /* to one more call, made just then */
    struct rig *rig;
};

static void witness_closed(struct mr_call *call, int status, struct mr_slice text)
{
    struct probe *probe = mr_call_data(call);
    struct witness *witness = mr_container(probe, struct witness, probe);
    struct mr_call *other;
    witness->was_down = mr_event_is_set(&witness->rig->down);
    witness->again = mr_channel_call(witness->rig->channel, "/t/Hang", 0, &(struct mr_call_ops){0},
                                     NULL, &other);
    probe_closed(call, status, text);
}

static const struct mr_call_ops witness_ops = {.message = probe_message, .closed = witness_closed};

static void begin_witness(void *arg)
{
    struct witness *witness = arg;
    mr_assert(mr_channel_call(witness->rig->channel, "/t/Hang", 0, &witness_ops, &witness->probe,
                              &witness->probe.call) == MR_OK);
}

static void calls_are_closed_before_the_connection_is_said_to_be_gone(void **state)
{
    (void)state;
    struct rig *rig = rig_start(NULL, NULL);
    struct witness witness = {.rig = rig, .probe = {.rig = rig}};
    mr_event_init(&witness.probe.closed);
    on_loop(rig->client, begin_witness, &witness);
    wait_count(&rig->begun, 1);
    mr_rpc_free(rig->server);
    assert_int_equal(probe_end(&witness.probe), MR_RPC_UNAVAILABLE);
    assert_false(witness.was_down);
    assert_true(mr_event_wait(&rig->down, patience_ns));
    assert_int_equal(mr_rpc_new("server", NULL, &rig->server), MR_OK);
    rig_stop(rig);
}

/* It breaks without a word from the server. */
static void a_call_that_is_made_while_others_learn_of_the_break_is_refused(void **state)
{
    (void)state;
    static struct forwarder network;
    struct rig *rig = rig_new(NULL, NULL);
    rig_listen(rig, "127.0.0.1:0", NULL);
    assert_int_equal(forwarder_start(&network, rig->port), MR_OK);
    snprintf(rig->address, sizeof rig->address, "127.0.0.1:%u", (unsigned)network.port);
    rig_connect(rig, NULL);
    assert_true(mr_event_wait(&rig->up, patience_ns));
    struct witness witness = {.rig = rig, .again = MR_OK, .probe = {.rig = rig}};
    mr_event_init(&witness.probe.closed);
    on_loop(rig->client, begin_witness, &witness);
    wait_count(&rig->begun, 1);
    forwarder_cut(&network);
    assert_int_equal(probe_end(&witness.probe), MR_RPC_UNAVAILABLE);
    assert_int_equal(witness.again, MR_UNAVAILABLE);
    rig_stop(rig);
    forwarder_stop(&network);
}

static void a_channel_comes_back_when_the_server_does(void **state)
{
    (void)state;
    struct rig *rig = rig_start(NULL, NULL);
    for (size_t i = 1; i <= 3; i++) {
        mr_rpc_free(rig->server);
        assert_true(mr_event_wait(&rig->down, patience_ns));
        struct probe probe = {.rig = rig, .path = "/t/Echo"};
        on_loop(rig->client, do_begin, &probe);
        assert_int_equal(probe.err, MR_UNAVAILABLE);
        assert_int_equal(mr_rpc_new("server", NULL, &rig->server), MR_OK);
        rig_listen(rig, rig->address, NULL);
        wait_count(&rig->ups, i + 1);
        probe_begin(rig, &probe, "/t/Echo", 0);
        probe_send(&probe, "back again");
        probe_half_close(&probe);
        assert_int_equal(probe_end(&probe), MR_RPC_OK);
        assert_last(&probe, "back again");
        probe_done(&probe);
    }
    rig_stop(rig);
}

/* Away for less than a worker's grace: it is tried at once and at least twice a second. */
static void attempts_are_close_together_at_first_and_seldom_later(void **state)
{
    (void)state;
    struct mr_rand rand;
    mr_rand_seed(&rand, 3);
    for (int round = 0; round < 100; round++) {
        int64_t backoff_ms = 0, away_ms = 0, delay_ms = rpc_backoff(&backoff_ms, 0, &rand);
        assert_in_range(delay_ms, 10, 20);
        int attempts = 0, jitter = 0;
        while ((away_ms += delay_ms) < 5000) {
            int64_t before = delay_ms;
            delay_ms = rpc_backoff(&backoff_ms, away_ms, &rand);
            assert_in_range(delay_ms, 10, 500);
            jitter += delay_ms < before;
            attempts++;
        }
        assert_in_range(attempts, 10, 30);
        assert_true(jitter > 0);
        for (int i = 0; i < 10; i++)
            delay_ms = rpc_backoff(&backoff_ms, away_ms, &rand);
        assert_in_range(delay_ms, 1000, 2000);
    }
}

/* One that lets in and says nothing, as where packets are lost: by default it would be waited for 10 s. */
static void an_eager_channel_does_not_wait_long_for_an_attempt(void **state)
{
    (void)state;
    struct rig *rig = rig_new(NULL, NULL);
    struct mr_addr addr, bound;
    size_t n;
    int fd;
    assert_int_equal(mr_host_resolve("127.0.0.1", 0, MR_RESOLVE_NUMBERS, &addr, 1, &n, NULL),
                     MR_OK);
    assert_int_equal(mr_net_listen(&addr, &fd, &bound), MR_OK);
    snprintf(rig->address, sizeof rig->address, "127.0.0.1:%u", (unsigned)mr_addr_port(&bound));
    struct mr_channel_options options = {
        .address = rig->address, .haste = MR_CHANNEL_EAGER, .changed = rig_changed, .arg = rig};
    mr_mono since = mr_mono_now(mr_clock_system());
    assert_int_equal(mr_channel_new(rig->client, &options, &rig->channel, NULL), MR_OK);
    assert_true(mr_event_wait(&rig->down, patience_ns));
    assert_true(mr_mono_now(mr_clock_system()).ns - since.ns < 8 * MR_NS_PER_S);
    rig_stop(rig);
    mr_net_close(fd);
}

static void a_server_that_is_not_there_is_told_with_the_reason(void **state)
{
    (void)state;
    struct rig *rig = rig_start(NULL, NULL);
    mr_channel_free(rig->channel);
    mr_rpc_free(rig->server);
    rig_connect(rig, NULL);
    assert_true(mr_event_wait(&rig->down, patience_ns));
    assert_non_null(strstr(rig->why, "nobody listens there"));
    assert_int_equal(mr_rpc_new("server", NULL, &rig->server), MR_OK);
    rig_listen(rig, rig->address, NULL);
    assert_true(mr_event_wait(&rig->up, patience_ns));
    rig_stop(rig);
}

/* ---- names ---------------------------------------------------------------------------------- */

static void hosts_that_are_names_are_found(void **state)
{
    (void)state;
    struct rig *rig = rig_new(NULL, NULL);
    rig_listen(rig, "127.0.0.1:0", NULL);
    /* Where it has an IPv6 address too, nobody listens there, and the next is tried. */
    snprintf(rig->address, sizeof rig->address, "localhost:%u", (unsigned)rig->port);
    rig_connect(rig, NULL);
    assert_true(mr_event_wait(&rig->up, patience_ns));
    rig_stop(rig);
}

static void a_host_that_does_not_exist_is_told(void **state)
{
    (void)state;
    struct rig *rig = rig_new(NULL, NULL);
    snprintf(rig->address, sizeof rig->address, "no.such.host.invalid:1");
    rig_connect(rig, NULL);
    assert_true(mr_event_wait(&rig->down, patience_ns));
    assert_non_null(strstr(rig->why, "no.such.host.invalid"));
    /* Freed at any moment of the next attempts. */
    rig_stop(rig);
    for (int i = 0; i < 20; i++) {
        rig = rig_new(NULL, NULL);
        snprintf(rig->address, sizeof rig->address, "localhost:1");
        rig_connect(rig, NULL);
        rig_stop(rig);
    }
}

static void addresses_that_make_no_sense_are_refused_at_once(void **state)
{
    (void)state;
    static const char *const texts[] = {"", "localhost", "localhost:", "localhost:0", ":1"};
    struct rig *rig = rig_new(NULL, NULL);
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        struct mr_channel_options options = {.address = texts[i]};
        struct mr_channel *channel;
        struct mr_detail detail = {""};
        assert_int_equal(mr_channel_new(rig->client, &options, &channel, &detail), MR_INVALID);
        assert_true(detail.text[0] != '\0');
    }
    struct mr_rpc_service service = {.address = "127.0.0.1"};
    struct mr_detail detail = {""};
    assert_int_equal(mr_rpc_listen(rig->server, &service, NULL, &detail), MR_INVALID);
    rig_listen(rig, "127.0.0.1:0", NULL);
    service.address = rig->address;
    assert_int_equal(mr_rpc_listen(rig->server, &service, NULL, &detail), MR_IN_USE);
    assert_non_null(strstr(detail.text, rig->address));
    rig_stop(rig);
}

/* ---- servers that are none ------------------------------------------------------------------ */

/* A server by hand, for one connection. */
static int listen_by_hand(struct rig *rig)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_in addr = {.sin_family = AF_INET};
    socklen_t len = sizeof addr;
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(bind(fd, (struct sockaddr *)&addr, sizeof addr), 0);
    assert_int_equal(listen(fd, 10), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&addr, &len), 0);
    snprintf(rig->address, sizeof rig->address, "127.0.0.1:%u", ntohs(addr.sin_port));
    return fd;
}

static void accept_by_hand(int listen_fd, struct raw *raw)
{
    int fd = accept4(listen_fd, NULL, NULL, SOCK_CLOEXEC);
    assert_true(fd >= 0);
    raw_open_fd(raw, fd);
}

static void a_server_that_speaks_something_else_is_left(void **state)
{
    (void)state;
    struct rig *rig = rig_new(NULL, NULL);
    int fd = listen_by_hand(rig);
    rig_connect(rig, NULL);
    struct raw raw;
    accept_by_hand(fd, &raw);
    static const char text[] = "HTTP/1.1 400 Bad Request\r\n\r\n";
    raw_bytes(&raw, text, sizeof text - 1);
    assert_true(mr_event_wait(&rig->down, patience_ns));
    assert_int_equal(atomic_load(&rig->ups), 0);
    raw_close(&raw);
    close(fd);
    rig_stop(rig);
}

static void a_server_that_falls_silent_is_noticed(void **state)
{
    (void)state;
    struct mr_rpc_limits limits = {.keepalive_ms = 300, .handshake_ms = 1000};
    struct rig *rig = rig_new(NULL, &limits);
    int fd = listen_by_hand(rig);
    rig_connect(rig, NULL);
    struct raw raw;
    accept_by_hand(fd, &raw);
    raw_frame(&raw, NGHTTP2_SETTINGS, 0, 0, (struct mr_slice){0});
    raw_flush(&raw);
    assert_true(mr_event_wait(&rig->up, patience_ns));
    struct probe probe;
    probe_begin(rig, &probe, "/t/Hang", 0);
    assert_int_equal(probe_end(&probe), MR_RPC_UNAVAILABLE);
    assert_string_equal(probe.text, "the peer does not answer");
    assert_true(mr_event_wait(&rig->down, patience_ns));
    raw_close(&raw);
    /* The next one says nothing at all. */
    accept_by_hand(fd, &raw);
    mr_event_reset(&rig->down);
    assert_true(mr_event_wait(&rig->down, patience_ns));
    raw_close(&raw);
    close(fd);
    rig_stop(rig);
}

/* The answer of a server by hand to the first call of a channel. */
static void answer_by_hand(const char *const *headers, uint8_t flags, struct probe *probe)
{
    struct rig *rig = rig_new(NULL, NULL);
    int fd = listen_by_hand(rig);
    rig_connect(rig, NULL);
    struct raw raw;
    accept_by_hand(fd, &raw);
    raw_frame(&raw, NGHTTP2_SETTINGS, 0, 0, (struct mr_slice){0});
    raw_flush(&raw);
    assert_true(mr_event_wait(&rig->up, patience_ns));
    probe_begin(rig, probe, "/t/Hang", 0);
    struct mr_buf block = {0};
    for (size_t i = 0; headers[i] != NULL; i += 2)
        raw_header(&block, headers[i], headers[i + 1]);
    raw_frame(&raw, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS | flags, 1, mr_buf_slice(&block));
    if (!(flags & NGHTTP2_FLAG_END_STREAM))
        raw_frame(&raw, NGHTTP2_RST_STREAM, 0, 1, mr_slice_make("\0\0\0\7", 4));
    raw_flush(&raw);
    (void)probe_end(probe);
    mr_buf_done(&block);
    raw_close(&raw);
    close(fd);
    rig_stop(rig);
}

static void odd_answers_end_the_call_with_a_status(void **state)
{
    (void)state;
    static const struct {
        const char *headers[8];
        uint8_t flags;
        int status;
    } rows[] = {
        {{":status", "200", "grpc-status", "5", "grpc-message", "a%20b%"}, 1, 5},
        {{":status", "200", "grpc-status", "pardon?"}, 1, MR_RPC_UNKNOWN},
        {{":status", "200", "content-type", "application/grpc"}, 1, MR_RPC_UNKNOWN},
        {{":status", "503"}, 1, MR_RPC_UNAVAILABLE},
        {{":status", "401"}, 1, MR_RPC_UNAUTHENTICATED},
        {{":status", "404"}, 1, MR_RPC_UNIMPLEMENTED},
        {{":status", "302"}, 1, MR_RPC_UNKNOWN},
        {{":status", "200"}, 0, MR_RPC_UNAVAILABLE}, /* then refused */
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct probe probe;
        answer_by_hand(rows[i].headers, rows[i].flags, &probe);
        assert_int_equal(probe.status, rows[i].status);
        if (i == 0)
            assert_string_equal(probe.text, "a b%");
    }
}

/* ---- draining ------------------------------------------------------------------------------- */

struct drain {
    struct mr_rpc *rpc;
    int64_t max_ms;
    struct mr_event done;
};

static void *run_drain(void *arg)
{
    struct drain *drain = arg;
    mr_rpc_drain(drain->rpc, drain->max_ms);
    mr_event_set(&drain->done);
    return NULL;
}

static void draining_lets_calls_end_and_takes_no_new_ones(void **state)
{
    (void)state;
    struct rig *rig = rig_start(NULL, NULL);
    struct probe probe;
    probe_begin(rig, &probe, "/t/Sum", 0);
    probe_send(&probe, "before");
    wait_count(&rig->received, 1);
    struct drain drain = {.rpc = rig->server, .max_ms = patience_ns / MR_NS_PER_MS};
    mr_event_init(&drain.done);
    pthread_t thread;
    assert_int_equal(mr_thread_start(&thread, "drain", run_drain, &drain), MR_OK);
    /* As soon as the notice is there, new calls are refused here. */
    struct probe late = {.rig = rig, .path = "/t/Echo"};
    for (;;) {
        mr_event_init(&late.closed);
        on_loop(rig->client, do_begin, &late);
        if (late.err != MR_OK)
            break;
        probe_half_close(&late);
        (void)probe_end(&late);
    }
    assert_int_equal(late.err, MR_UNAVAILABLE);
    assert_false(mr_event_is_set(&drain.done));
    probe_send(&probe, "after");
    probe_half_close(&probe);
    assert_int_equal(probe_end(&probe), MR_RPC_OK);
    assert_last(&probe, "2 messages, 11 bytes");
    assert_true(mr_event_wait(&drain.done, patience_ns));
    mr_thread_join(thread);
    assert_true(mr_event_wait(&rig->down, patience_ns));
    probe_done(&probe);
    rig_stop(rig);
}

static void draining_cuts_what_does_not_end(void **state)
{
    (void)state;
    struct rig *rig = rig_start(NULL, NULL);
    struct probe probe;
    probe_begin(rig, &probe, "/t/Hang", 0);
    probe_send(&probe, "x");
    wait_count(&rig->received, 1);
    mr_rpc_drain(rig->server, 30);
    assert_int_equal(atomic_load(&rig->closed), 1);
    assert_int_equal(probe_end(&probe), MR_RPC_UNAVAILABLE);
    /* A second time, and with nobody there: nothing to wait for. */
    mr_rpc_drain(rig->server, 0);
    mr_rpc_drain(rig->server, 10000000);
    rig_stop(rig);
}

/* ---- posts and timers ----------------------------------------------------------------------- */

struct alarm {
    struct mr_timer timer;
    struct mr_rpc *rpc;
    int64_t after_ms;
    mr_mono due, fired;
    struct mr_event done;
};

static void alarm_fired(struct mr_timer *timer, void *arg)
{
    struct alarm *alarm = mr_container(timer, struct alarm, timer);
    mr_assert(arg == alarm->rpc);
    alarm->fired = mr_rpc_now(arg);
    mr_event_set(&alarm->done);
}

static void alarm_start(void *arg)
{
    struct alarm *alarm = arg;
    mr_timer_init(&alarm->timer, alarm_fired);
    alarm->due = mr_mono_add_ms(mr_rpc_now(alarm->rpc), alarm->after_ms);
    mr_rpc_timer_start(alarm->rpc, &alarm->timer, alarm->due);
}

static void alarm_start_and_stop(void *arg)
{
    struct alarm *alarm = arg;
    alarm_start(alarm);
    mr_rpc_timer_stop(alarm->rpc, &alarm->timer);
}

static void timers_fire_on_the_loop_and_never_early(void **state)
{
    (void)state;
    struct rig *rig = rig_new(NULL, NULL);
    struct alarm soon = {.rpc = rig->client, .after_ms = 5}, later = soon, never = soon;
    later.after_ms = 20;
    never.after_ms = 10;
    mr_event_init(&soon.done);
    mr_event_init(&later.done);
    mr_event_init(&never.done);
    on_loop(rig->client, alarm_start, &later);
    on_loop(rig->client, alarm_start_and_stop, &never);
    on_loop(rig->client, alarm_start, &soon);
    assert_true(mr_event_wait(&soon.done, patience_ns));
    assert_true(mr_event_wait(&later.done, patience_ns));
    assert_true(soon.fired.ns >= soon.due.ns && later.fired.ns >= later.due.ns);
    assert_false(mr_event_is_set(&never.done));
    rig_stop(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_are_closed_before_the_connection_is_said_to_be_gone),
        cmocka_unit_test(a_call_that_is_made_while_others_learn_of_the_break_is_refused),
        cmocka_unit_test(a_channel_comes_back_when_the_server_does),
        cmocka_unit_test(attempts_are_close_together_at_first_and_seldom_later),
        cmocka_unit_test(an_eager_channel_does_not_wait_long_for_an_attempt),
        cmocka_unit_test(a_server_that_is_not_there_is_told_with_the_reason),
        cmocka_unit_test(hosts_that_are_names_are_found),
        cmocka_unit_test(a_host_that_does_not_exist_is_told),
        cmocka_unit_test(addresses_that_make_no_sense_are_refused_at_once),
        cmocka_unit_test(a_server_that_speaks_something_else_is_left),
        cmocka_unit_test(a_server_that_falls_silent_is_noticed),
        cmocka_unit_test(odd_answers_end_the_call_with_a_status),
        cmocka_unit_test(draining_lets_calls_end_and_takes_no_new_ones),
        cmocka_unit_test(draining_cuts_what_does_not_end),
        cmocka_unit_test(timers_fire_on_the_loop_and_never_early),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
