/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Part I, 91 to 98 without 93: the state machine of a worker's slots, as its watch hears of it and as the
 * broker shows it.
 */
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "accept/accept.h"

#if defined __SANITIZE_ADDRESS__ || defined __SANITIZE_THREAD__
enum { MEMORY_COUNTS = 0 }; /* what was freed stays, to be watched */
#else
enum { MEMORY_COUNTS = 1 };
#endif

enum { SLOTS_MAX = 8, STEPS_MAX = 4096, STOP_MS = 1000 };

/* ---- what the watch hears ------------------------------------------------------------------- */

struct step {
    struct mr_slot_change change;
    int64_t mono_ns;
};

struct trace {
    struct mr_lock lock;
    size_t counts[MR_SLOT_STATE_COUNT][MR_SLOT_STATE_COUNT]; /* from, to */
    size_t working[SLOTS_MAX];                               /* by slot: how often it began */
    enum mr_slot_state at[SLOTS_MAX];
    size_t broken;                /* steps that did not begin where the last one ended */
    struct step steps[STEPS_MAX]; /* the first ones */
    size_t steps_n;
};

static void hear(const struct mr_slot_change *change, void *arg)
{
    struct trace *trace = arg;
    mr_lock_enter(&trace->lock);
    trace->counts[change->from][change->to]++;
    trace->broken += trace->at[change->slot] != change->from;
    trace->at[change->slot] = change->to;
    trace->working[change->slot] += change->to == MR_SLOT_WORKING;
    if (trace->steps_n < STEPS_MAX)
        trace->steps[trace->steps_n++] = (struct step){*change, accept_now().ns};
    mr_lock_leave(&trace->lock);
}

static struct trace *new_trace(void)
{
    static struct trace trace;
    memset(&trace, 0, sizeof trace);
    mr_lock_init(&trace.lock);
    return &trace;
}

static size_t steps(struct trace *trace, enum mr_slot_state from, enum mr_slot_state to)
{
    mr_lock_enter(&trace->lock);
    size_t n = trace->counts[from][to];
    mr_lock_leave(&trace->lock);
    return n;
}

static enum mr_slot_state state_of(struct trace *trace, size_t slot)
{
    mr_lock_enter(&trace->lock);
    enum mr_slot_state state = trace->at[slot];
    mr_lock_leave(&trace->lock);
    return state;
}

static size_t begun(struct trace *trace, size_t slot)
{
    mr_lock_enter(&trace->lock);
    size_t n = trace->working[slot];
    mr_lock_leave(&trace->lock);
    return n;
}

/* No step but those of the machine, and none left out. */
static void is_legal(struct trace *trace)
{
    static const bool legal[MR_SLOT_STATE_COUNT][MR_SLOT_STATE_COUNT] = {
        [MR_SLOT_PENDING] = {[MR_SLOT_POLLING] = true, [MR_SLOT_STOPPING] = true},
        [MR_SLOT_POLLING] =
            {[MR_SLOT_PENDING] = true, [MR_SLOT_WORKING] = true, [MR_SLOT_STOPPING] = true},
        [MR_SLOT_WORKING] = {[MR_SLOT_REPORTING] = true, [MR_SLOT_ERROR] = true},
        [MR_SLOT_REPORTING] = {[MR_SLOT_PENDING] = true},
        [MR_SLOT_ERROR] = {[MR_SLOT_PENDING] = true},
    };
    assert_int_equal(trace->broken, 0);
    for (int from = 0; from < MR_SLOT_STATE_COUNT; from++)
        for (int to = 0; to < MR_SLOT_STATE_COUNT; to++)
            if (trace->counts[from][to] > 0 && !legal[from][to])
                fail_msg("%s went to %s", mr_slot_state_name((enum mr_slot_state)from),
                         mr_slot_state_name((enum mr_slot_state)to));
}

static uint32_t shown(struct mr_worker *worker, enum mr_slot_state state)
{
    struct mr_worker_figures figures;
    mr_worker_figures(worker, &figures);
    return figures.slots[state];
}

/* ---- 91 to 93 ------------------------------------------------------------------------------- */

