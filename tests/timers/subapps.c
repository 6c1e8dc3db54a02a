/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Apps that are cut into subApps, which several servers fire: with one broker for all of them, and with one each. What the registry
 * would say is said by the test. Never twice, none missing, whatever is split, merged and moved.
 */
#include <stdio.h>

#include "timer/plan_view.h"
#include "timers/bench.h"
#include "timers/rig.h"

#define SECOND 1000LL

enum { TIMERS = 24 };

/* ---- what is seen ---------------------------------------------------------------------------- */

struct plan {
    size_t parts, owners, moves;
    uint64_t slots;   /* of all parts together */
    bool whole;       /* each slot has one of them, and each of them an owner */
    size_t most, few; /* slots of a part */
    char last[128];   /* reason of a move */
};

static size_t count_owners(const struct mr_plan_look *look)
{
    size_t n = 0;
    for (size_t i = 0; i < look->parts_n; i++) {
        bool is_first = look->parts[i].owner.len > 0;
        for (size_t k = 0; k < i; k++)
            is_first = is_first && !mr_slice_equal(look->parts[i].owner, look->parts[k].owner);
        n += is_first;
    }
    return n;
}

static struct plan look(struct bench *bench)
{
    struct mr_plan_look look = {0};
    struct plan plan = {.whole = true, .few = 64};
    assert_int_equal(mr_plan_look(bench->store, &look), MR_OK);
    plan.parts = look.parts_n;
    plan.owners = count_owners(&look);
    plan.moves = look.moves_n;
    for (size_t i = 0; i < look.parts_n; i++) {
        const struct mr_plan_part *part = &look.parts[i];
        size_t slots = (size_t)__builtin_popcountll(part->slots);
        plan.whole =
            plan.whole && (plan.slots & part->slots) == 0 && part->owner.len > 0 && part->is_cut;
        plan.slots |= part->slots;
        plan.most = slots > plan.most ? slots : plan.most;
        plan.few = slots < plan.few ? slots : plan.few;
    }
    plan.whole = plan.whole && plan.slots == UINT64_MAX;
    if (look.moves_n > 0)
        snprintf(plan.last, sizeof plan.last, "%.*s", (int)look.moves[0].reason.len,
                 (const char *)look.moves[0].reason.data);
    mr_plan_look_done(&look);
    return plan;
}

static bool is_cut(struct bench *bench, size_t parts, size_t owners)
{
    struct plan plan = look(bench);
    return plan.whole && plan.parts == parts && plan.owners == owners;
}

/* ---- what is said ---------------------------------------------------------------------------- */

struct said {
    size_t workers;
    bool is_partial;
    int64_t first_load; /* of each subApp of the first server; 0: what they say themselves */
    int64_t rest_load;  /* of the others */
};

/* The first server's name, for what it is to have as loads. */
static void add_made_up(struct bench *bench, const struct said *said, const struct mr_loads *names,
                        struct mr_view_server *servers, struct mr_view_load *loads)
{
    struct mr_plan_look look = {0};
    size_t n = 0;
    assert_int_equal(mr_plan_look(bench->store, &look), MR_OK);
    for (size_t i = 0; i < BENCH_SERVERS_MAX; i++) {
        servers[i].loads = loads + n;
        servers[i].loads_n = 0;
        for (size_t k = 0; k < look.parts_n; k++) {
            if (names[i].server.len == 0 || !mr_slice_equal(look.parts[k].owner, names[i].server))
                continue;
            loads[n++] = (struct mr_view_load){.app = MR_SLICE_LIT(MR_TIMER_APP),
                                               .part = look.parts[k].part,
                                               .load = i == 0 ? said->first_load : said->rest_load};
            servers[i].loads_n++;
        }
    }
    mr_plan_look_done(&look);
}

