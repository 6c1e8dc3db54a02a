/* SPDX-License-Identifier: Apache-2.0 */
/* Looks as messages: what is asked and answered arrives as it left, and bytes of anybody are judged without harm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rand.h"
#include "timer/look.h"

static struct mr_slice text(const char *bytes)
{
    return mr_slice_str(bytes);
}

static void assert_text(struct mr_slice got, const char *want)
{
    assert_int_equal(got.len, strlen(want));
    if (got.len > 0)
        assert_memory_equal(got.data, want, got.len);
}

/* The request of one look, read as another. */
static uint8_t *ask(const struct mr_timer_look *look, struct mr_timer_look *ret_read)
{
    size_t size = mr_look_size(look);
    uint8_t *bytes = malloc(size + 1);
    assert_ptr_equal(mr_look_write(look, bytes), bytes + size);
    assert_int_equal(mr_look_read(look->kind, mr_slice_make(bytes, size), ret_read), MR_OK);
    assert_int_equal(ret_read->kind, look->kind);
    return bytes;
}

static void questions_arrive_as_they_left(void **state)
{
    struct mr_timer_look read, look = {.app = text("shop"),
                                       .name = text("nightly"),
                                       .state = MR_TIMER_PAUSED,
                                       .cursor = text("4:shopa"),
                                       .limit = 7,
                                       .after_ms = 123456789,
                                       .definition = text("encoded")};
    (void)state;
    for (int kind = 0; kind < MR_LOOK_KIND_COUNT; kind++) {
        look.kind = (enum mr_look_kind)kind;
        uint8_t *bytes = ask(&look, &read);
        bool list = kind == MR_LOOK_LIST, status = kind == MR_LOOK_STATUS;
        bool next = kind == MR_LOOK_NEXT, history = kind == MR_LOOK_HISTORY;
        assert_text(read.app, status ? "" : "shop");
        assert_text(read.name, status || list ? "" : "nightly");
        assert_int_equal(read.state, list ? MR_TIMER_PAUSED : MR_TIMER_STATE_NONE);
        assert_text(read.cursor, list || history ? "4:shopa" : "");
        assert_int_equal(read.limit, list || history || next ? 7 : 0);
        assert_int_equal(read.after_ms, next ? 123456789 : 0);
        assert_text(read.definition, next ? "encoded" : "");
        free(bytes);
    }
}

/* The answer of one look, read into another; to be freed, and the look to be done. */
static uint8_t *answer(const struct mr_timer_look *look, struct mr_timer_look *ret_read)
{
    size_t size = mr_look_answer_size(look);
    uint8_t *bytes = malloc(size + 1);
    assert_ptr_equal(mr_look_answer_write(look, bytes), bytes + size);
    *ret_read = (struct mr_timer_look){.kind = look->kind};
    assert_int_equal(mr_look_answer_read(ret_read, mr_slice_make(bytes, size)), MR_OK);
    assert_string_equal(ret_read->next, look->next);
    return bytes;
}

static struct mr_timer_shown shown[] = {
    {.definition = {"one", 3},
     .id = {"id-1", 4},
     .version = UINT64_MAX,
     .state = MR_TIMER_ACTIVE,
     .created_ms = 1,
     .next_ms = 1700000000000,
     .last_ms = 3,
     .firings_total = 4},
    {.definition = {"two", 3}, .id = {"id-2", 4}, .state = MR_TIMER_FINISHED},
};

static void timers_arrive_as_they_left(void **state)
{
    struct mr_timer_look read,
        look = {.kind = MR_LOOK_LIST, .timers = shown, .timers_n = 2, .next = "4:shopz"};
    (void)state;
    uint8_t *bytes = answer(&look, &read);
    assert_int_equal(read.timers_n, 2);
    assert_text(read.timers[0].definition, "one");
    assert_true(read.timers[0].version == UINT64_MAX);
    assert_int_equal(read.timers[0].next_ms, 1700000000000);
    assert_int_equal(read.timers[1].state, MR_TIMER_FINISHED);
    mr_timer_look_done(&read);
    free(bytes);
    look = (struct mr_timer_look){.kind = MR_LOOK_GET, .timers = shown, .timers_n = 1};
    bytes = answer(&look, &read);
    assert_int_equal(read.timers_n, 1);
    assert_text(read.timers[0].id, "id-1");
    mr_timer_look_done(&read);
    free(bytes);
}

