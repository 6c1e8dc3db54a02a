/* SPDX-License-Identifier: Apache-2.0 */
/* Reduces that do not end as they should: commands that hang, servers that run none, results that change. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "jobs/rig.h"

/* ---- commands that last ---------------------------------------------------------------------- */

/* Such a command says who it is, and lasts; whether it keeps its outputs open makes a difference to who waits for it. */
static void hang(struct rig *rig, const char *rest, char reduce[512])
{
    snprintf(reduce, 512, "command:echo $$ >%s/pid.new; mv %s/pid.new %s/pid; %s sleep 1000",
             rig->dir, rig->dir, rig->dir, rest);
}

static pid_t pid_of(struct rig *rig)
{
    char path[128];
    int pid = 0;
    snprintf(path, sizeof path, "%s/pid", rig->dir);
    FILE *file = fopen(path, "r");
    if (file == NULL)
        return 0;
    assert_int_equal(fscanf(file, "%d", &pid), 1);
    (void)fclose(file);
    (void)remove(path);
    return pid;
}

static void test_111_a_reduce_command_dies_with_its_job(void **state)
{
    static const char *const rests[] = {"", "exec >&- 2>&-;"};
    struct rig *rig = rig_make();
    char ids[2][RIG_ID_MAX], other[RIG_ID_MAX], reduce[512];
    pid_t pids[2] = {0};
    (void)state;
    rig_serve(rig, 0);
    rig_work(rig, 0, 2);
    for (size_t i = 0; i < 2; i++) {
        hang(rig, rests[i], reduce);
        rig_load(rig, RIG_JOB(.reduce = mr_slice_str(reduce)), "%zu\n", 3, ids[i]);
        RIG_UNTIL((pids[i] = pid_of(rig)) != 0);
    }
    /* Nobody waits for them. */
    rig_load(rig, RIG_JOB(.reduce = MR_SLICE_LIT("sum")), "%zu\n", 3, other);
    RIG_UNTIL(rig_state(rig, other) == MR_JOB_SUCCEEDED);
    rig_load(rig, RIG_JOB(.reduce = MR_SLICE_LIT("command:cat *")), "%zu\n", 3, other);
    RIG_UNTIL(rig_state(rig, other) == MR_JOB_SUCCEEDED);
    assert_int_equal(kill(pids[0], 0), 0);
    assert_int_equal(rig_act(rig, MR_JOB_CANCEL, ids[0]), MR_OK);
    RIG_UNTIL(kill(pids[0], 0) != 0);
    assert_int_equal(rig_state(rig, ids[0]), MR_JOB_CANCELLED);
    /* And with the server: the job is then another one's. */
    assert_int_equal(kill(pids[1], 0), 0);
    rig_unserve(rig, 0);
    assert_int_not_equal(kill(pids[1], 0), 0);
    rig_serve(rig, 0);
    RIG_UNTIL((pids[1] = pid_of(rig)) != 0);
    assert_int_equal(rig_act(rig, MR_JOB_CANCEL, ids[1]), MR_OK);
    RIG_UNTIL(kill(pids[1], 0) != 0);
    rig_free(rig);
}

static void test_106_a_reduce_command_may_last_as_long_as_a_task(void **state)
{
    static const char *const rests[] = {"", "exec >&- 2>&-;"};
    struct rig *rig = rig_make();
    (void)state;
    rig_serve(rig, 0);
    rig_work(rig, 0, 2);
    for (size_t i = 0; i < 2; i++) {
        char id[RIG_ID_MAX], reduce[512];
        pid_t pid = 0;
        hang(rig, rests[i], reduce);
        rig_load(rig, RIG_JOB(.reduce = mr_slice_str(reduce), .timeout_ms = 1000), "%zu\n", 3, id);
        RIG_UNTIL((pid = pid_of(rig)) != 0);
        RIG_UNTIL(rig_state(rig, id) == MR_JOB_FAILED);
        assert_non_null(strstr(rig_job(rig, id).reason, "still running after 1 s"));
        RIG_UNTIL(kill(pid, 0) != 0);
    }
    rig_free(rig);
}

/* Of a command whose server was killed an hour ago, or is at it. */
static void make_folder(struct rig *rig, const char *name, char path[128])
{
    static const struct timespec ago[] = {{1000000000, 0}, {1000000000, 0}};
    char part[160];
    snprintf(path, 128, "%s/%s", rig->dir, name);
    snprintf(part, sizeof part, "%s/0", path);
    assert_int_equal(mkdir(path, 0700), 0);
    FILE *file = fopen(part, "w");
    assert_non_null(file);
    (void)fclose(file);
    assert_int_equal(utimensat(AT_FDCWD, path, ago, 0), 0);
}

