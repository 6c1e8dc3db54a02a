/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See replica.h. The loop owns peers and calls. Others add to what is to be dropped, so that, the list of peers and the
 * list that is wanted stand under a lock; the loop alone changes the list of peers.
 */
#include "timer/replica.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/diag.h"
#include "wire/flat.h"

#define KEEP_PATH "/millrace.v1.Timers/Keep"

enum {
    LOOK_MS = 200,               /* what was applied is told so often */
    MESSAGE_BYTES = 1024 * 1024, /* of a call, unless one operation has more */
    GONE_MS = 3600 * 1000,       /* a server that has left for so long keeps what it keeps */
    DROPS_MAX = 100 * 1000,      /* of one server */
    ID_ROOM = MR_TIMER_ID_MAX + 1,
    ORIGIN_MAX = 512,
    REQUEST_ORIGIN = 1, /* of TimerKeepRequest */
    REQUEST_OPERATIONS = 2,
    REQUEST_GONE = 3,
};

struct mr_replica_peer {
    struct mr_link link;
    struct mr_replica *replica;
    struct mr_channel *channel;
    char address[MR_REPLICA_WHERE_MAX + 1];
    struct mr_detail why; /* it is not reached */
    bool is_listed;
    mr_mono left; /* since when it is not */
    size_t calls;
    struct mr_call *drop_call; /* NULL: none is under way; it says so many: */
    size_t dropping;
    struct mr_buf drops; /* ids, ID_ROOM bytes each. Lock */
};

struct mr_replica {
    struct mr_replica_options options;
    char origin[ORIGIN_MAX + 1];
    int64_t answer_ms;
    struct mr_rpc *rpc;
    struct mr_timer timer;
    struct mr_buf buf;      /* of a message */
    struct mr_link waiting; /* copyings, for somebody to be reached */
    bool stopped;
    struct mr_lock lock;  /* over what follows */
    struct mr_link peers; /* those that are listed first, in their order */
    char (*wanted)[MR_REPLICA_WHERE_MAX + 1];
    size_t wanted_n;
    bool is_wanted_new;
};

/* ---- messages --------------------------------------------------------------------------------- */

static enum mr_err put(struct mr_buf *buf, unsigned number, struct mr_slice bytes)
{
    size_t head = mr_flat_head_size(bytes.len);
    MR_TRY(mr_buf_reserve(buf, head + bytes.len));
    (void)mr_flat_put_head(buf->data + buf->len, number, bytes.len);
    buf->len += head;
    return mr_buf_append_slice(buf, bytes);
}

static enum mr_err begin_message(struct mr_replica *r)
{
    mr_buf_clear(&r->buf);
    return put(&r->buf, REQUEST_ORIGIN, mr_slice_str(r->origin));
}

/* From here on the call's closed says how it went. */
static enum mr_err send_message(struct mr_replica_peer *peer, const struct mr_call_ops *ops,
                                void *data, struct mr_call **ret_call)
{
    struct mr_replica *r = peer->replica;
    MR_TRY(mr_channel_call(peer->channel, KEEP_PATH, r->answer_ms, ops, data, ret_call));
    peer->calls++;
    if (mr_call_send(*ret_call, mr_buf_slice(&r->buf)) == MR_OK)
        mr_call_half_close(*ret_call);
    else
        mr_call_cancel(*ret_call);
    return MR_OK;
}

/* There is nothing in it. */
static void ignore_message(struct mr_call *call, struct mr_slice bytes)
{
    (void)call, (void)bytes;
}

/* ---- peers ------------------------------------------------------------------------------------ */

static struct mr_replica_peer *peer_at(struct mr_link *link)
{
    return mr_container(link, struct mr_replica_peer, link);
}

static void try_waiting(struct mr_replica *r);

