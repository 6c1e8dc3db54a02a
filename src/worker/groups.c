/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Groups at a worker: a gather waits at the broker for each of its queues; the sets that come are given
 * to the caller's function by a few threads, which also send the gathers. While all of those threads
 * have a set, nothing is gathered, so no set spends its time waiting for us. One lock, never held
 * across a call of the broker or of the function.
 *
 * A set whose function fails is left alone and goes back to its group when its time is over: trying
 * again at once would rarely help. One that nobody has looked at goes back at once.
 */
#include <stdlib.h>

#include "base/diag.h"
#include "worker/internal.h"

enum {
    THREADS = 3,
    WAIT_MS = 1000, /* at the broker: a stopping worker waits for that */
    GRACE_LEAST_MS = 1000,
    GRACE_MS = 60 * 1000,
};

struct mr_set {
    struct mr_req_gather req;
    struct mr_groups *groups;
    struct gather_queue *queue;
    struct mr_set *next;
    bool became;
};

struct gather_queue {
    struct mr_slice name;
    bool busy;     /* a gather is at the broker */
    bool off;      /* it will never do */
    mr_mono after; /* not before: the last one failed */
    enum mr_err
        said; /* what it failed with, and that was said; MR_OK: nothing since it went well */
};

struct mr_groups {
    struct mr_worker *worker;
    struct mr_lock lock;
    /* Under the lock. */
    bool stopping;
    size_t busy; /* gathers at the broker */
    size_t sets; /* with a thread, or ready for one */
    struct mr_set *ready;
    struct gather_queue *queues;
    size_t queues_n;
    pthread_t threads[THREADS];
    size_t threads_n;
};

/* ---- gathers -------------------------------------------------------------------------------- */

static bool is_for_ever(enum mr_err err)
{
    return err == MR_UNSUPPORTED || err == MR_INVALID || err == MR_DENIED;
}

/* On the broker's thread. */
static void gather_answered(struct mr_req *req)
{
    struct mr_set *set = mr_container(req, struct mr_set, req.req);
    struct mr_groups *groups = set->groups;
    struct gather_queue *queue = set->queue;
    enum mr_err err = req->err;
    mr_mono now = mr_mono_now(groups->worker->clock);
    mr_lock_enter(&groups->lock);
    queue->busy = false;
    groups->busy--;
    if (err == MR_OK) {
        set->next = groups->ready;
        groups->ready = set;
        groups->sets++;
        set = NULL;
    } else if (err != MR_EMPTY) {
        queue->off = is_for_ever(err);
        queue->after = mr_mono_add_ms(now, RETRY_MS);
    }
    bool well = err == MR_OK || err == MR_EMPTY;
    bool said = !well && !groups->stopping && queue->said != err; /* once, while nothing changes */
    queue->said = well ? MR_OK : err;
    mr_lock_notify_all(&groups->lock);
    mr_lock_leave(&groups->lock);
    if (said)
        mr_diag(MR_DIAG_WARN, "gather.failed", "queue=%.*s error=%s", (int)queue->name.len,
                (const char *)queue->name.data, mr_err_name(err));
    if (set != NULL)
        mr_req_done(&set->req.req);
    free(set);
}

/* A queue to gather from now; else when, at the latest, to look again. Under the lock. */
static struct gather_queue *next_queue(struct mr_groups *groups, mr_mono now, mr_mono *ret_look)
{
    *ret_look = MR_MONO_NEVER;
    if (groups->stopping || groups->sets >= THREADS)
        return NULL;
    for (size_t i = 0; i < groups->queues_n; i++) {
        struct gather_queue *queue = &groups->queues[i];
        if (queue->busy || queue->off)
            continue;
        if (queue->after.ns <= now.ns)
            return queue;
        if (queue->after.ns < ret_look->ns)
            *ret_look = queue->after;
    }
    return NULL;
}

/* Enters and leaves with the lock. */
static void send_gather(struct mr_groups *groups, struct gather_queue *queue, mr_mono now)
{
    const struct mr_worker_options *o = &groups->worker->options;
    struct mr_set *set = calloc(1, sizeof *set);
    if (set == NULL) {
        queue->after = mr_mono_add_ms(now, RETRY_MS);
        return;
    }
    queue->busy = true;
    groups->busy++;
    set->groups = groups;
    set->queue = queue;
    set->req = (struct mr_req_gather){.req = {.op = MR_OP_GATHER, .done = gather_answered},
                                      .queue = queue->name,
                                      .max_size = o->group_max_size,
                                      .max_delay_ms = o->group_max_delay_ms,
                                      .grace_ms = o->group_grace_ms,
                                      .wait_ms = WAIT_MS};
    mr_lock_leave(&groups->lock);
    mr_broker_submit(groups->worker->broker, &set->req.req);
    mr_lock_enter(&groups->lock);
}

/* ---- sets ----------------------------------------------------------------------------------- */

