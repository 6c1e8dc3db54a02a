/* SPDX-License-Identifier: Apache-2.0 */
/* What the service manager hears, through a real socket. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/notify.h"

/* A socket of the manager's side; name begins with '/' or '@'. */
static int listen_at(const char *name)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    memcpy(addr.sun_path, name, strlen(name));
    if (name[0] == '@')
        addr.sun_path[0] = '\0';
    socklen_t len = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name));
    assert_int_equal(bind(fd, (const struct sockaddr *)&addr, len), 0);
    return fd;
}

static void expect_word(const char *name)
{
    char heard[64] = {0};
    int fd = listen_at(name);
    setenv("NOTIFY_SOCKET", name, 1);
    mr_notify("READY=1");
    assert_int_equal(recv(fd, heard, sizeof heard - 1, MSG_DONTWAIT), strlen("READY=1"));
    assert_string_equal(heard, "READY=1");
    close(fd);
}

static void a_word_arrives_by_file_and_by_name(void **state)
{
    (void)state;
    char dir[] = P_tmpdir "/millrace-notify-XXXXXX", name[80];
    assert_non_null(mkdtemp(dir));
    snprintf(name, sizeof name, "%s/socket", dir);
    expect_word(name);
    assert_int_equal(unlink(name), 0);
    assert_int_equal(rmdir(dir), 0);
    snprintf(name, sizeof name, "@millrace-notify-%ld", (long)getpid());
    expect_word(name);
}

static void without_a_manager_nothing_happens(void **state)
{
    (void)state;
    unsetenv("NOTIFY_SOCKET");
    mr_notify("READY=1");
    static const char *const wrong[] = {"", "@", "relative", "/nowhere/at/all"};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        setenv("NOTIFY_SOCKET", wrong[i], 1);
        mr_notify("READY=1");
    }
    char longer[400];
    memset(longer, 'a', sizeof longer);
    longer[0] = '/';
    longer[sizeof longer - 1] = '\0';
    setenv("NOTIFY_SOCKET", longer, 1);
    mr_notify("READY=1");
}

static void the_watchdog_is_ours_only_by_our_number(void **state)
{
    (void)state;
    char pid[32];
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
    assert_int_equal(mr_notify_watchdog_ms(), 0);
    setenv("WATCHDOG_USEC", "30000000", 1);
    assert_int_equal(mr_notify_watchdog_ms(), 30000);
    snprintf(pid, sizeof pid, "%ld", (long)getpid());
    setenv("WATCHDOG_PID", pid, 1);
    assert_int_equal(mr_notify_watchdog_ms(), 30000);
    setenv("WATCHDOG_PID", "1", 1);
    assert_int_equal(mr_notify_watchdog_ms(), 0);
    unsetenv("WATCHDOG_PID");
    setenv("WATCHDOG_USEC", "nonsense", 1);
    assert_int_equal(mr_notify_watchdog_ms(), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_word_arrives_by_file_and_by_name),
        cmocka_unit_test(without_a_manager_nothing_happens),
        cmocka_unit_test(the_watchdog_is_ours_only_by_our_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
