/* SPDX-License-Identifier: Apache-2.0 */
/* millrace top: looks, draws, waits for a key, does what it says, until it is enough. */
#include <stdarg.h>
#include <stdlib.h>

#include "cli/out.h"
#include "cli/show.h"
#include "cli/task.h"
#include "cli/top/top.h"

enum { EVERY_MS = 1000, EVERY_MIN_MS = 100, TASKS_SHOWN = 200 };

struct top_args {
    struct cli_value interval, once;
};

struct top {
    struct cli *cli;
    struct top_model model;
    struct top_view view;
    struct mr_task_list *tasks; /* what the view's tasks live in */
    struct mr_buf frame;
};

/* ---- what pages show ------------------------------------------------------------------------ */

static enum mr_err open_tasks(struct top *top)
{
    struct mr_list_options options = {
        .queue = mr_slice_str(top->view.queue), .state = top->view.state, .limit = TASKS_SHOWN};
    struct mr_task_list *list = NULL;
    MR_TRY(mr_task_list_get(top->cli->client, &options, &list));
    mr_task_list_free(top->tasks);
    top->tasks = list;
    top->view.tasks_n = mr_task_list_count(list);
    top->view.tasks_more = *mr_task_list_next(list) != '\0';
    top->view.tasks = cli_grow(top->view.tasks, top->view.tasks_n, sizeof *top->view.tasks);
    for (size_t i = 0; i < top->view.tasks_n; i++)
        top->view.tasks[i] = mr_task_list_at(list, i);
    return MR_OK;
}

/* As `task why` and `task show` say it, errors included. */
static void open_task(struct top *top)
{
    char *words[] = {top->view.task, NULL};
    struct cli cli = *top->cli;
    cli.words = words;
    cli.words_n = 1;
    mr_buf_clear(&top->view.detail);
    out_capture(&top->view.detail);
    if (task_why(&cli, NULL) == CLI_OK) {
        out_printf("\n");
        (void)show_one(&cli, top->view.task, MR_STATE_NONE);
    }
    out_capture(NULL);
}

/* Everything anew. A broker that is away is told on the screen, and asked again. */
static void look(struct top *top)
{
    term_busy();
    enum mr_err err = top_look(&top->model, top->cli->client);
    if (err == MR_OK && top->view.page == TOP_TASKS)
        top->model.err = open_tasks(top);
    else if (err == MR_OK && top->view.page == TOP_TASK)
        open_task(top);
    term_idle();
    if (top->model.err == MR_NOT_FOUND) { /* the queue has gone */
        top->view.tasks_n = 0;
        top->model.err = MR_OK;
    }
    top_settle(&top->view, &top->model);
}

/* ---- what keys do --------------------------------------------------------------------------- */

MR_PRINTF(3, 4) static void tell(struct top *top, enum mr_err err, const char *fmt, ...)
{
    char text[sizeof top->view.message];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    snprintf(top->view.message, sizeof top->view.message, "%.180s%s%s", text,
             err == MR_OK ? "" : ": ", err == MR_OK ? "" : mr_err_text(err));
}

static void pause_or_resume(struct top *top)
{
    struct mr_queue_info info;
    struct mr_slice name = mr_slice_str(top->view.queue);
    enum mr_err err = mr_queue_get(top->cli->client, name, &info);
    bool paused = err == MR_OK && info.paused;
    if (err == MR_OK)
        err = paused ? mr_queue_resume(top->cli->client, name)
                     : mr_queue_pause(top->cli->client, name);
    tell(top, err, "queue %s is %s", top->view.queue,
         err != MR_OK ? "as it was"
         : paused     ? "running"
                      : "paused");
}

static enum mr_err requeue(struct mr_client *client, const struct mr_task_list *list, size_t n,
                           uint64_t *done)
{
    struct mr_control *items = cli_alloc(n, sizeof *items);
    enum mr_err *errs = cli_alloc(n, sizeof *errs);
    for (size_t i = 0; i < n; i++)
        items[i] = (struct mr_control){.verb = MR_VERB_RUN, .id = mr_task_list_at(list, i)->id};
    enum mr_err err = mr_control(client, items, n, errs);
    for (size_t i = 0; err == MR_OK && i < n; i++)
        *done += errs[i] == MR_OK;
    free(items);
    free(errs);
    return err;
}

/* As many as were archived when it was asked; those that cannot be requeued are met once. */
static void requeue_queue(struct top *top)
{
    struct mr_queue_info info;
    struct mr_list_options options = {
        .queue = mr_slice_str(top->view.queue), .state = MR_ARCHIVED, .limit = MR_BATCH_MAX};
    enum mr_err err = mr_queue_get(top->cli->client, options.queue, &info);
    uint64_t left = err == MR_OK ? info.counts[MR_ARCHIVED] : 0, done = 0;
    char cursor[256] = "";
    do {
        struct mr_task_list *list = NULL;
        options.cursor = cursor[0] ? cursor : NULL;
        if (err == MR_OK)
            err = mr_task_list_get(top->cli->client, &options, &list);
        if (err != MR_OK)
            break;
        size_t n = mr_task_list_count(list);
        n = n < left ? n : (size_t)left;
        left -= n;
        snprintf(cursor, sizeof cursor, "%s", mr_task_list_next(list));
        err = requeue(top->cli->client, list, n, &done);
        mr_task_list_free(list);
    } while (err == MR_OK && cursor[0] && left > 0);
    tell(top, err, "requeued %llu %s of %s", (unsigned long long)done, done == 1 ? "task" : "tasks",
         top->view.queue);
}

