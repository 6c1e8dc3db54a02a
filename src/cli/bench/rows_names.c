/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of nameservers: what 10 000 workers cost one, and how soon three agree after a partition. */
#include <stdlib.h>

#include "base/net.h"
#include "base/rand.h"
#include "cli/bench/names.h"
#include "cli/bench/server.h"
#include "names/client.h"
#include "names/service.h"

enum { CROWD = BENCH_CROWD_MAX, MIB = 1024 * 1024, WINDOW_TIMES = 4, SAMPLES = 1000 * 1000 };

#define NAMES(...)                                                                                 \
    .names = (const char *const[])                                                                 \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

/* ---- a crowd of workers ----------------------------------------------------------------------- */

static enum mr_err start_one(struct bench *bench, const char *const *peers, size_t n,
                             struct own_server *server)
{
    const char *argv[16] = {"millrace",    "nameserver", "--listen", "127.0.0.1:0",
                            "--log-level", "error",      "--data",   bench->dir};
    size_t at = 8;
    for (size_t i = 0; i < n; i++) {
        argv[at++] = "--peer";
        argv[at++] = peers[i];
    }
    MR_TRY(own_server_start_args(server, argv, &bench->detail));
    return own_server_await(server, &bench->detail);
}

struct crowd_figures {
    double percent, memory, seconds;
    uint64_t answered, failed;
};

static enum mr_err measure_crowd(struct bench *bench, const struct bench_server *server,
                                 struct bench_crowd *crowd, struct crowd_figures *f,
                                 struct bench_samples *samples)
{
    struct bench_usage before, after;
    uint64_t first, failed;
    bench_sleep(1); /* what coming in has cost is not being there */
    bench_crowd_count(crowd, &first, &failed);
    MR_TRY(bench_server_usage(server, &before));
    int64_t start = bench_now_ns();
    bench_sleep(WINDOW_TIMES * bench->seconds);
    f->seconds = bench_seconds_since(start);
    if (bench_interrupted())
        return MR_CANCELLED;
    MR_TRY(bench_server_usage(server, &after));
    bench_crowd_count(crowd, &f->answered, &f->failed);
    f->answered -= first;
    f->percent = 100 * (after.cpu_s - before.cpu_s) / f->seconds;
    f->memory = after.memory / MIB;
    return bench_crowd_look(crowd, bench->seconds, samples);
}

static void add_crowd(struct bench *bench, const struct crowd_figures *f,
                      struct bench_samples *samples)
{
    static const double GOAL_MIB = 100, GOAL_PERCENT = 5, GOAL_MS = 1;
    struct bench_row *row = bench_add(bench, "names-workers", f->memory, "MiB");
    bench_yardstick(row, GOAL_MIB, "goal");
    bench_goal(row, row->value < GOAL_MIB, "%.0f MiB", GOAL_MIB);
    snprintf(row->note, sizeof row->note,
             "of a nameserver with %d workers that connect every 20 s to register", CROWD);
    row = bench_add(bench, "names-cpu", f->percent, "percent of a core");
    bench_yardstick(row, GOAL_PERCENT, "goal");
    bench_goal(row, row->value < GOAL_PERCENT, "%.0f percent", GOAL_PERCENT);
    snprintf(row->note, sizeof row->note, "of the same; %.0f registrations a second, %llu failed",
             (double)f->answered / f->seconds, (unsigned long long)f->failed);
    double p99 = bench_samples_ms(samples, 0.99);
    row = bench_add(bench, "names-lookup-p99", p99, "ms");
    bench_yardstick(row, GOAL_MS, "goal");
    bench_goal(row, p99 < GOAL_MS, "%.0f ms", GOAL_MS);
    snprintf(row->note, sizeof row->note,
             "of the same: the %d workers of an app; median %.3f ms over %zu", BENCH_CROWD_APP,
             bench_samples_ms(samples, 0.5), samples->n);
}

