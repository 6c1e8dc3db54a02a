/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/own_server.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/cli.h"

enum { READY_MS = 60 * 1000 }; /* far more than any folder of ours needs */

void own_child_begin(pid_t parent)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent)
        _exit(CLI_FAILED); /* it was gone before */
    setpgid(0, 0);
}

/* The environment without our own variables. */
static char **plain_environment(void)
{
    size_t n = 0, kept = 0;
    while (environ[n])
        n++;
    char **env = cli_alloc(n + 1, sizeof *env);
    for (size_t i = 0; i < n; i++)
        if (strncmp(environ[i], "MILLRACE_", strlen("MILLRACE_")) != 0)
            env[kept++] = environ[i];
    return env;
}

/* Between fork and exec only what is safe there. */
static _Noreturn void become_server(pid_t parent, int err_fd, char *const *argv, char *const *env)
{
    int null_fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    own_child_begin(parent);
    if (null_fd >= 0 && dup2(null_fd, STDIN_FILENO) >= 0 && dup2(null_fd, STDOUT_FILENO) >= 0 &&
        dup2(err_fd, STDERR_FILENO) >= 0)
        execve("/proc/self/exe", argv, env);
    _exit(CLI_FAILED);
}

enum mr_err own_server_start(struct own_server *server, const char *dir, const char *address,
                             struct mr_detail *detail)
{
    const char *const argv[] = {"millrace",    "serve",  "--data", dir, "--listen",
                                "127.0.0.1:0", "--grpc", address,  NULL};
    return own_server_start_args(server, argv, detail);
}

enum mr_err own_server_start_args(struct own_server *server, const char *const *argv,
                                  struct mr_detail *detail)
{
    int fds[2];
    *server = (struct own_server){0};
    if (pipe2(fds, O_CLOEXEC) != 0) {
        mr_detail_set(detail, "cannot make a pipe: %m");
        return mr_err_from_errno(errno);
    }
    char **env = plain_environment();
    pid_t parent = getpid(), pid = fork();
    if (pid == 0)
        become_server(parent, fds[1], (char *const *)(uintptr_t)argv, env);
    int why = errno;
    free(env);
    close(fds[1]);
    if (pid < 0) {
        close(fds[0]);
        mr_detail_set(detail, "cannot start a process: %s", mr_err_text(mr_err_from_errno(why)));
        return mr_err_from_errno(why);
    }
    fcntl(fds[0], F_SETFL, O_NONBLOCK);
    server->pid = pid;
    server->err_fd = fds[0];
    return MR_OK;
}

static void look_for_ready(struct own_server *server)
{
    server->said[server->said_len] = '\0';
    const char *line = strstr(server->said, "ready ");
    const char *grpc = line ? strstr(line, " grpc=") : NULL;
    const char *end = grpc ? strchr(grpc, '\n') : NULL;
    if (!end)
        return;
    const char *http = strstr(line, " http=");
    if (http && http < grpc) {
        http += strlen(" http=");
        snprintf(server->http, sizeof server->http, "%.*s", (int)strcspn(http, " "), http);
    }
    grpc += strlen(" grpc=");
    snprintf(server->grpc, sizeof server->grpc, "%.*s", (int)(end - grpc), grpc);
    server->ready = true;
}

bool own_server_hear(struct own_server *server)
{
    char bytes[OWN_SERVER_SAID / 2];
    for (;;) {
        ssize_t n = read(server->err_fd, bytes, sizeof bytes);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 && errno == EAGAIN;
        size_t room = sizeof server->said - 1 - server->said_len;
        if ((size_t)n > room) {
            size_t cut = (size_t)n - room;
            memmove(server->said, server->said + cut, server->said_len - cut);
            server->said_len -= cut;
        }
        memcpy(server->said + server->said_len, bytes, (size_t)n);
        server->said_len += (size_t)n;
        if (!server->ready)
            look_for_ready(server);
    }
}

enum mr_err own_server_await(struct own_server *server, struct mr_detail *detail)
{
    struct pollfd fd = {.fd = server->err_fd, .events = POLLIN};
    bool there = true;
    while (there && !server->ready) {
        int n = poll(&fd, 1, READY_MS);
        if (n == 0) {
            mr_detail_set(detail, "the server is not ready after %d s", READY_MS / 1000);
            return MR_TIMEOUT;
        }
        there = own_server_hear(server);
    }
    if (server->ready)
        return MR_OK;
    mr_detail_set(detail, "the server does not start: %s", server->said);
    return MR_UNAVAILABLE;
}

static int end_by(struct own_server *server, int number)
{
    int status = 0;
    if (server->pid <= 0)
        return 0;
    kill(server->pid, number);
    while (waitpid(server->pid, &status, 0) < 0 && errno == EINTR)
        ;
    (void)own_server_hear(server);
    close(server->err_fd);
    server->pid = 0;
    return status;
}

void own_server_kill(struct own_server *server)
{
    end_by(server, SIGKILL);
}

int own_server_stop(struct own_server *server)
{
    return end_by(server, SIGTERM);
}
