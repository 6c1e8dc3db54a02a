/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP/1.1 on libmicrohttpd: a table of routes, answered on the server's own thread. What is wrong
 * with a request itself (no such path, another method, too big, no certificate) is answered here.
 *
 * A client that is silent or slow loses its connection, headers and bodies have limits, and so have
 * connections: beyond it the one that did nothing for the longest time goes, not the new one.
 */
#ifndef MR_HTTP_HTTP_H
#define MR_HTTP_HTTP_H

#include "base/net.h"

struct mr_http;
struct mr_http_request;

/* Answers the request, once, before it returns, and waits for nothing. Thread: the server's own. */
typedef void mr_http_handler(struct mr_http_request *request, void *arg);

struct mr_http_route {
    const char *method; /* "GET" serves HEAD too */
    const char *path;   /* "/livez" */
    mr_http_handler *handle;
};

/* Files in PEM. */
struct mr_http_tls {
    const char *cert_file, *key_file;
    const char *ca_file; /* clients need a certificate of it; NULL: they need none */
};

struct mr_http_limits {       /* 0: the default */
    size_t header_bytes;      /* 32 KiB: request line and headers */
    size_t body_bytes;        /* 1 MiB */
    unsigned connections_max; /* 1000 */
    unsigned request_s;       /* 10: until a request is there as a whole, from the beginning of the
                           connection or the answer before it; then it is closed */
    unsigned idle_s;          /* 30: an answer of which not a byte is taken; the same */
};

struct mr_http_options {
    const char *address;                /* "127.0.0.1:7400"; port 0: any */
    const struct mr_http_tls *tls;      /* NULL: plain */
    const struct mr_http_route *routes; /* live as long as the server */
    size_t routes_n;
    void *arg; /* of the handlers */
    struct mr_http_limits limits;
};

/* ret_bound: the address with its port. MR_IN_USE, MR_DENIED, MR_INVALID, MR_UNAVAILABLE, all with
 * detail. Thread: any. */
MR_MUST_USE enum mr_err mr_http_start(const struct mr_http_options *options,
                                      struct mr_http **ret_http, struct mr_addr *ret_bound,
                                      struct mr_detail *detail);
/* Closes every connection; a handler that runs is waited for. NULL is fine. Thread: any but a
 * handler's. */
void mr_http_stop(struct mr_http *http);

/* ---- for handlers --------------------------------------------------------------------------- */

/* The body is copied; type such as "text/plain" lives as long as the program. */
void mr_http_reply(struct mr_http_request *request, int status, const char *type,
                   struct mr_slice body);

#endif
