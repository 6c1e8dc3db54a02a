/* SPDX-License-Identifier: Apache-2.0 */
#include "timers/bench.h"

#include <stdio.h>
#include <time.h>

#include "base/text.h"
#include "broker/embedded/embedded.h"
#include "broker/redis/redis.h"
#include "support/look.h"
#include "support/postgres_rig.h"
#include "support/redis_rig.h"
#include "timer/sched/internal.h"
#include "unit/temp_dir.h"
#include "worker/worker.h"

/* ---- clocks ---------------------------------------------------------------------------------- */

static mr_mono clock_mono(struct mr_clock *clock)
{
    struct bench_clock *c = mr_container(clock, struct bench_clock, clock);
    mr_mono now = c->stopped ? (mr_mono){0} : mr_mono_now(mr_clock_system());
    now.ns += atomic_load(&c->on_us) * MR_NS_PER_US;
    return now;
}

static mr_wall clock_wall(struct mr_clock *clock)
{
    struct bench_clock *c = mr_container(clock, struct bench_clock, clock);
    mr_wall now = c->stopped ? (mr_wall){0} : mr_wall_now(mr_clock_system());
    now.us += atomic_load(&c->on_us) + atomic_load(&c->wall_us);
    if (atomic_load(&c->leap_us) != 0 && atomic_fetch_sub(&c->leap_after, 1) == 0)
        atomic_fetch_add(&c->on_us, atomic_exchange(&c->leap_us, 0));
    return now;
}

int64_t bench_now_ms(const struct bench *bench)
{
    return mr_wall_ms(mr_wall_now((struct mr_clock *)&bench->clock.clock));
}

static void wake_all(struct bench *bench)
{
    for (size_t i = 0; i < BENCH_SERVERS_MAX; i++) {
        if (bench->servers[i].scheduler != NULL)
            mr_chan_wake(&bench->servers[i].scheduler->desk.inbox);
    }
}

void bench_go_to(struct bench *bench, int64_t wall_ms)
{
    int64_t by_us = wall_ms * MR_US_PER_MS - mr_wall_now(&bench->clock.clock).us;
    assert_true(bench->clock.stopped && by_us >= 0);
    atomic_fetch_add(&bench->clock.on_us, by_us);
    wake_all(bench);
}

void bench_leap(struct bench *bench, int64_t by_ms, int looks)
{
    assert_int_equal(atomic_load(&bench->clock.leap_us), 0);
    atomic_store(&bench->clock.leap_after, looks);
    atomic_store(&bench->clock.leap_us, by_ms * MR_US_PER_MS);
}

void bench_set_wall(struct bench *bench, int64_t by_ms)
{
    atomic_fetch_add(&bench->clock.wall_us, by_ms * MR_US_PER_MS);
    wake_all(bench);
}

void bench_sleep_ms(int64_t ms)
{
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};
    (void)nanosleep(&left, NULL);
}

void bench_wait_a_moment(mr_mono since, const char *what, const char *file, int line)
{
    if (!look_again(since, BENCH_WAIT_MS)) {
        print_error("waited for %s\n", what);
        _fail(file, line);
    }
}

/* ---- the worker ------------------------------------------------------------------------------ */

static size_t run_begin(struct bench *bench, const struct mr_task *task)
{
    mr_lock_enter(&bench->lock);
    if (bench->runs_n == bench->runs_cap) {
        bench->runs_cap = bench->runs_cap > 0 ? 2 * bench->runs_cap : 1024;
        bench->runs = realloc(bench->runs, bench->runs_cap * sizeof *bench->runs);
        assert_non_null(bench->runs);
    }
    size_t i = bench->runs_n++;
    struct bench_run *run = &bench->runs[i];
    *run = (struct bench_run){.attempt = task->attempt,
                              .begin_us = mr_wall_now(&bench->clock.clock).us};
    snprintf(run->id, sizeof run->id, "%.*s", (int)task->id.len, (const char *)task->id.data);
    snprintf(run->payload, sizeof run->payload, "%.*s", (int)task->payload.len,
             (const char *)task->payload.data);
    mr_lock_leave(&bench->lock);
    return i;
}

void bench_note(struct bench *bench, const struct mr_task *task)
{
    (void)run_begin(bench, task);
}

static void run_end(struct bench *bench, size_t i, bool stopped)
{
    mr_lock_enter(&bench->lock);
    bench->runs[i].end_us = mr_wall_now(&bench->clock.clock).us;
    bench->runs[i].stopped = stopped;
    mr_lock_leave(&bench->lock);
}

