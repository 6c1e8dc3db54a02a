/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for tasks, asking why, and who works: over a real connection. */
#include "unit/api_rig.h"

#include "api/internal.h"
#include "millrace/v1/nodes.pb-c.h"

static int begin(void **state)
{
    struct mr_api_options options = {.access.mode = MR_ACCESS_LOOPBACK};
    *state = rig_start(&options);
    return 0;
}

static int end(void **state)
{
    rig_stop(*state);
    return 0;
}

/* ---- a worker, straight at the broker ------------------------------------------------------- */

static void ignore_stop(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    (void)epoch, (void)reason, (void)arg;
}

static uint64_t node_open(struct rig *rig, const char *name, const char *queue, const char *type)
{
    struct mr_worker_queue queues[] = {{.name = mr_slice_str(queue), .weight = 2},
                                       {.name = MR_SLICE_LIT("other"), .weight = 1}};
    struct mr_slice types[] = {mr_slice_str(type)};
    struct mr_req_node_open open = {.req.op = MR_OP_NODE_OPEN,
                                    .name = mr_slice_str(name),
                                    .queues = queues,
                                    .queues_n = 2,
                                    .types = types,
                                    .types_n = type[0] != '\0',
                                    .slots = 3,
                                    .lease_ms = 60000,
                                    .events.stop = ignore_stop};
    assert_int_equal(mr_broker_call(rig->broker, &open.req), MR_OK);
    mr_req_done(&open.req);
    return open.node;
}

static void node_close(struct rig *rig, uint64_t node)
{
    struct mr_req_node_close close = {.req.op = MR_OP_NODE_CLOSE, .node = node};
    assert_int_equal(mr_broker_call(rig->broker, &close.req), MR_OK);
    mr_req_done(&close.req);
}

/* Runs the next task of the node, with a result. */
static void work_off(struct rig *rig, uint64_t node)
{
    struct mr_req_take take = {.req.op = MR_OP_TAKE, .node = node, .max = 1, .wait_ms = 10000};
    assert_int_equal(mr_broker_call(rig->broker, &take.req), MR_OK);
    assert_int_equal(mr_broker_lease_open(rig->broker, take.leases), MR_OK);
    struct mr_finish item = {.id = take.leases->task.id,
                             .epoch = take.leases->epoch,
                             .ref = take.leases->ref,
                             .outcome = MR_DONE,
                             .result = MR_SLICE_LIT("fine")};
    enum mr_err err;
    struct mr_req_finish finish = {.req.op = MR_OP_FINISH, .items = &item, .n = 1, .errs = &err};
    assert_int_equal(mr_broker_call(rig->broker, &finish.req), MR_OK);
    assert_int_equal(err, MR_OK);
    mr_req_done(&finish.req);
    mr_lease_free(take.leases);
    mr_req_done(&take.req);
}

/* ---- waiting -------------------------------------------------------------------------------- */

static void wait_begin(struct talk *talk, struct client *client, const char *id, int64_t timeout_ms)
{
    Millrace__V1__WaitRequest request = MILLRACE__V1__WAIT_REQUEST__INIT;
    request.id = (char *)(uintptr_t)id;
    request.timeout_ms = timeout_ms;
    talk_begin(talk, client, PATH("Tasks/Wait"));
    assert_int_equal(talk_send(talk, &request.base), MR_OK);
    talk_half_close(talk);
}

struct count {
    struct rig *rig;
    size_t errands;
};

static void do_count(void *arg)
{
    struct count *count = arg;
    count->errands = count->rig->api->errands_n;
}

static size_t errands(struct rig *rig)
{
    struct count count = {.rig = rig};
    on_loop(rig->server, do_count, &count);
    return count.errands;
}

static void a_wait_answers_the_task_as_it_ended_also_when_it_is_not_kept(void **state)
{
    struct rig *rig = *state;
    struct talk talk = {0};
    put(&rig->client, "mail", "m1");
    uint64_t node = node_open(rig, "w", "mail", "");
    wait_begin(&talk, &rig->client, "m1", 0);
    WAIT_UNTIL(errands(rig) == 1);
    work_off(rig, node);
    const Millrace__V1__Task *task =
        (const void *)talk_next(&talk, &millrace__v1__task__descriptor);
    assert_int_equal(talk_end(&talk), MR_RPC_OK);
    assert_int_equal(task->state, MILLRACE__V1__STATE__COMPLETED);
    assert_int_equal(task->result.len, 4);
    assert_null(look(&rig->client, "m1"));
    talk_done(&talk);
    node_close(rig, node);
}

