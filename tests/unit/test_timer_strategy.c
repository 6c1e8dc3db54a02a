/* SPDX-License-Identifier: Apache-2.0 */
/* To which workers the tasks of firings go: evenly, in turn, the healthiest, by a key, by a tag, to all. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/buf.h"
#include "base/rand.h"
#include "timer/strategy.h"

enum { NODES_MAX = 64 };

/* A list of nodes as a broker gives it, in any order. */
struct world {
    struct mr_arena arena;
    struct mr_node_info nodes[NODES_MAX];
    size_t n;
    struct mr_worker_queue queues[NODES_MAX][2];
    char names[NODES_MAX][MR_NAME_MAX + 1];
    struct mr_roster *roster;
};

static int begin(void **state)
{
    *state = calloc(1, sizeof(struct world));
    return *state == NULL;
}

static int end(void **state)
{
    struct world *world = *state;
    mr_arena_done(&world->arena);
    free(world);
    return 0;
}

static struct mr_node_info *add(struct world *world, const char *name, const char *queue)
{
    size_t i = world->n++;
    assert_in_range(i, 0, NODES_MAX - 1);
    (void)snprintf(world->names[i], sizeof world->names[i], "%s", name);
    world->queues[i][0] = (struct mr_worker_queue){mr_slice_str(queue), 1};
    world->nodes[i] = (struct mr_node_info){.name = mr_slice_str(world->names[i]),
                                            .incarnation = 1000 + i,
                                            .state = MR_NODE_LIVE,
                                            .role = MR_NODE_WORKER,
                                            .slots = 4,
                                            .queues = world->queues[i],
                                            .queues_n = 1};
    return &world->nodes[i];
}

static void add_many(struct world *world, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "worker-%zu", i);
        (void)add(world, name, "q");
    }
}

static void seen(struct world *world)
{
    assert_int_equal(
        mr_roster_make(&world->arena, MR_SLICE_LIT("q"), world->nodes, world->n, &world->roster),
        MR_OK);
}

static struct mr_target *targets(struct world *world, struct mr_strategy_to to, uint64_t number,
                                 size_t *ret_n)
{
    struct mr_target *list = NULL;
    assert_int_equal(mr_roster_targets(world->roster, to, MR_SLICE_LIT("mail"), number,
                                       &world->arena, &list, ret_n),
                     MR_OK);
    return list;
}

static struct mr_slice target(struct world *world, enum mr_strategy kind, const char *name,
                              uint64_t number)
{
    size_t n;
    struct mr_strategy_to to = {kind, mr_slice_str(name)};
    const struct mr_target *list = targets(world, to, number, &n);
    assert_int_equal(n, 1);
    return list->queue;
}

#define assert_slice(slice, text)                                                                  \
    do {                                                                                           \
        struct mr_slice got_ = (slice);                                                            \
        assert_int_equal(got_.len, strlen(text));                                                  \
        assert_memory_equal(got_.data, text, got_.len);                                            \
    } while (0)

/* The index of the node that this queue is an address of. */
static size_t whose(const struct world *world, struct mr_slice queue)
{
    char name[2 * MR_NAME_MAX];
    for (size_t i = 0; i < world->n; i++) {
        (void)snprintf(name, sizeof name, "q@%s", world->names[i]);
        if (mr_slice_equal(queue, mr_slice_str(name)))
            return i;
    }
    fail_msg("%.*s is nobody's", (int)queue.len, (const char *)queue.data);
    return 0;
}

static void any_worker_is_the_queue_itself(void **state)
{
    struct world *world = *state;
    add_many(world, 3);
    seen(world);
    for (uint64_t i = 0; i < 5; i++)
        assert_slice(target(world, MR_STRATEGY_ANY, "", i), "q");
}

static void round_robin_reaches_each_in_turn_whatever_order_the_nodes_come_in(void **state)
{
    struct world *world = *state;
    (void)add(world, "c", "q");
    (void)add(world, "a", "q");
    (void)add(world, "b", "q");
    seen(world);
    static const char *const expected[] = {"q@a", "q@b", "q@c", "q@a", "q@b", "q@c"};
    for (uint64_t i = 0; i < 6; i++)
        assert_slice(target(world, MR_STRATEGY_ROUND_ROBIN, "", i), expected[i]);
    struct mr_node_info first = world->nodes[0]; /* another server sees them another way round */
    world->nodes[0] = world->nodes[1];
    world->nodes[1] = first;
    seen(world);
    for (uint64_t i = 0; i < 6; i++)
        assert_slice(target(world, MR_STRATEGY_ROUND_ROBIN, "", i), expected[i]);
}