/* Payloads are orders: "sleep MS", "fail", "fail TIMES"; all others are done at once. */
static enum mr_outcome handle(struct mr_run *run, void *arg)
{
    struct bench *bench = arg;
    const struct mr_task *task = mr_run_task(run);
    size_t i = run_begin(bench, task);
    int number = 0;
    char payload[64];
    snprintf(payload, sizeof payload, "%.*s", (int)task->payload.len,
             (const char *)task->payload.data);
    bool stopped = false;
    if (sscanf(payload, "sleep %d", &number) == 1)
        stopped = mr_run_wait_cancelled(run, number);
    bool fails = strcmp(payload, "fail") == 0 ||
                 (sscanf(payload, "fail %d", &number) == 1 && (int)task->attempt <= number);
    if (fails)
        mr_run_error(run, "as told");
    run_end(bench, i, stopped);
    return fails || stopped ? MR_FAIL : MR_DONE;
}

static void work_on(struct bench *bench, struct mr_broker *broker, uint32_t slots,
                    struct mr_worker **ret_worker)
{
    static const int64_t levels_ms[] = {100, 200, 400};
    struct mr_worker_queue queue = {.name = MR_SLICE_LIT("default")};
    assert_null(*ret_worker);
    assert_int_equal(mr_worker_new_on(broker,
                                      &(struct mr_worker_options){.queues = &queue,
                                                                  .queues_n = 1,
                                                                  .slots = slots,
                                                                  .retry_levels_ms = levels_ms,
                                                                  .retry_levels_n = 3,
                                                                  .drain_ms = 1000},
                                      ret_worker),
                     MR_OK);
    assert_int_equal(mr_worker_handle(*ret_worker, "*", handle, bench), MR_OK);
    assert_int_equal(mr_worker_start(*ret_worker), MR_OK);
}

void bench_work(struct bench *bench, uint32_t slots)
{
    work_on(bench, bench->broker, slots, &bench->worker);
}

struct mr_worker *bench_hire(struct bench *bench, const char *node)
{
    struct mr_worker_queue queue = {.name = MR_SLICE_LIT("default")};
    struct mr_worker *worker;
    assert_int_equal(mr_worker_new_on(bench->broker,
                                      &(struct mr_worker_options){.node = mr_slice_str(node),
                                                                  .queues = &queue,
                                                                  .queues_n = 1,
                                                                  .slots = 2,
                                                                  .drain_ms = 1000},
                                      &worker),
                     MR_OK);
    assert_int_equal(mr_worker_handle(worker, "*", handle, bench), MR_OK);
    assert_int_equal(mr_worker_start(worker), MR_OK);
    return worker;
}

void bench_unwork(struct bench *bench)
{
    mr_worker_free(bench->worker);
    bench->worker = NULL;
}

/* ---- servers --------------------------------------------------------------------------------- */

static void on_alarm(const struct mr_scheduler_alarm *alarm, void *arg)
{
    struct bench *bench = arg;
    int64_t stall_ms = atomic_exchange(&bench->stall_ms, 0);
    atomic_fetch_add(&bench->clock.on_us, stall_ms * MR_US_PER_MS);
    mr_lock_enter(&bench->lock);
    bench->alarms[alarm->kind]++;
    snprintf(bench->alarm_reason, sizeof bench->alarm_reason, "%.*s", (int)alarm->reason.len,
             (const char *)alarm->reason.data);
    mr_lock_leave(&bench->lock);
}

/* In a folder that it has in all its lives. */
static void open_home(struct bench *bench, size_t i)
{
    struct bench_server *server = &bench->servers[i];
    struct mr_detail detail = {0};
    char dir[BENCH_DIR_MAX + 32];
    snprintf(dir, sizeof dir, "%s/home-%zu", bench->dir, i);
    if (mr_embedded_open(&(struct mr_embedded_options){.dir = dir, .segment_bytes = 1 << 20},
                         &server->broker, &detail) != MR_OK)
        fail_msg("%s", detail.text);
    if (!bench->idle)
        bench_work_at(bench, i);
}

void bench_work_at(struct bench *bench, size_t i)
{
    work_on(bench, bench->servers[i].broker, 8, &bench->servers[i].worker);
}

struct bench_server *bench_serve(struct bench *bench, size_t i)
{
    struct bench_server *server = &bench->servers[i];
    char home[32];
    snprintf(home, sizeof home, "home-%zu", i);
    if (bench->homes)
        open_home(bench, i);
    struct mr_broker *broker = bench->homes ? server->broker : bench->broker;
    struct mr_scheduler_options options = {.broker = bench->before ? bench->before(broker) : broker,
                                           .home = bench->homes ? home : NULL,
                                           .gate = bench->homes ? mr_embedded_gate(server->broker)
                                                                : NULL,
                                           .store = bench->store,
                                           .clock = &bench->clock.clock,
                                           .node = "bench",
                                           .settings = &bench->settings,
                                           .alarm = on_alarm,
                                           .arg = bench};
    assert_null(server->scheduler);
    server->bench = bench;
    assert_int_equal(mr_scheduler_start(&options, &server->scheduler), MR_OK);
    return server;
}

