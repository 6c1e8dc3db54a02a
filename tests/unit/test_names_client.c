/* SPDX-License-Identifier: Apache-2.0 */
/* Processes and their nameservers: any one of those is enough, and lists stay while none is there. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/diag.h"
#include "base/net.h"
#include "names/client.h"
#include "support/forwarder.h"
#include "support/on_loop.h"
#include "unit/names_rig.h"

enum { REGISTER_MS = 50, NODES = 2 };

static struct mr_rpc *rpc; /* of all clients */

static int start(void **state)
{
    (void)state;
    return mr_rpc_new("clients", NULL, &rpc) == MR_OK ? 0 : -1;
}

static int end(void **state)
{
    (void)state;
    mr_rpc_free(rpc);
    return 0;
}

/* A client, and what it was told. */
struct process {
    struct mr_names_client *client;
    _Atomic size_t servers, workers, fewest, bodies;
};

static void changed(struct mr_names_client *client, enum mr_names_kind kind, void *arg)
{
    struct process *p = arg;
    size_t n;
    const struct mr_names_entry *entries = mr_names_client_list(client, kind, &n);
    for (size_t i = 0; i < n; i++)
        mr_assert(entries[i].kind == kind && entries[i].name.len > 0);
    atomic_store(kind == MR_NAMES_SERVER ? &p->servers : &p->workers, n);
    if (kind == MR_NAMES_SERVER && n < atomic_load(&p->fewest))
        atomic_store(&p->fewest, n);
}

static enum mr_err body(struct mr_buf *buf, void *arg)
{
    struct process *p = arg;
    return mr_buf_printf(buf, "said=%zu", atomic_fetch_add(&p->bodies, 1));
}

static void process_start(struct process *p, const char *const *nameservers, size_t n,
                          struct mr_names_entry entry)
{
    struct mr_names_client_options options = {.rpc = rpc,
                                              .nameservers = nameservers,
                                              .nameservers_n = n,
                                              .entry = entry,
                                              .register_ms = REGISTER_MS,
                                              .workers_of = mr_slice_str("mail"),
                                              .body = body,
                                              .changed = changed,
                                              .arg = p};
    struct mr_detail detail = {""};
    *p = (struct process){.fewest = SIZE_MAX};
    if (mr_names_client_new(&options, &p->client, &detail) != MR_OK)
        fail_msg("%s", detail.text);
}

static struct mr_names_entry server(const char *name, uint64_t incarnation)
{
    return (struct mr_names_entry){.kind = MR_NAMES_SERVER,
                                   .name = mr_slice_str(name),
                                   .address = mr_slice_str("host:1"),
                                   .incarnation = incarnation};
}

static struct mr_names_entry worker(const char *name, uint64_t incarnation)
{
    return (struct mr_names_entry){.kind = MR_NAMES_WORKER,
                                   .name = mr_slice_str(name),
                                   .app = mr_slice_str("mail"),
                                   .incarnation = incarnation};
}

static void await(const _Atomic size_t *count, size_t wanted)
{
    int64_t give_up = mr_mono_now(mr_clock_system()).ns + patience_ns;
    struct mr_event never;
    mr_event_init(&never);
    while (atomic_load(count) != wanted) {
        assert_true(mr_mono_now(mr_clock_system()).ns < give_up);
        (void)mr_event_wait(&never, MR_NS_PER_MS);
    }
}

/* Until it has registered so many times more. */
static void await_bodies(const struct process *p, size_t more)
{
    size_t wanted = atomic_load(&p->bodies) + more;
    int64_t give_up = mr_mono_now(mr_clock_system()).ns + patience_ns;
    struct mr_event never;
    mr_event_init(&never);
    while (atomic_load(&p->bodies) < wanted) {
        assert_true(mr_mono_now(mr_clock_system()).ns < give_up);
        (void)mr_event_wait(&never, MR_NS_PER_MS);
    }
}

/* Complete soon, so that what goes is seen to go. */
static const struct mr_names_options soon = {.registry.hold_ms = 300};

