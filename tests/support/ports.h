/* SPDX-License-Identifier: Apache-2.0 */
/* A port for a server that is told which one it has. */
#ifndef MR_TESTS_PORTS_H
#define MR_TESTS_PORTS_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/rand.h"

/* Below those that the system gives to clients, so that no connection of a test beside has it meanwhile. */
enum { PORT_FIRST = 10240, PORT_LAST = 32767, PORT_TRIES = 1000 };

static inline bool port_is_free(uint16_t port)
{
    struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int one = 1;
    (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    bool is_free = fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0;
    if (fd >= 0)
        (void)close(fd);
    return is_free;
}

/* 0: there is none. */
static inline uint16_t free_port(void)
{
    struct mr_rand rand;
    mr_rand_seed_system(&rand);
    for (int tries = 0; tries < PORT_TRIES; tries++) {
        uint16_t port = (uint16_t)(PORT_FIRST + mr_rand_below(&rand, PORT_LAST - PORT_FIRST + 1));
        if (port_is_free(port))
            return port;
    }
    return 0;
}

#endif
