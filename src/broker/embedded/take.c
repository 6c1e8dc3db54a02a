/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handing out. A take that finds nothing waits in the lists of its queues; a queue that gets a
 * durable task serves its waiters in the order in which they came. Each hand-out has an epoch above
 * every earlier one, also across restarts: max(last + 1, clock in microseconds), below a ceiling
 * that is on disk before it is used. The hand-out is answered when its record is written, not
 * synced.
 */
#include <stdlib.h>

#include "broker/embedded/engine.h"

enum {
    WAITERS_LOOK = 64,   /* nodes that wait are looked at for one that prefers what there is */
    LOOK_WAIT_MS = 1000, /* so long a take that does not wait may pass over what limits keep back */
    PUT_OFF_MS = 1000,   /* what the gate does not let through is looked at again after this */
};

/* What the engine puts in front of the message in a lease. Never leaves the process. */
struct lease_head {
    struct mr_uuid id;
    int64_t created_ms, order_ms, started_ms;
    int64_t priority_ms;
    uint32_t retried, crashes, part;
    bool is_uuid, cancel, reordered;
};

/* ---- epochs --------------------------------------------------------------------------------- */

enum mr_err next_epoch(struct mr_engine *engine, uint64_t *ret_epoch)
{
    uint64_t now = (uint64_t)engine->now_us;
    uint64_t epoch = engine->last_epoch + 1 > now ? engine->last_epoch + 1 : now;
    if (epoch > engine->ceiling) {
        renew_ceiling(engine);
        return MR_BUSY;
    }
    *ret_epoch = epoch;
    return MR_OK;
}

void renew_ceiling(struct mr_engine *engine)
{
    uint64_t now = (uint64_t)engine->now_us;
    uint64_t base = engine->last_epoch > now ? engine->last_epoch : now;
    uint64_t ceiling = base + CEILING_AHEAD_US;
    bool asked = engine->ceiling_asked > engine->ceiling;
    if (asked || log_room(engine, MR_EVENT_CEILING_SIZE, MR_LOG_ONGOING) != MR_OK)
        return;
    uint8_t body[MR_EVENT_CEILING_SIZE];
    mr_store64(body, ceiling);
    uint64_t seq = log_bytes(engine, MR_RECORD_CEILING, MR_LOG_DURABLE, body, sizeof body, NULL);
    if (seq == 0)
        return;
    engine->ceiling_asked = ceiling;
    engine->ceiling_seq = seq;
}

/* ---- choosing ------------------------------------------------------------------------------- */

/* It has something that may be taken now. With limits, a retry of a class of its own becomes pending first. */
bool take_has_some(const struct mr_engine *engine, const struct queue *queue)
{
    bool late;
    return queue->filled != 0 ||
           (queue->limiter == NULL &&
            state_due_retry(&engine->state, queue, engine->now_ms, &late) != NO_HANDLE);
}

/* Of a queue with limits nothing is held ahead: what is in hand and does not run would keep others from
 * running, and what was counted against a rate would run at another time. */
static bool can_give(const struct listen *listen)
{
    const struct queue *queue = listen->queue, *base = listen->node->listens[listen->base].queue;
    return queue != NULL && !queue->paused && (base == NULL || !base->paused) &&
           take_has_some(listen->node->engine, queue) &&
           (queue->limiter == NULL || listen->node->in_hand < listen->node->slots);
}

/* The same with what falls to it. */
static bool can_give_any(const struct listen *listen)
{
    return can_give(listen) || fall_first(listen->node->engine, listen) != NO_HANDLE;
}

/* The take is for this queue of its node. */
static bool is_for(uint64_t queues, size_t i)
{
    return queues == 0 || (queues >> i & 1) != 0;
}

/* Smooth weighted round robin: over any stretch each queue with tasks gets its share. */
static struct listen *choose_weighted(struct node *node, uint64_t queues)
{
    struct listen *best = NULL;
    int64_t total = 0;
    for (size_t i = 0; i < node->listens_n; i++) {
        struct listen *listen = &node->listens[i];
        if (!is_for(queues, i) || !can_give_any(listen))
            continue;
        listen->current += listen->weight;
        total += listen->weight;
        if (best == NULL || listen->current > best->current)
            best = listen;
    }
    if (best == NULL)
        return NULL;
    best->current -= total;
    return best;
}

