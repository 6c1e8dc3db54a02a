/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The looking half of the Redis engine: what people look at, and what they do to tasks and queues.
 *
 * look.c     questions to all queues at once, tasks as the scripts show them
 * get.c      one task by its id
 * list.c     pages of tasks
 * parts.c    their partitions
 * queues.c   queues: figures, history, settings, removal; limits.c their limits
 * control.c  verbs
 * await.c    waiting for the end of a task
 * groups.c   groups and the sets that are made of them
 * nodes.c    nodes, ours and Asynq's servers
 * leader.c   who leads, and whose the partitions are
 * stats.c    figures of the whole
 *
 * All of it runs on the loop, but for the checks of prepare.
 */
#ifndef MR_BROKER_REDIS_LOOK_H
#define MR_BROKER_REDIS_LOOK_H

#include "broker/redis/internal.h"

/* What this half keeps, in engine->look. */
struct look {
    struct awaits *awaits;
    struct mr_link gathers; /* under way */
};
static inline struct look *look_of(const struct engine *engine)
{
    return engine->look;
}

/* Of one task, as list.lua, get.lua and await.lua show it. */
enum { VIEW_ID, VIEW_STATE, VIEW_SCORE, VIEW_OURS, VIEW_FIELDS };

/* Everything is copied into the arena. A task whose message makes no sense is shown with what is
 * known besides. */
MR_MUST_USE enum mr_err view_read(const struct rqueue *queue, const struct mr_reply *view,
                                  struct mr_arena *arena, struct mr_task *ret_task);

/* The queues that there are, by name; valid until the next question for them. One of another program whose
 * name is none of ours is left to that. */
struct known {
    struct rqueue **queues;
    size_t n;
};
MR_MUST_USE enum mr_err known_queues(struct engine *engine, struct mr_arena *arena,
                                     struct known *ret_known);
/* The same with each partition by itself; only those of this queue, unless it is NULL. */
MR_MUST_USE enum mr_err known_parts(struct engine *engine, const struct rqueue *only,
                                    struct mr_arena *arena, struct known *ret_known);
/* NULL: it is not there. */
struct rqueue *known_queue(struct engine *engine, struct mr_slice name);

/* Whom a fan asks. */
enum fan_whom {
    FAN_QUEUES,  /* that there are */
    FAN_LEAVING, /* those whose tasks leave results, also when they were removed */
    FAN_BOTH,
};

/* One script on every queue that there is, all of them asked at once. */
struct fan {
    struct ticket *ticket;
    enum script script;
    enum fan_whom whom;
    const struct mr_slice *args;
    size_t args_n;
    /* What one of them said. NULL is not possible. */
    enum mr_err (*said)(struct fan *fan, struct rqueue *queue, const struct mr_reply *reply);
    /* All have: answers the ticket. err: what went wrong first. */
    void (*done)(struct fan *fan, enum mr_err err);
    void *arg;
    bool acts; /* it changes something: not to be repeated, and to be durable */
    struct {   /* look.c */
        struct queues_ask ask;
        struct known known;
        struct fan_call *calls; /* FAN_MAX at most, used again and again */
        size_t next, left;
        enum mr_err err;
    } own;
};
/* The fan lives until it is done. */
void fan_out(struct fan *fan);
/* Just the partitions of this queue. */
void fan_parts(struct fan *fan, struct rqueue *queue);

/* A question for the names first, then `then`; for what is about one queue. */
void look_names(struct ticket *ticket, void (*then)(struct ticket *ticket));

/* What a call answered; an array as a script gives it. */
MR_MUST_USE enum mr_err look_array(struct engine *engine, enum mr_err err,
                                   const struct mr_reply *reply);

