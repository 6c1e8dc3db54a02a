/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Results, as all engines have them: the names of their queues, their ids, receipts and encoding. See
 * struct mr_finish.
 */
#ifndef MR_BROKER_RESULT_H
#define MR_BROKER_RESULT_H

#include "base/buf.h"
#include "broker/hidden.h"

/* The queue of a topic's results, written to name. */
struct mr_slice mr_result_queue(struct mr_slice topic, char name[MR_NAME_MAX + 1]);
/* The topic of a result queue; empty for any other. */
struct mr_slice mr_result_topic(struct mr_slice queue);

/* The id of what the run of a task under this epoch left: one run, one result. */
struct mr_uuid mr_result_id(struct mr_slice task_id, uint64_t epoch);

/* The payload of a result; Result of proto/. What stands in it last is its result, or its error where it
 * has no result. Without its receipt. */
MR_MUST_USE enum mr_err mr_result_encode(const struct mr_result *result, struct mr_buf *buf);
/* MR_DAMAGED when the bytes are none. Slices point into them. */
MR_MUST_USE enum mr_err mr_result_decode(struct mr_slice bytes, struct mr_result *ret_result);
/* All of an encoding but its result and its error is within this. */
enum { MR_RESULT_HEAD_MAX = MR_ID_MAX + 3 * MR_NAME_MAX + 96 };

/* ID.EPOCH */
enum { MR_RECEIPT_MAX = MR_ID_MAX + 1 + 20 };
void mr_receipt_format(struct mr_slice id, uint64_t epoch, char text[MR_RECEIPT_MAX + 1]);
/* False when it is none. ret_id points into it. */
bool mr_receipt_parse(struct mr_slice receipt, struct mr_slice *ret_id, uint64_t *ret_epoch);

#endif
