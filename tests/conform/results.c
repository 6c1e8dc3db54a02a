/* SPDX-License-Identifier: Apache-2.0 */
/* Results: what runs of tasks with a topic leave for a master. */
#include <stdio.h>

#include "broker/result.h"
#include "conform/conform.h"

/* The result in a lease; its slices live as long as that. */
static struct mr_result result_in(const struct mr_lease *lease)
{
    struct mr_result result;
    assert_err(mr_result_decode(lease->task.payload, &result), MR_OK);
    return result;
}

/* Takes the next result and asserts whose it is. */
static struct mr_lease *take_of(struct conform *t, const struct conform_node *master,
                                const char *task_id)
{
    struct mr_lease *lease = conform_take_one(t, master);
    assert_slice(result_in(lease).task_id, task_id);
    return lease;
}

static void put_with_topic(struct conform *t, const char *id)
{
    (void)PUT_OK(t, .id = mr_slice_str(id), .type = MR_SLICE_LIT("mail"),
                 .topic = MR_SLICE_LIT("news"));
}

/* Runs the only waiting task so. */
static void run_so(struct conform *t, const struct conform_node *worker, struct mr_finish how)
{
    struct mr_lease *lease = conform_take_one(t, worker);
    conform_finish_ok(t, lease, how, __FILE__, __LINE__);
}

/* Results of tasks prefix0, prefix1, ... in this order. */
static void leave_results(struct conform *t, const char *prefix, size_t n)
{
    struct conform_node *worker = NODE(t, .name = "leaver");
    char id[MR_ID_MAX + 1];
    for (size_t i = 0; i < n; i++) {
        (void)snprintf(id, sizeof id, "%s%zu", prefix, i);
        put_with_topic(t, id);
        run_so(t, worker, (struct mr_finish){.outcome = MR_DONE, .result = mr_slice_str(id)});
    }
    assert_err(conform_node_close(t, worker), MR_OK);
}

static enum mr_err topic_get(struct conform *t, const char *topic, struct mr_queue_info *info)
{
    char name[MR_NAME_MAX + 1];
    (void)mr_result_queue(mr_slice_str(topic), name);
    return conform_queue_get(t, name, info);
}

static uint64_t waiting(struct conform *t, const char *topic)
{
    struct mr_queue_info info;
    assert_err(topic_get(t, topic, &info), MR_OK);
    return info.counts[MR_PENDING];
}

static void commit(struct conform *t, struct mr_lease *lease)
{
    FINISH_OK(t, lease, .outcome = MR_DONE);
}

/* ---- what a run leaves ---------------------------------------------------------------------- */

static void a_run_that_ends_well_leaves_its_result(void **state)
{
    struct conform *t = *state;
    struct conform_node *worker = NODE(t, .name = "worker");
    struct conform_node *master = NODE(t, .name = "master", .topics = "news");
    conform_take_none(t, master);
    put_with_topic(t, "a");
    int64_t before = conform_wall_ms();
    run_so(t, worker, (struct mr_finish){.outcome = MR_DONE, .result = MR_SLICE_LIT("done it")});
    struct mr_lease *lease = take_of(t, master, "a");
    struct mr_result result = result_in(lease);
    assert_slice(result.queue, "default");
    assert_slice(result.type, "mail");
    assert_slice(result.topic, "news");
    assert_slice(result.result, "done it");
    assert_slice(result.error, "");
    assert_int_equal(result.outcome, MR_RESULT_OK);
    assert_int_equal(result.attempt, 1);
    assert_int_equal(result.partition, 1);
    assert_true(result.final);
    assert_false(result.cancel_requested);
    assert_true(result.finished_ms >= before && result.finished_ms <= conform_wall_ms());
    assert_null(conform_get(t, "a"));
    commit(t, lease);
    conform_take_none(t, master);
}

static void a_task_without_a_topic_leaves_none(void **state)
{
    struct conform *t = *state;
    struct conform_node *worker = NODE(t, .name = "worker");
    struct mr_queue_info info;
    (void)PUT_OK(t, .id = MR_SLICE_LIT("a"));
    run_so(t, worker, (struct mr_finish){.outcome = MR_DONE});
    assert_err(topic_get(t, "news", &info), MR_NOT_FOUND);
    assert_int_equal(conform_stats_now(t).results, 0);
}

