/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Acting on tasks: on those named, or on all that a filter finds. A filter is looked up first and
 * acted on afterwards, so a task that changes its state on the way is not met twice.
 */
#ifndef MR_CLI_CONTROL_H
#define MR_CLI_CONTROL_H

#include "cli/show.h"

/* Parsed by every verb that acts. Begins with the filter. */
struct control_args {
    struct show_filter filter;
    struct cli_value all, dry_run, yes;
};

#define CONTROL_OPTIONS                                                                            \
    SHOW_FILTER_OPTIONS,                                                                           \
        {.name = "all",                                                                            \
         .kind = CLI_FLAG,                                                                         \
         .offset = offsetof(struct control_args, all),                                             \
         .help = "all tasks this can be done to"},                                                 \
        {.name = "limit",                                                                          \
         .kind = CLI_COUNT,                                                                        \
         .offset = offsetof(struct control_args, filter.limit),                                    \
         .value = "N",                                                                             \
         .help = "at most so many of those found",                                                 \
         .min = 1},                                                                                \
        {.name = "dry-run",                                                                        \
         .kind = CLI_FLAG,                                                                         \
         .offset = offsetof(struct control_args, dry_run),                                         \
         .help = "only tell how many and show a few"},                                             \
    {                                                                                              \
        .name = "yes", .kind = CLI_FLAG, .offset = offsetof(struct control_args, yes),             \
        .help = "do not ask"                                                                       \
    }

struct control_plan {
    enum mr_verb verb;
    const char *did;  /* "deleted" */
    const char *name; /* "delete" */
    unsigned states;  /* bit per state this can be done to; others are left out of a filter */
    bool states_only; /* also a task named by its id must be in one of them */
    double value;
    char **ids; /* named tasks; none: by filter */
    size_t ids_n;
};

#define CONTROL_STATE(state) (1u << (state))

/* Whether anything but ids says which tasks. */
bool control_filtered(const struct control_args *args);
/* Opens the store and does it; the exit code. */
int control_run(struct cli *cli, const struct control_args *args, const struct control_plan *plan);

#endif
