/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The child is cloned the way posix_spawn does it: it shares our memory on a stack of its own and
 * we stand still until it runs the command. So the cost does not depend on how much memory the
 * worker has. Between clone and exec it only makes system calls. (posix_spawn itself cannot tie the
 * child's life to ours.) Why it could not run the command comes through a pipe that a successful
 * exec closes.
 */
#include "base/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"

enum { STACK_BYTES = 128 * 1024, NOT_STARTED = 127 };

static struct rlimit files_before; /* rlim_max 0: nothing was raised */

void mr_spawn_raise_files(void)
{
    struct rlimit before;
    if (getrlimit(RLIMIT_NOFILE, &before) != 0 || before.rlim_cur == before.rlim_max)
        return;
    struct rlimit raised = {before.rlim_max, before.rlim_max};
    if (setrlimit(RLIMIT_NOFILE, &raised) == 0)
        files_before = before;
}

struct child {
    const struct mr_spawn *spawn;
    pid_t parent;
    int failure; /* takes an errno */
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
    const struct child *child = arg;
    const struct mr_spawn *spawn = child->spawn;
    int errnum;
    if (setpgid(0, 0) != 0 || prctl(PR_SET_PDEATHSIG, SIGKILL) != 0)
        goto failed;
    if (getppid() != child->parent)
        _exit(NOT_STARTED); /* it died before we were tied to it */
    for (int fd = 0; fd <= MR_SPAWN_PROGRESS_FD; fd++)
        if (dup2(spawn->fds[fd], fd) < 0)
            goto failed;
    /* For descriptors that were opened without close-on-exec. Old kernels do not have this call. */
    syscall(SYS_close_range, MR_SPAWN_PROGRESS_FD + 1, ~0U, CLOSE_RANGE_CLOEXEC);
    if (files_before.rlim_max > 0)
        setrlimit(RLIMIT_NOFILE, &files_before);
    reset_signals();
    execvpe(spawn->argv[0], spawn->argv, spawn->env);
failed:
    errnum = errno;
    ssize_t written = write(child->failure, &errnum, sizeof errnum);
    _exit(written == sizeof errnum ? NOT_STARTED : NOT_STARTED + 1);
}

/* -1 with errno. */
static pid_t clone_child(struct child *child)
{
#ifdef __SANITIZE_THREAD__
    /* ThreadSanitizer takes a clone for a fork and forgets its own state in our shared memory. */
    pid_t pid = fork();
    return pid != 0 ? pid : child_main(child);
#else
    char *stack = malloc(STACK_BYTES);
    if (!stack)
        return -1;
    pid_t pid = clone(child_main, stack + STACK_BYTES, CLONE_VM | CLONE_VFORK | SIGCHLD, child);
    int errnum = errno;
    free(stack);
    errno = errnum;
    return pid;
#endif
}

/* Signals wait meanwhile: a handler in the child would run in our memory. -1 with errno. */
static pid_t start_child(struct child *child)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pid_t pid = clone_child(child);
    int errnum = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    errno = errnum;
    return pid;
}

/* Runs the command; answers 0 or an errno. */
static int start(const struct mr_spawn *spawn, pid_t *ret_pid)
{
    int failure[2];
    if (pipe2(failure, O_CLOEXEC) != 0)
        return errno;
    int childs = mr_fd_above(failure[1], MR_SPAWN_PROGRESS_FD);
    int ours = childs >= 0 ? mr_fd_apart(failure[0]) : failure[0];
    struct child child = {.spawn = spawn, .parent = getpid(), .failure = childs};
    pid_t pid = childs >= 0 && ours >= 0 ? start_child(&child) : -1;
    int errnum = pid < 0 ? errno : 0;
    if (childs >= 0)
        close(childs);
    if (pid > 0 && read(ours, &errnum, sizeof errnum) != 0)
        waitpid(pid, NULL, 0);
    if (ours >= 0)
        close(ours);
    *ret_pid = pid;
    return errnum;
}

enum mr_err mr_spawn(const struct mr_spawn *spawn, pid_t *ret_pid, int *ret_pidfd, int *ret_errno)
{
    pid_t pid = -1;
    int errnum = start(spawn, &pid);
    if (errnum == 0) {
        int pidfd = mr_fd_apart((int)syscall(SYS_pidfd_open, pid, 0));
        if (pidfd >= 0) {
            *ret_pid = pid;
            *ret_pidfd = pidfd;
            return MR_OK;
        }
        errnum = errno;
        kill(-pid, SIGKILL);
        waitpid(pid, NULL, 0);
    }
    *ret_errno = errnum;
    return mr_err_from_errno(errnum);
}
