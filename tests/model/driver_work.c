/* SPDX-License-Identifier: Apache-2.0 */
/* Requests of the model test, part two: nodes, takes and finishes. See driver.h. */
#include <stdio.h>

#include "model/driver.h"

static int some_open_node(struct driver *d)
{
    int first = (int)mr_rand_below(&d->rand, MODEL_NODES);
    for (int i = 0; i < MODEL_NODES; i++)
        if (d->model.nodes[(first + i) % MODEL_NODES].open)
            return (first + i) % MODEL_NODES;
    return -1;
}

/* ---- leases in hand ------------------------------------------------------------------------- */

void driver_retire(struct driver *d, struct driver_held held)
{
    if (d->old_n == DRIVER_OLD_MAX) {
        size_t at = mr_rand_below(&d->rand, DRIVER_OLD_MAX);
        mr_lease_free(d->old[at].lease);
        d->old[at] = held;
        return;
    }
    d->old[d->old_n++] = held;
}

void driver_drop_held(struct driver *d, int node)
{
    for (size_t i = d->held_n; i-- > 0;) {
        if (node >= 0 && d->held[i].node != node)
            continue;
        driver_retire(d, d->held[i]);
        d->held[i] = d->held[--d->held_n];
    }
}

/* ---- nodes ---------------------------------------------------------------------------------- */

static void node_stop(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    (void)epoch;
    (void)reason;
    (void)arg;
}

static void open_node(struct driver *d, int index)
{
    struct model_node *node = &d->model.nodes[index];
    struct mr_worker_queue queues[MODEL_QUEUES];
    *node = (struct model_node){.queues_n = 1 + mr_rand_below(&d->rand, MODEL_QUEUES)};
    unsigned first = (unsigned)mr_rand_below(&d->rand, MODEL_QUEUES);
    for (unsigned i = 0; i < node->queues_n; i++) {
        node->queues[i] = (first + i) % MODEL_QUEUES;
        queues[i] =
            (struct mr_worker_queue){.name = mr_slice_str(model_queue_names[node->queues[i]]),
                                     .weight = (uint32_t)mr_rand_below(&d->rand, 10)};
    }
    node->order = mr_rand_one_in(&d->rand, 3) ? MR_QUEUES_STRICT : MR_QUEUES_WEIGHTED;
    node->lease_ms = driver_some_ms(d, 2000);
    struct mr_req_node_open req = {.req.op = MR_OP_NODE_OPEN,
                                   .name = MR_SLICE_LIT("node"),
                                   .queues = queues,
                                   .queues_n = node->queues_n,
                                   .order = node->order,
                                   .slots = MODEL_SLOTS,
                                   .lease_ms = node->lease_ms,
                                   .events = {.stop = node_stop}};
    enum mr_err err = driver_call(d, &req.req);
    mr_req_done(&req.req);
    if (err != MR_OK)
        driver_fail(d, "open: %s", mr_err_name(err));
    node->open = true;
    node->node = req.node;
    node->first_slot = req.first_slot;
    node->dead_at_ms = d->model.now_ms + node->lease_ms + MODEL_DOUBT_MS;
    driver_trace(d, "open %d, lease %lld ms", index, (long long)node->lease_ms);
}

static void close_node(struct driver *d, int index)
{
    struct mr_req_node_close req = {.req.op = MR_OP_NODE_CLOSE, .node = d->model.nodes[index].node};
    enum mr_err err = driver_call(d, &req.req);
    mr_req_done(&req.req);
    if (err != MR_OK)
        driver_fail(d, "close: %s", mr_err_name(err));
    driver_trace(d, "close %d", index);
    model_node_lost(&d->model, index);
    driver_drop_held(d, index);
}

void driver_node(struct driver *d)
{
    int index = (int)mr_rand_below(&d->rand, MODEL_NODES);
    if (!d->model.nodes[index].open)
        open_node(d, index);
    else if (mr_rand_one_in(&d->rand, 3))
        close_node(d, index);
}

void driver_beat(struct driver *d)
{
    for (int i = 0; i < MODEL_NODES; i++) {
        struct model_node *node = &d->model.nodes[i];
        if (node->node == 0 || mr_rand_one_in(&d->rand, 8))
            continue;
        struct mr_req_beat req = {.req.op = MR_OP_BEAT, .node = node->node};
        enum mr_err err = driver_call(d, &req.req);
        mr_req_done(&req.req);
        if (err != (node->open ? MR_OK : MR_NOT_FOUND))
            driver_fail(d, "node %d, %s: %s", i, node->open ? "open" : "gone", mr_err_name(err));
        if (node->open)
            node->dead_at_ms = d->model.now_ms + node->lease_ms + MODEL_DOUBT_MS;
    }
    driver_trace(d, "all");
}

/* ---- takes ---------------------------------------------------------------------------------- */

static void took(struct driver *d, int node, struct mr_lease *lease)
{
    if (mr_broker_lease_open(mr_engine_broker(d->rig.engine), lease) != MR_OK)
        driver_fail(d, "a lease does not open");
    const char *wrong = model_take(&d->model, node, lease->task.id, lease->epoch);
    driver_trace(d, "node %d got %.*s epoch %llu", node, (int)lease->task.id.len,
                 (const char *)lease->task.id.data, (unsigned long long)lease->epoch);
    if (wrong != NULL)
        driver_fail(d, "node %d got '%.*s': %s", node, (int)lease->task.id.len,
                    (const char *)lease->task.id.data, wrong);
    const struct model_task *want = model_find(&d->model, lease->task.id);
    const char *what = model_differs(want, &lease->task, true);
    if (what != NULL)
        driver_fail(d, "the lease of '%s' differs in %s", want->id, what);
    lease->next = NULL;
    d->held[d->held_n++] = (struct driver_held){.lease = lease, .node = node};
}

