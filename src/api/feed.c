/* SPDX-License-Identifier: Apache-2.0 */
/* Feeds: see feed.h. */
#include "api/feed.h"

#include <stdlib.h>

enum { FEED_KEPT = 1024 }; /* versions; the store keeps about as many */

struct feed {
    struct mr_link link; /* in feeds->list; nowhere once it is over */
    struct feeds *feeds;
    struct mr_job_watch *watch;
    char id[MR_JOB_ID_MAX + 1];
    uint64_t after; /* that it was begun with */
    struct mr_link readers;
    struct mr_link resting;            /* readers that are not called */
    struct mr_job_event *last;         /* NULL: nothing came yet */
    uint64_t first;                    /* version of the oldest there is */
    size_t n;                          /* versions there are; they rise by one */
    struct mr_buf versions[FEED_KEPT]; /* by version */
    bool turns[FEED_KEPT];             /* by version: whether it changed the state of the job */
    bool over, left;                   /* left: nobody reads it */
    enum mr_err err;
    _Atomic uint32_t posted; /* messages on their way here */
};

/* What the service says, on its way to the thread. */
struct saying {
    struct mr_msg msg;
    struct feed *feed;
    struct mr_job_event *event; /* NULL: it is over */
    enum mr_err err;
};

/* ---- the end -------------------------------------------------------------------------------- */

static void feed_try_free(struct feed *feed)
{
    if (!feed->left || atomic_load(&feed->posted) > 0)
        return;
    for (size_t i = 0; i < FEED_KEPT; i++)
        mr_buf_done(&feed->versions[i]);
    mr_job_event_unref(feed->last);
    free(feed);
}

/* Behind it nothing is posted any more. */
static void feed_end(struct feed *feed)
{
    mr_list_remove(&feed->link);
    feed->left = true;
    mr_job_watch_free(feed->watch);
    feed_try_free(feed);
}

void feed_leave(struct feed_reader *reader)
{
    struct feed *feed = reader->feed;
    if (feed == NULL)
        return;
    reader->feed = NULL;
    mr_list_remove(&reader->link);
    if (mr_list_empty(&feed->readers) && mr_list_empty(&feed->resting))
        feed_end(feed);
}

/* ---- what comes ----------------------------------------------------------------------------- */

static void tell_readers(struct feed *feed)
{
    if (feed->over || (feed->last != NULL && feed->last->end))
        mr_list_splice_back(&feed->readers, &feed->resting);
    for (struct mr_link *link = feed->readers.next, *next; link != &feed->readers; link = next) {
        struct feed_reader *reader = mr_container(link, struct feed_reader, link);
        next = link->next;
        reader->ready(reader);
    }
}

static void feed_is_done(struct feed *feed, enum mr_err err)
{
    feed->over = true;
    feed->err = err;
    mr_list_remove(&feed->link);
}

/* More than its counters have changed, or it is not known whether. */
static bool is_turn(const struct mr_job_event *last, const struct mr_job_event *event)
{
    const struct mr_job_info *was = last != NULL ? &last->job.info : NULL, *is = &event->job.info;
    return was == NULL || event->end || was->state != is->state || was->reducing != is->reducing ||
           was->round != is->round;
}

/* Versions rise by one; should they not, those before are forgotten. */
static void feed_add(struct feed *feed, struct mr_job_event *event)
{
    uint64_t version = event->job.info.version;
    struct mr_buf *room = &feed->versions[version % FEED_KEPT];
    if (feed->n > 0 && version != feed->first + feed->n)
        feed->n = 0;
    feed->turns[version % FEED_KEPT] = is_turn(feed->last, event);
    mr_buf_clear(room);
    enum mr_err err = feed->feeds->encode(event, room);
    if (err != MR_OK) { /* half of a message, in the place of an older one */
        feed->n = 0;
        feed_is_done(feed, err);
        return;
    }
    mr_job_event_unref(feed->last);
    feed->last = mr_job_event_ref(event);
    if (feed->n == 0)
        feed->first = version;
    feed->n++;
    if (feed->n > FEED_KEPT) {
        feed->n--;
        feed->first++;
    }
}

static void deliver(struct mr_msg *msg, void *receiver)
{
    (void)receiver;
    struct saying *saying = mr_container(msg, struct saying, msg);
    struct feed *feed = saying->feed;
    atomic_fetch_sub(&feed->posted, 1);
    if (!feed->left && !feed->over) {
        if (saying->event != NULL)
            feed_add(feed, saying->event);
        else
            feed_is_done(feed, saying->err);
        atomic_fetch_add(&feed->posted, 1); /* it lives as long as its readers are told */
        tell_readers(feed);
        atomic_fetch_sub(&feed->posted, 1);
    }
    mr_job_event_unref(saying->event);
    free(saying);
    feed_try_free(feed);
}

/* Thread: the service's. Without memory a version is left out, and the next one is told. */
static void post(struct feed *feed, struct mr_job_event *event, enum mr_err err)
{
    struct saying *saying = calloc(1, sizeof *saying);
    if (saying == NULL)
        return;
    saying->msg.deliver = deliver;
    saying->feed = feed;
    saying->event = event != NULL ? mr_job_event_ref(event) : NULL;
    saying->err = err;
    atomic_fetch_add(&feed->posted, 1);
    feed->feeds->post(feed->feeds, &saying->msg);
}

static void on_event(struct mr_job_event *event, void *arg)
{
    post(arg, event, MR_OK);
}

