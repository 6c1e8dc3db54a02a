/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conformance: groups. Members wait until their group is ripe, leave it as a set, and become one task
 * in one step; whatever happens on the way, each is in one place and none is lost.
 */
#include <stdio.h>

#include "conform/conform.h"

enum { HOUR_MS = 3600000, MEMBERS_MAX = 16 };

/* ---- requests ------------------------------------------------------------------------------- */

struct gathering {
    struct mr_req_gather req;
    struct mr_event done;
};

static void answered(struct mr_req *req)
{
    mr_event_set(&mr_container(req, struct gathering, req.req)->done);
}

/* Zero in the rule: the queue "default", and neither by size nor by time. */
static void gather_start(struct conform *t, struct gathering *g, struct mr_req_gather rule)
{
    *g = (struct gathering){.req = rule};
    g->req.req = (struct mr_req){.op = MR_OP_GATHER, .done = answered};
    if (rule.queue.len == 0)
        g->req.queue = MR_SLICE_LIT("default");
    if (rule.grace_ms == 0)
        g->req.grace_ms = HOUR_MS;
    mr_event_init(&g->done);
    mr_broker_submit(t->broker, &g->req.req);
}

static enum mr_err gather_end(struct gathering *g)
{
    assert_true(mr_event_wait(&g->done, CONFORM_WAIT_MS * MR_NS_PER_MS));
    if (g->req.req.err != MR_OK)
        assert_int_equal(g->req.n, 0);
    return g->req.req.err;
}

#define GATHER(t, g, ...) (gather_start(t, g, (struct mr_req_gather){__VA_ARGS__}), gather_end(g))

static void gather_done(struct gathering *g)
{
    mr_req_done(&g->req.req);
}

/* "m0 m1": the members by their ids. */
static void assert_members(const struct gathering *g, const char *ids)
{
    char found[MEMBERS_MAX * 16] = "";
    for (size_t i = 0; i < g->req.n && i < MEMBERS_MAX; i++) {
        size_t used = strlen(found);
        snprintf(found + used, sizeof found - used, "%s%.*s", used ? " " : "",
                 (int)g->req.tasks[i].id.len, (const char *)g->req.tasks[i].id.data);
        assert_int_equal(g->req.tasks[i].state, MR_AGGREGATING);
    }
    assert_string_equal(found, ids);
}

static enum mr_err gathered(struct conform *t, const struct gathering *g,
                            const struct mr_task_options *task, struct mr_enqueue_result *ret)
{
    struct mr_req_gathered req = {.req.op = MR_OP_GATHERED,
                                  .queue = g->req.queue,
                                  .set = mr_slice_str(g->req.set),
                                  .task = task};
    enum mr_err err = mr_broker_call(t->broker, &req.req);
    if (ret != NULL)
        *ret = req.result;
    mr_req_done(&req.req);
    return err;
}

/* The set becomes this task. */
static void make_one(struct conform *t, const struct gathering *g, const char *id)
{
    struct mr_enqueue_result result;
    struct mr_task_options task = {.id = mr_slice_str(id), .payload = MR_SLICE_LIT("all")};
    assert_err(gathered(t, g, &task, &result), MR_OK);
    assert_err(result.err, MR_OK);
    assert_string_equal(result.id, id);
}

/* prefix0 .. of a group in "default". */
static void join_many(struct conform *t, const char *group, const char *prefix, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char id[32];
        snprintf(id, sizeof id, "%s%zu", prefix, i);
        (void)PUT_OK(t, .id = mr_slice_str(id), .group = mr_slice_str(group));
    }
}

static uint64_t aggregating(struct conform *t)
{
    return conform_queue(t, "default").counts[MR_AGGREGATING];
}

/* ---- joining -------------------------------------------------------------------------------- */

