/* SPDX-License-Identifier: Apache-2.0 */
/* What a worker says over its stream, and what it is told. */
#include <stdlib.h>

#include "api/work.h"

/* ---- requests ------------------------------------------------------------------------------- */

struct work *work_new(struct session *session, uint32_t tag)
{
    struct work *work = calloc(1, sizeof *work);
    if (work == NULL)
        return NULL;
    work->session = session;
    work->tag = tag;
    work->serial = session->attach != NULL ? session->attach->serial : 0;
    work->errand.budget = &session->budget;
    mr_list_init(&work->link);
    return work;
}

void work_free(struct work *work)
{
    while (work->leases != NULL) {
        struct mr_lease *lease = work->leases;
        work->leases = lease->next;
        mr_lease_free(lease);
    }
    errand_clear(&work->errand);
    free(work);
}

static void work_back(struct errand *errand)
{
    struct work *work = mr_container(errand, struct work, errand);
    struct session *session = work->session;
    session->errands_n--;
    work->back(work);
    if (mr_list_empty(&work->link)) /* else it is parked */
        work_free(work);
    session_try_free(session);
}

void work_submit(struct work *work, enum mr_op op, void (*back)(struct work *work))
{
    struct session *session = work->session;
    struct mr_rpc *rpc = session->api->options.rpc;
    work->back = back;
    session->errands_n++;
    errand_submit(&work->errand, session->api, op, work_back);
    if (session->budget.full && !mr_timer_running(&session->beat))
        mr_rpc_timer_start(rpc, &session->beat,
                           mr_mono_add_ms(mr_rpc_now(rpc), session->lease_ms / 3));
}

/* Whether the stream it came over is still the session's. */
static bool work_is_heard(const struct work *work)
{
    const struct attach *attach = work->session->attach;
    return attach != NULL && attach->serial == work->serial && !attach->ended &&
           work->session->state == SESSION_LIVE;
}

/* ---- handing back --------------------------------------------------------------------------- */

static void forget(struct work *work)
{
    (void)work;
}

static struct mr_finish *hand_back_items(struct work *work, size_t n)
{
    struct mr_req_finish *req = &work->errand.req.finish;
    struct mr_finish *items = mr_arena_calloc(&req->req.arena, n, sizeof *items);
    req->errs = mr_arena_calloc(&req->req.arena, n, sizeof *req->errs);
    req->items = items;
    return req->errs != NULL ? items : NULL;
}

/* Leases that nobody got. Without memory they go back with their node. */
static void hand_back(struct session *session, struct mr_lease *take_leases, size_t n)
{
    struct work *work = work_new(session, 0);
    if (work == NULL) {
        while (take_leases != NULL) {
            struct mr_lease *next = take_leases->next;
            mr_lease_free(take_leases);
            take_leases = next;
        }
        return;
    }
    work->leases = take_leases;
    struct mr_finish *items = hand_back_items(work, n);
    struct mr_req_finish *req = &work->errand.req.finish;
    for (struct mr_lease *lease = take_leases; items != NULL && lease != NULL;
         lease = lease->next) {
        struct mr_slice id = mr_broker_lease_id(session->api->options.broker, lease);
        if (id.len > 0)
            items[req->n++] = (struct mr_finish){
                .id = id, .epoch = lease->epoch, .ref = lease->ref, .outcome = MR_HAND_BACK};
    }
    if (req->n > 0)
        work_submit(work, MR_OP_FINISH, forget);
    else
        work_free(work);
}

/* ---- takes ---------------------------------------------------------------------------------- */

/* Numbers of ServerMessage and of the message of tasks in it. */
enum { SAY_TASKS = 2, TASKS_TAG = 1, TASKS_CODE = 2, TASKS_TASKS = 3, TAG_SIZE = 5 };

static void say_no_tasks(struct session *session, uint32_t tag, enum mr_err code, bool held_back)
{
    Millrace__V1__ServerMessage message = MILLRACE__V1__SERVER_MESSAGE__INIT;
    Millrace__V1__Taken out = MILLRACE__V1__TAKEN__INIT;
    out.tag = tag;
    out.code = (Millrace__V1__Code)code;
    out.held_back = held_back;
    message.kind_case = MILLRACE__V1__SERVER_MESSAGE__KIND_TASKS;
    message.tasks = &out;
    attach_say(session->attach, &message);
}

