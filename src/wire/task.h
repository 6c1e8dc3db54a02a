/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The task message: what a producer said about a task, which never changes afterwards. It is
 * encoded on the producer's thread, stands in the log as it is, and is decoded in place on the
 * worker's thread.
 *
 *   0  u8  version (1)
 *   1  u8  queue length
 *   2  u8  type length
 *   3  u8  id length (0: the id is a UUID kept elsewhere)
 *   4  u16 max_retry
 *   6  u16 fields: bits of enum task_field that are present
 *   8  u32 payload length
 *   12     the present fields in the order of their bits: numbers as i64; names as u8 length and
 *          bytes; headers as u16 count, then u16 + u16 lengths and the bytes of each
 *          then the bytes of queue, type, id and payload
 */
#ifndef MR_WIRE_TASK_H
#define MR_WIRE_TASK_H

#include "base/arena.h"
#include "base/buf.h"

enum { MR_TASK_VERSION = 1, MR_TASK_FIXED = 12 };

#define MR_DEFAULT_QUEUE      "default"
#define MR_DEFAULT_TOPIC      "default" /* that a master takes from */
#define MR_DEFAULT_TYPE       "task"
#define MR_DEFAULT_MAX_RETRY  25
#define MR_DEFAULT_TIMEOUT_MS (30 * 60 * 1000LL)
/* Of what comes from the command line or by HTTP; from programs none. */
#define MR_PEOPLE_RETENTION_MS (60 * 60 * 1000LL)

static inline struct mr_slice mr_queue_or_default(struct mr_slice queue)
{
    return queue.len > 0 ? queue : MR_SLICE_LIT(MR_DEFAULT_QUEUE);
}

/* The static part of a task, defaults filled in; names and payload as slices. */
struct mr_task_msg {
    struct mr_slice queue, type, id, payload, unique_key, group, topic, key;
    uint32_t max_retry;
    int64_t timeout_ms;  /* 0: none */
    int64_t deadline_ms; /* 0: none */
    int64_t retention_ms, unique_ms, priority_ms;
    struct mr_slice headers; /* encoded; see mr_task_msg_headers */
    size_t headers_n;
};

/* Appends the encoding of checked options. An empty id: it is a UUID that stands beside the
 * message. */
MR_MUST_USE enum mr_err mr_task_msg_encode(const struct mr_task_options *options,
                                           struct mr_slice id, struct mr_buf *buf);
/* Slices point into bytes. MR_DAMAGED when they are not such a message, MR_VERSION for a newer one.
 */
MR_MUST_USE enum mr_err mr_task_msg_decode(struct mr_slice bytes, struct mr_task_msg *ret_msg);
/* Fills headers_n entries. */
void mr_task_msg_headers(const struct mr_task_msg *msg, struct mr_header *ret_headers);
/* Seconds ahead as whole milliseconds. */
int64_t mr_priority_ms(double priority_s);
/* Upper bound of the encoded size, for reserving. */
size_t mr_task_msg_bound(const struct mr_task_options *options, struct mr_slice id);

#endif
