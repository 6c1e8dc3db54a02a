/* SPDX-License-Identifier: Apache-2.0 */
/* Messages from the network: judged without harm; what was read reads the same when written again. */
#include "wire/flat.h"

#include <stdlib.h>

#include "fuzz/fuzz.h"
#include "wire/node.h"

static const struct mr_flat *const flats[] = {
    &mr_flat_new_task, &mr_flat_task, &mr_flat_enqueue_result, &mr_flat_queue, &mr_flat_stats};

static void check(const struct mr_flat *flat, struct mr_slice bytes)
{
    struct mr_arena arena = {0};
    union {
        struct mr_task_options options;
        struct mr_task task;
        struct mr_enqueue_result result;
        struct mr_queue_info queue;
        struct mr_stats stats;
    } first, second;
    mr_assert(flat->size <= sizeof first);
    if (mr_flat_read(flat, bytes, &arena, &first) == MR_OK) {
        size_t size = mr_flat_size(flat, &first);
        uint8_t *again = malloc(size + 1), *once_more = malloc(size + 1);
        mr_assert(again != NULL && once_more != NULL);
        mr_assert(mr_flat_write(flat, &first, again) == again + size);
        mr_assert(mr_flat_read(flat, mr_slice_make(again, size), &arena, &second) == MR_OK);
        mr_assert(mr_flat_size(flat, &second) == size);
        mr_assert(mr_flat_write(flat, &second, once_more) == once_more + size);
        mr_assert(size == 0 || memcmp(again, once_more, size) == 0);
        free(again);
        free(once_more);
    }
    mr_arena_done(&arena);
}

static void check_node(struct mr_slice bytes)
{
    struct mr_arena arena = {0};
    struct mr_node_info first, second;
    if (mr_node_read(bytes, &arena, &first) == MR_OK) {
        size_t size = mr_node_size(&first);
        uint8_t *again = malloc(size + 1);
        mr_assert(again != NULL);
        mr_assert(mr_node_write(&first, again) == again + size);
        mr_assert(mr_node_read(mr_slice_make(again, size), &arena, &second) == MR_OK);
        mr_assert(mr_node_size(&second) == size);
        free(again);
    }
    mr_arena_done(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_node(mr_slice_make(data, size));
    for (size_t i = 0; i < sizeof flats / sizeof *flats; i++)
        check(flats[i], mr_slice_make(data, size));
    return 0;
}
