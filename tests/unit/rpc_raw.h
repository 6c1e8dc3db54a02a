/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A peer that speaks HTTP/2 by hand, so that it can speak it badly: frames are written byte by byte,
 * headers as literals. Include it in one file of a test program.
 */
#ifndef MR_TESTS_RPC_RAW_H
#define MR_TESTS_RPC_RAW_H

#include <errno.h>
#include <netinet/in.h>
#include <nghttp2/nghttp2.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include "unit/rpc_rig.h"

enum { RAW_HEAD = 9, RAW_PAYLOAD_MAX = 1 << 20 };

struct raw {
    int fd;
    nghttp2_hd_inflater *inflater;
    struct mr_buf out; /* frames not yet written */
    /* The last frame read. */
    uint8_t type, flags;
    int32_t stream;
    uint8_t payload[1 << 15];
    size_t len;
    char headers[8192]; /* of the last HEADERS: "name=value\n" for each */
};

static inline void raw_open_fd(struct raw *raw, int fd)
{
    *raw = (struct raw){.fd = fd};
    struct timeval patience = {.tv_sec = patience_ns / MR_NS_PER_S};
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), 0);
    assert_int_equal(nghttp2_hd_inflate_new(&raw->inflater), 0);
}

static inline void raw_open(struct raw *raw, uint16_t port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_port = htons(port)};
    addr.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof addr), 0);
    raw_open_fd(raw, fd);
}

static inline void raw_close(struct raw *raw)
{
    close(raw->fd);
    nghttp2_hd_inflate_del(raw->inflater);
    mr_buf_done(&raw->out);
}

/* ---- writing -------------------------------------------------------------------------------- */

/* A peer that has hung up meanwhile is for the reader to find. */
static inline void raw_bytes(struct raw *raw, const void *data, size_t len)
{
    size_t done = 0;
    while (done < len) {
        ssize_t n = send(raw->fd, (const char *)data + done, len - done, MSG_NOSIGNAL);
        if (n < 0)
            return;
        done += (size_t)n;
    }
}

static inline void raw_flush(struct raw *raw)
{
    raw_bytes(raw, raw->out.data, raw->out.len);
    mr_buf_clear(&raw->out);
}

static inline void raw_frame(struct raw *raw, uint8_t type, uint8_t flags, int32_t stream,
                             struct mr_slice payload)
{
    uint8_t head[RAW_HEAD] = {(uint8_t)(payload.len >> 16),
                              (uint8_t)(payload.len >> 8),
                              (uint8_t)payload.len,
                              type,
                              flags,
                              (uint8_t)(stream >> 24),
                              (uint8_t)(stream >> 16),
                              (uint8_t)(stream >> 8),
                              (uint8_t)stream};
    assert_int_equal(mr_buf_append(&raw->out, head, sizeof head), MR_OK);
    assert_int_equal(mr_buf_append_slice(&raw->out, payload), MR_OK);
}

static inline void raw_literal(struct mr_buf *block, const char *text)
{
    size_t len = strlen(text);
    uint8_t prefix = (uint8_t)(len < 127 ? len : 127);
    assert_int_equal(mr_buf_append(block, &prefix, 1), MR_OK);
    if (len >= 127) {
        size_t rest = len - 127;
        for (; rest >= 128; rest >>= 7) {
            uint8_t digit = (uint8_t)(rest % 128 + 128);
            assert_int_equal(mr_buf_append(block, &digit, 1), MR_OK);
        }
        uint8_t digit = (uint8_t)rest;
        assert_int_equal(mr_buf_append(block, &digit, 1), MR_OK);
    }
    assert_int_equal(mr_buf_append(block, text, len), MR_OK);
}

static inline void raw_header(struct mr_buf *block, const char *name, const char *value)
{
    uint8_t literal = 0; /* without indexing, new name */
    assert_int_equal(mr_buf_append(block, &literal, 1), MR_OK);
    raw_literal(block, name);
    raw_literal(block, value);
}

/* A request's head with the usual headers and those of more: name, value, ..., NULL. A NULL value
 * leaves a usual header out. */
static inline void raw_request(struct raw *raw, int32_t stream, const char *path, uint8_t flags,
                               const char *const *more)
{
    const char *usual[][2] = {{":method", "POST"},
                              {":scheme", "http"},
                              {":path", path},
                              {":authority", "test"},
                              {"content-type", "application/grpc"},
                              {"te", "trailers"}};
    struct mr_buf block = {0};
    for (size_t i = 0; i < sizeof usual / sizeof usual[0]; i++) {
        const char *value = usual[i][1];
        for (size_t j = 0; more != NULL && more[j] != NULL; j += 2) {
            if (strcmp(more[j], usual[i][0]) == 0)
                value = more[j + 1];
        }
        raw_header(&block, usual[i][0], value);
    }
    for (size_t j = 0; more != NULL && more[j] != NULL; j += 2) {
        bool is_usual = false;
        for (size_t i = 0; i < sizeof usual / sizeof usual[0]; i++)
            is_usual |= strcmp(more[j], usual[i][0]) == 0;
        if (!is_usual)
            raw_header(&block, more[j], more[j + 1]);
    }
    raw_frame(raw, NGHTTP2_HEADERS, NGHTTP2_FLAG_END_HEADERS | flags, stream, mr_buf_slice(&block));
    mr_buf_done(&block);
}

