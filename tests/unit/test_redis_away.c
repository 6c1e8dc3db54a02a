/* SPDX-License-Identifier: Apache-2.0 */
/* A real server that dies, freezes, becomes a replica and comes back: who waits, who is refused, who is
 * in doubt. */
#include "redis_user.h"

#include "support/redis_rig.h"

static const struct mr_redis_script scripts[] = {
    {.name = "add", .text = "return redis.call('INCRBY', KEYS[1], ARGV[1])"}};

struct scene {
    struct redis_rig *rig;
    struct redis_rig_server *server;
    struct user user;
    struct ask ask;
};

static void open_scene(struct scene *scene, int64_t answer_ms)
{
    scene->rig = redis_rig_standalone(NULL);
    scene->server = redis_rig_server(scene->rig, 0);
    user_open(&scene->user, (struct mr_redis_options){.url = redis_rig_url(scene->rig),
                                                      .scripts = scripts,
                                                      .scripts_n = 1,
                                                      .answer_ms = answer_ms,
                                                      .away_ms = 30 * MR_MS_PER_S});
    user_wait_up(&scene->user, 1);
}

static void close_scene(struct scene *scene)
{
    user_close(&scene->user);
    redis_rig_stop(scene->rig);
}

static void a_server_that_comes_back_is_found_again(void **state)
{
    (void)state;
    struct scene scene;
    struct ask blocked, script;
    open_scene(&scene, 0);
    (void)ASK(&scene.user, &scene.ask, "SET", "key", "value");
    ask_init(&blocked, &scene.user, "BLPOP", "never", "0", NULL);
    ask_start(&blocked);
    while (strstr(RIG(scene.server, "INFO", "clients"), "blocked_clients:1") == NULL)
        ;
    redis_rig_kill(scene.server);
    assert_int_equal(ask_wait(&blocked), MR_UNAVAILABLE);
    assert_true(blocked.call.doubt);
    /* The urgent are refused, the others are still answered when it is back. */
    user_wait_down(&scene.user, 1);
    ask_init(&scene.ask, &scene.user, "GET", "key", NULL);
    scene.ask.call.urgent = true;
    assert_int_equal(ask_run(&scene.ask), MR_UNAVAILABLE);
    assert_false(scene.ask.call.doubt);
    /* That nobody listens there is known after the first attempt. */
    while (!scene.ask.call.gone) {
        ask_init(&scene.ask, &scene.user, "GET", "key", NULL);
        scene.ask.call.urgent = true;
        assert_int_equal(ask_run(&scene.ask), MR_UNAVAILABLE);
    }
    ask_init(&script, &scene.user, "n", "5", NULL);
    script.script = 0;
    script.keys_n = 1;
    ask_start(&script);
    redis_rig_start(scene.server);
    assert_int_equal(ask_wait(&script), MR_OK);
    assert_string_equal(script.text, "5");
    assert_string_equal(ASK(&scene.user, &scene.ask, "GET", "key"), "(nil)");
    assert_int_equal(atomic_load(&scene.user.ups), 2);
    close_scene(&scene);
}

static void calls_that_wait_keep_their_order(void **state)
{
    (void)state;
    enum { N = 100 };
    struct scene scene;
    struct ask *asks = calloc(N, sizeof *asks);
    assert_non_null(asks);
    open_scene(&scene, 0);
    redis_rig_kill(scene.server);
    for (int i = 0; i < N; i++) {
        ask_init(&asks[i], &scene.user, "n", "1", NULL);
        asks[i].script = 0;
        asks[i].keys_n = 1;
        asks[i].call.repeatable = true; /* the first ones may be sent before the break is seen */
        ask_start(&asks[i]);
    }
    redis_rig_start(scene.server);
    for (int i = 0; i < N; i++) {
        assert_int_equal(ask_wait(&asks[i]), MR_OK);
        assert_int_equal(strtol(asks[i].text, NULL, 10), i + 1);
    }
    close_scene(&scene);
    free(asks);
}

static void a_frozen_server_is_given_up_and_found_again(void **state)
{
    (void)state;
    struct scene scene;
    open_scene(&scene, 200);
    redis_rig_freeze(scene.server);
    ask_init(&scene.ask, &scene.user, "SET", "key", "1", NULL);
    assert_int_equal(ask_run(&scene.ask), MR_UNAVAILABLE);
    assert_true(scene.ask.call.doubt);
    assert_false(scene.ask.call.gone); /* it may answer others */
    redis_rig_thaw(scene.server);
    user_wait_up(&scene.user, 2);
    assert_string_equal(ASK(&scene.user, &scene.ask, "SET", "key", "2"), "OK");
    close_scene(&scene);
}

static void a_primary_that_becomes_a_replica_is_left_until_it_is_one_again(void **state)
{
    (void)state;
    struct scene scene;
    struct ask waits;
    open_scene(&scene, 0);
    assert_string_equal(RIG(scene.server, "REPLICAOF", "127.0.0.1", "1"), "OK");
    ask_init(&waits, &scene.user, "SET", "key", "late", NULL);
    ask_start(&waits); /* READONLY: it was not carried out, and waits for a primary */
    while (!user_was_told(&scene.user, "is a read-only replica")) {
        assert_true(mr_event_wait(&scene.user.changed, user_patience_ns));
        mr_event_reset(&scene.user.changed);
    }
    ask_init(&scene.ask, &scene.user, "SET", "key", "urgent", NULL);
    scene.ask.call.urgent = true;
    assert_int_equal(ask_run(&scene.ask), MR_UNAVAILABLE);
    assert_false(scene.ask.call.doubt);
    assert_int_equal(waits.answers, 0);
    assert_string_equal(RIG(scene.server, "REPLICAOF", "NO", "ONE"), "OK");
    assert_int_equal(ask_wait(&waits), MR_OK);
    assert_string_equal(ASK(&scene.user, &scene.ask, "GET", "key"), "late");
    close_scene(&scene);
}

static void new_lane(struct mr_redis *redis, void *arg)
{
    assert_int_equal(mr_redis_lane_new(redis, MR_SLICE_LIT("wake"), arg), MR_OK);
}

static void what_blocks_in_a_lane_goes_on_after_a_break(void **state)
{
    (void)state;
    struct scene scene;
    struct ask blocked;
    struct mr_redis_lane *lane;
    open_scene(&scene, 0);
    user_do(&scene.user, new_lane, &lane);
    ask_init(&blocked, &scene.user, "BLPOP", "wake", "0", NULL);
    blocked.lane = lane;
    blocked.call.repeatable = true;
    ask_start(&blocked);
    while (strstr(RIG(scene.server, "INFO", "clients"), "blocked_clients:1") == NULL)
        ;
    redis_rig_kill(scene.server);
    redis_rig_start(scene.server);
    while (strstr(RIG(scene.server, "INFO", "clients"), "blocked_clients:1") == NULL)
        ;
    (void)ASK(&scene.user, &scene.ask, "RPUSH", "wake", "up");
    assert_int_equal(ask_wait(&blocked), MR_OK);
    assert_string_equal(blocked.text, "wake up");
    close_scene(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_server_that_comes_back_is_found_again),
        cmocka_unit_test(calls_that_wait_keep_their_order),
        cmocka_unit_test(a_frozen_server_is_given_up_and_found_again),
        cmocka_unit_test(a_primary_that_becomes_a_replica_is_left_until_it_is_one_again),
        cmocka_unit_test(what_blocks_in_a_lane_goes_on_after_a_break),
    };
    return cmocka_run_group_tests_name("redis: a server that goes away", tests, NULL, NULL);
}