static void a_run_that_is_handed_back_or_put_off_leaves_none(void **state)
{
    struct conform *t = *state;
    struct conform_node *worker = NODE(t, .name = "worker");
    put_with_topic(t, "a");
    run_so(t, worker, (struct mr_finish){.outcome = MR_HAND_BACK});
    run_so(t, worker, (struct mr_finish){.outcome = MR_LATER});
    assert_int_equal(conform_stats_now(t).results, 0);
    run_so(t, worker, (struct mr_finish){.outcome = MR_DONE});
    assert_int_equal(waiting(t, "news"), 1);
}

static void each_failure_leaves_one_and_the_last_is_final(void **state)
{
    struct conform *t = *state;
    struct conform_node *worker = NODE(t, .name = "worker");
    struct conform_node *master = NODE(t, .name = "master", .topics = "news");
    (void)PUT_OK(t, .id = MR_SLICE_LIT("a"), .topic = MR_SLICE_LIT("news"), .max_retry = 1);
    for (uint32_t attempt = 1; attempt <= 2; attempt++) {
        run_so(t, worker, (struct mr_finish){.outcome = MR_FAIL, .error = MR_SLICE_LIT("no")});
        struct mr_lease *lease = take_of(t, master, "a");
        struct mr_result result = result_in(lease);
        assert_int_equal(result.outcome, MR_RESULT_ERROR);
        assert_int_equal(result.attempt, attempt);
        assert_int_equal(result.final, attempt == 2);
        assert_slice(result.error, "no");
        assert_slice(result.result, "");
        commit(t, lease);
    }
    assert_int_equal(conform_state(t, "a"), MR_ARCHIVED);
    assert_slice(conform_get(t, "a")->last_error, "no");
}

static void why_a_run_failed_is_in_its_result(void **state)
{
    struct conform *t = *state;
    static const struct {
        struct mr_finish how;
        enum mr_result_outcome outcome;
        bool final;
    } rows[] = {
        {{.outcome = MR_FAIL, .reason = MR_REASON_TIMEOUT, .delay_ms = 3600000},
         MR_RESULT_TIMEOUT,
         false},
        {{.outcome = MR_FAIL_FOR_GOOD, .reason = MR_REASON_TIMEOUT}, MR_RESULT_TIMEOUT, true},
        {{.outcome = MR_FAIL_FOR_GOOD, .reason = MR_REASON_CANCELLED}, MR_RESULT_CANCELLED, true},
        {{.outcome = MR_FAIL_FOR_GOOD}, MR_RESULT_ERROR, true},
        {{.outcome = MR_DROP}, MR_RESULT_OK, true},
    };
    struct conform_node *worker = NODE(t, .name = "worker");
    struct conform_node *master = NODE(t, .name = "master", .topics = "news");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char id[] = {(char)('a' + i), '\0'};
        put_with_topic(t, id);
        run_so(t, worker, rows[i].how);
        struct mr_lease *lease = take_of(t, master, id);
        assert_int_equal(result_in(lease).outcome, rows[i].outcome);
        assert_int_equal(result_in(lease).final, rows[i].final);
        commit(t, lease);
    }
}

static void a_task_that_was_to_be_deleted_says_so_in_its_result(void **state)
{
    struct conform *t = *state;
    struct conform_node *worker = NODE(t, .name = "worker");
    struct conform_node *master = NODE(t, .name = "master", .topics = "news");
    put_with_topic(t, "a");
    struct mr_lease *run = conform_take_id(t, worker, "a");
    assert_err(conform_act(t, MR_VERB_DELETE, "a", 0), MR_RUNNING);
    FINISH_OK(t, run, .outcome = MR_DONE);
    struct mr_lease *lease = take_of(t, master, "a");
    assert_true(result_in(lease).cancel_requested);
    assert_int_equal(result_in(lease).outcome, MR_RESULT_OK);
    commit(t, lease);
    put_with_topic(t, "b");
    run = conform_take_id(t, worker, "b");
    assert_err(conform_act(t, MR_VERB_CANCEL, "b", 0), MR_OK);
    FINISH_OK(t, run, .outcome = MR_HAND_BACK); /* its end, since it was cancelled */
    lease = take_of(t, master, "b");
    assert_int_equal(result_in(lease).outcome, MR_RESULT_CANCELLED);
    assert_true(result_in(lease).final);
    commit(t, lease);
}

