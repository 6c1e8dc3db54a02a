/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine of several servers: producing, and looking. What it does at one server is the conformance suite's.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "unit/many_rig.h"

/* ---- producing ------------------------------------------------------------------------------ */

static void test_tasks_go_to_the_servers_in_turn(void **state)
{
    struct world *w = *state;
    open_many(w, SERVERS);
    for (size_t i = 0; i < 10 * SERVERS; i++)
        assert_int_equal(put(w->many, "").err, MR_OK);
    for (size_t i = 0; i < SERVERS; i++)
        assert_int_equal(count_at(w, i, MR_PENDING), 10);
    assert_int_equal(count(w->many, MR_PENDING), 10 * SERVERS);
}

static void test_the_same_id_meets_the_same_server(void **state)
{
    struct world *w = *state;
    char id[32];
    size_t used = 0;
    open_many(w, SERVERS);
    for (size_t i = 0; i < 30; i++) {
        (void)snprintf(id, sizeof id, "id%zu", i);
        assert_int_equal(put(w->many, id).err, MR_OK);
        assert_int_equal(put(w->many, id).err, MR_CONFLICT);
        assert_int_equal(state_of(w->many, id), MR_PENDING);
    }
    for (size_t i = 0; i < SERVERS; i++)
        used += count_at(w, i, MR_PENDING) > 0;
    assert_int_equal(used, SERVERS);
    assert_int_equal(state_of(w->many, "nobody's"), MR_STATE_NONE);
}

/* By queue, type and payload, where it has no key: the same one meets the same server. */
static void test_what_is_unique_without_a_key_is_so_over_all_servers(void **state)
{
    struct world *w = *state;
    size_t used = 0;
    open_many(w, SERVERS);
    for (size_t i = 0; i < 12; i++) {
        for (size_t again = 0; again < 2 * SERVERS; again++) {
            char payload[16];
            (void)snprintf(payload, sizeof payload, "p%zu", i);
            struct mr_task_options task = {.queue = MR_SLICE_LIT("q"),
                                           .payload = mr_slice_str(payload),
                                           .unique_ms = MR_MS_PER_DAY};
            struct mr_enqueue_result result;
            struct mr_req_enqueue req = {
                .req = {.op = MR_OP_ENQUEUE}, .tasks = &task, .n = 1, .results = &result};
            assert_int_equal(mr_broker_call(w->many, &req.req), MR_OK);
            mr_req_done(&req.req);
            assert_int_equal(result.err, again == 0 ? MR_OK : MR_DUPLICATE);
        }
    }
    for (size_t i = 0; i < SERVERS; i++)
        used += count_at(w, i, MR_PENDING) > 0;
    assert_true(used > 1);
}

enum { BATCH = 30 };

/* A call with tasks t0, t1 ... */
struct batch {
    struct mr_task_options tasks[BATCH];
    struct mr_enqueue_result results[BATCH];
    struct mr_req_enqueue req;
    char ids[BATCH][16];
};

static void batch_init(struct batch *batch)
{
    *batch = (struct batch){
        .req = {
            .req.op = MR_OP_ENQUEUE, .tasks = batch->tasks, .n = BATCH, .results = batch->results}};
    for (size_t i = 0; i < BATCH; i++) {
        (void)snprintf(batch->ids[i], sizeof batch->ids[i], "t%zu", i);
        batch->tasks[i] =
            (struct mr_task_options){.queue = MR_SLICE_LIT("q"), .id = mr_slice_str(batch->ids[i])};
    }
}

static void test_a_batch_of_ids_is_split_and_each_has_its_answer(void **state)
{
    struct world *w = *state;
    struct batch batch;
    open_many(w, SERVERS);
    assert_int_equal(put(w->many, "t7").err, MR_OK);
    batch_init(&batch);
    assert_int_equal(mr_broker_call(w->many, &batch.req.req), MR_OK);
    mr_req_done(&batch.req.req);
    for (size_t i = 0; i < BATCH; i++) {
        assert_int_equal(batch.results[i].err, i == 7 ? MR_CONFLICT : MR_OK);
        assert_string_equal(batch.results[i].id, batch.ids[i]);
    }
    assert_int_equal(count(w->many, MR_PENDING), BATCH);
}

