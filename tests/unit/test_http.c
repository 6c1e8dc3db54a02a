/* SPDX-License-Identifier: Apache-2.0 */
/* The HTTP server over real sockets: routes, limits, clients that are silent or talk nonsense. */
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/chan.h"
#include "base/clock.h"
#include "base/list.h"
#include "http/http.h"

enum { WAIT_MS = 30 * 1000 };

static struct mr_http *http;
static struct mr_addr bound;

static void say_hello(struct mr_http_request *request, void *arg)
{
    mr_http_reply(request, 200, "text/plain", mr_slice_str(arg));
}

/* ---- what routes can do ---------------------------------------------------------------------- */

static void say_parameter(struct mr_http_request *request, void *arg)
{
    (void)arg;
    mr_http_reply(request, 200, "text/plain", mr_http_parameter(request));
}

static void say_body(struct mr_http_request *request, void *arg)
{
    (void)arg;
    mr_http_reply(request, 200, "text/plain", mr_http_body(request));
}

/* Only who says so may send a body. */
static bool may_send(struct mr_http_request *request, void *arg)
{
    (void)arg;
    if (mr_http_header(request, "X-May"))
        return true;
    mr_http_fail(request, MR_DENIED, "may not");
    return false;
}

/* What somebody else has written stands in the answer. */
static void say_failure(struct mr_http_request *request, void *arg)
{
    char text[512];
    (void)arg;
    struct mr_slice parameter = mr_http_parameter(request);
    const char *times = mr_http_query(request, "times");
    size_t len = 0;
    for (long i = times ? strtol(times, NULL, 10) : 1; i > 0; i--)
        len += (size_t)snprintf(text + len, sizeof text - len, "%.*s", (int)parameter.len,
                                (const char *)parameter.data);
    mr_http_fail(request, MR_INVALID, text);
}

/* An answer that comes from another thread. */
struct late {
    struct mr_msg msg;
    struct mr_http_request *request;
};
static struct late late;
static struct mr_event late_asked;

static void answer_late(struct mr_msg *msg, void *receiver)
{
    (void)receiver;
    mr_http_reply(mr_container(msg, struct late, msg)->request, 200, "text/plain",
                  mr_slice_str("late\n"));
}

static void say_soon(struct mr_http_request *request, void *arg)
{
    mr_http_later(request);
    say_hello(request, arg);
}

static void say_late(struct mr_http_request *request, void *arg)
{
    (void)arg;
    late.request = request;
    late.msg.deliver = answer_late;
    mr_http_later(request);
    mr_event_set(&late_asked);
}

/* Those who wait for the same; whoever comes as the third is answered with it first, and then it is freed. */
static struct mr_http_request *sharers[3];
static unsigned sharers_n;

static void say_shared(struct mr_http_request *request, void *arg)
{
    (void)arg;
    struct mr_buf body = {0};
    struct mr_http_answer *answer = NULL;
    mr_http_later(request);
    sharers[sharers_n++] = request;
    if (sharers_n < 3)
        return;
    if (mr_buf_printf(&body, "%3000s", "shared") != MR_OK ||
        mr_http_answer_new("text/plain", &body, &answer) != MR_OK)
        abort(); /* on a thread that no test may fail on */
    while (sharers_n > 0)
        mr_http_reply_answer(sharers[--sharers_n], 200, answer);
    mr_http_answer_free(answer);
}

/* Streams: of each, how often it was asked for more, and whether it is over. */
struct flow {
    struct mr_http_stream *stream;
    struct mr_slice line;
    unsigned left;    /* lines that there are */
    bool last, ended; /* no more come */
    _Atomic unsigned made, closed;
};
static struct flow flow;
static _Atomic unsigned flows_closed;

static void flow_more(struct mr_http_stream *stream, void *data)
{
    struct flow *one = data;
    if (one->left > 0) {
        one->left--;
        one->made++;
        assert_int_equal(mr_http_stream_write(stream, one->line), MR_OK);
    } else if (one->last) {
        mr_http_stream_end(stream);
    }
}

static void flow_closed(void *data)
{
    struct flow *one = data;
    one->closed++;
    one->stream = NULL;
    flows_closed++;
}

static const struct mr_http_stream_ops flow_ops = {flow_more, flow_closed};

static void say_flow(struct mr_http_request *request, void *arg)
{
    (void)arg;
    flow.stream = mr_http_stream(request, "text/plain", &flow_ops, &flow);
}

