/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a nameserver is called for. See service.h. A question that waits is in names->waits; it is looked at when anything
 * has changed, and when its time is over.
 */
#include <stdlib.h>

#include "names/look.h"
#include "names/service_internal.h"

struct call {
    struct mr_link link; /* waits */
    struct mr_names *names;
    struct mr_call *call;
    bool is_over; /* answered, or ended */
    /* A question that waits. */
    struct mr_names_query query;
    char app[MR_NAME_MAX];
    mr_mono until;
};

/* ---- ends ------------------------------------------------------------------------------------- */

static void end(struct call *c, enum mr_err err, const char *text)
{
    c->is_over = true;
    if (err != MR_OK)
        mr_call_trailer(c->call, "millrace-code", mr_slice_str(mr_err_name(err)));
    mr_call_end(c->call, mr_err_grpc_status(err),
                mr_slice_str(err == MR_OK   ? ""
                             : text != NULL ? text
                                            : mr_err_text(err)));
}

static void reply(struct call *c, enum mr_err err)
{
    if (err == MR_OK)
        err = mr_call_send(c->call, mr_buf_slice(&c->names->buf));
    if (err == MR_CLOSED)
        c->is_over = true;
    else
        end(c, err, NULL);
}

static void stop_waiting(struct call *c)
{
    if (mr_list_empty(&c->link))
        return;
    mr_list_remove(&c->link);
    c->names->waits_n--;
}

static void closed(struct mr_call *call, int status, struct mr_slice text)
{
    struct call *c = mr_call_data(call);
    (void)status, (void)text;
    stop_waiting(c);
    free(c);
}

static bool may(struct call *c, enum mr_names_right right, struct mr_slice app)
{
    const struct mr_names_options *options = &c->names->options;
    bool yes = options->may == NULL || options->may(c->call, right, app, options->arg);
    c->is_over = c->is_over || !yes;
    return yes;
}

/* ---- registrations ---------------------------------------------------------------------------- */

static void register_message(struct mr_call *call, struct mr_slice bytes)
{
    struct call *c = mr_call_data(call);
    struct mr_names *names = c->names;
    struct mr_names_entry entry;
    struct mr_names_registered answer = {.from = names->id};
    mr_mono now = mr_rpc_now(names->options.rpc);
    if (c->is_over)
        return;
    enum mr_err err = mr_names_entry_decode(bytes, &entry);
    if (err != MR_OK) {
        end(c, err, "the message cannot be read");
        return;
    }
    if (!may(c, entry.kind == MR_NAMES_WORKER ? MR_NAMES_WORK : MR_NAMES_SERVE, entry.app))
        return;
    err = mr_registry_register(names->registry, now, &entry, &answer.put);
    if (err != MR_OK) {
        end(c, err, err == MR_BUSY ? "the registry is full" : "no such entry can be");
        return;
    }
    answer.complete = mr_registry_complete(names->registry, now);
    answer.servers = mr_registry_changed(names->registry, MR_NAMES_SERVER, (struct mr_slice){0});
    answer.workers = mr_registry_changed(names->registry, MR_NAMES_WORKER, entry.app);
    mr_buf_clear(&names->buf);
    reply(c, mr_names_registered_encode(&answer, &names->buf));
}

/* ---- lists ------------------------------------------------------------------------------------ */

static uint64_t number_of(const struct call *c)
{
    return mr_registry_changed(c->names->registry, c->query.kind, c->query.app);
}

static bool is_behind(const struct mr_names_entry *entry, const struct mr_names_query *query)
{
    int order = mr_slice_compare(entry->name, query->after_name);
    return order > 0 || (order == 0 && entry->incarnation > query->after_incarnation);
}

static enum mr_err make_page(struct call *c, mr_mono now, struct mr_arena *arena)
{
    struct mr_names *names = c->names;
    struct mr_names_page page = {.from = names->id,
                                 .changed = number_of(c),
                                 .complete = mr_registry_complete(names->registry, now)};
    struct mr_names_entry *entries = NULL;
    size_t n = 0, first = 0;
    bool is_known = c->query.from == names->id && c->query.known == page.changed;
    if (!is_known)
        MR_TRY(mr_registry_list(names->registry, now, c->query.kind, c->query.app, arena, &entries,
                                &n));
    while (c->query.after_name.len > 0 && first < n && !is_behind(&entries[first], &c->query))
        first++;
    page.entries = n > 0 ? entries + first : NULL;
    page.entries_n = n - first;
    mr_buf_clear(&names->buf);
    return mr_names_page_encode(&page, &names->buf);
}

