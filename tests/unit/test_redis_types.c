/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of a queue that somebody made another type by hand: what was to be done stays as it was. */
#include "broker/redis/redis.h"
#include "support/redis_rig.h"
#include "unit/broker_user.h"
#include "unit/redis_one.h"

#define Q "asynq:{default}:"

static uint64_t open_node(struct mr_broker *broker, int64_t lease_ms)
{
    struct mr_worker_queue queue = {.name = MR_SLICE_LIT("default")};
    struct mr_req_node_open node = {.req.op = MR_OP_NODE_OPEN,
                                    .name = MR_SLICE_LIT("n"),
                                    .queues = &queue,
                                    .queues_n = 1,
                                    .slots = 8,
                                    .lease_ms = lease_ms,
                                    .events = {.stop = ignore_stop}};
    assert_int_equal(mr_broker_call(broker, &node.req), MR_OK);
    mr_req_done(&node.req);
    return node.node;
}

/* Opens a node and takes once; answers the error of that. */
static enum mr_err take_soon(struct mr_broker *broker)
{
    struct mr_req_take take = {
        .req.op = MR_OP_TAKE, .node = open_node(broker, 600000), .max = 8, .wait_ms = 50};
    enum mr_err err = mr_broker_call(broker, &take.req);
    mr_req_done(&take.req);
    return err;
}

/* What its nodes hold goes back. */
static void open_again(void **state)
{
    struct mr_redis_broker_options options = {.url = redis_rig_url(rig)};
    struct mr_broker *broker;
    (void)teardown(state);
    assert_int_equal(mr_redis_broker_open(&options, &broker, NULL), MR_OK);
    *state = broker;
}

static void put_some(struct mr_broker *broker)
{
    put(broker, (struct mr_task_options){.id = MR_SLICE_LIT("plain")});
    put(broker, (struct mr_task_options){.id = MR_SLICE_LIT("due"), .delay_ms = 1});
    put(broker, (struct mr_task_options){.id = MR_SLICE_LIT("later"), .delay_ms = 3600000});
}

/* Everything is in its place, and nothing else is. */
static void assert_untouched(void)
{
    assert_string_equal(RIG(server(), "LRANGE", Q "pending", "0", "-1"), "plain");
    assert_string_equal(RIG(server(), "HGET", Q "t:plain", "state"), "pending");
    assert_string_equal(RIG(server(), "ZRANGE", Q "scheduled", "0", "-1"), "due\nlater");
    assert_string_equal(RIG(server(), "HGET", Q "t:due", "state"), "scheduled");
}

static void a_take_that_meets_a_key_of_another_type_takes_nothing(void **state)
{
    static const char *const keys[] = {Q "lease", Q "active", Q "mr:epoch", Q "mr:order"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        put_some(*state);
        RIG(server(), "HSET", keys[i], "of", "another type");
        assert_int_not_equal(take_soon(*state), MR_OK);
        assert_untouched();
        RIG(server(), "DEL", keys[i]);
        open_again(state); /* another one, which does not wait until it tries again */
        struct mr_lease *lease = take_one(*state);
        assert_true(mr_slice_equal(lease->task.id, MR_SLICE_LIT("plain")));
        mr_lease_free(lease);
        RIG_ALL(rig, "FLUSHALL");
    }
}

