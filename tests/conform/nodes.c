/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: the list of nodes, as they said and as they are; how long tasks waited and ran. */
#include "conform/conform.h"

/* NULL: no such node. */
static const struct mr_node_info *find(struct conform *t, const char *name)
{
    size_t n;
    const struct mr_node_info *nodes = conform_list_nodes(t, &n);
    for (size_t i = 0; i < n; i++)
        if (mr_slice_equal(nodes[i].name, mr_slice_str(name)))
            return &nodes[i];
    return NULL;
}

static void nodes_are_listed_while_they_are_open_oldest_first(void **state)
{
    struct conform *t = *state;
    size_t n;
    (void)conform_list_nodes(t, &n);
    assert_int_equal(n, 0);
    struct conform_node *first = NODE(t, .name = "first");
    conform_pass_ms(2); /* those of one ms may stand in any order */
    (void)NODE(t, .name = "second");
    conform_pass_ms(2);
    const struct mr_node_info *nodes = conform_list_nodes(t, &n);
    assert_int_equal(n, 2);
    assert_slice(nodes[0].name, "first");
    assert_slice(nodes[1].name, "second");
    uint64_t incarnation = nodes[0].incarnation;
    assert_true(incarnation != nodes[1].incarnation);
    assert_err(conform_node_close(t, first), MR_OK);
    WAIT_UNTIL(find(t, "first") == NULL);
    (void)NODE(t, .name = "first");
    nodes = conform_list_nodes(t, &n);
    assert_int_equal(n, 2);
    assert_slice(nodes[1].name, "first");
    assert_true(nodes[1].incarnation != incarnation);
}

static void a_node_is_shown_as_it_said(void **state)
{
    struct conform *t = *state;
    int64_t before_ms = conform_wall_ms();
    (void)NODE(t, .name = "worker one", .queues = "a=6 b", .types = "mail:* ping", .slots = 5);
    const struct mr_node_info *node = find(t, "worker one");
    assert_non_null(node);
    assert_int_equal(node->state, MR_NODE_LIVE);
    assert_int_equal(node->slots, 5);
    assert_int_equal(node->queues_n, 2);
    assert_slice(node->queues[0].name, "a");
    assert_int_equal(node->queues[0].weight, 6);
    assert_slice(node->queues[1].name, "b");
    assert_int_equal(node->queues[1].weight, 1);
    assert_int_equal(node->types_n, 2);
    assert_slice(node->types[0], "mail:*");
    assert_slice(node->types[1], "ping");
    assert_in_range(node->started_ms, before_ms, conform_wall_ms());
    assert_in_range(node->last_beat_ms, node->started_ms, conform_wall_ms());
}

static void a_node_that_says_no_types_handles_everything(void **state)
{
    struct conform *t = *state;
    (void)NODE(t, .name = "all");
    assert_int_equal(find(t, "all")->types_n, 0);
}

static enum mr_err open_with_types(struct conform *t, const struct mr_slice *types, size_t n)
{
    struct conform_node *like = NODE(t);
    struct mr_worker_queue queue = {.name = MR_SLICE_LIT("default")};
    struct mr_req_node_open req = {.req.op = MR_OP_NODE_OPEN,
                                   .name = MR_SLICE_LIT("typed"),
                                   .queues = &queue,
                                   .queues_n = 1,
                                   .types = types,
                                   .types_n = n,
                                   .slots = 1,
                                   .lease_ms = 60000,
                                   .events = {.stop = conform_node_stop, .arg = like}};
    enum mr_err err = mr_broker_call(t->broker, &req.req);
    mr_req_done(&req.req);
    return err;
}

static void as_many_types_as_the_limit_and_none_that_is_no_name(void **state)
{
    struct conform *t = *state;
    struct mr_slice types[MR_NODE_TYPES_MAX + 1];
    for (size_t i = 0; i <= MR_NODE_TYPES_MAX; i++)
        types[i] = MR_SLICE_LIT("t");
    assert_err(open_with_types(t, types, MR_NODE_TYPES_MAX + 1), MR_INVALID);
    types[1] = MR_SLICE_LIT("a\nb");
    assert_err(open_with_types(t, types, 2), MR_INVALID);
    types[1] = MR_SLICE_LIT("");
    assert_err(open_with_types(t, types, 2), MR_INVALID);
    types[1] = MR_SLICE_LIT("t");
    assert_err(open_with_types(t, types, MR_NODE_TYPES_MAX), MR_OK);
    assert_int_equal(find(t, "typed")->types_n, MR_NODE_TYPES_MAX);
}

static void what_a_node_has_in_hand_and_what_it_runs_are_two_numbers(void **state)
{
    struct conform *t = *state;
    struct conform_node *node = NODE(t, .name = "n", .slots = 4);
    conform_put_many(t, "default", "t", 3);
    size_t n;
    struct mr_lease *leases = conform_take_list(t, node, 3, CONFORM_WAIT_MS / 2, &n);
    assert_int_equal(n, 3);
    assert_int_equal(find(t, "n")->in_hand, 3);
    assert_int_equal(find(t, "n")->busy, 0);
    mr_broker_begun(t->broker, node->first_slot, leases->epoch);
    mr_broker_begun(t->broker, node->first_slot + 3, leases->next->epoch);
    assert_err(conform_beat(t, node), MR_OK); /* says it where that is said with a message */
    WAIT_UNTIL(find(t, "n")->busy == 2);
    mr_broker_begun(t->broker, node->first_slot, 0);
    assert_err(conform_beat(t, node), MR_OK);
    WAIT_UNTIL(find(t, "n")->busy == 1);
    conform_finish_list(t, leases, MR_DONE);
    WAIT_UNTIL(find(t, "n")->in_hand == 0);
}

