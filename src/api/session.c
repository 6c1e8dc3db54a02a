/* SPDX-License-Identifier: Apache-2.0 */
/* The node behind a worker's stream: how it comes, is taken over by another stream, and goes. */
#include <stdio.h>
#include <stdlib.h>

#include "api/doubts.h"
#include "api/work.h"
#include "broker/result.h"

static struct mr_link *bucket_of(struct mr_api *api, uint64_t incarnation)
{
    return &api->sessions[(incarnation ^ incarnation >> 32) % SESSION_BUCKETS];
}

static void join(struct session *session, struct attach *attach)
{
    session->attach = attach;
    attach->session = session;
    valve_move(&attach->valve, &session->budget);
    valve_hold(&attach->valve); /* until it is welcome */
}

static void part(struct session *session)
{
    struct attach *attach = session->attach;
    if (attach == NULL)
        return;
    session->attach = NULL;
    attach->session = NULL;
    valve_move(&attach->valve, NULL);
}

static void welcome(struct session *session, bool resumed)
{
    Millrace__V1__ServerMessage message = MILLRACE__V1__SERVER_MESSAGE__INIT;
    Millrace__V1__Welcome out = MILLRACE__V1__WELCOME__INIT;
    out.node = session->node;
    out.resumed = resumed;
    out.grace_ms = session->grace_ms;
    message.kind_case = MILLRACE__V1__SERVER_MESSAGE__KIND_WELCOME;
    message.welcome = &out;
    attach_say(session->attach, &message);
    valve_release(&session->attach->valve);
}

/* ---- its end -------------------------------------------------------------------------------- */

void session_try_free(struct session *session)
{
    if (!session->closed || session->errands_n > 0)
        return;
    part(session);
    session->api->sessions_n--;
    helds_done(&session->helds);
    errand_clear(&session->closing);
    free(session);
}

/* After this answer no event of the node comes, and those before it are delivered. */
static void closed(struct errand *errand)
{
    struct session *session = mr_container(errand, struct session, closing);
    struct attach *attach = session->attach;
    session->errands_n--;
    session->closed = true;
    if (attach != NULL) {
        part(session);
        attach->ended = true;
        call_end(attach->head.call, MR_OK, (struct mr_slice){0});
    }
    session_try_free(session);
}

/* It is the server that goes: what the worker runs has crashed nobody. */
static void forget_begun(struct session *session)
{
    for (uint32_t i = 0; i < session->slots; i++)
        mr_broker_begun(session->api->options.broker, session->first_slot + i, 0);
}

void session_close(struct session *session)
{
    if (session->state == SESSION_CLOSING)
        return;
    if (session->api->stopping)
        forget_begun(session);
    session->state = SESSION_CLOSING;
    mr_list_remove(&session->link);
    mr_doubts_remove(session->api->options.doubts, session->node);
    mr_rpc_timer_stop(session->api->options.rpc, &session->grace);
    mr_rpc_timer_stop(session->api->options.rpc, &session->beat);
    work_drop_parked(session);
    session->errands_n++;
    session->closing.req.node_close.node = session->node;
    errand_submit(&session->closing, session->api, MR_OP_NODE_CLOSE, closed);
}

static void grace_over(struct mr_timer *timer, void *arg)
{
    (void)arg;
    session_close(mr_container(timer, struct session, grace));
}

/* Nobody could come back to it. */
static bool is_lost(const struct session *session)
{
    const struct mr_api *api = session->api;
    bool revoked =
        session->token[0] != '\0' && !mr_tokens_valid(api->options.access.tokens, session->token);
    return session->gone || revoked || api->stopping;
}

void session_left(struct session *session)
{
    struct mr_rpc *rpc = session->api->options.rpc;
    if (session->state != SESSION_LIVE)
        return; /* it goes already, or is looked at again when its request comes back */
    work_drop_parked(session);
    if (is_lost(session)) {
        session_close(session);
        return;
    }
    mr_doubts_add(session->api->options.doubts, session->node);
    mr_rpc_timer_start(rpc, &session->grace, mr_mono_add_ms(mr_rpc_now(rpc), session->grace_ms));
}