/* Which servers get them is decided when there are some: else who sends one of them again would send it elsewhere. */
static void test_a_batch_that_waited_for_servers_is_where_each_id_is_looked_for(void **state)
{
    struct world *w = *state;
    struct batch batch;
    struct mr_event done;
    open_many(w, SERVERS);
    set_servers(w, 0, 0);
    batch_init(&batch);
    batch.tasks[0].id = (struct mr_slice){0};
    mr_event_init(&done);
    batch.req.req.done = answered;
    batch.req.req.arg = &done;
    mr_broker_submit(w->many, &batch.req.req);
    set_servers(w, 0, SERVERS);
    assert_true(mr_event_wait(&done, WAIT_MS * MR_NS_PER_MS));
    assert_int_equal(batch.req.req.err, MR_OK);
    mr_req_done(&batch.req.req);
    for (size_t i = 0; i < BATCH; i++) {
        assert_int_equal(batch.results[i].err, MR_OK);
        if (i > 0) /* the first has no id of its producer's: it is anywhere */
            assert_int_equal(put(w->many, batch.ids[i]).err, MR_CONFLICT);
    }
}

/* What is left of a share goes on by the id of each task, too, not behind that of the first one. */
static void test_what_one_server_has_no_room_for_is_split_again(void **state)
{
    struct world *w = *state;
    struct server *s = &w->servers[0];
    struct full_broker full = {{&full_broker_ops}, s->store};
    struct batch batch;
    server_rig_stop(&s->rig, 0);
    assert_int_equal(server_rig_start(&s->rig, &full.broker), MR_OK);
    open_many(w, SERVERS);
    batch_init(&batch);
    assert_int_equal(mr_broker_call(w->many, &batch.req.req), MR_OK);
    mr_req_done(&batch.req.req);
    for (size_t i = 0; i < BATCH; i++) {
        assert_int_equal(batch.results[i].err, MR_OK);
        assert_int_equal(put(w->many, batch.ids[i]).err, MR_CONFLICT);
    }
    assert_int_equal(count_at(w, 0, MR_PENDING), 0);
    mr_broker_close(w->many);
    w->many = NULL;
    server_down(s); /* before what stands between goes */
}

static void test_a_dead_server_is_passed_over_and_a_new_one_used(void **state)
{
    struct world *w = *state;
    open_many(w, 2);
    server_down(&w->servers[0]);
    for (size_t i = 0; i < 20; i++)
        assert_int_equal(put(w->many, "").err, MR_OK);
    assert_int_equal(count_at(w, 1, MR_PENDING), 20);
    set_servers(w, 1, 2);
    mr_mono since = now();
    while (count_at(w, 2, MR_PENDING) == 0) {
        assert_int_equal(put(w->many, "").err, MR_OK);
        look_for(since, "a new server is used");
    }
    server_up(&w->servers[0]); /* it is in no list any more */
    for (size_t i = 0; i < 20; i++)
        assert_int_equal(put(w->many, "").err, MR_OK);
    assert_int_equal(count_at(w, 0, MR_PENDING), 0);
}

struct putting {
    struct mr_broker *many;
    struct mr_enqueue_result result;
};

static void *put_main(void *arg)
{
    struct putting *putting = arg;
    putting->result = put(putting->many, "doubtful");
    return NULL;
}

