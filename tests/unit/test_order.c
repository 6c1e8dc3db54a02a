/* SPDX-License-Identifier: Apache-2.0 */
/* The ordered set agrees with a sorted array, and gives its memory back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rand.h"
#include "broker/embedded/order.h"
#include "broker/embedded/task.h"
#include "unit/failing_alloc.h"

enum { MODEL_MAX = 4000, STEPS = 100000 };

struct fixture {
    struct slab tasks;
    struct order order;
    uint64_t ties;
};

static void begin(struct fixture *f)
{
    *f = (struct fixture){.ties = 1};
    slab_init(&f->tasks, sizeof(struct task), NULL);
}

static void end(struct fixture *f)
{
    order_done(&f->order);
    slab_done(&f->tasks);
}

static struct task *at(const struct fixture *f, uint32_t handle)
{
    return slab_at(&f->tasks, handle);
}

static uint32_t make(struct fixture *f, int64_t key)
{
    uint32_t handle;
    assert_int_equal(slab_alloc(&f->tasks, &handle), MR_OK);
    at(f, handle)->key = key;
    at(f, handle)->tie = f->ties++;
    return handle;
}

static uint32_t insert(struct fixture *f, int64_t key)
{
    uint32_t handle = make(f, key);
    assert_int_equal(order_insert(&f->order, &f->tasks, handle), MR_OK);
    return handle;
}

static void take_out(struct fixture *f, uint32_t handle)
{
    order_remove(&f->order, &f->tasks, handle);
    slab_free(&f->tasks, handle);
}

static void an_empty_set_has_no_first_and_nothing_to_seek(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f);
    assert_int_equal(order_first(&f.order), NO_HANDLE);
    struct order_at place = order_seek(&f.order, &f.tasks, INT64_MIN, 0);
    assert_int_equal(order_next(&f.order, &place), NO_HANDLE);
    order_validate(&f.order, &f.tasks);
    end(&f);
}

static void equal_keys_keep_the_order_of_their_ties(void **state)
{
    (void)state;
    struct fixture f;
    uint32_t handles[2000];
    begin(&f);
    for (size_t i = 0; i < 2000; i++)
        handles[i] = insert(&f, 5);
    struct order_at place = order_seek(&f.order, &f.tasks, INT64_MIN, 0);
    for (size_t i = 0; i < 2000; i++)
        assert_int_equal(order_next(&f.order, &place), handles[i]);
    assert_int_equal(order_next(&f.order, &place), NO_HANDLE);
    end(&f);
}

static void arriving_in_reverse_is_no_trouble(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f);
    for (int64_t i = 0; i < 5000; i++)
        insert(&f, -i);
    order_validate(&f.order, &f.tasks);
    for (int64_t i = 4999; i >= 0; i--) {
        uint32_t first = order_first(&f.order);
        assert_int_equal(at(&f, first)->key, -i);
        take_out(&f, first);
    }
    assert_int_equal(f.order.count, 0);
    end(&f);
}

/* ---- against a sorted array ----------------------------------------------------------------- */

struct model {
    struct {
        int64_t key;
        uint64_t tie;
        uint32_t handle;
    } items[MODEL_MAX];
    size_t n;
};

