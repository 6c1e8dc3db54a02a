/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time rules: one row of `kinds` for each. What is said in local time (cron, daily) goes through
 * mr_zone_latest_local and mr_zone_to_unix: the next firing is the first one of a local time that
 * no clock has shown yet, which is the whole treatment of daylight saving.
 */
#include "timer/rule.h"

#include <stdlib.h>

#include "base/text.h"
#include "timer/internal.h"

enum { DURATION_TEXT_MAX = 64, TIME_TEXT_MAX = 64 };

/* From..to by step, in seconds of the day they begin on; to may be on the next day. */
struct daily {
    int from, to, step;
    unsigned weekdays;
};

struct mr_rule {
    const struct mr_zone *zone;
    struct mr_calendar *calendar; /* or NULL */
    int64_t start_ms, end_ms, jitter_ms;
    uint64_t times;
    int64_t period_ms; /* every, after-done, delay */
    int64_t anchor_ms; /* every: one of the times; at, delay: the time */
    enum mr_timer_kind kind;
    union {
        struct cron cron;
        struct daily daily;
    };
};

struct kind {
    enum mr_err (*parse)(struct timer_text *text, struct mr_rule *rule);
    enum mr_err (*put)(const struct mr_rule *rule, struct mr_buf *buf);
    int64_t (*next)(const struct mr_rule *rule, int64_t after_ms);
};

static int64_t last_ms(void)
{
    return mr_date_to_days(MR_RULE_YEAR_MAX + 1, 1, 1) * MR_MS_PER_DAY - 1;
}

/* Rounds down. */
static int64_t floor_div(int64_t a, int64_t b)
{
    return a / b - (a % b < 0);
}

/* ---- days that are left ---------------------------------------------------------------------- */

static uint32_t open_days(const void *rule, const struct timer_month *month)
{
    return calendar_open_days(((const struct mr_rule *)rule)->calendar, month);
}

/* The moment itself when its day is open, else when the next open day begins. */
static int64_t open_from(const struct mr_rule *rule, int64_t at_ms)
{
    if (rule->calendar == NULL)
        return at_ms;
    int64_t at_s = floor_div(at_ms, MR_MS_PER_S);
    int64_t day = floor_div(at_s + mr_zone_offset(rule->zone, at_s), TIMER_S_PER_DAY);
    int64_t open = timer_days_next(open_days, rule, day);
    if (open == day)
        return at_ms;
    if (open == TIMER_NEVER)
        return MR_NEVER_MS;
    int64_t begins_ms = mr_zone_to_unix(rule->zone, open * TIMER_S_PER_DAY) * MR_MS_PER_S;
    return begins_ms > at_ms ? begins_ms : at_ms;
}

/* ---- local times ----------------------------------------------------------------------------- */

static int64_t cron_next_ms(const struct mr_rule *rule, int64_t after_ms)
{
    int64_t shown = mr_zone_latest_local(rule->zone, floor_div(after_ms, MR_MS_PER_S));
    int64_t local = cron_next(&rule->cron, rule->calendar, shown);
    return local == TIMER_NEVER ? MR_NEVER_MS : mr_zone_to_unix(rule->zone, local) * MR_MS_PER_S;
}

static uint32_t daily_days(const void *arg, const struct timer_month *month)
{
    const struct mr_rule *rule = arg;
    return timer_days_of(rule->daily.weekdays, month) & calendar_open_days(rule->calendar, month);
}

/* The first time of the window that begins on this day later than shown; TIMER_NEVER. */
static int64_t daily_in_window(const struct daily *daily, int64_t day, int64_t shown)
{
    int64_t from = day * TIMER_S_PER_DAY + daily->from, to = day * TIMER_S_PER_DAY + daily->to;
    int64_t local = from;
    if (shown >= from)
        local += ((shown - from) / daily->step + 1) * daily->step;
    return local <= to ? local : TIMER_NEVER;
}

static int64_t daily_next_ms(const struct mr_rule *rule, int64_t after_ms)
{
    int64_t shown = mr_zone_latest_local(rule->zone, floor_div(after_ms, MR_MS_PER_S));
    /* Yesterday's window may reach into today. */
    int64_t day = floor_div(shown, TIMER_S_PER_DAY) - 1;
    while ((day = timer_days_next(daily_days, rule, day)) != TIMER_NEVER) {
        int64_t local = daily_in_window(&rule->daily, day, shown);
        if (local != TIMER_NEVER)
            return mr_zone_to_unix(rule->zone, local) * MR_MS_PER_S;
        day++;
    }
    return MR_NEVER_MS;
}

