/* SPDX-License-Identifier: Apache-2.0 */
/* Several stores, and processes that are killed, on the jobs of one database. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store/job_kit.h"

enum { RIVALS = 3, JOBS = 4, PARTS = 60, SEGMENT = 25, OUTCOMES = 400, BATCH = 20, CUT_STEP = 6 };

struct rival {
    struct suite t; /* its own store, on the URL of the test */
    unsigned number;
    pthread_t thread;
    uint64_t accepted;
};

static void run_rivals(struct suite *t, struct rival *rivals, void *(*run)(void *arg))
{
    memset(rivals, 0, RIVALS * sizeof *rivals);
    for (unsigned i = 0; i < RIVALS; i++) {
        rivals[i].t.engine = t->engine;
        memcpy(rivals[i].t.url, t->url, sizeof t->url);
        rivals[i].number = i;
        suite_open(&rivals[i].t, NULL);
    }
    for (unsigned i = 0; i < RIVALS; i++)
        assert_err(mr_thread_start(&rivals[i].thread, "rival", run, &rivals[i]), MR_OK);
    for (unsigned i = 0; i < RIVALS; i++)
        mr_thread_join(rivals[i].thread);
    for (unsigned i = 0; i < RIVALS; i++)
        suite_close(&rivals[i].t);
}

/* No cmocka in threads: what is wrong ends the program. */
static void must(enum mr_err err)
{
    if (err != MR_OK)
        mr_assert_fail(mr_err_name(err), __FILE__, __LINE__, __func__);
}

/* ---- loading --------------------------------------------------------------------------------- */

static void *load_jobs(void *arg)
{
    struct rival *rival = arg;
    for (unsigned i = 0; i < JOBS; i++) {
        unsigned uid = 1 + rival->number * JOBS + i;
        must(kit_begin(&rival->t, (struct kit_job){.uid = uid}));
        for (uint64_t first = 0; first < PARTS; first += BATCH)
            must(kit_add(&rival->t, uid, first, BATCH, SEGMENT));
        must(ACT(&rival->t, MR_STORE_JOB_COMMIT, uid, .total = PARTS));
    }
    return NULL;
}

static void test_118_stores_that_pass_the_threshold_together_make_one_segment(void **state)
{
    struct suite *t = *state;
    static struct rival rivals[RIVALS];
    run_rivals(t, rivals, load_jobs);
    struct mr_store_segments *segments = kit_segments(t);
    uint64_t parts = RIVALS * JOBS * PARTS;
    assert_int_equal(segments->end, 1 + parts / SEGMENT);
    assert_int_equal(segments->n, segments->end);
    for (size_t i = 0; i < segments->n; i++) {
        assert_int_equal(segments->segments[i].n, i + 1);
        assert_int_equal(segments->segments[i].parts,
                         i + 1 < segments->n ? SEGMENT : parts % SEGMENT);
    }
    for (unsigned uid = 1; uid <= RIVALS * JOBS; uid++)
        kit_check(t, uid);
}

/* ---- outcomes -------------------------------------------------------------------------------- */

/* Everybody has every result, in another order, several in each request, and repeats some. */
static void *end_parts(void *arg)
{
    struct rival *rival = arg;
    static const uint64_t steps[RIVALS] = {7, 11, 13};
    for (uint64_t i = 0; i < OUTCOMES; i += BATCH) {
        struct mr_store_end items[BATCH];
        enum mr_err results[BATCH];
        for (uint64_t j = 0; j < BATCH; j++) {
            uint64_t index = (i + j) * steps[rival->number] % OUTCOMES;
            items[j] = (struct mr_store_end){.uid = suite_uid(1),
                                             .index = index,
                                             .segment = 1 + index / 100,
                                             .bytes = MR_SLICE_LIT("r")};
        }
        struct mr_store_parts_end end = {
            .req.op = MR_STORE_PARTS_END, .items = items, .n = BATCH, .results = results};
        must(mr_store_call(rival->t.store, &end.req));
        mr_store_req_done(&end.req);
        for (size_t j = 0; j < BATCH; j++) {
            rival->accepted += results[j] == MR_OK ? 1 : 0;
            if (results[j] != MR_OK && results[j] != MR_CONFLICT)
                must(results[j]);
        }
    }
    return NULL;
}

static void test_an_outcome_that_comes_to_several_is_accepted_once(void **state)
{
    struct suite *t = *state;
    static struct rival rivals[RIVALS];
    MAKE(t, .parts = OUTCOMES, .segment_parts = 100);
    kit_submit(t, 1, 0);
    run_rivals(t, rivals, end_parts);
    uint64_t accepted = 0;
    for (unsigned i = 0; i < RIVALS; i++)
        accepted += rivals[i].accepted;
    assert_int_equal(accepted, OUTCOMES);
    assert_int_equal(kit_get(t, 1)->state, MR_JOBROW_REDUCING);
    assert_int_equal(kit_get(t, 1)->stages[0].done, OUTCOMES);
    kit_check(t, 1);
}

