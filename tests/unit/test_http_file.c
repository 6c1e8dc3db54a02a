/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are part of the program, over real sockets: packed and plain, known ones, and the rules that go along. */
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

#include "http/file.h"

enum { WAIT_MS = 30 * 1000, GZIP_WINDOW_BITS = 15 + 16, MEMORY_LEVEL = 8 };

#define PLAIN "<!doctype html><title>hello hello hello hello</title>"
#define END   "Host: x\r\nConnection: close\r\n\r\n"

static struct mr_http *http;
static struct mr_addr bound;
static unsigned char packed[256];
static struct mr_http_file page = {
    .path = "/", .type = "text/html", .etag = "\"e1\"", .packed = packed};
static struct mr_http_file asset = {
    .path = "/a.js", .type = "text/javascript", .etag = "\"e2\"", .packed = packed, .fixed = true};
static struct mr_http_file damaged = {
    .path = "/bad", .type = "text/html", .etag = "\"e3\"", .packed = packed};

static void reply(struct mr_http_request *request, void *arg)
{
    (void)arg;
    mr_http_reply_file(request, mr_http_route_data(request));
}

static const struct mr_http_route routes[] = {
    {.method = "GET", .path = "/", .handle = reply, .data = &page},
    {.method = "GET", .path = "/a.js", .handle = reply, .data = &asset},
    {.method = "GET", .path = "/bad", .handle = reply, .data = &damaged},
};
static const struct mr_http_table table = {.routes = routes,
                                           .routes_n = sizeof routes / sizeof *routes};

static size_t pack(void)
{
    z_stream z = {.next_in = (Bytef *)(uintptr_t)PLAIN, .avail_in = (uInt)strlen(PLAIN)};
    assert_int_equal(deflateInit2(&z, Z_BEST_COMPRESSION, Z_DEFLATED, GZIP_WINDOW_BITS,
                                  MEMORY_LEVEL, Z_DEFAULT_STRATEGY),
                     Z_OK);
    z.next_out = packed;
    z.avail_out = sizeof packed;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    deflateEnd(&z);
    return sizeof packed - z.avail_out;
}

static int setup(void **state)
{
    (void)state;
    struct mr_http_options options = {.address = "127.0.0.1:0", .tables = &table, .tables_n = 1};
    page.packed_n = asset.packed_n = pack();
    page.plain_n = asset.plain_n = strlen(PLAIN);
    damaged.packed_n = page.packed_n / 2;
    damaged.plain_n = page.plain_n;
    assert_int_equal(mr_http_start(&options, &http, &bound, NULL), MR_OK);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    mr_http_stop(http);
    return 0;
}

/* Everything until the server closes; ret_len: with what is no text. */
static const char *ask(const char *request, size_t *ret_len)
{
    static char text[8192];
    int fd = socket(bound.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    assert_int_equal(connect(fd, (const struct sockaddr *)&bound.storage, bound.len), 0);
    assert_int_equal(send(fd, request, strlen(request), MSG_NOSIGNAL), (ssize_t)strlen(request));
    struct pollfd poll_fd = {.fd = fd, .events = POLLIN};
    size_t len = 0;
    for (ssize_t n = 1; n > 0; len += n > 0 ? (size_t)n : 0) {
        assert_int_equal(poll(&poll_fd, 1, WAIT_MS), 1);
        n = recv(fd, text + len, sizeof text - 1 - len, 0);
    }
    text[len] = '\0';
    close(fd);
    *ret_len = len;
    return text;
}

static void a_file_is_sent_as_it_is_to_those_who_unpack_it(void **state)
{
    (void)state;
    size_t len;
    const char *text = ask("GET / HTTP/1.1\r\nAccept-Encoding: gzip\r\n" END, &len);
    assert_non_null(strstr(text, "HTTP/1.1 200"));
    assert_non_null(strstr(text, "Content-Encoding: gzip"));
    assert_non_null(strstr(text, "Vary: Accept-Encoding"));
    const char *body = strstr(text, "\r\n\r\n");
    assert_non_null(body);
    body += 4;
    assert_int_equal(text + len - body, page.packed_n);
    assert_memory_equal(body, packed, page.packed_n);
}

static void and_unpacked_to_others(void **state)
{
    (void)state;
    size_t len;
    const char *text = ask("GET / HTTP/1.1\r\n" END, &len);
    assert_non_null(strstr(text, "\r\n\r\n" PLAIN));
    assert_null(strstr(text, "Content-Encoding"));
    text = ask("GET / HTTP/1.1\r\nAccept-Encoding: gzip;q=0\r\n" END, &len);
    assert_non_null(strstr(text, "\r\n\r\n" PLAIN));
}

static void a_page_has_its_rules(void **state)
{
    (void)state;
    size_t len;
    const char *text = ask("GET / HTTP/1.1\r\n" END, &len);
    assert_non_null(strstr(text, "Content-Security-Policy: default-src 'none'; script-src 'self'"));
    assert_non_null(strstr(text, "X-Content-Type-Options: nosniff"));
    assert_non_null(strstr(text, "Cache-Control: no-cache"));
    text = ask("GET /a.js HTTP/1.1\r\n" END, &len);
    assert_non_null(strstr(text, "immutable"));
}

static void who_has_it_is_told_so(void **state)
{
    (void)state;
    size_t len;
    const char *text = ask("GET / HTTP/1.1\r\nIf-None-Match: \"x\", \"e1\"\r\n" END, &len);
    assert_non_null(strstr(text, "HTTP/1.1 304"));
    assert_non_null(strstr(text, "ETag: \"e1\""));
    assert_null(strstr(text, "Content-Encoding"));
    text = ask("GET / HTTP/1.1\r\nIf-None-Match: *\r\n" END, &len);
    assert_non_null(strstr(text, "HTTP/1.1 304"));
    text = ask("GET / HTTP/1.1\r\nIf-None-Match: \"e2\"\r\n" END, &len);
    assert_non_null(strstr(text, "HTTP/1.1 200"));
}

static void what_cannot_be_unpacked_is_not_sent(void **state)
{
    (void)state;
    size_t len;
    const char *text = ask("GET /bad HTTP/1.1\r\n" END, &len);
    assert_null(strstr(text, "HTTP/1.1 200"));
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_file_is_sent_as_it_is_to_those_who_unpack_it),
        TEST(and_unpacked_to_others),
        TEST(a_page_has_its_rules),
        TEST(who_has_it_is_told_so),
        TEST(what_cannot_be_unpacked_is_not_sent),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
