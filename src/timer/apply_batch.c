/* SPDX-License-Identifier: Apache-2.0 */
/* A batch of operations: read and checked, applied with one transaction or given to the scheduler, and ended. */
#include <stdio.h>

#include "base/diag.h"
#include "timer/apply_internal.h"
#include "timer/door.h"

enum {
    TEXT_MAX = 1024,       /* of a reason */
    SURE_MS = 3600 * 1000, /* clocks differ, and what is old is removed now and then */
};

/* ---- reading -------------------------------------------------------------------------------- */

static void set_fate(struct batch *b, struct item *item, enum fate fate, enum mr_err err,
                     const char *text)
{
    item->fate = fate;
    item->err = err;
    if (mr_arena_copy(&b->arena, mr_slice_str(text), &item->text) != MR_OK)
        item->text = mr_slice_str(mr_err_text(err));
}

static enum mr_err read_put(struct mr_applier *a, struct batch *b, struct item *item,
                            struct mr_detail *detail)
{
    MR_TRY(mr_timer_read(item->op.definition, &b->arena, &item->options, detail));
    MR_TRY(mr_timer_canonical(a->options.zones, &item->options, item->op.created_ms, a->payload_max,
                              &b->arena, &item->options, detail));
    if (item->op.app.len == 0)
        item->op.app = item->options.app;
    if (item->op.name.len == 0)
        item->op.name = item->options.name;
    if (mr_slice_equal(item->op.app, item->options.app) &&
        mr_slice_equal(item->op.name, item->options.name))
        return MR_OK;
    mr_detail_set(detail, "definition: of another timer than the operation says");
    return MR_INVALID;
}

static enum mr_err read_operation(struct mr_applier *a, struct batch *b, struct item *item,
                                  struct mr_detail *detail)
{
    enum mr_err err = mr_broker_lease_open(a->options.broker, item->lease);
    if (err == MR_OK)
        err = mr_timer_operation_decode(item->lease->task.payload, &item->op);
    if (err == MR_DAMAGED)
        mr_detail_set(detail, "the operation cannot be read");
    MR_TRY(err);
    if (item->op.verb == MR_TIMER_PUT)
        MR_TRY(read_put(a, b, item, detail));
    return mr_timer_operation_check(&item->op, mr_wall_now(a->clock), a->ahead_ms, detail);
}

static void say(char *to, size_t cap, struct mr_slice text)
{
    size_t len = text.len < cap ? text.len : cap - 1;
    if (len > 0)
        memcpy(to, text.data, len);
    to[len] = '\0';
}

static void read_item(struct mr_applier *a, struct batch *b, struct item *item)
{
    struct mr_detail detail = {.text = ""};
    enum mr_err err = read_operation(a, b, item, &detail);
    if (err == MR_OK && a->options.fault != NULL) {
        err = a->options.fault(&item->op, a->options.arg);
        if (err != MR_OK)
            set_fate(b, item, FATE_AGAIN, err, mr_err_text(err));
    } else if (err != MR_OK) {
        set_fate(b, item, err == MR_NOMEM ? FATE_BACK : FATE_NEVER, err,
                 detail.text[0] ? detail.text : mr_err_text(err));
    }
    item->result.version = item->op.version;
    say(item->result.operation, sizeof item->result.operation, item->op.operation);
    say(item->result.id, sizeof item->result.id, item->op.id);
}

/* ---- applying ------------------------------------------------------------------------------- */

static bool is_act(const struct item *item)
{
    return item->op.verb != MR_TIMER_PUT && item->op.verb != MR_TIMER_DELETE;
}

/* The part of an operation that does not depend on what is there. */
static enum mr_err begin_apply(struct batch *b, size_t i)
{
    const struct item *item = &b->items[i];
    struct mr_store_apply *apply = &b->applies[b->puts_n];
    bool put = item->op.verb == MR_TIMER_PUT;
    *apply = (struct mr_store_apply){
        .app = item->op.app,
        .name = item->op.name,
        .version = item->op.version,
        .if_version = item->op.if_version,
        .verb = put ? MR_APPLY_PUT : MR_APPLY_DELETE,
    };
    if (put && !mr_uuid_parse(item->op.id, &apply->uid))
        return MR_INVALID;
    if (put)
        MR_TRY(
            mr_flat_make(&mr_flat_timer_definition, &item->options, &b->arena, &apply->definition));
    b->keys[b->puts_n] = (struct mr_store_timer_key){.app = item->op.app, .name = item->op.name};
    b->put_of[b->puts_n++] = i;
    return MR_OK;
}

/* What is there, or will be after the operations before it: of the same timer the row of its first one. */
struct rows {
    struct mr_store_timer *timers;
    uint16_t *first; /* by hash: index + 1 */
    size_t mask;
};

