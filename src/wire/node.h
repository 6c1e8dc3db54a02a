/* SPDX-License-Identifier: Apache-2.0 */
/* Node of proto/: struct mr_node_info, straight from and to its bytes, as wire/flat.h does it. */
#ifndef MR_WIRE_NODE_H
#define MR_WIRE_NODE_H

#include "wire/flat.h"

/* What a node takes, as messages of several kinds say it, each in fields of its own numbers. */
struct mr_node_lists {
    const struct mr_worker_queue *queues;
    size_t queues_n;
    const struct mr_slice *types;
    size_t types_n;
    unsigned queues_field, types_field;
};
size_t mr_node_lists_size(const struct mr_node_lists *lists);
uint8_t *mr_node_lists_write(const struct mr_node_lists *lists, uint8_t *at);

size_t mr_node_size(const struct mr_node_info *node);
/* Writes as many bytes; returns where they end. */
uint8_t *mr_node_write(const struct mr_node_info *node, uint8_t *at);
/* MR_INVALID when the bytes are not such a message. Slices point into them; arena: for the lists. */
MR_MUST_USE enum mr_err mr_node_read(struct mr_slice bytes, struct mr_arena *arena,
                                     struct mr_node_info *ret_node);

/* QueueWeight of proto/. */
extern const struct mr_flat mr_flat_queue_weight; /* struct mr_worker_queue */

#endif
