/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: finishing. Each outcome has its own end, retries are never early, and one end is
 * accepted. */
#include "conform/conform.h"

static void done_without_retention_leaves_nothing(void **state)
{
    struct conform *t = *state;
    const char *id = PUT_OK(t, .payload = MR_SLICE_LIT("x"));
    FINISH_OK(t, conform_take_id(t, NODE(t), id), .outcome = MR_DONE,
              .result = MR_SLICE_LIT("unread"));
    assert_int_equal(conform_state(t, id), MR_STATE_NONE);
    struct mr_queue_info queue = conform_queue(t, "default");
    assert_int_equal(queue.processed_total, 1);
    assert_int_equal(queue.failed_total, 0);
    for (int s = 0; s < MR_STATE_COUNT; s++)
        assert_int_equal(queue.counts[s], 0);
}

static void a_result_is_kept_for_the_retention_and_then_gone(void **state)
{
    struct conform *t = *state;
    const char *id = PUT_OK(t, .payload = MR_SLICE_LIT("in"), .retention_ms = 300);
    struct mr_lease *lease = conform_take_id(t, NODE(t), id);
    mr_mono since = conform_mono();
    int64_t before_ms = conform_wall_ms();
    FINISH_OK(t, lease, .outcome = MR_DONE, .result = MR_SLICE_LIT("o\0ut"));
    const struct mr_task *task = conform_get(t, id);
    if (conform_elapsed_ms(since) < 290) {
        assert_non_null(task);
        assert_int_equal(task->state, MR_COMPLETED);
        assert_slices(task->result, MR_SLICE_LIT("o\0ut"));
        assert_slice(task->payload, "in");
        assert_in_range(task->finished_ms, before_ms, conform_wall_ms());
    }
    WAIT_UNTIL(conform_state(t, id) == MR_STATE_NONE);
    assert_true(conform_elapsed_ms(since) >= 300);
    assert_int_equal(conform_stats_now(t).expired, 1);
    assert_int_equal(conform_stats_now(t).tasks, 0);
    assert_err(PUT(t, .id = mr_slice_str(id)).err, MR_OK);
}

static void a_failure_waits_for_its_retry_and_is_never_early(void **state)
{
    struct conform *t = *state;
    const char *id = PUT_OK(t, .payload = MR_SLICE_LIT("x"));
    struct conform_node *node = NODE(t);
    struct mr_lease *lease = conform_take_id(t, node, id);
    uint64_t epoch = lease->epoch;
    mr_mono since = conform_mono();
    int64_t before_ms = conform_wall_ms();
    FINISH_OK(t, lease, .outcome = MR_FAIL, .delay_ms = 250, .error = MR_SLICE_LIT("no route"));
    const struct mr_task *task = conform_get(t, id);
    if (conform_elapsed_ms(since) < 240) {
        assert_int_equal(task->state, MR_RETRY);
        assert_true(task->due_ms >= before_ms + 250);
        conform_take_none(t, node);
    }
    assert_int_equal(task->retried, 1);
    assert_int_equal(task->crashes, 0);
    assert_slice(task->last_error, "no route");
    assert_true(task->last_failed_ms >= before_ms);
    lease = conform_take_one(t, node);
    assert_true(conform_elapsed_ms(since) >= 250);
    assert_int_equal(lease->task.attempt, 2);
    assert_true(lease->epoch > epoch);
    FINISH_OK(t, lease, .outcome = MR_DONE);
    assert_int_equal(conform_queue(t, "default").failed_total, 1);
}

