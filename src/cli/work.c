/* SPDX-License-Identifier: Apache-2.0 */
/*
 * millrace work: a worker that runs a command once per task.
 *
 * The main thread waits for signals; others run and stop the worker. The first SIGINT, SIGTERM or
 * SIGHUP stops taking and waits for what runs, up to the drain timeout; the second one ends what
 * runs at once. Both hand back unfinished tasks without counting an attempt. Handlers run on the
 * worker's threads and print their own lines.
 */
#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/chan.h"
#include "base/diag.h"
#include "base/text.h"
#include "cli/cli.h"
#include "cli/names.h"
#include "cli/out.h"
#include "cli/server.h"
#include "cli/work_names.h"
#include "wire/task.h"
#include "worker/exec.h"

struct work_args {
    struct cli_value queue, strict, concurrency, type, node, tag, fall_after, drain_timeout, burst,
        archive_max, archive_for, heartbeat, missed, leader_lease, no_lead;
    struct cli_value nameserver, app, register_every;
};

enum {
    STOPS_MAX = 2, /* stop, and stop at once; the next signal does not even wait for the store */
    STATUS_NS = 250 * 1000 * 1000, /* between two states of the live line */
    ERROR_SHOWN = 200, /* bytes of an error on its line; millrace task show has it all */
    BEAT_MIN_MS = 10,
    BEAT_DEFAULT_MS = 5000, /* as the library has them */
    MISSED_DEFAULT = 3,
    DEATH_MAX_MS = 3600 * 1000, /* a server holds no lease for longer */
    REGISTER_MIN_MS = 100,
    REGISTER_MAX_MS = 3600 * 1000,
};

struct work {
    struct cli *cli;
    struct mr_exec_command command;
    struct mr_worker *worker;
    struct work_names *registered; /* NULL: it has no nameservers */
    struct mr_buf url;             /* of the servers that those know, where none were named */
    struct mr_worker_queue queues[MR_TAKE_QUEUES_MAX];
    size_t queues_n;
    struct mr_buf names[MR_TAKE_QUEUES_MAX]; /* of queues whose names are put together here */
    pthread_t run_thread, stop_threads[STOPS_MAX];
    _Atomic size_t stops_n; /* written by the main thread */
    enum mr_err err;        /* of the run */
    _Atomic bool ended;     /* the run is over: the signal that says so is ours */
    int64_t started_ns, status_ns;
};

/* Tells the main thread that the worker has ended; blocked everywhere, waited for there. */
#define SIGNAL_ENDED SIGUSR1

/* ---- runs ----------------------------------------------------------------------------------- */

/* What is said of a run; failures are told with their error by on_error. */
static const char *const outcome_words[] = {
    [MR_DONE] = "done",
    [MR_HAND_BACK] = "handed back",
    [MR_DROP] = "dropped",
    [MR_LATER] = "not now, later",
};
static_assert(CLI_LEN(outcome_words) == MR_LATER + 1, "one for each outcome");

static const char *outcome_word(const struct work *work, struct mr_run *run,
                                enum mr_outcome outcome)
{
    if (outcome == MR_FAIL && mr_run_cancelled(run) && work->stops_n > 0)
        return "stopped and handed back";
    return outcome_words[outcome];
}

static void tell_run(const struct work *work, const struct mr_task *task, const char *word,
                     int64_t ns)
{
    char took[32];
    out_span(ns / MR_NS_PER_MS, took);
    cli_note(work->cli, "%s %.*s %.*s/%.*s attempt %u in %s", word, (int)task->id.len,
             (const char *)task->id.data, (int)task->queue.len, (const char *)task->queue.data,
             (int)task->type.len, (const char *)task->type.data, task->attempt, took);
}

/* Thread: a slot's. */
static enum mr_outcome run_task(struct mr_run *run, void *arg)
{
    struct work *work = arg;
    int64_t begin = mr_mono_now(mr_clock_system()).ns;
    enum mr_outcome outcome = mr_exec_handler(run, &work->command);
    const char *word = outcome_word(work, run, outcome);
    if (word)
        tell_run(work, mr_run_task(run), word, mr_mono_now(mr_clock_system()).ns - begin);
    return outcome;
}

