/* SPDX-License-Identifier: Apache-2.0 */
/* Time rules: what they say, what they refuse and how, when they fire. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/text.h"
#include "timer/rule.h"
#include "unit/failing_alloc.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static struct mr_zones *zones;

static int open_zones(void **state)
{
    (void)state;
    return mr_zones_new(mr_fs_system(), NULL, &zones) == MR_OK ? 0 : -1;
}

static int close_zones(void **state)
{
    (void)state;
    mr_zones_free(zones);
    return 0;
}

static int64_t ms_of(const char *text)
{
    int64_t ms;
    if (mr_parse_time_ms(text, &ms) != MR_OK)
        fail_msg("'%s' is no time", text);
    return ms;
}

static struct mr_rule *rule_of(const struct mr_rule_options *options)
{
    struct mr_rule *rule = NULL;
    struct mr_detail detail = {0};
    if (mr_rule_new(zones, options, &rule, &detail) != MR_OK)
        fail_msg("'%.*s': %s", (int)options->expression.len, (const char *)options->expression.data,
                 detail.text);
    return rule;
}

static struct mr_rule *rule_in(enum mr_timer_kind kind, const char *expression, const char *tz)
{
    return rule_of(&(struct mr_rule_options){
        .kind = kind, .expression = mr_slice_str(expression), .tz = mr_slice_str(tz)});
}

/* The next firings after `after` are these, then (after fewer than n) none. */
static void check_firings(struct mr_rule *rule, const char *after, const char *const *expected,
                          size_t n)
{
    int64_t at = ms_of(after);
    for (size_t i = 0; i < n; i++) {
        at = mr_rule_next(rule, i, at);
        char shown[32] = "never";
        if (at != MR_NEVER_MS)
            mr_format_time_ms(at, shown);
        int64_t wanted = expected[i] != NULL ? ms_of(expected[i]) : MR_NEVER_MS;
        if (at != wanted)
            fail_msg("firing %zu: %s, expected %s", i, shown,
                     expected[i] != NULL ? expected[i] : "never");
    }
    mr_rule_free(rule);
}

#define CHECK_FIRINGS(rule, after, ...)                                                            \
    do {                                                                                           \
        static const char *const expected_[] = {__VA_ARGS__};                                      \
        check_firings(rule, after, expected_, COUNT(expected_));                                   \
    } while (0)

static char *text_of(const struct mr_rule *rule)
{
    static struct mr_buf buf;
    mr_buf_clear(&buf);
    assert_int_equal(mr_rule_put(rule, &buf), MR_OK);
    assert_int_equal(mr_buf_append(&buf, "", 1), MR_OK);
    static char text[2048];
    assert_true(buf.len <= sizeof text);
    memcpy(text, buf.data, buf.len);
    mr_buf_done(&buf);
    buf = (struct mr_buf){0};
    return text;
}

/* ---- texts ----------------------------------------------------------------------------------- */

struct canonical {
    enum mr_timer_kind kind;
    const char *text, *canonical;
};

