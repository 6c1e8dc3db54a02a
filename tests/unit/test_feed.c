/* SPDX-License-Identifier: Apache-2.0 */
/* Feeds of jobs: who joins sees what, who is slow misses what, and nothing is left behind. The service is a stand-in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/feed.h"

/* ---- a service that says what the test tells it to ------------------------------------------- */

struct mr_job_watch {
    struct mr_job_watch_options options;
    char id[MR_JOB_ID_MAX + 1];
};

enum { WATCHES_MAX = 8 };
static struct mr_job_watch *watches[WATCHES_MAX];
static size_t watches_n, live_events;

struct mr_job_event *mr_job_event_ref(struct mr_job_event *event)
{
    event->job.info.running++; /* counts them here */
    return event;
}

void mr_job_event_unref(struct mr_job_event *event)
{
    if (event == NULL || --event->job.info.running > 0)
        return;
    live_events--;
    free(event);
}

enum mr_err mr_job_service_watch(struct mr_job_service *service,
                                 const struct mr_job_watch_options *options,
                                 struct mr_job_watch **ret_watch)
{
    (void)service;
    struct mr_job_watch *watch = calloc(1, sizeof *watch);
    assert_non_null(watch);
    assert_true(watches_n < WATCHES_MAX);
    watch->options = *options;
    memcpy(watch->id, options->id.data, options->id.len);
    watches[watches_n++] = watch;
    *ret_watch = watch;
    return MR_OK;
}

void mr_job_watch_free(struct mr_job_watch *watch)
{
    for (size_t i = 0; i < watches_n; i++)
        if (watches[i] == watch)
            watches[i] = watches[--watches_n];
    free(watch);
}

/* To the newest watch: a version of the job. */
static void tell_state(struct mr_job_watch *watch, uint64_t version, enum mr_job_state state,
                       bool end)
{
    struct mr_job_event *event = calloc(1, sizeof *event);
    assert_non_null(event);
    live_events++;
    event->job.info.version = version;
    event->job.info.state = state;
    event->end = end;
    (void)mr_job_event_ref(event);
    watch->options.event(event, watch->options.arg);
    mr_job_event_unref(event);
    if (end)
        watch->options.ended(MR_OK, watch->options.arg);
}

static void tell(struct mr_job_watch *watch, uint64_t version, bool end)
{
    tell_state(watch, version, MR_JOB_CREATED, end);
}

/* ---- the thread ------------------------------------------------------------------------------- */

static struct feeds feeds;
static struct mr_msg *first, **last = &first;

static void post(struct feeds *to, struct mr_msg *msg)
{
    assert_ptr_equal(to, &feeds);
    msg->next = NULL;
    *last = msg;
    last = &msg->next;
}

static void turn(void)
{
    struct mr_msg *msg = first;
    first = NULL;
    last = &first;
    for (struct mr_msg *next; msg != NULL; msg = next) {
        next = msg->next;
        msg->deliver(msg, NULL);
    }
}

static enum mr_err encode(const struct mr_job_event *event, struct mr_buf *buf)
{
    return mr_buf_printf(buf, "%llu", (unsigned long long)event->job.info.version);
}

struct reader {
    struct feed_reader head;
    unsigned ready;
};

static void on_ready(struct feed_reader *head)
{
    mr_container(head, struct reader, head)->ready++;
}

#define JOIN(name, after)                                                                          \
    struct reader name = {.head.ready = on_ready};                                                 \
    assert_int_equal(feed_join(&feeds, mr_slice_str("job"), after, &(name).head), MR_OK)

/* What it takes now, one behind the other: "3 4 5 ". */
static const char *take(struct reader *reader)
{
    static char text[64];
    struct mr_slice bytes;
    size_t len = 0;
    text[0] = '\0';
    while (len < sizeof text - 24 && feed_next(&reader->head, &bytes))
        len += (size_t)snprintf(text + len, sizeof text - len, "%.*s ", (int)bytes.len,
                                (const char *)bytes.data);
    return text;
}

static int setup(void **state)
{
    (void)state;
    feeds_init(&feeds, post, encode);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    turn();
    assert_int_equal(watches_n, 0);
    assert_int_equal(live_events, 0);
    assert_true(mr_list_empty(&feeds.list));
    return 0;
}

