/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: partitions. Where tasks go, that one queue is seen, and that all of it is worked off. */
#include <stdio.h>

#include "conform/conform.h"

enum { N = 4 };

static void split(struct conform *t, const char *queue, uint64_t n)
{
    assert_err(conform_queue_set(t, queue, MR_QUEUE_PARTITIONS, n), MR_OK);
    assert_int_equal(conform_queue(t, queue).partitions, n);
}

static uint32_t partition_of(struct conform *t, const char *id)
{
    const struct mr_task *task = conform_get(t, id);
    assert_non_null(task);
    assert_slice(task->queue, "q");
    return task->partition;
}

/* How many tasks each partition of q has. */
static void count(struct conform *t, size_t counts[MR_PARTITIONS_MAX + 1])
{
    const char *cursor = "";
    memset(counts, 0, (MR_PARTITIONS_MAX + 1) * sizeof *counts);
    do {
        struct conform_page page =
            PAGE(t, .queue = MR_SLICE_LIT("q"), .limit = 7, .cursor = cursor);
        assert_err(page.err, MR_OK);
        for (size_t i = 0; i < page.n; i++) {
            assert_slice(page.tasks[i].queue, "q");
            counts[page.tasks[i].partition]++;
        }
        cursor = page.next;
    } while (cursor[0] != '\0');
}

static void a_queue_has_one_partition_unless_told_otherwise(void **state)
{
    struct conform *t = *state;
    const char *id = PUT_OK(t, .queue = MR_SLICE_LIT("q"), .key = MR_SLICE_LIT("k"));
    assert_int_equal(conform_queue(t, "q").partitions, 1);
    assert_int_equal(partition_of(t, id), 1);
    id = PUT_OK(t, .queue = MR_SLICE_LIT("q"), .partition = 1);
    assert_int_equal(partition_of(t, id), 1);
    assert_err(PUT(t, .queue = MR_SLICE_LIT("q"), .partition = 2).err, MR_INVALID);
    assert_err(PUT(t, .queue = MR_SLICE_LIT("q"), .partition = MR_PARTITIONS_MAX + 1).err,
               MR_INVALID);
    struct conform_node *node = NODE(t, .queues = "q");
    struct mr_lease *lease = conform_take_one(t, node);
    assert_int_equal(lease->task.partition, 1);
    FINISH_OK(t, lease, .outcome = MR_DONE);
}

static void numbers_of_partitions_that_cannot_be_are_refused(void **state)
{
    struct conform *t = *state;
    assert_err(conform_queue_set(t, "q", MR_QUEUE_PARTITIONS, 0), MR_INVALID);
    assert_err(conform_queue_set(t, "q", MR_QUEUE_PARTITIONS, MR_PARTITIONS_MAX + 1), MR_INVALID);
    assert_err(conform_queue_set(t, "q", MR_QUEUE_ASSIGN, MR_ASSIGN_COUNT), MR_INVALID);
    assert_err(conform_queue_set(t, "q", MR_QUEUE_PARTITIONS, 1), MR_OK);
    assert_err(conform_queue_set(t, "q", MR_QUEUE_PARTITIONS, 2),
               t->engine->has_partitions ? MR_OK : MR_UNSUPPORTED);
}

static void tasks_go_round_robin(void **state)
{
    struct conform *t = *state;
    size_t counts[MR_PARTITIONS_MAX + 1];
    split(t, "q", N);
    struct mr_task_options tasks[10 * N];
    struct mr_enqueue_result results[10 * N];
    for (size_t i = 0; i < 10 * N; i++)
        tasks[i] = (struct mr_task_options){.queue = MR_SLICE_LIT("q")};
    conform_put_all(t, tasks, 10 * N, results);
    count(t, counts);
    for (size_t i = 1; i <= N; i++)
        assert_int_equal(counts[i], 10);
    assert_int_equal(conform_queue(t, "q").counts[MR_PENDING], 10 * N);
}

static void a_named_partition_is_obeyed_and_one_that_is_not_there_refused(void **state)
{
    struct conform *t = *state;
    split(t, "q", N);
    for (uint32_t i = 1; i <= N; i++)
        assert_int_equal(partition_of(t, PUT_OK(t, .queue = MR_SLICE_LIT("q"), .partition = i)), i);
    assert_err(PUT(t, .queue = MR_SLICE_LIT("q"), .partition = N + 1).err, MR_INVALID);
    assert_int_equal(conform_queue(t, "q").counts[MR_PENDING], N);
}

static void a_key_always_leads_to_the_same_partition(void **state)
{
    struct conform *t = *state;
    bool others = false;
    uint32_t first = 0;
    split(t, "q", N);
    for (int i = 0; i < 16; i++) {
        char key[8];
        struct mr_slice slice = mr_slice_make(key, (size_t)snprintf(key, sizeof key, "k%d", i));
        uint32_t a = partition_of(t, PUT_OK(t, .queue = MR_SLICE_LIT("q"), .key = slice));
        uint32_t b = partition_of(t, PUT_OK(t, .queue = MR_SLICE_LIT("q"), .key = slice));
        assert_int_equal(a, b);
        others |= first != 0 && a != first;
        first = a;
    }
    assert_true(others);
}

