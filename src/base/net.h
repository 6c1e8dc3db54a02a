/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TCP sockets, IPv4 and IPv6, and connections to unix sockets, that never block: close-on-exec,
 * without delay for small writes, and no signal when the peer is gone. Thread: any; a socket has one owner.
 */
#ifndef MR_BASE_NET_H
#define MR_BASE_NET_H

#include <sys/socket.h>

#include "base/slice.h"

enum {
    MR_HOST_MAX = 255,
    MR_ADDR_TEXT_MAX = 64, /* of the form "[IPv6%scope]:port", with its NUL */
};

struct mr_addr {
    struct sockaddr_storage storage;
    socklen_t len;
};

/* "host:port" or "[IPv6]:port" in its two parts; host may be a name, without blanks or control
 * characters. MR_INVALID, MR_TOO_BIG. */
MR_MUST_USE enum mr_err mr_host_parse(const char *text, char host[MR_HOST_MAX + 1],
                                      uint16_t *ret_port);
enum mr_resolve { MR_RESOLVE_NUMBERS, MR_RESOLVE_NAMES };
/* The addresses of a host, at least one and at most max. Names may ask the network and block;
 * MR_RESOLVE_NUMBERS never does and answers MR_INVALID for a name. MR_UNAVAILABLE with detail (may
 * be NULL) when there is none. */
MR_MUST_USE enum mr_err mr_host_resolve(const char *host, uint16_t port, enum mr_resolve how,
                                        struct mr_addr *addrs, size_t max, size_t *ret_n,
                                        struct mr_detail *detail);
/* The socket of a path. MR_TOO_BIG. */
MR_MUST_USE enum mr_err mr_addr_unix(const char *path, struct mr_addr *ret_addr);
/* "127.0.0.1:7401", "[::1]:7401". */
void mr_addr_text(const struct mr_addr *addr, char text[MR_ADDR_TEXT_MAX]);
uint16_t mr_addr_port(const struct mr_addr *addr);
/* Reachable from this machine only. */
bool mr_addr_is_loopback(const struct mr_addr *addr);

/* ret_bound: the address with the port it got. MR_IN_USE. MR_INVALID: this machine has no such address. */
MR_MUST_USE enum mr_err mr_net_listen(const struct mr_addr *addr, int *ret_fd,
                                      struct mr_addr *ret_bound);
/* Why not, for people. */
const char *mr_net_listen_text(enum mr_err err);
/* MR_EMPTY: nobody waits. MR_BUSY: too many open files, they keep waiting. */
MR_MUST_USE enum mr_err mr_net_accept(int listen_fd, int *ret_fd, struct mr_addr *ret_peer);
/* Begins to connect. When the socket is writable, mr_net_connected tells how it went. MR_UNAVAILABLE: the
 * machine there says that nobody listens; MR_NOT_FOUND: no such path; MR_TIMEOUT: it is out of reach. */
MR_MUST_USE enum mr_err mr_net_connect(const struct mr_addr *addr, int *ret_fd);
MR_MUST_USE enum mr_err mr_net_connected(int fd);
/* A connection whose peer's machine is gone breaks after about this time, also while nothing is sent. */
void mr_net_keepalive(int fd, int64_t ms);
/* At least one byte, or MR_EMPTY: not now; MR_CLOSED: the peer sends no more; MR_UNAVAILABLE: the
 * connection broke. */
MR_MUST_USE enum mr_err mr_net_read(int fd, void *data, size_t max, size_t *ret_n);
MR_MUST_USE enum mr_err mr_net_write(int fd, const void *data, size_t len, size_t *ret_n);
/* The kernel holds about so many bytes that the peer has not taken. */
void mr_net_set_send_room(int fd, size_t bytes);
void mr_net_close(int fd);
/* Ends both directions; the socket stays its owner's to close. */
void mr_net_cut(int fd);
/* Whether the peer has ended its direction, or all of it, whatever of it is left to be read. Waits for nothing. */
bool mr_net_is_ended(int fd);

/* Lets this process have as many open descriptors as the system allows it: the usual 1024 are fewer
 * than a server has clients. */
void mr_net_allow_many(void);
/* How many it may have. */
size_t mr_net_files_max(void);

#endif
