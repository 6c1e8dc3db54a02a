/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of the Redis engine and what they share.
 *
 * engine.c   opening, closing, requests in; format.h whether we may, risk.h what this Redis can lose
 * keys.c     queues as Redis knows them: their names, what is believed of them, which there are
 * message.c  the hash of a task <-> struct mr_task
 * scripts.c  the Lua files of lua/, one per operation
 * parts.c    partitions: several Redis queues as one; row.h what is written of them
 * enqueue.c  producing; carry.c what comes from another broker
 * node.c     nodes: opening, closing, what is in hand, what was lost
 * beat.c     beats, and what an outage means for them; leader.c who leads by them
 * say.c      what is said about them, for Asynq's tools and ours
 * exhibit.c  what is said about timers, for Asynq's tools
 * release.c  what goes back: of a node that leaves, and what was taken while the answer was lost
 * begun.c    which runs have begun
 * take.c     handing out, and waiting for it
 * watch.c    what wakes a queue: pushes, messages, due times
 * idle.c     what nobody tells of: one look for all queues
 * fall.c     what is addressed to others, and falls to our nodes in time
 * recover.c  leases and retentions that ended
 * finish.c   ends of runs
 * results.c  what they leave for masters, and whose tasks do
 * look.h     the other half: what people look at, and what they do to tasks and queues
 * fsck.c     a program of its own, on a connection of its own; fsck_keys.h the types of keys
 *
 * Threads: a request is checked and encoded by its caller (prepare); everything else happens on the
 * loop of src/redis, which is the broker's thread. The only thing both touch is the board of begun
 * runs.
 *
 * The data. All keys of one Redis queue Q begin with its prefix "asynq:{Q}:" (with a namespace:
 * "NS:asynq:{Q}:"); every script gets that prefix as KEYS[1] and builds the names of keys from it.
 * Asynq's keys and fields are as in its own programs. Ours:
 *
 *   mr:order   zset id -> order time in ms (with fractions): tasks that are ready and have a priority, or
 *              came back behind others. Their hash says `scheduled`, and they are in `scheduled` with
 *              the score 1 (READY_SCORE): Asynq's forwarder would just move them on, and what is
 *              really due is found behind them. Without that score there the entry is stale. Shown as
 *              pending.
 *   mr:due     zset id -> due time in ms, of our tasks in `scheduled` and `retry`; it counts if the
 *              score there is that time in seconds, rounded up
 *   mr:keep    zset id -> end of the retention in ms, of our tasks in `completed`; it counts likewise
 *   mr:held    zset id -> order time in ms, of tasks that were carried here and not released
 *   mr:lease   zset id -> end of the lease in ms: of what an older Millrace has in hand, which has mr:e and mr:n
 *              instead of mr:i
 *   mr:epoch   the last epoch that was handed out, or came with a task of another broker. It outlives the
 *              queue until the clock is beyond it
 *   mr:late    zset id -> due time in ms, of tasks in `retry` that are due and have a class of their own; it
 *              counts as in mr:due
 *   mr:max     the greatest length of the queue
 *   mr:set     hash of other settings: `retry`, what becomes of those that failed (as enum mr_retry_mode), and
 *              `wait`, how many ms their class waits at most; without a field, the default
 *   mr:counts  hash: how many were `deleted`, `expired`, `trimmed` (off the archive), `quarantined`
 *   mr:wake    channel: something changed that may be of interest to whoever waits for a task
 *   mr:size    zset group -> how many members it has; mr:oldest, mr:newest: when the first and the last of
 *              them joined, ms. Only those that are ripe are looked at; what other programs do to groups is
 *              noted there bit by bit
 *   mr:ripe    channel: a group has mr:full members, or is the first there is; mr:full is what one of those
 *              who wait for a group asks for
 *   mr:members how many tasks are in groups and in sets of them, for the greatest length; it is counted anew
 *              every second, or less often where there are many groups
 *   mr:await   zset id -> until when, ms: somebody waits for its end, which is said on asynq:mr:ended
 *   mr:end:ID  hash of a task that was done and left nothing, for a minute: somebody waited for it
 *   mr:u:KEY   the lock of a unique key that the caller chose; others are Asynq's own
 *   mr:part    what asynq:mr:parts has of its queue, and that queue: "PARTITIONS WIDEST ASSIGN QUEUE"
 *   mr:none    never there: see begin_when_full of head.lua
 *   mr:open    zset id -> from when on it can run, ms: tasks with a topic that have not ended, as far as is
 *              known; it is what results of other programs' runs are found by, and nothing else
 *   mr:topics  set of topics that have results of this queue's tasks
 *   mr:ran     how many runs of ours ended, of those in `processed`, where tasks have topics: the others are those of
 *              other programs. mr:looked: how far the look for what they left is, see topics.lua
 *   mr:r:[T]:  prefix of the keys of these results, which are those of a queue: pending, active, lease, mr:order
 *              and so on, and t:ID. mr:last there is the last order time that was given, us
 *
 * and for all queues asynq:mr:parts, the hash of how many partitions they have: see parts.c;
 * asynq:mr:cluster, who leads and whose they are: see leader.c; and asynq:mr:results, the set of queues that
 * ever had tasks with a topic, and the channel of that name: see results.c.
 *
 * Fields of a task's hash, none of which a plain pending one has. Times in ns are text of 19 digits like
 * pending_since, so they compare as text.
 *
 *   mr:t  when it was created, ns. A task that is still where its enqueue left it, plain and pending,
 *         has pending_since instead.
 *   mr:o  order time, ns, from when it is taken: only where that is not mr:t
 *   mr:p  priority in ms, if not 0; mr:y its key, if any
 *   mr:i  while it is in hand: "EPOCH END_MS HOLDER", its epoch, when its lease ends, and who has it (see
 *         struct node). It counts while that end, in seconds rounded up, is the score in `lease`. One
 *         field, since each costs a take nearly half as much as a command
 *   mr:e  epoch of the last run that has ended
 *   mr:s  "EPOCH STARTED_MS" of the last run, where nothing else says so: its lease was lost, or its epoch is
 *         ahead of the clock, or it ran at another broker. It counts unless mr:e or mr:i has a higher epoch
 *   mr:b  epoch of the run that has begun
 *   mr:c  crashes, if any
 *   mr:x  1: somebody wanted to delete it while it ran, 2: to cancel it
 *   mr:g  progress: "PERCENT TEXT"
 *   mr:f  when it ended, ms; mr:l when it failed last, ms
 *   mr:k  result topic; mr:v "RETRIED FAILED_S" of the last failure that left a result
 *   mr:m  timeout in ms where it is not whole seconds, 0: none
 *   mr:d  deadline, mr:r retention, in ms where they are not whole seconds. With a topic mr:r is always there: the
 *         message then says longer, so that Go programs keep what they end until its result was left
 *   mr:q  when its unique key is free by itself, ms
 *   mr:a  what it has behind it, broker/past.h
 *   mr:h  of a held task (its state field says so): the state it came in, mr:w the time that goes with
 *         that in ms, when it is due or its retention ends; mr:e then says since when it is held
 *
 * The order time of a task: in the list pending_since; in mr:order its score; while it waits for its time
 * that time less the priority; else mr:o, else mr:t.
 */
