/* SPDX-License-Identifier: Apache-2.0 */
/*
 * millrace migrate: moves a live system from one broker to another, queue by queue.
 *
 * Each task goes in three steps, each durable where it is made: it is carried to TO and held there, it
 * is marked as moved at FROM, it is released at TO. Whoever is killed between two of them, it runs at
 * one of the two and not at both, and the next run finds where it stands:
 *
 *   at FROM            at TO        the next run
 *   waits              -            carries it
 *   waits              held         carries it again, as it is now
 *   marked as moved    held         releases it
 *   marked as moved    otherwise    has nothing to do
 *   runs, or is gone   held         takes it back: somebody resumed the queue, or deleted it
 *
 * That holds for one run at a time.
 *
 * The queue is paused at FROM meanwhile, and stays so; what runs there ends there.
 */
#include <stdlib.h>
#include <unistd.h>

#include "base/chan.h"
#include "base/id.h"
#include "base/text.h"
#include "cli/interrupt.h"
#include "cli/jw.h"
#include "cli/out.h"
#include "cli/progress.h"
#include "cli/server.h"

enum { PAGE = 500, BATCH_BYTES = 1024 * 1024, QUEUES = 100, LOOK_MS = 200, SAMPLE = 5 };

struct migrate_args {
    struct cli_value queue, to_namespace, dry_run, yes, adopt;
};

/* One run of the command. */
struct move {
    struct cli *cli;
    struct cli from, to; /* as if each were the broker of a command of its own */
    const struct migrate_args *args;
    struct {
        uint64_t queues, moved, refused;
        uint64_t there;   /* carried by an earlier run */
        uint64_t running; /* left at FROM */
        uint64_t strange; /* held at TO, not known at FROM */
    } figures;
    char first[MR_NAME_MAX + 1]; /* of the queues */
    uint64_t passes;             /* over this queue; and of the last one: */
    uint64_t pass_moved, pass_running;
    struct progress progress;
    int code; /* of what went wrong first */
};

/* ---- telling -------------------------------------------------------------------------------- */

static int note_code(struct move *move, int code)
{
    if (move->code == CLI_OK)
        move->code = code;
    return code;
}

static int failed(struct move *move, enum mr_err err, const struct cli *side, const char *what)
{
    progress_end(&move->progress);
    return note_code(move, cli_fail_err(err, "%s at %s (run it again: it goes on where it was)",
                                        what, side->shown));
}

static void refuse(struct move *move, struct mr_slice id, const char *why)
{
    if (move->figures.refused++ < SAMPLE && move->passes == 0) /* the next one finds it again */
        cli_fail(CLI_FAILED, "task %.*s stays at %s: %s", (int)id.len, (const char *)id.data,
                 move->from.shown, why);
}

/* ---- batches of one page -------------------------------------------------------------------- */

/* Tasks on their way, by their places in a batch. */
struct batch {
    struct mr_task tasks[PAGE];
    struct mr_enqueue_result results[PAGE];
    struct mr_control items[PAGE];
    enum mr_err errs[PAGE];
    size_t n, bytes;
    struct mr_task_list *lists[PAGE]; /* of tasks that were looked up one by one */
    size_t lists_n;
};

/* Then the task is as it was. After any other error it may have been done: so nothing is taken back, and the next run
 * looks. */
static bool is_refusal(enum mr_err err)
{
    return err == MR_RUNNING || err == MR_NOT_FOUND || err == MR_WRONG_STATE || err == MR_CONFLICT;
}

/* MR_OK: of each task it is known whether it was done. */
static enum mr_err act(struct cli *side, struct batch *batch, enum mr_verb verb,
                       struct mr_slice text)
{
    for (size_t i = 0; i < batch->n; i++) {
        batch->items[i].verb = verb;
        batch->items[i].text = text;
        batch->items[i].id = batch->tasks[i].id;
    }
    enum mr_err err =
        batch->n == 0 ? MR_OK : mr_control(side->client, batch->items, batch->n, batch->errs);
    for (size_t i = 0; err == MR_OK && i < batch->n; i++)
        if (batch->errs[i] != MR_OK && !is_refusal(batch->errs[i]))
            err = batch->errs[i];
    return err;
}

