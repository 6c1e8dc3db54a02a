/* SPDX-License-Identifier: Apache-2.0 */
/* millrace job: one big input, many tasks, one result. Submitting is in job_submit.c, watching in job_watch.c. */
#include "cli/job.h"

#include <stdlib.h>

#include "cli/listing.h"
#include "cli/server.h"
#include "wire/job_json.h"

/* A server names the job itself where it has nothing else to say. */
static bool names_job(const char *text, const char *id)
{
    static const char word[] = "job ";
    size_t len = strlen(id);
    return strncmp(text, word, strlen(word)) == 0 && strncmp(text + strlen(word), id, len) == 0 &&
           text[strlen(word) + len] == ':';
}

int job_failed(const struct cli *cli, enum mr_err err, const char *id,
               const struct mr_detail *detail)
{
    if (err == MR_UNSUPPORTED && cli_is_redis(cli->broker))
        return cli_fail(mr_err_exit_code(err),
                        "jobs of %s are with a server: millrace serve --broker %s, then --broker "
                        "millrace://HOST:PORT",
                        cli->shown, cli->shown);
    if (detail != NULL && detail->text[0] != '\0' && id != NULL && !names_job(detail->text, id))
        return cli_fail(mr_err_exit_code(err), "job %s: %s", id, detail->text);
    if (detail != NULL && detail->text[0] != '\0')
        return cli_fail(mr_err_exit_code(err), "%s", detail->text);
    if (id == NULL)
        return cli_fail_err(err, "jobs");
    return cli_fail_err(err, "job %s", id);
}

/* ---- looking --------------------------------------------------------------------------------- */

struct look_args {
    struct cli_value queue, state, limit, watch, parts;
};

static const char *const state_words[] = {"created", "running",   "succeeded",
                                          "failed",  "cancelled", NULL};
static const char *const part_words[] = {"waiting", "submitted", "done", "failed", NULL};

static enum mr_err job_page(struct cli *cli, const void *args_, struct listing *listing)
{
    const struct look_args *args = args_;
    struct mr_job_list *list = NULL;
    struct mr_job_list_options options = {
        .queue = mr_slice_str(args->queue.given ? args->queue.text : ""),
        .state =
            args->state.given ? (enum mr_job_state)(args->state.number + 1) : MR_JOB_STATE_NONE,
        .cursor = listing_cursor(listing),
        .limit = listing->limit,
    };
    MR_TRY(mr_job_list_get(cli->client, &options, &list));
    for (size_t i = 0; i < mr_job_list_count(list); i++)
        if (listing->jw)
            jw_job(listing->jw, NULL, mr_job_list_at(list, i));
        else
            job_row(listing->table, mr_job_list_at(list, i));
    listing_turn(listing, mr_job_list_count(list), mr_job_list_next(list));
    mr_job_list_free(list);
    return MR_OK;
}

static enum mr_err part_page(struct cli *cli, const void *args_, struct listing *listing)
{
    const struct look_args *args = args_;
    struct mr_part_list *list = NULL;
    struct mr_part_list_options options = {
        .id = mr_slice_str(cli->words[0]),
        .states = args->state.given ? 1u << args->state.number : 0,
        .cursor = listing_cursor(listing),
        .limit = listing->limit,
    };
    MR_TRY(mr_part_list_get(cli->client, &options, &list));
    for (size_t i = 0; i < mr_part_list_count(list); i++)
        if (listing->jw)
            jw_part(listing->jw, NULL, mr_part_list_at(list, i));
        else
            part_row(listing->table, mr_part_list_at(list, i));
    listing_turn(listing, mr_part_list_count(list), mr_part_list_next(list));
    mr_part_list_free(list);
    return MR_OK;
}

static int list_once(struct cli *cli, void *args_)
{
    static const struct listing_kind jobs = {job_table, job_page, "no jobs"};
    const struct look_args *args = args_;
    enum mr_err err = listing_print(cli, &jobs, args, &args->limit);
    return err == MR_OK ? CLI_OK : job_failed(cli, err, NULL, NULL);
}

static int parts_once(struct cli *cli, const struct look_args *args)
{
    static const struct listing_kind parts = {part_table, part_page, "no such parts"};
    enum mr_err err = listing_print(cli, &parts, args, &args->limit);
    return err == MR_OK ? CLI_OK : job_failed(cli, err, cli->words[0], NULL);
}

static int run_list(struct cli *cli, void *args_)
{
    const struct look_args *args = args_;
    return watch_run(cli, &args->watch, list_once, args_);
}