void bench_unserve(struct bench *bench, size_t i)
{
    struct bench_server *server = &bench->servers[i];
    mr_scheduler_stop(server->scheduler);
    server->scheduler = NULL;
    mr_worker_free(server->worker);
    server->worker = NULL;
    if (server->broker != NULL)
        mr_broker_close(server->broker);
    server->broker = NULL;
}

static struct bench *prepare(bool stopped, int64_t start_ms)
{
    struct bench *bench = calloc(1, sizeof *bench);
    assert_non_null(bench);
    bench->clock.clock = (struct mr_clock){clock_mono, clock_wall};
    bench->clock.stopped = stopped;
    bench->clock.on_us = stopped ? MR_NS_PER_S / MR_NS_PER_US : 0;
    bench->clock.wall_us = start_ms * MR_US_PER_MS - bench->clock.on_us;
    mr_lock_init(&bench->lock);
    temp_dir_make(bench->dir);
    assert_int_equal(mr_zones_new(mr_fs_system(), NULL, &bench->zones), MR_OK);
    return bench;
}

static struct bench *make(bool stopped, int64_t start_ms)
{
    struct bench *bench = prepare(stopped, start_ms);
    char url[BENCH_DIR_MAX + 32], broker_dir[BENCH_DIR_MAX + 32];
    struct mr_detail detail = {0};
    snprintf(url, sizeof url, "sqlite:%s/store.db", bench->dir);
    snprintf(broker_dir, sizeof broker_dir, "%s/broker", bench->dir);
    if (mr_embedded_open(&(struct mr_embedded_options){.dir = broker_dir, .segment_bytes = 1 << 20},
                         &bench->broker, &detail) != MR_OK ||
        mr_store_open(&(struct mr_store_options){.url = url, .clock = &bench->clock.clock},
                      &bench->store, &detail) != MR_OK)
        fail_msg("%s", detail.text);
    return bench;
}

struct bench *bench_new(uint32_t slots)
{
    struct bench *bench = make(false, 0);
    if (slots > 0)
        bench_work(bench, slots);
    bench_serve(bench, 0);
    return bench;
}

static size_t servers_seen(struct bench *bench)
{
    struct mr_store_server_list req = {.req.op = MR_STORE_SERVER_LIST, .max = BENCH_SERVERS_MAX};
    assert_int_equal(mr_store_call(bench->store, &req.req), MR_OK);
    size_t n = req.n;
    mr_store_req_done(&req.req);
    return n;
}

/* Who has not begun yet when the clock goes on by hours says that it is there, is not seen to be, and waits for a second
 * that does not come. */
struct bench *bench_new_at(int64_t start_ms)
{
    struct bench *bench = make(true, start_ms);
    bench_work(bench, 4);
    bench_serve(bench, 0);
    BENCH_UNTIL(servers_seen(bench) == 1);
    bench_settle(bench);
    return bench;
}

static struct postgres_rig *postgres;

struct bench *bench_new_on_store(void)
{
    static unsigned number;
    struct bench *bench = prepare(false, 0);
    struct mr_detail detail = {0};
    if (postgres == NULL)
        postgres = postgres_rig_start(NULL);
    snprintf(bench->database, sizeof bench->database, "bench%u", number++);
    bench->postgres = postgres;
    snprintf(bench->store_url, sizeof bench->store_url, "%s",
             postgres_rig_database(postgres, bench->database));
    if (mr_store_open(&(struct mr_store_options){.url = bench->store_url}, &bench->store,
                      &detail) != MR_OK)
        fail_msg("%s", detail.text);
    return bench;
}

struct bench *bench_new_shared(uint32_t slots)
{
    struct bench *bench = bench_new_on_store();
    struct mr_detail detail = {0};
    bench->redis = redis_rig_standalone(NULL);
    if (mr_redis_broker_open(&(struct mr_redis_broker_options){.url = redis_rig_url(bench->redis)},
                             &bench->broker, &detail) != MR_OK)
        fail_msg("%s", detail.text);
    bench_work(bench, slots);
    return bench;
}

void bench_shared_end(void)
{
    postgres_rig_stop(postgres);
    postgres = NULL;
}

void bench_free(struct bench *bench)
{
    for (size_t i = 0; i < BENCH_SERVERS_MAX; i++)
        bench_unserve(bench, i);
    bench_unwork(bench);
    mr_store_close(bench->store);
    if (bench->broker != NULL)
        mr_broker_close(bench->broker);
    redis_rig_stop(bench->redis);
    mr_zones_free(bench->zones);
    temp_dir_remove(bench->dir);
    mr_lock_done(&bench->lock);
    free(bench->runs);
    free(bench->by_id);
    free(bench);
}

