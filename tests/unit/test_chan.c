/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Channels, events, locks and threads. The stress tests mean most under the thread sanitizer. A
 * wait that is expected to end has a limit far beyond any noise of the machine, so a lost wake-up
 * fails and does not hang.
 */
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/chan.h"
#include "base/list.h"

static const int64_t patience_ns = 20 * MR_NS_PER_S;

static int64_t now_ns(void)
{
    return mr_mono_now(mr_clock_system()).ns;
}

static pthread_t start(void *(*run)(void *), void *arg)
{
    pthread_t thread;
    assert_int_equal(mr_thread_start(&thread, "test", run, arg), MR_OK);
    return thread;
}

/* Everything that is there, waiting for the first. Asserts of ours, as in all that runs on other
 * threads: those of cmocka can only fail the thread of the test. */
static struct mr_msg *receive(struct mr_chan *chan)
{
    int64_t give_up = now_ns() + patience_ns;
    for (;;) {
        struct mr_msg *msgs = mr_chan_take_all(chan);
        if (msgs != NULL)
            return msgs;
        mr_chan_wait(chan, patience_ns);
        mr_assert(now_ns() < give_up); /* else it came, or not, without a wake-up */
    }
}

/* ---- channels ------------------------------------------------------------------------------- */

static void messages_are_taken_all_at_once_in_the_order_of_sending(void **state)
{
    (void)state;
    struct mr_chan chan;
    struct mr_msg msgs[5];
    mr_chan_init(&chan);
    assert_null(mr_chan_take_all(&chan));
    for (int i = 0; i < 5; i++)
        mr_chan_send(&chan, &msgs[i]);
    struct mr_msg *msg = mr_chan_take_all(&chan);
    for (int i = 0; i < 5; i++, msg = msg->next)
        assert_ptr_equal(msg, &msgs[i]);
    assert_null(msg);
    assert_null(mr_chan_take_all(&chan));
}

static void a_wait_ends_at_once_when_there_is_a_message(void **state)
{
    (void)state;
    struct mr_chan chan;
    struct mr_msg msg;
    mr_chan_init(&chan);
    mr_chan_send(&chan, &msg);
    mr_chan_wait(&chan, INT64_MAX);
    assert_ptr_equal(mr_chan_take_all(&chan), &msg);
}

static void a_wait_lasts_as_long_as_told_and_no_wait_none(void **state)
{
    (void)state;
    struct mr_chan chan;
    mr_chan_init(&chan);
    mr_chan_wait(&chan, 0);
    mr_chan_wait(&chan, -1);
    int64_t begin = now_ns();
    mr_chan_wait(&chan, 3 * MR_NS_PER_MS);
    assert_true(now_ns() - begin >= 3 * MR_NS_PER_MS);
}

static void a_wake_before_the_wait_is_remembered_once(void **state)
{
    (void)state;
    struct mr_chan chan;
    mr_chan_init(&chan);
    mr_chan_wake(&chan);
    mr_chan_wake(&chan);
    mr_chan_wait(&chan, INT64_MAX);
    int64_t begin = now_ns();
    mr_chan_wait(&chan, MR_NS_PER_MS);
    assert_true(now_ns() - begin >= MR_NS_PER_MS);
}

struct stop_flag {
    struct mr_chan chan;
    _Atomic bool stop;
};

static void *wait_for_stop(void *arg)
{
    struct stop_flag *flag = arg;
    while (!atomic_load(&flag->stop))
        mr_chan_wait(&flag->chan, INT64_MAX);
    return NULL;
}

static void a_wake_is_never_lost_between_the_look_and_the_sleep(void **state)
{
    (void)state;
    for (int i = 0; i < 500; i++) {
        struct stop_flag flag;
        mr_chan_init(&flag.chan);
        atomic_init(&flag.stop, false);
        pthread_t thread = start(wait_for_stop, &flag);
        if (i % 2 == 0) {
            while (atomic_load(&flag.chan.sleeping) == 0)
                sched_yield();
        }
        atomic_store(&flag.stop, true);
        mr_chan_wake(&flag.chan);
        mr_thread_join(thread);
    }
}

enum { SENDERS = 8, SENDER_MSGS = 20000 };

struct numbered {
    struct mr_msg msg;
    int sender, number;
};

struct sender {
    struct mr_chan *chan;
    struct numbered *msgs;
    int id;
};

static void *send_all(void *arg)
{
    struct sender *sender = arg;
    for (int i = 0; i < SENDER_MSGS; i++) {
        sender->msgs[i].sender = sender->id;
        sender->msgs[i].number = i;
        mr_chan_send(sender->chan, &sender->msgs[i].msg);
        /* Bursts and pauses of different lengths, so that the receiver often just falls asleep. */
        if (i % (sender->id + 2) == 0)
            sched_yield();
    }
    return NULL;
}

