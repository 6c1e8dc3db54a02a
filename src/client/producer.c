/* SPDX-License-Identifier: Apache-2.0 */
#include "client/producer.h"

#include <stdlib.h>

#include "broker/many/many.h"
#include "timer/def.h"

#define SEND_PATH "/millrace.v1.Timers/Send"

enum {
    CALLS_MAX = 4, /* under way to a server: what comes meanwhile shares the next one */
    MESSAGE_BYTES = 1024 * 1024,        /* of a call, unless one flight has more */
    FLIGHT_BYTES_MAX = 3 * 1024 * 1024, /* of one flight of more than one operation */
    SILENT_MS = 5000,                   /* a server that did not answer is passed over so long */
    REQUEST_OPERATIONS = 1,             /* of TimerSendRequest */
    REQUEST_WAIT = 2,
    REQUEST_TIMEOUT = 3,
    RESPONSE_RESULTS = 1, /* of TimerSendResponse */
};
#define NO_SERVER SIZE_MAX

struct server {
    struct mr_broker *broker;
    struct mr_link waiting; /* of struct flight */
    size_t calls;           /* under way */
    mr_mono silent_until;   /* it did not answer; see SILENT_MS */
    bool listed, up;        /* it is one of the servers now, and has a connection */
    uint64_t hash;          /* of its address */
};

struct mr_producer {
    struct mr_timer_door *door;
    struct mr_broker *many;
    enum mr_affinity affinity;
    struct mr_clock *clock;
    int64_t answer_ms;
    size_t pending_max;
    _Atomic uint64_t version;
    _Atomic int64_t run_ms; /* planned time of the last run */
    _Atomic size_t pending; /* operations that are not answered */
    _Atomic size_t flights;
    struct mr_lock lock; /* over what follows */
    bool stopped;
    size_t turn;      /* the next flight's */
    size_t servers_n; /* that there are or were */
    struct server servers[MR_MANY_SERVERS_MAX];
};

struct flight {
    struct mr_link link;
    struct mr_producer *producer;
    struct mr_arena arena; /* of what it points to */
    struct mr_timer_operation *ops;
    size_t n, bytes;
    enum mr_timer_wait wait;
    struct mr_timer_result *results;
    mr_timer_done *done;
    void *arg;
    size_t at;        /* the server that has it */
    uint64_t tried;   /* bits of those that have had it */
    uint64_t key;     /* hash of its first timer */
    bool doubtful;    /* one of them may have accepted it */
    bool *is_settled; /* of each operation; NULL: none is. A server has said of it ... */
    struct mr_timer_result *settled; /* ... this, whatever others say of those that go with it */
    mr_mono end;                     /* MR_TIMER_APPLIED: it is waited for until then */
    struct mr_timer_sending sending; /* to a door */
};

/* One message to a server. */
struct call {
    struct mr_req_call req;
    struct server *server;
    struct mr_producer *producer;
    struct mr_link flights;
    size_t n; /* operations */
    uint8_t message[];
};

/* ---- life ----------------------------------------------------------------------------------- */

static struct server *server_add(struct mr_producer *p, struct mr_broker *broker, uint64_t hash)
{
    struct server *server = &p->servers[p->servers_n++];
    server->broker = broker;
    server->hash = hash;
    server->listed = server->up = true;
    mr_list_init(&server->waiting);
    return server;
}

enum mr_err mr_producer_new(const struct mr_producer_options *options,
                            struct mr_producer **ret_producer)
{
    struct mr_producer *p = calloc(1, sizeof *p);
    if (p == NULL)
        return MR_NOMEM;
    mr_assert(options->servers_n <= MR_MANY_SERVERS_MAX);
    p->door = options->door;
    p->many = options->many;
    p->affinity = options->affinity;
    p->clock = options->clock ? options->clock : mr_clock_system();
    p->answer_ms = options->answer_ms ? options->answer_ms : MR_PRODUCER_ANSWER_MS;
    p->pending_max = options->pending_max ? options->pending_max : MR_PRODUCER_PENDING_MAX;
    mr_lock_init(&p->lock);
    for (size_t i = 0; i < options->servers_n; i++)
        server_add(p, options->servers[i], i);
    *ret_producer = p;
    return MR_OK;
}

