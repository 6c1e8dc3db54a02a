/* SPDX-License-Identifier: Apache-2.0 */
/*
 * millrace bench: figures beside their yardsticks, measured in the same run, since a machine that
 * is shared with others is noisy. Rows are made by groups; a group runs when one of its rows is
 * wanted.
 */
#ifndef MR_CLI_BENCH_BENCH_H
#define MR_CLI_BENCH_BENCH_H

#include <stdatomic.h>

#include "base/chan.h"
#include "base/fs.h"
#include "cli/cli.h"

enum { BENCH_PAYLOAD = 100, BENCH_BATCH = 256, BENCH_ROWS_MAX = 48, BENCH_TEXT = 120 };

/* One figure. */
struct bench_row {
    const char *name;
    double value;
    const char *unit;
    char yardstick[BENCH_TEXT];
    double yardstick_value;
    double ratio; /* value / yardstick_value */
    char goal[BENCH_TEXT];
    bool met;
    char note[BENCH_TEXT]; /* what a reader should know; may be empty */
};

struct bench {
    struct cli *cli;
    double seconds;   /* each timed loop lasts this long */
    uint64_t backlog; /* tasks of the big backlog */
    const struct cli_value *only;
    bool own_dir;          /* no broker was named: stores and servers are ours, in dir */
    char dir[MR_PATH_MAX]; /* made by us: where yardsticks and stores are */
    struct bench_row rows[BENCH_ROWS_MAX];
    size_t rows_n;
    struct mr_detail detail; /* of the failure that ended a group */
    int told;                /* or its exit code, where it was told already; 0: it was not */
};

#define BENCH_QUEUE "millrace-bench"

/* Where a group runs: in a folder of this process, at a server, only at a server that is ours, or on a
 * Redis that was named. */
enum bench_place { BENCH_IN_FOLDER, BENCH_AT_SERVER, BENCH_AT_OWN_SERVER, BENCH_ON_REDIS };

struct bench_group {
    const char *const *names; /* of its rows, NULL-terminated */
    enum bench_place place;
    enum mr_err (*run)(struct bench *bench);
};

extern const struct bench_group bench_enqueue_batch, bench_enqueue_threads, bench_latency,
    bench_snapshot, bench_disk, bench_lateness, bench_backlog, bench_idle, bench_server_batch,
    bench_server_unary, bench_server_process, bench_server_latency, bench_server_idle,
    bench_server_start, bench_redis_batch, bench_redis_process, bench_redis_latency,
    bench_redis_lateness, bench_redis_memory, bench_redis_idle, bench_redis_recovery,
    bench_timer_operations, bench_jobs, bench_jobs_cold, bench_job_readers, bench_names_crowd,
    bench_names_heal, bench_http_enqueue, bench_http_list, bench_http_events, bench_http_queues;

bool bench_wants(const struct bench *bench, const char *name);
/* Adds a row; the ratio follows. */
struct bench_row *bench_add(struct bench *bench, const char *name, double value, const char *unit);
void bench_yardstick(struct bench_row *row, double value, const char *fmt, ...) MR_PRINTF(3, 4);
void bench_goal(struct bench_row *row, bool met, const char *fmt, ...) MR_PRINTF(3, 4);
/* Tells a person on a terminal what goes on now. */
void bench_doing(const struct bench *bench, const char *what);
/* Set by SIGINT and SIGTERM; loops end early and the group answers MR_CANCELLED. */
bool bench_interrupted(void);

/* ---- store.c -------------------------------------------------------------------------------- */

/* Opens the broker that the user named; says why it cannot. */
MR_MUST_USE enum mr_err bench_connect(struct bench *bench, const struct mr_client_options *options,
                                      struct mr_client **ret_client);
/* For a failure that was told with this exit code. */
MR_MUST_USE enum mr_err bench_told(struct bench *bench, int code);

/* A store for one group: a fresh folder, or the broker the user named. */
struct bench_store {
    struct mr_client *client;
    char url[MR_PATH_MAX + 8];
    char dir[MR_PATH_MAX]; /* removed at the end; empty: not ours */
};

MR_MUST_USE enum mr_err bench_store_open(struct bench *bench, const char *name,
                                         const struct mr_client_options *options,
                                         struct bench_store *store);
