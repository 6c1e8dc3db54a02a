/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Producers of servers that are processes: one that is killed between what it receives and its answer (29), and servers that
 * come, die, and are known by a nameserver that dies, too (33, 34, 78). What producers do at servers inside a test is in
 * timers/producers.c and unit/test_many*.c.
 */
#include <stdio.h>

#include "client/client.h"
#include "names/rig.h"

enum { ANSWER_MS = 5000, KNOWN_MS = 10 * 1000 };

static int64_t now_ms(const struct rig *rig)
{
    return bench_now_ms(rig->bench);
}

/* ---- 29 --------------------------------------------------------------------------------------- */

/* Three servers, each behind a network that can lose what it says. */
struct lossy {
    struct rig *rig;
    struct forwarder nets[RIG_SERVERS];
    struct mr_client *client;
    size_t sent;
    _Atomic size_t answered, ok;
};

static void lossy_open(struct lossy *lossy)
{
    char url[256] = "millrace://";
    struct mr_detail detail = {.text = ""};
    lossy->rig = rig_make(0, RIG_STRAIGHT);
    for (size_t i = 0; i < RIG_SERVERS; i++) {
        rig_serve(lossy->rig, i);
        char host[MR_HOST_MAX + 1];
        uint16_t port;
        assert_int_equal(mr_host_parse(lossy->rig->servers[i].grpc, host, &port), MR_OK);
        assert_int_equal(forwarder_start(&lossy->nets[i], port), MR_OK);
        size_t len = strlen(url);
        (void)snprintf(url + len, sizeof url - len, "%s127.0.0.1:%u", i > 0 ? "," : "",
                       lossy->nets[i].port);
    }
    if (mr_client_open(url, NULL, &lossy->client, &detail) != MR_OK)
        fail_msg("%s: %s", url, detail.text);
}

static void lossy_close(struct lossy *lossy)
{
    mr_client_close(lossy->client);
    for (size_t i = 0; i < RIG_SERVERS; i++)
        forwarder_stop(&lossy->nets[i]);
    rig_free(lossy->rig);
}

static void answered(enum mr_err err, const struct mr_timer_result *results, size_t n, void *arg)
{
    struct lossy *lossy = arg;
    assert_int_equal(n, 1);
    atomic_fetch_add(&lossy->ok, err == MR_OK && results[0].err == MR_OK);
    atomic_fetch_add(&lossy->answered, 1);
}

static void op_name(size_t i, char name[32])
{
    (void)snprintf(name, 32, "op-%zu", i);
}

static bool is_there(struct lossy *lossy, size_t i)
{
    char name[32];
    struct bench_timer timer;
    op_name(i, name);
    return bench_timer(lossy->rig->bench, name, &timer);
}

/* Sends the next one and waits until it is in the store. */
static void send_op(struct lossy *lossy)
{
    char name[32];
    size_t i = lossy->sent++;
    op_name(i, name);
    struct mr_timer_options timer = {
        .name = mr_slice_str(name), .kind = MR_TIMER_EVERY, .expression = MR_SLICE_LIT("1h")};
    struct mr_timer_op op = {.verb = MR_TIMER_PUT, .timer = &timer};
    assert_int_equal(mr_timer_send_async(lossy->client, &op, 1, NULL, answered, lossy), MR_OK);
    BENCH_UNTIL(is_there(lossy, i));
}

/* The first server has got operations, and answered them. */
static void use_first(struct lossy *lossy)
{
    enum { ENOUGH = 2000 }; /* bytes: more than it takes to connect */
    while (lossy->nets[0].passed < ENOUGH) {
        send_op(lossy);
        BENCH_UNTIL(atomic_load(&lossy->answered) == lossy->sent);
        assert_true(lossy->sent < 100);
    }
}

/* Sends until it has got one, and says so to nobody. */
static void send_until_lost(struct lossy *lossy)
{
    enum { SEND_MAX = 200, SOON_MS = 500 };
    while (lossy->sent < SEND_MAX) {
        send_op(lossy);
        for (int64_t until_ms = now_ms(lossy->rig) + SOON_MS;
             atomic_load(&lossy->answered) < lossy->sent && now_ms(lossy->rig) < until_ms;)
            bench_sleep_ms(2);
        if (atomic_load(&lossy->answered) < lossy->sent)
            return;
    }
    fail_msg("the first server gets nothing");
}

