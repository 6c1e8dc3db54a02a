/* SPDX-License-Identifier: Apache-2.0 */
/* A desk without a service, and its intake at a broker that can be told to misbehave. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "desk/intake.h"
#include "support/fake_broker.h"
#include "support/look.h"

enum { AGAIN_MS = 20, PATIENCE_MS = 20000 };

/* What the desk's thread does and counts; the test's looks on. */
struct office {
    struct mr_desk desk;
    struct mr_intake intake;
    struct fake *fake;
    struct mr_msg begin_msg, end_msg;
    struct mr_timer timer;
    _Atomic bool refuses, holds; /* what is written fails; is not answered */
    _Atomic bool stops;
    _Atomic unsigned writes, read, ends, troubles, committed, fired;
    _Atomic int64_t fired_ns;
    struct mr_intake_batch *held;
};

#define UNTIL(condition)                                                                           \
    do {                                                                                           \
        mr_mono since_ = mr_mono_now(mr_clock_system());                                           \
        while (!(condition))                                                                       \
            assert_true(look_again(since_, look_most_ms(PATIENCE_MS)));                            \
    } while (0)

/* ---- the service ----------------------------------------------------------------------------- */

static void turn(void *service)
{
    struct office *office = service;
    if (office->held != NULL && !office->holds) {
        struct mr_intake_batch *batch = office->held;
        office->held = NULL;
        mr_intake_written(batch, MR_OK, AGAIN_MS);
    }
}

static int64_t rest_ns(const void *service)
{
    (void)service;
    return 5 * MR_NS_PER_MS;
}

static void stop(void *service)
{
    struct office *office = service;
    office->holds = false;
    office->stops = true;
    mr_intake_end(&office->intake);
}

static enum mr_err begin_batch(struct mr_intake_batch *batch, size_t n)
{
    batch->of = calloc(n, 1);
    return batch->of != NULL ? MR_OK : MR_NOMEM;
}

static void read_one(struct mr_intake_batch *batch, const struct mr_result *result)
{
    struct office *office = batch->intake->of;
    assert_true(mr_slice_equal(result->task_id, MR_SLICE_LIT("a")));
    office->read++;
}

static void write_batch(struct mr_intake_batch *batch)
{
    struct office *office = batch->intake->of;
    bool refuses = office->refuses;
    office->writes++;
    if (office->holds)
        office->held = batch;
    else
        mr_intake_written(batch, refuses ? MR_IO : MR_OK, AGAIN_MS);
}

static void note_committed(struct mr_intake_batch *batch)
{
    struct office *office = batch->intake->of;
    office->committed++;
}

static void end_batch(struct mr_intake_batch *batch)
{
    struct office *office = batch->intake->of;
    office->ends += batch->of != NULL;
    free(batch->of);
}

static void note_trouble(struct mr_intake *intake, enum mr_err err)
{
    struct office *office = intake->of;
    (void)err;
    office->troubles++;
}

static const struct mr_intake_calls calls = {
    .begin = begin_batch,
    .read = read_one,
    .write = write_batch,
    .committed = note_committed,
    .end = end_batch,
    .trouble = note_trouble,
};

static void begin_intake(struct mr_msg *msg, void *receiver)
{
    struct office *office = receiver;
    (void)msg;
    mr_intake_begin(&office->intake, "news", 300);
    mr_intake_begin(&office->intake, "news", 300); /* it is on already */
}

static void end_intake(struct mr_msg *msg, void *receiver)
{
    struct office *office = receiver;
    (void)msg;
    mr_intake_end(&office->intake);
    mr_intake_end(&office->intake);
}

/* ---- around the tests ------------------------------------------------------------------------ */

static int setup(void **state)
{
    struct office *office = calloc(1, sizeof *office);
    assert_non_null(office);
    office->fake = fake_new();
    assert_int_equal(
        mr_desk_init(&office->desk, &(struct mr_desk_options){.broker = fake_broker(office->fake),
                                                              .node = "here",
                                                              .thread = "mr-desk",
                                                              .service = office,
                                                              .turn = turn,
                                                              .rest_ns = rest_ns,
                                                              .stop = stop}),
        MR_OK);
    mr_intake_init(&office->intake, &office->desk, &calls, office);
    office->begin_msg.deliver = begin_intake;
    office->end_msg.deliver = end_intake;
    assert_int_equal(mr_desk_start(&office->desk), MR_OK);
    *state = office;
    return 0;
}

