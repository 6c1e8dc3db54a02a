/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread that touches new memory before its owner does. The first touch of a page costs the
 * kernel its clearing, and a virtual machine often more than that: in a burst of new tasks it was
 * half of what the owner's thread did. Only a wish: nothing depends on it.
 */
#ifndef MR_BASE_WARM_H
#define MR_BASE_WARM_H

#include "base/err.h"

struct mr_warm;

MR_MUST_USE enum mr_err mr_warm_new(struct mr_warm **ret_warm);
/* Ends the thread; memory asked for and not reached stays as it is. NULL is fine. */
void mr_warm_free(struct mr_warm *warm);
/* The memory may be unmapped at any time, even while it is being touched. warm may be NULL. */
void mr_warm_ask(struct mr_warm *warm, void *memory, size_t bytes);

#endif
