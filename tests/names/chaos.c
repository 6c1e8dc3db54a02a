/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Somebody who wants to lose or double a firing, or a task: servers are killed, stand still for longer than their leases, and are cut
 * off from the store; the store ends in the middle of everything; nameservers are killed and cut off from each other; workers
 * are killed, stand still and leave. One fault at a time, by chance, under load, with a job for each, and a producer that says what became of each task. MR_SEED
 * repeats what is done, though not when.
 */
#include <stdio.h>

#include "base/rand.h"
#include "client/client.h"
#include "names/rig.h"

enum {
    TIMERS = 16,
    WORKERS = 6,
    PUTS_MAX = 20000,
    JOBS_MAX = 500,
    PARTS = 200,
    JOB_MS = 120 * 1000
};

enum put { PUT_ACCEPTED, PUT_REFUSED, PUT_UNKNOWN };

struct chaos {
    struct rig *rig;
    struct mr_rand rand;
    struct forwarder *cables; /* from each server to the store */
    char urls[RIG_SERVERS][128];
    struct mr_client *client;
    uint8_t puts[PUTS_MAX]; /* enum put */
    size_t puts_n;
    char jobs[JOBS_MAX][64]; /* ids */
    size_t jobs_n;
};

static int64_t now_ms(const struct chaos *c)
{
    return bench_now_ms(c->rig->bench);
}

static size_t below(struct chaos *c, size_t n)
{
    return (size_t)mr_rand_below(&c->rand, n);
}

/* ---- a producer ------------------------------------------------------------------------------- */

static void put_id(size_t i, char id[32])
{
    (void)snprintf(id, 32, "put-%zu", i);
}

static void produce(struct chaos *c)
{
    char id[32];
    struct mr_enqueue_result result = {.err = MR_OK};
    if (c->puts_n == PUTS_MAX)
        return;
    put_id(c->puts_n, id);
    struct mr_task_options task = {.id = mr_slice_str(id), .retention_ms = 3600 * 1000};
    enum mr_err err = mr_enqueue(c->client, &task, 1, &result);
    err = err != MR_OK ? err : result.err;
    c->puts[c->puts_n++] = err == MR_OK ? PUT_ACCEPTED : result.unknown ? PUT_UNKNOWN : PUT_REFUSED;
}

/* So long, with a task every now and then. */
static void go_on(struct chaos *c, int64_t ms)
{
    for (int64_t until_ms = now_ms(c) + ms; now_ms(c) < until_ms;) {
        produce(c);
        bench_sleep_ms(20);
    }
}

/* How many servers have it; each of them has ended it well. */
static size_t places_of(struct chaos *c, struct mr_client *clients[RIG_SERVERS], size_t put)
{
    char id[32];
    size_t n = 0;
    put_id(put, id);
    for (size_t i = 0; i < RIG_SERVERS; i++) {
        struct mr_task_list *list;
        enum mr_err err;
        int64_t until_ms = now_ms(c) + BENCH_WAIT_MS;
        enum mr_state state = MR_COMPLETED;
        do {
            err = mr_task_get(clients[i], mr_slice_str(id), &list);
            assert_true(err == MR_OK || err == MR_NOT_FOUND);
            if (err == MR_OK) {
                state = mr_task_list_at(list, 0)->state;
                mr_task_list_free(list);
            }
            if (state != MR_COMPLETED && now_ms(c) > until_ms)
                fail_msg("%s has not ended", id);
            if (state != MR_COMPLETED)
                bench_sleep_ms(50);
        } while (state != MR_COMPLETED);
        n += err == MR_OK;
    }
    return n;
}

static void check_puts(struct chaos *c)
{
    static const char *const names[] = {"accepted", "refused", "unknown"};
    struct mr_client *clients[RIG_SERVERS];
    size_t counts[3] = {0};
    for (size_t i = 0; i < RIG_SERVERS; i++)
        clients[i] = rig_client(c->rig, i);
    for (size_t i = 0; i < c->puts_n; i++) {
        enum put put = c->puts[i];
        size_t n = places_of(c, clients, i);
        counts[put]++;
        if (n > 1 || (n == 0 && put == PUT_ACCEPTED) || (n == 1 && put == PUT_REFUSED))
            fail_msg("put-%zu was %s and is at %zu servers", i, names[put], n);
    }
    for (size_t i = 0; i < RIG_SERVERS; i++)
        mr_client_close(clients[i]);
    printf("tasks: %zu accepted, %zu refused, %zu unknown\n", counts[0], counts[1], counts[2]);
}

/* ---- jobs ------------------------------------------------------------------------------------- */

