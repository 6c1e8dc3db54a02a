/* SPDX-License-Identifier: Apache-2.0 */
/* Binary min-heap. Invariants: no node is before its parent, and nodes[i]->index == i. */
#include "base/heap.h"

#include <stdlib.h>

enum { HEAP_CAP_MIN = 16 };

/* The index of a node that is in no heap, so that removing it twice is noticed. */
#define INDEX_NONE SIZE_MAX

static bool before(const struct mr_heap_node *a, const struct mr_heap_node *b)
{
    return a->key != b->key ? a->key < b->key : a->tie < b->tie;
}

static void place(struct mr_heap *heap, size_t at, struct mr_heap_node *node)
{
    heap->nodes[at] = node;
    node->index = at;
}

/* Puts node into the hole at, moving the hole up while node is before the parent. */
static void sift_up(struct mr_heap *heap, size_t at, struct mr_heap_node *node)
{
    while (at > 0) {
        size_t parent = (at - 1) / 2;
        if (!before(node, heap->nodes[parent]))
            break;
        place(heap, at, heap->nodes[parent]);
        at = parent;
    }
    place(heap, at, node);
}

/* Puts node into the hole at, moving the hole down while a child is before node. */
static void sift_down(struct mr_heap *heap, size_t at, struct mr_heap_node *node)
{
    for (;;) {
        size_t child = 2 * at + 1;
        if (child >= heap->n)
            break;
        if (child + 1 < heap->n && before(heap->nodes[child + 1], heap->nodes[child]))
            child++;
        if (!before(heap->nodes[child], node))
            break;
        place(heap, at, heap->nodes[child]);
        at = child;
    }
    place(heap, at, node);
}

static enum mr_err grow(struct mr_heap *heap)
{
    if (heap->cap > SIZE_MAX / sizeof *heap->nodes / 2)
        return MR_NOMEM;
    size_t cap = heap->cap == 0 ? HEAP_CAP_MIN : heap->cap * 2;
    struct mr_heap_node **nodes = realloc(heap->nodes, cap * sizeof *nodes);
    if (nodes == NULL)
        return MR_NOMEM;
    heap->nodes = nodes;
    heap->cap = cap;
    return MR_OK;
}

void mr_heap_done(struct mr_heap *heap)
{
    free(heap->nodes);
    *heap = (struct mr_heap){0};
}

enum mr_err mr_heap_push(struct mr_heap *heap, struct mr_heap_node *node)
{
    if (heap->n == heap->cap)
        MR_TRY(grow(heap));
    heap->n++;
    sift_up(heap, heap->n - 1, node);
    return MR_OK;
}

struct mr_heap_node *mr_heap_top(const struct mr_heap *heap)
{
    return heap->n != 0 ? heap->nodes[0] : NULL;
}

void mr_heap_remove(struct mr_heap *heap, struct mr_heap_node *node)
{
    size_t at = node->index;
    mr_assert(at < heap->n && heap->nodes[at] == node);
    struct mr_heap_node *last = heap->nodes[--heap->n];
    node->index = INDEX_NONE;
    if (last == node)
        return;
    /* The last node fills the hole; it may belong above or below. */
    if (at > 0 && before(last, heap->nodes[(at - 1) / 2]))
        sift_up(heap, at, last);
    else
        sift_down(heap, at, last);
}

void mr_heap_validate(const struct mr_heap *heap)
{
    mr_assert(heap->n <= heap->cap);
    for (size_t i = 0; i < heap->n; i++) {
        mr_assert(heap->nodes[i]->index == i);
        mr_assert(i == 0 || !before(heap->nodes[i], heap->nodes[(i - 1) / 2]));
    }
}
