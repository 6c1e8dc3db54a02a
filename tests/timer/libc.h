/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Local time by the C library: a table of the changes of a zone, found by asking localtime_r again
 * and again, and what a local time becomes. Sets TZ for the whole process. Thread: one.
 */
#ifndef MR_TESTS_TIMER_LIBC_H
#define MR_TESTS_TIMER_LIBC_H

#include <stddef.h>
#include <stdint.h>

enum { LIBC_CHANGES_MAX = 1000 };

/* From begin up to end the clock is offset ahead of UTC. */
struct libc_span {
    int64_t begin, end;
    int offset;
};

struct libc_zone {
    const char *name;
    size_t count, seen; /* seen: the span found last */
    struct libc_span spans[LIBC_CHANGES_MAX];
};

/* Which zone libc_offset is of. */
void libc_use(const char *name);
int libc_offset(int64_t unix_s);
/* Uses it and finds its spans from 1969 to 2201. */
void libc_find(struct libc_zone *zone, const char *name);
/* The span of a moment. */
size_t libc_span_at(struct libc_zone *zone, int64_t unix_s);
/* When a firing at this local time happens, by the words of the documentation: when the clock shows
 * it; the first time when it does so twice; at the end of the gap when it never does. */
int64_t libc_firing(struct libc_zone *zone, int64_t local_s);

#endif
