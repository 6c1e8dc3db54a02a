/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Copies of operations at another server (--replicas 1): nothing is accepted without one, none is left behind when the
 * operation was applied, and what a server that is gone has accepted is applied by who has the copies.
 *
 * The one that accepts is a door alone, which applies nothing, or a whole service; those that keep are servers with a port.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "api/api.h"
#include "broker/embedded/embedded.h"
#include "broker/hidden.h"
#include "support/forwarder.h"
#include "support/server_rig.h"
#include "timer/copies.h"
#include "timer/def.h"
#include "timer/door.h"
#include "timer/replica.h"
#include "timer/scheduler.h"
#include "timer/service.h"
#include "unit/temp_dir.h"
#include "wire/timer.h"

#define ORIGIN "the first/life"

enum { WAIT_MS = 20000, KEEPERS = 2, LEASE_MS = 300, ANSWER_MS = 300 };

/* A server that keeps copies. */
struct keeper {
    char dir[TEMP_DIR_MAX + 16];
    struct mr_broker *broker;
    struct mr_timer_service *service;
    struct server_rig server;
};

struct fixture {
    char dir[TEMP_DIR_MAX];
    struct mr_store *store;
    struct mr_zones *zones;
    struct mr_broker *broker; /* of the one that accepts */
    struct mr_replica *replica;
    struct mr_timer_door *door;
    struct keeper keepers[KEEPERS];
};

