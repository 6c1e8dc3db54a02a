/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/node.h"

enum { FIELD_QUEUES = 9, FIELD_TYPES = 10, FIELD_SLOTS = 12, FIELD_TAGS = 13 };
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

#define SLOT_FIELD(kind, member, more)                                                             \
    {                                                                                              \
        MR_FLAT_##kind, offsetof(struct mr_slot_info, member), more                                \
    }
static const struct mr_flat_field slot_fields[] = {
    SLOT_FIELD(ENUM, state, MR_SLOT_STATE_COUNT - 1),
    SLOT_FIELD(U32, machine, 0),
    SLOT_FIELD(64, since_ms, 0),
    SLOT_FIELD(SLICE, id, 0),
    SLOT_FIELD(SLICE, type, 0),
};
static MR_FLAT(struct mr_slot_info, slot_flat, slot_fields);

size_t mr_slot_infos_size(const struct mr_slot_info *infos, size_t n)
{
    size_t size = 0;
    for (size_t i = 0; i < n; i++) {
        size_t len = mr_flat_size(&slot_flat, &infos[i]);
        size += mr_flat_head_size(len) + len;
    }
    return size;
}

uint8_t *mr_slot_infos_write(const struct mr_slot_info *infos, size_t n, unsigned field,
                             uint8_t *at)
{
    for (size_t i = 0; i < n; i++) {
        at = mr_flat_put_head(at, field, mr_flat_size(&slot_flat, &infos[i]));
        at = mr_flat_write(&slot_flat, &infos[i], at);
    }
    return at;
}

enum mr_err mr_slot_infos_read(struct mr_slice bytes, unsigned field, struct mr_arena *arena,
                               const struct mr_slot_info **ret_infos, size_t *ret_n)
{
    size_t n, i = 0;
    MR_TRY(mr_flat_count(bytes, field, &n));
    if (n > MR_SLOTS_SHOWN)
        return MR_TOO_BIG;
    struct mr_slot_info *infos = mr_arena_calloc(arena, n + 1, sizeof *infos);
    if (infos == NULL)
        return MR_NOMEM;
    while (bytes.len > 0) {
        struct mr_flat_item item;
        MR_TRY(mr_flat_next(&bytes, &item));
        if (item.number == field && item.type == MR_FLAT_BYTES)
            MR_TRY(mr_flat_read(&slot_flat, item.bytes, NULL, &infos[i++]));
    }
    *ret_infos = infos;
    *ret_n = n;
    return MR_OK;
}

bool mr_is_address(struct mr_slice name, struct mr_slice queue)
{
    const char *text = name.data;
    return name.len > queue.len + 1 && text[queue.len] == '@' && mr_slice_starts_with(name, queue);
}

size_t mr_address_base(const struct mr_worker_queue *queues, size_t n, size_t i)
{
    size_t base = i;
    for (size_t k = 0; k < n; k++)
        if (mr_is_address(queues[i].name, queues[k].name) &&
            (base == i || queues[k].name.len > queues[base].name.len))
            base = k;
    return base;
}

/* The tag that the i-th queue is addressed to; empty: none, or the node itself. */
static struct mr_slice tag_of(const struct mr_node_info *node, size_t i)
{
    struct mr_slice name = node->queues[i].name;
    size_t base = mr_address_base(node->queues, node->queues_n, i);
    if (base == i)
        return (struct mr_slice){0};
    size_t len = node->queues[base].name.len + 1;
    struct mr_slice tag = mr_slice_make((const char *)name.data + len, name.len - len);
    return mr_slice_equal(tag, node->name) ? (struct mr_slice){0} : tag;
}

size_t mr_node_tags(const struct mr_node_info *node, struct mr_slice *tags, size_t max)
{
    size_t n = 0;
    for (size_t i = 0; i < node->queues_n && n < max; i++) {
        struct mr_slice tag = tag_of(node, i);
        bool new = tag.len > 0;
        for (size_t k = 0; new &&k < n; k++)
            new = !mr_slice_equal(tag, tags[k]);
        if (new)
            tags[n++] = tag;
    }
    return n;
}

static bool matches(struct mr_slice pattern, struct mr_slice type)
{
    const char *text = pattern.data;
    bool prefix = pattern.len > 0 && text[pattern.len - 1] == '*';
    pattern.len -= prefix;
    return prefix ? mr_slice_starts_with(type, pattern) : mr_slice_equal(type, pattern);
}

bool mr_node_handles(const struct mr_node_info *node, struct mr_slice type)
{
    for (size_t i = 0; i < node->types_n; i++)
        if (matches(node->types[i], type))
            return true;
    return node->types_n == 0;
}

bool mr_node_serves(const struct mr_node_info *node, size_t i)
{
    return mr_address_base(node->queues, node->queues_n, i) == i;
}

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

/* They are said for whoever reads the bytes elsewhere: here they are seen by the queues. */
static struct mr_node_lists tags_of(const struct mr_node_info *node, struct mr_slice tags[LIST_MAX])
{
    return (struct mr_node_lists){
        .types = tags, .types_n = mr_node_tags(node, tags, LIST_MAX), .types_field = FIELD_TAGS};
}

