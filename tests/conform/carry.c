/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conformance: tasks that change brokers. One comes as it stood elsewhere and is held until it is
 * released; one that goes leaves a trace, so that its id stays taken.
 */
#include <stdio.h>

#include "conform/conform.h"

enum { HOUR_MS = 3600000 };

static const enum mr_state not_running[] = {MR_SCHEDULED, MR_PENDING,   MR_RETRY,
                                            MR_ARCHIVED,  MR_COMPLETED, MR_AGGREGATING};
enum { NOT_RUNNING = sizeof not_running / sizeof *not_running };

/* ---- requests ------------------------------------------------------------------------------- */

static struct mr_enqueue_result carry(struct conform *t, const struct mr_task *task)
{
    struct mr_enqueue_result result = {.err = MR_FAILED};
    struct mr_task_options options = mr_carried_options(task);
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = &options, .carried = task, .n = 1, .results = &result};
    assert_err(mr_broker_call(t->broker, &req.req), MR_OK);
    mr_req_done(&req.req);
    return result;
}

static enum mr_err moved(struct conform *t, const char *id, const char *where)
{
    struct mr_control item = {
        .verb = MR_VERB_MOVED, .id = mr_slice_str(id), .text = mr_slice_str(where)};
    enum mr_err err = MR_FAILED;
    struct mr_req_control req = {.req.op = MR_OP_CONTROL, .items = &item, .n = 1, .errs = &err};
    assert_err(mr_broker_call(t->broker, &req.req), MR_OK);
    mr_req_done(&req.req);
    return err;
}

static enum mr_err release(struct conform *t, const char *id)
{
    return conform_act(t, MR_VERB_RELEASE, id, 0);
}

/* As if it had stood at another broker: it is gone here. */
static const struct mr_task *leave(struct conform *t, const char *id)
{
    const struct mr_task *task = conform_get(t, id);
    assert_non_null(task);
    assert_err(conform_act(t, MR_VERB_DELETE, id, 0), MR_OK);
    assert_null(conform_get(t, id));
    return task;
}

/* A pending task of another broker, enqueued ago_ms before now. */
static struct mr_task elsewhere(const char *id, int64_t ago_ms)
{
    int64_t then = conform_wall_ms() - ago_ms;
    return (struct mr_task){.id = mr_slice_str(id),
                            .queue = MR_SLICE_LIT("default"),
                            .type = MR_SLICE_LIT("task"),
                            .payload = mr_slice_str(id),
                            .state = MR_PENDING,
                            .max_retry = 3,
                            .timeout_ms = 60000,
                            .created_ms = then,
                            .order_time_ms = then};
}

static void assert_same(const struct mr_task *a, const struct mr_task *b)
{
    const struct mr_slice *as[] = {&a->id,      &a->queue,      &a->type,
                                   &a->payload, &a->unique_key, &a->group,
                                   &a->topic,   &a->last_error, &a->result};
    const struct mr_slice *bs[] = {&b->id,      &b->queue,      &b->type,
                                   &b->payload, &b->unique_key, &b->group,
                                   &b->topic,   &b->last_error, &b->result};
    for (size_t i = 0; i < sizeof as / sizeof *as; i++)
        assert_slices(*as[i], *bs[i]);
    assert_int_equal(a->headers_n, b->headers_n);
    for (size_t i = 0; i < a->headers_n; i++)
        assert_slices(a->headers[i].value, b->headers[i].value);
    assert_int_equal(a->state, b->state);
    assert_true(a->priority_s == b->priority_s);
    assert_int_equal(a->order_time_ms, b->order_time_ms);
    assert_int_equal(a->retried, b->retried);
    assert_int_equal(a->crashes, b->crashes);
    assert_int_equal(a->max_retry, b->max_retry);
    assert_int_equal(a->timeout_ms, b->timeout_ms);
    assert_int_equal(a->deadline_ms, b->deadline_ms);
    assert_int_equal(a->retention_ms, b->retention_ms);
    assert_int_equal(a->created_ms, b->created_ms);
    assert_int_equal(a->due_ms, b->due_ms);
    assert_int_equal(a->finished_ms, b->finished_ms);
    assert_int_equal(a->last_failed_ms, b->last_failed_ms);
    assert_int_equal(a->unique_until_ms, b->unique_until_ms);
}

