/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Part E, and test 59: who leads. Nodes are processes, killed and stopped; where one process at a time has
 * the broker they are workers in it, and those tests are about what can happen to these.
 */
#include <signal.h>
#include <stdio.h>

#include "accept/fault.h"
#include "accept/view.h"
#include "support/redis_rig.h"

enum { LATE_MS = 1000, CREW = 3, PARTS = 6 };

static const char *const names[CREW] = {"n0", "n1", "n2"};

/* Nodes by their names, processes where that can be. */
struct nodes {
    struct accept *t;
    pid_t pids[CREW];
    struct mr_worker *workers[CREW];
};

static void node_start(struct nodes *nodes, size_t i, const char *queues)
{
    if (nodes->t->engine->shared)
        nodes->pids[i] =
            PROCESS(nodes->t, nodes->t->place[0].url, .node = names[i], .queues = queues);
    else
        nodes->workers[i] = WORKER(nodes->t, .node = names[i], .queues = queues);
}

/* It is killed, or closed where it cannot be. */
static void node_end(struct nodes *nodes, size_t i)
{
    if (nodes->pids[i] != 0)
        accept_kill_process(nodes->t, nodes->pids[i]);
    else
        accept_dismiss(nodes->t, nodes->workers[i]);
    nodes->pids[i] = 0;
    nodes->workers[i] = NULL;
}

static size_t number_of(const char *name)
{
    for (size_t i = 0; i < CREW; i++)
        if (strcmp(names[i], name) == 0)
            return i;
    fail_msg("%s leads", name);
    return 0;
}

static bool somebody_leads(struct accept *t)
{
    return view_leader(t->client).node[0] != '\0';
}

static bool all_live(struct accept *t)
{
    for (size_t i = 0; i < CREW; i++)
        if (!view_is_live(t->client, names[i]))
            return false;
    return true;
}

/* Three of them; answers which one leads. */
static size_t three(struct nodes *nodes, const char *queues)
{
    for (size_t i = 0; i < CREW; i++)
        node_start(nodes, i, queues);
    UNTIL(all_live(nodes->t) && somebody_leads(nodes->t));
    return number_of(view_leader(nodes->t->client).node);
}

/* Another one than before leads; answers which, and when. */
static size_t await_other(struct accept *t, const struct view_leader *before, mr_mono since)
{
    struct view_leader now;
    UNTIL((now = view_leader(t->client), now.node[0] != '\0' && now.term != before->term));
    assert_true(now.term > before->term);
    assert_true(now.incarnation != before->incarnation);
    assert_in_range(accept_since_ms(since), 0, ACCEPT_DEATH_MS + LATE_MS);
    return number_of(now.node);
}

static void test_37_of_three_nodes_one_leads_and_all_say_the_same(void **state)
{
    struct accept *t = *state;
    struct nodes nodes = {.t = t};
    for (size_t i = 0; i < CREW; i++)
        node_start(&nodes, i, NULL);
    UNTIL(all_live(t));
    mr_mono begin = accept_now();
    UNTIL(somebody_leads(t));
    assert_in_range(accept_since_ms(begin), 0, 1000);
    struct view_leader leader = view_leader(t->client);
    for (int i = 0; i < 3 && t->engine->shared; i++) {
        struct mr_client *other = accept_open_at(&t->place[0], "");
        struct view_leader same = view_leader(other);
        assert_string_equal(same.node, leader.node);
        assert_true(same.term == leader.term && same.incarnation == leader.incarnation);
        mr_client_close(other);
    }
    accept_pass_ms(ACCEPT_DEATH_MS);
    assert_true(view_leader(t->client).term == leader.term); /* and stays so */
}

static void test_38_a_worker_can_lead_and_crashes_are_dealt_with(void **state)
{
    struct accept *t = *state;
    if (!t->engine->shared)
        return; /* nobody crashes beside it */
    struct nodes nodes = {.t = t};
    accept_settle(t);
    size_t leader = three(&nodes, NULL), victim = (leader + 1) % CREW;
    assert_int_equal(view_node(t->client, names[leader]).role, MR_NODE_WORKER);
    assert_err(mr_queue_set_partitions(t->client, mr_slice_str("p"), PARTS), MR_OK);
    pid_t pid = PROCESS(t, t->place[0].url, .node = "doomed", .queues = "mine");
    PUT(t, .id = "x", .queue = "mine", .type = "first");
    UNTIL(accept_ran(t, "x") == 1);
    WORKER(t, .node = "heir", .queues = "mine");
    accept_kill_process(t, pid);
    mr_mono died = accept_now();
    UNTIL(accept_state(t, "x") == MR_COMPLETED);
    assert_in_range(accept_since_ms(died), 0, ACCEPT_DEATH_MS + ACCEPT_BEAT_MS + LATE_MS);
    node_end(&nodes, victim);
    assert_true(somebody_leads(t));
}