static void retries_stop_at_the_limit_and_then_archive(void **state)
{
    struct conform *t = *state;
    const char *id = PUT_OK(t, .payload = MR_SLICE_LIT("x"), .max_retry = 2);
    struct conform_node *node = NODE(t);
    for (uint32_t attempt = 1; attempt <= 3; attempt++) {
        struct mr_lease *lease = conform_take_id(t, node, id);
        assert_int_equal(lease->task.attempt, attempt);
        FINISH_OK(t, lease, .outcome = MR_FAIL, .delay_ms = 1, .error = MR_SLICE_LIT("again"));
    }
    assert_int_equal(conform_state(t, id), MR_ARCHIVED);
    const struct mr_task *task = conform_get(t, id);
    assert_slice(task->last_error, "again");
    assert_true(task->finished_ms > 0);
    conform_take_none(t, node);
    struct mr_queue_info queue = conform_queue(t, "default");
    assert_int_equal(queue.failed_total, 3);
    assert_int_equal(queue.counts[MR_ARCHIVED], 1);
}

static void run_from_the_archive_starts_the_counts_again(void **state)
{
    struct conform *t = *state;
    const char *id = PUT_OK(t, .max_retry = 1);
    struct conform_node *node = NODE(t);
    for (int round = 0; round < 2; round++) {
        for (uint32_t attempt = 1; attempt <= 2; attempt++) {
            struct mr_lease *lease = conform_take_id(t, node, id);
            assert_int_equal(lease->task.attempt, attempt);
            FINISH_OK(t, lease, .outcome = MR_FAIL, .delay_ms = 1);
        }
        assert_int_equal(conform_state(t, id), MR_ARCHIVED);
        assert_err(conform_act(t, MR_VERB_RUN, id, 0), MR_OK);
        assert_int_equal(conform_get(t, id)->retried, 0);
    }
}

static void no_retry_archives_at_the_first_failure(void **state)
{
    struct conform *t = *state;
    const char *id = PUT_OK(t, .max_retry = MR_NO_RETRY);
    FINISH_OK(t, conform_take_id(t, NODE(t), id), .outcome = MR_FAIL, .delay_ms = 1,
              .error = MR_SLICE_LIT("once"));
    assert_int_equal(conform_state(t, id), MR_ARCHIVED);
    assert_slice(conform_get(t, id)->last_error, "once");
}

static void a_failure_for_good_archives_at_once(void **state)
{
    struct conform *t = *state;
    const char *id = PUT_OK(t, .max_retry = 10);
    FINISH_OK(t, conform_take_id(t, NODE(t), id), .outcome = MR_FAIL_FOR_GOOD,
              .error = MR_SLICE_LIT("bad input"));
    const struct mr_task *task = conform_get(t, id);
    assert_int_equal(task->state, MR_ARCHIVED);
    assert_slice(task->last_error, "bad input");
    assert_true(task->finished_ms > 0);
    assert_true(task->last_failed_ms > 0);
    assert_int_equal(conform_queue(t, "default").failed_total, 1);
}

static void a_hand_back_is_not_counted(void **state)
{
    struct conform *t = *state;
    const char *id = PUT_OK(t, .payload = MR_SLICE_LIT("x"));
    struct conform_node *node = NODE(t);
    for (int i = 0; i < 5; i++) {
        struct mr_lease *lease = conform_take_id(t, node, id);
        mr_broker_begun(t->broker, node->first_slot, lease->epoch);
        assert_int_equal(lease->task.attempt, 1);
        FINISH_OK(t, lease, .outcome = MR_HAND_BACK);
        assert_int_equal(conform_state(t, id), MR_PENDING);
    }
    const struct mr_task *task = conform_get(t, id);
    assert_int_equal(task->retried, 0);
    assert_int_equal(task->crashes, 0);
    struct mr_queue_info queue = conform_queue(t, "default");
    assert_int_equal(queue.processed_total, 0);
    assert_int_equal(queue.failed_total, 0);
}

static void a_hand_back_with_a_delay_waits_for_it(void **state)
{
    struct conform *t = *state;
    const char *id = PUT_OK(t, .payload = MR_SLICE_LIT("x"));
    struct conform_node *node = NODE(t);
    struct mr_lease *lease = conform_take_id(t, node, id);
    mr_mono since = conform_mono();
    FINISH_OK(t, lease, .outcome = MR_HAND_BACK, .delay_ms = 200);
    lease = conform_take_id(t, node, id);
    assert_true(conform_elapsed_ms(since) >= 200);
    assert_int_equal(lease->task.attempt, 1);
    FINISH_OK(t, lease, .outcome = MR_DONE);
}

