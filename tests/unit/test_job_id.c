/* SPDX-License-Identifier: Apache-2.0 */
/* The ids of parts' tasks: one text for each, and nothing else is one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "job/id.h"

#define UID "0190a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b"

static void an_id_is_written_as_it_is_read(void **state)
{
    (void)state;
    static const struct {
        uint64_t segment, index;
        uint32_t stage, round;
        const char *text;
    } cases[] = {
        {1, 0, 0, 0, UID ".1.0.0.0"},
        {12, 345, 6, 78, UID ".12.345.6.78"},
        {INT64_MAX, INT64_MAX, MR_JOB_STAGES_MAX - 1, UINT32_MAX,
         UID ".9223372036854775807.9223372036854775807.15.4294967295"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct mr_part_id id = {.segment = cases[i].segment,
                                .index = cases[i].index,
                                .stage = cases[i].stage,
                                .round = cases[i].round};
        struct mr_part_id again;
        char text[MR_PART_ID_MAX + 1];
        assert_true(mr_uuid_parse(mr_slice_str(UID), &id.job));
        assert_int_equal(mr_part_id_format(&id, text), strlen(cases[i].text));
        assert_string_equal(text, cases[i].text);
        assert_true(mr_part_id_parse(mr_slice_str(text), &again));
        assert_memory_equal(&again.job, &id.job, sizeof id.job);
        assert_true(again.segment == id.segment && again.index == id.index);
        assert_true(again.stage == id.stage && again.round == id.round);
    }
}

static void numbers_out_of_place_make_no_id(void **state)
{
    static const struct mr_part_id most = {
        .segment = UINT64_MAX, .index = UINT64_MAX, .stage = UINT32_MAX, .round = UINT32_MAX};
    const struct mr_part_id others[] = {
        {.segment = 0}, {.segment = 1, .stage = MR_JOB_STAGES_MAX}, most};
    (void)state;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        struct mr_part_id id;
        char text[MR_PART_ID_MAX + 1];
        size_t len = mr_part_id_format(&others[i], text);
        assert_int_equal(len, strlen(text));
        assert_true(len <= MR_PART_ID_MAX && !mr_part_id_parse(mr_slice_make(text, len), &id));
    }
}

static void what_is_not_canonical_is_no_id(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "",
        UID,
        UID ".1.0.0",
        UID ".1.0.0.",
        UID ".1.0.0.0.",
        UID ".1.0.0.0.0",
        UID ".1.0.0.0 ",
        UID ".0.0.0.0",
        UID ".01.0.0.0",
        UID ".1.00.0.0",
        UID ".1.0.0.-1",
        UID ".1.+1.0.0",
        UID ".1..0.0",
        UID "-1.0.0.0",
        UID ".1.0.16.0",
        UID ".1.0.0.4294967296",
        UID ".9223372036854775808.0.0.0",
        UID ".1.9223372036854775808.0.0",
        UID ".1.18446744073709551616.0.0",
        "0190A1B2-c3d4-7e5f-8a9b-0c1d2e3f4a5b.1.0.0.0",
        "0190a1b2c3d47e5f8a9b0c1d2e3f4a5b.1.0.0.0",
        " " UID ".1.0.0.0",
        UID ".1.0.0.000000000000000000000000000000000000000000000000000000000000000000",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct mr_part_id id;
        if (mr_part_id_parse(mr_slice_str(texts[i]), &id))
            fail_msg("%s", texts[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_id_is_written_as_it_is_read),
        cmocka_unit_test(what_is_not_canonical_is_no_id),
        cmocka_unit_test(numbers_out_of_place_make_no_id),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
