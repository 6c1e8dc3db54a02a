/* SPDX-License-Identifier: Apache-2.0 */
/* The executor with one thread: order, ownership, and what free waits for. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/exec.h"
#include "base/list.h"

static const int64_t patience_ns = 60 * MR_NS_PER_S;
enum { CHORES = 5000 };

/* Written by run on the executor's thread and by done on the owner's, with no lock: the sanitizer
 * says whether the chore really changes hands. */
struct shared {
    int ran, done;
};

struct test_chore {
    struct mr_chore chore;
    struct shared *shared;
    struct mr_event *gate; /* run waits for it, when there is one */
    int number;
    int run_place, done_place;
    pthread_t ran_on;
};

static struct test_chore *test_chore_of(struct mr_chore *chore)
{
    return mr_container(chore, struct test_chore, chore);
}

static void run(struct mr_chore *base)
{
    struct test_chore *chore = test_chore_of(base);
    if (chore->gate != NULL)
        (void)mr_event_wait(chore->gate, patience_ns);
    chore->run_place = chore->shared->ran++;
    chore->ran_on = pthread_self();
}

static void done(struct mr_chore *base)
{
    struct test_chore *chore = test_chore_of(base);
    chore->done_place = chore->shared->done++;
}

static void make_chores(struct test_chore *chores, int n, struct shared *shared)
{
    for (int i = 0; i < n; i++)
        chores[i] = (struct test_chore){
            .chore = {.run = run, .done = done}, .shared = shared, .number = i, .run_place = -1};
}

/* Calls done for what has come; returns how many. */
static int finish_some(struct mr_chan *owner)
{
    int n = 0;
    struct mr_msg *next;
    for (struct mr_msg *msg = mr_chan_take_all(owner); msg != NULL; msg = next, n++) {
        next = msg->next;
        struct mr_chore *chore = mr_container(msg, struct mr_chore, msg);
        chore->done(chore);
    }
    return n;
}

static void chores_run_elsewhere_in_order_and_come_back_to_their_owner(void **state)
{
    (void)state;
    static struct test_chore chores[CHORES];
    struct shared shared = {0};
    struct mr_chan owner;
    struct mr_exec_thread *thread;
    mr_chan_init(&owner);
    assert_int_equal(mr_exec_thread_new("exec", false, &owner, &thread), MR_OK);
    struct mr_exec *exec = mr_exec_thread_exec(thread);
    make_chores(chores, CHORES, &shared);
    int finished = 0;
    for (int i = 0; i < CHORES; i++) {
        exec->submit(exec, &chores[i].chore);
        if (i % 7 == 0)
            finished += finish_some(&owner);
    }
    while (finished < CHORES) {
        int n = finish_some(&owner);
        finished += n;
        if (n == 0)
            mr_chan_wait(&owner, patience_ns);
    }
    for (int i = 0; i < CHORES; i++) {
        assert_int_equal(chores[i].run_place, i);
        assert_int_equal(chores[i].done_place, i);
        assert_false(pthread_equal(chores[i].ran_on, pthread_self()));
        assert_true(pthread_equal(chores[i].ran_on, chores[0].ran_on));
    }
    mr_exec_thread_free(thread);
}

static void free_waits_for_the_chores_that_are_there(void **state)
{
    (void)state;
    enum { N = 50 };
    struct test_chore chores[N];
    struct shared shared = {0};
    struct mr_chan owner;
    struct mr_event gate;
    struct mr_exec_thread *thread;
    mr_chan_init(&owner);
    mr_event_init(&gate);
    assert_int_equal(mr_exec_thread_new("exec", false, &owner, &thread), MR_OK);
    make_chores(chores, N, &shared);
    chores[0].gate = &gate;
    struct mr_exec *exec = mr_exec_thread_exec(thread);
    for (int i = 0; i < N; i++)
        exec->submit(exec, &chores[i].chore);
    assert_null(mr_chan_take_all(&owner)); /* all wait behind the first */
    mr_event_set(&gate);
    mr_exec_thread_free(thread);
    assert_int_equal(shared.ran, N);
    assert_int_equal(finish_some(&owner), N);
    assert_int_equal(chores[N - 1].done_place, N - 1);
}

static void an_idle_executor_can_be_freed_at_any_moment(void **state)
{
    (void)state;
    struct mr_chan owner;
    mr_chan_init(&owner);
    for (int i = 0; i < 300; i++) {
        struct mr_exec_thread *thread;
        assert_int_equal(mr_exec_thread_new("exec", false, &owner, &thread), MR_OK);
        mr_exec_thread_free(thread);
    }
    mr_exec_thread_free(NULL);
    assert_null(mr_chan_take_all(&owner));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(chores_run_elsewhere_in_order_and_come_back_to_their_owner),
        cmocka_unit_test(free_waits_for_the_chores_that_are_there),
        cmocka_unit_test(an_idle_executor_can_be_freed_at_any_moment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
