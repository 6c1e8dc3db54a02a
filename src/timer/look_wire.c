/* SPDX-License-Identifier: Apache-2.0 */
/* Looks as messages of timers.proto. */
#include "timer/look.h"

#include <stdio.h>

#include "broker/broker.h"

enum { FIELD_ITEMS = 1, FIELD_NEXT = 2 }; /* of all answers that are lists */

/* Row i is field i + 1 of the .proto. */
#define LOOK(kind, member)                                                                         \
    {                                                                                              \
        MR_FLAT_##kind, offsetof(struct mr_timer_look, member), 0                                  \
    }

static const struct mr_flat_field get_fields[] = {LOOK(SLICE, app), LOOK(SLICE, name)};
static const struct mr_flat_field list_fields[] = {
    LOOK(SLICE, app),
    {MR_FLAT_ENUM, offsetof(struct mr_timer_look, state), MR_TIMER_STATE_COUNT - 1},
    LOOK(SLICE, cursor),
    LOOK(U32, limit),
};
static const struct mr_flat_field next_fields[] = {
    LOOK(SLICE, app), LOOK(SLICE, name),  LOOK(SLICE, definition),
    LOOK(U32, limit), LOOK(64, after_ms),
};
static const struct mr_flat_field history_fields[] = {LOOK(SLICE, app), LOOK(SLICE, name),
                                                      LOOK(SLICE, cursor), LOOK(U32, limit)};
static MR_FLAT(struct mr_timer_look, get_flat, get_fields);
static MR_FLAT(struct mr_timer_look, list_flat, list_fields);
static MR_FLAT(struct mr_timer_look, next_flat, next_fields);
static MR_FLAT(struct mr_timer_look, history_flat, history_fields);

static const struct mr_flat_field nothing[] = {{MR_FLAT_NONE, 0, 0}};
static MR_FLAT(struct mr_timer_look, status_flat, nothing);

#define STATUS(kind, member)                                                                       \
    {                                                                                              \
        MR_FLAT_##kind, offsetof(struct mr_timer_status, member), 0                                \
    }
static const struct mr_flat_field answer_fields[] = {
    {MR_FLAT_NONE, 0, 0}, /* the apps */
    STATUS(SLICE, store),        STATUS(SLICE, problem),     STATUS(64, active),
    STATUS(64, paused),          STATUS(64, finished),       STATUS(64, waiting),
    STATUS(64, retrying),        STATUS(64, dead),           STATUS(64, oldest_ms),
    STATUS(64, wait_p50_us),     STATUS(64, wait_p99_us),    STATUS(64, fired),
    STATUS(64, caught_up),       STATUS(64, skipped),        STATUS(64, misfired),
    STATUS(64, succeeded),       STATUS(64, failed),         STATUS(64, applied),
    STATUS(64, stale),           STATUS(64, retried),        STATUS(64, rejected),
    STATUS(64, ownership_taken), STATUS(64, ownership_lost), STATUS(64, lateness_p50_us),
    STATUS(64, lateness_p99_us),
};
static MR_FLAT(struct mr_timer_status, answer_flat, answer_fields);

#define APP(kind, member)                                                                          \
    {                                                                                              \
        MR_FLAT_##kind, offsetof(struct mr_timer_app, member), 0                                   \
    }
static const struct mr_flat_field app_fields[] = {APP(SLICE, app), APP(SLICE, owner),
                                                  APP(64, token), APP(64, until_ms)};
static MR_FLAT(struct mr_timer_app, app_flat, app_fields);

static const struct {
    const char *path;
    const struct mr_flat *request;
} kinds[MR_LOOK_KIND_COUNT] = {
    [MR_LOOK_GET] = {"/millrace.v1.Timers/Get", &get_flat},
    [MR_LOOK_LIST] = {"/millrace.v1.Timers/List", &list_flat},
    [MR_LOOK_NEXT] = {"/millrace.v1.Timers/Next", &next_flat},
    [MR_LOOK_HISTORY] = {"/millrace.v1.Timers/History", &history_flat},
    [MR_LOOK_STATUS] = {"/millrace.v1.Timers/Status", &status_flat},
};

