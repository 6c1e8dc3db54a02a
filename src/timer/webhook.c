/* SPDX-License-Identifier: Apache-2.0 */
/* One POST over HTTP/1.1, with or without TLS: a connection of its own, closed with the answer. Thread: one that
 * may wait. */
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <poll.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/net.h"
#include "base/text.h"
#include "timer/alarm.h"
#include "tls/tls.h"

enum { HTTP_PORT = 80, HTTPS_PORT = 443, ADDRESSES_MAX = 4, ANSWER_MAX = 512, SIGNATURE_MAX = 80 };

enum mr_err mr_webhook_parse(const char *url, struct mr_webhook *ret_hook, struct mr_detail *detail)
{
    struct mr_webhook hook = {.tls = strncmp(url, "https://", 8) == 0};
    const char *at = url + (hook.tls ? 8 : 7);
    size_t len = strcspn(at, "/?#");
    char address[sizeof hook.host + 8];
    const char *path = at[len] == '/' ? at + len : "/";
    bool fits = len > 0 && len + 8 < sizeof address && strlen(path) < sizeof hook.path;
    for (const char *c = url; fits && *c != '\0'; c++)
        fits = *c > 0x20 && *c < 0x7f; /* nothing that could end a header */
    if (fits) {
        (void)snprintf(address, sizeof address, "%.*s", (int)len, at);
        if (mr_host_parse(address, hook.host, &hook.port) != MR_OK) {
            (void)snprintf(address, sizeof address, "%.*s:%d", (int)len, at,
                           hook.tls ? HTTPS_PORT : HTTP_PORT);
            fits = mr_host_parse(address, hook.host, &hook.port) == MR_OK;
        }
    }
    if (!fits) {
        mr_detail_set(detail, "alarm: \"%.200s\" is no URL; write http://HOST:PORT/PATH", url);
        return MR_INVALID;
    }
    (void)snprintf(hook.path, sizeof hook.path, "%.*s", (int)strcspn(path, "#"), path);
    *ret_hook = hook;
    return MR_OK;
}

/* "sha256=" and the HMAC of the body in hexadecimal digits. */
static void sign(const char *secret, struct mr_slice body, char text[SIGNATURE_MAX])
{
    unsigned char mac[EVP_MAX_MD_SIZE];
    unsigned int len = 0;
    size_t at = (size_t)snprintf(text, SIGNATURE_MAX, "sha256=");
    mr_assert(HMAC(EVP_sha256(), secret, (int)strlen(secret), body.data, body.len, mac, &len));
    for (unsigned int i = 0; i < len; i++)
        at += (size_t)snprintf(text + at, SIGNATURE_MAX - at, "%02x", mac[i]);
}

/* ---- a connection ---------------------------------------------------------------------------- */

struct post {
    int fd;
    struct mr_tls *tls;
    struct mr_tls_session *session; /* NULL: without TLS */
    mr_mono until;
    struct mr_detail *detail;
};

/* MR_TIMEOUT when the time is over. */
static enum mr_err wait_ready(const struct post *post, short events)
{
    struct pollfd fd = {.fd = post->fd, .events = events};
    int64_t left_ns = post->until.ns - mr_mono_now(mr_clock_system()).ns;
    if (left_ns <= 0 || poll(&fd, 1, (int)(left_ns / MR_NS_PER_MS) + 1) == 0) {
        mr_detail_set(post->detail, "no answer in time");
        return MR_TIMEOUT;
    }
    return MR_OK;
}

static short wanted(const struct post *post, short events)
{
    return post->session != NULL && mr_tls_wants_write(post->session) ? POLLOUT : events;
}

static enum mr_err connect_to(struct post *post, const struct mr_webhook *hook)
{
    struct mr_addr addrs[ADDRESSES_MAX];
    size_t n = 0;
    MR_TRY(mr_host_resolve(hook->host, hook->port, MR_RESOLVE_NAMES, addrs, ADDRESSES_MAX, &n,
                           post->detail));
    enum mr_err err = MR_UNAVAILABLE;
    for (size_t i = 0; err != MR_OK && i < n; i++) {
        err = mr_net_connect(&addrs[i], &post->fd);
        if (err != MR_OK)
            continue;
        err = wait_ready(post, POLLOUT);
        if (err == MR_OK)
            err = mr_net_connected(post->fd);
        if (err != MR_OK) {
            mr_net_close(post->fd);
            post->fd = -1;
        }
    }
    if (err != MR_OK)
        mr_detail_set(post->detail, "cannot connect to %s:%u: %s", hook->host, hook->port,
                      mr_err_text(err));
    return err;
}

