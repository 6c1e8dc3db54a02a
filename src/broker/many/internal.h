/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of the engine of several servers and what they share.
 *
 * many.c    its life, the list of servers, requests in
 * route.c   which server
 * put.c     tasks: to one server each
 * fan.c     questions to all servers
 * merge.c   ... and how their answers become one
 * one.c     requests for one server, or one after the other
 * node.c    nodes: attached to every server, beats
 * take.c    takes, one for all servers
 * finish.c  finishes, to where the task was taken
 *
 * Everything happens on one loop, which the remote engines live on as well. What other threads touch is behind
 * the lock.
 *
 * Epochs: each server has its own, so two of them may give out the same one. A lease, and every task that is
 * shown, has its epoch with the number of its server in the highest bits, which also says where it came from. They rise as
 * a task's epochs do, since it stays where it is. Terms of leaders likewise.
 */
#ifndef MR_BROKER_MANY_INTERNAL_H
#define MR_BROKER_MANY_INTERNAL_H

#include "broker/many/many.h"

enum {
    ORIGINS_MAX = MR_MANY_SERVERS_MAX,
    ORIGIN_SHIFT = MR_EPOCH_BITS, /* of a server's number in an epoch */
    AWAY_MS = 10 * 1000,          /* tasks wait so long for a server */
    OPEN_MS = 10 * 1000,          /* a node likewise */
    OTHERS_MS = 1000,             /* with one server there, the others are waited for so long */
    ASK_MS = 500,
    FAN_MS = 5000,
    TICK_MS = 200,
    BEAT_MS = 1000, /* who has not answered by then is not waited for, if another one has */
    SPARE_MS = 20,  /* a lease that nobody waits for is kept so long */
    BACKOFF_MS = 200,
    BACKOFF_MAX_MS = 5000,
    EARLY_MAX = 32,
    NODES_MAX = 1024,
    SLOT_BITS = 16,
};
_Static_assert(ORIGINS_MAX < 1 << (64 - ORIGIN_SHIFT), "an epoch holds the number of a server");
_Static_assert(MR_SLOTS_MAX <= 1 << SLOT_BITS, "a slot's number holds its node's");

struct many;

/* ---- servers -------------------------------------------------------------------------------- */

/* A server that is or was in the list. It stays as long as the engine, until its place is needed for another one. */
struct origin {
    struct many *many;
    uint32_t index;
    uint64_t hash; /* of the address */
    struct mr_broker *broker;
    bool up, listed; /* changed on the loop, under the lock */
    bool told;       /* ... likewise: whether it is there was known at some time */
    char address[MR_MANY_ADDRESS_MAX];
};

struct many {
    struct mr_broker broker;
    struct mr_rpc *rpc;
    struct mr_remote_options server; /* its texts are in memory */
    struct mr_rpc_tls tls;
    struct mr_arena memory;
    int64_t ask_ms, fan_ms;
    struct mr_lock lock; /* of servers, up and listed, and of nodes' places */
    struct origin *origins[ORIGINS_MAX];
    size_t origins_n;    /* rises */
    _Atomic size_t turn; /* of round robin */
    bool closing;
    struct mr_link puts; /* tasks that wait for a server */
    struct mr_link fans;
    struct mr_link nodes;
    struct many_node *by_index[NODES_MAX];
    size_t last_index;
    struct origin *led; /* where the last term was given that we know of */
    struct mr_timer tick;
};

void many_tick_soon(struct many *many);

/* ---- route.c -------------------------------------------------------------------------------- */

/* Those that are in the list and there, by index; a bit for each. And all that are there. */
uint64_t live_origins(const struct many *many);
uint64_t up_origins(const struct many *many);
uint64_t listed_origins(const struct many *many);
/* Of these the one whose turn it is; NULL: there is none. */
struct origin *origin_in_turn(struct many *many, uint64_t among);
/* Of these the first for a key. */
struct origin *origin_for(const struct many *many, uint64_t among, uint64_t key);
/* Where a task must go, if it may not go anywhere: 0. */
uint64_t key_of(const struct mr_task_options *task);

/* Epochs, and terms, as they are shown and as the server knows them. 0 is none. */
uint64_t shown_epoch(const struct origin *origin, uint64_t epoch);
uint64_t own_epoch(uint64_t shown);
/* Where it came from; NULL: it does not say. */
struct origin *origin_of(const struct many *many, uint64_t shown);

/* ---- put.c ---------------------------------------------------------------------------------- */

void begin_enqueue(struct many *many, struct mr_req *req);
/* A server has come, or time has passed. */
void puts_go_on(struct many *many);
void puts_fail(struct many *many, enum mr_err err);

/* ---- fan.c ---------------------------------------------------------------------------------- */

struct fan;

/* One server's share of a question. */
struct part {
    struct fan *fan;
    struct origin *origin;
    bool is_done;
    struct mr_req *req;
};