static void say(struct bench *bench, struct said said)
{
    struct mr_loads loads[BENCH_SERVERS_MAX] = {0};
    struct mr_view_server servers[BENCH_SERVERS_MAX] = {0};
    struct mr_view_load made_up[BENCH_APPS_MAX];
    struct mr_view_app app = {MR_SLICE_LIT(MR_TIMER_APP), said.workers};
    struct mr_view view = {.apps = &app, .apps_n = 1, .complete = !said.is_partial};
    for (size_t i = 0; i < BENCH_SERVERS_MAX; i++) {
        if (bench->servers[i].scheduler == NULL)
            continue;
        assert_int_equal(mr_scheduler_loads(bench->servers[i].scheduler, &loads[i]), MR_OK);
        assert_true(loads[i].server.len > 0);
        servers[i] = (struct mr_view_server){
            .server = loads[i].server, .loads = loads[i].loads, .loads_n = loads[i].n};
    }
    if (said.first_load > 0)
        add_made_up(bench, &said, loads, servers, made_up);
    view.servers = servers;
    view.servers_n = BENCH_SERVERS_MAX;
    for (size_t i = 0; i < BENCH_SERVERS_MAX; i++) {
        if (bench->servers[i].scheduler != NULL)
            assert_int_equal(mr_scheduler_set_view(bench->servers[i].scheduler, &view), MR_OK);
    }
    for (size_t i = 0; i < BENCH_SERVERS_MAX; i++)
        mr_loads_done(&loads[i]);
}
#define SAY(bench, ...) say(bench, (struct said){__VA_ARGS__})

/* ---- the bench ------------------------------------------------------------------------------- */

static struct bench *start(size_t servers, bool homes)
{
    struct bench *bench = bench_new(homes ? 0 : 8);
    bench->settings = (struct mr_timer_settings){.lease_ms = 60 * SECOND,
                                                 .renew_ms = 500,
                                                 .give_ms = 60 * SECOND, /* all is given */
                                                 .merge_ms = 300,
                                                 .reconcile_ms = 300,
                                                 .cool_ms = 300};
    bench_unserve(bench, 0);
    bench->homes = homes;
    for (size_t i = 0; i < servers; i++)
        bench_serve(bench, i);
    return bench;
}

static void put_timers(struct bench *bench)
{
    bench_put_many(bench, BENCH_TIMER("", MR_TIMER_EVERY, "400ms", .misfire = MR_MISFIRE_ALL),
                   "t-%zu", TIMERS);
}

static void run_on(struct bench *bench)
{
    size_t runs = bench_runs(bench);
    BENCH_UNTIL(bench_runs(bench) > runs + 2 * TIMERS);
}

static void finish(struct bench *bench)
{
    run_on(bench);
    bench_check_all(bench, TIMERS, bench_now_ms(bench));
    bench_free(bench);
}

/* ---- splitting and merging ------------------------------------------------------------------- */

static void test_67_the_third_worker_splits_the_app(void **state)
{
    (void)state;
    struct bench *bench = start(2, false);
    put_timers(bench);
    SAY(bench, .workers = 2);
    BENCH_UNTIL(is_cut(bench, 1, 1));
    run_on(bench);
    SAY(bench, .workers = 3);
    BENCH_UNTIL(is_cut(bench, 2, 2)); /* the new one is on the server that had none */
    assert_int_equal(look(bench).most, 32);
    assert_string_equal(look(bench).last, "split");
    finish(bench);
}

static void test_68_the_fifth_worker_splits_it_again(void **state)
{
    (void)state;
    struct bench *bench = start(3, false);
    put_timers(bench);
    SAY(bench, .workers = 4);
    BENCH_UNTIL(is_cut(bench, 2, 2));
    run_on(bench);
    assert_true(is_cut(bench, 2, 2));
    SAY(bench, .workers = 5);
    BENCH_UNTIL(is_cut(bench, 3, 3));
    assert_true(look(bench).most - look(bench).few <= 1);
    finish(bench);
}

static void merge(bool homes)
{
    struct bench *bench = start(3, homes);
    put_timers(bench);
    SAY(bench, .workers = 6);
    BENCH_UNTIL(is_cut(bench, 3, 3));
    run_on(bench);
    SAY(bench, .workers = 1, .is_partial = true); /* who knows too little merges nothing */
    run_on(bench);
    run_on(bench);
    assert_true(is_cut(bench, 3, 3));
    SAY(bench, .workers = 1);
    BENCH_UNTIL(is_cut(bench, 1, 1));
    finish(bench);
}

