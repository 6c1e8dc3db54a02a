/* SPDX-License-Identifier: Apache-2.0 */
/* Which of a Cluster's slots a key belongs to. */
#ifndef MR_REDIS_SLOT_H
#define MR_REDIS_SLOT_H

#include "base/slice.h"

enum { REDIS_SLOTS = 16384 };

/* Of the text between the first '{' and the next '}' if there is any, else of the whole key. */
uint16_t redis_slot(struct mr_slice key);

#endif
