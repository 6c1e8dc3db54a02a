/* SPDX-License-Identifier: Apache-2.0 */
/* From the path of a call to what carries it out: who calls, unary calls, and what streams share. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/internal.h"

void call_end(struct mr_call *call, enum mr_err err, struct mr_slice text)
{
    if (err != MR_OK)
        mr_call_trailer(call, "millrace-code", mr_slice_str(mr_err_name(err)));
    if (text.len == 0 && err != MR_OK)
        text = mr_slice_str(mr_err_text(err));
    mr_call_end(call, mr_err_grpc_status(err), text);
}

static void audit(const struct mr_api *api, const struct method *method, struct mr_audit line)
{
    if ((method->about == NULL && !method->changes) || api->options.audit == NULL)
        return;
    line.method = strrchr(method->path, '.') + 1; /* behind the package */
    api->options.audit(&line, api->options.audit_arg);
}

static void call_refuse(struct mr_call *call, enum mr_verdict verdict,
                        const struct mr_detail *detail)
{
    if (verdict == MR_NOT_ALLOWED) {
        call_end(call, MR_DENIED, mr_slice_str(detail->text));
        return;
    }
    mr_call_trailer(call, "millrace-code", mr_slice_str(mr_err_name(MR_DENIED)));
    mr_call_end(call, STATUS_UNAUTHENTICATED, mr_slice_str(detail->text));
}

/* ---- unary: the end ------------------------------------------------------------------------- */

struct mr_arena *unary_arena(struct unary *u)
{
    return &u->errand.req.head.arena;
}

static void unary_free(struct unary *u)
{
    errand_clear(&u->errand);
    conn_unref(u->api, u->conn);
    free(u);
}

static void unary_audit(const struct unary *u, enum mr_err err)
{
    struct mr_audit line = {.token = u->token.id,
                            .peer = u->peer,
                            .about = u->about,
                            .err = err != MR_OK ? err : u->outcome};
    if (!u->routine)
        audit(u->api, u->method, line);
}

void unary_fail(struct unary *u, enum mr_err err, const char *fmt, ...)
{
    struct mr_detail detail = {.text = ""};
    unary_audit(u, err);
    if (u->call == NULL)
        return;
    if (fmt != NULL) {
        va_list args;
        va_start(args, fmt);
        vsnprintf(detail.text, sizeof detail.text, fmt, args);
        va_end(args);
    }
    call_end(u->call, err, mr_slice_str(detail.text));
}

uint8_t *unary_room(struct unary *u, size_t size)
{
    uint8_t *room;
    unary_audit(u, MR_OK);
    if (u->call == NULL)
        return NULL;
    enum mr_err err = mr_call_room(u->call, size, &room);
    if (err == MR_OK)
        return room;
    if (err != MR_CLOSED)
        call_end(u->call, err, (struct mr_slice){0});
    return NULL;
}

void unary_sent(struct unary *u)
{
    mr_call_end(u->call, MR_RPC_OK, (struct mr_slice){0});
}

void unary_send(struct unary *u, const ProtobufCMessage *message)
{
    uint8_t *room = unary_room(u, protobuf_c_message_get_packed_size(message));
    if (room == NULL)
        return;
    protobuf_c_message_pack(message, room);
    unary_sent(u);
}

void unary_send_task(struct unary *u, const struct mr_task *task)
{
    uint8_t *room = unary_room(u, mr_flat_size(&mr_flat_task, task));
    if (room == NULL)
        return;
    mr_flat_write(&mr_flat_task, task, room);
    unary_sent(u);
}

bool unary_may_touch(struct unary *u, struct mr_slice queue)
{
    struct mr_detail detail;
    if (mr_access_queue(&u->token, queue))
        return true;
    mr_access_not_covered(&u->token, queue, &detail);
    unary_fail(u, MR_DENIED, "%s", detail.text);
    return false;
}

bool unary_may_touch_all(struct unary *u, const char *rest)
{
    struct mr_detail detail;
    if (mr_access_all_queues(&u->token))
        return true;
    mr_access_not_all(&u->token, rest, &detail);
    unary_fail(u, MR_DENIED, "%s", detail.text);
    return false;
}

/* Until the peer has taken the answer, what it was made of is not needed. */
void unary_idle(struct unary *u)
{
    u->busy = false;
    if (u->call == NULL) {
        unary_free(u);
        return;
    }
    errand_clear(&u->errand);
    u->bytes = u->about = (struct mr_slice){0};
    u->message = NULL;
}

/* ---- unary: through the broker -------------------------------------------------------------- */

