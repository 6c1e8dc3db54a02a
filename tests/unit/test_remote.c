/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The remote engine when things go wrong between it and its server: cut connections, lost answers,
 * restarts, refusals. What it does when all is well is the conformance suite's.
 */
#include "api/api.h"
#include "unit/remote_rig.h"

/* ---- nodes ---------------------------------------------------------------------------------- */

static void a_node_comes_back_and_keeps_its_leases(void **state)
{
    struct world *w = *state;
    open_node(w);
    put_id(w, "a");
    put_id(w, "b");
    struct mr_lease *leases = take(w, 2, 2);
    mr_broker_begun(w->far, w->first_slot, leases->epoch);
    for (int i = 0; i < 3; i++) {
        forwarder_cut(&w->network);
        assert_int_equal(beat(w), MR_OK);
    }
    assert_int_equal(finish(w, leases), MR_OK);
    assert_int_equal(finish(w, leases->next), MR_OK);
    assert_int_equal(w->stops_n, 0);
    assert_int_equal(task_of(w, "a").crashes, 0);
    assert_int_equal(state_of(w, "b"), MR_COMPLETED);
    mr_lease_free(leases->next);
    mr_lease_free(leases);
}

static void what_is_asked_while_away_waits(void **state)
{
    struct world *w = *state;
    struct flight taking, finishing;
    open_node(w);
    put_id(w, "a");
    struct mr_lease *lease = take(w, 1, 1);
    w->network.refuse = true;
    forwarder_cut(&w->network);
    take_start(w, &taking, 1);
    finish_start(w, &finishing, lease);
    assert_false(mr_event_wait(&finishing.done, 100 * MR_NS_PER_MS));
    assert_false(mr_event_is_set(&taking.done));
    w->network.refuse = false;
    assert_int_equal(flight_end(&finishing), MR_OK);
    assert_int_equal(finishing.err, MR_OK);
    put_id(w, "b");
    assert_int_equal(flight_end(&taking), MR_OK);
    mr_lease_free(taking.take.leases);
    mr_lease_free(lease);
}

static void a_finish_whose_answer_was_lost_counts_once_and_is_fine(void **state)
{
    struct world *w = *state;
    struct flight finishing;
    open_node(w);
    put_id(w, "a");
    struct mr_lease *lease = take(w, 1, 1);
    w->network.mute = true;
    finish_start(w, &finishing, lease);
    WAIT_UNTIL(state_of(w, "a") == MR_COMPLETED);
    forwarder_cut(&w->network);
    w->network.mute = false;
    assert_int_equal(flight_end(&finishing), MR_OK);
    assert_int_equal(finishing.err, MR_OK);
    mr_lease_free(lease);
}

static void tasks_lost_on_their_way_come_again(void **state)
{
    struct world *w = *state;
    struct flight taking;
    open_node(w);
    put_id(w, "a");
    w->network.mute = true;
    take_start(w, &taking, 1);
    WAIT_UNTIL(state_of(w, "a") == MR_ACTIVE);
    uint64_t lost = task_of(w, "a").epoch;
    forwarder_cut(&w->network);
    w->network.mute = false;
    assert_int_equal(flight_end(&taking), MR_OK);
    assert_true(taking.take.leases->epoch > lost);
    assert_int_equal(mr_broker_lease_open(w->far, taking.take.leases), MR_OK);
    assert_int_equal(taking.take.leases->task.attempt, 1);
    assert_int_equal(finish(w, taking.take.leases), MR_OK);
    mr_lease_free(taking.take.leases);
}

static void a_node_that_cannot_come_back_in_time_fences_itself(void **state)
{
    struct world *w = *state;
    struct flight taking;
    assert_int_equal(try_open_node(w, 300), MR_OK); /* the grace is never above it */
    put_id(w, "a");
    struct mr_lease *lease = take(w, 1, 1);
    take_start(w, &taking, 1);
    w->network.refuse = true;
    forwarder_cut(&w->network);
    WAIT_UNTIL(w->stops_n == 1);
    assert_int_equal(w->stops[0], lease->epoch);
    assert_int_equal(flight_end(&taking), MR_CLOSED);
    assert_int_equal(beat(w), MR_NOT_FOUND);
    assert_int_equal(finish(w, lease), MR_UNAVAILABLE);
    assert_int_equal(try_open_node(w, 300), MR_UNAVAILABLE);
    WAIT_UNTIL(state_of(w, "a") == MR_PENDING);
    w->network.refuse = false;
    WAIT_UNTIL(finish(w, lease) == MR_STALE);
    mr_lease_free(lease);
}

