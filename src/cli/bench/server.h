/* SPDX-License-Identifier: Apache-2.0 */
/* The bench at a server: one of its own in a process beside it, or the one that --broker names. */
#ifndef MR_CLI_BENCH_SERVER_H
#define MR_CLI_BENCH_SERVER_H

#include "cli/bench/bench.h"
#include "cli/own_server.h"
#include "cli/server.h"

/* ---- server.c ------------------------------------------------------------------------------- */

struct bench_server {
    struct bench *bench;
    struct own_server own; /* pid 0: it is somebody else's */
    char dir[MR_PATH_MAX]; /* of our own */
    char url[MR_PATH_MAX];
    bool ours; /* somebody else's: its queue of the bench held nothing, so what it holds is ours */
};

/* Before the first thread of the group. */
MR_MUST_USE enum mr_err bench_server_begin(struct bench *bench, const char *name,
                                           struct bench_server *server);
/* Another connection to it. */
MR_MUST_USE enum mr_err bench_server_open(struct bench_server *server,
                                          struct mr_client **ret_client);
/* Leaves nothing of ours there; also after a failed begin. */
void bench_server_end(struct bench_server *server);

/* What its process has used: seconds of a core since it began, bytes of memory now. */
struct bench_usage {
    double cpu_s;
    double memory;
};
MR_MUST_USE enum mr_err bench_server_usage(const struct bench_server *server,
                                           struct bench_usage *ret_usage);

/* ---- other.c -------------------------------------------------------------------------------- */

/* A worker in a process of its own, which tells when each run began. */
struct bench_other {
    pid_t pid; /* 0: none */
    int began; /* int64_t each */
};

enum bench_other_does {
    BENCH_OTHER_WORKS,
    BENCH_OTHER_HOLDS /* each task until it is told to stop */
};

/* While this process has no other thread. */
MR_MUST_USE enum mr_err bench_other_start(struct bench_server *server, enum bench_other_does does,
                                          struct bench_other *ret_other);
/* With grace, or by kill -9. Both are fine when there is none. */
void bench_other_end(struct bench_other *other);
void bench_other_kill(struct bench_other *other);
/* Waits until it has begun another task, and tells when. MR_TIMEOUT. */
MR_MUST_USE enum mr_err bench_other_await(struct bench_other *other, int64_t *ret_began_ns);
/* How long a task takes from the call to its handler over there. */
MR_MUST_USE enum mr_err bench_other_latency(struct mr_client *client, struct bench_other *other,
                                            int64_t *ret_ns);

/* ---- calls.c -------------------------------------------------------------------------------- */

/* Calls of Tasks/Enqueue as any gRPC client makes them, each of its own, kept in flight. */
struct bench_calls;

struct bench_calls_shape {
    unsigned connections;
    unsigned in_flight; /* calls, on each connection */
    unsigned tasks;     /* of a call */
};

MR_MUST_USE enum mr_err bench_calls_open(struct bench_server *server,
                                         const struct bench_calls_shape *shape,
                                         struct bench_calls **ret_calls);
/* One round; adds to the calls that were answered well and to the time. */
MR_MUST_USE enum mr_err bench_calls_run(struct bench_calls *calls, double seconds,
                                        uint64_t *answered, double *total_seconds);
void bench_calls_close(struct bench_calls *calls);

/* ---- tool.c --------------------------------------------------------------------------------- */

enum { BENCH_TOOL_TEXT = 4096 };

/* Whether there is such a program. */
bool bench_tool_there(const char *name);
/* With what it says in ret_fd; negative: it was not started. args ends with NULL. */
pid_t bench_tool_start(const char *const *args, int *ret_fd);
/* The beginning of what it says, until it ends. */
MR_MUST_USE enum mr_err bench_tool_read(int fd, char text[BENCH_TOOL_TEXT]);
/* Sends the signal (0: none) and waits; how it ended, as of waitpid. */
int bench_tool_end(pid_t pid, int signal);

/* ---- http.c --------------------------------------------------------------------------------- */

/* A connection that is kept, and the last call and its answer. */
struct bench_http {
    int fd; /* -1: none */
    struct mr_buf out, in;
};

/* Also after a failed one it is closed. */
MR_MUST_USE enum mr_err bench_http_open(const char *address, struct bench_http *http,
                                        struct mr_detail *detail);
/* line: "GET /path". The body lives until the next call. MR_FAILED: another status than 200. */
MR_MUST_USE enum mr_err bench_http_call(struct bench_http *http, const char *line,
                                        struct mr_slice body, struct mr_slice *ret_body);
void bench_http_close(struct bench_http *http);

/* ---- readers.c ------------------------------------------------------------------------------ */

/* Who reads a stream of events over HTTP, n of them, of whom one never reads. */
struct bench_readers;

/* At a server of our own; each of the others has seen something then. */
MR_MUST_USE enum mr_err bench_readers_open(struct bench_server *server, const char *path,
                                           unsigned n, struct bench_readers **ret_readers);
/* What they have read so far; MR_FAILED: the stream of one has ended. */
MR_MUST_USE enum mr_err bench_readers_none_lost(struct bench_readers *readers, uint64_t *ret_bytes);
/* Waits until each of the others has seen the end; what they read. MR_TIMEOUT, MR_FAILED: one did not. */
MR_MUST_USE enum mr_err bench_readers_await_end(struct bench_readers *readers, uint64_t *ret_bytes);
/* NULL is fine. */
void bench_readers_close(struct bench_readers *readers);

#endif
