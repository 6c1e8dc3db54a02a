/* SPDX-License-Identifier: Apache-2.0 */
/*
 * fsck on a Redis: each kind of damage is planted by hand, found, mended, and not found again; tasks of a
 * store in use are no damage.
 */
#include <stdio.h>
#include <stdlib.h>

#include "base/buf.h"
#include "broker/hidden.h"
#include "broker/redis/redis.h"
#include "redis/slot.h"
#include "support/redis_rig.h"
#include "unit/broker_user.h"

#define Q "asynq:{default}:"

static struct redis_rig *rig;

static bool is_cluster(void)
{
    const char *deployment = getenv("MR_DEPLOYMENT");
    return deployment != NULL && strcmp(deployment, "cluster") == 0;
}

/* The one that has these keys. */
static struct redis_rig_server *server_of(const char *key)
{
    return is_cluster() ? redis_rig_owner(rig, redis_slot(mr_slice_str(key)))
                        : redis_rig_server(rig, 0);
}

static struct redis_rig_server *server(void)
{
    return server_of(Q);
}

static void add_line(const char *text, void *arg)
{
    struct mr_buf *lines = arg;
    assert_int_equal(mr_buf_printf(lines, "%s\n", text), MR_OK);
}

static struct mr_fsck_report fsck(enum mr_fsck_mode mode, struct mr_buf *lines)
{
    struct mr_fsck_report report;
    struct mr_detail detail = {.text = ""};
    struct mr_redis_check check = {
        .url = redis_rig_url(rig), .mode = mode, .line = add_line, .arg = lines};
    enum mr_err err = mr_redis_fsck(&check, &report, &detail);
    if (err != MR_OK)
        fail_msg("%s: %s", mr_err_name(err), detail.text);
    assert_int_equal(mr_buf_append(lines, "", 1), MR_OK);
    return report;
}

static void assert_whole(void)
{
    struct mr_buf lines = {0};
    struct mr_fsck_report report = fsck(MR_FSCK_CHECK, &lines);
    if (report.damaged != 0)
        fail_msg("%s", (const char *)lines.data);
    mr_buf_done(&lines);
}

/* Found by a check, which changes nothing; mended by a repair; gone. */
static void assert_found_and_mended(const char *what, const char *mended)
{
    struct mr_buf lines = {0};
    struct mr_fsck_report report = fsck(MR_FSCK_CHECK, &lines);
    if (report.damaged != 1 || strstr((const char *)lines.data, what) == NULL)
        fail_msg("\"%s\" expected in: %s", what, (const char *)lines.data);
    assert_int_equal(report.repaired, 0);
    mr_buf_clear(&lines);
    report = fsck(MR_FSCK_REPAIR, &lines);
    assert_int_equal(report.repaired, 1);
    assert_int_equal(report.damaged, 0);
    if (strstr((const char *)lines.data, mended) == NULL)
        fail_msg("\"%s\" expected in: %s", mended, (const char *)lines.data);
    mr_buf_done(&lines);
    assert_whole();
}

/* ---- tasks ---------------------------------------------------------------------------------- */

static struct mr_broker *open_broker(void)
{
    struct mr_broker *broker;
    struct mr_redis_broker_options options = {.url = redis_rig_url(rig)};
    assert_int_equal(mr_redis_broker_open(&options, &broker, NULL), MR_OK);
    return broker;
}

/* A task of another broker, which is held. */
static void carry(struct mr_broker *broker, const char *id)
{
    struct mr_task task = {.id = mr_slice_str(id),
                           .queue = MR_SLICE_LIT("default"),
                           .type = MR_SLICE_LIT("task"),
                           .state = MR_PENDING,
                           .created_ms = 1,
                           .order_time_ms = 1};
    struct mr_task_options options = mr_carried_options(&task);
    struct mr_enqueue_result result;
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = &options, .carried = &task, .n = 1, .results = &result};
    assert_int_equal(mr_broker_call(broker, &req.req), MR_OK);
    assert_int_equal(result.err, MR_OK);
    mr_req_done(&req.req);
}

