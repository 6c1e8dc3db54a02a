/* SPDX-License-Identifier: Apache-2.0 */
/* Nameservers on sockets: registrations, lists that wait for a change, and several that keep each other in step. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "names/wire.h"
#include "support/on_loop.h"
#include "unit/names_rig.h"

enum { NODES = 3, WAITS_MS = 20 * 1000 };

static bool refuses_servers(struct mr_call *call, enum mr_names_right right, struct mr_slice app,
                            void *arg)
{
    (void)app, (void)arg;
    if (right != MR_NAMES_SERVE)
        return true;
    mr_call_end(call, MR_RPC_DENIED, MR_SLICE_LIT("not you"));
    return false;
}

/* ---- who calls them --------------------------------------------------------------------------- */

struct user {
    struct mr_rpc *rpc;
    struct mr_channel *channel;
    struct mr_event up;
};

static void user_changed(struct mr_channel *channel, bool up, const char *why, void *arg)
{
    struct user *user = arg;
    (void)channel, (void)why;
    if (up)
        mr_event_set(&user->up);
}

static void user_start(struct user *user, const struct node *node)
{
    struct mr_channel_options options = {
        .address = node->address, .changed = user_changed, .arg = user};
    mr_event_init(&user->up);
    assert_int_equal(mr_rpc_new("user", NULL, &user->rpc), MR_OK);
    assert_int_equal(mr_channel_new(user->rpc, &options, &user->channel, NULL), MR_OK);
    assert_true(mr_event_wait(&user->up, patience_ns));
}

static void user_stop(struct user *user)
{
    mr_channel_free(user->channel);
    mr_rpc_free(user->rpc);
}

struct ask {
    struct user *user;
    const char *path;
    struct mr_buf question, answer;
    size_t answers;
    struct mr_event closed;
    int status;
    enum mr_err err;
};

static void ask_message(struct mr_call *call, struct mr_slice bytes)
{
    struct ask *ask = mr_call_data(call);
    ask->answers++;
    mr_buf_clear(&ask->answer);
    mr_assert(mr_buf_append_slice(&ask->answer, bytes) == MR_OK);
}

static void ask_closed(struct mr_call *call, int status, struct mr_slice text)
{
    struct ask *ask = mr_call_data(call);
    (void)text;
    ask->status = status;
    mr_event_set(&ask->closed);
}

static const struct mr_call_ops ask_ops = {.message = ask_message, .closed = ask_closed};

static void ask_begin(void *arg)
{
    struct ask *ask = arg;
    struct mr_call *call;
    ask->err = mr_channel_call(ask->user->channel, ask->path, 0, &ask_ops, ask, &call);
    if (ask->err == MR_OK)
        ask->err = mr_call_send(call, mr_buf_slice(&ask->question));
    if (ask->err == MR_OK)
        mr_call_half_close(call);
}

static void ask_start(struct ask *ask, struct user *user, const char *path)
{
    ask->user = user;
    ask->path = path;
    mr_event_init(&ask->closed);
    on_loop(user->rpc, ask_begin, ask);
    assert_int_equal(ask->err, MR_OK);
}

static int ask_end(struct ask *ask)
{
    assert_true(mr_event_wait(&ask->closed, patience_ns));
    mr_buf_done(&ask->question);
    return ask->status;
}

/* ---- questions -------------------------------------------------------------------------------- */

static int registers(struct user *user, struct mr_names_entry entry,
                     struct mr_names_registered *ret)
{
    struct ask ask = {0};
    assert_int_equal(mr_names_entry_encode(&entry, &ask.question), MR_OK);
    ask_start(&ask, user, "/millrace.v1.Names/Register");
    int status = ask_end(&ask);
    assert_int_equal(ask.answers, status == MR_RPC_OK);
    if (status == MR_RPC_OK)
        assert_int_equal(mr_names_registered_decode(mr_buf_slice(&ask.answer), ret), MR_OK);
    mr_buf_done(&ask.answer);
    return status;
}

