/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/board.h"

#include <stdlib.h>
#include <string.h>

#include "base/diag.h"
#include "base/list.h"

enum {
    QUIET_US = 100, /* a run that begins so long after the one before it waits until it is said */
    SAID_MS = 5,    /* ... but no longer than this: the server may be away */
};

/* What was said before this has left. */
static void left(struct mr_msg *msg, void *receiver)
{
    struct mr_board *board = mr_container(msg, struct mr_board, left);
    (void)receiver;
    board->left_posted = false;
    mr_lock_enter(&board->lock);
    atomic_fetch_add(&board->said, 1);
    mr_lock_notify_all(&board->lock);
    mr_lock_leave(&board->lock);
}

enum mr_err mr_board_init(struct mr_board *board)
{
    mr_lock_init(&board->lock);
    board->left.deliver = left;
    board->epochs = calloc(MR_BOARD_SLOTS, sizeof *board->epochs);
    return board->epochs != NULL ? MR_OK : MR_NOMEM;
}

void mr_board_done(struct mr_board *board)
{
    mr_lock_done(&board->lock);
    free(board->epochs);
}

/* The order matters: first the epoch, then that it is new, then that somebody waits, then the caller wakes
 * the loop. The loop goes the other way. */
bool mr_board_write(struct mr_board *board, uint32_t slot, uint64_t epoch, uint32_t *ret_said)
{
    mr_assert(slot < MR_BOARD_SLOTS);
    atomic_store_explicit(&board->epochs[slot], epoch, memory_order_relaxed);
    mr_board_unsay(board, slot);
    if (epoch == 0) /* that a slot is free is waited for by nobody */
        return false;
    int64_t now_ns = mr_mono_now(mr_clock_system()).ns;
    int64_t last_ns = atomic_exchange_explicit(&board->begun_ns, now_ns, memory_order_relaxed);
    if (now_ns - last_ns <= QUIET_US * MR_NS_PER_US)
        return false;
    atomic_fetch_add(&board->listeners, 1);
    *ret_said = atomic_load(&board->said);
    return true;
}

void mr_board_await(struct mr_board *board, uint32_t said)
{
    mr_lock_enter(&board->lock);
    bool in_time = true;
    while (in_time && atomic_load(&board->said) == said)
        in_time = mr_lock_wait(&board->lock, SAID_MS * MR_NS_PER_MS);
    mr_lock_leave(&board->lock);
    atomic_fetch_sub(&board->listeners, 1);
}

static uint32_t words_of(uint32_t slots)
{
    return (slots + MR_BOARD_WORD - 1) / MR_BOARD_WORD;
}

enum mr_err mr_board_take(struct mr_board *board, uint32_t slots, uint32_t *ret_first)
{
    uint32_t run = 0, words = words_of(slots);
    for (uint32_t i = 0; i < MR_BOARD_NODES; i++) {
        run = board->used[i] ? 0 : run + 1;
        if (run < words)
            continue;
        uint32_t first_word = i + 1 - words;
        memset(board->used + first_word, 1, words);
        *ret_first = first_word * MR_BOARD_WORD;
        return MR_OK;
    }
    return MR_BUSY;
}

void mr_board_give(struct mr_board *board, uint32_t first, uint32_t slots)
{
    uint32_t first_word = first / MR_BOARD_WORD, words = words_of(slots);
    for (uint32_t slot = first; slot < first + slots; slot++)
        atomic_store(&board->epochs[slot], 0);
    for (uint32_t word = first_word; word < first_word + words; word++)
        atomic_store(&board->unsaid[word], 0);
    memset(board->used + first_word, 0, words);
}

uint64_t mr_board_changes(struct mr_board *board, uint32_t first)
{
    _Atomic uint64_t *unsaid = &board->unsaid[first / MR_BOARD_WORD];
    if (atomic_load_explicit(unsaid, memory_order_relaxed) == 0)
        return 0;
    return atomic_exchange(unsaid, 0);
}

void mr_board_unsay(struct mr_board *board, uint32_t slot)
{
    atomic_fetch_or(&board->unsaid[slot / MR_BOARD_WORD], 1ULL << slot % MR_BOARD_WORD);
}

struct mr_msg *mr_board_said(struct mr_board *board)
{
    if (board->left_posted || atomic_load(&board->listeners) == 0)
        return NULL;
    board->left_posted = true;
    return &board->left;
}

bool mr_board_has(const struct mr_board *board, uint32_t first, uint32_t slots, uint64_t epoch)
{
    for (uint32_t slot = first; slot < first + slots; slot++)
        if (mr_board_epoch(board, slot) == epoch)
            return true;
    return false;
}
