/* SPDX-License-Identifier: Apache-2.0 */
/* What a producer of operations on timers makes of its servers by its own clock; all else is in timers/producers.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "client/producer.h"
#include "wire/flat.h"

/* Time that passes only when the test says so. */
struct standing {
    struct mr_clock clock;
    mr_mono now;
};

static mr_mono standing_mono(struct mr_clock *clock)
{
    return mr_container(clock, struct standing, clock)->now;
}

static mr_wall standing_wall(struct mr_clock *clock)
{
    (void)clock;
    return (mr_wall){1700000000000LL * MR_US_PER_MS};
}

struct server {
    struct mr_broker broker;
    enum mr_err err; /* of each call */
    size_t asked;
};

static void server_submit(struct mr_broker *broker, struct mr_req *req)
{
    static const struct mr_timer_result good = {.err = MR_OK, .version = 7};
    struct server *server = mr_container(broker, struct server, broker);
    struct mr_req_call *call = mr_container(req, struct mr_req_call, req);
    size_t size = mr_flat_size(&mr_flat_timer_result, &good);
    uint8_t *bytes = mr_arena_alloc(&req->arena, size + 8);
    uint8_t *end = mr_flat_write(&mr_flat_timer_result, &good, mr_flat_put_head(bytes, 1, size));
    server->asked++;
    call->sent = true;
    call->answer = mr_slice_make(bytes, (size_t)(end - bytes));
    mr_req_answer(req, server->err);
}

static void count_good(enum mr_err err, const struct mr_timer_result *results, size_t n, void *arg)
{
    size_t *good = arg;
    assert_int_equal(err, MR_OK);
    assert_int_equal(n, 1);
    *good += results[0].err == MR_OK;
}

/* These servers answer before the call returns. */
static void send_ten(struct mr_producer *producer)
{
    static const struct mr_timer_op op = {
        .verb = MR_TIMER_RUN, .app = MR_SLICE_LIT("default"), .name = MR_SLICE_LIT("a")};
    size_t good = 0;
    for (size_t i = 0; i < 10; i++)
        assert_int_equal(
            mr_producer_send(producer, &op, 1, MR_TIMER_DURABLE, NULL, count_good, &good), MR_OK);
    assert_int_equal(good, 10);
}

static void a_server_that_did_not_answer_is_passed_over_for_five_seconds(void **state)
{
    static const struct mr_broker_ops ops = {.submit = server_submit};
    struct server silent = {{.ops = &ops}, MR_TIMEOUT, 0}, good = {{.ops = &ops}, MR_OK, 0};
    struct mr_broker *servers[] = {&silent.broker, &good.broker};
    struct standing standing = {{standing_mono, standing_wall}, {MR_NS_PER_S}};
    struct mr_producer_options options = {
        .servers = servers, .servers_n = 2, .clock = &standing.clock};
    struct mr_producer *producer;
    (void)state;
    assert_int_equal(mr_producer_new(&options, &producer), MR_OK);
    send_ten(producer);
    assert_int_equal(silent.asked, 1);
    standing.now = mr_mono_add_ms(standing.now, 4999);
    send_ten(producer);
    assert_int_equal(silent.asked, 1);
    standing.now = mr_mono_add_ms(standing.now, 1);
    send_ten(producer);
    assert_int_equal(silent.asked, 2);
    assert_int_equal(good.asked, 30);
    mr_producer_stop(producer);
    mr_producer_free(producer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_server_that_did_not_answer_is_passed_over_for_five_seconds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
