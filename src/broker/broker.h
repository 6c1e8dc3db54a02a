/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The broker contract: what every engine (embedded, Redis, remote, many) does, and all that the levels
 * above may know of it. The conformance suite in tests/conform is its definition in code.
 *
 * A caller fills a request, submits it and is called back once, on the broker's own thread.
 * Requests of one thread are carried out in the order of submission. Inputs are borrowed until done
 * is called; answers live in the request's arena until mr_req_done. All task operations work on
 * batches and answer per item: a request whose err is MR_OK was carried out, and each item has its
 * own err; one that failed as a whole gives its err to every item too.
 *
 * What an answer promises: it is given only when everything it is based on is durable. Two
 * exceptions: a take is handed out as soon as it is written (losing it only means handing out again
 * under a higher epoch), and a beat changes nothing durable.
 */
#ifndef MR_BROKER_BROKER_H
#define MR_BROKER_BROKER_H

#include "base/arena.h"
#include "base/chan.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/list.h"
#include "base/meter.h"

struct mr_broker;

/* Metadata of calls to a server: the namespace that is meant, percent-encoded; none: whichever it has. */
#define MR_NAMESPACE_METADATA "millrace-namespace"

/* Epochs are microseconds, which need far fewer bits; broker/many has the number of a server above. */
enum { MR_EPOCH_BITS = 57 };
/* The greatest that may come with a task, in the year 2112: a script of a Redis still counts on from it. */
#define MR_CARRIED_EPOCH_MAX (1ULL << 52)

enum mr_op {
    MR_OP_ENQUEUE,
    MR_OP_NODE_OPEN,
    MR_OP_NODE_CLOSE,
    MR_OP_TAKE,
    MR_OP_BEAT,
    MR_OP_FINISH,
    MR_OP_CONTROL,
    MR_OP_GET,
    MR_OP_AWAIT,
    MR_OP_UNAWAIT,
    MR_OP_LIST,
    MR_OP_QUEUE_LIST,
    MR_OP_QUEUE_HISTORY,
    MR_OP_QUEUE_SET,
    MR_OP_QUEUE_REMOVE,
    MR_OP_NODE_LIST,
    MR_OP_STATS,
    MR_OP_BACKUP,
    MR_OP_GATHER,
    MR_OP_GATHERED,
    MR_OP_QUEUE_LIMITS,
    MR_OP_ASSIGN,
    MR_OP_CALL,
    MR_OP_EXHIBIT,
    MR_OP_COUNT
};

/* Head of every request. Zero it, then set op and done. */
struct mr_req {
    struct mr_msg msg; /* for the way to the broker's thread */
    enum mr_op op;
    enum mr_err err;                  /* of the request as a whole */
    void (*done)(struct mr_req *req); /* broker's thread; the request is the caller's again */
    void *arg;                        /* the caller's */
    struct mr_arena arena;            /* holds the answer */
    struct mr_link link;              /* the engine's, while it has the request */
    union {                           /* the engine's, while it has the request */
        void *own;                    /* what it keeps of it */
        size_t next_item;             /* of a batch that came to a halt */
        uint64_t wait_seq;            /* carried out: the record that has to be durable */
    };
};

/* Frees the answer; not the request itself. */
void mr_req_done(struct mr_req *req);
/* An engine answers: what failed as a whole failed in each of its items. */
void mr_req_answer(struct mr_req *req, enum mr_err err);

/* ---- producing ------------------------------------------------------------------------------ */

struct mr_req_enqueue {
    struct mr_req req;
    const struct mr_task_options *tasks;
    size_t n;
    /* n entries: how each of them stands at another broker, which they leave to be held here
     * (include/millrace.h, mr_carry; tasks say the rest, by mr_carried_options). NULL: new ones. */
    const struct mr_task *carried;
    struct mr_enqueue_result *results; /* n entries, the caller's memory */
    bool inner; /* they go into inner queues (hidden.h), and into no others */
    bool
        sent; /* answer of an engine with a server: some left; with an error, they may be there or not */
    void *prepared; /* the engine's, in the arena */
};

