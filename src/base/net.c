/* SPDX-License-Identifier: Apache-2.0 */
/* Sockets and the text of their addresses. */
#include "base/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"

enum { BACKLOG = 4096, PORT_MAX = 65535 };

/* ---- addresses ------------------------------------------------------------------------------ */

/* Where the host ends and the port begins; NULL when the text has not this form. */
static const char *split(const char *text, struct mr_slice *ret_host)
{
    const char *colon = strrchr(text, ':');
    if (colon == NULL)
        return NULL;
    *ret_host = mr_slice_make(text, (size_t)(colon - text));
    if (text[0] == '[') {
        if (colon - text < 3 || colon[-1] != ']')
            return NULL;
        *ret_host = mr_slice_make(text + 1, ret_host->len - 2);
    } else if (memchr(text, ':', ret_host->len) != NULL) {
        return NULL; /* an IPv6 address needs its brackets */
    }
    return colon + 1;
}

static bool parse_port(const char *text, uint16_t *ret_port)
{
    unsigned value = 0;
    const char *p = text;
    for (; *p >= '0' && *p <= '9' && value <= PORT_MAX; p++)
        value = value * 10 + (unsigned)(*p - '0');
    if (p == text || *p != '\0' || value > PORT_MAX)
        return false;
    *ret_port = (uint16_t)value;
    return true;
}

/* No host has such a name, and a look-up of one may take long to say so. */
static bool has_blank(struct mr_slice name)
{
    const unsigned char *at = name.data;
    for (size_t i = 0; i < name.len; i++)
        if (at[i] <= ' ' || at[i] == 0x7f)
            return true;
    return false;
}

enum mr_err mr_host_parse(const char *text, char host[MR_HOST_MAX + 1], uint16_t *ret_port)
{
    struct mr_slice name;
    const char *port_text = split(text, &name);
    uint16_t port;
    if (port_text == NULL || name.len == 0 || has_blank(name) || !parse_port(port_text, &port))
        return MR_INVALID;
    if (name.len > MR_HOST_MAX)
        return MR_TOO_BIG;
    memcpy(host, name.data, name.len);
    host[name.len] = '\0';
    *ret_port = port;
    return MR_OK;
}

enum mr_err mr_host_resolve(const char *host, uint16_t port, enum mr_resolve how,
                            struct mr_addr *addrs, size_t max, size_t *ret_n,
                            struct mr_detail *detail)
{
    char service[8];
    snprintf(service, sizeof service, "%u", (unsigned)port);
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    hints.ai_flags = AI_NUMERICSERV | (how == MR_RESOLVE_NUMBERS ? AI_NUMERICHOST : 0);
    struct addrinfo *found;
    int rc = getaddrinfo(host, service, &hints, &found);
    if (rc == EAI_MEMORY)
        return MR_NOMEM;
    if (rc != 0) {
        mr_detail_set(detail, "cannot find the host %s: %s", host, gai_strerror(rc));
        return how == MR_RESOLVE_NUMBERS ? MR_INVALID : MR_UNAVAILABLE;
    }
    size_t n = 0;
    for (const struct addrinfo *info = found; info != NULL && n < max; info = info->ai_next) {
        memcpy(&addrs[n].storage, info->ai_addr, info->ai_addrlen);
        addrs[n++].len = info->ai_addrlen;
    }
    freeaddrinfo(found);
    *ret_n = n;
    return MR_OK;
}

enum mr_err mr_addr_unix(const char *path, struct mr_addr *ret_addr)
{
    struct sockaddr_un un = {.sun_family = AF_UNIX};
    size_t len = strlen(path);
    if (len >= sizeof un.sun_path)
        return MR_TOO_BIG;
    memcpy(un.sun_path, path, len + 1);
    memcpy(&ret_addr->storage, &un, sizeof un);
    ret_addr->len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len + 1);
    return MR_OK;
}

uint16_t mr_addr_port(const struct mr_addr *addr)
{
    if (addr->storage.ss_family == AF_INET6)
        return ntohs(((const struct sockaddr_in6 *)&addr->storage)->sin6_port);
    return ntohs(((const struct sockaddr_in *)&addr->storage)->sin_port);
}

void mr_addr_text(const struct mr_addr *addr, char text[MR_ADDR_TEXT_MAX])
{
    char host[INET6_ADDRSTRLEN] = "?";
    if (addr->storage.ss_family == AF_INET6) {
        inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)&addr->storage)->sin6_addr, host,
                  sizeof host);
        snprintf(text, MR_ADDR_TEXT_MAX, "[%s]:%u", host, (unsigned)mr_addr_port(addr));
        return;
    }
    inet_ntop(AF_INET, &((const struct sockaddr_in *)&addr->storage)->sin_addr, host, sizeof host);
    snprintf(text, MR_ADDR_TEXT_MAX, "%s:%u", host, (unsigned)mr_addr_port(addr));
}

bool mr_addr_is_loopback(const struct mr_addr *addr)
{
    enum { LOOPBACK_NET = 127 };
    if (addr->storage.ss_family == AF_INET6) {
        const struct in6_addr *in6 = &((const struct sockaddr_in6 *)&addr->storage)->sin6_addr;
        return IN6_IS_ADDR_LOOPBACK(in6) ||
               (IN6_IS_ADDR_V4MAPPED(in6) && in6->s6_addr[12] == LOOPBACK_NET);
    }
    const struct sockaddr_in *in = (const struct sockaddr_in *)&addr->storage;
    return addr->storage.ss_family == AF_INET && ntohl(in->sin_addr.s_addr) >> 24 == LOOPBACK_NET;
}

