/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What workers do for timers, by the numbers of the timers' list: they take what they can run and no more (81, 95),
 * are addressed by name and tag (83), go on after any number of failures (92) and can be restarted one by one (94).
 */
#include <stdatomic.h>
#include <stdio.h>

#include "accept/accept.h"

enum { CREW = 3, PLACES = 6, SLOTS = 2, FALL_MS = 400 };

static const char *const places[PLACES] = {"q", "q@a", "q@b", "q@c", "q@gpu", "q@gone"};

/* A worker that counts what it ran, by the queue it came from. */
struct member {
    struct mr_worker *worker;
    _Atomic size_t ran[PLACES];
    _Atomic bool slow; /* a run takes a moment */
};

static enum mr_outcome count_run(struct mr_run *run, void *arg)
{
    struct member *member = arg;
    const struct mr_task *task = mr_run_task(run);
    for (size_t i = 0; i < PLACES; i++) {
        size_t len = strlen(places[i]);
        if (task->queue.len == len && memcmp(task->queue.data, places[i], len) == 0)
            member->ran[i]++;
    }
    if (member->slow && mr_run_wait_cancelled(run, 5))
        return MR_FAIL;
    return MR_DONE;
}

static void hire_for(struct accept *t, struct member *member, const char *name, const char *tag,
                     int64_t fall_ms, const char *type)
{
    struct mr_slice tags[] = {mr_slice_str(tag != NULL ? tag : "")};
    struct mr_worker_queue queue = {.name = mr_slice_str("q")};
    struct mr_worker_options options = {.node = mr_slice_str(name),
                                        .queues = &queue,
                                        .queues_n = 1,
                                        .tags = tags,
                                        .tags_n = tag != NULL,
                                        .fall_ms = fall_ms,
                                        .slots = SLOTS,
                                        .beat_ms = ACCEPT_BEAT_MS,
                                        .beats_missed = ACCEPT_BEATS_MISSED};
    assert_err(mr_worker_new(t->client, &options, &member->worker), MR_OK);
    assert_err(mr_worker_handle(member->worker, type, count_run, member), MR_OK);
    assert_err(mr_worker_start(member->worker), MR_OK);
}

static void hire(struct accept *t, struct member *member, const char *name, const char *tag,
                 int64_t fall_ms)
{
    hire_for(t, member, name, tag, fall_ms, "*");
}

static void dismiss(struct member *member)
{
    mr_worker_free(member->worker);
    member->worker = NULL;
}

static size_t ran(const struct member *crew, size_t n, size_t place)
{
    size_t sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += crew[i].ran[place];
    return sum;
}

/* ---- 81, 83 --------------------------------------------------------------------------------- */

static void test_t81_what_a_worker_cannot_run_another_does(void **state)
{
    struct accept *t = *state;
    struct member crew[2] = {0};
    hire_for(t, &crew[0], "a", NULL, MR_NO_FALL, "mail.*");
    const char *id = PUT(t, "other", .queue = "q");
    struct mr_worker_figures figures;
    UNTIL((mr_worker_figures(crew[0].worker, &figures), figures.unhandled > 0)); /* unknown to it */
    assert_int_equal(ran(crew, 1, 0), 0);
    hire_for(t, &crew[1], "b", NULL, MR_NO_FALL, "other");
    UNTIL(accept_state(t, id) == MR_COMPLETED);
    assert_int_equal(crew[1].ran[0], 1);
    assert_int_equal(crew[0].ran[0], 0);
    dismiss(&crew[0]);
    dismiss(&crew[1]);
}

static void test_t81_who_has_no_free_slot_is_passed_over(void **state)
{
    struct accept *t = *state;
    struct member b = {0};
    t->hold = true;
    struct mr_worker *a = WORKER(t, .node = "a", .queues = "q", .slots = 1);
    const char *held = PUT(t, "hold", .queue = "q");
    UNTIL(accept_ran(t, held) == 1);
    hire(t, &b, "b", NULL, MR_NO_FALL);
    accept_put_many(t, "t", 20, &(struct accept_task){.type = "echo", .queue = "q"});
    UNTIL(accept_count(t, "q", MR_COMPLETED) == 20); /* all of them at the other one */
    assert_int_equal(b.ran[0], 20);
    t->hold = false;
    UNTIL(accept_state(t, held) == MR_COMPLETED);
    accept_dismiss(t, a);
    dismiss(&b);
}

