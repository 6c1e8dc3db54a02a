/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Telling somebody: what went wrong with timers goes as JSON to a command, on its standard input, or to an
 * http(s) URL, one event after the other. A thread of its own does it, so nobody waits; when it cannot keep up,
 * events are dropped and counted in the log. An event that could not be delivered is tried again, with the same id.
 */
#ifndef MR_TIMER_ALARM_H
#define MR_TIMER_ALARM_H

#include "base/buf.h"

struct mr_alarm;

/* What is empty or 0 is left out. */
struct mr_alarm_event {
    const char *kind; /* "failed", "misfired", "no_worker", "dead" */
    struct mr_slice app, timer;
    int64_t planned_ms, until_ms;
    struct mr_slice task_id, operation;
    const char *verb; /* of an operation; or NULL */
    struct mr_slice reason;
};

/* target: a command for the shell, or a URL. secret: of the signature, or NULL. Both are copied. MR_INVALID
 * with detail: the URL is none. */
MR_MUST_USE enum mr_err mr_alarm_start(const char *target, const char *secret,
                                       struct mr_alarm **ret_alarm, struct mr_detail *detail);
/* What has not been told is lost after a moment. NULL is fine. */
void mr_alarm_stop(struct mr_alarm *alarm);
/* Thread: any. NULL is fine. */
void mr_alarm_tell(struct mr_alarm *alarm, const struct mr_alarm_event *event);

/* ---- webhook.c -------------------------------------------------------------------------------- */

/* A URL in its parts. */
struct mr_webhook {
    bool tls;
    char host[256], path[1024];
    uint16_t port;
};
/* MR_INVALID with detail. */
MR_MUST_USE enum mr_err mr_webhook_parse(const char *url, struct mr_webhook *ret_hook,
                                         struct mr_detail *detail);
/* One POST of JSON; MR_OK when it was answered with 2xx. secret may be NULL. Waits up to max_ms. */
MR_MUST_USE enum mr_err mr_webhook_post(const struct mr_webhook *hook, const char *secret,
                                        struct mr_slice body, int64_t max_ms,
                                        struct mr_detail *detail);

#endif
