/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is counted for figures: how many tasks came and how they ended, by queue and type, and how runs ended, by queue.
 * Since the start and in memory only; nothing is decided by it.
 *
 * Callers choose types, so only so many are told apart, in all and in each queue: the first that come. The others of a
 * queue are counted together. A task in hand remembers the number of its row, so that its end costs no search.
 */
#include <stdlib.h>

#include "broker/embedded/engine.h"

static_assert(TALLY_PLACES >= 2 * TALLIES_MAX && (TALLY_PLACES & (TALLY_PLACES - 1)) == 0,
              "a search ends soon");

struct tally_row {
    uint64_t hash;
    uint16_t queue;
    struct mr_tally tally;
    size_t len;
    char type[];
};

/* ---- rows ----------------------------------------------------------------------------------- */

/* Nobody but us knows the key, so nobody can choose types that meet in one place. */
static uint64_t hash_of(const struct mr_engine *engine, const struct queue *queue,
                        struct mr_slice type)
{
    struct mr_uuid hash = mr_hash128(engine->state.hash_key, type);
    return mr_uuid_hash(&hash) + queue->number * UINT64_C(0x9e3779b97f4a7c15);
}

static bool is_row(const struct tally_row *row, const struct queue *queue, struct mr_slice type)
{
    return row != NULL && row->queue == queue->number && row->len == type.len &&
           (type.len == 0 || memcmp(row->type, type.data, type.len) == 0);
}

/* Where it stands, or would. */
static size_t place_of(const struct tallies *all, uint64_t hash, const struct queue *queue,
                       struct mr_slice type)
{
    size_t place = hash & (TALLY_PLACES - 1);
    while (all->places[place] != 0 && !is_row(all->rows[all->places[place]], queue, type))
        place = (place + 1) & (TALLY_PLACES - 1);
    return place;
}

static uint16_t free_number(const struct tallies *all)
{
    uint16_t number = 1;
    while (all->rows[number] != NULL)
        number++;
    mr_assert(number <= TALLIES_MAX);
    return number;
}

/* 0: there are enough, or there is no memory. */
static uint16_t add_row(struct tallies *all, struct queue *queue, struct mr_slice type,
                        uint64_t hash)
{
    if (all->n == TALLIES_MAX || queue->rows == TALLIES_QUEUE_MAX)
        return 0;
    struct tally_row *row = calloc(1, sizeof *row + type.len);
    if (row == NULL)
        return 0;
    row->hash = hash;
    row->queue = queue->number;
    row->len = type.len;
    if (type.len > 0)
        memcpy(row->type, type.data, type.len);
    uint16_t number = free_number(all);
    all->rows[number] = row;
    all->n++;
    queue->rows++;
    return number;
}

uint16_t tally_number(struct mr_engine *engine, struct queue *queue, struct mr_slice type)
{
    struct tallies *all = &engine->tallies;
    if (queue->results || queue->inner)
        return 0;
    if (is_row(all->rows[all->recent], queue, type)) /* batches are of one type, mostly */
        return all->recent;
    uint64_t hash = hash_of(engine, queue, type);
    size_t place = place_of(all, hash, queue, type);
    if (all->places[place] == 0)
        all->places[place] = add_row(all, queue, type, hash);
    if (all->places[place] != 0)
        all->recent = all->places[place];
    return all->places[place];
}

static struct mr_tally *tally_at(struct mr_engine *engine, struct queue *queue, uint16_t number)
{
    struct tally_row *row = number <= TALLIES_MAX ? engine->tallies.rows[number] : NULL;
    return row != NULL && row->queue == queue->number ? &row->tally : &queue->others;
}

/* What is left of the rows finds new places: those that go were on the way to others. */
static void find_places(struct tallies *all)
{
    memset(all->places, 0, sizeof all->places);
    for (uint16_t number = 1; number <= TALLIES_MAX; number++) {
        const struct tally_row *row = all->rows[number];
        if (row == NULL)
            continue;
        size_t place = row->hash & (TALLY_PLACES - 1);
        while (all->places[place] != 0)
            place = (place + 1) & (TALLY_PLACES - 1);
        all->places[place] = number;
    }
}

void tally_forget_queue(struct mr_engine *engine, struct queue *queue)
{
    struct tallies *all = &engine->tallies;
    if (queue->rows == 0)
        return;
    for (uint16_t number = 1; number <= TALLIES_MAX; number++)
        if (all->rows[number] != NULL && all->rows[number]->queue == queue->number) {
            free(all->rows[number]);
            all->rows[number] = NULL;
            all->n--;
        }
    all->recent = 0;
    queue->rows = 0;
    find_places(all);
}