enum { PAUSE_MIN_US = 5000, PAUSE_MAX_US = 9000, PAUSE_MIDDLE_US = 7000 };

static void test_91_an_idle_slot_waits_and_polls(void **state)
{
    struct accept *t = *state;
    struct trace *trace = new_trace();
    size_t n = accept_size(1000, 200);
    struct mr_worker *worker =
        WORKER(t, .slots = 1, .poll_ms = MR_NO_WAIT, .pause_min_us = PAUSE_MIN_US,
               .pause_max_us = PAUSE_MAX_US, .watch = hear, .watch_arg = trace);
    UNTIL(steps(trace, MR_SLOT_POLLING, MR_SLOT_PENDING) > n);
    accept_dismiss(t, worker);
    is_legal(trace);
    int64_t sum_us = 0;
    size_t late = 0, early = 0;
    for (size_t i = 0, cycle = 0; cycle < n; i++) {
        const struct mr_slot_change *change = &trace->steps[i].change;
        assert_int_equal(change->to, i % 2 == 0 ? MR_SLOT_POLLING : MR_SLOT_PENDING);
        if (change->to == MR_SLOT_POLLING)
            continue;
        int64_t waited_us = (trace->steps[i + 1].mono_ns - trace->steps[i].mono_ns) / MR_NS_PER_US;
        assert_in_range(change->pause_us, PAUSE_MIN_US, PAUSE_MAX_US);
        early += waited_us < change->pause_us - 1000; /* it was told late that it began */
        late += waited_us > change->pause_us + 2000;
        sum_us += change->pause_us;
        cycle++;
    }
    assert_in_range(sum_us / (int64_t)n, PAUSE_MIDDLE_US * 95 / 100, PAUSE_MIDDLE_US * 105 / 100);
    assert_in_range(early, 0, n / 10); /* the machine may be busy */
    assert_in_range(late, 0, n / 2);
}

/* Every 32nd fails, twice; one in a thousand runs into its timeout first. */
static void test_92_no_step_but_those_of_the_machine(void **state)
{
    enum { TIMEOUT_MS = 30 };
    struct accept *t = *state;
    static const int64_t level_ms = 1;
    struct trace *trace = new_trace();
    size_t n = accept_size(100000, 2000), timeouts = n / 1000, fails = n / 32;
    accept_put_many(t, "good", n - fails - timeouts,
                    &(struct accept_task){.type = "echo", .unkept = true});
    accept_put_many(t, "bad", fails, &(struct accept_task){.type = "fail", .max_retry = 1});
    accept_put_many(t, "slow", timeouts,
                    &(struct accept_task){.type = "first", .timeout_ms = TIMEOUT_MS});
    BURST(t, .slots = SLOTS_MAX, .retry_levels_ms = &level_ms, .retry_levels_n = 1, .watch = hear,
          .watch_arg = trace);
    while (accept_total(t, MR_RETRY) + accept_total(t, MR_PENDING) > 0)
        BURST(t, .slots = SLOTS_MAX, .retry_levels_ms = &level_ms, .retry_levels_n = 1);
    is_legal(trace);
    struct trace *rest = trace;
    assert_true(rest->counts[MR_SLOT_WORKING][MR_SLOT_REPORTING] >= n - fails - timeouts);
    assert_true(rest->counts[MR_SLOT_WORKING][MR_SLOT_ERROR] >= fails + timeouts);
    assert_int_equal(rest->counts[MR_SLOT_REPORTING][MR_SLOT_PENDING],
                     rest->counts[MR_SLOT_WORKING][MR_SLOT_REPORTING]);
    assert_int_equal(rest->counts[MR_SLOT_ERROR][MR_SLOT_PENDING],
                     rest->counts[MR_SLOT_WORKING][MR_SLOT_ERROR]);
}

