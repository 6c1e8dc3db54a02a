/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A node is one at each server of the list (an inner one), opened when the server comes and closed when it has left the list
 * and nothing of it is in hand any more. Each is fenced for itself: a server that hangs costs what was taken from it.
 */
#include <stdlib.h>

#include "broker/many/internal.h"

struct many_node *node_at(const struct many *many, uint64_t number)
{
    struct many_node *node = many->by_index[number % NODES_MAX];
    return node != NULL && node->number == number ? node : NULL;
}

bool inner_serves(const struct inner *inner)
{
    return inner != NULL && inner->state == INNER_OPEN && !inner->is_dead &&
           inner->origin->listed && !inner->node->is_leaving && !inner->node->is_dead;
}

/* ---- what a server tells -------------------------------------------------------------------- */

static void on_stop(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    struct inner *inner = arg;
    const struct mr_node_events *events = &inner->node->terms.events;
    bool is_coming = epoch > inner->last_epoch && !mr_list_empty(&inner->asks);
    if (reason == MR_STOP_LOST)
        node_spare_lost(inner->node, shown_epoch(inner->origin, epoch));
    if (!is_coming)
        events->stop(shown_epoch(inner->origin, epoch), reason, events->arg);
    else if (inner->early_n < EARLY_MAX)
        inner->early[inner->early_n++] = epoch;
}

static void on_wanted(void *arg)
{
    const struct mr_node_events *events = &((struct inner *)arg)->node->terms.events;
    if (events->wanted != NULL)
        events->wanted(events->arg);
}

/* ---- the end of a node ---------------------------------------------------------------------- */

static void answer_beats(struct many_node *node, enum mr_err err)
{
    struct mr_link *link;
    mr_rpc_timer_stop(node->many->rpc, &node->beat_timer);
    while ((link = mr_list_pop_front(&node->beats)) != NULL)
        mr_req_answer(mr_container(link, struct mr_req, link), err);
}

void many_node_free(struct many_node *node)
{
    struct many *many = node->many;
    struct mr_req *opening = node->opening, *closing = node->closing;
    enum mr_err close_err = node->is_dead ? MR_NOT_FOUND : node->close_err;
    node->opening = node->closing = NULL;
    node_takes_fail(node, MR_CLOSED);
    answer_beats(node, many->closing ? MR_CLOSED : MR_NOT_FOUND);
    mr_rpc_timer_stop(many->rpc, &node->spare_timer);
    mr_lock_enter(&many->lock);
    many->by_index[node->index] = NULL;
    mr_lock_leave(&many->lock);
    mr_list_remove(&node->link);
    for (size_t i = 0; i < ORIGINS_MAX; i++) {
        if (node->inners[i] != NULL)
            mr_arena_done(&node->inners[i]->beat_memory);
        free(node->inners[i]);
    }
    mr_arena_done(&node->memory);
    free(node);
    if (opening != NULL)
        mr_req_answer(opening, MR_CLOSED);
    if (closing != NULL)
        mr_req_answer(closing, many->closing ? MR_CLOSED : close_err);
}

/* Something of it is at this server, or on its way there. */
static bool is_at(const struct many_node *node, size_t origin)
{
    const struct inner *inner = node->inners[origin];
    return inner != NULL &&
           (inner->state != INNER_NONE || inner->beats || !mr_list_empty(&inner->asks));
}

/* Nothing of it is anywhere any more: no request points to it. */
static bool is_over(const struct many_node *node)
{
    for (size_t i = 0; i < ORIGINS_MAX; i++)
        if (is_at(node, i))
            return false;
    return true;
}

/* Whether it is gone. */
static bool free_if_over(struct many_node *node)
{
    if (!node->is_leaving || node->many->closing || !is_over(node))
        return false;
    many_node_free(node);
    return true;
}

/* ---- at one server -------------------------------------------------------------------------- */

