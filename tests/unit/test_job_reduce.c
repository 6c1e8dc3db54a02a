/* SPDX-License-Identifier: Apache-2.0 */
/* What is made of results, and that it comes in chunks whatever they are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rand.h"
#include "job/reduce.h"

struct got {
    struct mr_buf bytes;
    size_t chunk_max, chunks;
    bool short_one; /* one that was not full has come: none is behind it */
    enum mr_err answer;
};

static enum mr_err take_chunk(struct mr_slice chunk, void *arg)
{
    struct got *got = arg;
    assert_true(chunk.len > 0 && chunk.len <= got->chunk_max && !got->short_one);
    got->short_one = chunk.len < got->chunk_max;
    got->chunks++;
    assert_int_equal(mr_buf_append_slice(&got->bytes, chunk), MR_OK);
    return got->answer;
}

static struct mr_reduce *reduce_of(const char *spec, struct got *got)
{
    struct mr_reduce_spec is;
    struct mr_reduce *reduce;
    assert_int_equal(mr_reduce_parse(mr_slice_str(spec), &is, NULL), MR_OK);
    struct mr_reduce_options options = {
        .kind = is.kind, .chunk_max = got->chunk_max, .chunk = take_chunk, .arg = got};
    assert_int_equal(mr_reduce_new(&options, &reduce), MR_OK);
    return reduce;
}

/* Results, NULL where the part failed; up to n. */
static enum mr_err feed(struct mr_reduce *reduce, const char *const *results, size_t n,
                        struct mr_detail *detail)
{
    enum mr_err err = MR_OK;
    for (size_t i = 0; i < n && err == MR_OK; i++) {
        err = results[i] == NULL ? mr_reduce_gap(reduce, i, detail)
                                 : mr_reduce_part(reduce, i, mr_slice_str(results[i]), detail);
    }
    return err;
}

static void assert_result(const char *spec, const char *const *results, size_t n,
                          const char *expected)
{
    static const size_t sizes[] = {1, 3, 1 << 18};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct got got = {.chunk_max = sizes[i]};
        struct mr_reduce *reduce = reduce_of(spec, &got);
        uint64_t bytes = 77;
        assert_int_equal(feed(reduce, results, n, NULL), MR_OK);
        assert_int_equal(mr_reduce_end(reduce, &bytes, NULL), MR_OK);
        assert_int_equal(bytes, strlen(expected));
        assert_int_equal(got.chunks, (bytes + sizes[i] - 1) / sizes[i]);
        assert_int_equal(mr_buf_append(&got.bytes, "", 1), MR_OK);
        assert_string_equal((const char *)got.bytes.data, expected);
        mr_reduce_free(reduce);
        mr_buf_done(&got.bytes);
    }
}

#define RESULT(spec, expected, ...)                                                                \
    do {                                                                                           \
        const char *const results_[] = {__VA_ARGS__};                                              \
        assert_result(spec, results_, sizeof results_ / sizeof *results_, expected);               \
    } while (0)

static void refused(const char *const *results, size_t n, enum mr_err err, const char *line)
{
    struct got got = {.chunk_max = 100};
    struct mr_reduce *reduce = reduce_of("sum", &got);
    struct mr_detail detail = {0};
    enum mr_err is = feed(reduce, results, n, &detail);
    if (is == MR_OK)
        is = mr_reduce_end(reduce, NULL, &detail);
    assert_int_equal(is, err);
    assert_string_equal(detail.text, line);
    assert_int_equal(got.chunks, 0);
    mr_reduce_free(reduce);
    mr_buf_done(&got.bytes);
}

#define REFUSED(line, ...)                                                                         \
    do {                                                                                           \
        const char *const results_[] = {__VA_ARGS__};                                              \
        refused(results_, sizeof results_ / sizeof *results_, MR_INVALID, line);                   \
    } while (0)

