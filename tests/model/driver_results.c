/* SPDX-License-Identifier: Apache-2.0 */
/* Steps of a master: see driver.h. */
#include <string.h>

#include "broker/result.h"
#include "model/driver.h"

enum { TAKE_MAX = 32, FULL = MODEL_RESULTS_MAX / 2 };

static void tell_nobody(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    (void)epoch, (void)reason, (void)arg;
}

static struct model_result *compare_result(struct driver *d, const struct mr_result *got)
{
    struct model_result *want = model_result(&d->model, got);
    if (want == NULL)
        driver_fail(d, "a result of attempt %u of '%.*s': %s%s%s", got->attempt,
                    (int)got->task_id.len, (const char *)got->task_id.data,
                    mr_result_outcome_name(got->outcome), got->final ? ", final" : "",
                    got->cancel_requested ? ", cancelled" : "");
    return want;
}

static void commit(struct driver *d, const struct mr_lease *lease)
{
    struct mr_finish item = {.id = lease->task.id,
                             .epoch = lease->epoch,
                             .ref = mr_rand_one_in(&d->rand, 2) ? lease->ref : 0,
                             .outcome = MR_DONE};
    enum mr_err err = MR_FAILED;
    struct mr_req_finish req = {.req.op = MR_OP_FINISH,
                                .items = &item,
                                .n = 1,
                                .errs = &err,
                                .only_results = mr_rand_one_in(&d->rand, 2)};
    if (driver_call(d, &req.req) != MR_OK || err != MR_OK)
        driver_fail(d, "a commit is answered %s", mr_err_name(err));
    mr_req_done(&req.req);
}

/* Looks at the first ones, commits some, and goes: the rest is back. */
void driver_results(struct driver *d)
{
    char name[MR_NAME_MAX + 1];
    struct mr_worker_queue queue = {.name = mr_result_queue(mr_slice_str(MODEL_TOPIC), name)};
    struct mr_req_node_open open = {.req.op = MR_OP_NODE_OPEN,
                                    .role = MR_NODE_MASTER,
                                    .queues = &queue,
                                    .queues_n = 1,
                                    .lease_ms = 3600000,
                                    .events.stop = tell_nobody};
    if (driver_call(d, &open.req) != MR_OK)
        driver_fail(d, "%s", mr_err_name(open.req.err));
    mr_req_done(&open.req);
    size_t max = d->model.results_n > FULL ? TAKE_MAX : 1 + mr_rand_below(&d->rand, TAKE_MAX);
    size_t due = d->model.results_n < max ? d->model.results_n : max;
    struct mr_req_take take = {.req.op = MR_OP_TAKE, .node = open.node, .max = max};
    (void)driver_call(d, &take.req);
    driver_trace(d, "%zu of %zu", take.n, d->model.results_n);
    if (take.n > due || (take.n == 0 && due > 0)) /* fewer, where epochs come to their ceiling */
        driver_fail(d, "%zu results, expected %zu", take.n, due);
    int64_t before_ms = INT64_MIN;
    for (struct mr_lease *lease = take.leases, *next; lease != NULL; lease = next) {
        struct mr_result result;
        next = lease->next;
        if (mr_broker_lease_open(mr_engine_broker(d->rig.engine), lease) != MR_OK ||
            mr_result_decode(lease->task.payload, &result) != MR_OK)
            driver_fail(d, "a result cannot be read");
        struct model_result *want = compare_result(d, &result);
        if (result.finished_ms < before_ms)
            driver_fail(d, "results are not in the order of finishing");
        before_ms = result.finished_ms;
        if (!mr_rand_one_in(&d->rand, 4)) {
            commit(d, lease);
            model_commit(&d->model, want);
        }
        mr_lease_free(lease);
    }
    mr_req_done(&take.req);
    struct mr_req_node_close close = {.req.op = MR_OP_NODE_CLOSE, .node = open.node};
    if (driver_call(d, &close.req) != MR_OK)
        driver_fail(d, "%s", mr_err_name(close.req.err));
    mr_req_done(&close.req);
}
