/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time rules and zone files. The first byte says what the rest is: a rule of some kind (lines:
 * expression, zone, excluded days), or a TZif file. What is read survives its own text and goes
 * forward in time; a zone keeps local times in order; a refusal says why in one line.
 */
#include "base/buf.h"
#include "fuzz/fuzz.h"
#include "timer/rule.h"
#include "unit/zone_changes.h"

enum { TEXT_MAX = 2000, FIRINGS = 8, ZONE_FILE = 'z', S_PER_DAY = 86400 };

static const char kinds[MR_TIMER_KIND_COUNT] = {
    [MR_TIMER_CRON] = 'c',   [MR_TIMER_EVERY] = 'e', [MR_TIMER_AFTER_DONE] = 'a',
    [MR_TIMER_AT] = 't',     [MR_TIMER_DELAY] = 'd', [MR_TIMER_DAILY] = 'i',
    [MR_TIMER_MANUAL] = 'm',
};

static struct mr_zones *all_zones(void)
{
    static struct mr_zones *zones;
    if (zones == NULL)
        mr_assert(mr_zones_new(mr_fs_system(), NULL, &zones) == MR_OK);
    return zones;
}

static void check_refusal(enum mr_err err, const struct mr_detail *detail)
{
    mr_assert(err == MR_INVALID);
    size_t len = strnlen(detail->text, sizeof detail->text);
    mr_assert(len > 0 && len < sizeof detail->text);
    for (size_t i = 0; i < len; i++)
        mr_assert(detail->text[i] >= ' ' && detail->text[i] < 0x7f);
}

/* ---- rules ----------------------------------------------------------------------------------- */

static struct mr_slice take_line(struct fuzz_in *in)
{
    const uint8_t *end = in->left > 0 ? memchr(in->at, '\n', in->left) : NULL;
    struct mr_slice line = fuzz_bytes(in, end != NULL ? (size_t)(end - in->at) : in->left);
    (void)fuzz_bytes(in, 1);
    return line;
}

static void check_forward(const struct mr_rule *rule, int64_t after)
{
    const struct mr_uuid uid = {{7}};
    for (int i = 0; i < FIRINGS; i++) {
        int64_t at = mr_rule_next(rule, (uint64_t)i, after);
        mr_assert(at == MR_NEVER_MS || (at > after && at >= 0));
        if (at == MR_NEVER_MS)
            return;
        int64_t fire = mr_rule_fire_ms(rule, &uid, at);
        mr_assert(fire >= at && fire < at + 60000);
        after = at;
    }
}

static void check_text(const struct mr_rule *rule, const struct mr_rule_options *options)
{
    struct mr_buf text = {0}, exclude = {0}, again = {0};
    struct mr_rule *second;
    mr_assert(mr_rule_put(rule, &text) == MR_OK && mr_rule_put_exclude(rule, &exclude) == MR_OK);
    struct mr_rule_options canonical = *options;
    canonical.kind = mr_rule_kind_of(rule);
    canonical.expression = mr_buf_slice(&text);
    canonical.exclude = mr_buf_slice(&exclude);
    mr_assert(mr_rule_new(all_zones(), &canonical, &second, NULL) == MR_OK);
    mr_assert(mr_rule_put(second, &again) == MR_OK);
    mr_assert(mr_slice_equal(mr_buf_slice(&text), mr_buf_slice(&again)));
    for (int64_t after = 0; after < 4000000000000; after += 777777777777)
        mr_assert(mr_rule_next(rule, 0, after) == mr_rule_next(second, 0, after));
    mr_rule_free(second);
    mr_buf_done(&text);
    mr_buf_done(&exclude);
    mr_buf_done(&again);
}

static void check_rule(enum mr_timer_kind kind, struct fuzz_in *in)
{
    struct mr_rule_options options = {
        .kind = kind,
        .expression = take_line(in),
        .tz = take_line(in),
        .exclude = take_line(in),
        .created_ms = 1700000000000,
        .jitter_ms = 60000,
    };
    struct mr_rule *rule = NULL;
    struct mr_detail detail = {0};
    enum mr_err err = mr_rule_new(all_zones(), &options, &rule, &detail);
    if (err != MR_OK) {
        check_refusal(err, &detail);
        return;
    }
    check_forward(rule, -1);
    check_forward(rule, 1700000000000);
    check_forward(rule, 4102444800000);
    check_text(rule, &options);
    mr_rule_free(rule);
}

/* ---- zones ----------------------------------------------------------------------------------- */

static void check_around(const struct mr_zone *zone, int64_t change)
{
    int64_t last = INT64_MIN;
    for (int64_t local = change - 2 * S_PER_DAY; local < change + 2 * S_PER_DAY; local += 1777) {
        int64_t at = mr_zone_to_unix(zone, local);
        mr_assert(at >= last);
        mr_assert(mr_zone_latest_local(zone, at) >= local);
        mr_assert(mr_zone_latest_local(zone, at - 1) < local);
        last = at;
    }
}

static void check_zone(struct mr_slice file)
{
    struct mr_zone *zone = NULL;
    struct mr_detail detail = {0};
    enum mr_err err = mr_zone_parse("fuzzed", file, &zone, &detail);
    if (err != MR_OK) {
        check_refusal(err, &detail);
        return;
    }
    int64_t at = 0;
    for (int i = 0; i < 20; i++) {
        int64_t next = zone_next_change(zone, at);
        mr_assert(next > at);
        if (next > 8000000000)
            break;
        mr_assert(mr_zone_offset(zone, next) != mr_zone_offset(zone, next - 1));
        at = next;
        check_around(zone, at);
    }
    mr_zone_free(zone);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_in in = {data, size};
    uint8_t what = fuzz_u8(&in);
    if (what == ZONE_FILE) {
        check_zone(mr_slice_make(in.at, in.left));
        return 0;
    }
    for (int kind = 0; kind < MR_TIMER_KIND_COUNT && in.left <= TEXT_MAX; kind++) {
        if (kinds[kind] == (char)what)
            check_rule((enum mr_timer_kind)kind, &in);
    }
    return 0;
}
