/* SPDX-License-Identifier: Apache-2.0 */
/* Balance: when a subApp moves, which, and that there is an end to it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rand.h"
#include "names/balance.h"

enum { SERVERS_MAX = 8, PARTS_MAX = 200 };

struct rig {
    struct mr_balance_server servers[SERVERS_MAX];
    struct mr_balance_part parts[PARTS_MAX];
    struct mr_balance_seen seen;
    struct mr_balance_move move;
    mr_mono now;
};

static void make(struct rig *rig, size_t servers)
{
    *rig = (struct rig){.now = {MR_NS_PER_S}};
    for (size_t i = 0; i < servers; i++)
        rig->servers[i].id = i + 1;
    rig->seen = (struct mr_balance_seen){
        .servers = rig->servers, .servers_n = servers, .parts = rig->parts, .complete = true};
}

static size_t add(struct rig *rig, size_t owner, int64_t load)
{
    assert_true(rig->seen.parts_n < PARTS_MAX);
    rig->parts[rig->seen.parts_n] = (struct mr_balance_part){.owner = owner, .load = load};
    return rig->seen.parts_n++;
}

static enum mr_balance_verdict weigh(struct rig *rig)
{
    return mr_balance(&rig->seen, rig->now, &rig->move);
}

/* Weighs, and does what follows. */
static enum mr_balance_verdict go(struct rig *rig)
{
    enum mr_balance_verdict verdict = weigh(rig);
    if (verdict == MR_BALANCE_MOVE) {
        assert_int_equal(rig->parts[rig->move.part].owner, rig->move.from);
        rig->parts[rig->move.part].owner = rig->move.to;
        rig->parts[rig->move.part].has_moved = rig->seen.has_moved = true;
        rig->parts[rig->move.part].moved = rig->seen.moved = rig->now;
    }
    return verdict;
}

static void pass(struct rig *rig, int64_t ms)
{
    rig->now = mr_mono_add_ms(rig->now, ms);
}

/* ---- when ------------------------------------------------------------------------------------- */

static void test_more_than_twice_moves_one_and_then_rests(void **state)
{
    (void)state;
    struct rig rig;
    make(&rig, 2);
    add(&rig, 0, 500);
    add(&rig, 0, 510);
    add(&rig, 1, 20);
    assert_int_equal(go(&rig), MR_BALANCE_MOVE);
    assert_int_equal(rig.move.part, 0); /* 510 against 520 is closer than 500 against 530 */
    assert_int_equal(rig.move.from, 0);
    assert_int_equal(rig.move.to, 1);
    assert_int_equal(rig.move.from_load, 1010);
    assert_int_equal(rig.move.to_load, 20);
    assert_int_equal(rig.move.load, 500);
    assert_int_equal(go(&rig), MR_BALANCE_COOLING);
    for (int minute = 0; minute < 10; minute++) {
        pass(&rig, MR_BALANCE_COOL_MS);
        assert_int_equal(go(&rig), MR_BALANCE_EVEN);
    }
}

static void test_twice_or_less_moves_nothing(void **state)
{
    (void)state;
    struct rig rig;
    make(&rig, 2);
    for (int i = 0; i < 10; i++)
        add(&rig, 0, 190);
    size_t part = add(&rig, 1, 1000);
    assert_int_equal(weigh(&rig), MR_BALANCE_EVEN); /* 1.9 */
    rig.parts[part].load = 950;
    assert_int_equal(weigh(&rig), MR_BALANCE_EVEN); /* 2 */
    rig.parts[part].load = 949;
    assert_int_equal(weigh(&rig), MR_BALANCE_MOVE);
}

static void test_the_floor(void **state)
{
    (void)state;
    struct rig rig;
    make(&rig, 2);
    add(&rig, 0, MR_BALANCE_FLOOR / 2);
    size_t part = add(&rig, 0, MR_BALANCE_FLOOR / 2 - 1);
    assert_int_equal(weigh(&rig), MR_BALANCE_IDLE);
    rig.parts[part].load++;
    assert_int_equal(weigh(&rig), MR_BALANCE_MOVE);
}

