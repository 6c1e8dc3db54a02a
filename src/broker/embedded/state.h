/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state machine: queues, tasks and their sets, changed only by applying records of the log, by
 * the passing of time (a due task becomes pending, an expired one goes) and by nothing else. A
 * start applies the same records with the same functions, so what is recovered is what was. It does
 * no IO.
 *
 * Live, a changed task is in limbo until its record is durable: in no set, so that nothing is
 * handed out and nothing listed that a power cut could take back. While replaying everything is
 * durable already.
 */
#ifndef MR_EMBEDDED_STATE_H
#define MR_EMBEDDED_STATE_H

#include "base/heap.h"
#include "base/list.h"
#include "base/map.h"
#include "broker/broker.h"
#include "broker/embedded/order.h"
#include "broker/embedded/task.h"
#include "broker/latency.h"
#include "broker/limit.h"
#include "broker/settings.h"
#include "log/log.h"
#include "wire/event.h"

enum {
    QUEUES_MAX = 65536,
    HELD_SET = MR_STATE_NONE, /* in struct queue: tasks that were carried here and not released */
    DAYS_KEPT = MR_QUEUE_DAYS_MAX,
};

struct day {
    int32_t day; /* since the Unix epoch */
    uint64_t processed, failed;
};

/* By what a group is ripe. */
enum ripe_by { RIPE_BY_SIZE, RIPE_BY_OLDEST, RIPE_BY_NEWEST, RIPE_BY };

/* Tasks of a queue that wait to become one; see group.c. */
struct group {
    uint32_t next_free; /* the slab's; refs says whether the rest counts */
    uint32_t refs;      /* tasks that refer to it */
    uint32_t queue;
    uint32_t first, last;              /* members that are durable and in no set, oldest first */
    uint32_t count;                    /* of them */
    struct mr_heap_node ripe[RIPE_BY]; /* in the heaps of its queue; index is SIZE_MAX in none */
    uint8_t name_len;
    char name[MR_NAME_MAX];
};

/* A partition of a queue: a waiting line of its own. All else is the queue's. */
struct partition {
    struct order pending;
    uint64_t waiting; /* its tasks that count for the greatest length, limbo included */
};

struct queue {
    uint16_t number;
    char name[MR_NAME_MAX + 1];
    size_t name_len;
    bool paused;
    bool results;                      /* of a topic */
    bool inner;                        /* see broker/hidden.h */
    uint64_t max_length;               /* of each partition; 0: none */
    struct mr_queue_settings settings; /* its limits stand in limits_bytes */
    struct mr_limits limits;
    uint8_t *limits_bytes;             /* the same, encoded; NULL: none */
    struct limiter *limiter;           /* what they do (limit.h); NULL: it has none */
    uint64_t counts[MR_STATE_COUNT];   /* limbo included */
    struct order sets[MR_STATE_COUNT]; /* but for pending ones: those are in the partitions */
    struct partition *parts;
    uint8_t parts_n;
    uint8_t assign;  /* enum mr_assign */
    uint8_t turn;    /* partition that is next for a task that may go into any */
    uint64_t filled; /* by partition, a bit: it has something to take */
    uint64_t processed, failed;
    uint64_t quarantined; /* since the start, as what follows; the engine's, see tally.c */
    uint64_t attempts[MR_ATTEMPT_COUNT], throttled[MR_LIMIT_SCOPE_COUNT];
    struct mr_tally others; /* of types without a row of their own */
    uint16_t rows;          /* of tallies, it has so many */
    struct day *days;       /* the last DAYS_KEPT that had any run, oldest first */
    size_t days_n, days_cap;
    struct latency *latency;      /* NULL: nothing was handed out yet */
    struct mr_heap_node due;      /* when something happens in it; index is SIZE_MAX in no heap */
    struct mr_link waiters;       /* of struct listen: nodes waiting for a task of this queue */
    struct mr_link ready;         /* in the engine's list of queues that got something to take */
    struct mr_heap ripe[RIPE_BY]; /* of groups, what is ripe first on top */
    struct mr_link gathers;       /* of struct gather_wait: those who wait for a ripe group */
    struct mr_link riper;         /* in the list of queues whose waiting gathers look again */
    struct mr_link addressed;     /* in the list of queues with an @ in their names */
};

/* A task whose change is not durable yet. */
struct limbo {
    uint64_t seq;
    uint64_t tie;
    uint32_t task;
};