/* ---- tests ------------------------------------------------------------------------------------ */

static void who_joins_begins_with_how_it_is(void **state)
{
    (void)state;
    JOIN(early, 0);
    assert_string_equal(take(&early), "");
    tell(watches[0], 5, false);
    tell(watches[0], 6, false);
    turn();
    assert_int_equal(early.ready, 2);
    assert_string_equal(take(&early), "6 "); /* it had taken none: it begins with the newest */
    JOIN(late, 0);
    assert_int_equal(watches_n, 1); /* one for both */
    assert_string_equal(take(&late), "6 ");
    tell(watches[0], 7, false);
    tell(watches[0], 8, false);
    turn();
    assert_string_equal(take(&late), "7 8 ");
    assert_string_equal(take(&early), "7 8 ");
    feed_leave(&early.head);
    feed_leave(&early.head);
    feed_leave(&late.head);
}

static void who_comes_back_misses_nothing_and_has_nothing_twice(void **state)
{
    (void)state;
    JOIN(stays, 0);
    for (uint64_t version = 5; version <= 9; version++)
        tell(watches[0], version, false);
    turn();
    JOIN(back, 6);
    assert_int_equal(watches_n, 1);
    assert_string_equal(take(&back), "7 8 9 ");
    JOIN(newest, 9);
    assert_string_equal(take(&newest), "");
    JOIN(older, 2); /* before what is kept here: the service has it */
    assert_int_equal(watches_n, 2);
    assert_int_equal(watches[1]->options.after, 2);
    tell(watches[1], 3, false);
    tell(watches[1], 4, false);
    turn();
    assert_string_equal(take(&older), "3 4 ");
    feed_leave(&stays.head);
    feed_leave(&back.head);
    feed_leave(&newest.head);
    feed_leave(&older.head);
}

static void where_versions_are_not_kept_any_more_it_goes_on_with_the_first_there_is(void **state)
{
    (void)state;
    JOIN(back, 2);
    tell(watches[0], 40, false);
    tell(watches[0], 41, false);
    turn();
    assert_string_equal(take(&back), "40 41 ");
    JOIN(future, 90); /* a version that never was */
    tell(watches[1], 41, false);
    turn();
    assert_string_equal(take(&future), "41 ");
    feed_leave(&back.head);
    feed_leave(&future.head);
}

static void who_is_far_behind_goes_on_with_the_newest(void **state)
{
    (void)state;
    JOIN(slow, 0);
    tell(watches[0], 1, false);
    turn();
    assert_string_equal(take(&slow), "1 ");
    for (uint64_t version = 2; version <= 5000; version++)
        tell(watches[0], version, false);
    turn();
    assert_string_equal(take(&slow), "5000 ");
    tell(watches[0], 5001, false);
    turn();
    assert_string_equal(take(&slow), "5001 ");
    feed_leave(&slow.head);
}

/* As many readers do; then it takes what there is. */
static const char *take_thin(struct reader *reader)
{
    static char text[64];
    struct mr_slice bytes;
    size_t len = 0;
    text[0] = '\0';
    for (;;) {
        feed_skip(&reader->head);
        if (!feed_next(&reader->head, &bytes))
            return text;
        len += (size_t)snprintf(text + len, sizeof text - len, "%.*s ", (int)bytes.len,
                                (const char *)bytes.data);
        assert_true(len < sizeof text);
    }
}