static void answer_list(struct call *c, mr_mono now)
{
    struct mr_arena arena = {0};
    stop_waiting(c);
    reply(c, make_page(c, now, &arena));
    mr_arena_done(&arena);
}

/* What it asks for outlives the message. */
static void wait_for_change(struct call *c, mr_mono now)
{
    int64_t ms = c->query.wait_ms < MR_NAMES_WAIT_MAX_MS ? c->query.wait_ms : MR_NAMES_WAIT_MAX_MS;
    if (c->query.app.len > 0)
        memcpy(c->app, c->query.app.data, c->query.app.len);
    c->query.app = mr_slice_make(c->app, c->query.app.len);
    c->query.after_name = (struct mr_slice){0};
    c->until = mr_mono_add_ms(now, ms);
    mr_list_push_back(&c->names->waits, &c->link);
    c->names->waits_n++;
}

static void list_message(struct mr_call *call, struct mr_slice bytes)
{
    struct call *c = mr_call_data(call);
    mr_mono now = mr_rpc_now(c->names->options.rpc);
    if (c->is_over || !mr_list_empty(&c->link))
        return;
    enum mr_err err = mr_names_query_decode(bytes, &c->query);
    if (err == MR_OK && c->query.app.len > MR_NAME_MAX)
        err = MR_TOO_BIG;
    if (err != MR_OK) {
        end(c, err, "the message cannot be read");
        return;
    }
    bool is_of_all = c->query.kind == MR_NAMES_WORKER && c->query.app.len == 0;
    if (!may(c, is_of_all ? MR_NAMES_LOOK_ALL : MR_NAMES_LOOK, c->query.app))
        return;
    bool is_known = c->query.from == c->names->id && c->query.known == number_of(c);
    if (is_known && c->query.wait_ms > 0 && c->names->waits_n < MR_NAMES_WAITS_MAX &&
        !c->names->stopped)
        wait_for_change(c, now);
    else
        answer_list(c, now);
}

void calls_look(struct mr_names *names, mr_mono now)
{
    uint64_t changes = mr_registry_changes(names->registry);
    bool has_changed = changes != names->looked || names->stopped;
    names->looked = changes;
    struct mr_link *next;
    for (struct mr_link *at = names->waits.next; at != &names->waits; at = next) {
        struct call *c = mr_container(at, struct call, link);
        next = at->next;
        bool is_late = c->until.ns <= now.ns || names->stopped;
        if (is_late || (has_changed && number_of(c) != c->query.known))
            answer_list(c, now);
    }
}

/* ---- looking ---------------------------------------------------------------------------------- */

/* One number of a digest, in which any other number of it makes a difference. */
static enum mr_err sum_digest(const struct mr_names_msg *msg, void *arg)
{
    uint64_t sum = MR_FNV64_SEED;
    for (size_t i = 0; i < MR_NAMES_BUCKETS; i++)
        sum = (sum ^ msg->digest[i]) * MR_FNV64_PRIME;
    *(uint64_t *)arg = sum;
    return MR_OK;
}

static void look_figures(struct mr_names *names, mr_mono now, struct mr_names_look *look)
{
    struct mr_registry_figures figures;
    mr_registry_figures(names->registry, &figures);
    *look = (struct mr_names_look){
        .from = names->id,
        .complete = mr_registry_complete(names->registry, now),
        .servers = figures.live[MR_NAMES_SERVER],
        .workers = figures.live[MR_NAMES_WORKER],
        .graves = figures.graves,
        .expired = figures.expired,
        .left = figures.left,
        .refused = figures.refused,
        .forgotten = figures.forgotten,
        .stalls = figures.stalls,
    };
}