void mr_producer_free(struct mr_producer *producer)
{
    if (producer == NULL)
        return;
    struct mr_event never;
    mr_event_init(&never);
    while (atomic_load(&producer->flights) != 0) /* told of, and about to be freed */
        (void)mr_event_wait(&never, MR_NS_PER_MS);
    mr_lock_done(&producer->lock);
    free(producer);
}

/* What some server has said for good stands, whatever became of the rest. How many those are. */
static size_t restore_settled(struct flight *flight)
{
    size_t n = 0;
    for (size_t i = 0; flight->is_settled != NULL && i < flight->n; i++) {
        if (flight->is_settled[i]) {
            flight->results[i] = flight->settled[i];
            n++;
        }
    }
    return n;
}

/* Thread: any, without the lock. */
static void flight_end(struct flight *flight, enum mr_err err, const char *text)
{
    struct mr_producer *p = flight->producer;
    size_t settled = err != MR_OK ? restore_settled(flight) : 0;
    for (size_t i = 0; err != MR_OK && i < flight->n; i++) {
        struct mr_timer_result *result = &flight->results[i];
        if (settled > 0 && flight->is_settled[i])
            continue;
        result->err = err;
        result->unknown = flight->doubtful;
        (void)snprintf(result->why, sizeof result->why, "%.*s", MR_TIMER_WHY_MAX, text);
    }
    if (flight->done != NULL)
        flight->done(settled > 0 ? MR_OK : err, flight->results, flight->n, flight->arg);
    atomic_fetch_sub(&p->pending, flight->n);
    mr_arena_done(&flight->arena);
    free(flight);
    atomic_fetch_sub(&p->flights, 1);
}

static void flight_done(struct flight *flight, enum mr_err err)
{
    flight_end(flight, err, mr_err_text(err));
}

/* ---- the way in ----------------------------------------------------------------------------- */

static void make_id(mr_wall now, char text[MR_TIMER_ID_MAX + 1])
{
    struct mr_uuid uuid;
    mr_uuid_make(&uuid, now, mr_rand_of_thread());
    mr_uuid_format(&uuid, text);
}

static enum mr_err copy_definition(struct flight *flight, const struct mr_timer_op *op,
                                   struct mr_timer_operation *ret_op)
{
    const struct mr_timer_options *timer = op->timer;
    if (timer == NULL)
        return MR_INVALID;
    if (timer->headers_n > 0 && (timer->headers == NULL || timer->headers_n > MR_HEADERS_MAX))
        return MR_INVALID;
    if (mr_flat_size(&mr_flat_timer_definition, timer) > MR_PAYLOAD_HARD_MAX)
        return MR_TOO_BIG;
    return mr_flat_make(&mr_flat_timer_definition, timer, &flight->arena, &ret_op->definition);
}

static enum mr_err copy_op(struct flight *flight, const struct mr_timer_op *op, mr_wall now,
                           struct mr_timer_result *result, struct mr_timer_operation *ret_op)
{
    struct mr_producer *p = flight->producer;
    struct mr_arena *arena = &flight->arena;
    bool put = op->verb == MR_TIMER_PUT;
    *ret_op = (struct mr_timer_operation){
        .verb = op->verb,
        .version = mr_timer_version(&p->version, now, op->if_version),
        .if_version = op->if_version,
        .created_ms = !put             ? 0
                      : op->created_ms ? op->created_ms
                                       : mr_wall_ms(now),
        .planned_ms = op->verb == MR_TIMER_RUN ? mr_timer_run_ms(&p->run_ms, now) : op->planned_ms,
    };
    *result = (struct mr_timer_result){.version = ret_op->version};
    make_id(now, result->operation);
    if (put && op->id.len == 0)
        make_id(now, result->id);
    else if (put && op->id.len <= MR_TIMER_ID_MAX)
        memcpy(result->id, op->id.data, op->id.len);
    if ((unsigned)op->verb >= MR_TIMER_VERB_COUNT || op->id.len > MR_TIMER_ID_MAX)
        return MR_INVALID;
    if (put)
        MR_TRY(copy_definition(flight, op, ret_op));
    MR_TRY(mr_arena_copy(arena, put ? op->timer->app : op->app, &ret_op->app));
    MR_TRY(mr_arena_copy(arena, put ? op->timer->name : op->name, &ret_op->name));
    MR_TRY(mr_arena_copy(arena, mr_slice_str(result->operation), &ret_op->operation));
    return put ? mr_arena_copy(arena, mr_slice_str(result->id), &ret_op->id) : MR_OK;
}

