/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looking and acting on a Redis that other programs use as well: what they leave behind is listed, counted
 * and told like our own. What every engine does is the conformance suite's.
 */
#include <stdio.h>
#include <stdlib.h>

#include "broker/redis/redis.h"
#include "support/redis_rig.h"
#include "unit/broker_user.h"
#include "unit/redis_one.h"

#define Q "asynq:{default}:"

/* ---- requests ------------------------------------------------------------------------------- */

static enum mr_err act(struct mr_broker *broker, enum mr_verb verb, const char *id)
{
    struct mr_control item = {.verb = verb, .id = mr_slice_str(id)};
    enum mr_err err;
    struct mr_req_control req = {.req.op = MR_OP_CONTROL, .items = &item, .n = 1, .errs = &err};
    assert_int_equal(mr_broker_call(broker, &req.req), MR_OK);
    mr_req_done(&req.req);
    return err;
}

/* "a b c": the ids of all pages of this size. */
static void assert_listed(struct mr_broker *broker, enum mr_state state, size_t limit,
                          const char *ids)
{
    char found[4096] = "", cursor[MR_CURSOR_MAX] = "";
    do {
        struct mr_req_list req = {.req.op = MR_OP_LIST,
                                  .options = {.state = state, .limit = limit, .cursor = cursor}};
        assert_int_equal(mr_broker_call(broker, &req.req), MR_OK);
        for (size_t i = 0; i < req.n; i++) {
            size_t used = strlen(found);
            assert_int_equal(req.tasks[i].state, state);
            (void)snprintf(found + used, sizeof found - used, "%s%.*s", used > 0 ? " " : "",
                           (int)req.tasks[i].id.len, (const char *)req.tasks[i].id.data);
        }
        (void)snprintf(cursor, sizeof cursor, "%s", req.next);
        mr_req_done(&req.req);
    } while (cursor[0] != '\0');
    assert_string_equal(found, ids);
}

static struct mr_queue_info info(struct mr_broker *broker)
{
    struct mr_queue_info info;
    struct mr_req_queue_list req = {
        .req.op = MR_OP_QUEUE_LIST, .only = MR_SLICE_LIT("default"), .infos = &info, .max = 1};
    assert_int_equal(mr_broker_call(broker, &req.req), MR_OK);
    mr_req_done(&req.req);
    return info;
}

/* As Asynq's "run" of a task leaves it: in the list, without a time. */
static void put_without_a_time(const char *id)
{
    char key[128], message[256];
    (void)snprintf(key, sizeof key, Q "t:%s", id);
    (void)snprintf(message, sizeof message,
                   "\n\x01t\x1a%c%s\"\x07"
                   "default",
                   (int)strlen(id), id);
    RIG(server(), "SADD", "asynq:queues", "default");
    RIG(server(), "HSET", key, "msg", message, "state", "pending");
    RIG(server(), "LPUSH", Q "pending", id);
}

/* ---- lists ---------------------------------------------------------------------------------- */

static void pending_tasks_without_a_time_are_listed_among_the_others(void **state)
{
    put(*state, (struct mr_task_options){.id = MR_SLICE_LIT("a")});
    put_without_a_time("b");
    put_without_a_time("c");
    put(*state, (struct mr_task_options){.id = MR_SLICE_LIT("d")});
    put_without_a_time("e");
    for (size_t limit = 1; limit <= 6; limit++)
        assert_listed(*state, MR_PENDING, limit, "a b c d e");
    assert_int_equal(act(*state, MR_VERB_DELETE, "c"), MR_OK);
    assert_listed(*state, MR_PENDING, 2, "a b d e");
}

