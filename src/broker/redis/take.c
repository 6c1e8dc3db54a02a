/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Handing out. A take asks the queues that may have something: with weights by a smooth round robin, all
 * at once, each for its share; strictly one after the other. One that finds nothing waits; when a watch
 * says that a queue may have something, those that wait are served in the order in which they came. So
 * where it is not known that a queue has more than enough, the first of them asks alone.
 */
#include <stdlib.h>

#include "broker/redis/internal.h"

enum {
    HEAD_ITEMS = 4,
    TASK_ITEMS = 3,
    TAKE_ARGS = 6,
    FAIR_EVERY = 8,          /* asks for a queue with partitions: one of them goes to any */
    FALLEN_AGAIN_MS = 250,   /* what has fallen, and may not be taken just now */
    FALLEN_FAILED_MS = 5000, /* after an error of such a queue */
    EPOCH_AHEAD_US = 60 * 1000 * 1000, /* above what our clock and that of Redis may be apart */
};

/* One call to one queue. */
struct ask {
    struct mr_redis_call call;
    mr_mono sent;
    struct take *take;
    struct listen *listen;
    size_t asked;
    bool tried;
    bool alone;              /* nobody else asks before it is answered */
    bool full;               /* the node had no free slot when it was sent */
    bool again;              /* for what clashed */
    struct mr_lease *leases; /* what it brought, and how many of them the take has got */
    struct mr_lease **tail;
    size_t n, passed;
    size_t clashed; /* of what it brought: the node has their epochs in hand */
    char args[5][NUMBER_MAX];
};

/* What an answer says of the queue; see take.lua. */
enum { IS_PAUSED = 1, HAS_LIMITS = 2, IS_HELD_BACK = 4, KEEPS_SOME = 8 };

struct take {
    struct ticket *ticket;
    struct node *node;
    struct mr_timer timer; /* the wait is over */
    mr_mono until;
    uint64_t order; /* in which they came */
    bool waiting;
    enum mr_err failed; /* what the last queue said that could not be asked */
    size_t asks;        /* under way */
    size_t bytes;       /* of what it has */
    struct ask *own;    /* by partition of each queue of the node */
    size_t own_n;
};

static struct mr_req_take *req_of(const struct take *take)
{
    return mr_container(take->ticket->req, struct mr_req_take, req);
}

static struct take *take_of(const struct ticket *ticket)
{
    return ticket->own;
}

/* ---- its end -------------------------------------------------------------------------------- */

static void take_answer(struct take *take, enum mr_err err)
{
    struct node *node = take->node;
    struct mr_redis *redis = node->engine->redis;
    mr_redis_timer_stop(redis, &take->timer);
    ticket_done(take->ticket, err);
    node_call_done(node);
}

/* The take is for its queue. */
static bool is_for(const struct ask *ask)
{
    uint64_t queues = req_of(ask->take)->queues;
    size_t i = (size_t)(ask->listen->served - ask->take->node->served);
    return queues == 0 || (queues >> i & 1) != 0;
}

static void take_empty(struct take *take)
{
    for (size_t i = 0; i < take->own_n; i++)
        req_of(take)->held_back |= take->own[i].listen->queue->keeps_some && is_for(&take->own[i]);
    take_answer(take, MR_EMPTY);
}

/* Its wait is over. Whether there is anything, a Redis that is away does not tell. */
static void take_nothing(struct take *take)
{
    struct engine *engine = take->node->engine;
    if (engine->up)
        take_empty(take);
    else
        take_answer(take, engine_refused(engine, MR_UNAVAILABLE, NULL));
}

/* Its node goes: what it has is in hand there, and is given back with the rest. */
static void take_closed(struct take *take)
{
    struct mr_req_take *req = req_of(take);
    while (req->leases != NULL) {
        struct mr_lease *lease = req->leases;
        req->leases = lease->next;
        mr_lease_free(lease);
    }
    req->n = 0;
    take_answer(take, MR_CLOSED);
}