static void ids_and_unique_keys_are_unique_over_all_partitions(void **state)
{
    struct conform *t = *state;
    split(t, "q", N);
    for (int i = 0; i < 8; i++) {
        char text[8];
        struct mr_slice name = mr_slice_make(text, (size_t)snprintf(text, sizeof text, "i%d", i));
        (void)PUT_OK(t, .queue = MR_SLICE_LIT("q"), .id = name);
        for (uint32_t part = 0; part <= N; part++)
            assert_err(PUT(t, .queue = MR_SLICE_LIT("q"), .id = name, .partition = part).err,
                       MR_CONFLICT);
        const char *id =
            PUT_OK(t, .queue = MR_SLICE_LIT("q"), .unique_key = name, .unique_ms = 60000);
        struct mr_enqueue_result twice =
            PUT(t, .queue = MR_SLICE_LIT("q"), .unique_key = name, .unique_ms = 60000);
        assert_err(twice.err, MR_DUPLICATE);
        assert_string_equal(twice.id, id);
        (void)PUT_OK(t, .queue = MR_SLICE_LIT("q"), .payload = name, .unique_ms = 60000);
        assert_err(PUT(t, .queue = MR_SLICE_LIT("q"), .payload = name, .unique_ms = 60000).err,
                   MR_DUPLICATE);
    }
}

static void people_see_one_queue(void **state)
{
    struct conform *t = *state;
    struct mr_queue_info infos[8];
    (void)PUT_OK(t, .queue = MR_SLICE_LIT("a"));
    split(t, "q", N);
    for (uint32_t i = 1; i <= N; i++) {
        (void)PUT_OK(t, .queue = MR_SLICE_LIT("q"), .partition = i);
        (void)PUT_OK(t, .queue = MR_SLICE_LIT("q"), .partition = i, .delay_ms = 3600000);
    }
    struct mr_req_queue_list list = {.req.op = MR_OP_QUEUE_LIST, .infos = infos, .max = 8};
    assert_err(mr_broker_call(t->broker, &list.req), MR_OK);
    assert_int_equal(list.n, 2);
    assert_string_equal(infos[1].name, "q");
    assert_int_equal(infos[1].counts[MR_PENDING], N);
    assert_int_equal(infos[1].counts[MR_SCHEDULED], N);
    mr_req_done(&list.req);
    assert_err(conform_queue_set(t, "q", MR_QUEUE_ASSIGN, MR_ASSIGN_CONSISTENT_HASH), MR_OK);
    assert_int_equal(conform_queue(t, "q").assign, MR_ASSIGN_CONSISTENT_HASH);
    assert_int_equal(conform_queue(t, "q").partitions, N);
    struct mr_stats stats = conform_stats_now(t);
    assert_int_equal(stats.tasks, 2 * N + 1);
    /* The queue goes as a whole, or not. */
    assert_err(conform_queue_remove(t, "q", MR_QUEUE_REMOVE_EMPTY), MR_WRONG_STATE);
    assert_int_equal(conform_queue(t, "q").counts[MR_PENDING], N);
    assert_err(conform_queue_remove(t, "q", MR_QUEUE_REMOVE_FORCE), MR_OK);
    assert_err(conform_queue_get(t, "q", &infos[0]), MR_NOT_FOUND);
    assert_int_equal(conform_stats_now(t).deleted, 2 * N);
    (void)PUT_OK(t, .queue = MR_SLICE_LIT("q"));
    assert_int_equal(conform_queue(t, "q").partitions, 1);
}

static void settings_hold_for_each_partition_also_for_new_ones(void **state)
{
    struct conform *t = *state;
    split(t, "q", 2);
    assert_err(conform_queue_set(t, "q", MR_QUEUE_MAX_LENGTH, 1), MR_OK);
    split(t, "q", N);
    for (uint32_t i = 1; i <= N; i++) {
        assert_err(PUT(t, .queue = MR_SLICE_LIT("q"), .partition = i).err, MR_OK);
        assert_err(PUT(t, .queue = MR_SLICE_LIT("q"), .partition = i).err, MR_QUEUE_FULL);
    }
    assert_int_equal(conform_queue(t, "q").max_length, 1);
}

static void names_with_the_mark_of_a_partition_are_names(void **state)
{
    struct conform *t = *state;
    const char *id = PUT_OK(t, .queue = MR_SLICE_LIT("x~2"));
    assert_slice(conform_get(t, id)->queue, "x~2");
    assert_int_equal(conform_get(t, id)->partition, 1);
    assert_int_equal(conform_queue(t, "x~2").counts[MR_PENDING], 1);
    FINISH_OK(t, conform_take_id(t, NODE(t, .queues = "x~2"), id), .outcome = MR_DONE);
}

int conform_partitions(const struct conform_engine *engine)
{
    struct CMUnitTest all[] = {
        CONFORM_TEST(a_queue_has_one_partition_unless_told_otherwise),
        CONFORM_TEST(numbers_of_partitions_that_cannot_be_are_refused),
        CONFORM_TEST(names_with_the_mark_of_a_partition_are_names),
    };
    struct CMUnitTest several[] = {
        CONFORM_TEST(tasks_go_round_robin),
        CONFORM_TEST(a_named_partition_is_obeyed_and_one_that_is_not_there_refused),
        CONFORM_TEST(a_key_always_leads_to_the_same_partition),
        CONFORM_TEST(ids_and_unique_keys_are_unique_over_all_partitions),
        CONFORM_TEST(people_see_one_queue),
        CONFORM_TEST(settings_hold_for_each_partition_also_for_new_ones),
    };
    int failed = CONFORM_RUN(engine, "partitions", all);
    if (engine->has_partitions)
        failed += CONFORM_RUN(engine, "several partitions", several);
    return failed;
}