static void on_ended(enum mr_err err, void *arg)
{
    post(arg, NULL, err);
}

/* ---- reading -------------------------------------------------------------------------------- */

void feeds_init(struct feeds *feeds, void (*post_)(struct feeds *feeds, struct mr_msg *msg),
                enum mr_err (*encode)(const struct mr_job_event *event, struct mr_buf *buf))
{
    feeds->post = post_;
    feeds->encode = encode;
    mr_list_init(&feeds->list);
}

/* Whether it has all that comes behind this version. */
static bool feed_has(const struct feed *feed, uint64_t after)
{
    if (after == 0 || feed->n == 0)
        return after == feed->after;
    return after + 1 >= feed->first && after < feed->first + feed->n;
}

static struct feed *feed_find(struct feeds *feeds, struct mr_slice id, uint64_t after)
{
    for (struct mr_link *link = feeds->list.next; link != &feeds->list; link = link->next) {
        struct feed *feed = mr_container(link, struct feed, link);
        if (mr_slice_equal(id, mr_slice_str(feed->id)) &&
            (feed_has(feed, after) || (after == 0 && feed->n > 0)))
            return feed;
    }
    return NULL;
}

static enum mr_err feed_new(struct feeds *feeds, struct mr_slice id, uint64_t after,
                            struct feed **ret_feed)
{
    if (id.len == 0 || id.len > MR_JOB_ID_MAX)
        return MR_INVALID;
    struct feed *feed = calloc(1, sizeof *feed);
    if (feed == NULL)
        return MR_NOMEM;
    feed->feeds = feeds;
    feed->after = after;
    memcpy(feed->id, id.data, id.len);
    mr_list_init(&feed->link);
    mr_list_init(&feed->readers);
    mr_list_init(&feed->resting);
    struct mr_job_watch_options options = {
        .id = id, .after = after, .event = on_event, .ended = on_ended, .arg = feed};
    enum mr_err err = mr_job_service_watch(feeds->service, &options, &feed->watch);
    if (err != MR_OK) {
        free(feed);
        return err;
    }
    mr_list_push_back(&feeds->list, &feed->link);
    *ret_feed = feed;
    return MR_OK;
}

enum mr_err feed_join(struct feeds *feeds, struct mr_slice id, uint64_t after,
                      struct feed_reader *reader)
{
    struct feed *feed = feed_find(feeds, id, after);
    if (feed == NULL)
        MR_TRY(feed_new(feeds, id, after, &feed));
    reader->feed = feed;
    reader->told = after;
    reader->fresh = after == 0;
    reader->rests = false;
    mr_list_push_back(&feed->readers, &reader->link);
    return MR_OK;
}

static void move_to(struct feed_reader *reader, struct mr_link *list, bool rests)
{
    reader->rests = rests;
    mr_list_remove(&reader->link);
    mr_list_push_back(list, &reader->link);
}

void feed_rest(struct feed_reader *reader)
{
    if (reader->feed != NULL && !reader->rests)
        move_to(reader, &reader->feed->resting, true);
}

bool feed_next(struct feed_reader *reader, struct mr_slice *ret_bytes)
{
    struct feed *feed = reader->feed;
    if (feed != NULL && reader->rests)
        move_to(reader, &feed->readers, false);
    if (feed == NULL || feed->n == 0)
        return false;
    uint64_t end = feed->first + feed->n, next = reader->told + 1;
    if (!reader->fresh && next == end)
        return false;
    if (reader->fresh || next < feed->first || next > end) /* new, far behind, or of another time */
        next = next < feed->first && !reader->fresh && reader->told == feed->after ? feed->first
                                                                                   : end - 1;
    reader->fresh = false;
    reader->told = next;
    *ret_bytes = mr_buf_slice(&feed->versions[next % FEED_KEPT]);
    return true;
}

/* How many there are for it; 0 also when it does not go on by one. */
static uint64_t behind(const struct feed_reader *reader)
{
    const struct feed *feed = reader->feed;
    if (feed == NULL || reader->fresh || reader->told + 1 < feed->first)
        return 0;
    uint64_t end = feed->first + feed->n;
    return reader->told + 1 < end ? end - reader->told - 1 : 0;
}

void feed_skip(struct feed_reader *reader)
{
    for (uint64_t left = behind(reader); left > 1; left--) {
        if (reader->feed->turns[(reader->told + 1) % FEED_KEPT])
            return;
        reader->told++;
    }
}

size_t feed_bytes(const struct feed_reader *reader)
{
    const struct feed *feed = reader->feed;
    if (feed == NULL || feed->n == 0)
        return 0;
    uint64_t end = feed->first + feed->n, n = behind(reader);
    if (reader->fresh || (n == 0 && reader->told + 1 != end))
        n = 1;                                                    /* it goes on with the newest */
    return (size_t)n * feed->versions[(end - 1) % FEED_KEPT].len; /* they differ by some digits */
}

bool feed_is_over(const struct feed_reader *reader, enum mr_err *ret_err)
{
    const struct feed *feed = reader->feed;
    if (feed == NULL || !feed->over)
        return false;
    *ret_err = feed->err;
    return feed->n == 0 || (!reader->fresh && reader->told + 1 == feed->first + feed->n);
}

const struct mr_job_event *feed_last(const struct feed_reader *reader)
{
    return reader->feed != NULL ? reader->feed->last : NULL;
}