static void test_92_a_success_and_a_failure_step_by_step(void **state)
{
    struct accept *t = *state;
    static const enum mr_slot_state good[] = {MR_SLOT_POLLING, MR_SLOT_WORKING, MR_SLOT_REPORTING,
                                              MR_SLOT_PENDING},
                                    bad[] = {MR_SLOT_POLLING, MR_SLOT_WORKING, MR_SLOT_ERROR,
                                             MR_SLOT_PENDING};
    static const struct {
        const char *type;
        const enum mr_slot_state *expected;
        int64_t timeout_ms;
    } rows[] = {{"echo", good, 0}, {"fail", bad, 0}, {"sleep", bad, 50}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct trace *trace = new_trace();
        PUT(t, .type = rows[i].type, .payload = "10000", .timeout_ms = rows[i].timeout_ms,
            .max_retry = MR_NO_RETRY);
        struct mr_worker *worker = WORKER(t, .slots = 1, .watch = hear, .watch_arg = trace);
        UNTIL(begun(trace, 0) == 1 && state_of(trace, 0) == MR_SLOT_POLLING);
        accept_dismiss(t, worker);
        is_legal(trace);
        for (size_t k = 0; k < 4; k++)
            assert_int_equal(trace->steps[k].change.to, rows[i].expected[k]);
    }
}

/* ---- 94 ------------------------------------------------------------------------------------- */

/* Its server is not there for a while. */
static void take_away(struct accept *t)
{
    int status = 0;
    if (t->place[0].redis) {
        t->engine->kill(&t->place[0]);
        return;
    }
    assert_int_equal(kill(t->place[0].pid, SIGSTOP), 0);
    /* On a busy machine its threads go on for a while. */
    assert_int_equal(waitpid(t->place[0].pid, &status, WUNTRACED), t->place[0].pid);
    assert_true(WIFSTOPPED(status));
}

static void bring_back(struct accept *t)
{
    if (t->place[0].redis)
        t->engine->restart(&t->place[0]);
    else
        assert_int_equal(kill(t->place[0].pid, SIGCONT), 0);
}

static void test_94_an_outcome_is_kept_while_the_server_is_away(void **state)
{
    enum { AWAY_MS = 400 };
    struct accept *t = *state;
    if (!t->engine->shared)
        return; /* a broker in the same process cannot be away */
    struct trace *trace = new_trace();
    t->hold = true;
    const char *id = PUT(t, .type = "hold", .payload = "kept");
    struct mr_worker *worker =
        WORKER(t, .slots = 1, .beat_ms = 5000, .watch = hear, .watch_arg = trace);
    UNTIL(accept_ran(t, id) == 1);
    take_away(t);
    t->hold = false;
    UNTIL(state_of(trace, 0) == MR_SLOT_REPORTING);
    accept_pass_ms(AWAY_MS);
    assert_int_equal(state_of(trace, 0), MR_SLOT_REPORTING);
    assert_int_equal(shown(worker, MR_SLOT_REPORTING), 1);
    bring_back(t);
    UNTIL(state_of(trace, 0) == MR_SLOT_POLLING);
    assert_int_equal(steps(trace, MR_SLOT_REPORTING, MR_SLOT_PENDING), 1);
    accept_await_echo(t, id);
    assert_int_equal(accept_ran(t, id), 1);
    accept_dismiss(t, worker);
    is_legal(trace);
}

/* The server forgets who holds what, or the worker gives up first: it does not wait for ever. */
static void test_94_an_outcome_whose_lease_is_lost_is_given_up(void **state)
{
    struct accept *t = *state;
    if (!t->engine->shared || t->engine->kill == NULL)
        return;
    struct trace *trace = new_trace();
    t->hold = true;
    const char *id = PUT(t, .type = "hold", .payload = "again");
    WORKER(t, .slots = 1, .watch = hear, .watch_arg = trace);
    UNTIL(accept_ran(t, id) == 1);
    t->engine->kill(&t->place[0]);
    t->hold = false;
    UNTIL(state_of(trace, 0) == MR_SLOT_REPORTING);
    accept_pass_ms(2 * ACCEPT_DEATH_MS);
    t->engine->restart(&t->place[0]);
    UNTIL(state_of(trace, 0) == MR_SLOT_POLLING);
    accept_await_echo(t, id);
    is_legal(trace);
}

/* ---- 95 ------------------------------------------------------------------------------------- */

/* A number of /proc/self/status. */
static long own_status(const char *name)
{
    char line[256];
    long value = -1;
    FILE *in = fopen("/proc/self/status", "r");
    assert_non_null(in);
    while (value < 0 && fgets(line, sizeof line, in))
        if (strncmp(line, name, strlen(name)) == 0)
            value = strtol(line + strlen(name), NULL, 10);
    (void)fclose(in);
    return value;
}