static int show_once(struct cli *cli, void *args_)
{
    const struct look_args *args = args_;
    struct mr_job_list *list = NULL;
    if (args->parts.given)
        return parts_once(cli, args);
    enum mr_err err = mr_job_get(cli->client, mr_slice_str(cli->words[0]), &list);
    if (err != MR_OK)
        return job_failed(cli, err, cli->words[0], NULL);
    if (cli->json)
        job_print_json(mr_job_list_at(list, 0));
    else
        job_text(cli, mr_job_list_at(list, 0));
    mr_job_list_free(list);
    return CLI_OK;
}

static int run_show(struct cli *cli, void *args_)
{
    const struct look_args *args = args_;
    if (args->state.given && !args->parts.given)
        return cli_usage(cli, "--state is of --parts");
    return watch_run(cli, &args->watch, show_once, args_);
}

static int run_watch(struct cli *cli, void *args)
{
    (void)args;
    int code = job_check_watch(cli);
    if (code == CLI_OK)
        code = cli_open(cli, NULL, CLI_STORE_MUST_EXIST);
    return code == CLI_OK ? job_watch(cli, cli->words[0]) : code;
}

/* ---- results --------------------------------------------------------------------------------- */

/* As it is; on a terminal nothing of it may act on it. */
static enum mr_err print_piece(struct mr_slice bytes, void *arg)
{
    struct mr_buf *line = arg;
    if (!out_is_terminal()) {
        out_write(bytes);
        return out_broken() ? MR_CANCELLED : MR_OK;
    }
    const char *at = bytes.data, *end = at + bytes.len;
    while (at < end) {
        const char *line_end = memchr(at, '\n', (size_t)(end - at));
        size_t len = line_end ? (size_t)(line_end - at) : (size_t)(end - at);
        out_printf("%s%s", out_escaped(line, mr_slice_make(at, len)), line_end ? "\n" : "");
        at += len + (line_end ? 1 : 0);
    }
    return out_broken() ? MR_CANCELLED : MR_OK;
}

static int run_result(struct cli *cli, void *args)
{
    struct mr_buf line = {0};
    struct mr_detail detail = {0};
    (void)args;
    enum mr_err err =
        mr_job_result(cli->client, mr_slice_str(cli->words[0]), print_piece, &line, &detail);
    mr_buf_done(&line);
    if (err == MR_OK || (err == MR_CANCELLED && out_broken()))
        return CLI_OK;
    return job_failed(cli, err, cli->words[0], &detail);
}

/* ---- acting ---------------------------------------------------------------------------------- */

typedef enum mr_err act_call(struct mr_client *client, struct mr_slice id,
                             struct mr_job_list **ret_list, struct mr_detail *detail);

static int run_act(struct cli *cli, act_call *act, const char *did, const char *cannot)
{
    struct mr_job_list *list = NULL;
    struct mr_detail detail = {0};
    enum mr_err err = act(cli->client, mr_slice_str(cli->words[0]), &list, &detail);
    if (err == MR_WRONG_STATE && (!detail.text[0] || strstr(detail.text, mr_err_text(err))))
        mr_detail_set(&detail, "%s: see millrace job show", cannot);
    if (err != MR_OK)
        return job_failed(cli, err, cli->words[0], &detail);
    if (cli->json)
        job_print_json(mr_job_list_at(list, 0));
    else
        cli_note(cli, "job %s %s", cli->words[0], did);
    mr_job_list_free(list);
    return CLI_OK;
}

static int run_cancel(struct cli *cli, void *args)
{
    (void)args;
    return run_act(cli, mr_job_cancel, "is cancelled", "it has ended");
}

static int run_retry(struct cli *cli, void *args)
{
    (void)args;
    return run_act(cli, mr_job_retry, "goes on with what had failed",
                   "it goes on, or nothing of it has failed");
}

/* ---- rows ------------------------------------------------------------------------------------ */

#define LIMIT_ROW                                                                                  \
    {                                                                                              \
        .name = "limit", .kind = CLI_COUNT, .offset = offsetof(struct look_args, limit),           \
        .value = "N", .help = "at most so many (default 50)", .min = 1                             \
    }

static const struct cli_option list_options[] = {
    {.name = "queue",
     .letter = 'q',
     .kind = CLI_NAME,
     .offset = offsetof(struct look_args, queue),
     .value = "QUEUE",
     .help = "only jobs of this queue"},
    {.name = "state",
     .kind = CLI_CHOICE,
     .offset = offsetof(struct look_args, state),
     .value = "STATE",
     .help = "created, running, succeeded, failed or cancelled",
     .choices = state_words},
    LIMIT_ROW,
    WATCH_OPTION(struct look_args, watch),
};

