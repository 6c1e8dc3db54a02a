/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a test and the processes that it kills have in common, and those processes: this program itself, with other
 * arguments. A child opens the broker and the store, serves jobs, works, loads a job, as it is told, and dies at the step
 * that it is told, if any.
 */
#ifndef MR_TESTS_JOBS_CHILD_H
#define MR_TESTS_JOBS_CHILD_H

#include <sys/types.h>

#include "broker/broker.h"
#include "job/service.h"
#include "store/store.h"
#include "worker/worker.h"

enum { CHILD_PART_MAX = 256 };

/* broker_url: "file:DIR" or "redis://..." */
MR_MUST_USE enum mr_err child_open(const char *broker_url, const char *store_url,
                                   struct mr_broker **ret_broker, struct mr_store **ret_store,
                                   struct mr_detail *detail);
/* NULL: it could not be started. */
struct mr_worker *child_work(struct mr_broker *broker, uint32_t slots, const char *queue,
                             mr_handler *handler, void *arg);
/* The bytes of part i: what the format makes of its number. Their length. */
size_t child_part(const char *format, size_t i, char part[CHILD_PART_MAX]);
/* Adds the parts from..to-1. */
MR_MUST_USE enum mr_err child_add(struct mr_job_load *load, const char *format, size_t from,
                                  size_t to);

/* What a run does: see rig.h. */
struct child_orders {
    unsigned luck;
    _Atomic bool *let_go; /* may be NULL */
};
enum mr_outcome child_handle(struct mr_run *run, const struct child_orders *orders,
                             bool *ret_stopped);

/* ---- processes ------------------------------------------------------------------------------- */

struct child {
    const char *broker_url, *store_url;
    uint32_t slots;        /* of a worker in it; 0: none */
    bool serves;           /* jobs */
    enum mr_job_step step; /* it dies there, the `times`-th time; 0 times: it does not */
    unsigned times;
    size_t load;   /* it loads a job of so many parts "part N\n", 0: none */
    unsigned luck; /* of its runs */
    uint32_t segment_parts, retry_parts;
    pid_t pid;
    int output; /* where it says what it has done: a byte for each load that was acknowledged */
};

void child_start(struct child *child);
/* Waits until it has died, or fails. */
void child_await_death(struct child *child);
/* Whether it has. */
bool child_is_dead(struct child *child);
void child_kill(struct child *child); /* -9, and waits for its end; none: fine */
/* The load was acknowledged; waits for up to ms. */
bool child_loaded(struct child *child, int ms);
/* The program, as a child. */
int child_main(int argc, char **argv);

#endif
