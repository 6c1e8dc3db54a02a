/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: enqueueing. What is put is found again, byte for byte, in the state it belongs to.
 */
#include <math.h>

#include "conform/conform.h"

static void a_bare_task_gets_the_defaults(void **state)
{
    struct conform *t = *state;
    int64_t before_ms = conform_wall_ms();
    struct mr_enqueue_result result = PUT(t, .payload = MR_SLICE_LIT("hello"));
    int64_t after_ms = conform_wall_ms();
    assert_err(result.err, MR_OK);
    assert_int_equal(result.state, MR_PENDING);
    assert_int_equal(strlen(result.id), MR_UUID_TEXT_LEN);
    const struct mr_task *task = conform_get(t, result.id);
    assert_non_null(task);
    assert_slice(task->id, result.id);
    assert_slice(task->queue, "default");
    assert_slice(task->type, "task");
    assert_slice(task->payload, "hello");
    assert_int_equal(task->state, MR_PENDING);
    assert_int_equal(task->max_retry, 25);
    assert_int_equal(task->timeout_ms, 30 * 60 * 1000);
    assert_int_equal(task->deadline_ms, 0);
    assert_int_equal(task->retention_ms, 0);
    assert_int_equal(task->retried, 0);
    assert_int_equal(task->crashes, 0);
    assert_int_equal(task->headers_n, 0);
    assert_int_equal(task->unique_key.len, 0);
    assert_int_equal(task->group.len, 0);
    assert_int_equal(task->topic.len, 0);
    assert_int_equal(task->last_error.len, 0);
    assert_int_equal(task->result.len, 0);
    assert_false(task->cancel_requested);
    assert_in_range(task->created_ms, before_ms, after_ms);
    assert_in_range(task->order_time_ms, before_ms, after_ms);
}

static void check_full_task(const struct mr_task *task, const struct mr_task_options *put)
{
    assert_slices(task->id, put->id);
    assert_slices(task->queue, put->queue);
    assert_slices(task->type, put->type);
    assert_slices(task->payload, put->payload);
    assert_slices(task->unique_key, put->unique_key);
    assert_slices(task->group, put->group);
    assert_slices(task->topic, put->topic);
    assert_true(task->priority_s > put->priority_s - 0.001);
    assert_true(task->priority_s < put->priority_s + 0.001);
    assert_int_equal(task->max_retry, put->max_retry);
    assert_int_equal(task->timeout_ms, put->timeout_ms);
    assert_int_equal(task->deadline_ms, put->deadline_ms);
    assert_int_equal(task->retention_ms, put->retention_ms);
    assert_int_equal(task->headers_n, put->headers_n);
    for (size_t i = 0; i < put->headers_n; i++) {
        assert_slices(task->headers[i].name, put->headers[i].name);
        assert_slices(task->headers[i].value, put->headers[i].value);
    }
}

static void every_option_is_read_back_identically(void **state)
{
    struct conform *t = *state;
    struct mr_header headers[] = {{MR_SLICE_LIT("trace"), MR_SLICE_LIT("abc")},
                                  {MR_SLICE_LIT("empty"), MR_SLICE_LIT("")},
                                  {MR_SLICE_LIT("tenant"), MR_SLICE_LIT("\xc3\xa4\xc3\xb6")}};
    struct mr_task_options put = {
        .queue = MR_SLICE_LIT("r\xc3\xa4nge-of-mails"),
        .type = MR_SLICE_LIT("mail:send"),
        .payload = MR_SLICE_LIT("a\0b"),
        .id = MR_SLICE_LIT("order-17/mail"),
        .priority_s = 90.5,
        .max_retry = 3,
        .timeout_ms = 1500,
        .deadline_ms = conform_wall_ms() + 3600000,
        .retention_ms = 7200000,
        .unique_ms = 60000,
        .unique_key = MR_SLICE_LIT("mail-17"),
        .topic = MR_SLICE_LIT("outcomes"),
        .headers = headers,
        .headers_n = 3,
    };
    struct mr_enqueue_result result = conform_put_one(t, &put);
    assert_err(result.err, MR_OK);
    assert_string_equal(result.id, "order-17/mail");
    const struct mr_task *task = conform_get(t, "order-17/mail");
    assert_non_null(task);
    check_full_task(task, &put);
    assert_in_range(task->created_ms - task->order_time_ms, 90499, 90501);

    struct conform_node *node = NODE(t, .queues = "r\xc3\xa4nge-of-mails");
    struct mr_lease *lease = conform_take_one(t, node);
    check_full_task(&lease->task, &put);
    assert_int_equal(lease->task.attempt, 1);
    FINISH_OK(t, lease, .outcome = MR_DONE);
}

