/* SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>

#include "base/list.h"
#include "base/net.h"
#include "cli/bench/names.h"
#include "names/client.h"
#include "names/wire.h"

enum {
    CROWD = BENCH_CROWD_MAX,
    WAVE = 250,   /* connections on their way at a time */
    TICK_MS = 10, /* between two looks at who is to register */
    LOOK_MS = 10, /* between two lookups */
    READY_S = 60, /* far more than any crowd needs */
    REST_S = 5,   /* for the last answer */
    ANSWER_MS = 5000,
};

struct member {
    struct bench_crowd *crowd;
    struct mr_channel *channel;  /* NULL: not now */
    struct mr_call *registering; /* likewise */
    uint64_t version;
    bool is_in;
};

struct bench_crowd {
    struct mr_rpc *rpc;
    char address[MR_ADDR_TEXT_MAX];
    struct member *members;
    size_t n;
    struct mr_timer timer;
    struct mr_buf buf;
    bool is_steady; /* all are in: from now on they register in turn */
    mr_mono begun;
    uint64_t sent;
    size_t next, connected;     /* of those that come in */
    struct member *done[CROWD]; /* their connections are to be closed */
    size_t done_n;
    _Atomic size_t in;
    _Atomic uint64_t answered, failed;
    /* Lookups, on a connection that stays and a loop of their own: what the crowd itself costs is not the answer's time. */
    struct mr_rpc *look_rpc;
    struct mr_buf look_buf;
    struct mr_channel *looker;
    _Atomic size_t looker_up;
    struct mr_timer look_timer;
    struct bench_samples *samples;
    mr_mono look_until;
    int64_t asked_ns;
    size_t look_app;
    bool is_wrong;
    struct mr_event looked;
};

/* ---- members ---------------------------------------------------------------------------------- */

static enum mr_err send_one(struct mr_channel *channel, const char *path,
                            const struct mr_call_ops *ops, void *data, const struct mr_buf *bytes,
                            struct mr_call **ret_call)
{
    MR_TRY(mr_channel_call(channel, path, ANSWER_MS, ops, data, ret_call));
    enum mr_err err = mr_call_send(*ret_call, mr_buf_slice(bytes));
    if (err == MR_OK)
        mr_call_half_close(*ret_call);
    else
        mr_call_cancel(*ret_call);
    return MR_OK;
}

static void member_done(struct member *m)
{
    mr_assert(m->crowd->done_n < CROWD);
    m->crowd->done[m->crowd->done_n++] = m;
}

static void register_closed(struct mr_call *call, int status, struct mr_slice text)
{
    struct member *m = mr_call_data(call);
    struct bench_crowd *crowd = m->crowd;
    (void)text;
    m->registering = NULL;
    if (status == MR_RPC_CANCELLED)
        return;
    member_done(m);
    if (status != MR_RPC_OK) {
        atomic_fetch_add(&crowd->failed, 1);
        return;
    }
    if (crowd->is_steady)
        atomic_fetch_add(&crowd->answered, 1);
    if (!m->is_in)
        atomic_fetch_add(&crowd->in, 1);
    m->is_in = true;
}

static void ignore_message(struct mr_call *call, struct mr_slice bytes)
{
    (void)call, (void)bytes;
}

static const struct mr_call_ops register_ops = {.message = ignore_message,
                                                .closed = register_closed};

static void register_member(struct member *m)
{
    struct bench_crowd *crowd = m->crowd;
    size_t i = (size_t)(m - crowd->members);
    char name[32], app[32];
    struct mr_names_worker_body figures = {.slots = 8, .busy = 4, .done = m->version * 100};
    struct mr_buf body = {0};
    snprintf(name, sizeof name, "worker-%zu", i);
    snprintf(app, sizeof app, "app-%zu", i / BENCH_CROWD_APP);
    cli_must(mr_names_worker_body_encode(&figures, &body));
    struct mr_names_entry entry = {.kind = MR_NAMES_WORKER,
                                   .incarnation = i + 1,
                                   .version = ++m->version,
                                   .name = mr_slice_str(name),
                                   .app = mr_slice_str(app),
                                   .server = MR_SLICE_LIT("server:7401"),
                                   .body = mr_buf_slice(&body)};
    mr_buf_clear(&crowd->buf);
    cli_must(mr_names_entry_encode(&entry, &crowd->buf));
    mr_buf_done(&body);
    if (send_one(m->channel, "/millrace.v1.Names/Register", &register_ops, m, &crowd->buf,
                 &m->registering) != MR_OK)
        member_done(m);
}

static void member_changed(struct mr_channel *channel, bool up, const char *why, void *arg)
{
    struct member *m = arg;
    (void)channel, (void)why;
    if (up && m->registering == NULL)
        register_member(m);
}