/* ---- coming --------------------------------------------------------------------------------- */

static void a_task_comes_as_it_stood(void **state)
{
    struct conform *t = *state;
    for (size_t i = 0; i < NOT_RUNNING; i++) {
        conform_make_state(t, "t", not_running[i]);
        const struct mr_task *was = leave(t, "t");
        struct mr_enqueue_result result = carry(t, was);
        assert_err(result.err, MR_OK);
        assert_int_equal(result.state, not_running[i]);
        assert_string_equal(result.id, "t");
        const struct mr_task *held = conform_get(t, "t");
        assert_non_null(held);
        assert_true(held->held);
        assert_in_range(conform_wall_ms() - held->started_ms, 0, CONFORM_WAIT_MS);
        assert_same(held, was);
        assert_err(release(t, "t"), MR_OK);
        const struct mr_task *is = conform_get(t, "t");
        assert_non_null(is);
        assert_false(is->held);
        assert_int_equal(is->started_ms, was->started_ms);
        assert_true(is->epoch == was->epoch);
        assert_same(is, was);
        struct conform_page page = PAGE(t, .state = not_running[i], .limit = 10);
        assert_int_equal(page.n, 1);
        assert_err(conform_act(t, MR_VERB_DELETE, "t", 0), MR_OK);
    }
}

static void all_that_a_producer_said_comes_with_it(void **state)
{
    struct conform *t = *state;
    const struct mr_header headers[] = {{MR_SLICE_LIT("trace"), MR_SLICE_LIT("abc")},
                                        {MR_SLICE_LIT("empty"), MR_SLICE_LIT("")}};
    (void)PUT_OK(t, .id = MR_SLICE_LIT("t"), .queue = MR_SLICE_LIT("other"),
                 .type = MR_SLICE_LIT("mail"), .payload = MR_SLICE_LIT("\0binary"),
                 .priority_s = 12.5, .delay_ms = HOUR_MS, .max_retry = MR_NO_RETRY,
                 .timeout_ms = MR_NO_TIMEOUT, .deadline_ms = conform_wall_ms() + 2 * HOUR_MS + 7,
                 .retention_ms = 1234567, .unique_ms = 3 * HOUR_MS,
                 .unique_key = MR_SLICE_LIT("key"), .topic = MR_SLICE_LIT("topic"),
                 .headers = headers, .headers_n = 2);
    const struct mr_task *was = leave(t, "t");
    assert_true(was->unique_until_ms > conform_wall_ms());
    assert_err(carry(t, was).err, MR_OK);
    assert_same(conform_get(t, "t"), was);
    assert_err(release(t, "t"), MR_OK);
    assert_same(conform_get(t, "t"), was);
}

static void a_held_task_is_not_given_to_anybody(void **state)
{
    struct conform *t = *state;
    struct conform_node *node = NODE(t);
    struct mr_task task = elsewhere("t", 1000);
    assert_err(carry(t, &task).err, MR_OK);
    conform_take_none(t, node);
    struct conform_page page = PAGE(t, .limit = 10);
    assert_int_equal(page.n, 0);
    static const enum mr_verb refused[] = {MR_VERB_CANCEL, MR_VERB_RUN, MR_VERB_ARCHIVE,
                                           MR_VERB_PRIORITISE};
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++)
        assert_err(conform_act(t, refused[i], "t", 1), MR_WRONG_STATE);
    assert_err(moved(t, "t", "x"), MR_WRONG_STATE);
    conform_take_none(t, node);
    assert_err(release(t, "t"), MR_OK);
    struct mr_lease *lease = conform_take_id(t, node, "t");
    assert_slice(lease->task.payload, "t");
    assert_int_equal(lease->task.created_ms, task.created_ms);
    assert_int_equal(lease->task.timeout_ms, 60000);
    FINISH_OK(t, lease, .outcome = MR_DONE);
    assert_null(conform_get(t, "t"));
}