static struct listen *choose_strict(struct node *node, uint64_t queues)
{
    for (size_t i = 0; i < node->listens_n; i++)
        if (is_for(queues, i) && can_give_any(&node->listens[i]))
            return &node->listens[i];
    return NULL;
}

static enum mr_err ready_retries(struct mr_engine *engine, struct node *node, uint64_t queues)
{
    for (size_t i = 0; i < node->listens_n; i++) {
        struct queue *queue = node->listens[i].queue;
        if (queue != NULL && queue->limiter != NULL && !queue->paused && is_for(queues, i))
            MR_TRY(limits_ready_retry(engine, queue));
    }
    return MR_OK;
}

enum mr_err take_first(struct mr_engine *engine, struct queue *queue, unsigned part,
                       uint32_t *ret_handle)
{
    *ret_handle = order_first(&queue->parts[part].pending);
    bool late = false;
    uint32_t retry = NO_HANDLE;
    if (queue->limiter == NULL && queue->settings.retry_mode == MR_RETRY_CLASS)
        retry = state_due_retry(&engine->state, queue, engine->now_ms, &late);
    if (retry != NO_HANDLE && (late || queue->filled == 0))
        *ret_handle = retry;
    return queue->limiter != NULL ? limiter_first(queue->limiter, part, ret_handle) : MR_OK;
}

/* ---- giving --------------------------------------------------------------------------------- */

/* Times from a damaged snapshot may be anything; these can be added and counted in µs. */
static int64_t within_reach(int64_t ms)
{
    const int64_t most = INT64_MAX / MR_US_PER_MS / 4;
    return ms > most ? most : ms < -most ? -most : ms;
}

/* Its order time, also of a retry that is taken out of its class. */
int64_t take_order_ms(const struct mr_engine *engine, const struct task *task)
{
    const struct more *more = more_of(&engine->state, task);
    return task->state != MR_PENDING && more != NULL && more->order_ms != 0 ? more->order_ms
                                                                            : task->key;
}

/* When it could first run: it came, or was due. Its order time is that, less what a priority moved it
 * ahead; a retry has none. */
static int64_t ready_us(const struct mr_engine *engine, const struct task *task,
                        const struct mr_task_msg *msg)
{
    int64_t ms = within_reach(take_order_ms(engine, task)), ahead_ms = 0;
    if (task->flags & MR_TASK_REORDERED)
        ahead_ms = more_of(&engine->state, task)->priority_ms;
    else if (task->flags & MR_TASK_PRIORITY)
        ahead_ms = msg->priority_ms;
    ahead_ms = within_reach(ahead_ms);
    ms += ms + ahead_ms <= engine->now_ms ? ahead_ms : 0;
    return ms * MR_US_PER_MS + task->fraction * TASK_FRACTION_US;
}

enum mr_err take_ready_us(struct mr_engine *engine, const struct task *task, int64_t *ret_us)
{
    struct mr_task_msg msg = {0};
    struct mr_slice bytes;
    int64_t created_ms;
    if (task->flags & MR_TASK_PRIORITY && !(task->flags & MR_TASK_REORDERED))
        MR_TRY(read_message(engine, task, &created_ms, &msg, &bytes));
    *ret_us = ready_us(engine, task, &msg);
    return MR_OK;
}

/* What is known of a task only while its message is at hand. */
struct hand_out {
    int64_t ready_us;
    uint16_t tally;
};

/* What is not ours any more for the store is kept back: see gate.h. */
static bool may_leave(const struct mr_engine *engine, const struct task *task,
                      const struct mr_task_msg *msg)
{
    struct mr_gate *gate = engine->options.gate;
    return gate == NULL || (task->flags & MR_TASK_TOPIC) == 0 ||
           mr_gate_lets(gate, msg->topic, msg->queue);
}

