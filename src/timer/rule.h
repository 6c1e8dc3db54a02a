/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Time rules: when a timer fires. A rule is made of what people type, never changes, and knows
 * neither the clock nor what has happened: everything is an argument. docs/timers.md says what
 * the texts mean and what daylight saving does.
 */
#ifndef MR_TIMER_RULE_H
#define MR_TIMER_RULE_H

#include "base/buf.h"
#include "timer/zone.h"

/* Later than every planned time. */
#define MR_NEVER_MS INT64_MAX
/* Periods and delays; also how long a jitter may be. */
#define MR_RULE_PERIOD_MAX_MS (36525 * MR_MS_PER_DAY)

struct mr_rule;

/* Times are ms since the Unix epoch. */
struct mr_rule_options {
    enum mr_timer_kind kind;
    struct mr_slice expression; /* what the kind takes */
    struct mr_slice tz;         /* empty: UTC */
    struct mr_slice exclude;    /* days without firings; empty: none */
    int64_t created_ms;
    int64_t start_ms, end_ms; /* nothing is planned before start or after end; 0: no limit */
    int64_t jitter_ms;        /* fire up to so much later than planned; 0: at once */
    uint64_t times;           /* so many firings at most; 0: no limit */
};

/* MR_INVALID with what is wrong, where and what was expected, in one line. The rule keeps zones of
 * `zones`, which must outlive it. Thread: any. */
MR_MUST_USE enum mr_err mr_rule_new(struct mr_zones *zones, const struct mr_rule_options *options,
                                    struct mr_rule **ret_rule, struct mr_detail *detail);
void mr_rule_free(struct mr_rule *rule); /* NULL is fine */

/* "@every 10m" given as cron is of the kind every. */
enum mr_timer_kind mr_rule_kind_of(const struct mr_rule *rule);
/* Appends the expression in its one canonical form: what means the same reads the same, and reading
 * it gives the same rule. */
MR_MUST_USE enum mr_err mr_rule_put(const struct mr_rule *rule, struct mr_buf *buf);
MR_MUST_USE enum mr_err mr_rule_put_exclude(const struct mr_rule *rule, struct mr_buf *buf);
const struct mr_zone *mr_rule_zone(const struct mr_rule *rule);

/* The first planned time later than after_ms, when `fired` firings have been; MR_NEVER_MS when
 * there is none. After-done: after_ms is when the last run ended (or the creation). Manual: never.
 * Thread: any. */
int64_t mr_rule_next(const struct mr_rule *rule, uint64_t fired, int64_t after_ms);

/* When the firing planned for planned_ms is to happen: up to the jitter later, always the same for
 * the same timer and time, before the next planned one and not after the end. */
int64_t mr_rule_fire_ms(const struct mr_rule *rule, const struct mr_uuid *uid, int64_t planned_ms);

#endif