/* As many as one window of the search for a place has, and more. */
static void pages_of_tasks_without_a_time_come_to_an_end(void **state)
{
    enum { N = 120, LIMIT = 50 };
    char all[N * 5] = "", id[16];
    put(*state, (struct mr_task_options){.id = MR_SLICE_LIT("a")});
    (void)snprintf(all, sizeof all, "a");
    for (int i = 0; i < N; i++) {
        (void)snprintf(id, sizeof id, "t%d", i);
        put_without_a_time(id);
        (void)snprintf(all + strlen(all), sizeof all - strlen(all), " %s", id);
    }
    assert_listed(*state, MR_PENDING, LIMIT, all);
    /* The one that a page ends with goes. */
    size_t total = 0;
    char cursor[MR_CURSOR_MAX] = "";
    for (int page = 0; page == 0 || cursor[0] != '\0'; page++) {
        assert_true(page < 2 * N / LIMIT);
        struct mr_req_list req = {.req.op = MR_OP_LIST,
                                  .options = {.limit = LIMIT, .cursor = cursor}};
        assert_int_equal(mr_broker_call(*state, &req.req), MR_OK);
        total += req.n;
        (void)snprintf(cursor, sizeof cursor, "%s", req.next);
        (void)snprintf(id, sizeof id, "%.*s", (int)req.tasks[req.n - 1].id.len,
                       (const char *)req.tasks[req.n - 1].id.data);
        mr_req_done(&req.req);
        assert_int_equal(act(*state, MR_VERB_DELETE, id), MR_OK);
    }
    assert_in_range(total, N, N + 1);
}

/* As those of one batch are that came from another broker, which counts in ms. */
static void pages_of_tasks_of_one_time_hold_each_once(void **state)
{
    enum { N = 300, LIMIT = 90 };
    static char all[N * 5];
    char id[16], key[64];
    all[0] = '\0';
    for (int i = 0; i < N; i++) {
        (void)snprintf(id, sizeof id, "t%d", i);
        (void)snprintf(key, sizeof key, Q "t:%s", id);
        put_without_a_time(id);
        RIG(server(), "HSET", key, "pending_since", "1795103274617000000");
        (void)snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i > 0 ? " " : "", id);
    }
    assert_listed(*state, MR_PENDING, LIMIT, all);
    /* As whoever deletes all does: what a page has is gone when the next one is asked for. */
    size_t left = N;
    char cursor[MR_CURSOR_MAX] = "";
    do {
        struct mr_req_list req = {.req.op = MR_OP_LIST,
                                  .options = {.limit = LIMIT, .cursor = cursor}};
        assert_int_equal(mr_broker_call(*state, &req.req), MR_OK);
        for (size_t i = 0; i < req.n; i++) {
            (void)snprintf(id, sizeof id, "%.*s", (int)req.tasks[i].id.len,
                           (const char *)req.tasks[i].id.data);
            assert_int_equal(act(*state, MR_VERB_DELETE, id), MR_OK);
        }
        left -= req.n;
        (void)snprintf(cursor, sizeof cursor, "%s", req.next);
        mr_req_done(&req.req);
    } while (cursor[0] != '\0');
    assert_int_equal(left, 0);
}

/* As Asynq's forwarder does with all that is scheduled and due: it does not know of our order. */
static void a_prioritised_task_that_was_forwarded_is_there_once(void **state)
{
    put(*state, (struct mr_task_options){.id = MR_SLICE_LIT("a")});
    put(*state, (struct mr_task_options){.id = MR_SLICE_LIT("p"), .priority_s = 60});
    assert_listed(*state, MR_PENDING, 10, "p a");
    RIG(server(), "ZREM", Q "scheduled", "p");
    RIG(server(), "HSET", Q "t:p", "state", "pending", "pending_since", "1994772000000000000");
    RIG(server(), "LPUSH", Q "pending", "p");
    for (size_t limit = 1; limit <= 3; limit++)
        assert_listed(*state, MR_PENDING, limit, "a p");
    assert_int_equal(info(*state).counts[MR_PENDING], 2);
    assert_int_equal(info(*state).counts[MR_SCHEDULED], 0);
}

