/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The caller's thread checks and encodes; the broker's answers. What is accepted goes on by one enqueue, behind its
 * copies if there are to be any; who wants to know what became of it waits for the end of each task.
 */
#include "timer/door.h"

#include <stdlib.h>

#include "broker/hidden.h"
#include "timer/def.h"
#include "timer/replica.h"

enum {
    WAIT_MS = 30 * 1000,
    KEPT_MS = 60 * 1000, /* an operation that somebody waits for, after its end */
};

struct mr_timer_door {
    struct mr_broker *broker;
    struct mr_zones *zones;
    struct mr_clock *clock;
    size_t payload_max;
    int64_t ahead_ms;
    struct mr_replica *replica; /* may be NULL */
    _Atomic uint64_t version;   /* the last one that was made here */
    _Atomic int64_t run_ms;     /* and the last time of a run */
};

/* One that somebody waits for. */
struct awaited {
    struct mr_req_await req;
    struct under_way *whole;
    struct mr_timer_result *result;
};

/* What a sending needs on its way. */
struct under_way {
    struct mr_timer_door *door;
    struct mr_timer_sending *sending;
    struct mr_arena arena; /* of all that follows */
    struct mr_req_enqueue enqueue;
    struct mr_task_options *tasks;
    size_t *at; /* which item each task is */
    struct awaited *awaited;
    _Atomic size_t left;                /* ends that are awaited */
    struct mr_replica_copying *copying; /* NULL: no copies are made */
    struct mr_header copy;
};

enum mr_err mr_timer_door_new(const struct mr_timer_door_options *options,
                              struct mr_timer_door **ret_door)
{
    struct mr_timer_door *door = calloc(1, sizeof *door);
    if (door == NULL)
        return MR_NOMEM;
    door->broker = options->broker;
    door->zones = options->zones;
    door->clock = options->clock ? options->clock : mr_clock_system();
    door->payload_max = options->payload_max ? options->payload_max : MR_PAYLOAD_MAX;
    door->ahead_ms = options->ahead_ms ? options->ahead_ms : MR_TIMER_AHEAD_MS;
    door->replica = options->replica;
    *ret_door = door;
    return MR_OK;
}

void mr_timer_door_free(struct mr_timer_door *door)
{
    free(door);
}

/* ---- in ------------------------------------------------------------------------------------- */

static void new_id(mr_wall now, char text[MR_TIMER_ID_MAX + 1])
{
    struct mr_uuid uuid;
    mr_uuid_make(&uuid, now, mr_rand_of_thread());
    mr_uuid_format(&uuid, text);
}

/* What the producer left out. Ids are in the result. */
static void fill_in(struct mr_timer_door *door, mr_wall now, struct mr_timer_operation *op,
                    struct mr_timer_result *result)
{
    if (op->operation.len == 0)
        new_id(now, result->operation);
    if (op->verb == MR_TIMER_PUT && op->id.len == 0)
        new_id(now, result->id);
    if (op->operation.len == 0)
        op->operation = mr_slice_str(result->operation);
    if (op->verb == MR_TIMER_PUT && op->id.len == 0)
        op->id = mr_slice_str(result->id);
    /* One that is sent again has the version that it had; so it is the same firing. */
    if (op->verb == MR_TIMER_RUN && op->planned_ms == 0)
        op->planned_ms = op->version != 0 ? (int64_t)(op->version / MR_US_PER_MS)
                                          : mr_timer_run_ms(&door->run_ms, now);
    if (op->version == 0)
        op->version = mr_timer_version(&door->version, now, op->if_version);
    if (op->verb == MR_TIMER_PUT && op->created_ms == 0)
        op->created_ms = mr_wall_ms(now);
}

