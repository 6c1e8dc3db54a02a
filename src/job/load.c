/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A job comes into the store. Parts are gathered into chunks; a few of these are on their way at once, in order, so a load of
 * any size takes the same memory. The commit is sent when all chunks are written. Called on any thread, answered on
 * the store's; what both use is under the lock.
 *
 * A load that nobody goes on with is removed from the store. An input may come slowly, though: while the load is there the
 * store is told so.
 */
#include <stdlib.h>

#include "job/internal.h"
#include "job/reduce.h"

enum {
    CHUNK_PARTS = 4000,
    CHUNK_BYTES = 2 * 1024 * 1024, /* a chunk with so many is full; one part may be bigger */
    CHUNKS_MAX = 4,                /* on their way */
    LOOKS = 4, /* so often the store hears of a load before it would remove it */
};

struct chunk {
    struct mr_link link;
    struct mr_job_load *load;
    struct mr_store_parts_add req;
    struct mr_arena arena;
    struct mr_slice *parts;
    size_t n, bytes;
};

struct mr_job_load {
    struct mr_job_service *s;
    struct mr_link link; /* in the service's loads; under its lock */
    struct mr_job_load_options options;
    struct mr_arena arena;
    struct mr_slice definition; /* as it is kept */
    struct mr_job_options job;
    struct mr_uuid uid;
    char id[MR_UUID_TEXT_LEN + 1];
    struct chunk *filling;
    uint64_t count;
    struct mr_lock lock; /* over what follows */
    size_t on_their_way; /* chunks, and the begin */
    bool wants_room, committing, commit_sent, committed, waits;
    bool abandoned;     /* it goes with the last of them */
    const void *caller; /* the thread whose callback is under way; NULL: none is */
    enum mr_err err;    /* the first that failed */
    struct mr_store_job_begin begin;
    struct mr_store_job_act act; /* commit */
    struct mr_job_shown shown;
};

/* Its address is another one in each thread. */
static _Thread_local char this_thread;

/* ---- answers --------------------------------------------------------------------------------- */

static void send_commit(struct mr_job_load *load);

static void load_end(struct mr_job_load *load);

/* One request of the load is through. */
static void arrived(struct mr_job_load *load, enum mr_err err)
{
    struct mr_job_service *s = load->s;
    mr_lock_enter(&load->lock);
    if (load->err == MR_OK)
        load->err = err;
    if (load->wants_room && !load->abandoned && load->options.room != NULL) {
        load->wants_room = false;
        load->on_their_way--; /* there is room, as far as the callback can see */
        load->caller = &this_thread;
        mr_lock_leave(&load->lock);
        load->options.room(load, load->options.arg);
        mr_lock_enter(&load->lock);
        load->caller = NULL;
        load->on_their_way++;
    }
    bool last = --load->on_their_way == 0;
    bool end = last && load->abandoned;
    bool commit = last && load->committing && !load->commit_sent && !end;
    load->commit_sent = load->commit_sent || commit;
    mr_lock_notify_all(&load->lock);
    mr_lock_leave(&load->lock);
    if (commit)
        send_commit(load);
    else if (end)
        load_end(load);
    atomic_fetch_sub(&s->asking, 1); /* the load may be gone by now */
}

static void chunk_free(struct chunk *chunk)
{
    if (chunk == NULL)
        return;
    mr_store_req_done(&chunk->req.req);
    mr_arena_done(&chunk->arena);
    free(chunk->parts);
    free(chunk);
}

static void chunk_written(struct mr_store_req *req)
{
    struct chunk *chunk = req->arg;
    struct mr_job_load *load = chunk->load;
    enum mr_err err = req->err;
    if (err == MR_OK)
        JOB_COUNT(load->s, parts_loaded, chunk->n);
    chunk_free(chunk);
    job_step(load->s, MR_JOB_STEP_ADDED);
    arrived(load, err);
}

static void begun(struct mr_store_req *req)
{
    struct mr_job_load *load = req->arg;
    enum mr_err err = req->err;
    mr_store_req_done(req);
    arrived(load, err);
}

/* ---- parts ----------------------------------------------------------------------------------- */

static struct chunk *chunk_new(struct mr_job_load *load)
{
    struct chunk *chunk = calloc(1, sizeof *chunk);
    if (chunk == NULL)
        return NULL;
    chunk->load = load;
    chunk->parts = calloc(CHUNK_PARTS, sizeof *chunk->parts);
    if (chunk->parts != NULL)
        return chunk;
    free(chunk);
    return NULL;
}

