/* SPDX-License-Identifier: Apache-2.0 */
/* What keys do to the view. */
#include "cli/top/top.h"

#include "cli/cli.h"

/* ---- rows ----------------------------------------------------------------------------------- */

static bool holds(struct mr_slice text, const char *part)
{
    return !*part || memmem(text.data, text.len, part, strlen(part)) != NULL;
}

static bool queue_fits(const struct top_view *view, const struct top_queue *queue)
{
    return holds(mr_slice_str(queue->info.name), view->filter);
}

static bool task_fits(const struct top_view *view, const struct mr_task *task)
{
    return holds(task->id, view->filter) || holds(task->type, view->filter) ||
           holds(mr_slice_str(mr_state_name(task->state)), view->filter);
}

const struct top_queue *top_queue_at(const struct top_view *view, const struct top_model *model,
                                     size_t row)
{
    for (size_t i = 0; i < model->queues_n; i++)
        if (queue_fits(view, &model->queues[i]) && row-- == 0)
            return &model->queues[i];
    return NULL;
}

const struct mr_task *top_task_at(const struct top_view *view, size_t row)
{
    for (size_t i = 0; i < view->tasks_n; i++)
        if (task_fits(view, view->tasks[i]) && row-- == 0)
            return view->tasks[i];
    return NULL;
}

/* Counts the rows; ret_row (may be NULL) is that of what was chosen by name, if it is there. */
static size_t count_rows(const struct top_view *view, const struct top_model *model,
                         size_t *ret_row)
{
    size_t n = 0;
    for (size_t i = 0; view->page == TOP_QUEUES && i < model->queues_n; i++) {
        const struct top_queue *queue = &model->queues[i];
        if (!queue_fits(view, queue))
            continue;
        if (ret_row && strcmp(queue->info.name, view->queue) == 0)
            *ret_row = n;
        n++;
    }
    for (size_t i = 0; view->page == TOP_TASKS && i < view->tasks_n; i++) {
        const struct mr_task *task = view->tasks[i];
        if (!task_fits(view, task))
            continue;
        if (ret_row && mr_slice_equal(task->id, mr_slice_str(view->task)))
            *ret_row = n;
        n++;
    }
    return n;
}

size_t top_rows(const struct top_view *view, const struct top_model *model)
{
    return count_rows(view, model, NULL);
}

/* Remembers what the chosen row is about. */
static void name_chosen(struct top_view *view, const struct top_model *model)
{
    const struct top_queue *queue = top_queue_at(view, model, view->chosen);
    const struct mr_task *task = top_task_at(view, view->chosen);
    if (view->page == TOP_QUEUES)
        snprintf(view->queue, sizeof view->queue, "%s", queue ? queue->info.name : "");
    if (view->page == TOP_TASKS)
        snprintf(view->task, sizeof view->task, "%.*s", task ? (int)task->id.len : 0,
                 task ? (const char *)task->id.data : "");
}

void top_settle(struct top_view *view, const struct top_model *model)
{
    if (view->page != TOP_QUEUES && view->page != TOP_TASKS)
        return;
    size_t n = count_rows(view, model, &view->chosen);
    if (view->chosen >= n)
        view->chosen = n > 0 ? n - 1 : 0;
    name_chosen(view, model);
}

/* ---- moving --------------------------------------------------------------------------------- */

static void move_to(struct top_view *view, const struct top_model *model, size_t row)
{
    size_t n = top_rows(view, model);
    view->chosen = row < n ? row : n > 0 ? n - 1 : 0;
    name_chosen(view, model);
}

/* By so many rows, or lines of the detail. */
static void move_by(struct top_view *view, const struct top_model *model, long rows)
{
    size_t *at = view->page == TOP_TASK ? &view->scroll : &view->chosen;
    size_t to = rows < 0 && (size_t)-rows > *at ? 0 : *at + (size_t)rows;
    if (view->page == TOP_TASK)
        view->scroll = to; /* the screen stops at the last line */
    else
        move_to(view, model, to);
}

static bool press_move(struct top_view *view, const struct top_model *model, int key)
{
    enum { PAGE_ROWS = 10 };
    static const struct {
        int key;
        long rows;
    } moves[] = {
        {TERM_UP, -1},
        {'k', -1},
        {TERM_DOWN, 1},
        {'j', 1},
        {TERM_PAGE_UP, -PAGE_ROWS},
        {TERM_PAGE_DOWN, PAGE_ROWS},
        {TERM_HOME, -(1L << 30)},
        {TERM_LAST, 1L << 30},
    };
    for (size_t i = 0; i < CLI_LEN(moves); i++) {
        if (moves[i].key == key) {
            move_by(view, model, moves[i].rows);
            return true;
        }
    }
    return false;
}

/* ---- the other keys ------------------------------------------------------------------------- */

static enum top_want go(struct top_view *view, enum top_page page)
{
    view->page = page;
    view->filter[0] = '\0';
    view->chosen = view->scroll = 0;
    return TOP_OPEN;
}

