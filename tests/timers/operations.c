/* SPDX-License-Identifier: Apache-2.0 */
/* A: operations on timers, and what becomes of them. */
#include <stdio.h>

#include "timers/rig.h"
#include "wire/timer.h"

enum { UPDATES = 50 };

static void test_06_a_second_delete_and_one_of_an_unknown_timer_are_no_dead_letters(void **state)
{
    struct rig *rig = rig_make();
    struct rig_broker *b = rig_broker(rig, 0);
    (void)state;
    (void)rig_put(b, RIG_TIMER("a"));
    assert_int_equal(rig_delete(b, "a").err, MR_OK);
    assert_int_equal(rig_state(rig, "a"), MR_ROW_DELETED);
    enum mr_err again = rig_delete(b, "a").err;
    assert_true(again == MR_OK || again == MR_NOT_FOUND);
    assert_int_equal(rig_delete(b, "never").err, MR_NOT_FOUND);
    assert_int_equal(rig_operations(b, MR_ARCHIVED), 0);
    assert_int_equal(rig_operations(b, MR_RETRY), 0);
    assert_int_equal(rig_count(rig), 0);
    rig_free(rig);
}

/* Swaps some of them about. */
static void shuffle(size_t *order, size_t n)
{
    for (size_t i = n; i > 1; i--) {
        size_t j = (size_t)(mr_rand_next(mr_rand_of_thread()) % i), other = order[i - 1];
        order[i - 1] = order[j];
        order[j] = other;
    }
}

static void test_07_the_highest_version_wins_in_whatever_order_through_three_servers(void **state)
{
    enum { OPS = UPDATES + 2, SENT = 2 * OPS };
    struct rig *rig = rig_make_idle();
    struct rig_op ops[OPS];
    char payload[32];
    size_t order[SENT];
    (void)state;
    rig_op_put(&ops[0], RIG_TIMER("hot"), NULL, rig_version());
    for (size_t i = 1; i <= UPDATES; i++) {
        (void)snprintf(payload, sizeof payload, "update %zu", i);
        rig_op_put(&ops[i], RIG_TIMER("hot", .payload = mr_slice_str(payload)), ops[0].id,
                   rig_version());
    }
    rig_op_do(&ops[OPS - 1], MR_TIMER_DELETE, "hot", rig_version());
    for (size_t i = 0; i < SENT; i++)
        order[i] = i % OPS;
    shuffle(order, SENT);
    for (size_t i = 0; i < RIG_BROKERS_MAX; i++)
        rig_apply(rig_broker(rig, i));
    for (size_t i = 0; i < SENT; i++)
        assert_int_equal(
            rig_send(rig_broker(rig, i % RIG_BROKERS_MAX), &ops[order[i]].op, MR_TIMER_DURABLE).err,
            MR_OK);
    for (size_t i = 0; i < RIG_BROKERS_MAX; i++) {
        rig_await_operations(rig_broker(rig, i), MR_PENDING, 0);
        rig_await_operations(rig_broker(rig, i), MR_ACTIVE, 0);
        assert_int_equal(rig_operations(rig_broker(rig, i), MR_ARCHIVED), 0);
    }
    enum mr_row_state left = rig_state(rig, "hot");
    /* Absent: the delete came before all others. */
    assert_true(left == MR_ROW_DELETED || left == MR_ROW_ABSENT);
    rig_reopen_store(rig); /* and nothing comes back */
    rig_apply(rig_broker(rig, 0));
    assert_int_equal(rig_send(rig_broker(rig, 0), &ops[UPDATES].op, MR_TIMER_APPLIED).err,
                     MR_STALE);
    assert_int_equal(rig_state(rig, "hot"), left);
    assert_int_equal(rig_count(rig), 0);
    for (size_t i = 0; i < OPS; i++)
        rig_op_done(&ops[i]);
    rig_free(rig);
}

