/* SPDX-License-Identifier: Apache-2.0 */
/* Alarms: what is told to a command, and how long somebody waits for it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "timer/alarm.h"
#include "unit/temp_dir.h"

static struct mr_alarm *start(const char *command)
{
    struct mr_alarm *alarm;
    struct mr_detail detail = {.text = ""};
    assert_int_equal(mr_alarm_start(command, NULL, &alarm, &detail), MR_OK);
    return alarm;
}

/* A server that ends is not held up by somebody who does not listen. */
static void test_what_waits_when_it_is_stopped_costs_one_try_and_not_one_each(void **state)
{
    struct mr_alarm *alarm = start("sleep 300");
    (void)state;
    mr_mono since = mr_mono_now(mr_clock_system());
    for (int i = 0; i < 100; i++)
        mr_alarm_tell(alarm, &(struct mr_alarm_event){.kind = "failed"});
    mr_alarm_stop(alarm);
    assert_true(mr_mono_now(mr_clock_system()).ns - since.ns < 15 * MR_NS_PER_S);
}

static void test_a_long_reason_is_cut_between_characters(void **state)
{
    enum { LONG = 5001 };
    char dir[TEMP_DIR_MAX], command[TEMP_DIR_MAX + 32], path[TEMP_DIR_MAX + 8];
    char reason[LONG], told[3 * LONG] = "";
    (void)state;
    temp_dir_make(dir);
    (void)snprintf(path, sizeof path, "%s/told", dir);
    (void)snprintf(command, sizeof command, "cat >'%s'", path);
    reason[0] = 'x'; /* so that no even number of bytes is a number of characters */
    for (size_t i = 1; i < LONG; i += 2)
        memcpy(reason + i, "\xc3\xa9", 2);
    struct mr_alarm *alarm = start(command);
    mr_alarm_tell(
        alarm, &(struct mr_alarm_event){.kind = "failed", .reason = mr_slice_make(reason, LONG)});
    mr_alarm_stop(alarm);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    assert_true(fread(told, 1, sizeof told - 1, file) > 4000);
    (void)fclose(file);
    assert_non_null(strstr(told, "\"reason\":\"x\xc3\xa9\xc3\xa9"));
    assert_non_null(strstr(told, "\xc3\xa9\"}"));
    temp_dir_remove(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_waits_when_it_is_stopped_costs_one_try_and_not_one_each),
        cmocka_unit_test(test_a_long_reason_is_cut_between_characters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
