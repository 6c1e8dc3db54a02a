/* SPDX-License-Identifier: Apache-2.0 */
/* Packed entries of a snapshot: each reads back as it was, and nothing else is taken for one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rand.h"
#include "wire/pack.h"

enum { ENTRIES = 2000 };

static uint64_t any(struct mr_rand *rand)
{
    return mr_rand_next(rand) >> mr_rand_below(rand, 64);
}

/* Now and then every field takes any value; else it is like the one before, a little further on. */
static struct mr_entry next_entry(struct mr_rand *rand, const struct mr_entry *before)
{
    struct mr_entry entry = *before;
    for (size_t i = 0; i < sizeof entry.id.bytes; i++)
        entry.id.bytes[i] = (uint8_t)mr_rand_next(rand);
    entry.key += (int64_t)mr_rand_below(rand, 3);
    entry.tie++;
    entry.offset += 208;
    entry.state = before->state != MR_STATE_NONE ? before->state : MR_PENDING;
    if (mr_rand_below(rand, 4) > 0)
        return entry;
    entry.key = (int64_t)any(rand);
    entry.tie = any(rand);
    entry.segment = (uint32_t)any(rand);
    entry.offset = (uint32_t)any(rand);
    entry.size = (uint32_t)any(rand);
    entry.queue = (uint16_t)any(rand);
    entry.part = (uint8_t)mr_rand_below(rand, MR_PARTITIONS_MAX);
    entry.retried = (uint16_t)any(rand);
    entry.max_retry = (uint16_t)any(rand);
    entry.state = (uint8_t)(1 + mr_rand_below(rand, MR_STATE_COUNT - 1));
    entry.flags = (uint8_t)any(rand);
    entry.crashes = (uint8_t)any(rand);
    entry.has_more = mr_rand_below(rand, 2) == 0;
    entry.epoch = any(rand);
    entry.note_segment = (uint32_t)any(rand);
    entry.priority_ms = -(int64_t)mr_rand_below(rand, 1000);
    return entry;
}

/* Field by field, through the plain encoding. */
static void assert_same(const struct mr_entry *a, const struct mr_entry *b)
{
    uint8_t x[MR_ENTRY_MAX], y[MR_ENTRY_MAX];
    size_t len = mr_entry_encode(a, x);
    assert_int_equal(mr_entry_encode(b, y), len);
    assert_memory_equal(x, y, len);
}

static void what_was_packed_reads_back(void **state)
{
    (void)state;
    static struct mr_entry entries[ENTRIES];
    static uint8_t bytes[ENTRIES * MR_PACK_MAX];
    for (uint64_t seed = 1; seed <= 20; seed++) {
        struct mr_rand rand;
        mr_rand_seed(&rand, seed);
        struct mr_entry before = {0};
        size_t len = 0;
        for (size_t i = 0; i < ENTRIES; i++) {
            entries[i] = next_entry(&rand, &before);
            size_t used = mr_entry_pack(&entries[i], &before, bytes + len);
            assert_true(used <= (entries[i].has_more ? MR_PACK_MAX : MR_PACK_SIZE));
            len += used;
        }
        struct mr_slice left = mr_slice_make(bytes, len);
        struct mr_entry found = {0};
        for (size_t i = 0; i < ENTRIES; i++) {
            assert_int_equal(mr_entry_unpack(&left, &found), MR_OK);
            assert_same(&found, &entries[i]);
        }
        assert_int_equal(left.len, 0);
    }
}

static void tasks_that_came_together_take_little(void **state)
{
    (void)state;
    struct mr_entry before = {0}, entry = {.state = MR_PENDING, .size = 202, .segment = 1};
    uint8_t bytes[MR_PACK_MAX];
    (void)mr_entry_pack(&entry, &before, bytes);
    entry.key++;
    entry.tie++;
    entry.offset += 208;
    assert_in_range(mr_entry_pack(&entry, &before, bytes), 17, 24);
}

static void what_is_cut_short_is_damaged(void **state)
{
    (void)state;
    struct mr_entry before = {0}, entry = {.state = MR_RETRY,
                                           .key = INT64_MIN,
                                           .tie = UINT64_MAX,
                                           .offset = UINT32_MAX,
                                           .segment = 7,
                                           .size = 9,
                                           .has_more = 1};
    uint8_t bytes[MR_PACK_MAX];
    size_t len = mr_entry_pack(&entry, &before, bytes);
    for (size_t n = 0; n <= len; n++) {
        uint8_t *exact = malloc(n ? n : 1); /* so that a sanitizer sees a byte too many */
        memcpy(exact, bytes, n);
        struct mr_slice left = mr_slice_make(exact, n);
        struct mr_entry found = {0};
        assert_int_equal(mr_entry_unpack(&left, &found), n == len ? MR_OK : MR_DAMAGED);
        assert_int_equal(left.len, n == len ? 0 : n);
        free(exact);
    }
}

struct wrong {
    size_t at;
    uint8_t bytes[12];
    size_t n;
};

static void what_nobody_writes_is_damaged(void **state)
{
    (void)state;
    static const struct wrong wrongs[] = {
        {0, {0x12}, 1},                                                         /* a bit more */
        {17, {0x80, 0x00}, 2},                                                  /* 0, longer */
        {17, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02}, 10}, /* 65 bits */
        {17, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, 11}, /* 71 */
        {19, {0x01}, 1},                                                              /* below 0 */
        {19, {0x80, 0x80, 0x80, 0x80, 0x20}, 5},                                      /* 2^32 */
        {28, {MR_STATE_NONE}, 1},                                                     /* no state */
        {28, {MR_STATE_COUNT}, 1},                                                    /* none */
    };
    for (size_t i = 0; i < sizeof wrongs / sizeof *wrongs; i++) {
        struct mr_entry before = {0}, found = {0}, entry = {.state = MR_PENDING};
        uint8_t bytes[2 * MR_PACK_MAX] = {0};
        size_t len = mr_entry_pack(&entry, &before, bytes);
        assert_int_equal(len, 1 + 16 + 3 + MR_PACK_SHAPE);
        struct mr_slice left = mr_slice_make(bytes, sizeof bytes);
        assert_int_equal(mr_entry_unpack(&left, &found), MR_OK);
        memcpy(bytes + wrongs[i].at, wrongs[i].bytes, wrongs[i].n);
        left = mr_slice_make(bytes, sizeof bytes);
        found = (struct mr_entry){0};
        assert_int_equal(mr_entry_unpack(&left, &found), MR_DAMAGED);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_was_packed_reads_back),
        cmocka_unit_test(tasks_that_came_together_take_little),
        cmocka_unit_test(what_is_cut_short_is_damaged),
        cmocka_unit_test(what_nobody_writes_is_damaged),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