static void later_waits_and_is_not_a_failure(void **state)
{
    struct conform *t = *state;
    const char *id = PUT_OK(t, .max_retry = MR_NO_RETRY);
    struct conform_node *node = NODE(t);
    for (int i = 0; i < 3; i++) {
        struct mr_lease *lease = conform_take_id(t, node, id);
        assert_int_equal(lease->task.retried, 0);
        mr_mono since = conform_mono();
        FINISH_OK(t, lease, .outcome = MR_LATER, .delay_ms = 60);
        lease = conform_take_id(t, node, id);
        assert_true(conform_elapsed_ms(since) >= 60);
        FINISH_OK(t, lease, .outcome = MR_HAND_BACK);
    }
    assert_int_equal(conform_queue(t, "default").failed_total, 0);
    assert_int_equal(conform_get(t, id)->retried, 0);
}

static void a_drop_is_processed_and_keeps_nothing(void **state)
{
    struct conform *t = *state;
    const char *id = PUT_OK(t, .retention_ms = 3600000);
    FINISH_OK(t, conform_take_id(t, NODE(t), id), .outcome = MR_DROP);
    assert_int_equal(conform_state(t, id), MR_STATE_NONE);
    struct mr_queue_info queue = conform_queue(t, "default");
    assert_int_equal(queue.processed_total, 1);
    assert_int_equal(queue.counts[MR_COMPLETED], 0);
}

static void a_second_finish_is_refused_and_changes_nothing(void **state)
{
    struct conform *t = *state;
    struct conform_node *node = NODE(t);
    const char *kept = PUT_OK(t, .retention_ms = 3600000);
    struct mr_lease *lease = conform_take_id(t, node, kept);
    assert_err(FINISH(t, lease, .outcome = MR_DONE, .result = MR_SLICE_LIT("1")), MR_OK);
    assert_err(FINISH(t, lease, .outcome = MR_DONE, .result = MR_SLICE_LIT("2")), MR_STALE);
    assert_err(FINISH(t, lease, .outcome = MR_FAIL), MR_STALE);
    assert_slice(conform_get(t, kept)->result, "1");
    mr_lease_free(lease);
    const char *gone = PUT_OK(t, .payload = MR_SLICE_LIT("x"));
    lease = conform_take_id(t, node, gone);
    assert_err(FINISH(t, lease, .outcome = MR_DONE), MR_OK);
    assert_err(FINISH(t, lease, .outcome = MR_DONE), MR_NOT_FOUND);
    mr_lease_free(lease);
    assert_int_equal(conform_queue(t, "default").processed_total, 2);
}

static void unknown_ids_and_other_epochs_are_refused(void **state)
{
    struct conform *t = *state;
    const char *id = PUT_OK(t, .payload = MR_SLICE_LIT("x"));
    struct mr_lease *lease = conform_take_id(t, NODE(t), id);
    struct mr_finish items[] = {
        {.id = MR_SLICE_LIT("nobody"), .epoch = lease->epoch},
        {.id = mr_slice_str(id), .epoch = lease->epoch + 1},
        {.id = mr_slice_str(id), .epoch = lease->epoch - 1, .ref = lease->ref},
        {.id = mr_slice_str(id), .epoch = 0},
        {.id = mr_slice_str(id), .epoch = lease->epoch, .ref = UINT64_MAX},
    };
    enum mr_err errs[4];
    struct mr_req_finish req = {.req.op = MR_OP_FINISH, .items = items, .n = 4, .errs = errs};
    assert_err(mr_broker_call(t->broker, &req.req), MR_OK);
    mr_req_done(&req.req);
    assert_err(errs[0], MR_NOT_FOUND);
    for (size_t i = 1; i < 4; i++)
        assert_err(errs[i], MR_STALE);
    assert_int_equal(conform_state(t, id), MR_ACTIVE);
    /* A wrong shortcut must not hide the right task. */
    req = (struct mr_req_finish){.req.op = MR_OP_FINISH, .items = items + 4, .n = 1, .errs = errs};
    assert_err(mr_broker_call(t->broker, &req.req), MR_OK);
    mr_req_done(&req.req);
    assert_err(errs[0], MR_OK);
    mr_lease_free(lease);
}