/* One take of up to max; answers how many came. */
static size_t take_some(struct driver *d, int node, size_t max)
{
    struct mr_req_take req = {.req.op = MR_OP_TAKE, .node = d->model.nodes[node].node, .max = max};
    enum mr_err err = driver_call(d, &req.req);
    struct mr_lease *lease = err == MR_OK ? req.leases : NULL;
    mr_req_done(&req.req);
    if (err != MR_OK && err != MR_EMPTY)
        driver_fail(d, "%s", mr_err_name(err));
    size_t n = 0;
    for (; lease != NULL; n++) {
        struct mr_lease *next = lease->next;
        took(d, node, lease);
        lease = next;
    }
    if (n > max || (err == MR_OK) != (n > 0))
        driver_fail(d, "node %d asked for %zu and got %zu with %s", node, max, n, mr_err_name(err));
    if (err == MR_EMPTY && !model_nothing_for(&d->model, node))
        driver_fail(d, "node %d got nothing though there is something", node);
    return n;
}

/* A take may bring fewer than there are, but then the next one brings more. */
void driver_take(struct driver *d)
{
    enum { MAX = 6 };
    int node = some_open_node(d);
    if (node < 0 || d->held_n + MAX > DRIVER_HELD_MAX)
        return;
    size_t left = 1 + mr_rand_below(&d->rand, MAX);
    for (size_t n = 1; left > 0 && n > 0; left -= n)
        n = take_some(d, node, left);
}

void driver_begin(struct driver *d)
{
    if (d->held_n == 0)
        return;
    const struct driver_held *held = &d->held[mr_rand_below(&d->rand, d->held_n)];
    struct model_node *node = &d->model.nodes[held->node];
    size_t slot = mr_rand_below(&d->rand, MODEL_SLOTS);
    uint64_t epoch = mr_rand_one_in(&d->rand, 4) ? 0 : held->lease->epoch;
    mr_broker_begun(mr_engine_broker(d->rig.engine), node->first_slot + (uint32_t)slot, epoch);
    node->slots[slot] = epoch;
    if (epoch != 0)
        model_find(&d->model, held->lease->task.id)->begun = epoch;
    driver_trace(d, "node %d slot %zu epoch %llu", held->node, slot, (unsigned long long)epoch);
}

/* ---- finishes ------------------------------------------------------------------------------- */

static struct mr_finish some_finish(struct driver *d, const struct driver_held *held, char *text)
{
    (void)snprintf(text, MODEL_TEXT_MAX, "text %llu", (unsigned long long)++d->made);
    struct mr_finish item = {.id = held->lease->task.id,
                             .epoch = held->lease->epoch,
                             .ref = mr_rand_one_in(&d->rand, 4) ? 0 : held->lease->ref,
                             .outcome = (enum mr_outcome)mr_rand_below(&d->rand, 6)};
    bool waits = item.outcome == MR_FAIL || item.outcome == MR_LATER ||
                 (item.outcome == MR_HAND_BACK && mr_rand_one_in(&d->rand, 2));
    if (waits)
        item.delay_ms = driver_some_ms(d, 1500);
    if (item.outcome == MR_DONE)
        item.result = mr_slice_str(text);
    if (item.outcome == MR_FAIL || item.outcome == MR_FAIL_FOR_GOOD)
        item.error = mr_slice_str(text);
    return item;
}

static void compare_finish(struct driver *d, const struct mr_finish *item, enum mr_err err)
{
    enum mr_err want = model_finish(&d->model, item);
    driver_trace(d, "%.*s epoch %llu outcome %d delay %lld -> %s", (int)item->id.len,
                 (const char *)item->id.data, (unsigned long long)item->epoch, item->outcome,
                 (long long)item->delay_ms, mr_err_name(err));
    if (err != want)
        driver_fail(d, "outcome %d of '%.*s': %s, expected %s", item->outcome, (int)item->id.len,
                    (const char *)item->id.data, mr_err_name(err), mr_err_name(want));
}

static void finish_call(struct driver *d, const struct mr_finish *items, size_t n,
                        enum mr_err *errs)
{
    struct mr_req_finish req = {.req.op = MR_OP_FINISH, .items = items, .n = n, .errs = errs};
    enum mr_err err = driver_call(d, &req.req);
    mr_req_done(&req.req);
    if (err != MR_OK)
        driver_fail(d, "%s", mr_err_name(err));
}

void driver_finish(struct driver *d)
{
    enum { BATCH = 3 };
    char texts[BATCH][MODEL_TEXT_MAX];
    struct mr_finish items[BATCH];
    enum mr_err errs[BATCH];
    struct driver_held ended[BATCH];
    size_t n = 0, max = 1 + mr_rand_below(&d->rand, BATCH);
    while (n < max && d->held_n > 0) {
        size_t at = mr_rand_below(&d->rand, d->held_n);
        ended[n] = d->held[at];
        d->held[at] = d->held[--d->held_n];
        items[n] = some_finish(d, &ended[n], texts[n]);
        n++;
    }
    if (n == 0)
        return;
    finish_call(d, items, n, errs);
    for (size_t i = 0; i < n; i++) {
        compare_finish(d, &items[i], errs[i]);
        driver_retire(d, ended[i]);
    }
}

void driver_finish_old(struct driver *d)
{
    if (d->old_n == 0)
        return;
    char text[MODEL_TEXT_MAX];
    const struct driver_held *held = &d->old[mr_rand_below(&d->rand, d->old_n)];
    struct mr_finish item = some_finish(d, held, text);
    enum mr_err err = MR_FAILED;
    finish_call(d, &item, 1, &err);
    compare_finish(d, &item, err);
}
