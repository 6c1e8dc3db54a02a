/* SPDX-License-Identifier: Apache-2.0 */
/* Zones: names that are refused, files that are none, changes and footers, many threads. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/chan.h"
#include "base/text.h"
#include "timer/zone.h"
#include "unit/zone_changes.h"

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

static int64_t s_of(const char *text)
{
    int64_t ms;
    if (mr_parse_time_ms(text, &ms) != MR_OK)
        fail_msg("'%s' is no time", text);
    return ms / 1000;
}

static const struct mr_zone *zone_of(const char *name)
{
    const struct mr_zone *zone = NULL;
    struct mr_detail detail = {0};
    if (mr_zones_get(zones, mr_slice_str(name), &zone, &detail) != MR_OK)
        fail_msg("%s", detail.text);
    return zone;
}

/* ---- files made here ------------------------------------------------------------------------- */

struct made {
    struct mr_buf buf;
};

static void put(struct made *made, const void *bytes, size_t len)
{
    assert_int_equal(mr_buf_append(&made->buf, bytes, len), MR_OK);
}

static void put_big(struct made *made, uint64_t value, int len)
{
    for (int i = len - 1; i >= 0; i--)
        put(made, &(uint8_t){(uint8_t)(value >> 8 * i)}, 1);
}

struct change {
    int64_t at;
    uint8_t type;
};

static void put_block(struct made *made, char version, const struct change *changes, size_t n,
                      const int32_t *offsets, size_t types)
{
    static const char none[15];
    int len = version == '\0' ? 4 : 8;
    put(made, "TZif", 4);
    put(made, &version, 1);
    put(made, none, sizeof none);
    const uint32_t counts[] = {0, 0, 0, (uint32_t)n, (uint32_t)types, 4};
    for (size_t i = 0; i < COUNT(counts); i++)
        put_big(made, counts[i], 4);
    for (size_t i = 0; i < n; i++)
        put_big(made, (uint64_t)changes[i].at, len);
    for (size_t i = 0; i < n; i++)
        put(made, &changes[i].type, 1);
    for (size_t i = 0; i < types; i++) {
        put_big(made, (uint32_t)offsets[i], 4);
        put(made, "\0\0", 2);
    }
    put(made, "ABC", 4);
}

/* A file of version 2 that has nothing but a footer. */
static struct mr_zone *zone_by_footer(const char *footer)
{
    static const int32_t utc[] = {0};
    struct made made = {0};
    struct mr_zone *zone = NULL;
    put_block(&made, '\0', NULL, 0, utc, 1);
    made.buf.data[4] = '2';
    put_block(&made, '2', NULL, 0, utc, 1);
    put(&made, "\n", 1);
    put(&made, footer, strlen(footer));
    put(&made, "\n", 1);
    enum mr_err err = mr_zone_parse("made", mr_buf_slice(&made.buf), &zone, NULL);
    assert_true((err == MR_OK) == (zone != NULL));
    mr_buf_done(&made.buf);
    return zone;
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void names_that_lead_elsewhere_are_refused(void **state)
{
    (void)state;
    static const char *const names[] = {"../../../etc/passwd",
                                        "/etc/localtime",
                                        "Europe/../UTC",
                                        "Europe//Berlin",
                                        "Europe/",
                                        "/Europe/Berlin",
                                        ".",
                                        "..",
                                        "Europe",
                                        "zone.tab",
                                        "leapseconds",
                                        "Europe/Berlim",
                                        "europe\\berlin",
                                        "Europe/Berlin ",
                                        "Europe/B\xc3\xa9rlin",
                                        "CET-1CEST,M3.5.0,M10.5.0/3",
                                        "right/Europe/Berlin"};
    for (size_t i = 0; i < COUNT(names); i++) {
        const struct mr_zone *zone = NULL;
        struct mr_detail detail = {0};
        if (mr_zones_get(zones, mr_slice_str(names[i]), &zone, &detail) != MR_INVALID)
            fail_msg("'%s' is taken for a zone", names[i]);
        assert_null(zone);
        assert_true(strlen(detail.text) > 0 && strchr(detail.text, '\n') == NULL);
    }
    const struct mr_zone *zone;
    char long_name[MR_ZONE_NAME_MAX + 1];
    memset(long_name, 'a', sizeof long_name);
    assert_int_equal(mr_zones_get(zones, mr_slice_make(long_name, sizeof long_name), &zone, NULL),
                     MR_INVALID);
    assert_int_equal(mr_zones_get(zones, mr_slice_make("UTC\0/x", 6), &zone, NULL), MR_INVALID);
}

/* Also where its continent is there, or a file stands in place of a folder. */
static void a_name_that_is_not_there_is_told_what_names_are_like(void **state)
{
    (void)state;
    static const char *const names[] = {"Nowhere", "Nowhere/City", "Europe", "Europe/Berlim",
                                        "Europe/Berlin/Mitte"};
    for (size_t i = 0; i < COUNT(names); i++) {
        const struct mr_zone *zone = NULL;
        struct mr_detail detail = {0};
        assert_int_equal(mr_zones_get(zones, mr_slice_str(names[i]), &zone, &detail), MR_INVALID);
        if (strstr(detail.text, "no time zone") == NULL || strstr(detail.text, names[i]) == NULL)
            fail_msg("'%s' is refused with: %s", names[i], detail.text);
    }
}

static void a_link_out_of_the_folder_is_no_zone(void **state)
{
    (void)state;
    char folder[] = "/tmp/mr-zones-XXXXXX", path[MR_PATH_MAX];
    assert_non_null(mkdtemp(folder));
    assert_int_equal(mr_path_join(path, folder, "Outside"), MR_OK);
    assert_int_equal(symlink(MR_ZONE_FOLDER "/Europe/Berlin", path), 0);
    struct mr_zones *own;
    const struct mr_zone *zone = NULL;
    assert_int_equal(mr_zones_new(mr_fs_system(), folder, &own), MR_OK);
    assert_int_equal(mr_zones_get(own, mr_slice_str("Outside"), &zone, NULL), MR_INVALID);
    assert_int_equal(mr_zones_get(own, mr_slice_str("None"), &zone, NULL), MR_INVALID);
    assert_int_equal(mr_zones_get(own, mr_slice_str("UTC"), &zone, NULL), MR_OK);
    mr_zones_free(own);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0);
}

