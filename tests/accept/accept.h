/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Acceptance tests: what users of the broker were promised, each test under its number in
 * docs/acceptance.md, the same on every engine. A test sees what a user sees: the C API, and real processes
 * that are killed with SIGKILL. The exception is hand.h, since the C API has no bare take.
 *
 * Every task of a test is kept after its end, so that each id can be accounted for: a test ends with the
 * conservation check of its teardown.
 */
#ifndef MR_TESTS_ACCEPT_H
#define MR_TESTS_ACCEPT_H

#include <millrace.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include <cmocka.h>

#include "base/chan.h"
#include "base/fs.h"

enum {
    ACCEPT_BEAT_MS = 200,
    ACCEPT_BEATS_MISSED = 3,
    ACCEPT_DEATH_MS = ACCEPT_BEAT_MS * ACCEPT_BEATS_MISSED,
    ACCEPT_WAIT_MS = 60000, /* a state that has not come by then never will */
    ACCEPT_RETENTION_MS = 3600 * 1000,
    ACCEPT_URL_MAX = MR_PATH_MAX + 16,
    ACCEPT_PLACES_MAX = 2,
    ACCEPT_PROCESSES_MAX = 24,
};

struct redis_rig;

/* One broker of a test's own. */
struct accept_place {
    const struct accept_engine *engine;
    char url[ACCEPT_URL_MAX];
    char dir[MR_PATH_MAX];
    pid_t pid; /* of its server; 0: none */
    uint16_t port;
    struct redis_rig *redis;
    unsigned disk_mib; /* its server's data has a disk of this size, which goes with it; 0: none */
    mr_mono began;     /* of its server */
};

struct accept_engine {
    const char *name;
    /* A new, empty one; what cannot be set up fails the test. */
    void (*start)(struct accept_place *place);
    void (*stop)(struct accept_place *place);
    /* SIGKILL of its server, and the same one again. NULL: it has none. */
    void (*kill)(struct accept_place *place);
    void (*restart)(struct accept_place *place);
    bool shared;     /* several processes may use it at once */
    bool namespaces; /* several in one place; a server has one */
};

extern const struct accept_engine accept_embedded, accept_remote, accept_redis;

/* One test. */
struct accept {
    const struct accept_engine *engine;
    struct accept_place place[ACCEPT_PLACES_MAX];
    size_t places_n;
    struct mr_client *client; /* of the first place; NULL while others have it */
    char audit[MR_PATH_MAX];  /* the file where runs are noted */
    int audit_fd;
    int told_fd;       /* the same for runs that were told to stop, AUDIT.told */
    _Atomic bool hold; /* runs of the type "hold" wait while it is set */
    struct mr_worker *workers[ACCEPT_PROCESSES_MAX];
    size_t workers_n;
    pid_t processes[ACCEPT_PROCESSES_MAX]; /* 0: free */
    /* For the conservation check. */
    struct mr_lock lock;
    char (*ids)[MR_ID_MAX + 1]; /* what was accepted */
    size_t ids_n, ids_max;
    _Atomic size_t deleted;
    _Atomic size_t unkept; /* were accepted as well; all of them are done when a test ends */
    char (*requeued)[MR_ID_MAX + 1]; /* by accept_all_completed, as often as it was */
    size_t requeued_n;
};

/* ---- running -------------------------------------------------------------------------------- */

int accept_setup(void **state);
int accept_teardown(void **state);

#define ACCEPT_TEST(function)                                                                      \
    {                                                                                              \
#function, function, accept_setup, accept_teardown, NULL                                   \
    }

/* The parts; each answers how many tests failed. */
int accept_submit(const struct accept_engine *engine);
int accept_model(const struct accept_engine *engine);
int accept_work(const struct accept_engine *engine);
int accept_kill(const struct accept_engine *engine);
int accept_order(const struct accept_engine *engine);
int accept_retry(const struct accept_engine *engine);
int accept_result(const struct accept_engine *engine);
int accept_session(const struct accept_engine *engine);
int accept_leader(const struct accept_engine *engine);
int accept_share(const struct accept_engine *engine);
int accept_recover(const struct accept_engine *engine);
int accept_chaos(const struct accept_engine *engine);
int accept_durable(const struct accept_engine *engine);
int accept_soak(const struct accept_engine *engine); /* MR_SOAK_SECONDS */
int accept_limit(const struct accept_engine *engine);
int accept_machine(const struct accept_engine *engine);
int accept_parts(const struct accept_engine *engine);
int accept_address(const struct accept_engine *engine);
int accept_run_part(const struct accept_engine *engine, const char *part, struct CMUnitTest *tests,
                    size_t n);
