/* SPDX-License-Identifier: Apache-2.0 */
/* The state machine: limbo, time, unique keys, counters, and what it makes of records that do not
 * fit. Records stand nowhere (segment 0), so that no log is needed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "broker/embedded/message.h"
#include "broker/embedded/state.h"
#include "unit/failing_alloc.h"
#include "wire/task.h"

enum { NOW = 1000000, RETENTION = 5000 };

struct fixture {
    struct state state;
    uint64_t seq;
    struct mr_buf body;
    unsigned touched, ended;
};

static void count_touch(uint32_t task, void *arg)
{
    (void)task;
    ((struct fixture *)arg)->touched++;
}

static void count_end(uint32_t task, void *arg)
{
    (void)task;
    ((struct fixture *)arg)->ended++;
}

static enum mr_err fixture_init(struct fixture *f)
{
    memset(f, 0, sizeof *f);
    enum mr_err err = state_init(&f->state, (struct mr_hash_key){1, 2}, NULL);
    f->state.touch = count_touch;
    f->state.lease_ended = count_end;
    f->state.touch_arg = f->state.lease_arg = f;
    return err;
}

static int begin(void **state)
{
    struct fixture *f = malloc(sizeof *f);
    assert_non_null(f);
    assert_int_equal(fixture_init(f), MR_OK);
    f->state.replaying = false;
    *state = f;
    return 0;
}

static void fixture_done(struct fixture *f)
{
    state_done(&f->state);
    mr_buf_done(&f->body);
}

static int end(void **state)
{
    struct fixture *f = *state;
    state_validate(&f->state);
    fixture_done(f);
    free(f);
    return 0;
}

/* ---- records -------------------------------------------------------------------------------- */

static struct mr_uuid id_of(unsigned n)
{
    struct mr_uuid id = {{0}};
    mr_store32(id.bytes, n);
    mr_store32(id.bytes + 8, n * 2654435761u);
    return id;
}

static enum mr_err apply(struct fixture *f, enum mr_record_type type)
{
    struct mr_record record = {
        .seq = ++f->seq,
        .type = (uint8_t)type,
        .version = MR_RECORD_VERSION,
        .body = mr_buf_slice(&f->body),
    };
    return apply_record(&f->state, &record, (struct mr_log_pos){0, 0});
}

static enum mr_err put_queue(struct fixture *f, uint32_t number, const char *name)
{
    struct mr_event_queue event = {.number = number, .name = mr_slice_str(name)};
    uint8_t bytes[MR_EVENT_QUEUE_SIZE + MR_NAME_MAX];
    mr_event_queue_encode(&event, bytes);
    mr_buf_clear(&f->body);
    MR_TRY(mr_buf_append(&f->body, bytes, MR_EVENT_QUEUE_SIZE + event.name.len));
    return apply(f, MR_RECORD_QUEUE);
}

struct what {
    enum mr_state state;
    int64_t key;
    uint8_t flags;
    double priority_s;
    const char *unique_key;
    uint32_t queue;
};

static enum mr_err put_task(struct fixture *f, unsigned n, struct what what)
{
    struct mr_event_task event = {
        .id = id_of(n),
        .key = what.key,
        .created_ms = NOW,
        .queue = what.queue,
        .max_retry = 25,
        .state = (uint8_t)(what.state ? what.state : MR_PENDING),
        .flags = what.flags | MR_TASK_UUID,
    };
    struct mr_task_options options = {.payload = MR_SLICE_LIT("x"), .priority_s = what.priority_s};
    if (what.unique_key != NULL) {
        options.unique_key = mr_slice_str(what.unique_key);
        options.unique_ms = 60000;
        event.flags |= MR_TASK_UNIQUE;
    }
    uint8_t bytes[MR_EVENT_TASK_SIZE];
    mr_event_task_encode(&event, bytes);
    mr_buf_clear(&f->body);
    MR_TRY(mr_buf_append(&f->body, bytes, sizeof bytes));
    MR_TRY(mr_task_msg_encode(&options, mr_slice_make(NULL, 0), &f->body));
    return apply(f, MR_RECORD_TASK);
}

/* One record of runs 1 .. n with epochs from first on. */
static enum mr_err runs(struct fixture *f, enum mr_record_type type, unsigned n, uint64_t first)
{
    uint8_t bytes[MR_EVENT_RUN_SIZE], time[MR_EVENT_RUNS_TIME];
    mr_buf_clear(&f->body);
    for (unsigned i = 0; i < n; i++) {
        mr_event_run_encode(&(struct mr_event_run){id_of(i + 1), first + i}, bytes);
        MR_TRY(mr_buf_append(&f->body, bytes, sizeof bytes));
    }
    mr_store64(time, NOW);
    MR_TRY(mr_buf_append(&f->body, time, sizeof time));
    return apply(f, type);
}