static void the_longest_names_fit_a_cursor(void **state)
{
    enum { N = 5 };
    char queue[MR_NAME_MAX + 1], id[MR_ID_MAX + 1], all[N * (MR_ID_MAX + 1) + 1] = "";
    memset(queue, 'q', MR_NAME_MAX);
    queue[MR_NAME_MAX] = '\0';
    memset(id, 'x', MR_ID_MAX);
    id[MR_ID_MAX] = '\0';
    for (int i = 0; i < N; i++) {
        id[MR_ID_MAX - 1] = (char)('a' + i);
        put(*state, (struct mr_task_options){
                        .id = mr_slice_str(id), .queue = mr_slice_str(queue), .delay_ms = 3600000});
        (void)snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i > 0 ? " " : "", id);
    }
    assert_listed(*state, MR_SCHEDULED, 1, all);
    assert_listed(*state, MR_SCHEDULED, 2, all);
}

/* Asynq has no limits for names. */
static void names_of_other_programs_that_are_too_long_stop_nothing(void **state)
{
    char id[3 * MR_ID_MAX], queue[2 * MR_NAME_MAX];
    memset(id, 'i', sizeof id);
    id[sizeof id - 1] = '\0';
    memset(queue, 'q', sizeof queue);
    queue[sizeof queue - 1] = '\0';
    put(*state, (struct mr_task_options){.id = MR_SLICE_LIT("a"), .delay_ms = 3600000});
    put(*state, (struct mr_task_options){.id = MR_SLICE_LIT("z"), .delay_ms = 3600000});
    char key[sizeof id + 64], all[sizeof id + 16];
    (void)snprintf(key, sizeof key, Q "t:%s", id);
    RIG(server(), "HSET", key, "state", "scheduled", "msg", "none");
    RIG(server(), "ZADD", Q "scheduled", RIG(server(), "ZSCORE", Q "scheduled", "a"), id);
    RIG(server(), "SADD", "asynq:queues", queue);
    (void)snprintf(all, sizeof all, "a %s z", id);
    for (size_t limit = 1; limit <= 4; limit++)
        assert_listed(*state, MR_SCHEDULED, limit, all);
    struct mr_queue_info infos[4];
    struct mr_req_queue_list req = {.req.op = MR_OP_QUEUE_LIST, .infos = infos, .max = 4};
    assert_int_equal(mr_broker_call(*state, &req.req), MR_OK);
    assert_int_equal(req.n, 1);
    mr_req_done(&req.req);
}

static void a_task_with_a_damaged_message_is_shown_with_what_is_known(void **state)
{
    put(*state, (struct mr_task_options){.id = MR_SLICE_LIT("a")});
    put(*state, (struct mr_task_options){.id = MR_SLICE_LIT("b")});
    RIG(server(), "HSET", Q "t:a", "msg", "\xff\xff");
    assert_listed(*state, MR_PENDING, 1, "a b");
    struct mr_req_get req = {.req.op = MR_OP_GET, .id = MR_SLICE_LIT("a")};
    assert_int_equal(mr_broker_call(*state, &req.req), MR_OK);
    assert_int_equal(req.task.state, MR_PENDING);
    assert_true(req.task.last_error.len > 0);
    mr_req_done(&req.req);
}

/* ---- acting --------------------------------------------------------------------------------- */

static void a_batch_taken_out_of_a_long_list_leaves_the_others_in_order(void **state)
{
    enum { N = 400, LEFT = 20 };
    static struct mr_control items[N];
    static enum mr_err errs[N];
    static char ids[N][16];
    char left[N * 8] = "";
    size_t n = 0;
    for (int i = 0; i < N; i++) {
        (void)snprintf(ids[i], sizeof ids[i], "t%d", i);
        put(*state, (struct mr_task_options){.id = mr_slice_str(ids[i])});
        if (i % (N / LEFT) == 7)
            (void)snprintf(left + strlen(left), sizeof left - strlen(left), "%s%s",
                           left[0] != '\0' ? " " : "", ids[i]);
    }
    for (int i = 0; i < N; i++) { /* all over the list, in no order */
        int at = i * 137 % N;
        if (at % (N / LEFT) != 7)
            items[n++] = (struct mr_control){.verb = MR_VERB_DELETE, .id = mr_slice_str(ids[at])};
    }
    struct mr_req_control req = {.req.op = MR_OP_CONTROL, .items = items, .n = n, .errs = errs};
    assert_int_equal(mr_broker_call(*state, &req.req), MR_OK);
    mr_req_done(&req.req);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(errs[i], MR_OK);
    assert_int_equal(RIG_INT(server(), "LLEN", Q "pending"), LEFT);
    assert_listed(*state, MR_PENDING, 7, left);
}

