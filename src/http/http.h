/* SPDX-License-Identifier: Apache-2.0 */
/*
 * HTTP/1.1 on libmicrohttpd: tables of routes, answered on the server's own thread, at once, later, or by a stream
 * that lasts. What is wrong with a request itself (no such path, another method, too big, no certificate) is
 * answered here.
 *
 * A client that is silent or slow loses its connection, headers and bodies have limits, and so have
 * connections: beyond it the one that did nothing for the longest time goes, not the new one. A stream is
 * written by its client's pace: what it does not take is not made either.
 */
#ifndef MR_HTTP_HTTP_H
#define MR_HTTP_HTTP_H

#include "base/buf.h"
#include "base/chan.h"
#include "base/net.h"

struct mr_http;
struct mr_http_request;
struct mr_http_stream;

/* Answers the request, once: before it returns, or later; it waits for nothing. Thread: the server's own. */
typedef void mr_http_handler(struct mr_http_request *request, void *arg);

/* Whether a request may send its body, by its headers; else this answers it. Thread: the server's own. */
typedef bool mr_http_admit(struct mr_http_request *request, void *arg);

struct mr_http_route {
    const char *method; /* "GET" serves HEAD too */
    const char *path;   /* "/livez"; one part of it may stand for any: "/jobs/{id}/events" */
    mr_http_handler *handle;
    size_t body_max;      /* bytes that it reads of a body; 0: none, it is passed over */
    mr_http_admit *admit; /* of a body that is read; NULL: everybody may send one */
    const void *data;     /* the maker's own: mr_http_route_data */
};

struct mr_http_table {
    const struct mr_http_route *routes; /* live as long as the server */
    size_t routes_n;
    void *arg; /* of the handlers */
    /* Every MR_HTTP_TICK_MS while there is a stream, whosever; may be NULL. Thread: the server's. */
    void (*tick)(void *arg);
    /* Every MR_HTTP_BEAT_MS as long as the server runs; may be NULL. Thread: the server's. */
    void (*beat)(struct mr_http *http, void *arg);
};
enum { MR_HTTP_TICK_MS = 50, MR_HTTP_BEAT_MS = 5000 };

/* Files in PEM. */
struct mr_http_tls {
    const char *cert_file, *key_file;
    const char *ca_file; /* clients need a certificate of it; NULL: they need none */
};

struct mr_http_limits {       /* 0: the default */
    size_t header_bytes;      /* 32 KiB: request line and headers */
    size_t body_bytes;        /* 1 MiB, of those that are passed over */
    size_t bodies_bytes;      /* 64 MiB: of all that are read at a time; then they are refused */
    size_t answers_bytes;     /* 256 MiB: of all that are not taken yet; then who takes his for the
                           longest time goes */
    unsigned connections_max; /* 4096; never more than half of the files that may be open */
    unsigned streams_max;     /* 2048: of them; then they are refused */
    unsigned request_s;       /* 10: until a request is there as a whole, from the beginning of the
                           connection or the answer before it; then it is closed */
    unsigned idle_s;          /* 30: an answer of which not a byte is taken; the same */
};

/* An answer is given: by which route, NULL where there is none, and how long that took from when the request was there as
 * a whole. Thread: the server's. */
typedef void mr_http_observe(const struct mr_http_route *route, int status, int64_t us, void *arg);

struct mr_http_options {
    const char *address;           /* "127.0.0.1:7400"; port 0: any */
    const struct mr_http_tls *tls; /* NULL: plain */
    const char *
        prefix; /* "/mill": all paths are below it; NULL or "": there is none. Lives as long as the server */
    const struct mr_http_table *tables; /* the first route that fits counts; copied */
    size_t tables_n;                    /* to MR_HTTP_TABLES_MAX */
    struct mr_http_limits limits;
    mr_http_observe *observe; /* may be NULL */
    void *observe_arg;
};
enum { MR_HTTP_TABLES_MAX = 8 };

/* ret_bound: the address with its port. MR_IN_USE, MR_DENIED, MR_INVALID, MR_UNAVAILABLE, all with
 * detail. Thread: any. */
MR_MUST_USE enum mr_err mr_http_start(const struct mr_http_options *options,
                                      struct mr_http **ret_http, struct mr_addr *ret_bound,
                                      struct mr_detail *detail);
/* Takes nothing new, ends streams, waits for what is answered later and what is held, then closes every connection.
 * NULL is fine. Thread: any but the server's. */