/* ---- nodes and working ---------------------------------------------------------------------- */

enum mr_stop_reason { MR_STOP_CANCEL, MR_STOP_LOST };

/* What a broker tells a node by itself. Broker's thread: do little, submit at most. */
struct mr_node_events {
    /* The run under this epoch should stop: cancelled by somebody, or its lease is lost. */
    void (*stop)(uint64_t epoch, enum mr_stop_reason reason, void *arg);
    /* Others wait while this node holds tasks ahead of its free slots: hand those back. May be
     * NULL. */
    void (*wanted)(void *arg);
    void *arg;
};

enum { MR_NODE_TYPES_MAX = 64 };

/*
 * Registers a node that takes tasks. Its leases live while it beats.
 *
 * A master takes results instead: its queues are result queues (mr_result_queue) and nothing else,
 * it has no slots and runs nothing.
 */
struct mr_req_node_open {
    struct mr_req req;
    enum mr_node_role role;
    struct mr_slice name;
    const struct mr_worker_queue *queues;
    size_t queues_n;
    enum mr_queue_order order;
    const struct mr_slice *types; /* patterns of what it handles, to be shown; none: everything */
    size_t types_n;               /* to MR_NODE_TYPES_MAX */
    uint32_t slots;
    int64_t lease_ms; /* dead when this passes without a beat */
    bool lasts;       /* it lives so long, also when its connection ends before */
    /* So long others have for what is addressed to them; 0: for ever. A queue Q@NAME is an address
     * of Q: what is ready in one that is not among the node's own queues, and was so for this long, it
     * takes as if it were in Q, by its place in the order where the engine can tell. Nothing of an
     * address is taken while Q is known to be paused. */
    int64_t fall_ms;
    bool leads;        /* it is a candidate: see mr_req_beat */
    bool inner;        /* it takes from inner queues (hidden.h) alone, and is not shown */
    int64_t leader_ms; /* when it leads: so long beyond its last beat */
    struct mr_node_events events; /* copied */
    uint64_t node;                /* answer: handle for the following requests */
    uint32_t first_slot; /* answer: for mr_broker_begun; slots are first_slot .. + slots - 1 */
};

/* Forgets the node. What it holds goes back to pending at once, not counted (a run that began: as a
 * crash). */
struct mr_req_node_close {
    struct mr_req req;
    uint64_t node;
};

/* One task in hand. Its memory belongs to whoever holds it; mr_lease_free ends it. */
struct mr_lease {
    struct mr_lease *next; /* for the holder's own lists */
    uint64_t epoch;
    uint64_t ref;        /* the engine's shortcut to the task; pass it back in finish */
    struct mr_task task; /* filled by mr_broker_lease_open; until then only id is set, and empty */
    bool whole;          /* it is filled */
    struct mr_header *headers; /* behind task.headers */
    char id_text[MR_UUID_TEXT_LEN + 1];
    size_t body_len;
    uint8_t body[]; /* the engine's encoding of the task */
};

void mr_lease_free(struct mr_lease *lease);

enum {
    MR_TAKE_BYTES =
        8 * 1024 * 1024, /* of one take by those of this process who take for themselves */
    MR_PAGE_BYTES =
        2 * 1024 * 1024, /* of a page, unless a single task is bigger: clients take 4 MiB */
};

/*
 * Takes up to max tasks from the node's queues. When there is none, waits up to wait_ms (0: not at
 * all) for the first. Answers MR_EMPTY when none came, MR_CLOSED when the node is gone.
 */
struct mr_req_take {
    struct mr_req req;
    uint64_t node;
    size_t max;
    int64_t wait_ms;
    size_t bytes_max;        /* with so many bytes of tasks it is full as well; 0: no limit */
    uint64_t queues;         /* only of these: bits, the lowest for the node's first; 0: of all */
    struct mr_lease *leases; /* answer: list of n, in the order to run them */
    size_t n;
    bool held_back; /* with MR_EMPTY: something is ready there, and limits keep it back */
    void *wait;     /* the engine's */
};

