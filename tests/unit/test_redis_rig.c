/* SPDX-License-Identifier: Apache-2.0 */
/* The rig of real Redis servers that other tests stand on. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "support/redis_rig.h"

enum { SLOT_OF_FOO = 12182 };

static void a_server_answers_and_leaves_nothing_behind(void **state)
{
    (void)state;
    struct redis_rig *rig = redis_rig_standalone(NULL);
    struct redis_rig_server *server = redis_rig_server(rig, 0);
    char dir[256], url[64];
    (void)snprintf(dir, sizeof dir, "%s", redis_rig_dir(rig));
    (void)snprintf(url, sizeof url, "redis://127.0.0.1:%u", server->port);
    assert_string_equal(redis_rig_url(rig), url);
    assert_string_equal(RIG(server, "SET", "k", "v"), "OK");
    assert_string_equal(RIG(server, "GET", "k"), "v");
    assert_string_equal(RIG(server, "GET", "none"), "(nil)");
    assert_int_equal(RIG_INT(server, "RPUSH", "list", "a", "b c", ""), 3);
    assert_string_equal(RIG(server, "LRANGE", "list", "0", "-1"), "a\nb c\n");
    assert_string_equal(RIG(server, "EVAL", "return {1,{2,{}},'x'}", "0"), "1\n2\nx");
    assert_memory_equal(RIG(server, "NONSENSE"), "-ERR ", 5);
    pid_t pid = server->pid;
    redis_rig_stop(rig);
    assert_int_equal(kill(pid, 0), -1);
    assert_int_equal(access(dir, F_OK), -1);
}

static void a_killed_server_comes_back_on_its_port(void **state)
{
    (void)state;
    struct redis_rig *rig = redis_rig_standalone(NULL);
    struct redis_rig_server *server = redis_rig_server(rig, 0);
    uint16_t port = server->port;
    (void)RIG(server, "SET", "k", "v");
    redis_rig_kill(server);
    assert_string_equal(RIG(server, "PING"), "-AWAY");
    redis_rig_start(server);
    assert_int_equal(server->port, port);
    assert_string_equal(RIG(server, "GET", "k"), "(nil)");
    redis_rig_stop(rig);
}

static void servers_and_folder_go_with_a_test_that_is_killed(void **state)
{
    (void)state;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t test = fork();
    if (test == 0) {
        struct redis_rig *rig = redis_rig_standalone(NULL);
        char line[300];
        int len = snprintf(line, sizeof line, "%d %s", (int)redis_rig_server(rig, 0)->pid,
                           redis_rig_dir(rig));
        (void)!write(ends[1], line, (size_t)len + 1);
        (void)pause();
    }
    char line[300] = "";
    assert_true(read(ends[0], line, sizeof line) > 0);
    assert_int_equal(kill(test, SIGKILL), 0);
    assert_int_equal(waitpid(test, NULL, 0), test);
    char *dir = NULL;
    pid_t server = (pid_t)strtol(line, &dir, 10);
    for (int i = 0; i < 10000 && (access(dir + 1, F_OK) == 0 || kill(server, 0) == 0); i++)
        (void)usleep(1000);
    assert_int_equal(access(dir + 1, F_OK), -1);
    assert_int_equal(kill(server, 0), -1);
    (void)close(ends[0]);
    (void)close(ends[1]);
}

static void a_server_can_ask_for_a_user_and_speak_tls(void **state)
{
    (void)state;
    struct redis_rig_options options = {
        .tls = true, .user = "mill", .password = "secret", .config = "maxmemory 50mb"};
    struct redis_rig *rig = redis_rig_standalone(&options);
    struct redis_rig_server *server = redis_rig_server(rig, 0);
    assert_memory_equal(redis_rig_url(rig), "rediss://mill:secret@127.0.0.1:", 31);
    assert_string_equal(RIG(server, "ACL", "WHOAMI"), "mill");
    assert_string_equal(RIG(server, "CONFIG", "GET", "maxmemory"), "maxmemory\n52428800");
    char command[700];
    (void)snprintf(command, sizeof command,
                   "redis-cli --no-auth-warning --tls --cacert '%s' -p %u --user mill -a secret "
                   "ping | grep -q PONG",
                   redis_rig_pem(rig, "ca.pem"), server->port);
    assert_int_equal(system(command), 0);
    redis_rig_stop(rig);
}

static void sentinels_promote_a_replica_and_the_old_primary_follows(void **state)
{
    (void)state;
    struct redis_rig *rig = redis_rig_sentinel(NULL);
    struct redis_rig_server *first = redis_rig_primary(rig);
    assert_ptr_equal(first, redis_rig_server(rig, 0));
    assert_string_equal(RIG(first, "SET", "k", "v"), "OK");
    assert_int_equal(RIG_INT(first, "WAIT", "2", "5000"), 2);
    redis_rig_failover(first, REDIS_RIG_GENTLY);
    assert_ptr_not_equal(first, redis_rig_primary(rig));
    redis_rig_wait_healthy(rig);
    assert_string_equal(RIG(first, "GET", "k"), "v");
    assert_memory_equal(RIG(first, "SET", "k", "w"), "-READONLY", 9);
    redis_rig_stop(rig);
}

static void slots_and_primaries_of_a_cluster_move(void **state)
{
    (void)state;
    struct redis_rig *rig =
        redis_rig_cluster(&(struct redis_rig_options){.user = "mill", .password = "secret"});
    struct redis_rig_server *owner = redis_rig_owner(rig, SLOT_OF_FOO);
    struct redis_rig_server *other = redis_rig_owner(rig, 0);
    assert_ptr_equal(owner, redis_rig_server(rig, 2));
    assert_string_equal(RIG(owner, "SET", "foo", "1"), "OK");
    assert_memory_equal(RIG(other, "GET", "foo"), "-MOVED 12182", 12);
    redis_rig_move_slot(rig, SLOT_OF_FOO, other);
    assert_ptr_equal(redis_rig_owner(rig, SLOT_OF_FOO), other);
    assert_string_equal(RIG(other, "GET", "foo"), "1");
    redis_rig_failover(other, REDIS_RIG_GENTLY);
    struct redis_rig_server *heir = redis_rig_owner(rig, SLOT_OF_FOO);
    assert_ptr_not_equal(heir, other);
    assert_string_equal(RIG(heir, "GET", "foo"), "1");
    RIG_ALL(rig, "FLUSHALL");
    assert_string_equal(RIG(heir, "GET", "foo"), "(nil)");
    redis_rig_stop(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_server_answers_and_leaves_nothing_behind),
        cmocka_unit_test(a_killed_server_comes_back_on_its_port),
        cmocka_unit_test(servers_and_folder_go_with_a_test_that_is_killed),
        cmocka_unit_test(a_server_can_ask_for_a_user_and_speak_tls),
        cmocka_unit_test(sentinels_promote_a_replica_and_the_old_primary_follows),
        cmocka_unit_test(slots_and_primaries_of_a_cluster_move),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