void mr_http_stop(struct mr_http *http);
/* deliver is called on the server's thread, with receiver = http; or by mr_http_stop, on its own. Thread: any. */
void mr_http_post(struct mr_http *http, struct mr_msg *msg);
/* Where those messages go, for who has an executor send them. Thread: any. */
struct mr_chan *mr_http_inbox(struct mr_http *http);
/* Something is under way that will post: mr_http_stop waits for its release. Thread: the server's. */
void mr_http_hold(struct mr_http *http);
void mr_http_release(struct mr_http *http);

/* ---- for handlers, on the server's thread ------------------------------------------------------ */

struct mr_http *mr_http_of(const struct mr_http_request *request);
/* data of the route that the request came by. */
const void *mr_http_route_data(const struct mr_http_request *request);
/* What stands where the path of the route has "{id}". */
struct mr_slice mr_http_parameter(const struct mr_http_request *request);
/* NULL: there is none. */
const char *mr_http_header(const struct mr_http_request *request, const char *name);
const char *mr_http_query(const struct mr_http_request *request, const char *name);
struct mr_slice mr_http_body(const struct mr_http_request *request);
/* Whether the client is on this machine, and its address. */
bool mr_http_is_loopback(const struct mr_http_request *request);
void mr_http_peer(const struct mr_http_request *request, char text[MR_ADDR_TEXT_MAX]);

/* Whether the client has gone, as far as that can be seen: nobody will read the answer. */
bool mr_http_is_gone(const struct mr_http_request *request);

/* The body is copied, or packed where the client takes gzip and it is not small; type such as "text/plain" lives as
 * long as the program. */
void mr_http_reply(struct mr_http_request *request, int status, const char *type,
                   struct mr_slice body);
/* One body for many, packed at most once. Who is still being sent it when it is freed is sent all of it; NULL is fine for that.
 * The body is taken in any case. MR_NOMEM. Made and freed on any thread, replied with on the server's alone. */
struct mr_http_answer;
MR_MUST_USE enum mr_err mr_http_answer_new(const char *type, struct mr_buf *take_body,
                                           struct mr_http_answer **ret_answer);
void mr_http_answer_free(struct mr_http_answer *answer);
void mr_http_reply_answer(struct mr_http_request *request, int status,
                          struct mr_http_answer *answer);
/* {"error":{"code":...,"message":...}} with the error's own status, or with this one. */
void mr_http_fail(struct mr_http_request *request, enum mr_err err, const char *text);
void mr_http_refuse(struct mr_http_request *request, int status, enum mr_err err, const char *text);
/* Of a refusal that passes (429, 503): when to come back. Where nothing is said, after a second. */
void mr_http_retry_after(struct mr_http_request *request, int64_t s);
/* The handler returns without an answer: it comes later, from this thread (mr_http_post). The request lives until
 * then, also when its client has gone. */
void mr_http_later(struct mr_http_request *request);

/* ---- streams, on the server's thread ----------------------------------------------------------- */

struct mr_http_stream_ops {
    /* The client has taken all that there was: what comes next is written now, or, if there is nothing,
     * mr_http_stream_wake is called once there is. */
    void (*more)(struct mr_http_stream *stream, void *data);
    /* It is over; the last callback. */
    void (*closed)(void *data);
};

/* Answers with 200 and a body that has no end so far. NULL: it was answered otherwise (too many, no memory, a HEAD);
 * nothing is called back then. ops lives as long as the program. */
struct mr_http_stream *mr_http_stream(struct mr_http_request *request, const char *type,
                                      const struct mr_http_stream_ops *ops, void *data);
/* In more alone. */
MR_MUST_USE enum mr_err mr_http_stream_write(struct mr_http_stream *stream, struct mr_slice bytes);
/* Whether the client has taken all that was written; then it is woken by mr_http_stream_wake alone. */
bool mr_http_stream_waits(const struct mr_http_stream *stream);
/* The kernel holds about so many bytes for a client that does not take them, and no more. */
void mr_http_stream_narrow(struct mr_http_stream *stream, size_t bytes);
/* more is called as soon as the client takes it. */
void mr_http_stream_wake(struct mr_http_stream *stream);
/* Behind what was written. */
void mr_http_stream_end(struct mr_http_stream *stream);
/* At once, so that the client sees that it is not whole. */
void mr_http_stream_break(struct mr_http_stream *stream);

#endif