#define UNTIL(condition)                                                                           \
    do {                                                                                           \
        mr_mono since_ = mr_mono_now(mr_clock_system());                                           \
        while (!(condition))                                                                       \
            wait_a_moment(since_, #condition);                                                     \
    } while (0)

static void wait_a_moment(mr_mono since, const char *what)
{
    struct timespec moment = {.tv_nsec = 2 * MR_NS_PER_MS};
    if (mr_mono_now(mr_clock_system()).ns - since.ns > WAIT_MS * MR_NS_PER_MS)
        fail_msg("waited for %s", what);
    (void)nanosleep(&moment, NULL);
}

static struct mr_broker *open_broker(const char *dir)
{
    struct mr_broker *broker;
    struct mr_embedded_options options = {.dir = dir, .segment_bytes = 1 << 20};
    struct mr_detail detail = {.text = ""};
    if (mr_embedded_open(&options, &broker, &detail) != MR_OK)
        fail_msg("%s: %s", dir, detail.text);
    return broker;
}

static struct mr_timer_service *open_service(struct fixture *f, struct mr_broker *broker,
                                             const struct mr_replica_options *replica)
{
    struct mr_timer_service *service;
    struct mr_detail detail = {.text = ""};
    struct mr_timer_service_options options = {
        .broker = broker,
        .store = f->store,
        .node = "test",
        .settings = {.lease_ms = LEASE_MS, .renew_ms = LEASE_MS / 3},
        .keeps_copies = true,
        .replica = replica,
    };
    if (mr_timer_service_open(&options, &service, &detail) != MR_OK)
        fail_msg("%s", detail.text);
    return service;
}

static void keeper_start(struct fixture *f, size_t i)
{
    struct keeper *k = &f->keepers[i];
    (void)snprintf(k->dir, sizeof k->dir, "%s/keeper%zu", f->dir, i);
    k->broker = open_broker(k->dir);
    k->service = open_service(f, k->broker, NULL);
    k->server.timers = k->service;
    assert_int_equal(server_rig_start(&k->server, k->broker), MR_OK);
}

static void keeper_stop(struct keeper *k)
{
    if (k->broker == NULL)
        return;
    server_rig_stop(&k->server, 1000);
    mr_timer_service_close(k->service);
    mr_broker_close(k->broker);
    k->broker = NULL;
}

/* The accepting side, without anybody who applies; its peers are the keepers that are there. */
static void open_door(struct fixture *f)
{
    struct mr_replica_options replica = {.origin = ORIGIN, .answer_ms = ANSWER_MS};
    assert_int_equal(mr_replica_new(&replica, &f->replica), MR_OK);
    struct mr_timer_door_options door = {
        .broker = f->broker, .zones = f->zones, .replica = f->replica};
    assert_int_equal(mr_timer_door_new(&door, &f->door), MR_OK);
}

static void set_peers(struct fixture *f)
{
    const char *addresses[KEEPERS];
    size_t n = 0;
    for (size_t i = 0; i < KEEPERS; i++)
        if (f->keepers[i].broker != NULL)
            addresses[n++] = f->keepers[i].server.address;
    mr_replica_set_peers(f->replica, addresses, n);
}

static int begin(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    char text[TEMP_DIR_MAX + 32];
    struct mr_detail detail = {.text = ""};
    assert_non_null(f);
    temp_dir_make(f->dir);
    (void)snprintf(text, sizeof text, "sqlite:%s/store.db", f->dir);
    if (mr_store_open(&(struct mr_store_options){.url = text}, &f->store, &detail) != MR_OK)
        fail_msg("%s", detail.text);
    assert_int_equal(mr_zones_new(mr_fs_system(), NULL, &f->zones), MR_OK);
    (void)snprintf(text, sizeof text, "%s/first", f->dir);
    f->broker = open_broker(text);
    *state = f;
    return 0;
}

static int end(void **state)
{
    struct fixture *f = *state;
    mr_timer_door_free(f->door);
    mr_replica_free(f->replica);
    for (size_t i = 0; i < KEEPERS; i++)
        keeper_stop(&f->keepers[i]);
    mr_broker_close(f->broker);
    mr_zones_free(f->zones);
    mr_store_close(f->store);
    temp_dir_remove(f->dir);
    free(f);
    return 0;
}

/* ---- sending ---------------------------------------------------------------------------------- */

static void sent(struct mr_timer_sending *sending)
{
    mr_event_set(sending->arg);
}

/* A put of so many timers t0, t1 ..., by the door. */
static void send_all(struct mr_timer_door *door, size_t n, enum mr_timer_wait wait,
                     struct mr_timer_result *results)
{
    struct mr_timer_operation *ops = calloc(n, sizeof *ops);
    struct mr_buf *definitions = calloc(n, sizeof *definitions);
    struct mr_event answered;
    assert_true(ops != NULL && definitions != NULL);
    for (size_t i = 0; i < n; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "t%zu", i);
        struct mr_timer_options timer = {
            .name = mr_slice_str(name), .kind = MR_TIMER_EVERY, .expression = MR_SLICE_LIT("1h")};
        assert_int_equal(mr_timer_encode(&timer, &definitions[i]), MR_OK);
        ops[i].definition = mr_buf_slice(&definitions[i]);
    }
    mr_event_init(&answered);
    struct mr_timer_sending sending = {.ops = ops,
                                       .n = n,
                                       .wait = wait,
                                       .wait_ms = WAIT_MS,
                                       .results = results,
                                       .done = sent,
                                       .arg = &answered};
    mr_timer_door_send(door, &sending);
    assert_true(mr_event_wait(&answered, WAIT_MS * MR_NS_PER_MS));
    assert_int_equal(sending.err, MR_OK);
    for (size_t i = 0; i < n; i++)
        mr_buf_done(&definitions[i]);
    free(definitions);
    free(ops);
}

static struct mr_timer_result send_one(struct fixture *f)
{
    struct mr_timer_result result;
    send_all(f->door, 1, MR_TIMER_DURABLE, &result);
    return result;
}

/* ---- looking ---------------------------------------------------------------------------------- */

static size_t count_in(struct mr_broker *broker, const char *queue, enum mr_state state)
{
    struct mr_queue_info info;
    struct mr_req_queue_list req = {
        .req.op = MR_OP_QUEUE_LIST, .only = mr_slice_str(queue), .infos = &info, .max = 1};
    enum mr_err err = mr_broker_call(broker, &req.req);
    mr_req_done(&req.req);
    assert_true(err == MR_OK || err == MR_NOT_FOUND);
    return err == MR_OK ? (size_t)info.counts[state] : 0;
}

static size_t count(struct mr_broker *broker, const char *queue)
{
    return count_in(broker, queue, MR_PENDING);
}

static size_t dead_letters(struct mr_broker *broker)
{
    return count_in(broker, MR_TIMERS_QUEUE, MR_ARCHIVED);
}

static size_t copies(const struct keeper *k)
{
    return count(k->broker, MR_COPIES_QUEUE);
}

