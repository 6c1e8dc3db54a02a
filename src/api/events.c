/* SPDX-License-Identifier: Apache-2.0 */
/* Events.Watch, the streams: who watches what, and what each has not been told. See events.h. */
#include "api/events.h"

#include <stdio.h>
#include <stdlib.h>

#include "millrace/v1/events.pb-c.h"
#include "wire/node.h"

/* Numbers of Event. */
enum {
    EVENT_ID = 1,
    EVENT_TIME = 2,
    EVENT_START = 3,
    EVENT_QUEUE = 4,
    EVENT_QUEUE_REMOVED = 5,
    EVENT_NODE = 6,
    EVENT_SERVER = 7,
    EVENT_LEADER = 8,
};

/* ---- one event ------------------------------------------------------------------------------ */

static const struct mr_flat_field server_fields[] = {
    {MR_FLAT_BOOL, offsetof(struct server_state, disk_full), 0},
    {MR_FLAT_BOOL, offsetof(struct server_state, failed), 0},
    {MR_FLAT_BOOL, offsetof(struct server_state, upkeep), 0},
};
static MR_FLAT(struct server_state, server_flat, server_fields);

/* What is said of a thing: the field of the event, and what fills it. */
struct saying {
    unsigned field;
    size_t size;
    const struct mr_flat *flat; /* NULL: node, or else text */
    const void *in;
    const struct mr_node_info *node;
    struct mr_slice text;
};

static struct saying say_flat(unsigned field, const struct mr_flat *flat, const void *in)
{
    return (struct saying){.field = field, .size = mr_flat_size(flat, in), .flat = flat, .in = in};
}

static struct saying say_text(unsigned field, struct mr_slice text)
{
    return (struct saying){.field = field, .size = text.len, .text = text};
}

static struct saying say_node(const struct mr_node_info *node)
{
    return (struct saying){.field = EVENT_NODE, .size = mr_node_size(node), .node = node};
}

static enum mr_err say(struct watcher *watcher, uint64_t id, int64_t time_ms, struct saying saying)
{
    uint8_t *at;
    size_t size = 1 + mr_flat_varint_size(id) + 1 + mr_flat_varint_size((uint64_t)time_ms) +
                  mr_flat_head_size(saying.size) + saying.size;
    MR_TRY(mr_call_room(watcher->head.call, size, &at));
    at = mr_flat_put_varint(at, EVENT_ID, id);
    at = mr_flat_put_varint(at, EVENT_TIME, (uint64_t)time_ms);
    at = mr_flat_put_head(at, saying.field, saying.size);
    if (saying.flat != NULL)
        mr_flat_write(saying.flat, saying.in, at);
    else if (saying.node != NULL)
        mr_node_write(saying.node, at);
    else if (saying.size > 0)
        memcpy(at, saying.text.data, saying.size);
    return MR_OK;
}

/* ---- whose business it is ------------------------------------------------------------------- */

static bool wants_queue(const struct watcher *watcher, struct mr_slice name)
{
    return mr_access_queue(&watcher->head.token, name) &&
           mr_glob_match(mr_slice_str(watcher->pattern), name);
}

static bool wants_node(const struct watcher *watcher, const struct mr_node_info *node)
{
    for (size_t i = 0; i < node->queues_n; i++)
        if (wants_queue(watcher, node->queues[i].name))
            return true;
    return false;
}

static bool wants(const struct watcher *watcher, const struct thing *thing)
{
    if ((watcher->kinds & 1u << thing->kind) == 0 ||
        (thing->gone && thing->id <= watcher->started_id))
        return false;
    if (thing->kind == THING_QUEUE)
        return wants_queue(watcher, mr_slice_str(thing->queue.name));
    if (thing->kind == THING_LEADER)
        return mr_access_all_queues(&watcher->head.token);
    return thing->kind != THING_NODE || wants_node(watcher, &thing->node);
}

