/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs in a folder: how fast one is made, and how fast its parts go through. */
#include <inttypes.h>
#include <sqlite3.h>
#include <stdlib.h>

#include "cli/bench/bench.h"

#define NAMES(...)                                                                                 \
    .names = (const char *const[])                                                                 \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }
#define CREATE "job-create"
#define PARTS  "job-parts"

enum { SLOTS = 8, BATCH = 4000, PART_MAX = 64, OF_BACKLOG = 5, WAIT_MS = 3600 * 1000 };

static struct mr_slice part_of(uint64_t i, char text[PART_MAX])
{
    int len = snprintf(text, PART_MAX, "line %" PRIu64 " of a text that is long\n", i);
    return (struct mr_slice){text, (size_t)len};
}

/* ---- the yardstick: the same rows, inserted in batches, and nothing else --------------------- */

static bool insert_all(sqlite3 *db, sqlite3_stmt *insert, uint64_t n)
{
    char text[PART_MAX];
    bool fine = true;
    for (uint64_t i = 0; fine && i < n; i++) {
        struct mr_slice part = part_of(i, text);
        if (i % BATCH == 0)
            fine = sqlite3_exec(db, i > 0 ? "COMMIT; BEGIN" : "BEGIN", NULL, NULL, NULL) == 0;
        (void)sqlite3_bind_int64(insert, 1, (sqlite3_int64)i);
        (void)sqlite3_bind_blob(insert, 2, part.data, (int)part.len, SQLITE_STATIC);
        fine = fine && sqlite3_step(insert) == SQLITE_DONE && sqlite3_reset(insert) == 0;
    }
    return fine && sqlite3_exec(db, "COMMIT", NULL, NULL, NULL) == 0;
}

static enum mr_err bare_insert(const struct bench *bench, uint64_t n, double *ret_rate)
{
    static const char schema[] =
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
        "CREATE TABLE part (segment INTEGER NOT NULL, job INTEGER NOT NULL, idx INTEGER NOT NULL,"
        " input BLOB NOT NULL, PRIMARY KEY (segment, job, idx)) WITHOUT ROWID";
    char path[MR_PATH_MAX];
    sqlite3 *db = NULL;
    sqlite3_stmt *insert = NULL;
    MR_TRY(mr_path_join(path, bench->dir, "bare.db"));
    bool fine = sqlite3_open(path, &db) == SQLITE_OK &&
                sqlite3_exec(db, schema, NULL, NULL, NULL) == SQLITE_OK &&
                sqlite3_prepare_v2(db, "INSERT INTO part VALUES (1, 1, ?, ?)", -1, &insert, NULL) ==
                    SQLITE_OK;
    int64_t start = bench_now_ns();
    fine = fine && insert_all(db, insert, n);
    *ret_rate = (double)n / bench_seconds_since(start);
    (void)sqlite3_finalize(insert);
    (void)sqlite3_close(db);
    return fine ? MR_OK : MR_IO;
}

/* ---- jobs ------------------------------------------------------------------------------------ */

static enum mr_err submit(struct bench *bench, struct mr_client *client, uint64_t n,
                          struct mr_job_list **ret_list)
{
    static const struct mr_slice stages[] = {{"noop", 4}};
    struct mr_job_options options = {
        .queue = mr_slice_str(BENCH_QUEUE), .stages = stages, .stages_n = 1};
    struct mr_job_input *input;
    enum mr_err err = mr_job_begin(client, &options, &input, &bench->detail);
    if (err != MR_OK)
        return err;
    for (uint64_t i = 0; err == MR_OK && i < n; i++) {
        char text[PART_MAX];
        err = bench_interrupted() ? MR_CANCELLED
                                  : mr_job_part(input, part_of(i, text), &bench->detail);
    }
    if (err == MR_OK)
        return mr_job_submit(input, ret_list, &bench->detail);
    mr_job_abandon(input);
    return err;
}

/* From the first part to the reduced result. */
static enum mr_err run_job(struct bench *bench, struct mr_client *client, uint64_t n,
                           double *ret_create, double *ret_through)
{
    struct mr_job_list *list = NULL, *end = NULL;
    struct mr_worker *worker = NULL;
    int64_t start = bench_now_ns();
    MR_TRY(submit(bench, client, n, &list));
    *ret_create = (double)n / bench_seconds_since(start);
    enum mr_err err = bench_worker_new(client, SLOTS, bench_noop, NULL, &worker);
    if (err == MR_OK)
        err = mr_job_wait(client, mr_job_list_at(list, 0)->id, WAIT_MS, &end);
    *ret_through = (double)n / bench_seconds_since(start);
    if (err == MR_OK && mr_job_list_at(end, 0)->done != n)
        err = MR_FAILED;
    mr_worker_free(worker);
    mr_job_list_free(list);
    mr_job_list_free(end);
    return err;
}

static enum mr_err run_jobs(struct bench *bench)
{
    static const double RATE = 10 * 1000, SHARE = 0.5;
    uint64_t n = bench->backlog / OF_BACKLOG > 0 ? bench->backlog / OF_BACKLOG : 1;
    struct bench_store store;
    double bare = 0, create = 0, through = 0;
    bench_doing(bench, CREATE);
    MR_TRY(bench_store_open(bench, PARTS, NULL, &store));
    enum mr_err err = bare_insert(bench, n, &bare);
    if (err == MR_OK)
        err = run_job(bench, store.client, n, &create, &through);
    bench_store_close(&store);
    MR_TRY(err);
    struct bench_row *row = bench_add(bench, CREATE, create, "parts/s");
    bench_yardstick(row, bare, "the same rows inserted, %d at a time", BATCH);
    bench_goal(row, create >= SHARE * bare, "%.1f of it", SHARE);
    snprintf(row->note, sizeof row->note, "a job of %" PRIu64 " parts", n);
    row = bench_add(bench, PARTS, through, "parts/s");
    bench_yardstick(row, RATE, "goal");
    bench_goal(row, through >= RATE, "%.0f parts/s", RATE);
    snprintf(row->note, sizeof row->note, "no-op, %d slots, from the first part to the result",
             SLOTS);
    return MR_OK;
}

const struct bench_group bench_jobs = {NAMES(CREATE, PARTS), .place = BENCH_IN_FOLDER,
                                       .run = run_jobs};