static void test_processes_find_each_other_and_see_who_leaves(void **state)
{
    (void)state;
    struct node node = {0};
    struct process one, two, three;
    node_start(&node, &soon);
    const char *nameservers[] = {node.address};
    process_start(&one, nameservers, 1, server("one", 1));
    process_start(&two, nameservers, 1, server("two", 2));
    process_start(&three, nameservers, 1, worker("three", 3));
    await(&one.servers, 2);
    await(&two.servers, 2);
    await(&three.servers, 2);
    await(&one.workers, 1);
    mr_names_client_free(three.client);
    await(&one.workers, 0);
    mr_names_client_free(two.client);
    await(&one.servers, 1);
    await_bodies(&one, 3);
    mr_names_client_free(one.client);
    node_stop(&node);
}

static void test_the_first_nameserver_of_the_list_may_be_dead(void **state)
{
    (void)state;
    struct node nodes[NODES] = {0};
    struct process one;
    node_start(&nodes[0], &soon);
    node_start(&nodes[1], &soon);
    const char *nameservers[] = {nodes[0].address, nodes[1].address};
    node_stop(&nodes[0]);
    process_start(&one, nameservers, NODES, server("one", 1));
    await(&one.servers, 1);
    mr_names_client_free(one.client);
    node_stop(&nodes[1]);
}

static void test_a_dead_one_is_passed_over_and_lists_stay_while_none_is_there(void **state)
{
    (void)state;
    struct node nodes[NODES] = {0};
    struct process one, two;
    node_start(&nodes[0], &(struct mr_names_options){0});
    const char *nameservers[NODES] = {nodes[0].address};
    node_start(&nodes[1], &(struct mr_names_options){.peers = nameservers, .peers_n = 1});
    nameservers[1] = nodes[1].address;
    process_start(&one, nameservers, NODES, server("one", 1));
    process_start(&two, nameservers, NODES, server("two", 2));
    await(&one.servers, 2);
    await(&two.servers, 2);
    atomic_store(&one.fewest, SIZE_MAX);
    node_stop(&nodes[0]);
    await_bodies(&one, 5); /* it goes on with the other one */
    await_bodies(&two, 5);
    node_stop(&nodes[1]);
    struct mr_event never;
    mr_event_init(&never);
    (void)mr_event_wait(&never, 300 * MR_NS_PER_MS);
    assert_int_equal(atomic_load(&one.servers), 2);
    node_start(&nodes[0], &(struct mr_names_options){0}); /* knows nothing */
    struct process three;
    process_start(&three, nameservers, NODES, server("three", 3));
    await(&one.servers, 3);
    await(&three.servers, 3);
    assert_true(atomic_load(&one.fewest) >= 2); /* nobody was ever missing */
    mr_names_client_free(one.client);
    mr_names_client_free(two.client);
    mr_names_client_free(three.client);
    node_stop(&nodes[0]);
}

/* Who only looks has nothing else to ask by which it would notice. */
static void test_one_that_hangs_is_passed_over_within_ten_seconds(void **state)
{
    (void)state;
    struct node nodes[NODES] = {0};
    struct forwarder net = {0};
    struct process looker, one, two;
    char way[32], host[MR_HOST_MAX + 1];
    uint16_t port;
    node_start(&nodes[1], &soon);
    node_stop(&nodes[1]); /* its address is known */
    node_start(&nodes[0], &soon);
    assert_int_equal(mr_host_parse(nodes[0].address, host, &port), MR_OK);
    assert_int_equal(forwarder_start(&net, port), MR_OK);
    (void)snprintf(way, sizeof way, "127.0.0.1:%u", net.port);
    const char *nameservers[] = {way, nodes[1].address}, *first = nodes[0].address;
    process_start(&looker, nameservers, NODES, (struct mr_names_entry){0});
    process_start(&one, &first, 1, server("one", 1));
    await(&looker.servers, 1); /* by the first one, there is no other */
    node_start(&nodes[1], &(struct mr_names_options){.peers = &first, .peers_n = 1});
    atomic_store(&net.frozen, true);
    mr_mono since = mr_mono_now(mr_clock_system());
    process_start(&two, &nameservers[1], 1, server("two", 2));
    await(&looker.servers, 2);
    assert_true(mr_mono_now(mr_clock_system()).ns - since.ns < 10 * MR_NS_PER_S);
    mr_names_client_free(looker.client);
    mr_names_client_free(one.client);
    mr_names_client_free(two.client);
    forwarder_stop(&net);
    node_stop(&nodes[0]);
    node_stop(&nodes[1]);
}

