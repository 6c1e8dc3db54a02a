/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the ways to enqueue: one task from the flags, lines, JSON. */
#ifndef MR_CLI_ENQUEUE_H
#define MR_CLI_ENQUEUE_H

#include <jansson.h>

#include "api/task_json.h"
#include "cli/cli.h"
#include "cli/jw.h"
#include "wire/trace.h"

struct enqueue_args {
    struct cli_value queue, type, id, priority, delay, at, retry, timeout, deadline, unique,
        unique_key, on_duplicate, retention, group, topic, header, lines, wait, wait_timeout, key,
        partition;
};

/* The task that the flags describe; JSON items start from it. */
struct enqueue_template {
    struct mr_task_options task;
    struct mr_header headers[MR_HEADERS_MAX];
    struct mr_trace trace; /* of the environment */
    bool wait;             /* for its end */
    int64_t wait_ms;       /* so long; 0: as long as it takes */
};

/* One task to send, with the memory behind it. Zero it first. */
struct enqueue_item {
    struct mr_task_options task;
    struct mr_arena arena; /* what JSON has that is not in its strings */
    struct mr_buf payload; /* read bytes, where the task needs them */
    json_t *json;          /* keeps the strings of task alive */
    enum mr_err err;       /* refused before it was sent */
    char *why;             /* then: the reason */
};

/* Fills item from a JSON object; a wrong one is told by item->err. Takes its own reference to json.
 */
void enqueue_item_from_json(struct enqueue_item *item, const struct enqueue_template *template_,
                            json_t *json);
/* Parses text and does the same; for one line of JSON. */
void enqueue_item_from_json_text(struct enqueue_item *item,
                                 const struct enqueue_template *template_, struct mr_slice text);
/* Refuses an item; the reason is for people. */
void enqueue_item_refuse(struct enqueue_item *item, enum mr_err err, const char *fmt, ...)
    MR_PRINTF(3, 4);
/* Checks what the broker would refuse, so that the reason can be told. */
void enqueue_item_check(struct enqueue_item *item);
void enqueue_item_done(struct enqueue_item *item);

/* The answer for one item: {"id","state"} or {"id","error"}. */
void enqueue_answer_json(struct jw *jw, const struct enqueue_item *item,
                         const struct mr_enqueue_result *result);
/* The request failed as a whole; what is known of its first task says whether they may be there all the same. */
int enqueue_fail(const struct cli *cli, enum mr_err err, const struct mr_enqueue_result *first);
/* The reason as text for people. */
const char *enqueue_reason(const struct enqueue_item *item, const struct mr_enqueue_result *result,
                           char text[600]);

/* The commands; the store is not open yet. */
int enqueue_lines(struct cli *cli, const struct enqueue_template *template_);
int enqueue_json(struct cli *cli, const struct enqueue_template *template_);

/* ---- enqueue_wait.c ------------------------------------------------------------------------- */

/* What --wait does not go with; 0, or the exit code after saying so. */
int enqueue_check_wait(const struct cli *cli, const struct enqueue_args *args);
/* Waits for the end of a task that was enqueued, and prints its result; the exit code. */
int enqueue_wait(struct cli *cli, const char *id, int64_t timeout_ms);

#endif
