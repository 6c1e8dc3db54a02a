/* SPDX-License-Identifier: Apache-2.0 */
/* A record of the log proves itself: nothing but the very bytes that were sealed is taken for it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "wire/record.h"

enum { SALT = 0x5eed1234, ROOM = 4096 };

static const struct mr_record sample = {
    .seq = 0x0102030405060708,
    .lag = 17,
    .term = 3,
    .segment = 0xabcd,
    .type = MR_RECORD_TASK,
    .version = MR_RECORD_VERSION,
};

/* Seals sample with len bytes of body; returns its size in the log. */
static size_t seal(uint8_t bytes[ROOM], size_t len, uint32_t salt)
{
    memset(bytes, 0xee, ROOM);
    for (size_t i = 0; i < len; i++)
        bytes[MR_RECORD_HEADER + i] = (uint8_t)(i * 7 + 1);
    struct mr_record record = sample;
    record.body.len = len;
    mr_record_seal(bytes, &record, salt);
    return mr_record_size(len);
}

static void a_record_reads_back_as_it_was_sealed(void **state)
{
    (void)state;
    uint8_t bytes[ROOM];
    for (size_t len = 0; len < 100; len++) {
        size_t size = seal(bytes, len, SALT);
        struct mr_record record;
        assert_int_equal(mr_record_parse(mr_slice_make(bytes, size), SALT, &record),
                         MR_RECORD_GOOD);
        assert_int_equal(record.seq, sample.seq);
        assert_int_equal(record.lag, sample.lag);
        assert_int_equal(record.term, sample.term);
        assert_int_equal(record.segment, sample.segment);
        assert_int_equal(record.type, sample.type);
        assert_int_equal(record.version, sample.version);
        assert_int_equal(record.body.len, len);
        assert_ptr_equal(record.body.data, bytes + MR_RECORD_HEADER);
    }
}

static void the_layout_is_the_one_that_is_written_down(void **state)
{
    (void)state;
    uint8_t bytes[ROOM];
    seal(bytes, 5, SALT);
    static const uint8_t header[MR_RECORD_HEADER - 4] = {
        5,    0,    0,    0,                /* len */
        0x08, 0x07, 0x06, 0x05, 4, 3, 2, 1, /* seq */
        17,   0,    0,    0,                /* lag */
        3,    0,    0,    0,                /* term */
        0xcd, 0xab, 0,    0,                /* segment */
        7,    1,    0,    0,                /* type, version, zero */
    };
    assert_memory_equal(bytes + 4, header, sizeof header);
}

static void sizes_are_multiples_of_eight_and_the_padding_is_zero(void **state)
{
    (void)state;
    uint8_t bytes[ROOM];
    for (size_t len = 0; len < 64; len++) {
        size_t size = seal(bytes, len, SALT);
        assert_int_equal(size % MR_RECORD_ALIGN, 0);
        assert_in_range(size, MR_RECORD_HEADER + len, MR_RECORD_HEADER + len + MR_RECORD_ALIGN - 1);
        for (size_t i = MR_RECORD_HEADER + len; i < size; i++)
            assert_int_equal(bytes[i], 0);
        assert_int_equal(bytes[size], 0xee);
    }
}

static void every_flipped_bit_makes_a_record_bad(void **state)
{
    (void)state;
    uint8_t bytes[ROOM];
    size_t len = 45;
    seal(bytes, len, SALT);
    for (size_t bit = 0; bit < 8 * (MR_RECORD_HEADER + len); bit++) {
        struct mr_record record;
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        enum mr_record_check check = mr_record_parse(mr_slice_make(bytes, ROOM), SALT, &record);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        /* A length beyond what is there asks for more bytes; given them, it is bad all the same. */
        bool longer = check == MR_RECORD_SHORT && bit / 8 >= 4 && bit / 8 < 8;
        assert_true(check == MR_RECORD_BAD || longer);
    }
}

static void another_salt_makes_a_record_bad(void **state)
{
    (void)state;
    uint8_t bytes[ROOM];
    struct mr_record record;
    size_t size = seal(bytes, 40, SALT);
    for (unsigned bit = 0; bit < 32; bit++)
        assert_int_equal(
            mr_record_parse(mr_slice_make(bytes, size), SALT ^ (uint32_t)1 << bit, &record),
            MR_RECORD_BAD);
}

