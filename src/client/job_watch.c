/* SPDX-License-Identifier: Apache-2.0 */
/* Watching a job, waiting for it, taking its result: on the thread that calls. */
#include <stdlib.h>

#include "broker/remote/stream.h"
#include "client/job.h"
#include "wire/job.h"

enum {
    WATCH_ID = 1, /* of JobWatchRequest */
    WATCH_AFTER = 2,
    EVENT_JOB = 1, /* of JobEvent */
    EVENT_END = 2,
    PIECE_BYTES = 1,     /* of JobPiece */
    AWAY_MS = 30 * 1000, /* without a server */
    AGAIN_MS = 100,
    WAITING_MAX = 1000, /* events that the thread has not taken: then the older ones go */
};

#define WATCH_PATH  "/millrace.v1.Jobs/Watch"
#define RESULT_PATH "/millrace.v1.Jobs/Result"

/* What a watch tells, wherever the job is. */
struct watching {
    struct mr_client *client;
    struct mr_slice id;
    uint64_t after; /* the last version that was told */
    mr_job_seen *seen;
    void *arg;
    mr_mono end;    /* INT64_MAX: none */
    bool has_ended; /* and that was told */
};

static int64_t left_ns(const struct watching *watching)
{
    if (watching->end.ns == INT64_MAX)
        return INT64_MAX;
    int64_t left = watching->end.ns - mr_mono_now(mr_clock_system()).ns;
    return left > 0 ? left : 0;
}

/* ---- in this process -------------------------------------------------------------------------- */

struct waiting_event {
    struct mr_link link;
    struct mr_job_event *event;
};

struct watching_here {
    struct mr_lock lock;
    struct mr_link events; /* of struct waiting_event */
    size_t n;
    bool ended;
    enum mr_err err;
};

static struct mr_job_event *pop_event(struct watching_here *here)
{
    struct mr_link *link = mr_list_pop_front(&here->events);
    if (link == NULL)
        return NULL;
    struct waiting_event *waiting = mr_container(link, struct waiting_event, link);
    struct mr_job_event *event = waiting->event;
    free(waiting);
    here->n--;
    return event;
}

/* Thread: the service's. Without memory an event is left out: the next one tells more. */
static void on_event(struct mr_job_event *event, void *arg)
{
    struct watching_here *here = arg;
    struct waiting_event *waiting = calloc(1, sizeof *waiting);
    if (waiting == NULL)
        return;
    waiting->event = mr_job_event_ref(event);
    mr_lock_enter(&here->lock);
    mr_list_push_back(&here->events, &waiting->link);
    if (++here->n > WAITING_MAX)
        mr_job_event_unref(pop_event(here));
    mr_lock_notify_all(&here->lock);
    mr_lock_leave(&here->lock);
}

static void on_ended(enum mr_err err, void *arg)
{
    struct watching_here *here = arg;
    mr_lock_enter(&here->lock);
    here->ended = true;
    here->err = err;
    mr_lock_notify_all(&here->lock);
    mr_lock_leave(&here->lock);
}

static enum mr_err next_here(struct watching *watching, struct watching_here *here,
                             struct mr_job_event **ret_event)
{
    bool in_time = true;
    mr_lock_enter(&here->lock);
    while (in_time && here->n == 0 && !here->ended)
        in_time = mr_lock_wait(&here->lock, left_ns(watching));
    *ret_event = pop_event(here);
    enum mr_err err = here->ended ? here->err : MR_TIMEOUT;
    mr_lock_leave(&here->lock);
    return *ret_event != NULL ? MR_OK : err;
}