static void test_what_was_sent_goes_to_no_other_server(void **state)
{
    struct world *w = *state;
    struct putting putting;
    pthread_t thread;
    open_many(w, SERVERS);
    putting.many = w->many;
    for (size_t i = 0; i < SERVERS; i++)
        w->servers[i].net.mute = true;
    assert_int_equal(mr_thread_start(&thread, "put", put_main, &putting), MR_OK);
    uint64_t there = 0;
    WAIT_UNTIL((there = count_at(w, 0, MR_PENDING) + count_at(w, 1, MR_PENDING) +
                        count_at(w, 2, MR_PENDING)) == 1);
    for (size_t i = 0; i < SERVERS; i++) {
        if (count_at(w, i, MR_PENDING) == 1) {
            w->servers[i].net.refuse = true;
            forwarder_cut(&w->servers[i].net);
        }
        w->servers[i].net.mute = false;
    }
    mr_thread_join(thread);
    assert_int_equal(putting.result.err, MR_UNAVAILABLE);
    assert_true(putting.result.unknown);
    assert_string_equal(putting.result.id, "doubtful");
    there = 0;
    for (size_t i = 0; i < SERVERS; i++)
        there += count_at(w, i, MR_PENDING);
    assert_int_equal(there, 1);
}

static void test_without_a_server_it_is_certain_that_nothing_is_there(void **state)
{
    struct world *w = *state;
    open_many(w, SERVERS);
    for (size_t i = 0; i < SERVERS; i++)
        server_down(&w->servers[i]);
    struct mr_enqueue_result result;
    mr_mono since = now();
    do {
        result = put(w->many, "");
        look_for(since, "nobody is there");
    } while (result.unknown);
    assert_int_equal(result.err, MR_UNAVAILABLE);
}

/* ---- looking -------------------------------------------------------------------------------- */

static void test_pages_go_over_all_servers(void **state)
{
    enum { N = 25, LIMIT = 4 };
    struct world *w = *state;
    char cursor[MR_CURSOR_MAX] = "";
    size_t seen = 0, pages = 0;
    open_many(w, SERVERS);
    for (size_t i = 0; i < N; i++)
        assert_int_equal(put(w->many, "").err, MR_OK);
    do {
        struct mr_req_list req = {
            .req = {.op = MR_OP_LIST},
            .options = {
                .queue = MR_SLICE_LIT("q"), .state = MR_PENDING, .limit = LIMIT, .cursor = cursor}};
        assert_int_equal(mr_broker_call(w->many, &req.req), MR_OK);
        /* All pages but the last are full, and none is empty. */
        assert_true(req.n == LIMIT || (req.n == N % LIMIT && req.next[0] == '\0'));
        seen += req.n;
        pages++;
        memcpy(cursor, req.next, sizeof cursor);
        mr_req_done(&req.req);
    } while (cursor[0] != '\0' && pages < N);
    assert_int_equal(seen, N);
}

/* Nobody says that there is more when the last task of all was shown. */
static void test_a_page_that_has_all_says_so(void **state)
{
    struct world *w = *state;
    open_many(w, SERVERS);
    for (size_t i = 0; i < 4; i++)
        assert_int_equal(put(w->servers[0].store, "").err, MR_OK);
    struct mr_req_list req = {
        .req = {.op = MR_OP_LIST},
        .options = {.queue = MR_SLICE_LIT("q"), .state = MR_PENDING, .limit = 4}};
    assert_int_equal(mr_broker_call(w->many, &req.req), MR_OK);
    assert_int_equal(req.n, 4);
    assert_string_equal(req.next, "");
    mr_req_done(&req.req);
}

/* Whoever is asked first: it is enough that one of them has a group that is ripe. */
static void test_a_group_is_gathered_without_waiting_wherever_it_is(void **state)
{
    struct world *w = *state;
    open_many(w, SERVERS);
    for (size_t i = 0; i < 2 * SERVERS; i++) {
        struct mr_task_options task = {.queue = MR_SLICE_LIT("q"), .group = MR_SLICE_LIT("g")};
        struct mr_enqueue_result result;
        struct mr_req_enqueue put = {
            .req = {.op = MR_OP_ENQUEUE}, .tasks = &task, .n = 1, .results = &result};
        assert_int_equal(mr_broker_call(w->servers[i % SERVERS].store, &put.req), MR_OK);
        mr_req_done(&put.req);
        struct mr_req_gather gather = {.req = {.op = MR_OP_GATHER},
                                       .queue = MR_SLICE_LIT("q"),
                                       .max_size = 1,
                                       .grace_ms = MR_MS_PER_DAY};
        assert_int_equal(mr_broker_call(w->many, &gather.req), MR_OK);
        assert_int_equal(gather.n, 1);
        mr_req_done(&gather.req);
    }
}

