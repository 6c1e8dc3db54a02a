/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Requests that are one call each. Without a connection they fail at once; what was under way when
 * it broke is answered with MR_UNAVAILABLE.
 */
#include "broker/hidden.h"
#include "broker/limit.h"
#include "broker/remote/internal.h"
#include "broker/result.h"
#include "wire/node.h"

#define REQ(ticket, type) mr_container((ticket)->req, struct type, req)
#define FIELD(kind, type, member)                                                                  \
    {                                                                                              \
        MR_FLAT_##kind, offsetof(struct type, member), 0                                           \
    }
#define FLAT(type) static MR_FLAT(struct type, type##_flat, type##_fields)

enum { NODES_LISTED_MAX = 100 * 1000 }; /* whatever the server says */

/* ---- calls ---------------------------------------------------------------------------------- */

static void on_message(struct mr_call *call, struct mr_slice bytes)
{
    struct ticket *ticket = mr_call_data(call);
    struct mr_slice copy;
    if (ticket->answered)
        return;
    ticket->answered = true;
    ticket->err = mr_arena_copy(&ticket->req->arena, bytes, &copy);
    if (ticket->err == MR_OK && ticket->op->read != NULL)
        ticket->err = ticket->op->read(ticket, copy);
    if (ticket->err == MR_INVALID)
        ticket->err = MR_FAILED; /* it is the server that makes no sense */
}

static void on_closed(struct mr_call *call, int status, struct mr_slice text)
{
    struct ticket *ticket = mr_call_data(call);
    struct remote *remote = ticket->remote;
    enum mr_err err = call_err(call, status);
    ticket->call = NULL;
    if (ticket->req->op == MR_OP_BACKUP && err != MR_OK)
        mr_detail_set(&REQ(ticket, mr_req_backup)->detail, "%.*s", (int)text.len,
                      text.len > 0 ? (const char *)text.data : "");
    if (ticket->req->op == MR_OP_CALL && err != MR_OK)
        mr_detail_set(&REQ(ticket, mr_req_call)->detail, "%.*s", (int)text.len,
                      text.len > 0 ? (const char *)text.data : "");
    if (ticket->req->op == MR_OP_AWAIT && err == MR_UNAVAILABLE && await_away(ticket))
        return;
    if (call_said(call))
        remote_refused(remote, err, text);
    if (err == MR_OK)
        err = ticket->answered ? ticket->err : MR_FAILED;
    else if (remote->closing && (err == MR_CANCELLED || err == MR_UNAVAILABLE))
        err = MR_CLOSED;
    if (err == MR_EMPTY && remote->closing)
        err = MR_CLOSED;
    bool goes_on = err == MR_OK || err == MR_EMPTY;
    if (goes_on && ticket->op->more != NULL && ticket->op->more(ticket)) {
        unary_begin(ticket);
        return;
    }
    ticket_answer(ticket, err);
    remote_quiet(remote);
}

void unary_begin(struct ticket *ticket)
{
    static const struct mr_call_ops ops = {.message = on_message, .closed = on_closed};
    struct remote *remote = ticket->remote;
    enum mr_err err = remote->up ? MR_OK : MR_UNAVAILABLE;
    struct mr_req_call *any = ticket->req->op == MR_OP_CALL ? REQ(ticket, mr_req_call) : NULL;
    if (ticket->unwanted)
        err = MR_CANCELLED;
    if (err == MR_OK)
        err = mr_channel_call(remote->channel, ticket->path, any ? any->timeout_ms : 0, &ops,
                              ticket, &ticket->call);
    if (err != MR_OK) {
        ticket_answer(ticket, err);
        return;
    }
    if (any != NULL)
        any->sent = true;
    ticket->left = true;
    ticket->answered = false;
    mr_list_remove(&ticket->link);
    mr_list_push_back(&remote->calls, &ticket->link);
    if (mr_call_send(ticket->call, ticket->body) == MR_OK)
        mr_call_half_close(ticket->call);
    else
        mr_call_cancel(ticket->call);
}

