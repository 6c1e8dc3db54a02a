/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One take for all servers. Those that are free are asked one after the other, without waiting, until one has something: so no
 * more comes than was asked for, and whoever has a backlog is found. When none has any, the take waits at all of
 * them at once, for one task each. What comes then beyond the first is kept for the next take, for a moment, and goes back
 * if there is none: nobody has more in hand than it asked for.
 *
 * A server that does not answer is passed over; what it says in the end counts for whoever waits then. At one server only, a take
 * is passed on as it is.
 *
 * Takes of a node may be for some of its queues; an answer is for takes with the same ones.
 */
#include <stdlib.h>

#include "broker/many/internal.h"

/* A take of the caller's, in its arena. */
struct want {
    struct mr_link link;
    struct many_node *node;
    struct mr_req_take *outer;
    uint64_t asked;  /* servers that were, one after the other */
    size_t out;      /* of its questions, not answered */
    size_t empty;    /* so many have nothing */
    bool waits;      /* all were asked: it waits at all of them */
    enum mr_err err; /* the last that was no answer; MR_OK: none */
    mr_mono end;
    struct mr_timer timer; /* a server has so long; while it waits: the end */
};

/* A take that a server has. */
struct ask {
    struct mr_link link; /* in the inner node */
    struct inner *inner;
    struct want *want; /* for which it was sent; NULL: that is over */
    struct mr_req_take req;
};

/* A lease that nobody has asked for. */
struct spare {
    struct mr_link link;
    uint64_t queues;
    struct mr_lease *lease;
};

static void want_go_on(struct want *want);
static void want_end(struct want *want);
static int64_t left_ms(const struct want *want);
static uint64_t serving(const struct many_node *node);

/* ---- the end of a take ---------------------------------------------------------------------- */

/* Whatever they bring now is for others. */
static void forget_asks(const struct want *want)
{
    for (uint64_t bits = want->asked; bits != 0; bits &= bits - 1) {
        struct mr_link *asks = &want->node->inners[__builtin_ctzll(bits)]->asks;
        for (struct mr_link *link = asks->next; link != asks; link = link->next) {
            struct ask *ask = mr_container(link, struct ask, link);
            ask->want = ask->want == want ? NULL : ask->want;
        }
    }
}

static void want_answer(struct want *want, enum mr_err err)
{
    mr_rpc_timer_stop(want->node->many->rpc, &want->timer);
    forget_asks(want);
    mr_list_remove(&want->link);
    mr_req_answer(&want->outer->req, err);
}

static struct want *want_of(const struct many_node *node, uint64_t queues)
{
    for (struct mr_link *link = node->wants.next; link != &node->wants; link = link->next) {
        struct want *want = mr_container(link, struct want, link);
        if (want->outer->queues == queues)
            return want;
    }
    return NULL;
}

/* The first ones of the list; answers the rest. */
static struct mr_lease *want_give(struct want *want, struct mr_lease *leases)
{
    struct mr_req_take *outer = want->outer;
    struct mr_lease **at = &leases;
    outer->n = 0;
    while (*at != NULL && outer->n < outer->max) {
        at = &(*at)->next;
        outer->n++;
    }
    struct mr_lease *rest = *at;
    *at = NULL;
    outer->leases = leases;
    outer->held_back = false;
    want_answer(want, MR_OK);
    return rest;
}

/* ---- leases that nobody waits for ----------------------------------------------------------- */

static void spares_back(struct many_node *node)
{
    struct mr_link *link;
    while ((link = mr_list_pop_front(&node->spares)) != NULL) {
        struct spare *spare = mr_container(link, struct spare, link);
        leases_back(node->many, spare->lease);
        free(spare);
    }
}

static void on_spare_timer(struct mr_timer *timer, void *arg)
{
    (void)arg;
    spares_back(mr_container(timer, struct many_node, spare_timer));
}

