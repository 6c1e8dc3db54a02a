/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages for people and log collectors: one line, key=value, control characters escaped, repeats
 * rate-limited with a count of what was left out. Level 4 modules and up call it; lower ones return
 * errors. Thread: any.
 */
#ifndef MR_BASE_DIAG_H
#define MR_BASE_DIAG_H

#include "base/clock.h"
#include "base/slice.h"

enum mr_diag_level { MR_DIAG_DEBUG, MR_DIAG_INFO, MR_DIAG_WARN, MR_DIAG_ERROR };

/* Where lines go; the default writes to stderr. NULL restores it. Counts of left out lines that are
 * still open go to the old one. A sink is called by one thread at a time and must not call mr_diag.
 */
typedef void mr_diag_sink(enum mr_diag_level level, const char *line, void *arg);
void mr_diag_set_sink(mr_diag_sink *sink, void *arg);
/* Where time comes from; NULL restores the machine's. Forgets what was counted. */
void mr_diag_set_clock(struct mr_clock *clock);

/* Lines below MR_DIAG_INFO are dropped. event is a short fixed name such as "task.failed"; fmt gives the key=value pairs. */
void mr_diag(enum mr_diag_level level, const char *event, const char *fmt, ...) MR_PRINTF(3, 4);
/* Copies bytes as printable text: quotes, backslashes and control characters escaped, cut at cap
 * - 1. */
const char *mr_diag_escape(struct mr_slice bytes, char *text, size_t cap);

#endif
