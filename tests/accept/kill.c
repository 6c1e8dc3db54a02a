/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Test 22: workers are processes, killed with SIGKILL at random instants and at every step of their talk
 * with the server; or their connection is cut there. Nothing is lost, and each task ends once.
 */
#include <stdio.h>

#include "accept/accept.h"
#include "accept/fault.h"
#include "accept/hand.h"
#include "base/rand.h"

#define TOPIC "news"

enum {
    TASKS_PER_KILL = 16,
    DELAY_US_MAX = 20000,
    SETTLE_AFTER = 48,
    SLOTS = 4,
    NOTICES = 2,
    NOTICED_MS = 1000
};

static size_t runs_of(struct accept *t, pid_t pid)
{
    size_t n, count = 0;
    struct accept_run *runs = accept_runs(t, &n);
    for (size_t i = 0; i < n; i++)
        count += runs[i].pid == pid;
    free(runs);
    return count;
}

static void pass_us(uint64_t us)
{
    mr_mono end = {accept_now().ns + (int64_t)us * 1000};
    while (accept_now().ns < end.ns)
        ;
}

static void kill_one(struct accept *t, struct mr_rand *rand, size_t i)
{
    char prefix[32];
    (void)snprintf(prefix, sizeof prefix, "k%zu-", i);
    if (!t->client)
        accept_open(t);
    /* Some that last a moment, between some that do not. */
    accept_put_many(t, prefix, TASKS_PER_KILL, &(struct accept_task){.payload = "p"});
    prefix[0] = 's';
    accept_put_many(t, prefix, TASKS_PER_KILL,
                    &(struct accept_task){.type = "sleep", .payload = "2"});
    prefix[0] = 'u';
    accept_put_many(t, prefix, TASKS_PER_KILL, &(struct accept_task){.unkept = true});
    if (!t->engine->shared)
        accept_close(t);
    pid_t pid = accept_spawn_worker(t, t->place[0].url, "default", SLOTS);
    UNTIL(runs_of(t, pid) > 0);
    pass_us(mr_rand_below(rand, DELAY_US_MAX) >> mr_rand_below(rand, 8));
    accept_kill_process(t, pid);
}

static void test_22_workers_killed_at_random_lose_nothing(void **state)
{
    struct accept *t = *state;
    struct mr_rand rand;
    const char *seed = getenv("MR_SEED");
    size_t kills = accept_size(200, 10);
    mr_rand_seed(&rand, seed ? strtoull(seed, NULL, 10) : 1);
    for (size_t i = 0; i < kills; i++)
        kill_one(t, &rand, i);
    if (!t->client)
        accept_open(t);
    mr_mono begin = accept_now();
    WORKER(t, .slots = SLOTS);
    UNTIL(accept_all_completed(t));
    print_message("%zu kills, %zu tasks, %zu runs, the last back after %lld ms\n", kills,
                  t->ids_n + t->unkept, accept_ran_all(t), (long long)accept_since_ms(begin));
}

/* Somebody else listens to the queue, and has nothing in hand. */
static void test_22_a_killed_worker_is_noticed_in_time(void **state)
{
    struct accept *t = *state;
    if (!t->engine->shared)
        return; /* whoever opens the folder next knows at once */
    struct hand *watch = hand_open(t, "watch", NULL, ACCEPT_DEATH_MS);
    mr_mono opened = accept_now();
    UNTIL((hand_beat(watch), accept_since_ms(opened) > 2 * ACCEPT_DEATH_MS));
    PUT(t, .id = "x", .type = "sleep", .payload = "20000");
    pid_t pid = accept_spawn_worker(t, t->place[0].url, "default", 1);
    UNTIL((hand_beat(watch), accept_ran(t, "x") == 1));
    accept_kill_process(t, pid);
    mr_mono died = accept_now();
    UNTIL((hand_beat(watch), accept_state(t, "x") == MR_PENDING));
    assert_in_range(accept_since_ms(died), 0, ACCEPT_DEATH_MS + NOTICED_MS);
    assert_err(accept_act(t, MR_VERB_DELETE, "x", 0), MR_OK);
    hand_close(watch);
}

/* ---- at each step --------------------------------------------------------------------------- */

