/* SPDX-License-Identifier: Apache-2.0 */
/* millrace task: look at tasks and act on them. */
#include <math.h>

#include "base/text.h"
#include "cli/control.h"
#include "cli/task.h"
#include "cli/watch.h"

static int list_once(struct cli *cli, void *args)
{
    return show_list(cli, args, MR_STATE_NONE);
}

static int run_list(struct cli *cli, void *args_)
{
    struct show_filter *args = args_;
    return watch_run(cli, &args->watch, list_once, args);
}

static int show_once(struct cli *cli, void *args)
{
    (void)args;
    return show_one(cli, cli->words[0], MR_STATE_NONE);
}

static int run_show(struct cli *cli, void *args_)
{
    struct watch_args *args = args_;
    return watch_run(cli, &args->watch, show_once, args);
}

#define ORDERED (CONTROL_STATE(MR_SCHEDULED) | CONTROL_STATE(MR_PENDING) | CONTROL_STATE(MR_RETRY))
#define WAITING (ORDERED | CONTROL_STATE(MR_AGGREGATING))
#define ENDED   (CONTROL_STATE(MR_ARCHIVED) | CONTROL_STATE(MR_COMPLETED))

/* What each verb does, and which states a filter leaves in for it. */
static const struct control_plan plans[] = {
    {.verb = MR_VERB_CANCEL,
     .name = "cancel",
     .did = "cancelled",
     .states = WAITING | CONTROL_STATE(MR_ACTIVE)},
    {.verb = MR_VERB_DELETE, .name = "delete", .did = "deleted", .states = WAITING | ENDED},
    {.verb = MR_VERB_RUN,
     .name = "run",
     .did = "run",
     .states = CONTROL_STATE(MR_SCHEDULED) | CONTROL_STATE(MR_RETRY) | CONTROL_STATE(MR_ARCHIVED) |
               CONTROL_STATE(MR_AGGREGATING)},
    {.verb = MR_VERB_ARCHIVE, .name = "archive", .did = "archived", .states = WAITING},
    {.verb = MR_VERB_PRIORITISE, .name = "prioritise", .did = "prioritised", .states = ORDERED},
};

static struct control_plan plan_of(const struct cli *cli)
{
    for (size_t i = 0; i < CLI_LEN(plans); i++)
        if (strcmp(plans[i].name, cli->verb->name) == 0)
            return plans[i];
    mr_assert(!"every acting verb has a plan");
    return plans[0];
}

static int run_act(struct cli *cli, void *args)
{
    struct control_plan plan = plan_of(cli);
    plan.ids = cli->words;
    plan.ids_n = cli->words_n;
    return control_run(cli, args, &plan);
}

#define SECONDS_LAST "ID... SECONDS"

/* The last word is the number of seconds; the words before it are ids. */
static int run_prioritise(struct cli *cli, void *args)
{
    struct control_plan plan = plan_of(cli);
    const char *seconds = cli->words[cli->words_n - 1];
    bool is_number = mr_parse_double(seconds, &plan.value) == MR_OK && isfinite(plan.value);
    if (!is_number && cli->words_n == 1 && !control_filtered(args))
        return cli_usage(cli, "the seconds are missing: millrace task prioritise %s", SECONDS_LAST);
    if (!is_number)
        return cli_usage(cli, "\"%.80s\" is not a number of seconds", seconds);
    if (!(fabs(plan.value) <= MR_PRIORITY_MAX_S))
        return cli_usage(cli, "\"%.80s\" seconds are more than 10 years", seconds);
    plan.ids = cli->words;
    plan.ids_n = cli->words_n - 1;
    return control_run(cli, args, &plan);
}

static const struct cli_option list_options[] = {
    SHOW_FILTER_OPTIONS,
    SHOW_STATE_OPTION,
    SHOW_LIMIT_OPTION,
    WATCH_OPTION(struct show_filter, watch),
    {.name = "held",
     .kind = CLI_FLAG,
     .offset = offsetof(struct show_filter, held),
     .help = "those that `millrace migrate` has brought and not released"},
};

static const struct cli_option show_options[] = {
    WATCH_OPTION(struct watch_args, watch),
};

static const struct cli_option act_options[] = {
    SHOW_STATE_OPTION,
    CONTROL_OPTIONS,
};

#define ACTS(name_, synopsis_, about_, min_, run_)                                                 \
    .name = name_, .synopsis = synopsis_, .about = about_,                                         \
    CLI_OPTIONS(act_options, struct control_args), .words_min = min_, .words_max = CLI_WORDS_ANY,  \
    .run = run_

static const struct cli_verb verbs[] = {
    {.name = "list",
     .synopsis = "",
     .about = "Lists tasks in the order they stand in.",
     .examples = CLI_EXAMPLES("millrace task list -q mail --state pending --limit 20"),
     CLI_OPTIONS(list_options, struct show_filter),
     .store = CLI_STORE_MUST_EXIST,
     .run = run_list},
    {.name = "show",
     .synopsis = "ID",
     .about = "Shows everything known of a task.",
     .examples = CLI_EXAMPLES("millrace task show 0190a1b2-...", "millrace task show ID --json"),
     CLI_OPTIONS(show_options, struct watch_args),
     CLI_ONE_WORD,
     .store = CLI_STORE_MUST_EXIST,
     .run = run_show},
    {ACTS("cancel", "ID...", "Archives waiting tasks and tells running ones to stop.", 0, run_act),
     .examples = CLI_EXAMPLES("millrace task cancel ID", "millrace task cancel -q mail --dry-run")},
    {ACTS("delete", "ID...", "Deletes tasks; a running one is left.", 0, run_act),
     .examples = CLI_EXAMPLES("millrace task delete ID",
                              "millrace task delete -q mail --state completed --yes")},
    {ACTS("run", "ID...", "Makes scheduled, failed and archived tasks pending now.", 0, run_act),
     .examples =
         CLI_EXAMPLES("millrace task run ID", "millrace task run -q mail --state retry --yes")},
    {ACTS("archive", "ID...", "Puts waiting tasks into the archive.", 0, run_act),
     .examples = CLI_EXAMPLES("millrace task archive ID")},
    {ACTS("prioritise", SECONDS_LAST, "Puts waiting tasks SECONDS ahead of now.", 1,
          run_prioritise),
     .examples = CLI_EXAMPLES("millrace task prioritise ID 3600")},
    {.name = "why",
     .synopsis = "ID",
     .about = "Says why a task is not running, or what became of it.",
     .examples = CLI_EXAMPLES("millrace task why ID"),
     CLI_ONE_WORD,
     .store = CLI_STORE_MUST_EXIST,
     .run = task_why},
};

const struct cli_command cli_task = {.name = "task",
                                     .about = "look at tasks; cancel, delete, run, archive them",
                                     .verbs = verbs,
                                     .verbs_n = CLI_LEN(verbs)};