static void a_server_that_forgot_a_node_costs_it_its_leases_only(void **state)
{
    struct world *w = *state;
    open_node(w);
    put_id(w, "a");
    struct mr_lease *lease = take(w, 1, 1);
    stop_server(w);
    start_server(w);
    WAIT_UNTIL(w->stops_n == 1);
    assert_int_equal(w->stops[0], lease->epoch);
    assert_int_equal(finish(w, lease), MR_STALE);
    struct mr_lease *again = take(w, 1, 1);
    assert_true(again->epoch > lease->epoch);
    assert_int_equal(finish(w, again), MR_OK);
    mr_lease_free(lease);
    mr_lease_free(again);
}

static void a_lost_node_counts_only_the_runs_it_began(void **state)
{
    struct world *w = *state;
    assert_int_equal(try_open_node(w, 300), MR_OK);
    put_id(w, "a");
    put_id(w, "b");
    struct mr_lease *leases = take(w, 2, 2);
    mr_broker_begun(w->far, w->first_slot, leases->epoch);
    assert_int_equal(beat(w), MR_OK);
    w->network.refuse = true;
    forwarder_cut(&w->network);
    WAIT_UNTIL(state_of(w, "a") == MR_PENDING && state_of(w, "b") == MR_PENDING);
    assert_int_equal(task_of(w, "a").crashes, 1);
    assert_int_equal(task_of(w, "b").crashes, 0);
    mr_lease_free(leases->next);
    mr_lease_free(leases);
}

/* Without a beat or anything else that would take it along. How long "at once" takes is the
 * machine's business, but a run that is not said by itself is never said here. */
static void a_begun_run_is_said_at_once(void **state)
{
    struct world *w = *state;
    int64_t patience_ms = 10;
    put_id(w, "a");
    do {
        assert_int_equal(try_open_node(w, 300), MR_OK); /* the grace is never above it */
        struct mr_lease *lease = take(w, 1, 1);
        mr_broker_begun(w->far, w->first_slot, lease->epoch);
        (void)poll(NULL, 0, (int)patience_ms);
        w->network.refuse = true;
        forwarder_cut(&w->network);
        WAIT_UNTIL(state_of(w, "a") == MR_PENDING);
        w->network.refuse = false;
        WAIT_UNTIL(finish(w, lease) == MR_STALE);
        mr_lease_free(lease);
        patience_ms *= 2;
    } while (task_of(w, "a").crashes == 0 && patience_ms < WAIT_MS);
    assert_int_equal(task_of(w, "a").crashes, 1);
}

static void a_server_that_stops_has_crashed_nobody(void **state)
{
    struct world *w = *state;
    put_id(w, "a");
    open_node(w);
    struct mr_lease *lease = take(w, 1, 1);
    mr_broker_begun(w->far, w->first_slot, lease->epoch);
    assert_int_equal(beat(w), MR_OK); /* goes behind it */
    server_rig_stop(&w->server, 0);
    WAIT_UNTIL(state_of(w, "a") == MR_PENDING);
    assert_int_equal(task_of(w, "a").crashes, 0);
    mr_lease_free(lease);
}

/* ---- producing ------------------------------------------------------------------------------ */

static void a_task_not_sent_waits_for_the_server(void **state)
{
    struct world *w = *state;
    struct flight flight;
    stop_server(w);
    enqueue_start(w, &flight, (struct mr_task_options){.payload = MR_SLICE_LIT("x")});
    assert_false(mr_event_wait(&flight.done, 50 * MR_NS_PER_MS));
    start_server(w);
    assert_int_equal(flight_end(&flight), MR_OK);
    assert_int_equal(flight.result.err, MR_OK);
    assert_int_equal(tasks_in_store(w), 1);
}

static void a_task_does_not_wait_for_ever(void **state)
{
    struct world *w = *state;
    struct flight flight;
    w->network.refuse = true;
    forwarder_cut(&w->network);
    WAIT_UNTIL(look(w) == MR_UNAVAILABLE); /* others fail at once */
    enqueue_start(w, &flight, (struct mr_task_options){.payload = MR_SLICE_LIT("x")});
    assert_int_equal(flight_end(&flight), MR_UNAVAILABLE);
    struct mr_enqueue_result result;
    assert_int_equal(put(w->far, &flight.task, &result), MR_UNAVAILABLE);
    w->network.refuse = false;
    WAIT_UNTIL(put(w->far, &flight.task, &result) == MR_OK);
    assert_int_equal(tasks_in_store(w), 1);
}

