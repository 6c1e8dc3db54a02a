/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Part G, what the leader writes: 71 to 74, and what two namespaces have to do with each other there, 77. The
 * workers are in this process; those that die are processes of their own where that can be.
 */
#include <stdio.h>

#include "accept/view.h"

enum { LATE_MS = 1000, PARTS = 6, MANY = 64, NODES = 5, HALF = 21 };

static const char *const names[NODES] = {"w0", "w1", "w2", "w3", "w4"};

static void split(struct accept *t, uint32_t n, enum mr_assign assign)
{
    assert_err(mr_queue_set_partitions(t->client, mr_slice_str("p"), n), MR_OK);
    assert_err(mr_queue_set_assign(t->client, mr_slice_str("p"), assign), MR_OK);
}

static void test_71_after_the_last_one_the_next_owns_everything(void **state)
{
    struct accept *t = *state;
    split(t, PARTS, MR_ASSIGN_ROUND_ROBIN);
    pid_t pid = 0;
    struct mr_worker *first = NULL;
    if (t->engine->shared)
        pid = PROCESS(t, t->place[0].url, .node = "w0", .queues = "p");
    else
        first = WORKER(t, .node = "w0", .queues = "p");
    UNTIL(view_shared_by(t->client, "p", names, 1));
    struct view_shares before = view_shares(t->client, "p");
    if (pid != 0)
        accept_kill_process(t, pid);
    else
        accept_dismiss(t, first);
    UNTIL(!view_is_live(t->client, "w0"));
    struct view_shares between = view_shares(t->client, "p");
    view_check_shares(&between); /* it is whole also when nobody is left */
    assert_true(between.version >= before.version);
    WORKER(t, .node = "w1", .queues = "p");
    UNTIL(view_shared_by(t->client, "p", names + 1, 1));
    struct view_shares after = view_shares(t->client, "p");
    assert_true(view_owned(&after, "w1") == (1 << PARTS) - 1);
    assert_true(after.version > before.version);
}

/* ---- joins and leaves ----------------------------------------------------------------------- */

/* Looks all the time: what it sees is whole, nothing has two owners where there are no more of them than
 * partitions, and versions rise. */
struct reader {
    struct accept *t;
    struct mr_client *client;
    pthread_t thread;
    _Atomic bool stop, broken;
    _Atomic size_t versions, looks;
};

static void *read_shares(void *arg)
{
    struct reader *reader = arg;
    uint64_t last = 0;
    while (!reader->stop) {
        struct mr_node_list *list = NULL;
        if (mr_node_list_get(reader->client, &list) != MR_OK)
            continue;
        const struct mr_assignment *now = mr_node_list_assignment(list, 0);
        uint64_t owned = 0, twice = 0, version = now ? now->version : 0;
        for (size_t i = 0; now && i < now->owners_n; i++) {
            twice |= owned & now->owners[i].owned;
            owned |= now->owners[i].owned;
        }
        bool whole = version == 0 || owned == UINT64_MAX >> (64 - now->partitions);
        bool shared = version != 0 && now->owners_n <= now->partitions && twice != 0;
        if (!whole || shared || version < last)
            reader->broken = true;
        reader->versions += version > last;
        reader->looks++;
        last = version;
        mr_node_list_free(list);
    }
    return NULL;
}

static void reader_start(struct reader *reader, struct accept *t)
{
    *reader = (struct reader){
        .t = t, .client = t->engine->shared ? accept_open_at(&t->place[0], "") : t->client};
    assert_err(mr_thread_start(&reader->thread, "reader", read_shares, reader), MR_OK);
}

static void reader_stop(struct reader *reader)
{
    reader->stop = true;
    mr_thread_join(reader->thread);
    if (reader->client != reader->t->client)
        mr_client_close(reader->client);
    assert_false(reader->broken);
}

struct joiner {
    struct mr_worker *worker;
    struct mr_event *go;
    pthread_t thread;
    enum mr_err err;
};

static void *join(void *arg)
{
    struct joiner *joiner = arg;
    mr_event_wait(joiner->go, INT64_MAX);
    joiner->err = mr_worker_start(joiner->worker);
    return NULL;
}

static enum mr_outcome done(struct mr_run *run, void *arg)
{
    (void)run, (void)arg;
    return MR_DONE;
}

/* Two of them at the same instant, on handles that are as far apart as the broker allows. */
static void join_two(struct accept *t, struct mr_client *const clients[2], struct joiner joiners[2])
{
    struct mr_event go[2];
    struct mr_worker_queue queue = {.name = mr_slice_str("p")};
    (void)t;
    for (size_t i = 0; i < 2; i++) {
        struct mr_worker_options options = {.node = mr_slice_str(names[i]),
                                            .queues = &queue,
                                            .queues_n = 1,
                                            .slots = 1,
                                            .beat_ms = ACCEPT_BEAT_MS,
                                            .beats_missed = ACCEPT_BEATS_MISSED};
        mr_event_init(&go[i]);
        joiners[i] = (struct joiner){.go = &go[i]};
        assert_err(mr_worker_new(clients[i], &options, &joiners[i].worker), MR_OK);
        assert_err(mr_worker_handle(joiners[i].worker, "*", done, NULL), MR_OK);
        assert_err(mr_thread_start(&joiners[i].thread, "joiner", join, &joiners[i]), MR_OK);
    }
    for (size_t i = 0; i < 2; i++)
        mr_event_set(&go[i]);
    for (size_t i = 0; i < 2; i++)
        mr_thread_join(joiners[i].thread);
    for (size_t i = 0; i < 2; i++)
        assert_err(joiners[i].err, MR_OK);
}

