/* SPDX-License-Identifier: Apache-2.0 */
#include "timers/rig.h"

#include <stdio.h>
#include <sys/stat.h>

#include "broker/embedded/embedded.h"
#include "support/look.h"
#include "unit/temp_dir.h"

/* ---- clocks --------------------------------------------------------------------------------- */

static mr_mono clock_mono(struct mr_clock *clock)
{
    (void)clock;
    return mr_mono_now(mr_clock_system());
}

static mr_wall clock_wall(struct mr_clock *clock)
{
    struct rig_clock *ours = (struct rig_clock *)clock;
    return (mr_wall){mr_wall_now(mr_clock_system()).us + atomic_load(&ours->ahead_us)};
}

void rig_clock_init(struct rig_clock *clock)
{
    *clock = (struct rig_clock){.clock = {.mono = clock_mono, .wall = clock_wall}};
}

int64_t rig_now_ms(void)
{
    return mr_wall_ms(mr_wall_now(mr_clock_system()));
}

mr_mono rig_mono(void)
{
    return mr_mono_now(mr_clock_system());
}

int64_t rig_elapsed_ms(mr_mono since)
{
    return (rig_mono().ns - since.ns) / MR_NS_PER_MS;
}

void rig_wait_a_moment(mr_mono since, const char *what)
{
    if (!look_again(since, RIG_WAIT_MS))
        fail_msg("waited %d ms: %s", RIG_WAIT_MS, what);
}

bool rig_full(void)
{
    const char *size = getenv("MR_ACCEPT");
    return size != NULL && strcmp(size, "full") == 0;
}

bool rig_alone(void)
{
    return getenv("MR_ALONE") != NULL;
}

/* ---- the applier's hooks -------------------------------------------------------------------- */

static enum mr_err hook_fault(const struct mr_timer_operation *op, void *arg)
{
    struct rig *rig = ((struct rig_broker *)arg)->rig;
    enum mr_err err = MR_OK;
    mr_lock_enter(&rig->lock);
    if (rig->faulty[0] && mr_slice_starts_with(op->name, mr_slice_str(rig->faulty))) {
        if (rig->attempts_n < sizeof rig->attempts_ms / sizeof *rig->attempts_ms)
            rig->attempts_ms[rig->attempts_n] = rig_now_ms();
        rig->attempts_n++;
        if (rig->faults_left != 0)
            err = MR_UNAVAILABLE;
        rig->faults_left -= rig->faults_left > 0;
    }
    mr_lock_leave(&rig->lock);
    return err;
}

static void hook_dead(const struct mr_timer_dead *dead, void *arg)
{
    struct rig *rig = ((struct rig_broker *)arg)->rig;
    mr_lock_enter(&rig->lock);
    rig->dead_n++;
    rig->dead_attempts = dead->attempts;
    (void)snprintf(rig->dead_reason, sizeof rig->dead_reason, "%.*s", (int)dead->reason.len,
                   (const char *)dead->reason.data);
    mr_lock_leave(&rig->lock);
}

static void hook_changed(struct mr_slice app, void *arg)
{
    struct rig *rig = ((struct rig_broker *)arg)->rig;
    (void)app;
    mr_lock_enter(&rig->lock);
    rig->changes_n++;
    mr_lock_leave(&rig->lock);
}

static void hook_act(struct mr_firing_act *act, void *arg)
{
    struct rig *rig = ((struct rig_broker *)arg)->rig;
    mr_lock_enter(&rig->lock);
    if (rig->acts_n < sizeof rig->acts_ms / sizeof *rig->acts_ms)
        rig->acts_ms[rig->acts_n] = act->planned_ms;
    rig->acts_n++;
    mr_lock_leave(&rig->lock);
    act->err = MR_OK;
    act->done(act);
}

/* ---- parts ---------------------------------------------------------------------------------- */

static void open_store(struct rig *rig)
{
    char url[RIG_DIR_MAX];
    struct mr_store_options options = {.url = url, .away_ms = rig->away_ms};
    struct mr_detail detail = {.text = ""};
    (void)snprintf(url, sizeof url, "sqlite:%s/store.db", rig->dir);
    enum mr_err err = mr_store_open(&options, &rig->store, &detail);
    if (err != MR_OK)
        fail_msg("%s: %s", url, detail.text);
}

struct rig_broker *rig_broker(struct rig *rig, size_t i)
{
    struct rig_broker *b = &rig->brokers[i];
    struct mr_embedded_options options = {.dir = b->dir, .segment_bytes = 4 * 1024 * 1024};
    struct mr_detail detail = {.text = ""};
    if (b->broker != NULL)
        return b;
    b->rig = rig;
    char dir[RIG_DIR_MAX];
    (void)snprintf(dir, sizeof dir, "%s/broker%zu", rig->dir, i);
    memcpy(b->dir, dir, sizeof b->dir);
    enum mr_err err = mr_embedded_open(&options, &b->broker, &detail);
    if (err != MR_OK)
        fail_msg("%s: %s", b->dir, detail.text);
    struct mr_timer_door_options door = {.broker = b->broker, .zones = rig->zones};
    assert_int_equal(mr_timer_door_new(&door, &b->door), MR_OK);
    return b;
}

