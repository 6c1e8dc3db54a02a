/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the engine. One thread owns all of this. Requests and finished chores come in through the
 * inbox; each turn carries them out, lets time pass, hands out tasks, writes the log, starts a
 * sync, and gives the answers whose records have become durable.
 *
 *   engine.c     the turn
 *   enqueue.c control.c inspect.c node.c take.c finish.c await.c gather.c   the requests
 *   state.h      what there is: state.c, changed by apply.c; tasks in slab.c, their order in order.c
 *   queue.c      queues: numbers, settings, counters    parts.c  their partitions
 *   group.c      groups of tasks
 *   fall.c       what is addressed to others, and falls to our nodes in time
 *   message.c    a task's record, and what is read of it
 *   result.c     what runs of tasks with a topic leave
 *   limit.c      what queues with limits do, with limiter.c
 *   tally.c      what is counted by type, for figures    diary.c  what tasks have behind them
 *   leader.c     who leads, and what the leader writes
 *   carry.c      a task comes from another broker
 *   show.c       a task as people see it
 *   store.c      the folder: opening and closing, with meta.c and board.c    fsck.c  checking it
 *   snapshot.c   writing snapshots, snapload.c loading them; snapfile.c and parity.c their file
 *   compact.c    giving space back    backup.c  copies
 *   space.c      what a full disk leaves room for
 *   driver.c     the threads; the simulator has none
 */
#ifndef MR_EMBEDDED_ENGINE_H
#define MR_EMBEDDED_ENGINE_H

#include "base/buf.h"
#include "base/exec.h"
#include "broker/embedded/embedded.h"
#include "broker/embedded/message.h"
#include "broker/embedded/state.h"
#include "broker/result.h"
#include "wheel/wheel.h"

enum {
    TICK_BUDGET = 1000, /* due tasks moved in one turn */
    NODES_MAX = 16384,
    BOARD_SLOTS = 16384,   /* of all nodes together */
    RETRY_SPACE_MS = 1000, /* between two tries to get space on a full disk */
    AWAY_MS = 50,          /* a timer this late means that the engine itself did not run */
    AWAITS_MAX = 65536,    /* requests that wait for the end of a task */
    AWAIT_BUCKETS = 4096,
    SET_BUCKETS = 256,
    WALL_CHECK_MS = 1000, /* longest sleep while tasks wait for a time: the wall clock may be set */
};

/* Epochs are handed out only up to a ceiling on disk, renewed well before it is reached. */
#define CEILING_AHEAD_US (10LL * 60 * 1000 * 1000)

/* What a dead node writes late must not meet another's: its slots are used again when no others are
 * left. */
enum slot_use { SLOT_FREE, SLOT_USED, SLOT_RESTS };

struct listen {
    struct mr_link waiter; /* in the queue's waiters while the node waits */
    struct node *node;
    struct queue *queue; /* NULL: not there (any more) */
    char name[MR_NAME_MAX + 1];
    size_t name_len;
    int64_t weight, current; /* smooth weighted round robin */
    size_t base;             /* its queue is an address of that of this listen; its own: of none */
    /* Of a queue with partitions: see parts.c. */
    uint64_t owned; /* by partition, a bit: the node prefers it */
    uint32_t takes;
    uint8_t turn, fair_turn;
};

enum { SLOTS_SAID = 1 }; /* number of a field */