static void who_leaves_out_what_lies_between_sees_each_state_and_the_newest(void **state)
{
    (void)state;
    JOIN(thin, 0);
    feed_skip(&thin.head); /* nothing is there yet */
    tell(watches[0], 1, false);
    turn();
    assert_string_equal(take_thin(&thin), "1 ");
    feed_skip(&thin.head);
    for (uint64_t version = 2; version <= 60; version++)
        tell_state(watches[0], version, version < 20 ? MR_JOB_CREATED : MR_JOB_RUNNING, false);
    turn();
    assert_int_equal(feed_bytes(&thin.head), 2 * 59); /* by the newest, which has two digits */
    JOIN(all, 55);
    assert_string_equal(take(&all), "56 57 58 59 60 ");
    assert_int_equal(feed_bytes(&all.head), 0);
    assert_string_equal(take_thin(&thin), "20 60 ");
    assert_int_equal(feed_bytes(&thin.head), 0);
    assert_string_equal(take_thin(&thin), "");
    tell_state(watches[0], 61, MR_JOB_RUNNING, false);
    turn();
    JOIN(fresh, 0);
    assert_int_equal(feed_bytes(&fresh.head), 2);
    assert_string_equal(take_thin(&fresh), "61 ");
    for (uint64_t version = 62; version <= 70; version++)
        tell_state(watches[0], version, MR_JOB_RUNNING, false);
    tell_state(watches[0], 71, MR_JOB_SUCCEEDED, true);
    turn();
    assert_string_equal(take_thin(&thin), "71 ");
    feed_leave(&thin.head);
    feed_leave(&all.head);
    feed_leave(&fresh.head);
}

static void who_leaves_out_what_lies_between_may_be_further_behind_than_the_feed(void **state)
{
    (void)state;
    JOIN(slow, 0);
    tell(watches[0], 1, false);
    turn();
    assert_string_equal(take_thin(&slow), "1 ");
    for (uint64_t version = 2; version <= 5000; version++)
        tell(watches[0], version, false);
    turn();
    assert_int_equal(feed_bytes(&slow.head), 4); /* one: the newest */
    assert_string_equal(take_thin(&slow), "5000 ");
    feed_leave(&slow.head);
}

static void who_rests_is_called_when_it_has_taken_something_or_the_job_ended(void **state)
{
    (void)state;
    JOIN(rests, 0);
    JOIN(other, 0);
    tell(watches[0], 1, false);
    turn();
    feed_rest(&rests.head);
    feed_rest(&rests.head);
    tell(watches[0], 2, false);
    turn();
    assert_int_equal(rests.ready, 1);
    assert_int_equal(other.ready, 2);
    assert_string_equal(take(&rests), "2 ");
    tell(watches[0], 3, false);
    turn();
    assert_int_equal(rests.ready, 2);
    feed_rest(&rests.head);
    feed_leave(&other.head); /* the feed lives as long as one rests */
    tell(watches[0], 4, true);
    turn();
    assert_int_equal(rests.ready, 4); /* the end, and that it is over */
    assert_string_equal(take(&rests), "3 4 ");
    feed_leave(&rests.head);
}

static void it_is_over_when_the_end_was_taken(void **state)
{
    (void)state;
    enum mr_err err = MR_FAILED;
    JOIN(one, 0);
    tell(watches[0], 3, false);
    tell(watches[0], 4, true);
    turn();
    assert_false(feed_is_over(&one.head, &err));
    assert_string_equal(take(&one), "4 ");
    assert_true(feed_is_over(&one.head, &err));
    assert_int_equal(err, MR_OK);
    JOIN(another, 0); /* of one that is over nobody joins: it may have been retried since */
    assert_int_equal(watches_n, 2);
    watches[1]->options.ended(MR_NOT_FOUND, watches[1]->options.arg);
    turn();
    assert_true(feed_is_over(&another.head, &err));
    assert_int_equal(err, MR_NOT_FOUND);
    assert_null(feed_last(&another.head));
    feed_leave(&one.head);
    feed_leave(&another.head);
}

static void what_comes_after_all_have_left_harms_nobody(void **state)
{
    (void)state;
    JOIN(gone, 0);
    tell(watches[0], 1, false);
    tell(watches[0], 2, true);
    feed_leave(&gone.head); /* what was said is still on its way */
    turn();
    assert_int_equal(gone.ready, 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(who_joins_begins_with_how_it_is),
        TEST(who_comes_back_misses_nothing_and_has_nothing_twice),
        TEST(where_versions_are_not_kept_any_more_it_goes_on_with_the_first_there_is),
        TEST(who_is_far_behind_goes_on_with_the_newest),
        TEST(who_leaves_out_what_lies_between_sees_each_state_and_the_newest),
        TEST(who_leaves_out_what_lies_between_may_be_further_behind_than_the_feed),
        TEST(who_rests_is_called_when_it_has_taken_something_or_the_job_ended),
        TEST(it_is_over_when_the_end_was_taken),
        TEST(what_comes_after_all_have_left_harms_nobody),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