static void only_live_workers_of_the_queue_that_handle_the_type_count(void **state)
{
    struct world *world = *state;
    static const struct mr_slice mail[] = {MR_SLICE_LIT("ma*")}, other[] = {MR_SLICE_LIT("map")};
    struct mr_node_info *node = add(world, "mail", "q");
    node->types = mail;
    node->types_n = 1;
    node = add(world, "map", "q");
    node->types = other;
    node->types_n = 1;
    add(world, "dead", "q")->state = MR_NODE_DEAD;
    add(world, "suspect", "q")->state = MR_NODE_SUSPECT;
    static const struct mr_slot_info stopping[] = {{.state = MR_SLOT_WORKING},
                                                   {.state = MR_SLOT_STOPPING}};
    node = add(world, "draining", "q");
    node->slot_infos = stopping;
    node->slot_infos_n = 2;
    add(world, "master", "q")->role = MR_NODE_MASTER;
    (void)add(world, "elsewhere", "r");
    (void)add(world, "by address", "q@x");
    char longest[MR_NAME_MAX + 1];
    memset(longest, 'n', MR_NAME_MAX);
    longest[MR_NAME_MAX] = '\0';
    (void)add(world, longest, "q");
    seen(world);
    assert_int_equal(mr_roster_count(world->roster, MR_SLICE_LIT("mail")), 1);
    for (uint64_t i = 0; i < 4; i++)
        assert_slice(target(world, MR_STRATEGY_ROUND_ROBIN, "", i), "q@mail");
}

static void without_workers_it_goes_to_the_queue_and_a_broadcast_nowhere(void **state)
{
    struct world *world = *state;
    seen(world);
    static const enum mr_strategy kinds[] = {MR_STRATEGY_ANY, MR_STRATEGY_ROUND_ROBIN,
                                             MR_STRATEGY_HEALTHIEST, MR_STRATEGY_KEY};
    for (size_t i = 0; i < 4; i++)
        assert_slice(target(world, kinds[i], "k", i), "q");
    assert_slice(target(world, MR_STRATEGY_TAG, "gpu", 0), "q@gpu");
    size_t n = 1;
    (void)targets(world, (struct mr_strategy_to){.kind = MR_STRATEGY_BROADCAST}, 0, &n);
    assert_int_equal(n, 0);
}

static void the_healthiest_has_the_least_in_hand_for_each_slot(void **state)
{
    struct world *world = *state;
    struct mr_node_info *a = add(world, "a", "q"), *b = add(world, "b", "q");
    a->slots = 10;
    a->in_hand = 5;
    b->slots = 2;
    b->in_hand = 2;
    seen(world);
    assert_slice(target(world, MR_STRATEGY_HEALTHIEST, "", 7), "q@a");
    b->in_hand = 0;
    seen(world);
    assert_slice(target(world, MR_STRATEGY_HEALTHIEST, "", 7), "q@b");
}

static void of_those_with_as_much_in_hand_who_fails_less_is_healthier(void **state)
{
    struct world *world = *state;
    static const struct mr_slot_info slots[] = {{.state = MR_SLOT_ERROR},
                                                {.state = MR_SLOT_WORKING}};
    struct mr_node_info *a = add(world, "a", "q");
    (void)add(world, "b", "q");
    a->slot_infos = slots;
    a->slot_infos_n = 2;
    for (uint64_t i = 0; i < 4; i++) {
        seen(world);
        assert_slice(target(world, MR_STRATEGY_HEALTHIEST, "", i), "q@b");
    }
}

static void equally_healthy_ones_share_and_a_batch_is_spread(void **state)
{
    struct world *world = *state;
    size_t got[3] = {0};
    add_many(world, 3);
    for (uint64_t i = 0; i < 30; i++) { /* each with a list of its own */
        seen(world);
        got[whose(world, target(world, MR_STRATEGY_HEALTHIEST, "", i))]++;
    }
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(got[i], 10);
    world->nodes[1].slots = 8; /* and all with one list: twice the slots, twice the tasks */
    memset(got, 0, sizeof got);
    seen(world);
    for (uint64_t i = 0; i < 400; i++)
        got[whose(world, target(world, MR_STRATEGY_HEALTHIEST, "", 0))]++;
    assert_in_range(got[0], 99, 101);
    assert_in_range(got[1], 199, 201);
    assert_in_range(got[2], 99, 101);
}

