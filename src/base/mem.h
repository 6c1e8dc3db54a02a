/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Large pieces of memory, straight from the system: zeroed, given back whole or piece by piece from
 * the end, and in huge pages where the machine has them. Tables that are read all over cost more in
 * address look-ups than in data with small pages. Thread: any.
 */
#ifndef MR_BASE_MEM_H
#define MR_BASE_MEM_H

#include <stddef.h>

enum { MR_MEM_HUGE = 2 * 1024 * 1024 };

/* bytes is a multiple of the page size. NULL when out of memory. */
void *mr_mem_map(size_t bytes);
void mr_mem_unmap(void *memory, size_t bytes);

#endif
