/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs in a folder: how fast one is made, how fast its parts go through, and behind many that have ended. */
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
#define COLD   "job-cold"

enum { SLOTS = 8, BATCH = 4000, PART_MAX = 64, OF_BACKLOG = 5, WAIT_MS = 60 * 1000 };

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

enum mr_err bench_job_submit(struct bench *bench, struct mr_client *client, uint64_t n,
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

enum mr_err bench_job_await(struct mr_client *client, const struct mr_job_list *list, uint64_t n)
{
    struct mr_job_list *end = NULL;
    enum mr_err err = MR_TIMEOUT;
    while (err == MR_TIMEOUT && !bench_interrupted())
        err = mr_job_wait(client, mr_job_list_at(list, 0)->id, WAIT_MS, &end);
    if (err != MR_OK)
        return bench_interrupted() ? MR_CANCELLED : err;
    bool done = mr_job_list_at(end, 0)->done == n;
    mr_job_list_free(end);
    return done ? MR_OK : MR_FAILED;
}

/* From the first part to the reduced result. */
static enum mr_err run_job(struct bench *bench, struct mr_client *client, uint64_t n,
                           double *ret_create_s, double *ret_through_s)
{
    struct mr_job_list *list = NULL;
    struct mr_worker *worker = NULL;
    int64_t start = bench_now_ns();
    MR_TRY(bench_job_submit(bench, client, n, &list));
    *ret_create_s = bench_seconds_since(start);
    enum mr_err err = bench_worker_new(client, SLOTS, bench_noop, NULL, &worker);
    if (err == MR_OK)
        err = bench_job_await(client, list, n);
    *ret_through_s = bench_seconds_since(start);
    mr_worker_free(worker);
    mr_job_list_free(list);
    return err;
}

static enum mr_err run_jobs(struct bench *bench)
{
    static const double RATE = 10 * 1000, SHARE = 0.5;
    uint64_t n = bench->backlog / OF_BACKLOG > 0 ? bench->backlog / OF_BACKLOG : 1;
    struct bench_store store;
    double bare = 0, create_s = 0, through_s = 0;
    bench_doing(bench, CREATE);
    MR_TRY(bench_store_open(bench, PARTS, NULL, &store));
    enum mr_err err = bare_insert(bench, n, &bare);
    if (err == MR_OK)
        err = run_job(bench, store.client, n, &create_s, &through_s);
    bench_store_close(&store);
    MR_TRY(err);
    double create = (double)n / create_s, through = (double)n / through_s;
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

/* ---- behind parts that have ended ------------------------------------------------------------ */

enum { COLD_JOBS = 10, COLD_OF_BACKLOG = 50, COLD_ROUNDS = 4 };

/* As many as a segment has, of the big backlog as it is by default. */
static enum mr_err make_cold(struct bench *bench, struct bench_store *store)
{
    uint64_t n = bench->backlog / COLD_OF_BACKLOG;
    double create_s, through_s;
    MR_TRY(bench_store_open_own(bench, COLD, NULL, store));
    for (int i = 0; i < COLD_JOBS; i++)
        MR_TRY(run_job(bench, store->client, n, &create_s, &through_s));
    return MR_OK;
}

/* Adds the seconds that a job takes in a folder that is new. That goes with the bench's: the disk would be busy
 * with it while the next job is measured. */
static enum mr_err run_none(struct bench *bench, int round, uint64_t n, double *seconds)
{
    struct bench_store store;
    char name[32];
    double create_s, through_s = 0;
    snprintf(name, sizeof name, COLD "-none-%d", round);
    MR_TRY(bench_store_open_own(bench, name, NULL, &store));
    enum mr_err err = run_job(bench, store.client, n, &create_s, &through_s);
    mr_client_close(store.client);
    *seconds += through_s;
    return err;
}

/* Both ways round, as what disturbs the machine may come and go. */
static enum mr_err cold_rounds(struct bench *bench, struct bench_store *cold, uint64_t n,
                               double *none_s, double *cold_s)
{
    for (int i = 0; i < COLD_ROUNDS; i++) {
        double create_s, through_s;
        if (i % 2 == 0)
            MR_TRY(run_none(bench, i, n, none_s));
        MR_TRY(run_job(bench, cold->client, n, &create_s, &through_s));
        *cold_s += through_s;
        if (i % 2 != 0)
            MR_TRY(run_none(bench, i, n, none_s));
    }
    return MR_OK;
}

static enum mr_err run_cold(struct bench *bench)
{
    static const double SHARE = 0.9;
    uint64_t n = bench->backlog / OF_BACKLOG / COLD_ROUNDS;
    struct bench_store cold = {0};
    double none_s = 0, cold_s = 0;
    bench_doing(bench, COLD);
    enum mr_err err = make_cold(bench, &cold);
    if (err == MR_OK)
        err = cold_rounds(bench, &cold, n, &none_s, &cold_s);
    bench_store_close(&cold);
    MR_TRY(err);
    double parts = (double)n * COLD_ROUNDS;
    struct bench_row *row = bench_add(bench, COLD, parts / cold_s, "parts/s");
    bench_yardstick(row, parts / none_s, "the same in a new folder");
    bench_goal(row, row->ratio >= SHARE, "%.1f of it", SHARE);
    snprintf(row->note, sizeof row->note, "behind %d jobs of %" PRIu64 " parts that have ended",
             COLD_JOBS, bench->backlog / COLD_OF_BACKLOG);
    return MR_OK;
}

const struct bench_group bench_jobs_cold = {NAMES(COLD), .place = BENCH_IN_FOLDER, .run = run_cold};