static void pause_inner(struct inner *inner)
{
    inner->backoff_ms = inner->backoff_ms == 0 ? BACKOFF_MS : 2 * inner->backoff_ms;
    if (inner->backoff_ms > BACKOFF_MAX_MS)
        inner->backoff_ms = BACKOFF_MAX_MS;
    inner->retry_at = mr_mono_add_ms(mr_rpc_now(inner->node->many->rpc), inner->backoff_ms);
}

static void inner_closed(struct mr_req *req)
{
    struct inner *inner = req->arg;
    if (req->err == MR_OK || inner->node->close_err == MR_NOT_FOUND)
        inner->node->close_err = req->err;
    mr_req_done(req);
    mr_lock_enter(&inner->node->many->lock);
    inner->state = INNER_NONE;
    mr_lock_leave(&inner->node->many->lock);
    inner->is_dead = false;
    if (inner->node->many->closing)
        return;
    if (!free_if_over(inner->node))
        pause_inner(inner);
}

static void inner_close(struct inner *inner)
{
    mr_lock_enter(&inner->node->many->lock);
    inner->state = INNER_CLOSING;
    mr_lock_leave(&inner->node->many->lock);
    inner->close = (struct mr_req_node_close){
        .req = {.op = MR_OP_NODE_CLOSE, .done = inner_closed, .arg = inner},
        .node = inner->number,
    };
    mr_broker_submit(inner->origin->broker, &inner->close.req);
}

void inner_died(struct inner *inner)
{
    if (inner->state == INNER_OPEN)
        inner->is_dead = true;
}

/* A node without a server is one that was declared dead: who holds it opens another one. */
void node_check(struct many_node *node)
{
    if (node->opening != NULL || node->is_leaving || node->is_dead || node->many->closing)
        return;
    for (size_t i = 0; i < ORIGINS_MAX; i++) {
        const struct inner *inner = node->inners[i];
        if (inner != NULL &&
            (inner->state == INNER_OPENING || (inner->state == INNER_OPEN && !inner->is_dead)))
            return;
    }
    node->is_dead = true;
    node_takes_fail(node, MR_CLOSED);
    answer_beats(node, MR_NOT_FOUND);
}

/* A refusal is for good; the others may come back. */
static bool is_passing(enum mr_err err)
{
    return err == MR_CLOSED || err == MR_CANCELLED || mr_err_retriable(err);
}

static void answer_opening(struct many_node *node, enum mr_err err)
{
    struct mr_req *req = node->opening;
    struct mr_req_node_open *open = mr_container(req, struct mr_req_node_open, req);
    node->opening = NULL;
    open->node = node->number;
    open->first_slot = (uint32_t)(node->index << SLOT_BITS);
    mr_req_answer(req, err);
}

/* It is open when all servers have said so or that they do not, or a second after the first: who takes at once would not hear of
 * what the others have. */
static void settle_opening(struct many_node *node)
{
    mr_mono now = mr_rpc_now(node->many->rpc);
    bool any = false, more = false;
    for (size_t i = 0; node->opening != NULL && i < ORIGINS_MAX; i++) {
        const struct inner *inner = node->inners[i];
        any |= inner != NULL && inner->state == INNER_OPEN && !inner->is_dead;
        more |= inner != NULL && inner->state == INNER_OPENING;
    }
    if (!any)
        return;
    if (node->settle_by.ns == 0)
        node->settle_by = mr_mono_add_ms(now, OTHERS_MS);
    if (!more || now.ns >= node->settle_by.ns)
        answer_opening(node, MR_OK);
}

/* It was refused, or nobody is there: the node never was. It goes when the last server has answered. */
static void refuse_opening(struct many_node *node, enum mr_err err)
{
    struct mr_req *req = node->opening;
    node->opening = NULL;
    node->is_leaving = true;
    mr_req_answer(req, err);
    node_step(node);
}

