/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Test 127: masters and workers under load for as long as MR_SOAK_SECONDS says, while one of them is killed,
 * stopped or cut off again and again. Every ten seconds all are let go on, what was begun ends, and it is
 * counted: every task that was accepted, one final result of each, nothing else. Then all of it is removed, so
 * that memory and open files of the broker and of those who live can be compared with what they were.
 */
#include <dirent.h>
#include <stdio.h>
#include <unistd.h>

#include "accept/accept.h"
#include "accept/boss.h"
#include "accept/crew.h"
#include "support/redis_rig.h"

#define TOPIC "news"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true /* whose own memory is part of what a process has */
#else
#define SANITIZED false
#endif

enum {
    ROUND_MS = 10000,
    STRIKE_MS = 700,
    BOSSES = 2,
    BOSS_STRIKE_MS = 3000,
    BOSS_AWAY_MS_MAX = 1500,
    PACE_MS = 20,
    NAP_MS = 100,
    EARLY_ROUNDS = 2, /* what a process has then is what it may have */
    FILES_MORE = 16,
    MIB = 1024 * 1024,
};

/* ---- masters and what befalls them ---------------------------------------------------------- */

struct bosses {
    struct accept *t;
    struct forwarder network[BOSSES];
    pid_t pids[BOSSES];
    mr_mono until[BOSSES]; /* cut off till then */
    size_t names, kills, cuts;
};

static void hire(struct bosses *b, size_t i)
{
    char url[ACCEPT_URL_MAX], name[32];
    (void)snprintf(url, sizeof url, "%s://127.0.0.1:%u",
                   b->t->place[0].redis ? "redis" : "millrace", b->network[i].port);
    (void)snprintf(name, sizeof name, "boss%zu", b->names++);
    b->pids[i] = boss_spawn(
        b->t, url,
        &(struct boss_options){
            .name = name, .topic = TOPIC, .submits = true, .pace_ms = PACE_MS, .nap_ms = NAP_MS});
}

static void boss_strike(struct bosses *b, struct mr_rand *rand)
{
    size_t i = (size_t)mr_rand_below(rand, BOSSES);
    if (mr_rand_below(rand, 2) == 0) {
        accept_kill_process(b->t, b->pids[i]);
        b->network[i].frozen = false;
        hire(b, i);
        b->kills++;
        return;
    }
    b->network[i].frozen = true;
    b->until[i] = mr_mono_add_ms(accept_now(), (int64_t)mr_rand_below(rand, BOSS_AWAY_MS_MAX));
    b->cuts++;
}

static void bosses_go_on(struct bosses *b)
{
    for (size_t i = 0; i < BOSSES; i++)
        if (accept_now().ns >= b->until[i].ns)
            b->network[i].frozen = false;
}

static void bosses_end(struct bosses *b)
{
    for (size_t i = 0; i < BOSSES; i++) {
        b->network[i].frozen = false;
        accept_end_process(b->t, b->pids[i]);
    }
}

/* ---- what they have ------------------------------------------------------------------------- */

struct having {
    pid_t pid;
    uint64_t bytes, files; /* the most of its first rounds */
    unsigned rounds;
};

static uint64_t files_of(pid_t pid)
{
    char path[64];
    uint64_t n = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    while (readdir(dir))
        n++;
    (void)closedir(dir);
    return n;
}

