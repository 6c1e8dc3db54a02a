/* SPDX-License-Identifier: Apache-2.0 */
/* The task message keeps what the producer said, and decoding trusts no byte of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "unit/failing_alloc.h"
#include "wire/task.h"

/* Bytes on the heap of exactly that size, so that a sanitizer sees any read behind them. */
static uint8_t *exact(const void *bytes, size_t len)
{
    uint8_t *copy = malloc(len ? len : 1);
    assert_non_null(copy);
    if (len > 0)
        memcpy(copy, bytes, len);
    return copy;
}

static void same(struct mr_slice a, struct mr_slice b)
{
    assert_int_equal(a.len, b.len);
    if (a.len > 0)
        assert_memory_equal(a.data, b.data, a.len);
}

static void encode(const struct mr_task_options *options, struct mr_slice id, struct mr_buf *buf)
{
    mr_buf_clear(buf);
    assert_int_equal(mr_task_msg_encode(options, id, buf), MR_OK);
    assert_true(buf->len <= mr_task_msg_bound(options, id));
}

static struct mr_task_options everything(void)
{
    static const struct mr_header headers[] = {
        {.name = {"trace", 5}, .value = {"00-11-22", 8}},
        {.name = {"empty", 5}, .value = {"", 0}},
        {.name = {"bytes", 5}, .value = {"\0\xff\n", 3}},
    };
    return (struct mr_task_options){
        .queue = MR_SLICE_LIT("mail"),
        .type = MR_SLICE_LIT("mail:send"),
        .payload = MR_SLICE_LIT("payload \0 with a zero"),
        .priority_s = -12.345,
        .max_retry = 7,
        .timeout_ms = 1234,
        .deadline_ms = 1790000000123,
        .retention_ms = 86400000,
        .unique_ms = 60000,
        .unique_key = MR_SLICE_LIT("key"),
        .group = MR_SLICE_LIT("group"),
        .topic = MR_SLICE_LIT("topic"),
        .headers = headers,
        .headers_n = 3,
    };
}

static void every_field_reads_back(void **state)
{
    (void)state;
    struct mr_buf buf = {0};
    struct mr_task_options options = everything();
    struct mr_task_msg msg;
    encode(&options, MR_SLICE_LIT("order-17"), &buf);
    assert_int_equal(mr_task_msg_decode(mr_buf_slice(&buf), &msg), MR_OK);
    same(msg.queue, options.queue);
    same(msg.type, options.type);
    same(msg.id, MR_SLICE_LIT("order-17"));
    same(msg.payload, options.payload);
    same(msg.unique_key, options.unique_key);
    same(msg.group, options.group);
    same(msg.topic, options.topic);
    assert_int_equal(msg.max_retry, 7);
    assert_int_equal(msg.timeout_ms, 1234);
    assert_int_equal(msg.deadline_ms, 1790000000123);
    assert_int_equal(msg.retention_ms, 86400000);
    assert_int_equal(msg.unique_ms, 60000);
    assert_int_equal(msg.priority_ms, -12345);
    assert_int_equal(msg.headers_n, 3);
    struct mr_header headers[3];
    mr_task_msg_headers(&msg, headers);
    for (size_t i = 0; i < 3; i++) {
        same(headers[i].name, options.headers[i].name);
        same(headers[i].value, options.headers[i].value);
    }
    mr_buf_done(&buf);
}

static void what_was_not_said_gets_its_default(void **state)
{
    (void)state;
    struct mr_buf buf = {0};
    struct mr_task_msg msg;
    encode(&(struct mr_task_options){0}, mr_slice_make(NULL, 0), &buf);
    assert_int_equal(mr_task_msg_decode(mr_buf_slice(&buf), &msg), MR_OK);
    same(msg.queue, MR_SLICE_LIT("default"));
    same(msg.type, MR_SLICE_LIT("task"));
    assert_int_equal(msg.id.len + msg.payload.len + msg.unique_key.len + msg.group.len, 0);
    assert_int_equal(msg.topic.len + msg.headers.len + msg.headers_n, 0);
    assert_int_equal(msg.max_retry, MR_DEFAULT_MAX_RETRY);
    assert_int_equal(msg.timeout_ms, MR_DEFAULT_TIMEOUT_MS);
    assert_int_equal(msg.deadline_ms | msg.retention_ms | msg.unique_ms | msg.priority_ms, 0);
    mr_buf_done(&buf);
}

static void a_plain_task_costs_only_the_fixed_part_and_its_bytes(void **state)
{
    (void)state;
    struct mr_buf buf = {0};
    struct mr_task_options options = {.payload = MR_SLICE_LIT("0123456789")};
    encode(&options, mr_slice_make(NULL, 0), &buf);
    assert_int_equal(buf.len, MR_TASK_FIXED + strlen("default") + strlen("task") + 10);
    mr_buf_done(&buf);
}

