/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Masters as processes that may be killed at any time: they submit tasks, take results and commit them, and
 * note in a file what they do before they do it, and what was answered. The test reads it when they are gone.
 */
#ifndef MR_TESTS_ACCEPT_BOSS_H
#define MR_TESTS_ACCEPT_BOSS_H

#include "accept/accept.h"

enum boss_note {
    BOSS_SENT,      /* a task is about to be submitted */
    BOSS_ACCEPTED,  /* and was */
    BOSS_TAKEN,     /* a final result is about to be committed */
    BOSS_COMMITTED, /* and was */
};

struct boss_options {
    const char *name; /* ids of its tasks begin with it */
    const char *topic;
    bool submits;
    int64_t beat_ms; /* 0: ACCEPT_BEAT_MS */
    int64_t pace_ms; /* it rests so long between two turns */
    int64_t nap_ms;  /* its tasks last up to so long; 0: 20 */
};

/* SIGTERM ends it with a good end. */
pid_t boss_spawn(struct accept *t, const char *url, const struct boss_options *options);
int boss_main(int argc, char **argv);

/* Of all of them so far: remembers what was accepted, and of what was not answered that which is there.
 * Before the last results are counted. */
void boss_remember(struct accept *t);
/* What is left in the topic is taken, and each task that has ended is found to have had one final result
 * accepted; or none, where the answer to a commit was lost. Then the notes are forgotten. */
void boss_one_final_each(struct accept *t, const char *topic);

#endif