static void a_lost_run_leaves_one_and_the_last_is_final(void **state)
{
    struct conform *t = *state;
    struct conform_node *master = NODE(t, .name = "master", .topics = "news");
    put_with_topic(t, "a");
    for (uint32_t attempt = 1; attempt <= MR_CRASHES_MAX; attempt++) {
        struct conform_node *worker = NODE(t, .name = "worker");
        struct mr_lease *run = conform_take_id(t, worker, "a");
        mr_broker_begun(t->broker, worker->first_slot, run->epoch);
        assert_err(conform_node_close(t, worker), MR_OK);
        mr_lease_free(run);
        struct mr_lease *lease = take_of(t, master, "a");
        assert_int_equal(result_in(lease).outcome, MR_RESULT_LOST);
        assert_int_equal(result_in(lease).attempt, attempt);
        assert_int_equal(result_in(lease).final, attempt == MR_CRASHES_MAX);
        assert_true(result_in(lease).error.len > 0);
        commit(t, lease);
    }
    assert_int_equal(conform_state(t, "a"), MR_ARCHIVED);
    conform_take_none(t, master);
}

static void what_was_held_and_never_ran_leaves_none(void **state)
{
    struct conform *t = *state;
    put_with_topic(t, "a");
    struct conform_node *worker = NODE(t, .name = "worker");
    mr_lease_free(conform_take_id(t, worker, "a"));
    assert_err(conform_node_close(t, worker), MR_OK);
    assert_int_equal(conform_stats_now(t).results, 0);
    assert_int_equal(conform_state(t, "a"), MR_PENDING);
}

static void a_finish_that_is_repeated_or_refused_leaves_no_second_one(void **state)
{
    struct conform *t = *state;
    struct conform_node *worker = NODE(t, .name = "worker");
    put_with_topic(t, "a");
    struct mr_lease *run = conform_take_id(t, worker, "a");
    struct mr_lease old = *run;
    old.epoch--;
    assert_err(FINISH(t, &old, .outcome = MR_DONE), MR_STALE);
    assert_err(FINISH(t, run, .outcome = MR_DONE), MR_OK);
    enum mr_err again = FINISH(t, run, .outcome = MR_DONE);
    assert_true(again == MR_NOT_FOUND || again == MR_STALE);
    mr_lease_free(run);
    assert_int_equal(waiting(t, "news"), 1);
}

static void any_bytes_come_through(void **state)
{
    struct conform *t = *state;
    static char big[MR_RESULT_MAX];
    for (size_t i = 0; i < sizeof big; i++)
        big[i] = (char)(i * 7 + i / 251);
    const struct mr_slice bodies[] = {
        MR_SLICE_LIT("^pillar^"), MR_SLICE_LIT("a\0b\0"), MR_SLICE_LIT("\xff\xfe\x80"), {"", 0},
        {big, sizeof big},
    };
    struct conform_node *worker = NODE(t, .name = "worker");
    struct conform_node *master = NODE(t, .name = "master", .topics = "news");
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        (void)PUT_OK(t, .id = MR_SLICE_LIT("a"), .topic = MR_SLICE_LIT("news"),
                     .payload = bodies[i].len <= t->engine->payload_max ? bodies[i]
                                                                        : (struct mr_slice){0});
        run_so(t, worker, (struct mr_finish){.outcome = MR_DONE, .result = bodies[i]});
        struct mr_lease *lease = take_of(t, master, "a");
        assert_slices(result_in(lease).result, bodies[i]);
        commit(t, lease);
    }
}

static void a_task_that_is_kept_has_its_result_too(void **state)
{
    struct conform *t = *state;
    struct conform_node *worker = NODE(t, .name = "worker");
    (void)PUT_OK(t, .id = MR_SLICE_LIT("a"), .topic = MR_SLICE_LIT("news"),
                 .retention_ms = 3600000);
    run_so(t, worker, (struct mr_finish){.outcome = MR_DONE, .result = MR_SLICE_LIT("both")});
    assert_slice(conform_get(t, "a")->result, "both");
    struct mr_lease *lease = take_of(t, NODE(t, .topics = "news"), "a");
    assert_slice(result_in(lease).result, "both");
    commit(t, lease);
    assert_slice(conform_get(t, "a")->result, "both");
}

/* ---- taking and committing ------------------------------------------------------------------ */