void session_stopping(struct session *session)
{
    bool done = session->state == SESSION_LIVE && (session->helds.n == 0 || session->master);
    if (session->api->stopping && done && session->attach != NULL)
        attach_end(session->attach, MR_UNAVAILABLE, "the server is stopping");
}

void sessions_close_all(struct mr_api *api)
{
    for (size_t i = 0; i < SESSION_BUCKETS; i++) {
        for (struct mr_link *link = api->sessions[i].next, *next; link != &api->sessions[i];
             link = next) {
            struct session *session = mr_container(link, struct session, link);
            next = link->next;
            if (session->state != SESSION_OPENING) /* it is closed when it is open */
                session_close(session);
        }
    }
}

/* ---- its beginning -------------------------------------------------------------------------- */

static void opened(struct work *work)
{
    struct session *session = work->session;
    const struct mr_req_node_open *req = &work->errand.req.node_open;
    enum mr_err err = req->req.err;
    if (err != MR_OK) {
        struct attach *attach = session->attach;
        part(session);
        if (attach != NULL)
            attach_end(attach, err,
                       err == MR_TOO_BIG ? "too many nodes or slots on the server" : "");
        mr_list_remove(&session->link);
        session->state = SESSION_CLOSING;
        session->closed = true;
        return;
    }
    session->state = SESSION_LIVE;
    session->node = req->node;
    session->first_slot = req->first_slot;
    if (session->api->stopped)
        session_close(session);
    else if (session->attach == NULL)
        session_left(session);
    else
        welcome(session, false);
    session_stopping(session);
}

static enum mr_err fill_open(struct work *work, const Millrace__V1__Hello *hello)
{
    struct mr_req_node_open *req = &work->errand.req.node_open;
    struct mr_worker_queue *queues =
        mr_arena_calloc(&req->req.arena, hello->n_queues + hello->n_topics, sizeof *queues);
    struct mr_slice *types = mr_arena_calloc(&req->req.arena, hello->n_types + 1, sizeof *types);
    if (queues == NULL || types == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < hello->n_types; i++)
        types[i] = mr_pb_text(hello->types[i]);
    for (size_t i = 0; i < hello->n_topics; i++) {
        char name[MR_NAME_MAX + 1];
        struct mr_slice queue = mr_result_queue(mr_pb_text(hello->topics[i]), name);
        MR_TRY(mr_arena_copy(&req->req.arena, queue, &queues[i].name));
    }
    for (size_t i = 0; i < hello->n_queues; i++)
        queues[i] = (struct mr_worker_queue){.name = mr_pb_text(hello->queues[i]->name),
                                             .weight = hello->queues[i]->weight};
    req->name = mr_slice_str(work->session->name);
    req->role = hello->n_topics > 0 ? MR_NODE_MASTER : MR_NODE_WORKER;
    req->lasts = hello->lasts;
    /* A leader must see all nodes, and write about all queues. */
    req->leads = hello->leads && work->session->leads;
    req->leader_ms = hello->leader_ms;
    req->fall_ms = hello->fall_ms;
    req->queues = queues;
    req->queues_n = hello->n_queues + hello->n_topics;
    req->order = hello->strict ? MR_QUEUES_STRICT : MR_QUEUES_WEIGHTED;
    req->types = types;
    req->types_n = hello->n_types;
    req->slots = hello->slots;
    req->lease_ms = hello->lease_ms;
    req->events =
        (struct mr_node_events){.stop = event_stop, .wanted = event_wanted, .arg = work->session};
    return MR_OK;
}