static void held_tasks_are_listed_page_by_page(void **state)
{
    struct conform *t = *state;
    char id[16];
    for (int i = 0; i < 5; i++) {
        snprintf(id, sizeof id, "t%d", i);
        struct mr_task task = elsewhere(id, 5000 - i * 100);
        assert_err(carry(t, &task).err, MR_OK);
    }
    (void)PUT_OK(t, .id = MR_SLICE_LIT("own"));
    size_t n = 0;
    const char *cursor = NULL;
    do {
        struct conform_page page =
            PAGE(t, .held = true, .limit = 2, .cursor = cursor, .with_payload = true);
        assert_err(page.err, MR_OK);
        for (size_t i = 0; i < page.n; i++, n++) {
            snprintf(id, sizeof id, "t%zu", n);
            assert_slice(page.tasks[i].id, id);
            assert_slice(page.tasks[i].payload, id);
            assert_true(page.tasks[i].held);
            assert_int_equal(page.tasks[i].state, MR_PENDING);
        }
        cursor = page.next;
    } while (cursor[0] != '\0');
    assert_int_equal(n, 5);
    struct conform_page own = PAGE(t, .limit = 10);
    assert_int_equal(own.n, 1);
}

static void only_a_held_task_is_released(void **state)
{
    struct conform *t = *state;
    struct mr_task task = elsewhere("t", 1000);
    assert_err(release(t, "t"), MR_NOT_FOUND);
    assert_err(carry(t, &task).err, MR_OK);
    assert_err(release(t, "t"), MR_OK);
    assert_err(release(t, "t"), MR_WRONG_STATE);
    conform_make_state(t, "done", MR_SCHEDULED);
    assert_err(release(t, "done"), MR_WRONG_STATE);
}

static void a_held_task_can_be_deleted_and_come_again(void **state)
{
    struct conform *t = *state;
    struct mr_task task = elsewhere("t", 1000);
    assert_err(carry(t, &task).err, MR_OK);
    assert_err(conform_act(t, MR_VERB_DELETE, "t", 0), MR_OK);
    assert_null(conform_get(t, "t"));
    struct conform_page page = PAGE(t, .held = true, .limit = 10);
    assert_int_equal(page.n, 0);
    assert_err(carry(t, &task).err, MR_OK);
}

static void an_id_that_is_there_is_a_conflict(void **state)
{
    struct conform *t = *state;
    struct mr_task task = elsewhere("t", 1000);
    (void)PUT_OK(t, .id = MR_SLICE_LIT("t"), .delay_ms = HOUR_MS);
    struct mr_enqueue_result result = carry(t, &task);
    assert_err(result.err, MR_CONFLICT);
    assert_int_equal(result.state, MR_SCHEDULED);
    task.id = MR_SLICE_LIT("held");
    task.state = MR_ARCHIVED;
    task.finished_ms = task.created_ms;
    assert_err(carry(t, &task).err, MR_OK);
    result = carry(t, &task);
    assert_err(result.err, MR_CONFLICT);
    assert_int_equal(result.state, MR_ARCHIVED);
    result = PUT(t, .id = MR_SLICE_LIT("held"));
    assert_err(result.err, MR_CONFLICT);
}

static void released_tasks_stand_by_their_order_time(void **state)
{
    struct conform *t = *state;
    struct conform_node *node = NODE(t);
    (void)PUT_OK(t, .id = MR_SLICE_LIT("here"));
    struct mr_task old = elsewhere("old", 60000), older = elsewhere("older", 90000),
                   first = elsewhere("first", 30000);
    first.priority_s = 100;
    first.order_time_ms -= 100000;
    assert_err(carry(t, &old).err, MR_OK);
    assert_err(carry(t, &older).err, MR_OK);
    assert_err(carry(t, &first).err, MR_OK);
    assert_err(release(t, "old"), MR_OK);
    assert_err(release(t, "older"), MR_OK);
    assert_err(release(t, "first"), MR_OK);
    static const char *const order[] = {"first", "older", "old", "here"};
    for (size_t i = 0; i < sizeof order / sizeof *order; i++)
        FINISH_OK(t, conform_take_id(t, node, order[i]), .outcome = MR_DONE);
}

