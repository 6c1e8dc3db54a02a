/* SPDX-License-Identifier: Apache-2.0 */
/*
 * millrace __complete WHAT -- WORD...: what the shells offer that only a broker knows. For the
 * completions alone, so it is in no help. The words are those typed so far: what they say of the broker
 * counts. It says nothing on stderr, takes a second at most, and a broker that is away, or in use, has
 * nothing to offer.
 */
#include <stdlib.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/out.h"

enum { OPEN_MS = 500, SECONDS_MAX = 1, PAGE = 100 };

static enum mr_err print_queues(struct mr_client *client)
{
    struct mr_queue_info *infos = cli_alloc(PAGE, sizeof *infos);
    char after[MR_NAME_MAX + 1] = "";
    enum mr_err err = MR_OK;
    for (size_t n = PAGE; err == MR_OK && n == PAGE;) {
        err = mr_queue_list(client, after[0] ? after : NULL, infos, PAGE, &n);
        for (size_t i = 0; err == MR_OK && i < n; i++)
            out_printf("%s\n", infos[i].name);
        if (err == MR_OK && n > 0)
            snprintf(after, sizeof after, "%s", infos[n - 1].name);
    }
    free(infos);
    return err;
}

static int run(struct cli *cli, void *args)
{
    (void)args;
    struct mr_client_options options = {.open_ms = OPEN_MS};
    if (!freopen("/dev/null", "w", stderr))
        return CLI_FAILED;
    alarm(SECONDS_MAX); /* everything is made to be killed */
    cli_globals_read(cli, cli->tail, cli->tail_n);
    cli_settle(cli);
    if (strcmp(cli->words[0], "queues") != 0 ||
        cli_open(cli, &options, CLI_STORE_MUST_EXIST) != CLI_OK)
        return CLI_FAILED;
    return print_queues(cli->client) == MR_OK ? CLI_OK : CLI_FAILED;
}

static const struct cli_verb verb = {
    .synopsis = "queues -- WORD...",
    .about = "What the completions of shells offer.",
    .examples = CLI_EXAMPLES("millrace __complete queues --"),
    CLI_ONE_WORD,
    .tail = CLI_TAIL_COMMAND,
    .run = run,
};

const struct cli_command cli_complete = {
    .name = "__complete", .about = "for completions", .verbs = &verb, .verbs_n = 1};
