/* SPDX-License-Identifier: Apache-2.0 */
/* How an app is cut into subApps, whose they are, and which workers serve them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rand.h"
#include "names/subapp.h"

enum { SERVERS_MAX = 8, WORKERS_MAX = 200 };

struct rig {
    struct mr_subapps table;
    struct mr_subapp_server servers[SERVERS_MAX];
    size_t servers_n;
    struct mr_subapp_plan plan;
};

static void make(struct rig *rig, size_t servers)
{
    *rig = (struct rig){.servers_n = servers};
    mr_subapps_init(&rig->table);
    for (size_t i = 0; i < servers; i++)
        rig->servers[i] = (struct mr_subapp_server){.id = i + 1, .may = true};
}

static size_t slots(const struct mr_subapp *part)
{
    return (size_t)__builtin_popcountll(part->slots);
}

static uint32_t part_of(const struct mr_subapps *table, uint32_t slot)
{
    size_t i = 0;
    while ((table->parts[i].slots >> slot & 1) == 0)
        i++;
    return table->parts[i].id;
}

/* How many slots have another owner than before. */
static size_t moved_slots(const struct mr_subapps *a, const struct mr_subapps *b)
{
    size_t n = 0;
    for (uint32_t slot = 0; slot < MR_SLOTS; slot++)
        n += part_of(a, slot) != part_of(b, slot);
    return n;
}

/* What must hold between any table and the next one. */
static void check_step(const struct mr_subapps *old, const struct mr_subapps *new)
{
    assert_true(mr_subapps_valid(new));
    assert_true(new->epoch >= old->epoch &&new->epoch <= old->epoch + 1);
    assert_true(new->next_id >= old->next_id);
    for (size_t i = 0; i < new->n; i++) {
        const struct mr_subapp *part = &new->parts[i];
        size_t before = mr_subapps_find(old, part->id);
        if (before == SIZE_MAX) {
            assert_true(part->id > old->next_id);
            assert_int_equal(part->epoch, old->epoch + 1);
            continue;
        }
        const struct mr_subapp *was = &old->parts[before];
        bool same = was->slots == part->slots && was->owner == part->owner;
        assert_int_equal(part->epoch, same ? was->epoch : old->epoch + 1);
    }
}

static void go(struct rig *rig, struct mr_subapp_seen seen)
{
    struct mr_subapps old = rig->table;
    seen.servers = rig->servers;
    seen.servers_n = rig->servers_n;
    mr_subapps_plan(&old, &seen, &rig->plan);
    check_step(&old, &rig->plan.table);
    assert_int_equal(rig->plan.n == 0, memcmp(&old, &rig->plan.table, sizeof old) == 0);
    rig->table = rig->plan.table;
}

/* So many workers, for long enough. */
static void workers(struct rig *rig, size_t n)
{
    go(rig,
       (struct mr_subapp_seen){.workers_n = n, .complete = true, .few_ms = MR_SUBAPP_MERGE_MS});
}

static size_t owns(const struct rig *rig, uint64_t server)
{
    size_t n = 0;
    for (size_t i = 0; i < rig->table.n; i++)
        n += rig->table.parts[i].owner == server;
    return n;
}

/* ---- how many --------------------------------------------------------------------------------- */

static void test_the_third_worker_splits_the_fourth_does_not_the_fifth_does(void **state)
{
    (void)state;
    static const size_t wanted[] = {1, 1, 1, 2, 2, 3, 3, 4};
    for (size_t n = 0; n < sizeof wanted / sizeof *wanted; n++)
        assert_int_equal(mr_subapps_wanted(n, 2), wanted[n]);
    assert_int_equal(mr_subapps_wanted(3, 0), 2); /* which is the default */
    assert_int_equal(mr_subapps_wanted(1000, 2), MR_SUBAPPS_MAX);
    assert_int_equal(mr_subapps_wanted(SIZE_MAX, 1), MR_SUBAPPS_MAX);
    struct rig rig;
    make(&rig, 3);
    for (size_t n = 0; n < sizeof wanted / sizeof *wanted; n++) {
        workers(&rig, n);
        assert_int_equal(rig.table.n, wanted[n]);
        workers(&rig, n);
        assert_int_equal(rig.plan.n, 0);
    }
}

static void test_an_app_begins_as_one_and_goes_to_the_least_loaded_server(void **state)
{
    (void)state;
    struct rig rig;
    make(&rig, 3);
    rig.servers[0].load = 100;
    rig.servers[1].load = 70;
    rig.servers[2].load = 80;
    workers(&rig, 1);
    assert_int_equal(rig.table.n, 1);
    assert_int_equal(rig.table.parts[0].slots, UINT64_MAX);
    assert_int_equal(rig.table.parts[0].owner, 2);
    assert_int_equal(rig.plan.changes[0].reason, MR_SUBAPP_FIRST);
    assert_string_equal(mr_subapp_reason_name(rig.plan.changes[0].reason), "first");
}

