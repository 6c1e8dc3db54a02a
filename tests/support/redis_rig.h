/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Real Redis servers of a test's own: one, one primary with two replicas and three Sentinels, or a
 * Cluster of three primaries with a replica each. They listen on free ports of this machine and live in
 * a new folder below TMPDIR; servers and folder go with the test, also when it is killed. A server is
 * tied to the thread that started it.
 *
 * The program is the redis-server of the PATH or, where only the tools of Redis are installed, their
 * redis-check-rdb, which is the same program under another name.
 *
 * What cannot be set up ends the test program with a line that says why. Thread: one at a time.
 */
#ifndef MR_TESTS_REDIS_RIG_H
#define MR_TESTS_REDIS_RIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum {
    REDIS_RIG_PATH_MAX = 256,
    REDIS_RIG_ID_LEN = 40,  /* of a node of a Cluster, in hex digits */
    REDIS_RIG_REPLICAS = 2, /* behind Sentinels */
    REDIS_RIG_SENTINELS = 3,
    REDIS_RIG_PRIMARIES = 3, /* of a Cluster; each has one replica */
    REDIS_RIG_SLOTS = 16384,
};

struct redis_rig;

/* Fields are for reading. */
struct redis_rig_server {
    struct redis_rig *rig;
    pid_t pid; /* 0 while it does not run */
    int pidfd;
    uint16_t port, bus_port;
    int conn; /* of the rig itself, over the unix socket; -1: none */
    char dir[REDIS_RIG_PATH_MAX];
    char socket[REDIS_RIG_PATH_MAX]; /* plain, also where the port speaks TLS */
    char id[REDIS_RIG_ID_LEN + 1];
};

struct redis_rig_options {
    bool tls;                      /* the ports speak TLS only; see redis_rig_pem */
    bool tls_clients;              /* ... and ask for a certificate of the client */
    const char *user, *password;   /* who may do everything; user NULL: the default user */
    const char *sentinel_password; /* of the Sentinels' default user */
    const char *config;            /* more lines for each server but the Sentinels */
    int down_after_ms;             /* one that stands still so long is dead; 0: soon */
};

/* NULL options: none of them. All are answered when they accept writes. */
struct redis_rig *redis_rig_standalone(const struct redis_rig_options *options);
/* Servers 0 to 2 (0 is the first primary) and Sentinels 3 to 5, for the name "mymaster". */
struct redis_rig *redis_rig_sentinel(const struct redis_rig_options *options);
/* Primaries 0 to 2 with even shares of the slots, and 3 to 5, the replicas of them. */
struct redis_rig *redis_rig_cluster(const struct redis_rig_options *options);
/* Ends all servers and removes the folder. NULL is fine. */
void redis_rig_stop(struct redis_rig *rig);

/* As --broker takes it, with user and password if there are some. */
const char *redis_rig_url(const struct redis_rig *rig);
/* redis+unix: of the first server. */
const char *redis_rig_unix_url(const struct redis_rig *rig);
/* A file made for tls: "ca.pem", "client.pem", "client.key". */
const char *redis_rig_pem(struct redis_rig *rig, const char *name);
const char *redis_rig_dir(const struct redis_rig *rig);

size_t redis_rig_count(const struct redis_rig *rig);
struct redis_rig_server *redis_rig_server(struct redis_rig *rig, size_t i);

/* kill -9, and waits for its end. */
void redis_rig_kill(struct redis_rig_server *server);
/* Starts it again, with the port and the folder of before, and waits until it answers. Without
 * persistence (the default) it comes back empty. A file that was torn is mended before, as docs/redis.md
 * has it. */
void redis_rig_start(struct redis_rig_server *server);
/* The same without that: it mends what is torn by itself. */
void redis_rig_start_unmended(struct redis_rig_server *server);
/* SIGSTOP and SIGCONT. */
void redis_rig_freeze(struct redis_rig_server *server);
void redis_rig_thaw(struct redis_rig_server *server);

/*
 * Runs a command and waits for its answer: a text as it is, an array as lines, nil as "(nil)", an
 * error with "-" before it. The answer lives until the next four commands. RIG(server, "GET", "key")
 */
const char *redis_rig_run(struct redis_rig_server *server, const char *const *args);
#define RIG(server, ...) redis_rig_run(server, (const char *const[]){__VA_ARGS__, NULL})
/* The same for an integer; anything else ends the test program. */
int64_t redis_rig_int(struct redis_rig_server *server, const char *const *args);
#define RIG_INT(server, ...) redis_rig_int(server, (const char *const[]){__VA_ARGS__, NULL})
/* A command to each running server that accepts writes; an error ends the test program. */
void redis_rig_run_on_primaries(struct redis_rig *rig, const char *const *args);
#define RIG_ALL(rig, ...) redis_rig_run_on_primaries(rig, (const char *const[]){__VA_ARGS__, NULL})

/* ---- topology ------------------------------------------------------------------------------- */

/* The server that Sentinels name, or that owns a slot of a Cluster; NULL: none that runs. */
struct redis_rig_server *redis_rig_primary(struct redis_rig *rig);
struct redis_rig_server *redis_rig_owner(struct redis_rig *rig, unsigned slot);
/* All servers run, replicas are in step, Sentinels (the nodes of a Cluster) agree. */
void redis_rig_wait_healthy(struct redis_rig *rig);
/*
 * Sentinels promote a replica, or the replica of this primary of a Cluster takes over; waits until it
 * accepts writes. Before it, if `kill` is set, the primary is killed -9, else it stays and becomes
 * a replica.
 */
enum redis_rig_how { REDIS_RIG_GENTLY, REDIS_RIG_BY_KILL };
void redis_rig_failover(struct redis_rig_server *primary, enum redis_rig_how how);
/* Moves a slot with the keys in it, some at a time. */
void redis_rig_move_slot(struct redis_rig *rig, unsigned slot, struct redis_rig_server *to);
/* The same in steps: a slot is opened, keys go in any number, and it is closed. */
void redis_rig_open_slot(struct redis_rig *rig, unsigned slot, struct redis_rig_server *to);
/* Moves up to n keys; answers how many went. */
size_t redis_rig_move_keys(struct redis_rig *rig, unsigned slot, struct redis_rig_server *to,
                           size_t n);
void redis_rig_close_slot(struct redis_rig *rig, unsigned slot, struct redis_rig_server *to);

#endif
