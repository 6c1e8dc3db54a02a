/* SPDX-License-Identifier: Apache-2.0 */
/* Slices: order, prefixes, UTF-8, names, little-endian fields. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/slice.h"

static struct mr_slice bytes_of(const char *text)
{
    return mr_slice_make(text, strlen(text));
}

static void equal_slices_have_equal_bytes(void **state)
{
    (void)state;
    assert_true(mr_slice_equal(MR_SLICE_LIT("abc"), mr_slice_str("abc")));
    assert_false(mr_slice_equal(MR_SLICE_LIT("abc"), MR_SLICE_LIT("abd")));
    assert_false(mr_slice_equal(MR_SLICE_LIT("abc"), MR_SLICE_LIT("ab")));
    assert_true(mr_slice_equal((struct mr_slice){NULL, 0}, MR_SLICE_LIT("")));
    assert_int_equal(mr_slice_str(NULL).len, 0);
    assert_int_equal(MR_SLICE_LIT("a\0b").len, 3);
}

static void slices_are_ordered_bytewise_with_prefixes_first(void **state)
{
    (void)state;
    static const char *const ordered[] = {"", "A", "a", "aa", "ab", "b", "\x7f", "\x80", "\xff"};
    size_t n = sizeof ordered / sizeof ordered[0];
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; j < n; j++) {
            int order = mr_slice_compare(bytes_of(ordered[i]), bytes_of(ordered[j]));
            assert_int_equal((order > 0) - (order < 0), (i > j) - (i < j));
        }
    }
    assert_int_equal(mr_slice_compare((struct mr_slice){0}, (struct mr_slice){0}), 0);
}

static void a_prefix_is_found_at_the_start_only(void **state)
{
    (void)state;
    assert_true(mr_slice_starts_with(MR_SLICE_LIT("mail:send"), MR_SLICE_LIT("mail:")));
    assert_true(mr_slice_starts_with(MR_SLICE_LIT("mail"), MR_SLICE_LIT("mail")));
    assert_true(mr_slice_starts_with(MR_SLICE_LIT("mail"), (struct mr_slice){0}));
    assert_false(mr_slice_starts_with(MR_SLICE_LIT("mai"), MR_SLICE_LIT("mail")));
    assert_false(mr_slice_starts_with(MR_SLICE_LIT("a mail"), MR_SLICE_LIT("mail")));
    assert_false(mr_slice_starts_with((struct mr_slice){0}, MR_SLICE_LIT("m")));
}

struct utf8_case {
    const char *bytes;
    bool valid;
};

static const struct utf8_case utf8_cases[] = {
    {"", true},
    {"plain ASCII text, longer than a word", true},
    {"gr\xc3\xbc\xc3\x9f", true},
    {"\xe2\x82\xac", true},
    {"\xf0\x9f\x98\x80", true},
    {"12345678\xc3\xa4", true},
    {"1234567\xc3\xa4"
     "123456789",
     true},
    {"\xc2\x80", true},
    {"\xe0\xa0\x80", true},
    {"\xed\x9f\xbf", true},
    {"\xee\x80\x80", true},
    {"\xf0\x90\x80\x80", true},
    {"\xf4\x8f\xbf\xbf", true},
    {"\x80", false},
    {"\xbf", false},
    {"\xc0\xaf", false},         /* overlong */
    {"\xc1\xbf", false},         /* overlong */
    {"\xe0\x9f\xbf", false},     /* overlong */
    {"\xf0\x8f\xbf\xbf", false}, /* overlong */
    {"\xed\xa0\x80", false},     /* surrogate */
    {"\xed\xbf\xbf", false},     /* surrogate */
    {"\xf4\x90\x80\x80", false}, /* above U+10FFFF */
    {"\xf5\x80\x80\x80", false},
    {"\xff", false},
    {"\xfe", false},
    {"\xc3", false}, /* cut off */
    {"\xe2\x82", false},
    {"\xf0\x9f\x98", false},
    {"\xc3"
     "a",
     false},
    {"\xe2\x82"
     "a",
     false},
    {"\xf0\x9f\x98"
     "a",
     false},
    {"12345678\xff", false},
    {"1234567\xc3"
     "12345678",
     false},
};

static void utf8_is_checked_strictly(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof utf8_cases / sizeof utf8_cases[0]; i++)
        assert_int_equal(mr_utf8_valid(bytes_of(utf8_cases[i].bytes)), utf8_cases[i].valid);
    assert_true(mr_utf8_valid(MR_SLICE_LIT("nul\0inside")));
}