static size_t row_of(const struct batch *b, const struct rows *rows, size_t i)
{
    const struct mr_store_timer_key *key = &b->keys[i];
    uint64_t hash = mr_fnv64(mr_fnv64(MR_FNV64_SEED, key->app), key->name);
    for (size_t at = (size_t)(hash ^ hash >> 32) & rows->mask;; at = (at + 1) & rows->mask) {
        size_t there = rows->first[at];
        if (there == 0)
            rows->first[at] = (uint16_t)(i + 1);
        if (there == 0)
            return i;
        const struct mr_store_timer_key *other = &b->keys[there - 1];
        if (mr_slice_equal(other->app, key->app) && mr_slice_equal(other->name, key->name))
            return there - 1;
    }
}

static bool was_copied(const struct mr_task *task)
{
    for (size_t i = 0; i < task->headers_n; i++)
        if (mr_slice_equal(task->headers[i].name, MR_SLICE_LIT(MR_TIMER_COPIED_HEADER)))
            return true;
    return false;
}

/* Copies are applied though the operation was, mostly: that does no harm as long as a timer that was deleted
 * since is known to be. Behind that it would come back to life. */
static enum mr_err check_age(const struct item *item, const struct mr_store_timer *there,
                             int64_t now_ms, struct mr_detail *detail)
{
    int64_t said_ms = (int64_t)(item->op.version / MR_US_PER_MS);
    if (there->state != MR_ROW_NONE || now_ms - said_ms < MR_TIMER_BURIED_MS - SURE_MS ||
        !was_copied(&item->lease->task))
        return MR_OK;
    mr_detail_set(detail, "a copy so old that its timer may have been deleted since");
    return MR_STALE;
}

/* A put that cannot be planned takes part as what is stale: it changes nothing. */
static enum mr_err plan_all(struct mr_applier *a, struct batch *b, struct mr_store_timer *timers)
{
    enum { SLOTS = 4096 };
    int64_t now_ms = mr_wall_ms(mr_wall_now(a->clock));
    struct rows rows = {.timers = timers, .mask = SLOTS - 1};
    rows.first = mr_arena_calloc(&b->arena, SLOTS, sizeof *rows.first);
    if (rows.first == NULL)
        return MR_NOMEM;
    size_t kept = 0;
    for (size_t i = 0; i < b->puts_n; i++) {
        struct item *item = &b->items[b->put_of[i]];
        struct mr_store_apply *apply = &b->applies[i];
        struct mr_store_timer *there = &timers[row_of(b, &rows, i)];
        struct mr_detail detail = {.text = ""};
        enum mr_err err = MR_OK;
        if (apply->verb == MR_APPLY_PUT)
            err = check_age(item, there, now_ms, &detail);
        if (apply->verb == MR_APPLY_PUT && err == MR_OK)
            err = apply_plan(a->options.zones, item, there, now_ms, apply, &detail);
        if (err == MR_NOMEM)
            return err;
        if (err != MR_OK) {
            set_fate(b, item, FATE_NEVER, err, detail.text);
            continue;
        }
        apply_after(apply, there);
        b->put_of[kept] = b->put_of[i];
        b->applies[kept++] = *apply;
    }
    b->puts_n = kept;
    return MR_OK;
}

static enum mr_err apply_all(struct mr_applier *a, struct batch *b)
{
    struct mr_store_timer_get get = {
        .req = {.op = MR_STORE_TIMER_GET}, .keys = b->keys, .n = b->puts_n};
    enum mr_err err = applier_store_call(a, &get.req);
    if (err == MR_OK)
        err = plan_all(a, b, get.timers);
    if (err == MR_OK && b->puts_n > 0) {
        struct mr_store_timers_apply apply = {.req = {.op = MR_STORE_TIMERS_APPLY},
                                              .items = b->applies,
                                              .n = b->puts_n,
                                              .results = b->applied};
        err = applier_store_call(a, &apply.req);
        mr_store_req_done(&apply.req);
    }
    mr_store_req_done(&get.req);
    return err;
}

static void note_applied(struct mr_applier *a, struct batch *b, struct item *item,
                         const struct mr_store_applied *applied)
{
    enum mr_err err = applied->err;
    if (err == MR_INVALID || err == MR_TOO_BIG) {
        set_fate(b, item, FATE_NEVER, err, mr_err_text(err));
        return;
    }
    atomic_fetch_add(err == MR_STALE ? &a->stale : &a->applied, 1);
    item->fate = FATE_DONE;
    item->result.err = err;
    if (err == MR_STALE || err == MR_CONFLICT)
        item->result.version = applied->version;
    static const struct mr_uuid none;
    if (memcmp(&applied->uid, &none, sizeof none) != 0)
        mr_uuid_format(&applied->uid, item->result.id);
    if (err == MR_STALE)
        say(item->result.why, sizeof item->result.why,
            MR_SLICE_LIT("a newer version of the timer is there"));
    if (err == MR_CONFLICT)
        say(item->result.why, sizeof item->result.why,
            MR_SLICE_LIT("the timer has another version than was expected"));
}

