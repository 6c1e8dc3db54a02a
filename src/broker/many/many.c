/* SPDX-License-Identifier: Apache-2.0 */
/* The engine of several servers as a whole: see internal.h. */
#include "broker/many/many.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/net.h"
#include "broker/door.h"
#include "broker/many/internal.h"

/* ---- requests ------------------------------------------------------------------------------- */

/* How an operation finds its servers: one row each; none: not supported. */
static void (*const begins[MR_OP_COUNT])(struct many *many, struct mr_req *req) = {
    [MR_OP_ENQUEUE] = begin_enqueue,     /* one, in turn or by a key */
    [MR_OP_NODE_OPEN] = begin_node_open, /* all, and those that come */
    [MR_OP_NODE_CLOSE] = begin_node_close,
    [MR_OP_TAKE] = begin_take, /* one after the other */
    [MR_OP_BEAT] = begin_beat,
    [MR_OP_FINISH] = begin_finish, /* where it was taken */
    [MR_OP_CONTROL] = begin_fan,   /* all: whoever has it */
    [MR_OP_GET] = begin_fan,
    [MR_OP_AWAIT] = begin_fan,
    [MR_OP_UNAWAIT] = begin_unawait,
    [MR_OP_LIST] = begin_list,      /* all, page by page */
    [MR_OP_QUEUE_LIST] = begin_fan, /* all, added up */
    [MR_OP_QUEUE_HISTORY] = begin_fan,
    [MR_OP_QUEUE_SET] = begin_queue_set,
    [MR_OP_QUEUE_REMOVE] = begin_fan,
    [MR_OP_NODE_LIST] = begin_fan,
    [MR_OP_STATS] = begin_fan,
    [MR_OP_QUEUE_LIMITS] = begin_fan,
    [MR_OP_BACKUP] = begin_backup, /* the only one */
    [MR_OP_GATHER] = begin_gather, /* one after the other */
    [MR_OP_GATHERED] = begin_gathered,
    [MR_OP_ASSIGN] = begin_assign, /* where it leads */
    [MR_OP_CALL] = begin_call,     /* any */
};

static void deliver(struct mr_msg *msg, void *receiver)
{
    struct mr_req *req = mr_container(msg, struct mr_req, msg);
    struct many *many = req->own;
    (void)receiver;
    if (many->closing)
        mr_req_answer(req, MR_CLOSED);
    else if (begins[req->op] == NULL)
        mr_req_answer(req, MR_UNSUPPORTED);
    else
        begins[req->op](many, req);
}

static void many_submit(struct mr_broker *broker, struct mr_req *req)
{
    struct many *many = mr_container(broker, struct many, broker);
    req->own = many;
    req->msg.deliver = deliver;
    mr_rpc_post(many->rpc, &req->msg);
}

static enum mr_err many_lease_open(struct mr_broker *broker, struct mr_lease *lease)
{
    struct many *many = mr_container(broker, struct many, broker);
    mr_lock_enter(&many->lock);
    const struct origin *origin = origin_of(many, lease->epoch);
    mr_lock_leave(&many->lock);
    MR_TRY(origin != NULL ? mr_broker_lease_open(origin->broker, lease) : MR_DAMAGED);
    lease->task.epoch = lease->epoch;
    return MR_OK;
}

/* ---- what is due ---------------------------------------------------------------------------- */

/* What is due, and the next tick if there will be something. */
static void many_tick(struct many *many)
{
    puts_go_on(many);
    for (struct mr_link *link = many->nodes.next, *next; link != &many->nodes; link = next) {
        next = link->next;
        node_step(mr_container(link, struct many_node, link));
    }
    many_tick_soon(many);
}

void many_tick_soon(struct many *many)
{
    bool idle = mr_list_empty(&many->puts) && mr_list_empty(&many->nodes);
    if (!idle && !many->closing && !mr_timer_running(&many->tick))
        mr_rpc_timer_start(many->rpc, &many->tick, mr_mono_add_ms(mr_rpc_now(many->rpc), TICK_MS));
}

static void on_tick(struct mr_timer *timer, void *arg)
{
    (void)arg;
    many_tick(mr_container(timer, struct many, tick));
}

/* ---- servers -------------------------------------------------------------------------------- */

