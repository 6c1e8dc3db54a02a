/* SPDX-License-Identifier: Apache-2.0 */
/* The engine of several servers: taking from all of them, and ends where they belong. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "unit/many_rig.h"

static void test_a_worker_takes_from_all_and_finishes_where_it_took(void **state)
{
    enum { EACH = 5 };
    struct world *w = *state;
    open_many(w, SERVERS);
    open_node(w, LEASE_MS);
    await_attached(w, SERVERS);
    for (size_t i = 0; i < EACH * SERVERS; i++)
        assert_int_equal(put(w->many, "").err, MR_OK);
    for (size_t i = 0; i < EACH * SERVERS; i++) {
        struct mr_lease *lease = take_one(w);
        mr_broker_begun(w->many, w->first_slot, lease->epoch);
        assert_int_equal(finish(w, lease), MR_OK);
        assert_int_equal(finish(w, lease), MR_STALE);
        mr_lease_free(lease);
    }
    for (size_t i = 0; i < SERVERS; i++)
        assert_int_equal(count_at(w, i, MR_COMPLETED), EACH);
}

/* So the first take, which does not wait, finds what there is: a worker that ends when there is nothing depends on it. */
static void test_a_node_that_is_open_is_so_at_all_servers(void **state)
{
    struct world *w = *state;
    struct mr_lease *lease;
    size_t n;
    open_many(w, SERVERS);
    open_node(w, LEASE_MS);
    for (size_t i = 0; i < SERVERS; i++)
        assert_int_equal(nodes_at(w, i), 1);
    for (size_t i = 0; i < SERVERS; i++) {
        assert_int_equal(put(w->servers[i].store, "").err, MR_OK);
        assert_int_equal(take(w, 1, 0, &lease, &n), MR_OK);
        mr_lease_free(lease);
    }
}

static void test_no_more_is_in_hand_than_was_asked_for(void **state)
{
    struct world *w = *state;
    struct mr_lease *leases;
    size_t n;
    open_many(w, SERVERS);
    open_node(w, LEASE_MS);
    await_attached(w, SERVERS);
    for (size_t i = 0; i < 4 * SERVERS; i++)
        assert_int_equal(put(w->many, "").err, MR_OK);
    assert_int_equal(take(w, 2, 1000, &leases, &n), MR_OK);
    assert_int_equal(n, 2);
    WAIT_UNTIL(count(w->many, MR_ACTIVE) == 2);
    assert_int_equal(count(w->many, MR_PENDING), 4 * SERVERS - 2);
    while (leases != NULL) {
        struct mr_lease *next = leases->next;
        mr_lease_free(leases);
        leases = next;
    }
}

static void test_a_take_that_waits_is_woken_by_any_server(void **state)
{
    struct world *w = *state;
    open_many(w, SERVERS);
    open_node(w, LEASE_MS);
    await_attached(w, SERVERS);
    struct mr_lease *lease;
    size_t n;
    assert_int_equal(take(w, 1, 0, &lease, &n), MR_EMPTY);
    assert_int_equal(take(w, 1, 30, &lease, &n), MR_EMPTY);
    for (size_t i = 0; i < 2 * SERVERS; i++) {
        assert_int_equal(put(w->servers[i % SERVERS].store, "").err, MR_OK);
        lease = take_one(w);
        assert_int_equal(finish(w, lease), MR_OK);
        mr_lease_free(lease);
    }
}

static void test_what_comes_and_nobody_waits_for_goes_back(void **state)
{
    struct world *w = *state;
    struct mr_lease *lease;
    size_t n;
    open_many(w, SERVERS);
    open_node(w, LEASE_MS);
    await_attached(w, SERVERS);
    assert_int_equal(take(w, 1, 30, &lease, &n), MR_EMPTY);
    for (size_t i = 0; i < SERVERS; i++)
        assert_int_equal(put(w->servers[i].store, "").err, MR_OK);
    lease = take_one(w); /* the others wait where they are, or are there again soon */
    WAIT_UNTIL(count(w->many, MR_PENDING) == SERVERS - 1 && count(w->many, MR_ACTIVE) == 1);
    assert_int_equal(finish(w, lease), MR_OK);
    mr_lease_free(lease);
}

static void test_a_task_in_hand_is_finished_at_a_server_that_left_the_list(void **state)
{
    struct world *w = *state;
    open_many(w, 2);
    open_node(w, LEASE_MS);
    await_attached(w, 2);
    assert_int_equal(put(w->servers[0].store, "a").err, MR_OK);
    struct mr_lease *lease = take_one(w);
    set_servers(w, 1, 2);
    WAIT_UNTIL(nodes_at(w, 2) == 1);
    assert_int_equal(put(w->servers[0].store, "b").err, MR_OK);
    assert_int_equal(put(w->servers[2].store, "c").err, MR_OK);
    struct mr_lease *other = take_one(w);
    assert_memory_equal(other->task.id.data, "c", 1); /* nothing new from the one that left */
    assert_int_equal(beat(w), MR_OK);
    assert_int_equal(finish(w, lease), MR_OK);
    assert_int_equal(finish(w, other), MR_OK);
    assert_int_equal(state_of(w->servers[0].store, "a"), MR_COMPLETED);
    WAIT_UNTIL(nodes_at(w, 0) == 0); /* it has taken its leave */
    assert_int_equal(stops(w), 0);
    mr_lease_free(lease);
    mr_lease_free(other);
}

