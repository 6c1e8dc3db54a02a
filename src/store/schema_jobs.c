/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The steps of the schema that are about jobs. Parts and outcomes are keyed by their segment first: on
 * PostgreSQL each segment is a table of its own, so that dropping one costs nothing.
 */
#include "store/sql_jobs.h"

/* What changes with every step of a job is in no index: PostgreSQL then writes its row in place. */
#define INDEXES                                                                                    \
    "CREATE INDEX job_live ON job (queue, order_ms, no) WHERE state >= 2 AND state <= 4;"          \
    "CREATE INDEX job_kept ON job (keep_until_ms) WHERE state >= 5 AND state <= 7;"                \
    "CREATE INDEX job_loading ON job (loaded_ms) WHERE state = 1;"                                 \
    "CREATE INDEX job_dropped ON job (no) WHERE state = 8;"                                        \
    "CREATE UNIQUE INDEX job_range_first ON job_range (job, first_idx);"                           \
    "CREATE INDEX job_range_open ON job_range (segment) WHERE closed_ms = 0;"                      \
    "CREATE INDEX job_range_segment ON job_range (segment, closed_ms);"                            \
    "CREATE INDEX ready_part ON ready (job, stage, idx);"

const char sql_step_jobs_sqlite[] =
    "CREATE TABLE job (no INTEGER PRIMARY KEY AUTOINCREMENT, uid BLOB NOT NULL UNIQUE,"
    " name TEXT NOT NULL, queue TEXT NOT NULL, policy INTEGER NOT NULL, pipeline INTEGER NOT NULL,"
    " priority_ms INTEGER NOT NULL, retention_ms INTEGER NOT NULL, stages INTEGER NOT NULL,"
    " order_ms INTEGER NOT NULL DEFAULT 0, total INTEGER NOT NULL DEFAULT 0,"
    " first_segment INTEGER NOT NULL DEFAULT 0, last_segment INTEGER NOT NULL DEFAULT 0,"
    " created_ms INTEGER NOT NULL DEFAULT 0, version INTEGER NOT NULL DEFAULT 0,"
    " state INTEGER NOT NULL, reason TEXT NOT NULL DEFAULT '', round INTEGER NOT NULL DEFAULT 0,"
    " ready_cursor INTEGER NOT NULL DEFAULT 0, ready_last INTEGER NOT NULL DEFAULT 0,"
    " started_ms INTEGER NOT NULL DEFAULT 0, finished_ms INTEGER NOT NULL DEFAULT 0,"
    " changed_ms INTEGER NOT NULL DEFAULT 0, result_bytes INTEGER NOT NULL DEFAULT 0,"
    " result_chunks INTEGER NOT NULL DEFAULT 0, result_token INTEGER NOT NULL DEFAULT 0,"
    " keep_until_ms INTEGER NOT NULL DEFAULT 0, loaded_ms INTEGER NOT NULL);"
    "CREATE TABLE job_definition (job INTEGER PRIMARY KEY, definition BLOB NOT NULL);"
    "CREATE TABLE job_stage (job INTEGER NOT NULL, stage INTEGER NOT NULL, done INTEGER NOT NULL,"
    " failed INTEGER NOT NULL, sent INTEGER NOT NULL, cursor_idx INTEGER NOT NULL,"
    " sent_ms INTEGER NOT NULL, PRIMARY KEY (job, stage)) WITHOUT ROWID;"
    "CREATE TABLE job_event (job INTEGER NOT NULL, version INTEGER NOT NULL,"
    " state INTEGER NOT NULL, reason TEXT NOT NULL, round INTEGER NOT NULL,"
    " counters BLOB NOT NULL, started_ms INTEGER NOT NULL, finished_ms INTEGER NOT NULL,"
    " changed_ms INTEGER NOT NULL, result_bytes INTEGER NOT NULL, result_chunks INTEGER NOT NULL,"
    " PRIMARY KEY (job, version)) WITHOUT ROWID;"
    "CREATE TABLE job_result (job INTEGER NOT NULL, token INTEGER NOT NULL, seq INTEGER NOT NULL,"
    " bytes BLOB NOT NULL, PRIMARY KEY (job, token, seq)) WITHOUT ROWID;"
    "CREATE TABLE job_range (job INTEGER NOT NULL, segment INTEGER NOT NULL,"
    " first_idx INTEGER NOT NULL, n INTEGER NOT NULL, ended INTEGER NOT NULL,"
    " closed_ms INTEGER NOT NULL, PRIMARY KEY (job, segment)) WITHOUT ROWID;"
    "CREATE TABLE ready (job INTEGER NOT NULL, seq INTEGER NOT NULL, stage INTEGER NOT NULL,"
    " idx INTEGER NOT NULL, segment INTEGER NOT NULL, round INTEGER NOT NULL,"
    " PRIMARY KEY (job, seq)) WITHOUT ROWID;"
    "CREATE TABLE segment (n INTEGER PRIMARY KEY, parts INTEGER NOT NULL,"
    " created_ms INTEGER NOT NULL);"
    "CREATE TABLE part (segment INTEGER NOT NULL, job INTEGER NOT NULL, idx INTEGER NOT NULL,"
    " input BLOB NOT NULL, PRIMARY KEY (segment, job, idx)) WITHOUT ROWID;"
    "CREATE TABLE outcome (segment INTEGER NOT NULL, job INTEGER NOT NULL, stage INTEGER NOT NULL,"
    " idx INTEGER NOT NULL, failed INTEGER NOT NULL, bytes BLOB NOT NULL,"
    " finished_ms INTEGER NOT NULL, PRIMARY KEY (segment, job, stage, idx)) WITHOUT ROWID;"
    "INSERT INTO segment (n, parts, created_ms)"
    " VALUES (1, 0, CAST(strftime('%s', 'now') AS INTEGER) * 1000);" INDEXES;

