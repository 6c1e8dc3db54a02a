/* SPDX-License-Identifier: Apache-2.0 */
/* The oracle accepts what may happen and names what may not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "sim/oracle_int.h"

/* A store as the oracle may see it: at most a few tasks in one queue. */
struct shown {
    struct mr_task tasks[4];
    uint8_t payloads[4][64];
    size_t n;
    struct mr_queue_info queue;
};

static void show(struct shown *shown, struct oracle *oracle, uint32_t token, enum mr_state state)
{
    oracle_task(oracle, token, shown->payloads[shown->n], &shown->tasks[shown->n]);
    shown->tasks[shown->n].state = state;
    shown->n++;
    shown->queue.counts[state]++;
}

static void check(struct oracle *oracle, struct shown *shown)
{
    memcpy(shown->queue.name, "q", 2);
    if (shown->queue.partitions == 0)
        shown->queue.partitions = 1;
    struct oracle_view view = {shown->tasks, shown->n, &shown->queue, 1, NULL};
    oracle_check(oracle, &view);
}

static uint32_t new_task(struct oracle *oracle, struct oracle_spec spec)
{
    memcpy(spec.queue, "q", 2);
    memcpy(spec.type, "t", 2);
    spec.payload_len = 16;
    uint32_t token = oracle_count(oracle);
    spec.id[0] = 't';
    spec.id[1] = '-';
    spec.id[2] = (char)('0' + token);
    return oracle_add(oracle, &spec);
}

static struct mr_enqueue_result result_of(struct oracle *oracle, uint32_t token, enum mr_err err)
{
    struct mr_enqueue_result result = {.err = err, .state = MR_PENDING};
    memcpy(result.id, oracle_id(oracle, token), sizeof result.id);
    return result;
}

static uint32_t acked(struct oracle *oracle, struct oracle_spec spec)
{
    uint32_t token = new_task(oracle, spec);
    struct oracle_op op;
    oracle_enqueue_sent(oracle, token, &op);
    struct mr_enqueue_result result = result_of(oracle, token, MR_OK);
    oracle_enqueue_answered(oracle, &op, MR_OK, &result);
    return token;
}

static void lease(struct oracle *oracle, uint32_t token, uint64_t epoch, uint32_t crashes)
{
    struct shown shown = {0};
    show(&shown, oracle, token, MR_ACTIVE);
    struct mr_lease *lease = calloc(1, sizeof *lease);
    assert_non_null(lease);
    lease->epoch = epoch;
    lease->task = shown.tasks[0];
    lease->task.crashes = crashes;
    lease->task.attempt = 1 + crashes;
    oracle_leased(oracle, lease);
    free(lease);
}

static void finish(struct oracle *oracle, uint32_t token, uint64_t epoch, enum mr_outcome outcome,
                   enum mr_err err)
{
    struct mr_finish item = {.epoch = epoch, .outcome = outcome};
    struct oracle_op op;
    oracle_finish_sent(oracle, token, &item, false, &op);
    oracle_finish_answered(oracle, &op, err);
}

#define assert_fine(oracle) assert_null(oracle_error(oracle))
#define assert_caught(oracle, word)                                                                \
    do {                                                                                           \
        assert_non_null(oracle_error(oracle));                                                     \
        assert_non_null(strstr(oracle_error(oracle), word));                                       \
    } while (0)

static void a_whole_life_is_fine(void **state)
{
    (void)state;
    struct oracle *oracle = oracle_new();
    struct shown shown = {0};
    uint32_t token = acked(oracle, (struct oracle_spec){0});
    show(&shown, oracle, token, MR_PENDING);
    check(oracle, &shown);
    lease(oracle, token, 10, 0);
    oracle_begun(oracle, token, 10);
    oracle_crashed(oracle, ORACLE_KILLED);
    lease(oracle, token, 11, 1);
    finish(oracle, token, 10, MR_DONE, MR_STALE);
    finish(oracle, token, 11, MR_DONE, MR_OK);
    check(oracle, &(struct shown){0});
    assert_fine(oracle);
    oracle_free(oracle);
}

static void a_lost_acknowledged_task_is_caught(void **state)
{
    (void)state;
    struct oracle *oracle = oracle_new();
    acked(oracle, (struct oracle_spec){0});
    oracle_crashed(oracle, ORACLE_POWER_CUT);
    check(oracle, &(struct shown){0});
    assert_caught(oracle, "lost");
    oracle_free(oracle);
}

static void an_unanswered_enqueue_may_be_there_or_not(void **state)
{
    (void)state;
    for (int there = 0; there < 2; there++) {
        struct oracle *oracle = oracle_new();
        uint32_t token = new_task(oracle, (struct oracle_spec){0});
        struct oracle_op op;
        oracle_enqueue_sent(oracle, token, &op);
        oracle_crashed(oracle, ORACLE_POWER_CUT);
        struct shown shown = {0};
        if (there)
            show(&shown, oracle, token, MR_PENDING);
        check(oracle, &shown);
        assert_fine(oracle);
        /* What was seen once stays so. */
        oracle_crashed(oracle, ORACLE_POWER_CUT);
        struct shown other = {0};
        if (!there)
            show(&other, oracle, token, MR_PENDING);
        check(oracle, &other);
        assert_caught(oracle, there ? "lost" : "ghost");
        oracle_free(oracle);
    }
}

