/* SPDX-License-Identifier: Apache-2.0 */
/* millrace top without a terminal: rates, keys, and the frame they make; the line of long work. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/text.h"
#include "cli/out.h"
#include "cli/progress.h"
#include "cli/top/top.h"

/* Three queues and one node, as a look would have found them. */
struct rig {
    struct top_queue queues[3];
    struct mr_node_info node;
    const struct mr_node_info *nodes[1];
    struct mr_worker_queue node_queue;
    struct mr_task tasks[2];
    const struct mr_task *task_rows[2];
    struct top_model model;
    struct top_view view;
    struct mr_buf frame;
};

static int setup(void **state)
{
    struct rig *rig = calloc(1, sizeof *rig);
    static const char *const names[] = {"alpha", "beta", "gamma"};
    for (size_t i = 0; i < 3; i++) {
        snprintf(rig->queues[i].info.name, sizeof rig->queues[i].info.name, "%s", names[i]);
        rig->queues[i].info.counts[MR_PENDING] = 10 * (i + 1);
    }
    rig->queues[1].info.counts[MR_ARCHIVED] = 7;
    rig->queues[1].info.paused = true;
    rig->queues[1].info.wait_p99_us = 12345;
    rig->node_queue = (struct mr_worker_queue){mr_slice_str("alpha"), 1};
    rig->node = (struct mr_node_info){.name = mr_slice_str("host:1"),
                                      .slots = 8,
                                      .busy = 3,
                                      .in_hand = 4,
                                      .queues = &rig->node_queue,
                                      .queues_n = 1};
    rig->nodes[0] = &rig->node;
    rig->tasks[0] = (struct mr_task){
        .id = mr_slice_str("t-1"), .type = mr_slice_str("mail"), .state = MR_PENDING};
    rig->tasks[1] = (struct mr_task){
        .id = mr_slice_str("t-2"), .type = mr_slice_str("bill"), .state = MR_ARCHIVED};
    rig->task_rows[0] = &rig->tasks[0];
    rig->task_rows[1] = &rig->tasks[1];
    rig->model = (struct top_model){.queues = rig->queues,
                                    .queues_n = 3,
                                    .nodes = rig->nodes,
                                    .nodes_n = 1,
                                    .stats = {.tasks = 67, .disk_bytes = 1 << 20, .segments = 1},
                                    .rates = {.enqueued = 120, .done = 100, .failed = 2.5},
                                    .at_ms = 1000};
    rig->view = (struct top_view){.broker = "millrace://h:1",
                                  .every_ms = 1000,
                                  .live = true,
                                  .tasks = rig->task_rows,
                                  .tasks_n = 2};
    top_settle(&rig->view, &rig->model);
    *state = rig;
    return 0;
}

static int teardown(void **state)
{
    struct rig *rig = *state;
    mr_buf_done(&rig->frame);
    mr_buf_done(&rig->view.detail);
    free(rig);
    return 0;
}

static const char *draw(struct rig *rig, size_t rows, size_t columns)
{
    mr_buf_clear(&rig->frame);
    top_draw(&rig->view, &rig->model, (struct term_size){rows, columns}, &rig->frame);
    assert_int_equal(mr_buf_append(&rig->frame, "", 1), MR_OK);
    return (const char *)rig->frame.data;
}

static enum top_want press(struct rig *rig, int key)
{
    return top_press(&rig->view, &rig->model, key);
}

#define assert_shows(rig, text) assert_non_null(strstr(draw(rig, 24, 120), text))
#define assert_hides(rig, text) assert_null(strstr(draw(rig, 24, 120), text))

static void a_frame_shows_totals_queues_and_nodes(void **state)
{
    struct rig *rig = *state;
    assert_shows(rig, "tasks 67   enqueued 120/s   done 100/s   failed 2.5/s");
    assert_shows(rig, "disk 1.0 MiB");
    assert_shows(rig, ">  alpha");
    assert_shows(rig, "12 ms");
    assert_shows(rig, "paused\n");
    assert_shows(rig, "host:1  worker  live    3/8        4");
    rig->model.stats.segments = 0; /* a server keeps them from a token for some queues */
    assert_null(strstr(draw(rig, 24, 120), "disk"));
    rig->model.err = MR_UNAVAILABLE;
    assert_shows(rig, "! broker out of reach; trying again");
}

