/* SPDX-License-Identifier: Apache-2.0 */
/* What a server may say that a good one does not, or only now and then: refusals, doubt, silence,
 * replicas that lag, and bytes that are no answers. */
#include "redis_fake.h"
#include "support/look.h"

static const struct mr_redis_script scripts[] = {{.name = "one", .text = "return 1"},
                                                 {.name = "two", .text = "return 2"}};

static struct mr_redis_options options_of(const struct fake *fake)
{
    return (struct mr_redis_options){.url = fake->url, .scripts = scripts, .scripts_n = 2};
}

/* A server, a user of it, and one command. */
struct scene {
    struct fake *fake;
    struct user user;
    struct ask ask;
};

static void open_scene(struct scene *scene, fake_answer *answer)
{
    scene->fake = fake_start(answer, NULL);
    user_open(&scene->user, options_of(scene->fake));
    user_wait_up(&scene->user, 1);
    ask_init(&scene->ask, &scene->user, "GET", "key", NULL);
}

static void close_scene(struct scene *scene)
{
    user_close(&scene->user);
    fake_stop(scene->fake);
}

/* ---- before the first call ------------------------------------------------------------------ */

static void assert_kept_out(fake_answer *hello, enum mr_err wanted, const char *words)
{
    struct fake *fake = fake_start(NULL, hello);
    struct mr_redis_options options = options_of(fake);
    struct user user;
    struct ask ask;
    options.away_ms = 1;
    user_open(&user, options);
    user_wait_down(&user, 1);
    ask_init(&ask, &user, "GET", "key", NULL);
    assert_int_equal(ask_run(&ask), wanted);
    assert_non_null(strstr(ask.text, words));
    user_close(&user);
    assert_int_equal(atomic_load(&user.ups), 0);
    fake_stop(fake);
}

static const char *old_info(struct fake_conn *conn, const struct mr_reply *command)
{
    (void)conn;
    return fake_is(command, "INFO") ? "$22\r\nredis_version:6.0.16\r\n\r\n" : NULL;
}

static const char *odd_info(struct fake_conn *conn, const struct mr_reply *command)
{
    (void)conn;
    return fake_is(command, "INFO") ? "$23\r\nredis_version:garbage\r\n\r\n" : NULL;
}

/* As one that was built of what is not released yet says it. */
static const char *newest_info(struct fake_conn *conn, const struct mr_reply *command)
{
    (void)conn;
    return fake_is(command, "INFO") ? "$27\r\nredis_version:255.255.255\r\n\r\n" : NULL;
}

static const char *short_info(struct fake_conn *conn, const struct mr_reply *command)
{
    (void)conn;
    return fake_is(command, "INFO") ? "$19\r\nredis_version:6.2\r\n\r\n" : NULL;
}

/* A server of which a proxy shows less. */
static const char *no_version(struct fake_conn *conn, const struct mr_reply *command)
{
    (void)conn;
    return fake_is(command, "INFO") ? "$10\r\n# Server\r\n\r\n" : NULL;
}

static const char *cluster_info(struct fake_conn *conn, const struct mr_reply *command)
{
    (void)conn;
    return fake_is(command, "INFO") ? "$40\r\nredis_version:7.0.15\r\nredis_mode:cluster\r\n"
                                      "\r\n"
                                    : NULL;
}

static const char *sentinel_info(struct fake_conn *conn, const struct mr_reply *command)
{
    (void)conn;
    return fake_is(command, "INFO") ? "$41\r\nredis_version:7.0.15\r\nredis_mode:sentinel\r\n"
                                      "\r\n"
                                    : NULL;
}

static const char *replica_role(struct fake_conn *conn, const struct mr_reply *command)
{
    (void)conn;
    return fake_is(command, "ROLE") ? "*1\r\n$5\r\nslave\r\n" : NULL;
}

