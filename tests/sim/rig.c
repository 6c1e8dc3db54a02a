/* SPDX-License-Identifier: Apache-2.0 */
/* Turning an engine by hand. See rig.h. */
#include "sim/rig.h"

#include <stdlib.h>
#include <string.h>

#include "sim/simfs_int.h"

enum { CALL_STEPS_MAX = 200000, SPINS_MAX = 100000, LOOKS_MAX = 1000 };
static const int64_t call_ns_max = 3600 * MR_NS_PER_S;

static mr_mono clock_mono(struct mr_clock *clock)
{
    return (mr_mono){((struct rig_clock *)clock)->mono_ns};
}

static mr_wall clock_wall(struct mr_clock *clock)
{
    return (mr_wall){((struct rig_clock *)clock)->wall_us};
}

static void clock_to(struct rig_clock *clock, int64_t mono_ns)
{
    if (mono_ns <= clock->mono_ns)
        return;
    /* Both clocks count whole microseconds of the same start, so neither drifts. */
    clock->wall_us += mono_ns / MR_NS_PER_US - clock->mono_ns / MR_NS_PER_US;
    clock->mono_ns = mono_ns;
}

static int64_t chore_delay(struct rig *rig)
{
    if (rig->stall_one_in && mr_rand_one_in(&rig->rand, rig->stall_one_in))
        return rig->stall_ns;
    if (rig->chore_delay_max_ns == 0)
        return 0;
    return (int64_t)mr_rand_below(&rig->rand, (uint64_t)rig->chore_delay_max_ns);
}

static void exec_submit(struct mr_exec *mr_exec, struct mr_chore *chore)
{
    struct rig_exec *exec = (struct rig_exec *)mr_exec;
    exec->chores = sim_grow(exec->chores, exec->n, &exec->cap, sizeof *exec->chores);
    exec->chores[exec->n++] =
        (struct rig_chore){chore, exec->rig->clock.mono_ns + chore_delay(exec->rig), false};
}

/* Runs the first chore, or tells its end. */
static void exec_step(struct rig_exec *exec)
{
    struct rig_chore *first = &exec->chores[0];
    struct rig *rig = exec->rig;
    if (!first->has_run) {
        first->has_run = true;
        first->at_ns = rig->clock.mono_ns + chore_delay(rig) / 4;
        first->chore->run(first->chore); /* submits nothing: first stays where it is */
        return;
    }
    struct mr_chore *chore = first->chore;
    memmove(exec->chores, exec->chores + 1, --exec->n * sizeof *exec->chores);
    if (exec->n && exec->chores[0].at_ns < rig->clock.mono_ns)
        exec->chores[0].at_ns = rig->clock.mono_ns;
    chore->done(chore);
}