/* The path of the method. */
static const char *mr_look_path(enum mr_look_kind kind)
{
    return kinds[kind].path;
}

/* ---- requests -------------------------------------------------------------------------------- */

enum mr_err mr_look_read(enum mr_look_kind kind, struct mr_slice bytes,
                         struct mr_timer_look *ret_look)
{
    struct mr_timer_look look = {0};
    MR_TRY(mr_flat_read(kinds[kind].request, bytes, NULL, &look));
    look.kind = kind;
    *ret_look = look;
    return MR_OK;
}

size_t mr_look_size(const struct mr_timer_look *look)
{
    return mr_flat_size(kinds[look->kind].request, look);
}

uint8_t *mr_look_write(const struct mr_timer_look *look, uint8_t *at)
{
    return mr_flat_write(kinds[look->kind].request, look, at);
}

/* ---- answers --------------------------------------------------------------------------------- */

static size_t item_size(const struct mr_flat *flat, const void *in)
{
    size_t len = mr_flat_size(flat, in);
    return mr_flat_head_size(len) + len;
}

static uint8_t *put_item(const struct mr_flat *flat, const void *in, uint8_t *at)
{
    return mr_flat_write(flat, in, mr_flat_put_head(at, FIELD_ITEMS, mr_flat_size(flat, in)));
}

size_t mr_look_answer_size(const struct mr_timer_look *look)
{
    size_t size = 0, next = strlen(look->next);
    if (look->kind == MR_LOOK_GET)
        return mr_flat_size(&mr_flat_timer_shown, look->timers);
    for (size_t i = 0; i < look->timers_n; i++)
        size += item_size(&mr_flat_timer_shown, &look->timers[i]);
    for (size_t i = 0; i < look->firings_n; i++)
        size += item_size(&mr_flat_firing, &look->firings[i]);
    for (size_t i = 0; i < look->times_n; i++)
        size += 1 + mr_flat_varint_size((uint64_t)look->times_ms[i]);
    for (size_t i = 0; i < look->status.apps_n; i++)
        size += item_size(&app_flat, &look->status.apps[i]);
    if (look->kind == MR_LOOK_STATUS)
        size += mr_flat_size(&answer_flat, &look->status);
    return next > 0 ? size + mr_flat_head_size(next) + next : size;
}

uint8_t *mr_look_answer_write(const struct mr_timer_look *look, uint8_t *at)
{
    size_t next = strlen(look->next);
    if (look->kind == MR_LOOK_GET)
        return mr_flat_write(&mr_flat_timer_shown, look->timers, at);
    for (size_t i = 0; i < look->timers_n; i++)
        at = put_item(&mr_flat_timer_shown, &look->timers[i], at);
    for (size_t i = 0; i < look->firings_n; i++)
        at = put_item(&mr_flat_firing, &look->firings[i], at);
    for (size_t i = 0; i < look->times_n; i++)
        at = mr_flat_put_varint(at, FIELD_ITEMS, (uint64_t)look->times_ms[i]);
    for (size_t i = 0; i < look->status.apps_n; i++)
        at = put_item(&app_flat, &look->status.apps[i], at);
    if (look->kind == MR_LOOK_STATUS)
        at = mr_flat_write(&answer_flat, &look->status, at);
    if (next == 0)
        return at;
    memcpy(mr_flat_put_head(at, FIELD_NEXT, next), look->next, next);
    return at + mr_flat_head_size(next) + next;
}

static enum mr_err read_item(struct mr_timer_look *look, const struct mr_flat_item *item)
{
    bool is_bytes = item->type == MR_FLAT_BYTES;
    if (look->kind == MR_LOOK_LIST && is_bytes)
        return mr_flat_read(&mr_flat_timer_shown, item->bytes, &look->arena,
                            &look->timers[look->timers_n++]);
    if (look->kind == MR_LOOK_HISTORY && is_bytes)
        return mr_flat_read(&mr_flat_firing, item->bytes, &look->arena,
                            &look->firings[look->firings_n++]);
    if (look->kind == MR_LOOK_NEXT && item->type == MR_FLAT_VARINT)
        look->times_ms[look->times_n++] = (int64_t)item->value;
    return MR_OK;
}