static void results_come_in_the_order_of_finishing(void **state)
{
    struct conform *t = *state;
    struct conform_node *worker = NODE(t, .name = "worker");
    struct conform_node *master = NODE(t, .name = "master", .topics = "news");
    const char *const ids[] = {"a", "b", "c"};
    struct mr_lease *runs[3];
    for (size_t i = 0; i < 3; i++)
        put_with_topic(t, ids[i]);
    for (size_t i = 0; i < 3; i++)
        runs[i] = conform_take_id(t, worker, ids[i]);
    for (size_t i = 3; i-- > 0;)
        FINISH_OK(t, runs[i], .outcome = MR_DONE);
    for (size_t i = 3; i-- > 0;)
        commit(t, take_of(t, master, ids[i]));
}

/* Of each queue and partition in their order. */
static void one_topic_has_the_results_of_all_queues_and_partitions(void **state)
{
    struct conform *t = *state;
    enum { PARTS = 3, EACH = 2 };
    static const char *const queues[] = {"p", "q"};
    struct conform_node *worker = NODE(t, .name = "worker", .queues = "p q");
    struct conform_node *master = NODE(t, .name = "master", .topics = "news");
    size_t seen[2][PARTS + 1] = {{0}};
    assert_err(conform_queue_set(t, "p", MR_QUEUE_PARTITIONS, PARTS), MR_OK);
    for (uint32_t i = 0; i < 2 * PARTS * EACH; i++) {
        bool parted = i % 2 == 0;
        char text[] = {(char)('0' + i / (2 * PARTS)), '\0'};
        (void)PUT_OK(t, .queue = mr_slice_str(queues[i % 2]), .topic = MR_SLICE_LIT("news"),
                     .partition = parted ? i / 2 % PARTS + 1 : 1, .payload = mr_slice_str(text));
        struct mr_lease *run = conform_take_one(t, worker);
        struct mr_slice payload = run->task.payload;
        FINISH_OK(t, run, .outcome = MR_DONE, .result = payload);
    }
    for (size_t i = 0; i < 2 * PARTS * EACH; i++) {
        struct mr_lease *lease = conform_take_one(t, master);
        struct mr_result result = result_in(lease);
        size_t queue = mr_slice_equal(result.queue, mr_slice_str("q"));
        assert_slice(result.queue, queues[queue]);
        assert_in_range(result.partition, 1, queue == 0 ? PARTS : 1);
        size_t *n = &seen[queue][result.partition];
        size_t round = queue == 0 ? *n : *n / PARTS;
        assert_int_equal(((const char *)result.result.data)[0], '0' + (int)round);
        (*n)++;
        commit(t, lease);
    }
    for (size_t i = 1; i <= PARTS; i++)
        assert_int_equal(seen[0][i], EACH);
    assert_int_equal(seen[1][1], PARTS * EACH);
    conform_take_none(t, master);
}

static void what_one_master_holds_another_does_not_get(void **state)
{
    struct conform *t = *state;
    struct conform_node *first = NODE(t, .name = "first", .topics = "news");
    struct conform_node *second = NODE(t, .name = "second", .topics = "news");
    leave_results(t, "r", 3);
    struct mr_lease *r0 = take_of(t, first, "r0"), *r1 = take_of(t, first, "r1");
    struct mr_lease *r2 = take_of(t, second, "r2");
    conform_take_none(t, second);
    size_t n;
    const struct mr_node_info *nodes = conform_list_nodes(t, &n);
    for (size_t i = 0; i < n; i++) {
        assert_int_equal(nodes[i].role, MR_NODE_MASTER);
        assert_int_equal(nodes[i].in_hand,
                         mr_slice_equal(nodes[i].name, mr_slice_str("first")) ? 2 : 1);
        assert_slice(nodes[i].queues[0].name, "news");
    }
    assert_int_equal(n, 2);
    commit(t, r0);
    struct mr_queue_info info;
    assert_err(topic_get(t, "news", &info), MR_OK);
    assert_int_equal(info.counts[MR_ACTIVE], 2);
    commit(t, r1);
    commit(t, r2);
    assert_int_equal(conform_stats_now(t).results, 0);
}

static void a_second_commit_does_no_harm(void **state)
{
    struct conform *t = *state;
    struct conform_node *master = NODE(t, .name = "master", .topics = "news");
    leave_results(t, "r", 2);
    struct mr_lease *r0 = take_of(t, master, "r0"), *r1 = take_of(t, master, "r1");
    assert_err(FINISH(t, r0, .outcome = MR_DONE), MR_OK);
    assert_err(FINISH(t, r0, .outcome = MR_DONE), MR_NOT_FOUND);
    mr_lease_free(r0);
    commit(t, r1);
}

