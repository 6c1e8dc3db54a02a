/* SPDX-License-Identifier: Apache-2.0 */
/* Operations on timers at a server: how fast one producer is acknowledged, and how soon all is applied. */
#include <inttypes.h>

#include "cli/bench/server.h"

#define NAMES(...)                                                                                 \
    .names = (const char *const[])                                                                 \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }
#define ACKNOWLEDGED "timer-operations"
#define APPLIED      "timer-applied"

struct producing {
    _Atomic uint64_t answered, failed;
};

static void answered(enum mr_err err, const struct mr_timer_result *results, size_t n, void *arg)
{
    struct producing *producing = arg;
    for (size_t i = 0; i < n; i++)
        if (err != MR_OK || results[i].err != MR_OK)
            atomic_fetch_add(&producing->failed, 1);
    atomic_fetch_add(&producing->answered, n);
}

/* The i-th timer; the name's memory is the caller's. */
static struct mr_timer_options timer_of(uint64_t i, char name[32])
{
    (void)snprintf(name, 32, "bench-%" PRIu64, i);
    return (struct mr_timer_options){.app = mr_slice_str(BENCH_QUEUE),
                                     .name = mr_slice_str(name),
                                     .kind = MR_TIMER_EVERY,
                                     .expression = mr_slice_str("1h"),
                                     .payload = mr_slice_str("payload")};
}

/* One operation a call, so many a second (0: as many as the client lets through); answers the rate of
 * acknowledgements. */
static enum mr_err produce(struct mr_client *client, double seconds, double offered,
                           double *ret_rate)
{
    struct producing producing = {0};
    uint64_t sent = 0;
    int64_t start = bench_now_ns();
    enum mr_err err = MR_OK;
    while (err == MR_OK && bench_seconds_since(start) < seconds && !bench_interrupted()) {
        if (offered > 0 && (double)sent >= offered * bench_seconds_since(start)) {
            bench_sleep(0.001);
            continue;
        }
        char name[32];
        struct mr_timer_options timer = timer_of(sent, name);
        struct mr_timer_op op = {.verb = MR_TIMER_PUT, .timer = &timer};
        err = mr_timer_send_async(client, &op, 1, NULL, answered, &producing);
        sent += err == MR_OK;
        if (err == MR_BUSY) {
            bench_sleep(0.001);
            err = MR_OK;
        }
    }
    while (atomic_load(&producing.answered) < sent)
        bench_sleep(0.0005);
    *ret_rate = (double)sent / bench_seconds_since(start);
    if (err == MR_OK && atomic_load(&producing.failed) > 0)
        err = MR_FAILED;
    return bench_interrupted() ? MR_CANCELLED : err;
}

/* What comes last is applied last. */
static enum mr_err await_applied(struct mr_client *client, double *ret_seconds)
{
    char name[32];
    struct mr_timer_options timer = timer_of(UINT64_MAX, name);
    int64_t start = bench_now_ns();
    MR_TRY(mr_timer_put(client, &timer, NULL));
    *ret_seconds = bench_seconds_since(start);
    return MR_OK;
}

static enum mr_err run_operations(struct bench *bench)
{
    static const double RATE = 20 * 1000, SOON_S = 5;
    struct bench_server server;
    struct mr_client *client = NULL;
    double rate = 0, seconds = 0;
    bench_doing(bench, ACKNOWLEDGED);
    enum mr_err err = bench_server_begin(bench, ACKNOWLEDGED, &server);
    if (err == MR_OK)
        err = bench_server_open(&server, &client);
    if (err == MR_OK)
        err = produce(client, bench->seconds, RATE, &rate);
    if (err == MR_OK)
        err = await_applied(client, &seconds);
    if (err == MR_OK)
        err = produce(client, bench->seconds / 5, 0, &rate);
    mr_client_close(client);
    bench_server_end(&server);
    MR_TRY(err);
    struct bench_row *row = bench_add(bench, ACKNOWLEDGED, rate, "operations/s");
    bench_yardstick(row, RATE, "goal");
    bench_goal(row, rate >= RATE, "%.0f operations/s", RATE);
    snprintf(row->note, sizeof row->note, "one producer, one operation a call");
    row = bench_add(bench, APPLIED, seconds, "s");
    bench_yardstick(row, SOON_S, "goal");
    bench_goal(row, seconds <= SOON_S, "%.0f s", SOON_S);
    snprintf(row->note, sizeof row->note, "until all is applied, after the last of %.0f a second",
             RATE);
    return MR_OK;
}

const struct bench_group bench_timer_operations = {
    NAMES(ACKNOWLEDGED, APPLIED), .place = BENCH_AT_OWN_SERVER, .run = run_operations};
