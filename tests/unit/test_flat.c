/* SPDX-License-Identifier: Apache-2.0 */
/* Against what protobuf-c makes of the same .proto files. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rand.h"
#include "millrace/v1/nodes.pb-c.h"
#include "millrace/v1/server.pb-c.h"
#include "support/pb_of.h"
#include "wire/flat.h"
#include "wire/node.h"

static struct mr_arena arena;

static int end(void **state)
{
    (void)state;
    mr_arena_done(&arena);
    return 0;
}

/* The encoding of an object, in the arena, with nothing behind it. */
static struct mr_slice written(const struct mr_flat *flat, const void *in)
{
    size_t size = mr_flat_size(flat, in);
    uint8_t *bytes = mr_arena_alloc(&arena, size + 1);
    assert_non_null(bytes);
    assert_ptr_equal(mr_flat_write(flat, in, bytes), bytes + size);
    return mr_slice_make(bytes, size);
}

static struct mr_slice packed(const ProtobufCMessage *message)
{
    struct mr_buf buf = {0};
    struct mr_slice copy;
    assert_int_equal(pb_encode(message, &buf), MR_OK);
    assert_int_equal(mr_arena_copy(&arena, mr_buf_slice(&buf), &copy), MR_OK);
    mr_buf_done(&buf);
    return copy;
}

static void assert_same(struct mr_slice a, struct mr_slice b)
{
    assert_int_equal(a.len, b.len);
    if (a.len > 0)
        assert_memory_equal(a.data, b.data, a.len);
}

static const struct mr_header headers[] = {
    {{"trace", 5}, {"a\0b", 3}}, {{"empty", 5}, {NULL, 0}}, {{NULL, 0}, {NULL, 0}}};

static struct mr_task_options full_options(void)
{
    return (struct mr_task_options){
        .queue = MR_SLICE_LIT("queue"),
        .type = MR_SLICE_LIT("type"),
        .payload = MR_SLICE_LIT("pay\0load"),
        .id = MR_SLICE_LIT("id"),
        .priority_s = -2.5,
        .delay_ms = INT64_MAX,
        .at_ms = -1,
        .max_retry = -1,
        .timeout_ms = 127,
        .deadline_ms = 128,
        .retention_ms = 16383,
        .unique_ms = 16384,
        .unique_key = MR_SLICE_LIT("key"),
        .on_duplicate = MR_DUPLICATE_REPLACE,
        .group = MR_SLICE_LIT("group"),
        .topic = MR_SLICE_LIT("topic"),
        .headers = headers,
        .headers_n = 3,
    };
}

static struct mr_task full_task(void)
{
    return (struct mr_task){
        .id = MR_SLICE_LIT("id"),
        .queue = MR_SLICE_LIT("queue"),
        .type = MR_SLICE_LIT("type"),
        .payload = MR_SLICE_LIT("payload"),
        .unique_key = MR_SLICE_LIT("key"),
        .group = MR_SLICE_LIT("group"),
        .topic = MR_SLICE_LIT("topic"),
        .node = MR_SLICE_LIT("node"),
        .last_error = MR_SLICE_LIT("\xff"),
        .result = MR_SLICE_LIT("result"),
        .progress = MR_SLICE_LIT("50 half"),
        .headers = headers,
        .headers_n = 3,
        .state = MR_COMPLETED,
        .priority_s = 1e300,
        .order_time_ms = -5,
        .attempt = UINT32_MAX,
        .retried = 1,
        .max_retry = 2,
        .crashes = 3,
        .epoch = UINT64_MAX,
        .timeout_ms = -1,
        .deadline_ms = 4,
        .retention_ms = 5,
        .created_ms = 6,
        .due_ms = 7,
        .started_ms = 8,
        .finished_ms = 9,
        .last_failed_ms = 10,
        .cancel_requested = true,
    };
}

static void a_new_task_is_the_same_on_both_ways(void **state)
{
    (void)state;
    struct mr_task_options options = full_options(), back;
    Millrace__V1__NewTask message;
    assert_int_equal(pb_of_new_task(&options, &arena, &message), MR_OK);
    struct mr_slice bytes = written(&mr_flat_new_task, &options);
    assert_same(bytes, packed(&message.base));
    assert_int_equal(mr_flat_read(&mr_flat_new_task, bytes, &arena, &back), MR_OK);
    assert_same(written(&mr_flat_new_task, &back), bytes);
    assert_same(back.headers[0].value, headers[0].value);
}

static void a_task_is_the_same_on_both_ways(void **state)
{
    (void)state;
    struct mr_task task = full_task(), back;
    Millrace__V1__Task message;
    assert_int_equal(pb_of_task(&task, &arena, &message), MR_OK);
    struct mr_slice bytes = written(&mr_flat_task, &task);
    assert_same(bytes, packed(&message.base));
    assert_int_equal(mr_flat_read(&mr_flat_task, bytes, &arena, &back), MR_OK);
    assert_same(written(&mr_flat_task, &back), bytes);
}

