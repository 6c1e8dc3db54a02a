/* SPDX-License-Identifier: Apache-2.0 */
/* Errors: the list, errno, details, assertions; names of states. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/err.h"
#include "base/slice.h"

static void every_error_has_a_name_and_a_text(void **state)
{
    (void)state;
    for (int i = 0; i < MR_ERR_COUNT; i++) {
        assert_true(strlen(mr_err_name((enum mr_err)i)) > 1);
        assert_true(strlen(mr_err_text((enum mr_err)i)) > 1);
        for (int j = 0; j < i; j++)
            assert_string_not_equal(mr_err_name((enum mr_err)i), mr_err_name((enum mr_err)j));
    }
}

static void columns_come_from_the_list(void **state)
{
    (void)state;
    assert_int_equal(MR_OK, 0);
    assert_string_equal(mr_err_name(MR_NOT_FOUND), "NOT_FOUND");
    assert_string_equal(mr_err_text(MR_NOT_FOUND), "not found");
    assert_false(mr_err_retriable(MR_NOT_FOUND));
    assert_int_equal(mr_err_exit_code(MR_NOT_FOUND), 3);
    assert_int_equal(mr_err_grpc_status(MR_NOT_FOUND), 5);
    assert_int_equal(mr_err_http_status(MR_NOT_FOUND), 404);
    assert_string_equal(mr_err_name(MR_VERSION), "VERSION");
    assert_true(mr_err_retriable(MR_UNAVAILABLE));
    assert_int_equal(mr_err_exit_code(MR_UNAVAILABLE), 6);
    assert_int_equal(mr_err_exit_code(MR_TIMEOUT), 7);
    assert_int_equal(mr_err_http_status(MR_QUEUE_FULL), 429);
}

static void only_ok_exits_with_zero(void **state)
{
    (void)state;
    for (int i = 0; i < MR_ERR_COUNT; i++)
        assert_int_equal(mr_err_exit_code((enum mr_err)i) == 0, i == MR_OK);
}

static void a_value_outside_the_list_is_an_unknown_failure(void **state)
{
    (void)state;
    static const int outside[] = {-1, MR_ERR_COUNT, 9999};
    for (size_t i = 0; i < 3; i++) {
        assert_string_equal(mr_err_name((enum mr_err)outside[i]), "UNKNOWN");
        assert_string_equal(mr_err_text((enum mr_err)outside[i]), "unknown error");
        assert_int_equal(mr_err_exit_code((enum mr_err)outside[i]), 1);
        assert_int_equal(mr_err_http_status((enum mr_err)outside[i]), 500);
    }
}

static void errno_values_are_translated_and_never_to_ok(void **state)
{
    (void)state;
    static const struct {
        int errnum;
        enum mr_err err;
    } rows[] = {
        {ENOMEM, MR_NOMEM},       {ENOENT, MR_NOT_FOUND},     {EEXIST, MR_CONFLICT},
        {EACCES, MR_DENIED},      {EPERM, MR_DENIED},         {EROFS, MR_DENIED},
        {ENOSPC, MR_DISK_FULL},   {EDQUOT, MR_DISK_FULL},     {EIO, MR_IO},
        {EWOULDBLOCK, MR_IN_USE}, {ENAMETOOLONG, MR_TOO_BIG}, {EINVAL, MR_INVALID},
        {EFBIG, MR_DISK_FULL},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_int_equal(mr_err_from_errno(rows[i].errnum), rows[i].err);
    for (int errnum = -1; errnum < 200; errnum++)
        assert_int_not_equal(mr_err_from_errno(errnum), MR_OK);
}

static void a_detail_is_cut_at_its_size_and_may_be_absent(void **state)
{
    (void)state;
    struct mr_detail detail;
    mr_detail_set(&detail, "file %s, offset %d", "a.log", 42);
    assert_string_equal(detail.text, "file a.log, offset 42");
    char text[2 * sizeof detail.text];
    memset(text, 'x', sizeof text);
    text[sizeof text - 1] = '\0';
    mr_detail_set(&detail, "%s", text);
    assert_int_equal(strlen(detail.text), sizeof detail.text - 1);
    mr_detail_set(NULL, "%s", "nobody listens");
}

static void a_failed_assertion_names_its_place_and_aborts(void **state)
{
    (void)state;
    int fds[2];
    assert_int_equal(pipe(fds), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        signal(SIGABRT, SIG_DFL);
        dup2(fds[1], STDERR_FILENO);
        int one = 1;
        mr_assert(one == 2);
        _exit(0);
    }
    close(fds[1]);
    char text[512] = {0};
    size_t len = 0;
    ssize_t got;
    while ((got = read(fds[0], text + len, sizeof text - 1 - len)) > 0)
        len += (size_t)got;
    close(fds[0]);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_non_null(strstr(text, "test_err.c"));
    assert_non_null(strstr(text, "one == 2"));
}

static enum mr_err try_twice(enum mr_err first, int *ret_reached)
{
    MR_TRY(first);
    *ret_reached = 1;
    return MR_OK;
}

static void try_returns_the_first_failure(void **state)
{
    (void)state;
    int reached = 0;
    assert_int_equal(try_twice(MR_BUSY, &reached), MR_BUSY);
    assert_int_equal(reached, 0);
    assert_int_equal(try_twice(MR_OK, &reached), MR_OK);
    assert_int_equal(reached, 1);
}

static void state_names_are_parsed_back(void **state)
{
    (void)state;
    for (int i = MR_SCHEDULED; i < MR_STATE_COUNT; i++)
        assert_int_equal(mr_state_parse(mr_slice_str(mr_state_name((enum mr_state)i))), i);
    assert_string_equal(mr_state_name(MR_RETRY), "retry");
    static const char *const bad[] = {"", "none", "Pending", "pendin", "pending ", "unknown"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_int_equal(mr_state_parse(mr_slice_str(bad[i])), MR_STATE_NONE);
    assert_int_equal(mr_state_parse((struct mr_slice){0}), MR_STATE_NONE);
    assert_string_equal(mr_state_name((enum mr_state)77), "unknown");
}

static void the_version_has_three_numbers(void **state)
{
    (void)state;
    int major, minor, patch;
    assert_int_equal(sscanf(mr_version(), "%d.%d.%d", &major, &minor, &patch), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_error_has_a_name_and_a_text),
        cmocka_unit_test(columns_come_from_the_list),
        cmocka_unit_test(only_ok_exits_with_zero),
        cmocka_unit_test(a_value_outside_the_list_is_an_unknown_failure),
        cmocka_unit_test(errno_values_are_translated_and_never_to_ok),
        cmocka_unit_test(a_detail_is_cut_at_its_size_and_may_be_absent),
        cmocka_unit_test(a_failed_assertion_names_its_place_and_aborts),
        cmocka_unit_test(try_returns_the_first_failure),
        cmocka_unit_test(state_names_are_parsed_back),
        cmocka_unit_test(the_version_has_three_numbers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
