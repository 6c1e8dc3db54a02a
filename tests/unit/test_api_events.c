/* SPDX-License-Identifier: Apache-2.0 */
/* Events.Watch over a real connection: who is told what, how often, and how slow readers fare. */
#include "unit/api_rig.h"

#include <stdatomic.h>

#include "api/events.h"
#include "millrace/v1/events.pb-c.h"

enum { GRACE_MS = 1500 };

typedef Millrace__V1__Event event;
#define IS(name) MILLRACE__V1__EVENT__KIND_##name

static int begin(void **state)
{
    struct mr_api_options options = {.access.mode = MR_ACCESS_LOOPBACK, .grace_ms = GRACE_MS};
    *state = rig_start(&options);
    return 0;
}

static int end(void **state)
{
    rig_stop(*state);
    return 0;
}

struct wish {
    const char *queue;
    Millrace__V1__EventKind kinds[2];
    size_t kinds_n;
    uint32_t interval_ms;
};

static void watch(struct talk *talk, struct client *client, struct wish wish)
{
    Millrace__V1__WatchRequest request = MILLRACE__V1__WATCH_REQUEST__INIT;
    if (wish.queue != NULL)
        request.queue = (char *)(uintptr_t)wish.queue;
    request.kinds = wish.kinds;
    request.n_kinds = wish.kinds_n;
    request.interval_ms = wish.interval_ms;
    talk_begin(talk, client, PATH("Events/Watch"));
    assert_int_equal(talk_send(talk, &request.base), MR_OK);
    talk_half_close(talk);
}

static const event *next(struct talk *talk)
{
    const event *found = (const void *)talk_next(talk, &millrace__v1__event__descriptor);
    assert_non_null(found);
    assert_true(found->time_ms > 0);
    return found;
}

static void expect_start(struct talk *talk)
{
    assert_int_equal(next(talk)->kind_case, IS(START));
}

static const Millrace__V1__Queue *expect_queue(struct talk *talk, const char *name)
{
    const event *found = next(talk);
    assert_int_equal(found->kind_case, IS(QUEUE));
    assert_string_equal(found->queue->queue, name);
    return found->queue;
}

static const struct wish queues_only = {
    .kinds = {MILLRACE__V1__EVENT_KIND__EVENT_QUEUE}, .kinds_n = 1, .interval_ms = 100};
static const struct wish nodes_only = {
    .kinds = {MILLRACE__V1__EVENT_KIND__EVENT_NODE}, .kinds_n = 1, .interval_ms = 100};

static void change_queue(struct rig *rig, const char *method, const char *queue)
{
    struct talk talk = {0};
    Millrace__V1__QueueRequest request = MILLRACE__V1__QUEUE_REQUEST__INIT;
    request.queue = (char *)(uintptr_t)queue;
    assert_non_null(
        call_unary(&talk, &rig->client, method, &request.base, &millrace__v1__empty__descriptor));
}

/* ---- what is told --------------------------------------------------------------------------- */

static void a_watcher_is_told_what_there_is_and_then_what_changes(void **state)
{
    struct rig *rig = *state;
    struct talk talk = {0};
    put(&rig->client, "bank", "b1");
    put(&rig->client, "mail", "m1");
    watch(&talk, &rig->client, (struct wish){.interval_ms = 100});
    expect_start(&talk);
    const event *first = next(&talk), *second = next(&talk), *third = next(&talk);
    assert_int_equal(first->kind_case, IS(QUEUE));
    assert_string_equal(first->queue->queue, "bank");
    assert_string_equal(second->queue->queue, "mail");
    assert_int_equal(second->queue->pending, 1);
    assert_int_equal(third->kind_case, IS(LEADER));
    assert_string_equal(third->leader->node, "");
    third = next(&talk);
    assert_int_equal(third->kind_case, IS(SERVER));
    assert_false(third->server->disk_full || third->server->failed);
    assert_true(first->id > 0 && second->id > first->id && third->id > second->id);
    put(&rig->client, "mail", "m2");
    const event *fourth = next(&talk);
    assert_true(fourth->id > third->id && fourth->time_ms >= third->time_ms);
    assert_string_equal(fourth->queue->queue, "mail");
    assert_int_equal(fourth->queue->pending, 2);
    change_queue(rig, PATH("Queues/Pause"), "bank"); /* nothing was said of it before */
    assert_true(expect_queue(&talk, "bank")->paused);
    talk_done(&talk);
}