/* It has something to say. */
static void member_connect(struct member *m)
{
    struct mr_channel_options options = {
        .address = m->crowd->address, .changed = member_changed, .arg = m};
    if (m->channel == NULL && mr_channel_new(m->crowd->rpc, &options, &m->channel, NULL) == MR_OK)
        m->crowd->connected++;
}

/* ---- in turn ---------------------------------------------------------------------------------- */

static void close_done(struct bench_crowd *crowd)
{
    for (size_t i = 0; i < crowd->done_n; i++) {
        mr_channel_free(crowd->done[i]->channel);
        crowd->done[i]->channel = NULL;
        crowd->connected--;
    }
    crowd->done_n = 0;
}

/* At first all come in, some at a time; then each registers in its turn. */
static void tick(struct mr_timer *timer, void *arg)
{
    struct bench_crowd *crowd = mr_container(timer, struct bench_crowd, timer);
    mr_mono now = mr_rpc_now(arg);
    close_done(crowd);
    while (crowd->next < crowd->n && crowd->connected < WAVE)
        member_connect(&crowd->members[crowd->next++]);
    if (!crowd->is_steady && atomic_load(&crowd->in) == crowd->n) {
        crowd->is_steady = true;
        crowd->begun = now;
    }
    double ms = (double)(now.ns - crowd->begun.ns) / (double)MR_NS_PER_MS;
    while (crowd->is_steady &&
           (double)crowd->sent < ms * (double)crowd->n / (double)MR_NAMES_WORKER_MS)
        member_connect(&crowd->members[crowd->sent++ % crowd->n]);
    mr_rpc_timer_start(arg, timer, mr_mono_add_ms(now, TICK_MS));
}

static void looker_changed(struct mr_channel *channel, bool up, const char *why, void *arg)
{
    struct bench_crowd *crowd = arg;
    (void)channel, (void)why;
    atomic_store(&crowd->looker_up, up);
}

/* ---- lookups ---------------------------------------------------------------------------------- */

static void look_message(struct mr_call *call, struct mr_slice bytes)
{
    struct bench_crowd *crowd = mr_call_data(call);
    struct mr_arena arena = {0};
    struct mr_names_page page = {0};
    bench_samples_add(crowd->samples, bench_now_ns() - crowd->asked_ns);
    if (mr_names_page_decode(bytes, &arena, &page) != MR_OK || page.entries_n != BENCH_CROWD_APP)
        crowd->is_wrong = true;
    mr_arena_done(&arena);
}

static void look_closed(struct mr_call *call, int status, struct mr_slice text)
{
    struct bench_crowd *crowd = mr_call_data(call);
    mr_mono now = mr_rpc_now(crowd->look_rpc);
    (void)text;
    crowd->is_wrong = crowd->is_wrong || status != MR_RPC_OK;
    if (now.ns >= crowd->look_until.ns || crowd->is_wrong)
        mr_event_set(&crowd->looked);
    else
        mr_rpc_timer_start(crowd->look_rpc, &crowd->look_timer, mr_mono_add_ms(now, LOOK_MS));
}

static const struct mr_call_ops look_ops = {.message = look_message, .closed = look_closed};

static void look(struct mr_timer *timer, void *arg)
{
    struct bench_crowd *crowd = mr_container(timer, struct bench_crowd, look_timer);
    struct mr_call *call;
    char app[32];
    (void)arg;
    snprintf(app, sizeof app, "app-%zu", crowd->look_app++ % (crowd->n / BENCH_CROWD_APP));
    struct mr_names_query query = {.kind = MR_NAMES_WORKER, .app = mr_slice_str(app)};
    mr_buf_clear(&crowd->look_buf);
    cli_must(mr_names_query_encode(&query, &crowd->look_buf));
    crowd->asked_ns = bench_now_ns();
    if (send_one(crowd->looker, "/millrace.v1.Names/List", &look_ops, crowd, &crowd->look_buf,
                 &call) == MR_OK)
        return;
    crowd->is_wrong = true;
    mr_event_set(&crowd->looked);
}

/* ---- life ------------------------------------------------------------------------------------- */

struct order {
    struct mr_msg msg;
    struct bench_crowd *crowd;
    int64_t ms;
    struct mr_event done;
};

static void give_order(struct bench_crowd *crowd, struct mr_rpc *rpc, int64_t ms,
                       void (*deliver)(struct mr_msg *msg, void *receiver))
{
    struct order order = {.msg.deliver = deliver, .crowd = crowd, .ms = ms};
    mr_event_init(&order.done);
    mr_rpc_post(rpc, &order.msg);
    mr_event_wait(&order.done, INT64_MAX);
}

