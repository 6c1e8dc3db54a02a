/* SPDX-License-Identifier: Apache-2.0 */
/* Tasks and queues for people, the same fields on every command; in JSON: broker/json.h. */
#ifndef MR_CLI_SHOW_H
#define MR_CLI_SHOW_H

#include "broker/json.h"
#include "cli/cli.h"
#include "cli/jw.h"
#include "cli/out.h"

/* A line of what there is to say about one thing; of nothing, 0 or empty, there is none. */
void show_field(const char *name, enum out_colour colour, const char *text);
void show_bytes(const char *name, enum out_colour colour, struct mr_slice bytes);
void show_time(const char *name, int64_t ms);
void show_span(const char *name, int64_t ms);
void show_headers(const struct mr_header *headers, size_t n);

/* Whether the task is an operation on a timer; then in words: "put APP/NAME". */
bool show_operation(const struct mr_task *task, struct mr_buf *text);

/* Field by field, for people. */
void show_task_text(const struct mr_task *task);

/* The same for nodes: node.c. Of the list that they are in (NULL: nothing is known): who
 * leads, and what they own. */
struct jw_crew node_crew(const struct mr_node_list *list);
struct out_table *node_table(void);
void node_row(struct out_table *table, const struct mr_node_list *list,
              const struct mr_node_info *node);

/* Which tasks a command is about. Options of the verb are parsed into it. */
struct show_filter {
    struct cli_value queue, state, type, limit, watch, held;
    bool operations; /* unless a queue is given: operations on timers as well */
};

/* Rows of the options above, for a struct that begins with a struct show_filter. */
#define SHOW_FILTER_OPTIONS                                                                        \
    {.name = "queue",                                                                              \
     .letter = 'q',                                                                                \
     .kind = CLI_NAME,                                                                             \
     .offset = offsetof(struct show_filter, queue),                                                \
     .value = "QUEUE",                                                                             \
     .help = "only tasks of this queue"},                                                          \
    {                                                                                              \
        .name = "type", .letter = 't', .kind = CLI_NAME,                                           \
        .offset = offsetof(struct show_filter, type), .value = "TYPE",                             \
        .help = "only tasks of this type"                                                          \
    }
#define SHOW_STATE_OPTION                                                                          \
    {                                                                                              \
        .name = "state", .kind = CLI_CHOICE, .offset = offsetof(struct show_filter, state),        \
        .value = "STATE",                                                                          \
        .help = "scheduled, pending, active, retry, archived, completed or aggregating",           \
        .choices = show_states                                                                     \
    }
#define SHOW_LIMIT_OPTION                                                                          \
    {                                                                                              \
        .name = "limit", .kind = CLI_COUNT, .offset = offsetof(struct show_filter, limit),         \
        .value = "N", .help = "at most so many (default 50)", .min = 1                             \
    }

/* Names of states, so that the index is the state less one. */
extern const char *const show_states[];

/* What a filter says; of operations the second list is by show_operation_options, where that answers true. */
struct mr_list_options show_list_options(const struct show_filter *filter);
bool show_operation_options(const struct show_filter *filter, struct mr_list_options *options);
/* Lists to stdout as the user wants it; only is a state that goes before the filter's, or NONE. */
int show_list(struct cli *cli, const struct show_filter *filter, enum mr_state only);
/* Says why tasks could not be listed. */
int show_list_failed(const struct show_filter *filter, enum mr_err err);
/* One task by id to stdout; must_be as a state other than NONE refuses tasks in another one. */
int show_one(struct cli *cli, const char *id, enum mr_state must_be);

#endif
