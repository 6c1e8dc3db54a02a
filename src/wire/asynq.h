/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asynq's messages, byte for byte as its Go programs write them: proto3, fields in the order of their
 * numbers, defaults left out. Times are whole seconds since the Unix epoch, 0: none.
 *
 * Its texts must be UTF-8: a Go program that meets another stops over it, and over what stands behind
 * it. Names and ids are checked at the door; here error texts are made so, and a header that is not is
 * refused.
 *
 * Decoding takes what any peer wrote, known fields in any order, unknown ones skipped. Slices of a
 * decoded message point into its bytes. All of it appends to `out`, which is as it was on failure.
 */
#ifndef MR_WIRE_ASYNQ_H
#define MR_WIRE_ASYNQ_H

#include "base/arena.h"
#include "base/buf.h"

struct mr_asynq_task {
    struct mr_slice type, payload, id, queue, error, unique_key, group;
    int32_t retry, retried;
    int64_t timeout_s, deadline_s, last_failed_s, retention_s, completed_s;
    const struct mr_header *headers;
    size_t headers_n;
};

/* MR_INVALID: a header is not UTF-8. MR_NOMEM. */
MR_MUST_USE enum mr_err mr_asynq_task_encode(const struct mr_asynq_task *task, struct mr_buf *out);
/* headers are in the arena. MR_DAMAGED; MR_NOMEM: for these, all else is there. */
MR_MUST_USE enum mr_err mr_asynq_task_decode(struct mr_slice bytes, struct mr_arena *arena,
                                             struct mr_asynq_task *ret_task);

/*
 * The lock of a unique task: "PREFIXasynq:{QUEUE}:unique:TYPE:" and the MD5 of the payload; prefix: of
 * the namespace, "" or "NS:". Go has two empty payloads: nil, which adds nothing, is one
 * whose data is NULL. MR_NOMEM, MR_UNSUPPORTED: OpenSSL was set up without MD5.
 */
MR_MUST_USE enum mr_err mr_asynq_unique_key(struct mr_slice prefix, struct mr_slice queue,
                                            struct mr_slice type, struct mr_slice payload,
                                            struct mr_buf *out);

struct mr_asynq_time {
    int64_t seconds;
    int32_t nanos;
};

struct mr_asynq_server {
    struct mr_slice host, id, status;
    int32_t pid, concurrency, active;
    const struct mr_worker_queue *queues;
    size_t queues_n;
    bool strict; /* order of the queues */
    struct mr_asynq_time started;
};

MR_MUST_USE enum mr_err mr_asynq_server_encode(const struct mr_asynq_server *server,
                                               struct mr_buf *out);
/* queues are in the arena. MR_DAMAGED, MR_NOMEM. */
MR_MUST_USE enum mr_err mr_asynq_server_decode(struct mr_slice bytes, struct mr_arena *arena,
                                               struct mr_asynq_server *ret_server);

struct mr_asynq_worker {
    struct mr_slice host, server_id, task_id, task_type, task_payload, queue;
    int32_t pid;
    struct mr_asynq_time started, deadline;
};

MR_MUST_USE enum mr_err mr_asynq_worker_encode(const struct mr_asynq_worker *worker,
                                               struct mr_buf *out);

/* Go's zero time: of what never happened. */
#define MR_ASYNQ_NEVER_S (-62135596800LL)

/* An entry of a scheduler. */
struct mr_asynq_entry {
    struct mr_slice id, spec, task_type, task_payload;
    const struct mr_slice *options; /* as Go prints them: Queue("low") */
    size_t options_n;
    struct mr_asynq_time next, prev;
};

MR_MUST_USE enum mr_err mr_asynq_entry_encode(const struct mr_asynq_entry *entry,
                                              struct mr_buf *out);
/* That an entry has enqueued a task. */
MR_MUST_USE enum mr_err mr_asynq_enqueued_encode(struct mr_slice task_id,
                                                 const struct mr_asynq_time *at,
                                                 struct mr_buf *out);

#endif