static void firings_and_times_arrive_as_they_left(void **state)
{
    struct mr_firing_info firings[] = {{.timer = text("a"),
                                        .planned_ms = 5,
                                        .until_ms = 6,
                                        .state = MR_FIRING_MISFIRED,
                                        .cause = MR_FIRING_CAUGHT_UP,
                                        .reason = text("why"),
                                        .run = 7}};
    int64_t times[] = {1, 1700000000000, INT64_MAX};
    struct mr_timer_look read,
        look = {
            .kind = MR_LOOK_HISTORY, .firings = firings, .firings_n = 1, .next = "1700000000000"};
    (void)state;
    uint8_t *bytes = answer(&look, &read);
    assert_int_equal(read.firings_n, 1);
    assert_int_equal(read.firings[0].state, MR_FIRING_MISFIRED);
    assert_int_equal(read.firings[0].until_ms, 6);
    assert_text(read.firings[0].reason, "why");
    mr_timer_look_done(&read);
    free(bytes);
    look = (struct mr_timer_look){.kind = MR_LOOK_NEXT, .times_ms = times, .times_n = 3};
    bytes = answer(&look, &read);
    assert_int_equal(read.times_n, 3);
    assert_true(read.times_ms[2] == INT64_MAX);
    mr_timer_look_done(&read);
    free(bytes);
}

static struct mr_timer_app apps[] = {
    {.app = {"shop", 4}, .owner = {"host:1/x", 8}, .token = 9, .until_ms = 10},
    {.app = {"free", 4}},
};

static struct mr_timer_look status_look(void)
{
    return (struct mr_timer_look){.kind = MR_LOOK_STATUS,
                                  .status = {.store = text("sqlite"),
                                             .problem = text("full"),
                                             .active = 1,
                                             .oldest_ms = 2,
                                             .fired = 3,
                                             .lateness_p99_us = 4,
                                             .apps = apps,
                                             .apps_n = 2}};
}

static void how_all_of_it_is_arrives_as_it_left(void **state)
{
    struct mr_timer_look read, look = status_look();
    (void)state;
    uint8_t *bytes = answer(&look, &read);
    const struct mr_timer_status *status = &read.status;
    assert_text(status->store, "sqlite");
    assert_text(status->problem, "full");
    assert_int_equal(status->active, 1);
    assert_int_equal(status->oldest_ms, 2);
    assert_int_equal(status->fired, 3);
    assert_int_equal(status->lateness_p99_us, 4);
    assert_int_equal(status->apps_n, 2);
    assert_text(status->apps[0].owner, "host:1/x");
    assert_int_equal(status->apps[0].token, 9);
    assert_text(status->apps[1].app, "free");
    mr_timer_look_done(&read);
    free(bytes);
}

/* Whatever comes: cut, and with bytes that were changed. */
static void answers_of_anybody_do_no_harm(void **state)
{
    struct mr_rand rand;
    struct mr_timer_look look = status_look();
    size_t size = mr_look_answer_size(&look);
    uint8_t *bytes = malloc(size);
    (void)state;
    mr_rand_seed(&rand, 7);
    (void)mr_look_answer_write(&look, bytes);
    for (int round = 0; round < 20000; round++) {
        size_t len = mr_rand_below(&rand, size + 1);
        uint8_t *copy = malloc(len + 1);
        memcpy(copy, bytes, len);
        for (int i = 0; len > 0 && i < round % 4; i++)
            copy[mr_rand_below(&rand, len)] = (uint8_t)mr_rand_next(&rand);
        struct mr_timer_look read = {
            .kind = (enum mr_look_kind)mr_rand_below(&rand, MR_LOOK_KIND_COUNT)};
        (void)!mr_look_answer_read(&read, mr_slice_make(copy, len));
        mr_timer_look_done(&read);
        (void)!mr_look_read(read.kind, mr_slice_make(copy, len), &read);
        free(copy);
    }
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(questions_arrive_as_they_left),
        cmocka_unit_test(timers_arrive_as_they_left),
        cmocka_unit_test(firings_and_times_arrive_as_they_left),
        cmocka_unit_test(how_all_of_it_is_arrives_as_it_left),
        cmocka_unit_test(answers_of_anybody_do_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
