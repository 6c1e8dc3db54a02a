/* SPDX-License-Identifier: Apache-2.0 */
/* CRC32C: published values, and the instruction against the table and against single bits. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/crc.h"
#include "base/rand.h"

/* Bit by bit, from the definition. */
static uint32_t crc_by_bits(uint32_t crc, const uint8_t *bytes, size_t len)
{
    crc = ~crc;
    for (size_t i = 0; i < len; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (0x82f63b78u & -(crc & 1));
    }
    return ~crc;
}

static void published_values_come_out(void **state)
{
    (void)state;
    /* RFC 3720, B.4, and the usual check value. */
    uint8_t zeros[32] = {0}, ones[32], rising[32], falling[32];
    memset(ones, 0xff, sizeof ones);
    for (uint8_t i = 0; i < 32; i++) {
        rising[i] = i;
        falling[i] = 31 - i;
    }
    const struct {
        const void *bytes;
        size_t len;
        uint32_t crc;
    } rows[] = {
        {"123456789", 9, 0xe3069283}, {"", 0, 0},
        {zeros, 32, 0x8a9136aa},      {ones, 32, 0x62a8ab43},
        {rising, 32, 0x46dd794e},     {falling, 32, 0x113fdb5c},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_int_equal(mr_crc32c(0, rows[i].bytes, rows[i].len), rows[i].crc);
        assert_int_equal(mr_crc32c_table(0, rows[i].bytes, rows[i].len), rows[i].crc);
    }
    assert_int_equal(mr_crc32c(5, NULL, 0), 5);
}

static void all_ways_agree_at_every_length_and_alignment(void **state)
{
    (void)state;
    struct mr_rand rand;
    mr_rand_seed(&rand, 1);
    uint8_t bytes[600];
    mr_rand_bytes(&rand, bytes, sizeof bytes);
    for (size_t len = 0; len < 300; len++) {
        for (size_t at = 0; at < 9; at++) {
            uint32_t start = (uint32_t)mr_rand_next(&rand);
            uint32_t crc = crc_by_bits(start, bytes + at, len);
            assert_int_equal(mr_crc32c(start, bytes + at, len), crc);
            assert_int_equal(mr_crc32c_table(start, bytes + at, len), crc);
        }
    }
}

static void a_sum_can_be_continued_at_any_place(void **state)
{
    (void)state;
    struct mr_rand rand;
    mr_rand_seed(&rand, 2);
    uint8_t bytes[257];
    mr_rand_bytes(&rand, bytes, sizeof bytes);
    uint32_t whole = mr_crc32c(0, bytes, sizeof bytes);
    for (size_t cut = 0; cut <= sizeof bytes; cut++) {
        uint32_t head = mr_crc32c(0, bytes, cut);
        assert_int_equal(mr_crc32c(head, bytes + cut, sizeof bytes - cut), whole);
        head = mr_crc32c_table(0, bytes, cut);
        assert_int_equal(mr_crc32c_table(head, bytes + cut, sizeof bytes - cut), whole);
    }
}

static void every_flipped_bit_changes_the_sum(void **state)
{
    (void)state;
    uint8_t bytes[64] = "a record of the log";
    uint32_t whole = mr_crc32c(0, bytes, sizeof bytes);
    for (size_t bit = 0; bit < sizeof bytes * 8; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
        assert_int_not_equal(mr_crc32c(0, bytes, sizeof bytes), whole);
        bytes[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(published_values_come_out),
        cmocka_unit_test(all_ways_agree_at_every_length_and_alignment),
        cmocka_unit_test(a_sum_can_be_continued_at_any_place),
        cmocka_unit_test(every_flipped_bit_changes_the_sum),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