#define ACCEPT_RUN(engine, part, tests)                                                            \
    accept_run_part(engine, part, tests, sizeof(tests) / sizeof((tests)[0]))

/* Full size in `make test-long` (MR_ACCEPT=full), else the small one. */
size_t accept_size(size_t full, size_t small);

/* ---- waiting -------------------------------------------------------------------------------- */

mr_mono accept_now(void);
int64_t accept_since_ms(mr_mono since);
int64_t accept_wall_ms(void);
/* Lets ms pass where the test is about time itself. */
void accept_pass_ms(int64_t ms);
void accept_look_again(mr_mono since, const char *what, const char *file, int line);
#define UNTIL(cond)                                                                                \
    for (mr_mono since_ = accept_now(); !(cond);)                                                  \
    accept_look_again(since_, #cond, __FILE__, __LINE__)

#define assert_err(actual, expected)                                                               \
    accept_assert_err((actual), (expected), #actual, __FILE__, __LINE__)
void accept_assert_err(enum mr_err actual, enum mr_err expected, const char *what, const char *file,
                       int line);

/* ---- tasks ---------------------------------------------------------------------------------- */

/* What a task is like, in the order that tests use most. */
struct accept_task {
    const char *type; /* "echo"; see below */
    const char *queue, *id, *payload, *topic;
    double priority_s;
    int64_t delay_ms, timeout_ms;
    int32_t max_retry;
    bool unkept; /* nothing is left of it when it is done: counted, not remembered */
};

/* Remembers an accepted id for the conservation check; the answer lives as long as the test. */
const char *accept_remember(struct accept *t, const char *id);
/* Enqueues with any options (kept after its end), which must be accepted or not: see the answer. */
struct mr_enqueue_result accept_try(struct accept *t, struct mr_task_options options);
/* Enqueues one that must be accepted; the id lives as long as the test. */
const char *accept_put(struct accept *t, const struct accept_task *task);
#define PUT(t, ...) accept_put(t, &(struct accept_task){__VA_ARGS__})
/* n alike, with ids PREFIX0, PREFIX1, ... */
void accept_put_many(struct accept *t, const char *prefix, size_t n,
                     const struct accept_task *task);

/* NULL: there is none. Freed by mr_task_list_free. */
struct mr_task_list *accept_get(struct accept *t, const char *id);
enum mr_state accept_state(struct accept *t, const char *id);
enum mr_err accept_act(struct accept *t, enum mr_verb verb, const char *id, double value);
struct mr_queue_info accept_queue(struct accept *t, const char *queue);
uint64_t accept_count(struct accept *t, const char *queue, enum mr_state state);
/* Waits for its end; it must have gone well and its result be its payload. */
void accept_await_echo(struct accept *t, const char *id);
/* All tasks of all queues in this state. */
uint64_t accept_total(struct accept *t, enum mr_state state);

/* Everything that was accepted has ended well. A task that was lost three times is quarantined, as
 * promised; where that is nobody's fault it is made pending again. */
bool accept_all_completed(struct accept *t);
/* Takes and commits all results of the topic: each task that was accepted and has ended left exactly one
 * that is final (and one for each time that it was quarantined and made pending again), the others none.
 */
void accept_one_final_each(struct accept *t, const char *topic);
/* The same in steps: some were committed before, of others it is not known. The check frees it. */
struct accept_finals;
struct accept_finals *accept_finals_take(struct accept *t, const char *topic);
void accept_finals_add(struct accept_finals *finals, const char *id, size_t n);
void accept_finals_doubt(struct accept_finals *finals, const char *id, size_t n);
void accept_finals_check(struct accept_finals *finals);

/*
 * Every id that was accepted is in exactly one state, or was deleted; lists, counts and sums agree; what
 * is active is in the hand of a live node; no more good ends were counted than tasks are completed.
 */
void accept_conserve(struct accept *t);

/* ---- workers -------------------------------------------------------------------------------- */

/*
 * Handlers, by the type of the task. Each notes its run before it does anything.
 *   echo   done, the payload is the result
 *   hold   the same, once t->hold is not set; told to stop, it fails
 *   sleep  the same after so many ms as the payload says; told to stop, it fails
 *   deaf   the same, but it does not listen
 *   fail   fails
 *   fatal  fails for good
 *   pace   fails; tried again after so many ms as the payload says
 *   first  its first run lasts until it is told to stop, and fails; a later one is done
 *   nap    as sleep, but it does not listen
 *   crash  kills its process
 */
struct accept_worker {
    const char *node;
    const char *queues; /* "a=6 b=3 c"; NULL: default */
    enum mr_queue_order order;
    uint32_t slots;   /* 0: 4 */
    int64_t grace_ms; /* 0: 100 */
    int64_t beat_ms;  /* 0: ACCEPT_BEAT_MS */
    int64_t drain_ms; /* 0: 10 s */
    bool never_leads;
    const int64_t *retry_levels_ms;
    size_t retry_levels_n;
    int64_t retry_max_ms;
    bool burst;
    /* In this process only. */
    const struct mr_machine *machines; /* instead of slots */
    size_t machines_n;
    int64_t poll_ms, pause_min_us, pause_max_us;
    mr_slot_watch *watch;
    void *watch_arg;
};

/* A worker in this process, started; freed with the test or by accept_dismiss. With burst, nothing is
 * started: see accept_burst. */
struct mr_worker *accept_employ(struct accept *t, const struct accept_worker *options);
#define WORKER(t, ...) accept_employ(t, &(struct accept_worker){__VA_ARGS__})
void accept_dismiss(struct accept *t, struct mr_worker *worker);
/* A worker that ends when its queues are empty; waits for that. */
void accept_burst(struct accept *t, struct accept_worker options);
#define BURST(t, ...) accept_burst(t, (struct accept_worker){__VA_ARGS__})

/* What one run noted. */
struct accept_run {
    char id[MR_ID_MAX + 1];
    char queue[32];
    uint32_t attempt;
    pid_t pid;
    uint64_t epoch;
    int64_t mono_ns;
};
/* All runs so far, in the order of their begin. Freed by the caller. */
struct accept_run *accept_runs(struct accept *t, size_t *ret_n);
/* How often this task has begun to run, and was told to stop. */
size_t accept_ran(struct accept *t, const char *id);
size_t accept_told(struct accept *t, const char *id);
size_t accept_ran_all(struct accept *t);
/* Every task remembered by the test has begun exactly once. */
void accept_each_ran_once(struct accept *t);

/* ---- processes ------------------------------------------------------------------------------ */

/* The same worker as a process of its own at this URL; queues as above. SIGTERM stops it. */
pid_t accept_spawn_worker(struct accept *t, const char *url, const char *queues, unsigned slots);
/* Of the options it has node, queues, slots, beat_ms, grace_ms, drain_ms and never_leads. */
pid_t accept_spawn_employed(struct accept *t, const char *url, const struct accept_worker *options);
#define PROCESS(t, url, ...) accept_spawn_employed(t, url, &(struct accept_worker){__VA_ARGS__})
/* What such a process did, once it was stopped. */
struct mr_worker_figures accept_figures(struct accept *t, pid_t pid);
/* The program `millrace` with these arguments up to a NULL, in a process of its own. */
pid_t accept_spawn_millrace(struct accept *t, const char *const *args);
/* A Redis that has just begun takes nothing from the dead for two seconds: whoever lives says so first. Lets
 * them pass, before a test that measures how fast it is. */
void accept_settle(struct accept *t);
/* SIGKILL, and waits for its end. */
void accept_kill_process(struct accept *t, pid_t pid);
/* SIGTERM, and waits for its end, which must be a good one. */
void accept_end_process(struct accept *t, pid_t pid);
/* What main of such a process does. */
int accept_worker_main(int argc, char **argv);
/* A master of this topic at this URL as a process of its own: it has taken n results when it has made the
 * file, and then does nothing. */
pid_t accept_spawn_master(struct accept *t, const char *url, const char *topic, unsigned n,
                          const char *file);
int accept_master_main(int argc, char **argv);
/* Starts a program tied to this one; fds as they are. -1 for err_fd: as ours. */
pid_t accept_spawn(const char *const *argv, int err_fd);
/* What such a program of ours does at SIGTERM; one that came before was kept for it. */
void accept_on_term(void (*told)(int number));
/* The same; it ends with the test at the latest. */
pid_t accept_spawn_kept(struct accept *t, const char *const *argv);
/* The embedded engine is opened by one process at a time. */
void accept_close(struct accept *t);
void accept_open(struct accept *t);
/* One more place, and a client of any. */
struct accept_place *accept_place_more(struct accept *t);
struct mr_client *accept_open_at(struct accept_place *place, const char *namespace_);

#endif