/* Two KiB of the same letter. */
static void say_much(struct mr_http_request *request, void *arg)
{
    char text[2048];
    (void)arg;
    memset(text, 'x', sizeof text);
    mr_http_reply(request, 200, "text/plain", mr_slice_make(text, sizeof text));
}

/* More than a kernel keeps for somebody who does not read. */
enum { HUGE_BYTES = 16 * 1024 * 1024 };

static void say_huge(struct mr_http_request *request, void *arg)
{
    (void)arg;
    char *text = calloc(1, HUGE_BYTES);
    assert_non_null(text);
    mr_http_reply(request, 200, "text/plain", mr_slice_make(text, HUGE_BYTES));
    free(text);
}

static void add_line(struct mr_msg *msg, void *receiver)
{
    (void)msg, (void)receiver;
    flow.left++;
    mr_http_stream_wake(flow.stream);
}

static void add_end(struct mr_msg *msg, void *receiver)
{
    (void)msg, (void)receiver;
    flow.last = true;
    mr_http_stream_wake(flow.stream);
}

static const struct mr_http_route routes[] = {
    {"GET", "/hello", say_hello, 0, NULL, NULL},
    {"POST", "/hello-post", say_hello, 0, NULL, NULL},
    {"GET", "/things/{id}", say_parameter, 0, NULL, NULL},
    {"GET", "/things/{id}/colour", say_parameter, 0, NULL, NULL},
    {"POST", "/things", say_body, 500, NULL, NULL},
    {"PUT", "/things", say_body, 500, NULL, NULL},
    {"GET", "/much", say_much, 0, NULL, NULL},
    {"GET", "/huge", say_huge, 0, NULL, NULL},
    {"GET", "/late", say_late, 0, NULL, NULL},
    {"GET", "/shared", say_shared, 0, NULL, NULL},
    {"GET", "/soon", say_soon, 0, NULL, NULL},
    {"GET", "/flow", say_flow, 0, NULL, NULL},
    {"POST", "/guarded", say_body, 500, may_send, NULL},
    {"GET", "/fail/{id}", say_failure, 0, NULL, NULL},
};
static _Atomic unsigned ticks;

static void count_tick(void *arg)
{
    (void)arg;
    ticks++;
}

static const struct mr_http_table table = {
    .routes = routes,
    .routes_n = sizeof routes / sizeof *routes,
    .arg = (void *)(uintptr_t) "hello\n",
    .tick = count_tick,
};

static const struct mr_http_options plain = {
    .address = "127.0.0.1:0",
    .tables = &table,
    .tables_n = 1,
    .limits = {.header_bytes = 8 * 1024, .body_bytes = 1000, .bodies_bytes = 800, .request_s = 1},
};

static int setup(void **state)
{
    (void)state;
    mr_event_init(&late_asked);
    flow = (struct flow){.line = MR_SLICE_LIT("line\n")};
    assert_int_equal(mr_http_start(&plain, &http, &bound, NULL), MR_OK);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    mr_http_stop(http);
    return 0;
}

static int connect_client(void)
{
    int fd = socket(bound.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&bound.storage, bound.len), 0);
    return fd;
}

static void send_text(int fd, const char *text)
{
    for (size_t sent = 0, len = strlen(text); sent < len;) {
        ssize_t n = send(fd, text + sent, len - sent, MSG_NOSIGNAL);
        if (n < 0)
            return; /* the server had enough */
        sent += (size_t)n;
    }
}

/* Everything until the server closes. */
static void read_all(int fd, char *text, size_t cap)
{
    size_t len = 0;
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    for (;;) {
        assert_int_equal(poll(&poll_fd, 1, WAIT_MS), 1);
        ssize_t n = recv(fd, text + len, cap - 1 - len, 0);
        if (n <= 0)
            break;
        len += (size_t)n;
    }
    text[len] = '\0';
    close(fd);
}

static const char *ask(const char *request)
{
    static char text[8192];
    int fd = connect_client();
    send_text(fd, request);
    read_all(fd, text, sizeof text);
    return text;
}

#define END "Host: x\r\nConnection: close\r\n\r\n"

static void a_route_answers(void **state)
{
    (void)state;
    const char *text = ask("GET /hello HTTP/1.1\r\n" END);
    assert_non_null(strstr(text, "HTTP/1.1 200"));
    assert_non_null(strstr(text, "\r\n\r\nhello\n"));
    text = ask("HEAD /hello HTTP/1.1\r\n" END);
    assert_non_null(strstr(text, "HTTP/1.1 200"));
    assert_null(strstr(text, "\r\n\r\nhello\n"));
    text = ask("POST /hello-post HTTP/1.1\r\nContent-Length: 4\r\n" END "body");
    assert_non_null(strstr(text, "HTTP/1.1 200"));
}

