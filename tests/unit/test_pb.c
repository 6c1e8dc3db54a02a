/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "wire/pb.h"

struct fixture {
    struct mr_arena arena;
    struct mr_buf buf;
};

static int begin(void **state)
{
    static struct fixture fixture;
    fixture = (struct fixture){0};
    *state = &fixture;
    return 0;
}

static int end(void **state)
{
    struct fixture *f = *state;
    mr_arena_done(&f->arena);
    mr_buf_done(&f->buf);
    return 0;
}

/* Encoded, and decoded again from a copy that ends where it ends. */
static ProtobufCMessage *through_the_wire(struct fixture *f, const ProtobufCMessage *message)
{
    ProtobufCMessage *back = NULL;
    struct mr_slice copy;
    mr_buf_clear(&f->buf);
    assert_int_equal(mr_pb_encode(message, &f->buf), MR_OK);
    assert_int_equal(mr_arena_copy(&f->arena, mr_buf_slice(&f->buf), &copy), MR_OK);
    assert_int_equal(mr_pb_decode(message->descriptor, copy, &f->arena, &back), MR_OK);
    return back;
}

static void assert_slice(struct mr_slice found, const char *text)
{
    assert_int_equal(found.len, strlen(text));
    if (found.len > 0)
        assert_memory_equal(found.data, text, found.len);
}

static const struct mr_header headers[] = {
    {{"trace", 5}, {"a\0b", 3}},
    {{"empty", 5}, {NULL, 0}},
};

static void what_a_producer_says_arrives_as_it_was_said(void **state)
{
    struct fixture *f = *state;
    struct mr_task_options options = {
        .queue = mr_slice_str("mail"),
        .type = mr_slice_str("send"),
        .payload = {"x\0y", 3},
        .id = mr_slice_str("id-1"),
        .priority_s = -2.5,
        .delay_ms = 1,
        .at_ms = INT64_MAX,
        .max_retry = MR_NO_RETRY,
        .timeout_ms = MR_NO_TIMEOUT,
        .deadline_ms = 3,
        .retention_ms = 4,
        .unique_ms = 5,
        .unique_key = mr_slice_str("key"),
        .on_duplicate = MR_DUPLICATE_REPLACE,
        .group = mr_slice_str("g"),
        .topic = mr_slice_str("t"),
        .headers = headers,
        .headers_n = 2,
    };
    Millrace__V1__NewTask message;
    struct mr_task_options back;
    assert_int_equal(mr_pb_of_new_task(&options, &f->arena, &message), MR_OK);
    ProtobufCMessage *received = through_the_wire(f, &message.base);
    assert_int_equal(mr_pb_new_task((Millrace__V1__NewTask *)received, &f->arena, &back), MR_OK);
    assert_slice(back.queue, "mail");
    assert_slice(back.type, "send");
    assert_int_equal(back.payload.len, 3);
    assert_memory_equal(back.payload.data, "x\0y", 3);
    assert_slice(back.id, "id-1");
    assert_true(back.priority_s == -2.5 && back.delay_ms == 1 && back.at_ms == INT64_MAX);
    assert_true(back.max_retry == MR_NO_RETRY && back.timeout_ms == MR_NO_TIMEOUT);
    assert_true(back.deadline_ms == 3 && back.retention_ms == 4 && back.unique_ms == 5);
    assert_slice(back.unique_key, "key");
    assert_int_equal(back.on_duplicate, MR_DUPLICATE_REPLACE);
    assert_slice(back.group, "g");
    assert_slice(back.topic, "t");
    assert_int_equal(back.headers_n, 2);
    assert_slice(back.headers[0].name, "trace");
    assert_memory_equal(back.headers[0].value.data, "a\0b", 3);
    assert_int_equal(back.headers[1].value.len, 0);
}

static void nothing_said_is_every_default_and_no_byte(void **state)
{
    struct fixture *f = *state;
    struct mr_task_options none = {0}, back;
    Millrace__V1__NewTask message;
    assert_int_equal(mr_pb_of_new_task(&none, &f->arena, &message), MR_OK);
    ProtobufCMessage *received = through_the_wire(f, &message.base);
    assert_int_equal(f->buf.len, 0);
    assert_int_equal(mr_pb_new_task((Millrace__V1__NewTask *)received, &f->arena, &back), MR_OK);
    assert_int_equal(back.queue.len + back.id.len + back.payload.len + back.headers_n, 0);
}

