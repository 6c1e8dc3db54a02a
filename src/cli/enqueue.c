/* SPDX-License-Identifier: Apache-2.0 */
/* millrace enqueue: the flags as a task, and the simplest case of sending one. */
#include <poll.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "broker/broker.h"
#include "cli/enqueue.h"
#include "cli/out.h"
#include "wire/task.h"

static int check_flags(struct cli *cli, const struct enqueue_args *args)
{
    if (args->delay.given && args->at.given)
        return cli_usage(cli, "--delay and --at exclude each other");
    if (!args->unique.given && (args->unique_key.given || args->on_duplicate.given))
        return cli_usage(cli, "%s needs --unique D, how long the key is held",
                         args->unique_key.given ? "--unique-key" : "--on-duplicate");
    if (args->unique.given && args->unique.number == 0)
        return cli_usage(cli, "--unique must be longer than 0");
    if (args->partition.given && args->partition.number == 0)
        return cli_usage(cli, "--partition: they are counted from 1");
    if (args->lines.given && args->id.given)
        return cli_usage(cli, "--id names one task; --lines makes many");
    if (args->lines.given && cli->words_n > 0)
        return cli_usage(cli, "--lines reads standard input; drop the payload %.80s",
                         cli->words[0]);
    if (args->header.items_n > MR_HEADERS_MAX)
        return cli_usage(cli, "--header: %zu are over the limit of %d", args->header.items_n,
                         MR_HEADERS_MAX);
    return enqueue_check_wait(cli, args);
}

static struct mr_slice environment_trace(enum mr_trace_part part, void *arg)
{
    static const char *const variables[MR_TRACE_PARTS] = {"TRACEPARENT", "TRACESTATE", "BAGGAGE"};
    (void)arg;
    const char *value = getenv(variables[part]);
    return mr_slice_str(value ? value : "");
}

/* A command that runs in a trace enqueues tasks of that trace, unless --header says another. */
static void fill_trace(struct enqueue_template *template_)
{
    struct mr_task_options *task = &template_->task;
    cli_must(mr_trace_read(environment_trace, NULL, NULL, &template_->trace));
    struct mr_header missing[MR_TRACE_PARTS];
    size_t n = mr_trace_missing(&template_->trace, task->headers, task->headers_n, missing);
    memcpy(template_->headers + task->headers_n, missing, n * sizeof *missing);
    task->headers_n += n;
}

static int fill_headers(struct cli *cli, const struct enqueue_args *args,
                        struct enqueue_template *template_)
{
    for (size_t i = 0; i < args->header.items_n; i++) {
        const char *text = args->header.items[i];
        const char *equals = strchr(text, '=');
        if (!equals || equals == text)
            return cli_usage(cli, "--header: \"%.200s\" is not NAME=VALUE", text);
        template_->headers[i] = (struct mr_header){mr_slice_make(text, (size_t)(equals - text)),
                                                   mr_slice_str(equals + 1)};
    }
    template_->task.headers = template_->headers;
    template_->task.headers_n = args->header.items_n;
    fill_trace(template_);
    return CLI_OK;
}

static struct mr_slice text_of(const struct cli_value *value)
{
    return mr_slice_str(value->given ? value->text : "");
}

/* The flags as a task, its payload apart. In the C API 0 means the default; here it means none. */
static int fill_template(struct cli *cli, const struct enqueue_args *args,
                         struct enqueue_template *template_)
{
    template_->task = (struct mr_task_options){
        .queue = text_of(&args->queue),
        .type = text_of(&args->type),
        .id = text_of(&args->id),
        .priority_s = args->priority.real,
        .delay_ms = args->delay.number,
        .at_ms = args->at.number,
        .max_retry = (int32_t)args->retry.number,
        .timeout_ms = args->timeout.number,
        .deadline_ms = args->deadline.number,
        .retention_ms = args->retention.given ? args->retention.number : MR_PEOPLE_RETENTION_MS,
        .unique_ms = args->unique.number,
        .unique_key = text_of(&args->unique_key),
        .on_duplicate = (enum mr_on_duplicate)args->on_duplicate.number,
        .group = text_of(&args->group),
        .topic = text_of(&args->topic),
        .key = text_of(&args->key),
        .partition = (uint32_t)args->partition.number,
    };
    template_->wait = args->wait.given;
    template_->wait_ms = args->wait_timeout.number;
    if (args->retry.given && args->retry.number == 0)
        template_->task.max_retry = MR_NO_RETRY;
    if (args->timeout.given && args->timeout.number == 0)
        template_->task.timeout_ms = MR_NO_TIMEOUT;
    return fill_headers(cli, args, template_);
}

