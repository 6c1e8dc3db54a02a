/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The acceptance tests of jobs, by their numbers: a broker, a store, any number of services on both (servers, as far as jobs
 * are concerned), and workers. All of it is in the test's own process, but for what is to be killed: see child.h. The
 * same tests run on an embedded broker with SQLite and on a Redis with PostgreSQL.
 *
 * What a task does its type and its payload say:
 *   type "echo"       its result is its payload; any other type T: "T(PAYLOAD)"
 *   payload "fail"    it fails for good; "fail N": so many times, then it is done
 *   payload "sleep N" it takes N ms, unless it is stopped; in round 1 of a part it takes none
 *   payload "slow N"  the same, and in round 1 it fails for good
 *   payload "hold"    it goes on until the rig lets it go, or it is stopped
 *   others            done at once, or by the rig's luck
 * Whatever they say first, the whole payload is what the result is made of.
 */
#ifndef MR_TESTS_JOBS_RIG_H
#define MR_TESTS_JOBS_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "broker/broker.h"
#include "job/service.h"
#include "store/jobs.h"

enum {
    RIG_WAIT_MS = 30000, /* a condition that has not come by then never will */
    RIG_SERVICES_MAX = 3,
    RIG_WORKERS_MAX = 4,
    RIG_URL_MAX = 512,
};

/* MR_ACCEPT=full: the tests as they are written down; else a sample of each. */
bool rig_full(void);
/* MR_JOBS=shared: on a Redis and a PostgreSQL. */
bool rig_is_shared(void);

/* A service that hangs: its thread goes no further than the next step of it. It answers who asks. */
struct rig_freeze {
    _Atomic bool wanted, is;
};

struct rig {
    char dir[64];
    struct redis_rig *redis;
    char broker_url[RIG_URL_MAX], store_url[RIG_URL_MAX], database[32];
    struct mr_broker *broker; /* NULL: closed, as the store */
    struct mr_store *store;
    struct mr_job_settings settings; /* of services that are started from now on */
    struct mr_gate *gate;            /* likewise; NULL: none */
    struct mr_job_service *services[RIG_SERVICES_MAX];
    struct mr_worker *workers[RIG_WORKERS_MAX];
    struct rig_freeze freezes[RIG_SERVICES_MAX];
    unsigned luck; /* so many of 100 runs fail, and are tried again */
    _Atomic bool let_go;
    _Atomic size_t runs, running, stopped; /* begun; now; told to stop */
    struct mr_lock lock;                   /* over what follows */
    char *order;                           /* payloads of runs as they began, a line each */
    size_t order_len, order_cap;
};

/* A broker, a store, and nothing else. */
struct rig *rig_make(void);
void rig_free(struct rig *rig);
void rig_shared_end(void); /* the PostgreSQL that they share goes */
/* Both are closed, and opened again. Services and workers are stopped. */
void rig_close(struct rig *rig);
void rig_open(struct rig *rig);
void rig_serve(struct rig *rig, size_t i);
void rig_unserve(struct rig *rig, size_t i);
/* Waits until it hangs: something must go on in it. And until it goes on. */
void rig_freeze(struct rig *rig, size_t i);
void rig_thaw(struct rig *rig, size_t i);
/* With so many slots for the queue "default". */
void rig_work(struct rig *rig, size_t i, uint32_t slots);
void rig_unwork(struct rig *rig, size_t i);
/* The same for a queue of another name. */
void rig_work_on(struct rig *rig, size_t i, uint32_t slots, const char *queue);

