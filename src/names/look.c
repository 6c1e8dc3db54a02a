/* SPDX-License-Identifier: Apache-2.0 */
/* See look.h. */
#include "names/look.h"

#include <assert.h>

#include "wire/flat.h"

/* Numbers of NameLook, and of NameServerBody. */
enum { FIELD_APPS = 13, FIELD_PEERS = 14 };
enum { FIELD_LOADS = 6 };
enum { BYTES_MAX = 3 << 20 }; /* of any message: below what gRPC takes anywhere */
static_assert(MR_NAMES_LOOK_APPS * (MR_NAME_MAX + 16) < BYTES_MAX, "all apps fit");

#define ROW(type, kind, member)                                                                    \
    {                                                                                              \
        MR_FLAT_##kind, offsetof(struct type, member), 0                                           \
    }
static const struct mr_flat_field look_fields[] = {
    ROW(mr_names_look, FIXED64, from), ROW(mr_names_look, BOOL, complete),
    ROW(mr_names_look, BOOL, more),    ROW(mr_names_look, 64, servers),
    ROW(mr_names_look, 64, workers),   ROW(mr_names_look, 64, graves),
    ROW(mr_names_look, 64, expired),   ROW(mr_names_look, 64, left),
    ROW(mr_names_look, 64, refused),   ROW(mr_names_look, 64, forgotten),
    ROW(mr_names_look, 64, stalls),    ROW(mr_names_look, FIXED64, view),
};
static MR_FLAT(struct mr_names_look, look_flat, look_fields);

/* The wire has 64 bits for what is a size here. */
struct app {
    struct mr_slice name;
    uint64_t workers;
};
static const struct mr_flat_field app_fields[] = {ROW(app, SLICE, name), ROW(app, 64, workers)};
static MR_FLAT(struct app, app_flat, app_fields);

static const struct mr_flat_field peer_fields[] = {
    ROW(mr_names_look_peer, SLICE, address),
    ROW(mr_names_look_peer, BOOL, is_up),
};
static MR_FLAT(struct mr_names_look_peer, peer_flat, peer_fields);

static const struct mr_flat_field load_fields[] = {
    ROW(mr_names_load, SLICE, app),
    ROW(mr_names_load, U32, part),
    ROW(mr_names_load, 64, load),
};
static MR_FLAT(struct mr_names_load, load_flat, load_fields);

static const struct mr_flat_field server_fields[] = {
    ROW(mr_names_server_body, 64, load),        ROW(mr_names_server_body, U32, weight),
    ROW(mr_names_server_body, U32, owns),       ROW(mr_names_server_body, SLICE, server),
    ROW(mr_names_server_body, BOOL, is_secure), {MR_FLAT_NONE, 0, 0}, /* loads, by hand */
    ROW(mr_names_server_body, SLICE, balance),
};
static MR_FLAT(struct mr_names_server_body, server_flat, server_fields);

static const struct mr_flat_field worker_fields[] = {
    ROW(mr_names_worker_body, U32, slots),
    ROW(mr_names_worker_body, U32, busy),
    ROW(mr_names_worker_body, 64, done),
    ROW(mr_names_worker_body, 64, in_hour),
};
static MR_FLAT(struct mr_names_worker_body, worker_flat, worker_fields);

/* ---- both ways -------------------------------------------------------------------------------- */

static enum mr_err put_item(const struct mr_flat *flat, const void *in, unsigned number,
                            struct mr_buf *buf)
{
    size_t len = mr_flat_size(flat, in), size = mr_flat_head_size(len) + len;
    MR_TRY(mr_buf_reserve(buf, size + 1));
    mr_flat_write(flat, in, mr_flat_put_head(buf->data + buf->len, number, len));
    buf->len += size;
    return MR_OK;
}

static enum mr_err get(const struct mr_flat *flat, struct mr_slice bytes, void *out)
{
    struct mr_arena unused = {0}; /* for headers alone, which none of them has */
    return bytes.len > BYTES_MAX ? MR_TOO_BIG : mr_flat_read(flat, bytes, &unused, out);
}