/* The definition in its one form; the operation has its names. */
static enum mr_err define(struct mr_timer_door *door, struct mr_arena *arena,
                          struct mr_timer_operation *op, struct mr_timer_options *options,
                          struct mr_detail *detail)
{
    MR_TRY(mr_timer_read(op->definition, arena, options, detail));
    MR_TRY(mr_timer_canonical(door->zones, options, op->created_ms, door->payload_max, arena,
                              options, detail));
    op->app = options->app;
    op->name = options->name;
    return MR_OK;
}

static enum mr_err prepare(struct under_way *w, size_t i, mr_wall now, struct mr_detail *detail)
{
    struct mr_timer_result *result = &w->sending->results[i];
    struct mr_timer_operation op = w->sending->ops[i];
    struct mr_timer_options options;
    struct mr_task_options *task = &w->tasks[w->enqueue.n];
    fill_in(w->door, now, &op, result);
    if (op.verb == MR_TIMER_PUT) {
        MR_TRY(define(w->door, &w->arena, &op, &options, detail));
        MR_TRY(mr_flat_make(&mr_flat_timer_definition, &options, &w->arena, &op.definition));
    } else {
        op.definition = (struct mr_slice){0};
    }
    MR_TRY(mr_timer_operation_check(&op, now, w->door->ahead_ms, detail));
    *task = (struct mr_task_options){
        .queue = MR_SLICE_LIT(MR_TIMERS_QUEUE),
        .type = mr_slice_str(mr_timer_verb_name(op.verb)),
        .max_retry = MR_RETRY_MAX, /* the applier has levels */
        .timeout_ms = MR_NO_TIMEOUT,
        .retention_ms = w->sending->wait == MR_TIMER_APPLIED ? KEPT_MS : 0,
    };
    MR_TRY(mr_flat_make(&mr_flat_timer_operation, &op, &w->arena, &task->payload));
    MR_TRY(mr_arena_copy(&w->arena, op.operation, &task->id));
    result->version = op.version;
    w->at[w->enqueue.n++] = i;
    return MR_OK;
}

/* Ids that were given are said again. */
static void begin_result(const struct mr_timer_operation *op, struct mr_timer_result *result)
{
    *result = (struct mr_timer_result){.err = MR_OK, .version = op->version};
    if (op->operation.len <= MR_TIMER_ID_MAX && op->operation.len > 0)
        memcpy(result->operation, op->operation.data, op->operation.len);
    if (op->id.len <= MR_TIMER_ID_MAX && op->id.len > 0)
        memcpy(result->id, op->id.data, op->id.len);
}

static void refuse(struct mr_timer_result *result, enum mr_err err, const char *text)
{
    result->err = err;
    result->why[mr_utf8_cut(mr_slice_str(text), MR_TIMER_WHY_MAX)] = '\0';
    memcpy(result->why, text, mr_utf8_cut(mr_slice_str(text), MR_TIMER_WHY_MAX));
}

/* ---- out ------------------------------------------------------------------------------------ */

static void under_way_done(struct under_way *w, enum mr_err err)
{
    struct mr_timer_sending *sending = w->sending;
    mr_req_done(&w->enqueue.req);
    mr_arena_done(&w->arena);
    free(w);
    sending->err = err;
    sending->own = NULL;
    sending->done(sending);
}

/* "INVALID: cron, column 3: ..." */
static void read_error(struct mr_slice text, struct mr_timer_result *result)
{
    char line[MR_TIMER_WHY_MAX + 32];
    size_t len = mr_utf8_cut(text, sizeof line - 1);
    memcpy(line, text.len > 0 ? text.data : "", len);
    line[len] = '\0';
    for (int err = MR_OK + 1; err < MR_ERR_COUNT; err++) {
        const char *name = mr_err_name((enum mr_err)err);
        size_t n = strlen(name);
        if (strncmp(line, name, n) == 0 && strncmp(line + n, ": ", 2) == 0) {
            refuse(result, (enum mr_err)err, line + n + 2);
            return;
        }
    }
    refuse(result, MR_FAILED, line);
}

