/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Walking over tasks page by page, for what the broker has no index of: texts, errors, and what is done to all that fit. How far
 * it goes is bounded; whether there was more is said.
 */
#ifndef MR_API_HTTP_SCAN_H
#define MR_API_HTTP_SCAN_H

#include "api/http_internal.h"

enum { HTTP_ERROR_LINE_MAX = 200 };

struct http_scan {
    /* What is looked for. */
    struct mr_list_options options; /* queue, state, type */
    struct mr_slice text;           /* as http_task_has_text has it; empty: any */
    struct mr_slice error;          /* exactly this line, if */
    bool by_error;
    bool operations; /* also operations on timers that could not be applied */
    size_t seen_max; /* tasks that are looked at, about */
    /* Called for each that fits and that the token may see; false: it is enough. */
    bool (*found)(struct http_call *call, const struct mr_task *task);
    /* Called at the end, unless the call was ended by an error. */
    void (*over)(struct http_call *call);
    /* How far it is. */
    size_t seen;
    bool more; /* there are some that were not looked at */
    char cursor[MR_CURSOR_MAX];
};

/* The scan, part of the call's own data, has what it says above. call->scan is set. */
void http_scan(struct http_call *call, struct http_scan *scan);

/* In its id, type, payload or error, whatever its case; the text has at most MR_NAME_MAX bytes. */
bool http_task_has_text(const struct mr_task *task, struct mr_slice text);
/* What errors are grouped by: the first line, or the beginning of it. */
struct mr_slice http_error_line(const struct mr_task *task);

#endif