/* One of each kind, and one that runs. */
static void fill(struct mr_broker *broker)
{
    put(broker, (struct mr_task_options){.id = MR_SLICE_LIT("runs")});
    mr_lease_free(take_one(broker));
    put(broker, (struct mr_task_options){.id = MR_SLICE_LIT("plain")});
    put(broker, (struct mr_task_options){.id = MR_SLICE_LIT("first"), .priority_s = 60});
    put(broker, (struct mr_task_options){.id = MR_SLICE_LIT("later"), .delay_ms = 3600000});
    put(broker, (struct mr_task_options){.id = MR_SLICE_LIT("member"), .group = MR_SLICE_LIT("g")});
    put(broker, (struct mr_task_options){.id = MR_SLICE_LIT("only"),
                                         .unique_ms = 3600000,
                                         .unique_key = MR_SLICE_LIT("key")});
    carry(broker, "held");
}

static int setup(void **state)
{
    RIG_ALL(rig, "FLUSHALL");
    struct mr_broker *broker = open_broker();
    fill(broker);
    assert_whole();
    *state = broker;
    return 0;
}

static int teardown(void **state)
{
    mr_broker_close(*state);
    return 0;
}

/* ---- damage --------------------------------------------------------------------------------- */

static void an_inner_queue_stays_out_of_sight(void **state)
{
    struct mr_broker *broker = open_broker();
    struct mr_task_options task = {.queue = MR_SLICE_LIT(MR_TIMERS_QUEUE)};
    struct mr_enqueue_result result;
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = &task, .n = 1, .results = &result, .inner = true};
    (void)state;
    assert_int_equal(mr_broker_call(broker, &req.req), MR_OK);
    mr_req_done(&req.req);
    assert_int_equal(result.err, MR_OK);
    mr_broker_close(broker);
    assert_whole();
}

static void an_id_without_its_task_leaves_every_place(void **state)
{
    (void)state;
    static const char *const ids[][2] = {
        {"plain", "in pending"}, {"later", "in scheduled"}, {"member", "in g:g"}};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        char key[64];
        (void)snprintf(key, sizeof key, Q "t:%s", ids[i][0]);
        RIG(server(), "DEL", key);
        if (i == 1) /* its other entry counts only together with this one */
            RIG(server(), "ZREM", Q "mr:due", "later");
        assert_found_and_mended(ids[i][1], "taken out");
    }
    assert_int_equal(RIG_INT(server(), "LPOS", Q "pending", "only"), 0);
}

static void a_task_in_no_place_is_pending_again(void **state)
{
    RIG(server(), "LREM", Q "pending", "0", "plain");
    assert_found_and_mended("plain: a task in no place", "put into one");
    assert_int_equal(state_of(*state, "plain"), MR_PENDING);
}

static void a_full_redis_is_mended_as_well(void **state)
{
    RIG(server(), "LREM", Q "pending", "0", "plain");
    RIG_ALL(rig, "CONFIG", "SET", "maxmemory", "1");
    assert_found_and_mended("plain: a task in no place", "put into one");
    RIG_ALL(rig, "CONFIG", "SET", "maxmemory", "0");
    assert_int_equal(state_of(*state, "plain"), MR_PENDING);
}

/* The words of Redis say which command it is. */
static void end_all(const char *text, void *arg)
{
    RIG_ALL(rig, "FLUSHALL");
    add_line(text, arg);
}

/* Keys are found first, and looked at then: it is in use meanwhile. */
static void tasks_that_end_while_it_looks_are_no_damage(void **state)
{
    (void)state;
    struct mr_broker *broker = open_broker();
    struct mr_buf lines = {0};
    struct mr_fsck_report report;
    struct mr_detail detail;
    char id[16];
    for (int i = 0; i < 200; i++) { /* more than are looked at together */
        (void)snprintf(id, sizeof id, "%d", i);
        put(broker, (struct mr_task_options){.id = mr_slice_str(id)});
    }
    RIG(server(), "DEL", Q "pending"); /* so the first of them are told */
    struct mr_redis_check check = {
        .url = redis_rig_url(rig), .mode = MR_FSCK_CHECK, .line = end_all, .arg = &lines};
    assert_int_equal(mr_redis_fsck(&check, &report, &detail), MR_OK);
    assert_int_equal(mr_buf_append(&lines, "", 1), MR_OK);
    assert_non_null(strstr((const char *)lines.data, "a task in no place"));
    assert_null(strstr((const char *)lines.data, "a task without a message"));
    mr_buf_done(&lines);
    mr_broker_close(broker);
}

