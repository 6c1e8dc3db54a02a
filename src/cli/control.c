/* SPDX-License-Identifier: Apache-2.0 */
/* See control.h. */
#include <stdlib.h>
#include <unistd.h>

#include "base/arena.h"
#include "base/text.h"
#include "cli/control.h"
#include "cli/out.h"
#include "cli/progress.h"

enum { PAGE = 1000, SAMPLE = 5 };

/* Ids to act on and what came of it. */
struct work {
    struct cli *cli;
    const struct control_plan *plan;
    struct mr_arena arena; /* of the ids */
    struct mr_slice *ids;
    size_t n, cap;
    size_t done, failed;
    enum mr_err last_err;
    struct jw jw; /* errors, as they come */
};

static void add_id(struct work *work, struct mr_slice id)
{
    if (work->n == work->cap) {
        work->cap = work->cap ? work->cap * 2 : PAGE;
        work->ids = cli_grow(work->ids, work->cap, sizeof *work->ids);
    }
    cli_must(mr_arena_copy(&work->arena, id, &work->ids[work->n]));
    work->n++;
}

/* ---- finding -------------------------------------------------------------------------------- */

static bool fits(const struct control_plan *plan, const struct show_filter *filter,
                 enum mr_state state)
{
    return (filter->state.given && !plan->states_only) ||
           (plan->states & CONTROL_STATE(state)) != 0;
}

static enum mr_err find_in(struct work *work, const struct show_filter *filter,
                           struct mr_list_options options)
{
    size_t limit = filter->limit.given ? (size_t)filter->limit.number : SIZE_MAX;
    char cursor[256] = "";
    options.limit = PAGE;
    uint64_t seen = 0;
    struct progress progress;
    progress_start(&progress, work->cli, "looking", 0);
    /* One state alone is found by its own index. */
    for (enum mr_state state = MR_SCHEDULED; state < MR_STATE_COUNT; state++)
        if (work->plan->states == CONTROL_STATE(state) && !filter->state.given)
            options.state = state;
    do {
        struct mr_task_list *list = NULL;
        options.cursor = cursor[0] ? cursor : NULL;
        enum mr_err err = mr_task_list_get(work->cli->client, &options, &list);
        if (err != MR_OK) {
            progress_end(&progress);
            return err;
        }
        seen += mr_task_list_count(list);
        progress_at(&progress, seen, 0);
        for (size_t i = 0; i < mr_task_list_count(list) && work->n < limit; i++) {
            const struct mr_task *task = mr_task_list_at(list, i);
            if (fits(work->plan, filter, task->state))
                add_id(work, task->id);
        }
        snprintf(cursor, sizeof cursor, "%s", mr_task_list_next(list));
        mr_task_list_free(list);
    } while (cursor[0] && work->n < limit);
    progress_end(&progress);
    return MR_OK;
}

static enum mr_err find(struct work *work, const struct show_filter *filter)
{
    struct mr_list_options options = show_list_options(filter);
    enum mr_err err = find_in(work, filter, options);
    if (err == MR_OK && show_operation_options(filter, &options)) {
        err = find_in(work, filter, options);
        err = err == MR_NOT_FOUND ? MR_OK : err; /* nobody has made a timer here yet */
    }
    return err;
}

/* ---- acting --------------------------------------------------------------------------------- */

/* Which state it is that does not allow it; it may be another one by now. */
static enum mr_state state_of(const struct work *work, struct mr_slice id)
{
    struct mr_task_list *list = NULL;
    enum mr_state state = MR_STATE_NONE;
    if (mr_task_get(work->cli->client, id, &list) == MR_OK)
        state = mr_task_list_at(list, 0)->state;
    mr_task_list_free(list);
    return state;
}