static struct session *session_new(struct attach *attach, const Millrace__V1__Hello *hello)
{
    struct mr_api *api = attach->head.api;
    struct session *session = calloc(1, sizeof *session);
    if (session == NULL)
        return NULL;
    session->api = api;
    session->state = SESSION_OPENING;
    session->incarnation = hello->incarnation;
    session->all_queues =
        mr_access_all_queues(&attach->head.token) && attach->head.token.role != MR_ROLE_PRODUCER;
    session->leads = mr_access_all_queues(&attach->head.token);
    session->master = hello->n_topics > 0;
    session->slots = hello->slots;
    session->lease_ms = hello->lease_ms;
    bool sooner = api->options.grace_ms < hello->lease_ms && !hello->lasts;
    session->grace_ms = sooner ? api->options.grace_ms : hello->lease_ms;
    snprintf(session->name, sizeof session->name, "%s", hello->node);
    memcpy(session->token, attach->head.token.id, sizeof session->token);
    budget_init(&session->budget);
    mr_list_init(&session->takes);
    mr_timer_init(&session->grace, grace_over);
    mr_timer_init(&session->beat, work_beat_for_it);
    mr_list_push_back(bucket_of(api, session->incarnation), &session->link);
    api->sessions_n++;
    return session;
}

/* The hello lives in the arena, which is taken. */
static void session_open(struct attach *attach, const Millrace__V1__Hello *hello,
                         struct mr_arena *arena)
{
    struct session *session = session_new(attach, hello);
    struct work *work = session != NULL ? work_new(session, 0) : NULL;
    if (work != NULL) {
        work->errand.req.head.arena = *arena;
        *arena = (struct mr_arena){0};
    }
    if (work == NULL || fill_open(work, hello) != MR_OK) {
        attach_end(attach, MR_NOMEM, "");
        if (work != NULL)
            work_free(work);
        if (session != NULL) {
            mr_list_remove(&session->link);
            session->closed = true;
            session_try_free(session);
        }
        return;
    }
    join(session, attach);
    work_submit(work, MR_OP_NODE_OPEN, opened);
}

/* ---- another stream of the same worker ------------------------------------------------------ */

static void checked(struct work *work)
{
    struct session *session = work->session;
    struct attach *attach = session->attach;
    enum mr_err err = work->errand.req.head.err;
    if (session->state != SESSION_CHECKING)
        return;
    session->state = SESSION_LIVE;
    if (attach == NULL) {
        session->gone = err != MR_OK;
        session_left(session);
    } else if (err == MR_OK) {
        welcome(session, true);
        work_reconcile(session, work->hello->holds, work->hello->n_holds);
        session_stopping(session);
    } else { /* too late: its tasks went to others, it begins anew */
        part(session);
        session_close(session);
        session_open(attach, work->hello, &work->errand.req.head.arena);
    }
}

static void take_over(struct session *session, struct attach *attach,
                      const Millrace__V1__Hello *hello, struct mr_arena *arena)
{
    struct attach *old = session->attach;
    struct work *work = work_new(session, 0);
    if (work == NULL) {
        attach_end(attach, MR_NOMEM, "");
        return;
    }
    work->hello = hello;
    work->errand.req.head.arena = *arena;
    *arena = (struct mr_arena){0};
    if (old != NULL) {
        part(session);
        attach_end(old, MR_STALE, "another stream of this node has taken over");
    }
    mr_doubts_remove(session->api->options.doubts, session->node);
    mr_rpc_timer_stop(session->api->options.rpc, &session->grace);
    work_drop_parked(session);
    session->state = SESSION_CHECKING;
    join(session, attach);
    work->errand.req.beat.node = session->node;
    work_submit(work, MR_OP_BEAT, checked);
}

/* ---- hello ---------------------------------------------------------------------------------- */

static struct session *find(const struct attach *attach, const Millrace__V1__Hello *hello)
{
    struct mr_link *bucket = bucket_of(attach->head.api, hello->incarnation);
    for (struct mr_link *link = bucket->next; link != bucket; link = link->next) {
        struct session *session = mr_container(link, struct session, link);
        if (session->incarnation == hello->incarnation && strcmp(session->name, hello->node) == 0 &&
            strcmp(session->token, attach->head.token.id) == 0)
            return session;
    }
    return NULL;
}

