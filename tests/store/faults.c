/* SPDX-License-Identifier: Apache-2.0 */
/* Another writer, lost connections, a server that dies: what passes is not noticed but for the time. */
#include <stdio.h>

#include "store/suite.h"

enum { AWAY_MS = 300, ROUNDS = 40 };

static void open_short(struct suite *t)
{
    suite_close(t);
    suite_open(t, &(struct mr_store_options){.away_ms = AWAY_MS});
}

static uint64_t repeats(struct suite *t)
{
    struct mr_store_counts counts;
    mr_store_counts(t->store, &counts);
    return counts.repeats;
}

/* ---- another writer ------------------------------------------------------------------------- */

struct waiting {
    struct mr_store_timers_apply apply;
    struct mr_store_apply item;
    struct mr_store_applied result;
    struct mr_event answered;
};

static void set_event(struct mr_store_req *req)
{
    mr_event_set(req->arg);
}

static void submit(struct suite *t, struct waiting *w, unsigned uid)
{
    w->item = (struct mr_store_apply){.app = MR_SLICE_LIT("a"),
                                      .name = MR_SLICE_LIT("n"),
                                      .uid = suite_uid(uid),
                                      .version = uid,
                                      .state = MR_ROW_ACTIVE};
    w->apply =
        (struct mr_store_timers_apply){.req = {.op = MR_STORE_TIMERS_APPLY, .done = set_event},
                                       .items = &w->item,
                                       .n = 1,
                                       .results = &w->result};
    w->apply.req.arg = &w->answered;
    mr_event_init(&w->answered);
    mr_store_submit(t->store, &w->apply.req);
}

static void test_a_write_waits_for_another_writer(void **state)
{
    struct suite *t = *state;
    struct waiting w;
    t->engine->hold(t->engine->arg);
    submit(t, &w, 1);
    assert_false(mr_event_wait(&w.answered, 50 * MR_NS_PER_MS));
    t->engine->let_go(t->engine->arg);
    assert_true(mr_event_wait(&w.answered, SUITE_WAIT_MS * MR_NS_PER_MS));
    assert_err(w.apply.req.err, MR_OK);
    assert_err(w.result.err, MR_OK);
    mr_store_req_done(&w.apply.req);
}

static void test_a_writer_that_stays_is_out_of_reach_in_the_end_and_then_not(void **state)
{
    struct suite *t = *state;
    struct mr_detail line;
    struct waiting w;
    open_short(t);
    t->engine->hold(t->engine->arg);
    submit(t, &w, 1);
    assert_true(mr_event_wait(&w.answered, SUITE_WAIT_MS * MR_NS_PER_MS));
    assert_err(w.apply.req.err, MR_UNAVAILABLE);
    assert_err(w.result.err, MR_UNAVAILABLE);
    assert_err(mr_store_problem(t->store, &line), MR_UNAVAILABLE);
    assert_true(line.text[0] != '\0');
    mr_store_req_done(&w.apply.req);
    t->engine->let_go(t->engine->arg);
    submit(t, &w, 1);
    assert_true(mr_event_wait(&w.answered, SUITE_WAIT_MS * MR_NS_PER_MS));
    assert_err(w.apply.req.err, MR_OK);
    assert_err(mr_store_problem(t->store, &line), MR_OK);
    mr_store_req_done(&w.apply.req);
}

/* ---- connections ---------------------------------------------------------------------------- */

static void test_a_lost_connection_is_made_again(void **state)
{
    struct suite *t = *state;
    assert_err(PUT(t).err, MR_OK);
    for (uint64_t i = 2; i < 6; i++) {
        assert_true(t->engine->cut(t->engine->arg));
        assert_err(PUT(t, .version = i).err, MR_OK);
        assert_int_equal(suite_get(t, "a", "n")->version, i);
    }
    struct mr_store_counts counts;
    mr_store_counts(t->store, &counts);
    assert_true(counts.connects >= 5);
}

/* Without assertions, which would leave the other thread behind. */
static enum mr_err fire_and_set(struct suite *t, int64_t planned_ms)
{
    struct mr_store_fire fire = {.uid = suite_uid(1),
                                 .planned_ms = planned_ms,
                                 .state = MR_LEDGER_WAITING,
                                 .move = {.moves = true,
                                          .version = 1,
                                          .from_ms = planned_ms,
                                          .to_ms = planned_ms + 1000,
                                          .counts = 1}};
    struct mr_store_fired fired;
    MR_TRY(suite_fire_all(t, (struct mr_store_fence){0}, &fire, 1, &fired));
    MR_TRY(fired.err);
    struct mr_store_set item = {.uid = suite_uid(1),
                                .planned_ms = planned_ms,
                                .from = MR_LEDGER_OPEN,
                                .to = MR_LEDGER_SUCCEEDED};
    struct mr_store_set_result result;
    struct mr_store_firing_set set = {.req.op = MR_STORE_FIRING_SET,
                                      .app = MR_SLICE_LIT("a"),
                                      .items = &item,
                                      .n = 1,
                                      .results = &result};
    MR_TRY(mr_store_call(t->store, &set.req));
    mr_store_req_done(&set.req);
    return result.err;
}

/* Two threads of the test: one fires, the other cuts.
 * Whatever the moment of the cut was, before, in or behind a commit: each row is there once, and the
 * timer has moved once for each. */
