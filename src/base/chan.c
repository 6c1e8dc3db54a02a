/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Channels are an atomic stack that the receiver takes whole and turns round; the receiver sleeps
 * on a futex word beside it, or polls an eventfd that whoever finds that word at "sleeping" writes.
 *
 * No wake-up is lost: the receiver marks itself sleeping and then looks for messages, a sender
 * pushes and then looks for the mark. All four accesses are sequentially consistent, so at least
 * one of the two sees the other. A wake without a message is remembered in the word until the next
 * wait, so that it cannot fall between the receiver's last look at its own state and its sleep.
 */
#include "base/chan.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum chan_word {
    CHAN_AWAKE,
    CHAN_SLEEPING, /* the receiver sleeps or is about to */
    CHAN_WOKEN,    /* mr_chan_wake came; the next wait returns at once */
};

enum event_word {
    EVENT_UNSET,
    EVENT_SET,
    EVENT_AWAITED, /* unset, and somebody sleeps: setting it needs the system call */
};

enum { THREAD_NAME_MAX = 15 };

static_assert(sizeof(_Atomic uint32_t) == sizeof(uint32_t), "a futex word is 32 bits");

/* A moment of CLOCK_MONOTONIC, absolute so that an interrupted sleep can go on unchanged. */
struct deadline {
    bool never;
    struct timespec at;
};

static struct deadline deadline_after(int64_t max_ns)
{
    struct timespec now;
    int rc = clock_gettime(CLOCK_MONOTONIC, &now);
    mr_assert(rc == 0);
    int64_t now_ns = now.tv_sec * MR_NS_PER_S + now.tv_nsec;
    if (max_ns > INT64_MAX - now_ns)
        return (struct deadline){.never = true};
    int64_t at_ns = now_ns + (max_ns > 0 ? max_ns : 0);
    return (struct deadline){.at = {at_ns / MR_NS_PER_S, at_ns % MR_NS_PER_S}};
}

/* Sleeps while *word is value. False when the deadline passed; true may be a false alarm. */
static bool futex_wait(_Atomic uint32_t *word, uint32_t value, const struct deadline *until)
{
    long rc = syscall(SYS_futex, word, FUTEX_WAIT_BITSET_PRIVATE, value,
                      until->never ? NULL : &until->at, NULL, FUTEX_BITSET_MATCH_ANY);
    return rc == 0 || errno != ETIMEDOUT;
}

static void futex_wake(_Atomic uint32_t *word, int waiters_max)
{
    syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, waiters_max, NULL, NULL, 0);
}

void mr_chan_init_fd(struct mr_chan *chan, int wake_fd)
{
    atomic_init(&chan->head, NULL);
    atomic_init(&chan->sleeping, CHAN_AWAKE);
    chan->wake_fd = wake_fd;
}

void mr_chan_init(struct mr_chan *chan)
{
    mr_chan_init_fd(chan, -1);
}

static void wake_receiver(struct mr_chan *chan)
{
    if (chan->wake_fd < 0) {
        futex_wake(&chan->sleeping, 1);
        return;
    }
    /* It fails only when the count is full, and then the receiver is woken anyway. */
    ssize_t written = write(chan->wake_fd, &(uint64_t){1}, sizeof(uint64_t));
    (void)written;
}

void mr_chan_send(struct mr_chan *chan, struct mr_msg *msg)
{
    msg->next = atomic_load_explicit(&chan->head, memory_order_relaxed);
    while (!atomic_compare_exchange_weak(&chan->head, &msg->next, msg))
        continue;
    /* The load keeps senders from fighting over the cache line while the receiver is awake; of
     * several senders that see it asleep, one wakes it. */
    uint32_t word = atomic_load(&chan->sleeping);
    if (word == CHAN_SLEEPING && atomic_compare_exchange_strong(&chan->sleeping, &word, CHAN_AWAKE))
        wake_receiver(chan);
}

struct mr_msg *mr_chan_take_all(struct mr_chan *chan)
{
    if (atomic_load_explicit(&chan->head, memory_order_relaxed) == NULL)
        return NULL;
    struct mr_msg *newest = atomic_exchange_explicit(&chan->head, NULL, memory_order_acquire);
    struct mr_msg *oldest = NULL;
    while (newest != NULL) {
        struct mr_msg *older = newest->next;
        newest->next = oldest;
        oldest = newest;
        newest = older;
    }
    return oldest;
}

bool mr_chan_sleep(struct mr_chan *chan)
{
    uint32_t word = CHAN_AWAKE;
    return atomic_compare_exchange_strong(&chan->sleeping, &word, CHAN_SLEEPING) &&
           atomic_load(&chan->head) == NULL;
}

void mr_chan_awake(struct mr_chan *chan)
{
    /* A wake that came meanwhile ended this very wait and must not end the next one too. */
    atomic_exchange(&chan->sleeping, CHAN_AWAKE);
}

