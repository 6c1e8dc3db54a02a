/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker: runs and workers that are told to stop, and a broker that loses or fails it. Runs wait
 * for conditions; where time itself is tested, the limits are lower bounds.
 */
#include "support/fake_broker.h"
#include "unit/worker_rig.h"
#include "worker/worker.h"

/* ---- being told to stop --------------------------------------------------------------------- */

static void a_cancelled_run_fails_for_good(void **state)
{
    struct world *world = *state;
    size_t task = add(world, "wait", "");
    start_worker(world, (struct mr_worker_options){.slots = 1});
    fake_await_state(world->fake, task, FAKE_BEGUN);
    fake_stop(world->fake, task, MR_STOP_CANCEL);
    fake_await_state(world->fake, task, FAKE_ENDED);
    assert_int_equal(fake_look(world->fake, task).outcome, MR_FAIL_FOR_GOOD);
    assert_string_equal(fake_look(world->fake, task).error, "cancelled");
}

static void a_cancelled_run_that_succeeds_has_succeeded(void **state)
{
    struct world *world = *state;
    size_t task = add(world, "wait-done", "");
    start_worker(world, (struct mr_worker_options){.slots = 1});
    fake_await_state(world->fake, task, FAKE_BEGUN);
    fake_stop(world->fake, task, MR_STOP_CANCEL);
    fake_await_state(world->fake, task, FAKE_ENDED);
    assert_int_equal(fake_look(world->fake, task).outcome, MR_DONE);
}

static void a_lost_run_is_not_reported_and_the_slot_goes_on(void **state)
{
    struct world *world = *state;
    size_t lost = add(world, "wait", "");
    start_worker(world, (struct mr_worker_options){.slots = 1});
    fake_await_state(world->fake, lost, FAKE_BEGUN);
    fake_stop(world->fake, lost, MR_STOP_LOST);
    size_t next = add(world, "task", "");
    fake_await_state(world->fake, next, FAKE_ENDED);
    mr_worker_stop(world->worker);
    assert_int_equal(fake_look(world->fake, lost).finishes, 0);
    assert_int_equal(figures(world).done, 1);
}

static void a_stop_may_come_before_its_lease(void **state)
{
    struct world *world = *state;
    fake_stop_with_take(world->fake, MR_STOP_CANCEL);
    size_t cancelled = add(world, "wait", "");
    start_worker(world, (struct mr_worker_options){.slots = 1});
    fake_await_state(world->fake, cancelled, FAKE_ENDED);
    assert_int_equal(fake_look(world->fake, cancelled).outcome, MR_FAIL_FOR_GOOD);
    assert_string_equal(fake_look(world->fake, cancelled).error, "cancelled");
    fake_stop_with_take(world->fake, MR_STOP_LOST);
    size_t lost = add(world, "wait", "");
    fake_await_state(world->fake, lost, FAKE_TAKEN);
    size_t next = add(world, "task", "");
    fake_await_state(world->fake, next, FAKE_ENDED);
    assert_int_equal(fake_look(world->fake, lost).finishes, 0);
}

/* Tasks that wait for a worker of as many slots, and are stopped when it takes them. */
static void stop_all_with_take(struct world *world, size_t n, enum mr_stop_reason reason)
{
    fake_hold(world->fake, true);
    start_worker(world, (struct mr_worker_options){.slots = (uint32_t)n});
    fake_add_many(world->fake, "wait", n);
    fake_stop_with_take(world->fake, reason);
    fake_hold(world->fake, false);
}

static void as_many_stops_may_come_early_as_leases(void **state)
{
    enum { N = 64 };
    struct world *world = *state;
    stop_all_with_take(world, N, MR_STOP_CANCEL);
    fake_await_ended(world->fake, N);
    for (size_t i = 0; i < N; i++)
        assert_string_equal(fake_look(world->fake, i).error, "cancelled");
}

static void what_was_cancelled_is_not_run_though_the_broker_could_not_be_told(void **state)
{
    enum { N = 8 };
    struct world *world = *state;
    fake_fail_finishes(world->fake, 1, MR_DISK_FULL);
    stop_all_with_take(world, N, MR_STOP_CANCEL);
    fake_await_ended(world->fake, N);
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(fake_look(world->fake, i).outcome, MR_FAIL_FOR_GOOD);
        assert_string_equal(fake_look(world->fake, i).error, "cancelled");
    }
}