static void rules_that_mean_the_same_have_the_same_text(void **state)
{
    (void)state;
    static const struct canonical cases[] = {
        {MR_TIMER_CRON, "* * * * *", "* * * * *"},
        {MR_TIMER_CRON, "0 * * * * *", "* * * * *"},
        {MR_TIMER_CRON, "* * * * * *", "* * * * * *"},
        {MR_TIMER_CRON, "0 0 0 1 1 ? *", "0 0 1 1 *"},
        {MR_TIMER_CRON, "0 0 0 1 1 ? 2030-2032", "0 0 0 1 1 * 2030-2032"},
        {MR_TIMER_CRON, "  5\t4 * * *  ", "5 4 * * *"},
        {MR_TIMER_CRON, "0,15,30,45 * * * *", "*/15 * * * *"},
        {MR_TIMER_CRON, "0/15 0-23 * * *", "*/15 * * * *"},
        {MR_TIMER_CRON, "0/15 0-23 * JAN-DEC ?", "*/15 * * * *"},
        {MR_TIMER_CRON, "5/15 * * * *", "5-50/15 * * * *"},
        {MR_TIMER_CRON, "30,0 * * * *", "0,30 * * * *"},
        {MR_TIMER_CRON, "1,2,3,7 * * * *", "1-3,7 * * * *"},
        {MR_TIMER_CRON, "0 22-2 * * *", "0 0-2,22,23 * * *"},
        {MR_TIMER_CRON, "0 22-4/2 * * *", "0 0-4/2,22 * * *"},
        {MR_TIMER_CRON, "0 9 * jan,Mar-may mon-FRI", "0 9 * 1,3-5 1-5"},
        {MR_TIMER_CRON, "0 9 * NOV-FEB *", "0 9 * 1,2,11,12 *"},
        {MR_TIMER_CRON, "0 9 * * FRI-MON", "0 9 * * 0,1,5,6"},
        {MR_TIMER_CRON, "0 9 * * 7", "0 9 * * 0"},
        {MR_TIMER_CRON, "0 9 * * 5-7", "0 9 * * 0,5,6"},
        {MR_TIMER_CRON, "0 9 * * 7-2", "0 9 * * 0-2"},
        {MR_TIMER_CRON, "0 9 * * 7-7", "0 9 * * 0"},
        {MR_TIMER_CRON, "0 9 * * 0-7", "0 9 * * 0-6"},
        {MR_TIMER_CRON, "0 9 * * SUN-SAT", "0 9 * * 0-6"},
        {MR_TIMER_CRON, "0 9 */2 * *", "0 9 */2 * *"},
        {MR_TIMER_CRON, "0 9 1-31/2 * *", "0 9 1-31/2 * *"},
        {MR_TIMER_CRON, "0 9 */31 * */7", "0 9 */31 * */7"},
        {MR_TIMER_CRON, "0 9 L * ?", "0 9 L * *"},
        {MR_TIMER_CRON, "0 9 lw,l-2,15w,1,L-1W * ?", "0 9 1,15W,L-2,LW,L-1W * *"},
        {MR_TIMER_CRON, "0 9 ? * fril,MON#1,3#5", "0 9 * * 5L,1#1,3#5"},
        {MR_TIMER_CRON, "@hourly", "0 * * * *"},
        {MR_TIMER_CRON, "@Daily", "0 0 * * *"},
        {MR_TIMER_CRON, "@midnight", "0 0 * * *"},
        {MR_TIMER_CRON, "@weekly", "0 0 * * 0"},
        {MR_TIMER_CRON, "@monthly", "0 0 1 * *"},
        {MR_TIMER_CRON, "@yearly", "0 0 1 1 *"},
        {MR_TIMER_CRON, "@annually ", "0 0 1 1 *"},
        {MR_TIMER_CRON, "@every 90m", "1h30m"},
        {MR_TIMER_EVERY, "90m", "1h30m"},
        {MR_TIMER_EVERY, "1d2h3m4s5ms", "1d2h3m4s5ms"},
        {MR_TIMER_AFTER_DONE, "1000ms", "1s"},
        {MR_TIMER_AT, "2026-12-24T18:00:00+01:00", "2026-12-24T17:00:00.000Z"},
        {MR_TIMER_AT, "1000000000.5", "2001-09-09T01:46:40.500Z"},
        {MR_TIMER_DELAY, "1ms", "1ms"},
        {MR_TIMER_DAILY, "09:00-18:00/10m@MON-FRI", "09:00-18:00/10m@mon-fri"},
        {MR_TIMER_DAILY, "9:00-18:00/600s@1-5", "09:00-18:00/10m@mon-fri"},
        {MR_TIMER_DAILY, "00:00-24:00/1h@sun-sat", "00:00-24:00/1h"},
        {MR_TIMER_DAILY, "22:00:30-06:00/1h@sat,sun,wed", "22:00:30-06:00/1h@wed,sat-sun"},
        {MR_TIMER_MANUAL, "", ""},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct mr_rule *rule = rule_in(cases[i].kind, cases[i].text, "");
        const char *text = text_of(rule);
        if (strcmp(text, cases[i].canonical) != 0)
            fail_msg("'%s' became '%s', expected '%s'", cases[i].text, text, cases[i].canonical);
        struct mr_rule *again = rule_in(mr_rule_kind_of(rule), cases[i].canonical, "");
        assert_string_equal(text_of(again), cases[i].canonical);
        mr_rule_free(again);
        mr_rule_free(rule);
    }
}

static void kinds_have_names(void **state)
{
    (void)state;
    for (int kind = 0; kind < MR_TIMER_KIND_COUNT; kind++)
        assert_non_null(mr_timer_kind_name((enum mr_timer_kind)kind));
    assert_string_equal(mr_timer_kind_name(MR_TIMER_AFTER_DONE), "after-done");
    assert_null(mr_timer_kind_name(MR_TIMER_KIND_COUNT));
}

struct refusal {
    enum mr_timer_kind kind;
    const char *text, *detail;
};

