/* SPDX-License-Identifier: Apache-2.0 */
/* How inputs are cut: by example, and against slow readings of the same rules, with writes of any size. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rand.h"
#include "job/split.h"
#include "unit/job_cut.h"

enum { RANDOM_INPUTS = 3000, INPUT_MAX = 400 };

static size_t one_byte(size_t left, void *arg)
{
    (void)left;
    (void)arg;
    return 1;
}

static struct mr_split_options options_of(const char *spec, size_t part_max)
{
    struct mr_split_options options = {.part_max = part_max};
    assert_int_equal(mr_split_parse(mr_slice_str(spec), &options.spec, NULL), MR_OK);
    return options;
}

/* The parts, each behind a bar; in one write, and byte by byte. */
static void assert_parts(const char *spec, struct mr_slice input, const char *parts)
{
    struct mr_split_options options = options_of(spec, 0);
    for (int way = 0; way < 2; way++) {
        struct cut cut = {0};
        struct mr_buf shown = {0};
        cut_input(&cut, &options, input, way == 0 ? NULL : one_byte, NULL);
        if (cut.err != MR_OK)
            fail_msg("%s: %s", spec, cut.detail.text);
        for (size_t i = 0; i < cut.n; i++) {
            assert_int_equal(mr_buf_append(&shown, "|", 1), MR_OK);
            assert_int_equal(mr_buf_append_slice(&shown, cut_at(&cut, i)), MR_OK);
        }
        assert_int_equal(mr_buf_append(&shown, "", 1), MR_OK);
        assert_string_equal((const char *)shown.data, parts);
        mr_buf_done(&shown);
        cut_done(&cut);
    }
}

static void parts_are(const char *spec, const char *input, const char *parts)
{
    assert_parts(spec, mr_slice_str(input), parts);
}

/* Refused, with this line, after so many parts. */
static void refused(const char *spec, size_t part_max, const char *input, enum mr_err err,
                    const char *line, size_t n)
{
    struct mr_split_options options = options_of(spec, part_max);
    for (int way = 0; way < 2; way++) {
        struct cut cut = {0};
        cut_input(&cut, &options, mr_slice_str(input), way == 0 ? NULL : one_byte, NULL);
        assert_int_equal(cut.err, err);
        assert_string_equal(cut.detail.text, line);
        assert_int_equal(cut.n, n);
        cut_done(&cut);
    }
}

/* ---- the text of it ------------------------------------------------------------------------- */

static void specs_have_one_text(void **state)
{
    (void)state;
    static const char *const texts[][2] = {
        {"", "lines"},
        {"lines", "lines"},
        {"lines:1", "lines"},
        {"lines:007", "lines:7"},
        {"paragraphs", "paragraphs"},
        {"chars:1", "chars:1"},
        {"bytes:1000000000", "bytes:1000000000"},
        {"json", "json"},
        {"csv:1", "csv"},
        {"csv:50", "csv:50"},
        {"command:find . -name '*.c': x", "command:find . -name '*.c': x"},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct mr_split_spec spec;
        struct mr_buf buf = {0};
        assert_int_equal(mr_split_parse(mr_slice_str(texts[i][0]), &spec, NULL), MR_OK);
        assert_int_equal(mr_split_put(&spec, &buf), MR_OK);
        assert_int_equal(buf.len, strlen(texts[i][1]));
        assert_memory_equal(buf.data, texts[i][1], buf.len);
        mr_buf_done(&buf);
    }
}

static void what_is_no_spec_is_refused_in_one_line(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "line",
        "Lines",
        "lines ",
        "lines:",
        "lines:0",
        "lines:-1",
        "lines:+1",
        "lines:1x",
        "lines:1000000001",
        "chars",
        "chars:",
        "bytes",
        "bytes:0x1",
        "bytes:99999999999999999999",
        "json:1",
        "json:",
        "paragraphs:2",
        "csv:",
        "csv:0",
        "command",
        "command:",
        "none",
        ":",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct mr_split_spec spec;
        struct mr_detail detail = {0};
        if (mr_split_parse(mr_slice_str(texts[i]), &spec, &detail) != MR_INVALID)
            fail_msg("%s", texts[i]);
        assert_memory_equal(detail.text, "split: ", 7);
        assert_null(strchr(detail.text, '\n'));
    }
    struct mr_split_spec spec;
    struct mr_detail detail;
    char big[MR_JOB_SPEC_MAX + 1];
    memset(big, 'x', sizeof big);
    memcpy(big, "command:", 8);
    assert_int_equal(mr_split_parse(mr_slice_make(big, sizeof big), &spec, &detail), MR_TOO_BIG);
    assert_int_equal(mr_split_parse(mr_slice_make(big, sizeof big - 1), &spec, &detail), MR_OK);
    assert_int_equal(mr_split_parse(mr_slice_make("command:a\0b", 11), &spec, &detail), MR_INVALID);
    assert_int_equal(mr_split_parse(mr_slice_str("command:\xff"), &spec, &detail), MR_INVALID);
}

