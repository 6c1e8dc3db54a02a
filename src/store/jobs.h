/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The store contract, jobs: what is kept of them, of their parts and of the segments that these are
 * in. All that store.h says at its head holds here too: requests, batches, errors, repeats.
 *
 * A job has parts 0..total-1. Their inputs are written once, when it is loaded, and stand in
 * segments: the rolling table begin..end. New parts go to the segment `end`, and when that is full
 * the next one is made with them. A job's parts are loaded in order, so they are a range of indexes
 * in each of a few segments; a part is found by (job, index, segment), which the id of its task
 * carries.
 *
 * A job has stages 0..stages_n-1; the task of a part in a stage has the result of the stage before
 * as its payload. How a part stands is never written as such. In a stage it is
 *   MR_PART_DONE, MR_PART_FAILED  there is an outcome. The first one that comes is the one, and stays
 *   MR_PART_SUBMITTED             the stage's cursor has passed it, or that of the ready list
 *   MR_PART_WAITING               else
 * so progress cannot go back, and nothing counts twice. A part that failed does not come to the
 * next stage.
 *
 * Parts are submitted in the order of their indexes, behind a cursor for each stage (PARTS_READ,
 * then JOB_ADVANCE). What is to be submitted out of that order stands in the job's ready list,
 * which has a cursor of its own (READY_READ, then JOB_ADVANCE): parts of a pipeline that have come
 * to their next stage, parts to be submitted again.
 *
 * Rounds: the task of a part has the round of its job, which a retry raises by two; the second task
 * of a part that lasts (PARTS_AGAIN) has the odd number behind it. A success counts whatever its
 * round is, a failure only when its round is not lower than the job's, and even: that of a second
 * task leaves the part to the first.
 *
 * Each transaction that changes a job raises its version by one and keeps how it is then
 * (JOB_EVENTS).
 */
#ifndef MR_STORE_JOBS_H
#define MR_STORE_JOBS_H

#include "store/store.h"

enum {
    MR_STORE_CHUNK_MAX = 256 * 1024,            /* bytes of a piece of a result */
    MR_STORE_JOB_REASON_MAX = 4096,             /* bytes kept of why a job failed; cut there */
    MR_STORE_SEGMENT_PARTS = 100000,            /* default of segment_parts */
    MR_STORE_EVENTS_KEPT = 1000,                /* versions of a job that can be read */
    MR_STORE_LOAD_BYTES_MAX = 64 * 1024 * 1024, /* of the inputs or outcomes of one request */
    MR_STORE_READ_BYTES = 4 * 1024 * 1024,      /* default of bytes_max */
    MR_STORE_RETRY_PARTS = 10000,               /* a step of a retry goes through so many at most */
};

/* Of a job that no retry is under way for. */
#define MR_STORE_RETRY_NONE ((uint64_t)INT64_MAX)

enum mr_jobrow_state {
    MR_JOBROW_NONE,    /* no such job */
    MR_JOBROW_LOADING, /* nobody sees it */
    MR_JOBROW_CREATED, /* nothing of it was submitted yet */
    MR_JOBROW_RUNNING,
    MR_JOBROW_REDUCING, /* all parts have ended */
    MR_JOBROW_SUCCEEDED,
    MR_JOBROW_FAILED,
    MR_JOBROW_CANCELLED,
    MR_JOBROW_DROPPED, /* nobody sees it any more; what is left of it is being removed */
    MR_JOBROW_STATE_COUNT
};

#define MR_JOBROW_BIT(state) (1u << (state))
#define MR_JOBROW_LIVE                                                                             \
    (MR_JOBROW_BIT(MR_JOBROW_CREATED) | MR_JOBROW_BIT(MR_JOBROW_RUNNING) |                         \
     MR_JOBROW_BIT(MR_JOBROW_REDUCING))
#define MR_JOBROW_ENDED                                                                            \
    (MR_JOBROW_BIT(MR_JOBROW_SUCCEEDED) | MR_JOBROW_BIT(MR_JOBROW_FAILED) |                        \
     MR_JOBROW_BIT(MR_JOBROW_CANCELLED))