/* With the lock: requests come to the store in the order of their parts. */
static void send_chunk(struct mr_job_load *load)
{
    struct chunk *chunk = load->filling;
    job_step(load->s, MR_JOB_STEP_ADD);
    load->filling = NULL;
    load->on_their_way++;
    atomic_fetch_add(&load->s->asking, 1);
    chunk->req = (struct mr_store_parts_add){
        .req = {.op = MR_STORE_PARTS_ADD, .done = chunk_written, .arg = chunk},
        .uid = load->uid,
        .first = load->count - chunk->n,
        .inputs = chunk->parts,
        .n = chunk->n,
        .segment_parts = load->s->settings.segment_parts};
    mr_store_submit(load->s->desk.store, &chunk->req.req);
}

static enum mr_err add_one(struct mr_job_load *load, struct mr_slice part)
{
    if (load->filling == NULL)
        load->filling = chunk_new(load);
    struct chunk *chunk = load->filling;
    if (chunk == NULL)
        return MR_NOMEM;
    MR_TRY(mr_arena_copy(&chunk->arena, part, &chunk->parts[chunk->n]));
    chunk->n++;
    chunk->bytes += part.len;
    load->count++;
    if (chunk->n == CHUNK_PARTS || chunk->bytes >= CHUNK_BYTES)
        send_chunk(load);
    return MR_OK;
}

static enum mr_err check_parts(const struct mr_job_load *load, const struct mr_slice *parts,
                               size_t n, struct mr_detail *detail)
{
    for (size_t i = 0; i < n; i++) {
        if (parts[i].len <= load->s->payload_max)
            continue;
        mr_detail_set(detail, "part %llu: %zu bytes, at most %zu",
                      (unsigned long long)(load->count + i), parts[i].len, load->s->payload_max);
        return MR_TOO_BIG;
    }
    return MR_OK;
}

bool mr_job_load_may_be_kept(const struct mr_job_load *load, enum mr_err err)
{
    bool asked = load->act.total > 0; /* the store, to commit it */
    bool unknown = err == MR_UNAVAILABLE || err == MR_CLOSED || err == MR_IO;
    return load->committed || (asked && unknown);
}

static void say_why(const struct mr_job_load *load, struct mr_detail *detail, enum mr_err err)
{
    const char *what = "the job was not stored";
    if (load->committed)
        what = "the job was stored, and cannot be shown";
    else if (mr_job_load_may_be_kept(load, err))
        what = "the job was stored, or not";
    mr_detail_set(detail, "%s: %s", what, mr_err_text(err));
}

enum mr_err mr_job_load_add(struct mr_job_load *load, const struct mr_slice *parts, size_t n,
                            struct mr_detail *detail)
{
    MR_TRY(check_parts(load, parts, n, detail));
    mr_lock_enter(&load->lock);
    enum mr_err err = load->err;
    if (err == MR_OK && load->on_their_way >= CHUNKS_MAX) {
        load->wants_room = true;
        mr_lock_leave(&load->lock);
        return MR_BUSY;
    }
    for (size_t i = 0; err == MR_OK && i < n; i++)
        err = add_one(load, parts[i]);
    if (load->err == MR_OK)
        load->err = err;
    mr_lock_leave(&load->lock);
    if (err != MR_OK)
        say_why(load, detail, err);
    return err;
}

enum mr_err mr_job_load_add_wait(struct mr_job_load *load, const struct mr_slice *parts, size_t n,
                                 struct mr_detail *detail)
{
    mr_lock_enter(&load->lock);
    load->waits = true;
    while (load->err == MR_OK && load->on_their_way >= CHUNKS_MAX)
        (void)mr_lock_wait(&load->lock, INT64_MAX);
    mr_lock_leave(&load->lock);
    return mr_job_load_add(load, parts, n, detail);
}

uint64_t mr_job_load_count(const struct mr_job_load *load)
{
    return load->count;
}

const char *mr_job_load_id(const struct mr_job_load *load)
{
    return load->id;
}

/* ---- the commit ------------------------------------------------------------------------------ */

static void end_load(struct mr_job_load *load, enum mr_err err, struct mr_detail *detail)
{
    struct mr_job_service *s = load->s;
    bool waits = load->waits;
    if (err != MR_OK && detail->text[0] == '\0')
        say_why(load, detail, err);
    if (!waits && load->options.done != NULL) { /* the load may be freed there */
        load->options.done(load, err, err == MR_OK ? &load->shown : NULL, detail,
                           load->options.arg);
    } else {
        mr_lock_enter(&load->lock);
        load->err = err;
        load->committing = false;
        mr_lock_notify_all(&load->lock);
        mr_lock_leave(&load->lock);
    }
    atomic_fetch_sub(&s->asking, 1);
}

