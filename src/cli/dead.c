/* SPDX-License-Identifier: Apache-2.0 */
/* millrace dead: the archive, where tasks that gave up, and operations on timers that could not be applied, wait
 * for a person. */
#include "cli/control.h"
#include "cli/watch.h"

static int list_once(struct cli *cli, void *args)
{
    return show_list(cli, args, MR_ARCHIVED);
}

static int run_list(struct cli *cli, void *args_)
{
    struct show_filter *args = args_;
    args->operations = true;
    return watch_run(cli, &args->watch, list_once, args);
}

static int run_show(struct cli *cli, void *args)
{
    (void)args;
    return show_one(cli, cli->words[0], MR_ARCHIVED);
}

static int run_requeue(struct cli *cli, void *args_)
{
    struct control_args *args = args_;
    struct control_plan plan = {.verb = MR_VERB_RUN,
                                .name = "requeue",
                                .did = "requeued",
                                .states = CONTROL_STATE(MR_ARCHIVED),
                                .states_only = true,
                                .ids = cli->words,
                                .ids_n = cli->words_n};
    args->filter.operations = true;
    return control_run(cli, args, &plan);
}

/* The archive as a whole is what purge is for, so it needs no --all; consent it does need. */
static int run_purge(struct cli *cli, void *args_)
{
    struct control_args *args = args_;
    struct control_plan plan = {.verb = MR_VERB_DELETE,
                                .name = "purge",
                                .did = "purged",
                                .states = CONTROL_STATE(MR_ARCHIVED),
                                .states_only = true};
    args->all.given = true;
    args->filter.operations = true;
    return control_run(cli, args, &plan);
}

static const struct cli_option list_options[] = {
    SHOW_FILTER_OPTIONS,
    SHOW_LIMIT_OPTION,
    WATCH_OPTION(struct show_filter, watch),
};

static const struct cli_option act_options[] = {
    CONTROL_OPTIONS,
};

static const struct cli_verb verbs[] = {
    {.name = "list",
     .synopsis = "",
     .about = "Lists archived tasks, and dead operations on timers, with their errors.",
     .examples = CLI_EXAMPLES("millrace dead list -q mail"),
     CLI_OPTIONS(list_options, struct show_filter),
     .store = CLI_STORE_MUST_EXIST,
     .run = run_list},
    {.name = "show",
     .synopsis = "ID",
     .about = "Shows an archived task or a dead operation on a timer.",
     .examples = CLI_EXAMPLES("millrace dead show ID"),
     CLI_ONE_WORD,
     .store = CLI_STORE_MUST_EXIST,
     .run = run_show},
    {.name = "requeue",
     .synopsis = "ID...",
     .about =
         "Makes archived tasks pending again, their counts start anew; applies dead operations.",
     .examples = CLI_EXAMPLES("millrace dead requeue ID", "millrace dead requeue --all --yes"),
     CLI_OPTIONS(act_options, struct control_args),
     .words_max = CLI_WORDS_ANY,
     .run = run_requeue},
    {.name = "purge",
     .synopsis = "",
     .about = "Deletes archived tasks and dead operations.",
     .examples = CLI_EXAMPLES("millrace dead purge -q mail --dry-run", "millrace dead purge --yes"),
     CLI_OPTIONS(act_options, struct control_args),
     .run = run_purge},
};

const struct cli_command cli_dead = {.name = "dead",
                                     .about = "archived tasks: look, requeue, purge",
                                     .verbs = verbs,
                                     .verbs_n = CLI_LEN(verbs)};
