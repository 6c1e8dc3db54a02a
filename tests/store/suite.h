/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The suite of stores: what each of them must do, written against store/store.h alone so that any
 * engine runs it unchanged. An engine comes in as a struct suite_engine; each test gets an empty
 * store of it, opened, as a struct suite.
 *
 * Tests wait for conditions up to SUITE_WAIT_MS and never for time to pass, unless they are about
 * time itself. Thread: the test's.
 */
#ifndef MR_TESTS_STORE_SUITE_H
#define MR_TESTS_STORE_SUITE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "store/store.h"

enum {
    SUITE_WAIT_MS = 20000, /* a condition that has not come by then never will */
    SUITE_URL_MAX = 1200,
};

struct suite_engine {
    const char *name; /* also of its files in tests/golden/store */
    void *arg;
    /* Makes an empty database and says where it is. */
    void (*make)(void *arg, char url[SUITE_URL_MAX]);
    void (*remove)(void *arg);
    /* Carries SQL out over a connection of its own. */
    void (*sql)(void *arg, const char *text);
    /* A question whose answer is one number, and must be this one. */
    void (*check)(void *arg, const char *text, uint64_t expected);
    /* Rows of a part with this input, so many in each transaction, into a table for themselves in such a database,
     * with as little as can be in between. Answers how many seconds it took. */
    double (*bare_insert)(void *arg, uint64_t rows, struct mr_slice input, size_t batch);
    /* Makes a table "other" in the empty place, which is nothing of ours. */
    void (*make_other)(void *arg);
    /* Another connection writes and does not come to an end, until it is told to let go. */
    void (*hold)(void *arg);
    void (*let_go)(void *arg);
    /* Of an engine with a server, else NULL: breaks the connections of stores to it, and whether it did.
     * The server dies without a word, and comes back. */
    bool (*cut)(void *arg);
    void (*crash)(void *arg);
    void (*start)(void *arg);
};

/* One test's store and everything to be freed with it. */
struct suite {
    const struct suite_engine *engine;
    char url[SUITE_URL_MAX];
    struct mr_store *store;
    struct suite_kept *kept; /* answers whose slices the test looks at */
};

/* ---- running -------------------------------------------------------------------------------- */

int suite_setup(void **state);
int suite_teardown(void **state);

#define SUITE_TEST(function)                                                                       \
    {                                                                                              \
#function, function, suite_setup, suite_teardown, NULL                                     \
    }

int suite_run_theme(const struct suite_engine *engine, const char *theme, struct CMUnitTest *tests,
                    size_t n);
#define SUITE_RUN(engine, theme, tests)                                                            \
    suite_run_theme(engine, theme, tests, sizeof(tests) / sizeof((tests)[0]))

/* The themes. */
int suite_apply(const struct suite_engine *engine);
int suite_look(const struct suite_engine *engine);
int suite_fire(const struct suite_engine *engine);
int suite_set(const struct suite_engine *engine);
int suite_leases(const struct suite_engine *engine);
int suite_subapps(const struct suite_engine *engine);
int suite_commits(const struct suite_engine *engine);
int suite_schemas(const struct suite_engine *engine);
int suite_golden(const struct suite_engine *engine);
int suite_faults(const struct suite_engine *engine);
int suite_rivals(const struct suite_engine *engine);
int suite_deaths(const struct suite_engine *engine);
int suite_retain(const struct suite_engine *engine);
int suite_model(const struct suite_engine *engine);
int suite_many(const struct suite_engine *engine);
int suite_jobs_load(const struct suite_engine *engine);
int suite_jobs_run(const struct suite_engine *engine);
int suite_jobs_look(const struct suite_engine *engine);
int suite_jobs_segments(const struct suite_engine *engine);
int suite_jobs_rivals(const struct suite_engine *engine);
int suite_jobs_model(const struct suite_engine *engine);
int suite_jobs_retry(const struct suite_engine *engine);
int suite_jobs_many(const struct suite_engine *engine);

/* Runs all of them, or the tests whose names fit the pattern of the first argument; answers what main
 * returns. */
int suite_main(const struct suite_engine *engine, int argc, char **argv);

/* A number from the environment. */
uint64_t suite_size(const char *name, uint64_t otherwise);
/* MR_ALONE: nothing runs beside this, so what is promised about time is held against it; else it is only printed. */
bool suite_judges_time(void);

/* ---- waiting -------------------------------------------------------------------------------- */

mr_mono suite_mono(void);
int64_t suite_elapsed_ms(mr_mono since);
void suite_look_again(mr_mono since, const char *what, const char *file, int line);