static const struct refusal refusals[] = {
    {MR_TIMER_CRON, "", "cron, column 1: 0 fields; expected 5"},
    {MR_TIMER_CRON, "* * * *", "cron, column 8: 4 fields; expected 5"},
    {MR_TIMER_CRON, "* * * * * * * *", "cron, column 16: 8 fields"},
    {MR_TIMER_CRON, "60 * * * *", "cron, column 1: 60 is no minute; expected 0-59"},
    {MR_TIMER_CRON, "* 24 * * *", "cron, column 3: 24 is no hour; expected 0-23"},
    {MR_TIMER_CRON, "* * 0 * *", "cron, column 5: 0 is no day of month"},
    {MR_TIMER_CRON, "* * 32 * *", "cron, column 5: 32 is no day of month"},
    {MR_TIMER_CRON, "* * * 13 *", "cron, column 7: 13 is no month"},
    {MR_TIMER_CRON, "* * * * 8", "cron, column 9: 8 is no day of week"},
    {MR_TIMER_CRON, "* * * * * * 1969", "cron, column 13: 1969 is no year"},
    {MR_TIMER_CRON, "* * * * * * 2200", "cron, column 13: 2200 is no year"},
    {MR_TIMER_CRON, "* * * FOO *", "cron, column 7: 'FOO' is no month; expected 1-12 or JAN-DEC"},
    {MR_TIMER_CRON, "* * * JANUARY *", "cron, column 7: 'JANUARY' is no month"},
    {MR_TIMER_CRON, "*,,5 * * * *", "cron, column 3: '' is no minute"},
    {MR_TIMER_CRON, "5, * * * *", "cron, column 3: '' is no minute"},
    {MR_TIMER_CRON, "1,2,x * * * *", "cron, column 5: 'x' is no minute"},
    {MR_TIMER_CRON, "5-70 * * * *", "cron, column 3: 70 is no minute"},
    {MR_TIMER_CRON, "5- * * * *", "cron, column 1: '5-' is no minute"},
    {MR_TIMER_CRON, "*/0 * * * *", "cron, column 3: a step of 0 makes no sense for a minute"},
    {MR_TIMER_CRON, "*/90 * * * *",
     "cron, column 3: a step of 90 makes no sense for a minute; "
     "expected 1 to 60"},
    {MR_TIMER_CRON, "*/ * * * *", "cron, column 3: '' is no number; expected a step"},
    {MR_TIMER_CRON, "99999 * * * *", "cron, column 1: the number is too long"},
    {MR_TIMER_CRON, "? * * * *", "cron, column 1: '?' is no minute"},
    {MR_TIMER_CRON, "* * ?,1 * *", "cron, column 5: '?' is no day of month"},
    {MR_TIMER_CRON, "* * 20-10 * *", "cron, column 5: the range 20-10 goes backwards"},
    {MR_TIMER_CRON, "* * L-31 * *", "cron, column 7: no month has 31 days before its last one"},
    {MR_TIMER_CRON, "* * 5W-7 * *", "cron, column 5: '5W-7' is no day of month"},
    {MR_TIMER_CRON, "* * * * L", "cron, column 9: L alone is Saturday to some"},
    {MR_TIMER_CRON, "* * * * 5#6", "cron, column 11: no month has the same weekday 6 times"},
    {MR_TIMER_CRON, "* * * * MON#0", "cron, column 13: no month has the same weekday 0 times"},
    {MR_TIMER_CRON, "L * * * *", "cron, column 1: 'L' is no minute"},
    {MR_TIMER_CRON, "0 0 30 2 *", "cron, column 5: no date from 1970 to 2199 is like this"},
    {MR_TIMER_CRON, "0 0 0 29 2 ? 2100", "cron, column 7: no date from 1970 to 2199"},
    {MR_TIMER_CRON, "0 0 31 4,6,9,11 *", "cron, column 5: no date"},
    {MR_TIMER_CRON, "@fortnightly", "cron, column 1: '@fortnightly' is not known; expected @"},
    {MR_TIMER_CRON, "@reboot", "cron, column 1: '@reboot' is not known"},
    {MR_TIMER_CRON, "@every 5", "cron, column 8: '5' is no duration; expected 30s"},
    {MR_TIMER_EVERY, "", "every, column 1: '' is no duration"},
    {MR_TIMER_EVERY, "0s", "every, column 1: expected a duration from 1ms"},
    {MR_TIMER_EVERY, "36526d", "every, column 1: expected a duration from 1ms"},
    {MR_TIMER_AFTER_DONE, "fast", "after-done, column 1: 'fast' is no duration"},
    {MR_TIMER_AT, "tomorrow", "at, column 1: 'tomorrow' is no time; expected 2026-12-24T18"},
    {MR_TIMER_AT, "2200-01-01T00:00:00Z", "at, column 1: the year is not within 1970-2199"},
    {MR_TIMER_AT, "1969-12-31T23:59:59Z", "at, column 1: the year is not within"},
    {MR_TIMER_DELAY, "-5s", "delay, column 1: '-5s' is no duration"},
    {MR_TIMER_DAILY, "9-18/10m", "daily, column 2: expected a time of day like 09:00"},
    {MR_TIMER_DAILY, "09:00", "daily, column 6: expected FROM-TO/D[@DAYS]"},
    {MR_TIMER_DAILY, "09:00-18:00", "daily, column 12: expected FROM-TO/D[@DAYS]"},
    {MR_TIMER_DAILY, "09:60-18:00/1m", "daily, column 1: expected a time of day"},
    {MR_TIMER_DAILY, "09:00-24:01/1m", "daily, column 7: expected a time of day"},
    {MR_TIMER_DAILY, "24:00-06:00/1m", "daily, column 7: from 24:00 is tomorrow"},
    {MR_TIMER_DAILY, "09:00-09:00/1m", "daily, column 7: from and to are the same"},
    {MR_TIMER_DAILY, "09:00-18:00/", "daily, column 13: '' is no duration"},
    {MR_TIMER_DAILY, "09:00-18:00/500ms", "daily, column 13: expected whole seconds"},
    {MR_TIMER_DAILY, "09:00-18:00/25h", "daily, column 13: expected whole seconds, at most 1d"},
    {MR_TIMER_DAILY, "09:00-18:00/1h@", "daily, column 16: '' is no day of week"},
    {MR_TIMER_DAILY, "09:00-18:00/1h@fri#2", "daily, column 16: 'fri#2' is no day of week"},
    {MR_TIMER_MANUAL, "now", "manual, column 1: what fires on demand only has no expression"},
};

static void what_is_wrong_is_said_with_its_column(void **state)
{
    (void)state;
    for (size_t i = 0; i < COUNT(refusals); i++) {
        struct mr_rule *rule = NULL;
        struct mr_detail detail = {0};
        enum mr_err err =
            mr_rule_new(zones,
                        &(struct mr_rule_options){.kind = refusals[i].kind,
                                                  .expression = mr_slice_str(refusals[i].text)},
                        &rule, &detail);
        if (err != MR_INVALID ||
            strncmp(detail.text, refusals[i].detail, strlen(refusals[i].detail)) != 0)
            fail_msg("'%s': %s, '%s', expected '%s'", refusals[i].text, mr_err_name(err),
                     detail.text, refusals[i].detail);
        assert_null(strchr(detail.text, '\n'));
        assert_null(rule);
    }
}

