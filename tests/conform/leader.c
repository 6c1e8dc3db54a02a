/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: who leads, by whose beats, until when; and what the leader writes. */
#include "conform/conform.h"

enum { LEADER_MS = 300, N = 4 };

/* ---- asking --------------------------------------------------------------------------------- */

/* What the beat of a candidate is answered. */
struct answer {
    uint64_t term;
    int64_t leader_ms;
};

static struct answer beat(struct conform *t, const struct conform_node *node)
{
    struct mr_req_beat req = {.req.op = MR_OP_BEAT, .node = node->node, .term = 1, .leader_ms = -1};
    assert_err(mr_broker_call(t->broker, &req.req), MR_OK);
    mr_req_done(&req.req);
    return (struct answer){req.term, req.leader_ms};
}

static uint64_t beat_term(struct conform *t, const struct conform_node *node)
{
    return beat(t, node).term;
}

static struct mr_leader leader(struct conform *t)
{
    return conform_node_list(t)->leader;
}

static int64_t leaderless_ms(struct conform *t)
{
    return leader(t).leaderless_ms;
}

static bool nobody_leads(struct conform *t)
{
    struct mr_leader now = leader(t);
    assert_int_equal(now.incarnation == 0, now.node.len == 0);
    assert_int_equal(now.incarnation == 0, now.since_ms == 0);
    assert_int_equal(now.incarnation == 0, now.leaderless_ms > 0);
    return now.incarnation == 0;
}

/* ---- who leads ------------------------------------------------------------------------------ */

static void nobody_leads_before_a_candidate_beats(void **state)
{
    struct conform *t = *state;
    struct conform_node *other = NODE(t, .name = "other");
    (void)NODE(t, .name = "silent", .leader_ms = 60000);
    assert_int_equal(beat_term(t, other), 0);
    assert_true(nobody_leads(t));
    assert_int_equal(leader(t).term, 0);
    int64_t first_ms = leaderless_ms(t);
    WAIT_UNTIL(leaderless_ms(t) > first_ms);
    WAIT_UNTIL(conform_stats_now(t).leaderless_ms > first_ms);
}

static void the_first_candidate_that_beats_leads_and_all_see_it(void **state)
{
    struct conform *t = *state;
    int64_t before_ms = conform_wall_ms();
    struct conform_node *a = NODE(t, .name = "a", .leader_ms = 60000);
    struct conform_node *b = NODE(t, .name = "b", .leader_ms = 60000);
    struct answer answer = beat(t, a);
    assert_true(answer.term > 0);
    assert_in_range(answer.leader_ms, 59000, 60001);
    uint64_t term = answer.term;
    answer = beat(t, b);
    assert_int_equal(answer.term, 0);
    assert_in_range(answer.leader_ms, 1, 60001);
    assert_false(nobody_leads(t));
    struct mr_leader now = leader(t);
    assert_slice(now.node, "a");
    assert_true(now.term == term);
    assert_in_range(now.since_ms, before_ms - 1, conform_wall_ms() + 1);
    assert_int_equal(conform_stats_now(t).leaderless_ms, 0);
    size_t n;
    const struct mr_node_info *nodes = conform_list_nodes(t, &n);
    assert_int_equal(n, 2);
    const struct mr_node_info *first = mr_slice_equal(nodes[0].name, now.node) ? nodes : nodes + 1;
    assert_true(first->incarnation == now.incarnation);
}

static void a_leader_leads_while_it_beats(void **state)
{
    struct conform *t = *state;
    struct conform_node *a = NODE(t, .name = "a", .leader_ms = LEADER_MS);
    struct conform_node *b = NODE(t, .name = "b", .leader_ms = LEADER_MS);
    uint64_t term = beat_term(t, a);
    mr_mono begin = conform_mono();
    while (conform_elapsed_ms(begin) < 3 * LEADER_MS) {
        mr_mono beaten = conform_mono();
        uint64_t again = beat_term(t, a);
        if (conform_elapsed_ms(beaten) < LEADER_MS / 2) /* else we were the ones who were late */
            assert_true(again == term);
        term = again;
        assert_int_equal(beat_term(t, b), 0);
        conform_pass_ms(5);
    }
    assert_slice(leader(t).node, "a");
}

