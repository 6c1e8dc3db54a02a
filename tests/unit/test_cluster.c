/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The leader's steps, against a broker of the test's own that answers at once on the caller's thread: it
 * shows nodes and queues as the test has them, and keeps what is written.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "cluster/cluster.h"

enum { NODES = 8, QUEUES = 3, OWNERS = 8, WAIT_MS = 20000, TERM = 7 };

struct world {
    struct mr_broker broker;
    struct mr_cluster *cluster;
    struct mr_lock lock; /* over what follows: the leader's thread asks */
    struct mr_node_info nodes[NODES];
    size_t nodes_n;
    struct mr_worker_queue queues[QUEUES];
    struct mr_assignment assignments[QUEUES];
    size_t queues_n;
    struct mr_owner owners[QUEUES][OWNERS];
    enum mr_err list_err, assign_errs[QUEUES]; /* what they are answered with */
    size_t lists, writes;
    uint64_t term; /* of the last write */
};

/* ---- the broker ----------------------------------------------------------------------------- */

static enum mr_err list(struct world *w, struct mr_req_node_list *req)
{
    w->lists++;
    req->nodes = w->nodes;
    req->n = w->nodes_n;
    req->assignments = w->assignments;
    req->assignments_n = w->queues_n;
    return w->list_err;
}

static enum mr_err assign(struct world *w, struct mr_req_assign *req)
{
    size_t i = 0;
    while (i < w->queues_n && !mr_slice_equal(w->assignments[i].queue, req->queue))
        i++;
    mr_assert(i < w->queues_n && req->owners_n <= OWNERS);
    struct mr_assignment *assignment = &w->assignments[i];
    w->writes++;
    w->term = req->term;
    mr_assert(mr_assign_check(req) == MR_OK && req->version == assignment->version);
    if (w->assign_errs[i] != MR_OK)
        return w->assign_errs[i];
    for (size_t k = 0; k < req->owners_n; k++)
        w->owners[i][k] = req->owners[k];
    assignment->owners = w->owners[i];
    assignment->owners_n = req->owners_n;
    assignment->version++;
    return MR_OK;
}

static void submit(struct mr_broker *broker, struct mr_req *req)
{
    struct world *w = mr_container(broker, struct world, broker);
    mr_lock_enter(&w->lock);
    enum mr_err err = req->op == MR_OP_NODE_LIST
                          ? list(w, mr_container(req, struct mr_req_node_list, req))
                          : assign(w, mr_container(req, struct mr_req_assign, req));
    mr_lock_notify_all(&w->lock);
    mr_lock_leave(&w->lock);
    mr_req_answer(req, err);
}

static int setup(void **state)
{
    static const struct mr_broker_ops ops = {.submit = submit};
    static const char *const names[] = {"n0", "n1", "n2", "n3", "n4", "n5", "n6", "n7"};
    static const char *const queues[] = {"a", "b", "c"};
    struct world *w = calloc(1, sizeof *w);
    w->broker.ops = &ops;
    mr_lock_init(&w->lock);
    for (size_t i = 0; i < QUEUES; i++) {
        w->queues[i].name = mr_slice_str(queues[i]);
        w->assignments[i] = (struct mr_assignment){.queue = w->queues[i].name, .partitions = 64};
    }
    for (size_t i = 0; i < NODES; i++)
        w->nodes[i] = (struct mr_node_info){.name = mr_slice_str(names[i]),
                                            .incarnation = 1000 + i,
                                            .started_ms = (int64_t)i,
                                            .queues = w->queues,
                                            .queues_n = QUEUES};
    w->queues_n = 1;
    *state = w;
    return mr_cluster_new(&w->broker, &w->cluster) == MR_OK ? 0 : -1;
}

static int teardown(void **state)
{
    struct world *w = *state;
    mr_cluster_free(w->cluster);
    mr_lock_done(&w->lock);
    free(w);
    return 0;
}

/* ---- leading -------------------------------------------------------------------------------- */

static mr_mono soon(int64_t ms)
{
    return mr_mono_add_ms(mr_mono_now(mr_clock_system()), ms);
}

