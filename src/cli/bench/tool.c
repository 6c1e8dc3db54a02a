/* SPDX-License-Identifier: Apache-2.0 */
/* Other programs that measure, or are measured beside ours. Thread: the main one. */
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/bench/server.h"

bool bench_tool_there(const char *name)
{
    const char *path = getenv("PATH");
    for (const char *at = path ? path : ""; *at != '\0';) {
        char file[MR_PATH_MAX];
        size_t len = strcspn(at, ":");
        (void)snprintf(file, sizeof file, "%.*s/%s", (int)len, at, name);
        if (len > 0 && access(file, X_OK) == 0)
            return true;
        at += len;
        at += *at == ':';
    }
    return false;
}

pid_t bench_tool_start(const char *const *args, int *ret_fd)
{
    int fds[2];
    if (pipe(fds) != 0)
        return -1;
    pid_t parent = getpid(), pid = fork();
    if (pid == 0) {
        own_child_begin(parent);
        dup2(fds[1], STDOUT_FILENO);
        execvp(args[0], (char *const *)(uintptr_t)args);
        _exit(CLI_FAILED);
    }
    close(fds[1]);
    if (pid < 0)
        close(fds[0]);
    *ret_fd = fds[0];
    return pid;
}

enum mr_err bench_tool_read(int fd, char text[BENCH_TOOL_TEXT])
{
    size_t len = 0;
    for (ssize_t n;
         len + 1 < BENCH_TOOL_TEXT && (n = read(fd, text + len, BENCH_TOOL_TEXT - 1 - len)) != 0;)
        if (n > 0)
            len += (size_t)n;
        else if (errno != EINTR)
            return mr_err_from_errno(errno);
    text[len] = '\0';
    return MR_OK;
}

int bench_tool_end(pid_t pid, int signal)
{
    int status = 0;
    if (signal != 0)
        kill(pid, signal);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return status;
}