static void a_task_that_comes_back_is_caught(void **state)
{
    (void)state;
    struct oracle *oracle = oracle_new();
    uint32_t token = acked(oracle, (struct oracle_spec){0});
    lease(oracle, token, 5, 0);
    finish(oracle, token, 5, MR_DONE, MR_OK);
    struct shown shown = {0};
    show(&shown, oracle, token, MR_PENDING);
    check(oracle, &shown);
    assert_caught(oracle, "ghost");
    oracle_free(oracle);
}

static void a_task_nobody_asked_for_is_caught(void **state)
{
    (void)state;
    struct oracle *oracle = oracle_new();
    struct oracle *other = oracle_new();
    uint32_t token = acked(other, (struct oracle_spec){0});
    struct shown shown = {0};
    show(&shown, other, token, MR_PENDING);
    check(oracle, &shown);
    assert_caught(oracle, "nobody asked");
    oracle_free(other);
    oracle_free(oracle);
}

static void an_outcome_of_an_old_epoch_is_caught(void **state)
{
    (void)state;
    struct oracle *oracle = oracle_new();
    uint32_t token = acked(oracle, (struct oracle_spec){0});
    lease(oracle, token, 5, 0);
    lease(oracle, token, 6, 0);
    assert_fine(oracle);
    finish(oracle, token, 5, MR_DONE, MR_OK);
    assert_caught(oracle, "old epoch");
    oracle_free(oracle);
}

static void two_outcomes_of_one_epoch_are_caught(void **state)
{
    (void)state;
    struct oracle *oracle = oracle_new();
    uint32_t token = acked(oracle, (struct oracle_spec){0});
    lease(oracle, token, 5, 0);
    finish(oracle, token, 5, MR_HAND_BACK, MR_OK);
    finish(oracle, token, 5, MR_DONE, MR_OK);
    assert_caught(oracle, "second outcome");
    oracle_free(oracle);
}

static void an_epoch_that_repeats_after_a_restart_is_caught(void **state)
{
    (void)state;
    struct oracle *oracle = oracle_new();
    uint32_t a = acked(oracle, (struct oracle_spec){0});
    uint32_t b = acked(oracle, (struct oracle_spec){0});
    lease(oracle, a, 5, 0);
    oracle_crashed(oracle, ORACLE_POWER_CUT);
    lease(oracle, b, 5, 0);
    assert_caught(oracle, "not above");
    oracle_free(oracle);
}

static void a_crash_that_counts_as_failure_is_caught(void **state)
{
    (void)state;
    struct oracle *oracle = oracle_new();
    uint32_t token = acked(oracle, (struct oracle_spec){0});
    lease(oracle, token, 5, 0);
    oracle_begun(oracle, token, 5);
    oracle_crashed(oracle, ORACLE_KILLED);
    struct shown shown = {0};
    show(&shown, oracle, token, MR_PENDING);
    shown.tasks[0].crashes = 1;
    shown.tasks[0].retried = 1;
    check(oracle, &shown);
    assert_caught(oracle, "failures shown");
    oracle_free(oracle);
}

static void a_crash_of_a_run_that_never_began_is_caught(void **state)
{
    (void)state;
    struct oracle *oracle = oracle_new();
    uint32_t token = acked(oracle, (struct oracle_spec){0});
    lease(oracle, token, 5, 0);
    oracle_crashed(oracle, ORACLE_KILLED);
    struct shown shown = {0};
    show(&shown, oracle, token, MR_PENDING);
    shown.tasks[0].crashes = 1;
    check(oracle, &shown);
    assert_caught(oracle, "crashes shown");
    oracle_free(oracle);
}

static void two_holders_of_a_unique_key_are_caught(void **state)
{
    (void)state;
    struct oracle *oracle = oracle_new();
    acked(oracle, (struct oracle_spec){.unique = 1, .unique_forever = true});
    assert_fine(oracle);
    acked(oracle, (struct oracle_spec){.unique = 1, .unique_forever = true});
    assert_caught(oracle, "unique");
    oracle_free(oracle);
}

static void a_key_that_outlives_its_task_is_caught(void **state)
{
    (void)state;
    struct oracle *oracle = oracle_new();
    struct oracle_spec spec = {.unique = 1, .unique_forever = true};
    uint32_t first = acked(oracle, spec);
    lease(oracle, first, 5, 0);
    finish(oracle, first, 5, MR_DROP, MR_OK);
    uint32_t second = new_task(oracle, spec);
    struct oracle_op op;
    oracle_enqueue_sent(oracle, second, &op);
    struct mr_enqueue_result result = result_of(oracle, second, MR_DUPLICATE);
    oracle_enqueue_answered(oracle, &op, MR_OK, &result);
    assert_caught(oracle, "nobody can hold");
    oracle_free(oracle);
}

