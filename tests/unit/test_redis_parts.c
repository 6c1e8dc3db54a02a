/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Partitions as Redis has them: the queues that Asynq's programs see, where a Cluster holds them, and who of
 * several programs takes from which. What every engine with partitions does is the conformance suite's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/chan.h"
#include "base/clock.h"
#include "broker/redis/redis.h"
#include "redis/slot.h"
#include "support/redis_rig.h"

enum { N = 4, WAIT_MS = 20000, LEASE_MS = 60000 };

static struct redis_rig *rig, *cluster;

static struct redis_rig_server *server(void)
{
    return redis_rig_server(rig, 0);
}

static struct mr_broker *open_broker(struct redis_rig *at)
{
    struct mr_broker *broker;
    struct mr_redis_broker_options options = {.url = redis_rig_url(at)};
    assert_int_equal(mr_redis_broker_open(&options, &broker, NULL), MR_OK);
    return broker;
}

static enum mr_err set_parts(struct mr_broker *broker, const char *queue, uint64_t n)
{
    struct mr_req_queue_set req = {.req.op = MR_OP_QUEUE_SET,
                                   .queue = mr_slice_str(queue),
                                   .setting = MR_QUEUE_PARTITIONS,
                                   .value = n};
    enum mr_err err = mr_broker_call(broker, &req.req);
    mr_req_done(&req.req);
    return err;
}

static void split(struct mr_broker *broker, uint64_t n)
{
    assert_int_equal(set_parts(broker, "q", n), MR_OK);
}

static void remove_all(struct mr_broker *broker)
{
    struct mr_req_queue_remove req = {
        .req.op = MR_OP_QUEUE_REMOVE, .queue = MR_SLICE_LIT("q"), .mode = MR_QUEUE_REMOVE_FORCE};
    assert_int_equal(mr_broker_call(broker, &req.req), MR_OK);
    mr_req_done(&req.req);
}

static void put(struct mr_broker *broker, struct mr_task_options task)
{
    struct mr_enqueue_result result;
    task.queue = MR_SLICE_LIT("q");
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = &task, .n = 1, .results = &result};
    assert_int_equal(mr_broker_call(broker, &req.req), MR_OK);
    assert_int_equal(result.err, MR_OK);
    mr_req_done(&req.req);
}

static void stop(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    (void)epoch, (void)reason, (void)arg;
}

static uint64_t open_node(struct mr_broker *broker, const char *name)
{
    static const struct mr_worker_queue queue = {.name = {.data = "q", .len = 1}};
    struct mr_req_node_open req = {.req.op = MR_OP_NODE_OPEN,
                                   .name = mr_slice_str(name),
                                   .queues = &queue,
                                   .queues_n = 1,
                                   .slots = 4,
                                   .lease_ms = LEASE_MS,
                                   .events = {.stop = stop}};
    assert_int_equal(mr_broker_call(broker, &req.req), MR_OK);
    mr_req_done(&req.req);
    return req.node;
}

/* Takes one, ends it, and answers its partition; 0: there was none. */
static uint32_t work_one(struct mr_broker *broker, uint64_t node)
{
    struct mr_req_take take = {.req.op = MR_OP_TAKE, .node = node, .max = 1, .wait_ms = WAIT_MS};
    assert_int_equal(mr_broker_call(broker, &take.req), MR_OK);
    struct mr_lease *lease = take.leases;
    assert_int_equal(mr_broker_lease_open(broker, lease), MR_OK);
    uint32_t partition = lease->task.partition;
    struct mr_finish item = {.id = lease->task.id, .epoch = lease->epoch, .ref = lease->ref};
    enum mr_err err;
    struct mr_req_finish finish = {.req.op = MR_OP_FINISH, .items = &item, .n = 1, .errs = &err};
    assert_int_equal(mr_broker_call(broker, &finish.req), MR_OK);
    assert_int_equal(err, MR_OK);
    mr_req_done(&finish.req);
    mr_req_done(&take.req);
    mr_lease_free(lease);
    return partition;
}

