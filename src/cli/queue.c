/* SPDX-License-Identifier: Apache-2.0 */
/* millrace queue: look at queues, pause, resume, limit and remove them. */
#include <stdlib.h>

#include "broker/broker.h"
#include "cli/out.h"
#include "cli/queue_limit.h"
#include "cli/show.h"
#include "cli/watch.h"

enum { PAGE = 100 };

/* ---- looking -------------------------------------------------------------------------------- */

static const struct out_column columns[] = {
    {"QUEUE", OUT_STRETCH},
    {"PENDING", OUT_RIGHT},
    {"ACTIVE", OUT_RIGHT | OUT_SPARE(2)},
    {"SCHEDULED", OUT_RIGHT | OUT_SPARE(5)},
    {"RETRY", OUT_RIGHT | OUT_SPARE(4)},
    {"ARCHIVED", OUT_RIGHT | OUT_SPARE(3)},
    {"COMPLETED", OUT_RIGHT | OUT_SPARE(10)},
    {"AGGREGATING", OUT_RIGHT | OUT_SPARE(11)},
    {"OLDEST", OUT_RIGHT | OUT_SPARE(6)},
    {"TODAY", OUT_RIGHT | OUT_SPARE(9)},
    {"FAILED", OUT_RIGHT | OUT_SPARE(8)},
    {"PAUSED", OUT_LEFT | OUT_SPARE(1)},
    {"LIMITS", OUT_LEFT | OUT_SPARE(7)},
};

static void add_row(struct out_table *table, const struct mr_queue_info *info)
{
    static const enum mr_state states[] = {MR_PENDING,  MR_ACTIVE,    MR_SCHEDULED,  MR_RETRY,
                                           MR_ARCHIVED, MR_COMPLETED, MR_AGGREGATING};
    char oldest[32] = "-";
    if (info->oldest_pending_ms > 0)
        out_span(info->oldest_pending_ms, oldest);
    out_cell_bytes(table, OUT_BOLD, mr_slice_str(info->name));
    for (size_t i = 0; i < CLI_LEN(states); i++)
        out_cellf(table, info->counts[states[i]] ? out_state_colour(states[i]) : OUT_DIM, "%llu",
                  (unsigned long long)info->counts[states[i]]);
    out_cell(table, OUT_PLAIN, oldest);
    out_cellf(table, OUT_PLAIN, "%llu", (unsigned long long)info->processed_today);
    out_cellf(table, info->failed_today ? OUT_RED : OUT_DIM, "%llu",
              (unsigned long long)info->failed_today);
    out_cell(table, OUT_YELLOW, info->paused ? "paused" : "");
    char limits[LIMIT_TEXT_MAX];
    limit_text(info->rate, info->rate_ms, info->concurrency, limits);
    if (info->limits > 0)
        out_cellf(table, OUT_PLAIN, "%s%s%u of types and keys", limits, limits[0] ? "; " : "",
                  info->limits);
    else
        out_cell(table, OUT_PLAIN, limits);
}

/* Calls each for every queue, by name. */
static enum mr_err each_queue(struct cli *cli, void (*each)(const struct mr_queue_info *, void *),
                              void *arg)
{
    struct mr_queue_info *infos = cli_alloc(PAGE, sizeof *infos);
    char after[MR_NAME_MAX + 1] = "";
    enum mr_err err = MR_OK;
    size_t n = PAGE;
    while (err == MR_OK && n == PAGE) {
        err = mr_queue_list(cli->client, after[0] ? after : NULL, infos, PAGE, &n);
        for (size_t i = 0; err == MR_OK && i < n; i++)
            each(&infos[i], arg);
        if (err == MR_OK && n > 0)
            snprintf(after, sizeof after, "%s", infos[n - 1].name);
    }
    free(infos);
    return err;
}

static void each_json(const struct mr_queue_info *info, void *arg)
{
    jw_queue(arg, info);
}

struct rows {
    struct out_table *table;
    size_t n;
};

static void each_row(const struct mr_queue_info *info, void *arg)
{
    struct rows *rows = arg;
    add_row(rows->table, info);
    rows->n++;
}