static void no_retry_and_no_timeout_are_kept(void **state)
{
    struct conform *t = *state;
    const char *id = PUT_OK(t, .max_retry = MR_NO_RETRY, .timeout_ms = MR_NO_TIMEOUT);
    const struct mr_task *task = conform_get(t, id);
    assert_int_equal(task->max_retry, 0);
    assert_true(task->timeout_ms <= 0);
}

static void a_fraction_of_a_second_is_kept_to_the_millisecond(void **state)
{
    struct conform *t = *state;
    static const double seconds[] = {0.57, -0.57, 0.001, 1.1, 4.35, -1234.567};
    for (size_t i = 0; i < sizeof seconds / sizeof seconds[0]; i++) {
        const struct mr_task *task = conform_get(t, PUT_OK(t, .priority_s = seconds[i]));
        assert_int_equal(llround(task->priority_s * 1000), llround(seconds[i] * 1000));
    }
}

static void a_generated_id_is_new_every_time(void **state)
{
    struct conform *t = *state;
    enum { N = 500 };
    struct mr_task_options tasks[N];
    struct mr_enqueue_result results[N];
    memset(tasks, 0, sizeof tasks);
    conform_put_all(t, tasks, N, results);
    for (size_t i = 0; i < N; i++) {
        assert_err(results[i].err, MR_OK);
        for (size_t k = 0; k < i; k++)
            assert_string_not_equal(results[i].id, results[k].id);
    }
    assert_int_equal(conform_queue(t, "default").counts[MR_PENDING], N);
}

static void the_same_payload_twice_makes_two_tasks(void **state)
{
    struct conform *t = *state;
    const char *a = PUT_OK(t, .payload = MR_SLICE_LIT("same"));
    const char *b = PUT_OK(t, .payload = MR_SLICE_LIT("same"));
    assert_string_not_equal(a, b);
    struct conform_node *node = NODE(t);
    struct mr_lease *first = conform_take_id(t, node, a);
    struct mr_lease *second = conform_take_id(t, node, b);
    FINISH_OK(t, first, .outcome = MR_DONE);
    assert_int_equal(conform_state(t, b), MR_ACTIVE);
    FINISH_OK(t, second, .outcome = MR_DONE);
}

static void an_id_that_exists_conflicts_and_tells_its_state(void **state)
{
    struct conform *t = *state;
    static const enum mr_state states[] = {MR_SCHEDULED, MR_PENDING,   MR_ACTIVE,     MR_RETRY,
                                           MR_ARCHIVED,  MR_COMPLETED, MR_AGGREGATING};
    for (size_t i = 0; i < sizeof states / sizeof states[0]; i++) {
        conform_make_state(t, "the-id", states[i]);
        struct mr_enqueue_result again =
            PUT(t, .id = MR_SLICE_LIT("the-id"), .payload = MR_SLICE_LIT("other"));
        assert_err(again.err, MR_CONFLICT);
        assert_int_equal(again.state, states[i]);
        assert_string_equal(again.id, "the-id");
        assert_slice(conform_get(t, "the-id")->payload, "");
        if (states[i] == MR_ACTIVE)
            assert_err(conform_node_close(t, t->nodes), MR_OK);
        assert_err(conform_act(t, MR_VERB_DELETE, "the-id", 0), MR_OK);
    }
}