void rig_apply(struct rig_broker *b)
{
    struct mr_applier_options options = {
        .broker = b->broker,
        .store = b->rig->store,
        .zones = b->rig->zones,
        .clock = &b->rig->clock.clock,
        .settings = &b->rig->settings,
        .changed = hook_changed,
        .act = hook_act,
        .dead = hook_dead,
        .fault = hook_fault,
        .arg = b,
    };
    assert_null(b->applier);
    assert_int_equal(mr_applier_start(&options, &b->applier), MR_OK);
}

void rig_no_apply(struct rig_broker *b)
{
    mr_applier_stop(b->applier);
    b->applier = NULL;
}

void rig_close(struct rig_broker *b)
{
    if (b->broker == NULL)
        return;
    rig_no_apply(b);
    mr_timer_door_free(b->door);
    mr_broker_close(b->broker);
    b->broker = NULL;
}

void rig_reopen_store(struct rig *rig)
{
    for (size_t i = 0; i < RIG_BROKERS_MAX; i++)
        rig_no_apply(&rig->brokers[i]);
    mr_store_close(rig->store);
    open_store(rig);
}

struct rig *rig_make_idle(void)
{
    struct rig *rig = calloc(1, sizeof *rig);
    char dir[TEMP_DIR_MAX];
    assert_non_null(rig);
    temp_dir_make(dir);
    (void)snprintf(rig->dir, sizeof rig->dir, "%.47s", dir);
    mr_lock_init(&rig->lock);
    rig_clock_init(&rig->clock);
    assert_int_equal(mr_zones_new(mr_fs_system(), NULL, &rig->zones), MR_OK);
    open_store(rig);
    (void)rig_broker(rig, 0);
    return rig;
}

struct rig *rig_make(void)
{
    struct rig *rig = rig_make_idle();
    rig_apply(&rig->brokers[0]);
    return rig;
}

void rig_free(struct rig *rig)
{
    for (size_t i = 0; i < RIG_BROKERS_MAX; i++)
        rig_close(&rig->brokers[i]);
    mr_store_close(rig->store);
    mr_zones_free(rig->zones);
    mr_lock_done(&rig->lock);
    temp_dir_remove(rig->dir);
    free(rig);
}

/* ---- operations ----------------------------------------------------------------------------- */

static void make_id(char text[MR_TIMER_ID_MAX + 1])
{
    struct mr_uuid uuid;
    mr_uuid_make(&uuid, mr_wall_now(mr_clock_system()), mr_rand_of_thread());
    mr_uuid_format(&uuid, text);
}

uint64_t rig_version(void)
{
    static _Atomic uint64_t last;
    return mr_timer_version(&last, mr_wall_now(mr_clock_system()), 0);
}

void rig_op_put(struct rig_op *op, const struct mr_timer_options *timer, const char *id,
                uint64_t version)
{
    *op = (struct rig_op){0};
    make_id(op->operation);
    if (id != NULL)
        (void)snprintf(op->id, sizeof op->id, "%s", id);
    else
        make_id(op->id);
    assert_int_equal(mr_timer_encode(timer, &op->definition), MR_OK);
    op->op = (struct mr_timer_operation){
        .operation = mr_slice_str(op->operation),
        .verb = MR_TIMER_PUT,
        .app = timer->app,
        .name = timer->name,
        .id = mr_slice_str(op->id),
        .version = version,
        .created_ms = rig_now_ms(),
        .definition = mr_buf_slice(&op->definition),
    };
}

void rig_op_do(struct rig_op *op, enum mr_timer_verb verb, const char *name, uint64_t version)
{
    *op = (struct rig_op){0};
    make_id(op->operation);
    (void)snprintf(op->name, sizeof op->name, "%s", name);
    op->op = (struct mr_timer_operation){.operation = mr_slice_str(op->operation),
                                         .verb = verb,
                                         .name = mr_slice_str(op->name),
                                         .version = version};
}

void rig_op_done(struct rig_op *op)
{
    mr_buf_done(&op->definition);
}

static void sent(struct mr_timer_sending *sending)
{
    mr_event_set(sending->arg);
}

void rig_send_all(struct rig_broker *b, const struct mr_timer_operation *ops, size_t n,
                  enum mr_timer_wait wait, struct mr_timer_result *ret_results)
{
    struct mr_event answered;
    struct mr_timer_sending sending = {.ops = ops,
                                       .n = n,
                                       .wait = wait,
                                       .wait_ms = RIG_WAIT_MS,
                                       .results = ret_results,
                                       .done = sent,
                                       .arg = &answered};
    mr_event_init(&answered);
    mr_timer_door_send(b->door, &sending);
    mr_event_wait(&answered, INT64_MAX);
    assert_int_equal(sending.err, MR_OK);
}