static void test_a_split_takes_what_the_new_one_needs_and_no_more(void **state)
{
    (void)state;
    struct rig rig;
    make(&rig, 3);
    workers(&rig, 1);
    for (size_t n = 2; n <= MR_SUBAPPS_MAX; n++) {
        struct mr_subapps old = rig.table;
        workers(&rig, 2 * n);
        assert_int_equal(rig.table.n, n);
        assert_int_equal(moved_slots(&old, &rig.table), MR_SLOTS / n);
        for (size_t i = 0; i < n; i++)
            assert_in_range(slots(&rig.table.parts[i]), MR_SLOTS / n, (MR_SLOTS + n - 1) / n);
        assert_int_equal(rig.plan.n, 1);
        assert_int_equal(rig.plan.changes[0].reason, MR_SUBAPP_SPLIT);
    }
}

static void test_a_merge_moves_the_slots_of_the_one_that_goes(void **state)
{
    (void)state;
    struct rig rig;
    make(&rig, 3);
    workers(&rig, 2 * 10);
    for (size_t n = 9; n >= 1; n--) {
        struct mr_subapps old = rig.table;
        workers(&rig, 2 * n);
        assert_int_equal(rig.table.n, n);
        assert_int_equal(moved_slots(&old, &rig.table), MR_SLOTS / (n + 1));
        for (size_t i = 0; i < n; i++)
            assert_in_range(slots(&rig.table.parts[i]), MR_SLOTS / n, (MR_SLOTS + n - 1) / n);
        assert_int_equal(rig.plan.n, 1);
        assert_int_equal(rig.plan.changes[0].reason, MR_SUBAPP_MERGED);
    }
    assert_int_equal(rig.table.parts[0].slots, UINT64_MAX);
}

static void test_nothing_merges_at_once_nor_by_what_is_not_complete(void **state)
{
    (void)state;
    struct rig rig;
    make(&rig, 2);
    workers(&rig, 6);
    go(&rig,
       (struct mr_subapp_seen){.workers_n = 1, .complete = true, .few_ms = MR_SUBAPP_MERGE_MS - 1});
    assert_int_equal(rig.plan.n, 0);
    go(&rig, (struct mr_subapp_seen){.workers_n = 0, .few_ms = 100 * MR_SUBAPP_MERGE_MS});
    assert_int_equal(rig.plan.n, 0);
    go(&rig, (struct mr_subapp_seen){
                 .workers_n = 1, .complete = true, .few_ms = 5000, .merge_after_ms = 5000});
    assert_int_equal(rig.table.n, 1);
    /* Workers that are seen are there. */
    go(&rig, (struct mr_subapp_seen){.workers_n = 3});
    assert_int_equal(rig.table.n, 2);
}

/* ---- whose they are --------------------------------------------------------------------------- */

static void test_new_ones_go_where_there_is_least(void **state)
{
    (void)state;
    struct rig rig;
    make(&rig, 3);
    workers(&rig, 6);
    for (uint64_t server = 1; server <= 3; server++)
        assert_int_equal(owns(&rig, server), 1);
    /* A split takes load off who gives slots: the other two have 500 and 200, the giver 1000 before. */
    make(&rig, 3);
    rig.table.parts[0].owner = 1;
    rig.servers[0].load = 1000;
    rig.servers[1].load = 500;
    rig.servers[2].load = 200;
    int64_t loads[1] = {1000};
    go(&rig, (struct mr_subapp_seen){.workers_n = 5, .complete = true, .loads = loads});
    assert_int_equal(rig.table.n, 3);
    assert_int_equal(rig.table.parts[0].owner, 1);
    assert_int_equal(rig.table.parts[1].owner, 3); /* 200 + 330 */
    assert_int_equal(rig.table.parts[2].owner, 1); /* 340, the others have 500 and 530 */
    assert_in_range(rig.servers[0].load, 650, 680);
    assert_in_range(rig.servers[2].load, 510, 540);
}

/* What others dispatched before there was an owner is still in their windows, and what he dispatches is not reported yet. */
static void test_few_dispatches_are_no_load(void **state)
{
    (void)state;
    struct rig rig;
    make(&rig, 2);
    rig.table.parts[0].owner = 1;
    rig.servers[1].load = MR_LOAD_FEW - 1;
    workers(&rig, 3);
    assert_int_equal(rig.table.parts[1].owner, 2);
    make(&rig, 2);
    rig.table.parts[0].owner = 1;
    rig.servers[1].load = MR_LOAD_FEW;
    workers(&rig, 3);
    assert_int_equal(rig.table.parts[1].owner, 1);
    make(&rig, 2);
    rig.table.parts[0].owner = 1;
    rig.servers[1].load = MR_LOAD_FEW;
    go(&rig,
       (struct mr_subapp_seen){.workers_n = 3, .complete = true, .few_load = MR_LOAD_FEW + 1});
    assert_int_equal(rig.table.parts[1].owner, 2);
}

