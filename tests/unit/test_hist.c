/* SPDX-License-Identifier: Apache-2.0 */
/* Histograms of times. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/hist.h"

static void an_empty_one_has_no_percentiles(void **state)
{
    (void)state;
    struct mr_hist hist = {0};
    assert_int_equal(mr_hist_percentile_us(&hist, NULL, 50), 0);
    assert_int_equal(mr_hist_percentile_us(&hist, &hist, 99), 0);
}

/* For every size: the answer is above the time, by a quarter at most. */
static void an_edge_is_above_the_time_by_a_quarter_at_most(void **state)
{
    (void)state;
    for (int64_t us = 4; us < (int64_t)1 << 39; us += us / 7 + 1) {
        struct mr_hist hist = {0};
        mr_hist_add(&hist, us);
        uint64_t edge = mr_hist_percentile_us(&hist, NULL, 50);
        assert_true((int64_t)edge > us && (int64_t)edge <= us + us / 4 + 1);
    }
}

static void what_is_out_of_range_counts_at_its_end(void **state)
{
    (void)state;
    struct mr_hist hist = {0};
    mr_hist_add(&hist, -1000);
    mr_hist_add(&hist, 0);
    assert_int_equal(mr_hist_percentile_us(&hist, NULL, 99), 5);
    mr_hist_add(&hist, INT64_MAX);
    assert_int_equal(mr_hist_percentile_us(&hist, NULL, 99), (uint64_t)1 << 40);
}

static void percentiles_count_ranks(void **state)
{
    (void)state;
    struct mr_hist most = {0}, rest = {0};
    for (int i = 0; i < 98; i++)
        mr_hist_add(&most, 100);
    mr_hist_add(&rest, 5000);
    mr_hist_add(&rest, 900000);
    assert_int_equal(mr_hist_percentile_us(&most, &rest, 50), 112);
    assert_int_equal(mr_hist_percentile_us(&most, &rest, 98), 112);
    assert_in_range(mr_hist_percentile_us(&most, &rest, 99), 5001, 6250);
    assert_in_range(mr_hist_percentile_us(&most, &rest, 100), 900001, 1125000);
    assert_int_equal(mr_hist_percentile_us(&most, NULL, 100), 112);
}

static void a_full_count_stays_full(void **state)
{
    (void)state;
    struct mr_hist hist = {0};
    mr_hist_add(&hist, 100);
    for (size_t i = 0; i < MR_HIST_BUCKETS; i++)
        hist.counts[i] = hist.counts[i] ? UINT32_MAX : 0;
    mr_hist_add(&hist, 100);
    assert_int_equal(mr_hist_percentile_us(&hist, &hist, 99), 112);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_one_has_no_percentiles),
        cmocka_unit_test(an_edge_is_above_the_time_by_a_quarter_at_most),
        cmocka_unit_test(what_is_out_of_range_counts_at_its_end),
        cmocka_unit_test(percentiles_count_ranks),
        cmocka_unit_test(a_full_count_stays_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
