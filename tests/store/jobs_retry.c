/* SPDX-License-Identifier: Apache-2.0 */
/* A retry goes step by step: what is seen of it meanwhile, who goes on with it, and that nobody has to wait for it. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store/job_kit.h"

enum {
    PAGE = 1000,
    STEPS = 20,          /* of the retry that others do not wait for */
    LEASE_MS = 10000,    /* of a server, as it is by default ... */
    RENEW_MS_MAX = 2000, /* ... of which a renewal may take so much */
};

/* One step of job 1; answers whether it has more before it. */
static bool step(struct suite *t, uint32_t round, size_t max)
{
    struct mr_store_job_act act = {
        .req.op = MR_STORE_JOB_RETRY, .uid = suite_uid(1), .round = round, .max = max};
    assert_err(mr_store_call(t->store, &act.req), MR_OK);
    bool more = mr_store_job_retrying(&act.job);
    mr_store_req_done(&act.req);
    return more;
}

static size_t step_to_the_end(struct suite *t, uint32_t round, size_t max)
{
    size_t n = 1;
    while (step(t, round, max)) {
        n++;
        suite_forget(t);
    }
    return n;
}

static void fail_parts(struct suite *t, uint32_t stage, uint64_t first, uint64_t n)
{
    static struct mr_store_end items[PAGE];
    static enum mr_err results[PAGE];
    for (uint64_t done = 0; done < n;) {
        struct mr_store_parts_read *read =
            kit_read(t, (struct mr_store_parts_read){.uid = suite_uid(1),
                                                     .from = first + done,
                                                     .max = n - done < PAGE ? n - done : PAGE});
        for (size_t i = 0; i < read->n; i++)
            items[i] = (struct mr_store_end){.uid = suite_uid(1),
                                             .index = read->parts[i].index,
                                             .segment = read->parts[i].segment,
                                             .stage = stage,
                                             .round = read->round,
                                             .failed = true,
                                             .bytes = MR_SLICE_LIT("why")};
        struct mr_store_parts_end end = {
            .req.op = MR_STORE_PARTS_END, .items = items, .n = read->n, .results = results};
        assert_err(mr_store_call(t->store, &end.req), MR_OK);
        for (size_t i = 0; i < read->n; i++)
            assert_err(results[i], MR_OK);
        mr_store_req_done(&end.req);
        done += read->n;
        suite_forget(t);
    }
}

static size_t count_parts(struct suite *t, enum mr_part_state state)
{
    return kit_parts(t, (struct mr_store_parts_list){.uid = suite_uid(1),
                                                     .states = 1u << state,
                                                     .max = PAGE})
        ->n;
}

static uint64_t begin_of(struct suite *t)
{
    return kit_segments(t)->begin;
}

/* Job 1, of so many parts in segments of 7, all of which failed; it has ended. */
static void make_failed(struct suite *t, uint64_t parts)
{
    MAKE(t, .policy = MR_JOB_FINISH, .parts = parts, .segment_parts = 7);
    kit_submit(t, 1, 0);
    fail_parts(t, 0, 0, parts);
    assert_err(ACT(t, MR_STORE_JOB_END, 1, .state = MR_JOBROW_SUCCEEDED), MR_OK);
}

/* ---- what is seen ---------------------------------------------------------------------------- */

/* 20 parts: 0..4 are through, 5..8 failed in the last stage, 9 is on its way there, 10..19 failed in the first. */
static void make_two_stages(struct suite *t)
{
    MAKE(t, .stages = 2, .policy = MR_JOB_FINISH, .parts = 20, .segment_parts = 7);
    kit_submit(t, 1, 0);
    kit_end_all(t, 1, 0, 0, 10);
    fail_parts(t, 0, 10, 10);
    kit_submit(t, 1, 1);
    kit_end_all(t, 1, 1, 0, 5);
    fail_parts(t, 1, 5, 4);
    assert_err(ACT(t, MR_STORE_JOB_CANCEL, 1), MR_OK);
}

