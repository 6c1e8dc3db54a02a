/* SPDX-License-Identifier: Apache-2.0 */
/* Binary min-heap of intrusive nodes ordered by (key, tie): O(log n) push and removal anywhere. */
#ifndef MR_BASE_HEAP_H
#define MR_BASE_HEAP_H

#include "base/err.h"

struct mr_heap_node {
    int64_t key;
    uint64_t tie; /* orders equal keys */
    size_t index; /* place in the heap, kept by it */
};

struct mr_heap {
    struct mr_heap_node **nodes;
    size_t n, cap;
};

void mr_heap_done(struct mr_heap *heap);
MR_MUST_USE enum mr_err mr_heap_push(struct mr_heap *heap, struct mr_heap_node *node);
/* NULL when empty. */
struct mr_heap_node *mr_heap_top(const struct mr_heap *heap);
void mr_heap_remove(struct mr_heap *heap, struct mr_heap_node *node);
/* O(n); asserts the heap property and the indexes. */
void mr_heap_validate(const struct mr_heap *heap);

#endif
