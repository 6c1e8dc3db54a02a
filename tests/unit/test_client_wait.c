/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for a task and looking at nodes, by the public calls on the embedded engine. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <millrace.h>

#include "base/chan.h"
#include "unit/temp_dir.h"

struct world {
    char dir[TEMP_DIR_MAX];
    struct mr_client *client;
    struct mr_worker *worker;
};

static int make_world(void **state)
{
    struct world *world = calloc(1, sizeof *world);
    assert_non_null(world);
    temp_dir_make(world->dir);
    char url[TEMP_DIR_MAX + 16];
    snprintf(url, sizeof url, "file:%s/store", world->dir);
    struct mr_client_options small = {.segment_bytes = 4 * 1024 * 1024};
    assert_int_equal(mr_client_open(url, &small, &world->client, NULL), MR_OK);
    *state = world;
    return 0;
}

static int end_world(void **state)
{
    struct world *world = *state;
    mr_worker_free(world->worker);
    mr_client_close(world->client);
    temp_dir_remove(world->dir);
    free(world);
    return 0;
}

static void add(struct world *world, const char *id, const char *type)
{
    struct mr_task_options task = {
        .id = mr_slice_str(id), .type = mr_slice_str(type), .retention_ms = 3600 * 1000};
    struct mr_enqueue_result result;
    assert_int_equal(mr_enqueue(world->client, &task, 1, &result), MR_OK);
    assert_int_equal(result.err, MR_OK);
}

static enum mr_outcome run_answer(struct mr_run *run, void *arg)
{
    (void)arg;
    return mr_run_result(run, mr_slice_str("42")) == MR_OK ? MR_DONE : MR_FAIL;
}

static enum mr_outcome run_wait(struct mr_run *run, void *arg)
{
    mr_event_set(arg);
    mr_run_wait_cancelled(run, INT64_MAX);
    return MR_FAIL;
}

static void start_worker(struct world *world, struct mr_event *entered)
{
    struct mr_worker_queue queue = {.name = mr_slice_str("default"), .weight = 3};
    struct mr_worker_options options = {
        .node = mr_slice_str("one"), .slots = 4, .queues = &queue, .queues_n = 1, .drain_ms = 1};
    mr_event_init(entered);
    assert_int_equal(mr_worker_new(world->client, &options, &world->worker), MR_OK);
    assert_int_equal(mr_worker_handle(world->worker, "answer", run_answer, NULL), MR_OK);
    assert_int_equal(mr_worker_handle(world->worker, "wait:*", run_wait, entered), MR_OK);
    assert_int_equal(mr_worker_start(world->worker), MR_OK);
}

static void a_result_is_waited_for(void **state)
{
    struct world *world = *state;
    struct mr_event entered;
    struct mr_task_list *list = NULL;
    add(world, "t", "answer");
    assert_int_equal(mr_task_wait(world->client, mr_slice_str("t"), 20, &list), MR_TIMEOUT);
    assert_int_equal(mr_task_wait(world->client, mr_slice_str("t"), -1, &list), MR_INVALID);
    assert_int_equal(mr_task_wait(world->client, mr_slice_str("u"), 0, &list), MR_NOT_FOUND);
    assert_null(list);
    start_worker(world, &entered);
    assert_int_equal(mr_task_wait(world->client, mr_slice_str("t"), 0, &list), MR_OK);
    assert_int_equal(mr_task_list_count(list), 1);
    assert_int_equal(mr_task_list_at(list, 0)->state, MR_COMPLETED);
    assert_int_equal(mr_task_list_at(list, 0)->result.len, 2);
    assert_string_equal(mr_task_list_next(list), "");
    mr_task_list_free(list);
}

struct waiter {
    struct world *world;
    pthread_t thread;
    enum mr_err err;
    enum mr_state end;
};

static void *wait_for_it(void *arg)
{
    struct waiter *waiter = arg;
    struct mr_task_list *list;
    waiter->err = mr_task_wait(waiter->world->client, mr_slice_str("w"), 0, &list);
    if (waiter->err != MR_OK)
        return NULL;
    waiter->end = mr_task_list_at(list, 0)->state;
    mr_task_list_free(list);
    return NULL;
}

static void many_threads_wait_for_one_task(void **state)
{
    enum { N = 8 };
    struct waiter waiters[N];
    struct world *world = *state;
    struct mr_event entered;
    add(world, "w", "wait:x");
    start_worker(world, &entered);
    for (size_t i = 0; i < N; i++) {
        waiters[i] = (struct waiter){.world = world};
        assert_int_equal(mr_thread_start(&waiters[i].thread, "waiter", wait_for_it, &waiters[i]),
                         MR_OK);
    }
    assert_true(mr_event_wait(&entered, INT64_MAX));
    struct mr_control cancel = {.verb = MR_VERB_CANCEL, .id = mr_slice_str("w")};
    enum mr_err err;
    assert_int_equal(mr_control(world->client, &cancel, 1, &err), MR_OK);
    for (size_t i = 0; i < N; i++) {
        mr_thread_join(waiters[i].thread);
        assert_int_equal(waiters[i].err, MR_OK);
        assert_int_equal(waiters[i].end, MR_ARCHIVED);
    }
}

static void a_worker_is_seen_with_what_it_handles(void **state)
{
    struct world *world = *state;
    struct mr_event entered;
    struct mr_node_list *list;
    assert_int_equal(mr_node_list_get(world->client, &list), MR_OK);
    assert_int_equal(mr_node_list_count(list), 0);
    assert_null(mr_node_list_at(list, 0));
    mr_node_list_free(list);
    mr_node_list_free(NULL);
    add(world, "w", "wait:x");
    start_worker(world, &entered);
    assert_true(mr_event_wait(&entered, INT64_MAX));
    assert_int_equal(mr_node_list_get(world->client, &list), MR_OK);
    assert_int_equal(mr_node_list_count(list), 1);
    const struct mr_node_info *node = mr_node_list_at(list, 0);
    assert_memory_equal(node->name.data, "one", 3);
    assert_int_equal(node->slots, 4);
    assert_int_equal(node->busy, 1);
    assert_int_equal(node->in_hand, 1);
    assert_int_equal(node->queues_n, 2); /* with what is addressed to it */
    assert_false(mr_node_serves(node, 0));
    assert_true(mr_node_serves(node, 1));
    assert_int_equal(node->queues[0].weight, 3);
    assert_int_equal(node->queues[1].weight, 3);
    assert_int_equal(node->types_n, 2);
    assert_memory_equal(node->types[0].data, "answer", 6);
    assert_memory_equal(node->types[1].data, "wait:*", 6);
    mr_node_list_free(list);
}

static void a_state_of_a_node_has_a_name(void **state)
{
    (void)state;
    assert_string_equal(mr_node_state_name(MR_NODE_LIVE), "live");
    assert_string_equal(mr_node_state_name(MR_NODE_SUSPECT), "suspect");
    assert_string_equal(mr_node_state_name(MR_NODE_DEAD), "dead");
    assert_null(mr_node_state_name(MR_NODE_STATE_COUNT));
}

#define WITH_WORLD(test) cmocka_unit_test_setup_teardown(test, make_world, end_world)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_WORLD(a_result_is_waited_for),
        WITH_WORLD(many_threads_wait_for_one_task),
        WITH_WORLD(a_worker_is_seen_with_what_it_handles),
        cmocka_unit_test(a_state_of_a_node_has_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
