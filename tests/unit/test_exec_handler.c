/* SPDX-License-Identifier: Apache-2.0 */
/* The process handler: every promise to a command, on real processes. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/arena.h"
#include "base/diag.h"
#include "base/spawn.h"
#include "support/fake_broker.h"
#include "worker/exec.h"
#include "worker/exec_env.h"
#include "worker/worker.h"

enum { PAYLOAD_BYTES = 900 * 1024 };

struct world {
    struct fake *fake;
    struct mr_worker *worker;
    const char *argv[4];
    struct mr_exec_command command;
};

static void quiet(enum mr_diag_level level, const char *line, void *arg)
{
    (void)level, (void)line, (void)arg;
}

static int make_world(void **state)
{
    struct world *world = calloc(1, sizeof *world);
    assert_non_null(world);
    mr_diag_set_sink(quiet, NULL);
    world->fake = fake_new();
    *state = world;
    return 0;
}

static int end_world(void **state)
{
    struct world *world = *state;
    mr_worker_free(world->worker);
    fake_free(world->fake);
    free(world);
    return 0;
}

static void start(struct world *world, struct mr_worker_options options)
{
    world->command.argv = (char *const *)world->argv;
    options.slots = options.slots ? options.slots : 1;
    assert_int_equal(mr_worker_new_on(fake_broker(world->fake), &options, &world->worker), MR_OK);
    assert_int_equal(mr_worker_handle(world->worker, "*", mr_exec_handler, &world->command), MR_OK);
    assert_int_equal(mr_worker_start(world->worker), MR_OK);
}

/* The worker runs this line of shell for every task. */
static void start_shell(struct world *world, const char *line, struct mr_worker_options options)
{
    world->argv[0] = "sh";
    world->argv[1] = "-c";
    world->argv[2] = line;
    start(world, options);
}

/* Runs one task and answers its end. */
static struct fake_report run_task(struct world *world, struct mr_task task)
{
    size_t n = fake_add(world->fake, &task);
    fake_await_state(world->fake, n, FAKE_ENDED);
    return fake_look(world->fake, n);
}

static struct fake_report run_line(struct world *world, const char *line)
{
    start_shell(world, line, (struct mr_worker_options){0});
    return run_task(world, (struct mr_task){.payload = mr_slice_str("payload")});
}

static void stdin_is_the_payload_and_stdout_the_result(void **state)
{
    struct fake_report report = run_line(*state, "echo got; cat");
    assert_int_equal(report.outcome, MR_DONE);
    assert_string_equal(report.result, "got\npayload");
}

static void exit_codes_mean_what_is_promised(void **state)
{
    struct world *world = *state;
    static const struct {
        const char *code;
        enum mr_outcome outcome;
    } rows[] = {
        {"0", MR_DONE}, {"100", MR_FAIL_FOR_GOOD}, {"102", MR_DROP}, {"103", MR_LATER},
        {"1", MR_FAIL}, {"99", MR_FAIL},           {"104", MR_FAIL}, {"255", MR_FAIL},
    };
    start_shell(world, "exit $(cat)", (struct mr_worker_options){0});
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct mr_task task = {.payload = mr_slice_str(rows[i].code)};
        assert_int_equal(run_task(world, task).outcome, rows[i].outcome);
    }
}

static void exit_101_hands_the_task_back(void **state)
{
    struct world *world = *state;
    size_t task = fake_add(world->fake, &(struct mr_task){0});
    start_shell(world, "exit 101", (struct mr_worker_options){0});
    fake_await_handed_back(world->fake, 1);
    mr_worker_stop(world->worker);
    assert_int_equal(fake_look(world->fake, task).outcome, MR_HAND_BACK);
}

static void stderr_is_the_error_text(void **state)
{
    struct fake_report report = run_line(*state, "echo out; echo went wrong >&2; exit 3");
    assert_int_equal(report.outcome, MR_FAIL);
    assert_string_equal(report.error, "went wrong");
}

static void without_stderr_the_exit_status_is_the_error(void **state)
{
    assert_string_equal(run_line(*state, "exit 3").error, "exit status 3");
}