/* Keeps the tasks at these places only. */
static void keep(struct batch *batch, const bool *wanted)
{
    size_t n = 0;
    for (size_t i = 0; i < batch->n; i++)
        if (wanted[i])
            batch->tasks[n++] = batch->tasks[i];
    batch->n = n;
}

static bool is_trace(const struct mr_task *task)
{
    const size_t len = strlen(MR_MOVED_PREFIX);
    return task->state == MR_COMPLETED && task->last_error.len > len &&
           memcmp(task->last_error.data, MR_MOVED_PREFIX, len) == 0;
}

/* Other programs do not say when they enqueued a task. What stands for it must be the same in the next
 * run, which knows it by that. */
static struct mr_task complete(const struct mr_task *task)
{
    struct mr_task whole = *task;
    const int64_t times[] = {task->created_ms,  task->due_ms,        task->last_failed_ms,
                             task->finished_ms, task->order_time_ms, 1};
    for (size_t i = 0; whole.created_ms <= 0; i++)
        whole.created_ms = times[i];
    bool ended = task->state == MR_ARCHIVED || task->state == MR_COMPLETED;
    if (ended && whole.finished_ms == 0)
        whole.finished_ms = whole.last_failed_ms > 0 ? whole.last_failed_ms : whole.created_ms;
    if (task->order_time_ms == 0)
        whole.order_time_ms = whole.created_ms;
    return whole;
}

/* The task of this id at TO. */
enum there {
    THERE_OTHER, /* another one */
    THERE_SAME,  /* this one */
    THERE_HELD,  /* this one, held as it was when an earlier run brought it */
    THERE_TRACE, /* what it left when it was moved away from there */
};

static enum there look_there(struct move *move, const struct mr_task *task)
{
    struct mr_task_list *list = NULL;
    if (mr_task_get(move->to.client, task->id, &list) != MR_OK)
        return THERE_OTHER;
    const struct mr_task *found = mr_task_list_at(list, 0);
    bool same = found->created_ms == task->created_ms;
    enum there there = !same             ? THERE_OTHER
                       : found->held     ? THERE_HELD
                       : is_trace(found) ? THERE_TRACE
                                         : THERE_SAME;
    mr_task_list_free(list);
    return there;
}

/* ---- the three steps ------------------------------------------------------------------------ */

/* It may have changed since: what is there makes way. */
static enum mr_err carry_again(struct move *move, const struct mr_task *task)
{
    struct mr_control item = {.verb = MR_VERB_DELETE, .id = task->id};
    struct mr_enqueue_result result;
    enum mr_err err;
    MR_TRY(mr_control(move->to.client, &item, 1, &err));
    MR_TRY(mr_carry(move->to.client, task, 1, &result));
    return result.err;
}

/* Whether the task is at TO now, by what its carrying answered. */
static bool has_arrived(struct move *move, const struct mr_task *task, enum mr_err err)
{
    enum there there = err == MR_CONFLICT ? look_there(move, task) : THERE_OTHER;
    move->figures.there += there == THERE_SAME || there == THERE_HELD;
    if (there == THERE_HELD || there == THERE_TRACE)
        err = carry_again(move, task);
#ifdef MR_PLANT_MOVED_ONTO_ANOTHER
    err = MR_OK;
#endif
    if (err == MR_OK || there == THERE_SAME)
        return true;
    refuse(move, task->id,
           err == MR_CONFLICT ? "another task of this id is at TO" : mr_err_text(err));
    return false;
}

static int carry(struct move *move, struct batch *batch)
{
    bool arrived[PAGE];
    enum mr_err err = mr_carry(move->to.client, batch->tasks, batch->n, batch->results);
    if (err != MR_OK)
        return failed(move, err, &move->to, "cannot carry tasks");
    for (size_t i = 0; i < batch->n; i++)
        arrived[i] = has_arrived(move, &batch->tasks[i], batch->results[i].err);
    keep(batch, arrived);
    return CLI_OK;
}

/* What is not moved after all is taken back, if it is still held there. */
static int take_back(struct move *move, struct batch *batch)
{
    size_t n = 0;
    for (size_t i = 0; i < batch->n; i++) {
        struct mr_task_list *list = NULL;
        if (mr_task_get(move->to.client, batch->tasks[i].id, &list) != MR_OK)
            continue;
        if (mr_task_list_at(list, 0)->held)
            batch->tasks[n++] = batch->tasks[i];
        else
            refuse(move, batch->tasks[i].id, "it runs here, and is at TO as well");
        mr_task_list_free(list);
    }
    batch->n = n;
    enum mr_err err = act(&move->to, batch, MR_VERB_DELETE, (struct mr_slice){0});
    return err == MR_OK ? CLI_OK : failed(move, err, &move->to, "cannot take tasks back");
}

