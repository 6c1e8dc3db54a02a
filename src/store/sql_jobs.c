/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The statements of jobs. States are numbers (jobs.h): 1 loading, 2 to 4 live, 5 to 7 ended, 8 dropped.
 *
 * On PostgreSQL parts and outcomes are one table for each segment. A statement for many items that reads
 * them is for items of one segment: it gets the one number (I), so that the planner looks
 * at no other table, however many there are.
 */
#include "store/sql_jobs.h"

#include "store/jobs.h"

_Static_assert(MR_JOBROW_LOADING == 1 && MR_JOBROW_CREATED == 2 && MR_JOBROW_REDUCING == 4 &&
                   MR_JOBROW_SUCCEEDED == 5 && MR_JOBROW_CANCELLED == 7 && MR_JOBROW_DROPPED == 8,
               "the texts go by these numbers");

#define AT(name) [name - SQL_COUNT]

#define JOB                                                                                        \
    "j.no, j.uid, j.name, j.queue, j.policy, j.pipeline, j.priority_ms, j.order_ms, j.total,"      \
    " j.first_segment, j.last_segment, j.created_ms, j.version, j.state, j.reason, j.round,"       \
    " j.stages, j.ready_cursor, j.ready_last, j.started_ms, j.finished_ms, j.changed_ms,"          \
    " j.result_bytes, j.result_chunks, j.result_token, j.retention_ms, j.loaded_ms, j.retry_next"
#define JOB_TYPES "ibttiiiiiiiiiitiiiiiiiiiiiii"

#define LIVE "j.state >= 2 AND j.state <= 4"

#define IN_STATES(column, mask) "((1 << CAST(" column " AS integer)) & " mask ") <> 0"

#define JOB_SET_NAMES                                                                              \
    "no, order_ms, total, first_segment, last_segment, created_ms, version, state, reason, round," \
    " ready_cursor, ready_last, started_ms, finished_ms, changed_ms, result_bytes, result_chunks," \
    " result_token, keep_until_ms, loaded_ms, retry_next"

#define STAGE_PUT                                                                                  \
    " ON CONFLICT (job, stage) DO UPDATE SET done = excluded.done, failed = excluded.failed,"      \
    " sent = excluded.sent, cursor_idx = excluded.cursor_idx, sent_ms = excluded.sent_ms"

#define EVENT_NAMES                                                                                \
    "version, state, reason, round, counters, started_ms, finished_ms, changed_ms, result_bytes,"  \
    " result_chunks"
#define EVENT_PUT                                                                                  \
    " ON CONFLICT (job, version) DO UPDATE SET state = excluded.state, reason = excluded.reason,"  \
    " round = excluded.round, counters = excluded.counters, started_ms = excluded.started_ms,"     \
    " finished_ms = excluded.finished_ms, changed_ms = excluded.changed_ms,"                       \
    " result_bytes = excluded.result_bytes, result_chunks = excluded.result_chunks"

#define OUTCOME_NAMES "segment, job, stage, idx, failed, bytes, finished_ms"

/* Of p, in segment $1 and of job $2: it has no outcome in the stage. */
#define NO_OUTCOME(stage)                                                                          \
    " NOT EXISTS (SELECT 1 FROM outcome x WHERE x.segment = $1 AND x.job = $2"                     \
    " AND x.stage = " stage " AND x.idx = p.idx)"

/* The same, for many p within these indexes: so that who looks for them together looks at no others. */
#define NO_OUTCOME_WITHIN(stage, from, to)                                                         \
    " NOT EXISTS (SELECT 1 FROM outcome x WHERE x.segment = $1 AND x.job = $2"                     \
    " AND x.stage = " stage " AND x.idx = p.idx AND x.idx >= " from " AND x.idx < " to ")"

