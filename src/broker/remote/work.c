/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What goes over a worker's stream. The broker remembers which leases are in hand, since after a
 * broken connection the server asks; a lease's ref leads to its place in that list, so keeping it
 * costs nothing worth mentioning.
 */
#include <stdlib.h>

#include "broker/remote/internal.h"
#include "wire/node.h"

/* Fields of WorkerMessage, and of the messages in it. */
enum { SAY_TAKE = 2, SAY_FINISH = 3, SAY_BEAT = 4, SAY_BYE = 6 };
enum { FIELD_TAG = 1, FIELD_CODE = 2, FIELD_REST = 3, FIELD_HELD_BACK = 4 };
enum { FIELD_EPOCH = 1, FIELD_REASON = 2, FIELD_TASK_EPOCH = 13 };
enum { FIELD_TERM = 3, FIELD_LEADER_MS = 4 };
enum { FIELD_BEAT_SLOTS = 3, FIELD_TAKE_QUEUES = 4 };
enum { TAG_SIZE = 5, NUMBER_SIZE = 11, REASON_LOST = 1 };

static uint8_t *put_tag(uint8_t *at, uint32_t tag)
{
    *at++ = FIELD_TAG << 3 | MR_FLAT_FOUR;
    mr_store32(at, tag);
    return at + sizeof tag;
}

static uint8_t *room_for(struct node *node, unsigned number, size_t len)
{
    uint8_t *room;
    if (mr_call_room(node->call, mr_flat_head_size(len) + len, &room) != MR_OK)
        return NULL; /* the call is over and its end is about to be told */
    return mr_flat_put_head(room, number, len);
}

void node_say(struct node *node, unsigned number, struct mr_slice message)
{
    uint8_t *room = room_for(node, number, message.len);
    if (room != NULL && message.len > 0)
        memcpy(room, message.data, message.len);
}

/* ---- in hand -------------------------------------------------------------------------------- */

static enum mr_err hold_add(struct node *node, uint64_t epoch, uint32_t *ret_index)
{
    if (node->holds_free == 0 && node->holds_n == node->holds_cap) {
        uint32_t cap = node->holds_cap != 0 ? node->holds_cap * 2 : 64;
        struct hold *holds = realloc(node->holds, cap * sizeof *holds);
        if (holds == NULL)
            return MR_NOMEM;
        node->holds = holds;
        node->holds_cap = cap;
    }
    uint32_t index = node->holds_free != 0 ? node->holds_free - 1 : node->holds_n++;
    if (node->holds_free != 0)
        node->holds_free = node->holds[index].next_free;
    node->holds[index] = (struct hold){.epoch = epoch};
    *ret_index = index;
    return MR_OK;
}

static void hold_remove(struct node *node, uint32_t index)
{
    node->holds[index] = (struct hold){.next_free = node->holds_free};
    node->holds_free = index + 1;
}

static uint64_t ref_of(const struct node *node, uint32_t index)
{
    return (uint64_t)node->number << 32 | (index + 1);
}

/* The lease of a finish is not in hand any more. */
static void let_go(struct remote *remote, const struct mr_finish *item)
{
    struct node *node = node_find(remote, item->ref >> 32);
    uint32_t index = (uint32_t)item->ref - 1;
    if (node != NULL && index < node->holds_n && node->holds[index].epoch == item->epoch)
        hold_remove(node, index);
}

void node_lose_all(struct node *node)
{
    for (uint32_t i = 0; i < node->holds_n; i++) {
        uint64_t epoch = node->holds[i].epoch;
        if (epoch == 0)
            continue;
        hold_remove(node, i);
        node->events.stop(epoch, MR_STOP_LOST, node->events.arg);
    }
}

enum mr_err node_told_stop(struct node *node, struct mr_slice bytes)
{
    struct fields fields;
    MR_TRY(fields_read(bytes, &fields));
    uint64_t epoch = fields.value[FIELD_EPOCH];
    if (fields.value[FIELD_REASON] != REASON_LOST) {
        node->events.stop(epoch, MR_STOP_CANCEL, node->events.arg);
        return MR_OK;
    }
    for (uint32_t i = 0; epoch != 0 && i < node->holds_n; i++) {
        if (node->holds[i].epoch != epoch)
            continue;
        hold_remove(node, i);
        node->events.stop(epoch, MR_STOP_LOST, node->events.arg);
        break;
    }
    return MR_OK;
}

