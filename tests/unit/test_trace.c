/* SPDX-License-Identifier: Apache-2.0 */
/* The trace context of W3C in headers: what it is, and what a task gets of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "wire/trace.h"

#define TRACE  "0af7651916cd43dd8448eb211c80319c"
#define SPAN   "b7ad6b7169203331"
#define PARENT "00-" TRACE "-" SPAN "-01"

static void what_a_traceparent_is(void **state)
{
    static const struct {
        const char *text;
        bool valid;
    } rows[] = {
        {PARENT, true},
        {"00-" TRACE "-" SPAN "-00", true},
        {"00-" TRACE "-" SPAN "-ff", true},
        {"01-" TRACE "-" SPAN "-01", true}, /* a later version, as far as we know it */
        {"cc-" TRACE "-" SPAN "-01-what-comes-then", true},
        {"cc-" TRACE "-" SPAN "-01.what", false},
        {PARENT "-more", false},
        {PARENT "0", false},
        {"ff-" TRACE "-" SPAN "-01", false},
        {"0-" TRACE "-" SPAN "-01", false},
        {"00-00000000000000000000000000000000-" SPAN "-01", false},
        {"00-" TRACE "-0000000000000000-01", false},
        {"00-0AF7651916CD43DD8448EB211C80319C-" SPAN "-01", false},
        {"00-" TRACE "-" SPAN "-0", false},
        {"00-" TRACE "-" SPAN "-0x", false},
        {"00_" TRACE "-" SPAN "-01", false},
        {"00-" TRACE "_" SPAN "-01", false},
        {"00-" TRACE "-" SPAN "_01", false},
        {"", false},
        {"00", false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (mr_traceparent_valid(mr_slice_str(rows[i].text)) != rows[i].valid)
            fail_msg("\"%s\" is %s", rows[i].text, rows[i].valid ? "refused" : "taken");
}

/* The cut of a good one at each place, in memory of its own length. */
static void a_cut_traceparent_is_none(void **state)
{
    (void)state;
    for (size_t len = 0; len < strlen(PARENT); len++) {
        char *copy = test_malloc(len + 1);
        memcpy(copy, PARENT, len);
        assert_false(mr_traceparent_valid(mr_slice_make(copy, len)));
        test_free(copy);
    }
}

/* ---- reading -------------------------------------------------------------------------------- */

static struct mr_slice look(enum mr_trace_part part, void *arg)
{
    const char *const *values = arg;
    return mr_slice_str(values[part] != NULL ? values[part] : "");
}

static size_t read_n(const char *parent, const char *trace_state, const char *baggage)
{
    const char *values[MR_TRACE_PARTS] = {parent, trace_state, baggage};
    struct mr_trace trace;
    assert_int_equal(mr_trace_read(look, (void *)values, NULL, &trace), MR_OK);
    return trace.n;
}

static void what_is_none_is_left_out(void **state)
{
    (void)state;
    assert_int_equal(read_n(PARENT, "a=1", "user=7"), 3);
    assert_int_equal(read_n(PARENT, NULL, NULL), 1);
    assert_int_equal(read_n("nonsense", "a=1", "user=7"), 1); /* the state goes with the parent */
    assert_int_equal(read_n(NULL, "a=1", NULL), 0);
    assert_int_equal(read_n(PARENT, "a=\x1b[1m", "a\r\nb"), 1);
    char big[9000];
    memset(big, 'x', sizeof big - 1);
    big[sizeof big - 1] = '\0';
    assert_int_equal(read_n(PARENT, big, big), 1);
}

static void values_outlive_where_they_came_from(void **state)
{
    (void)state;
    char parent[] = PARENT;
    const char *values[MR_TRACE_PARTS] = {parent, "a=1", NULL};
    struct mr_arena arena = {0};
    struct mr_trace trace;
    assert_int_equal(mr_trace_read(look, (void *)values, &arena, &trace), MR_OK);
    memset(parent, 'x', sizeof parent - 1);
    assert_int_equal(trace.n, 2);
    assert_true(mr_slice_equal(trace.headers[0].value, MR_SLICE_LIT(PARENT)));
    mr_arena_done(&arena);
}

/* ---- a task --------------------------------------------------------------------------------- */

static struct mr_trace whole(void)
{
    static const char *const values[MR_TRACE_PARTS] = {PARENT, "a=1", "user=7"};
    struct mr_trace trace;
    assert_int_equal(mr_trace_read(look, (void *)(uintptr_t)values, NULL, &trace), MR_OK);
    return trace;
}

static void a_task_gets_what_it_has_not(void **state)
{
    (void)state;
    struct mr_arena arena = {0};
    struct mr_trace trace = whole();
    struct mr_header own[] = {{MR_SLICE_LIT("x"), MR_SLICE_LIT("1")}};
    struct mr_task_options task = {.headers = own, .headers_n = 1};
    assert_int_equal(mr_trace_add(&trace, &arena, &task), MR_OK);
    assert_int_equal(task.headers_n, 4);
    assert_true(mr_slice_equal(task.headers[0].name, MR_SLICE_LIT("x")));
    assert_true(mr_slice_equal(task.headers[1].value, MR_SLICE_LIT(PARENT)));
    assert_int_equal(mr_trace_add(&trace, &arena, &task), MR_OK); /* it has it now */
    assert_int_equal(task.headers_n, 4);
    struct mr_trace_headers headers = {task.headers, task.headers_n};
    assert_true(
        mr_slice_equal(mr_trace_of_headers(MR_TRACE_BAGGAGE, &headers), MR_SLICE_LIT("user=7")));
    mr_arena_done(&arena);
}

static void a_task_with_a_trace_keeps_it(void **state)
{
    (void)state;
    struct mr_trace trace = whole();
    struct mr_header own[] = {{MR_SLICE_LIT("TraceParent"), MR_SLICE_LIT("its own")}};
    struct mr_header missing[MR_TRACE_PARTS];
    assert_int_equal(mr_trace_missing(&trace, own, 1, missing), 1);
    assert_true(mr_slice_equal(missing[0].name, MR_SLICE_LIT("baggage")));
}

static void nothing_goes_over_the_limits(void **state)
{
    (void)state;
    struct mr_trace trace = whole();
    struct mr_header own[MR_HEADERS_MAX], missing[MR_TRACE_PARTS];
    static char names[MR_HEADERS_MAX][16];
    for (size_t i = 0; i < MR_HEADERS_MAX; i++) {
        snprintf(names[i], sizeof names[i], "h%zu", i);
        own[i] = (struct mr_header){mr_slice_str(names[i]), MR_SLICE_LIT("v")};
    }
    assert_int_equal(mr_trace_missing(&trace, own, MR_HEADERS_MAX, missing), 0);
    assert_int_equal(mr_trace_missing(&trace, own, MR_HEADERS_MAX - 2, missing), 2);
    static char big[MR_HEADER_BYTES_MAX - 90];
    memset(big, 'x', sizeof big);
    own[0].value = mr_slice_make(big, sizeof big);
    assert_int_equal(mr_trace_missing(&trace, own, 1, missing), 2); /* parent and state fit */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_a_traceparent_is),
        cmocka_unit_test(a_cut_traceparent_is_none),
        cmocka_unit_test(what_is_none_is_left_out),
        cmocka_unit_test(values_outlive_where_they_came_from),
        cmocka_unit_test(a_task_gets_what_it_has_not),
        cmocka_unit_test(a_task_with_a_trace_keeps_it),
        cmocka_unit_test(nothing_goes_over_the_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