static void key_of(uint32_t partition, const char *rest, char key[64])
{
    if (partition == 1)
        (void)snprintf(key, 64, "asynq:{q}:%s", rest);
    else
        (void)snprintf(key, 64, "asynq:{q~%u}:%s", partition, rest);
}

/* ---- partitions come and go while somebody looks ---------------------------------------------- */

static void *split_all_the_time(void *arg)
{
    struct mr_broker *broker = open_broker(rig);
    for (unsigned i = 0; i < 300; i++)
        split(broker, i % 2 == 0 ? 2 : MR_PARTITIONS_MAX);
    mr_broker_close(broker);
    *(_Atomic bool *)arg = true;
    return NULL;
}

static void who_looks_while_partitions_come_and_go_sees_each_owned(void **state)
{
    (void)state;
    RIG(server(), "FLUSHALL");
    struct mr_broker *broker = open_broker(rig);
    _Atomic bool over = false;
    pthread_t thread;
    size_t looks = 0, numbers = 0;
    split(broker, MR_PARTITIONS_MAX);
    RIG(server(), "HSET", "asynq:mr:cluster", "version", "100", "a:q",
        "100 5\n8 ffffffffffffffff one\n");
    assert_int_equal(mr_thread_start(&thread, "split", split_all_the_time, &over), MR_OK);
    for (uint32_t last = 0; !over; looks++) {
        struct mr_req_node_list req = {.req.op = MR_OP_NODE_LIST};
        assert_int_equal(mr_broker_call(broker, &req.req), MR_OK);
        assert_int_equal(req.assignments_n, 1);
        const struct mr_assignment *now = &req.assignments[0];
        uint64_t all = UINT64_MAX >> (MR_PARTITIONS_MAX - now->partitions);
        assert_int_equal(now->owners_n, 1);
        assert_true((now->owners[0].owned & all) == all);
        numbers += now->partitions != last;
        last = now->partitions;
        mr_req_done(&req.req);
    }
    mr_thread_join(thread);
    print_message("%zu looks, %zu numbers\n", looks, numbers);
    assert_true(numbers > 2);
    mr_broker_close(broker);
}

/* Another client has given owners to partitions that come, and not written yet that there are more. */
static void a_leader_that_knows_of_less_partitions_takes_none_away(void **state)
{
    (void)state;
    RIG(server(), "FLUSHALL");
    struct mr_broker *broker = open_broker(rig);
    split(broker, N);
    RIG(server(), "HSET", "asynq:mr:cluster", "leader", "7", "until", "9000000000000", "term", "5",
        "version", "100", "a:q", "100 5\n8 fe other\n7 1 own\n");
    struct mr_owner owners[] = {
        {.node = MR_SLICE_LIT("own"), .incarnation = 7, .owned = 3},
        {.node = MR_SLICE_LIT("other"), .incarnation = 8, .owned = 12},
    };
    struct mr_req_assign req = {.req.op = MR_OP_ASSIGN,
                                .term = 5,
                                .queue = MR_SLICE_LIT("q"),
                                .version = 100,
                                .owners = owners,
                                .owners_n = 2};
    assert_int_equal(mr_broker_call(broker, &req.req), MR_OK);
    mr_req_done(&req.req);
    const char *text = RIG(server(), "HGET", "asynq:mr:cluster", "a:q");
    assert_non_null(strstr(text, " 5\n7 f3 own\n8 c other\n"));
    mr_broker_close(broker);
}

/* ---- what is there -------------------------------------------------------------------------- */

