/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of tasks, page by page, and one task by its id. */
#include "base/text.h"
#include "broker/hidden.h"
#include "cli/out.h"
#include "cli/show.h"

enum { LIMIT_DEFAULT = 50, PAGE = 100 };

static const struct out_column columns[] = {
    {"ID", OUT_LEFT},
    {"QUEUE", OUT_LEFT | OUT_SPARE(3)},
    {"TYPE", OUT_LEFT | OUT_SPARE(5)},
    {"STATE", OUT_LEFT | OUT_SPARE(1)},
    {"ATTEMPT", OUT_RIGHT | OUT_SPARE(6)},
    {"WHEN", OUT_LEFT | OUT_SPARE(4)},
    {"PAYLOAD OR ERROR", OUT_STRETCH | OUT_SPARE(2)},
};

struct mr_list_options show_list_options(const struct show_filter *filter)
{
    return (struct mr_list_options){
        .queue = mr_slice_str(filter->queue.given ? filter->queue.text : ""),
        .type = mr_slice_str(filter->type.given ? filter->type.text : ""),
        .state = filter->state.given ? (enum mr_state)(filter->state.number + 1) : MR_STATE_NONE,
        .held = filter->held.given,
    };
}

bool show_operation_options(const struct show_filter *filter, struct mr_list_options *options)
{
    if (!filter->operations || filter->queue.given)
        return false;
    options->queue = mr_slice_str(MR_TIMERS_QUEUE);
    options->cursor = NULL;
    return true;
}

/* The moment that matters in its state: when it ended, when it is due, when it came. */
static int64_t moment(const struct mr_task *task)
{
    if (task->state == MR_ARCHIVED || task->state == MR_COMPLETED)
        return task->finished_ms;
    if (task->state == MR_SCHEDULED || task->state == MR_RETRY)
        return task->due_ms;
    return task->state == MR_ACTIVE && task->started_ms ? task->started_ms : task->created_ms;
}

static void add_row(struct out_table *table, const struct mr_task *task)
{
    char when[48];
    out_relative(moment(task), out_now_ms(), when);
    out_cell_bytes(table, OUT_PLAIN, task->id);
    out_cell_bytes(table, OUT_PLAIN, mr_queue_shown(task->queue));
    out_cell_bytes(table, OUT_PLAIN, task->type);
    out_cell(table, out_state_colour(task->state), mr_state_name(task->state));
    out_cellf(table, OUT_PLAIN, "%u", task->attempt);
    out_cell(table, OUT_PLAIN, when);
    bool failed = task->state == MR_ARCHIVED || task->state == MR_RETRY;
    struct mr_buf text = {0};
    if (show_operation(task, &text) && failed)
        cli_must(mr_buf_printf(&text, ": "));
    if (failed && task->last_error.len)
        cli_must(mr_buf_append_slice(&text, task->last_error));
    out_cell_bytes(table, OUT_PLAIN, text.len ? mr_buf_slice(&text) : task->payload);
    mr_buf_done(&text);
}

/* Where the tasks of a list go. */
struct sink {
    bool json;
    struct jw jw;
    struct out_table *table;
};

static void sink_begin(struct sink *sink, bool json)
{
    sink->json = json;
    if (json)
        jw_array_begin(&sink->jw, NULL);
    else
        sink->table = out_table_new(columns, CLI_LEN(columns));
}

static void sink_page(struct sink *sink, const struct mr_task_list *list, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (sink->json)
            jw_task(&sink->jw, mr_task_list_at(list, i));
        else
            add_row(sink->table, mr_task_list_at(list, i));
    }
    if (n == 0)
        return;
    if (sink->json)
        jw_flush(&sink->jw);
    else
        out_table_flush(sink->table);
}

/* A document that was begun is ended, also when the list could not be. */
static void sink_end(struct sink *sink, enum mr_err err, size_t shown)
{
    if (sink->json && (err == MR_OK || shown > 0)) {
        jw_array_end(&sink->jw);
        jw_finish(&sink->jw);
    }
    mr_buf_done(&sink->jw.buf);
    out_table_free(sink->table);
}

/* Prints pages until the limit or the end; tells whether there is more. */
static enum mr_err list_pages(struct cli *cli, struct mr_list_options options, size_t limit,
                              struct sink *sink, size_t *shown, bool *ret_more)
{
    struct mr_task_list *list = NULL;
    bool more = true;
    char cursor[256];
    while (more && *shown < limit && !out_broken()) {
        options.limit = limit - *shown < PAGE ? limit - *shown : PAGE;
        enum mr_err err = mr_task_list_get(cli->client, &options, &list);
        if (err != MR_OK)
            return err;
        size_t n = mr_task_list_count(list);
        sink_page(sink, list, n);
        *shown += n;
        snprintf(cursor, sizeof cursor, "%s", mr_task_list_next(list));
        options.cursor = cursor;
        more = cursor[0] != '\0';
        mr_task_list_free(list);
        list = NULL;
    }
    *ret_more = more;
    return MR_OK;
}

int show_list_failed(const struct show_filter *filter, enum mr_err err)
{
    if (err == MR_NOT_FOUND && filter->queue.given)
        return cli_fail_err(err, "queue %s", filter->queue.text);
    return cli_fail_err(err, "cannot list tasks");
}

int show_list(struct cli *cli, const struct show_filter *filter, enum mr_state only)
{
    struct mr_list_options options = show_list_options(filter);
    if (only != MR_STATE_NONE)
        options.state = only;
    options.with_payload = true;
    size_t limit = filter->limit.given ? (size_t)filter->limit.number : LIMIT_DEFAULT;
    struct sink sink = {0};
    size_t shown = 0;
    bool more = false;
    sink_begin(&sink, cli->json);
    enum mr_err err = list_pages(cli, options, limit, &sink, &shown, &more);
    if (err == MR_OK && !more && show_operation_options(filter, &options)) {
        err = list_pages(cli, options, limit, &sink, &shown, &more);
        err = err == MR_NOT_FOUND ? MR_OK : err; /* nobody has made a timer here yet */
    }
    sink_end(&sink, err, shown);
    if (err != MR_OK)
        return show_list_failed(filter, err);
    out_flush();
    if (out_broken()) /* who stopped reading wants no advice */
        return CLI_OK;
    if (more)
        cli_note(cli, "%zu shown, there are more: --limit N shows more", shown);
    else if (shown == 0)
        cli_note(cli, "no tasks");
    return CLI_OK;
}

int show_one(struct cli *cli, const char *id, enum mr_state must_be)
{
    struct mr_task_list *list = NULL;
    enum mr_err err = mr_task_get(cli->client, mr_slice_str(id), &list);
    if (err != MR_OK)
        return cli_fail_err(err, "task %s", id);
    const struct mr_task *task = mr_task_list_at(list, 0);
    int code = CLI_OK;
    if (must_be != MR_STATE_NONE && task->state != must_be) {
        code = cli_fail(CLI_CONFLICT, "task %s is %s, not %s; see millrace task show", id,
                        mr_state_name(task->state), mr_state_name(must_be));
    } else if (cli->json) {
        struct jw jw = {0};
        jw_task(&jw, task);
        jw_finish(&jw);
    } else {
        show_task_text(task);
    }
    mr_task_list_free(list);
    return code;
}