static int mark(struct move *move, struct batch *batch)
{
    static struct batch back;
    bool marked[PAGE];
    back.n = 0;
    enum mr_err err = act(&move->from, batch, MR_VERB_MOVED, mr_slice_str(move->to.shown));
    if (err != MR_OK)
        return failed(move, err, &move->from, "cannot mark tasks as moved");
    for (size_t i = 0; i < batch->n; i++) {
        marked[i] = batch->errs[i] == MR_OK;
        if (!marked[i])
            back.tasks[back.n++] = batch->tasks[i];
        move->pass_running += batch->errs[i] == MR_RUNNING;
        if (!marked[i] && batch->errs[i] != MR_RUNNING && batch->errs[i] != MR_NOT_FOUND)
            refuse(move, batch->tasks[i].id,
                   batch->errs[i] == MR_CONFLICT ? "another queue has a task of this id as well"
                                                 : mr_err_text(batch->errs[i]));
    }
    keep(batch, marked);
    return take_back(move, &back);
}

static int release(struct move *move, struct batch *batch)
{
    enum mr_err err = act(&move->to, batch, MR_VERB_RELEASE, (struct mr_slice){0});
    if (err != MR_OK)
        return failed(move, err, &move->to, "cannot release tasks");
    move->figures.moved += batch->n;
    move->pass_moved += batch->n;
    progress_at(&move->progress, move->figures.moved, move->figures.moved);
    return CLI_OK;
}

static int send_batch(struct move *move, struct batch *batch)
{
    int code = batch->n > 0 ? carry(move, batch) : CLI_OK;
    if (code == CLI_OK)
        code = mark(move, batch);
    if (code == CLI_OK)
        code = release(move, batch);
    while (batch->lists_n > 0)
        mr_task_list_free(batch->lists[--batch->lists_n]);
    batch->n = batch->bytes = 0;
    if (code == CLI_OK && interrupt_number() != 0)
        code = note_code(move, CLI_SIGNAL_BASE + interrupt_number());
    return code;
}

/* ---- a queue -------------------------------------------------------------------------------- */

/* The whole of a task of a list without payloads; NULL: it is gone. */
static const struct mr_task *look_up(struct move *move, struct batch *batch,
                                     const struct mr_task *task)
{
    struct mr_task_list *list = NULL;
    if (batch->lists_n == PAGE || mr_task_get(move->from.client, task->id, &list) != MR_OK)
        return NULL;
    batch->lists[batch->lists_n++] = list;
    task = mr_task_list_at(list, 0);
    return task->state == MR_ACTIVE || is_trace(task) ? NULL : task;
}

static int send_page(struct move *move, const struct mr_task_list *list, bool whole)
{
    static struct batch batch;
    int code = CLI_OK;
    batch.n = batch.bytes = 0;
    for (size_t i = 0; code == CLI_OK && i < mr_task_list_count(list); i++) {
        const struct mr_task *task = mr_task_list_at(list, i);
        if (is_trace(task) || (!whole && (task = look_up(move, &batch, task)) == NULL))
            continue;
        size_t bytes = task->payload.len + task->result.len + task->last_error.len;
        if (batch.n == PAGE || (batch.n > 0 && batch.bytes + bytes > BATCH_BYTES))
            code = send_batch(move, &batch);
        batch.tasks[batch.n++] = complete(task);
        batch.bytes += bytes;
    }
    return code == CLI_OK ? send_batch(move, &batch) : code;
}

/* Completed ones are mostly traces of those that were moved: only the others are read as a whole. */
static int send_state(struct move *move, const char *queue, enum mr_state state)
{
    char cursor[256] = "";
    int code = CLI_OK;
    bool whole = state != MR_COMPLETED;
    do {
        struct mr_task_list *list = NULL;
        struct mr_list_options options = {.queue = mr_slice_str(queue),
                                          .state = state,
                                          .cursor = cursor[0] ? cursor : NULL,
                                          .limit = PAGE,
                                          .with_payload = whole};
        enum mr_err err = mr_task_list_get(move->from.client, &options, &list);
        if (err != MR_OK)
            return failed(move, err, &move->from, "cannot list tasks");
        code = send_page(move, list, whole);
        snprintf(cursor, sizeof cursor, "%s", mr_task_list_next(list));
        mr_task_list_free(list);
    } while (code == CLI_OK && cursor[0]);
    return code;
}