static enum mr_err run_crowd(struct bench *bench)
{
    struct bench_server server = {.bench = bench};
    struct bench_crowd *crowd = NULL;
    struct crowd_figures figures = {0};
    struct bench_samples samples;
    mr_net_allow_many();
    bench_samples_init(&samples, SAMPLES);
    bench_doing(bench, "names-workers");
    enum mr_err err = start_one(bench, NULL, 0, &server.own);
    if (err == MR_OK)
        err = bench_crowd_open(server.own.grpc, CROWD, &crowd, &bench->detail);
    if (err == MR_OK)
        err = measure_crowd(bench, &server, crowd, &figures, &samples);
    bench_crowd_close(crowd);
    own_server_kill(&server.own);
    if (err == MR_OK)
        add_crowd(bench, &figures, &samples);
    bench_samples_done(&samples);
    return err;
}

const struct bench_group bench_names_crowd = {
    NAMES("names-workers", "names-cpu", "names-lookup-p99"), .place = BENCH_AT_OWN_SERVER,
    .run = run_crowd};

/* ---- a partition ------------------------------------------------------------------------------ */

enum { NODES = 3, BEFORE = 100, MEANWHILE = 100, HEAL_MAX_S = 60, LOOKS_MS = 10 };

struct parts {
    struct bench *bench;
    struct bench_cut *cut;
    struct own_server nodes[NODES];
    struct mr_rpc *rpc;
    struct mr_names_client *members[NODES][BEFORE + MEANWHILE];
};

/* Node i calls node k by a link of its own. */
static size_t link_of(size_t i, size_t k)
{
    return i * (NODES - 1) + (k > i ? k - 1 : k);
}

static enum mr_err parts_start(struct parts *p)
{
    MR_TRY(bench_cut_open((size_t)NODES * (NODES - 1), &p->cut));
    for (size_t i = 0; i < NODES; i++) {
        const char *peers[NODES];
        size_t n = 0;
        for (size_t k = 0; k < NODES; k++)
            if (k != i)
                peers[n++] = bench_cut_address(p->cut, link_of(i, k));
        MR_TRY(start_one(p->bench, peers, n, &p->nodes[i]));
    }
    for (size_t i = 0; i < NODES; i++)
        for (size_t k = 0; k < NODES; k++)
            if (k != i)
                MR_TRY(bench_cut_target(p->cut, link_of(i, k), p->nodes[k].grpc));
    return mr_rpc_new("mr-parts", NULL, &p->rpc);
}

static enum mr_err come(struct parts *p, size_t node, size_t first, size_t n)
{
    for (size_t i = first; i < first + n; i++) {
        char name[48];
        const char *address = p->nodes[node].grpc;
        snprintf(name, sizeof name, "worker-%zu-%zu", node, i);
        struct mr_names_client_options options = {
            .rpc = p->rpc,
            .nameservers = &address,
            .nameservers_n = 1,
            .entry = {.kind = MR_NAMES_WORKER,
                      .name = mr_slice_str(name),
                      .app = MR_SLICE_LIT("bench"),
                      .incarnation = mr_rand_next(mr_rand_of_thread()) | 1},
        };
        MR_TRY(mr_names_client_new(&options, &p->members[node][i], &p->bench->detail));
    }
    return MR_OK;
}

static void go(struct parts *p, size_t node, size_t first, size_t n)
{
    for (size_t i = first; i < first + n; i++) {
        mr_names_client_free(p->members[node][i]);
        p->members[node][i] = NULL;
    }
}

