/* SPDX-License-Identifier: Apache-2.0 */
/* Workers of a test: what their handlers do, and the file where they note it. */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "accept/accept.h"
#include "base/text.h"

enum { GRACE_MS = 100, DRAIN_MS = 10000, SLOTS = 4, QUEUES_MAX = 64, HOLD_LOOK_MS = 2 };

/* ---- handlers ------------------------------------------------------------------------------- */

static void note(int fd, const struct mr_task *task)
{
    struct accept_run run = {.attempt = task->attempt,
                             .pid = getpid(),
                             .epoch = task->epoch,
                             .mono_ns = accept_now().ns};
    (void)snprintf(run.id, sizeof run.id, "%.*s", (int)task->id.len, (const char *)task->id.data);
    (void)snprintf(run.queue, sizeof run.queue, "%.*s", (int)task->queue.len,
                   (const char *)task->queue.data);
    if (write(fd, &run, sizeof run) != (ssize_t)sizeof run)
        abort(); /* without it the test would judge wrongly */
}

static void note_run(struct accept *t, const struct mr_task *task)
{
    note(t->audit_fd, task);
}

static enum mr_outcome told_to_stop(struct accept *t, struct mr_run *run)
{
    note(t->told_fd, mr_run_task(run));
    mr_run_error(run, "told to stop");
    return MR_FAIL;
}

static int64_t ms_of(const struct mr_task *task)
{
    char text[32];
    int64_t ms = 0;
    (void)snprintf(text, sizeof text, "%.*s", (int)task->payload.len,
                   (const char *)task->payload.data);
    return mr_parse_int64(text, &ms) == MR_OK ? ms : 0;
}

static enum mr_outcome echo(struct mr_run *run)
{
    return mr_run_result(run, mr_run_task(run)->payload) == MR_OK ? MR_DONE : MR_FAIL_FOR_GOOD;
}

static enum mr_outcome run_echo(struct mr_run *run, void *arg)
{
    note_run(arg, mr_run_task(run));
    return echo(run);
}

static enum mr_outcome run_hold(struct mr_run *run, void *arg)
{
    struct accept *t = arg;
    note_run(t, mr_run_task(run));
    while (t->hold)
        if (mr_run_wait_cancelled(run, HOLD_LOOK_MS))
            return told_to_stop(t, run);
    return echo(run);
}

static enum mr_outcome run_sleep(struct mr_run *run, void *arg)
{
    note_run(arg, mr_run_task(run));
    if (mr_run_wait_cancelled(run, ms_of(mr_run_task(run))))
        return told_to_stop(arg, run);
    return echo(run);
}

static enum mr_outcome run_first(struct mr_run *run, void *arg)
{
    note_run(arg, mr_run_task(run));
    if (mr_run_task(run)->attempt > 1)
        return echo(run);
    while (!mr_run_wait_cancelled(run, ACCEPT_WAIT_MS))
        ;
    return told_to_stop(arg, run);
}

static enum mr_outcome run_nap(struct mr_run *run, void *arg)
{
    note_run(arg, mr_run_task(run));
    accept_pass_ms(ms_of(mr_run_task(run)));
    return echo(run);
}

static enum mr_outcome run_crash(struct mr_run *run, void *arg)
{
    note_run(arg, mr_run_task(run));
    (void)kill(getpid(), SIGKILL);
    return MR_FAIL;
}

static enum mr_outcome run_deaf(struct mr_run *run, void *arg)
{
    struct accept *t = arg;
    note_run(t, mr_run_task(run));
    while (t->hold)
        (void)poll(NULL, 0, HOLD_LOOK_MS);
    return echo(run);
}

static enum mr_outcome run_fail(struct mr_run *run, void *arg)
{
    note_run(arg, mr_run_task(run));
    mr_run_error(run, "as it was told");
    return MR_FAIL;
}

static enum mr_outcome run_fatal(struct mr_run *run, void *arg)
{
    (void)run_fail(run, arg);
    return MR_FAIL_FOR_GOOD;
}

static enum mr_outcome run_pace(struct mr_run *run, void *arg)
{
    mr_run_retry_after(run, ms_of(mr_run_task(run)));
    return run_fail(run, arg);
}

static const struct {
    const char *type;
    mr_handler *handler;
} handlers[] = {
    {"echo", run_echo}, {"hold", run_hold},   {"sleep", run_sleep}, {"deaf", run_deaf},
    {"fail", run_fail}, {"fatal", run_fatal}, {"pace", run_pace},   {"first", run_first},
    {"nap", run_nap},   {"crash", run_crash},
};

/* ---- workers -------------------------------------------------------------------------------- */