/* FROM does not know a task that is held at TO. Its trace there would still be seen, so it has ended
 * there or was deleted; when that is too long ago to say, somebody must decide. */
static bool has_ended(const struct mr_task *held)
{
    return out_now_ms() - held->started_ms < MR_MOVED_KEPT_MS / 2;
}

/* What an earlier run left held at TO. What FROM has in another way than as a trace is carried again. */
static int settle_page(struct move *move, const struct mr_task_list *list)
{
    static struct batch moved, ended;
    moved.n = ended.n = 0;
    for (size_t i = 0; i < mr_task_list_count(list); i++) {
        const struct mr_task *task = mr_task_list_at(list, i);
        struct mr_task_list *at_from = NULL;
        enum mr_err err = mr_task_get(move->from.client, task->id, &at_from);
        if (err != MR_OK && err != MR_NOT_FOUND)
            return failed(move, err, &move->from, "cannot look at a task");
        bool left = err == MR_OK ? is_trace(mr_task_list_at(at_from, 0)) : move->args->adopt.given;
        if (left)
            moved.tasks[moved.n++] = *task;
        else if (err == MR_NOT_FOUND && has_ended(task))
            ended.tasks[ended.n++] = *task;
        else if (err == MR_NOT_FOUND)
            move->figures.strange++;
        mr_task_list_free(at_from);
    }
    int code = release(move, &moved);
    return code == CLI_OK ? take_back(move, &ended) : code;
}

static int settle(struct move *move, const char *queue)
{
    char cursor[256] = "";
    int code = CLI_OK;
    do {
        struct mr_task_list *list = NULL;
        struct mr_list_options options = {.queue = mr_slice_str(queue),
                                          .held = true,
                                          .cursor = cursor[0] ? cursor : NULL,
                                          .limit = PAGE};
        enum mr_err err = mr_task_list_get(move->to.client, &options, &list);
        if (err == MR_NOT_FOUND)
            return CLI_OK;
        if (err != MR_OK)
            return failed(move, err, &move->to, "cannot list what is held");
        code = settle_page(move, list);
        snprintf(cursor, sizeof cursor, "%s", mr_task_list_next(list));
        mr_task_list_free(list);
    } while (code == CLI_OK && cursor[0]);
    return code;
}

/* Its limits at TO, where nobody has set any. */
static enum mr_err copy_limits(struct move *move, const struct mr_queue_info *info,
                               const struct mr_queue_info *there)
{
    bool some = info->rate > 0 || info->concurrency > 0 || info->limits > 0;
    if (!some || there->rate > 0 || there->concurrency > 0 || there->limits > 0)
        return MR_OK;
    struct mr_limit *limits = cli_alloc(MR_LIMITS_MAX, sizeof *limits);
    struct mr_slice name = mr_slice_str(info->name);
    size_t n = 0;
    enum mr_err err = mr_queue_limits(move->from.client, name, limits, &n);
    for (size_t i = 0; err == MR_OK && i < n; i++) {
        if (limits[i].rate > 0)
            err = mr_queue_set_rate(move->to.client, name, &limits[i]);
        if (err == MR_OK && limits[i].concurrency > 0)
            err = mr_queue_set_concurrency(move->to.client, name, &limits[i]);
    }
    free(limits);
    return err;
}

