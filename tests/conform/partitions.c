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
    assert_err(conform_queue_set(t, "q", MR_QUEUE_PARTITIONS, 2), MR_OK);
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

/* ---- working -------------------------------------------------------------------------------- */

static void one_node_takes_from_all_partitions_in_turn(void **state)
{
    struct conform *t = *state;
    size_t seen[N + 1] = {0};
    split(t, "q", N);
    struct conform_node *node = NODE(t, .queues = "q");
    for (uint32_t i = 1; i <= N; i++)
        for (int k = 0; k < 3; k++)
            (void)PUT_OK(t, .queue = MR_SLICE_LIT("q"), .partition = i);
    for (int i = 0; i < 2 * N; i++) {
        struct mr_lease *lease = conform_take_one(t, node);
        assert_slice(lease->task.queue, "q");
        seen[lease->task.partition]++;
        FINISH_OK(t, lease, .outcome = MR_DONE);
    }
    for (uint32_t i = 1; i <= N; i++)
        assert_int_not_equal(seen[i], 0); /* none waits for more than 2 N takes */
    for (int i = 0; i < N; i++)
        FINISH_OK(t, conform_take_one(t, node), .outcome = MR_DONE);
    conform_take_none(t, node);
    struct mr_queue_info info = conform_queue(t, "q");
    assert_int_equal(info.processed_total, 3 * N);
    assert_true(info.run_p99_us > 0);
}

static void a_waiting_node_is_woken_by_a_push_into_any_partition(void **state)
{
    struct conform *t = *state;
    split(t, "q", N);
    struct conform_node *node = NODE(t, .queues = "other q", .order = MR_QUEUES_STRICT);
    for (uint32_t i = 1; i <= N; i++) {
        struct conform_take take;
        conform_take_start(t, &take, node, 1, CONFORM_WAIT_MS);
        const char *id = PUT_OK(t, .queue = MR_SLICE_LIT("q"), .partition = i);
        mr_mono put = conform_mono();
        assert_err(conform_take_end(t, &take), MR_OK);
        assert_slice(take.req.leases->task.id, id);
        assert_true(conform_elapsed_ms(put) < 5000);
        conform_finish_list(t, take.req.leases, MR_DONE);
        mr_req_done(&take.req.req);
    }
}

static void partitions_that_come_are_worked_off_by_nodes_that_wait(void **state)
{
    struct conform *t = *state;
    struct conform_take take;
    struct conform_node *node = NODE(t, .queues = "q");
    conform_take_start(t, &take, node, 1, CONFORM_WAIT_MS);
    split(t, "q", N);
    const char *id = PUT_OK(t, .queue = MR_SLICE_LIT("q"), .partition = N);
    assert_err(conform_take_end(t, &take), MR_OK);
    assert_slice(take.req.leases->task.id, id);
    conform_finish_list(t, take.req.leases, MR_DONE);
    mr_req_done(&take.req.req);
}

static void what_is_in_partitions_that_went_is_worked_off(void **state)
{
    struct conform *t = *state;
    split(t, "q", N);
    for (uint32_t i = 1; i <= N; i++)
        (void)PUT_OK(t, .queue = MR_SLICE_LIT("q"), .partition = i);
    split(t, "q", 2);
    assert_err(PUT(t, .queue = MR_SLICE_LIT("q"), .partition = 3).err, MR_INVALID);
    assert_int_equal(conform_queue(t, "q").counts[MR_PENDING], N);
    struct conform_node *node = NODE(t, .queues = "q");
    for (int i = 0; i < N; i++)
        FINISH_OK(t, conform_take_one(t, node), .outcome = MR_DONE);
    conform_take_none(t, node);
    assert_int_equal(conform_queue(t, "q").counts[MR_PENDING], 0);
}

