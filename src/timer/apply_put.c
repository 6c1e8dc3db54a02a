/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What an operation makes of a timer: a pure function of the operation, of what is there and of the time.
 *
 * An update plans nothing twice and passes nothing over. As long as the rule stays the same, the next time is
 * that which was next. With another rule, planned times count from now on, or from the one that is due
 * and not fired yet. What was paused goes on from now; what is new, from its creation: planned times that have
 * passed while the operation was on its way are misfires, as for any other timer.
 */
#include "timer/apply_internal.h"

static bool is_live(const struct mr_store_timer *there)
{
    return there != NULL && (MR_ROW_BIT(there->state) & MR_ROW_LIVE) != 0;
}

static bool has_same_rule(const struct mr_store_timer *there,
                          const struct mr_timer_options *options)
{
    struct mr_arena arena = {0};
    struct mr_timer_options before;
    bool same = mr_timer_decode(there->definition, &arena, &before) == MR_OK &&
                mr_timer_same_rule(&before, options);
    mr_arena_done(&arena);
    return same;
}

/* Planned times are later than this. */
static int64_t planned_after(const struct item *item, const struct mr_store_timer *there,
                             int64_t now_ms)
{
    if (there == NULL) /* a moment that has passed is a misfire, too */
        return item->options.kind == MR_TIMER_AT ? -1 : item->op.created_ms;
    int64_t after = now_ms;
    if (there->state == MR_ROW_ACTIVE && there->next_ms <= now_ms)
        after = there->next_ms - 1;
    return after > there->last_ms ? after : there->last_ms;
}

static enum mr_err next_of(struct mr_zones *zones, const struct item *item,
                           const struct mr_store_timer *there, int64_t now_ms, int64_t *ret_ms,
                           struct mr_detail *detail)
{
    struct mr_rule *rule;
    int64_t created = there != NULL ? there->created_ms : item->op.created_ms;
    MR_TRY(mr_timer_rule(zones, &item->options, created, &rule, detail));
    *ret_ms =
        mr_rule_next(rule, there != NULL ? there->fired : 0, planned_after(item, there, now_ms));
    mr_rule_free(rule);
    return MR_OK;
}

enum mr_err apply_plan(struct mr_zones *zones, const struct item *item,
                       const struct mr_store_timer *there, int64_t now_ms,
                       struct mr_store_apply *apply, struct mr_detail *detail)
{
    const struct mr_timer_options *options = &item->options;
    bool after_done = options->kind == MR_TIMER_AFTER_DONE;
    there =
        is_live(there) && memcmp(&there->uid, &apply->uid, sizeof apply->uid) == 0 ? there : NULL;
    bool same = there != NULL && has_same_rule(there, options);
    /* Whether what was paused has a run that is not over is not known here: it is planned anew, and who fires it waits
     * for that end. */
    bool resumes = there != NULL && there->state == MR_ROW_PAUSED && !options->paused;
    bool waits_for_end = same && after_done && there->next_ms == MR_STORE_NEVER_MS &&
                         there->state != MR_ROW_FINISHED && !resumes;
    bool keeps = same && (there->state != MR_ROW_PAUSED || waits_for_end);
    apply->keeps_of = keeps ? there->version : 0; /* a firing may move it meanwhile */
    if (keeps)
        apply->next_ms = there->next_ms;
    else
        MR_TRY(next_of(zones, item, there, now_ms, &apply->next_ms, detail));
    bool over =
        apply->next_ms == MR_STORE_NEVER_MS && options->kind != MR_TIMER_MANUAL && !waits_for_end;
    apply->state = over ? MR_ROW_FINISHED : options->paused ? MR_ROW_PAUSED : MR_ROW_ACTIVE;
    apply->created_ms = item->op.created_ms;
    return MR_OK;
}

void apply_after(const struct mr_store_apply *apply, struct mr_store_timer *there)
{
    if (apply->version <= there->version)
        return;
    bool conflict = apply->if_version == MR_STORE_IF_NONE
                        ? is_live(there)
                        : apply->if_version != 0 && apply->if_version != there->version;
    if (conflict)
        return;
    there->version = apply->version;
    if (apply->verb == MR_APPLY_DELETE) {
        there->state = MR_ROW_DELETED;
        return;
    }
    if (memcmp(&there->uid, &apply->uid, sizeof apply->uid) != 0)
        *there = (struct mr_store_timer){
            .uid = apply->uid, .version = apply->version, .created_ms = apply->created_ms};
    there->state = apply->state;
    there->next_ms = apply->next_ms;
    there->definition = apply->definition;
}