static void a_result_is_only_committed_or_given_back(void **state)
{
    struct conform *t = *state;
    struct conform_node *master = NODE(t, .name = "master", .topics = "news");
    leave_results(t, "r", 2);
    struct mr_lease *r0 = take_of(t, master, "r0");
    assert_err(FINISH(t, r0, .outcome = MR_FAIL), MR_INVALID);
    assert_err(FINISH(t, r0, .outcome = MR_DROP), MR_INVALID);
    FINISH_OK(t, r0, .outcome = MR_HAND_BACK);
    commit(t, take_of(t, master, "r0"));
    commit(t, take_of(t, master, "r1"));
}

static void the_results_of_a_master_that_goes_are_at_the_head_in_their_order(void **state)
{
    struct conform *t = *state;
    struct conform_node *other = NODE(t, .name = "other", .topics = "news");
    leave_results(t, "r", 4);
    for (int64_t lease_ms = 0; lease_ms <= CONFORM_LEASE_MS; lease_ms += CONFORM_LEASE_MS) {
        struct conform_node *master =
            NODE(t, .name = "master", .topics = "news", .lease_ms = lease_ms);
        struct mr_lease *r0 = take_of(t, master, "r0"), *r1 = take_of(t, master, "r1");
        if (lease_ms == 0)
            assert_err(conform_node_close(t, master), MR_OK);
        else
            WAIT_UNTIL(conform_was_stopped(master, r1->epoch, MR_STOP_LOST));
        WAIT_UNTIL(waiting(t, "news") == 4);
        mr_lease_free(r0);
        mr_lease_free(r1);
    }
    size_t n;
    struct mr_lease *all = conform_take_list(t, other, 10, 0, &n);
    assert_int_equal(n, 4);
    char id[] = "r0";
    for (struct mr_lease *lease = all; lease != NULL; lease = lease->next, id[1]++) {
        assert_slice(result_in(lease).task_id, id);
        assert_int_equal(lease->task.crashes, 0);
    }
    conform_finish_list(t, all, MR_DONE);
}

static void a_master_that_lost_its_lease_commits_only_what_nobody_else_got(void **state)
{
    struct conform *t = *state;
    struct conform_node *other = NODE(t, .name = "other", .topics = "news");
    leave_results(t, "r", 2);
    struct conform_node *master =
        NODE(t, .name = "master", .topics = "news", .lease_ms = CONFORM_LEASE_MS);
    struct mr_lease *r0 = take_of(t, master, "r0"), *r1 = take_of(t, master, "r1");
    WAIT_UNTIL(waiting(t, "news") == 2);
    struct mr_lease *got = take_of(t, other, "r0");
    assert_err(FINISH(t, r0, .outcome = MR_DONE), MR_STALE);
    commit(t, r1);
    commit(t, got);
    mr_lease_free(r0);
    assert_int_equal(conform_stats_now(t).results, 0);
}

static void a_master_that_waits_gets_a_result_when_it_comes(void **state)
{
    struct conform *t = *state;
    struct conform_node *worker = NODE(t, .name = "worker");
    struct conform_node *master = NODE(t, .name = "master", .topics = "other news");
    put_with_topic(t, "a");
    struct conform_take take;
    conform_take_start(t, &take, master, 10, CONFORM_WAIT_MS);
    run_so(t, worker, (struct mr_finish){.outcome = MR_DONE});
    assert_err(conform_take_end(t, &take), MR_OK);
    assert_int_equal(take.req.n, 1);
    assert_slice(result_in(take.req.leases).task_id, "a");
    commit(t, take.req.leases);
    mr_req_done(&take.req.req);
}