/* ---- spans of time --------------------------------------------------------------------------- */

/* The first time of the row at or after from_ms. */
static int64_t row_from(const struct mr_rule *rule, int64_t from_ms)
{
    int64_t steps = floor_div(from_ms - rule->anchor_ms - 1, rule->period_ms) + 1;
    return rule->anchor_ms + (steps > 0 ? steps : 0) * rule->period_ms;
}

static int64_t every_next_ms(const struct mr_rule *rule, int64_t after_ms)
{
    int64_t at = row_from(rule, after_ms + 1);
    while (at <= last_ms()) {
        int64_t open = open_from(rule, at);
        if (open == at)
            return at;
        if (open == MR_NEVER_MS)
            break;
        at = row_from(rule, open);
    }
    return MR_NEVER_MS;
}

static int64_t after_done_next_ms(const struct mr_rule *rule, int64_t after_ms)
{
    return open_from(rule, after_ms + rule->period_ms);
}

static int64_t once_next_ms(const struct mr_rule *rule, int64_t after_ms)
{
    return rule->anchor_ms > after_ms && open_from(rule, rule->anchor_ms) == rule->anchor_ms
               ? rule->anchor_ms
               : MR_NEVER_MS;
}

static int64_t manual_next_ms(const struct mr_rule *rule, int64_t after_ms)
{
    (void)rule;
    (void)after_ms;
    return MR_NEVER_MS;
}

/* ---- reading --------------------------------------------------------------------------------- */

static enum mr_err parse_cron(struct timer_text *text, struct mr_rule *rule)
{
    return cron_parse(mr_slice_make(text->begin, (size_t)(text->end - text->begin)), &rule->cron,
                      text->detail);
}

/* The rest of the text as a string. */
static bool copy_rest(const struct timer_text *text, char *copy, size_t size)
{
    size_t len = (size_t)(text->end - text->at);
    if (len >= size || (len > 0 && memchr(text->at, '\0', len) != NULL))
        return false;
    if (len > 0)
        memcpy(copy, text->at, len);
    copy[len] = '\0';
    return true;
}

static enum mr_err read_duration(struct timer_text *text, int64_t *ret_ms)
{
    char copy[DURATION_TEXT_MAX];
    int64_t ms;
    if (!copy_rest(text, copy, sizeof copy) || mr_parse_duration_ms(copy, &ms) != MR_OK)
        return timer_wrong(text, text->at, "'%.*s' is no duration; expected 30s, 5m, 1h30m or 7d",
                           timer_shown(text, text->at), text->at);
    if (ms < 1 || ms > MR_RULE_PERIOD_MAX_MS)
        return timer_wrong(text, text->at, "expected a duration from 1ms to 36525d");
    *ret_ms = ms;
    text->at = text->end;
    return MR_OK;
}

static enum mr_err parse_period(struct timer_text *text, struct mr_rule *rule)
{
    return read_duration(text, &rule->period_ms);
}

static enum mr_err parse_delay(struct timer_text *text, struct mr_rule *rule)
{
    MR_TRY(read_duration(text, &rule->period_ms));
    rule->anchor_ms += rule->period_ms;
    if (rule->anchor_ms > last_ms())
        return timer_wrong(text, text->begin, "no firing is later than %d", MR_RULE_YEAR_MAX);
    return MR_OK;
}

static enum mr_err parse_at(struct timer_text *text, struct mr_rule *rule)
{
    char copy[TIME_TEXT_MAX];
    if (!copy_rest(text, copy, sizeof copy) || mr_parse_time_ms(copy, &rule->anchor_ms) != MR_OK)
        return timer_wrong(
            text, text->at,
            "'%.*s' is no time; expected 2026-12-24T18:00:00+01:00 (or Z), or Unix seconds",
            timer_shown(text, text->at), text->at);
    if (rule->anchor_ms < 0 || rule->anchor_ms > last_ms())
        return timer_wrong(text, text->at, "the year is not within %d-%d", MR_RULE_YEAR_MIN,
                           MR_RULE_YEAR_MAX);
    return MR_OK;
}

