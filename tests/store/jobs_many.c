/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job of MR_PARTS parts: how fast it is made, beside a bare insert of the same rows into the same
 * kind of database in the same run; how fast outcomes come in; and that neither depends on what
 * lies finished beside it.
 */
#include <stdio.h>

#include "store/job_kit.h"

enum {
    BATCH = 1000,
    LOAD_BATCH = 5000,
    FLIGHT = 4,
    PART_BYTES = 60, /* a line of text */
    COLD_SEGMENTS = 10,
};

static const char line[PART_BYTES] = "It was the best of times, it was the worst of times, it was";
static struct mr_slice inputs[LOAD_BATCH];

static double seconds_since(mr_mono since)
{
    double s = (double)(suite_mono().ns - since.ns) / 1e9;
    return s > 0 ? s : 1e-9;
}

/* ---- making it ------------------------------------------------------------------------------- */

struct flight {
    struct mr_store_parts_add add;
    struct mr_event answered;
    bool sent;
};

static void set_event(struct mr_store_req *req)
{
    mr_event_set(req->arg);
}

static void await(struct flight *f)
{
    if (!f->sent)
        return;
    assert_true(mr_event_wait(&f->answered, 5 * SUITE_WAIT_MS * MR_NS_PER_MS));
    assert_err(f->add.req.err, MR_OK);
    mr_store_req_done(&f->add.req);
    f->sent = false;
}

static void send(struct suite *t, struct flight *f, unsigned uid, uint64_t first, size_t n)
{
    f->add = (struct mr_store_parts_add){.req = {.op = MR_STORE_PARTS_ADD, .done = set_event},
                                         .uid = suite_uid(uid),
                                         .first = first,
                                         .inputs = inputs,
                                         .n = n};
    f->add.req.arg = &f->answered;
    f->sent = true;
    mr_event_init(&f->answered);
    mr_store_submit(t->store, &f->add.req);
}

/* Whoever carries out a request reads them while the next is made: they are written before the first. */
static void fill_inputs(void)
{
    for (size_t i = 0; i < LOAD_BATCH; i++)
        inputs[i] = mr_slice_make(line, sizeof line);
}

/* Answers how many seconds it took, from the beginning to the commit. */
static double make(struct suite *t, unsigned uid, uint64_t parts)
{
    struct flight flights[FLIGHT] = {0};
    fill_inputs();
    mr_mono since = suite_mono();
    assert_err(kit_begin(t, (struct kit_job){.uid = uid}), MR_OK);
    size_t i = 0;
    for (uint64_t first = 0; first < parts; first += LOAD_BATCH, i = (i + 1) % FLIGHT) {
        await(&flights[i]);
        send(t, &flights[i], uid, first,
             parts - first < LOAD_BATCH ? (size_t)(parts - first) : LOAD_BATCH);
    }
    for (i = 0; i < FLIGHT; i++)
        await(&flights[i]);
    assert_err(ACT(t, MR_STORE_JOB_COMMIT, uid, .total = parts), MR_OK);
    return seconds_since(since);
}

static void test_making_a_job_costs_at_most_twice_a_bare_insert_of_its_rows(void **state)
{
    struct suite *t = *state;
    uint64_t parts = suite_size("MR_PARTS", 20000);
    double bare =
        t->engine->bare_insert(t->engine->arg, parts, mr_slice_make(line, sizeof line), LOAD_BATCH);
    double made = make(t, 1, parts);
    print_message("%llu parts: %.0f/s; bare insert %.0f/s; %.2f of it\n", (unsigned long long)parts,
                  (double)parts / made, (double)parts / bare, bare / made);
    assert_int_equal(kit_get(t, 1)->total, parts);
    if (suite_judges_time())
        assert_true(made <= 2 * bare);
}

/* ---- running it ------------------------------------------------------------------------------ */

/* One page is read, submitted and ended. */
static void run_page(struct suite *t, unsigned uid, uint64_t from)
{
    static struct mr_store_end items[BATCH];
    static enum mr_err results[BATCH];
    struct mr_store_parts_read read = {
        .req.op = MR_STORE_PARTS_READ, .uid = suite_uid(uid), .from = from, .max = BATCH};
    assert_err(mr_store_call(t->store, &read.req), MR_OK);
    for (size_t i = 0; i < read.n; i++)
        items[i] = (struct mr_store_end){.uid = read.uid,
                                         .index = read.parts[i].index,
                                         .segment = read.parts[i].segment,
                                         .bytes = MR_SLICE_LIT("a result of 20 bytes")};
    struct mr_store_advance item = {
        .uid = read.uid, .from = from, .to = read.next, .parts = read.n};
    assert_err(kit_advance(t, (struct mr_store_fence){0}, item), MR_OK);
    struct mr_store_parts_end end = {
        .req.op = MR_STORE_PARTS_END, .items = items, .n = read.n, .results = results};
    assert_err(mr_store_call(t->store, &end.req), MR_OK);
    for (size_t i = 0; i < read.n; i++)
        assert_err(results[i], MR_OK);
    mr_store_req_done(&end.req);
    mr_store_req_done(&read.req);
}

static int compare_times(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y ? 1 : 0;
}

/* Answers how many parts a second go through, by the page in the middle: others may be at work on this machine. */
static double run(struct suite *t, unsigned uid, uint64_t parts)
{
    size_t pages = (size_t)(parts / BATCH), n = 0;
    int64_t *times = calloc(pages, sizeof *times);
    assert_non_null(times);
    for (uint64_t from = 0; from < parts; from += BATCH) {
        mr_mono since = suite_mono();
        run_page(t, uid, from);
        times[n++] = suite_mono().ns - since.ns;
    }
    assert_int_equal(n, pages);
    assert_int_equal(kit_get(t, uid)->state, MR_JOBROW_REDUCING);
    qsort(times, n, sizeof *times, compare_times);
    double rate = BATCH * 1e9 / (double)(times[n / 2] > 0 ? times[n / 2] : 1);
    free(times);
    return rate;
}

/* An empty database is all in memory: what is compared has much that waits in both cases. */
static void test_finished_segments_cost_nothing(void **state)
{
    struct suite *t = *state;
    uint64_t parts = suite_size("MR_PARTS", 20000), some = parts / COLD_SEGMENTS;
    (void)make(t, 1, some);
    double alone = run(t, 1, some);
    (void)make(t, 2, parts); /* a backlog */
    (void)make(t, 3, some);
    double waiting = run(t, 3, some);
    for (unsigned i = 0; i < COLD_SEGMENTS; i++) {
        MAKE(t, .uid = 10 + i, .parts = some, .segment_parts = (uint32_t)some);
        (void)run(t, 10 + i, some);
    }
    (void)make(t, 4, some);
    double cold = run(t, 4, some);
    print_message(
        "%llu parts go through at %.0f/s alone, %.0f/s with %llu that wait, %.0f/s with %d "
        "finished segments as well\n",
        (unsigned long long)some, alone, waiting, (unsigned long long)parts, cold, COLD_SEGMENTS);
    /* A tenth of the time that a part has at 10 000 a second. */
    if (suite_judges_time())
        assert_true(1e6 / cold - 1e6 / waiting <= 10);
}

int suite_jobs_many(const struct suite_engine *engine)
{
    struct CMUnitTest tests[] = {
        SUITE_TEST(test_making_a_job_costs_at_most_twice_a_bare_insert_of_its_rows),
        SUITE_TEST(test_finished_segments_cost_nothing),
    };
    return SUITE_RUN(engine, "many parts", tests);
}
