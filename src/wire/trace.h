/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The trace context of W3C in the headers of a task: traceparent, tracestate, baggage. It is carried as it came: nobody
 * here makes spans. What is not a trace context is left out, as the recommendation says, and never a reason to refuse a
 * task. Thread: any.
 */
#ifndef MR_WIRE_TRACE_H
#define MR_WIRE_TRACE_H

#include "base/arena.h"

enum mr_trace_part { MR_TRACE_PARENT, MR_TRACE_STATE, MR_TRACE_BAGGAGE, MR_TRACE_PARTS };
extern const char *const mr_trace_names[MR_TRACE_PARTS]; /* of headers, in lower case */

/* version-trace-parent-flags in hexadecimal; of a later version, that and more. */
bool mr_traceparent_valid(struct mr_slice text);

/* What an environment or a request says of it; empty: nothing. */
typedef struct mr_slice mr_trace_look(enum mr_trace_part part, void *arg);

struct mr_trace {
    struct mr_header headers[MR_TRACE_PARTS];
    size_t n;
};

/* What there is of a trace. Its values are copied into the arena, or with NULL live as long as those of look. */
MR_MUST_USE enum mr_err mr_trace_read(mr_trace_look *look, void *arg, struct mr_arena *arena,
                                      struct mr_trace *ret_trace);

/* Those headers that the task should have beside its own: a task with a trace keeps it, and what is beyond the limits of
 * headers is left out. */
size_t mr_trace_missing(const struct mr_trace *trace, const struct mr_header *headers, size_t n,
                        struct mr_header ret_headers[MR_TRACE_PARTS]);
/* Gives them to the task; the arena has its list of headers then. */
MR_MUST_USE enum mr_err mr_trace_add(const struct mr_trace *trace, struct mr_arena *arena,
                                     struct mr_task_options *task);

/* A look at headers of a task: arg is struct mr_trace_headers. */
struct mr_trace_headers {
    const struct mr_header *headers;
    size_t n;
};
mr_trace_look mr_trace_of_headers;

#endif
