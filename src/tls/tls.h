/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TLS 1.2 and later through OpenSSL, on sockets that never block. A context is made once, from files
 * in PEM; a session is one connection's. Thread: any for contexts; a session has one owner.
 *
 * OpenSSL reads and writes the socket itself, so the owner's thread must have SIGPIPE blocked, as all
 * threads of base/chan.h have. It reads one record at a time into a buffer that has room for it, so
 * nothing stays inside OpenSSL that a poll of the socket would not tell of.
 */
#ifndef MR_TLS_TLS_H
#define MR_TLS_TLS_H

#include <stddef.h>

#include "base/err.h"

struct mr_tls;
struct mr_tls_session;

enum mr_tls_side { MR_TLS_SERVER, MR_TLS_CLIENT };

enum {
    MR_TLS_READ_MIN = 16384, /* the least room for a read */
    MR_TLS_WHY_MAX = 160,
};

struct mr_tls_options {
    enum mr_tls_side side;
    const char *cert_file, *key_file; /* server: both; client: for mutual TLS */
    const char *ca_file;  /* server: clients must have a certificate of it, NULL: they need none;
                             client: whom to trust, NULL: whom the system trusts */
    const char *protocol; /* the one of ALPN that both must want, lives as long; NULL: none */
};

/* MR_INVALID with the file and what is wrong with it in detail, MR_NOMEM. With MR_OK detail may hold a
 * warning. */
MR_MUST_USE enum mr_err mr_tls_new(const struct mr_tls_options *options, struct mr_tls **ret_tls,
                                   struct mr_detail *detail);
/* NULL is fine. Not before its sessions have stopped. */
void mr_tls_free(struct mr_tls *tls);

/* name: whom the certificate of the server must name (a name or an address); NULL on the server. The
 * socket stays its owner's. */
MR_MUST_USE enum mr_err mr_tls_start(struct mr_tls *tls, int fd, const char *name,
                                     struct mr_tls_session **ret_session);
/* MR_OK: done. MR_EMPTY: not yet. Else mr_tls_why says what was wrong; MR_UNSUPPORTED, without a
 * why: the peer does not want the protocol. */
MR_MUST_USE enum mr_err mr_tls_handshake(struct mr_tls_session *session);
/* As mr_net_read and mr_net_write. max is at least MR_TLS_READ_MIN. What was not written is given
 * again, at any place, perhaps with more behind it. */
MR_MUST_USE enum mr_err mr_tls_read(struct mr_tls_session *session, void *data, size_t max,
                                    size_t *ret_n);
MR_MUST_USE enum mr_err mr_tls_write(struct mr_tls_session *session, const void *data, size_t len,
                                     size_t *ret_n);
/* After MR_EMPTY, of any of them: it can go on only when the socket is writable. */
bool mr_tls_wants_write(const struct mr_tls_session *session);
/* One line; empty while nothing is known to be wrong. */
const char *mr_tls_why(const struct mr_tls_session *session);
enum mr_tls_end { MR_TLS_SAY_BYE, MR_TLS_BROKEN };
/* NULL is fine. */
void mr_tls_stop(struct mr_tls_session *session, enum mr_tls_end end);

#endif