static void test_weights_count(void **state)
{
    (void)state;
    struct rig rig;
    make(&rig, 2);
    rig.servers[0].weight = 300;
    rig.servers[0].load = 200;
    rig.servers[1].load = 80;
    workers(&rig, 1);
    assert_int_equal(rig.table.parts[0].owner, 1);
    make(&rig, 2);
    rig.servers[1].weight = 3 * MR_WEIGHT;
    workers(&rig, 2 * 8);
    assert_int_equal(owns(&rig, 1), 2);
    assert_int_equal(owns(&rig, 2), 6);
}

static void test_what_a_dead_server_had_goes_to_others_and_nothing_else_moves(void **state)
{
    (void)state;
    struct rig rig;
    make(&rig, 3);
    workers(&rig, 2 * 6);
    struct mr_subapps old = rig.table;
    rig.servers[1] = rig.servers[2]; /* 2 is gone */
    rig.servers_n = 2;
    workers(&rig, 2 * 6);
    assert_int_equal(rig.plan.n, 2);
    assert_int_equal(owns(&rig, 1), 3);
    assert_int_equal(owns(&rig, 3), 3);
    assert_int_equal(moved_slots(&old, &rig.table), 0);
    for (size_t i = 0; i < old.n; i++) {
        if (old.parts[i].owner != 2)
            assert_memory_equal(&old.parts[i], &rig.table.parts[i], sizeof *old.parts);
    }
    assert_int_equal(rig.plan.changes[0].reason, MR_SUBAPP_LOST);
    assert_int_equal(rig.plan.changes[0].from, 2);
}

static void test_a_server_that_may_not_have_the_app_has_nothing_of_it(void **state)
{
    (void)state;
    struct rig rig;
    make(&rig, 3);
    workers(&rig, 2 * 6);
    rig.servers[0].may = false;
    workers(&rig, 2 * 6);
    assert_int_equal(owns(&rig, 1), 0);
    rig.servers[1].may = rig.servers[2].may = false;
    workers(&rig, 2 * 6);
    assert_int_equal(owns(&rig, 0), 6); /* nobody's */
    workers(&rig, 2 * 6);
    assert_int_equal(rig.plan.n, 0);
    rig.servers[2].may = true;
    workers(&rig, 2 * 6);
    assert_int_equal(owns(&rig, 3), 6);
}

static void test_a_merge_takes_the_orphan(void **state)
{
    (void)state;
    struct rig rig;
    make(&rig, 3);
    workers(&rig, 6);
    rig.servers_n = 2; /* 3 is gone */
    workers(&rig, 4);
    assert_int_equal(rig.plan.n, 1);
    assert_int_equal(rig.plan.changes[0].reason, MR_SUBAPP_MERGED);
    assert_int_equal(rig.plan.changes[0].from, 3);
    assert_int_equal(owns(&rig, 1), 1);
    assert_int_equal(owns(&rig, 2), 1);
}

static void test_a_move_has_a_new_epoch(void **state)
{
    (void)state;
    struct rig rig;
    make(&rig, 2);
    workers(&rig, 4);
    struct mr_subapps old = rig.table;
    uint32_t part = rig.table.parts[0].id;
    assert_false(mr_subapps_move(&rig.table, part, old.parts[0].owner));
    assert_false(mr_subapps_move(&rig.table, 99, 2));
    assert_memory_equal(&old, &rig.table, sizeof old);
    assert_true(mr_subapps_move(&rig.table, part, 3 - old.parts[0].owner));
    check_step(&old, &rig.table);
    assert_int_equal(rig.table.parts[0].epoch, old.epoch + 1);
}

static void test_a_table_that_cannot_be_is_known(void **state)
{
    (void)state;
    struct rig rig;
    make(&rig, 2);
    workers(&rig, 4);
    const struct mr_subapps good = rig.table;
    struct mr_subapps bad;
    assert_true(mr_subapps_valid(&good));
#define BREAKS(change)                                                                             \
    do {                                                                                           \
        bad = good;                                                                                \
        change;                                                                                    \
        assert_false(mr_subapps_valid(&bad));                                                      \
    } while (0)
    BREAKS(bad.n = 0);
    BREAKS(bad.n = MR_SUBAPPS_MAX + 1);
    BREAKS(bad.n = 1); /* slots are nobody's */
    BREAKS(bad.parts[0].slots |= bad.parts[1].slots);
    BREAKS(bad.parts[0].slots = 0);
    BREAKS(bad.parts[0].id = bad.parts[1].id);
    BREAKS(bad.parts[0].id = 0);
    BREAKS(bad.next_id = 1);
    BREAKS(bad.parts[0].epoch = bad.epoch + 1);
#undef BREAKS
}

