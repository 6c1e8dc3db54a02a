/* SPDX-License-Identifier: Apache-2.0 */
/* Lists: order, removal, splicing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/list.h"

struct item {
    int value;
    struct mr_link link;
};

/* Asserts that the list holds the values in this order, both ways. */
static void assert_values(const struct mr_link *list, const int *values, size_t n)
{
    const struct mr_link *link = list->next;
    for (size_t i = 0; i < n; i++, link = link->next) {
        assert_ptr_not_equal(link, list);
        assert_int_equal(mr_container(link, const struct item, link)->value, values[i]);
        assert_ptr_equal(link->next->prev, link);
    }
    assert_ptr_equal(link, list);
    assert_int_equal(mr_list_empty(list), n == 0);
}

static void make_items(struct item *items, int n)
{
    for (int i = 0; i < n; i++) {
        items[i].value = i;
        mr_list_init(&items[i].link);
    }
}

static void links_come_out_in_the_order_they_stand(void **state)
{
    (void)state;
    struct item items[4];
    make_items(items, 4);
    struct mr_link list;
    mr_list_init(&list);
    assert_true(mr_list_empty(&list));
    mr_list_push_back(&list, &items[1].link);
    mr_list_push_back(&list, &items[2].link);
    mr_list_push_front(&list, &items[0].link);
    mr_list_insert_before(&items[2].link, &items[3].link);
    assert_values(&list, (int[]){0, 1, 3, 2}, 4);
    assert_ptr_equal(mr_list_pop_front(&list), &items[0].link);
    assert_ptr_equal(mr_list_pop_front(&list), &items[1].link);
    assert_values(&list, (int[]){3, 2}, 2);
    assert_ptr_equal(mr_list_pop_front(&list), &items[3].link);
    assert_ptr_equal(mr_list_pop_front(&list), &items[2].link);
    assert_null(mr_list_pop_front(&list));
}

static void a_removed_link_is_in_no_list_and_removable_again(void **state)
{
    (void)state;
    struct item items[3];
    make_items(items, 3);
    struct mr_link list;
    mr_list_init(&list);
    for (int i = 0; i < 3; i++)
        mr_list_push_back(&list, &items[i].link);
    mr_list_remove(&items[1].link);
    assert_true(mr_list_empty(&items[1].link));
    mr_list_remove(&items[1].link);
    assert_values(&list, (int[]){0, 2}, 2);
    mr_list_remove(&items[2].link);
    mr_list_remove(&items[0].link);
    assert_values(&list, NULL, 0);
}

static void a_splice_moves_everything_to_the_end(void **state)
{
    (void)state;
    struct item items[4];
    make_items(items, 4);
    struct mr_link to, from;
    mr_list_init(&to);
    mr_list_init(&from);
    mr_list_splice_back(&to, &from);
    assert_values(&to, NULL, 0);
    mr_list_push_back(&from, &items[0].link);
    mr_list_push_back(&from, &items[1].link);
    mr_list_splice_back(&to, &from);
    assert_values(&to, (int[]){0, 1}, 2);
    assert_values(&from, NULL, 0);
    mr_list_push_back(&from, &items[2].link);
    mr_list_push_back(&from, &items[3].link);
    mr_list_splice_back(&to, &from);
    mr_list_splice_back(&to, &from);
    assert_values(&to, (int[]){0, 1, 2, 3}, 4);
    assert_values(&from, NULL, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(links_come_out_in_the_order_they_stand),
        cmocka_unit_test(a_removed_link_is_in_no_list_and_removable_again),
        cmocka_unit_test(a_splice_moves_everything_to_the_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
