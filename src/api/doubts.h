/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Nodes whose stream broke and that may still come back: the loop of the rpc knows of them, and the thread of HTTP shows them. A
 * few words that both see; what does not fit is shown as live for the seconds until it is back, or gone.
 */
#ifndef MR_API_DOUBTS_H
#define MR_API_DOUBTS_H

#include <stdatomic.h>

#include "broker/broker.h"

enum { MR_DOUBTS_MAX = 1024 };

struct mr_doubts {
    _Atomic uint64_t nodes[MR_DOUBTS_MAX]; /* incarnations; 0: none */
    _Atomic uint64_t n;
};

/* NULL is fine for all of them: nobody asks. Thread: one, the loop of the rpc. */
void mr_doubts_add(struct mr_doubts *doubts, uint64_t node);
void mr_doubts_remove(struct mr_doubts *doubts, uint64_t node);
/* Those that live by what the broker says are suspect. Thread: any. */
void mr_doubts_mark(const struct mr_doubts *doubts, struct mr_node_info *nodes, size_t n);

#endif
