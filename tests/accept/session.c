/* SPDX-License-Identifier: Apache-2.0 */
/* Part D: nodes come, live by their beats and go. Nodes that are stopped or killed are processes of their own. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "accept/hand.h"
#include "accept/view.h"
#include "client/client.h"

enum { LATE_MS = 1000 }; /* this machine may be busy */

static void test_28_a_node_that_starts_is_seen_and_takes_only_then(void **state)
{
    struct accept *t = *state;
    struct mr_req_take take = {.req.op = MR_OP_TAKE, .node = 4711, .max = 1};
    PUT(t, .id = "x");
    assert_err(mr_broker_call(t->client->broker, &take.req), MR_CLOSED); /* nobody has registered */
    mr_req_done(&take.req);
    int64_t before_ms = accept_wall_ms();
    mr_mono started = accept_now();
    WORKER(t, .node = "here");
    UNTIL(view_is_live(t->client, "here"));
    assert_in_range(accept_since_ms(started), 0, ACCEPT_BEAT_MS + LATE_MS);
    struct view_node node = view_node(t->client, "here");
    assert_int_equal(node.role, MR_NODE_WORKER);
    assert_true(node.incarnation != 0);
    assert_in_range(node.started_ms, before_ms - 1, accept_wall_ms() + 1);
    assert_in_range(node.last_beat_ms, before_ms - 1, accept_wall_ms() + ACCEPT_BEAT_MS);
    accept_await_echo(t, "x");
}

static void test_29_an_idle_node_stays_live(void **state)
{
    struct accept *t = *state;
    WORKER(t, .node = "idle");
    UNTIL(view_is_live(t->client, "idle"));
    uint64_t incarnation = view_node(t->client, "idle").incarnation;
    mr_mono begin = accept_now();
    int64_t long_ms = accept_size(10, 1) * ACCEPT_DEATH_MS + ACCEPT_BEAT_MS;
    while (accept_since_ms(begin) < long_ms) {
        struct view_node node = view_node(t->client, "idle");
        assert_true(node.there && node.state != MR_NODE_DEAD && node.incarnation == incarnation);
        accept_pass_ms(10);
    }
    PUT(t, .id = "x", .payload = "p");
    accept_await_echo(t, "x");
}

static void test_30_a_short_stop_changes_nothing(void **state)
{
    struct accept *t = *state;
    if (!t->engine->shared)
        return; /* a stopped process stops its engine, too */
    PUT(t, .id = "x", .type = "sleep", .payload = "800");
    pid_t pid = PROCESS(t, t->place[0].url, .node = "halted", .slots = 1);
    UNTIL(accept_ran(t, "x") == 1);
    uint64_t incarnation = view_node(t->client, "halted").incarnation;
    assert_int_equal(kill(pid, SIGSTOP), 0);
    accept_pass_ms(ACCEPT_DEATH_MS / 3);
    assert_int_equal(kill(pid, SIGCONT), 0);
    UNTIL(accept_state(t, "x") == MR_COMPLETED);
    assert_int_equal(accept_ran(t, "x"), 1);
    assert_true(view_node(t->client, "halted").incarnation == incarnation);
}

/* ---- settings ------------------------------------------------------------------------------- */

/* What `millrace work OPTION VALUE` says before it ends with a usage error. */
static void refused(struct accept *t, const char *option, const char *value)
{
    char path[MR_PATH_MAX + 8], said[512] = "";
    (void)snprintf(path, sizeof path, "%s.said", t->audit);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), status = 0;
    const char *program = getenv("MILLRACE");
    assert_true(fd >= 0 && program != NULL);
    pid_t pid = accept_spawn((const char *const[]){program, "work", option, value, "--broker",
                                                   t->place[0].url, "--", "true", NULL},
                             fd);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(pread(fd, said, sizeof said - 1, 0) > 0);
    (void)close(fd);
    (void)unlink(path);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 2);
    assert_non_null(strstr(said, option));
}

