/* SPDX-License-Identifier: Apache-2.0 */
/* Groups by the clock, on virtual time: ripe to the millisecond, and what waits is told then. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "sim/rig.h"
#include "unit/store_rig.h"

enum { LATE_MS = 2 }; /* a tick of the wheel and its rounding */

struct waiting {
    struct mr_req_gather req;
    struct store_rig *f;
    int64_t at_ms; /* 0: no answer so far */
};

static void answered(struct mr_req *req)
{
    struct waiting *waiting = mr_container(req, struct waiting, req.req);
    waiting->at_ms = rig_wall_ms(&waiting->f->rig);
}

static int64_t join(struct store_rig *f, const char *group)
{
    struct mr_task_options task = {.group = mr_slice_str(group)};
    struct mr_enqueue_result result;
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = &task, .n = 1, .results = &result};
    assert_int_equal(rig_call(&f->rig, &req.req), MR_OK);
    assert_int_equal(result.err, MR_OK);
    mr_req_done(&req.req);
    return rig_wall_ms(&f->rig);
}

static void gather_start(struct store_rig *f, struct waiting *waiting, struct mr_req_gather rule)
{
    *waiting = (struct waiting){.req = rule, .f = f};
    waiting->req.req = (struct mr_req){.op = MR_OP_GATHER, .done = answered};
    waiting->req.queue = MR_SLICE_LIT("default");
    waiting->req.wait_ms = MR_MS_PER_DAY;
    rig_submit(&f->rig, &waiting->req.req);
}

static void pass_ms(struct store_rig *f, int64_t ms)
{
    rig_run(&f->rig, f->rig.clock.mono_ns + ms * MR_NS_PER_MS);
}

static void grace_counts_from_the_last_who_joined(void **state)
{
    struct store_rig *f = *state;
    struct waiting waiting;
    store_rig_open(f);
    gather_start(f, &waiting, (struct mr_req_gather){.grace_ms = 700});
    int64_t last = join(f, "a");
    for (int i = 0; i < 5; i++) {
        pass_ms(f, 600);
        assert_int_equal(waiting.at_ms, 0);
        last = join(f, "a");
    }
    pass_ms(f, 5000);
    assert_in_range(waiting.at_ms, last + 700, last + 700 + LATE_MS);
    assert_int_equal(waiting.req.n, 6);
    mr_req_done(&waiting.req.req);
}

static void delay_counts_from_the_first_who_joined(void **state)
{
    struct store_rig *f = *state;
    struct waiting waiting;
    store_rig_open(f);
    gather_start(f, &waiting, (struct mr_req_gather){.max_delay_ms = 2500, .grace_ms = 100000});
    int64_t first = join(f, "a");
    for (int i = 0; i < 6; i++) {
        pass_ms(f, 500);
        (void)join(f, i % 2 ? "a" : "b");
    }
    assert_in_range(waiting.at_ms, first + 2500, first + 2500 + LATE_MS);
    assert_string_equal(waiting.req.group, "a");
    mr_req_done(&waiting.req.req);
}

static void a_set_is_back_when_its_time_is_over_and_not_before(void **state)
{
    struct store_rig *f = *state;
    struct waiting first, second;
    store_rig_open(f);
    (void)join(f, "a");
    gather_start(f, &first, (struct mr_req_gather){.max_size = 1, .grace_ms = 100000});
    pass_ms(f, 10);
    assert_true(first.at_ms > 0);
    gather_start(f, &second, (struct mr_req_gather){.max_size = 1, .grace_ms = 100000});
    pass_ms(f, MR_SET_MS - 20);
    assert_int_equal(second.at_ms, 0);
    pass_ms(f, 100);
    assert_in_range(second.at_ms, first.at_ms + MR_SET_MS, first.at_ms + MR_SET_MS + LATE_MS);
    mr_req_done(&first.req.req);
    mr_req_done(&second.req.req);
}

static void a_clock_that_is_set_ahead_is_noticed_within_a_second(void **state)
{
    struct store_rig *f = *state;
    struct waiting waiting;
    store_rig_open(f);
    (void)join(f, "a");
    gather_start(f, &waiting, (struct mr_req_gather){.grace_ms = 3600 * 1000});
    pass_ms(f, 5000);
    assert_int_equal(waiting.at_ms, 0);
    rig_jump(&f->rig, 3600 * MR_MS_PER_S * MR_US_PER_MS);
    pass_ms(f, 1100);
    assert_true(waiting.at_ms > 0);
    mr_req_done(&waiting.req.req);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, store_rig_begin, store_rig_end)

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        TEST(grace_counts_from_the_last_who_joined),
        TEST(delay_counts_from_the_first_who_joined),
        TEST(a_set_is_back_when_its_time_is_over_and_not_before),
        TEST(a_clock_that_is_set_ahead_is_noticed_within_a_second),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
