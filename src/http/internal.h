/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Inside the server. Thread: its own, for everything.
 *
 *   http.c      its socket, its certificates, its thread and its clients
 *   head.c      what must be right with the first lines of a request, and its path
 *   request.c   from a request to its route, and answers
 *   gzip.c      answers that are packed
 *   file.c      answers that are part of the program
 *   stream.c    answers that last
 */
#ifndef MR_HTTP_INTERNAL_H
#define MR_HTTP_INTERNAL_H

#include <microhttpd.h>

#include "base/buf.h"
#include "base/list.h"
#include "base/loop.h"
#include "http/http.h"

struct mr_http {
    struct MHD_Daemon *daemon;
    struct mr_loop *loop;
    struct mr_watch watch; /* of everything the library waits for */
    pthread_t thread;
    struct mr_msg stop_msg;
    bool running, stopping;
    bool resumed;                     /* a connection was, since the library last looked */
    bool beats;                       /* some table does */
    int listen_fd;                    /* once nothing new is taken; -1: the library's */
    struct mr_link waiting, answered; /* clients, the longest there first */
    struct mr_link streaming;         /* clients that have a stream */
    unsigned clients_n;               /* in all of them, and those that were cut */
    struct mr_link streams;           /* of struct mr_http_stream */
    unsigned streams_n;
    size_t bodies_bytes;  /* that are kept of bodies now */
    size_t answers_bytes; /* of answers that are on their way */
    unsigned held_n;      /* requests that are answered later, and other things under way */
    mr_mono ticked, beaten;
    struct mr_http_options options;
    struct mr_http_table tables[MR_HTTP_TABLES_MAX];
    bool certificates;     /* clients need one */
    char *cert, *key, *ca; /* PEM; NULL: none */
    _Atomic bool starting;
    struct mr_detail why; /* the library's last words while starting */
};

/* A connection. */
struct client {
    struct mr_link link; /* in waiting until a request is there as a whole, then in answered */
    int fd;
    mr_mono since;       /* in its list */
    size_t answer_bytes; /* that are on their way to it */
};

/* NULL: there was no memory for it. */
struct client *client_of(struct MHD_Connection *connection);
void client_move(struct client *client, struct mr_link *list);
/* The library finds it at its end. */
void client_cut(struct client *client);
/* So many bytes are on their way to it. Others who let theirs lie are cut, should that be too much. */
void client_owes(struct mr_http *http, struct client *client, size_t bytes);

/* What was suspended goes on, also when this is called while the library deals with another connection. */
void connection_resume(struct mr_http *http, struct MHD_Connection *connection);

/* From the first line of a request to its end. */
struct mr_http_request {
    struct mr_http *http;
    struct MHD_Connection *connection;
    const struct mr_http_route *route; /* NULL: it is refused */
    void *arg;
    struct mr_buf path;               /* as path_read has it */
    bool garbled;                     /* there is none */
    struct mr_slice below, parameter; /* in path: below the prefix; what stands for "{id}" */
    struct mr_buf body;
    size_t body_bytes;  /* that came */
    enum mr_err passed; /* the body is not kept, since it is too big, or too much is sent at once */
    bool at_prefix;     /* the path is the prefix, without a slash */
    mr_mono since;      /* it was there as a whole, or was refused before that */
    bool is_head, begun, replied, later, suspended, asked;
    enum MHD_Result result;
    int64_t retry_after_s;         /* 0: nothing was said of it */
    struct mr_http_stream *stream; /* NULL: none */
};

/* A body as it is sent: to one, or to many. */
struct mr_http_answer {
    const char *type;
    struct mr_slice body; /* plain's */
    struct MHD_Response *plain;
    struct MHD_Response *packed; /* NULL: nobody has asked for it, or it is no smaller */
    size_t packed_n;             /* its bytes */
    bool tried;                  /* to pack it */
};

/* ---- head.c --------------------------------------------------------------------------------- */

/* What is wrong with the headers and the query, for people; NULL: nothing. */
const char *head_wrong(struct MHD_Connection *connection, const char *version);
/* The path of a URI, in parts: each slash of it is a zero byte, and what was escaped is not, a slash included. One more
 * zero byte is behind its length. MR_INVALID: there is another zero byte in it. */
MR_MUST_USE enum mr_err path_read(const char *uri, struct mr_buf *path);
/* What is left behind the prefix, "/mill"; data is NULL: it is not below it. */
struct mr_slice path_below(struct mr_slice path, const char *prefix);
/* Whether it is one of "/things/{id}"; ret_parameter: the part that stands for {id}, at least one byte, and a zero byte is
 * behind it. */
bool path_fits(const char *pattern, struct mr_slice path, struct mr_slice *ret_parameter);

/* ---- request.c ------------------------------------------------------------------------------ */

/* Its first line is there. NULL: there was no memory. */
void *request_begin(void *arg, const char *uri, struct MHD_Connection *connection);
enum MHD_Result request_on(void *arg, struct MHD_Connection *connection, const char *path,
                           const char *method, const char *version, const char *bytes,
                           size_t *bytes_n, void **state);
void request_completed(void *arg, struct MHD_Connection *connection, void **state,
                       enum MHD_RequestTerminationCode how);
/* Gives it to the library, and it is not ours any more; NULL: there was no memory. */
void request_queue(struct mr_http_request *request, int status, struct MHD_Response *response);
/* What every answer has. */
bool response_head(struct MHD_Response *response, const char *type);

/* ---- gzip.c --------------------------------------------------------------------------------- */

/* What Accept-Encoding says of it. */
bool gzip_is_taken(const char *accepted);
/* Quick rather than small: this thread answers everybody. */
MR_MUST_USE enum mr_err gzip_pack(struct mr_slice bytes, struct mr_buf *packed);

/* ---- stream.c ------------------------------------------------------------------------------- */

/* The server stops. */
void streams_end(struct mr_http *http);
/* Its request is over. */
void stream_closed(struct mr_http_stream *stream);

#endif
