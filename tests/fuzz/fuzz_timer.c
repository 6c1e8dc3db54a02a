/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations on timers, as they come from producers. What is accepted stays the same when it is written and
 * read again; a refusal says why in one line.
 */
#include "base/buf.h"
#include "fuzz/fuzz.h"
#include "timer/def.h"
#include "wire/timer.h"

enum { PAYLOAD_LIMIT = 1000 };

static struct mr_zones *all_zones(void)
{
    static struct mr_zones *zones;
    if (zones == NULL)
        mr_assert(mr_zones_new(mr_fs_system(), NULL, &zones) == MR_OK);
    return zones;
}

static void check_refusal(enum mr_err err, const struct mr_detail *detail)
{
    size_t len = strnlen(detail->text, sizeof detail->text);
    mr_assert(err == MR_INVALID || err == MR_TOO_BIG);
    mr_assert(len > 0 && len < sizeof detail->text);
    for (size_t i = 0; i < len; i++)
        mr_assert((unsigned char)detail->text[i] >= ' ');
}

/* The canonical form of a canonical form is the same. */
static void check_definition(struct mr_slice bytes, int64_t created_ms)
{
    struct mr_arena arena = {0};
    struct mr_timer_options options, once, twice;
    struct mr_detail detail = {0};
    struct mr_buf first = {0}, second = {0};
    if (mr_timer_decode(bytes, &arena, &options) == MR_OK) {
        enum mr_err err = mr_timer_canonical(all_zones(), &options, created_ms, PAYLOAD_LIMIT,
                                             &arena, &once, &detail);
        if (err != MR_OK) {
            check_refusal(err, &detail);
        } else {
            mr_assert(mr_timer_encode(&once, &first) == MR_OK);
            mr_assert(mr_timer_decode(mr_buf_slice(&first), &arena, &options) == MR_OK);
            mr_assert(mr_timer_canonical(all_zones(), &options, created_ms, PAYLOAD_LIMIT, &arena,
                                         &twice, &detail) == MR_OK);
            mr_assert(mr_timer_encode(&twice, &second) == MR_OK);
            mr_assert(mr_slice_equal(mr_buf_slice(&first), mr_buf_slice(&second)));
            mr_assert(mr_timer_same_rule(&once, &twice));
        }
    }
    mr_buf_done(&first);
    mr_buf_done(&second);
    mr_arena_done(&arena);
}

static void check_operation(struct mr_slice bytes)
{
    struct mr_timer_operation op, again;
    struct mr_detail detail = {0};
    struct mr_buf buf = {0};
    mr_wall now = {1700000000LL * 1000000};
    if (mr_timer_operation_decode(bytes, &op) != MR_OK)
        return;
    check_definition(op.definition, op.created_ms >= 0 ? op.created_ms % 4000000000000 : 0);
    enum mr_err err = mr_timer_operation_check(&op, now, 1000, &detail);
    if (err != MR_OK) {
        check_refusal(err, &detail);
        return;
    }
    mr_assert(op.version > 0 && (int64_t)op.version <= now.us + 1000000);
    mr_assert(mr_flat_append(&mr_flat_timer_operation, &op, &buf) == MR_OK);
    mr_assert(mr_timer_operation_decode(mr_buf_slice(&buf), &again) == MR_OK);
    mr_assert(again.verb == op.verb && again.version == op.version &&
              mr_slice_equal(again.definition, op.definition) &&
              mr_slice_equal(again.name, op.name));
    mr_buf_done(&buf);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mr_timer_result result;
    check_operation(mr_slice_make(data, size));
    check_definition(mr_slice_make(data, size), 1700000000000);
    (void)(mr_timer_result_decode(mr_slice_make(data, size), &result) == MR_OK);
    return 0;
}
