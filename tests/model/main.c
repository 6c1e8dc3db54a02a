/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The model test: random operations on the embedded engine and on a naive model, answers compared
 * at each step, the whole state every few hundred. MR_STEPS steps (100000) for MR_SEEDS seeds (1)
 * from MR_SEED (1); MR_TRACE=1 prints every step. A failure prints the seed and the step.
 */
#include <stdio.h>
#include <stdlib.h>

#include "model/driver.h"

/* What a step may be, and how often in how many. */
static const struct {
    const char *name;
    void (*step)(struct driver *d);
    unsigned weight;
} steps[] = {
    {"enqueue", driver_enqueue, 140},  {"gather", driver_gather, 50},
    {"gathered", driver_gathered, 40}, {"carry", driver_carry, 40},
    {"take", driver_take, 200},        {"begin", driver_begin, 100},
    {"finish", driver_finish, 220},    {"finish old", driver_finish_old, 30},
    {"control", driver_control, 70},   {"get", driver_get, 60},
    {"queue", driver_queue, 20},       {"node", driver_node, 40},
    {"beat", driver_beat, 60},         {"time", driver_pass_time, 100},
    {"restart", driver_restart, 2},    {"results", driver_results, 40},
};
enum { STEPS_N = sizeof steps / sizeof steps[0] };

/* ---- the whole state ------------------------------------------------------------------------ */

static void compare_queue(struct driver *d, unsigned index)
{
    const struct model_queue *want = &d->model.queues[index];
    struct mr_queue_info got;
    struct mr_req_queue_list req = {.req.op = MR_OP_QUEUE_LIST,
                                    .only = mr_slice_str(model_queue_names[index]),
                                    .infos = &got,
                                    .max = 1};
    enum mr_err err = driver_call(d, &req.req);
    mr_req_done(&req.req);
    if (err != (want->exists ? MR_OK : MR_NOT_FOUND))
        driver_fail(d, "queue %s: %s", model_queue_names[index], mr_err_name(err));
    if (err != MR_OK)
        return;
    for (int s = 1; s < MR_STATE_COUNT; s++) {
        uint64_t n = model_count(&d->model, index, (enum mr_state)s);
        if (got.counts[s] != n)
            driver_fail(d, "queue %s has %llu %s, expected %llu", model_queue_names[index],
                        (unsigned long long)got.counts[s], mr_state_name((enum mr_state)s),
                        (unsigned long long)n);
    }
    bool today = want->day == d->model.now_ms / MR_MS_PER_DAY;
    int64_t wait_ms = want->retry_wait_ms > 0 ? want->retry_wait_ms : MR_RETRY_WAIT_MS;
    if (got.retry_mode != want->retry_mode || got.retry_wait_ms != wait_ms)
        driver_fail(d, "%s: what becomes of retries", model_queue_names[index]);
    if (got.paused != want->paused || got.max_length != want->max_length ||
        got.partitions != model_parts(&d->model, index) || got.assign != want->assign)
        driver_fail(d, "settings of queue %s", model_queue_names[index]);
    if (got.processed_total != want->processed || got.failed_total != want->failed ||
        got.processed_today != (today ? want->processed_day : 0) ||
        got.failed_today != (today ? want->failed_day : 0))
        driver_fail(d, "counters of queue %s: %llu %llu, expected %llu %llu",
                    model_queue_names[index], (unsigned long long)got.processed_total,
                    (unsigned long long)got.failed_total, (unsigned long long)want->processed,
                    (unsigned long long)want->failed);
}

/* Whether b may stand behind a in the list of their state. */
static bool in_order(const struct model_task *a, const struct model_task *b)
{
    if (a->state == MR_PENDING && a->part != b->part)
        return a->part < b->part;
    if (a->state == MR_PENDING || a->state == MR_AGGREGATING)
        return a->order_ms < b->order_ms || (a->order_ms == b->order_ms && a->seq < b->seq);
    if (a->state == MR_SCHEDULED || a->state == MR_RETRY)
        return a->due_ms <= b->due_ms;
    return true;
}