static void test_69_workers_that_leave_merge_it(void **state)
{
    (void)state;
    merge(false);
}

static void test_69_workers_that_leave_merge_it_with_a_broker_each(void **state)
{
    (void)state;
    merge(true);
}

static void again_and_again(bool homes)
{
    struct bench *bench = start(3, homes);
    size_t rounds = rig_full() ? 50 : 3;
    put_timers(bench);
    for (size_t i = 0; i < rounds; i++) {
        SAY(bench, .workers = 7);
        BENCH_UNTIL(is_cut(bench, 4, 3));
        SAY(bench, .workers = 3);
        BENCH_UNTIL(look(bench).parts == 2 && look(bench).whole);
    }
    finish(bench);
}

static void test_71_split_and_merged_under_load(void **state)
{
    (void)state;
    again_and_again(false);
}

static void test_71_split_and_merged_under_load_with_a_broker_each(void **state)
{
    (void)state;
    again_and_again(true);
}

static void test_67_without_a_view_no_app_is_cut(void **state)
{
    (void)state;
    struct bench *bench = start(2, false);
    struct bench_owners owners;
    put_timers(bench);
    run_on(bench);
    bench_owners(bench, &owners);
    assert_int_equal(owners.apps, 1);
    assert_int_equal(owners.nobodys, 0);
    struct mr_store_subapps_list list = {.req.op = MR_STORE_SUBAPPS_LIST, .max = 9};
    assert_int_equal(mr_store_call(bench->store, &list.req), MR_OK);
    assert_int_equal(list.n, 0);
    mr_store_req_done(&list.req);
    finish(bench);
}

/* ---- balance --------------------------------------------------------------------------------- */

static void test_72_one_subapp_moves_from_who_has_more_than_twice(void **state)
{
    (void)state;
    struct bench *bench = start(1, true);
    put_timers(bench);
    SAY(bench, .workers = 4);
    BENCH_UNTIL(is_cut(bench, 2, 1));
    bench_serve(bench, 1); /* it is idle: a candidate at once */
    SAY(bench, .workers = 4, .first_load = 100, .rest_load = 10);
    BENCH_UNTIL(is_cut(bench, 2, 2));
    size_t moves = look(bench).moves;
    assert_memory_equal(look(bench).last, "moved", 5);
    for (int i = 0; i < 5; i++) { /* now they have as much as each other */
        SAY(bench, .workers = 4, .first_load = 100, .rest_load = 100);
        run_on(bench);
    }
    assert_int_equal(look(bench).moves, moves);
    finish(bench);
}

static void test_73_at_less_than_twice_nothing_moves(void **state)
{
    (void)state;
    struct bench *bench = start(2, false);
    put_timers(bench);
    SAY(bench, .workers = 4);
    BENCH_UNTIL(is_cut(bench, 2, 2));
    size_t moves = look(bench).moves;
    for (int i = 0; i < 5; i++) {
        SAY(bench, .workers = 4, .first_load = 190, .rest_load = 100);
        run_on(bench);
    }
    assert_int_equal(look(bench).moves, moves);
    finish(bench);
}

/* ---- servers that go ------------------------------------------------------------------------- */

static void goes(bool homes)
{
    struct bench *bench = start(3, homes);
    put_timers(bench);
    SAY(bench, .workers = 6);
    BENCH_UNTIL(is_cut(bench, 3, 3));
    run_on(bench);
    bench_unserve(bench, 1);
    BENCH_UNTIL(is_cut(bench, 3, 2));
    run_on(bench);
    bench_unserve(bench, 0);
    BENCH_UNTIL(is_cut(bench, 3, 1));
    bench_serve(bench, 0);
    finish(bench);
}

static void test_75_what_a_server_has_goes_to_the_others(void **state)
{
    (void)state;
    goes(false);
}

