/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Part F: what a worker had in hand when it was killed, stopped or closed. Workers are processes; a folder is
 * open in one at a time, so there the test looks when the process is dead, and where two must live at
 * once they are two nodes of this one.
 */
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "accept/accept.h"
#include "accept/hand.h"
#include "support/redis_rig.h"

#define TOPIC "news"

enum {
    LATE_MS = 1000, /* after the death time, on a machine that does other things too */
    BEGUN_MS = 50,  /* where many begin at once, the broker hears a moment later that they have */
    HUNDRED = 100,
};

/* ---- processes that come and go ------------------------------------------------------------- */

static pid_t spawn(struct accept *t, const struct accept_worker *options)
{
    if (!t->engine->shared && t->client)
        accept_close(t);
    return accept_spawn_employed(t, t->place[0].url, options);
}
#define SPAWN(t, ...) spawn(t, &(struct accept_worker){__VA_ARGS__})

static void signal_process(pid_t pid, int number)
{
    assert_int_equal(kill(pid, number), 0);
}

/* All of them, which have begun what they have in hand; answers when. */
static mr_mono kill_all(struct accept *t, const pid_t *pids, size_t n)
{
    accept_pass_ms(BEGUN_MS);
    for (size_t i = 0; i < n; i++)
        signal_process(pids[i], SIGKILL);
    mr_mono died = accept_now();
    for (size_t i = 0; i < n; i++)
        accept_kill_process(t, pids[i]);
    if (!t->client)
        accept_open(t);
    return died;
}

/* A node that lives and takes nothing: what comes back is seen to wait. */
static struct hand *watch_open(struct accept *t, const char *queues)
{
    return hand_open(t, "watch", queues, ACCEPT_DEATH_MS);
}
#define WATCH_UNTIL(watch, cond) UNTIL((hand_beat(watch), (cond)))

static struct mr_task_list *task_of(struct accept *t, const char *id,
                                    const struct mr_task **ret_task)
{
    struct mr_task_list *list = accept_get(t, id);
    assert_non_null(list);
    *ret_task = mr_task_list_at(list, 0);
    return list;
}

static int64_t order_time(struct accept *t, const char *id)
{
    const struct mr_task *task;
    struct mr_task_list *list = task_of(t, id, &task);
    int64_t ms = task->order_time_ms;
    mr_task_list_free(list);
    return ms;
}

/* The i-th run of this task. */
static struct accept_run run_of(struct accept *t, const char *id, size_t i)
{
    size_t n, at = 0;
    struct accept_run *runs = accept_runs(t, &n), run = {0};
    for (size_t k = 0; k < n; k++)
        if (strcmp(runs[k].id, id) == 0 && at++ == i)
            run = runs[k];
    assert_true(at > i);
    free(runs);
    return run;
}

static size_t runs_with(struct accept *t, uint32_t attempt)
{
    size_t n, count = 0;
    struct accept_run *runs = accept_runs(t, &n);
    for (size_t i = 0; i < n; i++)
        count += runs[i].attempt == attempt;
    free(runs);
    return count;
}

static bool is_listed(struct accept *t, const char *node)
{
    struct mr_node_list *nodes = NULL;
    bool found = false;
    assert_err(mr_node_list_get(t->client, &nodes), MR_OK);
    for (size_t i = 0; i < mr_node_list_count(nodes); i++) {
        struct mr_slice name = mr_node_list_at(nodes, i)->name;
        found |= name.len == strlen(node) && memcmp(name.data, node, name.len) == 0;
    }
    mr_node_list_free(nodes);
    return found;
}

/* ---- a worker is killed --------------------------------------------------------------------- */

