/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose a queue is. The store decides, by its own clock; a lease that we take for ours a moment longer lets us move
 * no cursor, since that is fenced by it. What was submitted meanwhile has the ids that the next owner would give it.
 */
#include <stdio.h>
#include <stdlib.h>

#include "job/internal.h"

enum { SHUN_LOOKS = 2 }; /* who gave a queue up leaves it to others for so long */

/* ---- queues ---------------------------------------------------------------------------------- */

static void pump_again(struct mr_timer *timer, void *arg)
{
    (void)arg;
    mr_container(timer, struct queue, again)->paused = false; /* the turn goes on with it */
}

struct queue *job_queue_find(const struct mr_job_service *s, struct mr_slice name)
{
    for (struct mr_link *at = s->queues.next; at != &s->queues; at = at->next) {
        struct queue *queue = mr_container(at, struct queue, link);
        if (mr_slice_equal(mr_slice_str(queue->name), name))
            return queue;
    }
    return NULL;
}

struct queue *job_queue(struct mr_job_service *s, struct mr_slice name)
{
    struct queue *queue = job_queue_find(s, name);
    if (queue != NULL)
        return queue;
    queue = name.len <= MR_NAME_MAX ? calloc(1, sizeof *queue) : NULL;
    if (queue == NULL)
        return NULL;
    queue->s = s;
    snprintf(queue->name, sizeof queue->name, "%.*s", (int)name.len, (const char *)name.data);
    snprintf(queue->lease, sizeof queue->lease, PUMP_LEASE "%s", queue->name);
    mr_list_init(&queue->jobs);
    mr_timer_init(&queue->again, pump_again);
    mr_list_push_back(&s->queues, &queue->link);
    return queue;
}

void job_queues_free(struct mr_job_service *s)
{
    while (!mr_list_empty(&s->queues)) {
        struct queue *queue = mr_container(s->queues.next, struct queue, link);
        mr_assert(!queue->owned && mr_list_empty(&queue->jobs));
        mr_list_remove(&queue->link);
        free(queue);
    }
}

/* ---- those with live jobs -------------------------------------------------------------------- */

struct listing {
    struct mr_errand errand;
    struct mr_store_job_queues req;
    char after[MR_NAME_MAX + 1];
};

static void list_from(struct mr_job_service *s, const char *after);
static void release_idle(struct mr_job_service *s);

static bool any_live(const struct mr_job_service *s)
{
    for (const struct mr_link *at = s->queues.next; at != &s->queues; at = at->next) {
        const struct queue *queue = mr_container(at, struct queue, link);
        if (queue->wanted || queue->owned)
            return true;
    }
    return false;
}

/* What is wanted of them is known. */
static void all_listed(struct mr_job_service *s)
{
    release_idle(s);
    if (any_live(s))
        job_results_want(s);
    else
        job_results_linger(s);
}

static void listed(struct mr_errand *errand)
{
    struct listing *l = mr_container(errand, struct listing, errand);
    struct mr_job_service *s = job_of(errand);
    bool more = l->req.req.err == MR_OK && l->req.more && l->req.n > 0;
    s->listing = false;
    for (size_t i = 0; l->req.req.err == MR_OK && i < l->req.n; i++) {
        struct queue *queue = job_queue(s, l->req.queues[i]);
        more = more && queue != NULL;
        if (queue == NULL)
            continue;
        queue->wanted = true;
        if (more)
            snprintf(l->after, sizeof l->after, "%s", queue->name);
    }
    s->listed = s->listed || (l->req.req.err == MR_OK && !more);
    if (more && !s->desk.stopping) {
        list_from(s, l->after);
    } else if (!s->desk.stopping) {
        job_queues_look(s);
        if (l->req.req.err == MR_OK)
            all_listed(s);
    }
    mr_store_req_done(&l->req.req);
    free(l);
}

static void list_from(struct mr_job_service *s, const char *after)
{
    struct listing *l = calloc(1, sizeof *l);
    if (l == NULL)
        return;
    snprintf(l->after, sizeof l->after, "%s", after);
    l->errand = (struct mr_errand){.desk = &s->desk, .done = listed};
    l->req = (struct mr_store_job_queues){
        .req.op = MR_STORE_JOB_QUEUES, .after = mr_slice_str(l->after), .max = PAGE_MAX};
    s->listing = true;
    mr_errand_store(&l->errand, &l->req.req);
}

