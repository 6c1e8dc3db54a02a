/* SPDX-License-Identifier: Apache-2.0 */
#include "tls/tls.h"

#include <assert.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdlib.h>

#include "base/net.h"

enum { VERIFY_DEPTH_MAX = 8, PROTOCOL_MAX = 16 };

struct mr_tls {
    SSL_CTX *ctx;
    /* As ALPN has it: a length and so many bytes. */
    uint8_t protocol[1 + PROTOCOL_MAX];
};

struct mr_tls_session {
    SSL *ssl;
    uint8_t protocol[1 + PROTOCOL_MAX];
    bool wants_write;
    char why[MR_TLS_WHY_MAX];
};

/* ---- contexts ------------------------------------------------------------------------------- */

/* The first thing OpenSSL has to say, then its errors are forgotten. */
static void first_error(char *text, size_t cap)
{
    unsigned long code = ERR_get_error();
    const char *reason = code != 0 ? ERR_reason_error_string(code) : NULL;
    snprintf(text, cap, "%s", reason != NULL ? reason : "unknown error");
    ERR_clear_error();
}

static enum mr_err refuse(struct mr_detail *detail, const char *what, const char *file)
{
    char reason[128];
    first_error(reason, sizeof reason);
    mr_detail_set(detail, "TLS: cannot use the %s %s: %s", what, file, reason);
    return MR_INVALID;
}

static int select_protocol(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                           const unsigned char *in, unsigned in_len, void *arg)
{
    (void)ssl;
    const struct mr_tls *tls = arg;
    unsigned char *chosen;
    if (SSL_select_next_proto(&chosen, out_len, tls->protocol, 1u + tls->protocol[0], in, in_len) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

static enum mr_err load_own(SSL_CTX *ctx, const struct mr_tls_options *options,
                            struct mr_detail *detail)
{
    if (options->cert_file == NULL && options->key_file == NULL && options->side == MR_TLS_CLIENT)
        return MR_OK;
    if (options->cert_file == NULL || options->key_file == NULL) {
        mr_detail_set(detail, "TLS needs both a certificate and its key");
        return MR_INVALID;
    }
    if (SSL_CTX_use_certificate_chain_file(ctx, options->cert_file) != 1)
        return refuse(detail, "certificate", options->cert_file);
    if (SSL_CTX_use_PrivateKey_file(ctx, options->key_file, SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_check_private_key(ctx) != 1)
        return refuse(detail, "key", options->key_file);
    return MR_OK;
}

static enum mr_err load_trust(SSL_CTX *ctx, const struct mr_tls_options *options,
                              struct mr_detail *detail)
{
    if (options->side == MR_TLS_SERVER && options->ca_file == NULL)
        return MR_OK;
    if (options->ca_file != NULL) {
        if (SSL_CTX_load_verify_file(ctx, options->ca_file) != 1)
            return refuse(detail, "CA file", options->ca_file);
    } else if (SSL_CTX_set_default_verify_paths(ctx) != 1) {
        return refuse(detail, "certificates of", "this system");
    }
    if (options->side == MR_TLS_SERVER) {
        STACK_OF(X509_NAME) *names = SSL_load_client_CA_file(options->ca_file);
        if (names == NULL)
            return refuse(detail, "CA file", options->ca_file);
        SSL_CTX_set_client_CA_list(ctx, names);
    }
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    SSL_CTX_set_verify_depth(ctx, VERIFY_DEPTH_MAX);
    return MR_OK;
}

static enum mr_err set_protocol(struct mr_tls *tls, const struct mr_tls_options *options)
{
    if (options->protocol == NULL)
        return MR_OK;
    size_t len = strlen(options->protocol);
    mr_assert(len > 0 && len <= PROTOCOL_MAX);
    tls->protocol[0] = (uint8_t)len;
    memcpy(tls->protocol + 1, options->protocol, len);
    if (options->side == MR_TLS_SERVER)
        SSL_CTX_set_alpn_select_cb(tls->ctx, select_protocol, tls);
    else if (SSL_CTX_set_alpn_protos(tls->ctx, tls->protocol, 1u + tls->protocol[0]) != 0)
        return MR_NOMEM;
    return MR_OK;
}

static enum mr_err set_rules(SSL_CTX *ctx)
{
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION |
                                 SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    /* What the socket does not take is sent later, from another place; idle connections keep no
     * buffers. */
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                              SSL_MODE_RELEASE_BUFFERS);
    return SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) == 1 ? MR_OK : MR_FAILED;
}

/* A certificate that is not valid now can still be served: a clock may be wrong. */
static void warn_of_time(const SSL_CTX *ctx, const struct mr_tls_options *options,
                         struct mr_detail *detail)
{
    const X509 *cert = SSL_CTX_get0_certificate(ctx);
    const char *what = NULL;
    if (cert != NULL && X509_cmp_current_time(X509_get0_notAfter(cert)) < 0)
        what = "has expired";
    else if (cert != NULL && X509_cmp_current_time(X509_get0_notBefore(cert)) > 0)
        what = "is not valid yet";
    if (what != NULL)
        mr_detail_set(detail, "TLS: the certificate %s %s: peers will not trust it",
                      options->cert_file, what);
}

enum mr_err mr_tls_new(const struct mr_tls_options *options, struct mr_tls **ret_tls,
                       struct mr_detail *detail)
{
    /* Its clean-up at exit would run while threads of ours still use it. */
    if (OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, NULL) != 1)
        return MR_NOMEM;
    struct mr_tls *tls = calloc(1, sizeof *tls);
    if (tls == NULL)
        return MR_NOMEM;
    tls->ctx =
        SSL_CTX_new(options->side == MR_TLS_SERVER ? TLS_server_method() : TLS_client_method());
    enum mr_err err = tls->ctx != NULL ? set_rules(tls->ctx) : MR_NOMEM;
    if (err == MR_OK)
        err = set_protocol(tls, options);
    if (err == MR_OK)
        err = load_own(tls->ctx, options, detail);
    if (err == MR_OK)
        err = load_trust(tls->ctx, options, detail);
    if (err != MR_OK) {
        mr_tls_free(tls);
        return err;
    }
    warn_of_time(tls->ctx, options, detail);
    *ret_tls = tls;
    return MR_OK;
}