static void a_task_of_a_group_aggregates_and_is_not_taken(void **state)
{
    struct conform *t = *state;
    struct conform_node *node = NODE(t);
    struct mr_enqueue_result result = PUT(t, .id = MR_SLICE_LIT("m0"), .group = MR_SLICE_LIT("g"),
                                          .payload = MR_SLICE_LIT("x"), .priority_s = 5);
    assert_err(result.err, MR_OK);
    assert_int_equal(result.state, MR_AGGREGATING);
    conform_take_none(t, node);
    const struct mr_task *task = conform_get(t, "m0");
    assert_int_equal(task->state, MR_AGGREGATING);
    assert_slice(task->group, "g");
    assert_slice(task->payload, "x");
    assert_int_equal(task->epoch, 0);
    struct conform_page page = PAGE(t, .state = MR_AGGREGATING, .limit = 10);
    assert_int_equal(page.n, 1);
    assert_slice(page.tasks[0].id, "m0");
    struct mr_queue_info queue = conform_queue(t, "default");
    assert_int_equal(queue.counts[MR_AGGREGATING], 1);
    assert_int_equal(queue.counts[MR_PENDING], 0);
    assert_int_equal(conform_stats_now(t).tasks, 1);
}

static void with_a_delay_too_it_is_scheduled_and_runs_alone(void **state)
{
    struct conform *t = *state;
    struct gathering g;
    struct mr_enqueue_result result =
        PUT(t, .id = MR_SLICE_LIT("alone"), .group = MR_SLICE_LIT("g"), .delay_ms = 20);
    assert_err(result.err, MR_OK);
    assert_int_equal(result.state, MR_SCHEDULED);
    FINISH_OK(t, conform_take_id(t, NODE(t), "alone"), .outcome = MR_DONE);
    assert_err(GATHER(t, &g, .grace_ms = 1), MR_EMPTY);
    gather_done(&g);
}

static void members_count_for_the_length_of_a_queue(void **state)
{
    struct conform *t = *state;
    struct gathering g;
    assert_err(conform_queue_set(t, "default", MR_QUEUE_MAX_LENGTH, 2), MR_OK);
    join_many(t, "g", "m", 2);
    assert_err(PUT(t, .group = MR_SLICE_LIT("g")).err, MR_QUEUE_FULL);
    assert_err(PUT(t, .id = MR_SLICE_LIT("p")).err, MR_QUEUE_FULL);
    assert_err(GATHER(t, &g, .max_size = 2), MR_OK);
    make_one(t, &g, "one"); /* there is room where they were */
    gather_done(&g);
    assert_int_equal(conform_queue(t, "default").counts[MR_PENDING], 1);
}

/* ---- ripe ----------------------------------------------------------------------------------- */

static void a_group_is_ripe_with_its_size(void **state)
{
    struct conform *t = *state;
    struct gathering g;
    join_many(t, "g", "m", 2);
    assert_err(GATHER(t, &g, .max_size = 3), MR_EMPTY);
    gather_done(&g);
    (void)PUT_OK(t, .id = MR_SLICE_LIT("m2"), .group = MR_SLICE_LIT("g"));
    assert_err(GATHER(t, &g, .max_size = 3), MR_OK);
    assert_members(&g, "m0 m1 m2");
    assert_string_equal(g.req.group, "g");
    assert_true(strlen(g.req.set) > 0 && strlen(g.req.set) < MR_SET_MAX);
    gather_done(&g);
}

static void a_set_has_its_size_at_most_and_the_oldest_first(void **state)
{
    struct conform *t = *state;
    struct gathering g[3];
    join_many(t, "g", "m", 5);
    assert_err(GATHER(t, &g[0], .max_size = 2), MR_OK);
    assert_members(&g[0], "m0 m1");
    assert_err(GATHER(t, &g[1], .max_size = 2), MR_OK);
    assert_members(&g[1], "m2 m3");
    assert_string_not_equal(g[0].req.set, g[1].req.set);
    assert_err(GATHER(t, &g[2], .max_size = 2), MR_EMPTY);
    for (size_t i = 0; i < 3; i++)
        gather_done(&g[i]);
}

