/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs.Watch and Jobs.Result: streams to a client, as fast as it takes them. */
#include <stdlib.h>

#include "api/feed.h"
#include "api/internal.h"
#include "api/jobs.h"
#include "millrace/v1/jobs.pb-c.h"
#include "wire/job.h"

enum { EVENT_JOB = 1, EVENT_END = 2, PIECE_BYTES = 1 }; /* of JobEvent and JobPiece */

/* Of both: one message asks, then it is only written. */
struct answering {
    struct stream head;
    struct valve valve;
    bool asked;
};

static void fail(struct mr_call *call, enum mr_err err, const struct mr_detail *detail)
{
    call_end(call, err, mr_slice_str(detail->text));
}

static bool is_slow(const struct mr_call *call)
{
    return mr_call_queued(call) >= MR_CALL_QUEUED_HIGH;
}

static void half_closed(struct mr_call *call)
{
    const struct answering *answering = mr_call_data(call);
    if (!answering->asked)
        call_end(call, MR_INVALID, MR_SLICE_LIT("no message"));
}

/* The one message; what comes behind it is not read. NULL: the call is ended. */
static ProtobufCMessage *read_once(struct answering *answering, struct mr_slice bytes,
                                   const ProtobufCMessageDescriptor *kind, struct mr_arena *arena)
{
    ProtobufCMessage *message = NULL;
    answering->asked = true;
    valve_hold(&answering->valve);
    enum mr_err err = decode_small(kind, bytes, arena, &message);
    if (err == MR_OK)
        return message;
    call_end(answering->head.call, err, MR_SLICE_LIT("the message cannot be read"));
    return NULL;
}

static bool open_answering(struct answering *answering, struct mr_api *api, struct mr_call *call,
                           const struct mr_token *token, const struct mr_call_ops *ops)
{
    if (answering == NULL || api->options.jobs == NULL) {
        free(answering);
        call_end(call, api->options.jobs == NULL ? MR_UNSUPPORTED : MR_NOMEM,
                 mr_slice_str(api->options.jobs == NULL ? "this server has no jobs" : ""));
        return false;
    }
    mr_call_set(call, ops, answering);
    valve_open(&answering->valve, NULL, call);
    stream_open(&answering->head, api, call, token, stream_end_now);
    return true;
}

static void close_answering(struct answering *answering)
{
    valve_close(&answering->valve);
    stream_close(&answering->head);
}

/* ---- watching ------------------------------------------------------------------------------- */

struct job_watcher {
    struct answering head;
    struct feed_reader reader;
    bool allowed, over;
};

static void feeds_post(struct feeds *feeds, struct mr_msg *msg)
{
    mr_rpc_post(mr_container(feeds, struct mr_api, job_feeds)->options.rpc, msg);
}

/* A JobEvent. */
static enum mr_err encode_event(const struct mr_job_event *event, struct mr_buf *buf)
{
    struct mr_buf job = {0};
    uint8_t head[32];
    enum mr_err err = mr_job_info_encode(&event->job.info, event->job.definition, &job);
    uint8_t *at = mr_flat_put_head(head, EVENT_JOB, job.len);
    if (err == MR_OK)
        err = mr_buf_append(buf, head, (size_t)(at - head));
    if (err == MR_OK)
        err = mr_buf_append_slice(buf, mr_buf_slice(&job));
    at = mr_flat_put_varint(head, EVENT_END, 1);
    if (err == MR_OK && event->end)
        err = mr_buf_append(buf, head, (size_t)(at - head));
    mr_buf_done(&job);
    return err;
}

void jobs_feeds_init(struct mr_api *api)
{
    feeds_init(&api->job_feeds, feeds_post, encode_event);
    api->job_feeds.service = api->options.jobs;
}

static bool is_allowed(struct job_watcher *watcher)
{
    const struct mr_job_event *event = feed_last(&watcher->reader);
    struct mr_detail detail;
    if (watcher->allowed || event == NULL)
        return true;
    watcher->allowed = true;
    enum mr_err err = jobs_may_touch(&watcher->head.head.token, &event->job.info, &detail);
    if (err == MR_OK)
        return true;
    watcher->over = true;
    fail(watcher->head.head.call, err, &detail);
    return false;
}

static void watcher_tell(struct feed_reader *reader)
{
    struct job_watcher *watcher = mr_container(reader, struct job_watcher, reader);
    struct mr_call *call = watcher->head.head.call;
    struct mr_slice bytes;
    enum mr_err err = MR_OK;
    if (watcher->over || !is_allowed(watcher))
        return;
    while (err == MR_OK && !is_slow(call) && feed_next(reader, &bytes))
        err = mr_call_send(call, bytes);
    if (err == MR_OK && !feed_is_over(reader, &err))
        return;
    watcher->over = true;
    if (feed_is_over(reader, &err)) /* else the call is, or there is no memory */
        call_end(call, err == MR_CLOSED ? MR_UNAVAILABLE : err, (struct mr_slice){0});
    else if (err == MR_NOMEM)
        call_end(call, err, (struct mr_slice){0});
}

static void watch_message(struct mr_call *call, struct mr_slice bytes)
{
    struct job_watcher *watcher = mr_call_data(call);
    struct mr_arena arena = {0};
    ProtobufCMessage *message =
        read_once(&watcher->head, bytes, &millrace__v1__job_watch_request__descriptor, &arena);
    const Millrace__V1__JobWatchRequest *in = (const void *)message;
    if (in != NULL) {
        enum mr_err err = feed_join(&watcher->head.head.api->job_feeds, mr_pb_text(in->id),
                                    in->after, &watcher->reader);
        if (err == MR_OK)
            watcher_tell(&watcher->reader);
        else
            call_end(call, err == MR_INVALID ? MR_NOT_FOUND : err, (struct mr_slice){0});
    }
    mr_arena_done(&arena);
}