/* What was refused must not be found later as a task that lost its place, and run. */
static void an_enqueue_that_meets_a_key_of_another_type_leaves_nothing(void **state)
{
    static const struct {
        const char *key;
        struct mr_task_options task;
    } cases[] = {
        {Q "pending", {.id = MR_SLICE_LIT("new")}},
        {Q "scheduled", {.id = MR_SLICE_LIT("new"), .delay_ms = 3600000}},
        {Q "mr:due", {.id = MR_SLICE_LIT("new"), .delay_ms = 3600000}},
        {Q "mr:order", {.id = MR_SLICE_LIT("new"), .priority_s = 5}},
        {Q "mr:open", {.id = MR_SLICE_LIT("new"), .topic = MR_SLICE_LIT("t")}},
        {Q "g:g", {.id = MR_SLICE_LIT("new"), .group = MR_SLICE_LIT("g")}},
        {Q "groups", {.id = MR_SLICE_LIT("new"), .group = MR_SLICE_LIT("g")}},
        {Q "mr:newest", {.id = MR_SLICE_LIT("new"), .group = MR_SLICE_LIT("g")}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        RIG(server(), "HSET", cases[i].key, "of", "another type");
        struct mr_enqueue_result result;
        struct mr_req_enqueue req = {
            .req.op = MR_OP_ENQUEUE, .tasks = &cases[i].task, .n = 1, .results = &result};
        enum mr_err err = mr_broker_call(*state, &req.req);
        mr_req_done(&req.req);
        assert_true(err != MR_OK || result.err != MR_OK);
        assert_int_equal(RIG_INT(server(), "EXISTS", Q "t:new"), 0);
        RIG_ALL(rig, "FLUSHALL");
    }
}

static void of_a_batch_that_meets_a_lock_of_another_type_nothing_is_left(void **state)
{
    const struct mr_task_options tasks[] = {
        {.id = MR_SLICE_LIT("first"), .priority_s = 5},
        {.id = MR_SLICE_LIT("second"), .unique_ms = 60000, .unique_key = MR_SLICE_LIT("k")},
    };
    struct mr_enqueue_result results[2];
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = tasks, .n = 2, .results = results};
    RIG(server(), "HSET", Q "mr:u:k", "of", "another type");
    assert_int_equal(mr_broker_call(*state, &req.req), MR_FAILED);
    mr_req_done(&req.req);
    assert_int_equal(RIG_INT(server(), "EXISTS", Q "t:first", Q "t:second"), 0);
}

/* ---- the key of a task ----------------------------------------------------------------------- */

/* Takes so many, which are all there are; their ids, in their order. */
static const char *take_ids(struct mr_broker *broker, int64_t lease_ms, size_t n)
{
    static char ids[256];
    uint64_t node = open_node(broker, lease_ms);
    for (size_t len = 0; n > 0;) {
        struct mr_req_take take = {.req.op = MR_OP_TAKE, .node = node, .max = 8, .wait_ms = 10000};
        assert_int_equal(mr_broker_call(broker, &take.req), MR_OK);
        mr_req_done(&take.req);
        for (struct mr_lease *lease = take.leases, *next; lease != NULL; lease = next, n--) {
            next = lease->next;
            assert_int_equal(mr_broker_lease_open(broker, lease), MR_OK);
            len += (size_t)snprintf(ids + len, sizeof ids - len, "%.*s ", (int)lease->task.id.len,
                                    (const char *)lease->task.id.data);
            mr_lease_free(lease);
        }
    }
    return ids;
}

static void make_another_type(const char *key)
{
    RIG(server(), "DEL", key);
    RIG(server(), "SET", key, "of another type");
}

/* Those that are taken with it are neither lost nor kept back. */
static void a_task_whose_key_is_of_another_type_is_none(void **state)
{
    static const struct mr_task_options hows[] = {
        {.delay_ms = 0}, {.delay_ms = 1}, {.priority_s = 5}, {.topic = MR_SLICE_LIT("t")}};
    for (size_t i = 0; i < sizeof hows / sizeof *hows; i++) {
        struct mr_task_options task = hows[i];
        static const char *const ids[] = {"a", "b", "c"};
        for (size_t k = 0; k < sizeof ids / sizeof *ids; k++) {
            task.id = mr_slice_str(ids[k]);
            put(*state, task);
        }
        make_another_type(Q "t:b");
        assert_string_equal(take_ids(*state, 600000, 2), "a c ");
        assert_string_equal(RIG(server(), "LRANGE", Q "active", "0", "-1"), "c\na");
        assert_int_equal(RIG_INT(server(), "EXISTS", Q "pending", Q "scheduled"), 0);
        (void)teardown(state);
        (void)setup(state);
    }
}

static void a_task_with_a_time_that_is_no_number_is_as_one_without(void **state)
{
    static const char *const times[] = {"x", "", "1.5e18"};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
        struct mr_queue_info infos[4];
        struct mr_req_queue_list list = {.req.op = MR_OP_QUEUE_LIST, .infos = infos, .max = 4};
        put(*state, (struct mr_task_options){.id = MR_SLICE_LIT("a")});
        put(*state, (struct mr_task_options){.id = MR_SLICE_LIT("b"), .priority_s = 1});
        RIG(server(), "HSET", Q "t:a", "pending_since", times[i]);
        assert_int_equal(mr_broker_call(*state, &list.req), MR_OK);
        mr_req_done(&list.req);
        assert_string_equal(take_ids(*state, 600000, 2), "a b ");
        open_again(state);
        assert_string_equal(take_ids(*state, 600000, 2), "a b ");
        RIG_ALL(rig, "FLUSHALL");
    }
}