/* Reads "a=6 b=3 c" into queues; answers how many. */
static size_t parse_queues(const char *text, struct mr_worker_queue *queues)
{
    size_t n = 0;
    for (; *text; n++) {
        assert_true(n < QUEUES_MAX);
        size_t len = strcspn(text, "= ");
        queues[n] = (struct mr_worker_queue){.name = {text, len}};
        text += len;
        if (*text == '=') {
            char *end;
            queues[n].weight = (uint32_t)strtoul(text + 1, &end, 10);
            text = end;
        }
        text += strspn(text, " ");
    }
    return n;
}

static struct mr_worker *make_worker(struct accept *t, const struct accept_worker *o)
{
    struct mr_worker_queue queues[QUEUES_MAX];
    struct mr_worker_options options = {
        .node = mr_slice_str(o->node ? o->node : ""),
        .queues = queues,
        .queues_n = parse_queues(o->queues ? o->queues : "default", queues),
        .order = o->order,
        .slots = o->slots || o->machines_n > 0 ? o->slots : SLOTS,
        .grace_ms = o->grace_ms ? o->grace_ms : GRACE_MS,
        .drain_ms = o->drain_ms ? o->drain_ms : DRAIN_MS,
        .beat_ms = o->beat_ms ? o->beat_ms : ACCEPT_BEAT_MS,
        .beats_missed = ACCEPT_BEATS_MISSED,
        .retry_levels_ms = o->retry_levels_ms,
        .retry_levels_n = o->retry_levels_n,
        .retry_max_ms = o->retry_max_ms,
        .burst = o->burst,
        .machines = o->machines,
        .machines_n = o->machines_n,
        .poll_ms = o->poll_ms,
        .pause_min_us = o->pause_min_us,
        .pause_max_us = o->pause_max_us,
        .watch = o->watch,
        .watch_arg = o->watch_arg,
        .never_leads = o->never_leads,
    };
    struct mr_worker *worker = NULL;
    assert_err(mr_worker_new(t->client, &options, &worker), MR_OK);
    for (size_t i = 0; i < sizeof handlers / sizeof *handlers; i++)
        assert_err(mr_worker_handle(worker, handlers[i].type, handlers[i].handler, t), MR_OK);
    return worker;
}

struct mr_worker *accept_employ(struct accept *t, const struct accept_worker *options)
{
    assert_true(t->workers_n < ACCEPT_PROCESSES_MAX);
    struct mr_worker *worker = make_worker(t, options);
    t->workers[t->workers_n++] = worker;
    assert_err(mr_worker_start(worker), MR_OK);
    return worker;
}

void accept_dismiss(struct accept *t, struct mr_worker *worker)
{
    for (size_t i = 0; i < t->workers_n; i++)
        if (t->workers[i] == worker)
            t->workers[i--] = t->workers[--t->workers_n];
    mr_worker_free(worker);
}

void accept_burst(struct accept *t, struct accept_worker options)
{
    options.burst = true;
    struct mr_worker *worker = make_worker(t, &options);
    assert_err(mr_worker_run(worker), MR_OK);
    mr_worker_free(worker);
}

/* ---- notes ---------------------------------------------------------------------------------- */

static struct accept_run *read_notes(int fd, size_t *ret_n)
{
    off_t size = lseek(fd, 0, SEEK_END);
    assert_true(size >= 0);
    size_t n = (size_t)size / sizeof(struct accept_run), got = 0;
    struct accept_run *runs = calloc(n + 1, sizeof *runs);
    assert_non_null(runs);
    while (got < n * sizeof *runs) {
        ssize_t some = pread(fd, (char *)runs + got, n * sizeof *runs - got, (off_t)got);
        assert_true(some > 0);
        got += (size_t)some;
    }
    *ret_n = n;
    return runs;
}

struct accept_run *accept_runs(struct accept *t, size_t *ret_n)
{
    return read_notes(t->audit_fd, ret_n);
}

size_t accept_ran_all(struct accept *t)
{
    off_t size = lseek(t->audit_fd, 0, SEEK_END);
    return (size_t)size / sizeof(struct accept_run);
}

static size_t count_notes(int fd, const char *id)
{
    size_t n, times = 0;
    struct accept_run *runs = read_notes(fd, &n);
    for (size_t i = 0; i < n; i++)
        times += strcmp(runs[i].id, id) == 0;
    free(runs);
    return times;
}

size_t accept_ran(struct accept *t, const char *id)
{
    return count_notes(t->audit_fd, id);
}

size_t accept_told(struct accept *t, const char *id)
{
    return count_notes(t->told_fd, id);
}

