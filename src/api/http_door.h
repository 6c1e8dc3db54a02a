/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The routes of HTTP as rows, and who may come by them. A row is all that is known of a route: requests are routed
 * by it, callers are held against it, and /openapi.json is made of it.
 */
#ifndef MR_API_HTTP_DOOR_H
#define MR_API_HTTP_DOOR_H

#include "api/api.h"
#include "api/http_rates.h"
#include "http/http.h"
#include "wire/jw.h"

/* Whose handler it is, which is what it gets as its arg. */
enum http_owner {
    HTTP_API,       /* struct mr_http_api */
    HTTP_JOBS,      /* struct mr_http_jobs */
    HTTP_ELSEWHERE, /* another table has it: the row is for the document */
};

struct http_row {
    const char *method, *path;
    enum http_owner owner;
    unsigned roles;      /* 0: for everybody, and nobody is asked who he is */
    const char *act;     /* "Queues/Pause", in the audit; NULL: it only looks */
    const char *summary; /* one line for people */
    const char *query;   /* parameters behind the ?, with spaces between; "": none */
    const char *body;    /* schema of what is sent; NULL: nothing is */
    const char *answer;  /* schema of the answer; NULL: it is no JSON, as type says */
    const char *type;    /* of the answer; NULL: JSON */
    int status;          /* of an answer that is no error */
    bool counts;         /* against the rate of who asks */
    size_t body_max;
    mr_http_handler *handle; /* NULL: elsewhere */
};

extern const struct http_row http_rows[];
extern const size_t http_rows_n;
/* What /metrics has, in its order; the names are without METRICS_PREFIX. False: no more of them. */
struct http_figure {
    const char *name, *type, *help;
};
bool http_figure_at(size_t i, struct http_figure *ret_figure);
/* Of the route that the request came by. */
const struct http_row *http_row_of(const struct mr_http_request *request);

/* Who decides, and who is told. */
struct http_door {
    const struct mr_access *access; /* lives as long as it */
    struct http_rates *rates;       /* NULL: everybody may send as much as he likes */
    mr_audit_line *audit;           /* may be NULL; on the server's thread */
    void *audit_arg;
};

/* Whether whoever asks may come by this route: else it is answered, and this is false. */
bool http_door_admit(const struct http_door *door, struct mr_http_request *request,
                     struct mr_token *ret_token);
/* Takes a request that counts from what its caller may send; n more: what it brings beyond itself, once it is read. MR_BUSY and
 * MR_NOMEM, with detail: it is to be answered so, and the answer says when to come back. */
MR_MUST_USE enum mr_err http_door_pay(const struct http_door *door, struct mr_http_request *request,
                                      const struct mr_token *token, struct mr_detail *detail);
MR_MUST_USE enum mr_err http_door_pay_more(const struct http_door *door,
                                           struct mr_http_request *request,
                                           const struct mr_token *token, size_t n,
                                           struct mr_detail *detail);
/* A line of audit; peer and method are those of the request. */
void http_door_audit(const struct http_door *door, const struct mr_http_request *request,
                     const struct mr_token *token, struct mr_slice about, enum mr_err err);

/* What the client of a stream has seen last; 0: nothing, or nothing that could be one of ours. */
uint64_t http_last_event_id(const struct mr_http_request *request);

/* Answers with what was written, or that it could not be; jw is free then. */
void http_reply(struct mr_http_request *request, int status, struct jw *jw);

#define HTTP_JSON "application/json"

#endif