static int teardown(void **state)
{
    struct office *office = *state;
    mr_desk_stop(&office->desk);
    assert_int_equal(office->desk.under_way, 0);
    mr_desk_done(&office->desk);
    fake_free(office->fake);
    free(office);
    return 0;
}

/* A task of the fake broker that is a result of task "a"; its bytes are freed by the test. */
static size_t add_result(struct office *office, struct mr_buf *bytes)
{
    struct mr_result result = {
        .task_id = MR_SLICE_LIT("a"), .topic = MR_SLICE_LIT("news"), .final = true};
    assert_int_equal(mr_result_encode(&result, bytes), MR_OK);
    return fake_add(office->fake, &(struct mr_task){.type = MR_SLICE_LIT("result"),
                                                    .payload = mr_buf_slice(bytes)});
}

/* The same, while nothing can be written. */
static size_t begin_refusing(struct office *office, struct mr_buf *bytes)
{
    office->refuses = true;
    size_t result = add_result(office, bytes);
    mr_desk_send(&office->desk, &office->begin_msg);
    return result;
}

/* ---- desks ----------------------------------------------------------------------------------- */

static void each_life_of_a_desk_is_another_owner(void **state)
{
    struct office *office = *state;
    struct mr_desk other;
    assert_int_equal(mr_desk_init(&other, &office->desk.options), MR_OK);
    assert_memory_equal(office->desk.owner, "here/", 5);
    assert_memory_equal(other.owner, "here/", 5);
    assert_string_not_equal(office->desk.owner, other.owner);
    mr_desk_done(&other);
}

static void fire(struct mr_timer *timer, void *arg)
{
    struct office *office = arg;
    (void)timer;
    office->fired_ns = mr_mono_now(office->desk.clock).ns;
    office->fired++;
}

static void start_timer(struct mr_msg *msg, void *receiver)
{
    struct office *office = receiver;
    (void)msg;
    mr_timer_init(&office->timer, fire);
    mr_desk_after(&office->desk, &office->timer, 30);
}

static void a_timer_fires_once_and_is_never_early(void **state)
{
    struct office *office = *state;
    struct mr_msg msg = {.deliver = start_timer};
    mr_mono since = mr_mono_now(office->desk.clock);
    mr_desk_send(&office->desk, &msg);
    UNTIL(office->fired > 0);
    assert_true(office->fired_ns - since.ns >= 30 * MR_NS_PER_MS);
    assert_int_equal(office->fired, 1);
}

static void hold(struct mr_msg *msg, void *receiver)
{
    struct office *office = receiver;
    (void)msg;
    mr_desk_hold(&office->desk);
}

static void release(struct mr_msg *msg, void *receiver)
{
    struct office *office = receiver;
    (void)msg;
    mr_desk_release(&office->desk);
    office->fired++;
}

static void *release_later(void *arg)
{
    struct office *office = arg;
    static struct mr_msg msg = {.deliver = release};
    mr_mono since = mr_mono_now(office->desk.clock);
    while (!office->stops && look_again(since, look_most_ms(PATIENCE_MS)))
        ;
    mr_desk_send(&office->desk, &msg);
    return NULL;
}

/* What is under way when it is told to stop is waited for. */
static void a_desk_stops_when_nothing_is_under_way(void **state)
{
    struct office *office;
    struct mr_msg msg = {.deliver = hold};
    pthread_t thread;
    (void)state;
    assert_int_equal(setup((void **)&office), 0);
    mr_desk_send(&office->desk, &msg);
    assert_int_equal(mr_thread_start(&thread, "later", release_later, office), MR_OK);
    mr_desk_stop(&office->desk);
    mr_thread_join(thread);
    assert_int_equal(office->fired, 1);
    mr_desk_done(&office->desk);
    fake_free(office->fake);
    free(office);
}

/* ---- intakes --------------------------------------------------------------------------------- */