static int compare_runs(const void *a, const void *b)
{
    return strcmp(((const struct accept_run *)a)->id, ((const struct accept_run *)b)->id);
}

void accept_each_ran_once(struct accept *t)
{
    size_t n;
    struct accept_run *runs = accept_runs(t, &n);
    qsort(runs, n, sizeof *runs, compare_runs);
    for (size_t i = 1; i < n; i++)
        if (strcmp(runs[i - 1].id, runs[i].id) == 0)
            fail_msg("%s ran twice", runs[i].id);
    assert_int_equal(n, t->ids_n);
    free(runs);
}

/* ---- as a process of its own ---------------------------------------------------------------- */

/* What a worker that was stopped leaves in AUDIT.figures. */
struct left {
    pid_t pid;
    struct mr_worker_figures figures;
};

struct mr_worker_figures accept_figures(struct accept *t, pid_t pid)
{
    struct left left = {0};
    char path[MR_PATH_MAX + 16];
    (void)snprintf(path, sizeof path, "%s.figures", t->audit);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    while (left.pid != pid && fread(&left, sizeof left, 1, file) == 1)
        ;
    (void)fclose(file);
    assert_int_equal(left.pid, pid);
    return left.figures;
}

static void leave_figures(const char *audit, struct mr_worker *worker)
{
    struct left left = {.pid = getpid()};
    char path[MR_PATH_MAX + 16];
    (void)snprintf(path, sizeof path, "%s.figures", audit);
    mr_worker_figures(worker, &left.figures);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, &left, sizeof left) != (ssize_t)sizeof left)
        abort();
    (void)close(fd);
}

static _Atomic(struct mr_worker *) employed;

static void *await_term(void *arg)
{
    int number;
    (void)sigwait(arg, &number);
    struct mr_worker *worker = employed;
    if (!worker)
        _exit(0);
    mr_worker_stop(worker);
    return NULL;
}

static enum mr_err work_until_term(struct accept *t, const char *audit,
                                   const struct accept_worker *options, pthread_t stopper)
{
    struct mr_worker *worker = make_worker(t, options);
    employed = worker;
    enum mr_err err = mr_worker_run(worker);
    if (err != MR_OK) { /* it never began, or its store failed */
        employed = NULL;
        mr_worker_free(worker);
        mr_client_close(t->client);
        return err;
    }
    leave_figures(audit, worker);
    mr_thread_join(stopper); /* nobody else ends a run */
    mr_worker_free(worker);
    mr_client_close(t->client);
    return err;
}

static bool open_notes(struct accept *t, const char *audit)
{
    char told[MR_PATH_MAX + 8];
    (void)snprintf(told, sizeof told, "%s.told", audit);
    t->audit_fd = open(audit, O_WRONLY | O_APPEND | O_CLOEXEC);
    t->told_fd = open(told, O_WRONLY | O_APPEND | O_CLOEXEC);
    return t->audit_fd >= 0 && t->told_fd >= 0;
}

/* --worker URL AUDIT QUEUES NODE SLOTS BEAT_MS GRACE_MS DRAIN_MS NEVER_LEADS */
int accept_worker_main(int argc, char **argv)
{
    static struct accept t;
    static sigset_t term;
    int64_t numbers[5];
    pthread_t stopper;
    struct mr_detail detail = {.text = ""};
    if (argc != 11 || !open_notes(&t, argv[3]))
        return 2;
    for (int i = 0; i < 5; i++)
        if (mr_parse_int64(argv[6 + i], &numbers[i]) != MR_OK)
            return 2;
    struct accept_worker options = {.queues = argv[4],
                                    .node = argv[5],
                                    .slots = (uint32_t)numbers[0],
                                    .beat_ms = numbers[1],
                                    .grace_ms = numbers[2],
                                    .drain_ms = numbers[3],
                                    .never_leads = numbers[4] != 0};
    (void)sigemptyset(&term);
    (void)sigaddset(&term, SIGTERM);
    (void)pthread_sigmask(SIG_BLOCK, &term, NULL);
    if (mr_thread_start(&stopper, "stopper", await_term, &term) != MR_OK)
        return 1;
    enum mr_err err = MR_UNAVAILABLE;
    /* A server that goes away while we begin is a reason to begin again. */
    while (err == MR_UNAVAILABLE) {
        err = mr_client_open(argv[2], NULL, &t.client, &detail);
        if (err != MR_OK)
            continue;
        err = work_until_term(&t, argv[3], &options, stopper);
    }
    if (err != MR_OK)
        (void)fprintf(stderr, "%s: %s: %s\n", argv[2], mr_err_name(err), detail.text);
    return err == MR_OK ? 0 : 1;
}