static enum mr_err look_at(struct parts *p, size_t node, uint64_t *ret_view, uint64_t *ret_workers)
{
    struct cli_address at = {.address = p->nodes[node].grpc, .ms = HEAL_MAX_S * MR_MS_PER_S};
    struct mr_buf answer = {0};
    struct mr_arena arena = {0};
    struct mr_names_look look = {0};
    enum mr_err err = cli_call_address(&at, "/millrace.v1.Names/Look", MR_SLICE_LIT(""), &answer,
                                       &p->bench->detail);
    if (err == MR_OK)
        err = mr_names_look_decode(mr_buf_slice(&answer), &arena, &look);
    *ret_view = look.view;
    *ret_workers = look.workers;
    mr_arena_done(&arena);
    mr_buf_done(&answer);
    return err;
}

/* Until all three know the same, and that is so many. */
static enum mr_err await_equal(struct parts *p, uint64_t workers, double *ret_seconds)
{
    int64_t start = bench_now_ns();
    for (;;) {
        uint64_t views[NODES], counts[NODES];
        bool equal = true;
        for (size_t i = 0; i < NODES; i++) {
            MR_TRY(look_at(p, i, &views[i], &counts[i]));
            equal = equal && views[i] == views[0] && counts[i] == workers;
        }
        *ret_seconds = bench_seconds_since(start);
        if (equal)
            return MR_OK;
        if (bench_interrupted())
            return MR_CANCELLED;
        if (*ret_seconds > HEAL_MAX_S) {
            mr_detail_set(&p->bench->detail, "they do not agree: %llu, %llu and %llu workers",
                          (unsigned long long)counts[0], (unsigned long long)counts[1],
                          (unsigned long long)counts[2]);
            return MR_TIMEOUT;
        }
        bench_sleep(LOOKS_MS / (double)MR_MS_PER_S);
    }
}

/* Apart, workers come and go at each of them. */
static enum mr_err part_and_heal(struct parts *p, double *ret_seconds)
{
    double agreed;
    for (size_t i = 0; i < NODES; i++)
        MR_TRY(come(p, i, 0, BEFORE));
    MR_TRY(await_equal(p, (uint64_t)NODES * BEFORE, &agreed));
    bench_cut_set(p->cut, true);
    for (size_t i = 0; i < NODES; i++) {
        MR_TRY(come(p, i, BEFORE, MEANWHILE));
        go(p, i, 0, BEFORE / 2);
    }
    bench_sleep(p->bench->seconds);
    bench_cut_set(p->cut, false);
    return await_equal(p, (uint64_t)NODES * (BEFORE + MEANWHILE - BEFORE / 2), ret_seconds);
}

static void parts_end(struct parts *p)
{
    for (size_t i = 0; i < NODES; i++)
        own_server_kill(&p->nodes[i]); /* first: then nobody is told good-bye */
    for (size_t i = 0; i < NODES; i++)
        go(p, i, 0, BEFORE + MEANWHILE);
    mr_rpc_free(p->rpc);
    bench_cut_close(p->cut);
    free(p);
}

static enum mr_err run_heal(struct bench *bench)
{
    static const double INTERVAL = MR_NAMES_INTERVAL_MS / (double)MR_MS_PER_S;
    struct parts *p = cli_alloc(1, sizeof *p);
    double seconds = 0;
    p->bench = bench;
    mr_net_allow_many();
    bench_doing(bench, "names-heal");
    enum mr_err err = parts_start(p);
    if (err == MR_OK)
        err = part_and_heal(p, &seconds);
    parts_end(p);
    MR_TRY(err);
    struct bench_row *row = bench_add(bench, "names-heal", seconds, "s");
    bench_yardstick(row, INTERVAL, "one interval");
    bench_goal(row, seconds <= 2 * INTERVAL, "the yardstick, and as much again to reconnect");
    snprintf(row->note, sizeof row->note,
             "%d nameservers, cut off for %.0f s, %d workers came and %d went at each", NODES,
             bench->seconds, MEANWHILE, BEFORE / 2);
    return MR_OK;
}

const struct bench_group bench_names_heal = {NAMES("names-heal"), .place = BENCH_AT_OWN_SERVER,
                                             .run = run_heal};