void mr_chan_wait(struct mr_chan *chan, int64_t max_ns)
{
    if (max_ns <= 0 || atomic_load(&chan->head) != NULL)
        return;
    mr_assert(chan->wake_fd < 0);
    struct deadline until = deadline_after(max_ns);
    if (mr_chan_sleep(chan)) {
        while (atomic_load(&chan->sleeping) == CHAN_SLEEPING &&
               futex_wait(&chan->sleeping, CHAN_SLEEPING, &until))
            continue;
    }
    mr_chan_awake(chan);
}

void mr_chan_wake(struct mr_chan *chan)
{
    if (atomic_exchange(&chan->sleeping, CHAN_WOKEN) == CHAN_SLEEPING)
        wake_receiver(chan);
}

void mr_event_init(struct mr_event *event)
{
    atomic_init(&event->word, EVENT_UNSET);
}

void mr_event_set(struct mr_event *event)
{
    /* From the exchange on a waiter may return and free the event, so nothing after it reads the
     * memory. The wake passes only the address: on memory that is gone it fails, on memory that has
     * a new use it is a false alarm, which every sleeper on a futex must expect anyway. */
    if (atomic_exchange(&event->word, EVENT_SET) == EVENT_AWAITED)
        futex_wake(&event->word, INT_MAX);
}

void mr_event_reset(struct mr_event *event)
{
    /* Not a plain store: on an event that is not set it would hide a sleeper from the next set. */
    uint32_t word = EVENT_SET;
    atomic_compare_exchange_strong(&event->word, &word, EVENT_UNSET);
}

bool mr_event_is_set(const struct mr_event *event)
{
    return atomic_load(&event->word) == EVENT_SET;
}

bool mr_event_wait(struct mr_event *event, int64_t max_ns)
{
    if (mr_event_is_set(event))
        return true;
    if (max_ns <= 0)
        return false;
    struct deadline until = deadline_after(max_ns);
    for (;;) {
        uint32_t word = EVENT_UNSET;
        if (!atomic_compare_exchange_strong(&event->word, &word, EVENT_AWAITED) &&
            word == EVENT_SET)
            return true;
        if (!futex_wait(&event->word, EVENT_AWAITED, &until))
            return mr_event_is_set(event);
    }
}

void mr_lock_init(struct mr_lock *lock)
{
    pthread_condattr_t attr;
    int rc = pthread_mutex_init(&lock->mutex, NULL);
    mr_assert(rc == 0);
    rc = pthread_condattr_init(&attr);
    mr_assert(rc == 0);
    rc = pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    mr_assert(rc == 0);
    rc = pthread_cond_init(&lock->cond, &attr);
    mr_assert(rc == 0);
    pthread_condattr_destroy(&attr);
}

void mr_lock_done(struct mr_lock *lock)
{
    int rc = pthread_cond_destroy(&lock->cond);
    mr_assert(rc == 0);
    rc = pthread_mutex_destroy(&lock->mutex);
    mr_assert(rc == 0);
}

void mr_lock_enter(struct mr_lock *lock)
{
    int rc = pthread_mutex_lock(&lock->mutex);
    mr_assert(rc == 0);
}

void mr_lock_leave(struct mr_lock *lock)
{
    int rc = pthread_mutex_unlock(&lock->mutex);
    mr_assert(rc == 0);
}

bool mr_lock_wait(struct mr_lock *lock, int64_t max_ns)
{
    struct deadline until = deadline_after(max_ns);
    int rc = until.never ? pthread_cond_wait(&lock->cond, &lock->mutex)
                         : pthread_cond_timedwait(&lock->cond, &lock->mutex, &until.at);
    mr_assert(rc == 0 || rc == ETIMEDOUT);
    return rc == 0;
}

void mr_lock_notify_one(struct mr_lock *lock)
{
    pthread_cond_signal(&lock->cond);
}

void mr_lock_notify_all(struct mr_lock *lock)
{
    pthread_cond_broadcast(&lock->cond);
}

/* What a new thread needs before it is itself; freed by it. */
struct thread_start {
    void *(*run)(void *);
    void *arg;
    char name[THREAD_NAME_MAX + 1];
};

static void *thread_run(void *arg)
{
    struct thread_start start = *(struct thread_start *)arg;
    free(arg);
    pthread_setname_np(pthread_self(), start.name);
    return start.run(start.arg);
}

enum mr_err mr_thread_start(pthread_t *ret_thread, const char *name, void *(*run)(void *),
                            void *arg)
{
    struct thread_start *start = malloc(sizeof *start);
    if (start == NULL)
        return MR_NOMEM;
    *start = (struct thread_start){.run = run, .arg = arg};
    memcpy(start->name, name, strnlen(name, THREAD_NAME_MAX));

    /* The new thread inherits the mask, so there is no moment in which it could get a signal. */
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    pthread_t thread;
    int rc = pthread_create(&thread, NULL, thread_run, start);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc != 0) {
        free(start);
        return rc == EAGAIN ? MR_NOMEM : mr_err_from_errno(rc);
    }
    *ret_thread = thread;
    return MR_OK;
}

void mr_thread_join(pthread_t thread)
{
    int rc = pthread_join(thread, NULL);
    mr_assert(rc == 0);
}
