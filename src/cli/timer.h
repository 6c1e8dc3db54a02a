/* SPDX-License-Identifier: Apache-2.0 */
/* What the verbs of `millrace timer` share. */
#ifndef MR_CLI_TIMER_H
#define MR_CLI_TIMER_H

#include "cli/show.h"
#include "cli/watch.h"
#include "client/timer_look.h"
#include "timer/rule.h"

/* ---- timer_define.c -------------------------------------------------------------------------- */

/* The flags that define a timer. */
struct timer_args {
    struct cli_value app;
    struct cli_value kinds[MR_TIMER_KIND_COUNT]; /* one for each, in their order */
    struct cli_value tz, queue, type, retry, timeout, priority, misfire, overlap, max_running,
        strategy, jitter, exclude, start, end, times, expire, header;
    struct cli_value if_version, no_wait; /* update; create and update */
    struct cli_value count;               /* next */
};

enum {
    TIMER_CREATE_OPTIONS_N = 26,
    TIMER_UPDATE_OPTIONS_N = TIMER_CREATE_OPTIONS_N + 1,
    TIMER_NEXT_OPTIONS_N = 15
};
extern const struct cli_option timer_create_options[TIMER_CREATE_OPTIONS_N];
extern const struct cli_option timer_update_options[TIMER_UPDATE_OPTIONS_N];
extern const struct cli_option timer_next_options[TIMER_NEXT_OPTIONS_N];

/* Puts what was given into the definition and leaves the rest; headers has room for all there may be.
 * 0, or the exit code after saying what is wrong. */
int timer_define(const struct cli *cli, const struct timer_args *args,
                 struct mr_timer_options *timer, struct mr_header headers[MR_HEADERS_MAX]);
/* Whether anything that a definition says was given. */
bool timer_args_define(const struct timer_args *args);
/* How many kinds were given. */
size_t timer_args_kinds(const struct timer_args *args);

cli_run timer_run_create, timer_run_update;

/* ---- timer_show.c ---------------------------------------------------------------------------- */

struct out_table *timer_table(void);
void timer_row(struct out_table *table, const struct mr_timer_info *info);
struct out_table *firing_table(void);
void firing_row(struct out_table *table, const struct mr_firing_info *firing);
/* Field by field, and the next planned times. */
void timer_text(const struct mr_timer_info *info, const int64_t *next_ms, size_t n);
void timer_status_json(struct jw *jw, const struct mr_timer_status *status);
void timer_status_text(const struct mr_timer_status *status);
/* As a clock in the zone shows it: "2026-12-24T18:00:00+01:00". */
void timer_local(const struct mr_zone *zone, int64_t ms, char text[40]);
/* The zone of a timer, UTC where this machine does not know it. */
const struct mr_zone *timer_zone(struct mr_slice tz);

/* ---- timer.c --------------------------------------------------------------------------------- */

/* Of --app. */
struct mr_slice timer_app(const struct cli_value *app);
/* What became of an operation on cli->words[0]; 0, or the exit code after saying why not. */
int timer_report(const struct cli *cli, enum mr_err err, const struct mr_timer_result *result);
/* Says that there is no looking at timers here, that there is no such one, and the like. */
int timer_look_failed(const struct cli *cli, enum mr_err err, const char *name);

#endif
