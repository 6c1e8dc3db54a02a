/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Definitions of timers: checked whole, brought into their one form, encoded, and made into rules. Pure, but for
 * the zones. Thread: any.
 */
#ifndef MR_TIMER_DEF_H
#define MR_TIMER_DEF_H

#include "base/arena.h"
#include "base/id.h"
#include "timer/rule.h"
#include "wire/timer.h"

#define MR_TIMER_APP "default" /* of a timer that names none */

/* Versions further ahead of our clock are refused, unless a setting says otherwise. */
enum { MR_TIMER_AHEAD_MS = 1000 };

#define MR_TIMER_VERSION_MAX (UINT64_MAX / 4) /* microseconds that sums stay within */

/* A definition as it is kept: names that may be left out are filled in, the rule is in its canonical text.
 * Slices point into what was given, or into the arena. MR_INVALID, MR_TOO_BIG: detail says why in one line. */
MR_MUST_USE enum mr_err
mr_timer_canonical(struct mr_zones *zones, const struct mr_timer_options *options,
                   int64_t created_ms, size_t payload_max, struct mr_arena *arena,
                   struct mr_timer_options *ret_options, struct mr_detail *detail);
/* The rule of a definition. */
MR_MUST_USE enum mr_err mr_timer_rule(struct mr_zones *zones,
                                      const struct mr_timer_options *options, int64_t created_ms,
                                      struct mr_rule **ret_rule, struct mr_detail *detail);
/* Whether both plan the same times. */
bool mr_timer_same_rule(const struct mr_timer_options *a, const struct mr_timer_options *b);
/* What the task of a firing is, but for its id, due time and the like. Slices are those of the timer. */
struct mr_task_options mr_timer_task(const struct mr_timer_options *options);

/* Appends the encoding: TimerDefinition of proto/. */
MR_MUST_USE enum mr_err mr_timer_encode(const struct mr_timer_options *options, struct mr_buf *buf);
/* MR_DAMAGED: the bytes are none. Slices point into them, headers are in the arena. */
MR_MUST_USE enum mr_err mr_timer_decode(struct mr_slice bytes, struct mr_arena *arena,
                                        struct mr_timer_options *ret_options);
/* The same of one that was sent: MR_INVALID with its reason. */
MR_MUST_USE enum mr_err mr_timer_read(struct mr_slice bytes, struct mr_arena *arena,
                                      struct mr_timer_options *ret_options,
                                      struct mr_detail *detail);

/* An operation, encoded: TimerOperation of proto/. */
MR_MUST_USE enum mr_err mr_timer_operation_decode(struct mr_slice bytes,
                                                  struct mr_timer_operation *ret_op);
/* What stands beside the definition, checked: ids, names, version, times. The app is filled in. now: nothing
 * may be more than ahead_ms ahead of it. */
MR_MUST_USE enum mr_err mr_timer_operation_check(struct mr_timer_operation *op, mr_wall now,
                                                 int64_t ahead_ms, struct mr_detail *detail);

/* The next version of a producer: its clock in microseconds, above its last one, and above the one of the timer that
 * it has seen, whose producer's clock may be ahead; seen may be 0 or MR_TIMER_NEW. Others stay as they are: one
 * that is far ahead would be refused. */
uint64_t mr_timer_version(_Atomic uint64_t *last, mr_wall now, uint64_t seen);
/* A firing by hand has a time of its own, as each that was planned has: now, and above the last one. */
int64_t mr_timer_run_ms(_Atomic int64_t *last, mr_wall now);

/* What became of one: TimerResult of proto/, the result of its task. */
MR_MUST_USE enum mr_err mr_timer_result_decode(struct mr_slice bytes,
                                               struct mr_timer_result *ret_result);

#endif