const struct statement sql_job_statements[SQL_ALL - SQL_COUNT] = {
    AT(SQL_JOB_LOCK) = {"b", JOB_TYPES, "SELECT " JOB " FROM job j WHERE j.uid = $1",
                        "SELECT k.ord, " JOB " FROM unnest($1) WITH ORDINALITY AS k(uid, ord)"
                        " JOIN job j ON j.uid = k.uid ORDER BY j.no FOR UPDATE OF j",
                        true},
    AT(SQL_JOB_BY_UID) = {"b", JOB_TYPES, "SELECT " JOB " FROM job j WHERE j.uid = $1",
                          "SELECT k.ord, " JOB " FROM unnest($1) WITH ORDINALITY AS k(uid, ord)"
                          " JOIN job j ON j.uid = k.uid",
                          true},
    /* before, states, max */
    AT(SQL_JOB_LIST) = {"iii", JOB_TYPES,
                        "SELECT " JOB
                        " FROM job j WHERE j.no < $1 AND " IN_STATES("j.state", "$2") //
                        " ORDER BY j.no DESC LIMIT $3"},
    AT(SQL_JOB_LIST_QUEUE) = {"iiit", JOB_TYPES,
                              "SELECT " JOB
                              " FROM job j WHERE j.no < $1 AND " IN_STATES("j.state", "$2") //
                              " AND j.queue = $4 ORDER BY j.no DESC LIMIT $3"},
    /* queue, after_ms, after_no, max */
    AT(SQL_JOB_LIVE) = {"tiii", JOB_TYPES,
                        "SELECT " JOB " FROM job j WHERE j.queue = $1 AND " LIVE
                        " AND (j.order_ms, j.no) > ($2, $3) ORDER BY j.order_ms, j.no LIMIT $4"},
    AT(SQL_JOB_QUEUES) = {"ti", "t",
                          "SELECT DISTINCT j.queue FROM job j WHERE " LIVE
                          " AND j.queue > $1 ORDER BY j.queue LIMIT $2"},
    AT(SQL_JOB_ADD) = {"bttiiiiii", "i",
                       "INSERT INTO job (uid, name, queue, policy, pipeline, priority_ms,"
                       " retention_ms, stages, state, loaded_ms)"
                       " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, 1, $9) RETURNING no"},
    AT(SQL_JOB_SET) =
        {"iiiiiiiitiiiiiiiiiiii", "",
         "UPDATE job SET order_ms = $2, total = $3, first_segment = $4, last_segment = $5,"
         " created_ms = $6, version = $7, state = $8, reason = $9, round = $10,"
         " ready_cursor = $11, ready_last = $12, started_ms = $13, finished_ms = $14,"
         " changed_ms = $15, result_bytes = $16, result_chunks = $17, result_token = $18,"
         " keep_until_ms = $19, loaded_ms = $20, retry_next = $21 WHERE no = $1",
         "UPDATE job SET order_ms = k.order_ms, total = k.total, first_segment = k.first_segment,"
         " last_segment = k.last_segment, created_ms = k.created_ms, version = k.version,"
         " state = k.state, reason = k.reason, round = k.round, ready_cursor = k.ready_cursor,"
         " ready_last = k.ready_last, started_ms = k.started_ms, finished_ms = k.finished_ms,"
         " changed_ms = k.changed_ms, result_bytes = k.result_bytes,"
         " result_chunks = k.result_chunks, result_token = k.result_token,"
         " keep_until_ms = k.keep_until_ms, loaded_ms = k.loaded_ms, retry_next = k.retry_next"
         " FROM unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17,"
         " $18, $19, $20, $21) AS k(" JOB_SET_NAMES ") WHERE job.no = k.no",
         true},
    AT(SQL_DEFINITION_ADD) = {"ib", "",
                              "INSERT INTO job_definition (job, definition) VALUES ($1, $2)"},
    AT(SQL_DEFINITION) = {"i", "b", "SELECT definition FROM job_definition WHERE job = $1"},
    AT(SQL_STAGES) = {"i", "iiiiii",
                      "SELECT stage, done, failed, sent, cursor_idx, sent_ms FROM job_stage"
                      " WHERE job = $1",
                      "SELECT k.ord, s.stage, s.done, s.failed, s.sent, s.cursor_idx, s.sent_ms"
                      " FROM unnest($1) WITH ORDINALITY AS k(job, ord)"
                      " JOIN job_stage s ON s.job = k.job",
                      true},
    AT(SQL_STAGE_PUT) = {"iiiiiii", "",
                         "INSERT INTO job_stage (job, stage, done, failed, sent, cursor_idx,"
                         " sent_ms) VALUES ($1, $2, $3, $4, $5, $6, $7)" STAGE_PUT,
                         "INSERT INTO job_stage (job, stage, done, failed, sent, cursor_idx,"
                         " sent_ms) SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7)" STAGE_PUT,
                         true},
    AT(SQL_EVENT_PUT) = {"iiitibiiiii", "",
                         "INSERT INTO job_event (job, " EVENT_NAMES ")"
                         " VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)" EVENT_PUT,
                         "INSERT INTO job_event (job, " EVENT_NAMES ") SELECT * FROM"
                         " unnest($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)" EVENT_PUT,
                         true},
    AT(SQL_EVENT_TRIM) = {"ii", "", "DELETE FROM job_event WHERE job = $1 AND version <= $2",
                          "DELETE FROM job_event e USING unnest($1, $2) AS k(job, version)"
                          " WHERE e.job = k.job AND e.version <= k.version",
                          true},
    AT(SQL_EVENTS) = {"iii", "iitibiiiii",
                      "SELECT " EVENT_NAMES " FROM job_event WHERE job = $1 AND version > $2"
                      " ORDER BY version LIMIT $3"},

    /* The greatest number may have been made while the row before was waited for: ask again for it. */
    AT(SQL_SEGMENT_LOCK) = {"", "ii", "SELECT n, parts FROM segment ORDER BY n DESC LIMIT 1",
                            "SELECT n, parts FROM segment ORDER BY n DESC LIMIT 1 FOR UPDATE"},
    AT(SQL_SEGMENT_END) = {"", "i", "SELECT max(n) FROM segment"},
    /* SQLite does not count rows: what index is the short one is said. */
    AT(SQL_SEGMENT_BEGIN) =
        {"", "i",
         "SELECT coalesce((SELECT segment FROM job_range INDEXED BY job_range_open"
         " WHERE closed_ms = 0 ORDER BY segment LIMIT 1), (SELECT max(n) FROM segment))",
         "SELECT coalesce((SELECT segment FROM job_range WHERE closed_ms = 0"
         " ORDER BY segment LIMIT 1), (SELECT max(n) FROM segment))"},
    AT(SQL_SEGMENT_ADD) = {"ii", "",
                           "INSERT INTO segment (n, parts, created_ms) VALUES ($1, 0, $2)"},
    AT(SQL_SEGMENT_SET) = {"ii", "", "UPDATE segment SET parts = $2 WHERE n = $1"},
    AT(SQL_SEGMENTS) =
        {"ii", "iiiii",
         "SELECT s.n, s.parts, s.created_ms,"
         " (SELECT count(*) FROM job_range r WHERE r.segment = s.n AND r.closed_ms = 0),"
         " coalesce((SELECT max(r.closed_ms) FROM job_range r WHERE r.segment = s.n), 0)"
         " FROM segment s WHERE s.n > $1 ORDER BY s.n LIMIT $2"},
    AT(SQL_RANGE_PUT) = {"iiii", "",
                         "INSERT INTO job_range (job, segment, first_idx, n, ended, closed_ms)"
                         " VALUES ($1, $2, $3, $4, 0, 0) ON CONFLICT (job, segment)"
                         " DO UPDATE SET n = job_range.n + excluded.n"},
    AT(SQL_RANGE_GET) = {"ii", "ii",
                         "SELECT first_idx, n FROM job_range WHERE job = $1 AND segment = $2",
                         "SELECT k.ord, r.first_idx, r.n FROM unnest($1, $2) WITH ORDINALITY"
                         " AS k(job, segment, ord)"
                         " JOIN job_range r ON r.job = k.job AND r.segment = k.segment",
                         true},
    /* job, segment, parts that have ended, now */
    AT(SQL_RANGE_END) =
        {"iiii", "",
         "UPDATE job_range SET ended = ended + $3,"
         " closed_ms = CASE WHEN ended + $3 >= n THEN $4 ELSE closed_ms END"
         " WHERE job = $1 AND segment = $2",
         "UPDATE job_range r SET ended = r.ended + k.more,"
         " closed_ms = CASE WHEN r.ended + k.more >= r.n THEN k.now ELSE r.closed_ms END"
         " FROM unnest($1, $2, $3, $4) AS k(job, segment, more, now)"
         " WHERE r.job = k.job AND r.segment = k.segment",
         true},
    AT(SQL_RANGE_SET) = {"iiii", "",
                         "UPDATE job_range SET ended = $3, closed_ms = $4"
                         " WHERE job = $1 AND segment = $2",
                         "UPDATE job_range r SET ended = k.ended, closed_ms = k.closed_ms"
                         " FROM unnest($1, $2, $3, $4) AS k(job, segment, ended, closed_ms)"
                         " WHERE r.job = k.job AND r.segment = k.segment",
                         true},
    /* job, segment, parts that have not ended any more */
    AT(SQL_RANGE_REOPEN) = {"iii", "",
                            "UPDATE job_range SET ended = ended - $3,"
                            " closed_ms = CASE WHEN ended - $3 < n THEN 0 ELSE closed_ms END"
                            " WHERE job = $1 AND segment = $2"},
    /* From the one on that has the index. */
    AT(SQL_RANGES_FROM) = {"iii", "iiiii",
                           "SELECT segment, first_idx, n, ended, closed_ms FROM job_range"
                           " WHERE job = $1 AND first_idx >= coalesce((SELECT max(first_idx)"
                           " FROM job_range WHERE job = $1 AND first_idx <= $2), 0)"
                           " ORDER BY first_idx LIMIT $3"},
    AT(SQL_RANGES_LOCK) = {"i", "iiiii",
                           "SELECT segment, first_idx, n, ended, closed_ms FROM job_range"
                           " WHERE job = $1 ORDER BY segment",
                           "SELECT segment, first_idx, n, ended, closed_ms FROM job_range"
                           " WHERE job = $1 ORDER BY segment FOR UPDATE"},
    AT(SQL_RANGES_CLOSE) = {"ii", "",
                            "UPDATE job_range SET closed_ms = $2 WHERE job = $1 AND closed_ms = 0"},

    /* Their indexes follow each other. */
    AT(SQL_PART_ADD) = {"IIIb", "",
                        "INSERT INTO part (segment, job, idx, input) VALUES ($1, $2, $3, $4)",
                        "INSERT INTO part (segment, job, idx, input)"
                        " SELECT $1, $2, $3 + k.ord - 1, k.input"
                        " FROM unnest($4) WITH ORDINALITY AS k(input, ord)",
                        true},
    /* segment, job, from, to, max, bytes; a page is cut by its bytes where rows do not come one by one */
    AT(SQL_PARTS_PAGE) = {"iiiiii", "ib",
                          "SELECT idx, input FROM part WHERE segment = $1 AND job = $2"
                          " AND idx >= $3 AND idx < $4 ORDER BY idx LIMIT $5",
                          "SELECT idx, input FROM (SELECT idx, input,"
                          " sum(length(input)) OVER (ORDER BY idx) - length(input) AS before"
                          " FROM part WHERE segment = $1 AND job = $2 AND idx >= $3 AND idx < $4"
                          " ORDER BY idx LIMIT $5) p WHERE before < $6 ORDER BY idx"},
    /* segment, job, idx */
    AT(SQL_PART_INPUT) = {"Iii", "b",
                          "SELECT p.input FROM part p WHERE p.segment = $1 AND p.job = $2"
                          " AND p.idx = $3 AND" NO_OUTCOME("0"),
                          "SELECT k.ord, p.input FROM unnest($2, $3) WITH ORDINALITY"
                          " AS k(job, idx, ord) JOIN part p ON p.segment = $1"
                          " AND p.job = k.job AND p.idx = k.idx WHERE NOT EXISTS (SELECT 1"
                          " FROM outcome x WHERE x.segment = $1 AND x.job = p.job"
                          " AND x.stage = 0 AND x.idx = p.idx)",
                          true},
    /* The first one stays; who is the first is told. */
    AT(SQL_OUTCOME_ADD) =
        {"iiiiibi", "i",
         "INSERT INTO outcome (" OUTCOME_NAMES ") VALUES ($1, $2, $3, $4, $5, $6, $7)"
         " ON CONFLICT DO NOTHING RETURNING 1",
         "WITH k AS (SELECT * FROM unnest($1, $2, $3, $4, $5, $6, $7) WITH ORDINALITY"
         " AS k(" OUTCOME_NAMES ", ord)), i AS (INSERT INTO outcome (" OUTCOME_NAMES
         ") SELECT " OUTCOME_NAMES " FROM k ON CONFLICT DO NOTHING"
         " RETURNING segment, job, stage, idx)"
         " SELECT k.ord, 1 FROM i JOIN k USING (segment, job, stage, idx)",
         true},
    AT(SQL_OUTCOME_AT) = {"Iiii", "i",
                          "SELECT failed FROM outcome WHERE segment = $1 AND job = $2"
                          " AND stage = $3 AND idx = $4",
                          "SELECT k.ord, o.failed FROM unnest($2, $3, $4) WITH ORDINALITY"
                          " AS k(job, stage, idx, ord) JOIN outcome o ON o.segment = $1"
                          " AND o.job = k.job AND o.stage = k.stage AND o.idx = k.idx",
                          true},
    /* segment, job, stage, from, to */
    AT(SQL_OUTCOMES) = {"iiiii", "iibi",
                        "SELECT idx, failed, CASE WHEN failed = 1 THEN substr(bytes, 1, 512)"
                        " ELSE '' END, finished_ms FROM outcome WHERE segment = $1 AND job = $2"
                        " AND stage = $3 AND idx >= $4 AND idx < $5"},
    AT(SQL_OUTCOME_COUNT) =
        {"ii", "iiii",
         "SELECT stage, failed, count(*), max(idx) FROM outcome WHERE segment = $1 AND job = $2"
         " GROUP BY stage, failed"},
    /* segment, job, stage, from, to */
    AT(SQL_OUTCOMES_FORGET) = {"iiiii", "i",
                               "DELETE FROM outcome WHERE segment = $1 AND job = $2 AND stage = $3"
                               " AND idx >= $4 AND idx < $5 AND failed = 1 RETURNING 1"},
    /* segment, job, stage, from, to, max, bytes */
    AT(SQL_RESULTS_PAGE) = {"iiiiiii", "ib",
                            "SELECT idx, bytes FROM outcome WHERE segment = $1 AND job = $2"
                            " AND stage = $3 AND idx >= $4 AND idx < $5 AND failed = 0"
                            " ORDER BY idx LIMIT $6",
                            "SELECT idx, bytes FROM (SELECT idx, bytes,"
                            " sum(length(bytes)) OVER (ORDER BY idx) - length(bytes) AS before"
                            " FROM outcome WHERE segment = $1 AND job = $2 AND stage = $3"
                            " AND idx >= $4 AND idx < $5 AND failed = 0"
                            " ORDER BY idx LIMIT $6) p WHERE before < $7 ORDER BY idx"},
    /* segment, job, stage that it comes to, idx */
    AT(SQL_PART_RESULT) = {"Iiii", "b",
                           "SELECT p.bytes FROM outcome p WHERE p.segment = $1 AND p.job = $2"
                           " AND p.stage = $3 - 1 AND p.idx = $4 AND p.failed = 0"
                           " AND" NO_OUTCOME("$3"),
                           "SELECT k.ord, p.bytes FROM unnest($2, $3, $4) WITH ORDINALITY"
                           " AS k(job, stage, idx, ord) JOIN outcome p ON p.segment = $1"
                           " AND p.job = k.job AND p.stage = k.stage - 1 AND p.idx = k.idx"
                           " AND p.failed = 0 WHERE NOT EXISTS (SELECT 1 FROM outcome x"
                           " WHERE x.segment = $1 AND x.job = p.job AND x.stage = k.stage"
                           " AND x.idx = p.idx)",
                           true},

    AT(SQL_READY_ADD) = {"iiiiii", "",
                         "INSERT INTO ready (job, seq, stage, idx, segment, round)"
                         " VALUES ($1, $2, $3, $4, $5, $6)",
                         "INSERT INTO ready (job, seq, stage, idx, segment, round)"
                         " SELECT * FROM unnest($1, $2, $3, $4, $5, $6)",
                         true},
    AT(SQL_READY_CLEAR) = {"i", "", "DELETE FROM ready WHERE job = $1"},
    /* job, up to, max */
    AT(SQL_READY_TRIM) = {"iii", "i",
                          "DELETE FROM ready WHERE job = $1 AND seq IN (SELECT seq FROM ready"
                          " WHERE job = $1 AND seq <= $2 ORDER BY seq LIMIT $3) RETURNING 1"},
    /* segment, job, number before that of index 0, from, to, round. Numbers need not be close. */
    AT(SQL_READY_INPUTS) = {"iiiiii", "",
                            "INSERT INTO ready (job, seq, stage, idx, segment, round)"
                            " SELECT p.job, $3 + p.idx + 1, 0, p.idx, p.segment, $6 FROM part p"
                            " WHERE p.segment = $1 AND p.job = $2 AND p.idx >= $4 AND p.idx < $5"
                            " AND" NO_OUTCOME_WITHIN("0", "$4", "$5")},
    /* the same, and the stage */
    AT(SQL_READY_RESULTS) = {"iiiiiii", "",
                             "INSERT INTO ready (job, seq, stage, idx, segment, round)"
                             " SELECT p.job, $3 + p.idx + 1, $7, p.idx, p.segment, $6"
                             " FROM outcome p WHERE p.segment = $1 AND p.job = $2"
                             " AND p.stage = $7 - 1 AND p.idx >= $4 AND p.idx < $5"
                             " AND p.failed = 0 AND" NO_OUTCOME_WITHIN("$7", "$4", "$5")},
    AT(SQL_READY_LIST) = {"iii", "iiiii",
                          "SELECT seq, stage, idx, segment, round FROM ready"
                          " WHERE job = $1 AND seq > $2 ORDER BY seq LIMIT $3"},
    /* Second tasks, of odd rounds, are not counted, and stay: a part has one of them in a round. */
    AT(SQL_READY_COUNT) = {"iii", "ii",
                           "SELECT stage, count(*) FROM ready WHERE job = $1 AND seq > $2"
                           " AND seq <= $3 AND round % 2 = 0 GROUP BY stage"},
    AT(SQL_READY_PASS) = {"iii", "",
                          "DELETE FROM ready WHERE job = $1 AND seq > $2 AND seq <= $3"
                          " AND round % 2 = 0"},
    AT(SQL_READY_AT) = {"iii", "ii",
                        "SELECT seq, round FROM ready INDEXED BY ready_part"
                        " WHERE job = $1 AND stage = $2 AND idx = $3",
                        "SELECT k.ord, r.seq, r.round FROM unnest($1, $2, $3) WITH ORDINALITY"
                        " AS k(job, stage, idx, ord)"
                        " JOIN ready r ON r.job = k.job AND r.stage = k.stage AND r.idx = k.idx",
                        true},
    /* job, stage, from, to */
    AT(SQL_READY_OF) = {"iiii", "iii",
                        "SELECT idx, seq, round FROM ready WHERE job = $1 AND stage = $2"
                        " AND idx >= $3 AND idx < $4"},

    AT(SQL_CHUNK_PUT) = {"iiib", "",
                         "INSERT INTO job_result (job, token, seq, bytes) VALUES ($1, $2, $3, $4)"
                         " ON CONFLICT (job, token, seq) DO UPDATE SET bytes = excluded.bytes"},
    AT(SQL_CHUNKS) = {"iiii", "b",
                      "SELECT bytes FROM job_result WHERE job = $1 AND token = $2 AND seq >= $3"
                      " ORDER BY seq LIMIT $4"},
    /* All but the first so many of a token. */
    AT(SQL_CHUNKS_TRIM) = {"iii", "",
                           "DELETE FROM job_result WHERE job = $1"
                           " AND NOT (token = $2 AND seq < $3)"},

    /* now, max */
    AT(SQL_DROP_ENDED) = {"ii", "i",
                          "UPDATE job SET state = 8 WHERE no IN (SELECT no FROM job"
                          " WHERE state >= 5 AND state <= 7 AND keep_until_ms < $1"
                          " ORDER BY keep_until_ms LIMIT $2) RETURNING 1",
                          "UPDATE job SET state = 8 WHERE no IN (SELECT no FROM job"
                          " WHERE state >= 5 AND state <= 7 AND keep_until_ms < $1"
                          " ORDER BY keep_until_ms LIMIT $2 FOR UPDATE SKIP LOCKED) RETURNING 1"},
    AT(SQL_DROP_LOADS) = {"ii", "i",
                          "UPDATE job SET state = 8 WHERE no IN (SELECT no FROM job"
                          " WHERE state = 1 AND loaded_ms < $1"
                          " ORDER BY loaded_ms LIMIT $2) RETURNING 1",
                          "UPDATE job SET state = 8 WHERE no IN (SELECT no FROM job"
                          " WHERE state = 1 AND loaded_ms < $1"
                          " ORDER BY loaded_ms LIMIT $2 FOR UPDATE SKIP LOCKED) RETURNING 1"},
    AT(SQL_DROPPED) = {"", "ii", "SELECT no, stages FROM job WHERE state = 8 ORDER BY no LIMIT 1",
                       "SELECT no, stages FROM job WHERE state = 8 ORDER BY no LIMIT 1"
                       " FOR UPDATE SKIP LOCKED"},
    /* segment, job, from, to */
    AT(SQL_DROP_PARTS) = {"iiii", "",
                          "DELETE FROM part WHERE segment = $1 AND job = $2 AND idx >= $3"
                          " AND idx < $4"},
    AT(SQL_DROP_OUTCOMES) = {"iiiii", "",
                             "DELETE FROM outcome WHERE segment = $1 AND job = $2 AND stage = $5"
                             " AND idx >= $3 AND idx < $4"},
    /* job, segment, what is left of it */
    AT(SQL_RANGE_SHORTEN) = {"iii", "",
                             "UPDATE job_range SET n = $3 WHERE job = $1 AND segment = $2"},
    AT(SQL_DROP_RANGE) = {"ii", "", "DELETE FROM job_range WHERE job = $1 AND segment = $2"},
    AT(SQL_DROP_READY) = {"ii", "i",
                          "DELETE FROM ready WHERE job = $1 AND seq IN (SELECT seq FROM ready"
                          " WHERE job = $1 ORDER BY seq LIMIT $2) RETURNING 1"},
    AT(SQL_DROP_CHUNKS) = {"ii", "i",
                           "DELETE FROM job_result WHERE job = $1 AND (token, seq) IN"
                           " (SELECT token, seq FROM job_result WHERE job = $1 LIMIT $2)"
                           " RETURNING 1"},
    AT(SQL_DROP_EVENTS) = {"i", "", "DELETE FROM job_event WHERE job = $1"},
    AT(SQL_DROP_STAGES) = {"i", "", "DELETE FROM job_stage WHERE job = $1"},
    AT(SQL_DROP_DEFINITION) = {"i", "", "DELETE FROM job_definition WHERE job = $1"},
    AT(SQL_DROP_JOB) = {"i", "", "DELETE FROM job WHERE no = $1"},
    AT(SQL_SEGMENT_FIRST) =
        {"", "iii",
         "SELECT s.n, s.created_ms, coalesce((SELECT max(r.closed_ms) FROM job_range r"
         " WHERE r.segment = s.n), 0) FROM segment s ORDER BY s.n LIMIT 1",
         "SELECT s.n, s.created_ms, coalesce((SELECT max(r.closed_ms) FROM job_range r"
         " WHERE r.segment = s.n), 0) FROM segment s ORDER BY s.n LIMIT 1 FOR UPDATE OF s"},
    AT(SQL_SEGMENT_IN_USE) = {"i", "i",
                              "SELECT count(*) FROM job_range r JOIN job j ON j.no = r.job"
                              " WHERE r.segment = $1 AND j.state <= 4"},
    AT(SQL_SEGMENT_RANGES_DROP) = {"i", "i",
                                   "DELETE FROM job_range WHERE segment = $1 RETURNING job"},
    AT(SQL_JOB_IS_LIVE) = {"i", "i", "SELECT 1 FROM job WHERE no = $1 AND state <= 4",
                           "SELECT k.ord, 1 FROM unnest($1) WITH ORDINALITY AS k(no, ord)"
                           " JOIN job j ON j.no = k.no AND j.state <= 4",
                           true},
    /* segment, max; where segments are no tables of their own */
    AT(SQL_SEGMENT_PARTS_DROP) = {"ii", "i",
                                  "DELETE FROM part WHERE segment = $1 AND (job, idx) IN"
                                  " (SELECT job, idx FROM part WHERE segment = $1 LIMIT $2)"
                                  " RETURNING 1"},
    AT(SQL_SEGMENT_OUTCOMES_DROP) =
        {"ii", "i",
         "DELETE FROM outcome WHERE segment = $1 AND (job, stage, idx) IN"
         " (SELECT job, stage, idx FROM outcome WHERE segment = $1 LIMIT $2) RETURNING 1"},
    AT(SQL_SEGMENT_DROP) = {"i", "", "DELETE FROM segment WHERE n = $1"},
};
