/* SPDX-License-Identifier: Apache-2.0 */
#include "timer/strategy.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buf.h"
#include "wire/node.h"

/* ---- the live workers ----------------------------------------------------------------------- */

struct member {
    const struct mr_node_info *node;
    uint64_t sent; /* to it, by this roster */
    uint32_t in_error;
};

struct mr_roster {
    struct mr_slice queue;
    struct member *members; /* by name, then by incarnation: the same on every server */
    size_t n;
};

static uint32_t count_slots(const struct mr_node_info *node, enum mr_slot_state state)
{
    uint32_t n = 0;
    for (size_t i = 0; i < node->slot_infos_n; i++)
        n += node->slot_infos[i].state == state;
    return n;
}

/* One with a slot that takes no more is about to leave. */
static bool serves(const struct mr_node_info *node, struct mr_slice queue)
{
    for (size_t i = 0; i < node->queues_n; i++)
        if (mr_slice_equal(node->queues[i].name, queue))
            return node->role == MR_NODE_WORKER && node->state == MR_NODE_LIVE &&
                   count_slots(node, MR_SLOT_STOPPING) == 0 &&
                   queue.len + 1 + node->name.len <= MR_NAME_MAX;
    return false;
}

static bool is_before(const struct mr_node_info *a, const struct mr_node_info *b)
{
    int order = mr_slice_compare(a->name, b->name);
    return order != 0 ? order < 0 : a->incarnation < b->incarnation;
}

static int by_name(const void *a, const void *b)
{
    const struct mr_node_info *one = ((const struct member *)a)->node;
    const struct mr_node_info *two = ((const struct member *)b)->node;
    return is_before(one, two) ? -1 : is_before(two, one);
}

enum mr_err mr_roster_make(struct mr_arena *arena, struct mr_slice queue,
                           const struct mr_node_info *nodes, size_t nodes_n,
                           struct mr_roster **ret_roster)
{
    struct mr_roster *roster = mr_arena_calloc(arena, 1, sizeof *roster);
    struct member *members = mr_arena_calloc(arena, nodes_n + 1, sizeof *members);
    if (roster == NULL || members == NULL)
        return MR_NOMEM;
    MR_TRY(mr_arena_copy(arena, queue, &roster->queue));
    roster->members = members;
    for (size_t i = 0; i < nodes_n; i++)
        if (serves(&nodes[i], queue))
            members[roster->n++] = (struct member){
                .node = &nodes[i], .in_error = count_slots(&nodes[i], MR_SLOT_ERROR)};
    if (roster->n > 1)
        qsort(members, roster->n, sizeof *members, by_name);
    *ret_roster = roster;
    return MR_OK;
}

static bool handles(const struct member *member, struct mr_slice type)
{
    return mr_node_handles(member->node, type);
}

size_t mr_roster_count(const struct mr_roster *roster, struct mr_slice type)
{
    size_t n = 0;
    for (size_t i = 0; i < roster->n; i++)
        n += handles(&roster->members[i], type);
    return n;
}

/* ---- choosing one --------------------------------------------------------------------------- */

/* What is in hand and what was sent for each of its slots, as a fraction: a's is smaller, or else fewer of its
 * slots are in error. 0: they are equal. */
static int compare_health(const struct member *a, const struct member *b)
{
    uint64_t slots_a = a->node->slots > 0 ? a->node->slots : 1;
    uint64_t slots_b = b->node->slots > 0 ? b->node->slots : 1;
    uint64_t load_a = (a->node->in_hand + a->sent) * slots_b;
    uint64_t load_b = (b->node->in_hand + b->sent) * slots_a;
    uint64_t errors_a = a->in_error * slots_b, errors_b = b->in_error * slots_a;
    if (load_a != load_b)
        return load_a < load_b ? -1 : 1;
    return errors_a < errors_b ? -1 : errors_a > errors_b;
}

static struct member *pick_nth(struct mr_roster *roster, struct mr_slice type, uint64_t number)
{
    size_t n = mr_roster_count(roster, type);
    uint64_t left = n > 0 ? number % n : 0;
    for (size_t i = 0; i < roster->n; i++)
        if (handles(&roster->members[i], type) && left-- == 0)
            return &roster->members[i];
    return NULL;
}