/* ---- timers ---------------------------------------------------------------------------------- */

static void tell_changed(struct bench *bench, struct mr_slice app)
{
    for (size_t i = 0; i < BENCH_SERVERS_MAX; i++) {
        if (bench->servers[i].scheduler != NULL)
            mr_scheduler_changed(bench->servers[i].scheduler, app);
    }
}

static uint64_t next_version(struct bench *bench)
{
    uint64_t now = (uint64_t)mr_wall_now(&bench->clock.clock).us;
    bench->version = now > bench->version ? now : bench->version + 1;
    return bench->version;
}

/* One put, in the arena. */
static struct mr_slice app_of(const struct bench *bench)
{
    return mr_slice_str(bench->app[0] != '\0' ? bench->app : MR_TIMER_APP);
}

static struct mr_store_apply put_of(struct bench *bench, const struct mr_timer_options *options,
                                    const struct bench_timer *old, struct mr_arena *arena)
{
    struct mr_timer_options canonical, of_app = *options;
    struct mr_detail detail = {0};
    struct mr_buf buf = {0};
    struct mr_rule *rule;
    int64_t created_ms = old != NULL ? old->created_ms : bench_now_ms(bench);
    int64_t after_ms =
        old != NULL ? bench_now_ms(bench) : created_ms; /* a delay of 1 ms is short */
    struct mr_store_apply item = {.verb = MR_APPLY_PUT,
                                  .version = next_version(bench),
                                  .state = options->paused ? MR_ROW_PAUSED : MR_ROW_ACTIVE,
                                  .created_ms = created_ms};
    of_app.app = app_of(bench);
    if (mr_timer_canonical(bench->zones, &of_app, created_ms, MR_PAYLOAD_MAX, arena, &canonical,
                           &detail) != MR_OK ||
        mr_timer_rule(bench->zones, &canonical, created_ms, &rule, &detail) != MR_OK)
        fail_msg("%s", detail.text);
    assert_int_equal(mr_timer_encode(&canonical, &buf), MR_OK);
    assert_int_equal(mr_arena_copy(arena, mr_buf_slice(&buf), &item.definition), MR_OK);
    assert_int_equal(mr_arena_copy(arena, canonical.app, &item.app), MR_OK);
    assert_int_equal(mr_arena_copy(arena, canonical.name, &item.name), MR_OK);
    item.next_ms = mr_rule_next(rule, old != NULL ? old->fired : 0, after_ms);
    if (old != NULL)
        item.uid = old->uid;
    else
        mr_uuid_make(&item.uid, mr_wall_now(&bench->clock.clock), mr_rand_of_thread());
    mr_rule_free(rule);
    mr_buf_done(&buf);
    return item;
}

static void apply(struct bench *bench, const struct mr_store_apply *items, size_t n)
{
    struct mr_store_applied *results = calloc(n, sizeof *results);
    struct mr_store_timers_apply req = {
        .req.op = MR_STORE_TIMERS_APPLY, .items = items, .n = n, .results = results};
    assert_non_null(results);
    assert_int_equal(mr_store_call(bench->store, &req.req), MR_OK);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(results[i].err, MR_OK);
    mr_store_req_done(&req.req);
    free(results);
    tell_changed(bench, items[0].app);
}

void bench_put(struct bench *bench, const struct mr_timer_options *options)
{
    struct mr_arena arena = {0};
    struct bench_timer old;
    char name[MR_NAME_MAX + 1];
    snprintf(name, sizeof name, "%.*s", (int)options->name.len, (const char *)options->name.data);
    bool there = bench_timer(bench, name, &old);
    struct mr_store_apply item = put_of(bench, options, there ? &old : NULL, &arena);
    apply(bench, &item, 1);
    mr_arena_done(&arena);
}

typedef void vary(struct mr_timer_options *options, char expression[32], size_t i, void *arg);

static void put_many(struct bench *bench, const struct mr_timer_options *options, const char *name,
                     size_t n, vary *change, void *arg)
{
    enum { SOME = 10000 };
    struct mr_store_apply *items = calloc(SOME, sizeof *items);
    assert_non_null(items);
    for (size_t done = 0; done < n;) {
        struct mr_arena arena = {0};
        size_t some = n - done < SOME ? n - done : SOME;
        for (size_t i = 0; i < some; i++) {
            struct mr_timer_options one = *options;
            char text[MR_NAME_MAX + 1];
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
            snprintf(text, sizeof text, name, done + i);
#pragma GCC diagnostic pop
            char expression[32];
            one.name = mr_slice_str(text);
            if (change != NULL)
                change(&one, expression, done + i, arg);
            items[i] = put_of(bench, &one, NULL, &arena);
        }
        apply(bench, items, some);
        mr_arena_done(&arena);
        done += some;
    }
    free(items);
}