static bool is_applied(struct fixture *f, size_t n)
{
    bool all = true;
    for (size_t i = 0; i < n && all; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "t%zu", i);
        struct mr_store_timer_key key = {.app = MR_SLICE_LIT(MR_TIMER_APP),
                                         .name = mr_slice_str(name)};
        struct mr_store_timer_get req = {.req.op = MR_STORE_TIMER_GET, .keys = &key, .n = 1};
        assert_int_equal(mr_store_call(f->store, &req.req), MR_OK);
        all = req.timers[0].state != MR_ROW_NONE;
        mr_store_req_done(&req.req);
    }
    return all;
}

/* The row of the one that accepts; 0: it goes. */
static void beat(struct fixture *f, int64_t ttl_ms)
{
    struct mr_store_server_beat req = {
        .req.op = MR_STORE_SERVER_BEAT, .server = MR_SLICE_LIT(ORIGIN), .ttl_ms = ttl_ms};
    assert_int_equal(mr_store_call(f->store, &req.req), MR_OK);
    mr_store_req_done(&req.req);
}

/* ---- the tests -------------------------------------------------------------------------------- */

static void alone_a_server_accepts_nothing(void **state)
{
    struct fixture *f = *state;
    open_door(f);
    struct mr_timer_result result = send_one(f);
    assert_int_equal(result.err, MR_UNAVAILABLE);
    assert_false(result.unknown);
    assert_string_equal(result.why, "--replicas 1: there is no other server to keep a copy");
    assert_int_equal(count(f->broker, MR_TIMERS_QUEUE), 0);
    const char *nobody = "127.0.0.1:1";
    mr_replica_set_peers(f->replica, &nobody, 1);
    result = send_one(f);
    assert_int_equal(result.err, MR_UNAVAILABLE);
    assert_false(result.unknown);
    assert_non_null(strstr(result.why, "no other server keeps a copy; 127.0.0.1:1: "));
    assert_int_equal(count(f->broker, MR_TIMERS_QUEUE), 0);
}

/* An operation of which its producer says everything, so that it can say it again. */
static struct mr_timer_result send_known(struct mr_timer_door *door, const char *operation,
                                         uint64_t version)
{
    struct mr_timer_options timer = {
        .name = MR_SLICE_LIT("known"), .kind = MR_TIMER_EVERY, .expression = MR_SLICE_LIT("1h")};
    struct mr_buf definition = {0};
    struct mr_timer_result result;
    struct mr_event answered;
    assert_int_equal(mr_timer_encode(&timer, &definition), MR_OK);
    struct mr_timer_operation op = {
        .operation = mr_slice_str(operation),
        .id = MR_SLICE_LIT("00000000-0000-7000-8000-000000000001"),
        .version = version,
        .created_ms = (int64_t)(version / MR_US_PER_MS),
        .definition = mr_buf_slice(&definition),
    };
    mr_event_init(&answered);
    struct mr_timer_sending sending = {.ops = &op,
                                       .n = 1,
                                       .wait = MR_TIMER_APPLIED,
                                       .wait_ms = WAIT_MS,
                                       .results = &result,
                                       .done = sent,
                                       .arg = &answered};
    mr_timer_door_send(door, &sending);
    assert_true(mr_event_wait(&answered, WAIT_MS * MR_NS_PER_MS));
    mr_buf_done(&definition);
    return result;
}

static bool is_accepted(struct fixture *f)
{
    return send_one(f).err == MR_OK;
}

static void what_a_server_that_is_gone_has_accepted_is_applied_by_who_has_copies(void **state)
{
    enum { N = 700 };
    struct fixture *f = *state;
    struct mr_timer_result *results = calloc(N, sizeof *results);
    keeper_start(f, 0);
    open_door(f);
    set_peers(f);
    beat(f, 60 * 1000);
    UNTIL(is_accepted(f)); /* it is reached */
    size_t before = copies(&f->keepers[0]);
    send_all(f->door, N, MR_TIMER_DURABLE, results);
    for (size_t i = 0; i < N; i++)
        assert_int_equal(results[i].err, MR_OK);
    assert_int_equal(copies(&f->keepers[0]), before + N);
    assert_false(is_applied(f, 1));
    keeper_stop(&f->keepers[0]); /* copies outlive it */
    keeper_start(f, 0);
    assert_int_equal(copies(&f->keepers[0]), before + N);
    struct timespec lease = {.tv_sec = 2};
    (void)nanosleep(&lease, NULL);
    assert_false(is_applied(f, 1)); /* it lives, though it is silent */
    beat(f, 0);
    UNTIL(is_applied(f, N));
    UNTIL(copies(&f->keepers[0]) == 0);
    free(results);
}