static void a_timeout_counts_as_a_failure(void **state)
{
    struct world *world = *state;
    size_t task =
        fake_add(world->fake, &(struct mr_task){.type = mr_slice_str("wait"), .timeout_ms = 50});
    mr_mono before = mr_mono_now(mr_clock_system());
    start_worker(world, (struct mr_worker_options){.slots = 1});
    fake_await_state(world->fake, task, FAKE_ENDED);
    assert_true(mr_mono_now(mr_clock_system()).ns - before.ns >= 50 * MR_NS_PER_MS);
    assert_int_equal(fake_look(world->fake, task).outcome, MR_FAIL);
    assert_string_equal(fake_look(world->fake, task).error, "timeout after 50ms");
}

static void what_a_handler_decides_after_a_timeout_holds(void **state)
{
    struct world *world = *state;
    static const struct {
        const char *payload;
        enum mr_outcome outcome;
    } rows[] = {{"0", MR_DONE}, {"1", MR_FAIL}, {"2", MR_FAIL_FOR_GOOD},
                {"3", MR_FAIL}, {"4", MR_DROP}, {"5", MR_FAIL}};
    enum { N = sizeof rows / sizeof *rows };
    for (size_t i = 0; i < N; i++)
        fake_add(world->fake, &(struct mr_task){.type = mr_slice_str("wait-told"),
                                                .payload = mr_slice_str(rows[i].payload),
                                                .timeout_ms = 10});
    start_worker(world, (struct mr_worker_options){.slots = N});
    fake_await_ended(world->fake, N);
    for (size_t i = 0; i < N; i++)
        assert_int_equal(fake_look(world->fake, i).outcome, rows[i].outcome);
}

static void a_timeout_beyond_the_next_beat_is_kept_too(void **state)
{
    struct world *world = *state;
    size_t task =
        fake_add(world->fake, &(struct mr_task){.type = mr_slice_str("wait"), .timeout_ms = 100});
    start_worker(world,
                 (struct mr_worker_options){.slots = 1, .beat_ms = 20, .beats_missed = 1000});
    fake_await_state(world->fake, task, FAKE_ENDED);
    assert_string_equal(fake_look(world->fake, task).error, "timeout after 100ms");
}

static void a_deadline_ends_a_run_for_good(void **state)
{
    struct world *world = *state;
    int64_t now_ms = mr_wall_ms(mr_wall_now(mr_clock_system()));
    size_t task = fake_add(world->fake, &(struct mr_task){.type = mr_slice_str("wait"),
                                                          .timeout_ms = 60 * 1000,
                                                          .deadline_ms = now_ms + 100});
    start_worker(world, (struct mr_worker_options){.slots = 1});
    fake_await_state(world->fake, task, FAKE_ENDED);
    assert_int_equal(fake_look(world->fake, task).outcome, MR_FAIL_FOR_GOOD);
    assert_string_equal(fake_look(world->fake, task).error, "deadline passed");
}

static void a_run_that_does_not_listen_is_given_up(void **state)
{
    struct world *world = *state;
    size_t task =
        fake_add(world->fake, &(struct mr_task){.type = mr_slice_str("deaf"), .timeout_ms = 300});
    start_worker(world, (struct mr_worker_options){.slots = 1, .grace_ms = 20});
    fake_await_state(world->fake, task, FAKE_ENDED);
    assert_int_equal(fake_look(world->fake, task).outcome, MR_FAIL);
    assert_string_equal(fake_look(world->fake, task).error, "timeout after 300ms");
    assert_int_equal(figures(world).slots[MR_SLOT_ERROR], 1);
    size_t next = add(world, "task", "");
    mr_event_set(&world->go); /* its late success is not told to anybody */
    fake_await_state(world->fake, next, FAKE_ENDED);
    mr_worker_stop(world->worker);
    assert_int_equal(fake_look(world->fake, task).finishes, 1);
    assert_int_equal(figures(world).failed, 1);
    assert_int_equal(figures(world).done, 1);
}

/* ---- the hand ------------------------------------------------------------------------------- */

/* Makes the worker believe in short runs, so that it holds tasks ahead, then occupies its only
 * slot. */