static void a_queue_that_goes_is_told_and_one_that_comes_again(void **state)
{
    struct rig *rig = *state;
    struct talk talk = {0}, remove = {0};
    Millrace__V1__QueueRemoveRequest request = MILLRACE__V1__QUEUE_REMOVE_REQUEST__INIT;
    put(&rig->client, "bank", "b1");
    put(&rig->client, "mail", "m1");
    watch(&talk, &rig->client, queues_only);
    expect_start(&talk);
    expect_queue(&talk, "bank");
    expect_queue(&talk, "mail");
    request.queue = (char *)(uintptr_t) "bank";
    request.force = true;
    assert_non_null(call_unary(&remove, &rig->client, PATH("Queues/Remove"), &request.base,
                               &millrace__v1__empty__descriptor));
    const event *gone = next(&talk);
    assert_int_equal(gone->kind_case, IS(QUEUE_REMOVED));
    assert_string_equal(gone->queue_removed, "bank");
    put(&rig->client, "bank", "b2");
    assert_int_equal(expect_queue(&talk, "bank")->pending, 1);
    talk_done(&talk);
}

static void a_watcher_sees_only_what_it_asked_for_and_its_token_covers(void **state)
{
    struct rig *rig = *state;
    struct client viewer;
    struct talk some = {0}, kept = {0};
    static const char *const names[] = {"bank", "mail-in", "mail-out", "shop"};
    for (size_t i = 0; i < 4; i++)
        put(&rig->client, names[i], names[i]);
    struct wish wish = queues_only;
    wish.queue = "*-out";
    watch(&some, &rig->client, wish);
    expect_start(&some);
    expect_queue(&some, "mail-out");
    client_open(rig, &viewer, make_token(rig, MR_ROLE_VIEWER, "mail-*", NULL));
    watch(&kept, &viewer, queues_only);
    expect_start(&kept);
    expect_queue(&kept, "mail-in");
    expect_queue(&kept, "mail-out");
    put(&rig->client, "shop", "s2");
    put(&rig->client, "mail-in", "m2");
    expect_queue(&kept, "mail-in");
    talk_done(&some);
    some = (struct talk){0};
    wish.queue = "bank";
    watch(&some, &viewer, wish);
    assert_int_equal(talk_end(&some), MR_RPC_DENIED);
    assert_non_null(strstr(some.text, "is for queues mail-*, not for bank"));
    talk_done(&some);
    talk_done(&kept);
    client_close(&viewer);
}

static void a_watcher_that_asks_wrong_is_told_so(void **state)
{
    struct rig *rig = *state;
    struct talk talk = {0};
    watch(&talk, &rig->client, (struct wish){.interval_ms = 99});
    assert_int_equal(talk_end(&talk), MR_RPC_INVALID);
    assert_non_null(strstr(talk.text, "interval_ms: 99, at least 100"));
    talk_done(&talk);
    talk = (struct talk){0};
    watch(&talk, &rig->client, (struct wish){.kinds = {(Millrace__V1__EventKind)9}, .kinds_n = 1});
    assert_int_equal(talk_end(&talk), MR_RPC_INVALID);
    talk_done(&talk);
    talk = (struct talk){0};
    talk_begin(&talk, &rig->client, PATH("Events/Watch"));
    talk_half_close(&talk);
    assert_int_equal(talk_end(&talk), MR_RPC_INVALID);
    talk_done(&talk);
}

/* ---- nodes ---------------------------------------------------------------------------------- */

static void attach(struct talk *talk, struct client *client, const char *name, uint64_t incarnation)
{
    Millrace__V1__WorkerMessage message = MILLRACE__V1__WORKER_MESSAGE__INIT;
    Millrace__V1__Hello hello = MILLRACE__V1__HELLO__INIT;
    Millrace__V1__QueueWeight queue = MILLRACE__V1__QUEUE_WEIGHT__INIT, *queues[] = {&queue};
    queue.name = (char *)(uintptr_t) "mail";
    hello.node = (char *)(uintptr_t)name;
    hello.incarnation = incarnation;
    hello.queues = queues;
    hello.n_queues = 1;
    hello.slots = 2;
    hello.lease_ms = 60000;
    hello.leads = true;
    hello.leader_ms = 60000;
    message.kind_case = MILLRACE__V1__WORKER_MESSAGE__KIND_HELLO;
    message.hello = &hello;
    talk_begin(talk, client, PATH("Work/Attach"));
    assert_int_equal(talk_send(talk, &message.base), MR_OK);
    assert_non_null(talk_next(talk, &millrace__v1__server_message__descriptor));
}

