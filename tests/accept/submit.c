/* SPDX-License-Identifier: Apache-2.0 */
/* Part A: submit, payload, inspection. Test 10 is in model.c. */
#include <stdio.h>

#include "accept/accept.h"
#include "accept/hand.h"

static void test_01_a_submitted_task_is_seen_and_its_bytes_arrive(void **state)
{
    struct accept *t = *state;
    int64_t before_ms = accept_wall_ms();
    const char *id = PUT(t, .queue = "mail", .payload = "hello", .priority_s = 5);
    assert_int_equal(accept_count(t, "mail", MR_PENDING), 1);
    struct mr_task_list *list = NULL;
    struct mr_list_options options = {.queue = mr_slice_str("mail"), .with_payload = true};
    assert_err(mr_task_list_get(t->client, &options, &list), MR_OK);
    assert_int_equal(mr_task_list_count(list), 1);
    const struct mr_task *task = mr_task_list_at(list, 0);
    assert_int_equal(task->id.len, strlen(id));
    assert_memory_equal(task->id.data, id, task->id.len);
    assert_int_equal(task->queue.len, 4);
    assert_memory_equal(task->queue.data, "mail", 4);
    assert_int_equal(task->payload.len, 5);
    assert_memory_equal(task->payload.data, "hello", 5);
    assert_in_range(task->order_time_ms, before_ms - 5000 - 1, accept_wall_ms() - 5000 + 1);
    mr_task_list_free(list);
    WORKER(t, .queues = "mail");
    accept_await_echo(t, id);
    assert_int_equal(accept_ran(t, id), 1);
}

static uint64_t in_hand(struct accept *t)
{
    struct mr_node_list *nodes = NULL;
    uint64_t n = 0;
    assert_err(mr_node_list_get(t->client, &nodes), MR_OK);
    for (size_t i = 0; i < mr_node_list_count(nodes); i++)
        n += mr_node_list_at(nodes, i)->in_hand;
    mr_node_list_free(nodes);
    return n;
}

static void test_02_any_bytes_go_there_and_back(void **state)
{
    struct accept *t = *state;
    char *big = malloc(MR_PAYLOAD_MAX);
    assert_non_null(big);
    for (size_t i = 0; i < MR_PAYLOAD_MAX; i++)
        big[i] = (char)(i * 31 + (i >> 8));
    const struct mr_slice payloads[] = {
        mr_slice_str("a^pillar^b"),
        mr_slice_str("^codewave^"),
        {"\0a\0\0", 4},
        {"\xff\xfe\xc0\x80", 4},
        {"", 0},
        {big, MR_PAYLOAD_MAX},
    };
    t->hold = true;
    WORKER(t, .slots = 1);
    for (size_t i = 0; i < sizeof payloads / sizeof *payloads; i++) {
        struct mr_task_options options = {.type = mr_slice_str("hold"), .payload = payloads[i]};
        t->hold = true;
        struct mr_enqueue_result result = accept_try(t, options);
        assert_err(result.err, MR_OK);
        (void)accept_remember(t, result.id);
        UNTIL(accept_ran(t, result.id) == 1);
        assert_int_equal(accept_count(t, "default", MR_ACTIVE), 1);
        UNTIL(in_hand(t) == 1);
        t->hold = false;
        struct mr_task_list *list = NULL;
        assert_err(mr_task_wait(t->client, mr_slice_str(result.id), ACCEPT_WAIT_MS, &list), MR_OK);
        const struct mr_task *task = mr_task_list_at(list, 0);
        assert_int_equal(task->result.len, payloads[i].len);
        assert_memory_equal(task->result.data, payloads[i].data, payloads[i].len);
        mr_task_list_free(list);
        UNTIL(in_hand(t) == 0);
        assert_int_equal(accept_count(t, "default", MR_ACTIVE), 0);
    }
    free(big);
}

