/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages of proto/millrace/v1/names.proto, between their bytes and the structs of this module. What was read is
 * within the limits of registry.h and subapp.h; whether entries can be is the registry's matter. Thread: any.
 */
#ifndef MR_NAMES_WIRE_H
#define MR_NAMES_WIRE_H

#include "base/buf.h"
#include "names/registry.h"
#include "names/subapp.h"

enum { MR_NAMES_WIRE_MAX = MR_NAMES_MSG_BYTES + MR_NAMES_MSG_BYTES / 2 }; /* bytes of any message */

/* Appends NameMessage. MR_NOMEM. */
MR_MUST_USE enum mr_err mr_names_encode(const struct mr_names_msg *msg, struct mr_buf *buf);
/* Texts point into the bytes, all else is the arena's. MR_INVALID, MR_TOO_BIG, MR_NOMEM. */
MR_MUST_USE enum mr_err mr_names_decode(struct mr_slice bytes, struct mr_arena *arena,
                                        struct mr_names_msg *ret_msg);

/* SubApps likewise, as the store keeps it. MR_DAMAGED: no table can be like this. */
MR_MUST_USE enum mr_err mr_subapps_encode(const struct mr_subapps *table, struct mr_buf *buf);
MR_MUST_USE enum mr_err mr_subapps_decode(struct mr_slice bytes, struct mr_subapps *ret_table);

#endif