/* It has its place in the order again when its time has come. */
static enum mr_err put_off(struct mr_engine *engine, uint32_t handle)
{
    const struct task *task = task_at(&engine->state, handle);
    struct mr_event_change change = change_of(engine, handle);
    change.state = task->state == MR_RETRY ? MR_RETRY : MR_SCHEDULED;
    change.order_ms = take_order_ms(engine, task);
    change.key = engine->now_up_ms + PUT_OFF_MS;
    MR_TRY(log_room_beside(engine, MR_EVENT_CHANGE_SIZE, engine->in_hand));
    return change_task(engine, MR_RECORD_MOVE, handle, &change);
}

/* MR_STALE: it is to be kept back. */
static enum mr_err make_lease(struct mr_engine *engine, uint32_t handle, struct hand_out *ret_out,
                              struct mr_lease **ret_lease)
{
    const struct task *task = task_at(&engine->state, handle);
    struct mr_record record;
    struct mr_slice message;
    int64_t created_ms;
    if (task_is_lost(task))
        return MR_DAMAGED;
    MR_TRY(mr_log_read(engine->log, task->pos, task->size, &record));
    MR_TRY(message_split(&record, &task->id, &created_ms, &message));
    struct mr_task_msg msg;
    if (mr_task_msg_decode(message, &msg) != MR_OK)
        return MR_DAMAGED;
    if (!may_leave(engine, task, &msg))
        return MR_STALE;
    size_t len = sizeof(struct lease_head) + message.len;
    struct mr_lease *lease = malloc(sizeof *lease + len);
    if (lease == NULL)
        return MR_NOMEM;
    lease->next = NULL;
    lease->ref = (uint64_t)handle + 1;
    lease->headers = NULL;
    lease->task.id = (struct mr_slice){0};
    lease->whole = false;
    lease->body_len = len;
    struct lease_head head = {
        .id = task->id,
        .created_ms = created_ms,
        .order_ms = take_order_ms(engine, task),
        .started_ms = engine->now_ms,
        .retried = task->retried,
        .crashes = task->crashes,
        .part = task->part,
        .is_uuid = task->flags & MR_TASK_UUID,
        .cancel = task->flags & MR_TASK_CANCEL,
        .reordered = task->flags & MR_TASK_REORDERED,
    };
    if (head.reordered)
        head.priority_ms = more_of(&engine->state, task)->priority_ms;
    memcpy(lease->body, &head, sizeof head);
    memcpy(lease->body + sizeof head, message.data, message.len);
    ret_out->ready_us = ready_us(engine, task, &msg);
    ret_out->tally = tally_number(engine, queue_of(&engine->state, task), msg.type);
    *ret_lease = lease;
    return MR_OK;
}

static void into_hand(struct mr_engine *engine, struct node *node, uint32_t handle)
{
    struct state *state = &engine->state;
    struct more *more = more_of(state, task_at(state, handle));
    more->node = node->number;
    more->prev = node->last;
    more->next = NO_HANDLE;
    if (node->last != NO_HANDLE)
        more_of(state, task_at(state, node->last))->next = handle;
    else
        node->first = handle;
    node->last = handle;
    node->in_hand++;
    engine->in_hand++;
    engine->in_hand_leaving += (task_at(state, handle)->flags & MR_TASK_TOPIC) != 0;
}

/* The task that this node gets of the queue, or what falls to it there. MR_EMPTY: limits keep all of
 * them. */
static enum mr_err choose_task(struct mr_engine *engine, struct listen *listen,
                               uint32_t *ret_handle)
{
    struct queue *queue = listen->queue;
    uint32_t fallen = fall_first(engine, listen);
    if (!can_give(listen)) {
        *ret_handle = fallen;
        return fallen != NO_HANDLE ? MR_OK : MR_EMPTY;
    }
    unsigned part = queue->parts_n > 1 && queue->filled != 0 ? part_to_take(listen) : 0;
    enum mr_err err = take_first(engine, queue, part, ret_handle);
    if (fallen == NO_HANDLE || (err != MR_OK && err != MR_EMPTY))
        return err;
    const struct state *state = &engine->state;
    if (err == MR_EMPTY || take_order_ms(engine, task_at(state, fallen)) <
                               take_order_ms(engine, task_at(state, *ret_handle)))
        *ret_handle = fallen;
    return MR_OK;
}

