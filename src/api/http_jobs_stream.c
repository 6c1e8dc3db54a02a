/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The events of a job, and its result.
 *
 * Watching costs the work as good as nothing, however many watch. Each version is made into text once (feed.h). A few streams
 * are woken with each; many are woken together, the less often the more they are, and take then what has come since. All that
 * they take is paid from one credit, which fills up with time: when it does not do for every version for everybody, they are
 * told of the changes of the state and of the newest, until every version costs no more than what comes in. The end is not
 * waited for. A stream whose client takes nothing is not woken, and goes on with the newest when it does.
 */
#include <stdlib.h>

#include "api/http_jobs_internal.h"
#include "wire/job_json.h"

enum {
    LOOK_MS = 250,          /* between two looks at all streams */
    FEW = 8,                /* so many are told at once; more of them, together and less often: */
    WAKE_MS = 100,          /* ... and two more for each of them: five hundred a second */
    CREDIT_S = 1024 * 1024, /* bytes that come in with each second ... */
    CREDIT_MAX = 64 * 1024 * 1024, /* ... up to this: a thousand see each of a hundred changes */
    WRITE_BYTES = 16 * 1024, /* at once; what the client does not take of it waits in memory */
    STATUS_NO_CONTENT = 204, /* a browser that is told so does not come back */
};

/* ---- events --------------------------------------------------------------------------------- */

struct sse {
    struct mr_link link; /* in jobs->events */
    struct mr_http_jobs *jobs;
    struct mr_http_request *request; /* NULL: it is answered */
    struct mr_http_stream *stream;   /* NULL: nothing is known of the job yet */
    struct feed_reader reader;
    struct mr_token token;
    mr_mono said;
    bool alive; /* it is to say that it is alive */
    bool ready; /* there is something to say, and it is told with the others */
    bool ended; /* the job has: that is told with the next tick */
};

enum mr_err http_encode_event(const struct mr_job_event *event, struct mr_buf *buf)
{
    struct jw jw = {0};
    const struct mr_job_info *info = &event->job.info;
    jw_job(&jw, NULL, info);
    enum mr_err err = jw.err;
    if (err == MR_OK)
        err = mr_buf_printf(buf, "id: %llu\nevent: %s\ndata: ", (unsigned long long)info->version,
                            event->end ? "end" : "progress");
    if (err == MR_OK)
        err = mr_buf_append_slice(buf, mr_buf_slice(&jw.buf));
    if (err == MR_OK)
        err = mr_buf_append(buf, "\n\n", 2);
    mr_buf_done(&jw.buf);
    return err;
}

static void sse_free(struct sse *sse)
{
    mr_list_remove(&sse->link);
    sse->jobs->events_n--;
    feed_leave(&sse->reader);
    free(sse);
}

static enum mr_err sse_say(struct sse *sse, struct mr_slice bytes)
{
    sse->said = mr_mono_now(mr_clock_system());
    sse->alive = false;
    sse->jobs->credit -= (int64_t)bytes.len;
    if (sse->jobs->credit < 0) /* more has come since they were woken */
        sse->jobs->thin = true;
    return mr_http_stream_write(sse->stream, bytes);
}

static void sse_more(struct mr_http_stream *stream, void *data)
{
    struct sse *sse = data;
    struct mr_slice bytes;
    size_t n = 0;
    enum mr_err err = MR_OK, why;
    while (err == MR_OK && n < WRITE_BYTES) {
        if (sse->jobs->thin)
            feed_skip(&sse->reader);
        if (!feed_next(&sse->reader, &bytes))
            break;
        err = sse_say(sse, bytes);
        n += bytes.len;
    }
    if (err == MR_OK && n == 0 && sse->alive)
        err = sse_say(sse, MR_SLICE_LIT(": alive\n\n"));
    if (err != MR_OK)
        mr_http_stream_break(stream);
    else if (feed_is_over(&sse->reader, &why) && why == MR_OK)
        mr_http_stream_end(stream);
    else if (feed_is_over(&sse->reader, &why))
        mr_http_stream_break(stream); /* who watches comes back, with the last id it has */
}

static void sse_closed(void *data)
{
    sse_free(data);
}

static const struct mr_http_stream_ops sse_ops = {sse_more, sse_closed};

/* Something is known of the job: now the request is answered. */
static void sse_begin(struct sse *sse)
{
    const struct mr_job_event *last = feed_last(&sse->reader);
    struct mr_http_request *request = sse->request;
    struct mr_detail detail = {.text = "no such job"};
    enum mr_err err = MR_OK;
    bool over = feed_is_over(&sse->reader, &err);
    if (last == NULL && !over)
        return;
    sse->request = NULL;
    if (last != NULL)
        err = jobs_may_touch(&sse->token, &last->job.info, &detail);
    if (last == NULL && err != MR_OK && err != MR_NOT_FOUND)
        mr_detail_set(&detail, "%s", mr_err_text(err));
    if (err != MR_OK)
        mr_http_fail(request, err == MR_CLOSED ? MR_UNAVAILABLE : err, detail.text);
    else if (last == NULL)
        mr_http_reply(request, STATUS_NO_CONTENT, "text/event-stream", (struct mr_slice){0});
    else
        sse->stream = mr_http_stream(request, "text/event-stream", &sse_ops, sse);
    if (sse->stream == NULL)
        sse_free(sse);
}