static void expect_node(struct talk *talk, const char *name, Millrace__V1__NodeState state)
{
    const event *found = next(talk);
    assert_int_equal(found->kind_case, IS(NODE));
    assert_string_equal(found->node->node, name);
    assert_int_equal(found->node->state, state);
    assert_int_equal(found->node->n_queues, 1);
    assert_string_equal(found->node->queues[0]->name, "mail");
}

static void nodes_that_come_leave_and_are_lost_are_told(void **state)
{
    struct rig *rig = *state;
    struct client client;
    struct talk talk = {0}, polite = {0}, lost = {0};
    watch(&talk, &rig->client, nodes_only);
    expect_start(&talk);
    client_open(rig, &client, NULL);
    attach(&polite, &client, "polite", 1);
    expect_node(&talk, "polite", MILLRACE__V1__NODE_STATE__NODE_LIVE);
    talk_half_close(&polite);
    expect_node(&talk, "polite", MILLRACE__V1__NODE_STATE__NODE_CLOSED);
    talk_done(&polite);
    attach(&lost, &client, "lost", 2);
    expect_node(&talk, "lost", MILLRACE__V1__NODE_STATE__NODE_LIVE);
    client_close(&client); /* its connection breaks */
    expect_node(&talk, "lost", MILLRACE__V1__NODE_STATE__NODE_SUSPECT);
    expect_node(&talk, "lost", MILLRACE__V1__NODE_STATE__NODE_DEAD);
    talk_done(&lost);
    talk_done(&talk);
}

static void who_leads_is_told_to_those_who_may_see_all(void **state)
{
    struct rig *rig = *state;
    struct client viewer, client;
    struct talk talk = {0}, kept = {0}, stream = {0};
    struct wish wish = {
        .kinds = {MILLRACE__V1__EVENT_KIND__EVENT_LEADER, MILLRACE__V1__EVENT_KIND__EVENT_NODE},
        .kinds_n = 1,
        .interval_ms = 100};
    watch(&talk, &rig->client, wish);
    expect_start(&talk);
    assert_string_equal(next(&talk)->leader->node, "");
    client_open(rig, &viewer, make_token(rig, MR_ROLE_VIEWER, "mail*", NULL));
    wish.kinds_n = 2;
    watch(&kept, &viewer, wish);
    expect_start(&kept);
    client_open(rig, &client, NULL);
    attach(&stream, &client, "first", 1);
    expect_node(&kept, "first", MILLRACE__V1__NODE_STATE__NODE_LIVE); /* and nothing before it */
    Millrace__V1__WorkerMessage message = MILLRACE__V1__WORKER_MESSAGE__INIT;
    Millrace__V1__Beat beat = MILLRACE__V1__BEAT__INIT;
    message.kind_case = MILLRACE__V1__WORKER_MESSAGE__KIND_BEAT;
    message.beat = &beat;
    assert_int_equal(talk_send(&stream, &message.base), MR_OK);
    const Millrace__V1__ServerMessage *said =
        (const void *)talk_next(&stream, &millrace__v1__server_message__descriptor);
    assert_int_equal(said->kind_case, MILLRACE__V1__SERVER_MESSAGE__KIND_BEATEN);
    assert_true(said->beaten->term > 0 && said->beaten->leader_ms > 0);
    const event *found = next(&talk);
    assert_int_equal(found->kind_case, IS(LEADER));
    assert_string_equal(found->leader->node, "first");
    assert_true(found->leader->term == said->beaten->term && found->leader->leaderless_ms == 0);
    talk_half_close(&stream);
    found = next(&talk);
    assert_string_equal(found->leader->node, "");
    assert_true(found->leader->leaderless_ms > 0);
    expect_node(&kept, "first", MILLRACE__V1__NODE_STATE__NODE_CLOSED);
    talk_done(&stream);
    talk_done(&talk);
    talk_done(&kept);
    client_close(&viewer);
    client_close(&client);
}

/* ---- many queues ---------------------------------------------------------------------------- */

/* So many that they are more than a connection takes in without being read. */
enum { QUEUES = 12000, NAME_SIZE = 120 };

static void queue_name(size_t i, char name[NAME_SIZE])
{
    snprintf(name, NAME_SIZE, "queue-%05zu-%0100d", i, 0);
}

