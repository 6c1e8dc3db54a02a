/* SPDX-License-Identifier: Apache-2.0 */
#include "api/doubts.h"

void mr_doubts_add(struct mr_doubts *doubts, uint64_t node)
{
    if (doubts == NULL)
        return;
    for (size_t i = 0; i < MR_DOUBTS_MAX; i++) {
        if (atomic_load(&doubts->nodes[i]) != 0)
            continue;
        atomic_store(&doubts->nodes[i], node);
        atomic_fetch_add(&doubts->n, 1);
        return;
    }
}

void mr_doubts_remove(struct mr_doubts *doubts, uint64_t node)
{
    if (doubts == NULL || atomic_load(&doubts->n) == 0)
        return;
    for (size_t i = 0; i < MR_DOUBTS_MAX; i++) {
        if (atomic_load(&doubts->nodes[i]) != node)
            continue;
        atomic_store(&doubts->nodes[i], 0);
        atomic_fetch_sub(&doubts->n, 1);
        return;
    }
}

void mr_doubts_mark(const struct mr_doubts *doubts, struct mr_node_info *nodes, size_t n)
{
    if (doubts == NULL || atomic_load(&doubts->n) == 0)
        return;
    for (size_t i = 0; i < MR_DOUBTS_MAX; i++) {
        uint64_t doubted = atomic_load(&doubts->nodes[i]);
        for (size_t k = 0; doubted != 0 && k < n; k++)
            if (nodes[k].incarnation == doubted && nodes[k].state == MR_NODE_LIVE)
                nodes[k].state = MR_NODE_SUSPECT;
    }
}