static enum mr_err tell_thing(struct watcher *watcher, const struct thing *thing)
{
    struct mr_arena arena = {0};
    struct mr_node_info node = thing->node;
    bool seen;
    enum mr_err err = MR_OK;
    if (thing->kind == THING_SERVER) {
        err = say(watcher, thing->id, thing->time_ms,
                  say_flat(EVENT_SERVER, &server_flat, &thing->server));
    } else if (thing->kind == THING_LEADER) {
        err = say(watcher, thing->id, thing->time_ms,
                  say_flat(EVENT_LEADER, &mr_flat_leader, &thing->leader));
    } else if (thing->kind == THING_NODE) {
        err = node_filter(&watcher->head.token, &arena, &node, &seen);
        if (err == MR_OK)
            err = say(watcher, thing->id, thing->time_ms, say_node(&node));
    } else if (thing->gone) {
        err = say(watcher, thing->id, thing->time_ms,
                  say_text(EVENT_QUEUE_REMOVED, mr_slice_str(thing->queue.name)));
    } else {
        err = say(watcher, thing->id, thing->time_ms,
                  say_flat(EVENT_QUEUE, &mr_flat_queue, &thing->queue));
    }
    mr_arena_done(&arena);
    return err;
}

/* ---- telling -------------------------------------------------------------------------------- */

static bool is_slow(const struct watcher *watcher)
{
    return mr_call_queued(watcher->head.call) >= MR_CALL_QUEUED_HIGH;
}

static enum mr_err tell_start(struct watcher *watcher)
{
    struct mr_api *api = watcher->head.api;
    int64_t now_ms = mr_wall_ms(mr_wall_now(mr_clock_system()));
    watcher->started = true;
    watcher->started_id = api->events_id;
    watcher->told = 0;
    return say(watcher, 0, now_ms, say_text(EVENT_START, (struct mr_slice){0}));
}

static enum mr_err tell(struct watcher *watcher)
{
    struct sampler *sampler = &watcher->events->sampler;
    if (is_slow(watcher)) {
        watcher->behind = true;
        return MR_OK;
    }
    watcher->behind = false;
    bool missed = watcher->told < sampler->forgotten && watcher->started_id < sampler->forgotten;
    if (!watcher->started || missed)
        MR_TRY(tell_start(watcher));
    for (struct mr_link *link = sample_behind(sampler, watcher->told); link != &sampler->changes;
         link = link->next) {
        const struct thing *thing = mr_container(link, struct thing, change);
        if (is_slow(watcher)) {
            watcher->behind = true;
            return MR_OK;
        }
        if (wants(watcher, thing))
            MR_TRY(tell_thing(watcher, thing));
        watcher->told = thing->id;
    }
    return MR_OK;
}

static void watcher_tell(struct watcher *watcher)
{
    if (tell(watcher) == MR_NOMEM)
        call_end(watcher->head.call, MR_NOMEM, (struct mr_slice){0});
}

/* ---- looks ---------------------------------------------------------------------------------- */

static int64_t interval_of(const struct events *events)
{
    int64_t least = INT64_MAX;
    for (struct mr_link *link = events->watchers.next; link != &events->watchers;
         link = link->next) {
        const struct watcher *watcher = mr_container(link, struct watcher, link);
        least = watcher->interval_ms < least ? watcher->interval_ms : least;
    }
    return least;
}

static void events_end(struct events *events)
{
    mr_rpc_timer_stop(events->api->options.rpc, &events->timer);
    events->api->events = NULL;
    sample_done(&events->sampler);
    errand_clear(&events->errand);
    free(events);
}

static void next_look(struct events *events)
{
    int64_t wait_ns = interval_of(events) * MR_NS_PER_MS;
    int64_t least_ns = events->took_ns * SAMPLE_SHARE;
    mr_mono at = {events->began.ns + (wait_ns > least_ns ? wait_ns : least_ns)};
    mr_rpc_timer_start(events->api->options.rpc, &events->timer, at);
}