void bench_put_many(struct bench *bench, const struct mr_timer_options *options, const char *name,
                    size_t n)
{
    put_many(bench, options, name, n, NULL, NULL);
}

struct spread {
    int64_t first_ms, span_ms;
    size_t n;
};

static void vary_time(struct mr_timer_options *options, char expression[32], size_t i, void *arg)
{
    const struct spread *spread = arg;
    int64_t at_ms =
        spread->first_ms + (int64_t)((double)i / (double)spread->n * (double)spread->span_ms);
    mr_format_time_ms(at_ms, expression);
    options->expression = mr_slice_str(expression);
}

void bench_put_spread(struct bench *bench, size_t n, int64_t first_ms, int64_t span_ms)
{
    struct spread spread = {first_ms, span_ms, n};
    put_many(bench, &(struct mr_timer_options){.kind = MR_TIMER_AT}, "t-%zu", n, vary_time,
             &spread);
}

void bench_delete(struct bench *bench, const char *name)
{
    struct mr_store_apply item = {.app = app_of(bench),
                                  .name = mr_slice_str(name),
                                  .verb = MR_APPLY_DELETE,
                                  .version = next_version(bench)};
    apply(bench, &item, 1);
}

void bench_pause(struct bench *bench, const char *name)
{
    struct mr_store_timer_key key = {.app = app_of(bench), .name = mr_slice_str(name)};
    struct mr_store_timer_get req = {.req.op = MR_STORE_TIMER_GET, .keys = &key, .n = 1};
    struct mr_timer_options options;
    struct mr_arena arena = {0};
    assert_int_equal(mr_store_call(bench->store, &req.req), MR_OK);
    assert_int_equal(mr_timer_decode(req.timers[0].definition, &arena, &options), MR_OK);
    options.paused = true;
    bench_put(bench, &options);
    mr_arena_done(&arena);
    mr_store_req_done(&req.req);
}

bool bench_timer(struct bench *bench, const char *name, struct bench_timer *ret_timer)
{
    struct mr_store_timer_key key = {.app = app_of(bench), .name = mr_slice_str(name)};
    struct mr_store_timer_get req = {.req.op = MR_STORE_TIMER_GET, .keys = &key, .n = 1};
    assert_int_equal(mr_store_call(bench->store, &req.req), MR_OK);
    const struct mr_store_timer *row = &req.timers[0];
    *ret_timer = (struct bench_timer){.uid = row->uid,
                                      .version = row->version,
                                      .fired = row->fired,
                                      .state = row->state,
                                      .next_ms = row->next_ms,
                                      .last_ms = row->last_ms,
                                      .created_ms = row->created_ms};
    mr_store_req_done(&req.req);
    return (MR_ROW_BIT(ret_timer->state) & MR_ROW_LIVE) != 0;
}

bool bench_caught_up(struct bench *bench, const char *name, int64_t to_ms)
{
    struct bench_timer timer;
    assert_true(bench_timer(bench, name, &timer));
    return timer.next_ms > to_ms;
}

static void acted(struct mr_firing_act *act)
{
    mr_event_set(act->arg);
}

static enum mr_err act_at(struct bench_server *server, struct mr_firing_act *act)
{
    struct mr_event event;
    mr_event_init(&event);
    act->done = acted;
    act->arg = &event;
    mr_scheduler_act(server->scheduler, act);
    assert_true(mr_event_wait(&event, BENCH_WAIT_MS * MR_NS_PER_MS));
    return act->err;
}

enum mr_err bench_act(struct bench *bench, enum mr_timer_verb verb, const char *name,
                      int64_t planned_ms)
{
    struct mr_firing_act act = {
        .verb = verb, .app = app_of(bench), .name = mr_slice_str(name), .planned_ms = planned_ms};
    return act_at(&bench->servers[0], &act);
}

/* An act on what is not there goes once through the thread and the store. */
void bench_settle(struct bench *bench)
{
    for (int round = 0; round < 10; round++) {
        for (size_t i = 0; i < BENCH_SERVERS_MAX; i++) {
            struct mr_firing_act act = {.verb = MR_TIMER_RUN,
                                        .app = MR_SLICE_LIT(MR_TIMER_APP),
                                        .name = MR_SLICE_LIT("nobody has this name"),
                                        .planned_ms = 1};
            if (bench->servers[i].scheduler != NULL)
                assert_int_equal(act_at(&bench->servers[i], &act), MR_NOT_FOUND);
        }
    }
}

