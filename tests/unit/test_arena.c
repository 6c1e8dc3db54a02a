/* SPDX-License-Identifier: Apache-2.0 */
/* Arenas: alignment, separate pieces, reuse, sizes that cannot be, and a failing allocator. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/rand.h"
#include "unit/failing_alloc.h"

enum { PIECES = 2000 };

static void pieces_are_aligned_and_do_not_overlap(void **state)
{
    (void)state;
    struct mr_arena arena = {0};
    struct mr_rand rand;
    mr_rand_seed(&rand, 1);
    static uint8_t *pieces[PIECES];
    static size_t sizes[PIECES];
    for (size_t i = 0; i < PIECES; i++) {
        sizes[i] = mr_rand_below(&rand, mr_rand_one_in(&rand, 50) ? 100000 : 200);
        pieces[i] = mr_arena_alloc(&arena, sizes[i]);
        assert_non_null(pieces[i]);
        assert_int_equal((uintptr_t)pieces[i] % 16, 0);
        memset(pieces[i], (int)i & 0xff, sizes[i]);
    }
    size_t sum = 0;
    for (size_t i = 0; i < PIECES; i++) {
        for (size_t j = 0; j < sizes[i]; j++)
            assert_true(pieces[i][j] == (i & 0xff));
        sum += sizes[i];
    }
    assert_true(arena.bytes >= sum);
    mr_arena_done(&arena);
    assert_null(arena.head);
}

static void empty_pieces_have_addresses_of_their_own(void **state)
{
    (void)state;
    struct mr_arena arena = {0};
    void *a = mr_arena_alloc(&arena, 0);
    void *b = mr_arena_alloc(&arena, 0);
    assert_non_null(a);
    assert_ptr_not_equal(a, b);
    mr_arena_done(&arena);
}

static void callocs_are_zero_also_in_used_memory(void **state)
{
    (void)state;
    struct mr_arena arena = {0};
    for (int round = 0; round < 3; round++) {
        uint64_t *numbers = mr_arena_calloc(&arena, 50, sizeof *numbers);
        assert_non_null(numbers);
        for (size_t i = 0; i < 50; i++) {
            assert_int_equal(numbers[i], 0);
            numbers[i] = UINT64_MAX;
        }
        mr_arena_reset(&arena);
    }
    mr_arena_done(&arena);
}

static void copies_are_terminated(void **state)
{
    (void)state;
    struct mr_arena arena = {0};
    char text[] = {'a', 'b', 'c'};
    struct mr_slice copy;
    assert_int_equal(mr_arena_copy(&arena, mr_slice_make(text, 3), &copy), MR_OK);
    text[0] = 'x';
    assert_int_equal(copy.len, 3);
    assert_string_equal(copy.data, "abc");
    assert_int_equal(mr_arena_copy(&arena, (struct mr_slice){0}, &copy), MR_OK);
    assert_int_equal(copy.len, 0);
    assert_string_equal(copy.data, "");
    mr_arena_done(&arena);
}

static void what_one_arena_had_is_another_ones_once_they_are_joined(void **state)
{
    (void)state;
    struct mr_arena to = {0}, from = {0}, none = {0};
    struct mr_slice mine, yours, later;
    mr_arena_join(&to, &none); /* nothing into nothing */
    assert_null(to.head);
    assert_int_equal(mr_arena_copy(&from, MR_SLICE_LIT("theirs"), &yours), MR_OK);
    assert_non_null(mr_arena_alloc(&from, 1000000)); /* more than one block */
    mr_arena_join(&to, &from);
    assert_null(from.head);
    assert_int_equal(from.bytes, 0);
    assert_int_equal(mr_arena_copy(&to, MR_SLICE_LIT("mine"), &mine), MR_OK);
    assert_int_equal(mr_arena_copy(&from, MR_SLICE_LIT("later"), &later), MR_OK);
    size_t bytes = to.bytes + from.bytes;
    mr_arena_join(&to, &from);
    assert_int_equal(to.bytes, bytes);
    mr_arena_join(&to, &none);
    assert_memory_equal(yours.data, "theirs", 6);
    assert_memory_equal(mine.data, "mine", 4);
    assert_memory_equal(later.data, "later", 5);
    mr_arena_done(&to);
}

