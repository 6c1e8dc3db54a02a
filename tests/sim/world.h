/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A whole small world on virtual time: producers, workers, people and accidents around one engine.
 * Each seed chooses its own mix of all of them (swarm), runs it, then heals everything, lets the
 * workers drain the queues and asks the oracle. The same seed gives the same run, shown by the hash
 * of its trace. Thread: one.
 */
#ifndef MR_TESTS_WORLD_H
#define MR_TESTS_WORLD_H

#include <stdbool.h>
#include <stdint.h>

struct world_report {
    bool failed;
    char error[512];
    uint64_t hash; /* of everything that was answered */
    uint64_t tasks, leases, kills, power_cuts, faults, backups, points;
    int64_t virtual_ms;
};

enum world_detail { WORLD_QUIET, WORLD_VERBOSE };

void world_run(uint64_t seed, enum world_detail detail, struct world_report *ret_report);

struct oracle;
struct simfs;
struct rig_clock;

/*
 * The same people without accidents and without the heal phase, for harnesses that look at the
 * disk. point is called before every crash point with the disk, what the oracle knows and the time,
 * all to be copied, not changed; ended once at the end, when nothing is under way any more and one
 * last task was acknowledged. Either may be NULL.
 */
struct world_calm {
    uint64_t seed;
    uint32_t steps;
    void (*point)(const struct simfs *fs, const struct oracle *oracle,
                  const struct rig_clock *clock, void *arg);
    void (*ended)(const struct simfs *fs, const struct oracle *oracle,
                  const struct rig_clock *clock, void *arg);
    void *arg;
};

void world_run_calm(const struct world_calm *calm, struct world_report *ret_report);

#endif
