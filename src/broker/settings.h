/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What people have set for a queue, beside what has a place of its own in the formats (pause,
 * greatest length, partitions and who prefers them). Zero is the default of each, so that a queue
 * that nobody has set anything for has no bytes of it. The encoding is that of a protobuf message
 * whose fields have numbers by the table in settings.c: new ones go behind.
 */
#ifndef MR_BROKER_SETTINGS_H
#define MR_BROKER_SETTINGS_H

#include "base/buf.h"
#include "broker/broker.h"

struct mr_queue_settings {
    enum mr_retry_mode retry_mode;
    int64_t retry_wait_ms;  /* 0: MR_RETRY_WAIT_MS */
    struct mr_slice limits; /* encoded (limit.h); decoded it points into what it was read from */
    int64_t taken_ms; /* nobody has set this: when it last handed out a task, for its limits */
    /* Retries that fall due after this have a class of their own: with MR_RETRY_CLASS, when that was set. Those from
     * before were pending then, which no log says. */
    int64_t class_since_ms;
};

/* Changes what the request says, which was checked; nothing for what is none of these. */
void mr_queue_settings_change(struct mr_queue_settings *settings,
                              const struct mr_req_queue_set *req, int64_t now_ms);
/* Into what is shown of a queue. */
void mr_queue_settings_show(const struct mr_queue_settings *settings, struct mr_queue_info *info);

/* Appends the encoding. */
MR_MUST_USE enum mr_err mr_queue_settings_encode(const struct mr_queue_settings *settings,
                                                 struct mr_buf *buf);
/* MR_DAMAGED: these are none. */
MR_MUST_USE enum mr_err mr_queue_settings_decode(struct mr_slice bytes,
                                                 struct mr_queue_settings *ret_settings);

#endif