static void what_the_user_may_not_do_is_told(void **state)
{
    (void)state;
    char url[128];
    struct mr_fsck_report report;
    struct mr_detail detail = {.text = ""};
    struct mr_redis_check check = {.url = url, .line = add_line};
    RIG_ALL(rig, "ACL", "SETUSER", "poor", "on", ">x", "~*", "&*", "+@all", "-scan");
    (void)snprintf(url, sizeof url, "redis%s://poor:x@127.0.0.1:%u", is_cluster() ? "+cluster" : "",
                   (unsigned)server()->port);
    assert_int_equal(mr_redis_fsck(&check, &report, &detail), MR_DENIED);
    assert_non_null(strstr(detail.text, "NOPERM"));
    assert_non_null(strstr(detail.text, "scan"));
}

static void an_ended_task_in_no_place_does_not_run_again(void **state)
{
    struct mr_control item = {.verb = MR_VERB_ARCHIVE, .id = MR_SLICE_LIT("plain")};
    enum mr_err err;
    struct mr_req_control req = {.req.op = MR_OP_CONTROL, .items = &item, .n = 1, .errs = &err};
    assert_int_equal(mr_broker_call(*state, &req.req), MR_OK);
    mr_req_done(&req.req);
    RIG(server(), "DEL", Q "archived");
    assert_found_and_mended("plain: a task in no place", "put into one");
    assert_int_equal(state_of(*state, "plain"), MR_ARCHIVED);
}

static void a_held_task_in_no_place_is_held_again(void **state)
{
    (void)state;
    RIG(server(), "ZREM", Q "mr:held", "held");
    assert_found_and_mended("held: a task in no place", "put into one");
    assert_int_equal(RIG_INT(server(), "ZCARD", Q "mr:held"), 1);
    RIG(server(), "DEL", Q "t:held");
    assert_found_and_mended("in mr:held", "taken out");
    assert_int_equal(RIG_INT(server(), "ZCARD", Q "mr:held"), 0);
}

static void a_run_without_a_lease_is_pending_again(void **state)
{
    RIG(server(), "ZREM", Q "lease", "runs");
    assert_found_and_mended("runs: in active without a lease", "pending again");
    assert_int_equal(state_of(*state, "runs"), MR_PENDING);
}

static void a_lease_without_a_run_is_taken_away(void **state)
{
    (void)state;
    RIG(server(), "ZADD", Q "lease", "1", "plain");
    assert_found_and_mended("plain: in lease, but it does not run", "taken out");
}

static void a_task_in_two_places_stays_where_its_state_says(void **state)
{
    RIG(server(), "LPUSH", Q "pending", "later");
    assert_found_and_mended("later: in pending, and in the place", "taken out");
    assert_int_equal(state_of(*state, "later"), MR_SCHEDULED);
}

static void a_state_that_is_not_that_of_the_place_is_set(void **state)
{
    (void)state;
    RIG(server(), "HSET", Q "t:plain", "state", "retry");
    assert_found_and_mended("plain: in pending, but its state is another", "state set");
}

/* A run that nobody has a lease of is no run, whatever the state says: one repair is enough for both. */
static void a_task_of_another_state_among_the_runs_without_a_lease_is_pending_again(void **state)
{
    static const char *const states[] = {"pending", "retry"};
    for (size_t i = 0; i < sizeof states / sizeof *states; i++) {
        RIG(server(), "LREM", Q "pending", "1", "plain");
        RIG(server(), "LPUSH", Q "active", "plain");
        RIG(server(), "HSET", Q "t:plain", "state", states[i]);
        assert_found_and_mended("plain: in active without a lease", "pending again");
        assert_int_equal(state_of(*state, "plain"), MR_PENDING);
        assert_int_equal(RIG_INT(server(), "LLEN", Q "active"), 1);
    }
    assert_int_equal(state_of(*state, "runs"), MR_ACTIVE);
}

/* One that has a lease is a run: its state is set. */
static void a_run_of_another_state_stays_one(void **state)
{
    RIG(server(), "HSET", Q "t:runs", "state", "pending");
    assert_found_and_mended("runs: in active, but its state is another", "state set");
    assert_int_equal(state_of(*state, "runs"), MR_ACTIVE);
}