static void test_a_verb_reaches_the_task_wherever_it_is(void **state)
{
    enum { N = 12 };
    struct world *w = *state;
    struct mr_control items[N + 1];
    enum mr_err errs[N + 1];
    char ids[N][16];
    open_many(w, SERVERS);
    for (size_t i = 0; i < N; i++) {
        (void)snprintf(ids[i], sizeof ids[i], "v%zu", i);
        assert_int_equal(put(w->many, ids[i]).err, MR_OK);
        items[i] = (struct mr_control){.verb = MR_VERB_DELETE, .id = mr_slice_str(ids[i])};
    }
    items[N] = (struct mr_control){.verb = MR_VERB_DELETE, .id = MR_SLICE_LIT("none")};
    struct mr_req_control req = {
        .req = {.op = MR_OP_CONTROL}, .items = items, .n = N + 1, .errs = errs};
    assert_int_equal(mr_broker_call(w->many, &req.req), MR_OK);
    mr_req_done(&req.req);
    for (size_t i = 0; i < N; i++)
        assert_int_equal(errs[i], MR_OK);
    assert_int_equal(errs[N], MR_NOT_FOUND);
    assert_int_equal(count(w->many, MR_PENDING), 0);
}

static enum mr_err pause_queue(struct world *w, uint64_t value)
{
    struct mr_req_queue_set req = {.req = {.op = MR_OP_QUEUE_SET},
                                   .queue = MR_SLICE_LIT("q"),
                                   .setting = MR_QUEUE_PAUSED,
                                   .value = value};
    enum mr_err err = mr_broker_call(w->many, &req.req);
    mr_req_done(&req.req);
    return err;
}

/* Also where its first task comes later. */
static void test_a_queue_that_is_paused_is_so_at_all_servers(void **state)
{
    struct world *w = *state;
    struct mr_lease *lease;
    size_t n;
    open_many(w, SERVERS);
    open_node(w, LEASE_MS);
    assert_int_equal(pause_queue(w, 1), MR_NOT_FOUND);
    assert_int_equal(put(w->servers[1].store, "first").err, MR_OK);
    assert_int_equal(pause_queue(w, 1), MR_OK);
    for (size_t i = 0; i < SERVERS; i++)
        assert_int_equal(put(w->servers[i].store, "").err, MR_OK);
    assert_int_equal(take(w, 1, 100, &lease, &n), MR_EMPTY);
    assert_int_equal(pause_queue(w, 0), MR_OK);
    for (size_t i = 0; i < SERVERS + 1; i++) {
        lease = take_one(w);
        assert_int_equal(finish(w, lease), MR_OK);
        mr_lease_free(lease);
    }
}

/* What it runs is counted wherever it was taken. */
static void test_a_node_is_shown_as_busy_as_it_is(void **state)
{
    struct world *w = *state;
    struct mr_lease *leases[SERVERS];
    open_many(w, SERVERS);
    open_node(w, LEASE_MS);
    for (size_t i = 0; i < SERVERS; i++) {
        assert_int_equal(put(w->servers[i].store, "").err, MR_OK);
        leases[i] = take_one(w);
        mr_broker_begun(w->many, w->first_slot + (uint32_t)i, leases[i]->epoch);
    }
    uint32_t busy = 0;
    for (mr_mono since = now(); busy != SERVERS;) {
        struct mr_req_node_list req = {.req = {.op = MR_OP_NODE_LIST}};
        assert_int_equal(mr_broker_call(w->many, &req.req), MR_OK);
        assert_int_equal(req.n, 1);
        assert_int_equal(req.nodes[0].in_hand, SERVERS);
        busy = req.nodes[0].busy;
        mr_req_done(&req.req);
        look_for(since, "all slots are busy");
    }
    for (size_t i = 0; i < SERVERS; i++)
        mr_lease_free(leases[i]);
}

