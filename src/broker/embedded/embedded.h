/* SPDX-License-Identifier: Apache-2.0 */
/* The embedded engine: a durable queue in one folder, run by one thread of this process. */
#ifndef MR_BROKER_EMBEDDED_H
#define MR_BROKER_EMBEDDED_H

#include "base/exec.h"
#include "base/fs.h"
#include "base/id.h"
#include "broker/broker.h"
#include "broker/gate.h"

struct mr_embedded_options {
    const char *dir;
    size_t payload_max;   /* 0: MR_PAYLOAD_MAX */
    size_t segment_bytes; /* 0: 64 MiB */
    bool repair;          /* set damage aside instead of refusing to open */
    mr_fsck_line *line;   /* told of damage found; may be NULL */
    void *line_arg;
    /* The nodes are processes of their own: the death of this one is not that of their runs. */
    bool nodes_elsewhere;
    struct mr_fsck_report *report; /* what was found and set aside at the open; may be NULL */
    struct mr_fs *fs;              /* NULL: the system's */
    struct mr_clock *clock;        /* NULL: the system's */
};

/* Opens with threads of its own. Errors as mr_client_open. */
MR_MUST_USE enum mr_err mr_embedded_open(const struct mr_embedded_options *options,
                                         struct mr_broker **ret_broker, struct mr_detail *detail);

/* What keeps its tasks back, of a broker with threads; it lives as long as the broker. NULL: the broker is no such one. Thread: any. */
struct mr_gate *mr_embedded_gate(const struct mr_broker *broker);

/* What the folder is known by, in all its lives. False: the broker is no such one. Thread: any. */
bool mr_embedded_home(const struct mr_broker *broker, char text[MR_UUID_TEXT_LEN + 1]);

/*
 * The same engine without threads, for the simulator and the crash tests: the caller turns it.
 * Requests submitted are carried out in the next turn; chores go to the caller's executors, whose
 * done functions the caller runs between turns.
 */
struct mr_engine;

struct mr_engine_options {
    struct mr_embedded_options base; /* fs and clock must be set */
    struct mr_exec *sync_exec;       /* syncs of the log */
    struct mr_exec *file_exec;       /* zero-filling, snapshots, removal, backup */
    struct mr_warm *warm;            /* may be NULL */
    struct mr_rand rand;
    /* With threads: where requests and finished chores arrive. NULL: the engine has its own. */
    struct mr_chan *inbox;
    bool threaded;        /* requests come from many threads */
    struct mr_gate *gate; /* may be NULL: nothing is kept back */
};

MR_MUST_USE enum mr_err mr_engine_open(const struct mr_engine_options *options,
                                       struct mr_engine **ret_engine, struct mr_detail *detail);
struct mr_broker *mr_engine_broker(struct mr_engine *engine);
/* Carries out what was submitted, fires what is due, starts what must be written. */
void mr_engine_turn(struct mr_engine *engine);
/* When the next turn is needed if nothing is submitted and no chore ends before. */
mr_mono mr_engine_next(struct mr_engine *engine);
/* O(n): every index and counter equals a recount; asserts. */
void mr_engine_validate(struct mr_engine *engine);
/* Makes everything durable at the end of a life without failures; no chore may be under way. */
void mr_engine_finish(struct mr_engine *engine);
/* Frees without writing anything, as if the process had died. Chores in flight must have been
 * dropped. */
void mr_engine_abandon(struct mr_engine *engine);

struct mr_store_check {
    const char *dir;
    struct mr_fs *fs;       /* NULL: the system's */
    struct mr_clock *clock; /* NULL: the system's */
    enum mr_fsck_mode mode;
    mr_fsck_line *line; /* told of each finding; may be NULL */
    void *arg;
};
/* Checks, and with repair mends, a store that nobody has open. See mr_fsck. */
MR_MUST_USE enum mr_err mr_store_fsck(const struct mr_store_check *options,
                                      struct mr_fsck_report *ret_report, struct mr_detail *detail);

#endif
