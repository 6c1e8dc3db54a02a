/* SPDX-License-Identifier: Apache-2.0 */
/* The bodies of the log's records read back as they were, and wrong lengths are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "wire/event.h"
#include "wire/record.h"

static struct mr_uuid uuid(uint8_t first)
{
    struct mr_uuid uuid;
    for (size_t i = 0; i < sizeof uuid.bytes; i++)
        uuid.bytes[i] = (uint8_t)(first + i);
    return uuid;
}

/* The slice as bytes of exactly that size on the heap. */
static struct mr_slice exact(const void *bytes, size_t len)
{
    uint8_t *copy = malloc(len ? len : 1);
    assert_non_null(copy);
    memcpy(copy, bytes, len);
    return mr_slice_make(copy, len);
}

static void release(struct mr_slice slice)
{
    free((void *)slice.data);
}

static const struct mr_event_task a_task = {
    .key = -5,
    .created_ms = 1790000000001,
    .queue = 65535,
    .part = MR_PARTITIONS_MAX - 1,
    .max_retry = 65535,
    .state = MR_SCHEDULED,
    .flags = MR_TASK_UUID | MR_TASK_PRIORITY,
};

static void a_task_event_reads_back_with_its_message(void **state)
{
    (void)state;
    uint8_t bytes[MR_EVENT_TASK_SIZE + 3];
    struct mr_event_task event = a_task, found;
    struct mr_slice message;
    event.id = uuid(1);
    mr_event_task_encode(&event, bytes);
    memcpy(bytes + MR_EVENT_TASK_SIZE, "abc", 3);
    assert_int_equal(mr_event_task_decode(mr_slice_make(bytes, sizeof bytes), &found, &message),
                     MR_OK);
    assert_memory_equal(&found.id, &event.id, 16);
    assert_true(found.key == -5 && found.created_ms == event.created_ms);
    assert_int_equal(found.queue, 65535);
    assert_int_equal(found.part, MR_PARTITIONS_MAX - 1);
    assert_int_equal(found.max_retry, 65535);
    assert_int_equal(found.state, MR_SCHEDULED);
    assert_int_equal(found.flags, event.flags);
    assert_true(mr_slice_equal(message, MR_SLICE_LIT("abc")));
}

static void a_task_event_that_is_short_or_in_a_strange_state_is_damaged(void **state)
{
    (void)state;
    uint8_t bytes[MR_EVENT_TASK_SIZE];
    struct mr_event_task found;
    struct mr_slice message;
    mr_event_task_encode(&a_task, bytes);
    for (size_t n = 0; n < sizeof bytes; n++) {
        struct mr_slice body = exact(bytes, n);
        assert_int_equal(mr_event_task_decode(body, &found, &message), MR_DAMAGED);
        release(body);
    }
    for (unsigned s = 0; s < 256; s++) {
        bytes[38] = (uint8_t)s;
        enum mr_err err =
            mr_event_task_decode(mr_slice_make(bytes, sizeof bytes), &found, &message);
        bool fine = s == MR_SCHEDULED || s == MR_PENDING || s == MR_AGGREGATING;
        assert_int_equal(err, fine ? MR_OK : MR_DAMAGED);
    }
}