static void unary_back(struct errand *errand)
{
    struct unary *u = mr_container(errand, struct unary, errand);
    enum mr_err err = errand->req.head.err;
    if (err == MR_OK)
        u->reply(u);
    else if (u->detail.text[0] != '\0')
        unary_fail(u, err, "%s: %s", u->detail.text, mr_err_text(err));
    else
        unary_fail(u, err, NULL);
    unary_idle(u);
}

void unary_submit(struct unary *u, enum mr_op op, void (*reply)(struct unary *u))
{
    u->busy = true;
    u->reply = reply;
    errand_submit(&u->errand, u->api, op, unary_back);
}

/* ---- unary: the request --------------------------------------------------------------------- */

enum mr_err decode_small(const ProtobufCMessageDescriptor *kind, struct mr_slice bytes,
                         struct mr_arena *arena, ProtobufCMessage **ret_message)
{
    if (bytes.len > SMALL_BYTES)
        return MR_TOO_BIG;
    return mr_pb_decode(kind, bytes, arena, ret_message);
}

static enum mr_err unary_read(struct unary *u, struct mr_slice bytes)
{
    struct mr_arena *arena = unary_arena(u);
    if (u->method->kind == NULL)
        return mr_arena_copy(arena, bytes, &u->bytes);
    return decode_small(u->method->kind, bytes, arena, &u->message);
}

/* Whether it may come in at all; when not, the call is ended. */
static bool unary_admit(struct unary *u, struct mr_slice bytes)
{
    const struct mr_api *api = u->api;
    struct mr_detail detail;
    if (api->stopped) {
        unary_fail(u, MR_UNAVAILABLE, "the server is stopping");
    } else if (api->bytes + bytes.len > api->options.limits.bytes_total) {
        unary_fail(u, MR_BUSY, "the server has too much under way");
    } else if (conn_pay(u->api, u->conn, 1, &detail) != MR_OK) {
        unary_fail(u, MR_BUSY, "%s", detail.text);
    } else {
        enum mr_err err = unary_read(u, bytes);
        if (err == MR_TOO_BIG)
            unary_fail(u, err, "a message of this kind has at most %d KiB", SMALL_BYTES / 1024);
        else if (err != MR_OK)
            unary_fail(u, err, "the message cannot be read");
        return err == MR_OK;
    }
    return false;
}

/* Says no, and to the audit what to. */
static void unary_refuse(struct unary *u, struct mr_slice bytes)
{
    if (unary_read(u, bytes) == MR_OK)
        u->about = u->method->about(u);
    unary_fail(u, MR_DENIED, "%s", u->detail.text);
}

static void unary_message(struct mr_call *call, struct mr_slice bytes)
{
    struct unary *u = mr_call_data(call);
    if (u->got) {
        if (!u->busy)
            unary_fail(u, MR_INVALID, "one message is asked for, not more");
        return;
    }
    u->got = true;
    u->errand.budget = &u->conn->budget;
    if (u->refused) {
        unary_refuse(u, bytes);
        return;
    }
    if (!unary_admit(u, bytes))
        return;
    if (u->method->about != NULL)
        u->about = u->method->about(u);
    if (u->method->queue == NULL || unary_may_touch(u, u->method->queue(u->message)))
        u->method->start(u);
}

static void unary_half_closed(struct mr_call *call)
{
    struct unary *u = mr_call_data(call);
    if (!u->got && u->refused)
        unary_fail(u, MR_DENIED, "%s", u->detail.text);
    else if (!u->got)
        unary_fail(u, MR_INVALID, "no message");
    u->got = true;
}

static void unary_closed(struct mr_call *call, int status, struct mr_slice text)
{
    struct unary *u = mr_call_data(call);
    (void)status, (void)text;
    valve_close(&u->valve);
    u->call = NULL;
    if (!u->busy)
        unary_free(u);
    else if (u->gone != NULL)
        u->gone(u);
}

static const struct mr_call_ops unary_ops = {
    .message = unary_message,
    .half_closed = unary_half_closed,
    .closed = unary_closed,
};

static void unary_begin(struct mr_api *api, struct mr_call *call, const struct method *method,
                        const struct mr_token *token, const struct mr_detail *refusal)
{
    struct unary *u = calloc(1, sizeof *u);
    struct conn *conn = u != NULL ? conn_get(api, call) : NULL;
    if (conn == NULL) {
        free(u);
        call_end(call, MR_NOMEM, (struct mr_slice){0});
        return;
    }
    u->api = api;
    u->call = call;
    u->method = method;
    u->conn = conn;
    u->token = *token;
    u->refused = refusal != NULL;
    if (u->refused)
        u->detail = *refusal;
    if (method->about != NULL)
        snprintf(u->peer, sizeof u->peer, "%s", mr_call_peer(call));
    mr_call_set(call, &unary_ops, u);
    valve_open(&u->valve, &conn->budget, call);
}

/* ---- streams -------------------------------------------------------------------------------- */

