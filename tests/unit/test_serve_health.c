/* SPDX-License-Identifier: Apache-2.0 */
/* What the server says of its health, with an engine that answers when the test wants. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/diag.h"
#include "cli/serve.h"

/* An engine that keeps the question. */
struct slow {
    struct mr_broker broker;
    struct mr_req_stats *open;
    size_t asked;
};

static void keep_question(struct mr_broker *broker, struct mr_req *req)
{
    struct slow *slow = mr_container(broker, struct slow, broker);
    assert_int_equal(req->op, MR_OP_STATS);
    assert_null(slow->open);
    slow->open = mr_container(req, struct mr_req_stats, req);
    slow->asked++;
}

static const struct mr_broker_ops slow_ops = {.submit = keep_question};
static struct slow slow;
static struct serve_health health;
static struct mr_http *http;
static struct mr_addr bound;

static void answer(enum mr_err err, struct mr_stats stats)
{
    struct mr_req_stats *req = slow.open;
    assert_non_null(req);
    slow.open = NULL;
    req->req.err = err;
    req->stats = stats;
    req->req.done(&req->req);
}

static int setup(void **state)
{
    (void)state;
    slow = (struct slow){.broker.ops = &slow_ops};
    memset(&health, 0, sizeof health);
    const struct mr_http_table table = {
        .routes = serve_routes, .routes_n = serve_routes_n, .arg = &health};
    struct mr_http_options options = {.address = "127.0.0.1:0", .tables = &table, .tables_n = 1};
    return mr_http_start(&options, &http, &bound, NULL) == MR_OK ? 0 : -1;
}

static int teardown(void **state)
{
    (void)state;
    mr_http_stop(http);
    return 0;
}

/* The whole answer. */
static const char *ask(const char *path)
{
    static char text[1024];
    char request[128];
    size_t len = 0;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&bound.storage, bound.len), 0);
    int n = snprintf(request, sizeof request,
                     "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", path);
    assert_int_equal(send(fd, request, (size_t)n, 0), n);
    for (ssize_t got; (got = recv(fd, text + len, sizeof text - 1 - len, 0)) > 0;)
        len += (size_t)got;
    text[len] = '\0';
    close(fd);
    return text;
}

static void expect_ready(void)
{
    assert_non_null(strstr(ask("/readyz"), "HTTP/1.1 200"));
}

static void expect_not_ready(const char *why)
{
    const char *text = ask("/readyz");
    assert_non_null(strstr(text, "HTTP/1.1 503"));
    assert_non_null(strstr(text, why));
}

static void it_is_live_before_it_is_ready(void **state)
{
    (void)state;
    assert_non_null(strstr(ask("/livez"), "HTTP/1.1 200"));
    expect_not_ready("starting");
    serve_health_beat(&health); /* without an engine there is nobody to ask */
    serve_health_open(&health, &slow.broker);
    expect_not_ready("starting");
    serve_health_set_ready(&health, true);
    expect_ready();
    serve_health_set_ready(&health, false);
    expect_not_ready("stopping");
    assert_non_null(strstr(ask("/livez"), "HTTP/1.1 200"));
}

static char said[256];

static void keep_line(enum mr_diag_level level, const char *line, void *arg)
{
    (void)level, (void)arg;
    size_t len = strlen(said);
    snprintf(said + len, sizeof said - len, "%s", line);
}

static void a_disk_that_is_full_and_then_not_leaves_a_line_each(void **state)
{
    (void)state;
    static const bool full[] = {false, true, true, false, false};
    mr_diag_set_sink(keep_line, NULL);
    serve_health_open(&health, &slow.broker);
    for (size_t i = 0; i < sizeof full / sizeof *full; i++) {
        if (i > 0)
            serve_health_beat(&health);
        said[0] = '\0';
        answer(MR_OK, (struct mr_stats){.disk_full = full[i]});
        bool changed = i > 0 && full[i] != full[i - 1];
        assert_int_equal(said[0] != '\0', changed);
        if (changed)
            assert_non_null(strstr(said, full[i] ? "event=disk.full" : "event=disk.room"));
    }
    mr_diag_set_sink(NULL, NULL);
}

static void a_full_disk_and_a_failed_store_are_told(void **state)
{
    (void)state;
    serve_health_open(&health, &slow.broker);
    serve_health_set_ready(&health, true);
    answer(MR_OK, (struct mr_stats){.disk_full = true});
    expect_not_ready("disk full");
    serve_health_beat(&health);
    answer(MR_OK, (struct mr_stats){0});
    expect_ready();
    assert_false(serve_health_failed(&health));
    serve_health_beat(&health);
    answer(MR_OK, (struct mr_stats){.failed = true});
    expect_not_ready("store failed");
    assert_true(serve_health_failed(&health));
}

static void one_question_is_open_at_a_time(void **state)
{
    (void)state;
    serve_health_open(&health, &slow.broker);
    serve_health_beat(&health);
    serve_health_beat(&health);
    assert_int_equal(slow.asked, 1);
    answer(MR_OK, (struct mr_stats){0});
    serve_health_beat(&health);
    assert_int_equal(slow.asked, 2);
}

static void an_engine_that_is_silent_is_noticed(void **state)
{
    (void)state;
    serve_health_open(&health, &slow.broker);
    serve_health_set_ready(&health, true);
    assert_true(serve_health_answers(&health, 60 * 1000));
    int64_t ago_ns = mr_mono_now(mr_clock_system()).ns - 10 * MR_NS_PER_S;
    atomic_store(&health.answered_ns, ago_ns); /* as if ten seconds had passed */
    assert_false(serve_health_answers(&health, 9 * 1000));
    assert_true(serve_health_answers(&health, 60 * 1000));
    expect_not_ready("does not answer");
    answer(MR_CLOSED, (struct mr_stats){0}); /* not an answer */
    assert_false(serve_health_answers(&health, 9 * 1000));
    serve_health_beat(&health);
    answer(MR_OK, (struct mr_stats){0});
    assert_true(serve_health_answers(&health, 9 * 1000));
    expect_ready();
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(it_is_live_before_it_is_ready),
        TEST(a_disk_that_is_full_and_then_not_leaves_a_line_each),
        TEST(a_full_disk_and_a_failed_store_are_told),
        TEST(one_question_is_open_at_a_time),
        TEST(an_engine_that_is_silent_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