static void a_signal_is_a_failure_with_its_name(void **state)
{
    struct fake_report report = run_line(*state, "kill -SEGV $$");
    assert_int_equal(report.outcome, MR_FAIL);
    assert_non_null(strstr(report.error, "killed by signal 11"));
}

static void a_signal_is_told_beside_what_was_said(void **state)
{
    struct fake_report report = run_line(*state, "echo went wrong >&2; kill -KILL $$");
    assert_string_equal(report.error, "went wrong\nkilled by signal 9 (Killed)");
}

static void a_long_stderr_is_cut_between_characters(void **state)
{
    /* 4097 bytes: the first character of two bytes would be cut in half. */
    struct fake_report report =
        run_line(*state, "for i in $(seq 2048); do printf '\\303\\244'; done >&2; "
                         "printf x >&2; exit 1");
    assert_memory_equal(report.error, "\u00e4\u00e4", 4);
}

static void a_long_stderr_in_one_piece_is_cut_between_characters(void **state)
{
    struct fake_report report =
        run_line(*state, "all=$(for i in $(seq 3000); do printf '\\303\\244'; done); "
                         "printf %sx $all >&2; exit 1");
    assert_memory_equal(report.error, "\u00e4\u00e4", 4);
}

static void only_the_end_of_a_long_stderr_is_kept(void **state)
{
    struct fake_report report = run_line(*state, "head -c 100000 /dev/zero | tr '\\0' x >&2; "
                                                 "head -c 4096 /dev/zero | tr '\\0' y >&2; exit 1");
    assert_int_equal(report.error[0], 'y');
}

static void a_command_that_is_not_there_fails_with_a_clear_text(void **state)
{
    struct world *world = *state;
    world->argv[0] = "no-such-command-anywhere";
    start(world, (struct mr_worker_options){0});
    struct fake_report report = run_task(world, (struct mr_task){0});
    assert_int_equal(report.outcome, MR_FAIL);
    assert_string_equal(report.error,
                        "cannot run no-such-command-anywhere: No such file or directory");
}

/* Until there is no other. */
static void take_all_descriptors(int fds[], size_t max, size_t *ret_n)
{
    size_t n = 0;
    while (n < max && (fds[n] = dup(STDIN_FILENO)) >= 0)
        n++;
    assert_in_range(n, 1, max - 1);
    *ret_n = n;
}

static void without_a_descriptor_to_be_had_a_task_is_handed_back(void **state)
{
    enum { MOST = 256 };
    struct world *world = *state;
    struct rlimit before, few;
    int fds[MOST];
    size_t n, task;
    start_shell(world, "true", (struct mr_worker_options){0});
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = (struct rlimit){MOST, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    take_all_descriptors(fds, MOST, &n);
    task = fake_add(world->fake, &(struct mr_task){0});
    fake_await_state(world->fake, task, FAKE_ENDED);
    while (n > 0)
        close(fds[--n]);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(fake_look(world->fake, task).outcome, MR_HAND_BACK);
    assert_int_equal(run_task(world, (struct mr_task){0}).outcome, MR_DONE);
}

static void a_command_may_have_as_many_descriptors_as_before(void **state)
{
    struct rlimit before, few, now;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    few = (struct rlimit){256, before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    mr_spawn_raise_files();
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &now), 0);
    assert_true(now.rlim_cur == before.rlim_max && now.rlim_max == before.rlim_max);
    assert_int_equal(run_line(*state, "test $(ulimit -Sn) = 256").outcome, MR_DONE);
}