static void one_that_was_due_while_it_was_held_runs_when_it_is_released(void **state)
{
    struct conform *t = *state;
    struct conform_node *node = NODE(t);
    struct mr_task task = elsewhere("t", 60000);
    task.state = MR_RETRY;
    task.due_ms = task.order_time_ms = conform_wall_ms() - 500;
    task.retried = 2;
    task.last_error = MR_SLICE_LIT("before");
    task.last_failed_ms = task.created_ms + 5;
    assert_err(carry(t, &task).err, MR_OK);
    conform_take_none(t, node);
    assert_err(release(t, "t"), MR_OK);
    struct mr_lease *lease = conform_take_id(t, node, "t");
    assert_int_equal(lease->task.retried, 2);
    FINISH_OK(t, lease, .outcome = MR_FAIL, .delay_ms = HOUR_MS, .error = MR_SLICE_LIT("again"));
    const struct mr_task *is = conform_get(t, "t");
    assert_int_equal(is->retried, 3);
    assert_slice(is->last_error, "again");
}

static void a_unique_key_comes_with_the_rest_of_its_time(void **state)
{
    struct conform *t = *state;
    struct mr_task task = elsewhere("t", 1000);
    task.unique_key = MR_SLICE_LIT("key");
    task.unique_until_ms = conform_wall_ms() + HOUR_MS;
    assert_err(carry(t, &task).err, MR_OK);
    for (int i = 0; i < 2; i++) { /* held, and released */
        struct mr_enqueue_result result =
            PUT(t, .unique_ms = HOUR_MS, .unique_key = MR_SLICE_LIT("key"));
        assert_err(result.err, MR_DUPLICATE);
        assert_string_equal(result.id, "t");
        if (i == 0)
            assert_err(release(t, "t"), MR_OK);
    }
    assert_err(conform_act(t, MR_VERB_DELETE, "t", 0), MR_OK);
    (void)PUT_OK(t, .unique_ms = HOUR_MS, .unique_key = MR_SLICE_LIT("key"));
}

static void a_unique_key_that_is_held_here_stays_with_its_holder(void **state)
{
    struct conform *t = *state;
    (void)PUT_OK(t, .id = MR_SLICE_LIT("holder"), .unique_ms = HOUR_MS,
                 .unique_key = MR_SLICE_LIT("key"));
    struct mr_task task = elsewhere("t", 1000);
    task.unique_key = MR_SLICE_LIT("key");
    task.unique_until_ms = conform_wall_ms() + HOUR_MS;
    assert_err(carry(t, &task).err, MR_OK);
    assert_err(release(t, "t"), MR_OK);
    assert_err(conform_act(t, MR_VERB_DELETE, "t", 0), MR_OK);
    struct mr_enqueue_result result =
        PUT(t, .unique_ms = HOUR_MS, .unique_key = MR_SLICE_LIT("key"));
    assert_err(result.err, MR_DUPLICATE);
    assert_string_equal(result.id, "holder");
}

static void no_length_of_a_queue_keeps_it_out(void **state)
{
    struct conform *t = *state;
    assert_err(conform_queue_set(t, "default", MR_QUEUE_MAX_LENGTH, 1), MR_OK);
    (void)PUT_OK(t, .id = MR_SLICE_LIT("own"));
    struct mr_task task = elsewhere("t", 1000);
    assert_err(carry(t, &task).err, MR_OK);
    assert_err(release(t, "t"), MR_OK);
    assert_int_equal(conform_queue(t, "default").counts[MR_PENDING], 2);
}

static void one_that_can_not_stand_so_is_refused(void **state)
{
    struct conform *t = *state;
    struct mr_task good = elsewhere("t", 1000), task = good;
    task.state = MR_ACTIVE;
    assert_err(carry(t, &task).err, MR_INVALID);
    task.state = MR_STATE_NONE;
    assert_err(carry(t, &task).err, MR_INVALID);
    task = good, task.created_ms = 0;
    assert_err(carry(t, &task).err, MR_INVALID);
    task = good, task.state = MR_AGGREGATING;
    assert_err(carry(t, &task).err, MR_INVALID);
    task = good, task.state = MR_SCHEDULED;
    assert_err(carry(t, &task).err, MR_INVALID);
    task = good, task.epoch = MR_CARRIED_EPOCH_MAX + 1;
    assert_err(carry(t, &task).err, MR_INVALID);
    task = good, task.id = MR_SLICE_LIT("");
    assert_err(carry(t, &task).err, MR_INVALID);
    task = good, task.queue = MR_SLICE_LIT("{");
    assert_err(carry(t, &task).err, MR_INVALID);
    assert_null(conform_get(t, "t"));
    assert_int_equal(conform_stats_now(t).carried, 0);
}

