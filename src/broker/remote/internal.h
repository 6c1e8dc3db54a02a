/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of the remote engine and what they share.
 *
 * remote.c   the connection: opening, closing, requests in, what leaves in a turn
 * unary.c    requests that are one call each: looking and acting
 * await.c    waiting for the end of a task, also over a broken connection
 * lane.c     requests of many small items that share messages and are answered in order
 * enqueue.c  the stream of producers: one lane
 * carry.c    tasks that come from another broker
 * node.c     a worker's stream: its life, from Hello over broken connections to Bye
 * work.c     what goes over that stream: takes, finishes (a lane), beats, what is in hand
 * begun.c    and which runs have begun
 * groups.c   gathering what groups have
 * read.c     the small messages of a server, and how its calls end
 * probe.c    a question to the server when it is opened
 * stream.c   calls of many messages, for a thread that waits
 *
 * Threads: a request is checked and encoded by its caller (prepare); everything else happens on the
 * loop of the rpc, which is the broker's thread. The only thing both touch is the board of begun
 * runs.
 *
 * What a turn of the loop brings is sent at its end (remote_flush_soon), so that requests which came
 * together leave together: the finishes of all slots as one message, the tasks of all waiting
 * producers as another.
 */
#ifndef MR_BROKER_REMOTE_INTERNAL_H
#define MR_BROKER_REMOTE_INTERNAL_H

#include "base/buf.h"
#include "broker/board.h"
#include "broker/door.h"
#include "broker/doubt.h"
#include "broker/remote/remote.h"
#include "wire/flat.h"

enum {
    AWAY_MS = 10 * 1000,   /* tasks not sent yet wait so long for a connection */
    AGAIN_MS = 100,        /* a stream that ended by itself is opened again after this */
    ANSWER_MS = 10 * 1000, /* a server that has not said Welcome, or taken leave, by then hangs */
    GRACE_MS = 5000,       /* of servers that do not say theirs */
    MESSAGE_BYTES = 1024 * 1024, /* of a message of many items */
    LANE_MESSAGES = 1024,        /* of a lane, without an answer */
    AWAITS_MAX = 512, /* a server takes 1000 calls of a connection, and others must pass */
    NODES_MAX = MR_BOARD_NODES,
    FIELDS_MAX = 4, /* numbers of fields in the small messages of a server */
};

struct remote;
struct ticket;

/* ---- requests ------------------------------------------------------------------------------- */

/* How a request is carried out; one row per operation. */
struct op {
    /* The caller's thread: checks, encodes. What is not MR_OK is the answer. NULL: nothing to do.
     */
    enum mr_err (*prepare)(struct ticket *ticket);
    void (*begin)(struct ticket *ticket);
    /* Of a single call: reads its answer. NULL: there is nothing in it. */
    enum mr_err (*read)(struct ticket *ticket, struct mr_slice bytes);
    /* Whether another call is needed; then it is encoded. NULL: never. */
    bool (*more)(struct ticket *ticket);
};

/* What a request needs on its way, in its arena. */
struct ticket {
    struct remote *remote;
    struct mr_req *req;
    const struct op *op;
    struct mr_link link; /* in the list of whoever has the request */
    enum mr_err err;     /* of prepare; of read */
    /* A single call. */
    const char *path;
    struct mr_slice body;
    struct mr_slice next; /* where the answer says that the next page begins */
    struct mr_call *call; /* while it is under way */
    bool left;            /* it was, at some time */
    bool answered;
    bool unwanted;      /* it ends before it has begun */
    struct await *wait; /* of an await */
    bool awaits;        /* it counts among those */
    /* Of a lane: entries, one behind the other, each a field of the message they go into. */
    uint8_t *entries;
    size_t bytes, at;        /* all; those before at are sent */
    size_t n, sent, replied; /* entries */
    size_t doubtful;         /* of them, sent before on a stream that broke */
    size_t item;             /* of the request: the next answer is for it or a later one */
    size_t refused;          /* with a message, as a whole */
    bool repeatable;         /* a second try does no harm */
    /* A take or a beat. */
    uint32_t tag; /* 0: not sent */
};