struct node {
    struct mr_link link; /* in the engine's nodes */
    struct mr_engine *engine;
    uint64_t id;
    uint32_t number; /* > 0; what tasks refer to */
    enum mr_node_role role;
    char name[MR_NAME_MAX + 1];
    uint32_t slots, first_slot;
    uint64_t first_epoch; /* those of its leases are above */
    int64_t lease_ms;
    int64_t fall_ms;   /* what is addressed to others falls to it after so long; 0: never */
    bool leads;        /* it is a candidate */
    bool inner;        /* it is not shown */
    int64_t leader_ms; /* leads so long beyond a beat */
    int64_t started_ms, last_beat_ms;
    bool dying; /* declared dead; some of its tasks are still to be given back */
    struct mr_node_events events;
    struct mr_timer lease; /* dead when it fires, and again after that */
    bool doubted;          /* it has fired once */
    enum mr_queue_order order;
    struct mr_link takes; /* waiting struct mr_req_take, through req.link */
    uint32_t first, last; /* tasks in hand, oldest first */
    size_t in_hand;
    struct mr_slice *types; /* patterns of what it handles, to be shown; heap, with their bytes */
    size_t types_n;
    struct mr_buf slots_said; /* of the last beat, as Slot of proto/ */
    size_t listens_n;
    struct listen listens[];
};

/* A waiting take has a timer of its own in the request's arena. */
struct take_wait {
    struct mr_timer timer;
    struct mr_req_take *req;
    struct node *node;
};

/* Who leads. */
struct leadership {
    uint64_t node; /* its id; 0: nobody */
    uint64_t term; /* of the last one */
    int64_t since_ms;
    mr_mono until;      /* unless it beats */
    mr_mono free_since; /* nobody leads */
};

/* Space on disk kept for the next snapshot, since only that gives segments back. */
struct spare_size {
    uint64_t bytes;
    size_t tasks, mores, queues, groups; /* it is big enough for so many */
    size_t limits;                       /* and for so many bytes of limits */
};

struct spare {
    struct spare_size size;
    bool needed;      /* the disk may come to its end */
    uint32_t segment; /* the one in use when that was looked at */
    bool known;       /* what an earlier opening left of it is dealt with */
    enum mr_err err;  /* MR_DISK_FULL: it could not be made as big as it should be */
    bool waits;       /* it failed, and is tried again with the timer */
    /* With the executor while busy. */
    struct mr_chore chore;
    bool busy;
    struct spare_size wanted;
    enum mr_err chore_err;
};

struct snapshot; /* in the making */
struct backup;

enum {
    TALLIES_MAX = 512,      /* pairs of a queue and a type that are counted apart */
    TALLIES_QUEUE_MAX = 50, /* of them, in one queue */
    TALLY_PLACES = 1024,    /* power of two, above TALLIES_MAX */
};

/* See tally.c. Numbers are from 1; 0 stands for the others of a queue. */
struct tallies {
    struct tally_row *rows[TALLIES_MAX + 1];
    uint16_t places[TALLY_PLACES]; /* numbers, by hash; 0: empty */
    uint16_t n, recent;            /* rows; and the one that was asked for last */
};

enum { DIARY_MAX = 8192, DIARY_BUCKETS = 4096 };
struct diary {
    struct mr_link order, buckets[DIARY_BUCKETS]; /* of struct entry: diary.c */
    size_t n;
};

struct mr_engine {
    struct mr_broker broker;
    struct mr_engine_options options;
    char dir[MR_PATH_MAX];
    struct mr_fs *fs;
    struct mr_clock *clock;
    struct mr_rand rand;
    bool threaded;
    struct mr_chan own_inbox;
    struct mr_chan *inbox;

    struct mr_uuid store_id;
    uint32_t salt;
    struct mr_file *lock_file;
    struct mr_file *board_file;
    _Atomic uint64_t *board;       /* epoch of the run in each slot; survives the process ... */
    _Atomic uint64_t *own_board;   /* ... unless it stands here; see nodes_elsewhere */
    uint8_t slot_use[BOARD_SLOTS]; /* enum slot_use */
    bool other_boot;               /* the last life ended with the machine, or before it */
    struct mr_log *log;
    struct state state;
    size_t payload_max;
    bool closing;

    mr_mono now;            /* of this turn */
    int64_t now_up_ms;      /* wall, rounded up: a delay from now is never short */
    int64_t now_ms, now_us; /* wall, of this turn */
    mr_mono started;
    struct mr_wheel *wheel; /* ticks are ms since started */