/* Its settings at TO, where nobody has set any. */
static int copy_settings(struct move *move, const struct mr_queue_info *info)
{
    struct mr_queue_info there = {0};
    struct mr_slice name = mr_slice_str(info->name);
    enum mr_err err = mr_queue_get(move->to.client, name, &there);
    if (err == MR_NOT_FOUND || (err == MR_OK && there.max_length == 0 && info->max_length > 0))
        err = mr_queue_set_max_length(move->to.client, name, info->max_length);
    if (err == MR_OK && info->partitions > 1 && there.partitions <= 1)
        err = mr_queue_set_partitions(move->to.client, name, info->partitions);
    if (err == MR_OK && there.partitions <= 1 && info->assign != MR_ASSIGN_ROUND_ROBIN)
        err = mr_queue_set_assign(move->to.client, name, info->assign);
    if (err == MR_OK && there.retry_mode == MR_RETRY_GATE && info->retry_mode != MR_RETRY_GATE)
        err = mr_queue_set_retry_mode(move->to.client, name, info->retry_mode);
    if (err == MR_OK && there.retry_mode == MR_RETRY_GATE &&
        info->retry_wait_ms != MR_RETRY_WAIT_MS)
        err = mr_queue_set_retry_wait(move->to.client, name, info->retry_wait_ms);
    if (err == MR_OK)
        err = copy_limits(move, info, &there);
    if (there.paused)
        cli_note(move->cli, "queue %s is paused at %s; `millrace queue resume` there lets it run",
                 info->name, move->to.shown);
    return err == MR_OK ? CLI_OK : failed(move, err, &move->to, "cannot set up the queue");
}

static int pass(struct move *move, const char *queue)
{
    static const enum mr_state states[] = {MR_PENDING, MR_SCHEDULED, MR_RETRY, MR_AGGREGATING,
                                           MR_ARCHIVED};
    int code = CLI_OK;
    move->pass_moved = move->pass_running = 0;
    for (size_t i = 0; code == CLI_OK && i < CLI_LEN(states); i++)
        code = send_state(move, queue, states[i]);
    return code;
}

static void sleep_ms(int64_t ms)
{
    struct mr_event never;
    mr_event_init(&never);
    (void)mr_event_wait(&never, ms * MR_NS_PER_MS);
}

/* Whether the queue is empty but for what is refused; what runs is waited for. */
static int look(struct move *move, const char *queue, bool *ret_done)
{
    struct mr_queue_info info;
    enum mr_err err = mr_queue_get(move->from.client, mr_slice_str(queue), &info);
    *ret_done = true;
    if (err == MR_NOT_FOUND)
        return CLI_OK;
    if (err != MR_OK)
        return failed(move, err, &move->from, "cannot look at the queue");
    if (!info.paused)
        return note_code(
            move, cli_fail(CLI_CONFLICT,
                           "queue %s was resumed at %s: the rest of it stays there until this is "
                           "run again",
                           queue, move->from.shown));
    uint64_t running = info.counts[MR_ACTIVE] + move->pass_running;
    *ret_done = running == 0 && move->pass_moved == 0;
    if (running > 0 && move->pass_moved == 0) {
        out_status("queue %s: %llu task%s still running at %s", queue, (unsigned long long)running,
                   mr_plural(running), move->from.shown);
        sleep_ms(LOOK_MS);
    }
    if (interrupt_number() == 0)
        return CLI_OK;
    move->figures.running += running;
    return note_code(move, CLI_SIGNAL_BASE + interrupt_number());
}

/* What ended at FROM meanwhile. */
static int settle_again(struct move *move, const char *queue, uint64_t strange)
{
    move->figures.strange = strange; /* the same ones are found again */
    return settle(move, queue);
}

static int move_queue(struct move *move, const struct mr_queue_info *info)
{
    uint64_t refused = move->figures.refused, strange = move->figures.strange;
    bool done = false;
    enum mr_err err = mr_queue_pause(move->from.client, mr_slice_str(info->name));
    int code = err == MR_OK ? copy_settings(move, info)
                            : failed(move, err, &move->from, "cannot pause the queue");
    if (code == CLI_OK)
        code = settle(move, info->name);
    progress_start(&move->progress, move->cli, "moving", 0);
    while (code == CLI_OK && !done) {
        move->figures.refused = refused; /* each pass finds the same ones again */
        code = pass(move, info->name);
        if (code == CLI_OK)
            code = look(move, info->name, &done);
        move->passes++;
    }
    move->passes = 0;
    if (code == CLI_OK)
        code = send_state(move, info->name, MR_COMPLETED);
    if (code == CLI_OK)
        code = settle_again(move, info->name, strange);
    progress_end(&move->progress);
    move->figures.queues++;
    return code;
}

/* ---- all of them ---------------------------------------------------------------------------- */

typedef int each_queue(struct move *move, const struct mr_queue_info *info);