static enum mr_err take(struct fixture *f, unsigned n, uint64_t epoch)
{
    struct mr_event_run run = {.id = id_of(n), .epoch = epoch};
    uint8_t bytes[MR_EVENT_RUN_SIZE + MR_EVENT_RUNS_TIME];
    mr_event_run_encode(&run, bytes);
    mr_store64(bytes + MR_EVENT_RUN_SIZE, NOW);
    mr_buf_clear(&f->body);
    MR_TRY(mr_buf_append(&f->body, bytes, sizeof bytes));
    return apply(f, MR_RECORD_TAKE);
}

static enum mr_err change(struct fixture *f, enum mr_record_type type, unsigned n,
                          struct mr_event_change event)
{
    event.id = id_of(n);
    if (event.ms == 0)
        event.ms = NOW;
    uint8_t bytes[MR_EVENT_CHANGE_SIZE + 64];
    mr_event_change_encode(&event, bytes);
    mr_buf_clear(&f->body);
    MR_TRY(mr_buf_append(&f->body, bytes, MR_EVENT_CHANGE_SIZE + event.text.len));
    return apply(f, type);
}

static enum mr_err finish(struct fixture *f, unsigned n, enum mr_outcome outcome,
                          enum mr_state state, int64_t key)
{
    struct mr_event_change event = {
        .state = (uint8_t)state, .key = key, .outcome = (uint8_t)outcome};
    return change(f, MR_RECORD_FINISH, n, event);
}

static enum mr_err durable(struct fixture *f)
{
    return state_durable(&f->state, f->seq);
}

static void done(enum mr_err err)
{
    assert_int_equal(err, MR_OK);
}

static const struct task *task(const struct fixture *f, unsigned n)
{
    struct mr_uuid id = id_of(n);
    uint32_t handle = find_task(&f->state, &id);
    return handle == NO_HANDLE ? NULL : task_at(&f->state, handle);
}

static size_t in_set(const struct fixture *f, enum mr_state state)
{
    struct queue *queue = f->state.queues[0];
    return queue_set(queue, state, 0)->count;
}

static uint64_t counted(const struct fixture *f, enum mr_state state)
{
    return f->state.queues[0]->counts[state];
}

/* Tasks 1 .. n of queue 0, pending and durable. */
static void some_pending(struct fixture *f, unsigned n)
{
    done(put_queue(f, 0, "default"));
    for (unsigned i = 1; i <= n; i++)
        done(put_task(f, i, (struct what){.key = NOW + i}));
    done(durable(f));
}

/* ---- limbo ---------------------------------------------------------------------------------- */

static void a_new_task_is_in_no_set_before_its_record_is_durable(void **state)
{
    struct fixture *f = *state;
    done(put_queue(f, 0, "default"));
    done(put_task(f, 1, (struct what){.key = 5}));
    done(put_task(f, 2, (struct what){.key = 4}));
    assert_non_null(task(f, 1));
    assert_int_equal(in_set(f, MR_PENDING), 0);
    assert_int_equal(counted(f, MR_PENDING), 2);
    assert_true(mr_list_empty(&f->state.ready));
    done(state_durable(&f->state, f->seq - 1));
    assert_int_equal(in_set(f, MR_PENDING), 1);
    assert_false(mr_list_empty(&f->state.ready));
    done(durable(f));
    assert_int_equal(in_set(f, MR_PENDING), 2);
    struct mr_uuid first = id_of(2);
    assert_int_equal(order_first(&f->state.queues[0]->parts[0].pending),
                     find_task(&f->state, &first));
}

static void a_replayed_task_is_in_its_set_at_once(void **state)
{
    struct fixture *f = *state;
    f->state.replaying = true;
    done(put_queue(f, 0, "default"));
    done(put_task(f, 1, (struct what){.key = 5}));
    assert_int_equal(in_set(f, MR_PENDING), 1);
}

static void only_the_last_of_several_changes_brings_a_task_out_of_limbo(void **state)
{
    struct fixture *f = *state;
    struct mr_event_change archive = {.state = MR_ARCHIVED, .key = 9};
    done(put_queue(f, 0, "default"));
    done(put_task(f, 1, (struct what){.key = 5}));
    done(change(f, MR_RECORD_MOVE, 1, archive));
    done(state_durable(&f->state, f->seq - 1));
    assert_int_equal(in_set(f, MR_PENDING) + in_set(f, MR_ARCHIVED), 0);
    state_validate(&f->state);
    done(durable(f));
    assert_int_equal(in_set(f, MR_ARCHIVED), 1);
}