static void a_second_task_of_the_same_id_is_caught(void **state)
{
    (void)state;
    struct oracle *oracle = oracle_new();
    uint32_t token = acked(oracle, (struct oracle_spec){0});
    struct oracle_op op;
    oracle_enqueue_sent(oracle, token, &op);
    struct mr_enqueue_result result = result_of(oracle, token, MR_OK);
    oracle_enqueue_answered(oracle, &op, MR_OK, &result);
    assert_caught(oracle, "although the task exists");
    oracle_free(oracle);
}

static void a_changed_payload_is_caught(void **state)
{
    (void)state;
    struct oracle *oracle = oracle_new();
    uint32_t token = acked(oracle, (struct oracle_spec){0});
    struct shown shown = {0};
    show(&shown, oracle, token, MR_PENDING);
    shown.payloads[0][12] ^= 4;
    check(oracle, &shown);
    assert_caught(oracle, "payload");
    oracle_free(oracle);
}

static void changed_headers_and_settings_are_caught(void **state)
{
    (void)state;
    static const struct mr_header other = {{"trace", 5}, {"00-4bf92f3577b34da7", 19}};
    for (int which = 0; which < 3; which++) {
        struct oracle *oracle = oracle_new();
        uint32_t token = acked(oracle, (struct oracle_spec){.headers = 1, .retention_ms = 70});
        struct shown shown = {0};
        show(&shown, oracle, token, MR_PENDING);
        struct shown right = shown;
        check(oracle, &right);
        assert_fine(oracle);
        if (which == 0)
            shown.tasks[0].headers = &other;
        else if (which == 1)
            shown.tasks[0].retention_ms++;
        else
            shown.tasks[0].topic = mr_slice_str("outcome");
        check(oracle, &shown);
        assert_caught(oracle, "differs from what was sent");
        oracle_free(oracle);
    }
}

/* A finish that leaves a text behind. */
static void finish_with(struct oracle *oracle, uint32_t token, uint64_t epoch, enum mr_outcome how,
                        char text[64])
{
    oracle_note(token, epoch, 64, text);
    struct mr_finish item = {.epoch = epoch, .outcome = how};
    *(how == MR_DONE ? &item.result : &item.error) = mr_slice_make(text, 64);
    struct oracle_op op;
    oracle_finish_sent(oracle, token, &item, false, &op);
    oracle_finish_answered(oracle, &op, MR_OK);
}

static void a_changed_lost_or_foreign_result_is_caught(void **state)
{
    (void)state;
    for (int wrong = 0; wrong < 4; wrong++) {
        struct oracle *oracle = oracle_new();
        uint32_t token = acked(oracle, (struct oracle_spec){.retention_ms = 1000000});
        char text[64];
        lease(oracle, token, 5, 0);
        finish_with(oracle, token, 5, MR_DONE, text);
        struct shown shown = {0};
        show(&shown, oracle, token, MR_COMPLETED);
        if (wrong == 1)
            text[40] ^= 1;
        if (wrong == 2)
            oracle_note(token, 4, 64, text);
        shown.tasks[0].result = mr_slice_make(text, wrong == 3 ? 0 : 64);
        check(oracle, &shown);
        if (wrong)
            assert_caught(oracle, "result");
        else
            assert_fine(oracle);
        oracle_free(oracle);
    }
}

static void a_changed_or_lost_error_is_caught(void **state)
{
    (void)state;
    for (int wrong = 0; wrong < 3; wrong++) {
        struct oracle *oracle = oracle_new();
        uint32_t token = acked(oracle, (struct oracle_spec){0});
        char text[64];
        lease(oracle, token, 5, 0);
        finish_with(oracle, token, 5, MR_FAIL, text);
        oracle_crashed(oracle, ORACLE_POWER_CUT);
        struct shown shown = {0};
        show(&shown, oracle, token, MR_RETRY);
        if (wrong == 1)
            text[40] ^= 1;
        shown.tasks[0].retried = 1;
        shown.tasks[0].last_error = mr_slice_make(text, wrong == 2 ? 0 : 64);
        check(oracle, &shown);
        if (wrong)
            assert_caught(oracle, "error");
        else
            assert_fine(oracle);
        oracle_free(oracle);
    }
}

static void a_removal_answered_behind_a_new_life_is_fine(void **state)
{
    (void)state;
    struct oracle *oracle = oracle_new();
    uint32_t token = acked(oracle, (struct oracle_spec){0});
    struct oracle_op removal, again;
    oracle_remove_sent(oracle, "q", &removal);
    oracle_enqueue_sent(oracle, token, &again);
    lease(oracle, token, 5, 0);
    oracle_remove_answered(oracle, "q", &removal, MR_OK);
    struct mr_enqueue_result result = result_of(oracle, token, MR_OK);
    oracle_enqueue_answered(oracle, &again, MR_OK, &result);
    struct shown shown = {0};
    show(&shown, oracle, token, MR_ACTIVE);
    check(oracle, &shown);
    assert_fine(oracle);
    oracle_free(oracle);
}