static void many_senders_lose_nothing_and_keep_their_order(void **state)
{
    (void)state;
    struct mr_chan chan;
    struct sender senders[SENDERS];
    pthread_t threads[SENDERS];
    mr_chan_init(&chan);
    for (int i = 0; i < SENDERS; i++) {
        senders[i] = (struct sender){&chan, malloc(SENDER_MSGS * sizeof(struct numbered)), i};
        assert_non_null(senders[i].msgs);
        threads[i] = start(send_all, &senders[i]);
    }
    int next[SENDERS] = {0}, total = 0;
    while (total < SENDERS * SENDER_MSGS) {
        for (struct mr_msg *msg = receive(&chan); msg != NULL; msg = msg->next, total++) {
            struct numbered *got = mr_container(msg, struct numbered, msg);
            assert_int_equal(got->number, next[got->sender]++);
        }
    }
    for (int i = 0; i < SENDERS; i++) {
        mr_thread_join(threads[i]);
        free(senders[i].msgs);
    }
    assert_null(mr_chan_take_all(&chan));
}

enum { ROUND_TRIPS = 20000 };

struct pair {
    struct mr_chan there, back;
};

static void *echo(void *arg)
{
    struct pair *pair = arg;
    for (int i = 0; i < ROUND_TRIPS; i++) {
        struct mr_msg *msg = receive(&pair->there);
        mr_assert(msg->next == NULL);
        mr_chan_send(&pair->back, msg);
    }
    return NULL;
}

static void a_message_goes_to_and_fro_without_a_lost_wake_up(void **state)
{
    (void)state;
    struct pair pair;
    struct mr_msg msg;
    mr_chan_init(&pair.there);
    mr_chan_init(&pair.back);
    pthread_t thread = start(echo, &pair);
    for (int i = 0; i < ROUND_TRIPS; i++) {
        mr_chan_send(&pair.there, &msg);
        assert_ptr_equal(receive(&pair.back), &msg);
    }
    mr_thread_join(thread);
}

enum { NAPS = 100000, NAP_SPINS = 400 };

struct nap {
    struct mr_chan chan;
    struct mr_msg msg;
    _Atomic int turn;
};

static void *disturb(void *arg)
{
    struct nap *nap = arg;
    for (int i = 1; i <= NAPS; i++) {
        while (atomic_load(&nap->turn) < i)
            continue;
        for (volatile int spin = 0; spin < i % NAP_SPINS; spin++)
            continue;
        mr_chan_send(&nap->chan, &nap->msg);
    }
    return NULL;
}

static void a_message_at_any_moment_of_falling_asleep_is_noticed(void **state)
{
    (void)state;
    struct nap nap;
    mr_chan_init(&nap.chan);
    atomic_init(&nap.turn, 0);
    pthread_t thread = start(disturb, &nap);
    for (int i = 1; i <= NAPS; i++) {
        /* The sender spins a little longer each time, so its message comes before, between and
         * after all steps of the wait. */
        atomic_store(&nap.turn, i);
        assert_ptr_equal(receive(&nap.chan), &nap.msg);
    }
    mr_thread_join(thread);
}

/* ---- events --------------------------------------------------------------------------------- */

static void an_event_stays_set_until_it_is_reset(void **state)
{
    (void)state;
    struct mr_event event;
    mr_event_init(&event);
    assert_false(mr_event_wait(&event, 0));
    mr_event_set(&event);
    mr_event_set(&event);
    assert_true(mr_event_wait(&event, 0));
    assert_true(mr_event_wait(&event, INT64_MAX));
    mr_event_reset(&event);
    assert_false(mr_event_wait(&event, 0));
    int64_t begin = now_ns();
    assert_false(mr_event_wait(&event, 2 * MR_NS_PER_MS));
    assert_true(now_ns() - begin >= 2 * MR_NS_PER_MS);
    mr_event_reset(&event);
    mr_event_set(&event);
    assert_true(mr_event_wait(&event, INT64_MAX));
}

enum { WAITERS = 4 };

static void *wait_for_event(void *arg)
{
    bool set = mr_event_wait(arg, patience_ns);
    mr_assert(set);
    return NULL;
}

static void setting_an_event_wakes_every_waiter(void **state)
{
    (void)state;
    for (int i = 0; i < 200; i++) {
        struct mr_event event;
        pthread_t threads[WAITERS];
        mr_event_init(&event);
        for (int k = 0; k < WAITERS; k++)
            threads[k] = start(wait_for_event, &event);
        mr_event_reset(&event); /* a reset of what is not set hides no waiter */
        mr_event_set(&event);
        for (int k = 0; k < WAITERS; k++)
            mr_thread_join(threads[k]);
    }
}

struct request {
    struct mr_msg msg;
    struct mr_event done;
    bool last;
};

