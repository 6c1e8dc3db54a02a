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

#include "sim/simfs.h"

struct world_report {
    bool failed;
    char error[512];
    uint64_t hash; /* of everything that was answered */
    uint64_t tasks, leases, kills, power_cuts, faults, backups, points;
    uint64_t calls[SIMFS_OP_COUNT]; /* of the disk, by world_run_fault */
    int64_t virtual_ms;
};

enum world_detail { WORLD_QUIET, WORLD_VERBOSE };

void world_run(uint64_t seed, enum world_detail detail, struct world_report *ret_report);

struct oracle;
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

/*
 * The same people, and one accident: a call of the disk that fails, once. Then everything is healed, worked off and
 * judged as by world_run.
 */
struct world_fault {
    uint64_t seed;
    uint32_t steps;
    enum simfs_op op;
    uint64_t after;  /* so many calls of that kind pass before */
    enum mr_err err; /* MR_OK: none fails */
};

void world_run_fault(const struct world_fault *fault, struct world_report *ret_report);

#endif
