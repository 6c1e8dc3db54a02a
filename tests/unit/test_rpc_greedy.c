/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Peers that say or want too much, too slowly, or take nothing. Each is dropped or refused, and while
 * that goes on a good client of the same server is served.
 */
#include "rpc/internal.h"
#include "unit/rpc_raw.h"
#include "unit/rpc_rig.h"

/* ---- too much ------------------------------------------------------------------------------- */

static void a_head_that_is_too_long_is_refused(void **state)
{
    (void)state;
    struct rig *rig = rig_start(NULL, NULL);
    struct raw raw;
    raw_open(&raw, rig->port);
    raw_preface(&raw);
    char value[15000];
    memset(value, 'v', sizeof value - 1);
    value[sizeof value - 1] = '\0';
    const char *fits[] = {"x-long", value, NULL};
    raw_request(&raw, 1, "/t/Echo", NGHTTP2_FLAG_END_STREAM, fits);
    raw_flush(&raw);
    raw_until_end(&raw, 1);
    assert_non_null(strstr(raw.headers, "grpc-status=0\n"));
    /* Small ones count for more than their bytes. */
    const char *too_long[2 * 40 + 1] = {"x-long", value};
    for (size_t i = 2; i < 2 * 40; i++)
        too_long[i] = "x";
    raw_request(&raw, 3, "/t/Echo", NGHTTP2_FLAG_END_STREAM, too_long);
    raw_flush(&raw);
    raw_until(&raw, NGHTTP2_RST_STREAM);
    assert_int_equal(raw.stream, 3);
    assert_int_equal(atomic_load(&rig->begun), 1);
    raw_close(&raw);
    rig_stop(rig);
}

/* One long header, remembered, and then named by a byte each time. */
static void a_head_that_unfolds_to_megabytes_is_refused(void **state)
{
    (void)state;
    enum { NAMED = 12000 };
    struct rig *rig = rig_start(NULL, NULL);
    struct raw raw;
    raw_open(&raw, rig->port);
    raw_preface(&raw);
    char value[3900];
    memset(value, 'v', sizeof value - 1);
    value[sizeof value - 1] = '\0';
    struct mr_buf block = {0};
    const uint8_t remember = 0x40, named = 0x80 | 62; /* the first of the table that grows */
    assert_int_equal(mr_buf_append(&block, &remember, 1), MR_OK);
    raw_literal(&block, "x-bomb");
    raw_literal(&block, value);
    for (int i = 0; i < NAMED; i++)
        assert_int_equal(mr_buf_append(&block, &named, 1), MR_OK);
    raw_frame(&raw, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS | NGHTTP2_FLAG_END_STREAM, 1,
              mr_buf_slice(&block));
    raw_flush(&raw);
    raw_until(&raw, NGHTTP2_RST_STREAM);
    assert_int_equal(raw.stream, 1);
    assert_int_equal(atomic_load(&rig->begun), 0);
    mr_buf_done(&block);
    raw_close(&raw);
    assert_served(rig);
    rig_stop(rig);
}

/* A head spread over frames without end. */
static void a_head_without_end_loses_the_connection(void **state)
{
    (void)state;
    struct rig *rig = rig_start(NULL, NULL);
    struct raw raw;
    raw_open(&raw, rig->port);
    raw_preface(&raw);
    struct mr_buf block = {0};
    raw_header(&block, "x-more", "and more");
    raw_frame(&raw, NGHTTP2_HEADERS, 0, 1, mr_buf_slice(&block));
    for (int i = 0; i < 10000; i++)
        raw_frame(&raw, NGHTTP2_CONTINUATION, 0, 1, mr_buf_slice(&block));
    raw_flush(&raw);
    (void)raw_until_closed(&raw);
    mr_buf_done(&block);
    raw_close(&raw);
    assert_served(rig);
    rig_stop(rig);
}

static void calls_beyond_the_limit_are_refused(void **state)
{
    (void)state;
    struct mr_rpc_limits limits = {.calls_max = 5};
    struct rig *rig = rig_start(&limits, NULL);
    struct raw raw;
    raw_open(&raw, rig->port);
    raw_preface(&raw);
    raw_flush(&raw);
    for (int i = 0; i < 5; i++)
        raw_request(&raw, 2 * i + 1, "/t/Hang", 0, NULL);
    raw_flush(&raw);
    wait_count(&rig->begun, 5);
    raw_request(&raw, 11, "/t/Hang", 0, NULL);
    raw_flush(&raw);
    raw_until(&raw, NGHTTP2_RST_STREAM);
    assert_int_equal(raw.stream, 11);
    assert_int_equal(raw.payload[3], NGHTTP2_REFUSED_STREAM);
    assert_int_equal(atomic_load(&rig->begun), 5);
    raw_close(&raw);
    wait_count(&rig->closed, 5);
    rig_stop(rig);
}