/* What it was shown, and what the others say of themselves. */
struct looker {
    _Atomic size_t looks, silent, workers, servers;
    _Atomic size_t newest; /* what the other server said last, as far as it was seen */
    _Atomic uint64_t view;
};

static void looked(struct mr_names_client *client, const struct mr_names_look *look, void *arg)
{
    struct looker *l = arg;
    size_t n;
    if (look == NULL) {
        atomic_fetch_add(&l->silent, 1);
        return;
    }
    const struct mr_names_entry *entries = mr_names_client_list(client, MR_NAMES_SERVER, &n);
    for (size_t i = 0; i < n; i++) {
        char text[32];
        (void)snprintf(text, sizeof text, "%.*s", (int)entries[i].body.len,
                       (const char *)entries[i].body.data);
        unsigned long said;
        if (sscanf(text, "said=%lu", &said) == 1)
            atomic_store(&l->newest, said);
    }
    atomic_store(&l->servers, look->servers);
    atomic_store(&l->workers, look->apps_n == 1 ? look->apps[0].workers : 0);
    atomic_store(&l->view, look->view);
    atomic_fetch_add(&l->looks, 1);
}

static struct mr_names_client *looker_start(struct looker *l, const char *const *nameservers,
                                            size_t n)
{
    struct mr_names_client *client;
    struct mr_detail detail = {""};
    struct mr_names_client_options options = {.rpc = rpc,
                                              .nameservers = nameservers,
                                              .nameservers_n = n,
                                              .fresh_ms = 100,
                                              .look_ms = 50,
                                              .looked = looked,
                                              .arg = l};
    if (mr_names_client_new(&options, &client, &detail) != MR_OK)
        fail_msg("%s", detail.text);
    return client;
}

static void await_more(const _Atomic size_t *count, size_t least)
{
    int64_t give_up = mr_mono_now(mr_clock_system()).ns + patience_ns;
    struct mr_event never;
    mr_event_init(&never);
    while (atomic_load(count) < least) {
        assert_true(mr_mono_now(mr_clock_system()).ns < give_up);
        (void)mr_event_wait(&never, MR_NS_PER_MS);
    }
}

static void test_who_looks_sees_numbers_and_what_others_say_of_themselves_now(void **state)
{
    (void)state;
    struct node nodes[NODES] = {0};
    struct process one, two;
    struct looker l = {0}, other = {0};
    node_start(&nodes[0], &soon);
    const char *nameservers[NODES] = {nodes[0].address};
    node_start(&nodes[1], &(struct mr_names_options){
                              .registry.hold_ms = 300, .peers = nameservers, .peers_n = 1});
    nameservers[1] = nodes[1].address;
    process_start(&one, nameservers, 1, server("one", 1));
    process_start(&two, nameservers + 1, 1, worker("two", 2));
    struct mr_names_client *client = looker_start(&l, nameservers, 1);
    struct mr_names_client *client_other = looker_start(&other, nameservers + 1, 1);
    await(&l.workers, 1);
    await(&l.servers, 1);
    await(&other.workers, 1);
    await(&other.servers, 1);
    size_t said = atomic_load(&l.newest);
    await_more(&l.newest, said + 5); /* the list has not changed meanwhile */
    mr_names_client_free(two.client);
    await(&l.workers, 0);
    mr_names_client_free(one.client);
    await(&l.servers, 0);
    await(&other.servers, 0);
    assert_int_equal(atomic_load(&l.view), atomic_load(&other.view)); /* both know nobody */
    size_t silent = atomic_load(&l.silent);
    node_stop(&nodes[0]);
    await_more(&l.silent, silent + 2); /* and it is told that nobody answers */
    mr_names_client_free(client);
    mr_names_client_free(client_other);
    node_stop(&nodes[1]);
}