static void tasks_of_many_queues_are_found_and_acted_on(void **state)
{
    enum { N = 300 };
    static char names[N][16];
    static struct mr_control items[N];
    static enum mr_err errs[N];
    for (int i = 0; i < N; i++) {
        (void)snprintf(names[i], sizeof names[i], "t%d", i);
        struct mr_slice name = mr_slice_str(names[i]);
        put(*state, (struct mr_task_options){.id = name, .queue = name});
        items[i] = (struct mr_control){.verb = MR_VERB_DELETE, .id = name};
        struct mr_req_get req = {.req.op = MR_OP_GET, .id = name};
        assert_int_equal(mr_broker_call(*state, &req.req), MR_OK);
        assert_true(mr_slice_equal(req.task.queue, name));
        mr_req_done(&req.req);
    }
    struct mr_req_control req = {.req.op = MR_OP_CONTROL, .items = items, .n = N, .errs = errs};
    assert_int_equal(mr_broker_call(*state, &req.req), MR_OK);
    mr_req_done(&req.req);
    for (int i = 0; i < N; i++)
        assert_int_equal(errs[i], MR_OK);
    struct mr_req_stats stats = {.req.op = MR_OP_STATS};
    assert_int_equal(mr_broker_call(*state, &stats.req), MR_OK);
    assert_int_equal(stats.stats.tasks, 0);
    assert_int_equal(stats.stats.deleted, N);
    mr_req_done(&stats.req);
}

/* One queue does not answer, here since the user may not touch it. */
static void what_one_queue_did_is_answered_though_another_fails(void **state)
{
    put(*state, (struct mr_task_options){.id = MR_SLICE_LIT("a"), .queue = MR_SLICE_LIT("a")});
    put(*state, (struct mr_task_options){.id = MR_SLICE_LIT("b"), .queue = MR_SLICE_LIT("b")});
    RIG(server(), "ACL", "SETUSER", "some", "on", ">pw", "+@all", "&*", "~asynq:{a}*",
        "~asynq:queues");
    char url[256];
    (void)snprintf(url, sizeof url, "redis://some:pw@127.0.0.1:%u", (unsigned)server()->port);
    struct mr_broker *some;
    struct mr_redis_broker_options options = {.url = url};
    assert_int_equal(mr_redis_broker_open(&options, &some, NULL), MR_OK);
    struct mr_control items[] = {{.verb = MR_VERB_DELETE, .id = MR_SLICE_LIT("a")},
                                 {.verb = MR_VERB_DELETE, .id = MR_SLICE_LIT("b")}};
    enum mr_err errs[2];
    struct mr_req_control req = {.req.op = MR_OP_CONTROL, .items = items, .n = 2, .errs = errs};
    assert_int_equal(mr_broker_call(some, &req.req), MR_OK);
    mr_req_done(&req.req);
    assert_int_equal(errs[0], MR_OK);
    assert_int_equal(errs[1], MR_DENIED);
    req =
        (struct mr_req_control){.req.op = MR_OP_CONTROL, .items = items + 1, .n = 1, .errs = errs};
    assert_int_equal(mr_broker_call(some, &req.req), MR_DENIED);
    mr_req_done(&req.req);
    mr_broker_close(some);
}

