/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/embedded/slab.h"

#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

void slab_init(struct slab *slab, size_t item_size, struct mr_warm *warm)
{
    *slab = (struct slab){.item_size = item_size, .free_head = NO_HANDLE, .warm = warm};
}

/* The first chunks come one by one, so that a small store stays small; later ones out of blocks of
 * huge pages. */
enum { SINGLE_CHUNKS = 16 };

static size_t chunk_bytes(const struct slab *slab)
{
    return SLAB_CHUNK * slab->item_size;
}

static size_t block_chunks(const struct slab *slab)
{
    return MR_MEM_HUGE / chunk_bytes(slab);
}

void slab_done(struct slab *slab)
{
    for (size_t i = 0; i < slab->chunks_n && i < SINGLE_CHUNKS; i++)
        free(slab->chunks[i].items);
    for (size_t i = 0; i < slab->blocks_n; i++)
        mr_mem_unmap(slab->blocks[i], MR_MEM_HUGE);
    free(slab->chunks);
    free(slab->blocks);
    slab_init(slab, slab->item_size, NULL);
}

/* Room for one more item of the size in the array, which may move. */
static enum mr_err array_reserve(void *array, size_t size, size_t n, size_t *cap)
{
    if (n < *cap)
        return MR_OK;
    size_t grown_cap = *cap ? 2 * *cap : 16;
    void *old, *grown;
    memcpy(&old, array, sizeof old);
    grown = realloc(old, grown_cap * size);
    if (grown == NULL)
        return MR_NOMEM;
    memcpy(array, &grown, sizeof grown);
    *cap = grown_cap;
    return MR_OK;
}

/* One block ahead for eight that were begun, up to a bound: a small store stays small. */
static size_t blocks_ahead(const struct slab *slab)
{
    if (slab->warm == NULL)
        return 0;
    size_t ahead = slab->blocks_begun / 8;
    return ahead < SLAB_AHEAD ? ahead : SLAB_AHEAD;
}

/* One block at least, and some ahead of it while there is memory. */
static enum mr_err blocks_reserve(struct slab *slab)
{
    size_t ahead = blocks_ahead(slab);
    while (slab->blocks_n <= slab->blocks_begun + ahead) {
        enum mr_err err =
            array_reserve(&slab->blocks, sizeof *slab->blocks, slab->blocks_n, &slab->blocks_cap);
        void *block = err == MR_OK ? mr_mem_map(MR_MEM_HUGE) : NULL;
        if (block == NULL)
            return slab->blocks_n > slab->blocks_begun ? MR_OK : MR_NOMEM;
        slab->blocks[slab->blocks_n++] = block;
        mr_warm_ask(slab->warm, block, MR_MEM_HUGE);
    }
    return MR_OK;
}

static enum mr_err chunk_from_block(struct slab *slab, uint8_t **ret_chunk)
{
    if (slab->block_left == 0) {
        MR_TRY(blocks_reserve(slab));
        slab->block = slab->blocks[slab->blocks_begun++];
        slab->block_left = block_chunks(slab);
    }
    *ret_chunk = slab->block + (block_chunks(slab) - slab->block_left--) * chunk_bytes(slab);
    return MR_OK;
}

static enum mr_err add_chunk(struct slab *slab)
{
    uint8_t *chunk;
    MR_TRY(array_reserve(&slab->chunks, sizeof *slab->chunks, slab->chunks_n, &slab->chunks_cap));
    if (slab->chunks_n < SINGLE_CHUNKS) {
        chunk = malloc(chunk_bytes(slab));
        if (chunk == NULL)
            return MR_NOMEM;
    } else {
        MR_TRY(chunk_from_block(slab, &chunk));
    }
    slab->chunks[slab->chunks_n++] = (struct slab_chunk){.items = chunk};
    return MR_OK;
}

uint32_t slab_peek(const struct slab *slab)
{
    return slab->free_head != NO_HANDLE ? slab->free_head : slab->used;
}

enum mr_err slab_alloc(struct slab *slab, uint32_t *ret_handle)
{
    uint32_t handle = slab_peek(slab);
    if (slab->free_head != NO_HANDLE) {
        memcpy(&slab->free_head, slab_at(slab, handle), sizeof slab->free_head);
    } else {
        if (slab->used == NO_HANDLE - 2)
            return MR_NOMEM;
        if (slab->used >> SLAB_SHIFT == slab->chunks_n)
            MR_TRY(add_chunk(slab));
        slab->used++;
    }
    memset(slab_at(slab, handle), 0, slab->item_size);
    slab->chunks[handle >> SLAB_SHIFT].count++;
    slab->count++;
    *ret_handle = handle;
    return MR_OK;
}

void slab_free(struct slab *slab, uint32_t handle)
{
    void *item = slab_at(slab, handle);
    memset(item, 0, slab->item_size);
    memcpy(item, &slab->free_head, sizeof slab->free_head);
    slab->free_head = handle;
    slab->chunks[handle >> SLAB_SHIFT].count--;
    slab->count--;
}

size_t slab_bytes(const struct slab *slab)
{
    size_t single = slab->chunks_n < SINGLE_CHUNKS ? slab->chunks_n : SINGLE_CHUNKS;
    return single * chunk_bytes(slab) + slab->blocks_n * (size_t)MR_MEM_HUGE +
           slab->chunks_cap * sizeof *slab->chunks;
}
