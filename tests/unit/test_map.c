/* SPDX-License-Identifier: Apache-2.0 */
/* The hash map: against a model, under churn, growing and shrinking, with bad hashes, and a failing
 * allocator. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/map.h"
#include "base/rand.h"
#include "unit/failing_alloc.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { CHURN_STEPS = 2 * 1000 * 1000, MANY = 200 * 1000 };
#else
enum { CHURN_STEPS = 10 * 1000 * 1000, MANY = 1000 * 1000 };
#endif

/* The records a map points at: the key of a handle. A hash keeps only the bits of hash_mask, so
 * that tests can make collisions. */
struct records {
    uint64_t *keys;
    uint64_t hash_mask;
    uint64_t equal_calls;
    uint64_t hash_calls;
};

static uint64_t hash_of(const struct records *records, uint64_t key)
{
    uint64_t x = key * 0x9e3779b97f4a7c15ULL;
    x ^= x >> 32;
    x *= 0xd6e8feb86659fd93ULL;
    x ^= x >> 32;
    return x & records->hash_mask;
}

static uint64_t record_hash(uint32_t handle, void *arg)
{
    struct records *records = arg;
    records->hash_calls++;
    return hash_of(records, records->keys[handle]);
}

static bool record_equal(uint32_t handle, const void *key, void *arg)
{
    struct records *records = arg;
    records->equal_calls++;
    return records->keys[handle] == *(const uint64_t *)key;
}

static const struct mr_map_ops record_ops = {.hash = record_hash, .equal = record_equal};

static struct mr_map *map_of(struct records *records)
{
    struct mr_map *map = NULL;
    assert_int_equal(mr_map_new(&record_ops, records, &map), MR_OK);
    assert_non_null(map);
    return map;
}

static struct records records_of(size_t n)
{
    struct records records = {.keys = calloc(n, sizeof(uint64_t)), .hash_mask = UINT64_MAX};
    assert_non_null(records.keys);
    for (size_t i = 0; i < n; i++)
        records.keys[i] = i + 1;
    return records;
}

static uint32_t find(const struct mr_map *map, const struct records *records, uint64_t key)
{
    return mr_map_find(map, hash_of(records, key), &key);
}

static void insert(struct mr_map *map, const struct records *records, uint32_t handle)
{
    uint64_t hash = hash_of(records, records->keys[handle]);
    assert_int_equal(mr_map_insert(map, hash, handle), MR_OK);
}

static void remove_handle(struct mr_map *map, const struct records *records, uint32_t handle)
{
    mr_map_remove(map, hash_of(records, records->keys[handle]), handle);
}

static void an_empty_map_finds_nothing(void **state)
{
    (void)state;
    struct records records = records_of(1);
    struct mr_map *map = map_of(&records);
    assert_int_equal(mr_map_count(map), 0);
    assert_int_equal(find(map, &records, 1), MR_MAP_NONE);
    mr_map_validate(map);
    mr_map_free(map);
    mr_map_free(NULL);
    free(records.keys);
}

/* Handles far apart, at both ends of their range. */
static uint64_t sparse_hash(uint32_t handle, void *arg)
{
    (void)arg;
    return handle * 0x9e3779b97f4a7c15ULL;
}

static bool sparse_equal(uint32_t handle, const void *key, void *arg)
{
    (void)arg;
    return handle == *(const uint32_t *)key;
}

static void handles_may_be_anything_up_to_the_maximum(void **state)
{
    (void)state;
    static const struct mr_map_ops ops = {.hash = sparse_hash, .equal = sparse_equal};
    static const uint32_t handles[] = {0, 1, 0x7fffffff, 0x80000000, MR_MAP_HANDLE_MAX};
    struct mr_map *map;
    assert_int_equal(mr_map_new(&ops, NULL, &map), MR_OK);
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(mr_map_insert(map, sparse_hash(handles[i], NULL), handles[i]), MR_OK);
    mr_map_validate(map);
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(mr_map_find(map, sparse_hash(handles[i], NULL), &handles[i]), handles[i]);
    for (size_t i = 0; i < 5; i++)
        mr_map_remove(map, sparse_hash(handles[i], NULL), handles[i]);
    assert_int_equal(mr_map_count(map), 0);
    mr_map_free(map);
}

