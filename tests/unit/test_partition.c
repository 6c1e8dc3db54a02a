/* SPDX-License-Identifier: Apache-2.0 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rand.h"
#include "broker/partition.h"

enum { MOST = 80 };

static size_t bits(uint64_t mask)
{
    return (size_t)__builtin_popcountll(mask);
}

static void make(struct mr_member *members, size_t n, struct mr_rand *rand)
{
    for (size_t i = 0; i < n; i++)
        members[i] = (struct mr_member){.id = mr_rand_next(rand)};
}

static uint64_t owner_of(const struct mr_member *members, size_t n, uint32_t partition)
{
    for (size_t i = 0; i < n; i++)
        if (members[i].owned >> partition & 1)
            return members[i].id;
    return 0;
}

/* Partitions that had another owner before. */
static size_t moved(const struct mr_member *before, size_t before_n, const struct mr_member *after,
                    size_t after_n, uint32_t partitions)
{
    size_t n = 0;
    for (uint32_t p = 0; p < partitions; p++)
        n += owner_of(before, before_n, p) != owner_of(after, after_n, p);
    return n;
}

/* What always holds; `most` is how many a member may have where they are the fewer. */
static void check(const struct mr_member *members, size_t n, uint32_t partitions, size_t most)
{
    size_t owners[MR_PARTITIONS_MAX] = {0};
    for (size_t i = 0; i < n; i++) {
        if (n <= partitions)
            assert_true(bits(members[i].owned) <= most);
        else
            assert_int_equal(bits(members[i].owned), 1);
        for (uint32_t p = 0; p < MR_PARTITIONS_MAX; p++)
            owners[p] += members[i].owned >> p & 1;
    }
    for (uint32_t p = 0; p < MR_PARTITIONS_MAX; p++)
        assert_true(p < partitions ? owners[p] >= 1 : owners[p] == 0);
    for (uint32_t p = 0; p < partitions && n <= partitions; p++)
        assert_int_equal(owners[p], 1);
    for (uint32_t p = 0; p < partitions && n > partitions; p++)
        assert_true(owners[p] <= (most > 0 ? most : n));
}

static size_t ceil_of(size_t a, size_t b)
{
    return (a + b - 1) / b;
}

static void test_every_partition_has_an_owner_and_shares_are_even(void **state)
{
    struct mr_rand rand;
    struct mr_member members[MOST];
    (void)state;
    mr_rand_seed(&rand, 7);
    for (uint32_t partitions = 1; partitions <= MR_PARTITIONS_MAX; partitions += 3) {
        for (size_t n = 1; n <= MOST; n++) {
            size_t most = n <= partitions ? ceil_of(partitions, n) : ceil_of(n, partitions);
            make(members, n, &rand);
            mr_partitions_assign(MR_ASSIGN_ROUND_ROBIN, partitions, members, n);
            check(members, n, partitions, most);
            most = n <= partitions ? ceil_of(5 * (size_t)partitions, 4 * n)
                                   : ceil_of(5 * n, 4 * (size_t)partitions);
            make(members, n, &rand);
            mr_partitions_assign(MR_ASSIGN_CONSISTENT_HASH, partitions, members, n);
            check(members, n, partitions, most);
        }
    }
}

static void test_round_robin_moves_only_what_goes_to_the_newcomer(void **state)
{
    struct mr_rand rand;
    (void)state;
    mr_rand_seed(&rand, 8);
    for (int round = 0; round < 300; round++) {
        struct mr_member before[4], after[5];
        make(before, 4, &rand);
        mr_partitions_assign(MR_ASSIGN_ROUND_ROBIN, 64, before, 4);
        memcpy(after, before, sizeof before);
        uint64_t newcomer = mr_rand_next(&rand);
        after[4] = (struct mr_member){.id = newcomer};
        mr_partitions_assign(MR_ASSIGN_ROUND_ROBIN, 64, after, 5);
        check(after, 5, 64, 13);
        assert_true(moved(before, 4, after, 5, 64) <= 13);
        for (uint32_t p = 0; p < 64; p++)
            if (owner_of(before, 4, p) != owner_of(after, 5, p))
                assert_true(owner_of(after, 5, p) == newcomer);
    }
}

static void test_round_robin_moves_only_what_a_leaver_had(void **state)
{
    struct mr_rand rand;
    (void)state;
    mr_rand_seed(&rand, 9);
    for (int round = 0; round < 300; round++) {
        struct mr_member before[5], after[4];
        make(before, 5, &rand);
        mr_partitions_assign(MR_ASSIGN_ROUND_ROBIN, 64, before, 5);
        memcpy(after, before + 1, sizeof after);
        mr_partitions_assign(MR_ASSIGN_ROUND_ROBIN, 64, after, 4);
        check(after, 4, 64, 16);
        for (uint32_t p = 0; p < 64; p++)
            if (owner_of(before, 5, p) != owner_of(after, 4, p))
                assert_true(owner_of(before, 5, p) == before[0].id);
    }
}