static void test_73_and_76_while_the_number_of_partitions_changes_nobody_sees_a_hole(void **state)
{
    static const uint32_t numbers[] = {8, 2, 5, 64, 3};
    struct accept *t = *state;
    struct reader reader;
    split(t, PARTS, MR_ASSIGN_ROUND_ROBIN);
    for (size_t i = 0; i < 2; i++)
        WORKER(t, .node = names[i], .queues = "p");
    UNTIL(view_shared_by(t->client, "p", names, 2));
    reader_start(&reader, t);
    for (size_t i = 0; i < accept_size(10, 2) * 5; i++) {
        size_t looks = reader.looks;
        split(t, numbers[i % 5], MR_ASSIGN_ROUND_ROBIN);
        UNTIL(reader.looks > looks + 2);
    }
    reader_stop(&reader);
    assert_true(reader.versions > 0);
}

static void test_72_and_73_two_that_join_at_once_share_and_nobody_sees_a_hole(void **state)
{
    struct accept *t = *state;
    struct reader reader;
    struct mr_client *clients[2] = {t->client, t->engine->shared ? accept_open_at(&t->place[0], "")
                                                                 : t->client};
    split(t, PARTS, MR_ASSIGN_ROUND_ROBIN);
    reader_start(&reader, t);
    size_t rounds = accept_size(100, 6);
    for (size_t i = 0; i < rounds; i++) {
        struct joiner joiners[2];
        /* Those of the last round had the same names, and their table stands until the next one. */
        uint64_t before = view_shares(t->client, "p").version;
        join_two(t, clients, joiners);
        UNTIL(view_shares(t->client, "p").version > before);
        UNTIL(view_shared_by(t->client, "p", names, 2));
        struct view_shares shares = view_shares(t->client, "p");
        assert_int_equal(view_count(view_owned(&shares, names[0])), PARTS / 2);
        assert_true((view_owned(&shares, names[0]) & view_owned(&shares, names[1])) == 0);
        mr_worker_free(joiners[i % 2].worker);
        mr_worker_free(joiners[1 - i % 2].worker);
    }
    reader_stop(&reader);
    assert_true(reader.versions > 0);
    print_message("%zu versions in %zu looks\n", reader.versions, reader.looks);
    if (clients[1] != t->client)
        mr_client_close(clients[1]);
}

/* More workers than partitions, and as many: each owns one. */
static void test_72_more_workers_than_partitions_share(void **state)
{
    struct accept *t = *state;
    split(t, 2, MR_ASSIGN_ROUND_ROBIN);
    for (size_t i = 0; i < NODES; i++)
        WORKER(t, .node = names[i], .queues = "p");
    UNTIL(view_shared_by(t->client, "p", names, NODES));
    struct view_shares shares = view_shares(t->client, "p");
    size_t first = 0;
    for (size_t i = 0; i < NODES; i++) {
        assert_int_equal(view_count(view_owned(&shares, names[i])), 1);
        first += view_owned(&shares, names[i]) == 1;
    }
    assert_in_range(first, 2, 3);
}

/* ---- what moves ----------------------------------------------------------------------------- */

/* What each had and has no longer. */
static uint64_t moved(const struct view_shares *before, const struct view_shares *after)
{
    uint64_t bits = 0;
    for (size_t i = 0; i < NODES; i++)
        bits |= view_owned(before, names[i]) & ~view_owned(after, names[i]);
    return bits;
}

static void come_and_go(struct accept *t, struct view_shares seen[3])
{
    struct mr_worker *workers[NODES];
    for (size_t i = 0; i < NODES - 1; i++)
        workers[i] = WORKER(t, .node = names[i], .queues = "p", .slots = 1);
    UNTIL(view_shared_by(t->client, "p", names, NODES - 1));
    seen[0] = view_shares(t->client, "p");
    mr_mono came = accept_now();
    workers[NODES - 1] = WORKER(t, .node = names[NODES - 1], .queues = "p", .slots = 1);
    UNTIL(view_shared_by(t->client, "p", names, NODES));
    assert_in_range(accept_since_ms(came), 0, ACCEPT_BEAT_MS + LATE_MS);
    seen[1] = view_shares(t->client, "p");
    accept_dismiss(t, workers[0]);
    UNTIL(view_shared_by(t->client, "p", names + 1, NODES - 1));
    seen[2] = view_shares(t->client, "p");
}