static void test_what_a_dead_server_may_have_is_not_said_to_be_missing(void **state)
{
    struct world *w = *state;
    open_many(w, SERVERS);
    server_down(&w->servers[0]);
    struct mr_many_server found[MR_MANY_SERVERS_MAX];
    WAIT_UNTIL(mr_many_servers(w->many, found) == SERVERS && !found[0].up);
    struct mr_req_get req = {.req = {.op = MR_OP_GET}, .id = MR_SLICE_LIT("perhaps")};
    assert_int_equal(mr_broker_call(w->many, &req.req), MR_UNAVAILABLE);
    mr_req_done(&req.req);
}

static void test_a_node_at_all_servers_is_listed_once(void **state)
{
    struct world *w = *state;
    open_many(w, SERVERS);
    open_node(w, LEASE_MS);
    await_attached(w, SERVERS);
    struct mr_req_node_list req = {.req = {.op = MR_OP_NODE_LIST}};
    assert_int_equal(mr_broker_call(w->many, &req.req), MR_OK);
    assert_int_equal(req.n, 1);
    mr_req_done(&req.req);
}

/* ---- routing alone -------------------------------------------------------------------------- */

/* When a server goes, what was its own is spread over the others, and nothing else moves. */
static void test_only_the_keys_of_a_server_that_goes_move(void **state)
{
    enum { KEYS = 3000, N = 4 };
    uint64_t servers[N];
    size_t before[N] = {0}, after[N] = {0};
    (void)state;
    for (size_t i = 0; i < N; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "10.0.0.%zu:7401", i);
        servers[i] = mr_many_hash(mr_slice_str(name));
    }
    for (size_t i = 0; i < KEYS; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "timer-%zu", i);
        uint64_t key = mr_many_hash(mr_slice_str(name));
        size_t first = 0, second = 1;
        for (size_t j = 0; j < N; j++)
            first = mr_many_rank(key, servers[j]) > mr_many_rank(key, servers[first]) ? j : first;
        second = first == 0 ? 1 : 0;
        for (size_t j = 0; j < N; j++)
            if (j != first && mr_many_rank(key, servers[j]) > mr_many_rank(key, servers[second]))
                second = j;
        before[first]++;
        after[first == 0 ? second : first]++;
    }
    for (size_t i = 0; i < N; i++)
        assert_true(before[i] > KEYS / N * 8 / 10 && before[i] < KEYS / N * 12 / 10);
    assert_int_equal(after[0], 0);
    for (size_t i = 1; i < N; i++)
        assert_true(after[i] > before[i] + before[0] / 5 && after[i] < before[i] + before[0] / 2);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_tasks_go_to_the_servers_in_turn),
        TEST(test_the_same_id_meets_the_same_server),
        TEST(test_what_is_unique_without_a_key_is_so_over_all_servers),
        TEST(test_a_batch_of_ids_is_split_and_each_has_its_answer),
        TEST(test_a_batch_that_waited_for_servers_is_where_each_id_is_looked_for),
        TEST(test_what_one_server_has_no_room_for_is_split_again),
        TEST(test_a_dead_server_is_passed_over_and_a_new_one_used),
        TEST(test_what_was_sent_goes_to_no_other_server),
        TEST(test_without_a_server_it_is_certain_that_nothing_is_there),
        TEST(test_pages_go_over_all_servers),
        TEST(test_a_page_that_has_all_says_so),
        TEST(test_a_group_is_gathered_without_waiting_wherever_it_is),
        TEST(test_a_verb_reaches_the_task_wherever_it_is),
        TEST(test_what_a_dead_server_may_have_is_not_said_to_be_missing),
        TEST(test_a_queue_that_is_paused_is_so_at_all_servers),
        TEST(test_a_node_is_shown_as_busy_as_it_is),
        TEST(test_a_node_at_all_servers_is_listed_once),
        cmocka_unit_test(test_only_the_keys_of_a_server_that_goes_move),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