static void test_45_a_killed_workers_task_runs_elsewhere(void **state)
{
    struct accept *t = *state;
    PUT(t, .id = "x", .type = "first", .queue = "low", .payload = "p", .priority_s = 7,
        .topic = TOPIC);
    int64_t ordered_ms = order_time(t, "x");
    pid_t pid = SPAWN(t, .queues = "low", .slots = 1);
    UNTIL(accept_ran(t, "x") == 1);
    mr_mono died = kill_all(t, &pid, 1);
    struct hand *watch = watch_open(t, "low");
    WATCH_UNTIL(watch, accept_state(t, "x") == MR_PENDING);
    assert_in_range(accept_since_ms(died), 0, ACCEPT_DEATH_MS + LATE_MS);
    assert_int_equal(accept_count(t, "low", MR_PENDING), 1);
    assert_int_equal(order_time(t, "x"), ordered_ms);
    hand_close(watch);
    WORKER(t, .queues = "low");
    accept_await_echo(t, "x");
    assert_int_equal(run_of(t, "x", 1).attempt, 2);
    accept_one_final_each(t, TOPIC);
}

/* A node that says nothing any more; somebody else waits for what it has. */
static void test_46_a_task_is_given_to_nobody_before_its_lease_ends(void **state)
{
    struct accept *t = *state;
    struct hand *silent = hand_open(t, "silent", NULL, ACCEPT_DEATH_MS);
    struct hand *next = hand_open(t, "next", NULL, 0);
    PUT(t, .id = "x", .payload = "p", .topic = TOPIC);
    hand_beat(silent);
    mr_mono alive = accept_now();
    struct mr_lease *lost = hand_take(silent, 0, NULL), *lease;
    assert_non_null(lost);
    lease = hand_take(next, ACCEPT_WAIT_MS / 2, NULL);
    assert_non_null(lease);
    assert_in_range(accept_since_ms(alive), ACCEPT_DEATH_MS - 1, ACCEPT_DEATH_MS + LATE_MS);
    assert_true(lease->epoch > lost->epoch);
    hand_done(next, lease);
    mr_lease_free(lost);
    hand_close(next);
    hand_abandon(silent);
    accept_one_final_each(t, TOPIC);
}

/* When this node was heard last, as the broker shows it. */
static int64_t last_beat_ms(struct accept *t, const char *node)
{
    struct mr_node_list *nodes = NULL;
    int64_t ms = 0;
    assert_err(mr_node_list_get(t->client, &nodes), MR_OK);
    for (size_t i = 0; i < mr_node_list_count(nodes); i++) {
        const struct mr_node_info *info = mr_node_list_at(nodes, i);
        if (info->name.len == strlen(node) && memcmp(info->name.data, node, info->name.len) == 0)
            ms = info->last_beat_ms;
    }
    mr_node_list_free(nodes);
    return ms;
}

static void test_46_a_killed_workers_task_is_not_given_away_early(void **state)
{
    struct accept *t = *state;
    if (!t->engine->shared)
        return; /* who opens the folder of a dead process knows that it is dead */
    PUT(t, .id = "x", .type = "first", .payload = "p", .topic = TOPIC);
    pid_t pid = SPAWN(t, .node = "dies", .slots = 1);
    UNTIL(accept_ran(t, "x") == 1);
    WORKER(t, .slots = 1);
    int64_t heard_ms = last_beat_ms(t, "dies");
    mr_mono died = kill_all(t, &pid, 1);
    accept_await_echo(t, "x");
    int64_t after_ms = (run_of(t, "x", 1).mono_ns - died.ns) / MR_NS_PER_MS;
    int64_t ran_ms = accept_wall_ms() - accept_since_ms(died) + after_ms;
    assert_true(heard_ms > 0);
    assert_true(ran_ms >= heard_ms + ACCEPT_DEATH_MS - 2);
    assert_in_range(after_ms, 0, ACCEPT_DEATH_MS + LATE_MS);
    accept_one_final_each(t, TOPIC);
}

static void hundred_in_hand(struct accept *t, pid_t *ret_pid, int64_t beat_ms)
{
    accept_put_many(t, "t", HUNDRED,
                    &(struct accept_task){.type = "first", .payload = "p", .topic = TOPIC});
    *ret_pid = SPAWN(t, .slots = HUNDRED, .beat_ms = beat_ms);
    UNTIL(accept_ran_all(t) == HUNDRED);
}