static void each_partition_is_a_queue_of_asynq(void **state)
{
    (void)state;
    RIG(server(), "FLUSHALL");
    struct mr_broker *broker = open_broker(rig);
    split(broker, N);
    assert_string_equal(RIG(server(), "HGETALL", "asynq:mr:parts"), "q\n4 4 0");
    for (uint32_t i = 1; i <= N; i++) {
        char id[16], key[64];
        (void)snprintf(id, sizeof id, "id%u", i);
        put(broker, (struct mr_task_options){.id = mr_slice_str(id), .partition = i});
        key_of(i, "pending", key);
        assert_string_equal(RIG(server(), "LRANGE", key, "0", "-1"), id);
    }
    assert_int_equal(RIG_INT(server(), "SCARD", "asynq:queues"), N);
    /* The message says the same: a Go worker ends the task under that name. */
    assert_non_null(strstr(RIG(server(), "HGET", "asynq:{q~3}:t:id3", "msg"), "q~3"));
    split(broker, 2);
    assert_string_equal(RIG(server(), "HGETALL", "asynq:mr:parts"), "q\n2 4 0");
    assert_string_equal(RIG(server(), "GET", "asynq:{q~3}:mr:part"), "2 4 0 q");
    remove_all(broker);
    assert_string_equal(RIG(server(), "KEYS", "asynq:{*"), "");
    assert_int_equal(RIG_INT(server(), "EXISTS", "asynq:queues"), 0);
    assert_string_equal(RIG(server(), "HGETALL", "asynq:mr:parts"), "q\n1 4 0");
    mr_broker_close(broker);
}

static void a_partition_keeps_settings_of_its_own_when_there_are_more(void **state)
{
    (void)state;
    RIG(server(), "FLUSHALL");
    struct mr_broker *broker = open_broker(rig);
    split(broker, 3);
    RIG(server(), "SET", "asynq:{q~2}:paused", "1");
    RIG(server(), "SET", "asynq:{q~2}:mr:max", "7");
    RIG(server(), "SET", "asynq:{q}:mr:max", "9");
    split(broker, 4);
    assert_string_equal(RIG(server(), "GET", "asynq:{q~2}:mr:max"), "7");
    assert_int_equal(RIG_INT(server(), "EXISTS", "asynq:{q~2}:paused"), 1);
    assert_string_equal(RIG(server(), "GET", "asynq:{q~4}:mr:max"), "9"); /* as the first has it */
    mr_broker_close(broker);
}

/* A producer that has not heard of it yet puts tasks where partitions were. */
static void what_comes_into_partitions_after_their_removal_is_worked_off(void **state)
{
    (void)state;
    RIG(server(), "FLUSHALL");
    struct mr_broker *producer = open_broker(rig), *broker = open_broker(rig);
    split(broker, N);
    put(producer, (struct mr_task_options){0});
    remove_all(broker);
    for (uint32_t i = 1; i <= N; i++) /* the producer still has N */
        put(producer, (struct mr_task_options){.partition = i});
    struct mr_broker *worker = open_broker(rig);
    uint64_t node = open_node(worker, "node");
    uint32_t seen = 0;
    for (int i = 0; i < N; i++)
        seen |= 1u << work_one(worker, node);
    assert_int_equal(seen, 0x1e);
    mr_broker_close(worker);
    mr_broker_close(broker);
    mr_broker_close(producer);
}

/* Whoever knows the queue looks into all of it: the name of a partition alone may be missing for a while. */
static void a_task_is_found_in_a_partition_whose_name_is_missing(void **state)
{
    (void)state;
    RIG(server(), "FLUSHALL");
    struct mr_broker *broker = open_broker(rig);
    split(broker, N);
    put(broker, (struct mr_task_options){.id = MR_SLICE_LIT("x"), .partition = 3});
    RIG(server(), "SREM", "asynq:queues", "q~3");
    struct mr_req_get req = {.req.op = MR_OP_GET, .id = MR_SLICE_LIT("x")};
    assert_int_equal(mr_broker_call(broker, &req.req), MR_OK);
    assert_int_equal(req.task.partition, 3);
    mr_req_done(&req.req);
    mr_broker_close(broker);
}

