/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the rig of Redis servers share. */
#ifndef MR_TESTS_REDIS_RIG_OWN_H
#define MR_TESTS_REDIS_RIG_OWN_H

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/rand.h"
#include "support/redis_rig.h"

enum {
    RIG_SERVERS_MAX = 8,
    RIG_ANSWERS = 4,
    RIG_WAIT_MS = 30000, /* a state that has not come by then never will */
};

enum rig_kind { RIG_STANDALONE, RIG_SENTINEL, RIG_CLUSTER };

struct redis_rig {
    enum rig_kind kind;
    struct redis_rig_options options;
    struct mr_rand rand;
    struct redis_rig_server servers[RIG_SERVERS_MAX];
    size_t n;
    char dir[REDIS_RIG_PATH_MAX];
    char program[REDIS_RIG_PATH_MAX];
    pid_t sweeper; /* removes the folder when sweeper_fd is closed, by us or by our end */
    int sweeper_fd;
    char url[512], unix_url[512];
    char pem[4][REDIS_RIG_PATH_MAX]; /* answers of redis_rig_pem, the last four */
    char *answers[RIG_ANSWERS];
    unsigned answers_at, pem_at;
};

_Noreturn void rig_die(const char *format, ...) __attribute__((format(printf, 1, 2)));

#define RIG_PRINT(to, ...) rig_print(to, sizeof(to), __VA_ARGS__)
void rig_print(char *to, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Waits for a condition; ends the program when it does not come. */
void rig_look_again(mr_mono since, const char *what);
#define RIG_UNTIL(cond)                                                                            \
    for (mr_mono since_ = mr_mono_now(mr_clock_system()); !(cond);)                                \
    rig_look_again(since_, #cond)

/* A folder and free ports for n servers; none runs yet. */
struct redis_rig *rig_new(enum rig_kind kind, const struct redis_rig_options *options, size_t n);
FILE *rig_config(struct redis_rig_server *server);
/* The lines that servers have in common, Sentinels not. */
FILE *rig_server_config(struct redis_rig_server *server);
/* Starts the process without waiting; more arguments for the program, up to a NULL. */
void rig_launch(struct redis_rig_server *server, const char *const *more);
void rig_await_ping(struct redis_rig_server *server);
bool rig_is_sentinel(const struct redis_rig_server *server);
/* Whether the answer holds this line or word. */
bool rig_says(struct redis_rig_server *server, const char *const *args, const char *text);
#define RIG_SAYS(server, text, ...) rig_says(server, (const char *const[]){__VA_ARGS__, NULL}, text)
/* Item i of an answer with several lines, into `to`. */
void rig_line(const char *answer, size_t i, char *to, size_t size);
struct redis_rig_server *rig_by_port(struct redis_rig *rig, unsigned port);
/* A replica that is in step, on this primary. */
bool rig_in_step(struct redis_rig_server *replica, const struct redis_rig_server *primary);
/* For a server of a Sentinel rig that starts again: who is the primary meanwhile. */
struct redis_rig_server *rig_named_primary(struct redis_rig *rig);

#endif