void bench_leave_waiting(struct bench *bench, const char *name)
{
    struct bench_timer timer;
    assert_true(bench_timer(bench, name, &timer));
    struct mr_store_fired fired;
    struct mr_store_fire item = {.uid = timer.uid,
                                 .planned_ms = timer.next_ms,
                                 .state = MR_LEDGER_WAITING,
                                 .fired_ms = bench_now_ms(bench),
                                 .move = {.moves = true,
                                          .version = timer.version,
                                          .from_ms = timer.next_ms,
                                          .to_ms = timer.next_ms + 3600 * MR_MS_PER_S,
                                          .counts = 1,
                                          .last_ms = timer.next_ms}};
    struct mr_store_fire_batch req = {
        .req.op = MR_STORE_FIRE, .app = app_of(bench), .items = &item, .n = 1, .results = &fired};
    assert_int_equal(mr_store_call(bench->store, &req.req), MR_OK);
    assert_int_equal(fired.err, MR_OK);
    mr_store_req_done(&req.req);
}

void bench_lose_task(struct bench *bench, const char *name)
{
    struct bench_timer timer;
    char id[MR_FIRING_ID_MAX + 1];
    enum mr_err err;
    assert_true(bench_timer(bench, name, &timer));
    mr_firing_id(&timer.uid, bench_row(bench, name, 0).planned_ms, 0, id);
    struct mr_control item = {.verb = MR_VERB_DELETE, .id = mr_slice_str(id)};
    struct mr_req_control req = {.req.op = MR_OP_CONTROL, .items = &item, .n = 1, .errs = &err};
    assert_int_equal(mr_broker_call(bench->broker, &req.req), MR_OK);
    assert_int_equal(err, MR_OK);
    mr_req_done(&req.req);
}

/* ---- whose the apps are ----------------------------------------------------------------------- */

void bench_owners(struct bench *bench, struct bench_owners *ret_owners)
{
    struct mr_store_app_list req = {.req.op = MR_STORE_APP_LIST, .max = BENCH_APPS_MAX};
    *ret_owners = (struct bench_owners){0};
    assert_int_equal(mr_store_call(bench->store, &req.req), MR_OK);
    ret_owners->apps = req.n;
    for (size_t i = 0; i < req.n; i++) {
        struct mr_slice owner = req.apps[i].owner;
        bool is_first = owner.len > 0;
        snprintf(ret_owners->names[i], sizeof ret_owners->names[i], "%.*s", (int)owner.len,
                 owner.len > 0 ? (const char *)owner.data : "");
        for (size_t j = 0; j < i; j++)
            is_first = is_first && strcmp(ret_owners->names[j], ret_owners->names[i]) != 0;
        ret_owners->servers += is_first;
        ret_owners->nobodys += owner.len == 0;
    }
    mr_store_req_done(&req.req);
}

bool bench_is_shared(struct bench *bench, size_t servers, size_t each)
{
    struct bench_owners owners;
    bench_owners(bench, &owners);
    for (size_t i = 0; i < owners.apps; i++) {
        size_t n = 0;
        for (size_t j = 0; j < owners.apps; j++)
            n += strcmp(owners.names[i], owners.names[j]) == 0;
        if (n != each)
            return false;
    }
    return owners.nobodys == 0 && owners.servers == servers;
}

size_t bench_moved(struct bench *bench, const struct bench_owners *since)
{
    struct bench_owners owners;
    size_t moved = 0;
    bench_owners(bench, &owners);
    assert_int_equal(owners.apps, since->apps);
    for (size_t i = 0; i < owners.apps; i++)
        moved += strcmp(owners.names[i], since->names[i]) != 0;
    return moved;
}

/* ---- the ledger ------------------------------------------------------------------------------ */

static struct bench_row row_of(const struct mr_store_firing *firing)
{
    struct bench_row row = {.planned_ms = firing->planned_ms,
                            .until_ms = firing->until_ms,
                            .fired_ms = firing->fired_ms,
                            .started_ms = firing->started_ms,
                            .finished_ms = firing->finished_ms,
                            .run = firing->run,
                            .attempt = firing->attempt,
                            .kind = firing->kind,
                            .state = firing->state};
    snprintf(row.reason, sizeof row.reason, "%.*s", (int)firing->reason.len,
             (const char *)firing->reason.data);
    return row;
}

/* Newest first, as the store gives them; turned around at the end. */
struct bench_row *bench_rows(struct bench *bench, const char *name, size_t *ret_n)
{
    struct bench_row *rows = calloc(1, sizeof *rows);
    struct bench_timer timer;
    size_t n = 0;
    int64_t before_ms = 0;
    bool more = bench_timer(bench, name, &timer);
    while (more) {
        struct mr_store_firing_list req = {
            .req.op = MR_STORE_FIRING_LIST, .uid = timer.uid, .before_ms = before_ms, .max = 1000};
        assert_int_equal(mr_store_call(bench->store, &req.req), MR_OK);
        rows = realloc(rows, (n + req.n + 1) * sizeof *rows);
        assert_non_null(rows);
        for (size_t i = 0; i < req.n; i++)
            rows[n++] = row_of(&req.firings[i]);
        more = req.more && req.n > 0;
        before_ms = n > 0 ? rows[n - 1].planned_ms : 0;
        mr_store_req_done(&req.req);
    }
    for (size_t i = 0; i < n / 2; i++) {
        struct bench_row row = rows[i];
        rows[i] = rows[n - 1 - i];
        rows[n - 1 - i] = row;
    }
    *ret_n = n;
    return rows;
}