void get_begin(struct ticket *ticket);
enum mr_err list_prepare(struct ticket *ticket);
void list_begin(struct ticket *ticket);
void queue_list_begin(struct ticket *ticket);
void queue_history_begin(struct ticket *ticket);
enum mr_err queue_set_prepare(struct ticket *ticket);
void queue_set_begin(struct ticket *ticket);
void limit_set_begin(struct ticket *ticket);
void limits_begin(struct ticket *ticket);
/* What queue.lua says of them; of the first partition. */
void limits_show(const struct mr_reply *fields, struct mr_queue_info *info);
void parts_set_begin(struct ticket *ticket);
void queue_remove_begin(struct ticket *ticket);
enum mr_err control_prepare(struct ticket *ticket);
void control_begin(struct ticket *ticket);
enum mr_err await_prepare(struct ticket *ticket);
void await_begin(struct ticket *ticket);
void unawait_begin(struct ticket *ticket);
void node_list_begin(struct ticket *ticket);

/* The hash of leader.c, as it was at now_ms. */
struct cluster {
    int64_t now_ms;
    const struct mr_reply *fields; /* NULL: nothing is known */
};
struct cluster_node {
    enum mr_node_state state;
    int64_t beat_ms, dead_ms;
};
void cluster_ask(struct engine *engine, struct mr_redis_call *call);
/* Of the answer: its fields are the reply's. */
MR_MUST_USE enum mr_err cluster_read(struct engine *engine, enum mr_err err,
                                     const struct mr_reply *reply, struct cluster *ret_cluster);
/* Moves them into the arena. */
MR_MUST_USE enum mr_err cluster_keep(struct cluster *cluster, struct mr_arena *arena);
/* False: it has said nothing there. */
bool cluster_node(const struct cluster *cluster, uint64_t incarnation,
                  struct cluster_node *ret_node);
MR_MUST_USE enum mr_err cluster_leader(const struct cluster *cluster, struct mr_arena *arena,
                                       struct mr_leader *ret_leader);
/* The queue gets so many partitions, or has: each of them has an owner in what is assigned, if anything is; if
 * only: and no others have. One partition has none: what is assigned goes. */
void cluster_fit(const struct rqueue *queue, struct mr_redis_call *call, uint32_t partitions,
                 bool only);
/* A user that may not touch the key has no leader whose assignment could have holes. */
MR_MUST_USE enum mr_err cluster_fitted(struct engine *engine, enum mr_err err,
                                       const struct mr_reply *reply);
MR_MUST_USE enum mr_err cluster_assignment(const struct cluster *cluster,
                                           const struct rqueue *queue, struct mr_arena *arena,
                                           struct mr_assignment *ret_assignment);

void stats_begin(struct ticket *ticket);
enum mr_err gather_prepare(struct ticket *ticket);
void gather_begin(struct ticket *ticket);
enum mr_err gathered_prepare(struct ticket *ticket);
void gathered_begin(struct ticket *ticket);
/* The broker closes: those that wait are answered. */
void gathers_leave(struct engine *engine);

/* Of a queue, as queue.lua says it; by their places in its answer. */
enum figure {
    FIGURE_SCHEDULED,
    FIGURE_PENDING,
    FIGURE_ACTIVE,
    FIGURE_RETRY,
    FIGURE_ARCHIVED,
    FIGURE_COMPLETED,
    FIGURE_AGGREGATING,
    FIGURE_PAUSED,
    FIGURE_OLDEST,
    FIGURE_PROCESSED,
    FIGURE_FAILED,
    FIGURE_PROCESSED_TODAY,
    FIGURE_FAILED_TODAY,
    FIGURE_MAX,
    FIGURE_DELETED,
    FIGURE_EXPIRED,
    FIGURE_GATHERED,
    FIGURE_CARRIED,
    FIGURE_MOVED,
    FIGURE_TRIMMED,
    FIGURE_QUARANTINED,
    FIGURE_RESULTS,
    FIGURE_LIMITS,
    FIGURE_RETRY_MODE,
    FIGURE_RETRY_WAIT,
};

/* Those who await the end of a task. */
struct awaits *awaits_new(struct engine *engine);
void awaits_free(struct awaits *awaits);
/* The loop: Redis answers again. */
void look_awaits_up(struct awaits *awaits);
/* The broker closes: all are answered. */
void look_awaits_leave(struct awaits *awaits);

#endif