void takes_answer(struct node *node, enum mr_err err)
{
    struct engine *engine = node->engine;
    struct mr_link *next;
    for (struct mr_link *link = engine->waits.next; link != &engine->waits; link = next) {
        struct take *take = take_of(mr_container(link, struct ticket, link));
        next = link->next;
        if (take->node == node)
            take_answer(take, err);
    }
}

/* ---- asking --------------------------------------------------------------------------------- */

static void ask_answered(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply);

/* Of a queue with limits nothing is held ahead: what is in hand and does not run would keep others from
 * running, and what was counted against a rate would run at another time. */
static int64_t free_slots(const struct node *node)
{
    bool master = node->slots == 0;
    return master ? MR_BATCH_MAX : node->in_hand < node->slots ? node->slots - node->in_hand : 0;
}

static void ask_send(struct ask *ask)
{
    const struct mr_req_take *req = req_of(ask->take);
    struct node *node = ask->take->node;
    struct rqueue *queue = ask->listen->queue;
    size_t bytes_left = req->bytes_max > ask->take->bytes ? req->bytes_max - ask->take->bytes : 1;
    struct mr_slice args[TAKE_ARGS] = {
        number_arg((int64_t)ask->asked, ask->args[0]),
        number_arg(node->lease_ms, ask->args[1]),
        node->holder,
        number_arg(req->bytes_max > 0 ? (int64_t)bytes_left : 0, ask->args[2]),
        number_arg(free_slots(node), ask->args[3]),
        number_arg(ask->listen->fallen ? node->fall_ms : 0, ask->args[4]),
    };
    if (!ask->listen->fallen)
        watch_looks(queue);
    ask->tried = true;
    ask->alone = req->wait_ms > 0 && !queue->plenty && !ask->listen->fallen;
    ask->full = free_slots(node) == 0;
    queue->asked_alone |= ask->alone;
    ask->sent = mr_redis_now(node->engine->redis);
    /* It must not wait for a Redis that is away: how long it may, the take knows. */
    ask->call = (struct mr_redis_call){.answered = ask_answered, .arg = ask, .urgent = true};
    ask->take->asks++;
    rqueue_eval(queue, &ask->call, SCRIPT_TAKE, args, TAKE_ARGS);
}

static void ask_begin(struct ask *ask)
{
    ask->leases = NULL;
    ask->tail = &ask->leases;
    ask->n = ask->passed = ask->clashed = 0;
    ask->again = false;
    ask_send(ask);
}

/* Of a queue with limits nothing would come before a slot is free; see takes_slot_free. */
static bool lacks_slot(const struct ask *ask)
{
    struct node *node = ask->take->node;
    bool lacks = ask->listen->queue->limited && free_slots(node) == 0;
    node->slot_wanted |= lacks;
    return lacks;
}

/* Whether this partition may have something for the take, and has not been asked. A take that does not wait
 * asks all: what somebody just enqueued is there, also when nobody has told us yet. */
static bool is_candidate(const struct ask *ask)
{
    const struct listen *listen = ask->listen;
    const struct rqueue *queue = listen->queue;
    const struct served *base = listen->served->base;
    bool address = listen->fallen || listen->served != base;
    if (ask->tried || !is_for(ask) || (address && watch_is_paused(base->queue)))
        return false;
    if (listen->fallen)
        return queue->known && mr_redis_now(queue->engine->redis).ns >= listen->falls_at.ns;
    return req_of(ask->take)->wait_ms == 0 ||
           (queue->maybe && !queue->asked_alone && !lacks_slot(ask));
}

/* Somebody else asks it just now: what it has for this take will be known soon. */
static bool is_held_back(const struct ask *ask)
{
    return !ask->tried && is_for(ask) && req_of(ask->take)->wait_ms > 0 && !ask->listen->fallen &&
           ask->listen->queue->maybe && ask->listen->queue->asked_alone;
}