static void over_long_expressions_are_refused(void **state)
{
    (void)state;
    static char text[40 * 1024];
    struct mr_rule *rule = NULL;
    for (int kind = 0; kind < MR_TIMER_KIND_COUNT; kind++) {
        memset(text, '1', sizeof text);
        struct mr_rule_options options = {.kind = (enum mr_timer_kind)kind,
                                          .expression = mr_slice_make(text, sizeof text)};
        assert_int_equal(mr_rule_new(zones, &options, &rule, NULL), MR_INVALID);
    }
    struct mr_rule_options options = {.kind = MR_TIMER_MANUAL,
                                      .exclude = mr_slice_make(text, sizeof text)};
    assert_int_equal(mr_rule_new(zones, &options, &rule, NULL), MR_INVALID);
    memset(text, ',', 1500);
    options.exclude.len = 1500;
    assert_int_equal(mr_rule_new(zones, &options, &rule, NULL), MR_INVALID);
}

/* ---- cron ------------------------------------------------------------------------------------ */

static void acceptance_48_every_five_seconds_is_24_times_in_two_minutes(void **state)
{
    (void)state;
    struct mr_rule *rule = rule_in(MR_TIMER_CRON, "*/5 * * * * *", "");
    int64_t at = ms_of("2026-11-16T02:00:00Z") - 1, end = at + 120000;
    size_t n = 0;
    for (int64_t last = at; (at = mr_rule_next(rule, n, at)) <= end; last = at, n++)
        assert_true(n == 0 || at - last == 5000);
    assert_int_equal(n, 24);
    mr_rule_free(rule);
}

static void the_milliseconds_of_after_do_not_matter(void **state)
{
    (void)state;
    struct mr_rule *rule = rule_in(MR_TIMER_CRON, "* * * * * *", "");
    assert_int_equal(mr_rule_next(rule, 0, 5000), 6000);
    assert_int_equal(mr_rule_next(rule, 0, 5001), 6000);
    assert_int_equal(mr_rule_next(rule, 0, 5999), 6000);
    assert_int_equal(mr_rule_next(rule, 0, -1), 0);
    assert_int_equal(mr_rule_next(rule, 0, INT64_MIN), 0);
    assert_int_equal(mr_rule_next(rule, 0, INT64_MAX), MR_NEVER_MS);
    mr_rule_free(rule);
}

static void acceptance_54_the_days_of_a_month_are_found(void **state)
{
    (void)state;
    CHECK_FIRINGS(rule_in(MR_TIMER_CRON, "0 0 L * ?", ""), "2028-01-31T00:00:00Z",
                  "2028-02-29T00:00:00Z", "2028-03-31T00:00:00Z", "2028-04-30T00:00:00Z");
    CHECK_FIRINGS(rule_in(MR_TIMER_CRON, "0 0 L-30 * ?", ""), "2026-01-01T00:00:00Z",
                  "2026-03-01T00:00:00Z", "2026-05-01T00:00:00Z");
    /* The 1st of August 2026 is a Saturday, the 31st of May a Sunday. */
    CHECK_FIRINGS(rule_in(MR_TIMER_CRON, "0 0 1W 8 ?", ""), "2026-01-01T00:00:00Z",
                  "2026-08-03T00:00:00Z", "2027-08-02T00:00:00Z");
    CHECK_FIRINGS(rule_in(MR_TIMER_CRON, "0 0 LW * ?", ""), "2026-05-01T00:00:00Z",
                  "2026-05-29T00:00:00Z", "2026-06-30T00:00:00Z");
    CHECK_FIRINGS(rule_in(MR_TIMER_CRON, "0 0 31W * ?", ""), "2026-04-01T00:00:00Z",
                  "2026-05-29T00:00:00Z", "2026-07-31T00:00:00Z");
    CHECK_FIRINGS(rule_in(MR_TIMER_CRON, "0 0 15W * ?", ""), "2026-08-01T00:00:00Z",
                  "2026-08-14T00:00:00Z", "2026-09-15T00:00:00Z");
    CHECK_FIRINGS(rule_in(MR_TIMER_CRON, "0 0 ? * FRI#5", ""), "2026-01-01T00:00:00Z",
                  "2026-01-30T00:00:00Z", "2026-05-29T00:00:00Z");
    CHECK_FIRINGS(rule_in(MR_TIMER_CRON, "0 0 ? * 1L", ""), "2026-01-01T00:00:00Z",
                  "2026-01-26T00:00:00Z", "2026-02-23T00:00:00Z");
}

static void either_day_field_is_enough_unless_one_begins_with_a_star(void **state)
{
    (void)state;
    CHECK_FIRINGS(rule_in(MR_TIMER_CRON, "0 0 13 * FRI", ""), "2026-11-01T00:00:00Z",
                  "2026-11-06T00:00:00Z", "2026-11-13T00:00:00Z", "2026-11-20T00:00:00Z",
                  "2026-11-27T00:00:00Z", "2026-12-04T00:00:00Z", "2026-12-11T00:00:00Z",
                  "2026-12-13T00:00:00Z");
    CHECK_FIRINGS(rule_in(MR_TIMER_CRON, "0 0 */2 * FRI", ""), "2026-11-01T00:00:00Z",
                  "2026-11-13T00:00:00Z", "2026-11-27T00:00:00Z", "2026-12-11T00:00:00Z");
    CHECK_FIRINGS(rule_in(MR_TIMER_CRON, "0 0 13 * ?", ""), "2026-11-14T00:00:00Z",
                  "2026-12-13T00:00:00Z");
}