static inline bool mr_jobrow_is_live(enum mr_jobrow_state state)
{
    return (MR_JOBROW_BIT(state) & MR_JOBROW_LIVE) != 0;
}
static inline bool mr_jobrow_is_ended(enum mr_jobrow_state state)
{
    return (MR_JOBROW_BIT(state) & MR_JOBROW_ENDED) != 0;
}

struct mr_store_stage {
    uint64_t total;        /* parts that come to it: all, but those that failed in a stage before */
    uint64_t done, failed; /* parts with an outcome */
    uint64_t sent;         /* parts that were submitted, those with an outcome included */
    uint64_t cursor;       /* the index from which on none was submitted in order */
    int64_t sent_ms;       /* when one was submitted last; 0: never */
};

/* Submitted, and no outcome yet. */
static inline uint64_t mr_store_stage_open(const struct mr_store_stage *stage)
{
    uint64_t ended = stage->done + stage->failed;
    return stage->sent > ended ? stage->sent - ended : 0;
}
/* Nothing more comes of it, unless the job is retried. Of stages one behind the other: when those before
 * it are complete, too. */
static inline bool mr_store_stage_complete(const struct mr_store_stage *stage)
{
    return stage->done + stage->failed == stage->total;
}

/* A job as it stands, or as it was with that version. */
struct mr_store_job {
    struct mr_uuid uid;
    uint64_t no; /* the store's: rises with each job that is begun */
    struct mr_slice name, queue;
    struct mr_slice
        definition; /* empty when `brief` was asked for, and wherever a job is the answer to a change */
    enum mr_job_policy policy;
    bool pipeline;
    int64_t priority_ms;
    int64_t order_ms; /* created_ms - priority_ms: the least one goes first */
    uint64_t total;
    uint64_t first_segment, last_segment; /* of its parts */
    int64_t created_ms;                   /* when it was committed */
    /* What changes: */
    uint64_t version; /* from 1 */
    enum mr_jobrow_state state;
    struct mr_slice reason; /* of failed and cancelled */
    uint32_t round;         /* twice the number of retries */
    const struct mr_store_stage *stages;
    size_t stages_n;
    uint64_t ready_cursor, ready_last; /* of the ready list: submitted up to, there up to */
    uint64_t retry_next;               /* a retry has come so far, or MR_STORE_RETRY_NONE */
    int64_t started_ms, finished_ms;   /* 0: not yet */
    int64_t changed_ms;                /* when it came to this version */
    uint64_t result_bytes;             /* of MR_JOBROW_SUCCEEDED */
    uint32_t result_chunks;
};

/* A retry has been begun, and has steps before it: nothing of the job is submitted until then. */
static inline bool mr_store_job_retrying(const struct mr_store_job *job)
{
    return mr_jobrow_is_live(job->state) && job->retry_next < job->total;
}

/* Parts that are through all stages, and that failed in one of them. */
static inline uint64_t mr_store_job_done(const struct mr_store_job *job)
{
    return job->stages_n > 0 ? job->stages[job->stages_n - 1].done : 0;
}
static inline uint64_t mr_store_job_failed(const struct mr_store_job *job)
{
    uint64_t failed = 0;
    for (size_t i = 0; i < job->stages_n; i++)
        failed += job->stages[i].failed;
    return failed;
}

/* The jobs that a request has changed, as they are after it (no definitions), each once; in its arena. */
struct mr_store_jobs_changed {
    struct mr_store_job *jobs;
    size_t n;
};

/* ---- loading --------------------------------------------------------------------------------- */

/*
 * MR_STORE_JOB_BEGIN: a job that nobody sees. Of one that is loading: it goes on, as when parts are added to it
 * (JOB_RETAIN). MR_CONFLICT: there is another one with this uid, or this one is not loading any more.
 */
