/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An allocator that fails on demand: the program's own malloc, calloc and realloc stand before
 * glibc's. Include it in one file of a test program. A sanitizer has its own allocator that must
 * not be replaced; there FAILING_ALLOC is 0, nothing ever fails, and tests check what happens when
 * nothing does.
 */
#ifndef MR_TESTS_FAILING_ALLOC_H
#define MR_TESTS_FAILING_ALLOC_H

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FAILING_ALLOC 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define FAILING_ALLOC 0
#endif
#endif
#ifndef FAILING_ALLOC
#define FAILING_ALLOC 1
#endif

/* Allocations that still succeed before one fails; negative: none fails. */
static long allocs_left = -1;
static long allocs_failed;
static long allocs_failed_in_all;

/* Lets n allocations succeed and the next one fail, once. */
static inline void fail_alloc_after(long n)
{
    allocs_left = n;
    allocs_failed = 0;
}

/* Switches it off; how many failed since it was switched on. */
static inline long fail_alloc_stop(void)
{
    allocs_left = -1;
    return allocs_failed;
}

#if FAILING_ALLOC

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *memory, size_t size);

static inline int alloc_must_fail(void)
{
    if (allocs_left < 0)
        return 0;
    if (allocs_left-- > 0)
        return 0;
    allocs_failed++;
    allocs_failed_in_all++;
    errno = ENOMEM;
    return 1;
}

/* For the figures of campaigns. */
static void __attribute__((destructor)) say_allocs_failed(void)
{
    (void)printf("%ld allocations failed\n", allocs_failed_in_all);
}

void *malloc(size_t size)
{
    return alloc_must_fail() ? NULL : __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    return alloc_must_fail() ? NULL : __libc_calloc(n, size);
}

void *realloc(void *memory, size_t size)
{
    return alloc_must_fail() ? NULL : __libc_realloc(memory, size);
}

#endif

#endif
