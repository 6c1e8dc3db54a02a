/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A broker in memory that a test controls: it records what a worker says about each task, and can
 * be told to misbehave in ways no real engine does on demand. One thread of its own answers, as in
 * an engine. Nothing is retried: a task ends with its first accepted finish, except that one handed
 * back without a delay is pending again.
 */
#ifndef TESTS_SUPPORT_FAKE_BROKER_H
#define TESTS_SUPPORT_FAKE_BROKER_H

#include "broker/broker.h"

struct fake;

struct fake *fake_new(void);
/* The worker must be gone. */
void fake_free(struct fake *fake);
struct mr_broker *fake_broker(struct fake *fake);

/* Adds a pending task and answers its number. Slices must stay; the id is made from the number. */
size_t fake_add(struct fake *fake, const struct mr_task *task);
/* n tasks of one type, without a payload. */
void fake_add_many(struct fake *fake, const char *type, size_t n);

enum fake_state { FAKE_PENDING, FAKE_TAKEN, FAKE_BEGUN, FAKE_ENDED };

/* What is known of a task. Text is cut at the end of the array. */
struct fake_report {
    enum fake_state state;
    uint64_t epoch;
    size_t takes;    /* times it was handed out */
    size_t finishes; /* finishes for it, accepted or not */
    enum mr_outcome outcome;
    int64_t delay_ms;
    char error[256];
    char result[256];
    int percent; /* of the last progress; -1 none */
    char progress[256];
};
struct fake_report fake_look(struct fake *fake, size_t task);

/* Runs that had begun and not ended when their node was closed. */
size_t fake_crashes(struct fake *fake);

/* Bytes of payloads that one take got at most. */
size_t fake_take_bytes(struct fake *fake);

/* Each waits until it is so, and fails the test after 20 s. */
void fake_await_state(struct fake *fake, size_t task, enum fake_state state);
void fake_await_progress(struct fake *fake, size_t task, int percent);
void fake_await_taken(struct fake *fake, size_t taken);
void fake_await_ended(struct fake *fake, size_t ended);
void fake_await_handed_back(struct fake *fake, size_t n);
void fake_await_nodes(struct fake *fake, size_t opened);
/* This many more beats: a while, measured by the worker's own clock. */
void fake_await_more_beats(struct fake *fake, size_t n);

/* Tells the node, on the broker's thread. */
void fake_stop(struct fake *fake, size_t task, enum mr_stop_reason reason);
void fake_want(struct fake *fake);
/* The leases of the next take are told to stop before it is answered. */
void fake_stop_with_take(struct fake *fake, enum mr_stop_reason reason);

/* Beats are answered with this from now on. */
void fake_answer_beats(struct fake *fake, enum mr_err err);
/* Beats get no answer at all until the node is closed. */
void fake_swallow_beats(struct fake *fake);
/* The next n finish requests fail with err and change nothing. */
void fake_fail_finishes(struct fake *fake, size_t n, enum mr_err err);
/* Nothing is handed out while held. */
void fake_hold(struct fake *fake, bool held);

#endif
