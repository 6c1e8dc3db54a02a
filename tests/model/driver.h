/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One run of the model test: an engine on virtual time and a disk in memory, the model beside it,
 * and the leases that the nodes of the test hold. Every step is one random request carried out by
 * both.
 */
#ifndef MR_TESTS_DRIVER_H
#define MR_TESTS_DRIVER_H

#include "model/model.h"
#include "sim/rig.h"

enum { DRIVER_SETS_MAX = 8, DRIVER_HELD_MAX = 64, DRIVER_OLD_MAX = 16, DRIVER_SAMPLE = 500 };

/* A set in the hands of the test. */
struct driver_set {
    char name[MR_SET_MAX];
    unsigned queue;
    uint64_t number; /* in the model */
};

struct driver_held {
    struct mr_lease *lease;
    int node;
};

struct driver {
    uint64_t seed;
    uint64_t step;
    const char *doing; /* for messages */
    bool trace;
    struct mr_rand rand;
    struct simfs *fs;
    struct rig rig;
    struct model model;
    struct driver_held held[DRIVER_HELD_MAX];
    size_t held_n;
    struct driver_held old[DRIVER_OLD_MAX]; /* leases that ended, for late finishes */
    size_t old_n;
    struct driver_set sets[DRIVER_SETS_MAX]; /* also those whose time may be over */
    size_t sets_n;
    uint64_t made; /* names handed out so far */
};

/* Ends the program with seed, step and reason. */
_Noreturn void driver_fail(const struct driver *d, const char *fmt, ...) MR_PRINTF(2, 3);
void driver_trace(const struct driver *d, const char *fmt, ...) MR_PRINTF(2, 3);

/* Requests that both carry out; each compares the answers. */
void driver_enqueue(struct driver *d);
void driver_gather(struct driver *d);
void driver_gathered(struct driver *d);
void driver_carry(struct driver *d);
void driver_take(struct driver *d);
void driver_begin(struct driver *d);
void driver_finish(struct driver *d);
void driver_finish_old(struct driver *d);
void driver_results(struct driver *d);
void driver_control(struct driver *d);
void driver_get(struct driver *d);
void driver_queue(struct driver *d);
void driver_node(struct driver *d);
void driver_beat(struct driver *d);
void driver_pass_time(struct driver *d);
void driver_restart(struct driver *d);

/* Leases of a lost node end: they go to the old ones. -1: of every node. */
void driver_drop_held(struct driver *d, int node);
/* Frees a lease that ended, or keeps it for a late finish. */
void driver_retire(struct driver *d, struct driver_held held);

/* One wish, as the model sees it and as the broker does. */
struct driver_wish {
    struct model_task task;
    int64_t delay_ms, unique_ms;
    enum mr_on_duplicate on_duplicate;
    struct mr_task_options options;
    char key[16], group[24], part_key[24];
    uint8_t payload[256];
};
void driver_wish_some(struct driver *d, struct driver_wish *wish);
void driver_wish_fill(struct driver_wish *wish);
/* The broker's answer to a wish is the model's; an id that the broker made is taken over. */
void driver_compare_put(struct driver *d, const struct driver_wish *wish,
                        struct mr_enqueue_result want, const struct mr_enqueue_result *got);

/* Submits and waits; the request must be answered. */
enum mr_err driver_call(struct driver *d, struct mr_req *req);
/* The whole state, compared. */
void driver_compare(struct driver *d);
/* A name in the store or one that is not. */
struct mr_slice driver_some_id(struct driver *d, char text[MODEL_TEXT_MAX]);
/* 5, 15, 25, ... below below_ms: never on the grid of the clock. */
int64_t driver_some_ms(struct driver *d, int64_t below_ms);

#endif