struct mr_progress {
    uint64_t epoch;
    uint64_t ref;
    int percent;
    struct mr_slice text;
};

/*
 * Renews all leases of the node. MR_NOT_FOUND when the node was declared dead: its leases are lost.
 *
 * The beat of a candidate is its vote as well: if nobody leads it leads from now on, with a term above all
 * that were, until leader_ms have passed since its last beat or it is gone, by the broker's clock. Where that
 * cannot be asked, the answer is that it does not lead.
 */
struct mr_req_beat {
    struct mr_req req;
    uint64_t node;
    const struct mr_progress *progress;
    size_t progress_n;
    /* What its slots do, to be shown, to MR_SLOTS_SHOWN; since_ms says for how long here. None: as the
     * last beat said. */
    const struct mr_slot_info *slots;
    size_t slots_n;
    uint64_t term; /* answer: it leads, with this term; 0: it does not */
    int64_t
        leader_ms; /* answer: so long from now on somebody leads; 0: nobody, or it is not known */
};

/* Beyond this a delay means "never", and sums with it still fit. */
#define MR_DELAY_MAX_MS (100 * 366 * MR_MS_PER_DAY)

/* Why a run failed, where its worker ended it. */
enum mr_finish_reason { MR_REASON_NONE, MR_REASON_TIMEOUT, MR_REASON_CANCELLED };

/*
 * Ends one run. outcome decides what delay_ms, error and result mean.
 *
 * If the task has a topic, its outcome becomes a result there, in one step with the end of the run:
 * of a failure that is tried again, too, and of a run whose worker was lost; but not of one that was
 * handed back or put off. A result is a task in a queue that people do not see, with the encoding of
 * struct mr_result as its payload: in the order of finishing, handed out to masters by MR_OP_TAKE,
 * committed by MR_DONE, given back to its old place by MR_HAND_BACK, or when its master goes. Nothing
 * else can be done to it. A result whose lease is over can be committed until somebody else has got
 * it. MR_NOT_FOUND: it is committed already, or there never was one.
 */
struct mr_finish {
    struct mr_slice id;
    uint64_t epoch;
    uint64_t ref; /* of the lease; 0 if unknown */
    enum mr_outcome outcome;
    int64_t delay_ms; /* MR_FAIL, MR_LATER, MR_HAND_BACK: not before this; to MR_DELAY_MAX_MS */
    struct mr_slice error;  /* MR_FAIL, MR_FAIL_FOR_GOOD */
    struct mr_slice result; /* MR_DONE */
    enum mr_finish_reason reason;
};

struct mr_flat;
extern const struct mr_flat mr_flat_finish; /* FinishItem of proto/: all of it but ref */

/* Per item: MR_OK, MR_STALE (another epoch holds it, or it is no longer active), MR_NOT_FOUND. */
struct mr_req_finish {
    struct mr_req req;
    const struct mr_finish *items;
    size_t n;
    enum mr_err *errs; /* n entries, the caller's memory */
    bool
        only_results; /* a task is answered with MR_NOT_FOUND, an id that no result has with MR_INVALID */
};

/* ---- control and inspection ----------------------------------------------------------------- */

struct mr_req_control {
    struct mr_req req;
    const struct mr_control *items;
    size_t n;
    enum mr_err *errs; /* n entries, the caller's memory */
};

struct mr_req_get {
    struct mr_req req;
    struct mr_slice id;
    struct mr_task task; /* answer; slices in the arena */
};

/* Answered when the task has ended, as it was then (include/millrace.h, mr_task_wait); MR_TIMEOUT
 * after wait_ms (0: at once unless it has ended). */
struct mr_req_await {
    struct mr_req req;
    struct mr_slice id;
    int64_t wait_ms;
    struct mr_task task; /* answer; slices in the arena */
    void *wait;          /* the engine's */
};