/* Loading, ending, retention, all at once, also in the same transactions. */
static void *do_everything(void *arg)
{
    struct rival *rival = arg;
    struct suite *t = &rival->t;
    for (unsigned i = 0; i < JOBS; i++) {
        unsigned uid = 1 + rival->number * JOBS + i;
        must(kit_begin(t, (struct kit_job){.uid = uid, .retention_ms = i % 2}));
        must(kit_add(t, uid, 0, PARTS, SEGMENT));
        must(ACT(t, MR_STORE_JOB_COMMIT, uid, .total = PARTS));
        for (uint64_t index = 0; index < PARTS;) {
            struct mr_store_parts_read read = {
                .req.op = MR_STORE_PARTS_READ, .uid = suite_uid(uid), .from = index, .max = BATCH};
            must(mr_store_call(t->store, &read.req));
            struct mr_store_end items[BATCH];
            enum mr_err results[BATCH];
            for (size_t j = 0; j < read.n; j++)
                items[j] = (struct mr_store_end){.uid = read.uid,
                                                 .index = read.parts[j].index,
                                                 .segment = read.parts[j].segment};
            struct mr_store_parts_end end = {
                .req.op = MR_STORE_PARTS_END, .items = items, .n = read.n, .results = results};
            must(mr_store_call(t->store, &end.req));
            for (size_t j = 0; j < read.n; j++)
                must(results[j]);
            index = read.next;
            mr_store_req_done(&end.req);
            mr_store_req_done(&read.req);
        }
        must(ACT(t, MR_STORE_JOB_END, uid, .state = MR_JOBROW_SUCCEEDED));
        struct mr_store_job_retain jobs = {.req.op = MR_STORE_JOB_RETAIN, .max = 50};
        must(mr_store_call(t->store, &jobs.req));
        struct mr_store_segment_retain segments = {.req.op = MR_STORE_SEGMENT_RETAIN, .max = 50};
        must(mr_store_call(t->store, &segments.req));
    }
    return NULL;
}

static void test_jobs_are_made_and_ended_while_segments_are_dropped(void **state)
{
    struct suite *t = *state;
    static struct rival rivals[RIVALS];
    run_rivals(t, rivals, do_everything);
    struct mr_store_job_list *list = kit_list(t, (struct mr_store_job_list){.max = 100});
    for (size_t i = 0; i < list->n; i++) {
        assert_int_equal(list->jobs[i].state, MR_JOBROW_SUCCEEDED);
        assert_int_equal(mr_store_job_done(&list->jobs[i]), PARTS);
    }
    while (kit_segment_retain(t, 0, 1000)->more)
        ;
    struct mr_store_segments *segments = kit_segments(t);
    assert_int_equal(segments->n, 1);
    assert_int_equal(segments->end, 1 + RIVALS * JOBS * PARTS / SEGMENT);
}

/* ---- cuts ------------------------------------------------------------------------------------ */

/* One job from its beginning to its end, without assertions, which would leave the other thread behind. */
static enum mr_err run_job(struct suite *t, unsigned uid)
{
    MR_TRY(kit_begin(t, (struct kit_job){.uid = uid}));
    for (uint64_t first = 0; first < PARTS; first += BATCH)
        MR_TRY(kit_add(t, uid, first, BATCH, SEGMENT));
    MR_TRY(ACT(t, MR_STORE_JOB_COMMIT, uid, .total = PARTS));
    for (uint64_t index = 0; index < PARTS; index += CUT_STEP) {
        struct mr_store_advance item = {
            .uid = suite_uid(uid), .from = index, .to = index + CUT_STEP, .parts = CUT_STEP};
        MR_TRY(kit_advance(t, (struct mr_store_fence){0}, item));
        struct mr_store_end ends[CUT_STEP];
        enum mr_err results[CUT_STEP];
        for (uint64_t i = 0; i < CUT_STEP; i++)
            ends[i] = (struct mr_store_end){
                .uid = suite_uid(uid), .index = index + i, .segment = 1 + (index + i) / SEGMENT};
        struct mr_store_parts_end end = {
            .req.op = MR_STORE_PARTS_END, .items = ends, .n = CUT_STEP, .results = results};
        MR_TRY(mr_store_call(t->store, &end.req));
        mr_store_req_done(&end.req);
        for (size_t i = 0; i < CUT_STEP; i++)
            MR_TRY(results[i] == MR_CONFLICT ? MR_OK : results[i]);
    }
    return ACT(t, MR_STORE_JOB_END, uid, .state = MR_JOBROW_SUCCEEDED);
}

static void test_cuts_at_any_moment_lose_and_double_no_parts(void **state)
{
    struct suite *t = *state;
    struct suite_cutter cutter;
    suite_cutter_start(&cutter, t);
    enum mr_err err = run_job(t, 1);
    suite_cutter_stop(&cutter);
    assert_err(err, MR_OK);
    assert_true(cutter.cuts > 0);
    const struct mr_store_job *job = kit_get(t, 1);
    assert_int_equal(job->state, MR_JOBROW_SUCCEEDED);
    assert_int_equal(job->stages[0].done, PARTS);
    assert_int_equal(job->stages[0].sent, PARTS);
    kit_check(t, 1);
    uint64_t end = 1 + PARTS / SEGMENT;
    struct mr_store_segments *segments = kit_segments(t);
    assert_int_equal(segments->begin, end);
    assert_int_equal(segments->end, end);
    assert_int_equal(segments->n, end);
}

