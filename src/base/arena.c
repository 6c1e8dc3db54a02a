/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory for one request or batch. A list of blocks; small pieces are cut from the head block, and
 * a piece that would waste most of a new block gets one of its own behind the head, so the head's
 * room stays in use. Invariant: used <= cap, both multiples of ARENA_ALIGN.
 */
#include "base/arena.h"

#include <stdlib.h>

enum {
    ARENA_ALIGN = 16,
    ARENA_BLOCK_MIN = 1024,       /* bytes of the first block, its head included */
    ARENA_BLOCK_MAX = 256 * 1024, /* blocks double up to this */
};

struct mr_arena_block {
    struct mr_arena_block *next;
    size_t cap; /* bytes behind the head */
    _Alignas(ARENA_ALIGN) uint8_t data[];
};

_Static_assert(sizeof(struct mr_arena_block) % ARENA_ALIGN == 0, "data is aligned");
_Static_assert(_Alignof(max_align_t) >= ARENA_ALIGN, "malloc aligns blocks");

static struct mr_arena_block *block_new(size_t cap)
{
    if (cap > SIZE_MAX - sizeof(struct mr_arena_block))
        return NULL;
    struct mr_arena_block *block = malloc(sizeof *block + cap);
    if (block != NULL)
        block->cap = cap;
    return block;
}

/* What the next head block should hold. */
static size_t next_cap(const struct mr_arena *arena)
{
    size_t head = sizeof(struct mr_arena_block);
    size_t bytes = arena->head == NULL ? ARENA_BLOCK_MIN : (arena->cap + head) * 2;
    return (bytes < ARENA_BLOCK_MAX ? bytes : ARENA_BLOCK_MAX) - head;
}

static void *alloc_own_block(struct mr_arena *arena, size_t size)
{
    struct mr_arena_block *block = block_new(size);
    if (block == NULL)
        return NULL;
    if (arena->head != NULL) {
        block->next = arena->head->next;
        arena->head->next = block;
    } else {
        block->next = NULL;
        arena->head = block;
        arena->used = arena->cap = size;
    }
    arena->bytes += size;
    return block->data;
}

void *mr_arena_alloc(struct mr_arena *arena, size_t size)
{
    if (size > SIZE_MAX - ARENA_ALIGN)
        return NULL;
    /* Nothing still gets an address of its own. */
    size = size == 0 ? ARENA_ALIGN : (size + ARENA_ALIGN - 1) & ~(size_t)(ARENA_ALIGN - 1);
    if (size > arena->cap - arena->used) {
        size_t cap = next_cap(arena);
        if (size > cap / 2)
            return alloc_own_block(arena, size);
        struct mr_arena_block *block = block_new(cap);
        if (block == NULL)
            return NULL;
        block->next = arena->head;
        arena->head = block;
        arena->cap = cap;
        arena->used = 0;
    }
    void *piece = arena->head->data + arena->used;
    arena->used += size;
    arena->bytes += size;
    mr_assert(arena->used <= arena->cap);
    return piece;
}

void *mr_arena_calloc(struct mr_arena *arena, size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes))
        return NULL;
    void *piece = mr_arena_alloc(arena, bytes);
    if (piece != NULL)
        memset(piece, 0, bytes);
    return piece;
}

enum mr_err mr_arena_copy(struct mr_arena *arena, struct mr_slice bytes, struct mr_slice *ret_copy)
{
    if (bytes.len == SIZE_MAX)
        return MR_NOMEM;
    char *copy = mr_arena_alloc(arena, bytes.len + 1);
    if (copy == NULL)
        return MR_NOMEM;
    if (bytes.len != 0)
        memcpy(copy, bytes.data, bytes.len);
    copy[bytes.len] = '\0';
    *ret_copy = mr_slice_make(copy, bytes.len);
    return MR_OK;
}

void mr_arena_join(struct mr_arena *arena, struct mr_arena *from)
{
    if (arena->head == NULL) {
        *arena = *from;
    } else if (from->head != NULL) {
        struct mr_arena_block *last = from->head;
        while (last->next != NULL)
            last = last->next;
        last->next = arena->head->next;
        arena->head->next = from->head;
        arena->bytes += from->bytes;
    }
    *from = (struct mr_arena){0};
}

void mr_arena_reset(struct mr_arena *arena)
{
    struct mr_arena_block *largest = arena->head;
    for (struct mr_arena_block *block = arena->head; block != NULL; block = block->next) {
        if (block->cap > largest->cap)
            largest = block;
    }
    struct mr_arena_block *next;
    for (struct mr_arena_block *block = arena->head; block != NULL; block = next) {
        next = block->next;
        if (block != largest)
            free(block);
    }
    if (largest != NULL)
        largest->next = NULL;
    *arena = (struct mr_arena){.head = largest, .cap = largest != NULL ? largest->cap : 0};
}

void mr_arena_done(struct mr_arena *arena)
{
    struct mr_arena_block *next;
    for (struct mr_arena_block *block = arena->head; block != NULL; block = next) {
        next = block->next;
        free(block);
    }
    *arena = (struct mr_arena){0};
}
