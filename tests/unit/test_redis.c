/* SPDX-License-Identifier: Apache-2.0 */
/* One real Redis server, over TCP, TLS and a unix socket: calls, scripts, lanes, channels. */
#include "redis_user.h"

#include "support/redis_rig.h"

static const struct mr_redis_script scripts[] = {
    {.name = "join", .text = "return KEYS[1] .. ARGV[1]"},
    {.name = "add", .text = "return redis.call('INCRBY', KEYS[1], ARGV[1])"},
    {.name = "fill",
     .text = "for i = 1, tonumber(ARGV[1]) do redis.call('SET', KEYS[1] .. i, "
             "string.rep('x', 1000)) end return 'filled'"},
};

enum { JOIN, ADD, FILL, SCRIPTS_N };

static struct mr_redis_options options_of(const char *url)
{
    return (struct mr_redis_options){.url = url, .scripts = scripts, .scripts_n = SCRIPTS_N};
}

static void ask_script(struct ask *ask, int script, size_t keys_n)
{
    ask->script = script;
    ask->keys_n = keys_n;
}

/* ---- calls ---------------------------------------------------------------------------------- */

static void use(struct user *user)
{
    struct ask ask;
    user_wait_up(user, 1);
    assert_string_equal(ASK(user, &ask, "SET", "k", "v"), "OK");
    assert_string_equal(ASK(user, &ask, "GET", "k"), "v");
    assert_string_equal(ASK(user, &ask, "GET", "no"), "(nil)");
    assert_int_equal(ask.kind, MR_REPLY_NIL);
    (void)ASK(user, &ask, "DEL", "list");
    assert_string_equal(ASK(user, &ask, "RPUSH", "list", "a", "", "c"), "3");
    assert_string_equal(ASK(user, &ask, "LRANGE", "list", "0", "-1"), "a  c");
    ask_init(&ask, user, "LPUSH", "k", "x", NULL);
    assert_int_equal(ask_run(&ask), MR_FAILED);
    assert_int_equal(ask.kind, MR_REPLY_ERROR);
    assert_memory_equal(ask.text, "WRONGTYPE", 9);
    ask_init(&ask, user, "left", "right", NULL);
    ask_script(&ask, JOIN, 1);
    assert_int_equal(ask_run(&ask), MR_OK);
    assert_string_equal(ask.text, "leftright");
    assert_false(ask.call.doubt);
}

static void commands_and_scripts_are_answered(void **state)
{
    struct user user;
    user_open(&user, options_of(redis_rig_url(*state)));
    use(&user);
    user_close(&user);
    user_open(&user, options_of(redis_rig_unix_url(*state)));
    use(&user);
    user_close(&user);
}

static void a_database_of_its_own_is_chosen(void **state)
{
    char url[512];
    struct user user;
    struct ask ask;
    snprintf(url, sizeof url, "%s/3", redis_rig_url(*state));
    user_open(&user, options_of(url));
    user_wait_up(&user, 1);
    (void)ASK(&user, &ask, "SET", "only-here", "3");
    user_close(&user);
    snprintf(url, sizeof url, "%s?db=3", redis_rig_unix_url(*state));
    user_open(&user, options_of(url));
    user_wait_up(&user, 1);
    assert_string_equal(ASK(&user, &ask, "GET", "only-here"), "3");
    user_close(&user);
    assert_string_equal(RIG(redis_rig_server(*state, 0), "GET", "only-here"), "(nil)");
}

static void names_are_looked_up_beside_the_loop(void **state)
{
    char url[64];
    struct user user;
    snprintf(url, sizeof url, "redis://localhost:%u", redis_rig_server(*state, 0)->port);
    user_open(&user, options_of(url));
    use(&user);
    user_close(&user);
}

enum { MANY = 5000 };

struct many {
    struct mr_redis_call calls[MANY];
    int64_t seen[MANY];
    size_t answered;
    struct mr_event done;
};

static void count_answered(struct mr_redis_call *call, enum mr_err err,
                           const struct mr_reply *reply)
{
    struct many *many = call->arg;
    assert_int_equal(err, MR_OK);
    assert_ptr_equal(call, &many->calls[many->answered]); /* in the order of sending */
    many->seen[many->answered++] = mr_reply_int(reply, -1);
    if (many->answered == MANY)
        mr_event_set(&many->done);
}