static void a_wait_ends_when_its_time_is_over_or_there_is_no_task(void **state)
{
    struct rig *rig = *state;
    struct talk talk = {0};
    put(&rig->client, "mail", "m1");
    wait_begin(&talk, &rig->client, "m1", 20);
    assert_int_equal(talk_end(&talk), MR_RPC_DEADLINE);
    assert_string_equal(talk.code, "TIMEOUT");
    assert_string_equal(talk.text, "task m1: timed out");
    talk_done(&talk);
    talk = (struct talk){0};
    wait_begin(&talk, &rig->client, "m1", -1);
    assert_int_equal(talk_end(&talk), MR_RPC_DEADLINE);
    talk_done(&talk);
    talk = (struct talk){0};
    wait_begin(&talk, &rig->client, "nowhere", 0);
    assert_int_equal(talk_end(&talk), 5);
    assert_string_equal(talk.text, "task nowhere: not found");
    talk_done(&talk);
}

/* Nothing of it stays with the broker. */
static void a_call_that_is_given_up_ends_its_wait_at_once(void **state)
{
    struct rig *rig = *state;
    struct talk talk = {0}, late = {.deadline_ms = 50};
    put(&rig->client, "mail", "m1");
    wait_begin(&talk, &rig->client, "m1", 0);
    WAIT_UNTIL(errands(rig) == 1);
    talk_done(&talk);
    WAIT_UNTIL(errands(rig) == 0);
    wait_begin(&late, &rig->client, "m1", 0);
    assert_int_equal(talk_end(&late), MR_RPC_DEADLINE);
    WAIT_UNTIL(errands(rig) == 0);
    talk_done(&late);
    assert_int_equal(state_of(&rig->client, "m1"), MILLRACE__V1__STATE__PENDING);
}

static void a_wait_for_a_task_of_another_queue_is_denied_before_it_ends(void **state)
{
    struct rig *rig = *state;
    struct client mail;
    struct talk talk = {0};
    client_open(rig, &mail, make_token(rig, MR_ROLE_PRODUCER, "mail", NULL));
    put(&rig->client, "bank", "b1");
    wait_begin(&talk, &mail, "b1", 0);
    assert_int_equal(talk_end(&talk), MR_RPC_DENIED);
    assert_non_null(strstr(talk.text, "not for bank"));
    talk_done(&talk);
    WAIT_UNTIL(errands(rig) == 0);
    put(&rig->client, "mail", "m1");
    uint64_t node = node_open(rig, "w", "mail", "");
    talk = (struct talk){0};
    wait_begin(&talk, &mail, "m1", 0);
    WAIT_UNTIL(errands(rig) == 1);
    work_off(rig, node);
    assert_int_equal(talk_end(&talk), MR_RPC_OK);
    talk_done(&talk);
    client_close(&mail);
    node_close(rig, node);
}

static void a_wait_ends_with_its_token_and_with_the_server(void **state)
{
    struct rig *rig = *state;
    struct client viewer;
    struct mr_token token;
    struct mr_detail detail;
    struct talk revoked = {0}, stopped = {0};
    put(&rig->client, "mail", "m1");
    client_open(rig, &viewer, make_token(rig, MR_ROLE_VIEWER, "", &token));
    wait_begin(&revoked, &viewer, "m1", 0);
    WAIT_UNTIL(errands(rig) == 1);
    assert_int_equal(mr_tokens_revoke(rig->tokens, token.id, &detail), MR_OK);
    assert_int_equal(talk_end(&revoked), MR_RPC_UNAUTHENTICATED);
    talk_done(&revoked);
    client_close(&viewer);
    WAIT_UNTIL(errands(rig) == 0);
    wait_begin(&stopped, &rig->client, "m1", 0);
    WAIT_UNTIL(errands(rig) == 1);
    int64_t before = mr_mono_now(mr_clock_system()).ns;
    rig_stop_server(rig, 30000); /* it does not wait for the task */
    assert_true(mr_mono_now(mr_clock_system()).ns - before < 20 * MR_NS_PER_S);
    assert_int_equal(talk_end(&stopped), MR_RPC_UNAVAILABLE);
    talk_done(&stopped);
}