static void test_47_a_hundred_tasks_come_back_in_their_order(void **state)
{
    struct accept *t = *state;
    pid_t pid;
    char id[16];
    size_t n;
    hundred_in_hand(t, &pid, 0);
    (void)kill_all(t, &pid, 1);
    struct hand *watch = watch_open(t, NULL);
    WATCH_UNTIL(watch, accept_count(t, "default", MR_PENDING) == HUNDRED);
    hand_close(watch);
    BURST(t, .slots = 1);
    struct accept_run *runs = accept_runs(t, &n);
    assert_int_equal(n, 2 * HUNDRED);
    for (size_t i = 0; i < HUNDRED; i++) {
        (void)snprintf(id, sizeof id, "t%zu", i);
        assert_string_equal(runs[HUNDRED + i].id, id);
        assert_int_equal(runs[HUNDRED + i].attempt, 2);
    }
    free(runs);
    assert_true(accept_all_completed(t));
    accept_one_final_each(t, TOPIC);
}

/* By another worker that has room for all of them; also with the beats of a worker that was told nothing. */
static void test_47_a_hundred_tasks_run_elsewhere_in_time(void **state)
{
    struct accept *t = *state;
    int64_t beat_ms = (int64_t)accept_size(5000, ACCEPT_BEAT_MS), last_ns = 0;
    int64_t death_ms = beat_ms * ACCEPT_BEATS_MISSED, server_grace_ms = 5000;
    pid_t pid;
    size_t n;
    if (!t->engine->shared)
        return;
    if (t->place[0].pid && server_grace_ms < death_ms)
        death_ms = server_grace_ms; /* it sees the connection end */
    hundred_in_hand(t, &pid, beat_ms);
    WORKER(t, .node = "other", .slots = HUNDRED, .beat_ms = beat_ms);
    UNTIL(is_listed(t, "other"));
    mr_mono died = kill_all(t, &pid, 1);
    UNTIL(runs_with(t, 2) == HUNDRED);
    struct accept_run *runs = accept_runs(t, &n);
    for (size_t i = 0; i < n; i++)
        last_ns = runs[i].mono_ns > last_ns ? runs[i].mono_ns : last_ns;
    free(runs);
    int64_t after_ms = (last_ns - died.ns) / MR_NS_PER_MS;
    print_message("all %d run elsewhere %lld ms after the kill, %lld ms after the death time\n",
                  HUNDRED, (long long)after_ms, (long long)(after_ms - death_ms));
    assert_in_range(after_ms, 0, death_ms + LATE_MS);
    UNTIL(accept_all_completed(t));
    assert_int_equal(accept_ran_all(t), 2 * HUNDRED);
    accept_one_final_each(t, TOPIC);
}

/* ---- a worker stands still ------------------------------------------------------------------ */

/* What the two runs of a stopped worker come to: x does not listen, y is told. */
static pid_t stop_with_two(struct accept *t)
{
    PUT(t, .id = "x", .type = "nap", .payload = "200", .topic = TOPIC);
    PUT(t, .id = "y", .type = "first", .payload = "p", .topic = TOPIC);
    pid_t pid = SPAWN(t, .node = "zombie", .slots = 2);
    UNTIL(accept_ran(t, "x") == 1 && accept_ran(t, "y") == 1);
    accept_pass_ms(BEGUN_MS);
    signal_process(pid, SIGSTOP);
    return pid;
}

/* It goes on, is told, and nothing of what it says of these runs counts. */
static void zombie_is_refused(struct accept *t, pid_t pid, uint64_t done)
{
    UNTIL(accept_told(t, "y") == 1);
    accept_end_process(t, pid);
    struct mr_worker_figures figures = accept_figures(t, pid);
    assert_int_equal(figures.done, done);
    assert_int_equal(figures.failed, 0);
}

static void test_50_a_worker_that_stood_still_is_refused(void **state)
{
    struct accept *t = *state;
    if (!t->engine->shared)
        return; /* below */
    pid_t pid = stop_with_two(t);
    WORKER(t, .node = "other");
    accept_await_echo(t, "x");
    accept_await_echo(t, "y");
    signal_process(pid, SIGCONT);
    zombie_is_refused(t, pid, 0);
    assert_int_equal(accept_ran(t, "x"), 2);
    assert_int_equal(accept_ran(t, "y"), 2);
    accept_one_final_each(t, TOPIC);
}