static void specs_have_one_text(void **state)
{
    (void)state;
    static const char *const texts[][2] = {
        {"", "concat"},
        {"concat", "concat"},
        {"lines", "lines"},
        {"json", "json"},
        {"sum", "sum"},
        {"none", "none"},
        {"command:sox *.wav -t wav -", "command:sox *.wav -t wav -"},
        {"command::", "command::"}};
    static const char *const others[] = {
        "Concat", "concat:", "json:1", "command", "command:", "max", "sum:", " sum", "none:x", ":"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct mr_reduce_spec spec;
        struct mr_buf buf = {0};
        assert_int_equal(mr_reduce_parse(mr_slice_str(texts[i][0]), &spec, NULL), MR_OK);
        assert_int_equal(mr_reduce_put(&spec, &buf), MR_OK);
        assert_int_equal(buf.len, strlen(texts[i][1]));
        assert_memory_equal(buf.data, texts[i][1], buf.len);
        mr_buf_done(&buf);
    }
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct mr_reduce_spec spec;
        struct mr_detail detail = {0};
        assert_int_equal(mr_reduce_parse(mr_slice_str(others[i]), &spec, &detail), MR_INVALID);
        assert_string_equal(detail.text,
                            "reduce: not one of concat, lines, json, sum, none, command:CMD");
    }
}

static void concat_puts_results_behind_each_other(void **state)
{
    (void)state;
    RESULT("concat", "abcdef\n", "ab", "", NULL, "cde", "f\n");
    RESULT("concat", "", NULL, "");
    RESULT("", "xy", "x", "y");
}

static void lines_gives_each_result_its_newline(void **state)
{
    (void)state;
    RESULT("lines", "a\nb\n\nc\nd\n\n", "a", "b\n", "", NULL, "c\nd\n\n");
    RESULT("lines", "", NULL);
}

static void json_makes_an_array(void **state)
{
    (void)state;
    RESULT("json", "[1,\n{\"a\": [2]},\nnull,\n\"text\",\nnull]\n", "1", " {\"a\": [2]}\n", NULL,
           "text", "null");
    RESULT("json", "[\"\"]\n", "");
    RESULT("json", "[\"  \"]\n", "  ");
    RESULT("json", "[\"\\\"a\\\\\\n\\u0001\\u001f\u20ac\x7f/\"]\n", "\"a\\\n\x01\x1f\u20ac\x7f/");
    /* Nearly JSON is text. */
    RESULT("json", "[\"01\",\n\"1 2\",\n\"{\",\n\"nul\",\n\"-\",\n\"[1,]\"]\n", "01", "1 2", "{",
           "nul", "-", "[1,]");
    RESULT("json", "[{\"base64\":\"/w==\"},\n{\"base64\":\"YWL/\"},\n{\"base64\":\"/+KCZQ==\"}]\n",
           "\xff", "ab\xff",
           "\xff\xe2\x82"
           "e");
    RESULT("json", "[null]\n", NULL);
    assert_result("json", NULL, 0, "[]\n");
}

static void sums_of_whole_numbers_are_exact(void **state)
{
    (void)state;
    RESULT("sum", "6\n", "1", " 2\n", "3\r\n");
    RESULT("sum", "-5\n", "-7", NULL, "2");
    RESULT("sum", "0\n", NULL);
    assert_result("sum", NULL, 0, "0\n");
    RESULT("sum", "9223372036854775807\n", "9223372036854775806", "1");
    /* What is too big on the way is not at the end. */
    RESULT("sum", "9223372036854775806\n", "9223372036854775807", "9223372036854775807",
           "-9223372036854775808");
    RESULT("sum", "-9223372036854775808\n", "-9223372036854775807", "-1");
    REFUSED("sum: does not fit 64 bits", "9223372036854775807", "1");
    REFUSED("sum: does not fit 64 bits", "-9223372036854775808", "-1");
    REFUSED("sum: the result of part 1 is too big", "1", "9223372036854775808");
}

static void sums_with_fractions_are_those_of_doubles(void **state)
{
    (void)state;
    RESULT("sum", "0.30000000000000004\n", "0.1", "0.2");
    RESULT("sum", "1\n", "0.1", "0.1", "0.1", "0.1", "0.1", "0.1", "0.1", "0.1", "0.1", "0.1");
    RESULT("sum", "3.5\n", "1", "2.5");
    RESULT("sum", "2\n", "1e0", "1e100", "1", "-1e100");
    RESULT("sum", "1.8446744073709552e+19\n", "9223372036854775807", "9223372036854775807", "0.5",
           "1.5");
    RESULT("sum", "0\n", "0.0");
    RESULT("sum", "1.2345678901234567e+19\n", "12345678901234567890.0");
    REFUSED("sum: too big", "1e308", "1e308", "-1e308");
    REFUSED("sum: the result of part 0 is too big", "1e999");
}

