/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time rules against a brute-force oracle: MR_EXPRESSIONS random cron expressions (and daily
 * intervals), some with days excluded, in MR_ZONES zones, the first 200 firings from a random moment on, and what happens within two days of every
 * change of the zone. Local times come from the C library, days and fields from expr.c. Before
 * that, every zone of the system against the C library. MR_SEED (1) gives other expressions.
 *
 * An expression in odd zones is the canonical text of what was read, so that writing is tested by
 * what it means, too.
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "timer/expr.h"
#include "timer/libc.h"
#include "timer/rule.h"
#include "unit/zone_changes.h"

#define END_S (S_PER_DAY * 100000LL) /* of all rules and more */

enum { FIRINGS = 200, AROUND_MAX = 3, S_PER_DAY = 86400 };

/* Gaps and overlaps of an hour, of half an hour, of two, of a whole day; at midnight; winter time as
 * daylight saving; rules far from today's; changes that were announced for decades; none at all. */
static const char *const zone_names[] = {
    "Europe/Berlin",    "America/New_York",  "Australia/Lord_Howe", "Pacific/Apia",
    "Asia/Kolkata",     "Europe/Dublin",     "America/Havana",      "Africa/Casablanca",
    "Antarctica/Troll", "America/Sao_Paulo", "Asia/Tehran",         "Pacific/Chatham",
    "America/Santiago", "Asia/Gaza",         "Africa/Monrovia",     "Pacific/Kwajalein",
    "America/Nuuk",     "Asia/Pyongyang",    "Europe/Moscow",       "America/St_Johns",
};

enum { ZONES_MAX = sizeof zone_names / sizeof zone_names[0] };

struct test {
    struct mr_rand rand;
    struct mr_zones *zones;
    size_t zone_count;
    struct libc_zone libc[ZONES_MAX];
    struct expr expr;
    signed char *day_known; /* of every day: 0 not asked yet, 1 matches, -1 does not */
    uint64_t firings, changes, refused;
};

static unsigned long env_number(const char *name, unsigned long otherwise)
{
    const char *text = getenv(name);
    return text != NULL && *text != '\0' ? strtoul(text, NULL, 10) : otherwise;
}

_Noreturn static void stop_on(const char *what, const char *where)
{
    fprintf(stderr, "%s: %s\n", where, what);
    exit(1);
}

/* ---- every zone ------------------------------------------------------------------------------ */

static void compare_offset(const struct mr_zone *zone, int64_t at)
{
    int offset = mr_zone_offset(zone, at), libc = libc_offset(at);
    if (offset == libc)
        return;
    char when[32];
    mr_format_time_ms(at * 1000, when);
    fprintf(stderr, "%s at %s: %d s ahead of UTC, the C library says %d\n", mr_zone_name(zone),
            when, offset, libc);
    exit(1);
}

/* At every change of ours, just before, and twice a month. */
static void compare_zone(struct test *test, const char *name)
{
    const struct mr_zone *zone;
    struct mr_detail detail = {0};
    if (mr_zones_get(test->zones, mr_slice_str(name), &zone, &detail) != MR_OK)
        stop_on(detail.text, name);
    libc_use(name);
    int64_t end = (int64_t)expr_days_count * S_PER_DAY;
    for (int64_t at = 0; (at = zone_next_change(zone, at)) < end;) {
        compare_offset(zone, at);
        compare_offset(zone, at - 1);
    }
    for (int64_t at = 0; at < end; at += 15 * S_PER_DAY + 3700)
        compare_offset(zone, at);
}

/* The files of a folder below the zones, "posix" and "right" apart: those are the same again. */
static size_t compare_folder(struct test *test, const char *below)
{
    char path[2 * MR_PATH_MAX], name[MR_PATH_MAX];
    size_t count = 0;
    (void)snprintf(path, sizeof path, "%s/%s", MR_ZONE_FOLDER, below);
    DIR *dir = opendir(path);
    if (dir == NULL)
        stop_on("cannot read the folder of zones", path);
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        bool capital = entry->d_name[0] >= 'A' && entry->d_name[0] <= 'Z';
        if (!capital || strchr(entry->d_name, '.') != NULL)
            continue;
        (void)snprintf(name, sizeof name, "%s%s%s", below, *below != '\0' ? "/" : "",
                       entry->d_name);
        (void)snprintf(path, sizeof path, "%s/%s", MR_ZONE_FOLDER, name);
        DIR *inner = opendir(path);
        if (inner != NULL) {
            (void)closedir(inner);
            count += compare_folder(test, name);
        } else {
            compare_zone(test, name);
            count++;
        }
    }
    (void)closedir(dir);
    return count;
}

