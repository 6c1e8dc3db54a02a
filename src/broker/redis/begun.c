/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Begun runs. Redis should know of a run before the run can take its process down, or a task that does so
 * would not be quarantined; but a call for each would cost more than many a run. So whoever begins a
 * run writes it on the board. When runs are few, it is said at once, and the run is held back until
 * that has left. When they come by the thousands, those are said that last some ms: a crash in the first
 * ms of one may go unsaid then.
 */
#include <stdlib.h>

#include "broker/redis/internal.h"

enum { BEGUN_ARGS = 3 };

/* ---- on the thread of a slot ---------------------------------------------------------------- */

/* Waits until the loop has sent something, but not for ever: Redis may be away. */
static void await_said(struct engine *engine, uint32_t said)
{
    mr_lock_enter(&engine->lock);
    bool in_time = true;
    while (in_time && atomic_load(&engine->said) == said)
        in_time = mr_lock_wait(&engine->lock, SAID_MS * MR_NS_PER_MS);
    mr_lock_leave(&engine->lock);
}

static void say_soon(struct engine *engine)
{
    if (!atomic_load(&engine->say_posted) && !atomic_exchange(&engine->say_posted, true))
        mr_redis_post(engine->redis, &engine->say);
}

/* The order matters: first the epoch, then that it is new, then that there is something new. The loop
 * goes the other way. */
void begun(struct mr_broker *broker, uint32_t slot, uint64_t epoch)
{
    struct engine *engine = mr_container(broker, struct engine, broker);
    mr_assert(slot < SLOTS_MAX);
    atomic_store_explicit(&engine->board[slot], epoch, memory_order_relaxed);
    atomic_fetch_or(&engine->unsaid[slot / WORD_SLOTS], 1ULL << slot % WORD_SLOTS);
    if (epoch == 0) { /* that a slot is free is waited for by nobody */
        say_soon(engine);
        return;
    }
    int64_t now_ns = mr_mono_now(mr_clock_system()).ns;
    int64_t last_ns = atomic_exchange_explicit(&engine->begun_ns, now_ns, memory_order_relaxed);
    bool quiet = now_ns - last_ns > QUIET_US * MR_NS_PER_US;
    uint32_t said = atomic_load(&engine->said);
    if (quiet && !atomic_exchange(&engine->now_posted, true))
        mr_redis_post(engine->redis, &engine->say_now);
    else if (!quiet)
        say_soon(engine);
    if (quiet)
        await_said(engine, said);
}

/* ---- on the loop ---------------------------------------------------------------------------- */

struct say {
    struct mr_redis_call call;
};

static void answered(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    (void)err, (void)reply; /* what was not heard is said by the next run */
    free(mr_container(call, struct say, call));
}

static void send(struct rqueue *queue, const struct hold *hold, bool runs)
{
    char epoch[NUMBER_MAX];
    struct say *say = calloc(1, sizeof *say);
    if (say == NULL)
        return;
    struct mr_slice args[BEGUN_ARGS] = {mr_slice_make(hold->id, hold->id_len),
                                        number_arg((int64_t)hold->epoch, epoch),
                                        mr_slice_str(runs ? "1" : "0")};
    say->call = (struct mr_redis_call){.answered = answered, .repeatable = true, .urgent = true};
    rqueue_eval(queue, &say->call, SCRIPT_BEGUN, args, BEGUN_ARGS);
}

/* One slot that changed. Answers whether it is to be looked at again. */
static bool say_slot(struct engine *engine, struct node *node, uint32_t slot, bool at_once)
{
    uint64_t epoch = atomic_load(&engine->board[slot]), told = engine->told[slot];
    if (epoch == told)
        return false;
    const struct hold *old = hold_of_epoch(node, told);
    if (old != NULL && old->queue != NULL && !old->ending)
        send(old->queue, old, false);
    engine->told[slot] = 0;
    bool lasts = at_once || engine->seen[slot] == epoch;
    engine->seen[slot] = epoch;
    if (epoch == 0 || !lasts)
        return epoch != 0;
    const struct hold *hold = hold_of_epoch(node, epoch);
    if (hold != NULL && hold->queue != NULL && !hold->ending) {
        send(hold->queue, hold, true);
        engine->told[slot] = epoch;
    }
    return false;
}