static void a_task_that_goes_while_in_limbo_leaves_nothing_behind(void **state)
{
    struct fixture *f = *state;
    done(put_queue(f, 0, "default"));
    done(put_task(f, 1, (struct what){.key = 5}));
    done(change(f, MR_RECORD_DELETE, 1, (struct mr_event_change){.state = MR_STATE_NONE}));
    done(put_task(f, 2, (struct what){.key = 6})); /* gets the same handle */
    done(state_durable(&f->state, f->seq - 1));
    assert_int_equal(in_set(f, MR_PENDING), 0);
    done(durable(f));
    assert_int_equal(in_set(f, MR_PENDING), 1);
    assert_null(task(f, 1));
    assert_int_equal(f->state.deleted, 1);
}

static void limbo_holds_any_number(void **state)
{
    struct fixture *f = *state;
    done(put_queue(f, 0, "default"));
    for (unsigned i = 1; i <= 5000; i++) {
        done(put_task(f, i, (struct what){.key = 5}));
        if (i % 3 == 0)
            done(state_durable(&f->state, f->seq > 700 ? f->seq - 700 : 0));
    }
    done(durable(f));
    assert_int_equal(in_set(f, MR_PENDING), 5000);
    assert_int_equal(f->state.limbo_n, 0);
}

/* ---- time ----------------------------------------------------------------------------------- */

static void a_scheduled_task_becomes_pending_at_its_time_and_not_before(void **state)
{
    struct fixture *f = *state;
    done(put_queue(f, 0, "default"));
    done(put_task(f, 1, (struct what){.state = MR_SCHEDULED, .key = NOW + 100}));
    assert_int_equal(state_next_ms(&f->state), INT64_MAX); /* in limbo nothing happens */
    done(durable(f));
    assert_int_equal(state_next_ms(&f->state), NOW + 100);
    done(state_tick(&f->state, NOW + 99, 10));
    assert_int_equal(in_set(f, MR_SCHEDULED), 1);
    done(state_tick(&f->state, NOW + 100, 10));
    assert_int_equal(in_set(f, MR_PENDING), 1);
    assert_int_equal(counted(f, MR_PENDING), 1);
    assert_int_equal(counted(f, MR_SCHEDULED), 0);
    assert_int_equal(state_next_ms(&f->state), INT64_MAX);
}

static void a_due_task_stands_in_the_order_of_its_priority(void **state)
{
    struct fixture *f = *state;
    done(put_queue(f, 0, "default"));
    done(put_task(f, 1, (struct what){.state = MR_SCHEDULED, .key = NOW}));
    done(put_task(
        f, 2,
        (struct what){
            .state = MR_SCHEDULED, .key = NOW + 10, .priority_s = 60, .flags = MR_TASK_PRIORITY}));
    done(durable(f));
    done(state_tick(&f->state, NOW + 10, 10));
    assert_int_equal(task(f, 2)->key, NOW + 10 - 60000);
    struct mr_uuid first = id_of(2);
    assert_int_equal(order_first(&f->state.queues[0]->parts[0].pending),
                     find_task(&f->state, &first));
}

static void a_retry_comes_back_at_its_time_in_its_old_order(void **state)
{
    struct fixture *f = *state;
    some_pending(f, 1);
    done(take(f, 1, 77));
    struct mr_event_change retry = {.state = MR_RETRY,
                                    .key = NOW + 500,
                                    .order_ms = NOW - 3,
                                    .retried = 1,
                                    .outcome = MR_FAIL,
                                    .text = MR_SLICE_LIT("no luck")};
    done(change(f, MR_RECORD_FINISH, 1, retry));
    done(durable(f));
    assert_int_equal(in_set(f, MR_RETRY), 1);
    done(state_tick(&f->state, NOW + 500, 10));
    assert_int_equal(task(f, 1)->state, MR_PENDING);
    assert_int_equal(task(f, 1)->key, NOW - 3);
    assert_int_equal(task(f, 1)->retried, 1);
}

static void a_completed_task_expires_and_is_counted(void **state)
{
    struct fixture *f = *state;
    some_pending(f, 2);
    for (unsigned i = 1; i <= 2; i++) {
        done(take(f, i, i));
        done(finish(f, i, MR_DONE, MR_COMPLETED, NOW + i * RETENTION));
    }
    done(durable(f));
    done(state_tick(&f->state, NOW + RETENTION - 1, 10));
    assert_int_equal(in_set(f, MR_COMPLETED), 2);
    done(state_tick(&f->state, NOW + RETENTION, 10));
    assert_null(task(f, 1));
    assert_non_null(task(f, 2));
    assert_int_equal(f->state.expired, 1);
    assert_int_equal(f->state.deleted, 0);
}