/* Both at once, since time must pass. */
static void time_makes_a_group_ripe_and_wakes_who_waits(void **state)
{
    enum { RIPE_MS = 2500 };
    struct conform *t = *state;
    struct gathering delay, grace, early;
    (void)PUT_OK(t, .id = MR_SLICE_LIT("d"), .queue = MR_SLICE_LIT("by-delay"),
                 .group = MR_SLICE_LIT("g"));
    (void)PUT_OK(t, .id = MR_SLICE_LIT("s"), .queue = MR_SLICE_LIT("by-grace"),
                 .group = MR_SLICE_LIT("g"));
    assert_err(GATHER(t, &early, .queue = MR_SLICE_LIT("by-delay"), .max_delay_ms = RIPE_MS),
               MR_EMPTY);
    gather_done(&early);
    assert_err(GATHER(t, &early, .queue = MR_SLICE_LIT("by-grace"), .grace_ms = RIPE_MS), MR_EMPTY);
    gather_done(&early);
    gather_start(t, &delay,
                 (struct mr_req_gather){.queue = MR_SLICE_LIT("by-delay"),
                                        .max_delay_ms = RIPE_MS,
                                        .wait_ms = CONFORM_WAIT_MS});
    gather_start(t, &grace,
                 (struct mr_req_gather){.queue = MR_SLICE_LIT("by-grace"),
                                        .grace_ms = RIPE_MS,
                                        .wait_ms = CONFORM_WAIT_MS});
    assert_err(gather_end(&delay), MR_OK);
    assert_members(&delay, "d");
    assert_err(gather_end(&grace), MR_OK);
    assert_members(&grace, "s");
    gather_done(&delay);
    gather_done(&grace);
}

static void groups_are_apart_by_name_and_queue(void **state)
{
    struct conform *t = *state;
    struct gathering a, b, other, none;
    join_many(t, "a", "a", 2);
    join_many(t, "b", "b", 1);
    (void)PUT_OK(t, .id = MR_SLICE_LIT("x"), .group = MR_SLICE_LIT("a"),
                 .queue = MR_SLICE_LIT("q"));
    assert_err(GATHER(t, &a, .max_size = 2), MR_OK);
    assert_members(&a, "a0 a1");
    assert_err(GATHER(t, &none, .max_size = 2), MR_EMPTY);
    gather_done(&none);
    assert_err(GATHER(t, &b, .max_size = 1), MR_OK);
    assert_string_equal(b.req.group, "b");
    assert_err(GATHER(t, &other, .queue = MR_SLICE_LIT("q"), .max_size = 1), MR_OK);
    assert_members(&other, "x");
    assert_err(GATHER(t, &none, .max_size = 1), MR_EMPTY);
    gather_done(&none);
    gather_done(&a);
    gather_done(&b);
    gather_done(&other);
}

static void of_ripe_groups_that_with_the_oldest_member_is_the_first(void **state)
{
    struct conform *t = *state;
    struct gathering g;
    join_many(t, "late", "l", 1);
    conform_pass_ms(2);
    join_many(t, "busy", "b", 4);
    conform_pass_ms(20);
    assert_err(GATHER(t, &g, .max_size = 2, .max_delay_ms = 10), MR_OK);
    assert_members(&g, "l0");
    gather_done(&g);
    assert_err(GATHER(t, &g, .max_size = 2, .max_delay_ms = 10), MR_OK);
    assert_members(&g, "b0 b1");
    gather_done(&g);
}

static void a_set_is_no_bigger_than_its_bytes_allow(void **state)
{
    enum { N = 6, SIZE = 900 * 1024 };
    struct conform *t = *state;
    char *bytes = calloc(1, SIZE);
    assert_non_null(bytes);
    for (size_t i = 0; i < N; i++)
        (void)PUT_OK(t, .group = MR_SLICE_LIT("g"), .payload = mr_slice_make(bytes, SIZE));
    free(bytes);
    size_t all = 0;
    while (all < N) {
        struct gathering g;
        assert_err(GATHER(t, &g, .max_size = 1), MR_OK);
        assert_int_equal(g.req.n, 1);
        all += g.req.n;
        gather_done(&g);
        if (all == N)
            break;
        assert_err(GATHER(t, &g, .max_delay_ms = 1, .wait_ms = CONFORM_WAIT_MS), MR_OK);
        assert_in_range(g.req.n, 1, MR_SET_BYTES_MAX / SIZE);
        assert_int_equal(g.req.tasks[g.req.n - 1].payload.len, SIZE);
        all += g.req.n;
        gather_done(&g);
    }
    assert_int_equal(all, N);
}

/* ---- waiting -------------------------------------------------------------------------------- */