static void note_failure(struct work *work, struct mr_slice id, enum mr_err err)
{
    struct mr_detail why;
    bool told = work->cli->json || work->failed < SAMPLE;
    enum mr_state state = told && err == MR_WRONG_STATE ? state_of(work, id) : MR_STATE_NONE;
    work->failed++;
    work->last_err = err;
    cli_err_text(err, &why);
    if (state != MR_STATE_NONE)
        mr_detail_set(&why, "%s: it is %s", mr_err_text(err), mr_state_name(state));
    if (work->cli->json) {
        struct jw *jw = &work->jw;
        if (jw->depth == 0)
            jw_array_begin(jw, NULL);
        jw_object_begin(jw, NULL);
        jw_bytes(jw, "id", id);
        jw_error(jw, err, state != MR_STATE_NONE ? why.text : mr_err_text(err), state);
        jw_object_end(jw);
    }
    if (work->failed <= SAMPLE)
        cli_fail(mr_err_exit_code(err), "cannot %s task %.*s: %s", work->plan->name, (int)id.len,
                 (const char *)id.data, why.text);
}

static enum mr_err act(struct work *work)
{
    struct mr_control *items = cli_alloc(PAGE, sizeof *items);
    enum mr_err *errs = cli_alloc(PAGE, sizeof *errs);
    enum mr_err err = MR_OK;
    struct progress progress;
    progress_start(&progress, work->cli, work->plan->name, work->n);
    for (size_t at = 0; err == MR_OK && at < work->n; at += PAGE) {
        progress_at(&progress, at, at);
        size_t n = work->n - at < PAGE ? work->n - at : PAGE;
        for (size_t i = 0; i < n; i++)
            items[i] = (struct mr_control){
                .verb = work->plan->verb, .id = work->ids[at + i], .value = work->plan->value};
        err = mr_control(work->cli->client, items, n, errs);
        for (size_t i = 0; err == MR_OK && i < n; i++) {
            if (errs[i] == MR_OK)
                work->done++;
            else
                note_failure(work, work->ids[at + i], errs[i]);
        }
    }
    progress_end(&progress);
    free(items);
    free(errs);
    return err;
}

/* Named tasks of a verb that is about one state only: the others are refused, not acted on. */
static enum mr_err sort_out_named(struct work *work)
{
    size_t kept = 0;
    for (size_t i = 0; i < work->n; i++) {
        struct mr_task_list *list = NULL;
        enum mr_err err = mr_task_get(work->cli->client, work->ids[i], &list);
        if (err == MR_OK && !(work->plan->states & CONTROL_STATE(mr_task_list_at(list, 0)->state)))
            err = MR_WRONG_STATE;
        mr_task_list_free(list);
        if (err == MR_OK)
            work->ids[kept++] = work->ids[i];
        else if (err == MR_WRONG_STATE || err == MR_NOT_FOUND)
            note_failure(work, work->ids[i], err);
        else
            return err;
    }
    work->n = kept;
    return MR_OK;
}

/* ---- telling -------------------------------------------------------------------------------- */

static void tell_json(struct work *work, size_t matched, bool dry_run)
{
    struct jw jw = {0};
    jw_object_begin(&jw, NULL);
    jw_text(&jw, "verb", work->plan->name);
    jw_uint(&jw, "matched", matched);
    jw_uint(&jw, "done", work->done);
    jw_uint(&jw, "failed", work->failed);
    jw_bool(&jw, "dry_run", dry_run);
    jw_array_begin(&jw, "sample");
    for (size_t i = 0; i < work->n && i < SAMPLE; i++)
        jw_bytes(&jw, NULL, work->ids[i]);
    jw_array_end(&jw);
    if (work->failed > 0) {
        jw_array_end(&work->jw);
        cli_must(mr_buf_printf(&jw.buf, ",\"errors\":"));
        cli_must(mr_buf_append_slice(&jw.buf, mr_buf_slice(&work->jw.buf)));
    }
    jw_object_end(&jw);
    jw_finish(&jw);
}

static const char *plural(size_t n)
{
    return n == 1 ? "task" : "tasks";
}

static int tell(struct work *work, size_t matched)
{
    if (work->cli->json)
        tell_json(work, matched, false);
    else if (work->done > 0 || work->failed == 0)
        cli_note(work->cli, "%s %zu %s", work->plan->did, work->done, plural(work->done));
    if (work->failed == 0)
        return CLI_OK;
    if (work->failed > SAMPLE)
        cli_fail(CLI_FAILED, "%zu tasks could not be %s in all", work->failed, work->plan->did);
    return matched == 1 ? mr_err_exit_code(work->last_err) : CLI_FAILED;
}