static void a_tick_does_no_more_than_its_budget(void **state)
{
    struct fixture *f = *state;
    done(put_queue(f, 0, "default"));
    done(put_queue(f, 1, "other"));
    for (unsigned i = 1; i <= 100; i++)
        done(put_task(f, i, (struct what){.state = MR_SCHEDULED, .key = NOW, .queue = i % 2}));
    done(durable(f));
    done(state_tick(&f->state, NOW, 30));
    uint64_t pending = counted(f, MR_PENDING) + f->state.queues[1]->counts[MR_PENDING];
    assert_int_equal(pending, 30);
    assert_int_equal(state_next_ms(&f->state), NOW);
    done(state_tick(&f->state, NOW, 1000));
    assert_int_equal(counted(f, MR_PENDING), 50);
}

/* ---- leases and outcomes -------------------------------------------------------------------- */

static void a_taken_task_is_active_under_its_epoch_and_its_end_is_told(void **state)
{
    struct fixture *f = *state;
    some_pending(f, 1);
    done(take(f, 1, 123));
    assert_int_equal(task(f, 1)->state, MR_ACTIVE);
    assert_int_equal(more_of(&f->state, task(f, 1))->epoch, 123);
    assert_int_equal(in_set(f, MR_ACTIVE), 1); /* a hand-out does not wait for the disk */
    assert_int_equal(f->ended, 0);
    done(finish(f, 1, MR_HAND_BACK, MR_PENDING, NOW));
    assert_int_equal(f->ended, 1);
    done(durable(f));
    assert_int_equal(in_set(f, MR_PENDING), 1);
}

/* Whoever brings it to another broker has to know under which epoch it ran. */
static void a_task_handed_back_remembers_its_epoch_and_nothing_else(void **state)
{
    struct fixture *f = *state;
    some_pending(f, 1);
    assert_int_equal(f->state.mores.count, 0);
    done(take(f, 1, 123));
    assert_int_equal(f->state.mores.count, 1);
    done(finish(f, 1, MR_HAND_BACK, MR_PENDING, NOW));
    assert_int_equal(more_of(&f->state, task(f, 1))->epoch, 123);
    done(durable(f));
    done(take(f, 1, 124));
    done(apply_done(&f->state, &(struct mr_event_run){task(f, 1)->id, 124}, NOW, NO_HANDLE));
    assert_int_equal(f->state.mores.count, 0);
}

static void the_wish_to_cancel_does_not_end_the_lease(void **state)
{
    struct fixture *f = *state;
    some_pending(f, 1);
    done(take(f, 1, 5));
    struct mr_event_change wish = {.state = MR_ACTIVE, .flags = MR_TASK_CANCEL};
    done(change(f, MR_RECORD_MOVE, 1, wish));
    assert_int_equal(f->ended, 0);
    assert_int_equal(task(f, 1)->state, MR_ACTIVE);
    assert_true(task(f, 1)->flags & MR_TASK_CANCEL);
}

static void outcomes_are_counted_per_queue_and_day(void **state)
{
    static const struct {
        enum mr_outcome outcome;
        uint64_t processed, failed;
    } rows[] = {{MR_DONE, 1, 0},      {MR_FAIL, 2, 1}, {MR_FAIL_FOR_GOOD, 3, 2},
                {MR_HAND_BACK, 3, 2}, {MR_DROP, 4, 2}, {MR_LATER, 4, 2}};
    struct fixture *f = *state;
    some_pending(f, 6);
    const struct queue *queue = f->state.queues[0];
    for (unsigned i = 0; i < 6; i++) {
        done(take(f, i + 1, i + 1));
        done(finish(f, i + 1, rows[i].outcome, MR_PENDING, NOW));
        assert_int_equal(queue->processed, rows[i].processed);
        assert_int_equal(queue->failed, rows[i].failed);
    }
    assert_int_equal(queue->days_n, 1);
    assert_int_equal(queue->days[0].processed, 4);
    done(durable(f));
}

static void runs_of_one_record_begin_and_end_together(void **state)
{
    struct fixture *f = *state;
    some_pending(f, 4);
    done(runs(f, MR_RECORD_TAKE, 3, 70));
    assert_int_equal(counted(f, MR_ACTIVE), 3);
    assert_int_equal(more_of(&f->state, task(f, 3))->epoch, 72);
    done(runs(f, MR_RECORD_DONE, 3, 70));
    assert_int_equal(counted(f, MR_ACTIVE), 0);
    assert_int_equal(counted(f, MR_PENDING), 1);
    assert_null(task(f, 1));
    assert_null(task(f, 3));
    assert_int_equal(f->state.queues[0]->processed, 3);
}