static void check_retrying(struct suite *t, uint64_t version)
{
    struct mr_store_advance advance = {.uid = suite_uid(1), .round = 2, .from = 20, .to = 20};
    struct mr_store_advance ready = {
        .uid = suite_uid(1), .round = 2, .stage = MR_STORE_STAGE_READY, .to = 1};
    const struct mr_store_job *job = kit_get(t, 1);
    assert_int_equal(job->state, MR_JOBROW_RUNNING);
    assert_int_equal(job->round, 2);
    assert_int_equal(job->version, version);
    assert_int_equal(mr_store_job_failed(job), 0);
    assert_int_equal(job->stages[0].done, 10);
    assert_int_equal(job->stages[1].done, 5);
    assert_int_equal(job->stages[1].total, 20);
    assert_int_equal(count_parts(t, MR_PART_FAILED), 0);
    assert_int_equal(count_parts(t, MR_PART_SUBMITTED), 0);
    assert_int_equal(count_parts(t, MR_PART_WAITING), 15);
    kit_check(t, 1);
    /* Nothing of it moves. */
    assert_err(kit_advance(t, (struct mr_store_fence){0}, advance), MR_STALE);
    ready.from = job->ready_cursor;
    ready.to = job->ready_last;
    assert_err(kit_advance(t, (struct mr_store_fence){0}, ready), MR_STALE);
    assert_err(kit_again(t, 1, 2, (struct mr_store_again){.index = 9, .segment = 2, .stage = 1}),
               MR_STALE);
    suite_forget(t);
}

static void test_a_retry_of_many_steps_is_seen_as_one(void **state)
{
    struct suite *t = *state;
    size_t steps = 0;
    make_two_stages(t);
    uint64_t version = kit_get(t, 1)->version + 1;
    assert_int_equal(begin_of(t), 3);
    for (; step(t, 0, 3); steps++)
        check_retrying(t, version);
    assert_true(steps >= 19); /* a part has two stages */
    assert_int_equal(kit_get(t, 1)->version, version + 1);
    assert_int_equal(kit_get(t, 1)->retry_next, MR_STORE_RETRY_NONE);
    assert_int_equal(begin_of(t), 1);
    kit_check(t, 1);
    assert_false(step(t, 0, 3)); /* there is nothing to be repeated */
    assert_int_equal(kit_get(t, 1)->version, version + 1);
    /* Then it goes on as any other. */
    assert_int_equal(kit_submit_ready(t, 1), 15);
    kit_check(t, 1);
    kit_end_all(t, 1, 0, 10, 10);
    kit_end_all(t, 1, 1, 5, 5);
    assert_int_equal(kit_submit_ready(t, 1), 10);
    kit_end_all(t, 1, 1, 10, 10);
    assert_int_equal(kit_get(t, 1)->state, MR_JOBROW_REDUCING);
    assert_int_equal(begin_of(t), 3);
    kit_check(t, 1);
}

static void test_results_that_come_while_a_job_is_retried_count_once(void **state)
{
    struct suite *t = *state;
    MAKE(t, .policy = MR_JOB_FINISH);
    kit_submit(t, 1, 0);
    fail_parts(t, 0, 0, 5);
    assert_err(ACT(t, MR_STORE_JOB_CANCEL, 1), MR_OK);
    assert_true(step(t, 0, 1));
    assert_true(step(t, 0, 1));
    assert_int_equal(kit_get(t, 1)->retry_next, 2);
    assert_err(END(t, 1, .index = 0), MR_OK);       /* it waits, and need not any more */
    assert_err(END(t, 1, .index = 3), MR_CONFLICT); /* its failure is there */
    assert_err(END(t, 1, .index = 6), MR_OK);       /* the retry has yet to come to it */
    assert_err(END(t, 1, .index = 7, .failed = true), MR_STALE);
    kit_check(t, 1);
    step_to_the_end(t, 0, 1);
    kit_check(t, 1);
    assert_int_equal(kit_submit_ready(t, 1), 8);
    kit_check(t, 1);
    kit_end_all(t, 1, 0, 1, 5);
    kit_end_all(t, 1, 0, 7, 3);
    assert_int_equal(kit_get(t, 1)->state, MR_JOBROW_REDUCING);
    kit_check(t, 1);
}

