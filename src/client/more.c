/* SPDX-License-Identifier: Apache-2.0 */
/*
 * With burst a worker ends when its queues are empty. But parts of jobs rest in the store, and become tasks when somebody
 * serves their queue: who ends at once would never see one. So it is asked whether jobs of its queues have more for it; in a
 * folder also whether the last results are still being counted and put together, since nobody else would do that.
 */
#include "client/more.h"

#include <stdio.h>
#include <stdlib.h>

#include "client/job.h"
#include "wire/task.h"
#include "worker/worker.h"

struct more {
    struct mr_client *client;
    struct mr_arena arena; /* the names */
    struct mr_slice *queues;
    size_t queues_n;
};

/* What the jobs of a queue have before them. */
struct ahead {
    const struct mr_worker *worker;
    bool parts;       /* that are no tasks yet, and that this worker will run */
    bool reduces;     /* results are being put together */
    uint64_t running; /* tasks whose ends are not counted yet */
};

/* ---- jobs ------------------------------------------------------------------------------------- */

/* Runs of it that are not even tasks. */
static uint64_t not_submitted(const struct mr_job_info *job)
{
    uint64_t left = 0;
    for (size_t i = 0; i < job->stages_n; i++)
        left += job->stages[i].total - job->stages[i].done - job->stages[i].failed;
    return left > job->running ? left - job->running : 0;
}

/* Of a stage of other types nobody here can say when it ends. */
static bool is_next_for(const struct mr_worker *worker, const struct mr_job_info *job)
{
    for (size_t i = 0; i < job->stages_n; i++) {
        const struct mr_job_stage *stage = &job->stages[i];
        if (stage->done + stage->failed < stage->total)
            return mr_worker_handles(worker, stage->type);
    }
    return false;
}

static void add_job(struct ahead *ahead, const struct mr_job_info *job)
{
    ahead->reduces = ahead->reduces || job->reducing;
    ahead->running += job->running;
    if (not_submitted(job) > 0 && is_next_for(ahead->worker, job))
        ahead->parts = true;
}

static enum mr_err look_at_jobs(struct mr_client *client, struct mr_slice queue,
                                struct ahead *ahead)
{
    char cursor[MR_JOB_CURSOR_MAX] = "";
    do {
        struct mr_job_list *list;
        MR_TRY(mr_job_list_live(client, queue, cursor, &list));
        for (size_t i = 0; i < mr_job_list_count(list); i++)
            add_job(ahead, mr_job_list_at(list, i));
        (void)snprintf(cursor, sizeof cursor, "%s", mr_job_list_next(list));
        mr_job_list_free(list);
    } while (cursor[0] != '\0' && !ahead->parts);
    return MR_OK;
}

/* ---- queues ----------------------------------------------------------------------------------- */

/*
 * A queue that is paused, or has tasks and gave none, does not wait for jobs. Of the tasks of jobs, in a folder, those that
 * wait for their time are in no hurry; what is beyond them has ended a moment ago.
 */
static bool comes_to(const struct more *more, const struct mr_worker *worker, struct mr_slice queue)
{
    struct mr_client *client = more->client;
    struct ahead ahead = {.worker = worker};
    struct mr_queue_info info = {.paused = false};
    bool in_folder = client->store_url != NULL && !client->is_redis;
    enum mr_err err = mr_queue_get(client, queue, &info);
    if (err == MR_OK && (info.paused || info.counts[MR_PENDING] > 0))
        return false;
    if (look_at_jobs(client, queue, &ahead) != MR_OK)
        return false; /* who may not look at jobs, or cannot, goes by the queues alone */
    if (ahead.parts || !in_folder)
        return ahead.parts;
    uint64_t waiting = info.counts[MR_SCHEDULED] + info.counts[MR_RETRY];
    return ahead.reduces || ahead.running > waiting;
}

/* Whether anybody in this process has made a job, or jobs are elsewhere. */
static bool has_jobs(struct mr_client *client)
{
    if (client->store_url == NULL)
        return !client->is_redis;
    mr_lock_enter(&client->timers_lock);
    bool open = client->jobs != NULL;
    mr_lock_leave(&client->timers_lock);
    return open;
}

static bool comes(const struct mr_worker *worker, void *arg)
{
    const struct more *more = arg;
    bool any = false;
    if (!has_jobs(more->client))
        return false;
    for (size_t i = 0; i < more->queues_n && !any; i++)
        any = comes_to(more, worker, more->queues[i]);
    return any;
}

/* ---- life ------------------------------------------------------------------------------------- */

static void more_free(void *arg)
{
    struct more *more = arg;
    mr_arena_done(&more->arena);
    free(more);
}

static enum mr_err copy_queues(struct more *more, const struct mr_worker_options *options)
{
    size_t n = options->queues_n > 0 ? options->queues_n : 1;
    more->queues = mr_arena_calloc(&more->arena, n, sizeof *more->queues);
    if (more->queues == NULL)
        return MR_NOMEM;
    more->queues[0] = MR_SLICE_LIT(MR_DEFAULT_QUEUE);
    more->queues_n = n;
    for (size_t i = 0; i < options->queues_n; i++)
        MR_TRY(mr_arena_copy(&more->arena, options->queues[i].name, &more->queues[i]));
    return MR_OK;
}

enum mr_err mr_client_more(struct mr_client *client, const struct mr_worker_options *options,
                           struct mr_worker *worker)
{
    struct more *more;
    if (options == NULL || !options->burst)
        return MR_OK;
    more = calloc(1, sizeof *more);
    if (more == NULL)
        return MR_NOMEM;
    more->client = client;
    enum mr_err err = copy_queues(more, options);
    if (err != MR_OK) {
        more_free(more);
        return err;
    }
    mr_worker_more(worker, &(struct mr_more){.comes = comes, .free = more_free, .arg = more});
    return MR_OK;
}