static const char *bad_script(struct fake_conn *conn, const struct mr_reply *command)
{
    (void)conn;
    return fake_is(command, "SCRIPT") ? "-ERR Error compiling script:\n\x01 line 1\r\n" : NULL;
}

static const char *protected_mode(struct fake_conn *conn, const struct mr_reply *command)
{
    (void)conn;
    (void)command;
    return "-DENIED Redis is running in protected mode because protected mode is enabled\r\n";
}

static const char *no_room(struct fake_conn *conn, const struct mr_reply *command)
{
    (void)conn;
    (void)command;
    return "-ERR max number of clients reached\r\n";
}

static const char *no_redis(struct fake_conn *conn, const struct mr_reply *command)
{
    (void)conn;
    (void)command;
    return "HTTP/1.1 400 Bad Request\r\n\r\n";
}

static void servers_that_cannot_be_used_get_one_clear_line(void **state)
{
    (void)state;
    assert_kept_out(old_info, MR_UNSUPPORTED, "is version 6.0.16; 6.2.0 or newer is needed");
    assert_kept_out(odd_info, MR_UNSUPPORTED,
                    "gives a version that cannot be read: garbage; 6.2.0 or newer is needed");
    assert_kept_out(cluster_info, MR_UNSUPPORTED, "use redis+cluster://");
    assert_kept_out(sentinel_info, MR_UNSUPPORTED, "use redis+sentinel://");
    assert_kept_out(replica_role, MR_UNAVAILABLE, "is a read-only replica");
    assert_kept_out(bad_script, MR_UNSUPPORTED, "Error compiling script:   line 1");
    assert_kept_out(protected_mode, MR_DENIED, "is in protected mode");
    assert_kept_out(no_room, MR_UNAVAILABLE, "has no room for another client");
    assert_kept_out(no_redis, MR_UNAVAILABLE, "Redis at 127.0.0.1:");
}

static void whoever_waits_for_what_will_not_be_is_told_at_once(void **state)
{
    (void)state;
    struct fake *fake = fake_start(NULL, old_info);
    struct mr_redis_options options = options_of(fake);
    struct user user;
    struct ask ask;
    options.away_ms = 2 * user_patience_ns / MR_NS_PER_MS;
    user_open(&user, options);
    ask_init(&ask, &user, "GET", "key", NULL);
    assert_int_equal(ask_run(&ask), MR_UNSUPPORTED);
    user_close(&user);
    fake_stop(fake);
}

static const char *loads_twice(struct fake_conn *conn, const struct mr_reply *command)
{
    (void)command;
    return conn->n <= 2 ? "-LOADING Redis is loading the dataset in memory\r\n" : NULL;
}

static const char *say_ok(struct fake_conn *conn, const struct mr_reply *command)
{
    (void)conn;
    (void)command;
    return "+OK\r\n";
}

static const char *may_not_ask(struct fake_conn *conn, const struct mr_reply *command)
{
    (void)conn;
    bool asks = fake_is(command, "INFO") || fake_is(command, "ROLE") || fake_is(command, "CLIENT");
    return asks ? "-NOPERM this user has no permissions\r\n" : NULL;
}

static void assert_let_in(fake_answer *hello)
{
    struct fake *fake = fake_start(say_ok, hello);
    struct user user;
    struct ask ask;
    user_open(&user, options_of(fake));
    ask_init(&ask, &user, "SET", "key", "value", NULL); /* waits for the connection */
    assert_int_equal(ask_run(&ask), MR_OK);
    user_close(&user);
    fake_stop(fake);
}

enum { COMES = 7, FIRST_PAUSE_MS = 10 };
static _Atomic int64_t comes_ns[COMES]; /* when who is not let in has come */

static const char *note_and_load(struct fake_conn *conn, const struct mr_reply *command)
{
    (void)command;
    if (conn->n <= COMES && atomic_load(&comes_ns[conn->n - 1]) == 0)
        atomic_store(&comes_ns[conn->n - 1], mr_mono_now(mr_clock_system()).ns);
    return "-LOADING Redis is loading the dataset in memory\r\n";
}

