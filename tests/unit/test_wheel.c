/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The timing wheel: by hand-made cases, against a naive model with random steps (MR_TEST_SEED
 * repeats a run), and with as many timers as it is meant for.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/rand.h"
#include "wheel/wheel.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { MANY_TIMERS = 1000 * 1000 };
#else
enum { MANY_TIMERS = 10 * 1000 * 1000 };
#endif
enum { MANY_SECONDS_MAX = 60 }; /* it takes a few; a wheel that is not O(1) takes hours */

/* ---- cases by hand -------------------------------------------------------------------------- */

/* A timer that writes down its firing. */
struct noted {
    struct mr_timer timer;
    int id;
};

struct notes {
    struct mr_wheel *wheel;
    int ids[64];
    size_t n;
    struct noted *other; /* for fire functions that act on another timer */
};

static void note(struct mr_timer *timer, void *arg)
{
    struct notes *notes = arg;
    assert_false(mr_timer_running(timer));
    assert_true(notes->n < sizeof notes->ids / sizeof notes->ids[0]);
    notes->ids[notes->n++] = mr_container(timer, struct noted, timer)->id;
}

static struct mr_wheel *wheel_at(uint64_t now)
{
    struct mr_wheel *wheel;
    assert_int_equal(mr_wheel_new(now, &wheel), MR_OK);
    return wheel;
}

static void make_noted(struct noted *timers, int n)
{
    for (int i = 0; i < n; i++) {
        mr_timer_init(&timers[i].timer, note);
        timers[i].id = i;
    }
}

static void wheel_never_fires_early(void **state)
{
    (void)state;
    static const uint64_t spans[] = {1,    2,    63,   64,       65,
                                     4095, 4096, 4097, 1u << 30, UINT64_C(1) << 60};
    static const uint64_t starts[] = {0, 1, 62, 63, 64, 4095, UINT64_C(0x3ffffffff)};
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++) {
        for (size_t k = 0; k < sizeof spans / sizeof spans[0]; k++) {
            struct mr_wheel *wheel = wheel_at(starts[i]);
            struct noted timer;
            struct notes notes = {.wheel = wheel};
            make_noted(&timer, 1);
            uint64_t due = starts[i] + spans[k];
            mr_wheel_start(wheel, &timer.timer, due);
            mr_wheel_validate(wheel);
            assert_int_equal(mr_wheel_advance(wheel, due - 1, &notes), 0);
            mr_wheel_validate(wheel);
            assert_true(mr_timer_running(&timer.timer));
            assert_int_equal(mr_wheel_next(wheel), due);
            assert_int_equal(mr_wheel_advance(wheel, due, &notes), 1);
            assert_false(mr_timer_running(&timer.timer));
            mr_wheel_free(wheel);
        }
    }
}

static void wheel_fires_in_order_of_due_and_then_of_start(void **state)
{
    (void)state;
    static const uint64_t dues[] = {70000, 5, 70000, 300, 5, 70001, 64, 0, 3};
    static const int order[] = {7, 8, 1, 4, 6, 3, 0, 2, 5};
    enum { N = sizeof dues / sizeof dues[0] };
    struct mr_wheel *wheel = wheel_at(0);
    struct noted timers[N];
    struct notes notes = {.wheel = wheel};
    make_noted(timers, N);
    for (int i = 0; i < N; i++)
        mr_wheel_start(wheel, &timers[i].timer, dues[i]);
    assert_int_equal(mr_wheel_advance(wheel, 100000, &notes), N);
    assert_memory_equal(notes.ids, order, sizeof order);
    assert_int_equal(mr_wheel_next(wheel), MR_TICK_NEVER);
    mr_wheel_free(wheel);
}

static void a_due_that_has_passed_fires_at_the_next_advance_in_order_of_due(void **state)
{
    (void)state;
    static const uint64_t dues[] = {900, 1000, 3, 900, 1001, 17, 0};
    static const int order[] = {6, 2, 5, 0, 3, 1};
    enum { N = sizeof dues / sizeof dues[0] };
    struct mr_wheel *wheel = wheel_at(1000);
    struct noted timers[N];
    struct notes notes = {.wheel = wheel};
    make_noted(timers, N);
    for (int i = 0; i < N; i++)
        mr_wheel_start(wheel, &timers[i].timer, dues[i]);
    mr_wheel_validate(wheel);
    assert_int_equal(mr_wheel_next(wheel), 1001);
    assert_int_equal(mr_wheel_advance(wheel, 1000, &notes), 6);
    assert_memory_equal(notes.ids, order, sizeof order);
    assert_true(mr_timer_running(&timers[4].timer));
    mr_wheel_free(wheel);
}