/* The next one in turn that may have something, of those whose bits are set. NULL: none. */
static struct ask *next_part(struct ask *asks, size_t n, uint64_t which, uint32_t *turn)
{
    for (size_t i = 0; i < n; i++) {
        struct ask *ask = &asks[(*turn + i) % n];
        bool any = ask->listen->fallen || (which >> (ask->listen->queue->number - 1) & 1) != 0;
        if (!any || !is_candidate(ask))
            continue;
        *turn = (uint32_t)((size_t)(ask - asks) + 1);
        return ask;
    }
    return NULL;
}

/* Of a queue's partitions one that may have something: in turn those that the node prefers, and where they
 * have nothing, any. Now and then any of them in turn: who prefers the others may be busy for long, and a
 * preference is no reason to let tasks wait for ever. NULL: none. */
static struct ask *choose_part(struct ask *asks, size_t n)
{
    struct served *served = asks[0].listen->served;
    struct ask *ask;
    if (++served->asks % FAIR_EVERY == 0)
        return next_part(asks, n, UINT64_MAX, &served->fair_turn);
    ask = next_part(asks, n, served->owned, &served->turn);
    return ask != NULL ? ask : next_part(asks, n, UINT64_MAX, &served->turn);
}

/* The asks of one queue stand behind each other. */
static size_t asks_of(const struct take *take, size_t from)
{
    size_t n = 1;
    while (from + n < take->own_n &&
           take->own[from + n].listen->served == take->own[from].listen->served)
        n++;
    return n;
}

static bool any_of(const struct ask *asks, size_t n, bool (*is)(const struct ask *ask))
{
    for (size_t i = 0; i < n; i++)
        if (is(&asks[i]))
            return true;
    return false;
}

/* Smooth weighted round robin: over any stretch each queue with tasks gets its share. */
static struct ask *choose_weighted(struct take *take)
{
    size_t best = SIZE_MAX, best_n = 0;
    int64_t total = 0;
    for (size_t i = 0, n; i < take->own_n; i += n) {
        struct served *served = take->own[i].listen->served;
        n = asks_of(take, i);
        if (!any_of(&take->own[i], n, is_candidate))
            continue;
        served->current += served->weight;
        total += served->weight;
        if (best == SIZE_MAX || served->current > take->own[best].listen->served->current) {
            best = i;
            best_n = n;
        }
    }
    if (best == SIZE_MAX)
        return NULL;
    take->own[best].listen->served->current -= total;
    return choose_part(&take->own[best], best_n);
}

static struct ask *choose_strict(struct take *take)
{
    for (size_t i = 0, n; i < take->own_n; i += n) {
        n = asks_of(take, i);
        if (any_of(&take->own[i], n, is_candidate))
            return choose_part(&take->own[i], n);
        if (any_of(&take->own[i], n, is_held_back))
            return NULL;
    }
    return NULL;
}

/* Most have one queue, and addresses of it that are empty. */
static bool is_one_queue(const struct take *take)
{
    size_t queues = 0;
    for (size_t i = 0, n; i < take->own_n && queues < 2; i += n) {
        n = asks_of(take, i);
        queues += any_of(&take->own[i], n, is_candidate);
    }
    return queues < 2;
}

/* Asks for what is missing; false: there is nobody to ask. */
static bool ask_some(struct take *take)
{
    const struct mr_req_take *req = req_of(take);
    const struct node *node = take->node;
    bool strict = node->order == MR_QUEUES_STRICT || is_one_queue(take), any = false;
    for (size_t i = 0; i < take->own_n; i++)
        take->own[i].asked = 0;
    for (size_t missing = req->max - req->n, share; missing > 0; missing -= share) {
        struct ask *ask = strict ? choose_strict(take) : choose_weighted(take);
        if (ask == NULL)
            break;
        share = strict && ask->listen->served->width == 1 ? missing : 1;
        ask->asked += share;
    }
    for (size_t i = 0; i < take->own_n; i++) {
        if (take->own[i].asked == 0)
            continue;
        any = true;
        ask_begin(&take->own[i]);
    }
    return any;
}

/* Two servers of a Cluster may have handed out the same epochs. What came second has gone back, and is asked for once more: it comes
 * with others. Once: an answer may bring less than there is. */