static void test_a_server_that_hangs_costs_its_own_leases_only(void **state)
{
    struct world *w = *state;
    open_many(w, 2);
    open_node(w, 3000);
    await_attached(w, 2);
    assert_int_equal(beat(w), MR_OK);
    assert_int_equal(put(w->servers[0].store, "a").err, MR_OK);
    struct mr_lease *lost = take_one(w);
    assert_int_equal(put(w->servers[1].store, "b").err, MR_OK);
    struct mr_lease *kept = take_one(w);
    w->servers[0].net.frozen = true;
    mr_mono since = now();
    while (stops(w) == 0) {
        assert_int_equal(beat(w), MR_OK); /* the other one answers */
        look_for(since, "the fence falls");
    }
    assert_int_equal(w->stops[0], lost->epoch);
    assert_int_equal(finish(w, kept), MR_OK);
    assert_int_equal(put(w->servers[1].store, "c").err, MR_OK);
    struct mr_lease *next = take_one(w);
    assert_memory_equal(next->task.id.data, "c", 1);
    assert_int_equal(finish(w, next), MR_OK);
    assert_int_equal(stops(w), 1);
    w->servers[0].net.frozen = false;
    WAIT_UNTIL(count_at(w, 0, MR_PENDING) == 1); /* the task waits for another run */
    struct mr_lease *again = take_one(w);        /* and the server is worked for again */
    assert_memory_equal(again->task.id.data, "a", 1);
    mr_lease_free(lost);
    mr_lease_free(kept);
    mr_lease_free(next);
    mr_lease_free(again);
}

static void test_a_server_that_was_started_again_is_worked_for_again(void **state)
{
    struct world *w = *state;
    open_many(w, SERVERS);
    open_node(w, LEASE_MS);
    await_attached(w, SERVERS);
    server_down(&w->servers[1]);
    server_up(&w->servers[1]);
    assert_int_equal(put(w->servers[1].store, "a").err, MR_OK);
    struct mr_lease *lease = take_one(w);
    assert_int_equal(finish(w, lease), MR_OK);
    assert_int_equal(state_of(w->servers[1].store, "a"), MR_COMPLETED);
    mr_lease_free(lease);
}

/* Servers that hang are not waited for one after the other. */
static void test_closing_waits_for_all_at_once(void **state)
{
    struct world *w = *state;
    open_many(w, SERVERS);
    open_node(w, LEASE_MS);
    await_attached(w, SERVERS);
    for (size_t i = 0; i < SERVERS; i++)
        w->servers[i].net.frozen = true;
    mr_mono since = now();
    mr_broker_close(w->many);
    w->many = NULL;
    assert_true(now().ns - since.ns < (int64_t)2 * MR_DOOR_CLOSE_MS * MR_NS_PER_MS);
}

/* Servers that come, and go for good, each with another address: those that are gone make room. */
static void test_any_number_of_servers_may_come_and_go(void **state)
{
    enum { OTHERS = 2 * MR_MANY_SERVERS_MAX };
    struct world *w = *state;
    struct mr_many_server found[MR_MANY_SERVERS_MAX];
    open_many(w, 1);
    open_node(w, LEASE_MS);
    for (size_t i = 0; i < OTHERS; i++) {
        char text[32];
        (void)snprintf(text, sizeof text, "127.0.0.1:%zu", i + 1); /* nobody listens there */
        struct listing list = {w, {w->servers[0].address, text}, 2, MR_FAILED};
        on_loop(mr_many_rpc(w->many), set_list, &list);
        assert_int_equal(list.err, MR_OK);
        assert_int_equal(mr_many_servers(w->many, found), 2);
        assert_true(found[0].up || found[1].up);
    }
    struct listing list = {w, {w->servers[0].address, w->servers[1].address}, 2, MR_FAILED};
    on_loop(mr_many_rpc(w->many), set_list, &list);
    assert_int_equal(list.err, MR_OK);
    WAIT_UNTIL(nodes_at(w, 1) == 1); /* the node follows */
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(put(w->servers[i].store, "").err, MR_OK);
        struct mr_lease *lease = take_one(w);
        assert_int_equal(finish(w, lease), MR_OK);
        mr_lease_free(lease);
        assert_int_equal(count_at(w, i, MR_COMPLETED), 1);
    }
}