static void a_task_arrives_with_everything_known_of_it(void **state)
{
    struct fixture *f = *state;
    struct mr_task task = {
        .id = mr_slice_str("i"),
        .queue = mr_slice_str("q"),
        .type = mr_slice_str("t"),
        .payload = mr_slice_str("p"),
        .unique_key = mr_slice_str("u"),
        .group = mr_slice_str("g"),
        .topic = mr_slice_str("o"),
        .node = mr_slice_str("n"),
        .last_error = {"\xff", 1},
        .result = {"\0", 1},
        .progress = mr_slice_str("half"),
        .headers = headers,
        .headers_n = 2,
        .state = MR_ARCHIVED,
        .priority_s = 1.25,
        .order_time_ms = -7,
        .attempt = 6,
        .retried = 3,
        .max_retry = 25,
        .crashes = 2,
        .epoch = UINT64_MAX,
        .timeout_ms = 11,
        .deadline_ms = 12,
        .retention_ms = 13,
        .created_ms = 14,
        .due_ms = 15,
        .started_ms = 16,
        .finished_ms = 17,
        .last_failed_ms = 18,
        .cancel_requested = true,
    };
    Millrace__V1__Task message;
    struct mr_task back;
    assert_int_equal(mr_pb_of_task(&task, &f->arena, &message), MR_OK);
    ProtobufCMessage *received = through_the_wire(f, &message.base);
    assert_int_equal(mr_pb_task((Millrace__V1__Task *)received, &f->arena, &back), MR_OK);
    const struct mr_slice *sent = &task.id, *got = &back.id; /* the eleven slices come first */
    for (size_t i = 0; i < 11; i++) {
        assert_int_equal(got[i].len, sent[i].len);
        assert_memory_equal(got[i].data, sent[i].data, sent[i].len);
    }
    assert_int_equal(back.headers_n, 2);
    assert_int_equal(back.state, MR_ARCHIVED);
    assert_true(back.priority_s == 1.25 && back.order_time_ms == -7 && back.epoch == UINT64_MAX);
    assert_true(back.attempt == 6 && back.retried == 3 && back.max_retry == 25);
    assert_true(back.crashes == 2 && back.cancel_requested);
    assert_true(back.timeout_ms == 11 && back.deadline_ms == 12 && back.retention_ms == 13);
    assert_true(back.created_ms == 14 && back.due_ms == 15 && back.started_ms == 16);
    assert_true(back.finished_ms == 17 && back.last_failed_ms == 18);
}

static void answers_arrive_and_a_long_id_is_cut_not_written_past_its_end(void **state)
{
    struct fixture *f = *state;
    struct mr_enqueue_result result = {.err = MR_CONFLICT, .state = MR_RETRY, .id = "there"}, back;
    Millrace__V1__EnqueueResult message;
    assert_int_equal(mr_pb_of_enqueue_result(&result, &f->arena, &message), MR_OK);
    ProtobufCMessage *received = through_the_wire(f, &message.base);
    mr_pb_enqueue_result((Millrace__V1__EnqueueResult *)received, &back);
    assert_int_equal(back.err, MR_CONFLICT);
    assert_int_equal(back.state, MR_RETRY);
    assert_string_equal(back.id, "there");
    char long_id[2 * MR_ID_MAX];
    memset(long_id, 'x', sizeof long_id - 1);
    long_id[sizeof long_id - 1] = '\0';
    message.id = long_id;
    mr_pb_enqueue_result(&message, &back);
    assert_int_equal(strlen(back.id), MR_ID_MAX);
}

static void a_queue_arrives_with_its_figures(void **state)
{
    struct fixture *f = *state;
    struct mr_queue_info info = {.name = "q",
                                 .counts = {0, 1, 2, 3, 4, 5, 6},
                                 .paused = true,
                                 .oldest_pending_ms = 7,
                                 .processed_total = 8,
                                 .failed_total = 9,
                                 .processed_today = 10,
                                 .failed_today = 11,
                                 .max_length = 12};
    Millrace__V1__Queue message;
    struct mr_queue_info back;
    assert_int_equal(mr_pb_of_queue(&info, &f->arena, &message), MR_OK);
    ProtobufCMessage *received = through_the_wire(f, &message.base);
    mr_pb_queue((Millrace__V1__Queue *)received, &back);
    assert_string_equal(back.name, "q");
    assert_memory_equal(back.counts, info.counts, sizeof info.counts);
    assert_true(back.paused && back.oldest_pending_ms == 7 && back.max_length == 12);
    assert_true(back.processed_total == 8 && back.failed_total == 9);
    assert_true(back.processed_today == 10 && back.failed_today == 11);
}

static void strange_values_and_bytes_are_refused(void **state)
{
    struct fixture *f = *state;
    Millrace__V1__NewTask new_task = MILLRACE__V1__NEW_TASK__INIT;
    Millrace__V1__Task task = MILLRACE__V1__TASK__INIT;
    struct mr_task_options options;
    struct mr_task back;
    ProtobufCMessage *message;
    new_task.on_duplicate = (Millrace__V1__OnDuplicate)77;
    assert_int_equal(mr_pb_new_task(&new_task, &f->arena, &options), MR_INVALID);
    task.state = (Millrace__V1__State)77;
    assert_int_equal(mr_pb_task(&task, &f->arena, &back), MR_INVALID);
    assert_int_equal(mr_pb_decode(&millrace__v1__task__descriptor, mr_slice_str("\xff\xff"),
                                  &f->arena, &message),
                     MR_INVALID);
    assert_int_equal(mr_pb_code(-1), MR_FAILED);
    assert_int_equal(mr_pb_code(MR_ERR_COUNT), MR_FAILED);
    assert_int_equal(mr_pb_code(MR_STALE), MR_STALE);
}

/* The lists in proto/ and in the public header are one. */
static void codes_have_the_names_of_errors(void **state)
{
    (void)state;
    for (int i = 0; i < MR_ERR_COUNT; i++) {
        const ProtobufCEnumValue *value =
            protobuf_c_enum_descriptor_get_value(&millrace__v1__code__descriptor, i);
        assert_non_null(value);
        assert_string_equal(value->name, mr_err_name((enum mr_err)i));
    }
    assert_int_equal(millrace__v1__code__descriptor.n_values, MR_ERR_COUNT);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(what_a_producer_says_arrives_as_it_was_said),
        TEST(nothing_said_is_every_default_and_no_byte),
        TEST(a_task_arrives_with_everything_known_of_it),
        TEST(answers_arrive_and_a_long_id_is_cut_not_written_past_its_end),
        TEST(a_queue_arrives_with_its_figures),
        TEST(strange_values_and_bytes_are_refused),
        TEST(codes_have_the_names_of_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
