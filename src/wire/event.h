/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Bodies of the log's records. Everything an event decides is in it, so replaying needs no clock
 * and no policy. Times are ms since the Unix epoch. All little-endian, fixed parts first.
 */
#ifndef MR_WIRE_EVENT_H
#define MR_WIRE_EVENT_H

#include "base/id.h"
#include "base/slice.h"

/* Facts about a task that are known without reading its message. Part of the format. */
enum mr_task_flag {
    MR_TASK_UUID = 1 << 0,      /* the id is the UUID itself; otherwise the message has the text */
    MR_TASK_RETAIN = 1 << 1,    /* kept after completion */
    MR_TASK_UNIQUE = 1 << 2,    /* holds a unique key */
    MR_TASK_PRIORITY = 1 << 3,  /* has a priority */
    MR_TASK_CANCEL = 1 << 4,    /* a caller wants it stopped */
    MR_TASK_REORDERED = 1 << 5, /* a caller gave it a new priority */
    MR_TASK_HELD = 1 << 6,      /* carried here, and not released yet */
    MR_TASK_TOPIC = 1 << 7,     /* its runs leave results */
};

/* MR_RECORD_TASK: followed by the task message (wire/task.h). */
struct mr_event_task {
    struct mr_uuid id;
    int64_t key; /* order time, or due time when scheduled */
    int64_t created_ms;
    uint16_t queue;
    uint8_t part; /* of its queue, from 0 */
    uint16_t max_retry;
    uint8_t state, flags;
};
enum { MR_EVENT_TASK_SIZE = 40 };
/* A queue and a part of it in four bytes. There was a time without parts: the queue was a number of
 * 32 bits then, of which only 16 were in use. */
void mr_event_place_encode(uint16_t queue, uint8_t part, uint8_t bytes[4]);
MR_MUST_USE bool mr_event_place_decode(const uint8_t bytes[4], uint16_t *ret_queue,
                                       uint8_t *ret_part);
void mr_event_task_encode(const struct mr_event_task *event, uint8_t bytes[MR_EVENT_TASK_SIZE]);
MR_MUST_USE enum mr_err mr_event_task_decode(struct mr_slice body, struct mr_event_task *ret_event,
                                             struct mr_slice *ret_message);

/* MR_RECORD_GATHERED: a task event, the number of members that became this task, their ids, and the
 * task message. */
enum { MR_EVENT_GATHERED_HEAD = 8 };
/* The fixed part: MR_EVENT_TASK_SIZE + MR_EVENT_GATHERED_HEAD bytes. */
void mr_event_gathered_encode(const struct mr_event_task *event, size_t n, uint8_t *bytes);
MR_MUST_USE enum mr_err mr_event_gathered_decode(struct mr_slice body,
                                                 struct mr_event_task *ret_event,
                                                 struct mr_slice *ret_ids,
                                                 struct mr_slice *ret_message);

/* MR_RECORD_TAKE and _DONE: one or more runs that began or ended, and the time. Most records of
 * a busy queue are of these kinds; runs that share one cost a third. */
struct mr_event_run {
    struct mr_uuid id;
    uint64_t epoch;
};
enum { MR_EVENT_RUN_SIZE = 24, MR_EVENT_RUNS_TIME = 8 };
void mr_event_run_encode(const struct mr_event_run *event, uint8_t bytes[MR_EVENT_RUN_SIZE]);
MR_MUST_USE enum mr_err mr_event_runs_decode(struct mr_slice body, int64_t *ret_ms, size_t *ret_n);
/* Of a body that was decoded; i below its number. */
struct mr_event_run mr_event_run_at(struct mr_slice body, size_t i);