static void send_many(struct mr_redis *redis, void *arg)
{
    struct many *many = arg;
    for (size_t i = 0; i < MANY; i++) {
        many->calls[i].answered = count_answered;
        many->calls[i].arg = many;
        struct mr_slice key = MR_SLICE_LIT("count"), by = MR_SLICE_LIT("1");
        if (i % 2 == 0)
            mr_redis_eval(redis, &many->calls[i], ADD, &key, 1, &by, 1);
        else
            mr_redis_send(redis, &many->calls[i], key,
                          (struct mr_slice[]){MR_SLICE_LIT("INCR"), key}, 2);
    }
}

static void many_calls_are_under_way_at_once_and_keep_their_order(void **state)
{
    struct user user;
    struct many *many = calloc(1, sizeof *many);
    assert_non_null(many);
    mr_event_init(&many->done);
    user_open(&user, options_of(redis_rig_url(*state)));
    user_wait_up(&user, 1);
    user_do(&user, send_many, many);
    assert_true(mr_event_wait(&many->done, user_patience_ns));
    for (size_t i = 0; i < MANY; i++)
        assert_int_equal(many->seen[i], (int64_t)i + 1);
    user_close(&user);
    free(many);
}

static void calls_of_any_size_are_carried(void **state)
{
    static const size_t sizes[] = {0, 1, 65535, 65536, 70000, 3 << 20};
    struct user user;
    user_open(&user, options_of(redis_rig_url(*state)));
    user_wait_up(&user, 1);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        struct ask ask, length;
        char *big = calloc(1, sizes[i] + 1), text[24];
        assert_non_null(big);
        memset(big, 'b', sizes[i]);
        ask_init(&ask, &user, "SET", "big", big, NULL);
        ask_init(&length, &user, "STRLEN", "big", NULL);
        ask_start(&ask);
        ask_start(&length);
        assert_int_equal(ask_wait(&ask), MR_OK);
        assert_int_equal(ask_wait(&length), MR_OK);
        snprintf(text, sizeof text, "%zu", sizes[i]);
        assert_string_equal(length.text, text);
        ask_init(&ask, &user, "GET", "big", NULL);
        assert_int_equal(ask_run(&ask), MR_OK);
        assert_int_equal(ask.kind, MR_REPLY_TEXT);
        free(big);
    }
    user_close(&user);
}

/* ---- scripts -------------------------------------------------------------------------------- */

static void scripts_that_were_forgotten_are_loaded_again(void **state)
{
    struct user user;
    struct ask first, second, third;
    user_open(&user, options_of(redis_rig_url(*state)));
    user_wait_up(&user, 1);
    (void)RIG(redis_rig_server(*state, 0), "DEL", "n");
    for (int round = 0; round < 3; round++) {
        ask_init(&first, &user, "n", "1", NULL);
        ask_init(&second, &user, "n", "10", NULL);
        ask_init(&third, &user, "a", "b", NULL);
        ask_script(&first, ADD, 1);
        ask_script(&second, ADD, 1);
        ask_script(&third, JOIN, 1);
        (void)RIG(redis_rig_server(*state, 0), "SCRIPT", "FLUSH");
        ask_start(&first);
        ask_start(&second);
        ask_start(&third);
        assert_int_equal(ask_wait(&first), MR_OK);
        assert_int_equal(ask_wait(&second), MR_OK);
        assert_int_equal(ask_wait(&third), MR_OK);
        assert_int_equal(strtol(second.text, NULL, 10), 11 * (round + 1));
        assert_string_equal(third.text, "ab");
    }
    assert_int_equal(atomic_load(&user.downs), 0);
    user_close(&user);
}

static void scripts_that_are_there_are_not_sent_again(void **state)
{
    struct redis_rig_server *server = redis_rig_server(*state, 0);
    for (int round = 0; round < 2; round++) {
        struct user user;
        if (round == 0)
            (void)RIG(server, "SCRIPT", "FLUSH");
        (void)RIG(server, "CONFIG", "RESETSTAT");
        user_open(&user, options_of(redis_rig_url(*state)));
        user_wait_up(&user, 1);
        bool sent = strstr(RIG(server, "INFO", "commandstats"), "script|load") != NULL;
        assert_int_equal(sent, round == 0);
        user_close(&user);
    }
}