static int for_each(struct move *move, each_queue *each)
{
    static struct mr_queue_info infos[QUEUES];
    char after[MR_NAME_MAX + 1] = "";
    size_t n = QUEUES;
    int code = CLI_OK;
    if (move->args->queue.given) {
        enum mr_err err =
            mr_queue_get(move->from.client, mr_slice_str(move->args->queue.text), infos);
        if (err != MR_OK)
            return cli_fail_err(err, "queue %s at %s", move->args->queue.text, move->from.shown);
        return each(move, infos);
    }
    while (code == CLI_OK && n == QUEUES) {
        enum mr_err err =
            mr_queue_list(move->from.client, after[0] ? after : NULL, infos, QUEUES, &n);
        if (err != MR_OK)
            return cli_fail_err(err, "cannot list the queues of %s", move->from.shown);
        for (size_t i = 0; i < n && code == CLI_OK; i++) {
            memcpy(after, infos[i].name, sizeof after);
            code = each(move, &infos[i]);
            if (code == CLI_CONFLICT)
                code = CLI_OK; /* the others go on */
        }
    }
    return code;
}

static int count(struct move *move, const struct mr_queue_info *info)
{
    uint64_t n = 0;
    for (size_t s = MR_SCHEDULED; s < MR_STATE_COUNT; s++)
        n += s == MR_ACTIVE ? 0 : info->counts[s];
    if (move->figures.queues++ == 0)
        snprintf(move->first, sizeof move->first, "%s", info->name);
    move->figures.moved += n;
    move->figures.running += info->counts[MR_ACTIVE];
    if (move->args->dry_run.given && !move->cli->json)
        out_printf("%s: %llu task%s, %llu run\n", info->name, (unsigned long long)n, mr_plural(n),
                   (unsigned long long)info->counts[MR_ACTIVE]);
    return CLI_OK;
}

/* A task that is held at TO for a moment must not be seen at FROM: else both are one, and moving would
 * lose what is there. */
static int check_apart(struct move *move, const char *queue)
{
    struct mr_uuid uuid;
    struct mr_rand rand;
    char id[MR_UUID_TEXT_LEN + 1];
    int64_t now = out_now_ms();
    mr_rand_seed_system(&rand);
    mr_uuid_make(&uuid, mr_wall_now(mr_clock_system()), &rand);
    mr_uuid_format(&uuid, id);
    struct mr_task probe = {.id = mr_slice_str(id),
                            .queue = mr_slice_str(queue),
                            .type = MR_SLICE_LIT("millrace:migrate"),
                            .state = MR_PENDING,
                            .created_ms = now,
                            .order_time_ms = now};
    struct mr_enqueue_result result = {.err = MR_OK};
    enum mr_err err = mr_carry(move->to.client, &probe, 1, &result), undone;
    if (err != MR_OK || result.err != MR_OK)
        return failed(move, err != MR_OK ? err : result.err, &move->to, "cannot carry a task");
    struct mr_task_list *list = NULL;
    struct mr_control undo = {.verb = MR_VERB_DELETE, .id = probe.id};
    enum mr_err seen = mr_task_get(move->from.client, probe.id, &list);
    mr_task_list_free(list);
    err = mr_control(move->to.client, &undo, 1, &undone);
    if (err != MR_OK || (seen != MR_OK && seen != MR_NOT_FOUND))
        return failed(move, err != MR_OK ? err : seen, &move->to, "cannot look at a task");
    if (seen == MR_NOT_FOUND)
        return CLI_OK;
    return cli_fail(CLI_USAGE, "%s and %s are the same broker", move->from.shown, move->to.shown);
}

static int consent(struct move *move)
{
    if (move->args->yes.given)
        return CLI_OK;
    if (isatty(STDIN_FILENO) != 1 || !out_err_is_terminal())
        return cli_fail(CLI_USAGE,
                        "%llu task%s of %llu queue%s would be moved, pausing %s at %s; add "
                        "--yes to do it, or --dry-run to look",
                        (unsigned long long)move->figures.moved, mr_plural(move->figures.moved),
                        (unsigned long long)move->figures.queues, mr_plural(move->figures.queues),
                        move->figures.queues == 1 ? "it" : "them", move->from.shown);
    char answer[16] = "";
    fprintf(stderr, "pause %llu queue%s at %s and move %llu task%s to %s? Type yes: ",
            (unsigned long long)move->figures.queues, mr_plural(move->figures.queues),
            move->from.shown, (unsigned long long)move->figures.moved,
            mr_plural(move->figures.moved), move->to.shown);
    if (fgets(answer, sizeof answer, stdin) && strcmp(answer, "yes\n") == 0)
        return CLI_OK;
    return cli_fail(CLI_FAILED, "nothing done");
}