static enum mr_err write_tasks(const struct work *work, const size_t *sizes, size_t len)
{
    uint8_t *at;
    struct mr_call *call = work->session->attach->head.call;
    MR_TRY(mr_call_room(call, mr_flat_head_size(len) + len, &at));
    at = mr_flat_put_head(at, SAY_TASKS, len);
    *at++ = TASKS_TAG << 3 | MR_FLAT_FOUR;
    mr_store32(at, work->tag);
    at += sizeof work->tag;
    size_t i = 0;
    for (struct mr_lease *lease = work->errand.req.take.leases; lease != NULL;
         lease = lease->next) {
        at = mr_flat_put_head(at, TASKS_TASKS, sizes[i++]);
        at = mr_flat_write(&mr_flat_task, &lease->task, at);
    }
    return MR_OK;
}

/* All of them are in hand, or none. */
static enum mr_err give(struct work *work)
{
    struct mr_req_take *req = &work->errand.req.take;
    struct session *session = work->session;
    size_t *sizes = mr_arena_alloc(&req->req.arena, req->n * sizeof *sizes);
    size_t len = TAG_SIZE, i = 0;
    struct mr_lease *lease;
    enum mr_err err = sizes != NULL ? MR_OK : MR_NOMEM;
    for (lease = req->leases; err == MR_OK && lease != NULL; lease = lease->next) {
        err = mr_broker_lease_open(session->api->options.broker, lease);
        if (err == MR_OK)
            err = helds_add(&session->helds, lease);
        if (err != MR_OK)
            break;
        sizes[i] = mr_flat_size(&mr_flat_task, &lease->task);
        len += mr_flat_head_size(sizes[i]) + sizes[i];
        i++;
    }
    if (err == MR_OK)
        err = write_tasks(work, sizes, len);
    if (err == MR_OK && !session->master && session->api->options.handed != NULL)
        atomic_fetch_add(session->api->options.handed, req->n);
    for (lease = req->leases; err != MR_OK && lease != NULL; lease = lease->next)
        helds_remove(&session->helds, lease->epoch);
    return err;
}

/* Nothing is taken for somebody who does not read: it would only wait here. */
static bool is_slow(const struct session *session)
{
    return mr_call_queued(session->attach->head.call) >= MR_CALL_QUEUED_HIGH;
}

/* It was with the broker already when the reader became slow: what it got goes back, and it is
 * tried again when the reader takes. */
static void park_again(struct work *work)
{
    struct mr_req_take *req = &work->errand.req.take;
    struct session *session = work->session;
    hand_back(session, req->leases, req->n);
    mr_req_done(&req->req);
    *req = (struct mr_req_take){.node = req->node,
                                .max = req->max,
                                .wait_ms = req->wait_ms,
                                .bytes_max = req->bytes_max,
                                .queues = req->queues};
    mr_list_push_back(&session->takes, &work->link);
}

static void taken(struct work *work)
{
    struct session *session = work->session;
    struct mr_req_take *req = &work->errand.req.take;
    enum mr_err err = req->req.err;
    bool heard = work_is_heard(work);
    session->gone |= err == MR_CLOSED;
    if (err == MR_OK && heard && mr_call_queued(session->attach->head.call) >= QUEUED_TASKS_MAX) {
        park_again(work);
        return;
    }
    session->takes_n--;
    if (err == MR_OK) {
        err = heard && !session->api->stopping ? give(work) : MR_CLOSED;
        if (err == MR_OK)
            work->leases = req->leases;
        else
            hand_back(session, req->leases, req->n);
        if (err == MR_OK || err == MR_CLOSED)
            return; /* said, or there is nobody to say it to */
    }
    if (heard)
        say_no_tasks(session, work->tag, err, req->held_back);
}

enum mr_err work_take(struct session *session, struct mr_slice bytes)
{
    struct mr_flat_item item;
    uint64_t tag = 0, max = 0, wait_ms = 0, queues = 0;
    uint64_t *const fields[] = {NULL, &tag, &max, &wait_ms, &queues};
    while (bytes.len > 0) {
        MR_TRY(mr_flat_next(&bytes, &item));
        if (item.number < sizeof fields / sizeof *fields)
            *fields[item.number] = item.value;
    }
    if (session->takes_n >= TAKES_MAX) {
        say_no_tasks(session, (uint32_t)tag, MR_BUSY, false);
        return MR_OK;
    }
    struct work *work = work_new(session, (uint32_t)tag);
    if (work == NULL)
        return MR_NOMEM;
    struct mr_req_take *req = &work->errand.req.take;
    work->errand.budget = NULL; /* it may wait for a day */
    req->node = session->node;
    req->max = max;
    req->wait_ms = (int64_t)wait_ms > 0 ? (int64_t)wait_ms : 0;
    req->queues = queues;
    req->bytes_max = ANSWER_BYTES;
    session->takes_n++;
    if (is_slow(session) || session->api->stopping)
        mr_list_push_back(&session->takes, &work->link);
    else
        work_submit(work, MR_OP_TAKE, taken);
    return MR_OK;
}

