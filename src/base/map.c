/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Open addressing with linear probing in Robin Hood order: entries of a run stand in the order of
 * their home slots, so a search ends as soon as it meets an entry that is nearer to its home than
 * the key would be. Removal shifts the rest of the run back by one. There are no tombstones:
 * nothing decays under endless inserts and removals.
 *
 * A slot is a handle (4 bytes) and a meta byte: 5 bits of distance from the home slot plus one (0:
 * the slot is empty) and 3 bits of the hash. The meta bytes alone decide nearly every step of a
 * search, so ops->equal, which means a cache miss in the caller's records, is called about once per
 * hit and almost never for an absent key; and neither shifting nor searching calls ops->hash. Both
 * parts of a slot stand in one cache line: a table of millions costs one miss a key, not two.
 * Distances of DISTANCE_MAX and more, about one entry in ten million at the highest load, share one
 * value and are computed from the hash.
 *
 * Growing and shrinking keep two tables: new entries go to `now`, and each insert or remove moves
 * a few entries from `old`, slot by slot. The slots that were passed keep their meta bytes, so the
 * rest stays searchable, but count as gone. Memory of a drained table goes back to the system piece
 * by piece.
 *
 * Thread: the owner.
 */
#include "base/map.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

enum {
    DISTANCE_BITS = 5,
    DISTANCE_MASK = (1 << DISTANCE_BITS) - 1,
    DISTANCE_MAX = DISTANCE_MASK - 1, /* this or more */
    TAG_SHIFT = 61,                   /* the tag is the top of the hash, the home slot its bottom */
    CAP_MIN = 64,
    /* Each doubling moves every entry, a cache miss each: by four there are a third as many. A large
     * table only doubles: one of half the size is found in the cache more often. */
    GROWTH = 4,
    GROWTH_LARGE = 2,
    LARGE = 1 << 22,
    /* A table of C slots that has C / 256 entries left becomes one of C / 64: what is worked off moves
     * hardly any of its entries, and once, not again at each quarter. */
    SHRINK_SHARE = 256,
    SHRINK = 64,
    /* Per insert or remove. Growing from C slots must end before C / 2 further entries, shrinking
     * before C / 128; both hold with room to spare. */
    MOVE_ENTRIES = 4,
    MOVE_SLOTS = 256,
    MOVE_AHEAD = 24, /* slots whose keys are fetched before they are moved: a few inserts ahead */
    /* Tables from this size on are mapped: their zero pages cost nothing until touched, whereas
     * calloc would at times clear recycled memory in one go. */
    MAP_BYTES_MIN = 256 * 1024,
    RELEASE_BYTES = 256 * 1024, /* unmapped per step */
    PAGE = 4096,
    LINE_SLOTS = 12, /* what fits in 64 bytes */
};

struct line {
    uint8_t meta[LINE_SLOTS];
    uint32_t handles[LINE_SLOTS];
    uint32_t unused; /* mapped tables begin on a page, so each line is one of the cache */
};

struct table {
    struct line *lines;
    size_t cap;   /* slots, a power of two; 0: no table */
    size_t n;     /* entries */
    size_t bytes; /* of the memory that is still there */
};

struct mr_map {
    const struct mr_map_ops *ops;
    void *arg;
    struct table now;
    struct table old; /* while growing or shrinking; afterwards only its memory, shrinking away */
    size_t old_start; /* where the move began: the first start of a run */
    size_t old_moved; /* slots passed from there */
    struct mr_warm *warm;
};

/* ---- memory --------------------------------------------------------------------------------- */

static size_t table_bytes(size_t cap)
{
    size_t lines = (cap + LINE_SLOTS - 1) / LINE_SLOTS;
    size_t bytes = lines * sizeof(struct line);
    return bytes < MAP_BYTES_MIN ? bytes : (bytes + PAGE - 1) / PAGE * PAGE;
}

static enum mr_err table_init(struct table *table, size_t cap)
{
    size_t bytes = table_bytes(cap);
    void *memory = bytes < MAP_BYTES_MIN ? calloc(1, bytes) : mr_mem_map(bytes);
    if (memory == NULL)
        return MR_NOMEM;
    *table = (struct table){.lines = memory, .cap = cap, .bytes = bytes};
    return MR_OK;
}