/* ---- why ------------------------------------------------------------------------------------ */

static const Millrace__V1__WhyResponse *ask_why(struct client *client, const char *id,
                                                struct talk *talk)
{
    Millrace__V1__GetRequest request = MILLRACE__V1__GET_REQUEST__INIT;
    request.id = (char *)(uintptr_t)id;
    return (const void *)call_unary(talk, client, PATH("Tasks/Why"), &request.base,
                                    &millrace__v1__why_response__descriptor);
}

static void a_task_says_what_it_waits_for(void **state)
{
    struct rig *rig = *state;
    struct talk talk = {0};
    put(&rig->client, "mail", "m1");
    const Millrace__V1__WhyResponse *why = ask_why(&rig->client, "m1", &talk);
    assert_true(why->n_reasons >= 1);
    assert_string_equal(why->reasons[0]->reason, "no_worker");
    assert_non_null(strstr(why->reasons[0]->text, "mail"));
    uint64_t node = node_open(rig, "w", "mail", "send");
    why = ask_why(&rig->client, "m1", &talk);
    assert_string_equal(why->reasons[0]->reason, "no_handler");
    node_close(rig, node);
    Millrace__V1__QueueRequest pause = MILLRACE__V1__QUEUE_REQUEST__INIT;
    pause.queue = (char *)(uintptr_t) "mail";
    call_unary(&talk, &rig->client, PATH("Queues/Pause"), &pause.base,
               &millrace__v1__empty__descriptor);
    why = ask_why(&rig->client, "m1", &talk);
    assert_string_equal(why->reasons[0]->reason, "paused");
    assert_null(ask_why(&rig->client, "nowhere", &talk));
    assert_string_equal(talk.text, "task nowhere: not found");
    struct client bank;
    client_open(rig, &bank, make_token(rig, MR_ROLE_VIEWER, "bank", NULL));
    assert_null(ask_why(&bank, "m1", &talk));
    assert_int_equal(talk.status, MR_RPC_DENIED);
    client_close(&bank);
}

/* ---- nodes ---------------------------------------------------------------------------------- */

static const Millrace__V1__NodeListResponse *nodes(struct client *client, const char *cursor,
                                                   uint32_t limit, struct talk *talk)
{
    Millrace__V1__NodeListRequest request = MILLRACE__V1__NODE_LIST_REQUEST__INIT;
    request.cursor = (char *)(uintptr_t)cursor;
    request.limit = limit;
    return (const void *)call_unary(talk, client, PATH("Nodes/List"), &request.base,
                                    &millrace__v1__node_list_response__descriptor);
}

static void nodes_are_listed_page_by_page_oldest_first(void **state)
{
    struct rig *rig = *state;
    enum { N = 5 };
    struct talk talk = {0};
    uint64_t opened[N], seen[N];
    const char *cursor = "";
    size_t n = 0;
    for (size_t i = 0; i < N; i++)
        opened[i] = node_open(rig, "w", "mail", "send");
    do {
        const Millrace__V1__NodeListResponse *page = nodes(&rig->client, cursor, 2, &talk);
        assert_true(page->n_nodes >= 1 && page->n_nodes <= 2);
        for (size_t i = 0; i < page->n_nodes; i++) {
            const Millrace__V1__Node *node = page->nodes[i];
            assert_string_equal(node->node, "w");
            assert_int_equal(node->concurrency, 3);
            assert_int_equal(node->n_queues, 2);
            assert_string_equal(node->queues[0]->name, "mail");
            assert_int_equal(node->queues[0]->weight, 2);
            assert_int_equal(node->n_types, 1);
            assert_string_equal(node->types[0], "send");
            seen[n++] = node->incarnation;
        }
        cursor = page->next;
    } while (cursor[0] != '\0');
    assert_int_equal(n, N);
    for (size_t i = 0; i < N; i++) {
        bool there = false;
        for (size_t k = 0; k < N; k++)
            there |= seen[k] == opened[i];
        assert_true(there);
        node_close(rig, opened[i]);
    }
    assert_null(nodes(&rig->client, "17.zz", 0, &talk));
    assert_int_equal(talk.status, MR_RPC_INVALID);
    assert_null(nodes(&rig->client, "", 1001, &talk));
    assert_int_equal(talk.status, MR_RPC_INVALID);
}

