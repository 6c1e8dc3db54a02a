/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Conformance: many threads on one broker. The threads only call and write down; the test's own
 * thread asserts when they have ended.
 */
#include <stdio.h>

#include "conform/conform.h"

enum { THREADS = 8, TASKS = 4000, DELETERS = 4 };

/* What the threads of one test share. */
struct crowd {
    struct conform *t;
    uint64_t node;
    _Atomic uint32_t taken[TASKS];   /* how often each task was handed out */
    _Atomic uint32_t deleted[TASKS]; /* how often a delete of it said OK */
    _Atomic uint32_t wrong;          /* answers that must not be */
    _Atomic uint32_t left;           /* tasks not yet finished or deleted */
};

struct member {
    struct crowd *crowd;
    size_t index;
    pthread_t thread;
};

static size_t number_of(struct mr_slice id)
{
    char text[16] = {0};
    memcpy(text, id.data, id.len < sizeof text - 1 ? id.len : sizeof text - 1);
    return strtoul(text + 1, NULL, 10);
}

static void finish_taken(struct crowd *crowd, struct mr_lease *lease)
{
    struct mr_broker *broker = crowd->t->broker;
    enum mr_err err = mr_broker_lease_open(broker, lease);
    if (err != MR_OK) {
        crowd->wrong++;
        return;
    }
    crowd->taken[number_of(lease->task.id) % TASKS]++;
    struct mr_finish item = {.id = lease->task.id, .epoch = lease->epoch, .ref = lease->ref};
    struct mr_req_finish req = {.req.op = MR_OP_FINISH, .items = &item, .n = 1, .errs = &err};
    if (mr_broker_call(broker, &req.req) != MR_OK || err != MR_OK)
        crowd->wrong++;
    mr_req_done(&req.req);
    crowd->left--;
}

static void *take_and_finish(void *arg)
{
    struct member *member = arg;
    struct crowd *crowd = member->crowd;
    while (crowd->left > 0 && crowd->wrong == 0) {
        struct mr_req_take req = {
            .req.op = MR_OP_TAKE, .node = crowd->node, .max = 4, .wait_ms = 20};
        enum mr_err err = mr_broker_call(crowd->t->broker, &req.req);
        struct mr_lease *lease = err == MR_OK ? req.leases : NULL;
        mr_req_done(&req.req);
        if (err != MR_OK && err != MR_EMPTY)
            crowd->wrong++;
        while (lease != NULL) {
            struct mr_lease *next = lease->next;
            finish_taken(crowd, lease);
            mr_lease_free(lease);
            lease = next;
        }
    }
    return NULL;
}

static void *delete_some(void *arg)
{
    struct member *member = arg;
    struct crowd *crowd = member->crowd;
    for (size_t i = member->index; i < TASKS; i += DELETERS) {
        char id[16];
        /* From the far end, so that the deletes meet the takes half-way. */
        size_t number = TASKS - 1 - i;
        (void)snprintf(id, sizeof id, "t%zu", number);
        struct mr_control item = {.verb = MR_VERB_DELETE, .id = mr_slice_str(id)};
        enum mr_err err;
        struct mr_req_control req = {.req.op = MR_OP_CONTROL, .items = &item, .n = 1, .errs = &err};
        if (mr_broker_call(crowd->t->broker, &req.req) != MR_OK)
            crowd->wrong++;
        mr_req_done(&req.req);
        if (err == MR_OK) {
            crowd->deleted[number]++;
            crowd->left--;
        } else if (err != MR_RUNNING && err != MR_NOT_FOUND) {
            crowd->wrong++;
        }
    }
    return NULL;
}

static void start(struct member *member, struct crowd *crowd, size_t index, void *(*run)(void *))
{
    *member = (struct member){.crowd = crowd, .index = index};
    assert_err(mr_thread_start(&member->thread, "crowd", run, member), MR_OK);
}

static struct crowd *crowd_new(struct conform *t)
{
    struct crowd *crowd = calloc(1, sizeof *crowd);
    assert_non_null(crowd);
    crowd->t = t;
    crowd->node = NODE(t, .slots = 64)->node;
    crowd->left = TASKS;
    conform_put_many(t, "default", "t", TASKS);
    return crowd;
}

static void many_threads_of_a_node_run_each_task_once(void **state)
{
    struct conform *t = *state;
    struct crowd *crowd = crowd_new(t);
    struct member members[THREADS];
    for (size_t i = 0; i < THREADS; i++)
        start(&members[i], crowd, i, take_and_finish);
    for (size_t i = 0; i < THREADS; i++)
        mr_thread_join(members[i].thread);
    assert_int_equal(crowd->wrong, 0);
    for (size_t i = 0; i < TASKS; i++)
        assert_int_equal(crowd->taken[i], 1);
    struct mr_queue_info queue = conform_queue(t, "default");
    assert_int_equal(queue.counts[MR_ACTIVE], 0);
    assert_int_equal(queue.counts[MR_PENDING], 0);
    assert_int_equal(queue.processed_total, TASKS);
    free(crowd);
}

