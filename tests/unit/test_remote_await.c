/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting for the end of a task at a server, through connections that break. */
#include "unit/remote_rig.h"

struct waiting {
    struct mr_req_await await;
    struct mr_event done;
};

static void waiting_done(struct mr_req *req)
{
    mr_event_set(&((struct waiting *)req->arg)->done);
}

static enum mr_err get(struct world *w, const char *id)
{
    struct mr_req_get get = {.req.op = MR_OP_GET, .id = mr_slice_str(id)};
    enum mr_err err = mr_broker_call(w->far, &get.req);
    mr_req_done(&get.req);
    return err;
}

/* Waits for "a". */
static void wait_begin(struct world *w, struct waiting *waiting, int64_t wait_ms)
{
    mr_event_init(&waiting->done);
    waiting->await = (struct mr_req_await){
        .req = {.op = MR_OP_AWAIT, .done = waiting_done, .arg = waiting},
        .id = MR_SLICE_LIT("a"),
        .wait_ms = wait_ms,
    };
    mr_broker_submit(w->far, &waiting->await.req);
}

/* The same, when it is there; the server has the call when this returns. */
static void wait_start(struct world *w, struct waiting *waiting, int64_t wait_ms)
{
    put_id(w, "a");
    wait_begin(w, waiting, wait_ms);
    assert_int_equal(get(w, "a"), MR_OK); /* it went behind it, over the same connection */
}

static enum mr_err wait_end(struct waiting *waiting)
{
    assert_true(mr_event_wait(&waiting->done, WAIT_MS * MR_NS_PER_MS));
    return waiting->await.req.err;
}

static void cancel(struct world *w, const char *id)
{
    enum mr_err err;
    struct mr_control item = {.verb = MR_VERB_CANCEL, .id = mr_slice_str(id)};
    struct mr_req_control control = {.req.op = MR_OP_CONTROL, .items = &item, .n = 1, .errs = &err};
    assert_int_equal(mr_broker_call(w->store, &control.req), MR_OK);
    assert_int_equal(err, MR_OK);
    mr_req_done(&control.req);
}

/* It still waits, and is told of the end. */
static void see_it_end(struct world *w, struct waiting *waiting)
{
    WAIT_UNTIL(get(w, "a") == MR_OK);
    assert_false(mr_event_is_set(&waiting->done));
    cancel(w, "a");
    assert_int_equal(wait_end(waiting), MR_OK);
    assert_int_equal(waiting->await.task.state, MR_ARCHIVED);
    mr_req_done(&waiting->await.req);
}

static void lose_the_network(struct world *w)
{
    w->network.refuse = true;
    forwarder_cut(&w->network);
}

/* ---- the tests ------------------------------------------------------------------------------ */

static void a_wait_goes_on_over_broken_connections(void **state)
{
    struct world *w = *state;
    struct waiting waiting;
    wait_start(w, &waiting, MR_DELAY_MAX_MS);
    for (int i = 0; i < 3; i++) {
        forwarder_cut(&w->network);
        WAIT_UNTIL(get(w, "a") == MR_OK);
    }
    see_it_end(w, &waiting);
}

static void a_wait_goes_on_at_a_server_that_was_started_again(void **state)
{
    struct world *w = *state;
    struct waiting waiting;
    wait_start(w, &waiting, MR_DELAY_MAX_MS);
    stop_server(w);
    start_server(w);
    see_it_end(w, &waiting);
}

/* It ended while nobody could be told. */
static void a_wait_finds_the_end_that_it_missed(void **state)
{
    struct world *w = *state;
    struct waiting waiting;
    wait_start(w, &waiting, MR_DELAY_MAX_MS);
    lose_the_network(w);
    cancel(w, "a");
    w->network.refuse = false;
    assert_int_equal(wait_end(&waiting), MR_OK);
    assert_int_equal(waiting.await.task.state, MR_ARCHIVED);
    mr_req_done(&waiting.await.req);
}

static void a_wait_without_a_server_ends_with_its_time(void **state)
{
    struct world *w = *state;
    struct waiting waiting;
    wait_start(w, &waiting, 300);
    lose_the_network(w);
    assert_int_equal(wait_end(&waiting), MR_TIMEOUT);
    mr_req_done(&waiting.await.req);
    w->network.refuse = false;
}

static void a_wait_does_not_wait_for_a_server_for_ever(void **state)
{
    struct world *w = *state;
    struct waiting waiting;
    wait_start(w, &waiting, MR_DELAY_MAX_MS);
    lose_the_network(w);
    assert_int_equal(wait_end(&waiting), MR_UNAVAILABLE);
    mr_req_done(&waiting.await.req);
    w->network.refuse = false;
}

static void a_wait_without_a_server_can_be_taken_back(void **state)
{
    struct world *w = *state;
    struct waiting waiting;
    wait_start(w, &waiting, MR_DELAY_MAX_MS);
    lose_the_network(w);
    WAIT_UNTIL(get(w, "a") == MR_UNAVAILABLE);
    struct mr_req_unawait unawait = {.req.op = MR_OP_UNAWAIT, .await = &waiting.await};
    assert_int_equal(mr_broker_call(w->far, &unawait.req), MR_OK);
    mr_req_done(&unawait.req);
    assert_int_equal(wait_end(&waiting), MR_CANCELLED);
    mr_req_done(&waiting.await.req);
    w->network.refuse = false;
}

static void closing_ends_a_wait_without_a_server(void **state)
{
    struct world *w = *state;
    struct waiting waiting;
    wait_start(w, &waiting, MR_DELAY_MAX_MS);
    lose_the_network(w);
    WAIT_UNTIL(get(w, "a") == MR_UNAVAILABLE);
    mr_broker_close(w->far);
    assert_int_equal(wait_end(&waiting), MR_CLOSED);
    mr_req_done(&waiting.await.req);
    w->network.refuse = false;
    open_far(w, NULL);
}

/* They are calls that last: more of them would leave none for anything else. */
static void too_many_waits_are_refused_and_everything_else_goes_on(void **state)
{
    struct world *w = *state;
    enum { MOST = 512 };
    static struct waiting waitings[MOST], more;
    put_id(w, "a");
    for (size_t i = 0; i < MOST; i++)
        wait_begin(w, &waitings[i], MR_DELAY_MAX_MS);
    wait_begin(w, &more, MR_DELAY_MAX_MS);
    assert_int_equal(wait_end(&more), MR_BUSY);
    mr_req_done(&more.await.req);
    assert_int_equal(get(w, "a"), MR_OK);
    cancel(w, "a");
    for (size_t i = 0; i < MOST; i++) {
        assert_int_equal(wait_end(&waitings[i]), MR_OK);
        mr_req_done(&waitings[i].await.req);
    }
    wait_begin(w, &more, MR_DELAY_MAX_MS); /* there is room again */
    assert_int_equal(wait_end(&more), MR_OK);
    mr_req_done(&more.await.req);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_wait_goes_on_over_broken_connections),
        TEST(a_wait_goes_on_at_a_server_that_was_started_again),
        TEST(a_wait_finds_the_end_that_it_missed),
        TEST(a_wait_without_a_server_ends_with_its_time),
        TEST(a_wait_does_not_wait_for_a_server_for_ever),
        TEST(a_wait_without_a_server_can_be_taken_back),
        TEST(closing_ends_a_wait_without_a_server),
        TEST(too_many_waits_are_refused_and_everything_else_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