static void the_member_that_makes_it_ripe_wakes_who_waits(void **state)
{
    struct conform *t = *state;
    struct gathering g;
    gather_start(t, &g, (struct mr_req_gather){.max_size = 2, .wait_ms = CONFORM_WAIT_MS});
    join_many(t, "a", "a", 1); /* makes the queue */
    join_many(t, "b", "b", 2);
    assert_err(gather_end(&g), MR_OK);
    assert_members(&g, "b0 b1");
    gather_done(&g);
}

static void a_ripe_group_answers_only_one_of_those_who_wait(void **state)
{
    struct conform *t = *state;
    struct gathering g[3];
    join_many(t, "a", "a", 1);
    for (size_t i = 0; i < 3; i++)
        gather_start(t, &g[i], (struct mr_req_gather){.max_size = 2, .wait_ms = 1500});
    (void)PUT_OK(t, .id = MR_SLICE_LIT("a1"), .group = MR_SLICE_LIT("a"));
    unsigned got = 0;
    for (size_t i = 0; i < 3; i++) {
        enum mr_err err = gather_end(&g[i]);
        assert_true(err == MR_OK || err == MR_EMPTY);
        got += err == MR_OK;
        gather_done(&g[i]);
    }
    assert_int_equal(got, 1);
}

static void a_broker_that_closes_answers_who_waits(void **state)
{
    struct conform *t = *state;
    struct gathering g;
    gather_start(t, &g, (struct mr_req_gather){.max_size = 2, .wait_ms = 10 * CONFORM_WAIT_MS});
    mr_broker_close(t->broker);
    t->broker = NULL;
    assert_err(gather_end(&g), MR_CLOSED);
    gather_done(&g);
}

/* ---- sets ----------------------------------------------------------------------------------- */

static void members_in_a_set_are_in_hand_and_still_there(void **state)
{
    struct conform *t = *state;
    struct gathering g, again;
    join_many(t, "g", "m", 3);
    assert_err(GATHER(t, &g, .max_size = 2), MR_OK);
    assert_int_equal(aggregating(t), 3);
    assert_int_equal(conform_state(t, "m0"), MR_AGGREGATING);
    assert_int_equal(PAGE(t, .state = MR_AGGREGATING, .limit = 10).n, 3);
    assert_err(GATHER(t, &again, .max_size = 1), MR_OK);
    assert_members(&again, "m2");
    static const enum mr_verb verbs[] = {MR_VERB_CANCEL, MR_VERB_DELETE, MR_VERB_RUN,
                                         MR_VERB_ARCHIVE};
    for (size_t i = 0; i < sizeof verbs / sizeof *verbs; i++)
        assert_err(conform_act(t, verbs[i], "m1", 0), MR_RUNNING);
    assert_err(PUT(t, .id = MR_SLICE_LIT("m1")).err, MR_CONFLICT);
    assert_int_equal(aggregating(t), 3);
    gather_done(&g);
    gather_done(&again);
}

/* In its group, and in a set that is being made one task. */
static void a_member_that_is_replaced_stays_where_it_is(void **state)
{
    struct conform *t = *state;
    struct gathering g;
    struct mr_task_options other = {.unique_ms = 3600000,
                                    .unique_key = MR_SLICE_LIT("key"),
                                    .on_duplicate = MR_DUPLICATE_REPLACE,
                                    .delay_ms = 60000};
    const char *id = PUT_OK(t, .group = MR_SLICE_LIT("g"), .unique_ms = 3600000,
                            .unique_key = MR_SLICE_LIT("key"));
    for (int in_set = 0; in_set < 2; in_set++) {
        struct mr_enqueue_result result = conform_put_one(t, &other);
        assert_err(result.err, MR_OK);
        assert_string_equal(result.id, id);
        assert_int_equal(result.state, MR_AGGREGATING);
        assert_int_equal(aggregating(t), 1);
        if (in_set == 0)
            assert_err(GATHER(t, &g, .max_size = 1), MR_OK);
    }
    make_one(t, &g, "one");
    assert_int_equal(conform_stats_now(t).tasks, 1);
    gather_done(&g);
}