static void rare_dates_are_found_and_the_last_year_ends_it(void **state)
{
    (void)state;
    CHECK_FIRINGS(rule_in(MR_TIMER_CRON, "0 0 ? 2 MON#5", ""), "2026-01-01T00:00:00Z",
                  "2044-02-29T00:00:00Z", "2072-02-29T00:00:00Z");
    CHECK_FIRINGS(rule_in(MR_TIMER_CRON, "0 0 29 2 ?", ""), "2095-01-01T00:00:00Z",
                  "2096-02-29T00:00:00Z", "2104-02-29T00:00:00Z");
    CHECK_FIRINGS(rule_in(MR_TIMER_CRON, "0 0 29 2 ?", ""), "2196-03-01T00:00:00Z", NULL);
    CHECK_FIRINGS(rule_in(MR_TIMER_CRON, "59 59 23 31 12 ? 2199", ""), "2026-01-01T00:00:00Z",
                  "2199-12-31T23:59:59Z", NULL);
    /* The last year is that of the clock on the wall. */
    CHECK_FIRINGS(rule_in(MR_TIMER_CRON, "0 20,23 31 12 ?", "America/New_York"),
                  "2199-12-31T00:00:00Z", "2200-01-01T01:00:00Z", "2200-01-01T04:00:00Z", NULL);
    CHECK_FIRINGS(rule_in(MR_TIMER_DAILY, "20:00-02:00/3h", "America/New_York"),
                  "2199-12-31T12:00:00Z", "2200-01-01T01:00:00Z", "2200-01-01T04:00:00Z",
                  "2200-01-01T07:00:00Z", NULL);
    CHECK_FIRINGS(rule_in(MR_TIMER_CRON, "0 0 0 1 1 ? 2030,2035/10", ""), "2026-01-01T00:00:00Z",
                  "2030-01-01T00:00:00Z", "2035-01-01T00:00:00Z", "2045-01-01T00:00:00Z");
}

/* ---- zones ----------------------------------------------------------------------------------- */

static void acceptance_55_a_time_in_the_gap_fires_once_at_its_end(void **state)
{
    (void)state;
    /* Clocks in Berlin went from 02:00 to 03:00 on 2026-03-29, 01:00 UTC. */
    CHECK_FIRINGS(rule_in(MR_TIMER_CRON, "30 2 * * *", "Europe/Berlin"), "2026-03-28T00:00:00Z",
                  "2026-03-28T01:30:00Z", "2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z");
    CHECK_FIRINGS(rule_in(MR_TIMER_CRON, "*/20 2,3 29 3 *", "Europe/Berlin"),
                  "2026-03-28T00:00:00Z", "2026-03-29T01:00:00Z", "2026-03-29T01:20:00Z",
                  "2026-03-29T01:40:00Z");
    CHECK_FIRINGS(rule_in(MR_TIMER_CRON, "15 * * * *", "Europe/Berlin"), "2026-03-29T00:00:00Z",
                  "2026-03-29T00:15:00Z", "2026-03-29T01:00:00Z", "2026-03-29T01:15:00Z");
    /* The same rule in another zone is another moment. */
    CHECK_FIRINGS(rule_in(MR_TIMER_CRON, "30 2 * * *", "America/New_York"), "2026-03-07T12:00:00Z",
                  "2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z");
}

static void acceptance_55_a_time_that_comes_twice_fires_the_first_time(void **state)
{
    (void)state;
    /* 03:00 became 02:00 on 2026-10-25, 01:00 UTC. */
    CHECK_FIRINGS(rule_in(MR_TIMER_CRON, "30 2 * * *", "Europe/Berlin"), "2026-10-24T12:00:00Z",
                  "2026-10-25T00:30:00Z", "2026-10-26T01:30:00Z");
    CHECK_FIRINGS(rule_in(MR_TIMER_CRON, "*/30 * * * *", "Europe/Berlin"), "2026-10-25T00:29:00Z",
                  "2026-10-25T00:30:00Z", "2026-10-25T02:00:00Z", "2026-10-25T02:30:00Z");
    CHECK_FIRINGS(rule_in(MR_TIMER_CRON, "*/20 * * * *", "Europe/Berlin"), "2026-10-25T00:20:00Z",
                  "2026-10-25T00:40:00Z", "2026-10-25T02:00:00Z");
    /* Asked in the middle of the second pass. */
    CHECK_FIRINGS(rule_in(MR_TIMER_CRON, "45 2 * * *", "Europe/Berlin"), "2026-10-25T01:30:00Z",
                  "2026-10-26T01:45:00Z");
}

static void a_day_that_a_zone_left_out_fires_when_the_next_begins(void **state)
{
    (void)state;
    /* Samoa had no 30 December 2011. */
    CHECK_FIRINGS(rule_in(MR_TIMER_CRON, "0 10 30 12 ?", "Pacific/Apia"), "2011-12-01T00:00:00Z",
                  "2011-12-30T10:00:00Z", "2012-12-29T20:00:00Z");
}

static void years_beyond_the_file_follow_the_rule_of_its_footer(void **state)
{
    (void)state;
    CHECK_FIRINGS(rule_in(MR_TIMER_CRON, "0 12 1 1,7 ?", "Europe/Berlin"), "2150-01-01T00:00:00Z",
                  "2150-01-01T11:00:00Z", "2150-07-01T10:00:00Z");
    CHECK_FIRINGS(rule_in(MR_TIMER_CRON, "30 2 * 3 SUNL", "Europe/Berlin"), "2198-04-01T00:00:00Z",
                  "2199-03-31T01:00:00Z", NULL);
}

/* ---- the other kinds ------------------------------------------------------------------------- */