static void who_was_heard_of_just_now_is_not_gone_without_a_row(void **state)
{
    struct fixture *f = *state;
    keeper_start(f, 0);
    open_door(f);
    set_peers(f);
    UNTIL(is_accepted(f));
    assert_true(copies(&f->keepers[0]) > 0);
    UNTIL(is_applied(f, 1));
    UNTIL(copies(&f->keepers[0]) == 0);
}

static void a_copy_goes_when_its_operation_was_applied(void **state)
{
    struct fixture *f = *state;
    struct mr_timer_result results[20];
    keeper_start(f, 0);
    struct mr_replica_options replica = {.answer_ms = WAIT_MS};
    struct mr_timer_service *service = open_service(f, f->broker, &replica);
    const char *address = f->keepers[0].server.address;
    mr_timer_service_set_peers(service, &address, 1);
    do
        send_all(mr_timer_service_door(service), 1, MR_TIMER_DURABLE, results);
    while (results[0].err == MR_UNAVAILABLE);
    send_all(mr_timer_service_door(service), 20, MR_TIMER_APPLIED, results);
    for (size_t i = 0; i < 20; i++)
        assert_true(results[i].err == MR_OK || results[i].err == MR_CONFLICT);
    assert_true(is_applied(f, 20));
    UNTIL(copies(&f->keepers[0]) == 0);
    mr_timer_service_close(service);
}

/* Its producer did not hear the answer. Nobody applies it a second time, so nobody would drop the second copy. */
static void a_copy_of_what_was_sent_again_goes_too(void **state)
{
    static const char operation[] = "00000000-0000-7000-8000-000000000077";
    struct fixture *f = *state;
    uint64_t version = (uint64_t)mr_wall_now(mr_clock_system()).us;
    struct mr_timer_result result;
    keeper_start(f, 0);
    struct mr_replica_options replica = {.answer_ms = WAIT_MS};
    struct mr_timer_service *service = open_service(f, f->broker, &replica);
    const char *address = f->keepers[0].server.address;
    mr_timer_service_set_peers(service, &address, 1);
    do
        result = send_known(mr_timer_service_door(service), operation, version);
    while (result.err == MR_UNAVAILABLE);
    assert_int_equal(result.err, MR_OK);
    UNTIL(copies(&f->keepers[0]) == 0);
    result = send_known(mr_timer_service_door(service), operation, version);
    assert_int_equal(result.err, MR_OK);
    UNTIL(copies(&f->keepers[0]) == 0);
    mr_timer_service_close(service);
}

/* Silent, then away: another one has the copies, and the first one drops what it may have got. */
static void one_that_does_not_answer_is_passed_over(void **state)
{
    struct fixture *f = *state;
    struct forwarder *way = calloc(1, sizeof *way);
    char first[64];
    for (size_t i = 0; i < KEEPERS; i++)
        keeper_start(f, i);
    assert_int_equal(forwarder_start(way, f->keepers[0].server.port), MR_OK);
    (void)snprintf(first, sizeof first, "127.0.0.1:%u", way->port);
    const char *addresses[] = {first, f->keepers[1].server.address};
    open_door(f);
    beat(f, 60 * 1000);
    mr_replica_set_peers(f->replica, addresses, 1);
    UNTIL(is_accepted(f));
    size_t before = copies(&f->keepers[0]);
    way->mute = true;
    struct mr_timer_result result = send_one(f);
    assert_int_equal(result.err, MR_UNAVAILABLE);
    assert_true(result.unknown);
    mr_replica_set_peers(f->replica, addresses, 2);
    UNTIL(is_accepted(f));
    assert_true(copies(&f->keepers[1]) > 0);
    way->mute = false;
    UNTIL(copies(&f->keepers[0]) == before);
    forwarder_stop(way);
    free(way);
}

static void copied(struct mr_replica_copying *copying)
{
    mr_event_set(copying->arg);
}