/* Logs and applies the hand-out of one task. */
static enum mr_err give(struct mr_engine *engine, struct node *node, uint32_t handle,
                        uint64_t epoch, struct mr_lease *lease)
{
    struct mr_event_run run = {.id = task_at(&engine->state, handle)->id, .epoch = epoch};
    uint64_t seq = log_run(engine, MR_RECORD_TAKE, MR_LOG_LAZY, &run);
    if (seq == 0)
        return MR_NOMEM;
    enum mr_err err = apply_take(&engine->state, &run, engine->now_ms, handle, seq);
    if (err != MR_OK) {
        engine_fail(engine, err);
        return err;
    }
    engine->last_epoch = epoch;
    lease->epoch = epoch;
    into_hand(engine, node, handle);
    struct queue *queue = queue_of(&engine->state, task_at(&engine->state, handle));
    if (queue->limiter != NULL)
        err = limiter_taken(queue->limiter, handle);
    if (err != MR_OK)
        engine_fail(engine, err);
    return MR_OK;
}

/* One task for the node. MR_EMPTY: there is none. Any other error: there may be one, but it cannot
 * be handed out now; MR_BUSY when a segment or a sync that is under way will change that. */
static enum mr_err take_one(struct mr_engine *engine, struct node *node, uint64_t queues,
                            struct mr_lease **ret_lease)
{
    for (;;) {
        MR_TRY(ready_retries(engine, node, queues));
        struct listen *listen = node->order == MR_QUEUES_STRICT ? choose_strict(node, queues)
                                                                : choose_weighted(node, queues);
        if (listen == NULL)
            return MR_EMPTY;
        uint64_t epoch;
        MR_TRY(
            log_room_beside(engine, MR_EVENT_RUN_SIZE + MR_EVENT_RUNS_TIME, engine->in_hand + 1));
        MR_TRY(next_epoch(engine, &epoch));
        uint32_t handle;
        enum mr_err err = choose_task(engine, listen, &handle);
        if (err == MR_EMPTY)
            continue;
        MR_TRY(err);
        struct queue *queue = queue_of(&engine->state, task_at(&engine->state, handle));
        struct hand_out out;
        struct mr_lease *lease;
        err = make_lease(engine, handle, &out, &lease);
        if (err == MR_DAMAGED || err == MR_STALE) {
            MR_TRY(err == MR_STALE ? put_off(engine, handle) : quarantine_task(engine, handle));
            continue;
        }
        MR_TRY(err);
        err = give(engine, node, handle, epoch, lease);
        if (err != MR_OK) {
            free(lease);
            return err;
        }
        more_of(&engine->state, task_at(&engine->state, handle))->tally = out.tally;
        latency_note(&queue->latency, LATENCY_WAIT, engine->now, engine->now_us - out.ready_us);
        *ret_lease = lease;
        return MR_OK;
    }
}

/* Fills a take with up to max tasks; MR_OK when it got something, else why not. */
static enum mr_err fill(struct mr_engine *engine, struct node *node, struct mr_req_take *req,
                        size_t max)
{
    struct mr_lease **tail = &req->leases;
    enum mr_err err = MR_OK;
    size_t bytes = 0;
    req->leases = NULL;
    for (req->n = 0; req->n < max; req->n++) {
        if (req->bytes_max > 0 && bytes >= req->bytes_max)
            break;
        err = take_one(engine, node, req->queues, tail);
        if (err != MR_OK)
            break;
        bytes += (*tail)->body_len;
        tail = &(*tail)->next;
    }
    return req->n > 0 ? MR_OK : err;
}

/* It is answered once the hand-outs are written. */
static void grant(struct mr_engine *engine, struct mr_req_take *req)
{
    mr_list_push_back(&engine->granted, &req->req.link);
}