static void a_stopped_store_that_hides_a_task_is_caught(void **state)
{
    (void)state;
    struct oracle *oracle = oracle_new();
    acked(oracle, (struct oracle_spec){0});
    uint32_t failed = acked(oracle, (struct oracle_spec){0});
    lease(oracle, failed, 5, 0);
    finish(oracle, failed, 5, MR_FAIL, MR_IO);
    struct shown shown = {0};
    show(&shown, oracle, 0, MR_PENDING);
    struct oracle_view view = {shown.tasks, shown.n, &shown.queue, 1, NULL};
    oracle_check_stopped(oracle, &view);
    assert_fine(oracle);
    view.tasks_n = 0;
    oracle_check_stopped(oracle, &view);
    assert_caught(oracle, "not shown");
    oracle_free(oracle);
}

static void more_tasks_hit_than_reads_failed_are_caught(void **state)
{
    (void)state;
    struct oracle *oracle = oracle_new();
    for (int i = 0; i < 3; i++)
        acked(oracle, (struct oracle_spec){0});
    oracle_reads_fail(oracle, 1);
    struct shown shown = {0};
    for (uint32_t i = 0; i < 3; i++)
        show(&shown, oracle, i, i == 0 ? MR_ARCHIVED : MR_PENDING);
    check(oracle, &shown);
    assert_fine(oracle);
    struct shown other = {0};
    for (uint32_t i = 0; i < 3; i++)
        show(&other, oracle, i, i < 2 ? MR_ARCHIVED : MR_PENDING);
    check(oracle, &other);
    assert_caught(oracle, "by themselves");
    oracle_free(oracle);
}

static void a_failed_read_that_takes_others_along_is_caught(void **state)
{
    (void)state;
    for (size_t listed = 1; listed <= 2; listed++) {
        struct oracle *oracle = oracle_new();
        acked(oracle, (struct oracle_spec){0});
        acked(oracle, (struct oracle_spec){0});
        oracle_reads_fail(oracle, 1);
        struct shown shown = {0};
        for (uint32_t i = 0; i < listed; i++)
            show(&shown, oracle, i, MR_PENDING);
        shown.tasks[0].type.len = 0; /* shown as damaged */
        shown.tasks[0].id = mr_slice_str("5f1c");
        shown.tasks[0].payload.len = 0;
        check(oracle, &shown);
        if (listed == 1)
            assert_caught(oracle, "lost");
        else
            assert_fine(oracle);
        oracle_free(oracle);
    }
}

static void a_copy_is_judged_by_what_was_known_before_it(void **state)
{
    (void)state;
    for (int lost = 0; lost < 2; lost++) {
        struct oracle *oracle = oracle_new();
        uint32_t old = acked(oracle, (struct oracle_spec){0});
        uint32_t ended = acked(oracle, (struct oracle_spec){0});
        struct oracle *before = oracle_clone(oracle);
        lease(oracle, ended, 5, 0);
        finish(oracle, ended, 5, MR_DONE, MR_OK);
        acked(oracle, (struct oracle_spec){0});
        oracle_forget_since(oracle, before);
        struct shown shown = {0};
        show(&shown, oracle, lost ? ended : old, MR_PENDING);
        if (!lost)
            show(&shown, oracle, ended, MR_ACTIVE); /* the copy is of that moment */
        check(oracle, &shown);
        if (lost)
            assert_caught(oracle, "lost");
        else
            assert_fine(oracle);
        oracle_free(before);
        oracle_free(oracle);
    }
}

static void a_counter_that_is_off_is_caught(void **state)
{
    (void)state;
    struct oracle *oracle = oracle_new();
    uint32_t token = acked(oracle, (struct oracle_spec){0});
    struct shown shown = {0};
    show(&shown, oracle, token, MR_PENDING);
    shown.queue.counts[MR_PENDING]++;
    check(oracle, &shown);
    assert_caught(oracle, "counts");
    oracle_free(oracle);
}

static void a_later_task_before_an_earlier_one_is_caught(void **state)
{
    (void)state;
    struct oracle *oracle = oracle_new();
    uint32_t first = acked(oracle, (struct oracle_spec){0});
    uint32_t second = acked(oracle, (struct oracle_spec){0});
    lease(oracle, second, 5, 0);
    assert_fine(oracle);
    lease(oracle, first, 6, 0);
    assert_caught(oracle, "order");
    oracle_free(oracle);
}

static void a_lower_priority_before_a_higher_one_is_caught(void **state)
{
    (void)state;
    struct oracle *oracle = oracle_new();
    oracle_time(oracle, 100000);
    uint32_t low = acked(oracle, (struct oracle_spec){.priority_s = -10});
    acked(oracle, (struct oracle_spec){.priority_s = 10});
    lease(oracle, low, 5, 0);
    assert_caught(oracle, "order");
    oracle_free(oracle);
}

static void the_order_holds_across_a_jump_of_the_clock(void **state)
{
    (void)state;
    for (int wrong = 0; wrong < 2; wrong++) {
        struct oracle *oracle = oracle_new();
        oracle_time(oracle, 900000);
        uint32_t late = acked(oracle, (struct oracle_spec){0});
        oracle_clock_jumped(oracle);
        oracle_time(oracle, 100000);
        uint32_t early = acked(oracle, (struct oracle_spec){0});
        lease(oracle, wrong ? late : early, 5, 0);
        lease(oracle, wrong ? early : late, 6, 0);
        if (wrong)
            assert_caught(oracle, "order");
        else
            assert_fine(oracle);
        oracle_free(oracle);
    }
}