struct mr_store_job_begin {
    struct mr_store_req req;
    struct mr_uuid uid;
    struct mr_slice name;  /* at most MR_NAME_MAX bytes of UTF-8 without NUL; may be empty */
    struct mr_slice queue; /* a name */
    struct mr_slice
        definition;  /* at most MR_STORE_DEFINITION_MAX; the store does not look into it */
    size_t stages_n; /* 1..MR_JOB_STAGES_MAX */
    enum mr_job_policy policy;
    bool pipeline;
    int64_t priority_ms;  /* may be negative */
    int64_t retention_ms; /* kept so long after its end; 0: for ever */
};

/*
 * MR_STORE_PARTS_ADD: parts first..first+n-1 of a job that is loading. Parts that are there already
 * are left as they are, so a request may be repeated. As a whole:
 *   MR_NOT_FOUND    no such job (any more)
 *   MR_WRONG_STATE  it is not loading any more, and these are not all there
 *   MR_INVALID      parts before `first` are missing
 *   MR_TOO_BIG      more than MR_STORE_BATCH_MAX, more than MR_STORE_LOAD_BYTES_MAX, or one has more than
 *                   MR_PAYLOAD_HARD_MAX
 */
struct mr_store_parts_add {
    struct mr_store_req req;
    struct mr_uuid uid;
    uint64_t first;
    const struct mr_slice *inputs;
    size_t n;
    uint32_t segment_parts; /* with so many a segment is full; 0: MR_STORE_SEGMENT_PARTS */
    /* Answer: */
    uint64_t total; /* parts that are there now */
    uint64_t end;   /* the segment that new ones go to */
};

/*
 * MR_STORE_JOB_COMMIT, _ABORT, _CANCEL, _RETRY and _END: what is done to one job. As a whole:
 *   MR_NOT_FOUND    no such job (any more)
 *   MR_WRONG_STATE  it is in none of the states that this starts from
 *
 *   COMMIT  loading -> created: it is there, whole, from now on. MR_INVALID: it has no parts, or
 *           not `total`.
 *   ABORT   loading -> dropped: what is there of it will be removed (JOB_RETAIN).
 *   CANCEL  live -> cancelled, with a reason. Its parts stay as they are; outcomes that come later
 *           are discarded.
 *   RETRY   failed, cancelled, or succeeded with parts that failed -> running, where its round is the
 *           one given (else MR_STALE): its round rises by two, nothing of it has failed any more,
 *           and what was submitted and has no success is to be submitted again. A result is
 *           removed. MR_WRONG_STATE of one that succeeded: nothing failed. MR_EMPTY: parts of it have
 *           gone with their segment.
 *           All that holds from the first request on; what it takes is done step by step, a request
 *           each: while the answer says so (mr_store_job_retrying) the same one, by whomever, goes on
 *           with it. Until the last step no cursor moves, and the job is not reducing.
 *   END     reducing -> succeeded with the chunks that were written under the same lease, or
 *           live -> failed with a reason; where its round is the one given (else MR_STALE). Chunks
 *           of others are removed. Fenced.
 * A job that is just so already, by the same request before, is MR_OK.
 */
struct mr_store_job_act {
    struct mr_store_req req;
    struct mr_store_fence fence; /* of END; others may leave it empty */
    struct mr_uuid uid;
    uint64_t total;             /* of COMMIT */
    uint32_t round;             /* of RETRY and END */
    size_t max;                 /* of RETRY: parts of a step; 0: MR_STORE_RETRY_PARTS */
    enum mr_jobrow_state state; /* of END: succeeded or failed */
    struct mr_slice reason;     /* of CANCEL and END */
    uint32_t chunks;            /* of END: there are so many; 0: no result */
    uint64_t bytes;             /* of END: so many in them */
    struct mr_store_job job;    /* answer: as it is now, without definition; of ABORT: nothing */
};

/* ---- looking --------------------------------------------------------------------------------- */

/* MR_STORE_JOB_GET: any number of them. */
struct mr_store_job_get {
    struct mr_store_req req;
    const struct mr_uuid *uids;
    size_t n;
    bool brief; /* without definitions */
    /* A version is a transaction, of several requests it may be: none is seen before it has all that belongs to it. Else the
     * answer is what is known with the requests before this one. */
    bool settled;
    struct mr_store_job *jobs; /* answer: n entries; state MR_JOBROW_NONE where nobody sees one */
};