#ifndef MR_BROKER_REDIS_INTERNAL_H
#define MR_BROKER_REDIS_INTERNAL_H

#include "base/buf.h"
#include "base/map.h"
#include "broker/board.h"
#include "broker/door.h"
#include "broker/doubt.h"
#include "broker/hidden.h"
#include "broker/latency.h"
#include "broker/redis/redis.h"
#include "broker/redis/scripts.h"
#include "redis/redis.h"
#include "wire/asynq.h"

enum {
    AGAIN_MS = 200,         /* a finish that could not be delivered is tried again after this */
    QUEUES_FRESH_MS = 5000, /* the names of all queues are asked for again after this */
    SERVER_TTL_S = 10,      /* Asynq's: of what is said about a server */
    ARCHIVE_MAX = 9999,     /* Asynq's own limits */
    NODES_MAX = MR_BOARD_NODES,
    WHY_MAX = 256,
    ID_KEY_MAX = 512, /* prefix, "t:" and id */
    CURSOR_MAX = 24,  /* text of one of SSCAN */
};

#define ARCHIVE_MS (90 * MR_MS_PER_DAY)

struct engine;
struct ticket;
struct node;

/* ---- requests ------------------------------------------------------------------------------- */

/* How a request is carried out; one row per operation. */
struct op {
    /* The caller's thread: checks, encodes. What is not MR_OK is the answer. NULL: nothing to do. */
    enum mr_err (*prepare)(struct ticket *ticket);
    void (*begin)(struct ticket *ticket);
};

/* What a request needs on its way, in its arena. */
struct ticket {
    struct engine *engine;
    struct mr_req *req;
    const struct op *op;
    struct mr_link link; /* in the list of whoever has the request; else in none */
    enum mr_err err;     /* of prepare, then what the answer will be */
    size_t calls;        /* under way for it */
    void *own;           /* the operation's */
};

/* Answers; the ticket is gone afterwards. */
void ticket_done(struct ticket *ticket, enum mr_err err);

extern const struct op work_ops[MR_OP_COUNT]; /* engine.c */
extern const struct op look_ops[MR_OP_COUNT]; /* look.c: those that work_ops has not */

/* Tells whoever wants to know what Redis said with a refusal, and answers err, or MR_FAILED for an answer
 * that is not as the scripts give it (reply is NULL or no array). */
enum mr_err engine_refused(struct engine *engine, enum mr_err err, const struct mr_reply *reply);

/* ---- queues --------------------------------------------------------------------------------- */

