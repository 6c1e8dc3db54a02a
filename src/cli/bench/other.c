/* SPDX-License-Identifier: Apache-2.0 */
/* Workers in processes of their own: see server.h. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/bench/server.h"

enum { SLOTS = 8 };

struct place {
    int began;
    enum bench_other_does does;
};

static enum mr_outcome write_start(struct mr_run *run, void *arg)
{
    const struct place *place = arg;
    int64_t now_ns = bench_now_ns(); /* the same clock in every process */
    if (write(place->began, &now_ns, sizeof now_ns) != sizeof now_ns)
        _exit(CLI_FAILED);
    while (place->does == BENCH_OTHER_HOLDS && !mr_run_wait_cancelled(run, INT32_MAX))
        ;
    return MR_DONE;
}

/* Until SIGTERM, which is blocked. */
static _Noreturn void work_elsewhere(struct bench_server *server, pid_t parent, struct place place)
{
    struct mr_client *client;
    struct mr_worker *worker;
    sigset_t term;
    int number;
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    own_child_begin(parent);
    cli_must(bench_server_open(server, &client));
    cli_must(bench_worker_new(client, SLOTS, write_start, &place, &worker));
    sigwait(&term, &number);
    mr_worker_free(worker);
    mr_client_close(client);
    _exit(CLI_OK);
}

enum mr_err bench_other_start(struct bench_server *server, enum bench_other_does does,
                              struct bench_other *ret_other)
{
    int fds[2];
    sigset_t term;
    pid_t parent = getpid();
    if (pipe(fds) != 0)
        return mr_err_from_errno(errno);
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigprocmask(SIG_BLOCK, &term, NULL);
    pid_t pid = fork();
    if (pid == 0)
        work_elsewhere(server, parent, (struct place){fds[1], does});
    sigprocmask(SIG_UNBLOCK, &term, NULL);
    close(fds[1]);
    if (pid < 0) {
        close(fds[0]);
        return MR_NOMEM;
    }
    *ret_other = (struct bench_other){.pid = pid, .began = fds[0]};
    return MR_OK;
}

static void end_by(struct bench_other *other, int number)
{
    if (other->pid == 0)
        return;
    kill(other->pid, number);
    while (waitpid(other->pid, NULL, 0) < 0 && errno == EINTR)
        ;
    close(other->began);
    *other = (struct bench_other){0};
}

void bench_other_end(struct bench_other *other)
{
    end_by(other, SIGTERM);
}

void bench_other_kill(struct bench_other *other)
{
    end_by(other, SIGKILL);
}

enum mr_err bench_other_await(struct bench_other *other, int64_t *ret_began_ns)
{
    enum { PATIENCE_MS = 30 * 1000 };
    struct pollfd fd = {.fd = other->began, .events = POLLIN};
    if (poll(&fd, 1, PATIENCE_MS) != 1)
        return bench_interrupted() ? MR_CANCELLED : MR_TIMEOUT;
    if (read(other->began, ret_began_ns, sizeof *ret_began_ns) != sizeof *ret_began_ns)
        return MR_FAILED;
    return bench_interrupted() ? MR_CANCELLED : MR_OK;
}

enum mr_err bench_other_latency(struct mr_client *client, struct bench_other *other,
                                int64_t *ret_ns)
{
    struct mr_task_options task = bench_task();
    struct mr_enqueue_result result;
    int64_t began, called = bench_now_ns();
    MR_TRY(mr_enqueue(client, &task, 1, &result));
    MR_TRY(result.err);
    MR_TRY(bench_other_await(other, &began));
    *ret_ns = began - called;
    return MR_OK;
}
