/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A call of many messages to a server, for a thread that waits: parts of a job go so, its result and its changes come
 * so. What is sent waits for the server to take it, what comes for the thread to take it; neither piles up.
 */
#ifndef MR_BROKER_REMOTE_STREAM_H
#define MR_BROKER_REMOTE_STREAM_H

#include "broker/broker.h"

struct mr_remote_stream;

/* broker: of mr_remote_open; it outlives the stream. path: a literal. MR_UNAVAILABLE, MR_BUSY, MR_NOMEM. */
MR_MUST_USE enum mr_err mr_remote_stream_open(struct mr_broker *broker, const char *path,
                                              struct mr_remote_stream **ret_stream);
/* Copies. MR_CLOSED: the server has ended it; mr_remote_stream_next says how. */
MR_MUST_USE enum mr_err mr_remote_stream_send(struct mr_remote_stream *stream,
                                              struct mr_slice bytes);
/* That was all. */
void mr_remote_stream_half_close(struct mr_remote_stream *stream);
/* The next message; it lives until the next call. MR_EMPTY: there is none any more; MR_TIMEOUT: not within max_ns;
 * else how the server or the connection has ended it, with detail (may be NULL). */
MR_MUST_USE enum mr_err mr_remote_stream_next(struct mr_remote_stream *stream, int64_t max_ns,
                                              struct mr_slice *ret_bytes, struct mr_detail *detail);
/* Gives it up, unless it has ended. NULL is fine. */
void mr_remote_stream_free(struct mr_remote_stream *stream);

#endif