/* The end of what the command said is what it died of. Thread: a slot's. */
static void on_error(const struct mr_task *task, const char *error, void *arg)
{
    const struct work *work = arg;
    size_t len = strlen(error), from = len > ERROR_SHOWN ? len - ERROR_SHOWN : 0;
    while (from > 0 && (error[from] & 0xc0) == 0x80)
        from++;
    cli_note(work->cli, "failed %.*s %.*s/%.*s attempt %u: %s%s", (int)task->id.len,
             (const char *)task->id.data, (int)task->queue.len, (const char *)task->queue.data,
             (int)task->type.len, (const char *)task->type.data, task->attempt, from > 0 ? "…" : "",
             error + from);
}

/* The library's own messages. Thread: any. */
static void on_diag(enum mr_diag_level level, const char *line, void *arg)
{
    const struct work *work = arg;
    if (level >= MR_DIAG_ERROR)
        cli_fail(CLI_FAILED, "%s", line);
    else
        cli_note(work->cli, "%s", line);
}

/* ---- options -------------------------------------------------------------------------------- */

static int add_queue(struct work *work, const struct work_args *args, const char *text)
{
    const char *equals = strrchr(text, '=');
    struct mr_slice name = mr_slice_make(text, equals ? (size_t)(equals - text) : strlen(text));
    int64_t weight = 1;
    if (equals && (mr_parse_int64(equals + 1, &weight) != MR_OK || weight < 1 || weight > 1000000))
        return cli_usage(work->cli, "-q: \"%.200s\" is not QUEUE=WEIGHT with a weight of 1 or more",
                         text);
    if ((work->queues_n + 1) * (args->tag.items_n + 1) > MR_TAKE_QUEUES_MAX)
        return cli_usage(work->cli, "-q: more than %d queues, each with all tags",
                         MR_TAKE_QUEUES_MAX);
    struct mr_buf *buf = &work->names[work->queues_n];
    cli_must(mr_buf_append_slice(buf, name));
    cli_must(mr_buf_append(buf, "", 1));
    const char *problem = cli_name_problem((const char *)buf->data);
    for (size_t i = 0; !problem && i < args->tag.items_n; i++)
        if (name.len + 1 + strlen(args->tag.items[i]) > MR_NAME_MAX)
            problem = "is too long with a tag";
    if (problem)
        return cli_usage(work->cli, "-q: \"%.200s\" %s", (const char *)buf->data, problem);
    work->queues[work->queues_n++] =
        (struct mr_worker_queue){mr_slice_str((const char *)buf->data), (uint32_t)weight};
    return CLI_OK;
}

static int add_queues(struct work *work, const struct work_args *args)
{
    if (args->queue.items_n == 0)
        return add_queue(work, args, MR_DEFAULT_QUEUE);
    int code = CLI_OK;
    for (size_t i = 0; code == CLI_OK && i < args->queue.items_n; i++)
        code = add_queue(work, args, args->queue.items[i]);
    return code;
}

static enum mr_err can_run_file(const char *file)
{
    struct stat st;
    if (stat(file, &st) != 0)
        return mr_err_from_errno(errno);
    return S_ISREG(st.st_mode) && access(file, X_OK) == 0 ? MR_OK : MR_DENIED;
}

/* A command that cannot be run would fail every task: better not to begin. */
static enum mr_err can_run(const char *command)
{
    if (strchr(command, '/'))
        return can_run_file(command);
    enum mr_err err = MR_NOT_FOUND;
    const char *path = getenv("PATH");
    for (path = path ? path : "/bin:/usr/bin"; *path && err != MR_OK;) {
        size_t len = strcspn(path, ":");
        char file[4096];
        snprintf(file, sizeof file, "%.*s/%s", len ? (int)len : 1, len ? path : ".", command);
        enum mr_err found = can_run_file(file);
        if (found == MR_OK || found == MR_DENIED)
            err = found;
        path += len + (path[len] == ':');
    }
    return err;
}