    struct mr_link waiting;               /* answered, but for durability; by wait_seq */
    struct mr_link stalled;               /* not carried out yet for want of a segment; in order */
    struct mr_link granted;               /* takes to be answered once written */
    struct mr_link awaits[AWAIT_BUCKETS]; /* for the end of a task, by its handle: await.c */
    size_t awaits_n;
    struct mr_link gathers;           /* waiting for a ripe group: gather.c */
    struct mr_link sets[SET_BUCKETS]; /* in somebody's hands, by name; they end with the engine */

    struct leadership leadership;
    struct mr_link assignments; /* as leaders wrote them */
    struct mr_link nodes;
    uint32_t node_numbers;
    struct node *nodes_by_number[NODES_MAX];
    size_t in_hand;                       /* of all nodes */
    size_t in_hand_leaving;               /* of them, tasks with a topic */
    struct mr_buf result, result_message; /* of result.c, in the making */

    uint64_t last_epoch;
    uint64_t ceiling, ceiling_asked; /* durable; in the log */
    uint64_t ceiling_seq;

    struct limits *limits;
    struct tallies tallies;
    struct diary diary;

    struct snapshot *snapshot; /* NULL: none in the making */
    struct spare spare;
    uint32_t snap_term;
    uint64_t snap_seq;       /* covered by the newest snapshot */
    uint64_t snap_bytes;     /* its size */
    uint64_t snap_log_bytes; /* bytes appended when it was begun */
    uint32_t compacting;     /* segment being emptied, 0: none */
    uint32_t compact_offset;
    uint32_t watched; /* segment that may be emptied next, what lived in it, and when that was */
    uint64_t watched_live, watched_at;
    bool watched_enough;    /* by the time that has passed */
    bool compact_waits;     /* for room in the log */
    struct backup *backup;  /* under way */
    struct mr_link backups; /* requests waiting for it */
    struct mr_timer space_timer, ceiling_timer, watch_timer, fall_timer, sweep_timer;
    uint64_t marked_seq; /* of the last mark; enough as long as no record is behind it */
    enum mr_err failure; /* the state no longer equals the log: out of memory while applying */

    int64_t runs_ms; /* time in the newest record of runs */
    uint64_t appended_bytes;
    uint64_t records_damaged, stale_refused, snapshots, texts_dropped, quarantined;
    uint64_t carried, moved; /* tasks that came from, and went to another broker */
    uint64_t torn_bytes;     /* cut off the end of the log at the start */
};

/* ---- engine.c ------------------------------------------------------------------------------- */

/* Gives the answer when everything it can be based on is durable; mr_req_answer gives it now. */
void answer(struct mr_engine *engine, struct mr_req *req, enum mr_err err);
uint64_t tick_of(const struct mr_engine *engine, mr_mono at);
/* Appends a record whose body is given, and answers its number; 0 when the log or memory failed
 * (engine->failure or the log's says why). After log_room said yes. */
uint64_t log_bytes(struct mr_engine *engine, enum mr_record_type type, enum mr_log_wait wait,
                   const void *body, size_t len, struct mr_log_pos *ret_pos);
/* A run that begins or ends; joins the record of the one before where it can. 0: out of memory. */
uint64_t log_run(struct mr_engine *engine, enum mr_record_type type, enum mr_log_wait wait,
                 const struct mr_event_run *run);
/* Logs and applies a change of a task. */
MR_MUST_USE enum mr_err change_task(struct mr_engine *engine, enum mr_record_type type,
                                    uint32_t handle, const struct mr_event_change *change);
/* A change that leaves the task as it is, to be varied. */
struct mr_event_change change_of(const struct mr_engine *engine, uint32_t handle);
/* The task ends: where it stood in the order is kept, since its key will be another time. */
void change_to_end(const struct mr_engine *engine, struct mr_event_change *change,
                   enum mr_state state, int64_t key);
