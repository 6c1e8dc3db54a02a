/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The child is cloned the way posix_spawn does it: it shares our memory on a stack of its own and
 * we stand still until it runs the command. So the cost does not depend on how much memory the
 * worker has, and the child can leave its errno where we read it. Between clone and exec it only
 * makes system calls. (posix_spawn itself cannot tie the child's life to ours.)
 */
#include "base/spawn.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { STACK_BYTES = 128 * 1024, NOT_STARTED = 127 };

struct child {
    const struct mr_spawn *spawn;
    pid_t parent;
    volatile int errnum;
};

/* Handlers must not run in memory that is shared with us, so no signal may have one when they are
 * unblocked. */
static void reset_signals(void)
{
    struct sigaction standard = {.sa_handler = SIG_DFL};
    for (int signum = 1; signum < NSIG; signum++)
        if (signum != SIGKILL && signum != SIGSTOP)
            sigaction(signum, &standard, NULL);
    sigset_t none;
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

static int child_main(void *arg)
{
    struct child *child = arg;
    const struct mr_spawn *spawn = child->spawn;
    if (setpgid(0, 0) != 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
        goto failed;
    if (getppid() != child->parent)
        _exit(NOT_STARTED); /* it died before we were tied to it */
    for (int fd = 0; fd <= MR_SPAWN_PROGRESS_FD; fd++)
        if (dup2(spawn->fds[fd], fd) < 0)
            goto failed;
    /* Without this call (old kernels) only descriptors that forgot close-on-exec would be
     * inherited. */
    syscall(SYS_close_range, MR_SPAWN_PROGRESS_FD + 1, ~0U, 0);
    reset_signals();
    execvpe(spawn->argv[0], spawn->argv, spawn->env);
failed:
    child->errnum = errno;
    _exit(NOT_STARTED);
}

static pid_t clone_child(struct child *child, char *stack)
{
    /* Signals wait: a handler in the child would run in our memory. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t pid = clone(child_main, stack + STACK_BYTES, CLONE_VM | CLONE_VFORK | SIGCHLD, child);
    if (pid < 0)
        child->errnum = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return pid;
}

enum mr_err mr_spawn(const struct mr_spawn *spawn, pid_t *ret_pid, int *ret_pidfd, int *ret_errno)
{
    char *stack = malloc(STACK_BYTES);
    if (!stack) {
        *ret_errno = ENOMEM;
        return MR_NOMEM;
    }
    struct child child = {.spawn = spawn, .parent = getpid()};
    pid_t pid = clone_child(&child, stack);
    free(stack);
    int pidfd = -1;
    if (pid > 0 && child.errnum == 0) {
        pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
        if (pidfd < 0) {
            child.errnum = errno;
            kill(-pid, SIGKILL);
        }
    }
    if (child.errnum != 0) {
        if (pid > 0)
            waitpid(pid, NULL, 0);
        *ret_errno = child.errnum;
        return mr_err_from_errno(child.errnum);
    }
    *ret_pid = pid;
    *ret_pidfd = pidfd;
    return MR_OK;
}