static void utc_needs_no_file(void **state)
{
    (void)state;
    struct mr_zones *own;
    const struct mr_zone *zone;
    assert_int_equal(mr_zones_new(mr_fs_system(), "/nonexistent/zoneinfo", &own), MR_OK);
    assert_int_equal(mr_zones_get(own, mr_slice_str(""), &zone, NULL), MR_OK);
    assert_string_equal(mr_zone_name(zone), "UTC");
    assert_int_equal(mr_zone_offset(zone, 1), 0);
    assert_int_equal(zone_next_change(zone, 0), INT64_MAX);
    assert_int_equal(mr_zones_get(own, mr_slice_str("Europe/Berlin"), &zone, NULL), MR_INVALID);
    mr_zones_free(own);
}

static void a_zone_is_read_once(void **state)
{
    (void)state;
    assert_ptr_equal(zone_of("Europe/Berlin"), zone_of("Europe/Berlin"));
    assert_ptr_not_equal(zone_of("Europe/Berlin"), zone_of("Europe/Vienna"));
    assert_string_equal(mr_zone_name(zone_of("Asia/Kathmandu")), "Asia/Kathmandu");
}

static void offsets_and_changes_of_berlin(void **state)
{
    (void)state;
    const struct mr_zone *zone = zone_of("Europe/Berlin");
    assert_int_equal(mr_zone_offset(zone, s_of("2026-01-01T00:00:00Z")), 3600);
    assert_int_equal(mr_zone_offset(zone, s_of("2026-03-29T00:59:59Z")), 3600);
    assert_int_equal(mr_zone_offset(zone, s_of("2026-03-29T01:00:00Z")), 7200);
    assert_int_equal(mr_zone_offset(zone, s_of("2026-10-25T01:00:00Z")), 3600);
    assert_int_equal(zone_next_change(zone, s_of("2026-03-29T01:00:00Z")),
                     s_of("2026-10-25T01:00:00Z"));
    assert_int_equal(zone_next_change(zone, s_of("2199-01-01T00:00:00Z")),
                     s_of("2199-03-31T01:00:00Z"));
}