/* ---- the oracle ------------------------------------------------------------------------------ */

static bool day_matches(struct test *test, int64_t day)
{
    if (test->day_known[day] == 0)
        test->day_known[day] = expr_matches_day(&test->expr, &expr_days[day]) ? 1 : -1;
    return test->day_known[day] > 0;
}

/* The first local time at or after local that matches; INT64_MAX when there is none until the day
 * after end. */
static int64_t match_from(struct test *test, int64_t local, int64_t end)
{
    if (local < 0)
        local = 0;
    /* An interval of yesterday may reach into today. */
    int64_t day = local / S_PER_DAY - (test->expr.daily && local >= S_PER_DAY);
    int64_t last = end / S_PER_DAY + 2 < expr_days_count ? end / S_PER_DAY + 2 : expr_days_count;
    for (; day < last; day++) {
        if (!day_matches(test, day))
            continue;
        int64_t from = local > day * S_PER_DAY ? local - day * S_PER_DAY : 0;
        int second = expr_second_from(&test->expr, (int)from);
        if (second >= 0)
            return day * S_PER_DAY + second;
    }
    return INT64_MAX;
}

/* Walks through the firings after a moment. */
struct walk {
    struct libc_zone *zone;
    int64_t local; /* to look at next */
    int64_t last;  /* firing, or where it began */
    int64_t end;   /* later firings do not matter */
};

static void walk_start(struct walk *walk, struct libc_zone *zone, int64_t after, int64_t end)
{
    *walk =
        (struct walk){zone, after + zone->spans[libc_span_at(zone, after)].offset + 1, after, end};
}

/* INT64_MAX beyond the end. Local times that become the same firing are one. */
static int64_t walk_next(struct walk *walk, struct test *test)
{
    for (;;) {
        int64_t local = match_from(test, walk->local, walk->end);
        if (local == INT64_MAX)
            return INT64_MAX;
        walk->local = local + 1;
        int64_t at = libc_firing(walk->zone, local);
        if (at > walk->last) {
            walk->last = at;
            return at <= walk->end ? at : INT64_MAX;
        }
    }
}

/* ---- comparing ------------------------------------------------------------------------------- */

static const char *shown(int64_t at, char text[32])
{
    if (at == INT64_MAX)
        return "never";
    mr_format_time_ms(at * 1000, text);
    return text;
}

static void differ(const struct test *test, const struct walk *walk, int64_t after, int64_t got,
                   int64_t expected)
{
    char texts[3][32];
    fprintf(stderr, "'%s' without '%s' in %s after %s: %s, expected %s\n", test->expr.text,
            test->expr.exclude, walk->zone->name, shown(after, texts[0]), shown(got, texts[1]),
            shown(expected, texts[2]));
    exit(1);
}

/* Up to n firings after a moment and up to the end; returns the last one. */
static int64_t compare_firings(struct test *test, const struct mr_rule *rule,
                               struct libc_zone *zone, int64_t after, int64_t end, int n)
{
    struct walk walk;
    walk_start(&walk, zone, after, end);
    for (int i = 0; i < n && after < end; i++) {
        int64_t expected = walk_next(&walk, test);
        int64_t got = mr_rule_next(rule, 0, after * 1000);
        got = got == MR_NEVER_MS || got > end * 1000 ? INT64_MAX : got / 1000;
        if (got != expected)
            differ(test, &walk, after, got, expected);
        after = got;
        test->firings++;
    }
    return after;
}

/* Two days before and after each change: from the beginning, and what is dense once more where
 * clocks jump. */