static enum mr_err watch_here(struct watching *watching, struct mr_job_service *service)
{
    struct watching_here here = {.ended = false};
    struct mr_job_watch *watch = NULL;
    struct mr_job_event *event = NULL;
    mr_lock_init(&here.lock);
    mr_list_init(&here.events);
    struct mr_job_watch_options options = {.id = watching->id,
                                           .after = watching->after,
                                           .event = on_event,
                                           .ended = on_ended,
                                           .arg = &here};
    enum mr_err err = mr_job_service_watch(service, &options, &watch);
    while (err == MR_OK) {
        err = next_here(watching, &here, &event);
        if (event == NULL)
            break;
        err = watching->seen(&event->job.info, watching->arg);
        mr_job_event_unref(event);
    }
    mr_job_watch_free(watch);
    while ((event = pop_event(&here)) != NULL)
        mr_job_event_unref(event);
    mr_lock_done(&here.lock);
    return err == MR_INVALID ? MR_NOT_FOUND : err;
}

/* ---- through a server ------------------------------------------------------------------------- */

/* Opens a call and asks. */
static enum mr_err ask_there(struct mr_broker *broker, const char *path, struct mr_slice id,
                             uint64_t after, struct mr_remote_stream **ret_stream)
{
    uint8_t message[MR_JOB_ID_MAX + 64];
    struct mr_remote_stream *stream;
    if (id.len > MR_JOB_ID_MAX)
        return MR_NOT_FOUND;
    uint8_t *at = mr_flat_put_head(message, WATCH_ID, id.len);
    if (id.len > 0)
        memcpy(at, id.data, id.len);
    at += id.len;
    if (after > 0)
        at = mr_flat_put_varint(at, WATCH_AFTER, after);
    if (broker == NULL)
        return MR_UNAVAILABLE;
    MR_TRY(mr_remote_stream_open(broker, path, &stream));
    enum mr_err err = mr_remote_stream_send(stream, mr_slice_make(message, (size_t)(at - message)));
    mr_remote_stream_half_close(stream);
    if (err != MR_OK && err != MR_CLOSED) {
        mr_remote_stream_free(stream);
        return err;
    }
    *ret_stream = stream;
    return MR_OK;
}

static enum mr_err tell(struct watching *watching, struct mr_slice bytes)
{
    struct mr_arena arena = {0};
    struct mr_job_info info = {0};
    enum mr_err err = MR_OK;
    while (err == MR_OK && bytes.len > 0) {
        struct mr_flat_item item;
        err = mr_flat_next(&bytes, &item);
        if (err == MR_OK && item.number == EVENT_JOB)
            err = mr_job_info_decode(item.bytes, &arena, &info);
        else if (err == MR_OK && item.number == EVENT_END)
            watching->has_ended = item.value != 0;
    }
    if (err == MR_OK) {
        watching->after = info.version;
        err = watching->seen(&info, watching->arg);
    } else if (err == MR_INVALID) {
        err = MR_FAILED;
    }
    mr_arena_done(&arena);
    return err;
}

/* ret_seen: that the server said something. */
static enum mr_err watch_once(struct watching *watching, struct mr_broker *broker, bool *ret_told)
{
    struct mr_remote_stream *stream;
    struct mr_slice bytes;
    enum mr_err err = MR_OK;
    MR_TRY(ask_there(broker, WATCH_PATH, watching->id, watching->after, &stream));
    bool ours = false; /* the error is the caller's */
    while (err == MR_OK) {
        err = mr_remote_stream_next(stream, left_ns(watching), &bytes, NULL);
        if (err != MR_OK)
            break;
        *ret_told = true;
        err = tell(watching, bytes);
        ours = err != MR_OK;
    }
    mr_remote_stream_free(stream);
    if (!ours && err == MR_EMPTY)
        return MR_OK;
    return err;
}

static enum mr_err watch_there(struct watching *watching)
{
    struct mr_client *client = watching->client;
    struct mr_clock *clock = mr_clock_system();
    mr_mono away = mr_mono_add_ms(mr_mono_now(clock), AWAY_MS);
    struct mr_event never;
    enum mr_err err;
    mr_event_init(&never);
    for (;;) {
        bool told = false;
        err = watch_once(watching, mr_client_server(client), &told);
        if (err != MR_UNAVAILABLE || watching->has_ended)
            return watching->has_ended && err == MR_UNAVAILABLE ? MR_OK : err;
        if (told)
            away = mr_mono_add_ms(mr_mono_now(clock), AWAY_MS);
        if (mr_mono_now(clock).ns >= away.ns)
            return err;
        if (left_ns(watching) == 0)
            return MR_TIMEOUT;
        (void)mr_event_wait(&never, AGAIN_MS * MR_NS_PER_MS);
    }
}

