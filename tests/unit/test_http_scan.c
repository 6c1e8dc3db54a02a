/* SPDX-License-Identifier: Apache-2.0 */
/* Looking for a text in tasks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "api/http_scan.h"

enum { LARGE = 16 * 1024 * 1024 };

static bool has(const char *payload, const char *text)
{
    struct mr_task task = {.payload = mr_slice_str(payload)};
    return http_task_has_text(&task, mr_slice_str(text));
}

static void a_text_is_found_whatever_its_case(void **state)
{
    (void)state;
    assert_true(has("The Needle is here", "nEEDLE"));
    assert_true(has("needle", "needle"));
    assert_true(has("\xc3\x84needle\xc3\xa4", "needle\xc3\xa4"));
    assert_false(has("needl", "needle"));
    assert_false(has("[", "{"));
    assert_false(has("", "x"));
    struct mr_task task = {.id = MR_SLICE_LIT("one"),
                           .type = MR_SLICE_LIT("two"),
                           .last_error = MR_SLICE_LIT("three")};
    assert_true(http_task_has_text(&task, MR_SLICE_LIT("ONE")));
    assert_true(http_task_has_text(&task, MR_SLICE_LIT("wo")));
    assert_true(http_task_has_text(&task, MR_SLICE_LIT("Three")));
    assert_false(http_task_has_text(&task, MR_SLICE_LIT("four")));
}

/* It is gone through in pieces. */
static void a_text_is_found_wherever_it_is(void **state)
{
    (void)state;
    enum { LEN = 70 * 1000 };
    static char payload[LEN + 1];
    for (size_t at = 0; at + 6 <= LEN; at += at % 4096 < 4080 && at % 4096 > 8 ? 1018 : 1) {
        memset(payload, '.', LEN);
        memcpy(payload + at, "NeedLe", 6);
        assert_true(has(payload, "needle"));
    }
    memset(payload, '.', LEN);
    assert_false(has(payload, "needle"));
}

/* Texts that nearly fit at every place cost no more than others. */
static void no_text_takes_long(void **state)
{
    (void)state;
    char *payload = malloc(LARGE), text[MR_NAME_MAX + 1] = "";
    struct timespec used;
    assert_non_null(payload);
    memset(payload, 'a', LARGE);
    memset(text, 'a', MR_NAME_MAX - 1);
    text[MR_NAME_MAX - 1] = 'b';
    struct mr_task task = {.payload = mr_slice_make(payload, LARGE)};
    assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used), 0);
    double before = (double)used.tv_sec + (double)used.tv_nsec / 1e9;
    assert_false(http_task_has_text(&task, mr_slice_str(text)));
    assert_int_equal(clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used), 0);
    assert_true((double)used.tv_sec + (double)used.tv_nsec / 1e9 - before < 1.0);
    free(payload);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_text_is_found_whatever_its_case),
        cmocka_unit_test(a_text_is_found_wherever_it_is),
        cmocka_unit_test(no_text_takes_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