static void test_an_idle_server_that_joins_gets_one_each_rest(void **state)
{
    (void)state;
    struct rig rig;
    make(&rig, 3);
    rig.seen.servers_n = 2;
    for (size_t i = 0; i < 10; i++)
        add(&rig, i % 2, 100);
    assert_int_equal(go(&rig), MR_BALANCE_EVEN);
    rig.seen.servers_n = 3;
    size_t moves = 0;
    for (int second = 0; second < 600; second += 5) {
        moves += go(&rig) == MR_BALANCE_MOVE;
        assert_true(moves <= 1 + (size_t)second / 60);
        pass(&rig, 5000);
    }
    assert_int_equal(moves, 2); /* one from each: 400, 400, 200 */
    assert_int_equal(rig.servers[2].load, 200);
}

static void test_nothing_moves_while_another_does_or_by_what_is_not_complete(void **state)
{
    (void)state;
    struct rig rig;
    make(&rig, 2);
    add(&rig, 0, 500);
    add(&rig, 0, 500);
    rig.seen.is_moving = true;
    assert_int_equal(weigh(&rig), MR_BALANCE_MOVING);
    rig.seen.is_moving = rig.seen.complete = false;
    assert_int_equal(weigh(&rig), MR_BALANCE_INCOMPLETE);
    assert_string_equal(mr_balance_verdict_name(MR_BALANCE_INCOMPLETE), "registry incomplete");
    rig.seen.complete = true;
    assert_int_equal(weigh(&rig), MR_BALANCE_MOVE);
}

/* ---- which ------------------------------------------------------------------------------------ */

static void test_the_only_subapp_of_a_server_stays(void **state)
{
    (void)state;
    struct rig rig;
    make(&rig, 2);
    add(&rig, 0, 1000);
    assert_int_equal(weigh(&rig), MR_BALANCE_STUCK);
    add(&rig, 0, 5); /* a little helps a little */
    assert_int_equal(go(&rig), MR_BALANCE_MOVE);
    assert_int_equal(rig.move.part, 1);
    pass(&rig, 24 * 3600 * 1000);
    assert_int_equal(go(&rig), MR_BALANCE_STUCK);
}

static void test_the_receiver_may_become_the_greater_but_not_by_far(void **state)
{
    (void)state;
    struct rig rig;
    make(&rig, 2);
    for (int i = 0; i < 3; i++)
        add(&rig, 0, 300);
    add(&rig, 1, 400);
    assert_int_equal(go(&rig), MR_BALANCE_MOVE); /* 600 against 700 */
    pass(&rig, 24 * 3600 * 1000);
    assert_int_equal(go(&rig), MR_BALANCE_EVEN);
    make(&rig, 2);
    add(&rig, 0, 880);
    add(&rig, 0, 120);
    assert_int_equal(go(&rig), MR_BALANCE_MOVE);
    assert_int_equal(rig.move.load, 120); /* 120 against 880 would be the same again */
    make(&rig, 2);
    add(&rig, 0, 700);
    add(&rig, 0, 300);
    assert_int_equal(go(&rig), MR_BALANCE_MOVE);
    assert_int_equal(rig.move.load, 300); /* 300 against 700 would be a reason to move back */
    make(&rig, 2);
    add(&rig, 0, 480);
    add(&rig, 0, 520);
    add(&rig, 1, 490);
    assert_int_equal(go(&rig), MR_BALANCE_STUCK); /* 520 against 970 is hardly better */
}

static void test_what_has_moved_stays_for_a_while(void **state)
{
    (void)state;
    struct rig rig;
    make(&rig, 2);
    size_t moved = add(&rig, 0, 500), other = add(&rig, 0, 500);
    assert_int_equal(go(&rig), MR_BALANCE_MOVE);
    assert_int_equal(rig.move.part, moved);
    rig.parts[other].owner = 1; /* by whatever: now all is there */
    pass(&rig, MR_BALANCE_COOL_MS);
    assert_int_equal(go(&rig), MR_BALANCE_MOVE);
    assert_int_equal(rig.move.part, other);
    rig.parts[other].owner = 1;
    pass(&rig, MR_BALANCE_COOL_MS);
    assert_int_equal(go(&rig), MR_BALANCE_STUCK);
    pass(&rig, MR_BALANCE_STAY_MS);
    assert_int_equal(go(&rig), MR_BALANCE_MOVE);
}

static bool not_to_the_second(size_t server, size_t part, void *arg)
{
    (void)part;
    (void)arg;
    return server != 1;
}