/* One in each state that it can wait, run or end in, all in this partition. */
static void put_in_every_state(struct conform *t, uint32_t partition, const char *ids[5])
{
    struct mr_slice queue = MR_SLICE_LIT("q");
    struct conform_node *node = NODE(t, .queues = "q");
    const char *id = PUT_OK(t, .queue = queue, .partition = partition);
    FINISH_OK(t, conform_take_id(t, node, id), .outcome = MR_FAIL, .error = MR_SLICE_LIT("no"),
              .delay_ms = 3600000);
    ids[0] = id;
    id = PUT_OK(t, .queue = queue, .partition = partition, .retention_ms = 3600000);
    FINISH_OK(t, conform_take_id(t, node, id), .outcome = MR_DONE);
    ids[1] = id;
    ids[2] = PUT_OK(t, .queue = queue, .partition = partition, .delay_ms = 3600000);
    ids[3] = PUT_OK(t, .queue = queue, .partition = partition);
    assert_err(conform_act(t, MR_VERB_ARCHIVE, ids[3], 0), MR_OK);
    assert_err(conform_node_close(t, node), MR_OK);
    ids[4] = NULL;
}

static const enum mr_state every_state[] = {MR_RETRY, MR_COMPLETED, MR_SCHEDULED, MR_ARCHIVED};

static void nothing_is_lost_when_partitions_go(void **state)
{
    struct conform *t = *state;
    const char *ids[N][5];
    split(t, "q", N);
    for (uint32_t i = 0; i < N; i++)
        put_in_every_state(t, i + 1, ids[i]);
    for (uint32_t i = 0; i < N; i++)
        (void)PUT_OK(t, .queue = MR_SLICE_LIT("q"), .partition = i + 1);
    split(t, "q", 2);
    for (uint32_t i = 0; i < N; i++)
        for (size_t k = 0; ids[i][k] != NULL; k++) {
            assert_int_equal(conform_state(t, ids[i][k]), every_state[k]);
            if (i < 2) /* what stays is not touched */
                assert_int_equal(partition_of(t, ids[i][k]), i + 1);
        }
    /* What waits runs when it is time, wherever it is. */
    for (uint32_t i = 0; i < N; i++) {
        assert_err(conform_act(t, MR_VERB_RUN, ids[i][0], 0), MR_OK);
        assert_err(conform_act(t, MR_VERB_RUN, ids[i][2], 0), MR_OK);
    }
    struct conform_node *node = NODE(t, .queues = "q");
    for (uint32_t i = 0; i < 3 * N; i++)
        FINISH_OK(t, conform_take_one(t, node), .outcome = MR_DONE);
    conform_take_none(t, node);
    split(t, "q", N);
    for (uint32_t i = 1; i <= N; i++) /* those that come anew are empty, and used */
        (void)PUT_OK(t, .queue = MR_SLICE_LIT("q"), .partition = i);
    for (int i = 0; i < N; i++)
        FINISH_OK(t, conform_take_one(t, node), .outcome = MR_DONE);
}

static void partitions_are_as_they_were_after_a_new_start(void **state)
{
    struct conform *t = *state;
    const char *ids[N][5];
    uint32_t before[N][4];
    if (!t->engine->can_reopen)
        return;
    split(t, "q", N);
    assert_err(conform_queue_set(t, "q", MR_QUEUE_ASSIGN, MR_ASSIGN_CONSISTENT_HASH), MR_OK);
    for (uint32_t i = 0; i < N; i++)
        put_in_every_state(t, i + 1, ids[i]);
    split(t, "q", N - 1);
    for (uint32_t i = 0; i < N; i++)
        for (size_t k = 0; ids[i][k] != NULL; k++)
            before[i][k] = partition_of(t, ids[i][k]);
    conform_reopen(t);
    assert_int_equal(conform_queue(t, "q").partitions, N - 1);
    assert_int_equal(conform_queue(t, "q").assign, MR_ASSIGN_CONSISTENT_HASH);
    for (uint32_t i = 0; i < N; i++)
        for (size_t k = 0; ids[i][k] != NULL; k++) {
            assert_int_equal(conform_state(t, ids[i][k]), every_state[k]);
            assert_int_equal(partition_of(t, ids[i][k]), before[i][k]);
        }
    assert_err(PUT(t, .queue = MR_SLICE_LIT("q"), .partition = N).err, MR_INVALID);
}

