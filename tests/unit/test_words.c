/* SPDX-License-Identifier: Apache-2.0 */
/* Words and names that callers say: which there are, and why something is none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "api/words.h"

static const struct words *const all[] = {
    &words_states,   &words_timer_states, &words_job_states,    &words_part_states,
    &words_assigns,  &words_retry_modes,  &words_timer_kinds,   &words_misfires,
    &words_overlaps, &words_event_kinds,  &words_state_numbers,
};

static void each_word_stands_for_its_number(void **state)
{
    (void)state;
    for (size_t a = 0; a < sizeof all / sizeof *all; a++) {
        for (int i = all[a]->first; i < all[a]->end; i++) {
            struct mr_detail detail;
            int number = -1;
            struct mr_slice word = mr_slice_str(all[a]->name(i));
            assert_int_equal(words_read(all[a], "word", word, &number, &detail), MR_OK);
            assert_int_equal(number, i);
            assert_int_equal(words_check(all[a], "word", i, &detail), MR_OK);
        }
    }
}

static void what_is_none_is_told_which_there_are(void **state)
{
    (void)state;
    struct mr_detail detail;
    int number = 7;
    assert_int_equal(
        words_read(&words_timer_states, "state", MR_SLICE_LIT("lost"), &number, &detail),
        MR_INVALID);
    assert_string_equal(detail.text, "state: \"lost\" is none of active, paused, finished");
    /* "none" names what is not there. */
    assert_int_equal(words_read(&words_states, "state", MR_SLICE_LIT("none"), &number, &detail),
                     MR_INVALID);
    assert_int_equal(
        words_read(&words_retry_modes, "retry_mode", MR_SLICE_LIT("gat"), &number, &detail),
        MR_INVALID);
    assert_string_equal(detail.text, "retry_mode: \"gat\" is none of gate, order, class");
    assert_int_equal(number, 7);
    assert_int_equal(words_check(&words_event_kinds, "kinds", 5, &detail), MR_INVALID);
    assert_string_equal(
        detail.text,
        "kinds: 5 is none of EVENT_ANY, EVENT_QUEUE, EVENT_NODE, EVENT_SERVER, EVENT_LEADER");
    assert_int_equal(words_check(&words_event_kinds, "kinds", -1, &detail), MR_INVALID);
}

static void where_nothing_is_said_the_number_stays(void **state)
{
    (void)state;
    struct mr_detail detail;
    int number = 7;
    assert_int_equal(words_read(&words_states, "state", (struct mr_slice){0}, &number, &detail),
                     MR_OK);
    assert_int_equal(words_read(&words_states, "state", MR_SLICE_LIT(""), &number, &detail), MR_OK);
    assert_int_equal(number, 7);
}

/* Of what is said only the beginning is said again, and all that there is comes behind it. */
static void a_long_word_leaves_room_for_the_others(void **state)
{
    (void)state;
    struct mr_detail detail;
    char text[4000];
    int number;
    memset(text, 'x', sizeof text);
    text[99] = (char)0xc3; /* the limit is in the middle of a character */
    text[100] = (char)0xa4;
    assert_int_equal(
        words_read(&words_states, "state", mr_slice_make(text, sizeof text), &number, &detail),
        MR_INVALID);
    assert_true(mr_utf8_valid(mr_slice_str(detail.text)));
    assert_non_null(strstr(detail.text, "xxx\" is none of scheduled, "));
    assert_non_null(strstr(detail.text, ", aggregating"));
}

static void why_it_is_no_name_is_said(void **state)
{
    (void)state;
    static const struct {
        struct mr_slice name;
        enum mr_err err;
        const char *why;
    } rows[] = {
        {{0}, MR_INVALID, "queue: missing"},
        {MR_SLICE_LIT(""), MR_INVALID, "queue: missing"},
        {MR_SLICE_LIT("a\nb"), MR_INVALID,
         "queue: must be UTF-8 without control characters or braces"},
        {MR_SLICE_LIT("a{b}"), MR_INVALID,
         "queue: must be UTF-8 without control characters or braces"},
        {MR_SLICE_LIT("a\xff"), MR_INVALID,
         "queue: must be UTF-8 without control characters or braces"},
        {MR_SLICE_LIT("0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
                      "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef!"),
         MR_TOO_BIG, "queue: 129 bytes, the limit is 128"},
        {MR_SLICE_LIT("mail"), MR_OK, ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct mr_detail detail = {.text = ""};
        assert_int_equal(mr_name_check_of("queue", rows[i].name, &detail), rows[i].err);
        assert_string_equal(detail.text, rows[i].why);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_word_stands_for_its_number),
        cmocka_unit_test(what_is_none_is_told_which_there_are),
        cmocka_unit_test(where_nothing_is_said_the_number_stays),
        cmocka_unit_test(a_long_word_leaves_room_for_the_others),
        cmocka_unit_test(why_it_is_no_name_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
