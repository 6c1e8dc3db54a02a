/* SPDX-License-Identifier: Apache-2.0 */
#include "timer/def.h"

#include <inttypes.h>

#include "broker/broker.h"

/* ---- checks --------------------------------------------------------------------------------- */

static enum mr_err check_text(const char *what, struct mr_slice text, struct mr_detail *detail)
{
    if (text.len > MR_TIMER_EXPRESSION_MAX) {
        mr_detail_set(detail, "%s: %zu bytes, the limit is %d", what, text.len,
                      MR_TIMER_EXPRESSION_MAX);
        return MR_TOO_BIG;
    }
    if (text.len == 0 || (text.data && mr_utf8_valid(text)))
        return MR_OK;
    mr_detail_set(detail, "%s: must be UTF-8", what);
    return MR_INVALID;
}

/* What is chosen from a list. */
static enum mr_err check_choices(const struct mr_timer_options *o, struct mr_detail *detail)
{
    const char *fault = NULL;
    if ((unsigned)o->kind >= MR_TIMER_KIND_COUNT)
        fault = "kind: not one of cron, every, after-done, at, delay, daily, manual";
    else if ((unsigned)o->misfire >= MR_MISFIRE_COUNT)
        fault = "misfire: not one of skip, once, all";
    else if ((unsigned)o->overlap >= MR_OVERLAP_COUNT)
        fault = "overlap: not one of allow, skip, queue, cancel";
    else if ((unsigned)o->strategy >= MR_STRATEGY_COUNT)
        fault = "strategy: not one of any, round-robin, healthiest, key:K, tag:T, broadcast";
    else if (o->max_running > MR_BATCH_MAX)
        fault = "max running: must be within 1 and 1000";
    else if (o->expire_ms < 0 || o->expire_ms > MR_RULE_PERIOD_MAX_MS)
        fault = "expire: must be within 0 and 100 years";
    if (fault == NULL)
        return MR_OK;
    mr_detail_set(detail, "%s", fault);
    return MR_INVALID;
}

static enum mr_err check_target(const struct mr_timer_options *o, struct mr_detail *detail)
{
    if (o->strategy == MR_STRATEGY_KEY)
        return mr_name_check_of("strategy key", o->target, detail);
    if (o->strategy == MR_STRATEGY_TAG) {
        size_t len = o->queue.len + 1 + o->target.len; /* of the queue that it goes to */
        MR_TRY(mr_name_check_of("strategy tag", o->target, detail));
        if (len <= MR_NAME_MAX)
            return MR_OK;
        mr_detail_set(detail, "strategy tag: QUEUE@TAG has %zu bytes, the limit is %d", len,
                      MR_NAME_MAX);
        return MR_TOO_BIG;
    }
    if (o->target.len == 0)
        return MR_OK;
    mr_detail_set(detail, "strategy: only key:K and tag:T have something behind them");
    return MR_INVALID;
}

struct mr_task_options mr_timer_task(const struct mr_timer_options *options)
{
    return (struct mr_task_options){
        .queue = options->queue,
        .type = options->type,
        .payload = options->payload,
        .priority_s = options->priority_s,
        .max_retry = options->max_retry,
        .timeout_ms = options->timeout_ms,
        .headers = options->headers,
        .headers_n = options->headers_n,
    };
}

static enum mr_err check(const struct mr_timer_options *o, size_t payload_max,
                         struct mr_detail *detail)
{
    struct mr_task_options task = mr_timer_task(o);
    MR_TRY(mr_name_check_of("app", o->app, detail));
    MR_TRY(mr_name_check_of("name", o->name, detail));
    MR_TRY(check_choices(o, detail));
    MR_TRY(check_text("expression", o->expression, detail));
    MR_TRY(check_text("zone", o->tz, detail));
    MR_TRY(check_text("exclude", o->exclude, detail));
    MR_TRY(check_target(o, detail));
    return mr_task_options_check(&task, payload_max, detail);
}

/* ---- the rule ------------------------------------------------------------------------------- */