static void begin(struct mr_msg *msg, void *receiver)
{
    struct order *order = mr_container(msg, struct order, msg);
    tick(&order->crowd->timer, receiver);
    mr_event_set(&order->done);
}

static void begin_look(struct mr_msg *msg, void *receiver)
{
    struct order *order = mr_container(msg, struct order, msg);
    order->crowd->look_until = mr_mono_add_ms(mr_rpc_now(receiver), order->ms);
    look(&order->crowd->look_timer, receiver);
    mr_event_set(&order->done);
}

static void end(struct mr_msg *msg, void *receiver)
{
    struct order *order = mr_container(msg, struct order, msg);
    mr_rpc_timer_stop(receiver, &order->crowd->timer);
    mr_event_set(&order->done);
}

static void end_look(struct mr_msg *msg, void *receiver)
{
    struct order *order = mr_container(msg, struct order, msg);
    mr_rpc_timer_stop(receiver, &order->crowd->look_timer);
    mr_event_set(&order->done);
}

/* Until the count is there. */
static enum mr_err await_count(const _Atomic size_t *count, size_t wanted)
{
    struct mr_event never;
    int64_t start = bench_now_ns();
    mr_event_init(&never);
    while (atomic_load(count) < wanted) {
        if (bench_interrupted())
            return MR_CANCELLED;
        if (bench_seconds_since(start) > READY_S)
            return MR_TIMEOUT;
        mr_event_wait(&never, MR_NS_PER_MS);
    }
    return MR_OK;
}

static enum mr_err come_in(struct bench_crowd *crowd, struct mr_detail *detail)
{
    struct mr_channel_options options = {
        .address = crowd->address, .changed = looker_changed, .arg = crowd};
    MR_TRY(mr_channel_new(crowd->look_rpc, &options, &crowd->looker, detail));
    MR_TRY(await_count(&crowd->looker_up, 1));
    give_order(crowd, crowd->rpc, 0, begin);
    return await_count(&crowd->in, crowd->n);
}

enum mr_err bench_crowd_open(const char *address, size_t n, struct bench_crowd **ret_crowd,
                             struct mr_detail *detail)
{
    mr_assert(n <= CROWD);
    struct bench_crowd *crowd = cli_alloc(1, sizeof *crowd);
    mr_timer_init(&crowd->timer, tick);
    mr_timer_init(&crowd->look_timer, look);
    mr_event_init(&crowd->looked);
    snprintf(crowd->address, sizeof crowd->address, "%s", address);
    crowd->members = cli_alloc(n, sizeof *crowd->members);
    crowd->n = n;
    for (size_t i = 0; i < n; i++)
        crowd->members[i].crowd = crowd;
    *ret_crowd = crowd;
    MR_TRY(mr_rpc_new("mr-crowd", NULL, &crowd->rpc));
    MR_TRY(mr_rpc_new("mr-look", NULL, &crowd->look_rpc));
    enum mr_err err = come_in(crowd, detail);
    if (err == MR_TIMEOUT)
        mr_detail_set(detail, "of %zu workers %zu have registered", n, atomic_load(&crowd->in));
    return err;
}

enum mr_err bench_crowd_look(struct bench_crowd *crowd, double seconds,
                             struct bench_samples *samples)
{
    crowd->samples = samples;
    mr_event_reset(&crowd->looked);
    give_order(crowd, crowd->look_rpc, (int64_t)(seconds * (double)MR_MS_PER_S), begin_look);
    if (!mr_event_wait(&crowd->looked, (int64_t)((seconds + REST_S) * (double)MR_NS_PER_S)))
        return MR_TIMEOUT;
    return crowd->is_wrong ? MR_FAILED : MR_OK;
}

void bench_crowd_count(struct bench_crowd *crowd, uint64_t *ret_answered, uint64_t *ret_failed)
{
    *ret_answered = atomic_load(&crowd->answered);
    *ret_failed = atomic_load(&crowd->failed);
}

void bench_crowd_close(struct bench_crowd *crowd)
{
    if (crowd == NULL)
        return;
    if (crowd->rpc != NULL)
        give_order(crowd, crowd->rpc, 0, end);
    if (crowd->look_rpc != NULL)
        give_order(crowd, crowd->look_rpc, 0, end_look);
    for (size_t i = 0; i < crowd->n; i++)
        mr_channel_free(crowd->members[i].channel);
    mr_channel_free(crowd->looker);
    mr_rpc_free(crowd->look_rpc);
    mr_rpc_free(crowd->rpc);
    mr_buf_done(&crowd->look_buf);
    mr_buf_done(&crowd->buf);
    free(crowd->members);
    free(crowd);
}