static void errors_have_one_shape(void **state)
{
    (void)state;
    const char *text = ask("GET /nowhere HTTP/1.1\r\n" END);
    assert_non_null(strstr(text, "HTTP/1.1 404"));
    assert_non_null(
        strstr(text, "{\"error\":{\"code\":\"NOT_FOUND\",\"message\":\"no such path\"}}"));
    text = ask("DELETE /hello HTTP/1.1\r\n" END);
    assert_non_null(strstr(text, "HTTP/1.1 405"));
    assert_non_null(strstr(text, "Allow: GET"));
}

static void what_is_too_big_is_not_kept(void **state)
{
    (void)state;
    char request[16 * 1024];
    int n = snprintf(request, sizeof request,
                     "POST /hello-post HTTP/1.1\r\nContent-Length: 5000\r\n" END "%5000s", "x");
    assert_true(n > 5000);
    assert_null(strstr(ask(request), "HTTP/1.1 200"));
    snprintf(request, sizeof request, "GET /hello HTTP/1.1\r\nX: %12000s\r\n" END, "x");
    assert_null(strstr(ask(request), "HTTP/1.1 200"));
    assert_non_null(strstr(ask("GET /hello HTTP/1.1\r\n" END), "HTTP/1.1 200"));
}

static void nonsense_and_silence_harm_nobody(void **state)
{
    (void)state;
    int silent = connect_client(), half = connect_client();
    char text[1024];
    send_text(half, "GET /hel");
    assert_null(strstr(ask("\x16\x03\x01 garbage \r\n\r\n\r\n"), "HTTP/1.1 200"));
    assert_non_null(strstr(ask("GET /hello HTTP/1.1\r\n" END), "HTTP/1.1 200"));
    read_all(silent, text, sizeof text); /* returns when the server closes it */
    assert_string_equal(text, "");
    read_all(half, text, sizeof text);
    assert_null(strstr(text, "HTTP/1.1 200"));
}

/* Byte by byte it is never silent; the time for a whole request is over all the same. */
static void assert_cut_in_time(int fd, const char *text, size_t len)
{
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    mr_mono begun = mr_mono_now(mr_clock_system());
    for (size_t i = 0; poll(&poll_fd, 1, 50) == 0; i++) {
        assert_true(i < len);
        (void)!send(fd, text + i, 1, MSG_NOSIGNAL);
    }
    char byte;
    assert_int_equal(recv(fd, &byte, 1, 0) > 0, 0);
    int64_t took_ms = (mr_mono_now(mr_clock_system()).ns - begun.ns) / MR_NS_PER_MS;
    assert_in_range(took_ms, 500, WAIT_MS);
    close(fd);
}

