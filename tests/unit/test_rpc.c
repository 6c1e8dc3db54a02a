/* SPDX-License-Identifier: Apache-2.0 */
/* Calls between our own client and server, over real sockets. */
#include "rpc/rpc.h"
#include "unit/rpc_rig.h"

/* ---- shapes of calls ------------------------------------------------------------------------ */

static void a_unary_call_is_answered_with_its_status(void **state)
{
    (void)state;
    struct rig *rig = rig_start(NULL, NULL);
    struct probe probe;
    probe_begin(rig, &probe, "/t/Echo", 0);
    probe_send(&probe, "hello");
    probe_half_close(&probe);
    assert_int_equal(probe_end(&probe), MR_RPC_OK);
    assert_int_equal(probe.messages, 1);
    assert_last(&probe, "hello");
    probe_done(&probe);
    rig_stop(rig);
}

static void empty_messages_and_calls_without_any_pass(void **state)
{
    (void)state;
    struct rig *rig = rig_start(NULL, NULL);
    struct probe probe;
    probe_begin(rig, &probe, "/t/Echo", 0);
    probe_send(&probe, "");
    probe_send(&probe, "");
    probe_half_close(&probe);
    assert_int_equal(probe_end(&probe), MR_RPC_OK);
    assert_int_equal(probe.messages, 2);
    probe_begin(rig, &probe, "/t/Echo", 0);
    probe_half_close(&probe);
    assert_int_equal(probe_end(&probe), MR_RPC_OK);
    assert_int_equal(probe.messages, 0);
    rig_stop(rig);
}

static void a_client_streams_and_gets_one_answer(void **state)
{
    (void)state;
    struct rig *rig = rig_start(NULL, NULL);
    struct probe probe;
    probe_begin(rig, &probe, "/t/Sum", 0);
    assert_int_equal(probe_send_times(&probe, MR_SLICE_LIT("12345678"), 10000), MR_OK);
    probe_half_close(&probe);
    assert_int_equal(probe_end(&probe), MR_RPC_OK);
    assert_last(&probe, "10000 messages, 80000 bytes");
    probe_done(&probe);
    rig_stop(rig);
}

static void a_server_streams_more_than_the_windows_hold(void **state)
{
    (void)state;
    struct rig *rig = rig_start(NULL, NULL);
    struct probe probe;
    probe_begin(rig, &probe, "/t/Count", 0);
    probe_send(&probe, "20000 1000");
    assert_int_equal(probe_end(&probe), MR_RPC_OK);
    assert_int_equal(probe.messages, 20000);
    assert_int_equal(probe.bytes, 20000000);
    /* It waited for writable instead of queuing everything. */
    assert_true(rig->queued_most <= MR_CALL_QUEUED_HIGH + 1005);
    probe_done(&probe);
    rig_stop(rig);
}

static void both_sides_stream_at_the_same_time(void **state)
{
    (void)state;
    struct rig *rig = rig_start(NULL, NULL);
    struct probe probe;
    probe_begin(rig, &probe, "/t/Echo", 0);
    for (size_t i = 1; i <= 50; i++) {
        assert_int_equal(probe_send_times(&probe, MR_SLICE_LIT("ping"), 100), MR_OK);
        wait_count(&probe.messages, 100 * i);
    }
    probe_half_close(&probe);
    assert_int_equal(probe_end(&probe), MR_RPC_OK);
    assert_int_equal(probe.messages, 5000);
    probe_done(&probe);
    rig_stop(rig);
}

static void large_messages_cross_frames_whole(void **state)
{
    (void)state;
    struct rig *rig = rig_start(NULL, NULL);
    size_t len = 3 * 1024 * 1024 + 17;
    char *text = malloc(len + 1);
    assert_non_null(text);
    for (size_t i = 0; i < len; i++)
        text[i] = (char)('a' + i % 23);
    text[len] = '\0';
    struct probe probe;
    probe_begin(rig, &probe, "/t/Echo", 0);
    probe_send(&probe, text);
    probe_send(&probe, "x");
    probe_send(&probe, text);
    probe_half_close(&probe);
    assert_int_equal(probe_end(&probe), MR_RPC_OK);
    assert_int_equal(probe.messages, 3);
    assert_last(&probe, text);
    free(text);
    probe_done(&probe);
    rig_stop(rig);
}

/* ---- many calls ----------------------------------------------------------------------------- */

enum { PIPELINED = 100000 };

