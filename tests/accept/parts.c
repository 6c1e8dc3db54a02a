/* SPDX-License-Identifier: Apache-2.0 */
/* Part G, partitions of a queue ("queues" of a topic in the words of the tests) and who serves which: 60 to 70, 75,
 * 76, 78. What the leader writes: share.c. */
#include <stdio.h>
#include <sys/wait.h>

#include "accept/hand.h"
#include "accept/view.h"

/* A worker that a busy machine does not let run for its death time is dead, and its tasks run again: so the
 * time is twice that of other parts. */
enum {
    BEAT_MS = 2 * ACCEPT_BEAT_MS,
    DEATH_MS = BEAT_MS * ACCEPT_BEATS_MISSED,
    SOON_MS = 1000,
};

#define Q "shared"

static void split(struct accept *t, uint32_t n)
{
    assert_err(mr_queue_set_partitions(t->client, mr_slice_str(Q), n), MR_OK);
}

/* ---- tasks ---------------------------------------------------------------------------------- */

static const char *put_into(struct accept *t, uint32_t partition, const char *id, const char *ms)
{
    struct mr_enqueue_result result =
        accept_try(t, (struct mr_task_options){.queue = mr_slice_str(Q),
                                               .type = mr_slice_str("sleep"),
                                               .payload = mr_slice_str(ms),
                                               .id = mr_slice_str(id ? id : ""),
                                               .partition = partition});
    assert_err(result.err, MR_OK);
    return accept_remember(t, result.id);
}

/* n into each partition, with ids of the partition's number and another: "3-17". */
static void put_into_each(struct accept *t, uint32_t partitions, unsigned first, unsigned n)
{
    for (unsigned i = first; i < first + n; i++)
        for (uint32_t p = 1; p <= partitions; p++) {
            char id[32];
            (void)snprintf(id, sizeof id, "%u-%u", p, i);
            (void)put_into(t, p, id, "1");
        }
}

/* How many tasks each partition has. */
static void count_parts(struct accept *t, size_t counts[MR_PARTITIONS_MAX + 1])
{
    char cursor[512] = "";
    memset(counts, 0, (MR_PARTITIONS_MAX + 1) * sizeof *counts);
    do {
        struct mr_list_options options = {
            .queue = mr_slice_str(Q), .limit = MR_BATCH_MAX, .cursor = cursor};
        struct mr_task_list *page = NULL;
        assert_err(mr_task_list_get(t->client, &options, &page), MR_OK);
        for (size_t i = 0; i < mr_task_list_count(page); i++)
            counts[mr_task_list_at(page, i)->partition]++;
        (void)snprintf(cursor, sizeof cursor, "%s", mr_task_list_next(page));
        mr_task_list_free(page);
    } while (cursor[0]);
}

static void all_ran_once(struct accept *t)
{
    UNTIL(accept_all_completed(t));
    accept_each_ran_once(t);
}

/* ---- workers -------------------------------------------------------------------------------- */

/* One that serves the queue: a process of its own, or where a store has only one, a part of this one. */
struct member {
    char name[32];
    struct mr_worker *worker;
    pid_t pid;
};

static struct member join_as(struct accept *t, const char *name, uint32_t slots)
{
    struct member member = {.worker = NULL};
    struct accept_worker options = {
        .node = member.name, .queues = Q, .slots = slots, .beat_ms = BEAT_MS};
    (void)snprintf(member.name, sizeof member.name, "%s", name);
    if (t->engine->shared)
        member.pid = accept_spawn_employed(t, t->place[0].url, &options);
    else
        member.worker = accept_employ(t, &options);
    return member;
}

/* What it has done is known once it is gone. */
static uint64_t leave(struct accept *t, struct member *member)
{
    struct mr_worker_figures figures;
    if (member->worker) {
        mr_worker_stop(member->worker);
        mr_worker_figures(member->worker, &figures);
        accept_dismiss(t, member->worker);
    } else {
        accept_end_process(t, member->pid);
        figures = accept_figures(t, member->pid);
    }
    *member = (struct member){.worker = NULL};
    return figures.done;
}

/* ---- whose the partitions are --------------------------------------------------------------- */

