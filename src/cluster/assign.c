/* SPDX-License-Identifier: Apache-2.0 */
/* Which workers prefer which partitions: what is written is looked at, and written anew where somebody came or
 * went, or the queue got another number of them. Where no worker is left, it stays: no version has a hole. */
#include <stdlib.h>

#include "broker/partition.h"
#include "cluster/internal.h"

static bool serves(const struct mr_node_info *node, struct mr_slice queue)
{
    bool may = node->role == MR_NODE_WORKER && node->state != MR_NODE_DEAD;
    for (size_t i = 0; may && i < node->queues_n; i++)
        if (mr_slice_equal(node->queues[i].name, queue))
            return true;
    return false;
}

/* NULL: it owned nothing. */
static const struct mr_owner *owner_of(const struct mr_assignment *assignment, uint64_t incarnation)
{
    for (size_t i = 0; i < assignment->owners_n; i++)
        if (assignment->owners[i].incarnation == incarnation)
            return &assignment->owners[i];
    return NULL;
}

/* All partitions that the queue has, as bits. */
static uint64_t all_of(const struct mr_assignment *assignment)
{
    return UINT64_MAX >> (64 - assignment->partitions);
}

/* The workers of the queue, with what they own now; answers how many. */
static size_t find_sharers(const struct mr_req_node_list *list,
                           const struct mr_assignment *assignment, struct mr_sharer *sharers)
{
    size_t n = 0;
    for (size_t i = 0; i < list->n; i++) {
        const struct mr_node_info *node = &list->nodes[i];
        if (!serves(node, assignment->queue))
            continue;
        const struct mr_owner *owner = owner_of(assignment, node->incarnation);
        sharers[n++] = (struct mr_sharer){
            .name = node->name,
            .incarnation = node->incarnation,
            .started_ms = node->started_ms,
            .owned = owner != NULL ? owner->owned & all_of(assignment) : 0,
        };
    }
    return n;
}

/* Those who own something, at most MR_OWNERS_MAX: no others have any. */
static size_t find_owners(const struct mr_sharer *sharers, size_t n, struct mr_owner *owners)
{
    size_t found = 0;
    for (size_t i = 0; i < n && found < MR_OWNERS_MAX; i++)
        if (sharers[i].owned != 0)
            owners[found++] =
                (struct mr_owner){sharers[i].name, sharers[i].incarnation, sharers[i].owned};
    return found;
}

static bool is_same(const struct mr_assignment *assignment, const struct mr_owner *owners, size_t n)
{
    bool same = n == assignment->owners_n;
    for (size_t i = 0; same && i < n; i++) {
        const struct mr_owner *owner = owner_of(assignment, owners[i].incarnation);
        same = owner != NULL && owner->owned == owners[i].owned;
    }
    return same;
}

static enum mr_err write_owners(struct mr_broker *broker, uint64_t term,
                                const struct mr_assignment *assignment,
                                const struct mr_owner *owners, size_t n)
{
    struct mr_req_assign req = {.req = {.op = MR_OP_ASSIGN},
                                .term = term,
                                .queue = assignment->queue,
                                .version = assignment->version,
                                .owners = owners,
                                .owners_n = n};
    enum mr_err err = mr_broker_call(broker, &req.req);
    mr_req_done(&req.req);
    return err;
}

struct room {
    struct mr_sharer *sharers;
    struct mr_owner *owners;
};

static enum mr_err assign_queue(struct mr_broker *broker, uint64_t term,
                                const struct mr_req_node_list *list,
                                const struct mr_assignment *assignment, struct room room)
{
    if (assignment->partitions < 1 || assignment->partitions > MR_PARTITIONS_MAX)
        return MR_INVALID;
    size_t n = find_sharers(list, assignment, room.sharers);
    MR_TRY(mr_partitions_share(assignment->assign, assignment->partitions, room.sharers, n));
    n = find_owners(room.sharers, n, room.owners);
    if (n == 0 || is_same(assignment, room.owners, n))
        return MR_OK;
    enum mr_err err = write_owners(broker, term, assignment, room.owners, n);
    return err == MR_NOT_FOUND ? MR_OK : err; /* it was removed meanwhile */
}

enum mr_err mr_step_assign(struct mr_broker *broker, uint64_t term, bool *ret_again)
{
    struct mr_req_node_list list = {.req = {.op = MR_OP_NODE_LIST}, .for_assignments = true};
    enum mr_err err = mr_broker_call(broker, &list.req), first = MR_OK;
    size_t n = err == MR_OK ? list.n : 0;
    *ret_again = err == MR_OK && list.assignments_n > 0;
    struct room room = {calloc(n + 1, sizeof *room.sharers), calloc(n + 1, sizeof *room.owners)};
    if (err == MR_OK && (room.sharers == NULL || room.owners == NULL))
        err = MR_NOMEM;
    for (size_t i = 0; err == MR_OK && i < list.assignments_n; i++) {
        enum mr_err one = assign_queue(broker, term, &list, &list.assignments[i], room);
        first = first != MR_OK ? first : one;
    }
    free(room.sharers);
    free(room.owners);
    mr_req_done(&list.req);
    return err != MR_OK ? err : first;
}