struct state {
    struct slab tasks, mores, groups;
    struct mr_map *by_id;     /* task handles */
    struct mr_map *by_unique; /* task handles */
    struct mr_map *by_name;   /* queue numbers */
    struct mr_map *by_group;  /* numbers of groups, by queue and name */
    struct queue **queues;    /* by number; NULL: removed */
    uint32_t queues_n, queues_cap;
    struct queue **sorted; /* those that people see, by name; NULL: to be made again */
    size_t sorted_n;
    uint32_t recent; /* number of the queue found last: batches name one queue over and over */
    struct mr_hash_key hash_key;
    struct mr_log *log; /* only for holding space */
    uint8_t fraction;   /* of the ms of this turn, for tasks that come in it */
    bool replaying;
    bool damage_seen;    /* records were set aside: what is left may not fit together */
    struct mr_heap due;  /* of queues, by the first time something happens in them */
    struct limbo *limbo; /* ring */
    size_t limbo_head, limbo_n, limbo_cap;
    struct mr_link ready; /* of struct queue: got a pending task since last looked at */
    struct mr_link riper; /* of struct queue: a group got a member, and somebody waits for one */
    struct mr_link addressed; /* of struct queue: an address of some other, by its name */
    uint64_t live_bytes;      /* of records that tasks need */
    size_t limits_bytes;      /* of the limits of all queues, encoded */
    uint64_t deleted, expired, gathered;
    uint64_t epoch_ceiling; /* largest ceiling ever logged */
    /* Called before a task changes or is made, for the snapshot in the making. */
    void (*touch)(uint32_t task, void *arg);
    void *touch_arg;
    /* Called when an active task's lease ends; node and links are still set. */
    void (*lease_ended)(uint32_t task, void *arg);
    void *lease_arg;
};

/* warm may be NULL. */
MR_MUST_USE enum mr_err state_init(struct state *state, struct mr_hash_key key,
                                   struct mr_warm *warm);
void state_done(struct state *state);

static inline struct task *task_at(const struct state *state, uint32_t handle)
{
    return slab_at(&state->tasks, handle);
}
static inline struct more *more_of(const struct state *state, const struct task *task)
{
    return task->more == NO_HANDLE ? NULL : slab_at(&state->mores, task->more);
}

/* The key a task id stands for. */
struct mr_uuid id_key(const struct state *state, struct mr_slice id, bool *ret_is_uuid);
/* NO_HANDLE when there is none. */
uint32_t find_task(const struct state *state, const struct mr_uuid *id);
uint32_t find_unique(const struct state *state, const struct mr_uuid *key);
struct queue *find_queue(struct state *state, struct mr_slice name);
struct queue *queue_of(const struct state *state, const struct task *task);
/* The same for people, who see no results. */
struct queue *find_shown_queue(struct state *state, struct mr_slice name);
uint32_t find_shown_task(const struct state *state, const struct mr_uuid *id);

/* ---- applying; seq and pos are those of the record ------------------------------------------ */

MR_MUST_USE enum mr_err apply_record(struct state *state, const struct mr_record *record,
                                     struct mr_log_pos pos);
MR_MUST_USE enum mr_err apply_task(struct state *state, const struct mr_record *record,
                                   struct mr_log_pos pos);
/* handle: of the task when the caller knows it, else NO_HANDLE. */
MR_MUST_USE enum mr_err apply_take(struct state *state, const struct mr_event_run *run, int64_t ms,
                                   uint32_t handle, uint64_t seq);
MR_MUST_USE enum mr_err apply_done(struct state *state, const struct mr_event_run *run, int64_t ms,
                                   uint32_t handle);
MR_MUST_USE enum mr_err apply_change(struct state *state, const struct mr_event_change *event,
                                     const struct mr_record *record, struct mr_log_pos pos,
                                     uint32_t handle);
/* A task comes as it stood elsewhere, and is held. */
MR_MUST_USE enum mr_err apply_carried(struct state *state, const struct mr_record *record,
                                      struct mr_log_pos pos);
/* A set becomes a task. */
MR_MUST_USE enum mr_err apply_gathered(struct state *state, const struct mr_record *record,
                                       struct mr_log_pos pos);
/* A task changes and leaves a result. handle: of the task, or NO_HANDLE. */
MR_MUST_USE enum mr_err apply_result(struct state *state, const struct mr_record *record,
                                     struct mr_log_pos pos, uint32_t handle);
/* A task found in a snapshot; the number of its group, if any, is one of this state. */
MR_MUST_USE enum mr_err apply_entry(struct state *state, const struct mr_entry *entry);
void entry_of(const struct task *task, const struct more *more, struct mr_entry *ret_entry);
/* Compaction moved the record or the note of a task. */
void moved_task(struct state *state, uint32_t handle, struct mr_log_pos pos, uint32_t size);
void moved_note(struct state *state, uint32_t handle, struct mr_log_pos pos, uint32_t size);