static void stale_locks_are_free_again(void **state)
{
    (void)state;
    RIG(server(), "SET", Q "unique:t:00", "nobody");
    assert_found_and_mended("unique:t:00: a lock whose task is gone", "free again");
    assert_int_equal(RIG_INT(server(), "EXISTS", Q "unique:t:00"), 0);
    assert_int_equal(RIG_INT(server(), "EXISTS", Q "mr:u:key"), 1);
}

static void stale_entries_of_ours_go(void **state)
{
    (void)state;
    static const char *const places[] = {"mr:order", "mr:due", "mr:keep", "mr:lease"};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char key[64], text[64];
        (void)snprintf(key, sizeof key, Q "%s", places[i]);
        (void)snprintf(text, sizeof text, "plain: a stale entry in %s", places[i]);
        RIG(server(), "ZADD", key, "12345", "plain");
        assert_found_and_mended(text, "taken out");
    }
}

static void a_ready_task_without_an_order_gets_one(void **state)
{
    RIG(server(), "ZREM", Q "mr:order", "first");
    assert_found_and_mended("first: ready in scheduled, but without an order", "pending again");
    assert_int_equal(state_of(*state, "first"), MR_PENDING);
}

static void a_hash_without_a_message_goes(void **state)
{
    (void)state;
    RIG(server(), "HSET", Q "t:empty", "state", "active");
    assert_found_and_mended("empty: a task without a message", "deleted");
}

static void a_message_that_makes_no_sense_is_told_and_left(void **state)
{
    (void)state;
    struct mr_buf lines = {0};
    RIG(server(), "HSET", Q "t:plain", "msg", "\xff\xff\xff");
    struct mr_fsck_report report = fsck(MR_FSCK_REPAIR, &lines);
    assert_int_equal(report.damaged, 1);
    assert_int_equal(report.repaired, 0);
    assert_non_null(strstr((const char *)lines.data, "plain: a message that makes no sense"));
    mr_buf_done(&lines);
}

static void a_group_that_was_forgotten_is_known_again(void **state)
{
    (void)state;
    RIG(server(), "SREM", Q "groups", "g");
    assert_found_and_mended("g: a group that is not among the groups", "added");
}

static void a_queue_that_was_forgotten_is_known_again(void **state)
{
    (void)state;
    RIG(server_of("asynq:queues"), "SREM", "asynq:queues", "default");
    assert_found_and_mended("queue default: its name: not among all queues", "added");
}

/* More than one script looks at, and much of it damaged. */
static void long_places_are_mended_to_the_end(void **state)
{
    (void)state;
    struct mr_buf lines = {0};
    enum { N = 1000 };
    for (int i = 0; i < N; i++) {
        char id[16];
        (void)snprintf(id, sizeof id, "x%d", i);
        RIG(server(), "LPUSH", Q "pending", id);
        RIG(server(), "ZADD", Q "retry", "5", id);
    }
    struct mr_fsck_report report = fsck(MR_FSCK_REPAIR, &lines);
    mr_buf_done(&lines);
    assert_int_equal(report.repaired, 2 * N);
    assert_whole();
    assert_int_equal(RIG_INT(server(), "LLEN", Q "pending"), 2);
}

/* Nobody knows what such a key is good for: a person has to look. */
static void assert_found_but_not_mended(const char *what)
{
    for (enum mr_fsck_mode mode = MR_FSCK_CHECK; mode <= MR_FSCK_REPAIR; mode++) {
        struct mr_buf lines = {0};
        struct mr_fsck_report report = fsck(mode, &lines);
        if (report.damaged != 1 || strcmp((const char *)lines.data, what) != 0)
            fail_msg("\"%s\" expected, not: %s", what, (const char *)lines.data);
        mr_buf_done(&lines);
    }
}