static void what_is_no_result_is_committed_unseen_and_a_result_once_it_is_written(void **state)
{
    struct office *office = *state;
    struct mr_buf bytes = {0};
    office->holds = true;
    size_t result = add_result(office, &bytes);
    size_t other = fake_add(office->fake, &(struct mr_task){.type = MR_SLICE_LIT("no result"),
                                                            .payload = MR_SLICE_LIT("\xff")});
    mr_desk_send(&office->desk, &office->begin_msg);
    UNTIL(office->writes == 1);
    assert_int_equal(office->read, 1);
    assert_int_equal(fake_look(office->fake, result).finishes, 0);
    office->holds = false;
    fake_await_ended(office->fake, 2);
    UNTIL(office->committed == 1 && office->ends == 1);
    assert_int_equal(fake_look(office->fake, result).outcome, MR_DONE);
    assert_int_equal(fake_look(office->fake, other).finishes, 1);
    assert_int_equal(office->writes, 1);
    assert_int_equal(office->troubles, 0);
    mr_buf_done(&bytes);
}

static void what_cannot_be_written_is_tried_again(void **state)
{
    struct office *office = *state;
    struct mr_buf bytes = {0};
    size_t result = begin_refusing(office, &bytes);
    UNTIL(office->writes >= 3);
    assert_int_equal(fake_look(office->fake, result).finishes, 0);
    assert_int_equal(office->ends, 0);
    office->refuses = false;
    fake_await_ended(office->fake, 1);
    UNTIL(office->ends == 1);
    assert_int_equal(office->troubles, office->writes - 1);
    mr_buf_done(&bytes);
}

/* What was in its hands goes back with the node: nobody commits it under the next one. */
static void a_node_that_is_gone_is_opened_again_without_what_it_held(void **state)
{
    struct office *office = *state;
    struct mr_buf bytes = {0};
    size_t result = begin_refusing(office, &bytes);
    UNTIL(office->writes >= 1);
    fake_answer_beats(office->fake, MR_NOT_FOUND);
    UNTIL(office->ends == 1);
    office->refuses = false;
    fake_answer_beats(office->fake, MR_OK);
    fake_await_nodes(office->fake, 2);
    fake_await_more_beats(office->fake, 2);
    assert_int_equal(office->committed, 0);
    assert_int_equal(fake_look(office->fake, result).finishes, 0);
    mr_buf_done(&bytes);
}

static void a_commit_that_fails_ends_the_node(void **state)
{
    struct office *office = *state;
    struct mr_buf bytes = {0};
    fake_fail_finishes(office->fake, 1, MR_UNAVAILABLE);
    (void)add_result(office, &bytes);
    mr_desk_send(&office->desk, &office->begin_msg);
    fake_await_nodes(office->fake, 2);
    UNTIL(office->ends == 1 && office->troubles == 1);
    mr_buf_done(&bytes);
}

static void an_intake_that_is_ended_lets_go_of_what_waits(void **state)
{
    struct office *office = *state;
    struct mr_buf bytes = {0};
    size_t result = begin_refusing(office, &bytes);
    UNTIL(office->writes >= 1);
    mr_desk_send(&office->desk, &office->end_msg);
    UNTIL(office->ends == 1);
    unsigned writes = office->writes;
    mr_desk_send(&office->desk, &office->begin_msg); /* and begun again, by another node */
    fake_await_nodes(office->fake, 2);
    fake_await_more_beats(office->fake, 1);
    assert_int_equal(office->writes, writes);
    assert_int_equal(fake_look(office->fake, result).finishes, 0);
    mr_buf_done(&bytes);
}

int main(void)
{
#define TEST(function) cmocka_unit_test_setup_teardown(function, setup, teardown)
    const struct CMUnitTest tests[] = {
        TEST(each_life_of_a_desk_is_another_owner),
        TEST(a_timer_fires_once_and_is_never_early),
        cmocka_unit_test(a_desk_stops_when_nothing_is_under_way),
        TEST(what_is_no_result_is_committed_unseen_and_a_result_once_it_is_written),
        TEST(what_cannot_be_written_is_tried_again),
        TEST(a_node_that_is_gone_is_opened_again_without_what_it_held),
        TEST(a_commit_that_fails_ends_the_node),
        TEST(an_intake_that_is_ended_lets_go_of_what_waits),
    };
    return cmocka_run_group_tests_name("desk", tests, NULL, NULL);
}