enum mr_err mr_timer_rule(struct mr_zones *zones, const struct mr_timer_options *options,
                          int64_t created_ms, struct mr_rule **ret_rule, struct mr_detail *detail)
{
    struct mr_rule_options rule = {
        .kind = options->kind,
        .expression = options->expression,
        .tz = options->tz,
        .exclude = options->exclude,
        .created_ms = created_ms,
        .start_ms = options->start_ms,
        .end_ms = options->end_ms,
        .jitter_ms = options->jitter_ms,
        .times = options->times,
    };
    return mr_rule_new(zones, &rule, ret_rule, detail);
}

bool mr_timer_same_rule(const struct mr_timer_options *a, const struct mr_timer_options *b)
{
    return a->kind == b->kind && mr_slice_equal(a->expression, b->expression) &&
           mr_slice_equal(a->tz, b->tz) && mr_slice_equal(a->exclude, b->exclude) &&
           a->start_ms == b->start_ms && a->end_ms == b->end_ms && a->times == b->times;
}

/* Its own text for a field of the definition. */
static enum mr_err put_text(const struct mr_rule *rule,
                            enum mr_err (*put)(const struct mr_rule *rule, struct mr_buf *buf),
                            struct mr_arena *arena, struct mr_slice *ret_text)
{
    struct mr_buf buf = {0};
    enum mr_err err = put(rule, &buf);
    if (err == MR_OK)
        err = mr_arena_copy(arena, mr_buf_slice(&buf), ret_text);
    mr_buf_done(&buf);
    return err;
}

static enum mr_err canonical_rule(struct mr_zones *zones, int64_t created_ms,
                                  struct mr_arena *arena, struct mr_timer_options *o,
                                  struct mr_detail *detail)
{
    struct mr_rule *rule;
    MR_TRY(mr_timer_rule(zones, o, created_ms, &rule, detail));
    o->kind = mr_rule_kind_of(rule);
    enum mr_err err = put_text(rule, mr_rule_put, arena, &o->expression);
    if (err == MR_OK)
        err = put_text(rule, mr_rule_put_exclude, arena, &o->exclude);
    if (err == MR_OK)
        err = mr_arena_copy(arena, mr_slice_str(mr_zone_name(mr_rule_zone(rule))), &o->tz);
    mr_rule_free(rule);
    return err;
}

enum mr_err mr_timer_canonical(struct mr_zones *zones, const struct mr_timer_options *options,
                               int64_t created_ms, size_t payload_max, struct mr_arena *arena,
                               struct mr_timer_options *ret_options, struct mr_detail *detail)
{
    struct mr_timer_options o = *options;
    if (o.app.len == 0)
        o.app = MR_SLICE_LIT(MR_TIMER_APP);
    if (o.queue.len == 0)
        o.queue = o.app;
    if (o.type.len == 0)
        o.type = MR_SLICE_LIT("task");
    MR_TRY(check(&o, payload_max, detail));
    MR_TRY(canonical_rule(zones, created_ms, arena, &o, detail));
    *ret_options = o;
    return MR_OK;
}

/* ---- encodings ------------------------------------------------------------------------------ */

static enum mr_err read(const struct mr_flat *flat, struct mr_slice bytes, struct mr_arena *arena,
                        void *out)
{
    enum mr_err err = mr_flat_read(flat, bytes, arena, out);
    return err == MR_INVALID ? MR_DAMAGED : err;
}

enum mr_err mr_timer_encode(const struct mr_timer_options *options, struct mr_buf *buf)
{
    return mr_flat_append(&mr_flat_timer_definition, options, buf);
}

enum mr_err mr_timer_decode(struct mr_slice bytes, struct mr_arena *arena,
                            struct mr_timer_options *ret_options)
{
    return read(&mr_flat_timer_definition, bytes, arena, ret_options);
}

enum mr_err mr_timer_read(struct mr_slice bytes, struct mr_arena *arena,
                          struct mr_timer_options *ret_options, struct mr_detail *detail)
{
    enum mr_err err = mr_timer_decode(bytes, arena, ret_options);
    if (err != MR_DAMAGED)
        return err;
    mr_detail_set(detail, "definition: cannot be read");
    return MR_INVALID;
}