static void on_changed(bool up, void *arg)
{
    struct origin *origin = arg;
    struct many *many = origin->many;
    mr_lock_enter(&many->lock);
    origin->up = up;
    origin->told = true;
    mr_lock_notify_all(&many->lock);
    mr_lock_leave(&many->lock);
    if (up && !many->closing)
        many_tick(many);
}

static struct origin *find_address(const struct many *many, const char *address)
{
    for (size_t i = 0; i < many->origins_n; i++)
        if (strcmp(many->origins[i]->address, address) == 0)
            return many->origins[i];
    return NULL;
}

static struct mr_remote_options options_of(struct many *many, struct origin *origin)
{
    struct mr_remote_options options = many->server;
    options.address = origin->address;
    options.rpc = many->rpc;
    options.later = true;
    options.changed = on_changed;
    options.changed_arg = origin;
    return options;
}

static void name_origin(struct origin *origin, const char *address)
{
    origin->hash = mr_many_hash(mr_slice_str(address));
    (void)snprintf(origin->address, sizeof origin->address, "%s", address);
}

static enum mr_err new_origin(struct many *many, const char *address, struct origin **ret_origin,
                              struct mr_detail *detail)
{
    struct origin *origin = calloc(1, sizeof *origin);
    if (origin == NULL)
        return MR_NOMEM;
    origin->many = many;
    origin->index = (uint32_t)many->origins_n;
    name_origin(origin, address);
    struct mr_remote_options options = options_of(many, origin);
    enum mr_err err = mr_remote_open(&options, &origin->broker, detail);
    if (err != MR_OK) {
        free(origin);
        return err;
    }
    mr_lock_enter(&many->lock);
    many->origins[many->origins_n++] = origin;
    mr_lock_leave(&many->lock);
    *ret_origin = origin;
    return MR_OK;
}

/* A server that has gone, or was tried in vain, and of which nothing is left: its place can be another's. */
static struct origin *find_free(const struct many *many, uint64_t keep)
{
    for (size_t i = 0; i < many->origins_n; i++) {
        struct origin *origin = many->origins[i];
        if ((keep >> i & 1) == 0 && origin->told && !origin->up && !nodes_are_at(many, i))
            return origin;
    }
    return NULL;
}

static enum mr_err reuse_origin(struct many *many, const char *address, struct origin *origin,
                                struct mr_detail *detail)
{
    struct origin last = *origin;
    mr_lock_enter(&many->lock);
    name_origin(origin, address);
    origin->told = origin->listed = false;
    mr_lock_leave(&many->lock);
    struct mr_remote_options options = options_of(many, origin);
    enum mr_err err = mr_remote_readdress(origin->broker, &options, detail);
    if (err != MR_OK) {
        mr_lock_enter(&many->lock);
        name_origin(origin, last.address);
        mr_lock_leave(&many->lock);
        return err;
    }
    if (many->led == origin)
        many->led = NULL;
    return MR_OK;
}

/* keep: bits of those that are in the list. */
static enum mr_err add_origin(struct many *many, const char *address, uint64_t keep,
                              struct origin **ret_origin, struct mr_detail *detail)
{
    char host[MR_HOST_MAX + 1];
    uint16_t port;
    if (strlen(address) >= MR_MANY_ADDRESS_MAX || mr_host_parse(address, host, &port) != MR_OK) {
        mr_detail_set(detail, "%.300s: must be HOST:PORT", address);
        return MR_INVALID;
    }
    if (many->origins_n < ORIGINS_MAX)
        return new_origin(many, address, ret_origin, detail);
    struct origin *origin = find_free(many, keep);
    if (origin == NULL) {
        mr_detail_set(detail, "%d servers are the limit", ORIGINS_MAX);
        return MR_TOO_BIG;
    }
    *ret_origin = origin;
    return reuse_origin(many, address, origin, detail);
}

