/* SPDX-License-Identifier: Apache-2.0 */
#include "base/warm.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "base/chan.h"
#include "base/mem.h"

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14; older ones refuse it, which costs nothing */
#endif

enum {
    RANGES_MAX = 32,
    STEP_BYTES = MR_MEM_HUGE, /* touched in one call: how long a free may have to wait */
};

struct range {
    char *memory;
    size_t bytes;
};

struct mr_warm {
    struct mr_lock lock; /* over all of this */
    struct range ranges[RANGES_MAX];
    size_t head, n; /* ring */
    bool stopping;
    pthread_t thread;
};

/* The next piece to touch; false when it is time to end. */
static bool next_piece(struct mr_warm *warm, struct range *ret_piece)
{
    mr_lock_enter(&warm->lock);
    while (warm->n == 0 && !warm->stopping)
        mr_lock_wait(&warm->lock, INT64_MAX);
    bool goes_on = !warm->stopping;
    if (goes_on) {
        struct range *range = &warm->ranges[warm->head];
        size_t bytes = range->bytes < STEP_BYTES ? range->bytes : STEP_BYTES;
        *ret_piece = (struct range){range->memory, bytes};
        range->memory += bytes;
        range->bytes -= bytes;
        if (range->bytes == 0) {
            warm->head = (warm->head + 1) % RANGES_MAX;
            warm->n--;
        }
    }
    mr_lock_leave(&warm->lock);
    return goes_on;
}

/* Populating never changes what memory holds: neither what the owner wrote meanwhile, nor what
 * somebody else mapped there since. */
static void *warm_run(void *arg)
{
    struct range piece;
    while (next_piece(arg, &piece))
        (void)madvise(piece.memory, piece.bytes, MADV_POPULATE_WRITE);
    return NULL;
}

enum mr_err mr_warm_new(struct mr_warm **ret_warm)
{
    struct mr_warm *warm = calloc(1, sizeof *warm);
    if (warm == NULL)
        return MR_NOMEM;
    mr_lock_init(&warm->lock);
    enum mr_err err = mr_thread_start(&warm->thread, "mr-warm", warm_run, warm);
    if (err != MR_OK) {
        mr_lock_done(&warm->lock);
        free(warm);
        return err;
    }
    *ret_warm = warm;
    return MR_OK;
}

void mr_warm_free(struct mr_warm *warm)
{
    if (warm == NULL)
        return;
    mr_lock_enter(&warm->lock);
    warm->stopping = true;
    mr_lock_notify_one(&warm->lock);
    mr_lock_leave(&warm->lock);
    mr_thread_join(warm->thread);
    mr_lock_done(&warm->lock);
    free(warm);
}

void mr_warm_ask(struct mr_warm *warm, void *memory, size_t bytes)
{
    if (warm == NULL)
        return;
    mr_lock_enter(&warm->lock);
    if (warm->n < RANGES_MAX) {
        warm->ranges[(warm->head + warm->n++) % RANGES_MAX] = (struct range){memory, bytes};
        mr_lock_notify_one(&warm->lock);
    }
    mr_lock_leave(&warm->lock);
}
