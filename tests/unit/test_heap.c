/* SPDX-License-Identifier: Apache-2.0 */
/* Heaps against a plain scan, ties, removal anywhere, and a failing allocator. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/heap.h"
#include "base/rand.h"
#include "unit/failing_alloc.h"

static struct mr_heap_node *pop(struct mr_heap *heap)
{
    struct mr_heap_node *node = mr_heap_top(heap);
    if (node != NULL)
        mr_heap_remove(heap, node);
    return node;
}

static void an_empty_heap_has_no_top(void **state)
{
    (void)state;
    struct mr_heap heap = {0};
    assert_null(mr_heap_top(&heap));
    assert_null(pop(&heap));
    mr_heap_validate(&heap);
    mr_heap_done(&heap);
    mr_heap_done(&heap);
}

static void nodes_come_out_by_key_then_tie(void **state)
{
    (void)state;
    struct mr_heap_node nodes[] = {
        {.key = 5, .tie = 1},  {.key = INT64_MIN, .tie = 0}, {.key = 5, .tie = 0},
        {.key = -1, .tie = 9}, {.key = INT64_MAX, .tie = 0}, {.key = 5, .tie = UINT64_MAX},
    };
    static const int order[] = {1, 3, 2, 0, 5, 4};
    struct mr_heap heap = {0};
    for (size_t i = 0; i < 6; i++)
        assert_int_equal(mr_heap_push(&heap, &nodes[i]), MR_OK);
    for (size_t i = 0; i < 6; i++) {
        assert_ptr_equal(mr_heap_top(&heap), &nodes[order[i]]);
        assert_ptr_equal(pop(&heap), &nodes[order[i]]);
    }
    assert_null(pop(&heap));
    mr_heap_done(&heap);
}

enum { MODEL_NODES = 200 };

/* The least node that is in, by looking at all. */
static struct mr_heap_node *least(struct mr_heap_node *nodes, const bool *in)
{
    struct mr_heap_node *found = NULL;
    for (size_t i = 0; i < MODEL_NODES; i++) {
        if (in[i] && (found == NULL || nodes[i].key < found->key ||
                      (nodes[i].key == found->key && nodes[i].tie < found->tie)))
            found = &nodes[i];
    }
    return found;
}

static void random_operations_agree_with_a_plain_scan(void **state)
{
    (void)state;
    struct mr_rand rand;
    mr_rand_seed(&rand, 42);
    struct mr_heap heap = {0};
    static struct mr_heap_node nodes[MODEL_NODES];
    static bool in[MODEL_NODES];
    size_t n = 0;
    for (int step = 0; step < 20000; step++) {
        size_t i = mr_rand_below(&rand, MODEL_NODES);
        if (!in[i]) {
            nodes[i] =
                (struct mr_heap_node){.key = (int64_t)mr_rand_below(&rand, 50) - 25, .tie = i};
            assert_int_equal(mr_heap_push(&heap, &nodes[i]), MR_OK);
            in[i] = true;
            n++;
        } else if (mr_rand_one_in(&rand, 2)) {
            mr_heap_remove(&heap, &nodes[i]);
            in[i] = false;
            n--;
        } else {
            struct mr_heap_node *expected = least(nodes, in);
            assert_ptr_equal(pop(&heap), expected);
            in[expected - nodes] = false;
            n--;
        }
        assert_int_equal(heap.n, n);
        assert_ptr_equal(mr_heap_top(&heap), least(nodes, in));
        mr_heap_validate(&heap);
    }
    mr_heap_done(&heap);
}

static void a_failed_push_leaves_the_heap_as_it_was(void **state)
{
    (void)state;
    enum { N = 100 };
    long failures = 0;
    for (long steps = 0;; steps++) {
        struct mr_heap_node nodes[N];
        struct mr_heap heap = {0};
        long failed_pushes = 0;
        fail_alloc_after(steps);
        for (int i = 0; i < N; i++) {
            nodes[i] = (struct mr_heap_node){.key = N - i, .tie = 0};
            enum mr_err err = mr_heap_push(&heap, &nodes[i]);
            if (err == MR_NOMEM) {
                failed_pushes++;
                err = mr_heap_push(&heap, &nodes[i]);
            }
            assert_int_equal(err, MR_OK);
            assert_int_equal(heap.n, i + 1);
        }
        long failed = fail_alloc_stop();
        assert_int_equal(failed_pushes, failed);
        mr_heap_validate(&heap);
        for (int i = N - 1; i >= 0; i--)
            assert_ptr_equal(pop(&heap), &nodes[i]);
        mr_heap_done(&heap);
        failures += failed;
        if (failed == 0)
            break;
    }
    assert_true(!FAILING_ALLOC || failures >= 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_heap_has_no_top),
        cmocka_unit_test(nodes_come_out_by_key_then_tie),
        cmocka_unit_test(random_operations_agree_with_a_plain_scan),
        cmocka_unit_test(a_failed_push_leaves_the_heap_as_it_was),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