static void test_08_a_create_that_three_servers_get_makes_one_timer(void **state)
{
    struct rig *rig = rig_make_idle();
    struct rig_timer timer;
    struct rig_op op;
    (void)state;
    rig_op_put(&op, RIG_TIMER("once"), NULL, rig_version());
    op.op.if_version = MR_TIMER_NEW;
    for (size_t i = 0; i < RIG_BROKERS_MAX; i++)
        rig_apply(rig_broker(rig, i));
    for (size_t i = 0; i < RIG_BROKERS_MAX; i++) {
        struct mr_timer_result result = rig_send(rig_broker(rig, i), &op.op, MR_TIMER_APPLIED);
        assert_int_equal(result.err, MR_OK);
        assert_string_equal(result.id, op.id);
        assert_int_equal(result.version, op.op.version);
    }
    rig_get(rig, "once", &timer);
    assert_int_equal(timer.row.state, MR_ROW_ACTIVE);
    assert_int_equal(timer.row.version, op.op.version);
    assert_int_equal(timer.row.next_ms, op.op.created_ms + 3600000); /* planned once */
    assert_int_equal(rig_count(rig), 1);
    rig_timer_done(&timer);
    rig_op_done(&op);
    rig_free(rig);
}

static void test_09_an_update_that_comes_before_its_create_stays(void **state)
{
    struct rig *rig = rig_make();
    struct rig_broker *b = rig_broker(rig, 0);
    struct rig_timer timer;
    struct rig_op create, update;
    (void)state;
    rig_op_put(&create, RIG_TIMER("early", .payload = MR_SLICE_LIT("old")), NULL, rig_version());
    rig_op_put(&update, RIG_TIMER("early", .payload = MR_SLICE_LIT("new")), create.id,
               rig_version());
    assert_int_equal(rig_send(b, &update.op, MR_TIMER_APPLIED).err, MR_OK);
    struct mr_timer_result late = rig_send(b, &create.op, MR_TIMER_APPLIED);
    assert_int_equal(late.err, MR_STALE);
    assert_int_equal(late.version, update.op.version);
    rig_get(rig, "early", &timer);
    assert_true(mr_slice_equal(timer.options.payload, MR_SLICE_LIT("new")));
    assert_int_equal(timer.row.version, update.op.version);
    rig_timer_done(&timer);
    rig_op_done(&create);
    rig_op_done(&update);
    rig_free(rig);
}

struct refusal {
    const struct mr_timer_options *timer;
    enum mr_err err;
    const char *why; /* begins so */
};

static void assert_refused(struct rig_broker *b, const struct refusal *refusal)
{
    struct rig_op op;
    char id[MR_ID_MAX + 1];
    struct mr_arena arena;
    struct mr_task task;
    struct mr_buf bytes = {0};
    rig_op_put(&op, refusal->timer, NULL, rig_version());
    /* At the door. */
    struct mr_timer_result result = rig_send(b, &op.op, MR_TIMER_DURABLE);
    assert_int_equal(result.err, refusal->err);
    assert_memory_equal(result.why, refusal->why, strlen(refusal->why));
    /* Another way. */
    mr_mono since = rig_mono();
    assert_int_equal(mr_flat_append(&mr_flat_timer_operation, &op.op, &bytes), MR_OK);
    rig_smuggle(b, mr_buf_slice(&bytes), id);
    assert_int_equal(rig_end(b, id, &arena, &task), MR_OK);
    assert_int_equal(task.state, MR_ARCHIVED);
    assert_int_equal(task.retried, 0);
    assert_true(rig_elapsed_ms(since) < 4000); /* not after a level */
    char text[600];
    (void)snprintf(text, sizeof text, "%s: %s", mr_err_name(refusal->err), refusal->why);
    assert_true(mr_slice_starts_with(task.last_error, mr_slice_str(text)));
    mr_arena_done(&arena);
    mr_buf_done(&bytes);
    rig_op_done(&op);
}

