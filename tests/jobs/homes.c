/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Servers that share a store, each with a broker of its own: the parts of a queue's jobs are handed out by who holds the lease of the
 * queue, and by nobody else (design: a server cluster). Whatever MR_JOBS says, the brokers are embedded ones.
 */
#include <stdio.h>

#include "broker/embedded/embedded.h"
#include "jobs/child.h"
#include "jobs/rig.h"

enum { PARTS = 10, LEASE_MS = 600 };

/* A server: a broker, and the service and worker of the same number. */
struct home {
    struct mr_broker *broker;
};

static void home_open(struct rig *rig, struct home *home, size_t i)
{
    char dir[128];
    struct mr_detail detail = {.text = ""};
    snprintf(dir, sizeof dir, "%s/home-%zu", rig->dir, i);
    struct mr_embedded_options options = {.dir = dir, .segment_bytes = 1 << 20};
    if (mr_embedded_open(&options, &home->broker, &detail) != MR_OK)
        fail_msg("%s", detail.text);
}

static void home_serve(struct rig *rig, const struct home *home, size_t i)
{
    struct mr_broker *broker = rig->broker;
    rig->broker = home->broker;
    rig->gate = mr_embedded_gate(home->broker);
    rig_serve(rig, i);
    rig->broker = broker;
    rig->gate = NULL;
}

static void home_work(struct rig *rig, const struct home *home, size_t i, uint32_t slots)
{
    struct mr_broker *broker = rig->broker;
    rig->broker = home->broker;
    rig_work(rig, i, slots);
    rig->broker = broker;
}

static uint64_t waiting_at(const struct home *home)
{
    struct mr_queue_info info = {0};
    struct mr_req_queue_list req = {
        .req.op = MR_OP_QUEUE_LIST, .only = MR_SLICE_LIT("default"), .infos = &info, .max = 1};
    assert_int_equal(mr_broker_call(home->broker, &req.req), MR_OK);
    mr_req_done(&req.req);
    return info.counts[MR_PENDING] + info.counts[MR_SCHEDULED];
}

static void put_plain(const struct home *home, const char *payload)
{
    struct mr_task_options task = {.type = rig_echo[0], .payload = mr_slice_str(payload)};
    struct mr_enqueue_result result;
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = &task, .n = 1, .results = &result};
    assert_int_equal(mr_broker_call(home->broker, &req.req), MR_OK);
    assert_int_equal(result.err, MR_OK);
    mr_req_done(&req.req);
}

/* So often something with this payload was begun. */
static size_t runs_of(struct rig *rig, const char *payload)
{
    size_t n = 0, len = strlen(payload);
    mr_lock_enter(&rig->lock);
    for (const char *at = rig->order; at != NULL && *at != '\0'; at = strchr(at, '\n') + 1)
        n += strncmp(at, payload, len) == 0 && at[len] == '\n';
    mr_lock_leave(&rig->lock);
    return n;
}

static struct rig *make(void)
{
    struct rig *rig = rig_make();
    rig->settings.lease_ms = LEASE_MS;
    rig->settings.renew_ms = 100;
    rig->settings.look_ms = 50;
    rig->settings.reconcile_ms = 300;
    return rig;
}

/* The first part lasts for a moment, the others until they are let go. All are in the broker, and one runs. */
static void submit(struct rig *rig, const struct home *home, char id[RIG_ID_MAX])
{
    char texts[PARTS][16];
    struct mr_slice parts[PARTS] = {MR_SLICE_LIT("sleep 300")};
    for (size_t i = 1; i < PARTS; i++) {
        (void)snprintf(texts[i], sizeof texts[i], "hold %zu", i);
        parts[i] = mr_slice_str(texts[i]);
    }
    home_work(rig, home, 0, 1);
    rig_load_parts(rig, RIG_JOB(), parts, PARTS, id);
    RIG_UNTIL(rig_parts(rig, id, MR_PART_SUBMITTED) == PARTS);
}

/* Those that waited when the queue changed hands; the first two had begun. */
static void check_once(struct rig *rig)
{
    for (size_t i = 2; i < PARTS; i++) {
        char payload[16];
        (void)snprintf(payload, sizeof payload, "hold %zu", i);
        if (runs_of(rig, payload) != 1)
            fail_msg("%s was begun %zu times", payload, runs_of(rig, payload));
    }
}

/* Its service stands still, and another server gets the queue: then its broker hands out no more parts, whatever its workers ask for. When
 * it goes on, it drops what waits. */
static void test_102_who_has_lost_a_queue_hands_out_nothing_of_it(void **state)
{
    struct rig *rig = make();
    struct home homes[2];
    struct mr_job_health health;
    char id[RIG_ID_MAX];
    (void)state;
    home_open(rig, &homes[0], 0);
    home_open(rig, &homes[1], 1);
    home_serve(rig, &homes[0], 0);
    submit(rig, &homes[0], id);
    rig_freeze(rig, 0); /* with the result of the first part in hand; the second one runs */
    RIG_UNTIL(runs_of(rig, "hold 1") == 1);
    home_serve(rig, &homes[1], 1);
    RIG_UNTIL((rig_health(rig, 1, &health), health.queues == 1));
    atomic_store(&rig->let_go, true);
    put_plain(&homes[0], "plain"); /* that is no part: it goes by them all */
    RIG_UNTIL(runs_of(rig, "plain") == 1);
    assert_int_equal(waiting_at(&homes[0]), PARTS - 2);
    rig_thaw(rig, 0);
    RIG_UNTIL((rig_health(rig, 0, &health), health.moved == PARTS - 2));
    assert_int_equal(waiting_at(&homes[0]), 0);
    home_work(rig, &homes[1], 1, 2);
    rig_await_end(rig, id);
    assert_int_equal(rig_state(rig, id), MR_JOB_SUCCEEDED);
    check_once(rig);
    for (size_t i = 0; i < 2; i++) {
        rig_unwork(rig, i);
        rig_unserve(rig, i);
        mr_broker_close(homes[i].broker);
    }
    rig_free(rig);
}

/* The lease of its own last life keeps a server from the queue for a while: what waits is kept until then. */
static void test_102_who_comes_back_goes_on_with_its_own_parts(void **state)
{
    struct rig *rig = make();
    struct home home;
    struct mr_job_health health;
    char id[RIG_ID_MAX];
    (void)state;
    home_open(rig, &home, 0);
    home_serve(rig, &home, 0);
    submit(rig, &home, id);
    rig_freeze(rig, 0); /* as if it had died */
    RIG_UNTIL(runs_of(rig, "hold 1") == 1);
    home_serve(rig, &home, 1);
    atomic_store(&rig->let_go, true);
    RIG_UNTIL((rig_health(rig, 1, &health), health.queues == 1));
    RIG_UNTIL(rig_ended(rig, id) >= PARTS - 1);
    rig_health(rig, 1, &health);
    assert_int_equal(health.moved, 0);
    assert_int_equal(health.resubmitted, 0);
    check_once(rig);
    rig_unwork(rig, 0);
    rig_unserve(rig, 0);
    rig_unserve(rig, 1);
    mr_broker_close(home.broker);
    rig_free(rig);
}

int jobs_homes(void)
{
    struct CMUnitTest tests[] = {
        cmocka_unit_test(test_102_who_has_lost_a_queue_hands_out_nothing_of_it),
        cmocka_unit_test(test_102_who_comes_back_goes_on_with_its_own_parts),
    };
    return JOBS_RUN("homes", tests);
}
