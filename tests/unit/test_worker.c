/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker against a broker that does what a test says: what it reports for every way a run can
 * end, how it stops, and that it survives a broker that loses it. Runs wait for conditions; where
 * time itself is tested, the limits are lower bounds.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/diag.h"
#include "support/fake_broker.h"
#include "unit/failing_alloc.h"
#include "worker/handlers.h"
#include "worker/retry.h"
#include "worker/worker.h"

struct world {
    struct fake *fake;
    struct mr_worker *worker;
    struct mr_event go;      /* lets handlers that wait for it return */
    struct mr_event entered; /* set by handlers that wait */
    _Atomic int told;        /* failures the error handler was told of */
    _Atomic int runs;
};

static void quiet(enum mr_diag_level level, const char *line, void *arg)
{
    (void)level, (void)line, (void)arg;
}

static int make_world(void **state)
{
    struct world *world = calloc(1, sizeof *world);
    assert_non_null(world);
    mr_diag_set_sink(quiet, NULL);
    mr_event_init(&world->go);
    mr_event_init(&world->entered);
    world->fake = fake_new();
    *state = world;
    return 0;
}

static int end_world(void **state)
{
    struct world *world = *state;
    mr_event_set(&world->go);
    mr_worker_free(world->worker);
    fake_free(world->fake);
    free(world);
    return 0;
}

/* ---- handlers ------------------------------------------------------------------------------- */

static enum mr_outcome run_nothing(struct mr_run *run, void *arg)
{
    (void)run;
    atomic_fetch_add(&((struct world *)arg)->runs, 1);
    return MR_DONE;
}

/* Answers with what the payload's first byte says. */
static enum mr_outcome run_as_told(struct mr_run *run, void *arg)
{
    (void)arg;
    const struct mr_task *task = mr_run_task(run);
    mr_run_error(run, "because of %.*s", (int)task->payload.len, (const char *)task->payload.data);
    return (enum mr_outcome)(((const char *)task->payload.data)[0] - '0');
}

static enum mr_outcome run_echo(struct mr_run *run, void *arg)
{
    (void)arg;
    assert_int_equal(mr_run_result(run, mr_run_task(run)->payload), MR_OK);
    return MR_DONE;
}

/* Goes on until it is told to stop, then fails. */
static enum mr_outcome run_until_cancelled(struct mr_run *run, void *arg)
{
    mr_event_set(&((struct world *)arg)->entered);
    assert_true(mr_run_wait_cancelled(run, INT64_MAX));
    assert_true(mr_run_cancelled(run));
    return MR_FAIL;
}

/* Told to stop, it answers with what the payload's first byte says. */
static enum mr_outcome run_decides_when_cancelled(struct mr_run *run, void *arg)
{
    run_until_cancelled(run, arg);
    return run_as_told(run, arg);
}

static enum mr_outcome run_done_when_cancelled(struct mr_run *run, void *arg)
{
    run_until_cancelled(run, arg);
    return MR_DONE;
}

/* Does not listen: returns when the test says so. */
static enum mr_outcome run_deaf(struct mr_run *run, void *arg)
{
    struct world *world = arg;
    (void)run;
    mr_event_set(&world->entered);
    mr_event_wait(&world->go, INT64_MAX);
    return MR_DONE;
}

static enum mr_outcome run_progress(struct mr_run *run, void *arg)
{
    struct world *world = arg;
    assert_int_equal(mr_run_progress(run, 101, (struct mr_slice){0}), MR_INVALID);
    assert_int_equal(mr_run_progress(run, 42, mr_slice_str("half, nearly")), MR_OK);
    mr_event_wait(&world->go, INT64_MAX);
    return MR_DONE;
}