/* The one place for a star is the end. */
static int check_types(const struct cli *cli, const struct work_args *args)
{
    for (size_t i = 0; i < args->type.items_n; i++) {
        const char *type = args->type.items[i];
        const char *problem = cli_name_problem(type);
        const char *star = strchr(type, '*');
        if (!problem && star && star[1])
            problem = "has a * that is not at its end";
        if (problem)
            return cli_usage(cli, "-t: \"%.200s\" %s", type, problem);
    }
    return CLI_OK;
}

/* What a worker refuses, before it is one; the floors of each are in its row. */
static int check_beats(const struct cli *cli, const struct work_args *args)
{
    int64_t beat_ms = args->heartbeat.given ? args->heartbeat.number : BEAT_DEFAULT_MS;
    int64_t missed = args->missed.given ? args->missed.number : MISSED_DEFAULT;
    if (beat_ms * missed > DEATH_MAX_MS)
        return cli_usage(cli, "--heartbeat: with --missed %lld it would be dead after more than 1h",
                         (long long)missed);
    if (args->leader_lease.given && args->leader_lease.number < 2 * beat_ms)
        return cli_usage(cli, "--leader-lease: is below two heartbeats");
    return CLI_OK;
}

static int check(struct work *work, const struct work_args *args)
{
    const struct cli *cli = work->cli;
    if (cli->tail_n == 0)
        return cli_usage(cli, "the command to run is missing: millrace work ... -- CMD [ARG]...");
    int code = check_types(cli, args);
    if (code == CLI_OK)
        code = check_beats(cli, args);
    if (code == CLI_OK)
        code = add_queues(work, args);
    if (code != CLI_OK)
        return code;
    enum mr_err err = can_run(cli->tail[0]);
    if (err == MR_OK)
        return CLI_OK;
    return cli_fail(mr_err_exit_code(err), "cannot run %s: %s", cli->tail[0],
                    err == MR_NOT_FOUND ? "no such command"
                    : err == MR_DENIED  ? "not a file that may be executed"
                                        : mr_err_text(err));
}

static enum mr_err make_worker(struct work *work, const struct work_args *args)
{
    struct mr_slice tags[MR_TAKE_QUEUES_MAX];
    for (size_t i = 0; i < args->tag.items_n; i++)
        tags[i] = mr_slice_str(args->tag.items[i]);
    struct mr_worker_options options = {
        .node = mr_slice_str(args->node.given ? args->node.text : ""),
        .queues = work->queues,
        .queues_n = work->queues_n,
        .tags = tags,
        .tags_n = args->tag.items_n,
        .fall_ms = args->fall_after.given && args->fall_after.number == 0 ? MR_NO_FALL
                                                                          : args->fall_after.number,
        .order = args->strict.given ? MR_QUEUES_STRICT : MR_QUEUES_WEIGHTED,
        .slots = (uint32_t)args->concurrency.number,
        .drain_ms = args->drain_timeout.number,
        .on_error = on_error,
        .arg = work,
        .burst = args->burst.given,
        .beat_ms = args->heartbeat.number,
        .beats_missed = (uint32_t)args->missed.number,
        .never_leads = args->no_lead.given,
        .leader_ms = args->leader_lease.number,
    };
    if (args->drain_timeout.given && args->drain_timeout.number == 0)
        options.drain_ms = 1; /* 0 would be the default */
    MR_TRY(mr_worker_new(work->cli->client, &options, &work->worker));
    if (args->type.items_n == 0)
        return mr_worker_handle(work->worker, "*", run_task, work);
    for (size_t i = 0; i < args->type.items_n; i++)
        MR_TRY(mr_worker_handle(work->worker, args->type.items[i], run_task, work));
    return MR_OK;
}