static void inner_opened(struct mr_req *req)
{
    struct inner *inner = req->arg;
    struct many_node *node = inner->node;
    struct many *many = node->many;
    enum mr_err err = req->err;
    mr_req_done(req);
    mr_lock_enter(&many->lock);
    inner->state = err == MR_OK ? INNER_OPEN : INNER_NONE;
    inner->number = inner->open.node;
    inner->first_slot = inner->open.first_slot;
    mr_lock_leave(&many->lock);
    if (many->closing)
        return;
    inner->answered = mr_rpc_now(many->rpc);
    inner->last_epoch = 0;
    inner->early_n = 0;
    if (err != MR_OK) {
        pause_inner(inner);
        if (free_if_over(node))
            return;
        if (node->opening != NULL && !is_passing(err))
            refuse_opening(node, err);
        else
            settle_opening(node);
        return;
    }
    inner->backoff_ms = 0;
    if (node->is_leaving) {
        inner_close(inner);
        return;
    }
    settle_opening(node);
    node_takes_go_on(node);
}

static void inner_open(struct inner *inner)
{
    struct many_node *node = inner->node;
    if (node->terms.leads && (node->home == NULL || !node->home->up || !node->home->listed))
        node->home = inner->origin;
    mr_lock_enter(&node->many->lock);
    inner->state = INNER_OPENING;
    mr_lock_leave(&node->many->lock);
    inner->open = node->terms;
    inner->open.req = (struct mr_req){.op = MR_OP_NODE_OPEN, .done = inner_opened, .arg = inner};
    inner->open.leads = node->terms.leads && node->home == inner->origin;
    inner->open.events = (struct mr_node_events){on_stop, on_wanted, inner};
    mr_broker_submit(inner->origin->broker, &inner->open.req);
}

static struct inner *inner_at(struct many_node *node, struct origin *origin)
{
    struct inner *inner = node->inners[origin->index];
    if (inner != NULL)
        return inner;
    inner = calloc(1, sizeof *inner);
    if (inner == NULL)
        return NULL;
    inner->node = node;
    inner->origin = origin;
    mr_list_init(&inner->asks);
    mr_lock_enter(&node->many->lock);
    node->inners[origin->index] = inner;
    mr_lock_leave(&node->many->lock);
    return inner;
}

/* A server that has answered no beat for the length of a lease may have given everything to others. */
static bool is_silent(const struct inner *inner, mr_mono now)
{
    int64_t lease_ns = inner->node->terms.lease_ms * MR_NS_PER_MS;
    return !inner->node->terms.lasts && now.ns - inner->answered.ns > lease_ns && inner->beats;
}

static void inner_step(struct inner *inner, mr_mono now)
{
    struct many_node *node = inner->node;
    struct origin *origin = inner->origin;
    if (inner->state == INNER_NONE) {
        bool wanted = origin->listed && !node->is_leaving && !node->is_dead;
        if (wanted && origin->up && now.ns >= inner->retry_at.ns)
            inner_open(inner);
        return;
    }
    if (inner->state != INNER_OPEN)
        return;
    if (is_silent(inner, now)) {
        mr_remote_node_fence(origin->broker, inner->number);
        inner->is_dead = true;
    }
    bool drained = !origin->listed && mr_remote_node_holds(origin->broker, inner->number) == 0;
    if (inner->is_dead || node->is_leaving || node->is_dead || drained)
        inner_close(inner);
}

void node_step(struct many_node *node)
{
    struct many *many = node->many;
    mr_mono now = mr_rpc_now(many->rpc);
    for (size_t i = 0; i < many->origins_n; i++) {
        struct inner *inner = inner_at(node, many->origins[i]);
        if (inner != NULL)
            inner_step(inner, now);
    }
    settle_opening(node);
    if (node->opening != NULL && now.ns >= node->open_by.ns) {
        refuse_opening(node, MR_UNAVAILABLE);
        return;
    }
    if (free_if_over(node))
        return;
    node_check(node);
    node_takes_go_on(node);
}

/* ---- requests ------------------------------------------------------------------------------- */