/* One beat that says that it leads; waits until its pass has looked, and one more has begun after it. */
static void lead(struct world *w)
{
    for (int i = 0; i < 2; i++) {
        mr_lock_enter(&w->lock);
        size_t before = w->lists;
        mr_lock_leave(&w->lock);
        mr_cluster_leads(w->cluster, TERM, soon(WAIT_MS));
        mr_mono end = soon(WAIT_MS);
        mr_lock_enter(&w->lock);
        while (w->lists == before && mr_mono_now(mr_clock_system()).ns < end.ns)
            mr_lock_wait(&w->lock, MR_NS_PER_S);
        assert_true(w->lists > before);
        mr_lock_leave(&w->lock);
    }
    mr_cluster_leads(w->cluster, 0, soon(0));
    /* What the second pass writes is over when the next one has looked, or the cluster is freed; to know it,
     * a free and a new one. */
    mr_cluster_free(w->cluster);
    assert_int_equal(mr_cluster_new(&w->broker, &w->cluster), MR_OK);
}

static uint64_t owned(const struct world *w, size_t queue, size_t node)
{
    const struct mr_assignment *assignment = &w->assignments[queue];
    for (size_t i = 0; i < assignment->owners_n; i++)
        if (assignment->owners[i].incarnation == w->nodes[node].incarnation)
            return assignment->owners[i].owned;
    return 0;
}

static unsigned count(uint64_t bits)
{
    return (unsigned)__builtin_popcountll(bits);
}

static void a_leader_writes_under_its_term_and_only_what_changed(void **state)
{
    struct world *w = *state;
    w->nodes_n = 4;
    lead(w);
    assert_int_equal(w->writes, 1);
    assert_int_equal(w->term, TERM);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(count(owned(w, 0, i)), 16);
    lead(w);
    assert_int_equal(w->writes, 1);
}

static void when_a_worker_comes_or_goes_only_what_must_moves(void **state)
{
    struct world *w = *state;
    uint64_t before[NODES], lost = 0;
    w->nodes_n = 4;
    lead(w);
    for (size_t i = 0; i < NODES; i++)
        before[i] = owned(w, 0, i);
    w->nodes_n = 5;
    lead(w);
    assert_in_range(count(owned(w, 0, 4)), 12, 13);
    for (size_t i = 0; i < 4; i++)
        lost |= before[i] & ~owned(w, 0, i);
    assert_true(lost == owned(w, 0, 4)); /* what moved went to it */
    for (size_t i = 0; i < NODES; i++)
        before[i] = owned(w, 0, i);
    w->nodes[1].state = MR_NODE_DEAD;
    lead(w);
    assert_int_equal(count(owned(w, 0, 1)), 0);
    for (size_t i = 0; i < 5; i++)
        if (i != 1)
            assert_true((before[i] & ~owned(w, 0, i)) == 0); /* nobody else lost any */
}

static void by_a_hash_few_move_and_the_order_of_the_nodes_is_no_matter(void **state)
{
    struct world *w = *state;
    uint64_t before[NODES], moved = 0;
    w->assignments[0].assign = MR_ASSIGN_CONSISTENT_HASH;
    w->nodes_n = 4;
    lead(w);
    for (size_t i = 0; i < NODES; i++)
        before[i] = owned(w, 0, i);
    w->nodes_n = 5;
    lead(w);
    for (size_t i = 0; i < 5; i++)
        moved |= before[i] & ~owned(w, 0, i);
    assert_in_range(count(moved), 1, 21);
    for (size_t i = 0; i < 5; i++)
        before[i] = owned(w, 0, i);
    struct mr_node_info last = w->nodes[4];
    w->nodes[4] = w->nodes[0];
    w->nodes[0] = last;
    w->assignments[0].version = 0; /* as after a restart: nothing is known */
    w->assignments[0].owners_n = 0;
    lead(w);
    assert_true(owned(w, 0, 0) == before[4] && owned(w, 0, 4) == before[0]);
    for (size_t i = 1; i < 4; i++)
        assert_true(owned(w, 0, i) == before[i]);
}

static void those_who_do_not_serve_it_own_nothing(void **state)
{
    struct world *w = *state;
    w->nodes_n = 5;
    w->nodes[0].role = MR_NODE_MASTER;
    w->nodes[1].state = MR_NODE_DEAD;
    w->nodes[2].queues = &w->queues[1];
    w->nodes[2].queues_n = 1;
    w->nodes[3].state = MR_NODE_SUSPECT; /* it may be back at once */
    lead(w);
    assert_int_equal(w->assignments[0].owners_n, 2);
    assert_int_equal(count(owned(w, 0, 3)), 32);
    assert_int_equal(count(owned(w, 0, 4)), 32);
}