static enum mr_err set_servers(struct many *many, const char *const *addresses, size_t n,
                               struct mr_detail *detail)
{
    uint64_t listed = 0;
    enum mr_err first = MR_OK;
    for (size_t i = 0; i < n; i++) {
        const struct origin *origin = find_address(many, addresses[i]);
        listed |= origin != NULL ? 1ULL << origin->index : 0;
    }
    for (size_t i = 0; i < n; i++) {
        struct origin *origin = find_address(many, addresses[i]);
        if (origin != NULL)
            continue;
        enum mr_err err = add_origin(many, addresses[i], listed, &origin, detail);
        if (err == MR_OK)
            listed |= 1ULL << origin->index;
        first = first != MR_OK ? first : err;
    }
    mr_lock_enter(&many->lock);
    for (size_t i = 0; i < many->origins_n; i++)
        many->origins[i]->listed = listed >> i & 1;
    mr_lock_notify_all(&many->lock);
    mr_lock_leave(&many->lock);
    return first;
}

enum mr_err mr_many_set_servers(struct mr_broker *broker, const char *const *addresses, size_t n)
{
    struct many *many = mr_container(broker, struct many, broker);
    if (many->closing)
        return MR_CLOSED;
    enum mr_err err = set_servers(many, addresses, n, NULL);
    many_tick(many);
    return err;
}

/* ---- looking at them, on other threads ------------------------------------------------------- */

struct mr_rpc *mr_many_rpc(struct mr_broker *broker)
{
    return mr_container(broker, struct many, broker)->rpc;
}

size_t mr_many_servers(struct mr_broker *broker,
                       struct mr_many_server ret_servers[MR_MANY_SERVERS_MAX])
{
    struct many *many = mr_container(broker, struct many, broker);
    size_t n = 0;
    mr_lock_enter(&many->lock);
    for (size_t i = 0; i < many->origins_n; i++) {
        const struct origin *origin = many->origins[i];
        if (origin->listed)
            ret_servers[n++] = (struct mr_many_server){origin->broker, origin->hash, origin->up};
    }
    mr_lock_leave(&many->lock);
    return n;
}

struct mr_broker *mr_many_pick(struct mr_broker *broker)
{
    struct many *many = mr_container(broker, struct many, broker);
    mr_lock_enter(&many->lock);
    uint64_t live = live_origins(many);
    struct origin *origin = origin_in_turn(many, live != 0 ? live : listed_origins(many));
    mr_lock_leave(&many->lock);
    return origin != NULL ? origin->broker : NULL;
}

/* Every server of the list is there, or is known not to be. */
static bool is_settled(const struct many *many)
{
    for (size_t i = 0; i < many->origins_n; i++)
        if (many->origins[i]->listed && !many->origins[i]->told)
            return false;
    return live_origins(many) != 0;
}

/* Who asks before all of them are there would not hear of what the others have. */
enum mr_err mr_many_await_up(struct mr_broker *broker, int64_t ms)
{
    struct many *many = mr_container(broker, struct many, broker);
    struct mr_clock *clock = mr_clock_system();
    mr_mono now = mr_mono_now(clock);
    mr_mono end = mr_mono_add_ms(now, ms > 0 ? ms : MR_DOOR_OPEN_MS);
    bool up = false;
    mr_lock_enter(&many->lock);
    while (!is_settled(many) && now.ns < end.ns) {
        if (!up && live_origins(many) != 0) {
            mr_mono soon = mr_mono_add_ms(now, OTHERS_MS);
            end = soon.ns < end.ns ? soon : end;
            up = true;
        }
        if (now.ns < end.ns)
            (void)mr_lock_wait(&many->lock, end.ns - now.ns);
        now = mr_mono_now(clock);
    }
    up = live_origins(many) != 0;
    mr_lock_leave(&many->lock);
    return up ? MR_OK : MR_UNAVAILABLE;
}

/* ---- life ----------------------------------------------------------------------------------- */

/* What a thread has the loop do, and waits for. */
struct order {
    struct mr_msg msg;
    struct many *many;
    const struct mr_many_options *options;
    struct mr_detail *detail;
    enum mr_err err;
    struct mr_event done;
};

static void give_order(struct order *order, void (*act)(struct mr_msg *msg, void *receiver))
{
    order->msg.deliver = act;
    mr_event_init(&order->done);
    mr_rpc_post(order->many->rpc, &order->msg);
    mr_event_wait(&order->done, INT64_MAX);
}