static size_t fill_hand(struct world *world, struct mr_worker_options options)
{
    options.slots = 1;
    start_worker(world, options);
    fake_add_many(world->fake, "task", 200);
    fake_await_ended(world->fake, 200);
    fake_hold(world->fake, true);
    size_t deaf = add(world, "deaf", "");
    fake_add_many(world->fake, "task", 20);
    fake_hold(world->fake, false);
    return deaf;
}

static void what_others_want_is_handed_back(void **state)
{
    struct world *world = *state;
    size_t deaf = fill_hand(world, (struct mr_worker_options){0});
    fake_await_state(world->fake, deaf, FAKE_BEGUN);
    fake_want(world->fake);
    fake_await_state(world->fake, deaf + 20, FAKE_PENDING);
    mr_event_set(&world->go);
    fake_await_ended(world->fake, 221);
    mr_worker_stop(world->worker);
    assert_int_equal(figures(world).done, 221);
}

static void what_the_slots_do_not_get_round_to_is_handed_back_once(void **state)
{
    struct world *world = *state;
    struct mr_worker_options options = {.beat_ms = 50, .beats_missed = 1000};
    size_t deaf = fill_hand(world, options);
    fake_await_state(world->fake, deaf, FAKE_BEGUN);
    for (size_t i = 1; i <= 20; i++)
        fake_await_state(world->fake, deaf + i, FAKE_PENDING);
    fake_await_more_beats(world->fake, 4);
    for (size_t i = 1; i <= 20; i++)
        assert_true(fake_look(world->fake, deaf + i).takes <= 2);
    mr_event_set(&world->go);
    fake_await_ended(world->fake, 221);
}

static void a_stop_hands_back_what_did_not_begin(void **state)
{
    struct world *world = *state;
    size_t deaf = fill_hand(world, (struct mr_worker_options){.drain_ms = 1, .grace_ms = 1});
    mr_event_wait(&world->entered, INT64_MAX);
    mr_worker_stop(world->worker);
    for (size_t i = 0; i <= 20; i++) {
        struct fake_report report = fake_look(world->fake, deaf + i);
        assert_int_equal(report.state, FAKE_PENDING);
        assert_true(report.takes == 0 || report.outcome == MR_HAND_BACK);
    }
    assert_int_equal(fake_look(world->fake, deaf).outcome, MR_HAND_BACK);
}

/* ---- stopping ------------------------------------------------------------------------------- */

static void a_stop_waits_for_runs_that_end_in_time(void **state)
{
    struct world *world = *state;
    size_t task = fake_add(world->fake,
                           &(struct mr_task){.type = mr_slice_str("wait-done"), .timeout_ms = 300});
    start_worker(world, (struct mr_worker_options){.slots = 1});
    mr_event_wait(&world->entered, INT64_MAX);
    mr_worker_stop(world->worker);
    assert_int_equal(fake_look(world->fake, task).outcome, MR_DONE);
    assert_int_equal(figures(world).done, 1);
}

static void a_run_broken_off_by_a_stop_is_handed_back(void **state)
{
    struct world *world = *state;
    size_t task = add(world, "wait", "");
    start_worker(world, (struct mr_worker_options){.slots = 1, .drain_ms = 10});
    mr_event_wait(&world->entered, INT64_MAX);
    mr_worker_stop(world->worker);
    assert_int_equal(fake_look(world->fake, task).outcome, MR_HAND_BACK);
    assert_int_equal(fake_look(world->fake, task).delay_ms, 0);
    assert_int_equal(figures(world).handed_back, 1);
    assert_int_equal(atomic_load(&world->told), 0);
}

static void a_worker_that_never_started_can_be_stopped_and_freed(void **state)
{
    struct world *world = *state;
    make_worker(world, (struct mr_worker_options){.slots = 3});
    mr_worker_stop(world->worker);
    assert_int_equal(mr_worker_start(world->worker), MR_WRONG_STATE);
    mr_worker_free(NULL);
}

static void a_started_worker_takes_no_handlers(void **state)
{
    struct world *world = *state;
    start_worker(world, (struct mr_worker_options){.slots = 1});
    assert_int_equal(mr_worker_handle(world->worker, "new", run_nothing, NULL), MR_WRONG_STATE);
    assert_int_equal(mr_worker_start(world->worker), MR_WRONG_STATE);
}

