/* SPDX-License-Identifier: Apache-2.0 */
/* What it costs the workers that many watch a job. */
#include <inttypes.h>

#include "base/net.h"
#include "cli/bench/server.h"

#define NAMES(...)                                                                                 \
    .names = (const char *const[])                                                                 \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }
#define READERS "job-readers"

enum { SLOTS = 8, READERS_N = 1000, ROUNDS = 6, OF_BACKLOG = 50 };

struct watched {
    struct bench_server server;
    struct mr_client *client;
    uint64_t parts;                /* of a job */
    double none_s, with_s;         /* that workers took for all jobs without and with readers */
    double none_cpu_s, with_cpu_s; /* of the server, meanwhile */
    uint64_t bytes;                /* that readers read */
};

/* The job is there, and its readers are, before the first worker is. */
static enum mr_err work_off(struct watched *w, const struct mr_job_list *list, double *seconds,
                            double *cpu_s)
{
    struct mr_worker *worker = NULL;
    struct bench_usage before, after;
    MR_TRY(bench_server_usage(&w->server, &before));
    int64_t start = bench_now_ns();
    enum mr_err err = bench_worker_new(w->client, SLOTS, bench_noop, NULL, &worker);
    if (err == MR_OK)
        err = bench_worker_await(worker, w->parts);
    *seconds += bench_seconds_since(start);
    if (err == MR_OK)
        err = bench_job_await(w->client, list, w->parts);
    if (err == MR_OK)
        err = bench_server_usage(&w->server, &after);
    if (err == MR_OK)
        *cpu_s += after.cpu_s - before.cpu_s;
    mr_worker_free(worker);
    return err;
}

static enum mr_err run_round(struct bench *bench, struct watched *w, unsigned readers_n)
{
    struct mr_job_list *list = NULL;
    struct bench_readers *readers = NULL;
    char path[128];
    uint64_t bytes = 0;
    MR_TRY(bench_job_submit(bench, w->client, w->parts, &list));
    enum mr_err err = MR_OK;
    struct mr_slice id = mr_job_list_at(list, 0)->id;
    snprintf(path, sizeof path, "/api/v1/jobs/%.*s/events", (int)id.len, (const char *)id.data);
    if (readers_n > 0)
        err = bench_readers_open(&w->server, path, readers_n, &readers);
    if (err == MR_OK)
        err = work_off(w, list, readers_n > 0 ? &w->with_s : &w->none_s,
                       readers_n > 0 ? &w->with_cpu_s : &w->none_cpu_s);
    if (err == MR_OK && readers)
        err = bench_readers_await_end(readers, &bytes);
    w->bytes += bytes;
    bench_readers_close(readers);
    mr_job_list_free(list);
    return err;
}

/* Both ways round, so that what grows with time weighs on both. */
static enum mr_err run_rounds(struct bench *bench, struct watched *w)
{
    for (int i = 0; i < ROUNDS; i++) {
        MR_TRY(run_round(bench, w, i % 2 == 0 ? 0 : READERS_N));
        MR_TRY(run_round(bench, w, i % 2 == 0 ? READERS_N : 0));
    }
    return MR_OK;
}

static enum mr_err run_readers(struct bench *bench)
{
    static const double SHARE = 0.95;
    struct watched w = {.parts = bench->backlog / OF_BACKLOG};
    mr_net_allow_many();
    bench_doing(bench, READERS);
    enum mr_err err = bench_server_begin(bench, READERS, &w.server);
    if (err == MR_OK)
        err = bench_server_open(&w.server, &w.client);
    if (err == MR_OK)
        err = run_rounds(bench, &w);
    mr_client_close(w.client);
    bench_server_end(&w.server);
    MR_TRY(err);
    double parts = (double)w.parts * ROUNDS;
    struct bench_row *row = bench_add(bench, READERS, parts / w.with_s, "parts/s");
    bench_yardstick(row, parts / w.none_s, "the same without readers");
    bench_goal(row, row->ratio >= SHARE, "%.2f of it", SHARE);
    snprintf(
        row->note, sizeof row->note,
        "%d readers over HTTP, one stuck, %.0f KiB/s; CPU of the server %.2f s, without %.2f s",
        READERS_N, (double)w.bytes / w.with_s / 1024, w.with_cpu_s, w.none_cpu_s);
    return MR_OK;
}

const struct bench_group bench_job_readers = {NAMES(READERS), .place = BENCH_AT_OWN_SERVER,
                                              .run = run_readers};