size_t bench_count(struct bench *bench, const char *name, unsigned states)
{
    size_t n, found = 0;
    struct bench_row *rows = bench_rows(bench, name, &n);
    for (size_t i = 0; i < n; i++)
        found += states == 0 || (MR_LEDGER_BIT(rows[i].state) & states) != 0;
    free(rows);
    return found;
}

struct bench_row bench_row(struct bench *bench, const char *name, size_t i)
{
    size_t n;
    struct bench_row *rows = bench_rows(bench, name, &n);
    struct bench_row row = {0};
    if (i < n)
        row = rows[i];
    free(rows);
    return row;
}

void bench_figures(struct bench *bench, struct mr_scheduler_figures *ret_figures)
{
    *ret_figures = (struct mr_scheduler_figures){0};
    for (size_t i = 0; i < BENCH_SERVERS_MAX; i++) {
        struct mr_scheduler_figures one;
        if (bench->servers[i].scheduler == NULL)
            continue;
        mr_scheduler_figures(bench->servers[i].scheduler, &one);
        ret_figures->apps_owned += one.apps_owned;
        ret_figures->owned += one.owned;
        ret_figures->lost += one.lost;
        ret_figures->fired += one.fired;
        ret_figures->recovered += one.recovered;
        ret_figures->reconciled += one.reconciled;
        ret_figures->moved += one.moved;
        ret_figures->retained += one.retained;
        ret_figures->clock_steps += one.clock_steps;
        ret_figures->misfired += one.misfired;
        ret_figures->skipped += one.skipped;
        ret_figures->in_memory += one.in_memory;
        for (size_t k = 0; k < MR_HIST_BUCKETS; k++)
            ret_figures->lateness.counts[k] += one.lateness.counts[k];
    }
}

size_t bench_runs(struct bench *bench)
{
    mr_lock_enter(&bench->lock);
    size_t n = bench->runs_n;
    mr_lock_leave(&bench->lock);
    return n;
}

struct bench_run bench_run(struct bench *bench, size_t i)
{
    mr_lock_enter(&bench->lock);
    assert_true(i < bench->runs_n);
    struct bench_run run = bench->runs[i];
    mr_lock_leave(&bench->lock);
    return run;
}

static int compare_times(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return x < y ? -1 : x > y;
}

uint64_t bench_lateness_us(struct bench *bench, unsigned percent)
{
    mr_lock_enter(&bench->lock);
    int64_t *late = calloc(bench->runs_n + 1, sizeof *late);
    assert_non_null(late);
    size_t n = bench->runs_n;
    for (size_t i = 0; i < n; i++) {
        struct mr_uuid uid;
        int64_t planned_ms;
        uint32_t run;
        assert_true(mr_firing_id_parse(mr_slice_str(bench->runs[i].id), &uid, &planned_ms, &run));
        late[i] = bench->runs[i].begin_us - planned_ms * MR_US_PER_MS;
        assert_true(late[i] >= 0); /* never early */
    }
    mr_lock_leave(&bench->lock);
    qsort(late, n, sizeof *late, compare_times);
    uint64_t at = n > 0 ? (uint64_t)late[(n * percent + 99) / 100 - 1] : 0;
    free(late);
    return at;
}

/* ---- the oracle ------------------------------------------------------------------------------ */

static int compare_ids(const void *a, const void *b)
{
    return strcmp(((const struct bench_run *)a)->id, ((const struct bench_run *)b)->id);
}

/* With the lock. */
static void sort_runs(struct bench *bench)
{
    if (bench->by_id_n == bench->runs_n)
        return;
    free(bench->by_id);
    bench->by_id = calloc(bench->runs_n, sizeof *bench->by_id);
    assert_non_null(bench->by_id);
    memcpy(bench->by_id, bench->runs, bench->runs_n * sizeof *bench->by_id);
    qsort(bench->by_id, bench->runs_n, sizeof *bench->by_id, compare_ids);
    bench->by_id_n = bench->runs_n;
}