/* "09:00" or "09:00:30"; 24:00 is the end of the day. */
static enum mr_err read_time_of_day(struct timer_text *text, int *ret_s)
{
    static const char expected[] = "a time of day like 09:00";
    const char *from = text->at;
    int hour, minute, second = 0;
    MR_TRY(timer_read_number(text, expected, &hour));
    if (!timer_accept(text, ':'))
        return timer_wrong(text, text->at, "expected %s", expected);
    MR_TRY(timer_read_number(text, expected, &minute));
    if (timer_accept(text, ':'))
        MR_TRY(timer_read_number(text, expected, &second));
    int of_day = hour * 3600 + minute * 60 + second;
    if (minute > 59 || second > 59 || of_day > TIMER_S_PER_DAY)
        return timer_wrong(text, from, "expected %s, at most 24:00", expected);
    *ret_s = of_day;
    return MR_OK;
}

static enum mr_err read_daily_step(struct timer_text *text, struct daily *daily)
{
    const char *end = text->end, *from = text->at;
    const char *days = memchr(from, '@', (size_t)(end - from));
    int64_t ms;
    text->end = days != NULL ? days : end;
    MR_TRY(read_duration(text, &ms));
    if (ms % MR_MS_PER_S != 0 || ms > MR_MS_PER_DAY)
        return timer_wrong(text, from, "expected whole seconds, at most 1d");
    daily->step = (int)(ms / MR_MS_PER_S);
    text->end = end;
    return MR_OK;
}

static enum mr_err parse_daily(struct timer_text *text, struct mr_rule *rule)
{
    struct daily *daily = &rule->daily;
    static const char form[] = "FROM-TO/D[@DAYS], like 09:00-18:00/10m@mon-fri";
    MR_TRY(read_time_of_day(text, &daily->from));
    if (!timer_accept(text, '-'))
        return timer_wrong(text, text->at, "expected %s", form);
    const char *to_at = text->at;
    MR_TRY(read_time_of_day(text, &daily->to));
    if (!timer_accept(text, '/'))
        return timer_wrong(text, text->at, "expected %s", form);
    if (daily->from == TIMER_S_PER_DAY || daily->from == daily->to)
        return timer_wrong(text, to_at, "from %s; for a whole day write 00:00-24:00/D",
                           daily->from == daily->to ? "and to are the same" : "24:00 is tomorrow");
    if (daily->to < daily->from)
        daily->to += TIMER_S_PER_DAY;
    MR_TRY(read_daily_step(text, daily));
    daily->weekdays = 0x7f;
    return timer_accept(text, '@') ? timer_read_weekdays(text, &daily->weekdays) : MR_OK;
}

static enum mr_err parse_manual(struct timer_text *text, struct mr_rule *rule)
{
    (void)rule;
    return text->begin == text->end
               ? MR_OK
               : timer_wrong(text, text->begin, "what fires on demand only has no expression");
}

/* ---- writing --------------------------------------------------------------------------------- */

static enum mr_err put_cron(const struct mr_rule *rule, struct mr_buf *buf)
{
    return cron_put(&rule->cron, buf);
}

/* All units, unlike what is shown to people: nothing may be lost. */
static enum mr_err put_duration(int64_t ms, struct mr_buf *buf)
{
    static const struct {
        const char *name;
        int64_t ms;
    } units[] = {{"d", 86400000}, {"h", 3600000}, {"m", 60000}, {"s", 1000}, {"ms", 1}};
    for (size_t i = 0; i < sizeof units / sizeof units[0]; i++) {
        if (ms >= units[i].ms)
            MR_TRY(mr_buf_printf(buf, "%lld%s", (long long)(ms / units[i].ms), units[i].name));
        ms %= units[i].ms;
    }
    return MR_OK;
}

static enum mr_err put_period(const struct mr_rule *rule, struct mr_buf *buf)
{
    return put_duration(rule->period_ms, buf);
}

static enum mr_err put_at(const struct mr_rule *rule, struct mr_buf *buf)
{
    char text[32];
    mr_format_time_ms(rule->anchor_ms, text);
    return mr_buf_printf(buf, "%s", text);
}

static enum mr_err put_time_of_day(int of_day, struct mr_buf *buf)
{
    MR_TRY(mr_buf_printf(buf, "%02d:%02d", of_day / 3600, of_day / 60 % 60));
    return of_day % 60 != 0 ? mr_buf_printf(buf, ":%02d", of_day % 60) : MR_OK;
}

