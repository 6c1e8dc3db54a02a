/* SPDX-License-Identifier: Apache-2.0 */
/* The service at its desk: what is done in every turn, and once in a while; opening and closing. */
#include "job/service.h"

#include <stdio.h>
#include <stdlib.h>

#include "job/internal.h"

enum { CROWDED_MS = 50 }; /* how often a full queue is looked at, if nothing is heard of it */

static const struct mr_job_settings defaults = {
    .window = MR_JOB_WINDOW,
    .lease_ms = 10 * 1000,
    .master_ms = 15 * 1000,
    .look_ms = 1000,
    .watch_ms = 200,
    .segment_parts = MR_STORE_SEGMENT_PARTS,
    .retry_parts = MR_STORE_RETRY_PARTS,
    .load_ms = 10 * 60 * 1000,
    .retention_ms = MR_JOB_RETENTION_MS,
    .govern_ms = 60 * 1000,
    .reconcile_ms = 30 * 1000,
};

int64_t job_since_ms(const struct mr_job_service *s, mr_mono since)
{
    return (mr_mono_now(s->desk.clock).ns - since.ns) / MR_NS_PER_MS;
}

/* ---- what is new ----------------------------------------------------------------------------- */

void job_changed_one(struct mr_job_service *s, const struct mr_store_job *row)
{
    struct live *live = job_live_find(s, &row->uid);
    job_watch_row(s, row);
    if (live != NULL)
        job_live_update(live, row);
    else if (row->state == MR_JOBROW_FAILED || row->state == MR_JOBROW_CANCELLED)
        job_sweep(s, &row->uid, row->round);
}

void job_changed(struct mr_job_service *s, const struct mr_store_jobs_changed *changed)
{
    for (size_t i = 0; i < changed->n; i++)
        job_changed_one(s, &changed->jobs[i]);
}

struct news {
    struct mr_msg msg;
    struct mr_uuid uid;
    size_t len;
    char queue[];
};

static void news_deliver(struct mr_msg *msg, void *receiver)
{
    struct news *news = mr_container(msg, struct news, msg);
    struct mr_job_service *s = receiver;
    struct queue *queue = s->running && !s->desk.stopping && news->len > 0
                              ? job_queue(s, mr_slice_make(news->queue, news->len))
                              : NULL;
    job_watch_changed(s, &news->uid);
    if (queue != NULL) {
        queue->wanted = true;
        if (queue->owned)
            job_live_walk(queue);
        else
            job_queues_look(s);
    }
    free(news);
}

void job_stir(struct mr_job_service *s, struct mr_slice queue, const struct mr_uuid *uid)
{
    struct news *news = malloc(sizeof *news + queue.len);
    if (news == NULL)
        return; /* it looks by itself before long */
    news->msg.deliver = news_deliver;
    news->uid = *uid;
    news->len = queue.len;
    if (queue.len > 0)
        memcpy(news->queue, queue.data, queue.len);
    mr_desk_send(&s->desk, &news->msg);
}

/* ---- once in a while ------------------------------------------------------------------------- */

static int64_t look_ms(const struct mr_job_service *s)
{
    return s->settings.renew_ms < s->settings.look_ms ? s->settings.renew_ms : s->settings.look_ms;
}

static void look(struct mr_timer *timer, void *arg)
{
    struct mr_job_service *s = arg;
    if (s->desk.stopping)
        return;
    mr_desk_after(&s->desk, timer, look_ms(s));
    job_queues_list(s);
    job_queues_look(s);
    job_slots_look(s);
    job_left_look(s);
    for (struct mr_link *at = s->queues.next; at != &s->queues; at = at->next) {
        struct queue *queue = mr_container(at, struct queue, link);
        if (!queue->owned)
            continue;
        job_live_walk(queue);
        job_reconcile_look(queue);
    }
}

/* Others take results, too; what they write makes room, and they do not tell. */
static void look_closer(struct queue *queue)
{
    if (job_pump_waits(queue) && job_since_ms(queue->s, queue->heard) >= CROWDED_MS) {
        queue->heard = mr_mono_now(queue->s->desk.clock);
        job_live_walk(queue);
    }
}

/* ---- at the desk ----------------------------------------------------------------------------- */

static int64_t rest_ns(const void *service)
{
    const struct mr_job_service *s = service;
    for (const struct mr_link *at = s->queues.next; at != &s->queues; at = at->next) {
        if (job_pump_waits(mr_container(at, struct queue, link)))
            return CROWDED_MS * MR_NS_PER_MS;
    }
    return MR_NS_PER_S;
}

static void turn(void *service)
{
    struct mr_job_service *s = service;
    for (struct mr_link *at = s->queues.next; at != &s->queues; at = at->next) {
        struct queue *queue = mr_container(at, struct queue, link);
        if (queue->hands_over)
            job_queue_give_up(queue, MR_UNSUPPORTED);
        if (!queue->owned)
            continue;
        job_pump(queue);
        job_advance(queue);
        look_closer(queue);
    }
    job_watch_look(s);
    job_loads_look(s);
}

static void begin_running(struct mr_msg *msg, void *receiver)
{
    struct mr_job_service *s = receiver;
    free(msg);
    if (s->running || s->desk.stopping)
        return;
    s->running = true;
    job_left_note(s);
    job_reduces_begin(s);
    mr_desk_after(&s->desk, &s->look, 0);
    job_govern_begin(s);
}

