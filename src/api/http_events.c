/* SPDX-License-Identifier: Apache-2.0 */
/*
 * GET /events: how queues are, who works and who leads, as it changes (SSE). First start, then everything there is, then
 * ready, then what changes; all of it from one sampler (sample.h) on this thread, while anybody reads.
 *
 * A change is made into text once, for all readers. They are told together, after each look, and what that took is paid for by
 * the time until the next one: however many they are, and however much changes, it costs a small share of a core. A reader
 * that takes nothing is not written for: it holds what it was last given, a piece of bounded size, is dropped when it has
 * taken nothing for long (http.h, idle_s), and makes nobody wait.
 *
 * Ids rise with the changes. Who comes back with the last one it has seen is told what has changed since, what went included,
 * if all of that is still known; else it begins anew.
 */
#include <stdlib.h>

#include "api/doubts.h"
#include "api/http_internal.h"
#include "api/sample.h"
#include "base/text.h"

enum {
    INTERVAL_MS = 1000,   /* between two looks, at least */
    CHECK_MS = 250,       /* between two at the readers: who is silent, whose token was revoked */
    ALIVE_MS = 10 * 1000, /* a stream says something so often */
    WRITE_BYTES = 32 * 1024, /* at once; what the client does not take of it waits in memory */
    SEND_BYTES = 64 * 1024,  /* ... and so much in the kernel's */
    PAID_BYTES_S = 16 * 1024 * 1024, /* told to all together in a second */
};

#define TYPE "text/event-stream"

struct http_events {
    struct mr_http_api *api;
    struct sampler sampler;
    union any_req req;
    struct mr_msg msg; /* of an answer */
    struct mr_link readers;
    size_t readers_n;
    uint64_t first_id; /* ids up to this one are of another sampler */
    bool known;        /* a look is over */
    bool ending;
    mr_mono began, next; /* of looks */
    mr_mono checked;
    uint64_t tokens_seen;
    size_t told_bytes; /* since the last look */
};

struct reader {
    struct mr_link link;
    struct http_events *events;
    struct mr_http_stream *stream;
    struct mr_token token;
    char pattern[MR_NAME_MAX + 1];
    mr_mono said;
    bool alive;          /* it is to say that it is alive */
    bool started, ready; /* was told to begin; has been told everything there was */
    uint64_t started_id; /* what went before this is none of its business */
    uint64_t told;       /* all up to this id */
};

/* ---- texts ---------------------------------------------------------------------------------- */

static void queue_name_json(struct jw *jw, const struct mr_queue_info *queue)
{
    jw_object_begin(jw, NULL);
    jw_text(jw, "queue", queue->name);
    jw_object_end(jw);
}

/* What does not change from beat to beat; /nodes has the rest. How one went, only its own end knows. */
static void node_json(struct jw *jw, const struct mr_node_info *node, const struct thing *thing)
{
    const char *state = thing->drains ? "draining" : mr_node_state_name(node->state);
    jw_object_begin(jw, NULL);
    jw_bytes(jw, "node", node->name);
    jw_text(jw, "role", mr_node_role_name(node->role));
    jw_text(jw, "state", thing->gone ? "gone" : state);
    jw_uint(jw, "incarnation", node->incarnation);
    jw_int(jw, "started_ms", node->started_ms);
    jw_int(jw, "last_beat_ms", node->last_beat_ms);
    jw_uint(jw, "in_hand", node->in_hand);
    jw_uint(jw, "concurrency", node->slots);
    jw_array_begin(jw, "queues");
    for (size_t i = 0; i < node->queues_n; i++)
        if (mr_node_serves(node, i))
            jw_bytes(jw, NULL, node->queues[i].name);
    jw_array_end(jw);
    jw_object_end(jw);
}

static void server_json(struct jw *jw, const struct server_state *server)
{
    jw_object_begin(jw, NULL);
    jw_bool(jw, "disk_full", server->disk_full);
    jw_bool(jw, "failed", server->failed);
    jw_bool(jw, "upkeep", server->upkeep);
    jw_object_end(jw);
}

/* node: what is to be seen of it, where it is one. Returns the name of the event. */
static const char *thing_json(struct jw *jw, const struct thing *thing,
                              const struct mr_node_info *node)
{
    if (thing->kind == THING_NODE) {
        node_json(jw, node, thing);
        return "node";
    }
    if (thing->kind == THING_SERVER) {
        server_json(jw, &thing->server);
        return "server";
    }
    if (thing->kind == THING_LEADER) {
        jw_leader(jw, &thing->leader);
        return "leader";
    }
    if (thing->gone)
        queue_name_json(jw, &thing->queue);
    else
        jw_queue(jw, &thing->queue);
    return thing->gone ? "queue_removed" : "queue";
}