static void put_all(struct rig *rig)
{
    char names[MR_BATCH_MAX][NAME_SIZE];
    for (size_t at = 0; at < QUEUES;) {
        struct mr_task_options tasks[MR_BATCH_MAX] = {0};
        struct mr_enqueue_result results[MR_BATCH_MAX];
        size_t n = 0;
        for (; n < MR_BATCH_MAX && at < QUEUES; n++, at++) {
            queue_name(at, names[n]);
            tasks[n].queue = mr_slice_str(names[n]);
        }
        struct mr_req_enqueue req = {
            .req.op = MR_OP_ENQUEUE, .tasks = tasks, .n = n, .results = results};
        assert_int_equal(mr_broker_call(rig->broker, &req.req), MR_OK);
        for (size_t i = 0; i < n; i++)
            assert_int_equal(results[i].err, MR_OK);
        mr_req_done(&req.req);
    }
}

struct removal {
    struct mr_req_queue_remove req;
    char name[NAME_SIZE];
};
static _Atomic size_t removed;

static void on_removed(struct mr_req *req)
{
    mr_assert(req->err == MR_OK);
    removed++;
}

static void remove_all(struct rig *rig)
{
    struct removal *removals = calloc(QUEUES, sizeof *removals);
    removed = 0;
    for (size_t i = 0; i < QUEUES; i++) {
        struct removal *removal = &removals[i];
        queue_name(i, removal->name);
        removal->req = (struct mr_req_queue_remove){
            .req = {.op = MR_OP_QUEUE_REMOVE, .done = on_removed},
            .queue = mr_slice_str(removal->name),
            .mode = MR_QUEUE_REMOVE_FORCE,
        };
        mr_broker_submit(rig->broker, &removal->req.req);
    }
    WAIT_UNTIL(removed == QUEUES);
    for (size_t i = 0; i < QUEUES; i++)
        mr_req_done(&removals[i].req.req);
    free(removals);
}

static void let_read(struct talk *talk)
{
    on_loop(talk->client->rig->loop, do_read_on, talk);
}

/* It reads nothing while one queue changes again and again: then it gets each queue once, the busy one
 * as it is at last. Who reads is told meanwhile. */
static void a_slow_watcher_gets_the_newest_and_holds_nobody_up(void **state)
{
    struct rig *rig = *state;
    struct client client;
    struct talk slow = {.hold = true}, quick = {0};
    char busy[NAME_SIZE];
    put_all(rig);
    queue_name(QUEUES - 1, busy);
    client_open(rig, &client, NULL);
    watch(&slow, &client, queues_only);
    struct wish wish = queues_only;
    wish.queue = busy;
    watch(&quick, &rig->client, wish);
    expect_start(&quick);
    assert_int_equal(expect_queue(&quick, busy)->pending, 1);
    for (size_t i = 0; i < 5; i++) {
        put(&rig->client, busy, "");
        assert_int_equal(expect_queue(&quick, busy)->pending, i + 2);
    }
    let_read(&slow);
    expect_start(&slow);
    uint64_t pending = 0, last = 0;
    size_t told = 0;
    while (pending < 6) {
        const event *found = next(&slow);
        assert_int_equal(found->kind_case, IS(QUEUE));
        assert_true(found->id > last);
        last = found->id;
        told++;
        if (strcmp(found->queue->queue, busy) == 0)
            pending = found->queue->pending;
    }
    assert_true(told <= QUEUES + 1); /* not once for each change */
    talk_done(&slow);
    talk_done(&quick);
    client_close(&client);
}

static void who_cannot_be_told_what_went_begins_anew(void **state)
{
    struct rig *rig = *state;
    struct client client;
    struct talk slow = {.hold = true}, quick = {0};
    put_all(rig);
    client_open(rig, &client, NULL);
    watch(&slow, &client, queues_only);
    struct wish wish = queues_only;
    wish.queue = "last";
    watch(&quick, &rig->client, wish);
    expect_start(&quick);
    remove_all(rig);
    put(&rig->client, "last", "");
    while (next(&quick)->kind_case != IS(QUEUE)) { /* then it was seen that they have gone */
    }
    let_read(&slow);
    size_t starts = 0, there = 0;
    for (bool last = false; there != 1 || !last;) { /* only that one is left */
        const event *found = next(&slow);
        if (found->kind_case == IS(START)) {
            starts++;
            there = 0;
        } else if (found->kind_case == IS(QUEUE)) {
            last |= strcmp(found->queue->queue, "last") == 0;
            there++;
        } else {
            assert_int_equal(found->kind_case, IS(QUEUE_REMOVED));
            there--;
        }
    }
    assert_true(starts >= 2);
    talk_done(&slow);
    talk_done(&quick);
    client_close(&client);
}