static void changed(struct mr_channel *channel, bool up, const char *why, void *arg)
{
    struct mr_replica_peer *peer = arg;
    (void)channel;
    mr_detail_set(&peer->why, "%s", up ? "" : why);
    if (up)
        try_waiting(peer->replica);
}

static void peer_free(struct mr_replica_peer *peer)
{
    mr_channel_free(peer->channel);
    mr_buf_done(&peer->drops);
    free(peer);
}

/* NULL: there cannot be one; it is said once. */
static struct mr_replica_peer *peer_new(struct mr_replica *r, const char *address)
{
    struct mr_replica_peer *peer = calloc(1, sizeof *peer);
    struct mr_detail detail = {.text = ""};
    if (peer == NULL)
        return NULL;
    peer->replica = r;
    (void)snprintf(peer->address, sizeof peer->address, "%s", address);
    mr_detail_set(&peer->why, "not reached yet");
    struct mr_channel_options options = {.address = peer->address,
                                         .tls = r->options.tls,
                                         .authorization = r->options.authorization,
                                         .changed = changed,
                                         .arg = peer};
    enum mr_err err = mr_channel_new(r->rpc, &options, &peer->channel, &detail);
    if (err == MR_OK)
        return peer;
    mr_diag(MR_DIAG_WARN, "timer.replica", "peer=%s error=\"%s\" ignoring=the-peer", address,
            detail.text[0] != '\0' ? detail.text : mr_err_text(err));
    peer_free(peer);
    return NULL;
}

/* Lock. */
static struct mr_replica_peer *find_peer(struct mr_replica *r, struct mr_slice address)
{
    for (struct mr_link *at = r->peers.next; at != &r->peers; at = at->next)
        if (mr_slice_equal(mr_slice_str(peer_at(at)->address), address))
            return peer_at(at);
    return NULL;
}

static void remove_those_that_left(struct mr_replica *r, mr_mono now)
{
    struct mr_link *next;
    for (struct mr_link *at = r->peers.next; at != &r->peers; at = next) {
        struct mr_replica_peer *peer = peer_at(at);
        bool is_late = now.ns - peer->left.ns > GONE_MS * MR_NS_PER_MS;
        next = at->next;
        if (peer->is_listed || peer->calls > 0 || (peer->drops.len > 0 && !is_late))
            continue;
        mr_list_remove(&peer->link);
        peer_free(peer);
    }
}

/* Lock. The last one comes to the front first. */
static void list_peers(struct mr_replica *r, mr_mono now)
{
    for (struct mr_link *at = r->peers.next; at != &r->peers; at = at->next) {
        if (peer_at(at)->is_listed)
            peer_at(at)->left = now;
        peer_at(at)->is_listed = false;
    }
    for (size_t i = r->wanted_n; i-- > 0;) {
        struct mr_replica_peer *peer = find_peer(r, mr_slice_str(r->wanted[i]));
        if (peer != NULL)
            mr_list_remove(&peer->link);
        else
            peer = peer_new(r, r->wanted[i]);
        if (peer == NULL)
            continue;
        peer->is_listed = true;
        mr_list_push_front(&r->peers, &peer->link);
    }
}

static void look_at_list(struct mr_replica *r)
{
    mr_mono now = mr_rpc_now(r->rpc);
    mr_lock_enter(&r->lock);
    if (r->is_wanted_new)
        list_peers(r, now);
    r->is_wanted_new = false;
    remove_those_that_left(r, now);
    mr_lock_leave(&r->lock);
}

void mr_replica_set_peers(struct mr_replica *replica, const char *const *addresses, size_t n)
{
    n = n < MR_REPLICA_PEERS_MAX ? n : MR_REPLICA_PEERS_MAX;
    mr_lock_enter(&replica->lock);
    replica->wanted_n = 0;
    for (size_t i = 0; i < n; i++)
        if (strlen(addresses[i]) <= MR_REPLICA_WHERE_MAX)
            (void)snprintf(replica->wanted[replica->wanted_n++], MR_REPLICA_WHERE_MAX + 1, "%s",
                           addresses[i]);
    replica->is_wanted_new = true;
    mr_lock_leave(&replica->lock);
}

