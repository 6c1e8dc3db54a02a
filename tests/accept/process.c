/* SPDX-License-Identifier: Apache-2.0 */
/* Processes of a test: workers, and the program millrace. All of them die with the test. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "accept/accept.h"

/* Ours hear a SIGTERM that comes while they start, once they listen: see accept_on_term. */
static void hold_term(const char *program)
{
    sigset_t term;
    (void)sigemptyset(&term);
    (void)sigaddset(&term, SIGTERM);
    if (strcmp(program, "/proc/self/exe") == 0)
        (void)sigprocmask(SIG_BLOCK, &term, NULL);
}

void accept_on_term(void (*told)(int number))
{
    sigset_t term;
    (void)signal(SIGTERM, told);
    (void)sigemptyset(&term);
    (void)sigaddset(&term, SIGTERM);
    (void)sigprocmask(SIG_UNBLOCK, &term, NULL);
}

pid_t accept_spawn(const char *const *argv, int err_fd)
{
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        hold_term(argv[0]);
        int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent && null_fd >= 0 && dup2(null_fd, STDIN_FILENO) >= 0 &&
            dup2(null_fd, STDOUT_FILENO) >= 0 && (err_fd < 0 || dup2(err_fd, STDERR_FILENO) >= 0))
            execv(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    assert_true(pid > 0);
    return pid;
}

static pid_t keep(struct accept *t, pid_t pid)
{
    for (size_t i = 0; i < ACCEPT_PROCESSES_MAX; i++)
        if (t->processes[i] == 0)
            return t->processes[i] = pid;
    (void)kill(pid, SIGKILL);
    fail_msg("more than %d processes", ACCEPT_PROCESSES_MAX);
    return pid;
}

pid_t accept_spawn_kept(struct accept *t, const char *const *argv)
{
    return keep(t, accept_spawn(argv, -1));
}

pid_t accept_spawn_employed(struct accept *t, const char *url, const struct accept_worker *options)
{
    const int64_t values[] = {options->slots, options->beat_ms, options->grace_ms,
                              options->drain_ms, options->never_leads};
    char numbers[sizeof values / sizeof *values][24];
    for (size_t i = 0; i < sizeof values / sizeof *values; i++)
        (void)snprintf(numbers[i], sizeof numbers[i], "%lld", (long long)values[i]);
    return keep(
        t, accept_spawn((const char *const[]){"/proc/self/exe", "--worker", url, t->audit,
                                              options->queues ? options->queues : "default",
                                              options->node ? options->node : "", numbers[0],
                                              numbers[1], numbers[2], numbers[3], numbers[4], NULL},
                        -1));
}

pid_t accept_spawn_worker(struct accept *t, const char *url, const char *queues, unsigned slots)
{
    return PROCESS(t, url, .queues = queues, .slots = slots);
}

pid_t accept_spawn_master(struct accept *t, const char *url, const char *topic, unsigned n,
                          const char *file)
{
    char number[16];
    (void)snprintf(number, sizeof number, "%u", n);
    return keep(t, accept_spawn((const char *const[]){"/proc/self/exe", "--master", url, topic,
                                                      number, file, NULL},
                                -1));
}

pid_t accept_spawn_millrace(struct accept *t, const char *const *args)
{
    const char *argv[32] = {getenv("MILLRACE")};
    size_t n = 1;
    assert_non_null(argv[0]);
    for (; args[n - 1]; n++) {
        assert_true(n < 31);
        argv[n] = args[n - 1];
    }
    int null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
    pid_t pid = accept_spawn(argv, null_fd);
    (void)close(null_fd);
    return keep(t, pid);
}

static int end_by(struct accept *t, pid_t pid, int number)
{
    int status = 0;
    if (pid <= 0)
        return 0;
    (void)kill(pid, number);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    for (size_t i = 0; i < ACCEPT_PROCESSES_MAX; i++)
        if (t->processes[i] == pid)
            t->processes[i] = 0;
    return status;
}

void accept_kill_process(struct accept *t, pid_t pid)
{
    (void)end_by(t, pid, SIGKILL);
}

void accept_end_process(struct accept *t, pid_t pid)
{
    int status = end_by(t, pid, SIGTERM);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