enum mr_err mr_timer_operation_decode(struct mr_slice bytes, struct mr_timer_operation *ret_op)
{
    return read(&mr_flat_timer_operation, bytes, NULL, ret_op);
}

enum mr_err mr_timer_result_decode(struct mr_slice bytes, struct mr_timer_result *ret_result)
{
    return read(&mr_flat_timer_result, bytes, NULL, ret_result);
}

/* ---- operations ----------------------------------------------------------------------------- */

static enum mr_err check_id(const char *what, struct mr_slice id, struct mr_detail *detail)
{
    struct mr_uuid uuid;
    if (mr_uuid_parse(id, &uuid))
        return MR_OK;
    mr_detail_set(detail, "%s: must be a UUID in small letters", what);
    return MR_INVALID;
}

static enum mr_err check_times(const struct mr_timer_operation *op, mr_wall now, int64_t ahead_ms,
                               struct mr_detail *detail)
{
    int64_t most_us = now.us + ahead_ms * MR_US_PER_MS;
    /* Who knows what is there must come after it; nothing comes of one that is not there. */
    if (op->if_version < MR_TIMER_VERSION_MAX && (int64_t)op->if_version > now.us)
        most_us += (int64_t)op->if_version - now.us;
    if (op->version == 0 || op->version > (uint64_t)INT64_MAX) {
        mr_detail_set(detail, "version: must be the producer's clock in microseconds");
        return MR_INVALID;
    }
    if ((int64_t)op->version > most_us) {
        mr_detail_set(detail,
                      "version: %" PRId64 " ms ahead of the server's clock, at most %" PRId64
                      "; set the producer's clock",
                      (int64_t)(((int64_t)op->version - now.us) / MR_US_PER_MS), ahead_ms);
        return MR_INVALID;
    }
    bool past = op->created_ms >= 0 && op->planned_ms >= 0;
    if (past && op->created_ms <= most_us / MR_US_PER_MS)
        return MR_OK;
    mr_detail_set(detail, "created, planned: must be times, and created none of the future");
    return MR_INVALID;
}

enum mr_err mr_timer_operation_check(struct mr_timer_operation *op, mr_wall now, int64_t ahead_ms,
                                     struct mr_detail *detail)
{
    bool put = op->verb == MR_TIMER_PUT;
    if ((unsigned)op->verb >= MR_TIMER_VERB_COUNT) {
        mr_detail_set(detail, "verb: not one of put, delete, run, stop, rerun");
        return MR_INVALID;
    }
    if (op->app.len == 0)
        op->app = MR_SLICE_LIT(MR_TIMER_APP);
    MR_TRY(mr_name_check_of("app", op->app, detail));
    MR_TRY(mr_name_check_of("name", op->name, detail));
    MR_TRY(check_id("operation", op->operation, detail));
    if (put)
        MR_TRY(check_id("id", op->id, detail));
    if (op->verb == MR_TIMER_RERUN && op->planned_ms == 0) {
        mr_detail_set(detail, "planned: say which firing");
        return MR_INVALID;
    }
    return check_times(op, now, ahead_ms, detail);
}

uint64_t mr_timer_version(_Atomic uint64_t *last, mr_wall now, uint64_t seen)
{
    uint64_t before = atomic_load(last), version;
    do {
        version = (uint64_t)now.us > before ? (uint64_t)now.us : before + 1;
    } while (!atomic_compare_exchange_weak(last, &before, version));
    return seen < MR_TIMER_VERSION_MAX && version <= seen ? seen + 1 : version;
}

int64_t mr_timer_run_ms(_Atomic int64_t *last, mr_wall now)
{
    int64_t before = atomic_load(last), ms;
    do {
        ms = mr_wall_ms(now) > before ? mr_wall_ms(now) : before + 1;
    } while (!atomic_compare_exchange_weak(last, &before, ms));
    return ms;
}