static void keys_of_another_type_are_found_and_the_rest_is_checked(void **state)
{
    struct mr_broker *broker = open_broker();
    (void)state;
    put(broker, (struct mr_task_options){.id = MR_SLICE_LIT("a")});
    put(broker, (struct mr_task_options){.id = MR_SLICE_LIT("b"), .delay_ms = 3600000});
    put(broker, (struct mr_task_options){.id = MR_SLICE_LIT("c"), .queue = MR_SLICE_LIT("other")});
    mr_broker_close(broker);
    RIG(server(), "SET", Q "retry", "oops");
    assert_found_but_not_mended("queue default: retry: a key of a type that is not ours\n");
    RIG(server(), "DEL", Q "retry");
    RIG(server(), "SET", Q "mr:size", "oops");
    assert_found_but_not_mended("queue default: mr:size: a key of a type that is not ours\n");
    RIG(server(), "DEL", Q "mr:size", Q "t:a");
    RIG(server(), "SET", Q "t:a", "oops");
    assert_found_but_not_mended("queue default: t:a: a key of a type that is not ours\n");
    RIG(server(), "DEL", Q "t:a");
    RIG(server(), "LREM", Q "pending", "1", "a");
    RIG(server(), "HSET", Q "unique:x", "a", "b");
    assert_found_but_not_mended("queue default: " Q "unique:x: a key of a type that is not ours\n");
    RIG(server(), "DEL", Q "unique:x");
    RIG(server(), "SADD", Q "groups", "odd");
    RIG(server(), "SET", Q "g:odd", "oops");
    assert_found_but_not_mended("queue default: g:odd: a key of a type that is not ours\n");
    RIG(server(), "DEL", Q "g:odd");
    RIG(server(), "SREM", Q "groups", "odd");
    assert_whole();
}

static void keys_of_all_queues_of_another_type_are_found(void **state)
{
    (void)state;
    static const char *const keys[] = {"mr:parts", "queues", "mr:results"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        char key[64], line[128];
        (void)snprintf(key, sizeof key, "asynq:%s", keys[i]);
        (void)snprintf(line, sizeof line, "all queues: %s: a key of a type that is not ours\n",
                       keys[i]);
        RIG(server_of(key), "DEL", key);
        RIG(server_of(key), "SET", key, "odd");
        assert_found_but_not_mended(line);
        RIG(server_of(key), "DEL", key);
    }
}