void job_queues_list(struct mr_job_service *s)
{
    if (s->listing)
        return;
    for (struct mr_link *at = s->queues.next; at != &s->queues; at = at->next)
        mr_container(at, struct queue, link)->wanted = false; /* until it is listed again */
    list_from(s, "");
}

/* ---- gained and lost ------------------------------------------------------------------------- */

/* Its parts are handed out before this time; zero: not any more. */
static void open_until(const struct queue *queue, mr_mono until)
{
    if (queue->s->gate != NULL)
        mr_gate_until(queue->s->gate, MR_JOB_TOPIC, mr_slice_str(queue->name), until);
}

static void gained(struct queue *queue, uint64_t token)
{
    struct mr_job_service *s = queue->s;
    queue->owned = true;
    queue->token = token;
    queue->generation++;
    JOB_COUNT(s, queues, 1);
    mr_diag(MR_DIAG_INFO, "job.queue", "queue=%s token=%llu", queue->name,
            (unsigned long long)token);
    job_results_want(s);
    job_slots_look(s);
    job_live_walk(queue);
}

static void dropped(struct queue *queue)
{
    struct mr_job_service *s = queue->s;
    queue->owned = false;
    queue->generation++;
    queue->walking = queue->walk_again = queue->advancing = queue->paused = false;
    queue->hands_over = false;
    open_until(queue, (mr_mono){0});
    job_left_note(s);
    mr_desk_cancel(&s->desk, &queue->again);
    mr_lock_enter(&s->lock);
    s->figures.queues--;
    mr_lock_leave(&s->lock);
    job_lives_drop(queue);
}

void job_queue_lost(struct queue *queue, enum mr_err err)
{
    if (!queue->owned)
        return;
    mr_diag(MR_DIAG_WARN, "job.queue", "queue=%s lost=yes error=%s", queue->name, mr_err_name(err));
    dropped(queue);
}

/* ---- asking ---------------------------------------------------------------------------------- */

struct asking {
    struct mr_errand errand;
    struct mr_store_lease req;
    mr_mono at;
    size_t n;
    struct queue **queues;
    struct mr_store_lease_item *items;
    struct mr_store_lease_result *results;
};

static void asking_free(struct asking *a)
{
    mr_store_req_done(&a->req.req);
    free(a->queues);
    free(a->items);
    free(a->results);
    free(a);
}

static struct asking *asking_new(struct mr_job_service *s, size_t max)
{
    struct asking *a = calloc(1, sizeof *a);
    if (a == NULL)
        return NULL;
    a->queues = calloc(max, sizeof(*a->queues));
    a->items = calloc(max, sizeof *a->items);
    a->results = calloc(max, sizeof *a->results);
    if (a->queues == NULL || a->items == NULL || a->results == NULL) {
        asking_free(a);
        return NULL;
    }
    a->errand.desk = &s->desk;
    a->at = mr_mono_now(s->desk.clock);
    return a;
}

static void asking_add(struct asking *a, struct queue *queue, enum mr_lease_verb verb)
{
    struct mr_job_service *s = queue->s;
    a->queues[a->n] = queue;
    a->items[a->n++] = (struct mr_store_lease_item){.verb = verb,
                                                    .name = mr_slice_str(queue->lease),
                                                    .owner = mr_slice_str(s->desk.owner),
                                                    .token = queue->token,
                                                    .ttl_ms = s->settings.lease_ms};
}

static void asking_send(struct asking *a, void (*done)(struct mr_errand *errand))
{
    if (a == NULL || a->n == 0) {
        if (a != NULL)
            asking_free(a);
        return;
    }
    a->errand.done = done;
    a->req = (struct mr_store_lease){
        .req.op = MR_STORE_LEASE, .items = a->items, .n = a->n, .results = a->results};
    mr_errand_store(&a->errand, &a->req.req);
}

static size_t count_queues(const struct mr_job_service *s)
{
    size_t n = 0;
    for (const struct mr_link *at = s->queues.next; at != &s->queues; at = at->next)
        n++;
    return n;
}

