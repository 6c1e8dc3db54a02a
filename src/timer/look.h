/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Looking at timers: what the store has of them, made ready to be shown. One request and one answer for the
 * server's calls and for a client, be the timers in its own process or behind a server: then both go over the
 * wire as messages of timers.proto.
 */
#ifndef MR_TIMER_LOOK_H
#define MR_TIMER_LOOK_H

#include "timer/service.h"
#include "wire/timer.h"

enum mr_look_kind {
    MR_LOOK_GET,     /* one timer, by app and name */
    MR_LOOK_LIST,    /* timers by app and name: of an app, or of all when it is empty */
    MR_LOOK_NEXT,    /* when one fires next; without a name: when the definition would */
    MR_LOOK_HISTORY, /* its firings, newest first; also of one that was deleted not long ago */
    MR_LOOK_STATUS,  /* how all of it is */
    MR_LOOK_KIND_COUNT
};

enum {
    MR_LOOK_CURSOR_MAX = 300, /* bytes, its NUL included */
    MR_LOOK_LIMIT = 50,       /* where 0 is given */
    MR_LOOK_NEXT_LIMIT = 10,
};

/* An app, and who fires its timers: TimerApp of proto/. */
struct mr_timer_app {
    struct mr_slice app, owner; /* owner is empty when nobody does */
    uint64_t token;
    int64_t until_ms;
};

/* TimerStatusResponse of proto/, which says what the fields mean. */
struct mr_timer_status {
    struct mr_slice store, problem;
    uint64_t active, paused, finished;
    uint64_t waiting, retrying, dead;
    int64_t oldest_ms;
    uint64_t wait_p50_us, wait_p99_us;
    uint64_t fired, caught_up, skipped, misfired, succeeded, failed;
    uint64_t applied, stale, retried, rejected;
    uint64_t ownership_taken, ownership_lost;
    uint64_t lateness_p50_us, lateness_p99_us;
    struct mr_timer_app *apps;
    size_t apps_n;
};

struct mr_timer_look {
    enum mr_look_kind kind;
    /* What is asked; borrowed until done. */
    struct mr_slice app, name;  /* but for lists, an empty app is "default" */
    enum mr_timer_state state;  /* of lists; MR_TIMER_STATE_NONE: all */
    struct mr_slice cursor;     /* of the page before; empty: from the start */
    uint32_t limit;             /* at most MR_BATCH_MAX */
    int64_t after_ms;           /* of next: later than this; 0: than now */
    struct mr_slice definition; /* of next: TimerDefinition, encoded */
    void (*done)(
        struct mr_timer_look *look); /* once; the store's or the broker's thread, do little */
    void *arg;
    /* The answer; all of it in the arena. */
    enum mr_err err;
    struct mr_detail detail; /* what is wrong with a definition or a cursor; or empty */
    struct mr_timer_shown *timers;
    struct mr_slice *apps; /* of each of them, since they are encoded */
    size_t timers_n;
    struct mr_firing_info *firings;
    size_t firings_n;
    int64_t *times_ms;
    size_t times_n;
    struct mr_timer_status status;
    char next[MR_LOOK_CURSOR_MAX]; /* where the next page begins; empty: nowhere */
    struct mr_arena arena;
    void *work; /* of whoever answers it */
};

/* Frees the answer; not the request itself. */
void mr_timer_look_done(struct mr_timer_look *look);

/* Thread: any. */
void mr_timer_service_look(struct mr_timer_service *service, struct mr_timer_look *look);
/* The same, and waits for it; done and arg are not the caller's then. Not from the store's thread. */
MR_MUST_USE enum mr_err mr_timer_service_look_wait(struct mr_timer_service *service,
                                                   struct mr_timer_look *look);
/* The same through a server: MR_OP_CALL of a broker, MR_UNSUPPORTED where there is no server. */
MR_MUST_USE enum mr_err mr_timer_broker_look_wait(struct mr_broker *broker,
                                                  struct mr_timer_look *look);

/* ---- look_status.c ---------------------------------------------------------------------------- */

/* Answers look->status. */
void mr_timer_service_status(struct mr_timer_service *service, struct mr_timer_look *look);

/* ---- on the wire: timers.proto ---------------------------------------------------------------- */

/* Of kind, from the bytes of its request, into which the slices point. MR_INVALID with detail. */
MR_MUST_USE enum mr_err mr_look_read(enum mr_look_kind kind, struct mr_slice bytes,
                                     struct mr_timer_look *ret_look);
size_t mr_look_size(const struct mr_timer_look *look);
uint8_t *mr_look_write(const struct mr_timer_look *look, uint8_t *at);
/* The answer. What is read points into the bytes. */
size_t mr_look_answer_size(const struct mr_timer_look *look);
uint8_t *mr_look_answer_write(const struct mr_timer_look *look, uint8_t *at);
MR_MUST_USE enum mr_err mr_look_answer_read(struct mr_timer_look *look, struct mr_slice bytes);

#endif