#define RIG_UNTIL(condition)                                                                       \
    do {                                                                                           \
        mr_mono since_ = mr_mono_now(mr_clock_system());                                           \
        while (!(condition))                                                                       \
            rig_wait_a_moment(since_, #condition, __FILE__, __LINE__);                             \
    } while (0)
void rig_wait_a_moment(mr_mono since, const char *what, const char *file, int line);
/* So long by the machine's clock, where nothing can be waited for: that nothing happens. */
void rig_sleep_ms(int64_t ms);
int64_t rig_elapsed_ms(mr_mono since);

/* ---- jobs ------------------------------------------------------------------------------------ */

enum { RIG_ID_MAX = MR_UUID_TEXT_LEN + 1 };

/* One stage of "echo" unless a literal says more. */
#define RIG_JOB(...) (&(struct mr_job_options){.stages = rig_echo, .stages_n = 1, __VA_ARGS__})
extern const struct mr_slice rig_echo[1];

/* The i-th part is what format makes of i; loaded by the first service that is there. */
void rig_load(struct rig *rig, const struct mr_job_options *job, const char *format, size_t n,
              char id[RIG_ID_MAX]);
/* The same with given parts. */
void rig_load_parts(struct rig *rig, const struct mr_job_options *job, const struct mr_slice *parts,
                    size_t n, char id[RIG_ID_MAX]);
/* A load that is begun, with the parts added, not committed. Errors fail the test. */
struct mr_job_load *rig_load_begin(struct rig *rig, const struct mr_job_options *job);

/* How a job stands; state MR_JOB_STATE_NONE: there is none. */
struct rig_job {
    enum mr_job_state state;
    bool reducing;
    uint64_t version, total, done, failed, running, first_segment, last_segment, result_bytes;
    uint32_t round;
    struct mr_job_stage stages[MR_JOB_STAGES_MAX]; /* no types */
    size_t stages_n;
    char reason[256];
};
struct rig_job rig_job(struct rig *rig, const char *id);
enum mr_job_state rig_state(struct rig *rig, const char *id);
static inline bool rig_is_end(enum mr_job_state state)
{
    return state >= MR_JOB_SUCCEEDED;
}
uint64_t rig_ended(struct rig *rig, const char *id); /* parts */
/* However long that takes, as long as it goes on. */
void rig_await_end(struct rig *rig, const char *id);
size_t rig_jobs(struct rig *rig); /* that there are */
enum mr_err rig_act(struct rig *rig, enum mr_job_ask_kind kind, const char *id);
/* The result; free it. */
void rig_result(struct rig *rig, const char *id, struct mr_buf *ret_result);
/* The job succeeded, and its result is what rig_load with "echo" and `concat` makes. */
void rig_check_result(struct rig *rig, const char *id, const char *format, size_t n);
/* How many parts are in this state. */
size_t rig_parts(struct rig *rig, const char *id, enum mr_part_state state);
void rig_health(struct rig *rig, size_t i, struct mr_job_health *ret_health);
/* Tasks in the broker in this state, of the queue; MR_STATE_NONE: pending or active, counted at once. */
uint64_t rig_tasks(struct rig *rig, const char *queue, enum mr_state state);
/* Segments: begin, end. */
void rig_segments(struct rig *rig, uint64_t *ret_begin, uint64_t *ret_end);
/* SQL on the store, by hand. */
void rig_sql(struct rig *rig, const char *text);

/* ---- watching -------------------------------------------------------------------------------- */

/* All that a watcher was told; checked as it comes: versions rise by one, what has ended never falls. */
struct rig_watch {
    struct mr_job_watch *watch;
    struct mr_lock lock;
    uint64_t first, version, last_ended, total;
    uint64_t seen[MR_JOB_STAGES_MAX]; /* ends of each stage */
    size_t events;
    enum mr_job_state state;
    bool over;
    enum mr_err err;
    char fault[256];     /* what was wrong; empty: nothing */
    uint64_t *remaining; /* with each event */
    size_t remaining_cap;
};
struct rig_watch *rig_watch(struct rig *rig, size_t service, const char *id, uint64_t after);
bool rig_watch_is_over(struct rig_watch *w);
void rig_watch_await_end(struct rig_watch *watch); /* and that nothing was wrong */
void rig_watch_free(struct rig_watch *watch);

/* ---- the tests ------------------------------------------------------------------------------- */

int jobs_run(const char *theme, struct CMUnitTest *tests, size_t n);
#define JOBS_RUN(theme, tests) jobs_run(theme, tests, sizeof(tests) / sizeof((tests)[0]))

int jobs_create(void);
int jobs_pump(void);
int jobs_running(void);
int jobs_reduces(void);
int jobs_ends(void);
int jobs_segments(void);
int jobs_deaths(void);
int jobs_cold(void);
int jobs_homes(void);
/* See pace.c; and behind so many segments of parts that have ended. */
int jobs_pace(size_t n, size_t cold);

#endif
