/* SPDX-License-Identifier: Apache-2.0 */
/* Work.Attach, the stream: its messages, in order, to the session behind it. */
#include <stdlib.h>

#include "api/work.h"

void attach_end(struct attach *attach, enum mr_err err, const char *text)
{
    attach->ended = true;
    call_end(attach->head.call, err, mr_slice_str(text));
}

void attach_say(struct attach *attach, const Millrace__V1__ServerMessage *message)
{
    if (attach == NULL || attach->ended)
        return;
    if (stream_send(attach->head.call, &message->base) == MR_NOMEM)
        attach_end(attach, MR_NOMEM, "");
}

/* ---- what comes in -------------------------------------------------------------------------- */

enum { SAYS_HELLO = 1, SAYS_TAKE, SAYS_FINISH, SAYS_BEAT, SAYS_BEGUN, SAYS_BYE, SAYS_COUNT };

static enum mr_err (*const says[SAYS_COUNT])(struct session *session, struct mr_slice bytes) = {
    [SAYS_TAKE] = work_take,
    [SAYS_FINISH] = work_finishes,
    [SAYS_BEAT] = work_beat,
    [SAYS_BEGUN] = work_begun,
};

static void hear_hello(struct attach *attach, struct mr_slice bytes)
{
    struct mr_arena arena = {0};
    ProtobufCMessage *hello;
    enum mr_err err = decode_small(&millrace__v1__hello__descriptor, bytes, &arena, &hello);
    if (attach->session != NULL)
        attach_end(attach, MR_INVALID, "a second Hello");
    else if (err != MR_OK)
        attach_end(attach, err, "the message cannot be read");
    else
        session_hello(attach, (const Millrace__V1__Hello *)(const void *)hello, &arena);
    mr_arena_done(&arena);
}

static void hear_bye(struct attach *attach)
{
    attach->ended = true;
    if (attach->session == NULL)
        call_end(attach->head.call, MR_OK, (struct mr_slice){0});
    else
        session_close(attach->session);
}

static void hear(struct attach *attach, uint32_t kind, struct mr_slice bytes)
{
    if (kind == SAYS_HELLO) {
        hear_hello(attach, bytes);
    } else if (kind == SAYS_BYE) {
        hear_bye(attach);
    } else if (attach->session == NULL) {
        attach_end(attach, MR_INVALID, "Hello comes first");
    } else if (kind < SAYS_COUNT) {
        enum mr_err err = says[kind](attach->session, bytes);
        if (err != MR_OK)
            attach_end(attach, err, err == MR_INVALID ? "the message cannot be read" : "");
    }
}

static void attach_message(struct mr_call *call, struct mr_slice bytes)
{
    struct attach *attach = mr_call_data(call);
    while (bytes.len > 0 && !attach->ended) {
        struct mr_flat_item item;
        if (mr_flat_next(&bytes, &item) != MR_OK) {
            attach_end(attach, MR_INVALID, "the message cannot be read");
            return;
        }
        if (item.type == MR_FLAT_BYTES)
            hear(attach, item.number, item.bytes);
    }
}

/* ---- its end -------------------------------------------------------------------------------- */

static void attach_half_closed(struct mr_call *call)
{
    struct attach *attach = mr_call_data(call);
    if (!attach->ended)
        hear_bye(attach);
}

static void attach_writable(struct mr_call *call)
{
    struct attach *attach = mr_call_data(call);
    if (attach->session != NULL)
        work_go_on(attach->session);
}

static void attach_closed(struct mr_call *call, int status, struct mr_slice text)
{
    struct attach *attach = mr_call_data(call);
    (void)status, (void)text;
    valve_close(&attach->valve);
    stream_close(&attach->head);
    if (attach->session != NULL) {
        attach->session->attach = NULL;
        session_left(attach->session);
    }
    free(attach);
}

static const struct mr_call_ops attach_ops = {
    .message = attach_message,
    .half_closed = attach_half_closed,
    .writable = attach_writable,
    .closed = attach_closed,
};

static void attach_stop(struct stream *head, enum stream_end why)
{
    struct attach *attach = mr_container(head, struct attach, head);
    if (attach->session == NULL || why == STREAM_REVOKED)
        stream_end_now(head, why);
    else
        session_stopping(attach->session);
}

void attach_open(struct mr_api *api, struct mr_call *call, const struct mr_token *token)
{
    struct attach *attach = calloc(1, sizeof *attach);
    if (attach == NULL) {
        call_end(call, MR_NOMEM, (struct mr_slice){0});
        return;
    }
    attach->serial = ++api->attaches;
    mr_call_set(call, &attach_ops, attach);
    valve_open(&attach->valve, NULL, call);
    stream_open(&attach->head, api, call, token, attach_stop);
}
