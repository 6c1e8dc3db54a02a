/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The jobs of one broker and one store, as whoever shows them to people sees them. `serve` has one service, and so
 * has a client on file:DIR in its own process; any number of them may share a store and a broker.
 *
 * A job is loaded part by part and is there, whole, when its commit is answered: before that nobody sees it, and
 * after a crash there is no job or all of it. Its parts rest in the store. For each queue one service at a time
 * (a lease in the store) submits as many of them as the workers can have, in the order of the jobs, and puts the
 * results together when all are there; every service takes results. Each step can be repeated, by this service or by
 * another one, and nothing doubles; nothing is only in memory.
 *
 * Callbacks come from a thread of the service or of the store: do little there, and wait for nothing. "Thread:
 * any" holds for all functions here but those that say otherwise.
 */
#ifndef MR_JOB_SERVICE_H
#define MR_JOB_SERVICE_H

#include "base/arena.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/slice.h"

struct mr_broker;
struct mr_gate;
struct mr_store;
struct mr_job_service;

/* ---- opening --------------------------------------------------------------------------------- */

enum { MR_JOB_WINDOW = 64 };

/* Zero is the default everywhere. Tests shorten times by it. */
struct mr_job_settings {
    /* MR_JOB_WINDOW: tasks in the broker for each slot of a worker that serves the queue. */
    uint32_t window;
    int64_t lease_ms;  /* 10 s: a queue is ours so long beyond the last renewal */
    int64_t renew_ms;  /* 3 s */
    int64_t master_ms; /* 15 s: what is in hand of one that is gone comes to others after this */
    int64_t look_ms;   /* 1 s: how often it looks for jobs, workers, and what others have changed */
    int64_t watch_ms;  /* 200 ms: the same for a job that somebody watches */
    /* MR_STORE_SEGMENT_PARTS: with so many a segment is full, and the next one begins. */
    uint32_t segment_parts;
    uint32_t retry_parts; /* 10000: a retry goes through so many in one step */
    int64_t load_ms;      /* 10 min: a load that nobody has had in hand for so long is removed */
    /* MR_JOB_RETENTION_MS: of a job that has ended, where it says nothing itself. */
    int64_t retention_ms;
    int64_t segment_ms; /* retention_ms: a segment all of whose parts have ended is kept so long */
    int64_t govern_ms;  /* 60 s: how often what is old is removed */
    int64_t reconcile_ms; /* 30 s: a job that did not move for so long is held against its tasks */
    bool commands;        /* the reduce command:CMD may be run here */
    const char *temp_dir; /* for its files; NULL: where the system has such */
};

/* What a service is about to do, or has just done: see mr_job_service_options.step. */
enum mr_job_step {
    MR_JOB_STEP_ADD,       /* some parts of a load go to the store */
    MR_JOB_STEP_ADDED,     /* and are there */
    MR_JOB_STEP_COMMIT,    /* all of them are */
    MR_JOB_STEP_COMMITTED, /* the job is there, and nobody knows yet */
    MR_JOB_STEP_SUBMIT,    /* parts become tasks */
    MR_JOB_STEP_SUBMITTED, /* they are there, the cursor has not moved */
    MR_JOB_STEP_ADVANCED,
    MR_JOB_STEP_TAKEN,    /* results are in hand */
    MR_JOB_STEP_ENDED,    /* the store has them, they are not committed */
    MR_JOB_STEP_SETTLED,  /* they are */
    MR_JOB_STEP_REDUCE,   /* all parts have ended */
    MR_JOB_STEP_REDUCED,  /* the result is there, the job has not ended */
    MR_JOB_STEP_CLOSED,   /* it has */
    MR_JOB_STEP_FORGIVEN, /* a step of a retry has been gone, and not by who asked for it */
    MR_JOB_STEP_COUNT
};

struct mr_job_service_options {
    struct mr_broker *broker; /* both outlive the service */
    struct mr_store *store;
    struct mr_clock *clock; /* NULL: the system's */
    const char *node;       /* who it is, for people; NULL, "": not known */
    size_t payload_max;     /* of a part; 0: MR_PAYLOAD_MAX */
    struct mr_job_settings settings;
    /* Of the broker, where others have the store, too, and brokers of their own: it hands out the parts of a queue's jobs only while
     * this service holds the lease of the queue. NULL: whatever it has. */
    struct mr_gate *gate;
    /* Until mr_job_service_run nothing is submitted, taken, reduced or removed: for who only looks or loads. */
    bool looks;
    /* For tests, which end the process there. May be NULL. */
    void (*step)(enum mr_job_step step, void *arg);
    void *step_arg;
};

