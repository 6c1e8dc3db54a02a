/* SPDX-License-Identifier: Apache-2.0 */
/* Timers and firings for people. */
#include <stdarg.h>
#include <stdlib.h>

#include "base/date.h"
#include "base/text.h"
#include "cli/timer.h"
#include "wire/task.h"
#include "wire/timer_json.h"

/* ---- times ----------------------------------------------------------------------------------- */

const struct mr_zone *timer_zone(struct mr_slice tz)
{
    static struct mr_zones *zones;
    const struct mr_zone *zone = NULL;
    if (zones == NULL)
        cli_must(mr_zones_new(mr_fs_system(), NULL, &zones));
    if (mr_zones_get(zones, tz, &zone, NULL) != MR_OK)
        cli_must(mr_zones_get(zones, mr_slice_str(""), &zone, NULL));
    return zone;
}

void timer_local(const struct mr_zone *zone, int64_t ms, char text[40])
{
    enum { DAY_S = 86400, HOUR_S = 3600, MINUTE_S = 60 };
    int64_t unix_s = ms / MR_MS_PER_S;
    int32_t offset = mr_zone_offset(zone, unix_s);
    int64_t local_s = unix_s + offset;
    int64_t days = (local_s - (local_s < 0 ? DAY_S - 1 : 0)) / DAY_S;
    int rest = (int)(local_s - days * DAY_S), away = offset < 0 ? -offset : offset;
    struct mr_date date = mr_date_from_days(days);
    int n = snprintf(text, 40, "%04d-%02d-%02dT%02d:%02d:%02d", date.year, date.month, date.day,
                     rest / HOUR_S, rest % HOUR_S / MINUTE_S, rest % MINUTE_S);
    if (ms % MR_MS_PER_S != 0)
        n += snprintf(text + n, (size_t)(40 - n), ".%03d", (int)(ms % MR_MS_PER_S));
    if (offset == 0)
        (void)snprintf(text + n, (size_t)(40 - n), "Z");
    else
        (void)snprintf(text + n, (size_t)(40 - n), "%c%02d:%02d", offset < 0 ? '-' : '+',
                       away / HOUR_S, away % HOUR_S / MINUTE_S);
}

/* ---- tables ---------------------------------------------------------------------------------- */

static const struct out_column timer_columns[] = {
    {"NAME", OUT_LEFT},
    {"APP", OUT_LEFT | OUT_SPARE(4)},
    {"WHEN", OUT_STRETCH},
    {"STATE", OUT_LEFT},
    {"NEXT", OUT_LEFT | OUT_SPARE(1)},
    {"LAST", OUT_LEFT | OUT_SPARE(2)},
    {"FIRED", OUT_RIGHT | OUT_SPARE(3)},
};

struct out_table *timer_table(void)
{
    return out_table_new(timer_columns, CLI_LEN(timer_columns));
}

static enum out_colour timer_colour(enum mr_timer_state state)
{
    return state == MR_TIMER_ACTIVE ? OUT_GREEN : state == MR_TIMER_PAUSED ? OUT_YELLOW : OUT_DIM;
}

/* "cron 0 9 * * * Europe/Berlin" */
static void when_text(struct mr_buf *text, const struct mr_timer_options *timer)
{
    cli_must(mr_buf_printf(text, "%s", mr_timer_kind_name(timer->kind)));
    const struct mr_slice parts[] = {timer->expression, timer->tz};
    for (size_t i = 0; i < CLI_LEN(parts); i++) {
        if (parts[i].len == 0)
            continue;
        cli_must(mr_buf_append(text, " ", 1));
        cli_must(mr_buf_append_slice(text, parts[i]));
    }
}

void timer_row(struct out_table *table, const struct mr_timer_info *info)
{
    struct mr_buf when = {0};
    char next[48], last[48];
    int64_t now_ms = out_now_ms();
    when_text(&when, &info->timer);
    out_relative(info->next_ms, now_ms, next);
    out_relative(info->last_ms, now_ms, last);
    out_cell_bytes(table, OUT_BOLD, info->timer.name);
    out_cell_bytes(table, OUT_PLAIN, info->timer.app);
    out_cell_bytes(table, OUT_PLAIN, mr_buf_slice(&when));
    out_cell(table, timer_colour(info->state), mr_timer_state_name(info->state));
    out_cell(table, OUT_PLAIN, next);
    out_cell(table, OUT_PLAIN, last);
    out_cellf(table, OUT_PLAIN, "%llu", (unsigned long long)info->firings_total);
    mr_buf_done(&when);
}

static const struct out_column firing_columns[] = {
    {"PLANNED", OUT_LEFT},
    {"STATE", OUT_LEFT},
    {"RUN", OUT_RIGHT | OUT_SPARE(5)},
    {"ATTEMPT", OUT_RIGHT | OUT_SPARE(4)},
    {"FIRED", OUT_LEFT | OUT_SPARE(3)},
    {"TOOK", OUT_LEFT | OUT_SPARE(2)},
    {"TASK", OUT_LEFT | OUT_SPARE(1)},
    {"REASON", OUT_STRETCH},
};