static void stop(void *service)
{
    struct mr_job_service *s = service;
    job_watch_close(s);
    mr_intake_end(&s->results);
    job_sweeps_end(s);
    if (s->running)
        job_govern_end(s);
    job_queues_release(s);
}

/* ---- life ------------------------------------------------------------------------------------ */

#define DEFAULT(settings, field)                                                                   \
    do {                                                                                           \
        if ((settings)->field == 0)                                                                \
            (settings)->field = defaults.field;                                                    \
    } while (0)

static void set_settings(struct mr_job_settings *to, const struct mr_job_settings *from)
{
    *to = *from;
    DEFAULT(to, window);
    DEFAULT(to, lease_ms);
    if (to->renew_ms == 0)
        to->renew_ms = to->lease_ms * 3 / 10;
    DEFAULT(to, master_ms);
    DEFAULT(to, look_ms);
    DEFAULT(to, watch_ms);
    DEFAULT(to, segment_parts);
    DEFAULT(to, retry_parts);
    DEFAULT(to, load_ms);
    DEFAULT(to, retention_ms);
    if (to->segment_ms == 0)
        to->segment_ms = to->retention_ms;
    DEFAULT(to, govern_ms);
    DEFAULT(to, reconcile_ms);
}

static enum mr_err begin(struct mr_job_service *s, const struct mr_job_service_options *options)
{
    MR_TRY(mr_desk_init(&s->desk, &(struct mr_desk_options){.broker = options->broker,
                                                            .store = options->store,
                                                            .clock = options->clock,
                                                            .node = options->node,
                                                            .thread = "mr-jobs",
                                                            .service = s,
                                                            .turn = turn,
                                                            .rest_ns = rest_ns,
                                                            .stop = stop}));
    MR_TRY(job_lives_init(s));
    MR_TRY(mr_exec_thread_new("mr-reduce", false, &s->desk.inbox, &s->reducer));
    for (size_t i = 0; s->settings.commands && i < COMMANDS_MAX; i++)
        MR_TRY(mr_exec_thread_new("mr-command", false, &s->desk.inbox, &s->commanders[i]));
    mr_timer_init(&s->look, look);
    job_results_init(s);
    return mr_desk_start(&s->desk);
}

static void service_free(struct mr_job_service *s)
{
    mr_exec_thread_free(s->reducer);
    for (size_t i = 0; i < COMMANDS_MAX; i++)
        mr_exec_thread_free(s->commanders[i]);
    job_queues_free(s);
    job_lives_done(s);
    mr_desk_done(&s->desk);
    mr_lock_done(&s->lock);
    job_watch_done(s);
    free(s);
}

static void set_temp_dir(struct mr_job_service *s, const char *dir)
{
    if (dir == NULL)
        dir = getenv("TMPDIR");
    snprintf(s->temp_dir, sizeof s->temp_dir, "%s", dir != NULL && dir[0] != '\0' ? dir : P_tmpdir);
    s->settings.temp_dir = s->temp_dir;
}

enum mr_err mr_job_service_open(const struct mr_job_service_options *options,
                                struct mr_job_service **ret_service, struct mr_detail *detail)
{
    struct mr_job_service *s = calloc(1, sizeof *s);
    if (s == NULL)
        return MR_NOMEM;
    s->step = options->step;
    s->step_arg = options->step_arg;
    s->gate = options->gate;
    if (s->gate != NULL) /* before there are workers */
        mr_gate_guard(s->gate, MR_JOB_TOPIC, MR_GATE_BY_QUEUE);
    s->payload_max = options->payload_max != 0 ? options->payload_max : MR_PAYLOAD_MAX;
    mr_list_init(&s->queues);
    mr_list_init(&s->sweeps);
    mr_list_init(&s->loads);
    mr_lock_init(&s->lock);
    job_watch_init(s);
    set_settings(&s->settings, &options->settings);
    set_temp_dir(s, options->settings.temp_dir);
    enum mr_err err = begin(s, options);
    if (err != MR_OK) {
        mr_detail_set(detail, "jobs: %s", mr_err_text(err));
        service_free(s);
        return err;
    }
    if (!options->looks)
        mr_job_service_run(s);
    *ret_service = s;
    return MR_OK;
}

void mr_job_service_run(struct mr_job_service *service)
{
    struct mr_msg *msg = malloc(sizeof *msg);
    if (msg == NULL)
        return;
    msg->deliver = begin_running;
    mr_desk_send(&service->desk, msg);
}

void mr_job_service_close(struct mr_job_service *service)
{
    struct mr_job_service *s = service;
    struct mr_event never;
    if (s == NULL)
        return;
    mr_event_init(&never);
    while (atomic_load(&s->asking) > 0) /* the store answers them, with or without success */
        (void)mr_event_wait(&never, MR_NS_PER_MS);
    mr_desk_stop(&s->desk);
    service_free(s);
}

void mr_job_service_health(struct mr_job_service *service, struct mr_job_health *ret_health)
{
    struct mr_detail line = {.text = ""};
    enum mr_err problem = mr_store_problem(service->desk.store, &line);
    mr_lock_enter(&service->lock);
    *ret_health = service->figures;
    mr_lock_leave(&service->lock);
    ret_health->store = problem;
    if (problem != MR_OK)
        (void)snprintf(ret_health->store_text, sizeof ret_health->store_text, "%.*s",
                       (int)sizeof ret_health->store_text - 1, line.text);
}