/* Only one of the two was carried elsewhere, and nobody can say which one is meant. */
static void a_task_whose_id_is_in_two_queues_is_not_moved(void **state)
{
    struct mr_control items[] = {
        {.verb = MR_VERB_MOVED, .id = MR_SLICE_LIT("twice"), .text = MR_SLICE_LIT("there")},
        {.verb = MR_VERB_MOVED, .id = MR_SLICE_LIT("once"), .text = MR_SLICE_LIT("there")},
        {.verb = MR_VERB_MOVED, .id = MR_SLICE_LIT("none"), .text = MR_SLICE_LIT("there")},
    };
    enum mr_err errs[3];
    put(*state, (struct mr_task_options){.id = MR_SLICE_LIT("twice")});
    put(*state, (struct mr_task_options){.id = MR_SLICE_LIT("once")});
    RIG(server(), "SADD", "asynq:queues", "other");
    RIG(server(), "HSET", "asynq:{other}:t:twice", "msg", "x", "state", "pending");
    RIG(server(), "LPUSH", "asynq:{other}:pending", "twice");
    struct mr_req_control req = {.req.op = MR_OP_CONTROL, .items = items, .n = 3, .errs = errs};
    assert_int_equal(mr_broker_call(*state, &req.req), MR_OK);
    mr_req_done(&req.req);
    assert_int_equal(errs[0], MR_CONFLICT);
    assert_int_equal(errs[1], MR_OK);
    assert_int_equal(errs[2], MR_NOT_FOUND);
    assert_string_equal(RIG(server(), "HGET", "asynq:{other}:t:twice", "state"), "pending");
    assert_string_equal(RIG(server(), "HGET", Q "t:twice", "state"), "pending");
    assert_string_equal(RIG(server(), "HGET", Q "t:once", "state"), "completed");
    RIG(server(), "DEL", "asynq:{other}:t:twice", "asynq:{other}:pending");
    req = (struct mr_req_control){.req.op = MR_OP_CONTROL, .items = items, .n = 1, .errs = errs};
    assert_int_equal(mr_broker_call(*state, &req.req), MR_OK);
    mr_req_done(&req.req);
    assert_int_equal(errs[0], MR_OK);
}

static void a_removed_queue_leaves_no_key(void **state)
{
    struct mr_task_options task = {.unique_ms = 3600000, .unique_key = MR_SLICE_LIT("k")};
    put(*state, task);
    put(*state, (struct mr_task_options){.id = MR_SLICE_LIT("a")});
    put(*state, (struct mr_task_options){.id = MR_SLICE_LIT("p"), .priority_s = 60});
    put(*state, (struct mr_task_options){.id = MR_SLICE_LIT("l"), .delay_ms = 3600000});
    put(*state, (struct mr_task_options){.id = MR_SLICE_LIT("g"), .group = MR_SLICE_LIT("g")});
    put(*state, (struct mr_task_options){.unique_ms = 3600000, .payload = MR_SLICE_LIT("x")});
    put(*state, (struct mr_task_options){.topic = MR_SLICE_LIT("news")});
    assert_int_equal(act(*state, MR_VERB_ARCHIVE, "a"), MR_OK);
    RIG(server(), "SET", Q "processed", "5");
    struct mr_req_queue_remove req = {.req.op = MR_OP_QUEUE_REMOVE,
                                      .queue = MR_SLICE_LIT("default"),
                                      .mode = MR_QUEUE_REMOVE_FORCE};
    assert_int_equal(mr_broker_call(*state, &req.req), MR_OK);
    mr_req_done(&req.req);
    assert_string_equal(RIG(server(), "KEYS", Q "*"), "");
    assert_int_equal(RIG_INT(server(), "SISMEMBER", "asynq:queues", "default"), 0);
    assert_string_equal(RIG(server(), "HGET", "asynq:mr:counts", "deleted"), "7");
}

/* ---- ends that nobody tells ----------------------------------------------------------------- */

struct waiter {
    struct mr_req_await req;
    struct mr_event done;
};

static void answered(struct mr_req *req)
{
    mr_event_set(&mr_container(req, struct waiter, req.req)->done);
}