void answer_granted(struct mr_engine *engine)
{
    struct mr_link *link;
    bool written = mr_log_failure(engine->log) == MR_OK;
    while ((link = mr_list_pop_front(&engine->granted)) != NULL) {
        struct mr_req_take *req = mr_container(link, struct mr_req_take, req.link);
        while (!written && req->leases != NULL) {
            struct mr_lease *lease = req->leases;
            req->leases = lease->next;
            mr_lease_free(lease);
            req->n = 0;
        }
        mr_req_answer(&req->req, written ? MR_OK : mr_log_failure(engine->log));
    }
}

/* ---- waiting -------------------------------------------------------------------------------- */

static void listen_start(struct node *node, uint64_t queues)
{
    for (size_t i = 0; i < node->listens_n; i++)
        if (is_for(queues, i) && node->listens[i].queue != NULL &&
            mr_list_empty(&node->listens[i].waiter))
            mr_list_push_back(&node->listens[i].queue->waiters, &node->listens[i].waiter);
}

struct mr_req_take *waiting_take(const struct node *node, size_t i)
{
    for (struct mr_link *link = node->takes.next; link != &node->takes; link = link->next) {
        struct mr_req_take *req = mr_container(link, struct mr_req_take, req.link);
        if (is_for(req->queues, i))
            return req;
    }
    return NULL;
}

static void listen_stop(struct node *node)
{
    for (size_t i = 0; i < node->listens_n; i++)
        if (waiting_take(node, i) == NULL)
            mr_list_remove(&node->listens[i].waiter);
}

static void wait_over(struct mr_engine *engine, struct mr_req_take *req, struct node *node)
{
    struct take_wait *wait = req->wait;
    mr_wheel_stop(engine->wheel, &wait->timer);
    mr_list_remove(&req->req.link);
    listen_stop(node);
}

/* Nothing came: whether limits are the reason. */
static void answer_empty(const struct node *node, struct mr_req_take *req)
{
    for (size_t i = 0; i < node->listens_n; i++) {
        const struct queue *queue = node->listens[i].queue;
        req->held_back |= queue != NULL && queue->limiter != NULL && !queue->paused &&
                          queue->counts[MR_PENDING] > 0 && is_for(req->queues, i);
    }
    mr_req_answer(&req->req, MR_EMPTY);
}

/* Nothing to take is one answer, something that a full disk keeps back is another. */
static void wait_timed_out(struct mr_timer *timer, void *arg)
{
    struct mr_engine *engine = arg;
    struct take_wait *wait = mr_container(timer, struct take_wait, timer);
    struct mr_req_take *req = wait->req;
    struct node *node = wait->node;
    bool pending = choose_strict(node, req->queues) != NULL;
    enum mr_err full = mr_log_full(engine->log);
    wait_over(engine, req, node);
    if (pending && full != MR_OK)
        mr_req_answer(&req->req, full);
    else
        answer_empty(node, req);
}

void take_cancel_waits(struct mr_engine *engine, struct node *node, enum mr_err err)
{
    while (!mr_list_empty(&node->takes)) {
        struct mr_req_take *req = mr_container(node->takes.next, struct mr_req_take, req.link);
        wait_over(engine, req, node);
        mr_req_answer(&req->req, err);
    }
}

/* Somebody waits: those who hold more than they have slots for are asked to give some back. Masters
 * have what they took. */
static void ask_holders(struct mr_engine *engine, const struct node *waiter)
{
    if (waiter->role == MR_NODE_MASTER)
        return;
    for (struct mr_link *link = engine->nodes.next; link != &engine->nodes; link = link->next) {
        struct node *node = mr_container(link, struct node, link);
        if (node != waiter && node->role == MR_NODE_WORKER && node->in_hand > node->slots &&
            node->events.wanted != NULL)
            node->events.wanted(node->events.arg);
    }
}

