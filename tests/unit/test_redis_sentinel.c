/* SPDX-License-Identifier: Apache-2.0 */
/* Redis behind Sentinels: found, followed, and nothing lost that was said to be safe. */
#include "support/redis_flow.h"
#include "unit/redis_user.h"

enum { SOME = 500 };

static void tell_of_an_unknown_name(struct redis_rig *rig)
{
    struct user user;
    struct ask ask;
    char url[128];
    (void)snprintf(url, sizeof url, "redis+sentinel://127.0.0.1:%u/other",
                   redis_rig_server(rig, 1 + REDIS_RIG_REPLICAS)->port);
    user_open(&user, (struct mr_redis_options){.url = url, .away_ms = 200});
    assert_int_equal((ask_init(&ask, &user, "PING", NULL), ask_run(&ask)), MR_UNAVAILABLE);
    assert_non_null(strstr(ask.text, "asked for other: it knows no primary by this name"));
    user_close(&user);
}

static void a_flow_goes_on_after_the_primary_is_killed(void **state)
{
    (void)state;
    struct redis_rig *rig = redis_rig_sentinel(NULL);
    tell_of_an_unknown_name(rig);
    struct mr_redis *redis = flow_open(rig, REDIS_RIG_REPLICAS);
    struct flow *flow = flow_start(redis, true);
    flow_go_on(flow, SOME);
    struct redis_rig_server *first = redis_rig_primary(rig);
    redis_rig_failover(first, REDIS_RIG_BY_KILL);
    /* With one replica of two there is none that WAIT could wait for: now it is back. */
    redis_rig_start(first);
    redis_rig_wait_healthy(rig);
    flow_go_on(flow, SOME);
    struct flow_sum sum = flow_end(flow, rig, false);
    assert_int_equal(sum.lost, 0);
    assert_int_equal(sum.refused_but_there, 0);
    mr_redis_free(redis);
    redis_rig_stop(rig);
}

static void a_flow_follows_to_a_primary_that_lost_its_scripts(void **state)
{
    (void)state;
    struct redis_rig_options options = {
        .user = "mill", .password = "secret", .sentinel_password = "secret"};
    struct redis_rig *rig = redis_rig_sentinel(&options);
    struct mr_redis *redis = flow_open(rig, 0);
    struct flow *flow = flow_start(redis, false);
    flow_go_on(flow, SOME);
    /* One Sentinel less: another one tells as well. */
    redis_rig_kill(redis_rig_server(rig, 1 + REDIS_RIG_REPLICAS + 1));
    struct redis_rig_server *first = redis_rig_primary(rig);
    redis_rig_failover(first, REDIS_RIG_GENTLY);
    flow_go_on(flow, SOME);
    assert_string_equal(RIG(redis_rig_primary(rig), "SCRIPT", "FLUSH"), "OK");
    flow_go_on(flow, SOME);
    assert_ptr_not_equal(redis_rig_primary(rig), first);
    (void)flow_end(flow, rig, false);
    mr_redis_free(redis);
    redis_rig_stop(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_flow_goes_on_after_the_primary_is_killed),
        cmocka_unit_test(a_flow_follows_to_a_primary_that_lost_its_scripts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