static void stopping_and_moving_timers_leaves_nothing_behind(void **state)
{
    (void)state;
    struct mr_wheel *wheel = wheel_at(7);
    struct noted timers[3];
    struct notes notes = {.wheel = wheel};
    make_noted(timers, 3);
    mr_wheel_stop(wheel, &timers[0].timer); /* not running: fine */
    mr_wheel_start(wheel, &timers[0].timer, 500000);
    mr_wheel_start(wheel, &timers[1].timer, 3); /* passed */
    mr_wheel_start(wheel, &timers[2].timer, 10);
    mr_wheel_start(wheel, &timers[0].timer, 20); /* moved */
    mr_wheel_stop(wheel, &timers[1].timer);
    mr_wheel_stop(wheel, &timers[2].timer);
    mr_wheel_validate(wheel);
    assert_int_equal(mr_wheel_next(wheel), 20);
    assert_int_equal(mr_wheel_advance(wheel, UINT64_C(1) << 40, &notes), 1);
    assert_int_equal(notes.ids[0], 0);
    assert_int_equal(mr_wheel_next(wheel), MR_TICK_NEVER);
    mr_wheel_free(wheel);
}

static void restart_at_once(struct mr_timer *timer, void *arg)
{
    note(timer, arg);
    mr_wheel_start(((struct notes *)arg)->wheel, timer, 0);
}

static void a_timer_that_restarts_itself_in_the_past_fires_once_per_advance(void **state)
{
    (void)state;
    struct mr_wheel *wheel = wheel_at(0);
    struct noted timer;
    struct notes notes = {.wheel = wheel};
    mr_timer_init(&timer.timer, restart_at_once);
    timer.id = 1;
    mr_wheel_start(wheel, &timer.timer, 5);
    for (uint64_t i = 1; i <= 3; i++) {
        assert_int_equal(mr_wheel_advance(wheel, 10, &notes), 1);
        assert_int_equal(mr_wheel_next(wheel), 11);
        mr_wheel_validate(wheel);
    }
    mr_wheel_free(wheel);
}

static void stop_other(struct mr_timer *timer, void *arg)
{
    struct notes *notes = arg;
    note(timer, arg);
    mr_wheel_stop(notes->wheel, &notes->other->timer);
    mr_wheel_validate(notes->wheel);
}

static void a_fire_function_may_stop_a_timer_of_the_same_tick(void **state)
{
    (void)state;
    struct mr_wheel *wheel = wheel_at(0);
    struct noted timers[3];
    make_noted(timers, 3);
    struct notes notes = {.wheel = wheel, .other = &timers[1]};
    timers[0].timer.fire = stop_other;
    for (int i = 0; i < 3; i++)
        mr_wheel_start(wheel, &timers[i].timer, 4096);
    assert_int_equal(mr_wheel_advance(wheel, 5000, &notes), 2);
    assert_int_equal(notes.ids[0], 0);
    assert_int_equal(notes.ids[1], 2);
    mr_wheel_validate(wheel);
    mr_wheel_free(wheel);
}

static void the_last_tick_of_all_is_a_tick_like_others(void **state)
{
    (void)state;
    struct mr_wheel *wheel = wheel_at(0);
    struct noted timers[2];
    struct notes notes = {.wheel = wheel};
    make_noted(timers, 2);
    mr_wheel_start(wheel, &timers[0].timer, UINT64_MAX);
    assert_int_equal(mr_wheel_advance(wheel, UINT64_MAX - 1, &notes), 0);
    assert_int_equal(mr_wheel_advance(wheel, UINT64_MAX, &notes), 1);
    mr_wheel_start(wheel, &timers[1].timer, 1);
    assert_int_equal(mr_wheel_next(wheel), MR_TICK_NEVER);
    assert_int_equal(mr_wheel_advance(wheel, UINT64_MAX, &notes), 1);
    mr_wheel_free(wheel);
}

/* ---- model ---------------------------------------------------------------------------------- */

enum { MODEL_ROUNDS = 20, MODEL_STEPS = 5000, MODEL_TIMERS = 200 };

struct model_timer {
    struct mr_timer timer;
    bool running;
    bool deferred; /* started by a fire function with a due that had come: not in this advance */
    uint64_t due;
    uint64_t started; /* counts starts: orders equal dues */
};