/* What a queue is looked at for when its timer fires. */
enum watch_look {
    LOOK_DUE,    /* something is due, by what we know */
    LOOK_PAUSED, /* whether it still is */
};

/* What tells that a look at a queue is worth while. */
struct watch {
    struct mr_redis_lane *lane; /* NULL: none */
    bool counted;               /* ... among the lanes of partitions */
    struct mr_redis_call call;  /* BLMOVE on it: answered by a push */
    bool pushing;               /* ... is under way */
    bool refused;               /* ... by Redis, once at least, and that was said */
    struct mr_redis_channel channel;
    char *channel_name;
    bool listening; /* the subscription has begun */
    struct mr_timer timer;
    mr_mono at;           /* it fires, while it runs */
    enum watch_look look; /* what for */
    struct mr_redis_call peek;
    bool peeking;   /* ... is under way */
    mr_mono quiet;  /* it is not looked at before this */
    bool due;       /* something came, or is due, since it was asked */
    bool something; /* the last look at all queues found something in this one */
};

/* One connection for each partition would use up what a process may have open, and Redis: so many partitions
 * beyond the first of their queues have one; pushes into others are found by the look at all queues. */
enum { PART_LANES_MAX = 64 };

/* The look at all queues. */
enum { IDLE_QUEUES = 256 }; /* at a time */
struct idle {
    struct mr_timer timer;
    struct mr_redis_call call;
    bool running; /* ... is under way, about: */
    uint32_t n, group[IDLE_QUEUES];
    uint32_t next; /* handle of the first that was not asked */
    uint32_t looks;
};

/* What tells that one of its groups may be ripe, and how far the look at all of them is: groups.c. */
struct ripe {
    struct mr_redis_channel channel;
    char *channel_name;    /* NULL: not subscribed */
    uint32_t waiting;      /* gathers that want to be told */
    struct mr_timer timer; /* none has for a while */
    mr_mono walked_at;     /* groups of other programs were looked for */
    char walk[CURSOR_MAX]; /* ... and are from here on the next time */
};

/* Leases and retentions that end. */
struct recover {
    struct mr_timer timer;
    mr_mono at; /* it fires; MR_MONO_NEVER: not running */
    struct mr_redis_call call;
    bool running;   /* the call is under way */
    bool away;      /* it could not be asked the last time */
    uint32_t lates; /* looks that Redis came to late, one after the other */
    int64_t from;   /* runs without a lease are looked for from this one on, the oldest is 1 */
};

/* Results that tasks of a queue leave. */
struct leaves {
    bool known;                      /* it is in asynq:mr:results */
    const struct ticket *registrant; /* the last that put it there */
    struct mr_redis_call call;       /* the look */
    bool looking, refused;
    mr_mono at; /* not before */
};

/*
 * One queue of Asynq. A queue of the contract is one of them, or several (its partitions).
 * `maybe` is false only while the watch is on and the last look found nothing: then there is nothing.
 */
struct rqueue {
    struct engine *engine;
    struct mr_slice name;   /* with a NUL */
    struct mr_slice prefix; /* "asynq:{Q}:", with a NUL */
    uint32_t handle;        /* in engine->queues */
    bool inner;             /* see broker/hidden.h: in no list of queues, and always known */
    bool known;             /* a member of asynq:queues, as far as we know */
    bool added;             /* by us: SADD was sent */
    mr_mono added_at;       /* last SADD */
    uint32_t listeners;     /* nodes that take from it */
    uint32_t takers;        /* of them, those for which it is not only what falls to them */
    bool lane_less;         /* it is an address of a queue of theirs: its messages will do */
    bool maybe, paused;
    bool beat_refused; /* the last beat was answered with an error, and that was said */
    bool plenty;       /* the last look left something */
    bool limited;      /* it has limits, or had some at the last look */
    bool keeps_some;   /* ... and nothing came, since they kept it back */
    bool asked_alone;  /* by a take that the others let go first */
    struct watch watch;
    struct recover recover;
    struct mr_link finishes;  /* ends of runs that leave soon */
    struct mr_link finishing; /* the queue itself, among those that have such */
    uint32_t finishing_n;     /* calls with ends that are not answered */
    mr_mono finish_after;     /* not before: the last ones were answered with an error */
    struct latency *latency;  /* of what was taken and ended here */
    struct ripe ripe;
    /* As a partition. */
    struct rqueue *part_of; /* the first of its queue; NULL: it is that, with or without others */
    uint32_t number;        /* which one, from 1 */
    /* As the first of its queue. */
    struct rqueue **parts; /* all `widest` of them; NULL: it is the only one */
    uint32_t partitions;   /* tasks go into so many */
    uint32_t widest;       /* ... and may be in so many */
    uint32_t turn;         /* where the last one went that could go anywhere */
    uint32_t gathers;      /* so far */
    enum mr_assign assign;
    /* As a place of results: results.c. */
    struct mr_slice topic; /* empty: it is none */
    struct rqueue *home;   /* whose tasks leave them; NULL: it stands for the topic as a whole */
    struct rqueue **places;
    uint32_t places_n, places_cap;
    struct leaves leaves; /* as a queue */
    bool in_table;        /* parts.c */
    bool assigned; /* a leader has written whose its partitions are, when that was looked at last */
};