/* ---- sockets -------------------------------------------------------------------------------- */

static void set_option(int fd, int level, int option, int value)
{
    /* Each of them only makes things better. */
    (void)setsockopt(fd, level, option, &value, sizeof value);
}

static enum mr_err open_socket(const struct mr_addr *addr, int *ret_fd)
{
    int type = SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC;
    int family = addr->storage.ss_family;
    int fd = mr_fd_apart(socket(family, type, family == AF_UNIX ? 0 : IPPROTO_TCP));
    if (fd < 0)
        return mr_err_from_errno(errno);
    *ret_fd = fd;
    return MR_OK;
}

enum mr_err mr_net_listen(const struct mr_addr *addr, int *ret_fd, struct mr_addr *ret_bound)
{
    int fd = -1;
    MR_TRY(open_socket(addr, &fd));
    set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);
    if (addr->storage.ss_family == AF_INET6)
        set_option(fd, IPPROTO_IPV6, IPV6_V6ONLY, 0);
    struct mr_addr bound = {.len = sizeof bound.storage};
    if (bind(fd, (const struct sockaddr *)&addr->storage, addr->len) != 0 ||
        listen(fd, BACKLOG) != 0 ||
        getsockname(fd, (struct sockaddr *)&bound.storage, &bound.len) != 0) {
        enum mr_err err = errno == EADDRNOTAVAIL ? MR_INVALID : mr_err_from_errno(errno);
        close(fd);
        return err;
    }
    *ret_fd = fd;
    *ret_bound = bound;
    return MR_OK;
}

const char *mr_net_listen_text(enum mr_err err)
{
    if (err == MR_IN_USE)
        return "the port is in use by another process";
    if (err == MR_INVALID)
        return "this machine has no such address; 0.0.0.0 and [::] are all that it has";
    return mr_err_text(err);
}

enum mr_err mr_net_accept(int listen_fd, int *ret_fd, struct mr_addr *ret_peer)
{
    struct mr_addr peer = {.len = sizeof peer.storage};
    int fd = mr_fd_apart(accept4(listen_fd, (struct sockaddr *)&peer.storage, &peer.len,
                                 SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (fd < 0) {
        bool no_room = errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
        /* Everything else concerns one connection that came and went. */
        return no_room ? MR_BUSY : MR_EMPTY;
    }
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    *ret_fd = fd;
    *ret_peer = peer;
    return MR_OK;
}

/* A machine that says that nobody listens is another thing than no way to it. */
static enum mr_err connect_error(int error)
{
    return error == EHOSTUNREACH || error == ENETUNREACH ? MR_TIMEOUT : mr_err_from_errno(error);
}

enum mr_err mr_net_connect(const struct mr_addr *addr, int *ret_fd)
{
    int fd = -1;
    MR_TRY(open_socket(addr, &fd));
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    if (connect(fd, (const struct sockaddr *)&addr->storage, addr->len) != 0 &&
        errno != EINPROGRESS) {
        enum mr_err err = connect_error(errno);
        close(fd);
        return err;
    }
    *ret_fd = fd;
    return MR_OK;
}

void mr_net_keepalive(int fd, int64_t ms)
{
    enum { PROBES = 3 };
    int each_s = (int)((ms / PROBES + MR_MS_PER_S - 1) / MR_MS_PER_S);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, each_s);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, each_s);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, PROBES);
    set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, (int)ms);
}

enum mr_err mr_net_connected(int fd)
{
    int error = 0;
    socklen_t len = sizeof error;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) != 0)
        error = errno;
    return error == 0 ? MR_OK : connect_error(error);
}

/* What a failed read or write means. Errors of a connection are all the same to its owner. */
static enum mr_err transfer_error(void)
{
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)
        return MR_EMPTY;
    return MR_UNAVAILABLE;
}

enum mr_err mr_net_read(int fd, void *data, size_t max, size_t *ret_n)
{
    ssize_t n = recv(fd, data, max, 0);
    if (n < 0)
        return transfer_error();
    if (n == 0)
        return MR_CLOSED;
    *ret_n = (size_t)n;
    return MR_OK;
}

enum mr_err mr_net_write(int fd, const void *data, size_t len, size_t *ret_n)
{
    ssize_t n = send(fd, data, len, MSG_NOSIGNAL);
    if (n < 0)
        return transfer_error();
    *ret_n = (size_t)n;
    return MR_OK;
}

void mr_net_close(int fd)
{
    close(fd);
}

void mr_net_set_send_room(int fd, size_t bytes)
{
    int room = (int)bytes;
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room); /* else it stays as it is */
}

void mr_net_cut(int fd)
{
    (void)shutdown(fd, SHUT_RDWR);
}

bool mr_net_is_ended(int fd)
{
    struct pollfd watched = {.fd = fd, .events = POLLRDHUP};
    return poll(&watched, 1, 0) > 0; /* also behind what was sent and not yet read */
}

void mr_net_allow_many(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max)
        return;
    limit.rlim_cur = limit.rlim_max;
    (void)!setrlimit(RLIMIT_NOFILE, &limit); /* fewer are still enough for a few */
}

size_t mr_net_files_max(void)
{
    struct rlimit limit;
    return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? (size_t)limit.rlim_cur : SIZE_MAX;
}
