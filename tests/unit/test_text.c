/* SPDX-License-Identifier: Apache-2.0 */
/* What people type: good and bad inputs by table, and back again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <stdlib.h>
#include <time.h>

#include "base/rand.h"
#include "base/text.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

struct int_case {
    const char *text;
    enum mr_err err;
    int64_t value;
};

typedef enum mr_err int_parser(const char *text, int64_t *ret_value);

static void check_cases(int_parser *parse, const struct int_case *cases, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        int64_t value = -77;
        enum mr_err err = parse(cases[i].text, &value);
        int64_t expected = cases[i].err == MR_OK ? cases[i].value : -77;
        if (err != cases[i].err || value != expected)
            fail_msg("'%s': %s, %lld", cases[i].text, mr_err_name(err), (long long)value);
    }
}

static void durations_are_read_strictly(void **state)
{
    (void)state;
    static const struct int_case cases[] = {
        {"0", MR_OK, 0},
        {"0s", MR_OK, 0},
        {"250ms", MR_OK, 250},
        {"10s", MR_OK, 10000},
        {"5m", MR_OK, 300000},
        {"1h30m", MR_OK, 5400000},
        {"7d", MR_OK, 604800000},
        {"1d2h3m4s5ms", MR_OK, 93784005},
        {"1s500ms", MR_OK, 1500},
        {"90m", MR_OK, 5400000},
        {"0000001s", MR_OK, 1000},
        {"9223372036854775807ms", MR_OK, INT64_MAX},
        {"106751991167d", MR_OK, 106751991167LL * 86400000},
        {"", MR_INVALID, 0},
        {"1", MR_INVALID, 0},
        {"00", MR_INVALID, 0},
        {"s", MR_INVALID, 0},
        {"10", MR_INVALID, 0},
        {"-1s", MR_INVALID, 0},
        {"+1s", MR_INVALID, 0},
        {" 1s", MR_INVALID, 0},
        {"1s ", MR_INVALID, 0},
        {"1 s", MR_INVALID, 0},
        {"1.5h", MR_INVALID, 0},
        {"1S", MR_INVALID, 0},
        {"1w", MR_INVALID, 0},
        {"1us", MR_INVALID, 0},
        {"1sec", MR_INVALID, 0},
        {"1h30", MR_INVALID, 0},
        {"30m1h", MR_INVALID, 0},
        {"1h1h", MR_INVALID, 0},
        {"1mm", MR_INVALID, 0},
        {"1msm", MR_INVALID, 0},
        {"9223372036854775808ms", MR_TOO_BIG, 0},
        {"18446744073709551616ms", MR_TOO_BIG, 0},
        {"106751991168d", MR_TOO_BIG, 0},
        {"106751991167d24h", MR_TOO_BIG, 0},
        {"99999999999999999999999d", MR_TOO_BIG, 0},
    };
    check_cases(mr_parse_duration_ms, cases, COUNT(cases));
}

static enum mr_err parse_size(const char *text, int64_t *ret_value)
{
    uint64_t bytes;
    MR_TRY(mr_parse_size(text, &bytes));
    *ret_value = (int64_t)bytes;
    return MR_OK;
}

static void sizes_are_read_strictly(void **state)
{
    (void)state;
    static const struct int_case cases[] = {
        {"0", MR_OK, 0},
        {"4096", MR_OK, 4096},
        {"12B", MR_OK, 12},
        {"64KiB", MR_OK, 65536},
        {"1MiB", MR_OK, 1048576},
        {"2GiB", MR_OK, 2147483648},
        {"3TiB", MR_OK, 3298534883328},
        {"18446744073709551615", MR_OK, -1},
        {"", MR_INVALID, 0},
        {"KiB", MR_INVALID, 0},
        {"-1", MR_INVALID, 0},
        {"+1", MR_INVALID, 0},
        {"1KB", MR_INVALID, 0},
        {"1K", MR_INVALID, 0},
        {"1kib", MR_INVALID, 0},
        {"1 KiB", MR_INVALID, 0},
        {"1KiB ", MR_INVALID, 0},
        {"1.5MiB", MR_INVALID, 0},
        {"0x10", MR_INVALID, 0},
        {"1KiB1", MR_INVALID, 0},
        {"18446744073709551616", MR_TOO_BIG, 0},
        {"18014398509481984KiB", MR_TOO_BIG, 0},
        {"16777216TiB", MR_TOO_BIG, 0},
    };
    check_cases(parse_size, cases, COUNT(cases));
}

static void integers_are_read_strictly(void **state)
{
    (void)state;
    static const struct int_case cases[] = {
        {"0", MR_OK, 0},
        {"-0", MR_OK, 0},
        {"7", MR_OK, 7},
        {"-42", MR_OK, -42},
        {"007", MR_OK, 7},
        {"9223372036854775807", MR_OK, INT64_MAX},
        {"-9223372036854775808", MR_OK, INT64_MIN},
        {"", MR_INVALID, 0},
        {"-", MR_INVALID, 0},
        {"+1", MR_INVALID, 0},
        {"--1", MR_INVALID, 0},
        {" 1", MR_INVALID, 0},
        {"1 ", MR_INVALID, 0},
        {"1x", MR_INVALID, 0},
        {"0x1", MR_INVALID, 0},
        {"1.0", MR_INVALID, 0},
        {"1e3", MR_INVALID, 0},
        {"9223372036854775808", MR_TOO_BIG, 0},
        {"-9223372036854775809", MR_TOO_BIG, 0},
        {"100000000000000000000000", MR_TOO_BIG, 0},
    };
    check_cases(mr_parse_int64, cases, COUNT(cases));
}

static void decimals_are_read_strictly(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum mr_err err;
        double value;
    } cases[] = {
        {"0", MR_OK, 0},          {"-0.5", MR_OK, -0.5},     {"1.25", MR_OK, 1.25},
        {"1e3", MR_OK, 1000},     {"2.5E-1", MR_OK, 0.25},   {"1e+2", MR_OK, 100},
        {"3600", MR_OK, 3600},    {"1e-400", MR_OK, 0},      {"", MR_INVALID, 0},
        {"-", MR_INVALID, 0},     {".5", MR_INVALID, 0},     {"5.", MR_INVALID, 0},
        {"1e", MR_INVALID, 0},    {"1e+", MR_INVALID, 0},    {"+1", MR_INVALID, 0},
        {" 1", MR_INVALID, 0},    {"1 ", MR_INVALID, 0},     {"1,5", MR_INVALID, 0},
        {"inf", MR_INVALID, 0},   {"nan", MR_INVALID, 0},    {"-infinity", MR_INVALID, 0},
        {"0x1p3", MR_INVALID, 0}, {"1.5s", MR_INVALID, 0},   {"1.2.3", MR_INVALID, 0},
        {"1e999", MR_TOO_BIG, 0}, {"-1e999", MR_TOO_BIG, 0},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        double value = -77;
        enum mr_err err = mr_parse_double(cases[i].text, &value);
        double expected = cases[i].err == MR_OK ? cases[i].value : -77;
        if (err != cases[i].err || value != expected)
            fail_msg("'%s': %s, %g", cases[i].text, mr_err_name(err), value);
    }
}

static void decimals_are_written_so_that_they_read_back(void **state)
{
    (void)state;
    static const struct {
        double value;
        const char *text;
    } cases[] = {
        {0, "0"},
        {0.1, "0.1"},
        {-2.5, "-2.5"},
        {1e300, "1e+300"},
        {3, "3"},
        {1e-7, "1e-07"},
        {0.1 + 0.2, "0.30000000000000004"},
        {1.0 / 3, "0.3333333333333333"},
        {-1.7976931348623157e308, "-1.7976931348623157e+308"},
        {4.9406564584124654e-324, "4.94065645841247e-324"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char text[MR_DOUBLE_TEXT_MAX + 1];
        double again;
        assert_int_equal(mr_format_double(cases[i].value, text), MR_OK);
        assert_string_equal(text, cases[i].text);
        assert_int_equal(mr_parse_double(text, &again), MR_OK);
        assert_true(again == cases[i].value);
    }
}

static void times_are_read_strictly(void **state)
{
    (void)state;
    static const struct int_case cases[] = {
        {"1970-01-01T00:00:00Z", MR_OK, 0},
        {"2023-11-14T22:13:20Z", MR_OK, 1700000000000},
        {"2023-11-14T22:13:20.5Z", MR_OK, 1700000000500},
        {"2023-11-14T22:13:20.1239999Z", MR_OK, 1700000000123},
        {"2023-11-14t22:13:20z", MR_OK, 1700000000000},
        {"2023-11-14 22:13:20Z", MR_OK, 1700000000000},
        {"2023-11-15T03:43:20+05:30", MR_OK, 1700000000000},
        {"2023-11-14T14:13:20-08:00", MR_OK, 1700000000000},
        {"2023-11-14T22:13:20-00:00", MR_OK, 1700000000000},
        {"2024-02-29T00:00:00Z", MR_OK, 1709164800000},
        {"2000-02-29T00:00:00Z", MR_OK, 951782400000},
        {"1969-12-31T23:59:59.999Z", MR_OK, -1},
        {"0000-01-01T00:00:00Z", MR_OK, -62167219200000},
        {"9999-12-31T23:59:59.999Z", MR_OK, 253402300799999},
        {"2016-12-31T23:59:60Z", MR_OK, 1483228800000},
        {"2017-01-01T00:59:60+01:00", MR_OK, 1483228800000},
        {"0", MR_OK, 0},
        {"1700000000", MR_OK, 1700000000000},
        {"1700000000.25", MR_OK, 1700000000250},
        {"1700000000.0019", MR_OK, 1700000000001},
        {"9223372036854775.807", MR_OK, INT64_MAX},
        {"", MR_INVALID, 0},
        {"now", MR_INVALID, 0},
        {"-1", MR_INVALID, 0},
        {"1700000000.", MR_INVALID, 0},
        {".5", MR_INVALID, 0},
        {"1700000000Z", MR_INVALID, 0},
        {" 1700000000", MR_INVALID, 0},
        {"1e9", MR_INVALID, 0},
        {"2023-11-14", MR_INVALID, 0},
        {"2023-11-14T22:13:20", MR_INVALID, 0},
        {"2023-11-14T22:13Z", MR_INVALID, 0},
        {"2023-11-14T22:13:20.Z", MR_INVALID, 0},
        {"2023-11-14T22:13:20,5Z", MR_INVALID, 0},
        {"2023-11-14T22:13:20ZZ", MR_INVALID, 0},
        {"2023-11-14T22:13:20 Z", MR_INVALID, 0},
        {"2023-11-14T22:13:20+0530", MR_INVALID, 0},
        {"2023-11-14T22:13:20+05:3", MR_INVALID, 0},
        {"2023-11-14T22:13:20+05:301", MR_INVALID, 0},
        {"2023-11-14T22:13:20+24:00", MR_INVALID, 0},
        {"2023-11-14T22:13:20+05:60", MR_INVALID, 0},
        {"2023-11-14_22:13:20Z", MR_INVALID, 0},
        {"23-11-14T22:13:20Z", MR_INVALID, 0},
        {"2023-1-14T22:13:20Z", MR_INVALID, 0},
        {"2023-00-14T22:13:20Z", MR_INVALID, 0},
        {"2023-13-14T22:13:20Z", MR_INVALID, 0},
        {"2023-11-00T22:13:20Z", MR_INVALID, 0},
        {"2023-11-31T22:13:20Z", MR_INVALID, 0},
        {"2023-02-29T00:00:00Z", MR_INVALID, 0},
        {"1900-02-29T00:00:00Z", MR_INVALID, 0},
        {"2023-11-14T24:00:00Z", MR_INVALID, 0},
        {"2023-11-14T22:60:00Z", MR_INVALID, 0},
        {"2023-11-14T22:13:61Z", MR_INVALID, 0},
        {"2023-11-14T22:13:60Z", MR_INVALID, 0},
        {"9223372036854775.808", MR_TOO_BIG, 0},
        {"9223372036854776", MR_TOO_BIG, 0},
        {"99999999999999999999", MR_TOO_BIG, 0},
    };
    check_cases(mr_parse_time_ms, cases, COUNT(cases));
}

static void no_prefix_of_a_time_is_read_beyond_its_end(void **state)
{
    (void)state;
    static const char whole[] = "2023-11-14T22:13:20.123456+05:30";
    for (size_t len = 0; len < sizeof whole - 1; len++) {
        /* Memory of exactly this length, so that a sanitizer sees a read behind it. */
        char *text = strndup(whole, len);
        assert_non_null(text);
        int64_t ms;
        bool number = len >= 1 && len <= 4; /* "2023" are Unix seconds */
        assert_int_equal(mr_parse_time_ms(text, &ms), number ? MR_OK : MR_INVALID);
        free(text);
    }
}