static void add_ping(struct raw *raw, int i)
{
    (void)i;
    raw_frame(raw, NGHTTP2_PING, 0, 0, MR_SLICE_LIT("12345678"));
}

static void add_settings(struct raw *raw, int i)
{
    (void)i;
    raw_frame(raw, NGHTTP2_SETTINGS, 0, 0, (struct mr_slice){0});
}

static void add_empty_data(struct raw *raw, int i)
{
    if (i == 0)
        raw_request(raw, 1, "/t/Hang", 0, NULL);
    raw_frame(raw, NGHTTP2_DATA, 0, 1, (struct mr_slice){0});
}

static void add_reset(struct raw *raw, int i)
{
    raw_request(raw, 2 * i + 1, "/t/Hang", 0, NULL);
    raw_frame(raw, NGHTTP2_RST_STREAM, 0, 2 * i + 1, mr_slice_make("\0\0\0\10", 4));
}

static void add_priority(struct raw *raw, int i)
{
    raw_frame(raw, NGHTTP2_PRIORITY, 0, 2 * i + 1, mr_slice_make("\0\0\0\0\1", 5));
}

static void floods_of_cheap_frames_lose_the_connection(void **state)
{
    (void)state;
    static void (*const floods[])(struct raw *, int) = {add_ping, add_settings, add_empty_data,
                                                        add_reset, add_priority};
    struct rig *rig = rig_start(NULL, NULL);
    for (size_t i = 0; i < sizeof floods / sizeof floods[0]; i++) {
        struct raw raw;
        raw_open(&raw, rig->port);
        raw_preface(&raw);
        for (int j = 0; j < 20000; j++)
            floods[i](&raw, j);
        raw_flush(&raw);
        (void)raw_until_closed(&raw);
        raw_close(&raw);
        assert_served(rig);
    }
    rig_stop(rig);
}

static void received_parts_of_messages_have_a_limit(void **state)
{
    (void)state;
    struct mr_rpc_limits limits = {.queued_max = 40000};
    struct rig *rig = rig_start(&limits, NULL);
    struct raw raw;
    raw_open(&raw, rig->port);
    raw_preface(&raw);
    /* Each call sends 10 000 bytes of a message that never ends. */
    uint8_t part[10000] = {0, 0, 1, 0, 0};
    for (int i = 0; i < 5; i++) {
        raw_request(&raw, 2 * i + 1, "/t/Echo", 0, NULL);
        raw_frame(&raw, NGHTTP2_DATA, 0, 2 * i + 1, mr_slice_make(part, sizeof part));
    }
    raw_flush(&raw);
    raw_until_end(&raw, 9);
    assert_non_null(strstr(raw.headers, "grpc-status=8\n"));
    /* When one of the others goes, there is room again. */
    raw_frame(&raw, NGHTTP2_RST_STREAM, 0, 1, mr_slice_make("\0\0\0\10", 4));
    raw_request(&raw, 11, "/t/Echo", 0, NULL);
    raw_message(&raw, 11, 0, MR_SLICE_LIT("x"), NGHTTP2_FLAG_END_STREAM);
    raw_flush(&raw);
    raw_until_end(&raw, 11);
    assert_non_null(strstr(raw.headers, "grpc-status=0\n"));
    raw_close(&raw);
    rig_stop(rig);
}

/* The same with messages that need memory. */
static void assert_served_much(struct rig *rig)
{
    static char block[1 << 20];
    struct probe probe;
    probe_begin(rig, &probe, "/t/Echo", 0);
    assert_int_equal(probe_send_times(&probe, mr_slice_make(block, sizeof block), 3), MR_OK);
    probe_half_close(&probe);
    assert_int_equal(probe_end(&probe), MR_RPC_OK);
    assert_int_equal(probe.bytes, 3 * sizeof block);
    probe_done(&probe);
    assert_int_equal(atomic_load(&rig->ups), 1);
}

struct memory_look {
    struct mr_rpc *rpc;
    size_t memory;
};

static void look_at_memory(void *arg)
{
    struct memory_look *look = arg;
    look->memory = look->rpc->memory;
}