static void compare_changes(struct test *test, const struct mr_rule *rule, struct libc_zone *zone)
{
    for (size_t i = 1; i < zone->count; i++) {
        int64_t at = zone->spans[i].begin, end = at + 2 * S_PER_DAY;
        int shift = zone->spans[i].offset - zone->spans[i - 1].offset;
        if (at < S_PER_DAY * 3)
            continue;
        int64_t to = compare_firings(test, rule, zone, at - 2 * S_PER_DAY, end, AROUND_MAX);
        int64_t before = at - 2;
        if (to < before)
            compare_firings(test, rule, zone, before, end, AROUND_MAX - 1);
        /* Asked in the middle of the second pass of what is shown twice, and anywhere. */
        compare_firings(test, rule, zone, at + abs(shift) / 2, end, 1);
        int64_t any = at - 2 * S_PER_DAY + (int64_t)mr_rand_below(&test->rand, 4 * S_PER_DAY);
        compare_firings(test, rule, zone, any, end, 1);
        test->changes++;
    }
}

/* ---- expressions ----------------------------------------------------------------------------- */

/* A rule as two texts. */
struct texts {
    struct mr_slice expression, exclude;
};

static struct mr_rule *read_rule(struct test *test, const struct texts *texts, const char *zone)
{
    struct mr_rule *rule = NULL;
    struct mr_detail detail = {0};
    struct mr_rule_options options = {
        .kind = test->expr.daily ? MR_TIMER_DAILY : MR_TIMER_CRON,
        .expression = texts->expression,
        .exclude = texts->exclude,
        .tz = mr_slice_str(zone),
    };
    enum mr_err err = mr_rule_new(test->zones, &options, &rule, &detail);
    if (err == MR_OK)
        return rule;
    /* It may only be refused when it has no day at all. */
    if (err != MR_INVALID || match_from(test, 0, END_S) != INT64_MAX)
        stop_on(detail.text, test->expr.text);
    return NULL;
}

static void compare_in(struct test *test, size_t zone, const struct texts *texts)
{
    struct mr_rule *rule = read_rule(test, texts, zone_names[zone]);
    if (rule == NULL)
        stop_on("refused in its canonical form", test->expr.text);
    int64_t from = (int64_t)mr_rand_below(&test->rand, (uint64_t)expr_days_count * S_PER_DAY);
    compare_firings(test, rule, &test->libc[zone], from, END_S, FIRINGS);
    compare_changes(test, rule, &test->libc[zone]);
    mr_rule_free(rule);
}

static void run_expression(struct test *test)
{
    for (;;) {
        expr_make(&test->expr, &test->rand);
        memset(test->day_known, 0, (size_t)expr_days_count);
        struct texts texts = {mr_slice_str(test->expr.text), mr_slice_str(test->expr.exclude)};
        struct mr_rule *rule = read_rule(test, &texts, "");
        if (rule == NULL) {
            test->refused++;
            continue;
        }
        struct mr_buf expression = {0}, exclude = {0};
        mr_assert(mr_rule_put(rule, &expression) == MR_OK);
        mr_assert(mr_rule_put_exclude(rule, &exclude) == MR_OK);
        mr_rule_free(rule);
        struct texts canonical = {mr_buf_slice(&expression), mr_buf_slice(&exclude)};
        for (size_t i = 0; i < test->zone_count; i++)
            compare_in(test, i, i % 2 == 1 ? &canonical : &texts);
        mr_buf_done(&expression);
        mr_buf_done(&exclude);
        return;
    }
}

int main(void)
{
    static struct test test;
    unsigned long expressions = env_number("MR_EXPRESSIONS", 100);
    unsigned long seed = env_number("MR_SEED", 1);
    test.zone_count = env_number("MR_ZONES", ZONES_MAX);
    if (test.zone_count > ZONES_MAX)
        test.zone_count = ZONES_MAX;
    expr_init();
    mr_rand_seed(&test.rand, seed);
    test.day_known = malloc((size_t)expr_days_count);
    mr_assert(test.day_known != NULL);
    mr_assert(mr_zones_new(mr_fs_system(), NULL, &test.zones) == MR_OK);
    printf("seed %lu\n%zu zones are those of the C library\n", seed, compare_folder(&test, ""));
    for (size_t i = 0; i < test.zone_count; i++)
        libc_find(&test.libc[i], zone_names[i]);
    for (unsigned long i = 0; i < expressions; i++)
        run_expression(&test);
    printf("%lu expressions in %zu zones, %llu firings, %llu changes; %llu have no day\n",
           expressions, test.zone_count, (unsigned long long)test.firings,
           (unsigned long long)test.changes, (unsigned long long)test.refused);
    mr_zones_free(test.zones);
    free(test.day_known);
    return 0;
}
