/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: limits at and over each boundary. What is refused has its own answer and leaves no
 * trace. */
#include <math.h>

#include "conform/conform.h"

#define TEN_YEARS_S (10.0 * 365.25 * 86400)

/* Refused with this error, and nothing is there afterwards, not even the queue. */
static void check_refused(struct conform *t, struct mr_task_options task, enum mr_err expected)
{
    if (task.id.len == 0)
        task.id = MR_SLICE_LIT("refused");
    uint64_t before = conform_stats_now(t).tasks;
    struct mr_enqueue_result result = conform_put_one(t, &task);
    assert_err(result.err, expected);
    assert_int_equal(conform_stats_now(t).tasks, before);
    assert_int_equal(conform_state(t, "refused"), MR_STATE_NONE);
    struct mr_queue_info info;
    assert_err(conform_queue_get(t, "default", &info), MR_NOT_FOUND);
}

/* Refused as a value out of range: the caller's fault in either word. */
static void check_out_of_range(struct conform *t, struct mr_task_options task)
{
    struct mr_enqueue_result result = conform_put_one(t, &task);
    assert_true(result.err == MR_INVALID || result.err == MR_TOO_BIG);
    check_refused(t, task, result.err);
}

static void a_payload_one_byte_above_the_limit_is_too_big(void **state)
{
    struct conform *t = *state;
    size_t len = t->engine->payload_max + 1;
    uint8_t *bytes = calloc(1, len);
    assert_non_null(bytes);
    check_refused(t, (struct mr_task_options){.payload = {bytes, len}}, MR_TOO_BIG);
    free(bytes);
}

static void a_size_that_cannot_be_spoils_only_its_own_item(void **state)
{
    struct conform *t = *state;
    struct mr_task_options tasks[3] = {0};
    struct mr_enqueue_result results[3];
    tasks[1].payload = mr_slice_make("x", (size_t)1 << 46); /* nobody looks at that much */
    conform_put_all(t, tasks, 3, results);
    assert_err(results[0].err, MR_OK);
    assert_err(results[1].err, MR_TOO_BIG);
    assert_err(results[2].err, MR_OK);
    assert_int_equal(conform_stats_now(t).tasks, 2);
}

/* The places of a task where a name can stand. */
static const size_t name_fields[] = {
    offsetof(struct mr_task_options, queue),      offsetof(struct mr_task_options, type),
    offsetof(struct mr_task_options, unique_key), offsetof(struct mr_task_options, group),
    offsetof(struct mr_task_options, topic),
};
enum { NAME_FIELDS_N = sizeof name_fields / sizeof name_fields[0] };

static struct mr_task_options with_name(size_t field, struct mr_slice name)
{
    struct mr_task_options task = {.unique_ms = 1000};
    memcpy((char *)&task + name_fields[field], &name, sizeof name);
    return task;
}

static void bad_names_are_refused_wherever_they_stand(void **state)
{
    struct conform *t = *state;
    static const struct mr_slice bad[] = {
        MR_SLICE_LIT("a{b"),          MR_SLICE_LIT("}"),
        MR_SLICE_LIT("\n"),           MR_SLICE_LIT("a\0b"),
        MR_SLICE_LIT("\x1b[31m"),     MR_SLICE_LIT("\x7f"),
        MR_SLICE_LIT("\xff"),         MR_SLICE_LIT("\xc0\xaf"),
        MR_SLICE_LIT("\xed\xa0\x80"), MR_SLICE_LIT("\xf4\x90\x80\x80"),
        MR_SLICE_LIT("ok\xc3"),
    };
    for (size_t field = 0; field < NAME_FIELDS_N; field++)
        for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
            check_refused(t, with_name(field, bad[i]), MR_INVALID);
}

static void a_name_of_128_bytes_is_the_longest_and_a_topic_one_less(void **state)
{
    struct conform *t = *state;
    char name[MR_NAME_MAX + 1];
    memset(name, 'n', sizeof name);
    for (size_t field = 0; field < NAME_FIELDS_N; field++)
        check_refused(t, with_name(field, mr_slice_make(name, MR_NAME_MAX + 1)), MR_TOO_BIG);
    for (size_t field = 0; field < NAME_FIELDS_N; field++) {
        bool is_topic = name_fields[field] == offsetof(struct mr_task_options, topic);
        size_t most = is_topic ? MR_TOPIC_MAX : MR_NAME_MAX;
        struct mr_task_options task = with_name(field, mr_slice_make(name, most));
        task.payload = mr_slice_make("12345" + field, 1);
        assert_err(conform_put_one(t, &task).err, MR_OK);
    }
}