static enum mr_err start_waiting(struct mr_engine *engine, struct node *node,
                                 struct mr_req_take *req, int64_t wait_ms)
{
    struct take_wait *wait = mr_arena_alloc(&req->req.arena, sizeof *wait);
    if (wait == NULL)
        return MR_NOMEM;
    *wait = (struct take_wait){.req = req, .node = node};
    mr_timer_init(&wait->timer, wait_timed_out);
    req->wait = wait;
    wait_ms = wait_ms < MR_MS_PER_DAY ? wait_ms : MR_MS_PER_DAY;
    mr_wheel_start(engine->wheel, &wait->timer,
                   tick_of(engine, engine->now) + (uint64_t)wait_ms + 1);
    mr_list_push_back(&node->takes, &req->req.link);
    listen_start(node, req->queues);
    fall_watch(engine);
    ask_holders(engine, node);
    for (size_t i = 0; i < node->listens_n; i++) /* kept back by a full disk: later turns look */
        if (can_give(&node->listens[i]) && mr_list_empty(&node->listens[i].queue->ready))
            mr_list_push_back(&engine->state.ready, &node->listens[i].queue->ready);
    return MR_OK;
}

/* Another take of the node waits for one of these queues already. */
static bool waits_before(const struct node *node, uint64_t queues)
{
    for (struct mr_link *link = node->takes.next; link != &node->takes; link = link->next) {
        uint64_t others = mr_container(link, struct mr_req_take, req.link)->queues;
        if (queues == 0 || others == 0 || (queues & others) != 0)
            return true;
    }
    return false;
}

enum handled handle_take(struct mr_engine *engine, struct mr_req *base)
{
    struct mr_req_take *req = mr_container(base, struct mr_req_take, req);
    struct node *node = find_node(engine, req->node);
    req->leases = NULL;
    req->n = 0;
    req->held_back = false;
    if (node == NULL || req->max == 0 || req->max > MR_BATCH_MAX) {
        mr_req_answer(base, node == NULL ? MR_CLOSED : MR_INVALID);
        return HANDLED;
    }
    enum mr_err err = engine_failure(engine);
    if (err == MR_OK)
        err = waits_before(node, req->queues) ? MR_EMPTY : fill(engine, node, req, req->max);
    if (err == MR_OK) {
        grant(engine, req);
        return HANDLED;
    }
    /* What passes over many tasks goes on in later turns, and keeps nobody waiting meanwhile. */
    bool looks = err == MR_BUSY && limits_looking(engine);
    if (err == MR_BUSY && !looks)
        return STALLED;
    bool later = err == MR_EMPTY || err == mr_log_full(engine->log);
    if (looks || (later && req->wait_ms > 0))
        err = start_waiting(engine, node, req, req->wait_ms > 0 ? req->wait_ms : LOOK_WAIT_MS);
    if (err == MR_EMPTY)
        answer_empty(node, req);
    else if (err != MR_OK)
        mr_req_answer(base, err);
    return HANDLED;
}

/* While others wait behind it, a node gets no more than it has free slots for: nothing is held
 * ahead. */
static size_t fair_share(const struct node *node, const struct mr_req_take *req,
                         const struct queue *queue)
{
    bool alone = queue->results || queue->waiters.next->next == &queue->waiters;
    size_t free_slots = node->slots > node->in_hand ? node->slots - node->in_hand : 1;
    return alone || req->max < free_slots ? req->max : free_slots;
}

/* Who came first, of those that prefer a partition that has something; else of all. NULL: none of them may
 * be given anything. */
static struct listen *first_waiter(const struct queue *queue)
{
    const struct mr_link *link = queue->waiters.next;
    struct listen *first = NULL;
    bool choosy = queue->parts_n > 1 || queue->limiter != NULL;
    for (size_t i = 0; choosy && i < WAITERS_LOOK && link != &queue->waiters; i++) {
        struct listen *listen = mr_container(link, struct listen, waiter);
        bool may = can_give(listen);
        if (may && (queue->parts_n == 1 || (listen->owned & queue->filled)))
            return listen;
        first = first == NULL && may ? listen : first;
        link = link->next;
    }
    return choosy ? first : mr_container(link, struct listen, waiter);
}