/* Those that are equally well get them in turn. */
static struct member *pick_healthiest(struct mr_roster *roster, struct mr_slice type,
                                      uint64_t number)
{
    struct member *best = NULL;
    size_t equals = 0;
    for (size_t i = 0; i < roster->n; i++) {
        struct member *member = &roster->members[i];
        int order = !handles(member, type) ? 1 : best == NULL ? -1 : compare_health(member, best);
        if (order < 0)
            best = member;
        equals = order < 0 ? 1 : equals + (order == 0);
    }
    uint64_t turn = equals > 0 ? number % equals : 0;
    for (struct member *member = best; best != NULL && turn > 0;)
        if (handles(++member, type) && compare_health(member, best) == 0 && --turn == 0)
            return member;
    return best;
}

/* 64 bits of a name and a key, as any server finds them; every bit of either changes half of them. */
static uint64_t weight_of(struct mr_slice name, struct mr_slice key)
{
    uint64_t hash = mr_fnv64(MR_FNV64_SEED, name);
    hash = (hash ^ 0x100) * MR_FNV64_PRIME; /* no byte: so names and keys do not run together */
    hash = mr_fnv64(hash, key);
    hash = (hash ^ hash >> 33) * 0xff51afd7ed558ccd;
    hash = (hash ^ hash >> 33) * 0xc4ceb9fe1a85ec53;
    return hash ^ hash >> 33;
}

/* Each key goes to the worker whose name has the highest weight with it: so only what was one's who has left moves, and
 * one who comes takes his share of every other. */
static struct member *pick_by_key(struct mr_roster *roster, struct mr_slice type,
                                  struct mr_slice key)
{
    struct member *best = NULL;
    uint64_t most = 0;
    for (size_t i = 0; i < roster->n; i++) {
        struct member *member = &roster->members[i];
        uint64_t weight = weight_of(member->node->name, key);
        if (!handles(member, type) || (best != NULL && weight <= most))
            continue;
        best = member;
        most = weight;
    }
    return best;
}

static struct member *pick(struct mr_roster *roster, struct mr_strategy_to strategy,
                           struct mr_slice type, uint64_t number)
{
    switch (strategy.kind) {
    case MR_STRATEGY_ROUND_ROBIN:
        return pick_nth(roster, type, number);
    case MR_STRATEGY_HEALTHIEST:
        return pick_healthiest(roster, type, number);
    case MR_STRATEGY_KEY:
        return pick_by_key(roster, type, strategy.name);
    default:
        return NULL;
    }
}

/* ---- where the tasks go --------------------------------------------------------------------- */

static enum mr_err address(struct mr_slice queue, struct mr_slice name, struct mr_arena *arena,
                           struct mr_slice *ret_queue)
{
    char text[2 * MR_NAME_MAX + 2];
    int len = snprintf(text, sizeof text, "%.*s@%.*s", (int)queue.len, (const char *)queue.data,
                       (int)name.len, (const char *)name.data);
    return len <= MR_NAME_MAX ? mr_arena_copy(arena, mr_slice_make(text, (size_t)len), ret_queue)
                              : MR_TOO_BIG;
}

static enum mr_err target_member(const struct mr_roster *roster, struct member *member,
                                 struct mr_arena *arena, struct mr_target *ret_target)
{
    member->sent++;
    ret_target->incarnation = member->node->incarnation;
    return address(roster->queue, member->node->name, arena, &ret_target->queue);
}

static enum mr_err target_all(struct mr_roster *roster, struct mr_slice type,
                              struct mr_arena *arena, struct mr_target *targets, size_t *ret_n)
{
    size_t n = 0;
    for (size_t i = 0; i < roster->n; i++)
        if (handles(&roster->members[i], type))
            MR_TRY(target_member(roster, &roster->members[i], arena, &targets[n++]));
    *ret_n = n;
    return MR_OK;
}

enum mr_err mr_roster_targets(struct mr_roster *roster, struct mr_strategy_to strategy,
                              struct mr_slice type, uint64_t number, struct mr_arena *arena,
                              struct mr_target **ret_targets, size_t *ret_n)
{
    bool all = strategy.kind == MR_STRATEGY_BROADCAST;
    struct mr_target *targets = mr_arena_calloc(arena, all ? roster->n + 1 : 1, sizeof *targets);
    if (targets == NULL)
        return MR_NOMEM;
    *ret_targets = targets;
    if (all)
        return target_all(roster, type, arena, targets, ret_n);
    *ret_n = 1;
    if (strategy.kind == MR_STRATEGY_TAG)
        return address(roster->queue, strategy.name, arena, &targets->queue);
    struct member *member = pick(roster, strategy, type, number);
    if (member != NULL)
        return target_member(roster, member, arena, targets);
    return mr_arena_copy(arena, roster->queue, &targets->queue);
}