/* What is in the broker of a server that is gone is made anew by who has the subApp then. */
static void test_75_tasks_of_a_server_that_is_gone_are_made_anew(void **state)
{
    (void)state;
    struct bench *bench = start(2, true);
    bench_put_many(bench,
                   BENCH_TIMER("", MR_TIMER_DELAY, "1ms", .payload = MR_SLICE_LIT("sleep 400")),
                   "t-%zu", TIMERS);
    SAY(bench, .workers = 4);
    BENCH_UNTIL(is_cut(bench, 2, 2));
    bench_put_many(bench,
                   BENCH_TIMER("", MR_TIMER_DELAY, "1ms", .payload = MR_SLICE_LIT("sleep 400")),
                   "u-%zu", TIMERS);
    for (size_t i = 0; i < TIMERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "u-%zu", i);
        BENCH_UNTIL(bench_count(bench, name, 0) == 1 &&
                    bench_count(bench, name, MR_LEDGER_BIT(MR_LEDGER_WAITING)) == 0);
    }
    bench_unserve(bench, 1); /* most of its tasks have not begun */
    for (size_t i = 0; i < 2 * TIMERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "%c-%zu", i < TIMERS ? 't' : 'u', i % TIMERS);
        BENCH_UNTIL(bench_count(bench, name, MR_LEDGER_BIT(MR_LEDGER_SUCCEEDED)) == 1);
        assert_int_equal(bench_count(bench, name, 0), 1);
    }
    bench_serve(bench, 1);
    bench_free(bench);
}

/* Tasks that wait in a server's own broker. */
static uint64_t waiting_at(struct bench *bench, size_t i)
{
    struct mr_queue_info info = {0};
    struct mr_req_queue_list list = {
        .req.op = MR_OP_QUEUE_LIST, .only = MR_SLICE_LIT("default"), .infos = &info, .max = 1};
    enum mr_err err = mr_broker_call(bench->servers[i].broker, &list.req);
    assert_true(err == MR_OK || err == MR_NOT_FOUND);
    mr_req_done(&list.req);
    return err == MR_OK ? info.counts[MR_PENDING] : 0;
}

static bool all_succeeded(struct bench *bench)
{
    for (size_t i = 0; i < TIMERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "t-%zu", i);
        if (bench_count(bench, name, MR_LEDGER_BIT(MR_LEDGER_SUCCEEDED)) != 1)
            return false;
    }
    return true;
}

/* Nobody works for the second server, so what it has dispatched waits there, and goes on at the first one when it is gone. */
static void test_75_a_server_that_returns_runs_nothing_that_went_on_elsewhere(void **state)
{
    (void)state;
    struct mr_scheduler_figures figures;
    struct bench *bench = start(1, true);
    bench->idle = true;
    bench_serve(bench, 1);
    bench_put(bench, BENCH_TIMER("first", MR_TIMER_EVERY, "1h"));
    SAY(bench, .workers = 4);
    BENCH_UNTIL(is_cut(bench, 2, 2));
    bench_put_many(bench, BENCH_TIMER("", MR_TIMER_DELAY, "1ms"), "t-%zu", TIMERS);
    uint64_t waiting = 0;
    BENCH_UNTIL((waiting = waiting_at(bench, 1)) > 0 && waiting + bench_runs(bench) == TIMERS);
    bench_unserve(bench, 1);
    BENCH_UNTIL(all_succeeded(bench));
    assert_int_equal(bench_runs(bench), TIMERS);
    bench_serve(bench, 1);
    assert_true(mr_scheduler_await_swept(bench->servers[1].scheduler, BENCH_WAIT_MS));
    assert_int_equal(waiting_at(bench, 1), 0);
    mr_scheduler_figures(bench->servers[1].scheduler, &figures);
    assert_int_equal(figures.moved, waiting);
    bench_work_at(bench, 1);
    bench_put_many(bench, BENCH_TIMER("", MR_TIMER_DELAY, "1ms"), "u-%zu", TIMERS);
    BENCH_UNTIL(bench_runs(bench) >= 2 * TIMERS);
    assert_int_equal(bench_runs(bench), 2 * TIMERS);
    bench_free(bench);
}

