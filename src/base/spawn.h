/* SPDX-License-Identifier: Apache-2.0 */
/* Starting a process with four pipes. Thread: any. */
#ifndef MR_BASE_SPAWN_H
#define MR_BASE_SPAWN_H

#include <sys/types.h>

#include "base/err.h"

enum { MR_SPAWN_PROGRESS_FD = 3 }; /* what the child sees as its progress pipe */

/* The child's ends, in the order of its descriptors: stdin, stdout, stderr, progress. */
struct mr_spawn {
    char *const *argv;
    char *const *env;
    int fds[MR_SPAWN_PROGRESS_FD + 1]; /* each above MR_SPAWN_PROGRESS_FD, close-on-exec */
};

/*
 * Starts the command as leader of its own process group, without signals blocked and with no other
 * descriptor open. It dies with the calling thread. Answers the process and a descriptor that
 * becomes readable when it ends; on failure errno in ret_errno.
 */
MR_MUST_USE enum mr_err mr_spawn(const struct mr_spawn *spawn, pid_t *ret_pid, int *ret_pidfd,
                                 int *ret_errno);

/*
 * From now on this process may have as many descriptors open as the system lets it: what is usual is too
 * few for many queues and slots. Commands begin with what it had before: some cannot do with more. Before
 * the first thread.
 */
void mr_spawn_raise_files(void);

#endif
