/* SPDX-License-Identifier: Apache-2.0 */
/* Ids: UUIDs and their text, SipHash, 64-bit ids that rise whatever the clock does. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/id.h"

static struct mr_rand seeded(uint64_t seed)
{
    struct mr_rand rand;
    mr_rand_seed(&rand, seed);
    return rand;
}

static void a_uuid_has_the_time_version_and_variant_of_rfc_9562(void **state)
{
    (void)state;
    struct mr_rand rand = seeded(1);
    static const int64_t times_ms[] = {0, 1, 0x017f22e279b0, 1700000000123, 0xffffffffffff};
    for (size_t t = 0; t < sizeof times_ms / sizeof times_ms[0]; t++) {
        for (int i = 0; i < 100; i++) {
            struct mr_uuid uuid;
            mr_uuid_make(&uuid, (mr_wall){times_ms[t] * 1000 + 999}, &rand);
            int64_t ms = 0;
            for (int b = 0; b < 6; b++)
                ms = ms << 8 | uuid.bytes[b];
            assert_int_equal(ms, times_ms[t]);
            assert_int_equal(uuid.bytes[6] >> 4, 7);
            assert_int_equal(uuid.bytes[8] >> 6, 2);
        }
    }
    struct mr_uuid uuid;
    mr_uuid_make(&uuid, (mr_wall){-5000000}, &rand);
    static const uint8_t zeros[6];
    assert_memory_equal(uuid.bytes, zeros, 6);
}

static void all_other_bits_of_a_uuid_are_random(void **state)
{
    (void)state;
    struct mr_rand rand = seeded(2);
    int ones[128] = {0};
    for (int i = 0; i < 4000; i++) {
        struct mr_uuid uuid;
        mr_uuid_make(&uuid, (mr_wall){1700000000000000}, &rand);
        for (int bit = 0; bit < 128; bit++)
            ones[bit] += uuid.bytes[bit / 8] >> (7 - bit % 8) & 1;
    }
    for (int bit = 52; bit < 128; bit++) {
        if (bit != 64 && bit != 65)
            assert_in_range(ones[bit], 1800, 2200);
    }
}

static void the_text_of_a_uuid_is_parsed_back(void **state)
{
    (void)state;
    struct mr_rand rand = seeded(3);
    static const struct mr_uuid example = {{0x01, 0x7f, 0x22, 0xe2, 0x79, 0xb0, 0x7c, 0xc3, 0x98,
                                            0xc4, 0xdc, 0x0c, 0x0c, 0x07, 0x39, 0x8f}};
    char text[MR_UUID_TEXT_LEN + 1];
    mr_uuid_format(&example, text);
    assert_string_equal(text, "017f22e2-79b0-7cc3-98c4-dc0c0c07398f");
    for (int i = 0; i < 10000; i++) {
        struct mr_uuid uuid, back;
        mr_rand_bytes(&rand, uuid.bytes, sizeof uuid.bytes);
        mr_uuid_format(&uuid, text);
        assert_int_equal(strlen(text), MR_UUID_TEXT_LEN);
        assert_true(mr_uuid_parse(mr_slice_str(text), &back));
        assert_memory_equal(&back, &uuid, sizeof uuid);
    }
}

static void only_canonical_lower_case_text_is_a_uuid(void **state)
{
    (void)state;
    static const char good[] = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f";
    struct mr_uuid untouched, uuid;
    memset(&untouched, 0x5a, sizeof untouched);
    for (size_t at = 0; at < MR_UUID_TEXT_LEN; at++) {
        bool dash = good[at] == '-';
        for (int c = 0; c < 256; c++) {
            char text[sizeof good];
            memcpy(text, good, sizeof good);
            text[at] = (char)c;
            bool ok = dash ? c == '-' : (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
            uuid = untouched;
            assert_int_equal(mr_uuid_parse(mr_slice_make(text, MR_UUID_TEXT_LEN), &uuid), ok);
            if (!ok)
                assert_memory_equal(&uuid, &untouched, sizeof uuid);
        }
    }
    assert_false(mr_uuid_parse(mr_slice_make(good, MR_UUID_TEXT_LEN - 1), &uuid));
    assert_false(mr_uuid_parse(mr_slice_make(good, MR_UUID_TEXT_LEN + 1), &uuid));
    assert_false(mr_uuid_parse((struct mr_slice){0}, &uuid));
}

static void siphash_gives_the_published_vectors(void **state)
{
    (void)state;
    /* Key 00 01 .. 0f, input 00 01 .. len - 1. */
    static const struct {
        size_t len;
        uint8_t hash[16];
    } rows[] = {
        {0,
         {0xa3, 0x81, 0x7f, 0x04, 0xba, 0x25, 0xa8, 0xe6, 0x6d, 0xf6, 0x72, 0x14, 0xc7, 0x55, 0x02,
          0x93}},
        {1,
         {0xda, 0x87, 0xc1, 0xd8, 0x6b, 0x99, 0xaf, 0x44, 0x34, 0x76, 0x59, 0x11, 0x9b, 0x22, 0xfc,
          0x45}},
        {7,
         {0xa1, 0xf1, 0xeb, 0xbe, 0xd8, 0xdb, 0xc1, 0x53, 0xc0, 0xb8, 0x4a, 0xa6, 0x1f, 0xf0, 0x82,
          0x39}},
        {8,
         {0x3b, 0x62, 0xa9, 0xba, 0x62, 0x58, 0xf5, 0x61, 0x0f, 0x83, 0xe2, 0x64, 0xf3, 0x14, 0x97,
          0xb4}},
        {15,
         {0x54, 0x93, 0xe9, 0x99, 0x33, 0xb0, 0xa8, 0x11, 0x7e, 0x08, 0xec, 0x0f, 0x97, 0xcf, 0xc3,
          0xd9}},
        {63,
         {0x51, 0x50, 0xd1, 0x77, 0x2f, 0x50, 0x83, 0x4a, 0x50, 0x3e, 0x06, 0x9a, 0x97, 0x3f, 0xbd,
          0x7c}},
    };
    uint8_t bytes[64];
    for (uint8_t i = 0; i < 64; i++)
        bytes[i] = i;
    struct mr_hash_key key = {mr_load64(bytes), mr_load64(bytes + 8)};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct mr_uuid hash = mr_hash128(key, mr_slice_make(bytes, rows[i].len));
        assert_memory_equal(hash.bytes, rows[i].hash, 16);
    }
}