struct out_table *firing_table(void)
{
    return out_table_new(firing_columns, CLI_LEN(firing_columns));
}

static enum out_colour firing_colour(enum mr_firing_state state)
{
    static const enum out_colour colours[MR_FIRING_STATE_COUNT] = {
        [MR_FIRING_RUNNING] = OUT_CYAN,    [MR_FIRING_FAILED] = OUT_RED,
        [MR_FIRING_SUCCEEDED] = OUT_GREEN, [MR_FIRING_SKIPPED] = OUT_YELLOW,
        [MR_FIRING_MISFIRED] = OUT_YELLOW, [MR_FIRING_STOPPED] = OUT_YELLOW,
        [MR_FIRING_CANCELLED] = OUT_DIM,
    };
    return colours[state];
}

void firing_row(struct out_table *table, const struct mr_firing_info *firing)
{
    char planned[40], until[40], fired[48], took[32] = "-";
    const struct mr_zone *utc = timer_zone(mr_slice_str(""));
    timer_local(utc, firing->planned_ms, planned);
    timer_local(utc, firing->until_ms, until);
    out_relative(firing->fired_ms, out_now_ms(), fired);
    if (firing->started_ms > 0 && firing->finished_ms >= firing->started_ms)
        mr_format_duration_ms(firing->finished_ms - firing->started_ms, took);
    out_cellf(table, OUT_PLAIN, "%s%s%s", planned, firing->until_ms ? " to " : "",
              firing->until_ms ? until : "");
    out_cell(table, firing_colour(firing->state), mr_firing_state_name(firing->state));
    out_cellf(table, OUT_PLAIN, "%u", firing->run);
    out_cellf(table, OUT_PLAIN, "%u", firing->attempt);
    out_cell(table, OUT_PLAIN, fired);
    out_cell(table, OUT_PLAIN, took);
    out_cell_bytes(table, OUT_PLAIN, firing->task_id.len ? firing->task_id : mr_slice_str("-"));
    out_cell_bytes(table, OUT_PLAIN, firing->reason);
}

/* ---- one timer ------------------------------------------------------------------------------- */

static void number_text(const char *name, uint64_t value)
{
    char text[32];
    if (value == 0)
        return;
    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    show_field(name, OUT_PLAIN, text);
}

static void task_text(const struct mr_timer_options *timer)
{
    show_bytes("queue", OUT_PLAIN, timer->queue);
    show_bytes("type", OUT_PLAIN, timer->type);
    if (timer->priority_s != 0) {
        char priority[48];
        snprintf(priority, sizeof priority, "%g s ahead", timer->priority_s);
        show_field("priority", OUT_PLAIN, priority);
    }
    if (mr_timer_max_retry(timer) == 0)
        show_field("retry", OUT_PLAIN, "none");
    number_text("retry", (uint64_t)mr_timer_max_retry(timer));
    show_span("timeout", mr_timer_timeout_ms(timer));
    show_span("expires", timer->expire_ms);
    show_headers(timer->headers, timer->headers_n);
    show_bytes("payload", OUT_PLAIN, timer->payload);
}

static void policy_text(const struct mr_timer_options *timer)
{
    struct mr_buf strategy = {0};
    cli_must(mr_timer_strategy_text(timer, &strategy));
    show_field("misfire", OUT_PLAIN, mr_misfire_name(timer->misfire));
    show_field("overlap", OUT_PLAIN, mr_overlap_name(timer->overlap));
    number_text("max running", timer->max_running);
    show_bytes("strategy", OUT_PLAIN, mr_buf_slice(&strategy));
    mr_buf_done(&strategy);
}

void timer_text(const struct mr_timer_info *info, const int64_t *next_ms, size_t n)
{
    const struct mr_timer_options *timer = &info->timer;
    char version[32], at[40];
    snprintf(version, sizeof version, "%llu", (unsigned long long)info->version);
    show_bytes("name", OUT_BOLD, timer->name);
    show_bytes("app", OUT_PLAIN, timer->app);
    show_bytes("id", OUT_PLAIN, info->id);
    show_field("version", OUT_PLAIN, version);
    show_field("state", timer_colour(info->state), mr_timer_state_name(info->state));
    show_field("kind", OUT_PLAIN, mr_timer_kind_name(timer->kind));
    show_bytes("expression", OUT_PLAIN, timer->expression);
    show_bytes("zone", OUT_PLAIN, timer->tz);
    show_bytes("exclude", OUT_PLAIN, timer->exclude);
    show_span("jitter", timer->jitter_ms);
    show_time("start", timer->start_ms);
    show_time("end", timer->end_ms);
    number_text("times", timer->times);
    policy_text(timer);
    task_text(timer);
    show_time("created", info->created_ms);
    show_time("last", info->last_ms);
    number_text("fired", info->firings_total);
    for (size_t i = 0; i < n; i++) {
        timer_local(timer_zone(timer->tz), next_ms[i], at);
        show_field(i == 0 ? "next" : "", OUT_CYAN, at);
    }
}