/* One that connects only to say something. */
static struct mr_names_client *brief_start(struct process *p, const char *const *nameservers,
                                           size_t n, const char *name, uint64_t incarnation)
{
    struct mr_detail detail = {""};
    struct mr_names_client_options options = {.rpc = rpc,
                                              .nameservers = nameservers,
                                              .nameservers_n = n,
                                              .entry = worker(name, incarnation),
                                              .register_ms = REGISTER_MS,
                                              .is_brief = true,
                                              .body = body,
                                              .arg = p};
    *p = (struct process){0};
    if (mr_names_client_new(&options, &p->client, &detail) != MR_OK)
        fail_msg("%s", detail.text);
    return p->client;
}

static void test_one_that_is_brief_registers_passes_dead_ones_over_and_says_good_bye(void **state)
{
    (void)state;
    struct node nodes[NODES] = {0};
    struct process one, two, watcher;
    node_start(&nodes[0], &soon);
    node_start(&nodes[1], &soon);
    const char *nameservers[] = {nodes[0].address, nodes[1].address};
    process_start(&watcher, nameservers + 1, 1, (struct mr_names_entry){0});
    node_stop(&nodes[0]);
    brief_start(&one, nameservers, NODES, "one", 1);
    brief_start(&two, nameservers, NODES, "two", 2);
    await(&watcher.workers, 2);
    await_bodies(&one, 3);
    node_stop(&nodes[1]); /* nobody is there, then somebody who knows nothing */
    node_start(&nodes[1], &soon);
    await_bodies(&one, 3);
    mr_names_client_free(one.client); /* only if it is heard, it is gone: nothing expires so soon */
    await(&watcher.workers, 1);
    mr_names_client_free(two.client);
    await(&watcher.workers, 0);
    mr_names_client_free(watcher.client);
    node_stop(&nodes[1]);
}

enum { MANY = 25000 };

struct crowd {
    struct node *node;
    uint64_t first, n;
};

static void crowd_in(void *arg)
{
    const struct crowd *crowd = arg;
    for (uint64_t i = crowd->first; i < crowd->first + crowd->n; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "%llu", (unsigned long long)i % 1000);
        struct mr_names_entry entry = worker(name, i);
        enum mr_names_put put;
        entry.version = 1;
        mr_assert(mr_registry_register(mr_names_registry(crowd->node->names),
                                       mr_rpc_now(crowd->node->rpc), &entry, &put) == MR_OK);
    }
}

/* One more comes with each of the first questions, before all that has been read. */
static bool crowd_grows(struct mr_call *call, enum mr_names_right right, struct mr_slice app,
                        void *arg)
{
    struct crowd *crowd = arg;
    struct mr_names_entry entry = worker("!", crowd->first);
    enum mr_names_put put;
    (void)call, (void)app;
    if (right != MR_NAMES_LOOK || crowd->n == 0 || crowd->node->names == NULL)
        return true;
    entry.version = 1;
    mr_assert(mr_registry_register(mr_names_registry(crowd->node->names),
                                   mr_rpc_now(crowd->node->rpc), &entry, &put) == MR_OK);
    crowd->first++;
    crowd->n--;
    return true;
}

static void test_a_long_list_comes_in_pages_and_misses_nobody_who_comes_meanwhile(void **state)
{
    (void)state;
    struct node node = {0};
    struct process one;
    struct crowd more = {.node = &node, .first = MANY + 1, .n = 8};
    struct mr_names_options options = {.registry.hold_ms = 1, .may = crowd_grows, .arg = &more};
    node_start(&node, &options);
    on_loop(node.rpc, crowd_in, &(struct crowd){&node, 1, MANY});
    const char *nameservers[] = {node.address};
    process_start(&one, nameservers, 1, (struct mr_names_entry){0});
    await(&one.workers, MANY + 8);
    assert_int_equal(atomic_load(&one.bodies), 0); /* it has no name, and registers nothing */
    mr_names_client_free(one.client);
    node_stop(&node);
}