/* Nobody waits any more for this await, which is under way: it is answered with MR_CANCELLED at once,
 * unless it has been answered before. Its memory lives until this is answered, MR_OK always. */
struct mr_req_unawait {
    struct mr_req req;
    struct mr_req_await *await;
};

struct mr_req_node_list {
    struct mr_req req;
    bool for_assignments; /* nodes are wanted only where something is assigned: else none is said */
    struct mr_node_info *nodes; /* answer, in the arena, as all that follows */
    size_t n;
    struct mr_leader leader;
    struct mr_assignment *assignments; /* of queues with more than one partition, by name */
    size_t assignments_n;
};

enum { MR_CURSOR_MAX = 256 };

struct mr_req_list {
    struct mr_req req;
    struct mr_list_options options;
    struct mr_task *tasks; /* answer, in the arena */
    size_t n;
    char next[MR_CURSOR_MAX]; /* answer: empty at the end */
};

/* How runs end: well, badly, by their time limit, by somebody's wish; with their worker, whether they had begun or
 * not; and to go on later. What is handed back counts as no run. */
enum mr_attempt {
    MR_ATTEMPT_OK,
    MR_ATTEMPT_ERROR,
    MR_ATTEMPT_TIMEOUT,
    MR_ATTEMPT_CANCELLED,
    MR_ATTEMPT_CRASH,
    MR_ATTEMPT_LEASE_LOST,
    MR_ATTEMPT_LATER,
    MR_ATTEMPT_COUNT
};
const char *mr_attempt_name(enum mr_attempt attempt);

/* How tasks end by their runs. */
enum mr_task_end {
    MR_TASK_END_COMPLETED,
    MR_TASK_END_DROPPED,
    MR_TASK_END_ARCHIVED,
    MR_TASK_END_QUARANTINED, /* it lost its worker too often */
    MR_TASK_END_COUNT
};
const char *mr_task_end_name(enum mr_task_end end);

struct mr_tally {
    uint64_t enqueued, ended[MR_TASK_END_COUNT];
};

struct mr_type_tally {
    struct mr_slice type;
    struct mr_tally tally;
};

/* Of a queue, since the start of this engine, in this process. */
struct mr_queue_meters {
    struct mr_meter wait_us, run_us; /* by mr_meter_us */
    bool counted; /* the rest is counted: the engine sees all that is done in the queue */
    uint64_t attempts[MR_ATTEMPT_COUNT];
    uint64_t throttled[MR_LIMIT_SCOPE_COUNT]; /* so often such a limit kept something back */
    const struct mr_type_tally *types;        /* in the arena */
    size_t types_n;
    struct mr_tally others; /* tasks of more types than are told apart */
};

struct mr_req_queue_list {
    struct mr_req req;
    struct mr_slice after;       /* names above this one; empty: all */
    struct mr_slice only;        /* just this queue: MR_NOT_FOUND when it is not there. May be a
                                    result queue, which the list does not have */
    struct mr_queue_info *infos; /* the caller's memory */
    /* The same, zeroed; NULL: not wanted. What an engine does not know stays so. */
    struct mr_queue_meters *meters;
    size_t max, n;
};

/* Its days, newest first; MR_NOT_FOUND without such a queue. */
struct mr_req_queue_history {
    struct mr_req req;
    struct mr_slice queue;
    struct mr_queue_day *days; /* the caller's memory */
    size_t max, n;
};

enum mr_queue_setting {
    MR_QUEUE_PAUSED,
    MR_QUEUE_MAX_LENGTH,
    MR_QUEUE_PARTITIONS,
    MR_QUEUE_ASSIGN,
    MR_QUEUE_RETRY_MODE,
    MR_QUEUE_RETRY_WAIT,  /* ms, to MR_DELAY_MAX_MS; 0: MR_RETRY_WAIT_MS */
    MR_QUEUE_RATE,        /* value and rate_ms, of the limit with scope and name */
    MR_QUEUE_CONCURRENCY, /* value, of that limit */
};

