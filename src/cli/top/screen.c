/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A frame: three lines about the whole, one about the page, the page, and at the bottom a line for keys,
 * questions and the filter. Every line fits the width; what does not is left out, the least important last in each line.
 */
#include <stdarg.h>

#include "base/text.h"
#include "cli/cli.h"
#include "cli/out.h"
#include "cli/show.h"
#include "cli/top/top.h"

enum {
    HEAD_LINES = 4,
    FOOT_LINES = 2, /* the first one empty */
    TABLE_HEAD = 1,
};

/* ---- lines ---------------------------------------------------------------------------------- */

/* A line of items, as many as fit. */
struct line {
    size_t width, max; /* max 0: as wide as it gets */
};

MR_PRINTF(3, 4) static void item(struct line *line, enum out_colour colour, const char *fmt, ...)
{
    char text[512];
    struct mr_buf scratch = {0};
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    const char *shown = out_escaped(&scratch, mr_slice_str(text));
    size_t gap = line->width > 0 ? 3 : 0;
    size_t width = gap + out_width(mr_slice_str(shown));
    if (line->max == 0 || line->width + width <= line->max) {
        bool coloured = colour != OUT_PLAIN;
        out_printf("%*s%s%s%s", (int)gap, "", coloured ? out_colour(colour) : "", shown,
                   coloured ? out_colour(OUT_PLAIN) : "");
        line->width += width;
    } else {
        line->width = line->max; /* nothing behind it either: the order stays */
    }
    mr_buf_done(&scratch);
}

static void per_second(struct line *line, enum out_colour colour, const char *what, double rate)
{
    item(line, rate > 0 ? colour : OUT_PLAIN, "%s %.*f/s", what, rate > 0 && rate < 10 ? 1 : 0,
         rate);
}

/* The fourth line: what is wrong, or else what the page is about. */
static void draw_title(const struct top_view *view, const struct top_model *model, size_t columns)
{
    const char *state = view->state == MR_STATE_NONE ? "" : mr_state_name(view->state);
    struct line line = {.max = columns};
    if (model->err != MR_OK)
        item(&line, OUT_RED, "! %s; trying again", mr_err_text(model->err));
    else if (model->stats.failed)
        item(&line, OUT_RED, "! a sync failed: the store must be opened again");
    else if (model->stats.disk_full)
        item(&line, OUT_RED, "! disk full: new work is refused");
    else if (view->page == TOP_TASKS && view->tasks_more)
        item(&line, OUT_BOLD, "queue %s, the first %zu %s%stasks", view->queue, view->tasks_n,
             state, *state ? " " : "");
    else if (view->page == TOP_TASKS)
        item(&line, OUT_BOLD, "queue %s, %s tasks", view->queue, *state ? state : "all");
    else if (view->page == TOP_TASK)
        item(&line, OUT_BOLD, "task %s", view->task);
    out_printf("\n");
}

static void draw_head(const struct top_view *view, const struct top_model *model, size_t columns)
{
    const struct mr_stats *stats = &model->stats;
    char at[32], every[32], disk[32], live[32], memory[32], p50[32], p99[32];
    mr_format_time_ms(model->at_ms, at);
    mr_format_duration_ms(view->every_ms, every);
    out_size(stats->disk_bytes, disk);
    out_size(stats->live_bytes, live);
    out_size(stats->memory_bytes, memory);
    out_latency(stats->sync_p50_us, p50);
    out_latency(stats->sync_p99_us, p99);
    struct line line = {.max = columns};
    item(&line, OUT_BOLD, "millrace");
    item(&line, OUT_PLAIN, "%s", view->broker);
    item(&line, OUT_DIM, "%.8sZ", strchr(at, 'T') + 1);
    item(&line, OUT_DIM, "every %s", every);
    out_printf("\n");
    line = (struct line){.max = columns};
    item(&line, OUT_BOLD, "tasks %llu", (unsigned long long)stats->tasks);
    per_second(&line, OUT_CYAN, "enqueued", model->rates.enqueued);
    per_second(&line, OUT_GREEN, "done", model->rates.done);
    per_second(&line, OUT_RED, "failed", model->rates.failed);
    out_printf("\n");
    line = (struct line){.max = columns};
    if (stats->segments > 0) /* else the server keeps them from this token */
        item(&line, OUT_PLAIN, "disk %s (live %s)", disk, live);
    item(&line, OUT_PLAIN, "sync %s, p99 %s", p50, p99);
    if (stats->segments > 0) {
        item(&line, OUT_PLAIN, "segments %llu", (unsigned long long)stats->segments);
        item(&line, OUT_PLAIN, "memory %s", memory);
    }
    out_printf("\n");
    draw_title(view, model, columns);
}

