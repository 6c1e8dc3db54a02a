/* SPDX-License-Identifier: Apache-2.0 */
/*
 * millrace __complete queues|timers|jobs -- WORD...: what the shells offer that only a broker knows. For the
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

static enum mr_err print_timers(struct mr_client *client)
{
    char cursor[512] = "";
    struct mr_timer_list_options options = {.limit = PAGE};
    do {
        struct mr_timer_list *list = NULL;
        options.cursor = cursor[0] ? cursor : NULL;
        enum mr_err err = mr_timer_list_get(client, &options, &list);
        if (err != MR_OK)
            return err;
        for (size_t i = 0; i < mr_timer_list_count(list); i++) {
            struct mr_slice name = mr_timer_list_at(list, i)->timer.name;
            out_printf("%.*s\n", (int)name.len, (const char *)name.data);
        }
        snprintf(cursor, sizeof cursor, "%s", mr_timer_list_next(list));
        mr_timer_list_free(list);
    } while (cursor[0]);
    return MR_OK;
}

/* The newest. */
static enum mr_err print_jobs(struct mr_client *client)
{
    struct mr_job_list_options options = {.limit = PAGE};
    struct mr_job_list *list = NULL;
    enum mr_err err = mr_job_list_get(client, &options, &list);
    for (size_t i = 0; err == MR_OK && i < mr_job_list_count(list); i++) {
        struct mr_slice id = mr_job_list_at(list, i)->id;
        out_printf("%.*s\n", (int)id.len, (const char *)id.data);
    }
    mr_job_list_free(list);
    return err;
}

static const struct {
    const char *word;
    enum mr_err (*print)(struct mr_client *client);
} kinds[] = {{"queues", print_queues}, {"timers", print_timers}, {"jobs", print_jobs}};

static int run(struct cli *cli, void *args)
{
    size_t kind = 0;
    while (kind < CLI_LEN(kinds) && strcmp(cli->words[0], kinds[kind].word) != 0)
        kind++;
    (void)args;
    struct mr_client_options options = {.open_ms = OPEN_MS};
    if (!freopen("/dev/null", "w", stderr))
        return CLI_FAILED;
    alarm(SECONDS_MAX); /* everything is made to be killed */
    cli_globals_read(cli, cli->tail, cli->tail_n);
    cli_settle(cli);
    if (kind == CLI_LEN(kinds) || cli_open(cli, &options, CLI_STORE_MUST_EXIST) != CLI_OK)
        return CLI_FAILED;
    return kinds[kind].print(cli->client) == MR_OK ? CLI_OK : CLI_FAILED;
}

static const struct cli_verb verb = {
    .synopsis = "queues|timers|jobs -- WORD...",
    .about = "What the completions of shells offer.",
    .examples = CLI_EXAMPLES("millrace __complete queues --"),
    CLI_ONE_WORD,
    .tail = CLI_TAIL_COMMAND,
    .run = run,
};

const struct cli_command cli_complete = {
    .name = "__complete", .about = "for completions", .verbs = &verb, .verbs_n = 1};
