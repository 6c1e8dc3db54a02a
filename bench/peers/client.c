/* SPDX-License-Identifier: Apache-2.0 */
/* The frame of a client: arguments, "ready", the phase, the answer. */
#include "client.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define NS_PER_S 1000000000LL

/* JSON of a hundred bytes, since some of the peers take nothing else. */
const char peer_payload[PEER_PAYLOAD] __attribute__((nonstring)) =
    "{\"p\":\"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
    "xxxxxxxxx\"}";

_Noreturn void peer_die(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    vfprintf(stderr, fmt, ap);
    va_end(ap);
    fputc('\n', stderr);
    exit(1);
}

void *peer_alloc(size_t n, size_t size)
{
    void *memory = calloc(n, size);
    if (!memory)
        peer_die("out of memory");
    return memory;
}

int64_t peer_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * NS_PER_S + now.tv_nsec;
}

bool peer_over(const struct peer_phase *phase)
{
    return (double)(peer_now_ns() - phase->begun_ns) >= phase->seconds * (double)NS_PER_S;
}

int peer_address(const char *address, char host[64])
{
    const char *colon = strrchr(address, ':');
    if (!colon || colon - address >= 64)
        peer_die("%s is not HOST:PORT", address);
    memcpy(host, address, (size_t)(colon - address));
    host[colon - address] = '\0';
    return (int)strtol(colon + 1, NULL, 10);
}

static uint64_t run_phase(const struct peer_ops *ops, void *peer, const char *name,
                          const struct peer_phase *phase)
{
    if (strcmp(name, "single") == 0)
        return ops->single(peer, phase);
    if (strcmp(name, "batch") == 0)
        return ops->batch(peer, phase);
    if (strcmp(name, "run") == 0)
        return ops->work(peer, phase);
    peer_die("unknown phase %s", name);
}

int peer_main(int argc, char **argv, const struct peer_ops *ops)
{
    if (argc != 5) {
        fprintf(stderr, "usage: %s ADDRESS single|batch|run SECONDS TASKS\n", argv[0]);
        return 2;
    }
    struct peer_phase phase = {.seconds = strtod(argv[3], NULL),
                               .tasks = strtoull(argv[4], NULL, 10)};
    void *peer = ops->open(argv[1], argv[2]);
    puts("ready");
    fflush(stdout);
    if (getchar() == EOF)
        return 1;
    phase.begun_ns = peer_now_ns();
    uint64_t tasks = run_phase(ops, peer, argv[2], &phase);
    double seconds = (double)(peer_now_ns() - phase.begun_ns) / (double)NS_PER_S;
    printf("{\"tasks\": %llu, \"seconds\": %.6f}\n", (unsigned long long)tasks, seconds);
    fflush(stdout);
    /* Until the CPU time was read. */
    while (getchar() != EOF) {
    }
    ops->close(peer);
    return 0;
}