static int list_once(struct cli *cli, void *args)
{
    (void)args;
    enum mr_err err;
    if (cli->json) {
        struct jw jw = {0};
        jw_array_begin(&jw, NULL);
        err = each_queue(cli, each_json, &jw);
        jw_array_end(&jw);
        if (err == MR_OK)
            jw_finish(&jw);
        else
            mr_buf_done(&jw.buf);
    } else {
        struct rows rows = {.table = out_table_new(columns, CLI_LEN(columns))};
        err = each_queue(cli, each_row, &rows);
        if (err == MR_OK && rows.n > 0)
            out_table_flush(rows.table);
        else if (err == MR_OK)
            cli_note(cli, "no queues");
        out_table_free(rows.table);
    }
    if (err != MR_OK)
        return cli_fail_err(err, "cannot list queues");
    cli_note_risk(cli);
    return CLI_OK;
}

static int run_list(struct cli *cli, void *args_)
{
    struct watch_args *args = args_;
    return watch_run(cli, &args->watch, list_once, args);
}

/* "0.3 ms" */
static void print_latency(const char *what, uint64_t p50_us, uint64_t p99_us)
{
    char p50[32], p99[32];
    if (p99_us == 0)
        return;
    out_latency(p50_us, p50);
    out_latency(p99_us, p99);
    out_printf("%s: %s in the middle, %s at the 99th of 100\n", what, p50, p99);
}

static void print_queue(const struct mr_queue_info *info)
{
    struct out_table *table = out_table_new(columns, CLI_LEN(columns));
    add_row(table, info);
    out_table_flush(table);
    out_table_free(table);
    out_printf("\nin all: processed %llu, failed %llu", (unsigned long long)info->processed_total,
               (unsigned long long)info->failed_total);
    if (info->quarantined > 0)
        out_printf(", quarantined %llu", (unsigned long long)info->quarantined);
    if (info->trimmed > 0)
        out_printf(", trimmed off the archive %llu", (unsigned long long)info->trimmed);
    if (info->max_length > 0)
        out_printf("; at most %llu waiting%s", (unsigned long long)info->max_length,
                   info->partitions > 1 ? " in each partition" : "");
    if (info->partitions > 1)
        out_printf("; %u partitions, %s", info->partitions, mr_assign_name(info->assign));
    if (info->retry_mode != MR_RETRY_GATE)
        out_printf("; retries by %s", mr_retry_mode_name(info->retry_mode));
    out_printf("\n");
    print_latency("waited", info->wait_p50_us, info->wait_p99_us);
    print_latency("ran", info->run_p50_us, info->run_p99_us);
}

static int show_once(struct cli *cli, void *args)
{
    (void)args;
    struct mr_queue_info info;
    struct mr_slice queue = mr_slice_str(cli->words[0]);
    enum mr_err err = mr_queue_get(cli->client, queue, &info);
    if (err == MR_OK && cli->json) {
        struct jw jw = {0};
        jw_queue_open(&jw, &info);
        err = limit_json_all(cli, queue, &jw, "limited");
        jw_object_end(&jw);
        if (err == MR_OK)
            jw_finish(&jw);
        else
            mr_buf_done(&jw.buf);
    } else if (err == MR_OK) {
        print_queue(&info);
        err = limit_print_all(cli, queue);
    }
    if (err != MR_OK)
        return cli_fail_err(err, "queue %s", cli->words[0]);
    cli_note_risk(cli);
    return CLI_OK;
}

static int run_show(struct cli *cli, void *args_)
{
    struct watch_args *args = args_;
    return watch_run(cli, &args->watch, show_once, args);
}

/* ---- changing ------------------------------------------------------------------------------- */

/* After a change: the queue as JSON when wanted, else a line for people. */
static int report_change(struct cli *cli, enum mr_err err, const char *what)
{
    const char *queue = cli->words[0];
    if (err != MR_OK)
        return cli_fail_err(err, "queue %s", queue);
    if (cli->json)
        return show_once(cli, NULL);
    cli_note(cli, "queue %s %s", queue, what);
    return CLI_OK;
}

static int run_pause(struct cli *cli, void *args)
{
    (void)args;
    enum mr_err err = mr_queue_pause(cli->client, mr_slice_str(cli->words[0]));
    return report_change(cli, err, "is paused; millrace queue resume takes it up again");
}

static int run_resume(struct cli *cli, void *args)
{
    (void)args;
    enum mr_err err = mr_queue_resume(cli->client, mr_slice_str(cli->words[0]));
    return report_change(cli, err, "is running");
}

struct set_args {
    struct cli_value max_length, partitions, assign, retry, retry_wait;
    struct limit_args limit;
};

