/* SPDX-License-Identifier: Apache-2.0 */
/* millrace selftest: the kills, and the report. The map is in selftest.h. */
#include "cli/selftest.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/rand.h"
#include "cli/cli.h"
#include "cli/interrupt.h"
#include "cli/out.h"
#include "cli/own_server.h"
#include "cli/remove_dir.h"

enum {
    CRASHES_DEFAULT = 20,
    CRASHES_MAX = 1000 * 1000,
    LIFE_MS_MAX = 400,       /* of a server that is ready */
    STARTING_ONE_IN = 6,     /* so many kills meet a server that is not */
    STARTING_MS_MAX = 30,    /* and come that soon */
    PATIENCE_MS = 30 * 1000, /* nobody comes back: something is wrong */
    LOOK_MS = 20,
    PORT_MIN = 10000, /* below those the system gives to clients, one of which might sit
                                 on ours while nobody listens */
    PORT_MAX = 32000,
    PORT_TRIES = 20,
};

struct selftest_args {
    struct cli_value crash, dir, seed;
};

struct selftest {
    struct cli *cli;
    uint64_t crashes; /* wanted */
    struct mr_rand rand;
    char dir[MR_PATH_MAX], data[MR_PATH_MAX]; /* ours, and the server's in it */
    char address[OWN_SERVER_ADDRESS], url[OWN_SERVER_ADDRESS + 16];
    struct own_server server;
    struct selftest_load loads[SELFTEST_LOADS];
    pid_t pids[SELFTEST_LOADS]; /* 0: not there */
    int pipe;                   /* what they say; -1 at its end */
    struct selftest_ledger ledger;
    struct selftest_figures figures;
    struct mr_detail detail; /* why it could not go on */
};

static int64_t now_ns(void)
{
    return mr_mono_now(mr_clock_system()).ns;
}

static double ms_since(int64_t start_ns)
{
    return (double)(now_ns() - start_ns) / (double)MR_NS_PER_MS;
}

/* ---- the processes --------------------------------------------------------------------------- */

/* In the child. SIGTERM is blocked: it is waited for there. */
static _Noreturn void become_load(struct selftest *self, uint32_t i, pid_t parent)
{
    own_child_begin(parent);
    _exit(selftest_bodies[i](&self->loads[i]));
}

/* Before there is any thread. */
static enum mr_err start_loads(struct selftest *self)
{
    static const char *const names[SELFTEST_LOADS] = {"producer 1", "producer 2", "worker 1",
                                                      "worker 2"};
    enum mr_err err = MR_OK;
    sigset_t term;
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0)
        return mr_err_from_errno(errno);
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    sigprocmask(SIG_BLOCK, &term, NULL);
    pid_t parent = getpid();
    for (uint32_t i = 0; err == MR_OK && i < SELFTEST_LOADS; i++) {
        self->loads[i] = (struct selftest_load){
            .name = names[i], .url = self->url, .pipe = fds[1], .number = i % SELFTEST_PRODUCERS};
        self->pids[i] = fork();
        if (self->pids[i] == 0)
            become_load(self, i, parent);
        if (self->pids[i] < 0) {
            err = mr_err_from_errno(errno);
            self->pids[i] = 0;
        }
    }
    sigprocmask(SIG_UNBLOCK, &term, NULL);
    close(fds[1]);
    fcntl(fds[0], F_SETFL, O_NONBLOCK);
    self->pipe = fds[0];
    return err;
}

/* All that was said until now. */
static void hear_all(struct selftest *self)
{
    enum { MESSAGES = 512 };
    struct selftest_message messages[MESSAGES];
    while (self->pipe >= 0) {
        ssize_t n = read(self->pipe, messages, sizeof messages);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return;
        if (n == 0) {
            close(self->pipe);
            self->pipe = -1;
        }
        for (size_t i = 0; i < (size_t)n / sizeof *messages; i++)
            ledger_hear(&self->ledger, &messages[i]);
    }
}

/* It ended without being killed. */
static void server_ended(struct selftest *self)
{
    own_server_kill(&self->server);
    ledger_wrong(&self->ledger, "the server ended by itself: %s", self->server.said);
}

/* Listens to everybody, for so long at most. */
static void hear(struct selftest *self, int64_t ms)
{
    struct pollfd fds[] = {{.fd = self->pipe, .events = POLLIN},
                           {.fd = self->server.pid ? self->server.err_fd : -1, .events = POLLIN}};
    if (poll(fds, 2, (int)ms) <= 0)
        return;
    if (fds[0].revents)
        hear_all(self);
    if (fds[1].revents && !own_server_hear(&self->server))
        server_ended(self);
}