/* NULL: memory ran out when it was submitted. */
struct ticket *ticket_of(const struct mr_req *req);
/* Answers; the ticket is gone afterwards. */
void ticket_answer(struct ticket *ticket, enum mr_err err);
void tickets_answer(struct mr_link *tickets, enum mr_err err);

/* What the server said with a refusal, for whoever wants to know; before it is answered. */
void remote_refused(const struct remote *remote, enum mr_err err, struct mr_slice text);

/* How a call ended, in our words, and whether it was our server that said so. */
enum mr_err call_err(const struct mr_call *call, int status);
bool call_said(const struct mr_call *call);

/* ---- small messages ------------------------------------------------------------------------- */

/* The fields of a message by their numbers; of repeated ones the last. */
struct fields {
    uint64_t value[FIELDS_MAX + 1];
    struct mr_slice bytes[FIELDS_MAX + 1];
};
MR_MUST_USE enum mr_err fields_read(struct mr_slice bytes, struct fields *ret_fields);
enum mr_err code_of(uint64_t code);
/* The field `number` of the messages: a repeated Code. Fills n; none at all means that all are OK.
 */
MR_MUST_USE enum mr_err codes_read(struct mr_slice bytes, uint32_t number, enum mr_err *ret_codes,
                                   size_t n);

/* ---- lanes ---------------------------------------------------------------------------------- */

struct lane {
    struct mr_link tickets; /* not answered, in order; sent ones first */
    struct ticket *next;    /* the first with entries to send; NULL: all are sent */
    /* Messages without an answer: how many entries each has. */
    uint16_t counts[LANE_MESSAGES];
    uint32_t tag_sent, tag_replied; /* of the last message; they rise by one */
    const struct lane_kind *kind;
};

struct lane_kind {
    /* Bytes before the entries of a message, and writing them. */
    size_t (*head_size)(size_t entries_bytes);
    uint8_t *(*head)(uint8_t *at, size_t entries_bytes, uint32_t tag);
    /* Where the error of an item stands; what is not MR_OK there was refused at the door. */
    enum mr_err *(*item_err)(struct ticket *ticket, size_t item);
    /* Of a ticket that waited for those before it. */
    void (*begin)(struct ticket *ticket);
};

void lane_init(struct lane *lane, const struct lane_kind *kind);
bool lane_unsent(const struct lane *lane);
/* Answered at once when none of its items got an entry. */
void lane_add(struct lane *lane, struct ticket *ticket);
/* A ticket of another kind: it is begun when all that is there now has its answer. */
void lane_wait(struct lane *lane, struct ticket *ticket);
/* Sends until all is sent or the call has enough for now. */
void lane_send(struct lane *lane, struct mr_call *call);
/* Answers came for the oldest message, which has *ret_n entries. MR_INVALID: there is none. */
MR_MUST_USE enum mr_err lane_replied(struct lane *lane, size_t *ret_n);
/* The ticket and the item that the next answer is for; then that it was given. With the last one the
 * ticket is answered with its err. */
struct ticket *lane_head(struct lane *lane, size_t *ret_item);
void lane_next(struct lane *lane);
/* How a stream ended: it broke, and what was sent without an answer may have been carried out or not;
 * or the server ended it, and has not carried that out. */
enum lane_end { LANE_BROKE, LANE_ENDED };
/* The stream is gone: what was sent without an answer is to be sent again, unless keep says no: then
 * it is answered with err. */
void lane_rewind(struct lane *lane, enum lane_end end, bool (*keep)(const struct ticket *ticket),
                 enum mr_err err);
bool lane_keep_all(const struct ticket *ticket);
bool lane_keep_none(const struct ticket *ticket);
/* Answers all of it. */
void lane_fail(struct lane *lane, enum mr_err err);

/* ---- nodes ---------------------------------------------------------------------------------- */

