/* SPDX-License-Identifier: Apache-2.0 */
/* Messages that peers left in Redis: judged without harm; what was read reads the same when written
 * again. */
#include "wire/asynq.h"

#include "fuzz/fuzz.h"

static void assert_within(const struct mr_asynq_task *task, struct mr_slice bytes)
{
    mr_assert(fuzz_within(task->type, bytes) && fuzz_within(task->payload, bytes));
    mr_assert(fuzz_within(task->id, bytes) && fuzz_within(task->queue, bytes));
    mr_assert(fuzz_within(task->error, bytes) && fuzz_within(task->unique_key, bytes));
    mr_assert(fuzz_within(task->group, bytes));
    for (size_t i = 0; i < task->headers_n; i++) {
        mr_assert(fuzz_within(task->headers[i].name, bytes));
        mr_assert(fuzz_within(task->headers[i].value, bytes));
    }
}

static void check_task(struct mr_slice bytes)
{
    struct mr_arena arena = {0};
    struct mr_buf again = {0}, once_more = {0};
    struct mr_asynq_task first, second;
    if (mr_asynq_task_decode(bytes, &arena, &first) == MR_OK) {
        assert_within(&first, bytes);
        if (mr_asynq_task_encode(&first, &again) == MR_OK) {
            struct mr_slice written = mr_buf_slice(&again);
            mr_assert(mr_asynq_task_decode(written, &arena, &second) == MR_OK);
            mr_assert(mr_utf8_valid(second.error));
            mr_assert(mr_asynq_task_encode(&second, &once_more) == MR_OK);
            mr_assert(mr_slice_equal(written, mr_buf_slice(&once_more)));
        } else {
            mr_assert(first.headers_n > 0 && again.len == 0);
        }
    }
    mr_buf_done(&again);
    mr_buf_done(&once_more);
    mr_arena_done(&arena);
}

static void check_server(struct mr_slice bytes)
{
    struct mr_arena arena = {0};
    struct mr_buf again = {0};
    struct mr_asynq_server first, second;
    if (mr_asynq_server_decode(bytes, &arena, &first) == MR_OK) {
        mr_assert(mr_asynq_server_encode(&first, &again) == MR_OK);
        mr_assert(mr_asynq_server_decode(mr_buf_slice(&again), &arena, &second) == MR_OK);
        mr_assert(second.queues_n == first.queues_n && second.active == first.active);
        mr_assert(second.started.seconds == first.started.seconds);
    }
    mr_buf_done(&again);
    mr_arena_done(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    check_task(mr_slice_make(data, size));
    check_server(mr_slice_make(data, size));
    return 0;
}