static void test_50_a_node_that_was_silent_is_refused(void **state)
{
    struct accept *t = *state;
    size_t told = hand_lost();
    struct hand *silent = hand_open(t, "silent", NULL, ACCEPT_DEATH_MS);
    PUT(t, .id = "x", .payload = "p", .topic = TOPIC);
    struct mr_lease *lost = hand_take(silent, 0, NULL);
    assert_non_null(lost);
    WORKER(t, .slots = 1);
    accept_await_echo(t, "x");
    UNTIL(hand_lost() == told + 1);
    struct mr_finish done = {.outcome = MR_DONE, .result = lost->task.payload};
    assert_err(hand_finish(silent, lost, done), MR_STALE);
    mr_lease_free(lost);
    hand_abandon(silent);
    accept_one_final_each(t, TOPIC);
}

static void test_51_alone_it_runs_its_task_again(void **state)
{
    struct accept *t = *state;
    if (!t->engine->shared)
        return; /* its engine stands still with it, and nothing is lost */
    pid_t pid = stop_with_two(t);
    struct hand *busy = watch_open(t, NULL);
    WATCH_UNTIL(busy, accept_count(t, "default", MR_PENDING) == 2);
    signal_process(pid, SIGCONT);
    WATCH_UNTIL(busy, accept_all_completed(t));
    hand_close(busy);
    zombie_is_refused(t, pid, 2);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(run_of(t, "x", i).pid, pid);
    assert_int_equal(run_of(t, "x", 1).attempt, 2);
    accept_one_final_each(t, TOPIC);
}

/* ---- the leader is killed, too -------------------------------------------------------------- */

static void leader_of(struct accept *t, char name[MR_NAME_MAX + 1])
{
    struct mr_node_list *nodes = NULL;
    assert_err(mr_node_list_get(t->client, &nodes), MR_OK);
    struct mr_slice leader = mr_node_list_leader(nodes)->node;
    (void)snprintf(name, MR_NAME_MAX + 1, "%.*s", (int)leader.len, (const char *)leader.data);
    mr_node_list_free(nodes);
}

static void test_52_a_worker_and_the_leader_are_killed_together(void **state)
{
    struct accept *t = *state;
    enum { THREE = 3 };
    static const char *const names[THREE] = {"w0", "w1", "w2"};
    pid_t pids[THREE];
    char leader[MR_NAME_MAX + 1] = "";
    size_t leads = 0;
    if (!t->engine->shared)
        return; /* all of them are one process: 54 */
    accept_put_many(t, "t", THREE,
                    &(struct accept_task){.type = "first", .payload = "p", .topic = TOPIC});
    for (size_t i = 0; i < THREE; i++)
        pids[i] = SPAWN(t, .node = names[i], .slots = 1);
    UNTIL(accept_ran_all(t) == THREE);
    UNTIL((leader_of(t, leader), leader[0] == 'w'));
    while (strcmp(names[leads], leader) != 0)
        leads++;
    WORKER(t, .node = "other");
    UNTIL(is_listed(t, "other"));
    const pid_t both[] = {pids[leads], pids[(leads + 1) % THREE]};
    mr_mono died = kill_all(t, both, 2);
    UNTIL(accept_total(t, MR_COMPLETED) == 2);
    assert_in_range(accept_since_ms(died), 0, 2 * ACCEPT_DEATH_MS + LATE_MS);
    UNTIL((leader_of(t, leader), leader[0] != '\0'));
    (void)kill_all(t, &pids[(leads + 2) % THREE], 1);
    UNTIL(accept_all_completed(t));
    assert_int_equal(accept_ran_all(t), 2 * THREE);
    accept_one_final_each(t, TOPIC);
}

/* ---- all of them are killed ----------------------------------------------------------------- */

enum { CREW = 3, CREW_SLOTS = 2, CREW_TASKS = 30 };