static enum mr_err flight_fill(struct flight *flight, const struct mr_timer_op *ops)
{
    mr_wall now = mr_wall_now(flight->producer->clock);
    flight->ops = mr_arena_calloc(&flight->arena, flight->n, sizeof *flight->ops);
    flight->results = mr_arena_calloc(&flight->arena, flight->n, sizeof *flight->results);
    if (flight->ops == NULL || flight->results == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < flight->n; i++) {
        MR_TRY(copy_op(flight, &ops[i], now, &flight->results[i], &flight->ops[i]));
        size_t size = mr_flat_size(&mr_flat_timer_operation, &flight->ops[i]);
        flight->bytes += 8 + size;
    }
    return flight->n > 1 && flight->bytes > FLIGHT_BYTES_MAX ? MR_TOO_BIG : MR_OK;
}

/* ---- at a door ------------------------------------------------------------------------------ */

static void door_done(struct mr_timer_sending *sending)
{
    struct flight *flight = sending->arg;
    flight_done(flight, sending->err);
}

static void send_to_door(struct flight *flight)
{
    flight->sending = (struct mr_timer_sending){
        .ops = flight->ops,
        .n = flight->n,
        .wait = flight->wait,
        .wait_ms = MR_PRODUCER_APPLIED_MS,
        .results = flight->results,
        .done = door_done,
        .arg = flight,
    };
    mr_timer_door_send(flight->producer->door, &flight->sending);
}

/* ---- to servers ----------------------------------------------------------------------------- */

static void call_answered(struct mr_req *req);

static size_t entry_size(const struct mr_timer_operation *op)
{
    size_t size = mr_flat_size(&mr_flat_timer_operation, op);
    return mr_flat_head_size(size) + size;
}

static uint8_t *put_flight(const struct flight *flight, uint8_t *at)
{
    for (size_t i = 0; i < flight->n; i++) {
        const struct mr_timer_operation *op = &flight->ops[i];
        at = mr_flat_put_head(at, REQUEST_OPERATIONS, mr_flat_size(&mr_flat_timer_operation, op));
        at = mr_flat_write(&mr_flat_timer_operation, op, at);
    }
    return at;
}

static size_t flight_size(const struct flight *flight)
{
    size_t size = 0;
    for (size_t i = 0; i < flight->n; i++)
        size += entry_size(&flight->ops[i]);
    return size;
}

static struct flight *flight_of(struct mr_link *link)
{
    return mr_container(link, struct flight, link);
}

/* How many of those that wait go with the first one, and what they take up. Each that wants to know of the
 * effect goes alone. Lock. */
static size_t gather(const struct server *server, size_t *ret_bytes)
{
    size_t flights = 0, n = 0, bytes = 0;
    for (struct mr_link *link = server->waiting.next; link != &server->waiting; link = link->next) {
        const struct flight *flight = flight_of(link);
        size_t size = flight_size(flight);
        bool alone = flight->wait == MR_TIMER_APPLIED;
        if (flights > 0 && (alone || n + flight->n > MR_BATCH_MAX || bytes + size > MESSAGE_BYTES))
            break;
        flights++;
        n += flight->n;
        bytes += size;
        if (alone)
            break;
    }
    *ret_bytes = bytes;
    return flights;
}

/* The next message to the server; NULL: there is none to be sent now. Without memory those that wait for it
 * are moved to `failed`. Lock. */