/* Everything that was struck ends elsewhere. */
static void settle(struct accept *t, size_t queues_n)
{
    char queues[SETTLE_AFTER * 5 + 1] = "";
    size_t len = 0;
    for (size_t i = 0; i < queues_n; i++)
        len += (size_t)snprintf(queues + len, sizeof queues - len, "q%zu ", i);
    struct mr_worker *worker = WORKER(t, .queues = queues);
    UNTIL(accept_all_completed(t));
    accept_dismiss(t, worker);
}

static void proxy_url(const struct accept *t, const struct fault *fault, char url[ACCEPT_URL_MAX])
{
    (void)snprintf(url, ACCEPT_URL_MAX, "%s://127.0.0.1:%u",
                   t->place[0].redis ? "redis" : "millrace", fault->port);
}

/* Some tasks in a queue of their own, one worker, one strike. False: all was done before the step came. */
static bool strike_at(struct accept *t, struct fault *fault, size_t queue)
{
    char url[ACCEPT_URL_MAX], name[24], id[32];
    (void)snprintf(name, sizeof name, "q%zu", queue);
    uint64_t all = accept_count(t, name, MR_COMPLETED) + 3;
    fault->to = t->place[0].port;
    fault->redis = t->place[0].redis != NULL;
    PUT(t, .queue = name, .payload = "plain", .topic = TOPIC);
    PUT(t, .queue = name, .payload = "ahead", .topic = TOPIC, .priority_s = 5);
    PUT(t, .queue = name, .payload = "later", .topic = TOPIC, .delay_ms = 10);
    (void)snprintf(id, sizeof id, "u%zu-", t->unkept);
    accept_put_many(t, id, 1, &(struct accept_task){.queue = name, .unkept = true});
    fault_start(fault);
    proxy_url(t, fault, url);
    fault->victim = accept_spawn_worker(t, url, name, 2);
    bool ended = false;
    UNTIL(fault->fired || (ended = accept_count(t, name, MR_COMPLETED) == all));
    if (fault->kind == FAULT_CUT && !ended)
        UNTIL(accept_count(t, name, MR_COMPLETED) == all);
    bool fired = fault->fired;
    accept_kill_process(t, fault->victim);
    fault_stop(fault);
    return fired;
}

/* All steps until the end of the task, or every so many-th of them; *queue is the next free one. */
static size_t strike_at_steps(struct accept *t, struct fault like, size_t every, size_t *queue)
{
    size_t strikes = 0;
    for (size_t nth = 1 + (size_t)like.point % every;; nth += every, strikes++) {
        struct fault fault = {.point = like.point, .kind = like.kind, .nth = nth};
        bool fired = strike_at(t, &fault, (*queue)++);
        if (*queue == SETTLE_AFTER) {
            settle(t, *queue);
            *queue = 0;
        }
        if (!fired)
            return strikes;
    }
}

static void at_all_points(struct accept *t, enum fault_kind kind)
{
    static const char *const words[FAULT_POINTS] = {"before a request", "before an answer",
                                                    "after an answer"};
    size_t queue = 0, every = accept_size(1, 5);
    if (!t->engine->shared)
        return; /* its worker has no server: test 22 at random, and the crash points of the simulator */
    for (int point = 0; point < FAULT_POINTS; point++) {
        struct fault like = {.point = (enum fault_point)point, .kind = kind};
        size_t n = strike_at_steps(t, like, every, &queue);
        print_message("%zu strikes %s\n", n, words[point]);
        assert_true(n > 0);
    }
    settle(t, queue);
    accept_one_final_each(t, TOPIC);
}

static void test_22_workers_killed_at_each_step_lose_nothing(void **state)
{
    at_all_points(*state, FAULT_KILL);
}

static void test_22_connections_cut_at_each_step_lose_nothing(void **state)
{
    at_all_points(*state, FAULT_CUT);
}

int accept_kill(const struct accept_engine *engine)
{
    struct CMUnitTest tests[] = {
        ACCEPT_TEST(test_22_workers_killed_at_random_lose_nothing),
        ACCEPT_TEST(test_22_a_killed_worker_is_noticed_in_time),
        ACCEPT_TEST(test_22_workers_killed_at_each_step_lose_nothing),
        ACCEPT_TEST(test_22_connections_cut_at_each_step_lose_nothing),
    };
    return ACCEPT_RUN(engine, "B: kills", tests);
}