static void draw_foot(const struct top_view *view, size_t columns)
{
    static const char *const keys[] = {
        [TOP_QUEUES] = "enter open   p pause/resume   r requeue   / filter   ? help   q quit",
        [TOP_TASKS] = "enter open   s state   r requeue   / filter   ? help   q back",
        [TOP_TASK] = "r requeue   j k scroll   ? help   q back",
        [TOP_HELP] = "q back",
    };
    struct line line = {.max = columns};
    out_printf("\n");
    if (view->typing)
        item(&line, OUT_YELLOW, "/%s_", view->filter);
    else if (view->message[0])
        item(&line, OUT_YELLOW, "%s", view->message);
    else if (view->filter[0])
        item(&line, OUT_YELLOW, "filter /%s, esc lifts it", view->filter);
    else
        for (const char *at = keys[view->page]; *at;) { /* word by word, so that some fit */
            size_t len = strstr(at, "   ") ? (size_t)(strstr(at, "   ") - at) : strlen(at);
            item(&line, OUT_DIM, "%.*s", (int)len, at);
            at += len + strspn(at + len, " ");
        }
    out_printf("\n");
}

static size_t lines_of(struct mr_slice text)
{
    size_t n = 0;
    for (size_t i = 0; i < text.len; i++)
        n += ((const char *)text.data)[i] == '\n';
    return n;
}

/* ---- tables --------------------------------------------------------------------------------- */

/* The first row to show so that the chosen one is among `shown`. */
static size_t first_row(size_t chosen, size_t shown)
{
    return chosen < shown ? 0 : chosen - shown + 1;
}

/* The cell before each row; the mark stands for the colour where there is none. */
static void mark(struct out_table *table, bool chosen)
{
    if (chosen)
        out_table_choose(table);
    out_cell(table, OUT_PLAIN, chosen ? ">" : "");
}

static void count_cell(struct out_table *table, enum mr_state state, uint64_t n)
{
    out_cellf(table, n > 0 ? out_state_colour(state) : OUT_DIM, "%llu", (unsigned long long)n);
}

static void queue_row(struct out_table *table, const struct top_queue *queue, bool chosen)
{
    static const enum mr_state states[] = {MR_PENDING, MR_ACTIVE, MR_SCHEDULED, MR_RETRY,
                                           MR_ARCHIVED};
    const struct mr_queue_info *info = &queue->info;
    char wait[32], run[32];
    out_latency(info->wait_p99_us, wait);
    out_latency(info->run_p99_us, run);
    mark(table, chosen);
    out_cell_bytes(table, OUT_BOLD, mr_slice_str(info->name));
    for (size_t i = 0; i < CLI_LEN(states); i++)
        count_cell(table, states[i], info->counts[states[i]]);
    out_cellf(table, OUT_PLAIN, "%.0f", queue->rates.done);
    out_cellf(table, queue->rates.failed > 0 ? OUT_RED : OUT_PLAIN, "%.0f", queue->rates.failed);
    out_cell(table, OUT_PLAIN, wait);
    out_cell(table, OUT_PLAIN, run);
    out_cell(table, OUT_YELLOW, info->paused ? "paused" : "");
}

static void draw_queues(const struct top_view *view, const struct top_model *model, size_t shown)
{
    static const struct out_column columns[] = {
        {"", OUT_LEFT},
        {"QUEUE", OUT_STRETCH},
        {"PENDING", OUT_RIGHT},
        {"ACTIVE", OUT_RIGHT | OUT_SPARE(3)},
        {"SCHEDULED", OUT_RIGHT | OUT_SPARE(8)},
        {"RETRY", OUT_RIGHT | OUT_SPARE(5)},
        {"ARCHIVED", OUT_RIGHT | OUT_SPARE(4)},
        {"DONE/S", OUT_RIGHT | OUT_SPARE(2)},
        {"FAILED/S", OUT_RIGHT | OUT_SPARE(7)},
        {"WAIT P99", OUT_RIGHT | OUT_SPARE(6)},
        {"RUN P99", OUT_RIGHT | OUT_SPARE(9)},
        {"PAUSED", OUT_LEFT | OUT_SPARE(1)},
    };
    struct out_table *table = out_table_new(columns, CLI_LEN(columns));
    size_t first = first_row(view->chosen, shown);
    const struct top_queue *queue;
    for (size_t i = first; i < first + shown && (queue = top_queue_at(view, model, i)); i++)
        queue_row(table, queue, view->live && i == view->chosen);
    out_table_flush(table);
    out_table_free(table);
}

static void draw_nodes(const struct top_model *model, size_t shown)
{
    struct out_table *table = node_table();
    out_printf("\n");
    for (size_t i = 0; i < shown; i++)
        node_row(table, model->node_list, model->nodes[i]);
    out_table_flush(table);
    out_table_free(table);
}