static bool ask_clashed(struct take *take)
{
    bool any = false;
    for (size_t i = 0; i < take->own_n; i++) {
        struct ask *ask = &take->own[i];
        if (ask->clashed == 0 || ask->again)
            continue;
        any = ask->again = true;
        ask->asked = ask->clashed;
        ask->clashed = 0;
        ask_send(ask);
    }
    return any;
}

/* One ask for each partition, those of a queue behind each other. While none of them is under way. */
static enum mr_err take_widen(struct take *take)
{
    struct node *node = take->node;
    struct ask *asks = mr_arena_calloc(&take->ticket->req->arena, node->listens_n, sizeof *asks);
    size_t n = 0;
    if (asks == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < node->queues_n; i++)
        for (size_t k = 0; k < node->listens_n; k++)
            if (node->listens[k]->served == &node->served[i])
                asks[n++] = (struct ask){.take = take, .listen = node->listens[k]};
    mr_assert(n == node->listens_n && take->asks == 0);
    take->own = asks;
    take->own_n = n;
    return MR_OK;
}

static void begin_round(struct take *take)
{
    if (take->own_n != take->node->listens_n && take_widen(take) == MR_OK)
        return;
    for (size_t i = 0; i < take->own_n; i++)
        take->own[i].tried = false;
}

/* ---- waiting -------------------------------------------------------------------------------- */

static void wait_over(struct mr_timer *timer, void *arg)
{
    struct take *take = mr_container(timer, struct take, timer);
    (void)arg;
    if (take->waiting)
        take_nothing(take);
}

/* Somebody waits: those who hold more than they have slots for are asked to give some back. */
static void ask_holders(const struct node *waiter)
{
    struct engine *engine = waiter->engine;
    for (struct mr_link *link = engine->nodes.next; link != &engine->nodes; link = link->next) {
        struct node *node = mr_container(link, struct node, link);
        bool ahead = node->role == MR_NODE_WORKER && node->in_hand > node->slots;
        if (node != waiter && ahead && node->events.wanted != NULL)
            node->events.wanted(node->events.arg);
    }
}

static void start_waiting(struct take *take)
{
    struct engine *engine = take->node->engine;
    if (mr_redis_now(engine->redis).ns >= take->until.ns) {
        take_nothing(take);
        return;
    }
    take->waiting = true;
    mr_list_remove(&take->ticket->link);
    struct mr_link *before = engine->waits.prev; /* of those that came earlier, the last */
    while (before != &engine->waits &&
           take_of(mr_container(before, struct ticket, link))->order > take->order)
        before = before->prev;
    mr_list_insert_before(before->next, &take->ticket->link);
    if (!mr_timer_running(&take->timer)) {
        mr_redis_timer_start(engine->redis, &take->timer, take->until);
        ask_holders(take->node);
    }
}

/* Goes on: asks, or waits. A queue that has been asked may have got something meanwhile. */
static void take_on(struct take *take)
{
    const struct mr_req_take *req = req_of(take);
    if (ask_some(take))
        return;
    begin_round(take);
    if (req->wait_ms > 0 && ask_some(take))
        return;
    if (req->wait_ms > 0)
        start_waiting(take);
    else if (take->failed != MR_OK)
        take_answer(take, take->failed);
    else
        take_empty(take);
}

void takes_serve(struct engine *engine)
{
    struct mr_link *next;
    for (struct mr_link *link = engine->waits.next; link != &engine->waits; link = next) {
        struct take *take = take_of(mr_container(link, struct ticket, link));
        next = link->next;
        begin_round(take);
        if (!ask_some(take))
            continue;
        take->waiting = false;
        mr_list_remove(&take->ticket->link);
        mr_list_push_back(&engine->tickets, &take->ticket->link);
    }
}

void takes_slot_free(struct node *node)
{
    if (!node->slot_wanted)
        return;
    node->slot_wanted = false;
    takes_serve(node->engine);
}

/* ---- what came ------------------------------------------------------------------------------ */

/* The end of what never was in hand: it came and cannot be given to the taker. */
struct refuse {
    struct mr_redis_call call;
};