/* The pauses double, and each of them lasts for half of that at least. */
static void who_is_not_let_in_comes_ever_later(void **state)
{
    (void)state;
    struct fake *fake = fake_start(NULL, note_and_load);
    struct user user;
    user_open(&user, options_of(fake));
    mr_mono since = mr_mono_now(mr_clock_system());
    while (atomic_load(&comes_ns[COMES - 1]) == 0)
        assert_true(look_again(since, user_patience_ns / MR_NS_PER_MS));
    user_close(&user);
    fake_stop(fake);
    for (size_t i = 1; i < COMES; i++) {
        int64_t pause_ns = comes_ns[i] - comes_ns[i - 1];
        assert_true(pause_ns >= ((int64_t)FIRST_PAUSE_MS << (i - 1)) * MR_NS_PER_MS);
    }
}

static void a_server_that_loads_is_waited_for(void **state)
{
    (void)state;
    assert_let_in(loads_twice);
}

static void a_server_that_is_new_enough_or_does_not_say_it_is_let_in(void **state)
{
    (void)state;
    assert_let_in(newest_info);
    assert_let_in(short_info);
    assert_let_in(no_version);
}

static void a_user_who_may_not_ask_is_let_in(void **state)
{
    (void)state;
    assert_let_in(may_not_ask);
}

/* ---- refusals ------------------------------------------------------------------------------- */

static const char *refusal;
static bool was_gone; /* what the last answer said */

/* The first three times. */
static const char *refuse_thrice(struct fake_conn *conn, const struct mr_reply *command)
{
    (void)command;
    return atomic_load(&conn->fake->seen) <= 3 ? refusal : "+OK\r\n";
}

static const char *refuse_always(struct fake_conn *conn, const struct mr_reply *command)
{
    (void)conn;
    (void)command;
    return refusal;
}

static void assert_refused(fake_answer *answer, const char *bytes, bool urgent, enum mr_err wanted)
{
    struct scene scene;
    refusal = bytes;
    open_scene(&scene, answer);
    scene.ask.script = 0;
    scene.ask.keys_n = 1;
    scene.ask.call.urgent = urgent;
    assert_int_equal(ask_run(&scene.ask), wanted);
    assert_false(scene.ask.call.doubt);
    was_gone = scene.ask.call.gone;
    close_scene(&scene);
}