static void an_id_whose_key_is_of_another_type_is_taken(void **state)
{
    const struct mr_task_options tasks[] = {{.id = MR_SLICE_LIT("first")},
                                            {.id = MR_SLICE_LIT("second")},
                                            {.id = MR_SLICE_LIT("third")}};
    struct mr_enqueue_result results[3];
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = tasks, .n = 3, .results = results};
    RIG(server(), "SET", Q "t:second", "of another type");
    assert_int_equal(mr_broker_call(*state, &req.req), MR_OK);
    assert_int_equal(results[0].err, MR_OK);
    assert_int_equal(results[1].err, MR_CONFLICT);
    assert_int_equal(results[2].err, MR_OK);
    mr_req_done(&req.req);
    assert_string_equal(RIG(server(), "LRANGE", Q "pending", "0", "-1"), "third\nfirst");
}

/* The others of its worker come back all the same. */
static void a_lost_run_whose_key_is_of_another_type_is_forgotten(void **state)
{
    struct mr_broker *gone;
    struct mr_redis_broker_options options = {.url = redis_rig_url(rig)};
    assert_int_equal(mr_redis_broker_open(&options, &gone, NULL), MR_OK);
    put(gone, (struct mr_task_options){.id = MR_SLICE_LIT("a")});
    put(gone, (struct mr_task_options){.id = MR_SLICE_LIT("b")});
    assert_string_equal(take_ids(gone, 1000, 2), "a b ");
    make_another_type(Q "t:a");
    mr_broker_close(gone);
    struct mr_lease *lease = take_one(*state);
    assert_true(mr_slice_equal(lease->task.id, MR_SLICE_LIT("b")));
    mr_lease_free(lease);
    while (strcmp(RIG(server(), "LRANGE", Q "active", "0", "-1"), "b") != 0)
        ;
}

/* ---- ends of runs ---------------------------------------------------------------------------- */

static void set_event(struct mr_req *req)
{
    mr_event_set(req->arg);
}

static void wait_for_refusal(void)
{
    while (strstr(RIG(server(), "INFO", "errorstats"), "WRONGTYPE") == NULL)
        ;
}

/* Takes what put_ends has put, and hands back one of them while the other one fails. */
struct ends {
    struct mr_req_take take;
    struct mr_finish items[2];
    enum mr_err errs[2];
    struct mr_req_finish req;
    struct mr_event done;
};

static void put_ends(struct mr_broker *broker)
{
    put(broker, (struct mr_task_options){.id = MR_SLICE_LIT("back")});
    put(broker, (struct mr_task_options){.id = MR_SLICE_LIT("fails"), .topic = MR_SLICE_LIT("t")});
}

static void take_ends(struct mr_broker *broker, struct ends *ends)
{
    ends->take = (struct mr_req_take){
        .req.op = MR_OP_TAKE, .node = open_node(broker, 600000), .max = 2, .wait_ms = 10000};
    assert_int_equal(mr_broker_call(broker, &ends->take.req), MR_OK);
    mr_req_done(&ends->take.req);
    struct mr_lease *back = ends->take.leases, *fails = back->next;
    assert_non_null(fails);
    ends->items[0] = (struct mr_finish){.id = MR_SLICE_LIT("back"),
                                        .epoch = back->epoch,
                                        .ref = back->ref,
                                        .outcome = MR_HAND_BACK};
    ends->items[1] = (struct mr_finish){.id = MR_SLICE_LIT("fails"),
                                        .epoch = fails->epoch,
                                        .ref = fails->ref,
                                        .outcome = MR_FAIL,
                                        .delay_ms = 3600000};
}

static void send_ends(struct mr_broker *broker, struct ends *ends)
{
    mr_event_init(&ends->done);
    ends->req =
        (struct mr_req_finish){.req = {.op = MR_OP_FINISH, .done = set_event, .arg = &ends->done},
                               .items = ends->items,
                               .n = 2,
                               .errs = ends->errs};
    mr_broker_submit(broker, &ends->req.req);
}

static void ends_over(struct ends *ends)
{
    assert_true(mr_event_wait(&ends->done, 30 * MR_NS_PER_S));
    mr_req_done(&ends->req.req);
    while (ends->take.leases != NULL) {
        struct mr_lease *next = ends->take.leases->next;
        mr_lease_free(ends->take.leases);
        ends->take.leases = next;
    }
}