static void a_node_is_the_same_on_both_ways(void **state)
{
    (void)state;
    struct mr_worker_queue queues[] = {{MR_SLICE_LIT("mail"), 3}, {MR_SLICE_LIT("bank"), 0}};
    struct mr_slice types[] = {MR_SLICE_LIT("send"), MR_SLICE_LIT("x*")};
    struct mr_node_info node = {.name = MR_SLICE_LIT("n"),
                                .incarnation = UINT64_MAX,
                                .state = MR_NODE_DEAD,
                                .started_ms = 1,
                                .last_beat_ms = 2,
                                .in_hand = 3,
                                .slots = 4,
                                .busy = 5,
                                .queues = queues,
                                .queues_n = 2,
                                .types = types,
                                .types_n = 2},
                        back;
    ProtobufCMessage *decoded;
    uint8_t *bytes = mr_arena_alloc(&arena, mr_node_size(&node));
    assert_ptr_equal(mr_node_write(&node, bytes), bytes + mr_node_size(&node));
    struct mr_slice encoded = mr_slice_make(bytes, mr_node_size(&node));
    assert_int_equal(mr_pb_decode(&millrace__v1__node__descriptor, encoded, &arena, &decoded),
                     MR_OK);
    const Millrace__V1__Node *message = (const void *)decoded;
    assert_string_equal(message->node, "n");
    assert_true(message->incarnation == UINT64_MAX);
    assert_int_equal(message->state, MILLRACE__V1__NODE_STATE__NODE_DEAD);
    assert_true(message->started_ms == 1 && message->last_beat_ms == 2 && message->in_hand == 3);
    assert_true(message->concurrency == 4 && message->busy == 5);
    assert_true(message->n_queues == 2 && message->queues[0]->weight == 3);
    assert_string_equal(message->queues[1]->name, "bank");
    assert_true(message->n_types == 2 && strcmp(message->types[1], "x*") == 0);
    assert_same(packed(decoded), encoded);
    assert_int_equal(mr_node_read(encoded, &arena, &back), MR_OK);
    assert_true(back.queues_n == 2 && back.types_n == 2);
    uint8_t *again = mr_arena_alloc(&arena, mr_node_size(&back));
    mr_node_write(&back, again);
    assert_same(mr_slice_make(again, mr_node_size(&back)), encoded);
}

/* A list that no honest server sends costs no memory. */
static void a_node_with_too_many_queues_is_refused(void **state)
{
    (void)state;
    uint8_t bytes[200];
    struct mr_node_info node;
    for (size_t i = 0; i < sizeof bytes; i += 2) {
        bytes[i] = 9 << 3 | MR_FLAT_BYTES;
        bytes[i + 1] = 0;
    }
    assert_int_equal(mr_node_read(mr_slice_make(bytes, sizeof bytes), &arena, &node), MR_INVALID);
}

static void answers_and_figures_are_the_same_on_both_ways(void **state)
{
    (void)state;
    struct mr_enqueue_result result = {.err = MR_OK, .state = MR_PENDING, .id = "some-id"}, r;
    Millrace__V1__EnqueueResult result_message;
    assert_int_equal(pb_of_enqueue_result(&result, &arena, &result_message), MR_OK);
    struct mr_slice bytes = written(&mr_flat_enqueue_result, &result);
    assert_same(bytes, packed(&result_message.base));
    assert_int_equal(mr_flat_read(&mr_flat_enqueue_result, bytes, NULL, &r), MR_OK);
    assert_string_equal(r.id, "some-id");

    struct mr_queue_info info = {.name = "q",
                                 .paused = true,
                                 .max_length = 9,
                                 .wait_p50_us = 10,
                                 .wait_p99_us = 11,
                                 .run_p50_us = 12,
                                 .run_p99_us = 13,
                                 .trimmed = 14,
                                 .quarantined = 15},
                         i;
    for (size_t k = 0; k < MR_STATE_COUNT; k++)
        info.counts[k] = k == MR_STATE_NONE ? 0 : 1000 * k;
    Millrace__V1__Queue queue_message;
    assert_int_equal(pb_of_queue(&info, &arena, &queue_message), MR_OK);
    bytes = written(&mr_flat_queue, &info);
    assert_same(bytes, packed(&queue_message.base));
    assert_int_equal(mr_flat_read(&mr_flat_queue, bytes, NULL, &i), MR_OK);
    assert_memory_equal(&i, &info, sizeof i);

    struct mr_stats stats = {.tasks = 1,
                             .syncs = 2,
                             .snapshots = 3,
                             .failed = true,
                             .upkeep = true,
                             .gathered = 4,
                             .carried = 5,
                             .moved = 6,
                             .trimmed = 7,
                             .quarantined = 8},
                    s;
    Millrace__V1__StatsResponse stats_message = MILLRACE__V1__STATS_RESPONSE__INIT;
    stats_message.tasks = 1;
    stats_message.syncs = 2;
    stats_message.snapshots = 3;
    stats_message.upkeep = true;
    stats_message.gathered = 4;
    stats_message.carried = 5;
    stats_message.moved = 6;
    stats_message.trimmed = 7;
    stats_message.quarantined = 8;
    stats_message.failed = true;
    bytes = written(&mr_flat_stats, &stats);
    assert_same(bytes, packed(&stats_message.base));
    assert_int_equal(mr_flat_read(&mr_flat_stats, bytes, NULL, &s), MR_OK);
    assert_true(s.failed && s.snapshots == 3 && s.upkeep);
}