static void test_a_part_that_ends_while_a_pipeline_is_retried_goes_on_once(void **state)
{
    struct suite *t = *state;
    MAKE(t, .stages = 2, .pipeline = true, .policy = MR_JOB_FINISH);
    kit_submit(t, 1, 0);
    assert_err(ACT(t, MR_STORE_JOB_CANCEL, 1), MR_OK);
    assert_true(step(t, 0, 2));
    kit_end_all(t, 1, 0, 0, 1); /* the retry was there */
    kit_end_all(t, 1, 0, 8, 1); /* and here it was not */
    kit_check(t, 1);
    step_to_the_end(t, 0, 2);
    kit_check(t, 1);
    assert_int_equal(kit_submit_ready(t, 1), 8 + 2);
    kit_check(t, 1);
}

/* A result is many big rows, and a ready list may be as long as the job. */
static void test_what_a_retry_removes_goes_step_by_step(void **state)
{
    struct suite *t = *state;
    MAKE(t, .stages = 2, .pipeline = true, .policy = MR_JOB_FINISH);
    kit_submit(t, 1, 0);
    kit_end_all(t, 1, 0, 0, 10); /* ten rows are ready */
    kit_submit_ready(t, 1);
    kit_end_all(t, 1, 1, 0, 9);
    fail_parts(t, 1, 9, 1);
    for (uint32_t i = 0; i < 5; i++)
        assert_err(kit_chunk(t, (struct mr_store_result_add){.uid = suite_uid(1),
                                                             .seq = i,
                                                             .bytes = MR_SLICE_LIT("piece")}),
                   MR_OK);
    assert_err(ACT(t, MR_STORE_JOB_END, 1, .state = MR_JOBROW_SUCCEEDED, .chunks = 5), MR_OK);
    assert_true(step(t, 0, 2));
    t->engine->check(t->engine->arg, "SELECT count(*) FROM job_result", 3);
    assert_int_equal(kit_get(t, 1)->retry_next, 0);
    step_to_the_end(t, 0, 2);
    t->engine->check(t->engine->arg, "SELECT count(*) FROM job_result", 0);
    t->engine->check(t->engine->arg, "SELECT count(*) FROM ready", 1);
    kit_check(t, 1);
    /* Cancelled with all of the list before it, and retried. */
    assert_err(ACT(t, MR_STORE_JOB_CANCEL, 1), MR_OK);
    step_to_the_end(t, 2, 1);
    t->engine->check(t->engine->arg, "SELECT count(*) FROM ready", 1);
    assert_int_equal(kit_submit_ready(t, 1), 1);
    kit_check(t, 1);
}

/* ---- what comes between ---------------------------------------------------------------------- */

static void test_a_retry_that_is_cancelled_on_the_way_can_be_retried(void **state)
{
    struct suite *t = *state;
    make_failed(t, 20);
    for (int i = 0; i < 3; i++)
        assert_true(step(t, 0, 3));
    assert_err(ACT(t, MR_STORE_JOB_CANCEL, 1), MR_OK);
    const struct mr_store_job *job = kit_get(t, 1);
    assert_int_equal(job->state, MR_JOBROW_CANCELLED);
    assert_false(mr_store_job_retrying(job));
    assert_false(step(t, 0, 3)); /* whoever was on the way has nothing more to do */
    assert_int_equal(count_parts(t, MR_PART_WAITING), 20);
    assert_int_equal(begin_of(t), 3);
    kit_check(t, 1);
    assert_true(step(t, 2, 3));
    kit_check(t, 1);
    step_to_the_end(t, 2, 3);
    assert_int_equal(begin_of(t), 1);
    kit_check(t, 1);
    assert_int_equal(kit_submit_ready(t, 1), 20);
    kit_end_all(t, 1, 0, 0, 20);
    assert_int_equal(kit_get(t, 1)->state, MR_JOBROW_REDUCING);
    kit_check(t, 1);
}