/* Where the keys go; 16 bits of a node. */
enum { KEYS = 10000 };

static void place_keys(struct world *world, uint16_t places[KEYS])
{
    for (size_t i = 0; i < KEYS; i++) {
        char key[32];
        (void)snprintf(key, sizeof key, "customer-%zu", i);
        places[i] = (uint16_t)whose(world, target(world, MR_STRATEGY_KEY, key, i));
    }
}

static void keys_are_spread_evenly_and_stay(void **state)
{
    enum { N = 10 };
    struct world *world = *state;
    uint16_t first[KEYS], again[KEYS];
    size_t got[N] = {0};
    add_many(world, N);
    seen(world);
    place_keys(world, first);
    for (size_t i = 0; i < KEYS; i++)
        got[first[i]]++;
    double chi = 0;
    for (size_t i = 0; i < N; i++)
        chi += ((double)got[i] - KEYS / N) * ((double)got[i] - KEYS / N) / (KEYS / N);
    assert_true(chi < 27.9);       /* of 9 degrees, one in a thousand is above */
    for (size_t i = 0; i < N; i++) /* started again, busy, and listed another way round */
        world->nodes[i].incarnation += 77, world->nodes[i].in_hand = i;
    seen(world);
    place_keys(world, again);
    assert_memory_equal(first, again, sizeof first);
}

static void when_a_worker_goes_only_its_keys_move_and_come_back_with_it(void **state)
{
    enum { N = 10, GONE = 3 };
    struct world *world = *state;
    uint16_t before[KEYS], without[KEYS], after[KEYS];
    size_t moved_to[N] = {0}, moved = 0;
    add_many(world, N);
    seen(world);
    place_keys(world, before);
    world->nodes[GONE].state = MR_NODE_DEAD;
    seen(world);
    place_keys(world, without);
    for (size_t i = 0; i < KEYS; i++) {
        if (before[i] != GONE)
            assert_int_equal(without[i], before[i]);
        moved += before[i] == GONE;
        moved_to[without[i]] += before[i] == GONE;
    }
    for (size_t i = 0; i < N; i++) /* all of the others take some of them over */
        assert_true(i == GONE ? moved_to[i] == 0 : moved_to[i] > moved / N / 2);
    world->nodes[GONE].state = MR_NODE_LIVE;
    world->nodes[GONE].incarnation = 4711;
    seen(world);
    place_keys(world, after);
    assert_memory_equal(before, after, sizeof before);
}

static void a_broadcast_reaches_each_live_worker_once(void **state)
{
    struct world *world = *state;
    add_many(world, 5);
    world->nodes[2].state = MR_NODE_DEAD;
    seen(world);
    size_t n, reached[5] = {0};
    const struct mr_target *list =
        targets(world, (struct mr_strategy_to){.kind = MR_STRATEGY_BROADCAST}, 0, &n);
    assert_int_equal(n, 4);
    for (size_t i = 0; i < n; i++) {
        size_t node = whose(world, list[i].queue);
        assert_int_equal(list[i].incarnation, world->nodes[node].incarnation);
        reached[node]++;
    }
    for (size_t i = 0; i < 5; i++)
        assert_int_equal(reached[i], i != 2);
}

static void tasks_of_a_broadcast_say_whose_they_are(void **state)
{
    (void)state;
    const char *firing = "0123456789abcdef0123456789abcdef-1700000000000-0";
    char id[MR_BROADCAST_ID_MAX], other[MR_BROADCAST_ID_MAX];
    size_t len = mr_broadcast_id(mr_slice_str(firing), 0xabc, id);
    assert_string_equal(id, "0123456789abcdef0123456789abcdef-1700000000000-0-0000000000000abc");
    assert_int_equal(len, strlen(id));
    (void)mr_broadcast_id(mr_slice_str(firing), UINT64_MAX, other);
    assert_string_not_equal(id, other);
    assert_slice(mr_broadcast_firing(mr_slice_str(id)), firing);
    assert_slice(mr_broadcast_firing(mr_slice_str(other)), firing);
    assert_int_equal(mr_broadcast_firing(mr_slice_str(firing)).len, 0);
    assert_int_equal(mr_broadcast_firing(MR_SLICE_LIT("")).len, 0);
    assert_int_equal(mr_broadcast_firing(MR_SLICE_LIT("-0000000000000abc")).len, 0);
    assert_int_equal(mr_broadcast_firing(MR_SLICE_LIT("x-000000000000xabc")).len, 0);
}