static void when_its_lease_is_over_nobody_leads_and_then_another_does(void **state)
{
    struct conform *t = *state;
    struct conform_node *a = NODE(t, .name = "a", .leader_ms = LEADER_MS);
    struct conform_node *b = NODE(t, .name = "b", .leader_ms = LEADER_MS);
    mr_mono begin = conform_mono();
    uint64_t first = beat_term(t, a), second = 0;
    WAIT_UNTIL(nobody_leads(t));
    assert_in_range(conform_elapsed_ms(begin), LEADER_MS - 2, CONFORM_WAIT_MS);
    assert_true(leader(t).term == first);
    WAIT_UNTIL((second = beat_term(t, b)) != 0);
    assert_true(second > first);
    assert_int_equal(beat_term(t, a), 0); /* it steps down */
    assert_slice(leader(t).node, "b");
    assert_true(leader(t).term == second);
}

static void the_answer_says_when_to_beat_again(void **state)
{
    struct conform *t = *state;
    struct conform_node *a = NODE(t, .name = "a", .leader_ms = LEADER_MS);
    struct conform_node *b = NODE(t, .name = "b", .leader_ms = LEADER_MS);
    assert_true(beat_term(t, a) != 0);
    struct answer answer = beat(t, b);
    assert_in_range(answer.leader_ms, 1, LEADER_MS + 1);
    conform_pass_ms(answer.leader_ms + 1);
    assert_true(beat_term(t, b) != 0);
}

static void a_leader_that_closes_leads_no_more(void **state)
{
    struct conform *t = *state;
    struct conform_node *a = NODE(t, .name = "a", .leader_ms = 60000);
    struct conform_node *b = NODE(t, .name = "b", .leader_ms = 60000);
    uint64_t first = beat_term(t, a);
    assert_int_equal(beat_term(t, b), 0);
    assert_err(conform_node_close(t, a), MR_OK);
    assert_true(nobody_leads(t));
    assert_true(beat_term(t, b) > first);
}

static void a_leader_that_dies_leads_no_more(void **state)
{
    struct conform *t = *state;
    struct conform_node *a = NODE(t, .name = "a", .leader_ms = 60000, .lease_ms = CONFORM_LEASE_MS);
    struct conform_node *b = NODE(t, .name = "b", .leader_ms = 60000);
    uint64_t first = beat_term(t, a), second = 0;
    assert_true(first != 0);
    WAIT_UNTIL((second = beat_term(t, b)) != 0);
    assert_true(second > first);
    assert_slice(leader(t).node, "b");
}

static void a_candidate_must_say_how_long_it_leads(void **state)
{
    struct conform *t = *state;
    struct conform_node *like = NODE(t);
    struct mr_worker_queue queue = {.name = MR_SLICE_LIT("default")};
    struct mr_req_node_open req = {.req.op = MR_OP_NODE_OPEN,
                                   .name = MR_SLICE_LIT("n"),
                                   .queues = &queue,
                                   .queues_n = 1,
                                   .slots = 1,
                                   .lease_ms = 60000,
                                   .leads = true,
                                   .events = {.stop = conform_node_stop, .arg = like}};
    assert_err(mr_broker_call(t->broker, &req.req), MR_INVALID);
    mr_req_done(&req.req);
}

static void terms_rise_over_a_restart(void **state)
{
    struct conform *t = *state;
    if (!t->engine->can_reopen)
        return;
    uint64_t first = beat_term(t, NODE(t, .name = "a", .leader_ms = 60000));
    conform_reopen(t);
    struct conform_node *b = NODE(t, .name = "b", .leader_ms = 60000);
    uint64_t second = 0;
    WAIT_UNTIL((second = beat_term(t, b)) != 0);
    assert_true(second > first);
}

/* ---- what the leader writes ----------------------------------------------------------------- */

/* NULL: there is none of this queue. */
static const struct mr_assignment *assignment(struct conform *t, const char *queue)
{
    const struct mr_req_node_list *list = conform_node_list(t);
    for (size_t i = 0; i < list->assignments_n; i++)
        if (mr_slice_equal(list->assignments[i].queue, mr_slice_str(queue)))
            return &list->assignments[i];
    return NULL;
}

