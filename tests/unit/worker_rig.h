/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A worker on a broker that does what a test says, and handlers for every way a run can end. Include
 * it in one file of a test program.
 */
#ifndef MR_TESTS_WORKER_RIG_H
#define MR_TESTS_WORKER_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/diag.h"
#include "support/fake_broker.h"
#include "worker/worker.h"

struct world {
    struct fake *fake;
    struct mr_worker *worker;
    struct mr_event go;      /* lets handlers that wait for it return */
    struct mr_event entered; /* set by handlers that wait */
    _Atomic int told;        /* failures the error handler was told of */
    _Atomic int runs;
};

static inline void quiet(enum mr_diag_level level, const char *line, void *arg)
{
    (void)level, (void)line, (void)arg;
}

static inline int make_world(void **state)
{
    struct world *world = calloc(1, sizeof *world);
    assert_non_null(world);
    mr_diag_set_sink(quiet, NULL);
    mr_event_init(&world->go);
    mr_event_init(&world->entered);
    world->fake = fake_new();
    *state = world;
    return 0;
}

static inline int end_world(void **state)
{
    struct world *world = *state;
    mr_event_set(&world->go);
    mr_worker_free(world->worker);
    fake_free(world->fake);
    free(world);
    return 0;
}

/* ---- handlers ------------------------------------------------------------------------------- */

static inline enum mr_outcome run_nothing(struct mr_run *run, void *arg)
{
    (void)run;
    atomic_fetch_add(&((struct world *)arg)->runs, 1);
    return MR_DONE;
}

/* Answers with what the payload's first byte says. */
static inline enum mr_outcome run_as_told(struct mr_run *run, void *arg)
{
    (void)arg;
    const struct mr_task *task = mr_run_task(run);
    mr_run_error(run, "because of %.*s", (int)task->payload.len, (const char *)task->payload.data);
    return (enum mr_outcome)(((const char *)task->payload.data)[0] - '0');
}

static inline enum mr_outcome run_echo(struct mr_run *run, void *arg)
{
    (void)arg;
    assert_int_equal(mr_run_result(run, mr_run_task(run)->payload), MR_OK);
    return MR_DONE;
}

/* Goes on until it is told to stop, then fails. */
static inline enum mr_outcome run_until_cancelled(struct mr_run *run, void *arg)
{
    mr_event_set(&((struct world *)arg)->entered);
    assert_true(mr_run_wait_cancelled(run, INT64_MAX));
    assert_true(mr_run_cancelled(run));
    return MR_FAIL;
}

/* Told to stop, it answers with what the payload's first byte says. */
static inline enum mr_outcome run_decides_when_cancelled(struct mr_run *run, void *arg)
{
    run_until_cancelled(run, arg);
    return run_as_told(run, arg);
}

static inline enum mr_outcome run_done_when_cancelled(struct mr_run *run, void *arg)
{
    run_until_cancelled(run, arg);
    return MR_DONE;
}

/* Does not listen: returns when the test says so. */
static inline enum mr_outcome run_deaf(struct mr_run *run, void *arg)
{
    struct world *world = arg;
    (void)run;
    mr_event_set(&world->entered);
    mr_event_wait(&world->go, INT64_MAX);
    return MR_DONE;
}

static inline enum mr_outcome run_progress(struct mr_run *run, void *arg)
{
    struct world *world = arg;
    assert_int_equal(mr_run_progress(run, 101, (struct mr_slice){0}), MR_INVALID);
    assert_int_equal(mr_run_progress(run, 42, mr_slice_str("half, nearly")), MR_OK);
    mr_event_wait(&world->go, INT64_MAX);
    return MR_DONE;
}

/* A text whose limit falls into the middle of a character. */
static inline enum mr_outcome run_long_progress(struct mr_run *run, void *arg)
{
    char text[2 + MR_PROGRESS_TEXT_MAX] = "xx";
    for (size_t i = 2; i + 3 <= sizeof text; i += 3)
        memcpy(text + i, "\u20ac", 3);
    assert_int_equal(mr_run_progress(run, 7, mr_slice_make(text, sizeof text)), MR_OK);
    mr_event_wait(&((struct world *)arg)->go, INT64_MAX);
    return MR_DONE;
}

static inline enum mr_outcome run_hand_back(struct mr_run *run, void *arg)
{
    (void)run;
    atomic_fetch_add(&((struct world *)arg)->runs, 1);
    return MR_HAND_BACK;
}

enum { BACKS = 3000 }; /* more than a worker remembers */
static bool was_back[BACKS];

static inline enum mr_outcome run_hand_back_once(struct mr_run *run, void *arg)
{
    (void)arg;
    const struct mr_task *task = mr_run_task(run);
    char id[16] = "";
    memcpy(id, task->id.data, task->id.len);
    bool *was = &was_back[strtoul(id, NULL, 10)];
    if (*was)
        return MR_DONE;
    *was = true;
    return MR_HAND_BACK;
}

static inline enum mr_outcome run_later_by_itself(struct mr_run *run, void *arg)
{
    (void)arg;
    mr_run_retry_after(run, 1234);
    return MR_FAIL;
}

static const struct {
    const char *pattern;
    mr_handler *handler;
} handlers[] = {
    {"task", run_nothing},
    {"told", run_as_told},
    {"echo", run_echo},
    {"wait", run_until_cancelled},
    {"wait-done", run_done_when_cancelled},
    {"wait-told", run_decides_when_cancelled},
    {"deaf", run_deaf},
    {"progress", run_progress},
    {"long-progress", run_long_progress},
    {"back", run_hand_back},
    {"back-once", run_hand_back_once},
    {"again", run_later_by_itself},
};

static inline void note_error(const struct mr_task *task, const char *error, void *arg)
{
    assert_non_null(error);
    assert_true(task->id.len > 0);
    atomic_fetch_add(&((struct world *)arg)->told, 1);
}

/* A worker with all handlers, not started. */
static inline void make_worker(struct world *world, struct mr_worker_options options)
{
    options.on_error = note_error;
    options.arg = world;
    assert_int_equal(mr_worker_new_on(fake_broker(world->fake), &options, &world->worker), MR_OK);
    for (size_t i = 0; i < sizeof handlers / sizeof *handlers; i++)
        assert_int_equal(
            mr_worker_handle(world->worker, handlers[i].pattern, handlers[i].handler, world),
            MR_OK);
}

static inline void start_worker(struct world *world, struct mr_worker_options options)
{
    make_worker(world, options);
    assert_int_equal(mr_worker_start(world->worker), MR_OK);
}

static inline size_t add(struct world *world, const char *type, const char *payload)
{
    return fake_add(world->fake, &(struct mr_task){.type = mr_slice_str(type),
                                                   .payload = mr_slice_str(payload)});
}

static inline struct mr_worker_figures figures(struct world *world)
{
    struct mr_worker_figures figures;
    mr_worker_figures(world->worker, &figures);
    return figures;
}

#define WITH_WORLD(test) cmocka_unit_test_setup_teardown(test, make_world, end_world)

#endif
