/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The wall clock of a process of a test, which may be wrong: this definition stands before that of the C
 * library, for all that is linked into this program. The file that MR_ACCEPT_WALL names holds by how many
 * ns it is wrong, and may change meanwhile. No other clock is changed.
 */
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t id, struct timespec *now);

static _Atomic int64_t right; /* 0 */
static _Atomic(_Atomic int64_t *) wrong;

static void find_wrong(void)
{
    const char *path = getenv("MR_ACCEPT_WALL");
    int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *map = fd >= 0 ? mmap(NULL, sizeof(int64_t), PROT_READ, MAP_SHARED, fd, 0) : MAP_FAILED;
    if (fd >= 0)
        (void)close(fd);
    atomic_store(&wrong, map != MAP_FAILED ? map : &right);
}

int clock_gettime(clockid_t id, struct timespec *now)
{
    enum { NS = 1000 * 1000 * 1000 };
    long rc = syscall(SYS_clock_gettime, id, now);
    if (rc != 0 || id != CLOCK_REALTIME)
        return (int)rc;
    if (atomic_load(&wrong) == NULL)
        find_wrong();
    int64_t by = atomic_load(atomic_load(&wrong));
    now->tv_sec += by / NS;
    now->tv_nsec += by % NS;
    if (now->tv_nsec >= NS || now->tv_nsec < 0) {
        now->tv_sec += now->tv_nsec < 0 ? -1 : 1;
        now->tv_nsec += now->tv_nsec < 0 ? NS : -NS;
    }
    return 0;
}