enum mr_err unary_encode(struct ticket *ticket, const char *path, const struct mr_flat *flat,
                         const void *in)
{
    ticket->path = path;
    return mr_flat_make(flat, in, &ticket->req->arena, &ticket->body);
}

/* How often a repeated field of messages stands in bytes, and each of them. */
typedef enum mr_err read_item(struct ticket *ticket, struct mr_slice bytes);

static enum mr_err each(struct ticket *ticket, struct mr_slice bytes, uint32_t number,
                        read_item *read)
{
    while (bytes.len > 0) {
        struct mr_flat_item item;
        MR_TRY(mr_flat_next(&bytes, &item));
        if (item.number == number && item.type == MR_FLAT_BYTES)
            MR_TRY(read(ticket, item.bytes));
    }
    return MR_OK;
}

/* ---- tasks ---------------------------------------------------------------------------------- */

struct text {
    struct mr_slice text;
};
static const struct mr_flat_field text_fields[] = {FIELD(SLICE, text, text)};
FLAT(text);

bool unary_is_id(struct mr_slice id)
{
    return id.len > 0 && id.len <= MR_ID_MAX && mr_utf8_valid(id);
}

static enum mr_err prepare_get(struct ticket *ticket)
{
    const struct mr_req_get *req = REQ(ticket, mr_req_get);
    if (!unary_is_id(req->id))
        return MR_NOT_FOUND;
    return unary_encode(ticket, "/millrace.v1.Tasks/Get", &text_flat, &(struct text){req->id});
}

static enum mr_err read_get(struct ticket *ticket, struct mr_slice bytes)
{
    return mr_flat_read(&mr_flat_task, bytes, &ticket->req->arena, &REQ(ticket, mr_req_get)->task);
}

struct list {
    struct mr_slice queue, type, cursor;
    enum mr_state state;
    uint32_t limit;
    bool with_payload, held;
};
static const struct mr_flat_field list_fields[] = {
    FIELD(SLICE, list, queue), {MR_FLAT_ENUM, offsetof(struct list, state), MR_STATE_COUNT - 1},
    FIELD(SLICE, list, type),  FIELD(SLICE, list, cursor),
    FIELD(32, list, limit),    FIELD(BOOL, list, with_payload),
    FIELD(BOOL, list, held),
};
FLAT(list);

static enum mr_err prepare_list(struct ticket *ticket)
{
    const struct mr_list_options *options = &REQ(ticket, mr_req_list)->options;
    struct list list = {
        .queue = options->queue,
        .type = options->type,
        .cursor = mr_slice_str(options->cursor != NULL ? options->cursor : ""),
        .state = options->state,
        .limit = (uint32_t)options->limit,
        .with_payload = options->with_payload,
        .held = options->held,
    };
    if (options->limit > MR_BATCH_MAX || (unsigned)options->state >= MR_STATE_COUNT ||
        list.cursor.len >= MR_CURSOR_MAX || !mr_utf8_valid(list.cursor))
        return MR_INVALID;
    if (options->queue.len > 0 && !mr_queue_is_inner(options->queue) &&
        mr_name_check(options->queue) != MR_OK)
        return MR_NOT_FOUND;
    if (options->type.len > 0)
        MR_TRY(mr_name_check(options->type));
    return unary_encode(ticket, "/millrace.v1.Tasks/List", &list_flat, &list);
}

enum { FIELD_LIST_TASKS = 1, FIELD_LIST_NEXT = 2 };

static enum mr_err read_list_task(struct ticket *ticket, struct mr_slice bytes)
{
    struct mr_req_list *req = REQ(ticket, mr_req_list);
    return mr_flat_read(&mr_flat_task, bytes, &req->req.arena, &req->tasks[req->n++]);
}

