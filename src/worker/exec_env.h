/* SPDX-License-Identifier: Apache-2.0 */
/* The environment of a command that runs a task. */
#ifndef MR_WORKER_EXEC_ENV_H
#define MR_WORKER_EXEC_ENV_H

#include "base/arena.h"

/*
 * The entries of base, without those that have one of our names, and ours: MILLRACE_TASK_ID and so
 * on, each header as MILLRACE_HEADER_NAME; TRACEPARENT, TRACESTATE and BAGGAGE are those of the task as well. The list ends with NULL and lives in the arena; entries
 * of base are not copied.
 */
MR_MUST_USE enum mr_err mr_exec_env(const struct mr_task *task, int64_t deadline_ms,
                                    int progress_fd, char *const *base, struct mr_arena *arena,
                                    char ***ret_env);

#endif
