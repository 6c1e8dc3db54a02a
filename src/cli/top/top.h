/* SPDX-License-Identifier: Apache-2.0 */
/*
 * millrace top in three parts: the model is what the broker says, with rates from one look to the next;
 * the view is what a person has chosen to see, changed by keys; the screen draws both. Keys and screen
 * neither ask the broker nor touch the terminal, so tests can press and look.
 */
#ifndef MR_CLI_TOP_TOP_H
#define MR_CLI_TOP_TOP_H

#include "base/clock.h"
#include "cli/jw.h"
#include "cli/term.h"

/* ---- model.c -------------------------------------------------------------------------------- */

struct top_rates {
    double enqueued, done, failed; /* a second */
};

struct top_queue {
    struct mr_queue_info info;
    struct top_rates rates;
};

struct top_model {
    struct top_queue *queues; /* by name */
    size_t queues_n;
    struct mr_node_list *node_list; /* what the nodes' slices live in */
    const struct mr_node_info **nodes;
    size_t nodes_n;
    struct mr_stats stats;
    struct top_rates rates; /* of all queues */
    mr_mono looked;
    bool has_rates; /* there was a look before */
    int64_t at_ms;
    enum mr_err err; /* of the last look, which changed nothing then */
};

/* Asks the broker; what it said before is replaced, or stays on failure. */
MR_MUST_USE enum mr_err top_look(struct top_model *model, struct mr_client *client);
/* Rates of a queue between two looks so many seconds apart. What was deleted meanwhile cannot be told
 * from what was never enqueued. */
struct top_rates top_rates_between(const struct mr_queue_info *before,
                                   const struct mr_queue_info *now, double seconds);
void top_json(struct jw *jw, const struct top_model *model);
void top_model_done(struct top_model *model);

/* ---- keys.c --------------------------------------------------------------------------------- */

enum top_page { TOP_QUEUES, TOP_TASKS, TOP_TASK, TOP_HELP };

/* What a key asks the broker for. */
enum top_want {
    TOP_NOTHING,
    TOP_QUIT,
    TOP_OPEN,          /* what the page shows has changed */
    TOP_PAUSE,         /* or resume: the queue */
    TOP_REQUEUE_QUEUE, /* all archived tasks of the queue */
    TOP_REQUEUE_TASK,
};

struct top_view {
    const char *broker;
    int64_t every_ms;
    bool live;                /* on a terminal, with keys */
    enum top_page page, back; /* back: the page behind the help */
    size_t chosen;            /* of TOP_QUEUES and TOP_TASKS: the row, of those the filter leaves */
    char queue[MR_NAME_MAX + 1]; /* the chosen one, also when others come and go */
    char task[MR_ID_MAX + 1];
    enum mr_state state;          /* TOP_TASKS: only those; NONE: all */
    const struct mr_task **tasks; /* the first of them */
    size_t tasks_n;
    bool tasks_more;
    struct mr_buf detail; /* TOP_TASK: its lines */
    size_t scroll;        /* lines of it above the screen */
    char filter[64];
    bool typing;         /* the filter */
    enum top_want asked; /* waits for a y; message has the question */
    char message[256];   /* shown until the next key */
};

/* Changes the view; what is to be done besides. */
enum top_want top_press(struct top_view *view, const struct top_model *model, int key);
/* After a look or a change of the filter: the chosen row stays with what it was, or on the screen. */
void top_settle(struct top_view *view, const struct top_model *model);
/* Rows that the filter leaves, and one of them; NULL beyond. */
size_t top_rows(const struct top_view *view, const struct top_model *model);
const struct top_queue *top_queue_at(const struct top_view *view, const struct top_model *model,
                                     size_t row);
const struct mr_task *top_task_at(const struct top_view *view, size_t row);

/* ---- screen.c ------------------------------------------------------------------------------- */

/* Appends the lines of a frame, as many as fit the size. */
void top_draw(const struct top_view *view, const struct top_model *model, struct term_size size,
              struct mr_buf *frame);

#endif