static void the_order_holds_behind_a_jump_of_the_clock(void **state)
{
    (void)state;
    struct oracle *oracle = oracle_new();
    oracle_time(oracle, 900000);
    oracle_clock_jumped(oracle);
    oracle_time(oracle, 100000);
    uint32_t first = acked(oracle, (struct oracle_spec){0});
    uint32_t second = acked(oracle, (struct oracle_spec){0});
    lease(oracle, second, 5, 0);
    assert_fine(oracle);
    lease(oracle, first, 6, 0);
    assert_caught(oracle, "order");
    oracle_free(oracle);
}

static void what_is_due_stays_so_when_the_clock_is_set_back(void **state)
{
    (void)state;
    for (int64_t reached_ms = 1499; reached_ms <= 1500; reached_ms++) {
        struct oracle *oracle = oracle_new();
        oracle_time(oracle, 1000);
        uint32_t token = acked(oracle, (struct oracle_spec){.delay_ms = 500});
        oracle_time(oracle, reached_ms);
        oracle_clock_jumped(oracle);
        oracle_time(oracle, 200);
        lease(oracle, token, 5, 0);
        if (reached_ms < 1500)
            assert_caught(oracle, "early");
        else
            assert_fine(oracle);
        oracle_free(oracle);
    }
}

/* A queue of n partitions with a task in the second one. */
static uint32_t split_and_put(struct oracle *oracle, uint32_t n)
{
    oracle_split_sent(oracle, "q");
    oracle_split_answered(oracle, "q", n, MR_OK);
    return acked(oracle, (struct oracle_spec){.partition = 2});
}

static void a_task_in_another_partition_and_partitions_that_change_are_caught(void **state)
{
    (void)state;
    for (uint32_t n = 2; n <= 4; n++)
        for (uint32_t part = 1; part <= 2; part++) {
            struct oracle *oracle = oracle_new();
            struct shown shown = {.queue.partitions = n};
            show(&shown, oracle, split_and_put(oracle, 3), MR_PENDING);
            shown.tasks[0].partition = part;
            check(oracle, &shown);
            if (n == 3 && part == 2)
                assert_fine(oracle);
            else
                assert_caught(oracle, part != 2 ? "and was in 2" : "3 were set");
            oracle_free(oracle);
        }
}

/* Fewer of them move what is in the others. */
static void a_task_may_move_while_the_partitions_change(void **state)
{
    (void)state;
    struct oracle *oracle = oracle_new();
    uint32_t token = split_and_put(oracle, 3);
    for (uint32_t n = 3; n >= 1; n--) {
        struct shown shown = {.queue.partitions = n};
        oracle_split_sent(oracle, "q");
        oracle_split_answered(oracle, "q", n, MR_OK);
        show(&shown, oracle, token, MR_PENDING);
        shown.tasks[0].partition = n > 1 ? 2 : 1;
        check(oracle, &shown);
        assert_fine(oracle);
    }
    oracle_free(oracle);
}

static void a_task_from_a_paused_queue_is_caught(void **state)
{
    (void)state;
    struct oracle *oracle = oracle_new();
    uint32_t token = acked(oracle, (struct oracle_spec){0});
    oracle_pause_sent(oracle, "q");
    oracle_pause_answered(oracle, "q", true, MR_OK);
    lease(oracle, token, 5, 0);
    assert_caught(oracle, "paused");
    oracle_free(oracle);
}

static void an_early_task_is_caught(void **state)
{
    (void)state;
    struct oracle *oracle = oracle_new();
    oracle_time(oracle, 1000);
    uint32_t token = acked(oracle, (struct oracle_spec){.delay_ms = 500});
    oracle_time(oracle, 1499);
    lease(oracle, token, 5, 0);
    assert_caught(oracle, "early");
    oracle_free(oracle);
}

static void a_poison_task_that_goes_on_is_caught(void **state)
{
    (void)state;
    struct oracle *oracle = oracle_new();
    uint32_t token = acked(oracle, (struct oracle_spec){0});
    for (uint32_t i = 0; i < MR_CRASHES_MAX; i++) {
        lease(oracle, token, 5 + i, i);
        oracle_begun(oracle, token, 5 + i);
        oracle_crashed(oracle, ORACLE_KILLED);
    }
    assert_fine(oracle);
    struct shown shown = {0};
    show(&shown, oracle, token, MR_PENDING);
    shown.tasks[0].crashes = MR_CRASHES_MAX;
    check(oracle, &shown);
    assert_caught(oracle, "quarantined");
    oracle_free(oracle);
}