/* ---- all of them ----------------------------------------------------------------------------- */

#define FIGURE(member, name)                                                                       \
    {                                                                                              \
        offsetof(struct mr_timer_status, member), name                                             \
    }

/* In the order of TimerStatusResponse. */
static const struct {
    size_t offset;
    const char *name;
} figures[] = {
    FIGURE(active, "active"),
    FIGURE(paused, "paused"),
    FIGURE(finished, "finished"),
    FIGURE(waiting, "operations_waiting"),
    FIGURE(retrying, "operations_retrying"),
    FIGURE(dead, "operations_dead"),
    FIGURE(wait_p50_us, "operations_wait_p50_us"),
    FIGURE(wait_p99_us, "operations_wait_p99_us"),
    FIGURE(fired, "fired"),
    FIGURE(caught_up, "caught_up"),
    FIGURE(skipped, "skipped"),
    FIGURE(misfired, "misfired"),
    FIGURE(succeeded, "succeeded"),
    FIGURE(failed, "failed"),
    FIGURE(applied, "applied"),
    FIGURE(stale, "stale"),
    FIGURE(retried, "retried"),
    FIGURE(rejected, "rejected"),
    FIGURE(ownership_taken, "ownership_taken"),
    FIGURE(ownership_lost, "ownership_lost"),
    FIGURE(lateness_p50_us, "lateness_p50_us"),
    FIGURE(lateness_p99_us, "lateness_p99_us"),
};

void timer_status_json(struct jw *jw, const struct mr_timer_status *status)
{
    jw_object_begin(jw, NULL);
    jw_bytes(jw, "store", status->store);
    jw_bytes(jw, "store_problem", status->problem);
    jw_array_begin(jw, "apps");
    for (size_t i = 0; i < status->apps_n; i++) {
        jw_object_begin(jw, NULL);
        jw_bytes(jw, "app", status->apps[i].app);
        jw_bytes(jw, "owner", status->apps[i].owner);
        jw_uint(jw, "token", status->apps[i].token);
        jw_int(jw, "until_ms", status->apps[i].until_ms);
        jw_object_end(jw);
    }
    jw_array_end(jw);
    for (size_t i = 0; i < CLI_LEN(figures); i++)
        jw_uint(jw, figures[i].name,
                *(const uint64_t *)(const void *)((const char *)status + figures[i].offset));
    jw_int(jw, "operations_oldest_ms", status->oldest_ms);
    jw_object_end(jw);
}

static void count_text(const char *name, const char *fmt, ...) MR_PRINTF(2, 3);

static void count_text(const char *name, const char *fmt, ...)
{
    char text[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    show_field(name, OUT_PLAIN, text);
}

#define N(value) ((unsigned long long)(value))

void timer_status_text(const struct mr_timer_status *status)
{
    char p50[32], p99[32], wait[32];
    out_latency(status->lateness_p50_us, p50);
    out_latency(status->lateness_p99_us, p99);
    out_latency(status->wait_p99_us, wait);
    show_bytes("store", OUT_BOLD, status->store);
    show_bytes("problem", OUT_RED, status->problem);
    count_text("timers", "%llu active, %llu paused, %llu finished", N(status->active),
               N(status->paused), N(status->finished));
    count_text("operations", "%llu waiting, %llu to be tried again, %llu dead; wait p99 %s",
               N(status->waiting), N(status->retrying), N(status->dead), wait);
    count_text("applied", "%llu, %llu stale, %llu tried again, %llu rejected", N(status->applied),
               N(status->stale), N(status->retried), N(status->rejected));
    count_text("fired", "%llu (%llu late), %llu skipped, %llu misfired", N(status->fired),
               N(status->caught_up), N(status->skipped), N(status->misfired));
    count_text("ended", "%llu succeeded, %llu failed", N(status->succeeded), N(status->failed));
    count_text("lateness", "p50 %s, p99 %s", p50, p99);
    count_text("ownership", "taken %llu times, lost %llu times", N(status->ownership_taken),
               N(status->ownership_lost));
    for (size_t i = 0; i < status->apps_n; i++) {
        const struct mr_timer_app *app = &status->apps[i];
        struct mr_buf line = {0};
        cli_must(mr_buf_append_slice(&line, app->app));
        cli_must(mr_buf_printf(&line, " by "));
        cli_must(mr_buf_append_slice(&line, app->owner.len ? app->owner : mr_slice_str("nobody")));
        show_bytes("app", app->owner.len ? OUT_PLAIN : OUT_YELLOW, mr_buf_slice(&line));
        mr_buf_done(&line);
    }
}
