/* SPDX-License-Identifier: Apache-2.0 */
/*
 * All outcomes are there: they become the result. It is read, made and written on a thread beside the service's, piece by
 * piece, under the lease of the queue; then one request makes it the job's, once, whoever else has tried. What was
 * written by one who lost the lease is nobody's, and removed with that. Trouble with the store is tried again, later each
 * time; what the parts' results do not allow, or the command says, is the end of the job.
 *
 * Commands are run on threads beside that one, so that who waits for a reduce does not wait for the commands of others.
 * They may last as long as a task of the job may, and are killed when the job is cancelled or becomes another server's.
 *
 * Who runs no commands leaves such a job to a server that does: it gives the queue up for a moment, now and then. If
 * nobody comes, the job fails; a retry of it begins with the reduce.
 */
#include <stdio.h>
#include <stdlib.h>

#include "job/internal.h"
#include "job/reduce.h"
#include "wire/task.h"

enum {
    WAIT_MAX_MS = 60 * 1000, /* at most so long until it is tried again */
    /* A queue is given up for want of commands, again after so many looks, then after twice as many; until nobody has come
     * for so many. */
    HAND_OVER_LOOKS = 5,
    HAND_OVER_MAX = 300,
};

struct reducing {
    struct mr_chore chore;
    struct mr_errand errand;
    struct queue *queue;
    uint64_t generation, token;
    struct live *live;      /* a reference */
    _Atomic bool cancelled; /* its job is not ours any more: it is of no use */
    size_t commander;       /* that has it; COMMANDS_MAX: none */
    int64_t limit_ms;       /* of a command; 0: none */
    struct mr_uuid uid;
    char id[MR_UUID_TEXT_LEN + 1];
    uint32_t round;
    uint64_t total;
    uint32_t stages_n;
    struct mr_arena arena;
    struct mr_reduce_spec spec;
    /* What came of it. */
    struct mr_reduce *reduce;
    struct mr_reduce_command *command;
    uint64_t next; /* index of the next part */
    uint32_t chunks;
    uint64_t bytes;
    enum mr_err store_err; /* of a request to the store */
    enum mr_err err;       /* of the reduce */
    struct mr_detail why;
    struct mr_store_job_act act;
};

static void reducing_free(struct reducing *r)
{
    mr_reduce_free(r->reduce);
    job_command_free(r->command);
    mr_store_req_done(&r->act.req);
    mr_arena_done(&r->arena);
    job_live_unref(r->live);
    free(r);
}

/* ---- beside the service's thread ------------------------------------------------------------- */

static struct mr_store_fence fence_of(const struct reducing *r)
{
    return (struct mr_store_fence){mr_slice_str(r->queue->lease), r->token};
}

static enum mr_err add_chunk(struct mr_slice chunk, void *arg)
{
    struct reducing *r = arg;
    struct mr_store_result_add add = {.req.op = MR_STORE_RESULT_ADD,
                                      .fence = fence_of(r),
                                      .uid = r->uid,
                                      .round = r->round,
                                      .seq = r->chunks,
                                      .bytes = chunk};
    r->store_err = mr_store_call(job_of(&r->errand)->desk.store, &add.req);
    mr_store_req_done(&add.req);
    if (r->store_err == MR_OK) {
        r->chunks++;
        r->bytes += chunk.len;
    }
    return r->store_err;
}

static enum mr_err begin(struct reducing *r)
{
    struct mr_job_service *s = job_of(&r->errand);
    if (r->spec.kind == MR_REDUCE_COMMAND) {
        struct job_command options = {.command = r->spec.command,
                                      .job_id = r->id,
                                      .temp_dir = s->settings.temp_dir,
                                      .total = r->total,
                                      .limit_ms = r->limit_ms,
                                      .cancel = &r->cancelled,
                                      .chunk = add_chunk,
                                      .arg = r};
        return job_command_new(&options, &r->command, &r->why);
    }
    struct mr_reduce_options options = {
        .kind = r->spec.kind, .chunk_max = MR_STORE_CHUNK_MAX, .chunk = add_chunk, .arg = r};
    return mr_reduce_new(&options, &r->reduce);
}