static void a_task_is_either_deleted_or_run(void **state)
{
    struct conform *t = *state;
    struct crowd *crowd = crowd_new(t);
    struct member takers[THREADS], deleters[DELETERS];
    for (size_t i = 0; i < THREADS; i++)
        start(&takers[i], crowd, i, take_and_finish);
    for (size_t i = 0; i < DELETERS; i++)
        start(&deleters[i], crowd, i, delete_some);
    for (size_t i = 0; i < DELETERS; i++)
        mr_thread_join(deleters[i].thread);
    for (size_t i = 0; i < THREADS; i++)
        mr_thread_join(takers[i].thread);
    assert_int_equal(crowd->wrong, 0);
    uint32_t deleted = 0;
    for (size_t i = 0; i < TASKS; i++) {
        assert_int_equal(crowd->taken[i] + crowd->deleted[i], 1);
        deleted += crowd->deleted[i];
    }
    assert_int_equal(conform_stats_now(t).deleted, deleted);
    assert_int_equal(conform_stats_now(t).tasks, 0);
    free(crowd);
}

/* ---- order of submission -------------------------------------------------------------------- */

enum { FLIGHT = 200 };

struct flight {
    struct mr_req_enqueue req;
    struct mr_task_options task;
    struct mr_enqueue_result result;
    char id[16];
    _Atomic uint32_t *landed;
    uint32_t place; /* in the order of the answers */
};

static void landed(struct mr_req *req)
{
    struct flight *flight = req->arg;
    flight->place = atomic_fetch_add(flight->landed, 1);
}

static void requests_of_one_thread_are_carried_out_in_order(void **state)
{
    struct conform *t = *state;
    struct flight *flights = calloc(FLIGHT, sizeof *flights);
    assert_non_null(flights);
    _Atomic uint32_t answers = 0;
    for (uint32_t i = 0; i < FLIGHT; i++) {
        struct flight *flight = &flights[i];
        (void)snprintf(flight->id, sizeof flight->id, "t%u", i);
        flight->task.id = mr_slice_str(flight->id);
        flight->landed = &answers;
        flight->req =
            (struct mr_req_enqueue){.req = {.op = MR_OP_ENQUEUE, .done = landed, .arg = flight},
                                    .tasks = &flight->task,
                                    .n = 1,
                                    .results = &flight->result};
        mr_broker_submit(t->broker, &flight->req.req);
    }
    WAIT_UNTIL(answers == FLIGHT);
    struct conform_node *node = NODE(t);
    for (uint32_t i = 0; i < FLIGHT; i++) {
        assert_err(flights[i].req.req.err, MR_OK);
        assert_err(flights[i].result.err, MR_OK);
        assert_int_equal(flights[i].place, i);
        mr_req_done(&flights[i].req.req);
        FINISH_OK(t, conform_take_id(t, node, flights[i].id), .outcome = MR_DONE);
    }
    free(flights);
}

/* Also when the two go different ways, as over a network. */
static void a_look_behind_an_enqueue_finds_the_task(void **state)
{
    struct conform *t = *state;
    struct flight *flights = calloc(FLIGHT, sizeof *flights);
    assert_non_null(flights);
    _Atomic uint32_t answers = 0;
    for (uint32_t i = 0; i < FLIGHT; i++) {
        struct flight *flight = &flights[i];
        (void)snprintf(flight->id, sizeof flight->id, "t%u", i);
        flight->task.id = mr_slice_str(flight->id);
        flight->landed = &answers;
        flight->req =
            (struct mr_req_enqueue){.req = {.op = MR_OP_ENQUEUE, .done = landed, .arg = flight},
                                    .tasks = &flight->task,
                                    .n = 1,
                                    .results = &flight->result};
        mr_broker_submit(t->broker, &flight->req.req);
        assert_int_equal(conform_state(t, flight->id), MR_PENDING);
    }
    WAIT_UNTIL(answers == FLIGHT);
    for (uint32_t i = 0; i < FLIGHT; i++)
        mr_req_done(&flights[i].req.req);
    free(flights);
}

static void closing_answers_everything_in_flight(void **state)
{
    struct conform *t = *state;
    struct conform_node *node = NODE(t);
    struct conform_take take;
    conform_take_start(t, &take, node, 1, 600000);
    struct flight *flights = calloc(FLIGHT, sizeof *flights);
    assert_non_null(flights);
    _Atomic uint32_t answers = 0;
    for (uint32_t i = 0; i < FLIGHT; i++) {
        struct flight *flight = &flights[i];
        flight->task.queue = MR_SLICE_LIT("elsewhere");
        flight->landed = &answers;
        flight->req =
            (struct mr_req_enqueue){.req = {.op = MR_OP_ENQUEUE, .done = landed, .arg = flight},
                                    .tasks = &flight->task,
                                    .n = 1,
                                    .results = &flight->result};
        mr_broker_submit(t->broker, &flight->req.req);
    }
    mr_broker_close(t->broker);
    t->broker = NULL;
    assert_int_equal(answers, FLIGHT);
    for (uint32_t i = 0; i < FLIGHT; i++) {
        assert_true(flights[i].req.req.err == MR_OK || flights[i].req.req.err == MR_CLOSED);
        mr_req_done(&flights[i].req.req);
    }
    assert_true(mr_event_wait(&take.done, 0));
    assert_err(take.req.req.err, MR_CLOSED);
    mr_req_done(&take.req.req);
    free(flights);
}

int conform_threads(const struct conform_engine *engine)
{
    static struct CMUnitTest tests[] = {
        CONFORM_TEST(many_threads_of_a_node_run_each_task_once),
        CONFORM_TEST(a_task_is_either_deleted_or_run),
        CONFORM_TEST(requests_of_one_thread_are_carried_out_in_order),
        CONFORM_TEST(a_look_behind_an_enqueue_finds_the_task),
        CONFORM_TEST(closing_answers_everything_in_flight),
    };
    return CONFORM_RUN(engine, "threads", tests);
}