/* Queues above, nodes below: a third of the lines is theirs, or what the queues leave. */
static void draw_queue_page(const struct top_view *view, const struct top_model *model,
                            size_t lines)
{
    size_t queues = top_rows(view, model), nodes = model->nodes_n;
    size_t for_nodes = nodes + TABLE_HEAD + 1, third = lines / 3;
    size_t left = lines > queues + TABLE_HEAD ? lines - queues - TABLE_HEAD : 0;
    size_t most = left > third ? left : third;
    if (for_nodes > most)
        for_nodes = most;
    nodes = for_nodes > TABLE_HEAD + 1 ? for_nodes - TABLE_HEAD - 1 : 0;
    for_nodes = nodes > 0 ? for_nodes : 0;
    size_t for_queues = lines > for_nodes + TABLE_HEAD ? lines - for_nodes - TABLE_HEAD : 1;
    if (queues > 0)
        draw_queues(view, model, for_queues);
    else
        out_printf("%s\n", view->filter[0] ? "no queue fits the filter" : "no queues");
    if (nodes > 0)
        draw_nodes(model, nodes);
}

static void draw_task_page(const struct top_view *view, const struct top_model *model, size_t lines)
{
    static const struct out_column columns[] = {
        {"", OUT_LEFT},
        {"ID", OUT_LEFT},
        {"TYPE", OUT_LEFT | OUT_SPARE(4)},
        {"STATE", OUT_LEFT | OUT_SPARE(1)},
        {"ATTEMPT", OUT_RIGHT | OUT_SPARE(3)},
        {"ERROR", OUT_STRETCH | OUT_SPARE(2)},
    };
    size_t shown = lines > TABLE_HEAD ? lines - TABLE_HEAD : 1;
    if (top_rows(view, model) == 0) {
        out_printf("%s\n", view->filter[0] ? "no task fits the filter" : "no tasks");
        return;
    }
    struct out_table *table = out_table_new(columns, CLI_LEN(columns));
    size_t first = first_row(view->chosen, shown);
    const struct mr_task *task;
    for (size_t i = first; i < first + shown && (task = top_task_at(view, i)); i++) {
        mark(table, i == view->chosen);
        out_cell_bytes(table, OUT_PLAIN, task->id);
        out_cell_bytes(table, OUT_PLAIN, task->type);
        out_cell(table, out_state_colour(task->state), mr_state_name(task->state));
        out_cellf(table, OUT_PLAIN, "%u", task->attempt);
        out_cell_bytes(table, OUT_PLAIN, task->last_error);
    }
    out_table_flush(table);
    out_table_free(table);
}

/* ---- pages of text -------------------------------------------------------------------------- */

/* From line `scroll` on, but so that the screen stays full where it can. */
static void draw_text(struct mr_slice text, size_t scroll, size_t lines)
{
    size_t n = lines_of(text), most = n > lines ? n - lines : 0;
    size_t skip = scroll < most ? scroll : most;
    const char *at = text.data, *end = at + text.len;
    for (; skip > 0; skip--)
        at = (const char *)memchr(at, '\n', (size_t)(end - at)) + 1;
    const char *stop = at;
    for (size_t i = 0; i < lines && stop < end; i++)
        stop = (const char *)memchr(stop, '\n', (size_t)(end - stop)) + 1;
    out_write(mr_slice_make(at, (size_t)(stop - at)));
}

/* No line is wider than 60, so that a small window shows it whole. */
static const char help[] = "up down j k    choose a row, or scroll\n"
                           "page up, down  ten rows\n"
                           "enter          open: the tasks of a queue, one task\n"
                           "p              pause or resume the queue\n"
                           "r              requeue the archived: of a queue, or one\n"
                           "s              tasks of the next state, then of all\n"
                           "/              only what holds a text; esc lifts it\n"
                           "q esc          back; from the queues: quit\n"
                           "?              this\n"
                           "\n"
                           "WAIT P99, RUN P99: of 100 tasks of the last minute, 99\n"
                           "waited for a worker, and ran, no longer than this.\n";

void top_draw(const struct top_view *view, const struct top_model *model, struct term_size size,
              struct mr_buf *frame)
{
    size_t around = HEAD_LINES + FOOT_LINES;
    size_t lines = size.rows > around + TABLE_HEAD ? size.rows - around : TABLE_HEAD + 1;
    out_set_columns(size.columns);
    out_capture(frame);
    draw_head(view, model, size.columns);
    if (view->page == TOP_QUEUES)
        draw_queue_page(view, model, lines);
    else if (view->page == TOP_TASKS)
        draw_task_page(view, model, lines);
    else
        draw_text(view->page == TOP_HELP ? MR_SLICE_LIT(help) : mr_buf_slice(&view->detail),
                  view->scroll, lines);
    for (size_t at = lines_of(mr_buf_slice(frame)); view->live && at + FOOT_LINES < size.rows; at++)
        out_printf("\n"); /* the keys stand at the bottom */
    if (view->live)
        draw_foot(view, size.columns);
    out_capture(NULL);
}