enum node_state {
    NODE_OPENING,  /* Hello is sent for the first time */
    NODE_ATTACHED, /* Welcome came */
    NODE_AWAY,     /* the stream broke; the fence runs */
    NODE_LEAVING,  /* Bye is sent, or will be behind the last finish */
    NODE_DEAD,     /* fenced, or refused by the server: waits to be closed */
};

/* A task in hand. */
struct hold {
    uint64_t epoch; /* 0: free */
    uint32_t next_free;
};

struct node {
    struct mr_link link; /* in remote->nodes */
    struct remote *remote;
    uint32_t number;
    enum node_state state;
    struct mr_call *call; /* NULL: none */
    struct mr_arena memory;
    /* What Hello says. */
    struct mr_slice name;
    const struct mr_worker_queue *queues;
    size_t queues_n;
    const struct mr_slice *types; /* of a master: its topics */
    size_t types_n;
    enum mr_queue_order order;
    enum mr_node_role role;
    bool lasts, leads;
    uint32_t slots, first_slot;
    int64_t lease_ms, leader_ms, fall_ms;
    uint64_t incarnation;
    struct mr_node_events events;

    int64_t grace_ms;
    struct mr_timer fence; /* while away: it is over; opening and leaving: the server hangs */
    struct mr_timer again; /* while away: attach again */
    struct ticket *ticket; /* opening or leaving; NULL: the broker closes */
    bool bye_sent;
    bool resumed; /* by the last Welcome */

    struct mr_link takes, beats;
    uint32_t last_tag;
    struct lane finishes;
    struct hold *holds;
    uint32_t holds_n, holds_cap, holds_free; /* free: index + 1, 0 none */
};

/* NULL when there is none of this handle. */
struct node *node_find(struct remote *remote, uint64_t handle);
enum mr_err remote_prepare_node_open(struct ticket *ticket);
void remote_begin_node_open(struct ticket *ticket);
void remote_begin_node_close(struct ticket *ticket);
/* The connection is there. */
void nodes_attach(struct remote *remote);
/* The broker closes. */
void nodes_leave(struct remote *remote);

/* ---- work on a node's stream ---------------------------------------------------------------- */

void node_work_init(struct node *node);
/* Sends one message of the oneof in WorkerMessage; a call that is over takes none. */
void node_say(struct node *node, unsigned number, struct mr_slice message);
enum mr_err remote_prepare_finish(struct ticket *ticket);
void remote_begin_finish(struct ticket *ticket);
void remote_begin_take(struct ticket *ticket);
void remote_begin_beat(struct ticket *ticket);
/* Sends what is there to be sent. */
void node_send(struct node *node);
/* The stream is gone: everything without an answer is sent again on the next one. */
void node_detached(struct node *node);
/* Answers everything: the node is no more. */
void node_fail(struct node *node);
/* Tells the holder that all its leases are lost. */
void node_lose_all(struct node *node);
MR_MUST_USE enum mr_err node_told_tasks(struct node *node, struct mr_slice bytes);
MR_MUST_USE enum mr_err node_told_finished(struct node *node, struct mr_slice bytes);
MR_MUST_USE enum mr_err node_told_beaten(struct node *node, struct mr_slice bytes);
MR_MUST_USE enum mr_err node_told_stop(struct node *node, struct mr_slice bytes);
MR_MUST_USE enum mr_err node_told_wanted(struct node *node, struct mr_slice bytes);
enum mr_err remote_lease_open(struct mr_broker *broker, struct mr_lease *lease);

/* ---- begun runs ----------------------------------------------------------------------------- */

/* The loop has sent what was there. */
void begun_flushed(struct remote *remote);
/* Thread: any. */
void remote_begun(struct mr_broker *broker, uint32_t slot, uint64_t epoch);
/* Says what the server does not know. */
void begun_send(struct node *node);
/* It knows nothing of what runs here. */
void begun_unsaid(struct node *node);

/* ---- producing ------------------------------------------------------------------------------ */

struct producer {
    struct mr_call *call;
    struct lane lane;
    struct mr_timer again;  /* opens the stream again */
    struct mr_timer expiry; /* runs while tasks wait for a connection */
    bool gave_up;           /* it fired: until there is one, nothing waits */
};