static enum mr_err gathered(struct mr_set *set, const struct mr_task_options *task,
                            struct mr_enqueue_result *result)
{
    struct mr_req_gathered req = {.req.op = MR_OP_GATHERED,
                                  .queue = set->req.queue,
                                  .set = mr_slice_str(set->req.set),
                                  .task = task};
    enum mr_err err = mr_broker_call(set->groups->worker->broker, &req.req);
    *result = req.result;
    mr_req_done(&req.req);
    return err == MR_OK ? result->err : err;
}

struct mr_slice mr_set_queue(const struct mr_set *set)
{
    return set->req.queue;
}

const char *mr_set_group(const struct mr_set *set)
{
    return set->req.group;
}

size_t mr_set_count(const struct mr_set *set)
{
    return set->req.n;
}

const struct mr_task *mr_set_task(const struct mr_set *set, size_t i)
{
    return i < set->req.n ? &set->req.tasks[i] : NULL;
}

enum mr_err mr_set_become(struct mr_set *set, const struct mr_task_options *task,
                          struct mr_enqueue_result *ret_result)
{
    struct mr_enqueue_result result;
    if (set->became)
        return MR_WRONG_STATE;
    enum mr_err err = gathered(set, task, &result);
    set->became = err == MR_OK;
    if (ret_result != NULL)
        *ret_result = result;
    return err;
}

static void aggregate(struct mr_set *set, bool stopping)
{
    struct mr_worker *w = set->groups->worker;
    struct mr_enqueue_result result;
    if (stopping) {
        if (gathered(set, NULL, &result) != MR_OK)
            mr_diag(MR_DIAG_DEBUG, "set.kept", "group=%s", set->req.group);
    } else {
        enum mr_err err = w->options.aggregate(set, w->options.aggregate_arg);
        if (!set->became)
            mr_diag(MR_DIAG_WARN, "aggregate.failed", "queue=%.*s group=%s tasks=%zu error=%s",
                    (int)set->req.queue.len, (const char *)set->req.queue.data, set->req.group,
                    set->req.n, mr_err_name(err));
        atomic_fetch_add(&w->figures[set->became ? FIGURE_AGGREGATED : FIGURE_NOT_AGGREGATED], 1);
    }
    mr_req_done(&set->req.req);
    free(set);
}

static void *groups_main(void *arg)
{
    struct mr_groups *groups = arg;
    mr_lock_enter(&groups->lock);
    while (!groups->stopping || groups->busy > 0 || groups->ready != NULL) {
        mr_mono now = mr_mono_now(groups->worker->clock), look;
        struct gather_queue *queue = next_queue(groups, now, &look);
        struct mr_set *set = groups->ready;
        if (set != NULL) {
            groups->ready = set->next;
            bool stopping = groups->stopping;
            mr_lock_leave(&groups->lock);
            aggregate(set, stopping);
            mr_lock_enter(&groups->lock);
            groups->sets--;
            mr_lock_notify_all(&groups->lock);
        } else if (queue != NULL) {
            send_gather(groups, queue, now);
        } else {
            mr_lock_wait(&groups->lock, look.ns == MR_MONO_NEVER.ns ? INT64_MAX : look.ns - now.ns);
        }
    }
    mr_lock_leave(&groups->lock);
    return NULL;
}

/* ---- life ----------------------------------------------------------------------------------- */

enum mr_err mr_groups_options(struct mr_worker_options *o)
{
    if (o->aggregate == NULL)
        return MR_OK;
    o->group_grace_ms = o->group_grace_ms ? o->group_grace_ms : GRACE_MS;
    bool fine = o->group_max_size <= MR_BATCH_MAX && o->group_max_delay_ms >= 0 &&
                o->group_grace_ms >= GRACE_LEAST_MS && o->group_grace_ms <= MR_DELAY_MAX_MS;
    return fine ? MR_OK : MR_INVALID;
}

enum mr_err mr_groups_start(struct mr_worker *w)
{
    if (w->options.aggregate == NULL)
        return MR_OK;
    struct mr_groups *groups = calloc(1, sizeof *groups);
    if (groups == NULL)
        return MR_NOMEM;
    w->groups = groups;
    groups->worker = w;
    mr_lock_init(&groups->lock);
    groups->queues_n = w->options.queues_n;
    groups->queues = calloc(groups->queues_n, sizeof *groups->queues);
    if (groups->queues == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < groups->queues_n; i++)
        groups->queues[i].name = w->options.queues[i].name;
    for (; groups->threads_n < THREADS; groups->threads_n++)
        MR_TRY(
            mr_thread_start(&groups->threads[groups->threads_n], "mr-groups", groups_main, groups));
    return MR_OK;
}

void mr_groups_stop(struct mr_worker *w)
{
    struct mr_groups *groups = w->groups;
    if (groups == NULL)
        return;
    mr_lock_enter(&groups->lock);
    groups->stopping = true;
    mr_lock_notify_all(&groups->lock);
    mr_lock_leave(&groups->lock);
    for (size_t i = 0; i < groups->threads_n; i++)
        mr_thread_join(groups->threads[i]);
    w->groups = NULL;
    mr_lock_done(&groups->lock);
    free(groups->queues);
    free(groups);
}
