/* SPDX-License-Identifier: Apache-2.0 */
/* millrace result: a master's side of a topic, one command at a time. */
#include "cli/cli.h"
#include "cli/jw.h"
#include "cli/out.h"
#include "wire/task.h"

/* A command that takes and ends cannot beat; whoever reads its output has so long to commit. */
#define LEASE_MS (60 * MR_MS_PER_S)

enum { TAKE_MAX_DEFAULT = 10 };

struct take_args {
    struct cli_value topic, node, max, wait;
};

static const struct out_column columns[] = {
    {"TASK", OUT_LEFT},
    {"TYPE", OUT_LEFT | OUT_SPARE(3)},
    {"OUTCOME", OUT_LEFT},
    {"ATTEMPT", OUT_RIGHT | OUT_SPARE(2)},
    {"FINAL", OUT_LEFT | OUT_SPARE(1)},
    {"RESULT", OUT_STRETCH | OUT_SPARE(4)},
    {"RECEIPT", OUT_LEFT},
};

static void put_row(struct out_table *table, const struct mr_result *result)
{
    bool ok = result->outcome == MR_RESULT_OK;
    out_cell_bytes(table, OUT_BOLD, result->task_id);
    out_cell_bytes(table, OUT_PLAIN, result->type);
    out_cell(table, ok ? OUT_GREEN : OUT_RED, mr_result_outcome_name(result->outcome));
    out_cellf(table, OUT_PLAIN, "%u", result->attempt);
    out_cell(table, OUT_PLAIN, result->final ? "yes" : "no");
    out_cell_bytes(table, OUT_PLAIN, ok ? result->result : result->error);
    out_cell_bytes(table, OUT_PLAIN, result->receipt);
}

static void put_json(struct jw *jw, const struct mr_result *result)
{
    jw_object_begin(jw, NULL);
    jw_bytes(jw, "receipt", result->receipt);
    jw_bytes(jw, "task_id", result->task_id);
    jw_bytes(jw, "queue", result->queue);
    jw_uint(jw, "partition", result->partition);
    jw_bytes(jw, "type", result->type);
    jw_bytes(jw, "topic", result->topic);
    jw_text(jw, "outcome", mr_result_outcome_name(result->outcome));
    jw_uint(jw, "attempt", result->attempt);
    jw_bool(jw, "final", result->final);
    jw_bool(jw, "cancel_requested", result->cancel_requested);
    jw_bytes(jw, "result", result->result);
    jw_bytes(jw, "error", result->error);
    jw_int(jw, "finished_ms", result->finished_ms);
    jw_object_end(jw);
}

static void show(const struct cli *cli, const struct mr_result_list *list)
{
    size_t n = mr_result_list_count(list);
    if (cli->json) {
        struct jw jw = {0};
        jw_array_begin(&jw, NULL);
        for (size_t i = 0; i < n; i++)
            put_json(&jw, mr_result_list_at(list, i));
        jw_array_end(&jw);
        jw_finish(&jw);
        return;
    }
    struct out_table *table = out_table_new(columns, CLI_LEN(columns));
    for (size_t i = 0; i < n; i++)
        put_row(table, mr_result_list_at(list, i));
    out_table_flush(table);
    out_table_free(table);
}

static int run_take(struct cli *cli, void *args_)
{
    const struct take_args *args = args_;
    const char *topic = args->topic.given ? args->topic.text : MR_DEFAULT_TOPIC;
    struct mr_slice topics[] = {mr_slice_str(topic)};
    struct mr_master_options options = {.topics = topics, .topics_n = 1, .lease_ms = LEASE_MS};
    struct mr_master *master;
    struct mr_result_list *list = NULL;
    if (args->node.given)
        options.node = mr_slice_str(args->node.text);
    enum mr_err err = mr_master_open(cli->client, &options, &master);
    if (err != MR_OK)
        return cli_fail_err(err, "cannot take results");
    size_t max = args->max.given ? (size_t)args->max.number : TAKE_MAX_DEFAULT;
    err = mr_master_take(master, max, args->wait.given ? args->wait.number : 0, &list);
    mr_master_free(master);
    if (err == MR_EMPTY)
        return cli_fail_err(err, "topic %s", topic);
    if (err != MR_OK)
        return cli_fail_err(err, "cannot take results");
    show(cli, list);
    mr_result_list_free(list);
    return CLI_OK;
}

/* What became of one receipt; the exit code. */
static int judge(const struct cli *cli, const char *receipt, enum mr_err err)
{
    if (err == MR_OK)
        return CLI_OK;
    if (err == MR_NOT_FOUND) {
        cli_note(cli, "%s: committed already, or never given here", receipt);
        return CLI_OK;
    }
    if (err == MR_STALE)
        return cli_fail(CLI_CONFLICT, "%s: its lease was over, and another master has got it",
                        receipt);
    return err == MR_INVALID ? cli_fail(CLI_USAGE, "%s: not a receipt", receipt)
                             : cli_fail_err(err, "%s", receipt);
}

static int run_commit(struct cli *cli, void *args)
{
    (void)args;
    int code = CLI_OK;
    for (size_t done = 0; done < cli->words_n;) {
        struct mr_slice receipts[MR_BATCH_MAX];
        enum mr_err errs[MR_BATCH_MAX];
        size_t left = cli->words_n - done, n = left < MR_BATCH_MAX ? left : MR_BATCH_MAX;
        for (size_t i = 0; i < n; i++)
            receipts[i] = mr_slice_str(cli->words[done + i]);
        enum mr_err err = mr_result_commit(cli->client, receipts, n, errs);
        if (err != MR_OK)
            return cli_fail_err(err, "cannot commit");
        for (size_t i = 0; i < n; i++) {
            int one = judge(cli, cli->words[done + i], errs[i]);
            code = one != CLI_OK ? one : code;
        }
        done += n;
    }
    return code;
}

#define OPT(field, kind_, value_, help_)                                                           \
    .kind = kind_, .offset = offsetof(struct take_args, field), .value = value_, .help = help_

static const struct cli_option take_options[] = {
    {.name = "topic",
     OPT(topic, CLI_NAME, "TOPIC", "of these tasks (default: default)"),
     .max = MR_TOPIC_MAX},
    {.name = "node", OPT(node, CLI_NAME, "NAME", "name shown to people (default: host:pid)")},
    {.name = "max",
     OPT(max, CLI_COUNT, "N", "at most so many (default 10)"),
     .min = 1,
     .max = MR_BATCH_MAX},
    {.name = "wait", OPT(wait, CLI_DURATION, "D", "wait so long for the first one (default: not)")},
};

static const struct cli_verb verbs[] = {
    {.name = "take",
     .synopsis = "",
     .about =
         "Takes results of a topic, oldest first. Commit them within a minute, or they go back; on "
         "file:DIR they go back when somebody else takes.",
     .examples = CLI_EXAMPLES("millrace result take --topic mail --max 100 --wait 10s --json"),
     CLI_OPTIONS(take_options, struct take_args),
     .store = CLI_STORE_MUST_EXIST,
     .run = run_take},
    {.name = "commit",
     .synopsis = "RECEIPT...",
     .about = "Results were dealt with, and are gone.",
     .examples = CLI_EXAMPLES("millrace result commit RECEIPT"),
     .words_min = 1,
     .words_max = CLI_WORDS_ANY,
     .store = CLI_STORE_MUST_EXIST,
     .run = run_commit},
};

const struct cli_command cli_result = {.name = "result",
                                       .about = "take and commit what tasks with a topic left",
                                       .verbs = verbs,
                                       .verbs_n = CLI_LEN(verbs)};
