/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of proto/millrace/v1 as protobuf-c has them: the rare ones. wire/flat.h has the others. */
#ifndef MR_WIRE_PB_H
#define MR_WIRE_PB_H

#include "base/arena.h"
#include "millrace/v1/queues.pb-c.h"
#include "millrace/v1/task.pb-c.h"
#include "millrace/v1/tasks.pb-c.h"
#include "millrace/v1/work.pb-c.h"

/* A message of this kind, in the arena. MR_INVALID when the bytes are not one, MR_NOMEM. */
MR_MUST_USE enum mr_err mr_pb_decode(const ProtobufCMessageDescriptor *kind, struct mr_slice bytes,
                                     struct mr_arena *arena, ProtobufCMessage **ret_message);

struct mr_slice mr_pb_text(const char *text);
ProtobufCBinaryData mr_pb_of_bytes(struct mr_slice bytes);
/* NUL-terminated, in the arena; the empty text without memory. NULL: out of memory. */
char *mr_pb_of_text(struct mr_arena *arena, struct mr_slice text);

#endif