static size_t compare_page(struct driver *d, unsigned queue, enum mr_state state, char *cursor)
{
    struct mr_req_list req = {.req.op = MR_OP_LIST,
                              .options = {.queue = mr_slice_str(model_queue_names[queue]),
                                          .state = state,
                                          .held = state == MR_STATE_NONE,
                                          .cursor = cursor[0] != '\0' ? cursor : NULL,
                                          .limit = 1 + mr_rand_below(&d->rand, 60),
                                          .with_payload = true}};
    enum mr_err err = driver_call(d, &req.req);
    if (err != MR_OK)
        driver_fail(d, "list: %s", mr_err_name(err));
    const struct model_task *last = NULL;
    for (size_t i = 0; i < req.n; i++) {
        const struct model_task *want = model_find(&d->model, req.tasks[i].id);
        if (want == NULL || want->queue != queue)
            driver_fail(d, "'%.*s' is listed and not there", (int)req.tasks[i].id.len,
                        (const char *)req.tasks[i].id.data);
        const char *what = model_differs(want, &req.tasks[i], true);
        if (what != NULL)
            driver_fail(d, "'%s' differs in %s", want->id, what);
        if (want->held != (state == MR_STATE_NONE))
            driver_fail(d, "'%s' is in the wrong list", want->id);
        if (last != NULL && !want->held && !in_order(last, want))
            driver_fail(d, "'%s' is listed before '%s'", last->id, want->id);
        last = want;
    }
    (void)snprintf(cursor, MR_CURSOR_MAX, "%s", req.next);
    size_t n = req.n;
    mr_req_done(&req.req);
    return n;
}

static void compare_stats(struct driver *d)
{
    struct mr_req_stats req = {.req.op = MR_OP_STATS};
    if (driver_call(d, &req.req) != MR_OK)
        driver_fail(d, "stats");
    mr_req_done(&req.req);
    const struct {
        const char *what;
        uint64_t want, got;
    } rows[] = {
        {"tasks", d->model.tasks_n, req.stats.tasks},
        {"results", d->model.results_n, req.stats.results},
        {"deleted", d->model.deleted, req.stats.deleted},
        {"expired", d->model.expired, req.stats.expired},
        {"gathered", d->model.gathered, req.stats.gathered},
        {"stale_refused", d->model.stale, req.stats.stale_refused},
        {"records_damaged", 0, req.stats.records_damaged},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].want != rows[i].got)
            driver_fail(d, "%s: %llu, expected %llu", rows[i].what, (unsigned long long)rows[i].got,
                        (unsigned long long)rows[i].want);
}

void driver_compare(struct driver *d)
{
    for (unsigned queue = 0; queue < MODEL_QUEUES; queue++) {
        compare_queue(d, queue);
        for (int s = 0; s < MR_STATE_COUNT && d->model.queues[queue].exists; s++) {
            char cursor[MR_CURSOR_MAX] = "";
            uint64_t n = 0;
            do
                n += compare_page(d, queue, (enum mr_state)s, cursor);
            while (cursor[0] != '\0');
            uint64_t held = model_held(&d->model, queue, (enum mr_state)s);
            uint64_t listed =
                s == MR_STATE_NONE ? held : model_count(&d->model, queue, (enum mr_state)s) - held;
            if (n != listed)
                driver_fail(d, "%s lists %llu %s tasks", model_queue_names[queue],
                            (unsigned long long)n, mr_state_name((enum mr_state)s));
        }
    }
    compare_stats(d);
    mr_engine_validate(d->rig.engine);
}

/* ---- runs ----------------------------------------------------------------------------------- */

static void one_step(struct driver *d)
{
    unsigned all = 0;
    for (size_t i = 0; i < STEPS_N; i++)
        all += steps[i].weight;
    unsigned pick = (unsigned)mr_rand_below(&d->rand, all);
    size_t i = 0;
    while (pick >= steps[i].weight)
        pick -= steps[i++].weight;
    d->doing = steps[i].name;
    steps[i].step(d);
}

static void run_seed(uint64_t seed, uint64_t n, bool trace)
{
    struct driver *d = calloc(1, sizeof *d);
    mr_assert(d != NULL);
    d->seed = seed;
    d->trace = trace;
    d->doing = "open";
    mr_rand_seed(&d->rand, seed);
    d->fs = simfs_new(seed);
    rig_init(&d->rig, d->fs, seed);
    d->model.now_ms = rig_wall_ms(&d->rig);
    if (rig_open(&d->rig) != MR_OK)
        driver_fail(d, "%s", d->rig.detail.text);
    for (d->step = 0; d->step < n; d->step++) {
        one_step(d);
        if (d->step % DRIVER_SAMPLE == 0) {
            d->doing = "compare";
            driver_compare(d);
        }
    }
    d->doing = "end";
    driver_restart(d);
    driver_drop_held(d, -1);
    for (size_t i = 0; i < d->old_n; i++)
        mr_lease_free(d->old[i].lease);
    rig_done(&d->rig);
    simfs_free(d->fs);
    free(d);
}

int main(void)
{
    uint64_t first = rig_env("MR_SEED", 1), seeds = rig_env("MR_SEEDS", 1);
    uint64_t n = rig_env("MR_STEPS", 100000);
    for (uint64_t i = 0; i < seeds; i++) {
        printf("model: seed=%llu steps=%llu\n", (unsigned long long)(first + i),
               (unsigned long long)n);
        fflush(stdout);
        run_seed(first + i, n, rig_env("MR_TRACE", 0) != 0);
    }
    return 0;
}