/* As many processes as can be, with something in each hand, and more tasks behind it. */
static size_t spawn_crew(struct accept *t, pid_t *pids)
{
    size_t n = t->engine->shared ? CREW : 1;
    accept_put_many(t, "long", n * CREW_SLOTS,
                    &(struct accept_task){.type = "sleep", .payload = "2000", .topic = TOPIC});
    accept_put_many(t, "t", CREW_TASKS, &(struct accept_task){.payload = "p", .topic = TOPIC});
    for (size_t i = 0; i < n; i++)
        pids[i] = SPAWN(t, .slots = CREW_SLOTS);
    UNTIL(accept_ran_all(t) == n * CREW_SLOTS);
    return n;
}

static void crews_tasks_all_end(struct accept *t, size_t crew)
{
    WORKER(t);
    UNTIL(accept_all_completed(t));
    assert_int_equal(accept_ran_all(t), 2 * crew * CREW_SLOTS + CREW_TASKS);
    accept_one_final_each(t, TOPIC);
}

static void test_53_without_workers_tasks_wait_for_the_next(void **state)
{
    struct accept *t = *state;
    pid_t pids[CREW];
    size_t n = spawn_crew(t, pids);
    (void)kill_all(t, pids, n);
    accept_pass_ms(t->engine->shared ? ACCEPT_DEATH_MS : 0);
    assert_int_equal(accept_total(t, MR_PENDING) + accept_total(t, MR_ACTIVE), t->ids_n);
    crews_tasks_all_end(t, n);
}

static void test_54_all_nodes_are_killed_and_started_again(void **state)
{
    struct accept *t = *state;
    char file[MR_PATH_MAX + 8];
    pid_t pids[CREW + 1];
    size_t n = spawn_crew(t, pids), all = n;
    if (t->engine->shared) {
        (void)snprintf(file, sizeof file, "%s.master", t->audit);
        PUT(t, .queue = "other", .payload = "p", .topic = TOPIC);
        BURST(t, .queues = "other");
        pids[all++] = accept_spawn_master(t, t->place[0].url, TOPIC, 1, file);
        UNTIL(access(file, F_OK) == 0);
        (void)unlink(file);
    }
    /* After a start of Redis nothing is taken from anybody for some seconds. */
    bool broker = t->engine->kill && (!t->place[0].redis || accept_size(1, 0));
    if (broker)
        t->engine->kill(&t->place[0]);
    (void)kill_all(t, pids, all);
    if (broker)
        t->engine->restart(&t->place[0]);
    struct mr_stats stats;
    UNTIL(mr_stats_get(t->client, &stats) == MR_OK);
    WORKER(t);
    UNTIL(accept_all_completed(t));
    accept_one_final_each(t, TOPIC);
}

/* ---- a task that kills ---------------------------------------------------------------------- */

/* One run at a time: nobody dies of a neighbour. */
static void spawn_missing(struct accept *t, pid_t *pids, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (pids[i] > 0 && waitpid(pids[i], NULL, WNOHANG) == 0)
            continue;
        for (size_t k = 0; k < ACCEPT_PROCESSES_MAX; k++)
            if (t->processes[k] == pids[i])
                t->processes[k] = 0;
        pids[i] = SPAWN(t, .slots = 1);
    }
}

static void test_55_a_task_that_kills_its_worker_is_set_aside(void **state)
{
    struct accept *t = *state;
    enum { NEIGHBOURS = 20 };
    pid_t pids[2] = {0};
    size_t n = t->engine->shared ? 2 : 1;
    const struct mr_task *task;
    /* Where runs follow each other within microseconds, a crash may go uncounted. */
    const struct accept_task neighbour = {.type = "sleep", .payload = "10", .topic = TOPIC};
    accept_put_many(t, "a", NEIGHBOURS / 2, &neighbour);
    PUT(t, .id = "x", .type = "crash", .topic = TOPIC);
    accept_put_many(t, "b", NEIGHBOURS / 2, &neighbour);
    UNTIL((spawn_missing(t, pids, n), accept_ran(t, "x") == MR_CRASHES_MAX &&
                                          accept_ran_all(t) >= NEIGHBOURS + MR_CRASHES_MAX));
    for (size_t i = 0; i < n; i++)
        accept_kill_process(t, pids[i]);
    if (!t->client)
        accept_open(t);
    struct hand *watch = watch_open(t, NULL);
    WATCH_UNTIL(watch, accept_state(t, "x") == MR_ARCHIVED);
    WATCH_UNTIL(watch, accept_total(t, MR_ACTIVE) == 0);
    hand_close(watch);
    BURST(t, .slots = 1);
    assert_int_equal(accept_total(t, MR_COMPLETED), NEIGHBOURS);
    struct mr_task_list *list = task_of(t, "x", &task);
    assert_int_equal(task->crashes, MR_CRASHES_MAX);
    assert_int_equal(task->retried, 0);
    assert_non_null(memmem(task->last_error.data, task->last_error.len, "worker was lost", 15));
    mr_task_list_free(list);
    assert_int_equal(accept_ran(t, "x"), MR_CRASHES_MAX);
    accept_one_final_each(t, TOPIC);
}