/* Gives back up to max bytes from the end; the table is gone when nothing is left. */
static void table_release(struct table *table, size_t max)
{
    if (table_bytes(table->cap) < MAP_BYTES_MIN) {
        free(table->lines);
        *table = (struct table){0};
        return;
    }
    size_t piece = table->bytes < max ? table->bytes : max;
    mr_mem_unmap((char *)table->lines + table->bytes - piece, piece);
    table->bytes -= piece;
    if (table->bytes == 0)
        *table = (struct table){0};
}

static void table_done(struct table *table)
{
    if (table->cap != 0)
        table_release(table, SIZE_MAX);
}

/* ---- one table ------------------------------------------------------------------------------ */

static uint8_t *meta_at(const struct table *table, size_t slot)
{
    return &table->lines[slot / LINE_SLOTS].meta[slot % LINE_SLOTS];
}

static uint32_t *handle_at(const struct table *table, size_t slot)
{
    return &table->lines[slot / LINE_SLOTS].handles[slot % LINE_SLOTS];
}

static uint8_t tag_of(uint64_t hash)
{
    return (uint8_t)(hash >> TAG_SHIFT << DISTANCE_BITS);
}

/* The distance field of an entry that is so far from home. */
static uint8_t field_of(size_t distance)
{
    return (uint8_t)(distance < DISTANCE_MAX ? distance + 1 : DISTANCE_MASK);
}

static size_t home_of(const struct table *table, uint64_t hash)
{
    return hash & (table->cap - 1);
}

static size_t next_of(const struct table *table, size_t slot)
{
    return (slot + 1) & (table->cap - 1);
}

/* How far the entry in a slot is from its home. */
static size_t distance_at(const struct mr_map *map, const struct table *table, size_t slot)
{
    uint8_t field = *meta_at(table, slot) & DISTANCE_MASK;
    if (field < DISTANCE_MASK)
        return field - 1u;
    return (slot - map->ops->hash(*handle_at(table, slot), map->arg)) & (table->cap - 1);
}

/* Whether no entry from before this slot reaches into it. */
static bool starts_run(const struct table *table, size_t slot)
{
    return (*meta_at(table, slot) & DISTANCE_MASK) <= 1;
}

/* Whether the entry in a slot is nearer to its home than distance. An empty slot is. */
static bool is_nearer(const struct mr_map *map, const struct table *table, size_t slot,
                      size_t distance)
{
    uint8_t field = *meta_at(table, slot) & DISTANCE_MASK;
    if (field < DISTANCE_MASK || distance < DISTANCE_MAX)
        return field < field_of(distance);
    return distance_at(map, table, slot) < distance;
}

static void table_insert(const struct mr_map *map, struct table *table, uint64_t hash,
                         uint32_t handle)
{
    mr_assert(table->n < table->cap);
    size_t slot = home_of(table, hash);
    size_t distance = 0;
    uint8_t tag = tag_of(hash);
    for (;; slot = next_of(table, slot), distance++) {
        if (!is_nearer(map, table, slot, distance))
            continue;
        uint8_t meta = *meta_at(table, slot);
        uint32_t found = *handle_at(table, slot);
        size_t found_distance = meta != 0 ? distance_at(map, table, slot) : 0;
        *meta_at(table, slot) = tag | field_of(distance);
        *handle_at(table, slot) = handle;
        if (meta == 0)
            break;
        /* The entry that was nearer to its home moves on. */
        tag = meta & (uint8_t)~DISTANCE_MASK;
        handle = found;
        distance = found_distance;
    }
    table->n++;
}

static void table_remove_at(const struct mr_map *map, struct table *table, size_t slot)
{
    for (;;) {
        size_t next = next_of(table, slot);
        if (starts_run(table, next))
            break;
        uint8_t tag = *meta_at(table, next) & (uint8_t)~DISTANCE_MASK;
        *meta_at(table, slot) = tag | field_of(distance_at(map, table, next) - 1);
        *handle_at(table, slot) = *handle_at(table, next);
        slot = next;
    }
    *meta_at(table, slot) = 0;
    table->n--;
}

/* Slot of the handle, at `from` slots behind its home or later; SIZE_MAX when it is not there. */
static size_t table_find_handle(const struct table *table, uint64_t hash, uint32_t handle,
                                size_t from)
{
    uint8_t tag = tag_of(hash);
    size_t slot = home_of(table, hash + from);
    for (size_t distance = from; distance < table->cap; distance++, slot = next_of(table, slot)) {
        uint8_t meta = *meta_at(table, slot);
        if ((meta & DISTANCE_MASK) < field_of(distance))
            break;
        if (meta == (tag | field_of(distance)) && *handle_at(table, slot) == handle)
            return slot;
    }
    return SIZE_MAX;
}

