/* SPDX-License-Identifier: Apache-2.0 */
/* Redis as a Cluster: slots that move, nodes that are lost, and calls that find their way. */
#include "support/redis_flow.h"
#include "unit/redis_user.h"

enum { SOME = 500 };

static struct redis_rig *rig; /* one for all tests: it takes seconds to start */

static struct mr_redis *open_redis(uint32_t wait_replicas)
{
    RIG_ALL(rig, "FLUSHALL");
    return flow_open(rig, wait_replicas);
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
    struct flow_sum sum = flow_end(flow, rig, true);
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
    struct flow_sum sum = flow_end(flow, rig, true);
    assert_int_equal(sum.lost, 0);
    assert_int_equal(sum.refused_but_there, 0);
    mr_redis_free(redis);
}

/* ---- one thing at a time -------------------------------------------------------------------- */

static void a_script_whose_keys_are_never_there_waits_while_its_slot_moves(void **state)
{
    (void)state;
    struct user user;
    struct ask ask, other;
    user_open(&user, (struct mr_redis_options){
                         .url = redis_rig_url(rig), .scripts = flow_scripts, .scripts_n = 1});
    RIG_ALL(rig, "FLUSHALL");
    unsigned slot = slot_of_key(4);
    struct redis_rig_server *to = another(slot);
    (void)RIG(to, "CONFIG", "RESETSTAT");
    redis_rig_open_slot(rig, slot, to);
    ask_init(&ask, &user, "{4}:set", "{4}:", "one", NULL);
    ask.script = 0;
    ask.keys_n = 2;
    ask_start(&ask);
    for (int i = 0; strstr(RIG(to, "INFO", "errorstats"), "TRYAGAIN") == NULL; i++) {
        assert_true(i < 1000);
        assert_string_equal(ASK(&user, &other, "INCR", "{other}"), "1");
        assert_string_equal(ASK(&user, &other, "DECR", "{other}"), "0");
    }
    assert_false(mr_event_is_set(&ask.done));
    redis_rig_close_slot(rig, slot, to);
    assert_int_equal(ask_wait(&ask), MR_OK);
    assert_string_equal(ask.text, "1");
    user_close(&user);
}

struct lane_of {
    const char *key;
    struct mr_redis_lane *lane;
};

static void make_lane(struct mr_redis *redis, void *arg)
{
    struct lane_of *of = arg;
    mr_assert(mr_redis_lane_new(redis, mr_slice_str(of->key), &of->lane) == MR_OK);
}

static void free_lane(struct mr_redis *redis, void *arg)
{
    (void)redis;
    mr_redis_lane_free(arg);
}

static bool somebody_blocks(struct redis_rig_server *server)
{
    return strstr(RIG(server, "INFO", "clients"), "blocked_clients:1") != NULL;
}

static void a_lane_follows_its_slot(void **state)
{
    (void)state;
    struct user user;
    struct lane_of of = {.key = "{5}:list"};
    struct ask ask;
    unsigned slot = slot_of_key(5);
    user_open(&user, (struct mr_redis_options){.url = redis_rig_url(rig)});
    user_do(&user, make_lane, &of);
    ask_init(&ask, &user, "BLPOP", of.key, "0", NULL);
    ask.lane = of.lane;
    ask.call.repeatable = true;
    ask_start(&ask);
    for (int i = 0; i < 2; i++) {
        struct redis_rig_server *owner = redis_rig_owner(rig, slot);
        for (int look = 0; !somebody_blocks(owner); look++)
            assert_true(look < 100000);
        redis_rig_move_slot(rig, slot, another(slot));
    }
    assert_int_equal(RIG_INT(redis_rig_owner(rig, slot), "RPUSH", of.key, "x"), 1);
    assert_int_equal(ask_wait(&ask), MR_OK);
    assert_string_equal(ask.text, "{5}:list x");
    user_do(&user, free_lane, of.lane);
    user_close(&user);
}

struct ear {
    struct mr_redis_channel channel;
    struct mr_event begun, heard;
};

static void listen(struct mr_redis_channel *channel, struct mr_slice bytes)
{
    struct ear *ear = mr_container(channel, struct ear, channel);
    mr_event_set(bytes.data == NULL ? &ear->begun : &ear->heard);
}

static void subscribe(struct mr_redis *redis, void *arg)
{
    mr_redis_subscribe(redis, arg);
}

static void unsubscribe(struct mr_redis *redis, void *arg)
{
    mr_redis_unsubscribe(redis, arg);
}

static void a_message_is_heard_wherever_it_was_said(void **state)
{
    (void)state;
    struct user user;
    struct ear ear = {.channel = {.name = MR_SLICE_LIT("news"), .message = listen}};
    mr_event_init(&ear.begun);
    mr_event_init(&ear.heard);
    user_open(&user, (struct mr_redis_options){.url = redis_rig_url(rig)});
    user_do(&user, subscribe, &ear.channel);
    assert_true(mr_event_wait(&ear.begun, user_patience_ns));
    for (size_t i = 0; i < redis_rig_count(rig); i++) {
        mr_event_reset(&ear.heard);
        (void)RIG(redis_rig_server(rig, i), "PUBLISH", "news", "x");
        assert_true(mr_event_wait(&ear.heard, user_patience_ns));
    }
    user_do(&user, unsubscribe, &ear.channel);
    user_close(&user);
}

static void a_server_that_is_no_cluster_is_told(void **state)
{
    (void)state;
    struct redis_rig *one = redis_rig_standalone(NULL);
    struct user user;
    char url[64];
    (void)snprintf(url, sizeof url, "redis+cluster://127.0.0.1:%u", redis_rig_server(one, 0)->port);
    user_open(&user, (struct mr_redis_options){.url = url});
    user_wait_down(&user, 1);
    assert_non_null(strstr(user.why, "is not part of a Cluster"));
    user_close(&user);
    redis_rig_stop(one);
}

static void a_cluster_that_was_away_is_found_again(void **state)
{
    (void)state;
    struct user user;
    struct ask ask;
    user_open(&user, (struct mr_redis_options){.url = redis_rig_url(rig)});
    assert_string_equal(ASK(&user, &ask, "SET", "{6}", "x"), "OK");
    for (size_t i = 0; i < redis_rig_count(rig); i++)
        redis_rig_kill(redis_rig_server(rig, i));
    user_wait_down(&user, 1);
    ask_init(&ask, &user, "PING", NULL);
    ask.call.urgent = true;
    assert_int_equal(ask_run(&ask), MR_UNAVAILABLE);
    for (size_t i = 0; i < redis_rig_count(rig); i++)
        redis_rig_start(redis_rig_server(rig, i));
    assert_string_equal(ASK(&user, &ask, "SET", "{6}", "y"), "OK");
    user_close(&user);
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
        cmocka_unit_test(a_script_whose_keys_are_never_there_waits_while_its_slot_moves),
        cmocka_unit_test(a_lane_follows_its_slot),
        cmocka_unit_test(a_message_is_heard_wherever_it_was_said),
        cmocka_unit_test(a_server_that_is_no_cluster_is_told),
        cmocka_unit_test(a_flow_goes_on_after_a_primary_is_killed),
        cmocka_unit_test(a_cluster_that_was_away_is_found_again), /* the last: it leaves it empty */
    };
    return cmocka_run_group_tests(tests, start_rig, stop_rig);
}