static void a_gathered_event_reads_back_with_its_members(void **state)
{
    (void)state;
    enum { HEAD = MR_EVENT_TASK_SIZE + MR_EVENT_GATHERED_HEAD, IDS = 3 * 16 };
    uint8_t bytes[HEAD + IDS + 3];
    struct mr_event_task found;
    struct mr_slice ids, message;
    mr_event_gathered_encode(&a_task, 3, bytes);
    for (size_t i = 0; i < 3; i++) {
        struct mr_uuid id = uuid((uint8_t)(20 + i));
        memcpy(bytes + HEAD + 16 * i, &id, sizeof id);
    }
    memcpy(bytes + HEAD + IDS, "abc", 3);
    struct mr_slice body = mr_slice_make(bytes, sizeof bytes);
    assert_int_equal(mr_event_gathered_decode(body, &found, &ids, &message), MR_OK);
    assert_memory_equal(&found.id, &a_task.id, 16);
    assert_true(mr_slice_equal(ids, mr_slice_make(bytes + HEAD, IDS)));
    assert_true(mr_slice_equal(message, MR_SLICE_LIT("abc")));
    for (size_t n = 0; n < sizeof bytes - 3; n++) {
        struct mr_slice cut = exact(bytes, n);
        assert_int_equal(mr_event_gathered_decode(cut, &found, &ids, &message), MR_DAMAGED);
        release(cut);
    }
    mr_store32(bytes + MR_EVENT_TASK_SIZE, UINT32_MAX);
    assert_int_equal(mr_event_gathered_decode(body, &found, &ids, &message), MR_DAMAGED);
    mr_store32(bytes + MR_EVENT_TASK_SIZE, 0); /* of nobody */
    assert_int_equal(mr_event_gathered_decode(body, &found, &ids, &message), MR_DAMAGED);
    mr_store32(bytes + MR_EVENT_TASK_SIZE, 3);
    bytes[38] = MR_AGGREGATING;
    assert_int_equal(mr_event_gathered_decode(body, &found, &ids, &message), MR_DAMAGED);
}

static void runs_read_back_and_only_whole_ones_count(void **state)
{
    (void)state;
    enum { RUN = MR_EVENT_RUN_SIZE, TIME = MR_EVENT_RUNS_TIME };
    uint8_t bytes[2 * RUN + TIME + 1];
    struct mr_event_run first = {.id = uuid(9), .epoch = UINT64_MAX};
    struct mr_event_run second = {.id = uuid(11), .epoch = 7};
    int64_t ms;
    size_t runs;
    memset(bytes, 0xff, sizeof bytes); /* so the time is -1 wherever it is looked for */
    mr_event_run_encode(&first, bytes);
    for (size_t n = 0; n <= sizeof bytes; n++) {
        if (n == RUN + TIME + 1)
            mr_event_run_encode(&second, bytes + RUN);
        struct mr_slice body = exact(bytes, n);
        bool whole = n == RUN + TIME || n == 2 * RUN + TIME;
        assert_int_equal(mr_event_runs_decode(body, &ms, &runs), whole ? MR_OK : MR_DAMAGED);
        if (whole) {
            assert_int_equal(runs, (n - TIME) / RUN);
            assert_true(ms == -1);
            struct mr_event_run run = mr_event_run_at(body, runs - 1);
            const struct mr_event_run *expected = runs == 1 ? &first : &second;
            assert_memory_equal(&run.id, &expected->id, 16);
            assert_true(run.epoch == expected->epoch);
        }
        release(body);
    }
}

static void a_result_event_has_the_text_at_the_end_of_its_message(void **state)
{
    (void)state;
    enum { HEAD = MR_EVENT_RESULT_SIZE, TEXT_AT = HEAD - 8, TYPE_AT = HEAD - 4 };
    uint8_t bytes[HEAD + 7] = {0};
    struct mr_event_result event = {.task = a_task, .type = MR_RECORD_LOST}, found;
    struct mr_slice message, body = mr_slice_make(bytes, sizeof bytes);
    event.task.state = MR_PENDING;
    event.change = (struct mr_event_change){
        .id = uuid(40), .state = MR_RETRY, .retried = 2, .text = MR_SLICE_LIT("end")};
    mr_event_result_encode(&event, bytes);
    memcpy(bytes + HEAD, "the end", 7);
    assert_int_equal(mr_event_result_decode(body, &found, &message), MR_OK);
    assert_memory_equal(&found.change.id, &event.change.id, 16);
    assert_memory_equal(&found.task.id, &a_task.id, 16);
    assert_int_equal(found.change.retried, 2);
    assert_int_equal(found.type, MR_RECORD_LOST);
    assert_true(mr_slice_equal(message, MR_SLICE_LIT("the end")));
    assert_true(mr_slice_equal(found.change.text, MR_SLICE_LIT("end")));
    for (size_t n = 0; n < HEAD + 3; n++) {
        struct mr_slice cut = exact(bytes, n);
        assert_int_equal(mr_event_result_decode(cut, &found, &message), MR_DAMAGED);
        release(cut);
    }
    const struct {
        size_t at;
        uint8_t value;
    } wrong[] = {{TEXT_AT, 8}, {TYPE_AT, MR_RECORD_DONE}, {51, MR_ACTIVE}, {56 + 38, MR_SCHEDULED}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        uint8_t right = bytes[wrong[i].at];
        bytes[wrong[i].at] = wrong[i].value;
        assert_int_equal(mr_event_result_decode(body, &found, &message), MR_DAMAGED);
        bytes[wrong[i].at] = right;
    }
}

