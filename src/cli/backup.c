/* SPDX-License-Identifier: Apache-2.0 */
/* millrace backup: a consistent copy of a store in another folder. */
#include "cli/cli.h"
#include "cli/jw.h"
#include "cli/server.h"
#include "client/timer_look.h"

/* PostgreSQL is copied by its own means, which whoever relies on the copy must know. */
static void note_timers(const struct cli *cli)
{
    struct mr_timer_look look = {0};
    if (mr_client_timer_status(cli->client, &look) == MR_OK &&
        mr_slice_starts_with(look.status.store, mr_slice_str("postgresql")))
        cli_note(cli, "the timers are not in it: they are in PostgreSQL, see pg_dump");
    mr_timer_look_done(&look);
}

static int run(struct cli *cli, void *args)
{
    (void)args;
    const char *dir = cli->words[0];
    bool is_server = cli_is_server(cli->broker);
    struct mr_detail detail = {0};
    if (is_server && dir[0] != '/')
        return cli_usage(cli,
                         "%s: the copy is made on the machine of the server, which needs the whole "
                         "path, from /",
                         dir);
    if (cli_is_redis(cli->broker))
        return cli_fail(mr_err_exit_code(MR_UNSUPPORTED),
                        "cannot back up %s: not supported here; a Redis copies itself, by BGSAVE "
                        "or its append-only file",
                        cli->shown);
    enum mr_err err = mr_backup(cli->client, dir, &detail);
    if (err != MR_OK)
        return cli_fail_detail(err, "cannot back up to", dir, &detail);
    if (cli->json) {
        struct jw jw = {0};
        jw_object_begin(&jw, NULL);
        jw_text(&jw, "dir", dir);
        jw_object_end(&jw);
        jw_finish(&jw);
    } else if (is_server) {
        cli_note(cli, "%s is copied to %s, on the server's machine", cli->shown, dir);
    } else {
        cli_note(cli, "%s is copied; open the copy as file:%s", cli->shown, dir);
    }
    if (is_server) /* a folder has its own */
        note_timers(cli);
    return CLI_OK;
}

static const struct cli_verb verb = {
    .synopsis = "DIR",
    .about =
        "Writes a consistent copy of the store to a new or empty folder. A server makes it on\n"
        "its own machine: DIR is a whole path there, one that the server may write to.\n"
        "Timers are part of it, unless they are in PostgreSQL.",
    .examples =
        (const char *const[]){"millrace backup --broker file:./tasks ./tasks-copy",
                              "millrace backup --broker millrace://127.0.0.1:7401 /srv/tasks-copy",
                              NULL},
    CLI_ONE_WORD,
    .store = CLI_STORE_MUST_EXIST,
    .run = run,
};

const struct cli_command cli_backup = {
    .name = "backup", .about = "copy a store", .verbs = &verb, .verbs_n = 1};
