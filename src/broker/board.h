/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The board of an engine that talks to a server: the epoch that runs in each slot, and which of that the
 * server has not been told.
 *
 * The server should know of a run before the run can take its process down, or a task that does so would
 * not be quarantined; but a message for each would cost more than many a run. So whoever begins a run
 * writes it on the board and wakes the loop, which says what changed since the last time: what began and
 * ended in between is never said. While runs begin by the ten thousand a second, a crash in the first
 * moments of one may go unsaid. When they are fewer, a run is held back until it is said.
 *
 * (The embedded engine is its own server. Its board is a file: embedded/board.c.)
 */
#ifndef MR_BROKER_BOARD_H
#define MR_BROKER_BOARD_H

#include "base/chan.h"

enum {
    MR_BOARD_WORD = 64,    /* slots that are told together */
    MR_BOARD_NODES = 4096, /* a word belongs to one node */
    MR_BOARD_SLOTS = MR_BOARD_NODES * MR_BOARD_WORD,
};

struct mr_board {
    _Atomic uint64_t *epochs; /* by slot; 0: nothing runs there */
    _Atomic uint64_t unsaid[MR_BOARD_NODES];
    bool used[MR_BOARD_NODES];
    _Atomic int64_t begun_ns;   /* when the last run began */
    _Atomic uint32_t listeners; /* threads that wait until it is said */
    struct mr_lock lock;
    _Atomic uint32_t said; /* how often something was that they wait for; changed under the lock */
    struct mr_msg left;
    bool left_posted;
};

/* On a board of zeroes; done also after a failure. */
MR_MUST_USE enum mr_err mr_board_init(struct mr_board *board);
void mr_board_done(struct mr_board *board);

/* ---- on the thread of a slot ---------------------------------------------------------------- */

/* Writes what runs in a slot, 0: nothing. Answers whether the run is to wait: then the loop is woken so
 * that it says this at once, and mr_board_await follows. */
bool mr_board_write(struct mr_board *board, uint32_t slot, uint64_t epoch, uint32_t *ret_said);
void mr_board_await(struct mr_board *board, uint32_t said);

/* ---- on the loop ---------------------------------------------------------------------------- */

/* Slots for a node, the first of them of a word of its own; MR_BUSY: there are not enough. */
MR_MUST_USE enum mr_err mr_board_take(struct mr_board *board, uint32_t slots, uint32_t *ret_first);
void mr_board_give(struct mr_board *board, uint32_t first, uint32_t slots);

/* Those that changed among the slots of the word that begins with this one, a bit each. They count as
 * said from now on. */
uint64_t mr_board_changes(struct mr_board *board, uint32_t first);
/* The server does not know what runs there. */
void mr_board_unsay(struct mr_board *board, uint32_t slot);
/* Changes were said: the message to be posted to the loop itself, which comes when they have left. NULL:
 * nobody waits for that. */
struct mr_msg *mr_board_said(struct mr_board *board);

static inline uint64_t mr_board_epoch(const struct mr_board *board, uint32_t slot)
{
    return atomic_load(&board->epochs[slot]);
}

/* Whether this run is in one of the slots. */
bool mr_board_has(const struct mr_board *board, uint32_t first, uint32_t slots, uint64_t epoch);

#endif
