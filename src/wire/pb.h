/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Between the messages of proto/millrace/v1 and the structs of the public header. Both directions
 * borrow where they can: what is filled here lives as long as its source and the arena.
 */
#ifndef MR_WIRE_PB_H
#define MR_WIRE_PB_H

#include "base/arena.h"
#include "base/buf.h"
#include "millrace/v1/queues.pb-c.h"
#include "millrace/v1/task.pb-c.h"
#include "millrace/v1/tasks.pb-c.h"
#include "millrace/v1/work.pb-c.h"

/* Memory of decoded messages: from the arena, freed with it. */
ProtobufCAllocator mr_pb_allocator(struct mr_arena *arena);
/* A message of this kind, in the arena. MR_INVALID when the bytes are not one, MR_NOMEM. */
MR_MUST_USE enum mr_err mr_pb_decode(const ProtobufCMessageDescriptor *kind, struct mr_slice bytes,
                                     struct mr_arena *arena, ProtobufCMessage **ret_message);
/* Appends the encoding. */
MR_MUST_USE enum mr_err mr_pb_encode(const ProtobufCMessage *message, struct mr_buf *buf);

struct mr_slice mr_pb_text(const char *text);
struct mr_slice mr_pb_bytes(ProtobufCBinaryData bytes);
ProtobufCBinaryData mr_pb_of_bytes(struct mr_slice bytes);
/* NUL-terminated, in the arena; the empty text without memory. NULL: out of memory. */
char *mr_pb_of_text(struct mr_arena *arena, struct mr_slice text);

/* What a producer said. MR_INVALID for an enum value that is not known. */
MR_MUST_USE enum mr_err mr_pb_new_task(const Millrace__V1__NewTask *message, struct mr_arena *arena,
                                       struct mr_task_options *ret_options);
MR_MUST_USE enum mr_err mr_pb_of_new_task(const struct mr_task_options *options,
                                          struct mr_arena *arena,
                                          Millrace__V1__NewTask *ret_message);

MR_MUST_USE enum mr_err mr_pb_task(const Millrace__V1__Task *message, struct mr_arena *arena,
                                   struct mr_task *ret_task);
MR_MUST_USE enum mr_err mr_pb_of_task(const struct mr_task *task, struct mr_arena *arena,
                                      Millrace__V1__Task *ret_message);

void mr_pb_enqueue_result(const Millrace__V1__EnqueueResult *message,
                          struct mr_enqueue_result *ret_result);
MR_MUST_USE enum mr_err mr_pb_of_enqueue_result(const struct mr_enqueue_result *result,
                                                struct mr_arena *arena,
                                                Millrace__V1__EnqueueResult *ret_message);

void mr_pb_queue(const Millrace__V1__Queue *message, struct mr_queue_info *ret_info);
MR_MUST_USE enum mr_err mr_pb_of_queue(const struct mr_queue_info *info, struct mr_arena *arena,
                                       Millrace__V1__Queue *ret_message);

/* Codes have the numbers of enum mr_err; one that is not known here is MR_FAILED. */
enum mr_err mr_pb_code(int code);

#endif