/* Half an interval of the sampler early is in time: else everybody else's would drift past theirs. */
static bool is_due(const struct watcher *watcher, mr_mono now, int64_t interval_ms)
{
    return !watcher->started || now.ns + interval_ms * MR_NS_PER_MS / 2 >= watcher->due.ns;
}

/* Tells everybody who is due, and sees to the next look; or ends it all when nobody watches. */
static void looked(struct sampler *sampler)
{
    struct events *events = mr_container(sampler, struct events, sampler);
    mr_mono now = mr_rpc_now(events->api->options.rpc);
    int64_t interval_ms = interval_of(events);
    uint64_t told = UINT64_MAX;
    events->took_ns = now.ns - events->began.ns;
    if (mr_list_empty(&events->watchers)) {
        events_end(events);
        return;
    }
    for (struct mr_link *link = events->watchers.next; link != &events->watchers;
         link = link->next) {
        struct watcher *watcher = mr_container(link, struct watcher, link);
        if (is_due(watcher, now, interval_ms)) {
            watcher->due = mr_mono_add_ms(now, watcher->interval_ms);
            watcher_tell(watcher);
        }
        told = watcher->told < told ? watcher->told : told;
    }
    sample_forget(sampler, told);
    next_look(events);
}

static void begin_look(struct events *events)
{
    if (!events->sampler.looks)
        events->began = mr_rpc_now(events->api->options.rpc);
    sample_begin(&events->sampler);
}

static void look(struct mr_timer *timer, void *arg)
{
    (void)arg;
    begin_look(mr_container(timer, struct events, timer));
}

static void asked(struct errand *errand)
{
    sample_back(&mr_container(errand, struct events, errand)->sampler);
}

static void submit(struct sampler *sampler, enum mr_op op)
{
    struct events *events = mr_container(sampler, struct events, sampler);
    errand_submit(&events->errand, events->api, op, asked);
}

static bool wanted(const struct sampler *sampler)
{
    return mr_container(sampler, const struct events, sampler)->watchers_n > 0;
}

static void mark(const struct sampler *sampler, struct mr_node_info *nodes, size_t n)
{
    nodes_mark(mr_container(sampler, const struct events, sampler)->api, nodes, n);
}

static bool is_lost(const struct sampler *sampler, uint64_t incarnation)
{
    return nodes_has_session(mr_container(sampler, const struct events, sampler)->api, incarnation);
}

static const struct sampler_ops sampler_ops = {submit, wanted, looked, mark, is_lost};

static struct events *events_get(struct mr_api *api)
{
    struct events *events = api->events;
    if (events != NULL)
        return events;
    events = calloc(1, sizeof *events);
    if (events == NULL)
        return NULL;
    events->api = api;
    mr_list_init(&events->watchers);
    mr_timer_init(&events->timer, look);
    sample_init(&events->sampler, &sampler_ops, &events->errand.req, &api->events_id);
    api->events = events;
    return events;
}

/* ---- the stream ----------------------------------------------------------------------------- */

static enum mr_err read_request(struct watcher *watcher, const Millrace__V1__WatchRequest *in,
                                struct mr_detail *detail)
{
    if (strlen(in->queue) > MR_NAME_MAX) {
        mr_detail_set(detail, "queue: %zu bytes, the limit is %d", strlen(in->queue), MR_NAME_MAX);
        return MR_TOO_BIG;
    }
    bool one = in->queue[0] != '\0' && strchr(in->queue, '*') == NULL;
    const struct mr_token *token = &watcher->head.token;
    if (one && !mr_access_queue(token, mr_slice_str(in->queue))) {
        mr_access_not_covered(token, mr_slice_str(in->queue), detail);
        return MR_DENIED;
    }
    (void)snprintf(watcher->pattern, sizeof watcher->pattern, "%s",
                   in->queue[0] != '\0' ? in->queue : "*");
    for (size_t i = 0; i < in->n_kinds; i++) {
        unsigned kind = (unsigned)in->kinds[i];
        static_assert(MILLRACE__V1__EVENT_KIND__EVENT_LEADER == (int)THING_COUNT, "from 1");
        MR_TRY(words_check(&words_event_kinds, "kinds", (int)in->kinds[i], detail));
        watcher->kinds |= kind == 0 ? ~0u : 1u << (kind - 1); /* in the order of the .proto */
    }
    if (in->n_kinds == 0)
        watcher->kinds = ~0u;
    watcher->interval_ms = in->interval_ms == 0 ? INTERVAL_MS : in->interval_ms;
    if (watcher->interval_ms < INTERVAL_MIN_MS) {
        mr_detail_set(detail, "interval_ms: %u, at least %d", in->interval_ms, INTERVAL_MIN_MS);
        return MR_INVALID;
    }
    return MR_OK;
}