static uint64_t incarnation(struct conform *t, const char *name)
{
    size_t n;
    const struct mr_node_info *nodes = conform_list_nodes(t, &n);
    for (size_t i = 0; i < n; i++)
        if (mr_slice_equal(nodes[i].name, mr_slice_str(name)))
            return nodes[i].incarnation;
    fail_msg("no node %s", name);
    return 0;
}

/* Writes that these two own those bits; *version is the one before, and after. */
static enum mr_err assign(struct conform *t, uint64_t term, const char *queue, uint64_t a_owns,
                          uint64_t b_owns, uint64_t *version)
{
    struct mr_owner owners[2] = {
        {mr_slice_str("a"), incarnation(t, "a"), a_owns},
        {mr_slice_str("b"), incarnation(t, "b"), b_owns},
    };
    struct mr_req_assign req = {.req.op = MR_OP_ASSIGN,
                                .term = term,
                                .queue = mr_slice_str(queue),
                                .version = *version,
                                .owners = owners,
                                .owners_n = 2};
    enum mr_err err = mr_broker_call(t->broker, &req.req);
    mr_req_done(&req.req);
    if (err == MR_OK)
        *version = req.version;
    return err;
}

static void what_is_no_assignment_is_refused(void **state)
{
    struct conform *t = *state;
    struct conform_node *a = NODE(t, .name = "a", .queues = "q", .leader_ms = 60000);
    (void)NODE(t, .name = "b", .queues = "q");
    uint64_t term = beat_term(t, a), version = 0;
    assert_err(assign(t, term, "q", 1, 2, &version), MR_NOT_FOUND);
    assert_err(assign(t, 0, "q", 1, 2, &version), MR_INVALID);
    assert_err(assign(t, term, "", 1, 2, &version), MR_INVALID);
    assert_err(assign(t, term, "q", 0, 0, &version), MR_INVALID);
    assert_err(assign(t, term, "q", 1, 4, &version), MR_INVALID); /* the second has none */
    assert_err(assign(t, term, "q", 2, 4, &version), MR_INVALID);
    struct mr_req_assign req = {.req.op = MR_OP_ASSIGN, .term = term, .queue = MR_SLICE_LIT("q")};
    assert_err(mr_broker_call(t->broker, &req.req), MR_INVALID); /* nobody owns anything */
    mr_req_done(&req.req);
    (void)PUT_OK(t, .queue = MR_SLICE_LIT("q"));
    assert_null(assignment(t, "q"));
    assert_err(assign(t, term, "q", 1, 1, &version), MR_NOT_FOUND); /* one partition is nobody's */
}

static void an_assignment_is_seen_whole_and_its_version_rises(void **state)
{
    struct conform *t = *state;
    struct conform_node *a = NODE(t, .name = "a", .queues = "q", .leader_ms = 60000);
    (void)NODE(t, .name = "b", .queues = "q");
    uint64_t term = beat_term(t, a), version = 0;
    assert_err(conform_queue_set(t, "q", MR_QUEUE_PARTITIONS, N), MR_OK);
    assert_err(conform_queue_set(t, "q", MR_QUEUE_ASSIGN, MR_ASSIGN_CONSISTENT_HASH), MR_OK);
    const struct mr_assignment *shown = assignment(t, "q");
    assert_non_null(shown);
    assert_int_equal(shown->partitions, N);
    assert_int_equal(shown->assign, MR_ASSIGN_CONSISTENT_HASH);
    assert_true(shown->version == 0 && shown->term == 0 && shown->owners_n == 0);
    uint64_t last = 0;
    for (uint64_t i = 0; i < 4; i++) {
        assert_err(assign(t, term, "q", i, 0xf & ~i, &version), MR_OK);
        assert_true(version > last);
        shown = assignment(t, "q");
        assert_true(shown->version == version && shown->term == term);
        assert_int_equal(shown->owners_n, 2);
        assert_slice(shown->owners[0].node, "a");
        assert_true(shown->owners[0].incarnation == incarnation(t, "a"));
        assert_true(shown->owners[0].owned == i && shown->owners[1].owned == (0xf & ~i));
        last = version;
    }
    uint64_t old = 0;
    assert_err(assign(t, term, "q", 0xf, 0, &old), MR_STALE); /* another version is in force */
    assert_true(assignment(t, "q")->version == version);
    assert_err(conform_queue_remove(t, "q", MR_QUEUE_REMOVE_FORCE), MR_OK);
    WAIT_UNTIL(assignment(t, "q") == NULL);
}