static enum mr_err encode(const struct thing *thing, const struct mr_node_info *node,
                          struct mr_buf *buf)
{
    struct jw jw = {0};
    const char *name = thing_json(&jw, thing, node);
    enum mr_err err = jw.err;
    if (err == MR_OK)
        err =
            mr_buf_printf(buf, "id: %llu\nevent: %s\ndata: ", (unsigned long long)thing->id, name);
    if (err == MR_OK)
        err = mr_buf_append_slice(buf, mr_buf_slice(&jw.buf));
    if (err == MR_OK)
        err = mr_buf_append(buf, "\n\n", 2);
    mr_buf_done(&jw.buf);
    return err;
}

/* The one for all. */
static enum mr_err text_of(struct thing *thing)
{
    if (thing->text_id == thing->id)
        return MR_OK;
    thing->text.len = 0;
    MR_TRY(encode(thing, &thing->node, &thing->text));
    thing->text_id = thing->id;
    return MR_OK;
}

/* ---- telling -------------------------------------------------------------------------------- */

static bool sees_queue(const struct reader *reader, struct mr_slice name)
{
    return mr_access_queue(&reader->token, name) &&
           mr_glob_match(mr_slice_str(reader->pattern), name);
}

static bool sees_all(const struct reader *reader)
{
    return mr_access_all_queues(&reader->token) && strcmp(reader->pattern, "*") == 0;
}

static bool sees_node(const struct reader *reader, const struct mr_node_info *node)
{
    for (size_t i = 0; i < node->queues_n; i++)
        if (sees_queue(reader, node->queues[i].name))
            return true;
    return false;
}

static bool sees(const struct reader *reader, const struct thing *thing)
{
    if (thing->gone && thing->id <= reader->started_id)
        return false;
    if (sees_all(reader))
        return true;
    if (thing->kind == THING_QUEUE)
        return sees_queue(reader, mr_slice_str(thing->queue.name));
    if (thing->kind == THING_LEADER)
        return mr_access_all_queues(&reader->token);
    return thing->kind != THING_NODE || sees_node(reader, &thing->node);
}

static enum mr_err say(struct reader *reader, struct mr_slice bytes)
{
    reader->said = mr_mono_now(mr_clock_system());
    reader->alive = false;
    reader->events->told_bytes += bytes.len;
    return mr_http_stream_write(reader->stream, bytes);
}

/* With a token for some queues, the other queues of a node are left out. */
static enum mr_err say_filtered(struct reader *reader, const struct thing *thing)
{
    struct mr_arena arena = {0};
    struct mr_buf text = {0};
    struct mr_node_info node = thing->node;
    bool seen = false;
    enum mr_err err = node_filter(&reader->token, &arena, &node, &seen);
    if (err == MR_OK && seen)
        err = encode(thing, &node, &text);
    if (err == MR_OK && seen)
        err = say(reader, mr_buf_slice(&text));
    mr_buf_done(&text);
    mr_arena_done(&arena);
    return err;
}

static enum mr_err say_thing(struct reader *reader, struct thing *thing)
{
    if (!sees(reader, thing))
        return MR_OK;
    if (thing->kind == THING_NODE && !mr_access_all_queues(&reader->token))
        return say_filtered(reader, thing);
    MR_TRY(text_of(thing));
    return say(reader, mr_buf_slice(&thing->text));
}

/* One that has missed that something went begins anew, too. */
static enum mr_err say_start(struct reader *reader)
{
    const struct http_events *events = reader->events;
    uint64_t forgotten = events->sampler.forgotten;
    bool missed = reader->told < forgotten && reader->started_id < forgotten;
    if (reader->started && !missed)
        return MR_OK;
    reader->started = true;
    reader->ready = false;
    reader->started_id = *events->sampler.last_id;
    reader->told = 0;
    return say(reader, MR_SLICE_LIT("event: start\ndata: {}\n\n"));
}

static enum mr_err tell(struct reader *reader)
{
    struct http_events *events = reader->events;
    size_t limit = events->told_bytes + WRITE_BYTES;
    MR_TRY(say_start(reader));
    struct mr_link *link = sample_behind(&events->sampler, reader->told);
    for (; link != &events->sampler.changes; link = link->next) {
        struct thing *thing = mr_container(link, struct thing, change);
        if (events->told_bytes >= limit)
            return MR_OK;
        MR_TRY(say_thing(reader, thing));
        reader->told = thing->id;
    }
    if (reader->ready)
        return MR_OK;
    reader->ready = true;
    return say(reader, MR_SLICE_LIT("event: ready\ndata: {}\n\n"));
}