/* Random inserts, removals and searches, with a tide that grows and empties the map. */
static void agree_with_model(uint64_t hash_mask, size_t handles, int steps, int validate_every)
{
    struct records records = records_of(handles);
    records.hash_mask = hash_mask;
    struct mr_map *map = map_of(&records);
    bool *in = calloc(handles, sizeof *in);
    assert_non_null(in);
    struct mr_rand rand;
    mr_rand_seed(&rand, handles ^ hash_mask);
    size_t n = 0;
    for (int step = 0; step < steps; step++) {
        uint32_t handle = (uint32_t)mr_rand_below(&rand, handles);
        bool rising = step / (int)(handles * 2) % 2 == 0;
        bool wanted = mr_rand_one_in(&rand, 10) ? !rising : rising;
        assert_int_equal(find(map, &records, handle + 1), in[handle] ? handle : MR_MAP_NONE);
        if (wanted && !in[handle]) {
            insert(map, &records, handle);
            n++;
        } else if (!wanted && in[handle]) {
            remove_handle(map, &records, handle);
            n--;
        }
        in[handle] = wanted;
        assert_int_equal(mr_map_count(map), n);
        if (step % validate_every == 0)
            mr_map_validate(map);
    }
    for (uint32_t handle = 0; handle < handles; handle++)
        assert_int_equal(find(map, &records, handle + 1), in[handle] ? handle : MR_MAP_NONE);
    mr_map_validate(map);
    mr_map_free(map);
    free(in);
    free(records.keys);
}

static void random_operations_agree_with_a_model(void **state)
{
    (void)state;
    agree_with_model(UINT64_MAX, 100, 10000, 1);
    agree_with_model(UINT64_MAX, 3000, 60000, 20);
    agree_with_model(UINT64_MAX, 50000, 400000, 20000);
}

static void colliding_hashes_only_cost_time(void **state)
{
    (void)state;
    agree_with_model(0, 150, 4000, 1);
    agree_with_model(7, 300, 8000, 1);
    /* All at the end of the table, so that runs go round it. */
    agree_with_model(~(uint64_t)0 << 3 | 6, 300, 8000, 1);
    agree_with_model(0xe00000000000003e, 300, 8000, 1);
    agree_with_model(0xe00000000000003f, 1000, 20000, 50);
}

static void churn_at_constant_size_needs_no_more_memory(void **state)
{
    (void)state;
    enum { LIVE = 40000 };
    struct records records = records_of(LIVE);
    struct mr_map *map = map_of(&records);
    for (uint32_t i = 0; i < LIVE; i++)
        insert(map, &records, i);
    size_t settled = 0;
    struct mr_rand rand;
    mr_rand_seed(&rand, 1);
    uint64_t key = LIVE + 1;
    for (long step = 0; step < CHURN_STEPS; step++) {
        uint32_t handle = (uint32_t)mr_rand_below(&rand, LIVE);
        remove_handle(map, &records, handle);
        records.keys[handle] = key++;
        insert(map, &records, handle);
        if (step == LIVE)
            settled = mr_map_bytes(map);
        if (step > LIVE)
            assert_true(mr_map_bytes(map) == settled);
    }
    assert_int_equal(mr_map_count(map), LIVE);
    mr_map_validate(map);
    /* Searches are as short as in a new map. */
    records.equal_calls = 0;
    for (uint32_t handle = 0; handle < LIVE; handle++)
        assert_int_equal(find(map, &records, records.keys[handle]), handle);
    assert_true(records.equal_calls < LIVE + LIVE / 4);
    records.equal_calls = 0;
    for (uint32_t i = 0; i < LIVE; i++)
        assert_int_equal(find(map, &records, key + i), MR_MAP_NONE);
    assert_true(records.equal_calls < LIVE / 4);
    mr_map_free(map);
    free(records.keys);
}