static void a_burst_ends_with_the_last_task(void **state)
{
    struct world *world = *state;
    fake_add_many(world->fake, "task", 1000);
    make_worker(world, (struct mr_worker_options){.slots = 4, .burst = true});
    assert_int_equal(mr_worker_run(world->worker), MR_OK);
    assert_int_equal(figures(world).done, 1000);
}

/* Knows of work that is no task yet: what comes is added behind its answer, as if somebody were slow with it. */
struct knows {
    struct world *world;
    int comes; /* so often it says that more comes */
    _Atomic int asked, freed;
};

static bool knows_of_more(const struct mr_worker *worker, void *arg)
{
    struct knows *knows = arg;
    assert_true(mr_worker_handles(worker, MR_SLICE_LIT("task")));
    int asked = atomic_fetch_add(&knows->asked, 1);
    if (asked % 2 == 0 && asked <= knows->comes)
        fake_add_many(knows->world->fake, "task", 10); /* also with the answer that nothing comes */
    return asked < knows->comes;
}

static void knows_freed(void *arg)
{
    atomic_fetch_add(&((struct knows *)arg)->freed, 1);
}

static void a_burst_waits_for_what_is_no_task_yet(void **state)
{
    struct world *world = *state;
    struct knows knows = {.world = world, .comes = 4};
    make_worker(world, (struct mr_worker_options){.slots = 4, .burst = true});
    mr_worker_more(world->worker, &(struct mr_more){knows_of_more, knows_freed, &knows});
    assert_int_equal(mr_worker_run(world->worker), MR_OK);
    assert_int_equal(figures(world).done, 30); /* of the questions 0, 2 and 4 */
    assert_true(knows.asked >= 5);
    mr_worker_free(world->worker);
    world->worker = NULL;
    assert_int_equal(knows.freed, 1);
}

static bool always_more(const struct mr_worker *worker, void *arg)
{
    (void)worker;
    mr_event_set(arg);
    return true;
}

/* Who waits for more can be stopped. */
static void *stop_when_asked(void *arg)
{
    struct world *world = arg;
    mr_event_wait(&world->entered, INT64_MAX);
    mr_worker_stop(world->worker);
    return NULL;
}

static void a_burst_that_waits_can_be_stopped(void **state)
{
    struct world *world = *state;
    pthread_t thread;
    make_worker(world, (struct mr_worker_options){.slots = 1, .burst = true});
    mr_worker_more(world->worker, &(struct mr_more){always_more, NULL, &world->entered});
    assert_int_equal(mr_thread_start(&thread, "stop", stop_when_asked, world), MR_OK);
    assert_int_equal(mr_worker_run(world->worker), MR_OK);
    mr_thread_join(thread);
}

static void *stop_it(void *arg)
{
    mr_worker_stop(((struct world *)arg)->worker);
    return NULL;
}

static void run_returns_when_another_thread_stops_it(void **state)
{
    struct world *world = *state;
    size_t task = add(world, "wait-done", "");
    make_worker(world, (struct mr_worker_options){.slots = 1, .drain_ms = 1});
    pthread_t thread;
    assert_int_equal(mr_thread_start(&thread, "stop", stop_it, world), MR_OK);
    enum mr_err err = mr_worker_run(world->worker);
    assert_true(err == MR_OK || err == MR_WRONG_STATE); /* the stop may come before the start */
    mr_thread_join(thread);
    assert_true(fake_look(world->fake, task).state != FAKE_TAKEN);
}

static void a_second_stop_ends_the_drain(void **state)
{
    struct world *world = *state;
    size_t task = add(world, "wait", "");
    start_worker(world, (struct mr_worker_options){.slots = 1, .drain_ms = MR_MS_PER_DAY});
    mr_event_wait(&world->entered, INT64_MAX);
    pthread_t thread;
    assert_int_equal(mr_thread_start(&thread, "stop", stop_it, world), MR_OK);
    mr_worker_stop(world->worker);
    mr_thread_join(thread);
    assert_int_equal(fake_look(world->fake, task).outcome, MR_HAND_BACK);
    assert_int_equal(figures(world).handed_back, 1);
}

