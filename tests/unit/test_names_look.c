/* SPDX-License-Identifier: Apache-2.0 */
/* What nameservers show and what processes say of themselves: against what protobuf-c makes of the same .proto file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "millrace/v1/names.pb-c.h"
#include "names/look.h"

static void test_a_look(void **state)
{
    (void)state;
    struct mr_names_app apps[] = {{mr_slice_str("mail"), 3}, {mr_slice_str("web"), 1}};
    struct mr_names_look_peer peers[] = {{mr_slice_str("a:1"), true}, {mr_slice_str("b:2"), false}};
    struct mr_names_look look = {.from = 7,
                                 .complete = true,
                                 .servers = 2,
                                 .workers = 4,
                                 .graves = 5,
                                 .expired = 6,
                                 .left = 8,
                                 .refused = 9,
                                 .forgotten = 10,
                                 .stalls = 11,
                                 .view = UINT64_MAX,
                                 .apps = apps,
                                 .apps_n = 2,
                                 .peers = peers,
                                 .peers_n = 2};
    struct mr_buf buf = {0};
    struct mr_arena arena = {0};
    struct mr_names_look back;
    assert_int_equal(mr_names_look_encode(&look, &buf), MR_OK);
    Millrace__V1__NameLook *pb = millrace__v1__name_look__unpack(NULL, buf.len, buf.data);
    assert_non_null(pb);
    assert_true(pb->from == 7 && pb->complete && !pb->more && pb->servers == 2 && pb->workers == 4);
    assert_true(pb->graves == 5 && pb->expired == 6 && pb->left == 8 && pb->refused == 9);
    assert_true(pb->forgotten == 10 && pb->stalls == 11 && pb->view == UINT64_MAX);
    assert_int_equal(pb->n_apps, 2);
    assert_string_equal(pb->apps[1]->name, "web");
    assert_int_equal(pb->apps[0]->workers, 3);
    assert_int_equal(pb->n_peers, 2);
    assert_string_equal(pb->peers[0]->address, "a:1");
    assert_true(pb->peers[0]->is_up && !pb->peers[1]->is_up);
    millrace__v1__name_look__free_unpacked(pb, NULL);
    assert_int_equal(mr_names_look_decode(mr_buf_slice(&buf), &arena, &back), MR_OK);
    assert_true(back.view == look.view && back.apps_n == 2 && back.peers_n == 2);
    assert_true(mr_slice_equal(back.apps[1].name, apps[1].name) && back.apps[0].workers == 3);
    assert_true(back.peers[0].is_up && !back.peers[1].is_up);
    mr_arena_done(&arena);
    mr_buf_done(&buf);
}

static void test_more_apps_than_fit_are_left_out_and_it_says_so(void **state)
{
    (void)state;
    enum { N = MR_NAMES_LOOK_APPS + 1 };
    struct mr_names_app *apps = calloc(N, sizeof *apps);
    struct mr_names_look look = {.apps = apps, .apps_n = N}, back;
    struct mr_buf buf = {0};
    struct mr_arena arena = {0};
    assert_non_null(apps);
    for (size_t i = 0; i < N; i++)
        apps[i] = (struct mr_names_app){mr_slice_str("a"), 1};
    assert_int_equal(mr_names_look_encode(&look, &buf), MR_OK);
    assert_int_equal(mr_names_look_decode(mr_buf_slice(&buf), &arena, &back), MR_OK);
    assert_true(back.more && back.apps_n == MR_NAMES_LOOK_APPS);
    static const uint8_t one_more[] = {13 << 3 | 2, 0}; /* whoever says more is not listened to */
    assert_int_equal(mr_buf_append(&buf, one_more, sizeof one_more), MR_OK);
    assert_int_equal(mr_names_look_decode(mr_buf_slice(&buf), &arena, &back), MR_TOO_BIG);
    mr_arena_done(&arena);
    mr_buf_done(&buf);
    free(apps);
}