static void test_38_a_master_can_lead_workers_that_do_not(void **state)
{
    struct accept *t = *state;
    struct mr_master *master = NULL;
    struct mr_master_options options = {.node = mr_slice_str("boss"),
                                        .beat_ms = ACCEPT_BEAT_MS,
                                        .beats_missed = ACCEPT_BEATS_MISSED};
    assert_err(mr_queue_set_partitions(t->client, mr_slice_str("p"), PARTS), MR_OK);
    WORKER(t, .node = names[0], .queues = "p", .never_leads = true);
    WORKER(t, .node = names[1], .queues = "p", .never_leads = true);
    assert_err(mr_master_open(t->client, &options, &master), MR_OK);
    UNTIL(view_leads(t->client, "boss"));
    assert_int_equal(view_node(t->client, "boss").role, MR_NODE_MASTER);
    UNTIL(view_shared_by(t->client, "p", names, 2));
    struct view_leader before = view_leader(t->client);
    accept_pass_ms(ACCEPT_DEATH_MS + ACCEPT_BEAT_MS);
    assert_true(view_leader(t->client).term == before.term); /* it beats */
    mr_master_free(master);
    assert_false(somebody_leads(t));
    const char *id = PUT(t, .queue = "p", .payload = "p");
    accept_await_echo(t, id);
}

static void test_39_when_the_leader_is_killed_another_leads(void **state)
{
    struct accept *t = *state;
    struct nodes nodes = {.t = t};
    accept_settle(t);
    size_t leader = three(&nodes, NULL);
    const char *id = NULL;
    struct view_leader before = view_leader(t->client);
    if (t->engine->shared) {
        id = PUT(t, .id = "x", .queue = "led", .type = "first");
        node_end(&nodes, leader); /* the same node, now with a task in its hands */
        nodes.pids[leader] =
            PROCESS(t, t->place[0].url, .node = names[leader], .queues = "led", .slots = 1);
        UNTIL(accept_ran(t, id) == 1 && somebody_leads(t));
        before = view_leader(t->client);
        leader = number_of(before.node);
    }
    mr_mono died = accept_now();
    node_end(&nodes, leader);
    (void)await_other(t, &before, died);
    if (!id)
        return;
    for (size_t i = 0; i < CREW; i++) /* whoever has it dies as well */
        if (nodes.pids[i] != 0)
            node_end(&nodes, i);
    died = accept_now();
    WORKER(t, .node = "heir", .queues = "led");
    UNTIL(accept_state(t, id) == MR_COMPLETED);
    assert_in_range(accept_since_ms(died), 0, 2 * ACCEPT_DEATH_MS + ACCEPT_BEAT_MS + LATE_MS);
}

/* What leaders write while one of them is stopped and goes on: never under an older term than before. */
static void watch_terms(struct accept *t, int64_t ms, struct view_shares *last)
{
    mr_mono begin = accept_now();
    while (accept_since_ms(begin) < ms) {
        struct view_shares now = view_shares(t->client, "p");
        view_check_shares(&now);
        assert_true(now.version >= last->version && now.term >= last->term);
        assert_true(now.version != last->version || now.term == last->term);
        *last = now;
        accept_pass_ms(5);
    }
}

static void test_40_a_leader_that_was_stopped_steps_down(void **state)
{
    struct accept *t = *state;
    if (!t->engine->shared)
        return; /* a stopped process stops its engine, too */
    struct nodes nodes = {.t = t};
    struct view_shares last = {.version = 0};
    accept_settle(t);
    assert_err(mr_queue_set_partitions(t->client, mr_slice_str("p"), PARTS), MR_OK);
    size_t leader = three(&nodes, "p");
    UNTIL(view_shared_by(t->client, "p", names, CREW));
    struct view_leader before = view_leader(t->client);
    const char *id = PUT(t, .id = "x", .queue = "p", .type = "first");
    UNTIL(accept_ran(t, id) == 1);
    mr_mono stopped = accept_now();
    assert_int_equal(kill(nodes.pids[leader], SIGSTOP), 0);
    size_t heir = await_other(t, &before, stopped);
    uint64_t term = view_leader(t->client).term;
    watch_terms(t, 3 * ACCEPT_DEATH_MS - accept_since_ms(stopped), &last);
    assert_int_equal(kill(nodes.pids[leader], SIGCONT), 0);
    watch_terms(t, ACCEPT_DEATH_MS, &last);
    struct view_leader now = view_leader(t->client);
    assert_true(now.term == term && number_of(now.node) == heir);
    UNTIL(view_shared_by(t->client, "p", names, CREW)); /* it is one of them again */
    assert_true(view_shares(t->client, "p").term == term);
    /* Where the stopped one ran it, it was lost once; else it still runs. */
    if (accept_ran(t, id) == 1)
        assert_err(accept_act(t, MR_VERB_CANCEL, id, 0), MR_OK);
    UNTIL(accept_state(t, id) == MR_COMPLETED || accept_state(t, id) == MR_ARCHIVED);
    assert_in_range(accept_ran(t, id), 1, 2);
}