void work_go_on(struct session *session)
{
    while (!session->api->stopping && session->state == SESSION_LIVE &&
           !mr_list_empty(&session->takes) && !is_slow(session)) {
        struct mr_link *link = mr_list_pop_front(&session->takes);
        work_submit(mr_container(link, struct work, link), MR_OP_TAKE, taken);
    }
}

void work_drop_parked(struct session *session)
{
    struct mr_link *link;
    while ((link = mr_list_pop_front(&session->takes)) != NULL) {
        session->takes_n--;
        work_free(mr_container(link, struct work, link));
    }
}

/* ---- finishes ------------------------------------------------------------------------------- */

enum { FINISH_TAG = 1, FINISH_ITEMS = 2, ALONE_ITEMS = 1 }; /* of Finish, of FinishRequest */

/* Items of a message whose bytes are in the request's arena. */
static enum mr_err read_items(struct mr_slice bytes, uint32_t number, struct mr_req_finish *req)
{
    struct mr_arena *arena = &req->req.arena;
    size_t n, i = 0;
    MR_TRY(mr_flat_count(bytes, number, &n));
    if (n > MR_BATCH_MAX)
        return MR_TOO_BIG;
    struct mr_finish *items = mr_arena_alloc(arena, (n + 1) * sizeof *items);
    req->errs = mr_arena_calloc(arena, n + 1, sizeof *req->errs);
    if (items == NULL || req->errs == NULL)
        return MR_NOMEM;
    while (bytes.len > 0) {
        struct mr_flat_item item;
        MR_TRY(mr_flat_next(&bytes, &item));
        if (item.number == number && item.type == MR_FLAT_BYTES)
            MR_TRY(mr_flat_read(&mr_flat_finish, item.bytes, arena, &items[i++]));
    }
    req->items = items;
    req->n = n;
    return MR_OK;
}

static bool all_ok(const struct mr_req_finish *req)
{
    for (size_t i = 0; i < req->n; i++)
        if (req->errs[i] != MR_OK)
            return false;
    return true;
}

/* None when all are fine, which they mostly are. */
static enum mr_err codes_of(struct mr_req_finish *req, Millrace__V1__Code **ret_codes,
                            size_t *ret_n)
{
    *ret_n = 0;
    if (all_ok(req))
        return MR_OK;
    *ret_codes = mr_arena_calloc(&req->req.arena, req->n, sizeof **ret_codes);
    if (*ret_codes == NULL)
        return MR_NOMEM;
    for (*ret_n = 0; *ret_n < req->n; ++*ret_n)
        (*ret_codes)[*ret_n] = (Millrace__V1__Code)req->errs[*ret_n];
    return MR_OK;
}

static void finished(struct work *work)
{
    struct session *session = work->session;
    struct mr_req_finish *req = &work->errand.req.finish;
    Millrace__V1__ServerMessage message = MILLRACE__V1__SERVER_MESSAGE__INIT;
    Millrace__V1__Finished out = MILLRACE__V1__FINISHED__INIT;
    enum mr_err err = req->req.err;
    for (size_t i = 0; err == MR_OK && i < req->n; i++)
        if (req->errs[i] == MR_OK || req->errs[i] == MR_STALE || req->errs[i] == MR_NOT_FOUND)
            helds_remove(&session->helds, req->items[i].epoch);
    if (err == MR_OK)
        err = codes_of(req, &out.codes, &out.n_codes);
    if (work_is_heard(work)) {
        out.tag = work->tag;
        out.code = (Millrace__V1__Code)err;
        message.kind_case = MILLRACE__V1__SERVER_MESSAGE__KIND_FINISHED;
        message.finished = &out;
        attach_say(session->attach, &message);
    }
    session_stopping(session);
}

