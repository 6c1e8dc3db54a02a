/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a task is where it is, for the command line and the server alike. A pure function of what a
 * broker says about the task, its queue and the nodes. Thread: any.
 */
#ifndef MR_CLIENT_WHY_H
#define MR_CLIENT_WHY_H

#include "base/slice.h"

/* Columns: name in C, the word for programs. */
#define MR_WHY_MAP(X)                                                                              \
    X(PAUSED, "paused")           /* its queue hands out nothing */                                \
    X(DUE, "due")                 /* its time has not come */                                      \
    X(RETRY, "retry")             /* it failed, and the time of the next try has not come */       \
    X(NO_WORKER, "no_worker")     /* no node takes from its queue */                               \
    X(NO_HANDLER, "no_handler")   /* none of those that do handles its type */                     \
    X(LIMIT, "limit")             /* a limit of its queue, type or key */                          \
    X(SLOTS_FULL, "slots_full")   /* those that could run it are busy */                           \
    X(NEXT, "next")               /* a slot is free: it is about to be taken */                    \
    X(RUNNING, "running")         /* a node holds its lease */                                     \
    X(NODE_SILENT, "node_silent") /* which is not heard of */                                      \
    X(CANCELLING, "cancelling")   /* somebody wants it stopped */                                  \
    X(LAST_ERROR, "last_error")   /* how its last run ended */                                     \
    X(CRASHED, "crashed")         /* archived: it lost its worker too often */                     \
    X(FAILED, "failed")           /* archived: it failed too often */                              \
    X(ARCHIVED, "archived")       /* archived for another reason */                                \
    X(GROUP, "group")             /* it waits for the others of its group */                       \
    X(COMPLETED, "completed")

enum mr_why_reason {
#define MR_WHY_ENUM(name, word) MR_WHY_##name,
    MR_WHY_MAP(MR_WHY_ENUM)
#undef MR_WHY_ENUM
        MR_WHY_COUNT
};

enum { MR_WHY_MAX = 8, MR_WHY_TEXT_MAX = 1024 };

struct mr_why {
    struct {
        enum mr_why_reason reason;
        char text[MR_WHY_TEXT_MAX]; /* one sentence, UTF-8 without control characters */
    } reasons[MR_WHY_MAX];
    size_t n;
};

/* What is known. The queue is the task's; nodes are all that there are. */
struct mr_why_facts {
    const struct mr_task *task;
    const struct mr_queue_info *queue;
    const struct mr_node_info *nodes;
    size_t nodes_n;
    const struct mr_limit *limits; /* that hold for the task, and how they stand */
    size_t limits_n;
    int64_t now_ms;
};

/* The decisive reason first; at least one for a task that exists. */
void mr_why(const struct mr_why_facts *facts, struct mr_why *ret_why);
const char *mr_why_word(enum mr_why_reason reason);

#endif