static void a_conflict_holds_across_queues(void **state)
{
    struct conform *t = *state;
    (void)PUT_OK(t, .id = MR_SLICE_LIT("x"), .queue = MR_SLICE_LIT("one"));
    struct mr_enqueue_result again = PUT(t, .id = MR_SLICE_LIT("x"), .queue = MR_SLICE_LIT("two"));
    assert_err(again.err, MR_CONFLICT);
    assert_slice(conform_get(t, "x")->queue, "one");
}

static void an_id_is_free_again_when_the_task_is_gone(void **state)
{
    struct conform *t = *state;
    struct conform_node *node = NODE(t);
    uint64_t epoch = 0;
    for (int i = 0; i < 3; i++) {
        (void)PUT_OK(t, .id = MR_SLICE_LIT("again"));
        struct mr_lease *lease = conform_take_id(t, node, "again");
        assert_true(lease->epoch > epoch);
        epoch = lease->epoch;
        FINISH_OK(t, lease, .outcome = MR_DONE);
        assert_int_equal(conform_state(t, "again"), MR_STATE_NONE);
    }
}

static void a_batch_answers_per_item(void **state)
{
    struct conform *t = *state;
    struct mr_task_options tasks[] = {
        {.id = MR_SLICE_LIT("a")},
        {.id = MR_SLICE_LIT("b"), .delay_ms = -1},
        {.id = MR_SLICE_LIT("a")},
        {.id = MR_SLICE_LIT("c"), .queue = MR_SLICE_LIT("br{ce")},
        {.id = MR_SLICE_LIT("d"), .delay_ms = 3600000},
        {.unique_ms = 60000, .unique_key = MR_SLICE_LIT("k"), .id = MR_SLICE_LIT("e")},
        {.unique_ms = 60000, .unique_key = MR_SLICE_LIT("k"), .id = MR_SLICE_LIT("f")},
    };
    static const struct {
        enum mr_err err;
        enum mr_state state;
        const char *id;
    } expected[] = {
        {MR_OK, MR_PENDING, "a"},        {MR_INVALID, MR_STATE_NONE, "b"},
        {MR_CONFLICT, MR_PENDING, "a"},  {MR_INVALID, MR_STATE_NONE, "c"},
        {MR_OK, MR_SCHEDULED, "d"},      {MR_OK, MR_PENDING, "e"},
        {MR_DUPLICATE, MR_PENDING, "e"},
    };
    enum { N = sizeof tasks / sizeof tasks[0] };
    struct mr_enqueue_result results[N];
    conform_put_all(t, tasks, N, results);
    for (size_t i = 0; i < N; i++) {
        assert_err(results[i].err, expected[i].err);
        if (expected[i].state != MR_STATE_NONE) {
            assert_int_equal(results[i].state, expected[i].state);
            assert_string_equal(results[i].id, expected[i].id);
        }
    }
    assert_int_equal(conform_state(t, "b"), MR_STATE_NONE);
    assert_int_equal(conform_state(t, "c"), MR_STATE_NONE);
    assert_int_equal(conform_state(t, "f"), MR_STATE_NONE);
    struct mr_queue_info queue = conform_queue(t, "default");
    assert_int_equal(queue.counts[MR_PENDING], 2);
    assert_int_equal(queue.counts[MR_SCHEDULED], 1);
}

static void a_full_batch_is_taken_and_one_more_is_refused(void **state)
{
    struct conform *t = *state;
    static struct mr_task_options tasks[MR_BATCH_MAX + 1];
    static struct mr_enqueue_result results[MR_BATCH_MAX + 1];
    memset(tasks, 0, sizeof tasks);
    conform_put_all(t, tasks, MR_BATCH_MAX, results);
    assert_int_equal(conform_queue(t, "default").counts[MR_PENDING], MR_BATCH_MAX);
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = tasks, .n = MR_BATCH_MAX + 1, .results = results};
    assert_err(mr_broker_call(t->broker, &req.req), MR_TOO_BIG);
    mr_req_done(&req.req);
    assert_int_equal(conform_queue(t, "default").counts[MR_PENDING], MR_BATCH_MAX);
}