/* Two nodes share them; when one has nothing, it takes what is the other's. */
static void idle_nodes_steal(void **state)
{
    struct conform *t = *state;
    size_t n;
    split(t, "q", N);
    struct conform_node *a = NODE(t, .name = "a", .queues = "q");
    struct conform_node *b = NODE(t, .name = "b", .queues = "q");
    (void)b;
    for (uint32_t i = 1; i <= N; i++)
        (void)PUT_OK(t, .queue = MR_SLICE_LIT("q"), .partition = i);
    for (size_t got = 0; got < N; got += n)
        conform_finish_list(t, conform_take_list(t, a, 10, CONFORM_WAIT_MS, &n), MR_DONE);
    conform_take_none(t, a);
}

static void a_queue_counts_once_however_many_partitions_it_has(void **state)
{
    struct conform *t = *state;
    size_t many = 0, n = 0;
    split(t, "q", N);
    struct mr_task_options tasks[80];
    struct mr_enqueue_result results[80];
    for (size_t i = 0; i < 80; i++)
        tasks[i] =
            (struct mr_task_options){.queue = i % 2 ? MR_SLICE_LIT("q") : MR_SLICE_LIT("default")};
    conform_put_all(t, tasks, 80, results);
    struct conform_node *node = NODE(t, .queues = "q default");
    for (int i = 0; i < 40; i++) {
        struct mr_lease *lease = conform_take_list(t, node, 1, CONFORM_WAIT_MS, &n);
        assert_int_equal(n, 1);
        many += mr_slice_equal(lease->task.queue, MR_SLICE_LIT("q"));
        conform_finish_list(t, lease, MR_DONE);
    }
    assert_int_equal(many, 20);
}

static void verbs_waits_and_results_find_tasks_in_any_partition(void **state)
{
    struct conform *t = *state;
    split(t, "q", N);
    struct conform_node *node = NODE(t, .queues = "q");
    for (uint32_t i = 1; i <= N; i++) {
        const char *id = PUT_OK(t, .queue = MR_SLICE_LIT("q"), .partition = i, .delay_ms = 3600000,
                                .retention_ms = 3600000);
        assert_err(conform_act(t, MR_VERB_RUN, id, 0), MR_OK);
        struct mr_lease *lease = conform_take_id(t, node, id);
        assert_int_equal(lease->task.partition, i);
        assert_err(conform_beat(t, node), MR_OK);
        FINISH_OK(t, lease, .outcome = MR_FAIL, .error = MR_SLICE_LIT("no"), .delay_ms = 3600000);
        assert_int_equal(conform_state(t, id), MR_RETRY);
        assert_int_equal(partition_of(t, id), i);
        assert_err(conform_act(t, MR_VERB_RUN, id, 0), MR_OK);
        FINISH_OK(t, conform_take_id(t, node, id), .outcome = MR_DONE,
                  .result = MR_SLICE_LIT("yes"));
        struct mr_req_await await = {
            .req.op = MR_OP_AWAIT, .id = mr_slice_str(id), .wait_ms = CONFORM_WAIT_MS};
        assert_err(mr_broker_call(t->broker, &await.req), MR_OK);
        assert_slice(await.task.result, "yes");
        assert_slice(await.task.queue, "q");
        mr_req_done(&await.req);
    }
    struct mr_queue_day days[4];
    struct mr_req_queue_history history = {
        .req.op = MR_OP_QUEUE_HISTORY, .queue = MR_SLICE_LIT("q"), .days = days, .max = 4};
    assert_err(mr_broker_call(t->broker, &history.req), MR_OK);
    uint64_t processed = 0;
    for (size_t i = 0; i < history.n; i++)
        processed += days[i].processed;
    assert_true(history.n <= 2); /* two days at midnight */
    assert_int_equal(processed, 2 * N);
    mr_req_done(&history.req);
}

static void a_paused_queue_is_so_in_all_partitions(void **state)
{
    struct conform *t = *state;
    split(t, "q", 2);
    assert_err(conform_queue_set(t, "q", MR_QUEUE_PAUSED, 1), MR_OK);
    split(t, "q", N);
    struct conform_node *node = NODE(t, .queues = "q");
    for (uint32_t i = 1; i <= N; i++)
        (void)PUT_OK(t, .queue = MR_SLICE_LIT("q"), .partition = i);
    conform_take_none(t, node);
    assert_true(conform_queue(t, "q").paused);
    assert_err(conform_queue_set(t, "q", MR_QUEUE_PAUSED, 0), MR_OK);
    for (uint32_t i = 1; i <= N; i++)
        FINISH_OK(t, conform_take_one(t, node), .outcome = MR_DONE);
}