/* Creates the queue when it is missing, except for pause and resume: MR_NOT_FOUND. */
struct mr_req_queue_set {
    struct mr_req req;
    struct mr_slice queue;
    enum mr_queue_setting setting;
    uint64_t value; /* paused: 0 or 1; assign: enum mr_assign; retry mode: enum mr_retry_mode */
    int64_t rate_ms;
    enum mr_limit_scope scope;
    struct mr_slice name; /* of a type or a key, or MR_LIMIT_EACH; empty with MR_LIMIT_QUEUE */
};

/*
 * The limits of a queue; with an id those that hold for that task, by scope, and how they stand for it.
 * Without, active and rate_until_ms are of those that are not for each. MR_NOT_FOUND: no such queue, or
 * no such task in it.
 *
 * What limits do (include/millrace.h, struct mr_limit): a take passes over what may not be handed out
 * now, and gets none of a queue with limits that a free slot of its node does not wait for. The cost of a
 * take does not depend on how many tasks are passed over.
 */
struct mr_req_queue_limits {
    struct mr_req req;
    struct mr_slice queue, id;
    struct mr_limit *limits; /* the caller's memory, MR_LIMITS_MAX entries */
    size_t n;
};

struct mr_req_queue_remove {
    struct mr_req req;
    struct mr_slice queue;
    enum mr_queue_remove_mode mode;
};

/* Of an engine that has a log. */
struct mr_store_meters {
    bool known;
    struct mr_meter sync_us; /* how long a sync took, by mr_meter_us */
    struct mr_meter group;   /* records that it made durable, by mr_meter_many */
    bool free_known;
    uint64_t free_bytes; /* of the disk */
};

struct mr_req_stats {
    struct mr_req req;
    struct mr_stats stats;
    bool meters_wanted;
    struct mr_store_meters meters; /* answer, where they are wanted */
};

struct mr_req_backup {
    struct mr_req req;
    const char *dir;
    struct mr_detail detail;
};

/* ---- what the leader writes ----------------------------------------------------------------- */

enum { MR_OWNERS_MAX = 1024 };

/*
 * The owners of a queue's partitions, all of them: what stood there is replaced in one step. The partitions
 * that have an owner are all from the first to some n-th. MR_STALE: another one leads, or nobody, or the
 * version is not the one that is in force, or the queue has another number of partitions: nothing was
 * changed. MR_NOT_FOUND: no queue with several partitions has this name.
 *
 * When the number of partitions changes, those that come go to the owners that have the least, under a new
 * version and in the same step: no version that is in force leaves one out. With one partition, as with its
 * queue, an assignment goes.
 *
 * A node takes from the partitions that it owns first; from others where those have nothing. An owner that
 * is no longer there, and a partition without one, is nobody's loss: all of them are worked off.
 */
struct mr_req_assign {
    struct mr_req req;
    uint64_t term;
    struct mr_slice queue;
    uint64_t version; /* that is replaced, 0: none; answer: of the new one */
    const struct mr_owner *owners;
    size_t owners_n; /* 1 to MR_OWNERS_MAX */
};

/* ---- groups --------------------------------------------------------------------------------- */

enum {
    MR_SET_MAX = 40,                   /* bytes of the name of a set, its NUL included */
    MR_SET_MS = 2 * 60 * 1000,         /* a set is its gatherer's so long */
    MR_SET_BYTES_MAX = 2 * 1024 * 1024 /* of messages in a set, more only if it has one member */
};

/*
 * The members of a group that is ripe leave it together, as a set, for whoever makes one task of
 * them within set_ms; then they are back in their group, at their old places. A group is ripe with
 * max_size members, when its oldest has waited max_delay_ms, or when nobody has joined for grace_ms.
 * When none is, or there is no such queue, waits up to wait_ms for one: MR_EMPTY. It goes on while the
 * queue is paused: only takes stop then.
 *
 * A member in a set is aggregating like the others and is counted and listed so, but it is in hand:
 * what people do to it is answered with MR_RUNNING. The forced removal of a queue takes it along. Where a
 * set does not outlive the end of its engine, its members are back at the next start.
 */