static void work_through(struct accept *t, struct trace *trace, size_t cycles, size_t tasks)
{
    size_t ran = accept_ran_all(t) + tasks, some;
    for (size_t left = cycles; left > 0; left -= some) {
        some = left < 50000 ? left : 50000;
        size_t target = steps(trace, MR_SLOT_POLLING, MR_SLOT_PENDING) + some;
        UNTIL(steps(trace, MR_SLOT_POLLING, MR_SLOT_PENDING) >= target);
    }
    for (size_t left = tasks; left > 0; left -= some) {
        some = left < 1000 ? left : 1000;
        char prefix[32];
        (void)snprintf(prefix, sizeof prefix, "t%zu-", ran - left);
        accept_put_many(t, prefix, some, &(struct accept_task){.type = "echo", .unkept = true});
        UNTIL(accept_ran_all(t) == ran - left + some); /* what waits costs memory, and may */
    }
}

static void test_95_many_cycles_cost_no_memory_and_no_threads(void **state)
{
    struct accept *t = *state;
    struct trace *trace = new_trace();
    size_t cycles = accept_size(1000000, 5000), tasks = accept_size(100000, 2000);
    WORKER(t, .slots = 2, .poll_ms = MR_NO_WAIT, .pause_min_us = 1, .pause_max_us = 1,
           .watch = hear, .watch_arg = trace);
    work_through(t, trace, cycles / 5, tasks / 5 + 5000); /* buffers have their sizes then */
    long kib = own_status("VmRSS:");
    long threads = own_status("Threads:");
    work_through(t, trace, cycles, tasks);
    long kib_now = own_status("VmRSS:");
    assert_int_equal(own_status("Threads:"), threads);
    if (MEMORY_COUNTS)
        assert_in_range(kib_now, 0, kib + kib / 20 + 1024);
}

/* ---- 96 ------------------------------------------------------------------------------------- */

/* The broker shows this slot with this task; in a node list that is looked at by anybody. */
static bool is_shown(struct accept *t, size_t slot, enum mr_slot_state state, const char *id,
                     const char *type)
{
    struct mr_node_list *list;
    bool found = false;
    assert_err(mr_node_list_get(t->client, &list), MR_OK);
    for (size_t i = 0; i < mr_node_list_count(list); i++) {
        const struct mr_node_info *node = mr_node_list_at(list, i);
        if (slot >= node->slot_infos_n)
            continue;
        const struct mr_slot_info *info = &node->slot_infos[slot];
        found = found ||
                (info->state == state && info->machine == slot && info->id.len == strlen(id) &&
                 memcmp(info->id.data, id, info->id.len) == 0 && info->type.len == strlen(type) &&
                 memcmp(info->type.data, type, info->type.len) == 0);
    }
    mr_node_list_free(list);
    return found;
}

static void two_machines(struct accept *t, const char *held, const char *free)
{
    enum { HELD = 3, FREE = 50 };
    struct trace *trace = new_trace();
    const struct mr_slice types[] = {mr_slice_str("hold"), mr_slice_str("ech*")};
    const struct mr_slice queues[] = {mr_slice_str(held), mr_slice_str(free)};
    const struct mr_machine machines[] = {
        {.types = &types[0], .types_n = 1, .queues = &queues[0], .queues_n = 1},
        {.types = &types[1], .types_n = 1, .queues = &queues[1], .queues_n = 1}};
    char both[64];
    (void)snprintf(both, sizeof both, "%s %s", held, strcmp(held, free) == 0 ? "" : free);
    t->hold = true;
    char prefix[16];
    (void)snprintf(prefix, sizeof prefix, "%s-", free);
    const char *first = PUT(t, .type = "hold", .queue = held);
    for (size_t i = 1; i < HELD; i++)
        PUT(t, .type = "hold", .queue = held);
    struct mr_worker *worker = WORKER(t, .queues = both, .machines = machines, .machines_n = 2,
                                      .watch = hear, .watch_arg = trace);
    UNTIL(begun(trace, 0) == 1);
    accept_put_many(t, prefix, FREE, &(struct accept_task){.type = "echo", .queue = free});
    UNTIL(begun(trace, 1) == FREE && state_of(trace, 1) != MR_SLOT_WORKING);
    assert_int_equal(state_of(trace, 0), MR_SLOT_WORKING);
    UNTIL(is_shown(t, 0, MR_SLOT_WORKING, first, "hold"));
    t->hold = false;
    UNTIL(accept_all_completed(t));
    assert_int_equal(begun(trace, 0), HELD);
    assert_int_equal(begun(trace, 1), FREE);
    accept_dismiss(t, worker);
    is_legal(trace);
}