/* Runs the program for jobs, at any server; what it says, up to the end of the line. */
static int run_job(struct chaos *c, const char *verb, const char *what, char *text, size_t size)
{
    struct program_args args = {0};
    bool submits = strcmp(verb, "submit") == 0;
    program_arg(&args, "--quiet");
    program_arg(&args, "--broker");
    program_arg(&args, "millrace://%s", c->rig->servers[below(c, RIG_SERVERS)].grpc);
    program_arg(&args, "job");
    program_arg(&args, "%s", verb);
    if (submits) {
        program_arg(&args, "--reduce");
        program_arg(&args, "sum");
    }
    program_arg(&args, "%s", what);
    int code = program_run(&args, text, size);
    text[strcspn(text, "\n")] = '\0';
    return code;
}

/* Each part of it is 1. */
static void submit_job(struct chaos *c)
{
    char path[RIG_PATH_MAX];
    if (c->jobs_n == JOBS_MAX)
        return;
    (void)snprintf(path, sizeof path, "%s/parts", c->rig->bench->dir);
    FILE *file = fopen(path, "we");
    assert_non_null(file);
    for (int i = 0; i < PARTS; i++)
        (void)fprintf(file, "%d\n", i);
    assert_int_equal(fclose(file), 0);
    char *id = c->jobs[c->jobs_n];
    assert_int_equal(run_job(c, "submit", path, id, sizeof c->jobs[0]), 0);
    c->jobs_n++;
}

/* All of them have their ends, over all parts, each of which counts once. */
static void check_jobs(struct chaos *c)
{
    int64_t since_ms = now_ms(c);
    for (size_t i = 0; i < c->jobs_n; i++) {
        char text[256], want[16];
        (void)snprintf(want, sizeof want, "%d", PARTS);
        while (run_job(c, "result", c->jobs[i], text, sizeof text) != 0) {
            if (now_ms(c) - since_ms > JOB_MS)
                fail_msg("job %zu, %s, has not ended", i, c->jobs[i]);
            bench_sleep_ms(200);
        }
        assert_string_equal(text, want);
    }
    printf("jobs: %zu of %d parts, the last after %lld ms\n", c->jobs_n, PARTS,
           (long long)(now_ms(c) - since_ms));
}

/* ---- faults ----------------------------------------------------------------------------------- */

static void serve(struct chaos *c, size_t i)
{
    c->rig->store_url = c->urls[i];
    rig_serve(c->rig, i);
    c->rig->store_url = NULL;
}

static int64_t some_leases_ms(struct chaos *c)
{
    return RIG_LEASE_MS / 4 + (int64_t)below(c, 2 * RIG_LEASE_MS);
}

static void kill_server(struct chaos *c)
{
    size_t i = below(c, RIG_SERVERS);
    program_kill(&c->rig->servers[i]);
    go_on(c, some_leases_ms(c));
    serve(c, i);
}

static void stop_server(struct chaos *c)
{
    size_t i = below(c, RIG_SERVERS);
    program_stop(&c->rig->servers[i], 0);
    go_on(c, some_leases_ms(c) / 2);
    serve(c, i);
}

static void freeze_server(struct chaos *c)
{
    size_t i = below(c, RIG_SERVERS);
    program_freeze(&c->rig->servers[i]);
    go_on(c, some_leases_ms(c));
    program_thaw(&c->rig->servers[i]);
}

static void cut_server(struct chaos *c)
{
    struct forwarder *cable = &c->cables[below(c, RIG_SERVERS)];
    bool is_told = below(c, 2) == 0;
    atomic_store(is_told ? &cable->refuse : &cable->frozen, true);
    if (is_told)
        forwarder_cut(cable);
    go_on(c, some_leases_ms(c));
    atomic_store(&cable->refuse, false);
    atomic_store(&cable->frozen, false);
    if (below(c, 2) == 0)
        forwarder_cut(cable); /* what was asked before is not answered */
}

static bool store_answers(struct chaos *c)
{
    struct mr_store_server_list list = {.req.op = MR_STORE_SERVER_LIST, .max = 10};
    enum mr_err err = mr_store_call(c->rig->bench->store, &list.req);
    mr_store_req_done(&list.req);
    return err == MR_OK;
}

static void crash_store(struct chaos *c)
{
    postgres_rig_crash(c->rig->bench->postgres);
    go_on(c, (int64_t)below(c, RIG_LEASE_MS));
    postgres_rig_start_again(c->rig->bench->postgres);
    BENCH_UNTIL(store_answers(c));
}

static void cut_nameserver(struct chaos *c)
{
    rig_cut(c->rig, below(c, RIG_NAMESERVERS));
    go_on(c, some_leases_ms(c));
    rig_heal(c->rig);
}

