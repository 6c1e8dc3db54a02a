/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Part L, what befalls the whole system: workers that are killed, stopped and cut off at random while they
 * work, and networks through which nothing passes.
 */
#include <signal.h>
#include <stdio.h>

#include "accept/accept.h"
#include "accept/boss.h"
#include "accept/crew.h"

#define TOPIC "news"

enum { STRIKE_MS = 300, LATE_MS = 1000 };

static void url_through(struct accept *t, const struct forwarder *network, char url[ACCEPT_URL_MAX])
{
    (void)snprintf(url, ACCEPT_URL_MAX, "%s://127.0.0.1:%u",
                   t->place[0].redis ? "redis" : "millrace", network->port);
}

/* ---- networks ------------------------------------------------------------------------------- */

/* It fences itself while it is cut off, and what it says afterwards of its runs does not count. */
static void test_125_a_worker_that_is_cut_off_is_refused(void **state)
{
    struct accept *t = *state;
    char url[ACCEPT_URL_MAX];
    static struct forwarder network;
    if (!t->engine->shared)
        return; /* no network is in between */
    assert_err(forwarder_start(&network, t->place[0].port), MR_OK);
    url_through(t, &network, url);
    PUT(t, .id = "x", .type = "nap", .payload = "1000", .topic = TOPIC);
    PUT(t, .id = "y", .type = "first", .payload = "p", .topic = TOPIC);
    pid_t pid = PROCESS(t, url, .slots = 2);
    UNTIL(accept_ran_all(t) == 2);
    accept_pass_ms(ACCEPT_BEAT_MS); /* they are known to have begun */
    network.frozen = true;
    mr_mono cut = accept_now();
    struct mr_worker *other = WORKER(t, .node = "other");
    UNTIL(accept_told(t, "y") == 1);
    assert_in_range(accept_since_ms(cut), 0, ACCEPT_DEATH_MS + LATE_MS);
    accept_await_echo(t, "y");
    UNTIL(accept_since_ms(cut) > 2 * ACCEPT_DEATH_MS);
    network.frozen = false;
    accept_await_echo(t, "x");
    accept_dismiss(t, other);
    PUT(t, .id = "z", .payload = "p", .topic = TOPIC); /* it is a member again, by itself */
    accept_await_echo(t, "z");
    accept_end_process(t, pid);
    struct mr_worker_figures figures = accept_figures(t, pid);
    assert_int_equal(figures.done, 1);
    assert_int_equal(figures.failed, 0);
    assert_int_equal(accept_ran_all(t), 5);
    forwarder_stop(&network);
    accept_one_final_each(t, TOPIC);
}

/* All of them at once; what was put in meanwhile is done by them afterwards. */
static void test_125_a_broker_that_is_cut_off_from_all_is_found_again(void **state)
{
    struct accept *t = *state;
    enum { WORKERS = 3, TASKS = 30 };
    char url[ACCEPT_URL_MAX];
    pid_t pids[WORKERS];
    static struct forwarder network;
    if (!t->engine->shared)
        return;
    assert_err(forwarder_start(&network, t->place[0].port), MR_OK);
    url_through(t, &network, url);
    for (size_t i = 0; i < WORKERS; i++)
        pids[i] = PROCESS(t, url, .slots = 2);
    accept_put_many(t, "a", TASKS,
                    &(struct accept_task){.type = "sleep", .payload = "30", .topic = TOPIC});
    UNTIL(accept_ran_all(t) >= WORKERS);
    network.frozen = true;
    accept_put_many(t, "b", TASKS, &(struct accept_task){.payload = "p", .topic = TOPIC});
    accept_pass_ms(3 * ACCEPT_DEATH_MS);
    size_t ran = accept_ran_all(t);
    network.frozen = false;
    UNTIL(accept_all_completed(t));
    assert_true(accept_ran_all(t) > ran);
    for (size_t i = 0; i < WORKERS; i++)
        accept_end_process(t, pids[i]);
    forwarder_stop(&network);
    accept_one_final_each(t, TOPIC);
}

/* ---- the scenario that the others test themselves with -------------------------------------- */

