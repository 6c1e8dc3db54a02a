/* SPDX-License-Identifier: Apache-2.0 */
/* The worker: which handler runs a task, and what is reported for every way a run can end. */
#include "support/fake_broker.h"
#include "unit/worker_rig.h"

#include "unit/failing_alloc.h"
#include "worker/handlers.h"
#include "worker/retry.h"

/* ---- which handler, which delay ------------------------------------------------------------- */

static enum mr_outcome handler_a(struct mr_run *run, void *arg)
{
    (void)run, (void)arg;
    return MR_DONE;
}

static enum mr_outcome handler_b(struct mr_run *run, void *arg)
{
    (void)run, (void)arg;
    return MR_DONE;
}

static enum mr_outcome handler_c(struct mr_run *run, void *arg)
{
    (void)run, (void)arg;
    return MR_DONE;
}

static mr_handler *found(const struct mr_handlers *list, const char *type)
{
    const struct mr_handler_row *row = mr_handlers_find(list, mr_slice_str(type));
    return row ? row->handler : NULL;
}

static void the_exact_handler_wins_then_the_longest_prefix(void **state)
{
    (void)state;
    struct mr_handlers list = {0};
    assert_int_equal(mr_handlers_add(&list, "mail:*", handler_a, NULL), MR_OK);
    assert_int_equal(mr_handlers_add(&list, "mail:bulk:*", handler_b, NULL), MR_OK);
    assert_int_equal(mr_handlers_add(&list, "mail:bulk:now", handler_c, NULL), MR_OK);
    assert_ptr_equal(found(&list, "mail:bulk:now"), handler_c);
    assert_ptr_equal(found(&list, "mail:bulk:later"), handler_b);
    assert_ptr_equal(found(&list, "mail:bulk"), handler_a);
    assert_ptr_equal(found(&list, "mail:"), handler_a);
    assert_null(found(&list, "mail"));
    assert_null(found(&list, ""));
    assert_int_equal(mr_handlers_add(&list, "*", handler_c, NULL), MR_OK);
    assert_ptr_equal(found(&list, "mail"), handler_c);
    mr_handlers_done(&list);
}

static void the_patterns_are_told_unless_everything_is_handled(void **state)
{
    (void)state;
    struct mr_handlers list = {0};
    struct mr_slice patterns[3];
    assert_int_equal(mr_handlers_patterns(&list, patterns, 3), 0);
    assert_int_equal(mr_handlers_add(&list, "mail:*", handler_a, NULL), MR_OK);
    assert_int_equal(mr_handlers_add(&list, "ping", handler_b, NULL), MR_OK);
    assert_int_equal(mr_handlers_patterns(&list, patterns, 3), 2);
    assert_true(mr_slice_equal(patterns[0], mr_slice_str("ping")));
    assert_true(mr_slice_equal(patterns[1], mr_slice_str("mail:*")));
    assert_int_equal(mr_handlers_patterns(&list, patterns, 1), 0);
    assert_int_equal(mr_handlers_add(&list, "*", handler_c, NULL), MR_OK);
    assert_int_equal(mr_handlers_patterns(&list, patterns, 3), 0);
    mr_handlers_done(&list);
}

static void bad_and_repeated_patterns_are_refused(void **state)
{
    (void)state;
    struct mr_handlers list = {0};
    char longest[MR_NAME_MAX + 2];
    memset(longest, 'x', sizeof longest);
    longest[sizeof longest - 1] = '\0';
    assert_int_equal(mr_handlers_add(&list, "", handler_a, NULL), MR_INVALID);
    assert_int_equal(mr_handlers_add(&list, NULL, handler_a, NULL), MR_INVALID);
    assert_int_equal(mr_handlers_add(&list, "a\nb", handler_a, NULL), MR_INVALID);
    assert_int_equal(mr_handlers_add(&list, "a", NULL, NULL), MR_INVALID);
    assert_int_equal(mr_handlers_add(&list, longest, handler_a, NULL), MR_TOO_BIG);
    assert_int_equal(mr_handlers_add(&list, "a", handler_a, NULL), MR_OK);
    assert_int_equal(mr_handlers_add(&list, "a", handler_b, NULL), MR_CONFLICT);
    assert_int_equal(mr_handlers_add(&list, "a*", handler_b, NULL), MR_OK);
    assert_int_equal(mr_handlers_add(&list, "a*", handler_b, NULL), MR_CONFLICT);
    mr_handlers_done(&list);
}