/* MR_RECORD_FINISH, _LOST, _MOVE, _DELETE: what the task is from now on, and why. */
struct mr_event_change {
    struct mr_uuid id;
    uint64_t epoch;   /* of the lease that ended, 0 when none did; a new priority: its ms */
    int64_t key;      /* place in the order of its new state */
    int64_t order_ms; /* order time when it becomes pending again, or of one that has ended; 0: the
                         key is it */
    int64_t ms;       /* when it happened */
    uint16_t retried;
    uint8_t crashes;
    uint8_t state;        /* MR_STATE_NONE: the task is gone */
    uint8_t flags;        /* enum mr_task_flag */
    uint8_t outcome;      /* enum mr_outcome for a finish; enum mr_verb for a move */
    uint8_t dropped;      /* the result or error was left out: text says why */
    struct mr_slice text; /* result or error */
};
enum { MR_EVENT_CHANGE_SIZE = 56 };
void mr_event_change_encode(const struct mr_event_change *event,
                            uint8_t *bytes); /* with its text */
MR_MUST_USE enum mr_err mr_event_change_decode(struct mr_slice body,
                                               struct mr_event_change *ret_event);

/*
 * MR_RECORD_RESULT: a change of a task without its text, the task event of the result, which kind of
 * record the change would have been, and the message of the result. The text is the end of that: a
 * result holds it anyway.
 */
struct mr_event_result {
    struct mr_event_change change;
    struct mr_event_task task;
    uint8_t type; /* MR_RECORD_FINISH or _LOST */
};
enum { MR_EVENT_RESULT_SIZE = MR_EVENT_CHANGE_SIZE + MR_EVENT_TASK_SIZE + 8 };
/* The fixed part; a message follows that ends with the text of the change. */
void mr_event_result_encode(const struct mr_event_result *event,
                            uint8_t bytes[MR_EVENT_RESULT_SIZE]);
MR_MUST_USE enum mr_err mr_event_result_decode(struct mr_slice body,
                                               struct mr_event_result *ret_event,
                                               struct mr_slice *ret_message);

/* MR_RECORD_QUEUE; and _UNQUEUE, where max_length is the time in ms. */
struct mr_event_queue {
    uint32_t number;
    uint8_t paused;
    uint8_t more_parts; /* beside the first one */
    uint8_t assign;     /* enum mr_assign */
    uint64_t max_length;
    struct mr_slice name;
    struct mr_slice settings; /* encoded by who knows them (broker/settings.h); may be empty */
};
enum { MR_EVENT_QUEUE_SIZE = 16 };
/* With its name and settings. */
void mr_event_queue_encode(const struct mr_event_queue *event, uint8_t *bytes);
MR_MUST_USE enum mr_err mr_event_queue_decode(struct mr_slice body,
                                              struct mr_event_queue *ret_event);

/* MR_RECORD_OPEN and _CEILING: epochs up to and including ceiling may be handed out. MR_RECORD_MARK of a
 * store that was closed: the last one that was; any other mark is empty. */
enum { MR_EVENT_CEILING_SIZE = 8 };

/* Everything the index knows of a task: an entry of a snapshot (pack.h), and the head of
 * MR_RECORD_COPY and _CARRIED. */
struct mr_entry {
    struct mr_uuid id;
    int64_t key;
    uint64_t tie;
    uint32_t segment, offset, size;
    uint16_t queue;
    uint8_t part;
    uint16_t retried, max_retry;
    uint8_t state, flags, crashes;
    uint8_t has_more; /* the fields below are there */
    uint64_t epoch;   /* of an aggregating task: the number of its group */
    uint32_t note_segment, note_offset, note_size;
    int64_t started_ms, finished_ms, failed_ms, order_ms, unique_until_ms, priority_ms;
    struct mr_uuid unique;
};
enum {
    MR_ENTRY_SIZE = 56,
    MR_ENTRY_MORE_SIZE = 84,
    MR_ENTRY_MAX = MR_ENTRY_SIZE + MR_ENTRY_MORE_SIZE
};
/* Returns the bytes used. */
size_t mr_entry_encode(const struct mr_entry *entry, uint8_t bytes[MR_ENTRY_MAX]);
/* The second part of one that has_more, and a check of its first; for packed entries too. */
void mr_entry_more_encode(const struct mr_entry *entry, uint8_t *at);
void mr_entry_more_decode(const uint8_t *at, struct mr_entry *entry);
bool mr_entry_state_ok(uint8_t state);
/* Takes one entry off the front of *bytes. */
MR_MUST_USE enum mr_err mr_entry_decode(struct mr_slice *bytes, struct mr_entry *ret_entry);

#endif
