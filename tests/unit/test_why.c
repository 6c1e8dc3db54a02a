/* SPDX-License-Identifier: Apache-2.0 */
/* Why a task is where it is: every reason, and which one comes first. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "client/why.h"

#define NOW 1700000000000LL

static const struct mr_worker_queue queues[] = {{MR_SLICE_LIT("other"), 1},
                                                {MR_SLICE_LIT("mail"), 2}};
static const struct mr_slice mails[] = {MR_SLICE_LIT("ping"), MR_SLICE_LIT("mail:*")};

/* One node of the queue "mail" that handles everything, with free slots. */
struct scene {
    struct mr_task task;
    struct mr_queue_info queue;
    struct mr_node_info node;
    size_t nodes_n;
    struct mr_limit limits[2];
    size_t limits_n;
    struct mr_why why;
};

static struct scene scene_of(enum mr_state state)
{
    return (struct scene){
        .task = {.id = MR_SLICE_LIT("t"),
                 .queue = MR_SLICE_LIT("mail"),
                 .type = MR_SLICE_LIT("mail:send"),
                 .node = MR_SLICE_LIT("n1"),
                 .state = state,
                 .attempt = 1,
                 .max_retry = 25,
                 .due_ms = NOW + 90000,
                 .started_ms = NOW - 5000,
                 .finished_ms = NOW - 1000},
        .queue = {.name = "mail", .counts = {[MR_PENDING] = 38}},
        .node = {.name = MR_SLICE_LIT("n1"),
                 .slots = 4,
                 .queues = queues,
                 .queues_n = 2,
                 .last_beat_ms = NOW - 20000},
        .nodes_n = 1,
    };
}

static void explain(struct scene *scene)
{
    mr_why(&(struct mr_why_facts){.task = &scene->task,
                                  .queue = &scene->queue,
                                  .nodes = &scene->node,
                                  .nodes_n = scene->nodes_n,
                                  .limits = scene->limits,
                                  .limits_n = scene->limits_n,
                                  .now_ms = NOW},
           &scene->why);
}

static void assert_reason(const struct scene *scene, size_t i, enum mr_why_reason reason,
                          const char *part)
{
    assert_true(i < scene->why.n);
    assert_string_equal(mr_why_word(scene->why.reasons[i].reason), mr_why_word(reason));
    if (strstr(scene->why.reasons[i].text, part) == NULL)
        fail_msg("\"%s\" is not in \"%s\"", part, scene->why.reasons[i].text);
}

static void a_due_time_comes_before_what_would_hold_it_up_then(void **state)
{
    (void)state;
    struct scene scene = scene_of(MR_SCHEDULED);
    explain(&scene);
    assert_int_equal(scene.why.n, 1);
    assert_reason(&scene, 0, MR_WHY_DUE, "2023-11-14T22:14:50.000Z (in 1m30s)");
    scene.queue.paused = true;
    scene.nodes_n = 0;
    explain(&scene);
    assert_int_equal(scene.why.n, 3);
    assert_reason(&scene, 1, MR_WHY_PAUSED, "queue mail is paused");
    assert_reason(&scene, 2, MR_WHY_NO_WORKER, "no worker takes from its queue mail");
}

static void a_paused_queue_is_what_a_pending_task_waits_for(void **state)
{
    (void)state;
    struct scene scene = scene_of(MR_PENDING);
    scene.queue.paused = true;
    explain(&scene);
    assert_int_equal(scene.why.n, 1);
    assert_reason(&scene, 0, MR_WHY_PAUSED, "mail");
}

static void what_is_addressed_to_nobody_there_falls_to_others(void **state)
{
    (void)state;
    struct scene scene = scene_of(MR_PENDING);
    scene.task.queue = MR_SLICE_LIT("mail@gone");
    explain(&scene);
    assert_reason(&scene, 0, MR_WHY_NO_WORKER, "mail@gone is for; it falls to one of 1 others");
    scene.node.state = MR_NODE_DEAD;
    explain(&scene);
    assert_reason(&scene, 0, MR_WHY_NO_WORKER, "no worker takes from its queue mail@gone");
}

static void a_worker_of_another_queue_and_a_dead_one_are_none(void **state)
{
    (void)state;
    struct scene scene = scene_of(MR_PENDING);
    scene.node.queues_n = 1;
    explain(&scene);
    assert_reason(&scene, 0, MR_WHY_NO_WORKER, "mail");
    scene = scene_of(MR_PENDING);
    scene.node.state = MR_NODE_DEAD;
    explain(&scene);
    assert_reason(&scene, 0, MR_WHY_NO_WORKER, "mail");
}

