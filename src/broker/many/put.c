/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tasks. A request goes to one server as it is, unless its tasks must go to certain ones: then each server gets those
 * that are its own, by the servers that are there when it is sent. A share that was certainly not accepted goes to the next server, once around; when there is no server
 * it waits for one. One that may have been accepted is answered: its fate is unknown, and nobody else gets it.
 */
#include "broker/many/internal.h"

/* A request on its way. */
struct batch {
    struct mr_req_enqueue *outer;
    size_t pending;  /* shares */
    enum mr_err err; /* of those that failed; MR_OK: none did */
    bool any_ok;
};

/* What goes to one server. */
struct put {
    struct mr_link link; /* while it waits */
    struct many *many;
    struct batch *batch;
    struct mr_req_enqueue inner;
    uint64_t key;   /* 0: any server will do */
    uint64_t *keys; /* of each task, where they are not the same; NULL: they are */
    uint64_t tried; /* bits of servers */
    mr_mono end;    /* it waits until then */
    struct origin *origin;
    size_t *places; /* of its tasks in the request; NULL: they are all of them */
};

static void put_send(struct put *put);
static bool must_split(const struct put *put, uint64_t among);
static void put_split(struct put *put, uint64_t among);
static struct put *put_rest(struct put *put);

/* ---- answers -------------------------------------------------------------------------------- */

static void put_finish(struct put *put, enum mr_err err)
{
    struct batch *batch = put->batch;
    struct mr_req_enqueue *outer = batch->outer;
    for (size_t i = 0; put->places != NULL && i < put->inner.n; i++) {
        outer->results[put->places[i]] = put->inner.results[i];
        if (err != MR_OK)
            outer->results[put->places[i]].err = err;
    }
    for (size_t i = 0; put->places == NULL && err != MR_OK && i < outer->n; i++)
        outer->results[i].err = err;
    outer->sent |= put->inner.sent;
    batch->any_ok |= err == MR_OK;
    batch->err = err != MR_OK ? err : batch->err;
    if (--batch->pending > 0)
        return;
    /* Where one share was carried out the request was, and the others say for themselves what they are. */
    mr_req_answer(&outer->req, batch->any_ok ? MR_OK : batch->err);
}

static bool has_no_room(enum mr_err err)
{
    return err == MR_DISK_FULL || err == MR_BUSY || err == MR_NOMEM;
}

/* Whether the server has certainly taken none of it, and another one may. */
static bool may_go_on(const struct put *put)
{
    enum mr_err err = put->inner.req.err;
    if (err == MR_UNAVAILABLE || err == MR_CLOSED)
        return !put->inner.sent;
    return has_no_room(err);
}

/* Those that there was no room for go on to the next server, if there is one. */
static void put_answered(struct put *put)
{
    struct many *many = put->many;
    bool others = (live_origins(many) & ~put->tried) != 0 && !many->closing;
    struct put *rest = others ? put_rest(put) : NULL;
    if (rest != NULL)
        put_send(rest);
    else
        put_finish(put, MR_OK);
}

static void put_done(struct mr_req *req)
{
    struct put *put = req->arg;
    struct many *many = put->many;
    enum mr_err err = req->err;
    mr_req_done(req);
    put->tried |= 1ULL << put->origin->index;
    bool others = (live_origins(many) & ~put->tried) != 0;
    if (err == MR_OK)
        put_answered(put);
    else if (many->closing || !may_go_on(put))
        put_finish(put, many->closing && err == MR_UNAVAILABLE ? MR_CLOSED : err);
    else if (others || err == MR_UNAVAILABLE || err == MR_CLOSED)
        put_send(put);
    else
        put_finish(put, err);
}

/* ---- sending -------------------------------------------------------------------------------- */

static void put_wait(struct put *put)
{
    mr_list_push_back(&put->many->puts, &put->link);
    put->tried = 0;
    many_tick_soon(put->many);
}