void producer_init(struct remote *remote);
enum mr_err remote_prepare_enqueue(struct ticket *ticket);
void remote_begin_enqueue(struct ticket *ticket);
/* Sends what waits, opening the stream if need be. */
void producer_send(struct remote *remote);
/* The connection is there. */
void producer_up(struct remote *remote);
/* The connection is gone: what is not sent is given back, for another server. */
void producer_give_up(struct remote *remote);
/* The broker closes: what is not sent will not be. */
void producer_leave(struct remote *remote);

/* ---- single calls --------------------------------------------------------------------------- */

extern const struct op unary_ops[MR_OP_COUNT];
/* Behind the tasks that were enqueued before; and now. */
void unary_wait(struct ticket *ticket);
void unary_begin(struct ticket *ticket);
/* What its call says. */
MR_MUST_USE enum mr_err unary_encode(struct ticket *ticket, const char *path,
                                     const struct mr_flat *flat, const void *in);
/* Whether a task can have such an id. */
bool unary_is_id(struct mr_slice id);
enum mr_err remote_read_finish(struct ticket *ticket, struct mr_slice bytes);

/* ---- tasks of another broker ---------------------------------------------------------------- */

/* Of an enqueue with carried tasks, which becomes a single call. */
enum mr_err remote_prepare_carry(struct ticket *ticket);

/* ---- groups --------------------------------------------------------------------------------- */

enum mr_err remote_prepare_gather(struct ticket *ticket);
enum mr_err remote_read_gather(struct ticket *ticket, struct mr_slice bytes);
bool remote_more_gather(struct ticket *ticket);
enum mr_err remote_prepare_gathered(struct ticket *ticket);
void remote_begin_gathered(struct ticket *ticket);
enum mr_err remote_read_gathered(struct ticket *ticket, struct mr_slice bytes);

/* ---- waiting for tasks ---------------------------------------------------------------------- */

enum mr_err remote_prepare_await(struct ticket *ticket);
void remote_begin_await(struct ticket *ticket);
enum mr_err remote_read_await(struct ticket *ticket, struct mr_slice bytes);
void remote_begin_unawait(struct ticket *ticket);
/* The connection broke before its answer: whether it goes on with the next one. */
bool await_away(struct ticket *ticket);
/* The connection is there. */
void awaits_up(struct remote *remote);
/* The broker closes. */
void awaits_leave(struct remote *remote);

/* Whether the server has our namespace. Thread: any but the loop. */
MR_MUST_USE enum mr_err remote_probe(struct remote *remote, struct mr_detail *detail);

/* ---- the whole ------------------------------------------------------------------------------ */

struct remote {
    struct mr_broker broker;
    struct mr_rpc *rpc;
    struct mr_channel *channel;
    char *authorization;
    struct mr_buf namespace_; /* as metadata, with a NUL; empty: none */
    size_t payload_max;
    mr_refusal *refused;
    void *refused_arg;
    int64_t away_ms, answer_ms;
    bool up, closing;
    bool shares; /* the loop is another's, who is told of the connection: */
    void (*changed)(bool up, void *arg);
    void *changed_arg;

    struct producer producer;
    struct mr_link calls;  /* single ones under way, by ticket */
    struct mr_link awaits; /* those that wait for a connection */
    uint32_t awaits_n;     /* all */
    struct mr_link nodes;
    struct node *by_index[NODES_MAX];
    uint32_t last_number;

    /* The flush at the end of a turn: posted once, by the loop or by whoever begins a run. */
    struct mr_msg flush;
    _Atomic bool flush_posted;
    struct mr_board board;

    /* Opening and closing, by other threads. */
    struct mr_door door;
    struct mr_msg close;
    bool leaves; /* closing has begun */
    struct mr_timer close_timer;
};

/* What is to be sent leaves at the end of the turn. Thread: any. */
void remote_flush_soon(struct remote *remote);
/* While closing: tells the closer when nothing is left. */
void remote_quiet(struct remote *remote);

#endif
