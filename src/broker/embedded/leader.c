/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who leads, and what the leader writes. Nothing of it is on disk: leaders and owners are nodes, and no node
 * outlives the engine. What must not come again after a start are terms and versions, so they are epochs:
 * above all that were handed out, below a ceiling that is on disk.
 */
#include <stdlib.h>

#include "broker/embedded/engine.h"

/* ---- who leads ------------------------------------------------------------------------------ */

/* NULL: nobody. */
static struct node *leader_now(struct mr_engine *engine)
{
    struct leadership *lead = &engine->leadership;
    struct node *node = lead->node != 0 ? find_node(engine, lead->node) : NULL;
    if (node != NULL && engine->now.ns < lead->until.ns)
        return node;
    if (lead->node != 0)
        lead->free_since = engine->now.ns < lead->until.ns ? engine->now : lead->until;
    lead->node = 0;
    return NULL;
}

void leader_left(struct mr_engine *engine, const struct node *node)
{
    struct leadership *lead = &engine->leadership;
    if (lead->node != node->id)
        return;
    (void)leader_now(engine); /* it may have been none any more */
    if (lead->node == node->id)
        lead->free_since = engine->now;
    lead->node = 0;
}

/* Without an epoch to be had just now, a later beat comes. */
static struct node *elect(struct mr_engine *engine, struct node *node)
{
    struct leadership *lead = &engine->leadership;
    uint64_t term;
    if (!node->leads || next_epoch(engine, &term) != MR_OK)
        return NULL;
    mr_assert(term > lead->term);
    engine->last_epoch = term;
    lead->node = node->id;
    lead->term = term;
    lead->since_ms = engine->now_ms;
    return node;
}

void leader_beat(struct mr_engine *engine, struct node *node, struct mr_req_beat *req)
{
    struct leadership *lead = &engine->leadership;
    struct node *leader = leader_now(engine);
    if (leader == NULL)
        leader = elect(engine, node);
    if (leader == node)
        lead->until = mr_mono_add_ms(engine->now, node->leader_ms);
    req->term = leader == node ? lead->term : 0;
    req->leader_ms = leader != NULL ? (lead->until.ns - engine->now.ns) / MR_NS_PER_MS + 1 : 0;
}

static int64_t leaderless_ms(const struct mr_engine *engine)
{
    const struct leadership *lead = &engine->leadership;
    return lead->node != 0 ? 0 : (engine->now.ns - lead->free_since.ns) / MR_NS_PER_MS + 1;
}

int64_t leader_missing_ms(struct mr_engine *engine)
{
    (void)leader_now(engine);
    return leaderless_ms(engine);
}

/* ---- what it writes ------------------------------------------------------------------------- */

/* A copy of names, incarnations and bits; heap. */
struct assignment {
    struct mr_link link;
    const struct queue *queue;
    uint64_t version, term;
    size_t n;
    struct owner {
        uint64_t incarnation, owned;
        uint8_t name_len;
        char name[MR_NAME_MAX];
    } owners[];
};

static struct assignment *assignment_of(const struct mr_engine *engine, const struct queue *queue)
{
    for (struct mr_link *link = engine->assignments.next; link != &engine->assignments;
         link = link->next) {
        struct assignment *assignment = mr_container(link, struct assignment, link);
        if (assignment->queue == queue)
            return assignment;
    }
    return NULL;
}

static void assignment_free(struct assignment *assignment)
{
    if (assignment == NULL)
        return;
    mr_list_remove(&assignment->link);
    free(assignment);
}

void assignments_forget(struct mr_engine *engine, const struct queue *queue)
{
    assignment_free(assignment_of(engine, queue));
}

void assignments_free(struct mr_engine *engine)
{
    while (!mr_list_empty(&engine->assignments))
        assignment_free(mr_container(engine->assignments.next, struct assignment, link));
}

static bool is_whole(uint64_t owned, uint32_t n)
{
    return owned == UINT64_MAX >> (64 - n);
}

static uint64_t all_owned(const struct assignment *assignment)
{
    uint64_t owned = 0;
    for (size_t i = 0; i < assignment->n; i++)
        owned |= assignment->owners[i].owned;
    return owned;
}

/* The one who has the least, the first of such. */
static struct owner *least_owner(struct assignment *assignment)
{
    struct owner *least = &assignment->owners[0];
    for (size_t i = 1; i < assignment->n; i++)
        if (__builtin_popcountll(assignment->owners[i].owned) < __builtin_popcountll(least->owned))
            least = &assignment->owners[i];
    return least;
}

void assignment_refit(struct mr_engine *engine, const struct queue *queue)
{
    struct assignment *assignment = assignment_of(engine, queue);
    uint32_t n = queue->parts_n;
    if (assignment == NULL || is_whole(all_owned(assignment), n))
        return;
    uint64_t version;
    if (n == 1 || next_epoch(engine, &version) != MR_OK) { /* shared as without a leader then */
        assignment_free(assignment);
        return;
    }
    engine->last_epoch = assignment->version = version;
    for (size_t i = 0; i < assignment->n; i++)
        assignment->owners[i].owned &= UINT64_MAX >> (64 - n);
    uint64_t owned = all_owned(assignment);
    for (uint32_t part = 0; part < n; part++)
        if ((owned >> part & 1) == 0)
            least_owner(assignment)->owned |= (uint64_t)1 << part;
}