static enum mr_err read_list(struct ticket *ticket, struct mr_slice bytes)
{
    struct mr_req_list *req = REQ(ticket, mr_req_list);
    struct fields fields;
    size_t n;
    req->n = 0;
    req->next[0] = '\0';
    MR_TRY(mr_flat_count(bytes, FIELD_LIST_TASKS, &n));
    MR_TRY(fields_read(bytes, &fields));
    struct mr_slice next = fields.bytes[FIELD_LIST_NEXT];
    req->tasks = mr_arena_calloc(&req->req.arena, n, sizeof *req->tasks);
    if (req->tasks == NULL)
        return MR_NOMEM;
    if (next.len >= sizeof req->next)
        return MR_INVALID;
    if (next.len > 0)
        memcpy(req->next, next.data, next.len);
    req->next[next.len] = '\0';
    return each(ticket, bytes, FIELD_LIST_TASKS, read_list_task);
}

static const struct mr_flat_field control_fields[] = {
    {MR_FLAT_ENUM, offsetof(struct mr_control, verb), MR_VERB_RELEASE},
    FIELD(SLICE, mr_control, id),
    FIELD(DOUBLE, mr_control, value),
    FIELD(SLICE, mr_control, text),
};
static MR_FLAT(struct mr_control, control_flat, control_fields);

/* No task has an id with a control character in it: so the server says of such an item what it would
 * say of the one that cannot be sent. */
static struct mr_control sendable(const struct mr_control *item)
{
    struct mr_control sent = *item;
    bool fine = item->id.len <= MR_ID_MAX && mr_utf8_valid(item->id);
    if (!fine || (item->id.len > 0 && memchr(item->id.data, '\0', item->id.len) != NULL))
        sent.id = MR_SLICE_LIT("\x7f");
    return sent;
}

static enum mr_err prepare_control(struct ticket *ticket)
{
    const struct mr_req_control *req = REQ(ticket, mr_req_control);
    enum { FIELD_ITEMS = 1 };
    if (req->n > MR_BATCH_MAX)
        return MR_TOO_BIG;
    size_t size = 0;
    for (size_t i = 0; i < req->n; i++) {
        struct mr_control item = sendable(&req->items[i]);
        size_t len = mr_flat_size(&control_flat, &item);
        size += mr_flat_head_size(len) + len;
    }
    uint8_t *room = mr_arena_alloc(&ticket->req->arena, size), *at = room;
    if (room == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < req->n; i++) {
        struct mr_control item = sendable(&req->items[i]);
        at = mr_flat_put_head(at, FIELD_ITEMS, mr_flat_size(&control_flat, &item));
        at = mr_flat_write(&control_flat, &item, at);
    }
    ticket->path = "/millrace.v1.Tasks/Control";
    ticket->body = mr_slice_make(room, size);
    return MR_OK;
}

static enum mr_err read_control(struct ticket *ticket, struct mr_slice bytes)
{
    const struct mr_req_control *req = REQ(ticket, mr_req_control);
    return codes_read(bytes, 1, req->errs, req->n);
}

/* ---- queues --------------------------------------------------------------------------------- */

struct queue_page {
    struct mr_slice after;
    uint32_t limit;
};
static const struct mr_flat_field queue_page_fields[] = {FIELD(SLICE, queue_page, after),
                                                         FIELD(32, queue_page, limit)};
FLAT(queue_page);

static enum mr_err encode_queue_page(struct ticket *ticket, struct mr_slice after, size_t max)
{
    struct queue_page page = {after, (uint32_t)(max < MR_BATCH_MAX ? max : MR_BATCH_MAX)};
    return unary_encode(ticket, "/millrace.v1.Queues/List", &queue_page_flat, &page);
}

static enum mr_err prepare_queue_list(struct ticket *ticket)
{
    struct mr_req_queue_list *req = REQ(ticket, mr_req_queue_list);
    req->n = 0;
    if (req->only.len > 0) {
        struct mr_slice topic = mr_result_topic(req->only);
        struct mr_slice name = topic.len > 0 ? topic : req->only;
        if (mr_name_check(name) != MR_OK)
            return MR_NOT_FOUND;
        if (req->max == 0)
            return MR_INVALID;
        return unary_encode(ticket,
                            topic.len > 0 ? "/millrace.v1.Results/Get" : "/millrace.v1.Queues/Get",
                            &text_flat, &(struct text){name});
    }
    if (req->after.len > 0)
        MR_TRY(mr_name_check(req->after));
    return encode_queue_page(ticket, req->after, req->max);
}