static void a_change_event_reads_back_with_its_text(void **state)
{
    (void)state;
    struct mr_event_change event = {
        .id = uuid(40),
        .epoch = 123456789012345,
        .key = INT64_MIN,
        .order_ms = INT64_MAX,
        .ms = 42,
        .retried = 65535,
        .crashes = 3,
        .state = MR_ARCHIVED,
        .flags = MR_TASK_CANCEL,
        .outcome = MR_FAIL_FOR_GOOD,
        .text = MR_SLICE_LIT("it broke"),
    };
    struct mr_event_change found;
    uint8_t bytes[MR_EVENT_CHANGE_SIZE + 8];
    mr_event_change_encode(&event, bytes);
    assert_int_equal(mr_event_change_decode(mr_slice_make(bytes, sizeof bytes), &found), MR_OK);
    assert_memory_equal(&found.id, &event.id, 16);
    assert_true(found.epoch == event.epoch && found.key == INT64_MIN);
    assert_true(found.order_ms == INT64_MAX && found.ms == 42);
    assert_int_equal(found.retried, 65535);
    assert_int_equal(found.crashes, 3);
    assert_int_equal(found.state, MR_ARCHIVED);
    assert_int_equal(found.flags, MR_TASK_CANCEL);
    assert_int_equal(found.outcome, MR_FAIL_FOR_GOOD);
    assert_true(mr_slice_equal(found.text, event.text));
}

static void a_change_event_that_is_short_or_in_an_unknown_state_is_damaged(void **state)
{
    (void)state;
    uint8_t bytes[MR_EVENT_CHANGE_SIZE];
    struct mr_event_change found;
    mr_event_change_encode(&(struct mr_event_change){.state = MR_PENDING}, bytes);
    for (size_t n = 0; n <= sizeof bytes; n++) {
        struct mr_slice body = exact(bytes, n);
        assert_int_equal(mr_event_change_decode(body, &found),
                         n == sizeof bytes ? MR_OK : MR_DAMAGED);
        release(body);
    }
    for (unsigned s = 0; s < 256; s++) {
        bytes[51] = (uint8_t)s;
        assert_int_equal(mr_event_change_decode(mr_slice_make(bytes, sizeof bytes), &found),
                         s < MR_STATE_COUNT ? MR_OK : MR_DAMAGED);
    }
}

/* Before there were parts a queue was a number of four bytes: low ones first, and never above 65535. */
static void a_place_without_a_part_reads_as_it_always_did(void **state)
{
    (void)state;
    uint8_t bytes[4], part;
    uint16_t queue;
    mr_store32(bytes, 65535);
    assert_true(mr_event_place_decode(bytes, &queue, &part));
    assert_int_equal(queue, 65535);
    assert_int_equal(part, 0);
    for (uint32_t i = 0; i < 256; i++) {
        mr_store32(bytes, 7 | i << 16);
        assert_int_equal(mr_event_place_decode(bytes, &queue, &part), i < MR_PARTITIONS_MAX);
        mr_store32(bytes, 7 | i << 24);
        assert_int_equal(mr_event_place_decode(bytes, &queue, &part), i == 0);
    }
}