/* MR_STORE_JOB_LIST: newest first. */
struct mr_store_job_list {
    struct mr_store_req req;
    struct mr_slice queue; /* empty: of all */
    unsigned states;       /* MR_JOBROW_BITs; 0: all that people see */
    uint64_t before;       /* a `no`; 0: from the newest on */
    size_t max;
    bool brief;
    struct mr_store_job *jobs; /* answer */
    size_t n;
    bool more; /* answer: there are some behind the last; also when big ones have filled the page */
};

/* MR_STORE_JOB_LIVE: the live jobs of a queue by (order_ms, no). */
struct mr_store_job_live {
    struct mr_store_req req;
    struct mr_slice queue;
    int64_t after_ms; /* behind (after_ms, after_no); after_no 0: from the first on */
    uint64_t after_no;
    size_t max;
    bool brief;
    struct mr_store_job *jobs; /* answer */
    size_t n;
    bool more;
};

/* MR_STORE_JOB_QUEUES: queues with live jobs, by name. */
struct mr_store_job_queues {
    struct mr_store_req req;
    struct mr_slice after;
    size_t max;
    struct mr_slice *queues; /* answer */
    size_t n;
    bool more;
};

/*
 * MR_STORE_JOB_EVENTS: a job as it was with each version behind `after`, oldest first; ready_cursor
 * and ready_last are those of now. The last MR_STORE_EVENTS_KEPT are there: when the first of the
 * answer is not after + 1, those between are gone. MR_NOT_FOUND: nobody sees such a job.
 */
struct mr_store_job_events {
    struct mr_store_req req;
    struct mr_uuid uid;
    uint64_t after; /* 0: from the first on that is there */
    size_t max;
    struct mr_store_job *jobs; /* answer; no definitions */
    size_t n;
    bool more;
};

/*
 * MR_STORE_PARTS_LIST: how parts stand, by index, each in the furthest stage that it has come to. A
 * request looks at the next `max` indexes, and answers those in the states asked for, so that it
 * costs the same however few they are; parts that are all through are passed over at no cost when
 * only others are asked for. Go on from `next` until it is the job's total. MR_NOT_FOUND: nobody
 * sees such a job. Parts whose segment is gone are not listed.
 *
 * Those that are MR_PART_SUBMITTED are what a reconciler holds against the broker.
 */
struct mr_store_part {
    uint64_t index, segment;
    uint32_t stage;
    uint32_t round; /* of its task, or of the one it will have */
    bool again;     /* it was, or is to be, submitted a second time in this round */
    enum mr_part_state state;
    struct mr_slice error; /* of a failed one, to MR_STORE_REASON_MAX */
    int64_t finished_ms;   /* of an outcome */
};

struct mr_store_parts_list {
    struct mr_store_req req;
    struct mr_uuid uid;
    unsigned states; /* bits 1 << mr_part_state; 0: all */
    uint64_t from;
    size_t max;
    struct mr_store_part *parts; /* answer */
    size_t n;
    uint64_t next;
};

/* ---- submitting ------------------------------------------------------------------------------ */

/*
 * MR_STORE_PARTS_READ: what parts bring to a stage, by index: to stage 0 their inputs, to one
 * behind it their results in the stage before (only successes). Stage stages_n is the reduce: an
 * index that is not there then is of a part that failed. A page ends after `max` rows, or bytes_max
 * (but one row is always there); go on from `next`, which is the job's total at the end.
 * MR_NOT_FOUND: nobody sees such a job. MR_EMPTY: parts of it have gone with their segment.
 */
struct mr_store_payload {
    uint64_t index, segment;
    struct mr_slice bytes;
};

struct mr_store_parts_read {
    struct mr_store_req req;
    struct mr_uuid uid;
    uint32_t stage;
    uint64_t from;
    size_t max;
    size_t bytes_max;               /* 0: MR_STORE_READ_BYTES */
    struct mr_store_payload *parts; /* answer */
    size_t n;
    uint64_t next;
    uint32_t round; /* answer: the job's, and of the tasks that these become */
};