/* One that has ended without being told to. */
static void look_after_loads(struct selftest *self)
{
    for (size_t i = 0; i < SELFTEST_LOADS; i++) {
        int status;
        if (self->pids[i] == 0 || waitpid(self->pids[i], &status, WNOHANG) != self->pids[i])
            continue;
        self->pids[i] = 0;
        ledger_wrong(&self->ledger, "%s ended by itself (status %x)", self->loads[i].name,
                     (unsigned)status);
    }
}

/* With SIGTERM they are asked to end, and must do so well and in time. */
static void end_loads(struct selftest *self, size_t from, size_t to, int number)
{
    int64_t start = now_ns();
    for (size_t i = from; i < to; i++)
        if (self->pids[i])
            kill(self->pids[i], number);
    for (size_t i = from; i < to;) {
        int status = 0;
        if (self->pids[i] == 0 || waitpid(self->pids[i], &status, WNOHANG) == self->pids[i]) {
            if (self->pids[i] && number == SIGTERM && status != 0)
                ledger_wrong(&self->ledger, "%s ended with status %x", self->loads[i].name,
                             (unsigned)status);
            self->pids[i++] = 0;
            continue;
        }
        bool late = ms_since(start) > PATIENCE_MS;
        if (number == SIGTERM && late)
            ledger_wrong(&self->ledger, "%s does not end", self->loads[i].name);
        if (number == SIGTERM && (late || interrupt_number() != 0)) {
            end_loads(self, i, to, SIGKILL);
            return;
        }
        hear(self, 1);
    }
}

/* ---- kills ----------------------------------------------------------------------------------- */

static void show_progress(const struct selftest *self)
{
    if (!self->cli->quiet)
        out_status("%llu of %llu kills, %llu tasks acknowledged, %llu runs",
                   (unsigned long long)self->figures.killed, (unsigned long long)self->crashes,
                   (unsigned long long)self->ledger.acknowledged,
                   (unsigned long long)self->ledger.runs);
}

static bool goes_on(const struct selftest *self)
{
    return ledger_is_clean(&self->ledger) && interrupt_number() == 0;
}

/* Listens for a random time. */
static void let_work(struct selftest *self, uint64_t ms_max)
{
    int64_t start = now_ns();
    double ms = (double)mr_rand_below(&self->rand, ms_max * 1000) / 1000;
    for (double left; (left = ms - ms_since(start)) > 0 && goes_on(self);)
        hear(self, (int64_t)ceil(left));
}

static void kill_server(struct selftest *self)
{
    if (!own_server_hear(&self->server))
        server_ended(self);
    own_server_kill(&self->server);
    self->figures.killed++;
    show_progress(self);
}

/* Until somebody has found the server, which shows by a figure that rises. */
static void await_more(struct selftest *self, const uint64_t *figure, const char *who)
{
    uint64_t before = *figure;
    int64_t start = now_ns();
    while (goes_on(self) && *figure == before) {
        hear(self, LOOK_MS);
        look_after_loads(self);
        if (ms_since(start) > PATIENCE_MS)
            ledger_wrong(&self->ledger, "no %s has come to the server in %d s", who,
                         PATIENCE_MS / 1000);
    }
}

static enum mr_err start_again(struct selftest *self)
{
    int64_t start = now_ns();
    MR_TRY(own_server_start(&self->server, self->data, self->address, &self->detail));
    while (!self->server.ready && goes_on(self)) {
        hear(self, LOOK_MS);
        if (ms_since(start) > PATIENCE_MS)
            ledger_wrong(&self->ledger, "the server is not ready after %d s", PATIENCE_MS / 1000);
    }
    self->figures.restart_ms[self->figures.restarts_n++] = ms_since(start);
    return MR_OK;
}

static enum mr_err kill_and_start(struct selftest *self)
{
    int64_t killed = now_ns();
    kill_server(self);
    while (self->figures.killed < self->crashes && mr_rand_one_in(&self->rand, STARTING_ONE_IN)) {
        MR_TRY(own_server_start(&self->server, self->data, self->address, &self->detail));
        let_work(self, STARTING_MS_MAX);
        kill_server(self);
    }
    MR_TRY(start_again(self));
    await_more(self, &self->ledger.acknowledged, "producer");
    self->figures.outage_ms[self->figures.outages_n++] = ms_since(killed);
    await_more(self, &self->ledger.runs, "worker");
    return MR_OK;
}