static enum mr_err read_queue(struct ticket *ticket, struct mr_slice bytes)
{
    struct mr_req_queue_list *req = REQ(ticket, mr_req_queue_list);
    if (req->n == req->max)
        return MR_INVALID;
    return mr_flat_read(&mr_flat_queue, bytes, &req->req.arena, &req->infos[req->n++]);
}

enum { FIELD_PAGE_QUEUES = 1, FIELD_PAGE_NEXT = 2 };

static enum mr_err read_queue_list(struct ticket *ticket, struct mr_slice bytes)
{
    struct mr_req_queue_list *req = REQ(ticket, mr_req_queue_list);
    struct fields fields;
    if (req->only.len > 0)
        return read_queue(ticket, bytes);
    MR_TRY(fields_read(bytes, &fields));
    ticket->next = fields.bytes[FIELD_PAGE_NEXT];
    return each(ticket, bytes, FIELD_PAGE_QUEUES, read_queue);
}

/* A page of the server's may be smaller than what was asked for. */
static bool more_queues(struct ticket *ticket)
{
    const struct mr_req_queue_list *req = REQ(ticket, mr_req_queue_list);
    return ticket->next.len > 0 && req->n < req->max &&
           encode_queue_page(ticket, ticket->next, req->max - req->n) == MR_OK;
}

struct history_page {
    struct mr_slice queue;
    uint32_t days;
};
static const struct mr_flat_field history_page_fields[] = {FIELD(SLICE, history_page, queue),
                                                           FIELD(U32, history_page, days)};
FLAT(history_page);

static enum mr_err prepare_history(struct ticket *ticket)
{
    struct mr_req_queue_history *req = REQ(ticket, mr_req_queue_history);
    req->n = 0;
    if (mr_name_check(req->queue) != MR_OK)
        return MR_NOT_FOUND;
    uint32_t days = (uint32_t)(req->max < MR_QUEUE_DAYS_MAX ? req->max : MR_QUEUE_DAYS_MAX);
    return unary_encode(ticket, "/millrace.v1.Queues/History", &history_page_flat,
                        &(struct history_page){req->queue, days});
}

static enum mr_err read_day(struct ticket *ticket, struct mr_slice bytes)
{
    typedef struct mr_queue_day day;
    static const struct mr_flat_field fields[] = {{MR_FLAT_64, offsetof(day, start_ms), 0},
                                                  {MR_FLAT_64, offsetof(day, processed), 0},
                                                  {MR_FLAT_64, offsetof(day, failed), 0}};
    static MR_FLAT(day, flat, fields);
    struct mr_req_queue_history *req = REQ(ticket, mr_req_queue_history);
    if (req->n == req->max)
        return req->max == 0 ? MR_OK : MR_INVALID;
    return mr_flat_read(&flat, bytes, &req->req.arena, &req->days[req->n++]);
}

enum { FIELD_HISTORY_DAYS = 1 };

static enum mr_err read_history(struct ticket *ticket, struct mr_slice bytes)
{
    return each(ticket, bytes, FIELD_HISTORY_DAYS, read_day);
}

struct queue_change {
    struct mr_slice queue;
    uint64_t value;  /* not sent with pause and resume, where it is the method */
    int64_t rate_ms; /* the rest is of limits */
    enum mr_limit_scope scope;
    struct mr_slice name;
};
static const struct mr_flat_field queue_change_fields[] = {
    FIELD(SLICE, queue_change, queue),
    FIELD(64, queue_change, value),
    FIELD(64, queue_change, rate_ms),
    {MR_FLAT_ENUM, offsetof(struct queue_change, scope), MR_LIMIT_SCOPE_COUNT - 1},
    FIELD(SLICE, queue_change, name),
};
FLAT(queue_change);