/* NULL: nobody has spoken of it. */
struct rqueue *rqueue_find(struct engine *engine, struct mr_slice name);
/* Finds or makes it. NULL: no memory. Loop thread. */
struct rqueue *rqueue_get(struct engine *engine, struct mr_slice name);
/* As engine_refused, about this queue alone. */
enum mr_err rqueue_refused(struct rqueue *queue, enum mr_err err, const struct mr_reply *reply);
/* The one of a queue of the contract; with partitions: the first of them. */
struct rqueue *rqueue_of(struct engine *engine, struct mr_slice queue);
void rqueue_free(struct rqueue *queue);
extern const struct mr_map_ops rqueue_map_ops; /* its arg: the engine */
/* It is in use: asynq:queues gets its name, once and then every few seconds. */
void rqueue_used(struct rqueue *queue);
/* Forgets that it is there: it was removed. */
void rqueue_removed(struct rqueue *queue);

/* The first partition of its queue. */
struct rqueue *rqueue_whole(struct rqueue *queue);
/* A partition of a queue, from 1; 0: the first. */
struct rqueue *rqueue_part(struct rqueue *queue, uint32_t number);
/* What HGETALL of the table of partitions answered is the case. */
MR_MUST_USE enum mr_err parts_answered(struct engine *engine, enum mr_err err,
                                       const struct mr_reply *reply);
void parts_send(struct engine *engine, struct mr_redis_call *call); /* that HGETALL */
bool parts_known(const struct engine *engine);                      /* it was read once */
/* Reads it again, if that is some time ago; nobody waits for it. */
void parts_refresh(struct engine *engine);
void parts_changed(struct engine *engine); /* reads it again at once */
/* Which of its partitions the nodes prefer is found out anew; nothing waits for it. */
void parts_survey(struct engine *engine);
/* Changes a row: the queue, how many, how they are assigned, as parts.lua wants them. */
void parts_write(struct engine *engine, struct mr_redis_call *call, struct mr_slice table,
                 const struct mr_slice row[3]);

/* All names of asynq:queues, not older than QUEUES_FRESH_MS, as rqueues with known = true; then `then`,
 * never before this returns. Those that are not there any more have known = false. The struct is the
 * caller's. */
struct queues_ask {
    struct mr_redis_call call, parts, results;
    size_t left; /* calls under way */
    enum mr_err err;
    struct engine *engine;
    void (*then)(struct queues_ask *ask, enum mr_err err);
    void *arg;
    struct mr_msg msg;
    bool fresh; /* as they are now */
};
void queues_ask(struct engine *engine, struct queues_ask *ask);
/* They need not be asked for. */
bool queues_known(const struct engine *engine);

/* A global key: PREFIX of the namespace, "asynq:" and the rest; in the arena. Empty: no memory. */
struct mr_slice global_key(const struct engine *engine, const char *rest, struct mr_arena *arena);

/* One script on one queue. */
void rqueue_eval(struct rqueue *queue, struct mr_redis_call *call, enum script script,
                 const struct mr_slice *args, size_t n);
/* A number as an argument; the text is in the buffer. */
enum { NUMBER_MAX = 24 };
struct mr_slice number_arg(int64_t number, char text[NUMBER_MAX]);

/* ---- messages ------------------------------------------------------------------------------- */

/* What a producer said, as it is enqueued: the TaskMessage and the fields of ours. */
struct new_task {
    struct mr_slice id;      /* never empty */
    struct mr_slice message; /* bytes of TaskMessage */
    struct mr_slice lock;    /* key of the unique lock; empty: none */
    /* Fields for HSET, and how many of them; names and values alternate. */
    struct mr_slice fields[2 * 6];
    size_t fields_n; /* slices */
    int64_t priority_ms;
    bool plain; /* nothing but id and message: pending, no unique key, no group, no field */
};

/* Thread: any. Everything is in the arena. */
MR_MUST_USE enum mr_err message_make(const struct engine *engine,
                                     const struct mr_task_options *options, struct mr_slice id,
                                     struct mr_arena *arena, struct new_task *ret_task);

/* The same for one that stood elsewhere: the message says how it went so far. */
MR_MUST_USE enum mr_err message_make_carried(const struct engine *engine,
                                             const struct mr_task_options *options,
                                             const struct mr_task *carried, struct mr_arena *arena,
                                             struct new_task *ret_task);

/* How a task stands, besides what its hash says; as the scripts tell it. */
struct standing {
    enum mr_state state; /* MR_STATE_NONE: as the hash says */
    double order_ms;     /* its score in mr:order; 0: it is not there */
    int64_t due_ms;      /* in scheduled, retry: in ms; 0: none */
};