static void test_41_the_last_one_leads_and_a_new_one_takes_part(void **state)
{
    struct accept *t = *state;
    struct nodes nodes = {.t = t};
    (void)three(&nodes, NULL);
    struct view_leader before = view_leader(t->client);
    size_t leader = number_of(before.node);
    for (size_t left = CREW; left > 1; left--) {
        mr_mono died = accept_now();
        node_end(&nodes, leader);
        leader = await_other(t, &before, died);
        before = view_leader(t->client);
    }
    size_t fresh = (leader + 1) % CREW;
    node_start(&nodes, fresh, NULL);
    UNTIL(view_is_live(t->client, names[fresh]));
    assert_true(view_leader(t->client).term == before.term);
    mr_mono died = accept_now();
    node_end(&nodes, leader);
    assert_int_equal(await_other(t, &before, died), fresh);
}

/* On Redis what a node says of itself can be made unreadable. A leader's own errors: tests/unit/test_cluster.c. */
static void test_42_what_cannot_be_read_does_not_end_the_loop(void **state)
{
    struct accept *t = *state;
    struct nodes nodes = {.t = t};
    accept_settle(t);
    assert_err(mr_queue_set_partitions(t->client, mr_slice_str("p"), PARTS), MR_OK);
    size_t leader = three(&nodes, "p"), victim = (leader + 1) % CREW, third = (leader + 2) % CREW;
    UNTIL(view_shared_by(t->client, "p", names, CREW));
    struct view_leader before = view_leader(t->client);
    if (t->place[0].redis) {
        RIG_ALL(t->place[0].redis, "ZADD", "asynq:mr:nodes", "99999999999", "asynq:mr:node:{bad}");
        RIG_ALL(t->place[0].redis, "RPUSH", "asynq:mr:node:{bad}", "no", "node");
        RIG_ALL(t->place[0].redis, "ZADD", "asynq:mr:nodes", "99999999999", "asynq:mr:node:{odd}");
        RIG_ALL(t->place[0].redis, "SET", "asynq:mr:node:{odd}", "\xff\xff\xff");
        RIG_ALL(t->place[0].redis, "HSET", "asynq:mr:cluster", "n:77", "nonsense");
    }
    node_end(&nodes, victim);
    const char *left[] = {names[leader], names[third]};
    UNTIL(view_shared_by(t->client, "p", left, 2));
    assert_true(view_leader(t->client).term == before.term);
    const char *id = PUT(t, .queue = "p", .payload = "p");
    accept_await_echo(t, id);
}

static void test_43_without_a_leader_work_goes_on(void **state)
{
    struct accept *t = *state;
    assert_err(mr_queue_set_partitions(t->client, mr_slice_str("p"), PARTS), MR_OK);
    WORKER(t, .node = "a", .queues = "p", .never_leads = true);
    WORKER(t, .node = "b", .queues = "p", .never_leads = true);
    accept_put_many(t, "t", 50, &(struct accept_task){.queue = "p"});
    UNTIL(accept_count(t, "p", MR_COMPLETED) == 50);
    assert_string_equal(view_leader(t->client).node, "");
    assert_true(view_shares(t->client, "p").version == 0);
    struct mr_stats stats, later;
    assert_err(mr_stats_get(t->client, &stats), MR_OK);
    UNTIL((mr_stats_get(t->client, &later) == MR_OK &&
           later.leaderless_ms > stats.leaderless_ms + ACCEPT_BEAT_MS));
    if (!t->engine->shared)
        return;
    accept_settle(t); /* what was lost comes back all the same */
    PUT(t, .id = "x", .queue = "mine", .type = "first");
    pid_t pid = PROCESS(t, t->place[0].url, .node = "c", .queues = "mine", .never_leads = true);
    UNTIL(accept_ran(t, "x") == 1);
    WORKER(t, .node = "d", .queues = "mine", .never_leads = true);
    accept_kill_process(t, pid);
    UNTIL(accept_state(t, "x") == MR_COMPLETED);
    assert_string_equal(view_leader(t->client).node, "");
}

