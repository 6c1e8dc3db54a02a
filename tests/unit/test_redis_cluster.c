/* SPDX-License-Identifier: Apache-2.0 */
/* Redis as a Cluster: slots that move, nodes that are lost, and calls that find their way. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/redis_flow.h"

enum { SOME = 500 };

static struct redis_rig *rig; /* one for all tests: it takes seconds to start */

static struct mr_redis *open_redis(uint32_t wait_replicas)
{
    struct mr_redis_options options = {.url = redis_rig_url(rig),
                                       .scripts = flow_scripts,
                                       .scripts_n = 1,
                                       .wait_replicas = wait_replicas,
                                       .wait_ms = 5000,
                                       .away_ms = 30000};
    struct mr_redis *redis = NULL;
    struct mr_detail detail = {.text = ""};
    RIG_ALL(rig, "FLUSHALL");
    if (mr_redis_new("test", &options, &redis, &detail) != MR_OK)
        fail_msg("%s", detail.text);
    return redis;
}

static struct flow_sum end_flow(struct flow *flow)
{
    flow_stop(flow);
    struct flow_sum sum = flow_sum(flow, rig, true);
    print_message("%u calls: %u done, %u doubtful, %u refused; %u lost\n", sum.sent, sum.done,
                  sum.doubtful, sum.refused, sum.lost);
    assert_int_equal(sum.strange, 0);
    assert_int_equal(sum.doubled, 0);
    flow_free(flow);
    return sum;
}

static unsigned slot_of_key(unsigned k)
{
    char key[16];
    (void)snprintf(key, sizeof key, "{%u}", k);
    return redis_slot(mr_slice_str(key));
}

/* Another primary than the owner. */
static struct redis_rig_server *another(unsigned slot)
{
    struct redis_rig_server *owner = redis_rig_owner(rig, slot), *other = owner;
    for (unsigned at = 0; other == owner; at += 1000)
        other = redis_rig_owner(rig, at);
    return other;
}

static void slots_move_under_a_flow_and_nothing_is_lost_or_done_twice(void **state)
{
    (void)state;
    struct mr_redis *redis = open_redis(0);
    struct flow *flow = flow_start(redis, false);
    flow_go_on(flow, SOME);
    for (unsigned k = 0; k < 3; k++) {
        unsigned slot = slot_of_key(k);
        struct redis_rig_server *to = another(slot);
        redis_rig_open_slot(rig, slot, to);
        flow_go_on(flow, 1); /* the others go on; one key is here and one there */
        assert_int_equal(redis_rig_move_keys(rig, slot, to, 1), 1);
        flow_go_on(flow, 1);
        assert_int_equal(redis_rig_move_keys(rig, slot, to, 1), 1);
        flow_go_on(flow, SOME); /* all of them with ASK */
        redis_rig_close_slot(rig, slot, to);
        flow_go_on(flow, SOME);
    }
    struct flow_sum sum = end_flow(flow);
    assert_int_equal(sum.done, sum.sent);
    assert_int_equal(sum.lost, 0);
    mr_redis_free(redis);
}

static void a_flow_goes_on_after_a_primary_is_killed(void **state)
{
    (void)state;
    struct mr_redis *redis = open_redis(1);
    struct flow *flow = flow_start(redis, true);
    flow_go_on(flow, SOME);
    struct redis_rig_server *first = redis_rig_owner(rig, slot_of_key(0));
    redis_rig_failover(first, REDIS_RIG_BY_KILL);
    redis_rig_start(first);
    redis_rig_wait_healthy(rig);
    flow_go_on(flow, SOME);
    struct redis_rig_server *second = redis_rig_owner(rig, slot_of_key(0));
    assert_ptr_not_equal(first, second);
    redis_rig_failover(second, REDIS_RIG_GENTLY);
    flow_go_on(flow, SOME);
    struct flow_sum sum = end_flow(flow);
    assert_int_equal(sum.lost, 0);
    assert_int_equal(sum.refused_but_there, 0);
    mr_redis_free(redis);
}

static int start_rig(void **state)
{
    (void)state;
    rig = redis_rig_cluster(NULL);
    return 0;
}

static int stop_rig(void **state)
{
    (void)state;
    redis_rig_stop(rig);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slots_move_under_a_flow_and_nothing_is_lost_or_done_twice),
        cmocka_unit_test(a_flow_goes_on_after_a_primary_is_killed),
    };
    return cmocka_run_group_tests(tests, start_rig, stop_rig);
}
