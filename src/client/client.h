/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of the client share: a broker opened by URL, and what is under way to it. */
#ifndef MR_CLIENT_CLIENT_H
#define MR_CLIENT_CLIENT_H

#include <stdatomic.h>

#include "base/fs.h"
#include "base/net.h"
#include "broker/broker.h"

enum {
    MR_IN_FLIGHT_TASKS_MAX = 1000 * 1000, /* of mr_enqueue_async, not answered yet */
    MR_IN_FLIGHT_BYTES_MAX = 256 * 1024 * 1024,
};

struct mr_store;
struct mr_timer_service;
struct mr_job_service;
struct mr_timer_door;
struct mr_producer;
struct mr_zones;

struct mr_names_client;

struct mr_client {
    struct mr_broker *broker;
    bool is_many;                  /* it is one of several servers (broker/many) */
    struct mr_names_client *names; /* who knows them; NULL: they are given */
    char *authorization;           /* ... and what we are known by there */
    _Atomic size_t tasks, bytes;   /* in flight */
    /* Timers and jobs that are in this process, with the broker: opened when they are first asked for. */
    struct mr_lock timers_lock;
    char *store_url;        /* NULL: they are not in this process */
    struct mr_store *store; /* NULL: not open, as what follows */
    struct mr_timer_service *timers;
    struct mr_job_service *jobs;
    size_t payload_max;
    /* Operations on timers: see producer.h; made when they are first needed. */
    struct mr_producer *producer;
    bool is_redis; /* whose timers are operated on by a door of our own: */
    struct mr_zones *zones;
    struct mr_timer_door *door;
    int64_t answer_ms;
    uint32_t timers_max;
    enum mr_affinity affinity;
};

/* A server for what is neither a task nor an operation on a timer, as a stream: one that is there, in turn. NULL: none is
 * known. Thread: any. */
struct mr_broker *mr_client_server(struct mr_client *client);

/* The timers of this process, opened if need be, from the first MR_TIMERS_FIRE on also applied and fired;
 * NULL: they are behind the broker. Errors of mr_store_open; detail may be NULL. Thread: any. */
enum mr_timers_for { MR_TIMERS_LOOK, MR_TIMERS_FIRE };
MR_MUST_USE enum mr_err mr_client_timers(struct mr_client *client, enum mr_timers_for for_,
                                         struct mr_timer_service **ret_service,
                                         struct mr_detail *detail);

/* Opens a store; when it fails later, that is said. Errors of mr_store_open. */
MR_MUST_USE enum mr_err mr_store_open_told(const char *url, struct mr_store **ret_store,
                                           struct mr_detail *detail);

#define MR_FILE_SCHEME "file:"

/* The folder of a "file:" URL, with the namespace's own folder when it has a name. MR_UNSUPPORTED
 * for other engines, MR_INVALID, MR_TOO_BIG; all with detail (may be NULL). */
MR_MUST_USE enum mr_err mr_url_dir(const char *url, struct mr_slice namespace_,
                                   char ret_dir[MR_PATH_MAX], struct mr_detail *detail);

bool mr_url_is_redis(const char *url);

/* For people: a URL without the user and the password in it, before the host or in the query. Answers text. */
enum { MR_URL_SHOWN_MAX = MR_PATH_MAX + 256 };
const char *mr_url_shown(const char *url, char text[MR_URL_SHOWN_MAX]);

enum { MR_SERVER_MAX = MR_HOST_MAX + sizeof "[]:65535" };

#define MR_NAMES_SCHEME     "names://"
#define MR_NAMES_TLS_SCHEME "namess://"

/* HOST:PORT of what stands behind "millrace://" or "millraces://" in a URL; the port may be left
 * out there. MR_INVALID with detail (may be NULL). */
MR_MUST_USE enum mr_err mr_url_server(const char *url, const char *rest,
                                      char address[MR_SERVER_MAX], struct mr_detail *detail);

#endif