MR_MUST_USE enum mr_err queue_put(struct state *state, const struct mr_event_queue *event,
                                  struct queue **ret_queue);
/* The set of one state; pending ones have one for each partition. */
static inline struct order *queue_set(struct queue *queue, unsigned set, unsigned part)
{
    return set == MR_PENDING ? &queue->parts[part].pending : &queue->sets[set];
}
static inline unsigned queue_sets(const struct queue *queue, unsigned set)
{
    return set == MR_PENDING ? queue->parts_n : 1;
}
/* A number for a new queue; there are fewer than QUEUES_MAX. */
uint32_t queue_free_number(const struct state *state);
void queue_drop(struct state *state, struct queue *queue, int64_t now_ms);
/* Where in state->sorted the queues above this name begin. */
MR_MUST_USE enum mr_err queues_after(struct state *state, struct mr_slice name, size_t *ret_first);
MR_MUST_USE enum mr_err queue_count_run(struct queue *queue, int64_t ms, bool failed);
/* A day that it has not; the oldest makes room. */
MR_MUST_USE enum mr_err queue_add_day(struct queue *queue, const struct day *day);
/* NULL when nothing ran on it. */
struct day *queue_day(const struct queue *queue, int32_t day);

/* ---- groups ---------------------------------------------------------------------------------- */

static inline struct group *group_at(const struct state *state, uint32_t number)
{
    return slab_at(&state->groups, number);
}
static inline struct mr_slice group_name(const struct group *group)
{
    return (struct mr_slice){group->name, group->name_len};
}
/* The group of this name, made if need be. Lives once a task holds it. */
MR_MUST_USE enum mr_err group_put(struct state *state, uint32_t queue, struct mr_slice name,
                                  uint32_t *ret_number);
/* A member is in a set from now on; and n of one set, in their order, no longer. */
void group_set_out(struct state *state, uint32_t handle);
MR_MUST_USE enum mr_err group_set_back(struct state *state, const uint32_t *handles, size_t n);
/* When the first group of the queue is ripe by this, in ms; INT64_MAX: not by the passing of time. */
int64_t group_ripe_ms(const struct queue *queue, const struct mr_req_gather *rule, enum ripe_by by);
/* A ripe group; NULL: none. */
struct group *group_ripe(const struct queue *queue, const struct mr_req_gather *rule,
                         int64_t now_ms);
/* After a replay. */
MR_MUST_USE enum mr_err groups_link(struct state *state);
void groups_validate(const struct state *state);

/* ---- limits (limit.h) ------------------------------------------------------------------------ */

/* A pending task has come into, and left, the order of its partition. */
MR_MUST_USE enum mr_err limiter_enter(struct limiter *limiter, uint32_t handle);
void limiter_leave(struct limiter *limiter, uint32_t handle);
/* All that is pending is known to be kept back. */
bool limiter_is_empty(const struct limiter *limiter);
void limiter_validate(const struct limiter *limiter);

/* ---- time and durability -------------------------------------------------------------------- */

/* Everything up to seq is durable: tasks leave limbo. */
MR_MUST_USE enum mr_err state_durable(struct state *state, uint64_t seq);
/* Due tasks become pending, expired ones go; about budget of them at most. */
MR_MUST_USE enum mr_err state_tick(struct state *state, int64_t now_ms, size_t budget);
/* The first retry that is due, of a queue where they are a class of their own; NO_HANDLE. Late: it has waited for
 * too long, and goes before everything else. */
uint32_t state_due_retry(const struct state *state, const struct queue *queue, int64_t now_ms,
                         bool *ret_late);
/* Where it cannot be taken as it is: it becomes pending if nothing else is, or, as the first of all, if it is
 * late. */
MR_MUST_USE enum mr_err state_ready_retry(struct state *state, struct queue *queue, int64_t now_ms);
/* The settings of the queue were changed: other things may happen by the passing of time. */
MR_MUST_USE enum mr_err state_retimed(struct state *state, struct queue *queue, int64_t now_ms);
/* When state_tick has something to do; INT64_MAX for never. */
int64_t state_next_ms(const struct state *state);

/* After a replay: space held by tasks is counted, records in segments that are gone are noted.
 * Returns how many tasks have lost their record. */
uint64_t state_hold_all(struct state *state, int64_t now_ms);
size_t state_bytes(const struct state *state);
/* Asserts that sets, maps and counters equal a recount. */
void state_validate(const struct state *state);

#endif