/* It is not the operation that fails: whatever is tried next would. Such a time may last longer than all levels,
 * and nobody is to repeat by hand what was acknowledged before it. */
static enum fate fate_of(enum mr_err err)
{
    bool away = err == MR_UNAVAILABLE || err == MR_DISK_FULL || err == MR_IO || err == MR_CLOSED ||
                err == MR_NOMEM;
    return away ? FATE_BACK : err == MR_INVALID ? FATE_NEVER : FATE_AGAIN;
}

static void apply_puts(struct mr_applier *a, struct batch *b)
{
    if (b->puts_n == 0)
        return;
    size_t n = b->puts_n;
    enum mr_err err = apply_all(a, b);
    struct mr_slice told = {0};
    struct mr_detail line;
    if (err != MR_OK && mr_store_problem(a->options.store, &line) == MR_OK)
        mr_detail_set(&line, "%s", mr_err_text(err));
    for (size_t i = 0; i < (err == MR_OK ? b->puts_n : n); i++) {
        struct item *item = &b->items[b->put_of[i]];
        if (err != MR_OK && item->fate == FATE_OPEN)
            set_fate(b, item, fate_of(err), err, line.text);
        if (err != MR_OK)
            continue;
        note_applied(a, b, item, &b->applied[i]);
        if (a->options.changed == NULL || b->applied[i].err != MR_OK ||
            mr_slice_equal(told, item->op.app))
            continue;
        told = item->op.app;
        a->options.changed(told, a->options.arg);
    }
    b->puts_n = 0;
}

/* ---- acts ----------------------------------------------------------------------------------- */

/* The last of some acts wakes the thread. */
struct acting {
    struct mr_event answered;
    _Atomic size_t left;
};

static void act_done(struct mr_firing_act *act)
{
    struct acting *acting = act->arg;
    if (atomic_fetch_sub(&acting->left, 1) == 1)
        mr_event_set(&acting->answered);
}

static void note_act(struct mr_applier *a, struct batch *b, struct item *item,
                     const struct mr_firing_act *act)
{
    enum mr_err err = act->err;
    if (err == MR_OK || err == MR_NOT_FOUND || err == MR_WRONG_STATE) {
        item->fate = FATE_DONE;
        item->result.err = err;
        atomic_fetch_add(&a->applied, 1);
        if (err != MR_NOT_FOUND)
            mr_uuid_format(&act->uid, item->result.id);
        if (err == MR_WRONG_STATE)
            say(item->result.why, sizeof item->result.why,
                item->op.verb == MR_TIMER_STOP
                    ? MR_SLICE_LIT("too late: the firing is over")
                    : MR_SLICE_LIT("the firing did not fail and was not stopped"));
    } else {
        set_fate(b, item, fate_of(err), err, mr_err_text(err));
    }
}

/* Items from .. to - 1 are acts, or have their fate. */
static void act_on(struct mr_applier *a, struct batch *b, size_t from, size_t to)
{
    struct acting acting;
    size_t n = 0;
    mr_event_init(&acting.answered);
    for (size_t i = from; i < to; i++) {
        struct item *item = &b->items[i];
        if (item->fate == FATE_OPEN && a->options.act == NULL)
            set_fate(b, item, FATE_NEVER, MR_UNSUPPORTED, "nobody fires timers here");
        if (item->fate != FATE_OPEN)
            continue;
        b->put_of[n] = i;
        b->acts[n++] = (struct mr_firing_act){.done = act_done,
                                              .arg = &acting,
                                              .verb = item->op.verb,
                                              .app = item->op.app,
                                              .name = item->op.name,
                                              .planned_ms = item->op.planned_ms};
    }
    if (n == 0)
        return;
    atomic_init(&acting.left, n);
    for (size_t i = 0; i < n; i++)
        a->options.act(&b->acts[i], a->options.arg);
    applier_wait(a, &acting.answered);
    for (size_t i = 0; i < n; i++)
        note_act(a, b, &b->items[b->put_of[i]], &b->acts[i]);
}

/* In their order: puts and deletes together, then the acts behind them, and so on. */
static void carry_out(struct mr_applier *a, struct batch *b)
{
    for (size_t i = 0; i < b->n;) {
        for (; i < b->n && !is_act(&b->items[i]); i++) {
            struct item *item = &b->items[i];
            if (item->fate != FATE_OPEN)
                continue;
            enum mr_err err = begin_apply(b, i);
            if (err != MR_OK)
                set_fate(b, item, fate_of(err), err, mr_err_text(err));
        }
        apply_puts(a, b);
        size_t from = i;
        while (i < b->n && is_act(&b->items[i]))
            i++;
        act_on(a, b, from, i);
    }
}

