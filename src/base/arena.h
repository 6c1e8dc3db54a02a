/* SPDX-License-Identifier: Apache-2.0 */
/* Memory for one request or batch, freed as a whole. Zero-initialised is empty. 16-byte aligned. */
#ifndef MR_BASE_ARENA_H
#define MR_BASE_ARENA_H

#include "base/slice.h"

struct mr_arena_block;

struct mr_arena {
    struct mr_arena_block *head;
    size_t used, cap; /* of the head block */
    size_t bytes;     /* handed out in all */
};

/* NULL when out of memory. Contents are undefined. */
void *mr_arena_alloc(struct mr_arena *arena, size_t size);
/* Zeroed array; NULL when out of memory or n * size overflows. */
void *mr_arena_calloc(struct mr_arena *arena, size_t n, size_t size);
/* Copies bytes, adding a NUL behind them. */
MR_MUST_USE enum mr_err mr_arena_copy(struct mr_arena *arena, struct mr_slice bytes,
                                      struct mr_slice *ret_copy);
/* What from has handed out belongs to arena from now on; from is empty. */
void mr_arena_join(struct mr_arena *arena, struct mr_arena *from);
/* Forgets everything, keeping the largest block for the next use. */
void mr_arena_reset(struct mr_arena *arena);
void mr_arena_done(struct mr_arena *arena);

#endif