static void watch_writable(struct mr_call *call)
{
    struct job_watcher *watcher = mr_call_data(call);
    watcher_tell(&watcher->reader);
}

static void watch_closed(struct mr_call *call, int status, struct mr_slice text)
{
    struct job_watcher *watcher = mr_call_data(call);
    (void)status, (void)text;
    close_answering(&watcher->head);
    feed_leave(&watcher->reader);
    free(watcher);
}

static const struct mr_call_ops watch_ops = {
    .message = watch_message,
    .half_closed = half_closed,
    .writable = watch_writable,
    .closed = watch_closed,
};

void jobs_watch_open(struct mr_api *api, struct mr_call *call, const struct mr_token *token)
{
    struct job_watcher *watcher = calloc(1, sizeof *watcher);
    if (open_answering(watcher != NULL ? &watcher->head : NULL, api, call, token, &watch_ops))
        watcher->reader.ready = watcher_tell;
}

/* ---- results -------------------------------------------------------------------------------- */

struct job_result {
    struct answering head;
    struct errand errand;
    struct jobs_asking asking;
    char id[MR_JOB_ID_MAX + 1];
    uint32_t seq;
    uint64_t stamp; /* of the piece before */
    bool busy, closed, over;
};

static void result_ask(struct job_result *result);

static void result_try_free(struct job_result *result)
{
    if (result->closed && !result->busy)
        free(result);
}

static enum mr_err send_piece(struct mr_call *call, struct mr_slice bytes)
{
    uint8_t *at;
    MR_TRY(mr_call_room(call, mr_flat_head_size(bytes.len) + bytes.len, &at));
    at = mr_flat_put_head(at, PIECE_BYTES, bytes.len);
    memcpy(at, bytes.data, bytes.len);
    return MR_OK;
}

static void result_go_on(struct job_result *result)
{
    if (!result->busy && !result->over && !result->closed && !is_slow(result->head.head.call))
        result_ask(result);
}

/* A piece is there. */
static void result_told(struct job_result *result, struct mr_job_ask *ask)
{
    struct mr_call *call = result->head.head.call;
    struct mr_detail text;
    enum mr_err err = ask->err;
    result->over = true;
    if (err == MR_OK && ask->bytes.len > 0)
        err = send_piece(call, ask->bytes);
    if (err == MR_CLOSED)
        return;
    if (err != MR_OK) {
        jobs_why(ask, &text);
        call_end(call, err, ask->err != MR_OK ? mr_slice_str(text.text) : (struct mr_slice){0});
        return;
    }
    result->over = !ask->more;
    if (result->over)
        call_end(call, MR_OK, (struct mr_slice){0});
}

static void result_back(struct errand *errand)
{
    struct job_result *result = mr_container(errand, struct job_result, errand);
    result->busy = false;
    if (!result->closed)
        result_told(result, &result->asking.ask);
    mr_job_ask_done(&result->asking.ask);
    result->stamp = result->asking.ask.stamp;
    result->seq++;
    result_go_on(result);
    result_try_free(result);
}

/* Thread: the service's. */
static void result_done(struct jobs_asking *asking)
{
    errand_return(&mr_container(asking, struct job_result, asking)->errand);
}

static void result_ask(struct job_result *result)
{
    struct mr_api *api = result->head.head.api;
    result->busy = true;
    result->asking = (struct jobs_asking){.ask = {.kind = MR_JOB_RESULT,
                                                  .id = mr_slice_str(result->id),
                                                  .seq = result->seq,
                                                  .stamp = result->stamp},
                                          .service = api->options.jobs,
                                          .token = &result->head.head.token,
                                          .done = result_done};
    errand_leave(&result->errand, api, result_back);
    jobs_ask(&result->asking);
}

static void result_message(struct mr_call *call, struct mr_slice bytes)
{
    struct job_result *result = mr_call_data(call);
    struct mr_arena arena = {0};
    ProtobufCMessage *message =
        read_once(&result->head, bytes, &millrace__v1__job_request__descriptor, &arena);
    const Millrace__V1__JobRequest *in = (const void *)message;
    if (in != NULL && strlen(in->id) <= MR_JOB_ID_MAX) {
        (void)snprintf(result->id, sizeof result->id, "%s", in->id);
        result_ask(result);
    } else if (in != NULL) {
        call_end(call, MR_NOT_FOUND, (struct mr_slice){0});
    }
    mr_arena_done(&arena);
}

static void result_writable(struct mr_call *call)
{
    result_go_on(mr_call_data(call));
}

static void result_closed(struct mr_call *call, int status, struct mr_slice text)
{
    struct job_result *result = mr_call_data(call);
    (void)status, (void)text;
    close_answering(&result->head);
    result->closed = true;
    result_try_free(result);
}

static const struct mr_call_ops result_ops = {
    .message = result_message,
    .half_closed = half_closed,
    .writable = result_writable,
    .closed = result_closed,
};

void jobs_result_open(struct mr_api *api, struct mr_call *call, const struct mr_token *token)
{
    struct job_result *result = calloc(1, sizeof *result);
    (void)open_answering(result != NULL ? &result->head : NULL, api, call, token, &result_ops);
}
