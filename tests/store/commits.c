/* SPDX-License-Identifier: Apache-2.0 */
/* Requests that wait together share a transaction, and each gets the answer that is its own. */
#include <stdio.h>

#include "store/suite.h"

enum { MANY = 400 };

struct pending {
    struct mr_store_timers_apply apply;
    struct mr_store_apply item;
    struct mr_store_applied result;
    char name[16];
    _Atomic int *left;
};

static void done(struct mr_store_req *req)
{
    struct pending *pending = req->arg;
    (*pending->left)--;
}

static struct pending *submit_many(struct suite *t, _Atomic int *left)
{
    struct pending *all = calloc(MANY, sizeof *all);
    assert_non_null(all);
    *left = MANY;
    for (unsigned i = 0; i < MANY; i++) {
        struct pending *p = &all[i];
        int len = snprintf(p->name, sizeof p->name, "n%u", i);
        p->item = (struct mr_store_apply){.app = MR_SLICE_LIT("a"),
                                          .name = mr_slice_make(p->name, (size_t)len),
                                          .uid = suite_uid(i + 1),
                                          .version = 1,
                                          .state = MR_ROW_ACTIVE};
        p->apply =
            (struct mr_store_timers_apply){.req = {.op = MR_STORE_TIMERS_APPLY, .done = done},
                                           .items = &p->item,
                                           .n = 1,
                                           .results = &p->result};
        p->apply.req.arg = p;
        p->left = left;
        mr_store_submit(t->store, &p->apply.req);
    }
    return all;
}

static void free_many(struct pending *all)
{
    for (size_t i = 0; i < MANY; i++)
        mr_store_req_done(&all[i].apply.req);
    free(all);
}

static void test_many_waiting_requests_are_few_transactions(void **state)
{
    struct suite *t = *state;
    struct mr_store_counts before, after;
    _Atomic int left;
    mr_store_counts(t->store, &before);
    struct pending *all = submit_many(t, &left);
    WAIT_UNTIL(left == 0);
    mr_store_counts(t->store, &after);
    for (size_t i = 0; i < MANY; i++) {
        assert_err(all[i].apply.req.err, MR_OK);
        assert_err(all[i].result.err, MR_OK);
    }
    free_many(all);
    assert_int_equal(after.requests - before.requests, MANY);
    print_message("%d requests, %d transactions\n", MANY,
                  (int)(after.transactions - before.transactions));
    assert_true(after.transactions - before.transactions < MANY / 2);
    assert_int_equal(suite_stats(t)->timers[MR_ROW_ACTIVE], MANY);
}

/* Keeps the store's thread until it may go on: what is submitted meanwhile waits together. */
static void hold(struct mr_store_req *req)
{
    mr_assert(mr_event_wait(req->arg, SUITE_WAIT_MS * MR_NS_PER_MS));
}

static void asked(struct mr_store_req *req)
{
    (*(_Atomic int *)req->arg)--;
}

static void test_questions_about_one_timer_each_share_a_transaction(void **state)
{
    struct suite *t = *state;
    enum { PAGE = 1000, TRANSACTIONS_MAX = 1 + MANY / 100 };
    struct mr_store_counts before, after;
    struct mr_event go;
    _Atomic int left = MANY;
    struct mr_store_firing_open *asks = calloc(MANY + 1, sizeof *asks);
    assert_non_null(asks);
    mr_event_init(&go);
    mr_store_counts(t->store, &before);
    for (unsigned i = 0; i <= MANY; i++) {
        asks[i] = (struct mr_store_firing_open){
            .req = {.op = MR_STORE_FIRING_OPEN, .done = asked, .arg = &left},
            .app = MR_SLICE_LIT("a"),
            .uid = suite_uid(i + 1),
            .max = PAGE};
        if (i == 0) {
            asks[i].req.done = hold;
            asks[i].req.arg = &go;
        }
        mr_store_submit(t->store, &asks[i].req);
    }
    mr_event_set(&go);
    WAIT_UNTIL(left == 0);
    mr_store_counts(t->store, &after);
    for (unsigned i = 0; i <= MANY; i++) {
        assert_err(asks[i].req.err, MR_OK);
        mr_store_req_done(&asks[i].req);
    }
    free(asks);
    print_message("%d questions, %d transactions\n", MANY + 1,
                  (int)(after.transactions - before.transactions));
    assert_in_range(after.transactions - before.transactions, 1, TRANSACTIONS_MAX);
}

static void test_closing_carries_out_what_was_submitted(void **state)
{
    struct suite *t = *state;
    _Atomic int left;
    struct pending *all = submit_many(t, &left);
    suite_close(t);
    assert_int_equal(left, 0);
    for (size_t i = 0; i < MANY; i++)
        assert_err(all[i].result.err, MR_OK);
    free_many(all);
    suite_open(t, NULL);
    assert_int_equal(suite_stats(t)->timers[MR_ROW_ACTIVE], MANY);
}

static void set_event(struct mr_store_req *req)
{
    mr_event_set(req->arg);
}