static void test_counters_that_are_lost_while_a_job_is_retried_are_made_anew(void **state)
{
    struct suite *t = *state;
    make_two_stages(t);
    for (int i = 0; i < 8; i++)
        assert_true(step(t, 0, 3));
    t->engine->sql(t->engine->arg, "DELETE FROM job_stage WHERE stage = 1");
    const struct mr_store_job *job = kit_get(t, 1); /* counted, and not written */
    assert_int_equal(job->stages[1].done, 5);
    assert_int_equal(mr_store_job_failed(job), 0);
    step_to_the_end(t, 0, 3);
    kit_check(t, 1);
    job = kit_get(t, 1);
    assert_int_equal(job->stages[0].done, 10);
    assert_int_equal(job->stages[1].done, 5);
    assert_int_equal(mr_store_job_failed(job), 0);
    /* The cursor of the last stage is behind the last that was through: the others come to it in order. */
    assert_int_equal(kit_submit_ready(t, 1), 10);
    kit_end_all(t, 1, 0, 10, 10);
    assert_int_equal(kit_submit(t, 1, 1), 15);
    kit_end_all(t, 1, 1, 5, 15);
    assert_int_equal(kit_get(t, 1)->state, MR_JOBROW_REDUCING);
    kit_check(t, 1);
}

/* ---- deaths ---------------------------------------------------------------------------------- */

_Noreturn static void retry_until_killed(const char *url, int out)
{
    struct mr_store *store = NULL;
    if (mr_store_open(&(struct mr_store_options){.url = url}, &store, NULL) != MR_OK)
        _exit(2);
    for (;;) {
        struct mr_store_job_act act = {.req.op = MR_STORE_JOB_RETRY, .uid = suite_uid(1), .max = 1};
        if (mr_store_call(store, &act.req) != MR_OK)
            _exit(3);
        mr_store_req_done(&act.req);
        if (write(out, "+", 1) != 1)
            _exit(4);
    }
}

static void kill_after(struct suite *t, unsigned steps)
{
    int ends[2], status = 0;
    char byte;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        retry_until_killed(t->url, ends[1]);
    (void)close(ends[1]);
    for (unsigned i = 0; i < steps && read(ends[0], &byte, 1) == 1;)
        i++;
    (void)kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    (void)close(ends[0]);
}

static void test_a_retry_whose_process_is_killed_goes_on_where_it_was(void **state)
{
    struct suite *t = *state;
    enum { PARTS = 300 };
    make_failed(t, PARTS);
    uint64_t kills = suite_size("MR_STORE_KILLS", 4), next = 0;
    for (unsigned i = 0; i < kills; i++) {
        suite_close(t); /* no thread of ours is alive when we fork */
        kill_after(t, 1 + 3 * i);
        suite_open(t, NULL);
        const struct mr_store_job *job = kit_get(t, 1);
        assert_int_equal(job->state, MR_JOBROW_RUNNING);
        assert_int_equal(mr_store_job_failed(job), 0);
        if (!mr_store_job_retrying(job))
            break;                           /* it was so fast */
        assert_true(job->retry_next > next); /* what was answered is there */
        next = job->retry_next;
        assert_int_equal(count_parts(t, MR_PART_WAITING), PARTS);
        kit_check(t, 1);
    }
    step_to_the_end(t, 0, 50);
    kit_check(t, 1);
    assert_int_equal(kit_submit_ready(t, 1), PARTS);
    kit_end_all(t, 1, 0, 0, PARTS);
    assert_int_equal(kit_get(t, 1)->state, MR_JOBROW_REDUCING);
    kit_check(t, 1);
}

/* ---- others ---------------------------------------------------------------------------------- */

struct holder {
    struct mr_store *store;
    struct mr_store_lease_result last;
    _Atomic bool stop;
    _Atomic uint64_t renewals;
    int64_t longest_ms;
    pthread_t thread;
};

