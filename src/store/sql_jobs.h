/* SPDX-License-Identifier: Apache-2.0 */
/* The statements of jobs, behind those of timers. */
#ifndef MR_STORE_SQL_JOBS_H
#define MR_STORE_SQL_JOBS_H

#include "store/sql.h"

enum sql_job {
    /* The rows of jobs: */
    SQL_JOB_LOCK = SQL_COUNT, /* uid */
    SQL_JOB_BY_UID,
    SQL_JOB_LIST,
    SQL_JOB_LIST_QUEUE,
    SQL_JOB_LIVE,
    SQL_JOB_QUEUES,
    SQL_JOB_ADD,
    SQL_JOB_SET,
    SQL_DEFINITION_ADD,
    SQL_DEFINITION,
    SQL_STAGES,
    SQL_STAGE_PUT,
    SQL_EVENT_PUT,
    SQL_EVENT_TRIM,
    SQL_EVENTS,
    /* Segments, and what of a job is in them: */
    SQL_SEGMENT_LOCK,
    SQL_SEGMENT_END,
    SQL_SEGMENT_BEGIN,
    SQL_SEGMENT_ADD,
    SQL_SEGMENT_SET,
    SQL_SEGMENTS,
    SQL_RANGE_PUT,
    SQL_RANGE_GET,
    SQL_RANGE_END,
    SQL_RANGE_SET,
    SQL_RANGE_REOPEN,
    SQL_RANGES_FROM,
    SQL_RANGES_LOCK,
    SQL_RANGES_CLOSE,
    /* Parts and outcomes: */
    SQL_PART_ADD,
    SQL_PARTS_PAGE,
    SQL_PART_INPUT,
    SQL_OUTCOME_ADD,
    SQL_OUTCOME_AT,
    SQL_OUTCOMES,
    SQL_OUTCOME_COUNT,
    SQL_OUTCOMES_FORGET,
    SQL_RESULTS_PAGE,
    SQL_PART_RESULT,
    /* The ready list: */
    SQL_READY_ADD,
    SQL_READY_CLEAR,
    SQL_READY_TRIM,
    SQL_READY_INPUTS,
    SQL_READY_RESULTS,
    SQL_READY_LIST,
    SQL_READY_COUNT,
    SQL_READY_PASS,
    SQL_READY_AT,
    SQL_READY_OF,
    /* Results: */
    SQL_CHUNK_PUT,
    SQL_CHUNKS,
    SQL_CHUNKS_TRIM,
    /* Retention: */
    SQL_DROP_ENDED,
    SQL_DROP_LOADS,
    SQL_DROPPED,
    SQL_DROP_PARTS,
    SQL_DROP_OUTCOMES,
    SQL_RANGE_SHORTEN,
    SQL_DROP_RANGE,
    SQL_DROP_READY,
    SQL_DROP_CHUNKS,
    SQL_DROP_EVENTS,
    SQL_DROP_STAGES,
    SQL_DROP_DEFINITION,
    SQL_DROP_JOB,
    SQL_SEGMENT_FIRST,
    SQL_SEGMENT_IN_USE,
    SQL_SEGMENT_RANGES_DROP,
    SQL_JOB_IS_LIVE,
    SQL_SEGMENT_PARTS_DROP,
    SQL_SEGMENT_OUTCOMES_DROP,
    SQL_SEGMENT_DROP,
    SQL_ALL
};

extern const struct statement sql_job_statements[SQL_ALL - SQL_COUNT];
extern const char sql_step_jobs_sqlite[], sql_step_jobs_postgres[], sql_step_retries[];

static inline const struct statement *sql_statement(size_t number)
{
    return number < SQL_COUNT ? &sql_statements[number] : &sql_job_statements[number - SQL_COUNT];
}

#endif