static void requeue_task(struct top *top)
{
    struct mr_control item = {.verb = MR_VERB_RUN, .id = mr_slice_str(top->view.task)};
    enum mr_err item_err = MR_OK;
    enum mr_err err = mr_control(top->cli->client, &item, 1, &item_err);
    err = err == MR_OK ? item_err : err;
    tell(top, err, err == MR_OK ? "task %s is requeued" : "task %s", top->view.task);
}

/* Whether to go on. */
static bool carry_out(struct top *top, enum top_want want)
{
    static void (*const acts[])(struct top *) = {
        [TOP_PAUSE] = pause_or_resume,
        [TOP_REQUEUE_QUEUE] = requeue_queue,
        [TOP_REQUEUE_TASK] = requeue_task,
    };
    if (want == TOP_QUIT)
        return false;
    term_busy();
    if (want < CLI_LEN(acts) && acts[want])
        acts[want](top);
    term_idle();
    if (want != TOP_NOTHING)
        look(top);
    return true;
}

/* ---- running -------------------------------------------------------------------------------- */

static void draw(struct top *top)
{
    mr_buf_clear(&top->frame);
    top_draw(&top->view, &top->model, term_size(), &top->frame);
    term_draw(mr_buf_slice(&top->frame));
}

static int run_screen(struct top *top)
{
    struct mr_clock *clock = mr_clock_system();
    term_start(TERM_SCREEN);
    bool goes_on = true;
    mr_mono next = mr_mono_add_ms(mr_mono_now(clock), top->view.every_ms);
    while (goes_on) {
        draw(top);
        int64_t left_ns = next.ns - mr_mono_now(clock).ns;
        int key = term_key(left_ns > 0 ? (left_ns + MR_NS_PER_MS - 1) / MR_NS_PER_MS : 0);
        goes_on = key != TERM_ENDED && carry_out(top, top_press(&top->view, &top->model, key));
        if (goes_on && mr_mono_now(clock).ns >= next.ns) {
            look(top);
            next = mr_mono_add_ms(mr_mono_now(clock), top->view.every_ms);
        }
    }
    int number = term_signal();
    term_end();
    return number ? CLI_SIGNAL_BASE + number : CLI_OK;
}

static void print_frame(struct top *top)
{
    if (top->cli->json) {
        struct jw jw = {0};
        top_json(&jw, &top->model);
        jw_finish(&jw);
    } else {
        enum { ROWS_ENOUGH = 1 << 20 };
        struct term_size size = {ROWS_ENOUGH, out_is_terminal() ? term_size().columns : 0};
        mr_buf_clear(&top->frame);
        top_draw(&top->view, &top->model, size, &top->frame);
        out_write(mr_buf_slice(&top->frame));
    }
    out_flush();
}

/* A frame each time, or one: the first look alone has no rates, so it is never shown. */
static int run_lines(struct top *top, bool once)
{
    term_start(TERM_LINES);
    enum mr_err err = MR_OK;
    do {
        if (term_key(top->view.every_ms) != TERM_NONE)
            break;
        err = top_look(&top->model, top->cli->client);
        if (err == MR_OK)
            print_frame(top);
    } while (err == MR_OK && !once && !out_broken());
    int number = term_signal();
    term_end();
    if (err != MR_OK)
        return cli_fail_err(err, "cannot look at %s", top->cli->shown);
    return number ? CLI_SIGNAL_BASE + number : CLI_OK;
}

static int run(struct cli *cli, void *args_)
{
    const struct top_args *args = args_;
    int64_t every_ms = args->interval.given ? args->interval.number : EVERY_MS;
    bool screen = !args->once.given && !cli->json;
    if (screen && !out_can_draw())
        return cli_usage(cli, "top needs a terminal%s; --once prints one frame, --json a line each",
                         out_is_terminal() ? " that can draw, and TERM says it is dumb" : "");
    int code = cli_open(cli, NULL, CLI_STORE_MUST_EXIST);
    if (code != CLI_OK)
        return code;
    struct top *top = cli_alloc(1, sizeof *top);
    top->cli = cli;
    top->view.broker = cli->shown;
    top->view.every_ms = every_ms;
    top->view.live = screen;
    look(top);
    if (top->model.err != MR_OK)
        code = cli_fail_err(top->model.err, "cannot look at %s", cli->shown);
    else
        code = screen ? run_screen(top) : run_lines(top, args->once.given);
    top_model_done(&top->model);
    mr_task_list_free(top->tasks);
    free(top->view.tasks);
    mr_buf_done(&top->view.detail);
    mr_buf_done(&top->frame);
    free(top);
    return code;
}

static const struct cli_option options[] = {
    {.name = "interval",
     .kind = CLI_DURATION,
     .offset = offsetof(struct top_args, interval),
     .value = "D",
     .help = "look again every D (default 1s)",
     .min = EVERY_MIN_MS},
    {.name = "once",
     .kind = CLI_FLAG,
     .offset = offsetof(struct top_args, once),
     .help = "print one frame, with the rates of one interval, and end"},
};

static const struct cli_verb verb = {
    .synopsis = "",
    .about =
        "Shows queues, rates, latencies and workers, live on the whole terminal. Keys: arrows or "
        "j\n"
        "k choose, enter opens, p pauses or resumes, r requeues, / filters, ? helps, q quits.\n"
        "With --json a line for each look.",
    .examples = CLI_EXAMPLES("millrace top", "millrace top --interval 5s", "millrace top --once",
                             "millrace top --json | jq .done_per_s"),
    CLI_OPTIONS(options, struct top_args),
    .run = run,
};

const struct cli_command cli_top = {
    .name = "top", .about = "live view of queues and workers", .verbs = &verb, .verbs_n = 1};