/* ---- lanes ---------------------------------------------------------------------------------- */

struct lanes {
    struct mr_redis_lane *lane;
};

static void make_lane(struct mr_redis *redis, void *arg)
{
    struct lanes *lanes = arg;
    assert_int_equal(mr_redis_lane_new(redis, MR_SLICE_LIT("wake"), &lanes->lane), MR_OK);
}

static void free_lane(struct mr_redis *redis, void *arg)
{
    (void)redis;
    struct lanes *lanes = arg;
    mr_redis_lane_free(lanes->lane);
}

static void what_blocks_in_a_lane_holds_up_nobody(void **state)
{
    struct user user;
    struct lanes lanes;
    struct ask blocked, ask;
    user_open(&user, options_of(redis_rig_url(*state)));
    user_wait_up(&user, 1);
    user_do(&user, make_lane, &lanes);
    ask_init(&blocked, &user, "BLPOP", "wake", "0", NULL);
    blocked.lane = lanes.lane;
    ask_start(&blocked);
    assert_string_equal(ASK(&user, &ask, "SET", "k", "v"), "OK");
    assert_string_equal(ASK(&user, &ask, "RPUSH", "wake", "up"), "1");
    assert_int_equal(ask_wait(&blocked), MR_OK);
    assert_string_equal(blocked.text, "wake up");
    user_do(&user, free_lane, &lanes);
    user_close(&user);
}

static void the_calls_of_a_freed_lane_are_cancelled(void **state)
{
    struct user user;
    struct lanes lanes;
    struct ask blocked, behind;
    user_open(&user, options_of(redis_rig_url(*state)));
    user_wait_up(&user, 1);
    user_do(&user, make_lane, &lanes);
    ask_init(&blocked, &user, "BLPOP", "wake", "0", NULL);
    ask_init(&behind, &user, "BLPOP", "wake", "0", NULL);
    blocked.lane = behind.lane = lanes.lane;
    ask_start(&blocked);
    ask_start(&behind);
    user_do(&user, free_lane, &lanes);
    assert_int_equal(ask_wait(&blocked), MR_CANCELLED);
    assert_int_equal(ask_wait(&behind), MR_CANCELLED);
    user_close(&user);
}

/* ---- channels ------------------------------------------------------------------------------- */

struct listener {
    struct mr_redis_channel channel;
    struct mr_redis *redis;
    struct listener *silences; /* one that is unsubscribed by the first message; NULL: none */
    _Atomic uint32_t begun, heard;
    char last[64];
    struct mr_event event;
};

static void hear(struct mr_redis_channel *channel, struct mr_slice bytes)
{
    struct listener *listener = mr_container(channel, struct listener, channel);
    if (bytes.data == NULL) {
        atomic_fetch_add(&listener->begun, 1);
    } else {
        snprintf(listener->last, sizeof listener->last, "%.*s", (int)bytes.len,
                 (const char *)bytes.data);
        atomic_fetch_add(&listener->heard, 1);
        if (listener->silences != NULL) {
            mr_redis_unsubscribe(listener->redis, &listener->silences->channel);
            memset(&listener->silences->channel, 0, sizeof listener->silences->channel);
            listener->silences = NULL;
        }
    }
    mr_event_set(&listener->event);
}

static void subscribe(struct mr_redis *redis, void *arg)
{
    struct listener *listener = arg;
    listener->redis = redis;
    mr_redis_subscribe(redis, &listener->channel);
}

static void unsubscribe(struct mr_redis *redis, void *arg)
{
    struct listener *listener = arg;
    mr_redis_unsubscribe(redis, &listener->channel);
}

static void listener_init(struct listener *listener, const char *name)
{
    memset(listener, 0, sizeof *listener);
    listener->channel.name = mr_slice_str(name);
    listener->channel.message = hear;
    mr_event_init(&listener->event);
}

static void listener_wait(struct listener *listener, _Atomic uint32_t *count, uint32_t n)
{
    while (atomic_load(count) < n) {
        assert_true(mr_event_wait(&listener->event, user_patience_ns));
        mr_event_reset(&listener->event);
    }
}