/* Each asks for much and reads nothing of it. The good client is never the one that has to go. */
static void many_clients_that_read_nothing_hold_little_and_harm_nobody(void **state)
{
    (void)state;
    enum { CLIENTS = 30, MESSAGE = 100 * 1024, MESSAGES = 40, TOTAL = 16 << 20 };
    struct mr_rpc_limits limits = {.memory_max = TOTAL, .queued_max = 8 << 20};
    struct rig *rig = rig_start(&limits, NULL);
    static uint8_t message[MESSAGE];
    static struct raw raws[CLIENTS];
    struct memory_look look = {.rpc = rig->server};
    size_t most = 0;
    for (size_t i = 0; i < CLIENTS; i++) {
        raw_open(&raws[i], rig->port);
        raw_preface(&raws[i]);
        raw_frame(&raws[i], NGHTTP2_SETTINGS, NGHTTP2_FLAG_ACK, 0, (struct mr_slice){0});
        raw_request(&raws[i], 1, "/t/Echo", 0, NULL);
        for (int j = 0; j < MESSAGES; j++)
            raw_message(&raws[i], 1, 0, mr_slice_make(message, MESSAGE), 0);
        raw_flush(&raws[i]);
        on_loop(rig->server, look_at_memory, &look);
        assert_in_range(look.memory, 0, TOTAL + limits.queued_max);
        most = look.memory > most ? look.memory : most;
        if (i % 10 == 9)
            assert_served_much(rig);
    }
    assert_true(most > TOTAL / 2);
    assert_true(atomic_load(&rig->closed) > CLIENTS / 2);
    for (size_t i = 0; i < CLIENTS; i++)
        raw_close(&raws[i]);
    assert_served(rig);
    rig_stop(rig);
}

/* Calls that do nothing, each with a head as long as it may be. */
static void heads_of_calls_count_as_memory(void **state)
{
    (void)state;
    enum { CLIENTS = 20, CALLS = 100, TOTAL = 8 << 20 };
    struct mr_rpc_limits limits = {.memory_max = TOTAL};
    struct rig *rig = rig_start(&limits, NULL);
    static struct raw raws[CLIENTS];
    static char value[15000];
    memset(value, 'v', sizeof value - 1);
    const char *more[] = {"x-long", value, NULL};
    struct memory_look look = {.rpc = rig->server};
    for (size_t i = 0; i < CLIENTS; i++) {
        raw_open(&raws[i], rig->port);
        raw_preface(&raws[i]);
        for (int32_t j = 0; j < CALLS; j++)
            raw_request(&raws[i], 2 * j + 1, "/t/Hang", 0, more);
        raw_flush(&raws[i]);
        assert_served(rig);
        on_loop(rig->server, look_at_memory, &look);
        assert_in_range(look.memory, 0, TOTAL + CALLS * 20000); /* one may be about to go */
    }
    assert_true(look.memory > TOTAL / 2);
    for (size_t i = 0; i < CLIENTS; i++)
        raw_close(&raws[i]);
    do {
        on_loop(rig->server, look_at_memory, &look);
    } while (look.memory > 0);
    assert_served(rig);
    rig_stop(rig);
}

static void connections_beyond_the_limit_are_closed_at_once(void **state)
{
    (void)state;
    struct mr_rpc_limits limits = {.connections_max = 2};
    struct rig *rig = rig_start(&limits, NULL);
    struct probe probe;
    probe_begin(rig, &probe, "/t/Hang", 0);
    struct raw second, third;
    raw_open(&second, rig->port);
    raw_preface(&second);
    raw_request(&second, 1, "/t/Hang", 0, NULL);
    raw_flush(&second);
    wait_count(&rig->begun, 2);
    raw_open(&third, rig->port);
    assert_int_equal(raw_until_closed(&third), -1);
    raw_close(&third);
    raw_close(&second);
    assert_served(rig);
    on_loop(rig->client, do_cancel, &probe);
    assert_int_equal(probe_end(&probe), MR_RPC_CANCELLED);
    probe_done(&probe);
    rig_stop(rig);
}

static void connections_without_calls_make_room_for_others(void **state)
{
    (void)state;
    enum { CLIENTS = 50 };
    struct mr_rpc_limits limits = {.connections_max = 10};
    struct rig *rig = rig_start(&limits, NULL);
    struct probe probe;
    probe_begin(rig, &probe, "/t/Hang", 0); /* it has a call, and stays */
    wait_count(&rig->begun, 1);
    static struct raw raws[CLIENTS];
    for (size_t i = 0; i < CLIENTS; i++) {
        raw_open(&raws[i], rig->port);
        raw_preface(&raws[i]);
        if (i % 2 == 0) /* the others do not even say so much */
            raw_flush(&raws[i]);
    }
    struct raw raw;
    raw_open(&raw, rig->port);
    raw_preface(&raw);
    raw_request(&raw, 1, "/t/Echo", NGHTTP2_FLAG_END_STREAM, NULL);
    raw_flush(&raw);
    raw_until_end(&raw, 1);
    assert_non_null(strstr(raw.headers, "grpc-status=0\n"));
    raw_close(&raw);
    for (size_t i = 0; i < CLIENTS; i++)
        raw_close(&raws[i]);
    assert_served(rig);
    on_loop(rig->client, do_cancel, &probe);
    assert_int_equal(probe_end(&probe), MR_RPC_CANCELLED);
    probe_done(&probe);
    rig_stop(rig);
}

