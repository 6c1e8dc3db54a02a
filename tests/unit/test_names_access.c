/* SPDX-License-Identifier: Apache-2.0 */
/* Who may call a nameserver. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/names.h"
#include "names/wire.h"
#include "support/on_loop.h"
#include "unit/names_rig.h"
#include "unit/temp_dir.h"

struct rig {
    char dir[TEMP_DIR_MAX];
    struct mr_access access;
    struct node node;
    struct mr_rpc *rpc; /* of callers */
};

static void rig_start(struct rig *rig)
{
    *rig = (struct rig){.access.mode = MR_ACCESS_TOKENS};
    temp_dir_make(rig->dir);
    assert_int_equal(mr_tokens_open(rig->dir, NULL, &rig->access.tokens, NULL), MR_OK);
    node_start(&rig->node, &(struct mr_names_options){.may = mr_names_access, .arg = &rig->access});
    assert_int_equal(mr_rpc_new("callers", NULL, &rig->rpc), MR_OK);
}

static void rig_stop(struct rig *rig)
{
    mr_rpc_free(rig->rpc);
    node_stop(&rig->node);
    mr_tokens_free(rig->access.tokens);
    temp_dir_remove(rig->dir);
}

/* What a call has in its metadata. */
struct caller {
    char authorization[16 + MR_TOKEN_TEXT_LEN];
    char id[MR_TOKEN_ID_LEN + 1];
};

static struct caller caller(struct rig *rig, enum mr_role role, const char *queue)
{
    struct mr_token wanted = {.role = role}, made;
    struct caller c;
    char text[MR_TOKEN_TEXT_LEN + 1];
    (void)snprintf(wanted.queue, sizeof wanted.queue, "%s", queue);
    assert_int_equal(mr_tokens_create(rig->access.tokens, &wanted, &made, text, NULL), MR_OK);
    (void)snprintf(c.authorization, sizeof c.authorization, "Bearer %s", text);
    (void)snprintf(c.id, sizeof c.id, "%s", made.id);
    return c;
}

/* ---- calls ------------------------------------------------------------------------------------ */

struct ask {
    struct mr_channel *channel;
    const char *path;
    struct mr_buf question;
    struct mr_event up, closed;
    enum mr_err err;
    int status;
};

static void ask_changed(struct mr_channel *channel, bool up, const char *why, void *arg)
{
    struct ask *ask = arg;
    (void)channel, (void)why;
    if (up)
        mr_event_set(&ask->up);
}

static void ask_message(struct mr_call *call, struct mr_slice bytes)
{
    (void)call, (void)bytes;
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
    ask->err = mr_channel_call(ask->channel, ask->path, 0, &ask_ops, ask, &call);
    if (ask->err == MR_OK)
        ask->err = mr_call_send(call, mr_buf_slice(&ask->question));
    if (ask->err == MR_OK)
        mr_call_half_close(call);
}

static int call(struct rig *rig, const struct caller *who, const char *path, struct ask *ask)
{
    struct mr_channel_options options = {.address = rig->node.address,
                                         .authorization = who != NULL ? who->authorization : NULL,
                                         .changed = ask_changed,
                                         .arg = ask};
    ask->path = path;
    mr_event_init(&ask->up);
    mr_event_init(&ask->closed);
    assert_int_equal(mr_channel_new(rig->rpc, &options, &ask->channel, NULL), MR_OK);
    assert_true(mr_event_wait(&ask->up, patience_ns));
    on_loop(rig->rpc, ask_begin, ask);
    assert_int_equal(ask->err, MR_OK);
    assert_true(mr_event_wait(&ask->closed, patience_ns));
    mr_channel_free(ask->channel);
    mr_buf_done(&ask->question);
    return ask->status;
}

static int registers(struct rig *rig, const struct caller *who, enum mr_names_kind kind,
                     const char *app)
{
    struct ask ask = {0};
    struct mr_names_entry entry = {.kind = kind,
                                   .name = mr_slice_str("somebody"),
                                   .app = mr_slice_str(app),
                                   .address = mr_slice_str("host:1"),
                                   .incarnation = 1,
                                   .version = 1};
    assert_int_equal(mr_names_entry_encode(&entry, &ask.question), MR_OK);
    return call(rig, who, "/millrace.v1.Names/Register", &ask);
}

