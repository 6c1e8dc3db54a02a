/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes by fixed edges. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/meter.h"

static const uint64_t *const all[] = {mr_meter_us, mr_meter_many};

/* The first edge that is not below it, by looking at all of them. */
static size_t place_of(const uint64_t *edges, int64_t size)
{
    size_t i = 0;
    while (i < MR_METER_EDGES && (int64_t)edges[i] < size)
        i++;
    return i;
}

static void edges_rise(void **state)
{
    (void)state;
    for (size_t a = 0; a < sizeof all / sizeof *all; a++)
        for (size_t i = 1; i < MR_METER_EDGES; i++)
            assert_true(all[a][i - 1] < all[a][i]);
}

static void assert_counts_at(const uint64_t *edges, int64_t size, size_t place)
{
    struct mr_meter meter = {0};
    mr_meter_add(&meter, edges, size);
    assert_int_equal(meter.counts[place], 1);
    assert_int_equal(mr_meter_count(&meter), 1);
    assert_int_equal(meter.sum, size > 0 ? size : 0);
}

static void a_size_counts_at_the_first_edge_that_is_not_below_it(void **state)
{
    (void)state;
    for (size_t a = 0; a < sizeof all / sizeof *all; a++) {
        for (size_t i = 0; i < MR_METER_EDGES; i++)
            for (int64_t off = -1; off <= 1; off++) {
                int64_t size = (int64_t)all[a][i] + off;
                assert_counts_at(all[a], size, place_of(all[a], size));
            }
        assert_counts_at(all[a], INT64_MAX, MR_METER_EDGES);
        assert_counts_at(all[a], 0, 0);
        assert_counts_at(all[a], INT64_MIN, 0);
    }
}

static void sizes_add_up(void **state)
{
    (void)state;
    struct mr_meter meter = {0};
    uint64_t sum = 0;
    for (int64_t size = 1; size < 1000000; size += size / 3 + 1) {
        mr_meter_add(&meter, mr_meter_us, size);
        sum += (uint64_t)size;
    }
    assert_int_equal(meter.sum, sum);
    assert_true(mr_meter_count(&meter) > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(edges_rise),
        cmocka_unit_test(a_size_counts_at_the_first_edge_that_is_not_below_it),
        cmocka_unit_test(sizes_add_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