struct flood {
    struct rig *rig;
    size_t good;
    _Atomic size_t ended;
};

static void flood_message(struct mr_call *call, struct mr_slice bytes)
{
    struct flood *flood = mr_call_data(call);
    flood->good += mr_slice_equal(bytes, MR_SLICE_LIT("payload"));
}

static void flood_closed(struct mr_call *call, int status, struct mr_slice text)
{
    (void)text;
    struct flood *flood = mr_call_data(call);
    mr_assert(status == MR_RPC_OK);
    atomic_fetch_add(&flood->ended, 1);
}

static const struct mr_call_ops flood_ops = {.message = flood_message, .closed = flood_closed};

static void start_flood(void *arg)
{
    struct flood *flood = arg;
    for (size_t i = 0; i < PIPELINED; i++) {
        struct mr_call *call;
        mr_assert(mr_channel_call(flood->rig->channel, "/t/Echo", 0, &flood_ops, flood, &call) ==
                  MR_OK);
        mr_assert(mr_call_send(call, MR_SLICE_LIT("payload")) == MR_OK);
        mr_call_half_close(call);
    }
}

static void a_hundred_thousand_calls_begun_at_once_are_all_answered(void **state)
{
    (void)state;
    struct rig *rig = rig_start(NULL, NULL);
    struct flood flood = {.rig = rig};
    on_loop(rig->client, start_flood, &flood);
    wait_count(&flood.ended, PIPELINED);
    assert_int_equal(flood.good, PIPELINED);
    rig_stop(rig);
}

enum { GIVEN_UP = 1000 };

static void all_calls_of_a_connection_may_be_given_up_at_once(void **state)
{
    (void)state;
    struct rig *rig = rig_start(NULL, NULL);
    struct probe *probes = calloc(GIVEN_UP, sizeof *probes);
    assert_non_null(probes);
    for (size_t round = 1; round <= 2; round++) {
        for (size_t i = 0; i < GIVEN_UP; i++)
            probe_begin(rig, &probes[i], "/t/Hang", 0);
        wait_count(&rig->begun, round * GIVEN_UP);
        for (size_t i = 0; i < GIVEN_UP; i++)
            on_loop(rig->client, do_cancel, &probes[i]);
        wait_count(&rig->closed, round * GIVEN_UP);
        assert_int_equal(atomic_load(&rig->last_status), MR_RPC_CANCELLED);
    }
    assert_int_equal(atomic_load(&rig->ups), 1);
    free(probes);
    rig_stop(rig);
}

static void more_calls_than_a_channel_may_have_are_refused(void **state)
{
    (void)state;
    struct mr_rpc_limits limits = {.client_calls_max = 3};
    struct rig *rig = rig_start(NULL, &limits);
    struct probe probes[4];
    for (int i = 0; i < 3; i++)
        probe_begin(rig, &probes[i], "/t/Hang", 0);
    probes[3] = (struct probe){.rig = rig, .path = "/t/Hang"};
    on_loop(rig->client, do_begin, &probes[3]);
    assert_int_equal(probes[3].err, MR_BUSY);
    on_loop(rig->client, do_cancel, &probes[0]);
    assert_int_equal(probe_end(&probes[0]), MR_RPC_CANCELLED);
    probe_begin(rig, &probes[3], "/t/Hang", 0);
    rig_stop(rig);
}

/* ---- statuses and metadata ------------------------------------------------------------------ */

static void status_text_and_trailer_arrive_byte_for_byte(void **state)
{
    (void)state;
    struct rig *rig = rig_start(NULL, NULL);
    struct probe probe;
    probe_begin(rig, &probe, "/t/Fail", 0);
    probe_send(&probe, " na\xc3\xafve 100% \n\"done\" ");
    assert_int_equal(probe_end(&probe), 9);
    assert_string_equal(probe.text, " na\xc3\xafve 100% \n\"done\" ");
    assert_string_equal(probe.trailer, "seventeen");
    rig_stop(rig);
}

static void metadata_of_the_client_reaches_the_method(void **state)
{
    (void)state;
    struct rig *rig = rig_start(NULL, NULL);
    struct probe probe;
    probe_begin(rig, &probe, "/t/Meta", 0);
    probe_send(&probe, "authorization");
    assert_int_equal(probe_end(&probe), MR_RPC_OK);
    assert_last(&probe, "Bearer sesame");
    probe_done(&probe);
    probe_begin(rig, &probe, "/t/Meta", 0);
    probe_send(&probe, "x-absent");
    assert_int_equal(probe_end(&probe), MR_RPC_OK);
    assert_last(&probe, "");
    probe_done(&probe);
    rig_stop(rig);
}