static int lists(struct rig *rig, const struct caller *who, enum mr_names_kind kind,
                 const char *app)
{
    struct ask ask = {0};
    struct mr_names_query query = {.kind = kind, .app = mr_slice_str(app)};
    assert_int_equal(mr_names_query_encode(&query, &ask.question), MR_OK);
    return call(rig, who, "/millrace.v1.Names/List", &ask);
}

static int exchanges(struct rig *rig, const struct caller *who)
{
    struct ask ask = {0};
    struct mr_names_msg msg = {.say = MR_SAY_ENTRIES};
    assert_int_equal(mr_names_encode(&msg, &ask.question), MR_OK);
    return call(rig, who, "/millrace.v1.Names/Exchange", &ask);
}

/* ---- tests ------------------------------------------------------------------------------------ */

static void test_nobody_is_refused_everywhere(void **state)
{
    (void)state;
    struct rig rig;
    rig_start(&rig);
    struct caller gone = caller(&rig, MR_ROLE_ADMIN, "");
    assert_int_equal(registers(&rig, &gone, MR_NAMES_SERVER, ""), MR_RPC_OK);
    assert_int_equal(mr_tokens_revoke(rig.access.tokens, gone.id, NULL), MR_OK);
    const struct caller *const nobody[] = {NULL, &gone};
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(registers(&rig, nobody[i], MR_NAMES_WORKER, "mail"),
                         MR_RPC_UNAUTHENTICATED);
        assert_int_equal(lists(&rig, nobody[i], MR_NAMES_SERVER, ""), MR_RPC_UNAUTHENTICATED);
        assert_int_equal(exchanges(&rig, nobody[i]), MR_RPC_UNAUTHENTICATED);
    }
    rig.access.mode = MR_ACCESS_LOOPBACK; /* who is on this machine needs none */
    assert_int_equal(lists(&rig, NULL, MR_NAMES_SERVER, ""), MR_RPC_OK);
    rig_stop(&rig);
}

static void test_each_role_may_what_it_is_for(void **state)
{
    (void)state;
    struct rig rig;
    rig_start(&rig);
    for (enum mr_role role = MR_ROLE_ADMIN; role < MR_ROLE_COUNT; role++) {
        struct caller who = caller(&rig, role, "");
        bool is_admin = role == MR_ROLE_ADMIN, works = is_admin || role == MR_ROLE_WORKER;
        assert_int_equal(registers(&rig, &who, MR_NAMES_WORKER, "mail"),
                         works ? MR_RPC_OK : MR_RPC_DENIED);
        assert_int_equal(registers(&rig, &who, MR_NAMES_SERVER, ""),
                         is_admin ? MR_RPC_OK : MR_RPC_DENIED);
        assert_int_equal(exchanges(&rig, &who), is_admin ? MR_RPC_OK : MR_RPC_DENIED);
        assert_int_equal(lists(&rig, &who, MR_NAMES_SERVER, ""), MR_RPC_OK);
        assert_int_equal(lists(&rig, &who, MR_NAMES_WORKER, ""), MR_RPC_OK);
    }
    rig_stop(&rig);
}

static void test_a_token_of_one_app_has_no_say_in_another(void **state)
{
    (void)state;
    struct rig rig;
    rig_start(&rig);
    struct caller worker = caller(&rig, MR_ROLE_WORKER, "mail*");
    struct caller admin = caller(&rig, MR_ROLE_ADMIN, "mail*");
    assert_int_equal(registers(&rig, &worker, MR_NAMES_WORKER, "mail"), MR_RPC_OK);
    assert_int_equal(registers(&rig, &worker, MR_NAMES_WORKER, "backup"), MR_RPC_DENIED);
    assert_int_equal(lists(&rig, &worker, MR_NAMES_WORKER, "mailer"), MR_RPC_OK);
    assert_int_equal(lists(&rig, &worker, MR_NAMES_WORKER, "backup"), MR_RPC_DENIED);
    assert_int_equal(lists(&rig, &worker, MR_NAMES_WORKER, ""), MR_RPC_DENIED);
    assert_int_equal(lists(&rig, &worker, MR_NAMES_SERVER, ""), MR_RPC_OK);
    assert_int_equal(registers(&rig, &admin, MR_NAMES_SERVER, ""), MR_RPC_DENIED);
    assert_int_equal(exchanges(&rig, &admin), MR_RPC_DENIED);
    rig_stop(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nobody_is_refused_everywhere),
        cmocka_unit_test(test_each_role_may_what_it_is_for),
        cmocka_unit_test(test_a_token_of_one_app_has_no_say_in_another),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
