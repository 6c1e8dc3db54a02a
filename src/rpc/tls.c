/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS 1.2 and later through OpenSSL, with ALPN "h2". OpenSSL reads and writes the socket itself; the
 * loop's thread has all signals blocked, so a peer that is gone is an error and no SIGPIPE. It reads
 * one record at a time into a buffer that has room for it, so nothing stays inside OpenSSL that a
 * poll of the socket would not tell of.
 */
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "rpc/internal.h"

enum { VERIFY_DEPTH_MAX = 8 };

static const uint8_t alpn_h2[] = {2, 'h', '2'};

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

static int select_h2(SSL *ssl, const unsigned char **out, unsigned char *out_len,
                     const unsigned char *in, unsigned in_len, void *arg)
{
    (void)ssl;
    (void)arg;
    unsigned char *chosen;
    if (SSL_select_next_proto(&chosen, out_len, alpn_h2, sizeof alpn_h2, in, in_len) !=
        OPENSSL_NPN_NEGOTIATED)
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

static enum mr_err load_own(SSL_CTX *ctx, const struct mr_rpc_tls *options, enum rpc_side side,
                            struct mr_detail *detail)
{
    if (options->cert_file == NULL && options->key_file == NULL && side == RPC_CLIENT)
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

static enum mr_err load_trust(SSL_CTX *ctx, const struct mr_rpc_tls *options, enum rpc_side side,
                              struct mr_detail *detail)
{
    if (side == RPC_SERVER && options->ca_file == NULL)
        return MR_OK;
    if (options->ca_file != NULL) {
        if (SSL_CTX_load_verify_file(ctx, options->ca_file) != 1)
            return refuse(detail, "CA file", options->ca_file);
    } else if (SSL_CTX_set_default_verify_paths(ctx) != 1) {
        return refuse(detail, "certificates of", "this system");
    }
    if (side == RPC_SERVER) {
        STACK_OF(X509_NAME) *names = SSL_load_client_CA_file(options->ca_file);
        if (names == NULL)
            return refuse(detail, "CA file", options->ca_file);
        SSL_CTX_set_client_CA_list(ctx, names);
    }
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    SSL_CTX_set_verify_depth(ctx, VERIFY_DEPTH_MAX);
    return MR_OK;
}

static enum mr_err set_protocol(SSL_CTX *ctx, enum rpc_side side)
{
    SSL_CTX_set_options(ctx, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION |
                                 SSL_OP_CIPHER_SERVER_PREFERENCE);
    SSL_CTX_set_session_cache_mode(ctx, SSL_SESS_CACHE_OFF);
    /* What the socket does not take is sent later, from another place; idle connections keep no
     * buffers. */
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                              SSL_MODE_RELEASE_BUFFERS);
    if (SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION) != 1)
        return MR_FAILED;
    if (side == RPC_SERVER)
        SSL_CTX_set_alpn_select_cb(ctx, select_h2, NULL);
    else if (SSL_CTX_set_alpn_protos(ctx, alpn_h2, sizeof alpn_h2) != 0)
        return MR_NOMEM;
    return MR_OK;
}

enum mr_err rpc_tls_new(const struct mr_rpc_tls *options, enum rpc_side side, SSL_CTX **ret_ctx,
                        struct mr_detail *detail)
{
    /* Its clean-up at exit would run while threads of ours still use it. */
    if (OPENSSL_init_ssl(OPENSSL_INIT_NO_ATEXIT, NULL) != 1)
        return MR_NOMEM;
    SSL_CTX *ctx = SSL_CTX_new(side == RPC_SERVER ? TLS_server_method() : TLS_client_method());
    if (ctx == NULL)
        return MR_NOMEM;
    enum mr_err err = set_protocol(ctx, side);
    if (err == MR_OK)
        err = load_own(ctx, options, side, detail);
    if (err == MR_OK)
        err = load_trust(ctx, options, side, detail);
    if (err != MR_OK) {
        SSL_CTX_free(ctx);
        return err;
    }
    *ret_ctx = ctx;
    return MR_OK;
}