static void test_a_server_is_given_nothing_that_it_may_not_have(void **state)
{
    (void)state;
    struct rig rig;
    make(&rig, 3);
    add(&rig, 0, 500);
    add(&rig, 0, 500);
    add(&rig, 2, 100);
    rig.seen.may = not_to_the_second;
    assert_int_equal(go(&rig), MR_BALANCE_MOVE);
    assert_int_equal(rig.move.to, 2);
    pass(&rig, 24 * 3600 * 1000);
    assert_int_equal(go(&rig), MR_BALANCE_EVEN); /* though the second has nothing */
}

static void test_who_cannot_give_hinders_nobody(void **state)
{
    (void)state;
    struct rig rig;
    make(&rig, 3);
    add(&rig, 0, 10000);
    add(&rig, 1, 300);
    add(&rig, 1, 300);
    rig.servers[2].other = 10;
    assert_int_equal(go(&rig), MR_BALANCE_MOVE);
    assert_int_equal(rig.move.from, 1);
    assert_int_equal(rig.move.to, 2);
}

static void test_weights_and_what_cannot_move_count(void **state)
{
    (void)state;
    struct rig rig;
    make(&rig, 2);
    rig.servers[0].weight = 300;
    add(&rig, 0, 300);
    add(&rig, 0, 300);
    add(&rig, 1, 100);
    assert_int_equal(weigh(&rig), MR_BALANCE_EVEN); /* 200 against 100 */
    rig.servers[0].other = 60;
    assert_int_equal(weigh(&rig), MR_BALANCE_STUCK); /* 120 against 400 */
    rig.servers[0].other = 0;
    rig.servers[1].other = 500;
    rig.servers[1].weight = 100;
    add(&rig, 1, 100);
    assert_int_equal(weigh(&rig), MR_BALANCE_MOVE); /* 200 against 700 */
    assert_int_equal(rig.move.from, 1);
}

static void test_any_numbers_do(void **state)
{
    (void)state;
    struct rig rig;
    make(&rig, 3);
    rig.servers[0].weight = UINT32_MAX;
    rig.servers[1].weight = 1;
    rig.servers[2].other = -5;
    add(&rig, 0, INT64_MAX);
    add(&rig, 0, INT64_MAX);
    add(&rig, 1, INT64_MAX);
    add(&rig, 1, INT64_MIN);
    add(&rig, MR_BALANCE_NOBODY, 7);
    struct mr_balance_options options = {.ratio = INT64_MAX, .floor = INT64_MAX};
    (void)weigh(&rig);
    rig.seen.options = &options;
    (void)weigh(&rig);
    rig.seen.servers_n = 0;
    assert_int_equal(weigh(&rig), MR_BALANCE_EVEN);
}

/* ---- the window ------------------------------------------------------------------------------- */

static void test_the_window_has_what_was_dispatched_in_it(void **state)
{
    (void)state;
    struct mr_balance_window w = {0};
    mr_mono now = {1000 * MR_NS_PER_S};
    assert_int_equal(mr_balance_load(&w, now), 0);
    for (int i = 0; i < 600; i++) { /* one a second */
        mr_balance_count(&w, now, 1);
        now = mr_mono_add_ms(now, 1000);
    }
    assert_in_range(mr_balance_load(&w, now), 55, 60);
    assert_in_range(mr_balance_load(&w, mr_mono_add_ms(now, 30000)), 25, 31);
    assert_int_equal(mr_balance_load(&w, mr_mono_add_ms(now, 61000)), 0);
    now = mr_mono_add_ms(now, 3600 * 1000);
    mr_balance_count(&w, now, 7);
    assert_int_equal(mr_balance_load(&w, now), 7);
    mr_balance_count(&w, now, UINT64_MAX);
    assert_int_equal(mr_balance_load(&w, now), MR_LOAD_MAX);
}

/* ---- that there is an end to it --------------------------------------------------------------- */

static void random_world(struct rig *rig, struct mr_rand *rand, bool with_weights)
{
    make(rig, 2 + mr_rand_below(rand, SERVERS_MAX - 1));
    size_t parts = 1 + mr_rand_below(rand, PARTS_MAX);
    uint64_t most = 1 + mr_rand_below(rand, 2000),
             among = 1 + mr_rand_below(rand, rig->seen.servers_n);
    for (size_t i = 0; i < parts; i++)
        add(rig, mr_rand_below(rand, among), (int64_t)mr_rand_below(rand, most));
    for (size_t i = 0; with_weights && i < rig->seen.servers_n; i++) {
        rig->servers[i].weight = 50 + (uint32_t)mr_rand_below(rand, 300);
        rig->servers[i].other = (int64_t)mr_rand_below(rand, 1000);
    }
}