static void list_start(struct ask *ask, struct user *user, struct mr_names_query query)
{
    *ask = (struct ask){0};
    assert_int_equal(mr_names_query_encode(&query, &ask->question), MR_OK);
    ask_start(ask, user, "/millrace.v1.Names/List");
}

/* How many entries came; the page is good until the ask is done. */
static size_t list_end(struct ask *ask, struct mr_names_page *ret)
{
    struct mr_arena arena = {0};
    struct mr_names_page page;
    assert_int_equal(ask_end(ask), MR_RPC_OK);
    assert_int_equal(mr_names_page_decode(mr_buf_slice(&ask->answer), &arena, &page), MR_OK);
    *ret = (struct mr_names_page){.from = page.from,
                                  .changed = page.changed,
                                  .complete = page.complete,
                                  .more = page.more,
                                  .entries_n = page.entries_n};
    mr_arena_done(&arena);
    mr_buf_done(&ask->answer);
    return ret->entries_n;
}

static size_t lists(struct user *user, struct mr_names_query query, struct mr_names_page *ret)
{
    struct ask ask;
    list_start(&ask, user, query);
    return list_end(&ask, ret);
}

static struct mr_names_entry worker(uint64_t incarnation, uint64_t version)
{
    return (struct mr_names_entry){.kind = MR_NAMES_WORKER,
                                   .name = mr_slice_str("w"),
                                   .app = mr_slice_str("mail"),
                                   .incarnation = incarnation,
                                   .version = version};
}

static const struct mr_names_query mail = {.kind = MR_NAMES_WORKER, .app = {"mail", 4}};

/* Until the list has so many. */
static void await(struct user *user, size_t wanted)
{
    int64_t give_up = mr_mono_now(mr_clock_system()).ns + patience_ns;
    struct mr_names_page page;
    while (lists(user, mail, &page) != wanted)
        assert_true(mr_mono_now(mr_clock_system()).ns < give_up);
}

/* ---- one -------------------------------------------------------------------------------------- */

static void test_a_worker_registers_and_is_listed(void **state)
{
    (void)state;
    struct node node = {0};
    struct user user;
    struct mr_names_registered answer;
    struct mr_names_page page;
    node_start(&node, &(struct mr_names_options){0});
    user_start(&user, &node);
    assert_int_equal(registers(&user, worker(1, 1), &answer), MR_RPC_OK);
    assert_int_equal(answer.put, MR_PUT_NEW);
    assert_false(answer.complete); /* it has just begun */
    assert_int_equal(answer.servers, 0);
    assert_int_equal(registers(&user, worker(1, 1), &answer), MR_RPC_OK);
    assert_int_equal(answer.put, MR_PUT_KNOWN);
    assert_int_equal(lists(&user, mail, &page), 1);
    assert_true(page.from == answer.from && page.changed == answer.workers);
    struct mr_names_query known = mail;
    known.from = page.from;
    known.known = page.changed;
    assert_int_equal(lists(&user, known, &page), 0); /* nothing new */
    known.from++;                                    /* the same number of another nameserver */
    assert_int_equal(lists(&user, known, &page), 1);
    user_stop(&user);
    node_stop(&node);
}

static void test_a_question_waits_for_a_change(void **state)
{
    (void)state;
    struct node node = {0};
    struct user user;
    struct mr_names_registered answer;
    struct mr_names_page page;
    struct ask ask;
    node_start(&node, &(struct mr_names_options){0});
    user_start(&user, &node);
    assert_int_equal(registers(&user, worker(1, 1), &answer), MR_RPC_OK);
    struct mr_names_query query = mail;
    query.from = answer.from;
    query.known = answer.workers;
    query.wait_ms = WAITS_MS;
    list_start(&ask, &user, query);
    assert_int_equal(registers(&user, worker(1, 2), &answer), MR_RPC_OK); /* no news */
    assert_false(mr_event_wait(&ask.closed, 50 * MR_NS_PER_MS));
    assert_int_equal(registers(&user, worker(2, 1), &answer), MR_RPC_OK);
    assert_int_equal(list_end(&ask, &page), 2);
    query.known = page.changed;
    query.wait_ms = 30;
    list_start(&ask, &user, query);
    assert_int_equal(list_end(&ask, &page), 0); /* its time is over */
    query.wait_ms = WAITS_MS;
    list_start(&ask, &user, query);
    mr_names_stop(node.names); /* and who stops answers */
    assert_int_equal(list_end(&ask, &page), 0);
    user_stop(&user);
    mr_rpc_free(node.rpc);
    mr_names_free(node.names);
}