static void refused(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    (void)reply;
    if (err == MR_OK)
        watch_woken(call->arg); /* it may have gone back */
    free(mr_container(call, struct refuse, call));
}

static void refuse(struct rqueue *queue, struct mr_slice id, uint64_t epoch,
                   enum mr_outcome outcome, struct mr_slice why)
{
    struct engine *engine = queue->engine;
    char most[NUMBER_MAX], keep[NUMBER_MAX], text[NUMBER_MAX], number[NUMBER_MAX];
    struct refuse *refuse = calloc(1, sizeof *refuse);
    if (refuse == NULL)
        return;
    struct mr_slice args[] = {
        number_arg(engine->archive_max, most),
        number_arg(engine->archive_ms, keep),
        MR_SLICE_LIT("0"),
        id,
        number_arg((int64_t)epoch, text),
        number_arg(outcome, number),
        MR_SLICE_LIT("0"),
        MR_SLICE_LIT("0"),
        why,
        MR_SLICE_LIT("0"),
    };
    refuse->call = (struct mr_redis_call){.answered = refused, .arg = queue, .repeatable = true};
    rqueue_eval(queue, &refuse->call, SCRIPT_FINISH, args, sizeof args / sizeof args[0]);
}

/* When a run under this epoch began. What came from another broker may have brought epochs that are ahead of
 * the clock: then it is about now. */
static int64_t began_us(uint64_t epoch)
{
    int64_t now_us = mr_wall_now(mr_clock_system()).us;
    return (int64_t)epoch > now_us + EPOCH_AHEAD_US ? now_us : (int64_t)epoch;
}

/* MR_DAMAGED: its message makes no sense; MR_CONFLICT: it is that of another task; MR_STALE: its epoch is
 * that of something in hand. */
static enum mr_err read_task(struct ask *ask, const struct mr_reply *items, uint64_t epoch,
                             struct mr_lease **ret_lease)
{
    struct engine *engine = ask->take->node->engine;
    struct rqueue *queue = ask->listen->queue;
    struct taken taken;
    mr_arena_reset(&engine->scratch);
    MR_TRY(message_taken(&items[2], &items[1], &engine->scratch, &taken));
    if (!mr_slice_equal(taken.task.id, items[0].text)) /* nobody could end it under that id */
        return MR_CONFLICT;
    if (hold_of_epoch(ask->take->node, epoch) != NULL)
        return MR_STALE;
    if (taken.task.topic.len > 0 && !queue->leaves.known)
        results_name_again(queue);
    taken.task.partition = queue->number;
    taken.task.epoch = epoch;
    taken.task.started_ms = began_us(epoch) / MR_US_PER_MS;
    MR_TRY(message_lease(&taken.task, taken.message, ret_lease));
    (*ret_lease)->ref = hold_add(ask->take->node, queue, &taken);
    latency_note(&rqueue_whole(queue)->latency, LATENCY_WAIT, mr_redis_now(engine->redis),
                 began_us(epoch) - taken.ready_us);
    return MR_OK;
}

static void read_tasks(struct ask *ask, const struct mr_reply *reply)
{
    struct take *take = ask->take;
    struct mr_req_take *req = req_of(take);
    uint64_t epoch = (uint64_t)mr_reply_int(&reply->items[HEAD_ITEMS - 1], 0);
    for (size_t i = HEAD_ITEMS; i + TASK_ITEMS <= reply->n; i += TASK_ITEMS, epoch++) {
        const struct mr_reply *items = &reply->items[i];
        struct mr_lease *lease;
        enum mr_err err = read_task(ask, items, epoch, &lease);
        if (err == MR_DAMAGED)
            refuse(ask->listen->queue, items[0].text, epoch, MR_FAIL_FOR_GOOD,
                   MR_SLICE_LIT("its message cannot be read"));
        if (err == MR_CONFLICT)
            refuse(ask->listen->queue, items[0].text, epoch, MR_FAIL_FOR_GOOD,
                   MR_SLICE_LIT("its message is that of another task"));
        if (err == MR_STALE) /* with another epoch it can come again */
            refuse(ask->listen->queue, items[0].text, epoch, MR_HAND_BACK, MR_SLICE_LIT(""));
        ask->clashed += err == MR_STALE;
        if (err != MR_OK)
            continue;
        lease->next = NULL;
        *ask->tail = lease;
        ask->tail = &lease->next;
        ask->n++;
        take->bytes += lease->body_len;
        req->n++;
    }
}