static void test_requests_are_carried_out_in_the_order_of_submission(void **state)
{
    struct suite *t = *state;
    struct mr_event answered[4];
    struct mr_store_apply items[2] = {{.app = MR_SLICE_LIT("a"),
                                       .name = MR_SLICE_LIT("n"),
                                       .uid = suite_uid(1),
                                       .version = 1,
                                       .state = MR_ROW_ACTIVE},
                                      {.app = MR_SLICE_LIT("a"),
                                       .name = MR_SLICE_LIT("n"),
                                       .version = 2,
                                       .verb = MR_APPLY_DELETE}};
    struct mr_store_applied results[2];
    struct mr_store_timers_apply applies[2];
    struct mr_store_timer_get gets[2];
    struct mr_store_timer_key key = {.app = MR_SLICE_LIT("a"), .name = MR_SLICE_LIT("n")};
    for (size_t i = 0; i < 2; i++) {
        mr_event_init(&answered[2 * i]);
        mr_event_init(&answered[2 * i + 1]);
        applies[i] = (struct mr_store_timers_apply){
            .req = {.op = MR_STORE_TIMERS_APPLY, .done = set_event, .arg = &answered[2 * i]},
            .items = &items[i],
            .n = 1,
            .results = &results[i]};
        gets[i] = (struct mr_store_timer_get){
            .req = {.op = MR_STORE_TIMER_GET, .done = set_event, .arg = &answered[2 * i + 1]},
            .keys = &key,
            .n = 1};
    }
    for (size_t i = 0; i < 2; i++) {
        mr_store_submit(t->store, &applies[i].req);
        mr_store_submit(t->store, &gets[i].req);
    }
    for (size_t i = 0; i < 4; i++)
        assert_true(mr_event_wait(&answered[i], SUITE_WAIT_MS * MR_NS_PER_MS));
    assert_int_equal(gets[0].timers[0].state, MR_ROW_ACTIVE);
    assert_int_equal(gets[1].timers[0].state, MR_ROW_DELETED);
    mr_store_req_done(&gets[0].req);
    mr_store_req_done(&gets[1].req);
}

static void test_what_is_wrong_with_a_request_leaves_those_beside_it_alone(void **state)
{
    struct suite *t = *state;
    struct mr_event answered[2];
    struct mr_store_fired fired;
    struct mr_store_fire item = {.uid = suite_uid(1), .planned_ms = 1, .state = MR_LEDGER_WAITING};
    struct mr_store_fire_batch fires[2];
    assert_err(PUT(t).err, MR_OK);
    for (size_t i = 0; i < 2; i++) {
        mr_event_init(&answered[i]);
        fires[i] = (struct mr_store_fire_batch){
            .req = {.op = MR_STORE_FIRE, .done = set_event, .arg = &answered[i]},
            .fence = {i == 0 ? MR_SLICE_LIT("not held") : MR_SLICE_LIT(""), 1},
            .app = MR_SLICE_LIT("a"),
            .items = &item,
            .n = 1,
            .results = &fired};
    }
    mr_store_submit(t->store, &fires[0].req);
    mr_store_submit(t->store, &fires[1].req);
    assert_true(mr_event_wait(&answered[0], SUITE_WAIT_MS * MR_NS_PER_MS));
    assert_true(mr_event_wait(&answered[1], SUITE_WAIT_MS * MR_NS_PER_MS));
    assert_err(fires[0].req.err, MR_STALE);
    assert_err(fires[1].req.err, MR_OK);
    assert_int_equal(suite_firing(t, 1, 1)->state, MR_LEDGER_WAITING);
}

/* Whatever shares a transaction with whom: what was applied behind a look is in the next one. */
static void test_a_change_behind_a_look_is_in_the_next_one(void **state)
{
    struct suite *t = *state;
    uint64_t since = 1;
    for (uint64_t round = 1; round <= 100; round++) {
        struct mr_event answered[3];
        struct mr_store_applied results[2];
        struct mr_store_apply items[2];
        struct mr_store_timers_apply applies[2];
        struct mr_store_due due = {
            .req = {.op = MR_STORE_DUE, .done = set_event, .arg = &answered[2]},
            .app = MR_SLICE_LIT("a"),
            .until_ms = INT64_MAX - 1,
            .since = since,
            .max = 10};
        for (size_t i = 0; i < 2; i++) {
            items[i] = (struct mr_store_apply){.app = MR_SLICE_LIT("a"),
                                               .name = mr_slice_str(i == 0 ? "first" : "second"),
                                               .uid = suite_uid(1 + (unsigned)i),
                                               .version = round,
                                               .state = MR_ROW_ACTIVE,
                                               .next_ms = 1000};
            applies[i] = (struct mr_store_timers_apply){
                .req = {.op = MR_STORE_TIMERS_APPLY, .done = set_event, .arg = &answered[i]},
                .items = &items[i],
                .n = 1,
                .results = &results[i]};
        }
        for (size_t i = 0; i < 3; i++)
            mr_event_init(&answered[i]);
        mr_store_submit(t->store, &applies[0].req);
        mr_store_submit(t->store, &due.req);
        mr_store_submit(t->store, &applies[1].req);
        for (size_t i = 0; i < 3; i++)
            assert_true(mr_event_wait(&answered[i], SUITE_WAIT_MS * MR_NS_PER_MS));
        struct mr_store_due *next = suite_due(t, (struct mr_store_due){.app = MR_SLICE_LIT("a"),
                                                                       .until_ms = INT64_MAX - 1,
                                                                       .since = due.changed,
                                                                       .max = 10});
        bool found = false;
        for (size_t i = 0; i < next->n; i++)
            found = found || next->timers[i].version == round;
        assert_true(found);
        since = next->changed;
        mr_store_req_done(&due.req);
    }
}

int suite_commits(const struct suite_engine *engine)
{
    struct CMUnitTest tests[] = {
        SUITE_TEST(test_many_waiting_requests_are_few_transactions),
        SUITE_TEST(test_questions_about_one_timer_each_share_a_transaction),
        SUITE_TEST(test_closing_carries_out_what_was_submitted),
        SUITE_TEST(test_requests_are_carried_out_in_the_order_of_submission),
        SUITE_TEST(test_what_is_wrong_with_a_request_leaves_those_beside_it_alone),
        SUITE_TEST(test_a_change_behind_a_look_is_in_the_next_one),
    };
    return SUITE_RUN(engine, "commits", tests);
}