static const struct cli_option show_options[] = {
    {.name = "parts",
     .kind = CLI_FLAG,
     .offset = offsetof(struct look_args, parts),
     .help = "its parts, by index"},
    {.name = "state",
     .kind = CLI_CHOICE,
     .offset = offsetof(struct look_args, state),
     .value = "STATE",
     .help = "of the parts: waiting, submitted, done or failed",
     .choices = part_words},
    LIMIT_ROW,
    WATCH_OPTION(struct look_args, watch),
};

static const struct cli_verb verbs[] = {
    {.name = "submit",
     .synopsis = "[FILE|-]",
     .about = "Makes a job of a file, or of standard input, and prints its id.\n"
              "The input is split into parts, each of which is a task, and their results are put\n"
              "together. There is a job, with all of its parts, or none.",
     .examples = CLI_EXAMPLES(
         "millrace job submit --split lines --stage resize -q images list.txt",
         "millrace job submit --split paragraphs --stage speak --reduce 'command:sox * -t wav -' "
         "--watch book.txt",
         "find . -name '*.c' | millrace job submit --stage count --reduce sum --watch -",
         "millrace job submit --split 'command:ls *.log' --stage parse --stage load --pipeline"),
     CLI_OPTIONS(job_submit_options, struct job_submit_args),
     .words_max = 1,
     .run = job_run_submit},
    {.name = "list",
     .synopsis = "",
     .about = "Lists jobs, newest first.",
     .examples = CLI_EXAMPLES("millrace job list", "millrace job list --state running --watch"),
     CLI_OPTIONS(list_options, struct look_args),
     .store = CLI_STORE_MUST_EXIST,
     .run = run_list},
    {.name = "show",
     .synopsis = "ID",
     .words = CLI_FIRST_IS_JOB,
     .about = "Shows a job, or its parts.",
     .examples = CLI_EXAMPLES("millrace job show 019a7e1c-8c0f-7d3e-b1c1-7b1f6f0a2c11",
                              "millrace job show ID --parts --state failed"),
     CLI_OPTIONS(show_options, struct look_args),
     CLI_ONE_WORD,
     .store = CLI_STORE_MUST_EXIST,
     .run = run_show},
    {.name = "watch",
     .synopsis = "ID",
     .words = CLI_FIRST_IS_JOB,
     .about =
         "Shows how far a job is until its end.\n"
         "It is a bar on a terminal, with --json a line for each change. Exits with 8 when the\n"
         "job has failed or was cancelled.",
     .examples = CLI_EXAMPLES("millrace job watch 019a7e1c-8c0f-7d3e-b1c1-7b1f6f0a2c11",
                              "millrace job watch ID --json"),
     CLI_ONE_WORD,
     .run = run_watch},
    {.name = "result",
     .synopsis = "ID",
     .words = CLI_FIRST_IS_JOB,
     .about = "Writes the result of a job that has succeeded to standard output.",
     .examples = CLI_EXAMPLES("millrace job result 019a7e1c-8c0f-7d3e-b1c1-7b1f6f0a2c11 >result"),
     CLI_ONE_WORD,
     .store = CLI_STORE_MUST_EXIST,
     .run = run_result},
    {.name = "cancel",
     .synopsis = "ID",
     .words = CLI_FIRST_IS_JOB,
     .about = "Removes what of a job waits, and tells what runs to stop.",
     .examples = CLI_EXAMPLES("millrace job cancel 019a7e1c-8c0f-7d3e-b1c1-7b1f6f0a2c11"),
     CLI_ONE_WORD,
     .store = CLI_STORE_MUST_EXIST,
     .run = run_cancel},
    {.name = "retry",
     .synopsis = "ID",
     .words = CLI_FIRST_IS_JOB,
     .about = "Runs the parts of a job that failed, and those that never ran, again.",
     .examples = CLI_EXAMPLES("millrace job retry 019a7e1c-8c0f-7d3e-b1c1-7b1f6f0a2c11"),
     CLI_ONE_WORD,
     .store = CLI_STORE_MUST_EXIST,
     .run = run_retry},
};

const struct cli_command cli_job = {.name = "job",
                                    .about = "one big input as many tasks: submit, watch, result",
                                    .verbs = verbs,
                                    .verbs_n = CLI_LEN(verbs)};