/* ---- by example ----------------------------------------------------------------------------- */

static void lines_keep_their_newlines(void **state)
{
    (void)state;
    parts_are("lines", "a\nbc\n", "|a\n|bc\n");
    parts_are("lines", "a\n\nb", "|a\n|\n|b");
    parts_are("lines", "\n", "|\n");
    parts_are("lines", "a\r\nb\r\n", "|a\r\n|b\r\n");
    parts_are("lines:2", "1\n2\n3\n4\n5\n", "|1\n2\n|3\n4\n|5\n");
    parts_are("lines:1000000000", "1\n2\n3", "|1\n2\n3");
    parts_are("command:ls", "a\nb\n", "|a\n|b\n");
}

static void blank_lines_stay_with_the_paragraph_before_them(void **state)
{
    (void)state;
    parts_are("paragraphs", "one", "|one");
    parts_are("paragraphs", "one\ntwo\n", "|one\ntwo\n");
    parts_are("paragraphs", "one\n\ntwo", "|one\n\n|two");
    parts_are("paragraphs", "one\n\n\n \t\ntwo\nthree\n\n", "|one\n\n\n \t\n|two\nthree\n\n");
    parts_are("paragraphs", "one\r\n\r\ntwo\r\n", "|one\r\n\r\n|two\r\n");
    /* What is before the first one belongs to it, and the spaces before a line to that line. */
    parts_are("paragraphs", "\n \n  one\n\n  two\n", "|\n \n  one\n\n|  two\n");
    parts_are("paragraphs", " one\n \n\t two\n  ", "| one\n \n|\t two\n  ");
    parts_are("paragraphs", "a\n\n ", "|a\n\n ");
}

static void characters_are_never_cut(void **state)
{
    (void)state;
    parts_are("chars:2", "abcde", "|ab|cd|e");
    parts_are("chars:1", "a\u00e9\u20ac\U0001f600", "|a|\u00e9|\u20ac|\U0001f600");
    parts_are("chars:3", "\u20ac\u20ac\u20ac\u20ac", "|\u20ac\u20ac\u20ac|\u20ac");
    /* What is no UTF-8 counts byte by byte: a lone lead, a surrogate, an overlong form, one cut short. */
    parts_are("chars:1", "\xff\xe2\x82z", "|\xff|\xe2|\x82|z");
    parts_are("chars:1", "\xed\xa0\x80", "|\xed|\xa0|\x80");
    parts_are("chars:2", "\xc0\x80\xf0\x9f\x98", "|\xc0\x80|\xf0\x9f|\x98");
    parts_are("chars:2", "a\xf0\x9f\xe2\x82\xac!", "|a\xf0|\x9f\xe2\x82\xac|!");
    assert_parts("chars:1", mr_slice_make("a\0b", 3), "|a|");
}

static void bytes_are_counted_alone(void **state)
{
    (void)state;
    parts_are("bytes:3", "abcdefgh", "|abc|def|gh");
    parts_are("bytes:4", "abcdefgh", "|abcd|efgh");
    parts_are("bytes:1000000000", "abc", "|abc");
    parts_are("bytes:1", "\u00e9", "|\xc3|\xa9");
}