struct fan_kind {
    size_t size;                              /* of the request */
    bool (*has_all)(const struct part *part); /* this answer is enough. NULL: all are waited for */
    /* Fills a request but for its head; from the fan's memory, where it is needed beyond submit. NULL: a copy of the
     * whole is right. */
    enum mr_err (*fill)(struct fan *fan, struct mr_req *req);
    /* Puts the answers together. */
    enum mr_err (*merge)(struct fan *fan);
    bool everywhere; /* also at servers that have left the list */
    bool is_endless; /* nobody is left out for being late */
};

struct fan {
    struct mr_link link;
    struct many *many;
    struct mr_req *outer;
    const struct fan_kind *kind;
    struct mr_arena memory;
    struct mr_timer timer;
    bool is_answered;
    bool has_gaps; /* a server of the list is not there, or did not answer */
    size_t n, pending;
    struct part parts[ORIGINS_MAX];
};

void begin_fan(struct many *many, struct mr_req *req);
void begin_list(struct many *many, struct mr_req *req);
void begin_queue_set(struct many *many, struct mr_req *req);
void begin_unawait(struct many *many, struct mr_req *req);

extern const struct fan_kind fan_kinds[MR_OP_COUNT];
/* The part's err, MR_TIMEOUT if it is not done. */
enum mr_err part_err(const struct part *part);

/* ---- one.c ---------------------------------------------------------------------------------- */

void begin_call(struct many *many, struct mr_req *req);
void begin_gather(struct many *many, struct mr_req *req);
void begin_gathered(struct many *many, struct mr_req *req);
void begin_assign(struct many *many, struct mr_req *req);
void begin_backup(struct many *many, struct mr_req *req);

/* ---- node.c --------------------------------------------------------------------------------- */

enum inner_state { INNER_NONE, INNER_OPENING, INNER_OPEN, INNER_CLOSING };

/* A node at one of the servers. */
struct inner {
    struct many_node *node;
    struct origin *origin;
    enum inner_state state;
    bool is_dead; /* its server has forgotten it: it is closed, and opened again */
    uint64_t number;
    uint32_t first_slot; /* good while open */
    struct mr_req_node_open open;
    struct mr_req_node_close close;
    struct mr_req_beat beat;
    struct mr_arena beat_memory;
    bool beats, counts;          /* a beat is under way; the node's one waits for it */
    mr_mono beat_sent, answered; /* answered: when the last answered one was sent */
    mr_mono retry_at;
    int64_t backoff_ms;
    struct mr_link asks;       /* takes under way */
    uint64_t last_epoch;       /* of what they have brought: those on their way are above */
    uint64_t early[EARLY_MAX]; /* runs that were cancelled before their lease came */
    size_t early_n;
};

struct many_node {
    struct mr_link link;
    struct many *many;
    uint64_t number;
    size_t index;
    struct mr_arena memory;
    struct mr_req_node_open terms;     /* copied */
    struct origin *home;               /* where it is a candidate, if it is one */
    struct inner *inners[ORIGINS_MAX]; /* by origin; under the lock */
    uint64_t *running;                 /* by slot: what it was last told of. Under the lock */
    struct mr_req *opening;            /* not answered yet */
    mr_mono open_by, settle_by;        /* settle_by 0: no server has it yet */
    bool is_dead; /* all its servers have forgotten it: it waits to be closed */
    bool is_leaving;
    struct mr_req *closing; /* that is why; NULL: it was refused */
    enum mr_err close_err;
    struct mr_link beats; /* of requests; the first is under way */
    size_t beats_pending;
    enum mr_err beat_err;
    struct mr_timer beat_timer;
    struct mr_link wants;  /* takes, take.c */
    struct mr_link spares; /* leases that nobody waits for yet */
    struct mr_timer spare_timer;
    size_t turn;
};

void begin_node_open(struct many *many, struct mr_req *req);
void begin_node_close(struct many *many, struct mr_req *req);
void begin_beat(struct many *many, struct mr_req *req);
void many_begun(struct mr_broker *broker, uint32_t slot, uint64_t epoch);
struct many_node *node_at(const struct many *many, uint64_t number);
/* Opens, closes and fences what is due. */
void node_step(struct many_node *node);
/* An answer says that the server does not know it any more; then whether the node lives at another one. */
void inner_died(struct inner *inner);
void node_check(struct many_node *node);
/* Whether takes may be asked there. */
bool inner_serves(const struct inner *inner);
void nodes_fail(struct many *many, enum mr_err err);
/* Whether any has something at this server still. */
bool nodes_are_at(const struct many *many, size_t origin);
void many_node_free(struct many_node *node);

/* ---- take.c --------------------------------------------------------------------------------- */

void begin_take(struct many *many, struct mr_req *req);
void node_takes_init(struct many_node *node);
/* A server has come to the node, or time has passed. */
void node_takes_go_on(struct many_node *node);
void node_takes_fail(struct many_node *node, enum mr_err err);
/* A lease is lost that may be one that nobody waits for. */
void node_spare_lost(struct many_node *node, uint64_t shown);

/* ---- finish.c ------------------------------------------------------------------------------- */

void begin_finish(struct many *many, struct mr_req *req);
/* Gives leases back to their servers, and frees them. */
void leases_back(struct many *many, struct mr_lease *leases);

#endif