/* ---- what need not be kept -------------------------------------------------------------------- */

/* Lock. One that is not told is applied once more at the end of our life, which changes nothing. */
static void add_drop(struct mr_replica_peer *peer, struct mr_slice id)
{
    char entry[ID_ROOM] = "";
    if (id.len > MR_TIMER_ID_MAX || peer->drops.len >= (size_t)DROPS_MAX * ID_ROOM)
        return;
    memcpy(entry, id.data, id.len);
    if (mr_buf_append(&peer->drops, entry, sizeof entry) != MR_OK)
        mr_diag(MR_DIAG_DEBUG, "timer.replica", "drop=%s ignoring", mr_err_name(MR_NOMEM));
}

void mr_replica_drop(struct mr_replica *replica, struct mr_slice where, struct mr_slice id)
{
    mr_lock_enter(&replica->lock);
    struct mr_replica_peer *peer = find_peer(replica, where);
    if (peer != NULL)
        add_drop(peer, id);
    mr_lock_leave(&replica->lock);
}

static void drop_closed(struct mr_call *call, int status, struct mr_slice text)
{
    struct mr_replica_peer *peer = mr_call_data(call);
    size_t bytes = peer->dropping * ID_ROOM;
    (void)text;
    peer->calls--;
    peer->drop_call = NULL;
    if (status != MR_RPC_OK) /* it is told again */
        return;
    mr_lock_enter(&peer->replica->lock);
    memmove(peer->drops.data, peer->drops.data + bytes, peer->drops.len - bytes);
    peer->drops.len -= bytes;
    mr_lock_leave(&peer->replica->lock);
}

static const struct mr_call_ops drop_ops = {.message = ignore_message, .closed = drop_closed};

/* Lock. */
static enum mr_err write_drops(struct mr_replica_peer *peer)
{
    struct mr_replica *r = peer->replica;
    size_t n = peer->drops.len / ID_ROOM;
    peer->dropping = n < MR_BATCH_MAX ? n : MR_BATCH_MAX;
    MR_TRY(begin_message(r));
    for (size_t i = 0; i < peer->dropping; i++)
        MR_TRY(
            put(&r->buf, REQUEST_GONE, mr_slice_str((const char *)peer->drops.data + i * ID_ROOM)));
    return MR_OK;
}

static void tell_drops(struct mr_replica_peer *peer)
{
    if (peer->drop_call != NULL || peer->why.text[0] != '\0')
        return;
    mr_lock_enter(&peer->replica->lock);
    enum mr_err err = peer->drops.len > 0 ? write_drops(peer) : MR_EMPTY;
    mr_lock_leave(&peer->replica->lock);
    if (err == MR_OK && send_message(peer, &drop_ops, peer, &peer->drop_call) != MR_OK)
        peer->drop_call = NULL;
}

static void look(struct mr_timer *timer, void *arg)
{
    struct mr_replica *r = mr_container(timer, struct mr_replica, timer);
    look_at_list(r);
    for (struct mr_link *at = r->peers.next; at != &r->peers; at = at->next)
        tell_drops(peer_at(at));
    try_waiting(r);
    mr_rpc_timer_start(arg, timer, mr_mono_add_ms(mr_rpc_now(arg), LOOK_MS));
}

/* ---- copies ----------------------------------------------------------------------------------- */

static void end_copying(struct mr_replica_copying *k, enum mr_err err)
{
    k->err = err;
    k->done(k);
}

static enum mr_err write_copies(struct mr_replica_copying *k)
{
    struct mr_replica *r = k->replica;
    MR_TRY(begin_message(r));
    k->sending = 0;
    for (size_t i = k->sent; i < k->n; i++) {
        if (k->sending > 0 && r->buf.len + k->operations[i].len > MESSAGE_BYTES)
            break;
        MR_TRY(put(&r->buf, REQUEST_OPERATIONS, k->operations[i]));
        k->sending++;
    }
    return MR_OK;
}