/* What a take brought. Slices point into the reply. */
struct taken {
    struct mr_task task;
    struct mr_slice message;
    int64_t ready_us; /* since when it could run */
    bool plain;       /* it leaves nothing when it is done */
};
/* hash and order as take.lua answers them. */
MR_MUST_USE enum mr_err message_taken(const struct mr_reply *hash, const struct mr_reply *order,
                                      struct mr_arena *arena, struct taken *ret_taken);
/* What HGETALL answered (names and values alternate) as a task. Slices point into the reply; headers are
 * in the arena. MR_NOT_FOUND: there are no fields. MR_DAMAGED: there is no message, or it is none; what
 * else is known stands in the task. */
MR_MUST_USE enum mr_err message_read(const struct engine *engine, const struct mr_reply *fields,
                                     const struct standing *standing, struct mr_arena *arena,
                                     struct mr_task *ret_task);
/* Moves what its slices point at into the arena. */
MR_MUST_USE enum mr_err message_keep(struct mr_task *task, struct mr_arena *arena);
/* The value of a field of HGETALL's; NULL: there is none. */
const struct mr_reply *message_field(const struct mr_reply *fields, const char *name);
/* A lease for what was taken; its body holds all of it. */
MR_MUST_USE enum mr_err message_lease(const struct mr_task *task, struct mr_slice message,
                                      struct mr_lease **ret_lease);
enum mr_err message_lease_open(struct mr_broker *broker, struct mr_lease *lease);
/* The state that the hash's field names. */
enum mr_state message_state(struct mr_slice name);

/* The partition that the task goes to. NULL: there is no such partition. */
struct rqueue *parts_choose(struct rqueue *queue, const struct mr_task_options *options,
                            const struct new_task *task);

/* ---- producing ------------------------------------------------------------------------------ */

enum mr_err enqueue_prepare(struct ticket *ticket);
void enqueue_begin(struct ticket *ticket);
enum { ENQUEUE_ARGS = 10, ENQUEUE_ARGS_MAX = ENQUEUE_ARGS + 2 * 6 };
/* Checks one task, chooses its id, encodes it. Thread: any. */
MR_MUST_USE enum mr_err enqueue_prepare_one(const struct ticket *ticket,
                                            const struct mr_task_options *task, mr_wall now,
                                            struct new_task *ret_task,
                                            struct mr_enqueue_result *result);
/* The arguments of one task, as enqueue.lua reads them, behind the n there are. */
MR_MUST_USE enum mr_err enqueue_args(struct mr_arena *arena, const struct mr_task_options *options,
                                     const struct new_task *task, struct mr_slice *args, size_t *n);
/* The same of one that stood elsewhere, as carry.lua reads them. */
enum { CARRY_ARGS = 9, CARRY_ARGS_MAX = CARRY_ARGS + 2 * 6 + 2 * 10 };
MR_MUST_USE enum mr_err carry_args(struct mr_arena *arena, const struct mr_task *task,
                                   const struct new_task *made, struct mr_slice *args, size_t *n);
/* What the script says of one. MR_FAILED: that makes no sense. */
MR_MUST_USE enum mr_err enqueue_result(int64_t code, struct mr_slice state, struct mr_slice id,
                                       struct mr_enqueue_result *result);

/* ---- nodes ---------------------------------------------------------------------------------- */

/* A task in hand. */
struct hold {
    struct rqueue *queue;
    uint64_t epoch; /* 0: free */
    uint32_t next_free;
    bool plain;      /* it leaves nothing when it is done: no retention, no unique key */
    bool kept;       /* it is kept when it is done */
    bool ending;     /* its finish is under way */
    bool cancelled;  /* its node was told so */
    uint64_t beaten; /* by which beat last */
    uint8_t id_len, type_len;
    int64_t started_ms, timeout_ms, deadline_ms;
    char id[MR_ID_MAX], type[MR_NAME_MAX];
};

/* One of the queues that a node serves, with all its partitions. */
struct served {
    struct rqueue *queue; /* the first of them; of a master: the topic, with its places */
    uint32_t width;       /* so many are listened to */
    uint32_t turn;        /* which of them is asked next */
    uint32_t fair_turn;   /* ... when it is not asked whose they are */
    uint32_t asks;
    struct served *base; /* it is an address of that queue; itself: of none */
    uint64_t owned;      /* bits of those that the node prefers */
    int64_t current;     /* of the weighted round robin */
    uint32_t weight;
};

/* One of those partitions. */
struct listen {
    struct rqueue *queue;
    struct served *served;
    bool fallen;      /* its queue is an address of others: only what falls is taken from it ... */
    mr_mono falls_at; /* ... which is nothing before this */
    bool lost_asked;  /* what was lost is being asked for */
    int64_t lost_since; /* answers of takes were lost since this epoch; 0: none */
};

enum { HOLDER_MARK = 0x1f }; /* no name has it */

