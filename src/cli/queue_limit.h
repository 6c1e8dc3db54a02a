/* SPDX-License-Identifier: Apache-2.0 */
/* millrace queue: limits of rate and concurrency, as people write and read them. */
#ifndef MR_CLI_QUEUE_LIMIT_H
#define MR_CLI_QUEUE_LIMIT_H

#include "cli/cli.h"
#include "cli/jw.h"

/* What `queue set` says about limits. */
struct limit_args {
    struct cli_value rate, concurrency, type, key;
};

/* Rows of these options; member is the struct limit_args in the arguments of the verb. */
#define LIMIT_OPTIONS(args, member)                                                                \
    {.name = "rate",                                                                               \
     .kind = CLI_TEXT,                                                                             \
     .offset = offsetof(args, member.rate),                                                        \
     .value = "N/D",                                                                               \
     .help = "hand out at most N tasks in any span of D, such as 100/s; 0: no limit"},             \
        {.name = "concurrency",                                                                    \
         .letter = 'c',                                                                            \
         .kind = CLI_COUNT,                                                                        \
         .offset = offsetof(args, member.concurrency),                                             \
         .value = "N",                                                                             \
         .max = UINT32_MAX,                                                                        \
         .help = "run at most N tasks at once; 0: no limit"},                                      \
        {.name = "limit-type",                                                                     \
         .kind = CLI_NAME,                                                                         \
         .note = CLI_REPEATS,                                                                      \
         .offset = offsetof(args, member.type),                                                    \
         .value = "TYPE",                                                                          \
         .help = "--rate and --concurrency of its tasks of this type; '*': of each type"},         \
    {                                                                                              \
        .name = "limit-key", .kind = CLI_NAME, .note = CLI_REPEATS,                                \
        .offset = offsetof(args, member.key), .value = "KEY",                                      \
        .help = "--rate and --concurrency of its tasks with this key; '*': of each key"            \
    }

bool limit_given(const struct limit_args *args);
/* Before anything is opened; CLI_OK, or it has said what is wrong. */
int limit_check(struct cli *cli, const struct limit_args *args);
/* Sets what is given. */
MR_MUST_USE enum mr_err limit_set(struct cli *cli, struct mr_slice queue,
                                  const struct limit_args *args);

/* "100/1s, 5 at once"; empty where there is none. */
enum { LIMIT_TEXT_MAX = 80 };
void limit_text(uint32_t rate, int64_t rate_ms, uint32_t concurrency, char text[LIMIT_TEXT_MAX]);
/* Those of a queue, a line each, or as an array of this name. */
MR_MUST_USE enum mr_err limit_print_all(struct cli *cli, struct mr_slice queue);
MR_MUST_USE enum mr_err limit_json_all(struct cli *cli, struct mr_slice queue, struct jw *jw,
                                       const char *name);

#endif