/* A fresh folder of our own, whatever was named. */
MR_MUST_USE enum mr_err bench_store_open_own(struct bench *bench, const char *name,
                                             const struct mr_client_options *options,
                                             struct bench_store *store);
/* MR_CONFLICT with the detail when the bench's queue holds somebody's tasks. */
MR_MUST_USE enum mr_err bench_check_queue_free(struct bench *bench, struct mr_client *client);
/* Closes and opens again; the time it took to open. */
MR_MUST_USE enum mr_err bench_store_reopen(struct bench *bench, struct bench_store *store,
                                           double *ret_seconds);
/* Closes and removes what the bench has put there. */
void bench_store_close(struct bench_store *store);

/* ---- load.c --------------------------------------------------------------------------------- */

int64_t bench_now_ns(void);
double bench_seconds_since(int64_t start_ns);
/* Ends early when interrupted. */
void bench_sleep(double seconds);

/* What to enqueue. */
struct bench_load {
    uint64_t tasks; /* so many; 0: until seconds have passed */
    double seconds;
    unsigned outstanding; /* batches in flight */
    /* Shapes task i of the run, whose queue and payload are set; may be NULL. */
    void (*shape)(struct mr_task_options *task, uint64_t i, void *arg);
    void *arg;
};

/* Enqueues batches of BENCH_BATCH and waits until all are durable. */
MR_MUST_USE enum mr_err bench_load_run(struct mr_client *client, const struct bench_load *load,
                                       uint64_t *ret_tasks, double *ret_seconds);
/* One plain task. */
struct mr_task_options bench_task(void);

/* A worker on the bench's queue, started. */
MR_MUST_USE enum mr_err bench_worker_new(struct mr_client *client, uint32_t slots,
                                         mr_handler *handler, void *arg,
                                         struct mr_worker **ret_worker);
/* Does nothing and succeeds. */
enum mr_outcome bench_noop(struct mr_run *run, void *arg);
/* Waits until the worker has had n tasks acknowledged as done; MR_TIMEOUT when it stands still. */
MR_MUST_USE enum mr_err bench_worker_await(struct mr_worker *worker, uint64_t n);

/* Samples of times, in ns. */
struct bench_samples {
    int64_t *ns;
    size_t n, cap;
};

/* With a fixed capacity of n; further samples are dropped. */
void bench_samples_init(struct bench_samples *samples, size_t n);
void bench_samples_done(struct bench_samples *samples);
void bench_samples_add(struct bench_samples *samples, int64_t ns);
/* Sorts; the sample below which a share of all lie, in ms; 0 when there is none. */
double bench_samples_ms(struct bench_samples *samples, double share);

/* ---- rows_jobs.c ---------------------------------------------------------------------------- */

/* A job of n no-op parts. */
MR_MUST_USE enum mr_err bench_job_submit(struct bench *bench, struct mr_client *client, uint64_t n,
                                         struct mr_job_list **ret_list);
/* Waits until it has ended, with n parts done. */
MR_MUST_USE enum mr_err bench_job_await(struct mr_client *client, const struct mr_job_list *list,
                                        uint64_t n);

/* ---- raw.c ---------------------------------------------------------------------------------- */

/*
 * The yardstick: records of 200 bytes with length and CRC, pwrite + fdatasync of batch at a time,
 * into a zero-filled file. It is measured in rounds that alternate with those of the figure, so
 * that what disturbs the machine disturbs both.
 */
struct bench_raw {
    struct mr_file *file;
    char path[MR_PATH_MAX];
    uint64_t offset;
    uint64_t records;
    double seconds;
    struct bench_samples samples; /* of single rounds of write and sync */
};

MR_MUST_USE enum mr_err bench_raw_open(struct bench *bench, struct bench_raw *raw);
MR_MUST_USE enum mr_err bench_raw_run(struct bench_raw *raw, unsigned batch, double seconds);
/* Records a second so far. */
double bench_raw_rate(const struct bench_raw *raw);
/* Removes the file; also after a failed open. */
void bench_raw_close(struct bench_raw *raw);

/* Rounds of a figure and its yardstick, and how long each lasts. */
enum { BENCH_ROUNDS = 4 };
double bench_round_seconds(const struct bench *bench);

#endif