static enum mr_err make_look(struct mr_names *names, mr_mono now, struct mr_arena *arena)
{
    struct mr_names_look look;
    struct mr_names_app *apps;
    struct mr_names_look_peer peers[MR_NAMES_PEERS_MAX];
    look_figures(names, now, &look);
    MR_TRY(mr_registry_digest(names->registry, sum_digest, &look.view));
    MR_TRY(mr_registry_apps(names->registry, arena, &apps, &look.apps_n));
    for (size_t i = 0; i < names->peers_n; i++)
        peers[i] = (struct mr_names_look_peer){mr_slice_str(names->peers[i].address),
                                               names->peers[i].is_up};
    look.apps = apps;
    look.peers = peers;
    look.peers_n = names->peers_n;
    mr_buf_clear(&names->buf);
    return mr_names_look_encode(&look, &names->buf);
}

/* The names of apps are those of others, too: it is for who may see all. */
static void look_message(struct mr_call *call, struct mr_slice bytes)
{
    struct call *c = mr_call_data(call);
    struct mr_arena arena = {0};
    (void)bytes; /* there is nothing to say */
    if (c->is_over || !may(c, MR_NAMES_LOOK_ALL, (struct mr_slice){0}))
        return;
    reply(c, make_look(c->names, mr_rpc_now(c->names->options.rpc), &arena));
    mr_arena_done(&arena);
}

/* ---- begins ----------------------------------------------------------------------------------- */

static void half_closed(struct mr_call *call)
{
    struct call *c = mr_call_data(call);
    if (!c->is_over && mr_list_empty(&c->link))
        end(c, MR_INVALID, "no message");
}

static const struct mr_call_ops register_ops = {
    .message = register_message, .half_closed = half_closed, .closed = closed};
static const struct mr_call_ops list_ops = {
    .message = list_message, .half_closed = half_closed, .closed = closed};
static const struct mr_call_ops look_ops = {
    .message = look_message, .half_closed = half_closed, .closed = closed};

static struct call *begin(struct mr_call *call, struct mr_names *names,
                          const struct mr_call_ops *ops)
{
    struct call *c = calloc(1, sizeof *c);
    if (c == NULL) {
        mr_call_end(call, mr_err_grpc_status(MR_NOMEM), (struct mr_slice){0});
        return NULL;
    }
    *c = (struct call){.names = names, .call = call};
    mr_list_init(&c->link);
    mr_call_set(call, ops, c);
    return c;
}

static void begin_register(struct mr_call *call, void *arg)
{
    struct call *c = begin(call, arg, &register_ops);
    if (c != NULL)
        may(c, MR_NAMES_LOOK, (struct mr_slice){0});
}

static void begin_list(struct mr_call *call, void *arg)
{
    struct call *c = begin(call, arg, &list_ops);
    if (c != NULL)
        may(c, MR_NAMES_LOOK, (struct mr_slice){0});
}

static void begin_look(struct mr_call *call, void *arg)
{
    struct call *c = begin(call, arg, &look_ops);
    if (c != NULL)
        may(c, MR_NAMES_LOOK, (struct mr_slice){0});
}

static void exchange_message(struct mr_call *call, struct mr_slice bytes)
{
    struct call *c = mr_call_data(call);
    if (c->is_over || !may(c, MR_NAMES_SERVE, (struct mr_slice){0})) /* its token may be gone */
        return;
    enum mr_err err = names_hear(c->names, call, bytes);
    if (err == MR_INVALID || err == MR_TOO_BIG)
        end(c, err, "the message cannot be read");
}

static void exchange_half_closed(struct mr_call *call)
{
    struct call *c = mr_call_data(call);
    if (!c->is_over)
        end(c, MR_OK, NULL);
}

static const struct mr_call_ops exchange_ops = {
    .message = exchange_message, .half_closed = exchange_half_closed, .closed = closed};

static void begin_exchange(struct mr_call *call, void *arg)
{
    struct call *c = begin(call, arg, &exchange_ops);
    if (c != NULL)
        may(c, MR_NAMES_SERVE, (struct mr_slice){0});
}

static const struct mr_rpc_method methods[] = {
    {NAMES_REGISTER, begin_register},
    {NAMES_LIST, begin_list},
    {NAMES_LOOK, begin_look},
    {NAMES_EXCHANGE, begin_exchange},
};

const struct mr_rpc_method *mr_names_methods(size_t *ret_n)
{
    *ret_n = sizeof methods / sizeof *methods;
    return methods;
}