static void sse_ready(struct feed_reader *reader)
{
    struct sse *sse = mr_container(reader, struct sse, reader);
    struct mr_http_jobs *jobs = sse->jobs;
    const struct mr_job_event *last = feed_last(reader);
    enum mr_err err;
    if (sse->stream == NULL) {
        sse_begin(sse);
        return;
    }
    if (jobs->events_n <= FEW && !jobs->thin) {
        mr_http_stream_wake(sse->stream);
        return;
    }
    sse->ready = true;
    sse->ended = sse->ended || (last != NULL && last->end) || feed_is_over(reader, &err);
    jobs->ending = jobs->ending || sse->ended;
    if (!sse->ended)
        feed_rest(reader);
}

/* ---- many of them --------------------------------------------------------------------------- */

static bool is_due(const struct sse *sse, bool all)
{
    return sse->ready && sse->stream != NULL && (all || sse->ended);
}

/* Whether every version is too much for those that are told now. Once it is, it is so until what they are told in a
 * while is no more than what comes in meanwhile: else all would be told to them now and then, and be of no use to them. */
static bool is_too_much(const struct mr_http_jobs *jobs, bool all, int64_t came_in)
{
    int64_t sum = 0;
    for (struct mr_link *link = jobs->events.next; link != &jobs->events; link = link->next) {
        const struct sse *sse = mr_container(link, struct sse, link);
        if (is_due(sse, all) && mr_http_stream_waits(sse->stream))
            sum += (int64_t)feed_bytes(&sse->reader);
    }
    return sum > jobs->credit || (jobs->thin && sum > came_in);
}

static int64_t add_credit(struct mr_http_jobs *jobs, mr_mono now)
{
    int64_t ns = now.ns - jobs->credited.ns, whole_ns = CREDIT_MAX / CREDIT_S * MR_NS_PER_S;
    int64_t came_in = ns < whole_ns ? ns * CREDIT_S / MR_NS_PER_S : CREDIT_MAX;
    jobs->credited = now;
    jobs->credit += came_in;
    jobs->credit = jobs->credit < CREDIT_MAX ? jobs->credit : CREDIT_MAX;
    return came_in;
}

static void wake_ready(struct mr_http_jobs *jobs, mr_mono now)
{
    int64_t wait_ns = (WAKE_MS + 2 * (int64_t)jobs->events_n) * MR_NS_PER_MS;
    bool all = now.ns - jobs->woken.ns >= wait_ns;
    if (!all && !jobs->ending)
        return;
    jobs->ending = false;
    int64_t came_in = add_credit(jobs, now);
    if (all)
        jobs->woken = now;
    jobs->thin = is_too_much(jobs, all, came_in);
    for (struct mr_link *link = jobs->events.next; link != &jobs->events; link = link->next) {
        struct sse *sse = mr_container(link, struct sse, link);
        if (!is_due(sse, all))
            continue;
        mr_http_stream_wake(sse->stream);
        sse->ready = sse->ended = false;
    }
}

void http_jobs_events(struct mr_http_request *request, void *arg)
{
    struct mr_http_jobs *jobs = arg;
    struct mr_token token;
    struct mr_job_service *service;
    char id[MR_JOB_ID_MAX + 1];
    if (!http_admit(jobs, request, &token, &service) || !http_id(request, id))
        return;
    struct sse *sse = calloc(1, sizeof *sse);
    enum mr_err err = sse != NULL ? MR_OK : MR_NOMEM;
    if (err == MR_OK)
        err = feed_join(&jobs->feeds, mr_slice_str(id), http_last_event_id(request), &sse->reader);
    if (err != MR_OK) {
        mr_http_fail(request, err == MR_INVALID ? MR_NOT_FOUND : err,
                     err == MR_INVALID ? "no job has such an id" : mr_err_text(err));
        free(sse);
        return;
    }
    sse->jobs = jobs;
    sse->request = request;
    sse->token = token;
    sse->said = mr_mono_now(mr_clock_system());
    sse->reader.ready = sse_ready;
    mr_list_push_back(&jobs->events, &sse->link);
    jobs->events_n++;
    if (feed_last(&sse->reader) == NULL)
        mr_http_later(request);
    else
        sse_begin(sse);
}