/* ---- the run --------------------------------------------------------------------------------- */

/* On a port that is free now and likely to stay so. */
static enum mr_err start_first(struct selftest *self)
{
    enum mr_err err = MR_OK;
    for (int i = 0; i < PORT_TRIES; i++) {
        unsigned port = PORT_MIN + (unsigned)mr_rand_below(&self->rand, PORT_MAX - PORT_MIN);
        snprintf(self->address, sizeof self->address, "127.0.0.1:%u", port);
        MR_TRY(own_server_start(&self->server, self->data, self->address, &self->detail));
        err = own_server_await(&self->server, &self->detail);
        if (err == MR_OK || !strstr(self->server.said, self->address))
            break;
        own_server_kill(&self->server);
    }
    snprintf(self->url, sizeof self->url, "millrace://%s", self->address);
    return err;
}

/* Until nothing waits or runs. */
static enum mr_err drain(struct selftest *self, struct mr_client *client)
{
    struct mr_queue_info info = {0};
    uint64_t left = 1, last = 0;
    for (int64_t moved = now_ns(); left > 0 && goes_on(self);) {
        MR_TRY(mr_queue_get(client, MR_SLICE_LIT(SELFTEST_QUEUE), &info));
        left = info.counts[MR_PENDING] + info.counts[MR_ACTIVE] + info.counts[MR_SCHEDULED] +
               info.counts[MR_RETRY];
        if (info.processed_total != last)
            moved = now_ns();
        last = info.processed_total;
        if (ms_since(moved) > PATIENCE_MS)
            ledger_wrong(&self->ledger, "%llu tasks do not end", (unsigned long long)left);
        hear(self, left ? LOOK_MS : 0);
        look_after_loads(self);
    }
    return MR_OK;
}

/* A worker that came back may hold what it lost: it ends by itself. */
static enum mr_err judge(struct selftest *self)
{
    struct mr_client *client = NULL;
    MR_TRY(mr_client_open(self->url, NULL, &client, &self->detail));
    enum mr_err err = drain(self, client);
    end_loads(self, SELFTEST_PRODUCERS, SELFTEST_LOADS, SIGTERM);
    hear_all(self);
    if (err == MR_OK && goes_on(self))
        err = ledger_check(&self->ledger, client);
    if (err == MR_OK)
        err = mr_stats_get(client, &self->figures.stats);
    mr_client_close(client);
    return err;
}

static enum mr_err check_folder(struct selftest *self)
{
    char url[MR_PATH_MAX + 8];
    int status = own_server_stop(&self->server);
    if (status != 0)
        ledger_wrong(&self->ledger, "the server stopped with status %x: %s", (unsigned)status,
                     self->server.said);
    snprintf(url, sizeof url, "file:%s", self->data);
    MR_TRY(mr_fsck(url, MR_FSCK_CHECK, NULL, NULL, &self->figures.fsck, &self->detail));
    if (self->figures.fsck.damaged + self->figures.fsck.mismatches > 0)
        ledger_wrong(
            &self->ledger, "fsck finds %llu damaged places",
            (unsigned long long)(self->figures.fsck.damaged + self->figures.fsck.mismatches));
    return MR_OK;
}

static enum mr_err prove(struct selftest *self)
{
    MR_TRY(start_first(self));
    MR_TRY(start_loads(self));
    await_more(self, &self->ledger.acknowledged, "producer");
    await_more(self, &self->ledger.runs, "worker");
    await_more(self, &self->ledger.accepted, "worker");
    while (self->figures.killed < self->crashes && goes_on(self)) {
        let_work(self, LIFE_MS_MAX);
        if (goes_on(self))
            MR_TRY(kill_and_start(self));
    }
    if (goes_on(self))
        end_loads(self, 0, SELFTEST_PRODUCERS, SIGTERM);
    if (goes_on(self))
        MR_TRY(judge(self));
    if (goes_on(self))
        MR_TRY(check_folder(self));
    return MR_OK;
}

static void end_all(struct selftest *self)
{
    end_loads(self, 0, SELFTEST_LOADS, SIGKILL);
    own_server_kill(&self->server);
    if (self->pipe >= 0)
        close(self->pipe);
}

/* ---- the command ----------------------------------------------------------------------------- */

