/* SPDX-License-Identifier: Apache-2.0 */
/* The ledger of the selftest: it finds nothing where all is well, and each kind of wrong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/slice.h"
#include "cli/selftest.h"
#include "client/client.h"
#include "unit/temp_dir.h"

enum { TASKS = 30 };

struct fixture {
    char dir[TEMP_DIR_MAX];
    struct mr_client *client;
    struct selftest_ledger ledger;
    struct mr_lock lock; /* of the ledger, which the handler tells */
    /* What the handler does wrong, to which task. */
    uint32_t victim;
    enum { FINE, OTHER_RESULT, SECOND_FAILURE, UNSEEN_RUN, FOR_GOOD } mischief;
};

static void hear(struct fixture *f, enum selftest_kind kind, uint32_t token, uint64_t epoch)
{
    struct selftest_message message = {
        .kind = kind, .token = token, .epoch = epoch, .outcome = MR_DONE};
    mr_lock_enter(&f->lock);
    ledger_hear(&f->ledger, &message);
    mr_lock_leave(&f->lock);
}

static void enqueue(struct fixture *f, uint32_t token, const char *other_id)
{
    uint8_t payload[SELFTEST_PAYLOAD_MAX];
    char id[32];
    struct mr_enqueue_result result;
    selftest_id(token, id);
    struct mr_task_options task = {.queue = MR_SLICE_LIT(SELFTEST_QUEUE),
                                   .id = mr_slice_str(other_id ? other_id : id),
                                   .payload.data = payload,
                                   .retention_ms = 3600 * 1000};
    task.payload.len = selftest_payload(token, payload);
    assert_int_equal(mr_enqueue(f->client, &task, 1, &result), MR_OK);
    assert_int_equal(result.err, MR_OK);
}

static enum mr_outcome handle(struct mr_run *run, void *arg)
{
    struct fixture *f = arg;
    const struct mr_task *task = mr_run_task(run);
    uint32_t token = selftest_token(task->payload);
    char result[SELFTEST_RESULT_MAX];
    uint64_t epoch = task->epoch;
    bool victim = token == f->victim;
    if (!victim || f->mischief != UNSEEN_RUN)
        hear(f, SELFTEST_RUNS, token, epoch);
    if (victim && f->mischief == FOR_GOOD)
        return MR_FAIL_FOR_GOOD;
    mr_run_retry_after(run, 1);
    uint32_t failures = selftest_fails_first(token);
    failures += victim && f->mischief == SECOND_FAILURE;
    if (task->retried < failures)
        return MR_FAIL;
    epoch += victim && f->mischief == OTHER_RESULT;
    size_t len = selftest_result(token, epoch, result);
    assert_int_equal(mr_run_result(run, mr_slice_make(result, len)), MR_OK);
    return MR_DONE;
}

static void ignore(const struct mr_task *task, const char *error, void *arg)
{
    (void)task, (void)error, (void)arg;
}

static void work_off(struct fixture *f)
{
    struct mr_worker_queue queue = {MR_SLICE_LIT(SELFTEST_QUEUE), 1};
    struct mr_worker_options options = {
        .queues = &queue, .queues_n = 1, .slots = 2, .on_error = ignore, .burst = true};
    struct mr_worker *worker = NULL;
    struct mr_queue_info info;
    do {
        assert_int_equal(mr_worker_new(f->client, &options, &worker), MR_OK);
        assert_int_equal(mr_worker_handle(worker, "*", handle, f), MR_OK);
        assert_int_equal(mr_worker_run(worker), MR_OK);
        mr_worker_free(worker);
        assert_int_equal(mr_queue_get(f->client, mr_slice_str(SELFTEST_QUEUE), &info), MR_OK);
    } while (info.counts[MR_RETRY] + info.counts[MR_PENDING] > 0);
}

/* Acknowledged tasks that are worked off. */
static void do_all(struct fixture *f)
{
    for (uint32_t token = 0; token < TASKS; token++) {
        enqueue(f, token, NULL);
        hear(f, SELFTEST_ACKNOWLEDGED, token, 0);
    }
    work_off(f);
}

static int begin(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    char url[TEMP_DIR_MAX + 8];
    temp_dir_make(f->dir);
    mr_lock_init(&f->lock);
    f->victim = UINT32_MAX;
    snprintf(url, sizeof url, "file:%s", f->dir);
    assert_int_equal(mr_client_open(url, NULL, &f->client, NULL), MR_OK);
    *state = f;
    return 0;
}

static int end(void **state)
{
    struct fixture *f = *state;
    mr_client_close(f->client);
    temp_dir_remove(f->dir);
    ledger_done(&f->ledger);
    mr_lock_done(&f->lock);
    free(f);
    return 0;
}

/* The findings of a look at everything. */
static void check(struct fixture *f, uint64_t lost, uint64_t twice, uint64_t wrong)
{
    assert_int_equal(ledger_check(&f->ledger, f->client), MR_OK);
    assert_int_equal(f->ledger.lost, lost);
    assert_int_equal(f->ledger.twice, twice);
    assert_int_equal(f->ledger.wrong, wrong);
    assert_int_equal(ledger_is_clean(&f->ledger), lost + twice + wrong == 0);
    assert_int_equal(f->ledger.first.text[0] == '\0', lost + twice + wrong == 0);
}