/* ---- a node is closed ----------------------------------------------------------------------- */

enum { DRAIN_MS = 400, GRACE_MS = 100 };

static void test_56_a_closed_node_hands_back_at_once(void **state)
{
    struct accept *t = *state;
    PUT(t, .id = "ends", .type = "sleep", .payload = "300", .topic = TOPIC);
    PUT(t, .id = "stays", .type = "first", .payload = "p", .topic = TOPIC);
    PUT(t, .id = "waits", .payload = "p", .topic = TOPIC);
    pid_t pid = SPAWN(t, .node = "leaves", .slots = 2, .drain_ms = DRAIN_MS, .grace_ms = GRACE_MS);
    UNTIL(accept_ran_all(t) == 2);
    mr_mono told = accept_now();
    accept_end_process(t, pid);
    assert_in_range(accept_since_ms(told), 0, DRAIN_MS + LATE_MS);
    if (!t->client)
        accept_open(t);
    mr_mono ended = accept_now();
    assert_int_equal(accept_state(t, "ends"), MR_COMPLETED);
    assert_int_equal(accept_state(t, "stays"), MR_PENDING);
    assert_int_equal(accept_state(t, "waits"), MR_PENDING);
    assert_false(is_listed(t, "leaves"));
    assert_in_range(accept_since_ms(ended), 0,
                    ACCEPT_DEATH_MS - 1); /* nobody's death was awaited */
    assert_int_equal(accept_ran_all(t), 2);
    assert_int_equal(accept_told(t, "stays"), 1);
    const struct mr_task *task;
    struct mr_task_list *list = task_of(t, "stays", &task);
    assert_int_equal(task->crashes + task->retried, 0);
    mr_task_list_free(list);
    assert_err(accept_act(t, MR_VERB_DELETE, "stays", 0), MR_OK); /* it would wait again */
    BURST(t);
    assert_int_equal(accept_total(t, MR_COMPLETED), 2);
    accept_one_final_each(t, TOPIC);
}

static void test_57_a_closed_node_takes_nothing(void **state)
{
    struct accept *t = *state;
    enum mr_err err = MR_OK;
    struct hand *hand = hand_open(t, "gone", NULL, 0);
    PUT(t, .id = "x", .payload = "p", .topic = TOPIC);
    hand_leave(hand);
    assert_null(hand_take(hand, 0, &err));
    assert_err(err, MR_CLOSED);
    hand_abandon(hand);
    BURST(t);
    assert_true(accept_all_completed(t));
    accept_one_final_each(t, TOPIC);
}

static void test_57_a_closed_master_takes_nothing(void **state)
{
    struct accept *t = *state;
    struct mr_slice topic = mr_slice_str(TOPIC);
    struct mr_master_options options = {.topics = &topic, .topics_n = 1};
    struct mr_master *master = NULL;
    struct mr_result_list *list = NULL;
    assert_err(mr_master_open(t->client, &options, &master), MR_OK);
    assert_err(mr_master_take(master, 1, 0, &list), MR_EMPTY);
    mr_master_stop(master);
    assert_err(mr_master_take(master, 1, 0, &list), MR_CLOSED);
    mr_master_free(master);
}

