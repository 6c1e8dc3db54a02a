/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/pb.h"

#include <string.h>

static void *arena_alloc(void *arena, size_t size)
{
    return mr_arena_alloc(arena, size);
}

static void arena_free(void *arena, void *memory)
{
    (void)arena, (void)memory; /* all at once, with the arena */
}

enum mr_err mr_pb_decode(const ProtobufCMessageDescriptor *kind, struct mr_slice bytes,
                         struct mr_arena *arena, ProtobufCMessage **ret_message)
{
    ProtobufCAllocator allocator = {
        .alloc = arena_alloc, .free = arena_free, .allocator_data = arena};
    ProtobufCMessage *message =
        protobuf_c_message_unpack(kind, &allocator, bytes.len, (const uint8_t *)bytes.data);
    if (message == NULL)
        return MR_INVALID;
    *ret_message = message;
    return MR_OK;
}

struct mr_slice mr_pb_text(const char *text)
{
    return text == NULL ? mr_slice_make(NULL, 0) : mr_slice_make(text, strlen(text));
}

ProtobufCBinaryData mr_pb_of_bytes(struct mr_slice bytes)
{
    return (ProtobufCBinaryData){.len = bytes.len, .data = (uint8_t *)(uintptr_t)bytes.data};
}

char *mr_pb_of_text(struct mr_arena *arena, struct mr_slice text)
{
    struct mr_slice copy;
    if (text.len == 0)
        return (char *)(uintptr_t)protobuf_c_empty_string;
    if (mr_arena_copy(arena, text, &copy) != MR_OK)
        return NULL;
    return (char *)(uintptr_t)copy.data;
}
