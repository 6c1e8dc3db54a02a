/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of HTTP: enqueueing, pages of a big queue wherever they are, and many who read events. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/exec.h"
#include "base/net.h"
#include "cli/bench/server.h"

#define NAMES(...)                                                                                 \
    .names = (const char *const[])                                                                 \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }
#define ENQUEUE "http-enqueue"
#define LIST    "http-list-p99"
#define EVENTS  "http-events"

/* ---- enqueueing ----------------------------------------------------------------------------- */

enum { CONNECTIONS = 8, A_CALL = 100 };

struct producer {
    struct bench_http http;
    pthread_t thread;
    bool started;
    struct mr_slice body;
    _Atomic bool *running;
    uint64_t calls;
    enum mr_err err;
};

static void *produce(void *arg)
{
    struct producer *producer = arg;
    struct mr_slice answer;
    while (atomic_load(producer->running) && producer->err == MR_OK) {
        producer->err =
            bench_http_call(&producer->http, "POST /api/v1/tasks", producer->body, &answer);
        if (producer->err == MR_OK && memmem(answer.data, answer.len, "\"error\"", 7) != NULL)
            producer->err = MR_FAILED;
        producer->calls += producer->err == MR_OK;
    }
    return NULL;
}

static enum mr_err make_body(struct mr_buf *body)
{
    char payload[BENCH_PAYLOAD + 1];
    memset(payload, 'x', BENCH_PAYLOAD);
    payload[BENCH_PAYLOAD] = '\0';
    for (int i = 0; i < A_CALL; i++)
        MR_TRY(mr_buf_printf(body, "%c{\"queue\":\"%s\",\"payload\":\"%s\"}", i == 0 ? '[' : ',',
                             BENCH_QUEUE, payload));
    return mr_buf_append(body, "]", 1);
}

/* One round of all of them together. */
static enum mr_err produce_round(struct producer *producers, double seconds, uint64_t *calls,
                                 double *total_seconds)
{
    _Atomic bool running = true;
    enum mr_err err = MR_OK;
    int64_t start = bench_now_ns();
    for (size_t i = 0; err == MR_OK && i < CONNECTIONS; i++) {
        struct producer *producer = &producers[i];
        producer->running = &running;
        producer->calls = 0;
        err = mr_thread_start(&producer->thread, "producer", produce, producer);
        producer->started = err == MR_OK;
    }
    if (err == MR_OK)
        bench_sleep(seconds);
    atomic_store(&running, false);
    for (size_t i = 0; i < CONNECTIONS; i++) {
        struct producer *producer = &producers[i];
        if (!producer->started)
            continue;
        mr_thread_join(producer->thread);
        producer->started = false;
        *calls += producer->calls;
        err = err == MR_OK ? producer->err : err;
    }
    *total_seconds += bench_seconds_since(start);
    return err == MR_OK && bench_interrupted() ? MR_CANCELLED : err;
}

static enum mr_err produce_rounds(struct bench *bench, struct bench_raw *raw,
                                  struct producer *producers, double *ret_rate)
{
    uint64_t calls = 0;
    double seconds = 0, round = bench_round_seconds(bench);
    for (int i = 0; i < BENCH_ROUNDS; i++) {
        MR_TRY(bench_raw_run(raw, A_CALL, round));
        MR_TRY(produce_round(producers, round, &calls, &seconds));
    }
    *ret_rate = (double)calls * A_CALL / seconds;
    return MR_OK;
}