static void a_leader_that_was_replaced_writes_nothing(void **state)
{
    struct conform *t = *state;
    struct conform_node *a = NODE(t, .name = "a", .queues = "q", .leader_ms = LEADER_MS);
    struct conform_node *b = NODE(t, .name = "b", .queues = "q", .leader_ms = 60000);
    uint64_t version = 0, term = 0, first;
    assert_err(conform_queue_set(t, "q", MR_QUEUE_PARTITIONS, N), MR_OK);
    WAIT_UNTIL((first = beat_term(t, a), assign(t, first, "q", 3, 12, &version) == MR_OK));
    WAIT_UNTIL(nobody_leads(t));
    assert_err(assign(t, first, "q", 12, 3, &version), MR_STALE);
    WAIT_UNTIL((term = beat_term(t, b)) != 0);
    assert_err(assign(t, first, "q", 12, 3, &version), MR_STALE);
    assert_err(assign(t, term + 1, "q", 12, 3, &version), MR_STALE);
    assert_true(assignment(t, "q")->version == version);
    assert_err(assign(t, term, "q", 12, 3, &version), MR_OK);
    assert_true(assignment(t, "q")->term == term);
}

/* Of the partitions that there are; fails where one has no owner, or one that is not there has. */
static const struct mr_assignment *whole_assignment(struct conform *t, uint32_t n)
{
    const struct mr_assignment *shown = assignment(t, "q");
    uint64_t owned = 0;
    assert_non_null(shown);
    assert_int_equal(shown->partitions, n);
    for (size_t i = 0; i < shown->owners_n; i++)
        owned |= shown->owners[i].owned;
    assert_true(owned == UINT64_MAX >> (64 - n));
    return shown;
}

static void another_number_of_partitions_leaves_no_hole(void **state)
{
    struct conform *t = *state;
    struct conform_node *a = NODE(t, .name = "a", .queues = "q", .leader_ms = 60000);
    (void)NODE(t, .name = "b", .queues = "q");
    uint64_t term = beat_term(t, a), version = 0;
    assert_err(conform_queue_set(t, "q", MR_QUEUE_PARTITIONS, N), MR_OK);
    assert_err(assign(t, term, "q", 5, 10, &version), MR_OK);
    uint64_t last = version;
    assert_err(conform_queue_set(t, "q", MR_QUEUE_PARTITIONS, 2 * N), MR_OK);
    const struct mr_assignment *shown = whole_assignment(t, 2 * N);
    assert_true(shown->version > last && shown->term == term);
    /* What was somebody's stays, what comes is shared evenly. */
    assert_true((shown->owners[0].owned & 15) == 5 && (shown->owners[1].owned & 15) == 10);
    assert_int_equal(__builtin_popcountll(shown->owners[0].owned), N);
    version = last = shown->version;
    assert_err(assign(t, term, "q", 0xff, 0, &version), MR_OK);
    last = version;
    assert_err(conform_queue_set(t, "q", MR_QUEUE_PARTITIONS, 2), MR_OK);
    shown = whole_assignment(t, 2);
    assert_true(shown->version > last);
    version = shown->version;
    assert_err(assign(t, term, "q", 0xf, 0, &version), MR_STALE); /* it does not know yet */
    assert_err(assign(t, term, "q", 1, 0, &version), MR_STALE);
    assert_err(assign(t, term, "q", 1, 2, &version), MR_OK);
    assert_err(conform_queue_set(t, "q", MR_QUEUE_PARTITIONS, MR_PARTITIONS_MAX), MR_OK);
    assert_true(whole_assignment(t, MR_PARTITIONS_MAX)->version > version);
}