struct model {
    struct mr_wheel *wheel;
    struct mr_rand rand;
    uint64_t tick;   /* where the wheel is, also in the middle of an advance */
    uint64_t target; /* of the advance */
    uint64_t starts;
    bool advancing;
    struct model_timer timers[MODEL_TIMERS];
};

/* Any magnitude is as likely as any other. */
static uint64_t some_span(struct model *model, unsigned bits_max)
{
    uint64_t bits = mr_rand_below(&model->rand, bits_max + 1);
    return bits == 0 ? 0 : mr_rand_next(&model->rand) >> (64 - bits);
}

static uint64_t add_saturated(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}

static struct model_timer *some_timer(struct model *model)
{
    return &model->timers[mr_rand_below(&model->rand, MODEL_TIMERS)];
}

static void model_start(struct model *model, struct model_timer *timer)
{
    uint64_t span = some_span(model, mr_rand_one_in(&model->rand, 4) ? 64 : 16);
    bool passed = mr_rand_one_in(&model->rand, 8);
    timer->due = passed ? model->tick - (span < model->tick ? span : model->tick)
                        : add_saturated(model->tick, span);
    timer->running = true;
    timer->started = model->starts++;
    timer->deferred = model->advancing && timer->due <= model->tick;
    mr_wheel_start(model->wheel, &timer->timer, timer->due);
}

static void model_stop(struct model *model, struct model_timer *timer)
{
    assert_int_equal(mr_timer_running(&timer->timer), timer->running);
    timer->running = false;
    mr_wheel_stop(model->wheel, &timer->timer);
}

/* The timer that must fire next, or NULL. */
static struct model_timer *model_first(struct model *model, uint64_t upto)
{
    struct model_timer *first = NULL;
    for (size_t i = 0; i < MODEL_TIMERS; i++) {
        struct model_timer *timer = &model->timers[i];
        if (!timer->running || timer->deferred || timer->due > upto)
            continue;
        if (first == NULL || timer->due < first->due ||
            (timer->due == first->due && timer->started < first->started))
            first = timer;
    }
    return first;
}

static void model_fire(struct mr_timer *fired, void *arg)
{
    struct model *model = arg;
    struct model_timer *timer = mr_container(fired, struct model_timer, timer);
    assert_ptr_equal(timer, model_first(model, model->target));
    assert_false(mr_timer_running(fired));
    timer->running = false;
    if (timer->due > model->tick)
        model->tick = timer->due;
    if (mr_rand_one_in(&model->rand, 4))
        model_start(model, timer);
    if (mr_rand_one_in(&model->rand, 4))
        model_start(model, some_timer(model));
    if (mr_rand_one_in(&model->rand, 4))
        model_stop(model, some_timer(model));
}

static void model_advance(struct model *model)
{
    uint64_t span = some_span(model, mr_rand_one_in(&model->rand, 50) ? 58 : 14);
    model->target = add_saturated(model->tick, span);
    if (mr_rand_one_in(&model->rand, 4) && mr_wheel_next(model->wheel) != MR_TICK_NEVER)
        model->target = mr_wheel_next(model->wheel);
    model->advancing = true;
    mr_wheel_advance(model->wheel, model->target, model);
    model->advancing = false;
    assert_null(model_first(model, model->target));
    model->tick = model->target;
    for (size_t i = 0; i < MODEL_TIMERS; i++)
        model->timers[i].deferred = false;
}

static void model_check(struct model *model)
{
    mr_wheel_validate(model->wheel);
    for (size_t i = 0; i < MODEL_TIMERS; i++)
        assert_int_equal(mr_timer_running(&model->timers[i].timer), model->timers[i].running);

    struct model_timer *first = model_first(model, UINT64_MAX);
    uint64_t next = mr_wheel_next(model->wheel);
    if (first == NULL) {
        assert_true(next == MR_TICK_NEVER);
    } else if (first->due <= model->tick) {
        assert_true(next == add_saturated(model->tick, 1));
    } else {
        assert_true(next > model->tick && next <= first->due);
        if (first->due >> 6 == model->tick >> 6)
            assert_true(next == first->due);
    }
}

static void model_round(struct mr_rand *rand)
{
    static struct model model;
    model = (struct model){.rand = *rand};
    uint64_t now = some_span(&model, 64);
    model.wheel = wheel_at(now);
    model.tick = now;
    for (size_t i = 0; i < MODEL_TIMERS; i++)
        mr_timer_init(&model.timers[i].timer, model_fire);
    for (int step = 0; step < MODEL_STEPS; step++) {
        uint64_t dice = mr_rand_below(&model.rand, 10);
        if (dice < 6)
            model_start(&model, some_timer(&model));
        else if (dice < 8)
            model_stop(&model, some_timer(&model));
        else
            model_advance(&model);
        model_check(&model);
    }
    *rand = model.rand;
    mr_wheel_free(model.wheel);
}