/* ---- groups --------------------------------------------------------------------------------- */

static void gather_one(struct conform *t, char group[MR_NAME_MAX + 1])
{
    struct mr_req_gather gather = {.req.op = MR_OP_GATHER,
                                   .queue = MR_SLICE_LIT("q"),
                                   .max_size = 2,
                                   .grace_ms = 3600000,
                                   .wait_ms = CONFORM_WAIT_MS};
    assert_err(mr_broker_call(t->broker, &gather.req), MR_OK);
    assert_int_equal(gather.n, 2);
    assert_slice(gather.tasks[0].queue, "q");
    uint32_t partition = gather.tasks[0].partition;
    assert_int_equal(gather.tasks[1].partition, partition);
    struct mr_task_options task = {.payload = MR_SLICE_LIT("both")};
    struct mr_req_gathered gathered = {.req.op = MR_OP_GATHERED,
                                       .queue = MR_SLICE_LIT("q"),
                                       .set = mr_slice_str(gather.set),
                                       .task = &task};
    assert_err(mr_broker_call(t->broker, &gathered.req), MR_OK);
    assert_err(gathered.result.err, MR_OK);
    assert_int_equal(partition_of(t, gathered.result.id), partition);
    memcpy(group, gather.group, sizeof gather.group);
    mr_req_done(&gathered.req);
    mr_req_done(&gather.req);
}

static void groups_are_gathered_wherever_they_are(void **state)
{
    enum { GROUPS = 8 };
    struct conform *t = *state;
    bool seen[GROUPS] = {false};
    split(t, "q", N);
    for (int i = 0; i < 2 * GROUPS; i++) {
        char group[2] = {(char)('a' + i % GROUPS), '\0'};
        (void)PUT_OK(t, .queue = MR_SLICE_LIT("q"), .group = mr_slice_str(group));
    }
    assert_int_equal(conform_queue(t, "q").counts[MR_AGGREGATING], 2 * GROUPS);
    for (int i = 0; i < GROUPS; i++) {
        char group[MR_NAME_MAX + 1];
        gather_one(t, group);
        assert_false(seen[group[0] - 'a']);
        seen[group[0] - 'a'] = true;
    }
    assert_int_equal(conform_queue(t, "q").counts[MR_AGGREGATING], 0);
    assert_int_equal(conform_queue(t, "q").counts[MR_PENDING], GROUPS);
}

int conform_partitions(const struct conform_engine *engine)
{
    struct CMUnitTest all[] = {
        CONFORM_TEST(a_queue_has_one_partition_unless_told_otherwise),
        CONFORM_TEST(numbers_of_partitions_that_cannot_be_are_refused),
        CONFORM_TEST(names_with_the_mark_of_a_partition_are_names),
        CONFORM_TEST(tasks_go_round_robin),
        CONFORM_TEST(a_named_partition_is_obeyed_and_one_that_is_not_there_refused),
        CONFORM_TEST(a_key_always_leads_to_the_same_partition),
        CONFORM_TEST(ids_and_unique_keys_are_unique_over_all_partitions),
        CONFORM_TEST(people_see_one_queue),
        CONFORM_TEST(settings_hold_for_each_partition_also_for_new_ones),
        CONFORM_TEST(one_node_takes_from_all_partitions_in_turn),
        CONFORM_TEST(a_waiting_node_is_woken_by_a_push_into_any_partition),
        CONFORM_TEST(partitions_that_come_are_worked_off_by_nodes_that_wait),
        CONFORM_TEST(what_is_in_partitions_that_went_is_worked_off),
        CONFORM_TEST(nothing_is_lost_when_partitions_go),
        CONFORM_TEST(partitions_are_as_they_were_after_a_new_start),
        CONFORM_TEST(idle_nodes_steal),
        CONFORM_TEST(a_queue_counts_once_however_many_partitions_it_has),
        CONFORM_TEST(verbs_waits_and_results_find_tasks_in_any_partition),
        CONFORM_TEST(a_paused_queue_is_so_in_all_partitions),
        CONFORM_TEST(groups_are_gathered_wherever_they_are),
    };
    return CONFORM_RUN(engine, "partitions", all);
}
