/* SPDX-License-Identifier: Apache-2.0 */
/* A client of the servers that nameservers know: names://H1:P1,H2:P2. Acceptance tests 33 to 35 and 78, for tasks. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "api/api.h"
#include "broker/embedded/embedded.h"
#include "names/client.h"
#include "support/server_rig.h"
#include "unit/names_rig.h"
#include "unit/temp_dir.h"

enum { SERVERS = 3, WAIT_MS = 60000 }; /* it takes a second; others run on this machine */
enum { KNOWN_MS = 10 * 1000 };         /* so soon a change is known at the latest */

struct server {
    char dir[128];
    struct mr_broker *store;
    struct mr_broker counting; /* before the store */
    _Atomic size_t asked;      /* requests to take tasks */
    struct server_rig rig;
    struct mr_names_client *names; /* that it is there; NULL: it does not say so */
};

struct world {
    char dir[TEMP_DIR_MAX];
    struct mr_rpc *rpc; /* of the servers, towards the nameservers */
    struct node nameservers[2];
    struct server servers[SERVERS];
    struct mr_client *client;
};

static const struct mr_names_options soon = {.registry.hold_ms = 300};

static mr_mono now(void)
{
    return mr_mono_now(mr_clock_system());
}

static void look_for(mr_mono since, const char *what)
{
    struct mr_event never;
    mr_event_init(&never);
    if (now().ns - since.ns > WAIT_MS * MR_NS_PER_MS)
        fail_msg("never: %s", what);
    (void)mr_event_wait(&never, MR_NS_PER_MS);
}

static void join(struct world *w, size_t i)
{
    char name[16];
    const char *nameservers[] = {w->nameservers[0].address, w->nameservers[1].address};
    (void)snprintf(name, sizeof name, "server%zu", i);
    struct mr_names_client_options options = {
        .rpc = w->rpc,
        .nameservers = nameservers,
        .nameservers_n = 2,
        .entry = {.kind = MR_NAMES_SERVER,
                  .name = mr_slice_str(name),
                  .address = mr_slice_str(w->servers[i].rig.address),
                  .incarnation = i + 1},
        .register_ms = 50};
    assert_int_equal(mr_names_client_new(&options, &w->servers[i].names, NULL), MR_OK);
}

static void leave(struct world *w, size_t i)
{
    mr_names_client_free(w->servers[i].names);
    w->servers[i].names = NULL;
}

/* ---- what comes to a server --------------------------------------------------------------------- */

static struct server *counted(struct mr_broker *broker)
{
    return mr_container(broker, struct server, counting);
}

static void count_submit(struct mr_broker *broker, struct mr_req *req)
{
    if (req->op == MR_OP_ENQUEUE)
        atomic_fetch_add(&counted(broker)->asked, 1);
    mr_broker_submit(counted(broker)->store, req);
}

static void count_begun(struct mr_broker *broker, uint32_t slot, uint64_t epoch)
{
    mr_broker_begun(counted(broker)->store, slot, epoch);
}

static enum mr_err count_lease_open(struct mr_broker *broker, struct mr_lease *lease)
{
    return mr_broker_lease_open(counted(broker)->store, lease);
}

static const struct mr_broker_ops counting_ops = {
    .submit = count_submit,
    .begun = count_begun,
    .lease_open = count_lease_open,
    .in_process = true,
};

static size_t asked(const struct world *w)
{
    size_t n = 0;
    for (size_t i = 0; i < SERVERS; i++)
        n += atomic_load(&w->servers[i].asked);
    return n;
}

static int begin(void **state)
{
    struct world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    temp_dir_make(w->dir);
    assert_int_equal(mr_rpc_new("servers", NULL, &w->rpc), MR_OK);
    node_start(&w->nameservers[0], &soon);
    const char *first = w->nameservers[0].address;
    struct mr_names_options second = soon;
    second.peers = &first;
    second.peers_n = 1;
    node_start(&w->nameservers[1], &second);
    for (size_t i = 0; i < SERVERS; i++) {
        struct server *s = &w->servers[i];
        (void)snprintf(s->dir, sizeof s->dir, "%s/%zu", w->dir, i);
        struct mr_embedded_options options = {.dir = s->dir, .segment_bytes = 1024 * 1024};
        assert_int_equal(mr_embedded_open(&options, &s->store, NULL), MR_OK);
        s->counting.ops = &counting_ops;
        assert_int_equal(server_rig_start(&s->rig, &s->counting), MR_OK);
    }
    *state = w;
    return 0;
}

static int end(void **state)
{
    struct world *w = *state;
    mr_client_close(w->client);
    for (size_t i = 0; i < SERVERS; i++) {
        leave(w, i);
        server_rig_stop(&w->servers[i].rig, 0);
        mr_broker_close(w->servers[i].store);
    }
    for (size_t i = 0; i < 2; i++)
        node_stop(&w->nameservers[i]);
    mr_rpc_free(w->rpc);
    temp_dir_remove(w->dir);
    free(w);
    return 0;
}

static enum mr_err open_client(struct world *w, int64_t open_ms, struct mr_detail *detail)
{
    char url[128];
    struct mr_client_options options = {.open_ms = open_ms};
    (void)snprintf(url, sizeof url, "names://%s,%s", w->nameservers[0].address,
                   w->nameservers[1].address);
    return mr_client_open(url, &options, &w->client, detail);
}