/* ---- any order of things ---------------------------------------------------------------------- */

static void check_owners(const struct rig *rig)
{
    for (size_t i = 0; i < rig->table.n; i++) {
        bool lives = false, may_anybody = false;
        for (size_t at = 0; at < rig->servers_n; at++) {
            may_anybody = may_anybody || rig->servers[at].may;
            lives =
                lives || (rig->servers[at].may && rig->servers[at].id == rig->table.parts[i].owner);
        }
        assert_true(lives || (!may_anybody && rig->table.parts[i].owner == 0));
    }
}

static void change_servers(struct rig *rig, struct mr_rand *rand, uint64_t *ids)
{
    rig->servers_n = mr_rand_below(rand, SERVERS_MAX + 1);
    for (size_t i = 0; i < rig->servers_n; i++) {
        if (rig->servers[i].id == 0 || mr_rand_one_in(rand, 3))
            rig->servers[i].id = ++*ids;
        rig->servers[i].may = !mr_rand_one_in(rand, 6);
        rig->servers[i].load = (int64_t)mr_rand_below(rand, 1000);
        rig->servers[i].weight = (uint32_t)mr_rand_below(rand, 3) * 100;
        rig->servers[i].owns = (uint32_t)mr_rand_below(rand, 5);
    }
}

static void test_whatever_comes_each_slot_has_one_owner(void **state)
{
    (void)state;
    static struct rig rig;
    struct mr_rand rand;
    uint64_t seed = mr_rand_next(mr_rand_of_thread()), ids = SERVERS_MAX;
    printf("seed %llu\n", (unsigned long long)seed);
    mr_rand_seed(&rand, seed);
    make(&rig, SERVERS_MAX);
    for (int round = 0; round < 5000; round++) {
        int64_t loads[MR_SUBAPPS_MAX];
        size_t n = mr_rand_below(&rand, mr_rand_one_in(&rand, 4) ? WORKERS_MAX + 1 : 12);
        for (size_t i = 0; i < MR_SUBAPPS_MAX; i++)
            loads[i] = (int64_t)mr_rand_below(&rand, 500);
        if (mr_rand_one_in(&rand, 2))
            change_servers(&rig, &rand, &ids);
        go(&rig, (struct mr_subapp_seen){.workers_n = n,
                                         .loads = mr_rand_one_in(&rand, 4) ? NULL : loads,
                                         .threshold = (uint32_t)mr_rand_below(&rand, 4),
                                         .complete = !mr_rand_one_in(&rand, 4),
                                         .few_ms = (int64_t)mr_rand_below(&rand, 60000)});
        check_owners(&rig);
        if (mr_rand_one_in(&rand, 5) && rig.servers_n > 0) {
            struct mr_subapps old = rig.table;
            uint32_t part = rig.table.parts[mr_rand_below(&rand, rig.table.n)].id;
            uint64_t to = rig.servers[mr_rand_below(&rand, rig.servers_n)].id;
            (void)mr_subapps_move(&rig.table, part, to);
            check_step(&old, &rig.table);
        }
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_third_worker_splits_the_fourth_does_not_the_fifth_does),
        cmocka_unit_test(test_an_app_begins_as_one_and_goes_to_the_least_loaded_server),
        cmocka_unit_test(test_a_split_takes_what_the_new_one_needs_and_no_more),
        cmocka_unit_test(test_a_merge_moves_the_slots_of_the_one_that_goes),
        cmocka_unit_test(test_nothing_merges_at_once_nor_by_what_is_not_complete),
        cmocka_unit_test(test_new_ones_go_where_there_is_least),
        cmocka_unit_test(test_few_dispatches_are_no_load),
        cmocka_unit_test(test_weights_count),
        cmocka_unit_test(test_what_a_dead_server_had_goes_to_others_and_nothing_else_moves),
        cmocka_unit_test(test_a_server_that_may_not_have_the_app_has_nothing_of_it),
        cmocka_unit_test(test_a_merge_takes_the_orphan),
        cmocka_unit_test(test_a_move_has_a_new_epoch),
        cmocka_unit_test(test_a_table_that_cannot_be_is_known),
        cmocka_unit_test(test_whatever_comes_each_slot_has_one_owner),
    };
    if (argc > 1)
        cmocka_set_test_filter(argv[1]);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
