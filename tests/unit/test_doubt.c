/* SPDX-License-Identifier: Apache-2.0 */
/* Tasks whose answer may be lost: their ids, and which of them are tried again. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "broker/doubt.h"

enum { PAYLOAD_MAX = 100, KEPT_MS = 60000 };

static enum mr_err prepare(struct mr_task_options task, struct mr_enqueue_result *ret_result)
{
    memset(ret_result, 'x', sizeof *ret_result);
    return mr_doubt_id(&task, PAYLOAD_MAX, mr_wall_now(mr_clock_system()), ret_result);
}

static void a_task_has_its_id_before_it_is_sent(void **state)
{
    struct mr_enqueue_result one, two;
    struct mr_uuid uuid;
    (void)state;
    assert_int_equal(prepare((struct mr_task_options){0}, &one), MR_OK);
    assert_int_equal(prepare((struct mr_task_options){0}, &two), MR_OK);
    assert_true(mr_uuid_parse(mr_slice_str(one.id), &uuid));
    assert_string_not_equal(one.id, two.id);
    assert_int_equal(prepare((struct mr_task_options){.id = MR_SLICE_LIT("mine")}, &one), MR_OK);
    assert_string_equal(one.id, "mine");
    assert_int_equal(one.state, MR_STATE_NONE);
}

static void one_that_is_refused_at_the_door_has_none(void **state)
{
    struct mr_enqueue_result result;
    char big[PAYLOAD_MAX + 1] = {0};
    (void)state;
    struct mr_task_options task = {.payload = mr_slice_make(big, sizeof big)};
    assert_int_equal(prepare(task, &result), MR_TOO_BIG);
    assert_string_equal(result.id, "");
    assert_int_equal(result.state, MR_STATE_NONE);
}

static void only_what_is_kept_under_an_id_of_ours_is_tried_again(void **state)
{
    (void)state;
    struct mr_task_options gone = {.retention_ms = KEPT_MS - 1}, kept = {.retention_ms = KEPT_MS};
    struct mr_task_options given = {.id = MR_SLICE_LIT("mine"), .retention_ms = KEPT_MS};
    assert_false(mr_doubt_none(&gone));
    assert_true(mr_doubt_none(&kept));
    assert_false(mr_doubt_none(&given));
}

static void a_conflict_with_ourselves_is_the_proof(void **state)
{
    (void)state;
    struct mr_task_options ours = {0}, given = {.id = MR_SLICE_LIT("mine")};
    struct mr_enqueue_result conflict = {.err = MR_CONFLICT}, full = {.err = MR_QUEUE_FULL};
    mr_doubt_ends(&given, &conflict);
    assert_int_equal(conflict.err, MR_CONFLICT);
    mr_doubt_ends(&ours, &conflict);
    assert_int_equal(conflict.err, MR_OK);
    mr_doubt_ends(&ours, &full);
    assert_int_equal(full.err, MR_QUEUE_FULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_task_has_its_id_before_it_is_sent),
        cmocka_unit_test(one_that_is_refused_at_the_door_has_none),
        cmocka_unit_test(only_what_is_kept_under_an_id_of_ours_is_tried_again),
        cmocka_unit_test(a_conflict_with_ourselves_is_the_proof),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
