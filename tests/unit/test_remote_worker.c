/* SPDX-License-Identifier: Apache-2.0 */
/* A worker far from its server: cut connections, a network that falls silent, restarts, deaths. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "api/api.h"
#include "unit/remote_rig.h"
#include "worker/worker.h"

/* ---- a worker on it ------------------------------------------------------------------------- */

enum { RUNS = 2000 };
static _Atomic uint32_t runs[RUNS];

static enum mr_outcome count_run(struct mr_run *run, void *arg)
{
    const struct mr_task *task = mr_run_task(run);
    char number[16] = {0};
    (void)arg;
    memcpy(number, task->payload.data, task->payload.len);
    runs[strtoul(number, NULL, 10)]++;
    return MR_DONE;
}

static void put_numbers(struct world *w)
{
    for (uint32_t i = 0; i < RUNS; i++) {
        char number[16];
        struct mr_enqueue_result result;
        (void)snprintf(number, sizeof number, "%u", i);
        struct mr_task_options task = {.payload = mr_slice_str(number)};
        assert_int_equal(put(w->store, &task, &result), MR_OK);
        runs[i] = 0;
    }
}

static void a_worker_runs_each_task_once_through_cut_connections(void **state)
{
    struct world *w = *state;
    struct mr_worker *worker;
    struct mr_worker_figures figures;
    put_numbers(w);
    assert_int_equal(mr_worker_new_on(w->far, &(struct mr_worker_options){.slots = 4}, &worker),
                     MR_OK);
    assert_int_equal(mr_worker_handle(worker, "*", count_run, NULL), MR_OK);
    assert_int_equal(mr_worker_start(worker), MR_OK);
    for (size_t left = RUNS, before = 0; left > 0; left = tasks_in_store(w)) {
        /* A busy machine gets nothing done between cuts that come so often: each waits for some of it. */
        if (left != before)
            forwarder_cut(&w->network);
        before = left;
        (void)poll(NULL, 0, 10);
    }
    WAIT_UNTIL((mr_worker_figures(worker, &figures), figures.done + figures.stale >= RUNS));
    mr_worker_stop(worker);
    mr_worker_free(worker);
    for (uint32_t i = 0; i < RUNS; i++)
        assert_int_equal(runs[i], 1);
    assert_int_equal(figures.done, RUNS);
    assert_int_equal(figures.stale, 0);
}

struct patient {
    struct mr_event begun;
    _Atomic uint32_t runs;
    _Atomic int64_t stopped_ns;
};

/* The first run goes on until it is told to stop. */
static enum mr_outcome run_patiently(struct mr_run *run, void *arg)
{
    struct patient *patient = arg;
    if (patient->runs++ > 0)
        return MR_DONE;
    mr_event_set(&patient->begun);
    (void)mr_run_wait_cancelled(run, WAIT_MS);
    patient->stopped_ns = mr_mono_now(mr_clock_system()).ns;
    return MR_DONE;
}

/* No end of the connection is told, on either side; the lease is what both go by. */
static void a_network_that_falls_silent_ends_the_run_before_another_begins(void **state)
{
    struct world *w = *state;
    struct mr_worker *worker;
    struct patient patient = {0};
    struct mr_worker_options options = {.slots = 1, .beat_ms = 300, .beats_missed = 3};
    mr_event_init(&patient.begun);
    put_id(w, "t");
    assert_int_equal(mr_worker_new_on(w->far, &options, &worker), MR_OK);
    assert_int_equal(mr_worker_handle(worker, "*", run_patiently, &patient), MR_OK);
    assert_int_equal(mr_worker_start(worker), MR_OK);
    assert_true(mr_event_wait(&patient.begun, WAIT_MS * MR_NS_PER_MS));
    w->network.frozen = true;
    WAIT_UNTIL(state_of(w, "t") != MR_ACTIVE);
    int64_t given_up_ns = mr_mono_now(mr_clock_system()).ns;
    WAIT_UNTIL(patient.stopped_ns != 0);
    assert_true(patient.stopped_ns - given_up_ns < 500 * MR_NS_PER_MS);
    assert_int_equal(patient.runs, 1);
    w->network.frozen = false;
    WAIT_UNTIL(state_of(w, "t") == MR_COMPLETED);
    assert_int_equal(patient.runs, 2);
    mr_worker_stop(worker);
    mr_worker_free(worker);
}

static void a_worker_goes_on_after_a_restart(void **state)
{
    struct world *w = *state;
    struct mr_worker *worker;
    put_numbers(w);
    assert_int_equal(mr_worker_new_on(w->far, &(struct mr_worker_options){.slots = 4}, &worker),
                     MR_OK);
    assert_int_equal(mr_worker_handle(worker, "*", count_run, NULL), MR_OK);
    assert_int_equal(mr_worker_start(worker), MR_OK);
    for (int i = 0; i < 3; i++) {
        stop_server(w);
        start_server(w);
    }
    WAIT_UNTIL(tasks_in_store(w) == 0);
    mr_worker_stop(worker);
    mr_worker_free(worker);
    for (uint32_t i = 0; i < RUNS; i++)
        assert_in_range(runs[i], 1, 4);
}

/* ---- a task that kills ---------------------------------------------------------------------- */

static enum mr_outcome die_at_once(struct mr_run *run, void *arg)
{
    (void)run, (void)arg;
    (void)kill(getpid(), SIGKILL);
    return MR_DONE;
}

/* Another process, started by the test below. */
static int be_killed(const char *address)
{
    struct mr_broker *far;
    struct mr_worker *worker;
    struct mr_remote_options options = {.address = address};
    if (mr_remote_open(&options, &far, NULL) != MR_OK ||
        mr_worker_new_on(far, &(struct mr_worker_options){.slots = 4}, &worker) != MR_OK ||
        mr_worker_handle(worker, "*", die_at_once, NULL) != MR_OK)
        return 1;
    return mr_worker_run(worker) == MR_OK ? 0 : 1;
}

/* However quickly it does so: the server knows of a run before its first instruction. */
static void a_task_that_kills_its_worker_three_times_is_quarantined(void **state)
{
    struct world *w = *state;
    char self[256] = "", command[512];
    assert_true(readlink("/proc/self/exe", self, sizeof self - 1) > 0);
    stop_server(w);
    w->server.grace_ms = 100;
    start_server(w);
    put_id(w, "poison");
    for (uint32_t i = 1; i <= MR_CRASHES_MAX; i++) {
        (void)snprintf(command, sizeof command, "'%s' --be-killed '%s'", self, w->server.address);
        int status = system(command);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 128 + SIGKILL);
        WAIT_UNTIL(state_of(w, "poison") != MR_ACTIVE);
        assert_int_equal(task_of(w, "poison").crashes, i);
    }
    assert_int_equal(state_of(w, "poison"), MR_ARCHIVED);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(a_worker_runs_each_task_once_through_cut_connections),
        TEST(a_network_that_falls_silent_ends_the_run_before_another_begins),
        TEST(a_worker_goes_on_after_a_restart),
        TEST(a_task_that_kills_its_worker_three_times_is_quarantined),
    };
    if (argc > 2 && strcmp(argv[1], "--be-killed") == 0)
        return be_killed(argv[2]);
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