static void elements_of_an_array_come_as_they_are_written(void **state)
{
    (void)state;
    parts_are("json", "[1]", "|1");
    parts_are("json", " [ 1 , -2.5e+3,\n\t\"a,]\\\"\" ,null,true , false ] \n",
              "|1|-2.5e+3|\"a,]\\\"\"|null|true|false");
    parts_are("json", "[{\"a\": [1, {\"b\":[]}], \"c\":{}}, [ ], [[1],[2]],{ }]",
              "|{\"a\": [1, {\"b\":[]}], \"c\":{}}|[ ]|[[1],[2]]|{ }");
    parts_are("json", "[9,-9,19.99e+99,\"\\u09AFaf09\"]", "|9|-9|19.99e+99|\"\\u09AFaf09\"");
    parts_are("json", "[0,-0,0.10,1E5,10e-2]", "|0|-0|0.10|1E5|10e-2");
    parts_are("json", "[\"\\u00e9\\ud83d\\/\\b\\f\\n\\r\\t\\\\\",\"\u20ac\U0001f600\x7f\"]",
              "|\"\\u00e9\\ud83d\\/\\b\\f\\n\\r\\t\\\\\"|\"\u20ac\U0001f600\x7f\"");
}

static void what_is_no_array_is_refused_where_it_goes_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *input, *line;
        size_t n;
    } cases[] = {
        {"{}", "json: offset 0: here an array must begin, with [", 0},
        {" 1", "json: offset 1: here an array must begin, with [", 0},
        {"[1,2", "json: offset 4: it ends before the array does", 1},
        {"[1,", "json: offset 3: it ends before the array does", 1},
        {"[", "json: offset 1: it ends before the array does", 0},
        {"[1,]", "json: offset 3: here a value must be", 1},
        {"[,1]", "json: offset 1: here a value must be", 0},
        {"[1 2]", "json: offset 3: here a comma or ] must be", 1},
        {"[01]", "json: offset 2: here a comma or ] must be", 1},
        {"[1] x", "json: offset 4: something is behind the array", 1},
        {"[1][2]", "json: offset 3: something is behind the array", 1},
        {"[1]]", "json: offset 3: something is behind the array", 1},
        {"[-]", "json: offset 2: a number goes on with a digit", 0},
        {"[1.]", "json: offset 3: a number goes on with a digit", 0},
        {"[1e+]", "json: offset 4: a number goes on with a digit", 0},
        {"[1ex]", "json: offset 3: a number goes on with a digit", 0},
        {"[1+2]", "json: offset 2: here a comma or ] must be", 1},
        {"[1e5.5]", "json: offset 4: here a comma or ] must be", 1},
        {"[.5]", "json: offset 1: here a value must be", 0},
        {"[+1]", "json: offset 1: here a value must be", 0},
        {"[NaN]", "json: offset 1: here a value must be", 0},
        {"[trux]", "json: offset 4: neither true nor false nor null", 0},
        {"[nul]", "json: offset 4: neither true nor false nor null", 0},
        {"['a']", "json: offset 1: here a value must be", 0},
        {"[\"a\n\"]", "json: offset 3: a control character in a string", 0},
        {"[\"\\x\"]", "json: offset 3: no such escape", 0},
        {"[\"\\u12g4\"]", "json: offset 6: \\u has four hexadecimal digits behind it", 0},
        {"[\"\xff\"]", "json: offset 2: not UTF-8", 0},
        {"[\"\xe2\x82\"]", "json: offset 4: not UTF-8", 0},
        {"[\"\xe2zz\x82\x82\"]", "json: offset 3: not UTF-8", 0},
        {"[\"\xed\xa0\x80\"]", "json: offset 3: not UTF-8", 0},
        {"[{\"a\" 1}]", "json: offset 6: here a colon must be", 0},
        {"[{\"a\":}]", "json: offset 6: here a value must be", 0},
        {"[{\"a\":1,}]", "json: offset 8: here a name in quotes must be", 0},
        {"[{a:1}]", "json: offset 2: here a name in quotes must be", 0},
        {"[{\"a\":1]", "json: offset 7: here a comma or } must be", 0},
        {"[[1}]", "json: offset 3: here a comma or ] must be", 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refused("json", 0, cases[i].input, MR_INVALID, cases[i].line, cases[i].n);
}

static void json_may_be_nested_but_not_without_end(void **state)
{
    (void)state;
    enum { DEPTH = 512 };
    char deep[2 * DEPTH + 5];
    for (int more = 0; more < 2; more++) {
        size_t levels = DEPTH + (size_t)more;
        struct mr_split_options options = options_of("json", 0);
        struct cut cut = {0};
        deep[0] = '[';
        memset(deep + 1, '[', levels);
        memset(deep + 1 + levels, ']', levels + 1);
        cut_input(&cut, &options, mr_slice_make(deep, 2 * levels + 2), NULL, NULL);
        assert_int_equal(cut.err, more ? MR_INVALID : MR_OK);
        if (more)
            assert_string_equal(cut.detail.text, "json: offset 513: nested too deep");
        cut_done(&cut);
    }
}

static void the_header_of_a_table_stands_before_each_part(void **state)
{
    (void)state;
    parts_are("csv", "a,b\n1,2\n3,4\n", "|a,b\n1,2\n|a,b\n3,4\n");
    parts_are("csv:2", "h\r\n1\r\n2\r\n3", "|h\r\n1\r\n2\r\n|h\r\n3");
    parts_are("csv", "a,\"b\nc\"\n\"x\n\n,\"\"y\"\"\",2\n,\n",
              "|a,\"b\nc\"\n\"x\n\n,\"\"y\"\"\",2\n|a,\"b\nc\"\n,\n");
    parts_are("csv", "a\n\"1\"\r\n\"\"\n", "|a\n\"1\"\r\n|a\n\"\"\n");
    /* Empty lines are no rows; a space or a carriage return within a line is a value. */
    parts_are("csv", "\n\r\nh\n\n1\n\r\n\n 2\n\n", "|h\n1\n|h\n 2\n");
    parts_are("csv:2", "h\n\n1\n\n\n2\n3\n\n\n", "|h\n1\n2\n|h\n3\n");
    parts_are("csv", "h\nx\ry\n", "|h\nx\ry\n");
}

static void a_quote_out_of_place_is_refused(void **state)
{
    (void)state;
    refused("csv", 0, "h\n1\n2\"x\n", MR_INVALID,
            "csv: offset 5: a quote in a field that does not begin with one", 1);
    refused("csv", 0, "h\n\"1\"x\n", MR_INVALID, "csv: offset 5: behind the quote a comma must be",
            0);
    refused("csv", 0, "h\n\"1\";2\n", MR_INVALID, "csv: offset 5: behind the quote a comma must be",
            0);
    refused("csv", 0, "h\n\"1\"\r2\n", MR_INVALID, "csv: offset 6: here a newline must be", 0);
    refused("csv", 0, "h\n1\n\"2\n", MR_INVALID,
            "csv: offset 4: the quoted field that begins here does not end", 1);
}

static void test_99_empty_input_is_refused(void **state)
{
    (void)state;
    static const char *const specs[] = {"lines",   "lines:5", "paragraphs", "chars:3",
                                        "bytes:3", "json",    "csv",        "command:x"};
    for (size_t i = 0; i < sizeof specs / sizeof *specs; i++)
        refused(specs[i], 0, "", MR_INVALID, "the input is empty: a job has one part at least", 0);
    refused("json", 0, " \n", MR_INVALID, "the input is empty: a job has one part at least", 0);
    refused("json", 0, "[ ]", MR_INVALID, "json: the array is empty: a job has one part at least",
            0);
    refused("csv", 0, "\r\n\n", MR_INVALID, "the input is empty: a job has one part at least", 0);
    refused("csv", 0, "a,b\n\n", MR_INVALID,
            "csv: no row is behind the header: a job has one part at least", 0);
    refused("paragraphs", 0, " \n\t\r\n", MR_INVALID,
            "paragraphs: nothing but blank lines: a job has one part at least", 0);
}

/* ---- limits --------------------------------------------------------------------------------- */

static void a_part_over_the_limit_is_refused_by_its_number(void **state)
{
    (void)state;
    const char *line = "part 1: over the limit of a part, 4 bytes";
    refused("lines", 4, "abc\nabcd\n", MR_TOO_BIG, line, 1);
    refused("lines", 4, "abc\nabcde", MR_TOO_BIG, line, 1);
    refused("lines:2", 4, "a\nb\nab\nc\n", MR_TOO_BIG, line, 1);
    refused("paragraphs", 4, "a\n\nabcde", MR_TOO_BIG, line, 1);
    refused("paragraphs", 4, "a\n\na\n\n\n\nb\n\n", MR_TOO_BIG, line, 1);
    refused("chars:2", 4, "ab\u20ac\u20ac", MR_TOO_BIG, line, 1);
    refused("bytes:5", 4, "abcde", MR_TOO_BIG, "part 0: over the limit of a part, 4 bytes", 0);
    refused("json", 4, "[1234,12345]", MR_TOO_BIG, line, 1);
    refused("paragraphs", 4, "a\n\nb\n\n     ", MR_TOO_BIG, line, 1);
    refused("csv", 4, "h\n1\n123\n", MR_TOO_BIG, line, 1);
    refused("csv", 4, "h\n1\n\r\r\r\r\r\n2\n", MR_TOO_BIG, line, 1);
    refused("csv", 4, "headers\n1\n", MR_TOO_BIG, "part 0: over the limit of a part, 4 bytes", 0);
}

static void a_part_at_the_limit_is_fine_however_it_came(void **state)
{
    (void)state;
    static const char *const cases[][3] = {
        /* and the limit */
        {"lines", "abc\nabc\nabcd", "4"},
        {"paragraphs", "abcd", "4"},
        {"paragraphs", "ab\n\n  c\n\n  d\n\n", "5"}, /* spaces may be of the next part */
        {"chars:2", "\u00e9\u00e9\u00e9\u00e9", "4"},
        {"chars:3", "ab\xf0\x9f\x98z\xf0\x9f", "3"}, /* as may bytes of a character that is none */
        {"chars:1", "\xf0\x9f\x98\xf0\x9f\x98z", "1"},
        {"bytes:4", "abcdabcd", "4"},
        {"json", "[1234,\"ab\"]", "4"},
        {"csv", "h\n1\n\r\n2\n", "4"},
        {"csv:2", "h\n1\n\r\n2\n\n\n", "6"}, /* or of none: an empty line */
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mr_split_options options = options_of(cases[i][0], (size_t)(cases[i][2][0] - '0'));
        for (int way = 0; way < 2; way++) {
            struct cut cut = {0};
            cut_input(&cut, &options, mr_slice_str(cases[i][1]), way == 0 ? NULL : one_byte, NULL);
            if (cut.err != MR_OK)
                fail_msg("%s: %s", cases[i][0], cut.detail.text);
            cut_done(&cut);
        }
    }
}

static void what_the_caller_refuses_ends_the_split(void **state)
{
    (void)state;
    struct cut cut = {.stop_at = 1};
    struct mr_split_options options = options_of("lines", 0);
    struct mr_split *split;
    struct mr_detail detail = {"as it was"};
    options.part = cut_part;
    options.arg = &cut;
    assert_int_equal(mr_split_new(&options, &split), MR_OK);
    assert_int_equal(mr_split_write(split, mr_slice_str("a\nb\nc\n"), &detail), MR_BUSY);
    cut.stop_at = 0; /* it would take more, but is not asked */
    assert_int_equal(mr_split_write(split, mr_slice_str("d\n"), &detail), MR_BUSY);
    assert_int_equal(mr_split_end(split, &detail), MR_BUSY);
    assert_string_equal(detail.text, "as it was");
    assert_int_equal(cut.n, 1);
    mr_split_free(split);
    mr_split_free(NULL);
    cut_done(&cut);
}

/* ---- slow readings of the same rules -------------------------------------------------------- */

/* The end of the line that begins at from. */
static size_t line_end(struct mr_slice in, size_t from)
{
    const char *p = in.data;
    while (from < in.len && p[from] != '\n')
        from++;
    return from < in.len ? from + 1 : from;
}

static size_t slow_lines(struct mr_slice in, size_t from, uint64_t n)
{
    while (n-- > 0 && from < in.len)
        from = line_end(in, from);
    return from;
}

static bool is_blank(struct mr_slice in, size_t from, size_t end)
{
    const char *p = in.data;
    while (from < end && strchr(" \t\r\n", p[from]) != NULL && p[from] != '\0')
        from++;
    return from == end;
}

static size_t slow_paragraphs(struct mr_slice in, size_t from, uint64_t n)
{
    bool text = false, gap = false;
    (void)n;
    while (from < in.len) {
        size_t end = line_end(in, from);
        bool blank = is_blank(in, from, end);
        if (!blank && gap)
            break;
        gap |= blank && text;
        text |= !blank;
        from = end;
    }
    return from;
}

static size_t slow_chars(struct mr_slice in, size_t from, uint64_t n)
{
    const uint8_t *p = in.data;
    while (n-- > 0 && from < in.len) {
        size_t len = 1;
        for (size_t more = 2; more <= 4 && from + more <= in.len; more++) {
            /* One character of so many bytes: valid, and no shorter beginning of it is. */
            if (p[from] >= 0xc0 && mr_utf8_valid(mr_slice_make(p + from, more)))
                len = more;
            if (len > 1)
                break;
        }
        from += len;
    }
    return from;
}

static size_t slow_bytes(struct mr_slice in, size_t from, uint64_t n)
{
    return in.len - from < n ? in.len : from + n;
}

/* Where the part that begins there ends. */
typedef size_t slow(struct mr_slice in, size_t from, uint64_t n);

static const struct {
    const char *spec;
    slow *slow;
    const char *letters; /* of the inputs */
} slows[] = {
    {"lines", slow_lines, "ab\n\r"},
    {"lines:3", slow_lines, "ab\n\n"},
    {"paragraphs", slow_paragraphs, "ab \n\n\n\t\r"},
    {"chars:1", slow_chars, "a\xf0\x9f\x98\x80\xe2\x82\xac\xc3\xa9\xed\xa0"},
    {"chars:7", slow_chars, "a\xf0\x9f\x98\x80\xe2\x82\xac\xc3\xa9\xed\xa0\xff"},
    {"chars:100", slow_chars, "abcdefgh\xc3\xa9"},
    {"bytes:1", slow_bytes, "abc"},
    {"bytes:17", slow_bytes, "abc"},
};

static size_t any_step(size_t left, void *arg)
{
    size_t most = left < 24 ? left : 24;
    return (size_t)mr_rand_below(arg, most + 1);
}

static size_t random_input(struct mr_rand *rand, const char *letters, char *input)
{
    size_t len = 1 + (size_t)mr_rand_below(rand, INPUT_MAX), n = strlen(letters);
    for (size_t i = 0; i < len; i++) {
        /* Runs of the string itself make characters that are whole. */
        size_t at = (size_t)mr_rand_below(rand, n);
        for (size_t run = mr_rand_below(rand, 4); run > 0 && i + 1 < len && at + 1 < n; run--)
            input[i++] = letters[at++];
        input[i] = letters[at];
    }
    return len;
}

static void test_99_the_parts_give_the_input_back(void **state)
{
    struct mr_rand rand;
    char input[INPUT_MAX];
    (void)state;
    mr_rand_seed(&rand, 99);
    for (size_t round = 0; round < RANDOM_INPUTS; round++) {
        size_t k = round % (sizeof slows / sizeof *slows);
        size_t len = random_input(&rand, slows[k].letters, input);
        struct mr_slice in = mr_slice_make(input, len);
        struct mr_split_options options = options_of(slows[k].spec, 0);
        struct cut cut = {0};
        assert_true(cut_joins(options.spec.kind));
        cut_input(&cut, &options, in, any_step, &rand);
        if (options.spec.kind == MR_SPLIT_PARAGRAPHS && is_blank(in, 0, len)) {
            assert_int_equal(cut.err, MR_INVALID);
            cut_done(&cut);
            continue;
        }
        assert_int_equal(cut.err, MR_OK);
        assert_true(mr_slice_equal(mr_buf_slice(&cut.bytes), in));
        size_t from = 0;
        for (size_t i = 0; i < cut.n; i++) {
            size_t end = slows[k].slow(in, from, options.spec.n);
            assert_int_equal(cut_at(&cut, i).len, end - from);
            from = end;
        }
        assert_int_equal(from, len);
        cut_done(&cut);
    }
}

static void test_99_text_of_n_paragraphs_gives_n_parts(void **state)
{
    struct mr_rand rand;
    (void)state;
    mr_rand_seed(&rand, 1);
    for (size_t n = 1; n <= 200; n += 1 + n / 4) {
        struct mr_buf text = {0};
        for (size_t i = 0; i < n; i++) {
            assert_int_equal(mr_buf_printf(&text, "Absatz %zu: \u00fcber \u20ac\nund weiter.\n%s",
                                           i, i + 1 < n || n % 2 ? "\n\n" : ""),
                             MR_OK);
        }
        struct mr_split_options options = options_of("paragraphs", 0);
        struct cut cut = {0};
        cut_input(&cut, &options, mr_buf_slice(&text), any_step, &rand);
        assert_int_equal(cut.err, MR_OK);
        assert_int_equal(cut.n, n);
        assert_true(mr_slice_equal(mr_buf_slice(&cut.bytes), mr_buf_slice(&text)));
        for (size_t i = 0; i < n; i++)
            assert_true(mr_utf8_valid(cut_at(&cut, i)));
        cut_done(&cut);
        mr_buf_done(&text);
    }
}

/* ---- what does not give the input back ------------------------------------------------------ */

static const char *any_of(struct mr_rand *rand, const char *const *texts, size_t n)
{
    return texts[mr_rand_below(rand, n)];
}

static void put(struct mr_buf *buf, const char *text)
{
    assert_int_equal(mr_buf_append(buf, text, strlen(text)), MR_OK);
}

static void put_value(struct mr_rand *rand, struct mr_buf *buf, int depth)
{
    static const char *const leaves[] = {"null",         "true",  "false", "0",
                                         "-12.5e-3",     "1E+10", "\"\"",  "\"\\u00e9,]\"",
                                         "\"\u20ac}{\"", "77"};
    static const char *const spaces[] = {"", "", " ", "\n\t"};
    unsigned kind = depth > 3 ? 0 : (unsigned)mr_rand_below(rand, 4);
    if (kind < 2) {
        put(buf, any_of(rand, leaves, sizeof leaves / sizeof *leaves));
        return;
    }
    put(buf, kind == 2 ? "[" : "{");
    for (uint64_t left = mr_rand_below(rand, 4); left > 0; left--) {
        put(buf, any_of(rand, spaces, 4));
        if (kind == 3)
            put(buf, "\"k\\\"\" :");
        put_value(rand, buf, depth + 1);
        put(buf, any_of(rand, spaces, 4));
        if (left > 1)
            put(buf, ",");
    }
    put(buf, kind == 2 ? "]" : "}");
}

static void arrays_made_of_any_elements_come_apart_into_them(void **state)
{
    struct mr_rand rand;
    (void)state;
    mr_rand_seed(&rand, 5);
    for (int round = 0; round < 500; round++) {
        struct mr_buf array = {0}, elements = {0};
        struct cut cut = {0};
        size_t n = 1 + (size_t)mr_rand_below(&rand, 9);
        put(&array, " [");
        for (size_t i = 0; i < n; i++) {
            size_t from = elements.len;
            put_value(&rand, &elements, 0);
            put(&array, mr_rand_one_in(&rand, 2) ? " " : "");
            assert_int_equal(mr_buf_append(&array, elements.data + from, elements.len - from),
                             MR_OK);
            put(&array, mr_rand_one_in(&rand, 2) ? "\r\n" : "");
            put(&array, i + 1 < n ? "," : "]\n");
        }
        struct mr_split_options options = options_of("json", 0);
        cut_input(&cut, &options, mr_buf_slice(&array), any_step, &rand);
        assert_int_equal(cut.err, MR_OK);
        assert_int_equal(cut.n, n);
        assert_true(mr_slice_equal(mr_buf_slice(&cut.bytes), mr_buf_slice(&elements)));
        cut_done(&cut);
        mr_buf_done(&array);
        mr_buf_done(&elements);
    }
}

static void tables_of_any_rows_come_apart_into_them(void **state)
{
    static const char *const fields[] = {"",         "a",           "\"\"",   "\"x\ny\"",
                                         "\"\"\"\"", "\"a,b\r\n\"", "\u20ac", " "};
    static const char *const specs[] = {"csv", "csv:3", "csv:100"};
    struct mr_rand rand;
    (void)state;
    mr_rand_seed(&rand, 4180);
    for (int round = 0; round < 600; round++) {
        const char *header = mr_rand_one_in(&rand, 2) ? "\"a\nb\",c\r\n" : "a,c\n";
        struct mr_split_options options = options_of(specs[round % 3], 0);
        struct mr_buf table = {0}, parts = {0};
        struct cut cut = {0};
        size_t n = 1 + (size_t)mr_rand_below(&rand, 12);
        put(&table, header);
        for (size_t i = 0; i < n; i++) {
            size_t from = table.len;
            put(&table, any_of(&rand, fields, 8));
            put(&table, ",");
            put(&table, any_of(&rand, fields, 8));
            put(&table, i + 1 == n && mr_rand_one_in(&rand, 2) ? ""
                        : mr_rand_one_in(&rand, 2)             ? "\n"
                                                               : "\r\n");
            if (i % options.spec.n == 0)
                put(&parts, header);
            assert_int_equal(mr_buf_append(&parts, table.data + from, table.len - from), MR_OK);
            put(&table, i + 1 < n && table.data[table.len - 1] == '\n' && mr_rand_one_in(&rand, 4)
                            ? "\r\n\n"
                            : "");
        }
        cut_input(&cut, &options, mr_buf_slice(&table), any_step, &rand);
        assert_int_equal(cut.err, MR_OK);
        assert_int_equal(cut.n, (n + options.spec.n - 1) / options.spec.n);
        assert_true(mr_slice_equal(mr_buf_slice(&cut.bytes), mr_buf_slice(&parts)));
        cut_done(&cut);
        mr_buf_done(&table);
        mr_buf_done(&parts);
    }
}

/* ---- size ----------------------------------------------------------------------------------- */

static enum mr_err only_count(struct mr_slice part, uint64_t index, void *arg)
{
    uint64_t *bytes = arg;
    (void)index;
    *bytes += part.len;
    return MR_OK;
}

/* A part has 8 KiB at most, and so has what is held: otherwise it would be refused. */
static void an_input_larger_than_its_parts_streams_through(void **state)
{
    static const char *const specs[] = {"lines",     "lines:100", "paragraphs", "chars:500",
                                        "bytes:999", "json",      "csv:7"};
    enum { PIECE = 1 << 16, PIECES = 16, PART_MAX = 8192, LINE = 64, PARAGRAPH = 1024 };
    static char piece[PIECE];
    (void)state;
    for (size_t k = 0; k < sizeof specs / sizeof *specs; k++) {
        uint64_t bytes = 0;
        struct mr_split_options options = options_of(specs[k], PART_MAX);
        struct mr_split *split;
        bool json = options.spec.kind == MR_SPLIT_JSON;
        for (size_t i = 0; i < PIECE; i++)
            piece[i] = i % 2 == 0 ? '1' : i % LINE == LINE - 1 && !json ? '\n' : ',';
        for (size_t i = 0; i < PIECE && !json; i += PARAGRAPH)
            piece[i] = '\n';
        options.part = only_count;
        options.arg = &bytes;
        assert_int_equal(mr_split_new(&options, &split), MR_OK);
        if (json)
            assert_int_equal(mr_split_write(split, mr_slice_str("["), NULL), MR_OK);
        for (int i = 0; i < PIECES; i++)
            assert_int_equal(mr_split_write(split, mr_slice_make(piece, PIECE), NULL), MR_OK);
        if (json)
            assert_int_equal(mr_split_write(split, mr_slice_str("1]"), NULL), MR_OK);
        assert_int_equal(mr_split_end(split, NULL), MR_OK);
        if (cut_joins(options.spec.kind))
            assert_int_equal(bytes, PIECE * PIECES);
        mr_split_free(split);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(specs_have_one_text),
        cmocka_unit_test(what_is_no_spec_is_refused_in_one_line),
        cmocka_unit_test(lines_keep_their_newlines),
        cmocka_unit_test(blank_lines_stay_with_the_paragraph_before_them),
        cmocka_unit_test(characters_are_never_cut),
        cmocka_unit_test(bytes_are_counted_alone),
        cmocka_unit_test(elements_of_an_array_come_as_they_are_written),
        cmocka_unit_test(what_is_no_array_is_refused_where_it_goes_wrong),
        cmocka_unit_test(json_may_be_nested_but_not_without_end),
        cmocka_unit_test(the_header_of_a_table_stands_before_each_part),
        cmocka_unit_test(a_quote_out_of_place_is_refused),
        cmocka_unit_test(test_99_empty_input_is_refused),
        cmocka_unit_test(a_part_over_the_limit_is_refused_by_its_number),
        cmocka_unit_test(a_part_at_the_limit_is_fine_however_it_came),
        cmocka_unit_test(what_the_caller_refuses_ends_the_split),
        cmocka_unit_test(test_99_the_parts_give_the_input_back),
        cmocka_unit_test(test_99_text_of_n_paragraphs_gives_n_parts),
        cmocka_unit_test(arrays_made_of_any_elements_come_apart_into_them),
        cmocka_unit_test(tables_of_any_rows_come_apart_into_them),
        cmocka_unit_test(an_input_larger_than_its_parts_streams_through),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
