/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the world: its state, shared by the loop (world.c), the actors (world_acts.c) and the
 * answers. */
#ifndef MR_TESTS_WORLD_INT_H
#define MR_TESTS_WORLD_INT_H

#include "sim/rig.h"
#include "sim/world.h"

enum {
    WORLD_BATCH = 8,
    WORLD_NODES = 4,
    WORLD_SLOTS = 4,
    WORLD_HANDS = 8,    /* leases one node holds */
    WORLD_ZOMBIES = 16, /* leases that were lost and may be finished all the same */
    WORLD_TASKS = 500,
    WORLD_KEYS = 6,
    WORLD_SETS = 4,
    WORLD_RESULTS = 4, /* that a master holds */
    WORLD_PARTS = 5,
};

/* What may happen in a step; each seed weighs them. */
enum act {
    ACT_ENQUEUE,
    ACT_ENQUEUE_AGAIN,
    ACT_NODE_OPEN,
    ACT_NODE_CLOSE,
    ACT_NODE_VANISH,
    ACT_NODE_STALL,
    ACT_TAKE,
    ACT_BEGIN,
    ACT_FINISH,
    ACT_FINISH_LATE,
    ACT_CONTROL,
    ACT_RESULTS,
    ACT_GATHER,
    ACT_GATHERED,
    ACT_PAUSE,
    ACT_LIMIT,
    ACT_SPLIT,
    ACT_RETRY_MODE,
    ACT_QUEUE_REMOVE,
    ACT_GET,
    ACT_AWAIT,
    ACT_CHECK,
    ACT_BACKUP,
    ACT_KILL,
    ACT_POWER_CUT,
    ACT_STOP_AT,
    ACT_SYNC_FAULT,
    ACT_WRITE_FAULT,
    ACT_READ_FAULT,
    ACT_DISK_FULL,
    ACT_DISK_FREE,
    ACT_JUMP,
    ACT_COUNT
};

struct dials {
    uint32_t steps;
    uint32_t weights[ACT_COUNT];
    uint32_t outcomes[MR_LATER + 1];
    int64_t dt_max_ns;
    int64_t lease_ms;
    uint32_t burst; /* percent of steps without time between them */
    uint32_t queues, batch_max, payload_max;
    uint32_t own_id, delayed, prioritised, unique, kept, dated, headed, grouped,
        placed; /* percent of tasks */
    bool stalls;
};

struct hand {
    struct mr_lease *lease; /* NULL: free */
    uint32_t token;
    bool begun;
    bool lost; /* the broker said so */
    uint32_t slot;
};

struct node {
    bool used, open; /* registered; the broker has answered so */
    bool taking, beating;
    uint64_t handle;
    uint32_t first_slot, slots;
    uint64_t incarnation; /* tells answers to an earlier user of this place */
    unsigned served;      /* bits of the queues it named */
    bool catches;         /* what is addressed to others falls to it */
    int64_t beat_sent_ns; /* of the last beat that was answered well */
    int64_t stalled_until_ns;
    struct hand hands[WORLD_HANDS];
};

struct zombie {
    uint32_t token;
    uint64_t epoch;
    char id[MR_ID_MAX + 1];
};

/* Members of a group in somebody's hands. */
struct set {
    char name[MR_SET_MAX], queue[16];
    uint32_t tokens[WORLD_BATCH];
    size_t n; /* 0: none */
    int64_t until_ns;
    bool dead; /* the engine that gave it is gone */
};

/* Somebody who takes results. It never beats: it dies, and comes again. */
struct master {
    bool used, open, taking;
    uint64_t handle, incarnation;
    struct mr_lease *leases[WORLD_RESULTS]; /* NULL: free; those of an earlier life may be there */
};

struct world;