static void times_are_written_in_utc_and_read_back(void **state)
{
    (void)state;
    char text[32];
    mr_format_time_ms(0, text);
    assert_string_equal(text, "1970-01-01T00:00:00.000Z");
    mr_format_time_ms(-1, text);
    assert_string_equal(text, "1969-12-31T23:59:59.999Z");
    mr_format_time_ms(1709210096789, text);
    assert_string_equal(text, "2024-02-29T12:34:56.789Z");
    mr_format_time_ms(INT64_MAX, text);
    assert_string_equal(text, "9999-12-31T23:59:59.999Z");
    mr_format_time_ms(INT64_MIN, text);
    assert_string_equal(text, "0000-01-01T00:00:00.000Z");
    struct mr_rand rand;
    mr_rand_seed(&rand, 9);
    for (int i = 0; i < 20000; i++) {
        int64_t ms = (int64_t)mr_rand_below(&rand, 315569520000000) - 62167219200000;
        mr_format_time_ms(ms, text);
        assert_int_equal(strlen(text), 24);
        int64_t back;
        assert_int_equal(mr_parse_time_ms(text, &back), MR_OK);
        assert_int_equal(back, ms);
    }
}

static void dates_agree_with_the_c_library(void **state)
{
    (void)state;
    for (int64_t day = -719528; day < 2932897; day += 17) {
        time_t seconds = day * 86400;
        struct tm tm;
        assert_non_null(gmtime_r(&seconds, &tm));
        char expected[64], text[32];
        snprintf(expected, sizeof expected, "%04d-%02d-%02dT00:00:00.000Z", tm.tm_year + 1900,
                 tm.tm_mon + 1, tm.tm_mday);
        mr_format_time_ms(day * 86400000, text);
        assert_string_equal(text, expected);
    }
}

