/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/embedded/slab.h"

#include <stdlib.h>
#include <string.h>

void slab_init(struct slab *slab, size_t item_size)
{
    *slab = (struct slab){.item_size = item_size, .free_head = NO_HANDLE};
}

void slab_done(struct slab *slab)
{
    for (size_t i = 0; i < slab->chunks_n; i++)
        free(slab->chunks[i]);
    free(slab->chunks);
    slab_init(slab, slab->item_size);
}

static enum mr_err add_chunk(struct slab *slab)
{
    if (slab->chunks_n == slab->chunks_cap) {
        size_t cap = slab->chunks_cap ? 2 * slab->chunks_cap : 16;
        uint8_t **grown = realloc(slab->chunks, cap * sizeof *grown);
        if (grown == NULL)
            return MR_NOMEM;
        slab->chunks = grown;
        slab->chunks_cap = cap;
    }
    uint8_t *chunk = malloc(SLAB_CHUNK * slab->item_size);
    if (chunk == NULL)
        return MR_NOMEM;
    slab->chunks[slab->chunks_n++] = chunk;
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
    slab->count--;
}

size_t slab_bytes(const struct slab *slab)
{
    return slab->chunks_n * SLAB_CHUNK * slab->item_size + slab->chunks_cap * sizeof *slab->chunks;
}