enum mr_err node_told_wanted(struct node *node, struct mr_slice bytes)
{
    (void)bytes;
    if (node->events.wanted != NULL)
        node->events.wanted(node->events.arg);
    return MR_OK;
}

/* ---- takes ---------------------------------------------------------------------------------- */

static uint32_t next_tag(struct node *node)
{
    if (++node->last_tag == 0)
        node->last_tag = 1;
    return node->last_tag;
}

static struct ticket *find_tag(struct mr_link *tickets, uint64_t tag)
{
    for (struct mr_link *link = tickets->next; link != tickets; link = link->next) {
        struct ticket *ticket = mr_container(link, struct ticket, link);
        if (ticket->tag == tag)
            return tag != 0 ? ticket : NULL;
    }
    return NULL;
}

void remote_begin_take(struct ticket *ticket)
{
    struct mr_req_take *req = mr_container(ticket->req, struct mr_req_take, req);
    struct node *node = node_find(ticket->remote, req->node);
    req->leases = NULL;
    req->n = 0;
    req->held_back = false;
    if (node == NULL || node->state == NODE_DEAD || node->state == NODE_LEAVING) {
        ticket_answer(ticket, MR_CLOSED);
        return;
    }
    mr_list_push_back(&node->takes, &ticket->link);
    remote_flush_soon(ticket->remote);
}

static void say_take(struct node *node, struct ticket *ticket)
{
    const struct mr_req_take *req = mr_container(ticket->req, struct mr_req_take, req);
    uint8_t message[TAG_SIZE + 2 * NUMBER_SIZE + 1 + sizeof req->queues];
    ticket->tag = next_tag(node);
    uint8_t *at = put_tag(message, ticket->tag);
    at = mr_flat_put_varint(at, 2, req->max);
    at = mr_flat_put_varint(at, 3, (uint64_t)req->wait_ms);
    if (req->queues != 0) {
        *at++ = FIELD_TAKE_QUEUES << 3 | MR_FLAT_EIGHT;
        mr_store64(at, req->queues);
        at += sizeof req->queues;
    }
    node_say(node, SAY_TAKE, mr_slice_make(message, (size_t)(at - message)));
}

/* The task stays encoded until its holder opens it; only the epoch is looked for. */
static enum mr_err make_lease(struct node *node, struct mr_slice task, struct mr_lease **ret_lease)
{
    struct mr_slice rest = task;
    struct mr_flat_item field = {0};
    uint32_t index;
    while (field.number != FIELD_TASK_EPOCH)
        MR_TRY(mr_flat_next(&rest, &field));
    struct mr_lease *lease = malloc(sizeof *lease + task.len);
    if (lease == NULL || hold_add(node, field.value, &index) != MR_OK) {
        free(lease);
        return MR_NOMEM;
    }
    lease->next = NULL;
    lease->epoch = field.value;
    lease->ref = ref_of(node, index);
    lease->task.id = (struct mr_slice){0};
    lease->whole = false;
    lease->headers = NULL;
    lease->body_len = task.len;
    memcpy(lease->body, task.data, task.len);
    *ret_lease = lease;
    return MR_OK;
}

/* Those made before one fails are given out; the others are found missing at the next Hello. */
static enum mr_err make_leases(struct node *node, struct mr_slice bytes, struct mr_req_take *req)
{
    struct mr_lease **tail = &req->leases;
    while (bytes.len > 0) {
        struct mr_flat_item field;
        MR_TRY(mr_flat_next(&bytes, &field));
        if (field.number != FIELD_REST || field.type != MR_FLAT_BYTES)
            continue;
        MR_TRY(make_lease(node, field.bytes, tail));
        tail = &(*tail)->next;
        req->n++;
    }
    return MR_OK;
}