/*
 * MR_STORE_READY_READ: the ready list behind `after`, in its order, with payloads as above. Rows
 * whose part has an outcome by now are left out. Go on from `next`, and give that to JOB_ADVANCE.
 * MR_NOT_FOUND: nobody sees such a job.
 */
struct mr_store_ready {
    uint64_t seq;
    uint64_t index, segment;
    uint32_t stage, round; /* of its task */
    struct mr_slice bytes;
};

struct mr_store_ready_read {
    struct mr_store_req req;
    struct mr_uuid uid;
    uint64_t after; /* the job's ready_cursor, or `next` of the page before */
    size_t max;
    size_t bytes_max;             /* 0: MR_STORE_READ_BYTES */
    struct mr_store_ready *parts; /* answer */
    size_t n;
    uint64_t
        next; /* the last row that was looked at; at the end of the list the job's ready_last */
    uint32_t round; /* answer: the job's */
};

/*
 * MR_STORE_JOB_ADVANCE: parts were submitted. An item moves the cursor of a stage or that of the
 * ready list, forward, from where it stands. A job that was created is running from the first of
 * them on. Per item:
 *   MR_OK         it stands there now, or further
 *   MR_STALE      it stands elsewhere than at `from`, the job has another round, is being retried, or is not live (any
 *                 more): nothing was done. What was submitted is to be looked at anew
 *   MR_NOT_FOUND  no such job (any more)
 *   MR_INVALID
 */
/* The ready list, in place of a stage. */
#define MR_STORE_STAGE_READY UINT32_MAX

struct mr_store_advance {
    struct mr_uuid uid;
    uint32_t round;    /* that the tasks were submitted with */
    uint32_t stage;    /* or MR_STORE_STAGE_READY */
    uint64_t from, to; /* indexes; numbers of rows of the ready list */
    uint64_t parts;    /* of a stage: so many were submitted */
};

struct mr_store_job_advance {
    struct mr_store_req req;
    struct mr_store_fence fence;
    const struct mr_store_advance *items;
    size_t n;
    enum mr_err *results; /* n entries, the caller's memory */
    struct mr_store_jobs_changed changed;
};

/*
 * MR_STORE_PARTS_AGAIN: parts that were submitted and have no outcome come into the ready list.
 * With MR_AGAIN_SAME they have the task that they had, which is gone, and count as waiting until
 * then; with MR_AGAIN_SECOND a second one, of the job's round + 1, once in a round. Per item:
 *   MR_OK         it is there, now or already
 *   MR_CONFLICT   it had a second one in this round
 *   MR_STALE      there is an outcome, the part was not submitted, the job has another round, is being
 *                 retried, or is not running (any more)
 *   MR_NOT_FOUND  no such job or part (any more)
 *   MR_INVALID
 */
enum mr_again_kind { MR_AGAIN_SAME, MR_AGAIN_SECOND };

struct mr_store_again {
    uint64_t index, segment;
    uint32_t stage;
    enum mr_again_kind kind;
};

struct mr_store_parts_again {
    struct mr_store_req req;
    struct mr_store_fence fence;
    struct mr_uuid uid;
    uint32_t round; /* the job's */
    const struct mr_store_again *items;
    size_t n;
    enum mr_err *results; /* n entries, the caller's memory */
    struct mr_store_jobs_changed changed;
};

/* ---- outcomes -------------------------------------------------------------------------------- */