/* Both run on, until somebody mends the key; then both ends are carried out. */
static void an_end_that_meets_a_key_of_another_type_is_kept(void **state)
{
    static const char *const keys[] = {Q "retry", Q "mr:due", Q "mr:r:[t]:pending"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        struct ends ends = {0};
        put_ends(*state);
        take_ends(*state, &ends);
        RIG(server(), "SET", keys[i], "of another type");
        RIG(server(), "CONFIG", "RESETSTAT");
        send_ends(*state, &ends);
        wait_for_refusal();
        assert_int_equal(RIG_INT(server(), "LLEN", Q "active"), 2);
        assert_int_equal(RIG_INT(server(), "ZCARD", Q "lease"), 2);
        assert_string_equal(RIG(server(), "HGET", Q "t:back", "state"), "active");
        assert_int_equal(RIG_INT(server(), "HEXISTS", Q "t:fails", "mr:i"), 1);
        RIG(server(), "DEL", keys[i]);
        ends_over(&ends);
        assert_int_equal(ends.errs[0], MR_OK);
        assert_int_equal(ends.errs[1], MR_OK);
        assert_string_equal(RIG(server(), "LRANGE", Q "pending", "0", "-1"), "back");
        assert_string_equal(RIG(server(), "ZRANGE", Q "retry", "0", "-1"), "fails");
        assert_int_equal(RIG_INT(server(), "EXISTS", Q "active", Q "lease"), 0);
        (void)teardown(state);
        (void)setup(state);
    }
}

/* Nobody knows where it would go: so it stays in the hand of the worker that is gone, until somebody mends the key. */
static void a_lost_run_that_meets_a_key_of_another_type_comes_back_later(void **state)
{
    struct mr_broker *gone;
    struct mr_redis_broker_options options = {.url = redis_rig_url(rig)};
    assert_int_equal(mr_redis_broker_open(&options, &gone, NULL), MR_OK);
    put(gone, (struct mr_task_options){.id = MR_SLICE_LIT("a")});
    struct mr_req_take take = {
        .req.op = MR_OP_TAKE, .node = open_node(gone, 1000), .max = 1, .wait_ms = 10000};
    assert_int_equal(mr_broker_call(gone, &take.req), MR_OK);
    mr_req_done(&take.req);
    mr_lease_free(take.leases);
    RIG(server(), "SET", Q "completed", "of another type");
    RIG(server(), "CONFIG", "RESETSTAT");
    mr_broker_close(gone);
    wait_for_refusal();
    assert_string_equal(RIG(server(), "LRANGE", Q "active", "0", "-1"), "a");
    RIG(server(), "DEL", Q "completed");
    mr_lease_free(take_one(*state));
}

/* ---- looking --------------------------------------------------------------------------------- */

static char said[512];

static void note_refused(enum mr_err err, const char *why, void *arg)
{
    (void)err;
    (void)arg;
    (void)snprintf(said, sizeof said, "%s", why);
}

static void a_list_of_queues_names_the_one_with_a_key_of_another_type(void **state)
{
    struct mr_redis_broker_options options = {.url = redis_rig_url(rig), .refused = note_refused};
    struct mr_broker *broker;
    put_some(*state);
    RIG(server(), "HSET", Q "retry", "of", "another type");
    assert_int_equal(mr_redis_broker_open(&options, &broker, NULL), MR_OK);
    struct mr_queue_info infos[4];
    struct mr_req_queue_list req = {.req.op = MR_OP_QUEUE_LIST, .infos = infos, .max = 4};
    assert_int_equal(mr_broker_call(broker, &req.req), MR_FAILED);
    mr_req_done(&req.req);
    mr_broker_close(broker);
    assert_non_null(strstr(said, "queue default: "));
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    static const struct CMUnitTest tests[] = {
        CASE(a_take_that_meets_a_key_of_another_type_takes_nothing),
        CASE(an_enqueue_that_meets_a_key_of_another_type_leaves_nothing),
        CASE(of_a_batch_that_meets_a_lock_of_another_type_nothing_is_left),
        CASE(a_task_whose_key_is_of_another_type_is_none),
        CASE(a_task_with_a_time_that_is_no_number_is_as_one_without),
        CASE(an_id_whose_key_is_of_another_type_is_taken),
        CASE(a_lost_run_whose_key_is_of_another_type_is_forgotten),
        CASE(an_end_that_meets_a_key_of_another_type_is_kept),
        CASE(a_lost_run_that_meets_a_key_of_another_type_comes_back_later),
        CASE(a_list_of_queues_names_the_one_with_a_key_of_another_type),
    };
    rig = redis_rig_standalone(NULL);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    redis_rig_stop(rig);
    return failed;
}