/* MR_OK, or why nothing is accepted any more. */
enum mr_err engine_failure(const struct mr_engine *engine);
/* Notes that applying failed after logging: nothing is accepted from now on. */
void engine_fail(struct mr_engine *engine, enum mr_err err);
/* The checked record of a task. */
MR_MUST_USE enum mr_err read_message(struct mr_engine *engine, const struct task *task,
                                     int64_t *ret_created_ms, struct mr_task_msg *ret_msg,
                                     struct mr_slice *ret_bytes);
/* Sets a task whose record cannot be read aside, in the archive. */
MR_MUST_USE enum mr_err quarantine_task(struct mr_engine *engine, uint32_t handle);

/* What a request handler says: done with it, or put it back until there is room. */
enum handled { HANDLED, STALLED };
typedef enum handled request_handler(struct mr_engine *engine, struct mr_req *req);

request_handler handle_enqueue, handle_node_open, handle_node_close, handle_take, handle_beat,
    handle_finish, handle_control, handle_get, handle_list, handle_queue_list, handle_queue_history,
    handle_queue_set, handle_queue_remove, handle_stats, handle_backup, handle_await,
    handle_unawait, handle_node_list, handle_gather, handle_gathered, handle_queue_limits,
    handle_assign;

/* ---- enqueue.c ------------------------------------------------------------------------------ */
/* What is encoded of an enqueue or a gathered; on the caller's thread, and given up. */
void prepare_request(struct mr_engine *engine, struct mr_req *req);
void unprepare_request(struct mr_req *req);
/* The members, all in one set, become the task; or why it is refused. */
MR_MUST_USE enum mr_err enqueue_gathered(struct mr_engine *engine, struct mr_req_gathered *req,
                                         struct queue *queue, const uint32_t *members, size_t n);
/* The queue of this name, made if need be. */
MR_MUST_USE enum mr_err ensure_queue(struct mr_engine *engine, struct mr_slice name,
                                     struct queue **ret_queue);
MR_MUST_USE enum mr_err log_queue(struct mr_engine *engine, const struct mr_event_queue *event,
                                  struct queue **ret_queue);

/* ---- node.c --------------------------------------------------------------------------------- */
struct node *find_node(const struct mr_engine *engine, uint64_t id);
void node_listen_again(struct mr_engine *engine, struct queue *queue); /* a queue was made */
void node_forget_queue(struct mr_engine *engine, struct queue *queue); /* and removed */
void node_lease_ended(uint32_t task, void *arg);
void nodes_free(struct mr_engine *engine);
/* What is left of a lease whose holder is gone. */
MR_MUST_USE enum mr_err lose_lease(struct mr_engine *engine, uint32_t handle, bool begun);
bool board_has(const struct mr_engine *engine, uint32_t first, uint32_t n, uint64_t epoch);

/* ---- take.c --------------------------------------------------------------------------------- */
void serve_ready(struct mr_engine *engine);
void answer_granted(struct mr_engine *engine);
/* The first take that waits for this queue of the node; NULL: none. */
struct mr_req_take *waiting_take(const struct node *node, size_t queue);
void take_cancel_waits(struct mr_engine *engine, struct node *node, enum mr_err err);
enum mr_err embedded_lease_open(struct mr_broker *broker, struct mr_lease *lease);
void renew_ceiling(struct mr_engine *engine);
/* One above all that were; it is used up once it is engine->last_epoch. MR_BUSY: not just now. */
MR_MUST_USE enum mr_err next_epoch(struct mr_engine *engine, uint64_t *ret_epoch);

/* Its takes that wait get what there is for them now. */
void take_serve_node(struct mr_engine *engine, struct node *node);
/* What a take would be given of a partition. MR_EMPTY: nothing, limits keep all of it. */
MR_MUST_USE enum mr_err take_first(struct mr_engine *engine, struct queue *queue, unsigned part,
                                   uint32_t *ret_handle);