/* The first place at or behind (key, tie). */
static size_t model_seek(const struct model *model, int64_t key, uint64_t tie)
{
    size_t low = 0, high = model->n;
    while (low < high) {
        size_t middle = (low + high) / 2;
        bool smaller = model->items[middle].key != key ? model->items[middle].key < key
                                                       : model->items[middle].tie < tie;
        if (smaller)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static void model_insert(struct model *model, const struct fixture *f, uint32_t handle)
{
    int64_t key = at(f, handle)->key;
    uint64_t tie = at(f, handle)->tie;
    size_t i = model_seek(model, key, tie);
    memmove(&model->items[i + 1], &model->items[i], (model->n - i) * sizeof model->items[0]);
    model->items[i].key = key;
    model->items[i].tie = tie;
    model->items[i].handle = handle;
    model->n++;
}

static void model_remove(struct model *model, struct fixture *f, size_t i)
{
    take_out(f, model->items[i].handle);
    memmove(&model->items[i], &model->items[i + 1], (model->n - i - 1) * sizeof model->items[0]);
    model->n--;
}

static void same_from(const struct model *model, const struct fixture *f, int64_t key, uint64_t tie)
{
    struct order_at place = order_seek(&f->order, &f->tasks, key, tie);
    size_t i = model_seek(model, key, tie);
    for (size_t n = 0; n < 5; n++, i++) {
        uint32_t expected = i < model->n ? model->items[i].handle : NO_HANDLE;
        assert_int_equal(order_next(&f->order, &place), expected);
        if (expected == NO_HANDLE)
            return;
    }
}

static void step(struct model *model, struct fixture *f, struct mr_rand *rand, bool growing)
{
    uint64_t what = mr_rand_below(rand, 10);
    if (model->n < MODEL_MAX && (growing ? what < 6 : what < 3)) {
        /* Half at the back, as tasks mostly come; half anywhere. */
        int64_t back = model->n ? model->items[model->n - 1].key : 0;
        int64_t key = mr_rand_one_in(rand, 2) ? back + (int64_t)mr_rand_below(rand, 3)
                                              : (int64_t)mr_rand_below(rand, 1000) - 500;
        model_insert(model, f, insert(f, key));
    } else if (what < 9 && model->n > 0) {
        model_remove(model, f, mr_rand_one_in(rand, 2) ? 0 : mr_rand_below(rand, model->n));
    } else {
        same_from(model, f, (int64_t)mr_rand_below(rand, 1200) - 600, mr_rand_below(rand, f->ties));
    }
    assert_int_equal(f->order.count, model->n);
    assert_int_equal(order_first(&f->order), model->n ? model->items[0].handle : NO_HANDLE);
}

static void random_operations_agree_with_a_sorted_array(void **state)
{
    (void)state;
    static struct model model;
    struct fixture f;
    struct mr_rand rand;
    mr_rand_seed(&rand, 2026);
    begin(&f);
    model.n = 0;
    for (int i = 0; i < STEPS; i++) {
        step(&model, &f, &rand, i / 10000 % 2 == 0);
        if (i % 100 == 0) {
            order_validate(&f.order, &f.tasks);
            struct order_at place = order_seek(&f.order, &f.tasks, INT64_MIN, 0);
            for (size_t k = 0; k < model.n; k++)
                assert_int_equal(order_next(&f.order, &place), model.items[k].handle);
        }
    }
    end(&f);
}

/* ---- memory --------------------------------------------------------------------------------- */

static void a_full_set_costs_little_more_than_four_bytes_a_task(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f);
    for (int64_t i = 0; i < 100000; i++)
        insert(&f, i);
    assert_true(order_bytes(&f.order) < 100000 * 4.2);
    end(&f);
}

static void memory_comes_back_as_a_queue_moves_on(void **state)
{
    (void)state;
    struct fixture f;
    begin(&f);
    for (int64_t i = 0; i < 300000; i++) {
        insert(&f, i);
        if (f.order.count > 1000)
            take_out(&f, order_first(&f.order));
    }
    assert_true(order_bytes(&f.order) < 16 * 1024);
    end(&f);
}

static void memory_comes_back_when_the_middle_is_thinned_out(void **state)
{
    (void)state;
    enum { N = 50000 };
    static uint32_t handles[N];
    struct fixture f;
    begin(&f);
    for (size_t i = 0; i < N; i++)
        handles[i] = insert(&f, (int64_t)i);
    size_t full = order_bytes(&f.order);
    for (size_t i = 0; i < N; i++)
        if (i % 50 != 0)
            take_out(&f, handles[i]);
    order_validate(&f.order, &f.tasks);
    assert_int_equal(f.order.count, N / 50);
    assert_true(order_bytes(&f.order) < full / 8);
    end(&f);
}

static void a_failed_insert_leaves_the_set_as_it_was(void **state)
{
    (void)state;
    long failures = 0;
    for (long n = 0; n < 12; n++) {
        struct fixture f;
        begin(&f);
        uint32_t handles[3000];
        for (size_t i = 0; i < 3000; i++)
            handles[i] = make(&f, (int64_t)(i * 7919 % 3000));
        fail_alloc_after(n);
        for (size_t i = 0; i < 3000; i++) {
            enum mr_err err = order_insert(&f.order, &f.tasks, handles[i]);
            if (err != MR_OK) {
                assert_int_equal(err, MR_NOMEM);
                assert_int_equal(f.order.count, i);
                err = order_insert(&f.order, &f.tasks, handles[i]);
            }
            assert_int_equal(err, MR_OK);
        }
        failures += fail_alloc_stop();
        order_validate(&f.order, &f.tasks);
        assert_int_equal(f.order.count, 3000);
        end(&f);
    }
    assert_true(!FAILING_ALLOC || failures >= 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_empty_set_has_no_first_and_nothing_to_seek),
        cmocka_unit_test(equal_keys_keep_the_order_of_their_ties),
        cmocka_unit_test(arriving_in_reverse_is_no_trouble),
        cmocka_unit_test(random_operations_agree_with_a_sorted_array),
        cmocka_unit_test(a_full_set_costs_little_more_than_four_bytes_a_task),
        cmocka_unit_test(memory_comes_back_as_a_queue_moves_on),
        cmocka_unit_test(memory_comes_back_when_the_middle_is_thinned_out),
        cmocka_unit_test(a_failed_insert_leaves_the_set_as_it_was),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