static void local_times_become_moments_in_order(void **state)
{
    (void)state;
    static const char *const names[] = {"Europe/Berlin", "America/Havana", "Pacific/Apia",
                                        "Australia/Lord_Howe", "Antarctica/Troll"};
    for (size_t i = 0; i < COUNT(names); i++) {
        const struct mr_zone *zone = zone_of(names[i]);
        for (int64_t change = 0; (change = zone_next_change(zone, change)) < 4000000000;) {
            int64_t last = INT64_MIN;
            for (int64_t local = change - 40 * 3600; local < change + 40 * 3600; local += 599) {
                int64_t at = mr_zone_to_unix(zone, local);
                assert_true(at >= last);
                /* The clock shows it then, or something later for the first time. */
                assert_true(at + mr_zone_offset(zone, at) >= local);
                assert_true(mr_zone_latest_local(zone, at) >= local);
                assert_true(mr_zone_latest_local(zone, at - 1) < local);
                last = at;
            }
        }
    }
}

static void footers_are_followed(void **state)
{
    (void)state;
    static const struct {
        const char *footer, *at;
        int32_t offset;
    } cases[] = {
        {"UTC0", "2050-01-01T00:00:00Z", 0},
        {"<+0545>-5:45", "2050-01-01T00:00:00Z", 20700},
        {"EST5EDT,M3.2.0,M11.1.0", "2050-03-13T06:59:59Z", -18000},
        {"EST5EDT,M3.2.0,M11.1.0", "2050-03-13T07:00:00Z", -14400},
        {"EST5EDT,M3.2.0,M11.1.0", "2050-11-06T05:59:59Z", -14400},
        {"EST5EDT,M3.2.0,M11.1.0", "2050-11-06T06:00:00Z", -18000},
        /* The southern half of the world, winter in the middle of the year. */
        {"NZST-12NZDT,M9.5.0,M4.1.0/3", "2050-01-01T00:00:00Z", 46800},
        {"NZST-12NZDT,M9.5.0,M4.1.0/3", "2050-07-01T00:00:00Z", 43200},
        /* Ireland's standard time is that of summer. */
        {"IST-1GMT0,M10.5.0,M3.5.0/1", "2050-01-01T00:00:00Z", 0},
        {"IST-1GMT0,M10.5.0,M3.5.0/1", "2050-07-01T00:00:00Z", 3600},
        /* Half an hour, and times before midnight and on the next day. */
        {"<+1030>-10:30<+11>-11,M10.1.0,M4.1.0", "2050-01-01T00:00:00Z", 39600},
        {"<-02>2<-01>,M3.5.0/-1,M10.5.0/0", "2050-03-27T00:59:59Z", -7200},
        {"<-02>2<-01>,M3.5.0/-1,M10.5.0/0", "2050-03-27T01:00:00Z", -3600},
        {"EET-2EEST,M3.4.4/50,M10.4.4/50", "2050-03-25T23:59:59Z", 7200},
        {"EET-2EEST,M3.4.4/50,M10.4.4/50", "2050-03-26T00:00:00Z", 10800},
        /* Days of the year, with and without the leap day. */
        {"AAA0BBB,J60/0,J300/0", "2052-02-29T23:59:59Z", 0},
        {"AAA0BBB,J60/0,J300/0", "2052-03-01T00:00:00Z", 3600},
        {"AAA0BBB,59/0,299/0", "2052-02-29T00:00:00Z", 3600},
        /* Daylight saving all the year. */
        {"XXX3EDT4,0/0,J365/23", "2050-01-01T03:00:00Z", -14400},
        {"XXX3EDT4,0/0,J365/23", "2050-07-01T00:00:00Z", -14400},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        struct mr_zone *zone = zone_by_footer(cases[i].footer);
        assert_non_null(zone);
        int32_t offset = mr_zone_offset(zone, s_of(cases[i].at));
        if (offset != cases[i].offset)
            fail_msg("%s at %s: %d", cases[i].footer, cases[i].at, offset);
        mr_zone_free(zone);
    }
    static const char *const wrong[] = {"X",
                                        "UTC",
                                        "UT0",
                                        "UTC25",
                                        "EST5EDT",
                                        "EST5EDT,M3",
                                        "A0B0,1,400",
                                        "AAA0BBB,J0,J3",
                                        "<A0",
                                        "UTC0x",
                                        "AAA0BBB,M13.1.0,M1.1.0"};
    for (size_t i = 0; i < COUNT(wrong); i++) {
        struct mr_zone *zone = zone_by_footer(wrong[i]);
        if (zone != NULL)
            fail_msg("'%s' is taken for a rule", wrong[i]);
    }
}