static void a_queue_event_reads_back_with_its_name(void **state)
{
    (void)state;
    char name[MR_NAME_MAX];
    memset(name, 'q', sizeof name);
    for (size_t len = 1; len <= MR_NAME_MAX; len++) {
        struct mr_event_queue event = {.number = 77,
                                       .paused = 1,
                                       .more_parts = MR_PARTITIONS_MAX - 1,
                                       .assign = MR_ASSIGN_CONSISTENT_HASH,
                                       .max_length = UINT64_MAX,
                                       .name = mr_slice_make(name, len)};
        struct mr_event_queue found;
        uint8_t bytes[MR_EVENT_QUEUE_SIZE + MR_NAME_MAX];
        mr_event_queue_encode(&event, bytes);
        struct mr_slice body = mr_slice_make(bytes, MR_EVENT_QUEUE_SIZE + len);
        assert_int_equal(mr_event_queue_decode(body, &found), MR_OK);
        assert_int_equal(found.number, 77);
        assert_int_equal(found.paused, 1);
        assert_int_equal(found.more_parts, MR_PARTITIONS_MAX - 1);
        assert_int_equal(found.assign, MR_ASSIGN_CONSISTENT_HASH);
        assert_true(found.max_length == UINT64_MAX);
        assert_true(mr_slice_equal(found.name, event.name));
    }
}

static void a_queue_event_that_is_too_short_is_damaged(void **state)
{
    (void)state;
    uint8_t bytes[MR_EVENT_QUEUE_SIZE + 255] = {0};
    struct mr_event_queue event = {.number = 1, .name = MR_SLICE_LIT("default")}, found;
    mr_event_queue_encode(&event, bytes);
    for (size_t n = 0; n < MR_EVENT_QUEUE_SIZE + 20; n++) {
        struct mr_slice body = exact(bytes, n);
        assert_int_equal(mr_event_queue_decode(body, &found),
                         n >= MR_EVENT_QUEUE_SIZE + 7 ? MR_OK : MR_DAMAGED);
        if (n >= MR_EVENT_QUEUE_SIZE + 7)
            assert_int_equal(found.settings.len, n - (MR_EVENT_QUEUE_SIZE + 7));
        release(body);
    }
    static const uint8_t wrong[] = {0, MR_NAME_MAX + 1, 255};
    for (size_t i = 0; i < sizeof wrong; i++) {
        bytes[5] = wrong[i];
        struct mr_slice body = mr_slice_make(bytes, MR_EVENT_QUEUE_SIZE + (size_t)wrong[i]);
        assert_int_equal(mr_event_queue_decode(body, &found), MR_DAMAGED);
    }
    for (size_t at = 6; at < 8;
         at++) { /* partitions that cannot be, a way to share them that is none */
        mr_event_queue_encode(&event, bytes);
        bytes[at] = MR_PARTITIONS_MAX;
        struct mr_slice body = mr_slice_make(bytes, MR_EVENT_QUEUE_SIZE + event.name.len);
        assert_int_equal(mr_event_queue_decode(body, &found), MR_DAMAGED);
    }
}

static struct mr_entry an_entry(uint8_t has_more)
{
    struct mr_entry entry = {
        .id = uuid(3),
        .key = 11,
        .tie = 12,
        .segment = 13,
        .offset = 14,
        .size = 15,
        .queue = 16,
        .part = 5,
        .retried = 17,
        .max_retry = 18,
        .state = MR_COMPLETED,
        .flags = MR_TASK_RETAIN,
        .crashes = 2,
        .has_more = has_more,
    };
    if (has_more) {
        entry.epoch = 20;
        entry.note_segment = 21;
        entry.note_offset = 22;
        entry.note_size = 23;
        entry.started_ms = 24;
        entry.finished_ms = 25;
        entry.failed_ms = 26;
        entry.order_ms = 27;
        entry.unique_until_ms = 28;
        entry.priority_ms = -29;
        entry.unique = uuid(90);
    }
    return entry;
}