static void test_31_beats_below_the_floor_are_refused_by_name(void **state)
{
    struct accept *t = *state;
    static const struct {
        const char *option, *value;
    } rows[] = {
        {"--heartbeat", "1ms"}, {"--heartbeat", "soon"}, {"--heartbeat", "-5s"},
        {"--heartbeat", "1h"},  {"--missed", "1"},       {"--missed", "x"},
        {"--missed", "2.5"},    {"--leader-lease", "x"}, {"--leader-lease", "9s"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        refused(t, rows[i].option, rows[i].value);
    static const struct mr_worker_options options[] = {
        {.beat_ms = -1}, {.beats_missed = 1}, {.leader_ms = 9999}, {.leader_ms = -1}};
    for (size_t i = 0; i < sizeof options / sizeof *options; i++) {
        struct mr_worker *worker = NULL;
        assert_err(mr_worker_new(t->client, &options[i], &worker), MR_INVALID);
        assert_null(worker);
    }
}

/* In full: as long as it takes to see two of them. */
static void test_31_by_default_a_worker_beats_every_five_seconds(void **state)
{
    struct accept *t = *state;
    struct mr_worker *worker = NULL;
    assert_err(mr_worker_new(t->client,
                             &(struct mr_worker_options){.node = mr_slice_str("plain"), .slots = 1},
                             &worker),
               MR_OK);
    assert_err(mr_worker_start(worker), MR_OK);
    int64_t first_ms, second_ms = 0;
    UNTIL((first_ms = view_node(t->client, "plain").last_beat_ms) != 0);
    accept_pass_ms(ACCEPT_BEAT_MS); /* the first one may come right behind the start */
    first_ms = view_node(t->client, "plain").last_beat_ms;
    mr_mono begin = accept_now();
    while (accept_since_ms(begin) < (int64_t)accept_size(4000, 300))
        assert_true(view_node(t->client, "plain").last_beat_ms == first_ms);
    if (accept_size(1, 0)) {
        UNTIL((second_ms = view_node(t->client, "plain").last_beat_ms) != first_ms);
        assert_in_range(second_ms - first_ms, 4900, 5000 + LATE_MS);
    }
    mr_worker_free(worker);
}

/* ---- clocks --------------------------------------------------------------------------------- */

struct wrong_clock {
    char path[MR_PATH_MAX + 8];
    int fd;
};

static void clock_set(const struct wrong_clock *clock, int64_t hours)
{
    int64_t ns = hours * 3600 * MR_NS_PER_S;
    assert_int_equal(pwrite(clock->fd, &ns, sizeof ns, 0), sizeof ns);
}

/* Processes that are started from now on have a wall clock of their own. */
static struct wrong_clock clock_begin(struct accept *t, int64_t hours)
{
    struct wrong_clock clock;
    (void)snprintf(clock.path, sizeof clock.path, "%s.wall", t->audit);
    clock.fd = open(clock.path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(clock.fd >= 0);
    clock_set(&clock, hours);
    assert_int_equal(setenv("MR_ACCEPT_WALL", clock.path, 1), 0);
    return clock;
}

static void clock_end(struct wrong_clock *clock)
{
    assert_int_equal(unsetenv("MR_ACCEPT_WALL"), 0);
    (void)close(clock->fd);
    (void)unlink(clock->path);
}

/* They live for some death times, under the same incarnations; and the first works. */
static void stay(struct accept *t, const char *const *names, size_t n, const char *queue)
{
    uint64_t incarnations[4];
    for (size_t i = 0; i < n; i++)
        incarnations[i] = view_node(t->client, names[i]).incarnation;
    mr_mono begin = accept_now();
    int64_t long_ms = accept_size(5, 1) * ACCEPT_DEATH_MS + ACCEPT_BEAT_MS;
    for (size_t i = 0; accept_since_ms(begin) < long_ms; i = (i + 1) % n) {
        struct view_node node = view_node(t->client, names[i]);
        assert_true(node.there && node.state != MR_NODE_DEAD);
        assert_true(node.incarnation == incarnations[i]);
        accept_pass_ms(5);
    }
    const char *id = PUT(t, .queue = queue, .payload = "p");
    accept_await_echo(t, id);
}

static void test_32_a_wrong_wall_clock_neither_kills_nor_keeps(void **state)
{
    struct accept *t = *state;
    if (!t->engine->shared)
        return; /* it has one clock with its engine: see the simulator */
    accept_settle(t);
    static const char *const name[] = {"ahead"};
    struct wrong_clock clock = clock_begin(t, 1);
    pid_t pid = PROCESS(t, t->place[0].url, .node = "ahead", .queues = "odd", .slots = 1);
    UNTIL(view_is_live(t->client, "ahead"));
    stay(t, name, 1, "odd");
    clock_set(&clock, -1);
    stay(t, name, 1, "odd");
    PUT(t, .id = "x", .queue = "odd", .type = "sleep", .payload = "20000");
    UNTIL(accept_ran(t, "x") == 1);
    WORKER(t, .node = "right", .queues = "odd");
    clock_set(&clock, 1);
    accept_kill_process(t, pid);
    mr_mono died = accept_now();
    UNTIL(!view_is_live(t->client, "ahead") && accept_ran(t, "x") == 2);
    assert_in_range(accept_since_ms(died), 0, ACCEPT_DEATH_MS + ACCEPT_BEAT_MS + LATE_MS);
    assert_err(accept_act(t, MR_VERB_CANCEL, "x", 0), MR_OK);
    UNTIL(accept_state(t, "x") == MR_ARCHIVED);
    clock_end(&clock);
}

static void test_33_when_the_leaders_clock_jumps_nobody_dies(void **state)
{
    struct accept *t = *state;
    if (!t->engine->shared)
        return; /* as 32 */
    struct wrong_clock clock = clock_begin(t, 0);
    PROCESS(t, t->place[0].url, .node = "leader", .queues = "odd");
    UNTIL(view_leads(t->client, "leader"));
    uint64_t term = view_leader(t->client).term;
    WORKER(t, .node = "a");
    WORKER(t, .node = "b");
    for (int64_t hours = accept_size(1, 0) ? -1 : 1; hours <= 1; hours += 2) {
        static const char *const names[] = {"leader", "a", "b"};
        clock_set(&clock, hours);
        stay(t, names, 3, "odd");
    }
    assert_true(view_leader(t->client).term == term);
    clock_end(&clock);
}

/* ---- coming back ---------------------------------------------------------------------------- */

static void test_34_after_a_restart_of_the_server_all_go_on(void **state)
{
    struct accept *t = *state;
    if (!t->engine->kill)
        return; /* it has no server */
    PROCESS(t, t->place[0].url, .node = "p1", .queues = "one");
    PROCESS(t, t->place[0].url, .node = "p2", .queues = "two");
    UNTIL(view_is_live(t->client, "p1") && view_is_live(t->client, "p2"));
    accept_close(t);
    t->engine->kill(&t->place[0]);
    accept_pass_ms((int64_t)accept_size(2000, 500));
    t->engine->restart(&t->place[0]);
    accept_open(t);
    const char *one = PUT(t, .queue = "one", .payload = "1");
    const char *two = PUT(t, .queue = "two", .payload = "2");
    accept_await_echo(t, one);
    accept_await_echo(t, two);
    UNTIL(view_is_live(t->client, "p1") && view_is_live(t->client, "p2"));
    UNTIL(view_leader(t->client).node[0] != '\0');
}

static void test_35_a_node_of_the_same_name_inherits_nothing(void **state)
{
    struct accept *t = *state;
    if (!t->engine->shared)
        return; /* whoever opens the folder next knows at once: 54 */
    accept_settle(t);
    PUT(t, .id = "x", .type = "first");
    pid_t pid = PROCESS(t, t->place[0].url, .node = "same", .slots = 1);
    UNTIL(accept_ran(t, "x") == 1);
    uint64_t incarnation = view_node(t->client, "same").incarnation;
    accept_kill_process(t, pid);
    mr_mono died = accept_now();
    PROCESS(t, t->place[0].url, .node = "same", .slots = 1);
    UNTIL(accept_state(t, "x") == MR_COMPLETED);
    assert_in_range(accept_since_ms(died), 0, ACCEPT_DEATH_MS + ACCEPT_BEAT_MS + LATE_MS);
    assert_int_equal(accept_ran(t, "x"), 2);
    assert_true(view_node(t->client, "same").incarnation != incarnation);
    struct mr_task_list *list = accept_get(t, "x");
    assert_int_equal(mr_task_list_at(list, 0)->crashes, 1); /* it was lost, not handed on */
    mr_task_list_free(list);
}

static void test_36_the_dead_are_not_shown_as_active(void **state)
{
    struct accept *t = *state;
    struct mr_worker *closed = WORKER(t, .node = "closed");
    UNTIL(view_is_live(t->client, "closed"));
    accept_dismiss(t, closed);
    assert_false(view_node(t->client, "closed").there);
    if (!t->engine->shared)
        return; /* nobody dies beside it */
    pid_t pid = PROCESS(t, t->place[0].url, .node = "killed");
    WORKER(t, .node = "lives");
    UNTIL(view_is_live(t->client, "killed") && view_is_live(t->client, "lives"));
    int64_t beat_ms = view_node(t->client, "killed").last_beat_ms;
    accept_kill_process(t, pid);
    mr_mono died = accept_now();
    UNTIL(!view_is_live(t->client, "killed"));
    assert_in_range(accept_since_ms(died), 0, ACCEPT_DEATH_MS + LATE_MS);
    UNTIL(!view_node(t->client, "killed").there ||
          view_node(t->client, "killed").state == MR_NODE_DEAD);
    assert_true(view_is_live(t->client, "lives"));
    struct view_node node = view_node(t->client, "lives");
    assert_in_range(node.last_beat_ms, beat_ms - ACCEPT_BEAT_MS, accept_wall_ms() + 1);
}

int accept_session(const struct accept_engine *engine)
{
    struct CMUnitTest tests[] = {
        ACCEPT_TEST(test_28_a_node_that_starts_is_seen_and_takes_only_then),
        ACCEPT_TEST(test_29_an_idle_node_stays_live),
        ACCEPT_TEST(test_30_a_short_stop_changes_nothing),
        ACCEPT_TEST(test_31_beats_below_the_floor_are_refused_by_name),
        ACCEPT_TEST(test_31_by_default_a_worker_beats_every_five_seconds),
        ACCEPT_TEST(test_32_a_wrong_wall_clock_neither_kills_nor_keeps),
        ACCEPT_TEST(test_33_when_the_leaders_clock_jumps_nobody_dies),
        ACCEPT_TEST(test_35_a_node_of_the_same_name_inherits_nothing),
        ACCEPT_TEST(test_36_the_dead_are_not_shown_as_active),
        ACCEPT_TEST(test_34_after_a_restart_of_the_server_all_go_on),
    };
    return ACCEPT_RUN(engine, "D: sessions, heartbeats, membership", tests);
}