/* Up to this index no part has a result. */
static enum mr_err skip_to(struct reducing *r, uint64_t index)
{
    enum mr_err err = MR_OK;
    for (; err == MR_OK && r->next < index; r->next++) {
        if (r->reduce != NULL)
            err = mr_reduce_gap(r->reduce, r->next, &r->why);
    }
    return err;
}

static enum mr_err add_part(struct reducing *r, const struct mr_store_payload *part)
{
    MR_TRY(skip_to(r, part->index));
    r->next++;
    if (r->command != NULL)
        return job_command_part(r->command, part->index, part->bytes, &r->why);
    return mr_reduce_part(r->reduce, part->index, part->bytes, &r->why);
}

/* One page; answers where the next one begins. */
static enum mr_err add_page(struct reducing *r, uint64_t from, uint64_t *ret_next)
{
    struct mr_store_parts_read read = {.req.op = MR_STORE_PARTS_READ,
                                       .uid = r->uid,
                                       .stage = r->stages_n,
                                       .from = from,
                                       .max = MR_STORE_BATCH_MAX};
    enum mr_err err = mr_store_call(job_of(&r->errand)->desk.store, &read.req);
    if (err == MR_EMPTY)
        mr_detail_set(&r->why, "results of its parts are not kept any more");
    else
        r->store_err = err;
    for (size_t i = 0; err == MR_OK && i < read.n; i++)
        err = add_part(r, &read.parts[i]);
    *ret_next = read.next;
    mr_store_req_done(&read.req);
    return err;
}

static enum mr_err make_result(struct reducing *r)
{
    uint64_t at = 0;
    if (r->spec.kind == MR_REDUCE_NONE)
        return MR_OK;
    MR_TRY(begin(r));
    while (at < r->total) {
        uint64_t from = at;
        if (atomic_load(&r->cancelled))
            return r->store_err = MR_CANCELLED;
        MR_TRY(add_page(r, from, &at));
        if (at <= from)
            return r->store_err = MR_DAMAGED;
    }
    MR_TRY(skip_to(r, r->total));
    if (r->command != NULL)
        return job_command_run(r->command, &r->why);
    return mr_reduce_end(r->reduce, NULL, &r->why);
}

static void run(struct mr_chore *chore)
{
    struct reducing *r = mr_container(chore, struct reducing, chore);
    r->err = make_result(r);
    job_command_free(r->command); /* here: it may have a million files */
    r->command = NULL;
}

/* ---- on it again ----------------------------------------------------------------------------- */

/* A look at the job begins anew: soon, then later each time, since it may be long, and a command somebody's. */
static void wait_a_while(struct live *live)
{
    int64_t ms = live->reduce_wait_ms * 2;
    live->reduce_wait_ms = ms > WAIT_MAX_MS ? WAIT_MAX_MS : ms > 0 ? ms : AGAIN_MS / 4;
    live->reduce_again =
        mr_mono_add_ms(mr_mono_now(live->queue->s->desk.clock), live->reduce_wait_ms);
}

static void put_off(struct reducing *r, enum mr_err err)
{
    struct live *live = r->live;
    if (live->reducing == r) {
        live->reducing = NULL;
        wait_a_while(live);
    }
    if (err != MR_CANCELLED)
        mr_diag(MR_DIAG_WARN, "job.reduce", "job=%s error=%s", r->id, mr_err_name(err));
    reducing_free(r);
}

void job_reduce_forget(struct live *live)
{
    if (live->reducing != NULL)
        atomic_store(&live->reducing->cancelled, true);
    live->reducing = NULL;
}