struct node {
    struct mr_link link; /* in engine->nodes, oldest first */
    struct engine *engine;
    uint64_t handle;        /* low bits: index in by_index */
    bool leaving;           /* closed or dead: nothing is taken for it any more */
    bool released;          /* what it held is given back, or the calls for that are under way */
    struct mr_arena memory; /* of what follows */
    enum mr_node_role role;
    uint32_t says; /* so often it said what it is */
    bool lasts;    /* what it holds is its own until the lease ends, also when this process ends */
    bool inner;    /* nothing is said of it */
    struct mr_slice name;
    struct mr_slice member; /* "host:pid:uuid", as Asynq names servers */
    struct mr_slice holder; /* name, HOLDER_MARK, incarnation: two may have the same name */
    struct mr_worker_queue *queues;
    struct served *served;
    size_t queues_n;
    struct listen **listens; /* as they came; heap, they themselves in the memory */
    size_t listens_n, listens_cap;
    struct mr_slice *types;
    size_t types_n;
    const struct mr_slot_info *slots_said; /* of the last beat, in slots_memory */
    size_t slots_said_n;
    struct mr_arena slots_memory;
    struct mr_redis_call details; /* says it */
    bool details_busy;
    enum mr_queue_order order;
    uint32_t slots, first_slot;
    int64_t lease_ms;
    int64_t leader_ms; /* leads so long beyond a beat; 0: it is no candidate */
    int64_t fall_ms;   /* what is addressed to others falls to it after so long; 0: never */
    uint64_t incarnation;
    int64_t started_ms, last_beat_ms; /* of our clock */
    struct mr_node_events events;
    struct mr_timer lease; /* dead when it fires, at: */
    mr_mono dead_at;
    bool doubted;          /* it fired once */
    struct mr_timer again; /* says again that it is there */
    struct ticket *opener, *closer;
    struct hold *holds;
    uint32_t holds_n, holds_cap, holds_free; /* free: index + 1, 0 none */
    struct mr_map *by_epoch;                 /* their indices */
    uint32_t in_hand;
    bool slot_wanted; /* a take of it waits until one of its slots is free */
    size_t calls;     /* under way for it; it ends when there are none */
};

/* The broker closes: all of them go. And when the loop is gone: what is left of them. */
void nodes_close(struct engine *engine);
void nodes_done(struct engine *engine);
struct node *node_get(struct engine *engine, uint64_t handle); /* NULL: none that lives */
enum mr_err node_open_prepare(struct ticket *ticket);
void node_open_begin(struct ticket *ticket);
void node_close_begin(struct ticket *ticket);
void node_beat_begin(struct ticket *ticket);
/* A part of it was answered. */
void beat_over(struct ticket *ticket);
/* It lives and may lead, or it goes; the ticket, if there is one, is a beat that waits for it. */
void leader_vote(struct node *node, struct ticket *ticket);
enum mr_err assign_prepare(struct ticket *ticket);
/* Timers, for Asynq's tools: exhibit.c. */
enum mr_err exhibit_prepare(struct ticket *ticket);
void exhibit_begin(struct ticket *ticket);
void assign_begin(struct ticket *ticket);
/* Redis was away: whoever lives says so, before others take what ended meanwhile. */
void nodes_beat(struct engine *engine);
void beat_init(struct engine *engine);
/* As it is now; slices are the node's. */
void node_info(const struct node *node, struct mr_node_info *ret_info);
/* Takes what falls of this queue, which is an address of the served one. */
void node_catches(struct node *node, struct rqueue *queue, struct served *served);
/* The same for all nodes. */
void nodes_widen(struct engine *engine);
/* Makes its member. */
MR_MUST_USE enum mr_err node_name(struct node *node);
/* It could not be opened. */
void node_forget(struct node *node);
/* Takes it into hand; answers the ref of the lease, 0 without memory. Nothing in hand has its epoch: those
 * of one queue differ, but two nodes of a Cluster may hand out the same at the same moment. */
uint64_t hold_add(struct node *node, struct rqueue *queue, const struct taken *taken);
/* NULL: the ref leads to no such lease. */
struct hold *hold_find(struct engine *engine, uint64_t ref, uint64_t epoch, struct node **ret_node);
struct hold *hold_of_epoch(struct node *node, uint64_t epoch);
void hold_remove(struct node *node, struct hold *hold);
/* Another has it now: whoever runs it is told. */
void hold_lost(struct node *node, struct hold *hold);
/* It lives. */
void node_heard(struct node *node);
/* What nodes that left could not give back: Redis answers (again), or will not. */
void node_give_back(struct node *node);
void releases_send(struct engine *engine);
void releases_drop(struct engine *engine);
/* The answer of a take is lost, and it may have been carried out; Redis answers again: what came of it goes
 * back. */