static void wheel_behaves_like_a_naive_sorted_list(void **state)
{
    (void)state;
    struct mr_rand rand;
    mr_rand_seed_system(&rand);
    const char *given = getenv("MR_TEST_SEED");
    uint64_t seed = given != NULL ? strtoull(given, NULL, 0) : mr_rand_next(&rand);
    print_message("seed: MR_TEST_SEED=%llu\n", (unsigned long long)seed);
    mr_rand_seed(&rand, seed);
    for (int round = 0; round < MODEL_ROUNDS; round++)
        model_round(&rand);
}

/* ---- many ----------------------------------------------------------------------------------- */

struct many {
    uint64_t last_due;
    uint64_t now;
    size_t fired;
};

static void many_fire(struct mr_timer *timer, void *arg)
{
    struct many *many = arg;
    assert_true(timer->due >= many->last_due && timer->due <= many->now);
    many->last_due = timer->due;
    many->fired++;
}

static void wheel_holds_ten_million_timers(void **state)
{
    (void)state;
    struct mr_timer *timers = malloc(MANY_TIMERS * sizeof *timers);
    assert_non_null(timers);
    struct mr_rand rand;
    mr_rand_seed(&rand, 1);
    mr_mono begin = mr_mono_now(mr_clock_system());
    struct mr_wheel *wheel = wheel_at(0);
    uint64_t range = 30 * (uint64_t)MR_MS_PER_DAY;
    for (size_t i = 0; i < MANY_TIMERS; i++) {
        mr_timer_init(&timers[i], many_fire);
        mr_wheel_start(wheel, &timers[i], 1 + mr_rand_below(&rand, range));
    }
    mr_wheel_validate(wheel);
    size_t stopped = 0;
    for (size_t i = 0; i < MANY_TIMERS; i += 4, stopped++)
        mr_wheel_stop(wheel, &timers[i]);

    struct many many = {0};
    while (many.now < range) {
        many.now += 1 + mr_rand_below(&rand, range / 500);
        mr_wheel_advance(wheel, many.now, &many);
    }
    assert_int_equal(many.fired, MANY_TIMERS - stopped);
    assert_int_equal(mr_wheel_next(wheel), MR_TICK_NEVER);
    mr_wheel_validate(wheel);
    int64_t took_ns = mr_mono_now(mr_clock_system()).ns - begin.ns;
    assert_true(took_ns < MANY_SECONDS_MAX * MR_NS_PER_S);
    mr_wheel_free(wheel);
    free(timers);
}

static void a_jump_over_ages_costs_only_the_timers_it_fires(void **state)
{
    (void)state;
    /* A wheel that walks ticks, or even slots of the lower levels, would not come back from this.
     */
    enum { JUMPS = 1000 };
    struct mr_wheel *wheel = wheel_at(0);
    struct noted timer;
    make_noted(&timer, 1);
    for (uint64_t i = 1; i <= JUMPS; i++) {
        struct notes notes = {.wheel = wheel};
        uint64_t now = i * (UINT64_MAX / JUMPS);
        mr_wheel_start(wheel, &timer.timer, now - 12345);
        assert_int_equal(mr_wheel_advance(wheel, now, &notes), 1);
    }
    mr_wheel_validate(wheel);
    mr_wheel_free(wheel);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wheel_never_fires_early),
        cmocka_unit_test(wheel_fires_in_order_of_due_and_then_of_start),
        cmocka_unit_test(a_due_that_has_passed_fires_at_the_next_advance_in_order_of_due),
        cmocka_unit_test(stopping_and_moving_timers_leaves_nothing_behind),
        cmocka_unit_test(a_timer_that_restarts_itself_in_the_past_fires_once_per_advance),
        cmocka_unit_test(a_fire_function_may_stop_a_timer_of_the_same_tick),
        cmocka_unit_test(the_last_tick_of_all_is_a_tick_like_others),
        cmocka_unit_test(wheel_behaves_like_a_naive_sorted_list),
        cmocka_unit_test(wheel_holds_ten_million_timers),
        cmocka_unit_test(a_jump_over_ages_costs_only_the_timers_it_fires),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