static void ended(struct mr_errand *errand)
{
    struct reducing *r = mr_container(errand, struct reducing, errand);
    struct mr_job_service *s = job_of(errand);
    enum mr_err err = r->act.req.err;
    if (err != MR_OK) {
        put_off(r, err);
        return;
    }
    job_step(s, MR_JOB_STEP_CLOSED);
    if (r->act.state == MR_JOBROW_SUCCEEDED)
        JOB_COUNT(s, reduced, 1);
    job_changed_one(s, &r->act.job);
    if (r->live->reducing == r)
        r->live->reducing = NULL;
    reducing_free(r);
}

static void end_job(struct reducing *r)
{
    bool ok = r->err == MR_OK;
    job_step(job_of(&r->errand), MR_JOB_STEP_REDUCED);
    if (!ok && r->why.text[0] == '\0')
        mr_detail_set(&r->why, "the reduce failed: %s", mr_err_text(r->err));
    r->act = (struct mr_store_job_act){
        .req.op = MR_STORE_JOB_END,
        .fence = fence_of(r),
        .uid = r->uid,
        .round = r->round,
        .state = ok ? MR_JOBROW_SUCCEEDED : MR_JOBROW_FAILED,
        .reason = ok ? (struct mr_slice){0} : mr_slice_str(r->why.text),
        .chunks = ok ? r->chunks : 0,
        .bytes = ok ? r->bytes : 0,
    };
    r->errand.done = ended;
    mr_errand_store(&r->errand, &r->act.req);
}

static void made(struct mr_chore *chore)
{
    struct reducing *r = mr_container(chore, struct reducing, chore);
    struct mr_job_service *s = job_of(&r->errand);
    bool ours = r->queue->owned && r->queue->generation == r->generation;
    mr_desk_release(&s->desk);
    if (r->commander < COMMANDS_MAX)
        s->commands[r->commander]--;
    if (atomic_load(&r->cancelled) || s->desk.stopping || !ours)
        put_off(r, MR_CANCELLED);
    else if (r->store_err != MR_OK)
        put_off(r, r->store_err);
    else
        end_job(r);
}

static enum mr_err reducing_new(struct live *live, struct reducing **ret_reducing)
{
    struct queue *queue = live->queue;
    struct reducing *r = calloc(1, sizeof *r);
    struct mr_slice text;
    if (r == NULL)
        return MR_NOMEM;
    r->errand.desk = &queue->s->desk;
    r->queue = queue;
    r->generation = queue->generation;
    r->token = queue->token;
    r->live = job_live_ref(live);
    r->commander = COMMANDS_MAX;
    r->limit_ms = live->options.timeout_ms == 0  ? MR_DEFAULT_TIMEOUT_MS
                  : live->options.timeout_ms > 0 ? live->options.timeout_ms
                                                 : 0;
    r->uid = live->uid;
    memcpy(r->id, live->id, sizeof r->id);
    r->round = live->round;
    r->total = live->total;
    r->stages_n = (uint32_t)live->stages_n;
    enum mr_err err = mr_arena_copy(&r->arena, live->options.reduce, &text);
    if (err == MR_OK)
        err = mr_reduce_parse(text, &r->spec, &r->why);
    if (err != MR_OK) {
        reducing_free(r);
        return err;
    }
    *ret_reducing = r;
    return MR_OK;
}

/* ---- commands --------------------------------------------------------------------------------- */

/* The one that has the least to do. */
static struct mr_exec_thread *choose_commander(struct mr_job_service *s, struct reducing *r)
{
    size_t least = 0;
    for (size_t i = 1; i < COMMANDS_MAX; i++)
        least = s->commands[i] < s->commands[least] ? i : least;
    r->commander = least;
    s->commands[least]++;
    return s->commanders[least];
}

/* Before the first of them, beside the service's thread: what was left may be much. */
struct cleaning {
    struct mr_chore chore;
    struct mr_job_service *s;
};

static void clean(struct mr_chore *chore)
{
    job_command_clean(mr_container(chore, struct cleaning, chore)->s->settings.temp_dir);
}

