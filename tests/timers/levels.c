/* SPDX-License-Identifier: Apache-2.0 */
/* D: delay levels and dead letters. In the sample the levels are a tenth as long. */
#include <sqlite3.h>
#include <stdio.h>
#include <sys/resource.h>

#include "timers/rig.h"

/* Levels and what they may be off by, in ms. */
static int64_t level_ms(int64_t full)
{
    return rig_full() ? full : full / 10;
}

static int64_t slack_ms(void)
{
    return rig_full() ? 500 : 400;
}

static struct rig *rig_with_levels(const int64_t *levels, size_t n)
{
    struct rig *rig = rig_make_idle();
    for (size_t i = 0; i < n; i++)
        rig->settings.levels_ms[i] = level_ms(levels[i]);
    rig->settings.levels_n = n;
    rig_apply(rig_broker(rig, 0));
    return rig;
}

static const int64_t two_levels[] = {5000, 10000};

/* Operations on timers whose names begin so fail so often from now on. */
static void set_faulty(struct rig *rig, const char *name, int64_t times)
{
    mr_lock_enter(&rig->lock);
    (void)snprintf(rig->faulty, sizeof rig->faulty, "%s", name);
    rig->faults_left = times;
    mr_lock_leave(&rig->lock);
}

static size_t attempts(struct rig *rig)
{
    mr_lock_enter(&rig->lock);
    size_t n = rig->attempts_n;
    mr_lock_leave(&rig->lock);
    return n;
}

static void await_attempts(struct rig *rig, size_t n)
{
    mr_mono since = rig_mono();
    while (attempts(rig) < n)
        rig_wait_a_moment(since, "for so many attempts");
}

/* A put that is not waited for; answers the id of the operation. */
static void put(struct rig *rig, const char *name, char id[MR_TIMER_ID_MAX + 1])
{
    struct rig_op op;
    rig_op_put(&op, RIG_TIMER(name), NULL, rig_version());
    assert_int_equal(rig_send(rig_broker(rig, 0), &op.op, MR_TIMER_DURABLE).err, MR_OK);
    if (id != NULL)
        memcpy(id, op.operation, sizeof op.operation);
    rig_op_done(&op);
}

static void assert_gaps(struct rig *rig, const int64_t *levels, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int64_t gap = rig->attempts_ms[i + 1] - rig->attempts_ms[i];
        assert_true(gap >= level_ms(levels[i]) - 20);
        assert_true(gap <= level_ms(levels[i]) + slack_ms());
    }
}

static void control(struct rig_broker *b, enum mr_verb verb, const char *id)
{
    struct mr_control item = {.verb = verb, .id = mr_slice_str(id)};
    enum mr_err err;
    struct mr_req_control req = {
        .req = {.op = MR_OP_CONTROL}, .items = &item, .n = 1, .errs = &err};
    assert_int_equal(mr_broker_call(b->broker, &req.req), MR_OK);
    mr_req_done(&req.req);
    assert_int_equal(err, MR_OK);
}

/* Its only dead letter, by the list of the hidden queue. */
static void assert_listed_dead(struct rig_broker *b, const char *id)
{
    struct mr_req_list list = {
        .req = {.op = MR_OP_LIST},
        .options = {.queue = MR_SLICE_LIT(MR_TIMERS_QUEUE), .state = MR_ARCHIVED, .limit = 10}};
    assert_int_equal(mr_broker_call(b->broker, &list.req), MR_OK);
    assert_int_equal(list.n, 1);
    assert_true(mr_slice_equal(list.tasks[0].id, mr_slice_str(id)));
    assert_int_equal(list.tasks[0].retried + 1, 3);
    assert_true(list.tasks[0].created_ms > 0 && list.tasks[0].last_failed_ms > 0);
    assert_true(mr_slice_starts_with(list.tasks[0].last_error, MR_SLICE_LIT("UNAVAILABLE: ")));
    mr_req_done(&list.req);
}