static enum mr_err prepare_queue_set(struct ticket *ticket)
{
    const struct mr_req_queue_set *req = REQ(ticket, mr_req_queue_set);
    static const char *const paths[] = {
        [MR_QUEUE_MAX_LENGTH] = "/millrace.v1.Queues/SetMaxLength",
        [MR_QUEUE_PARTITIONS] = "/millrace.v1.Queues/SetPartitions",
        [MR_QUEUE_ASSIGN] = "/millrace.v1.Queues/SetAssign",
        [MR_QUEUE_RETRY_MODE] = "/millrace.v1.Queues/SetRetryMode",
        [MR_QUEUE_RETRY_WAIT] = "/millrace.v1.Queues/SetRetryWait",
        [MR_QUEUE_RATE] = "/millrace.v1.Queues/SetRate",
        [MR_QUEUE_CONCURRENCY] = "/millrace.v1.Queues/SetConcurrency",
    };
    MR_TRY(mr_queue_set_check(req));
    if (req->setting == MR_QUEUE_PAUSED)
        return unary_encode(
            ticket, req->value != 0 ? "/millrace.v1.Queues/Pause" : "/millrace.v1.Queues/Resume",
            &text_flat, &(struct text){req->queue});
    struct queue_change change = {.queue = req->queue, .value = req->value};
    if (req->setting == MR_QUEUE_RATE || req->setting == MR_QUEUE_CONCURRENCY) {
        change.rate_ms = req->rate_ms;
        change.scope = req->scope;
        change.name = req->name;
    }
    return unary_encode(ticket, paths[req->setting], &queue_change_flat, &change);
}

struct limits_ask {
    struct mr_slice queue, id;
};
static const struct mr_flat_field limits_ask_fields[] = {FIELD(SLICE, limits_ask, queue),
                                                         FIELD(SLICE, limits_ask, id)};
FLAT(limits_ask);

static enum mr_err prepare_limits(struct ticket *ticket)
{
    struct mr_req_queue_limits *req = REQ(ticket, mr_req_queue_limits);
    struct mr_slice id = req->id;
    req->n = 0;
    bool said = id.len <= MR_ID_MAX && mr_utf8_valid(id) &&
                (id.len == 0 || memchr(id.data, '\0', id.len) == NULL);
    if (mr_name_check(req->queue) != MR_OK || !said)
        return MR_NOT_FOUND;
    return unary_encode(ticket, "/millrace.v1.Queues/Limits", &limits_ask_flat,
                        &(struct limits_ask){req->queue, id});
}

static enum mr_err read_limit(struct ticket *ticket, struct mr_slice bytes)
{
    struct mr_req_queue_limits *req = REQ(ticket, mr_req_queue_limits);
    if (req->n == (req->id.len > 0 ? (size_t)MR_LIMIT_SCOPE_COUNT : MR_LIMITS_MAX))
        return MR_INVALID;
    return mr_flat_read(&mr_flat_limit, bytes, NULL, &req->limits[req->n++]);
}

static enum mr_err read_limits(struct ticket *ticket, struct mr_slice bytes)
{
    enum { FIELD_LIMITS = 1 };
    return each(ticket, bytes, FIELD_LIMITS, read_limit);
}

static enum mr_err prepare_queue_remove(struct ticket *ticket)
{
    const struct mr_req_queue_remove *req = REQ(ticket, mr_req_queue_remove);
    if (mr_name_check(req->queue) != MR_OK)
        return MR_NOT_FOUND;
    return unary_encode(
        ticket, "/millrace.v1.Queues/Remove", &queue_change_flat,
        &(struct queue_change){.queue = req->queue, .value = req->mode == MR_QUEUE_REMOVE_FORCE});
}

/* ---- nodes ---------------------------------------------------------------------------------- */

struct node_page {
    struct mr_slice cursor;
};
static const struct mr_flat_field node_page_fields[] = {FIELD(SLICE, node_page, cursor)};
FLAT(node_page);