static void read_end(enum mr_err err, const struct mr_task *task, struct mr_timer_result *result)
{
    struct mr_timer_result told;
    if (err != MR_OK) {
        refuse(result, err, "it is durable, and was not applied in this time");
        result->unknown = true;
    } else if (task->state == MR_ARCHIVED) {
        read_error(task->last_error, result);
    } else if (mr_timer_result_decode(task->result, &told) == MR_OK) {
        *result = told;
    } else {
        refuse(result, MR_DAMAGED, "what became of it cannot be read");
    }
}

static void ended(struct mr_req *req)
{
    struct awaited *awaited = req->arg;
    struct under_way *w = awaited->whole;
    read_end(req->err, &awaited->req.task, awaited->result);
    mr_req_done(req);
    if (atomic_fetch_sub(&w->left, 1) == 1)
        under_way_done(w, MR_OK);
}

static void await_ends(struct under_way *w)
{
    struct mr_timer_sending *sending = w->sending;
    struct mr_broker *broker = w->door->broker;
    size_t n = 0;
    for (size_t i = 0; i < w->enqueue.n; i++) {
        if (sending->results[w->at[i]].err != MR_OK)
            continue;
        struct awaited *awaited = &w->awaited[n++];
        *awaited = (struct awaited){
            .req = {.req = {.op = MR_OP_AWAIT, .done = ended, .arg = awaited},
                    .id = w->tasks[i].id,
                    .wait_ms = sending->wait_ms > 0 ? sending->wait_ms : WAIT_MS},
            .whole = w,
            .result = &sending->results[w->at[i]],
        };
    }
    if (n == 0) {
        under_way_done(w, MR_OK);
        return;
    }
    atomic_store(&w->left, n);
    struct awaited *all = w->awaited; /* w is gone with the last answer */
    for (size_t i = 0; i < n; i++)
        mr_broker_submit(broker, &all[i].req.req);
}

/* Of an operation that is over nobody will say that its copy is not needed any more. */
static bool is_over(enum mr_state state)
{
    return state == MR_COMPLETED || state == MR_ARCHIVED;
}

/* Broker's thread. An operation whose id is there was sent before: that is this one. */
static void enqueued(struct mr_req *req)
{
    struct under_way *w = req->arg;
    for (size_t i = 0; i < w->enqueue.n; i++) {
        struct mr_timer_result *result = &w->sending->results[w->at[i]];
        enum mr_err err = w->enqueue.results[i].err;
        if (err == MR_CONFLICT && w->copying != NULL && is_over(w->enqueue.results[i].state))
            mr_replica_drop(w->door->replica, w->copy.value, w->tasks[i].id);
        if (err == MR_OK || err == MR_CONFLICT)
            continue;
        refuse(result, err, mr_err_text(err));
        result->unknown = err == MR_UNAVAILABLE || err == MR_TIMEOUT || err == MR_IO;
        if (w->copying != NULL)
            mr_replica_drop(w->door->replica, w->copy.value, w->tasks[i].id);
    }
    if (req->err == MR_OK && w->sending->wait == MR_TIMER_APPLIED)
        await_ends(w);
    else
        under_way_done(w, req->err);
}

/* ---- copies --------------------------------------------------------------------------------- */

static void not_copied(struct under_way *w)
{
    const struct mr_replica_copying *copying = w->copying;
    for (size_t i = 0; i < w->enqueue.n; i++) {
        struct mr_timer_result *result = &w->sending->results[w->at[i]];
        refuse(result, copying->err,
               copying->detail.text[0] ? copying->detail.text : mr_err_text(copying->err));
        result->unknown = copying->is_doubtful;
    }
    under_way_done(w, MR_OK);
}

/* Replica's thread. */
static void copied(struct mr_replica_copying *copying)
{
    struct under_way *w = copying->arg;
    if (copying->err != MR_OK) {
        not_copied(w);
        return;
    }
    w->copy = (struct mr_header){MR_SLICE_LIT(MR_TIMER_COPY_HEADER), mr_slice_str(copying->where)};
    for (size_t i = 0; i < w->enqueue.n; i++) {
        w->tasks[i].headers = &w->copy;
        w->tasks[i].headers_n = 1;
    }
    mr_broker_submit(w->door->broker, &w->enqueue.req);
}