static void where_no_worker_is_left_it_stays_as_it_was(void **state)
{
    struct world *w = *state;
    w->nodes_n = 1;
    lead(w);
    uint64_t version = w->assignments[0].version;
    w->nodes_n = 0;
    lead(w);
    assert_true(w->assignments[0].version == version);
    w->nodes[0].incarnation = 99;
    w->nodes_n = 1;
    lead(w);
    assert_true(owned(w, 0, 0) == UINT64_MAX);
}

static void an_error_in_one_queue_is_no_reason_to_leave_out_the_others(void **state)
{
    struct world *w = *state;
    w->nodes_n = 2;
    w->queues_n = QUEUES;
    w->assign_errs[0] = MR_FAILED;
    w->assignments[1].partitions = 0; /* what no queue has */
    lead(w);
    assert_int_equal(w->assignments[0].owners_n, 0);
    assert_int_equal(w->assignments[1].owners_n, 0);
    assert_int_equal(w->assignments[2].owners_n, 2);
    w->assign_errs[0] = MR_OK;
    lead(w);
    assert_int_equal(w->assignments[0].owners_n, 2);
}

static void an_error_in_a_look_does_not_end_the_loop(void **state)
{
    struct world *w = *state;
    w->nodes_n = 2;
    w->list_err = MR_UNAVAILABLE;
    lead(w);
    assert_int_equal(w->writes, 0);
    w->list_err = MR_OK;
    lead(w);
    assert_int_equal(w->writes, 1);
}

/* Waits for so many looks, or longer than one between beats takes. */
static size_t looks_after(struct world *w, size_t looks, int64_t ms)
{
    mr_mono end = soon(ms);
    mr_lock_enter(&w->lock);
    while (w->lists < looks && mr_mono_now(mr_clock_system()).ns < end.ns)
        mr_lock_wait(&w->lock, MR_NS_PER_MS);
    size_t n = w->lists;
    mr_lock_leave(&w->lock);
    return n;
}

static void between_beats_a_worker_that_came_gets_its_share(void **state)
{
    struct world *w = *state;
    w->nodes_n = 2;
    mr_cluster_leads(w->cluster, TERM, soon(WAIT_MS));
    size_t looks = looks_after(w, 1, WAIT_MS);
    mr_lock_enter(&w->lock);
    w->nodes_n = 3;
    mr_lock_leave(&w->lock);
    assert_true(looks_after(w, looks + 2, WAIT_MS) >= looks + 2);
    mr_cluster_free(w->cluster);
    w->cluster = NULL;
    assert_in_range(count(owned(w, 0, 2)), 21, 22);
}

static void without_partitions_nothing_is_looked_at_between_beats(void **state)
{
    struct world *w = *state;
    w->nodes_n = 2;
    w->queues_n = 0;
    mr_cluster_leads(w->cluster, TERM, soon(WAIT_MS));
    assert_int_equal(looks_after(w, 2, 1500), 1);
}

static void one_that_does_not_lead_or_no_longer_does_nothing(void **state)
{
    struct world *w = *state;
    w->nodes_n = 2;
    mr_cluster_leads(w->cluster, 0, soon(WAIT_MS));
    mr_cluster_leads(w->cluster, TERM, soon(-1)); /* its time was over when it heard of it */
    mr_cluster_free(w->cluster);
    w->cluster = NULL;
    assert_int_equal(w->lists + w->writes, 0);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(a_leader_writes_under_its_term_and_only_what_changed),
        TEST(when_a_worker_comes_or_goes_only_what_must_moves),
        TEST(by_a_hash_few_move_and_the_order_of_the_nodes_is_no_matter),
        TEST(those_who_do_not_serve_it_own_nothing),
        TEST(where_no_worker_is_left_it_stays_as_it_was),
        TEST(an_error_in_one_queue_is_no_reason_to_leave_out_the_others),
        TEST(an_error_in_a_look_does_not_end_the_loop),
        TEST(between_beats_a_worker_that_came_gets_its_share),
        TEST(without_partitions_nothing_is_looked_at_between_beats),
        TEST(one_that_does_not_lead_or_no_longer_does_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