static void test_38_a_fault_leads_over_the_levels_to_a_dead_letter_of_three_attempts(void **state)
{
    struct rig *rig = rig_with_levels(two_levels, 2);
    char id[MR_TIMER_ID_MAX + 1];
    (void)state;
    set_faulty(rig, "bad", -1);
    put(rig, "bad", id);
    rig_await_operations(rig_broker(rig, 0), MR_ARCHIVED, 1);
    assert_int_equal(attempts(rig), 3);
    assert_gaps(rig, two_levels, 2);
    assert_listed_dead(rig_broker(rig, 0), id);
    assert_int_equal(rig_count(rig), 0);
    rig_free(rig);
}

/* Another one writes to it, and does not stop; NULL: it does. */
static sqlite3 *hold_store(struct rig *rig, sqlite3 *holder)
{
    char path[RIG_DIR_MAX];
    (void)snprintf(path, sizeof path, "%s/store.db", rig->dir);
    if (holder == NULL) {
        assert_int_equal(sqlite3_open(path, &holder), SQLITE_OK);
        assert_int_equal(sqlite3_exec(holder, "begin immediate", NULL, NULL, NULL), SQLITE_OK);
        return holder;
    }
    assert_int_equal(sqlite3_exec(holder, "rollback", NULL, NULL, NULL), SQLITE_OK);
    assert_int_equal(sqlite3_close(holder), SQLITE_OK);
    return NULL;
}

/* The store as a whole is away for longer than all levels together: nobody has to requeue what was accepted. */
static void test_38_while_the_store_is_away_operations_wait_and_are_no_dead_letters(void **state)
{
    struct rig *rig = rig_make_idle();
    struct rig_broker *b = rig_broker(rig, 0);
    struct mr_detail line;
    (void)state;
    rig->away_ms = 50;
    rig_reopen_store(rig);
    rig->settings.levels_ms[0] = 1;
    rig->settings.levels_n = 1;
    sqlite3 *holder = hold_store(rig, NULL);
    rig_apply(b);
    put(rig, "a", NULL);
    mr_mono since = rig_mono();
    while (mr_store_problem(rig->store, &line) != MR_UNAVAILABLE)
        rig_wait_a_moment(since, "until the store is away");
    struct mr_event never;
    mr_event_init(&never);
    (void)mr_event_wait(&never, 1500 * MR_NS_PER_MS); /* time for more than one try */
    assert_int_equal(rig_operations(b, MR_ARCHIVED) + rig_operations(b, MR_RETRY), 0);
    assert_int_equal(rig_operations(b, MR_PENDING) + rig_operations(b, MR_ACTIVE), 1);
    assert_null(hold_store(rig, holder));
    rig_await_count(rig, 1);
    rig_await_operations(b, MR_ACTIVE, 0);
    assert_int_equal(rig->dead_n, 0);
    rig_free(rig);
}

static void test_39_a_fault_that_ends_is_over_with_the_next_attempt(void **state)
{
    struct rig *rig = rig_with_levels(two_levels, 2);
    (void)state;
    set_faulty(rig, "bad", 1);
    put(rig, "bad", NULL);
    rig_await_count(rig, 1);
    rig_await_operations(rig_broker(rig, 0), MR_RETRY, 0);
    rig_await_operations(rig_broker(rig, 0), MR_ACTIVE, 0);
    assert_int_equal(attempts(rig), 2);
    assert_gaps(rig, two_levels, 1);
    assert_int_equal(rig_operations(rig_broker(rig, 0), MR_PENDING), 0);
    rig_free(rig);
}