static void what_is_not_utf8_is_made_so_and_characters_stay(void **state)
{
    char mixed[] = "\xc3\xa9 \xff\xc3";
    (void)state;
    for (size_t i = 0; i < sizeof utf8_cases / sizeof utf8_cases[0]; i++) {
        struct mr_slice before = bytes_of(utf8_cases[i].bytes);
        char text[128];
        assert_true(before.len <= sizeof text);
        memcpy(text, before.data, before.len);
        mr_utf8_clean(text, before.len);
        struct mr_slice after = mr_slice_make(text, before.len);
        assert_true(mr_utf8_valid(after));
        assert_int_equal(mr_slice_equal(before, after), utf8_cases[i].valid);
    }
    mr_utf8_clean(mixed, sizeof mixed - 1);
    assert_string_equal(mixed, "\xc3\xa9 \x3f\x3f");
}

/* Writes the plain way: the shortest form of a code point. */
static size_t encode(uint32_t c, uint8_t *p)
{
    if (c < 0x80) {
        p[0] = (uint8_t)c;
        return 1;
    }
    size_t len = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    static const uint8_t leads[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (size_t i = len - 1; i > 0; i--, c >>= 6)
        p[i] = 0x80 | (c & 0x3f);
    p[0] = (uint8_t)(leads[len] | c);
    return len;
}

static void every_code_point_but_the_surrogates_is_valid(void **state)
{
    (void)state;
    for (uint32_t c = 0; c < 0x110400; c++) {
        uint8_t bytes[4];
        size_t len = encode(c, bytes);
        bool valid = c < 0x110000 && (c < 0xd800 || c > 0xdfff);
        if (mr_utf8_valid(mr_slice_make(bytes, len)) != valid)
            fail_msg("code point U+%04X", c);
    }
}

static void names_are_short_utf8_without_controls_and_braces(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        enum mr_err err;
    } rows[] = {
        {"default", MR_OK},       {"mail:send", MR_OK},     {"a b", MR_OK},
        {"gr\xc3\xbcn", MR_OK},   {"q@node-1", MR_OK},      {"\xc2\xa0", MR_OK},
        {"", MR_INVALID},         {"a{b", MR_INVALID},      {"a}b", MR_INVALID},
        {"a\nb", MR_INVALID},     {"\x7f", MR_INVALID},     {"\x1f", MR_INVALID},
        {"\xc2\x85", MR_INVALID}, {"\xc2\x9f", MR_INVALID}, {"a\xff", MR_INVALID},
        {"a\xc2", MR_INVALID},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(mr_name_check(bytes_of(rows[i].name)), rows[i].err);
    assert_int_equal(mr_name_check(MR_SLICE_LIT("a\0b")), MR_INVALID);
    assert_int_equal(mr_name_check((struct mr_slice){0}), MR_INVALID);
    char text[MR_NAME_MAX + 1];
    memset(text, 'n', sizeof text);
    assert_int_equal(mr_name_check(mr_slice_make(text, MR_NAME_MAX)), MR_OK);
    assert_int_equal(mr_name_check(mr_slice_make(text, MR_NAME_MAX + 1)), MR_TOO_BIG);
}

static void fields_are_little_endian_at_any_alignment(void **state)
{
    (void)state;
    for (size_t at = 0; at < 8; at++) {
        uint8_t bytes[16] = {0};
        mr_store64(bytes + at, 0x0102030405060708ULL);
        assert_int_equal(bytes[at], 8);
        assert_int_equal(bytes[at + 7], 1);
        assert_int_equal(mr_load64(bytes + at), 0x0102030405060708ULL);
        assert_int_equal(mr_load32(bytes + at), 0x05060708);
        assert_int_equal(mr_load16(bytes + at), 0x0708);
        mr_store32(bytes + at, 0xa0b0c0d0);
        mr_store16(bytes + at + 4, 0xe0f0);
        assert_int_equal(mr_load64(bytes + at), 0x0102e0f0a0b0c0d0ULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_slices_have_equal_bytes),
        cmocka_unit_test(slices_are_ordered_bytewise_with_prefixes_first),
        cmocka_unit_test(a_prefix_is_found_at_the_start_only),
        cmocka_unit_test(utf8_is_checked_strictly),
        cmocka_unit_test(what_is_not_utf8_is_made_so_and_characters_stay),
        cmocka_unit_test(every_code_point_but_the_surrogates_is_valid),
        cmocka_unit_test(names_are_short_utf8_without_controls_and_braces),
        cmocka_unit_test(fields_are_little_endian_at_any_alignment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