static void test_44_nobody_is_shown_when_nobody_leads(void **state)
{
    struct accept *t = *state;
    struct nodes nodes = {.t = t};
    size_t leader = three(&nodes, NULL);
    uint64_t term = view_leader(t->client).term;
    for (size_t i = 0; i < CREW; i++)
        if (i != leader)
            node_end(&nodes, i);
    mr_mono died = accept_now();
    node_end(&nodes, leader);
    UNTIL(!somebody_leads(t));
    assert_in_range(accept_since_ms(died), 0, ACCEPT_DEATH_MS + LATE_MS);
    assert_true(view_leader(t->client).term >= term);
    assert_true(view_leader(t->client).since_ms == 0);
}

/* ---- 59 ------------------------------------------------------------------------------------- */

/* One worker with two tasks in its hands is killed, while the leader has one; the leader, which would see to it, at the n-th step of its talk
 * with the server after that. False: it had said less in all that time. */
static bool strike(struct accept *t, struct fault *fault, size_t round)
{
    enum { HELD = 3 };
    char url[ACCEPT_URL_MAX], queue[24];
    bool redis = t->place[0].redis != NULL;
    fault->to = t->place[0].port;
    fault->redis = redis;
    uint64_t nth = fault->nth;
    fault->nth = 0;
    fault_start(fault);
    (void)snprintf(url, sizeof url, "%s://127.0.0.1:%u", redis ? "redis" : "millrace", fault->port);
    (void)snprintf(queue, sizeof queue, "q%zu", round);
    fault->victim = PROCESS(t, url, .node = "leader", .queues = queue, .slots = 1);
    UNTIL(view_leads(t->client, "leader"));
    pid_t dead = PROCESS(t, t->place[0].url, .node = "dead", .queues = queue, .slots = 2);
    UNTIL(view_is_live(t->client, "dead"));
    uint64_t all = accept_ran_all(t) + HELD;
    for (int i = 0; i < HELD; i++)
        (void)PUT(t, .queue = queue, .type = "sleep", .payload = "600");
    UNTIL(accept_ran_all(t) == all);
    fault->nth = (fault->point == FAULT_BEFORE_REQUEST ? fault->requests : fault->answers) + nth;
    accept_kill_process(t, dead);
    mr_mono died = accept_now();
    UNTIL(fault->fired || accept_since_ms(died) > 2 * ACCEPT_DEATH_MS);
    bool fired = fault->fired;
    accept_kill_process(t, fault->victim);
    fault_stop(fault);
    struct mr_worker *next = WORKER(t, .node = "next", .queues = queue);
    UNTIL(accept_count(t, queue, MR_COMPLETED) == HELD);
    /* Each was lost once; the leader's own may have ended before. */
    assert_in_range(accept_ran_all(t), all + HELD - 1, all + HELD);
    accept_dismiss(t, next);
    UNTIL(!somebody_leads(t));
    return fired;
}

static void test_59_a_leader_killed_at_each_step_of_a_recovery_harms_nothing(void **state)
{
    struct accept *t = *state;
    if (!t->engine->shared)
        return; /* the engine recovers, and dies with its leader: the crash points of the simulator */
    size_t round = 0, fired = 0, points = accept_size(FAULT_POINTS, 1);
    accept_settle(t);
    for (size_t point = 0; point < points; point++)
        for (size_t nth = 1; nth <= accept_size(24, 1); nth++) {
            struct fault fault = {.point = (enum fault_point)point, .nth = nth};
            fired += strike(t, &fault, round++);
        }
    print_message("%zu strikes, %zu fell while it was at it\n", round, fired);
    assert_true(fired > 0);
}

int accept_leader(const struct accept_engine *engine)
{
    struct CMUnitTest tests[] = {
        ACCEPT_TEST(test_37_of_three_nodes_one_leads_and_all_say_the_same),
        ACCEPT_TEST(test_38_a_worker_can_lead_and_crashes_are_dealt_with),
        ACCEPT_TEST(test_38_a_master_can_lead_workers_that_do_not),
        ACCEPT_TEST(test_39_when_the_leader_is_killed_another_leads),
        ACCEPT_TEST(test_40_a_leader_that_was_stopped_steps_down),
        ACCEPT_TEST(test_41_the_last_one_leads_and_a_new_one_takes_part),
        ACCEPT_TEST(test_42_what_cannot_be_read_does_not_end_the_loop),
        ACCEPT_TEST(test_43_without_a_leader_work_goes_on),
        ACCEPT_TEST(test_44_nobody_is_shown_when_nobody_leads),
        ACCEPT_TEST(test_59_a_leader_killed_at_each_step_of_a_recovery_harms_nothing),
    };
    return ACCEPT_RUN(engine, "E: leader", tests);
}