/* What the library calls a field, and the option that sets it. */
static const char *const field_options[][2] = {
    {"priority", "--priority"},
    {"delay", "--delay"},
    {"time", "--at"},
    {"timeout", "--timeout"},
    {"deadline", "--deadline"},
    {"retention", "--retention"},
    {"unique time", "--unique"},
    {"unique key", "--unique-key"},
    {"headers", "--header"},
    {"header name", "--header"},
    {"id", "--id"},
};

/* A flag that no task could have is refused before anything is read, by its name. */
static int check_template(const struct cli *cli, const struct enqueue_args *args,
                          const struct enqueue_template *template_)
{
    if (args->id.given && !*args->id.text)
        return cli_usage(cli, "--id: \"\" is empty; leave it out for a generated one");
    struct mr_detail detail = {0};
    enum mr_err err = mr_task_options_check(&template_->task, MR_PAYLOAD_MAX, &detail);
    if (err == MR_OK)
        return CLI_OK;
    size_t len = strcspn(detail.text, ":");
    for (size_t i = 0; i < CLI_LEN(field_options); i++)
        if (strlen(field_options[i][0]) == len &&
            memcmp(detail.text, field_options[i][0], len) == 0)
            return cli_usage(cli, "%s%s", field_options[i][1], detail.text + len);
    return cli_usage(cli, "%s", detail.text);
}

/* ---- one task ------------------------------------------------------------------------------- */

static int fail_item(const struct enqueue_item *item, const struct mr_enqueue_result *result)
{
    char reason[600];
    enum mr_err err = item->err != MR_OK ? item->err : result->err;
    return cli_fail(mr_err_exit_code(err), "%s", enqueue_reason(item, result, reason));
}

static int send_one(struct cli *cli, const struct enqueue_template *template_,
                    struct enqueue_item *item)
{
    enqueue_item_check(item);
    if (item->err != MR_OK)
        return fail_item(item, NULL);
    int code = cli_open(cli, NULL, CLI_STORE_MAY_CREATE);
    if (code != CLI_OK)
        return code;
    struct mr_enqueue_result result = {.err = MR_OK};
    enum mr_err err = mr_enqueue(cli->client, &item->task, 1, &result);
    if (err != MR_OK)
        return enqueue_fail(cli, err, &result);
    if (result.err != MR_OK)
        return fail_item(item, &result);
    if (template_->wait)
        return enqueue_wait(cli, result.id, template_->wait_ms);
    out_printf("%s\n", result.id);
    return CLI_OK;
}

static int pending_bytes(void)
{
    int n = 0;
    return ioctl(STDIN_FILENO, FIONREAD, &n) == 0 ? n : 0;
}

/* Whether somebody feeds us: a file with something left in it, or a pipe that has bytes soon. */
static bool stdin_has_data(int wait_ms)
{
    struct stat st;
    if (fstat(STDIN_FILENO, &st) != 0)
        return false;
    if (S_ISREG(st.st_mode))
        return lseek(STDIN_FILENO, 0, SEEK_CUR) < st.st_size;
    struct pollfd fd = {.fd = STDIN_FILENO, .events = POLLIN};
    return (S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode)) && poll(&fd, 1, wait_ms) > 0 &&
           (fd.revents & POLLIN) && pending_bytes() > 0;
}

/*
 * Without PAYLOAD the payload is empty, and standard input is not read: in a loop of a script it is
 * often somebody else's. But then what is piped in must not be lost without a word. What comes
 * later than this looks for it meets a closed pipe, which its writer is told.
 */
static int refuse_unread(const struct cli *cli)
{
    enum { WAIT_MS = 100 };
    if (cli->words_n > 0 || !stdin_has_data(WAIT_MS))
        return CLI_OK;
    return cli_usage(cli, "standard input would not be read: give - to read it as the payload, "
                          "--lines for a task per line, or '' for an empty payload");
}

static int enqueue_one(struct cli *cli, const struct enqueue_template *template_)
{
    struct enqueue_item item = {.task = template_->task};
    int code = refuse_unread(cli);
    item.task.payload = mr_slice_str(cli->words_n > 0 ? cli->words[0] : "");
    if (cli->words_n > 0 && strcmp(cli->words[0], "-") == 0) {
        enum mr_err err = cli_read_stdin(&item.payload, MR_PAYLOAD_MAX);
        if (err == MR_TOO_BIG)
            code = cli_fail(mr_err_exit_code(err),
                            "the payload on standard input is over the limit of %d bytes",
                            MR_PAYLOAD_MAX);
        else if (err != MR_OK)
            code = cli_fail_err(err, "cannot read standard input");
        item.task.payload = mr_buf_slice(&item.payload);
    }
    if (code == CLI_OK)
        code = send_one(cli, template_, &item);
    enqueue_item_done(&item);
    return code;
}