static enum mr_err put_daily(const struct mr_rule *rule, struct mr_buf *buf)
{
    const struct daily *daily = &rule->daily;
    MR_TRY(put_time_of_day(daily->from, buf));
    MR_TRY(mr_buf_append(buf, "-", 1));
    MR_TRY(put_time_of_day(daily->to > TIMER_S_PER_DAY ? daily->to - TIMER_S_PER_DAY : daily->to,
                           buf));
    MR_TRY(mr_buf_append(buf, "/", 1));
    MR_TRY(put_duration(daily->step * MR_MS_PER_S, buf));
    if (daily->weekdays == 0x7f)
        return MR_OK;
    MR_TRY(mr_buf_append(buf, "@", 1));
    return timer_put_weekdays(daily->weekdays, buf);
}

static enum mr_err put_nothing(const struct mr_rule *rule, struct mr_buf *buf)
{
    (void)rule;
    (void)buf;
    return MR_OK;
}

/* ---- kinds ----------------------------------------------------------------------------------- */

static const struct kind kinds[MR_TIMER_KIND_COUNT] = {
    [MR_TIMER_CRON] = {parse_cron, put_cron, cron_next_ms},
    [MR_TIMER_EVERY] = {parse_period, put_period, every_next_ms},
    [MR_TIMER_AFTER_DONE] = {parse_period, put_period, after_done_next_ms},
    [MR_TIMER_AT] = {parse_at, put_at, once_next_ms},
    [MR_TIMER_DELAY] = {parse_delay, put_period, once_next_ms},
    [MR_TIMER_DAILY] = {parse_daily, put_daily, daily_next_ms},
    [MR_TIMER_MANUAL] = {parse_manual, put_nothing, manual_next_ms},
};

/* ---- the whole ------------------------------------------------------------------------------- */

static enum mr_err check_options(const struct mr_rule_options *options, struct mr_detail *detail)
{
    const char *fault = NULL;
    int64_t last = last_ms();
    if (options->created_ms < 0 || options->created_ms > last)
        fault = "created: the year is not within 1970-2199";
    else if (options->start_ms < 0 || options->start_ms > last)
        fault = "start: the year is not within 1970-2199";
    else if (options->end_ms < 0)
        fault = "end: before 1970";
    else if (options->end_ms != 0 && options->end_ms < options->start_ms)
        fault = "end is before start; nothing would ever fire";
    else if (options->jitter_ms < 0 || options->jitter_ms > MR_RULE_PERIOD_MAX_MS)
        fault = "jitter: expected a duration of at most 36525d";
    if (fault == NULL)
        return MR_OK;
    mr_detail_set(detail, "%s", fault);
    return MR_INVALID;
}

/* Asynq and others write a fixed rate so. */
static bool is_every(const struct mr_rule_options *options)
{
    return options->kind == MR_TIMER_CRON &&
           mr_slice_starts_with(options->expression, MR_SLICE_LIT("@every "));
}

static enum mr_err parse_expression(const struct mr_rule_options *options, struct mr_rule *rule,
                                    struct mr_detail *detail)
{
    const char *begin = options->expression.len > 0 ? options->expression.data : "";
    struct timer_text text = {mr_timer_kind_name(options->kind), begin, begin,
                              begin + options->expression.len, detail};
    rule->kind = options->kind;
    rule->anchor_ms = options->created_ms;
    if (is_every(options)) {
        rule->kind = MR_TIMER_EVERY;
        text.at += sizeof "@every " - 1;
    }
    if (rule->kind == MR_TIMER_EVERY && options->start_ms != 0)
        rule->anchor_ms = options->start_ms;
    return kinds[rule->kind].parse(&text, rule);
}

/* What cannot fire whenever it is asked is a mistake. What has fired already is none. */
static enum mr_err check_fires(const struct mr_rule *rule, struct mr_detail *detail)
{
    if (rule->kind == MR_TIMER_MANUAL || mr_rule_next(rule, 0, -1) != MR_NEVER_MS)
        return MR_OK;
    mr_detail_set(detail, "nothing would ever fire; look at start, end and exclude");
    return MR_INVALID;
}

