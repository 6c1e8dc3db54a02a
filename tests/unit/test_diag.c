/* SPDX-License-Identifier: Apache-2.0 */
/* Diagnostics: the form of a line, levels, escaping, and repeats that are left out and counted. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/chan.h"
#include "base/diag.h"

enum { LINES_MAX = 512, LINE_CAP = 4200 };

struct lines {
    char text[LINES_MAX][LINE_CAP];
    enum mr_diag_level level[LINES_MAX];
    size_t n;
};

static struct lines lines;

static void keep(enum mr_diag_level level, const char *line, void *arg)
{
    struct lines *kept = arg;
    mr_assert(kept->n < LINES_MAX);
    mr_assert(strlen(line) < LINE_CAP);
    kept->level[kept->n] = level;
    memcpy(kept->text[kept->n++], line, strlen(line) + 1);
}

/* A clock that the test turns. */
static int64_t mono_ns;

static mr_mono fake_mono(struct mr_clock *clock)
{
    (void)clock;
    return (mr_mono){mono_ns};
}

static mr_wall fake_wall(struct mr_clock *clock)
{
    (void)clock;
    return (mr_wall){1700000000123456};
}

static struct mr_clock fake_clock = {fake_mono, fake_wall};

#define HEAD "time=2023-11-14T22:13:20.123Z "

static int setup(void **state)
{
    (void)state;
    mono_ns = MR_NS_PER_S;
    lines.n = 0;
    mr_diag_set_clock(&fake_clock);
    mr_diag_set_sink(keep, &lines);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    mr_diag_set_clock(NULL);
    mr_diag_set_sink(NULL, NULL);
    return 0;
}

static void a_line_has_time_level_event_and_pairs(void **state)
{
    (void)state;
    mr_diag(MR_DIAG_WARN, "task.failed", "task=%s attempt=%d", "abc", 3);
    mr_diag(MR_DIAG_INFO, "ready", "%s", "");
    assert_int_equal(lines.n, 2);
    assert_string_equal(lines.text[0], HEAD "level=warn event=task.failed task=abc attempt=3");
    assert_int_equal(lines.level[0], MR_DIAG_WARN);
    assert_string_equal(lines.text[1], HEAD "level=info event=ready");
}

static void lines_for_debugging_are_dropped(void **state)
{
    (void)state;
    mr_diag(MR_DIAG_DEBUG, "a", "x=1");
    mr_diag(MR_DIAG_INFO, "b", "x=1");
    assert_int_equal(lines.n, 1);
    assert_string_equal(lines.text[0], HEAD "level=info event=b x=1");
}

static void control_characters_never_reach_a_line(void **state)
{
    (void)state;
    mr_diag(MR_DIAG_INFO, "e", "name=\"%s\"", "a\nlevel=error\x1b[2J\x7f\xc2\x9b\xff ü");
    assert_string_equal(lines.text[0], HEAD "level=info event=e name=\"a\\nlevel=error\\x1b[2J"
                                            "\\x7f\\xc2\\x9b\\xff ü\"");
}

static void a_line_that_is_too_long_is_cut(void **state)
{
    (void)state;
    static char big[100000];
    memset(big, 'x', sizeof big - 1);
    mr_diag(MR_DIAG_INFO, "big", "v=%s", big);
    mr_diag(MR_DIAG_INFO, big, "v=1");
    memset(big, '\n', sizeof big - 1);
    mr_diag(MR_DIAG_INFO, "big", "v=%s", big);
    assert_int_equal(lines.n, 3);
    for (size_t i = 0; i < lines.n; i++)
        assert_true(strlen(lines.text[i]) < 4096);
}

static void escape_quotes_what_could_end_a_quoted_value(void **state)
{
    (void)state;
    char text[64];
    struct mr_slice bytes = MR_SLICE_LIT("a\"b\\c\r\n\t\0\x01 é\xc3");
    assert_string_equal(mr_diag_escape(bytes, text, sizeof text),
                        "a\\\"b\\\\c\\r\\n\\t\\x00\\x01 é\\xc3");
    assert_string_equal(mr_diag_escape(mr_slice_make(NULL, 0), text, sizeof text), "");
}

static void escape_cuts_between_characters_and_never_beyond_its_room(void **state)
{
    (void)state;
    struct mr_slice bytes = MR_SLICE_LIT("ab\nc€d");
    static const char *const expected[] = {"",       "",        "a",        "ab",
                                           "ab",     "ab\\n",   "ab\\nc",   "ab\\nc",
                                           "ab\\nc", "ab\\nc€", "ab\\nc€d", "ab\\nc€d"};
    for (size_t cap = 0; cap < sizeof expected / sizeof expected[0]; cap++) {
        char *text = malloc(cap > 0 ? cap : 1); /* exact, for the address sanitizer */
        assert_non_null(text);
        assert_string_equal(mr_diag_escape(bytes, text, cap), expected[cap]);
        free(text);
    }
}