static enum mr_err copy_first(struct under_way *w)
{
    size_t n = w->enqueue.n;
    struct mr_slice *ids = mr_arena_calloc(&w->arena, n, sizeof *ids);
    struct mr_slice *operations = mr_arena_calloc(&w->arena, n, sizeof *operations);
    w->copying = mr_arena_calloc(&w->arena, 1, sizeof *w->copying);
    if (ids == NULL || operations == NULL || w->copying == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        ids[i] = w->tasks[i].id;
        operations[i] = w->tasks[i].payload;
    }
    *w->copying = (struct mr_replica_copying){
        .ids = ids, .operations = operations, .n = n, .done = copied, .arg = w};
    mr_replica_copy(w->door->replica, w->copying);
    return MR_OK;
}

/* ---- the whole ------------------------------------------------------------------------------ */

static void fail(struct mr_timer_sending *sending, enum mr_err err)
{
    for (size_t i = 0; i < sending->n && sending->n <= MR_BATCH_MAX; i++)
        refuse(&sending->results[i], err, mr_err_text(err));
    sending->err = err;
    sending->done(sending);
}

/* With what has been found right. */
static void go_on(struct under_way *w)
{
    struct mr_timer_sending *sending = w->sending;
    if (w->enqueue.n == 0) {
        under_way_done(w, MR_OK);
    } else if (w->door->replica == NULL) {
        mr_broker_submit(w->door->broker, &w->enqueue.req);
    } else if (copy_first(w) != MR_OK) {
        mr_arena_done(&w->arena);
        free(w);
        fail(sending, MR_NOMEM);
    }
}

static bool make_room(struct under_way *w, size_t n)
{
    w->tasks = mr_arena_calloc(&w->arena, n, sizeof *w->tasks);
    w->at = mr_arena_calloc(&w->arena, n, sizeof *w->at);
    w->enqueue.results = mr_arena_calloc(&w->arena, n, sizeof *w->enqueue.results);
    if (w->sending->wait == MR_TIMER_APPLIED)
        w->awaited = mr_arena_calloc(&w->arena, n, sizeof *w->awaited);
    return w->tasks && w->at && w->enqueue.results &&
           (w->awaited || w->sending->wait != MR_TIMER_APPLIED);
}

void mr_timer_door_send(struct mr_timer_door *door, struct mr_timer_sending *sending)
{
    for (size_t i = 0; i < sending->n && sending->n <= MR_BATCH_MAX; i++)
        begin_result(&sending->ops[i], &sending->results[i]);
    if (sending->n == 0 || sending->n > MR_BATCH_MAX) {
        fail(sending, sending->n == 0 ? MR_INVALID : MR_TOO_BIG);
        return;
    }
    struct under_way *w = calloc(1, sizeof *w);
    if (w == NULL) {
        fail(sending, MR_NOMEM);
        return;
    }
    *w = (struct under_way){.door = door, .sending = sending};
    sending->own = w;
    w->enqueue.req = (struct mr_req){.op = MR_OP_ENQUEUE, .done = enqueued, .arg = w};
    w->enqueue.inner = true;
    if (!make_room(w, sending->n)) {
        mr_arena_done(&w->arena);
        free(w);
        fail(sending, MR_NOMEM);
        return;
    }
    w->enqueue.tasks = w->tasks;
    mr_wall now = mr_wall_now(door->clock);
    for (size_t i = 0; i < sending->n; i++) {
        struct mr_detail detail = {.text = ""};
        enum mr_err err = prepare(w, i, now, &detail);
        if (err != MR_OK)
            refuse(&sending->results[i], err, detail.text[0] ? detail.text : mr_err_text(err));
    }
    go_on(w);
}