static void test_the_body_of_a_server(void **state)
{
    (void)state;
    struct mr_names_load loads[] = {{mr_slice_str("mail"), 4, 90}, {mr_slice_str("web"), 0, 10}};
    struct mr_names_server_body body = {.load = 120,
                                        .weight = 50,
                                        .owns = 2,
                                        .server = mr_slice_str("life"),
                                        .is_secure = true,
                                        .loads = loads,
                                        .loads_n = 2};
    struct mr_names_server_body back;
    struct mr_buf buf = {0};
    struct mr_arena arena = {0};
    assert_int_equal(mr_names_server_body_encode(&body, &buf), MR_OK);
    Millrace__V1__NameServerBody *pb =
        millrace__v1__name_server_body__unpack(NULL, buf.len, buf.data);
    assert_non_null(pb);
    assert_true(pb->load == 120 && pb->weight == 50 && pb->owns == 2 && pb->is_secure);
    assert_string_equal(pb->server, "life");
    assert_int_equal(pb->n_loads, 2);
    assert_string_equal(pb->loads[0]->app, "mail");
    assert_true(pb->loads[0]->part == 4 && pb->loads[0]->load == 90);
    millrace__v1__name_server_body__free_unpacked(pb, NULL);
    assert_int_equal(mr_names_server_body_decode(mr_buf_slice(&buf), &arena, &back), MR_OK);
    assert_true(back.load == 120 && back.weight == 50 && back.loads_n == 2);
    assert_true(mr_slice_equal(back.server, body.server) && back.loads[1].load == 10);
    mr_arena_done(&arena);
    mr_buf_done(&buf);
}

static void test_a_body_has_the_first_loads_and_never_more_bytes_than_it_may(void **state)
{
    (void)state;
    enum { N = MR_NAMES_LOADS_MAX };
    static char name[MR_NAME_MAX];
    struct mr_names_load loads[N];
    struct mr_names_server_body body = {.load = N, .loads = loads, .loads_n = N}, back;
    struct mr_buf buf = {0};
    struct mr_arena arena = {0};
    memset(name, 'a', sizeof name);
    for (size_t i = 0; i < N; i++)
        loads[i] =
            (struct mr_names_load){mr_slice_make(name, sizeof name), (uint32_t)i, (int64_t)(N - i)};
    assert_int_equal(mr_buf_append(&buf, "before", 6), MR_OK);
    assert_int_equal(mr_names_server_body_encode(&body, &buf), MR_OK);
    assert_true(buf.len - 6 <= MR_NAMES_BODY_MAX && buf.len - 6 > MR_NAMES_BODY_MAX - 200);
    struct mr_slice bytes = mr_slice_make(buf.data + 6, buf.len - 6);
    assert_int_equal(mr_names_server_body_decode(bytes, &arena, &back), MR_OK);
    assert_true(back.loads_n > 10 && back.loads_n < N && back.loads[0].load == N);
    mr_arena_done(&arena);
    mr_buf_done(&buf);
}

static void test_the_body_of_a_worker(void **state)
{
    (void)state;
    struct mr_names_worker_body body = {.slots = 8, .busy = 3, .done = 100, .in_hour = 3600}, back;
    struct mr_buf buf = {0};
    assert_int_equal(mr_names_worker_body_encode(&body, &buf), MR_OK);
    Millrace__V1__NameWorkerBody *pb =
        millrace__v1__name_worker_body__unpack(NULL, buf.len, buf.data);
    assert_non_null(pb);
    assert_true(pb->slots == 8 && pb->busy == 3 && pb->done == 100 && pb->in_hour == 3600);
    millrace__v1__name_worker_body__free_unpacked(pb, NULL);
    assert_int_equal(mr_names_worker_body_decode(mr_buf_slice(&buf), &back), MR_OK);
    assert_true(back.slots == 8 && back.busy == 3 && back.done == 100 && back.in_hour == 3600);
    assert_int_equal(mr_names_worker_body_decode(MR_SLICE_LIT("\xff"), &back), MR_INVALID);
    mr_buf_done(&buf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_look),
        cmocka_unit_test(test_more_apps_than_fit_are_left_out_and_it_says_so),
        cmocka_unit_test(test_the_body_of_a_server),
        cmocka_unit_test(test_a_body_has_the_first_loads_and_never_more_bytes_than_it_may),
        cmocka_unit_test(test_the_body_of_a_worker),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