static void a_run_of_a_task_that_is_gone_does_not_stop_the_others(void **state)
{
    struct fixture *f = *state;
    some_pending(f, 3);
    done(take(f, 1, 1));
    done(finish(f, 1, MR_DONE, MR_STATE_NONE, 0));
    assert_int_equal(runs(f, MR_RECORD_TAKE, 3, 70), MR_NOT_FOUND);
    assert_int_equal(counted(f, MR_ACTIVE), 2);
    assert_int_equal(runs(f, MR_RECORD_DONE, 3, 70), MR_NOT_FOUND);
    assert_int_equal(f->state.tasks.count, 0);
}

static void a_lost_lease_is_no_processed_run(void **state)
{
    struct fixture *f = *state;
    some_pending(f, 1);
    done(take(f, 1, 5));
    struct mr_event_change lost = {.state = MR_PENDING, .key = NOW, .crashes = 1};
    done(change(f, MR_RECORD_LOST, 1, lost));
    done(durable(f));
    assert_int_equal(task(f, 1)->crashes, 1);
    assert_int_equal(task(f, 1)->retried, 0);
    assert_int_equal(f->state.queues[0]->processed, 0);
}

static void days_are_kept_for_so_long(void **state)
{
    struct fixture *f = *state;
    done(put_queue(f, 0, "default"));
    struct queue *queue = f->state.queues[0];
    for (int64_t day = 0; day < 2 * DAYS_KEPT; day++)
        done(queue_count_run(queue, day * MR_MS_PER_DAY, false));
    assert_int_equal(queue->days_n, DAYS_KEPT);
    assert_int_equal(queue->days[0].day, DAYS_KEPT);
    done(queue_count_run(queue, 0, true)); /* longer ago: only the total counts it */
    assert_int_equal(queue->days[0].day, DAYS_KEPT);
    assert_int_equal(queue->processed, 2 * DAYS_KEPT + 1);
    assert_int_equal(queue->failed, 1);
}

static void a_clock_that_was_ahead_spoils_no_day(void **state)
{
    static const int days[] = {100, 100, 400, 100, 101, 99};
    struct fixture *f = *state;
    done(put_queue(f, 0, "default"));
    struct queue *queue = f->state.queues[0];
    for (size_t i = 0; i < sizeof days / sizeof *days; i++)
        done(queue_count_run(queue, days[i] * MR_MS_PER_DAY, i == 3));
    assert_int_equal(queue->days_n, 4);
    for (size_t i = 1; i < queue->days_n; i++)
        assert_true(queue->days[i - 1].day < queue->days[i].day);
    assert_int_equal(queue_day(queue, 100)->processed, 3);
    assert_int_equal(queue_day(queue, 100)->failed, 1);
    assert_int_equal(queue_day(queue, 101)->processed, 1);
    assert_int_equal(queue_day(queue, 400)->processed, 1);
    assert_null(queue_day(queue, 102));
}

/* ---- unique keys ---------------------------------------------------------------------------- */

static uint32_t holder_of(struct fixture *f, const char *key)
{
    struct mr_task_msg msg = {.queue = MR_SLICE_LIT("default"), .unique_key = mr_slice_str(key)};
    struct mr_buf buf = {0};
    struct mr_task_options options = {.unique_key = msg.unique_key, .unique_ms = 1};
    done(mr_task_msg_encode(&options, mr_slice_make(NULL, 0), &buf));
    done(mr_task_msg_decode(mr_buf_slice(&buf), &msg));
    struct mr_uuid unique = message_unique_key(f->state.hash_key, &msg);
    mr_buf_done(&buf);
    return find_unique(&f->state, &unique);
}

static void a_unique_key_is_held_from_the_enqueue_to_the_end(void **state)
{
    static const struct {
        enum mr_state state;
        bool held;
    } rows[] = {{MR_PENDING, true},
                {MR_RETRY, true},
                {MR_ARCHIVED, false},
                {MR_COMPLETED, false},
                {MR_STATE_NONE, false}};
    struct fixture *f = *state;
    done(put_queue(f, 0, "default"));
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        char key[8] = {(char)('a' + i)};
        done(put_task(f, i, (struct what){.key = NOW, .unique_key = key}));
        assert_int_not_equal(holder_of(f, key), NO_HANDLE); /* also in limbo */
        done(durable(f));
        done(take(f, i, i + 1));
        assert_int_not_equal(holder_of(f, key), NO_HANDLE);
        done(finish(f, i, MR_DROP, rows[i].state, NOW));
        assert_int_equal(holder_of(f, key) != NO_HANDLE, rows[i].held);
        state_validate(&f->state);
    }
    done(durable(f));
}

static void a_later_task_takes_a_key_over_and_keeps_it_when_the_first_ends(void **state)
{
    struct fixture *f = *state;
    done(put_queue(f, 0, "default"));
    done(put_task(f, 1, (struct what){.key = NOW, .unique_key = "k"}));
    done(put_task(f, 2, (struct what){.key = NOW, .unique_key = "k"}));
    struct mr_uuid second = id_of(2);
    assert_int_equal(holder_of(f, "k"), find_task(&f->state, &second));
    done(change(f, MR_RECORD_DELETE, 1, (struct mr_event_change){.state = MR_STATE_NONE}));
    assert_int_equal(holder_of(f, "k"), find_task(&f->state, &second));
    done(durable(f));
}

