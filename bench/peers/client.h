/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the clients in C have in common. A client is started once for a phase, connects, says "ready",
 * waits for a line, does the phase, and says how many tasks it was and how long it took:
 *
 *     CLIENT ADDRESS PHASE SECONDS TASKS
 *
 * Who starts it reads the CPU time of all processes at "ready" and at the answer. The clients in
 * node/ do the same.
 */
#ifndef PEERS_CLIENT_H
#define PEERS_CLIENT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    PEER_PAYLOAD = 100,  /* bytes of a task */
    PEER_SINGLE = 64,    /* calls of one task in flight, where tasks come one by one */
    PEER_BATCH = 256,    /* tasks of a batch */
    PEER_BATCHES = 4,    /* batches in flight */
    PEER_SLOTS = 8,      /* of a worker */
    PEER_PREFETCH = 256, /* tasks that a worker may hold, where that can be said */
};

/* One phase. It is over when its time is, and what was sent by then is answered. */
struct peer_phase {
    double seconds;
    uint64_t tasks; /* to run: as many wait, and it is over when they are done */
    int64_t begun_ns;
};

/* A system to be measured. Each function ends the program when something is wrong: a figure with an
 * error in it is none. */
struct peer_ops {
    void *(*open)(const char *address, const char *phase);
    /* Both enqueue; how many were acknowledged. */
    uint64_t (*single)(void *peer, const struct peer_phase *phase);
    uint64_t (*batch)(void *peer, const struct peer_phase *phase);
    /* Takes, runs and finishes tasks; how many. */
    uint64_t (*work)(void *peer, const struct peer_phase *phase);
    void (*close)(void *peer);
};

int peer_main(int argc, char **argv, const struct peer_ops *ops);

extern const char peer_payload[PEER_PAYLOAD];
int64_t peer_now_ns(void);
bool peer_over(const struct peer_phase *phase);
_Noreturn void peer_die(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void *peer_alloc(size_t n, size_t size);
/* The port behind the last colon of HOST:PORT, of which host gets the rest. */
int peer_address(const char *address, char host[64]);

#endif