enum mr_err node_told_tasks(struct node *node, struct mr_slice bytes)
{
    struct fields fields;
    MR_TRY(fields_read(bytes, &fields));
    struct ticket *ticket = find_tag(&node->takes, fields.value[FIELD_TAG]);
    if (ticket == NULL)
        return node->state == NODE_LEAVING ? MR_OK : MR_INVALID; /* what it got goes back with us */
    struct mr_req_take *req = mr_container(ticket->req, struct mr_req_take, req);
    enum mr_err code = code_of(fields.value[FIELD_CODE]);
    enum mr_err err = code == MR_OK ? make_leases(node, bytes, req) : MR_OK;
    if (code == MR_OK && req->n == 0)
        code = err != MR_OK ? err : MR_EMPTY;
    req->held_back = code == MR_EMPTY && fields.value[FIELD_HELD_BACK] != 0;
    ticket_answer(ticket, code);
    return err;
}

enum mr_err remote_lease_open(struct mr_broker *broker, struct mr_lease *lease)
{
    (void)broker;
    struct mr_arena arena = {0};
    struct mr_slice bytes = mr_slice_make(lease->body, lease->body_len);
    struct mr_task task;
    enum mr_err err = mr_flat_read(&mr_flat_task, bytes, &arena, &task);
    if (err == MR_OK && task.headers_n > 0) {
        lease->headers = calloc(task.headers_n, sizeof *lease->headers);
        if (lease->headers != NULL)
            memcpy(lease->headers, task.headers, task.headers_n * sizeof *lease->headers);
        task.headers = lease->headers;
        err = lease->headers != NULL ? MR_OK : MR_NOMEM;
    }
    mr_arena_done(&arena);
    if (err == MR_NOMEM) /* for headers, behind the id */
        lease->task = (struct mr_task){.id = task.id};
    else if (err == MR_OK)
        lease->task = task;
    return err == MR_INVALID ? MR_DAMAGED : err;
}

/* ---- finishes ------------------------------------------------------------------------------- */

enum { FIELD_ITEMS = 2, FIELD_ALONE_ITEMS = 1 }; /* of Finish, of FinishRequest */

static struct mr_req_finish *finish_of(const struct ticket *ticket)
{
    return mr_container(ticket->req, struct mr_req_finish, req);
}

enum mr_err remote_prepare_finish(struct ticket *ticket)
{
    struct mr_req_finish *req = finish_of(ticket);
    if (req->n > MR_BATCH_MAX)
        return MR_TOO_BIG;
    for (size_t i = 0; i < req->n; i++) {
        req->errs[i] = mr_finish_check(&req->items[i]);
        if (req->errs[i] != MR_OK)
            continue;
        size_t size = mr_flat_size(&mr_flat_finish, &req->items[i]);
        ticket->bytes += mr_flat_head_size(size) + size;
        ticket->n++;
    }
    uint8_t *at = ticket->entries = mr_arena_alloc(&req->req.arena, ticket->bytes);
    if (at == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < req->n; i++) {
        if (req->errs[i] != MR_OK)
            continue;
        size_t size = mr_flat_size(&mr_flat_finish, &req->items[i]);
        at =
            mr_flat_write(&mr_flat_finish, &req->items[i], mr_flat_put_head(at, FIELD_ITEMS, size));
    }
    mr_assert(at == ticket->entries + ticket->bytes);
    return MR_OK;
}

/* Without a stream: the lease's node is gone, or is of another broker. */
static void finish_alone(struct ticket *ticket)
{
    struct mr_slice rest = mr_slice_make(ticket->entries, ticket->bytes);
    while (rest.len > 0) {
        struct mr_flat_item entry;
        ticket->entries[ticket->bytes - rest.len] = FIELD_ALONE_ITEMS << 3 | MR_FLAT_BYTES;
        enum mr_err err = mr_flat_next(&rest, &entry);
        mr_assert(err == MR_OK);
    }
    ticket->path = finish_of(ticket)->only_results ? "/millrace.v1.Results/Commit"
                                                   : "/millrace.v1.Work/Finish";
    ticket->body = mr_slice_make(ticket->entries, ticket->bytes);
    unary_begin(ticket);
}