static int run(struct cli *cli, void *args_)
{
    const struct enqueue_args *args = args_;
    int code = check_flags(cli, args);
    if (code != CLI_OK)
        return code;
    struct enqueue_template *template_ = cli_alloc(1, sizeof *template_);
    code = fill_template(cli, args, template_);
    if (code == CLI_OK)
        code = check_template(cli, args, template_);
    if (code == CLI_OK)
        code = args->lines.given ? enqueue_lines(cli, template_)
               : cli->json       ? enqueue_json(cli, template_)
                                 : enqueue_one(cli, template_);
    free(template_);
    return code;
}

/* ---- row ------------------------------------------------------------------------------------ */

static const char *const duplicate_words[] = {"reject", "ignore", "replace", NULL};

#define OPT(field, kind_, value_, help_)                                                           \
    .kind = kind_, .offset = offsetof(struct enqueue_args, field), .value = value_, .help = help_

static const struct cli_option options[] = {
    {.name = "queue", .letter = 'q', OPT(queue, CLI_NAME, "QUEUE", "queue (default: default)")},
    {.name = "type",
     .letter = 't',
     OPT(type, CLI_NAME, "TYPE", "type of the task (default: task)")},
    {.name = "id", OPT(id, CLI_TEXT, "ID", "its id; one that exists is refused (default: a UUID)")},
    {.name = "priority", OPT(priority, CLI_REAL, "SECONDS", "seconds ahead; positive is earlier")},
    {.name = "delay", OPT(delay, CLI_DURATION, "D", "not before this has passed")},
    {.name = "at", OPT(at, CLI_TIME, "T", "not before this time: RFC 3339 or Unix seconds")},
    {.name = "retry",
     OPT(retry, CLI_COUNT, "N", "failures before it is archived (default 25)"),
     .max = MR_RETRY_MAX},
    {.name = "timeout",
     OPT(timeout, CLI_DURATION, "D", "one run may last this long (default 30m)")},
    {.name = "deadline", OPT(deadline, CLI_TIME, "T", "no run after this time")},
    {.name = "unique",
     OPT(unique, CLI_DURATION, "D", "hold a key so long at most: one such task in the queue")},
    {.name = "unique-key", OPT(unique_key, CLI_NAME, "K", "the key (default: type and payload)")},
    {.name = "on-duplicate",
     OPT(on_duplicate, CLI_CHOICE, "HOW",
         "reject, ignore, or replace: when it runs, not its payload"),
     .choices = duplicate_words},
    {.name = "retention", OPT(retention, CLI_DURATION, "D", "keep it when completed (default 1h)")},
    {.name = "group", OPT(group, CLI_NAME, "G", "wait in this group to become part of one task")},
    {.name = "topic",
     OPT(topic, CLI_NAME, "TOPIC", "leave the outcome in this result topic"),
     .max = MR_TOPIC_MAX},
    {.name = "header", .note = CLI_REPEATS, OPT(header, CLI_TEXT, "K=V", "a header")},
    {.name = "lines", OPT(lines, CLI_FLAG, NULL, "one task per line of standard input")},
    {.name = "key",
     OPT(key, CLI_NAME, "K", "into the partition of its queue where all with this key go")},
    {.name = "partition",
     OPT(partition, CLI_COUNT, "I", "into this partition of its queue, from 1"),
     .max = MR_PARTITIONS_MAX},
    {.name = "wait",
     OPT(wait, CLI_FLAG, NULL, "wait for its end and print its result; needs a server")},
    {.name = "wait-timeout",
     OPT(wait_timeout, CLI_DURATION, "D", "with --wait: no longer than this (exit code 7)")},
};

static const struct cli_verb verb = {
    .synopsis = "[PAYLOAD|-]",
    .about =
        "Adds a task and prints its id once it is on disk. The payload is the argument, empty\n"
        "without one, and standard input with -. --lines makes a task of every line of standard\n"
        "input; --json takes one object or an array of them (argument or standard input) with the\n"
        "fields of a task and answers for each. TRACEPARENT, TRACESTATE and BAGGAGE of the\n"
        "environment become its headers.",
    .examples =
        (const char *const[]){"millrace enqueue --broker file:./tasks -q mail 'hello'",
                              "millrace enqueue -q sums --wait --wait-timeout 10s '1 + 2'",
                              "seq 1000000 | millrace enqueue -q numbers --lines --quiet",
                              "millrace enqueue --json "
                              "'{\"queue\":\"mail\",\"payload\":\"hello\",\"delay_ms\":5000}'",
                              NULL},
    CLI_OPTIONS(options, struct enqueue_args),
    .words_max = 1,
    .run = run,
};

const struct cli_command cli_enqueue = {
    .name = "enqueue", .about = "add a task, or many", .verbs = &verb, .verbs_n = 1};