static void test_03_one_byte_too_many_is_refused(void **state)
{
    struct accept *t = *state;
    struct mr_stats stats;
    char *big = calloc(1, MR_PAYLOAD_MAX + 1);
    assert_non_null(big);
    struct mr_task_options options = {.payload = {big, MR_PAYLOAD_MAX + 1}};
    assert_err(accept_try(t, options).err, MR_TOO_BIG);
    free(big);
    assert_err(mr_stats_get(t->client, &stats), MR_OK);
    assert_int_equal(stats.tasks, 0);
}

static void test_04_the_same_payload_twice_is_two_tasks(void **state)
{
    struct accept *t = *state;
    const char *a = PUT(t, .payload = "same");
    const char *b = PUT(t, .payload = "same");
    assert_string_not_equal(a, b);
    WORKER(t);
    accept_await_echo(t, a);
    accept_await_echo(t, b);
    accept_each_ran_once(t);
}

static struct mr_enqueue_result put_unique(struct accept *t, const char *key,
                                           enum mr_on_duplicate on_duplicate, double priority_s)
{
    return accept_try(t, (struct mr_task_options){.type = mr_slice_str("echo"),
                                                  .unique_ms = 60000,
                                                  .unique_key = mr_slice_str(key),
                                                  .on_duplicate = on_duplicate,
                                                  .priority_s = priority_s});
}

static void test_05_a_unique_key_rejects_ignores_or_replaces(void **state)
{
    struct accept *t = *state;
    char ids[3][MR_ID_MAX + 1];
    static const enum mr_on_duplicate policies[] = {MR_DUPLICATE_REJECT, MR_DUPLICATE_IGNORE,
                                                    MR_DUPLICATE_REPLACE};
    static const char *const keys[] = {"rejects", "ignores", "replaces"};
    static const enum mr_err second[] = {MR_DUPLICATE, MR_OK, MR_OK};
    for (size_t i = 0; i < 3; i++) {
        struct mr_enqueue_result result = put_unique(t, keys[i], policies[i], 0);
        assert_err(result.err, MR_OK);
        memcpy(ids[i], accept_remember(t, result.id), sizeof ids[i]);
        result = put_unique(t, keys[i], policies[i], 1000);
        assert_err(result.err, second[i]);
        assert_string_equal(result.id, ids[i]);
    }
    /* The new order is in force: what was third goes first. */
    struct hand *hand = hand_open(t, "hand", NULL, 0);
    hand_expect(hand, ids[2]);
    hand_expect(hand, ids[0]);
    hand_expect(hand, ids[1]);
    assert_null(hand_take(hand, 0, NULL));
    hand_close(hand);
}

static void test_06_a_new_priority_moves_a_waiting_task(void **state)
{
    struct accept *t = *state;
    PUT(t, .id = "a");
    PUT(t, .id = "b");
    PUT(t, .id = "c");
    assert_err(accept_act(t, MR_VERB_PRIORITISE, "c", 100), MR_OK);
    assert_err(accept_act(t, MR_VERB_PRIORITISE, "a", -100), MR_OK);
    assert_int_equal(accept_count(t, "default", MR_PENDING), 3);
    struct hand *hand = hand_open(t, "hand", NULL, 0);
    hand_expect(hand, "c");
    hand_expect(hand, "b");
    hand_expect(hand, "a");
    hand_close(hand);
}

static void test_07_a_deleted_task_never_runs(void **state)
{
    struct accept *t = *state;
    PUT(t, .id = "x", .queue = "some");
    PUT(t, .id = "y", .queue = "other", .priority_s = 10);
    assert_err(accept_act(t, MR_VERB_DELETE, "x", 0), MR_OK);
    assert_err(accept_act(t, MR_VERB_DELETE, "y", 0), MR_OK);
    assert_int_equal(accept_total(t, MR_PENDING), 0);
    assert_err(accept_act(t, MR_VERB_DELETE, "x", 0), MR_NOT_FOUND);
    BURST(t, .queues = "some other");
    assert_int_equal(accept_ran_all(t), 0);
}