static enum mr_err start_tls(struct post *post, const struct mr_webhook *hook)
{
    struct mr_tls_options options = {.side = MR_TLS_CLIENT};
    if (!hook->tls)
        return MR_OK;
    MR_TRY(mr_tls_new(&options, &post->tls, post->detail));
    MR_TRY(mr_tls_start(post->tls, post->fd, hook->host, &post->session));
    enum mr_err err;
    while ((err = mr_tls_handshake(post->session)) == MR_EMPTY)
        MR_TRY(wait_ready(post, wanted(post, POLLIN)));
    if (err != MR_OK)
        mr_detail_set(post->detail, "%s", mr_tls_why(post->session));
    return err;
}

static enum mr_err send_all(struct post *post, struct mr_slice bytes)
{
    while (bytes.len > 0) {
        size_t n = 0;
        enum mr_err err = post->session != NULL
                              ? mr_tls_write(post->session, bytes.data, bytes.len, &n)
                              : mr_net_write(post->fd, bytes.data, bytes.len, &n);
        if (err == MR_EMPTY)
            MR_TRY(wait_ready(post, wanted(post, POLLOUT)));
        else if (err != MR_OK)
            return err;
        else
            bytes = mr_slice_make((const char *)bytes.data + n, bytes.len - n);
    }
    return MR_OK;
}

/* Up to the end of the first line. */
static enum mr_err read_status(struct post *post, int *ret_status)
{
    char answer[ANSWER_MAX], *room = malloc(MR_TLS_READ_MIN);
    size_t len = 0;
    enum mr_err err = room != NULL ? MR_OK : MR_NOMEM;
    while (err == MR_OK && memchr(answer, '\n', len) == NULL && len < sizeof answer - 1) {
        size_t n = 0;
        err = post->session != NULL ? mr_tls_read(post->session, room, MR_TLS_READ_MIN, &n)
                                    : mr_net_read(post->fd, room, MR_TLS_READ_MIN, &n);
        if (err == MR_EMPTY) {
            err = wait_ready(post, wanted(post, POLLIN));
            continue;
        }
        size_t fits = sizeof answer - 1 - len;
        if (err == MR_OK)
            memcpy(answer + len, room, n < fits ? n : fits);
        len += n < fits ? n : fits;
    }
    answer[len] = '\0';
    free(room);
    if (err == MR_OK && sscanf(answer, "HTTP/1.%*1d %3d", ret_status) != 1)
        err = MR_FAILED;
    if (err != MR_OK && post->detail->text[0] == '\0')
        mr_detail_set(post->detail, "no answer of HTTP");
    return err;
}

static enum mr_err put_request(const struct mr_webhook *hook, const char *secret,
                               struct mr_slice body, struct mr_buf *buf)
{
    char signature[SIGNATURE_MAX];
    bool is_v6 = strchr(hook->host, ':') != NULL;
    MR_TRY(mr_buf_printf(buf,
                         "POST %s HTTP/1.1\r\nHost: %s%s%s:%u\r\nContent-Type: application/json\r\n"
                         "Content-Length: %zu\r\nConnection: close\r\n",
                         hook->path, is_v6 ? "[" : "", hook->host, is_v6 ? "]" : "", hook->port,
                         body.len));
    if (secret != NULL) {
        sign(secret, body, signature);
        MR_TRY(mr_buf_printf(buf, "Millrace-Signature: %s\r\n", signature));
    }
    MR_TRY(mr_buf_append(buf, "\r\n", 2));
    return mr_buf_append_slice(buf, body);
}

enum mr_err mr_webhook_post(const struct mr_webhook *hook, const char *secret, struct mr_slice body,
                            int64_t max_ms, struct mr_detail *detail)
{
    struct post post = {.fd = -1,
                        .until = mr_mono_add_ms(mr_mono_now(mr_clock_system()), max_ms),
                        .detail = detail};
    struct mr_buf request = {0};
    int status = 0;
    detail->text[0] = '\0';
    enum mr_err err = put_request(hook, secret, body, &request);
    if (err == MR_OK)
        err = connect_to(&post, hook);
    if (err == MR_OK)
        err = start_tls(&post, hook);
    if (err == MR_OK)
        err = send_all(&post, mr_buf_slice(&request));
    if (err == MR_OK)
        err = read_status(&post, &status);
    if (err == MR_OK && (status < 200 || status > 299)) {
        mr_detail_set(detail, "answered with %d", status);
        err = MR_FAILED;
    }
    mr_tls_stop(post.session, MR_TLS_BROKEN);
    mr_tls_free(post.tls);
    if (post.fd >= 0)
        mr_net_close(post.fd);
    mr_buf_done(&request);
    return err;
}
