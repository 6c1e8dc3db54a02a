/* SPDX-License-Identifier: Apache-2.0 */
/* The file of settings: whatever stands in it, its pairs are plain text and its lines are counted. */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "cli/settings.h"
#include "fuzz/fuzz.h"

struct seen {
    size_t size;
    size_t pairs;
};

static int on_pair(const char *key, const char *value, unsigned line, void *arg)
{
    struct seen *seen = arg;
    mr_assert(line >= 1 && line <= seen->size + 1);
    mr_assert(strlen(key) <= seen->size * 4 && strlen(value) <= seen->size * 4);
    seen->pairs++;
    return CLI_OK;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static FILE *nowhere;
    char path[64];
    struct seen seen = {.size = size};
    int fd = memfd_create("settings", MFD_CLOEXEC);
    mr_assert(fd >= 0);
    if (size > 0)
        mr_assert(write(fd, data, size) == (ssize_t)size);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    if (nowhere == NULL)
        nowhere = fopen("/dev/null", "we");
    /* What is wrong with each is said to nobody. */
    FILE *real = stderr;
    stderr = nowhere;
    int code = settings_file(NULL, path, on_pair, &seen);
    stderr = real;
    mr_assert(code == CLI_OK || code == CLI_USAGE);
    mr_assert(seen.pairs <= size);
    close(fd);
    return 0;
}