static void put_send(struct put *put)
{
    struct many *many = put->many;
    uint64_t among = live_origins(many) & ~put->tried;
    if (among != 0 && must_split(put, among)) {
        put_split(put, among);
        return;
    }
    put->origin = put->key != 0 ? origin_for(many, among, put->key) : origin_in_turn(many, among);
    if (put->origin == NULL) {
        put_wait(put);
        return;
    }
    put->inner.req = (struct mr_req){.op = MR_OP_ENQUEUE, .done = put_done, .arg = put};
    put->inner.sent = false;
    mr_broker_submit(put->origin->broker, &put->inner.req);
}

void puts_go_on(struct many *many)
{
    struct mr_link all;
    int64_t now_ns = mr_rpc_now(many->rpc).ns;
    mr_list_init(&all);
    mr_list_splice_back(&all, &many->puts);
    for (struct mr_link *link; (link = mr_list_pop_front(&all)) != NULL;) {
        struct put *put = mr_container(link, struct put, link);
        if (live_origins(many) == 0 && now_ns >= put->end.ns)
            put_finish(put, MR_UNAVAILABLE);
        else
            put_send(put);
    }
}

void puts_fail(struct many *many, enum mr_err err)
{
    for (struct mr_link *link; (link = mr_list_pop_front(&many->puts)) != NULL;)
        put_finish(mr_container(link, struct put, link), err);
}

/* ---- requests ------------------------------------------------------------------------------- */

static struct put *put_new(struct many *many, struct batch *batch, uint64_t key)
{
    struct mr_req_enqueue *outer = batch->outer;
    struct put *put = mr_arena_calloc(&outer->req.arena, 1, sizeof *put);
    if (put == NULL)
        return NULL;
    mr_list_init(&put->link);
    put->many = many;
    put->batch = batch;
    put->key = key;
    int64_t away_ms = many->server.away_ms > 0 ? many->server.away_ms : AWAY_MS;
    put->end = mr_mono_add_ms(mr_rpc_now(many->rpc), away_ms);
    put->inner.tasks = outer->tasks;
    put->inner.carried = outer->carried;
    put->inner.n = outer->n;
    put->inner.results = outer->results;
    put->inner.inner = outer->inner;
    return put;
}

/* Whether its tasks have different servers now. */
static bool must_split(const struct put *put, uint64_t among)
{
    for (size_t i = 1; put->keys != NULL && i < put->inner.n; i++)
        if (put->keys[i] == 0 || put->keys[0] == 0 ||
            origin_for(put->many, among, put->keys[i]) !=
                origin_for(put->many, among, put->keys[0]))
            return true;
    return false;
}

/* A put for up to n tasks of another one, without any yet. */
static struct put *put_of_share(const struct put *whole, uint64_t key, size_t n)
{
    struct batch *batch = whole->batch;
    struct mr_arena *arena = &batch->outer->req.arena;
    struct put *put = put_new(whole->many, batch, key);
    struct mr_task_options *tasks = mr_arena_calloc(arena, n, sizeof *tasks);
    struct mr_enqueue_result *results = mr_arena_calloc(arena, n, sizeof *results);
    struct mr_task *carried =
        batch->outer->carried != NULL ? mr_arena_calloc(arena, n, sizeof *carried) : NULL;
    size_t *places = mr_arena_calloc(arena, n, sizeof *places);
    uint64_t *keys = key != 0 ? mr_arena_calloc(arena, n, sizeof *keys) : NULL;
    if (put == NULL || tasks == NULL || results == NULL || places == NULL ||
        (batch->outer->carried != NULL && carried == NULL) || (key != 0 && keys == NULL))
        return NULL;
    put->inner.tasks = tasks;
    put->inner.carried = carried;
    put->inner.results = results;
    put->inner.n = 0;
    put->places = places;
    put->keys = keys;
    put->end = whole->end;
    put->tried = whole->tried;
    return put;
}

static void share_add(struct put *put, const struct put *whole, size_t i)
{
    const struct mr_req_enqueue *outer = put->batch->outer;
    size_t at = put->inner.n++, place = whole->places != NULL ? whole->places[i] : i;
    memcpy((struct mr_task_options *)put->inner.tasks + at, &outer->tasks[place],
           sizeof *outer->tasks);
    if (outer->carried != NULL)
        memcpy((struct mr_task *)put->inner.carried + at, &outer->carried[place],
               sizeof *outer->carried);
    if (put->keys != NULL)
        put->keys[at] = whole->keys != NULL ? whole->keys[i] : whole->key;
    put->places[at] = place;
}