static void a_method_can_end_a_call_when_it_begins(void **state)
{
    (void)state;
    struct rig *rig = rig_start(NULL, NULL);
    struct probe probe;
    probe_begin(rig, &probe, "/t/Refuse", 0);
    /* The client goes on sending; what it sends is dropped, and nothing breaks. */
    (void)!probe_send_times(&probe, MR_SLICE_LIT("more and more"), 1000);
    assert_int_equal(probe_end(&probe), MR_RPC_UNAUTHENTICATED);
    assert_string_equal(probe.text, "who are you?");
    probe_begin(rig, &probe, "/t/Nowhere", 0);
    assert_int_equal(probe_end(&probe), MR_RPC_UNIMPLEMENTED);
    probe_begin(rig, &probe, "/t/Echo", 0);
    probe_half_close(&probe);
    assert_int_equal(probe_end(&probe), MR_RPC_OK);
    rig_stop(rig);
}

/* ---- the end before the end ----------------------------------------------------------------- */

static void a_deadline_ends_a_call_on_both_sides(void **state)
{
    (void)state;
    struct rig *rig = rig_start(NULL, NULL);
    struct probe probe;
    int64_t begin = mr_mono_now(mr_clock_system()).ns;
    probe_begin(rig, &probe, "/t/Hang", 50);
    probe_send(&probe, "wait for me");
    assert_int_equal(probe_end(&probe), MR_RPC_DEADLINE);
    assert_true(mr_mono_now(mr_clock_system()).ns - begin >= 50 * MR_NS_PER_MS);
    wait_count(&rig->closed, 1);
    /* Whose clock was first does not matter. */
    int status = atomic_load(&rig->last_status);
    assert_true(status == MR_RPC_DEADLINE || status == MR_RPC_CANCELLED);
    rig_stop(rig);
}

static void time_asleep_does_not_count_against_a_deadline(void **state)
{
    (void)state;
    struct rig *rig = rig_start(NULL, NULL);
    let_pass(1200);
    struct probe probe;
    probe_begin(rig, &probe, "/t/Echo", 1000);
    probe_send(&probe, "quick");
    probe_half_close(&probe);
    assert_int_equal(probe_end(&probe), MR_RPC_OK);
    probe_done(&probe);
    rig_stop(rig);
}

static void a_cancelled_call_is_closed_on_both_sides(void **state)
{
    (void)state;
    struct rig *rig = rig_start(NULL, NULL);
    struct probe probe;
    probe_begin(rig, &probe, "/t/Hang", 0);
    probe_send(&probe, "x");
    wait_count(&rig->received, 1);
    on_loop(rig->client, do_cancel, &probe);
    assert_int_equal(probe_end(&probe), MR_RPC_CANCELLED);
    wait_count(&rig->closed, 1);
    assert_int_equal(atomic_load(&rig->last_status), MR_RPC_CANCELLED);
    rig_stop(rig);
}

static void a_call_cancelled_before_it_left_never_reaches_the_server(void **state)
{
    (void)state;
    struct mr_rpc_limits limits = {.calls_max = 1};
    struct rig *rig = rig_start(&limits, NULL);
    struct probe first, second, third;
    probe_begin(rig, &first, "/t/Hang", 0);
    wait_count(&rig->begun, 1);
    probe_begin(rig, &second, "/t/Hang", 0);
    probe_begin(rig, &third, "/t/Echo", 0);
    probe_send(&third, "x");
    probe_half_close(&third);
    on_loop(rig->client, do_cancel, &second);
    assert_int_equal(probe_end(&second), MR_RPC_CANCELLED);
    on_loop(rig->client, do_cancel, &first);
    assert_int_equal(probe_end(&first), MR_RPC_CANCELLED);
    assert_int_equal(probe_end(&third), MR_RPC_OK);
    assert_int_equal(atomic_load(&rig->begun), 2);
    probe_done(&third);
    rig_stop(rig);
}