static enum mr_err read_tag(struct mr_slice bytes, uint32_t *ret_tag)
{
    while (bytes.len > 0) {
        struct mr_flat_item item;
        MR_TRY(mr_flat_next(&bytes, &item));
        if (item.number == FINISH_TAG)
            *ret_tag = (uint32_t)item.value;
    }
    return MR_OK;
}

/* The shortcut of each lease. A token for some queues ends only what it was given: any other epoch
 * becomes one that nobody has. */
static void look_up(const struct session *session, struct mr_req_finish *req)
{
    struct mr_finish *items = (struct mr_finish *)(uintptr_t)req->items;
    for (size_t i = 0; i < req->n; i++) {
        const struct held *held = helds_find(&session->helds, items[i].epoch);
        items[i].ref = held != NULL ? held->ref : 0;
        if (held == NULL && !session->all_queues)
            items[i].epoch = 0;
    }
}

enum mr_err work_finishes(struct session *session, struct mr_slice bytes)
{
    struct work *work = work_new(session, 0);
    struct mr_slice copy;
    if (work == NULL)
        return MR_NOMEM;
    struct mr_req_finish *req = &work->errand.req.finish;
    enum mr_err err = read_tag(bytes, &work->tag);
    if (err == MR_OK)
        err = mr_arena_copy(&req->req.arena, bytes, &copy);
    if (err == MR_OK)
        err = read_items(copy, FINISH_ITEMS, req);
    if (err != MR_OK) {
        work_free(work);
        return err;
    }
    look_up(session, req);
    work_submit(work, MR_OP_FINISH, finished);
    return MR_OK;
}

static void finish_reply(struct unary *u)
{
    Millrace__V1__FinishResponse out = MILLRACE__V1__FINISH_RESPONSE__INIT;
    if (codes_of(&u->errand.req.finish, &out.codes, &out.n_codes) != MR_OK)
        unary_fail(u, MR_NOMEM, NULL);
    else
        unary_send(u, &out.base);
}

static void finish_alone(struct unary *u, bool only_results)
{
    u->errand.req.finish.only_results = only_results;
    if (!unary_may_touch_all(u, ": finish on the stream that took the task"))
        return;
    enum mr_err err = read_items(u->bytes, ALONE_ITEMS, &u->errand.req.finish);
    if (err == MR_TOO_BIG)
        unary_fail(u, err, "the limit is %d items a call", MR_BATCH_MAX);
    else if (err != MR_OK)
        unary_fail(u, err, "the message cannot be read");
    else
        unary_submit(u, MR_OP_FINISH, finish_reply);
}

void work_finish(struct unary *u)
{
    finish_alone(u, false);
}

void results_commit(struct unary *u)
{
    finish_alone(u, true);
}

/* ---- beats ---------------------------------------------------------------------------------- */

static void beaten(struct work *work)
{
    Millrace__V1__ServerMessage message = MILLRACE__V1__SERVER_MESSAGE__INIT;
    Millrace__V1__Beaten out = MILLRACE__V1__BEATEN__INIT;
    enum mr_err err = work->errand.req.head.err;
    work->session->gone |= err == MR_NOT_FOUND;
    if (!work_is_heard(work))
        return;
    out.tag = work->tag;
    out.code = (Millrace__V1__Code)err;
    out.term = work->errand.req.beat.term;
    out.leader_ms = work->errand.req.beat.leader_ms;
    message.kind_case = MILLRACE__V1__SERVER_MESSAGE__KIND_BEATEN;
    message.beaten = &out;
    attach_say(work->session->attach, &message);
}

enum { BEAT_PROGRESS = 2, BEAT_SLOTS = 3 }; /* numbers in Beat */

static enum mr_err fill_slots(const Millrace__V1__Beat *in, struct mr_req_beat *req)
{
    struct mr_slot_info *slots = mr_arena_calloc(&req->req.arena, in->n_slots + 1, sizeof *slots);
    if (slots == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < in->n_slots; i++) {
        const Millrace__V1__Slot *from = in->slots[i];
        slots[i] = (struct mr_slot_info){.state = (enum mr_slot_state)from->state,
                                         .machine = from->machine,
                                         .since_ms = from->since_ms,
                                         .id = mr_pb_text(from->id),
                                         .type = mr_pb_text(from->type)};
        if ((unsigned)slots[i].state >= MR_SLOT_STATE_COUNT || slots[i].since_ms < 0 ||
            slots[i].id.len > MR_ID_MAX || slots[i].type.len > MR_NAME_MAX)
            return MR_INVALID;
    }
    req->slots = slots;
    req->slots_n = in->n_slots;
    return MR_OK;
}