/* ---- ends ----------------------------------------------------------------------------------- */

static void tell_dead(struct mr_applier *a, const struct item *item, struct mr_slice reason)
{
    char id[MR_ID_MAX + 1], text[TEXT_MAX];
    struct mr_slice task = item->lease->task.id;
    atomic_fetch_add(&a->dead, 1);
    mr_diag(MR_DIAG_WARN, "timer.dead", "operation=%s reason=\"%s\"",
            mr_diag_escape(task, id, sizeof id), mr_diag_escape(reason, text, sizeof text));
    if (a->options.dead == NULL)
        return;
    struct mr_timer_dead dead = {
        .operation = task,
        .app = item->op.app,
        .name = item->op.name,
        .verb = item->op.verb,
        .attempts = item->lease->task.retried + 1,
        .reason = reason,
    };
    a->options.dead(&dead, a->options.arg);
}

static void tell_end(struct mr_applier *a, const struct item *item, const struct mr_finish *finish)
{
    bool dead = finish->outcome == MR_FAIL_FOR_GOOD;
    if (dead)
        tell_dead(a, item, finish->error);
    if (a->options.ended != NULL && (dead || finish->outcome == MR_DONE))
        a->options.ended(&item->lease->task, a->options.arg);
}

/* Fails: again after the delay of its level, or never. */
static void fail(struct mr_applier *a, struct batch *b, const struct item *item,
                 struct mr_finish *finish)
{
    struct mr_buf text = {0};
    uint32_t level = item->lease->task.retried;
    bool again = item->fate == FATE_AGAIN && level < a->levels_n;
    if (mr_buf_printf(&text, "%s: %.*s", mr_err_name(item->err), (int)item->text.len,
                      (const char *)item->text.data) != MR_OK ||
        mr_arena_copy(&b->arena, mr_buf_slice(&text), &finish->error) != MR_OK)
        finish->error = mr_slice_str(mr_err_name(item->err));
    mr_buf_done(&text);
    finish->outcome = again ? MR_FAIL : MR_FAIL_FOR_GOOD;
    finish->delay_ms = again ? a->levels_ms[level] : 0;
    if (again)
        atomic_fetch_add(&a->retried, 1);
    else if (item->fate == FATE_NEVER)
        atomic_fetch_add(&a->rejected, 1);
}

static void succeed(struct batch *b, const struct item *item, struct mr_finish *finish)
{
    finish->outcome = MR_DONE;
    if (item->lease->task.retention_ms == 0)
        return; /* nobody waits for it */
    if (mr_flat_make(&mr_flat_timer_result, &item->result, &b->arena, &finish->result) != MR_OK)
        finish->result = (struct mr_slice){0};
}

static void finish_all(struct mr_applier *a, struct batch *b)
{
    for (size_t i = 0; i < b->n; i++) {
        const struct item *item = &b->items[i];
        struct mr_finish *finish = &b->finishes[i];
        *finish = (struct mr_finish){.id = item->lease->task.id,
                                     .epoch = item->lease->epoch,
                                     .ref = item->lease->ref,
                                     .outcome = MR_HAND_BACK};
        if (item->fate == FATE_DONE)
            succeed(b, item, finish);
        else if (item->fate == FATE_AGAIN || item->fate == FATE_NEVER)
            fail(a, b, item, finish);
    }
    struct mr_req_finish req = {
        .req = {.op = MR_OP_FINISH}, .items = b->finishes, .n = b->n, .errs = b->errs};
    enum mr_err err = mr_broker_call(a->options.broker, &req.req);
    mr_req_done(&req.req);
    if (err != MR_OK) /* they come again, and find what they have done */
        mr_diag(MR_DIAG_WARN, "timer.applier", "finish=%s operations=%zu", mr_err_name(err), b->n);
    for (size_t i = 0; err == MR_OK && i < b->n; i++)
        if (b->errs[i] == MR_OK)
            tell_end(a, &b->items[i], &b->finishes[i]);
}

/* ---- the whole ------------------------------------------------------------------------------ */

bool applier_work(struct mr_applier *a, struct mr_lease *leases)
{
    struct batch *b = a->batch;
    bool all = true;
    b->n = b->puts_n = 0;
    for (struct mr_lease *lease = leases; lease != NULL; lease = lease->next) {
        b->items[b->n] = (struct item){.lease = lease};
        read_item(a, b, &b->items[b->n++]);
    }
    carry_out(a, b);
    finish_all(a, b);
    for (size_t i = 0; i < b->n; i++) {
        all = all && b->items[i].fate != FATE_BACK;
        mr_lease_free(b->items[i].lease);
    }
    mr_arena_reset(&b->arena);
    return all;
}