static void what_is_no_number_is_not_summed_up(void **state)
{
    (void)state;
    static const char *const texts[] = {"",   " ",   "one", "1 2", "0x10", "+1", "1.",   ".5",
                                        "1e", "inf", "nan", "--1", "1,5",  "-",  "\"1\""};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        REFUSED("sum: the result of part 1 is no number", "1", texts[i]);
    char digits[500];
    memset(digits, '1', sizeof digits - 1);
    digits[sizeof digits - 1] = '\0';
    REFUSED("sum: the result of part 0 is no number", digits);
    struct got got = {.chunk_max = 10};
    struct mr_reduce *reduce = reduce_of("sum", &got);
    assert_int_equal(mr_reduce_part(reduce, 0, mr_slice_make("1\0002", 3), NULL), MR_INVALID);
    mr_reduce_free(reduce);
}

static void none_has_no_result(void **state)
{
    (void)state;
    RESULT("none", "", "a", NULL, "b");
}

static void a_command_is_not_run_here(void **state)
{
    struct mr_reduce_options options = {.kind = MR_REDUCE_COMMAND};
    struct mr_reduce *reduce;
    (void)state;
    assert_int_equal(mr_reduce_new(&options, &reduce), MR_UNSUPPORTED);
    mr_reduce_free(NULL);
}

static void a_part_that_is_missing_is_noticed(void **state)
{
    struct got got = {.chunk_max = 10};
    struct mr_reduce *reduce = reduce_of("concat", &got);
    struct mr_detail detail;
    (void)state;
    assert_int_equal(mr_reduce_part(reduce, 1, mr_slice_str("x"), &detail), MR_DAMAGED);
    assert_string_equal(detail.text, "part 1 comes where part 0 should");
    assert_int_equal(mr_reduce_part(reduce, 0, mr_slice_str("x"), &detail), MR_OK);
    assert_int_equal(mr_reduce_gap(reduce, 0, &detail), MR_DAMAGED);
    assert_int_equal(mr_reduce_gap(reduce, 1, &detail), MR_OK);
    mr_reduce_free(reduce);
    mr_buf_done(&got.bytes);
}

static void what_the_caller_answers_ends_the_reduce(void **state)
{
    struct got got = {.chunk_max = 4, .answer = MR_STALE};
    struct mr_reduce *reduce = reduce_of("concat", &got);
    (void)state;
    assert_int_equal(mr_reduce_part(reduce, 0, mr_slice_str("abc"), NULL), MR_OK);
    assert_int_equal(mr_reduce_part(reduce, 1, mr_slice_str("de"), NULL), MR_STALE);
    mr_reduce_free(reduce);
    mr_buf_done(&got.bytes);
}

static void results_of_any_size_come_in_full_chunks(void **state)
{
    struct mr_rand rand;
    static char result[5000];
    (void)state;
    mr_rand_seed(&rand, 7);
    for (int round = 0; round < 50; round++) {
        struct got got = {.chunk_max = 1 + (size_t)mr_rand_below(&rand, 2000)};
        struct mr_reduce *reduce = reduce_of("concat", &got);
        struct mr_buf all = {0};
        uint64_t bytes;
        for (uint64_t i = 0; i < 40; i++) {
            size_t len = (size_t)mr_rand_below(&rand, sizeof result);
            memset(result, 'a' + (int)(i % 26), len);
            assert_int_equal(mr_buf_append(&all, result, len), MR_OK);
            assert_int_equal(mr_reduce_part(reduce, i, mr_slice_make(result, len), NULL), MR_OK);
        }
        assert_int_equal(mr_reduce_end(reduce, &bytes, NULL), MR_OK);
        assert_true(mr_slice_equal(mr_buf_slice(&all), mr_buf_slice(&got.bytes)));
        assert_int_equal(bytes, all.len);
        mr_reduce_free(reduce);
        mr_buf_done(&all);
        mr_buf_done(&got.bytes);
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(specs_have_one_text),
        cmocka_unit_test(concat_puts_results_behind_each_other),
        cmocka_unit_test(lines_gives_each_result_its_newline),
        cmocka_unit_test(json_makes_an_array),
        cmocka_unit_test(sums_of_whole_numbers_are_exact),
        cmocka_unit_test(sums_with_fractions_are_those_of_doubles),
        cmocka_unit_test(what_is_no_number_is_not_summed_up),
        cmocka_unit_test(none_has_no_result),
        cmocka_unit_test(a_command_is_not_run_here),
        cmocka_unit_test(a_part_that_is_missing_is_noticed),
        cmocka_unit_test(what_the_caller_answers_ends_the_reduce),
        cmocka_unit_test(results_of_any_size_come_in_full_chunks),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