static void every_frame_fits_its_size(void **state)
{
    struct rig *rig = *state;
    static const enum top_page pages[] = {TOP_QUEUES, TOP_TASKS, TOP_TASK, TOP_HELP};
    for (size_t columns = 20; columns <= 140; columns += 3)
        for (size_t page = 0; page < 2; page++)
            for (size_t rows = 9; rows < 30; rows += 4) {
                rig->view.page = pages[page];
                size_t lines = 0;
                for (const char *at = draw(rig, rows, columns); *at; lines++) {
                    const char *end = strchr(at, '\n');
                    assert_true(out_width(mr_slice_make(at, (size_t)(end - at))) <= columns);
                    at = end + 1;
                }
                assert_int_equal(lines, rows);
            }
    for (size_t page = 2; page < 4; page++) {
        rig->view.page = pages[page];
        assert_non_null(draw(rig, 9, 80));
    }
}

static void keys_choose_a_queue_and_keep_it(void **state)
{
    struct rig *rig = *state;
    assert_int_equal(press(rig, TERM_DOWN), TOP_NOTHING);
    assert_shows(rig, ">  beta");
    press(rig, 'j');
    press(rig, 'j');
    assert_shows(rig, ">  gamma");
    press(rig, 'k');
    assert_string_equal(rig->view.queue, "beta");
    rig->model.queues = rig->queues + 1; /* alpha has gone */
    rig->model.queues_n = 2;
    top_settle(&rig->view, &rig->model);
    assert_int_equal(rig->view.chosen, 0);
    assert_string_equal(rig->view.queue, "beta");
    rig->model.queues_n = 0;
    top_settle(&rig->view, &rig->model);
    assert_string_equal(rig->view.queue, "");
    assert_int_equal(press(rig, TERM_ENTER), TOP_NOTHING);
    assert_int_equal(press(rig, 'p'), TOP_NOTHING);
}

static void requeue_asks_with_the_count_first(void **state)
{
    struct rig *rig = *state;
    press(rig, 'r');
    assert_shows(rig, "nothing archived here");
    press(rig, TERM_DOWN);
    assert_int_equal(press(rig, 'r'), TOP_NOTHING);
    assert_shows(rig, "requeue 7 archived tasks of beta? y/n");
    assert_int_equal(press(rig, 'n'), TOP_NOTHING);
    assert_shows(rig, "nothing done");
    press(rig, 'r');
    assert_int_equal(press(rig, 'y'), TOP_REQUEUE_QUEUE);
    assert_int_equal(press(rig, 'y'), TOP_NOTHING);
}

static void enter_opens_and_escape_goes_back(void **state)
{
    struct rig *rig = *state;
    assert_int_equal(press(rig, TERM_ENTER), TOP_OPEN);
    assert_int_equal(rig->view.page, TOP_TASKS);
    top_settle(&rig->view, &rig->model);
    assert_shows(rig, "queue alpha, all tasks");
    assert_int_equal(press(rig, 's'), TOP_OPEN);
    assert_shows(rig, "queue alpha, scheduled tasks");
    rig->view.tasks_more = true;
    assert_shows(rig, "queue alpha, the first 2 scheduled tasks");
    while (rig->view.state != MR_STATE_NONE)
        press(rig, 's');
    assert_shows(rig, "queue alpha, the first 2 tasks");
    press(rig, 'r');
    assert_shows(rig, "nothing archived here");
    press(rig, 'j');
    press(rig, 'r');
    assert_shows(rig, "requeue task t-2? y/n");
    assert_int_equal(press(rig, 'y'), TOP_REQUEUE_TASK);
    assert_int_equal(press(rig, TERM_ENTER), TOP_OPEN);
    assert_int_equal(rig->view.page, TOP_TASK);
    assert_string_equal(rig->view.task, "t-2");
    assert_int_equal(press(rig, TERM_ESCAPE), TOP_OPEN);
    assert_int_equal(rig->view.page, TOP_TASKS);
    assert_int_equal(press(rig, 'q'), TOP_OPEN);
    assert_int_equal(rig->view.page, TOP_QUEUES);
    assert_int_equal(press(rig, 'q'), TOP_QUIT);
}

