/* SPDX-License-Identifier: Apache-2.0 */
/* A worker and its nameservers: it says that it is there, for which app, and how busy it is. Which servers it works for is the client's matter. */
#ifndef MR_CLI_WORK_NAMES_H
#define MR_CLI_WORK_NAMES_H

#include "cli/cli.h"

struct work_names;

struct work_names_options {
    const struct cli *cli;
    const char *name, *list; /* what the list was given by, and the list */
    const char *app;
    const char *node;         /* NULL: machine and process */
    int64_t every_ms;         /* 0: default */
    struct mr_worker *worker; /* outlives it */
};

/* Begins at once, and needs nobody to be there. 0, or the exit code after saying why not. */
int work_names_open(const struct work_names_options *options, struct work_names **ret_names);
/* Says good-bye, if somebody hears it. NULL is fine. */
void work_names_close(struct work_names *names);

#endif