/* A text whose limit falls into the middle of a character. */
static enum mr_outcome run_long_progress(struct mr_run *run, void *arg)
{
    char text[2 + MR_PROGRESS_TEXT_MAX] = "xx";
    for (size_t i = 2; i + 3 <= sizeof text; i += 3)
        memcpy(text + i, "\u20ac", 3);
    assert_int_equal(mr_run_progress(run, 7, mr_slice_make(text, sizeof text)), MR_OK);
    mr_event_wait(&((struct world *)arg)->go, INT64_MAX);
    return MR_DONE;
}

static enum mr_outcome run_hand_back(struct mr_run *run, void *arg)
{
    (void)run;
    atomic_fetch_add(&((struct world *)arg)->runs, 1);
    return MR_HAND_BACK;
}

enum { BACKS = 3000 }; /* more than a worker remembers */
static bool was_back[BACKS];

static enum mr_outcome run_hand_back_once(struct mr_run *run, void *arg)
{
    (void)arg;
    const struct mr_task *task = mr_run_task(run);
    char id[16] = "";
    memcpy(id, task->id.data, task->id.len);
    bool *was = &was_back[strtoul(id, NULL, 10)];
    if (*was)
        return MR_DONE;
    *was = true;
    return MR_HAND_BACK;
}

static enum mr_outcome run_later_by_itself(struct mr_run *run, void *arg)
{
    (void)arg;
    mr_run_retry_after(run, 1234);
    return MR_FAIL;
}

static const struct {
    const char *pattern;
    mr_handler *handler;
} handlers[] = {
    {"task", run_nothing},
    {"told", run_as_told},
    {"echo", run_echo},
    {"wait", run_until_cancelled},
    {"wait-done", run_done_when_cancelled},
    {"wait-told", run_decides_when_cancelled},
    {"deaf", run_deaf},
    {"progress", run_progress},
    {"long-progress", run_long_progress},
    {"back", run_hand_back},
    {"back-once", run_hand_back_once},
    {"again", run_later_by_itself},
};

static void note_error(const struct mr_task *task, const char *error, void *arg)
{
    assert_non_null(error);
    assert_true(task->id.len > 0);
    atomic_fetch_add(&((struct world *)arg)->told, 1);
}

/* A worker with all handlers, not started. */
static void make_worker(struct world *world, struct mr_worker_options options)
{
    options.on_error = note_error;
    options.arg = world;
    assert_int_equal(mr_worker_new_on(fake_broker(world->fake), &options, &world->worker), MR_OK);
    for (size_t i = 0; i < sizeof handlers / sizeof *handlers; i++)
        assert_int_equal(
            mr_worker_handle(world->worker, handlers[i].pattern, handlers[i].handler, world),
            MR_OK);
}

static void start_worker(struct world *world, struct mr_worker_options options)
{
    make_worker(world, options);
    assert_int_equal(mr_worker_start(world->worker), MR_OK);
}

static size_t add(struct world *world, const char *type, const char *payload)
{
    return fake_add(world->fake, &(struct mr_task){.type = mr_slice_str(type),
                                                   .payload = mr_slice_str(payload)});
}

static struct mr_worker_figures figures(struct world *world)
{
    struct mr_worker_figures figures;
    mr_worker_figures(world->worker, &figures);
    return figures;
}

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

#define WITH_WORLD(test) cmocka_unit_test_setup_teardown(test, make_world, end_world)

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
        WITH_WORLD(each_outcome_is_reported_with_its_error_and_delay),
        WITH_WORLD(what_the_predicate_excuses_comes_later_and_is_not_told),
        WITH_WORLD(a_type_nobody_handles_goes_back_with_a_delay),
        WITH_WORLD(a_deadline_that_has_passed_means_no_run),
        WITH_WORLD(progress_reaches_the_broker_before_the_next_beat),
        WITH_WORLD(a_long_progress_text_is_cut_between_characters),
        WITH_WORLD(what_is_handed_back_again_and_again_waits_longer_each_time),
        WITH_WORLD(what_is_handed_back_for_the_first_time_does_not_wait_long),
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
