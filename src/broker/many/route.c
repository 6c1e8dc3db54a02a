/* SPDX-License-Identifier: Apache-2.0 */
/* Which server. */
#include "broker/many/internal.h"
#include "wire/task.h"

uint64_t mr_many_hash(struct mr_slice bytes)
{
    struct mr_uuid hash = mr_hash128((struct mr_hash_key){0}, bytes);
    return mr_uuid_hash(&hash);
}

uint64_t mr_many_rank(uint64_t key, uint64_t server)
{
    uint64_t x = key ^ server;
    x ^= x >> 33;
    x *= 0xff51afd7ed558ccdULL;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ULL;
    return x ^ x >> 33;
}

/* ---- sets of servers ------------------------------------------------------------------------ */

uint64_t live_origins(const struct many *many)
{
    uint64_t bits = 0;
    for (size_t i = 0; i < many->origins_n; i++)
        if (many->origins[i]->up && many->origins[i]->listed)
            bits |= 1ULL << i;
    return bits;
}

uint64_t up_origins(const struct many *many)
{
    uint64_t bits = 0;
    for (size_t i = 0; i < many->origins_n; i++)
        if (many->origins[i]->up)
            bits |= 1ULL << i;
    return bits;
}

uint64_t listed_origins(const struct many *many)
{
    uint64_t bits = 0;
    for (size_t i = 0; i < many->origins_n; i++)
        if (many->origins[i]->listed)
            bits |= 1ULL << i;
    return bits;
}

struct origin *origin_in_turn(struct many *many, uint64_t among)
{
    int n = __builtin_popcountll(among);
    if (n == 0)
        return NULL;
    for (size_t skip = atomic_fetch_add(&many->turn, 1) % (size_t)n; skip > 0; skip--)
        among &= among - 1;
    return many->origins[__builtin_ctzll(among)];
}

struct origin *origin_for(const struct many *many, uint64_t among, uint64_t key)
{
    struct origin *first = NULL;
    for (; among != 0; among &= among - 1) {
        struct origin *origin = many->origins[__builtin_ctzll(among)];
        if (first == NULL || mr_many_rank(key, origin->hash) > mr_many_rank(key, first->hash))
            first = origin;
    }
    return first;
}

static uint64_t hash_pair(struct mr_slice a, struct mr_slice b)
{
    return mr_many_rank(mr_many_hash(a), mr_many_hash(b)) | 1;
}

/* What is none is refused by whichever server gets it. */
static bool is_name(struct mr_slice name)
{
    return name.data != NULL && name.len > 0 && name.len <= MR_ID_MAX + MR_NAME_MAX;
}

/* What is unique without a key of its own is so by queue, type and payload. */
static uint64_t hash_content(const struct mr_task_options *task)
{
    struct mr_slice queue = mr_queue_or_default(task->queue);
    uint64_t names = hash_pair(queue, task->type.data != NULL ? task->type : MR_SLICE_LIT(""));
    struct mr_slice payload = task->payload.data != NULL ? task->payload : MR_SLICE_LIT("");
    return mr_many_rank(names, mr_many_hash(payload)) | 1;
}

/* The same id, or the same unique key, is found again only at the server that has it; and only what is at one
 * server can become one task of a group. */
uint64_t key_of(const struct mr_task_options *task)
{
    if (is_name(task->id))
        return mr_many_hash(task->id) | 1;
    if (is_name(task->unique_key))
        return mr_many_hash(task->unique_key) | 1;
    if (task->unique_ms > 0 && task->payload.len <= MR_PAYLOAD_MAX)
        return hash_content(task);
    return is_name(task->group) && is_name(task->queue) ? hash_pair(task->queue, task->group)
           : is_name(task->group)                       ? mr_many_hash(task->group) | 1
                                                        : 0;
}

/* ---- epochs and terms ------------------------------------------------------------------------ */

#define OWN_MASK ((1ULL << ORIGIN_SHIFT) - 1)

uint64_t shown_epoch(const struct origin *origin, uint64_t epoch)
{
    return epoch != 0 ? (epoch & OWN_MASK) | (uint64_t)(origin->index + 1) << ORIGIN_SHIFT : 0;
}

uint64_t own_epoch(uint64_t shown)
{
    return shown & OWN_MASK;
}

struct origin *origin_of(const struct many *many, uint64_t shown)
{
    uint64_t place = shown >> ORIGIN_SHIFT;
    return place > 0 && place <= many->origins_n ? many->origins[place - 1] : NULL;
}