/* ---- the sampler ---------------------------------------------------------------------------- */

/* A broker that counts how often it is asked for its queues. */
struct counter {
    struct mr_broker broker;
    struct mr_broker *real;
    _Atomic size_t looks;
};

static struct counter *counter_of(struct mr_broker *broker)
{
    return mr_container(broker, struct counter, broker);
}

static void counter_submit(struct mr_broker *broker, struct mr_req *req)
{
    if (req->op == MR_OP_QUEUE_LIST)
        counter_of(broker)->looks++;
    mr_broker_submit(counter_of(broker)->real, req);
}

static void counter_close(struct mr_broker *broker)
{
    mr_broker_close(counter_of(broker)->real);
}

static struct mr_broker *counter_build(struct mr_broker *real, void *arg)
{
    static const struct mr_broker_ops ops = {.submit = counter_submit, .close = counter_close};
    struct counter *counter = arg;
    counter->broker.ops = &ops;
    counter->real = real;
    return &counter->broker;
}

struct sight {
    struct rig *rig;
    bool watched;
};

static void do_look(void *arg)
{
    struct sight *sight = arg;
    sight->watched = sight->rig->api->events != NULL;
}

static bool is_watched(struct rig *rig)
{
    struct sight sight = {.rig = rig};
    on_loop(rig->server, do_look, &sight);
    return sight.watched;
}

static void the_broker_is_asked_for_all_watchers_at_once_and_only_while_there_are_some(void **state)
{
    (void)state;
    enum { WATCHERS = 50, TIMES = 8 };
    struct counter counter = {0};
    struct rig *rig = rig_start_behind(NULL, counter_build, &counter);
    struct talk talks[WATCHERS] = {0};
    assert_false(is_watched(rig));
    for (size_t i = 0; i < WATCHERS; i++) {
        watch(&talks[i], &rig->client, queues_only);
        expect_start(&talks[i]);
    }
    size_t before = counter.looks;
    int64_t began = mr_mono_now(mr_clock_system()).ns;
    WAIT_UNTIL(counter.looks >= before + TIMES);
    assert_true(mr_mono_now(mr_clock_system()).ns - began > (TIMES - 2) * 100 * MR_NS_PER_MS);
    for (size_t i = 0; i < WATCHERS; i++)
        talk_done(&talks[i]);
    WAIT_UNTIL(!is_watched(rig));
    rig_stop(rig);
}

static void watching_ends_with_the_server_and_with_the_token(void **state)
{
    struct rig *rig = *state;
    struct client viewer;
    struct mr_token token;
    struct mr_detail detail;
    struct talk revoked = {0}, stopped = {0};
    client_open(rig, &viewer, make_token(rig, MR_ROLE_VIEWER, "", &token));
    watch(&revoked, &viewer, queues_only);
    expect_start(&revoked);
    assert_int_equal(mr_tokens_revoke(rig->tokens, token.id, &detail), MR_OK);
    assert_int_equal(talk_end(&revoked), MR_RPC_UNAUTHENTICATED);
    talk_done(&revoked);
    client_close(&viewer);
    watch(&stopped, &rig->client, queues_only);
    expect_start(&stopped);
    rig_stop_server(rig, 30000);
    assert_int_equal(talk_end(&stopped), MR_RPC_UNAVAILABLE);
    talk_done(&stopped);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
        TEST(a_watcher_is_told_what_there_is_and_then_what_changes),
        TEST(a_queue_that_goes_is_told_and_one_that_comes_again),
        TEST(a_watcher_sees_only_what_it_asked_for_and_its_token_covers),
        TEST(a_watcher_that_asks_wrong_is_told_so),
        TEST(nodes_that_come_leave_and_are_lost_are_told),
        TEST(who_leads_is_told_to_those_who_may_see_all),
        TEST(a_slow_watcher_gets_the_newest_and_holds_nobody_up),
        TEST(who_cannot_be_told_what_went_begins_anew),
        cmocka_unit_test(
            the_broker_is_asked_for_all_watchers_at_once_and_only_while_there_are_some),
        TEST(watching_ends_with_the_server_and_with_the_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
