/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An engine on virtual time and a forgetful disk. Nothing happens by itself: rig_step moves the
 * clock to the next thing that is due (a chore runs, a chore ends, the engine wants a turn) and does
 * it. Chores take a random time before they run and again before their end is told, so a crash can
 * fall between the two. Thread: one.
 */
#ifndef MR_TESTS_RIG_H
#define MR_TESTS_RIG_H

#include "broker/embedded/embedded.h"
#include "sim/oracle.h"
#include "sim/simfs.h"

struct rig_clock {
    struct mr_clock clock;
    int64_t mono_ns;
    int64_t wall_us;
};

struct rig_chore {
    struct mr_chore *chore;
    int64_t at_ns; /* of the next step */
    bool has_run;
};

struct rig;

struct rig_exec {
    struct mr_exec exec;
    struct rig *rig;
    struct rig_chore *chores; /* in the order given; the first is the current one */
    size_t n, cap;
};

struct rig {
    struct simfs *fs; /* the caller's */
    struct rig_clock clock;
    struct rig_exec sync_exec, file_exec;
    struct mr_rand rand;
    struct mr_engine *engine; /* NULL while closed */
    struct mr_detail detail;  /* of the last open */
    const char *dir;
    size_t segment_bytes;
    bool repair;
    bool nodes_elsewhere;
    int64_t chore_delay_max_ns; /* 0: chores run and end at once */
    int64_t turn_delay_max_ns;  /* a turn that is due now comes this much later; 0: at once */
    int64_t turn_at_ns;         /* when that will be; 0: not chosen */
    uint32_t stall_one_in;      /* a chore takes stall_ns instead; 0: never */
    int64_t stall_ns;
    bool spins;    /* the engine wanted turn after turn without any time passing */
    bool validate; /* check the engine's own indexes after each turn */
};

#define RIG_DIR      "store"                  /* unless told otherwise */
#define RIG_EPOCH_US (1790000000LL * 1000000) /* where the wall clock starts */

/* A number from the environment, for the size and the first seed of a campaign. */
uint64_t rig_env(const char *name, uint64_t otherwise);
void rig_init(struct rig *rig, struct simfs *fs, uint64_t seed);
/* Kills what is open. */
void rig_done(struct rig *rig);
/* On success the engine is there; on failure detail says why. */
MR_MUST_USE enum mr_err rig_open(struct rig *rig);
/* The process dies: the engine is gone, its chores too. The disk waits for simfs_crash. Fine when
 * closed. */
void rig_kill(struct rig *rig);
/* Does what is due next, but goes no further than until_ns. False when nothing was due before that.
 */
bool rig_step(struct rig *rig, int64_t until_ns);
/* Steps until the time has come or the disk has died. */
void rig_run(struct rig *rig, int64_t until_ns);
/* Never answered when the disk has died. */
void rig_submit(struct rig *rig, struct mr_req *req);
/* Submits and steps until it is answered. When the disk died, or it takes for ever, the engine is
 * killed and the answer is MR_CLOSED. req->done and req->arg are used. */
enum mr_err rig_call(struct rig *rig, struct mr_req *req);
/* Jumps the wall clock. */
void rig_jump(struct rig *rig, int64_t by_us);
int64_t rig_wall_ms(const struct rig *rig);

/* Everything the store shows, taken in one turn. */
struct rig_view {
    struct oracle_view view;
    bool quiet; /* nothing was on its way to the disk: what is shown is all there is */
    struct mr_req_list list;
    struct mr_req_queue_list queues;
    struct mr_req_stats stats;
    struct mr_queue_info infos[32];
};

/* As rig_call. The view lives until rig_view_done, which is due after any answer. */
MR_MUST_USE enum mr_err rig_view(struct rig *rig, struct rig_view *view);
void rig_view_done(struct rig_view *view);

/*
 * Lets the oracle judge all the store shows, once, at a moment when nothing is on its way to the
 * disk: until then a list may leave tasks out. Errors as rig_view; MR_BUSY, told to the oracle,
 * when there is never such a moment. ret_digest may be NULL.
 */
enum rig_judge { RIG_CHECK, RIG_CHECK_IDLE };
MR_MUST_USE enum mr_err rig_judge(struct rig *rig, struct oracle *oracle, enum rig_judge how,
                                  uint64_t *ret_digest);
/* The same of all results; nobody holds any. */
MR_MUST_USE enum mr_err rig_judge_results(struct rig *rig, struct oracle *oracle);

#endif