/* It has something that may be taken now. */
bool take_has_some(const struct mr_engine *engine, const struct queue *queue);
/* Where it stands in the order; and since when it can run. */
int64_t take_order_ms(const struct mr_engine *engine, const struct task *task);
MR_MUST_USE enum mr_err take_ready_us(struct mr_engine *engine, const struct task *task,
                                      int64_t *ret_us);

/* ---- control.c ------------------------------------------------------------------------------ */
/* Logs it and forgets it, with what it holds. */
MR_MUST_USE enum mr_err remove_queue(struct mr_engine *engine, struct queue *queue,
                                     enum mr_queue_remove_mode mode);

/* ---- fall.c --------------------------------------------------------------------------------- */
void fall_init(struct mr_engine *engine);
/* What falls to the node of the listen, as if it were in its queue: the first by order time. NO_HANDLE: nothing. */
uint32_t fall_first(struct mr_engine *engine, const struct listen *listen);
/* Somebody waits, or something came, so that it may fall: it will be looked at in time. */
void fall_watch(struct mr_engine *engine);

/* ---- leader.c ------------------------------------------------------------------------------- */
/* A node beats: it may lead from now on, or goes on to. Fills in the answer. */
void leader_beat(struct mr_engine *engine, struct node *node, struct mr_req_beat *req);
void leader_left(struct mr_engine *engine, const struct node *node); /* a node goes */
/* Nobody has led for so long; 0: somebody leads. */
int64_t leader_missing_ms(struct mr_engine *engine);
/* What a leader wrote of this node; false: none wrote whose the partitions of the queue are. */
bool assignment_owned(const struct mr_engine *engine, const struct queue *queue,
                      const struct node *node, uint64_t *ret_owned);
/* The queue has another number of partitions: those without an owner go to who has the least, under a new version,
 * so that no version that is in force has a hole. The leader evens it out. */
void assignment_refit(struct mr_engine *engine, const struct queue *queue);
void assignments_forget(struct mr_engine *engine, const struct queue *queue);
void assignments_free(struct mr_engine *engine);
/* The leader and what it wrote, for the list of nodes. */
MR_MUST_USE enum mr_err leader_show(struct mr_engine *engine, struct mr_req_node_list *req);

/* ---- parts.c -------------------------------------------------------------------------------- */
struct item; /* of enqueue.c */
struct part_choice {
    uint8_t part;
    bool in_turns, full;
};
/* Where a task goes; MR_INVALID: the queue has no such partition. Once it is there: part_chosen. */
MR_MUST_USE enum mr_err part_choose(const struct queue *queue,
                                    const struct mr_task_options *options, const struct item *item,
                                    struct part_choice *ret_choice);
void part_chosen(struct queue *queue, struct part_choice choice);
/* The store was read: whose turn it is in each queue. */
void parts_begin(const struct state *state);
/* From which of several partitions a node takes next; there is something in one. */
unsigned part_to_take(struct listen *listen);
/* Shares the partitions among the nodes that are there; and those of all queues of a node. */
void parts_assign(struct mr_engine *engine, const struct queue *queue);
void node_parts_assign(struct mr_engine *engine, const struct node *node);

/* ---- limit.c -------------------------------------------------------------------------------- */
MR_MUST_USE enum mr_err limits_new(struct mr_engine *engine);
void limits_free(struct mr_engine *engine);
/* The state is there. */
MR_MUST_USE enum mr_err limits_start(struct mr_engine *engine);
MR_MUST_USE enum mr_err limits_changed(struct mr_engine *engine, struct queue *queue);
void limits_forget_queue(struct queue *queue); /* it is about to go */
/* What may be taken of a partition now. MR_EMPTY: nothing, and it counts as empty from now on. MR_BUSY: a
 * later turn looks on. */
