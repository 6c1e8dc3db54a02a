/* SPDX-License-Identifier: Apache-2.0 */
/* Groups at a worker, on a store of its own: the function gets what is ripe, a few sets at once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <millrace.h>

#include "base/chan.h"
#include "base/clock.h"
#include "base/diag.h"
#include "unit/temp_dir.h"

enum { WAIT_MS = 20000, AT_ONCE = 3 };

struct world {
    char dir[TEMP_DIR_MAX];
    struct mr_client *client;
    struct mr_worker *worker;
    struct mr_event go;  /* lets functions that wait for it return */
    atomic_uint entered; /* functions so far, and the most of them at once */
    atomic_uint inside, most;
    atomic_uint runs, parts; /* tasks that ran, and what they were made of */
};

static void quiet(enum mr_diag_level level, const char *line, void *arg)
{
    (void)level, (void)line, (void)arg;
}

static int make_world(void **state)
{
    struct world *world = calloc(1, sizeof *world);
    struct mr_detail detail;
    char url[TEMP_DIR_MAX + 16];
    assert_non_null(world);
    mr_diag_set_sink(quiet, NULL);
    mr_event_init(&world->go);
    temp_dir_make(world->dir);
    snprintf(url, sizeof url, "file:%s/store", world->dir);
    struct mr_client_options small = {.segment_bytes = 4 * 1024 * 1024};
    assert_int_equal(mr_client_open(url, &small, &world->client, &detail), MR_OK);
    *state = world;
    return 0;
}

static int end_world(void **state)
{
    struct world *world = *state;
    mr_event_set(&world->go);
    mr_worker_free(world->worker);
    mr_client_close(world->client);
    temp_dir_remove(world->dir);
    free(world);
    return 0;
}

#define WAIT_UNTIL(cond)                                                                           \
    for (mr_mono end_ = mr_mono_add_ms(mr_mono_now(mr_clock_system()), WAIT_MS); !(cond);) {       \
        struct mr_event moment_;                                                                   \
        mr_event_init(&moment_);                                                                   \
        (void)mr_event_wait(&moment_, MR_NS_PER_MS);                                               \
        if (mr_mono_now(mr_clock_system()).ns > end_.ns)                                           \
            fail_msg("waited for %s", #cond);                                                      \
    }

static void join(struct world *world, const char *group, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        struct mr_task_options task = {.group = mr_slice_str(group), .payload = mr_slice_str("x")};
        struct mr_enqueue_result result;
        assert_int_equal(mr_enqueue(world->client, &task, 1, &result), MR_OK);
        assert_int_equal(result.err, MR_OK);
        assert_int_equal(result.state, MR_AGGREGATING);
    }
}

static uint64_t count(struct world *world, enum mr_state state)
{
    struct mr_queue_info info;
    assert_int_equal(mr_queue_get(world->client, mr_slice_str("default"), &info), MR_OK);
    return info.counts[state];
}

static struct mr_worker_figures figures(struct world *world)
{
    struct mr_worker_figures f;
    mr_worker_figures(world->worker, &f);
    return f;
}

/* ---- functions ------------------------------------------------------------------------------ */

/* One task whose payload is a byte for each member. */
static enum mr_err make_one(struct mr_set *set, void *arg)
{
    struct world *world = arg;
    char bytes[64];
    size_t n = mr_set_count(set);
    atomic_fetch_add(&world->entered, 1);
    for (size_t i = 0; i < n; i++)
        bytes[i] = ((const char *)mr_set_task(set, i)->payload.data)[0];
    struct mr_task_options task = {.type = mr_slice_str("whole"), .payload = {bytes, n}};
    return mr_set_become(set, &task, NULL);
}

static enum mr_err make_nothing(struct mr_set *set, void *arg)
{
    struct world *world = arg;
    (void)set;
    atomic_fetch_add(&world->entered, 1);
    return MR_FAILED;
}

static enum mr_err make_at_the_second_try(struct mr_set *set, void *arg)
{
    struct mr_enqueue_result result;
    struct mr_task_options task = {.type = mr_slice_str("whole"),
                                   .payload = mr_slice_str("xx"),
                                   .group = mr_slice_str(mr_set_group(set))};
    assert_string_equal(mr_set_group(set), "a");
    assert_null(mr_set_task(set, mr_set_count(set)));
    assert_true(mr_set_queue(set).len == strlen("default"));
    assert_int_equal(mr_set_become(set, &task, &result), MR_INVALID);
    task.group = (struct mr_slice){0};
    assert_int_equal(mr_set_become(set, &task, &result), MR_OK);
    assert_int_equal(result.state, MR_PENDING);
    assert_int_equal(mr_set_become(set, &task, &result), MR_WRONG_STATE);
    atomic_fetch_add(&((struct world *)arg)->entered, 1);
    return MR_OK;
}

static enum mr_err make_one_when_told(struct mr_set *set, void *arg)
{
    struct world *world = arg;
    unsigned inside = atomic_fetch_add(&world->inside, 1) + 1, most = atomic_load(&world->most);
    while (inside > most && !atomic_compare_exchange_weak(&world->most, &most, inside))
        ;
    mr_event_wait(&world->go, INT64_MAX);
    enum mr_err err = make_one(set, arg);
    atomic_fetch_sub(&world->inside, 1);
    return err;
}

static enum mr_outcome run_whole(struct mr_run *run, void *arg)
{
    struct world *world = arg;
    atomic_fetch_add(&world->parts, (unsigned)mr_run_task(run)->payload.len);
    atomic_fetch_add(&world->runs, 1);
    return MR_DONE;
}