static void a_filter_leaves_what_holds_it(void **state)
{
    struct rig *rig = *state;
    press(rig, '/');
    press(rig, 'g');
    press(rig, 'q'); /* a letter here, not the end */
    assert_shows(rig, "/gq_");
    assert_shows(rig, "no queue fits the filter");
    press(rig, TERM_BACKSPACE);
    assert_shows(rig, ">  gamma");
    assert_hides(rig, "alpha  ");
    press(rig, TERM_ENTER);
    assert_shows(rig, "filter /g, esc lifts it");
    assert_int_equal(press(rig, 'p'), TOP_PAUSE);
    assert_string_equal(rig->view.queue, "gamma");
    assert_int_equal(press(rig, TERM_ESCAPE), TOP_OPEN);
    assert_shows(rig, "   alpha");
}

static void help_says_the_keys_and_goes(void **state)
{
    struct rig *rig = *state;
    press(rig, '?');
    assert_shows(rig, "pause or resume the queue");
    assert_int_equal(press(rig, 'p'), TOP_NOTHING);
    assert_int_equal(press(rig, 'q'), TOP_NOTHING);
    assert_int_equal(rig->view.page, TOP_QUEUES);
}

static void a_long_text_scrolls_to_its_end_and_no_further(void **state)
{
    struct rig *rig = *state;
    rig->view.page = TOP_TASK;
    for (int i = 0; i < 50; i++)
        assert_int_equal(mr_buf_printf(&rig->view.detail, "line-%d\n", i), MR_OK);
    assert_shows(rig, "line-0\n");
    press(rig, TERM_LAST);
    assert_shows(rig, "line-49\n");
    assert_hides(rig, "line-31\n");
    press(rig, TERM_HOME);
    assert_shows(rig, "line-0\n");
}

static void rates_count_what_was_enqueued_done_and_failed(void **state)
{
    (void)state;
    struct mr_queue_info before = {
        .counts = {[MR_PENDING] = 10}, .processed_total = 100, .failed_total = 5};
    struct mr_queue_info now = {
        .counts = {[MR_PENDING] = 4, [MR_RETRY] = 2}, .processed_total = 120, .failed_total = 9};
    struct top_rates rates = top_rates_between(&before, &now, 2);
    assert_true(rates.done == 8 && rates.failed == 2 && rates.enqueued == 6);
    struct mr_queue_info emptied = {.processed_total = 100, .failed_total = 5};
    rates = top_rates_between(&before, &emptied, 2);
    assert_true(rates.done == 0 && rates.failed == 0 && rates.enqueued == 0);
}

static void long_work_tells_its_rate_and_what_is_left(void **state)
{
    (void)state;
    char text[100];
    struct progress known = {.what = "enqueue", .whole = 1000}, unknown = {.what = "looking"};
    progress_text(&known, 500, 250, 1000, text, sizeof text);
    assert_string_equal(text, "enqueue [#####               ]  25%  500 tasks  500/s  3s left");
    progress_text(&known, 500, 250, 1000, text, 50);
    assert_string_equal(text, "enqueue  25%  500 tasks  500/s  3s left");
    progress_text(&unknown, 500, 0, 2000, text, sizeof text);
    assert_string_equal(text, "looking  500 tasks  250/s");
    progress_text(&known, 2000, 2000, 1000, text, sizeof text); /* the file has grown meanwhile */
    assert_string_equal(text, "enqueue [####################] 100%  2000 tasks  2000/s");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_frame_shows_totals_queues_and_nodes),
        TEST(every_frame_fits_its_size),
        TEST(keys_choose_a_queue_and_keep_it),
        TEST(requeue_asks_with_the_count_first),
        TEST(enter_opens_and_escape_goes_back),
        TEST(a_filter_leaves_what_holds_it),
        TEST(help_says_the_keys_and_goes),
        TEST(a_long_text_scrolls_to_its_end_and_no_further),
        TEST(rates_count_what_was_enqueued_done_and_failed),
        TEST(long_work_tells_its_rate_and_what_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