enum mr_err mr_rpc_tls_check(const struct mr_rpc_tls *tls, struct mr_detail *detail)
{
    SSL_CTX *ctx;
    MR_TRY(rpc_tls_new(tls, RPC_SERVER, &ctx, detail));
    rpc_tls_free(ctx);
    return MR_OK;
}

void rpc_tls_free(SSL_CTX *ctx)
{
    SSL_CTX_free(ctx);
}

/* ---- connections ---------------------------------------------------------------------------- */

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

enum mr_err rpc_tls_start(struct rpc_conn *conn, SSL_CTX *ctx, const char *name)
{
    conn->ssl = SSL_new(ctx);
    if (conn->ssl == NULL || SSL_set_fd(conn->ssl, conn->watch.fd) != 1)
        return MR_NOMEM;
    if (name == NULL) {
        SSL_set_accept_state(conn->ssl);
        return MR_OK;
    }
    SSL_set_connect_state(conn->ssl);
    return expect_name(conn->ssl, name) ? MR_OK : MR_NOMEM;
}

static void say_why(struct rpc_conn *conn, const char *what)
{
    long verdict = SSL_get_verify_result(conn->ssl);
    char reason[96];
    first_error(reason, sizeof reason);
    if (verdict != X509_V_OK)
        snprintf(conn->why, sizeof conn->why, "TLS: the certificate of the peer: %s",
                 X509_verify_cert_error_string(verdict));
    else
        snprintf(conn->why, sizeof conn->why, "TLS: %s: %s", what, reason);
}

/* What a call that did not succeed means. */
static enum mr_err outcome(struct rpc_conn *conn, int rc, const char *what)
{
    int error = SSL_get_error(conn->ssl, rc);
    conn->tls_wants_write = error == SSL_ERROR_WANT_WRITE;
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE)
        return MR_EMPTY;
    if (error == SSL_ERROR_ZERO_RETURN)
        return MR_CLOSED;
    if (error == SSL_ERROR_SSL)
        say_why(conn, what);
    ERR_clear_error();
    return MR_UNAVAILABLE;
}

enum mr_err rpc_tls_handshake(struct rpc_conn *conn)
{
    conn->tls_wants_write = false;
    int rc = SSL_do_handshake(conn->ssl);
    if (rc != 1)
        return outcome(conn, rc, "handshake");
    const unsigned char *protocol;
    unsigned len;
    SSL_get0_alpn_selected(conn->ssl, &protocol, &len);
    if (len == 2 && memcmp(protocol, "h2", 2) == 0)
        return MR_OK;
    snprintf(conn->why, sizeof conn->why, "TLS: the peer does not speak HTTP/2");
    return MR_UNSUPPORTED;
}

enum mr_err rpc_tls_read(struct rpc_conn *conn, void *data, size_t max, size_t *ret_n)
{
    mr_assert(max >= SSL3_RT_MAX_PLAIN_LENGTH);
    conn->tls_wants_write = false;
    int rc = SSL_read_ex(conn->ssl, data, max, ret_n);
    return rc == 1 ? MR_OK : outcome(conn, rc, "reading");
}

enum mr_err rpc_tls_write(struct rpc_conn *conn, const void *data, size_t len, size_t *ret_n)
{
    conn->tls_wants_write = false;
    int rc = SSL_write_ex(conn->ssl, data, len, ret_n);
    return rc == 1 ? MR_OK : outcome(conn, rc, "writing");
}

void rpc_tls_stop(struct rpc_conn *conn)
{
    if (conn->ssl == NULL)
        return;
    if (!conn->broken)
        (void)SSL_shutdown(conn->ssl);
    ERR_clear_error();
    SSL_free(conn->ssl);
    conn->ssl = NULL;
}