static void a_task_whose_answer_was_lost_is_in_doubt(void **state)
{
    struct world *w = *state;
    struct flight flight;
    w->network.mute = true;
    enqueue_start(w, &flight, (struct mr_task_options){.payload = MR_SLICE_LIT("x")});
    WAIT_UNTIL(tasks_in_store(w) == 1);
    forwarder_cut(&w->network);
    w->network.mute = false;
    assert_int_equal(flight_end(&flight), MR_UNAVAILABLE);
    assert_int_equal(flight.result.err, MR_UNAVAILABLE);
    assert_int_equal(state_of(w, flight.result.id), MR_PENDING); /* the id to ask for is there */
    assert_int_equal(tasks_in_store(w), 1);
}

static void a_task_that_leaves_a_trace_is_sent_again(void **state)
{
    struct world *w = *state;
    struct flight flight;
    struct mr_enqueue_result result;
    struct mr_task_options task = {.payload = MR_SLICE_LIT("x"), .retention_ms = 3600000};
    w->network.mute = true;
    enqueue_start(w, &flight, task);
    WAIT_UNTIL(tasks_in_store(w) == 1);
    forwarder_cut(&w->network);
    w->network.mute = false;
    assert_int_equal(flight_end(&flight), MR_OK);
    assert_int_equal(flight.result.err, MR_OK);
    assert_int_equal(flight.result.state, MR_PENDING);
    assert_int_equal(state_of(w, flight.result.id), MR_PENDING);
    assert_int_equal(tasks_in_store(w), 1);
    /* A conflict with an id of the caller's is still one. */
    task.id = mr_slice_str(flight.result.id);
    assert_int_equal(put(w->far, &task, &result), MR_OK);
    assert_int_equal(result.err, MR_CONFLICT);
}

static void big_batches_pass_in_several_messages(void **state)
{
    struct world *w = *state;
    enum { N = 40, BYTES = 1024 * 1024 };
    char *payload = malloc(BYTES);
    struct mr_task_options tasks[N];
    struct mr_enqueue_result results[N];
    memset(payload, 'p', BYTES);
    for (size_t i = 0; i < N; i++)
        tasks[i] = (struct mr_task_options){.payload = {payload, BYTES}};
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = tasks, .n = N, .results = results};
    assert_int_equal(mr_broker_call(w->far, &req.req), MR_OK);
    mr_req_done(&req.req);
    open_node(w);
    for (size_t taken = 0; taken < N;) {
        struct flight flight;
        take_start(w, &flight, N);
        assert_int_equal(flight_end(&flight), MR_OK);
        for (struct mr_lease *lease = flight.take.leases, *next; lease != NULL; lease = next) {
            next = lease->next;
            assert_int_equal(mr_broker_lease_open(w->far, lease), MR_OK);
            assert_int_equal(lease->task.payload.len, BYTES);
            assert_memory_equal(lease->task.id.data, results[taken].id, lease->task.id.len);
            assert_int_equal(finish(w, lease), MR_OK);
            mr_lease_free(lease);
            taken++;
        }
    }
    free(payload);
}

/* One of many that shared a message may not be there: the others do not suffer. */
static void a_refused_task_hurts_no_other(void **state)
{
    struct world *w = *state;
    enum { N = 64 };
    static struct flight flights[N];
    struct mr_tokens *tokens;
    struct mr_token wanted = {.role = MR_ROLE_PRODUCER, .queue = "mine*"}, made;
    char text[MR_TOKEN_TEXT_LEN + 1];
    assert_int_equal(mr_tokens_open(w->dir, NULL, &tokens, NULL), MR_OK);
    assert_int_equal(mr_tokens_create(tokens, &wanted, &made, text, NULL), MR_OK);
    mr_broker_close(w->far);
    stop_server(w);
    w->server.access = (struct mr_access){.mode = MR_ACCESS_TOKENS, .tokens = tokens};
    start_server(w);
    open_far(w, text);
    for (size_t i = 0; i < N; i++)
        enqueue_start(w, &flights[i],
                      (struct mr_task_options){.queue = i % 16 == 5 ? MR_SLICE_LIT("yours")
                                                                    : MR_SLICE_LIT("mine")});
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(flight_end(&flights[i]), MR_OK);
        assert_int_equal(flights[i].result.err, i % 16 == 5 ? MR_DENIED : MR_OK);
        assert_int_equal(strlen(flights[i].result.id), MR_UUID_TEXT_LEN);
    }
    assert_refusal(w, MR_DENIED, "is for queues mine*, not for yours");
    assert_int_equal(tasks_in_store(w), N - N / 16);
    mr_broker_close(w->far);
    server_rig_stop(&w->server, 0);
    mr_tokens_free(tokens);
    w->server.access = (struct mr_access){0};
    assert_int_equal(server_rig_start(&w->server, w->store), MR_OK);
    w->network.to = w->server.port;
    open_far(w, NULL);
}