static void a_finish_without_the_shortcut_is_accepted(void **state)
{
    struct conform *t = *state;
    const char *id = PUT_OK(t, .payload = MR_SLICE_LIT("x"));
    struct mr_lease *lease = conform_take_id(t, NODE(t), id);
    lease->ref = 0;
    FINISH_OK(t, lease, .outcome = MR_DONE);
    assert_int_equal(conform_state(t, id), MR_STATE_NONE);
}

static void a_batch_of_finishes_answers_per_item(void **state)
{
    struct conform *t = *state;
    conform_put_many(t, "default", "t", 3);
    struct conform_node *node = NODE(t);
    struct mr_lease *a = conform_take_id(t, node, "t0");
    struct mr_lease *b = conform_take_id(t, node, "t1");
    struct mr_finish items[] = {
        {.id = a->task.id, .epoch = a->epoch, .ref = a->ref},
        {.id = MR_SLICE_LIT("t2"), .epoch = b->epoch, .ref = b->ref},
        {.id = a->task.id, .epoch = a->epoch, .ref = a->ref},
        {.id = b->task.id, .epoch = b->epoch, .ref = b->ref, .outcome = MR_HAND_BACK},
    };
    static const enum mr_err expected[] = {MR_OK, MR_STALE, MR_NOT_FOUND, MR_OK};
    enum mr_err errs[4];
    struct mr_req_finish req = {.req.op = MR_OP_FINISH, .items = items, .n = 4, .errs = errs};
    assert_err(mr_broker_call(t->broker, &req.req), MR_OK);
    mr_req_done(&req.req);
    for (size_t i = 0; i < 4; i++)
        assert_err(errs[i], expected[i]);
    mr_lease_free(a);
    mr_lease_free(b);
    assert_int_equal(conform_queue(t, "default").counts[MR_PENDING], 2);
}

static void too_big_a_result_is_refused_and_the_run_goes_on(void **state)
{
    struct conform *t = *state;
    const char *id = PUT_OK(t, .retention_ms = 3600000);
    struct mr_lease *lease = conform_take_id(t, NODE(t), id);
    uint8_t *big = calloc(1, MR_RESULT_MAX + 1);
    assert_non_null(big);
    assert_err(FINISH(t, lease, .outcome = MR_DONE, .result = {big, MR_RESULT_MAX + 1}),
               MR_TOO_BIG);
    assert_int_equal(conform_state(t, id), MR_ACTIVE);
    FINISH_OK(t, lease, .outcome = MR_DONE, .result = {big, MR_RESULT_MAX});
    assert_int_equal(conform_get(t, id)->result.len, MR_RESULT_MAX);
    free(big);
}

static void an_error_text_never_exceeds_its_limit(void **state)
{
    struct conform *t = *state;
    const char *id = PUT_OK(t, .payload = MR_SLICE_LIT("x"));
    struct mr_lease *lease = conform_take_id(t, NODE(t), id);
    char text[MR_ERROR_TEXT_MAX + 1];
    memset(text, 'e', sizeof text);
    enum mr_err err =
        FINISH(t, lease, .outcome = MR_FAIL_FOR_GOOD, .error = {text, MR_ERROR_TEXT_MAX + 1});
    if (err == MR_TOO_BIG)
        err = FINISH(t, lease, .outcome = MR_FAIL_FOR_GOOD, .error = {text, MR_ERROR_TEXT_MAX});
    assert_err(err, MR_OK);
    assert_int_equal(conform_get(t, id)->last_error.len, MR_ERROR_TEXT_MAX);
    mr_lease_free(lease);
}