static unsigned owners_of(const struct view_shares *shares, uint32_t partition)
{
    unsigned n = 0;
    for (size_t i = 0; i < shares->n; i++)
        n += shares->owners[i].owned >> (partition - 1) & 1;
    return n;
}

static bool are_shared(struct accept *t, const struct member *members, size_t n)
{
    const char *names[VIEW_OWNERS_MAX];
    assert_true(n <= VIEW_OWNERS_MAX);
    for (size_t i = 0; i < n; i++)
        names[i] = members[i].name;
    return view_shared_by(t->client, Q, names, n);
}

/* Waits until these, and nobody else, own the partitions, all of them. */
static struct view_shares settle(struct accept *t, const struct member *members, size_t n)
{
    UNTIL(are_shared(t, members, n));
    return view_shares(t->client, Q);
}

static void join_all(struct accept *t, struct member *members, size_t n, uint32_t slots)
{
    for (size_t i = 0; i < n; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "w%zu", i);
        members[i] = join_as(t, name, slots);
    }
}

/* ---- 60, 61 --------------------------------------------------------------------------------- */

enum { MASTERS = 4, THREADS = 8 };

struct producer {
    pthread_t thread;
    struct accept *t;
    struct mr_client *client;
    size_t n;
    enum mr_err err;
};

static void *produce(void *arg)
{
    struct producer *producer = arg;
    for (size_t i = 0; i < producer->n && producer->err == MR_OK; i++) {
        struct mr_task_options task = {.queue = mr_slice_str(Q),
                                       .type = mr_slice_str("echo"),
                                       .retention_ms = ACCEPT_RETENTION_MS};
        struct mr_enqueue_result result = {.err = MR_FAILED};
        producer->err = mr_enqueue(producer->client, &task, 1, &result);
        if (producer->err == MR_OK)
            producer->err = result.err;
        if (producer->err == MR_OK)
            (void)accept_remember(producer->t, result.id);
    }
    return NULL;
}

static void test_60_round_robin_from_one_master_is_even(void **state)
{
    enum { N = 4 };
    struct accept *t = *state;
    size_t counts[MR_PARTITIONS_MAX + 1];
    split(t, N);
    for (int i = 0; i < 10 * N; i++)
        (void)put_into(t, 0, NULL, "0");
    count_parts(t, counts);
    for (size_t i = 1; i <= N; i++)
        assert_int_equal(counts[i], 10);
    BURST(t, .queues = Q);
}

static void test_60_round_robin_from_many_is_even_but_for_the_threads(void **state)
{
    enum { N = 4 };
    struct accept *t = *state;
    size_t counts[MR_PARTITIONS_MAX + 1], least = SIZE_MAX, most = 0;
    size_t n = 1000 * N;
    struct producer producers[MASTERS * THREADS];
    struct mr_client *masters[MASTERS] = {t->client}; /* a store has one */
    split(t, N);
    for (size_t i = 1; i < MASTERS; i++)
        masters[i] = t->engine->shared ? accept_open_at(&t->place[0], "") : t->client;
    for (size_t i = 0; i < MASTERS * THREADS; i++) {
        producers[i] =
            (struct producer){.t = t, .client = masters[i % MASTERS], .n = n / (MASTERS * THREADS)};
        assert_err(mr_thread_start(&producers[i].thread, "producer", produce, &producers[i]),
                   MR_OK);
    }
    for (size_t i = 0; i < MASTERS * THREADS; i++) {
        mr_thread_join(producers[i].thread);
        assert_err(producers[i].err, MR_OK);
    }
    for (size_t i = 1; i < MASTERS; i++)
        if (t->engine->shared)
            mr_client_close(masters[i]);
    count_parts(t, counts);
    for (size_t i = 1; i <= N; i++) {
        least = counts[i] < least ? counts[i] : least;
        most = counts[i] > most ? counts[i] : most;
    }
    assert_true(most - least <= MASTERS * THREADS);
    BURST(t, .queues = Q);
}

