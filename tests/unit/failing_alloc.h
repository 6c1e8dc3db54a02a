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
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>

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

/* Of threads of this name, if it is not NULL, one in so many fails. */
static const char *_Atomic allocs_of;
static _Atomic unsigned allocs_one_in;
static _Atomic long allocs_of_failed;

static inline void fail_alloc_of(const char *thread, unsigned one_in)
{
    atomic_store(&allocs_of_failed, 0);
    atomic_store(&allocs_one_in, one_in);
    atomic_store(&allocs_of, thread);
}

static inline long fail_alloc_of_stop(void)
{
    atomic_store(&allocs_of, NULL);
    return atomic_load(&allocs_of_failed);
}

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

static long allocs_failed_in_all;

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *memory, size_t size);

static inline int alloc_of_must_fail(const char *thread)
{
    static _Thread_local uint32_t chance = 1;
    char name[16] = "";
    if (prctl(PR_GET_NAME, name) != 0 || strcmp(name, thread) != 0)
        return 0;
    chance = chance * 1664525 + 1013904223;
    if ((chance >> 16) % atomic_load(&allocs_one_in) != 0)
        return 0;
    atomic_fetch_add(&allocs_of_failed, 1);
    errno = ENOMEM;
    return 1;
}

static inline int alloc_must_fail(void)
{
    const char *thread = atomic_load(&allocs_of);
    if (thread != NULL)
        return alloc_of_must_fail(thread);
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
    (void)printf("%ld allocations failed\n", allocs_failed_in_all + atomic_load(&allocs_of_failed));
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