static void a_fixed_rate_counts_from_its_start_and_does_not_drift(void **state)
{
    (void)state;
    struct mr_rule *rule = rule_of(&(struct mr_rule_options){
        .kind = MR_TIMER_EVERY, .expression = mr_slice_str("500ms"), .created_ms = 1234});
    assert_int_equal(mr_rule_next(rule, 0, 1234), 1734);
    assert_int_equal(mr_rule_next(rule, 0, 1733), 1734);
    assert_int_equal(mr_rule_next(rule, 0, 1734), 2234);
    assert_int_equal(mr_rule_next(rule, 0, 1234 + 500LL * 123456789 + 77),
                     1234 + 500LL * 123456790);
    mr_rule_free(rule);
    rule = rule_of(&(struct mr_rule_options){.kind = MR_TIMER_EVERY,
                                             .expression = mr_slice_str("10s"),
                                             .created_ms = 1234,
                                             .start_ms = 60000});
    assert_int_equal(mr_rule_next(rule, 0, 1234), 60000);
    assert_int_equal(mr_rule_next(rule, 0, 60000), 70000);
    mr_rule_free(rule);
}

static void after_done_counts_from_the_end_of_the_last_run(void **state)
{
    (void)state;
    struct mr_rule *rule = rule_of(&(struct mr_rule_options){
        .kind = MR_TIMER_AFTER_DONE, .expression = mr_slice_str("1s"), .start_ms = 5000});
    assert_int_equal(mr_rule_next(rule, 0, 700), 5000);
    assert_int_equal(mr_rule_next(rule, 0, 5700), 6700);
    mr_rule_free(rule);
}

static void one_shots_fire_once(void **state)
{
    (void)state;
    CHECK_FIRINGS(rule_in(MR_TIMER_AT, "2026-12-24T18:00:00+01:00", ""), "2026-01-01T00:00:00Z",
                  "2026-12-24T17:00:00Z", NULL);
    static const char *const delays[] = {"1ms", "999ms", "1s", "59s900ms", "1m5s", "2h"};
    for (size_t i = 0; i < COUNT(delays); i++) {
        int64_t ms, created = ms_of("2026-11-16T02:00:00.123Z");
        assert_int_equal(mr_parse_duration_ms(delays[i], &ms), MR_OK);
        struct mr_rule *rule = rule_of(&(struct mr_rule_options){
            .kind = MR_TIMER_DELAY, .expression = mr_slice_str(delays[i]), .created_ms = created});
        assert_int_equal(mr_rule_next(rule, 0, created), created + ms);
        assert_int_equal(mr_rule_next(rule, 1, created + ms), MR_NEVER_MS);
        mr_rule_free(rule);
    }
}

static void acceptance_52_a_daily_interval_over_a_week(void **state)
{
    (void)state;
    struct mr_rule *rule = rule_in(MR_TIMER_DAILY, "09:00-18:00/10m@mon-fri", "Europe/Berlin");
    int64_t at = ms_of("2026-11-15T23:00:00Z"), end = at + 7 * MR_MS_PER_DAY; /* from Monday on */
    int64_t midnight = at;
    for (int day = 0; day < 5; day++) {
        for (int i = 0; i <= 54; i++) {
            at = mr_rule_next(rule, 0, at);
            assert_int_equal(at, midnight + day * MR_MS_PER_DAY + (540 + 10 * i) * 60000LL);
        }
    }
    assert_true(mr_rule_next(rule, 0, at) > end);
    mr_rule_free(rule);
}

static void a_daily_interval_may_go_over_midnight(void **state)
{
    (void)state;
    /* It belongs to the day it begins on. */
    CHECK_FIRINGS(rule_in(MR_TIMER_DAILY, "22:00-02:30/2h@fri", ""), "2026-11-18T00:00:00Z",
                  "2026-11-20T22:00:00Z", "2026-11-21T00:00:00Z", "2026-11-21T02:00:00Z",
                  "2026-11-27T22:00:00Z");
    CHECK_FIRINGS(rule_in(MR_TIMER_DAILY, "00:00-24:00/12h", ""), "2026-11-18T00:00:00Z",
                  "2026-11-18T12:00:00Z", "2026-11-19T00:00:00Z", "2026-11-19T12:00:00Z");
    CHECK_FIRINGS(rule_in(MR_TIMER_DAILY, "01:45-03:15/30m", "Europe/Berlin"),
                  "2026-03-29T00:00:00Z", "2026-03-29T00:45:00Z", "2026-03-29T01:00:00Z",
                  "2026-03-29T01:15:00Z", "2026-03-29T23:45:00Z");
}

static void on_demand_only_is_never(void **state)
{
    (void)state;
    CHECK_FIRINGS(rule_in(MR_TIMER_MANUAL, "", ""), "2026-03-29T00:00:00Z", NULL);
}

/* ---- windows, exclusions, jitter ------------------------------------------------------------- */

static void acceptance_53_nothing_is_planned_outside_the_window(void **state)
{
    (void)state;
    static const struct {
        enum mr_timer_kind kind;
        const char *expression;
    } cases[] = {
        {MR_TIMER_CRON, "0 * * * *"}, {MR_TIMER_EVERY, "1h"}, {MR_TIMER_DAILY, "00:00-24:00/1h"}};
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct mr_rule *rule = rule_of(&(struct mr_rule_options){
            .kind = cases[i].kind,
            .expression = mr_slice_str(cases[i].expression),
            .created_ms = ms_of("2026-11-15T00:00:00Z"),
            .start_ms = ms_of("2026-11-16T10:00:00Z"),
            .end_ms = ms_of("2026-11-16T12:00:00Z"),
        });
        CHECK_FIRINGS(rule, "2026-11-15T00:00:00Z", "2026-11-16T10:00:00Z", "2026-11-16T11:00:00Z",
                      "2026-11-16T12:00:00Z", NULL);
    }
}

static void so_many_firings_and_no_more(void **state)
{
    (void)state;
    struct mr_rule *rule = rule_of(&(struct mr_rule_options){
        .kind = MR_TIMER_CRON, .expression = mr_slice_str("@hourly"), .times = 2});
    CHECK_FIRINGS(rule, "2026-11-15T00:00:00Z", "2026-11-15T01:00:00Z", "2026-11-15T02:00:00Z",
                  NULL);
}