static void with_its_partitions_an_assignment_goes(void **state)
{
    struct conform *t = *state;
    struct conform_node *a = NODE(t, .name = "a", .queues = "q", .leader_ms = 60000);
    (void)NODE(t, .name = "b", .queues = "q");
    uint64_t term = beat_term(t, a), version = 0, none = 0;
    for (int i = 0; i < 2; i++) {
        assert_err(conform_queue_set(t, "q", MR_QUEUE_PARTITIONS, N), MR_OK);
        uint64_t last = version;
        version = 0;
        assert_err(assign(t, term, "q", 5, 10, &version), MR_OK);
        assert_true(version > last);
        if (i == 0)
            assert_err(conform_queue_set(t, "q", MR_QUEUE_PARTITIONS, 1), MR_OK);
        else
            assert_err(conform_queue_remove(t, "q", MR_QUEUE_REMOVE_FORCE), MR_OK);
        assert_err(assign(t, term, "q", 5, 10, &none), MR_NOT_FOUND);
    }
    assert_err(conform_queue_set(t, "q", MR_QUEUE_PARTITIONS, N), MR_OK);
    const struct mr_assignment *shown = assignment(t, "q");
    assert_true(shown->version == 0 && shown->owners_n == 0);
}

/* From which partition it takes next; another one comes there in its place. */
static uint32_t takes_from(struct conform *t, const struct conform_node *node)
{
    struct mr_lease *lease = conform_take_one(t, node);
    uint32_t partition = lease->task.partition;
    FINISH_OK(t, lease, .outcome = MR_DONE);
    (void)PUT_OK(t, .queue = MR_SLICE_LIT("q"), .partition = partition);
    return partition;
}

/* Now and then any partition is looked at: so most of the time, not always. */
static bool takes_mostly_from(struct conform *t, const struct conform_node *node, uint64_t bits)
{
    enum { TAKES = 16 };
    size_t own = 0;
    for (int i = 0; i < TAKES; i++)
        own += bits >> (takes_from(t, node) - 1) & 1;
    return own >= TAKES - 2;
}

static void a_node_takes_first_from_what_it_owns(void **state)
{
    struct conform *t = *state;
    struct conform_node *a = NODE(t, .name = "a", .queues = "q", .leader_ms = 60000);
    struct conform_node *b = NODE(t, .name = "b", .queues = "q");
    uint64_t term = beat_term(t, a), version = 0;
    assert_err(conform_queue_set(t, "q", MR_QUEUE_PARTITIONS, N), MR_OK);
    assert_err(assign(t, term, "q", 1 << 2, 0xb, &version), MR_OK);
    for (uint32_t i = 1; i <= N; i++)
        for (int k = 0; k < 2; k++)
            (void)PUT_OK(t, .queue = MR_SLICE_LIT("q"), .partition = i);
    WAIT_UNTIL((beat_term(t, b), takes_mostly_from(t, b, 0xb))); /* it hears of it by a beat */
    WAIT_UNTIL((beat_term(t, a), takes_mostly_from(t, a, 1 << 2)));
    assert_err(assign(t, term, "q", 0xb, 1 << 2, &version), MR_OK);
    WAIT_UNTIL((beat_term(t, b), takes_mostly_from(t, b, 1 << 2)));
    WAIT_UNTIL((beat_term(t, a), takes_mostly_from(t, a, 0xb)));
}

int conform_leader(const struct conform_engine *engine)
{
    static struct CMUnitTest tests[] = {
        CONFORM_TEST(nobody_leads_before_a_candidate_beats),
        CONFORM_TEST(the_first_candidate_that_beats_leads_and_all_see_it),
        CONFORM_TEST(a_leader_leads_while_it_beats),
        CONFORM_TEST(when_its_lease_is_over_nobody_leads_and_then_another_does),
        CONFORM_TEST(the_answer_says_when_to_beat_again),
        CONFORM_TEST(a_leader_that_closes_leads_no_more),
        CONFORM_TEST(a_leader_that_dies_leads_no_more),
        CONFORM_TEST(a_candidate_must_say_how_long_it_leads),
        CONFORM_TEST(terms_rise_over_a_restart),
        CONFORM_TEST(what_is_no_assignment_is_refused),
        CONFORM_TEST(an_assignment_is_seen_whole_and_its_version_rises),
        CONFORM_TEST(a_leader_that_was_replaced_writes_nothing),
        CONFORM_TEST(another_number_of_partitions_leaves_no_hole),
        CONFORM_TEST(with_its_partitions_an_assignment_goes),
        CONFORM_TEST(a_node_takes_first_from_what_it_owns),
    };
    return CONFORM_RUN(engine, "leader", tests);
}
