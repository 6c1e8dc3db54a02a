/* SPDX-License-Identifier: Apache-2.0 */
#include "cluster/cluster.h"

#include <stdlib.h>

#include "base/diag.h"
#include "cluster/internal.h"

static const struct step {
    const char *name;
    enum mr_err (*take)(struct mr_broker *broker, uint64_t term, bool *ret_again);
} steps[] = {
    {"assign", mr_step_assign},
};
enum { STEPS = sizeof steps / sizeof *steps };

/* Beats may be far apart: so long those who came and went are waited for, where that is of interest. */
enum { AGAIN_MS = 1000 };

struct mr_cluster {
    struct mr_broker *broker;
    struct mr_clock *clock;
    struct mr_lock lock; /* over what follows */
    uint64_t term;       /* 0: it does not lead */
    mr_mono until;
    mr_mono again_at; /* the steps are taken without a beat */
    bool due, ends;
    bool there; /* the thread */
    pthread_t thread;
    enum mr_err said[STEPS]; /* the thread's: how each went the last time */
};

/* Once, while nothing changes. What passes by itself is of no interest: a broker out of reach, or that another
 * one leads now. */
static void note(struct mr_cluster *c, size_t i, enum mr_err err)
{
    bool passes = err == MR_STALE || err == MR_CLOSED || mr_err_retriable(err);
    if (err != MR_OK && err != c->said[i])
        mr_diag(passes ? MR_DIAG_DEBUG : MR_DIAG_WARN, "leader.step", "step=%s error=%s ignoring",
                steps[i].name, mr_err_name(err));
    c->said[i] = err;
}

/* The term under which it may act now; 0: it may not. Under the lock. */
static uint64_t term_now(const struct mr_cluster *c)
{
    return !c->ends && mr_mono_now(c->clock).ns < c->until.ns ? c->term : 0;
}

/* Enters and leaves with the lock. */
static void pass(struct mr_cluster *c)
{
    c->again_at = MR_MONO_NEVER;
    for (size_t i = 0; i < STEPS; i++) {
        uint64_t term = term_now(c);
        if (term == 0)
            return;
        bool again = false;
        mr_lock_leave(&c->lock);
        note(c, i, steps[i].take(c->broker, term, &again));
        mr_lock_enter(&c->lock);
        if (again)
            c->again_at = mr_mono_add_ms(mr_mono_now(c->clock), AGAIN_MS);
    }
}

static void *cluster_main(void *arg)
{
    struct mr_cluster *c = arg;
    mr_lock_enter(&c->lock);
    while (!c->ends) {
        int64_t left_ns = c->again_at.ns - mr_mono_now(c->clock).ns;
        if (c->due || left_ns <= 0) {
            c->due = false;
            pass(c);
        } else {
            mr_lock_wait(&c->lock, left_ns);
        }
    }
    mr_lock_leave(&c->lock);
    return NULL;
}

enum mr_err mr_cluster_new(struct mr_broker *broker, struct mr_cluster **ret_cluster)
{
    struct mr_cluster *c = calloc(1, sizeof *c);
    if (c == NULL)
        return MR_NOMEM;
    c->broker = broker;
    c->clock = mr_clock_system();
    c->again_at = MR_MONO_NEVER;
    mr_lock_init(&c->lock);
    *ret_cluster = c;
    return MR_OK;
}

void mr_cluster_free(struct mr_cluster *cluster)
{
    struct mr_cluster *c = cluster;
    if (c == NULL)
        return;
    mr_lock_enter(&c->lock);
    c->ends = true;
    mr_lock_notify_all(&c->lock);
    mr_lock_leave(&c->lock);
    if (c->there)
        mr_thread_join(c->thread);
    mr_lock_done(&c->lock);
    free(c);
}

void mr_cluster_leads(struct mr_cluster *cluster, uint64_t term, mr_mono until)
{
    struct mr_cluster *c = cluster;
    mr_lock_enter(&c->lock);
    if (term != c->term)
        mr_diag(MR_DIAG_DEBUG, term != 0 ? "leader.begins" : "leader.ends", "term=%llu",
                (unsigned long long)(term != 0 ? term : c->term));
    c->term = term;
    c->until = until;
    c->due = term != 0;
    /* Without a thread the next beat tries again. */
    if (term != 0 && !c->there)
        c->there = mr_thread_start(&c->thread, "mr-leader", cluster_main, c) == MR_OK;
    mr_lock_notify_all(&c->lock);
    mr_lock_leave(&c->lock);
}