/* A request under way, with all it borrows. */
struct wreq {
    struct mr_link link;
    struct world *world;
    bool answered;
    union {
        struct mr_req req; /* head of each */
        struct mr_req_enqueue enqueue;
        struct mr_req_node_open node_open;
        struct mr_req_node_close node_close;
        struct mr_req_take take;
        struct mr_req_beat beat;
        struct mr_req_finish finish;
        struct mr_req_control control;
        struct mr_req_get get;
        struct mr_req_await await;
        struct mr_req_queue_set queue_set;
        struct mr_req_queue_remove queue_remove;
        struct mr_req_backup backup;
        struct mr_req_gather gather;
        struct mr_req_gathered gathered;
    } u;
    size_t n;
    struct oracle_op ops[WORLD_BATCH];
    struct mr_task_options tasks[WORLD_BATCH];
    struct mr_enqueue_result results[WORLD_BATCH];
    struct mr_finish finishes[WORLD_BATCH];
    struct mr_control controls[WORLD_BATCH];
    enum mr_err errs[WORLD_BATCH];
    char ids[WORLD_BATCH][MR_ID_MAX + 1];
    char name[16];
    struct mr_worker_queue queues[8];
    struct mr_arena memory;
    struct set set;
    struct oracle_gathered gathered;
    bool of_master;
    struct mr_lease *lease; /* of a result that is committed */
    struct node *node;
    uint64_t incarnation;
    int64_t sent_ns;
    uint32_t token, version;
    bool readable; /* the store had stopped, and nothing was under way for the task */
};

struct world {
    struct simfs *fs;
    struct rig rig;
    struct oracle *oracle;
    struct oracle *before; /* a backup is under way: what was known when it was asked for */
    struct mr_rand rand;
    struct dials dials;
    struct mr_link reqs; /* of struct wreq, under way or answered */
    struct node nodes[WORLD_NODES];
    struct zombie zombies[WORLD_ZOMBIES];
    size_t zombies_n;
    struct master master;
    struct set sets[WORLD_SETS];
    size_t gathering; /* gathers under way */
    uint64_t incarnations;
    struct {
        uint64_t term; /* the highest that was ever given */
        uint64_t incarnation;
        int64_t until_ns; /* its place is nobody else's before, while it is open */
    } leader;
    bool dying;     /* answers no longer count */
    bool io_failed; /* a write or sync failed in this life */
    bool restart;   /* the engine said that it failed */
    bool healing;
    uint32_t read_faults; /* in this life */
    bool refused;         /* a finish was refused: its worker must ask again */
    bool verbose;
    int64_t wall_max_us;
    const struct world_calm *calm; /* NULL: with accidents */
    struct world_report *report;
};

extern const char *const world_queues[8];

/* Percent of chance. */
bool world_chance(struct world *world, uint32_t percent);
void world_trace(struct world *world, const char *what, uint64_t a, uint64_t b);
/* Called by the engine with each answer. */
void world_answered(struct mr_req *req);
/* The lease is lost, but its holder does not know and may still finish it. */
void world_bury(struct world *world, struct hand *hand);
/* Does something of that kind, if there is anything to do. */
void world_act(struct world *world, enum act act);
void world_beat(struct world *world);
void world_backup(struct world *world);
void world_backup_answered(struct world *world, struct wreq *wreq);
/* A request of this kind, to be filled and submitted. */
struct wreq *world_new_req(struct world *world, enum mr_op op);
void world_reap(struct world *world);
/* All that lived in the process is gone. */
void world_drop(struct world *world);
void world_node_open(struct world *world, struct node *node);
void world_node_close(struct world *world, struct node *node);
void world_take(struct world *world, struct node *node, size_t max, int64_t wait_ms);
void world_begin(struct world *world, struct node *node, struct hand *hand);
void world_finish(struct world *world, struct node *node, struct hand *hand,
                  enum mr_outcome outcome);
void world_pause(struct world *world, const char *queue, bool paused);
void world_enqueue(struct world *world, const uint32_t *tokens, size_t n);
uint32_t world_new_task(struct world *world);
void world_gather(struct world *world, const char *queue);
void world_gather_answered(struct world *world, struct wreq *wreq);
/* The set becomes a task, or now and then goes back. */
void world_gathered(struct world *world, struct set *set);
void world_gathered_answered(struct world *world, struct wreq *wreq);
void world_gather_some(struct world *world);
void world_gathered_some(struct world *world);
void world_results(struct world *world);
void world_master_answered(struct world *world, struct wreq *wreq);
/* Its node is gone; what it took may still be committed. Or it forgets that, too. */
void world_master_lost(struct world *world);
void world_master_drop(struct world *world);

#endif