static void a_member_of_a_group_joins_it_here(void **state)
{
    struct conform *t = *state;
    struct mr_task task = elsewhere("m0", 1000);
    task.state = MR_AGGREGATING;
    task.group = MR_SLICE_LIT("g");
    assert_err(carry(t, &task).err, MR_OK);
    struct mr_req_gather gather = {.req.op = MR_OP_GATHER,
                                   .queue = MR_SLICE_LIT("default"),
                                   .max_size = 1,
                                   .grace_ms = HOUR_MS};
    assert_err(mr_broker_call(t->broker, &gather.req), MR_EMPTY);
    mr_req_done(&gather.req);
    assert_err(release(t, "m0"), MR_OK);
    gather.req = (struct mr_req){.op = MR_OP_GATHER};
    assert_err(mr_broker_call(t->broker, &gather.req), MR_OK);
    assert_int_equal(gather.n, 1);
    assert_slice(gather.tasks[0].id, "m0");
    assert_string_equal(gather.group, "g");
    assert_err(moved(t, "m0", "x"), MR_RUNNING);
    mr_req_done(&gather.req);
}

/* ---- epochs --------------------------------------------------------------------------------- */

/* Of several servers each has its own; the number of one stands above. */
static uint64_t own(uint64_t epoch)
{
    return epoch & ((1ULL << MR_EPOCH_BITS) - 1);
}

/* A task whose last run had an epoch that is so far ahead of this broker's clock. */
static struct mr_task ran_elsewhere(const char *id, int64_t ahead_ms)
{
    struct mr_task task = elsewhere(id, 60000);
    task.epoch = (uint64_t)((conform_wall_ms() + ahead_ms) * MR_US_PER_MS);
    return task;
}

static void one_that_ran_elsewhere_is_handed_out_under_a_higher_epoch(void **state)
{
    struct conform *t = *state;
    struct conform_node *node = NODE(t);
    struct mr_task task = ran_elsewhere("t", HOUR_MS);
    assert_err(carry(t, &task).err, MR_OK);
    assert_true(own(conform_get(t, "t")->epoch) == task.epoch);
    assert_err(release(t, "t"), MR_OK);
    assert_true(own(conform_get(t, "t")->epoch) == task.epoch);
    uint64_t last = task.epoch;
    for (int i = 0; i < 3; i++) {
        struct mr_lease *lease = conform_take_id(t, node, "t");
        assert_true(own(lease->epoch) > last);
        last = own(lease->epoch);
        /* An epoch that is ahead of the clock does not say when the run began. */
        assert_in_range(conform_wall_ms() - conform_get(t, "t")->started_ms, 0, CONFORM_WAIT_MS);
        FINISH_OK(t, lease, .outcome = MR_HAND_BACK);
    }
}

static void one_with_a_low_epoch_takes_none_back(void **state)
{
    struct conform *t = *state;
    struct conform_node *node = NODE(t);
    struct mr_task high = ran_elsewhere("high", HOUR_MS), low = ran_elsewhere("low", -HOUR_MS);
    assert_err(carry(t, &high).err, MR_OK);
    assert_err(carry(t, &low).err, MR_OK);
    assert_err(release(t, "low"), MR_OK);
    struct mr_lease *lease = conform_take_id(t, node, "low");
    assert_true(own(lease->epoch) > high.epoch);
    FINISH_OK(t, lease, .outcome = MR_DONE);
}

static void a_queue_that_is_removed_takes_no_epoch_back(void **state)
{
    struct conform *t = *state;
    struct mr_task task = ran_elsewhere("t", HOUR_MS);
    assert_err(carry(t, &task).err, MR_OK);
    assert_err(release(t, "t"), MR_OK);
    assert_err(conform_queue_remove(t, "default", MR_QUEUE_REMOVE_FORCE), MR_OK);
    (void)PUT_OK(t, .id = MR_SLICE_LIT("t"));
    struct mr_lease *lease = conform_take_id(t, NODE(t), "t");
    assert_true(own(lease->epoch) > task.epoch);
    FINISH_OK(t, lease, .outcome = MR_DONE);
}