static void the_default_delay_doubles_within_its_spread_and_limit(void **state)
{
    (void)state;
    struct mr_rand rand;
    mr_rand_seed(&rand, 1);
    struct mr_retry retry = {.max_ms = 60 * 1000};
    struct mr_task task = {0};
    bool spread = false;
    for (uint32_t n = 1; n < 70000; n = n < 100 ? n + 1 : n * 3) {
        int64_t middle = n < 6 ? (1LL << n) * 1000 : 60 * 1000;
        int64_t first = mr_retry_delay_ms(&retry, &task, n, &rand);
        for (int i = 0; i < 50; i++) {
            int64_t delay = mr_retry_delay_ms(&retry, &task, n, &rand);
            assert_true(delay >= middle / 2 && delay <= middle * 3 / 2 && delay <= 60 * 1000);
            spread |= delay != first;
        }
    }
    assert_true(spread);
}

static int64_t own_delay(const struct mr_task *task, uint32_t n, void *arg)
{
    (void)task, (void)arg;
    return n == 7 ? -5 : 100 * (int64_t)n;
}

static void levels_and_the_callers_delay_are_exact(void **state)
{
    (void)state;
    struct mr_rand rand;
    mr_rand_seed(&rand, 1);
    static const int64_t levels[] = {10, 20, 30};
    struct mr_task task = {0};
    struct mr_retry retry = {.levels_ms = levels, .levels_n = 3, .max_ms = 1};
    assert_int_equal(mr_retry_delay_ms(&retry, &task, 1, &rand), 10);
    assert_int_equal(mr_retry_delay_ms(&retry, &task, 2, &rand), 20);
    assert_int_equal(mr_retry_delay_ms(&retry, &task, 3, &rand), 30);
    assert_int_equal(mr_retry_delay_ms(&retry, &task, 99, &rand), 30);
    retry.delay = own_delay;
    assert_int_equal(mr_retry_delay_ms(&retry, &task, 3, &rand), 300);
    assert_int_equal(mr_retry_delay_ms(&retry, &task, 7, &rand), 0);
}