/* ---- the whole ------------------------------------------------------------------------------ */

static void tell_json(const struct move *move)
{
    struct jw jw = {0};
    jw_object_begin(&jw, NULL);
    jw_text(&jw, "from", move->from.shown);
    jw_text(&jw, "to", move->to.shown);
    jw_bool(&jw, "dry_run", move->args->dry_run.given);
    jw_uint(&jw, "queues", move->figures.queues);
    jw_uint(&jw, "moved", move->args->dry_run.given ? 0 : move->figures.moved);
    jw_uint(&jw, "to_move", move->args->dry_run.given ? move->figures.moved : 0);
    jw_uint(&jw, "found_there", move->figures.there);
    jw_uint(&jw, "running", move->figures.running);
    jw_uint(&jw, "refused", move->figures.refused);
    jw_uint(&jw, "held_unknown", move->figures.strange);
    jw_object_end(&jw);
    jw_finish(&jw);
}

/* They are not tasks that could go on elsewhere: whoever has their receipts commits them where they are. */
static void tell_results(const struct move *move)
{
    struct mr_stats stats = {0};
    if (mr_stats_get(move->from.client, &stats) == MR_OK && stats.results > 0)
        cli_note(move->cli, "%llu results stay at %s: take and commit them there",
                 (unsigned long long)stats.results, move->from.shown);
}

/* Timers and jobs are in a store of their own, which is not that of TO. */
static void tell_timers(const struct move *move)
{
    struct mr_timer_list *timers = NULL;
    struct mr_job_list *jobs = NULL;
    bool has_timers =
        mr_timer_list_get(move->from.client, &(struct mr_timer_list_options){.limit = 1},
                          &timers) == MR_OK &&
        mr_timer_list_count(timers) > 0;
    bool has_jobs = mr_job_list_get(move->from.client, &(struct mr_job_list_options){.limit = 1},
                                    &jobs) == MR_OK &&
                    mr_job_list_count(jobs) > 0;
    mr_timer_list_free(timers);
    mr_job_list_free(jobs);
    if (has_timers || has_jobs)
        cli_note(move->cli, "its %s stay at %s",
                 !has_jobs    ? "timers"
                 : has_timers ? "timers and jobs"
                              : "jobs",
                 move->from.shown);
}

static int tell(struct move *move)
{
    tell_results(move);
    if (!move->args->queue.given)
        tell_timers(move);
    if (move->cli->json)
        tell_json(move);
    else
        cli_note(move->cli,
                 "moved %llu task%s of %llu queue%s to %s; %llu of them had been brought before, "
                 "%llu still run at %s, %llu were refused",
                 (unsigned long long)move->figures.moved, mr_plural(move->figures.moved),
                 (unsigned long long)move->figures.queues, mr_plural(move->figures.queues),
                 move->to.shown, (unsigned long long)move->figures.there,
                 (unsigned long long)move->figures.running, move->from.shown,
                 (unsigned long long)move->figures.refused);
    if (move->figures.strange > 0)
        note_code(move, cli_fail(CLI_FAILED,
                                 "%llu tasks are held at %s that %s does not know; when no other "
                                 "migrate is under way, --adopt releases them",
                                 (unsigned long long)move->figures.strange, move->to.shown,
                                 move->from.shown));
    if (move->figures.refused > 0)
        note_code(move, CLI_FAILED);
    if (!move->cli->json && move->code == CLI_OK)
        cli_note(move->cli,
                 "its queues stay paused at %s; `millrace migrate` the other way, or "
                 "`millrace queue resume` there, takes that back",
                 move->from.shown);
    return move->code;
}