#define WAIT_UNTIL(cond)                                                                           \
    for (mr_mono since_ = suite_mono(); !(cond);)                                                  \
    suite_look_again(since_, #cond, __FILE__, __LINE__)

#define assert_err(actual, expected)                                                               \
    suite_assert_err((actual), (expected), #actual, __FILE__, __LINE__)
void suite_assert_err(enum mr_err actual, enum mr_err expected, const char *what, const char *file,
                      int line);
#define assert_slice(actual, text)                                                                 \
    suite_assert_slice((actual), mr_slice_str(text), #actual, __FILE__, __LINE__)
void suite_assert_slice(struct mr_slice actual, struct mr_slice expected, const char *what,
                        const char *file, int line);

/* A thread that breaks the connections of the test's store, up to a few times per answer, so that all have an
 * end. Of an engine with a server. */
struct suite_cutter {
    struct suite *t;
    pthread_t thread;
    _Atomic bool stop;
    unsigned cuts;
};
void suite_cutter_start(struct suite_cutter *cutter, struct suite *t);
void suite_cutter_stop(struct suite_cutter *cutter);

/* ---- requests ------------------------------------------------------------------------------- */

void suite_open(struct suite *t, const struct mr_store_options *options);
void suite_close(struct suite *t);
void suite_reopen(struct suite *t);

/* A uid that is told by a number. */
struct mr_uuid suite_uid(unsigned number);

struct mr_store_applied suite_apply_one(struct suite *t, struct mr_store_apply item);
/* What is zero: version 1 of the active timer a/n with uid 1 and "def", at 1000, created at 500. */
struct mr_store_applied suite_put(struct suite *t, struct mr_store_apply item);
#define PUT(t, ...)    suite_put(t, (struct mr_store_apply){__VA_ARGS__})
#define DELETE(t, ...) suite_put(t, (struct mr_store_apply){.verb = MR_APPLY_DELETE, __VA_ARGS__})
void suite_apply_all(struct suite *t, const struct mr_store_apply *items, size_t n,
                     struct mr_store_applied *results);
/* Answers live until the test ends. */
const struct mr_store_timer *suite_get(struct suite *t, const char *app, const char *name);
const struct mr_store_timer *suite_get_uid(struct suite *t, unsigned number);

/* The fence is empty. */
struct mr_store_fired suite_fire_one(struct suite *t, struct mr_store_fire item);
/* What is zero: of uid 1, waiting, at 7. */
struct mr_store_fired suite_fire_row(struct suite *t, struct mr_store_fire item);
#define FIRE(t, ...) suite_fire_row(t, (struct mr_store_fire){__VA_ARGS__})
enum mr_err suite_fire_all(struct suite *t, struct mr_store_fence fence,
                           const struct mr_store_fire *items, size_t n,
                           struct mr_store_fired *results);
struct mr_store_set_result suite_set_one(struct suite *t, struct mr_store_set item);
/* Of uid 1. */
#define SET(t, ...) suite_set_one(t, (struct mr_store_set){.uid = suite_uid(1), __VA_ARGS__})
const struct mr_store_firing *suite_firing(struct suite *t, unsigned number, int64_t planned_ms);

struct mr_store_lease_result suite_lease_one(struct suite *t, struct mr_store_lease_item item);
/* Of "app:a". */
#define LEASE(t, ...)                                                                              \
    suite_lease_one(t, (struct mr_store_lease_item){.name = MR_SLICE_LIT("app:a"), __VA_ARGS__})

/* A copy of a request of so many bytes, which begins with this, is carried out and must succeed; its answer lives
 * until the test ends. */
void suite_forget(struct suite *t); /* those answers */
struct mr_store_req *suite_keep_call(struct suite *t, const struct mr_store_req *req, size_t size);
/* Requests whose answers live until the test ends; options as they stand in the request. */
struct mr_store_due *suite_due(struct suite *t, struct mr_store_due due);
struct mr_store_timer_list *suite_list(struct suite *t, struct mr_store_timer_list list);
struct mr_store_firing_list *suite_firing_list(struct suite *t, struct mr_store_firing_list list);
struct mr_store_firing_open *suite_firing_open(struct suite *t, struct mr_store_firing_open open);
struct mr_store_lease_list *suite_lease_list(struct suite *t, struct mr_store_lease_list list);
struct mr_store_server_list *suite_server_list(struct suite *t, size_t max);
struct mr_store_app_list *suite_app_list(struct suite *t, struct mr_store_app_list list);
struct mr_store_stats *suite_stats(struct suite *t);

#endif
