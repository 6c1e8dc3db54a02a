/* SPDX-License-Identifier: Apache-2.0 */
#include "accept/crew.h"

#include <signal.h>
#include <stdio.h>

enum { AWAY_MS_MAX = 3 * ACCEPT_DEATH_MS };

static void hire(struct crew *crew, struct crew_worker *worker)
{
    char url[ACCEPT_URL_MAX];
    (void)snprintf(url, sizeof url, "%s://127.0.0.1:%u",
                   crew->t->place[0].redis ? "redis" : "millrace", worker->network.port);
    worker->pid = PROCESS(crew->t, url, .queues = crew->queues, .slots = CREW_SLOTS);
}

struct crew *crew_start(struct accept *t, const char *queues)
{
    const char *seed = getenv("MR_SEED");
    struct crew *crew = calloc(1, sizeof *crew);
    assert_non_null(crew);
    crew->t = t;
    crew->queues = queues;
    mr_rand_seed(&crew->rand, seed ? strtoull(seed, NULL, 10) : 1);
    for (size_t i = 0; i < CREW_WORKERS; i++) {
        assert_err(forwarder_start(&crew->workers[i].network, t->place[0].port), MR_OK);
        hire(crew, &crew->workers[i]);
    }
    return crew;
}

static void goes_on(struct crew_worker *worker)
{
    if (worker->stopped)
        (void)kill(worker->pid, SIGCONT);
    worker->stopped = false;
    worker->network.frozen = false;
    worker->until = (mr_mono){0};
}

void crew_go_on(struct crew *crew)
{
    for (size_t i = 0; i < CREW_WORKERS; i++)
        if (accept_now().ns >= crew->workers[i].until.ns)
            goes_on(&crew->workers[i]);
}

void crew_heal(struct crew *crew)
{
    for (size_t i = 0; i < CREW_WORKERS; i++)
        goes_on(&crew->workers[i]);
}

void crew_strike(struct crew *crew, size_t kinds)
{
    struct crew_worker *worker = &crew->workers[mr_rand_below(&crew->rand, CREW_WORKERS)];
    enum crew_fault fault = (enum crew_fault)mr_rand_below(&crew->rand, kinds);
    crew_go_on(crew);
    crew->faults[fault]++;
    if (fault == CREW_KILL) {
        accept_kill_process(crew->t, worker->pid);
        worker->stopped = false;
        goes_on(worker);
        hire(crew, worker);
        return;
    }
    worker->until =
        mr_mono_add_ms(accept_now(), (int64_t)mr_rand_below(&crew->rand, AWAY_MS_MAX) + 1);
    if (fault == CREW_PARTITION) {
        worker->network.frozen = true;
    } else {
        worker->stopped = true;
        (void)kill(worker->pid, SIGSTOP);
    }
}

void crew_end(struct crew *crew)
{
    for (size_t i = 0; i < CREW_WORKERS; i++) {
        accept_kill_process(crew->t, crew->workers[i].pid);
        forwarder_stop(&crew->workers[i].network);
    }
    free(crew);
}