static void test_08_a_running_task_is_not_deleted(void **state)
{
    struct accept *t = *state;
    PUT(t, .id = "x", .type = "deaf", .payload = "p");
    t->hold = true;
    WORKER(t, .slots = 1, .grace_ms = ACCEPT_WAIT_MS);
    UNTIL(accept_ran(t, "x") == 1);
    assert_err(accept_act(t, MR_VERB_DELETE, "x", 0), MR_RUNNING);
    assert_int_equal(accept_state(t, "x"), MR_ACTIVE);
    t->hold = false;
    accept_await_echo(t, "x");
    struct mr_task_list *list = accept_get(t, "x");
    assert_non_null(list);
    assert_true(mr_task_list_at(list, 0)->cancel_requested);
    mr_task_list_free(list);
}

/* ---- 9 -------------------------------------------------------------------------------------- */

enum { DELETERS = 50, TAKERS = 4 };

struct racer {
    struct accept *t;
    pthread_t thread;
    size_t first, n;
    bool *deleted;           /* of all tasks */
    _Atomic uint32_t *taken; /* how often */
    struct hand *hand;
    struct mr_lease *leases;
    const char *problem;
};

static void *delete_some(void *arg)
{
    struct racer *racer = arg;
    for (size_t i = racer->first; i < racer->n; i += DELETERS) {
        char id[32];
        enum mr_err err = MR_FAILED;
        (void)snprintf(id, sizeof id, "t%zu", i);
        struct mr_control item = {.verb = MR_VERB_DELETE, .id = mr_slice_str(id)};
        if (mr_control(racer->t->client, &item, 1, &err) != MR_OK ||
            (err != MR_OK && err != MR_RUNNING))
            racer->problem = "a delete was answered wrongly";
        if (err == MR_OK) {
            racer->deleted[i] = true;
            racer->t->deleted++;
        }
    }
    return NULL;
}

static void *take_some(void *arg)
{
    struct racer *racer = arg;
    struct mr_lease *lease;
    enum mr_err err;
    while ((lease = hand_take(racer->hand, 0, &err)) != NULL) {
        char id[32];
        (void)snprintf(id, sizeof id, "%.*s", (int)lease->task.id.len,
                       (const char *)lease->task.id.data);
        racer->taken[strtoul(id + 1, NULL, 10)]++;
        lease->next = racer->leases;
        racer->leases = lease;
    }
    if (err != MR_EMPTY)
        racer->problem = mr_err_name(err);
    return NULL;
}

static void start_racer(struct racer *racer, void *(*run)(void *))
{
    assert_err(mr_thread_start(&racer->thread, "racer", run, racer), MR_OK);
}

/* What is taken is not finished before all deletes were answered: a task that is done can be deleted too. */
static void test_09_a_task_is_deleted_or_run_never_both(void **state)
{
    struct accept *t = *state;
    size_t n = accept_size(10000, 1000), taken_n = 0;
    bool *deleted = calloc(n, sizeof *deleted);
    _Atomic uint32_t *taken = calloc(n, sizeof *taken);
    struct racer racers[DELETERS + TAKERS];
    assert_true(deleted && taken);
    accept_put_many(t, "t", n, &(struct accept_task){0});
    for (size_t i = 0; i < DELETERS + TAKERS; i++)
        racers[i] = (struct racer){.t = t, .first = i, .n = n, .deleted = deleted, .taken = taken};
    for (size_t i = 0; i < TAKERS; i++)
        racers[DELETERS + i].hand = hand_open(t, (const char[]){(char)('a' + i), '\0'}, NULL, 0);
    for (size_t i = DELETERS + TAKERS; i-- > 0;)
        start_racer(&racers[i], i < DELETERS ? delete_some : take_some);
    for (size_t i = 0; i < DELETERS + TAKERS; i++)
        mr_thread_join(racers[i].thread);
    for (size_t i = 0; i < DELETERS + TAKERS; i++) {
        if (racers[i].problem)
            fail_msg("%s", racers[i].problem);
        while (racers[i].leases) {
            struct mr_lease *next = racers[i].leases->next;
            hand_done(racers[i].hand, racers[i].leases);
            racers[i].leases = next;
        }
        hand_close(racers[i].hand);
    }
    for (size_t i = 0; i < n; i++) {
        if (taken[i] + deleted[i] != 1)
            fail_msg("t%zu was taken %u times and %sdeleted", i, taken[i],
                     deleted[i] ? "" : "not ");
        taken_n += taken[i];
    }
    assert_int_equal(accept_total(t, MR_COMPLETED), taken_n);
    free(taken);
    free(deleted);
}