static void another_key_gives_another_hash(void **state)
{
    (void)state;
    struct mr_slice text = MR_SLICE_LIT("order-4711");
    struct mr_uuid a = mr_hash128((struct mr_hash_key){1, 2}, text);
    struct mr_uuid b = mr_hash128((struct mr_hash_key){1, 3}, text);
    struct mr_uuid c = mr_hash128((struct mr_hash_key){2, 2}, text);
    assert_memory_not_equal(&a, &b, sizeof a);
    assert_memory_not_equal(&a, &c, sizeof a);
    assert_memory_not_equal(&b, &c, sizeof b);
}

static void table_hashes_of_neighbouring_uuids_spread(void **state)
{
    (void)state;
    enum { BUCKETS = 256, N = 100 * BUCKETS };
    struct mr_rand rand = seeded(4);
    static int low[BUCKETS], high[BUCKETS];
    for (int i = 0; i < N; i++) {
        struct mr_uuid uuid;
        mr_uuid_make(&uuid, (mr_wall){1700000000000000 + i}, &rand);
        uint64_t hash = mr_uuid_hash(&uuid);
        low[hash % BUCKETS]++;
        high[hash >> 56]++;
    }
    for (int i = 0; i < BUCKETS; i++) {
        assert_in_range(low[i], 50, 150);
        assert_in_range(high[i], 50, 150);
    }
}

static void an_id_holds_time_node_and_counter(void **state)
{
    (void)state;
    struct mr_id_source source = {.node = 1023};
    int64_t ms = 1700000000123;
    uint64_t id = mr_id_next(&source, (mr_wall){ms * 1000});
    assert_int_equal(id >> 22, ms);
    assert_int_equal(id >> 12 & 1023, 1023);
    assert_int_equal(id & 4095, 0);
    assert_int_equal(mr_id_next(&source, (mr_wall){ms * 1000}), id + 1);
}

static void ids_rise_when_the_counter_of_a_millisecond_is_used_up(void **state)
{
    (void)state;
    struct mr_id_source source = {.node = 5};
    uint64_t last = 0;
    for (int i = 0; i < 10000; i++) {
        uint64_t id = mr_id_next(&source, (mr_wall){1000000});
        assert_true(id > last);
        assert_int_equal(id >> 12 & 1023, 5);
        assert_int_equal(id >> 22, 1000 + i / 4096);
        last = id;
    }
    /* Once the clock has caught up, it leads again. */
    assert_int_equal(mr_id_next(&source, (mr_wall){2000000}) >> 22, 2000);
}

static void ids_rise_when_the_clock_is_set_back_or_jumps(void **state)
{
    (void)state;
    struct mr_rand rand = seeded(6);
    struct mr_id_source source = {.node = 0};
    uint64_t last = 0;
    int64_t us = 1700000000000000;
    for (int i = 0; i < 100000; i++) {
        us += (int64_t)mr_rand_below(&rand, 4000) - 2000;
        if (mr_rand_one_in(&rand, 1000))
            us -= 3600000000;
        uint64_t id = mr_id_next(&source, (mr_wall){us});
        assert_true(id > last);
        last = id;
    }
    assert_true(mr_id_next(&source, (mr_wall){-1}) > last);
}

static void ids_rise_over_a_change_of_node(void **state)
{
    (void)state;
    struct mr_id_source source = {.node = 900};
    uint64_t last = mr_id_next(&source, (mr_wall){5000});
    source.node = 3;
    for (int i = 0; i < 5000; i++) {
        uint64_t id = mr_id_next(&source, (mr_wall){5000});
        assert_true(id > last);
        last = id;
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_uuid_has_the_time_version_and_variant_of_rfc_9562),
        cmocka_unit_test(all_other_bits_of_a_uuid_are_random),
        cmocka_unit_test(the_text_of_a_uuid_is_parsed_back),
        cmocka_unit_test(only_canonical_lower_case_text_is_a_uuid),
        cmocka_unit_test(siphash_gives_the_published_vectors),
        cmocka_unit_test(another_key_gives_another_hash),
        cmocka_unit_test(table_hashes_of_neighbouring_uuids_spread),
        cmocka_unit_test(an_id_holds_time_node_and_counter),
        cmocka_unit_test(ids_rise_when_the_counter_of_a_millisecond_is_used_up),
        cmocka_unit_test(ids_rise_when_the_clock_is_set_back_or_jumps),
        cmocka_unit_test(ids_rise_over_a_change_of_node),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
