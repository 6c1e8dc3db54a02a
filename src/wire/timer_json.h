/* SPDX-License-Identifier: Apache-2.0 */
/* Timers and firings in JSON: the same for people's commands and for HTTP. */
#ifndef MR_WIRE_TIMER_JSON_H
#define MR_WIRE_TIMER_JSON_H

#include "wire/jw.h"

void jw_timer(struct jw *jw, const struct mr_timer_info *info);
void jw_firing(struct jw *jw, const struct mr_firing_info *firing);

/* "key:K", "tag:T", "any". */
MR_MUST_USE enum mr_err mr_timer_strategy_text(const struct mr_timer_options *timer,
                                               struct mr_buf *text);
/* The same read: sets strategy and target. False: it is none. */
MR_MUST_USE bool mr_timer_strategy_read(struct mr_slice text, struct mr_timer_options *timer);
/* As it is for each task: 0 stands for none here. */
int64_t mr_timer_max_retry(const struct mr_timer_options *timer);
int64_t mr_timer_timeout_ms(const struct mr_timer_options *timer);

#endif