struct mr_timer_result rig_send(struct rig_broker *b, const struct mr_timer_operation *op,
                                enum mr_timer_wait wait)
{
    struct mr_timer_result result;
    rig_send_all(b, op, 1, wait, &result);
    return result;
}

struct mr_timer_result rig_put(struct rig_broker *b, const struct mr_timer_options *timer)
{
    struct rig_op op;
    rig_op_put(&op, timer, NULL, rig_version());
    struct mr_timer_result result = rig_send(b, &op.op, MR_TIMER_APPLIED);
    rig_op_done(&op);
    if (result.err != MR_OK)
        fail_msg("put: %s: %s", mr_err_name(result.err), result.why);
    return result;
}

struct mr_timer_result rig_delete(struct rig_broker *b, const char *name)
{
    struct rig_op op;
    rig_op_do(&op, MR_TIMER_DELETE, name, rig_version());
    return rig_send(b, &op.op, MR_TIMER_APPLIED);
}

void rig_smuggle(struct rig_broker *b, struct mr_slice payload, char id[MR_ID_MAX + 1])
{
    struct mr_task_options task = {.queue = MR_SLICE_LIT(MR_TIMERS_QUEUE),
                                   .type = MR_SLICE_LIT("put"),
                                   .max_retry = MR_RETRY_MAX,
                                   .payload = payload};
    struct mr_enqueue_result result;
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = &task, .n = 1, .results = &result, .inner = true};
    assert_int_equal(mr_broker_call(b->broker, &req.req), MR_OK);
    mr_req_done(&req.req);
    assert_int_equal(result.err, MR_OK);
    memcpy(id, result.id, sizeof result.id);
}

/* ---- looking -------------------------------------------------------------------------------- */

void rig_get(struct rig *rig, const char *name, struct rig_timer *ret_timer)
{
    struct mr_store_timer_key key = {.app = MR_SLICE_LIT(MR_TIMER_APP), .name = mr_slice_str(name)};
    struct mr_store_timer_get get = {.req = {.op = MR_STORE_TIMER_GET}, .keys = &key, .n = 1};
    assert_int_equal(mr_store_call(rig->store, &get.req), MR_OK);
    *ret_timer = (struct rig_timer){.row = get.timers[0], .arena = get.req.arena};
    if (ret_timer->row.definition.len > 0)
        assert_int_equal(
            mr_timer_decode(ret_timer->row.definition, &ret_timer->arena, &ret_timer->options),
            MR_OK);
}

void rig_timer_done(struct rig_timer *timer)
{
    mr_arena_done(&timer->arena);
}

enum mr_row_state rig_state(struct rig *rig, const char *name)
{
    struct rig_timer timer;
    rig_get(rig, name, &timer);
    rig_timer_done(&timer);
    return timer.row.state;
}

uint64_t rig_count(struct rig *rig)
{
    struct mr_store_stats stats = {.req = {.op = MR_STORE_STATS}};
    assert_int_equal(mr_store_call(rig->store, &stats.req), MR_OK);
    mr_store_req_done(&stats.req);
    return stats.timers[MR_ROW_ACTIVE] + stats.timers[MR_ROW_PAUSED] +
           stats.timers[MR_ROW_FINISHED];
}

uint64_t rig_operations(struct rig_broker *b, enum mr_state state)
{
    struct mr_queue_info info;
    struct mr_req_queue_list req = {.req = {.op = MR_OP_QUEUE_LIST},
                                    .only = MR_SLICE_LIT(MR_TIMERS_QUEUE),
                                    .infos = &info,
                                    .max = 1};
    enum mr_err err = mr_broker_call(b->broker, &req.req);
    mr_req_done(&req.req);
    assert_true(err == MR_OK || err == MR_NOT_FOUND);
    return err == MR_OK ? info.counts[state] : 0;
}

void rig_await_count(struct rig *rig, uint64_t n)
{
    mr_mono since = rig_mono();
    while (rig_count(rig) != n)
        rig_wait_a_moment(since, "for so many timers");
}

void rig_await_operations(struct rig_broker *b, enum mr_state state, uint64_t n)
{
    mr_mono since = rig_mono();
    while (rig_operations(b, state) != n)
        rig_wait_a_moment(since, "for so many operations");
}

enum mr_err rig_end(struct rig_broker *b, const char *id, struct mr_arena *arena,
                    struct mr_task *ret_task)
{
    struct mr_req_await req = {
        .req = {.op = MR_OP_AWAIT}, .id = mr_slice_str(id), .wait_ms = RIG_WAIT_MS};
    enum mr_err err = mr_broker_call(b->broker, &req.req);
    *ret_task = req.task;
    *arena = req.req.arena;
    return err;
}
