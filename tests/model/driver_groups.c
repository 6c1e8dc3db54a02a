/* SPDX-License-Identifier: Apache-2.0 */
/* Steps with groups: see driver.h. */
#include <stdio.h>

#include "model/driver.h"

void driver_gather(struct driver *d)
{
    if (d->sets_n == DRIVER_SETS_MAX)
        return;
    unsigned queue = (unsigned)mr_rand_below(&d->rand, MODEL_QUEUES);
    struct mr_req_gather req = {.req.op = MR_OP_GATHER,
                                .queue = mr_slice_str(model_queue_names[queue]),
                                .max_size = (uint32_t)mr_rand_below(&d->rand, 8),
                                .max_delay_ms =
                                    mr_rand_one_in(&d->rand, 2) ? driver_some_ms(d, 2000) : 0,
                                .grace_ms = driver_some_ms(d, 1000),
                                .set_ms = driver_some_ms(d, 4000)};
    (void)driver_call(d, &req.req);
    driver_trace(d, "%s size %u delay %lld grace %lld -> %s, %zu of %s", model_queue_names[queue],
                 req.max_size, (long long)req.max_delay_ms, (long long)req.grace_ms,
                 mr_err_name(req.req.err), req.n, req.group);
    const char *what = model_gather(&d->model, queue, &req);
    if (what != NULL)
        driver_fail(d, "%s: %s", model_queue_names[queue], what);
    if (req.req.err == MR_OK) {
        struct driver_set *set = &d->sets[d->sets_n++];
        *set = (struct driver_set){.queue = queue, .number = d->model.last_set};
        memcpy(set->name, req.set, sizeof set->name);
    }
    mr_req_done(&req.req);
}

/* Of a set whose time may be over, one that a restart has ended, or whose queue is gone. */
void driver_gathered(struct driver *d)
{
    if (d->sets_n == 0 || d->model.tasks_n == MODEL_TASKS_MAX)
        return;
    size_t at = mr_rand_below(&d->rand, d->sets_n);
    struct driver_set set = d->sets[at];
    bool back = mr_rand_one_in(&d->rand, 4);
    struct driver_wish wish;
    driver_wish_some(d, &wish);
    wish.task.queue = set.queue;
    wish.task.group = 0;
    driver_wish_fill(&wish);
    struct mr_req_gathered req = {.req.op = MR_OP_GATHERED,
                                  .queue = mr_slice_str(model_queue_names[set.queue]),
                                  .set = mr_slice_str(set.name),
                                  .task = back ? NULL : &wish.options};
    enum mr_err want, err = driver_call(d, &req.req);
    struct mr_enqueue_result result = model_gathered(
        &d->model, set.number, back ? NULL : &wish.task, wish.delay_ms, wish.unique_ms, &want);
    driver_trace(d, "set %llu%s -> %s, %s", (unsigned long long)set.number, back ? " back" : "",
                 mr_err_name(err), mr_err_name(req.result.err));
    if (err != want)
        driver_fail(d, "%s, expected %s", mr_err_name(err), mr_err_name(want));
    if (err == MR_OK && !back)
        driver_compare_put(d, &wish, result, &req.result);
    if (err != MR_OK || req.result.err == MR_OK)
        d->sets[at] = d->sets[--d->sets_n];
    mr_req_done(&req.req);
}
