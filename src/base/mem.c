/* SPDX-License-Identifier: Apache-2.0 */
#include "base/mem.h"

#include <stdint.h>
#include <sys/mman.h>

#include "base/err.h"

/* Cuts [memory, memory + bytes) out of a larger mapping, so that it begins where a huge page can.
 */
static void *align(char *raw, size_t raw_bytes, size_t bytes)
{
    size_t head = (MR_MEM_HUGE - (uintptr_t)raw % MR_MEM_HUGE) % MR_MEM_HUGE;
    if (head > 0)
        mr_mem_unmap(raw, head);
    if (raw_bytes - head > bytes)
        mr_mem_unmap(raw + head + bytes, raw_bytes - head - bytes);
    return raw + head;
}

void *mr_mem_map(size_t bytes)
{
    size_t extra = bytes >= MR_MEM_HUGE ? MR_MEM_HUGE : 0;
    void *raw =
        mmap(NULL, bytes + extra, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED)
        return NULL;
    if (extra == 0)
        return raw;
    void *memory = align(raw, bytes + extra, bytes);
    (void)madvise(memory, bytes, MADV_HUGEPAGE); /* a wish: without it, it is only slower */
    return memory;
}

void mr_mem_unmap(void *memory, size_t bytes)
{
    int failed = munmap(memory, bytes);
    mr_assert(!failed);
}