static void durations_are_written_with_their_two_largest_units(void **state)
{
    (void)state;
    static const struct {
        int64_t ms;
        const char *text;
    } cases[] = {
        {0, "0s"},
        {1, "1ms"},
        {250, "250ms"},
        {1000, "1s"},
        {1500, "1s500ms"},
        {60000, "1m"},
        {61500, "1m1s"},
        {60999, "1m"},
        {5400000, "1h30m"},
        {3600000, "1h"},
        {3601000, "1h"},
        {86400000, "1d"},
        {93784005, "1d2h"},
        {604800000, "7d"},
        {-250, "-250ms"},
        {-5400000, "-1h30m"},
        {INT64_MAX, "106751991167d7h"},
        {INT64_MIN, "-106751991167d7h"},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        char text[32];
        mr_format_duration_ms(cases[i].ms, text);
        assert_string_equal(text, cases[i].text);
    }
}

static void the_nearest_word_is_found_when_it_is_near(void **state)
{
    (void)state;
    static const char *const words[] = {"enqueue", "work", "queue", "task", "dead",
                                        "bench",   "fsck", "top",   NULL};
    static const struct {
        const char *word;
        const char *nearest;
    } cases[] = {
        {"enqueue", "enqueue"},
        {"enqeue", "enqueue"},
        {"enuqeue", "enqueue"},
        {"qeueu", NULL},
        {"queeu", "queue"},
        {"quue", "queue"},
        {"wrok", "work"},
        {"works", "work"},
        {"wok", "work"},
        {"tsak", "task"},
        {"fcsk", "fsck"},
        {"bnech", "bench"},
        {"deed", "dead"},
        {"serve", NULL},
        {"", NULL},
        {"x", NULL},
        {"tp", "top"},
        {"qqqqqqqqqqqq", NULL},
    };
    for (size_t i = 0; i < COUNT(cases); i++) {
        const char *nearest = mr_nearest_word(cases[i].word, words);
        if (cases[i].nearest == NULL)
            assert_null(nearest);
        else
            assert_string_equal(nearest != NULL ? nearest : "none", cases[i].nearest);
    }
    static const char *const none[] = {NULL};
    assert_null(mr_nearest_word("queue", none));
}

