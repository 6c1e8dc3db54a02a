/* SPDX-License-Identifier: Apache-2.0 */
/* What people see of plans: see plan_view.h. All of it is read from the store, one answer behind the other. */
#include <stdlib.h>

#include "base/diag.h"
#include "names/wire.h"
#include "store/store.h"
#include "timer/plan_view.h"
#include "timer/sched/internal.h"

struct looking {
    struct mr_store *store;
    struct mr_plan_look *look;
    size_t parts_cap;
};

static enum mr_err copy(struct looking *l, struct mr_slice from, struct mr_slice *ret_to)
{
    return mr_arena_copy(&l->look->arena, from, ret_to);
}

static struct mr_slice name_of(const struct mr_plan_look *look, uint64_t server)
{
    for (size_t i = 0; i < look->servers_n; i++) {
        if (sched_server_id(look->servers[i].server) == server)
            return look->servers[i].server;
    }
    return (struct mr_slice){0};
}

/* Into a bigger array of the arena, where there is no room: it is freed as a whole. */
static struct mr_plan_part *part_new(struct looking *l)
{
    struct mr_plan_look *look = l->look;
    if (look->parts_n == l->parts_cap) {
        size_t cap = l->parts_cap > 0 ? 2 * l->parts_cap : 64;
        struct mr_plan_part *grown = mr_arena_calloc(&look->arena, cap, sizeof *grown);
        if (grown == NULL)
            return NULL;
        if (look->parts_n > 0)
            memcpy(grown, look->parts, look->parts_n * sizeof *grown);
        look->parts = grown;
        l->parts_cap = cap;
    }
    return &look->parts[look->parts_n++];
}

static enum mr_err take_servers(struct looking *l, const struct mr_store_server_list *list)
{
    l->look->servers = mr_arena_calloc(&l->look->arena, list->n + 1, sizeof *l->look->servers);
    if (l->look->servers == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < list->n; i++) {
        struct mr_plan_server *server = &l->look->servers[l->look->servers_n++];
        MR_TRY(copy(l, list->servers[i].server, &server->server));
        MR_TRY(copy(l, list->servers[i].apps, &server->apps));
    }
    return MR_OK;
}

static enum mr_err look_servers(struct looking *l)
{
    struct mr_store_server_list list = {.req.op = MR_STORE_SERVER_LIST, .max = PAGE_MAX};
    enum mr_err err = mr_store_call(l->store, &list.req);
    if (err == MR_OK)
        err = take_servers(l, &list);
    mr_store_req_done(&list.req);
    return err;
}

static enum mr_err take_table(struct looking *l, const struct mr_store_subapps_row *row)
{
    struct mr_subapps table;
    MR_TRY(mr_subapps_decode(row->table, &table));
    for (size_t i = 0; i < table.n; i++) {
        struct mr_plan_part *part = part_new(l);
        if (part == NULL)
            return MR_NOMEM;
        *part = (struct mr_plan_part){.part = table.parts[i].id,
                                      .slots = table.parts[i].slots,
                                      .epoch = table.parts[i].epoch,
                                      .owner = name_of(l->look, table.parts[i].owner),
                                      .is_cut = true};
        MR_TRY(copy(l, row->app, &part->app));
    }
    return MR_OK;
}

static enum mr_err look_tables(struct looking *l)
{
    struct mr_slice after = {0};
    for (bool more = true; more;) {
        struct mr_store_subapps_list page = {
            .req.op = MR_STORE_SUBAPPS_LIST, .after = after, .max = 100};
        enum mr_err err = mr_store_call(l->store, &page.req);
        for (size_t i = 0; err == MR_OK && i < page.n; i++)
            err = take_table(l, &page.rows[i]);
        more = err == MR_OK && page.more && page.n > 0;
        if (more)
            err = copy(l, page.rows[page.n - 1].app, &after);
        mr_store_req_done(&page.req);
        MR_TRY(err);
    }
    return MR_OK;
}