/* ---- queues --------------------------------------------------------------------------------- */

static void queues_may_come_and_go_for_ever(void **state)
{
    struct fixture *f = *state;
    done(put_queue(f, 0, "stays"));
    for (unsigned i = 0; i < QUEUES_MAX + 5000u; i++) {
        char name[32];
        snprintf(name, sizeof name, "q%u", i);
        uint32_t number = queue_free_number(&f->state);
        assert_in_range(number, 1, QUEUES_MAX - 1);
        done(put_queue(f, number, name));
        if (i % 16 == 0)
            assert_ptr_equal(find_queue(&f->state, mr_slice_str(name)), f->state.queues[number]);
        queue_drop(&f->state, f->state.queues[number], NOW);
    }
    assert_non_null(find_queue(&f->state, MR_SLICE_LIT("stays")));
}

static void a_dropped_queue_takes_its_tasks_along_counted(void **state)
{
    struct fixture *f = *state;
    some_pending(f, 3);
    done(put_queue(f, 1, "other"));
    done(put_task(f, 9, (struct what){.key = NOW, .queue = 1}));
    done(take(f, 1, 1));
    done(finish(f, 1, MR_DONE, MR_COMPLETED, NOW));
    done(durable(f));
    queue_drop(&f->state, f->state.queues[0], NOW);
    assert_null(f->state.queues[0]);
    assert_null(find_queue(&f->state, MR_SLICE_LIT("default")));
    assert_non_null(task(f, 9));
    assert_int_equal(f->state.tasks.count, 1);
    assert_int_equal(f->state.deleted, 2);
    assert_int_equal(f->state.expired, 1);
    assert_int_equal(state_next_ms(&f->state), INT64_MAX);
}

static void settings_of_a_queue_change_by_its_number(void **state)
{
    struct fixture *f = *state;
    struct queue *queue;
    struct mr_event_queue event = {.number = 40, .paused = 1, .name = MR_SLICE_LIT("q")};
    done(queue_put(&f->state, &event, &queue));
    assert_true(queue->paused);
    event.paused = 0;
    event.max_length = 7;
    struct queue *same;
    done(queue_put(&f->state, &event, &same));
    assert_ptr_equal(queue, same);
    assert_false(queue->paused);
    assert_int_equal(queue->max_length, 7);
    event.number = 41;
    assert_int_equal(queue_put(&f->state, &event, &same), MR_DAMAGED);
    event.number = UINT32_MAX;
    event.name = MR_SLICE_LIT("r");
    assert_int_equal(queue_put(&f->state, &event, &same), MR_DAMAGED);
}

/* ---- records that do not fit ---------------------------------------------------------------- */

static void records_of_unknown_tasks_and_queues_are_told_apart_from_damage(void **state)
{
    struct fixture *f = *state;
    struct mr_event_change gone = {.state = MR_STATE_NONE};
    done(put_queue(f, 0, "default"));
    assert_int_equal(take(f, 1, 1), MR_NOT_FOUND);
    assert_int_equal(change(f, MR_RECORD_MOVE, 1, gone), MR_NOT_FOUND);
    assert_int_equal(change(f, MR_RECORD_NOTE, 1, gone), MR_NOT_FOUND);
    assert_int_equal(put_task(f, 1, (struct what){.queue = 3}), MR_DAMAGED);
    assert_int_equal(f->state.tasks.count, 0);
}

static void a_take_of_what_does_not_wait_is_damage(void **state)
{
    struct fixture *f = *state;
    some_pending(f, 1);
    done(take(f, 1, 1));
    assert_int_equal(take(f, 1, 2), MR_DAMAGED);
    done(finish(f, 1, MR_FAIL_FOR_GOOD, MR_ARCHIVED, NOW));
    assert_int_equal(take(f, 1, 3), MR_DAMAGED);
    done(durable(f));
}

static void an_id_that_is_there_is_damage_unless_it_had_completed(void **state)
{
    struct fixture *f = *state;
    f->state.replaying = true;
    some_pending(f, 1);
    assert_int_equal(put_task(f, 1, (struct what){.key = NOW}), MR_DAMAGED);
    done(take(f, 1, 1));
    done(finish(f, 1, MR_DONE, MR_COMPLETED, NOW));
    done(put_task(f, 1, (struct what){.key = NOW})); /* its expiry was not logged */
    assert_int_equal(f->state.expired, 1);
    assert_int_equal(task(f, 1)->state, MR_PENDING);
}