static void bad_ids_are_refused(void **state)
{
    struct conform *t = *state;
    char id[MR_ID_MAX + 1];
    memset(id, 'i', sizeof id);
    check_refused(t, (struct mr_task_options){.id = {id, MR_ID_MAX + 1}}, MR_TOO_BIG);
    check_refused(t, (struct mr_task_options){.id = MR_SLICE_LIT("\xff")}, MR_INVALID);
    check_refused(t, (struct mr_task_options){.id = MR_SLICE_LIT("a\nb")}, MR_INVALID);
    check_refused(t, (struct mr_task_options){.id = MR_SLICE_LIT("a\0b")}, MR_INVALID);
}

static void sixty_four_headers_are_the_most(void **state)
{
    struct conform *t = *state;
    struct mr_header headers[MR_HEADERS_MAX + 1];
    for (size_t i = 0; i < MR_HEADERS_MAX + 1; i++)
        headers[i] = (struct mr_header){MR_SLICE_LIT("name"), MR_SLICE_LIT("value")};
    check_refused(t, (struct mr_task_options){.headers = headers, .headers_n = MR_HEADERS_MAX + 1},
                  MR_TOO_BIG);
    const char *id = PUT_OK(t, .headers = headers, .headers_n = MR_HEADERS_MAX);
    assert_int_equal(conform_get(t, id)->headers_n, MR_HEADERS_MAX);
}

static void headers_of_16_kib_together_are_the_most(void **state)
{
    struct conform *t = *state;
    static char value[MR_HEADER_BYTES_MAX];
    memset(value, 'v', sizeof value);
    struct mr_header headers[] = {{MR_SLICE_LIT("ab"), {value, MR_HEADER_BYTES_MAX / 2}},
                                  {MR_SLICE_LIT("cd"), {value, MR_HEADER_BYTES_MAX / 2 - 3}}};
    check_refused(t, (struct mr_task_options){.headers = headers, .headers_n = 2}, MR_TOO_BIG);
    headers[1].value.len--;
    const char *id = PUT_OK(t, .headers = headers, .headers_n = 2);
    assert_slices(conform_get(t, id)->headers[1].value, headers[1].value);
}

static void negative_times_are_invalid(void **state)
{
    struct conform *t = *state;
    check_refused(t, (struct mr_task_options){.delay_ms = -1}, MR_INVALID);
    check_refused(t, (struct mr_task_options){.delay_ms = INT64_MIN}, MR_INVALID);
    check_refused(t, (struct mr_task_options){.at_ms = -1}, MR_INVALID);
    check_refused(t, (struct mr_task_options){.timeout_ms = -2}, MR_INVALID);
    check_refused(t, (struct mr_task_options){.deadline_ms = -1}, MR_INVALID);
    check_refused(t, (struct mr_task_options){.retention_ms = -1}, MR_INVALID);
    check_refused(t, (struct mr_task_options){.unique_ms = -1}, MR_INVALID);
    check_refused(t, (struct mr_task_options){.max_retry = -2}, MR_INVALID);
}

static void numbers_out_of_range_are_refused(void **state)
{
    struct conform *t = *state;
    check_out_of_range(t, (struct mr_task_options){.max_retry = MR_RETRY_MAX + 1});
    check_out_of_range(t, (struct mr_task_options){.max_retry = INT32_MIN});
    check_out_of_range(t, (struct mr_task_options){.priority_s = TEN_YEARS_S * 1.01});
    check_out_of_range(t, (struct mr_task_options){.priority_s = -TEN_YEARS_S * 1.01});
    check_out_of_range(t, (struct mr_task_options){.priority_s = NAN});
    check_out_of_range(t, (struct mr_task_options){.priority_s = INFINITY});
    check_out_of_range(t, (struct mr_task_options){.priority_s = -INFINITY});
    check_out_of_range(t, (struct mr_task_options){.on_duplicate = (enum mr_on_duplicate)77});
}

