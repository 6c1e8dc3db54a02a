/* SPDX-License-Identifier: Apache-2.0 */
/* The standard reflection service; its two versions have the same bytes. */
#include <stdlib.h>

#include "api/internal.h"
#include "grpc/reflection/v1/reflection.pb-c.h"

typedef Grpc__Reflection__V1__ServerReflectionRequest reflection_request;
typedef Grpc__Reflection__V1__ServerReflectionResponse reflection_response;

#define ASKS(kind) GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_##kind
#define SAYS(kind) GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_##kind

enum { NOT_FOUND = 5, SERVICES_MAX = 32 };

static enum mr_err say_error(struct mr_call *call, reflection_response *out, const char *text)
{
    Grpc__Reflection__V1__ErrorResponse error = GRPC__REFLECTION__V1__ERROR_RESPONSE__INIT;
    error.error_code = NOT_FOUND;
    error.error_message = (char *)(uintptr_t)text;
    out->message_response_case = SAYS(ERROR_RESPONSE);
    out->error_response = &error;
    return stream_send(call, &out->base);
}

static enum mr_err say_file(struct mr_call *call, reflection_response *out, struct mr_slice file)
{
    Grpc__Reflection__V1__FileDescriptorResponse files =
        GRPC__REFLECTION__V1__FILE_DESCRIPTOR_RESPONSE__INIT;
    ProtobufCBinaryData bytes = mr_pb_of_bytes(file);
    files.n_file_descriptor_proto = 1;
    files.file_descriptor_proto = &bytes;
    out->message_response_case = SAYS(FILE_DESCRIPTOR_RESPONSE);
    out->file_descriptor_response = &files;
    return stream_send(call, &out->base);
}

static enum mr_err say_services(struct mr_call *call, reflection_response *out,
                                struct mr_arena *arena)
{
    Grpc__Reflection__V1__ListServiceResponse list =
        GRPC__REFLECTION__V1__LIST_SERVICE_RESPONSE__INIT;
    Grpc__Reflection__V1__ServiceResponse rows[SERVICES_MAX], *pointers[SERVICES_MAX];
    struct mr_slice name;
    char text[SERVICE_NAME_MAX];
    while (list.n_service < SERVICES_MAX &&
           (name = descriptor_service(list.n_service, text)).len > 0) {
        Grpc__Reflection__V1__ServiceResponse *row = &rows[list.n_service];
        grpc__reflection__v1__service_response__init(row);
        row->name = mr_pb_of_text(arena, name);
        if (row->name == NULL)
            return MR_NOMEM;
        pointers[list.n_service++] = row;
    }
    list.service = pointers;
    out->message_response_case = SAYS(LIST_SERVICES_RESPONSE);
    out->list_services_response = &list;
    return stream_send(call, &out->base);
}

static enum mr_err answer(struct mr_call *call, reflection_request *in, struct mr_arena *arena)
{
    reflection_response out = GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;
    struct mr_slice file;
    out.valid_host = in->host;
    out.original_request = in;
    if (in->message_request_case == ASKS(LIST_SERVICES))
        return say_services(call, &out, arena);
    if (in->message_request_case == ASKS(FILE_BY_FILENAME) &&
        descriptor_by_name(mr_slice_str(in->file_by_filename), &file))
        return say_file(call, &out, file);
    if (in->message_request_case == ASKS(FILE_CONTAINING_SYMBOL) &&
        descriptor_by_symbol(mr_slice_str(in->file_containing_symbol), &file))
        return say_file(call, &out, file);
    return say_error(call, &out, "not found");
}

static void reflection_message(struct mr_call *call, struct mr_slice bytes)
{
    struct mr_arena arena = {0};
    ProtobufCMessage *message;
    const ProtobufCMessageDescriptor *kind =
        &grpc__reflection__v1__server_reflection_request__descriptor;
    enum mr_err err = decode_small(kind, bytes, &arena, &message);
    if (err == MR_OK)
        err = answer(call, (reflection_request *)(void *)message, &arena);
    if (err != MR_OK)
        call_end(call, err, (struct mr_slice){0});
    if (mr_call_queued(call) >= MR_CALL_QUEUED_HIGH)
        mr_call_hold(call, true);
    mr_arena_done(&arena);
}

static void reflection_writable(struct mr_call *call)
{
    mr_call_hold(call, false);
}

static void reflection_half_closed(struct mr_call *call)
{
    call_end(call, MR_OK, (struct mr_slice){0});
}

static void reflection_closed(struct mr_call *call, int status, struct mr_slice text)
{
    struct stream *stream = mr_call_data(call);
    (void)status, (void)text;
    stream_close(stream);
    free(stream);
}

static const struct mr_call_ops reflection_ops = {
    .message = reflection_message,
    .half_closed = reflection_half_closed,
    .writable = reflection_writable,
    .closed = reflection_closed,
};

void reflection_open(struct mr_api *api, struct mr_call *call, const struct mr_token *token)
{
    struct stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL) {
        call_end(call, MR_NOMEM, (struct mr_slice){0});
        return;
    }
    mr_call_set(call, &reflection_ops, stream);
    stream_open(stream, api, call, token, stream_end_now);
}