static size_t runs_of(struct bench *bench, const struct mr_uuid *uid, const struct bench_row *row)
{
    char id[MR_FIRING_ID_MAX + 1];
    size_t low = 0, n = 0;
    mr_firing_id(uid, row->planned_ms, row->run, id);
    mr_lock_enter(&bench->lock);
    sort_runs(bench);
    for (size_t high = bench->by_id_n; low < high;) {
        size_t middle = (low + high) / 2;
        if (strcmp(bench->by_id[middle].id, id) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    while (low + n < bench->by_id_n && strcmp(bench->by_id[low + n].id, id) == 0)
        n++;
    mr_lock_leave(&bench->lock);
    return n;
}

static void check_row(struct bench *bench, const struct mr_uuid *uid, const struct bench_row *row)
{
    size_t n = runs_of(bench, uid, row);
    bool never_ran = row->state == MR_LEDGER_SKIPPED || row->state == MR_LEDGER_MISFIRED ||
                     row->state == MR_LEDGER_CANCELLED;
    if (never_ran && n > 0)
        fail_msg("planned %lld: %zu runs, but it is skipped", (long long)row->planned_ms, n);
    size_t attempts = row->attempt > 0 ? row->attempt : 1;
    if (row->state == MR_LEDGER_SUCCEEDED && n != attempts && !(bench->repeats && n > 0))
        fail_msg("planned %lld: %zu runs, %u attempts", (long long)row->planned_ms, n,
                 row->attempt);
}

/* Every run of the timer is of a row. */
static void check_runs(struct bench *bench, const char *name, const struct mr_uuid *uid,
                       const struct bench_row *rows, size_t n)
{
    char id[MR_FIRING_ID_MAX + 1];
    size_t of_rows = 0, all = 0;
    for (size_t i = 0; i < n; i++) {
        for (struct bench_row row = rows[i]; row.run <= rows[i].run; row.run--) {
            of_rows += runs_of(bench, uid, &row);
            if (row.run == 0)
                break;
        }
    }
    mr_firing_id(uid, 0, 0, id);
    mr_lock_enter(&bench->lock);
    for (size_t i = 0; i < bench->by_id_n; i++)
        all += memcmp(bench->by_id[i].id, id, 32) == 0;
    mr_lock_leave(&bench->lock);
    if (all != of_rows)
        fail_msg("%s: %zu runs, but the rows have %zu", name, all, of_rows);
}

static struct mr_rule *rule_of(struct bench *bench, const char *name)
{
    struct mr_store_timer_key key = {.app = app_of(bench), .name = mr_slice_str(name)};
    struct mr_store_timer_get req = {.req.op = MR_STORE_TIMER_GET, .keys = &key, .n = 1};
    struct mr_timer_options options;
    struct mr_arena arena = {0};
    struct mr_rule *rule;
    assert_int_equal(mr_store_call(bench->store, &req.req), MR_OK);
    assert_int_equal(mr_timer_decode(req.timers[0].definition, &arena, &options), MR_OK);
    assert_int_equal(mr_timer_rule(bench->zones, &options, req.timers[0].created_ms, &rule, NULL),
                     MR_OK);
    mr_arena_done(&arena);
    mr_store_req_done(&req.req);
    return rule;
}

void bench_check(struct bench *bench, const char *name, int64_t to_ms)
{
    struct bench_timer timer;
    size_t n, i = 0;
    assert_true(bench_timer(bench, name, &timer));
    struct bench_row *rows = bench_rows(bench, name, &n);
    struct mr_rule *rule = rule_of(bench, name);
    if (bench->look != NULL)
        bench->look(bench, bench->look_arg);
    int64_t at = mr_rule_next(rule, 0, timer.created_ms);
    while (at != MR_NEVER_MS && at <= to_ms) {
        while (i < n && rows[i].kind == MR_LEDGER_MANUAL)
            i++;
        if (i == n)
            fail_msg("%s: planned %lld: no row", name, (long long)at);
        if (rows[i].planned_ms != at)
            fail_msg("%s: planned %lld: the next row is %lld", name, (long long)at,
                     (long long)rows[i].planned_ms);
        check_row(bench, &timer.uid, &rows[i]);
        if (rows[i].until_ms != 0)
            at = rows[i].until_ms;
        i++;
        at = mr_rule_next(rule, 0, at);
    }
    check_runs(bench, name, &timer.uid, rows, n);
    mr_rule_free(rule);
    free(rows);
}

void bench_check_all(struct bench *bench, size_t timers, int64_t to_ms)
{
    char name[32];
    for (size_t i = 0; i < timers; i++) {
        snprintf(name, sizeof name, "t-%zu", i);
        BENCH_UNTIL(bench_caught_up(bench, name, to_ms));
        bench_pause(bench, name);
    }
    for (size_t i = 0; i < timers; i++) {
        snprintf(name, sizeof name, "t-%zu", i);
        BENCH_UNTIL(bench_count(bench, name, MR_LEDGER_OPEN) == 0);
        bench_check(bench, name, to_ms);
    }
}