/* A partition has none itself, whichever of the two was first. */
static void a_partition_has_no_partitions(void **state)
{
    (void)state;
    RIG(server(), "FLUSHALL");
    struct mr_broker *broker = open_broker(rig), *other = open_broker(rig);
    assert_int_equal(set_parts(broker, "x~3", 2), MR_OK);
    assert_int_equal(set_parts(other, "x", 2), MR_OK);
    assert_int_equal(set_parts(other, "x", 3), MR_WRONG_STATE);
    assert_int_equal(set_parts(broker, "x~2", 2), MR_INVALID);
    assert_int_equal(set_parts(broker, "x~2", 1), MR_INVALID);
    assert_string_equal(RIG(server(), "HGET", "asynq:mr:parts", "x"), "2 2 0");
    assert_int_equal(RIG_INT(server(), "HEXISTS", "asynq:mr:parts", "x~2"), 0);
    char name[MR_NAME_MAX];
    memset(name, 'n', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    assert_int_equal(set_parts(broker, name, 2), MR_TOO_BIG);
    mr_broker_close(other);
    mr_broker_close(broker);
}

/* Rows that no version of ours writes: nothing of it is out of sight, whichever row comes first. */
static void rows_of_partitions_do_not_count(void **state)
{
    static const char *const rows[][4] = {{"x", "2 2 0", "x~2", "2 2 0"},
                                          {"x~2", "2 2 0", "x", "2 2 0"}};
    (void)state;
    for (size_t i = 0; i < 2; i++) {
        RIG(server(), "FLUSHALL");
        RIG(server(), "HSET", "asynq:mr:parts", rows[i][0], rows[i][1], rows[i][2], rows[i][3]);
        RIG(server(), "SADD", "asynq:queues", "x", "x~2", "x~2~2");
        struct mr_broker *broker = open_broker(rig);
        struct mr_queue_info infos[4];
        struct mr_req_queue_list req = {.req.op = MR_OP_QUEUE_LIST, .infos = infos, .max = 4};
        assert_int_equal(mr_broker_call(broker, &req.req), MR_OK);
        assert_int_equal(req.n, 2);
        assert_string_equal(infos[0].name, "x");
        assert_int_equal(infos[0].partitions, 2);
        assert_string_equal(infos[1].name, "x~2~2");
        mr_req_done(&req.req);
        mr_broker_close(broker);
    }
}

static void a_table_that_makes_no_sense_does_no_harm(void **state)
{
    (void)state;
    RIG(server(), "FLUSHALL");
    RIG(server(), "HSET", "asynq:mr:parts", "q", "0 0 0", "a", "many", "b", "9 2 0", "c", "2 999 0",
        "d", "2 2 7", "e{", "2 2 0", "f", "", "g", "2 2 0", "g~2", "2 2 0");
    struct mr_broker *broker = open_broker(rig);
    put(broker, (struct mr_task_options){.id = MR_SLICE_LIT("x")});
    assert_string_equal(RIG(server(), "LRANGE", "asynq:{q}:pending", "0", "-1"), "x");
    struct mr_req_get req = {.req.op = MR_OP_GET, .id = MR_SLICE_LIT("x")};
    assert_int_equal(mr_broker_call(broker, &req.req), MR_OK);
    assert_int_equal(req.task.partition, 1);
    mr_req_done(&req.req);
    mr_broker_close(broker);
}

static void a_cluster_holds_one_queue_in_several_nodes(void **state)
{
    (void)state;
    RIG_ALL(cluster, "FLUSHALL");
    struct mr_broker *broker = open_broker(cluster);
    enum { PARTS = 8 };
    split(broker, PARTS);
    for (int i = 0; i < 10 * PARTS; i++)
        put(broker, (struct mr_task_options){0});
    struct redis_rig_server *seen[PARTS];
    size_t servers = 0;
    for (uint32_t i = 1; i <= PARTS; i++) {
        char key[64];
        key_of(i, "pending", key);
        struct redis_rig_server *owner = redis_rig_owner(cluster, redis_slot(mr_slice_str(key)));
        assert_int_equal(RIG_INT(owner, "LLEN", key), 10);
        bool known = false;
        for (size_t k = 0; k < servers; k++)
            known |= seen[k] == owner;
        if (!known)
            seen[servers++] = owner;
    }
    assert_true(servers >= 2);
    uint64_t node = open_node(broker, "node");
    for (int i = 0; i < 10 * PARTS; i++)
        (void)work_one(broker, node);
    mr_broker_close(broker);
}

/* ---- whose they are ------------------------------------------------------------------------- */

static void put_everywhere(struct mr_broker *broker)
{
    for (uint32_t i = 1; i <= N; i++)
        put(broker, (struct mr_task_options){.partition = i});
}

static void put_many(struct mr_broker *broker, int n)
{
    for (int i = 0; i < n; i++)
        put_everywhere(broker);
}

/* Who took how often from which partition. */
struct shares {
    int of_a[N + 1], of_b[N + 1];
};

/* Each of two nodes takes less than there is in any two partitions. What is left then goes, too. */
static struct shares work_by_both(struct mr_broker *one, uint64_t a, struct mr_broker *two,
                                  uint64_t b)
{
    enum { EACH = 8, TAKES = 12 };
    struct shares shares = {0};
    put_many(one, EACH);
    for (int i = 0; i < TAKES; i++) {
        shares.of_a[work_one(one, a)]++;
        shares.of_b[work_one(two, b)]++;
    }
    for (int i = 0; i < N * EACH - 2 * TAKES; i++)
        (void)work_one(one, a);
    return shares;
}

/* Each partition is preferred by one of the two, and each of them prefers two. */
static bool is_even(const struct shares *shares)
{
    enum { OWN = 4 }; /* at least, of 12 takes; of another's at most 2 */
    int a = 0, b = 0;
    for (int i = 1; i <= N; i++) {
        a += shares->of_a[i] >= OWN && shares->of_b[i] < OWN;
        b += shares->of_b[i] >= OWN && shares->of_a[i] < OWN;
    }
    return a == 2 && b == 2;
}

/* The first has had all of them for itself; still both know the same of who prefers what. Where the own have
 * nothing they take the other's, and also now and then while there is enough: the other may be busy. */
static void programs_that_came_one_after_the_other_share_all_partitions(void **state)
{
    (void)state;
    RIG(server(), "FLUSHALL");
    struct mr_broker *one = open_broker(rig);
    uint64_t a = open_node(one, "a");
    split(one, N);
    put_many(one, 1);
    for (int i = 0; i < N; i++)
        (void)work_one(one, a);
    struct mr_broker *two = open_broker(rig);
    uint64_t b = open_node(two, "b");
    int64_t end_ms = mr_wall_ms(mr_wall_now(mr_clock_system())) + WAIT_MS;
    for (int even = 0; even < 2;) {
        struct shares shares = work_by_both(one, a, two, b);
        even = is_even(&shares) ? even + 1 : 0;
        assert_true(mr_wall_ms(mr_wall_now(mr_clock_system())) < end_ms);
    }
    put_everywhere(one);
    for (int i = 0; i < N; i++)
        (void)work_one(two, b);
    enum { BACKLOG = 20, SOME = 36 };
    int seen[N + 1] = {0};
    put_many(one, BACKLOG);
    for (int i = 0; i < SOME; i++)
        seen[work_one(two, b)]++;
    for (int i = 1; i <= N; i++)
        assert_true(seen[i] > 0);
    mr_broker_close(two);
    mr_broker_close(one);
}

/* A program hears of new partitions while it waits. */
static void another_program_sees_new_partitions_at_once(void **state)
{
    (void)state;
    RIG(server(), "FLUSHALL");
    struct mr_broker *one = open_broker(rig), *two = open_broker(rig);
    uint64_t node = open_node(one, "a");
    split(two, N);
    put_everywhere(two);
    for (int i = 0; i < N; i++)
        (void)work_one(one, node);
    mr_broker_close(two);
    mr_broker_close(one);
}

/* ---- many of them ---------------------------------------------------------------------------- */

static int64_t connections(void)
{
    const char *at = strstr(RIG(server(), "INFO", "clients"), "connected_clients:");
    assert_non_null(at);
    return atoll(at + strlen("connected_clients:"));
}

static void a_worker_of_many_partitions_needs_few_connections_and_misses_nothing(void **state)
{
    enum { QUEUES = 3, PARTS = MR_PARTITIONS_MAX, MOST = QUEUES + 64 + 16 };
    static const char *const names[QUEUES] = {"q", "r", "s"};
    struct mr_worker_queue queues[QUEUES];
    struct mr_broker *broker = open_broker(rig);
    (void)state;
    for (size_t i = 0; i < QUEUES; i++) {
        queues[i] = (struct mr_worker_queue){.name = mr_slice_str(names[i])};
        assert_int_equal(set_parts(broker, names[i], PARTS), MR_OK);
    }
    struct mr_req_node_open open = {.req.op = MR_OP_NODE_OPEN,
                                    .name = MR_SLICE_LIT("many"),
                                    .queues = queues,
                                    .queues_n = QUEUES,
                                    .slots = 4,
                                    .lease_ms = LEASE_MS,
                                    .events = {.stop = stop}};
    assert_int_equal(mr_broker_call(broker, &open.req), MR_OK);
    mr_req_done(&open.req);
    for (size_t i = 0; i <= QUEUES; i++) {
        struct mr_enqueue_result result;
        struct mr_task_options task = {.queue = queues[i % QUEUES].name, .partition = PARTS};
        struct mr_req_enqueue put = {
            .req.op = MR_OP_ENQUEUE, .tasks = &task, .n = 1, .results = &result};
        struct mr_req_take take = {
            .req.op = MR_OP_TAKE, .node = open.node, .max = 1, .wait_ms = i == 0 ? 1500 : WAIT_MS};
        if (i > 0)
            assert_int_equal(mr_broker_call(broker, &put.req), MR_OK);
        assert_int_equal(mr_broker_call(broker, &take.req), i == 0 ? MR_EMPTY : MR_OK);
        assert_in_range(connections(), 64, MOST);
        if (i > 0)
            mr_lease_free(take.leases);
        mr_req_done(&put.req);
        mr_req_done(&take.req);
    }
    mr_broker_close(broker);
    RIG(server(), "FLUSHALL");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(who_looks_while_partitions_come_and_go_sees_each_owned),
        cmocka_unit_test(a_leader_that_knows_of_less_partitions_takes_none_away),
        cmocka_unit_test(each_partition_is_a_queue_of_asynq),
        cmocka_unit_test(a_partition_keeps_settings_of_its_own_when_there_are_more),
        cmocka_unit_test(what_comes_into_partitions_after_their_removal_is_worked_off),
        cmocka_unit_test(a_task_is_found_in_a_partition_whose_name_is_missing),
        cmocka_unit_test(a_partition_has_no_partitions),
        cmocka_unit_test(rows_of_partitions_do_not_count),
        cmocka_unit_test(a_table_that_makes_no_sense_does_no_harm),
        cmocka_unit_test(a_cluster_holds_one_queue_in_several_nodes),
        cmocka_unit_test(programs_that_came_one_after_the_other_share_all_partitions),
        cmocka_unit_test(another_program_sees_new_partitions_at_once),
        cmocka_unit_test(a_worker_of_many_partitions_needs_few_connections_and_misses_nothing),
    };
    rig = redis_rig_standalone(NULL);
    cluster = redis_rig_cluster(NULL);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    redis_rig_stop(cluster);
    redis_rig_stop(rig);
    return failed;
}
