/* SPDX-License-Identifier: Apache-2.0 */
/* Chance: known streams, even draws, bytes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/rand.h"

static void the_stream_of_a_state_is_the_published_one(void **state)
{
    (void)state;
    /* xoshiro256** from the state 1, 2, 3, 4. */
    struct mr_rand rand = {{1, 2, 3, 4}};
    static const uint64_t expected[] = {
        11520ULL, 0ULL, 1509978240ULL, 1215971899390074240ULL, 1216172134540287360ULL,
    };
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++)
        assert_int_equal(mr_rand_next(&rand), expected[i]);
}

static void a_seed_repeats_its_stream_and_others_differ(void **state)
{
    (void)state;
    struct mr_rand a, b, c;
    mr_rand_seed(&a, 7);
    mr_rand_seed(&b, 7);
    mr_rand_seed(&c, 8);
    /* splitmix64 of 0, as published. */
    struct mr_rand zero;
    mr_rand_seed(&zero, 0);
    assert_int_equal(zero.s[0], 0xe220a8397b1dcdafULL);
    assert_int_equal(zero.s[1], 0x6e789e6aa1b965f4ULL);
    for (int i = 0; i < 100; i++) {
        uint64_t x = mr_rand_next(&a);
        assert_int_equal(x, mr_rand_next(&b));
        assert_int_not_equal(x, mr_rand_next(&c));
    }
}

static void two_system_seeds_differ(void **state)
{
    (void)state;
    struct mr_rand a, b;
    mr_rand_seed_system(&a);
    mr_rand_seed_system(&b);
    assert_memory_not_equal(&a, &b, sizeof a);
}

static void draws_below_n_are_in_range_and_even(void **state)
{
    (void)state;
    struct mr_rand rand;
    mr_rand_seed(&rand, 3);
    enum { N = 10, DRAWS = 100000 };
    int counts[N] = {0};
    for (int i = 0; i < DRAWS; i++) {
        uint64_t x = mr_rand_below(&rand, N);
        assert_true(x < N);
        counts[x]++;
    }
    /* Five standard deviations of a fair count are 475. */
    for (int i = 0; i < N; i++)
        assert_in_range(counts[i], DRAWS / N - 475, DRAWS / N + 475);
    for (int i = 0; i < 100; i++)
        assert_int_equal(mr_rand_below(&rand, 1), 0);
    /* With plain remainders the lower half would come twice as often as the upper. */
    uint64_t n = 3ULL << 62;
    int low = 0;
    for (int i = 0; i < 10000; i++) {
        uint64_t x = mr_rand_below(&rand, n);
        assert_true(x < n);
        low += x < n / 2;
    }
    assert_in_range(low, 4750, 5250);
}

static void one_in_n_is_just_that(void **state)
{
    (void)state;
    struct mr_rand rand;
    mr_rand_seed(&rand, 4);
    int hits = 0;
    for (int i = 0; i < 100000; i++)
        hits += mr_rand_one_in(&rand, 4);
    assert_in_range(hits, 24300, 25700);
}

static void bytes_fill_exactly_what_was_asked(void **state)
{
    (void)state;
    struct mr_rand rand;
    mr_rand_seed(&rand, 5);
    for (size_t len = 0; len < 40; len++) {
        uint8_t bytes[48];
        uint8_t seen[48] = {0};
        memset(bytes, 0, sizeof bytes);
        for (int round = 0; round < 20; round++) {
            mr_rand_bytes(&rand, bytes, len);
            for (size_t i = 0; i < sizeof bytes; i++)
                seen[i] |= bytes[i];
        }
        for (size_t i = 0; i < sizeof seen; i++)
            assert_int_equal(seen[i] != 0, i < len);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_stream_of_a_state_is_the_published_one),
        cmocka_unit_test(a_seed_repeats_its_stream_and_others_differ),
        cmocka_unit_test(two_system_seeds_differ),
        cmocka_unit_test(draws_below_n_are_in_range_and_even),
        cmocka_unit_test(one_in_n_is_just_that),
        cmocka_unit_test(bytes_fill_exactly_what_was_asked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