static void many_megabytes_are_more_than_one_message(void **state)
{
    enum { N = 40, BYTES = 100 * 1000 };
    struct fixture *f = *state;
    struct mr_replica_copying copying;
    struct mr_slice ids[N], operations[N];
    struct mr_buf bytes[N] = {{0}};
    char texts[N][MR_TIMER_ID_MAX + 1], *payload = calloc(1, BYTES);
    keeper_start(f, 0);
    open_door(f);
    set_peers(f);
    beat(f, 60 * 1000);
    UNTIL(is_accepted(f));
    size_t before = copies(&f->keepers[0]);
    for (size_t i = 0; i < N; i++) {
        (void)snprintf(texts[i], sizeof texts[i], "00000000-0000-7000-8000-%012zu", i);
        struct mr_timer_operation op = {.operation = mr_slice_str(texts[i]),
                                        .verb = MR_TIMER_PUT,
                                        .definition = mr_slice_make(payload, BYTES)};
        assert_int_equal(mr_flat_append(&mr_flat_timer_operation, &op, &bytes[i]), MR_OK);
        ids[i] = op.operation;
        operations[i] = mr_buf_slice(&bytes[i]);
    }
    struct mr_event answered;
    mr_event_init(&answered);
    copying = (struct mr_replica_copying){
        .ids = ids, .operations = operations, .n = N, .done = copied, .arg = &answered};
    mr_replica_copy(f->replica, &copying);
    assert_true(mr_event_wait(&answered, WAIT_MS * MR_NS_PER_MS));
    assert_int_equal(copying.err, MR_OK);
    assert_string_equal(copying.where, f->keepers[0].server.address);
    assert_int_equal(copies(&f->keepers[0]), before + N);
    for (size_t i = 0; i < N; i++) {
        mr_replica_drop(f->replica, mr_slice_str(copying.where), ids[i]);
        mr_buf_done(&bytes[i]);
    }
    UNTIL(copies(&f->keepers[0]) == before);
    free(payload);
}

/* One of them cannot be kept, so the server refuses; what it has kept of the others is dropped. */
static void nothing_stays_of_a_message_that_is_refused(void **state)
{
    struct fixture *f = *state;
    struct mr_slice ids[] = {MR_SLICE_LIT("fine"), MR_SLICE_LIT("not\nfine")};
    struct mr_slice operations[2];
    struct mr_buf bytes[2] = {{0}};
    struct mr_event answered;
    keeper_start(f, 0);
    open_door(f);
    set_peers(f);
    beat(f, 60 * 1000);
    UNTIL(is_accepted(f));
    size_t before = copies(&f->keepers[0]);
    for (size_t i = 0; i < 2; i++) {
        struct mr_timer_operation op = {
            .operation = ids[i], .verb = MR_TIMER_DELETE, .name = MR_SLICE_LIT("x")};
        assert_int_equal(mr_flat_append(&mr_flat_timer_operation, &op, &bytes[i]), MR_OK);
        operations[i] = mr_buf_slice(&bytes[i]);
    }
    mr_event_init(&answered);
    struct mr_replica_copying copying = {
        .ids = ids, .operations = operations, .n = 2, .done = copied, .arg = &answered};
    mr_replica_copy(f->replica, &copying);
    assert_true(mr_event_wait(&answered, WAIT_MS * MR_NS_PER_MS));
    assert_int_equal(copying.err, MR_UNAVAILABLE);
    UNTIL(copies(&f->keepers[0]) == before);
    for (size_t i = 0; i < 2; i++)
        mr_buf_done(&bytes[i]);
}

static void kept(struct mr_copies_keeping *keeping)
{
    mr_event_set(keeping->arg);
}

static enum mr_err keep(struct mr_copies *copies_, const char *origin, struct mr_slice operation,
                        struct mr_slice gone)
{
    struct mr_event answered;
    struct mr_copies_keeping keeping = {.origin = mr_slice_str(origin),
                                        .operations = &operation,
                                        .n = operation.len > 0,
                                        .gone = &gone,
                                        .gone_n = gone.len > 0,
                                        .done = kept,
                                        .arg = &answered};
    mr_event_init(&answered);
    mr_copies_keep(copies_, &keeping);
    assert_true(mr_event_wait(&answered, WAIT_MS * MR_NS_PER_MS));
    return keeping.err;
}