static enum mr_err run_enqueue(struct bench *bench)
{
    static const double GOAL = 50 * 1000;
    struct bench_raw raw = {0};
    struct bench_server server;
    struct producer *producers = cli_alloc(CONNECTIONS, sizeof *producers);
    struct mr_buf body = {0};
    double rate = 0;
    bench_doing(bench, ENQUEUE);
    enum mr_err err = bench_server_begin(bench, ENQUEUE, &server);
    if (err == MR_OK)
        err = make_body(&body);
    for (size_t i = 0; i < CONNECTIONS; i++) {
        producers[i].http.fd = -1;
        producers[i].body = mr_buf_slice(&body);
        if (err == MR_OK)
            err = bench_http_open(server.own.http, &producers[i].http, &bench->detail);
    }
    if (err == MR_OK)
        err = bench_raw_open(bench, &raw);
    if (err == MR_OK)
        err = produce_rounds(bench, &raw, producers, &rate);
    for (size_t i = 0; i < CONNECTIONS; i++)
        bench_http_close(&producers[i].http);
    bench_server_end(&server);
    bench_raw_close(&raw);
    mr_buf_done(&body);
    free(producers);
    MR_TRY(err);
    struct bench_row *row = bench_add(bench, ENQUEUE, rate, "tasks/s");
    bench_yardstick(row, bench_raw_rate(&raw), "raw append+fdatasync of %d", A_CALL);
    bench_goal(row, rate >= GOAL, "%.0f tasks/s", GOAL);
    snprintf(row->note, sizeof row->note, "%d tasks a call, durable, %d connections", A_CALL,
             CONNECTIONS);
    return MR_OK;
}

const struct bench_group bench_http_enqueue = {NAMES(ENQUEUE), .place = BENCH_AT_OWN_SERVER,
                                               .run = run_enqueue};

/* ---- pages ---------------------------------------------------------------------------------- */

enum { PLACES = 10, LOOKS = 100, PAGE = 50, STRIDE = 1000, CURSOR_BYTES = 1024 };

/* As it goes into a URL. */
static enum mr_err read_cursor(struct mr_slice body, char cursor[CURSOR_BYTES])
{
    static const char mark[] = "\"next\":\"";
    const char *at = memmem(body.data, body.len, mark, strlen(mark));
    size_t n = 0;
    if (!at)
        return MR_EMPTY;
    for (at += strlen(mark); *at != '"' && n + 4 < CURSOR_BYTES; at++) {
        bool plain = (*at >= '0' && *at <= '9') || ((*at | 0x20) >= 'a' && (*at | 0x20) <= 'z');
        n += (size_t)snprintf(cursor + n, CURSOR_BYTES - n, plain ? "%c" : "%%%02X",
                              (unsigned char)*at);
    }
    cursor[n] = '\0';
    return MR_OK;
}

static enum mr_err get_page(struct bench_http *http, int limit, const char *cursor,
                            struct mr_slice *ret_body)
{
    char line[CURSOR_BYTES + 128];
    snprintf(line, sizeof line, "GET /api/v1/tasks?queue=%s&state=pending&limit=%d%s%s",
             BENCH_QUEUE, limit, cursor[0] ? "&cursor=" : "", cursor);
    return bench_http_call(http, line, (struct mr_slice){0}, ret_body);
}

/* The same place again and again. */
static enum mr_err look_here(struct bench_http *http, const char *cursor,
                             struct bench_samples *samples)
{
    struct mr_slice body;
    for (int i = 0; i < LOOKS; i++) {
        int64_t start = bench_now_ns();
        MR_TRY(get_page(http, PAGE, cursor, &body));
        bench_samples_add(samples, bench_now_ns() - start);
        if (bench_interrupted())
            return MR_CANCELLED;
    }
    return MR_OK;
}

/* From the first page to the last, with a look at some places between them. */
static enum mr_err walk(struct bench *bench, struct bench_http *http, struct bench_samples *samples)
{
    char cursor[CURSOR_BYTES] = "";
    uint64_t pages = bench->backlog / STRIDE, every = pages / PLACES > 0 ? pages / PLACES : 1;
    for (uint64_t i = 0; i < pages; i++) {
        struct mr_slice body;
        if (i % every == 0)
            MR_TRY(look_here(http, cursor, samples));
        MR_TRY(get_page(http, STRIDE, cursor, &body));
        enum mr_err err = read_cursor(body, cursor);
        if (err == MR_EMPTY)
            break;
        MR_TRY(err);
    }
    return MR_OK;
}