static void freeing_a_channel_closes_its_calls(void **state)
{
    (void)state;
    struct rig *rig = rig_start(NULL, NULL);
    struct probe probe;
    probe_begin(rig, &probe, "/t/Hang", 0);
    probe_send(&probe, "x");
    wait_count(&rig->received, 1);
    mr_channel_free(rig->channel);
    rig->channel = NULL;
    assert_true(mr_event_is_set(&probe.closed));
    assert_int_equal(probe.status, MR_RPC_CANCELLED);
    wait_count(&rig->closed, 1);
    assert_int_equal(atomic_load(&rig->last_status), MR_RPC_UNAVAILABLE);
    rig_stop(rig);
}

/* ---- back-pressure -------------------------------------------------------------------------- */

static void release_held(void *arg)
{
    struct rig *rig = arg;
    atomic_store(&rig->hold, false);
    if (rig->held != NULL)
        mr_call_hold(rig->held, false);
}

static void do_queued(void *arg)
{
    struct probe *probe = arg;
    probe->times = mr_call_queued(probe->call);
}

static void a_held_call_takes_one_window_and_no_more(void **state)
{
    (void)state;
    struct rig *rig = rig_start(NULL, NULL);
    atomic_store(&rig->hold, true);
    struct probe probe, other;
    probe_begin(rig, &probe, "/t/Sum", 0);
    char block[1000];
    memset(block, 'x', sizeof block);
    assert_int_equal(probe_send_times(&probe, mr_slice_make(block, sizeof block), 8000), MR_OK);
    wait_count(&rig->received, 1);
    /* Another call of the same connection is not stopped by it, and its answer says that the
     * server has taken everything it will take by now. */
    for (int i = 0; i < 20; i++) {
        probe_begin(rig, &other, "/t/Echo", 0);
        probe_send(&other, "x");
        probe_half_close(&other);
        assert_int_equal(probe_end(&other), MR_RPC_OK);
        probe_done(&other);
    }
    assert_int_equal(atomic_load(&rig->received_bytes), 1000);
    /* 8 MB were queued; all but the stream's window must still be with the client. */
    on_loop(rig->client, do_queued, &probe);
    assert_true(probe.times > 8000 * 1005 - (1 << 20) - 65536);
    on_loop(rig->server, release_held, rig);
    wait_count(&rig->received, 8000);
    wait_count(&probe.writables, 1);
    probe_half_close(&probe);
    assert_int_equal(probe_end(&probe), MR_RPC_OK);
    assert_last(&probe, "8000 messages, 8000000 bytes");
    probe_done(&probe);
    rig_stop(rig);
}

static void a_slow_reader_does_not_make_the_server_grow(void **state)
{
    (void)state;
    struct rig *rig = rig_start(NULL, NULL);
    struct probe probe;
    probe_begin(rig, &probe, "/t/Count", 0);
    probe.hold = true;
    probe_send(&probe, "50000 1000");
    wait_count(&probe.messages, 1);
    struct probe other;
    probe_begin(rig, &other, "/t/Echo", 0);
    probe_send(&other, "x");
    probe_half_close(&other);
    assert_int_equal(probe_end(&other), MR_RPC_OK);
    probe_done(&other);
    assert_int_equal(probe.messages, 1);
    assert_quiet();
    on_loop(rig->client, do_release, &probe);
    assert_int_equal(probe_end(&probe), MR_RPC_OK);
    assert_int_equal(probe.messages, 50000);
    assert_true(atomic_load(&rig->queued_most) <= MR_CALL_QUEUED_HIGH + 1005);
    probe_done(&probe);
    rig_stop(rig);
}

static void messages_held_at_the_end_are_delivered_before_closed(void **state)
{
    (void)state;
    struct rig *rig = rig_start(NULL, NULL);
    struct probe probe;
    probe_begin(rig, &probe, "/t/Count", 0);
    probe.hold = true;
    probe_send(&probe, "10 5");
    wait_count(&rig->closed, 1); /* the server has sent everything and its end */
    wait_count(&probe.messages, 1);
    assert_false(mr_event_is_set(&probe.closed));
    on_loop(rig->client, do_release, &probe);
    assert_int_equal(probe_end(&probe), MR_RPC_OK);
    assert_int_equal(probe.messages, 10);
    probe_done(&probe);
    /* And such a call can be given up. */
    probe_begin(rig, &probe, "/t/Count", 0);
    probe.hold = true;
    probe_send(&probe, "10 5");
    wait_count(&rig->closed, 2);
    wait_count(&probe.messages, 1);
    on_loop(rig->client, do_cancel, &probe);
    assert_int_equal(probe_end(&probe), MR_RPC_CANCELLED);
    probe_done(&probe);
    rig_stop(rig);
}

