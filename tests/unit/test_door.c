/* SPDX-License-Identifier: Apache-2.0 */
/* Opening an engine that talks to a server: how long it waits, and what it says. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "broker/door.h"

enum { LONG_MS = 600 * 1000, SHORT_MS = 10 };

/* What opening says when the loop has said these before. */
static enum mr_err open_after(const enum mr_err *errs, const char *const *whys, size_t n,
                              int64_t ms, struct mr_detail *ret_why)
{
    struct mr_door door = {0};
    mr_door_init(&door);
    for (size_t i = 0; i < n; i++)
        mr_door_changed(&door, errs[i] == MR_OK, errs[i], whys[i]);
    enum mr_err err = mr_door_await_up(&door, ms, ret_why);
    mr_door_quiet(&door);
    mr_door_quiet(&door); /* it does no harm */
    mr_door_await_quiet(&door);
    mr_door_done(&door);
    return err;
}

static void a_connection_opens_also_when_it_is_gone_again(void **state)
{
    struct mr_detail why;
    (void)state;
    const enum mr_err errs[] = {MR_OK, MR_UNAVAILABLE};
    const char *const whys[] = {NULL, "it is gone"};
    assert_int_equal(open_after(errs, whys, 2, LONG_MS, &why), MR_OK);
}

static void what_does_not_pass_is_not_waited_for(void **state)
{
    struct mr_detail why;
    (void)state;
    const enum mr_err errs[] = {MR_UNAVAILABLE, MR_DENIED};
    const char *const whys[] = {"nobody listens", "a wrong password"};
    assert_int_equal(open_after(errs, whys, 2, LONG_MS, &why), MR_DENIED);
    assert_string_equal(why.text, "a wrong password");
}

static void the_last_reason_is_said_when_time_is_up(void **state)
{
    struct mr_detail why;
    (void)state;
    const enum mr_err errs[] = {MR_NOMEM, MR_UNAVAILABLE};
    const char *const whys[] = {"no memory", "nobody listens"};
    assert_int_equal(open_after(errs, whys, 2, SHORT_MS, &why), MR_UNAVAILABLE);
    assert_string_equal(why.text, "nobody listens");
}

static void silence_is_a_reason(void **state)
{
    struct mr_detail why;
    (void)state;
    const enum mr_err errs[] = {MR_UNAVAILABLE};
    const char *const whys[] = {""};
    assert_int_equal(open_after(NULL, NULL, 0, SHORT_MS, &why), MR_UNAVAILABLE);
    assert_string_equal(why.text, "no answer");
    assert_int_equal(open_after(errs, whys, 1, SHORT_MS, &why), MR_UNAVAILABLE);
    assert_string_equal(why.text, "no answer");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_connection_opens_also_when_it_is_gone_again),
        cmocka_unit_test(what_does_not_pass_is_not_waited_for),
        cmocka_unit_test(the_last_reason_is_said_when_time_is_up),
        cmocka_unit_test(silence_is_a_reason),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