static void test_105_what_a_killed_server_left_of_a_reduce_goes(void **state)
{
    struct rig *rig = rig_make();
    char left[128], locked[128], others[128];
    (void)state;
    make_folder(rig, "millrace-job-left", left);
    make_folder(rig, "millrace-job-locked", locked);
    make_folder(rig, "of-somebody", others);
    int lock = open(locked, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_int_equal(flock(lock, LOCK_EX | LOCK_NB), 0);
    rig_serve(rig, 0);
    RIG_UNTIL(access(left, F_OK) != 0);
    rig_unserve(rig, 0);
    assert_int_equal(access(locked, F_OK), 0);
    assert_int_equal(access(others, F_OK), 0);
    close(lock);
    rig_free(rig);
}

/* ---- servers without commands ---------------------------------------------------------------- */

static void serve_without_commands(struct rig *rig, size_t i)
{
    rig->settings.commands = false;
    rig_serve(rig, i);
    rig->settings.commands = true;
}

static void test_102_a_server_without_commands_leaves_them_to_one_that_has(void **state)
{
    struct rig *rig = rig_make();
    char id[RIG_ID_MAX], next[RIG_ID_MAX];
    (void)state;
    rig_serve(rig, 0);
    rig_load(rig, RIG_JOB(.reduce = MR_SLICE_LIT("command:cat *")), "%zu\n", 20, id);
    rig_unserve(rig, 0);
    serve_without_commands(rig, 1);
    rig_work(rig, 0, 2);
    RIG_UNTIL(rig_job(rig, id).reducing);
    /* What else there is goes on. */
    rig_load(rig, RIG_JOB(), "%zu\n", 20, next);
    RIG_UNTIL(rig_state(rig, next) == MR_JOB_SUCCEEDED);
    assert_true(rig_job(rig, id).reducing);
    rig_serve(rig, 0);
    rig_await_end(rig, id);
    rig_check_result(rig, id, "%zu\n", 20);
    rig_free(rig);
}

static void test_106_without_any_server_that_runs_commands_the_job_fails_at_last(void **state)
{
    struct rig *rig = rig_make();
    char id[RIG_ID_MAX];
    (void)state;
    rig->settings.look_ms = 10;
    rig_serve(rig, 0);
    rig_load(rig, RIG_JOB(.reduce = MR_SLICE_LIT("command:cat *")), "%zu\n", 20, id);
    rig_unserve(rig, 0);
    serve_without_commands(rig, 0);
    rig_work(rig, 0, 2);
    RIG_UNTIL(rig_state(rig, id) == MR_JOB_FAILED);
    assert_non_null(strstr(rig_job(rig, id).reason, "commands"));
    /* Nothing but the reduce is done again. */
    size_t runs = rig->runs;
    rig_unserve(rig, 0);
    rig_serve(rig, 0);
    assert_int_equal(rig_act(rig, MR_JOB_RETRY, id), MR_OK);
    rig_await_end(rig, id);
    rig_check_result(rig, id, "%zu\n", 20);
    assert_int_equal(rig->runs, runs);
    rig_free(rig);
}

/* ---- results --------------------------------------------------------------------------------- */

static enum mr_err ask_piece(struct rig *rig, const char *id, uint32_t seq, uint64_t *stamp)
{
    struct mr_job_ask ask = {
        .kind = MR_JOB_RESULT, .id = mr_slice_str(id), .seq = seq, .stamp = *stamp};
    enum mr_err err = mr_job_service_ask_wait(rig->services[0], &ask);
    *stamp = ask.stamp;
    mr_job_ask_done(&ask);
    return err;
}

static void test_103_pieces_of_two_results_are_not_mixed(void **state)
{
    enum { PARTS = 3000 }; /* of 200 bytes: three pieces */
    struct rig *rig = rig_make();
    static char texts[PARTS][208];
    static struct mr_slice parts[PARTS];
    char id[RIG_ID_MAX];
    uint64_t stamp = 0, none = 0;
    (void)state;
    for (size_t i = 0; i < PARTS; i++) {
        snprintf(texts[i], sizeof texts[i], "%0200zu", i);
        parts[i] = mr_slice_str(i == 7 ? "fail" : texts[i]);
    }
    rig_serve(rig, 0);
    rig_work(rig, 0, 4);
    rig_load_parts(rig, RIG_JOB(.policy = MR_JOB_FINISH), parts, PARTS, id);
    rig_await_end(rig, id);
    assert_int_equal(rig_job(rig, id).failed, 1);
    assert_int_equal(ask_piece(rig, id, 0, &stamp), MR_OK);
    assert_int_equal(ask_piece(rig, id, 1, &stamp), MR_OK);
    assert_int_equal(rig_act(rig, MR_JOB_RETRY, id), MR_OK);
    rig_await_end(rig, id);
    assert_int_equal(rig_state(rig, id), MR_JOB_SUCCEEDED);
    assert_int_equal(ask_piece(rig, id, 2, &none), MR_OK);
    assert_int_equal(ask_piece(rig, id, 2, &stamp), MR_WRONG_STATE);
    rig_free(rig);
}

int jobs_reduces(void)
{
    struct CMUnitTest tests[] = {
        cmocka_unit_test(test_102_a_server_without_commands_leaves_them_to_one_that_has),
        cmocka_unit_test(test_103_pieces_of_two_results_are_not_mixed),
        cmocka_unit_test(test_105_what_a_killed_server_left_of_a_reduce_goes),
        cmocka_unit_test(test_106_a_reduce_command_may_last_as_long_as_a_task),
        cmocka_unit_test(test_106_without_any_server_that_runs_commands_the_job_fails_at_last),
        cmocka_unit_test(test_111_a_reduce_command_dies_with_its_job),
    };
    return JOBS_RUN("jobs: reduces", tests);
}