static void a_type_is_handled_by_its_name_or_a_prefix(void **state)
{
    (void)state;
    struct scene scene = scene_of(MR_PENDING);
    scene.node.types = mails;
    scene.node.types_n = 1;
    explain(&scene);
    assert_int_equal(scene.why.n, 1);
    assert_reason(&scene, 0, MR_WHY_NO_HANDLER, "none of the 1 workers of queue mail handles its");
    assert_reason(&scene, 0, MR_WHY_NO_HANDLER, "type mail:send");
    scene.node.types_n = 2;
    explain(&scene);
    assert_reason(&scene, 0, MR_WHY_NEXT, "");
    scene.task.type = MR_SLICE_LIT("ping");
    explain(&scene);
    assert_reason(&scene, 0, MR_WHY_NEXT, "");
    scene.task.type = MR_SLICE_LIT("pings");
    explain(&scene);
    assert_reason(&scene, 0, MR_WHY_NO_HANDLER, "");
}

static void full_slots_are_told_from_free_ones(void **state)
{
    (void)state;
    struct scene scene = scene_of(MR_PENDING);
    scene.node.in_hand = 3;
    explain(&scene);
    assert_reason(&scene, 0, MR_WHY_NEXT, "1 of 4 slots are free");
    scene.node.in_hand = 9; /* held ahead */
    explain(&scene);
    assert_reason(&scene, 0, MR_WHY_SLOTS_FULL, "all 4 slots");
    assert_reason(&scene, 0, MR_WHY_SLOTS_FULL, "37 other tasks wait");
}

static void a_lease_names_its_node_and_since_when(void **state)
{
    (void)state;
    struct scene scene = scene_of(MR_ACTIVE);
    explain(&scene);
    assert_int_equal(scene.why.n, 1);
    assert_reason(&scene, 0, MR_WHY_RUNNING, "node n1");
    assert_reason(&scene, 0, MR_WHY_RUNNING, "(5s ago)");
    scene.task.cancel_requested = true;
    scene.node.state = MR_NODE_SUSPECT;
    explain(&scene);
    assert_int_equal(scene.why.n, 3);
    assert_reason(&scene, 0, MR_WHY_CANCELLING, "told to stop");
    assert_reason(&scene, 1, MR_WHY_RUNNING, "n1");
    assert_reason(&scene, 2, MR_WHY_NODE_SILENT, "suspect: its last beat was at");
    scene.nodes_n = 0; /* gone between two looks */
    explain(&scene);
    assert_int_equal(scene.why.n, 2);
}

static void a_retry_has_its_time_and_its_error(void **state)
{
    (void)state;
    struct scene scene = scene_of(MR_RETRY);
    scene.task.retried = 2;
    scene.task.last_error = MR_SLICE_LIT("no\nluck \x1b[31m");
    explain(&scene);
    assert_int_equal(scene.why.n, 2);
    assert_reason(&scene, 0, MR_WHY_RETRY, "failed 2 times, of 25 allowed");
    assert_reason(&scene, 0, MR_WHY_RETRY, "(in 1m30s)");
    assert_reason(&scene, 1, MR_WHY_LAST_ERROR, "the last error: no luck  [31m");
}

static void what_asked_for_another_time_has_not_failed(void **state)
{
    (void)state;
    struct scene scene = scene_of(MR_RETRY);
    explain(&scene);
    assert_int_equal(scene.why.n, 1);
    assert_reason(&scene, 0, MR_WHY_RETRY, "it has not failed, and is tried again at");
}

static void an_error_that_is_no_text_is_made_one(void **state)
{
    (void)state;
    struct scene scene = scene_of(MR_RETRY);
    char bytes[4096];
    memset(bytes, 0xfe, sizeof bytes);
    scene.task.last_error = mr_slice_make(bytes, sizeof bytes);
    explain(&scene);
    assert_true(mr_utf8_valid(mr_slice_str(scene.why.reasons[1].text)));
}