static void a_reset_keeps_the_largest_block(void **state)
{
    (void)state;
    struct mr_arena arena = {0};
    mr_arena_reset(&arena);
    for (int i = 0; i < 100; i++)
        assert_non_null(mr_arena_alloc(&arena, 500));
    void *large = mr_arena_alloc(&arena, 1000000);
    assert_non_null(large);
    assert_non_null(mr_arena_alloc(&arena, 10));
    mr_arena_reset(&arena);
    assert_int_equal(arena.bytes, 0);
    assert_int_equal(arena.used, 0);
    assert_true(arena.cap >= 1000000);
    assert_ptr_equal(mr_arena_alloc(&arena, 900000), large);
    mr_arena_done(&arena);
}

static void repeated_batches_need_no_new_memory(void **state)
{
    (void)state;
    struct mr_arena arena = {0};
    for (int batch = 0; batch < 20; batch++) {
        /* The block kept from a batch settles after the first ones. */
        fail_alloc_after(batch < 10 ? 1000 : 0);
        for (int i = 0; i < 16; i++)
            assert_non_null(mr_arena_alloc(&arena, 100));
        assert_int_equal(fail_alloc_stop(), 0);
        mr_arena_reset(&arena);
    }
    mr_arena_done(&arena);
}

static void a_large_piece_leaves_the_room_of_the_head(void **state)
{
    (void)state;
    struct mr_arena arena = {0};
    char *first = mr_arena_alloc(&arena, 16);
    assert_non_null(first);
    assert_non_null(mr_arena_alloc(&arena, 500000));
    assert_ptr_equal(mr_arena_alloc(&arena, 16), first + 16);
    mr_arena_done(&arena);
}

static void impossible_sizes_are_refused(void **state)
{
    (void)state;
    struct mr_arena arena = {0};
    char byte = 0;
    struct mr_slice copy = MR_SLICE_LIT("untouched");
    for (int round = 0; round < 2; round++) {
        assert_null(mr_arena_alloc(&arena, SIZE_MAX));
        assert_null(mr_arena_alloc(&arena, SIZE_MAX - 15));
        assert_null(mr_arena_alloc(&arena, SIZE_MAX - 16));
        assert_null(mr_arena_calloc(&arena, SIZE_MAX / 2, 3));
        assert_null(mr_arena_calloc(&arena, (size_t)1 << 32, (size_t)1 << 32));
        assert_int_equal(mr_arena_copy(&arena, mr_slice_make(&byte, SIZE_MAX), &copy), MR_NOMEM);
        assert_string_equal(copy.data, "untouched");
        assert_non_null(mr_arena_alloc(&arena, 8));
    }
    mr_arena_done(&arena);
}

static enum mr_err use_arena(struct mr_arena *arena)
{
    for (size_t i = 0; i < 300; i++) {
        struct mr_slice copy;
        MR_TRY(mr_arena_copy(arena, MR_SLICE_LIT("some text"), &copy));
        if (mr_arena_calloc(arena, i, 40) == NULL)
            return MR_NOMEM;
        assert_string_equal(copy.data, "some text");
    }
    return MR_OK;
}

static void each_failed_allocation_is_reported_and_can_be_tried_again(void **state)
{
    (void)state;
    long steps = 0;
    for (;; steps++) {
        struct mr_arena arena = {0};
        fail_alloc_after(steps);
        enum mr_err err = use_arena(&arena);
        long failed = fail_alloc_stop();
        assert_int_equal(err, failed != 0 ? MR_NOMEM : MR_OK);
        assert_int_equal(use_arena(&arena), MR_OK);
        mr_arena_done(&arena);
        if (failed == 0)
            break;
    }
    assert_true(!FAILING_ALLOC || steps >= 5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_are_aligned_and_do_not_overlap),
        cmocka_unit_test(empty_pieces_have_addresses_of_their_own),
        cmocka_unit_test(callocs_are_zero_also_in_used_memory),
        cmocka_unit_test(copies_are_terminated),
        cmocka_unit_test(what_one_arena_had_is_another_ones_once_they_are_joined),
        cmocka_unit_test(a_reset_keeps_the_largest_block),
        cmocka_unit_test(repeated_batches_need_no_new_memory),
        cmocka_unit_test(a_large_piece_leaves_the_room_of_the_head),
        cmocka_unit_test(impossible_sizes_are_refused),
        cmocka_unit_test(each_failed_allocation_is_reported_and_can_be_tried_again),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