static enum mr_err fill_beat(struct work *work, struct mr_slice bytes)
{
    const struct session *session = work->session;
    struct mr_req_beat *req = &work->errand.req.beat;
    ProtobufCMessage *message;
    size_t n;
    MR_TRY(mr_flat_count(bytes, BEAT_PROGRESS, &n));
    if (n > session->slots)
        return MR_INVALID;
    MR_TRY(mr_flat_count(bytes, BEAT_SLOTS, &n));
    if (n > session->slots || n > MR_SLOTS_SHOWN)
        return MR_INVALID;
    MR_TRY(mr_pb_decode(&millrace__v1__beat__descriptor, bytes, &req->req.arena, &message));
    const Millrace__V1__Beat *in = (const void *)message;
    struct mr_progress *progress =
        mr_arena_calloc(&req->req.arena, in->n_progress + 1, sizeof *progress);
    if (progress == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < in->n_progress; i++) {
        const Millrace__V1__Progress *from = in->progress[i];
        const struct held *held = helds_find(&session->helds, from->epoch);
        if (held != NULL)
            progress[req->progress_n++] = (struct mr_progress){.epoch = from->epoch,
                                                               .ref = held->ref,
                                                               .percent = from->percent,
                                                               .text = mr_pb_text(from->text)};
    }
    req->progress = progress;
    MR_TRY(fill_slots(in, req));
    req->node = session->node;
    work->tag = in->tag;
    return MR_OK;
}

enum mr_err work_beat(struct session *session, struct mr_slice bytes)
{
    struct work *work = work_new(session, 0);
    if (work == NULL)
        return MR_NOMEM;
    enum mr_err err = fill_beat(work, bytes);
    if (err != MR_OK) {
        work_free(work);
        return err;
    }
    work_submit(work, MR_OP_BEAT, beaten);
    return MR_OK;
}

void work_beat_for_it(struct mr_timer *timer, void *arg)
{
    (void)arg;
    struct session *session = mr_container(timer, struct session, beat);
    bool unread = session->state == SESSION_LIVE && session->attach != NULL && session->budget.full;
    struct work *work = unread ? work_new(session, 0) : NULL;
    if (work == NULL)
        return;
    work->errand.req.beat.node = session->node;
    work_submit(work, MR_OP_BEAT, forget); /* starts the timer again while it is not read */
}

/* ---- runs ----------------------------------------------------------------------------------- */

enum mr_err work_begun(struct session *session, struct mr_slice bytes)
{
    struct mr_arena arena = {0};
    ProtobufCMessage *message;
    enum mr_err err = decode_small(&millrace__v1__begun__descriptor, bytes, &arena, &message);
    if (err == MR_OK) {
        const Millrace__V1__Begun *in = (const void *)message;
        if (in->n_slots != in->n_epochs)
            err = MR_INVALID;
        for (size_t i = 0; err == MR_OK && i < in->n_slots; i++) {
            bool known = in->epochs[i] == 0 || helds_find(&session->helds, in->epochs[i]) != NULL;
            if (in->slots[i] >= session->slots)
                err = MR_INVALID;
            else if (known && !session->gone)
                mr_broker_begun(session->api->options.broker, session->first_slot + in->slots[i],
                                in->epochs[i]);
        }
    }
    mr_arena_done(&arena);
    return err;
}

/* ---- what it is told ------------------------------------------------------------------------ */

static void say_stop(struct session *session, uint64_t epoch, enum mr_stop_reason reason)
{
    Millrace__V1__ServerMessage message = MILLRACE__V1__SERVER_MESSAGE__INIT;
    Millrace__V1__Stop out = MILLRACE__V1__STOP__INIT;
    out.epoch = epoch;
    out.reason = reason == MR_STOP_LOST ? MILLRACE__V1__STOP__REASON__LEASE_LOST
                                        : MILLRACE__V1__STOP__REASON__CANCELLED_BY_CALLER;
    message.kind_case = MILLRACE__V1__SERVER_MESSAGE__KIND_STOP;
    message.stop = &out;
    attach_say(session->attach, &message);
}