uint64_t rig_env(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

void rig_init(struct rig *rig, struct simfs *fs, uint64_t seed)
{
    memset(rig, 0, sizeof *rig);
    rig->fs = fs;
    rig->clock.clock = (struct mr_clock){clock_mono, clock_wall};
    rig->clock.mono_ns = MR_NS_PER_S;
    rig->clock.wall_us = RIG_EPOCH_US;
    rig->sync_exec = (struct rig_exec){.exec = {exec_submit}, .rig = rig};
    rig->file_exec = (struct rig_exec){.exec = {exec_submit}, .rig = rig};
    rig->segment_bytes = 16 * 1024;
    rig->dir = RIG_DIR;
    mr_rand_seed(&rig->rand, seed);
}

void rig_done(struct rig *rig)
{
    if (rig->engine && !simfs_crashed(rig->fs))
        simfs_stop(rig->fs);
    rig_kill(rig);
    free(rig->sync_exec.chores);
    free(rig->file_exec.chores);
}

enum mr_err rig_open(struct rig *rig)
{
    mr_assert(!rig->engine);
    struct mr_engine_options options = {
        .base = {.dir = rig->dir,
                 .segment_bytes = rig->segment_bytes,
                 .payload_max = 4096,
                 .repair = rig->repair,
                 .nodes_elsewhere = rig->nodes_elsewhere,
                 .fs = simfs_fs(rig->fs),
                 .clock = &rig->clock.clock},
        .sync_exec = &rig->sync_exec.exec,
        .file_exec = &rig->file_exec.exec,
    };
    mr_rand_seed(&options.rand, mr_rand_next(&rig->rand));
    memset(&rig->detail, 0, sizeof rig->detail);
    enum mr_err err = mr_engine_open(&options, &rig->engine, &rig->detail);
    if (err != MR_OK)
        rig->sync_exec.n = rig->file_exec.n = 0;
    return err;
}

void rig_kill(struct rig *rig)
{
    rig->sync_exec.n = rig->file_exec.n = 0;
    if (rig->engine)
        mr_engine_abandon(rig->engine);
    rig->engine = NULL;
}

static struct rig_exec *first_exec(struct rig *rig, int64_t *ret_ns)
{
    struct rig_exec *first = NULL, *all[] = {&rig->sync_exec, &rig->file_exec};
    for (int i = 0; i < 2; i++)
        if (all[i]->n && (!first || all[i]->chores[0].at_ns < *ret_ns)) {
            first = all[i];
            *ret_ns = all[i]->chores[0].at_ns;
        }
    return first;
}

static void turn(struct rig *rig)
{
    rig->turn_at_ns = 0;
    if (simfs_crashed(rig->fs))
        return;
    mr_engine_turn(rig->engine);
    if (rig->validate && !simfs_crashed(rig->fs))
        mr_engine_validate(rig->engine);
}

/* When the engine gets its next turn by itself. */
static int64_t turn_ns(struct rig *rig)
{
    int64_t next_ns = mr_engine_next(rig->engine).ns;
    if (next_ns > rig->clock.mono_ns || rig->turn_delay_max_ns == 0)
        return next_ns;
    if (rig->turn_at_ns == 0)
        rig->turn_at_ns = rig->clock.mono_ns + 1 +
                          (int64_t)mr_rand_below(&rig->rand, (uint64_t)rig->turn_delay_max_ns);
    return rig->turn_at_ns;
}

bool rig_step(struct rig *rig, int64_t until_ns)
{
    int64_t chore_ns = INT64_MAX;
    struct rig_exec *exec = first_exec(rig, &chore_ns);
    int64_t engine_ns = turn_ns(rig);
    int64_t next_ns = chore_ns < engine_ns ? chore_ns : engine_ns;
    if (next_ns > until_ns) {
        clock_to(&rig->clock, until_ns);
        return false;
    }
    clock_to(&rig->clock, next_ns);
    if (exec && chore_ns <= engine_ns)
        exec_step(exec);
    turn(rig);
    return true;
}

void rig_run(struct rig *rig, int64_t until_ns)
{
    int spins = 0;
    int64_t before_ns = rig->clock.mono_ns;
    while (!simfs_crashed(rig->fs) && rig_step(rig, until_ns)) {
        spins = rig->clock.mono_ns == before_ns ? spins + 1 : 0;
        before_ns = rig->clock.mono_ns;
        if (spins > SPINS_MAX) {
            rig->spins = true;
            simfs_stop(rig->fs);
        }
    }
}

void rig_submit(struct rig *rig, struct mr_req *req)
{
    if (simfs_crashed(rig->fs))
        return; /* a dead process takes no requests */
    mr_broker_submit(mr_engine_broker(rig->engine), req);
    turn(rig);
}

static void call_done(struct mr_req *req)
{
    *(bool *)req->arg = true;
}

static enum mr_err wait_for(struct rig *rig, const bool *done)
{
    int64_t until_ns = rig->clock.mono_ns + call_ns_max;
    for (int i = 0; i < CALL_STEPS_MAX && !*done; i++) {
        if (simfs_crashed(rig->fs) || !rig_step(rig, until_ns))
            break;
    }
    if (*done)
        return MR_OK;
    /* The engine must not keep a request whose memory the caller takes back. */
    if (!simfs_crashed(rig->fs))
        simfs_stop(rig->fs);
    rig_kill(rig);
    return MR_CLOSED;
}

enum mr_err rig_call(struct rig *rig, struct mr_req *req)
{
    bool done = false;
    req->done = call_done;
    req->arg = &done;
    rig_submit(rig, req);
    MR_TRY(wait_for(rig, &done));
    return req->err;
}

void rig_jump(struct rig *rig, int64_t by_us)
{
    rig->clock.wall_us += by_us;
}

int64_t rig_wall_ms(const struct rig *rig)
{
    return mr_wall_ms((mr_wall){rig->clock.wall_us});
}

enum mr_err rig_view(struct rig *rig, struct rig_view *view)
{
    memset(view, 0, sizeof *view);
    bool done[3] = {false};
    struct mr_req *reqs[3] = {&view->list.req, &view->queues.req, &view->stats.req};
    static const enum mr_op ops[3] = {MR_OP_LIST, MR_OP_QUEUE_LIST, MR_OP_STATS};
    view->list.options = (struct mr_list_options){.limit = MR_BATCH_MAX, .with_payload = true};
    view->queues.infos = view->infos;
    view->queues.max = sizeof view->infos / sizeof view->infos[0];
    for (int i = 0; i < 3; i++) {
        reqs[i]->op = ops[i];
        reqs[i]->done = call_done;
        reqs[i]->arg = &done[i];
        mr_broker_submit(mr_engine_broker(rig->engine), reqs[i]);
    }
    turn(rig);
    view->quiet = done[0] && done[1]; /* answered at once: there was nothing to wait for */
    for (int i = 0; i < 3; i++) {
        MR_TRY(wait_for(rig, &done[i]));
        MR_TRY(reqs[i]->err);
    }
    mr_assert(view->list.next[0] == 0); /* stores of the tests fit one page */
    view->view = (struct oracle_view){view->list.tasks, view->list.n, view->infos, view->queues.n,
                                      &view->stats.stats};
    return MR_OK;
}

void rig_view_done(struct rig_view *view)
{
    mr_req_done(&view->list.req);
    mr_req_done(&view->queues.req);
    mr_req_done(&view->stats.req);
}

enum mr_err rig_judge(struct rig *rig, struct oracle *oracle, enum rig_judge how,
                      uint64_t *ret_digest)
{
    for (int look = 0; look < LOOKS_MAX; look++) {
        struct rig_view view;
        enum mr_err err = rig_view(rig, &view);
        bool stopped = err == MR_OK && view.stats.stats.failed;
        bool judged = err == MR_OK && view.quiet && !stopped;
        oracle_time(oracle, rig_wall_ms(rig));
        if (stopped) {
            oracle_check_stopped(oracle, &view.view);
            err = MR_IO;
        }
        if (judged && how == RIG_CHECK_IDLE)
            oracle_check_idle(oracle, &view.view);
        else if (judged)
            oracle_check(oracle, &view.view);
        if (judged && ret_digest)
            *ret_digest = oracle_digest(&view.view);
        rig_view_done(&view);
        if (judged || err != MR_OK)
            return err;
    }
    oracle_fail(oracle, "the store never comes to rest");
    return MR_BUSY;
}

/* ---- results -------------------------------------------------------------------------------- */

static void tell_nobody(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    (void)epoch, (void)reason, (void)arg;
}

/* Shows the oracle what was taken; in order, since their times are what they stand by. */
static void judge_taken(struct rig *rig, struct oracle *oracle, struct mr_req_take *take)
{
    int64_t before_ms = INT64_MIN;
    while (take->leases) {
        struct mr_lease *lease = take->leases;
        take->leases = lease->next;
        if (mr_broker_lease_open(mr_engine_broker(rig->engine), lease) != MR_OK)
            oracle_fail(oracle, "a result does not open");
        else
            (void)oracle_result(oracle, lease);
        if (lease->task.order_time_ms < before_ms)
            oracle_fail(oracle, "results are not in the order of finishing");
        before_ms = lease->task.order_time_ms;
        mr_lease_free(lease);
    }
}

enum mr_err rig_judge_results(struct rig *rig, struct oracle *oracle)
{
    char name[MR_NAME_MAX + 1];
    struct mr_worker_queue queue = {.name = mr_result_queue(mr_slice_str("outcomes"), name)};
    struct mr_req_node_open open = {.req.op = MR_OP_NODE_OPEN,
                                    .role = MR_NODE_MASTER,
                                    .queues = &queue,
                                    .queues_n = 1,
                                    .lease_ms = 60000,
                                    .events.stop = tell_nobody};
    enum mr_err err = rig_call(rig, &open.req);
    mr_req_done(&open.req);
    if (err != MR_OK)
        return err;
    oracle_results_begin(oracle);
    do {
        struct mr_req_take take = {.req.op = MR_OP_TAKE, .node = open.node, .max = MR_BATCH_MAX};
        err = rig_call(rig, &take.req);
        if (err == MR_OK)
            judge_taken(rig, oracle, &take);
        mr_req_done(&take.req);
    } while (err == MR_OK && !oracle_error(oracle));
    if (err != MR_EMPTY)
        return err;
    oracle_results_end(oracle);
    struct mr_req_node_close close = {.req.op = MR_OP_NODE_CLOSE, .node = open.node};
    err = rig_call(rig, &close.req);
    mr_req_done(&close.req);
    return err;
}