static void first_servers(struct mr_msg *msg, void *receiver)
{
    struct order *order = mr_container(msg, struct order, msg);
    (void)receiver;
    order->err =
        set_servers(order->many, order->options->servers, order->options->servers_n, order->detail);
    mr_event_set(&order->done);
}

static void close_begin(struct mr_msg *msg, void *receiver)
{
    struct order *order = mr_container(msg, struct order, msg);
    struct many *many = order->many;
    many->closing = true;
    mr_rpc_timer_stop(receiver, &many->tick);
    puts_fail(many, MR_CLOSED);
    nodes_fail(many, MR_CLOSED);
    mr_event_set(&order->done);
}

/* The servers' engines are closed: all that was under way is answered. */
static void close_end(struct mr_msg *msg, void *receiver)
{
    struct order *order = mr_container(msg, struct order, msg);
    struct many *many = order->many;
    (void)receiver;
    while (!mr_list_empty(&many->nodes))
        many_node_free(mr_container(many->nodes.next, struct many_node, link));
    mr_assert(mr_list_empty(&many->fans));
    mr_event_set(&order->done);
}

static void many_free(struct many *many)
{
    struct order order = {.many = many};
    if (many->rpc != NULL)
        give_order(&order, close_begin);
    for (size_t i = 0; i < many->origins_n; i++)
        mr_remote_leave(many->origins[i]->broker); /* they are waited for together */
    for (size_t i = 0; i < many->origins_n; i++)
        mr_broker_close(many->origins[i]->broker);
    if (many->rpc != NULL)
        give_order(&order, close_end);
    mr_rpc_free(many->rpc);
    for (size_t i = 0; i < many->origins_n; i++)
        free(many->origins[i]);
    mr_lock_done(&many->lock);
    mr_arena_done(&many->memory);
    free(many);
}

static void many_close(struct mr_broker *broker)
{
    many_free(mr_container(broker, struct many, broker));
}

static enum mr_err copy_text(struct many *many, const char **text)
{
    struct mr_slice copy;
    if (*text == NULL)
        return MR_OK;
    MR_TRY(mr_arena_copy(&many->memory, mr_slice_str(*text), &copy));
    *text = copy.data;
    return MR_OK;
}

static enum mr_err copy_options(struct many *many, const struct mr_many_options *options)
{
    many->server = options->server;
    many->ask_ms = options->ask_ms > 0 ? options->ask_ms : ASK_MS;
    many->fan_ms = options->fan_ms > 0 ? options->fan_ms : FAN_MS;
    MR_TRY(copy_text(many, &many->server.token));
    MR_TRY(mr_arena_copy(&many->memory, options->server.namespace_, &many->server.namespace_));
    if (options->server.tls == NULL)
        return MR_OK;
    many->tls = *options->server.tls;
    many->server.tls = &many->tls;
    MR_TRY(copy_text(many, &many->tls.cert_file));
    MR_TRY(copy_text(many, &many->tls.key_file));
    MR_TRY(copy_text(many, &many->tls.ca_file));
    return copy_text(many, &many->tls.server_name);
}

static const struct mr_broker_ops broker_ops = {
    .submit = many_submit,
    .begun = many_begun,
    .lease_open = many_lease_open,
    .close = many_close,
};

enum mr_err mr_many_open(const struct mr_many_options *options, struct mr_broker **ret_broker,
                         struct mr_detail *detail)
{
    struct many *many = calloc(1, sizeof *many);
    if (many == NULL)
        return MR_NOMEM;
    many->broker.ops = &broker_ops;
    mr_lock_init(&many->lock);
    mr_list_init(&many->puts);
    mr_list_init(&many->fans);
    mr_list_init(&many->nodes);
    mr_timer_init(&many->tick, on_tick);
    atomic_store(&many->turn, mr_rand_below(mr_rand_of_thread(), ORIGINS_MAX));
    struct order order = {.many = many, .options = options, .detail = detail};
    enum mr_err err = copy_options(many, options);
    if (err == MR_OK)
        err = mr_rpc_new("mr-many", &mr_remote_limits, &many->rpc);
    if (err == MR_OK) {
        give_order(&order, first_servers);
        err = order.err;
    }
    if (err != MR_OK) {
        many_free(many);
        return err;
    }
    *ret_broker = &many->broker;
    return MR_OK;
}