/* ---- in no live hand ------------------------------------------------------------------------ */

static void test_58_what_no_session_holds_comes_back(void **state)
{
    struct accept *t = *state;
    PUT(t, .id = "x", .payload = "p", .topic = TOPIC);
    struct hand *planted = hand_open(t, "planted", NULL, ACCEPT_DEATH_MS);
    mr_mono began = accept_now();
    struct mr_lease *lease = hand_take(planted, 0, NULL);
    assert_non_null(lease);
    mr_lease_free(lease);
    hand_abandon(planted);
    WORKER(t, .slots = 1);
    accept_await_echo(t, "x");
    assert_in_range(accept_since_ms(began), ACCEPT_DEATH_MS - 1, ACCEPT_DEATH_MS + LATE_MS);
    accept_one_final_each(t, TOPIC);
}

/* What says who has the task is gone, as after an eviction. */
static void test_58_a_run_without_lease_and_node_comes_back(void **state)
{
    struct accept *t = *state;
    if (!t->place[0].redis)
        return; /* in a store one record has all of it */
    struct redis_rig_server *server = redis_rig_server(t->place[0].redis, 0);
    PUT(t, .id = "x", .type = "first", .payload = "p", .topic = TOPIC);
    pid_t pid = SPAWN(t, .slots = 1);
    UNTIL(accept_ran(t, "x") == 1);
    (void)kill_all(t, &pid, 1);
    assert_int_equal(RIG_INT(server, "DEL", "asynq:{default}:lease"), 1);
    (void)RIG(server, "DEL", "asynq:mr:nodes");
    mr_mono began = accept_now();
    WORKER(t, .slots = 1);
    accept_await_echo(t, "x");
    assert_in_range(accept_since_ms(began), 0, ACCEPT_DEATH_MS + LATE_MS);
    accept_one_final_each(t, TOPIC);
}

/* Who has just begun takes nothing from anybody: a Redis that did is no subject of these tests. */
static int setup(void **state)
{
    int failed = accept_setup(state);
    const struct accept *t = *state;
    if (failed == 0 && t->place[0].redis)
        UNTIL(strtol(strstr(RIG(redis_rig_server(t->place[0].redis, 0), "INFO", "server"),
                            "uptime_in_seconds:") +
                         strlen("uptime_in_seconds:"),
                     NULL, 10) > 2);
    return failed;
}

#define RECOVER_TEST(function)                                                                     \
    {                                                                                              \
#function, function, setup, accept_teardown, NULL                                          \
    }

int accept_recover(const struct accept_engine *engine)
{
    struct CMUnitTest tests[] = {
        RECOVER_TEST(test_45_a_killed_workers_task_runs_elsewhere),
        RECOVER_TEST(test_46_a_task_is_given_to_nobody_before_its_lease_ends),
        RECOVER_TEST(test_46_a_killed_workers_task_is_not_given_away_early),
        RECOVER_TEST(test_47_a_hundred_tasks_come_back_in_their_order),
        RECOVER_TEST(test_47_a_hundred_tasks_run_elsewhere_in_time),
        RECOVER_TEST(test_50_a_worker_that_stood_still_is_refused),
        RECOVER_TEST(test_50_a_node_that_was_silent_is_refused),
        RECOVER_TEST(test_51_alone_it_runs_its_task_again),
        RECOVER_TEST(test_52_a_worker_and_the_leader_are_killed_together),
        RECOVER_TEST(test_53_without_workers_tasks_wait_for_the_next),
        RECOVER_TEST(test_54_all_nodes_are_killed_and_started_again),
        RECOVER_TEST(test_55_a_task_that_kills_its_worker_is_set_aside),
        RECOVER_TEST(test_56_a_closed_node_hands_back_at_once),
        RECOVER_TEST(test_57_a_closed_node_takes_nothing),
        RECOVER_TEST(test_57_a_closed_master_takes_nothing),
        RECOVER_TEST(test_58_what_no_session_holds_comes_back),
        RECOVER_TEST(test_58_a_run_without_lease_and_node_comes_back),
    };
    return ACCEPT_RUN(engine, "F: recovery", tests);
}
