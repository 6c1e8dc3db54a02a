/* SPDX-License-Identifier: Apache-2.0 */
/* What is written of a queue's partitions: parts.c says where. Thread: any. */
#ifndef MR_BROKER_REDIS_ROW_H
#define MR_BROKER_REDIS_ROW_H

#include "base/slice.h"

/* "PARTITIONS WIDEST ASSIGN" */
struct parts_row {
    uint32_t partitions; /* tasks go into so many */
    uint32_t widest;     /* ... and may be in so many */
    enum mr_assign assign;
};

enum { PARTS_ROW_MAX = sizeof "64 64 1" };

/* False: it makes no sense, so it is none. ret_rest: what stands behind it; NULL: nothing may. */
bool parts_row_read(struct mr_slice text, struct parts_row *ret_row, struct mr_slice *ret_rest);

/* The mark in each partition: its queue's row, and behind it the name of that queue. */
bool parts_mark_read(struct mr_slice text, struct mr_slice partition, struct parts_row *ret_row,
                     struct mr_slice *ret_queue);

#endif