/* What a run that ended without a finish had is known as well: the task may go elsewhere. */
static void what_was_handed_out_is_known_however_it_came_back(void **state)
{
    struct conform *t = *state;
    (void)PUT_OK(t, .id = MR_SLICE_LIT("t"));
    for (int i = 0; i < 2; i++) {
        struct conform_node *node = NODE(t);
        struct mr_lease *lease = conform_take_id(t, node, "t");
        uint64_t epoch = lease->epoch;
        if (i == 0)
            FINISH_OK(t, lease, .outcome = MR_HAND_BACK);
        else
            mr_lease_free(lease);
        assert_err(conform_node_close(t, node), MR_OK);
        WAIT_UNTIL(conform_state(t, "t") == MR_PENDING);
        assert_true(conform_get(t, "t")->epoch == epoch);
    }
}

/* ---- going ---------------------------------------------------------------------------------- */

static void a_task_that_was_moved_leaves_a_trace(void **state)
{
    struct conform *t = *state;
    for (size_t i = 0; i < NOT_RUNNING; i++) {
        char id[16];
        snprintf(id, sizeof id, "t%zu", i);
        conform_make_state(t, id, not_running[i]);
        struct mr_queue_info before = conform_queue(t, "default");
        assert_err(moved(t, id, "there"), MR_OK);
        const struct mr_task *task = conform_get(t, id);
        assert_non_null(task);
        assert_int_equal(task->state, MR_COMPLETED);
        assert_slice(task->last_error, "moved to there");
        struct mr_enqueue_result result = PUT(t, .id = mr_slice_str(id));
        assert_err(result.err, MR_CONFLICT);
        assert_int_equal(result.state, MR_COMPLETED);
        struct mr_queue_info after = conform_queue(t, "default");
        assert_int_equal(after.processed_total, before.processed_total);
        assert_int_equal(after.counts[MR_COMPLETED], i + 1);
        assert_int_equal(conform_stats_now(t).moved, i + 1);
    }
    struct conform_node *node = NODE(t);
    conform_take_none(t, node);
}

static void a_task_that_was_moved_frees_its_unique_key(void **state)
{
    struct conform *t = *state;
    (void)PUT_OK(t, .id = MR_SLICE_LIT("t"), .unique_ms = HOUR_MS,
                 .unique_key = MR_SLICE_LIT("key"));
    assert_err(moved(t, "t", "there"), MR_OK);
    (void)PUT_OK(t, .unique_ms = HOUR_MS, .unique_key = MR_SLICE_LIT("key"));
}

static void a_task_that_runs_or_is_not_there_is_not_moved(void **state)
{
    struct conform *t = *state;
    assert_err(moved(t, "t", "there"), MR_NOT_FOUND);
    conform_make_state(t, "t", MR_ACTIVE);
    assert_err(moved(t, "t", "there"), MR_RUNNING);
    assert_int_equal(conform_state(t, "t"), MR_ACTIVE);
    assert_err(moved(t, "t", ""), MR_INVALID);
    char far[MR_MOVED_TEXT_MAX + 2];
    memset(far, 'x', sizeof far - 1);
    far[sizeof far - 1] = '\0';
    assert_err(moved(t, "t", far), MR_TOO_BIG);
    assert_int_equal(conform_stats_now(t).moved, 0);
}

static void what_came_is_counted(void **state)
{
    struct conform *t = *state;
    struct mr_task task = elsewhere("t", 1000);
    assert_err(carry(t, &task).err, MR_OK);
    assert_err(carry(t, &task).err, MR_CONFLICT);
    assert_int_equal(conform_stats_now(t).carried, 1);
}

/* ---- over an end ---------------------------------------------------------------------------- */