/* MR_INVALID, MR_NOMEM, with detail (may be NULL). */
MR_MUST_USE enum mr_err mr_job_service_open(const struct mr_job_service_options *options,
                                            struct mr_job_service **ret_service,
                                            struct mr_detail *detail);
/* Does all of it from now on, if it does not yet. */
void mr_job_service_run(struct mr_job_service *service);
/* Gives its leases back and waits for what is under way. Loads and watches are ended before. Before store and
 * broker are closed. NULL is fine. Thread: the one that opened it. */
void mr_job_service_close(struct mr_job_service *service);

/* ---- jobs as they are shown ------------------------------------------------------------------ */

/* A job with the bytes of its definition, so that nobody has to encode it again: see mr_job_info_encode. */
struct mr_job_shown {
    struct mr_job_info info;    /* whole; info.job is what the definition says */
    struct mr_slice definition; /* JobDefinition of proto/ */
};

/* ---- asking ---------------------------------------------------------------------------------- */

enum mr_job_ask_kind {
    MR_JOB_GET,    /* one job */
    MR_JOB_LIST,   /* jobs, newest first */
    MR_JOB_PARTS,  /* the parts of one, by index */
    MR_JOB_CANCEL, /* answers the job as it is then. MR_WRONG_STATE: it has ended, and not so */
    MR_JOB_RETRY, /* what failed, or never ran, is run (again). MR_WRONG_STATE: there is no such, or it goes on */
    MR_JOB_RESULT, /* a piece of the result. MR_WRONG_STATE: there is none (yet); why in detail */
    MR_JOB_ASK_COUNT
};

enum {
    MR_JOB_CURSOR_MAX = 64, /* bytes, its NUL included */
    MR_JOB_LIMIT = 50,      /* where 0 is given */
};

struct mr_job_ask {
    enum mr_job_ask_kind kind;
    /* What is asked; borrowed until done. */
    struct mr_slice id;    /* of all but lists */
    struct mr_slice queue; /* of lists; empty: of all */
    unsigned states;       /* of lists: bits, 1 << state; 0: all. Of parts: bits of mr_part_state */
    struct mr_slice cursor; /* of the page before; empty: from the start */
    uint32_t limit;         /* at most MR_BATCH_MAX */
    uint32_t seq;           /* of results: pieces are counted from 0 */
    /* Of results: 0, or what the piece before was answered with. MR_WRONG_STATE: the job was retried since, and has
     * another result. Answer: what to give with the next piece. */
    uint64_t stamp;
    void (*done)(struct mr_job_ask *ask); /* once */
    void *arg;                            /* the caller's */
    /* The answer; all of it in the arena. */
    enum mr_err
        err; /* MR_NOT_FOUND, MR_WRONG_STATE, MR_INVALID (id, cursor), and what the store answers */
    struct mr_detail detail; /* or empty */
    struct mr_job_shown *jobs;
    size_t jobs_n;
    struct mr_part_info *parts;
    size_t parts_n;
    char next[MR_JOB_CURSOR_MAX]; /* where the next page begins; empty: nowhere */
    struct mr_slice bytes;        /* of a result */
    bool more;                    /* there are pieces behind this one */
    struct mr_arena arena;
    void *work; /* of the service */
};

/* Frees the answer; not the request itself. */
void mr_job_ask_done(struct mr_job_ask *ask);
void mr_job_service_ask(struct mr_job_service *service, struct mr_job_ask *ask);
/* The same, and waits for it; done and arg are not the caller's then. Not from a callback. */
MR_MUST_USE enum mr_err mr_job_service_ask_wait(struct mr_job_service *service,
                                                struct mr_job_ask *ask);

/* ---- loading --------------------------------------------------------------------------------- */

/*
 * A job on its way into the store. Calls for one load are made one at a time. What is added is written in the
 * background; the commit makes a job of it, all or nothing.
 */
struct mr_job_load;

struct mr_job_load_options {
    struct mr_slice definition; /* JobDefinition of proto/, encoded; checked, copied */
    /* Called after MR_BUSY when there is room again, and when the load has failed. May be NULL for who waits. */
    void (*room)(struct mr_job_load *load, void *arg);
    /* Called once after the commit: the job, or why there is none. What it points to lives during the call. NULL for who
     * waits. The load may be freed in it. */
    void (*done)(struct mr_job_load *load, enum mr_err err, const struct mr_job_shown *job,
                 const struct mr_detail *detail, void *arg);
    void *arg;
};

enum { MR_JOB_LOADS_MAX = 256 }; /* of a service at a time, each of which may hold a few MiB */