static void reader_more(struct mr_http_stream *stream, void *data)
{
    struct reader *reader = data;
    enum mr_err err = reader->events->known ? tell(reader) : MR_OK;
    if (err == MR_OK && reader->alive)
        err = say(reader, MR_SLICE_LIT(": alive\n\n"));
    if (err != MR_OK)
        mr_http_stream_break(stream);
}

/* ---- life ----------------------------------------------------------------------------------- */

static void events_try_free(struct http_events *events)
{
    if (events->readers_n > 0 || events->sampler.looks)
        return;
    events->api->events = NULL;
    sample_done(&events->sampler);
    free(events);
}

static void reader_free(struct reader *reader)
{
    mr_list_remove(&reader->link);
    reader->events->readers_n--;
    events_try_free(reader->events);
    free(reader);
}

static void reader_closed(void *data)
{
    reader_free(data);
}

static const struct mr_http_stream_ops reader_ops = {reader_more, reader_closed};

static void delivered(struct mr_msg *msg, void *receiver)
{
    mr_http_release(receiver);
    sample_back(&mr_container(msg, struct http_events, msg)->sampler);
}

/* Thread: the broker's. */
static void on_done(struct mr_req *req)
{
    struct http_events *events = req->arg;
    events->msg.deliver = delivered;
    mr_http_post(events->api->http, &events->msg);
}

static void submit(struct sampler *sampler, enum mr_op op)
{
    struct http_events *events = mr_container(sampler, struct http_events, sampler);
    struct mr_broker *broker = atomic_load(&events->api->broker);
    struct mr_req *req = &events->req.head;
    req->op = op;
    req->done = on_done;
    req->arg = events;
    mr_http_hold(events->api->http);
    if (broker != NULL) {
        mr_broker_submit(broker, req);
    } else {
        req->err = MR_UNAVAILABLE;
        on_done(req);
    }
}

static bool wanted(const struct sampler *sampler)
{
    const struct http_events *events = mr_container(sampler, const struct http_events, sampler);
    return events->readers_n > 0 && !events->ending;
}

/* What this look found is told now, and what the one before cost has been waited for. */
static void looked(struct sampler *sampler)
{
    struct http_events *events = mr_container(sampler, struct http_events, sampler);
    int64_t took_ns = mr_mono_now(mr_clock_system()).ns - events->began.ns;
    int64_t wait_ns = INTERVAL_MS * MR_NS_PER_MS, least_ns = took_ns * SAMPLE_SHARE;
    int64_t paid_ns = (int64_t)(events->told_bytes * (uint64_t)MR_NS_PER_S / PAID_BYTES_S);
    wait_ns = least_ns > wait_ns ? least_ns : wait_ns;
    wait_ns = paid_ns > wait_ns ? paid_ns : wait_ns;
    events->next = (mr_mono){events->began.ns + wait_ns};
    events->told_bytes = 0;
    events->known = true;
    for (struct mr_link *link = events->readers.next; link != &events->readers; link = link->next) {
        struct reader *reader = mr_container(link, struct reader, link);
        if (!reader->started || reader->told < *sampler->last_id)
            mr_http_stream_wake(reader->stream);
    }
    events_try_free(events);
}

static void mark(const struct sampler *sampler, struct mr_node_info *nodes, size_t n)
{
    const struct http_events *events = mr_container(sampler, const struct http_events, sampler);
    mr_doubts_mark(events->api->options.doubts, nodes, n);
}

static const struct sampler_ops sampler_ops = {
    .submit = submit, .wanted = wanted, .looked = looked, .mark = mark};

static void begin_look(struct http_events *events)
{
    if (events->sampler.looks || events->ending || atomic_load(&events->api->broker) == NULL)
        return;
    events->began = mr_mono_now(mr_clock_system());
    sample_begin(&events->sampler);
}

static struct http_events *events_get(struct mr_http_api *api)
{
    struct http_events *events = api->events;
    if (events != NULL)
        return events;
    events = calloc(1, sizeof *events);
    if (events == NULL)
        return NULL;
    events->api = api;
    mr_list_init(&events->readers);
    sample_init(&events->sampler, &sampler_ops, &events->req, &api->events_id);
    events->first_id = api->events_id;
    api->events = events;
    return events;
}

