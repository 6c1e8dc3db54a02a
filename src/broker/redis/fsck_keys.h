/* SPDX-License-Identifier: Apache-2.0 */
/* The keys that are there once, and of which type: of each queue, and of all together. internal.h says what they
 * hold. */
#ifndef MR_BROKER_REDIS_FSCK_KEYS_H
#define MR_BROKER_REDIS_FSCK_KEYS_H

#include <stdbool.h>

struct fsck_key {
    const char *name, *type; /* NULL at the end */
    bool of_ids;             /* its entries are looked at */
};

extern const struct fsck_key fsck_queue_keys[], fsck_global_keys[];

#endif
