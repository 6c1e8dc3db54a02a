/* SPDX-License-Identifier: Apache-2.0 */
/* millrace job submit: an input, of any size, becomes a job. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/job.h"
#include "cli/progress.h"

enum { READ_BYTES = 256 * 1024 };

#define COMMAND_PREFIX "command:"

static const char *const policy_words[] = {"fail-fast", "finish", NULL};

#define ROW(name_, letter_, kind_, field, value_, help_)                                           \
    .name = name_, .letter = letter_, .kind = kind_,                                               \
    .offset = offsetof(struct job_submit_args, field), .value = value_, .help = help_

const struct cli_option job_submit_options[JOB_SUBMIT_OPTIONS_N] = {
    {ROW("split", 0, CLI_TEXT, split, "SPEC",
         "how it is cut: lines[:N], paragraphs, chars:N, bytes:N, json, csv[:N] or command:CMD, "
         "whose lines are the parts (default lines)")},
    {ROW("stage", 0, CLI_NAME, stage, "TYPE",
         "type of the tasks; several: the result of a part in one is its input in the next "
         "(default task)"),
     .note = CLI_REPEATS},
    {ROW("pipeline", 0, CLI_FLAG, pipeline, NULL,
         "a part goes on to the next stage when it is through, not when all are")},
    {ROW("reduce", 0, CLI_TEXT, reduce, "SPEC",
         "what becomes of the results: concat, lines, json, sum, command:CMD or none "
         "(default concat)")},
    {ROW("policy", 0, CLI_CHOICE, policy, "POLICY",
         "when a part fails for good: fail-fast (default) or finish with the others"),
     .choices = policy_words},
    {ROW("queue", 'q', CLI_NAME, queue, "QUEUE", "queue of its tasks (default: default)")},
    {ROW("name", 0, CLI_TEXT, name, "NAME", "for people"), .max = MR_NAME_MAX},
    {ROW("priority", 0, CLI_REAL, priority, "SECONDS", "so much ahead: positive is earlier")},
    {ROW("retry", 0, CLI_COUNT, retry, "N", "failed parts are tried again so often (default 25)"),
     .max = INT32_MAX},
    {ROW("timeout", 0, CLI_DURATION, timeout, "D", "one run may take so long (default 30m)")},
    {ROW("retention", 0, CLI_DURATION, retention, "D",
         "keep job and result so long after its end (default 7d)"),
     .min = 1},
    {ROW("speculate", 0, CLI_DURATION, speculate, "D",
         "the last parts of a stage are run once more when they last longer; the first end counts"),
     .min = MR_MS_PER_S},
    {ROW("watch", 0, CLI_FLAG, watch, NULL, "show how far it is, until its end")},
};

/* ---- what it is ------------------------------------------------------------------------------ */

static struct mr_slice text_of(const struct cli_value *value)
{
    return mr_slice_str(value->given ? value->text : "");
}

/* stages: in memory of the caller's, to be freed. */
static struct mr_job_options options_of(const struct job_submit_args *args,
                                        struct mr_slice **ret_stages)
{
    struct mr_job_options job = {
        .name = text_of(&args->name),
        .queue = text_of(&args->queue),
        .split = text_of(&args->split),
        .reduce = text_of(&args->reduce),
        .policy = args->policy.given ? (enum mr_job_policy)args->policy.number : MR_JOB_FAIL_FAST,
        .pipeline = args->pipeline.given,
        .priority_s = args->priority.real,
        .retention_ms = args->retention.number,
        .speculate_ms = args->speculate.number,
    };
    if (args->retry.given)
        job.max_retry = args->retry.number > 0 ? (int32_t)args->retry.number : MR_NO_RETRY;
    if (args->timeout.given)
        job.timeout_ms = args->timeout.number > 0 ? args->timeout.number : MR_NO_TIMEOUT;
    *ret_stages = cli_alloc(args->stage.items_n + 1, sizeof **ret_stages);
    for (size_t i = 0; i < args->stage.items_n; i++)
        (*ret_stages)[i] = mr_slice_str(args->stage.items[i]);
    job.stages = *ret_stages;
    job.stages_n = args->stage.items_n;
    return job;
}

/* ---- where it comes from --------------------------------------------------------------------- */

struct source {
    const char *name;    /* for people */
    const char *command; /* of --split command:CMD; NULL: none */
    FILE *file;
    uint64_t size; /* 0: not known */
};

static int cannot_read(const char *path)
{
    return cli_fail(errno == ENOENT ? CLI_NOT_FOUND : CLI_FAILED, "cannot read %s: %s", path,
                    strerror(errno));
}

static int open_input(const struct cli *cli, struct source *source)
{
    const char *path = cli->words_n > 0 ? cli->words[0] : "-";
    bool is_stdin = strcmp(path, "-") == 0;
    source->name = is_stdin ? "standard input" : path;
    if (is_stdin && cli->words_n == 0 && source->command == NULL && isatty(STDIN_FILENO))
        return cli_usage(cli, "give a FILE, or - for standard input");
    if (is_stdin || source->command) {
        /* The command reads what is our standard input. */
        if (!is_stdin && freopen(path, "r", stdin) == NULL)
            return cannot_read(path);
        source->file = stdin;
        return CLI_OK;
    }
    source->file = fopen(path, "re");
    if (source->file == NULL)
        return cannot_read(path);
    if (fseeko(source->file, 0, SEEK_END) == 0) {
        off_t size = ftello(source->file);
        source->size = size > 0 ? (uint64_t)size : 0;
        rewind(source->file);
    }
    clearerr(source->file);
    return CLI_OK;
}

