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

/* Whether name is QUEUE@NAME: what is in there is for a node or a tag among the workers of QUEUE. */
bool mr_is_address(struct mr_slice name, struct mr_slice queue);
/* Which of these queues the i-th is an address of, the longest if several are; i: none. */
size_t mr_address_base(const struct mr_worker_queue *queues, size_t n, size_t i);

/* Whether it says that it handles this type of task. */
bool mr_node_handles(const struct mr_node_info *node, struct mr_slice type);

size_t mr_node_size(const struct mr_node_info *node);
/* Writes as many bytes; returns where they end. */
uint8_t *mr_node_write(const struct mr_node_info *node, uint8_t *at);
/* MR_INVALID when the bytes are not such a message. Slices point into them; arena: for the lists. */
MR_MUST_USE enum mr_err mr_node_read(struct mr_slice bytes, struct mr_arena *arena,
                                     struct mr_node_info *ret_node);

/* Slots, as messages of several kinds say them, at most MR_SLOTS_SHOWN: MR_TOO_BIG. Slices point into the
 * bytes. */
size_t mr_slot_infos_size(const struct mr_slot_info *infos, size_t n);
uint8_t *mr_slot_infos_write(const struct mr_slot_info *infos, size_t n, unsigned field,
                             uint8_t *at);
MR_MUST_USE enum mr_err mr_slot_infos_read(struct mr_slice bytes, unsigned field,
                                           struct mr_arena *arena,
                                           const struct mr_slot_info **ret_infos, size_t *ret_n);

/* Owners, as messages of several kinds say them. */
size_t mr_owners_size(const struct mr_owner *owners, size_t n);
uint8_t *mr_owners_write(const struct mr_owner *owners, size_t n, unsigned field, uint8_t *at);
/* MR_TOO_BIG: more than max. Slices point into the bytes. */
MR_MUST_USE enum mr_err mr_owners_read(struct mr_slice bytes, unsigned field, size_t max,
                                       struct mr_arena *arena, const struct mr_owner **ret_owners,
                                       size_t *ret_n);

/* Assignment of proto/. */
size_t mr_assignment_size(const struct mr_assignment *assignment);
uint8_t *mr_assignment_write(const struct mr_assignment *assignment, uint8_t *at);
MR_MUST_USE enum mr_err mr_assignment_read(struct mr_slice bytes, struct mr_arena *arena,
                                           struct mr_assignment *ret_assignment);

extern const struct mr_flat mr_flat_leader; /* Leader of proto/: struct mr_leader */

/* QueueWeight of proto/. */
extern const struct mr_flat mr_flat_queue_weight; /* struct mr_worker_queue */

#endif