static struct call *next_call(struct mr_producer *p, struct server *server, struct mr_link *failed)
{
    size_t bytes;
    if (server->calls == CALLS_MAX || mr_list_empty(&server->waiting))
        return NULL;
    size_t flights = gather(server, &bytes);
    struct call *call = malloc(sizeof *call + bytes + 2 * 12);
    if (call == NULL) {
        mr_list_splice_back(failed, &server->waiting);
        return NULL;
    }
    *call = (struct call){.req = {.req = {.op = MR_OP_CALL, .done = call_answered, .arg = call},
                                  .path = SEND_PATH,
                                  .timeout_ms = p->answer_ms},
                          .server = server,
                          .producer = p};
    mr_list_init(&call->flights);
    uint8_t *at = call->message;
    bool applied = false;
    for (size_t i = 0; i < flights; i++) {
        struct flight *flight = flight_of(server->waiting.next);
        mr_list_remove(&flight->link);
        mr_list_push_back(&call->flights, &flight->link);
        at = put_flight(flight, at);
        call->n += flight->n;
        applied = flight->wait == MR_TIMER_APPLIED;
    }
    at = mr_flat_put_varint(at, REQUEST_WAIT, applied ? MR_TIMER_APPLIED : MR_TIMER_DURABLE);
    if (applied) /* so that an answer comes before we give the server up */
        at = mr_flat_put_varint(at, REQUEST_TIMEOUT, (uint64_t)(p->answer_ms * 3 / 5));
    call->req.message = mr_slice_make(call->message, (size_t)(at - call->message));
    server->calls++;
    return call;
}

/* Sends what may be sent to this server. Without the lock. */
static void pump(struct mr_producer *p, struct server *server)
{
    struct mr_link failed;
    mr_list_init(&failed);
    for (;;) {
        mr_lock_enter(&p->lock);
        struct call *call = next_call(p, server, &failed);
        mr_lock_leave(&p->lock);
        if (call == NULL)
            break;
        mr_broker_submit(server->broker, &call->req.req);
    }
    while (!mr_list_empty(&failed)) {
        struct flight *flight = flight_of(failed.next);
        mr_list_remove(&flight->link);
        flight_done(flight, MR_NOMEM);
    }
}

/* Which servers there are by now. They have their places for good, as long as the engine has them. Lock. */
static void look_at_servers(struct mr_producer *p)
{
    struct mr_many_server now[MR_MANY_SERVERS_MAX];
    if (p->many == NULL)
        return;
    size_t n = mr_many_servers(p->many, now);
    for (size_t i = 0; i < p->servers_n; i++)
        p->servers[i].listed = false;
    for (size_t i = 0; i < n; i++) {
        size_t at = 0;
        while (at < p->servers_n && p->servers[at].broker != now[i].broker)
            at++;
        struct server *server =
            at < p->servers_n ? &p->servers[at] : server_add(p, now[i].broker, now[i].hash);
        server->listed = true;
        server->up = now[i].up;
    }
}

/* Of these the one whose turn it is, or the first for the flight. */
static size_t pick(struct mr_producer *p, const struct flight *flight, uint64_t among)
{
    size_t best = (size_t)__builtin_ctzll(among);
    if (p->affinity == MR_AFFINITY_NONE) {
        for (size_t n = p->turn++ % (size_t)__builtin_popcountll(among); n > 0; n--)
            among &= among - 1;
        return (size_t)__builtin_ctzll(among);
    }
    for (; among != 0; among &= among - 1) {
        size_t at = (size_t)__builtin_ctzll(among);
        if (mr_many_rank(flight->key, p->servers[at].hash) >
            mr_many_rank(flight->key, p->servers[best].hash))
            best = at;
    }
    return best;
}

/* A server that has not had the flight; those without a connection, and those that did not answer, are passed over while
 * there are others. NO_SERVER: all have had it. Lock. */
static size_t choose(struct mr_producer *p, const struct flight *flight)
{
    mr_mono now = mr_mono_now(p->clock);
    uint64_t any = 0, good = 0;
    look_at_servers(p);
    for (size_t i = 0; i < p->servers_n; i++) {
        const struct server *server = &p->servers[i];
        if (!server->listed || (flight->tried >> i & 1) != 0)
            continue;
        any |= 1ULL << i;
        if (server->up && server->silent_until.ns <= now.ns)
            good |= 1ULL << i;
    }
    return any != 0 ? pick(p, flight, good != 0 ? good : any) : NO_SERVER;
}

/* MR_CLOSED: nothing is sent any more; MR_UNAVAILABLE: there is nobody left to send it to. */
static enum mr_err wait_at(struct flight *flight, size_t at)
{
    struct mr_producer *p = flight->producer;
    mr_lock_enter(&p->lock);
    enum mr_err err = p->stopped ? MR_CLOSED : MR_OK;
    if (err == MR_OK && at == NO_SERVER) {
        at = choose(p, flight);
        err = at == NO_SERVER ? MR_UNAVAILABLE : MR_OK;
    }
    if (err == MR_OK) {
        flight->at = at;
        mr_list_push_back(&p->servers[at].waiting, &flight->link);
    }
    mr_lock_leave(&p->lock);
    return err;
}