struct mr_req_gather {
    struct mr_req req;
    struct mr_slice queue;
    uint32_t max_size;           /* of a set, too; 0 and more than MR_BATCH_MAX: that */
    int64_t max_delay_ms;        /* 0: no matter */
    int64_t grace_ms;            /* at least 1 */
    int64_t wait_ms;             /* 0: not at all */
    int64_t set_ms;              /* 0: MR_SET_MS; an engine may round it up to whole seconds */
    char group[MR_NAME_MAX + 1]; /* answer */
    char set[MR_SET_MAX];        /* answer: its name for what follows; never used again */
    struct mr_task *tasks;       /* answer: oldest first, slices in the arena */
    size_t n;
    void *wait; /* the engine's */
};

/*
 * In one step the set becomes this task: it is enqueued, and the members are gone, counted in
 * mr_stats.gathered, their unique keys with them. Without a task they go back into their group at once.
 * MR_STALE: there is no such set (any more), and nothing was done.
 *
 * The task goes into the same queue (its own queue is empty, or that one), into the partition where its
 * members are, and has no group; else it is
 * refused with MR_INVALID. A key or a length of the queue that only the members take up is free for
 * it; on_duplicate is always MR_DUPLICATE_REJECT. A task that is refused (result.err) leaves the set as
 * it is.
 */
struct mr_req_gathered {
    struct mr_req req;
    struct mr_slice queue, set;
    const struct mr_task_options *task; /* NULL: back into the group */
    struct mr_enqueue_result result;    /* answer */
    void *prepared;                     /* the engine's, in the arena */
};

/* ---- what only a server does ----------------------------------------------------------------- */

/*
 * A method of proto/ with its message, both as they go on the wire: for what is no matter of a broker,
 * as timers. Engines without a server behind them answer MR_UNSUPPORTED.
 */
struct mr_req_call {
    struct mr_req req;
    const char *path;        /* "/millrace.v1.Timers/Get"; a literal */
    struct mr_slice message; /* at most a batch of tasks */
    int64_t timeout_ms;      /* MR_TIMEOUT after so long; 0: it waits */
    bool sent; /* answer: it left; with an error, it may have been carried out or not */
    struct mr_slice answer;  /* in the arena */
    struct mr_detail detail; /* what the server said with an error; empty: nothing */
};

/* ---- what other tools are shown ---------------------------------------------------------------- */

/* A timer, as a scheduler of Asynq shows its entries. */
struct mr_exhibit {
    struct mr_slice id, spec, type, payload, queue;
    int32_t max_retry; /* as of a task's options, as the next one */
    int64_t timeout_ms;
    int64_t next_ms, last_ms; /* 0: never */
};

/* A task that one of them has become. */
struct mr_exhibited {
    struct mr_slice id, task_id;
    int64_t at_ms;
};

enum { MR_EXHIBITS_MAX = 1000 };

/*
 * Tools of others than us see the timers of this server: what it showed before is replaced, and goes by itself after
 * ttl_s, or now when that is 0. Nothing depends on it. Only for engines whose ops say that they exhibit.
 */
struct mr_req_exhibit {
    struct mr_req req;
    struct mr_slice name; /* of who shows it: "host:pid:uuid" */
    int64_t ttl_s;
    const struct mr_exhibit *entries;
    size_t n; /* to MR_EXHIBITS_MAX */
    const struct mr_exhibited *done;
    size_t done_n;  /* to MR_EXHIBITS_MAX; those with the same id one behind the other */
    void *prepared; /* the engine's, in the arena */
};

/* ---- the operations of an engine ------------------------------------------------------------ */