static void a_request_that_comes_byte_by_byte_is_cut(void **state)
{
    (void)state;
    static char head[4096] = "GET /hello HTTP/1.1\r\nHost: x\r\nX: ";
    size_t at = strlen(head);
    memset(head + at, 'x', sizeof head - at);
    assert_cut_in_time(connect_client(), head, sizeof head);
    static char body[4096] = "POST /hello-post HTTP/1.1\r\nHost: x\r\nContent-Length: 900\r\n\r\n";
    int fd = connect_client();
    send_text(fd, body);
    assert_cut_in_time(fd, body + strlen(body), 900);
    /* Behind an answer on the same connection, too. */
    char text[4096];
    struct pollfd poll_fd = {.events = POLLIN};
    fd = poll_fd.fd = connect_client();
    send_text(fd, "GET /hello HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_int_equal(poll(&poll_fd, 1, WAIT_MS), 1);
    assert_true(recv(fd, text, sizeof text, 0) > 0);
    assert_cut_in_time(fd, head, sizeof head);
}

static void assert_hello(int fd)
{
    char text[1024];
    send_text(fd, "GET /hello HTTP/1.1\r\n" END);
    read_all(fd, text, sizeof text);
    assert_non_null(strstr(text, "HTTP/1.1 200"));
}

static void connections_that_say_nothing_shut_nobody_out(void **state)
{
    (void)state;
    enum { MAX = 8, SILENT = 300 };
    struct mr_http_options few = plain;
    int fds[SILENT];
    char text[1024];
    mr_http_stop(http);
    few.limits.connections_max = MAX;
    few.limits.request_s = few.limits.idle_s = 600; /* none of them goes by its time */
    assert_int_equal(mr_http_start(&few, &http, &bound, NULL), MR_OK);
    for (int i = 0; i < SILENT; i++) {
        fds[i] = connect_client();
        send_text(fds[i], i % 2 ? "GET /hel" : "GET /hello HTTP/1.1\r\nHost: x\r\n\r\nGET ");
    }
    assert_hello(connect_client());
    for (int i = 0; i < SILENT - MAX; i++) /* the oldest go */
        read_all(fds[i], text, sizeof text);
    assert_hello(connect_client());
    for (int i = SILENT - MAX; i < SILENT; i++)
        close(fds[i]);
}

/* A process that may have few files has some left for other things than clients. */
static void connections_are_fewer_than_files(void **state)
{
    (void)state;
    enum { FILES = 200, SILENT = 150 };
    struct rlimit before, few;
    int fds[SILENT];
    char text[1024];
    mr_http_stop(http);
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = (struct rlimit){.rlim_cur = FILES, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    struct mr_http_options patient = plain;
    patient.limits.request_s = 600;
    assert_int_equal(mr_http_start(&patient, &http, &bound, NULL), MR_OK);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0); /* our own ends are files, too */
    for (int i = 0; i < SILENT; i++)
        fds[i] = connect_client();
    assert_hello(connect_client());
    for (int i = 0; i < SILENT - FILES / 2; i++)
        read_all(fds[i], text, sizeof text);
    for (int i = SILENT - FILES / 2; i < SILENT; i++)
        close(fds[i]);
}

static size_t length_of_all(int fd)
{
    static char text[64 * 1024];
    size_t len = 0;
    for (ssize_t n; (n = recv(fd, text, sizeof text, 0)) > 0;)
        len += (size_t)n;
    close(fd);
    return len;
}

/* What is made for those who do not take it is bounded: the first of them goes, and the last has all of it. */
static void answers_that_nobody_takes_are_not_kept_for_all(void **state)
{
    (void)state;
    enum { SLOW = 4 };
    struct mr_http_options small = plain;
    int fds[SLOW];
    char byte;
    mr_http_stop(http);
    small.limits.answers_bytes = 2 * HUGE_BYTES;
    assert_int_equal(mr_http_start(&small, &http, &bound, NULL), MR_OK);
    for (int i = 0; i < SLOW; i++) {
        fds[i] = connect_client();
        send_text(fds[i], "GET /huge HTTP/1.1\r\n" END);
        assert_int_equal(recv(fds[i], &byte, 1, 0), 1); /* it is on its way */
    }
    assert_true(length_of_all(fds[0]) < HUGE_BYTES);
    assert_true(length_of_all(fds[1]) < HUGE_BYTES);
    assert_true(length_of_all(fds[2]) > HUGE_BYTES);
    assert_true(length_of_all(fds[3]) > HUGE_BYTES);
}

static void a_port_in_use_is_named(void **state)
{
    (void)state;
    struct mr_http_options second = plain;
    struct mr_http *other;
    struct mr_detail detail;
    struct mr_addr addr;
    char address[MR_ADDR_TEXT_MAX];
    mr_addr_text(&bound, address);
    second.address = address;
    assert_int_equal(mr_http_start(&second, &other, &addr, &detail), MR_IN_USE);
    assert_non_null(strstr(detail.text, address));
    second.address = "nonsense";
    assert_int_equal(mr_http_start(&second, &other, &addr, &detail), MR_INVALID);
}

static void certificates_that_cannot_be_used_are_named(void **state)
{
    (void)state;
    struct mr_http_options second = plain;
    struct mr_http *other;
    struct mr_detail detail;
    struct mr_addr addr;
    struct mr_http_tls tls = {.cert_file = "nowhere/cert.pem", .key_file = "nowhere/key.pem"};
    second.tls = &tls;
    assert_int_equal(mr_http_start(&second, &other, &addr, &detail), MR_NOT_FOUND);
    assert_non_null(strstr(detail.text, "nowhere/cert.pem"));
    char path[] = P_tmpdir "/millrace-http-XXXXXX";
    int fd = mkstemp(path);
    assert_int_equal(write(fd, "text\n", 5), 5);
    close(fd);
    tls = (struct mr_http_tls){.cert_file = path, .key_file = path};
    assert_int_equal(mr_http_start(&second, &other, &addr, &detail), MR_INVALID);
    assert_non_null(strstr(detail.text, "certificate"));
    assert_int_equal(remove(path), 0);
}

static void a_path_has_a_parameter(void **state)
{
    (void)state;
    assert_non_null(strstr(ask("GET /things/blue HTTP/1.1\r\n" END), "\r\n\r\nblue"));
    assert_non_null(strstr(ask("GET /things/a%20b/colour HTTP/1.1\r\n" END), "\r\n\r\na b"));
    assert_non_null(strstr(ask("GET /things/ HTTP/1.1\r\n" END), "HTTP/1.1 404"));
    assert_non_null(strstr(ask("GET /things/a/b HTTP/1.1\r\n" END), "HTTP/1.1 404"));
    assert_non_null(strstr(ask("GET /things HTTP/1.1\r\n" END), "HTTP/1.1 405"));
}

/* A slash that is escaped is none between two parts, and nothing ends in the middle of a name. */
static void what_is_escaped_in_a_path_is_part_of_a_name(void **state)
{
    (void)state;
    assert_non_null(strstr(ask("GET /things/a%2Fb HTTP/1.1\r\n" END), "\r\n\r\na/b"));
    assert_non_null(strstr(ask("GET /things/a%2fcolour HTTP/1.1\r\n" END), "\r\n\r\na/colour"));
    assert_non_null(strstr(ask("GET /%74hings/%2e%2e?x=%2F HTTP/1.1\r\n" END), "\r\n\r\n.."));
    assert_non_null(strstr(ask("GET /things/a%zz% HTTP/1.1\r\n" END), "\r\n\r\na%zz%"));
    assert_non_null(strstr(ask("GET /things%2Fa HTTP/1.1\r\n" END), "HTTP/1.1 404"));
    assert_non_null(strstr(ask("GET * HTTP/1.1\r\n" END), "HTTP/1.1 404"));
    static const char *const zeros[] = {"/things/a%00b", "/hello%00", "/hello?x=%00", "/hello?%00"};
    for (size_t i = 0; i < sizeof zeros / sizeof *zeros; i++) {
        char request[256];
        snprintf(request, sizeof request, "GET %s HTTP/1.1\r\n" END, zeros[i]);
        const char *text = ask(request);
        assert_non_null(strstr(text, "HTTP/1.1 400"));
        assert_non_null(strstr(text, "zero byte"));
    }
}

/* Somebody between us and the client might read it otherwise, and what stands in the body would be a request for one of us. */
static void what_can_be_read_in_two_ways_is_refused(void **state)
{
    (void)state;
    static const char *const heads[] = {
        "Host: x\r\nContent-Length: 31\r\nContent-Length: 5\r\n",
        "Host: x\r\nContent-Length: 31\r\nContent-Length: 31\r\n",
        "Host: x\r\nContent-Length: 31\r\nTransfer-Encoding: chunked\r\n",
        "Host: x\r\nTransfer-Encoding: chunked\r\nContent-Length: 31\r\n",
        "Host: x\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Host: x\r\nTransfer-Encoding: xchunked\r\n",
        "Host: x\r\nTransfer-Encoding: gzip, chunked\r\n",
        "Host: x\r\nContent-Length : 31\r\n",
        "Host: x\r\nContent-Length:\r\n 31\r\n",
        "Host: x\r\n Content-Length: 31\r\n",
        "Host: x\r\nTransfer-Encoding:\r\n\tchunked\r\n",
        "Host: x\r\nHost: y\r\n",
        "",
    };
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
        char request[256];
        snprintf(request, sizeof request,
                 "POST /things HTTP/1.1\r\n%s\r\nGET /hello HTTP/1.1\r\nHost: x\r\n\r\n", heads[i]);
        const char *text = ask(request); /* returns: the connection is closed with it */
        assert_non_null(strstr(text, "HTTP/1.1 400"));
        assert_non_null(strstr(text, "{\"error\":{\"code\":\"INVALID\""));
        assert_null(strstr(text, "HTTP/1.1 200"));
    }
    const char *old = ask("POST /things HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    assert_non_null(strstr(old, "400"));
    assert_non_null(strstr(ask("GET /hello HTTP/1.0\r\n\r\n"), "200"));
    assert_non_null(strstr(ask("GET /hello HTTP/1.1\r\n" END), "HTTP/1.1 200"));
}

static void a_body_is_read_up_to_its_limit(void **state)
{
    (void)state;
    char request[1024];
    const char *text = ask("POST /things HTTP/1.1\r\nContent-Length: 4\r\n" END "body");
    assert_non_null(strstr(text, "\r\n\r\nbody"));
    snprintf(request, sizeof request,
             "POST /things HTTP/1.1\r\nContent-Length: 501\r\n" END "%501s", "x");
    text = ask(request);
    assert_non_null(strstr(text, "HTTP/1.1 413"));
    assert_non_null(strstr(text, "{\"error\":{\"code\":\"TOO_BIG\",\"message\":\"the body has 501 "
                                 "bytes, the limit is 500\"}}"));
    /* Without its length it is known only while it comes. */
    snprintf(request, sizeof request,
             "POST /things HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" END
             "1f5\r\n%501s\r\n0\r\n\r\n",
             "x");
    text = ask(request);
    assert_non_null(strstr(text, "HTTP/1.1 413"));
    assert_non_null(strstr(text, "the body has 501 bytes, the limit is 500"));
    /* Nor is one that nobody reads. */
    text = ask("GET /hello HTTP/1.1\r\nContent-Length: 1001\r\n" END);
    assert_non_null(strstr(text, "HTTP/1.1 413"));
    /* Nobody listens for ever. */
    char longer[4096];
    snprintf(longer, sizeof longer,
             "POST /things HTTP/1.1\r\nTransfer-Encoding: chunked\r\n" END
             "7d1\r\n%2001s\r\n0\r\n\r\n",
             "x");
    assert_null(strstr(ask(longer), "HTTP/1.1"));
}

/* Who may not send a body is told so by its headers alone. */
static void a_body_is_read_of_those_who_may_send_one(void **state)
{
    (void)state;
    const char *text = ask("POST /guarded HTTP/1.1\r\nContent-Length: 400\r\n" END);
    assert_non_null(strstr(text, "HTTP/1.1 403"));
    assert_non_null(strstr(text, "may not"));
    text = ask("POST /guarded HTTP/1.1\r\nX-May: yes\r\nContent-Length: 4\r\n" END "body");
    assert_non_null(strstr(text, "\r\n\r\nbody"));
}

/* What many have sent by halves is no more than it may be, and goes with them. */
static void bodies_have_a_limit_all_together(void **state)
{
    (void)state;
    static const char head[] = "POST /things HTTP/1.1\r\nHost: x\r\nContent-Length: 450\r\n\r\n";
    static const char whole[] = "POST /things HTTP/1.1\r\nContent-Length: 480\r\n" END;
    char request[1024], text[1024];
    int half = connect_client();
    snprintf(request, sizeof request, "%s%400s", head, "x");
    send_text(half, request);
    snprintf(request, sizeof request, "%s%480s", whole, "x");
    mr_mono end = mr_mono_add_ms(mr_mono_now(mr_clock_system()), WAIT_MS);
    /* Until it has read the half one; that goes after a second. */
    while (!strstr(ask(request), "HTTP/1.1 429"))
        assert_true(mr_mono_now(mr_clock_system()).ns < end.ns);
    read_all(half, text, sizeof text);
    assert_non_null(strstr(ask(request), "HTTP/1.1 200"));
}

static void what_clients_say_makes_no_answer_that_is_not_json(void **state)
{
    (void)state;
    const char *text = ask("GET /fail/a%ff%fe%22b%0ac HTTP/1.1\r\n" END);
    assert_non_null(strstr(text, "\"message\":\"a\?\?'b c\"}}"));
    text = ask("GET /fail/%e2%82%ac HTTP/1.1\r\n" END);
    assert_non_null(strstr(text, "\"message\":\"\xe2\x82\xac\"}}"));
    /* The limit of 400 is in the middle of the 134th character. */
    text = ask("GET /fail/%e2%82%ac?times=140 HTTP/1.1\r\n" END);
    const char *begin = strstr(text, "\"message\":\""), *after = strstr(text, "\"}}");
    assert_true(begin != NULL && after != NULL);
    begin += strlen("\"message\":\"");
    assert_int_equal(after - begin, 399);
}

static void an_answer_may_come_later(void **state)
{
    (void)state;
    char text[1024];
    int fd = connect_client();
    send_text(fd, "GET /late HTTP/1.1\r\n" END);
    assert_true(mr_event_wait(&late_asked, WAIT_MS * MR_NS_PER_MS));
    assert_non_null(strstr(ask("GET /hello HTTP/1.1\r\n" END), "HTTP/1.1 200"));
    mr_http_post(http, &late.msg);
    read_all(fd, text, sizeof text);
    assert_non_null(strstr(text, "\r\n\r\nlate\n"));
    assert_non_null(strstr(ask("GET /soon HTTP/1.1\r\n" END), "\r\n\r\nhello\n"));
}

static void a_stop_waits_for_answers_that_come_later(void **state)
{
    (void)state;
    int fd = connect_client();
    send_text(fd, "GET /late HTTP/1.1\r\n" END);
    assert_true(mr_event_wait(&late_asked, WAIT_MS * MR_NS_PER_MS));
    mr_http_post(http, &late.msg);
    mr_http_stop(http);
    char text[1024];
    read_all(fd, text, sizeof text);
    assert_non_null(strstr(text, "\r\n\r\nlate\n"));
    assert_int_equal(mr_http_start(&plain, &http, &bound, NULL), MR_OK);
}

static void read_until(int fd, const char *wanted)
{
    char text[4096];
    size_t len = 0;
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    do {
        assert_int_equal(poll(&poll_fd, 1, WAIT_MS), 1);
        ssize_t n = recv(fd, text + len, sizeof text - 1 - len, 0);
        assert_true(n > 0);
        len += (size_t)n;
        text[len] = '\0';
    } while (!strstr(text, wanted));
}

static void a_stream_says_what_comes_and_ends(void **state)
{
    (void)state;
    char text[4096];
    struct mr_msg line = {.deliver = add_line}, end = {.deliver = add_end};
    int fd = connect_client();
    send_text(fd, "GET /flow HTTP/1.1\r\n" END);
    read_until(fd, "\r\n\r\n");
    mr_http_post(http, &line);
    read_until(fd, "line\n");
    assert_non_null(strstr(ask("GET /hello HTTP/1.1\r\n" END), "HTTP/1.1 200"));
    line = (struct mr_msg){.deliver = add_line};
    mr_http_post(http, &line);
    read_until(fd, "line\n");
    mr_http_post(http, &end);
    read_all(fd, text, sizeof text);
    assert_non_null(strstr(text, "0\r\n\r\n")); /* the last chunk */
    assert_int_equal(flow.made, 2);
}

/* Once the sockets hold no more, nothing is made for it; others are served. */
static void a_stream_that_nobody_reads_is_not_written(void **state)
{
    (void)state;
    static const char line[8192]; /* sockets hold megabytes: of short ones a million */
    flow.line = mr_slice_make(line, sizeof line);
    flow.left = UINT32_MAX;
    int fd = connect_client();
    send_text(fd, "GET /flow HTTP/1.1\r\n" END);
    mr_mono end = mr_mono_add_ms(mr_mono_now(mr_clock_system()), WAIT_MS);
    unsigned made;
    do {
        unsigned before = ticks;
        made = flow.made;
        while (ticks < before + 2)
            assert_non_null(strstr(ask("GET /hello HTTP/1.1\r\n" END), "HTTP/1.1 200"));
        assert_true(mr_mono_now(mr_clock_system()).ns < end.ns);
    } while (made == 0 || flow.made != made);
    close(fd);
}

static void streams_end_when_the_server_stops(void **state)
{
    (void)state;
    int fds[20];
    unsigned before = flows_closed;
    for (size_t i = 0; i < 20; i++) {
        fds[i] = connect_client();
        send_text(fds[i], "GET /flow HTTP/1.1\r\n" END);
        read_until(fds[i], "\r\n\r\n");
    }
    mr_http_stop(http);
    assert_int_equal(flows_closed, before + 20);
    for (size_t i = 0; i < 20; i++)
        close(fds[i]);
    assert_int_equal(mr_http_start(&plain, &http, &bound, NULL), MR_OK);
}

static bool is_packed(const char *accepted)
{
    char request[256];
    snprintf(request, sizeof request, "GET /much HTTP/1.1\r\nAccept-Encoding: %s\r\n" END,
             accepted);
    const char *text = ask(request);
    assert_non_null(strstr(text, "HTTP/1.1 200"));
    assert_non_null(strstr(text, "Vary: Accept-Encoding"));
    bool packed = strstr(text, "Content-Encoding: gzip") != NULL;
    assert_int_equal(strstr(text, "\r\n\r\nxxxx") == NULL, packed);
    return packed;
}

static void an_answer_is_packed_for_those_who_take_it(void **state)
{
    (void)state;
    assert_true(is_packed("gzip"));
    assert_true(is_packed("br;q=1.0, GZIP;q=0.5"));
    assert_true(is_packed("*"));
    assert_false(is_packed("gzip;q=0"));
    assert_false(is_packed("gzip;q=0, *"));
    assert_false(is_packed("br, deflate"));
    assert_false(is_packed("gzipped"));
    assert_false(is_packed(";,=;q"));
    assert_null(strstr(ask("GET /hello HTTP/1.1\r\nAccept-Encoding: gzip\r\n" END), "gzip"));
}

static void many_are_sent_one_answer_as_each_takes_it(void **state)
{
    (void)state;
    static const char *const accepted[] = {"gzip", "br", "gzip"};
    int fds[3];
    for (size_t i = 0; i < 3; i++) {
        char request[256];
        snprintf(request, sizeof request, "GET /shared HTTP/1.1\r\nAccept-Encoding: %s\r\n" END,
                 accepted[i]);
        fds[i] = connect_client();
        send_text(fds[i], request);
    }
    for (size_t i = 0; i < 3; i++) {
        char text[8192];
        read_all(fds[i], text, sizeof text);
        bool packed = strstr(text, "Content-Encoding: gzip") != NULL;
        assert_non_null(strstr(text, "Content-Type: text/plain"));
        assert_int_equal(packed, strcmp(accepted[i], "gzip") == 0);
        assert_int_equal(strstr(text, "Content-Length: 3000") == NULL, packed);
        assert_int_equal(strstr(text, "      shared") == NULL, packed);
    }
}

static void all_methods_of_a_path_are_named(void **state)
{
    (void)state;
    assert_non_null(strstr(ask("DELETE /things HTTP/1.1\r\n" END), "Allow: POST, PUT\r\n"));
}

/* Everything is below it, and nothing beside it; its own name leads to what is in it. */
static void paths_are_below_a_prefix(void **state)
{
    (void)state;
    struct mr_http_options below = plain;
    below.prefix = "/mill/race";
    mr_http_stop(http);
    assert_int_equal(mr_http_start(&below, &http, &bound, NULL), MR_OK);
    assert_non_null(strstr(ask("GET /mill/race/hello HTTP/1.1\r\n" END), "HTTP/1.1 200"));
    assert_non_null(strstr(ask("GET /mill/race/things/7 HTTP/1.1\r\n" END), "\r\n\r\n7"));
    assert_non_null(strstr(ask("DELETE /mill/race/hello HTTP/1.1\r\n" END), "HTTP/1.1 405"));
    const char *beside[] = {"/hello",
                            "/",
                            "/mill",
                            "/mill/racehello",
                            "/mill/race/",
                            "/mill//race/hello",
                            "/mill/race/mill/race/hello"};
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++) {
        char request[256];
        snprintf(request, sizeof request, "GET %s HTTP/1.1\r\n" END, beside[i]);
        assert_non_null(strstr(ask(request), "HTTP/1.1 404"));
    }
    const char *text = ask("GET /mill/race HTTP/1.1\r\n" END);
    assert_non_null(strstr(text, "HTTP/1.1 308"));
    assert_non_null(strstr(text, "Location: /mill/race/\r\n"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_route_answers),
        TEST(errors_have_one_shape),
        TEST(what_is_too_big_is_not_kept),
        TEST(nonsense_and_silence_harm_nobody),
        TEST(a_request_that_comes_byte_by_byte_is_cut),
        TEST(connections_that_say_nothing_shut_nobody_out),
        TEST(connections_are_fewer_than_files),
        TEST(answers_that_nobody_takes_are_not_kept_for_all),
        TEST(a_path_has_a_parameter),
        TEST(what_is_escaped_in_a_path_is_part_of_a_name),
        TEST(what_can_be_read_in_two_ways_is_refused),
        TEST(a_body_is_read_up_to_its_limit),
        TEST(a_body_is_read_of_those_who_may_send_one),
        TEST(bodies_have_a_limit_all_together),
        TEST(what_clients_say_makes_no_answer_that_is_not_json),
        TEST(an_answer_may_come_later),
        TEST(a_stop_waits_for_answers_that_come_later),
        TEST(a_stream_says_what_comes_and_ends),
        TEST(a_stream_that_nobody_reads_is_not_written),
        TEST(streams_end_when_the_server_stops),
        TEST(an_answer_is_packed_for_those_who_take_it),
        TEST(many_are_sent_one_answer_as_each_takes_it),
        TEST(all_methods_of_a_path_are_named),
        TEST(paths_are_below_a_prefix),
        TEST(a_port_in_use_is_named),
        TEST(certificates_that_cannot_be_used_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