/* Of a master. Who may enqueue may take the results of it. */
static enum mr_err check_topics(const struct attach *attach, const Millrace__V1__Hello *hello,
                                struct mr_detail *detail)
{
    const struct mr_token *token = &attach->head.token;
    if (token->role == MR_ROLE_WORKER) {
        mr_detail_set(detail, "token %s is of a worker, who takes tasks, not results", token->id);
        return MR_DENIED;
    }
    if (hello->n_topics > MR_TAKE_QUEUES_MAX || hello->n_queues > 0 || hello->n_types > 0 ||
        hello->slots > 0) {
        mr_detail_set(detail, "topics: 1 to %d, and neither queues, types nor slots with them",
                      MR_TAKE_QUEUES_MAX);
        return MR_INVALID;
    }
    for (size_t i = 0; i < hello->n_topics; i++) {
        struct mr_slice topic = mr_pb_text(hello->topics[i]);
        if (topic.len > MR_TOPIC_MAX) {
            mr_detail_set(detail, "topic: %zu bytes, the limit is %d", topic.len, MR_TOPIC_MAX);
            return MR_TOO_BIG;
        }
        MR_TRY(mr_access_topic(topic, detail));
        if (topic.len > 0 && mr_access_queue(token, topic))
            continue;
        mr_detail_set(detail, "token %s is for queues and topics %s, not for %.*s", token->id,
                      token->queue, MR_NAME_MAX, hello->topics[i]);
        return topic.len > 0 ? MR_DENIED : MR_INVALID;
    }
    return MR_OK;
}

static enum mr_err check_hello(const struct attach *attach, const Millrace__V1__Hello *hello,
                               struct mr_detail *detail)
{
    if (strlen(hello->node) > MR_NAME_MAX) {
        mr_detail_set(detail, "node: %zu bytes, the limit is %d", strlen(hello->node), MR_NAME_MAX);
        return MR_TOO_BIG;
    }
    if (hello->lease_ms <= 0 || hello->lease_ms > LEASE_MAX_MS) {
        mr_detail_set(detail, "lease_ms: must be 1 to %d", LEASE_MAX_MS);
        return MR_INVALID;
    }
    if (hello->leads && (hello->leader_ms <= 0 || hello->leader_ms > LEASE_MAX_MS)) {
        mr_detail_set(detail, "leader_ms: must be 1 to %d", LEASE_MAX_MS);
        return MR_INVALID;
    }
    if (hello->n_topics > 0)
        return check_topics(attach, hello, detail);
    if (attach->head.token.role == MR_ROLE_PRODUCER) {
        mr_detail_set(detail, "token %s is of a producer, who takes results, not tasks",
                      attach->head.token.id);
        return MR_DENIED;
    }
    if (hello->slots == 0 || hello->slots > MR_SLOTS_MAX) {
        mr_detail_set(detail, "slots: must be 1 to %d", MR_SLOTS_MAX);
        return MR_INVALID;
    }
    if (hello->n_queues == 0 || hello->n_queues > MR_TAKE_QUEUES_MAX) {
        mr_detail_set(detail, "queues: must be 1 to %d", MR_TAKE_QUEUES_MAX);
        return MR_INVALID;
    }
    if (hello->n_types > MR_NODE_TYPES_MAX) {
        mr_detail_set(detail, "types: %zu, the limit is %d", hello->n_types, MR_NODE_TYPES_MAX);
        return MR_INVALID;
    }
    for (size_t i = 0; i < hello->n_queues; i++) {
        struct mr_slice queue = mr_pb_text(hello->queues[i]->name);
        if (mr_access_queue(&attach->head.token, queue))
            continue;
        mr_access_not_covered(&attach->head.token, queue, detail);
        return MR_DENIED;
    }
    return MR_OK;
}

void session_hello(struct attach *attach, const Millrace__V1__Hello *hello, struct mr_arena *arena)
{
    struct mr_detail detail = {.text = ""};
    enum mr_err err = check_hello(attach, hello, &detail);
    if (err != MR_OK) {
        attach_end(attach, err, detail.text);
        return;
    }
    struct session *session = find(attach, hello);
    if (session == NULL)
        session_open(attach, hello, arena);
    else if (session->state == SESSION_LIVE)
        take_over(session, attach, hello, arena);
    else
        attach_end(attach, MR_UNAVAILABLE, "another stream of this node is just coming: try again");
}