static void a_cut_record_says_how_many_bytes_it_needs(void **state)
{
    (void)state;
    uint8_t bytes[ROOM];
    size_t len = 61;
    seal(bytes, len, SALT);
    for (size_t n = 0; n < MR_RECORD_HEADER + len; n++) {
        struct mr_record record;
        assert_int_equal(mr_record_parse(mr_slice_make(bytes, n), SALT, &record), MR_RECORD_SHORT);
        size_t need = n < MR_RECORD_HEADER ? MR_RECORD_HEADER : MR_RECORD_HEADER + len;
        assert_int_equal(record.body.len, need);
    }
}

static void zeroes_are_no_record(void **state)
{
    (void)state;
    static const uint8_t zeroes[64];
    struct mr_record record;
    assert_int_equal(mr_record_parse(mr_slice_make(zeroes, sizeof zeroes), SALT, &record),
                     MR_RECORD_BAD);
    assert_int_equal(mr_record_parse(mr_slice_make(zeroes, sizeof zeroes), 0, &record),
                     MR_RECORD_BAD);
}

static void no_type_and_absurd_lengths_are_bad(void **state)
{
    (void)state;
    uint8_t bytes[ROOM];
    struct mr_record record = sample;
    record.body.len = 0;
    record.type = MR_RECORD_NONE;
    mr_record_seal(bytes, &record, SALT);
    assert_int_equal(mr_record_parse(mr_slice_make(bytes, ROOM), SALT, &record), MR_RECORD_BAD);
    seal(bytes, 0, SALT);
    mr_store32(bytes + 4, MR_RECORD_BODY_MAX + 1);
    assert_int_equal(mr_record_parse(mr_slice_make(bytes, ROOM), SALT, &record), MR_RECORD_BAD);
}

static void a_newer_body_version_is_passed_on_to_who_knows_bodies(void **state)
{
    (void)state;
    uint8_t bytes[ROOM];
    struct mr_record record = sample;
    record.version = MR_RECORD_VERSION + 1;
    record.body.len = 8;
    memset(bytes, 0, sizeof bytes);
    mr_record_seal(bytes, &record, SALT);
    assert_int_equal(mr_record_parse(mr_slice_make(bytes, ROOM), SALT, &record), MR_RECORD_GOOD);
    assert_int_equal(record.version, MR_RECORD_VERSION + 1);
}

static void a_newer_type_is_passed_on_too(void **state)
{
    (void)state;
    uint8_t bytes[ROOM];
    struct mr_record record = sample;
    record.body.len = 0;
    for (unsigned type = MR_RECORD_TYPE_COUNT; type < 256; type++) {
        record.type = (uint8_t)type;
        mr_record_seal(bytes, &record, SALT);
        assert_int_equal(mr_record_parse(mr_slice_make(bytes, ROOM), SALT, &record),
                         MR_RECORD_GOOD);
        assert_int_equal(record.type, type);
    }
}

static void every_type_has_a_name(void **state)
{
    (void)state;
    for (unsigned type = 0; type < MR_RECORD_TYPE_COUNT; type++)
        assert_non_null(mr_record_type_name(type));
    assert_string_equal(mr_record_type_name(MR_RECORD_TASK), "task");
    assert_string_equal(mr_record_type_name(MR_RECORD_TYPE_COUNT), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_record_reads_back_as_it_was_sealed),
        cmocka_unit_test(the_layout_is_the_one_that_is_written_down),
        cmocka_unit_test(sizes_are_multiples_of_eight_and_the_padding_is_zero),
        cmocka_unit_test(every_flipped_bit_makes_a_record_bad),
        cmocka_unit_test(another_salt_makes_a_record_bad),
        cmocka_unit_test(a_cut_record_says_how_many_bytes_it_needs),
        cmocka_unit_test(zeroes_are_no_record),
        cmocka_unit_test(no_type_and_absurd_lengths_are_bad),
        cmocka_unit_test(a_newer_body_version_is_passed_on_to_who_knows_bodies),
        cmocka_unit_test(a_newer_type_is_passed_on_too),
        cmocka_unit_test(every_type_has_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
