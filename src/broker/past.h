/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a task has behind it: runs that did not end well, and what people did to it. Its own fields tell only the last of them.
 *
 * It goes as text in mr_task.past, entries in the order of time, each a line and what follows it:
 *
 *   MS STARTED_MS ATTEMPT WHAT NODE_LEN TEXT_LEN\n
 *   NODE TEXT\n                                    without the space
 *
 * An engine keeps the last MR_PAST_MAX of a task, and may know of fewer: the embedded engine since its start alone, and those of
 * the last few thousand; a Redis what our programs did. Runs of others, such as Go's, are in none; what was handed back,
 * or lost before it had begun, is no run.
 */
#ifndef MR_BROKER_PAST_H
#define MR_BROKER_PAST_H

#include "base/buf.h"

enum {
    MR_PAST_MAX = 16,       /* of a task */
    MR_PAST_TEXT_MAX = 256, /* bytes of what was said */
};

struct mr_past {
    int64_t ms;
    int64_t started_ms; /* of the run that ended so; 0: it was no run */
    uint32_t attempt;   /* the number of the run; 0 */
    /* How the run ended, a name of enum mr_attempt; or what somebody did: cancel, run, archive, prioritise. */
    struct mr_slice what;
    struct mr_slice node, text;
};

/* The text is cut where it is too long. */
MR_MUST_USE enum mr_err mr_past_add(struct mr_buf *buf, const struct mr_past *past);
/* The first entry of the rest, which goes on behind it; false: there is none, or none that makes sense. */
bool mr_past_next(struct mr_slice *rest, struct mr_past *ret_past);

#endif
