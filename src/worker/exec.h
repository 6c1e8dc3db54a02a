/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A handler that runs a command once per task: the worker for every language.
 *
 * The payload comes on stdin, the result is stdout (at most 1 MiB), the last 4 KiB of stderr are
 * the error text of a failure. Environment: MILLRACE_TASK_ID, _TASK_TYPE, _QUEUE, _ATTEMPT, _EPOCH,
 * _DEADLINE (Unix ms, 0 for none), _PROGRESS_FD (takes lines "PERCENT [TEXT]"), and each header as
 * MILLRACE_HEADER_NAME. Exit 0: done. 100: failed for good. 101: hand it back. 102: drop it. 103:
 * not a failure, try again later. Any other, or a signal: failed. When the run should stop, its
 * process group gets SIGTERM, and SIGKILL after the worker's grace.
 */
#ifndef MR_WORKER_EXEC_H
#define MR_WORKER_EXEC_H

#include <millrace.h>

/* What to run; must outlive the worker. */
struct mr_exec_command {
    char *const *argv; /* ends with NULL; argv[0] is looked up in PATH */
};

/* arg is a struct mr_exec_command. For mr_worker_handle. Thread: a slot's (all signals blocked). */
enum mr_outcome mr_exec_handler(struct mr_run *run, void *arg);

#endif
