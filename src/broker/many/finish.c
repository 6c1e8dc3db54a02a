/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finishes go where the task was taken, whatever has become of that server's place in the list. Those that do not say where
 * (of another process, by a receipt) are asked of all servers that are there: who has the task decides. Where none of them has
 * it, a server that is away may.
 */
#include <stdlib.h>

#include "broker/many/internal.h"

struct finishing {
    struct mr_req_finish *outer;
    size_t pending;
    enum mr_err err; /* of the last share that failed as a whole */
    bool any_ok;
};

/* What goes to one server. */
struct share {
    struct mr_req_finish inner;
    struct finishing *finishing;
    bool is_guess; /* others have got the same */
    size_t *places;
};

/* Of the answers to a guess the one that says most. */
static enum mr_err better(enum mr_err a, enum mr_err b)
{
    if (a == MR_OK || b == MR_NOT_FOUND)
        return a;
    if (b == MR_OK || a == MR_NOT_FOUND)
        return b;
    return b == MR_STALE ? b : a;
}

static void share_done(struct mr_req *req)
{
    struct share *share = req->arg;
    struct finishing *finishing = share->finishing;
    struct mr_req_finish *outer = finishing->outer;
    enum mr_err err = req->err;
    for (size_t i = 0; i < share->inner.n; i++) {
        enum mr_err *to = &outer->errs[share->places[i]];
        enum mr_err one = err != MR_OK ? err : share->inner.errs[i];
        *to = share->is_guess ? better(*to, one) : one;
    }
    mr_req_done(req);
    finishing->any_ok |= err == MR_OK;
    finishing->err = err != MR_OK ? err : finishing->err;
    if (--finishing->pending == 0)
        mr_req_answer(&outer->req, finishing->any_ok ? MR_OK : finishing->err);
}

/* Items whose origin is this one; NULL: of no known one, for a server that may have them. */
static size_t count_of(const struct many *many, const struct mr_req_finish *outer,
                       const struct origin *origin)
{
    size_t n = 0;
    for (size_t i = 0; i < outer->n; i++)
        n += outer->items[i].ref != 0 ? origin_of(many, outer->items[i].epoch) == origin
                                      : origin == NULL;
    return n;
}

static struct share *share_new(struct many *many, struct finishing *finishing,
                               const struct origin *origin, size_t n)
{
    struct mr_req_finish *outer = finishing->outer;
    bool has_gaps = (listed_origins(many) & ~up_origins(many)) != 0;
    struct mr_arena *arena = &outer->req.arena;
    struct share *share = mr_arena_calloc(arena, 1, sizeof *share);
    struct mr_finish *items = mr_arena_calloc(arena, n, sizeof *items);
    enum mr_err *errs = mr_arena_calloc(arena, n, sizeof *errs);
    size_t *places = mr_arena_calloc(arena, n, sizeof *places);
    if (share == NULL || items == NULL || errs == NULL || places == NULL)
        return NULL;
    size_t at = 0;
    for (size_t i = 0; i < outer->n; i++) {
        const struct mr_finish *item = &outer->items[i];
        bool ours = item->ref != 0 ? origin_of(many, item->epoch) == origin : origin == NULL;
        if (!ours)
            continue;
        items[at] = *item;
        items[at].epoch = own_epoch(item->epoch);
        if (origin == NULL)
            items[at].ref = 0;
        outer->errs[i] = has_gaps ? MR_UNAVAILABLE : MR_NOT_FOUND; /* until somebody has it */
        places[at++] = i;
    }
    share->finishing = finishing;
    share->is_guess = origin == NULL;
    share->places = places;
    share->inner = (struct mr_req_finish){
        .req = {.op = MR_OP_FINISH, .done = share_done, .arg = share},
        .items = items,
        .n = n,
        .errs = errs,
        .only_results = outer->only_results,
    };
    return share;
}

/* A share and where it goes. */
struct sending {
    struct share *share;
    struct origin *origin;
};

static enum mr_err add_share(struct many *many, struct finishing *finishing,
                             const struct origin *from, struct origin *to, struct sending *sending)
{
    size_t n = count_of(many, finishing->outer, from);
    if (n == 0)
        return MR_OK;
    struct share *share = share_new(many, finishing, from, n);
    if (share == NULL)
        return MR_NOMEM;
    sending[finishing->pending++] = (struct sending){share, to};
    return MR_OK;
}

static enum mr_err make_shares(struct many *many, struct finishing *finishing,
                               struct sending *sending)
{
    for (size_t i = 0; i < many->origins_n; i++)
        MR_TRY(add_share(many, finishing, many->origins[i], many->origins[i], sending));
    for (uint64_t up = up_origins(many); up != 0; up &= up - 1)
        MR_TRY(add_share(many, finishing, NULL, many->origins[__builtin_ctzll(up)], sending));
    return MR_OK;
}

void begin_finish(struct many *many, struct mr_req *req)
{
    struct mr_req_finish *outer = mr_container(req, struct mr_req_finish, req);
    struct finishing *finishing = mr_arena_calloc(&req->arena, 1, sizeof *finishing);
    struct sending sending[2 * ORIGINS_MAX];
    enum mr_err err = finishing == NULL ? MR_NOMEM : outer->n > MR_BATCH_MAX ? MR_TOO_BIG : MR_OK;
    if (err == MR_OK) {
        finishing->outer = outer;
        for (size_t i = 0; i < outer->n; i++)
            outer->errs[i] = MR_UNAVAILABLE; /* of what nobody can be asked for */
        err = make_shares(many, finishing, sending);
    }
    if (err != MR_OK || finishing->pending == 0) {
        bool nobody = err == MR_OK && outer->n > 0;
        mr_req_answer(req, nobody ? MR_UNAVAILABLE : err);
        return;
    }
    for (size_t i = 0, n = finishing->pending; i < n; i++)
        mr_broker_submit(sending[i].origin->broker, &sending[i].share->inner.req);
}

/* ---- leases that nobody wants --------------------------------------------------------------- */

struct back {
    struct mr_req_finish finish;
    struct mr_finish item;
    enum mr_err err;
    struct mr_lease *lease;
};

/* Whatever the server says: without a hold of ours it gets it back in the end. */
static void back_done(struct mr_req *req)
{
    struct back *back = req->arg;
    mr_req_done(req);
    mr_lease_free(back->lease);
    free(back);
}

static void lease_back(struct many *many, struct mr_lease *lease)
{
    struct origin *origin = origin_of(many, lease->epoch);
    struct back *back = origin != NULL ? calloc(1, sizeof *back) : NULL;
    if (back == NULL) {
        mr_lease_free(lease);
        return;
    }
    back->lease = lease;
    back->item = (struct mr_finish){.id = mr_broker_lease_id(origin->broker, lease),
                                    .epoch = own_epoch(lease->epoch),
                                    .ref = lease->ref,
                                    .outcome = MR_HAND_BACK};
    back->finish = (struct mr_req_finish){
        .req = {.op = MR_OP_FINISH, .done = back_done, .arg = back},
        .items = &back->item,
        .n = 1,
        .errs = &back->err,
    };
    mr_broker_submit(origin->broker, &back->finish.req);
}

void leases_back(struct many *many, struct mr_lease *leases)
{
    while (leases != NULL) {
        struct mr_lease *next = leases->next;
        leases->next = NULL;
        lease_back(many, leases);
        leases = next;
    }
}