struct event {
    struct mr_msg msg;
    struct session *session;
    uint64_t epoch;
    enum mr_stop_reason reason;
};

static void deliver_stop(struct mr_msg *msg, void *receiver)
{
    (void)receiver;
    struct event *event = mr_container(msg, struct event, msg);
    struct session *session = event->session;
    struct held *held = helds_find(&session->helds, event->epoch);
    if (held != NULL)
        held->cancelled = true;
    if (event->reason == MR_STOP_LOST)
        helds_remove(&session->helds, event->epoch);
    if (session->state == SESSION_LIVE)
        say_stop(session, event->epoch, event->reason);
    free(event);
}

/* Without memory the worker hears of it when it finishes. */
void event_stop(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    struct session *session = arg;
    struct event *event = malloc(sizeof *event);
    if (event == NULL)
        return;
    *event = (struct event){
        .msg.deliver = deliver_stop, .session = session, .epoch = epoch, .reason = reason};
    mr_rpc_post(session->api->options.rpc, &event->msg);
}

static void deliver_wanted(struct mr_msg *msg, void *receiver)
{
    (void)receiver;
    struct session *session = mr_container(msg, struct session, wanted);
    Millrace__V1__ServerMessage message = MILLRACE__V1__SERVER_MESSAGE__INIT;
    Millrace__V1__Wanted out = MILLRACE__V1__WANTED__INIT;
    atomic_store(&session->wanted_posted, false);
    message.kind_case = MILLRACE__V1__SERVER_MESSAGE__KIND_WANTED;
    message.wanted = &out;
    if (session->state == SESSION_LIVE)
        attach_say(session->attach, &message);
}

void event_wanted(void *arg)
{
    struct session *session = arg;
    if (atomic_exchange(&session->wanted_posted, true))
        return;
    session->wanted.deliver = deliver_wanted;
    mr_rpc_post(session->api->options.rpc, &session->wanted);
}

/* ---- a worker that came back ---------------------------------------------------------------- */

static int by_number(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* What is held and not among the sorted epochs, as items to hand back. */
static size_t collect_lost(struct session *session, const uint64_t *epochs, size_t n,
                           struct work *work, struct mr_finish *items)
{
    size_t lost = 0;
    for (size_t i = 0; i < session->helds.cap && lost < MR_BATCH_MAX; i++) {
        const struct held *held = &session->helds.slots[i];
        struct mr_slice id;
        if (held->epoch == 0 || bsearch(&held->epoch, epochs, n, sizeof *epochs, by_number) != NULL)
            continue;
        if (mr_arena_copy(&work->errand.req.head.arena, mr_slice_make(held->id, held->id_len),
                          &id) != MR_OK)
            break;
        items[lost++] = (struct mr_finish){
            .id = id, .epoch = held->epoch, .ref = held->ref, .outcome = MR_HAND_BACK};
    }
    return lost;
}

/* Up to a batch of them; true when there may be more. */
static bool hand_back_lost(struct session *session, const uint64_t *epochs, size_t n)
{
    struct work *work = work_new(session, 0);
    struct mr_finish *items = work != NULL ? hand_back_items(work, MR_BATCH_MAX) : NULL;
    size_t lost = items != NULL ? collect_lost(session, epochs, n, work, items) : 0;
    for (size_t i = 0; i < lost; i++)
        helds_remove(&session->helds, items[i].epoch);
    if (lost > 0) {
        work->errand.req.finish.n = lost;
        work_submit(work, MR_OP_FINISH, forget);
    } else if (work != NULL) {
        work_free(work);
    }
    return lost == MR_BATCH_MAX;
}

void work_reconcile(struct session *session, const uint64_t *epochs, size_t n)
{
    uint64_t *sorted = calloc(n + 1, sizeof *sorted);
    if (sorted == NULL)
        return; /* what is lost comes back when the node goes */
    if (n > 0)
        memcpy(sorted, epochs, n * sizeof *sorted);
    qsort(sorted, n, sizeof *sorted, by_number);
    while (hand_back_lost(session, sorted, n))
        continue;
    for (size_t i = 0; i < n; i++) {
        const struct held *held = helds_find(&session->helds, sorted[i]);
        if (held == NULL)
            say_stop(session, sorted[i], MR_STOP_LOST);
        else if (held->cancelled)
            say_stop(session, sorted[i], MR_STOP_CANCEL);
    }
    free(sorted);
}