static void payloads_come_out_byte_for_byte(void **state)
{
    struct conform *t = *state;
    size_t max = t->engine->payload_max;
    uint8_t *big = malloc(max);
    assert_non_null(big);
    for (size_t i = 0; i < max; i++)
        big[i] = (uint8_t)(i * 31 + (i >> 8));
    struct mr_slice payloads[] = {
        MR_SLICE_LIT(""),         MR_SLICE_LIT("\0"),
        MR_SLICE_LIT("^pillar^"), MR_SLICE_LIT("\xff\xfe"),
        MR_SLICE_LIT("a\0\0b"),   MR_SLICE_LIT("{\"a\":1}\r\n"),
        {big, max - 1},           {big, max},
    };
    struct conform_node *node = NODE(t);
    for (size_t i = 0; i < sizeof payloads / sizeof payloads[0]; i++) {
        const char *id = PUT_OK(t, .payload = payloads[i], .retention_ms = 3600000);
        assert_slices(conform_get(t, id)->payload, payloads[i]);
        struct mr_lease *lease = conform_take_id(t, node, id);
        assert_slices(lease->task.payload, payloads[i]);
        assert_int_equal(conform_queue(t, "default").counts[MR_ACTIVE], 1);
        struct mr_slice result = payloads[i];
        if (result.len > MR_RESULT_MAX)
            result.len = MR_RESULT_MAX;
        FINISH_OK(t, lease, .outcome = MR_DONE, .result = result);
        assert_int_equal(conform_queue(t, "default").counts[MR_ACTIVE], 0);
        assert_slices(conform_get(t, id)->result, result);
    }
    free(big);
}

static void ids_of_every_shape_are_kept(void **state)
{
    struct conform *t = *state;
    char longest[MR_ID_MAX + 1];
    memset(longest, 'x', MR_ID_MAX);
    longest[MR_ID_MAX] = '\0';
    const char *ids[] = {"1",
                         "a b",
                         "..",
                         "order:17/\xc3\xa4",
                         "018f0000-0000-7000-8000-000000000000",
                         "018F0000-0000-7000-8000-000000000000",
                         "018f000000007000800000000000000",
                         longest};
    enum { N = sizeof ids / sizeof ids[0] };
    for (size_t i = 0; i < N; i++)
        assert_string_equal(PUT_OK(t, .id = mr_slice_str(ids[i])), ids[i]);
    assert_int_equal(conform_queue(t, "default").counts[MR_PENDING], N);
    for (size_t i = 0; i < N; i++) {
        assert_slice(conform_get(t, ids[i])->id, ids[i]);
        assert_err(PUT(t, .id = mr_slice_str(ids[i])).err, MR_CONFLICT);
    }
    struct conform_node *node = NODE(t);
    for (size_t i = 0; i < N; i++)
        FINISH_OK(t, conform_take_id(t, node, ids[i]), .outcome = MR_DONE);
}

int conform_enqueue(const struct conform_engine *engine)
{
    static struct CMUnitTest tests[] = {
        CONFORM_TEST(a_bare_task_gets_the_defaults),
        CONFORM_TEST(every_option_is_read_back_identically),
        CONFORM_TEST(no_retry_and_no_timeout_are_kept),
        CONFORM_TEST(a_fraction_of_a_second_is_kept_to_the_millisecond),
        CONFORM_TEST(a_generated_id_is_new_every_time),
        CONFORM_TEST(the_same_payload_twice_makes_two_tasks),
        CONFORM_TEST(an_id_that_exists_conflicts_and_tells_its_state),
        CONFORM_TEST(a_conflict_holds_across_queues),
        CONFORM_TEST(an_id_is_free_again_when_the_task_is_gone),
        CONFORM_TEST(a_batch_answers_per_item),
        CONFORM_TEST(a_full_batch_is_taken_and_one_more_is_refused),
        CONFORM_TEST(payloads_come_out_byte_for_byte),
        CONFORM_TEST(ids_of_every_shape_are_kept),
    };
    return CONFORM_RUN(engine, "enqueue", tests);
}