static void a_negative_delay_is_refused(void **state)
{
    struct conform *t = *state;
    const char *id = PUT_OK(t, .payload = MR_SLICE_LIT("x"));
    struct mr_lease *lease = conform_take_id(t, NODE(t), id);
    assert_err(FINISH(t, lease, .outcome = MR_FAIL, .delay_ms = -1), MR_INVALID);
    assert_int_equal(conform_state(t, id), MR_ACTIVE);
    FINISH_OK(t, lease, .outcome = MR_DONE);
}

static void when_it_began_is_said_of_what_runs_or_has_ended(void **state)
{
    struct conform *t = *state;
    struct conform_node *node = NODE(t);
    static const struct {
        const char *id;
        struct mr_finish item;
        enum mr_state state;
    } rows[] = {
        {"back", {.outcome = MR_HAND_BACK}, MR_PENDING},
        {"later", {.outcome = MR_HAND_BACK, .delay_ms = 3600000}, MR_SCHEDULED},
        {"failed", {.outcome = MR_FAIL, .delay_ms = 3600000}, MR_RETRY},
        {"gave-up", {.outcome = MR_FAIL_FOR_GOOD}, MR_ARCHIVED},
        {"done", {.outcome = MR_DONE}, MR_COMPLETED},
    };
    int64_t before_ms = conform_wall_ms();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        (void)PUT_OK(t, .id = mr_slice_str(rows[i].id), .retention_ms = 3600000,
                     .queue = mr_slice_str(i == 0 ? "apart" : "default"));
        struct conform_node *of = i == 0 ? NODE(t, .queues = "apart") : node;
        struct mr_lease *lease = conform_take_id(t, of, rows[i].id);
        int64_t began_ms = conform_get(t, rows[i].id)->started_ms;
        assert_in_range(began_ms, before_ms - 1, conform_wall_ms());
        assert_err(conform_finish_one(t, lease, rows[i].item), MR_OK);
        mr_lease_free(lease);
        const struct mr_task *task = conform_get(t, rows[i].id);
        bool ended = rows[i].state == MR_ARCHIVED || rows[i].state == MR_COMPLETED;
        assert_int_equal(task->state, rows[i].state);
        assert_int_equal(task->started_ms, ended ? began_ms : 0);
    }
}

int conform_finish(const struct conform_engine *engine)
{
    static struct CMUnitTest tests[] = {
        CONFORM_TEST(done_without_retention_leaves_nothing),
        CONFORM_TEST(a_result_is_kept_for_the_retention_and_then_gone),
        CONFORM_TEST(a_failure_waits_for_its_retry_and_is_never_early),
        CONFORM_TEST(retries_stop_at_the_limit_and_then_archive),
        CONFORM_TEST(run_from_the_archive_starts_the_counts_again),
        CONFORM_TEST(no_retry_archives_at_the_first_failure),
        CONFORM_TEST(a_failure_for_good_archives_at_once),
        CONFORM_TEST(a_hand_back_is_not_counted),
        CONFORM_TEST(a_hand_back_with_a_delay_waits_for_it),
        CONFORM_TEST(later_waits_and_is_not_a_failure),
        CONFORM_TEST(a_drop_is_processed_and_keeps_nothing),
        CONFORM_TEST(a_second_finish_is_refused_and_changes_nothing),
        CONFORM_TEST(unknown_ids_and_other_epochs_are_refused),
        CONFORM_TEST(a_finish_without_the_shortcut_is_accepted),
        CONFORM_TEST(a_batch_of_finishes_answers_per_item),
        CONFORM_TEST(too_big_a_result_is_refused_and_the_run_goes_on),
        CONFORM_TEST(an_error_text_never_exceeds_its_limit),
        CONFORM_TEST(a_negative_delay_is_refused),
        CONFORM_TEST(when_it_began_is_said_of_what_runs_or_has_ended),
    };
    return CONFORM_RUN(engine, "finish", tests);
}