static void the_archive_says_how_it_came_there(void **state)
{
    (void)state;
    struct scene scene = scene_of(MR_ARCHIVED);
    scene.task.last_error = MR_SLICE_LIT("cancelled");
    explain(&scene);
    assert_reason(&scene, 0, MR_WHY_ARCHIVED, "(1s ago)");
    assert_reason(&scene, 1, MR_WHY_LAST_ERROR, "cancelled");
    scene.task.retried = 25;
    scene.task.last_failed_ms = scene.task.finished_ms;
    explain(&scene);
    assert_reason(&scene, 0, MR_WHY_FAILED, "25 retries were allowed");
    scene.task.crashes = MR_CRASHES_MAX;
    explain(&scene);
    assert_reason(&scene, 0, MR_WHY_CRASHED, "lost its worker 3 times");
}

static void a_completed_task_succeeded(void **state)
{
    (void)state;
    struct scene scene = scene_of(MR_COMPLETED);
    explain(&scene);
    assert_int_equal(scene.why.n, 1);
    assert_reason(&scene, 0, MR_WHY_COMPLETED, "it succeeded at 2023-11-14T22:13:19.000Z (1s ago)");
    scene.task.last_error = MR_SLICE_LIT("moved to redis://db");
    explain(&scene);
    assert_reason(&scene, 0, MR_WHY_COMPLETED, "moved to redis://db at 2023-11-14T22:13:19.000Z");
}

static void a_member_waits_for_its_group(void **state)
{
    (void)state;
    struct scene scene = scene_of(MR_AGGREGATING);
    scene.task.group = MR_SLICE_LIT("mails");
    explain(&scene);
    assert_int_equal(scene.why.n, 1);
    assert_reason(&scene, 0, MR_WHY_GROUP, "it waits in group mails since");
}

static void every_reason_has_a_word(void **state)
{
    (void)state;
    for (unsigned i = 0; i < MR_WHY_COUNT; i++)
        assert_true(strlen(mr_why_word((enum mr_why_reason)i)) > 2);
}

static void a_limit_that_keeps_it_back_is_named_and_one_that_does_not_is_not(void **state)
{
    (void)state;
    struct scene scene = scene_of(MR_PENDING);
    scene.task.key = MR_SLICE_LIT("k1");
    scene.limits[0] = (struct mr_limit){.concurrency = 5, .active = 4, .rate = 9, .rate_ms = 1000};
    scene.limits[1] = (struct mr_limit){.scope = MR_LIMIT_KEY,
                                        .name = "*",
                                        .concurrency = 2,
                                        .active = 2,
                                        .rate = 1,
                                        .rate_ms = 500};
    scene.limits_n = 2;
    explain(&scene);
    assert_int_equal(scene.why.n, 1);
    assert_reason(&scene, 0, MR_WHY_LIMIT, "key k1 may have 2 tasks in hand at once, and has 2");
    scene.limits[0].rate_until_ms = NOW + 250;
    scene.limits[1].active = 0;
    explain(&scene);
    assert_int_equal(scene.why.n, 1);
    assert_reason(&scene, 0, MR_WHY_LIMIT, "its queue may begin 9 tasks every 1s");
    assert_reason(&scene, 0, MR_WHY_LIMIT, "(in 250ms)");
    scene.limits[0].rate_until_ms = NOW;
    explain(&scene);
    assert_reason(&scene, 0, MR_WHY_NEXT, "nothing holds it up");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_due_time_comes_before_what_would_hold_it_up_then),
        cmocka_unit_test(a_paused_queue_is_what_a_pending_task_waits_for),
        cmocka_unit_test(what_is_addressed_to_nobody_there_falls_to_others),
        cmocka_unit_test(a_worker_of_another_queue_and_a_dead_one_are_none),
        cmocka_unit_test(a_type_is_handled_by_its_name_or_a_prefix),
        cmocka_unit_test(full_slots_are_told_from_free_ones),
        cmocka_unit_test(a_lease_names_its_node_and_since_when),
        cmocka_unit_test(a_retry_has_its_time_and_its_error),
        cmocka_unit_test(what_asked_for_another_time_has_not_failed),
        cmocka_unit_test(an_error_that_is_no_text_is_made_one),
        cmocka_unit_test(the_archive_says_how_it_came_there),
        cmocka_unit_test(a_completed_task_succeeded),
        cmocka_unit_test(a_member_waits_for_its_group),
        cmocka_unit_test(every_reason_has_a_word),
        cmocka_unit_test(a_limit_that_keeps_it_back_is_named_and_one_that_does_not_is_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
