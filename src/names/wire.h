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

enum {
    MR_NAMES_WIRE_MAX = MR_NAMES_MSG_BYTES + MR_NAMES_MSG_BYTES / 2, /* bytes of any message */
    MR_NAMES_PAGE_MAX = 10000,                                       /* entries of a page */
};

/* Appends NameMessage. MR_NOMEM. */
MR_MUST_USE enum mr_err mr_names_encode(const struct mr_names_msg *msg, struct mr_buf *buf);
/* Texts point into the bytes, all else is the arena's. MR_INVALID, MR_TOO_BIG, MR_NOMEM. */
MR_MUST_USE enum mr_err mr_names_decode(struct mr_slice bytes, struct mr_arena *arena,
                                        struct mr_names_msg *ret_msg);

/* NameEntry: a registration. */
MR_MUST_USE enum mr_err mr_names_entry_encode(const struct mr_names_entry *entry,
                                              struct mr_buf *buf);
MR_MUST_USE enum mr_err mr_names_entry_decode(struct mr_slice bytes,
                                              struct mr_names_entry *ret_entry);

/* NameRegistered. */
struct mr_names_registered {
    enum mr_names_put put;
    bool complete;
    uint64_t from, servers, workers;
};
MR_MUST_USE enum mr_err mr_names_registered_encode(const struct mr_names_registered *answer,
                                                   struct mr_buf *buf);
MR_MUST_USE enum mr_err mr_names_registered_decode(struct mr_slice bytes,
                                                   struct mr_names_registered *ret_answer);

/* NameListRequest. */
struct mr_names_query {
    enum mr_names_kind kind;
    struct mr_slice app;
    uint64_t from, known;
    int64_t wait_ms;
    struct mr_slice after_name;
    uint64_t after_incarnation;
};
MR_MUST_USE enum mr_err mr_names_query_encode(const struct mr_names_query *query,
                                              struct mr_buf *buf);
MR_MUST_USE enum mr_err mr_names_query_decode(struct mr_slice bytes,
                                              struct mr_names_query *ret_query);

/* NameListResponse. */
struct mr_names_page {
    uint64_t from, changed;
    bool complete, more;
    const struct mr_names_entry *entries;
    size_t entries_n;
};
/* Of the entries only so many as a message has room for: entries_n and more are set by that. */
MR_MUST_USE enum mr_err mr_names_page_encode(struct mr_names_page *page, struct mr_buf *buf);
MR_MUST_USE enum mr_err mr_names_page_decode(struct mr_slice bytes, struct mr_arena *arena,
                                             struct mr_names_page *ret_page);

/* SubApps likewise, as the store keeps it. MR_DAMAGED: no table can be like this. */
MR_MUST_USE enum mr_err mr_subapps_encode(const struct mr_subapps *table, struct mr_buf *buf);
MR_MUST_USE enum mr_err mr_subapps_decode(struct mr_slice bytes, struct mr_subapps *ret_table);

#endif