static const struct mr_call_ops copy_ops;

static enum mr_err send_copies(struct mr_replica_copying *k)
{
    MR_TRY(write_copies(k));
    return send_message(k->peer, &copy_ops, k, &k->call);
}

/* Listed, the i-th; NULL: there are not so many. */
static struct mr_replica_peer *listed(struct mr_replica *r, size_t i)
{
    struct mr_link *at = r->peers.next;
    for (; at != &r->peers && i > 0; i--)
        at = at->next;
    return at != &r->peers && peer_at(at)->is_listed ? peer_at(at) : NULL;
}

static void say_why_not(struct mr_replica_copying *k, enum mr_err err, struct mr_slice text)
{
    const char *why = k->peer->why.text[0] != '\0' ? k->peer->why.text : mr_err_text(err);
    if (text.len > 0)
        mr_detail_set(&k->detail, "--replicas 1: no other server keeps a copy; %s: %.*s",
                      k->peer->address, (int)text.len, (const char *)text.data);
    else
        mr_detail_set(&k->detail, "--replicas 1: no other server keeps a copy; %s: %s",
                      k->peer->address, why);
}

static void try_next(struct mr_replica_copying *k)
{
    while ((k->peer = listed(k->replica, k->tried)) != NULL) {
        k->tried++;
        k->sent = 0;
        enum mr_err err = send_copies(k);
        k->was_sent |= err == MR_OK;
        if (err == MR_OK)
            return;
        say_why_not(k, err, (struct mr_slice){0});
    }
    if (k->tried == 0)
        mr_detail_set(&k->detail, "--replicas 1: there is no other server to keep a copy");
    bool may_wait = k->tried > 0 && !k->was_sent && mr_rpc_now(k->replica->rpc).ns < k->until.ns;
    if (may_wait)
        mr_list_push_back(&k->replica->waiting, &k->link);
    else
        end_copying(k, MR_UNAVAILABLE);
}

/* Each once: what still finds nobody, and has time, waits again. */
static void try_waiting(struct mr_replica *r)
{
    struct mr_link all;
    mr_list_init(&all);
    mr_list_splice_back(&all, &r->waiting);
    for (struct mr_link *at; (at = mr_list_pop_front(&all)) != NULL;) {
        struct mr_replica_copying *k = mr_container(at, struct mr_replica_copying, link);
        k->tried = 0;
        try_next(k);
    }
}

/* What it may have of them is of no use. One that has refused a message may have kept some of it before that. */
static void give_up_peer(struct mr_replica_copying *k, bool is_doubtful)
{
    size_t n = k->sent + k->sending < k->n ? k->sent + k->sending : k->n;
    k->is_doubtful |= is_doubtful;
    mr_lock_enter(&k->replica->lock);
    for (size_t i = 0; i < n; i++)
        add_drop(k->peer, k->ids[i]);
    mr_lock_leave(&k->replica->lock);
}

static void copy_closed(struct mr_call *call, int status, struct mr_slice text)
{
    struct mr_replica_copying *k = mr_call_data(call);
    bool is_refused = mr_call_metadata(call, "millrace-code").len > 0;
    k->call = NULL;
    k->peer->calls--;
    if (status == MR_RPC_OK) {
        k->sent += k->sending;
        if (k->sent < k->n && send_copies(k) == MR_OK)
            return;
    }
    if (status == MR_RPC_OK && k->sent == k->n) {
        (void)snprintf(k->where, sizeof k->where, "%s", k->peer->address);
        end_copying(k, MR_OK);
        return;
    }
    give_up_peer(k, status != MR_RPC_OK && !is_refused);
    say_why_not(k, status == MR_RPC_DEADLINE ? MR_TIMEOUT : MR_UNAVAILABLE, text);
    if (k->replica->stopped)
        end_copying(k, MR_CLOSED);
    else
        try_next(k);
}