static void start(struct world *world, mr_aggregate *function, uint32_t size)
{
    struct mr_worker_options options = {
        .slots = 1, .aggregate = function, .aggregate_arg = world, .group_max_size = size};
    assert_int_equal(mr_worker_new(world->client, &options, &world->worker), MR_OK);
    assert_int_equal(mr_worker_handle(world->worker, "whole", run_whole, world), MR_OK);
    assert_int_equal(mr_worker_start(world->worker), MR_OK);
}

/* ---- tests ---------------------------------------------------------------------------------- */

static void a_ripe_group_becomes_one_task_that_runs(void **state)
{
    struct world *world = *state;
    start(world, make_one, 4);
    join(world, "a", 4);
    WAIT_UNTIL(world->runs == 1);
    join(world, "b", 9); /* a set has four of them; one is left over */
    WAIT_UNTIL(world->runs == 3);
    assert_int_equal(world->parts, 12);
    WAIT_UNTIL(figures(world).aggregated == 3);
    assert_int_equal(count(world, MR_AGGREGATING), 1);
    mr_worker_stop(world->worker);
    assert_int_equal(figures(world).not_aggregated, 0);
}

static void a_group_is_ripe_when_nobody_joins_any_more(void **state)
{
    struct world *world = *state;
    struct mr_worker_options options = {
        .aggregate = make_one, .aggregate_arg = world, .group_grace_ms = 1000};
    assert_int_equal(mr_worker_new(world->client, &options, &world->worker), MR_OK);
    assert_int_equal(mr_worker_handle(world->worker, "whole", run_whole, world), MR_OK);
    assert_int_equal(mr_worker_start(world->worker), MR_OK);
    join(world, "a", 3);
    WAIT_UNTIL(world->runs == 1);
    assert_int_equal(world->parts, 3);
}

static void a_function_that_fails_leaves_the_members_alone(void **state)
{
    struct world *world = *state;
    join(world, "a", 2);
    start(world, make_nothing, 2);
    WAIT_UNTIL(figures(world).not_aggregated == 1);
    mr_worker_stop(world->worker);
    assert_int_equal(world->entered, 1);
    assert_int_equal(count(world, MR_AGGREGATING), 2);
    assert_int_equal(count(world, MR_PENDING), 0);
}

static void a_task_that_is_refused_can_be_made_better(void **state)
{
    struct world *world = *state;
    join(world, "a", 2);
    start(world, make_at_the_second_try, 2);
    WAIT_UNTIL(world->runs == 1);
    WAIT_UNTIL(figures(world).aggregated == 1);
    assert_int_equal(count(world, MR_AGGREGATING), 0);
}

static void a_few_sets_are_in_hand_at_once_and_the_rest_waits(void **state)
{
    enum { GROUPS = 8 };
    struct world *world = *state;
    for (unsigned i = 0; i < GROUPS; i++) {
        char group[16];
        snprintf(group, sizeof group, "group-%u", i);
        join(world, group, 2);
    }
    start(world, make_one_when_told, 2);
    WAIT_UNTIL(world->inside == AT_ONCE);
    mr_event_set(&world->go);
    WAIT_UNTIL(world->runs == GROUPS);
    assert_int_equal(world->parts, 2 * GROUPS);
    assert_int_equal(world->most, AT_ONCE);
}

static void *stop_it(void *arg)
{
    mr_worker_stop(arg);
    return NULL;
}

/* What its function is busy with is ended by it, and nothing else is in a set afterwards. */
static void a_worker_that_stops_waits_for_its_function(void **state)
{
    struct world *world = *state;
    pthread_t thread;
    join(world, "a", 2);
    start(world, make_one_when_told, 2);
    WAIT_UNTIL(world->inside == 1);
    assert_int_equal(mr_thread_start(&thread, "stop", stop_it, world->worker), MR_OK);
    join(world, "b", 2);
    mr_event_set(&world->go);
    mr_thread_join(thread);
    assert_true(figures(world).aggregated >= 1);
    uint64_t left = count(world, MR_AGGREGATING);
    assert_true(left == 0 || left == 2);
    if (left == 0)
        return;
    struct mr_task_list *list;
    struct mr_list_options options = {.state = MR_AGGREGATING, .limit = 2};
    assert_int_equal(mr_task_list_get(world->client, &options, &list), MR_OK);
    struct mr_control run = {.verb = MR_VERB_RUN, .id = mr_task_list_at(list, 0)->id};
    enum mr_err err;
    assert_int_equal(mr_control(world->client, &run, 1, &err), MR_OK);
    assert_int_equal(err, MR_OK); /* not in hand */
    mr_task_list_free(list);
}

static void settings_that_make_no_sense_are_refused(void **state)
{
    struct world *world = *state;
    static const struct mr_worker_options wrong[] = {
        {.aggregate = make_one, .group_grace_ms = 999},
        {.aggregate = make_one, .group_max_delay_ms = -1},
        {.aggregate = make_one, .group_max_size = MR_BATCH_MAX + 1},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_int_equal(mr_worker_new(world->client, &wrong[i], &world->worker), MR_INVALID);
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, make_world, end_world)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_ripe_group_becomes_one_task_that_runs),
        TEST(a_group_is_ripe_when_nobody_joins_any_more),
        TEST(a_function_that_fails_leaves_the_members_alone),
        TEST(a_task_that_is_refused_can_be_made_better),
        TEST(a_few_sets_are_in_hand_at_once_and_the_rest_waits),
        TEST(a_worker_that_stops_waits_for_its_function),
        TEST(settings_that_make_no_sense_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