bool assignment_owned(const struct mr_engine *engine, const struct queue *queue,
                      const struct node *node, uint64_t *ret_owned)
{
    const struct assignment *assignment = assignment_of(engine, queue);
    if (assignment == NULL)
        return false;
    *ret_owned = 0;
    for (size_t i = 0; i < assignment->n; i++)
        if (assignment->owners[i].incarnation == node->id)
            *ret_owned = assignment->owners[i].owned;
    return true;
}

static struct assignment *assignment_new(const struct mr_req_assign *req, const struct queue *queue)
{
    struct assignment *made = calloc(1, sizeof *made + req->owners_n * sizeof(struct owner));
    if (made == NULL)
        return NULL;
    *made = (struct assignment){.queue = queue, .term = req->term, .n = req->owners_n};
    for (size_t i = 0; i < req->owners_n; i++) {
        const struct mr_owner *from = &req->owners[i];
        made->owners[i] = (struct owner){.incarnation = from->incarnation, .owned = from->owned};
        made->owners[i].name_len = (uint8_t)from->node.len;
        if (from->node.len > 0)
            memcpy(made->owners[i].name, from->node.data, from->node.len);
    }
    return made;
}

static enum mr_err assign(struct mr_engine *engine, struct mr_req_assign *req)
{
    MR_TRY(mr_assign_check(req));
    if (leader_now(engine) == NULL || engine->leadership.term != req->term)
        return MR_STALE;
    struct queue *queue = find_shown_queue(&engine->state, req->queue);
    if (queue == NULL || queue->parts_n == 1)
        return MR_NOT_FOUND;
    struct assignment *old = assignment_of(engine, queue);
    if ((old != NULL ? old->version : 0) != req->version ||
        !is_whole(mr_owned_by_all(req), queue->parts_n))
        return MR_STALE;
    uint64_t version;
    MR_TRY(next_epoch(engine, &version));
    struct assignment *made = assignment_new(req, queue);
    if (made == NULL)
        return MR_NOMEM;
    engine->last_epoch = version;
    made->version = req->version = version;
    assignment_free(old);
    mr_list_push_back(&engine->assignments, &made->link);
    parts_assign(engine, queue);
    return MR_OK;
}

enum handled handle_assign(struct mr_engine *engine, struct mr_req *base)
{
    enum mr_err err = assign(engine, mr_container(base, struct mr_req_assign, req));
    if (err == MR_BUSY)
        return STALLED;
    mr_req_answer(base, err);
    return HANDLED;
}

/* ---- as people see it ----------------------------------------------------------------------- */

static enum mr_err show_leader(struct mr_engine *engine, struct mr_arena *arena,
                               struct mr_leader *ret_leader)
{
    const struct leadership *lead = &engine->leadership;
    const struct node *node = leader_now(engine);
    *ret_leader = (struct mr_leader){.term = lead->term, .leaderless_ms = leaderless_ms(engine)};
    if (node == NULL)
        return MR_OK;
    ret_leader->incarnation = node->id;
    ret_leader->since_ms = lead->since_ms;
    return mr_arena_copy(arena, mr_slice_str(node->name), &ret_leader->node);
}

static enum mr_err show_owners(const struct assignment *from, struct mr_arena *arena,
                               struct mr_assignment *assignment)
{
    struct mr_owner *owners = mr_arena_calloc(arena, from->n, sizeof *owners);
    if (owners == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < from->n; i++) {
        const struct owner *owner = &from->owners[i];
        owners[i] = (struct mr_owner){.incarnation = owner->incarnation, .owned = owner->owned};
        MR_TRY(mr_arena_copy(arena, mr_slice_make(owner->name, owner->name_len), &owners[i].node));
    }
    assignment->version = from->version;
    assignment->term = from->term;
    assignment->owners = owners;
    assignment->owners_n = from->n;
    return MR_OK;
}

static bool is_shared(const struct queue *queue)
{
    return queue != NULL && !queue->results && queue->parts_n > 1;
}

static enum mr_err show_assignments(const struct mr_engine *engine, struct mr_req_node_list *req)
{
    struct mr_arena *arena = &req->req.arena;
    const struct state *state = &engine->state;
    size_t n = 0;
    for (uint32_t i = 0; i < state->queues_n; i++)
        n += is_shared(state->queues[i]);
    req->assignments = mr_arena_calloc(arena, n + 1, sizeof *req->assignments);
    if (req->assignments == NULL)
        return MR_NOMEM;
    for (uint32_t i = 0; i < state->queues_n; i++) {
        const struct queue *queue = state->queues[i];
        if (!is_shared(queue))
            continue;
        struct mr_assignment *shown = &req->assignments[req->assignments_n++];
        const struct assignment *from = assignment_of(engine, queue);
        shown->assign = queue->assign;
        shown->partitions = queue->parts_n;
        MR_TRY(mr_arena_copy(arena, mr_slice_make(queue->name, queue->name_len), &shown->queue));
        if (from != NULL)
            MR_TRY(show_owners(from, arena, shown));
    }
    return MR_OK;
}

static int by_queue(const void *a, const void *b)
{
    const struct mr_assignment *x = a, *y = b;
    return mr_slice_compare(x->queue, y->queue);
}

enum mr_err leader_show(struct mr_engine *engine, struct mr_req_node_list *req)
{
    req->assignments_n = 0;
    MR_TRY(show_leader(engine, &req->req.arena, &req->leader));
    MR_TRY(show_assignments(engine, req));
    if (req->assignments_n > 0)
        qsort(req->assignments, req->assignments_n, sizeof *req->assignments, by_queue);
    return MR_OK;
}
