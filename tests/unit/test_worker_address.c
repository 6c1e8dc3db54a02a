/* SPDX-License-Identifier: Apache-2.0 */
/* The queues that a worker listens to beside its own: those that are for its name and its tags. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "worker/internal.h"

/* As a worker in the making has them; freed by the caller. */
static struct mr_worker *make(const struct mr_worker_options *options)
{
    struct mr_worker *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->options = *options;
    assert_int_equal(mr_addresses_check(options), MR_OK);
    assert_int_equal(mr_addresses_make(w), MR_OK);
    return w;
}

static void done(struct mr_worker *w)
{
    mr_arena_done(&w->memory);
    free(w);
}

static void has(const struct mr_worker *w, size_t i, const char *name, uint32_t weight)
{
    assert_true(i < w->options.queues_n);
    assert_true(mr_slice_equal(w->options.queues[i].name, mr_slice_str(name)));
    assert_int_equal(w->options.queues[i].weight, weight);
}

static void a_worker_listens_to_its_name_and_its_tags_before_the_queue_itself(void **state)
{
    (void)state;
    const struct mr_worker_queue queues[] = {{MR_SLICE_LIT("a"), 3}, {MR_SLICE_LIT("b"), 0}};
    const struct mr_slice tags[] = {MR_SLICE_LIT("gpu"), MR_SLICE_LIT("eu"), MR_SLICE_LIT("gpu")};
    struct mr_worker *w = make(&(struct mr_worker_options){
        .node = MR_SLICE_LIT("n"), .queues = queues, .queues_n = 2, .tags = tags, .tags_n = 3});
    assert_int_equal(w->options.queues_n, 8);
    has(w, 0, "a@n", 3);
    has(w, 1, "a@gpu", 3);
    has(w, 2, "a@eu", 3);
    has(w, 3, "a", 3);
    has(w, 4, "b@n", 1);
    has(w, 7, "b", 1);
    const struct mr_slice only[] = {MR_SLICE_LIT("b")};
    const struct mr_machine machine = {.queues = only, .queues_n = 1};
    assert_int_equal(mr_addresses_queues(&w->options, &machine), 0xf0);
    done(w);
}

static void without_queues_it_is_the_default_one(void **state)
{
    (void)state;
    struct mr_worker *w = make(&(struct mr_worker_options){.node = MR_SLICE_LIT("n")});
    assert_int_equal(w->options.queues_n, 2);
    has(w, 0, "default@n", 1);
    has(w, 1, "default", 1);
    done(w);
}

static void it_leaves_others_a_minute_unless_it_is_told_otherwise(void **state)
{
    (void)state;
    static const int64_t told[][2] = {{0, 60000}, {MR_NO_FALL, 0}, {1, 1}, {250, 250}};
    for (size_t i = 0; i < sizeof told / sizeof told[0]; i++) {
        struct mr_worker *w =
            make(&(struct mr_worker_options){.node = MR_SLICE_LIT("n"), .fall_ms = told[i][0]});
        assert_int_equal(w->options.fall_ms, told[i][1]);
        done(w);
    }
    assert_int_equal(mr_addresses_check(&(struct mr_worker_options){.fall_ms = -2}), MR_INVALID);
    assert_int_equal(mr_addresses_check(&(struct mr_worker_options){.fall_ms = INT64_MAX}),
                     MR_INVALID);
}

static void with_many_queues_or_a_long_name_it_is_not_addressed_by_name(void **state)
{
    (void)state;
    struct mr_worker_queue queues[MR_TAKE_QUEUES_MAX];
    char names[MR_TAKE_QUEUES_MAX][8], longest[MR_NAME_MAX + 1];
    for (size_t i = 0; i < MR_TAKE_QUEUES_MAX; i++) {
        (void)snprintf(names[i], sizeof names[i], "q%zu", i);
        queues[i] = (struct mr_worker_queue){mr_slice_str(names[i]), 1};
    }
    struct mr_worker_options options = {
        .node = MR_SLICE_LIT("n"), .queues = queues, .queues_n = MR_TAKE_QUEUES_MAX};
    struct mr_worker *w = make(&options);
    assert_int_equal(w->options.queues_n, MR_TAKE_QUEUES_MAX);
    done(w);
    options.queues_n = MR_TAKE_QUEUES_MAX / 2;
    w = make(&options);
    assert_int_equal(w->options.queues_n, MR_TAKE_QUEUES_MAX);
    done(w);
    memset(longest, 'n', MR_NAME_MAX);
    longest[MR_NAME_MAX] = '\0';
    options.node = mr_slice_str(longest);
    w = make(&options);
    assert_int_equal(w->options.queues_n, MR_TAKE_QUEUES_MAX / 2);
    done(w);
}

static void tags_that_have_no_room_or_are_no_names_are_refused(void **state)
{
    (void)state;
    struct mr_slice tags[MR_TAKE_QUEUES_MAX];
    char longest[MR_NAME_MAX + 1];
    for (size_t i = 0; i < MR_TAKE_QUEUES_MAX; i++)
        tags[i] = MR_SLICE_LIT("t");
    struct mr_worker_options options = {.tags = tags, .tags_n = MR_TAKE_QUEUES_MAX - 1};
    assert_int_equal(mr_addresses_check(&options), MR_OK);
    options.tags_n++;
    assert_int_equal(mr_addresses_check(&options), MR_TOO_BIG);
    options.tags_n = SIZE_MAX;
    assert_int_equal(mr_addresses_check(&options), MR_TOO_BIG);
    options.tags_n = 1;
    tags[0] = MR_SLICE_LIT("");
    assert_int_equal(mr_addresses_check(&options), MR_INVALID);
    tags[0] = MR_SLICE_LIT("a{b");
    assert_int_equal(mr_addresses_check(&options), MR_INVALID);
    memset(longest, 't', MR_NAME_MAX);
    longest[MR_NAME_MAX] = '\0';
    tags[0] = mr_slice_str(longest); /* "default@" before it is too much */
    assert_int_equal(mr_addresses_check(&options), MR_TOO_BIG);
    options.tags = NULL;
    assert_int_equal(mr_addresses_check(&options), MR_INVALID);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_worker_listens_to_its_name_and_its_tags_before_the_queue_itself),
        cmocka_unit_test(without_queues_it_is_the_default_one),
        cmocka_unit_test(it_leaves_others_a_minute_unless_it_is_told_otherwise),
        cmocka_unit_test(with_many_queues_or_a_long_name_it_is_not_addressed_by_name),
        cmocka_unit_test(tags_that_have_no_room_or_are_no_names_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