/* ---- limits --------------------------------------------------------------------------------- */

static void a_message_over_the_limit_is_refused_and_the_connection_lives(void **state)
{
    (void)state;
    struct mr_rpc_limits limits = {.message_max = 1000};
    struct rig *rig = rig_start(&limits, NULL);
    char block[1001];
    memset(block, 'x', sizeof block);
    struct probe probe;
    probe_begin(rig, &probe, "/t/Echo", 0);
    assert_int_equal(probe_send_times(&probe, mr_slice_make(block, 1000), 1), MR_OK);
    wait_count(&probe.messages, 1);
    assert_int_equal(probe_send_times(&probe, mr_slice_make(block, 1001), 1), MR_OK);
    assert_int_equal(probe_end(&probe), MR_RPC_EXHAUSTED);
    assert_string_equal(probe.text, "message of 1001 bytes, at most 1000 are taken");
    assert_int_equal(atomic_load(&rig->ups), 1);
    wait_count(&rig->closed, 1);
    assert_int_equal(atomic_load(&rig->last_status), MR_RPC_EXHAUSTED);
    probe_done(&probe);
    rig_stop(rig);
}

static void a_client_refuses_a_message_over_its_limit(void **state)
{
    (void)state;
    struct mr_rpc_limits limits = {.message_max = 1000};
    struct rig *rig = rig_start(NULL, &limits);
    struct probe probe;
    probe_begin(rig, &probe, "/t/Count", 0);
    probe_send(&probe, "3 1001");
    assert_int_equal(probe_end(&probe), MR_RPC_EXHAUSTED);
    assert_int_equal(probe.messages, 0);
    rig_stop(rig);
}

static void a_peer_that_takes_nothing_loses_its_connection(void **state)
{
    (void)state;
    struct mr_rpc_limits limits = {.queued_max = 200000};
    struct rig *rig = rig_start(&limits, NULL);
    struct probe probe;
    probe_begin(rig, &probe, "/t/Echo", 0);
    probe.hold = true;
    char block[10000];
    memset(block, 'x', sizeof block);
    /* The echo goes beyond the client's window; the server's queue is full soon after. */
    (void)!probe_send_times(&probe, mr_slice_make(block, sizeof block), 1000);
    assert_int_equal(probe_end(&probe), MR_RPC_UNAVAILABLE);
    wait_count(&rig->ups, 2);
    probe_done(&probe);
    rig_stop(rig);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_unary_call_is_answered_with_its_status),
        cmocka_unit_test(empty_messages_and_calls_without_any_pass),
        cmocka_unit_test(a_client_streams_and_gets_one_answer),
        cmocka_unit_test(a_server_streams_more_than_the_windows_hold),
        cmocka_unit_test(both_sides_stream_at_the_same_time),
        cmocka_unit_test(large_messages_cross_frames_whole),
        cmocka_unit_test(a_hundred_thousand_calls_begun_at_once_are_all_answered),
        cmocka_unit_test(all_calls_of_a_connection_may_be_given_up_at_once),
        cmocka_unit_test(more_calls_than_a_channel_may_have_are_refused),
        cmocka_unit_test(status_text_and_trailer_arrive_byte_for_byte),
        cmocka_unit_test(metadata_of_the_client_reaches_the_method),
        cmocka_unit_test(a_method_can_end_a_call_when_it_begins),
        cmocka_unit_test(a_deadline_ends_a_call_on_both_sides),
        cmocka_unit_test(time_asleep_does_not_count_against_a_deadline),
        cmocka_unit_test(a_cancelled_call_is_closed_on_both_sides),
        cmocka_unit_test(a_call_cancelled_before_it_left_never_reaches_the_server),
        cmocka_unit_test(freeing_a_channel_closes_its_calls),
        cmocka_unit_test(a_held_call_takes_one_window_and_no_more),
        cmocka_unit_test(a_slow_reader_does_not_make_the_server_grow),
        cmocka_unit_test(messages_held_at_the_end_are_delivered_before_closed),
        cmocka_unit_test(a_message_over_the_limit_is_refused_and_the_connection_lives),
        cmocka_unit_test(a_client_refuses_a_message_over_its_limit),
        cmocka_unit_test(a_peer_that_takes_nothing_loses_its_connection),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
