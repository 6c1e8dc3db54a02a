/* SPDX-License-Identifier: Apache-2.0 */
/* Tasks.Carry: tasks of another broker, as they stand there. */
#include <stdio.h>

#include "api/batch.h"
#include "base/text.h"

enum { REQUEST_TASKS = 1 };

static enum mr_err read_tasks(struct unary *u, struct mr_req_enqueue *req, size_t n)
{
    struct mr_arena *arena = unary_arena(u);
    struct mr_task *carried = mr_arena_calloc(arena, n + 1, sizeof *carried);
    struct mr_task_options *tasks = mr_arena_calloc(arena, n + 1, sizeof *tasks);
    req->results = mr_arena_calloc(arena, n + 1, sizeof *req->results);
    if (carried == NULL || tasks == NULL || req->results == NULL)
        return MR_NOMEM;
    req->carried = carried;
    req->tasks = tasks;
    for (struct mr_slice bytes = u->bytes; bytes.len > 0;) {
        struct mr_flat_item item;
        MR_TRY(mr_flat_next(&bytes, &item));
        if (item.number != REQUEST_TASKS || item.type != MR_FLAT_BYTES)
            continue;
        MR_TRY(mr_flat_read(&mr_flat_task, item.bytes, arena, &carried[req->n]));
        tasks[req->n] = mr_carried_options(&carried[req->n]);
        req->n++;
    }
    return MR_OK;
}

struct mr_slice tasks_about_carried(struct unary *u)
{
    enum { ROOM = 32 };
    size_t n = 0;
    char *text = mr_arena_alloc(unary_arena(u), ROOM);
    if (text == NULL || mr_flat_count(u->bytes, REQUEST_TASKS, &n) != MR_OK)
        return (struct mr_slice){0};
    return mr_slice_make(text, (size_t)snprintf(text, ROOM, "%zu task%s", n, mr_plural(n)));
}

/* Not counted in a quota: they were accepted before. */
void tasks_carry(struct unary *u)
{
    struct mr_req_enqueue *req = &u->errand.req.enqueue;
    size_t n = 0;
    enum mr_err err = mr_flat_count(u->bytes, REQUEST_TASKS, &n);
    if (err == MR_OK && n > MR_BATCH_MAX) {
        unary_fail(u, MR_TOO_BIG, "%zu tasks in one call, the limit is %d", n, MR_BATCH_MAX);
        return;
    }
    if (err == MR_OK)
        err = read_tasks(u, req, n);
    if (err != MR_OK) {
        unary_fail(u, err, err == MR_NOMEM ? NULL : "the message cannot be read");
        return;
    }
    for (size_t i = 0; i < req->n; i++)
        if (!unary_may_touch(u, req->carried[i].queue))
            return;
    unary_submit(u, MR_OP_ENQUEUE, answer_unary);
}