static void read_answer(struct ask *ask, const struct mr_reply *reply)
{
    struct rqueue *queue = ask->listen->queue;
    int64_t left = mr_reply_int(mr_reply_at(reply, 0), 0);
    int64_t bits = mr_reply_int(mr_reply_at(reply, 1), 0);
    bool paused = (bits & IS_PAUSED) != 0;
    size_t before = req_of(ask->take)->n;
    read_tasks(ask, reply);
    if (req_of(ask->take)->n > before)
        recover_in(queue, ask->take->node->lease_ms + 1);
    queue->plenty = left > 0;
    int64_t next_ms = mr_reply_int(mr_reply_at(reply, 2), -1);
    if (reply->n > HEAD_ITEMS || left > 0 || paused || next_ms >= 0)
        rqueue_used(queue); /* its name may be gone, or never have been there */
    queue->limited = (bits & HAS_LIMITS) != 0;
    queue->keeps_some = (bits & KEEPS_SOME) != 0;
    watch_looked(queue, next_ms);
    if (paused)
        watch_paused(queue);
    else if (bits & IS_HELD_BACK && !ask->full) /* else others may have more, or we have soon */
        watch_held_back(queue);
    else if (left == 0)
        watch_empty(queue);
}

/* The same for what falls. What it has for those whose it is, is not our business. */
static void read_fallen(struct ask *ask, const struct mr_reply *reply)
{
    struct node *node = ask->take->node;
    size_t before = req_of(ask->take)->n;
    int64_t wait_ms = mr_reply_int(mr_reply_at(reply, 2), -1);
    read_tasks(ask, reply);
    if (req_of(ask->take)->n > before) {
        recover_in(ask->listen->queue, node->lease_ms + 1);
        return; /* there may be more */
    }
    if (wait_ms <= 0) /* it is paused, or limits keep it back; or there is nothing */
        wait_ms = wait_ms == 0 ? FALLEN_AGAIN_MS : node->fall_ms;
    ask->listen->falls_at = mr_mono_add_ms(mr_redis_now(node->engine->redis),
                                           wait_ms < node->fall_ms ? wait_ms : node->fall_ms);
    falls_watch(node->engine);
}

/* Whose next one stands earlier, if what each brought is spread evenly over the whole. */
static bool is_earlier(const struct ask *a, const struct ask *b)
{
    return (2 * a->passed + 1) * b->n < (2 * b->passed + 1) * a->n;
}

/* What was brought, in the order to run it: shares are kept in every stretch, not only in the sum. */
static void spread(struct take *take)
{
    struct mr_lease **tail = &req_of(take)->leases;
    for (;;) {
        struct ask *first = NULL;
        for (size_t i = 0; i < take->own_n; i++) {
            struct ask *ask = &take->own[i];
            if (ask->leases != NULL && (first == NULL || is_earlier(ask, first)))
                first = ask;
        }
        if (first == NULL)
            return;
        *tail = first->leases;
        first->leases = first->leases->next;
        first->passed++;
        (*tail)->next = NULL;
        tail = &(*tail)->next;
    }
}

/* All that were asked have answered. */
static void round_over(struct take *take)
{
    const struct mr_req_take *req = req_of(take);
    if (!take->node->leaving && ask_clashed(take))
        return;
    spread(take);
    if (take->node->leaving)
        take_closed(take);
    else if (req->n > 0)
        take_answer(take, MR_OK);
    else
        take_on(take);
}