/* The same for a key; the handle or MR_MAP_NONE. */
static uint32_t table_find(const struct mr_map *map, const struct table *table, uint64_t hash,
                           const void *key, size_t from)
{
    uint8_t tag = tag_of(hash);
    size_t slot = home_of(table, hash + from);
    for (size_t distance = from; distance < table->cap; distance++, slot = next_of(table, slot)) {
        uint8_t meta = *meta_at(table, slot);
        if ((meta & DISTANCE_MASK) < field_of(distance))
            break;
        if (meta == (tag | field_of(distance)) &&
            map->ops->equal(*handle_at(table, slot), key, map->arg))
            return *handle_at(table, slot);
    }
    return MR_MAP_NONE;
}

/* ---- growing and shrinking ------------------------------------------------------------------ */

static bool is_moving(const struct mr_map *map)
{
    return map->old.cap != 0 && map->old_moved < map->old.cap;
}

static size_t fill_max(size_t cap)
{
    return cap / 4 * 3;
}

/* Where to begin a search in the old table, in slots behind the home: none of those passed. */
static size_t old_from(const struct mr_map *map, uint64_t hash)
{
    size_t home = (home_of(&map->old, hash) - map->old_start) & (map->old.cap - 1);
    return home < map->old_moved ? map->old_moved - home : 0;
}

/* The entry some way ahead of the move: its key is a cache miss by then, unless it is asked for
 * now. */
static void move_prefetch(const struct mr_map *map, size_t slot)
{
    size_t ahead = (slot + MOVE_AHEAD) & (map->old.cap - 1);
    if (map->ops->prefetch != NULL && *meta_at(&map->old, ahead) != 0)
        map->ops->prefetch(*handle_at(&map->old, ahead), map->arg);
}

/* How many empty slots begin here, as far as a glance tells: a line, or none. What shrinks is nearly
 * empty. */
static size_t empty_slots(const struct table *table, size_t slot)
{
    static const uint8_t empty[LINE_SLOTS];
    if (slot % LINE_SLOTS != 0 || slot + LINE_SLOTS > table->cap)
        return 0;
    const struct line *line = &table->lines[slot / LINE_SLOTS];
    return memcmp(line->meta, empty, sizeof empty) == 0 ? LINE_SLOTS : 0;
}

/* Moves entries from the old table until it has passed so many entries or slots. */
static void move_some(struct mr_map *map, size_t entries_max, size_t slots_max)
{
    struct table *old = &map->old;
    size_t end = old->cap - map->old_moved < slots_max ? old->cap : map->old_moved + slots_max;
    while (map->old_moved < end && entries_max > 0) {
        size_t slot = (map->old_start + map->old_moved) & (old->cap - 1);
        size_t empty = empty_slots(old, slot);
        if (empty > 0 && map->old_moved + empty <= end) {
            map->old_moved += empty;
            continue;
        }
        move_prefetch(map, slot);
        if (*meta_at(old, slot) != 0) {
            uint32_t handle = *handle_at(old, slot);
            old->n--;
            table_insert(map, &map->now, map->ops->hash(handle, map->arg), handle);
            entries_max--;
        }
        map->old_moved++;
    }
    mr_assert(is_moving(map) || old->n == 0);
}

/* A bounded share of the work that is left from the last change of size. */
static void step(struct mr_map *map)
{
    if (is_moving(map))
        move_some(map, MOVE_ENTRIES, MOVE_SLOTS);
    else if (map->old.cap != 0)
        table_release(&map->old, RELEASE_BYTES);
}

/* All of it. */
static void finish(struct mr_map *map)
{
    if (is_moving(map))
        move_some(map, SIZE_MAX, SIZE_MAX);
    table_done(&map->old);
}

static enum mr_err resize(struct mr_map *map, size_t cap)
{
    struct table table;
    MR_TRY(table_init(&table, cap));
    if (table.bytes >= MAP_BYTES_MIN)
        mr_warm_ask(map->warm, table.lines, table.bytes);
    /* The sizes of the steps make this the memory of a drained table at most, never entries. */
    finish(map);
    map->old = map->now;
    map->now = table;
    map->old_moved = 0;
    map->old_start = 0;
    while (!starts_run(&map->old, map->old_start))
        map->old_start++;
    return MR_OK;
}