static enum top_want press_back(struct top_view *view, const struct top_model *model)
{
    (void)model;
    if (view->page == TOP_HELP) {
        view->page = view->back;
        return TOP_NOTHING;
    }
    if (view->filter[0]) {
        view->filter[0] = '\0';
        return TOP_OPEN;
    }
    if (view->page == TOP_QUEUES)
        return TOP_QUIT;
    return go(view, view->page == TOP_TASK ? TOP_TASKS : TOP_QUEUES);
}

static enum top_want press_enter(struct top_view *view, const struct top_model *model)
{
    if (view->page == TOP_QUEUES && top_queue_at(view, model, view->chosen)) {
        view->task[0] = '\0';
        view->state = MR_STATE_NONE;
        return go(view, TOP_TASKS);
    }
    if (view->page == TOP_TASKS && top_task_at(view, view->chosen))
        return go(view, TOP_TASK);
    return TOP_NOTHING;
}

/* All, then one state after the other. */
static enum top_want press_state(struct top_view *view, const struct top_model *model)
{
    (void)model;
    if (view->page != TOP_TASKS)
        return TOP_NOTHING;
    view->state = (view->state + 1) % MR_STATE_COUNT;
    return TOP_OPEN;
}

static enum top_want press_filter(struct top_view *view, const struct top_model *model)
{
    (void)model;
    view->typing = view->page == TOP_QUEUES || view->page == TOP_TASKS;
    return TOP_NOTHING;
}

static enum top_want press_help(struct top_view *view, const struct top_model *model)
{
    (void)model;
    if (view->page != TOP_HELP)
        view->back = view->page;
    view->page = TOP_HELP;
    return TOP_NOTHING;
}

static enum top_want press_pause(struct top_view *view, const struct top_model *model)
{
    (void)model;
    return view->page != TOP_HELP && view->queue[0] ? TOP_PAUSE : TOP_NOTHING;
}

static uint64_t archived_of(const struct top_view *view, const struct top_model *model)
{
    for (size_t i = 0; i < model->queues_n; i++)
        if (strcmp(model->queues[i].info.name, view->queue) == 0)
            return model->queues[i].info.counts[MR_ARCHIVED];
    return 0;
}

static enum top_want press_requeue(struct top_view *view, const struct top_model *model)
{
    uint64_t n = archived_of(view, model);
    const struct mr_task *task = view->page == TOP_TASKS ? top_task_at(view, view->chosen) : NULL;
    view->asked = TOP_NOTHING;
    if (view->page == TOP_QUEUES && n > 0) {
        view->asked = TOP_REQUEUE_QUEUE;
        snprintf(view->message, sizeof view->message, "requeue %llu archived %s of %s? y/n",
                 (unsigned long long)n, n == 1 ? "task" : "tasks", view->queue);
    } else if (view->page == TOP_TASK || (task && task->state == MR_ARCHIVED)) {
        view->asked = TOP_REQUEUE_TASK;
        snprintf(view->message, sizeof view->message, "requeue task %s? y/n", view->task);
    } else if (view->page != TOP_HELP) {
        snprintf(view->message, sizeof view->message, "nothing archived here to requeue");
    }
    return TOP_NOTHING;
}

static const struct {
    int key;
    enum top_want (*press)(struct top_view *, const struct top_model *);
} keys[] = {
    {'q', press_back}, {TERM_ESCAPE, press_back}, {TERM_ENTER, press_enter}, {'/', press_filter},
    {'?', press_help}, {'p', press_pause},        {'r', press_requeue},      {'s', press_state},
};

/* ---- the filter, and questions -------------------------------------------------------------- */

/* The last character, all bytes of it. */
static void drop_last(char *text)
{
    size_t len = strlen(text);
    while (len > 0 && (text[--len] & 0xc0) == 0x80)
        ;
    text[len] = '\0';
}

static enum top_want type_filter(struct top_view *view, const struct top_model *model, int key)
{
    size_t len = strlen(view->filter);
    view->typing = key != TERM_ENTER && key != TERM_ESCAPE;
    if (key == TERM_ESCAPE)
        view->filter[0] = '\0';
    else if (key == TERM_BACKSPACE)
        drop_last(view->filter);
    else if (key >= ' ' && key < TERM_UP && len + 1 < sizeof view->filter)
        view->filter[len] = (char)key, view->filter[len + 1] = '\0';
    top_settle(view, model);
    return TOP_NOTHING;
}

enum top_want top_press(struct top_view *view, const struct top_model *model, int key)
{
    if (key == TERM_NONE || key == TERM_REDRAW || key == TERM_OTHER)
        return TOP_NOTHING;
    if (view->typing)
        return type_filter(view, model, key);
    enum top_want asked = view->asked;
    view->asked = TOP_NOTHING;
    view->message[0] = '\0';
    if (asked != TOP_NOTHING) {
        if (key == 'y' || key == 'Y')
            return asked;
        snprintf(view->message, sizeof view->message, "nothing done");
        return TOP_NOTHING;
    }
    if (press_move(view, model, key))
        return TOP_NOTHING;
    for (size_t i = 0; i < CLI_LEN(keys); i++)
        if (keys[i].key == key)
            return keys[i].press(view, model);
    return TOP_NOTHING;
}