static void a_set_becomes_one_task_in_one_step(void **state)
{
    struct conform *t = *state;
    struct gathering g;
    join_many(t, "g", "m", 3);
    assert_err(GATHER(t, &g, .max_size = 3), MR_OK);
    uint64_t before = conform_stats_now(t).gathered, deleted = conform_stats_now(t).deleted;
    make_one(t, &g, "one");
    assert_int_equal(conform_stats_now(t).gathered, before + 3);
    assert_int_equal(conform_stats_now(t).deleted, deleted);
    assert_int_equal(conform_stats_now(t).tasks, 1);
    assert_int_equal(aggregating(t), 0);
    assert_int_equal(conform_state(t, "m1"), MR_STATE_NONE);
    struct mr_lease *lease = conform_take_id(t, NODE(t), "one");
    assert_slice(lease->task.payload, "all");
    assert_slice(lease->task.group, "");
    FINISH_OK(t, lease, .outcome = MR_DONE);
    assert_err(gathered(t, &g, NULL, NULL), MR_STALE);
    gather_done(&g);
}

static void a_task_that_is_refused_leaves_the_set_as_it_is(void **state)
{
    struct conform *t = *state;
    struct gathering g;
    (void)PUT_OK(t, .id = MR_SLICE_LIT("there"), .delay_ms = HOUR_MS, .unique_ms = HOUR_MS,
                 .unique_key = MR_SLICE_LIT("key"));
    join_many(t, "g", "m", 2);
    assert_err(GATHER(t, &g, .max_size = 2), MR_OK);
    const struct {
        struct mr_task_options task;
        enum mr_err err;
    } refused[] = {
        {{.group = MR_SLICE_LIT("g")}, MR_INVALID},
        {{.queue = MR_SLICE_LIT("other")}, MR_INVALID},
        {{.delay_ms = -1}, MR_INVALID},
        {{.id = MR_SLICE_LIT("there")}, MR_CONFLICT},
        {{.unique_ms = 1000, .unique_key = MR_SLICE_LIT("key")}, MR_DUPLICATE},
        {{.unique_ms = 1000,
          .unique_key = MR_SLICE_LIT("key"),
          .on_duplicate = MR_DUPLICATE_IGNORE},
         MR_DUPLICATE},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        struct mr_enqueue_result result;
        assert_err(gathered(t, &g, &refused[i].task, &result), MR_OK);
        assert_err(result.err, refused[i].err);
        assert_int_equal(aggregating(t), 2);
    }
    make_one(t, &g, "one");
    assert_int_equal(aggregating(t), 0);
    gather_done(&g);
}

static void a_set_can_become_a_task_for_later(void **state)
{
    struct conform *t = *state;
    struct gathering g;
    struct mr_enqueue_result result;
    join_many(t, "g", "m", 2);
    assert_err(GATHER(t, &g, .max_size = 2), MR_OK);
    struct mr_task_options task = {.queue = MR_SLICE_LIT("default"), .delay_ms = HOUR_MS};
    assert_err(gathered(t, &g, &task, &result), MR_OK);
    assert_err(result.err, MR_OK);
    assert_int_equal(result.state, MR_SCHEDULED);
    assert_int_equal(conform_state(t, result.id), MR_SCHEDULED);
    gather_done(&g);
}

static void a_set_that_is_given_up_goes_back_at_once(void **state)
{
    struct conform *t = *state;
    struct gathering first, second, again;
    join_many(t, "g", "m", 4);
    assert_err(GATHER(t, &first, .max_size = 2), MR_OK);
    assert_err(GATHER(t, &second, .max_size = 2), MR_OK);
    assert_err(gathered(t, &second, NULL, NULL), MR_OK);
    assert_err(gathered(t, &first, NULL, NULL), MR_OK);
    assert_err(gathered(t, &first, NULL, NULL), MR_STALE);
    assert_err(GATHER(t, &again, .max_size = 4), MR_OK);
    assert_members(&again, "m0 m1 m2 m3");
    assert_string_not_equal(again.req.set, first.req.set);
    struct mr_task_options task = {.id = MR_SLICE_LIT("ghost")};
    assert_err(gathered(t, &first, &task, NULL), MR_STALE);
    assert_int_equal(conform_state(t, "ghost"), MR_STATE_NONE);
    assert_int_equal(aggregating(t), 4);
    gather_done(&first);
    gather_done(&second);
    gather_done(&again);
}

