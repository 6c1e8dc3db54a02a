/* SPDX-License-Identifier: Apache-2.0 */
/* Timers.Keep: copies of operations for other servers (timer/copies.h). For the role admin alone, so of all apps. */
#include "api/internal.h"
#include "timer/copies.h"
#include "timer/service.h"

enum { REQUEST_ORIGIN = 1, REQUEST_OPERATIONS = 2, REQUEST_GONE = 3 };

/* A call under way, in its arena. */
struct keeping {
    struct mr_copies_keeping keeping;
    struct unary *u;
    struct mr_slice *operations, *gone;
};

static void keep_back(struct errand *errand)
{
    struct unary *u = mr_container(errand, struct unary, errand);
    struct keeping *k = u->data;
    if (k->keeping.err != MR_OK)
        unary_fail(u, k->keeping.err, NULL);
    else if (unary_room(u, 0) != NULL)
        unary_sent(u);
    unary_idle(u);
}

/* The broker's thread, or the loop's. */
static void keep_done(struct mr_copies_keeping *keeping)
{
    struct keeping *k = keeping->arg;
    errand_return(&k->u->errand);
}

static enum mr_err read_keeping(struct keeping *k, struct mr_slice bytes)
{
    struct mr_copies_keeping *keeping = &k->keeping;
    while (bytes.len > 0) {
        struct mr_flat_item item;
        MR_TRY(mr_flat_next(&bytes, &item));
        if (item.type != MR_FLAT_BYTES)
            continue;
        if (item.number == REQUEST_ORIGIN)
            keeping->origin = item.bytes;
        else if (item.number == REQUEST_OPERATIONS)
            k->operations[keeping->n++] = item.bytes;
        else if (item.number == REQUEST_GONE)
            k->gone[keeping->gone_n++] = item.bytes;
    }
    return MR_OK;
}

/* NULL: the call is ended. */
static struct keeping *keeping_new(struct unary *u)
{
    struct mr_arena *arena = unary_arena(u);
    size_t n = 0, gone_n = 0;
    struct keeping *k = mr_arena_calloc(arena, 1, sizeof *k);
    enum mr_err err = k != NULL ? mr_flat_count(u->bytes, REQUEST_OPERATIONS, &n) : MR_NOMEM;
    if (err == MR_OK)
        err = mr_flat_count(u->bytes, REQUEST_GONE, &gone_n);
    if (err == MR_OK && (n > MR_BATCH_MAX || gone_n > MR_BATCH_MAX)) {
        unary_fail(u, MR_TOO_BIG, "%zu operations in one call, the limit is %d",
                   n > gone_n ? n : gone_n, MR_BATCH_MAX);
        return NULL;
    }
    if (err == MR_OK) {
        k->u = u;
        k->operations = mr_arena_calloc(arena, n + 1, sizeof *k->operations);
        k->gone = mr_arena_calloc(arena, gone_n + 1, sizeof *k->gone);
        err = k->operations != NULL && k->gone != NULL ? read_keeping(k, u->bytes) : MR_NOMEM;
    }
    if (err == MR_OK)
        return k;
    unary_fail(u, err, err == MR_INVALID ? "the message cannot be read" : NULL);
    return NULL;
}

void timers_keep(struct unary *u)
{
    struct mr_timer_service *service = u->api->options.timers;
    struct mr_copies *copies = service != NULL ? mr_timer_service_copies(service) : NULL;
    if (copies == NULL) {
        unary_fail(u, MR_UNSUPPORTED,
                   "this server keeps no copies: it has no timers, or its tasks are in a Redis");
        return;
    }
    if (!unary_may_touch_all(u, ", and copies are of every queue"))
        return;
    struct keeping *k = keeping_new(u);
    if (k == NULL)
        return;
    k->keeping.operations = k->operations;
    k->keeping.gone = k->gone;
    k->keeping.done = keep_done;
    k->keeping.arg = k;
    u->data = k;
    u->busy = true;
    errand_leave(&u->errand, u->api, keep_back);
    mr_copies_keep(copies, &k->keeping);
}
