/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Begun runs. A call of Redis for each would cost more than many a run: when runs are few, one is said at
 * once. When they come by the thousands, those are said that last some ms.
 */
#include <stdlib.h>

#include "broker/redis/internal.h"

enum {
    BEGUN_ARGS = 3,
    BEGUN_MS = 2, /* while runs are many, those that last so long are said */
};

/* ---- on the thread of a slot ---------------------------------------------------------------- */

static void say_soon(struct engine *engine)
{
    if (!atomic_load(&engine->say_posted) && !atomic_exchange(&engine->say_posted, true))
        mr_redis_post(engine->redis, &engine->say);
}

void begun(struct mr_broker *broker, uint32_t slot, uint64_t epoch)
{
    struct engine *engine = mr_container(broker, struct engine, broker);
    uint32_t said;
    if (!mr_board_write(&engine->board, slot, epoch, &said)) {
        say_soon(engine);
        return;
    }
    if (!atomic_exchange(&engine->now_posted, true))
        mr_redis_post(engine->redis, &engine->say_now);
    mr_board_await(&engine->board, said);
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
    uint64_t epoch = mr_board_epoch(&engine->board, slot), told = engine->told[slot];
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
        for (uint32_t i = 0; i < node->slots; i += MR_BOARD_WORD) {
            uint64_t bits = mr_board_changes(&engine->board, node->first_slot + i);
            for (; bits != 0; bits &= bits - 1) {
                uint32_t slot = node->first_slot + i + (uint32_t)__builtin_ctzll(bits);
                if (!say_slot(engine, node, slot, at_once))
                    continue;
                mr_board_unsay(&engine->board, slot);
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
    struct mr_msg *left = mr_board_said(&engine->board);
    if (left != NULL)
        mr_redis_post(engine->redis, left);
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

enum mr_err begun_init(struct engine *engine)
{
    engine->say.deliver = posted;
    engine->say_now.deliver = posted_now;
    mr_timer_init(&engine->say_timer, looked_again);
    MR_TRY(mr_board_init(&engine->board));
    engine->told = calloc(MR_BOARD_SLOTS, sizeof *engine->told);
    engine->seen = calloc(MR_BOARD_SLOTS, sizeof *engine->seen);
    return engine->told != NULL && engine->seen != NULL ? MR_OK : MR_NOMEM;
}

void begun_done(struct engine *engine)
{
    mr_board_done(&engine->board);
    free(engine->told);
    free(engine->seen);
}

void begun_give(struct node *node)
{
    struct engine *engine = node->engine;
    mr_board_give(&engine->board, node->first_slot, node->slots);
    memset(engine->told + node->first_slot, 0, node->slots * sizeof *engine->told);
    memset(engine->seen + node->first_slot, 0, node->slots * sizeof *engine->seen);
}