static void
test_10_what_is_invalid_is_rejected_at_once_or_a_dead_letter_with_its_reason(void **state)
{
    struct rig *rig = rig_make();
    struct rig_broker *b = rig_broker(rig, 0);
    static char long_text[MR_TIMER_EXPRESSION_MAX + 2], long_name[MR_NAME_MAX + 2];
    size_t big = MR_PAYLOAD_MAX + 1;
    char *much = calloc(1, big);
    (void)state;
    memset(long_text, '1', sizeof long_text - 1);
    memset(long_name, 'n', sizeof long_name - 1);
    const struct refusal refusals[] = {
        {RIG_RULE("a", MR_TIMER_CRON, "* 24 * * *"), MR_INVALID, "cron, column 3: 24 is no hour"},
        {RIG_RULE("a", (enum mr_timer_kind)77, "1h"), MR_INVALID, "definition: cannot be read"},
        {RIG_RULE("a", MR_TIMER_EVERY, long_text), MR_TOO_BIG, "expression: 513 bytes"},
        {RIG_TIMER(long_name), MR_TOO_BIG, "name: 129 bytes"},
        {RIG_TIMER(""), MR_INVALID, "name: missing"},
        {RIG_TIMER("a", .app = MR_SLICE_LIT("\n")), MR_INVALID, "app: must be UTF-8"},
        {RIG_TIMER("a", .payload = mr_slice_make(much, big)), MR_TOO_BIG, "payload: 1048577 bytes"},
        {RIG_TIMER("a", .tz = MR_SLICE_LIT("Mars/Olympus")), MR_INVALID, "no ti"},
        {RIG_TIMER("a", .strategy = MR_STRATEGY_TAG), MR_INVALID, "strategy tag: missing"},
        {RIG_TIMER("a", .strategy = MR_STRATEGY_TAG, .target = MR_SLICE_LIT("gpu"),
                   .queue = mr_slice_make(long_name, MR_NAME_MAX - 3)),
         MR_TOO_BIG, "strategy tag: QUEUE@TAG has 129 bytes"},
    };
    for (size_t i = 0; i < sizeof refusals / sizeof *refusals; i++)
        assert_refused(b, &refusals[i]);
    rig_no_apply(b); /* who is told, is told behind the end */
    assert_int_equal(rig->dead_n, sizeof refusals / sizeof *refusals);
    assert_int_equal(rig_operations(b, MR_RETRY), 0);
    assert_int_equal(rig_count(rig), 0);
    free(much);
    rig_free(rig);
}

static void test_10_a_version_of_the_future_is_refused(void **state)
{
    struct rig *rig = rig_make();
    struct rig_op op;
    (void)state;
    rig_op_put(&op, RIG_TIMER("a"), NULL, rig_version() + 30 * 1000 * 1000);
    struct mr_timer_result result = rig_send(rig_broker(rig, 0), &op.op, MR_TIMER_DURABLE);
    assert_int_equal(result.err, MR_INVALID);
    assert_memory_equal(result.why, "version: ", strlen("version: "));
    /* Half a second is what clocks may differ by. */
    op.op.version = rig_version() + 500 * 1000;
    assert_int_equal(rig_send(rig_broker(rig, 0), &op.op, MR_TIMER_APPLIED).err, MR_OK);
    rig_op_done(&op);
    rig_free(rig);
}

/* Who has accepted it may have a clock that is ahead of the one that applies it. */
static void test_10_what_a_server_has_accepted_is_no_future_to_another(void **state)
{
    struct rig *rig = rig_make_idle();
    (void)state;
    atomic_store(&rig->clock.ahead_us, -3 * 1000 * 1000);
    rig_apply(rig_broker(rig, 0));
    (void)rig_put(rig_broker(rig, 0), RIG_TIMER("a"));
    assert_int_equal(rig_count(rig), 1);
    rig_free(rig);
}

/* A change is newer than what its producer has seen, also when that is of a clock which is ahead. */
static void test_07_a_change_follows_what_was_seen_whatever_the_clocks_say(void **state)
{
    struct rig *rig = rig_make();
    struct rig_broker *b = rig_broker(rig, 0);
    struct rig_op op;
    struct mr_timer_result result = {.version = 0};
    struct mr_buf bytes = {0};
    char id[MR_ID_MAX + 1];
    (void)state;
    /* As if a server whose clock is 3 s ahead had accepted it. */
    rig_op_put(&op, RIG_TIMER("a"), NULL, rig_version() + 3 * 1000 * 1000);
    assert_int_equal(mr_flat_append(&mr_flat_timer_operation, &op.op, &bytes), MR_OK);
    rig_smuggle(b, mr_buf_slice(&bytes), id);
    rig_await_count(rig, 1);
    uint64_t seen = op.op.version;
    for (size_t i = 0; i < 3; i++, seen = result.version) {
        struct rig_op change;
        rig_op_put(&change, RIG_TIMER("a", .paused = true), op.id, 0); /* the door makes it */
        change.op.if_version = seen;
        result = rig_send(b, &change.op, MR_TIMER_APPLIED);
        assert_int_equal(result.err, MR_OK);
        assert_int_equal(result.version, seen + 1);
        rig_op_done(&change);
    }
    assert_int_equal(rig_state(rig, "a"), MR_ROW_PAUSED);
    /* To who has not seen it, it is a version of the future. */
    op.op.version = rig_version() + 3 * 1000 * 1000;
    assert_int_equal(rig_send(b, &op.op, MR_TIMER_DURABLE).err, MR_INVALID);
    mr_buf_done(&bytes);
    rig_op_done(&op);
    rig_free(rig);
}