/* Its app is the first queue unless told otherwise: an app's queue has its name. */
static int register_it(struct work *work, const struct work_args *args)
{
    const char *name, *list = cli_names_given(&args->nameserver, &name);
    struct work_names_options options = {
        .cli = work->cli,
        .name = name,
        .list = list,
        .app = args->app.given ? args->app.text : (const char *)work->queues[0].name.data,
        .node = args->node.given ? args->node.text : NULL,
        .every_ms = args->register_every.number,
        .worker = work->worker,
    };
    return list ? work_names_open(&options, &work->registered) : CLI_OK;
}

/* Who names nameservers and no broker works for all the servers that they know. */
static int follow_names(struct work *work, const struct work_args *args)
{
    struct cli *cli = work->cli;
    const char *name, *list = cli_names_given(&args->nameserver, &name);
    const char *variable = getenv("MILLRACE_BROKER");
    if (!list || cli->globals.broker.given || (variable && *variable))
        return CLI_OK;
    struct cli_names names;
    int code = cli_names_read(cli, name, list, &names);
    if (code == CLI_OK) {
        cli_names_url(&names, &work->url);
        cli->broker = (const char *)work->url.data;
        (void)mr_url_shown(cli->broker, cli->shown);
    }
    cli_names_done(&names);
    return code;
}

/* ---- the life of the worker ----------------------------------------------------------------- */

static void *run_main(void *arg)
{
    struct work *work = arg;
    work->err = mr_worker_run(work->worker);
    atomic_store(&work->ended, true);
    kill(getpid(), SIGNAL_ENDED);
    return NULL;
}

static void *stop_main(void *arg)
{
    struct work *work = arg;
    mr_worker_stop(work->worker);
    return NULL;
}

/* The wait for signals also ends when a child does; the line still changes only so often. */
static void show_status(struct work *work)
{
    int64_t now_ns = mr_mono_now(mr_clock_system()).ns;
    if (now_ns - work->status_ns < STATUS_NS)
        return;
    work->status_ns = now_ns;
    struct mr_worker_figures figures;
    mr_worker_figures(work->worker, &figures);
    double seconds = (double)(now_ns - work->started_ns) / (double)MR_NS_PER_S;
    out_status("%u running, %llu done, %llu failed, %.0f/s", figures.slots[MR_SLOT_WORKING],
               (unsigned long long)figures.done, (unsigned long long)figures.failed,
               (double)figures.done / (seconds > 1 ? seconds : 1));
}

static int on_stop_signal(struct work *work, int number)
{
    if (work->stops_n == STOPS_MAX)
        _exit(CLI_SIGNAL_BASE + number);
    struct mr_worker_figures figures;
    mr_worker_figures(work->worker, &figures);
    if (work->stops_n == 0)
        cli_note(work->cli, "stopping: %u running; again to end them at once",
                 figures.slots[MR_SLOT_WORKING]);
    cli_must(mr_thread_start(&work->stop_threads[work->stops_n++], "mr-stop", stop_main, work));
    return work->stops_n == 1 ? CLI_OK : CLI_SIGNAL_BASE + number;
}

/* Until the worker has ended. */
static int await_end(struct work *work, const sigset_t *signals)
{
    bool live = out_err_is_terminal() && !work->cli->quiet;
    struct timespec tick = {.tv_nsec = STATUS_NS};
    int code = CLI_OK;
    for (;;) {
        int number = live ? sigtimedwait(signals, NULL, &tick) : sigwaitinfo(signals, NULL);
        if (number == SIGNAL_ENDED && atomic_load(&work->ended))
            return code;
        if (number > 0 && number != SIGNAL_ENDED)
            code = on_stop_signal(work, number);
        if (live)
            show_status(work);
    }
}