static void repeats_are_left_out_and_counted_later(void **state)
{
    (void)state;
    for (int i = 0; i < 25; i++)
        mr_diag(MR_DIAG_WARN, "noisy", "i=%d", i);
    mr_diag(MR_DIAG_INFO, "other", "x=1");
    assert_int_equal(lines.n, 11); /* ten, and the other event is not harmed */
    mono_ns += MR_NS_PER_S - 1;
    mr_diag(MR_DIAG_WARN, "noisy", "i=25");
    assert_int_equal(lines.n, 11);
    mono_ns += 1;
    mr_diag(MR_DIAG_INFO, "other", "x=2"); /* any event brings the count */
    mr_diag(MR_DIAG_WARN, "noisy", "i=26");
    assert_int_equal(lines.n, 14);
    assert_string_equal(lines.text[11], HEAD "level=warn event=diag.repeated of=noisy left_out=16");
    assert_string_equal(lines.text[12], HEAD "level=info event=other x=2");
    assert_string_equal(lines.text[13], HEAD "level=warn event=noisy i=26");
}

static void ten_lines_a_second_are_never_left_out(void **state)
{
    (void)state;
    for (int i = 0; i < 100; i++) {
        mr_diag(MR_DIAG_INFO, "steady", "i=%d", i);
        mono_ns += MR_NS_PER_S / 10;
    }
    assert_int_equal(lines.n, 100);
}

static void a_change_of_sink_loses_no_count(void **state)
{
    (void)state;
    for (int i = 0; i < 12; i++)
        mr_diag(MR_DIAG_INFO, "noisy", "i=%d", i);
    mr_diag_set_sink(keep, &lines);
    assert_int_equal(lines.n, 11);
    assert_non_null(strstr(lines.text[10], "event=diag.repeated of=noisy left_out=2"));
}

static void more_events_than_places_lose_no_count(void **state)
{
    (void)state;
    for (int i = 0; i < 15; i++)
        mr_diag(MR_DIAG_INFO, "first", "i=%d", i);
    mono_ns += 1;
    for (int i = 0; i < 100; i++) {
        char event[32];
        snprintf(event, sizeof event, "event.%d", i);
        mr_diag(MR_DIAG_INFO, event, "x=1");
    }
    assert_int_equal(lines.n, 10 + 1 + 100);
    int counts = 0;
    for (size_t i = 0; i < lines.n; i++)
        counts += strstr(lines.text[i], "event=diag.repeated of=first left_out=5") != NULL;
    assert_int_equal(counts, 1);
}

static void *talk(void *arg)
{
    for (int i = 0; i < 1000; i++)
        mr_diag(MR_DIAG_INFO, arg, "i=%d", i);
    return NULL;
}

static void threads_may_talk_at_once(void **state)
{
    (void)state;
    static char names[4][8] = {"t0", "t1", "t2", "t3"};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        assert_int_equal(mr_thread_start(&threads[i], "talk", talk, names[i]), MR_OK);
    for (int i = 0; i < 4; i++)
        mr_thread_join(threads[i]);
    assert_int_equal(lines.n, 40);
    mr_diag_set_sink(keep, &lines);
    assert_int_equal(lines.n, 44);
    for (size_t i = 40; i < 44; i++)
        assert_non_null(strstr(lines.text[i], "left_out=990"));
}

static void lines_go_to_stderr_unless_told_otherwise(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    int saved = dup(STDERR_FILENO);
    assert_true(saved >= 0);
    assert_int_equal(dup2(ends[1], STDERR_FILENO), STDERR_FILENO);
    mr_diag_set_sink(NULL, NULL);
    mr_diag(MR_DIAG_ERROR, "loud", "x=%d", 1);
    assert_int_equal(dup2(saved, STDERR_FILENO), STDERR_FILENO);
    close(saved);
    close(ends[1]);
    char text[128] = "";
    ssize_t n = read(ends[0], text, sizeof text - 1);
    close(ends[0]);
    assert_true(n > 0);
    assert_string_equal(text, HEAD "level=error event=loud x=1\n");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_line_has_time_level_event_and_pairs),
        TEST(lines_for_debugging_are_dropped),
        TEST(control_characters_never_reach_a_line),
        TEST(a_line_that_is_too_long_is_cut),
        TEST(escape_quotes_what_could_end_a_quoted_value),
        TEST(escape_cuts_between_characters_and_never_beyond_its_room),
        TEST(repeats_are_left_out_and_counted_later),
        TEST(ten_lines_a_second_are_never_left_out),
        TEST(a_change_of_sink_loses_no_count),
        TEST(more_events_than_places_lose_no_count),
        TEST(threads_may_talk_at_once),
        TEST(lines_go_to_stderr_unless_told_otherwise),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