void remote_begin_finish(struct ticket *ticket)
{
    const struct mr_req_finish *req = finish_of(ticket);
    struct node *node = req->n > 0 ? node_find(ticket->remote, req->items[0].ref >> 32) : NULL;
    bool has_stream = node != NULL && node->state != NODE_DEAD && !node->bye_sent;
    if (ticket->n > 0 && !has_stream) {
        finish_alone(ticket);
        return;
    }
    if (ticket->n == 0) {
        ticket_answer(ticket, MR_OK);
        return;
    }
    lane_add(&node->finishes, ticket);
    remote_flush_soon(ticket->remote);
}

static size_t head_size(size_t entries_bytes)
{
    return mr_flat_head_size(TAG_SIZE + entries_bytes) + TAG_SIZE;
}

static uint8_t *head(uint8_t *at, size_t entries_bytes, uint32_t tag)
{
    return put_tag(mr_flat_put_head(at, SAY_FINISH, TAG_SIZE + entries_bytes), tag);
}

static enum mr_err *item_err(struct ticket *ticket, size_t item)
{
    return &finish_of(ticket)->errs[item];
}

static bool is_over(enum mr_err err)
{
    return err == MR_OK || err == MR_STALE || err == MR_NOT_FOUND;
}

/* A finish that is sent again while the leases are still ours is refused only when it was accepted
 * the first time. */
static void finish_replied(struct node *node, enum mr_err code)
{
    size_t item;
    struct ticket *ticket = lane_head(&node->finishes, &item);
    if (node->resumed && ticket->replied < ticket->doubtful && is_over(code))
        code = MR_OK;
    if (is_over(code))
        let_go(node->remote, &finish_of(ticket)->items[item]);
    finish_of(ticket)->errs[item] = code;
    lane_next(&node->finishes);
}

enum mr_err node_told_finished(struct node *node, struct mr_slice bytes)
{
    struct fields fields;
    size_t n;
    enum mr_err codes[MR_BATCH_MAX];
    MR_TRY(fields_read(bytes, &fields));
    MR_TRY(lane_replied(&node->finishes, &n));
    if (fields.value[FIELD_TAG] != node->finishes.tag_replied)
        return MR_INVALID;
    enum mr_err whole = code_of(fields.value[FIELD_CODE]);
    MR_TRY(codes_read(bytes, FIELD_REST, codes, n));
    for (size_t i = 0; i < n; i++)
        finish_replied(node, whole != MR_OK ? whole : codes[i]);
    if (lane_unsent(&node->finishes))
        remote_flush_soon(node->remote);
    return MR_OK;
}

/* Of a single call. */
enum mr_err remote_read_finish(struct ticket *ticket, struct mr_slice bytes)
{
    struct mr_req_finish *req = finish_of(ticket);
    enum mr_err codes[MR_BATCH_MAX];
    MR_TRY(codes_read(bytes, FIELD_ALONE_ITEMS, codes, ticket->n));
    for (size_t i = 0, next = 0; i < req->n; i++)
        if (req->errs[i] == MR_OK)
            req->errs[i] = codes[next++];
    return MR_OK;
}

/* ---- beats ---------------------------------------------------------------------------------- */

static const struct mr_flat_field progress_fields[] = {
    {MR_FLAT_FIXED64, offsetof(struct mr_progress, epoch), 0},
    {MR_FLAT_32, offsetof(struct mr_progress, percent), 0},
    {MR_FLAT_SLICE, offsetof(struct mr_progress, text), 0},
};
static MR_FLAT(struct mr_progress, progress_flat, progress_fields);

void remote_begin_beat(struct ticket *ticket)
{
    struct mr_req_beat *req = mr_container(ticket->req, struct mr_req_beat, req);
    struct node *node = node_find(ticket->remote, req->node);
    req->term = 0;
    req->leader_ms = 0;
    if (node == NULL || node->state == NODE_DEAD || node->state == NODE_LEAVING) {
        ticket_answer(ticket, MR_NOT_FOUND);
        return;
    }
    mr_list_push_back(&node->beats, &ticket->link);
    remote_flush_soon(ticket->remote);
}