static void answered_one(struct asking *a, size_t i)
{
    struct queue *queue = a->queues[i];
    const struct mr_store_lease_result *result = &a->results[i];
    bool renewed = a->items[i].verb == MR_LEASE_RENEW;
    if (renewed && (!queue->owned || queue->token != a->items[i].token))
        return; /* of a lease that was lost meanwhile */
    if (result->err == MR_OK) {
        queue->until = mr_mono_add_ms(a->at, queue->s->settings.lease_ms);
        queue->renewed = a->at;
        queue->refused = (mr_mono){0};
        if (!queue->owned || queue->token == result->token)
            open_until(queue, queue->until);
        if (!queue->owned)
            gained(queue, result->token);
        else if (queue->token != result->token)
            job_queue_lost(queue, MR_STALE);
    } else if (renewed) {
        job_queue_lost(queue, result->err);
    } else if (queue->refused.ns == 0) {
        queue->refused = a->at;
    }
}

/* What was got after the service was told to stop. */
static void give_back(struct asking *a)
{
    for (size_t i = 0; i < a->n; i++) {
        struct queue *queue = a->queues[i];
        if (a->results[i].err != MR_OK || a->items[i].verb != MR_LEASE_ACQUIRE || queue->owned)
            continue;
        queue->owned = true;
        queue->token = a->results[i].token;
        JOB_COUNT(queue->s, queues, 1);
    }
    job_queues_release(job_of(&a->errand));
}

static void answered(struct mr_errand *errand)
{
    struct asking *a = mr_container(errand, struct asking, errand);
    for (size_t i = 0; i < a->n; i++) {
        a->queues[i]->asking = false;
        if (a->req.req.err == MR_OK && !job_of(errand)->desk.stopping)
            answered_one(a, i);
    }
    if (a->req.req.err == MR_OK && job_of(errand)->desk.stopping)
        give_back(a);
    if (a->req.req.err != MR_OK)
        mr_diag(MR_DIAG_WARN, "job.lease", "error=%s", mr_err_name(a->req.req.err));
    asking_free(a);
}

static void released(struct mr_errand *errand)
{
    asking_free(mr_container(errand, struct asking, errand));
}

/* It has no jobs: whoever loads the next one may have it. */
static bool is_idle(const struct queue *queue)
{
    return queue->owned && !queue->wanted && mr_list_empty(&queue->jobs) && !queue->walking;
}

static void release_idle(struct mr_job_service *s)
{
    struct asking *a = asking_new(s, count_queues(s) + 1);
    for (struct mr_link *at = s->queues.next; a != NULL && at != &s->queues; at = at->next) {
        struct queue *queue = mr_container(at, struct queue, link);
        if (!is_idle(queue) || queue->asking)
            continue;
        asking_add(a, queue, MR_LEASE_RELEASE);
        dropped(queue);
    }
    asking_send(a, released);
}

void job_queues_look(struct mr_job_service *s)
{
    mr_mono now = mr_mono_now(s->desk.clock);
    struct asking *a = asking_new(s, count_queues(s) + 1);
    for (struct mr_link *at = s->queues.next; a != NULL && at != &s->queues; at = at->next) {
        struct queue *queue = mr_container(at, struct queue, link);
        if (queue->owned && now.ns >= queue->until.ns)
            job_queue_lost(queue, MR_TIMEOUT);
        bool due = queue->owned ? now.ns - queue->renewed.ns >= s->settings.renew_ms * MR_NS_PER_MS
                                : queue->wanted && now.ns >= queue->shunned.ns;
        if (!due || queue->asking)
            continue;
        queue->asking = true;
        asking_add(a, queue, queue->owned ? MR_LEASE_RENEW : MR_LEASE_ACQUIRE);
    }
    asking_send(a, answered);
}

void job_queue_give_up(struct queue *queue, enum mr_err err)
{
    struct mr_job_service *s = queue->s;
    struct asking *a = queue->owned ? asking_new(s, 1) : NULL;
    if (a == NULL)
        return;
    mr_diag(MR_DIAG_WARN, "job.queue", "queue=%s given_up=yes error=%s", queue->name,
            mr_err_name(err));
    asking_add(a, queue, MR_LEASE_RELEASE);
    dropped(queue);
    queue->shunned = mr_mono_add_ms(mr_mono_now(s->desk.clock), SHUN_LOOKS * s->settings.look_ms);
    asking_send(a, released);
}

void job_queues_release(struct mr_job_service *s)
{
    struct asking *a = asking_new(s, count_queues(s) + 1);
    for (struct mr_link *at = s->queues.next; at != &s->queues; at = at->next) {
        struct queue *queue = mr_container(at, struct queue, link);
        if (!queue->owned)
            continue;
        if (a != NULL)
            asking_add(a, queue, MR_LEASE_RELEASE);
        dropped(queue);
    }
    asking_send(a, released);
}