void stream_open(struct stream *stream, struct mr_api *api, struct mr_call *call,
                 const struct mr_token *token,
                 void (*end)(struct stream *stream, enum stream_end why))
{
    stream->api = api;
    stream->call = call;
    stream->token = *token;
    stream->end = end;
    mr_list_push_back(&api->streams, &stream->link);
    if (token->id[0] != '\0' && !mr_timer_running(&api->tokens_timer)) {
        /* Not from before: the token was good a moment ago. */
        api->tokens_seen = mr_tokens_generation(api->options.access.tokens) - 1;
        tokens_look(&api->tokens_timer, api->options.rpc);
    }
}

void stream_close(struct stream *stream)
{
    mr_list_remove(&stream->link);
}

void stream_end_now(struct stream *stream, enum stream_end why)
{
    struct mr_detail detail;
    mr_detail_set(&detail, "token %s was revoked", stream->token.id);
    if (why == STREAM_REVOKED)
        call_refuse(stream->call, MR_UNKNOWN_CALLER, &detail);
    else
        call_end(stream->call, MR_UNAVAILABLE, MR_SLICE_LIT("the server is stopping"));
}

enum mr_err stream_send(struct mr_call *call, const ProtobufCMessage *message)
{
    uint8_t *room;
    MR_TRY(mr_call_room(call, protobuf_c_message_get_packed_size(message), &room));
    protobuf_c_message_pack(message, room);
    return MR_OK;
}

/* Unary calls look each time; streams live long, so they are looked after. */
void tokens_look(struct mr_timer *timer, void *arg)
{
    struct mr_api *api = mr_container(timer, struct mr_api, tokens_timer);
    struct mr_tokens *tokens = api->options.access.tokens;
    uint64_t generation = mr_tokens_generation(tokens);
    bool changed = generation != api->tokens_seen, any = false;
    api->tokens_seen = generation;
    for (struct mr_link *link = api->streams.next; link != &api->streams; link = link->next) {
        struct stream *stream = mr_container(link, struct stream, link);
        if (stream->token.id[0] == '\0')
            continue;
        any = true;
        if (changed && !mr_tokens_valid(tokens, stream->token.id))
            stream->end(stream, STREAM_REVOKED);
    }
    if (any)
        mr_rpc_timer_start(arg, timer, mr_mono_add_ms(mr_rpc_now(arg), TOKENS_LOOK_MS));
}

/* ---- namespaces ----------------------------------------------------------------------------- */

/* Whether the call means this server's store; when not, it is ended. One that names none means
 * whichever there is. */
static bool is_meant(const struct mr_api *api, struct mr_call *call)
{
    struct mr_slice asked = mr_call_metadata(call, MR_NAMESPACE_METADATA);
    struct mr_slice own = mr_buf_slice(&api->namespace_);
    struct mr_detail detail;
    if (asked.len == 0 || mr_slice_equal(asked, own))
        return true;
    mr_detail_set(&detail, "this server has %s%.*s, not %.*s",
                  own.len > 0 ? "the namespace " : "no namespace but the default one", (int)own.len,
                  own.len > 0 ? (const char *)own.data : "", (int)asked.len,
                  (const char *)asked.data);
    call_end(call, MR_INVALID, mr_slice_str(detail.text));
    return false;
}

/* ---- the door ------------------------------------------------------------------------------- */

static void refuse(struct mr_call *call, const struct mr_api *api, const struct method *method,
                   enum mr_verdict verdict, const struct mr_token *token,
                   const struct mr_detail *detail)
{
    if (verdict == MR_NOT_ALLOWED)
        audit(api, method,
              (struct mr_audit){.token = token->id, .peer = mr_call_peer(call), .err = MR_DENIED});
    call_refuse(call, verdict, detail);
}

void method_begin(struct mr_call *call, struct mr_api *api, const struct method *method)
{
    struct mr_token token;
    struct mr_detail detail = {.text = ""};
    enum mr_verdict verdict =
        mr_access_check(&api->options.access, mr_call_metadata(call, "authorization"),
                        mr_call_is_loopback(call), method->roles, &token, &detail);
    /* Of somebody known there is a line; lines that anybody can cause would be noise. */
    if (verdict == MR_NOT_ALLOWED && method->about != NULL)
        unary_begin(api, call, method, &token, &detail);
    else if (verdict != MR_ALLOWED)
        refuse(call, api, method, verdict, &token, &detail);
    else if (api->stopped || (api->stopping && method->open != NULL))
        call_end(call, MR_UNAVAILABLE, MR_SLICE_LIT("the server is stopping"));
    else if (!is_meant(api, call))
        return;
    else if (method->open != NULL)
        method->open(api, call, &token);
    else
        unary_begin(api, call, method, &token, NULL);
}