static int tell_dry_run(struct work *work)
{
    if (work->cli->json) {
        tell_json(work, work->n, true);
        return CLI_OK;
    }
    out_printf("would have %s %zu %s%s\n", work->plan->did, work->n, plural(work->n),
               work->n ? ":" : "");
    for (size_t i = 0; i < work->n && i < SAMPLE; i++)
        out_printf("  %.*s\n", (int)work->ids[i].len, (const char *)work->ids[i].data);
    if (work->n > SAMPLE)
        out_printf("  and %zu more\n", work->n - SAMPLE);
    return CLI_OK;
}

/* ---- consent -------------------------------------------------------------------------------- */

/* A filter may find more than was meant: ask, or be told --yes. */
static int consent(struct work *work, const struct control_args *args)
{
    if (args->yes.given || work->n == 0)
        return CLI_OK;
    if (isatty(STDIN_FILENO) != 1 || !out_err_is_terminal())
        return cli_fail(CLI_USAGE, "%zu %s would be %s; add --yes to do it, or --dry-run to look",
                        work->n, plural(work->n), work->plan->did);
    char answer[16] = "";
    fprintf(stderr, "%s %zu %s? Type yes: ", work->plan->name, work->n, plural(work->n));
    if (fgets(answer, sizeof answer, stdin) && strcmp(answer, "yes\n") == 0)
        return CLI_OK;
    return cli_fail(CLI_FAILED, "nothing done");
}

/* ---- the whole ------------------------------------------------------------------------------ */

static int run_by_filter(struct work *work, const struct control_args *args)
{
    enum mr_err err = find(work, &args->filter);
    if (err != MR_OK)
        return show_list_failed(&args->filter, err);
    if (args->dry_run.given)
        return tell_dry_run(work);
    int code = consent(work, args);
    if (code != CLI_OK)
        return code;
    err = act(work);
    if (err != MR_OK)
        return cli_fail_err(err, "stopped after %zu task%s", work->done, mr_plural(work->done));
    return tell(work, work->n);
}

static int run_by_id(struct work *work, const struct control_args *args)
{
    const struct control_plan *plan = work->plan;
    for (size_t i = 0; i < plan->ids_n; i++)
        add_id(work, mr_slice_str(plan->ids[i]));
    enum mr_err err = plan->states_only ? sort_out_named(work) : MR_OK;
    if (err == MR_OK && args->dry_run.given)
        return tell_dry_run(work);
    if (err == MR_OK)
        err = act(work);
    if (err != MR_OK)
        return cli_fail_err(err, "cannot %s", plan->name);
    return tell(work, plan->ids_n);
}

bool control_filtered(const struct control_args *args)
{
    const struct show_filter *filter = &args->filter;
    return filter->queue.given || filter->state.given || filter->type.given || args->all.given;
}

static int check(struct cli *cli, const struct control_args *args, const struct control_plan *plan)
{
    bool filtered = control_filtered(args);
    if (plan->ids_n > 0 && filtered)
        return cli_usage(cli, "give ids or a filter, not both");
    if (plan->ids_n == 0 && !filtered)
        return cli_usage(cli, "which tasks? Give an ID, a filter such as -q QUEUE, or --all");
    for (size_t i = 0; i < plan->ids_n; i++) {
        size_t len = strlen(plan->ids[i]);
        if (len == 0)
            return cli_usage(cli, "an ID is empty");
        if (len > MR_ID_MAX)
            return cli_usage(cli, "ID of %zu bytes, the limit is %d", len, MR_ID_MAX);
    }
    return CLI_OK;
}

int control_run(struct cli *cli, const struct control_args *args, const struct control_plan *plan)
{
    int code = check(cli, args, plan);
    if (code == CLI_OK)
        code = cli_open(cli, NULL, CLI_STORE_MUST_EXIST);
    if (code != CLI_OK)
        return code;
    struct work work = {.cli = cli, .plan = plan};
    code = plan->ids_n > 0 ? run_by_id(&work, args) : run_by_filter(&work, args);
    mr_arena_done(&work.arena);
    mr_buf_done(&work.jw.buf);
    free(work.ids);
    return code;
}