static int open_source(const struct cli *cli, const struct job_submit_args *args,
                       struct source *source)
{
    if (args->split.given && strncmp(args->split.text, COMMAND_PREFIX, strlen(COMMAND_PREFIX)) == 0)
        source->command = args->split.text + strlen(COMMAND_PREFIX);
    int code = open_input(cli, source);
    if (code != CLI_OK || source->command == NULL)
        return code;
    source->name = "the command of --split";
    source->file = popen(source->command, "re");
    if (source->file == NULL)
        return cli_fail(CLI_FAILED, "cannot run %s: %s", source->command, strerror(errno));
    return CLI_OK;
}

/* 0, or the exit code: what a command has printed counts only if it has ended well. */
static int close_source(struct source *source, int code)
{
    if (source->file == NULL)
        return code;
    if (source->command == NULL) {
        if (source->file != stdin)
            fclose(source->file);
        return code;
    }
    int status = pclose(source->file);
    if (code != CLI_OK || (WIFEXITED(status) && WEXITSTATUS(status) == 0))
        return code;
    return cli_fail(CLI_FAILED, "%s has failed with status %d: there is no job", source->name,
                    WIFEXITED(status) ? WEXITSTATUS(status) : CLI_SIGNAL_BASE + WTERMSIG(status));
}

/* ---- into the job ---------------------------------------------------------------------------- */

static int say_why(const char *what, enum mr_err err, const struct mr_detail *detail)
{
    return cli_fail_detail(err, "cannot submit", what, detail);
}

static int copy_input(const struct cli *cli, struct source *source, struct mr_job_input *input)
{
    uint8_t *bytes = cli_alloc(READ_BYTES, 1);
    struct progress progress;
    struct mr_detail detail = {0};
    uint64_t so_far = 0;
    enum mr_err err = MR_OK;
    progress_start(&progress, cli, "reading", source->size);
    for (size_t n = 1; n > 0 && err == MR_OK;) {
        n = fread(bytes, 1, READ_BYTES, source->file);
        if (n > 0)
            err = mr_job_write(input, mr_slice_make(bytes, n), &detail);
        so_far += n;
        progress_at(&progress, so_far, so_far);
    }
    progress_end(&progress);
    free(bytes);
    if (err != MR_OK)
        return say_why(source->name, err, &detail);
    if (ferror(source->file))
        return cli_fail(CLI_FAILED, "cannot read %s: %s; there is no job", source->name,
                        strerror(errno));
    return CLI_OK;
}

static void print_id(const struct cli *cli, const struct mr_job_info *job)
{
    if (cli->json)
        job_print_json(job);
    else
        out_printf("%.*s\n", (int)job->id.len, (const char *)job->id.data);
    out_flush();
}

static int submit(struct cli *cli, struct source *source, struct mr_job_input *input,
                  struct mr_job_list **ret_list)
{
    struct mr_detail detail = {0};
    int code = close_source(source, copy_input(cli, source, input));
    if (code != CLI_OK) {
        mr_job_abandon(input);
        return code;
    }
    enum mr_err err = mr_job_submit(input, ret_list, &detail);
    if (err == MR_UNAVAILABLE)
        return cli_fail(mr_err_exit_code(err),
                        "%s was lost while the job was submitted: it may be there or not, see "
                        "millrace job list",
                        cli->shown);
    return err == MR_OK ? CLI_OK : say_why(source->name, err, &detail);
}

int job_run_submit(struct cli *cli, void *args_)
{
    const struct job_submit_args *args = args_;
    struct source source = {0};
    struct mr_slice *stages = NULL;
    struct mr_job_input *input = NULL;
    struct mr_job_list *list = NULL;
    struct mr_detail detail = {0};
    char id[MR_JOB_ID_MAX + 1] = "";
    int code = args->watch.given ? job_check_watch(cli) : CLI_OK;
    if (code == CLI_OK)
        code = cli_open(cli, NULL, CLI_STORE_MAY_CREATE);
    struct mr_job_options options = options_of(args, &stages);
    if (code == CLI_OK) {
        enum mr_err err = mr_job_begin(cli->client, &options, &input, &detail);
        if (err != MR_OK)
            code = job_failed(cli, err, NULL, &detail);
    }
    if (code == CLI_OK) {
        code = open_source(cli, args, &source);
        if (code == CLI_OK)
            code = submit(cli, &source, input, &list);
        else
            mr_job_abandon(input);
    }
    if (code == CLI_OK) {
        const struct mr_job_info *job = mr_job_list_at(list, 0);
        snprintf(id, sizeof id, "%.*s", (int)job->id.len, (const char *)job->id.data);
        if (!(args->watch.given && cli->json)) /* then the first line of the watch is the same */
            print_id(cli, job);
    }
    mr_job_list_free(list);
    free(stages);
    return code == CLI_OK && args->watch.given ? job_watch(cli, id) : code;
}