static void numbers_at_their_limits_are_taken(void **state)
{
    struct conform *t = *state;
    double most = 10.0 * 365 * 86400;
    assert_int_equal(conform_get(t, PUT_OK(t, .max_retry = MR_RETRY_MAX))->max_retry, MR_RETRY_MAX);
    assert_true(conform_get(t, PUT_OK(t, .priority_s = most))->priority_s == most);
    assert_true(conform_get(t, PUT_OK(t, .priority_s = -most))->priority_s == -most);
    assert_err(PUT(t, .timeout_ms = 1).err, MR_OK);
    assert_err(PUT(t, .retention_ms = 365LL * 86400000).err, MR_OK);
}

/* A time nobody will live to see is either kept or refused, never wrapped round into the past. */
static void far_times_never_wrap_round(void **state)
{
    struct conform *t = *state;
    static const int64_t far[] = {INT64_MAX, INT64_MAX / 2, INT64_MAX / 1000, 253402300799999LL};
    for (size_t i = 0; i < sizeof far / sizeof far[0]; i++) {
        struct mr_enqueue_result delayed = PUT(t, .delay_ms = far[i]);
        struct mr_enqueue_result at = PUT(t, .at_ms = far[i]);
        assert_true(delayed.err == MR_INVALID || delayed.err == MR_TOO_BIG ||
                    (delayed.err == MR_OK && delayed.state == MR_SCHEDULED));
        assert_true(at.err == MR_INVALID || at.err == MR_TOO_BIG ||
                    (at.err == MR_OK && at.state == MR_SCHEDULED));
    }
    conform_take_none(t, NODE(t));
}

static void ignore_stop(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    (void)epoch, (void)reason, (void)arg;
}

static void bad_nodes_are_refused(void **state)
{
    struct conform *t = *state;
    struct mr_worker_queue queues[MR_TAKE_QUEUES_MAX + 1];
    for (size_t i = 0; i < MR_TAKE_QUEUES_MAX + 1; i++)
        queues[i] = (struct mr_worker_queue){.name = MR_SLICE_LIT("q")};
    struct mr_worker_queue brace = {.name = MR_SLICE_LIT("{")};
    struct mr_req_node_open good = {.req.op = MR_OP_NODE_OPEN,
                                    .name = MR_SLICE_LIT("n"),
                                    .queues = queues,
                                    .queues_n = 1,
                                    .slots = 1,
                                    .lease_ms = 1000,
                                    .events = {.stop = ignore_stop}};
    struct mr_req_node_open bad[5] = {good, good, good, good, good};
    bad[0].queues_n = MR_TAKE_QUEUES_MAX + 1;
    bad[1].queues = &brace;
    bad[2].slots = MR_SLOTS_MAX + 1;
    bad[3].name = MR_SLICE_LIT("\xff");
    bad[4].lease_ms = -1;
    assert_err(mr_broker_call(t->broker, &good.req), MR_OK);
    mr_req_done(&good.req);
    for (size_t i = 0; i < 5; i++) {
        enum mr_err err = mr_broker_call(t->broker, &bad[i].req);
        assert_true(err == MR_INVALID || err == MR_TOO_BIG);
        mr_req_done(&bad[i].req);
    }
}

int conform_limits(const struct conform_engine *engine)
{
    static struct CMUnitTest tests[] = {
        CONFORM_TEST(a_payload_one_byte_above_the_limit_is_too_big),
        CONFORM_TEST(a_size_that_cannot_be_spoils_only_its_own_item),
        CONFORM_TEST(bad_names_are_refused_wherever_they_stand),
        CONFORM_TEST(a_name_of_128_bytes_is_the_longest_and_a_topic_one_less),
        CONFORM_TEST(bad_ids_are_refused),
        CONFORM_TEST(sixty_four_headers_are_the_most),
        CONFORM_TEST(headers_of_16_kib_together_are_the_most),
        CONFORM_TEST(negative_times_are_invalid),
        CONFORM_TEST(numbers_out_of_range_are_refused),
        CONFORM_TEST(numbers_at_their_limits_are_taken),
        CONFORM_TEST(far_times_never_wrap_round),
        CONFORM_TEST(bad_nodes_are_refused),
    };
    return CONFORM_RUN(engine, "limits", tests);
}
