/* SPDX-License-Identifier: Apache-2.0 */
/* The loop on epoll; its inbox wakes it through an eventfd that epoll watches with the rest. */
#include "base/loop.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/fd.h"

enum { EVENTS_MAX = 256 }; /* of one turn; the rest comes with the next */

struct mr_loop {
    int epoll_fd;
    struct mr_watch wake; /* the inbox's eventfd */
    struct mr_chan inbox;
    /* What the current turn has still to tell: events[at .. n - 1]. */
    struct epoll_event events[EVENTS_MAX];
    int at, n;
};

static void take_wakes(struct mr_watch *watch, unsigned events)
{
    (void)events;
    uint64_t count;
    ssize_t got = read(watch->fd, &count, sizeof count);
    (void)got; /* nothing there is fine too */
}

static enum mr_err open_fds(struct mr_loop *loop)
{
    loop->epoll_fd = mr_fd_apart(epoll_create1(EPOLL_CLOEXEC));
    if (loop->epoll_fd < 0)
        return mr_err_from_errno(errno);
    loop->wake.fd = mr_fd_apart(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (loop->wake.fd < 0)
        return mr_err_from_errno(errno);
    loop->wake.ready = take_wakes;
    mr_chan_init_fd(&loop->inbox, loop->wake.fd);
    return mr_loop_add(loop, &loop->wake, MR_LOOP_READ);
}

enum mr_err mr_loop_new(struct mr_loop **ret_loop)
{
    struct mr_loop *loop = calloc(1, sizeof *loop);
    if (loop == NULL)
        return MR_NOMEM;
    loop->epoll_fd = loop->wake.fd = -1;
    enum mr_err err = open_fds(loop);
    if (err != MR_OK) {
        mr_loop_free(loop);
        return err;
    }
    *ret_loop = loop;
    return MR_OK;
}

void mr_loop_free(struct mr_loop *loop)
{
    if (loop == NULL)
        return;
    if (loop->wake.fd >= 0)
        close(loop->wake.fd);
    if (loop->epoll_fd >= 0)
        close(loop->epoll_fd);
    free(loop);
}

struct mr_chan *mr_loop_inbox(struct mr_loop *loop)
{
    return &loop->inbox;
}

static struct epoll_event event_of(struct mr_watch *watch)
{
    uint32_t events = 0;
    if (watch->events & MR_LOOP_READ)
        events |= EPOLLIN;
    if (watch->events & MR_LOOP_WRITE)
        events |= EPOLLOUT;
    return (struct epoll_event){.events = events, .data.ptr = watch};
}

enum mr_err mr_loop_add(struct mr_loop *loop, struct mr_watch *watch, unsigned events)
{
    watch->events = events;
    struct epoll_event event = event_of(watch);
    if (epoll_ctl(loop->epoll_fd, EPOLL_CTL_ADD, watch->fd, &event) != 0)
        return mr_err_from_errno(errno);
    return MR_OK;
}

void mr_loop_change(struct mr_loop *loop, struct mr_watch *watch, unsigned events)
{
    if (watch->events == events)
        return;
    watch->events = events;
    struct epoll_event event = event_of(watch);
    int failed = epoll_ctl(loop->epoll_fd, EPOLL_CTL_MOD, watch->fd, &event);
    mr_assert(!failed);
}

void mr_loop_remove(struct mr_loop *loop, struct mr_watch *watch)
{
    int failed = epoll_ctl(loop->epoll_fd, EPOLL_CTL_DEL, watch->fd, NULL);
    mr_assert(!failed);
    for (int i = loop->at; i < loop->n; i++) {
        if (loop->events[i].data.ptr == watch)
            loop->events[i].data.ptr = NULL;
    }
}

/* Rounded up, so that whoever waits for a time does not wake just before it. */
static int wait_ms(int64_t max_ns)
{
    if (max_ns <= 0)
        return 0;
    int64_t ms = (max_ns - 1) / MR_NS_PER_MS + 1;
    if (max_ns == INT64_MAX)
        return -1;
    return ms < INT_MAX ? (int)ms : INT_MAX;
}

static unsigned possible(const struct epoll_event *event)
{
    const struct mr_watch *watch = event->data.ptr;
    if (event->events & (EPOLLERR | EPOLLHUP))
        return watch->events;
    return (event->events & EPOLLIN ? MR_LOOP_READ : 0) |
           (event->events & EPOLLOUT ? MR_LOOP_WRITE : 0);
}

void mr_loop_wait(struct mr_loop *loop, int64_t max_ns)
{
    int timeout_ms = mr_chan_sleep(&loop->inbox) ? wait_ms(max_ns) : 0;
    loop->n = epoll_wait(loop->epoll_fd, loop->events, EVENTS_MAX, timeout_ms);
    mr_chan_awake(&loop->inbox);
    mr_assert(loop->n >= 0 || errno == EINTR);
    loop->at = 0;
}

void mr_loop_dispatch(struct mr_loop *loop)
{
    while (loop->at < loop->n) {
        const struct epoll_event *event = &loop->events[loop->at++];
        struct mr_watch *watch = event->data.ptr;
        if (watch != NULL)
            watch->ready(watch, possible(event));
    }
}