static enum mr_err watch(struct watching *watching)
{
    struct mr_job_service *service = NULL;
    MR_TRY(mr_client_jobs(watching->client, MR_JOBS_LOOK, &service, NULL));
    return service != NULL ? watch_here(watching, service) : watch_there(watching);
}

enum mr_err mr_job_watch(struct mr_client *client, struct mr_slice id, uint64_t after,
                         mr_job_seen *seen, void *arg)
{
    struct watching watching = {
        .client = client, .id = id, .after = after, .seen = seen, .arg = arg, .end.ns = INT64_MAX};
    return watch(&watching);
}

static enum mr_err see_nothing(const struct mr_job_info *job, void *arg)
{
    (void)job, (void)arg;
    return MR_OK;
}

enum mr_err mr_job_wait(struct mr_client *client, struct mr_slice id, int64_t timeout_ms,
                        struct mr_job_list **ret_list)
{
    mr_mono now = mr_mono_now(mr_clock_system());
    struct watching watching = {.client = client, .id = id, .seen = see_nothing};
    watching.end.ns = timeout_ms > 0 ? mr_mono_add_ms(now, timeout_ms).ns : INT64_MAX;
    MR_TRY(watch(&watching));
    return mr_job_get(client, id, ret_list);
}

/* ---- results ---------------------------------------------------------------------------------- */

static enum mr_err result_here(struct mr_job_service *service, struct mr_slice id,
                               mr_job_bytes *piece, void *arg, struct mr_detail *detail)
{
    enum mr_err err = MR_OK;
    bool more = true;
    uint64_t stamp = 0;
    for (uint32_t seq = 0; err == MR_OK && more; seq++) {
        struct mr_job_ask ask = {.kind = MR_JOB_RESULT, .id = id, .seq = seq, .stamp = stamp};
        err = mr_job_service_ask_wait(service, &ask);
        more = ask.more;
        stamp = ask.stamp;
        if (err == MR_OK && ask.bytes.len > 0)
            err = piece(ask.bytes, arg);
        else if (err != MR_OK && detail != NULL)
            *detail = ask.detail;
        mr_job_ask_done(&ask);
    }
    return err;
}

static enum mr_err result_there(struct mr_broker *broker, struct mr_slice id, mr_job_bytes *piece,
                                void *arg, struct mr_detail *detail)
{
    struct mr_remote_stream *stream;
    struct mr_slice bytes;
    enum mr_err err = MR_OK;
    bool ours = false;
    MR_TRY(ask_there(broker, RESULT_PATH, id, 0, &stream));
    while (err == MR_OK) {
        err = mr_remote_stream_next(stream, INT64_MAX, &bytes, detail);
        while (err == MR_OK && bytes.len > 0) {
            struct mr_flat_item item;
            err = mr_flat_next(&bytes, &item);
            if (err == MR_OK && item.number == PIECE_BYTES && item.bytes.len > 0) {
                err = piece(item.bytes, arg);
                ours = err != MR_OK;
            }
        }
    }
    mr_remote_stream_free(stream);
    return err == MR_EMPTY && !ours ? MR_OK : err;
}

enum mr_err mr_job_result(struct mr_client *client, struct mr_slice id, mr_job_bytes *piece,
                          void *arg, struct mr_detail *detail)
{
    struct mr_job_service *service = NULL;
    MR_TRY(mr_client_jobs(client, MR_JOBS_LOOK, &service, detail));
    return service != NULL ? result_here(service, id, piece, arg, detail)
                           : result_there(mr_client_server(client), id, piece, arg, detail);
}
