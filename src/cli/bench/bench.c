/* SPDX-License-Identifier: Apache-2.0 */
/* millrace bench: which rows, where, and how they are shown. */
#include "cli/bench/bench.h"

#include <stdarg.h>
#include <stdlib.h>

#include "base/text.h"
#include "cli/interrupt.h"
#include "cli/jw.h"
#include "cli/out.h"
#include "cli/remove_dir.h"
#include "cli/server.h"

struct bench_args {
    struct cli_value only, seconds, tasks;
};

enum { SECONDS_DEFAULT = 5, SECONDS_MAX = 3600, BACKLOG_DEFAULT = 5 * 1000 * 1000 };

static const struct bench_group *const groups[] = {
    &bench_enqueue_batch,  &bench_enqueue_threads, &bench_latency,        &bench_lateness,
    &bench_backlog,        &bench_snapshot,        &bench_disk,           &bench_idle,
    &bench_jobs,           &bench_jobs_cold,       &bench_server_batch,   &bench_server_unary,
    &bench_server_process, &bench_server_latency,  &bench_server_idle,    &bench_server_start,
    &bench_redis_batch,    &bench_redis_process,   &bench_redis_latency,  &bench_redis_lateness,
    &bench_redis_memory,   &bench_redis_idle,      &bench_redis_recovery, &bench_timer_operations,
    &bench_job_readers,    &bench_names_crowd,     &bench_names_heal,     &bench_http_enqueue,
    &bench_http_list,      &bench_http_events,     &bench_http_queues,
};

/* ---- rows ----------------------------------------------------------------------------------- */

bool bench_wants(const struct bench *bench, const char *name)
{
    for (size_t i = 0; i < bench->only->items_n; i++)
        if (strcmp(bench->only->items[i], name) == 0)
            return true;
    return bench->only->items_n == 0;
}

struct bench_row *bench_add(struct bench *bench, const char *name, double value, const char *unit)
{
    mr_assert(bench->rows_n < BENCH_ROWS_MAX);
    struct bench_row *row = &bench->rows[bench->rows_n++];
    *row = (struct bench_row){.name = name, .value = value, .unit = unit};
    return row;
}

void bench_yardstick(struct bench_row *row, double value, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(row->yardstick, sizeof row->yardstick, fmt, ap);
    va_end(ap);
    row->yardstick_value = value;
    row->ratio = value != 0 ? row->value / value : 0;
}

void bench_goal(struct bench_row *row, bool met, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(row->goal, sizeof row->goal, fmt, ap);
    va_end(ap);
    row->met = met;
}

bool bench_interrupted(void)
{
    return interrupt_number() != 0;
}

void bench_doing(const struct bench *bench, const char *what)
{
    if (!bench->cli->quiet)
        out_status("%s ...", what);
}

/* ---- showing -------------------------------------------------------------------------------- */

/* Whole numbers for big values, three digits behind the point for small ones. */
static void format_value(double value, char text[32])
{
    snprintf(text, 32, value >= 1000 ? "%.0f" : "%.3f", value);
}

static void print_table(const struct bench *bench)
{
    static const struct out_column columns[] = {
        {"NAME", OUT_LEFT},      {"VALUE", OUT_RIGHT},     {"UNIT", OUT_LEFT},
        {"YARDSTICK", OUT_LEFT}, {"ITS VALUE", OUT_RIGHT}, {"RATIO", OUT_RIGHT},
        {"GOAL", OUT_LEFT},      {"MET", OUT_LEFT},        {"NOTE", OUT_STRETCH},
    };
    struct out_table *table = out_table_new(columns, CLI_LEN(columns));
    char text[32];
    for (size_t i = 0; i < bench->rows_n; i++) {
        const struct bench_row *row = &bench->rows[i];
        out_cell(table, OUT_BOLD, row->name);
        format_value(row->value, text);
        out_cell(table, OUT_PLAIN, text);
        out_cell(table, OUT_PLAIN, row->unit);
        out_cell(table, OUT_DIM, row->yardstick);
        format_value(row->yardstick_value, text);
        out_cell(table, OUT_DIM, text);
        out_cellf(table, OUT_PLAIN, "%.2f", row->ratio);
        out_cell(table, OUT_DIM, row->goal);
        out_cell(table, row->met ? OUT_GREEN : OUT_RED, row->met ? "yes" : "NO");
        out_cell(table, OUT_DIM, row->note);
    }
    out_table_flush(table);
    out_table_free(table);
}