enum mr_err mr_rule_new(struct mr_zones *zones, const struct mr_rule_options *options,
                        struct mr_rule **ret_rule, struct mr_detail *detail)
{
    mr_assert(options->kind < MR_TIMER_KIND_COUNT);
    MR_TRY(check_options(options, detail));
    struct mr_rule *rule = calloc(1, sizeof *rule);
    if (rule == NULL)
        return MR_NOMEM;
    rule->start_ms = options->start_ms;
    rule->end_ms = options->end_ms;
    rule->jitter_ms = options->jitter_ms;
    rule->times = options->times;
    enum mr_err err = mr_zones_get(zones, options->tz, &rule->zone, detail);
    if (err == MR_OK)
        err = parse_expression(options, rule, detail);
    if (err == MR_OK && options->exclude.len > 0)
        err = calendar_parse(options->exclude, &rule->calendar, detail);
    if (err == MR_OK)
        err = check_fires(rule, detail);
    if (err == MR_OK)
        *ret_rule = rule;
    else
        mr_rule_free(rule);
    return err;
}

void mr_rule_free(struct mr_rule *rule)
{
    if (rule == NULL)
        return;
    calendar_free(rule->calendar);
    free(rule);
}

enum mr_timer_kind mr_rule_kind_of(const struct mr_rule *rule)
{
    return rule->kind;
}

enum mr_err mr_rule_put(const struct mr_rule *rule, struct mr_buf *buf)
{
    return kinds[rule->kind].put(rule, buf);
}

enum mr_err mr_rule_put_exclude(const struct mr_rule *rule, struct mr_buf *buf)
{
    return rule->calendar != NULL ? calendar_put(rule->calendar, buf) : MR_OK;
}

const struct mr_zone *mr_rule_zone(const struct mr_rule *rule)
{
    return rule->zone;
}

/* What is said in local time ends with the last year of its own clock, which no day of it goes
 * beyond: that may be some hours later. */
static int64_t last_of(const struct mr_rule *rule)
{
    bool local = rule->kind == MR_TIMER_CRON || rule->kind == MR_TIMER_DAILY;
    return last_ms() + (local ? 3 * MR_MS_PER_DAY : 0);
}

int64_t mr_rule_next(const struct mr_rule *rule, uint64_t fired, int64_t after_ms)
{
    if (rule->times != 0 && fired >= rule->times)
        return MR_NEVER_MS;
    int64_t last = last_of(rule);
    if (after_ms > last)
        return MR_NEVER_MS;
    if (after_ms < -1)
        after_ms = -1;
    int64_t at;
    if (rule->kind == MR_TIMER_AFTER_DONE) {
        at = kinds[rule->kind].next(rule, after_ms);
        if (at < rule->start_ms)
            at = open_from(rule, rule->start_ms);
    } else {
        int64_t before_start = rule->start_ms - 1;
        at = kinds[rule->kind].next(rule, after_ms > before_start ? after_ms : before_start);
    }
    bool within = at <= last && (rule->end_ms == 0 || at <= rule->end_ms);
    return within ? at : MR_NEVER_MS;
}

/* ---- jitter ---------------------------------------------------------------------------------- */

/* Even in 0 .. span-1, from the timer and the time alone. */
static int64_t chance(const struct mr_uuid *uid, int64_t planned_ms, int64_t span)
{
    static const struct mr_hash_key key = {0x6a69747465726d72, 0x2d74696d65722d31};
    uint8_t bytes[sizeof uid->bytes + sizeof planned_ms];
    memcpy(bytes, uid->bytes, sizeof uid->bytes);
    mr_store64(bytes + sizeof uid->bytes, (uint64_t)planned_ms);
    struct mr_uuid hash = mr_hash128(key, mr_slice_make(bytes, sizeof bytes));
    return (int64_t)(mr_load64(hash.bytes) % (uint64_t)span);
}

int64_t mr_rule_fire_ms(const struct mr_rule *rule, const struct mr_uuid *uid, int64_t planned_ms)
{
    int64_t span = rule->jitter_ms;
    if (rule->end_ms != 0 && rule->end_ms - planned_ms < span)
        span = rule->end_ms - planned_ms;
    if (rule->kind != MR_TIMER_AFTER_DONE) {
        int64_t next = mr_rule_next(rule, 0, planned_ms);
        if (next != MR_NEVER_MS && next - planned_ms < span)
            span = next - planned_ms;
    }
    return span > 0 ? planned_ms + chance(uid, planned_ms, span) : planned_ms;
}