/* The exit code, after everything was said. */
static int report(struct selftest *self, enum mr_err err)
{
    out_status_clear();
    if (interrupt_number() != 0)
        return CLI_SIGNAL_BASE + interrupt_number();
    bool clean = ledger_is_clean(&self->ledger);
    if (err != MR_OK && clean)
        return cli_fail_detail(err, "the selftest could not go on in", self->dir, &self->detail);
    if (self->cli->json)
        selftest_report_json(&self->figures, &self->ledger);
    else if (clean)
        selftest_report_text(&self->figures, &self->ledger);
    if (clean)
        return CLI_OK;
    return cli_fail(CLI_FAILED,
                    "FAILED after %llu kills (seed %llu): %s; %llu lost, %llu finished twice, %llu "
                    "otherwise wrong; the store is kept in %s",
                    (unsigned long long)self->figures.killed,
                    (unsigned long long)self->figures.seed, self->ledger.first.text,
                    (unsigned long long)self->ledger.lost, (unsigned long long)self->ledger.twice,
                    (unsigned long long)self->ledger.wrong, self->dir);
}

static int make_dirs(struct selftest *self, const struct selftest_args *args)
{
    int len = snprintf(self->dir, sizeof self->dir, "%s/millrace-selftest-XXXXXX",
                       args->dir.given ? args->dir.text : ".");
    if (len + 8 >= (int)sizeof self->dir)
        return cli_usage(self->cli, "the name of the folder is too long");
    if (!mkdtemp(self->dir))
        return cli_fail_err(mr_err_from_errno(errno), "cannot make the folder %s", self->dir);
    cli_must(mr_path_join(self->data, self->dir, "data"));
    return CLI_OK;
}

static int run(struct cli *cli, void *args_)
{
    const struct selftest_args *args = args_;
    if (cli->globals.broker.given)
        return cli_usage(cli, "selftest has a server of its own; leave out --broker");
    struct selftest *self = cli_alloc(1, sizeof *self);
    self->cli = cli;
    self->pipe = -1;
    self->crashes = args->crash.given ? (uint64_t)args->crash.number : CRASHES_DEFAULT;
    mr_rand_seed_system(&self->rand);
    self->figures.seed =
        args->seed.given ? (uint64_t)args->seed.number : mr_rand_next(&self->rand) >> 32;
    mr_rand_seed(&self->rand, self->figures.seed);
    self->figures.restart_ms = cli_alloc(self->crashes + 1, sizeof *self->figures.restart_ms);
    self->figures.outage_ms = cli_alloc(self->crashes + 1, sizeof *self->figures.outage_ms);
    interrupt_watch();
    int code = make_dirs(self, args);
    if (code == CLI_OK) {
        show_progress(self);
        enum mr_err err = prove(self);
        end_all(self);
        code = report(self, err);
        if (ledger_is_clean(&self->ledger) || interrupt_number() != 0)
            remove_dir(self->dir);
    }
    ledger_done(&self->ledger);
    free(self->figures.restart_ms);
    free(self->figures.outage_ms);
    free(self);
    return code;
}

static const struct cli_option options[] = {
    {.name = "crash",
     .kind = CLI_COUNT,
     .offset = offsetof(struct selftest_args, crash),
     .value = "N",
     .help = "kill the server so often (default 20)",
     .min = 1,
     .max = CRASHES_MAX},
    {.name = "dir",
     .kind = CLI_TEXT,
     .offset = offsetof(struct selftest_args, dir),
     .value = "DIR",
     .help = "work in a new folder there (default: the current one)"},
    {.name = "seed",
     .kind = CLI_COUNT,
     .offset = offsetof(struct selftest_args, seed),
     .value = "N",
     .help = "choose the moments of the kills by it"},
};

static const struct cli_verb verb = {
    .synopsis = "",
    .about =
        "Proves on this disk what is promised of a server that is killed. It starts a server of "
        "its\n"
        "own in a new folder here, lets processes produce and work, kills the server with SIGKILL "
        "at\n"
        "random moments, and at the end holds what was acknowledged against what is there: every\n"
        "task ended once, none was lost, none was accepted twice. The folder goes at the end, "
        "unless\n"
        "something was wrong.",
    .examples = CLI_EXAMPLES("millrace selftest", "millrace selftest --crash 200 --json",
                             "millrace selftest --dir /var/lib/millrace"),
    CLI_OPTIONS(options, struct selftest_args),
    .run = run,
};

const struct cli_command cli_selftest = {.name = "selftest",
                                         .about = "kill a server again and again, and see",
                                         .verbs = &verb,
                                         .verbs_n = 1};