/* Of what was answered, those that there was no room for; the others have their answers. It is answered in the place of the whole.
 * NULL: there are none, or no memory for them. */
static struct put *put_rest(struct put *put)
{
    struct mr_enqueue_result *results = put->batch->outer->results;
    const struct mr_req_enqueue *inner = &put->inner;
    size_t n = 0;
    for (size_t i = 0; i < inner->n; i++)
        n += has_no_room(inner->results[i].err);
    struct put *rest = n > 0 ? put_of_share(put, put->key, n) : NULL;
    for (size_t i = 0; rest != NULL && i < inner->n; i++) {
        results[put->places != NULL ? put->places[i] : i] = inner->results[i];
        if (!has_no_room(inner->results[i].err))
            continue;
        rest->inner.results[rest->inner.n] = inner->results[i];
        share_add(rest, put, i);
    }
    put->batch->any_ok |= rest != NULL;
    return rest;
}

static enum mr_err make_shares(struct put *whole, uint64_t among,
                               struct put *shares[ORIGINS_MAX + 1])
{
    for (size_t i = 0; i < whole->inner.n; i++) {
        uint64_t key = whole->keys[i];
        size_t at = key != 0 ? origin_for(whole->many, among, key)->index : ORIGINS_MAX;
        if (shares[at] == NULL)
            shares[at] = put_of_share(whole, key, whole->inner.n - i);
        if (shares[at] == NULL)
            return MR_NOMEM;
        share_add(shares[at], whole, i);
    }
    return MR_OK;
}

/* The shares are answered in its place. Should the server of one die before it has it, that one is split again. */
static void put_split(struct put *put, uint64_t among)
{
    struct put *shares[ORIGINS_MAX + 1] = {0};
    enum mr_err err = make_shares(put, among, shares);
    if (err != MR_OK) {
        put_finish(put, err);
        return;
    }
    put->batch->pending--;
    for (size_t i = 0; i <= ORIGINS_MAX; i++)
        put->batch->pending += shares[i] != NULL;
    for (size_t i = 0; i <= ORIGINS_MAX; i++)
        if (shares[i] != NULL)
            put_send(shares[i]);
}

/* All together, if none of them must go somewhere or all must go to the same place. */
static bool is_one(const uint64_t *keys, size_t n)
{
    for (size_t i = 1; i < n; i++)
        if (keys[i] != keys[0])
            return false;
    return true;
}

static uint64_t key_at(const struct mr_req_enqueue *outer, size_t i)
{
    struct mr_task_options carried = {0};
    if (outer->carried != NULL)
        carried.id = outer->carried[i].id;
    return key_of(outer->carried != NULL ? &carried : &outer->tasks[i]);
}

static enum mr_err make_put(struct many *many, struct mr_req_enqueue *outer, struct put **ret_put)
{
    struct batch *batch = mr_arena_calloc(&outer->req.arena, 1, sizeof *batch);
    uint64_t *keys = mr_arena_calloc(&outer->req.arena, outer->n + 1, sizeof *keys);
    if (batch == NULL || keys == NULL)
        return MR_NOMEM;
    batch->outer = outer;
    batch->pending = 1;
    for (size_t i = 0; i < outer->n; i++)
        keys[i] = key_at(outer, i);
    struct put *put = put_new(many, batch, keys[0]);
    if (put == NULL)
        return MR_NOMEM;
    put->keys = is_one(keys, outer->n) ? NULL : keys;
    *ret_put = put;
    return MR_OK;
}

void begin_enqueue(struct many *many, struct mr_req *req)
{
    struct mr_req_enqueue *outer = mr_container(req, struct mr_req_enqueue, req);
    struct put *put;
    enum mr_err err = outer->n > MR_BATCH_MAX ? MR_TOO_BIG : make_put(many, outer, &put);
    outer->sent = false;
    for (size_t i = 0; err == MR_OK && i < outer->n; i++)
        outer->results[i] = (struct mr_enqueue_result){.err = MR_OK};
    if (err != MR_OK)
        mr_req_answer(req, err);
    else
        put_send(put);
}
