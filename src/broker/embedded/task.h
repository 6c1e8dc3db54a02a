/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the engine keeps in memory of a task: 64 bytes for every one, and a second part only for
 * those that run, failed before, hold a unique key, wait in a group or have been kept. The payload stays in the log.
 */
#ifndef MR_EMBEDDED_TASK_H
#define MR_EMBEDDED_TASK_H

#include <assert.h>

#include "broker/embedded/slab.h"
#include "log/log.h"
#include "wire/event.h"

enum { TASK_FRACTION_US = 8 };

struct task {
    struct mr_uuid
        id;       /* first: slab_free overwrites the start, state says whether the rest counts */
    int64_t key;  /* place in its set: order time, due time, time of the end or of expiry */
    uint64_t tie; /* number of its first record: orders equal keys, and names it for ever */
    struct mr_log_pos pos; /* of its record (TASK or COPY); segment 0: it is lost */
    uint32_t size;         /* of that record */
    uint16_t queue;
    uint8_t part;  /* partition of its queue, from 0 */
    uint32_t more; /* struct more, or NO_HANDLE */
    uint32_t last; /* low bits of the number of the last record about it */
    uint16_t retried, max_retry;
    uint8_t state, flags;
    uint8_t crashes : 7;
    uint8_t limbo : 1;    /* its last change is not durable yet: in no set, not to be handed out */
    uint8_t awaited : 1;  /* somebody waits for its end, or did */
    uint8_t fraction : 7; /* of the ms in which it came, in units of TASK_FRACTION_US */
};

struct more {
    uint64_t epoch;         /* of the last lease */
    struct mr_log_pos note; /* record with the last result or error */
    uint32_t note_size;     /* 0: none */
    uint32_t node;       /* while active: number of its node, 0 for none; aggregating: 1 in a set */
    uint32_t next, prev; /* other tasks of the node, or members of the group */
    uint32_t group;      /* while aggregating: number of its group; while active in a queue with
                            limits: 1 + its track (limit.h), 0 for none */
    int16_t percent;     /* progress, -1: none said */
    uint16_t tally;      /* while active: where it is counted, see tally.c */
    char *progress;      /* text, heap */
    int64_t started_ms, finished_ms, failed_ms;
    int64_t order_ms; /* order time once it is pending again, or had until its end; 0: its key */
    int64_t unique_until_ms;
    int64_t priority_ms;   /* when the flag says that a caller gave it a new one */
    struct mr_uuid unique; /* key of the unique lock, when the flag is set */
};

static inline bool task_is_lost(const struct task *task)
{
    return task->pos.segment == 0;
}

static_assert(sizeof(struct task) == 64, "every waiting task costs this much memory");

#endif
