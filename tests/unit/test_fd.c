/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process whose stdin, stdout and stderr are closed: nothing that is made then has one of their numbers.
 * Each test is a child of its own, since closing them would take the harness's away.
 */
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/fd.h"
#include "base/fs.h"
#include "base/loop.h"
#include "base/net.h"
#include "base/spawn.h"

enum { STANDARD = 3 };

static char root[] = P_tmpdir "/millrace-fd-XXXXXX";

static bool standard_are_free(void)
{
    for (int fd = 0; fd < STANDARD; fd++)
        if (fcntl(fd, F_GETFD) >= 0 || errno != EBADF)
            return false;
    return true;
}

/* What a child answers that has none of the three. */
static bool without_standard(bool (*body)(void))
{
    int status = 0;
    pid_t pid = fork();
    if (pid == 0) {
        for (int fd = 0; fd < STANDARD; fd++)
            close(fd);
        bool fine = body() && standard_are_free();
        _exit(fine ? 0 : 1);
    }
    assert_true(pid > 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return status == 0;
}

/* ---- the helper ----------------------------------------------------------------------------- */

static bool moves(void)
{
    int low = open("/dev/null", O_RDONLY), apart = mr_fd_apart(low);
    int above = mr_fd_above(open("/dev/null", O_RDONLY), 20);
    return low == 0 && apart >= STANDARD && (fcntl(apart, F_GETFD) & FD_CLOEXEC) != 0 &&
           above > 20 && mr_fd_above(above, 20) == above;
}

static void a_low_one_is_moved_and_a_high_one_stays(void **state)
{
    (void)state;
    assert_true(without_standard(moves));
}

static void a_failure_is_handed_through_with_its_reason(void **state)
{
    (void)state;
    errno = EMFILE;
    assert_int_equal(mr_fd_apart(-1), -1);
    assert_int_equal(errno, EMFILE);
}

/* ---- who makes some ------------------------------------------------------------------------- */

static bool opens_files(void)
{
    struct mr_fs *fs = mr_fs_system();
    struct mr_file *file = NULL, *again = NULL, *lock = NULL;
    char path[MR_PATH_MAX], lock_path[MR_PATH_MAX], back[4] = "";
    bool fine = mr_path_join(path, root, "f") == MR_OK &&
                mr_path_join(lock_path, root, "lock") == MR_OK &&
                mr_fs_open(fs, path, MR_OPEN_CREATE, &file) == MR_OK &&
                mr_fs_open(fs, path, MR_OPEN_READ, &again) == MR_OK &&
                fs->ops->lock(fs, lock_path, &lock, NULL) == MR_OK && standard_are_free();
    /* What somebody prints does not get there. */
    fine = fine && mr_file_pwrite(file, "ours", 4, 0) == MR_OK &&
           write(STDERR_FILENO, "text", 4) < 0 && write(STDOUT_FILENO, "text", 4) < 0 &&
           mr_file_pread(again, back, 4, 0) == MR_OK && memcmp(back, "ours", 4) == 0;
    mr_file_close(file);
    mr_file_close(again);
    mr_file_close(lock);
    return fine;
}

static void files_of_a_store_are_not_where_somebody_prints(void **state)
{
    (void)state;
    assert_true(without_standard(opens_files));
}

static bool opens_connections(void)
{
    struct mr_loop *loop = NULL;
    struct mr_addr addr, bound, peer;
    struct mr_detail detail;
    size_t n = 0;
    int listener = -1, client = -1, server = -1;
    enum mr_err err = MR_EMPTY;
    if (mr_loop_new(&loop) != MR_OK || !standard_are_free() ||
        mr_host_resolve("127.0.0.1", 0, MR_RESOLVE_NUMBERS, &addr, 1, &n, &detail) != MR_OK ||
        mr_net_listen(&addr, &listener, &bound) != MR_OK ||
        mr_net_connect(&bound, &client) != MR_OK)
        return false;
    while (err == MR_EMPTY)
        err = mr_net_accept(listener, &server, &peer);
    return err == MR_OK && server >= STANDARD && client >= STANDARD && listener >= STANDARD;
}

static void connections_and_loops_are_not_either(void **state)
{
    (void)state;
    assert_true(without_standard(opens_connections));
}

static bool starts_process(void)
{
    char shell[] = "sh", flag[] = "-c", line[] = "cat; echo said >&2";
    char *argv[] = {shell, flag, line, NULL};
    struct mr_spawn spawn = {.argv = argv, .env = environ};
    int in[2], out[2], err[2], progress[2], pidfd = -1, errnum = 0, status = -1;
    pid_t pid = -1;
    char back[8] = "", said[8] = "";
    if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0 ||
        pipe2(progress, O_CLOEXEC) != 0)
        return false;
    int *const childs[] = {&in[0], &out[1], &err[1], &progress[1]};
    int *const ours[] = {&in[1], &out[0], &err[0], &progress[0]};
    for (int i = 0; i <= MR_SPAWN_PROGRESS_FD; i++) {
        *ours[i] = mr_fd_above(*ours[i], MR_SPAWN_PROGRESS_FD);
        spawn.fds[i] = *childs[i] = mr_fd_above(*childs[i], MR_SPAWN_PROGRESS_FD);
    }
    if (!standard_are_free() || mr_spawn(&spawn, &pid, &pidfd, &errnum) != MR_OK)
        return false;
    for (int i = 0; i <= MR_SPAWN_PROGRESS_FD; i++)
        close(*childs[i]);
    bool fine = write(in[1], "given", 5) == 5 && close(in[1]) == 0 &&
                read(out[0], back, sizeof back) == 5 && read(err[0], said, sizeof said) == 5;
    return waitpid(pid, &status, 0) == pid && status == 0 && fine && pidfd >= STANDARD &&
           memcmp(back, "given", 5) == 0 && memcmp(said, "said\n", 5) == 0;
}

static void a_command_gets_its_own_streams_all_the_same(void **state)
{
    (void)state;
    assert_true(without_standard(starts_process));
}

static int setup(void **state)
{
    (void)state;
    return mkdtemp(root) != NULL ? 0 : -1;
}

static int teardown(void **state)
{
    char command[sizeof root + 16];
    (void)state;
    snprintf(command, sizeof command, "rm -rf '%s'", root);
    return system(command);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_low_one_is_moved_and_a_high_one_stays),
        cmocka_unit_test(a_failure_is_handed_through_with_its_reason),
        cmocka_unit_test(files_of_a_store_are_not_where_somebody_prints),
        cmocka_unit_test(connections_and_loops_are_not_either),
        cmocka_unit_test(a_command_gets_its_own_streams_all_the_same),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