/* The client's own limit is above what the server takes at all. */
static void a_task_too_big_for_the_server_hurts_no_other(void **state)
{
    struct world *w = *state;
    enum { N = 9, BYTES = 8 * 1024 * 1024 };
    static struct flight flights[N];
    char *payload = calloc(1, BYTES);
    mr_broker_close(w->far);
    w->payload_max = MR_PAYLOAD_HARD_MAX;
    open_far(w, NULL);
    for (size_t i = 0; i < N; i++)
        enqueue_start(w, &flights[i],
                      (struct mr_task_options){.payload = {payload, i % 3 == 1 ? BYTES : 1000}});
    for (size_t i = 0; i < N; i++) {
        enum mr_err want = i % 3 == 1 ? MR_TOO_BIG : MR_OK;
        assert_int_equal(flight_end(&flights[i]), want);
        assert_int_equal(flights[i].result.err, want);
    }
    assert_refusal(w, MR_TOO_BIG, "over the server's limit");
    assert_int_equal(tasks_in_store(w), N - N / 3);
    free(payload);
}

static enum mr_err get_nowhere(struct world *w)
{
    struct mr_req_get get = {.req.op = MR_OP_GET, .id = MR_SLICE_LIT("nowhere")};
    enum mr_err err = mr_broker_call(w->far, &get.req);
    mr_req_done(&get.req);
    return err;
}

static void a_refused_look_says_why(void **state)
{
    struct world *w = *state;
    assert_int_equal(get_nowhere(w), MR_NOT_FOUND);
    assert_refusal(w, MR_NOT_FOUND, "task nowhere: not found");
}

/* ---- opening and closing -------------------------------------------------------------------- */

static void opening_says_where_nobody_answers(void **state)
{
    struct world *w = *state;
    struct mr_detail detail = {.text = ""};
    struct mr_broker *broker = NULL;
    char address[64];
    (void)snprintf(address, sizeof address, "127.0.0.1:%u", w->server.port);
    stop_server(w);
    struct mr_remote_options options = {.address = address, .open_ms = 50};
    assert_int_equal(mr_remote_open(&options, &broker, &detail), MR_UNAVAILABLE);
    assert_null(broker);
    assert_non_null(strstr(detail.text, address));
    assert_non_null(strstr(detail.text, "no server at"));
    start_server(w);
}

static enum mr_err open_namespace(struct world *w, const char *name, struct mr_detail *detail)
{
    char address[64];
    (void)snprintf(address, sizeof address, "127.0.0.1:%u", w->network.port);
    struct mr_remote_options options = {
        .address = address, .open_ms = WAIT_MS, .namespace_ = mr_slice_str(name)};
    return mr_remote_open(&options, &w->far, detail);
}

static void a_server_of_another_namespace_is_not_taken_for_ours(void **state)
{
    struct world *w = *state;
    struct mr_detail detail = {.text = ""};
    enum mr_err err;
    mr_broker_close(w->far);
    w->far = NULL;
    assert_int_equal(open_namespace(w, "blue", &detail), MR_INVALID);
    assert_string_equal(detail.text, "this server has no namespace but the default one, not blue");
    stop_server(w);
    w->server.namespace_ = "gr\xc3\xbcn %1";
    start_server(w);
    assert_int_equal(open_namespace(w, "blue", &detail), MR_INVALID);
    assert_null(w->far);
    assert_int_equal(open_namespace(w, "", &detail), MR_OK); /* whichever it has */
    mr_broker_close(w->far);
    assert_int_equal(open_namespace(w, "gr\xc3\xbcn %1", &detail), MR_OK);
    assert_int_equal(get_nowhere(w), MR_NOT_FOUND);
    stop_server(w);
    w->server.namespace_ = "blue"; /* started again, on another store */
    start_server(w);
    WAIT_UNTIL((err = get_nowhere(w)) != MR_UNAVAILABLE);
    assert_int_equal(err, MR_INVALID);
}

/* Takes every call and says nothing. */
static void hang_message(struct mr_call *call, struct mr_slice bytes)
{
    (void)call, (void)bytes;
}