static void the_first_of_equally_near_words_wins(void **state)
{
    (void)state;
    static const char *const words[] = {"cat", "car", "bar", NULL};
    assert_string_equal(mr_nearest_word("caw", words), "cat");
    assert_string_equal(mr_nearest_word("bar", words), "bar");
}

static void very_long_words_are_near_to_nothing(void **state)
{
    (void)state;
    char word[200];
    memset(word, 'a', sizeof word);
    word[sizeof word - 1] = '\0';
    const char *const words[] = {word, "a", NULL};
    assert_null(mr_nearest_word(word, words));
    assert_string_equal(mr_nearest_word("b", words), "a");
}

static void a_name_with_a_number_has_exactly_its_digits(void **state)
{
    static const char *const wrong[] = {
        "log-0000000",  "log-000000001", "log-0000000A", "log-0x000001", "log-+0000001",
        "log- 0000001", "lag-00000001",  "log-0000000g", "log-",         "",
        "log-00000001~"};
    (void)state;
    uint64_t number = 7;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++)
        assert_false(mr_parse_hex_name(wrong[i], "log-", 8, &number));
    assert_int_equal(number, 7);
    assert_true(mr_parse_hex_name("log-0000c0fe", "log-", 8, &number));
    assert_int_equal(number, 0xc0fe);
    assert_true(mr_parse_hex_name("snap-ffffffffffffffff", "snap-", 16, &number));
    assert_true(number == UINT64_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_name_with_a_number_has_exactly_its_digits),
        cmocka_unit_test(durations_are_read_strictly),
        cmocka_unit_test(sizes_are_read_strictly),
        cmocka_unit_test(integers_are_read_strictly),
        cmocka_unit_test(decimals_are_read_strictly),
        cmocka_unit_test(decimals_are_written_so_that_they_read_back),
        cmocka_unit_test(times_are_read_strictly),
        cmocka_unit_test(no_prefix_of_a_time_is_read_beyond_its_end),
        cmocka_unit_test(times_are_written_in_utc_and_read_back),
        cmocka_unit_test(dates_agree_with_the_c_library),
        cmocka_unit_test(durations_are_written_with_their_two_largest_units),
        cmocka_unit_test(the_nearest_word_is_found_when_it_is_near),
        cmocka_unit_test(the_first_of_equally_near_words_wins),
        cmocka_unit_test(very_long_words_are_near_to_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