/* Says what changed; answers whether some runs are to be looked at again. */
static bool say_changes(struct engine *engine, bool at_once)
{
    bool again = false;
    for (struct mr_link *link = engine->nodes.next; link != &engine->nodes; link = link->next) {
        struct node *node = mr_container(link, struct node, link);
        for (uint32_t slot = 0; slot < node->slots; slot += WORD_SLOTS) {
            uint32_t word = node->first_word + slot / WORD_SLOTS;
            uint64_t bits = atomic_load_explicit(&engine->unsaid[word], memory_order_relaxed);
            if (bits != 0)
                bits = atomic_exchange(&engine->unsaid[word], 0);
            for (; bits != 0; bits &= bits - 1) {
                uint32_t bit = (uint32_t)__builtin_ctzll(bits);
                if (!say_slot(engine, node, word * WORD_SLOTS + bit, at_once))
                    continue;
                atomic_fetch_or(&engine->unsaid[word], 1ULL << bit);
                again = true;
            }
        }
    }
    return again;
}

static void look_again(struct engine *engine)
{
    mr_redis_timer_start(engine->redis, &engine->say_timer,
                         mr_mono_add_ms(mr_redis_now(engine->redis), BEGUN_MS));
}

/* Some began: those that last are said by the timer. Until then nothing more need be posted. */
static void posted(struct mr_msg *msg, void *receiver)
{
    (void)receiver;
    look_again(mr_container(msg, struct engine, say));
}

/* Somebody waits until it is said. */
static void posted_now(struct mr_msg *msg, void *receiver)
{
    struct engine *engine = mr_container(msg, struct engine, say_now);
    (void)receiver;
    atomic_store(&engine->now_posted, false);
    (void)say_changes(engine, true);
    if (!engine->say_left_posted) {
        engine->say_left_posted = true;
        mr_redis_post(engine->redis, &engine->say_left);
    }
}

static void looked_again(struct mr_timer *timer, void *arg)
{
    struct engine *engine = mr_container(timer, struct engine, say_timer);
    (void)arg;
    atomic_store(&engine->say_posted, false);
    if (say_changes(engine, false)) {
        atomic_store(&engine->say_posted, true);
        look_again(engine);
    }
}

/* Comes in the turn after: what was said has left. */
static void left(struct mr_msg *msg, void *receiver)
{
    struct engine *engine = mr_container(msg, struct engine, say_left);
    (void)receiver;
    engine->say_left_posted = false;
    mr_lock_enter(&engine->lock);
    atomic_fetch_add(&engine->said, 1);
    mr_lock_notify_all(&engine->lock);
    mr_lock_leave(&engine->lock);
}

void begun_init(struct engine *engine)
{
    engine->say.deliver = posted;
    engine->say_now.deliver = posted_now;
    engine->say_left.deliver = left;
    mr_timer_init(&engine->say_timer, looked_again);
}

bool begun_has(const struct node *node, uint64_t epoch)
{
    const struct engine *engine = node->engine;
    for (uint32_t i = 0; i < node->slots; i++)
        if (atomic_load(&engine->board[node->first_word * WORD_SLOTS + i]) == epoch)
            return true;
    return false;
}

/* ---- words of the board --------------------------------------------------------------------- */

static uint32_t words_of(uint32_t slots)
{
    return (slots + WORD_SLOTS - 1) / WORD_SLOTS;
}

enum mr_err slots_take(struct engine *engine, uint32_t slots, uint32_t *ret_first_word)
{
    uint32_t run = 0, words = words_of(slots);
    for (uint32_t i = 0; i < WORDS_MAX; i++) {
        run = engine->word_used[i] ? 0 : run + 1;
        if (run < words)
            continue;
        *ret_first_word = i + 1 - words;
        memset(engine->word_used + *ret_first_word, 1, words);
        return MR_OK;
    }
    return MR_BUSY;
}

void slots_give(struct engine *engine, uint32_t first_word, uint32_t slots)
{
    for (uint32_t i = 0; i < slots; i++) {
        uint32_t slot = first_word * WORD_SLOTS + i;
        atomic_store(&engine->board[slot], 0);
        engine->told[slot] = engine->seen[slot] = 0;
    }
    for (uint32_t word = first_word; word < first_word + words_of(slots); word++)
        atomic_store(&engine->unsaid[word], 0);
    memset(engine->word_used + first_word, 0, words_of(slots));
}
