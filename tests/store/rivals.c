/* SPDX-License-Identifier: Apache-2.0 */
/* Several stores on one database, as several servers have them. */
#include <stdio.h>

#include "store/suite.h"

enum { RIVALS = 3, FIRINGS = 60, TIMERS = 60, STEP_MS = 1000, TTL_MS = 15, LEASES = 100 };

struct rival {
    struct suite t; /* its own store, on the URL of the test */
    unsigned number;
    pthread_t thread;
    unsigned done;           /* what it did */
    uint64_t tokens[LEASES]; /* of leases that it got; 0: it did not */
    /* Of those that look on: */
    _Atomic bool *stop;
    bool seen[RIVALS * TIMERS + 1]; /* by the number of the uid */
};

static void open_rivals(struct suite *t, struct rival *rivals, _Atomic bool *stop)
{
    memset(rivals, 0, RIVALS * sizeof *rivals);
    for (unsigned i = 0; i < RIVALS; i++) {
        rivals[i].t.engine = t->engine;
        memcpy(rivals[i].t.url, t->url, sizeof t->url);
        rivals[i].number = i;
        rivals[i].stop = stop;
        suite_open(&rivals[i].t, NULL);
    }
}

static void run_rivals(struct rival *rivals, void *(*run)(void *arg))
{
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

static struct mr_store_timer timer_now(struct rival *rival)
{
    struct mr_store_timer_key key = {.app = MR_SLICE_LIT("a"), .name = MR_SLICE_LIT("n")};
    struct mr_store_timer_get get = {.req.op = MR_STORE_TIMER_GET, .keys = &key, .n = 1};
    must(mr_store_call(rival->t.store, &get.req));
    struct mr_store_timer timer = get.timers[0]; /* without its slices */
    mr_store_req_done(&get.req);
    return timer;
}

/* Fires what the timer is at, with a fence or without. */
static enum mr_err fire_now(struct rival *rival, struct mr_store_fence fence,
                            struct mr_slice reason, struct mr_store_fired *ret_fired)
{
    struct mr_store_timer timer = timer_now(rival);
    struct mr_store_fire item = {.uid = timer.uid,
                                 .planned_ms = timer.next_ms,
                                 .state = MR_LEDGER_WAITING,
                                 .reason = reason,
                                 .fired_ms = 1,
                                 .move = {.moves = true,
                                          .version = timer.version,
                                          .from_ms = timer.next_ms,
                                          .to_ms = timer.next_ms + STEP_MS,
                                          .counts = 1}};
    struct mr_store_fire_batch fire = {.req.op = MR_STORE_FIRE,
                                       .fence = fence,
                                       .app = MR_SLICE_LIT("a"),
                                       .items = &item,
                                       .n = 1,
                                       .results = ret_fired};
    enum mr_err err = mr_store_call(rival->t.store, &fire.req);
    mr_store_req_done(&fire.req);
    return err;
}

static void *fire_as_fast_as_possible(void *arg)
{
    struct rival *rival = arg;
    while (timer_now(rival).fired < FIRINGS) {
        struct mr_store_fired fired;
        must(fire_now(rival, (struct mr_store_fence){0}, MR_SLICE_LIT(""), &fired));
        if (fired.err != MR_STALE)
            must(fired.err);
        rival->done += fired.err == MR_OK && !fired.existed;
    }
    return NULL;
}

static void test_rivals_fire_each_planned_time_once(void **state)
{
    struct suite *t = *state;
    static struct rival rivals[RIVALS];
    assert_err(PUT(t, .next_ms = STEP_MS).err, MR_OK);
    open_rivals(t, rivals, NULL);
    run_rivals(rivals, fire_as_fast_as_possible);
    const struct mr_store_timer *timer = suite_get(t, "a", "n");
    struct mr_store_firing_list all = {.uid = suite_uid(1), .max = 1000};
    assert_true(timer->fired >= FIRINGS);
    assert_int_equal(suite_firing_list(t, all)->n, timer->fired);
    assert_int_equal(timer->next_ms, (int64_t)(timer->fired + 1) * STEP_MS);
    assert_int_equal(rivals[0].done + rivals[1].done + rivals[2].done, timer->fired);
}

/* ---- leases --------------------------------------------------------------------------------- */

static uint64_t acquire(struct rival *rival, int64_t ttl_ms)
{
    char owner[16];
    int len = snprintf(owner, sizeof owner, "rival-%u", rival->number);
    struct mr_store_lease_item item = {.name = MR_SLICE_LIT("app:a"),
                                       .owner = mr_slice_make(owner, (size_t)len),
                                       .ttl_ms = ttl_ms};
    struct mr_store_lease_result result;
    struct mr_store_lease lease = {
        .req.op = MR_STORE_LEASE, .items = &item, .n = 1, .results = &result};
    must(mr_store_call(rival->t.store, &lease.req));
    if (result.err != MR_IN_USE)
        must(result.err);
    return result.err == MR_OK ? result.token : 0;
}

/* Never renews, so that it is overtaken again and again, also between its look and its firing. */
static void *fire_while_it_holds_the_lease(void *arg)
{
    struct rival *rival = arg;
    while (timer_now(rival).fired < FIRINGS) {
        uint64_t token = acquire(rival, TTL_MS);
        if (token == 0)
            continue;
        char text[24];
        int len = snprintf(text, sizeof text, "%llu", (unsigned long long)token);
        struct mr_store_fence fence = {MR_SLICE_LIT("app:a"), token};
        struct mr_store_fired fired = {.err = MR_OK};
        enum mr_err err;
        while ((err = fire_now(rival, fence, mr_slice_make(text, (size_t)len), &fired)) == MR_OK)
            rival->done += fired.err == MR_OK;
        if (err != MR_STALE)
            must(err);
    }
    return NULL;
}

static void test_rivals_never_fire_behind_a_newer_holder(void **state)
{
    struct suite *t = *state;
    static struct rival rivals[RIVALS];
    assert_err(PUT(t, .next_ms = STEP_MS).err, MR_OK);
    open_rivals(t, rivals, NULL);
    run_rivals(rivals, fire_while_it_holds_the_lease);
    struct mr_store_firing_list all = {.uid = suite_uid(1), .max = MR_STORE_BATCH_MAX};
    const struct mr_store_firing_list *list = suite_firing_list(t, all);
    assert_int_equal(list->n, suite_get(t, "a", "n")->fired);
    unsigned long long newer = UINT64_MAX;
    unsigned holders = 0;
    for (size_t i = 0; i < list->n; i++) {
        unsigned long long token = strtoull(list->firings[i].reason.data, NULL, 10);
        assert_true(token > 0 && token <= newer);
        holders += token != newer;
        newer = token;
    }
    print_message("%zu firings under %u numbers\n", list->n, holders);
}

/* Whose time is over as soon as they have it. */
static void *take_the_lease_again_and_again(void *arg)
{
    struct rival *rival = arg;
    for (unsigned i = 0; i < LEASES; i++)
        rival->tokens[i] = acquire(rival, 1);
    return NULL;
}

static void test_no_two_rivals_get_the_same_number(void **state)
{
    struct suite *t = *state;
    static struct rival rivals[RIVALS];
    open_rivals(t, rivals, NULL);
    run_rivals(rivals, take_the_lease_again_and_again);
    for (unsigned i = 0; i < RIVALS * LEASES; i++) {
        uint64_t token = rivals[i / LEASES].tokens[i % LEASES];
        for (unsigned k = (i / LEASES + 1) * LEASES; token != 0 && k < RIVALS * LEASES; k++)
            assert_int_not_equal(token, rivals[k / LEASES].tokens[k % LEASES]);
    }
}

/* ---- what others apply ---------------------------------------------------------------------- */

static void *apply_new_ones(void *arg)
{
    struct rival *rival = arg;
    for (unsigned i = 0; i < TIMERS; i++) {
        char name[24];
        int len = snprintf(name, sizeof name, "r%u-%u", rival->number, i);
        struct mr_store_apply item = {.app = MR_SLICE_LIT("a"),
                                      .name = mr_slice_make(name, (size_t)len),
                                      .uid = suite_uid(1 + rival->number * TIMERS + i),
                                      .version = 1,
                                      .state = MR_ROW_ACTIVE,
                                      .next_ms = 1 + i};
        struct mr_store_applied result;
        struct mr_store_timers_apply apply = {
            .req.op = MR_STORE_TIMERS_APPLY, .items = &item, .n = 1, .results = &result};
        must(mr_store_call(rival->t.store, &apply.req));
        must(result.err);
        mr_store_req_done(&apply.req);
    }
    return NULL;
}

/* Whatever the order of commits is, none falls between two looks. */
static void *look_for_new_ones(void *arg)
{
    struct rival *rival = arg;
    uint64_t since = 0;
    bool last = false;
    while (!last) {
        last = *rival->stop;
        struct mr_store_due due = {.req.op = MR_STORE_DUE,
                                   .app = MR_SLICE_LIT("a"),
                                   .until_ms = TIMERS,
                                   .since = since,
                                   .max = 1000};
        must(mr_store_call(rival->t.store, &due.req));
        for (size_t i = 0; i < due.n; i++) {
            const uint8_t *end = due.timers[i].uid.bytes + sizeof due.timers[i].uid.bytes;
            rival->seen[end[-2] << 8 | end[-1]] = true;
        }
        since = due.changed;
        mr_store_req_done(&due.req);
    }
    return NULL;
}

static void test_looks_at_what_has_changed_leave_out_nothing_that_rivals_apply(void **state)
{
    struct suite *t = *state;
    static struct rival rivals[RIVALS];
    static _Atomic bool stop;
    struct rival looker = {.t = *t, .stop = &stop};
    stop = false;
    open_rivals(t, rivals, &stop);
    assert_err(mr_thread_start(&looker.thread, "looker", look_for_new_ones, &looker), MR_OK);
    run_rivals(rivals, apply_new_ones);
    stop = true;
    mr_thread_join(looker.thread);
    for (unsigned i = 1; i <= RIVALS * TIMERS; i++)
        assert_true(looker.seen[i]);
}

int suite_rivals(const struct suite_engine *engine)
{
    struct CMUnitTest tests[] = {
        SUITE_TEST(test_rivals_fire_each_planned_time_once),
        SUITE_TEST(test_rivals_never_fire_behind_a_newer_holder),
        SUITE_TEST(test_no_two_rivals_get_the_same_number),
        SUITE_TEST(test_looks_at_what_has_changed_leave_out_nothing_that_rivals_apply),
    };
    return SUITE_RUN(engine, "rivals", tests);
}