static void print_json(const struct bench *bench)
{
    struct jw jw = {0};
    jw_array_begin(&jw, NULL);
    for (size_t i = 0; i < bench->rows_n; i++) {
        const struct bench_row *row = &bench->rows[i];
        jw_object_begin(&jw, NULL);
        jw_text(&jw, "name", row->name);
        jw_real(&jw, "value", row->value);
        jw_text(&jw, "unit", row->unit);
        jw_text(&jw, "yardstick", row->yardstick);
        jw_real(&jw, "yardstick_value", row->yardstick_value);
        jw_real(&jw, "ratio", row->ratio);
        jw_text(&jw, "goal", row->goal);
        jw_bool(&jw, "met", row->met);
        jw_text(&jw, "note", row->note);
        jw_object_end(&jw);
    }
    jw_array_end(&jw);
    jw_finish(&jw);
}

/* ---- running -------------------------------------------------------------------------------- */

/* A broker that was named is a folder, a server or a Redis; without one everything is ours, and there is
 * no Redis. */
static bool group_fits(const struct cli *cli, const struct bench_group *group)
{
    if (!cli->globals.broker.given)
        return group->place != BENCH_ON_REDIS;
    if (cli_is_redis(cli->broker))
        return group->place == BENCH_ON_REDIS;
    return group->place == (cli_is_server(cli->broker) ? BENCH_AT_SERVER : BENCH_IN_FOLDER);
}

static bool group_wanted(const struct bench *bench, const struct bench_group *group)
{
    if (!group_fits(bench->cli, group))
        return false;
    for (size_t i = 0; group->names[i]; i++)
        if (bench_wants(bench, group->names[i]))
            return true;
    return false;
}

static int run_groups(struct bench *bench)
{
    for (size_t i = 0; i < CLI_LEN(groups); i++) {
        if (!group_wanted(bench, groups[i]))
            continue;
        enum mr_err err = groups[i]->run(bench);
        out_status_clear();
        if (bench_interrupted())
            return CLI_SIGNAL_BASE + interrupt_number();
        if (err != MR_OK && bench->told != CLI_OK)
            return bench->told;
        if (err != MR_OK && bench->detail.text[0])
            return cli_fail(mr_err_exit_code(err), "bench %s: %s", groups[i]->names[0],
                            bench->detail.text);
        if (err != MR_OK)
            return cli_fail_err(err, "bench %s", groups[i]->names[0]);
    }
    return CLI_OK;
}

static int check_only(struct cli *cli, const struct cli_value *only)
{
    enum { WORDS_MAX = 64 };
    const char *words[WORDS_MAX + 1] = {0};
    const struct bench_group *group_of[WORDS_MAX];
    size_t n = 0;
    for (size_t i = 0; i < CLI_LEN(groups); i++)
        for (size_t k = 0; groups[i]->names[k] && n < WORDS_MAX; k++) {
            group_of[n] = groups[i];
            words[n++] = groups[i]->names[k];
        }
    for (size_t i = 0; i < only->items_n; i++) {
        bool known = false;
        for (size_t k = 0; k < n; k++) {
            bool same = strcmp(only->items[i], words[k]) == 0;
            known = known || same;
            bool on_redis = group_of[k]->place == BENCH_ON_REDIS;
            if (same && on_redis && !group_fits(cli, group_of[k]))
                return cli_usage(cli,
                                 "--only: %s is measured on a Redis: give --broker redis://"
                                 "HOST:PORT",
                                 words[k]);
            if (same && !group_fits(cli, group_of[k]))
                return cli_usage(cli, "--only: %s is not measured at %.200s; leave out --broker",
                                 words[k], cli->shown);
        }
        const char *nearest = known ? NULL : mr_nearest_word(only->items[i], words);
        if (!known && nearest)
            return cli_usage(cli, "--only: unknown row %s; did you mean %s?", only->items[i],
                             nearest);
        if (!known)
            return cli_usage(cli, "--only: unknown row %s", only->items[i]);
    }
    return CLI_OK;
}

/* Without --broker: a folder of our own here, on the disk that is meant. MILLRACE_BROKER does not
 * count, since a bench must not end up on a store in use by accident. */