static void keep_spares(struct many_node *node, struct mr_lease *leases, uint64_t queues)
{
    struct many *many = node->many;
    while (leases != NULL) {
        struct mr_lease *next = leases->next;
        struct spare *spare = node->is_leaving || many->closing ? NULL : calloc(1, sizeof *spare);
        leases->next = NULL;
        if (many->closing) {
            mr_lease_free(leases); /* its server gets it back when the node takes its leave */
        } else if (spare != NULL) {
            spare->queues = queues;
            spare->lease = leases;
            mr_list_init(&spare->link);
            mr_list_push_back(&node->spares, &spare->link);
        } else {
            leases_back(many, leases);
        }
        leases = next;
    }
    if (!mr_list_empty(&node->spares) && !mr_timer_running(&node->spare_timer))
        mr_rpc_timer_start(many->rpc, &node->spare_timer,
                           mr_mono_add_ms(mr_rpc_now(many->rpc), SPARE_MS));
}

/* Those for these queues, as many as are asked for; in their order. */
static struct mr_lease *take_spares(struct many_node *node, uint64_t queues, size_t max)
{
    struct mr_lease *first = NULL, **tail = &first;
    for (struct mr_link *link = node->spares.next, *next; link != &node->spares && max > 0;
         link = next) {
        struct spare *spare = mr_container(link, struct spare, link);
        next = link->next;
        if (spare->queues != queues)
            continue;
        *tail = spare->lease;
        tail = &spare->lease->next;
        mr_list_remove(link);
        free(spare);
        max--;
    }
    return first;
}

void node_spare_lost(struct many_node *node, uint64_t shown)
{
    for (struct mr_link *link = node->spares.next; link != &node->spares; link = link->next) {
        struct spare *spare = mr_container(link, struct spare, link);
        if (spare->lease->epoch != shown)
            continue;
        mr_list_remove(link);
        mr_lease_free(spare->lease);
        free(spare);
        return;
    }
}

/* ---- answers of servers --------------------------------------------------------------------- */

/* Runs that were cancelled before their lease came: their holder has it now. */
static void obey_early(struct inner *inner)
{
    const struct mr_node_events *events = &inner->node->terms.events;
    size_t left = 0;
    for (size_t i = 0; i < inner->early_n; i++) {
        if (inner->early[i] <= inner->last_epoch)
            events->stop(shown_epoch(inner->origin, inner->early[i]), MR_STOP_CANCEL, events->arg);
        else
            inner->early[left++] = inner->early[i];
    }
    inner->early_n = mr_list_empty(&inner->asks) ? 0 : left;
}

static void ask_brought(struct inner *inner, struct want *want, struct mr_lease *leases,
                        uint64_t queues)
{
    struct many_node *node = inner->node;
    for (struct mr_lease *lease = leases; lease != NULL; lease = lease->next) {
        if (lease->epoch > inner->last_epoch)
            inner->last_epoch = lease->epoch;
        lease->epoch = shown_epoch(inner->origin, lease->epoch);
    }
    if (want != NULL)
        leases = want_give(want, leases);
    while (leases != NULL && (want = want_of(node, queues)) != NULL)
        leases = want_give(want, leases);
    keep_spares(node, leases, queues);
    obey_early(inner);
}

/* Asking again would not help. */
static bool is_verdict(enum mr_err err)
{
    return err != MR_EMPTY && err != MR_CLOSED && err != MR_NOT_FOUND && err != MR_UNAVAILABLE;
}

/* Nothing came: whoever asked there goes on. One that waits at all is not asked again at once: the next tick does that. */
static void ask_brought_nothing(struct inner *inner, struct want *want,
                                const struct mr_req_take *req)
{
    enum mr_err err = req->req.err;
    uint64_t all = serving(inner->node);
    bool is_alone = (all & (all - 1)) == 0;
    if (err == MR_CLOSED || err == MR_NOT_FOUND)
        inner_died(inner);
    if (want == NULL)
        return;
    want->empty += err == MR_EMPTY;
    want->outer->held_back |= err == MR_EMPTY && req->held_back;
    want->err = err != MR_EMPTY ? err : want->err;
    if (!want->waits)
        want_go_on(want);
    else if (left_ms(want) == 0 || (is_alone && is_verdict(err)))
        want_end(want);
}

