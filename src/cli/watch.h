/* SPDX-License-Identifier: Apache-2.0 */
/* --watch: a command that shows something, again and again until somebody ends it. */
#ifndef MR_CLI_WATCH_H
#define MR_CLI_WATCH_H

#include "cli/cli.h"

/* For verbs without other options. */
struct watch_args {
    struct cli_value watch;
};

#define WATCH_OPTION(args, field)                                                                  \
    {                                                                                              \
        .name = "watch", .kind = CLI_MAYBE_DURATION, .offset = offsetof(args, field),              \
        .value = "[D]", .help = "again every D (default 2s), until q or Ctrl-C",                   \
        .min = WATCH_MIN_MS                                                                        \
    }

enum { WATCH_MIN_MS = 100 };

/* Calls show once, or with --watch again and again: in place on a terminal, else one behind the
 * other. The exit code. */
int watch_run(struct cli *cli, const struct cli_value *watch, cli_run *show, void *args);

#endif