static void a_set_whose_time_is_over_is_back(void **state)
{
    struct conform *t = *state;
    struct gathering late, again;
    join_many(t, "g", "m", 2);
    assert_err(GATHER(t, &late, .max_size = 2, .set_ms = 100), MR_OK);
    assert_err(GATHER(t, &again, .max_size = 2, .wait_ms = CONFORM_WAIT_MS), MR_OK);
    assert_members(&again, "m0 m1");
    struct mr_task_options task = {.id = MR_SLICE_LIT("late")};
    assert_err(gathered(t, &late, &task, NULL), MR_STALE);
    assert_int_equal(conform_state(t, "late"), MR_STATE_NONE);
    make_one(t, &again, "one");
    assert_int_equal(conform_stats_now(t).tasks, 1);
    gather_done(&late);
    gather_done(&again);
}

static void unique_keys_go_with_the_members(void **state)
{
    struct conform *t = *state;
    struct gathering g;
    struct mr_task_options member = {.id = MR_SLICE_LIT("m0"),
                                     .group = MR_SLICE_LIT("g"),
                                     .unique_ms = HOUR_MS,
                                     .unique_key = MR_SLICE_LIT("key")};
    assert_err(conform_put_one(t, &member).err, MR_OK);
    member.id = MR_SLICE_LIT("other");
    assert_err(conform_put_one(t, &member).err, MR_DUPLICATE);
    assert_err(GATHER(t, &g, .max_size = 1), MR_OK);
    assert_err(conform_put_one(t, &member).err, MR_DUPLICATE);
    struct mr_enqueue_result result;
    struct mr_task_options task = {
        .id = MR_SLICE_LIT("one"), .unique_ms = HOUR_MS, .unique_key = MR_SLICE_LIT("key")};
    assert_err(gathered(t, &g, &task, &result), MR_OK);
    assert_err(result.err, MR_OK); /* it takes over what the member held */
    gather_done(&g);
    result = conform_put_one(t, &member);
    assert_err(result.err, MR_DUPLICATE);
    assert_string_equal(result.id, "one");
    FINISH_OK(t, conform_take_id(t, NODE(t), "one"), .outcome = MR_DONE);
    assert_err(conform_put_one(t, &member).err, MR_OK);
    assert_err(GATHER(t, &g, .max_size = 1), MR_OK);
    make_one(t, &g, "two");
    gather_done(&g);
    assert_err(conform_put_one(t, &member).err, MR_OK);
}

/* ---- what people do ------------------------------------------------------------------------- */

static void a_member_can_run_alone_or_go_and_the_others_stay(void **state)
{
    struct conform *t = *state;
    struct gathering g;
    join_many(t, "g", "m", 6);
    assert_err(conform_act(t, MR_VERB_RUN, "m1", 0), MR_OK);
    assert_err(conform_act(t, MR_VERB_DELETE, "m2", 0), MR_OK);
    assert_err(conform_act(t, MR_VERB_ARCHIVE, "m3", 0), MR_OK);
    assert_err(conform_act(t, MR_VERB_CANCEL, "m4", 0), MR_OK);
    assert_err(conform_act(t, MR_VERB_PRIORITISE, "m0", 5), MR_WRONG_STATE);
    struct mr_queue_info queue = conform_queue(t, "default");
    assert_int_equal(queue.counts[MR_AGGREGATING], 2);
    assert_int_equal(queue.counts[MR_PENDING], 1);
    assert_int_equal(queue.counts[MR_ARCHIVED], 2);
    assert_err(GATHER(t, &g, .max_size = 3), MR_EMPTY);
    gather_done(&g);
    assert_err(GATHER(t, &g, .max_size = 2), MR_OK);
    assert_members(&g, "m0 m5");
    gather_done(&g);
    struct mr_lease *lease = conform_take_id(t, NODE(t), "m1");
    assert_slice(lease->task.group, "g");
    FINISH_OK(t, lease, .outcome = MR_DONE);
    assert_err(conform_act(t, MR_VERB_RUN, "m3", 0), MR_OK); /* from the archive: alone, too */
    assert_int_equal(conform_state(t, "m3"), MR_PENDING);
}