static void a_commit_among_results_only_does_not_end_a_task(void **state)
{
    struct conform *t = *state;
    struct conform_node *worker = NODE(t, .name = "worker");
    put_with_topic(t, "a");
    struct mr_lease *run = conform_take_id(t, worker, "a");
    struct mr_finish item = {.id = run->task.id, .epoch = run->epoch, .outcome = MR_DONE};
    enum mr_err err = MR_FAILED;
    struct mr_req_finish req = {
        .req.op = MR_OP_FINISH, .items = &item, .n = 1, .errs = &err, .only_results = true};
    assert_err(mr_broker_call(t->broker, &req.req), MR_OK);
    mr_req_done(&req.req);
    assert_err(err, MR_INVALID); /* what no result is called was never given to anybody */
    FINISH_OK(t, run, .outcome = MR_DONE);
    struct mr_lease *lease = take_of(t, NODE(t, .topics = "news"), "a");
    item = (struct mr_finish){.id = lease->task.id, .epoch = lease->epoch, .outcome = MR_DONE};
    req = (struct mr_req_finish){
        .req.op = MR_OP_FINISH, .items = &item, .n = 1, .errs = &err, .only_results = true};
    assert_err(mr_broker_call(t->broker, &req.req), MR_OK);
    mr_req_done(&req.req);
    assert_err(err, MR_OK);
    mr_lease_free(lease);
}

/* ---- out of people's way -------------------------------------------------------------------- */

static void results_are_nobody_elses_tasks(void **state)
{
    struct conform *t = *state;
    struct conform_node *master = NODE(t, .name = "master", .topics = "news");
    char hidden[MR_NAME_MAX + 1], id[MR_ID_MAX + 1];
    (void)mr_result_queue(mr_slice_str("news"), hidden);
    leave_results(t, "r", 1);
    struct mr_lease *lease = take_of(t, master, "r0");
    snprintf(id, sizeof id, "%.*s", (int)lease->task.id.len, (const char *)lease->task.id.data);
    FINISH_OK(t, lease, .outcome = MR_HAND_BACK);
    assert_null(conform_get(t, id));
    for (enum mr_verb verb = MR_VERB_CANCEL; verb <= MR_VERB_PRIORITISE; verb++)
        assert_err(conform_act(t, verb, id, 0), MR_NOT_FOUND);
    assert_int_equal(PAGE(t, .limit = 10).n, 0);
    assert_err(PAGE(t, .queue = mr_slice_str(hidden)).err, MR_NOT_FOUND);
    assert_err(PUT(t, .queue = mr_slice_str(hidden)).err, MR_INVALID);
    assert_err(conform_queue_remove(t, hidden, MR_QUEUE_REMOVE_FORCE), MR_NOT_FOUND);
    assert_err(conform_queue_set(t, hidden, MR_QUEUE_PAUSED, 1), MR_INVALID);
    struct mr_queue_info infos[4];
    struct mr_req_queue_list list = {.req.op = MR_OP_QUEUE_LIST, .infos = infos, .max = 4};
    assert_err(mr_broker_call(t->broker, &list.req), MR_OK);
    mr_req_done(&list.req);
    assert_int_equal(list.n, 1);
    assert_string_equal(infos[0].name, "default");
    struct mr_stats stats = conform_stats_now(t);
    assert_int_equal(stats.tasks, 0);
    assert_int_equal(stats.results, 1);
}

static enum mr_err open_so(struct conform *t, enum mr_node_role role, const char *queue,
                           uint32_t slots)
{
    struct mr_worker_queue queues[] = {{.name = mr_slice_str(queue)}};
    struct conform_node node;
    struct mr_req_node_open req = {.req.op = MR_OP_NODE_OPEN,
                                   .role = role,
                                   .name = MR_SLICE_LIT("node"),
                                   .queues = queues,
                                   .queues_n = 1,
                                   .slots = slots,
                                   .lease_ms = 60000,
                                   .events = {.stop = conform_node_stop, .arg = &node}};
    enum mr_err err = mr_broker_call(t->broker, &req.req);
    mr_req_done(&req.req);
    return err;
}

static void workers_take_no_results_and_masters_no_tasks(void **state)
{
    struct conform *t = *state;
    char hidden[MR_NAME_MAX + 1];
    (void)mr_result_queue(mr_slice_str("news"), hidden);
    assert_err(open_so(t, MR_NODE_WORKER, hidden, 1), MR_INVALID);
    assert_err(open_so(t, MR_NODE_MASTER, "news", 0), MR_INVALID);
    assert_err(open_so(t, MR_NODE_MASTER, hidden, 1), MR_INVALID);
}

static void results_outlive_their_task_and_its_queue(void **state)
{
    struct conform *t = *state;
    struct conform_node *worker = NODE(t, .name = "worker");
    (void)PUT_OK(t, .id = MR_SLICE_LIT("a"), .topic = MR_SLICE_LIT("news"));
    run_so(t, worker, (struct mr_finish){.outcome = MR_FAIL_FOR_GOOD, .error = MR_SLICE_LIT("no")});
    assert_err(conform_act(t, MR_VERB_DELETE, "a", 0), MR_OK);
    assert_err(conform_queue_remove(t, "default", MR_QUEUE_REMOVE_FORCE), MR_OK);
    struct mr_lease *lease = take_of(t, NODE(t, .topics = "news"), "a");
    assert_slice(result_in(lease).error, "no");
    commit(t, lease);
}