/* The lease of an app as a whole. */
static enum mr_err take_whole(struct looking *l, const struct mr_store_lease_row *row,
                              int64_t now_ms)
{
    size_t prefix = sizeof MR_APP_LEASE_PREFIX - 1;
    if (mr_slice_equal(row->owner, mr_slice_str(MR_SUBAPPS_OWNER)))
        return MR_OK;
    struct mr_plan_part *part = part_new(l);
    if (part == NULL)
        return MR_NOMEM;
    *part = (struct mr_plan_part){.slots = UINT64_MAX, .epoch = row->token};
    if (row->until_ms > now_ms)
        MR_TRY(copy(l, row->owner, &part->owner));
    return copy(l, mr_slice_make((const char *)row->name.data + prefix, row->name.len - prefix),
                &part->app);
}

static enum mr_err look_wholes(struct looking *l)
{
    struct mr_slice after = {0};
    for (bool more = true; more;) {
        struct mr_store_lease_list page = {.req.op = MR_STORE_LEASE_LIST,
                                           .prefix = mr_slice_str(MR_APP_LEASE_PREFIX),
                                           .after = after,
                                           .max = PAGE_MAX};
        enum mr_err err = mr_store_call(l->store, &page.req);
        for (size_t i = 0; err == MR_OK && i < page.n; i++)
            err = take_whole(l, &page.leases[i], page.now_ms);
        more = err == MR_OK && page.more && page.n > 0;
        if (more)
            err = copy(l, page.leases[page.n - 1].name, &after);
        mr_store_req_done(&page.req);
        MR_TRY(err);
    }
    return MR_OK;
}

static enum mr_err look_planner(struct looking *l)
{
    struct mr_store_lease_list page = {
        .req.op = MR_STORE_LEASE_LIST, .prefix = MR_SLICE_LIT(PLAN_LEASE), .max = 1};
    enum mr_err err = mr_store_call(l->store, &page.req);
    if (err == MR_OK && page.n == 1 && page.leases[0].until_ms > page.now_ms &&
        mr_slice_equal(page.leases[0].name, mr_slice_str(PLAN_LEASE)))
        err = copy(l, page.leases[0].owner, &l->look->planner);
    mr_store_req_done(&page.req);
    return err;
}

static enum mr_err take_moves(struct looking *l, const struct mr_store_moves_list *list)
{
    struct mr_plan_look *look = l->look;
    look->moves = mr_arena_calloc(&look->arena, list->n + 1, sizeof *look->moves);
    if (look->moves == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < list->n; i++) {
        const struct mr_store_subapp_move *from = &list->moves[i];
        struct mr_plan_move *to = &look->moves[look->moves_n++];
        *to =
            (struct mr_plan_move){.number = from->number, .at_ms = from->at_ms, .part = from->part};
        MR_TRY(copy(l, from->app, &to->app));
        MR_TRY(copy(l, from->from, &to->from));
        MR_TRY(copy(l, from->to, &to->to));
        MR_TRY(copy(l, from->reason, &to->reason));
    }
    return MR_OK;
}

static enum mr_err look_moves(struct looking *l)
{
    struct mr_store_moves_list list = {.req.op = MR_STORE_MOVES_LIST};
    enum mr_err err = mr_store_call(l->store, &list.req);
    if (err == MR_OK)
        err = take_moves(l, &list);
    mr_store_req_done(&list.req);
    return err;
}

static int compare_parts(const void *a, const void *b)
{
    const struct mr_plan_part *x = a, *y = b;
    int order = mr_slice_compare(x->app, y->app);
    return order != 0 ? order : (x->part > y->part) - (x->part < y->part);
}

enum mr_err mr_plan_look(struct mr_store *store, struct mr_plan_look *look)
{
    struct looking l = {.store = store, .look = look};
    MR_TRY(look_servers(&l));
    MR_TRY(look_tables(&l));
    MR_TRY(look_wholes(&l));
    MR_TRY(look_planner(&l));
    MR_TRY(look_moves(&l));
    if (look->parts_n > 0)
        qsort(look->parts, look->parts_n, sizeof *look->parts, compare_parts);
    return MR_OK;
}

void mr_plan_look_done(struct mr_plan_look *look)
{
    mr_arena_done(&look->arena);
}