/* To this server, NO_SERVER: to the one whose turn it is. MR_OK: it is on its way. */
static enum mr_err send_to(struct flight *flight, size_t at)
{
    struct mr_producer *p = flight->producer;
    enum mr_err err = wait_at(flight, at);
    if (err == MR_OK)
        pump(p, &p->servers[flight->at]);
    return err;
}

/* ---- answers -------------------------------------------------------------------------------- */

/* Another server may do better. */
static bool is_passing(enum mr_err err)
{
    return err == MR_UNAVAILABLE || err == MR_TIMEOUT || err == MR_DISK_FULL || err == MR_IO ||
           err == MR_BUSY || err == MR_QUEUE_FULL || err == MR_NOMEM || err == MR_CANCELLED ||
           err == MR_CLOSED || err == MR_IN_USE;
}

/* To the next one, unless all have had it. */
static void go_on(struct flight *flight, enum mr_err err, bool is_filled)
{
    flight->tried |= 1ULL << flight->at;
    enum mr_err sent = send_to(flight, NO_SERVER);
    if (sent == MR_UNAVAILABLE)
        flight_done(flight, is_filled ? MR_OK : err);
    else if (sent != MR_OK)
        flight_done(flight, sent);
}

/* Some go to the next server, and so all of them do: what is accepted here stays so. */
static void keep_settled(struct flight *flight)
{
    size_t n = flight->n;
    if (flight->is_settled == NULL) {
        flight->settled = mr_arena_calloc(&flight->arena, n, sizeof *flight->settled);
        flight->is_settled = flight->settled != NULL ? mr_arena_calloc(&flight->arena, n, 1) : NULL;
    }
    for (size_t i = 0; i < n; i++) {
        enum mr_err err = flight->results[i].err;
        bool is_late = flight->wait == MR_TIMER_APPLIED && err == MR_TIMEOUT;
        if (is_late || is_passing(err))
            continue;
        if (flight->is_settled == NULL) { /* without memory for what it was */
            flight->doubtful = true;
            continue;
        }
        flight->settled[i] = flight->results[i];
        flight->is_settled[i] = true;
    }
}

/* What the server said of each of its operations is in its results. */
static void settle(struct flight *flight)
{
    enum mr_err passing = MR_OK;
    bool late = false;
    (void)restore_settled(flight);
    for (size_t i = 0; i < flight->n; i++) {
        enum mr_err err = flight->results[i].err;
        bool durable = flight->wait == MR_TIMER_APPLIED && err == MR_TIMEOUT;
        late |= durable;
        if (!durable && is_passing(err))
            passing = err;
        flight->doubtful |= !durable && flight->results[i].unknown; /* by the server's own words */
        flight->results[i].unknown = durable || (is_passing(err) && flight->doubtful);
    }
    bool waits = late && mr_mono_now(flight->producer->clock).ns < flight->end.ns;
    enum mr_err sent = MR_OK;
    if (passing != MR_OK && flight->n > 1)
        keep_settled(flight);
    if (passing != MR_OK)
        go_on(flight, passing, true);
    else if (waits)
        sent = send_to(flight, flight->at); /* it knows them, and goes on waiting */
    else
        flight_done(flight, MR_OK);
    if (sent != MR_OK)
        flight_done(flight, sent);
}

/* Results of the flights, one behind the other. MR_FAILED: the server makes no sense. */
static enum mr_err read_results(struct call *call)
{
    struct mr_slice bytes = call->req.answer;
    size_t n;
    if (mr_flat_count(bytes, RESPONSE_RESULTS, &n) != MR_OK || n != call->n)
        return MR_FAILED;
    struct mr_link *link = call->flights.next;
    size_t at = 0;
    while (bytes.len > 0) {
        struct mr_flat_item item;
        if (mr_flat_next(&bytes, &item) != MR_OK)
            return MR_FAILED;
        if (item.number != RESPONSE_RESULTS || item.type != MR_FLAT_BYTES)
            continue;
        struct flight *flight = flight_of(link);
        if (mr_timer_result_decode(item.bytes, &flight->results[at]) != MR_OK)
            return MR_FAILED;
        if (++at == flight->n) {
            link = link->next;
            at = 0;
        }
    }
    return MR_OK;
}

