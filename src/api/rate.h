/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What somebody may send in a time: so much a second, and as much at once. What is more than fits at once goes when nothing
 * was sent for a second, and is owed: until it is paid nothing else goes. Thread: the owner.
 */
#ifndef MR_API_RATE_H
#define MR_API_RATE_H

#include "base/clock.h"
#include "base/diag.h"

struct rate {
    uint32_t a_second; /* 0: there is no limit, and the rest means nothing */
    double room;       /* what may go now; below 0: what is owed */
    mr_mono at;        /* when that was so */
};

void rate_init(struct rate *rate, uint32_t a_second, mr_mono now);
/* Takes n. MR_BUSY, with detail: it is too much now. */
MR_MUST_USE enum mr_err rate_pay(struct rate *rate, mr_mono now, size_t n,
                                 struct mr_detail *detail);
/* Takes n more for a call that has just paid for itself; when it may not have them, it gets that back. */
MR_MUST_USE enum mr_err rate_pay_more(struct rate *rate, mr_mono now, size_t n,
                                      struct mr_detail *detail);
/* Seconds until n may go, at least 1. */
int64_t rate_wait_s(const struct rate *rate, size_t n);
/* Whether as much may go as if nothing had been sent yet. */
bool rate_is_whole(struct rate *rate, mr_mono now);

#endif