static void bodies_of_wrong_length_are_damage_and_newer_ones_are_named(void **state)
{
    static const enum mr_record_type types[] = {
        MR_RECORD_OPEN, MR_RECORD_QUEUE,  MR_RECORD_UNQUEUE, MR_RECORD_TASK,     MR_RECORD_COPY,
        MR_RECORD_NOTE, MR_RECORD_TAKE,   MR_RECORD_DONE,    MR_RECORD_FINISH,   MR_RECORD_LOST,
        MR_RECORD_MOVE, MR_RECORD_DELETE, MR_RECORD_CEILING, MR_RECORD_GATHERED, MR_RECORD_CARRIED};
    struct fixture *f = *state;
    struct mr_log_pos nowhere = {0, 0};
    done(mr_buf_append(&f->body, "abc", 3));
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        struct mr_record record = {
            .type = (uint8_t)types[i], .version = 1, .body = mr_buf_slice(&f->body)};
        assert_int_equal(apply_record(&f->state, &record, nowhere), MR_DAMAGED);
        record.version = MR_RECORD_VERSION + 1;
        assert_int_equal(apply_record(&f->state, &record, nowhere), MR_VERSION);
    }
}

static void the_highest_ceiling_is_kept(void **state)
{
    static const uint64_t ceilings[] = {5, 9, 7};
    struct fixture *f = *state;
    for (size_t i = 0; i < 3; i++) {
        mr_buf_clear(&f->body);
        done(mr_buf_append(&f->body, &ceilings[i], sizeof ceilings[i]));
        done(apply(f, i == 0 ? MR_RECORD_OPEN : MR_RECORD_CEILING));
    }
    assert_int_equal(f->state.epoch_ceiling, 9);
    mr_buf_clear(&f->body);
    done(apply(f, MR_RECORD_MARK)); /* as a quiet store writes it */
    assert_int_equal(f->state.epoch_ceiling, 9);
    done(mr_buf_append(&f->body, &ceilings[2], sizeof ceilings[2]));
    done(apply(f, MR_RECORD_MARK)); /* as one that is closed does: 7 was the last */
    assert_int_equal(f->state.epoch_ceiling, 7);
}

/* ---- entries -------------------------------------------------------------------------------- */

static void entry_at(const struct state *state, const struct mr_uuid *id, struct mr_entry *entry)
{
    const struct task *task = task_at(state, find_task(state, id));
    entry_of(task, more_of(state, task), entry);
}

static void an_entry_brings_a_task_back_as_it_was(void **state)
{
    struct fixture *f = *state;
    struct fixture copy;
    some_pending(f, 2);
    done(put_task(f, 3, (struct what){.key = NOW, .unique_key = "k"}));
    done(durable(f));
    done(take(f, 1, 99));
    done(fixture_init(&copy));
    done(put_queue(&copy, 0, "default"));
    for (unsigned n = 1; n <= 3; n++) {
        struct mr_uuid id = id_of(n);
        struct mr_entry entry, again;
        entry_at(&f->state, &id, &entry);
        done(apply_entry(&copy.state, &entry));
        assert_int_equal(apply_entry(&copy.state, &entry), MR_DAMAGED); /* twice */
        entry_at(&copy.state, &id, &again);
        uint8_t a[MR_ENTRY_MAX], b[MR_ENTRY_MAX];
        size_t len = mr_entry_encode(&entry, a);
        assert_int_equal(mr_entry_encode(&again, b), len);
        assert_memory_equal(a, b, len);
    }
    state_validate(&copy.state);
    assert_int_not_equal(holder_of(&copy, "k"), NO_HANDLE);
    fixture_done(&copy);
}

static void an_entry_that_contradicts_itself_is_damage(void **state)
{
    struct fixture *f = *state;
    some_pending(f, 1);
    struct mr_entry entry = {.id = id_of(7), .state = MR_ACTIVE};
    assert_int_equal(apply_entry(&f->state, &entry), MR_DAMAGED);
    entry.state = MR_PENDING;
    entry.flags = MR_TASK_UNIQUE;
    assert_int_equal(apply_entry(&f->state, &entry), MR_DAMAGED);
    entry.flags = 0;
    entry.queue = 5;
    assert_int_equal(apply_entry(&f->state, &entry), MR_DAMAGED);
}

/* ---- memory --------------------------------------------------------------------------------- */