/* A server was away for longer than it is remembered that a timer was deleted, and brings a copy of its beginning. */
static void a_copy_from_long_ago_brings_no_timer_back(void **state)
{
    struct fixture *f = *state;
    struct mr_timer_options timer = {
        .name = MR_SLICE_LIT("t0"), .kind = MR_TIMER_EVERY, .expression = MR_SLICE_LIT("1h")};
    int64_t ages_ms[] = {MR_TIMER_BURIED_MS, MR_TIMER_BURIED_MS / 2};
    struct mr_slice none = {0};
    struct mr_buf definition = {0};
    assert_int_equal(mr_timer_encode(&timer, &definition), MR_OK);
    keeper_start(f, 0);
    for (size_t i = 0; i < 2; i++) {
        int64_t then_us = mr_wall_now(mr_clock_system()).us - ages_ms[i] * MR_US_PER_MS;
        struct mr_buf bytes = {0};
        char id[MR_TIMER_ID_MAX + 1];
        (void)snprintf(id, sizeof id, "00000000-0000-7000-8000-%012zu", i);
        struct mr_timer_operation op = {.operation = mr_slice_str(id),
                                        .id = mr_slice_str(id),
                                        .verb = MR_TIMER_PUT,
                                        .version = (uint64_t)then_us,
                                        .created_ms = then_us / MR_US_PER_MS,
                                        .definition = mr_buf_slice(&definition)};
        assert_int_equal(mr_flat_append(&mr_flat_timer_operation, &op, &bytes), MR_OK);
        assert_int_equal(keep(mr_timer_service_copies(f->keepers[0].service), "gone/1",
                              mr_buf_slice(&bytes), none),
                         MR_OK);
        mr_buf_done(&bytes);
        UNTIL(copies(&f->keepers[0]) == 0);
        if (i == 0)
            UNTIL(dead_letters(f->keepers[0].broker) == 1);
        else
            UNTIL(is_applied(f, 1));
        assert_int_equal(is_applied(f, 1), i == 1);
    }
    assert_int_equal(dead_letters(f->keepers[0].broker), 1);
    mr_buf_done(&definition);
}

static void what_makes_no_sense_is_not_kept(void **state)
{
    struct fixture *f = *state;
    struct mr_slice none = {0}, garbage = MR_SLICE_LIT("\xff\xff\xff");
    struct mr_copies *own;
    struct mr_copies_options options = {.broker = f->broker, .store = f->store, .own = "us/1"};
    assert_int_equal(mr_copies_start(&options, &own), MR_OK);
    assert_int_equal(keep(own, "", none, none), MR_INVALID);
    assert_int_equal(keep(own, "us/1", none, none), MR_INVALID); /* it would be one disk */
    assert_int_equal(keep(own, "them/1", garbage, none), MR_INVALID);
    struct mr_buf nameless = {0};
    struct mr_timer_operation op = {.verb = MR_TIMER_DELETE, .name = MR_SLICE_LIT("x")};
    assert_int_equal(mr_flat_append(&mr_flat_timer_operation, &op, &nameless), MR_OK);
    assert_int_equal(keep(own, "them/1", mr_buf_slice(&nameless), none), MR_INVALID);
    mr_buf_done(&nameless);
    assert_int_equal(keep(own, "them/1", none, MR_SLICE_LIT("not there")), MR_OK);
    assert_int_equal(count(f->broker, MR_COPIES_QUEUE), 0);
    mr_copies_stop(own);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(alone_a_server_accepts_nothing, begin, end),
        cmocka_unit_test_setup_teardown(
            what_a_server_that_is_gone_has_accepted_is_applied_by_who_has_copies, begin, end),
        cmocka_unit_test_setup_teardown(who_was_heard_of_just_now_is_not_gone_without_a_row, begin,
                                        end),
        cmocka_unit_test_setup_teardown(a_copy_goes_when_its_operation_was_applied, begin, end),
        cmocka_unit_test_setup_teardown(a_copy_of_what_was_sent_again_goes_too, begin, end),
        cmocka_unit_test_setup_teardown(one_that_does_not_answer_is_passed_over, begin, end),
        cmocka_unit_test_setup_teardown(nothing_stays_of_a_message_that_is_refused, begin, end),
        cmocka_unit_test_setup_teardown(a_copy_from_long_ago_brings_no_timer_back, begin, end),
        cmocka_unit_test_setup_teardown(many_megabytes_are_more_than_one_message, begin, end),
        cmocka_unit_test_setup_teardown(what_makes_no_sense_is_not_kept, begin, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