static void committed(struct mr_store_req *req)
{
    struct mr_job_load *load = req->arg;
    struct mr_job_service *s = load->s;
    struct mr_detail detail = {.text = ""};
    enum mr_err err = req->err;
    job_step(s, MR_JOB_STEP_COMMITTED);
    load->committed = err == MR_OK;
    if (err == MR_OK)
        err = job_show(&load->act.job, load->definition, mr_wall_ms(mr_wall_now(s->desk.clock)),
                       &load->arena, &load->shown);
    mr_store_req_done(req);
    if (load->committed) {
        JOB_COUNT(s, jobs_loaded, 1);
        job_stir(s, load->job.queue, &load->uid);
    }
    end_load(load, err, &detail);
}

static void send_commit(struct mr_job_load *load)
{
    struct mr_detail detail = {.text = ""};
    enum mr_err err = load->err;
    atomic_fetch_add(&load->s->asking, 1);
    if (err == MR_OK && load->count == 0) {
        err = MR_INVALID;
        mr_detail_set(&detail, "the job has no parts: its input is empty");
    }
    if (err != MR_OK) {
        end_load(load, err, &detail);
        return;
    }
    job_step(load->s, MR_JOB_STEP_COMMIT);
    load->act = (struct mr_store_job_act){
        .req = {.op = MR_STORE_JOB_COMMIT, .done = committed, .arg = load},
        .uid = load->uid,
        .total = load->count};
    mr_store_submit(load->s->desk.store, &load->act.req);
}

void mr_job_load_commit(struct mr_job_load *load)
{
    mr_lock_enter(&load->lock);
    if (load->err == MR_OK && load->filling != NULL)
        send_chunk(load);
    load->committing = true;
    bool now = load->on_their_way == 0 && !load->commit_sent;
    load->commit_sent = load->commit_sent || now;
    mr_lock_leave(&load->lock);
    if (now)
        send_commit(load);
}

enum mr_err mr_job_load_commit_wait(struct mr_job_load *load, const struct mr_job_shown **ret_job,
                                    struct mr_detail *detail)
{
    load->waits = true;
    mr_job_load_commit(load);
    mr_lock_enter(&load->lock);
    while (load->committing)
        (void)mr_lock_wait(&load->lock, INT64_MAX);
    enum mr_err err = load->err;
    mr_lock_leave(&load->lock);
    if (err == MR_INVALID && load->count == 0)
        mr_detail_set(detail, "the job has no parts: its input is empty");
    else if (err != MR_OK)
        say_why(load, detail, err);
    if (err == MR_OK && ret_job != NULL)
        *ret_job = &load->shown;
    return err;
}

/* ---- slow ones ------------------------------------------------------------------------------- */

/* The begin, once more. What it finds otherwise than it was the next chunk finds, too. */
static void touched(struct mr_store_req *req)
{
    struct mr_job_load *load = req->arg;
    mr_store_req_done(req);
    arrived(load, MR_OK);
}

static void send_begin(struct mr_job_load *load, void (*done)(struct mr_store_req *req));

/* With the service's lock, so it is not freed before it is on its way. */
static void touch(struct mr_job_load *load)
{
    mr_lock_enter(&load->lock);
    bool wanted = load->on_their_way == 0 && !load->committing && !load->commit_sent &&
                  !load->abandoned && load->caller == NULL && load->err == MR_OK;
    if (wanted)
        send_begin(load, touched);
    mr_lock_leave(&load->lock);
}

void job_loads_look(struct mr_job_service *s)
{
    if (job_since_ms(s, s->loads_looked) < s->settings.load_ms / LOOKS)
        return;
    s->loads_looked = mr_mono_now(s->desk.clock);
    mr_lock_enter(&s->lock);
    for (struct mr_link *at = s->loads.next; at != &s->loads; at = at->next)
        touch(mr_container(at, struct mr_job_load, link));
    mr_lock_leave(&s->lock);
}

/* ---- life ------------------------------------------------------------------------------------ */

static enum mr_err set_definition(struct mr_job_load *load, struct mr_slice bytes,
                                  struct mr_detail *detail)
{
    struct mr_job_options given;
    struct mr_reduce_spec reduce;
    struct mr_buf buf = {0};
    struct mr_slice copy;
    MR_TRY(mr_arena_copy(&load->arena, bytes, &copy));
    MR_TRY(mr_job_decode(copy, &load->arena, &given));
    if (given.retention_ms == 0)
        given.retention_ms = load->s->settings.retention_ms;
    MR_TRY(mr_job_canonical(&given, &load->arena, &load->job, detail));
    MR_TRY(mr_reduce_parse(load->job.reduce, &reduce, detail));
    if (reduce.kind == MR_REDUCE_COMMAND && !load->s->settings.commands) {
        mr_detail_set(detail, "reduce command:...: this server runs no commands for jobs");
        return MR_UNSUPPORTED;
    }
    enum mr_err err = mr_job_encode(&load->job, &buf);
    if (err == MR_OK)
        err = mr_arena_copy(&load->arena, mr_buf_slice(&buf), &load->definition);
    mr_buf_done(&buf);
    return err;
}