static void a_task_whose_request_failed_is_not_settled(void **state)
{
    (void)state;
    static const struct oracle_spec kept = {.retention_ms = 1000000};
    struct oracle *oracle = oracle_new();
    uint32_t quiet = acked(oracle, kept), failed = acked(oracle, kept);
    lease(oracle, failed, 5, 0);
    finish(oracle, failed, 5, MR_FAIL, MR_IO);
    assert_true(oracle_is_settled(oracle, quiet));
    assert_false(oracle_is_settled(oracle, failed));
    uint32_t completed = acked(oracle, kept);
    lease(oracle, completed, 6, 0);
    finish(oracle, completed, 6, MR_DONE, MR_IO);
    oracle_crashed(oracle, ORACLE_POWER_CUT);
    assert_false(oracle_is_settled(oracle, completed));
    struct shown shown = {0};
    show(&shown, oracle, quiet, MR_PENDING);
    show(&shown, oracle, failed, MR_PENDING);
    show(&shown, oracle, completed, MR_COMPLETED);
    check(oracle, &shown);
    assert_fine(oracle);
    assert_true(oracle_is_settled(oracle, completed));
    oracle_free(oracle);
}

static void a_holder_that_a_failed_enqueue_may_have_moved_is_not_settled(void **state)
{
    (void)state;
    static const struct oracle_spec keyed = {.unique = 1, .unique_forever = true};
    struct oracle *oracle = oracle_new();
    uint32_t holder = acked(oracle, keyed), other = new_task(oracle, keyed);
    assert_true(oracle_is_settled(oracle, holder));
    struct oracle_op op;
    oracle_enqueue_sent(oracle, other, &op);
    struct mr_enqueue_result result = result_of(oracle, other, MR_IO);
    oracle_enqueue_answered(oracle, &op, MR_OK, &result);
    assert_false(oracle_is_settled(oracle, holder));
    assert_fine(oracle);
    oracle_free(oracle);
}

static void a_control_answered_behind_a_later_lease_leaves_both_fates(void **state)
{
    (void)state;
    for (int archived = 0; archived < 2; archived++) {
        struct oracle *oracle = oracle_new();
        uint32_t token = acked(oracle, (struct oracle_spec){0});
        struct oracle_op op;
        oracle_control_sent(oracle, token, MR_VERB_ARCHIVE, &op);
        lease(oracle, token, 5, 0);
        oracle_control_answered(oracle, &op, MR_OK);
        struct shown shown = {0};
        show(&shown, oracle, token, archived ? MR_ARCHIVED : MR_ACTIVE);
        check(oracle, &shown);
        assert_fine(oracle);
        oracle_free(oracle);
    }
}

/* Two controls beside each other: it ran, then it was moved, and who waited for its end heard first. */
static void an_end_heard_before_the_answer_that_it_runs_is_fine(void **state)
{
    (void)state;
    struct oracle *oracle = oracle_new();
    struct oracle_op run, moved;
    struct shown shown = {0};
    uint32_t token = acked(oracle, (struct oracle_spec){0});
    oracle_control_sent(oracle, token, MR_VERB_RUN, &run);
    oracle_control_sent(oracle, token, MR_VERB_MOVED, &moved);
    show(&shown, oracle, token, MR_COMPLETED);
    oracle_awaited(oracle, token, oracle_version(oracle, token), MR_OK, &shown.tasks[0]);
    oracle_control_answered(oracle, &run, MR_OK);
    oracle_control_answered(oracle, &moved, MR_OK);
    assert_fine(oracle);
    /* But not once it had ended before it was asked for. */
    oracle_control_sent(oracle, token, MR_VERB_RUN, &run);
    oracle_control_answered(oracle, &run, MR_OK);
    assert_caught(oracle, "made to run after its end");
    oracle_free(oracle);
}

static void a_member_that_is_handed_out_is_caught(void **state)
{
    (void)state;
    struct oracle *oracle = oracle_new();
    uint32_t member = acked(oracle, (struct oracle_spec){.group = 1});
    lease(oracle, member, 5, 0);
    assert_caught(oracle, "from its group");
    oracle_free(oracle);
}

/* After a crash: both members or the task, and nothing else. */
static void a_set_that_half_became_a_task_is_caught(void **state)
{
    (void)state;
    for (unsigned there = 0; there < 8; there++) {
        static const struct oracle_spec grouped = {.group = 2};
        struct oracle *oracle = oracle_new();
        struct oracle_gathered gathered = {.n = 2};
        struct shown shown = {0};
        gathered.members[0] = acked(oracle, grouped);
        gathered.members[1] = acked(oracle, grouped);
        gathered.made = new_task(oracle, (struct oracle_spec){0});
        oracle_gathered_sent(oracle, &gathered);
        oracle_crashed(oracle, ORACLE_POWER_CUT);
        for (unsigned i = 0; i < 2; i++)
            if (there & 1u << i)
                show(&shown, oracle, gathered.members[i], MR_AGGREGATING);
        if (there & 4)
            show(&shown, oracle, gathered.made, MR_PENDING);
        check(oracle, &shown);
        if (there == 3 || there == 4)
            assert_fine(oracle);
        else
            assert_caught(oracle, "both");
        oracle_free(oracle);
    }
}

