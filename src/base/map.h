/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Hash map from keys that live elsewhere to 32-bit handles: 5 bytes a slot, at most 3/4 of the
 * slots full, and growing or shrinking that is spread over the following operations, so no single
 * insert or remove ever rehashes the whole table. The keys are reached through two callbacks.
 * Handles are 0 .. MR_MAP_HANDLE_MAX. Thread: the owner.
 */
#ifndef MR_BASE_MAP_H
#define MR_BASE_MAP_H

#include "base/err.h"
#include "base/warm.h"

#define MR_MAP_HANDLE_MAX 0xfffffffdu
#define MR_MAP_NONE       0xffffffffu

struct mr_map;

struct mr_map_ops {
    /* Well mixed hash of the key a handle stands for. */
    uint64_t (*hash)(uint32_t handle, void *arg);
    /* Whether a handle stands for this key. */
    bool (*equal)(uint32_t handle, const void *key, void *arg);
    /* Brings the key of a handle near, since hash will be called for it soon; may be NULL. */
    void (*prefetch)(uint32_t handle, void *arg);
};

MR_MUST_USE enum mr_err mr_map_new(const struct mr_map_ops *ops, void *arg,
                                   struct mr_map **ret_map);
/* Larger tables are warmed from now on. */
void mr_map_warm(struct mr_map *map, struct mr_warm *warm);
void mr_map_free(struct mr_map *map);
/* MR_MAP_NONE when absent. */
uint32_t mr_map_find(const struct mr_map *map, uint64_t hash, const void *key);
/* A find or insert with this hash comes soon: its place in the table is fetched meanwhile. */
void mr_map_prefetch(const struct mr_map *map, uint64_t hash);
/* The key must be absent; hash is what ops->hash would answer for handle. */
MR_MUST_USE enum mr_err mr_map_insert(struct mr_map *map, uint64_t hash, uint32_t handle);
/* The handle must be present under hash. */
void mr_map_remove(struct mr_map *map, uint64_t hash, uint32_t handle);
size_t mr_map_count(const struct mr_map *map);
size_t mr_map_bytes(const struct mr_map *map);
/* O(n); asserts that every entry can be found. */
void mr_map_validate(const struct mr_map *map);

#endif