/* ---- readers -------------------------------------------------------------------------------- */

static bool read_pattern(struct mr_http_request *request, const struct mr_token *token,
                         char pattern[MR_NAME_MAX + 1])
{
    const char *text = mr_http_query(request, "queue");
    struct mr_detail detail;
    if (text == NULL || text[0] == '\0')
        text = "*";
    struct mr_slice name = mr_slice_str(text);
    bool one = strchr(text, '*') == NULL;
    enum mr_err err = mr_name_check_of("queue", name, &detail);
    if (err != MR_OK) {
        mr_http_fail(request, err, detail.text);
        return false;
    }
    if (one && !mr_access_queue(token, name)) {
        mr_access_not_covered(token, name, &detail);
        mr_http_fail(request, MR_DENIED, detail.text);
        return false;
    }
    memcpy(pattern, text, name.len + 1);
    return true;
}

/* Where it goes on, if it was here before and all since then is known. */
static void go_on_behind(struct reader *reader, uint64_t id)
{
    const struct http_events *events = reader->events;
    if (id <= events->first_id || id > *events->sampler.last_id || id < events->sampler.forgotten)
        return;
    reader->started = reader->ready = true;
    reader->started_id = reader->told = id;
}

static struct reader *reader_new(struct mr_http_api *api, const struct mr_token *token)
{
    struct http_events *events = events_get(api);
    struct reader *reader = events != NULL ? calloc(1, sizeof *reader) : NULL;
    if (reader == NULL) {
        if (events != NULL)
            events_try_free(events);
        return NULL;
    }
    reader->events = events;
    reader->token = *token;
    reader->said = mr_mono_now(mr_clock_system());
    mr_list_push_back(&events->readers, &reader->link);
    events->readers_n++;
    return reader;
}

void http_events(struct mr_http_request *request, void *arg)
{
    struct mr_http_api *api = arg;
    struct mr_token token;
    char pattern[MR_NAME_MAX + 1];
    if (!http_door_admit(&api->options.door, request, &token) ||
        !read_pattern(request, &token, pattern))
        return;
    if (atomic_load(&api->broker) == NULL) {
        mr_http_fail(request, MR_UNAVAILABLE, "the server is starting or stopping");
        return;
    }
    struct reader *reader = reader_new(api, &token);
    if (reader == NULL) {
        mr_http_fail(request, MR_NOMEM, mr_err_text(MR_NOMEM));
        return;
    }
    api->http = mr_http_of(request);
    memcpy(reader->pattern, pattern, sizeof pattern);
    go_on_behind(reader, http_last_event_id(request));
    reader->stream = mr_http_stream(request, TYPE, &reader_ops, reader);
    if (reader->stream == NULL) {
        reader_free(reader);
        return;
    }
    mr_http_stream_narrow(reader->stream, SEND_BYTES);
    if (!reader->events->known)
        begin_look(reader->events);
}

static void check_readers(struct http_events *events, mr_mono now)
{
    struct mr_tokens *tokens = events->api->options.door.access->tokens;
    uint64_t generation = tokens != NULL ? mr_tokens_generation(tokens) : 0;
    bool changed = generation != events->tokens_seen;
    events->tokens_seen = generation;
    events->checked = now;
    for (struct mr_link *link = events->readers.next; link != &events->readers; link = link->next) {
        struct reader *reader = mr_container(link, struct reader, link);
        if (changed && reader->token.id[0] != '\0' && !mr_tokens_valid(tokens, reader->token.id)) {
            mr_http_stream_break(reader->stream);
        } else if (now.ns - reader->said.ns >= ALIVE_MS * MR_NS_PER_MS) {
            reader->alive = true;
            mr_http_stream_wake(reader->stream);
        }
    }
}

void http_events_look(struct mr_http_api *api)
{
    struct http_events *events = api->events;
    mr_mono now = mr_mono_now(mr_clock_system());
    if (events == NULL)
        return;
    if (now.ns >= events->next.ns)
        begin_look(events);
    if (now.ns - events->checked.ns >= CHECK_MS * MR_NS_PER_MS)
        check_readers(events, now);
}

void http_events_stop(struct mr_http_api *api)
{
    struct http_events *events = api->events;
    if (events == NULL)
        return;
    events->ending = true;
    for (struct mr_link *link = events->readers.next; link != &events->readers; link = link->next)
        mr_http_stream_break(mr_container(link, struct reader, link)->stream);
}
