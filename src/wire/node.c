/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/node.h"

enum { FIELD_QUEUES = 9, FIELD_TYPES = 10 };
enum { LIST_MAX = 64 }; /* no node has more queues or types */
_Static_assert((int)LIST_MAX >= (int)MR_TAKE_QUEUES_MAX, "a node's queues fit");

static const struct mr_flat_field queue_weight_fields[] = {
    {MR_FLAT_SLICE, offsetof(struct mr_worker_queue, name), 0},
    {MR_FLAT_U32, offsetof(struct mr_worker_queue, weight), 0},
};
MR_FLAT(struct mr_worker_queue, mr_flat_queue_weight, queue_weight_fields);

#define FIELD(kind, member)                                                                        \
    {                                                                                              \
        MR_FLAT_##kind, offsetof(struct mr_node_info, member), 0                                   \
    }
static const struct mr_flat_field node_fields[] = {
    FIELD(SLICE, name),
    FIELD(FIXED64, incarnation),
    {MR_FLAT_ENUM, offsetof(struct mr_node_info, state), MR_NODE_STATE_COUNT - 1},
    FIELD(64, started_ms),
    FIELD(64, last_beat_ms),
    FIELD(64, in_hand),
    FIELD(U32, slots),
    FIELD(U32, busy),
    {MR_FLAT_NONE, 0, 0}, /* queues and types, by hand */
    {MR_FLAT_NONE, 0, 0},
    {MR_FLAT_ENUM, offsetof(struct mr_node_info, role), MR_NODE_ROLE_COUNT - 1},
};
static MR_FLAT(struct mr_node_info, node_flat, node_fields);

size_t mr_node_lists_size(const struct mr_node_lists *lists)
{
    size_t size = 0;
    for (size_t i = 0; i < lists->queues_n; i++) {
        size_t len = mr_flat_size(&mr_flat_queue_weight, &lists->queues[i]);
        size += mr_flat_head_size(len) + len;
    }
    for (size_t i = 0; i < lists->types_n; i++)
        size += mr_flat_head_size(lists->types[i].len) + lists->types[i].len;
    return size;
}

uint8_t *mr_node_lists_write(const struct mr_node_lists *lists, uint8_t *at)
{
    for (size_t i = 0; i < lists->queues_n; i++) {
        size_t len = mr_flat_size(&mr_flat_queue_weight, &lists->queues[i]);
        at = mr_flat_put_head(at, lists->queues_field, len);
        at = mr_flat_write(&mr_flat_queue_weight, &lists->queues[i], at);
    }
    for (size_t i = 0; i < lists->types_n; i++) {
        at = mr_flat_put_head(at, lists->types_field, lists->types[i].len);
        memcpy(at, lists->types[i].data, lists->types[i].len);
        at += lists->types[i].len;
    }
    return at;
}

static struct mr_node_lists lists_of(const struct mr_node_info *node)
{
    return (struct mr_node_lists){node->queues,  node->queues_n, node->types,
                                  node->types_n, FIELD_QUEUES,   FIELD_TYPES};
}

size_t mr_node_size(const struct mr_node_info *node)
{
    struct mr_node_lists lists = lists_of(node);
    return mr_flat_size(&node_flat, node) + mr_node_lists_size(&lists);
}

uint8_t *mr_node_write(const struct mr_node_info *node, uint8_t *at)
{
    struct mr_node_lists lists = lists_of(node);
    return mr_node_lists_write(&lists, mr_flat_write(&node_flat, node, at));
}

enum mr_err mr_node_read(struct mr_slice bytes, struct mr_arena *arena,
                         struct mr_node_info *ret_node)
{
    size_t queues_n, types_n;
    MR_TRY(mr_flat_count(bytes, FIELD_QUEUES, &queues_n));
    MR_TRY(mr_flat_count(bytes, FIELD_TYPES, &types_n));
    if (queues_n > LIST_MAX || types_n > LIST_MAX)
        return MR_INVALID;
    struct mr_worker_queue *queues = mr_arena_calloc(arena, queues_n + 1, sizeof *queues);
    struct mr_slice *types = mr_arena_calloc(arena, types_n + 1, sizeof *types);
    if (queues == NULL || types == NULL)
        return MR_NOMEM;
    MR_TRY(mr_flat_read(&node_flat, bytes, NULL, ret_node));
    ret_node->queues = queues;
    ret_node->types = types;
    while (bytes.len > 0) {
        struct mr_flat_item item;
        MR_TRY(mr_flat_next(&bytes, &item));
        if (item.type != MR_FLAT_BYTES)
            continue;
        if (item.number == FIELD_QUEUES)
            MR_TRY(mr_flat_read(&mr_flat_queue_weight, item.bytes, NULL,
                                &queues[ret_node->queues_n++]));
        else if (item.number == FIELD_TYPES)
            types[ret_node->types_n++] = item.bytes;
    }
    return MR_OK;
}