static void test_t83_what_is_addressed_runs_at_that_worker_or_at_one_with_the_tag(void **state)
{
    struct accept *t = *state;
    enum { EACH = 10 };
    struct member crew[CREW] = {0};
    for (size_t i = 0; i < 5; i++) {
        char prefix[16];
        (void)snprintf(prefix, sizeof prefix, "p%zu-", i);
        accept_put_many(t, prefix, EACH, &(struct accept_task){.queue = places[i]});
    }
    hire(t, &crew[0], "a", "gpu", 0);
    hire(t, &crew[1], "b", "gpu", 0);
    hire(t, &crew[2], "c", NULL, 0);
    UNTIL(accept_all_completed(t));
    for (size_t i = 0; i < CREW; i++)
        for (size_t place = 1; place <= CREW; place++)
            assert_int_equal(crew[i].ran[place], place == i + 1 ? EACH : 0);
    assert_int_equal(ran(crew, CREW, 0), EACH);
    assert_int_equal(ran(crew, 2, 4), EACH);
    for (size_t i = 0; i < CREW; i++)
        dismiss(&crew[i]);
}

static void test_t83_nodes_show_their_tags(void **state)
{
    struct accept *t = *state;
    struct member member = {0};
    struct mr_node_list *list;
    hire(t, &member, "a", "gpu", 0);
    assert_err(mr_node_list_get(t->client, &list), MR_OK);
    assert_int_equal(mr_node_list_count(list), 1);
    const struct mr_node_info *node = mr_node_list_at(list, 0);
    struct mr_slice tags[4];
    assert_int_equal(mr_node_tags(node, tags, 4), 1);
    assert_int_equal(tags[0].len, 3);
    assert_memory_equal(tags[0].data, "gpu", 3);
    size_t served = 0;
    for (size_t i = 0; i < node->queues_n; i++)
        served += mr_node_serves(node, i);
    assert_int_equal(served, 1);
    mr_node_list_free(list);
    dismiss(&member);
}

static void test_t83_what_is_addressed_to_one_who_left_falls_to_others_once(void **state)
{
    struct accept *t = *state;
    size_t n = accept_size(1000, 50);
    struct member crew[CREW] = {0};
    hire(t, &crew[0], "a", NULL, 0);
    hire(t, &crew[1], "b", NULL, FALL_MS);
    hire(t, &crew[2], "c", NULL, FALL_MS);
    crew[0].slow = true;
    accept_put_many(t, "t", n, &(struct accept_task){.queue = "q@a"});
    UNTIL(crew[0].ran[1] > 0);
    dismiss(&crew[0]); /* with most of them untouched, and some given back */
    size_t began = crew[0].ran[1];
    UNTIL(accept_all_completed(t));
    assert_in_range(ran(crew + 1, 2, 1), n - began, n - began + SLOTS);
    assert_true(ran(crew + 1, 2, 1) > 0);
    dismiss(&crew[1]);
    dismiss(&crew[2]);
}

/* ---- 92, 94, 95 ----------------------------------------------------------------------------- */

static unsigned slots_in_error(struct mr_worker *worker)
{
    struct mr_worker_figures figures;
    mr_worker_figures(worker, &figures);
    return figures.slots[MR_SLOT_ERROR];
}

static void test_t92_after_many_failures_a_worker_goes_on_as_before(void **state)
{
    struct accept *t = *state;
    size_t n = accept_size(2000, 300);
    struct mr_worker *worker = WORKER(t, .queues = "q");
    accept_put_many(t, "bad", n,
                    &(struct accept_task){.type = "fatal", .queue = "q", .max_retry = 0});
    UNTIL(accept_count(t, "q", MR_ARCHIVED) == n);
    UNTIL(slots_in_error(worker) == 0); /* the last ones are on their way out of it */
    mr_mono since = accept_now();
    const char *id = PUT(t, "echo", .queue = "q", .payload = "fine");
    accept_await_echo(t, id);
    assert_in_range(accept_since_ms(since), 0, 5000);
    accept_dismiss(t, worker);
}