/* Serves the waiters of one queue while it has tasks; each take ends with whatever it got. */
static void serve_queue(struct mr_engine *engine, struct queue *queue)
{
    while (!queue->paused && !mr_list_empty(&queue->waiters)) {
        if (queue->limiter != NULL &&
            state_ready_retry(&engine->state, queue, engine->now_ms) != MR_OK)
            return;
        if (!take_has_some(engine, queue))
            return;
        const struct listen *listen = first_waiter(queue);
        if (listen == NULL)
            return;
        struct node *node = listen->node;
        struct mr_req_take *req = waiting_take(node, (size_t)(listen - node->listens));
        mr_assert(req != NULL);
        if (fill(engine, node, req, fair_share(node, req, queue)) != MR_OK)
            return; /* no room in the log, or no epoch yet: a later turn comes back to this queue */
        wait_over(engine, req, node);
        grant(engine, req);
    }
}

void take_serve_node(struct mr_engine *engine, struct node *node)
{
    struct mr_link *next;
    for (struct mr_link *link = node->takes.next; link != &node->takes; link = next) {
        struct mr_req_take *req = mr_container(link, struct mr_req_take, req.link);
        next = link->next;
        size_t free_slots = node->slots > node->in_hand ? node->slots - node->in_hand : 1;
        if (fill(engine, node, req, req->max < free_slots ? req->max : free_slots) != MR_OK)
            continue;
        wait_over(engine, req, node);
        grant(engine, req);
    }
}

void serve_ready(struct mr_engine *engine)
{
    struct mr_link again;
    mr_list_init(&again);
    struct mr_link *link;
    while ((link = mr_list_pop_front(&engine->state.ready)) != NULL) {
        struct queue *queue = mr_container(link, struct queue, ready);
        serve_queue(engine, queue);
        if (!mr_list_empty(&queue->addressed))
            fall_watch(engine);
        bool left =
            !queue->paused && take_has_some(engine, queue) && !mr_list_empty(&queue->waiters);
        mr_list_remove(link); /* serving it may have brought it back */
        if (left)
            mr_list_push_back(&again, link);
    }
    mr_list_splice_back(&engine->state.ready, &again);
}

/* ---- leases at their holder ----------------------------------------------------------------- */

enum mr_err embedded_lease_open(struct mr_broker *broker, struct mr_lease *lease)
{
    (void)broker;
    struct lease_head head;
    struct mr_task_msg msg;
    mr_assert(lease->body_len >= sizeof head);
    memcpy(&head, lease->body, sizeof head);
    struct mr_slice bytes = mr_slice_make(lease->body + sizeof head, lease->body_len - sizeof head);
    MR_TRY(mr_task_msg_decode(bytes, &msg));
    struct mr_task *task = &lease->task;
    *task = (struct mr_task){0}; /* here and not by the engine, whose time is dearer */
    MR_TRY(message_fill(&msg, &head.id, head.is_uuid, lease->id_text, task));
    if (msg.headers_n > 0) {
        lease->headers = calloc(msg.headers_n, sizeof *lease->headers);
        if (lease->headers == NULL)
            return MR_NOMEM;
        mr_task_msg_headers(&msg, lease->headers);
        task->headers = lease->headers;
        task->headers_n = msg.headers_n;
    }
    if (head.reordered)
        task->priority_s = (double)head.priority_ms / 1000.0;
    task->state = MR_ACTIVE;
    task->epoch = lease->epoch;
    task->retried = head.retried;
    task->crashes = head.crashes;
    task->partition = head.part + 1;
    task->attempt = 1 + head.retried + head.crashes;
    task->created_ms = head.created_ms;
    task->order_time_ms = head.order_ms;
    int64_t due_ms = head.order_ms + (head.reordered ? 0 : msg.priority_ms);
    task->due_ms = !head.reordered && due_ms > head.created_ms ? due_ms : 0;
    task->started_ms = head.started_ms;
    task->cancel_requested = head.cancel;
    return MR_OK;
}
