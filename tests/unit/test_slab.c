/* SPDX-License-Identifier: Apache-2.0 */
/* Items never move, come zeroed, and freed ones are used again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rand.h"
#include "broker/embedded/slab.h"
#include "unit/failing_alloc.h"

enum { ITEM = 24, MANY = 5 * SLAB_CHUNK + 3 };

static uint32_t take(struct slab *slab)
{
    uint32_t handle = NO_HANDLE, expected = slab_peek(slab);
    assert_int_equal(slab_alloc(slab, &handle), MR_OK);
    assert_int_equal(handle, expected);
    return handle;
}

static void items_come_zeroed_and_stay_where_they_are(void **state)
{
    (void)state;
    static void *places[MANY];
    static const uint8_t zeroes[ITEM];
    struct slab slab;
    slab_init(&slab, ITEM, NULL);
    for (uint32_t i = 0; i < MANY; i++) {
        uint32_t handle = take(&slab);
        assert_int_equal(handle, i);
        places[i] = slab_at(&slab, handle);
        assert_memory_equal(places[i], zeroes, ITEM);
        memset(places[i], (int)(i % 255 + 1), ITEM);
    }
    for (uint32_t i = 0; i < MANY; i++) {
        uint8_t expected[ITEM];
        memset(expected, (int)(i % 255 + 1), ITEM);
        assert_ptr_equal(slab_at(&slab, i), places[i]);
        assert_memory_equal(places[i], expected, ITEM);
    }
    assert_int_equal(slab.count, MANY);
    slab_done(&slab);
}

static void the_item_freed_last_is_used_first_and_zeroed_again(void **state)
{
    (void)state;
    static const uint8_t zeroes[ITEM];
    struct slab slab;
    slab_init(&slab, ITEM, NULL);
    for (int i = 0; i < 10; i++)
        memset(slab_at(&slab, take(&slab)), 0xff, ITEM);
    slab_free(&slab, 3);
    slab_free(&slab, 7);
    assert_int_equal(slab.count, 8);
    assert_int_equal(take(&slab), 7);
    assert_memory_equal(slab_at(&slab, 7), zeroes, ITEM);
    assert_int_equal(take(&slab), 3);
    assert_memory_equal(slab_at(&slab, 3), zeroes, ITEM);
    assert_int_equal(take(&slab), 10);
    slab_done(&slab);
}

static void each_chunk_knows_how_many_it_has(void **state)
{
    (void)state;
    struct slab slab;
    slab_init(&slab, ITEM, NULL);
    for (uint32_t i = 0; i < SLAB_CHUNK + 5; i++)
        take(&slab);
    assert_int_equal(slab.chunks[0].count, SLAB_CHUNK);
    assert_int_equal(slab.chunks[1].count, 5);
    for (uint32_t i = 0; i < SLAB_CHUNK; i++)
        slab_free(&slab, i);
    assert_int_equal(slab.chunks[0].count, 0);
    assert_int_equal(slab.chunks[1].count, 5);
    take(&slab);
    assert_int_equal(slab.chunks[0].count, 1);
    slab_done(&slab);
}

static void a_freed_item_is_zero_behind_its_link(void **state)
{
    (void)state;
    static const uint8_t zeroes[ITEM];
    struct slab slab;
    slab_init(&slab, ITEM, NULL);
    uint32_t handle = take(&slab);
    memset(slab_at(&slab, handle), 0xff, ITEM);
    slab_free(&slab, handle);
    assert_memory_equal((uint8_t *)slab_at(&slab, handle) + 4, zeroes, ITEM - 4);
    slab_done(&slab);
}

static void handles_in_use_are_never_given_twice(void **state)
{
    (void)state;
    static uint8_t used[4 * SLAB_CHUNK];
    struct slab slab;
    struct mr_rand rand;
    mr_rand_seed(&rand, 7);
    memset(used, 0, sizeof used);
    slab_init(&slab, ITEM, NULL);
    size_t count = 0;
    for (int step = 0; step < 100000; step++) {
        uint32_t victim = (uint32_t)mr_rand_below(&rand, sizeof used);
        if (used[victim]) {
            used[victim] = 0;
            count--;
            slab_free(&slab, victim);
        } else if (count < sizeof used) {
            uint32_t handle = take(&slab);
            assert_true(handle < sizeof used && !used[handle]);
            used[handle] = 1;
            count++;
        }
        assert_int_equal(slab.count, count);
    }
    slab_done(&slab);
}

static void memory_is_counted(void **state)
{
    (void)state;
    struct slab slab;
    slab_init(&slab, ITEM, NULL);
    assert_int_equal(slab_bytes(&slab), 0);
    take(&slab);
    size_t one = slab_bytes(&slab);
    assert_in_range(one, SLAB_CHUNK * ITEM, SLAB_CHUNK * ITEM + 1024);
    for (int i = 1; i < SLAB_CHUNK; i++)
        take(&slab);
    assert_int_equal(slab_bytes(&slab), one);
    take(&slab);
    assert_int_equal(slab_bytes(&slab), one + SLAB_CHUNK * ITEM);
    slab_done(&slab);
    assert_int_equal(slab_bytes(&slab), 0);
}

static void no_memory_leaves_it_as_it_was(void **state)
{
    (void)state;
    struct slab slab;
    slab_init(&slab, ITEM, NULL);
    for (uint32_t n = 0; n < 2; n++) {
        uint32_t handle = 99;
        fail_alloc_after(n);
        enum mr_err err = slab_alloc(&slab, &handle);
        long failed = fail_alloc_stop();
        assert_int_equal(failed, FAILING_ALLOC);
        assert_int_equal(err, failed ? MR_NOMEM : MR_OK);
        assert_int_equal(handle, failed ? 99 : n);
        assert_int_equal(slab.count, failed ? 0 : n + 1);
    }
    assert_int_equal(take(&slab), FAILING_ALLOC ? 0 : 2);
    slab_done(&slab);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(items_come_zeroed_and_stay_where_they_are),
        cmocka_unit_test(the_item_freed_last_is_used_first_and_zeroed_again),
        cmocka_unit_test(each_chunk_knows_how_many_it_has),
        cmocka_unit_test(a_freed_item_is_zero_behind_its_link),
        cmocka_unit_test(handles_in_use_are_never_given_twice),
        cmocka_unit_test(memory_is_counted),
        cmocka_unit_test(no_memory_leaves_it_as_it_was),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