/* ---- deaths ---------------------------------------------------------------------------------- */

enum { DEATH_PARTS = 300, DEATH_BATCH = 10, DEATH_SEGMENT = 35 };

/* Loads one job after the other, several requests in flight, and tells the number of each that was committed. */
_Noreturn static void load_until_killed(const char *url, unsigned uid, int out)
{
    static struct suite t;
    struct mr_detail detail;
    if (mr_store_open(&(struct mr_store_options){.url = url}, &t.store, &detail) != MR_OK)
        _exit(2);
    for (;; uid++) {
        if (kit_begin(&t, (struct kit_job){.uid = uid}) != MR_OK)
            _exit(3);
        for (uint64_t first = 0; first < DEATH_PARTS; first += DEATH_BATCH) {
            if (kit_add(&t, uid, first, DEATH_BATCH, DEATH_SEGMENT) != MR_OK)
                _exit(4);
            /* That it has come so far: whoever kills it waits for some of these. */
            if (write(out, &(unsigned){0}, sizeof uid) < 0)
                _exit(5);
        }
        if (ACT(&t, MR_STORE_JOB_COMMIT, uid, .total = DEATH_PARTS) != MR_OK)
            _exit(6);
        if (write(out, &uid, sizeof uid) < 0)
            _exit(7);
    }
}

/* Answers the last job that was acknowledged. */
static unsigned kill_one(struct suite *t, unsigned uid, unsigned steps)
{
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        load_until_killed(t->url, uid, ends[1]);
    (void)close(ends[1]);
    unsigned last = uid - 1, told;
    for (unsigned i = 0; i < steps && read(ends[0], &told, sizeof told) == sizeof told; i++)
        last = told > 0 ? told : last;
    (void)kill(pid, SIGKILL);
    while (read(ends[0], &told, sizeof told) == sizeof told)
        last = told > 0 ? told : last;
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    (void)close(ends[0]);
    return last;
}

/* Each is there, and all but the last are full. */
static void check_segments(struct suite *t)
{
    const struct mr_store_segments *page;
    uint64_t number = 0;
    do {
        page = kit_segments_after(t, number);
        for (size_t i = 0; i < page->n; i++) {
            const struct mr_store_segment *segment = &page->segments[i];
            assert_int_equal(segment->n, ++number);
            assert_true(segment->n < page->end ? segment->parts == DEATH_SEGMENT
                                               : segment->parts < DEATH_SEGMENT);
        }
    } while (page->more);
    assert_int_equal(number, page->end);
}

/* The range of segments is whole, and the parts of each job are in them. */
static void check_whole(struct suite *t, unsigned first, unsigned last)
{
    check_segments(t);
    for (unsigned uid = first; uid <= last; uid++) {
        const struct mr_store_job *job = kit_get(t, uid);
        if (job->state == MR_JOBROW_NONE)
            continue;
        assert_int_equal(job->total, DEATH_PARTS);
        kit_check(t, uid);
    }
    suite_forget(t);
}

static void test_100_119_a_kill_leaves_whole_jobs_and_whole_segments(void **state)
{
    struct suite *t = *state;
    uint64_t kills = suite_size("MR_STORE_KILLS", 4);
    unsigned uid = 1;
    for (unsigned round = 0; round < kills; round++) {
        suite_close(t); /* no thread of ours is alive when we fork */
        unsigned last = kill_one(t, uid, 1 + 13 * round % 90);
        suite_open(t, NULL);
        for (unsigned i = uid; i <= last; i++)
            assert_int_equal(kit_get(t, i)->state, MR_JOBROW_CREATED);
        check_whole(t, uid, last + 1);
        uid = last + 2; /* the one that it died with may be there or not */
    }
    check_whole(t, 1, uid);
    t->engine->sql(t->engine->arg, "UPDATE job SET loaded_ms = 1000");
    while (kit_job_retain(t, (struct mr_store_job_retain){.load_ms = 1, .max = 1000})->more)
        ;
    t->engine->check(t->engine->arg,
                     "SELECT (SELECT count(*) FROM part) - (SELECT sum(total) FROM job)", 0);
}

int suite_jobs_rivals(const struct suite_engine *engine)
{
    struct CMUnitTest tests[] = {
        SUITE_TEST(test_118_stores_that_pass_the_threshold_together_make_one_segment),
        SUITE_TEST(test_an_outcome_that_comes_to_several_is_accepted_once),
        SUITE_TEST(test_jobs_are_made_and_ended_while_segments_are_dropped),
        SUITE_TEST(test_100_119_a_kill_leaves_whole_jobs_and_whole_segments),
    };
    struct CMUnitTest of_servers[] = {
        SUITE_TEST(test_cuts_at_any_moment_lose_and_double_no_parts),
    };
    int failed = SUITE_RUN(engine, "rivals about jobs", tests);
    return failed + (engine->cut != NULL ? SUITE_RUN(engine, "jobs and cuts", of_servers) : 0);
}