static void memory_is_counted_and_comes_back(void **state)
{
    struct fixture *f = *state;
    some_pending(f, 100000);
    assert_true(state_bytes(&f->state) / 100000 <= 128);
    for (unsigned i = 1; i <= 100000; i++)
        done(change(f, MR_RECORD_DELETE, i, (struct mr_event_change){.state = MR_STATE_NONE}));
    size_t empty = state_bytes(&f->state);
    for (unsigned i = 1; i <= 100000; i++)
        done(put_task(f, i, (struct what){.key = NOW}));
    done(durable(f));
    for (unsigned i = 1; i <= 100000; i++)
        done(change(f, MR_RECORD_DELETE, i, (struct mr_event_change){.state = MR_STATE_NONE}));
    assert_true(state_bytes(&f->state) <= empty + empty / 4);
}

/* Everything once, until the first error. */
static enum mr_err script(struct fixture *f)
{
    MR_TRY(put_queue(f, 0, "default"));
    MR_TRY(put_queue(f, 100, "far"));
    for (unsigned i = 1; i <= 1100; i++)
        MR_TRY(put_task(f, i, (struct what){.key = (int64_t)i * 7919 % 1100}));
    MR_TRY(put_task(f, 2000, (struct what){.key = NOW, .unique_key = "k"}));
    MR_TRY(put_task(f, 2001, (struct what){.state = MR_SCHEDULED, .key = NOW}));
    MR_TRY(durable(f));
    MR_TRY(state_tick(&f->state, NOW, 10));
    MR_TRY(take(f, 1, 1));
    MR_TRY(take(f, 2000, 2));
    struct mr_event_change fail = {
        .state = MR_RETRY, .key = NOW + 1, .outcome = MR_FAIL, .text = MR_SLICE_LIT("no")};
    MR_TRY(change(f, MR_RECORD_FINISH, 1, fail));
    MR_TRY(finish(f, 2000, MR_DONE, MR_COMPLETED, NOW + 9));
    MR_TRY(durable(f));
    MR_TRY(state_tick(&f->state, NOW + 20, 10));
    return change(f, MR_RECORD_DELETE, 2, (struct mr_event_change){.state = MR_STATE_NONE});
}

static void without_memory_each_step_says_so_and_nothing_crashes(void **state)
{
    (void)state;
    long failures = 0;
    for (long n = 0;; n++) {
        struct fixture f;
        fail_alloc_after(n);
        enum mr_err err = fixture_init(&f);
        f.state.replaying = false;
        if (err == MR_OK)
            err = script(&f);
        long failed = fail_alloc_stop();
        assert_int_equal(err, failed ? MR_NOMEM : MR_OK);
        fixture_done(&f);
        failures += failed;
        if (failed == 0)
            break;
    }
    assert_true(!FAILING_ALLOC || failures > 20);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_new_task_is_in_no_set_before_its_record_is_durable),
        TEST(a_replayed_task_is_in_its_set_at_once),
        TEST(only_the_last_of_several_changes_brings_a_task_out_of_limbo),
        TEST(a_task_that_goes_while_in_limbo_leaves_nothing_behind),
        TEST(limbo_holds_any_number),
        TEST(a_scheduled_task_becomes_pending_at_its_time_and_not_before),
        TEST(a_due_task_stands_in_the_order_of_its_priority),
        TEST(a_retry_comes_back_at_its_time_in_its_old_order),
        TEST(a_completed_task_expires_and_is_counted),
        TEST(a_tick_does_no_more_than_its_budget),
        TEST(a_taken_task_is_active_under_its_epoch_and_its_end_is_told),
        TEST(a_task_handed_back_remembers_its_epoch_and_nothing_else),
        TEST(the_wish_to_cancel_does_not_end_the_lease),
        TEST(outcomes_are_counted_per_queue_and_day),
        TEST(runs_of_one_record_begin_and_end_together),
        TEST(a_run_of_a_task_that_is_gone_does_not_stop_the_others),
        TEST(a_lost_lease_is_no_processed_run),
        TEST(days_are_kept_for_so_long),
        TEST(a_clock_that_was_ahead_spoils_no_day),
        TEST(a_unique_key_is_held_from_the_enqueue_to_the_end),
        TEST(a_later_task_takes_a_key_over_and_keeps_it_when_the_first_ends),
        TEST(queues_may_come_and_go_for_ever),
        TEST(a_dropped_queue_takes_its_tasks_along_counted),
        TEST(settings_of_a_queue_change_by_its_number),
        TEST(records_of_unknown_tasks_and_queues_are_told_apart_from_damage),
        TEST(a_take_of_what_does_not_wait_is_damage),
        TEST(an_id_that_is_there_is_damage_unless_it_had_completed),
        TEST(bodies_of_wrong_length_are_damage_and_newer_ones_are_named),
        TEST(the_highest_ceiling_is_kept),
        TEST(an_entry_brings_a_task_back_as_it_was),
        TEST(an_entry_that_contradicts_itself_is_damage),
        TEST(memory_is_counted_and_comes_back),
        cmocka_unit_test(without_memory_each_step_says_so_and_nothing_crashes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