MR_MUST_USE enum mr_err limiter_first(struct limiter *limiter, unsigned part, uint32_t *ret_handle);
/* That was taken; and the lease of such a task ends. */
MR_MUST_USE enum mr_err limiter_taken(struct limiter *limiter, uint32_t handle);
void limiter_ended(struct limiter *limiter, struct more *more);
/* A turn begins; and whether passing over goes on in the next one. */
/* Retries of a class of their own that waited too long become pending; or the first of them, if nothing else
 * can be taken. MR_BUSY: enough for this turn. */
MR_MUST_USE enum mr_err limits_ready_retry(struct mr_engine *engine, struct queue *queue);
void limits_turn(struct mr_engine *engine);
bool limits_looking(const struct mr_engine *engine);

/* ---- tally.c -------------------------------------------------------------------------------- */
/* Where tasks of this type are counted in the queue. */
uint16_t tally_number(struct mr_engine *engine, struct queue *queue, struct mr_slice type);
void tally_enqueued(struct mr_engine *engine, struct queue *queue, struct mr_slice type);
/* A run has ended by a finish, and with it maybe its task: as the change says. */
/* How a run ended by this finish, in a word; NULL: it counts as no run. */
const char *tally_word(const struct mr_finish *item, enum mr_state becomes);
void tally_finish(struct mr_engine *engine, struct queue *queue, uint16_t number,
                  const struct mr_finish *item, enum mr_state becomes);
/* A run has ended with its worker. */
void tally_lost(struct mr_engine *engine, struct queue *queue, uint16_t number, bool begun,
                const struct mr_event_change *change);
MR_MUST_USE enum mr_err tally_show(const struct mr_engine *engine, const struct queue *queue,
                                   struct mr_arena *arena, struct mr_queue_meters *meters);
void tally_forget_queue(struct mr_engine *engine, struct queue *queue); /* it is about to go */
void tallies_free(struct mr_engine *engine);

/* ---- diary.c -------------------------------------------------------------------------------- */
/* A task with its run, if it runs, before that ends. */
struct diary_run {
    struct mr_uuid id;
    int64_t started_ms;
    uint32_t attempt;
    const char *node; /* lives as long as the node; NULL: none */
};
void diary_init(struct diary *diary);
void diary_done(struct diary *diary);
struct diary_run diary_run(const struct mr_engine *engine, uint32_t handle);
/* what lives as long as the program. */
void diary_add(struct mr_engine *engine, const struct diary_run *run, const char *what,
               struct mr_slice text);
/* Into task->past. */
MR_MUST_USE enum mr_err diary_show(struct mr_engine *engine, const struct mr_uuid *id,
                                   struct mr_arena *arena, struct mr_task *task);

/* ---- finish.c ------------------------------------------------------------------------------- */
/* Far ahead its task is fetched, near ahead what the task leads to. */
enum finish_distance { FINISH_FAR, FINISH_NEAR };
void finish_prefetch(const struct mr_engine *engine, const struct mr_req *req,
                     enum finish_distance distance);

/* ---- result.c ------------------------------------------------------------------------------- */
/* What the record of a result has beside the change and its text, at most. */
enum {
    RESULT_ROOM = MR_EVENT_RESULT_SIZE - MR_EVENT_CHANGE_SIZE + MR_TASK_FIXED + 2 * MR_NAME_MAX +
                  MR_RESULT_HEAD_MAX
};
/*
 * Logs and applies the end of a run of a task that has a topic: as change_task, and its result comes
 * in the same record. text is its result, or its error; the text of the change is that, or none.
 */
MR_MUST_USE enum mr_err change_with_result(struct mr_engine *engine, enum mr_record_type type,
                                           uint32_t handle, const struct mr_event_change *change,
                                           enum mr_result_outcome outcome, struct mr_slice text);
/* The queue of a topic, made if need be. */
MR_MUST_USE enum mr_err ensure_results(struct mr_engine *engine, struct mr_slice topic);

/* ---- store.c -------------------------------------------------------------------------------- */
MR_MUST_USE enum mr_err store_open(struct mr_engine *engine, struct mr_detail *detail);
void store_close_files(struct mr_engine *engine);