static enum mr_err put(struct world *w)
{
    struct mr_task_options task = {.queue = MR_SLICE_LIT("q")};
    struct mr_enqueue_result result = {.err = MR_OK};
    enum mr_err err = mr_enqueue(w->client, &task, 1, &result);
    return err != MR_OK ? err : result.err;
}

static uint64_t count_at(const struct world *w, size_t i)
{
    struct mr_queue_info info = {.name = ""};
    struct mr_req_queue_list req = {
        .req = {.op = MR_OP_QUEUE_LIST}, .only = MR_SLICE_LIT("q"), .infos = &info, .max = 1};
    enum mr_err err = mr_broker_call(w->servers[i].store, &req.req);
    mr_req_done(&req.req);
    return err == MR_OK ? info.counts[MR_PENDING] : 0;
}

static void await_used(struct world *w, size_t i)
{
    uint64_t before = count_at(w, i);
    for (mr_mono since = now(); count_at(w, i) == before;) {
        assert_int_equal(put(w), MR_OK);
        look_for(since, "the server is used");
    }
}

/* It gets nothing for as long as the others get a few tasks each. */
static bool is_avoided(struct world *w, size_t i)
{
    uint64_t before = count_at(w, i);
    for (size_t n = 0; n < 4 * SERVERS; n++)
        assert_int_equal(put(w), MR_OK);
    return count_at(w, i) == before;
}

static void test_34_a_server_that_joins_is_used_and_one_that_leaves_is_not(void **state)
{
    struct world *w = *state;
    join(w, 0);
    join(w, 1);
    assert_int_equal(open_client(w, WAIT_MS, NULL), MR_OK);
    await_used(w, 0);
    await_used(w, 1);
    assert_int_equal(count_at(w, 2), 0);
    mr_mono since = now();
    join(w, 2);
    await_used(w, 2);
    assert_true(now().ns - since.ns < KNOWN_MS * MR_NS_PER_MS);
    since = now();
    leave(w, 0);
    while (!is_avoided(w, 0))
        look_for(since, "the server is avoided");
    assert_true(now().ns - since.ns < KNOWN_MS * MR_NS_PER_MS);
    await_used(w, 1);
    await_used(w, 2);
}

/* One request each, at one server: counted where they come in. */
static void test_33_what_is_accepted_was_sent_once(void **state)
{
    enum { N = 20 };
    struct world *w = *state;
    for (size_t i = 0; i < SERVERS; i++)
        join(w, i);
    assert_int_equal(open_client(w, WAIT_MS, NULL), MR_OK);
    for (size_t i = 0; i < SERVERS; i++)
        await_used(w, i);
    size_t before = asked(w);
    for (size_t i = 0; i < N * SERVERS; i++)
        assert_int_equal(put(w), MR_OK);
    assert_int_equal(asked(w) - before, N * SERVERS);
    for (size_t i = 0; i < SERVERS; i++)
        assert_int_equal(count_at(w, i), atomic_load(&w->servers[i].asked)); /* none in vain */
}

static void test_35_the_first_nameserver_of_the_list_may_be_dead(void **state)
{
    struct world *w = *state;
    node_stop(&w->nameservers[0]);
    join(w, 1);
    assert_int_equal(open_client(w, WAIT_MS, NULL), MR_OK);
    assert_int_equal(put(w), MR_OK);
    assert_int_equal(count_at(w, 1), 1);
}

static void test_78_with_all_nameservers_down_the_servers_stay_known(void **state)
{
    struct world *w = *state;
    join(w, 0);
    join(w, 1);
    assert_int_equal(open_client(w, WAIT_MS, NULL), MR_OK);
    await_used(w, 0);
    await_used(w, 1);
    node_stop(&w->nameservers[0]);
    node_stop(&w->nameservers[1]);
    await_used(w, 0);
    await_used(w, 1);
    server_rig_stop(&w->servers[0].rig, 0); /* one that dies meanwhile is passed over */
    for (size_t i = 0; i < 10; i++) {
        enum mr_err err = put(w);
        assert_true(err == MR_OK || i == 0);
    }
}

static void test_who_finds_nobody_is_told_so(void **state)
{
    struct world *w = *state;
    struct mr_detail detail = {.text = ""};
    assert_int_equal(open_client(w, 200, &detail), MR_UNAVAILABLE);
    assert_true(strstr(detail.text, "no nameserver there knows a server that answers") != NULL ||
                strstr(detail.text, "no nameserver there answers") !=
                    NULL); /* 200 ms are not much */
    assert_int_equal(mr_client_open("names://", NULL, &w->client, &detail), MR_INVALID);
    assert_int_equal(mr_client_open("names://a:1,,b:2", NULL, &w->client, &detail), MR_INVALID);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(test_33_what_is_accepted_was_sent_once),
        TEST(test_34_a_server_that_joins_is_used_and_one_that_leaves_is_not),
        TEST(test_35_the_first_nameserver_of_the_list_may_be_dead),
        TEST(test_78_with_all_nameservers_down_the_servers_stay_known),
        TEST(test_who_finds_nobody_is_told_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