static void a_paused_queue_gathers_and_hands_out_nothing(void **state)
{
    struct conform *t = *state;
    struct gathering g;
    struct conform_node *node = NODE(t);
    join_many(t, "g", "m", 2);
    assert_err(conform_queue_set(t, "default", MR_QUEUE_PAUSED, 1), MR_OK);
    assert_err(GATHER(t, &g, .max_size = 2), MR_OK);
    make_one(t, &g, "one");
    gather_done(&g);
    conform_take_none(t, node);
    assert_err(conform_queue_set(t, "default", MR_QUEUE_PAUSED, 0), MR_OK);
    FINISH_OK(t, conform_take_id(t, node, "one"), .outcome = MR_DONE);
}

static void a_queue_that_is_removed_takes_its_groups_along(void **state)
{
    struct conform *t = *state;
    struct gathering g, again;
    join_many(t, "g", "m", 5);
    assert_err(GATHER(t, &g, .max_size = 2), MR_OK);
    uint64_t deleted = conform_stats_now(t).deleted;
    assert_err(conform_queue_remove(t, "default", MR_QUEUE_REMOVE_EMPTY), MR_WRONG_STATE);
    assert_err(conform_queue_remove(t, "default", MR_QUEUE_REMOVE_FORCE), MR_OK);
    assert_int_equal(conform_stats_now(t).deleted, deleted + 5);
    assert_int_equal(conform_stats_now(t).tasks, 0);
    struct mr_task_options task = {.id = MR_SLICE_LIT("ghost")};
    assert_err(gathered(t, &g, &task, NULL), MR_STALE);
    assert_int_equal(conform_state(t, "ghost"), MR_STATE_NONE);
    gather_done(&g);
    join_many(t, "g", "n", 1);
    assert_err(GATHER(t, &again, .max_size = 1), MR_OK);
    assert_members(&again, "n0");
    gather_done(&again);
}

static void who_waits_for_a_member_is_told_that_it_is_gone(void **state)
{
    struct conform *t = *state;
    struct gathering g;
    join_many(t, "g", "m", 1);
    assert_err(GATHER(t, &g, .max_size = 1), MR_OK);
    make_one(t, &g, "one");
    gather_done(&g);
    struct mr_req_await req = {
        .req.op = MR_OP_AWAIT, .id = MR_SLICE_LIT("m0"), .wait_ms = CONFORM_WAIT_MS};
    assert_err(mr_broker_call(t->broker, &req.req), MR_NOT_FOUND);
    mr_req_done(&req.req);
}

static void what_makes_no_sense_is_invalid(void **state)
{
    struct conform *t = *state;
    static const struct mr_req_gather rules[] = {
        {.queue = MR_SLICE_LIT("br{ce"), .grace_ms = 1},
        {.grace_ms = -1},
        {.max_delay_ms = -1},
        {.wait_ms = -1},
        {.set_ms = -1},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        struct gathering g;
        gather_start(t, &g, rules[i]);
        assert_err(gather_end(&g), MR_INVALID);
        gather_done(&g);
    }
    struct gathering none = {.req.queue = MR_SLICE_LIT("default")};
    assert_err(gathered(t, &none, NULL, NULL), MR_INVALID);
    snprintf(none.req.set, sizeof none.req.set, "no-such-set");
    assert_err(gathered(t, &none, NULL, NULL), MR_STALE);
}

/* ---- a restart in the middle ---------------------------------------------------------------- */

/* A set may outlive the engine, or end with it: the members are there in either case, once. */
static void a_restart_loses_and_doubles_no_member(void **state)
{
    struct conform *t = *state;
    struct gathering open, again;
    join_many(t, "g", "m", 3);
    assert_err(GATHER(t, &open, .max_size = 2), MR_OK);
    conform_reopen(t);
    assert_int_equal(aggregating(t), 3);
    struct mr_enqueue_result result = {.err = MR_OK};
    struct mr_task_options task = {.id = MR_SLICE_LIT("one")};
    enum mr_err err = gathered(t, &open, &task, &result);
    assert_true(err == MR_OK || err == MR_STALE);
    if (err == MR_OK) {
        assert_err(result.err, MR_OK);
        assert_int_equal(aggregating(t), 1);
    } else {
        assert_err(GATHER(t, &again, .max_size = 2), MR_OK);
        assert_members(&again, "m0 m1");
        make_one(t, &again, "one");
        gather_done(&again);
    }
    gather_done(&open);
    assert_int_equal(conform_stats_now(t).tasks, 2);
}

