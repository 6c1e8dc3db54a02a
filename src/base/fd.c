/* SPDX-License-Identifier: Apache-2.0 */
#include "base/fd.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int mr_fd_above(int fd, int last)
{
    if (fd < 0 || fd > last)
        return fd;
    int moved = fcntl(fd, F_DUPFD_CLOEXEC, last + 1);
    int errnum = errno;
    close(fd);
    errno = errnum;
    return moved;
}

int mr_fd_apart(int fd)
{
    return mr_fd_above(fd, STDERR_FILENO);
}
