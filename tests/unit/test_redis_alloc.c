/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every allocation of a user of Redis fails once, those of hiredis included: calls end well or with an
 * error, and nothing is left. The loop is turned by the test and the server is another process, so that
 * nobody else allocates.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "broker/redis/internal.h"
#include "redis/internal.h"
#include "support/redis_rig.h"
#include "unit/failing_alloc.h"

enum { CALLS = 4, TEXT_LEN = 40000, TURNS_MAX = 1000 };

static const struct mr_redis_script own_scripts[] = {{.name = "echo", .text = "return ARGV"}};

struct tally {
    size_t begun, answered, good, heard;
};

static struct tally tally;
static char text[TEXT_LEN];

static void answered(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    (void)call;
    assert_non_null(reply);
    tally.answered++;
    tally.good += err == MR_OK;
}

static void heard(struct mr_redis_channel *channel, struct mr_slice bytes)
{
    (void)channel;
    tally.heard += bytes.data == NULL;
}

static struct mr_redis_call calls[CALLS];
static struct mr_redis_channel channel;

static void begin_calls(struct mr_redis *redis, struct mr_redis_lane *lane)
{
    struct mr_slice key = MR_SLICE_LIT("key"), value = mr_slice_make(text, TEXT_LEN);
    struct mr_slice set[] = {MR_SLICE_LIT("SET"), key, value};
    struct mr_slice get[] = {MR_SLICE_LIT("GET"), key};
    struct mr_slice pop[] = {MR_SLICE_LIT("BLPOP"), MR_SLICE_LIT("none"), MR_SLICE_LIT("0.01")};
    struct mr_slice args[] = {value, key, value};
    memset(calls, 0, sizeof calls);
    for (size_t i = 0; i < CALLS; i++)
        calls[i].answered = answered;
    mr_redis_send(redis, &calls[0], key, set, 3);
    mr_redis_send(redis, &calls[1], key, get, 2);
    mr_redis_eval(redis, &calls[2], 0, &key, 1, args, 3);
    if (lane != NULL)
        mr_redis_lane_send(lane, &calls[3], pop, 3);
    tally.begun = lane != NULL ? CALLS : CALLS - 1;
}

static bool is_over(const struct mr_redis *redis)
{
    return tally.answered == tally.begun && (tally.heard > 0 || redis->up);
}

static void run_once(const char *url)
{
    struct mr_redis_options options = {.url = url, .scripts = own_scripts, .scripts_n = 1};
    struct mr_redis *redis;
    struct mr_redis_lane *lane = NULL;
    tally = (struct tally){0};
    if (redis_new(&options, &redis, NULL) != MR_OK)
        return;
    redis_turn(redis, 0); /* this thread is the loop now */
    channel = (struct mr_redis_channel){.name = MR_SLICE_LIT("news"), .message = heard};
    mr_redis_subscribe(redis, &channel);
    (void)!mr_redis_lane_new(redis, MR_SLICE_LIT("none"), &lane);
    begin_calls(redis, lane);
    for (int i = 0; i < TURNS_MAX && !is_over(redis); i++)
        redis_turn(redis, INT64_MAX);
    assert_true(is_over(redis));
    mr_redis_unsubscribe(redis, &channel);
    mr_redis_lane_free(lane);
    redis_end(redis);
    assert_int_equal(tally.answered, tally.begun);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    struct redis_rig *rig = redis_rig_standalone(NULL);
    const char *url = redis_rig_url(rig);
    run_once(url);
    assert_int_equal(tally.good, CALLS);
    size_t runs = 0, good = 0;
    for (long n = 0;; n++, runs++) {
        fail_alloc_after(n);
        run_once(url);
        if (fail_alloc_stop() == 0)
            break;
        good += tally.good == CALLS;
    }
    /* Many are needed, but few for good: what breaks is made again. */
    assert_true(!FAILING_ALLOC || (runs > 50 && good > 0 && good < runs));
    redis_rig_stop(rig);
}

/* The task of a lease, of which only what needs no memory could be read. */
static void a_lease_that_cannot_be_read_says_whose_it_is(void **state)
{
    (void)state;
    struct mr_header header = {MR_SLICE_LIT("trace"), MR_SLICE_LIT("1")};
    struct mr_asynq_task message = {.type = MR_SLICE_LIT("mail"),
                                    .id = MR_SLICE_LIT("told"),
                                    .queue = MR_SLICE_LIT("q"),
                                    .headers = &header,
                                    .headers_n = 1};
    struct mr_buf bytes = {0};
    struct mr_task task = {.epoch = 7};
    struct mr_lease *lease;
    assert_int_equal(mr_asynq_task_encode(&message, &bytes), MR_OK);
    assert_int_equal(message_lease(&task, mr_buf_slice(&bytes), &lease), MR_OK);
    for (long n = 0;; n++) {
        fail_alloc_after(n);
        enum mr_err err = message_lease_open(NULL, lease);
        long failed = fail_alloc_stop();
        assert_int_equal(err, failed ? MR_NOMEM : MR_OK);
        assert_true(mr_slice_equal(lease->task.id, MR_SLICE_LIT("told")));
        if (failed == 0)
            break;
        assert_int_equal(lease->task.headers_n, 0);
        assert_true(n < 10);
    }
    assert_true(mr_slice_equal(lease->task.headers[0].value, MR_SLICE_LIT("1")));
    mr_lease_free(lease);
    mr_buf_done(&bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(a_lease_that_cannot_be_read_says_whose_it_is),
    };
    return cmocka_run_group_tests_name("redis: out of memory", tests, NULL, NULL);
}