static void what_was_gathered_stays_so(void **state)
{
    struct conform *t = *state;
    struct gathering g;
    join_many(t, "g", "m", 4);
    assert_err(conform_act(t, MR_VERB_RUN, "m3", 0), MR_OK);
    assert_err(GATHER(t, &g, .max_size = 2), MR_OK);
    make_one(t, &g, "one");
    gather_done(&g);
    conform_reopen(t);
    assert_int_equal(conform_state(t, "m0"), MR_STATE_NONE);
    assert_int_equal(conform_state(t, "m1"), MR_STATE_NONE);
    assert_int_equal(conform_state(t, "m2"), MR_AGGREGATING);
    assert_int_equal(conform_state(t, "m3"), MR_PENDING);
    assert_int_equal(conform_state(t, "one"), MR_PENDING);
    assert_int_equal(conform_stats_now(t).gathered, 2);
    (void)PUT_OK(t, .id = MR_SLICE_LIT("m4"), .group = MR_SLICE_LIT("g"));
    assert_err(GATHER(t, &g, .max_size = 2), MR_OK);
    assert_members(&g, "m2 m4");
    gather_done(&g);
    assert_slice(conform_get(t, "one")->payload, "all");
}

int conform_groups(const struct conform_engine *engine)
{
    static struct CMUnitTest tests[] = {
        CONFORM_TEST(a_task_of_a_group_aggregates_and_is_not_taken),
        CONFORM_TEST(with_a_delay_too_it_is_scheduled_and_runs_alone),
        CONFORM_TEST(members_count_for_the_length_of_a_queue),
        CONFORM_TEST(a_group_is_ripe_with_its_size),
        CONFORM_TEST(a_set_has_its_size_at_most_and_the_oldest_first),
        CONFORM_TEST(time_makes_a_group_ripe_and_wakes_who_waits),
        CONFORM_TEST(groups_are_apart_by_name_and_queue),
        CONFORM_TEST(of_ripe_groups_that_with_the_oldest_member_is_the_first),
        CONFORM_TEST(a_set_is_no_bigger_than_its_bytes_allow),
        CONFORM_TEST(the_member_that_makes_it_ripe_wakes_who_waits),
        CONFORM_TEST(a_ripe_group_answers_only_one_of_those_who_wait),
        CONFORM_TEST(a_broker_that_closes_answers_who_waits),
        CONFORM_TEST(members_in_a_set_are_in_hand_and_still_there),
        CONFORM_TEST(a_member_that_is_replaced_stays_where_it_is),
        CONFORM_TEST(a_set_becomes_one_task_in_one_step),
        CONFORM_TEST(a_task_that_is_refused_leaves_the_set_as_it_is),
        CONFORM_TEST(a_set_can_become_a_task_for_later),
        CONFORM_TEST(a_set_that_is_given_up_goes_back_at_once),
        CONFORM_TEST(a_set_whose_time_is_over_is_back),
        CONFORM_TEST(unique_keys_go_with_the_members),
        CONFORM_TEST(a_member_can_run_alone_or_go_and_the_others_stay),
        CONFORM_TEST(a_paused_queue_gathers_and_hands_out_nothing),
        CONFORM_TEST(a_queue_that_is_removed_takes_its_groups_along),
        CONFORM_TEST(who_waits_for_a_member_is_told_that_it_is_gone),
        CONFORM_TEST(what_makes_no_sense_is_invalid),
    };
    static struct CMUnitTest restarts[] = {
        CONFORM_TEST(a_restart_loses_and_doubles_no_member),
        CONFORM_TEST(what_was_gathered_stays_so),
    };
    int failed = CONFORM_RUN(engine, "groups", tests);
    if (engine->can_reopen)
        failed += CONFORM_RUN(engine, "groups and restarts", restarts);
    return failed;
}