static void members_that_come_back_behind_the_answer_are_caught(void **state)
{
    (void)state;
    struct oracle *oracle = oracle_new();
    struct oracle_gathered gathered = {.n = 1};
    struct shown shown = {0};
    gathered.members[0] = acked(oracle, (struct oracle_spec){.group = 3});
    gathered.made = new_task(oracle, (struct oracle_spec){0});
    oracle_gathered_sent(oracle, &gathered);
    struct mr_enqueue_result result = result_of(oracle, gathered.made, MR_OK);
    oracle_gathered_answered(oracle, &gathered, MR_OK, &result);
    show(&shown, oracle, gathered.made, MR_PENDING);
    check(oracle, &shown);
    assert_fine(oracle);
    show(&shown, oracle, gathered.members[0], MR_AGGREGATING);
    check(oracle, &shown);
    assert_caught(oracle, "ghost");
    oracle_free(oracle);
}

/* The result that the run under this epoch left, handed out. */
static struct result_row *see_result(struct oracle *oracle, uint32_t token, uint64_t epoch,
                                     enum mr_result_outcome outcome)
{
    static struct mr_lease lease;
    static char id[MR_UUID_TEXT_LEN + 1];
    struct mr_buf bytes = {0};
    struct mr_result result = {.task_id = mr_slice_str(oracle_id(oracle, token)),
                               .queue = MR_SLICE_LIT("q"),
                               .type = MR_SLICE_LIT("t"),
                               .topic = MR_SLICE_LIT("outcomes"),
                               .outcome = outcome,
                               .attempt = 1};
    struct mr_uuid uuid = mr_result_id(result.task_id, epoch);
    mr_uuid_format(&uuid, id);
    assert_int_equal(mr_result_encode(&result, &bytes), MR_OK);
    lease.task = (struct mr_task){.id = mr_slice_str(id), .payload = mr_buf_slice(&bytes)};
    struct result_row *row = oracle_result(oracle, &lease);
    mr_buf_done(&bytes);
    return row;
}

static void a_result_that_is_lost_doubled_or_of_nobody_is_caught(void **state)
{
    (void)state;
    for (int wrong = 0; wrong < 5; wrong++) {
        struct oracle *oracle = oracle_new();
        uint32_t token = acked(oracle, (struct oracle_spec){.headers = 1});
        lease(oracle, token, 100, 0);
        finish(oracle, token, 100, MR_DONE, MR_OK);
        oracle_results_begin(oracle);
        if (wrong != 1)
            see_result(oracle, token, 100, wrong == 4 ? MR_RESULT_LOST : MR_RESULT_OK);
        if (wrong == 2)
            see_result(oracle, token, 100, MR_RESULT_OK);
        if (wrong == 3)
            see_result(oracle, token, 99, MR_RESULT_OK);
        oracle_results_end(oracle);
        static const char *const words[] = {NULL, "is lost", "two results", "ghost", "left the"};
        if (wrong == 0)
            assert_fine(oracle);
        else
            assert_caught(oracle, words[wrong]);
        oracle_free(oracle);
    }
}

static void a_committed_result_that_comes_again_is_caught(void **state)
{
    (void)state;
    struct oracle *oracle = oracle_new();
    uint32_t token = acked(oracle, (struct oracle_spec){.headers = 1});
    lease(oracle, token, 100, 0);
    finish(oracle, token, 100, MR_FAIL_FOR_GOOD, MR_OK);
    struct result_row *row = see_result(oracle, token, 100, MR_RESULT_ERROR);
    assert_non_null(row);
    oracle_commit_sent(row);
    oracle_committed(oracle, row, MR_OK);
    oracle_results_begin(oracle);
    oracle_results_end(oracle);
    assert_fine(oracle);
    see_result(oracle, token, 100, MR_RESULT_ERROR);
    assert_caught(oracle, "comes again");
    oracle_free(oracle);
}

/* The finish was on its way when the power went, and was lost with it; then its queue was removed. */
static void a_task_that_was_removed_after_the_crash_left_no_result(void **state)
{
    (void)state;
    struct oracle *oracle = oracle_new();
    uint32_t token = acked(oracle, (struct oracle_spec){.headers = 1});
    struct mr_finish item = {.epoch = 100, .outcome = MR_DONE};
    struct oracle_op op, removal;
    lease(oracle, token, 100, 0);
    oracle_finish_sent(oracle, token, &item, false, &op);
    oracle_crashed(oracle, ORACLE_POWER_CUT);
    oracle_remove_sent(oracle, "q", &removal);
    oracle_remove_answered(oracle, "q", &removal, MR_OK);
    oracle_results_begin(oracle);
    oracle_results_end(oracle);
    assert_fine(oracle);
    oracle_free(oracle);
}