/* ---- snapshot.c ----------------------------------------------------------------------------- */
/* A crash may have left older ones behind. */
void snapshot_remove_older(struct mr_engine *engine);
MR_MUST_USE enum mr_err snapshot_begin(struct mr_engine *engine);
void snapshot_step(struct mr_engine *engine);
void snapshot_touch(uint32_t task, void *arg);
void snapshot_abandon(struct mr_engine *engine);
/* It can go on: it waits for no chore and no sync. */
bool snapshot_idle(const struct mr_engine *engine);

/* ---- show.c --------------------------------------------------------------------------------- */
MR_MUST_USE enum mr_err show_task(struct mr_engine *engine, uint32_t handle, bool with_payload,
                                  struct mr_arena *arena, struct mr_task *ret_task);
/* The same for an answer: MR_NOT_FOUND for NO_HANDLE, MR_IO when a store that has stopped leaves
 * open what became of it. */
MR_MUST_USE enum mr_err show_known_task(struct mr_engine *engine, uint32_t handle,
                                        struct mr_arena *arena, struct mr_task *ret_task);

/* ---- await.c -------------------------------------------------------------------------------- */
enum task_end {
    TASK_END_KEPT, /* completed or archived, and there to be seen */
    TASK_END_LEFT, /* about to go, done: as if it were completed */
    TASK_END_GONE, /* about to go by somebody's wish */
};
/* The record of its end is in the log: whoever waits for it is answered when that is durable. */
void await_end(struct mr_engine *engine, uint32_t handle, enum task_end end,
               struct mr_slice result);
void await_queue_gone(struct mr_engine *engine, const struct queue *queue);
void await_fail_all(struct mr_engine *engine, enum mr_err err);
void await_validate(const struct mr_engine *engine);

/* ---- gather.c ------------------------------------------------------------------------------- */
/* Whether a member is in somebody's hands. */
bool in_set(const struct state *state, uint32_t handle);
/* Queues whose groups got members: those who wait for a ripe one are served. */
void serve_gathers(struct mr_engine *engine);
void gather_again(struct mr_engine *engine, struct queue *queue);        /* a queue was made */
void gather_forget_queue(struct mr_engine *engine, struct queue *queue); /* and is removed */
void gather_fail_all(struct mr_engine *engine, enum mr_err err);
void sets_free(struct mr_engine *engine);
void gather_validate(const struct mr_engine *engine);

/* ---- space.c -------------------------------------------------------------------------------- */
/* mr_log_room, or the engine's own failure. */
MR_MUST_USE enum mr_err log_room(struct mr_engine *engine, size_t body_len, enum mr_log_use use);
/* The same for what can wait while the disk is full: in_hand tasks can still be finished behind
 * it. */
MR_MUST_USE enum mr_err log_room_beside(struct mr_engine *engine, size_t body_len, size_t in_hand);
/* The same for the end of a run, with a result or error of text_len bytes, in a record of size bytes
 * with it. */
MR_MUST_USE enum mr_err log_room_finish(struct mr_engine *engine, size_t size, size_t text_len);
/* Bytes of the log beside those that finishing what is in hand may take. */
uint64_t log_left_beside(const struct mr_engine *engine);
/* Looks at the disk, once the store is open. */
void spare_begin(struct mr_engine *engine);
/* Keeps the space for the next snapshot. */
void spare_keep(struct mr_engine *engine);
void spare_retry(struct mr_engine *engine);
/* The snapshot has used it, or given it up. */
void spare_used(struct mr_engine *engine);

/* ---- compact.c ------------------------------------------------------------------------------ */
void maintain(struct mr_engine *engine);

/* ---- backup.c ------------------------------------------------------------------------------- */
void backup_abandon(struct mr_engine *engine);
/* True when one is under way. */
bool backup_start_waiting(struct mr_engine *engine);

#endif
