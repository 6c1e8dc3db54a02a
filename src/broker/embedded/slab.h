/* SPDX-License-Identifier: Apache-2.0 */
/* Fixed-size items in chunks that never move, named by 32-bit handles; freed ones are used again.
 */
#ifndef MR_EMBEDDED_SLAB_H
#define MR_EMBEDDED_SLAB_H

#include "base/err.h"
#include "base/warm.h"

#ifndef MR_SLAB_SHIFT
#define MR_SLAB_SHIFT 10 /* the test of the tests makes chunks small: then many are half saved */
#endif

enum {
    SLAB_SHIFT = MR_SLAB_SHIFT,
    SLAB_CHUNK = 1 << SLAB_SHIFT,
    SLAB_AHEAD = 4, /* blocks mapped before they are needed, so that they can be warmed */
};

#define NO_HANDLE UINT32_MAX

struct slab_chunk {
    uint8_t *items;
    size_t count; /* of items in use: one that has none need not be looked through */
};

struct slab {
    size_t item_size;
    struct slab_chunk *chunks;
    size_t chunks_n, chunks_cap;
    uint8_t *block;    /* where the next chunks come from */
    size_t block_left; /* chunks still in it */
    uint8_t **blocks;  /* all of them; the last ones not begun yet */
    size_t blocks_n, blocks_cap, blocks_begun;
    struct mr_warm *warm; /* may be NULL */
    uint32_t used;        /* handles below this were given out at least once */
    uint32_t free_head;   /* list of freed items, through their first four bytes */
    size_t count;
};

void slab_init(struct slab *slab, size_t item_size, struct mr_warm *warm);
void slab_done(struct slab *slab);
/* Zeroed item. The handle that the next alloc will give is slab_peek. */
MR_MUST_USE enum mr_err slab_alloc(struct slab *slab, uint32_t *ret_handle);
uint32_t slab_peek(const struct slab *slab);
void slab_free(struct slab *slab, uint32_t handle);
size_t slab_bytes(const struct slab *slab);

static inline void *slab_at(const struct slab *slab, uint32_t handle)
{
    return slab->chunks[handle >> SLAB_SHIFT].items + (handle & (SLAB_CHUNK - 1)) * slab->item_size;
}

#endif