static void send_begin(struct mr_job_load *load, void (*done)(struct mr_store_req *req))
{
    load->on_their_way++;
    atomic_fetch_add(&load->s->asking, 1);
    load->begin = (struct mr_store_job_begin){
        .req = {.op = MR_STORE_JOB_BEGIN, .done = done, .arg = load},
        .uid = load->uid,
        .name = load->job.name,
        .queue = load->job.queue,
        .definition = load->definition,
        .stages_n = load->job.stages_n,
        .policy = load->job.policy,
        .pipeline = load->job.pipeline,
        .priority_ms = (int64_t)(load->job.priority_s * (double)MR_MS_PER_S),
        .retention_ms = load->job.retention_ms,
    };
    mr_store_submit(load->s->desk.store, &load->begin.req);
}

/* A load that nobody goes on with is there as long as whoever began it: they are not to fill the memory by being many. */
static enum mr_err check_room(struct mr_job_service *s, struct mr_detail *detail)
{
    mr_lock_enter(&s->lock);
    uint32_t n = s->figures.loads;
    mr_lock_leave(&s->lock);
    if (n < MR_JOB_LOADS_MAX)
        return MR_OK;
    mr_detail_set(detail, "%u jobs are being submitted, the limit is %d: try again", n,
                  MR_JOB_LOADS_MAX);
    return MR_BUSY;
}

enum mr_err mr_job_load_new(struct mr_job_service *service,
                            const struct mr_job_load_options *options,
                            struct mr_job_load **ret_load, struct mr_detail *detail)
{
    MR_TRY(check_room(service, detail));
    struct mr_job_load *load = calloc(1, sizeof *load);
    if (load == NULL)
        return MR_NOMEM;
    load->s = service;
    load->options = *options;
    mr_lock_init(&load->lock);
    enum mr_err err = set_definition(load, options->definition, detail);
    if (err != MR_OK) {
        mr_lock_done(&load->lock);
        mr_arena_done(&load->arena);
        free(load);
        return err;
    }
    mr_uuid_make(&load->uid, mr_wall_now(service->desk.clock), mr_rand_of_thread());
    mr_uuid_format(&load->uid, load->id);
    send_begin(load, begun);
    mr_lock_enter(&service->lock);
    service->figures.loads++;
    mr_list_push_back(&service->loads, &load->link);
    mr_lock_leave(&service->lock);
    *ret_load = load;
    return MR_OK;
}

struct abort_ {
    struct mr_store_job_act act;
    struct mr_job_service *s;
};

static void aborted(struct mr_store_req *req)
{
    struct abort_ *a = req->arg;
    struct mr_job_service *s = a->s;
    mr_store_req_done(req); /* if it did not work, it is removed when it is old */
    free(a);
    atomic_fetch_sub(&s->asking, 1);
}

static void send_abort(struct mr_job_load *load)
{
    struct abort_ *a = calloc(1, sizeof *a);
    if (a == NULL)
        return;
    a->s = load->s;
    a->act = (struct mr_store_job_act){.req = {.op = MR_STORE_JOB_ABORT, .done = aborted, .arg = a},
                                       .uid = load->uid};
    atomic_fetch_add(&load->s->asking, 1);
    mr_store_submit(load->s->desk.store, &a->act.req);
}

static void load_end(struct mr_job_load *load)
{
    struct mr_job_service *s = load->s;
    mr_lock_enter(&s->lock);
    s->figures.loads--;
    mr_list_remove(&load->link);
    mr_lock_leave(&s->lock);
    if (!load->committed)
        send_abort(load);
    chunk_free(load->filling);
    mr_lock_done(&load->lock);
    mr_arena_done(&load->arena);
    free(load);
}

void mr_job_load_free(struct mr_job_load *load)
{
    if (load == NULL)
        return;
    mr_lock_enter(&load->lock);
    while (load->caller != NULL && load->caller != &this_thread)
        (void)mr_lock_wait(&load->lock, INT64_MAX);
    load->abandoned = true;
    bool end = load->on_their_way == 0 && load->caller == NULL;
    mr_lock_leave(&load->lock);
    if (end)
        load_end(load);
}