static struct mr_progress cut_progress(const struct mr_progress *progress)
{
    struct mr_progress cut = *progress;
    cut.text.len = mr_utf8_cut(cut.text, MR_PROGRESS_TEXT_MAX);
    return cut;
}

static void say_beat(struct node *node, struct ticket *ticket)
{
    const struct mr_req_beat *req = mr_container(ticket->req, struct mr_req_beat, req);
    size_t len = TAG_SIZE + mr_slot_infos_size(req->slots, req->slots_n);
    for (size_t i = 0; i < req->progress_n; i++) {
        struct mr_progress progress = cut_progress(&req->progress[i]);
        size_t size = mr_flat_size(&progress_flat, &progress);
        len += mr_flat_head_size(size) + size;
    }
    ticket->tag = next_tag(node);
    uint8_t *at = room_for(node, SAY_BEAT, len);
    if (at == NULL)
        return;
    at = put_tag(at, ticket->tag);
    for (size_t i = 0; i < req->progress_n; i++) {
        struct mr_progress progress = cut_progress(&req->progress[i]);
        at = mr_flat_put_head(at, FIELD_CODE, mr_flat_size(&progress_flat, &progress));
        at = mr_flat_write(&progress_flat, &progress, at);
    }
    mr_slot_infos_write(req->slots, req->slots_n, FIELD_BEAT_SLOTS, at);
}

enum mr_err node_told_beaten(struct node *node, struct mr_slice bytes)
{
    struct fields fields;
    MR_TRY(fields_read(bytes, &fields));
    struct ticket *ticket = find_tag(&node->beats, fields.value[FIELD_TAG]);
    if (ticket == NULL)
        return node->state == NODE_LEAVING ? MR_OK : MR_INVALID;
    struct mr_req_beat *req = mr_container(ticket->req, struct mr_req_beat, req);
    req->term = fields.value[FIELD_TERM];
    req->leader_ms = (int64_t)fields.value[FIELD_LEADER_MS];
    ticket_answer(ticket, code_of(fields.value[FIELD_CODE]));
    return MR_OK;
}

/* ---- all of it ------------------------------------------------------------------------------ */

void node_work_init(struct node *node)
{
    static const struct lane_kind kind = {
        .head_size = head_size,
        .head = head,
        .item_err = item_err,
    };
    mr_list_init(&node->takes);
    mr_list_init(&node->beats);
    lane_init(&node->finishes, &kind);
}

static void say_unsent(struct node *node, struct mr_link *tickets,
                       void (*say)(struct node *node, struct ticket *ticket))
{
    for (struct mr_link *link = tickets->next; link != tickets; link = link->next) {
        struct ticket *ticket = mr_container(link, struct ticket, link);
        if (ticket->tag == 0)
            say(node, ticket);
    }
}

void node_send(struct node *node)
{
    bool attached = node->state == NODE_ATTACHED || node->state == NODE_LEAVING;
    if (!attached || node->call == NULL || node->bye_sent)
        return;
    begun_send(node);
    lane_send(&node->finishes, node->call);
    say_unsent(node, &node->beats, say_beat);
    say_unsent(node, &node->takes, say_take);
    if (node->state != NODE_LEAVING || lane_unsent(&node->finishes))
        return;
    node_say(node, SAY_BYE, (struct mr_slice){0});
    node->bye_sent = true;
}

static void unsend(struct mr_link *tickets)
{
    for (struct mr_link *link = tickets->next; link != tickets; link = link->next)
        mr_container(link, struct ticket, link)->tag = 0;
}

void node_detached(struct node *node)
{
    unsend(&node->takes);
    unsend(&node->beats);
    lane_rewind(&node->finishes, LANE_BROKE, lane_keep_all, MR_OK);
}

void node_fail(struct node *node)
{
    bool closing = node->remote->closing;
    tickets_answer(&node->takes, MR_CLOSED);
    tickets_answer(&node->beats, closing ? MR_CLOSED : MR_NOT_FOUND);
    lane_fail(&node->finishes, closing ? MR_CLOSED : MR_UNAVAILABLE);
}
