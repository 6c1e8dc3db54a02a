/* SPDX-License-Identifier: Apache-2.0 */
/* Invariants: no leaf is empty; handles rise by their place within a leaf and from leaf to leaf. */
#include "broker/embedded/order.h"

#include <stdlib.h>
#include <string.h>

#include "broker/embedded/task.h"

enum { LEAF = 510 };

struct leaf {
    uint32_t begin, end;
    uint32_t handles[LEAF];
};

/* Where a task stands. The handle comes last: two tasks never have the same number, unless a disk
 * says so. */
struct place {
    int64_t key;
    uint64_t tie;
    uint32_t handle;
};

static struct place place_of(const struct slab *tasks, uint32_t handle)
{
    const struct task *task = slab_at(tasks, handle);
    return (struct place){task->key, task->tie, handle};
}

static bool before(struct place a, struct place b)
{
    if (a.key != b.key)
        return a.key < b.key;
    return a.tie != b.tie ? a.tie < b.tie : a.handle < b.handle;
}

void order_done(struct order *order)
{
    for (size_t i = order->begin; i < order->end; i++)
        free(order->leaves[i]);
    free(order->leaves);
    *order = (struct order){0};
}

/* ---- the array of leaves -------------------------------------------------------------------- */

/* Room for one more leaf at the end of the array. */
static enum mr_err leaves_reserve(struct order *order)
{
    if (order->end < order->cap)
        return MR_OK;
    size_t n = order->end - order->begin;
    if (order->begin > 0 && order->begin >= order->cap / 2) {
        memmove(order->leaves, order->leaves + order->begin, n * sizeof *order->leaves);
        order->begin = 0;
        order->end = n;
        return MR_OK;
    }
    size_t cap = order->cap ? 2 * order->cap : 4;
    struct leaf **grown = realloc(order->leaves, cap * sizeof *grown);
    if (grown == NULL)
        return MR_NOMEM;
    order->leaves = grown;
    order->cap = cap;
    return MR_OK;
}

/* A new leaf in front of the i-th one counted from begin; the caller fills it. */
static enum mr_err leaf_add(struct order *order, size_t nth, struct leaf **ret_leaf)
{
    struct leaf *leaf = malloc(sizeof *leaf);
    if (leaf == NULL)
        return MR_NOMEM;
    enum mr_err err = leaves_reserve(order);
    if (err != MR_OK) {
        free(leaf);
        return err;
    }
    leaf->begin = leaf->end = 0;
    struct leaf **at = order->leaves + order->begin + nth;
    memmove(at + 1, at, (order->end - order->begin - nth) * sizeof *at);
    *at = leaf;
    order->end++;
    *ret_leaf = leaf;
    return MR_OK;
}

static void leaf_drop(struct order *order, size_t i)
{
    free(order->leaves[i]);
    if (i == order->begin) {
        order->begin++;
    } else {
        memmove(order->leaves + i, order->leaves + i + 1,
                (order->end - i - 1) * sizeof *order->leaves);
        order->end--;
    }
    if (order->begin == order->end)
        order->begin = order->end = 0;
}

/* The last leaf whose first task is not behind the place; the first leaf when all are. */
static size_t leaf_find(const struct order *order, const struct slab *tasks, struct place place)
{
    size_t low = order->begin, high = order->end;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        const struct leaf *leaf = order->leaves[middle];
        if (before(place, place_of(tasks, leaf->handles[leaf->begin])))
            high = middle;
        else
            low = middle;
    }
    return low;
}

