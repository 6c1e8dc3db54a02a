/* SPDX-License-Identifier: Apache-2.0 */
/* From the record of a task in the log to what callers see of it. */
#ifndef MR_EMBEDDED_MESSAGE_H
#define MR_EMBEDDED_MESSAGE_H

#include "broker/broker.h"
#include "wire/event.h"
#include "wire/record.h"
#include "wire/task.h"

/* Unique keys hold within a queue. Without a key of its own, a task is the same as another of its
 * queue when type and payload are. */
struct mr_uuid message_unique_key(struct mr_hash_key key, const struct mr_task_msg *msg);

/* A COPY record: when it was enqueued, what the index knew, the message. */
enum { COPY_HEAD = 8 };
MR_MUST_USE enum mr_err message_split_copy(struct mr_slice body, struct mr_entry *ret_entry,
                                           int64_t *ret_created_ms, struct mr_slice *ret_message);
/* A TASK, GATHERED, COPY, CARRIED or RESULT record of the task with this id. MR_DAMAGED when it is of
 * another one. */
MR_MUST_USE enum mr_err message_split(const struct mr_record *record, const struct mr_uuid *id,
                                      int64_t *ret_created_ms, struct mr_slice *ret_message);

/* The change in a record that has the last result or error of a task. */
MR_MUST_USE enum mr_err message_note(const struct mr_record *record,
                                     struct mr_event_change *ret_change);

/* Fills what the message says: names, payload, options, created. text: room for a UUID as text. */
MR_MUST_USE enum mr_err message_fill(const struct mr_task_msg *msg, const struct mr_uuid *id,
                                     bool is_uuid, char text[MR_UUID_TEXT_LEN + 1],
                                     struct mr_task *task);

#endif