static void nothing_is_found_where_all_is_well(void **state)
{
    struct fixture *f = *state;
    do_all(f);
    check(f, 0, 0, 0);
    assert_int_equal(f->ledger.finished, TASKS);
}

static void a_task_in_doubt_may_be_there_or_not(void **state)
{
    struct fixture *f = *state;
    enqueue(f, TASKS, NULL);
    hear(f, SELFTEST_IN_DOUBT, TASKS, 0);
    hear(f, SELFTEST_IN_DOUBT, TASKS + 1, 0);
    do_all(f);
    check(f, 0, 0, 0);
}

static void a_task_that_is_gone_is_lost(void **state)
{
    struct fixture *f = *state;
    do_all(f);
    hear(f, SELFTEST_ACKNOWLEDGED, TASKS, 0);
    check(f, 1, 0, 0);
}

static void a_task_nobody_sent_is_wrong(void **state)
{
    struct fixture *f = *state;
    enqueue(f, TASKS, NULL);
    do_all(f);
    check(f, 0, 0, 1);
}

static void a_task_under_two_ids_is_there_twice(void **state)
{
    struct fixture *f = *state;
    enqueue(f, 3, "other"); /* 3 has an id that the client makes */
    do_all(f);
    check(f, 0, 1, 0);
}

static void a_task_with_the_id_of_another_is_wrong(void **state)
{
    struct fixture *f = *state;
    enqueue(f, TASKS + 1, "other");
    hear(f, SELFTEST_ACKNOWLEDGED, TASKS + 1, 0);
    do_all(f);
    check(f, 0, 0, 1);
}

static void a_wrong_end_is_found(void **state)
{
    struct fixture *f = *state;
    f->victim = 5;
    f->mischief = OTHER_RESULT;
    do_all(f);
    check(f, 0, 0, 1);
}

static void a_failure_too_many_is_found(void **state)
{
    struct fixture *f = *state;
    f->victim = 5;
    f->mischief = SECOND_FAILURE;
    do_all(f);
    check(f, 0, 0, 1);
}

static void a_run_nobody_saw_is_found(void **state)
{
    struct fixture *f = *state;
    f->victim = 5;
    f->mischief = UNSEEN_RUN;
    do_all(f);
    check(f, 0, 0, 1);
}

static void a_task_in_the_archive_is_wrong(void **state)
{
    struct fixture *f = *state;
    f->victim = 5;
    f->mischief = FOR_GOOD;
    do_all(f);
    check(f, 0, 0, 1);
}

static void an_accepted_end_that_is_not_the_one_kept_is_the_second(void **state)
{
    struct fixture *f = *state;
    do_all(f);
    hear(f, SELFTEST_ACCEPTED, 5, f->ledger.entries[5].last_run - 1);
    f->ledger.twice = 0; /* heard already that it is under an old epoch */
    check(f, 0, 1, 0);
}

static void a_second_end_is_heard(void **state)
{
    struct fixture *f = *state;
    hear(f, SELFTEST_RUNS, 1, 100);
    hear(f, SELFTEST_ACCEPTED, 1, 100);
    assert_true(ledger_is_clean(&f->ledger));
    hear(f, SELFTEST_ACCEPTED, 1, 100);
    assert_int_equal(f->ledger.twice, 1);
}

static void a_run_after_the_end_is_heard(void **state)
{
    struct fixture *f = *state;
    hear(f, SELFTEST_RUNS, 1, 100);
    hear(f, SELFTEST_ACCEPTED, 1, 100);
    hear(f, SELFTEST_RUNS, 1, 90); /* of a worker that said it late */
    assert_true(ledger_is_clean(&f->ledger));
    hear(f, SELFTEST_RUNS, 1, 101);
    assert_int_equal(f->ledger.twice, 1);
}

static void an_epoch_that_comes_twice_is_heard(void **state)
{
    struct fixture *f = *state;
    hear(f, SELFTEST_RUNS, 1, 100);
    hear(f, SELFTEST_RUNS, 1, 100);
    assert_int_equal(f->ledger.twice, 1);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(nothing_is_found_where_all_is_well),
        TEST(a_task_in_doubt_may_be_there_or_not),
        TEST(a_task_that_is_gone_is_lost),
        TEST(a_task_nobody_sent_is_wrong),
        TEST(a_task_under_two_ids_is_there_twice),
        TEST(a_task_with_the_id_of_another_is_wrong),
        TEST(a_wrong_end_is_found),
        TEST(a_failure_too_many_is_found),
        TEST(a_run_nobody_saw_is_found),
        TEST(a_task_in_the_archive_is_wrong),
        TEST(an_accepted_end_that_is_not_the_one_kept_is_the_second),
        TEST(a_second_end_is_heard),
        TEST(a_run_after_the_end_is_heard),
        TEST(an_epoch_that_comes_twice_is_heard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