/* ---- too slow ------------------------------------------------------------------------------- */

static void a_connection_that_is_not_made_in_time_is_closed(void **state)
{
    (void)state;
    struct mr_rpc_limits limits = {.handshake_ms = 200};
    struct rig *rig = rig_start(&limits, NULL);
    struct raw silent, half;
    raw_open(&silent, rig->port);
    raw_open(&half, rig->port);
    raw_bytes(&half, NGHTTP2_CLIENT_MAGIC, 10);
    (void)raw_until_closed(&silent);
    (void)raw_until_closed(&half);
    raw_close(&silent);
    raw_close(&half);
    assert_served(rig);
    rig_stop(rig);
}

/* It says something all the while, and never makes a call of it. */
static void a_head_that_comes_byte_by_byte_is_cut(void **state)
{
    (void)state;
    struct mr_rpc_limits limits = {.handshake_ms = 200, .keepalive_ms = 500};
    struct rig *rig = rig_start(&limits, NULL);
    struct raw raw;
    raw_open(&raw, rig->port);
    raw_preface(&raw);
    uint8_t head[] = {0, 0x10, 0, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS, 0, 0, 0, 1, 0, 1, 'x'};
    raw_bytes(&raw, raw.out.data, raw.out.len);
    raw_bytes(&raw, head, sizeof head);
    int cut = -1;
    for (int i = 0; cut < 0; i++) {
        char frames[256];
        assert_true(i < 1000);
        raw_bytes(&raw, "x", 1);
        let_pass(20);
        ssize_t n = recv(raw.fd, frames, sizeof frames, MSG_DONTWAIT);
        cut = n == 0 || (n < 0 && errno != EAGAIN) ? i : -1;
    }
    raw_close(&raw);
    assert_served(rig);
    rig_stop(rig);
}

static void a_head_that_was_refused_costs_no_other_call(void **state)
{
    (void)state;
    struct mr_rpc_limits limits = {.handshake_ms = 200, .keepalive_ms = 1000};
    struct rig *rig = rig_start(&limits, NULL);
    struct raw raw;
    raw_open(&raw, rig->port);
    raw_preface(&raw);
    raw_request(&raw, 1, "/t/Hang", 0, NULL);
    static char value[17000];
    memset(value, 'v', sizeof value - 1);
    const char *too_long[] = {"x-long", value, "x-end", "", NULL};
    struct mr_buf block = {0};
    for (size_t i = 0; too_long[i] != NULL; i += 2)
        raw_header(&block, too_long[i], too_long[i + 1]);
    raw_frame(&raw, NGHTTP2_HEADERS, 0, 3, mr_slice_make(block.data, 10000));
    raw_frame(&raw, NGHTTP2_CONTINUATION, NGHTTP2_FLAG_END_HEADERS, 3,
              mr_slice_make(block.data + 10000, block.len - 10000));
    mr_buf_done(&block);
    raw_flush(&raw);
    raw_until(&raw, NGHTTP2_RST_STREAM);
    assert_int_equal(raw.stream, 3);
    for (int i = 0; i < 2; i++) {
        raw_until(&raw, NGHTTP2_PING);
        raw_frame(&raw, NGHTTP2_PING, NGHTTP2_FLAG_ACK, 0, mr_slice_make(raw.payload, 8));
        raw_flush(&raw);
    }
    assert_int_equal(atomic_load(&rig->closed), 0);
    raw_close(&raw);
    rig_stop(rig);
}

static void a_peer_that_answers_no_ping_is_closed(void **state)
{
    (void)state;
    struct mr_rpc_limits limits = {.keepalive_ms = 300};
    struct rig *rig = rig_start(&limits, NULL);
    struct raw raw;
    raw_open(&raw, rig->port);
    raw_preface(&raw);
    raw_request(&raw, 1, "/t/Hang", 0, NULL);
    raw_flush(&raw);
    raw_until(&raw, NGHTTP2_PING);
    /* One answer buys one more ping. */
    raw_frame(&raw, NGHTTP2_PING, NGHTTP2_FLAG_ACK, 0, mr_slice_make(raw.payload, 8));
    raw_flush(&raw);
    raw_until(&raw, NGHTTP2_PING);
    (void)raw_until_closed(&raw);
    wait_count(&rig->closed, 1);
    assert_int_equal(atomic_load(&rig->last_status), MR_RPC_UNAVAILABLE);
    raw_close(&raw);
    /* The good client, idle all the while, answered. */
    assert_served(rig);
    rig_stop(rig);
}