/* All items of a number, into an array of the arena's. */
static enum mr_err get_items(const struct mr_flat *flat, struct mr_slice bytes, uint32_t number,
                             size_t max, struct mr_arena *arena, void **ret_items, size_t *ret_n)
{
    size_t n;
    MR_TRY(mr_flat_count(bytes, number, &n));
    if (n > max)
        return MR_TOO_BIG;
    uint8_t *items = mr_arena_calloc(arena, n + 1, flat->size), *at = items;
    if (items == NULL)
        return MR_NOMEM;
    while (bytes.len > 0) {
        struct mr_flat_item item;
        MR_TRY(mr_flat_next(&bytes, &item));
        if (item.number != number || item.type != MR_FLAT_BYTES)
            continue;
        MR_TRY(get(flat, item.bytes, at));
        at += flat->size;
    }
    *ret_items = items;
    *ret_n = n;
    return MR_OK;
}

/* ---- what a nameserver shows ------------------------------------------------------------------ */

enum mr_err mr_names_look_encode(struct mr_names_look *look, struct mr_buf *buf)
{
    look->more = look->more || look->apps_n > MR_NAMES_LOOK_APPS;
    look->apps_n = look->apps_n > MR_NAMES_LOOK_APPS ? MR_NAMES_LOOK_APPS : look->apps_n;
    MR_TRY(mr_flat_append(&look_flat, look, buf));
    for (size_t i = 0; i < look->apps_n; i++) {
        struct app app = {look->apps[i].name, look->apps[i].workers};
        MR_TRY(put_item(&app_flat, &app, FIELD_APPS, buf));
    }
    for (size_t i = 0; i < look->peers_n; i++)
        MR_TRY(put_item(&peer_flat, &look->peers[i], FIELD_PEERS, buf));
    return MR_OK;
}

enum mr_err mr_names_look_decode(struct mr_slice bytes, struct mr_arena *arena,
                                 struct mr_names_look *ret_look)
{
    struct mr_names_look look;
    void *raw, *peers;
    MR_TRY(get(&look_flat, bytes, &look));
    MR_TRY(get_items(&app_flat, bytes, FIELD_APPS, MR_NAMES_LOOK_APPS, arena, &raw, &look.apps_n));
    MR_TRY(get_items(&peer_flat, bytes, FIELD_PEERS, MR_NAMES_LOOK_PEERS, arena, &peers,
                     &look.peers_n));
    struct mr_names_app *apps = mr_arena_calloc(arena, look.apps_n + 1, sizeof *apps);
    if (apps == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < look.apps_n; i++) {
        const struct app *app = (const struct app *)raw + i;
        apps[i] = (struct mr_names_app){app->name, (size_t)app->workers};
    }
    look.apps = apps;
    look.peers = peers;
    *ret_look = look;
    return MR_OK;
}

/* ---- bodies ----------------------------------------------------------------------------------- */

enum mr_err mr_names_server_body_encode(const struct mr_names_server_body *body, struct mr_buf *buf)
{
    size_t begin = buf->len;
    MR_TRY(mr_flat_append(&server_flat, body, buf));
    for (size_t i = 0; i < body->loads_n && i < MR_NAMES_LOADS_MAX; i++) {
        size_t before = buf->len;
        MR_TRY(put_item(&load_flat, &body->loads[i], FIELD_LOADS, buf));
        if (buf->len - begin <= MR_NAMES_BODY_MAX)
            continue;
        buf->len = before;
        break;
    }
    return MR_OK;
}

enum mr_err mr_names_server_body_decode(struct mr_slice bytes, struct mr_arena *arena,
                                        struct mr_names_server_body *ret_body)
{
    struct mr_names_server_body body;
    void *loads;
    MR_TRY(get(&server_flat, bytes, &body));
    MR_TRY(get_items(&load_flat, bytes, FIELD_LOADS, MR_NAMES_LOADS_MAX, arena, &loads,
                     &body.loads_n));
    body.loads = loads;
    *ret_body = body;
    return MR_OK;
}

enum mr_err mr_names_worker_body_encode(const struct mr_names_worker_body *body, struct mr_buf *buf)
{
    return mr_flat_append(&worker_flat, body, buf);
}

enum mr_err mr_names_worker_body_decode(struct mr_slice bytes,
                                        struct mr_names_worker_body *ret_body)
{
    return get(&worker_flat, bytes, ret_body);
}