static enum mr_err prepare_node_list(struct ticket *ticket)
{
    struct mr_req_node_list *req = REQ(ticket, mr_req_node_list);
    req->nodes = NULL;
    req->n = req->assignments_n = 0;
    return unary_encode(ticket, "/millrace.v1.Nodes/List", &node_page_flat,
                        &(struct node_page){ticket->next});
}

static enum mr_err read_assignment(struct ticket *ticket, struct mr_slice bytes)
{
    struct mr_req_node_list *req = REQ(ticket, mr_req_node_list);
    return mr_assignment_read(bytes, &req->req.arena, &req->assignments[req->assignments_n++]);
}

/* The first page has it. */
static enum mr_err read_leader(struct ticket *ticket, struct mr_slice bytes)
{
    enum { FIELD_LEADER = 3, FIELD_ASSIGNMENTS = 4 };
    struct mr_req_node_list *req = REQ(ticket, mr_req_node_list);
    struct fields fields;
    size_t n;
    MR_TRY(fields_read(bytes, &fields));
    MR_TRY(mr_flat_read(&mr_flat_leader, fields.bytes[FIELD_LEADER], NULL, &req->leader));
    MR_TRY(mr_flat_count(bytes, FIELD_ASSIGNMENTS, &n));
    req->assignments = mr_arena_calloc(&req->req.arena, n + 1, sizeof *req->assignments);
    if (req->assignments == NULL)
        return MR_NOMEM;
    return each(ticket, bytes, FIELD_ASSIGNMENTS, read_assignment);
}

static enum mr_err read_node(struct ticket *ticket, struct mr_slice bytes)
{
    struct mr_req_node_list *req = REQ(ticket, mr_req_node_list);
    return mr_node_read(bytes, &req->req.arena, &req->nodes[req->n++]);
}

/* Nodes of further pages stand behind those of the ones before. */
static enum mr_err read_node_list(struct ticket *ticket, struct mr_slice bytes)
{
    enum { FIELD_NODES = 1, FIELD_NEXT = 2 };
    struct mr_req_node_list *req = REQ(ticket, mr_req_node_list);
    struct fields fields;
    size_t n;
    MR_TRY(mr_flat_count(bytes, FIELD_NODES, &n));
    MR_TRY(fields_read(bytes, &fields));
    struct mr_node_info *nodes = mr_arena_calloc(&req->req.arena, req->n + n + 1, sizeof *nodes);
    if (nodes == NULL)
        return MR_NOMEM;
    if (req->nodes == NULL)
        MR_TRY(read_leader(ticket, bytes));
    if (req->n > 0)
        memcpy(nodes, req->nodes, req->n * sizeof *nodes);
    req->nodes = nodes;
    ticket->next = n > 0 ? fields.bytes[FIELD_NEXT] : (struct mr_slice){0};
    return each(ticket, bytes, FIELD_NODES, read_node);
}

static bool more_nodes(struct ticket *ticket)
{
    return ticket->next.len > 0 && REQ(ticket, mr_req_node_list)->n < NODES_LISTED_MAX &&
           unary_encode(ticket, ticket->path, &node_page_flat, &(struct node_page){ticket->next}) ==
               MR_OK;
}

/* ---- what the leader writes ----------------------------------------------------------------- */

struct assign_head {
    uint64_t term;
    struct mr_slice queue;
    uint64_t version;
};
static const struct mr_flat_field assign_head_fields[] = {FIELD(FIXED64, assign_head, term),
                                                          FIELD(SLICE, assign_head, queue),
                                                          FIELD(FIXED64, assign_head, version)};
FLAT(assign_head);

static enum mr_err prepare_assign(struct ticket *ticket)
{
    enum { FIELD_OWNERS = 4 };
    const struct mr_req_assign *req = REQ(ticket, mr_req_assign);
    struct assign_head head = {req->term, req->queue, req->version};
    MR_TRY(mr_assign_check(req));
    size_t size =
        mr_flat_size(&assign_head_flat, &head) + mr_owners_size(req->owners, req->owners_n);
    uint8_t *room = mr_arena_alloc(&ticket->req->arena, size);
    if (room == NULL)
        return MR_NOMEM;
    uint8_t *at = mr_owners_write(req->owners, req->owners_n, FIELD_OWNERS,
                                  mr_flat_write(&assign_head_flat, &head, room));
    mr_assert(at == room + size);
    ticket->path = "/millrace.v1.Nodes/Assign";
    ticket->body = mr_slice_make(room, size);
    return MR_OK;
}