static int choose_dir(struct cli *cli, struct bench *bench)
{
    bench->own_dir = !cli->globals.broker.given;
    if (!bench->own_dir && !cli_file_dir(cli->broker) && !cli_is_server(cli->broker) &&
        !cli_is_redis(cli->broker))
        return cli_usage(cli, "bench runs on a folder, a server or a Redis: give --broker "
                              "file:DIR, millrace://HOST:PORT, redis://HOST:PORT or none");
    const char *store = bench->own_dir ? NULL : cli_file_dir(cli->broker);
    /* The yardstick's file stands beside a named store, on its disk, never in it. */
    int len = snprintf(bench->dir, sizeof bench->dir, "%s%smillrace-bench-XXXXXX",
                       store ? store : ".", store ? "." : "/");
    if (len >= (int)sizeof bench->dir)
        return cli_usage(cli, "the name of the folder is too long");
    if (!mkdtemp(bench->dir))
        return cli_fail(CLI_FAILED, "cannot make the folder %s: %m", bench->dir);
    return CLI_OK;
}

static int run(struct cli *cli, void *args_)
{
    const struct bench_args *args = args_;
    int code = check_only(cli, &args->only);
    if (code != CLI_OK)
        return code;
    struct bench *bench = cli_alloc(1, sizeof *bench);
    bench->cli = cli;
    bench->only = &args->only;
    bench->seconds = args->seconds.given ? args->seconds.real : SECONDS_DEFAULT;
    bench->backlog = args->tasks.given ? (uint64_t)args->tasks.number : BACKLOG_DEFAULT;
    if (bench->seconds <= 0 || bench->seconds > SECONDS_MAX)
        code = cli_usage(cli, "--seconds must be above 0 and at most %d", SECONDS_MAX);
    interrupt_watch();
    if (code == CLI_OK)
        code = choose_dir(cli, bench);
    if (code == CLI_OK) {
        code = run_groups(bench);
        remove_dir(bench->dir);
        if (cli->json)
            print_json(bench);
        else if (bench->rows_n > 0)
            print_table(bench);
    }
    free(bench);
    return code;
}

static const struct cli_option options[] = {
    {.name = "only",
     .kind = CLI_TEXT,
     .note = CLI_REPEATS,
     .offset = offsetof(struct bench_args, only),
     .value = "NAME",
     .help = "only this row"},
    {.name = "seconds",
     .kind = CLI_REAL,
     .offset = offsetof(struct bench_args, seconds),
     .value = "N",
     .help = "length of each timed loop (default 5)"},
    {.name = "tasks",
     .kind = CLI_COUNT,
     .offset = offsetof(struct bench_args, tasks),
     .value = "N",
     .help = "size of the big backlog (default 5000000)",
     .min = 1000,
     .max = 100 * 1000 * 1000},
};

static const struct cli_verb verb = {
    .synopsis = "",
    .about =
        "Measures this machine: each figure beside a yardstick from the same run. Rows:\n"
        "enqueue-batch enqueue-threads latency-p99 lateness-p99 memory restart process-small\n"
        "process snapshot-p99 disk idle-cpu job-create job-parts job-cold; at a server:\n"
        "server-enqueue-batch server-enqueue-unary server-process server-latency-p99\n"
        "server-idle-workers server-idle-cpu server-start timer-operations timer-applied\n"
        "job-readers http-enqueue http-list-p99 http-events http-queues; of nameservers:\n"
        "names-workers names-cpu names-lookup-p99 names-heal; on a Redis: redis-enqueue-batch\n"
        "redis-process redis-latency-p99 redis-lateness-p99 redis-memory redis-idle-commands\n"
        "redis-idle-cpu redis-recovery.\n"
        "Without --broker it works in a new folder here, with servers of its own, and removes\n"
        "it at the end; the big backlog takes about 2 GB of disk. With a server or a Redis it\n"
        "measures that, in a queue of its own.",
    .examples = (const char *const[]){"millrace bench --only enqueue-batch",
                                      "millrace bench --seconds 1 --tasks 100000 --json", NULL},
    CLI_OPTIONS(options, struct bench_args),
    .run = run,
};

const struct cli_command cli_bench = {.name = "bench",
                                      .about = "measure this machine beside yardsticks",
                                      .verbs = &verb,
                                      .verbs_n = 1};
