/* SPDX-License-Identifier: Apache-2.0 */
/* The manager is told, not asked: an error of the socket changes nothing for us. */
#include "base/notify.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/text.h"

void mr_notify(const char *words)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    size_t len = path ? strlen(path) : 0;
    if (len < 2 || len >= sizeof addr.sun_path || (path[0] != '/' && path[0] != '@'))
        return;
    memcpy(addr.sun_path, path, len);
    if (path[0] == '@')
        addr.sun_path[0] = '\0'; /* a name without a file */
    int fd = mr_fd_apart(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd < 0)
        return;
    socklen_t addr_len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len);
    (void)!sendto(fd, words, strlen(words), MSG_NOSIGNAL, (const struct sockaddr *)&addr, addr_len);
    close(fd);
}

int64_t mr_notify_watchdog_ms(void)
{
    const char *us_text = getenv("WATCHDOG_USEC"), *pid_text = getenv("WATCHDOG_PID");
    int64_t us = 0, pid = 0;
    if (!us_text || mr_parse_int64(us_text, &us) != MR_OK || us <= 0)
        return 0;
    if (pid_text && (mr_parse_int64(pid_text, &pid) != MR_OK || pid != getpid()))
        return 0; /* meant for another process */
    return us < MR_US_PER_MS ? 1 : us / MR_US_PER_MS;
}
