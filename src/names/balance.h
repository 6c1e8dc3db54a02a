/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Balance: whether a subApp is to go from one server to another because of their loads, and which. Load is the number
 * of dispatches in a window, divided by the weight of the server. A subApp goes from a server that has more than twice
 * what the least loaded one has that may have it.
 *
 * So that nothing swings: a server below the floor gives nothing away; one move at a time, and a rest after each; a
 * subApp that has moved stays for a longer time; and a move must bring the two closer to each other, by far enough if it
 * makes the receiver the greater of the two, and never so that the next move could be the way back. With loads that stay
 * as they are there is an end to moves: each makes the sum of load²/weight smaller.
 *
 * Pure: time and loads are passed in. Thread: any.
 */
#ifndef MR_NAMES_BALANCE_H
#define MR_NAMES_BALANCE_H

#include "base/clock.h"
#include "base/err.h"
#include "names/subapp.h"

enum {
    MR_BALANCE_RATIO = 200,              /* percent of the least */
    MR_BALANCE_FLOOR = MR_LOAD_FEW,      /* dispatches in a window */
    MR_BALANCE_STAY_MS = 10 * 60 * 1000, /* of what has moved */
    MR_BALANCE_WINDOW_MS = 60 * 1000,
    MR_BALANCE_WINDOW_STEPS = 12,
    /* After a move: a window, and until nobody is heard any more who counted before it. */
    MR_BALANCE_COOL_MS = MR_BALANCE_WINDOW_MS + 15 * 1000,
};

/* Dispatches of the last window, in steps. Zeroed is empty. */
struct mr_balance_window {
    int64_t step; /* the number of the newest */
    uint64_t n[MR_BALANCE_WINDOW_STEPS];
};
void mr_balance_count(struct mr_balance_window *window, mr_mono now, uint64_t n);
/* At most MR_LOAD_MAX. */
int64_t mr_balance_load(const struct mr_balance_window *window, mr_mono now);

/* A server that lives; those without any load count, too. */
struct mr_balance_server {
    uint64_t id;
    int64_t other;   /* load by what is no subApp and cannot move */
    uint32_t weight; /* 0: MR_WEIGHT */
    int64_t load;    /* answer: all of it */
};

#define MR_BALANCE_NOBODY SIZE_MAX

struct mr_balance_part {
    size_t owner; /* a server; MR_BALANCE_NOBODY: it is not looked at */
    int64_t load; /* by whoever has served it in the window, so that a move does not hide it */
    bool has_moved;
    mr_mono moved; /* when */
};

/* Zero means default. */
struct mr_balance_options {
    int64_t ratio; /* percent, above 100 */
    int64_t floor;
    int64_t cool_ms, stay_ms;
};

struct mr_balance_seen {
    const struct mr_balance_options *options; /* NULL: defaults */
    struct mr_balance_server *servers;
    size_t servers_n;
    const struct mr_balance_part *parts;
    size_t parts_n;
    bool complete;  /* the registry; if not, nothing moves */
    bool is_moving; /* something is on its way: nothing else moves */
    bool has_moved;
    mr_mono moved; /* when the last one was */
    /* Whether a server may have a subApp. NULL: all may have all. */
    bool (*may)(size_t server, size_t part, void *arg);
    void *arg;
};

/* Why nothing moves, or that something does. */
enum mr_balance_verdict {
    MR_BALANCE_EVEN, /* nobody has more than twice the least */
    MR_BALANCE_MOVE,
    MR_BALANCE_INCOMPLETE, /* the registry knows too little */
    MR_BALANCE_MOVING,     /* one is on its way */
    MR_BALANCE_COOLING,    /* one has just been */
    MR_BALANCE_IDLE,       /* who has more has less than the floor */
    MR_BALANCE_STUCK,      /* no subApp would make it better */
    MR_BALANCE_VERDICT_COUNT,
};
const char *mr_balance_verdict_name(enum mr_balance_verdict verdict);

struct mr_balance_move {
    size_t part, from, to;
    int64_t from_load, to_load, load; /* before; of the subApp */
};

enum mr_balance_verdict mr_balance(const struct mr_balance_seen *seen, mr_mono now,
                                   struct mr_balance_move *ret_move);

#endif