void http_events_tick(struct mr_http_jobs *jobs)
{
    struct mr_tokens *tokens = jobs->options.door->access->tokens;
    mr_mono now = mr_mono_now(mr_clock_system());
    wake_ready(jobs, now);
    if (now.ns - jobs->looked.ns < LOOK_MS * MR_NS_PER_MS)
        return;
    jobs->looked = now;
    uint64_t generation = tokens != NULL ? mr_tokens_generation(tokens) : 0;
    bool changed = generation != jobs->tokens_seen;
    jobs->tokens_seen = generation;
    for (struct mr_link *link = jobs->events.next, *next; link != &jobs->events; link = next) {
        struct sse *sse = mr_container(link, struct sse, link);
        next = link->next;
        if (sse->stream == NULL)
            continue;
        if (changed && sse->token.id[0] != '\0' && !mr_tokens_valid(tokens, sse->token.id)) {
            mr_http_stream_break(sse->stream);
        } else if (now.ns - sse->said.ns >= jobs->options.alive_ms * MR_NS_PER_MS) {
            sse->alive = true;
            mr_http_stream_wake(sse->stream);
        }
    }
}

void http_events_end(struct mr_http_jobs *jobs)
{
    for (struct mr_link *link = jobs->events.next, *next; link != &jobs->events; link = next) {
        struct sse *sse = mr_container(link, struct sse, link);
        next = link->next;
        feed_leave(&sse->reader);
        if (sse->stream != NULL) {
            mr_http_stream_break(sse->stream);
        } else {
            mr_http_fail(sse->request, MR_UNAVAILABLE, "the server is stopping");
            sse_free(sse);
        }
    }
}

/* ---- results -------------------------------------------------------------------------------- */

/* One piece is asked for while the one before it leaves. */
struct pull {
    struct http_asking asking;
    struct mr_http_stream *stream; /* NULL: not begun, or over */
    bool asked, there, over;       /* there: a piece is, in the answer; over: the stream is */
};

static void pull_try_free(struct pull *pull)
{
    if (!pull->over || pull->asked)
        return;
    if (pull->there)
        mr_job_ask_done(&pull->asking.head.ask);
    free(pull);
}

static void pull_ask(struct pull *pull, uint32_t seq, uint64_t stamp)
{
    struct mr_job_service *service = atomic_load(&pull->asking.jobs->service);
    pull->there = false;
    if (service == NULL) { /* the server stops: so do streams */
        mr_http_stream_break(pull->stream);
        return;
    }
    pull->asked = true;
    pull->asking.head.ask = (struct mr_job_ask){
        .kind = MR_JOB_RESULT, .id = mr_slice_str(pull->asking.id), .seq = seq, .stamp = stamp};
    http_ask(&pull->asking, service);
}

static void pull_more(struct mr_http_stream *stream, void *data)
{
    struct pull *pull = data;
    struct mr_job_ask *ask = &pull->asking.head.ask;
    if (!pull->there)
        return;
    enum mr_err err = ask->err;
    if (err == MR_OK)
        err = mr_http_stream_write(stream, ask->bytes);
    bool more = ask->more;
    uint32_t next = ask->seq + 1;
    uint64_t stamp = ask->stamp;
    if (err != MR_OK)
        mr_http_stream_break(stream);
    else if (!more)
        mr_http_stream_end(stream);
    mr_job_ask_done(ask);
    pull->there = false;
    if (err == MR_OK && more)
        pull_ask(pull, next, stamp);
}

static void pull_closed(void *data)
{
    struct pull *pull = data;
    pull->stream = NULL;
    pull->over = true;
    pull_try_free(pull);
}

static const struct mr_http_stream_ops pull_ops = {pull_more, pull_closed};

static void pull_back(struct http_asking *asking)
{
    struct pull *pull = mr_container(asking, struct pull, asking);
    struct mr_http_request *request = asking->request;
    pull->asked = false;
    pull->there = true;
    asking->request = NULL;
    if (pull->stream != NULL) {
        mr_http_stream_wake(pull->stream);
    } else if (request != NULL && asking->head.ask.err != MR_OK) {
        http_fail(request, &asking->head.ask);
        pull->over = true;
    } else if (request != NULL) {
        pull->stream = mr_http_stream(request, "application/octet-stream", &pull_ops, pull);
        pull->over = pull->stream == NULL;
    }
    pull_try_free(pull);
}

void http_jobs_result(struct mr_http_request *request, void *arg)
{
    struct mr_http_jobs *jobs = arg;
    struct mr_token token;
    struct mr_job_service *service;
    if (!http_admit(jobs, request, &token, &service))
        return;
    struct pull *pull = calloc(1, sizeof *pull);
    if (pull == NULL) {
        mr_http_fail(request, MR_NOMEM, mr_err_text(MR_NOMEM));
        return;
    }
    pull->asking =
        (struct http_asking){.jobs = jobs, .request = request, .token = token, .back = pull_back};
    if (!http_id(request, pull->asking.id)) {
        free(pull);
        return;
    }
    mr_http_later(request);
    pull->asked = true;
    pull->asking.head.ask =
        (struct mr_job_ask){.kind = MR_JOB_RESULT, .id = mr_slice_str(pull->asking.id)};
    http_ask(&pull->asking, service);
}