/* What nobody has made anew stays where it is. */
static void test_75_a_server_that_returns_keeps_what_is_its_own(void **state)
{
    (void)state;
    struct bench *bench = start(0, true);
    bench->idle = true;
    bench_serve(bench, 0);
    SAY(bench, .workers = 1);
    bench_put_many(bench, BENCH_TIMER("", MR_TIMER_DELAY, "1ms"), "t-%zu", TIMERS);
    BENCH_UNTIL(waiting_at(bench, 0) == TIMERS && is_cut(bench, 1, 1));
    bench_unserve(bench, 0);
    bench_serve(bench, 0);
    assert_true(mr_scheduler_await_swept(bench->servers[0].scheduler, BENCH_WAIT_MS));
    assert_int_equal(waiting_at(bench, 0), TIMERS);
    bench_work_at(bench, 0);
    BENCH_UNTIL(all_succeeded(bench));
    assert_int_equal(bench_runs(bench), TIMERS);
    bench_free(bench);
}

/* A broker that keeps the answers to enqueues to itself, as one does whose disk is slow to tell. */
static struct {
    struct mr_broker broker;
    struct mr_broker *behind;
    struct mr_lock lock;
    bool open;
    size_t n;
    struct held {
        struct mr_req *req;
        void (*done)(struct mr_req *req);
        void *arg;
    } held[64];
} reticent;

static void held_done(struct mr_req *req)
{
    struct held *held = req->arg;
    req->done = held->done;
    req->arg = held->arg;
    mr_lock_enter(&reticent.lock);
    bool open = reticent.open;
    held->req = open ? NULL : req;
    mr_lock_leave(&reticent.lock);
    if (open)
        req->done(req);
}

static void reticent_submit(struct mr_broker *broker, struct mr_req *req)
{
    (void)broker;
    mr_lock_enter(&reticent.lock);
    if (req->op == MR_OP_ENQUEUE && !reticent.open && reticent.n < 64) {
        struct held *held = &reticent.held[reticent.n++];
        *held = (struct held){.done = req->done, .arg = req->arg};
        req->done = held_done;
        req->arg = held;
    }
    mr_lock_leave(&reticent.lock);
    mr_broker_submit(reticent.behind, req);
}

static enum mr_err reticent_lease_open(struct mr_broker *broker, struct mr_lease *lease)
{
    (void)broker;
    return mr_broker_lease_open(reticent.behind, lease);
}

static struct mr_broker *be_reticent(struct mr_broker *broker)
{
    static struct mr_broker_ops ops;
    ops = (struct mr_broker_ops){.submit = reticent_submit,
                                 .lease_open = reticent_lease_open,
                                 .in_process = broker->ops->in_process};
    reticent.broker.ops = &ops;
    reticent.behind = broker;
    mr_lock_init(&reticent.lock);
    return &reticent.broker;
}

static void speak(void)
{
    mr_lock_enter(&reticent.lock);
    reticent.open = true;
    size_t n = reticent.n;
    mr_lock_leave(&reticent.lock);
    for (size_t i = 0; i < n; i++) {
        if (reticent.held[i].req != NULL)
            reticent.held[i].req->done(reticent.held[i].req);
    }
}

/* What it makes anew itself is not taken for what goes on elsewhere, though the rows do not say yet that it is here. */
static void test_75_a_server_that_returns_keeps_what_it_makes_anew(void **state)
{
    (void)state;
    enum { TWO_SWEEPS_MS = 4000 };
    struct bench *bench = start(0, true);
    bench->idle = true;
    bench_serve(bench, 1);
    SAY(bench, .workers = 1);
    bench_put_many(bench, BENCH_TIMER("", MR_TIMER_DELAY, "1ms"), "t-%zu", TIMERS);
    BENCH_UNTIL(waiting_at(bench, 1) == TIMERS && is_cut(bench, 1, 1));
    bench_unserve(bench, 1);
    bench->before = be_reticent;
    bench->settings.reconcile_ms = 60 * SECOND;
    bench_serve(bench, 0);
    SAY(bench, .workers = 1);
    BENCH_UNTIL(waiting_at(bench, 0) == TIMERS);
    bench_sleep_ms(TWO_SWEEPS_MS);
    assert_int_equal(waiting_at(bench, 0), TIMERS);
    speak();
    bench_work_at(bench, 0);
    BENCH_UNTIL(all_succeeded(bench));
    assert_int_equal(bench_runs(bench), TIMERS);
    bench_unserve(bench, 0);
    mr_lock_done(&reticent.lock);
    bench_free(bench);
}