/* What is wrong is left in `last`: no cmocka in threads. */
static void *renew(void *arg)
{
    struct holder *holder = arg;
    while (!atomic_load(&holder->stop) && holder->last.err == MR_OK) {
        struct mr_store_lease_item item = {.verb = MR_LEASE_RENEW,
                                           .name = MR_SLICE_LIT("app:a"),
                                           .owner = MR_SLICE_LIT("me"),
                                           .token = holder->last.token,
                                           .ttl_ms = LEASE_MS};
        struct mr_store_lease lease = {
            .req.op = MR_STORE_LEASE, .items = &item, .n = 1, .results = &holder->last};
        mr_mono since = suite_mono();
        enum mr_err err = mr_store_call(holder->store, &lease.req);
        if (err != MR_OK)
            holder->last.err = err;
        mr_store_req_done(&lease.req);
        int64_t took_ms = suite_elapsed_ms(since);
        holder->longest_ms = took_ms > holder->longest_ms ? took_ms : holder->longest_ms;
        atomic_fetch_add(&holder->renewals, 1);
    }
    return NULL;
}

static void test_leases_are_renewed_while_a_big_job_is_retried(void **state)
{
    struct suite *t = *state;
    uint64_t parts = suite_size("MR_PARTS", 20000);
    size_t max = parts / STEPS < MR_STORE_RETRY_PARTS ? (size_t)(parts / STEPS) : 0;
    struct holder holder = {.store = t->store};
    MAKE(t, .policy = MR_JOB_FINISH, .parts = parts);
    kit_submit(t, 1, 0);
    fail_parts(t, 0, 0, parts);
    assert_err(ACT(t, MR_STORE_JOB_END, 1, .state = MR_JOBROW_SUCCEEDED), MR_OK);
    holder.last = LEASE(t, .owner = MR_SLICE_LIT("me"), .ttl_ms = LEASE_MS);
    assert_err(holder.last.err, MR_OK);
    assert_err(mr_thread_start(&holder.thread, "holder", renew, &holder), MR_OK);
    WAIT_UNTIL(atomic_load(&holder.renewals) > 0);
    uint64_t before = atomic_load(&holder.renewals);
    mr_mono since = suite_mono();
    size_t steps = step_to_the_end(t, 0, max);
    int64_t took_ms = suite_elapsed_ms(since);
    uint64_t renewals = atomic_load(&holder.renewals) - before;
    atomic_store(&holder.stop, true);
    mr_thread_join(holder.thread);
    print_message("%llu parts retried in %lld ms, %zu steps; a renewal took %lld ms at most\n",
                  (unsigned long long)parts, (long long)took_ms, steps,
                  (long long)holder.longest_ms);
    assert_err(holder.last.err, MR_OK);
    assert_true(steps >= STEPS);
    assert_true(renewals >= steps / 4); /* they come between any two steps */
    if (suite_judges_time())
        assert_true(holder.longest_ms < RENEW_MS_MAX);
    assert_int_equal(kit_get(t, 1)->stages[0].sent, 0);
}

int suite_jobs_retry(const struct suite_engine *engine)
{
    struct CMUnitTest tests[] = {
        SUITE_TEST(test_a_retry_of_many_steps_is_seen_as_one),
        SUITE_TEST(test_results_that_come_while_a_job_is_retried_count_once),
        SUITE_TEST(test_a_part_that_ends_while_a_pipeline_is_retried_goes_on_once),
        SUITE_TEST(test_what_a_retry_removes_goes_step_by_step),
        SUITE_TEST(test_a_retry_that_is_cancelled_on_the_way_can_be_retried),
        SUITE_TEST(test_counters_that_are_lost_while_a_job_is_retried_are_made_anew),
        SUITE_TEST(test_a_retry_whose_process_is_killed_goes_on_where_it_was),
        SUITE_TEST(test_leases_are_renewed_while_a_big_job_is_retried),
    };
    return SUITE_RUN(engine, "retries of jobs", tests);
}