/* ---- 11, 12 --------------------------------------------------------------------------------- */

enum { FLOOD = 50000, FLOOD_ROUNDS = 3, FLOOD_TRIES = 5, RATE_TASKS = 2000 };

/* A test of its own beside this one, at another client. */
static struct accept beside(struct accept *t, struct mr_client *client)
{
    struct accept other = {.engine = t->engine, .client = client, .audit_fd = t->audit_fd};
    mr_lock_init(&other.lock);
    return other;
}

static void beside_done(struct accept *other)
{
    accept_conserve(other);
    accept_close(other);
    mr_lock_done(&other->lock);
    free(other->ids);
}

/* Tasks a second through a worker of four slots. */
static double rate(struct accept *t, const char *prefix)
{
    accept_put_many(t, prefix, RATE_TASKS, &(struct accept_task){.queue = "rate"});
    mr_mono begin = accept_now();
    BURST(t, .queues = "rate");
    return RATE_TASKS * 1e9 / (double)(accept_now().ns - begin.ns);
}

/* The best of some tries, until it is good enough. */
static double best_rate(struct accept *t, const char *what, double enough)
{
    static unsigned number;
    double best = 0;
    for (int i = 0; i < FLOOD_TRIES && best < enough; i++) {
        char prefix[32];
        (void)snprintf(prefix, sizeof prefix, "%s%u-", what, number++);
        double now = rate(t, prefix);
        best = now > best ? now : best;
    }
    return best;
}

/* The noise of a machine is no news: what counts is the best of a few tries, and whether it is always so. */
static void compare_rates(struct accept *t, struct accept *other)
{
    double quiet = 0, flooded = 0;
    for (int i = 0; i < FLOOD_ROUNDS; i++) {
        quiet = best_rate(other, "quiet", 1e12);
        char prefix[32];
        (void)snprintf(prefix, sizeof prefix, "backlog%d-", i);
        accept_put_many(t, prefix, FLOOD, &(struct accept_task){.queue = "flood"});
        flooded = best_rate(other, "flooded", 0.8 * quiet);
        if (flooded >= 0.8 * quiet)
            return;
        assert_err(mr_queue_remove(t->client, mr_slice_str("flood"), MR_QUEUE_REMOVE_FORCE), MR_OK);
        t->deleted += FLOOD;
    }
    fail_msg("%.0f tasks/s beside a flooded namespace, %.0f before", flooded, quiet);
}

/* Flooded, worked on by a process that is killed, purged. */
static void trouble(struct accept *t, size_t n)
{
    accept_put_many(t, "f", n, &(struct accept_task){.queue = "flood"});
    PUT(t, .id = "long", .queue = "crash", .type = "sleep", .payload = "100");
    if (t->engine->shared) {
        pid_t pid = accept_spawn_worker(t, t->place[0].url, "crash", 1);
        UNTIL(accept_ran(t, "long") == 1);
        accept_kill_process(t, pid);
        /* At a Redis, who listens to a queue looks after it. */
        struct hand *watch = hand_open(t, "watch", "crash", 0);
        UNTIL(accept_state(t, "long") == MR_PENDING);
        hand_close(watch);
    }
    BURST(t, .queues = "crash");
    assert_err(mr_queue_remove(t->client, mr_slice_str("flood"), MR_QUEUE_REMOVE_FORCE), MR_OK);
    t->deleted += n;
}

