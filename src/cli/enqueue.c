/* SPDX-License-Identifier: Apache-2.0 */
/* millrace enqueue: the flags as a task, and the simplest case of sending one. */
#include <stdlib.h>

#include "cli/enqueue.h"
#include "cli/out.h"

enum { RETENTION_DEFAULT_MS = 60 * 60 * 1000 };

static int check_flags(struct cli *cli, const struct enqueue_args *args)
{
    if (args->delay.given && args->at.given)
        return cli_usage(cli, "--delay and --at exclude each other");
    if (!args->unique.given && (args->unique_key.given || args->on_duplicate.given))
        return cli_usage(cli, "%s needs --unique D, how long the key is held",
                         args->unique_key.given ? "--unique-key" : "--on-duplicate");
    if (args->unique.given && args->unique.number == 0)
        return cli_usage(cli, "--unique must be longer than 0");
    if (args->lines.given && args->id.given)
        return cli_usage(cli, "--id names one task; --lines makes many");
    if (args->lines.given && cli->words_n > 0)
        return cli_usage(cli, "--lines reads standard input; drop the payload %.80s",
                         cli->words[0]);
    if (args->header.items_n > MR_HEADERS_MAX)
        return cli_usage(cli, "--header: %zu are over the limit of %d", args->header.items_n,
                         MR_HEADERS_MAX);
    return CLI_OK;
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
        .retention_ms = args->retention.given ? args->retention.number : RETENTION_DEFAULT_MS,
        .unique_ms = args->unique.number,
        .unique_key = text_of(&args->unique_key),
        .on_duplicate = (enum mr_on_duplicate)args->on_duplicate.number,
        .group = text_of(&args->group),
        .topic = text_of(&args->topic),
    };
    if (args->retry.given && args->retry.number == 0)
        template_->task.max_retry = MR_NO_RETRY;
    if (args->timeout.given && args->timeout.number == 0)
        template_->task.timeout_ms = MR_NO_TIMEOUT;
    return fill_headers(cli, args, template_);
}

/* ---- one task ------------------------------------------------------------------------------- */

static int fail_item(const struct enqueue_item *item, const struct mr_enqueue_result *result)
{
    char reason[600];
    enum mr_err err = item->err != MR_OK ? item->err : result->err;
    return cli_fail(mr_err_exit_code(err), "%s", enqueue_reason(item, result, reason));
}

static int send_one(struct cli *cli, struct enqueue_item *item)
{
    enqueue_item_check(item);
    if (item->err != MR_OK)
        return fail_item(item, NULL);
    int code = cli_open(cli, NULL, CLI_STORE_MAY_CREATE);
    if (code != CLI_OK)
        return code;
    struct mr_enqueue_result result;
    enum mr_err err = mr_enqueue(cli->client, &item->task, 1, &result);
    if (err != MR_OK)
        return cli_fail_err(err, "cannot enqueue on %s", cli->broker);
    if (result.err != MR_OK)
        return fail_item(item, &result);
    out_printf("%s\n", result.id);
    return CLI_OK;
}

static int enqueue_one(struct cli *cli, const struct enqueue_template *template_)
{
    struct enqueue_item item = {.task = template_->task};
    int code = CLI_OK;
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
        code = send_one(cli, &item);
    enqueue_item_done(&item);
    return code;
}

/* A flag that no task could have is refused once, not for every line. */
static int check_template(const struct enqueue_template *template_)
{
    struct enqueue_item item = {.task = template_->task};
    enqueue_item_check(&item);
    int code = item.err == MR_OK ? CLI_OK : fail_item(&item, NULL);
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
        code = check_template(template_);
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
#define NOT_HERE(kind_, why) .note = CLI_NOT_HERE, OPT(not_here, kind_, "X", why)
#define NEEDS_SERVER         "needs a server: a file: broker is open in this process alone"

static const struct cli_option options[] = {
    {.name = "queue", .letter = 'q', OPT(queue, CLI_NAME, "QUEUE", "queue (default: default)")},
    {.name = "type",
     .letter = 't',
     OPT(type, CLI_NAME, "TYPE", "type of the task (default: task)")},
    {.name = "id", OPT(id, CLI_NAME, "ID", "its id; one that exists is refused (default: a UUID)")},
    {.name = "priority", OPT(priority, CLI_REAL, "SECONDS", "seconds ahead; positive is earlier")},
    {.name = "delay", OPT(delay, CLI_DURATION, "D", "not before this has passed")},
    {.name = "at", OPT(at, CLI_TIME, "T", "not before this time: RFC 3339 or Unix seconds")},
    {.name = "retry",
     OPT(retry, CLI_COUNT, "N", "failures before it is archived (default 25)"),
     .max = MR_RETRY_MAX},
    {.name = "timeout",
     OPT(timeout, CLI_DURATION, "D", "one run may last this long (default 30m)")},
    {.name = "deadline", OPT(deadline, CLI_TIME, "T", "no run after this time")},
    {.name = "unique", OPT(unique, CLI_DURATION, "D", "hold a unique key so long at most")},
    {.name = "unique-key",
     OPT(unique_key, CLI_NAME, "K", "the key (default: queue, type, payload)")},
    {.name = "on-duplicate",
     OPT(on_duplicate, CLI_CHOICE, "HOW", "reject, ignore or replace"),
     .choices = duplicate_words},
    {.name = "retention", OPT(retention, CLI_DURATION, "D", "keep it when completed (default 1h)")},
    {.name = "group", OPT(group, CLI_NAME, "G", "group it belongs to")},
    {.name = "topic", OPT(topic, CLI_NAME, "TOPIC", "leave the outcome in this result topic")},
    {.name = "header", .note = CLI_REPEATS, OPT(header, CLI_TEXT, "K=V", "a header")},
    {.name = "lines", OPT(lines, CLI_FLAG, NULL, "one task per line of standard input")},
    {.name = "key", NOT_HERE(CLI_TEXT, "not supported on a file: broker")},
    {.name = "partition", NOT_HERE(CLI_TEXT, "not supported on a file: broker")},
    {.name = "wait", NOT_HERE(CLI_FLAG, NEEDS_SERVER)},
    {.name = "wait-timeout", NOT_HERE(CLI_TEXT, NEEDS_SERVER)},
};

static const struct cli_verb verb = {
    .synopsis = "[PAYLOAD|-]",
    .about =
        "Adds a task and prints its id once it is on disk. --lines makes one of every line of\n"
        "standard input; --json takes one object or an array of them (argument or standard\n"
        "input) with the fields of a task and answers for each.",
    .examples =
        (const char *const[]){"millrace enqueue --broker file:./tasks -q mail 'hello'",
                              "seq 1000000 | millrace enqueue -q numbers --lines --quiet",
                              "millrace enqueue --json "
                              "'{\"queue\":\"mail\",\"payload\":\"hello\",\"delay_ms\":5000}'",
                              NULL},
    .options = options,
    .options_n = CLI_LEN(options),
    .args_size = sizeof(struct enqueue_args),
    .words_max = 1,
    .run = run,
};

const struct cli_command cli_enqueue = {
    .name = "enqueue", .about = "add a task, or many", .verbs = &verb, .verbs_n = 1};
