/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Jobs in a store: the parts and what they share.
 *
 * job_tx.c      jobs in a transaction: locks, rows, what is written of them at its end
 * job_load.c    a job is loaded; segments roll
 * job_act.c     commit, abort, cancel, end
 * job_retry.c   retry
 * job_count.c   counters and the ready list made anew from outcomes
 * job_end.c     outcomes
 * job_send.c    what is to be submitted, and that it was
 * job_again.c   parts that are submitted again
 * job_slots.c   the parts of a request, looked for together
 * job_look.c    jobs: looking
 * job_parts.c   parts: looking
 * job_result.c  the result
 * job_retain.c  jobs and segments that go
 *
 * Whoever changes a job, or anything of its parts, has the lock of its row first, behind the locks
 * of leases, apps and the last segment; jobs are locked in the order of their numbers. So rows of
 * stages, ranges, the ready list and outcomes of a job are as they were read until the transaction
 * ends.
 *
 * The row of a job and its stages are changed in memory (struct tx_job) and written once, at the
 * end of the transaction, or before somebody reads jobs in it.
 */
#ifndef MR_STORE_JOBS_INTERNAL_H
#define MR_STORE_JOBS_INTERNAL_H

#include "store/internal.h"
#include "store/jobs.h"

struct tx_job {
    struct mr_uuid uid;
    bool there;
    struct mr_store_job row;       /* its slices are the transaction's */
    struct mr_store_stage *stages; /* row.stages, to be changed */
    unsigned stages_there;         /* bits of those that have a row */
    int64_t retention_ms, loaded_ms;
    uint64_t result_token;
    bool changed;   /* it is to be written */
    bool versioned; /* this transaction has raised its version */
    bool told;      /* in the answer that is being made */
};

/* One of a job's ranges of parts. */
struct job_range {
    uint64_t segment, first, n, ended;
    int64_t closed_ms;
};

static inline enum mr_err job_run(struct tx *tx, enum sql_job statement,
                                  const struct db_value *values, size_t n, db_row *row, void *arg)
{
    return n == 0 ? MR_OK : tx->db->ops->run(tx->db, statement, values, n, row, arg);
}

/* A statement for items of one segment each, which is their first value: once for each segment; items of one
 * stand together. */
MR_MUST_USE enum mr_err job_run_by_segment(struct tx *tx, enum sql_job statement,
                                           const struct db_value *values, size_t n, db_row *row,
                                           void *arg);

/* ---- job_tx.c ------------------------------------------------------------------------------- */

/* Of a request about one job. */
MR_MUST_USE enum mr_err job_lock_uid(struct tx_locks *locks, const struct mr_uuid *uid);
/* The row that was locked, whatever its state; `there` says whether there is one. */
struct tx_job *tx_job(struct tx *tx, const struct mr_uuid *uid);
/* Parts of jobs that items of a request are about, so that they can be looked at together: in the order of
 * segment, job, stage and index. */
struct job_slot {
    struct tx_job *job;
    uint64_t segment, index;
    uint32_t stage;
    size_t item;      /* of the request */
    enum mr_err *err; /* of the item; what is wrong is noted there, and the slot is out */
};
/* Sorts them, and looks for their parts: MR_NOT_FOUND. Of those that are about the same the first stays in, others
 * get MR_CONFLICT. */
MR_MUST_USE enum mr_err job_slots_find(struct tx *tx, struct job_slot *slots, size_t n);
/* Only one that people see; else NULL. */
struct tx_job *tx_job_seen(struct tx *tx, const struct mr_uuid *uid);
/* The job is changed now; its version rises, once in a transaction, unless it is loading. */
void job_change(struct tx *tx, struct tx_job *job);
/* It has ended in this state: its ranges are closed. */
MR_MUST_USE enum mr_err job_finish(struct tx *tx, struct tx_job *job, enum mr_jobrow_state state,
                                   struct mr_slice reason);
/* All its parts have ended: it is reducing now. */
void job_settle(struct tx_job *job);
/* A copy for an answer. */
MR_MUST_USE enum mr_err job_copy(const struct tx_job *job, struct mr_arena *arena,
                                 struct mr_store_job *ret_job);
/* Collects jobs that a request has changed: `told` of them is false before and after. */
MR_MUST_USE enum mr_err job_tell(struct tx_job *const *jobs, size_t n, struct mr_arena *arena,
                                 struct mr_store_jobs_changed *ret_changed);
/* A row of SQL_JOB_BY_UID and the like, without stages; job->row's slices go to the arena. */
MR_MUST_USE enum mr_err row_job(const struct db_value *row, struct mr_arena *arena,
                                struct tx_job *job);
/* Reads the stages of jobs, and recounts them where rows are missing, without writing that. */
MR_MUST_USE enum mr_err jobs_read_stages(struct tx *tx, struct tx_job *jobs, size_t n);
void job_totals(struct tx_job *job);
/* The counters of an event. */
MR_MUST_USE enum mr_err job_counters_read(struct mr_slice bytes, struct tx_job *job);
/* Reads one job that people see; NULL: none. */
MR_MUST_USE enum mr_err job_read(struct tx *tx, const struct mr_uuid *uid, struct mr_arena *arena,
                                 struct tx_job **ret_job);

/* A retry is under way, or was when the job ended, that has not come to the part: it may have an outcome that is a
 * failure, which does not count, and it waits to be submitted. */
static inline bool job_forgives(const struct tx_job *job, uint64_t index)
{
    return index >= job->row.retry_next;
}

/* ---- job_count.c ---------------------------------------------------------------------------- */

/* Counters of all stages from outcomes. A stage without a row has its cursor behind the last of them. */
MR_MUST_USE enum mr_err job_recount(struct tx *tx, struct tx_job *job);
/* The same, with the counters of ranges, and all that was submitted and has no outcome is put into the
 * ready list anew. A retry that is under way begins once more. */
MR_MUST_USE enum mr_err job_refill(struct tx *tx, struct tx_job *job);
/* The ready list is empty from now on, and has room for each part in each stage. */
void job_ready_renew(struct tx_job *job);
/* Puts into that room what of the parts first..behind-1, which are in the segment, has come to a stage, was passed by its
 * cursor and has no outcome. */
MR_MUST_USE enum mr_err job_ready_fill(struct tx *tx, const struct tx_job *job, uint64_t segment,
                                       uint64_t first, uint64_t behind);
/* Only what has an outcome counts as submitted. */
void job_unsend(struct tx_job *job);

/* ---- ranges (job_send.c) -------------------------------------------------------------------- */

enum { RANGES_PAGE = 64 };

/* From the one on that has the index, or the first behind it. */
MR_MUST_USE enum mr_err job_ranges(struct tx *tx, uint64_t no, uint64_t from,
                                   struct job_range ranges[RANGES_PAGE], size_t *ret_n);

#endif
