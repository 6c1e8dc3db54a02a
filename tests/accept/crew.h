/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Eight workers at one broker, each a process behind a network of its own, and what befalls them: SIGKILL
 * (another one comes in its place), SIGSTOP for a while, and a network through which nothing passes for a
 * while, and nobody is told.
 */
#ifndef MR_TESTS_ACCEPT_CREW_H
#define MR_TESTS_ACCEPT_CREW_H

#include "accept/accept.h"
#include "base/rand.h"
#include "support/forwarder.h"

enum { CREW_WORKERS = 8, CREW_SLOTS = 4 };

enum crew_fault { CREW_KILL, CREW_STOP, CREW_PARTITION, CREW_FAULTS };

struct crew {
    struct accept *t;
    const char *queues;
    struct mr_rand rand;
    size_t faults[CREW_FAULTS]; /* so many so far */
    struct crew_worker {
        pid_t pid;
        struct forwarder network;
        bool stopped;
        mr_mono until; /* ... or cut off till then */
    } workers[CREW_WORKERS];
};

/* Starts them; MR_SEED seeds what is random. */
struct crew *crew_start(struct accept *t, const char *queues);
/* One of the first `kinds` faults for one of them. Who was stopped or cut off for long enough goes on. */
void crew_strike(struct crew *crew, size_t kinds);
/* Those whose time has come go on. */
void crew_go_on(struct crew *crew);
/* All of them go on. */
void crew_heal(struct crew *crew);
/* Kills those who are there, and frees it. */
void crew_end(struct crew *crew);

#endif