static void none_is_not_the_default(void **state)
{
    (void)state;
    struct mr_buf buf = {0};
    struct mr_task_msg msg;
    struct mr_task_options options = {.max_retry = MR_NO_RETRY, .timeout_ms = MR_NO_TIMEOUT};
    encode(&options, mr_slice_make(NULL, 0), &buf);
    assert_int_equal(mr_task_msg_decode(mr_buf_slice(&buf), &msg), MR_OK);
    assert_int_equal(msg.max_retry, 0);
    assert_int_equal(msg.timeout_ms, 0);
    mr_buf_done(&buf);
}

static void the_limits_fit(void **state)
{
    (void)state;
    static char name[MR_NAME_MAX], value[MR_HEADER_BYTES_MAX / MR_HEADERS_MAX - 1];
    memset(name, 'n', sizeof name);
    memset(value, 'v', sizeof value);
    struct mr_slice longest = mr_slice_make(name, sizeof name);
    struct mr_header headers[MR_HEADERS_MAX], found[MR_HEADERS_MAX];
    for (size_t i = 0; i < MR_HEADERS_MAX; i++)
        headers[i] = (struct mr_header){mr_slice_make("h", 1), mr_slice_make(value, sizeof value)};
    uint8_t *payload = calloc(1, MR_PAYLOAD_MAX);
    assert_non_null(payload);
    struct mr_task_options options = {
        .queue = longest,
        .type = longest,
        .unique_key = longest,
        .group = longest,
        .topic = longest,
        .payload = mr_slice_make(payload, MR_PAYLOAD_MAX),
        .max_retry = MR_RETRY_MAX,
        .timeout_ms = INT64_MAX,
        .deadline_ms = INT64_MAX,
        .retention_ms = INT64_MAX,
        .unique_ms = INT64_MAX,
        .priority_s = -315360000.0,
        .headers = headers,
        .headers_n = MR_HEADERS_MAX,
    };
    struct mr_buf buf = {0};
    struct mr_task_msg msg;
    encode(&options, longest, &buf);
    assert_int_equal(mr_task_msg_decode(mr_buf_slice(&buf), &msg), MR_OK);
    same(msg.queue, longest);
    same(msg.topic, longest);
    same(msg.id, longest);
    same(msg.payload, options.payload);
    assert_int_equal(msg.max_retry, MR_RETRY_MAX);
    assert_true(msg.timeout_ms == INT64_MAX && msg.unique_ms == INT64_MAX);
    assert_int_equal(msg.priority_ms, -315360000000LL);
    assert_int_equal(msg.headers_n, MR_HEADERS_MAX);
    mr_task_msg_headers(&msg, found);
    same(found[MR_HEADERS_MAX - 1].value, headers[0].value);
    mr_buf_done(&buf);
    free(payload);
}

static void a_message_cut_anywhere_is_damaged(void **state)
{
    (void)state;
    struct mr_buf buf = {0};
    struct mr_task_options options = everything();
    encode(&options, MR_SLICE_LIT("order-17"), &buf);
    for (size_t n = 0; n < buf.len; n++) {
        uint8_t *bytes = exact(buf.data, n);
        struct mr_task_msg msg;
        assert_int_equal(mr_task_msg_decode(mr_slice_make(bytes, n), &msg), MR_DAMAGED);
        free(bytes);
    }
    mr_buf_done(&buf);
}

static void a_byte_too_many_is_damaged(void **state)
{
    (void)state;
    struct mr_buf buf = {0};
    struct mr_task_options options = everything();
    struct mr_task_msg msg;
    encode(&options, MR_SLICE_LIT("order-17"), &buf);
    assert_int_equal(mr_buf_append(&buf, "x", 1), MR_OK);
    assert_int_equal(mr_task_msg_decode(mr_buf_slice(&buf), &msg), MR_DAMAGED);
    mr_buf_done(&buf);
}

static void a_newer_version_is_named_and_no_version_is_damage(void **state)
{
    (void)state;
    struct mr_buf buf = {0};
    struct mr_task_options options = everything();
    struct mr_task_msg msg;
    encode(&options, MR_SLICE_LIT("order-17"), &buf);
    for (unsigned version = 0; version < 256; version++) {
        buf.data[0] = (uint8_t)version;
        enum mr_err expected = version == MR_TASK_VERSION  ? MR_OK
                               : version > MR_TASK_VERSION ? MR_VERSION
                                                           : MR_DAMAGED;
        assert_int_equal(mr_task_msg_decode(mr_buf_slice(&buf), &msg), expected);
    }
    mr_buf_done(&buf);
}