static void keys_of_others_are_no_business_of_ours(void **state)
{
    (void)state;
    static const char *const keys[] = {"other", "asynq:{", "asynq:{default", "asynq:{default}"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        RIG(server_of(keys[i]), "SET", keys[i], "x");
    assert_whole();
}

/* ---- results -------------------------------------------------------------------------------- */

#define R "asynq:{r}:mr:r:[news]:"

/* The result of a run in the queue r; its id, until the next command. */
static const char *leave_result(struct mr_broker *broker)
{
    struct mr_worker_queue queue = {.name = MR_SLICE_LIT("r")};
    struct mr_req_node_open node = {.req.op = MR_OP_NODE_OPEN,
                                    .name = MR_SLICE_LIT("n"),
                                    .queues = &queue,
                                    .queues_n = 1,
                                    .slots = 1,
                                    .lease_ms = 600000,
                                    .events = {.stop = ignore_stop}};
    assert_int_equal(mr_broker_call(broker, &node.req), MR_OK);
    mr_req_done(&node.req);
    put(broker, (struct mr_task_options){.queue = queue.name, .topic = MR_SLICE_LIT("news")});
    struct mr_req_take take = {.req.op = MR_OP_TAKE, .node = node.node, .max = 1, .wait_ms = 10000};
    assert_int_equal(mr_broker_call(broker, &take.req), MR_OK);
    mr_req_done(&take.req);
    assert_int_equal(mr_broker_lease_open(broker, take.leases), MR_OK);
    struct mr_finish done = {
        .id = take.leases->task.id, .epoch = take.leases->epoch, .ref = take.leases->ref};
    enum mr_err err = MR_FAILED;
    struct mr_req_finish finish = {.req.op = MR_OP_FINISH, .items = &done, .n = 1, .errs = &err};
    assert_int_equal(mr_broker_call(broker, &finish.req), MR_OK);
    mr_req_done(&finish.req);
    assert_int_equal(err, MR_OK);
    mr_lease_free(take.leases);
    assert_whole();
    return RIG(server_of(R), "LINDEX", R "pending", "0");
}

static void results_are_looked_at_like_tasks(void **state)
{
    char id[64];
    (void)snprintf(id, sizeof id, "%s", leave_result(*state));
    RIG(server_of(R), "LREM", R "pending", "0", id);
    assert_found_and_mended("queue r: results of news:", "put into one");
    assert_string_equal(RIG(server_of(R), "LINDEX", R "pending", "0"), id);
    RIG(server_of(R), "RPUSH", R "pending", "ghost");
    assert_found_and_mended("ghost: an id in pending of a task that is not there", "taken out");
}

static void what_leads_to_results_is_found_again(void **state)
{
    (void)leave_result(*state);
    RIG(server_of(R), "DEL", "asynq:{r}:mr:topics");
    assert_found_and_mended("its topic: not among those with results", "added");
    RIG(server_of("asynq:mr:results"), "SREM", "asynq:mr:results", "r");
    assert_found_and_mended("its name: not among the queues with results", "added");
}

static void results_of_a_removed_queue_are_no_damage(void **state)
{
    (void)leave_result(*state);
    struct mr_req_queue_remove req = {.req.op = MR_OP_QUEUE_REMOVE, .queue = MR_SLICE_LIT("r")};
    assert_int_equal(mr_broker_call(*state, &req.req), MR_OK);
    mr_req_done(&req.req);
    assert_whole();
}

/* The table that says which queues are partitions of which is one key. */
static void the_row_of_a_queue_with_partitions_is_written_again(void **state)
{
    static const char table[] = "asynq:mr:parts";
    struct mr_req_queue_set req = {.req.op = MR_OP_QUEUE_SET,
                                   .queue = MR_SLICE_LIT("default"),
                                   .setting = MR_QUEUE_PARTITIONS,
                                   .value = 4};
    assert_int_equal(mr_broker_call(*state, &req.req), MR_OK);
    mr_req_done(&req.req);
    assert_whole();
    RIG(server_of(table), "DEL", table);
    assert_found_and_mended("queue default: its partitions: not in the table", "written again");
    assert_string_equal(RIG(server_of(table), "HGETALL", table), "default\n4 4 0");
    RIG(server_of(table), "HSET", table, "default", "1 2 1"); /* an old one came back */
    assert_found_and_mended("queue default: its partitions: not in the table", "written again");
    assert_string_equal(RIG(server_of(table), "HGETALL", table), "default\n1 4 1");
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    static const struct CMUnitTest tests[] = {
        CASE(an_inner_queue_stays_out_of_sight),
        CASE(an_id_without_its_task_leaves_every_place),
        CASE(a_task_in_no_place_is_pending_again),
        CASE(a_full_redis_is_mended_as_well),
        CASE(tasks_that_end_while_it_looks_are_no_damage),
        CASE(what_the_user_may_not_do_is_told),
        CASE(an_ended_task_in_no_place_does_not_run_again),
        CASE(a_held_task_in_no_place_is_held_again),
        CASE(a_run_without_a_lease_is_pending_again),
        CASE(a_lease_without_a_run_is_taken_away),
        CASE(a_task_in_two_places_stays_where_its_state_says),
        CASE(a_state_that_is_not_that_of_the_place_is_set),
        CASE(a_task_of_another_state_among_the_runs_without_a_lease_is_pending_again),
        CASE(a_run_of_another_state_stays_one),
        CASE(stale_locks_are_free_again),
        CASE(stale_entries_of_ours_go),
        CASE(a_ready_task_without_an_order_gets_one),
        CASE(a_hash_without_a_message_goes),
        CASE(a_message_that_makes_no_sense_is_told_and_left),
        CASE(a_group_that_was_forgotten_is_known_again),
        CASE(a_queue_that_was_forgotten_is_known_again),
        CASE(the_row_of_a_queue_with_partitions_is_written_again),
        CASE(results_are_looked_at_like_tasks),
        CASE(what_leads_to_results_is_found_again),
        CASE(results_of_a_removed_queue_are_no_damage),
        CASE(long_places_are_mended_to_the_end),
        CASE(keys_of_another_type_are_found_and_the_rest_is_checked),
        CASE(keys_of_all_queues_of_another_type_are_found),
        CASE(keys_of_others_are_no_business_of_ours),
    };
    rig = is_cluster() ? redis_rig_cluster(NULL) : redis_rig_standalone(NULL);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    redis_rig_stop(rig);
    return failed;
}