static void a_second_stop_ends_the_grace(void **state)
{
    struct world *world = *state;
    size_t task = add(world, "deaf", "");
    start_worker(world,
                 (struct mr_worker_options){.slots = 1, .drain_ms = 1, .grace_ms = MR_MS_PER_DAY});
    mr_event_wait(&world->entered, INT64_MAX);
    pthread_t thread;
    assert_int_equal(mr_thread_start(&thread, "stop", stop_it, world), MR_OK);
    mr_worker_stop(world->worker);
    mr_thread_join(thread);
    assert_int_equal(fake_look(world->fake, task).outcome, MR_HAND_BACK);
    assert_int_equal(figures(world).slots[MR_SLOT_ERROR], 1);
}

static void what_a_stop_hands_back_is_not_counted_twice(void **state)
{
    struct world *world = *state;
    size_t task = add(world, "wait", "");
    add(world, "task", "");
    start_worker(world, (struct mr_worker_options){.slots = 2, .drain_ms = 1});
    mr_event_wait(&world->entered, INT64_MAX);
    fake_await_ended(world->fake, 1); /* the other slot's take waits at the broker */
    mr_worker_stop(world->worker);
    assert_int_equal(fake_look(world->fake, task).state, FAKE_PENDING);
    assert_int_equal(figures(world).handed_back, 1);
}

/* ---- a broker that fails -------------------------------------------------------------------- */

static void a_dead_node_loses_its_runs_and_comes_back(void **state)
{
    struct world *world = *state;
    size_t lost = add(world, "wait", "");
    start_worker(world,
                 (struct mr_worker_options){.slots = 2, .beat_ms = 20, .beats_missed = 1000});
    fake_await_state(world->fake, lost, FAKE_BEGUN);
    fake_answer_beats(world->fake, MR_NOT_FOUND);
    fake_await_nodes(world->fake, 2);
    fake_answer_beats(world->fake, MR_OK);
    size_t next = add(world, "task", "");
    fake_await_state(world->fake, next, FAKE_ENDED);
    mr_worker_stop(world->worker);
    assert_int_equal(fake_look(world->fake, lost).finishes, 0);
}

static void a_worker_without_answers_fences_itself(void **state)
{
    struct world *world = *state;
    size_t lost = add(world, "wait", "");
    start_worker(world, (struct mr_worker_options){.slots = 2, .beat_ms = 20, .beats_missed = 50});
    fake_await_state(world->fake, lost, FAKE_BEGUN);
    fake_swallow_beats(world->fake);
    fake_await_nodes(world->fake, 2);
    size_t next = add(world, "task", "");
    fake_await_state(world->fake, next, FAKE_ENDED);
    mr_worker_stop(world->worker);
    assert_int_equal(fake_look(world->fake, lost).finishes, 0);
    assert_int_equal(fake_crashes(world->fake), 0); /* nobody died */
}

static void a_finish_that_fails_for_a_while_is_sent_again(void **state)
{
    struct world *world = *state;
    start_worker(world, (struct mr_worker_options){.slots = 1});
    fake_fail_finishes(world->fake, 1, MR_BUSY);
    size_t task = add(world, "task", "");
    fake_await_state(world->fake, task, FAKE_ENDED);
    mr_worker_stop(world->worker);
    assert_int_equal(figures(world).done, 1);
}

static void a_finish_that_fails_for_ever_does_not_hold_up_the_stop(void **state)
{
    struct world *world = *state;
    start_worker(world, (struct mr_worker_options){.slots = 1});
    fake_fail_finishes(world->fake, 1000 * 1000, MR_BUSY);
    size_t task = add(world, "echo", "x");
    fake_await_state(world->fake, task, FAKE_BEGUN);
    mr_worker_stop(world->worker);
    assert_int_equal(figures(world).done, 0);
}

static void a_broker_that_has_failed_ends_the_worker(void **state)
{
    struct world *world = *state;
    make_worker(world, (struct mr_worker_options){.slots = 1});
    fake_fail_finishes(world->fake, 1, MR_IO);
    size_t first = add(world, "task", ""), second = add(world, "task", "");
    assert_int_equal(mr_worker_run(world->worker), MR_IO);
    assert_int_equal(fake_look(world->fake, first).finishes, 0);
    assert_true(fake_look(world->fake, second).takes <= 1);
    assert_int_equal(figures(world).slots[MR_SLOT_WORKING], 0);
}