static struct mr_rule *excluding(enum mr_timer_kind kind, const char *expression,
                                 const char *exclude)
{
    return rule_of(&(struct mr_rule_options){
        .kind = kind,
        .expression = mr_slice_str(expression),
        .tz = mr_slice_str("Europe/Berlin"),
        .exclude = mr_slice_str(exclude),
        .created_ms = ms_of("2026-12-20T00:00:00Z"),
    });
}

static void excluded_days_are_passed_over(void **state)
{
    (void)state;
    CHECK_FIRINGS(excluding(MR_TIMER_CRON, "0 9 * * *", "2026-12-24..2026-12-26"),
                  "2026-12-22T12:00:00Z", "2026-12-23T08:00:00Z", "2026-12-27T08:00:00Z");
    CHECK_FIRINGS(excluding(MR_TIMER_CRON, "0 9 * * *", "12-24..01-06, sat-sun"),
                  "2026-12-23T12:00:00Z", "2027-01-07T08:00:00Z", "2027-01-08T08:00:00Z",
                  "2027-01-11T08:00:00Z");
    CHECK_FIRINGS(excluding(MR_TIMER_CRON, "0 9 28,29 2 ?", "02-29"), "2028-01-01T12:00:00Z",
                  "2028-02-28T08:00:00Z", "2029-02-28T08:00:00Z");
    CHECK_FIRINGS(excluding(MR_TIMER_EVERY, "7h", "2026-12-21..2026-12-22,2026-12-23"),
                  "2026-12-20T00:00:00Z", "2026-12-20T07:00:00Z", "2026-12-20T14:00:00Z",
                  "2026-12-20T21:00:00Z", "2026-12-24T02:00:00Z", "2026-12-24T09:00:00Z");
    CHECK_FIRINGS(excluding(MR_TIMER_DAILY, "09:00-10:00/1h@mon-fri", "2026-12-24..2199-12-29"),
                  "2026-12-23T07:00:00Z", "2026-12-23T08:00:00Z", "2026-12-23T09:00:00Z",
                  "2199-12-30T08:00:00Z", "2199-12-30T09:00:00Z", "2199-12-31T08:00:00Z",
                  "2199-12-31T09:00:00Z", NULL);
    /* What waits for the end of the last run waits longer, else it would never run again. */
    CHECK_FIRINGS(excluding(MR_TIMER_AFTER_DONE, "1h", "12-24"), "2026-12-23T22:30:00Z",
                  "2026-12-24T23:00:00Z", "2026-12-25T00:00:00Z");
}