struct mr_broker_ops {
    /* Thread: any. Checks the inputs on the caller's thread, then queues the request. */
    void (*submit)(struct mr_broker *broker, struct mr_req *req);
    /* The run under this epoch begins in this slot of its node; epoch 0: the slot is free. Cheap:
     * called before every run. It waits for nothing, or, where runs are few, for the moment that it
     * takes to make the run known. Thread: any but the broker's, one per slot. */
    void (*begun)(struct mr_broker *broker, uint32_t slot, uint64_t epoch);
    /* Fills lease->task from its encoding; with MR_NOMEM its id at least, under which it can be given
     * back, and nothing that is not true. MR_DAMAGED cannot happen unless memory is. Thread: the holder. */
    enum mr_err (*lease_open)(struct mr_broker *broker, struct mr_lease *lease);
    /* What it may lose of what it acknowledged: one line for people. NULL: nothing. Thread: any but the
     * broker's. */
    enum mr_err (*risk)(struct mr_broker *broker, struct mr_detail *ret_line);
    /* Answers what is in flight with MR_CLOSED where it cannot be carried out, then frees the
     * broker. */
    void (*close)(struct mr_broker *broker);
    /* It is part of this process, and decides nothing while it does not answer: then a worker's
     * leases hold, however long that takes. */
    bool in_process;
    bool exhibits; /* it takes MR_OP_EXHIBIT */
};

struct mr_broker {
    const struct mr_broker_ops *ops;
};

void mr_broker_submit(struct mr_broker *broker, struct mr_req *req);
void mr_broker_begun(struct mr_broker *broker, uint32_t slot, uint64_t epoch);
MR_MUST_USE enum mr_err mr_broker_lease_open(struct mr_broker *broker, struct mr_lease *lease);
/* Opens it for its id alone, which is there also without memory for the rest. Thread: the holder. */
struct mr_slice mr_broker_lease_id(struct mr_broker *broker, struct mr_lease *lease);
void mr_broker_close(struct mr_broker *broker);

/* Submits and waits; answers req->err. Not from the broker's thread. */
MR_MUST_USE enum mr_err mr_broker_call(struct mr_broker *broker, struct mr_req *req);

/* The checks every engine makes at its door, before memory is spent. Fills detail (may be NULL). */
MR_MUST_USE enum mr_err mr_task_options_check(const struct mr_task_options *task,
                                              size_t payload_max, struct mr_detail *detail);
/* What a producer would have said of a task that stands at another broker. */
struct mr_task_options mr_carried_options(const struct mr_task *task);
/* Whether it can stand here so, beside what the check of its options says. */
MR_MUST_USE enum mr_err mr_carried_check(const struct mr_task *task);
/* The last epoch it had, 0 if it never ran: whoever takes it here has a higher one. */
uint64_t mr_carried_epoch(const struct mr_task *task);
/* What every engine refuses of a control, before it looks for the task. */
MR_MUST_USE enum mr_err mr_control_check(const struct mr_control *item);
MR_MUST_USE enum mr_err mr_finish_check(const struct mr_finish *item);
/* The name of the queue, and what no engine has. */
MR_MUST_USE enum mr_err mr_queue_set_check(const struct mr_req_queue_set *req);
/* Of it, what it says of a limit. */
MR_MUST_USE enum mr_err mr_limit_check(const struct mr_req_queue_set *req);
MR_MUST_USE enum mr_err mr_node_open_check(const struct mr_req_node_open *req);
/* Also that no partition is left out. */
MR_MUST_USE enum mr_err mr_assign_check(const struct mr_req_assign *req);
uint64_t
mr_owned_by_all(const struct mr_req_assign *req); /* partitions that have an owner, as bits */
MR_MUST_USE enum mr_err mr_gather_check(const struct mr_req_gather *req);
/* What is wrong with the request, and with what its task says of queue and group. */
MR_MUST_USE enum mr_err mr_gathered_check(const struct mr_req_gathered *req);
MR_MUST_USE enum mr_err mr_gathered_task_check(const struct mr_req_gathered *req);
/* What zero stands for. */
uint32_t mr_gather_max(const struct mr_req_gather *req);
int64_t mr_gather_set_ms(const struct mr_req_gather *req);

#endif
