/* SPDX-License-Identifier: Apache-2.0 */
/* What the service says of itself to who looks after it, in its health and at /metrics. */
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "api/http_api.h"
#include "timer/service.h"
#include "timers/bench.h"
#include "timers/rig.h"

enum { FIGURES_MAX = 1 << 20 };

/* A service on a bench that has no schedulers besides, and HTTP before it. */
struct watched {
    struct bench *bench;
    struct mr_timer_service *service;
    struct mr_access access;
    struct mr_http_api *api;
    struct mr_http *http;
    struct mr_addr at;
    char figures[FIGURES_MAX];
};

static struct watched *watched_new(void)
{
    struct watched *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->bench = bench_new(1);
    bench_unserve(w->bench, 0);
    w->access.mode = MR_ACCESS_OPEN;
    struct mr_http_api_options options = {.door.access = &w->access};
    assert_int_equal(mr_http_api_new(&options, &w->api), MR_OK);
    struct mr_http_table tables[MR_HTTP_API_TABLES];
    mr_http_api_tables(w->api, tables);
    struct mr_http_options http = {
        .address = "127.0.0.1:0", .tables = tables, .tables_n = MR_HTTP_API_TABLES};
    assert_int_equal(mr_http_start(&http, &w->http, &w->at, NULL), MR_OK);
    return w;
}

static void watched_open(struct watched *w)
{
    struct mr_detail detail = {.text = ""};
    struct mr_timer_service_options options = {.broker = w->bench->broker,
                                               .store = w->bench->store,
                                               .node = "",
                                               .clock = &w->bench->clock.clock,
                                               .settings = w->bench->settings};
    if (mr_timer_service_open(&options, &w->service, &detail) != MR_OK)
        fail_msg("%s", detail.text);
    mr_http_api_set(w->api, &(struct mr_http_parts){.broker = w->bench->broker,
                                                    .timers = w->service,
                                                    .store = w->bench->store});
}

static void watched_free(struct watched *w)
{
    mr_http_api_stop(w->api, w->http);
    mr_http_stop(w->http);
    mr_http_api_free(w->api);
    mr_timer_service_close(w->service);
    bench_free(w->bench);
    free(w);
}

static struct mr_timer_health health_of(struct watched *w)
{
    struct mr_timer_health health;
    mr_timer_service_health(w->service, &health);
    return health;
}

static void scrape(struct watched *w)
{
    static const char request[] = "GET /metrics HTTP/1.0\r\n\r\n";
    size_t len = 0, max = sizeof w->figures - 1;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&w->at.storage, w->at.len), 0);
    assert_int_equal(send(fd, request, sizeof request - 1, 0), sizeof request - 1);
    for (ssize_t got; (got = recv(fd, w->figures + len, max - len, 0)) > 0;)
        len += (size_t)got;
    w->figures[len] = '\0';
    (void)close(fd);
}

/* The figure of this name and labels, as it is now. */
static uint64_t figure(struct watched *w, const char *name)
{
    char line[128];
    unsigned long long value = 0;
    scrape(w);
    (void)snprintf(line, sizeof line, "\nmillrace_%s ", name);
    const char *at = strstr(w->figures, line);
    if (at == NULL || sscanf(at + strlen(line), "%llu", &value) != 1)
        fail_msg("no %s in %s", name, w->figures);
    return value;
}

static void test_a_step_of_the_clock_is_told(void **state)
{
    (void)state;
    struct watched *w = watched_new();
    bench_put(w->bench, BENCH_TIMER("t", MR_TIMER_EVERY, "1s"));
    watched_open(w);
    BENCH_UNTIL(health_of(w).in_memory == 1);
    assert_int_equal(figure(w, "schedule_timers_in_memory"), 1);
    uint64_t before = health_of(w).clock_steps;
    bench_set_wall(w->bench, 3600 * MR_MS_PER_S);
    BENCH_UNTIL(health_of(w).clock_steps > before);
    assert_true(figure(w, "schedule_clock_steps_total") > before);
    watched_free(w);
}

static void test_a_firing_that_another_one_has_left_is_told(void **state)
{
    (void)state;
    struct watched *w = watched_new();
    bench_put(w->bench, BENCH_TIMER("t", MR_TIMER_EVERY, "1h"));
    bench_leave_waiting(w->bench, "t");
    watched_open(w);
    BENCH_UNTIL(bench_row(w->bench, "t", 0).state == MR_LEDGER_SUCCEEDED);
    assert_int_equal(health_of(w).recovered, 1);
    assert_int_equal(figure(w, "schedule_recovery_total{event=\"recovered\"}"), 1);
    assert_int_equal(figure(w, "schedule_recovery_total{event=\"reconciled\"}"), 0);
    assert_int_equal(figure(w, "schedule_recovery_total{event=\"moved\"}"), 0);
    watched_free(w);
}

static void test_an_end_that_was_looked_for_is_told(void **state)
{
    (void)state;
    struct watched *w = watched_new();
    bench_unwork(w->bench);
    bench_put(w->bench, BENCH_TIMER("t", MR_TIMER_DELAY, "10ms"));
    w->bench->settings.reconcile_ms = 200;
    watched_open(w);
    BENCH_UNTIL(bench_count(w->bench, "t", MR_LEDGER_BIT(MR_LEDGER_DISPATCHED)) == 1);
    bench_lose_task(w->bench, "t");
    BENCH_UNTIL(bench_row(w->bench, "t", 0).state == MR_LEDGER_FAILED);
    assert_true(health_of(w).reconciled > 0);
    assert_true(figure(w, "schedule_recovery_total{event=\"reconciled\"}") > 0);
    watched_free(w);
}

int timers_health(void)
{
    struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_step_of_the_clock_is_told),
        cmocka_unit_test(test_a_firing_that_another_one_has_left_is_told),
        cmocka_unit_test(test_an_end_that_was_looked_for_is_told),
    };
    return TIMERS_RUN("health", tests);
}