static void test_29_a_server_that_is_killed_before_it_answers_has_the_operation_once(void **state)
{
    struct lossy lossy = {.rig = NULL};
    struct bench_timer before, after;
    char name[32];
    (void)state;
    lossy_open(&lossy);
    use_first(&lossy);
    lossy.nets[0].mute = true;
    send_until_lost(&lossy);
    op_name(lossy.sent - 1, name);
    assert_true(bench_timer(lossy.rig->bench, name, &before)); /* the one that was not answered */
    int64_t since_ms = now_ms(lossy.rig);
    program_kill(&lossy.rig->servers[0]);
    lossy.nets[0].refuse = true;
    forwarder_cut(&lossy.nets[0]);
    BENCH_UNTIL(atomic_load(&lossy.answered) == lossy.sent);
    int64_t took_ms = now_ms(lossy.rig) - since_ms;
    assert_true(took_ms < ANSWER_MS + 1000 || !rig_judges_time());
    assert_int_equal(atomic_load(&lossy.ok), lossy.sent); /* by the next server */
    /* That one has applied it, too, before anything that comes behind it: it has changed nothing. */
    for (size_t i = 0; i < 2 * RIG_SERVERS; i++)
        send_op(&lossy);
    assert_true(bench_timer(lossy.rig->bench, name, &after));
    assert_memory_equal(&before.uid, &after.uid, sizeof before.uid);
    assert_int_equal(before.version, after.version);
    assert_int_equal(before.created_ms, after.created_ms);
    BENCH_UNTIL(atomic_load(&lossy.answered) == lossy.sent);
    assert_int_equal(atomic_load(&lossy.ok), lossy.sent);
    for (size_t i = 0; i < lossy.sent; i++) {
        op_name(i, name);
        bench_delete(lossy.rig->bench, name);
    }
    lossy_close(&lossy);
}

/* ---- 33, 34, 78 ------------------------------------------------------------------------------- */

static bool put(struct mr_client *client)
{
    struct mr_task_options task = {.queue = MR_SLICE_LIT("made")};
    struct mr_enqueue_result result = {.err = MR_OK};
    enum mr_err err = mr_enqueue(client, &task, 1, &result);
    return err == MR_OK && result.err == MR_OK;
}

static uint64_t made_at(struct rig *rig, size_t server)
{
    struct mr_queue_info info = {.name = ""};
    if (rig->servers[server].pid == 0)
        return 0;
    struct mr_client *client = rig_client(rig, server);
    enum mr_err err = mr_queue_get(client, MR_SLICE_LIT("made"), &info);
    assert_true(err == MR_OK || err == MR_NOT_FOUND);
    mr_client_close(client);
    return err == MR_OK ? info.counts[MR_PENDING] : 0;
}

/* Puts tasks, all accepted, until the server has got one. How long it took. */
static int64_t use_ms(struct rig *rig, struct mr_client *client, size_t server)
{
    uint64_t before = made_at(rig, server);
    int64_t since_ms = now_ms(rig);
    do {
        assert_true(put(client));
        assert_true(now_ms(rig) - since_ms < BENCH_WAIT_MS);
    } while (made_at(rig, server) == before);
    return now_ms(rig) - since_ms;
}

/* So many, and each at one server; evenly over those that live. */
static void put_evenly(struct rig *rig, struct mr_client *client, size_t each, size_t servers)
{
    uint64_t before[RIG_SERVERS];
    size_t used = 0;
    for (size_t i = 0; i < RIG_SERVERS; i++)
        before[i] = made_at(rig, i);
    for (size_t i = 0; i < each * servers; i++)
        assert_true(put(client));
    for (size_t i = 0; i < RIG_SERVERS; i++) {
        uint64_t got = made_at(rig, i) - before[i];
        assert_true(got == each || rig->servers[i].pid == 0);
        used += got == each;
    }
    assert_int_equal(used, servers);
}

static void test_78_producers_know_servers_that_come_and_go_and_outlive_nameservers(void **state)
{
    enum { EACH = 5 };
    (void)state;
    struct rig *rig = rig_make(1, RIG_STRAIGHT);
    rig_start(rig, 2, 0);
    struct mr_client *client = rig_names_client(rig);
    (void)use_ms(rig, client, 0);
    (void)use_ms(rig, client, 1);
    put_evenly(rig, client, EACH, 2);
    rig_serve(rig, 2);
    int64_t took_ms = use_ms(rig, client, 2);
    printf("78: a new server was used after %lld ms\n", (long long)took_ms);
    assert_true(took_ms < KNOWN_MS || !rig_judges_time());
    put_evenly(rig, client, EACH, 3);
    /* One dies: what was sent to it may fail, once; then it is passed over, long before the registry forgets it. */
    program_kill(&rig->servers[1]);
    size_t failed = 0;
    int64_t since_ms = now_ms(rig);
    for (size_t ok = 0; ok < EACH; failed += ok == 0)
        ok = put(client) ? ok + 1 : 0;
    assert_true(failed <= 1);
    assert_true(now_ms(rig) - since_ms < KNOWN_MS || !rig_judges_time());
    put_evenly(rig, client, EACH, 2);
    /* The only nameserver is away: the list stays, and who comes back at its address is used. */
    program_kill(&rig->nameservers[0]);
    put_evenly(rig, client, EACH, 2);
    rig_serve(rig, 1);
    took_ms = use_ms(rig, client, 1);
    assert_true(took_ms < KNOWN_MS || !rig_judges_time());
    rig_name(rig, 0);
    put_evenly(rig, client, EACH, 3);
    mr_client_close(client);
    rig_free(rig);
}

int names_producers(void)
{
    struct CMUnitTest tests[] = {
        cmocka_unit_test(test_29_a_server_that_is_killed_before_it_answers_has_the_operation_once),
        cmocka_unit_test(test_78_producers_know_servers_that_come_and_go_and_outlive_nameservers),
    };
    return NAMES_RUN("producers", tests);
}
