/* SPDX-License-Identifier: Apache-2.0 */
/*
 * MR_TIMERS timers, due over a week: how fast they come in and fire, and that a look at a window and
 * the opening do not depend on how many there are.
 */
#include <stdio.h>

#include "store/suite.h"

enum {
    BATCH = 1000,
    FLIGHT = 4,
    DEFINITION = 200, /* bytes */
    WINDOW = 1000,    /* timers that are looked for at once */
    SOON_MS =
        3000, /* what does not depend on the number of timers, on a machine that has more to do */
};

struct flight {
    struct mr_store_timers_apply apply;
    struct mr_store_apply items[BATCH];
    struct mr_store_applied results[BATCH];
    char names[BATCH][24];
    struct mr_event answered;
    bool sent;
};

static void set_event(struct mr_store_req *req)
{
    mr_event_set(req->arg);
}

static int64_t due_ms(uint64_t i, uint64_t n)
{
    return 1000 + (int64_t)((i * 7919) % n) * (7 * MR_MS_PER_DAY / (int64_t)n);
}

static void send(struct suite *t, struct flight *f, uint64_t from, uint64_t n)
{
    static const char definition[DEFINITION] = "a definition of the usual length";
    for (unsigned i = 0; i < BATCH; i++) {
        uint64_t number = from + i;
        int len = snprintf(f->names[i], sizeof f->names[i], "timer-%08llu",
                           (unsigned long long)(number * 2654435761u % 100000000u));
        f->items[i] = (struct mr_store_apply){.app = MR_SLICE_LIT("a"),
                                              .name = mr_slice_make(f->names[i], (size_t)len),
                                              .uid = suite_uid((unsigned)number + 1),
                                              .version = 1,
                                              .state = MR_ROW_ACTIVE,
                                              .definition = mr_slice_make(definition, DEFINITION),
                                              .next_ms = due_ms(number, n)};
    }
    f->apply =
        (struct mr_store_timers_apply){.req = {.op = MR_STORE_TIMERS_APPLY, .done = set_event},
                                       .items = f->items,
                                       .n = BATCH,
                                       .results = f->results};
    f->apply.req.arg = &f->answered;
    f->sent = true;
    mr_event_init(&f->answered);
    mr_store_submit(t->store, &f->apply.req);
}

static void await(struct flight *f)
{
    if (!f->sent)
        return;
    assert_true(mr_event_wait(&f->answered, SUITE_WAIT_MS * MR_NS_PER_MS));
    assert_err(f->apply.req.err, MR_OK);
    for (size_t i = 0; i < BATCH; i++)
        assert_err(f->results[i].err, MR_OK);
    mr_store_req_done(&f->apply.req);
    f->sent = false;
}

static void put_all(struct suite *t, uint64_t n)
{
    struct flight *flights = calloc(FLIGHT, sizeof *flights);
    assert_non_null(flights);
    for (uint64_t i = 0; i < n / BATCH; i++) {
        await(&flights[i % FLIGHT]);
        send(t, &flights[i % FLIGHT], i * BATCH, n);
    }
    for (size_t i = 0; i < FLIGHT; i++)
        await(&flights[i]);
    free(flights);
}

/* In their order, a window at a time, as a scheduler does. */
static uint64_t fire_all(struct suite *t, uint64_t n, int64_t *ret_longest_ms)
{
    static struct mr_store_fire items[BATCH];
    static struct mr_store_fired results[BATCH];
    uint64_t fired = 0;
    *ret_longest_ms = 0;
    while (fired < n) {
        struct mr_store_due due = {.req.op = MR_STORE_DUE,
                                   .app = MR_SLICE_LIT("a"),
                                   .until_ms = 8 * MR_MS_PER_DAY,
                                   .max = BATCH};
        mr_mono since = suite_mono();
        assert_err(mr_store_call(t->store, &due.req), MR_OK);
        int64_t took_ms = suite_elapsed_ms(since);
        *ret_longest_ms = took_ms > *ret_longest_ms ? took_ms : *ret_longest_ms;
        assert_true(due.n > 0);
        for (size_t i = 0; i < due.n; i++)
            items[i] = (struct mr_store_fire){.uid = due.timers[i].uid,
                                              .planned_ms = due.timers[i].next_ms,
                                              .state = MR_LEDGER_WAITING,
                                              .fired_ms = 1,
                                              .move = {.moves = true,
                                                       .version = 1,
                                                       .from_ms = due.timers[i].next_ms,
                                                       .to_ms = 9 * MR_MS_PER_DAY,
                                                       .counts = 1}};
        assert_err(suite_fire_all(t, (struct mr_store_fence){0}, items, due.n, results), MR_OK);
        for (size_t i = 0; i < due.n; i++)
            assert_err(results[i].err, MR_OK);
        fired += due.n;
        mr_store_req_done(&due.req);
    }
    return fired;
}

static double rate(uint64_t n, mr_mono since)
{
    return (double)n * 1e9 / (double)(suite_mono().ns - since.ns);
}

static void test_many_timers_cost_what_is_asked_for_and_no_more(void **state)
{
    struct suite *t = *state;
    uint64_t n = suite_size("MR_TIMERS", 20000);
    mr_mono since = suite_mono();
    put_all(t, n);
    print_message("%s: %llu timers put, %.0f/s\n", t->engine->name, (unsigned long long)n,
                  rate(n, since));
    suite_close(t);
    since = suite_mono();
    suite_open(t, NULL);
    int64_t opening_ms = suite_elapsed_ms(since);
    since = suite_mono();
    struct mr_store_due due = {.until_ms = 8 * MR_MS_PER_DAY, .max = WINDOW};
    assert_int_equal(suite_due(t, due)->n, WINDOW);
    int64_t window_ms = suite_elapsed_ms(since);
    since = suite_mono();
    uint64_t fires = n < 20 * BATCH ? n : 20 * BATCH;
    int64_t longest_ms;
    fire_all(t, fires, &longest_ms);
    print_message(
        "%s: opened in %lld ms, a window in %lld ms, %.0f firings/s, longest look %lld ms\n",
        t->engine->name, (long long)opening_ms, (long long)window_ms, rate(fires, since),
        (long long)longest_ms);
    since = suite_mono();
    assert_int_equal(suite_stats(t)->timers[MR_ROW_ACTIVE], n);
    print_message("%s: counted in %lld ms\n", t->engine->name, (long long)suite_elapsed_ms(since));
    assert_true(opening_ms < SOON_MS && window_ms < SOON_MS && longest_ms < SOON_MS);
}

int suite_many(const struct suite_engine *engine)
{
    struct CMUnitTest tests[] = {
        SUITE_TEST(test_many_timers_cost_what_is_asked_for_and_no_more),
    };
    return SUITE_RUN(engine, "many", tests);
}