static void what_was_decided_can_be_written_down_and_read_back(void **state)
{
    struct world *world = *state;
    struct mr_buf text = {0};
    size_t n;
    struct mr_target *list;
    add_many(world, 3);
    (void)add(world, "odd name 0000000000000abc", "q");
    seen(world);
    const struct mr_target *all =
        targets(world, (struct mr_strategy_to){.kind = MR_STRATEGY_BROADCAST}, 0, &n);
    assert_int_equal(mr_targets_write(all, n, &text), MR_OK);
    assert_int_equal(
        mr_targets_read(mr_buf_slice(&text), MR_SLICE_LIT("q"), &world->arena, &list, &n), MR_OK);
    assert_int_equal(n, 4);
    for (size_t i = 0; i < n; i++) {
        assert_true(mr_slice_equal(list[i].queue, all[i].queue));
        assert_int_equal(list[i].incarnation, all[i].incarnation);
    }
    mr_buf_clear(&text);
    const struct mr_target tag = {.queue = MR_SLICE_LIT("q@gpu")};
    assert_int_equal(mr_targets_write(&tag, 1, &text), MR_OK);
    assert_slice(mr_buf_slice(&text), "q@gpu");
    mr_buf_done(&text);
    static const struct mr_slice none = {0}, bad = MR_SLICE_LIT("q@a\n\nq@b");
    assert_int_equal(mr_targets_read(none, MR_SLICE_LIT("q"), &world->arena, &list, &n), MR_OK);
    assert_int_equal(n, 1);
    assert_slice(list->queue, "q");
    assert_int_equal(mr_targets_read(bad, MR_SLICE_LIT("q"), &world->arena, &list, &n), MR_INVALID);
}

/* The least that a firing of any kind must do, for many lists of nodes: go to somebody who lives, or to the queue. */
static void every_target_is_a_live_worker_or_the_queue(void **state)
{
    struct world *world = *state;
    struct mr_rand rand = {0};
    mr_rand_seed(&rand, 20261116);
    for (int round = 0; round < 500; round++) {
        world->n = 0;
        mr_arena_reset(&world->arena);
        add_many(world, mr_rand_next(&rand) % 8);
        size_t live = 0;
        for (size_t i = 0; i < world->n; i++) {
            world->nodes[i].state = (enum mr_node_state)(mr_rand_next(&rand) % 3);
            world->nodes[i].in_hand = mr_rand_next(&rand) % 9;
            world->nodes[i].slots = (uint32_t)(mr_rand_next(&rand) % 5);
            live += world->nodes[i].state == MR_NODE_LIVE;
        }
        seen(world);
        for (int kind = MR_STRATEGY_ROUND_ROBIN; kind <= MR_STRATEGY_KEY; kind++) {
            struct mr_slice queue = target(world, (enum mr_strategy)kind, "k", mr_rand_next(&rand));
            if (live == 0)
                assert_slice(queue, "q");
            else
                assert_int_equal(world->nodes[whose(world, queue)].state, MR_NODE_LIVE);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(any_worker_is_the_queue_itself, begin, end),
        cmocka_unit_test_setup_teardown(
            round_robin_reaches_each_in_turn_whatever_order_the_nodes_come_in, begin, end),
        cmocka_unit_test_setup_teardown(only_live_workers_of_the_queue_that_handle_the_type_count,
                                        begin, end),
        cmocka_unit_test_setup_teardown(
            without_workers_it_goes_to_the_queue_and_a_broadcast_nowhere, begin, end),
        cmocka_unit_test_setup_teardown(the_healthiest_has_the_least_in_hand_for_each_slot, begin,
                                        end),
        cmocka_unit_test_setup_teardown(of_those_with_as_much_in_hand_who_fails_less_is_healthier,
                                        begin, end),
        cmocka_unit_test_setup_teardown(equally_healthy_ones_share_and_a_batch_is_spread, begin,
                                        end),
        cmocka_unit_test_setup_teardown(keys_are_spread_evenly_and_stay, begin, end),
        cmocka_unit_test_setup_teardown(when_a_worker_goes_only_its_keys_move_and_come_back_with_it,
                                        begin, end),
        cmocka_unit_test_setup_teardown(a_broadcast_reaches_each_live_worker_once, begin, end),
        cmocka_unit_test_setup_teardown(what_was_decided_can_be_written_down_and_read_back, begin,
                                        end),
        cmocka_unit_test(tasks_of_a_broadcast_say_whose_they_are),
        cmocka_unit_test_setup_teardown(every_target_is_a_live_worker_or_the_queue, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