static void test_cuts_at_any_moment_lose_and_double_nothing(void **state)
{
    struct suite *t = *state;
    struct suite_cutter cutter;
    enum mr_err err = MR_OK;
    assert_err(PUT(t, .next_ms = 1000).err, MR_OK);
    suite_cutter_start(&cutter, t);
    for (int64_t i = 1; err == MR_OK && i <= ROUNDS; i++)
        err = fire_and_set(t, i * 1000);
    suite_cutter_stop(&cutter);
    assert_err(err, MR_OK);
    assert_true(cutter.cuts > 0 && repeats(t) > 0);
    print_message("%u cuts, %d repeats\n", cutter.cuts, (int)repeats(t));
    assert_int_equal(suite_get(t, "a", "n")->fired, ROUNDS);
    struct mr_store_firing_list all = {.uid = suite_uid(1), .max = 1000};
    assert_int_equal(suite_firing_list(t, all)->n, ROUNDS);
}

static void test_a_server_that_dies_and_comes_back_is_waited_for(void **state)
{
    struct suite *t = *state;
    struct waiting w;
    assert_err(PUT(t).err, MR_OK);
    t->engine->crash(t->engine->arg);
    submit(t, &w, 2);
    assert_false(mr_event_wait(&w.answered, 20 * MR_NS_PER_MS));
    t->engine->start(t->engine->arg);
    assert_true(mr_event_wait(&w.answered, SUITE_WAIT_MS * MR_NS_PER_MS));
    assert_err(w.apply.req.err, MR_OK);
    mr_store_req_done(&w.apply.req);
    assert_int_equal(suite_get(t, "a", "n")->version, 2);
    assert_slice(suite_get_uid(t, 2)->name, "n");
}

static void test_a_server_that_stays_away_is_told_in_time(void **state)
{
    struct suite *t = *state;
    struct mr_detail detail = {.text = ""};
    struct mr_store *other = NULL;
    struct waiting w;
    open_short(t);
    t->engine->crash(t->engine->arg);
    mr_mono since = suite_mono();
    submit(t, &w, 1);
    assert_true(mr_event_wait(&w.answered, SUITE_WAIT_MS * MR_NS_PER_MS));
    assert_err(w.apply.req.err, MR_UNAVAILABLE);
    assert_true(suite_elapsed_ms(since) >= AWAY_MS);
    mr_store_req_done(&w.apply.req);
    assert_err(mr_store_open(&(struct mr_store_options){.url = t->url}, &other, &detail),
               MR_UNAVAILABLE);
    assert_true(detail.text[0] != '\0');
    t->engine->start(t->engine->arg);
    WAIT_UNTIL(PUT(t, .version = 1).err == MR_OK);
}

/* ---- what a database may say ---------------------------------------------------------------- */

/* PostgreSQL only: a sequence does not go back with its transaction, so a trigger can fail the first
 * times. */
static void fail_first(struct suite *t, const char *state, unsigned times)
{
    char text[600];
    (void)snprintf(
        text, sizeof text,
        "CREATE SEQUENCE tries; CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS"
        " $$ BEGIN IF nextval('millrace.tries') <= %u THEN RAISE EXCEPTION 'injected'"
        " USING ERRCODE = '%s'; END IF; RETURN NEW; END $$;"
        " CREATE TRIGGER fail BEFORE INSERT ON timer FOR EACH ROW EXECUTE FUNCTION fail()",
        times, state);
    t->engine->sql(t->engine->arg, text);
}

static void test_what_passes_is_repeated(void **state)
{
    struct suite *t = *state;
    static const char *const states[] = {"40001", "40P01", "55P03", "57P03", "53300"};
    for (unsigned i = 0; i < sizeof states / sizeof *states; i++) {
        uint64_t before = repeats(t);
        fail_first(t, states[i], 3);
        assert_err(PUT(t, .version = i + 1).err, MR_OK);
        assert_int_equal(repeats(t) - before, 3);
        t->engine->sql(t->engine->arg,
                       "DROP TRIGGER fail ON timer; DROP FUNCTION fail; DROP SEQUENCE tries");
    }
}

static void test_what_does_not_pass_is_told_and_the_rest_goes_on(void **state)
{
    struct suite *t = *state;
    struct mr_detail line;
    struct waiting w;
    fail_first(t, "53100", 2); /* the disk is full */
    submit(t, &w, 1);
    assert_true(mr_event_wait(&w.answered, SUITE_WAIT_MS * MR_NS_PER_MS));
    assert_err(w.apply.req.err, MR_DISK_FULL);
    mr_store_req_done(&w.apply.req);
    assert_err(mr_store_problem(t->store, &line), MR_DISK_FULL);
    assert_int_equal(suite_get(t, "a", "n")->state, MR_ROW_NONE); /* one can look */
    submit(t, &w, 1);
    assert_true(mr_event_wait(&w.answered, SUITE_WAIT_MS * MR_NS_PER_MS));
    assert_err(w.apply.req.err, MR_DISK_FULL);
    mr_store_req_done(&w.apply.req);
    assert_err(PUT(t).err, MR_OK);
    assert_err(mr_store_problem(t->store, &line), MR_OK);
}

int suite_faults(const struct suite_engine *engine)
{
    struct CMUnitTest tests[] = {
        SUITE_TEST(test_a_write_waits_for_another_writer),
        SUITE_TEST(test_a_writer_that_stays_is_out_of_reach_in_the_end_and_then_not),
    };
    struct CMUnitTest of_servers[] = {
        SUITE_TEST(test_a_lost_connection_is_made_again),
        SUITE_TEST(test_cuts_at_any_moment_lose_and_double_nothing),
        SUITE_TEST(test_a_server_that_dies_and_comes_back_is_waited_for),
        SUITE_TEST(test_a_server_that_stays_away_is_told_in_time),
        SUITE_TEST(test_what_passes_is_repeated),
        SUITE_TEST(test_what_does_not_pass_is_told_and_the_rest_goes_on),
    };
    int failed = SUITE_RUN(engine, "faults", tests);
    return failed + (engine->cut != NULL ? SUITE_RUN(engine, "faults of a server", of_servers) : 0);
}