static void name_side(struct cli *side, const char *url)
{
    side->broker = url;
    (void)mr_url_shown(url, side->shown);
    /* What was given for the other one. */
    if (!cli_is_redis(url))
        side->globals.wait_replicas = (struct cli_value){0};
    if (strncmp(url, "rediss", 6) != 0 && strncmp(url, "millraces", 9) != 0)
        side->globals.tls_ca = side->globals.tls_cert = side->globals.tls_key =
            (struct cli_value){0};
}

static int open_side(struct cli *side, enum cli_store store)
{
    struct mr_client_options options = {.payload_max = MR_PAYLOAD_HARD_MAX};
    return cli_open(side, &options, store);
}

/* A folder that is not there yet is made when it is sure that something is to be done; until then it counts
 * as empty. */
static int open_ends(struct move *move)
{
    int code = open_side(&move->from, CLI_STORE_MUST_EXIST);
    if (code == CLI_OK && !cli_store_missing(&move->to))
        code = open_side(&move->to, CLI_STORE_MUST_EXIST);
    return code;
}

static int move_all(struct move *move)
{
    int code = for_each(move, count);
    if (code != CLI_OK)
        return code;
    if (move->args->dry_run.given) {
        if (move->cli->json)
            tell_json(move);
        return CLI_OK;
    }
    if (move->figures.queues > 0)
        code = consent(move);
    if (code == CLI_OK && move->to.client == NULL)
        code = open_side(&move->to, CLI_STORE_MAY_CREATE);
    if (code == CLI_OK && move->figures.queues > 0)
        code = check_apart(move, move->first);
    if (code != CLI_OK)
        return code;
    memset(&move->figures, 0, sizeof move->figures);
    interrupt_watch();
    (void)note_code(move, for_each(move, move_queue));
    return tell(move);
}

static int run(struct cli *cli, void *args_)
{
    const struct migrate_args *args = args_;
    struct move *move = cli_alloc(1, sizeof *move);
    *move = (struct move){.cli = cli, .from = *cli, .to = *cli, .args = args};
    if (args->to_namespace.given)
        move->to.namespace_ = args->to_namespace.text;
    name_side(&move->from, cli->words[0]);
    name_side(&move->to, cli->words[1]);
    bool same = strcmp(cli->words[0], cli->words[1]) == 0 && !args->to_namespace.given;
    int code = !same ? CLI_OK
                     : cli_fail(CLI_USAGE, "FROM and TO are the same broker: %s", move->from.shown);
    if (code == CLI_OK)
        code = open_ends(move);
    if (code == CLI_OK)
        code = move_all(move);
    mr_client_close(move->to.client);
    mr_client_close(move->from.client);
    free(move);
    return code;
}

static const struct cli_option options[] = {
    {.name = "queue",
     .letter = 'q',
     .kind = CLI_NAME,
     .offset = offsetof(struct migrate_args, queue),
     .value = "QUEUE",
     .help = "only this one"},
    {.name = "to-namespace",
     .kind = CLI_NAME,
     .offset = offsetof(struct migrate_args, to_namespace),
     .value = "NAME",
     .help = "namespace at TO; else that of --namespace"},
    {.name = "adopt",
     .kind = CLI_FLAG,
     .offset = offsetof(struct migrate_args, adopt),
     .help = "release also what TO holds and FROM does not know"},
    {.name = "dry-run",
     .kind = CLI_FLAG,
     .offset = offsetof(struct migrate_args, dry_run),
     .help = "only tell how many tasks each queue has"},
    {.name = "yes",
     .kind = CLI_FLAG,
     .offset = offsetof(struct migrate_args, yes),
     .help = "do not ask"},
};

static const struct cli_verb verb = {
    .synopsis = "FROM TO",
    .about =
        "Moves queues and their tasks from one broker to another while both are in use. Let\n"
        "producers use TO first. Queues are paused at FROM; what runs there ends there. It can "
        "be\nstopped at any moment and run again; one at a time.",
    .examples = (const char *const[]){"millrace migrate file:./tasks redis://localhost:6379",
                                      "millrace migrate --queue mail redis://localhost:6379 "
                                      "millrace://127.0.0.1:7401 --yes",
                                      NULL},
    .options = options,
    .options_n = CLI_LEN(options),
    .args_size = sizeof(struct migrate_args),
    .words_min = 2,
    .words_max = 2,
    .run = run,
};

const struct cli_command cli_migrate = {
    .name = "migrate", .about = "move to another broker", .verbs = &verb, .verbs_n = 1};