static uint64_t bytes_of(pid_t pid)
{
    char path[64];
    unsigned long long all = 0, resident = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/statm", (int)pid);
    FILE *file = fopen(path, "r");
    assert_true(file && fscanf(file, "%llu %llu", &all, &resident) == 2);
    (void)fclose(file);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static void look_at(struct having *having, pid_t pid, const char *who)
{
    uint64_t bytes = bytes_of(pid), files = files_of(pid);
    if (having->pid != pid)
        *having = (struct having){.pid = pid};
    if (having->rounds++ < EARLY_ROUNDS) {
        having->bytes = most(having->bytes, bytes);
        having->files = most(having->files, files);
        return;
    }
    if (!SANITIZED && bytes > having->bytes + having->bytes / 10 + 16 * (uint64_t)MIB)
        fail_msg("%s: resident memory grew from %llu to %llu MiB", who,
                 (unsigned long long)having->bytes / MIB, (unsigned long long)bytes / MIB);
    if (files > having->files + FILES_MORE)
        fail_msg("%s: open files grew from %llu to %llu", who, (unsigned long long)having->files,
                 (unsigned long long)files);
}

struct havings {
    struct having broker, self, workers[CREW_WORKERS];
};

static pid_t broker_pid(const struct accept *t)
{
    return t->place[0].redis ? redis_rig_server(t->place[0].redis, 0)->pid : t->place[0].pid;
}

static void look_at_all(struct accept *t, const struct crew *crew, struct havings *havings)
{
    look_at(&havings->broker, broker_pid(t), "the broker");
    look_at(&havings->self, getpid(), "the test");
    for (size_t i = 0; i < CREW_WORKERS; i++)
        look_at(&havings->workers[i], crew->workers[i].pid, "a worker");
}

/* ---- rounds --------------------------------------------------------------------------------- */

static void strike_for(struct bosses *bosses, struct crew *crew, int64_t ms)
{
    mr_mono began = accept_now();
    int64_t strike_ms = STRIKE_MS, boss_ms = BOSS_STRIKE_MS;
    for (int64_t now_ms; (now_ms = accept_since_ms(began)) < ms; accept_pass_ms(20)) {
        if (now_ms >= strike_ms) {
            crew_strike(crew, CREW_FAULTS);
            strike_ms += STRIKE_MS;
        }
        if (now_ms >= boss_ms) {
            boss_strike(bosses, &crew->rand);
            boss_ms += BOSS_STRIKE_MS;
        }
        crew_go_on(crew);
        bosses_go_on(bosses);
    }
}

/* The next round begins with nothing. */
static void clear(struct accept *t)
{
    UNTIL(mr_queue_remove(t->client, mr_slice_str("default"), MR_QUEUE_REMOVE_FORCE) == MR_OK);
    t->ids_n = t->requeued_n = 0;
    t->deleted = 0;
    assert_int_equal(ftruncate(t->audit_fd, 0) + ftruncate(t->told_fd, 0), 0);
}

static void one_round(struct accept *t, struct crew *crew, struct bosses *bosses,
                      struct havings *havings)
{
    mr_mono began = accept_now();
    for (size_t i = 0; i < BOSSES; i++)
        hire(bosses, i);
    strike_for(bosses, crew, ROUND_MS);
    crew_heal(crew);
    bosses_end(bosses);
    boss_remember(t);
    assert_true(t->ids_n > 0);
    mr_mono healed = accept_now();
    UNTIL(accept_all_completed(t));
    int64_t settled_ms = accept_since_ms(healed);
    size_t runs = accept_ran_all(t), tasks = t->ids_n;
    boss_one_final_each(t, TOPIC);
    accept_conserve(t);
    clear(t);
    look_at_all(t, crew, havings);
    print_message("%zu tasks, %zu runs, at rest %lld ms after the last fault, counted after %lld "
                  "ms; %llu MiB and %llu files at the broker\n",
                  tasks, runs, (long long)settled_ms, (long long)accept_since_ms(began),
                  (unsigned long long)bytes_of(broker_pid(t)) / MIB,
                  (unsigned long long)files_of(broker_pid(t)));
}

static void test_127_masters_and_workers_soak(void **state)
{
    struct accept *t = *state;
    int64_t seconds = (int64_t)strtoll(getenv("MR_SOAK_SECONDS"), NULL, 10);
    static struct bosses bosses;
    static struct havings havings;
    bosses.t = t;
    for (size_t i = 0; i < BOSSES; i++)
        assert_err(forwarder_start(&bosses.network[i], t->place[0].port), MR_OK);
    struct crew *crew = crew_start(t, "default");
    for (mr_mono began = accept_now(); accept_since_ms(began) < seconds * MR_MS_PER_S;)
        one_round(t, crew, &bosses, &havings);
    print_message("workers: %zu kills, %zu stops, %zu partitions; masters: %zu kills, %zu "
                  "partitions\n",
                  crew->faults[CREW_KILL], crew->faults[CREW_STOP], crew->faults[CREW_PARTITION],
                  bosses.kills, bosses.cuts);
    crew_end(crew);
    for (size_t i = 0; i < BOSSES; i++)
        forwarder_stop(&bosses.network[i]);
}

int accept_soak(const struct accept_engine *engine)
{
    struct CMUnitTest tests[] = {ACCEPT_TEST(test_127_masters_and_workers_soak)};
    if (!getenv("MR_SOAK_SECONDS") || !engine->shared)
        return 0;
    return ACCEPT_RUN(engine, "L: soak", tests);
}