/*
 * MR_STORE_PARTS_END: tasks have ended. In one transaction: the outcomes, the counters, the state
 * of the jobs and what becomes ready. By policy MR_JOB_FAIL_FAST the first failure ends the job as
 * failed, with the text as its reason (what else is in the request counts still); when the last
 * stage is complete, the job is reducing. A part in a pipeline comes into the ready list with its
 * next stage, and so does one whose next stage has passed it. Per item:
 *   MR_OK         this is the outcome of the part in this stage
 *   MR_CONFLICT   it has one: another, or this one by a request before; also a failure that a retry has yet to
 *                 come to, which has the part run again
 *   MR_STALE      the job is not running (any more), or this is a failure of an earlier round or of a second
 *                 task: discarded
 *   MR_NOT_FOUND  no such job (any more), no such part of it in this segment, or it did not come to this stage
 *   MR_INVALID, MR_TOO_BIG (of the bytes: MR_PAYLOAD_HARD_MAX)
 * All but MR_INVALID and MR_TOO_BIG mean that the result is dealt with. As a whole MR_TOO_BIG: more
 * than MR_STORE_LOAD_BYTES_MAX bytes.
 */
struct mr_store_end {
    struct mr_uuid uid;
    uint64_t index, segment;
    uint32_t stage, round;
    bool failed;
    struct mr_slice bytes; /* the result, or why it failed */
    int64_t finished_ms;   /* 0: now, by the store's clock */
};

struct mr_store_parts_end {
    struct mr_store_req req;
    const struct mr_store_end *items;
    size_t n;
    enum mr_err *results; /* n entries, the caller's memory */
    struct mr_store_jobs_changed changed;
};

/* ---- the result ------------------------------------------------------------------------------ */

/*
 * MR_STORE_RESULT_ADD: a piece of the result, under the lease; one that is there with this number
 * is replaced. MR_STALE: the job is not reducing (any more), or has another round. MR_TOO_BIG: over
 * MR_STORE_CHUNK_MAX.
 */
struct mr_store_result_add {
    struct mr_store_req req;
    struct mr_store_fence fence;
    struct mr_uuid uid;
    uint32_t round;
    uint32_t seq; /* from 0 */
    struct mr_slice bytes;
};

/* MR_STORE_RESULT_READ: pieces from `seq` on. MR_WRONG_STATE: the job did not succeed (yet). */
struct mr_store_result_read {
    struct mr_store_req req;
    struct mr_uuid uid;
    uint32_t seq;
    size_t max;
    struct mr_slice *chunks; /* answer */
    size_t n;
    bool more;
    uint32_t round; /* answer: the job's. There is another result when that is another one */
};

/* ---- segments, retention --------------------------------------------------------------------- */

struct mr_store_segment {
    uint64_t n;     /* from 1 */
    uint64_t parts; /* that were put into it */
    uint64_t open;  /* jobs that have parts in it that have not ended */
    int64_t created_ms;
    int64_t ended_ms; /* when the last of its parts ended; 0: not yet, or none is there */
};

/* MR_STORE_SEGMENTS: begin..end and those before that are not dropped yet, by number. */
struct mr_store_segments {
    struct mr_store_req req;
    uint64_t after;
    size_t max;
    struct mr_store_segment *segments; /* answer */
    size_t n;
    bool more;
    uint64_t begin; /* the least one with parts that have not ended; else `end` */
    uint64_t end;   /* where new parts go */
};

/*
 * MR_STORE_SEGMENT_RETAIN: drops segments before `begin` whose last part ended longer ago than
 * age_ms, the oldest first; only those, and none that a live job has parts in. Jobs that had parts
 * there are kept as they are, but for the parts.
 */
struct mr_store_segment_retain {
    struct mr_store_req req;
    struct mr_store_fence fence;
    int64_t age_ms;  /* 0: however short ago */
    size_t max;      /* rows that are removed one by one, where that has to be */
    size_t segments; /* answer: so many were dropped */
    bool more;       /* answer: there is more to do */
};

/*
 * MR_STORE_JOB_RETAIN: removes jobs that ended longer ago than their retention, and loads to which
 * nothing was added for load_ms, with all that is there of them; first they are not seen any more.
 */
struct mr_store_job_retain {
    struct mr_store_req req;
    struct mr_store_fence fence;
    int64_t load_ms; /* 0: no loads */
    size_t max;      /* rows */
    size_t ended;    /* answer: so many jobs are not seen any more */
    size_t loads;    /* answer: likewise */
    bool more;       /* answer: there is more to do */
};

#endif