static void the_environment_describes_the_task(void **state)
{
    struct world *world = *state;
    setenv("MILLRACE_HEADER_LEFT_OVER", "old", 1);
    setenv("MILLRACE_QUEUE", "old", 1);
    struct mr_header headers[] = {
        {mr_slice_str("trace-id"), mr_slice_str("a b=c")},
        {mr_slice_str("x.Y"), mr_slice_str("")},
    };
    struct mr_task task = {
        .type = mr_slice_str("mail:send"),
        .queue = mr_slice_str("fast"),
        .attempt = 3,
        .headers = headers,
        .headers_n = 2,
    };
    start_shell(world,
                "echo \"$MILLRACE_TASK_ID|$MILLRACE_TASK_TYPE|$MILLRACE_QUEUE|$MILLRACE_ATTEMPT|"
                "$MILLRACE_DEADLINE|$MILLRACE_HEADER_TRACE_ID|${MILLRACE_HEADER_X_Y-unset}|"
                "${MILLRACE_HEADER_LEFT_OVER-unset}|$MILLRACE_EPOCH\"",
                (struct mr_worker_options){0});
    struct fake_report report = run_task(world, task);
    char expected[256];
    snprintf(expected, sizeof expected, "0|mail:send|fast|3|0|a b=c||unset|%llu\n",
             (unsigned long long)report.epoch);
    assert_string_equal(report.result, expected);
    unsetenv("MILLRACE_HEADER_LEFT_OVER");
    unsetenv("MILLRACE_QUEUE");
}

static void the_deadline_is_in_the_environment(void **state)
{
    struct world *world = *state;
    start_shell(world, "echo $MILLRACE_DEADLINE", (struct mr_worker_options){0});
    int64_t before_ms = mr_wall_ms(mr_wall_now(mr_clock_system()));
    struct fake_report report = run_task(world, (struct mr_task){.timeout_ms = 60 * 1000});
    int64_t deadline_ms = strtoll(report.result, NULL, 10);
    assert_true(deadline_ms >= before_ms + 59 * 1000);
    assert_true(deadline_ms <= mr_wall_ms(mr_wall_now(mr_clock_system())) + 60 * 1000);
}

static void a_big_payload_passes_through_a_command_that_writes_first(void **state)
{
    struct world *world = *state;
    char *payload = malloc(PAYLOAD_BYTES);
    assert_non_null(payload);
    memset(payload, 'p', PAYLOAD_BYTES);
    start_shell(world, "cat | tee /dev/stderr | wc -c", (struct mr_worker_options){0});
    struct fake_report report =
        run_task(world, (struct mr_task){.payload = mr_slice_make(payload, PAYLOAD_BYTES)});
    assert_int_equal(report.outcome, MR_DONE);
    assert_int_equal(strtol(report.result, NULL, 10), PAYLOAD_BYTES);
    free(payload);
}

static void a_command_that_reads_nothing_succeeds(void **state)
{
    struct world *world = *state;
    char *payload = calloc(1, PAYLOAD_BYTES);
    assert_non_null(payload);
    start_shell(world, "exec 0<&-; echo fine", (struct mr_worker_options){0});
    struct fake_report report =
        run_task(world, (struct mr_task){.payload = mr_slice_make(payload, PAYLOAD_BYTES)});
    assert_int_equal(report.outcome, MR_DONE);
    assert_string_equal(report.result, "fine\n");
    free(payload);
}

static void a_result_of_one_mebibyte_is_kept(void **state)
{
    struct fake_report report = run_line(*state, "head -c 1048576 /dev/zero | tr '\\0' r");
    assert_int_equal(report.outcome, MR_DONE);
    assert_int_equal(report.result[0], 'r');
}

static void a_bigger_result_is_a_failure_and_ends_the_command(void **state)
{
    struct fake_report report = run_line(*state, "cat /dev/zero");
    assert_int_equal(report.outcome, MR_FAIL);
    assert_string_equal(report.error, "result over 1 MiB");
}

static void progress_lines_are_passed_on(void **state)
{
    struct world *world = *state;
    start_shell(world,
                "printf 'nonsense\\n200 no\\n12%% a bit\\n55 more than half\\n' >&3; "
                "sleep 60",
                (struct mr_worker_options){.grace_ms = 1});
    size_t task = fake_add(world->fake, &(struct mr_task){0});
    fake_await_progress(world->fake, task, 55);
    assert_string_equal(fake_look(world->fake, task).progress, "more than half");
    fake_stop(world->fake, task, MR_STOP_CANCEL);
    fake_await_state(world->fake, task, FAKE_ENDED);
}