const char sql_step_jobs_postgres[] =
    "CREATE TABLE job (no bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,"
    " uid bytea NOT NULL UNIQUE, name text NOT NULL, queue text COLLATE \"C\" NOT NULL,"
    " policy smallint NOT NULL, pipeline smallint NOT NULL, priority_ms bigint NOT NULL,"
    " retention_ms bigint NOT NULL, stages smallint NOT NULL,"
    " order_ms bigint NOT NULL DEFAULT 0, total bigint NOT NULL DEFAULT 0,"
    " first_segment bigint NOT NULL DEFAULT 0, last_segment bigint NOT NULL DEFAULT 0,"
    " created_ms bigint NOT NULL DEFAULT 0, version bigint NOT NULL DEFAULT 0,"
    " state smallint NOT NULL, reason text NOT NULL DEFAULT '', round integer NOT NULL DEFAULT 0,"
    " ready_cursor bigint NOT NULL DEFAULT 0, ready_last bigint NOT NULL DEFAULT 0,"
    " started_ms bigint NOT NULL DEFAULT 0, finished_ms bigint NOT NULL DEFAULT 0,"
    " changed_ms bigint NOT NULL DEFAULT 0, result_bytes bigint NOT NULL DEFAULT 0,"
    " result_chunks integer NOT NULL DEFAULT 0, result_token bigint NOT NULL DEFAULT 0,"
    " keep_until_ms bigint NOT NULL DEFAULT 0, loaded_ms bigint NOT NULL)"
    " WITH (fillfactor = 50);"
    "CREATE TABLE job_definition (job bigint PRIMARY KEY, definition bytea NOT NULL);"
    "CREATE TABLE job_stage (job bigint NOT NULL, stage smallint NOT NULL, done bigint NOT NULL,"
    " failed bigint NOT NULL, sent bigint NOT NULL, cursor_idx bigint NOT NULL,"
    " sent_ms bigint NOT NULL, PRIMARY KEY (job, stage)) WITH (fillfactor = 50);"
    "CREATE TABLE job_event (job bigint NOT NULL, version bigint NOT NULL,"
    " state smallint NOT NULL, reason text NOT NULL, round integer NOT NULL,"
    " counters bytea NOT NULL, started_ms bigint NOT NULL, finished_ms bigint NOT NULL,"
    " changed_ms bigint NOT NULL, result_bytes bigint NOT NULL, result_chunks integer NOT NULL,"
    " PRIMARY KEY (job, version));"
    "CREATE TABLE job_result (job bigint NOT NULL, token bigint NOT NULL, seq integer NOT NULL,"
    " bytes bytea NOT NULL, PRIMARY KEY (job, token, seq));"
    "CREATE TABLE job_range (job bigint NOT NULL, segment bigint NOT NULL,"
    " first_idx bigint NOT NULL, n bigint NOT NULL, ended bigint NOT NULL,"
    " closed_ms bigint NOT NULL, PRIMARY KEY (job, segment)) WITH (fillfactor = 50);"
    "CREATE TABLE ready (job bigint NOT NULL, seq bigint NOT NULL, stage smallint NOT NULL,"
    " idx bigint NOT NULL, segment bigint NOT NULL, round integer NOT NULL,"
    " PRIMARY KEY (job, seq));"
    "CREATE TABLE segment (n bigint PRIMARY KEY, parts bigint NOT NULL,"
    " created_ms bigint NOT NULL);"
    "CREATE TABLE part (segment bigint NOT NULL, job bigint NOT NULL, idx bigint NOT NULL,"
    " input bytea NOT NULL, PRIMARY KEY (segment, job, idx)) PARTITION BY LIST (segment);"
    "CREATE TABLE outcome (segment bigint NOT NULL, job bigint NOT NULL, stage smallint NOT NULL,"
    " idx bigint NOT NULL, failed smallint NOT NULL, bytes bytea NOT NULL,"
    " finished_ms bigint NOT NULL, PRIMARY KEY (segment, job, stage, idx))"
    " PARTITION BY LIST (segment);"
    "CREATE TABLE part_1 PARTITION OF part FOR VALUES IN (1);"
    "CREATE TABLE outcome_1 PARTITION OF outcome FOR VALUES IN (1);"
    "INSERT INTO segment (n, parts, created_ms)"
    " VALUES (1, 0, (extract(epoch FROM now()) * 1000)::bigint);" INDEXES;

/* How far a retry has come. */
const char sql_step_retries[] =
    "ALTER TABLE job ADD COLUMN retry_next bigint NOT NULL DEFAULT 9223372036854775807;";