static uint32_t index_find(const struct leaf *leaf, const struct slab *tasks, struct place place)
{
    uint32_t low = leaf->begin, high = leaf->end;
    while (low < high) {
        uint32_t middle = (low + high) / 2;
        if (before(place_of(tasks, leaf->handles[middle]), place))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* ---- inserting ------------------------------------------------------------------------------ */

static void leaf_shift_down(struct leaf *leaf)
{
    memmove(leaf->handles, leaf->handles + leaf->begin,
            (leaf->end - leaf->begin) * sizeof *leaf->handles);
    leaf->end -= leaf->begin;
    leaf->begin = 0;
}

static enum mr_err append(struct order *order, uint32_t handle)
{
    struct leaf *last = order->end > order->begin ? order->leaves[order->end - 1] : NULL;
    if (last != NULL && last->end == LEAF && last->begin >= LEAF / 2)
        leaf_shift_down(last);
    if (last == NULL || last->end == LEAF)
        MR_TRY(leaf_add(order, order->end - order->begin, &last));
    last->handles[last->end++] = handle;
    order->count++;
    return MR_OK;
}

static enum mr_err split(struct order *order, size_t i)
{
    struct leaf *right;
    size_t nth = i - order->begin;
    MR_TRY(leaf_add(order, nth + 1, &right));
    struct leaf *left = order->leaves[order->begin + nth];
    uint32_t half = (left->begin + left->end) / 2;
    right->end = left->end - half;
    memcpy(right->handles, left->handles + half, right->end * sizeof *right->handles);
    left->end = half;
    return MR_OK;
}

static void leaf_insert(struct leaf *leaf, uint32_t at, uint32_t handle)
{
    if (leaf->end < LEAF) {
        memmove(leaf->handles + at + 1, leaf->handles + at,
                (leaf->end - at) * sizeof *leaf->handles);
        leaf->handles[at] = handle;
        leaf->end++;
    } else {
        memmove(leaf->handles + leaf->begin - 1, leaf->handles + leaf->begin,
                (at - leaf->begin) * sizeof *leaf->handles);
        leaf->begin--;
        leaf->handles[at - 1] = handle;
    }
}

enum mr_err order_insert(struct order *order, const struct slab *tasks, uint32_t handle)
{
    struct place place = place_of(tasks, handle);
    if (order->count == 0)
        return append(order, handle);
    const struct leaf *last = order->leaves[order->end - 1];
    if (before(place_of(tasks, last->handles[last->end - 1]), place))
        return append(order, handle);
    size_t i = leaf_find(order, tasks, place);
    if (order->leaves[i]->end - order->leaves[i]->begin == LEAF) {
        MR_TRY(split(order, i));
        i = leaf_find(order, tasks, place);
    }
    struct leaf *leaf = order->leaves[i];
    leaf_insert(leaf, index_find(leaf, tasks, place), handle);
    order->count++;
    return MR_OK;
}

/* ---- removing ------------------------------------------------------------------------------- */

/* Joins a thin leaf with a thin right neighbour, so that removals in the middle give memory back.
 */
static void join(struct order *order, size_t i)
{
    if (i + 1 >= order->end)
        return;
    struct leaf *left = order->leaves[i], *right = order->leaves[i + 1];
    uint32_t n = left->end - left->begin, m = right->end - right->begin;
    if (n + m > LEAF / 2)
        return;
    leaf_shift_down(left);
    memcpy(left->handles + left->end, right->handles + right->begin, m * sizeof *left->handles);
    left->end += m;
    leaf_drop(order, i + 1);
}

void order_remove(struct order *order, const struct slab *tasks, uint32_t handle)
{
    struct place place = place_of(tasks, handle);
    mr_assert(order->count > 0);
    size_t i = order->begin;
    struct leaf *leaf = order->leaves[i];
    order->count--;
    if (leaf->handles[leaf->begin] == handle) {
        leaf->begin++;
    } else {
        i = leaf_find(order, tasks, place);
        leaf = order->leaves[i];
        uint32_t at = index_find(leaf, tasks, place);
        mr_assert(at < leaf->end && leaf->handles[at] == handle);
        memmove(leaf->handles + at, leaf->handles + at + 1,
                (leaf->end - at - 1) * sizeof *leaf->handles);
        leaf->end--;
    }
    if (leaf->begin == leaf->end) {
        leaf_drop(order, i);
    } else if (i != order->begin) {
        join(order, i);
        join(order, i - 1);
    }
}

/* ---- reading -------------------------------------------------------------------------------- */

uint32_t order_first(const struct order *order)
{
    if (order->count == 0)
        return NO_HANDLE;
    const struct leaf *leaf = order->leaves[order->begin];
    return leaf->handles[leaf->begin];
}

struct order_at order_seek(const struct order *order, const struct slab *tasks, int64_t key,
                           uint64_t tie)
{
    if (order->count == 0)
        return (struct order_at){order->end, 0};
    struct place place = {key, tie, 0};
    size_t i = leaf_find(order, tasks, place);
    return (struct order_at){i, index_find(order->leaves[i], tasks, place)};
}

uint32_t order_next(const struct order *order, struct order_at *at)
{
    while (at->leaf < order->end && at->index >= order->leaves[at->leaf]->end) {
        at->leaf++;
        at->index = at->leaf < order->end ? order->leaves[at->leaf]->begin : 0;
    }
    return at->leaf < order->end ? order->leaves[at->leaf]->handles[at->index++] : NO_HANDLE;
}

size_t order_bytes(const struct order *order)
{
    return (order->end - order->begin) * sizeof(struct leaf) + order->cap * sizeof *order->leaves;
}

void order_validate(const struct order *order, const struct slab *tasks)
{
    size_t count = 0;
    bool first = true;
    struct place last = {0};
    for (size_t i = order->begin; i < order->end; i++) {
        const struct leaf *leaf = order->leaves[i];
        mr_assert(leaf->begin < leaf->end && leaf->end <= LEAF);
        for (uint32_t k = leaf->begin; k < leaf->end; k++, count++) {
            struct place place = place_of(tasks, leaf->handles[k]);
            mr_assert(first || before(last, place));
            last = place;
            first = false;
        }
    }
    mr_assert(count == order->count);
}