static enum mr_err copy_terms(struct many_node *node, const struct mr_req_node_open *req)
{
    struct mr_arena *memory = &node->memory;
    struct mr_worker_queue *queues = mr_arena_calloc(memory, req->queues_n, sizeof *queues);
    struct mr_slice *types = mr_arena_calloc(memory, req->types_n + 1, sizeof *types);
    if (queues == NULL || types == NULL)
        return MR_NOMEM;
    node->terms = *req;
    node->terms.req = (struct mr_req){0};
    for (size_t i = 0; i < req->queues_n; i++) {
        queues[i].weight = req->queues[i].weight;
        MR_TRY(mr_arena_copy(memory, req->queues[i].name, &queues[i].name));
    }
    for (size_t i = 0; i < req->types_n; i++)
        MR_TRY(mr_arena_copy(memory, req->types[i], &types[i]));
    node->terms.queues = queues;
    node->terms.types = types;
    node->running = mr_arena_calloc(memory, req->slots + 1, sizeof *node->running);
    if (node->running == NULL)
        return MR_NOMEM;
    return mr_arena_copy(memory, req->name, &node->terms.name);
}

/* Its place is not used again for long, so that what a slot still says of an old one is not taken for a new one's. */
static enum mr_err choose_place(struct many *many, struct many_node *node)
{
    for (size_t tried = 0; tried < NODES_MAX; tried++) {
        size_t index = ++many->last_index % NODES_MAX;
        if (many->by_index[index] != NULL)
            continue;
        node->index = index;
        node->number = many->last_index;
        mr_lock_enter(&many->lock);
        many->by_index[index] = node;
        mr_lock_leave(&many->lock);
        return MR_OK;
    }
    return MR_TOO_BIG;
}

static void beat_late(struct mr_timer *timer, void *arg);

void begin_node_open(struct many *many, struct mr_req *req)
{
    const struct mr_req_node_open *open = mr_container(req, struct mr_req_node_open, req);
    enum mr_err err = mr_node_open_check(open);
    struct many_node *node = err == MR_OK ? calloc(1, sizeof *node) : NULL;
    if (node == NULL) {
        mr_req_answer(req, err != MR_OK ? err : MR_NOMEM);
        return;
    }
    node->many = many;
    mr_list_init(&node->link);
    mr_list_init(&node->beats);
    mr_timer_init(&node->beat_timer, beat_late);
    node_takes_init(node);
    err = copy_terms(node, open);
    if (err == MR_OK)
        err = choose_place(many, node);
    if (err != MR_OK) {
        mr_arena_done(&node->memory);
        free(node);
        mr_req_answer(req, err);
        return;
    }
    int64_t answer_ms = many->server.answer_ms > 0 ? many->server.answer_ms : OPEN_MS;
    node->opening = req;
    node->open_by = mr_mono_add_ms(mr_rpc_now(many->rpc), answer_ms);
    mr_list_push_back(&many->nodes, &node->link);
    node_step(node);
    many_tick_soon(many);
}

void begin_node_close(struct many *many, struct mr_req *req)
{
    struct many_node *node = node_at(many, mr_container(req, struct mr_req_node_close, req)->node);
    if (node == NULL || node->is_leaving || node->opening != NULL) {
        mr_req_answer(req, MR_NOT_FOUND);
        return;
    }
    node->is_leaving = true;
    node->closing = req;
    node->close_err = MR_NOT_FOUND;
    node_takes_fail(node, MR_CLOSED);
    node_step(node);
}

/* ---- beats ---------------------------------------------------------------------------------- */

static void beats_begin(struct many_node *node);

static struct mr_req_beat *current_beat(const struct many_node *node)
{
    return mr_list_empty(&node->beats)
               ? NULL
               : mr_container(mr_container(node->beats.next, struct mr_req, link),
                              struct mr_req_beat, req);
}

static void beat_answer(struct many_node *node, enum mr_err err)
{
    struct mr_link *link = mr_list_pop_front(&node->beats);
    mr_rpc_timer_stop(node->many->rpc, &node->beat_timer);
    for (size_t i = 0; i < ORIGINS_MAX; i++)
        if (node->inners[i] != NULL)
            node->inners[i]->counts = false;
    node->beats_pending = 0;
    mr_req_answer(mr_container(link, struct mr_req, link), err);
    if (!node->many->closing)
        beats_begin(node);
}