void take_lost(struct node *node, struct listen *listen, mr_mono sent);
void losts_ask(struct engine *engine);
/* A call for the node was answered. */
void node_call_done(struct node *node);
/* Says to everybody what it is. When it leaves: that it is gone. */
void node_announce(struct node *node);
/* What its slots do, if the beat says it; unless the last time is still under way. */
void node_say_slots(struct node *node, const struct mr_req_beat *req);
/* The run is to be cancelled: its node is told once. */
void hold_cancelled(struct node *node, struct hold *hold);

/* ---- begun runs ----------------------------------------------------------------------------- */

/* Thread: any. */
void begun(struct mr_broker *broker, uint32_t slot, uint64_t epoch);
MR_MUST_USE enum mr_err begun_init(struct engine *engine);
void begun_done(struct engine *engine);
/* The node's slots go back. */
void begun_give(struct node *node);

/* ---- taking --------------------------------------------------------------------------------- */

void take_begin(struct ticket *ticket);
/* Answers those of a node that wait. */
void takes_answer(struct node *node, enum mr_err err);
/* Something may be there: whoever waits is served. */
void takes_serve(struct engine *engine);
/* The node has something less in hand: its takes are served that waited for that alone. */
void takes_slot_free(struct node *node);

/* groups.c */
void ripe_init(struct rqueue *queue);
void ripe_done(struct rqueue *queue);

/* ---- watching ------------------------------------------------------------------------------- */

void watch_init(struct rqueue *queue);
/* Nodes listen to this queue from now on, or stop to. */
void watch_start(struct rqueue *queue);
void watch_stop(struct rqueue *queue);
/* The same for what falls to them: of that nobody tells, but leases that end there are seen. */
void watch_start_fallen(struct rqueue *queue);
void watch_stop_fallen(struct rqueue *queue);
/* It is paused, as far as is known. */
bool watch_is_paused(const struct rqueue *queue);
void watch_free(struct rqueue *queue);
/* Nobody tells of a push into this one, and somebody waits for it. */
bool watch_has_no_lane(const struct rqueue *queue);
/* A take asks it now; and has, and this is when the next task is due; < 0: none is. */
void watch_looks(struct rqueue *queue);
void watch_looked(struct rqueue *queue, int64_t next_ms);
/* A take left nothing, or may take nothing: be told of what comes. */
void watch_empty(struct rqueue *queue);
void watch_paused(struct rqueue *queue);
void watch_held_back(struct rqueue *queue);
/* It could not be asked, and that does not pass by itself: a while passes until the next try. */
void watch_failed(struct rqueue *queue);
/* Something may be there. */
void watch_woken(struct rqueue *queue);
/* Something is due in so many ms at the latest; < 0: nothing is. */
void watch_due_in(struct rqueue *queue, int64_t ms);

/* ---- what nobody tells of ------------------------------------------------------------------- */

void idle_init(struct engine *engine);
/* A queue is listened to. */
void idle_start(struct engine *engine);

/* ---- what falls ----------------------------------------------------------------------------- */

struct falls {
    struct mr_timer timer;
    struct queues_ask names;
    bool asking; /* ... is under way */
    bool denied; /* they may not be read */
    mr_mono names_at;
    /* Those that nobody needs any more are looked for, one after the other. */
    mr_mono sweep_at;
    bool sweeping;
    uint32_t sweep_next; /* handle */
    struct mr_req_node_list sweep_nodes;
    struct mr_req_queue_list sweep_look;
    struct mr_queue_info sweep_info;
    struct mr_req_queue_remove sweep_remove;
};
void falls_init(struct engine *engine);
/* A node is there to which something may fall; or a time that was waited for is another one. */
void falls_watch(struct engine *engine);
/* Such a node has come, perhaps one that waits less long than the others: addresses are asked for at once. */
void falls_joined(struct engine *engine);

/* ---- recovering ----------------------------------------------------------------------------- */

void recover_init(struct rqueue *queue);
void recover_stop(struct rqueue *queue);
/* A lease or a retention ends in so many ms: looks then, if nodes listen to the queue. */
void recover_in(struct rqueue *queue, int64_t ms);
/* Something runs there or is only kept: looks, if it rested because nothing did. */
void recover_wakes(struct rqueue *queue, bool runs);
/* Looks now, whether or not nodes listen. For so long that is too early: those who live may not have said so. */
void recover_send(struct rqueue *queue, struct mr_redis_call *call);
int64_t recover_early_ms(const struct engine *engine);
/* So often a queue is looked at where something runs, at least. */
int64_t recover_look_ms(const struct engine *engine);

/* ---- finishing ------------------------------------------------------------------------------ */

enum mr_err finish_prepare(struct ticket *ticket);
void finish_begin(struct ticket *ticket);
void finish_init(struct engine *engine);
/* Redis answers: those that wait for it are sent. */
void finishes_deliver(struct engine *engine);
/* A node leaves: those of its runs are kept no longer. */
void finishes_leave(struct engine *engine);
/* It will not: they are answered. */
void finishes_fail(struct engine *engine, enum mr_err err);

/* ---- results -------------------------------------------------------------------------------- */