static void test_74_round_robin_moves_only_what_must(void **state)
{
    struct accept *t = *state;
    struct view_shares seen[3];
    split(t, MANY, MR_ASSIGN_ROUND_ROBIN);
    come_and_go(t, seen);
    assert_in_range(view_count(view_owned(&seen[1], "w4")), 12, 13);
    assert_true(moved(&seen[0], &seen[1]) == view_owned(&seen[1], "w4"));
    assert_true(moved(&seen[1], &seen[2]) == view_owned(&seen[1], "w0"));
    for (size_t i = 1; i < NODES; i++)
        assert_int_equal(view_count(view_owned(&seen[2], names[i])), MANY / (NODES - 1));
}

static void test_74_a_hash_moves_few_and_is_the_same_again(void **state)
{
    struct accept *t = *state;
    struct view_shares seen[3], again[3];
    split(t, MANY, MR_ASSIGN_CONSISTENT_HASH);
    come_and_go(t, seen);
    assert_in_range(view_count(moved(&seen[0], &seen[1])), 1, HALF);
    assert_in_range(view_count(moved(&seen[1], &seen[2])), 1, HALF);
    for (size_t k = 0; k < 3; k++)
        for (size_t i = 0; i < NODES; i++)
            assert_in_range(view_count(view_owned(&seen[k], names[i])), 0, 20); /* 1.25 x 16 */
    while (t->workers_n > 0)
        accept_dismiss(t, t->workers[0]);
    accept_close(t);
    if (t->engine->kill) {
        t->engine->kill(&t->place[0]);
        t->engine->restart(&t->place[0]);
    }
    accept_open(t);
    for (size_t i = NODES - 1; i > 0; i--) /* in another order */
        WORKER(t, .node = names[i], .queues = "p", .slots = 1);
    /* Versions rise also over a restart; what was written before it may still be in force. */
    UNTIL(view_shares(t->client, "p").version > seen[2].version &&
          view_shared_by(t->client, "p", names + 1, NODES - 1));
    again[0] = view_shares(t->client, "p");
    for (size_t i = 0; i < NODES; i++)
        assert_true(view_owned(&again[0], names[i]) == view_owned(&seen[2], names[i]));
}

/* ---- namespaces ----------------------------------------------------------------------------- */

static void test_77_and_11_namespaces_have_leaders_and_shares_of_their_own(void **state)
{
    struct accept *t = *state;
    struct mr_client *client = t->engine->namespaces ? accept_open_at(&t->place[0], "other")
                                                     : accept_open_at(accept_place_more(t), "");
    struct accept other = {.engine = t->engine, .client = client};
    static const char *const there[] = {"there"};
    split(t, PARTS, MR_ASSIGN_ROUND_ROBIN);
    split(&other, PARTS, MR_ASSIGN_CONSISTENT_HASH);
    struct mr_worker *first = WORKER(&other, .node = "there", .queues = "p");
    UNTIL(view_shared_by(client, "p", there, 1));
    struct view_leader leader = view_leader(client);
    struct view_shares shares = view_shares(client, "p");
    assert_string_equal(leader.node, "there");
    assert_string_equal(view_leader(t->client).node, "");
    assert_int_equal(view_shares(t->client, "p").n, 0);
    for (size_t i = 0; i < accept_size(20, 3); i++) { /* comings and goings here */
        struct mr_worker *a = WORKER(t, .node = "w0", .queues = "p");
        struct mr_worker *b = WORKER(t, .node = "w1", .queues = "p");
        UNTIL(view_shared_by(t->client, "p", names, 2));
        accept_dismiss(t, a);
        accept_dismiss(t, b);
    }
    assert_err(mr_queue_remove(t->client, mr_slice_str("p"), MR_QUEUE_REMOVE_FORCE), MR_OK);
    assert_true(view_leader(client).term == leader.term);
    assert_true(view_shares(client, "p").version == shares.version);
    assert_true(view_owned(&shares, "there") == (1 << PARTS) - 1);
    accept_dismiss(&other, first);
    mr_client_close(client);
}

int accept_share(const struct accept_engine *engine)
{
    struct CMUnitTest tests[] = {
        ACCEPT_TEST(test_71_after_the_last_one_the_next_owns_everything),
        ACCEPT_TEST(test_73_and_76_while_the_number_of_partitions_changes_nobody_sees_a_hole),
        ACCEPT_TEST(test_72_and_73_two_that_join_at_once_share_and_nobody_sees_a_hole),
        ACCEPT_TEST(test_72_more_workers_than_partitions_share),
        ACCEPT_TEST(test_74_round_robin_moves_only_what_must),
        ACCEPT_TEST(test_77_and_11_namespaces_have_leaders_and_shares_of_their_own),
        ACCEPT_TEST(test_74_a_hash_moves_few_and_is_the_same_again),
    };
    return ACCEPT_RUN(engine, "G: what the leader writes", tests);
}