static void cleaned(struct mr_chore *chore)
{
    struct cleaning *c = mr_container(chore, struct cleaning, chore);
    mr_desk_release(&c->s->desk);
    free(c);
}

void job_reduces_begin(struct mr_job_service *s)
{
    struct cleaning *c = s->settings.commands ? calloc(1, sizeof *c) : NULL;
    if (c == NULL)
        return;
    mr_chore_init(&c->chore, clean, cleaned);
    c->s = s;
    mr_desk_hold(&s->desk);
    struct mr_exec *exec = mr_exec_thread_exec(s->commanders[0]);
    exec->submit(exec, &c->chore);
}

/* Another server may run it, and gets the chance. False: none came for long enough. */
static bool leave_to_others(struct live *live)
{
    struct queue *queue = live->queue;
    struct mr_job_service *s = queue->s;
    int64_t look_ms = s->settings.look_ms;
    mr_mono now = mr_mono_now(s->desk.clock);
    /* A while without such jobs: there may be others by now. */
    if (queue->commandless.ns == 0 ||
        job_since_ms(s, queue->commandless_seen) > HAND_OVER_MAX * look_ms) {
        queue->commandless = queue->hand_over = now;
        queue->hand_over_ms = HAND_OVER_LOOKS * look_ms;
    }
    queue->commandless_seen = now;
    if (job_since_ms(s, queue->commandless) > HAND_OVER_MAX * look_ms)
        return false;
    if (now.ns >= queue->hand_over.ns) {
        queue->hand_over = mr_mono_add_ms(now, queue->hand_over_ms);
        queue->hand_over_ms *= 2;
        queue->hands_over =
            true; /* at the end of the turn: somebody may be going through its jobs */
    }
    return true;
}

void job_reduce(struct live *live)
{
    struct reducing *r;
    struct mr_job_service *s = live->queue->s;
    if (live->reducing != NULL || s->desk.stopping ||
        mr_mono_now(s->desk.clock).ns < live->reduce_again.ns)
        return;
    enum mr_err err = reducing_new(live, &r);
    if (err != MR_OK) {
        mr_diag(MR_DIAG_WARN, "job.reduce", "job=%s error=%s", live->id, mr_err_name(err));
        return;
    }
    bool command = r->spec.kind == MR_REDUCE_COMMAND;
    if (command && !s->settings.commands && leave_to_others(live)) {
        reducing_free(r);
        return;
    }
    job_step(s, MR_JOB_STEP_REDUCE);
    live->reducing = r;
    mr_desk_hold(&s->desk);
    if (command && !s->settings.commands) {
        r->err = MR_UNSUPPORTED;
        mr_detail_set(&r->why, "no server that is there runs commands for jobs");
        made(&r->chore);
        return;
    }
    mr_chore_init(&r->chore, run, made);
    struct mr_exec *exec = mr_exec_thread_exec(command ? choose_commander(s, r) : s->reducer);
    exec->submit(exec, &r->chore);
}

/* ---- without a result ------------------------------------------------------------------------ */

struct failing {
    struct mr_errand errand;
    struct mr_store_job_act act;
};

static void failed(struct mr_errand *errand)
{
    struct failing *f = mr_container(errand, struct failing, errand);
    if (f->act.req.err == MR_OK)
        job_changed_one(job_of(errand), &f->act.job);
    mr_store_req_done(&f->act.req);
    free(f);
}

void job_fail(struct live *live, const char *why)
{
    struct queue *queue = live->queue;
    struct failing *f = calloc(1, sizeof *f);
    if (f == NULL)
        return; /* it is tried again */
    f->errand = (struct mr_errand){.desk = &queue->s->desk, .done = failed};
    f->act = (struct mr_store_job_act){.req.op = MR_STORE_JOB_END,
                                       .fence = job_fence(queue),
                                       .uid = live->uid,
                                       .round = live->round,
                                       .state = MR_JOBROW_FAILED,
                                       .reason = mr_slice_str(why)};
    mr_errand_store(&f->errand, &f->act.req);
}
