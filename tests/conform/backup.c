/* SPDX-License-Identifier: Apache-2.0 */
/* Conformance: backup of a running broker. The copy opens and has everything acknowledged before
 * the call. */
#include <stdio.h>

#include "conform/conform.h"

enum { PRODUCERS = 4, EARLY = 200 };

static enum mr_err backup(struct conform *t, const char *dir)
{
    struct mr_req_backup req = {.req.op = MR_OP_BACKUP, .dir = dir};
    enum mr_err err = mr_broker_call(t->broker, &req.req);
    if (err != MR_OK)
        print_message("backup: %s\n", req.detail.text);
    mr_req_done(&req.req);
    return err;
}

/* Changes t over to the copy; answers the original, to be changed back. */
static struct mr_broker *turn_to_copy(struct conform *t)
{
    struct mr_broker *original = t->broker;
    assert_err(t->engine->open_copy(t->engine->arg, &t->broker), MR_OK);
    return original;
}

static void turn_back(struct conform *t, struct mr_broker *original)
{
    mr_broker_close(t->broker);
    t->broker = original;
}

static void a_copy_has_every_state_and_is_a_broker_of_its_own(void **state)
{
    struct conform *t = *state;
    conform_make_state(t, "retry", MR_RETRY);
    conform_make_state(t, "archived", MR_ARCHIVED);
    conform_make_state(t, "completed", MR_COMPLETED);
    conform_make_state(t, "scheduled", MR_SCHEDULED);
    conform_make_state(t, "active", MR_ACTIVE);
    conform_make_state(t, "pending", MR_PENDING);
    assert_err(backup(t, t->engine->backup_dir(t->engine->arg)), MR_OK);
    struct mr_broker *original = turn_to_copy(t);
    assert_int_equal(conform_stats_now(t).tasks, 6);
    assert_int_equal(conform_state(t, "retry"), MR_RETRY);
    assert_int_equal(conform_state(t, "archived"), MR_ARCHIVED);
    assert_int_equal(conform_state(t, "scheduled"), MR_SCHEDULED);
    assert_int_equal(conform_state(t, "active"), MR_PENDING);
    assert_int_equal(conform_state(t, "pending"), MR_PENDING);
    assert_slice(conform_get(t, "completed")->result, "result");
    assert_err(conform_act(t, MR_VERB_DELETE, "pending", 0), MR_OK);
    turn_back(t, original);
    assert_int_equal(conform_state(t, "pending"), MR_PENDING);
    assert_int_equal(conform_state(t, "active"), MR_ACTIVE);
}

/* A producer that also runs what it finds, and counts what was acknowledged. */
struct producer {
    struct conform *t;
    pthread_t thread;
    size_t index;
    _Atomic uint32_t acked;
    _Atomic bool stop;
    _Atomic uint32_t wrong;
};

static void *produce(void *arg)
{
    struct producer *producer = arg;
    while (!producer->stop) {
        char id[32];
        (void)snprintf(id, sizeof id, "p%zu-%u", producer->index, producer->acked);
        struct mr_task_options task = {.id = mr_slice_str(id), .payload = mr_slice_str(id)};
        struct mr_enqueue_result result;
        struct mr_req_enqueue req = {
            .req.op = MR_OP_ENQUEUE, .tasks = &task, .n = 1, .results = &result};
        enum mr_err err = mr_broker_call(producer->t->broker, &req.req);
        mr_req_done(&req.req);
        if (err != MR_OK || result.err != MR_OK) {
            producer->wrong++;
            break;
        }
        producer->acked++;
    }
    return NULL;
}

static void a_backup_under_load_has_all_that_was_acknowledged_before(void **state)
{
    struct conform *t = *state;
    static struct producer producers[PRODUCERS];
    uint32_t acked_before[PRODUCERS];
    for (size_t i = 0; i < PRODUCERS; i++) {
        producers[i] = (struct producer){.t = t, .index = i};
        assert_err(mr_thread_start(&producers[i].thread, "producer", produce, &producers[i]),
                   MR_OK);
    }
    for (size_t i = 0; i < PRODUCERS; i++) {
        WAIT_UNTIL(producers[i].acked >= EARLY || producers[i].wrong > 0);
        acked_before[i] = producers[i].acked;
    }
    enum mr_err err = backup(t, t->engine->backup_dir(t->engine->arg));
    for (size_t i = 0; i < PRODUCERS; i++)
        producers[i].stop = true;
    for (size_t i = 0; i < PRODUCERS; i++)
        mr_thread_join(producers[i].thread);
    assert_err(err, MR_OK);
    struct mr_broker *original = turn_to_copy(t);
    for (size_t i = 0; i < PRODUCERS; i++) {
        assert_int_equal(producers[i].wrong, 0);
        for (uint32_t k = 0; k < acked_before[i]; k++) {
            char id[32];
            (void)snprintf(id, sizeof id, "p%zu-%u", i, k);
            struct mr_req_get req = {.req.op = MR_OP_GET, .id = mr_slice_str(id)};
            assert_err(mr_broker_call(t->broker, &req.req), MR_OK);
            assert_slice(req.task.payload, id);
            mr_req_done(&req.req);
        }
    }
    turn_back(t, original);
    uint64_t all = 0;
    for (size_t i = 0; i < PRODUCERS; i++)
        all += producers[i].acked;
    assert_int_equal(conform_stats_now(t).tasks, all);
}

static void a_backup_never_overwrites(void **state)
{
    struct conform *t = *state;
    (void)PUT_OK(t, .id = MR_SLICE_LIT("x"));
    const char *dir = t->engine->backup_dir(t->engine->arg);
    assert_err(backup(t, dir), MR_OK);
    assert_err(conform_act(t, MR_VERB_DELETE, "x", 0), MR_OK);
    assert_int_not_equal(backup(t, dir), MR_OK);
    struct mr_broker *original = turn_to_copy(t);
    assert_int_equal(conform_state(t, "x"), MR_PENDING);
    turn_back(t, original);
}

int conform_backup(const struct conform_engine *engine)
{
    static struct CMUnitTest tests[] = {
        CONFORM_TEST(a_copy_has_every_state_and_is_a_broker_of_its_own),
        CONFORM_TEST(a_backup_under_load_has_all_that_was_acknowledged_before),
        CONFORM_TEST(a_backup_never_overwrites),
    };
    return engine->can_backup ? CONFORM_RUN(engine, "backup", tests) : 0;
}