static void nothing_is_written_for_nothing(void **state)
{
    (void)state;
    struct mr_task task = {0}, back;
    assert_int_equal(mr_flat_size(&mr_flat_task, &task), 0);
    assert_int_equal(mr_flat_read(&mr_flat_task, (struct mr_slice){0}, &arena, &back), MR_OK);
    assert_int_equal(back.id.len, 0);
}

static void fields_of_a_later_version_are_skipped(void **state)
{
    (void)state;
    struct mr_task_options back;
    struct mr_slice bytes = MR_SLICE_LIT("\xa2\x06\x03xyz\x0a\x01q\xa0\x06\x05\xa5\x06\1\2\3\4");
    assert_int_equal(mr_flat_read(&mr_flat_new_task, bytes, &arena, &back), MR_OK);
    assert_same(back.queue, MR_SLICE_LIT("q"));
}

static void what_is_no_message_is_refused(void **state)
{
    (void)state;
    static const struct mr_slice bad[] = {
        {"\x0a", 1},                                          /* length missing */
        {"\x0a\x05q", 3},                                     /* bytes missing */
        {"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", 11}, /* length beyond everything */
        {"\x08\x01", 2},                                      /* a number for a string */
        {"\x29\x01", 2},                                      /* half a double */
        {"\x70\x03", 2},                                      /* on_duplicate 3 */
        {"\x02\x01q", 3},                                     /* field 0 */
        {"\x0b", 1},                                          /* a group */
        {"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 11}, /* an endless number */
        {"\x8a\x01\x02\x08\x01", 5},                          /* a header whose name is a number */
    };
    struct mr_task_options back;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(mr_flat_read(&mr_flat_new_task, bad[i], &arena, &back), MR_INVALID);
}

static void headers_without_end_cost_nothing(void **state)
{
    (void)state;
    enum { N = 100000 };
    uint8_t *bytes = malloc(3 * N);
    struct mr_task_options back;
    for (size_t i = 0; i < N; i++)
        memcpy(bytes + 3 * i, "\x8a\x01\x00", 3);
    size_t before = arena.bytes;
    assert_int_equal(mr_flat_read(&mr_flat_new_task, mr_slice_make(bytes, 3 * N), &arena, &back),
                     MR_OK);
    assert_int_equal(back.headers_n, MR_HEADERS_MAX + 1); /* refused behind the door */
    assert_true(arena.bytes - before < 4096);
    free(bytes);
}

/* Whatever comes: refused, or read like protobuf-c reads it. */
static void mutations_are_refused_or_read_right(void **state)
{
    (void)state;
    struct mr_rand rand;
    mr_rand_seed(&rand, 7);
    struct mr_task_options options = full_options(), back;
    struct mr_slice whole = written(&mr_flat_new_task, &options);
    for (int i = 0; i < 20000; i++) {
        struct mr_slice bytes;
        ProtobufCMessage *message;
        assert_int_equal(mr_arena_copy(&arena, whole, &bytes), MR_OK);
        uint8_t *p = (uint8_t *)(uintptr_t)bytes.data;
        for (uint64_t k = mr_rand_below(&rand, 4); k > 0; k--)
            p[mr_rand_below(&rand, bytes.len)] = (uint8_t)mr_rand_next(&rand);
        bytes.len = mr_rand_one_in(&rand, 3) ? mr_rand_below(&rand, bytes.len) : bytes.len;
        enum mr_err ours = mr_flat_read(&mr_flat_new_task, bytes, &arena, &back);
        enum mr_err theirs =
            mr_pb_decode(&millrace__v1__new_task__descriptor, bytes, &arena, &message);
        if (ours == MR_OK && theirs == MR_OK) {
            const Millrace__V1__NewTask *task = (const void *)message;
            assert_int_equal(back.payload.len, task->payload.len);
            assert_int_equal(back.delay_ms, task->delay_ms);
            assert_int_equal(back.max_retry, task->max_retry);
            assert_int_equal(back.headers_n, task->n_headers);
        }
        mr_arena_reset(&arena);
        options = full_options();
        whole = written(&mr_flat_new_task, &options);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(a_new_task_is_the_same_on_both_ways, end),
        cmocka_unit_test_teardown(a_task_is_the_same_on_both_ways, end),
        cmocka_unit_test_teardown(a_node_is_the_same_on_both_ways, end),
        cmocka_unit_test_teardown(a_node_with_too_many_queues_is_refused, end),
        cmocka_unit_test_teardown(answers_and_figures_are_the_same_on_both_ways, end),
        cmocka_unit_test_teardown(nothing_is_written_for_nothing, end),
        cmocka_unit_test_teardown(fields_of_a_later_version_are_skipped, end),
        cmocka_unit_test_teardown(what_is_no_message_is_refused, end),
        cmocka_unit_test_teardown(headers_without_end_cost_nothing, end),
        cmocka_unit_test_teardown(mutations_are_refused_or_read_right, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