/* ---- as text -------------------------------------------------------------------------------- */

enum { INCARNATION_LEN = 16 };

/* A line for each: the queue, and where a node is meant a space and its incarnation. Names have no line ends. */
enum mr_err mr_targets_write(const struct mr_target *targets, size_t n, struct mr_buf *text)
{
    for (size_t i = 0; i < n; i++) {
        MR_TRY(mr_buf_printf(text, "%s%.*s", i > 0 ? "\n" : "", (int)targets[i].queue.len,
                             (const char *)targets[i].queue.data));
        if (targets[i].incarnation != 0)
            MR_TRY(mr_buf_printf(text, " %016llx", (unsigned long long)targets[i].incarnation));
    }
    return MR_OK;
}

static bool read_hex(const char *text, uint64_t *ret_number)
{
    static const char digits[] = "0123456789abcdef";
    uint64_t number = 0;
    for (size_t i = 0; i < INCARNATION_LEN; i++) {
        const char *digit = memchr(digits, text[i], sizeof digits - 1);
        if (digit == NULL)
            return false;
        number = number << 4 | (uint64_t)(digit - digits);
    }
    *ret_number = number;
    return true;
}

static enum mr_err read_line(struct mr_slice line, struct mr_arena *arena,
                             struct mr_target *ret_target)
{
    const char *text = line.data;
    if (line.len > INCARNATION_LEN + 1 && text[line.len - INCARNATION_LEN - 1] == ' ' &&
        read_hex(text + line.len - INCARNATION_LEN, &ret_target->incarnation))
        line.len -= INCARNATION_LEN + 1;
    MR_TRY(mr_name_check(line));
    return mr_arena_copy(arena, line, &ret_target->queue);
}

enum mr_err mr_targets_read(struct mr_slice text, struct mr_slice queue, struct mr_arena *arena,
                            struct mr_target **ret_targets, size_t *ret_n)
{
    size_t n = 1, i = 0;
    const char *at = text.data;
    for (size_t k = 0; k < text.len; k++)
        n += at[k] == '\n';
    struct mr_target *targets = mr_arena_calloc(arena, n, sizeof *targets);
    if (targets == NULL)
        return MR_NOMEM;
    if (text.len == 0)
        MR_TRY(mr_arena_copy(arena, queue, &targets->queue));
    for (struct mr_slice left = text; text.len > 0 && i < n; i++) {
        const char *end = memchr(left.data, '\n', left.len);
        size_t len = end != NULL ? (size_t)(end - (const char *)left.data) : left.len;
        MR_TRY(read_line(mr_slice_make(left.data, len), arena, &targets[i]));
        left =
            mr_slice_make((const char *)left.data + len + 1, end != NULL ? left.len - len - 1 : 0);
    }
    *ret_targets = targets;
    *ret_n = n;
    return MR_OK;
}

/* ---- broadcasts ----------------------------------------------------------------------------- */

size_t mr_broadcast_id(struct mr_slice firing_id, uint64_t incarnation,
                       char id[MR_BROADCAST_ID_MAX])
{
    int len = snprintf(id, MR_BROADCAST_ID_MAX, "%.*s-%016llx", (int)firing_id.len,
                       (const char *)firing_id.data, (unsigned long long)incarnation);
    mr_assert(len < MR_BROADCAST_ID_MAX);
    return (size_t)len;
}

/* The id of a firing ends with a number of at most ten digits, so sixteen hex digits are none. */
struct mr_slice mr_broadcast_firing(struct mr_slice task_id)
{
    const char *text = task_id.data;
    if (task_id.len <= INCARNATION_LEN + 1)
        return (struct mr_slice){0};
    size_t len = task_id.len - INCARNATION_LEN - 1;
    uint64_t incarnation;
    bool fine = text[len] == '-' && read_hex(text + len + 1, &incarnation);
    return fine ? mr_slice_make(text, len) : (struct mr_slice){0};
}