static void old_files_have_no_rule_and_end_with_their_last_change(void **state)
{
    (void)state;
    static const int32_t offsets[] = {0, 3600};
    static const struct change changes[] = {{-1000, 1}, {1000, 0}, {2000, 1}, {3000, 1}};
    struct made made = {0};
    struct mr_zone *zone;
    put_block(&made, '\0', changes, COUNT(changes), offsets, COUNT(offsets));
    assert_int_equal(mr_zone_parse("old", mr_buf_slice(&made.buf), &zone, NULL), MR_OK);
    assert_int_equal(mr_zone_offset(zone, -1001), 0);
    assert_int_equal(mr_zone_offset(zone, -1000), 3600);
    assert_int_equal(zone_next_change(zone, 0), 1000);
    assert_int_equal(mr_zone_offset(zone, 5000000000), 3600);
    assert_int_equal(zone_next_change(zone, 2000), INT64_MAX); /* 3000 changes nothing */
    mr_zone_free(zone);
    mr_buf_done(&made.buf);
}

static void check_refused(struct made *made)
{
    struct mr_zone *zone = NULL;
    struct mr_detail detail = {0};
    assert_int_equal(mr_zone_parse("bad", mr_buf_slice(&made->buf), &zone, &detail), MR_INVALID);
    assert_null(zone);
    assert_true(strlen(detail.text) > 0);
    mr_buf_done(&made->buf);
    *made = (struct made){0};
}

static void files_that_are_none_are_refused(void **state)
{
    (void)state;
    static const int32_t offsets[] = {0, 3600}, far[] = {26 * 3600};
    static const struct change backwards[] = {{5, 1}, {4, 0}}, nowhere[] = {{5, 2}};
    struct made made = {0};
    check_refused(&made);
    put(&made, "not a zone at all, but long enough for a header", 46);
    check_refused(&made);
    put_block(&made, '\0', backwards, 2, offsets, 2);
    check_refused(&made);
    put_block(&made, '\0', nowhere, 1, offsets, 2);
    check_refused(&made);
    put_block(&made, '\0', NULL, 0, far, 1);
    check_refused(&made);
    put_block(&made, '\0', NULL, 0, NULL, 0);
    check_refused(&made);
    put_block(&made, '2', NULL, 0, offsets, 1); /* its second half is missing */
    check_refused(&made);
    static const struct change good[] = {{4, 1}, {5, 0}};
    put_block(&made, '\0', good, 2, offsets, 2);
    made.buf.len -= 1;
    check_refused(&made);
}

/* ---- threads --------------------------------------------------------------------------------- */

static void *ask_for_zones(void *arg)
{
    static const char *const names[] = {"Europe/Paris", "Asia/Tokyo", "America/Lima", "Nowhere/X"};
    struct mr_zones *shared = arg;
    int64_t sum = 0;
    for (int i = 0; i < 400; i++) {
        const struct mr_zone *zone;
        if (mr_zones_get(shared, mr_slice_str(names[i % 4]), &zone, NULL) == MR_OK)
            sum += mr_zone_offset(zone, 1800000000);
    }
    return (void *)(intptr_t)sum;
}

static void many_threads_share_the_cache(void **state)
{
    (void)state;
    struct mr_zones *shared;
    pthread_t threads[4];
    assert_int_equal(mr_zones_new(mr_fs_system(), NULL, &shared), MR_OK);
    for (size_t i = 0; i < COUNT(threads); i++)
        assert_int_equal(mr_thread_start(&threads[i], "zones", ask_for_zones, shared), MR_OK);
    for (size_t i = 0; i < COUNT(threads); i++) {
        void *sum;
        assert_int_equal(pthread_join(threads[i], &sum), 0);
        assert_int_equal((intptr_t)sum, 100 * (3600 + 9 * 3600 - 5 * 3600));
    }
    mr_zones_free(shared);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_that_lead_elsewhere_are_refused),
        cmocka_unit_test(a_name_that_is_not_there_is_told_what_names_are_like),
        cmocka_unit_test(a_link_out_of_the_folder_is_no_zone),
        cmocka_unit_test(utc_needs_no_file),
        cmocka_unit_test(a_zone_is_read_once),
        cmocka_unit_test(offsets_and_changes_of_berlin),
        cmocka_unit_test(local_times_become_moments_in_order),
        cmocka_unit_test(footers_are_followed),
        cmocka_unit_test(old_files_have_no_rule_and_end_with_their_last_change),
        cmocka_unit_test(files_that_are_none_are_refused),
        cmocka_unit_test(many_threads_share_the_cache),
    };
    return cmocka_run_group_tests(tests, open_zones, close_zones);
}