static void wait_start(struct mr_broker *broker, struct waiter *waiter, const char *id)
{
    *waiter = (struct waiter){.req = {.req = {.op = MR_OP_AWAIT, .done = answered},
                                      .id = mr_slice_str(id),
                                      .wait_ms = 20000}};
    mr_event_init(&waiter->done);
    mr_broker_submit(broker, &waiter->req.req);
    (void)info(broker); /* it was looked for by then */
}

static enum mr_err wait_end(struct waiter *waiter)
{
    assert_true(mr_event_wait(&waiter->done, 20 * MR_MS_PER_S * MR_NS_PER_MS));
    return waiter->req.req.err;
}

static void the_end_of_a_task_in_another_program_is_found(void **state)
{
    struct waiter kept, gone;
    put(*state, (struct mr_task_options){.id = MR_SLICE_LIT("kept")});
    put(*state, (struct mr_task_options){.id = MR_SLICE_LIT("gone")});
    wait_start(*state, &kept, "kept");
    wait_start(*state, &gone, "gone");
    RIG(server(), "DEL", Q "pending");
    RIG(server(), "HSET", Q "t:kept", "state", "completed", "result", "42");
    RIG(server(), "ZADD", Q "completed", "9999999999", "kept");
    RIG(server(), "DEL", Q "t:gone");
    assert_int_equal(wait_end(&gone), MR_NOT_FOUND);
    assert_int_equal(wait_end(&kept), MR_OK);
    assert_int_equal(kept.req.task.state, MR_COMPLETED);
    assert_true(mr_slice_equal(kept.req.task.result, MR_SLICE_LIT("42")));
    mr_req_done(&kept.req.req);
    mr_req_done(&gone.req.req);
}

static void a_wait_that_ended_leaves_no_mark(void **state)
{
    struct waiter waiter;
    put(*state, (struct mr_task_options){.id = MR_SLICE_LIT("a")});
    wait_start(*state, &waiter, "a");
    assert_int_equal(RIG_INT(server(), "ZCARD", Q "mr:await"), 1);
    assert_int_equal(act(*state, MR_VERB_DELETE, "a"), MR_OK);
    assert_int_equal(wait_end(&waiter), MR_NOT_FOUND);
    assert_int_equal(RIG_INT(server(), "EXISTS", Q "mr:await"), 0);
    mr_req_done(&waiter.req.req);
}

/* ---- servers and sets of others ------------------------------------------------------------- */

static void stop(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    (void)epoch, (void)reason, (void)arg;
}

static uint64_t incarnation_of(struct mr_broker *broker, const char *name)
{
    uint64_t incarnation = 0;
    struct mr_req_node_list req = {.req.op = MR_OP_NODE_LIST};
    assert_int_equal(mr_broker_call(broker, &req.req), MR_OK);
    for (size_t i = 0; i < req.n; i++)
        if (mr_slice_equal(req.nodes[i].name, mr_slice_str(name)))
            incarnation = req.nodes[i].incarnation;
    mr_req_done(&req.req);
    return incarnation;
}