static void a_cancel_is_a_sigterm_to_the_group(void **state)
{
    struct world *world = *state;
    start_shell(world, "trap 'echo asked to stop >&2; exit 1' TERM; echo 1 >&3; sleep 60 & wait",
                (struct mr_worker_options){0});
    size_t task = fake_add(world->fake, &(struct mr_task){0});
    fake_await_progress(world->fake, task, 1);
    fake_stop(world->fake, task, MR_STOP_CANCEL);
    fake_await_state(world->fake, task, FAKE_ENDED);
    struct fake_report report = fake_look(world->fake, task);
    assert_int_equal(report.outcome, MR_FAIL_FOR_GOOD);
    assert_string_equal(report.error, "cancelled\nasked to stop");
}

static void a_timeout_ends_a_command_that_ignores_sigterm(void **state)
{
    struct world *world = *state;
    start_shell(world, "trap '' TERM; while :; do sleep 1; done",
                (struct mr_worker_options){.grace_ms = 100});
    struct fake_report report = run_task(world, (struct mr_task){.timeout_ms = 100});
    assert_int_equal(report.outcome, MR_FAIL);
    assert_string_equal(report.error, "timeout after 100ms");
    assert_int_equal(report.finishes, 1);
}

/* Whether a process is there and not just a zombie that nobody has reaped yet. */
static bool is_alive(long pid)
{
    char path[64], line[256] = "";
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    FILE *file = fopen(path, "r");
    if (!file)
        return false;
    bool read = fgets(line, sizeof line, file) != NULL;
    fclose(file);
    const char *end = read ? strrchr(line, ')') : NULL;
    return end && end[2] != 'Z';
}

static void nothing_of_a_cancelled_group_stays_behind(void **state)
{
    struct world *world = *state;
    start_shell(world, "(trap '' TERM; sleep 300) & echo 1 $! >&3; wait",
                (struct mr_worker_options){0});
    size_t task = fake_add(world->fake, &(struct mr_task){0});
    fake_await_progress(world->fake, task, 1);
    long grandchild = strtol(fake_look(world->fake, task).progress, NULL, 10);
    assert_true(grandchild > 0 && is_alive(grandchild));
    fake_stop(world->fake, task, MR_STOP_CANCEL);
    fake_await_state(world->fake, task, FAKE_ENDED);
    struct mr_event never;
    mr_event_init(&never);
    for (int i = 0; i < 2000 && is_alive(grandchild); i++)
        mr_event_wait(&never, 5 * MR_NS_PER_MS); /* the kernel needs a moment for SIGKILL */
    assert_false(is_alive(grandchild));
}

static void what_a_command_leaves_running_is_not_waited_for(void **state)
{
    struct world *world = *state;
    start_shell(world, "sleep 300 & echo $!", (struct mr_worker_options){0});
    struct fake_report report = run_task(world, (struct mr_task){0});
    assert_int_equal(report.outcome, MR_DONE);
    kill((pid_t)strtol(report.result, NULL, 10), SIGKILL);
}

static void a_command_inherits_no_other_descriptor_and_no_blocked_signal(void **state)
{
    struct fake_report report = run_line(
        *state, "ls /proc/$$/fd | tr '\\n' ' '; exec grep -E 'SigBlk|SigIgn' /proc/self/status");
    assert_memory_equal(report.result, "0 1 2 3 ", 8);
    assert_non_null(strstr(report.result, "SigBlk:\t0000000000000000"));
    const char *ignored = strstr(report.result, "SigIgn:\t");
    assert_non_null(ignored);
    /* 32 and 33 are the C library's own: it lets nobody change them, and make starts us with one
     * ignored. */
    const unsigned long long libc_own = 3ULL << 31;
    assert_int_equal(strtoull(ignored + strlen("SigIgn:\t"), NULL, 16) & ~libc_own, 0);
}