/* Whether all subApps are at most a quarter of what the greatest server has. */
static bool is_fine_grained(const struct rig *rig)
{
    int64_t most = 0;
    for (size_t i = 0; i < rig->seen.servers_n; i++)
        most = rig->servers[i].load > most ? rig->servers[i].load : most;
    for (size_t i = 0; i < rig->seen.parts_n; i++) {
        if (4 * rig->parts[i].load > most)
            return false;
    }
    return most >= MR_BALANCE_FLOOR;
}

static void check_within_two(const struct rig *rig)
{
    int64_t most = 0, least = INT64_MAX;
    for (size_t i = 0; i < rig->seen.servers_n; i++) {
        int64_t load = rig->servers[i].load;
        most = load > most ? load : most;
        least = load < least ? load : least;
    }
    assert_true(most <= 2 * least);
}

static void test_steady_loads_come_to_rest_within_a_factor_of_two(void **state)
{
    (void)state;
    static struct rig rig;
    struct mr_rand rand;
    uint64_t seed = mr_rand_next(mr_rand_of_thread());
    size_t fine = 0;
    printf("seed %llu\n", (unsigned long long)seed);
    mr_rand_seed(&rand, seed);
    for (int world = 0; world < 100; world++) {
        bool with_weights = world % 2 == 1;
        random_world(&rig, &rand, with_weights);
        size_t moves = 0, last = 0;
        for (size_t round = 0; round < 1000; round++) {
            if (go(&rig) == MR_BALANCE_MOVE) {
                moves++;
                last = round;
            }
            pass(&rig, MR_BALANCE_COOL_MS);
        }
        assert_true(moves <= 2 * rig.seen.parts_n);
        assert_true(last < 500);
        (void)weigh(&rig);
        if (!with_weights && is_fine_grained(&rig)) {
            check_within_two(&rig);
            fine++;
        }
    }
    assert_true(fine > 10);
}

/* Loads that differ by a fifth each minute, as chance has it, move little once they are even. */
static void test_noise_moves_nothing_to_and_fro(void **state)
{
    (void)state;
    static struct rig rig;
    struct mr_rand rand;
    int64_t loads[PARTS_MAX];
    uint64_t seed = mr_rand_next(mr_rand_of_thread());
    printf("seed %llu\n", (unsigned long long)seed);
    mr_rand_seed(&rand, seed);
    for (int world = 0; world < 20; world++) {
        make(&rig, 3);
        for (size_t i = 0; i < 30; i++)
            loads[add(&rig, 0, 0)] = 50 + (int64_t)mr_rand_below(&rand, 100);
        size_t moves = 0, late = 0;
        for (size_t round = 0; round < 1000; round++) {
            for (size_t i = 0; i < rig.seen.parts_n; i++)
                rig.parts[i].load = loads[i] * (80 + (int64_t)mr_rand_below(&rand, 41)) / 100;
            bool has_moved = go(&rig) == MR_BALANCE_MOVE;
            moves += has_moved;
            late += has_moved && round > 100;
            pass(&rig, MR_BALANCE_COOL_MS);
        }
        assert_true(moves > 5 && moves <= 30);
        assert_true(late <= 4);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_more_than_twice_moves_one_and_then_rests),
        cmocka_unit_test(test_twice_or_less_moves_nothing),
        cmocka_unit_test(test_the_floor),
        cmocka_unit_test(test_an_idle_server_that_joins_gets_one_each_rest),
        cmocka_unit_test(test_nothing_moves_while_another_does_or_by_what_is_not_complete),
        cmocka_unit_test(test_the_only_subapp_of_a_server_stays),
        cmocka_unit_test(test_the_receiver_may_become_the_greater_but_not_by_far),
        cmocka_unit_test(test_what_has_moved_stays_for_a_while),
        cmocka_unit_test(test_a_server_is_given_nothing_that_it_may_not_have),
        cmocka_unit_test(test_who_cannot_give_hinders_nobody),
        cmocka_unit_test(test_weights_and_what_cannot_move_count),
        cmocka_unit_test(test_any_numbers_do),
        cmocka_unit_test(test_the_window_has_what_was_dispatched_in_it),
        cmocka_unit_test(test_steady_loads_come_to_rest_within_a_factor_of_two),
        cmocka_unit_test(test_noise_moves_nothing_to_and_fro),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