static void test_96_a_stuck_machine_does_not_delay_the_other(void **state)
{
    two_machines(*state, "mail", "video");
}

static void test_96_machines_may_share_a_queue(void **state)
{
    two_machines(*state, "default", "default");
}

/* ---- 97, 98 --------------------------------------------------------------------------------- */

static void test_97_what_cannot_be_parsed_is_not_stuck(void **state)
{
    struct accept *t = *state;
    struct trace *trace = new_trace();
    struct mr_enqueue_result result = accept_try(
        t, (struct mr_task_options){.type = mr_slice_str("fatal"), .payload = {"\xff\0{", 3}});
    assert_err(result.err, MR_OK);
    (void)accept_remember(t, result.id);
    WORKER(t, .slots = 1, .watch = hear, .watch_arg = trace);
    UNTIL(accept_state(t, result.id) == MR_ARCHIVED);
    UNTIL(state_of(trace, 0) == MR_SLOT_POLLING);
    assert_int_equal(steps(trace, MR_SLOT_WORKING, MR_SLOT_ERROR), 1);
    assert_int_equal(accept_count(t, "default", MR_ACTIVE), 0);
    assert_int_equal(accept_ran(t, result.id), 1);
    is_legal(trace);
}

static int64_t cpu_ms(void)
{
    struct timespec now;
    assert_int_equal(clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now), 0);
    return now.tv_sec * MR_MS_PER_S + now.tv_nsec / MR_NS_PER_MS;
}

static void no_hot_loop(void)
{
    enum { REST_MS = 100 };
    int64_t before_ms = cpu_ms();
    accept_pass_ms(REST_MS);
    assert_in_range(cpu_ms() - before_ms, 0, REST_MS / 2);
}

/* It does nothing for a while, and then ends in time. */
static void stops(struct mr_worker *worker, int64_t beside_ms)
{
    no_hot_loop();
    mr_mono since = accept_now();
    mr_worker_stop(worker);
    assert_in_range(accept_since_ms(since), 0, STOP_MS + beside_ms);
}

static void test_98_it_stops_while_it_waits_or_polls(void **state)
{
    struct accept *t = *state;
    enum { LONG_US = 600 * 1000 * 1000 };
    struct trace *trace = new_trace();
    struct mr_worker *worker = WORKER(t, .poll_ms = MR_NO_WAIT, .pause_min_us = LONG_US,
                                      .pause_max_us = LONG_US, .watch = hear, .watch_arg = trace);
    UNTIL(shown(worker, MR_SLOT_PENDING) == 4); /* the one poll may be over before they rest */
    stops(worker, 0);
    accept_dismiss(t, worker);
    assert_int_equal(state_of(trace, 0), MR_SLOT_STOPPING);
    is_legal(trace);
    trace = new_trace();
    worker = WORKER(t, .watch = hear, .watch_arg = trace);
    UNTIL(state_of(trace, 0) == MR_SLOT_POLLING);
    stops(worker, 0);
    accept_dismiss(t, worker);
    assert_int_equal(state_of(trace, 0), MR_SLOT_STOPPING);
    is_legal(trace);
}

static void *stop_it(void *worker)
{
    mr_worker_stop(worker);
    return NULL;
}

/* It has an outcome that nobody hears, and is told to stop; again: a second time as well. How long that took. The
 * task runs anew when its lease is over. */