static void entry_equal(const struct mr_entry *a, const struct mr_entry *b)
{
    assert_memory_equal(&a->id, &b->id, 16);
    assert_memory_equal(&a->unique, &b->unique, 16);
    assert_true(a->key == b->key && a->tie == b->tie && a->segment == b->segment);
    assert_true(a->offset == b->offset && a->size == b->size && a->queue == b->queue &&
                a->part == b->part);
    assert_true(a->retried == b->retried && a->max_retry == b->max_retry && a->state == b->state);
    assert_true(a->flags == b->flags && a->crashes == b->crashes && a->has_more == b->has_more);
    assert_true(a->epoch == b->epoch && a->note_segment == b->note_segment);
    assert_true(a->note_offset == b->note_offset && a->note_size == b->note_size);
    assert_true(a->started_ms == b->started_ms && a->finished_ms == b->finished_ms);
    assert_true(a->failed_ms == b->failed_ms && a->order_ms == b->order_ms);
    assert_true(a->unique_until_ms == b->unique_until_ms && a->priority_ms == b->priority_ms);
}

static void entries_are_taken_off_the_front_one_by_one(void **state)
{
    (void)state;
    struct mr_entry small = an_entry(0), large = an_entry(1), found;
    uint8_t bytes[2 * MR_ENTRY_MAX];
    size_t n = mr_entry_encode(&small, bytes);
    assert_int_equal(n, MR_ENTRY_SIZE);
    n += mr_entry_encode(&large, bytes + n);
    assert_int_equal(n, MR_ENTRY_SIZE + MR_ENTRY_MAX);
    struct mr_slice left = mr_slice_make(bytes, n);
    assert_int_equal(mr_entry_decode(&left, &found), MR_OK);
    entry_equal(&found, &small);
    assert_int_equal(left.len, MR_ENTRY_MAX);
    assert_int_equal(mr_entry_decode(&left, &found), MR_OK);
    entry_equal(&found, &large);
    assert_int_equal(left.len, 0);
}

static void entries_that_are_short_or_wrong_are_damaged(void **state)
{
    (void)state;
    for (uint8_t more = 0; more <= 1; more++) {
        struct mr_entry entry = an_entry(more), found;
        uint8_t bytes[MR_ENTRY_MAX];
        size_t len = mr_entry_encode(&entry, bytes);
        for (size_t n = 0; n < len; n++) {
            struct mr_slice body = exact(bytes, n), left = body;
            assert_int_equal(mr_entry_decode(&left, &found), MR_DAMAGED);
            assert_int_equal(left.len, n);
            release(body);
        }
        for (unsigned s = 0; s < 256; s++) {
            struct mr_slice left = mr_slice_make(bytes, len);
            bytes[52] = (uint8_t)s;
            assert_int_equal(mr_entry_decode(&left, &found),
                             s > MR_STATE_NONE && s < MR_STATE_COUNT ? MR_OK : MR_DAMAGED);
        }
        struct mr_slice left = mr_slice_make(bytes, len);
        bytes[55] = 2;
        assert_int_equal(mr_entry_decode(&left, &found), MR_DAMAGED);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_task_event_reads_back_with_its_message),
        cmocka_unit_test(a_task_event_that_is_short_or_in_a_strange_state_is_damaged),
        cmocka_unit_test(a_gathered_event_reads_back_with_its_members),
        cmocka_unit_test(runs_read_back_and_only_whole_ones_count),
        cmocka_unit_test(a_change_event_reads_back_with_its_text),
        cmocka_unit_test(a_result_event_has_the_text_at_the_end_of_its_message),
        cmocka_unit_test(a_change_event_that_is_short_or_in_an_unknown_state_is_damaged),
        cmocka_unit_test(a_place_without_a_part_reads_as_it_always_did),
        cmocka_unit_test(a_queue_event_reads_back_with_its_name),
        cmocka_unit_test(a_queue_event_that_is_too_short_is_damaged),
        cmocka_unit_test(entries_are_taken_off_the_front_one_by_one),
        cmocka_unit_test(entries_that_are_short_or_wrong_are_damaged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
