/* SPDX-License-Identifier: Apache-2.0 */
/* Who fires what: what is worked out from who is there and whose each app is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rand.h"
#include "timer/share.h"

enum { SERVERS_MAX = 8, APPS_MAX = 60, NAME_LEN = 32 };

struct world {
    struct mr_share_server servers[SERVERS_MAX];
    struct mr_share_app apps[APPS_MAX];
    size_t servers_n, apps_n;
    char names[APPS_MAX][NAME_LEN];
};

static void make(struct world *w, size_t servers, size_t apps)
{
    static const char letters[] = "abcdefgh";
    *w = (struct world){.servers_n = servers, .apps_n = apps};
    for (size_t i = 0; i < servers; i++)
        w->servers[i].name = mr_slice_make(&letters[i], 1);
    for (size_t i = 0; i < apps; i++) {
        (void)snprintf(w->names[i], NAME_LEN, "app-%02zu", i);
        w->apps[i] =
            (struct mr_share_app){.name = mr_slice_str(w->names[i]), .owner = MR_SHARE_NOBODY};
    }
}

static size_t has(const struct world *w, size_t server)
{
    size_t n = 0;
    for (size_t i = 0; i < w->apps_n; i++)
        n += w->apps[i].owner == server;
    return n;
}

/* How many apps went elsewhere. */
static size_t share(struct world *w)
{
    struct mr_share_app before[APPS_MAX];
    size_t moved = 0;
    memcpy(before, w->apps, sizeof before);
    mr_share(w->servers, w->servers_n, w->apps, w->apps_n);
    for (size_t i = 0; i < w->apps_n; i++)
        moved += before[i].owner != MR_SHARE_NOBODY && before[i].owner != w->apps[i].owner;
    for (size_t i = 0; i < w->servers_n; i++)
        assert_int_equal(w->servers[i].n, has(w, i));
    return moved;
}

static void test_six_apps_of_two_servers_and_of_a_third(void **state)
{
    (void)state;
    struct world w;
    make(&w, 3, 6);
    w.servers_n = 2;
    assert_int_equal(share(&w), 0);
    assert_int_equal(has(&w, 0), 3);
    assert_int_equal(has(&w, 1), 3);
    w.servers_n = 3;
    assert_int_equal(share(&w), 2);
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(has(&w, i), 2);
    assert_int_equal(share(&w), 0); /* and stays so */
}

static void test_an_app_stays_when_a_second_server_comes(void **state)
{
    (void)state;
    struct world w;
    make(&w, 2, 1);
    w.apps[0].owner = 1;
    assert_int_equal(share(&w), 0);
    assert_int_equal(w.apps[0].owner, 1);
}

static void test_a_server_has_only_what_it_is_there_for(void **state)
{
    (void)state;
    struct world w;
    make(&w, 3, 6);
    w.servers[0].apps = mr_slice_str("app-01\napp-04");
    w.servers[1].apps = mr_slice_str("app-0"); /* which is none of them */
    assert_int_equal(share(&w), 0);
    assert_int_equal(has(&w, 0), 2);
    assert_int_equal(w.apps[1].owner, 0);
    assert_int_equal(w.apps[4].owner, 0);
    assert_int_equal(has(&w, 1), 0);
    assert_int_equal(has(&w, 2), 4);
    w.servers_n = 1; /* nobody is there for the others */
    for (size_t i = 0; i < w.apps_n; i++)
        w.apps[i].owner = w.apps[i].owner == 0 ? 0 : MR_SHARE_NOBODY;
    assert_int_equal(share(&w), 0);
    assert_int_equal(w.apps[0].owner, MR_SHARE_NOBODY);
}

/* Who has just his share gives nothing, though somebody has two less: others have one too many. */
static void test_who_has_his_share_gives_none_of_it(void **state)
{
    static const size_t owned[] = {5, 4, 5, 5, 6, 4};
    (void)state;
    struct world w;
    make(&w, 8, 33); /* four of them are nobody's */
    size_t at = 0;
    for (size_t i = sizeof owned / sizeof *owned;
         i-- > 0;) /* the first ones are of one with his share */
        for (size_t k = 0; k < owned[i]; k++)
            w.apps[at++].owner = i;
    assert_int_equal(share(&w), 4);
}

/* So many must go: what each has beyond a share, where the larger shares are those of who has most. */
static size_t must_move(const struct world *w)
{
    size_t few = w->apps_n / w->servers_n, larger = w->apps_n % w->servers_n, moves = 0;
    for (size_t i = 0; i < w->servers_n; i++) {
        size_t n = has(w, i), may = few + (n > few && larger > 0);
        larger -= n > few && larger > 0;
        moves += n > may ? n - may : 0;
    }
    return moves;
}

static void test_shares_are_even_and_nothing_moves_that_need_not(void **state)
{
    (void)state;
    struct mr_rand rand;
    struct world w;
    uint64_t seed = mr_rand_next(mr_rand_of_thread());
    printf("seed %llu\n", (unsigned long long)seed);
    mr_rand_seed(&rand, seed);
    for (int round = 0; round < 5000; round++) {
        make(&w, 1 + mr_rand_below(&rand, SERVERS_MAX), mr_rand_below(&rand, APPS_MAX + 1));
        size_t among = 1 + mr_rand_below(&rand, w.servers_n); /* the others have come just now */
        for (size_t i = 0; i < w.apps_n; i++)
            w.apps[i].owner =
                mr_rand_one_in(&rand, 4) ? MR_SHARE_NOBODY : mr_rand_below(&rand, among);
        size_t must = must_move(&w);
        assert_int_equal(share(&w), must);
        for (size_t i = 0; i < w.servers_n; i++)
            assert_in_range(has(&w, i), w.apps_n / w.servers_n,
                            (w.apps_n + w.servers_n - 1) / w.servers_n);
        assert_int_equal(share(&w), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_six_apps_of_two_servers_and_of_a_third),
        cmocka_unit_test(test_an_app_stays_when_a_second_server_comes),
        cmocka_unit_test(test_a_server_has_only_what_it_is_there_for),
        cmocka_unit_test(test_who_has_his_share_gives_none_of_it),
        cmocka_unit_test(test_shares_are_even_and_nothing_moves_that_need_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