static void ask_done(struct mr_req *req)
{
    struct ask *ask = req->arg;
    struct inner *inner = ask->inner;
    mr_list_remove(&ask->link);
    if (ask->want != NULL)
        ask->want->out--;
    if (req->err == MR_OK)
        ask_brought(inner, ask->want, ask->req.leases, ask->req.queues);
    else if (!inner->node->many->closing)
        ask_brought_nothing(inner, ask->want, &ask->req);
    mr_req_done(req);
    struct many_node *node = inner->node;
    free(ask);
    if (node->many->closing)
        return;
    if (node->is_leaving) {
        node_step(node);
        return;
    }
    node_check(node);
    node_takes_go_on(node);
}

/* ---- asking --------------------------------------------------------------------------------- */

/* How many there are for these queues, and whether one of them waits there. */
static size_t asks_for(const struct inner *inner, uint64_t queues, bool *ret_waits)
{
    size_t n = 0;
    for (struct mr_link *link = inner->asks.next; link != &inner->asks; link = link->next) {
        const struct ask *ask = mr_container(link, struct ask, link);
        if (ask->req.queues != queues)
            continue;
        n++;
        *ret_waits |= ask->req.wait_ms > 0;
    }
    return n;
}

static size_t waiting_for(const struct many_node *node, uint64_t queues)
{
    size_t n = 0;
    for (struct mr_link *link = node->wants.next; link != &node->wants; link = link->next) {
        const struct want *want = mr_container(link, struct want, link);
        n += want->waits && want->outer->queues == queues;
    }
    return n;
}

/* False: without memory it is not asked. */
static bool ask_at(struct inner *inner, struct want *want, size_t max, int64_t wait_ms)
{
    struct ask *ask = calloc(1, sizeof *ask);
    want->asked |= 1ULL << inner->origin->index;
    if (ask == NULL)
        return false;
    want->out++;
    ask->inner = inner;
    ask->want = want;
    ask->req = (struct mr_req_take){
        .req = {.op = MR_OP_TAKE, .done = ask_done, .arg = ask},
        .node = inner->number,
        .max = max,
        .wait_ms = wait_ms,
        .bytes_max = want->outer->bytes_max,
        .queues = want->outer->queues,
    };
    mr_list_init(&ask->link);
    mr_list_push_back(&inner->asks, &ask->link);
    mr_broker_submit(inner->origin->broker, &ask->req.req);
    return true;
}

static uint64_t serving(const struct many_node *node)
{
    uint64_t bits = 0;
    for (size_t i = 0; i < node->many->origins_n; i++)
        if (inner_serves(node->inners[i]))
            bits |= 1ULL << i;
    return bits;
}

static int64_t left_ms(const struct want *want)
{
    int64_t ns = want->end.ns - mr_rpc_now(want->node->many->rpc).ns;
    return ns > 0 ? ns / MR_NS_PER_MS + 1 : 0;
}

static void set_timer(struct want *want, mr_mono at)
{
    mr_rpc_timer_start(want->node->many->rpc, &want->timer, at);
}

/* The server whose turn it is, of those that this take has not asked and, if they are several, that have none for the
 * same queues. */
static struct inner *next_inner(const struct want *want)
{
    struct many_node *node = want->node;
    uint64_t all = serving(node), bits = all & ~want->asked;
    bool alone = (all & (all - 1)) == 0;
    size_t n = node->many->origins_n;
    for (size_t i = 0; i < n; i++) {
        struct inner *inner = node->inners[(node->turn + i) % n];
        bool waits = false, fits = inner != NULL && (bits >> inner->origin->index & 1) != 0;
        if (!fits || (!alone && asks_for(inner, want->outer->queues, &waits) > 0))
            continue;
        node->turn = inner->origin->index + 1;
        return inner;
    }
    return NULL;
}

/* At all that have no take for these queues yet; at the only one, each take has its own. */
static void wait_at_all(struct want *want)
{
    struct many_node *node = want->node;
    uint64_t bits = serving(node);
    bool alone = (bits & (bits - 1)) == 0;
    int64_t wait_ms = left_ms(want);
    for (; bits != 0 && wait_ms > 0; bits &= bits - 1) {
        struct inner *inner = node->inners[__builtin_ctzll(bits)];
        bool waits = false;
        size_t enough = alone ? waiting_for(node, want->outer->queues) : 1;
        if (asks_for(inner, want->outer->queues, &waits) >= enough)
            continue;
        (void)ask_at(inner, want, alone ? want->outer->max : 1, wait_ms);
    }
}