/* MR_INVALID, MR_TOO_BIG with detail; MR_BUSY: there are MR_JOB_LOADS_MAX; MR_UNSUPPORTED: the reduce is a command, and those are not allowed here. */
MR_MUST_USE enum mr_err mr_job_load_new(struct mr_job_service *service,
                                        const struct mr_job_load_options *options,
                                        struct mr_job_load **ret_load, struct mr_detail *detail);
/* Adds n parts behind those that are there; copied. All or none of them: MR_BUSY: too much is on its way, room will
 * be called; MR_TOO_BIG: one is over the limit; else the load has failed with this, and stays so. */
MR_MUST_USE enum mr_err mr_job_load_add(struct mr_job_load *load, const struct mr_slice *parts,
                                        size_t n, struct mr_detail *detail);
/* The same, and waits for room. Not from a callback. */
MR_MUST_USE enum mr_err mr_job_load_add_wait(struct mr_job_load *load, const struct mr_slice *parts,
                                             size_t n, struct mr_detail *detail);
uint64_t mr_job_load_count(const struct mr_job_load *load); /* parts so far */
const char *mr_job_load_id(const struct mr_job_load *load); /* that the job will have */
/* No more parts: done is called. MR_INVALID there: there are none. */
void mr_job_load_commit(struct mr_job_load *load);
/* The same, and waits; ret_job (may be NULL) lives in the load. Not from a callback. */
MR_MUST_USE enum mr_err mr_job_load_commit_wait(struct mr_job_load *load,
                                                const struct mr_job_shown **ret_job,
                                                struct mr_detail *detail);
/* Of a commit with this err: whether its job may be there all the same. In done and later. */
bool mr_job_load_may_be_kept(const struct mr_job_load *load, enum mr_err err);
/* Abandons it, unless it is committed: what was written is removed. Not between the commit and its done; then, in it
 * and later. NULL is fine. */
void mr_job_load_free(struct mr_job_load *load);

/* ---- watching -------------------------------------------------------------------------------- */

/* One version of a job. Shared by all who watch it: whoever keeps it takes a reference. */
struct mr_job_event {
    struct mr_job_shown job;
    bool end; /* the last one: the job has ended */
};
struct mr_job_event *mr_job_event_ref(struct mr_job_event *event);
void mr_job_event_unref(struct mr_job_event *event); /* Thread: any; NULL is fine */

struct mr_job_watch;

struct mr_job_watch_options {
    struct mr_slice id; /* copied */
    /* The watcher has seen the job up to this version: it is told of each later one. 0: first it is told how the
     * job is now. So also when the version is not known (any more). */
    uint64_t after;
    /* Versions rise by one from call to call, but for the step from `after` to the first when the versions between are
     * not kept any more. Same event object, one watcher after the other, for all of them. */
    void (*event)(struct mr_job_event *event, void *arg);
    /* Nothing comes any more: MR_OK after an event that is the end, or when `after` was that one; MR_NOT_FOUND;
     * MR_CLOSED: the service ends; else what the store answers. */
    void (*ended)(enum mr_err err, void *arg);
    void *arg;
};

/* MR_INVALID: no id; MR_NOMEM. */
MR_MUST_USE enum mr_err mr_job_service_watch(struct mr_job_service *service,
                                             const struct mr_job_watch_options *options,
                                             struct mr_job_watch **ret_watch);
/* No callback is under way, and none comes, when this returns; from a callback of its own it may be called too. Also
 * after ended. NULL is fine. */
void mr_job_watch_free(struct mr_job_watch *watch);

/* ---- how it is ------------------------------------------------------------------------------- */

struct mr_job_health {
    enum mr_err store;       /* MR_OK; MR_UNAVAILABLE; MR_DISK_FULL; else it has failed */
    char store_text[256];    /* why, in one line; "" with MR_OK */
    uint32_t queues;         /* that are pumped by this service now */
    uint32_t loads, watches; /* now */
    /* Since it was opened. */
    uint64_t jobs_loaded, parts_loaded;
    uint64_t submitted;                /* tasks, repeats among them */
    uint64_t parts_done, parts_failed; /* ends that this service wrote and that counted */
    uint64_t late;                     /* ends that did not: of a part or a job that had ended */
    uint64_t reduced, ended;           /* jobs */
    uint64_t resubmitted;              /* parts whose tasks were gone */
    uint64_t moved;                    /* tasks of parts that are another server's were deleted */
    uint64_t reconciled;               /* ends that no result told of */
    uint64_t speculated;               /* parts that were run once more since they lasted */
    uint64_t removed;                  /* jobs, by retention */
    uint64_t segments_removed, loads_removed;
};
/* Waits for nothing. */
void mr_job_service_health(struct mr_job_service *service, struct mr_job_health *ret_health);

#endif
