/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "support/program.h"

enum { WAIT_MS = 20000, LOG_MAX = 64 * 1024 };

void program_arg(struct program_args *args, const char *format, ...)
{
    va_list list;
    assert_true(args->n < PROGRAM_ARGS_MAX - 1);
    va_start(list, format);
    int len = vsnprintf(args->texts[args->n], PROGRAM_TEXT_MAX, format, list);
    va_end(list);
    assert_true(len >= 0 && len < PROGRAM_TEXT_MAX);
    args->n++;
}

/* In the child. */
static void become(const struct program_args *args)
{
    const char *program = getenv("MILLRACE");
    const char *argv[PROGRAM_ARGS_MAX + 1] = {program};
    for (size_t i = 0; i < args->n; i++)
        argv[1 + i] = args->texts[i];
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    execv(program, (char *const *)argv);
    _exit(127);
}

void program_start(struct program *p, const struct program_args *args)
{
    assert_non_null(getenv("MILLRACE"));
    assert_int_equal(p->pid, 0);
    int fd = open(p->log, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    p->pid = fork();
    assert_true(p->pid >= 0);
    if (p->pid == 0) {
        int null = open("/dev/null", O_RDWR);
        (void)dup2(null, STDIN_FILENO);
        (void)dup2(fd, STDOUT_FILENO);
        (void)dup2(fd, STDERR_FILENO);
        become(args);
    }
    (void)close(fd);
}

static void read_log(const struct program *p, char *text, size_t size)
{
    FILE *file = fopen(p->log, "re");
    assert_non_null(file);
    text[fread(text, 1, size - 1, file)] = '\0';
    (void)fclose(file);
}

static bool has_ended(const struct program *p)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)p->pid, &info, WEXITED | WNOHANG | WNOWAIT) != 0 || info.si_pid != 0;
}

/* "ready http=H:P grpc=H:P", or less of it. */
static bool read_ready(struct program *p, const char *text)
{
    const char *at = strncmp(text, "ready", 5) == 0 ? text : strstr(text, "\nready");
    if (at == NULL || strchr(at + 1, '\n') == NULL)
        return false;
    const char *grpc = strstr(at, " grpc="), *http = strstr(at, " http=");
    p->grpc[0] = p->http[0] = '\0';
    if (grpc != NULL)
        assert_int_equal(sscanf(grpc, " grpc=%63s", p->grpc), 1);
    if (http != NULL)
        assert_int_equal(sscanf(http, " http=%63s", p->http), 1);
    return true;
}

void program_await_ready(struct program *p)
{
    char *text = malloc(LOG_MAX);
    mr_mono since = mr_mono_now(mr_clock_system());
    assert_non_null(text);
    for (;;) {
        bool ended = has_ended(p);
        bool late = mr_mono_now(mr_clock_system()).ns - since.ns > WAIT_MS * MR_NS_PER_MS;
        read_log(p, text, LOG_MAX);
        if (read_ready(p, text))
            break;
        if (ended || late)
            fail_msg("%s: %s: %.400s", p->log, ended ? "it has ended" : "it is not ready", text);
        (void)poll(NULL, 0, 5);
    }
    free(text);
}

bool program_says(const struct program *p, const char *what)
{
    char *text = malloc(LOG_MAX);
    assert_non_null(text);
    read_log(p, text, LOG_MAX);
    bool says = strstr(text, what) != NULL;
    free(text);
    return says;
}

void program_kill(struct program *p)
{
    int status;
    if (p->pid == 0)
        return;
    (void)kill(p->pid, SIGKILL);
    (void)kill(p->pid, SIGCONT);
    assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
    p->pid = 0;
}

void program_stop(struct program *p, int exit_code)
{
    int status;
    mr_mono since = mr_mono_now(mr_clock_system());
    assert_int_equal(kill(p->pid, SIGTERM), 0);
    while (!has_ended(p)) {
        if (mr_mono_now(mr_clock_system()).ns - since.ns > WAIT_MS * MR_NS_PER_MS)
            fail_msg("%s: it does not end", p->log);
        (void)poll(NULL, 0, 5);
    }
    assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
    p->pid = 0;
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), exit_code);
}

void program_freeze(struct program *p)
{
    assert_int_equal(kill(p->pid, SIGSTOP), 0);
}

void program_thaw(struct program *p)
{
    assert_int_equal(kill(p->pid, SIGCONT), 0);
}

int program_run(const struct program_args *args, char *text, size_t size)
{
    int ends[2], status;
    size_t len = 0;
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)dup2(ends[1], STDOUT_FILENO);
        become(args);
    }
    (void)close(ends[1]);
    for (;;) {
        struct pollfd ready = {.fd = ends[0], .events = POLLIN};
        if (poll(&ready, 1, WAIT_MS) != 1) {
            (void)kill(pid, SIGKILL);
            fail_msg("%s does not end", args->texts[0]);
        }
        char rest[256];
        ssize_t got = len + 1 < size ? read(ends[0], text + len, size - 1 - len)
                                     : read(ends[0], rest, sizeof rest);
        if (got <= 0)
            break;
        len += len + 1 < size ? (size_t)got : 0;
    }
    text[len] = '\0';
    (void)close(ends[0]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