static void what_passes_is_tried_again(void **state)
{
    (void)state;
    static const char *const rows[] = {
        "-LOADING Redis is loading the dataset in memory\r\n",
        "-MASTERDOWN Link with MASTER is down\r\n",
        "-BUSY Redis is busy running a script\r\n",
        "-TRYAGAIN Multiple keys request during rehashing of slot\r\n",
        "-CLUSTERDOWN The cluster is down\r\n",
        "-NOREPLICAS Not enough good replicas to write.\r\n",
        "-READONLY You can't write against a read only replica.\r\n",
        "-NOSCRIPT No matching script. Please use EVAL.\r\n",
        "-ERR Error running script (call to f_1): @user_script:1: @user_script: 1: -READONLY You "
        "can't write against a read only replica.\r\n",
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_refused(refuse_thrice, rows[i], false, MR_OK);
}

static void what_is_urgent_waits_for_nothing_long(void **state)
{
    (void)state;
    assert_refused(refuse_thrice, "-TRYAGAIN Multiple keys\r\n", true, MR_OK);
    assert_refused(refuse_thrice, "-NOSCRIPT No matching script\r\n", true, MR_OK);
    assert_refused(refuse_always, "-LOADING Redis is loading\r\n", true, MR_UNAVAILABLE);
    assert_refused(refuse_always, "-CLUSTERDOWN The cluster is down\r\n", true, MR_UNAVAILABLE);
    assert_refused(refuse_always, "-READONLY You can't write\r\n", true, MR_UNAVAILABLE);
    assert_refused(refuse_always, "-MISCONF Redis is configured to save RDB snapshots\r\n", true,
                   MR_UNAVAILABLE);
}

static void it_is_told_whether_others_could_change_anything(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        bool gone;
    } rows[] = {
        {"-LOADING Redis is loading the dataset in memory\r\n", true},
        {"-MISCONF Redis is configured to save RDB snapshots\r\n", true},
        {"-NOREPLICAS Not enough good replicas to write.\r\n", true},
        {"-CLUSTERDOWN The cluster is down\r\n", false},
        {"-READONLY You can't write\r\n", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        assert_refused(refuse_always, rows[i].bytes, true, MR_UNAVAILABLE);
        assert_int_equal(was_gone, rows[i].gone);
    }
}

static void what_does_not_pass_is_told(void **state)
{
    (void)state;
    static const struct {
        const char *bytes;
        enum mr_err err;
    } rows[] = {
        {"-ERR unknown command\r\n", MR_FAILED},
        {"-NOPERM this user has no permissions\r\n", MR_DENIED},
        {"-NOAUTH Authentication required.\r\n", MR_DENIED},
        {"-ERR The user executing the script can't run this command or subcommand script: f_1\r\n",
         MR_DENIED},
        {"-ERR Error running script (call to f_1): @user_script:1: @user_script: 1: The user "
         "executing the script can't access at least one of the keys\r\n",
         MR_DENIED},
        {"-OOM command not allowed when used memory > 'maxmemory'.\r\n", MR_DISK_FULL},
        {"-ERR Error running script (call to f_1): @user_script:1: -OOM command not "
         "allowed\r\n",
         MR_DISK_FULL},
        {"-NOSCRIPT No matching script\r\n", MR_UNAVAILABLE},
        {"-OOMPH is another word\r\n", MR_FAILED},
        {"-\r\n", MR_FAILED},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_refused(refuse_always, rows[i].bytes, false, rows[i].err);
}

/* ---- breaks --------------------------------------------------------------------------------- */

/* The first connection ends at the first command. */
static const char *end_first(struct fake_conn *conn, const struct mr_reply *command)
{
    (void)command;
    return conn->n == 1 ? NULL : "+again\r\n";
}

static void a_break_leaves_doubt(void **state)
{
    (void)state;
    struct scene scene;
    open_scene(&scene, end_first);
    assert_int_equal(ask_run(&scene.ask), MR_UNAVAILABLE);
    assert_true(scene.ask.call.doubt);
    assert_non_null(strstr(scene.ask.text, "closed the connection"));
    user_wait_up(&scene.user, 2);
    assert_string_equal(ASK(&scene.user, &scene.ask, "GET", "key"), "again");
    assert_false(scene.ask.call.doubt);
    close_scene(&scene);
}

static void what_may_be_repeated_is(void **state)
{
    (void)state;
    struct scene scene;
    open_scene(&scene, end_first);
    scene.ask.call.repeatable = true;
    assert_int_equal(ask_run(&scene.ask), MR_OK);
    assert_string_equal(scene.ask.text, "again");
    assert_false(scene.ask.call.doubt);
    close_scene(&scene);
}

static void what_is_urgent_is_not_repeated_but_in_doubt(void **state)
{
    (void)state;
    struct scene scene;
    open_scene(&scene, end_first);
    scene.ask.call.repeatable = scene.ask.call.urgent = true;
    assert_int_equal(ask_run(&scene.ask), MR_UNAVAILABLE);
    assert_true(scene.ask.call.doubt);
    close_scene(&scene);
}

static void nobody_there_refuses_the_urgent_at_once_and_others_later(void **state)
{
    (void)state;
    struct fake *fake = fake_start(say_ok, NULL);
    struct mr_redis_options options = options_of(fake);
    char url[64];
    snprintf(url, sizeof url, "%s", fake->url);
    fake_stop(fake);
    options.url = url;
    options.away_ms = 50;
    struct user user;
    struct ask ask;
    user_open(&user, options);
    user_wait_down(&user, 1);
    assert_true(user_was_told(&user, "Redis at 127.0.0.1:"));
    ask_init(&ask, &user, "GET", "key", NULL);
    ask.call.urgent = true;
    assert_int_equal(ask_run(&ask), MR_UNAVAILABLE);
    assert_false(ask.call.doubt);
    mr_mono before = mr_mono_now(mr_clock_system());
    ask_init(&ask, &user, "GET", "key", NULL);
    assert_int_equal(ask_run(&ask), MR_UNAVAILABLE);
    assert_false(ask.call.doubt);
    assert_true(mr_mono_now(mr_clock_system()).ns >= before.ns + 50 * MR_NS_PER_MS);
    user_close(&user);
}

static void new_lane(struct mr_redis *redis, void *arg)
{
    assert_int_equal(mr_redis_lane_new(redis, MR_SLICE_LIT("key"), arg), MR_OK);
}

static void break_and_free_lane(struct mr_redis *redis, void *arg)
{
    for (struct mr_link *link = redis->lines.next; link != &redis->lines; link = link->next) {
        struct redis_line *line = mr_container(link, struct redis_line, link);
        if (line->ops->blocks)
            redis_line_doom(line, MR_UNAVAILABLE, "broken by the test");
    }
    mr_redis_lane_free(arg);
}

static const char *say_nothing(struct fake_conn *conn, const struct mr_reply *command)
{
    (void)conn;
    (void)command;
    return "";
}

static void a_lane_may_be_freed_in_the_turn_in_which_it_breaks(void **state)
{
    (void)state;
    struct scene scene;
    struct mr_redis_lane *lane;
    open_scene(&scene, say_nothing);
    user_do(&scene.user, new_lane, &lane);
    scene.ask.lane = lane;
    scene.ask.call.repeatable = true;
    ask_start(&scene.ask);
    while (atomic_load(&scene.fake->seen) == 0)
        ;
    user_do(&scene.user, break_and_free_lane, lane);
    assert_int_equal(ask_wait(&scene.ask), MR_CANCELLED);
    close_scene(&scene);
}

/* Which command of its connection it is. */
static const char *say_number(struct fake_conn *conn, const struct mr_reply *command)
{
    (void)command;
    return conn->commands == 1 ? ":1\r\n" : ":2\r\n";
}

static void break_between(struct mr_redis *redis, void *arg)
{
    struct ask *asks = arg;
    ask_begin(&asks[0].msg, redis);
    redis_line_doom(&mr_container(redis->nodes.next, struct redis_node, link)->line, MR_UNAVAILABLE,
                    "broken by the test");
    ask_begin(&asks[1].msg, redis);
}

static void what_was_sent_before_a_break_comes_before_what_was_sent_after_it(void **state)
{
    (void)state;
    struct scene scene;
    struct ask asks[2];
    open_scene(&scene, say_number);
    for (size_t i = 0; i < 2; i++)
        ask_init(&asks[i], &scene.user, "INCR", "key", NULL);
    user_do(&scene.user, break_between, asks);
    for (size_t i = 0; i < 2; i++)
        assert_int_equal(ask_wait(&asks[i]), MR_OK);
    assert_string_equal(asks[0].text, "1");
    assert_string_equal(asks[1].text, "2");
    close_scene(&scene);
}

/* A second node beside the first one, which is the one that is used. */
static void add_node(struct mr_redis *redis, void *arg)
{
    struct redis_node **node = arg;
    struct redis_line *line = &mr_container(redis->nodes.next, struct redis_node, link)->line;
    assert_int_equal(redis_node_new(redis, &line->host, line->ops, node), MR_OK);
}

static void retire_first_node(struct mr_redis *redis, void *arg)
{
    struct ask *ask = arg;
    ask_begin(&ask->msg, redis);
    redis_node_retire(mr_container(redis->nodes.next, struct redis_node, link));
}

static void what_a_node_leaves_behind_goes_to_another_one_at_once(void **state)
{
    (void)state;
    struct scene scene;
    struct redis_node *node;
    scene.fake = fake_start(say_ok, NULL);
    struct mr_redis_options options = options_of(scene.fake);
    options.away_ms = 2 * user_patience_ns / MR_NS_PER_MS;
    user_open(&scene.user, options);
    user_wait_up(&scene.user, 1);
    user_do(&scene.user, add_node, &node);
    user_wait_up(&scene.user, 2);
    ask_init(&scene.ask, &scene.user, "GET", "key", NULL);
    user_do(&scene.user, retire_first_node, &scene.ask);
    assert_int_equal(ask_wait(&scene.ask), MR_OK);
    close_scene(&scene);
}

/* ---- silence -------------------------------------------------------------------------------- */

static void silence_breaks_the_connection_and_its_lanes(void **state)
{
    (void)state;
    struct scene scene;
    scene.fake = fake_start(say_nothing, NULL);
    struct mr_redis_options options = options_of(scene.fake);
    options.answer_ms = 100;
    user_open(&scene.user, options);
    user_wait_up(&scene.user, 1);
    struct mr_redis_lane *lane;
    struct ask blocked;
    user_do(&scene.user, new_lane, &lane);
    ask_init(&blocked, &scene.user, "BLPOP", "key", "0", NULL);
    blocked.lane = lane;
    ask_start(&blocked);
    while (atomic_load(&scene.fake->seen) == 0)
        ;
    ask_init(&scene.ask, &scene.user, "GET", "key", NULL);
    assert_int_equal(ask_run(&scene.ask), MR_UNAVAILABLE);
    assert_true(scene.ask.call.doubt);
    assert_int_equal(ask_wait(&blocked), MR_UNAVAILABLE);
    assert_true(blocked.call.doubt);
    user_wait_down(&scene.user, 1);
    assert_true(user_was_told(&scene.user, "no answer in time"));
    close_scene(&scene);
}

static const char *ignore_pings(struct fake_conn *conn, const struct mr_reply *command)
{
    (void)conn;
    return fake_is(command, "PING") ? "" : NULL;
}

static void an_idle_connection_is_asked_whether_it_lives(void **state)
{
    (void)state;
    struct user user;
    struct fake *fake = fake_start(say_ok, ignore_pings);
    struct mr_redis_options options = options_of(fake);
    options.answer_ms = 50;
    user_open(&user, options);
    user_wait_up(&user, 1);
    user_wait_down(&user, 1);
    user_wait_up(&user, 2);
    user_close(&user);
    fake_stop(fake);
}

/* ---- replicas ------------------------------------------------------------------------------- */

static const char *one_replica(struct fake_conn *conn, const struct mr_reply *command)
{
    (void)conn;
    return fake_is(command, "WAIT") ? ":1\r\n" : "$4\r\ndone\r\n";
}

static void run_durable(uint32_t replicas, enum mr_err wanted, const char *text)
{
    enum { N = 50 };
    struct fake *fake = fake_start(one_replica, NULL);
    struct mr_redis_options options = options_of(fake);
    struct user user;
    struct ask *asks = calloc(N, sizeof *asks);
    assert_non_null(asks);
    options.wait_replicas = replicas;
    user_open(&user, options);
    user_wait_up(&user, 1);
    for (size_t i = 0; i < N; i++) {
        ask_init(&asks[i], &user, "SET", "key", "value", NULL);
        asks[i].call.durable = i != 7; /* that one is not kept waiting */
    }
    for (size_t i = 0; i < N; i++)
        ask_start(&asks[i]);
    for (size_t i = 0; i < N; i++) {
        assert_int_equal(ask_wait(&asks[i]), i != 7 ? wanted : MR_OK);
        assert_string_equal(asks[i].text, i != 7 ? text : "done");
        assert_int_equal(asks[i].call.doubt, i != 7 && wanted != MR_OK);
    }
    assert_in_range(atomic_load(&fake->waits), 1, N);
    user_close(&user);
    fake_stop(fake);
    free(asks);
}

static void durable_calls_wait_for_replicas(void **state)
{
    (void)state;
    run_durable(1, MR_OK, "done");
    run_durable(2, MR_TIMEOUT, "not enough replicas have it in time");
}

/* The first WAIT takes until the second command is there, as it may with Redis. */
static const char *wait_long(struct fake_conn *conn, const struct mr_reply *command)
{
    bool waits = fake_is(command, "WAIT");
    if (waits)
        return atomic_load(&conn->fake->waits) == 1 ? "" : ":1\r\n";
    return atomic_load(&conn->fake->waits) == 1 ? ":1\r\n+second\r\n" : "+first\r\n";
}

static void one_wait_is_under_way_at_a_time(void **state)
{
    (void)state;
    struct fake *fake = fake_start(wait_long, NULL);
    struct mr_redis_options options = options_of(fake);
    struct user user;
    struct ask first, second;
    options.answer_ms = 2 * user_patience_ns / MR_NS_PER_MS; /* no ping helps out */
    options.wait_replicas = 1;
    user_open(&user, options);
    user_wait_up(&user, 1);
    ask_init(&first, &user, "SET", "key", "1", NULL);
    ask_init(&second, &user, "SET", "key", "2", NULL);
    first.call.durable = second.call.durable = true;
    ask_start(&first);
    while (atomic_load(&fake->waits) == 0)
        ;
    ask_start(&second);
    assert_int_equal(ask_wait(&first), MR_OK);
    assert_string_equal(first.text, "first");
    assert_int_equal(ask_wait(&second), MR_OK);
    assert_string_equal(second.text, "second");
    assert_int_equal(atomic_load(&fake->waits), 2);
    user_close(&user);
    fake_stop(fake);
}

static const char *end_at_wait(struct fake_conn *conn, const struct mr_reply *command)
{
    (void)conn;
    return fake_is(command, "WAIT") ? NULL : "+done\r\n";
}

static void a_break_while_replicas_are_waited_for_leaves_doubt(void **state)
{
    (void)state;
    struct scene scene;
    scene.fake = fake_start(end_at_wait, NULL);
    struct mr_redis_options options = options_of(scene.fake);
    options.wait_replicas = 1;
    user_open(&scene.user, options);
    user_wait_up(&scene.user, 1);
    ask_init(&scene.ask, &scene.user, "SET", "key", "value", NULL);
    scene.ask.call.durable = true;
    assert_int_equal(ask_run(&scene.ask), MR_UNAVAILABLE);
    assert_true(scene.ask.call.doubt);
    close_scene(&scene);
}

/* ---- bytes that are no answers -------------------------------------------------------------- */

static const char *hostile_bytes;

static const char *be_hostile(struct fake_conn *conn, const struct mr_reply *command)
{
    (void)command;
    return conn->n == 1 ? hostile_bytes : "+fine\r\n";
}

static void assert_survived(const char *bytes, const char *words)
{
    struct scene scene;
    hostile_bytes = bytes;
    open_scene(&scene, be_hostile);
    assert_int_equal(ask_run(&scene.ask), MR_UNAVAILABLE);
    assert_true(scene.ask.call.doubt);
    if (strstr(scene.ask.text, words) == NULL)
        fail_msg("'%s' is not in '%s'", words, scene.ask.text);
    user_wait_up(&scene.user, 2);
    assert_string_equal(ASK(&scene.user, &scene.ask, "GET", "key"), "fine");
    close_scene(&scene);
}

static void bytes_that_are_no_answers_break_the_connection_only(void **state)
{
    (void)state;
    static const char *const rows[][2] = {
        {"what is this\r\n", "is no reply of a Redis; is it one?"},
        {"*1048577\r\n", "too many items"},
        {"*2147483648\r\n", "Redis at"},
        {"*-2\r\n", "Redis at"},
        {"$67108865\r\nx", "too long"},
        {"$99999999999999999999\r\nx", "Redis at"},
        {"$-7\r\n", "Redis at"},
        {"$12x\r\nabcdefghijkl\r\n", "Redis at"},
        {"$00000000000000000000000000000000000000000000000001\r\nx\r\n", "Redis at"},
        {":12x\r\n", "Redis at"},
        {":\r\n", "Redis at"},
        {"*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n", "Redis at"},
        {"*3\r\n:1\r\n%2\r\n+a\r\n", "Redis at"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        assert_survived(rows[i][0], rows[i][1]);
}

static void a_line_without_an_end_is_cut_off(void **state)
{
    (void)state;
    enum { LEN = REDIS_LINE_MAX + 40000 };
    char *line = malloc(LEN + 1);
    assert_non_null(line);
    memset(line, 'a', LEN);
    line[0] = '+';
    line[LEN] = '\0';
    assert_survived(line, "too long");
    memset(line, '1', LEN);
    line[0] = '$';
    assert_survived(line, "no number");
    free(line);
}

static const char *answer_twice(struct fake_conn *conn, const struct mr_reply *command)
{
    (void)command;
    return conn->n == 1 ? "+one\r\n+two\r\n" : "+fine\r\n";
}

static void answers_that_nobody_asked_for_break_the_connection(void **state)
{
    (void)state;
    struct scene scene;
    open_scene(&scene, answer_twice);
    assert_string_equal(ASK(&scene.user, &scene.ask, "GET", "key"), "one");
    user_wait_up(&scene.user, 2);
    assert_true(user_was_told(&scene.user, "nobody asked for"));
    assert_string_equal(ASK(&scene.user, &scene.ask, "GET", "key"), "fine");
    close_scene(&scene);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(servers_that_cannot_be_used_get_one_clear_line),
        cmocka_unit_test(whoever_waits_for_what_will_not_be_is_told_at_once),
        cmocka_unit_test(who_is_not_let_in_comes_ever_later),
        cmocka_unit_test(a_server_that_loads_is_waited_for),
        cmocka_unit_test(a_server_that_is_new_enough_or_does_not_say_it_is_let_in),
        cmocka_unit_test(a_user_who_may_not_ask_is_let_in),
        cmocka_unit_test(what_passes_is_tried_again),
        cmocka_unit_test(what_is_urgent_waits_for_nothing_long),
        cmocka_unit_test(it_is_told_whether_others_could_change_anything),
        cmocka_unit_test(what_does_not_pass_is_told),
        cmocka_unit_test(a_break_leaves_doubt),
        cmocka_unit_test(what_may_be_repeated_is),
        cmocka_unit_test(what_is_urgent_is_not_repeated_but_in_doubt),
        cmocka_unit_test(nobody_there_refuses_the_urgent_at_once_and_others_later),
        cmocka_unit_test(a_lane_may_be_freed_in_the_turn_in_which_it_breaks),
        cmocka_unit_test(what_a_node_leaves_behind_goes_to_another_one_at_once),
        cmocka_unit_test(what_was_sent_before_a_break_comes_before_what_was_sent_after_it),
        cmocka_unit_test(silence_breaks_the_connection_and_its_lanes),
        cmocka_unit_test(an_idle_connection_is_asked_whether_it_lives),
        cmocka_unit_test(durable_calls_wait_for_replicas),
        cmocka_unit_test(one_wait_is_under_way_at_a_time),
        cmocka_unit_test(a_break_while_replicas_are_waited_for_leaves_doubt),
        cmocka_unit_test(bytes_that_are_no_answers_break_the_connection_only),
        cmocka_unit_test(a_line_without_an_end_is_cut_off),
        cmocka_unit_test(answers_that_nobody_asked_for_break_the_connection),
    };
    return cmocka_run_group_tests_name("redis: a server that is not good", tests, NULL, NULL);
}