/* What is known already is not asked for again; else the look is begun that finds it. */
static enum mr_err join(struct watcher *watcher, struct mr_detail *detail)
{
    struct events *events = events_get(watcher->head.api);
    if (events == NULL)
        return MR_NOMEM;
    if (events->watchers_n == WATCHERS_MAX) {
        mr_detail_set(detail, "%d watch already", WATCHERS_MAX);
        return MR_BUSY;
    }
    bool fresh = mr_timer_running(&events->timer);
    watcher->events = events;
    watcher->due = mr_mono_add_ms(mr_rpc_now(watcher->head.api->options.rpc), watcher->interval_ms);
    mr_list_push_back(&events->watchers, &watcher->link);
    events->watchers_n++;
    if (fresh) {
        watcher_tell(watcher);
        next_look(events);
    } else {
        begin_look(events);
    }
    return MR_OK;
}

static void watch_message(struct mr_call *call, struct mr_slice bytes)
{
    struct watcher *watcher = mr_call_data(call);
    struct mr_detail detail = {.text = "the message cannot be read"};
    struct mr_arena arena = {0};
    ProtobufCMessage *message;
    valve_hold(&watcher->valve);
    enum mr_err err =
        decode_small(&millrace__v1__watch_request__descriptor, bytes, &arena, &message);
    if (err == MR_OK)
        err = read_request(watcher, (const void *)message, &detail);
    if (err == MR_OK)
        err = join(watcher, &detail);
    if (err != MR_OK)
        call_end(call, err, err == MR_NOMEM ? (struct mr_slice){0} : mr_slice_str(detail.text));
    mr_arena_done(&arena);
}

static void watch_half_closed(struct mr_call *call)
{
    const struct watcher *watcher = mr_call_data(call);
    if (watcher->events == NULL)
        call_end(call, MR_INVALID, MR_SLICE_LIT("no message"));
}

/* It takes again: it gets what it missed as it is now. */
static void watch_writable(struct mr_call *call)
{
    struct watcher *watcher = mr_call_data(call);
    if (watcher->behind)
        watcher_tell(watcher);
}

static void watch_closed(struct mr_call *call, int status, struct mr_slice text)
{
    struct watcher *watcher = mr_call_data(call);
    struct events *events = watcher->events;
    (void)status, (void)text;
    valve_close(&watcher->valve);
    stream_close(&watcher->head);
    mr_list_remove(&watcher->link);
    free(watcher);
    if (events != NULL && --events->watchers_n == 0 && !events->sampler.looks)
        events_end(events);
}

static const struct mr_call_ops watch_ops = {
    .message = watch_message,
    .half_closed = watch_half_closed,
    .writable = watch_writable,
    .closed = watch_closed,
};

void events_watch_open(struct mr_api *api, struct mr_call *call, const struct mr_token *token)
{
    struct watcher *watcher = calloc(1, sizeof *watcher);
    if (watcher == NULL) {
        call_end(call, MR_NOMEM, (struct mr_slice){0});
        return;
    }
    mr_list_init(&watcher->link);
    mr_call_set(call, &watch_ops, watcher);
    valve_open(&watcher->valve, NULL, call);
    stream_open(&watcher->head, api, call, token, stream_end_now);
}
