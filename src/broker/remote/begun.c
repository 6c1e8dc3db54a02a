/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Begun runs. The server should know of a run before the run can take its process down, or a task
 * that does so would not be quarantined; but a message for each would cost more than many a run. So
 * whoever begins a run writes it on the board and wakes the loop if that has nothing to do; the loop
 * says all that changed since the last time, and what began and ended in between is never said.
 *
 * While runs begin by the ten thousand a second, a crash in the first microseconds of one may go
 * unsaid. When they are fewer, a run is held back until it is said, some ten microseconds.
 */
#include "broker/remote/internal.h"

enum { FIELD_BEGUN = 5, FIELD_SLOTS = 1, FIELD_EPOCHS = 2, VARINT_32_MAX = 5 };

/* Waits until the loop has sent something, but not for ever: the connection may be away. */
static void await_said(struct remote *remote, uint32_t said)
{
    mr_lock_enter(&remote->lock);
    bool in_time = true;
    while (in_time && remote->said == said)
        in_time = mr_lock_wait(&remote->lock, SAID_MS * MR_NS_PER_MS);
    mr_lock_leave(&remote->lock);
    atomic_fetch_sub(&remote->listeners, 1);
}

/* The order matters: first the epoch, then that it is new, then that there is something new. The loop
 * goes the other way. */
void remote_begun(struct mr_broker *broker, uint32_t slot, uint64_t epoch)
{
    struct remote *remote = mr_container(broker, struct remote, broker);
    mr_assert(slot < SLOTS_MAX);
    atomic_store_explicit(&remote->board[slot], epoch, memory_order_relaxed);
    atomic_fetch_or(&remote->unsaid[slot / WORD_SLOTS], 1ULL << slot % WORD_SLOTS);
    if (epoch == 0) { /* that a slot is free is waited for by nobody */
        remote_flush_soon(remote);
        return;
    }
    int64_t now_ns = mr_mono_now(mr_clock_system()).ns;
    int64_t last_ns = atomic_exchange_explicit(&remote->begun_ns, now_ns, memory_order_relaxed);
    bool quiet = now_ns - last_ns > QUIET_US * MR_NS_PER_US;
    if (quiet)
        atomic_fetch_add(&remote->listeners, 1); /* before the flush that we wait for */
    uint32_t said = atomic_load(&remote->said);
    remote_flush_soon(remote);
    if (quiet)
        await_said(remote, said);
}

void begun_flushed(struct remote *remote)
{
    if (atomic_load(&remote->listeners) > 0 && !remote->say_posted) {
        remote->say_posted = true;
        mr_rpc_post(remote->rpc, &remote->say);
    }
}

/* Comes in the turn after a flush: what that said has left. */
void begun_said(struct mr_msg *msg, void *receiver)
{
    struct remote *remote = mr_container(msg, struct remote, say);
    (void)receiver;
    remote->say_posted = false;
    mr_lock_enter(&remote->lock);
    remote->said++;
    mr_lock_notify_all(&remote->lock);
    mr_lock_leave(&remote->lock);
}

static uint32_t words_of(uint32_t slots)
{
    return (slots + WORD_SLOTS - 1) / WORD_SLOTS;
}

enum mr_err begun_take(struct remote *remote, uint32_t slots, uint32_t *ret_first_word)
{
    uint32_t run = 0, words = words_of(slots);
    for (uint32_t i = 0; i < WORDS_MAX; i++) {
        run = remote->word_used[i] ? 0 : run + 1;
        if (run < words)
            continue;
        *ret_first_word = i + 1 - words;
        memset(remote->word_used + *ret_first_word, 1, words);
        return MR_OK;
    }
    return MR_BUSY;
}

void begun_give(struct remote *remote, uint32_t first_word, uint32_t slots)
{
    for (uint32_t slot = 0; slot < slots; slot++)
        atomic_store(&remote->board[first_word * WORD_SLOTS + slot], 0);
    for (uint32_t word = first_word; word < first_word + words_of(slots); word++)
        atomic_store(&remote->unsaid[word], 0);
    memset(remote->word_used + first_word, 0, words_of(slots));
}

void begun_unsaid(struct node *node)
{
    struct remote *remote = node->remote;
    for (uint32_t i = 0; i < node->slots; i++) {
        uint32_t slot = node->first_word * WORD_SLOTS + i;
        if (atomic_load(&remote->board[slot]) != 0)
            atomic_fetch_or(&remote->unsaid[slot / WORD_SLOTS], 1ULL << slot % WORD_SLOTS);
    }
}

/* One message for the slots of a word. */
static void say_word(struct node *node, uint32_t word, uint64_t bits)
{
    struct remote *remote = node->remote;
    uint8_t slots[WORD_SLOTS * VARINT_32_MAX], epochs[WORD_SLOTS * sizeof(uint64_t)];
    size_t slots_len = 0, epochs_len = 0;
    for (; bits != 0; bits &= bits - 1) {
        uint32_t slot = word * WORD_SLOTS + (uint32_t)__builtin_ctzll(bits);
        uint32_t own = slot - node->first_word * WORD_SLOTS;
        for (; own >= 0x80; own >>= 7)
            slots[slots_len++] = (uint8_t)(own | 0x80);
        slots[slots_len++] = (uint8_t)own;
        mr_store64(epochs + epochs_len, atomic_load(&remote->board[slot]));
        epochs_len += sizeof(uint64_t);
    }
    uint8_t message[sizeof slots + sizeof epochs + 16];
    uint8_t *at = mr_flat_put_head(message, FIELD_SLOTS, slots_len);
    memcpy(at, slots, slots_len);
    at = mr_flat_put_head(at + slots_len, FIELD_EPOCHS, epochs_len);
    memcpy(at, epochs, epochs_len);
    node_say(node, FIELD_BEGUN, mr_slice_make(message, (size_t)(at + epochs_len - message)));
}

void begun_send(struct node *node)
{
    for (uint32_t i = 0; i < words_of(node->slots); i++) {
        _Atomic uint64_t *unsaid = &node->remote->unsaid[node->first_word + i];
        if (atomic_load_explicit(unsaid, memory_order_relaxed) != 0)
            say_word(node, node->first_word + i, atomic_exchange(unsaid, 0));
    }
}