static enum mr_err run_list(struct bench *bench)
{
    static const double GOAL_MS = 10;
    struct bench_server server;
    struct bench_http http = {.fd = -1};
    struct bench_samples samples;
    struct mr_client *client = NULL;
    struct bench_load load = {.tasks = bench->backlog, .outstanding = 8};
    bench_samples_init(&samples, (size_t)(2 * PLACES + 2) * LOOKS);
    bench_doing(bench, LIST);
    enum mr_err err = bench_server_begin(bench, LIST, &server);
    if (err == MR_OK)
        err = bench_server_open(&server, &client);
    if (err == MR_OK)
        err = bench_load_run(client, &load, NULL, NULL);
    mr_client_close(client);
    if (err == MR_OK)
        err = bench_http_open(server.own.http, &http, &bench->detail);
    if (err == MR_OK)
        err = walk(bench, &http, &samples);
    bench_http_close(&http);
    bench_server_end(&server);
    if (err == MR_OK) {
        double p99 = bench_samples_ms(&samples, 0.99);
        struct bench_row *row = bench_add(bench, LIST, p99, "ms");
        bench_yardstick(row, GOAL_MS, "goal");
        bench_goal(row, p99 <= GOAL_MS, "%.0f ms", GOAL_MS);
        snprintf(row->note, sizeof row->note,
                 "%d of %" PRIu64 " tasks, at %d places from the first to the last; median %.3f ms",
                 PAGE, bench->backlog, PLACES, bench_samples_ms(&samples, 0.5));
    }
    bench_samples_done(&samples);
    return err;
}

const struct bench_group bench_http_list = {NAMES(LIST), .place = BENCH_AT_OWN_SERVER,
                                            .run = run_list};

/* ---- events --------------------------------------------------------------------------------- */

enum { READERS = 1000, QUEUES = 10, WINDOW_TIMES = 4 };

/* Every queue changes several times a second, for so long. */
static enum mr_err change(struct bench_server *server, struct mr_client *client, double seconds,
                          double *ret_cpu_s)
{
    static const double PAUSE_S = 0.1;
    struct bench_usage before, after;
    MR_TRY(bench_server_usage(server, &before));
    for (int64_t start = bench_now_ns(); bench_seconds_since(start) < seconds;) {
        struct mr_task_options tasks[QUEUES];
        struct mr_enqueue_result results[QUEUES];
        char names[QUEUES][32];
        for (size_t i = 0; i < QUEUES; i++) {
            snprintf(names[i], sizeof names[i], "%s-%zu", BENCH_QUEUE, i);
            tasks[i] = bench_task();
            tasks[i].queue = mr_slice_str(names[i]);
        }
        MR_TRY(mr_enqueue(client, tasks, QUEUES, results));
        bench_sleep(PAUSE_S);
        if (bench_interrupted())
            return MR_CANCELLED;
    }
    MR_TRY(bench_server_usage(server, &after));
    *ret_cpu_s = after.cpu_s - before.cpu_s;
    return MR_OK;
}

static enum mr_err run_events(struct bench *bench)
{
    static const double GOAL = 10;
    struct bench_server server;
    struct mr_client *client = NULL;
    struct bench_readers *readers = NULL;
    double seconds = WINDOW_TIMES * bench->seconds, none_s = 0, with_s = 0;
    uint64_t bytes = 0;
    mr_net_allow_many();
    bench_doing(bench, EVENTS);
    enum mr_err err = bench_server_begin(bench, EVENTS, &server);
    if (err == MR_OK)
        err = bench_server_open(&server, &client);
    if (err == MR_OK)
        err = change(&server, client, seconds, &none_s);
    if (err == MR_OK)
        err = bench_readers_open(&server, "/api/v1/events", READERS, &readers);
    if (err == MR_OK)
        err = change(&server, client, seconds, &with_s);
    if (err == MR_OK)
        err = bench_readers_none_lost(readers, &bytes);
    bench_readers_close(readers);
    mr_client_close(client);
    bench_server_end(&server);
    MR_TRY(err);
    double percent = with_s > none_s ? 100 * (with_s - none_s) / seconds : 0;
    struct bench_row *row = bench_add(bench, EVENTS, percent, "percent of a core");
    bench_yardstick(row, GOAL, "goal");
    bench_goal(row, percent < GOAL, "%.0f percent", GOAL);
    snprintf(row->note, sizeof row->note,
             "what %d readers cost, one stuck, while %d queues change; %.0f KiB/s to them", READERS,
             QUEUES, (double)bytes / seconds / 1024);
    return MR_OK;
}

const struct bench_group bench_http_events = {NAMES(EVENTS), .place = BENCH_AT_OWN_SERVER,
                                              .run = run_events};