static void subscribers_hear_what_is_published(void **state)
{
    struct redis_rig_server *server = redis_rig_server(*state, 0);
    struct user user;
    struct listener one, two;
    listener_init(&one, "news");
    listener_init(&two, "other");
    user_open(&user, options_of(redis_rig_url(*state)));
    user_do(&user, subscribe, &one);
    listener_wait(&one, &one.begun, 1);
    user_do(&user, subscribe, &two);
    listener_wait(&two, &two.begun, 1);
    assert_int_equal(RIG_INT(server, "PUBLISH", "news", "first"), 1);
    listener_wait(&one, &one.heard, 1);
    assert_string_equal(one.last, "first");
    assert_int_equal(RIG_INT(server, "PUBLISH", "other", ""), 1);
    listener_wait(&two, &two.heard, 1);
    assert_string_equal(two.last, "");
    user_do(&user, unsubscribe, &one);
    while (RIG_INT(server, "PUBLISH", "news", "second") != 0)
        ;
    assert_int_equal(atomic_load(&one.heard), 1);
    assert_int_equal(RIG_INT(server, "PUBLISH", "other", "third"), 1);
    listener_wait(&two, &two.heard, 2);
    user_do(&user, unsubscribe, &two);
    user_close(&user);
}

static void a_message_may_end_any_subscription(void **state)
{
    struct redis_rig_server *server = redis_rig_server(*state, 0);
    struct user user;
    struct listener one, two, three;
    listener_init(&one, "news");
    listener_init(&two, "news");
    listener_init(&three, "news");
    one.silences = &two;
    user_open(&user, options_of(redis_rig_url(*state)));
    user_do(&user, subscribe, &one);
    user_do(&user, subscribe, &two);
    user_do(&user, subscribe, &three);
    listener_wait(&three, &three.begun, 1);
    assert_int_equal(RIG_INT(server, "PUBLISH", "news", "once"), 1);
    listener_wait(&three, &three.heard, 1);
    assert_int_equal(atomic_load(&one.heard), 1);
    assert_int_equal(atomic_load(&two.heard), 0);
    user_close(&user);
}

static void subscriptions_begin_again_after_a_break(void **state)
{
    struct redis_rig_server *server = redis_rig_server(*state, 0);
    struct user user;
    struct listener one;
    listener_init(&one, "news");
    user_open(&user, options_of(redis_rig_url(*state)));
    user_do(&user, subscribe, &one);
    listener_wait(&one, &one.begun, 1);
    (void)RIG(server, "CLIENT", "KILL", "TYPE", "pubsub");
    listener_wait(&one, &one.begun, 2);
    assert_int_equal(RIG_INT(server, "PUBLISH", "news", "again"), 1);
    listener_wait(&one, &one.heard, 1);
    user_close(&user);
}

/* ---- the loop ------------------------------------------------------------------------------- */

struct order {
    struct mr_msg end;
    struct mr_timer timer;
    struct mr_redis_call call;
    struct mr_event fired;
    mr_mono at, when;
    unsigned ends;
};

static void at_end(struct mr_msg *msg, void *receiver)
{
    (void)receiver;
    mr_container(msg, struct order, end)->ends++;
}

static void fired(struct mr_timer *timer, void *arg)
{
    struct order *order = mr_container(timer, struct order, timer);
    order->when = mr_redis_now(arg);
    mr_event_set(&order->fired);
}

static void start_order(struct mr_redis *redis, void *arg)
{
    struct order *order = arg;
    order->end.deliver = at_end;
    mr_redis_at_end_of_turn(redis, &order->end);
    assert_int_equal(order->ends, 0);
    mr_timer_init(&order->timer, fired);
    order->at = mr_mono_add_ms(mr_redis_now(redis), 5);
    mr_redis_timer_start(redis, &order->timer, order->at);
}

static void timers_and_the_end_of_a_turn_are_served(void **state)
{
    struct user user;
    struct order order = {0};
    mr_event_init(&order.fired);
    user_open(&user, options_of(redis_rig_url(*state)));
    user_do(&user, start_order, &order);
    assert_true(mr_event_wait(&order.fired, user_patience_ns));
    assert_true(order.when.ns >= order.at.ns);
    assert_int_equal(order.ends, 1);
    user_close(&user);
}

/* A turn that an answer makes long, and a message that comes in it. */
struct long_turn {
    struct mr_redis_call call;
    struct mr_event begun, go_on;
    mr_mono now; /* of the loop when the message was delivered */
};