static void many_commands_run_at_once(void **state)
{
    struct world *world = *state;
    for (int i = 0; i < 60; i++)
        fake_add(world->fake, &(struct mr_task){.payload = mr_slice_str("x")});
    start_shell(world, "cat", (struct mr_worker_options){.slots = 8});
    fake_await_ended(world->fake, 60);
    for (size_t i = 0; i < 60; i++)
        assert_string_equal(fake_look(world->fake, i).result, "x");
}

static void a_stop_hands_back_what_the_command_did_not_finish(void **state)
{
    struct world *world = *state;
    start_shell(world, "echo 1 >&3; sleep 60",
                (struct mr_worker_options){.drain_ms = 1, .grace_ms = 5000});
    size_t task = fake_add(world->fake, &(struct mr_task){0});
    fake_await_progress(world->fake, task, 1);
    mr_worker_stop(world->worker);
    assert_int_equal(fake_look(world->fake, task).outcome, MR_HAND_BACK);
}

static void *stop_it(void *arg)
{
    mr_worker_stop(((struct world *)arg)->worker);
    return NULL;
}

static void a_second_stop_kills_a_command_that_ignores_the_first(void **state)
{
    struct world *world = *state;
    start_shell(world, "trap 'echo 2 >&3' TERM; echo 1 >&3; while :; do sleep 0.01; done",
                (struct mr_worker_options){.drain_ms = 1, .grace_ms = MR_MS_PER_DAY});
    size_t task = fake_add(world->fake, &(struct mr_task){0});
    fake_await_progress(world->fake, task, 1);
    pthread_t thread;
    assert_int_equal(mr_thread_start(&thread, "stop", stop_it, world), MR_OK);
    fake_await_progress(world->fake, task, 2); /* it was told, and goes on */
    mr_worker_stop(world->worker);
    mr_thread_join(thread);
    assert_int_equal(fake_look(world->fake, task).outcome, MR_HAND_BACK);
}

#define WITH_WORLD(test) cmocka_unit_test_setup_teardown(test, make_world, end_world)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_WORLD(stdin_is_the_payload_and_stdout_the_result),
        WITH_WORLD(exit_codes_mean_what_is_promised),
        WITH_WORLD(exit_101_hands_the_task_back),
        WITH_WORLD(stderr_is_the_error_text),
        WITH_WORLD(without_stderr_the_exit_status_is_the_error),
        WITH_WORLD(a_signal_is_a_failure_with_its_name),
        WITH_WORLD(a_signal_is_told_beside_what_was_said),
        WITH_WORLD(a_long_stderr_is_cut_between_characters),
        WITH_WORLD(a_long_stderr_in_one_piece_is_cut_between_characters),
        WITH_WORLD(only_the_end_of_a_long_stderr_is_kept),
        WITH_WORLD(a_command_that_is_not_there_fails_with_a_clear_text),
        WITH_WORLD(without_a_descriptor_to_be_had_a_task_is_handed_back),
        WITH_WORLD(the_environment_describes_the_task),
        WITH_WORLD(the_deadline_is_in_the_environment),
        WITH_WORLD(a_big_payload_passes_through_a_command_that_writes_first),
        WITH_WORLD(a_command_that_reads_nothing_succeeds),
        WITH_WORLD(a_result_of_one_mebibyte_is_kept),
        WITH_WORLD(a_bigger_result_is_a_failure_and_ends_the_command),
        WITH_WORLD(progress_lines_are_passed_on),
        WITH_WORLD(a_cancel_is_a_sigterm_to_the_group),
        WITH_WORLD(a_timeout_ends_a_command_that_ignores_sigterm),
        WITH_WORLD(nothing_of_a_cancelled_group_stays_behind),
        WITH_WORLD(what_a_command_leaves_running_is_not_waited_for),
        WITH_WORLD(a_command_inherits_no_other_descriptor_and_no_blocked_signal),
        WITH_WORLD(many_commands_run_at_once),
        WITH_WORLD(a_stop_hands_back_what_the_command_did_not_finish),
        WITH_WORLD(a_second_stop_kills_a_command_that_ignores_the_first),
        WITH_WORLD(a_command_may_have_as_many_descriptors_as_before), /* the last: it stays so */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