static void a_beat_is_seen(void **state)
{
    struct conform *t = *state;
    struct conform_node *node = NODE(t, .name = "n");
    int64_t first_ms = find(t, "n")->last_beat_ms;
    WAIT_UNTIL(conform_beat(t, node) == MR_OK && find(t, "n")->last_beat_ms > first_ms);
}

static void what_slots_do_is_shown_as_the_last_beat_said(void **state)
{
    struct conform *t = *state;
    struct conform_node *node = NODE(t, .name = "busy", .slots = 3);
    assert_int_equal(find(t, "busy")->slot_infos_n, 0);
    const struct mr_slot_info slots[] = {
        {.state = MR_SLOT_POLLING},
        {.state = MR_SLOT_WORKING,
         .machine = 1,
         .since_ms = 5000,
         .id = MR_SLICE_LIT("some task"),
         .type = MR_SLICE_LIT("mail:send")},
        {.state = MR_SLOT_ERROR, .machine = 1, .since_ms = 7},
    };
    struct mr_req_beat beat = {
        .req.op = MR_OP_BEAT, .node = node->node, .slots = slots, .slots_n = 3};
    assert_err(mr_broker_call(t->broker, &beat.req), MR_OK);
    mr_req_done(&beat.req);
    assert_err(conform_beat(t, node), MR_OK); /* says nothing of them */
    const struct mr_node_info *info = find(t, "busy");
    assert_int_equal(info->slot_infos_n, 3);
    assert_int_equal(info->slot_infos[0].state, MR_SLOT_POLLING);
    assert_int_equal(info->slot_infos[0].id.len, 0);
    assert_int_equal(info->slot_infos[1].state, MR_SLOT_WORKING);
    assert_int_equal(info->slot_infos[1].machine, 1);
    assert_slice(info->slot_infos[1].id, "some task");
    assert_slice(info->slot_infos[1].type, "mail:send");
    int64_t now_ms = conform_wall_ms();
    assert_in_range(info->slot_infos[1].since_ms, now_ms - 5000 - CONFORM_WAIT_MS,
                    now_ms - 5000 + 50);
    assert_int_equal(info->slot_infos[2].state, MR_SLOT_ERROR);
}

/* A slot on the board may still show a run of a node that was there before. */
static void a_new_node_begins_with_no_run(void **state)
{
    struct conform *t = *state;
    for (int i = 0; i < 3; i++) {
        struct conform_node *node = NODE(t, .name = "n", .slots = 1);
        const char *id = PUT_OK(t, .payload = MR_SLICE_LIT("x"));
        assert_int_equal(find(t, "n")->busy, 0);
        struct mr_lease *lease = conform_take_id(t, node, id);
        mr_broker_begun(t->broker, node->first_slot, lease->epoch);
        FINISH_OK(t, lease, .outcome = MR_DONE);
        assert_err(conform_node_close(t, node), MR_OK);
        WAIT_UNTIL(find(t, "n") == NULL);
    }
}

static void a_queue_shows_how_long_its_tasks_waited_and_ran(void **state)
{
    enum { MS = 30 };
    struct conform *t = *state;
    struct conform_node *node = NODE(t);
    const char *id = PUT_OK(t, .payload = MR_SLICE_LIT("x"));
    struct mr_queue_info queue = conform_queue(t, "default");
    assert_int_equal(queue.wait_p50_us + queue.run_p50_us, 0);
    conform_pass_ms(MS);
    struct mr_lease *lease = conform_take_id(t, node, id);
    conform_pass_ms(2 * MS);
    FINISH_OK(t, lease, .outcome = MR_DONE);
    queue = conform_queue(t, "default");
    assert_in_range(queue.wait_p50_us, (MS - 1) * 1000, CONFORM_WAIT_MS * 1000);
    assert_in_range(queue.run_p50_us, (2 * MS - 1) * 1000, CONFORM_WAIT_MS * 1000);
    assert_true(queue.wait_p99_us == queue.wait_p50_us && queue.run_p99_us == queue.run_p50_us);
}

static void waiting_for_a_queue_makes_none_and_a_task_in_it_is_taken(void **state)
{
    struct conform *t = *state;
    struct conform_node *node = NODE(t, .queues = "not-there-yet");
    struct mr_queue_info info;
    assert_err(conform_queue_get(t, "not-there-yet", &info), MR_NOT_FOUND);
    const char *id = PUT_OK(t, .queue = MR_SLICE_LIT("not-there-yet"));
    struct mr_lease *lease = conform_take_id(t, node, id);
    FINISH_OK(t, lease, .outcome = MR_DONE);
}

int conform_nodes(const struct conform_engine *engine)
{
    static struct CMUnitTest tests[] = {
        CONFORM_TEST(nodes_are_listed_while_they_are_open_oldest_first),
        CONFORM_TEST(a_node_is_shown_as_it_said),
        CONFORM_TEST(a_node_that_says_no_types_handles_everything),
        CONFORM_TEST(as_many_types_as_the_limit_and_none_that_is_no_name),
        CONFORM_TEST(what_a_node_has_in_hand_and_what_it_runs_are_two_numbers),
        CONFORM_TEST(a_beat_is_seen),
        CONFORM_TEST(what_slots_do_is_shown_as_the_last_beat_said),
        CONFORM_TEST(a_new_node_begins_with_no_run),
        CONFORM_TEST(waiting_for_a_queue_makes_none_and_a_task_in_it_is_taken),
        CONFORM_TEST(a_queue_shows_how_long_its_tasks_waited_and_ran),
    };
    return CONFORM_RUN(engine, "nodes", tests);
}