void tallies_free(struct mr_engine *engine)
{
    for (uint16_t number = 1; number <= TALLIES_MAX; number++)
        free(engine->tallies.rows[number]);
}

/* ---- counting ------------------------------------------------------------------------------- */

void tally_enqueued(struct mr_engine *engine, struct queue *queue, struct mr_slice type)
{
    if (type.len == 0)
        type = MR_SLICE_LIT(MR_DEFAULT_TYPE);
    tally_at(engine, queue, tally_number(engine, queue, type))->enqueued++;
}

static enum mr_attempt attempt_of(const struct mr_finish *item, enum mr_state becomes)
{
    static const enum mr_attempt failures[] = {
        [MR_REASON_NONE] = MR_ATTEMPT_ERROR,
        [MR_REASON_TIMEOUT] = MR_ATTEMPT_TIMEOUT,
        [MR_REASON_CANCELLED] = MR_ATTEMPT_CANCELLED,
    };
    bool archived = becomes == MR_ARCHIVED;
    if (item->outcome == MR_FAIL || item->outcome == MR_FAIL_FOR_GOOD)
        return failures[item->reason];
    if (item->outcome == MR_LATER)
        return archived ? MR_ATTEMPT_CANCELLED : MR_ATTEMPT_LATER;
    if (item->outcome == MR_HAND_BACK)
        return archived ? MR_ATTEMPT_CANCELLED : MR_ATTEMPT_COUNT;
    return archived ? MR_ATTEMPT_ERROR : MR_ATTEMPT_OK; /* its result was too big */
}

void tally_finish(struct mr_engine *engine, struct queue *queue, uint16_t number,
                  const struct mr_finish *item, enum mr_state becomes)
{
    enum mr_attempt attempt = attempt_of(item, becomes);
    struct mr_tally *tally = tally_at(engine, queue, number);
    if (attempt != MR_ATTEMPT_COUNT)
        queue->attempts[attempt]++;
    if (becomes == MR_ARCHIVED)
        tally->ended[MR_TASK_END_ARCHIVED]++;
    else if (item->outcome == MR_DONE)
        tally->ended[MR_TASK_END_COMPLETED]++;
    else if (item->outcome == MR_DROP)
        tally->ended[MR_TASK_END_DROPPED]++;
}

const char *tally_word(const struct mr_finish *item, enum mr_state becomes)
{
    enum mr_attempt attempt = attempt_of(item, becomes);
    return attempt != MR_ATTEMPT_COUNT ? mr_attempt_name(attempt) : NULL;
}

void tally_lost(struct mr_engine *engine, struct queue *queue, uint16_t number, bool begun,
                const struct mr_event_change *change)
{
    bool poison = begun && change->crashes >= MR_CRASHES_MAX;
    queue->attempts[begun ? MR_ATTEMPT_CRASH : MR_ATTEMPT_LEASE_LOST]++;
    if (change->state == MR_ARCHIVED)
        tally_at(engine, queue, number)
            ->ended[poison ? MR_TASK_END_QUARANTINED : MR_TASK_END_ARCHIVED]++;
}

/* ---- showing -------------------------------------------------------------------------------- */

enum mr_err tally_show(const struct mr_engine *engine, const struct queue *queue,
                       struct mr_arena *arena, struct mr_queue_meters *meters)
{
    meters->counted = true;
    meters->others = queue->others;
    memcpy(meters->attempts, queue->attempts, sizeof meters->attempts);
    memcpy(meters->throttled, queue->throttled, sizeof meters->throttled);
    if (queue->rows == 0)
        return MR_OK;
    struct mr_type_tally *types = mr_arena_calloc(arena, queue->rows, sizeof *types);
    if (types == NULL)
        return MR_NOMEM;
    for (uint16_t number = 1; number <= TALLIES_MAX; number++) {
        const struct tally_row *row = engine->tallies.rows[number];
        if (row == NULL || row->queue != queue->number)
            continue;
        struct mr_type_tally *type = &types[meters->types_n++];
        type->tally = row->tally;
        MR_TRY(mr_arena_copy(arena, mr_slice_make(row->type, row->len), &type->type));
    }
    meters->types = types;
    return MR_OK;
}