/* The call is over: the server may have the next one. */
static void call_over(struct call *call, enum mr_err err)
{
    struct mr_producer *p = call->producer;
    mr_lock_enter(&p->lock);
    call->server->calls--;
    if (err == MR_TIMEOUT)
        call->server->silent_until = mr_mono_add_ms(mr_mono_now(p->clock), SILENT_MS);
    else if (err == MR_OK)
        call->server->silent_until = (mr_mono){0};
    mr_lock_leave(&p->lock);
    pump(p, call->server);
}

/* The server's broker's thread. */
static void call_answered(struct mr_req *req)
{
    struct call *call = req->arg;
    enum mr_err err = req->err;
    const char *text = call->req.detail.text;
    if (err == MR_OK)
        err = read_results(call);
    call_over(call, err);
    while (!mr_list_empty(&call->flights)) {
        struct flight *flight = flight_of(call->flights.next);
        mr_list_remove(&flight->link);
        if (err != MR_OK)
            flight->doubtful |= call->req.sent && is_passing(err);
        if (err == MR_OK)
            settle(flight);
        else if (is_passing(err))
            go_on(flight, err, false);
        else
            flight_end(flight, err, text[0] != '\0' ? text : mr_err_text(err));
    }
    mr_req_done(req);
    free(call);
}

/* ---- the whole ------------------------------------------------------------------------------ */

static bool admit(struct mr_producer *p, size_t n)
{
    if (atomic_fetch_add(&p->pending, n) + n <= p->pending_max)
        return true;
    atomic_fetch_sub(&p->pending, n);
    return false;
}

enum mr_err mr_producer_send(struct mr_producer *producer, const struct mr_timer_op *ops, size_t n,
                             enum mr_timer_wait wait, struct mr_timer_result *ret_ids,
                             mr_timer_done *done, void *arg)
{
    struct mr_producer *p = producer;
    if (n == 0 || n > MR_BATCH_MAX)
        return n == 0 ? MR_INVALID : MR_TOO_BIG;
    if (!admit(p, n))
        return MR_BUSY;
    struct flight *flight = calloc(1, sizeof *flight);
    if (flight == NULL) {
        atomic_fetch_sub(&p->pending, n);
        return MR_NOMEM;
    }
    atomic_fetch_add(&p->flights, 1);
    *flight = (struct flight){.producer = p, .n = n, .wait = wait};
    flight->end = mr_mono_add_ms(mr_mono_now(p->clock), MR_PRODUCER_APPLIED_MS);
    enum mr_err err = flight_fill(flight, ops);
    if (err == MR_OK)
        flight->key =
            mr_many_rank(mr_many_hash(flight->ops[0].app), mr_many_hash(flight->ops[0].name));
    if (err != MR_OK) { /* done is not called */
        flight->results = NULL;
        flight->n = 0;
        atomic_fetch_sub(&p->pending, n);
        flight_done(flight, MR_OK);
        return err;
    }
    flight->done = done;
    flight->arg = arg;
    if (ret_ids != NULL)
        memcpy(ret_ids, flight->results, n * sizeof *ret_ids);
    if (p->door != NULL) {
        send_to_door(flight);
        return MR_OK;
    }
    err = send_to(flight, NO_SERVER);
    if (err != MR_OK)
        flight_done(flight, err);
    return MR_OK;
}

void mr_producer_stop(struct mr_producer *producer)
{
    struct mr_producer *p = producer;
    struct mr_link all;
    if (p == NULL)
        return;
    mr_list_init(&all);
    mr_lock_enter(&p->lock);
    p->stopped = true;
    for (size_t i = 0; i < p->servers_n; i++)
        mr_list_splice_back(&all, &p->servers[i].waiting);
    mr_lock_leave(&p->lock);
    while (!mr_list_empty(&all)) {
        struct flight *flight = flight_of(all.next);
        mr_list_remove(&flight->link);
        flight_done(flight, MR_CLOSED);
    }
}