static void *answer(void *arg)
{
    for (;;) {
        struct mr_msg *next;
        for (struct mr_msg *msg = receive(arg); msg != NULL; msg = next) {
            next = msg->next;
            struct request *request = mr_container(msg, struct request, msg);
            bool last = request->last;
            mr_event_set(&request->done);
            if (last)
                return NULL;
        }
    }
}

static void a_waiter_may_free_the_event_as_soon_as_it_is_set(void **state)
{
    (void)state;
    enum { REQUESTS = 20000 };
    struct mr_chan chan;
    mr_chan_init(&chan);
    pthread_t thread = start(answer, &chan);
    for (int i = 0; i < REQUESTS; i++) {
        struct request *request = malloc(sizeof *request);
        assert_non_null(request);
        mr_event_init(&request->done);
        request->last = i == REQUESTS - 1;
        mr_chan_send(&chan, &request->msg);
        assert_true(mr_event_wait(&request->done, patience_ns));
        memset(request, 0xff, sizeof *request);
        free(request);
    }
    mr_thread_join(thread);
}

/* ---- locks and threads ---------------------------------------------------------------------- */

enum { TURNS = 5000, PLAYERS = 3 };

struct table {
    struct mr_lock lock;
    int turn, seats;
};

static void *play(void *arg)
{
    struct table *table = arg;
    mr_lock_enter(&table->lock);
    int seat = table->seats++;
    while (table->turn < TURNS) {
        if (table->turn % PLAYERS == seat) {
            table->turn++;
            mr_lock_notify_all(&table->lock);
        } else {
            bool notified = mr_lock_wait(&table->lock, patience_ns);
            mr_assert(notified);
        }
    }
    mr_lock_leave(&table->lock);
    return NULL;
}

static void threads_take_turns_under_a_lock(void **state)
{
    (void)state;
    struct table table = {.turn = 0};
    pthread_t threads[PLAYERS];
    mr_lock_init(&table.lock);
    for (int i = 0; i < PLAYERS; i++)
        threads[i] = start(play, &table);
    for (int i = 0; i < PLAYERS; i++)
        mr_thread_join(threads[i]);
    assert_int_equal(table.turn, TURNS);
    mr_lock_done(&table.lock);
}

static void a_wait_under_a_lock_ends_in_time(void **state)
{
    (void)state;
    struct mr_lock lock;
    mr_lock_init(&lock);
    mr_lock_enter(&lock);
    mr_lock_notify_one(&lock); /* nobody waits: not remembered */
    int64_t begin = now_ns();
    bool notified = true;
    while (notified) /* false alarms are allowed */
        notified = mr_lock_wait(&lock, 2 * MR_NS_PER_MS);
    assert_true(now_ns() - begin >= 2 * MR_NS_PER_MS);
    mr_lock_leave(&lock);
    mr_lock_done(&lock);
}

struct self {
    char name[16];
    sigset_t blocked;
};

static void *describe_self(void *arg)
{
    struct self *self = arg;
    pthread_getname_np(pthread_self(), self->name, sizeof self->name);
    pthread_sigmask(SIG_SETMASK, NULL, &self->blocked);
    return NULL;
}

static void a_new_thread_has_its_name_and_gets_no_signals(void **state)
{
    (void)state;
    struct self self;
    pthread_t thread;
    assert_int_equal(mr_thread_start(&thread, "a-name-longer-than-15", describe_self, &self),
                     MR_OK);
    mr_thread_join(thread);
    assert_string_equal(self.name, "a-name-longer-t");
    static const int signals[] = {SIGTERM, SIGINT, SIGHUP, SIGCHLD, SIGUSR1, SIGPIPE};
    sigset_t ours;
    pthread_sigmask(SIG_SETMASK, NULL, &ours);
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        assert_int_equal(sigismember(&self.blocked, signals[i]), 1);
        assert_int_equal(sigismember(&ours, signals[i]), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages_are_taken_all_at_once_in_the_order_of_sending),
        cmocka_unit_test(a_wait_ends_at_once_when_there_is_a_message),
        cmocka_unit_test(a_wait_lasts_as_long_as_told_and_no_wait_none),
        cmocka_unit_test(a_wake_before_the_wait_is_remembered_once),
        cmocka_unit_test(a_wake_is_never_lost_between_the_look_and_the_sleep),
        cmocka_unit_test(many_senders_lose_nothing_and_keep_their_order),
        cmocka_unit_test(a_message_goes_to_and_fro_without_a_lost_wake_up),
        cmocka_unit_test(a_message_at_any_moment_of_falling_asleep_is_noticed),
        cmocka_unit_test(an_event_stays_set_until_it_is_reset),
        cmocka_unit_test(setting_an_event_wakes_every_waiter),
        cmocka_unit_test(a_waiter_may_free_the_event_as_soon_as_it_is_set),
        cmocka_unit_test(threads_take_turns_under_a_lock),
        cmocka_unit_test(a_wait_under_a_lock_ends_in_time),
        cmocka_unit_test(a_new_thread_has_its_name_and_gets_no_signals),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