static void a_topic_is_no_longer_than_the_limit(void **state)
{
    struct conform *t = *state;
    char topic[MR_TOPIC_MAX + 2];
    memset(topic, 't', sizeof topic);
    assert_err(PUT(t, .topic = mr_slice_make(topic, MR_TOPIC_MAX + 1)).err, MR_TOO_BIG);
    (void)PUT_OK(t, .id = MR_SLICE_LIT("a"), .topic = mr_slice_make(topic, MR_TOPIC_MAX));
    topic[MR_TOPIC_MAX] = '\0';
    run_so(t, NODE(t, .name = "worker"), (struct mr_finish){.outcome = MR_DONE});
    commit(t, take_of(t, NODE(t, .topics = topic), "a"));
}

/* ---- after a restart ------------------------------------------------------------------------ */

static void results_are_there_after_a_restart(void **state)
{
    struct conform *t = *state;
    if (!t->engine->can_reopen)
        return;
    leave_results(t, "r", 3);
    struct conform_node *master = NODE(t, .name = "master", .topics = "news");
    struct mr_lease *r0 = take_of(t, master, "r0"), *r1 = take_of(t, master, "r1");
    conform_reopen(t);
    master = NODE(t, .name = "master", .topics = "news");
    WAIT_UNTIL(waiting(t, "news") == 3);
    r1->ref = 0;
    assert_err(FINISH(t, r1, .outcome = MR_DONE), MR_OK); /* nobody has got it since */
    struct mr_lease *again = take_of(t, master, "r0");
    r0->ref = 0;
    assert_err(FINISH(t, r0, .outcome = MR_DONE), MR_STALE);
    commit(t, again);
    commit(t, take_of(t, master, "r2"));
    mr_lease_free(r0);
    mr_lease_free(r1);
    assert_int_equal(conform_stats_now(t).results, 0);
}

int conform_results(const struct conform_engine *engine)
{
    static struct CMUnitTest tests[] = {
        CONFORM_TEST(a_run_that_ends_well_leaves_its_result),
        CONFORM_TEST(a_task_without_a_topic_leaves_none),
        CONFORM_TEST(a_run_that_is_handed_back_or_put_off_leaves_none),
        CONFORM_TEST(each_failure_leaves_one_and_the_last_is_final),
        CONFORM_TEST(why_a_run_failed_is_in_its_result),
        CONFORM_TEST(a_task_that_was_to_be_deleted_says_so_in_its_result),
        CONFORM_TEST(a_lost_run_leaves_one_and_the_last_is_final),
        CONFORM_TEST(what_was_held_and_never_ran_leaves_none),
        CONFORM_TEST(a_finish_that_is_repeated_or_refused_leaves_no_second_one),
        CONFORM_TEST(any_bytes_come_through),
        CONFORM_TEST(a_task_that_is_kept_has_its_result_too),
        CONFORM_TEST(results_come_in_the_order_of_finishing),
        CONFORM_TEST(one_topic_has_the_results_of_all_queues_and_partitions),
        CONFORM_TEST(what_one_master_holds_another_does_not_get),
        CONFORM_TEST(a_second_commit_does_no_harm),
        CONFORM_TEST(a_result_is_only_committed_or_given_back),
        CONFORM_TEST(the_results_of_a_master_that_goes_are_at_the_head_in_their_order),
        CONFORM_TEST(a_master_that_lost_its_lease_commits_only_what_nobody_else_got),
        CONFORM_TEST(a_master_that_waits_gets_a_result_when_it_comes),
        CONFORM_TEST(a_commit_among_results_only_does_not_end_a_task),
        CONFORM_TEST(results_are_nobody_elses_tasks),
        CONFORM_TEST(workers_take_no_results_and_masters_no_tasks),
        CONFORM_TEST(results_outlive_their_task_and_its_queue),
        CONFORM_TEST(a_topic_is_no_longer_than_the_limit),
        CONFORM_TEST(results_are_there_after_a_restart),
    };
    return CONFORM_RUN(engine, "results", tests);
}
