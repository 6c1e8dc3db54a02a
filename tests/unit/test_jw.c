/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON writer: commas, escapes, bytes that are no text, numbers at their ends. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "wire/jw.h"

static void assert_text(struct jw *jw, const char *expected)
{
    assert_int_equal(jw->err, MR_OK);
    assert_int_equal(jw->depth, 0);
    assert_int_equal(jw->buf.len, strlen(expected));
    assert_memory_equal(jw->buf.data, expected, strlen(expected));
    mr_buf_done(&jw->buf);
}

static void commas_and_names_follow_from_what_comes(void **state)
{
    (void)state;
    struct jw jw = {0};
    jw_object_begin(&jw, NULL);
    jw_array_begin(&jw, "none");
    jw_array_end(&jw);
    jw_array_begin(&jw, "some");
    jw_bool(&jw, NULL, true);
    jw_null(&jw, NULL);
    jw_object_begin(&jw, NULL);
    jw_object_end(&jw);
    jw_array_end(&jw);
    jw_bool(&jw, "last", false);
    jw_object_end(&jw);
    assert_text(&jw, "{\"none\":[],\"some\":[true,null,{}],\"last\":false}");
}

static void whole_numbers_are_written_to_their_ends(void **state)
{
    (void)state;
    struct jw jw = {0};
    jw_array_begin(&jw, NULL);
    jw_int(&jw, NULL, 0);
    jw_int(&jw, NULL, -7);
    jw_int(&jw, NULL, INT64_MIN);
    jw_int(&jw, NULL, INT64_MAX);
    jw_uint(&jw, NULL, 10);
    jw_uint(&jw, NULL, UINT64_MAX);
    jw_array_end(&jw);
    assert_text(&jw, "[0,-7,-9223372036854775808,9223372036854775807,10,18446744073709551615]");
}

static void names_and_texts_are_escaped(void **state)
{
    (void)state;
    struct jw jw = {0};
    jw_object_begin(&jw, NULL);
    jw_text(&jw, "a\"b", "\\\n\t\x7fz");
    jw_text(&jw, "", "");
    jw_object_end(&jw);
    assert_text(&jw, "{\"a\\\"b\":\"\\\\\\n\\u0009\\u007fz\",\"\":\"\"}");
}

static void bytes_that_are_no_text_have_another_name(void **state)
{
    (void)state;
    struct jw jw = {0};
    struct mr_header headers[] = {{MR_SLICE_LIT("h"), MR_SLICE_LIT("\xff\xfe")}};
    jw_object_begin(&jw, NULL);
    jw_bytes(&jw, "payload", MR_SLICE_LIT("\xff"));
    jw_headers(&jw, headers, 1);
    jw_object_end(&jw);
    assert_text(&jw, "{\"payload_base64\":\"/w==\",\"headers\":{\"h_base64\":\"//4=\"}}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commas_and_names_follow_from_what_comes),
        cmocka_unit_test(whole_numbers_are_written_to_their_ends),
        cmocka_unit_test(names_and_texts_are_escaped),
        cmocka_unit_test(bytes_that_are_no_text_have_another_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
