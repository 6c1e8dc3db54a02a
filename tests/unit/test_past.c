/* SPDX-License-Identifier: Apache-2.0 */
/* What a task has behind it, as text: what was written is read, and of bytes that make no sense nothing is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "broker/past.h"

static void what_was_written_is_read(void **state)
{
    (void)state;
    const struct mr_past first = {.ms = 12,
                                  .started_ms = 7,
                                  .attempt = 3,
                                  .what = MR_SLICE_LIT("lease_lost"),
                                  .node = MR_SLICE_LIT("a b\xc3\xbc"),
                                  .text = MR_SLICE_LIT("1 2 3 error 0 0\n\n")};
    const struct mr_past second = {.ms = INT64_MAX, .what = MR_SLICE_LIT("run")};
    struct mr_buf buf = {0};
    struct mr_past past;
    assert_int_equal(mr_past_add(&buf, &first), MR_OK);
    assert_int_equal(mr_past_add(&buf, &second), MR_OK);
    struct mr_slice rest = mr_buf_slice(&buf);
    assert_true(mr_past_next(&rest, &past));
    assert_int_equal(past.ms, 12);
    assert_int_equal(past.started_ms, 7);
    assert_int_equal(past.attempt, 3);
    assert_true(mr_slice_equal(past.what, first.what));
    assert_true(mr_slice_equal(past.node, first.node));
    assert_true(mr_slice_equal(past.text, first.text));
    assert_true(mr_past_next(&rest, &past));
    assert_int_equal(past.ms, INT64_MAX);
    assert_int_equal(past.node.len + past.text.len, 0);
    assert_false(mr_past_next(&rest, &past));
    mr_buf_done(&buf);
}

static void a_long_text_is_cut_between_two_characters(void **state)
{
    (void)state;
    char text[MR_PAST_TEXT_MAX + 2];
    struct mr_buf buf = {0};
    struct mr_past past;
    memset(text, 'x', sizeof text);
    memcpy(text + MR_PAST_TEXT_MAX - 1, "\xc3\xbc", 2);
    assert_int_equal(mr_past_add(&buf, &(struct mr_past){.what = MR_SLICE_LIT("error"),
                                                         .text = mr_slice_make(text, sizeof text)}),
                     MR_OK);
    struct mr_slice rest = mr_buf_slice(&buf);
    assert_true(mr_past_next(&rest, &past));
    assert_int_equal(past.text.len, MR_PAST_TEXT_MAX - 1);
    mr_buf_done(&buf);
}

static void of_what_makes_no_sense_nothing_is_read(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "\n",
        "1",
        "1 2 3",
        "1 2 3 error 0 0",
        "1 2 3 error 0 0\n",
        "1 2 3 error 1 0\n\n",
        "1 2 3 error 0 18446744073709551615\n\n",
        "1 2 3 error 18446744073709551615 1\nx\n",
        "1 2 3 error 9 9\nx\n",
        "1 2 3 Error 0 0\n\n",
        "1 2 3 <b> 0 0\n\n",
        "1 2 3 aaaaaaaaaaaaaaaaaaaaaaaa 0 0\n\n",
        "x 2 3 error 0 0\n\n",
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct mr_slice rest = mr_slice_str(bad[i]);
        struct mr_past past;
        assert_false(mr_past_next(&rest, &past));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_written_is_read),
        cmocka_unit_test(a_long_text_is_cut_between_two_characters),
        cmocka_unit_test(of_what_makes_no_sense_nothing_is_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