/* Who saw the others come and who did not: both answer the same. */
static void test_anew_a_newcomer_with_the_last_id_takes_over_its_share_alone(void **state)
{
    struct mr_member before[MOST], after[MOST];
    (void)state;
    for (uint32_t partitions = 1; partitions <= MR_PARTITIONS_MAX; partitions += 7) {
        for (size_t n = 1; n < MOST; n++) {
            for (size_t i = 0; i <= n; i++) {
                before[i] = (struct mr_member){.id = i + 1, .owned = 5 * i};
                after[n - i] = (struct mr_member){.id = i + 1, .owned = 3};
            }
            mr_partitions_assign_anew(MR_ASSIGN_ROUND_ROBIN, partitions, before, n);
            mr_partitions_assign_anew(MR_ASSIGN_ROUND_ROBIN, partitions, after, n + 1);
            check(after, n + 1, partitions,
                  n < partitions ? ceil_of(partitions, n + 1) : ceil_of(n + 1, partitions));
            for (size_t i = 0; i < n; i++)
                assert_int_equal(after[i].owned & ~before[i].owned, 0);
        }
    }
}

static void test_shared_partitions_stay_shared_evenly_while_members_come_and_go(void **state)
{
    struct mr_rand rand;
    struct mr_member members[MOST];
    size_t n = 1;
    (void)state;
    mr_rand_seed(&rand, 10);
    make(members, n, &rand);
    for (int round = 0; round < 2000; round++) {
        uint32_t partitions = 5;
        if (n == 1 || (n < 12 && mr_rand_next(&rand) % 2 == 0))
            members[n++] = (struct mr_member){.id = mr_rand_next(&rand)};
        else
            members[mr_rand_next(&rand) % n] = members[n - 1], n--;
        mr_partitions_assign(MR_ASSIGN_ROUND_ROBIN, partitions, members, n);
        check(members, n, partitions,
              n <= partitions ? ceil_of(partitions, n) : ceil_of(n, partitions));
    }
}

static void test_a_hash_moves_at_most_21_of_64_when_a_fifth_comes_or_goes(void **state)
{
    struct mr_rand rand;
    (void)state;
    mr_rand_seed(&rand, 11);
    for (int round = 0; round < 300; round++) {
        struct mr_member four[4], five[5];
        make(five, 5, &rand);
        memcpy(four, five, sizeof four);
        mr_partitions_assign(MR_ASSIGN_CONSISTENT_HASH, 64, five, 5);
        mr_partitions_assign(MR_ASSIGN_CONSISTENT_HASH, 64, four, 4);
        assert_true(moved(four, 4, five, 5, 64) <= 21);
    }
}

static void test_the_same_members_in_any_order_own_the_same(void **state)
{
    static const enum mr_assign hows[] = {MR_ASSIGN_ROUND_ROBIN, MR_ASSIGN_CONSISTENT_HASH};
    struct mr_rand rand;
    (void)state;
    mr_rand_seed(&rand, 12);
    for (size_t how = 0; how < sizeof hows / sizeof *hows; how++) {
        struct mr_member a[7], b[7];
        make(a, 7, &rand);
        for (size_t i = 0; i < 7; i++)
            b[i] = a[6 - i];
        mr_partitions_assign(hows[how], 24, a, 7);
        mr_partitions_assign(hows[how], 24, b, 7);
        assert_memory_equal(a, b, sizeof a);
        mr_partitions_assign(hows[how], 24, a, 7); /* nothing moves by itself */
        assert_memory_equal(a, b, sizeof a);
    }
}

static void test_fewer_partitions_leave_none_beyond_them(void **state)
{
    struct mr_member members[3] = {{.id = 1}, {.id = 2}, {.id = 3}};
    (void)state;
    mr_partitions_assign(MR_ASSIGN_ROUND_ROBIN, 5, members, 3);
    check(members, 3, 5, 2);
    mr_partitions_assign(MR_ASSIGN_ROUND_ROBIN, 3, members, 3);
    check(members, 3, 3, 1);
    mr_partitions_assign(MR_ASSIGN_ROUND_ROBIN, 5, members, 3);
    check(members, 3, 5, 2);
    mr_partitions_assign(MR_ASSIGN_ROUND_ROBIN, 5, members, 0);
}

static void test_a_key_leads_to_one_partition_and_keys_spread(void **state)
{
    size_t seen[8] = {0};
    (void)state;
    for (int i = 0; i < 8000; i++) {
        char key[16];
        int len = snprintf(key, sizeof key, "key-%d", i);
        struct mr_slice slice = mr_slice_make(key, (size_t)len);
        uint32_t partition = mr_partition_of(slice, 8);
        assert_true(partition < 8);
        assert_int_equal(mr_partition_of(slice, 1), 0);
        seen[partition]++;
    }
    for (size_t i = 0; i < 8; i++)
        assert_in_range(seen[i], 800, 1200);
    /* What is stored depends on these. */
    assert_int_equal(mr_partition_of(mr_slice_str("customer-17"), 64), 5);
    assert_int_equal(mr_partition_of(mr_slice_str(""), 64), 61);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_partition_has_an_owner_and_shares_are_even),
        cmocka_unit_test(test_round_robin_moves_only_what_goes_to_the_newcomer),
        cmocka_unit_test(test_round_robin_moves_only_what_a_leaver_had),
        cmocka_unit_test(test_anew_a_newcomer_with_the_last_id_takes_over_its_share_alone),
        cmocka_unit_test(test_shared_partitions_stay_shared_evenly_while_members_come_and_go),
        cmocka_unit_test(test_a_hash_moves_at_most_21_of_64_when_a_fifth_comes_or_goes),
        cmocka_unit_test(test_the_same_members_in_any_order_own_the_same),
        cmocka_unit_test(test_fewer_partitions_leave_none_beyond_them),
        cmocka_unit_test(test_a_key_leads_to_one_partition_and_keys_spread),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