static void wrong_options_are_refused(void **state)
{
    struct world *world = *state;
    struct mr_broker *broker = fake_broker(world->fake);
    static const int64_t levels[] = {5, -1};
    static const struct mr_worker_queue bad[] = {{{"a{b", 3}, 1}};
    const struct {
        struct mr_worker_options options;
        enum mr_err err;
    } rows[] = {
        {{.slots = MR_SLOTS_MAX + 1}, MR_TOO_BIG},
        {{.queues = bad, .queues_n = MR_TAKE_QUEUES_MAX + 1}, MR_TOO_BIG},
        {{.queues = bad, .queues_n = 1}, MR_INVALID},
        {{.queues_n = 1}, MR_INVALID},
        {{.node = {"a\tb", 3}}, MR_INVALID},
        {{.drain_ms = -1}, MR_INVALID},
        {{.grace_ms = -1}, MR_INVALID},
        {{.beat_ms = -1}, MR_INVALID},
        {{.beats_missed = 1}, MR_INVALID},
        {{.beats_missed = 1001}, MR_INVALID},
        {{.retry_levels_ms = levels, .retry_levels_n = 2}, MR_INVALID},
        {{.retry_levels_n = 2}, MR_INVALID},
        {{.order = (enum mr_queue_order)7}, MR_INVALID},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(mr_worker_new_on(broker, &rows[i].options, &world->worker), rows[i].err);
    assert_null(world->worker);
}

static void a_worker_is_made_whole_or_not_at_all(void **state)
{
    struct world *world = *state;
    static const int64_t levels[] = {1, 2};
    static const struct mr_worker_queue queues[] = {{{"a", 1}, 1}, {{"b", 1}, 0}};
    struct mr_worker_options options = {.slots = 3,
                                        .queues = queues,
                                        .queues_n = 2,
                                        .retry_levels_ms = levels,
                                        .retry_levels_n = 2};
    long failed = 1;
    for (long n = 0; failed > 0; n++) {
        struct mr_worker *worker = NULL;
        fail_alloc_after(n);
        enum mr_err err = mr_worker_new_on(fake_broker(world->fake), &options, &worker);
        failed = fail_alloc_stop();
        assert_int_equal(err, failed > 0 ? MR_NOMEM : MR_OK);
        assert_int_equal(worker != NULL, err == MR_OK);
        mr_worker_free(worker);
    }
}

/* ---- how runs end --------------------------------------------------------------------------- */

static void every_task_runs_once_and_keeps_its_result(void **state)
{
    struct world *world = *state;
    size_t echo = add(world, "echo", "hello");
    fake_add_many(world->fake, "task", 500);
    start_worker(world, (struct mr_worker_options){.slots = 4});
    fake_await_ended(world->fake, 501);
    mr_worker_stop(world->worker);
    assert_string_equal(fake_look(world->fake, echo).result, "hello");
    assert_int_equal(atomic_load(&world->runs), 500);
    assert_int_equal(figures(world).done, 501);
    assert_int_equal(figures(world).stale, 0);
    for (size_t i = 0; i < 501; i++) {
        /* On a busy machine some may have been handed back before they ran. */
        struct fake_report report = fake_look(world->fake, i);
        assert_int_equal(report.finishes, report.takes);
        assert_int_equal(report.outcome, MR_DONE);
    }
}

/* Slots times payload may be more than a broker can answer at once, and than this process has memory. */
static void a_take_ends_by_bytes_and_big_tasks_run_all_the_same(void **state)
{
    enum { TASKS = 40, BYTES = 1024 * 1024 };
    struct world *world = *state;
    void *payload = calloc(1, BYTES);
    assert_non_null(payload);
    for (size_t i = 0; i < TASKS; i++)
        fake_add(world->fake, &(struct mr_task){.type = MR_SLICE_LIT("task"),
                                                .payload = mr_slice_make(payload, BYTES)});
    start_worker(world, (struct mr_worker_options){.slots = TASKS});
    fake_await_ended(world->fake, TASKS);
    mr_worker_stop(world->worker);
    assert_int_equal(atomic_load(&world->runs), TASKS);
    assert_in_range(fake_take_bytes(world->fake), 1, MR_TAKE_BYTES);
    free(payload);
}

static void each_outcome_is_reported_with_its_error_and_delay(void **state)
{
    struct world *world = *state;
    static const int64_t levels[] = {50, 70};
    size_t fail = fake_add(world->fake, &(struct mr_task){.type = mr_slice_str("told"),
                                                          .payload = mr_slice_str("1"),
                                                          .retried = 1});
    size_t for_good = add(world, "told", "2");
    size_t drop = add(world, "told", "4");
    size_t later = add(world, "told", "5");
    size_t again = add(world, "again", "");
    size_t nonsense = add(world, "told", "9");
    start_worker(world, (struct mr_worker_options){.retry_levels_ms = levels, .retry_levels_n = 2});
    fake_await_ended(world->fake, 6);
    mr_worker_stop(world->worker);
    struct fake_report report = fake_look(world->fake, fail);
    assert_int_equal(report.outcome, MR_FAIL);
    assert_int_equal(report.delay_ms, 70);
    assert_string_equal(report.error, "because of 1");
    assert_int_equal(fake_look(world->fake, for_good).outcome, MR_FAIL_FOR_GOOD);
    assert_string_equal(fake_look(world->fake, for_good).error, "because of 2");
    assert_int_equal(fake_look(world->fake, drop).outcome, MR_DROP);
    assert_int_equal(fake_look(world->fake, later).outcome, MR_LATER);
    assert_int_equal(fake_look(world->fake, later).delay_ms, 50);
    assert_int_equal(fake_look(world->fake, again).delay_ms, 1234);
    assert_int_equal(fake_look(world->fake, nonsense).outcome, MR_FAIL_FOR_GOOD);
    assert_int_equal(figures(world).failed, 4);
    assert_int_equal(figures(world).dropped, 1);
    assert_int_equal(figures(world).later, 1);
    assert_int_equal(figures(world).handed_back, 0);
    assert_int_equal(atomic_load(&world->told), 4);
}

static bool never_a_failure(const struct mr_task *task, const char *error, void *arg)
{
    (void)task, (void)arg;
    return strcmp(error, "because of 1") != 0;
}

static void what_the_predicate_excuses_comes_later_and_is_not_told(void **state)
{
    struct world *world = *state;
    size_t excused = add(world, "told", "1");
    size_t failed = add(world, "told", "1!");
    start_worker(world, (struct mr_worker_options){.is_failure = never_a_failure});
    fake_await_ended(world->fake, 2);
    assert_int_equal(fake_look(world->fake, excused).outcome, MR_LATER);
    assert_int_equal(fake_look(world->fake, failed).outcome, MR_FAIL);
    assert_int_equal(atomic_load(&world->told), 1);
}

static void a_type_nobody_handles_goes_back_with_a_delay(void **state)
{
    struct world *world = *state;
    size_t task = add(world, "unknown", "");
    start_worker(world, (struct mr_worker_options){.slots = 1});
    fake_await_state(world->fake, task, FAKE_ENDED);
    mr_worker_stop(world->worker);
    assert_int_equal(fake_look(world->fake, task).outcome, MR_HAND_BACK);
    assert_true(fake_look(world->fake, task).delay_ms >= 1000);
    assert_int_equal(figures(world).unhandled, 1);
    assert_int_equal(figures(world).handed_back, 0);
}

static void a_deadline_that_has_passed_means_no_run(void **state)
{
    struct world *world = *state;
    size_t task = fake_add(world->fake, &(struct mr_task){.deadline_ms = 1000});
    start_worker(world, (struct mr_worker_options){.slots = 1});
    fake_await_state(world->fake, task, FAKE_ENDED);
    assert_int_equal(fake_look(world->fake, task).outcome, MR_FAIL_FOR_GOOD);
    assert_string_equal(fake_look(world->fake, task).error, "deadline passed");
    assert_int_equal(atomic_load(&world->runs), 0);
}

static void progress_reaches_the_broker_before_the_next_beat(void **state)
{
    struct world *world = *state;
    size_t task = add(world, "progress", "");
    start_worker(world, (struct mr_worker_options){.slots = 1, .beat_ms = 100 * 1000});
    fake_await_progress(world->fake, task, 42);
    assert_string_equal(fake_look(world->fake, task).progress, "half, nearly");
}

static void a_beat_that_did_not_arrive_is_repeated_soon(void **state)
{
    struct world *world = *state;
    fake_answer_beats(world->fake, MR_UNAVAILABLE);
    size_t task = add(world, "progress", "");
    start_worker(world, (struct mr_worker_options){.slots = 1, .beat_ms = 100 * 1000});
    fake_await_progress(world->fake, task, 42);
    fake_await_more_beats(world->fake, 2);
    fake_answer_beats(world->fake, MR_OK);
}

static void a_long_progress_text_is_cut_between_characters(void **state)
{
    struct world *world = *state;
    size_t task = add(world, "long-progress", "");
    start_worker(world, (struct mr_worker_options){.slots = 1, .beat_ms = 100 * 1000});
    fake_await_progress(world->fake, task, 7);
    assert_int_equal(strlen(fake_look(world->fake, task).progress),
                     2 + (MR_PROGRESS_TEXT_MAX - 2) / 3 * 3);
}

static void what_is_handed_back_again_and_again_waits_longer_each_time(void **state)
{
    struct world *world = *state;
    size_t task = add(world, "back", "");
    start_worker(world, (struct mr_worker_options){.slots = 1});
    fake_await_state(world->fake, task, FAKE_ENDED); /* the fake ends it with the first delay */
    mr_worker_stop(world->worker);
    assert_int_equal(atomic_load(&world->runs), 2);
    assert_int_equal(fake_look(world->fake, task).outcome, MR_HAND_BACK);
    assert_in_range(fake_look(world->fake, task).delay_ms, 500, 1000);
    assert_int_equal(figures(world).handed_back, 2);
}

static void what_is_handed_back_for_the_first_time_does_not_wait_long(void **state)
{
    struct world *world = *state;
    memset(was_back, 0, sizeof was_back);
    fake_add_many(world->fake, "back-once", BACKS);
    start_worker(world, (struct mr_worker_options){.slots = 1});
    fake_await_ended(world->fake, BACKS);
    mr_worker_stop(world->worker);
    size_t at_once = 0;
    for (size_t i = 0; i < BACKS; i++) { /* the fake ends it with the first delay */
        struct fake_report report = fake_look(world->fake, i);
        at_once += report.outcome == MR_DONE;
        assert_true(report.delay_ms <= 1000);
    }
    assert_true(at_once > BACKS / 8); /* rows that nobody else had */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_exact_handler_wins_then_the_longest_prefix),
        cmocka_unit_test(the_patterns_are_told_unless_everything_is_handled),
        cmocka_unit_test(bad_and_repeated_patterns_are_refused),
        cmocka_unit_test(the_default_delay_doubles_within_its_spread_and_limit),
        cmocka_unit_test(levels_and_the_callers_delay_are_exact),
        WITH_WORLD(wrong_options_are_refused),
        WITH_WORLD(a_worker_is_made_whole_or_not_at_all),
        WITH_WORLD(every_task_runs_once_and_keeps_its_result),
        WITH_WORLD(a_take_ends_by_bytes_and_big_tasks_run_all_the_same),
        WITH_WORLD(each_outcome_is_reported_with_its_error_and_delay),
        WITH_WORLD(what_the_predicate_excuses_comes_later_and_is_not_told),
        WITH_WORLD(a_type_nobody_handles_goes_back_with_a_delay),
        WITH_WORLD(a_deadline_that_has_passed_means_no_run),
        WITH_WORLD(progress_reaches_the_broker_before_the_next_beat),
        WITH_WORLD(a_beat_that_did_not_arrive_is_repeated_soon),
        WITH_WORLD(a_long_progress_text_is_cut_between_characters),
        WITH_WORLD(what_is_handed_back_again_and_again_waits_longer_each_time),
        WITH_WORLD(what_is_handed_back_for_the_first_time_does_not_wait_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
