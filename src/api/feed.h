/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Watching jobs: of each job that somebody watches on this thread there is one feed, which has the last versions of
 * it, each encoded once, however many read them. Readers take them at their own pace; what one does not take waits for nobody:
 * who is further behind than the feed goes on with how the job is now. Whoever has many readers can let them leave out what
 * lies between: then each gets the versions in which the state of the job changed, and the newest.
 *
 * Thread: the one that owns the feeds, for everything; what the service says is posted to it.
 */
#ifndef MR_API_FEED_H
#define MR_API_FEED_H

#include "base/buf.h"
#include "base/chan.h"
#include "base/list.h"
#include "job/service.h"

struct feed;

struct feeds {
    struct mr_job_service *service;
    /* Gives the message to the thread. Thread: any. */
    void (*post)(struct feeds *feeds, struct mr_msg *msg);
    /* As readers want it. */
    enum mr_err (*encode)(const struct mr_job_event *event, struct mr_buf *buf);
    struct mr_link list; /* feeds that can be joined */
};

struct feed_reader {
    struct mr_link link;
    struct feed *feed; /* NULL: it has left */
    uint64_t told;     /* the last version it took */
    bool fresh;        /* it has taken none: it begins with how the job is now */
    bool rests;        /* see feed_rest */
    /* There is something to take, or it is over. */
    void (*ready)(struct feed_reader *reader);
};

void feeds_init(struct feeds *feeds, void (*post)(struct feeds *feeds, struct mr_msg *msg),
                enum mr_err (*encode)(const struct mr_job_event *event, struct mr_buf *buf));
/* after: as in struct mr_job_watch_options. ready is not called before it returns, but it may be there is something
 * already. MR_INVALID, MR_NOMEM: it has not joined. */
MR_MUST_USE enum mr_err feed_join(struct feeds *feeds, struct mr_slice id, uint64_t after,
                                  struct feed_reader *reader);
/* The next version, or false: there is none now. The bytes live until the thread's next turn. */
bool feed_next(struct feed_reader *reader, struct mr_slice *ret_bytes);
/* It knows that there is something, and will take it: ready is not called until it has asked feed_next, or the job has
 * ended. A thousand that are called for each version cost more than what they are told. */
void feed_rest(struct feed_reader *reader);
/* What feed_next would give next, as long as it does not change the state of the job, is left out; not the newest. */
void feed_skip(struct feed_reader *reader);
/* About so many bytes would feed_next give now, one version after the other. */
size_t feed_bytes(const struct feed_reader *reader);
/* Whether nothing comes any more; then why. */
bool feed_is_over(const struct feed_reader *reader, enum mr_err *ret_err);
/* The last event there is; NULL: none. */
const struct mr_job_event *feed_last(const struct feed_reader *reader);
/* Fine when it has left, or never joined (zeroed). */
void feed_leave(struct feed_reader *reader);

#endif
