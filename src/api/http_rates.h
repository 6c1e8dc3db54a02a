/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What those who call by HTTP may change in a time. Many have a connection for each request, so who somebody is, is his token; without
 * one it is his address. Thread: the server's.
 */
#ifndef MR_API_HTTP_RATES_H
#define MR_API_HTTP_RATES_H

#include "api/rate.h"
#include "base/err.h"

struct http_rates;

enum { HTTP_RATES_MAX = 4096 /* callers that are remembered at a time; others are refused */ };

/* a_second: of each, not 0. */
MR_MUST_USE enum mr_err http_rates_new(uint32_t a_second, struct http_rates **ret_rates);
/* NULL is fine. */
void http_rates_free(struct http_rates *rates);
/* What he may send, made where he has sent nothing lately; it lives until the next call. MR_BUSY: too many have; MR_NOMEM; with
 * detail. */
MR_MUST_USE enum mr_err http_rates_of(struct http_rates *rates, const char *caller, mr_mono now,
                                      struct rate **ret_rate, struct mr_detail *detail);

#endif