static void what_came_and_what_went_outlive_an_end(void **state)
{
    struct conform *t = *state;
    if (!t->engine->can_reopen)
        return;
    struct mr_task held = elsewhere("held", 1000), free = elsewhere("free", 2000),
                   dead = elsewhere("dead", 3000);
    dead.state = MR_ARCHIVED;
    dead.finished_ms = dead.created_ms + 10;
    dead.last_error = MR_SLICE_LIT("why");
    assert_err(carry(t, &held).err, MR_OK);
    assert_err(carry(t, &free).err, MR_OK);
    assert_err(carry(t, &dead).err, MR_OK);
    assert_err(release(t, "free"), MR_OK);
    assert_err(release(t, "dead"), MR_OK);
    (void)PUT_OK(t, .id = MR_SLICE_LIT("gone"));
    assert_err(moved(t, "gone", "there"), MR_OK);
    conform_reopen(t);
    assert_true(conform_get(t, "held")->held);
    struct conform_node *node = NODE(t);
    FINISH_OK(t, conform_take_id(t, node, "free"), .outcome = MR_DONE);
    conform_take_none(t, node);
    assert_slice(conform_get(t, "gone")->last_error, "moved to there");
    const struct mr_task *is = conform_get(t, "dead");
    assert_slice(is->last_error, "why");
    assert_int_equal(is->finished_ms, dead.finished_ms);
    assert_err(release(t, "held"), MR_OK);
    FINISH_OK(t, conform_take_id(t, node, "held"), .outcome = MR_DONE);
}

static void the_epoch_it_brought_outlives_an_end(void **state)
{
    struct conform *t = *state;
    if (!t->engine->can_reopen)
        return;
    struct mr_task task = ran_elsewhere("t", HOUR_MS);
    assert_err(carry(t, &task).err, MR_OK);
    assert_err(release(t, "t"), MR_OK);
    assert_err(conform_act(t, MR_VERB_DELETE, "t", 0), MR_OK);
    conform_reopen(t);
    (void)PUT_OK(t, .id = MR_SLICE_LIT("t"));
    struct mr_lease *lease = conform_take_id(t, NODE(t), "t");
    assert_true(own(lease->epoch) > task.epoch);
    FINISH_OK(t, lease, .outcome = MR_DONE);
}

int conform_carry(const struct conform_engine *engine)
{
    struct CMUnitTest tests[] = {
        CONFORM_TEST(a_task_comes_as_it_stood),
        CONFORM_TEST(all_that_a_producer_said_comes_with_it),
        CONFORM_TEST(a_held_task_is_not_given_to_anybody),
        CONFORM_TEST(held_tasks_are_listed_page_by_page),
        CONFORM_TEST(only_a_held_task_is_released),
        CONFORM_TEST(a_held_task_can_be_deleted_and_come_again),
        CONFORM_TEST(an_id_that_is_there_is_a_conflict),
        CONFORM_TEST(released_tasks_stand_by_their_order_time),
        CONFORM_TEST(one_that_was_due_while_it_was_held_runs_when_it_is_released),
        CONFORM_TEST(a_unique_key_comes_with_the_rest_of_its_time),
        CONFORM_TEST(a_unique_key_that_is_held_here_stays_with_its_holder),
        CONFORM_TEST(no_length_of_a_queue_keeps_it_out),
        CONFORM_TEST(one_that_can_not_stand_so_is_refused),
        CONFORM_TEST(a_member_of_a_group_joins_it_here),
        CONFORM_TEST(one_that_ran_elsewhere_is_handed_out_under_a_higher_epoch),
        CONFORM_TEST(one_with_a_low_epoch_takes_none_back),
        CONFORM_TEST(a_queue_that_is_removed_takes_no_epoch_back),
        CONFORM_TEST(what_was_handed_out_is_known_however_it_came_back),
        CONFORM_TEST(a_task_that_was_moved_leaves_a_trace),
        CONFORM_TEST(a_task_that_was_moved_frees_its_unique_key),
        CONFORM_TEST(a_task_that_runs_or_is_not_there_is_not_moved),
        CONFORM_TEST(what_came_is_counted),
        CONFORM_TEST(what_came_and_what_went_outlive_an_end),
        CONFORM_TEST(the_epoch_it_brought_outlives_an_end),
    };
    return CONFORM_RUN(engine, "carry", tests);
}