static int run_worker(struct work *work)
{
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP); /* a terminal that closes is no crash */
    sigaddset(&signals, SIGNAL_ENDED);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    work->started_ns = mr_mono_now(mr_clock_system()).ns;
    cli_must(mr_thread_start(&work->run_thread, "mr-work", run_main, work));
    int code = await_end(work, &signals);
    mr_thread_join(work->run_thread);
    for (size_t i = 0; i < work->stops_n; i++)
        mr_thread_join(work->stop_threads[i]);
    out_status_clear();
    if (work->err != MR_OK)
        return cli_fail_err(work->err, "the worker on %s has ended", work->cli->shown);
    return code;
}

static void tell_end(const struct work *work)
{
    struct mr_worker_figures f;
    mr_worker_figures(work->worker, &f);
    const struct {
        const char *word;
        uint64_t n;
        bool always;
    } rows[] = {
        {"done", f.done, true},
        {"failed", f.failed, true},
        {"handed back", f.handed_back, false},
        {"not now", f.later, false},
        {"dropped", f.dropped, false},
        {"of other types", f.unhandled, false},
        {"too late to count", f.stale, false},
        {"in doubt", f.in_doubt, false},
    };
    struct mr_buf line = {0};
    for (size_t i = 0; i < CLI_LEN(rows); i++)
        if (rows[i].always || rows[i].n > 0)
            cli_must(mr_buf_printf(&line, "%s%llu %s", i ? ", " : "", (unsigned long long)rows[i].n,
                                   rows[i].word));
    cli_note(work->cli, "%.*s", (int)line.len, (const char *)line.data);
    mr_buf_done(&line);
}

/* Who wanted the queues empty is told of those that nothing is handed out of. A hint: who may not look is told nothing. */
static void tell_paused(const struct work *work)
{
    struct mr_buf name = {0};
    for (size_t i = 0; i < work->queues_n; i++) {
        struct mr_queue_info queue;
        enum mr_err err = mr_queue_get(work->cli->client, work->queues[i].name, &queue);
        if (err != MR_OK || !queue.paused || queue.counts[MR_PENDING] == 0)
            continue;
        const char *shown = out_escaped(&name, mr_slice_str(queue.name));
        cli_note(work->cli, "queue %s is paused, %llu task%s in it: millrace queue resume %s",
                 shown, (unsigned long long)queue.counts[MR_PENDING],
                 queue.counts[MR_PENDING] == 1 ? " waits" : "s wait", shown);
    }
    mr_buf_done(&name);
}

static int run(struct cli *cli, void *args_)
{
    const struct work_args *args = args_;
    struct work *work = cli_alloc(1, sizeof *work);
    work->cli = cli;
    work->command.argv = cli->tail;
    int code = check(work, args);
    if (code == CLI_OK)
        code = follow_names(work, args);
    if (code == CLI_OK && cli_is_redis(cli->broker))
        cli_refusals_tell(); /* a server's are what the worker ends with */
    struct mr_client_options client = {0};
    if (code == CLI_OK)
        code = cli_archive_limits(cli, &args->archive_max, &args->archive_for, &client);
    if (code == CLI_OK)
        code = cli_open(cli, &client, CLI_STORE_MAY_CREATE);
    if (code == CLI_OK) {
        cli_note_risk(cli);
        mr_diag_set_sink(on_diag, work);
        enum mr_err err = make_worker(work, args);
        code = err == MR_OK ? register_it(work, args) : cli_fail_err(err, "cannot make the worker");
        bool runs = err == MR_OK && code == CLI_OK;
        if (runs)
            code = run_worker(work);
        work_names_close(work->registered);
        if (runs && work->err == MR_OK)
            tell_end(work);
        if (runs && code == CLI_OK && args->burst.given && work->stops_n == 0)
            tell_paused(work);
        mr_worker_free(work->worker);
        mr_diag_set_sink(NULL, NULL);
    }
    for (size_t i = 0; i < MR_TAKE_QUEUES_MAX; i++)
        mr_buf_done(&work->names[i]);
    mr_client_close(cli->client); /* it may use the URL */
    cli->client = NULL;
    mr_buf_done(&work->url);
    free(work);
    return code;
}