static int set_failed(struct cli *cli, enum mr_err err, const char *option)
{
    const char *queue = cli->words[0], *mark = strrchr(queue, '~');
    if (err == MR_TOO_BIG)
        return cli_fail(mr_err_exit_code(err),
                        "--%s: the name of a queue with partitions has at most %zu bytes", option,
                        MR_NAME_MAX - strlen("~64"));
    if (err == MR_INVALID && mark != NULL && mr_name_check(mr_slice_str(queue)) == MR_OK)
        return cli_fail(mr_err_exit_code(err),
                        "--%s: %s is a partition of queue %.*s; set that one", option, queue,
                        (int)(mark - queue), queue);
    if (err == MR_WRONG_STATE)
        return cli_fail(mr_err_exit_code(err),
                        "--%s: a queue %s~N has partitions itself (or had, before it was "
                        "removed), so it cannot be a partition of %s",
                        option, queue, queue);
    return cli_fail_err(err, "queue %s: --%s", queue, option);
}

static int run_set(struct cli *cli, void *args_)
{
    const struct set_args *args = args_;
    struct mr_slice queue = mr_slice_str(cli->words[0]);
    if (!args->max_length.given && !args->partitions.given && !args->assign.given &&
        !args->retry.given && !args->retry_wait.given && !limit_given(&args->limit))
        return cli_usage(cli, "nothing to set; give --max-length N, --partitions N or --rate N/D");
    int code = limit_check(cli, &args->limit);
    if (code != CLI_OK)
        return code;
    if (args->partitions.given && args->partitions.number == 0)
        return cli_usage(cli, "--partitions: a queue has at least 1");
    code = cli_open(cli, NULL, CLI_STORE_MAY_CREATE);
    if (code != CLI_OK)
        return code;
    enum mr_err err = MR_OK;
    if (args->partitions.given)
        err = mr_queue_set_partitions(cli->client, queue, (uint32_t)args->partitions.number);
    if (err != MR_OK)
        return set_failed(cli, err, "partitions");
    if (args->assign.given)
        err = mr_queue_set_assign(cli->client, queue, (enum mr_assign)args->assign.number);
    if (err != MR_OK)
        return set_failed(cli, err, "assign");
    if (args->max_length.given)
        err = mr_queue_set_max_length(cli->client, queue, (uint64_t)args->max_length.number);
    if (err == MR_OK && args->retry_wait.given)
        err = mr_queue_set_retry_wait(cli->client, queue, args->retry_wait.number);
    if (err == MR_OK && args->retry.given)
        err = mr_queue_set_retry_mode(cli->client, queue, (enum mr_retry_mode)args->retry.number);
    if (err == MR_OK && limit_given(&args->limit))
        err = limit_set(cli, queue, &args->limit);
    return report_change(cli, err, "is set");
}

struct rm_args {
    struct cli_value force;
};

static int run_rm(struct cli *cli, void *args_)
{
    const struct rm_args *args = args_;
    const char *queue = cli->words[0];
    enum mr_err err =
        mr_queue_remove(cli->client, mr_slice_str(queue),
                        args->force.given ? MR_QUEUE_REMOVE_FORCE : MR_QUEUE_REMOVE_EMPTY);
    if (err == MR_WRONG_STATE)
        return cli_fail(mr_err_exit_code(err), "queue %s holds tasks; --force deletes them with it",
                        queue);
    if (err == MR_RUNNING)
        return cli_fail(mr_err_exit_code(err),
                        "queue %s has running tasks; pause it and wait for them", queue);
    if (err != MR_OK)
        return cli_fail_err(err, "queue %s", queue);
    if (cli->json) {
        struct jw jw = {0};
        jw_object_begin(&jw, NULL);
        jw_text(&jw, "queue", queue);
        jw_bool(&jw, "removed", true);
        jw_object_end(&jw);
        jw_finish(&jw);
    } else {
        cli_note(cli, "queue %s is removed", queue);
    }
    return CLI_OK;
}

/* ---- rows ----------------------------------------------------------------------------------- */

static const char *const assign_words[] = {"round-robin", "consistent-hash", NULL};
static const char *const retry_words[] = {"gate", "order", "class", NULL}; /* mr_retry_mode */