/* The incarnation of who leads; 0: nobody. */
static uint64_t leader_of(struct accept *t)
{
    struct mr_node_list *nodes = NULL;
    assert_err(mr_node_list_get(t->client, &nodes), MR_OK);
    uint64_t leader = mr_node_list_leader(nodes)->incarnation;
    mr_node_list_free(nodes);
    return leader;
}

/* Two masters and two workers; the first of each is killed; the first master leads. */
static void test_126_two_masters_and_two_workers_lose_one_of_each(void **state)
{
    struct accept *t = *state;
    int64_t beat_ms = (int64_t)accept_size(ACCEPT_BEAT_MS, ACCEPT_BEAT_MS / 2);
    const char *url = t->place[0].url;
    size_t changes = 0, ends = 0;
    if (!t->engine->shared)
        return; /* of a folder all of them are one process: 48, 54 */
    struct boss_options options = {
        .name = "m0", .topic = TOPIC, .submits = true, .beat_ms = beat_ms, .pace_ms = 20};
    pid_t bosses[2], workers[2];
    uint64_t leader = 0, next;
    bosses[0] = boss_spawn(t, url, &options);
    UNTIL((leader = leader_of(t)) != 0);
    options.name = "m1";
    bosses[1] = boss_spawn(t, url, &options);
    for (size_t i = 0; i < 2; i++)
        workers[i] = PROCESS(t, url, .beat_ms = beat_ms);
    for (mr_mono began = accept_now(); accept_since_ms(began) < 30 * beat_ms; accept_pass_ms(10)) {
        next = leader_of(t);
        changes += next != 0 && next != leader;
        leader = next ? next : leader;
        if (ends == 0 && accept_since_ms(began) >= 10 * beat_ms)
            accept_kill_process(t, bosses[ends++]);
        if (ends == 1 && accept_since_ms(began) >= 20 * beat_ms)
            accept_kill_process(t, workers[ends++ - 1]);
    }
    accept_end_process(t, bosses[1]);
    boss_remember(t);
    UNTIL(accept_all_completed(t));
    assert_in_range(changes, 1, 2);
    accept_end_process(t, workers[1]);
    boss_one_final_each(t, TOPIC);
}

/* ---- everything at once --------------------------------------------------------------------- */

static void test_127_tasks_survive_random_kills_and_stops(void **state)
{
    struct accept *t = *state;
    size_t n = accept_size(10000, 1000), strikes = 0;
    char prefix[16], ms[16];
    if (!t->engine->shared)
        return; /* one process at a time: 22 */
    for (size_t i = 0; i < 10; i++) {
        (void)snprintf(prefix, sizeof prefix, "t%zu-", i);
        (void)snprintf(ms, sizeof ms, "%zu", 10 * i);
        accept_put_many(t, prefix, n / 10,
                        &(struct accept_task){.type = "sleep", .payload = ms, .topic = TOPIC});
    }
    struct crew *crew = crew_start(t, "default");
    mr_mono began = accept_now();
    UNTIL(accept_ran_all(t) > 0);
    while (!accept_all_completed(t)) {
        if (accept_since_ms(began) >= (int64_t)(strikes + 1) * STRIKE_MS) {
            crew_strike(crew, CREW_PARTITION); /* kills and stops */
            strikes++;
        }
        crew_go_on(crew);
        assert_in_range(accept_since_ms(began), 0, 5 * ACCEPT_WAIT_MS);
        accept_pass_ms(20);
    }
    print_message("%zu tasks, %zu runs, %zu kills, %zu stops in %lld ms\n", n, accept_ran_all(t),
                  crew->faults[CREW_KILL], crew->faults[CREW_STOP],
                  (long long)accept_since_ms(began));
    assert_true(strikes > 0);
    crew_end(crew);
    accept_one_final_each(t, TOPIC);
}

int accept_chaos(const struct accept_engine *engine)
{
    struct CMUnitTest tests[] = {
        ACCEPT_TEST(test_125_a_worker_that_is_cut_off_is_refused),
        ACCEPT_TEST(test_125_a_broker_that_is_cut_off_from_all_is_found_again),
        ACCEPT_TEST(test_126_two_masters_and_two_workers_lose_one_of_each),
        ACCEPT_TEST(test_127_tasks_survive_random_kills_and_stops),
    };
    return ACCEPT_RUN(engine, "L: the whole", tests);
}