/* What was said of registrations. */
static struct {
    _Atomic size_t n;
    char last[512];
} lines;

static void hear_line(enum mr_diag_level level, const char *line, void *arg)
{
    (void)level, (void)arg;
    if (strstr(line, "event=names.register") == NULL)
        return;
    (void)snprintf(lines.last, sizeof lines.last, "%s", line);
    atomic_fetch_add(&lines.n, 1);
}

static bool is_known(struct mr_call *call, enum mr_names_right right, struct mr_slice app,
                     void *arg)
{
    bool known = atomic_load((_Atomic size_t *)arg) > 0;
    (void)right, (void)app;
    if (!known)
        mr_call_end(call, MR_RPC_DENIED, mr_slice_str("nobody knows this token"));
    return known;
}

/* Else its servers wait for it, and nobody knows why it does not come. */
static void test_who_may_not_register_says_so_once_and_when_it_may(void **state)
{
    (void)state;
    struct node node = {0};
    struct process one;
    struct mr_detail detail;
    _Atomic size_t known = 0;
    struct mr_names_options options = {.registry.hold_ms = 1, .may = is_known, .arg = &known};
    node_start(&node, &options);
    mr_diag_set_sink(hear_line, NULL);
    atomic_store(&lines.n, 0);
    const char *nameservers[] = {node.address};
    process_start(&one, nameservers, 1, worker("one", 1));
    await_bodies(&one, 3); /* it goes on trying */
    assert_int_equal(mr_names_client_trouble(one.client, &detail), MR_DENIED);
    assert_non_null(strstr(detail.text, ": nobody knows this token"));
    assert_int_equal(atomic_load(&lines.n), 1);
    assert_non_null(strstr(lines.last, "level=warn"));
    assert_non_null(strstr(lines.last, "status=7 text=\"nobody knows this token\""));
    atomic_store(&known, 1);
    await(&lines.n, 2);
    assert_non_null(strstr(lines.last, "registered"));
    await(&one.workers, 1);
    assert_int_equal(mr_names_client_trouble(one.client, &detail), MR_OK);
    mr_names_client_free(one.client);
    mr_diag_set_sink(NULL, NULL);
    node_stop(&node);
}

static void test_a_list_of_nameservers_must_be_one(void **state)
{
    (void)state;
    struct mr_names_client *client;
    struct mr_detail detail = {""};
    const char *many[MR_NAMESERVERS_MAX + 1] = {0};
    struct mr_names_client_options options = {.rpc = rpc, .nameservers = many};
    assert_int_equal(mr_names_client_new(&options, &client, &detail), MR_INVALID);
    options.nameservers_n = MR_NAMESERVERS_MAX + 1;
    assert_int_equal(mr_names_client_new(&options, &client, &detail), MR_INVALID);
    many[0] = "nowhere";
    options.nameservers_n = 1;
    assert_int_not_equal(mr_names_client_new(&options, &client, &detail), MR_OK);
    mr_names_client_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_processes_find_each_other_and_see_who_leaves),
        cmocka_unit_test(test_the_first_nameserver_of_the_list_may_be_dead),
        cmocka_unit_test(test_a_dead_one_is_passed_over_and_lists_stay_while_none_is_there),
        cmocka_unit_test(test_one_that_hangs_is_passed_over_within_ten_seconds),
        cmocka_unit_test(test_a_long_list_comes_in_pages_and_misses_nobody_who_comes_meanwhile),
        cmocka_unit_test(test_who_looks_sees_numbers_and_what_others_say_of_themselves_now),
        cmocka_unit_test(test_one_that_is_brief_registers_passes_dead_ones_over_and_says_good_bye),
        cmocka_unit_test(test_who_may_not_register_says_so_once_and_when_it_may),
        cmocka_unit_test(test_a_list_of_nameservers_must_be_one),
    };
    return cmocka_run_group_tests(tests, start, end);
}