static void test_14_runs_of_one_batch_are_firings_of_their_own(void **state)
{
    enum { RUNS = 3 };
    struct rig *rig = rig_make();
    struct mr_timer_operation ops[RUNS];
    struct mr_timer_result results[RUNS];
    (void)state;
    for (size_t i = 0; i < RUNS; i++) /* all that a client has to say */
        ops[i] = (struct mr_timer_operation){.verb = MR_TIMER_RUN, .name = MR_SLICE_LIT("a")};
    rig_send_all(rig_broker(rig, 0), ops, RUNS, MR_TIMER_APPLIED, results);
    assert_int_equal(rig->acts_n, RUNS);
    for (size_t i = 0; i < RUNS; i++)
        for (size_t j = 0; j < i; j++)
            assert_int_not_equal(rig->acts_ms[i], rig->acts_ms[j]);
    rig_free(rig);
}

static void test_13_creates_at_full_speed_are_applied_in_order_soon_after_the_last(void **state)
{
    enum { NAMES = 100, BATCH = MR_BATCH_MAX };
    struct rig *rig = rig_make();
    struct rig_broker *b = rig_broker(rig, 0);
    size_t batches = rig_full() ? 100 : 8;
    struct rig_op *ops = calloc(BATCH, sizeof *ops);
    struct mr_timer_operation *send = calloc(BATCH, sizeof *send);
    struct mr_timer_result *results = calloc(BATCH, sizeof *results);
    uint64_t last[NAMES] = {0};
    char name[32];
    (void)state;
    for (size_t i = 0; i < batches; i++) {
        for (size_t j = 0; j < BATCH; j++) {
            (void)snprintf(name, sizeof name, "t%zu", j % NAMES);
            rig_op_put(&ops[j], RIG_TIMER(name), NULL, rig_version());
            send[j] = ops[j].op;
            last[j % NAMES] = ops[j].op.version;
        }
        rig_send_all(b, send, BATCH, MR_TIMER_DURABLE, results);
        for (size_t j = 0; j < BATCH; j++) {
            assert_int_equal(results[j].err, MR_OK);
            rig_op_done(&ops[j]);
        }
    }
    mr_mono since = rig_mono();
    rig_await_operations(b, MR_PENDING, 0);
    rig_await_operations(b, MR_ACTIVE, 0);
    assert_true(rig_elapsed_ms(since) < 10000);
    for (size_t i = 0; i < NAMES; i++) {
        struct rig_timer timer;
        (void)snprintf(name, sizeof name, "t%zu", i);
        rig_get(rig, name, &timer);
        assert_int_equal(timer.row.version, last[i]);
        rig_timer_done(&timer);
    }
    assert_int_equal(rig_operations(b, MR_ARCHIVED), 0);
    free(ops);
    free(send);
    free(results);
    rig_free(rig);
}

/* What the store takes at once has a limit, and memory too. */
static void test_13_big_definitions_are_applied_some_at_a_time(void **state)
{
    enum { N = 20, MIB = 1024 * 1024 - 64 };
    struct rig *rig = rig_make_idle();
    char *payload = calloc(1, MIB), name[32];
    (void)state;
    for (size_t i = 0; i < N; i++) {
        struct rig_op op;
        (void)snprintf(name, sizeof name, "t%zu", i);
        rig_op_put(&op, RIG_TIMER(name, .payload = mr_slice_make(payload, MIB)), NULL,
                   rig_version());
        assert_int_equal(rig_send(rig_broker(rig, 0), &op.op, MR_TIMER_DURABLE).err, MR_OK);
        rig_op_done(&op);
    }
    rig_apply(rig_broker(rig, 0));
    rig_await_count(rig, N);
    rig_no_apply(rig_broker(rig, 0));
    assert_true(rig->changes_n >= 2); /* told with each transaction */
    free(payload);
    rig_free(rig);
}