static void test_40_what_waits_in_a_level_is_tried_at_its_time_after_a_restart(void **state)
{
    struct rig *rig = rig_with_levels(two_levels, 2);
    (void)state;
    set_faulty(rig, "bad", 1);
    put(rig, "bad", NULL);
    rig_await_operations(rig_broker(rig, 0), MR_RETRY, 1);
    rig_close(rig_broker(rig, 0));
    rig_apply(rig_broker(rig, 0));
    int64_t up_ms = rig_now_ms();
    rig_await_count(rig, 1);
    assert_int_equal(attempts(rig), 2);
    int64_t due_ms = rig->attempts_ms[0] + level_ms(two_levels[0]);
    assert_true(rig->attempts_ms[1] >= due_ms - 20);
    assert_true(rig->attempts_ms[1] <= (due_ms > up_ms ? due_ms : up_ms) + slack_ms());
    rig_free(rig);
}

static void test_41_dead_letters_are_still_listed_after_a_restart(void **state)
{
    struct rig *rig = rig_with_levels((const int64_t[]){100, 100}, 2);
    char id[MR_TIMER_ID_MAX + 1];
    (void)state;
    set_faulty(rig, "bad", -1);
    put(rig, "bad", id);
    rig_await_operations(rig_broker(rig, 0), MR_ARCHIVED, 1);
    rig_close(rig_broker(rig, 0));
    assert_listed_dead(rig_broker(rig, 0), id);
    rig_free(rig);
}

static void
test_42_a_dead_letter_that_is_retried_is_applied_and_one_that_is_deleted_gone(void **state)
{
    struct rig *rig = rig_with_levels((const int64_t[]){100, 100}, 2);
    struct rig_broker *b = rig_broker(rig, 0);
    char first[MR_TIMER_ID_MAX + 1], second[MR_TIMER_ID_MAX + 1];
    (void)state;
    set_faulty(rig, "bad", -1);
    put(rig, "bad 1", first);
    put(rig, "bad 2", second);
    rig_await_operations(b, MR_ARCHIVED, 2);
    set_faulty(rig, "bad", 0);
    control(b, MR_VERB_RUN, first);
    rig_await_count(rig, 1);
    assert_int_equal(rig_state(rig, "bad 1"), MR_ROW_ACTIVE);
    rig_await_operations(b, MR_ARCHIVED, 1);
    control(b, MR_VERB_DELETE, second);
    rig_await_operations(b, MR_ARCHIVED, 0);
    assert_int_equal(rig_count(rig), 1);
    rig_free(rig);
}

static void test_43_failing_operations_delay_no_others_and_are_not_overtaken_in_effect(void **state)
{
    struct rig *rig = rig_with_levels(two_levels, 2);
    struct rig_broker *b = rig_broker(rig, 0);
    size_t n = rig_full() ? 1000 : 200;
    struct rig_op op, newer;
    (void)state;
    set_faulty(rig, "a", (int64_t)n);
    struct mr_timer_operation *send = calloc(n, sizeof *send);
    struct mr_timer_result *results = calloc(n, sizeof *results);
    rig_op_put(&op, RIG_TIMER("a", .payload = MR_SLICE_LIT("old")), NULL, rig_version());
    op.op.operation = (struct mr_slice){0}; /* each gets its own */
    for (size_t i = 0; i < n; i++)
        send[i] = op.op;
    rig_send_all(b, send, n, MR_TIMER_DURABLE, results);
    free(send);
    free(results);
    rig_await_operations(b, MR_RETRY, n);
    mr_mono since = rig_mono();
    (void)rig_put(b, RIG_TIMER("other"));
    assert_true(rig_elapsed_ms(since) < 400);
    rig_op_put(&newer, RIG_TIMER("a", .payload = MR_SLICE_LIT("new")), op.id, rig_version());
    assert_int_equal(rig_send(b, &newer.op, MR_TIMER_APPLIED).err, MR_OK);
    rig_await_operations(b, MR_RETRY, 0);
    rig_await_operations(b, MR_PENDING, 0);
    rig_await_operations(b, MR_ACTIVE, 0);
    struct rig_timer timer;
    rig_get(rig, "a", &timer);
    assert_int_equal(timer.row.version, newer.op.version);
    assert_true(mr_slice_equal(timer.options.payload, MR_SLICE_LIT("new")));
    assert_int_equal(rig_operations(b, MR_ARCHIVED), 0);
    rig_timer_done(&timer);
    rig_op_done(&op);
    rig_op_done(&newer);
    rig_free(rig);
}