struct results {
    uint32_t masters; /* of this process */
    struct mr_timer timer;
    struct mr_redis_channel channel;
    char *channel_name;
    struct mr_redis_call names;
    bool asking; /* ... is under way */
    bool unsure; /* messages were lost: the topics of all queues are asked for */
    mr_mono names_at;
    uint32_t topics_next; /* handle of the queue that is asked for its topics next */
    uint32_t ends_next;   /* ... and whether other programs ended runs there */
    bool wider;           /* there are places that nobody listens to yet */
};

/* Whether it is the name of a place, or of a topic: then home is empty. */
bool result_place(struct mr_slice name, struct mr_slice *ret_topic, struct mr_slice *ret_home);
/* SMEMBERS of asynq:mr:results, and what it answered. */
void results_names_send(struct engine *engine, struct mr_redis_call *call);
void results_names_read(struct engine *engine, const struct mr_reply *reply);
/* SADD of this queue; and the same while nobody waits for it. */
void results_name_add(struct rqueue *queue, struct mr_redis_call *call);
void results_name_again(struct rqueue *queue);
void results_init(struct engine *engine);
/* Finds out which places the topics of this MR_OP_NODE_OPEN have; then `then`, unless that fails. */
void results_open(struct ticket *ticket, void (*then)(struct ticket *ticket));
/* A master is there; it is gone. */
void results_start(struct engine *engine);
void results_stop(struct engine *engine);

/* ---- the whole ------------------------------------------------------------------------------ */

struct engine {
    struct mr_broker broker;
    struct mr_redis *redis;
    struct mr_slice prefix; /* of the namespace: "" or "NS:", heap */
    size_t payload_max;
    uint32_t wait_replicas;
    uint32_t archive_max;
    int64_t archive_ms;
    mr_refusal *refused;
    void *refused_arg;
    bool up, closing;
    mr_mono up_at, down_at; /* since when */
    uint32_t ups;           /* how often */
    struct mr_rand rand;
    char host[256];

    struct rqueue **queues; /* by handle */
    uint32_t queues_n, queues_cap;
    struct mr_map *by_name;
    mr_mono queues_at; /* when all names were asked for last */
    mr_mono parts_at;  /* when the table of partitions was read last */
    bool parts_asked, parts_again, parts_other;
    uint32_t part_lanes; /* partitions beyond the first ones that have a lane */
    struct mr_redis_call parts_call;
    struct mr_req_node_list survey; /* who shares the partitions of queues */
    struct mr_redis_call survey_call;
    bool surveying, survey_again;

    struct mr_link nodes;
    struct results results;
    struct idle idle;
    struct falls falls;
    struct mr_link releases; /* of those that left while Redis was away */
    struct node *by_index[NODES_MAX];
    uint32_t last_number;
    struct mr_link waits;       /* takes that wait, in the order they came */
    uint64_t takes_n;           /* so far */
    struct mr_link enqueues;    /* that are not sent yet, and what came behind them */
    struct mr_link tickets;     /* all that are under way elsewhere */
    struct mr_link finishings;  /* queues with ends of runs that leave with this turn */
    struct mr_link undelivered; /* ends of runs that wait for Redis */
    struct mr_timer deliver;
    struct mr_msg flush;
    bool flush_asked;
    struct mr_redis_channel cancels;
    char *cancels_name;
    bool cancels_on;
    bool unheard;           /* a subscription was refused, and that was said */
    bool unsaid;            /* ... and so was what is said about nodes */
    bool vote_refused;      /* ... and who leads */
    int64_t assign_version; /* of the last assignment that we have heard of */
    int64_t ahead_ms;       /* so far is the clock of Redis ahead of ours */
    uint64_t stale_refused;
    uint64_t beats;             /* so far */
    struct mr_timer beat_timer; /* not all of them beat again before it fires */
    bool beat_asked;            /* ... but then */
    struct mr_arena scratch;    /* of one callback */
    void *look;                 /* the looking half's own */

    struct mr_board board;
    uint64_t *told, *seen; /* by slot: what Redis knows to run there; what ran at the last look */
    _Atomic bool say_posted, now_posted;
    struct mr_msg say, say_now;
    struct mr_timer say_timer;

    /* Opening and closing, by other threads. */
    struct mr_door door;
    struct mr_msg close;
    struct mr_timer close_timer;
};

/* While closing: tells the closer when nothing is left. */
void engine_quiet(struct engine *engine);
/* Close waits for MR_DOOR_CLOSE_MS more: an answer it waits for has come. */
void engine_close_goes_on(struct engine *engine);
/* The looking half begins and ends with the engine; both on the caller's thread. */
MR_MUST_USE enum mr_err look_init(struct engine *engine);
void look_done(struct engine *engine);
/* The loop: Redis answers (again). */
void look_up(struct engine *engine);
/* The broker closes: those that wait are answered. */
void look_leave(struct engine *engine);

#endif