static void no_operation_moves_more_than_a_few_entries(void **state)
{
    (void)state;
    struct records records = records_of(MANY);
    struct mr_map *map = map_of(&records);
    uint64_t most = 0;
    size_t bytes_most = 0;
    for (uint32_t i = 0; i < MANY; i++) {
        records.hash_calls = 0;
        insert(map, &records, i);
        most = records.hash_calls > most ? records.hash_calls : most;
        size_t bytes = mr_map_bytes(map);
        bytes_most = bytes > bytes_most ? bytes : bytes_most;
    }
    /* Just grown, there are 20/3 slots of 5 bytes an entry: 16/3 new ones and 4/3 old ones. */
    assert_true(bytes_most <= (size_t)MANY * 5 * 7);
    mr_map_validate(map);
    for (uint32_t i = 0; i < MANY; i++) {
        records.hash_calls = 0;
        remove_handle(map, &records, i);
        most = records.hash_calls > most ? records.hash_calls : most;
        if (i % (MANY / 8) == 0)
            mr_map_validate(map);
    }
    /* Four entries are moved; in the longest runs some distances are computed from hashes. */
    assert_in_range(most, 4, 40);
    assert_int_equal(mr_map_count(map), 0);
    mr_map_free(map);
    free(records.keys);
}

static void an_emptied_map_gives_its_memory_back(void **state)
{
    (void)state;
    struct records records = records_of(MANY);
    struct mr_map *map = map_of(&records);
    size_t small = mr_map_bytes(map);
    for (uint32_t i = 0; i < MANY; i++)
        insert(map, &records, i);
    size_t large = mr_map_bytes(map);
    assert_true(large > 1000 * small);
    for (uint32_t i = MANY; i > 10; i--)
        remove_handle(map, &records, i - 1);
    /* What is left over from the last change of size goes with a few more operations. */
    for (int i = 0; i < 2000; i++) {
        remove_handle(map, &records, 0);
        insert(map, &records, 0);
    }
    /* 256 slots of less than 6 bytes an entry are kept, and not more. */
    assert_true(mr_map_bytes(map) <= (size_t)10 * 256 * 6);
    for (uint32_t i = 0; i < 10; i++)
        assert_int_equal(find(map, &records, i + 1), i);
    mr_map_validate(map);
    mr_map_free(map);
    free(records.keys);
}

/* Fills and empties a map; a failed insert is tried again. How many inserts failed. */
static long use_map(struct mr_map *map, struct records *records, uint32_t n)
{
    long failed = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t hash = hash_of(records, records->keys[i]);
        enum mr_err err = mr_map_insert(map, hash, i);
        if (err != MR_OK) {
            assert_int_equal(err, MR_NOMEM);
            assert_int_equal(mr_map_count(map), i);
            assert_int_equal(find(map, records, i + 1), MR_MAP_NONE);
            mr_map_validate(map);
            failed++;
            insert(map, records, i);
        }
    }
    for (uint32_t i = 0; i < n; i++)
        assert_int_equal(find(map, records, i + 1), i);
    for (uint32_t i = 0; i < n; i++) {
        remove_handle(map, records, i);
        assert_int_equal(mr_map_count(map), n - i - 1);
    }
    return failed;
}

static void each_failed_allocation_loses_nothing(void **state)
{
    (void)state;
    enum { N = 3000 };
    struct records records = records_of(N);
    long refused = 0, steps = 0;
    for (;; steps++) {
        struct mr_map *map = NULL;
        fail_alloc_after(steps);
        enum mr_err err = mr_map_new(&record_ops, &records, &map);
        if (err == MR_OK) {
            refused += use_map(map, &records, N);
            mr_map_validate(map);
        } else {
            assert_int_equal(err, MR_NOMEM);
            assert_null(map);
        }
        long failed = fail_alloc_stop();
        mr_map_free(map);
        if (failed == 0)
            break;
    }
    /* Two allocations to begin with, three times four, and back at once, which nobody is told of. */
    assert_true(!FAILING_ALLOC || (steps == 6 && refused == 3));
    struct mr_map *map = map_of(&records);
    assert_int_equal(use_map(map, &records, N), 0);
    mr_map_validate(map);
    mr_map_free(map);
    free(records.keys);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_map_finds_nothing),
        cmocka_unit_test(handles_may_be_anything_up_to_the_maximum),
        cmocka_unit_test(random_operations_agree_with_a_model),
        cmocka_unit_test(colliding_hashes_only_cost_time),
        cmocka_unit_test(churn_at_constant_size_needs_no_more_memory),
        cmocka_unit_test(no_operation_moves_more_than_a_few_entries),
        cmocka_unit_test(an_emptied_map_gives_its_memory_back),
        cmocka_unit_test(each_failed_allocation_loses_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