static enum mr_err read_assign(struct ticket *ticket, struct mr_slice bytes)
{
    enum { FIELD_VERSION = 1 };
    struct fields fields;
    MR_TRY(fields_read(bytes, &fields));
    REQ(ticket, mr_req_assign)->version = fields.value[FIELD_VERSION];
    return MR_OK;
}

/* ---- the server ----------------------------------------------------------------------------- */

static enum mr_err prepare_stats(struct ticket *ticket)
{
    ticket->path = "/millrace.v1.Server/Stats";
    return MR_OK;
}

static enum mr_err read_stats(struct ticket *ticket, struct mr_slice bytes)
{
    return mr_flat_read(&mr_flat_stats, bytes, NULL, &REQ(ticket, mr_req_stats)->stats);
}

static enum mr_err prepare_backup(struct ticket *ticket)
{
    return unary_encode(ticket, "/millrace.v1.Server/Backup", &text_flat,
                        &(struct text){mr_slice_str(REQ(ticket, mr_req_backup)->dir)});
}

static enum mr_err prepare_call(struct ticket *ticket)
{
    const struct mr_req_call *req = REQ(ticket, mr_req_call);
    ticket->path = req->path;
    ticket->body = req->message;
    REQ(ticket, mr_req_call)->sent = false;
    return MR_OK;
}

static enum mr_err read_call(struct ticket *ticket, struct mr_slice bytes)
{
    REQ(ticket, mr_req_call)->answer = bytes; /* copied already */
    return MR_OK;
}

/* Behind the tasks that were enqueued before: who looks for one, or acts on it, finds it. */
void unary_wait(struct ticket *ticket)
{
    lane_wait(&ticket->remote->producer.lane, ticket);
}

const struct op unary_ops[MR_OP_COUNT] = {
    [MR_OP_CONTROL] = {prepare_control, unary_wait, read_control, NULL},
    [MR_OP_GET] = {prepare_get, unary_wait, read_get, NULL},
    [MR_OP_AWAIT] = {remote_prepare_await, remote_begin_await, remote_read_await, NULL},
    [MR_OP_UNAWAIT] = {NULL, remote_begin_unawait, NULL, NULL},
    [MR_OP_NODE_LIST] = {prepare_node_list, unary_wait, read_node_list, more_nodes},
    [MR_OP_LIST] = {prepare_list, unary_wait, read_list, NULL},
    [MR_OP_QUEUE_LIST] = {prepare_queue_list, unary_wait, read_queue_list, more_queues},
    [MR_OP_QUEUE_HISTORY] = {prepare_history, unary_wait, read_history, NULL},
    [MR_OP_QUEUE_SET] = {prepare_queue_set, unary_wait, NULL, NULL},
    [MR_OP_QUEUE_REMOVE] = {prepare_queue_remove, unary_wait, NULL, NULL},
    [MR_OP_QUEUE_LIMITS] = {prepare_limits, unary_wait, read_limits, NULL},
    [MR_OP_STATS] = {prepare_stats, unary_wait, read_stats, NULL},
    [MR_OP_BACKUP] = {prepare_backup, unary_wait, NULL, NULL},
    [MR_OP_GATHER] = {remote_prepare_gather, unary_wait, remote_read_gather, remote_more_gather},
    [MR_OP_GATHERED] = {remote_prepare_gathered, remote_begin_gathered, remote_read_gathered, NULL},
    [MR_OP_ASSIGN] = {prepare_assign, unary_wait, read_assign, NULL},
    [MR_OP_CALL] = {prepare_call, unary_wait, read_call, NULL},
};