/* Each ends its runs, gives back the rest and leaves; another one of its name comes. */
static void test_t94_workers_restarted_one_by_one_under_load_fail_nothing(void **state)
{
    struct accept *t = *state;
    size_t n = accept_size(3000, 200), rounds = accept_size(4, 1);
    static const char *const names[CREW] = {"a", "b", "c"};
    struct member crew[CREW] = {0};
    for (size_t i = 0; i < CREW; i++) {
        crew[i].slow = true;
        hire(t, &crew[i], names[i], NULL, FALL_MS);
    }
    accept_put_many(t, "t", n, &(struct accept_task){.queue = "q"});
    accept_put_many(t, "a", n / 10, &(struct accept_task){.queue = "q@a"});
    for (size_t i = 0; i < rounds * CREW; i++) {
        size_t before = ran(crew, CREW, 0);
        UNTIL(ran(crew, CREW, 0) > before || accept_count(t, "q", MR_PENDING) == 0);
        dismiss(&crew[i % CREW]);
        hire(t, &crew[i % CREW], names[i % CREW], NULL, FALL_MS);
    }
    UNTIL(accept_all_completed(t));
    assert_int_equal(accept_queue(t, "q").failed_total, 0);
    assert_int_equal(accept_queue(t, "q@a").failed_total, 0);
    assert_int_equal(ran(crew, CREW, 0) + ran(crew, CREW, 1), n + n / 10);
    for (size_t i = 0; i < CREW; i++)
        dismiss(&crew[i]);
}

static void test_t95_an_overloaded_worker_drops_nothing_and_a_full_queue_says_so(void **state)
{
    struct accept *t = *state;
    enum { LENGTH = 20, N = 60 };
    t->hold = true;
    struct mr_worker *worker = WORKER(t, .queues = "q", .slots = SLOTS);
    for (int i = 0; i < SLOTS; i++)
        (void)PUT(t, "hold", .queue = "q");
    UNTIL(accept_count(t, "q", MR_ACTIVE) >= SLOTS);
    assert_err(mr_queue_set_max_length(t->client, mr_slice_str("q"), LENGTH), MR_OK);
    size_t accepted = 0, refused = 0;
    for (int i = 0; i < N; i++) {
        struct mr_enqueue_result result = accept_try(
            t, (struct mr_task_options){.queue = mr_slice_str("q"), .type = mr_slice_str("echo")});
        if (result.err == MR_OK)
            (void)accept_remember(t, result.id);
        accepted += result.err == MR_OK;
        refused += result.err == MR_QUEUE_FULL;
    }
    assert_int_equal(accepted + refused, N); /* each is answered */
    assert_true(accepted >= LENGTH && refused > 0);
    t->hold = false;
    UNTIL(accept_all_completed(t));
    assert_int_equal(accept_count(t, "q", MR_COMPLETED), SLOTS + accepted);
    accept_dismiss(t, worker);
}

int accept_address(const struct accept_engine *engine)
{
    static struct CMUnitTest tests[] = {
        ACCEPT_TEST(test_t81_what_a_worker_cannot_run_another_does),
        ACCEPT_TEST(test_t81_who_has_no_free_slot_is_passed_over),
        ACCEPT_TEST(test_t83_what_is_addressed_runs_at_that_worker_or_at_one_with_the_tag),
        ACCEPT_TEST(test_t83_nodes_show_their_tags),
        ACCEPT_TEST(test_t83_what_is_addressed_to_one_who_left_falls_to_others_once),
        ACCEPT_TEST(test_t92_after_many_failures_a_worker_goes_on_as_before),
        ACCEPT_TEST(test_t94_workers_restarted_one_by_one_under_load_fail_nothing),
        ACCEPT_TEST(test_t95_an_overloaded_worker_drops_nothing_and_a_full_queue_says_so),
    };
    return ACCEPT_RUN(engine, "address", tests);
}