static int exit_code(struct accept *t, const char *partition)
{
    const char *const args[] = {"--broker",    t->place[0].url, "enqueue", "-q", Q,
                                "--partition", partition,       "x",       NULL};
    pid_t pid = accept_spawn_millrace(t, args);
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    for (size_t i = 0; i < ACCEPT_PROCESSES_MAX; i++)
        if (t->processes[i] == pid)
            t->processes[i] = 0;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void test_61_a_named_partition_is_obeyed_and_one_that_is_not_there_refused(void **state)
{
    enum { N = 3 };
    struct accept *t = *state;
    split(t, N);
    for (uint32_t p = 1; p <= N; p++) {
        char id[16];
        (void)snprintf(id, sizeof id, "in-%u", p);
        struct mr_task_list *list = accept_get(t, put_into(t, p, id, "0"));
        assert_int_equal(mr_task_list_at(list, 0)->partition, p);
        mr_task_list_free(list);
    }
    struct mr_task_options options = {.queue = mr_slice_str(Q), .partition = N + 1};
    assert_err(accept_try(t, options).err, MR_INVALID);
    options.partition = MR_PARTITIONS_MAX + 1;
    assert_err(accept_try(t, options).err, MR_INVALID);
    BURST(t, .queues = Q);
    accept_close(t); /* the program sees the same */
    assert_int_equal(exit_code(t, "0"), 2);
    assert_int_equal(exit_code(t, "4"), 2);
    accept_open(t);
    assert_int_equal(accept_count(t, Q, MR_PENDING), 0);
}

/* ---- 62 to 67 ------------------------------------------------------------------------------- */

static void test_62_one_worker_does_all_of_one_queue(void **state)
{
    struct accept *t = *state;
    struct member one = join_as(t, "w", 2);
    accept_put_many(t, "t", 1000, &(struct accept_task){.queue = Q});
    all_ran_once(t);
    assert_int_equal(leave(t, &one), t->ids_n);
}

static size_t live_nodes(struct accept *t)
{
    struct mr_node_list *list = NULL;
    size_t n = 0;
    assert_err(mr_node_list_get(t->client, &list), MR_OK);
    for (size_t i = 0; i < mr_node_list_count(list); i++)
        n += mr_node_list_at(list, i)->state != MR_NODE_DEAD;
    mr_node_list_free(list);
    return n;
}

static void test_63_two_workers_share_one_queue(void **state)
{
    struct accept *t = *state;
    size_t n = accept_size(1000, 200);
    struct member members[2];
    join_all(t, members, 2, 1);
    UNTIL(live_nodes(t) == 2);
    accept_put_many(t, "t", n, &(struct accept_task){.queue = Q, .type = "sleep", .payload = "3"});
    all_ran_once(t);
    uint64_t first = leave(t, &members[0]), second = leave(t, &members[1]);
    assert_int_equal(first + second, n);
    assert_true(first >= n * 3 / 10 && second >= n * 3 / 10);
}

static void test_64_as_many_workers_as_partitions_own_one_each(void **state)
{
    enum { N = 3 };
    struct accept *t = *state;
    struct member members[N];
    split(t, N);
    join_all(t, members, N, 2);
    struct view_shares shares = settle(t, members, N);
    for (size_t i = 0; i < N; i++)
        assert_int_equal(view_count(view_owned(&shares, members[i].name)), 1);
    put_into_each(t, N, 0, (unsigned)accept_size(100, 20));
    all_ran_once(t);
}

static void test_65_of_more_workers_than_partitions_nobody_idles(void **state)
{
    enum { N = 2, WORKERS = 5 };
    struct accept *t = *state;
    struct member members[WORKERS];
    split(t, N);
    join_all(t, members, WORKERS, 1);
    struct view_shares shares = settle(t, members, WORKERS);
    for (size_t i = 0; i < WORKERS; i++)
        assert_int_equal(view_count(view_owned(&shares, members[i].name)), 1);
    for (uint32_t p = 1; p <= N; p++)
        assert_in_range(owners_of(&shares, p), 1, (WORKERS + N - 1) / N);
    /* All of it is in one partition, and all of them work. */
    mr_mono begun = accept_now();
    for (int i = 0; i < WORKERS; i++)
        (void)put_into(t, 1, NULL, "1000");
    UNTIL(accept_ran_all(t) == WORKERS);
    assert_true(accept_since_ms(begun) < 1000);
    put_into_each(t, N, 0, (unsigned)accept_size(100, 20));
    all_ran_once(t);
}

static void test_66_fewer_workers_than_partitions_own_several(void **state)
{
    enum { N = 5 };
    struct accept *t = *state;
    struct member members[2];
    split(t, N);
    join_all(t, members, 2, 2);
    struct view_shares shares = settle(t, members, 2);
    unsigned first = view_count(view_owned(&shares, members[0].name)),
             second = view_count(view_owned(&shares, members[1].name));
    assert_int_equal(first + second, N); /* none is of both */
    assert_true(first == 2 || first == 3);
    put_into_each(t, N, 0, (unsigned)accept_size(100, 20));
    all_ran_once(t);
}

static void test_67_two_workers_and_three_partitions_run_each_task_once(void **state)
{
    enum { N = 3 };
    struct accept *t = *state;
    struct member members[2];
    split(t, N);
    join_all(t, members, 2, 4);
    accept_put_many(t, "t", 5000, &(struct accept_task){.queue = Q});
    all_ran_once(t);
}

/* ---- 68 to 70 ------------------------------------------------------------------------------- */

/* Who was there before has lost no more than the newcomer has got, and got nothing. */
static void only_to_the_newcomer(const struct view_shares *before, const struct view_shares *after,
                                 const char *newcomer, uint32_t n, size_t members_n)
{
    uint64_t got = view_owned(after, newcomer);
    assert_true(view_count(got) <= (n + members_n - 1) / members_n);
    for (size_t i = 0; i < before->n; i++) {
        uint64_t had = before->owners[i].owned, has = view_owned(after, before->owners[i].node);
        assert_int_equal(has & ~had, 0);
        assert_int_equal((had & ~has) & ~got, 0);
    }
}

static void test_68_who_joins_gets_its_share_and_no_more(void **state)
{
    enum { N = 8, MOST = 4 };
    struct accept *t = *state;
    struct member members[MOST];
    split(t, N);
    members[0] = join_as(t, "w0", 2);
    struct view_shares before = settle(t, members, 1);
    for (size_t n = 2; n <= MOST; n++) {
        char name[32];
        (void)snprintf(name, sizeof name, "w%zu", n - 1);
        members[n - 1] = join_as(t, name, 2);
        UNTIL(live_nodes(t) == n);
        mr_mono came = accept_now();
        struct view_shares after = settle(t, members, n);
        assert_true(accept_since_ms(came) <= BEAT_MS + SOON_MS);
        assert_true(after.version > before.version);
        only_to_the_newcomer(&before, &after, name, N, n);
        before = after;
    }
}

static void test_68_joins_and_leaves_under_load_run_nothing_twice(void **state)
{
    enum { N = 5 };
    struct accept *t = *state;
    size_t changes = 20, put = 0;
    struct member members[4];
    split(t, N);
    join_all(t, members, 2, 2);
    bool more = false; /* the third is there */
    for (size_t i = 0; i < changes; i++) {
        put_into_each(t, N, (unsigned)put, 10);
        put += 10;
        if (more)
            (void)leave(t, &members[2]);
        else
            members[2] = join_as(t, "w2", 2);
        more = !more;
        (void)settle(t, members, more ? 3 : 2);
    }
    all_ran_once(t);
}

/* Where a store has one process, nobody in it can die alone: a node that falls silent does. */
static void test_69_the_partitions_of_a_dead_worker_are_served_and_get_owners(void **state)
{
    enum { N = 4 };
    struct accept *t = *state;
    struct member members[3];
    struct hand *silent = NULL;
    mr_mono put[200];
    unsigned n = 0;
    split(t, N);
    join_all(t, members, 2, 2);
    if (t->engine->shared) {
        members[2] = join_as(t, "w2", 2);
    } else {
        silent = hand_open(t, "w2", Q, DEATH_MS);
        (void)snprintf(members[2].name, sizeof members[2].name, "w2");
    }
    UNTIL((silent ? hand_beat(silent) : (void)0, are_shared(t, members, 3)));
    struct view_shares before = view_shares(t->client, Q);
    uint64_t of_dead = view_owned(&before, "w2");
    assert_true(of_dead != 0);
    if (silent)
        hand_abandon(silent);
    else
        accept_kill_process(t, members[2].pid);
    mr_mono died = accept_now();
    bool shared;
    do { /* tasks go on to come for it */
        char id[16];
        (void)snprintf(id, sizeof id, "%u", n);
        put[n++] = accept_now();
        (void)put_into(t, (uint32_t)__builtin_ctzll(of_dead) + 1, id, "0");
        accept_pass_ms(50);
        shared = are_shared(t, members, 2);
    } while (!shared && n < sizeof put / sizeof *put);
    assert_true(shared);
    assert_true(accept_since_ms(died) <= DEATH_MS + BEAT_MS + SOON_MS);
    all_ran_once(t);
    size_t runs_n;
    struct accept_run *runs = accept_runs(t, &runs_n);
    for (size_t i = 0; i < runs_n; i++)
        assert_true(runs[i].mono_ns - put[strtoul(runs[i].id, NULL, 10)].ns < 2000 * MR_NS_PER_MS);
    free(runs);
}

static bool a_master_beats(struct accept *t)
{
    struct mr_node_list *list = NULL;
    bool beats = false;
    assert_err(mr_node_list_get(t->client, &list), MR_OK);
    for (size_t i = 0; i < mr_node_list_count(list); i++) {
        const struct mr_node_info *node = mr_node_list_at(list, i);
        beats |= node->role == MR_NODE_MASTER && node->last_beat_ms > node->started_ms;
    }
    mr_node_list_free(list);
    return beats;
}

static void test_70_a_master_that_dies_changes_no_workers_partitions(void **state)
{
    enum { N = 4 };
    struct accept *t = *state;
    struct member members[2];
    struct mr_slice topic = mr_slice_str("outcomes");
    split(t, N);
    join_all(t, members, 2, 2);
    struct view_shares before = settle(t, members, 2);
    if (t->engine->shared) {
        char file[MR_PATH_MAX + 16];
        (void)snprintf(file, sizeof file, "%s.master", t->audit);
        pid_t pid = accept_spawn_master(t, t->place[0].url, "outcomes", 1, file);
        UNTIL(a_master_beats(t));
        accept_kill_process(t, pid);
    } else { /* it does not beat: its lease ends */
        struct mr_master_options options = {.node = mr_slice_str("master"),
                                            .topics = &topic,
                                            .topics_n = 1,
                                            .lease_ms = ACCEPT_DEATH_MS};
        struct mr_master *master = NULL;
        assert_err(mr_master_open(t->client, &options, &master), MR_OK);
        assert_int_equal(live_nodes(t), 3);
        mr_master_free(master);
    }
    UNTIL(live_nodes(t) == 2);
    accept_pass_ms(2 * BEAT_MS); /* the leader has looked at it */
    struct view_shares after = view_shares(t->client, Q);
    assert_int_equal(after.version, before.version);
    assert_memory_equal(&after, &before, sizeof after);
}

/* ---- 75 to 78 ------------------------------------------------------------------------------- */

static void test_75_by_a_hash_a_worker_may_own_none_and_none_owns_too_many(void **state)
{
    enum { N = 3 };
    struct accept *t = *state;
    struct member members[N];
    split(t, N);
    assert_err(mr_queue_set_assign(t->client, mr_slice_str(Q), MR_ASSIGN_CONSISTENT_HASH), MR_OK);
    join_all(t, members, N, 2);
    UNTIL(live_nodes(t) == N);
    UNTIL(view_shares(t->client, Q).version != 0);
    accept_pass_ms(2 * BEAT_MS); /* the leader has seen all of them */
    struct view_shares shares = view_shares(t->client, Q);
    for (uint32_t p = 1; p <= N; p++)
        assert_int_equal(owners_of(&shares, p), 1);
    for (size_t i = 0; i < shares.n; i++)
        assert_true(view_count(shares.owners[i].owned) <= (5 * N + 4 * N - 1) / (4 * N));
    put_into_each(t, N, 0, (unsigned)accept_size(100, 20));
    all_ran_once(t);
    for (size_t i = 0; i < N; i++)
        (void)leave(t, &members[i]); /* each ends well */
}

static void test_76_the_number_of_partitions_changes_at_run_time(void **state)
{
    struct accept *t = *state;
    struct member members[2];
    size_t counts[MR_PARTITIONS_MAX + 1];
    split(t, 3);
    join_all(t, members, 2, 2);
    (void)settle(t, members, 2);
    put_into_each(t, 3, 0, 10);
    split(t, 5);
    (void)settle(t, members, 2);
    put_into_each(t, 5, 10, 10);
    UNTIL(accept_all_completed(t));
    assert_err(mr_queue_pause(t->client, mr_slice_str(Q)), MR_OK);
    put_into_each(t, 5, 20, 10);
    split(t, 3);
    struct mr_task_options gone = {.queue = mr_slice_str(Q), .partition = 4};
    assert_err(accept_try(t, gone).err, MR_INVALID);
    count_parts(t, counts);
    assert_int_equal(accept_count(t, Q, MR_PENDING), 50);
    if (!t->engine->namespaces ||
        !t->engine->shared) /* on a Redis they are worked off where they are */
        assert_int_equal(counts[4] + counts[5], 0);
    put_into_each(t, 3, 30, 10);
    assert_err(mr_queue_resume(t->client, mr_slice_str(Q)), MR_OK);
    all_ran_once(t);
}

/* With one slot the order of the runs is that of the takes: if they last so long that nothing is held ahead, of which some
 * might be handed back. */
static void test_78_no_partition_waits_for_more_than_twice_as_many_takes(void **state)
{
    enum { N = 8, EACH = 12 };
    struct accept *t = *state;
    size_t last[N + 1] = {0}, runs_n;
    split(t, N);
    for (unsigned i = 0; i < N * EACH; i++) {
        char id[32];
        (void)snprintf(id, sizeof id, "%u-%u", i % N + 1, i / N);
        (void)put_into(t, i % N + 1, id, "10");
    }
    BURST(t, .queues = Q, .slots = 1);
    struct accept_run *runs = accept_runs(t, &runs_n);
    assert_int_equal(runs_n, N * EACH);
    unsigned left[N + 1];
    for (size_t p = 1; p <= N; p++)
        left[p] = EACH;
    for (size_t i = 0; i < runs_n; i++) {
        size_t p = strtoul(runs[i].id, NULL, 10);
        if (i + 1 - last[p] > 2 * N)
            fail_msg("partition %zu waited for %zu takes", p, i + 1 - last[p]);
        last[p] = i + 1;
        left[p]--;
    }
    for (size_t p = 1; p <= N; p++)
        assert_int_equal(left[p], 0);
    free(runs);
}

int accept_parts(const struct accept_engine *engine)
{
    struct CMUnitTest tests[] = {
        ACCEPT_TEST(test_60_round_robin_from_one_master_is_even),
        ACCEPT_TEST(test_61_a_named_partition_is_obeyed_and_one_that_is_not_there_refused),
        ACCEPT_TEST(test_63_two_workers_share_one_queue),
        ACCEPT_TEST(test_68_who_joins_gets_its_share_and_no_more),
        ACCEPT_TEST(test_69_the_partitions_of_a_dead_worker_are_served_and_get_owners),
        ACCEPT_TEST(test_76_the_number_of_partitions_changes_at_run_time),
        ACCEPT_TEST(test_78_no_partition_waits_for_more_than_twice_as_many_takes),
    };
    struct CMUnitTest more[] = {
        ACCEPT_TEST(test_60_round_robin_from_many_is_even_but_for_the_threads),
        ACCEPT_TEST(test_62_one_worker_does_all_of_one_queue),
        ACCEPT_TEST(test_64_as_many_workers_as_partitions_own_one_each),
        ACCEPT_TEST(test_65_of_more_workers_than_partitions_nobody_idles),
        ACCEPT_TEST(test_66_fewer_workers_than_partitions_own_several),
        ACCEPT_TEST(test_67_two_workers_and_three_partitions_run_each_task_once),
        ACCEPT_TEST(test_68_joins_and_leaves_under_load_run_nothing_twice),
        ACCEPT_TEST(test_70_a_master_that_dies_changes_no_workers_partitions),
        ACCEPT_TEST(test_75_by_a_hash_a_worker_may_own_none_and_none_owns_too_many),
    };
    int failed = ACCEPT_RUN(engine, "G: several queues", tests);
    if (accept_size(1, 0))
        failed += ACCEPT_RUN(engine, "G: more of them", more);
    return failed;
}