static void dawdle(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct long_turn *turn = mr_container(call, struct long_turn, call);
    (void)err, (void)reply;
    mr_event_set(&turn->begun);
    (void)mr_event_wait(&turn->go_on, user_patience_ns);
}

static void start_dawdling(struct mr_redis *redis, void *arg)
{
    struct long_turn *turn = arg;
    struct mr_slice ping = MR_SLICE_LIT("PING");
    turn->call.answered = dawdle;
    mr_redis_send(redis, &turn->call, (struct mr_slice){0}, &ping, 1);
}

static void look_at_the_clock(struct mr_redis *redis, void *arg)
{
    ((struct long_turn *)arg)->now = mr_redis_now(redis);
}

static void time_never_lags_behind_who_posts(void **state)
{
    struct user user;
    struct long_turn turn = {.now = {0}};
    mr_event_init(&turn.begun);
    mr_event_init(&turn.go_on);
    user_open(&user, options_of(redis_rig_url(*state)));
    user_do(&user, start_dawdling, &turn);
    assert_true(mr_event_wait(&turn.begun, user_patience_ns));
    mr_mono posted = mr_mono_now(mr_clock_system());
    struct user_job job = {.msg.deliver = user_deliver, .run = look_at_the_clock, .arg = &turn};
    mr_event_init(&job.done);
    mr_redis_post(user.redis, &job.msg);
    mr_event_set(&turn.go_on);
    assert_true(mr_event_wait(&job.done, user_patience_ns));
    assert_true(turn.now.ns >= posted.ns);
    user_close(&user);
}

static void the_end_answers_what_is_in_flight(void **state)
{
    struct user user;
    struct ask blocked;
    user_open(&user, options_of(redis_rig_url(*state)));
    user_wait_up(&user, 1);
    ask_init(&blocked, &user, "BLPOP", "never", "0", NULL);
    ask_start(&blocked);
    user_close(&user);
    assert_int_equal(blocked.answers, 1);
    assert_int_equal(blocked.err, MR_CLOSED);
}

static void all_nodes_are_one(struct mr_redis *redis, void *arg)
{
    struct ask *ask = arg;
    struct mr_slice args[1] = {MR_SLICE_LIT("DBSIZE")};
    assert_int_equal(mr_redis_send_to_all(redis, &ask->call, 4, args, 1), 1);
}

static void a_command_to_all_goes_to_the_one(void **state)
{
    struct user user;
    struct ask ask;
    user_open(&user, options_of(redis_rig_url(*state)));
    user_wait_up(&user, 1);
    ask_init(&ask, &user, "DBSIZE", NULL);
    user_do(&user, all_nodes_are_one, &ask);
    assert_int_equal(ask_wait(&ask), MR_OK);
    assert_int_equal(ask.kind, MR_REPLY_INTEGER);
    user_close(&user);
}

/* ---- who may come in ------------------------------------------------------------------------ */

static void tls_is_used_where_the_url_says_so(void **state)
{
    (void)state;
    struct redis_rig *rig =
        redis_rig_standalone(&(struct redis_rig_options){.tls = true, .tls_clients = true});
    struct mr_redis_options options = options_of(redis_rig_url(rig));
    struct user user;
    char ca[REDIS_RIG_PATH_MAX], cert[REDIS_RIG_PATH_MAX], key[REDIS_RIG_PATH_MAX];
    snprintf(ca, sizeof ca, "%s", redis_rig_pem(rig, "ca.pem"));
    snprintf(cert, sizeof cert, "%s", redis_rig_pem(rig, "client.pem"));
    snprintf(key, sizeof key, "%s", redis_rig_pem(rig, "client.key"));
    options.tls_ca = ca;
    options.tls_cert = cert;
    options.tls_key = key;
    user_open(&user, options);
    use(&user);
    user_close(&user);
    /* Whoever has no certificate, and who does not trust the server, stays out. */
    options.tls_cert = options.tls_key = NULL;
    user_open(&user, options);
    user_wait_down(&user, 1);
    user_close(&user);
    options.tls_ca = NULL;
    user_open(&user, options);
    user_wait_down(&user, 1);
    assert_true(user_was_told(&user, "TLS: the certificate of the peer"));
    user_close(&user);
    redis_rig_stop(rig);
}