/* Some have not answered; if another one has, they are not waited for. */
static void beat_late(struct mr_timer *timer, void *arg)
{
    struct many_node *node = mr_container(timer, struct many_node, beat_timer);
    (void)arg;
    if (node->beat_err == MR_OK)
        beat_answer(node, MR_OK);
    else if (node->beats_pending == 0)
        beats_begin(node); /* nobody was free for it */
    else
        mr_rpc_timer_start(node->many->rpc, timer,
                           mr_mono_add_ms(mr_rpc_now(node->many->rpc), BEAT_MS));
}

static void note_term(struct inner *inner)
{
    struct mr_req_beat *outer = current_beat(inner->node);
    if (inner->beat.term != 0) {
        outer->term = shown_epoch(inner->origin, inner->beat.term);
        inner->node->many->led = inner->origin;
    }
    if (inner->origin == inner->node->home)
        outer->leader_ms = inner->beat.leader_ms;
}

static void inner_beaten(struct mr_req *req)
{
    struct inner *inner = req->arg;
    struct many_node *node = inner->node;
    enum mr_err err = req->err;
    mr_req_done(req);
    inner->beats = false;
    if (err == MR_OK)
        inner->answered = inner->beat_sent;
    else if (err == MR_NOT_FOUND)
        inner_died(inner);
    if (inner->counts) {
        inner->counts = false;
        if (err == MR_OK)
            note_term(inner);
        if (err == MR_OK || node->beat_err != MR_OK)
            node->beat_err = err;
        if (--node->beats_pending == 0)
            beat_answer(node, node->beat_err);
    }
    if (!free_if_over(node))
        node_check(node);
}

/* The request's memory may be gone before the server has answered. */
static enum mr_err copy_beat(struct inner *inner, const struct mr_req_beat *outer)
{
    struct mr_arena *memory = &inner->beat_memory;
    mr_arena_reset(memory);
    struct mr_progress *progress = mr_arena_calloc(memory, outer->progress_n, sizeof *progress);
    struct mr_slot_info *slots = mr_arena_calloc(memory, outer->slots_n, sizeof *slots);
    if (progress == NULL || slots == NULL)
        return MR_NOMEM;
    size_t n = 0;
    for (size_t i = 0; i < outer->progress_n; i++) {
        if (origin_of(inner->node->many, outer->progress[i].epoch) != inner->origin)
            continue;
        progress[n] = outer->progress[i];
        progress[n].epoch = own_epoch(progress[n].epoch);
        MR_TRY(mr_arena_copy(memory, progress[n].text, &progress[n].text));
        n++;
    }
    for (size_t i = 0; i < outer->slots_n; i++) {
        slots[i] = outer->slots[i];
        MR_TRY(mr_arena_copy(memory, slots[i].id, &slots[i].id));
        MR_TRY(mr_arena_copy(memory, slots[i].type, &slots[i].type));
    }
    inner->beat.progress = progress;
    inner->beat.progress_n = n;
    inner->beat.slots = slots;
    inner->beat.slots_n = outer->slots_n;
    return MR_OK;
}

static void beat_send(struct inner *inner, const struct mr_req_beat *outer)
{
    inner->beat = (struct mr_req_beat){
        .req = {.op = MR_OP_BEAT, .done = inner_beaten, .arg = inner},
        .node = inner->number,
    };
    if (copy_beat(inner, outer) != MR_OK) /* then it says no more than that we live */
        inner->beat.progress_n = inner->beat.slots_n = 0;
    inner->beats = inner->counts = true;
    inner->beat_sent = mr_rpc_now(inner->node->many->rpc);
    inner->node->beats_pending++;
    mr_broker_submit(inner->origin->broker, &inner->beat.req);
}