size_t mr_node_size(const struct mr_node_info *node)
{
    struct mr_slice names[LIST_MAX];
    struct mr_node_lists lists = lists_of(node), tags = tags_of(node, names);
    return mr_flat_size(&node_flat, node) + mr_node_lists_size(&lists) + mr_node_lists_size(&tags) +
           mr_slot_infos_size(node->slot_infos, node->slot_infos_n);
}

uint8_t *mr_node_write(const struct mr_node_info *node, uint8_t *at)
{
    struct mr_slice names[LIST_MAX];
    struct mr_node_lists lists = lists_of(node), tags = tags_of(node, names);
    at = mr_node_lists_write(&lists, mr_flat_write(&node_flat, node, at));
    at = mr_node_lists_write(&tags, at);
    return mr_slot_infos_write(node->slot_infos, node->slot_infos_n, FIELD_SLOTS, at);
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
    MR_TRY(mr_slot_infos_read(bytes, FIELD_SLOTS, arena, &ret_node->slot_infos,
                              &ret_node->slot_infos_n));
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

/* ---- the leader and what it writes ---------------------------------------------------------- */

static const struct mr_flat_field leader_fields[] = {
    {MR_FLAT_SLICE, offsetof(struct mr_leader, node), 0},
    {MR_FLAT_FIXED64, offsetof(struct mr_leader, incarnation), 0},
    {MR_FLAT_FIXED64, offsetof(struct mr_leader, term), 0},
    {MR_FLAT_64, offsetof(struct mr_leader, since_ms), 0},
    {MR_FLAT_64, offsetof(struct mr_leader, leaderless_ms), 0},
};
MR_FLAT(struct mr_leader, mr_flat_leader, leader_fields);

static const struct mr_flat_field owner_fields[] = {
    {MR_FLAT_SLICE, offsetof(struct mr_owner, node), 0},
    {MR_FLAT_FIXED64, offsetof(struct mr_owner, incarnation), 0},
    {MR_FLAT_FIXED64, offsetof(struct mr_owner, owned), 0},
};
static MR_FLAT(struct mr_owner, owner_flat, owner_fields);

enum { FIELD_OWNERS = 6, OWNERS_MAX = 65536 };
static const struct mr_flat_field assignment_fields[] = {
    {MR_FLAT_SLICE, offsetof(struct mr_assignment, queue), 0},
    {MR_FLAT_ENUM, offsetof(struct mr_assignment, assign), MR_ASSIGN_COUNT - 1},
    {MR_FLAT_U32, offsetof(struct mr_assignment, partitions), 0},
    {MR_FLAT_FIXED64, offsetof(struct mr_assignment, version), 0},
    {MR_FLAT_FIXED64, offsetof(struct mr_assignment, term), 0},
};
static MR_FLAT(struct mr_assignment, assignment_flat, assignment_fields);

size_t mr_owners_size(const struct mr_owner *owners, size_t n)
{
    size_t size = 0;
    for (size_t i = 0; i < n; i++) {
        size_t len = mr_flat_size(&owner_flat, &owners[i]);
        size += mr_flat_head_size(len) + len;
    }
    return size;
}

uint8_t *mr_owners_write(const struct mr_owner *owners, size_t n, unsigned field, uint8_t *at)
{
    for (size_t i = 0; i < n; i++) {
        at = mr_flat_put_head(at, field, mr_flat_size(&owner_flat, &owners[i]));
        at = mr_flat_write(&owner_flat, &owners[i], at);
    }
    return at;
}

enum mr_err mr_owners_read(struct mr_slice bytes, unsigned field, size_t max,
                           struct mr_arena *arena, const struct mr_owner **ret_owners,
                           size_t *ret_n)
{
    size_t n, i = 0;
    MR_TRY(mr_flat_count(bytes, field, &n));
    if (n > max)
        return MR_TOO_BIG;
    struct mr_owner *owners = mr_arena_calloc(arena, n + 1, sizeof *owners);
    if (owners == NULL)
        return MR_NOMEM;
    while (bytes.len > 0) {
        struct mr_flat_item item;
        MR_TRY(mr_flat_next(&bytes, &item));
        if (item.number == field && item.type == MR_FLAT_BYTES)
            MR_TRY(mr_flat_read(&owner_flat, item.bytes, NULL, &owners[i++]));
    }
    *ret_owners = owners;
    *ret_n = n;
    return MR_OK;
}

size_t mr_assignment_size(const struct mr_assignment *assignment)
{
    return mr_flat_size(&assignment_flat, assignment) +
           mr_owners_size(assignment->owners, assignment->owners_n);
}

uint8_t *mr_assignment_write(const struct mr_assignment *assignment, uint8_t *at)
{
    return mr_owners_write(assignment->owners, assignment->owners_n, FIELD_OWNERS,
                           mr_flat_write(&assignment_flat, assignment, at));
}

enum mr_err mr_assignment_read(struct mr_slice bytes, struct mr_arena *arena,
                               struct mr_assignment *ret_assignment)
{
    MR_TRY(mr_flat_read(&assignment_flat, bytes, NULL, ret_assignment));
    return mr_owners_read(bytes, FIELD_OWNERS, OWNERS_MAX, arena, &ret_assignment->owners,
                          &ret_assignment->owners_n);
}