static enum mr_err try_url(const char *url, char why[USER_TEXT_MAX])
{
    struct user user;
    struct ask ask;
    user_open(&user, options_of(url));
    user_wait_down(&user, 1);
    ask_init(&ask, &user, "GET", "k", NULL);
    enum mr_err err = ask_run(&ask);
    snprintf(why, USER_TEXT_MAX, "%s", ask.text);
    assert_true(user_was_told(&user, why));
    assert_int_equal(atomic_load(&user.ups), 0);
    user_close(&user);
    return err;
}

static void who_may_not_come_in_is_told_at_once(void **state)
{
    (void)state;
    struct redis_rig *rig =
        redis_rig_standalone(&(struct redis_rig_options){.user = "me", .password = "p@ss/w:rd%"});
    unsigned port = redis_rig_server(rig, 0)->port;
    char url[128], why[USER_TEXT_MAX];
    struct user user;
    snprintf(url, sizeof url, "redis://me:p%%40ss%%2Fw%%3Ard%%25@127.0.0.1:%u/2", port);
    user_open(&user, options_of(url));
    use(&user);
    user_close(&user);
    snprintf(url, sizeof url, "redis://me:secret@127.0.0.1:%u", port);
    assert_int_equal(try_url(url, why), MR_DENIED);
    assert_non_null(strstr(why, "refuses user or password"));
    assert_null(strstr(why, "secret"));
    snprintf(url, sizeof url, "redis://127.0.0.1:%u", port);
    assert_int_equal(try_url(url, why), MR_DENIED);
    assert_non_null(strstr(why, "wants a password"));
    snprintf(url, sizeof url, "redis://me:p%%40ss%%2Fw%%3Ard%%25@127.0.0.1:%u/99", port);
    assert_int_equal(try_url(url, why), MR_INVALID);
    assert_non_null(strstr(why, "refuses the database"));
    redis_rig_stop(rig);
}

static void a_full_memory_is_told_apart(void **state)
{
    struct redis_rig_server *server = redis_rig_server(*state, 0);
    struct user user;
    struct ask ask;
    user_open(&user, options_of(redis_rig_url(*state)));
    user_wait_up(&user, 1);
    (void)RIG(server, "CONFIG", "SET", "maxmemory", "1");
    ask_init(&ask, &user, "SET", "k", "v", NULL);
    assert_int_equal(ask_run(&ask), MR_DISK_FULL);
    ask_init(&ask, &user, "k", "10", NULL);
    ask_script(&ask, FILL, 1);
    assert_int_equal(ask_run(&ask), MR_DISK_FULL);
    (void)RIG(server, "CONFIG", "SET", "maxmemory", "0");
    assert_string_equal(ASK(&user, &ask, "SET", "k", "v"), "OK");
    user_close(&user);
}

/* ---- main ----------------------------------------------------------------------------------- */

static int start_server(void **state)
{
    *state = redis_rig_standalone(NULL);
    return 0;
}

static int stop_server(void **state)
{
    redis_rig_stop(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commands_and_scripts_are_answered),
        cmocka_unit_test(a_database_of_its_own_is_chosen),
        cmocka_unit_test(names_are_looked_up_beside_the_loop),
        cmocka_unit_test(many_calls_are_under_way_at_once_and_keep_their_order),
        cmocka_unit_test(calls_of_any_size_are_carried),
        cmocka_unit_test(scripts_that_were_forgotten_are_loaded_again),
        cmocka_unit_test(scripts_that_are_there_are_not_sent_again),
        cmocka_unit_test(what_blocks_in_a_lane_holds_up_nobody),
        cmocka_unit_test(the_calls_of_a_freed_lane_are_cancelled),
        cmocka_unit_test(subscribers_hear_what_is_published),
        cmocka_unit_test(a_message_may_end_any_subscription),
        cmocka_unit_test(subscriptions_begin_again_after_a_break),
        cmocka_unit_test(timers_and_the_end_of_a_turn_are_served),
        cmocka_unit_test(time_never_lags_behind_who_posts),
        cmocka_unit_test(the_end_answers_what_is_in_flight),
        cmocka_unit_test(a_command_to_all_goes_to_the_one),
        cmocka_unit_test(tls_is_used_where_the_url_says_so),
        cmocka_unit_test(who_may_not_come_in_is_told_at_once),
        cmocka_unit_test(a_full_memory_is_told_apart),
    };
    return cmocka_run_group_tests_name("redis", tests, start_server, stop_server);
}