/* A timer whose next run waits for the end of the last one: that is told by the server that has the task. */
static void test_71_ends_are_told_to_who_fires_the_timer_now(void **state)
{
    (void)state;
    struct bench *bench = start(2, true);
    SAY(bench, .workers = 1);
    bench_put_many(
        bench, BENCH_TIMER("", MR_TIMER_AFTER_DONE, "100ms", .payload = MR_SLICE_LIT("sleep 300")),
        "t-%zu", 8);
    BENCH_UNTIL(bench_runs(bench) == 8);
    SAY(bench, .workers = 3);
    BENCH_UNTIL(is_cut(bench, 2, 2));
    BENCH_UNTIL(bench_runs(bench) >= 40);
    for (size_t i = 0; i < 8; i++) {
        char name[16];
        snprintf(name, sizeof name, "t-%zu", i);
        BENCH_UNTIL(bench_count(bench, name, MR_LEDGER_BIT(MR_LEDGER_SUCCEEDED)) >= 4);
        assert_int_equal(bench_count(bench, name, MR_LEDGER_BIT(MR_LEDGER_FAILED)), 0);
    }
    bench_free(bench);
}

static void test_70_people_act_on_the_app_whoever_fires_it(void **state)
{
    (void)state;
    struct bench *bench = start(3, true);
    bench_put_many(bench, BENCH_TIMER("", MR_TIMER_EVERY, "1h"), "t-%zu", TIMERS);
    SAY(bench, .workers = 6);
    BENCH_UNTIL(is_cut(bench, 3, 3));
    for (size_t i = 0; i < TIMERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "t-%zu", i);
        assert_int_equal(bench_act(bench, MR_TIMER_RUN, name, 1000), MR_OK);
    }
    for (size_t i = 0; i < TIMERS; i++) {
        char name[16];
        snprintf(name, sizeof name, "t-%zu", i);
        BENCH_UNTIL(bench_count(bench, name, MR_LEDGER_BIT(MR_LEDGER_SUCCEEDED)) == 1);
    }
    assert_int_equal(bench_runs(bench), TIMERS);
    bench_free(bench);
}

int timers_subapps(void)
{
    struct CMUnitTest tests[] = {
        cmocka_unit_test(test_67_the_third_worker_splits_the_app),
        cmocka_unit_test(test_67_without_a_view_no_app_is_cut),
        cmocka_unit_test(test_68_the_fifth_worker_splits_it_again),
        cmocka_unit_test(test_69_workers_that_leave_merge_it),
        cmocka_unit_test(test_69_workers_that_leave_merge_it_with_a_broker_each),
        cmocka_unit_test(test_70_people_act_on_the_app_whoever_fires_it),
        cmocka_unit_test(test_71_split_and_merged_under_load),
        cmocka_unit_test(test_71_split_and_merged_under_load_with_a_broker_each),
        cmocka_unit_test(test_71_ends_are_told_to_who_fires_the_timer_now),
        cmocka_unit_test(test_72_one_subapp_moves_from_who_has_more_than_twice),
        cmocka_unit_test(test_73_at_less_than_twice_nothing_moves),
        cmocka_unit_test(test_75_what_a_server_has_goes_to_the_others),
        cmocka_unit_test(test_75_tasks_of_a_server_that_is_gone_are_made_anew),
        cmocka_unit_test(test_75_a_server_that_returns_runs_nothing_that_went_on_elsewhere),
        cmocka_unit_test(test_75_a_server_that_returns_keeps_what_is_its_own),
        cmocka_unit_test(test_75_a_server_that_returns_keeps_what_it_makes_anew),
    };
    return TIMERS_RUN("subApps", tests);
}