static void hang_closed(struct mr_call *call, int status, struct mr_slice text)
{
    (void)call, (void)status, (void)text;
}

static void hang(struct mr_call *call, void *arg)
{
    static const struct mr_call_ops ops = {.message = hang_message, .closed = hang_closed};
    mr_call_set(call, &ops, arg);
}

static void a_server_that_hangs_does_not_hang_a_worker(void **state)
{
    struct world *w = *state;
    struct mr_broker *far = w->far;
    struct mr_rpc *rpc;
    uint16_t port;
    char address[64];
    static const struct mr_rpc_method methods[] = {{"/millrace.v1.Work/Attach", hang}};
    struct mr_rpc_service service = {
        .address = "127.0.0.1:0", .methods = methods, .methods_n = 1, .arg = w};
    assert_int_equal(mr_rpc_new("hangs", NULL, &rpc), MR_OK);
    assert_int_equal(mr_rpc_listen(rpc, &service, &port, NULL), MR_OK);
    (void)snprintf(address, sizeof address, "127.0.0.1:%u", port);
    struct mr_remote_options options = {.address = address, .answer_ms = 50};
    assert_int_equal(mr_remote_open(&options, &w->far, NULL), MR_OK);
    assert_int_equal(try_open_node(w, 60000), MR_UNAVAILABLE);
    mr_broker_close(w->far);
    mr_rpc_free(rpc);
    w->far = far;
}

static void a_node_that_opens_while_the_network_is_away_waits_for_it(void **state)
{
    struct world *w = *state;
    struct flight opening;
    w->network.refuse = true;
    forwarder_cut(&w->network);
    open_start(w, &opening);
    assert_false(mr_event_wait(&opening.done, 100 * MR_NS_PER_MS));
    w->network.refuse = false;
    assert_int_equal(flight_end(&opening), MR_OK);
    w->node = opening.open.node;
    put_id(w, "a");
    mr_lease_free(take(w, 1, 1));
}

static void a_node_whose_first_stream_breaks_opens_another(void **state)
{
    struct world *w = *state;
    struct flight opening;
    w->network.frozen = true;
    open_start(w, &opening);
    assert_false(mr_event_wait(&opening.done, 100 * MR_NS_PER_MS));
    forwarder_cut(&w->network);
    w->network.frozen = false;
    assert_int_equal(flight_end(&opening), MR_OK);
    w->node = opening.open.node;
    assert_int_equal(beat(w), MR_OK);
}

static void closing_without_a_server_answers_everything(void **state)
{
    struct world *w = *state;
    struct flight taking, enqueueing, opening;
    open_node(w);
    take_start(w, &taking, 1);
    stop_server(w);
    enqueue_start(w, &enqueueing, (struct mr_task_options){.payload = MR_SLICE_LIT("x")});
    open_start(w, &opening);
    mr_broker_close(w->far);
    assert_int_equal(flight_end(&opening), MR_CLOSED);
    assert_int_equal(flight_end(&taking), MR_CLOSED);
    assert_int_equal(flight_end(&enqueueing), MR_CLOSED);
    start_server(w);
    open_far(w, NULL);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(a_node_comes_back_and_keeps_its_leases),
        TEST(what_is_asked_while_away_waits),
        TEST(a_finish_whose_answer_was_lost_counts_once_and_is_fine),
        TEST(tasks_lost_on_their_way_come_again),
        TEST(a_node_that_cannot_come_back_in_time_fences_itself),
        TEST(a_server_that_forgot_a_node_costs_it_its_leases_only),
        TEST(a_lost_node_counts_only_the_runs_it_began),
        TEST(a_begun_run_is_said_at_once),
        TEST(a_server_that_stops_has_crashed_nobody),
        TEST(a_task_not_sent_waits_for_the_server),
        TEST(a_task_does_not_wait_for_ever),
        TEST(a_task_whose_answer_was_lost_is_in_doubt),
        TEST(a_task_that_leaves_a_trace_is_sent_again),
        TEST(big_batches_pass_in_several_messages),
        TEST(a_refused_task_hurts_no_other),
        TEST(a_task_too_big_for_the_server_hurts_no_other),
        TEST(a_refused_look_says_why),
        TEST(opening_says_where_nobody_answers),
        TEST(a_server_of_another_namespace_is_not_taken_for_ours),
        TEST(a_server_that_hangs_does_not_hang_a_worker),
        TEST(a_node_that_opens_while_the_network_is_away_waits_for_it),
        TEST(a_node_whose_first_stream_breaks_opens_another),
        TEST(closing_without_a_server_answers_everything),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