static void test_14_who_waits_gets_what_was_applied_and_not_only_stored(void **state)
{
    struct rig *rig = rig_make();
    struct rig_broker *b = rig_broker(rig, 0);
    struct rig_op op;
    (void)state;
    struct mr_timer_result first = rig_put(b, RIG_TIMER("a"));
    assert_int_equal(rig_state(rig, "a"), MR_ROW_ACTIVE);
    rig_op_put(&op, RIG_TIMER("a", .paused = true), first.id, rig_version());
    op.op.if_version = first.version + 1;
    struct mr_timer_result result = rig_send(b, &op.op, MR_TIMER_APPLIED);
    assert_int_equal(result.err, MR_CONFLICT);
    assert_int_equal(result.version, first.version);
    assert_int_equal(rig_state(rig, "a"), MR_ROW_ACTIVE);
    rig_op_done(&op);
    rig_op_put(&op, RIG_TIMER("a", .paused = true), first.id, rig_version());
    op.op.if_version = first.version;
    assert_int_equal(rig_send(b, &op.op, MR_TIMER_APPLIED).err, MR_OK);
    assert_int_equal(rig_state(rig, "a"), MR_ROW_PAUSED);
    rig_op_done(&op);
    rig_op_do(&op, MR_TIMER_RUN, "a", rig_version());
    assert_int_equal(rig_send(b, &op.op, MR_TIMER_APPLIED).err, MR_OK);
    assert_int_equal(rig->acts_n, 1);
    rig_free(rig);
}

static void test_15_a_batch_with_an_invalid_create_reports_each_of_them(void **state)
{
    enum { BAD = 499 };
    struct rig *rig = rig_make();
    struct rig_op *ops = calloc(MR_BATCH_MAX, sizeof *ops);
    struct mr_timer_operation *send = calloc(MR_BATCH_MAX, sizeof *send);
    struct mr_timer_result *results = calloc(MR_BATCH_MAX, sizeof *results);
    char name[32];
    (void)state;
    for (size_t i = 0; i < MR_BATCH_MAX; i++) {
        (void)snprintf(name, sizeof name, "t%zu", i);
        rig_op_put(&ops[i], RIG_RULE(name, MR_TIMER_CRON, i == BAD ? "61 * * * *" : "0 * * * *"),
                   NULL, rig_version());
        send[i] = ops[i].op;
    }
    rig_send_all(rig_broker(rig, 0), send, MR_BATCH_MAX, MR_TIMER_APPLIED, results);
    for (size_t i = 0; i < MR_BATCH_MAX; i++) {
        assert_int_equal(results[i].err, i == BAD ? MR_INVALID : MR_OK);
        assert_true((results[i].why[0] != '\0') == (i == BAD));
        rig_op_done(&ops[i]);
    }
    assert_int_equal(rig_count(rig), MR_BATCH_MAX - 1);
    free(ops);
    free(send);
    free(results);
    rig_free(rig);
}

int timers_operations(void)
{
    struct CMUnitTest tests[] = {
        cmocka_unit_test(test_06_a_second_delete_and_one_of_an_unknown_timer_are_no_dead_letters),
        cmocka_unit_test(test_07_the_highest_version_wins_in_whatever_order_through_three_servers),
        cmocka_unit_test(test_08_a_create_that_three_servers_get_makes_one_timer),
        cmocka_unit_test(test_09_an_update_that_comes_before_its_create_stays),
        cmocka_unit_test(
            test_10_what_is_invalid_is_rejected_at_once_or_a_dead_letter_with_its_reason),
        cmocka_unit_test(test_10_a_version_of_the_future_is_refused),
        cmocka_unit_test(test_10_what_a_server_has_accepted_is_no_future_to_another),
        cmocka_unit_test(test_07_a_change_follows_what_was_seen_whatever_the_clocks_say),
        cmocka_unit_test(test_14_runs_of_one_batch_are_firings_of_their_own),
        cmocka_unit_test(test_13_creates_at_full_speed_are_applied_in_order_soon_after_the_last),
        cmocka_unit_test(test_13_big_definitions_are_applied_some_at_a_time),
        cmocka_unit_test(test_14_who_waits_gets_what_was_applied_and_not_only_stored),
        cmocka_unit_test(test_15_a_batch_with_an_invalid_create_reports_each_of_them),
    };
    return TIMERS_RUN("operations", tests);
}