static void a_delay_ends_with_the_life_it_belongs_to(void **state)
{
    (void)state;
    struct oracle *oracle = oracle_new();
    uint32_t token = acked(oracle, (struct oracle_spec){0});
    struct mr_finish item = {.epoch = 100, .outcome = MR_LATER, .delay_ms = 30000};
    struct oracle_op op, removal;
    lease(oracle, token, 100, 0);
    oracle_finish_sent(oracle, token, &item, true, &op);
    oracle_finish_answered(oracle, &op, MR_OK);
    oracle_remove_sent(oracle, "q", &removal);
    oracle_remove_answered(oracle, "q", &removal, MR_OK);
    oracle_enqueue_sent(oracle, token, &op);
    oracle_crashed(oracle, ORACLE_POWER_CUT); /* which took the answer */
    lease(oracle, token, 200, 0);
    assert_fine(oracle);
    oracle_free(oracle);
}

/* The finish was on its way when the power went. */
static void an_end_without_its_result_after_a_crash_is_caught(void **state)
{
    (void)state;
    for (int apart = 0; apart < 2; apart++) {
        struct oracle *oracle = oracle_new();
        uint32_t token = acked(oracle, (struct oracle_spec){.headers = 1});
        struct mr_finish item = {.epoch = 100, .outcome = MR_DONE};
        struct oracle_op op;
        struct shown shown = {0};
        lease(oracle, token, 100, 0);
        oracle_finish_sent(oracle, token, &item, false, &op);
        oracle_crashed(oracle, ORACLE_POWER_CUT);
        check(oracle, &shown); /* it is gone */
        oracle_results_begin(oracle);
        if (!apart)
            see_result(oracle, token, 100, MR_RESULT_OK);
        oracle_results_end(oracle);
        if (apart)
            assert_caught(oracle, "has ended, and the result");
        else
            assert_fine(oracle);
        oracle_free(oracle);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_whole_life_is_fine),
        cmocka_unit_test(a_lost_acknowledged_task_is_caught),
        cmocka_unit_test(an_unanswered_enqueue_may_be_there_or_not),
        cmocka_unit_test(a_task_that_comes_back_is_caught),
        cmocka_unit_test(a_task_nobody_asked_for_is_caught),
        cmocka_unit_test(an_outcome_of_an_old_epoch_is_caught),
        cmocka_unit_test(two_outcomes_of_one_epoch_are_caught),
        cmocka_unit_test(an_epoch_that_repeats_after_a_restart_is_caught),
        cmocka_unit_test(a_crash_that_counts_as_failure_is_caught),
        cmocka_unit_test(a_crash_of_a_run_that_never_began_is_caught),
        cmocka_unit_test(two_holders_of_a_unique_key_are_caught),
        cmocka_unit_test(a_key_that_outlives_its_task_is_caught),
        cmocka_unit_test(a_second_task_of_the_same_id_is_caught),
        cmocka_unit_test(a_changed_payload_is_caught),
        cmocka_unit_test(a_counter_that_is_off_is_caught),
        cmocka_unit_test(a_later_task_before_an_earlier_one_is_caught),
        cmocka_unit_test(a_task_from_a_paused_queue_is_caught),
        cmocka_unit_test(a_task_in_another_partition_and_partitions_that_change_are_caught),
        cmocka_unit_test(a_task_may_move_while_the_partitions_change),
        cmocka_unit_test(an_early_task_is_caught),
        cmocka_unit_test(a_poison_task_that_goes_on_is_caught),
        cmocka_unit_test(a_task_whose_request_failed_is_not_settled),
        cmocka_unit_test(a_lower_priority_before_a_higher_one_is_caught),
        cmocka_unit_test(the_order_holds_across_a_jump_of_the_clock),
        cmocka_unit_test(the_order_holds_behind_a_jump_of_the_clock),
        cmocka_unit_test(what_is_due_stays_so_when_the_clock_is_set_back),
        cmocka_unit_test(changed_headers_and_settings_are_caught),
        cmocka_unit_test(a_changed_lost_or_foreign_result_is_caught),
        cmocka_unit_test(a_changed_or_lost_error_is_caught),
        cmocka_unit_test(a_removal_answered_behind_a_new_life_is_fine),
        cmocka_unit_test(more_tasks_hit_than_reads_failed_are_caught),
        cmocka_unit_test(a_failed_read_that_takes_others_along_is_caught),
        cmocka_unit_test(a_copy_is_judged_by_what_was_known_before_it),
        cmocka_unit_test(a_stopped_store_that_hides_a_task_is_caught),
        cmocka_unit_test(a_holder_that_a_failed_enqueue_may_have_moved_is_not_settled),
        cmocka_unit_test(a_control_answered_behind_a_later_lease_leaves_both_fates),
        cmocka_unit_test(an_end_heard_before_the_answer_that_it_runs_is_fine),
        cmocka_unit_test(a_member_that_is_handed_out_is_caught),
        cmocka_unit_test(a_set_that_half_became_a_task_is_caught),
        cmocka_unit_test(members_that_come_back_behind_the_answer_are_caught),
        cmocka_unit_test(a_result_that_is_lost_doubled_or_of_nobody_is_caught),
        cmocka_unit_test(a_committed_result_that_comes_again_is_caught),
        cmocka_unit_test(a_task_that_was_removed_after_the_crash_left_no_result),
        cmocka_unit_test(a_delay_ends_with_the_life_it_belongs_to),
        cmocka_unit_test(an_end_without_its_result_after_a_crash_is_caught),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