static const struct mr_call_ops copy_ops = {.message = ignore_message, .closed = copy_closed};

static void begin_copying(struct mr_msg *msg, void *receiver)
{
    struct mr_replica_copying *k = mr_container(msg, struct mr_replica_copying, msg);
    (void)receiver;
    if (k->replica->stopped) {
        end_copying(k, MR_CLOSED);
        return;
    }
    k->until = mr_mono_add_ms(mr_rpc_now(k->replica->rpc), k->replica->answer_ms);
    look_at_list(k->replica);
    try_next(k);
}

void mr_replica_copy(struct mr_replica *replica, struct mr_replica_copying *copying)
{
    copying->replica = replica;
    copying->tried = 0;
    copying->was_sent = copying->is_doubtful = false;
    mr_list_init(&copying->link);
    copying->detail.text[0] = '\0';
    copying->msg.deliver = begin_copying;
    mr_rpc_post(replica->rpc, &copying->msg);
}

/* ---- life ------------------------------------------------------------------------------------- */

struct order {
    struct mr_msg msg;
    struct mr_replica *replica;
    struct mr_event done;
};

static void give_order(struct mr_replica *r, void (*deliver)(struct mr_msg *msg, void *receiver))
{
    struct order order = {.msg.deliver = deliver, .replica = r};
    mr_event_init(&order.done);
    mr_rpc_post(r->rpc, &order.msg);
    mr_event_wait(&order.done, INT64_MAX);
}

static void begin(struct mr_msg *msg, void *receiver)
{
    struct order *order = mr_container(msg, struct order, msg);
    look(&order->replica->timer, receiver);
    mr_event_set(&order->done);
}

static void stop(struct mr_msg *msg, void *receiver)
{
    struct order *order = mr_container(msg, struct order, msg);
    struct mr_replica *r = order->replica;
    r->stopped = true;
    mr_rpc_timer_stop(receiver, &r->timer);
    for (struct mr_link *at; (at = mr_list_pop_front(&r->waiting)) != NULL;)
        end_copying(mr_container(at, struct mr_replica_copying, link), MR_CLOSED);
    mr_event_set(&order->done);
}

enum mr_err mr_replica_new(const struct mr_replica_options *options,
                           struct mr_replica **ret_replica)
{
    struct mr_replica *r = calloc(1, sizeof *r);
    if (r == NULL)
        return MR_NOMEM;
    r->wanted = calloc(MR_REPLICA_PEERS_MAX, sizeof *r->wanted);
    r->options = *options;
    (void)snprintf(r->origin, sizeof r->origin, "%s", options->origin);
    r->answer_ms = options->answer_ms > 0 ? options->answer_ms : MR_REPLICA_ANSWER_MS;
    mr_list_init(&r->peers);
    mr_list_init(&r->waiting);
    mr_lock_init(&r->lock);
    mr_timer_init(&r->timer, look);
    enum mr_err err = r->wanted != NULL ? mr_rpc_new("mr-replica", NULL, &r->rpc) : MR_NOMEM;
    if (err != MR_OK) {
        mr_lock_done(&r->lock);
        free(r->wanted);
        free(r);
        return err;
    }
    give_order(r, begin);
    *ret_replica = r;
    return MR_OK;
}

/* With its channel each peer's calls are closed. */
void mr_replica_free(struct mr_replica *replica)
{
    if (replica == NULL)
        return;
    give_order(replica, stop);
    for (struct mr_link *at; (at = mr_list_pop_front(&replica->peers)) != NULL;)
        peer_free(peer_at(at));
    mr_rpc_free(replica->rpc);
    mr_buf_done(&replica->buf);
    mr_lock_done(&replica->lock);
    free(replica->wanted);
    free(replica);
}