static int64_t cpu_us(void)
{
    struct rusage usage;
    assert_int_equal(getrusage(RUSAGE_SELF, &usage), 0);
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000LL + usage.ru_utime.tv_usec +
           usage.ru_stime.tv_usec;
}

/* Time has to pass for this one. */
static void test_44_an_idle_applier_costs_less_than_a_hundredth_of_a_core(void **state)
{
    struct rig *rig = rig_make();
    int64_t wait_ms = rig_full() ? 20000 : 2000;
    (void)state;
    (void)rig_put(rig_broker(rig, 0), RIG_TIMER("a"));
    mr_mono since = rig_mono();
    int64_t before = cpu_us();
    struct mr_event never;
    mr_event_init(&never);
    (void)mr_event_wait(&never, wait_ms * MR_NS_PER_MS);
    assert_true(cpu_us() - before < rig_elapsed_ms(since) * 1000 / 100);
    rig_free(rig);
}

static void test_45_the_delays_follow_a_ladder_of_five_levels(void **state)
{
    static const int64_t levels[] = {2000, 4000, 1000, 6000, 3000};
    struct rig *rig = rig_with_levels(levels, 5);
    (void)state;
    set_faulty(rig, "bad", -1);
    put(rig, "bad", NULL);
    rig_await_operations(rig_broker(rig, 0), MR_ARCHIVED, 1);
    assert_int_equal(attempts(rig), 6);
    assert_gaps(rig, levels, 5);
    rig_free(rig);
}

static void test_46_a_dead_letter_is_counted_and_told_once(void **state)
{
    struct rig *rig = rig_with_levels((const int64_t[]){100, 100}, 2);
    struct mr_applier_figures figures;
    (void)state;
    set_faulty(rig, "bad", -1);
    put(rig, "bad", NULL);
    mr_mono since = rig_mono();
    do {
        rig_wait_a_moment(since, "for the count");
        mr_applier_figures(rig_broker(rig, 0)->applier, &figures);
    } while (figures.dead == 0);
    await_attempts(rig, 3);
    rig_no_apply(rig_broker(rig, 0));
    assert_int_equal(rig->dead_n, 1);
    assert_int_equal(rig->dead_attempts, 3);
    assert_memory_equal(rig->dead_reason, "UNAVAILABLE: ", strlen("UNAVAILABLE: "));
    assert_int_equal(figures.dead, 1);
    assert_int_equal(figures.retried, 2);
    rig_free(rig);
}

int timers_levels(void)
{
    struct CMUnitTest tests[] = {
        cmocka_unit_test(test_38_a_fault_leads_over_the_levels_to_a_dead_letter_of_three_attempts),
        cmocka_unit_test(test_38_while_the_store_is_away_operations_wait_and_are_no_dead_letters),
        cmocka_unit_test(test_39_a_fault_that_ends_is_over_with_the_next_attempt),
        cmocka_unit_test(test_40_what_waits_in_a_level_is_tried_at_its_time_after_a_restart),
        cmocka_unit_test(test_41_dead_letters_are_still_listed_after_a_restart),
        cmocka_unit_test(
            test_42_a_dead_letter_that_is_retried_is_applied_and_one_that_is_deleted_gone),
        cmocka_unit_test(
            test_43_failing_operations_delay_no_others_and_are_not_overtaken_in_effect),
        cmocka_unit_test(test_44_an_idle_applier_costs_less_than_a_hundredth_of_a_core),
        cmocka_unit_test(test_45_the_delays_follow_a_ladder_of_five_levels),
        cmocka_unit_test(test_46_a_dead_letter_is_counted_and_told_once),
    };
    return TIMERS_RUN("levels", tests);
}