/* Without memory for a smaller one the table stays as it is. */
static void shrink_if_sparse(struct mr_map *map)
{
    size_t cap = map->now.cap;
    if (map->old.cap != 0 || cap <= CAP_MIN || map->now.n > cap / SHRINK_SHARE)
        return;
    if (resize(map, cap / SHRINK > CAP_MIN ? cap / SHRINK : CAP_MIN) != MR_OK)
        return;
    step(map);
}

/* ---- public --------------------------------------------------------------------------------- */

enum mr_err mr_map_new(const struct mr_map_ops *ops, void *arg, struct mr_map **ret_map)
{
    struct mr_map *map = calloc(1, sizeof *map);
    if (map == NULL)
        return MR_NOMEM;
    enum mr_err err = table_init(&map->now, CAP_MIN);
    if (err != MR_OK) {
        free(map);
        return err;
    }
    map->ops = ops;
    map->arg = arg;
    *ret_map = map;
    return MR_OK;
}

void mr_map_warm(struct mr_map *map, struct mr_warm *warm)
{
    map->warm = warm;
}

void mr_map_free(struct mr_map *map)
{
    if (map == NULL)
        return;
    table_done(&map->now);
    table_done(&map->old);
    free(map);
}

uint32_t mr_map_find(const struct mr_map *map, uint64_t hash, const void *key)
{
    uint32_t handle = table_find(map, &map->now, hash, key, 0);
    if (handle == MR_MAP_NONE && is_moving(map))
        handle = table_find(map, &map->old, hash, key, old_from(map, hash));
    return handle;
}

void mr_map_prefetch(const struct mr_map *map, uint64_t hash)
{
    size_t slot = home_of(&map->now, hash);
    __builtin_prefetch(meta_at(&map->now, slot), 1);
}

enum mr_err mr_map_insert(struct mr_map *map, uint64_t hash, uint32_t handle)
{
    mr_assert(handle <= MR_MAP_HANDLE_MAX);
    step(map);
    size_t n = mr_map_count(map);
    if (n + 1 > fill_max(map->now.cap))
        MR_TRY(resize(map, map->now.cap * (map->now.cap < LARGE ? GROWTH : GROWTH_LARGE)));
    table_insert(map, &map->now, hash, handle);
    return MR_OK;
}

void mr_map_remove(struct mr_map *map, uint64_t hash, uint32_t handle)
{
    struct table *table = &map->now;
    size_t slot = table_find_handle(table, hash, handle, 0);
    if (slot == SIZE_MAX && is_moving(map)) {
        table = &map->old;
        slot = table_find_handle(table, hash, handle, old_from(map, hash));
    }
    mr_assert(slot != SIZE_MAX);
    table_remove_at(map, table, slot);
    step(map);
    shrink_if_sparse(map);
}

size_t mr_map_count(const struct mr_map *map)
{
    return map->now.n + map->old.n;
}

size_t mr_map_bytes(const struct mr_map *map)
{
    return sizeof *map + map->now.bytes + map->old.bytes;
}

/* ---- checks --------------------------------------------------------------------------------- */

/* Checks the slots from the one `passed` slots behind start on. */
static void table_validate(const struct mr_map *map, const struct table *table, size_t start,
                           size_t passed)
{
    size_t n = 0;
    for (; passed < table->cap; passed++) {
        size_t slot = (start + passed) & (table->cap - 1);
        if (*meta_at(table, slot) == 0)
            continue;
        n++;
        uint64_t hash = map->ops->hash(*handle_at(table, slot), map->arg);
        size_t distance = (slot - hash) & (table->cap - 1);
        size_t from = table == &map->old ? old_from(map, hash) : 0;
        mr_assert(*meta_at(table, slot) == (tag_of(hash) | field_of(distance)));
        mr_assert(table_find_handle(table, hash, *handle_at(table, slot), from) == slot);
        /* The order of a run: the slot before holds an entry at most one nearer to its home. */
        size_t before = (slot - 1) & (table->cap - 1);
        size_t before_field = *meta_at(table, before) & DISTANCE_MASK;
        mr_assert(distance == 0 || before_field >= field_of(distance - 1));
    }
    mr_assert(n == table->n);
}

void mr_map_validate(const struct mr_map *map)
{
    table_validate(map, &map->now, 0, 0);
    mr_assert(mr_map_count(map) <= fill_max(map->now.cap));
    if (is_moving(map))
        table_validate(map, &map->old, map->old_start, map->old_moved);
    else
        mr_assert(map->old.n == 0);
}