static void a_token_sees_the_nodes_of_its_queues(void **state)
{
    struct rig *rig = *state;
    struct client mail;
    struct talk talk = {0};
    uint64_t one = node_open(rig, "one", "mail", ""), two = node_open(rig, "two", "bank", "");
    client_open(rig, &mail, make_token(rig, MR_ROLE_VIEWER, "mail", NULL));
    const Millrace__V1__NodeListResponse *page = nodes(&mail, "", 0, &talk);
    assert_int_equal(page->n_nodes, 1);
    assert_string_equal(page->nodes[0]->node, "one");
    assert_int_equal(page->nodes[0]->n_queues, 1); /* "other" is none of its business */
    client_close(&mail);
    node_close(rig, one);
    node_close(rig, two);
}

/* Its connection is lost: it may come back, so it is still there. */
static void a_node_whose_stream_broke_is_suspect(void **state)
{
    struct rig *rig = *state;
    struct client worker;
    struct talk stream = {0}, talk = {0};
    Millrace__V1__WorkerMessage message = MILLRACE__V1__WORKER_MESSAGE__INIT;
    Millrace__V1__Hello hello = MILLRACE__V1__HELLO__INIT;
    Millrace__V1__QueueWeight queue = MILLRACE__V1__QUEUE_WEIGHT__INIT, *queues[] = {&queue};
    char *types[] = {(char *)(uintptr_t) "a", (char *)(uintptr_t) "b*"};
    client_open(rig, &worker, NULL);
    talk_begin(&stream, &worker, PATH("Work/Attach"));
    queue.name = (char *)(uintptr_t) "mail";
    hello.node = (char *)(uintptr_t) "w";
    hello.incarnation = 7;
    hello.queues = queues;
    hello.n_queues = 1;
    hello.types = types;
    hello.n_types = 2;
    hello.slots = 1;
    hello.lease_ms = 60000;
    message.kind_case = MILLRACE__V1__WORKER_MESSAGE__KIND_HELLO;
    message.hello = &hello;
    assert_int_equal(talk_send(&stream, &message.base), MR_OK);
    assert_non_null(talk_next(&stream, &millrace__v1__server_message__descriptor));
    const Millrace__V1__NodeListResponse *page = nodes(&rig->client, "", 0, &talk);
    assert_int_equal(page->n_nodes, 1);
    assert_int_equal(page->nodes[0]->state, MILLRACE__V1__NODE_STATE__NODE_LIVE);
    assert_int_equal(page->nodes[0]->n_types, 2);
    assert_string_equal(page->nodes[0]->types[1], "b*");
    talk_done(&stream);
    client_close(&worker);
    WAIT_UNTIL((page = nodes(&rig->client, "", 0, &talk))->n_nodes == 1 &&
               page->nodes[0]->state == MILLRACE__V1__NODE_STATE__NODE_SUSPECT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
        TEST(a_wait_answers_the_task_as_it_ended_also_when_it_is_not_kept),
        TEST(a_wait_ends_when_its_time_is_over_or_there_is_no_task),
        TEST(a_call_that_is_given_up_ends_its_wait_at_once),
        TEST(a_wait_for_a_task_of_another_queue_is_denied_before_it_ends),
        TEST(a_wait_ends_with_its_token_and_with_the_server),
        TEST(a_task_says_what_it_waits_for),
        TEST(nodes_are_listed_page_by_page_oldest_first),
        TEST(a_token_sees_the_nodes_of_its_queues),
        TEST(a_node_whose_stream_broke_is_suspect),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