/* One message, in frames as large as they may be. */
static inline void raw_message(struct raw *raw, int32_t stream, uint8_t packed,
                               struct mr_slice bytes, uint8_t flags)
{
    enum { FRAME_MAX = 16384 };
    struct mr_buf body = {0};
    uint8_t prefix[5] = {packed, (uint8_t)(bytes.len >> 24), (uint8_t)(bytes.len >> 16),
                         (uint8_t)(bytes.len >> 8), (uint8_t)bytes.len};
    assert_int_equal(mr_buf_append(&body, prefix, sizeof prefix), MR_OK);
    assert_int_equal(mr_buf_append_slice(&body, bytes), MR_OK);
    for (size_t at = 0, n; at < body.len; at += n) {
        n = body.len - at < FRAME_MAX ? body.len - at : FRAME_MAX;
        raw_frame(raw, NGHTTP2_DATA, at + n == body.len ? flags : 0, stream,
                  mr_slice_make(body.data + at, n));
    }
    mr_buf_done(&body);
}

static inline void raw_preface(struct raw *raw)
{
    assert_int_equal(mr_buf_append(&raw->out, NGHTTP2_CLIENT_MAGIC, NGHTTP2_CLIENT_MAGIC_LEN),
                     MR_OK);
    raw_frame(raw, NGHTTP2_SETTINGS, 0, 0, (struct mr_slice){0});
}

/* ---- reading -------------------------------------------------------------------------------- */

/* False at the end of the connection. */
static inline bool raw_exactly(struct raw *raw, void *data, size_t len)
{
    size_t done = 0;
    while (done < len) {
        ssize_t n = recv(raw->fd, (char *)data + done, len - done, 0);
        if (n <= 0) {
            assert_true(n == 0 || errno == ECONNRESET); /* else it took too long */
            return false;
        }
        done += (size_t)n;
    }
    return true;
}

static inline void raw_inflate(struct raw *raw)
{
    size_t at = 0;
    raw->headers[0] = '\0';
    for (;;) {
        nghttp2_nv nv;
        int flags = 0;
        ssize_t n =
            nghttp2_hd_inflate_hd2(raw->inflater, &nv, &flags, raw->payload + at, raw->len - at, 1);
        assert_true(n >= 0);
        at += (size_t)n;
        if (flags & NGHTTP2_HD_INFLATE_EMIT) {
            size_t have = strlen(raw->headers);
            snprintf(raw->headers + have, sizeof raw->headers - have, "%s=%s\n", nv.name, nv.value);
        }
        if (flags & NGHTTP2_HD_INFLATE_FINAL)
            break;
    }
    assert_int_equal(nghttp2_hd_inflate_end_headers(raw->inflater), 0);
}

/* The next frame; false at the end of the connection. */
static inline bool raw_next(struct raw *raw)
{
    uint8_t head[RAW_HEAD];
    if (!raw_exactly(raw, head, sizeof head))
        return false;
    raw->len = (size_t)head[0] << 16 | (size_t)head[1] << 8 | head[2];
    raw->type = head[3];
    raw->flags = head[4];
    raw->stream = (int32_t)((uint32_t)head[5] << 24 | (uint32_t)head[6] << 16 |
                            (uint32_t)head[7] << 8 | head[8]);
    assert_true(raw->len <= sizeof raw->payload);
    if (!raw_exactly(raw, raw->payload, raw->len))
        return false;
    if (raw->type == NGHTTP2_HEADERS)
        raw_inflate(raw);
    return true;
}

/* Reads until the peer hangs up; the error of its last GOAWAY, -1 without one. */
static inline int64_t raw_until_closed(struct raw *raw)
{
    int64_t code = -1;
    while (raw_next(raw)) {
        if (raw->type == NGHTTP2_GOAWAY)
            code = raw->payload[7] | (int64_t)raw->payload[6] << 8;
    }
    return code;
}

/* Reads until the head of the end of this call; raw->headers has its status. */
static inline void raw_until_end(struct raw *raw, int32_t stream)
{
    while (raw_next(raw)) {
        if (raw->type == NGHTTP2_HEADERS && raw->stream == stream &&
            raw->flags & NGHTTP2_FLAG_END_STREAM)
            return;
    }
    fail_msg("the connection ended before the call");
}

/* Reads until a frame of this type. */
static inline void raw_until(struct raw *raw, uint8_t type)
{
    while (raw_next(raw)) {
        if (raw->type == type)
            return;
    }
    fail_msg("the connection ended");
}

#endif