static void test_11_two_namespaces_do_not_touch_each_other(void **state)
{
    struct accept *t = *state;
    struct mr_client *client = t->engine->namespaces ? accept_open_at(&t->place[0], "other")
                                                     : accept_open_at(accept_place_more(t), "");
    struct accept other = beside(t, client);
    accept_put_many(&other, "o", 20, &(struct accept_task){.queue = "flood"});
    struct hand *hand = hand_open(&other, "hand", "flood", 0);
    struct mr_lease *lease = hand_take(hand, 0, NULL);
    assert_non_null(lease);
    struct mr_queue_info before = accept_queue(&other, "flood");
    trouble(t, accept_size(20000, 2000));
    struct mr_queue_info after = accept_queue(&other, "flood");
    assert_memory_equal(before.counts, after.counts, sizeof before.counts);
    assert_int_equal(after.processed_total, 0);
    assert_int_equal(after.counts[MR_PENDING], 19);
    struct mr_node_list *nodes = NULL;
    assert_err(mr_node_list_get(client, &nodes), MR_OK);
    assert_int_equal(mr_node_list_count(nodes), 1);
    assert_int_equal(mr_node_list_at(nodes, 0)->in_hand, 1);
    mr_node_list_free(nodes);
    hand_done(hand, lease);
    hand_close(hand);
    if (accept_size(1, 0))
        compare_rates(t, &other);
    beside_done(&other);
}

static void test_12_two_handles_talk_each_to_its_own_server(void **state)
{
    struct accept *t = *state;
    struct accept_place *place = accept_place_more(t);
    struct accept other = beside(t, accept_open_at(place, ""));
    PUT(t, .id = "here");
    PUT(&other, .id = "there");
    assert_int_equal(accept_state(t, "here"), MR_PENDING);
    assert_int_equal(accept_state(t, "there"), MR_STATE_NONE);
    assert_int_equal(accept_state(&other, "here"), MR_STATE_NONE);
    BURST(&other, .slots = 1);
    assert_int_equal(accept_state(&other, "there"), MR_COMPLETED);
    assert_int_equal(accept_state(t, "here"), MR_PENDING);
    beside_done(&other);
    if (t->engine->kill)
        t->engine->kill(place);
    BURST(t, .slots = 1);
    assert_int_equal(accept_state(t, "here"), MR_COMPLETED);
    assert_int_equal(accept_ran_all(t), 2);
}

int accept_submit(const struct accept_engine *engine)
{
    struct CMUnitTest tests[] = {
        ACCEPT_TEST(test_01_a_submitted_task_is_seen_and_its_bytes_arrive),
        ACCEPT_TEST(test_02_any_bytes_go_there_and_back),
        ACCEPT_TEST(test_03_one_byte_too_many_is_refused),
        ACCEPT_TEST(test_04_the_same_payload_twice_is_two_tasks),
        ACCEPT_TEST(test_05_a_unique_key_rejects_ignores_or_replaces),
        ACCEPT_TEST(test_06_a_new_priority_moves_a_waiting_task),
        ACCEPT_TEST(test_07_a_deleted_task_never_runs),
        ACCEPT_TEST(test_08_a_running_task_is_not_deleted),
        ACCEPT_TEST(test_09_a_task_is_deleted_or_run_never_both),
        ACCEPT_TEST(test_11_two_namespaces_do_not_touch_each_other),
        ACCEPT_TEST(test_12_two_handles_talk_each_to_its_own_server),
    };
    return ACCEPT_RUN(engine, "A: submit, payload, inspection", tests);
}