/* The first of those that wait. With nobody to hear it, it is as dead as at one server that has gone. */
static void beats_begin(struct many_node *node)
{
    struct mr_req_beat *outer = current_beat(node);
    if (outer == NULL)
        return;
    bool open = false;
    node->beat_err = MR_NOT_FOUND;
    node->beats_pending = 0;
    for (size_t i = 0; i < node->many->origins_n; i++) {
        struct inner *inner = node->inners[i];
        bool lives = inner != NULL && inner->state == INNER_OPEN && !inner->is_dead;
        open |= lives;
        if (lives && !inner->beats)
            beat_send(inner, outer);
    }
    if (node->beats_pending == 0 && !open)
        beat_answer(node, MR_NOT_FOUND);
    else
        mr_rpc_timer_start(node->many->rpc, &node->beat_timer,
                           mr_mono_add_ms(mr_rpc_now(node->many->rpc), BEAT_MS));
}

void begin_beat(struct many *many, struct mr_req *req)
{
    struct mr_req_beat *outer = mr_container(req, struct mr_req_beat, req);
    struct many_node *node = node_at(many, outer->node);
    outer->term = 0;
    outer->leader_ms = 0;
    if (node == NULL || node->is_leaving || node->is_dead || node->opening != NULL) {
        mr_req_answer(req, MR_NOT_FOUND);
        return;
    }
    bool first = mr_list_empty(&node->beats);
    mr_list_init(&req->link);
    mr_list_push_back(&node->beats, &req->link);
    if (first)
        beats_begin(node);
}

/* ---- begun runs ----------------------------------------------------------------------------- */

/* Where one of the node's slots is at the server of an epoch; false: nowhere. Lock. */
static bool slot_at(const struct many *many, const struct many_node *node, uint32_t slot,
                    uint64_t epoch, struct mr_broker **ret_broker, uint32_t *ret_slot)
{
    const struct origin *origin = origin_of(many, epoch);
    const struct inner *inner = origin != NULL ? node->inners[origin->index] : NULL;
    if (inner == NULL || inner->state != INNER_OPEN)
        return false;
    *ret_broker = origin->broker;
    *ret_slot = inner->first_slot + slot;
    return true;
}

void many_begun(struct mr_broker *broker, uint32_t slot, uint64_t epoch)
{
    struct many *many = mr_container(broker, struct many, broker);
    struct mr_broker *from = NULL, *to = NULL;
    uint32_t from_slot = 0, to_slot = 0, own = slot & ((1U << SLOT_BITS) - 1);
    mr_lock_enter(&many->lock);
    struct many_node *node = many->by_index[(slot >> SLOT_BITS) % NODES_MAX];
    if (node != NULL && own < node->terms.slots) {
        uint64_t before = node->running[own];
        node->running[own] = epoch;
        bool moves = before != 0 && origin_of(many, before) != origin_of(many, epoch);
        if (moves && !slot_at(many, node, own, before, &from, &from_slot))
            from = NULL;
        if (epoch != 0 && !slot_at(many, node, own, epoch, &to, &to_slot))
            to = NULL;
    }
    mr_lock_leave(&many->lock);
    if (from != NULL)
        mr_broker_begun(from, from_slot, 0);
    if (to != NULL)
        mr_broker_begun(to, to_slot, own_epoch(epoch));
}

bool nodes_are_at(const struct many *many, size_t origin)
{
    for (struct mr_link *link = many->nodes.next; link != &many->nodes; link = link->next) {
        const struct many_node *node = mr_container(link, struct many_node, link);
        if (is_at(node, origin))
            return true;
    }
    return false;
}

/* ---- closing -------------------------------------------------------------------------------- */

/* The rest is answered by the servers' engines as they close. */
void nodes_fail(struct many *many, enum mr_err err)
{
    for (struct mr_link *link = many->nodes.next; link != &many->nodes; link = link->next) {
        struct many_node *node = mr_container(link, struct many_node, link);
        struct mr_req *opening = node->opening;
        node->opening = NULL;
        mr_rpc_timer_stop(many->rpc, &node->beat_timer);
        node_takes_fail(node, err);
        if (opening != NULL)
            mr_req_answer(opening, err);
    }
}
