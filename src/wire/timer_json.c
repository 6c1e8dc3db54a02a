/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/timer_json.h"

#include "wire/task.h"

/* "key:K", "tag:T", "any". */
static void strategy_json(struct jw *jw, const struct mr_timer_options *timer)
{
    struct mr_buf text = {0};
    enum mr_err err = mr_timer_strategy_text(timer, &text);
    if (err == MR_OK)
        jw_bytes(jw, "strategy", mr_buf_slice(&text));
    else
        jw->err = err;
    mr_buf_done(&text);
}

enum mr_err mr_timer_strategy_text(const struct mr_timer_options *timer, struct mr_buf *text)
{
    MR_TRY(mr_buf_printf(text, "%s", mr_strategy_name(timer->strategy)));
    if (timer->target.len == 0)
        return MR_OK;
    MR_TRY(mr_buf_append(text, ":", 1));
    return mr_buf_append_slice(text, timer->target);
}

bool mr_timer_strategy_read(struct mr_slice text, struct mr_timer_options *timer)
{
    const char *colon = text.len > 0 ? memchr(text.data, ':', text.len) : NULL;
    size_t len = colon != NULL ? (size_t)(colon - (const char *)text.data) : text.len;
    for (size_t i = 0; i < MR_STRATEGY_COUNT; i++) {
        bool takes = i == MR_STRATEGY_KEY || i == MR_STRATEGY_TAG;
        const char *name = mr_strategy_name((enum mr_strategy)i);
        if (takes != (colon != NULL) ||
            !mr_slice_equal(mr_slice_make(text.data, len), mr_slice_str(name)))
            continue;
        timer->strategy = (enum mr_strategy)i;
        timer->target = takes ? mr_slice_make(colon + 1, text.len - len - 1) : (struct mr_slice){0};
        return true;
    }
    return false;
}

/* As it is for each task: 0 stands for none here, where the C API has its own words for that. */
int64_t mr_timer_max_retry(const struct mr_timer_options *timer)
{
    return timer->max_retry == 0             ? MR_DEFAULT_MAX_RETRY
           : timer->max_retry == MR_NO_RETRY ? 0
                                             : timer->max_retry;
}

int64_t mr_timer_timeout_ms(const struct mr_timer_options *timer)
{
    return timer->timeout_ms == 0               ? MR_DEFAULT_TIMEOUT_MS
           : timer->timeout_ms == MR_NO_TIMEOUT ? 0
                                                : timer->timeout_ms;
}

static void limits_json(struct jw *jw, const struct mr_timer_options *timer)
{
    jw_int(jw, "max_retry", mr_timer_max_retry(timer));
    jw_int(jw, "timeout_ms", mr_timer_timeout_ms(timer));
    jw_real(jw, "priority", timer->priority_s);
    jw_uint(jw, "max_running", timer->max_running);
    jw_int(jw, "jitter_ms", timer->jitter_ms);
    jw_uint(jw, "times", timer->times);
    jw_int(jw, "expire_ms", timer->expire_ms);
    jw_bytes(jw, "exclude", timer->exclude);
}

void jw_timer(struct jw *jw, const struct mr_timer_info *info)
{
    const struct mr_timer_options *timer = &info->timer;
    jw_object_begin(jw, NULL);
    jw_bytes(jw, "name", timer->name);
    jw_bytes(jw, "id", info->id);
    jw_bytes(jw, "app", timer->app);
    jw_uint(jw, "version", info->version);
    jw_text(jw, "kind", mr_timer_kind_name(timer->kind));
    jw_bytes(jw, "expression", timer->expression);
    jw_bytes(jw, "tz", timer->tz);
    jw_bytes(jw, "queue", timer->queue);
    jw_bytes(jw, "type", timer->type);
    jw_bytes(jw, "payload", timer->payload);
    jw_text(jw, "state", mr_timer_state_name(info->state));
    jw_int(jw, "next_ms", info->next_ms);
    jw_int(jw, "last_ms", info->last_ms);
    jw_text(jw, "misfire", mr_misfire_name(timer->misfire));
    jw_text(jw, "overlap", mr_overlap_name(timer->overlap));
    strategy_json(jw, timer);
    jw_int(jw, "start_ms", timer->start_ms);
    jw_int(jw, "end_ms", timer->end_ms);
    jw_uint(jw, "firings_total", info->firings_total);
    jw_int(jw, "created_ms", info->created_ms);
    limits_json(jw, timer);
    jw_headers(jw, timer->headers, timer->headers_n);
    jw_object_end(jw);
}

void jw_firing(struct jw *jw, const struct mr_firing_info *firing)
{
    jw_object_begin(jw, NULL);
    jw_bytes(jw, "timer", firing->timer);
    jw_bytes(jw, "app", firing->app);
    jw_int(jw, "planned_ms", firing->planned_ms);
    jw_int(jw, "until_ms", firing->until_ms);
    jw_text(jw, "state", mr_firing_state_name(firing->state));
    jw_text(jw, "cause", mr_firing_cause_name(firing->cause));
    jw_bytes(jw, "reason", firing->reason);
    jw_bytes(jw, "task_id", firing->task_id);
    jw_uint(jw, "run", firing->run);
    jw_uint(jw, "attempt", firing->attempt);
    jw_int(jw, "fired_ms", firing->fired_ms);
    jw_int(jw, "started_ms", firing->started_ms);
    jw_int(jw, "finished_ms", firing->finished_ms);
    jw_object_end(jw);
}