static enum mr_err read_fields(struct mr_timer_look *look, struct mr_slice bytes)
{
    while (bytes.len > 0) {
        struct mr_flat_item item;
        MR_TRY(mr_flat_next(&bytes, &item));
        if (item.number == FIELD_ITEMS)
            MR_TRY(read_item(look, &item));
        if (item.number == FIELD_NEXT && item.type == MR_FLAT_BYTES) {
            if (item.bytes.len >= sizeof look->next)
                return MR_INVALID;
            (void)snprintf(look->next, sizeof look->next, "%.*s", (int)item.bytes.len,
                           (const char *)item.bytes.data);
        }
    }
    return MR_OK;
}

/* How many fields of this number there are, of whichever type. */
static enum mr_err count_items(struct mr_slice bytes, size_t *ret_n)
{
    *ret_n = 0;
    while (bytes.len > 0) {
        struct mr_flat_item item;
        MR_TRY(mr_flat_next(&bytes, &item));
        *ret_n += item.number == FIELD_ITEMS;
    }
    return MR_OK;
}

static enum mr_err read_status(struct mr_timer_look *look, struct mr_slice bytes)
{
    struct mr_timer_status *status = &look->status;
    size_t n;
    MR_TRY(count_items(bytes, &n));
    MR_TRY(mr_flat_read(&answer_flat, bytes, NULL, status));
    status->apps = mr_arena_calloc(&look->arena, n + 1, sizeof *status->apps);
    status->apps_n = 0;
    if (status->apps == NULL)
        return MR_NOMEM;
    while (bytes.len > 0) {
        struct mr_flat_item item;
        MR_TRY(mr_flat_next(&bytes, &item));
        if (item.number == FIELD_ITEMS && item.type == MR_FLAT_BYTES)
            MR_TRY(mr_flat_read(&app_flat, item.bytes, NULL, &status->apps[status->apps_n++]));
    }
    return MR_OK;
}

enum mr_err mr_look_answer_read(struct mr_timer_look *look, struct mr_slice bytes)
{
    size_t n = 1;
    if (look->kind == MR_LOOK_STATUS)
        return read_status(look, bytes);
    if (look->kind != MR_LOOK_GET)
        MR_TRY(count_items(bytes, &n));
    look->timers = mr_arena_calloc(&look->arena, n + 1, sizeof *look->timers);
    look->firings = mr_arena_calloc(&look->arena, n + 1, sizeof *look->firings);
    look->times_ms = mr_arena_calloc(&look->arena, n + 1, sizeof *look->times_ms);
    if (look->timers == NULL || look->firings == NULL || look->times_ms == NULL)
        return MR_NOMEM;
    look->timers_n = look->firings_n = look->times_n = 0;
    look->next[0] = '\0';
    if (look->kind != MR_LOOK_GET)
        return read_fields(look, bytes);
    look->timers_n = 1;
    return mr_flat_read(&mr_flat_timer_shown, bytes, &look->arena, look->timers);
}

/* ---- through a server ------------------------------------------------------------------------ */

enum mr_err mr_timer_broker_look_wait(struct mr_broker *broker, struct mr_timer_look *look)
{
    struct mr_req_call req = {.req.op = MR_OP_CALL, .path = mr_look_path(look->kind)};
    size_t size = mr_look_size(look);
    uint8_t *message = mr_arena_alloc(&look->arena, size);
    struct mr_slice answer;
    if (message == NULL)
        return look->err = MR_NOMEM;
    (void)mr_look_write(look, message);
    req.message = mr_slice_make(message, size);
    look->err = mr_broker_call(broker, &req.req);
    look->detail = req.detail;
    if (look->err == MR_OK)
        look->err = mr_arena_copy(&look->arena, req.answer, &answer);
    if (look->err == MR_OK)
        look->err = mr_look_answer_read(look, answer);
    if (look->err == MR_INVALID && req.req.err == MR_OK)
        look->err = MR_FAILED; /* it is the server that makes no sense */
    mr_req_done(&req.req);
    return look->err;
}
