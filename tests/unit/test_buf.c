/* SPDX-License-Identifier: Apache-2.0 */
/* Buffers: growth, formatting, sizes that cannot be, and a failing allocator. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/rand.h"
#include "unit/failing_alloc.h"

static void an_empty_buffer_needs_no_memory(void **state)
{
    (void)state;
    struct mr_buf buf = {0};
    assert_int_equal(mr_buf_append(&buf, NULL, 0), MR_OK);
    assert_int_equal(mr_buf_append_slice(&buf, (struct mr_slice){0}), MR_OK);
    assert_int_equal(mr_buf_reserve(&buf, 0), MR_OK);
    assert_null(buf.data);
    assert_int_equal(mr_buf_slice(&buf).len, 0);
    mr_buf_done(&buf);
    mr_buf_done(&buf);
}

static void appended_bytes_stay_in_order(void **state)
{
    (void)state;
    struct mr_buf buf = {0};
    for (int i = 0; i < 10000; i++) {
        uint8_t pair[2] = {(uint8_t)i, (uint8_t)(i >> 8)};
        assert_int_equal(mr_buf_append(&buf, pair, sizeof pair), MR_OK);
    }
    assert_int_equal(buf.len, 20000);
    for (int i = 0; i < 10000; i++)
        assert_int_equal(mr_load16(buf.data + 2 * i), i);
    size_t cap = buf.cap;
    mr_buf_clear(&buf);
    assert_int_equal(buf.len, 0);
    assert_int_equal(buf.cap, cap);
    mr_buf_done(&buf);
    assert_null(buf.data);
}

static void reserved_room_is_not_moved_by_appends(void **state)
{
    (void)state;
    struct mr_buf buf = {0};
    assert_int_equal(mr_buf_append_slice(&buf, MR_SLICE_LIT("head")), MR_OK);
    assert_int_equal(mr_buf_reserve(&buf, 1000), MR_OK);
    const uint8_t *data = buf.data;
    for (int i = 0; i < 1000; i++)
        assert_int_equal(mr_buf_append(&buf, "x", 1), MR_OK);
    assert_ptr_equal(buf.data, data);
    mr_buf_done(&buf);
}

static void printed_text_is_appended_without_its_nul(void **state)
{
    (void)state;
    struct mr_buf buf = {0};
    assert_int_equal(mr_buf_printf(&buf, "%s=%d", "a", 1), MR_OK);
    assert_int_equal(mr_buf_printf(&buf, "%s", ""), MR_OK);
    assert_int_equal(mr_buf_printf(&buf, " %s=%d", "b", 2), MR_OK);
    assert_true(mr_slice_equal(mr_buf_slice(&buf), MR_SLICE_LIT("a=1 b=2")));
    mr_buf_done(&buf);
}

static void printing_grows_at_every_fill(void **state)
{
    (void)state;
    for (size_t fill = 0; fill < 70; fill++) {
        struct mr_buf buf = {0};
        for (size_t i = 0; i < fill; i++)
            assert_int_equal(mr_buf_append(&buf, "-", 1), MR_OK);
        assert_int_equal(mr_buf_printf(&buf, "%0*d", 100, 7), MR_OK);
        assert_int_equal(buf.len, fill + 100);
        assert_int_equal(buf.data[buf.len - 1], '7');
        assert_int_equal(buf.data[fill], '0');
        mr_buf_done(&buf);
    }
}

static void impossible_sizes_are_refused_and_change_nothing(void **state)
{
    (void)state;
    struct mr_buf buf = {0};
    assert_int_equal(mr_buf_append_slice(&buf, MR_SLICE_LIT("keep")), MR_OK);
    assert_int_equal(mr_buf_reserve(&buf, SIZE_MAX), MR_NOMEM);
    assert_int_equal(mr_buf_reserve(&buf, SIZE_MAX - 4), MR_NOMEM);
    assert_int_equal(mr_buf_reserve(&buf, SIZE_MAX - 3), MR_NOMEM);
    assert_int_equal(mr_buf_reserve(&buf, (size_t)PTRDIFF_MAX - 3), MR_NOMEM);
    assert_true(mr_slice_equal(mr_buf_slice(&buf), MR_SLICE_LIT("keep")));
    mr_buf_done(&buf);
}

static enum mr_err fill_buffer(struct mr_buf *buf)
{
    for (int i = 0; i < 100; i++) {
        MR_TRY(mr_buf_append_slice(buf, MR_SLICE_LIT("0123456789")));
        MR_TRY(mr_buf_printf(buf, "%05d", i));
    }
    return MR_OK;
}

static void each_failed_allocation_is_reported_and_loses_nothing(void **state)
{
    (void)state;
    long steps = 0;
    for (;; steps++) {
        struct mr_buf buf = {0};
        fail_alloc_after(steps);
        enum mr_err err = fill_buffer(&buf);
        long failed = fail_alloc_stop();
        assert_int_equal(err, failed != 0 ? MR_NOMEM : MR_OK);
        /* What was appended before is there, in whole pieces. */
        assert_true(buf.len % 15 == 0 || buf.len % 15 == 10);
        for (size_t i = 0; i + 10 <= buf.len; i += 15)
            assert_memory_equal(buf.data + i, "0123456789", 10);
        mr_buf_done(&buf);
        if (failed == 0)
            break;
    }
    assert_true(!FAILING_ALLOC || steps >= 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_buffer_needs_no_memory),
        cmocka_unit_test(appended_bytes_stay_in_order),
        cmocka_unit_test(reserved_room_is_not_moved_by_appends),
        cmocka_unit_test(printed_text_is_appended_without_its_nul),
        cmocka_unit_test(printing_grows_at_every_fill),
        cmocka_unit_test(impossible_sizes_are_refused_and_change_nothing),
        cmocka_unit_test(each_failed_allocation_is_reported_and_loses_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