void mr_tls_free(struct mr_tls *tls)
{
    if (tls == NULL)
        return;
    SSL_CTX_free(tls->ctx);
    free(tls);
}

/* ---- sessions ------------------------------------------------------------------------------- */

static bool is_number(const char *name)
{
    struct mr_addr addr;
    size_t n;
    return mr_host_resolve(name, 0, MR_RESOLVE_NUMBERS, &addr, 1, &n, NULL) == MR_OK;
}

static bool expect_name(SSL *ssl, const char *name)
{
    if (is_number(name))
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), name) == 1;
    return SSL_set1_host(ssl, name) == 1 && SSL_set_tlsext_host_name(ssl, name) == 1;
}

enum mr_err mr_tls_start(struct mr_tls *tls, int fd, const char *name,
                         struct mr_tls_session **ret_session)
{
    struct mr_tls_session *session = calloc(1, sizeof *session);
    if (session == NULL)
        return MR_NOMEM;
    memcpy(session->protocol, tls->protocol, sizeof session->protocol);
    session->ssl = SSL_new(tls->ctx);
    bool ok = session->ssl != NULL && SSL_set_fd(session->ssl, fd) == 1;
    if (ok && name == NULL) {
        SSL_set_accept_state(session->ssl);
    } else if (ok) {
        SSL_set_connect_state(session->ssl);
        ok = expect_name(session->ssl, name);
    }
    if (!ok) {
        mr_tls_stop(session, MR_TLS_BROKEN);
        return MR_NOMEM;
    }
    *ret_session = session;
    return MR_OK;
}

static void say_why(struct mr_tls_session *session, const char *what)
{
    long verdict = SSL_get_verify_result(session->ssl);
    char reason[96];
    first_error(reason, sizeof reason);
    if (verdict != X509_V_OK)
        snprintf(session->why, sizeof session->why, "TLS: the certificate of the peer: %s",
                 X509_verify_cert_error_string(verdict));
    else
        snprintf(session->why, sizeof session->why, "TLS: %s: %s", what, reason);
}

/* What a call that did not succeed means. */
static enum mr_err outcome(struct mr_tls_session *session, int rc, const char *what)
{
    int error = SSL_get_error(session->ssl, rc);
    session->wants_write = error == SSL_ERROR_WANT_WRITE;
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE)
        return MR_EMPTY;
    if (error == SSL_ERROR_ZERO_RETURN)
        return MR_CLOSED;
    if (error == SSL_ERROR_SSL)
        say_why(session, what);
    ERR_clear_error();
    return MR_UNAVAILABLE;
}

enum mr_err mr_tls_handshake(struct mr_tls_session *session)
{
    session->wants_write = false;
    int rc = SSL_do_handshake(session->ssl);
    if (rc != 1)
        return outcome(session, rc, "handshake");
    const uint8_t *wanted = session->protocol;
    const unsigned char *chosen;
    unsigned len;
    SSL_get0_alpn_selected(session->ssl, &chosen, &len);
    bool right = wanted[0] == 0 || (len == wanted[0] && memcmp(chosen, wanted + 1, len) == 0);
    return right ? MR_OK : MR_UNSUPPORTED;
}

enum mr_err mr_tls_read(struct mr_tls_session *session, void *data, size_t max, size_t *ret_n)
{
    static_assert(MR_TLS_READ_MIN == SSL3_RT_MAX_PLAIN_LENGTH, "a whole record");
    mr_assert(max >= MR_TLS_READ_MIN);
    session->wants_write = false;
    int rc = SSL_read_ex(session->ssl, data, max, ret_n);
    return rc == 1 ? MR_OK : outcome(session, rc, "reading");
}

enum mr_err mr_tls_write(struct mr_tls_session *session, const void *data, size_t len,
                         size_t *ret_n)
{
    session->wants_write = false;
    int rc = SSL_write_ex(session->ssl, data, len, ret_n);
    return rc == 1 ? MR_OK : outcome(session, rc, "writing");
}

bool mr_tls_wants_write(const struct mr_tls_session *session)
{
    return session->wants_write;
}

const char *mr_tls_why(const struct mr_tls_session *session)
{
    return session->why;
}

void mr_tls_stop(struct mr_tls_session *session, enum mr_tls_end end)
{
    if (session == NULL)
        return;
    if (session->ssl != NULL && end == MR_TLS_SAY_BYE)
        (void)SSL_shutdown(session->ssl);
    ERR_clear_error();
    SSL_free(session->ssl);
    free(session);
}
