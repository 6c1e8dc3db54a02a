/* SPDX-License-Identifier: Apache-2.0 */
/* The program: settings, one command, one exit code. */
#include <fcntl.h>
#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/diag.h"
#include "base/spawn.h"
#include "cli/cli.h"
#include "cli/out.h"

static int run_command(struct cli *cli, void *args)
{
    int code = CLI_OK;
    if (cli->command != &cli_serve)
        mr_diag_set_level(MR_DIAG_WARN); /* what a broker in this process does is nobody's news */
    if (cli->verb->store != CLI_STORE_NONE)
        code = cli_open(cli, NULL, cli->verb->store);
    if (code == CLI_OK)
        code = cli->verb->run(cli, args);
    mr_client_close(cli->client);
    return code;
}

static int start(struct cli *cli, int argc, char **argv)
{
    void *args = NULL;
    int code = cli_parse(cli, argc, argv, &args);
    out_init(cli->globals.no_color.given ? OUT_COLOUR_NEVER : OUT_COLOUR_AUTO);
    if (code != CLI_OK)
        return code;
    if (cli->globals.help.given) {
        cli_help(cli);
    } else if (cli->globals.version.given) {
        out_printf("millrace %s\n", mr_version());
    } else {
        cli_settle(cli);
        code = run_command(cli, args);
        cli_args_free(cli, args);
    }
    return code;
}

/*
 * A number of theirs that is free would be given to the next file or connection that is opened, by us or
 * by a library, and what is printed would go there. Opened the wrong way round they are taken, and
 * reading or writing fails as it does on a closed one: no input is not an empty one. Programs that we
 * start get them, too.
 */
static void hold_standard_streams(void)
{
    static const int wrong_way[] = {
        [STDIN_FILENO] = O_WRONLY, [STDOUT_FILENO] = O_RDONLY, [STDERR_FILENO] = O_RDONLY};
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            (void)!open("/dev/null", wrong_way[fd]); /* the lowest that is free is this one */
}

int main(int argc, char **argv)
{
    hold_standard_streams();
    setlocale(LC_CTYPE, "C.UTF-8"); /* for the width of characters; nothing else depends on it */
    signal(SIGPIPE, SIG_IGN); /* a reader that goes away is an error of write, and a quiet one */
    signal(SIGXFSZ, SIG_IGN); /* a file over the limit of the shell is an error of write as well */
    mr_spawn_raise_files();
    struct cli cli = {0};
    int code = start(&cli, argc, argv);
    free(cli.words);
    int out_code = out_finish();
    return code != CLI_OK ? code : out_code;
}
