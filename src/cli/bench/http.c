/* SPDX-License-Identifier: Apache-2.0 */
/* A client of HTTP that waits for each answer, on a connection that is kept. Thread: one at a time. */
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "base/net.h"
#include "cli/bench/server.h"

enum { READ_BYTES = 64 * 1024, STATUS_AT = 9 };

enum mr_err bench_http_open(const char *address, struct bench_http *http, struct mr_detail *detail)
{
    char host[MR_HOST_MAX + 1];
    uint16_t port;
    struct mr_addr addr;
    size_t n;
    *http = (struct bench_http){.fd = -1};
    MR_TRY(mr_host_parse(address, host, &port));
    MR_TRY(mr_host_resolve(host, port, MR_RESOLVE_NUMBERS, &addr, 1, &n, detail));
    http->fd = socket(addr.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (http->fd < 0 || connect(http->fd, (const struct sockaddr *)&addr.storage, addr.len) != 0)
        return mr_err_from_errno(errno);
    return MR_OK;
}

static enum mr_err write_all(int fd, struct mr_slice bytes)
{
    const char *at = bytes.data;
    for (size_t sent = 0, n; sent < bytes.len; sent += n)
        MR_TRY(mr_net_write(fd, at + sent, bytes.len - sent, &n));
    return MR_OK;
}

static enum mr_err read_more(struct bench_http *http)
{
    char bytes[READ_BYTES];
    size_t n = 0;
    MR_TRY(mr_net_read(http->fd, bytes, sizeof bytes, &n));
    MR_TRY(mr_buf_append(&http->in, bytes, n));
    MR_TRY(mr_buf_append(&http->in, "", 1)); /* a text, for those that look for something in it */
    http->in.len--;
    return MR_OK;
}

/* Where the body begins; 0: the head is not there as a whole. */
static size_t head_len(const struct bench_http *http)
{
    const char *text = (const char *)http->in.data;
    const char *end = http->in.len > 0 ? strstr(text, "\r\n\r\n") : NULL;
    return end ? (size_t)(end - text) + 4 : 0;
}

enum mr_err bench_http_call(struct bench_http *http, const char *line, struct mr_slice body,
                            struct mr_slice *ret_body)
{
    http->in.len = http->out.len = 0;
    MR_TRY(mr_buf_printf(&http->out,
                         "%s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: %zu\r\n\r\n", line,
                         body.len));
    MR_TRY(mr_buf_append_slice(&http->out, body));
    /* As one: a body that leaves alone waits until the peer has confirmed the head, which it takes its time for. */
    MR_TRY(write_all(http->fd, mr_buf_slice(&http->out)));
    while (head_len(http) == 0)
        MR_TRY(read_more(http));
    const char *text = (const char *)http->in.data;
    const char *length = strcasestr(text, "Content-Length:");
    if (strncmp(text + STATUS_AT, "200", 3) != 0 || !length)
        return MR_FAILED;
    size_t first = head_len(http), n = strtoul(length + strlen("Content-Length:"), NULL, 10);
    while (http->in.len < first + n)
        MR_TRY(read_more(http));
    *ret_body = mr_slice_make(http->in.data + first, n);
    return MR_OK;
}

void bench_http_close(struct bench_http *http)
{
    if (http->fd >= 0)
        mr_net_close(http->fd);
    http->fd = -1;
    mr_buf_done(&http->in);
    mr_buf_done(&http->out);
}