static void test_what_cannot_be_or_may_not_is_refused(void **state)
{
    (void)state;
    struct node node = {0};
    struct user user;
    struct mr_names_registered answer;
    struct ask ask = {0};
    node_start(&node, &(struct mr_names_options){.may = refuses_servers});
    user_start(&user, &node);
    assert_int_equal(registers(&user, worker(0, 1), &answer), MR_RPC_INVALID);
    struct mr_names_entry server = {.kind = MR_NAMES_SERVER,
                                    .name = mr_slice_str("s"),
                                    .address = mr_slice_str("host:1"),
                                    .incarnation = 1,
                                    .version = 1};
    assert_int_equal(registers(&user, server, &answer), MR_RPC_DENIED);
    assert_int_equal(mr_buf_append(&ask.question, "\xff", 1), MR_OK);
    ask_start(&ask, &user, "/millrace.v1.Names/List");
    assert_int_equal(ask_end(&ask), MR_RPC_INVALID);
    ask = (struct ask){0};
    ask_start(&ask, &user, "/millrace.v1.Names/Exchange");
    assert_int_equal(ask_end(&ask), MR_RPC_DENIED);
    user_stop(&user);
    node_stop(&node);
}

/* ---- three ------------------------------------------------------------------------------------ */

static void test_three_know_what_any_is_told_and_one_that_comes_back_learns_it(void **state)
{
    (void)state;
    struct node nodes[NODES] = {0};
    struct user users[NODES];
    struct mr_names_registered answer;
    const char *peers[NODES] = {0};
    for (size_t i = 0; i < NODES; i++) { /* each knows those that came before it */
        node_start(&nodes[i], &(struct mr_names_options){.peers = peers, .peers_n = i});
        peers[i] = nodes[i].address;
        user_start(&users[i], &nodes[i]);
    }
    for (uint64_t i = 0; i < NODES; i++)
        assert_int_equal(registers(&users[i], worker(i + 1, 1), &answer), MR_RPC_OK);
    for (size_t i = 0; i < NODES; i++)
        await(&users[i], NODES);
    node_stop(&nodes[0]);
    struct mr_names_entry left = worker(2, 2);
    left.fate = MR_NAMES_LEFT;
    assert_int_equal(registers(&users[1], left, &answer), MR_RPC_OK);
    await(&users[2], NODES - 1);
    /* The first has forgotten everything, and knows the others now. */
    node_start(&nodes[0], &(struct mr_names_options){.peers = peers + 1, .peers_n = NODES - 1});
    struct user again;
    user_start(&again, &nodes[0]);
    await(&again, NODES - 1);
    assert_int_equal(registers(&again, worker(4, 1), &answer), MR_RPC_OK);
    for (size_t i = 1; i < NODES; i++)
        await(&users[i], NODES);
    user_stop(&again);
    for (size_t i = 0; i < NODES; i++) {
        user_stop(&users[i]);
        node_stop(&nodes[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_worker_registers_and_is_listed),
        cmocka_unit_test(test_a_question_waits_for_a_change),
        cmocka_unit_test(test_what_cannot_be_or_may_not_is_refused),
        cmocka_unit_test(test_three_know_what_any_is_told_and_one_that_comes_back_learns_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
