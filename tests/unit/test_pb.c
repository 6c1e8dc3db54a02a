/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "wire/pb.h"

static void bytes_that_are_no_message_are_refused(void **state)
{
    (void)state;
    struct mr_arena arena = {0};
    ProtobufCMessage *message = NULL;
    assert_int_equal(
        mr_pb_decode(&millrace__v1__task__descriptor, mr_slice_str("\xff\xff"), &arena, &message),
        MR_INVALID);
    assert_null(message);
    assert_int_equal(
        mr_pb_decode(&millrace__v1__task__descriptor, (struct mr_slice){0}, &arena, &message),
        MR_OK);
    assert_non_null(message);
    mr_arena_done(&arena);
}

static void texts_end_with_a_nul_and_empty_ones_need_no_memory(void **state)
{
    (void)state;
    struct mr_arena arena = {0};
    assert_string_equal(mr_pb_of_text(&arena, (struct mr_slice){0}), "");
    assert_int_equal(arena.bytes, 0);
    assert_string_equal(mr_pb_of_text(&arena, mr_slice_make("mailbox", 4)), "mail");
    assert_int_equal(mr_pb_text(NULL).len, 0);
    assert_int_equal(mr_pb_text("mail").len, 4);
    mr_arena_done(&arena);
}

/* The lists in proto/ and in the public header are one. */
static void codes_have_the_names_of_errors(void **state)
{
    (void)state;
    for (int i = 0; i < MR_ERR_COUNT; i++) {
        const ProtobufCEnumValue *value =
            protobuf_c_enum_descriptor_get_value(&millrace__v1__code__descriptor, i);
        assert_non_null(value);
        assert_string_equal(value->name, mr_err_name((enum mr_err)i));
    }
    assert_int_equal(millrace__v1__code__descriptor.n_values, MR_ERR_COUNT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes_that_are_no_message_are_refused),
        cmocka_unit_test(texts_end_with_a_nul_and_empty_ones_need_no_memory),
        cmocka_unit_test(codes_have_the_names_of_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