static void a_refused_finish_is_counted_as_stale(void **state)
{
    struct world *world = *state;
    size_t task = add(world, "deaf", "");
    start_worker(world, (struct mr_worker_options){.slots = 2});
    fake_await_state(world->fake, task, FAKE_BEGUN);
    /* Somebody else finishes it under the same epoch. */
    struct fake_report report = fake_look(world->fake, task);
    struct mr_finish item = {
        .id = mr_slice_str("0"), .epoch = report.epoch, .ref = 1, .outcome = MR_DROP};
    enum mr_err err;
    struct mr_req_finish finish = {
        .req = {.op = MR_OP_FINISH}, .items = &item, .n = 1, .errs = &err};
    assert_int_equal(mr_broker_call(fake_broker(world->fake), &finish.req), MR_OK);
    assert_int_equal(err, MR_OK);
    mr_event_set(&world->go);
    mr_worker_stop(world->worker);
    assert_int_equal(figures(world).stale, 1);
    assert_int_equal(figures(world).done, 0);
}

static void many_slots_and_short_runs_lose_and_double_nothing(void **state)
{
    struct world *world = *state;
    enum { N = 50 * 1000 };
    start_worker(world, (struct mr_worker_options){.slots = 8});
    for (int i = 0; i < 10; i++) {
        fake_add_many(world->fake, "task", N / 10);
        fake_want(world->fake);
    }
    fake_await_ended(world->fake, N);
    mr_worker_stop(world->worker);
    assert_int_equal(atomic_load(&world->runs), N);
    assert_int_equal(figures(world).done, N);
    assert_int_equal(figures(world).stale, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_WORLD(a_cancelled_run_fails_for_good),
        WITH_WORLD(a_cancelled_run_that_succeeds_has_succeeded),
        WITH_WORLD(as_many_stops_may_come_early_as_leases),
        WITH_WORLD(what_was_cancelled_is_not_run_though_the_broker_could_not_be_told),
        WITH_WORLD(a_lost_run_is_not_reported_and_the_slot_goes_on),
        WITH_WORLD(a_stop_may_come_before_its_lease),
        WITH_WORLD(a_timeout_counts_as_a_failure),
        WITH_WORLD(what_a_handler_decides_after_a_timeout_holds),
        WITH_WORLD(a_timeout_beyond_the_next_beat_is_kept_too),
        WITH_WORLD(a_deadline_ends_a_run_for_good),
        WITH_WORLD(a_run_that_does_not_listen_is_given_up),
        WITH_WORLD(what_others_want_is_handed_back),
        WITH_WORLD(what_the_slots_do_not_get_round_to_is_handed_back_once),
        WITH_WORLD(a_stop_hands_back_what_did_not_begin),
        WITH_WORLD(a_stop_waits_for_runs_that_end_in_time),
        WITH_WORLD(a_run_broken_off_by_a_stop_is_handed_back),
        WITH_WORLD(a_worker_that_never_started_can_be_stopped_and_freed),
        WITH_WORLD(a_started_worker_takes_no_handlers),
        WITH_WORLD(a_burst_ends_with_the_last_task),
        WITH_WORLD(a_burst_waits_for_what_is_no_task_yet),
        WITH_WORLD(a_burst_that_waits_can_be_stopped),
        WITH_WORLD(run_returns_when_another_thread_stops_it),
        WITH_WORLD(a_second_stop_ends_the_drain),
        WITH_WORLD(a_second_stop_ends_the_grace),
        WITH_WORLD(what_a_stop_hands_back_is_not_counted_twice),
        WITH_WORLD(a_dead_node_loses_its_runs_and_comes_back),
        WITH_WORLD(a_worker_without_answers_fences_itself),
        WITH_WORLD(a_finish_that_fails_for_a_while_is_sent_again),
        WITH_WORLD(a_finish_that_fails_for_ever_does_not_hold_up_the_stop),
        WITH_WORLD(a_broker_that_has_failed_ends_the_worker),
        WITH_WORLD(a_refused_finish_is_counted_as_stale),
        WITH_WORLD(many_slots_and_short_runs_lose_and_double_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