static int64_t stop_while_it_reports(struct accept *t, int64_t drain_ms, bool again)
{
    struct trace *trace = new_trace();
    pthread_t thread;
    t->hold = true;
    const char *id = PUT(t, .type = "hold", .payload = "again");
    struct mr_worker *worker =
        WORKER(t, .slots = 1, .drain_ms = drain_ms, .watch = hear, .watch_arg = trace);
    UNTIL(accept_ran(t, id) == 1);
    t->engine->kill(&t->place[0]);
    t->hold = false;
    UNTIL(state_of(trace, 0) == MR_SLOT_REPORTING);
    no_hot_loop();
    mr_mono since = accept_now();
    if (again)
        assert_err(mr_thread_start(&thread, "stops", stop_it, worker), MR_OK);
    mr_worker_stop(worker);
    int64_t took_ms = accept_since_ms(since);
    if (again)
        mr_thread_join(thread);
    t->engine->restart(&t->place[0]);
    accept_dismiss(t, worker);
    struct mr_stats stats;
    UNTIL(mr_stats_get(t->client, &stats) == MR_OK);
    struct mr_worker *next = WORKER(t, .slots = 1);
    accept_await_echo(t, id);
    accept_dismiss(t, next);
    return took_ms;
}

/* The outcome is kept up to the drain limit (94), or until it is told again to stop. */
static void test_98_it_stops_while_it_reports(void **state)
{
    struct accept *t = *state;
    enum { DRAIN_MS = 200, LONG_MS = 60000, TRIES = 3 };
    if (!t->engine->shared)
        return; /* a broker in the same process hears it at once */
    int64_t took_ms = stop_while_it_reports(t, DRAIN_MS, false);
    assert_in_range(took_ms, 0, DRAIN_MS + STOP_MS + 1000); /* the machine may be busy */
    took_ms = LONG_MS;
    for (int i = 0; took_ms > STOP_MS && i < TRIES; i++)
        took_ms = stop_while_it_reports(t, LONG_MS, true);
    assert_in_range(took_ms, 0, STOP_MS);
}

static void test_98_it_stops_while_it_works_or_is_stuck(void **state)
{
    struct accept *t = *state;
    enum { DRAIN_MS = 200 };
    static const char *const types[] = {"hold", "deaf"};
    for (size_t i = 0; i < 2; i++) {
        struct trace *trace = new_trace();
        t->hold = true;
        const char *id = PUT(t, .type = types[i]);
        struct mr_worker *worker =
            WORKER(t, .slots = 1, .drain_ms = DRAIN_MS, .watch = hear, .watch_arg = trace);
        UNTIL(accept_ran(t, id) > 0);
        stops(worker, DRAIN_MS + 1000);
        assert_true(i == 0 || state_of(trace, 0) == MR_SLOT_ERROR);
        t->hold = false;
        accept_dismiss(t, worker);
        assert_int_equal(state_of(trace, 0), MR_SLOT_STOPPING);
        is_legal(trace);
        BURST(t, .slots = 1);
        assert_true(accept_all_completed(t));
    }
}

int accept_machine(const struct accept_engine *engine)
{
    static struct CMUnitTest tests[] = {
        ACCEPT_TEST(test_91_an_idle_slot_waits_and_polls),
        ACCEPT_TEST(test_92_a_success_and_a_failure_step_by_step),
        ACCEPT_TEST(test_92_no_step_but_those_of_the_machine),
        ACCEPT_TEST(test_94_an_outcome_is_kept_while_the_server_is_away),
        ACCEPT_TEST(test_94_an_outcome_whose_lease_is_lost_is_given_up),
        ACCEPT_TEST(test_95_many_cycles_cost_no_memory_and_no_threads),
        ACCEPT_TEST(test_96_a_stuck_machine_does_not_delay_the_other),
        ACCEPT_TEST(test_96_machines_may_share_a_queue),
        ACCEPT_TEST(test_97_what_cannot_be_parsed_is_not_stuck),
        ACCEPT_TEST(test_98_it_stops_while_it_waits_or_polls),
        ACCEPT_TEST(test_98_it_stops_while_it_reports),
        ACCEPT_TEST(test_98_it_stops_while_it_works_or_is_stuck),
    };
    return ACCEPT_RUN(engine, "I: the state machine", tests);
}