/* ---- row ------------------------------------------------------------------------------------ */

#define OPT(field, kind_, value_, help_)                                                           \
    .kind = kind_, .offset = offsetof(struct work_args, field), .value = value_, .help = help_

static const struct cli_option options[] = {
    {.name = "queue",
     .letter = 'q',
     .note = CLI_REPEATS,
     OPT(queue, CLI_TEXT, "QUEUE[=W]", "take from it, with a weight (default: default)")},
    {.name = "strict", OPT(strict, CLI_FLAG, NULL, "empty an earlier queue before a later one")},
    {.name = "concurrency",
     .letter = 'c',
     OPT(concurrency, CLI_COUNT, "N", "so many at once (default: cores)"),
     .min = 1,
     .max = MR_SLOTS_MAX},
    {.name = "type",
     .letter = 't',
     .note = CLI_REPEATS,
     OPT(type, CLI_TEXT, "TYPE", "only this type, or types that begin so: mail.*")},
    {.name = "node", OPT(node, CLI_NAME, "NAME", "name shown to people (default: host:pid)")},
    {.name = "tag",
     .note = CLI_REPEATS,
     OPT(tag, CLI_NAME, "TAG", "take also what is addressed to QUEUE@TAG")},
    {.name = "fall-after",
     OPT(fall_after, CLI_DURATION, "D",
         "take what is addressed to others after so long (default 60s; 0: never)")},
    {.name = "drain-timeout",
     OPT(drain_timeout, CLI_DURATION, "D", "wait so long for runs when stopped (default 30s)")},
    {.name = "burst",
     OPT(burst, CLI_FLAG, NULL, "end when the queues are empty, and jobs have no more for it")},
    {.name = "heartbeat",
     OPT(heartbeat, CLI_DURATION, "D", "say so often that it lives (default 5s)"),
     .min = BEAT_MIN_MS},
    {.name = "missed",
     OPT(missed, CLI_COUNT, "N", "dead after so many missed heartbeats (default 3)"),
     .min = 2,
     .max = 1000},
    {.name = "leader-lease",
     OPT(leader_lease, CLI_DURATION, "D", "lead so long after a heartbeat (default: until dead)"),
     .min = 2 * BEAT_MIN_MS},
    {.name = "no-lead", OPT(no_lead, CLI_FLAG, NULL, "never become the leader")},
    {.name = "nameserver", OPT(nameserver, CLI_TEXT, "H:P,...", NAMES_HELP)},
    {.name = "app",
     OPT(app, CLI_NAME, "APP", "with nameservers: works for this app (default: the first queue)")},
    {.name = "register-every",
     OPT(register_every, CLI_DURATION, "D", "with nameservers: registers so often (default 20s)"),
     .min = REGISTER_MIN_MS,
     .max = REGISTER_MAX_MS},
    {CLI_ARCHIVE_MAX_ROW, .offset = offsetof(struct work_args, archive_max)},
    {CLI_ARCHIVE_FOR_ROW, .offset = offsetof(struct work_args, archive_for)},
};

static const struct cli_verb verb = {
    .synopsis = "-- CMD [ARG]...",
    .about =
        "Runs CMD once per task: the payload on its standard input, its standard output is the\n"
        "result, the end of its standard error the reason of a failure. Exit code 0: done; 100:\n"
        "failed for good; 101: hand it back; 102: drop it; 103: not a failure, later; any other:\n"
        "failed, tried again. MILLRACE_TASK_ID and others are in its environment.",
    .examples =
        (const char *const[]){"millrace work --broker file:./tasks -q mail -c 4 -- ./send-mail",
                              "millrace work -q urgent=5 -q bulk --burst -- sh -c 'cat; echo done'",
                              NULL},
    CLI_OPTIONS(options, struct work_args),
    .tail = CLI_TAIL_COMMAND,
    .run = run,
};

const struct cli_command cli_work = {
    .name = "work", .about = "run a command for every task", .verbs = &verb, .verbs_n = 1};