static const struct cli_option set_options[] = {
    {.name = "max-length",
     .kind = CLI_COUNT,
     .offset = offsetof(struct set_args, max_length),
     .value = "N",
     .help = "refuse new tasks beyond N waiting ones; 0: no limit"},
    {.name = "partitions",
     .kind = CLI_COUNT,
     .offset = offsetof(struct set_args, partitions),
     .value = "N",
     .max = MR_PARTITIONS_MAX,
     .help = "make it N waiting lines that workers share out; a Redis Cluster spreads them"},
    {.name = "assign",
     .kind = CLI_CHOICE,
     .offset = offsetof(struct set_args, assign),
     .value = "HOW",
     .choices = assign_words,
     .help = "which workers prefer which of them: round-robin or consistent-hash"},
    {.name = "retry",
     .kind = CLI_CHOICE,
     .offset = offsetof(struct set_args, retry),
     .value = "HOW",
     .choices = retry_words,
     .help = "what failed waits for its delay (gate), is only put behind others by it (order), or "
             "then waits until nothing else is ready (class)"},
    {.name = "retry-wait",
     .kind = CLI_DURATION,
     .offset = offsetof(struct set_args, retry_wait),
     .value = "D",
     .max = MR_DELAY_MAX_MS,
     .help = "with class: but no longer than D, then it goes first (default 60s)"},
    LIMIT_OPTIONS(struct set_args, limit),
};

static const struct cli_option look_options[] = {
    WATCH_OPTION(struct watch_args, watch),
};

static const struct cli_option rm_options[] = {
    {.name = "force",
     .kind = CLI_FLAG,
     .offset = offsetof(struct rm_args, force),
     .help = "delete its tasks too"},
};

static const struct cli_verb verbs[] = {
    {.name = "list",
     .synopsis = "",
     .about = "Lists all queues with their figures.",
     .examples = CLI_EXAMPLES("millrace queue list", "millrace queue list --watch 5s",
                              "millrace queue list --json | jq '.[].pending'"),
     CLI_OPTIONS(look_options, struct watch_args),
     .store = CLI_STORE_MUST_EXIST,
     .run = run_list},
    {.name = "show",
     .synopsis = "QUEUE",
     .about = "Shows one queue.",
     .examples = CLI_EXAMPLES("millrace queue show mail", "millrace queue show mail --watch"),
     CLI_OPTIONS(look_options, struct watch_args),
     CLI_ONE_WORD,
     .words = CLI_FIRST_IS_QUEUE,
     .store = CLI_STORE_MUST_EXIST,
     .run = run_show},
    {.name = "pause",
     .synopsis = "QUEUE",
     .about = "Hands out no more tasks of a queue; it still takes new ones.",
     .examples = CLI_EXAMPLES("millrace queue pause mail"),
     CLI_ONE_WORD,
     .words = CLI_FIRST_IS_QUEUE,
     .store = CLI_STORE_MUST_EXIST,
     .run = run_pause},
    {.name = "resume",
     .synopsis = "QUEUE",
     .about = "Ends a pause.",
     .examples = CLI_EXAMPLES("millrace queue resume mail"),
     CLI_ONE_WORD,
     .words = CLI_FIRST_IS_QUEUE,
     .store = CLI_STORE_MUST_EXIST,
     .run = run_resume},
    {.name = "rm",
     .synopsis = "QUEUE",
     .about = "Removes an empty queue, or with --force one with its tasks.",
     .examples = CLI_EXAMPLES("millrace queue rm mail", "millrace queue rm mail --force"),
     CLI_OPTIONS(rm_options, struct rm_args),
     CLI_ONE_WORD,
     .words = CLI_FIRST_IS_QUEUE,
     .store = CLI_STORE_MUST_EXIST,
     .run = run_rm},
    {.name = "set",
     .synopsis = "QUEUE",
     .about = "Changes a setting of a queue, which is made if need be.",
     .examples = CLI_EXAMPLES("millrace queue set mail --max-length 100000",
                              "millrace queue set mail --partitions 8",
                              "millrace queue set mail --rate 100/s --concurrency 5",
                              "millrace queue set mail --limit-type sms --rate 1/s",
                              "millrace queue set mail --limit-key '*' --concurrency 1"),
     CLI_OPTIONS(set_options, struct set_args),
     CLI_ONE_WORD,
     .words = CLI_FIRST_IS_QUEUE,
     .store = CLI_STORE_NONE,
     .run = run_set},
};

const struct cli_command cli_queue = {.name = "queue",
                                      .about = "look at queues, pause, limit and remove them",
                                      .verbs = verbs,
                                      .verbs_n = CLI_LEN(verbs)};