static void again(struct mr_timer *timer, void *arg)
{
    struct take *take = mr_container(timer, struct take, timer);
    (void)arg;
    mr_timer_init(&take->timer, wait_over);
    if (take->node->leaving) {
        take_closed(take);
        return;
    }
    begin_round(take);
    take_on(take);
}

/* Redis is away: never an answer sooner than it would help to ask again. */
static void ask_later(struct take *take)
{
    struct mr_redis *redis = take->node->engine->redis;
    mr_redis_timer_stop(redis, &take->timer);
    mr_mono at = mr_mono_add_ms(mr_redis_now(redis), AGAIN_MS);
    mr_timer_init(&take->timer, again);
    mr_redis_timer_start(redis, &take->timer, at.ns < take->until.ns ? at : take->until);
}

/* One of its calls was answered. */
static void ask_over(struct take *take, const struct mr_reply *reply)
{
    struct engine *engine = take->node->engine;
    if (--take->asks > 0)
        return;
    enum mr_err err = take->ticket->err;
    take->ticket->err = MR_OK;
    bool away = err == MR_UNAVAILABLE || err == MR_TIMEOUT;
    bool time_left = mr_redis_now(engine->redis).ns < take->until.ns;
    if (err == MR_OK || req_of(take)->n > 0 || take->node->leaving)
        round_over(take);
    else if (away && time_left)
        ask_later(take);
    else
        take_answer(take, engine_refused(engine, err, reply));
}

/* Something is wrong with this queue, not with Redis: the others go on. */
static void ask_failed(struct ask *ask, enum mr_err err, const struct mr_reply *reply)
{
    struct mr_redis *redis = ask->take->node->engine->redis;
    ask->take->failed = rqueue_refused(ask->listen->queue, err, reply);
    if (ask->listen->fallen)
        ask->listen->falls_at = mr_mono_add_ms(mr_redis_now(redis), FALLEN_FAILED_MS);
    else
        watch_failed(ask->listen->queue);
}

static void ask_answered(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct ask *ask = call->arg;
    struct rqueue *queue = ask->listen->queue;
    bool odd = err == MR_OK && (reply->kind != MR_REPLY_ARRAY || reply->n < HEAD_ITEMS);
    bool alone = ask->alone;
    if (alone)
        queue->asked_alone = false;
    if (err == MR_FAILED || odd)
        ask_failed(ask, err, reply);
    else if (err == MR_OK && ask->listen->fallen)
        read_fallen(ask, reply);
    else if (err == MR_OK)
        read_answer(ask, reply);
    else
        ask->take->ticket->err = err;
    if (err != MR_OK && call->doubt)
        take_lost(ask->take->node, ask->listen, ask->sent);
    ask_over(ask->take, reply); /* the ask may be gone */
    if (alone && queue->maybe)
        takes_serve(queue->engine);
}

/* ---- requests ------------------------------------------------------------------------------- */

void take_begin(struct ticket *ticket)
{
    struct mr_req_take *req = mr_container(ticket->req, struct mr_req_take, req);
    struct engine *engine = ticket->engine;
    struct node *node = node_get(engine, req->node);
    req->leases = NULL;
    req->n = 0;
    req->held_back = false;
    if (node == NULL || req->max == 0 || req->max > MR_BATCH_MAX) {
        ticket_done(ticket, node == NULL ? MR_CLOSED : MR_INVALID);
        return;
    }
    struct take *take = mr_arena_calloc(&ticket->req->arena, 1, sizeof *take);
    if (take == NULL) {
        ticket_done(ticket, MR_NOMEM);
        return;
    }
    int64_t wait_ms = req->wait_ms < MR_MS_PER_DAY ? req->wait_ms : MR_MS_PER_DAY;
    take->ticket = ticket;
    take->node = node;
    take->until = mr_mono_add_ms(mr_redis_now(engine->redis), wait_ms + 1);
    take->order = ++engine->takes_n;
    mr_timer_init(&take->timer, wait_over);
    ticket->own = take;
    if (take_widen(take) != MR_OK) {
        ticket_done(ticket, MR_NOMEM);
        return;
    }
    node->calls++;
    take_on(take);
}