static void servers_of_other_programs_are_nodes_and_ours_are_there_once(void **state)
{
    /* The golden vector of Asynq's encoder. */
    RIG(server(), "SET", "asynq:servers:{h:4242:s-1}",
        "\x0a\x01h\x10\x92\x21\x1a\x03s-1\x20\x0a\x2a\x0b\x0a\x07"
        "default\x10\x01\x30\x01\x3a\x06"
        "active\x42\x09\x08\x80\xe2\xcf\xaa\x06\x10\xf4\x03\x48\x02");
    RIG(server(), "ZADD", "asynq:servers", "9999999999", "asynq:servers:{h:4242:s-1}");
    struct mr_worker_queue queue = {.name = MR_SLICE_LIT("default")};
    struct mr_req_node_open node = {.req.op = MR_OP_NODE_OPEN,
                                    .name = MR_SLICE_LIT("ours"),
                                    .queues = &queue,
                                    .queues_n = 1,
                                    .slots = 3,
                                    .lease_ms = 60000,
                                    .events = {.stop = stop}};
    assert_int_equal(mr_broker_call(*state, &node.req), MR_OK);
    mr_req_done(&node.req);
    assert_int_equal(RIG_INT(server(), "ZCARD", "asynq:servers"), 2);
    /* who is seen can be found dead, also when it is killed before its first beat */
    char field[32];
    (void)snprintf(field, sizeof field, "n:%llu",
                   (unsigned long long)incarnation_of(*state, "ours"));
    assert_int_equal(RIG_INT(server(), "HEXISTS", "asynq:mr:cluster", field), 1);
    struct mr_broker *other;
    struct mr_redis_broker_options options = {.url = redis_rig_url(rig)};
    assert_int_equal(mr_redis_broker_open(&options, &other, NULL), MR_OK);
    struct mr_broker *const brokers[] = {*state, other}; /* where it is, and from elsewhere */
    for (size_t i = 0; i < 2; i++) {
        struct mr_req_node_list req = {.req.op = MR_OP_NODE_LIST};
        assert_int_equal(mr_broker_call(brokers[i], &req.req), MR_OK);
        assert_int_equal(req.n, 2);
        assert_true(mr_slice_equal(req.nodes[0].name, MR_SLICE_LIT("h:4242")));
        assert_int_equal(req.nodes[0].slots, 10);
        assert_int_equal(req.nodes[0].busy, 2);
        assert_true(mr_slice_equal(req.nodes[1].name, MR_SLICE_LIT("ours")));
        assert_int_equal(req.nodes[1].slots, 3);
        mr_req_done(&req.req);
    }
    mr_broker_close(other);
}

/* Asynq's own recovery pours a set back and forgets the name of the group; a gatherer that died does
 * neither. */
static void a_set_that_was_left_behind_is_gathered_again(void **state)
{
    put(*state, (struct mr_task_options){.id = MR_SLICE_LIT("m"), .group = MR_SLICE_LIT("a:b")});
    RIG(server(), "RENAME", Q "g:a:b", Q "g:a:b:s-1");
    RIG(server(), "SREM", Q "groups", "a:b");
    RIG(server(), "ZADD", Q "aggregation_sets", "5", Q "g:a:b:s-1");
    struct mr_req_gather req = {
        .req.op = MR_OP_GATHER, .queue = MR_SLICE_LIT("default"), .max_size = 1, .grace_ms = 1000};
    assert_int_equal(mr_broker_call(*state, &req.req), MR_OK);
    assert_int_equal(req.n, 1);
    assert_string_equal(req.group, "a:b");
    mr_req_done(&req.req);
    assert_int_equal(RIG_INT(server(), "EXISTS", Q "g:a:b:s-1"), 0);
}

int main(void)
{
#define CASE(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    static const struct CMUnitTest tests[] = {
        CASE(pending_tasks_without_a_time_are_listed_among_the_others),
        CASE(pages_of_tasks_without_a_time_come_to_an_end),
        CASE(pages_of_tasks_of_one_time_hold_each_once),
        CASE(a_prioritised_task_that_was_forwarded_is_there_once),
        CASE(the_longest_names_fit_a_cursor),
        CASE(names_of_other_programs_that_are_too_long_stop_nothing),
        CASE(a_task_with_a_damaged_message_is_shown_with_what_is_known),
        CASE(a_batch_taken_out_of_a_long_list_leaves_the_others_in_order),
        CASE(tasks_of_many_queues_are_found_and_acted_on),
        CASE(what_one_queue_did_is_answered_though_another_fails),
        CASE(a_task_whose_id_is_in_two_queues_is_not_moved),
        CASE(a_removed_queue_leaves_no_key),
        CASE(the_end_of_a_task_in_another_program_is_found),
        CASE(a_wait_that_ended_leaves_no_mark),
        CASE(servers_of_other_programs_are_nodes_and_ours_are_there_once),
        CASE(a_set_that_was_left_behind_is_gathered_again),
    };
    rig = redis_rig_standalone(NULL);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    redis_rig_stop(rig);
    return failed;
}