static void test_the_end_of_a_task_is_waited_for_wherever_it_is(void **state)
{
    struct world *w = *state;
    open_many(w, SERVERS);
    open_node(w, LEASE_MS);
    await_attached(w, SERVERS);
    for (size_t i = 0; i < SERVERS; i++) {
        char id[16];
        (void)snprintf(id, sizeof id, "w%zu", i);
        assert_int_equal(put(w->servers[i].store, id).err, MR_OK);
        struct mr_req_await req = {
            .req = {.op = MR_OP_AWAIT}, .id = mr_slice_str(id), .wait_ms = 50};
        assert_int_equal(mr_broker_call(w->many, &req.req), MR_TIMEOUT);
        mr_req_done(&req.req);
        struct mr_lease *lease = take_one(w);
        assert_int_equal(finish(w, lease), MR_OK);
        mr_lease_free(lease);
        req = (struct mr_req_await){
            .req = {.op = MR_OP_AWAIT}, .id = mr_slice_str(id), .wait_ms = WAIT_MS};
        assert_int_equal(mr_broker_call(w->many, &req.req), MR_OK);
        assert_int_equal(req.task.state, MR_COMPLETED);
        mr_req_done(&req.req);
    }
}

/* ---- results ---------------------------------------------------------------------------------- */

/* A receipt does not say where its result is. */
static struct mr_finish receipt(void)
{
    return (struct mr_finish){
        .id = MR_SLICE_LIT("01a0c456-eff8-7830-8236-fa0bb7033f71"), .epoch = 7, .outcome = MR_DONE};
}

static void test_what_a_dead_server_may_have_is_not_said_to_be_committed(void **state)
{
    struct world *w = *state;
    struct mr_many_server found[MR_MANY_SERVERS_MAX];
    open_many(w, SERVERS);
    server_down(&w->servers[0]);
    WAIT_UNTIL(mr_many_servers(w->many, found) == SERVERS && !found[0].up);
    for (int round = 0; round < 2; round++) {
        struct mr_finish item = receipt();
        enum mr_err one = MR_OK;
        struct mr_req_finish req = {.req = {.op = MR_OP_FINISH},
                                    .items = &item,
                                    .n = 1,
                                    .errs = &one,
                                    .only_results = true};
        assert_int_equal(mr_broker_call(w->many, &req.req), MR_OK);
        assert_int_equal(one, round == 0 ? MR_UNAVAILABLE : MR_NOT_FOUND);
        mr_req_done(&req.req);
        if (round > 0)
            break;
        server_up(&w->servers[0]);
        WAIT_UNTIL(mr_many_servers(w->many, found) == SERVERS && found[0].up);
    }
}

/* Beside an end whose server comes back and is asked then. */
static void test_what_nobody_could_be_asked_for_is_not_said_to_be_committed(void **state)
{
    struct world *w = *state;
    struct mr_many_server found[MR_MANY_SERVERS_MAX];
    struct mr_event done;
    open_many(w, 1);
    open_node(w, LEASE_MS);
    assert_int_equal(put(w->many, "").err, MR_OK);
    struct mr_lease *lease = take_one(w);
    server_down(&w->servers[0]);
    WAIT_UNTIL(mr_many_servers(w->many, found) == 1 && !found[0].up);
    struct mr_finish items[] = {
        {.id = lease->task.id, .epoch = lease->epoch, .ref = lease->ref, .outcome = MR_DONE},
        receipt()};
    enum mr_err errs[] = {MR_OK, MR_OK};
    mr_event_init(&done);
    struct mr_req_finish req = {.req = {.op = MR_OP_FINISH, .done = answered, .arg = &done},
                                .items = items,
                                .n = 2,
                                .errs = errs};
    mr_broker_submit(w->many, &req.req);
    server_up(&w->servers[0]);
    assert_true(mr_event_wait(&done, WAIT_MS * MR_NS_PER_MS));
    assert_int_equal(req.req.err, MR_OK);
    assert_int_equal(errs[1], MR_UNAVAILABLE);
    mr_req_done(&req.req);
    mr_lease_free(lease);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_what_a_dead_server_may_have_is_not_said_to_be_committed),
        TEST(test_what_nobody_could_be_asked_for_is_not_said_to_be_committed),
        TEST(test_a_worker_takes_from_all_and_finishes_where_it_took),
        TEST(test_a_node_that_is_open_is_so_at_all_servers),
        TEST(test_no_more_is_in_hand_than_was_asked_for),
        TEST(test_a_take_that_waits_is_woken_by_any_server),
        TEST(test_what_comes_and_nobody_waits_for_goes_back),
        TEST(test_a_task_in_hand_is_finished_at_a_server_that_left_the_list),
        TEST(test_a_server_that_hangs_costs_its_own_leases_only),
        TEST(test_a_server_that_was_started_again_is_worked_for_again),
        TEST(test_closing_waits_for_all_at_once),
        TEST(test_any_number_of_servers_may_come_and_go),
        TEST(test_the_end_of_a_task_is_waited_for_wherever_it_is),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