/* Where a take waits, there is nothing. */
static bool is_empty(const struct want *want)
{
    bool waits = false;
    for (uint64_t bits = serving(want->node); bits != 0; bits &= bits - 1)
        (void)asks_for(want->node->inners[__builtin_ctzll(bits)], want->outer->queues, &waits);
    return want->empty > 0 || waits || (want->waits && serving(want->node) != 0);
}

/* Nothing came in time. */
static void want_end(struct want *want)
{
    bool said = want->err != MR_OK && is_verdict(want->err);
    want_answer(want, said && want->empty == 0 ? want->err
                      : is_empty(want)         ? MR_EMPTY
                                               : MR_UNAVAILABLE);
}

/* Asks the next server; when all were asked, waits or ends. At the only one it waits for the answer, however long that takes:
 * in the end the server is fenced. */
static void want_go_on(struct want *want)
{
    struct many *many = want->node->many;
    uint64_t bits = serving(want->node);
    bool alone = bits != 0 && (bits & (bits - 1)) == 0;
    struct inner *inner = next_inner(want);
    mr_mono now = mr_rpc_now(many->rpc);
    if (inner != NULL) {
        int64_t wait_ms = alone ? left_ms(want) : 0;
        want->waits = alone && wait_ms > 0;
        (void)ask_at(inner, want, want->outer->max, wait_ms);
        if (!alone)
            set_timer(want, mr_mono_add_ms(now, many->ask_ms));
        else if (want->waits)
            set_timer(want, mr_mono_add_ms(now, many->ask_ms + wait_ms));
        return;
    }
    if (left_ms(want) == 0) {
        if (want->empty > 0 || want->out == 0) /* else nobody has answered yet */
            want_end(want);
        return;
    }
    want->waits = true;
    wait_at_all(want);
    set_timer(want, want->end);
}

/* A server does not answer, or the time is over. */
static void on_want_timer(struct mr_timer *timer, void *arg)
{
    struct want *want = mr_container(timer, struct want, timer);
    (void)arg;
    if (want->waits && left_ms(want) == 0)
        want_end(want);
    else
        want_go_on(want);
}

/* ---- requests ------------------------------------------------------------------------------- */

void begin_take(struct many *many, struct mr_req *req)
{
    struct mr_req_take *outer = mr_container(req, struct mr_req_take, req);
    struct many_node *node = node_at(many, outer->node);
    outer->leases = NULL;
    outer->n = 0;
    outer->held_back = false;
    if (node == NULL || node->is_leaving || node->is_dead || node->opening != NULL) {
        mr_req_answer(req, MR_CLOSED);
        return;
    }
    struct want *want = mr_arena_calloc(&req->arena, 1, sizeof *want);
    if (want == NULL) {
        mr_req_answer(req, MR_NOMEM);
        return;
    }
    want->node = node;
    want->outer = outer;
    want->end = mr_mono_add_ms(mr_rpc_now(many->rpc), outer->wait_ms);
    mr_timer_init(&want->timer, on_want_timer);
    mr_list_init(&want->link);
    mr_list_push_back(&node->wants, &want->link);
    struct mr_lease *spares = take_spares(node, outer->queues, outer->max);
    if (spares != NULL)
        (void)want_give(want, spares);
    else
        want_go_on(want);
}

void node_takes_init(struct many_node *node)
{
    mr_list_init(&node->wants);
    mr_list_init(&node->spares);
    mr_timer_init(&node->spare_timer, on_spare_timer);
}

void node_takes_go_on(struct many_node *node)
{
    struct mr_link *link = node->wants.next;
    while (link != &node->wants) {
        struct want *want = mr_container(link, struct want, link);
        link = link->next;
        if (want->waits)
            wait_at_all(want);
    }
}

void node_takes_fail(struct many_node *node, enum mr_err err)
{
    while (!mr_list_empty(&node->wants))
        want_answer(mr_container(node->wants.next, struct want, link), err);
    mr_rpc_timer_stop(node->many->rpc, &node->spare_timer);
    spares_back(node);
}