static void unknown_fields_are_damage(void **state)
{
    (void)state;
    struct mr_buf buf = {0};
    struct mr_task_msg msg;
    encode(&(struct mr_task_options){0}, mr_slice_make(NULL, 0), &buf);
    for (unsigned bit = 9; bit < 16; bit++) {
        mr_store16(buf.data + 6, (uint16_t)(1u << bit));
        assert_int_equal(mr_task_msg_decode(mr_buf_slice(&buf), &msg), MR_DAMAGED);
    }
    mr_buf_done(&buf);
}

/* A message with names of these lengths, which no encoder would write. */
static enum mr_err decode_lengths(uint8_t queue, uint8_t type, uint8_t id)
{
    uint8_t bytes[MR_TASK_FIXED + 3 * 255] = {MR_TASK_VERSION, queue, type, id};
    struct mr_task_msg msg;
    size_t len = MR_TASK_FIXED + (size_t)queue + type + id;
    return mr_task_msg_decode(mr_slice_make(bytes, len), &msg);
}

static void names_over_the_limit_or_missing_are_damage(void **state)
{
    (void)state;
    assert_int_equal(decode_lengths(1, 1, 0), MR_OK);
    assert_int_equal(decode_lengths(MR_NAME_MAX, MR_NAME_MAX, MR_ID_MAX), MR_OK);
    assert_int_equal(decode_lengths(0, 1, 0), MR_DAMAGED);
    assert_int_equal(decode_lengths(1, 0, 0), MR_DAMAGED);
    assert_int_equal(decode_lengths(MR_NAME_MAX + 1, 1, 0), MR_DAMAGED);
    assert_int_equal(decode_lengths(1, MR_NAME_MAX + 1, 0), MR_DAMAGED);
    assert_int_equal(decode_lengths(1, 1, MR_ID_MAX + 1), MR_DAMAGED);
}

static void any_wrong_byte_is_refused_or_reads_within_bounds(void **state)
{
    (void)state;
    struct mr_buf buf = {0};
    struct mr_task_options options = everything();
    encode(&options, MR_SLICE_LIT("order-17"), &buf);
    for (size_t at = 0; at < buf.len; at++) {
        for (unsigned value = 0; value < 256; value += 5) {
            uint8_t *bytes = exact(buf.data, buf.len);
            struct mr_task_msg msg;
            struct mr_header headers[MR_HEADERS_MAX];
            bytes[at] = (uint8_t)value;
            if (mr_task_msg_decode(mr_slice_make(bytes, buf.len), &msg) == MR_OK) {
                assert_true(msg.headers_n <= MR_HEADERS_MAX);
                mr_task_msg_headers(&msg, headers);
            }
            free(bytes);
        }
    }
    mr_buf_done(&buf);
}

static void priorities_are_rounded_to_the_nearest_millisecond(void **state)
{
    (void)state;
    assert_int_equal(mr_priority_ms(0.57), 570);
    assert_int_equal(mr_priority_ms(-0.57), -570);
    assert_int_equal(mr_priority_ms(0.0004), 0);
    assert_int_equal(mr_priority_ms(0.0006), 1);
}

static void encoding_without_memory_says_so_and_leaves_the_buffer(void **state)
{
    (void)state;
    struct mr_buf buf = {0};
    struct mr_task_options options = everything();
    fail_alloc_after(0);
    enum mr_err err = mr_task_msg_encode(&options, MR_SLICE_LIT("order-17"), &buf);
    long failed = fail_alloc_stop();
    assert_int_equal(failed, FAILING_ALLOC);
    assert_int_equal(err, failed ? MR_NOMEM : MR_OK);
    assert_int_equal(buf.len == 0, failed);
    mr_buf_done(&buf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_field_reads_back),
        cmocka_unit_test(what_was_not_said_gets_its_default),
        cmocka_unit_test(a_plain_task_costs_only_the_fixed_part_and_its_bytes),
        cmocka_unit_test(none_is_not_the_default),
        cmocka_unit_test(the_limits_fit),
        cmocka_unit_test(a_message_cut_anywhere_is_damaged),
        cmocka_unit_test(a_byte_too_many_is_damaged),
        cmocka_unit_test(a_newer_version_is_named_and_no_version_is_damage),
        cmocka_unit_test(unknown_fields_are_damage),
        cmocka_unit_test(names_over_the_limit_or_missing_are_damage),
        cmocka_unit_test(any_wrong_byte_is_refused_or_reads_within_bounds),
        cmocka_unit_test(priorities_are_rounded_to_the_nearest_millisecond),
        cmocka_unit_test(encoding_without_memory_says_so_and_leaves_the_buffer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