static void exclusions_have_one_text_and_say_what_is_wrong(void **state)
{
    (void)state;
    struct mr_rule *rule =
        excluding(MR_TIMER_MANUAL, "", "2027-01-01,12-24..01-06,SAT, sun,2026-05-01..2026-05-03");
    struct mr_buf buf = {0};
    assert_int_equal(mr_rule_put_exclude(rule, &buf), MR_OK);
    assert_int_equal(mr_buf_append(&buf, "", 1), MR_OK);
    assert_string_equal(buf.data, "sat-sun,12-24..01-06,2026-05-01..2026-05-03,2027-01-01");
    mr_buf_done(&buf);
    mr_rule_free(rule);
    static const char *const cases[][2] = {
        {"2026-13-01", "exclude, column 1: there is no date 2026-13-01"},
        {"2026-02-29", "exclude, column 1: there is no date"},
        {"02-30", "exclude, column 1: there is no date"},
        {"2026-01-01,2026-01", "exclude, column 12: expected a date like 2026-12-24"},
        {"2026-01-02..2026-01-01", "exclude, column 1: the range goes backwards"},
        {"2026-01-02..01-05", "exclude, column 1: one date of the range has a year"},
        {"2026-01-02.2026-01-03", "exclude, column 12: expected .. between two dates"},
        {"2026-01-02x", "exclude, column 11: expected a comma"},
        {"1969-01-02", "exclude, column 1: the year is not within 1970-2199"},
        {"holidays", "exclude, column 1: 'holidays' is no day of week"},
        {"01-01..12-31", "exclude, column 1: no day is left"},
        {"mon-sun", "exclude, column 1: no day is left"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct mr_detail detail = {0};
        struct mr_rule_options options = {.kind = MR_TIMER_MANUAL,
                                          .exclude = mr_slice_str(cases[i][0])};
        assert_int_equal(mr_rule_new(zones, &options, &rule, &detail), MR_INVALID);
        if (strncmp(detail.text, cases[i][1], strlen(cases[i][1])) != 0)
            fail_msg("'%s': '%s', expected '%s'", cases[i][0], detail.text, cases[i][1]);
    }
}

static void what_can_never_fire_is_refused(void **state)
{
    (void)state;
    const struct mr_rule_options cases[] = {
        {.kind = MR_TIMER_AT,
         .expression = mr_slice_str("2026-12-24T18:00:00Z"),
         .exclude = mr_slice_str("12-24")},
        {.kind = MR_TIMER_AT, .expression = mr_slice_str("1000"), .start_ms = 2000000},
        {.kind = MR_TIMER_CRON, .expression = mr_slice_str("0 0 1 * ?"), .end_ms = -1},
        {.kind = MR_TIMER_CRON,
         .expression = mr_slice_str("0 0 24 12 ?"),
         .exclude = mr_slice_str("12-24")},
        {.kind = MR_TIMER_CRON,
         .expression = mr_slice_str("0 0 1 1 ?"),
         .start_ms = 1000,
         .end_ms = 2000},
        {.kind = MR_TIMER_EVERY, .expression = mr_slice_str("1s"), .start_ms = 2, .end_ms = 1},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct mr_rule *rule = NULL;
        struct mr_detail detail = {0};
        assert_int_equal(mr_rule_new(zones, &cases[i], &rule, &detail), MR_INVALID);
        assert_true(detail.text[0] != '\0');
    }
}

static void jitter_is_the_same_for_the_same_firing_and_stays_in_its_bounds(void **state)
{
    (void)state;
    const struct mr_uuid one = {{1}}, two = {{2}};
    int64_t end = ms_of("2026-11-17T00:00:00Z");
    struct mr_rule *rule =
        rule_of(&(struct mr_rule_options){.kind = MR_TIMER_CRON,
                                          .expression = mr_slice_str("0 * * * *"),
                                          .jitter_ms = 600000,
                                          .end_ms = end});
    struct mr_rule *dense = rule_of(&(struct mr_rule_options){
        .kind = MR_TIMER_EVERY, .expression = mr_slice_str("1s"), .jitter_ms = 600000});
    int64_t at = ms_of("2026-11-01T00:00:00Z"), most = 0, least = INT64_MAX;
    int same = 0;
    for (int i = 0; (at = mr_rule_next(rule, 0, at)) != MR_NEVER_MS; i++) {
        int64_t fire = mr_rule_fire_ms(rule, &one, at);
        assert_int_equal(mr_rule_fire_ms(rule, &one, at), fire);
        assert_true(fire >= at && fire < at + 600000 && fire <= end);
        same += mr_rule_fire_ms(rule, &two, at) == fire;
        most = fire - at > most ? fire - at : most;
        least = fire - at < least ? fire - at : least;
        fire = mr_rule_fire_ms(dense, &one, at);
        assert_true(fire >= at && fire < at + 1000); /* before the next one */
    }
    assert_true(most > 500000 && least < 60000 && same < 10);
    mr_rule_free(rule);
    mr_rule_free(dense);
}

static enum mr_err make_and_write(struct mr_buf *buf)
{
    struct mr_zones *own = NULL;
    struct mr_rule *rule = NULL;
    struct mr_rule_options options = {
        .kind = MR_TIMER_CRON,
        .expression = mr_slice_str("0 9 1,3,7,15W,L * MON#1"),
        .tz = mr_slice_str("Europe/Berlin"),
        .exclude = mr_slice_str("sat-sun,12-24..01-06"),
    };
    enum mr_err err = mr_zones_new(mr_fs_system(), NULL, &own);
    if (err == MR_OK)
        err = mr_rule_new(own, &options, &rule, NULL);
    if (err == MR_OK)
        err = mr_rule_put(rule, buf);
    if (err == MR_OK)
        err = mr_rule_put_exclude(rule, buf);
    mr_rule_free(rule);
    mr_zones_free(own);
    return err;
}

static void without_memory_there_is_no_rule_and_no_harm(void **state)
{
    (void)state;
    long failed;
    int64_t n = 0;
    do {
        struct mr_buf buf = {0};
        fail_alloc_after(n++);
        enum mr_err err = make_and_write(&buf);
        failed = fail_alloc_stop();
        assert_int_equal(err, failed > 0 ? MR_NOMEM : MR_OK);
        mr_buf_done(&buf);
    } while (failed > 0);
    assert_true(!FAILING_ALLOC || n > 5);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_that_mean_the_same_have_the_same_text),
        cmocka_unit_test(kinds_have_names),
        cmocka_unit_test(what_is_wrong_is_said_with_its_column),
        cmocka_unit_test(over_long_expressions_are_refused),
        cmocka_unit_test(acceptance_48_every_five_seconds_is_24_times_in_two_minutes),
        cmocka_unit_test(the_milliseconds_of_after_do_not_matter),
        cmocka_unit_test(acceptance_54_the_days_of_a_month_are_found),
        cmocka_unit_test(either_day_field_is_enough_unless_one_begins_with_a_star),
        cmocka_unit_test(rare_dates_are_found_and_the_last_year_ends_it),
        cmocka_unit_test(acceptance_55_a_time_in_the_gap_fires_once_at_its_end),
        cmocka_unit_test(acceptance_55_a_time_that_comes_twice_fires_the_first_time),
        cmocka_unit_test(a_day_that_a_zone_left_out_fires_when_the_next_begins),
        cmocka_unit_test(years_beyond_the_file_follow_the_rule_of_its_footer),
        cmocka_unit_test(a_fixed_rate_counts_from_its_start_and_does_not_drift),
        cmocka_unit_test(after_done_counts_from_the_end_of_the_last_run),
        cmocka_unit_test(one_shots_fire_once),
        cmocka_unit_test(acceptance_52_a_daily_interval_over_a_week),
        cmocka_unit_test(a_daily_interval_may_go_over_midnight),
        cmocka_unit_test(on_demand_only_is_never),
        cmocka_unit_test(acceptance_53_nothing_is_planned_outside_the_window),
        cmocka_unit_test(so_many_firings_and_no_more),
        cmocka_unit_test(excluded_days_are_passed_over),
        cmocka_unit_test(exclusions_have_one_text_and_say_what_is_wrong),
        cmocka_unit_test(what_can_never_fire_is_refused),
        cmocka_unit_test(jitter_is_the_same_for_the_same_firing_and_stays_in_its_bounds),
        cmocka_unit_test(without_memory_there_is_no_rule_and_no_harm),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, open_zones, close_zones);
}