/* Its bytes come all the while, so it is not silent; but what it asked for stays with us. */
static void a_peer_that_talks_and_never_reads_is_closed(void **state)
{
    (void)state;
    struct mr_rpc_limits limits = {.keepalive_ms = 500, .queued_max = 64 << 20};
    struct rig *rig = rig_start(&limits, NULL);
    static uint8_t message[1 << 20];
    struct raw raw;
    raw_open(&raw, rig->port);
    raw_preface(&raw);
    /* Windows that never stop the server, so that the socket does. */
    raw_frame(&raw, NGHTTP2_SETTINGS, NGHTTP2_FLAG_ACK, 0, (struct mr_slice){0});
    raw_frame(&raw, NGHTTP2_SETTINGS, 0, 0, mr_slice_make("\0\4\x7f\xff\xff\xff", 6));
    raw_frame(&raw, NGHTTP2_WINDOW_UPDATE, 0, 0, mr_slice_make("\x7f\0\0\0", 4));
    raw_request(&raw, 1, "/t/Echo", 0, NULL);
    for (int i = 0; i < 20; i++)
        raw_message(&raw, 1, 0, mr_slice_make(message, sizeof message), 0);
    raw_flush(&raw);
    for (int i = 0; atomic_load(&rig->closed) == 0; i++) {
        assert_true(i < 1000);
        raw_frame(&raw, NGHTTP2_PING, NGHTTP2_FLAG_ACK, 0, MR_SLICE_LIT("12345678"));
        raw_flush(&raw);
        let_pass(20);
    }
    assert_int_equal(atomic_load(&rig->last_status), MR_RPC_UNAVAILABLE);
    raw_close(&raw);
    assert_served(rig);
    rig_stop(rig);
}

static void an_idle_connection_is_given_notice_and_closed(void **state)
{
    (void)state;
    struct mr_rpc_limits limits = {.idle_ms = 30};
    struct rig *rig = rig_new(&limits, NULL);
    rig_listen(rig, "127.0.0.1:0", NULL);
    struct raw raw;
    raw_open(&raw, rig->port);
    raw_preface(&raw);
    raw_flush(&raw);
    raw_until(&raw, NGHTTP2_GOAWAY);
    assert_int_equal(raw.payload[0], 0x7f); /* no call is refused yet */
    raw_until(&raw, NGHTTP2_PING);
    /* A call that was on its way is still taken; then the last word, when the ping is answered. */
    raw_request(&raw, 1, "/t/Echo", NGHTTP2_FLAG_END_STREAM, NULL);
    raw_frame(&raw, NGHTTP2_PING, NGHTTP2_FLAG_ACK, 0, mr_slice_make(raw.payload, 8));
    raw_flush(&raw);
    raw_until(&raw, NGHTTP2_HEADERS);
    assert_non_null(strstr(raw.headers, "grpc-status=0\n"));
    assert_int_equal(raw_until_closed(&raw), NGHTTP2_NO_ERROR);
    raw_close(&raw);
    rig_stop(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_head_that_is_too_long_is_refused),
        cmocka_unit_test(a_head_that_unfolds_to_megabytes_is_refused),
        cmocka_unit_test(a_head_without_end_loses_the_connection),
        cmocka_unit_test(calls_beyond_the_limit_are_refused),
        cmocka_unit_test(floods_of_cheap_frames_lose_the_connection),
        cmocka_unit_test(received_parts_of_messages_have_a_limit),
        cmocka_unit_test(many_clients_that_read_nothing_hold_little_and_harm_nobody),
        cmocka_unit_test(heads_of_calls_count_as_memory),
        cmocka_unit_test(connections_beyond_the_limit_are_closed_at_once),
        cmocka_unit_test(connections_without_calls_make_room_for_others),
        cmocka_unit_test(a_connection_that_is_not_made_in_time_is_closed),
        cmocka_unit_test(a_head_that_comes_byte_by_byte_is_cut),
        cmocka_unit_test(a_head_that_was_refused_costs_no_other_call),
        cmocka_unit_test(a_peer_that_answers_no_ping_is_closed),
        cmocka_unit_test(a_peer_that_talks_and_never_reads_is_closed),
        cmocka_unit_test(an_idle_connection_is_given_notice_and_closed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