static void kill_nameserver(struct chaos *c)
{
    size_t i = below(c, RIG_NAMESERVERS);
    program_kill(&c->rig->nameservers[i]);
    go_on(c, some_leases_ms(c));
    rig_name(c->rig, i);
}

static void kill_worker(struct chaos *c)
{
    size_t i = below(c, WORKERS);
    program_kill(&c->rig->workers[i]);
    go_on(c, some_leases_ms(c) / 2);
    rig_work(c->rig, i);
}

static void freeze_worker(struct chaos *c)
{
    size_t i = below(c, WORKERS);
    program_freeze(&c->rig->workers[i]);
    go_on(c, some_leases_ms(c));
    program_thaw(&c->rig->workers[i]);
}

/* Some leave, so that the app is joined, and come back. */
static void stop_workers(struct chaos *c)
{
    size_t first = below(c, 4), n = 1 + below(c, 3);
    for (size_t i = first; i < first + n && i < WORKERS; i++)
        program_stop(&c->rig->workers[i], 0);
    go_on(c, 2 * RIG_LEASE_MS);
    for (size_t i = first; i < first + n && i < WORKERS; i++)
        rig_work(c->rig, i);
}

static const struct {
    const char *name;
    void (*act)(struct chaos *c);
} faults[] = {
    {"kill -9 of a server", kill_server},
    {"a server that stops", stop_server},
    {"a server that stands still", freeze_server},
    {"a server without the store", cut_server},
    {"the store ends", crash_store},
    {"a nameserver that is cut off", cut_nameserver},
    {"kill -9 of a nameserver", kill_nameserver},
    {"kill -9 of a worker", kill_worker},
    {"a worker that stands still", freeze_worker},
    {"workers that leave", stop_workers},
};
enum { FAULTS = sizeof faults / sizeof *faults };

/* ---- the whole -------------------------------------------------------------------------------- */

static void open_all(struct chaos *c)
{
    struct bench *bench;
    c->rig = rig_make(RIG_NAMESERVERS, RIG_CUTTABLE);
    bench = c->rig->bench;
    for (size_t i = 0; i < RIG_NAMESERVERS; i++)
        rig_name(c->rig, i);
    c->cables = calloc(RIG_SERVERS, sizeof *c->cables);
    assert_non_null(c->cables);
    for (size_t i = 0; i < RIG_SERVERS; i++) {
        assert_int_equal(
            forwarder_start(&c->cables[i], (uint16_t)postgres_rig_port(bench->postgres)), MR_OK);
        (void)snprintf(c->urls[i], sizeof c->urls[i], "postgresql://mill@127.0.0.1:%u/%s",
                       c->cables[i].port, bench->database);
        serve(c, i);
    }
    for (size_t i = 0; i < WORKERS; i++)
        rig_work(c->rig, i);
    BENCH_UNTIL(rig_is_seen(c->rig, RIG_SERVERS, WORKERS));
    c->client = rig_names_client(c->rig);
}

static void close_all(struct chaos *c)
{
    mr_client_close(c->client);
    rig_free(c->rig);
    for (size_t i = 0; i < RIG_SERVERS; i++)
        forwarder_stop(&c->cables[i]);
    free(c->cables);
    free(c);
}

static void test_whatever_fails_each_firing_and_each_task_ends_once(void **state)
{
    struct chaos *c = calloc(1, sizeof *c);
    const char *given = getenv("MR_SEED"), *how_long = getenv("MR_CHAOS_SECONDS");
    uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : mr_rand_next(mr_rand_of_thread());
    int64_t seconds = how_long != NULL ? strtoll(how_long, NULL, 10) : rig_full() ? 300 : 8;
    (void)state;
    assert_non_null(c);
    printf("MR_SEED=%llu\n", (unsigned long long)seed);
    mr_rand_seed(&c->rand, seed);
    open_all(c);
    rig_load(c->rig, TIMERS, "300ms", 0);
    BENCH_UNTIL(rig_is_cut(c->rig, WORKERS / 2));
    c->rig->repeats = true;
    size_t n = 0;
    for (int64_t until_ms = now_ms(c) + seconds * 1000; now_ms(c) < until_ms; n++) {
        size_t fault = below(c, FAULTS);
        printf("%zu: %s\n", n, faults[fault].name);
        submit_job(c);
        faults[fault].act(c);
        go_on(c, (int64_t)below(c, 1500));
    }
    BENCH_UNTIL(rig_is_seen(c->rig, RIG_SERVERS, WORKERS));
    check_puts(c);
    check_jobs(c);
    rig_check(c->rig);
    printf("%zu faults; %zu runs were repeated\n", n, c->rig->repeated);
    close_all(c);
}

int names_chaos(void)
{
    struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whatever_fails_each_firing_and_each_task_ends_once),
    };
    return NAMES_RUN("chaos", tests);
}
