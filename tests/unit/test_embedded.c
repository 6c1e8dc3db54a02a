/* SPDX-License-Identifier: Apache-2.0 */
/* The engine with its threads, on real files: many callers at once, closing while busy, memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "broker/embedded/embedded.h"
#include "unit/temp_dir.h"

enum { PRODUCERS = 8, WORKERS = 3, EACH = 250, SEGMENT = 256 * 1024 };

struct fixture {
    char base[TEMP_DIR_MAX], dir[TEMP_DIR_MAX + 16];
    struct mr_broker *broker;
    atomic_size_t finished, refused;
};

/* Assertions of cmocka belong to its own thread; the others stop the program. */
#define must(cond) mr_assert(cond)

static void open_store(struct fixture *f)
{
    struct mr_embedded_options options = {.dir = f->dir, .segment_bytes = SEGMENT};
    struct mr_detail detail = {{0}};
    enum mr_err err = mr_embedded_open(&options, &f->broker, &detail);
    if (err != MR_OK)
        print_error("%s\n", detail.text);
    assert_int_equal(err, MR_OK);
}

static void close_store(struct fixture *f)
{
    mr_broker_close(f->broker);
    f->broker = NULL;
}

static int begin(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    temp_dir_make(f->base);
    snprintf(f->dir, sizeof f->dir, "%s/store", f->base);
    open_store(f);
    *state = f;
    return 0;
}

static int end(void **state)
{
    struct fixture *f = *state;
    if (f->broker != NULL)
        close_store(f);
    temp_dir_remove(f->base);
    free(f);
    return 0;
}

static struct mr_stats stats(struct fixture *f)
{
    struct mr_req_stats req = {.req.op = MR_OP_STATS};
    assert_int_equal(mr_broker_call(f->broker, &req.req), MR_OK);
    mr_req_done(&req.req);
    return req.stats;
}

static uint64_t count(struct fixture *f, enum mr_state state)
{
    struct mr_queue_info info = {0};
    struct mr_req_queue_list req = {.req.op = MR_OP_QUEUE_LIST, .infos = &info, .max = 1};
    assert_int_equal(mr_broker_call(f->broker, &req.req), MR_OK);
    mr_req_done(&req.req);
    return info.counts[state];
}

/* ---- many threads --------------------------------------------------------------------------- */

struct producer {
    struct fixture *f;
    unsigned number;
};

static void *produce(void *arg)
{
    struct producer *producer = arg;
    for (unsigned i = 0; i < EACH; i++) {
        char id[32];
        snprintf(id, sizeof id, "%u-%u", producer->number, i);
        struct mr_task_options task = {.id = mr_slice_str(id), .payload = mr_slice_str(id)};
        struct mr_enqueue_result result;
        struct mr_req_enqueue req = {
            .req.op = MR_OP_ENQUEUE, .tasks = &task, .n = 1, .results = &result};
        must(mr_broker_call(producer->f->broker, &req.req) == MR_OK && result.err == MR_OK);
        mr_req_done(&req.req);
    }
    return NULL;
}

static void no_stop(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    (void)epoch, (void)reason, (void)arg;
}

static uint64_t open_node(struct mr_broker *broker)
{
    struct mr_worker_queue queue = {.name = mr_slice_str("default")};
    struct mr_req_node_open req = {.req.op = MR_OP_NODE_OPEN,
                                   .name = mr_slice_str("node"),
                                   .queues = &queue,
                                   .queues_n = 1,
                                   .slots = 1,
                                   .events.stop = no_stop,
                                   .lease_ms = 60000};
    must(mr_broker_call(broker, &req.req) == MR_OK);
    mr_req_done(&req.req);
    return req.node;
}

static void finish(struct fixture *f, struct mr_lease *lease)
{
    must(mr_broker_lease_open(f->broker, lease) == MR_OK);
    must(lease->task.payload.len == lease->task.id.len &&
         memcmp(lease->task.payload.data, lease->task.id.data, lease->task.id.len) == 0);
    struct mr_finish item = {
        .id = lease->task.id, .epoch = lease->epoch, .ref = lease->ref, .outcome = MR_DONE};
    enum mr_err err = MR_FAILED;
    struct mr_req_finish req = {.req.op = MR_OP_FINISH, .items = &item, .n = 1, .errs = &err};
    must(mr_broker_call(f->broker, &req.req) == MR_OK && err == MR_OK);
    mr_req_done(&req.req);
    atomic_fetch_add(&f->finished, 1);
}

static void *consume(void *arg)
{
    struct fixture *f = arg;
    uint64_t node = open_node(f->broker);
    while (atomic_load(&f->finished) < (size_t)PRODUCERS * EACH) {
        struct mr_req_take req = {.req.op = MR_OP_TAKE, .node = node, .max = 20, .wait_ms = 20};
        enum mr_err err = mr_broker_call(f->broker, &req.req);
        must(err == MR_OK || err == MR_EMPTY);
        struct mr_lease *next;
        for (struct mr_lease *lease = req.leases; lease != NULL; lease = next) {
            next = lease->next;
            finish(f, lease);
            mr_lease_free(lease);
        }
        mr_req_done(&req.req);
    }
    return NULL;
}

static void threads_enqueue_while_others_take_and_finish_and_nothing_is_lost(void **state)
{
    struct fixture *f = *state;
    pthread_t producers[PRODUCERS], workers[WORKERS];
    struct producer args[PRODUCERS];
    for (unsigned i = 0; i < WORKERS; i++)
        assert_int_equal(pthread_create(&workers[i], NULL, consume, f), 0);
    for (unsigned i = 0; i < PRODUCERS; i++) {
        args[i] = (struct producer){f, i};
        assert_int_equal(pthread_create(&producers[i], NULL, produce, &args[i]), 0);
    }
    for (unsigned i = 0; i < PRODUCERS; i++)
        assert_int_equal(pthread_join(producers[i], NULL), 0);
    for (unsigned i = 0; i < WORKERS; i++)
        assert_int_equal(pthread_join(workers[i], NULL), 0);
    assert_int_equal(atomic_load(&f->finished), PRODUCERS * EACH);
    assert_int_equal(stats(f).tasks, 0);
    struct mr_queue_info info;
    struct mr_req_queue_list req = {.req.op = MR_OP_QUEUE_LIST, .infos = &info, .max = 1};
    assert_int_equal(mr_broker_call(f->broker, &req.req), MR_OK);
    assert_int_equal(info.processed_total, PRODUCERS * EACH);
    assert_int_equal(info.failed_total, 0);
    mr_req_done(&req.req);
}

static void many_waiting_threads_share_syncs(void **state)
{
    struct fixture *f = *state;
    pthread_t producers[PRODUCERS];
    struct producer args[PRODUCERS];
    uint64_t before = stats(f).syncs;
    for (unsigned i = 0; i < PRODUCERS; i++) {
        args[i] = (struct producer){f, i};
        assert_int_equal(pthread_create(&producers[i], NULL, produce, &args[i]), 0);
    }
    for (unsigned i = 0; i < PRODUCERS; i++)
        assert_int_equal(pthread_join(producers[i], NULL), 0);
    uint64_t syncs = stats(f).syncs - before;
    assert_true(syncs >= EACH); /* each producer waits for every one of its own */
    assert_true(syncs < (uint64_t)PRODUCERS * EACH);
    close_store(f);
    open_store(f);
    assert_int_equal(stats(f).tasks, PRODUCERS * EACH);
}

/* ---- closing -------------------------------------------------------------------------------- */

struct flight {
    struct mr_req_enqueue req;
    struct mr_task_options task;
    struct mr_enqueue_result result;
    struct fixture *f;
};

static void landed(struct mr_req *req)
{
    struct flight *flight = mr_container(req, struct flight, req.req);
    bool ok = req->err == MR_OK && flight->result.err == MR_OK;
    must(ok || req->err == MR_CLOSED);
    atomic_fetch_add(ok ? &flight->f->finished : &flight->f->refused, 1);
}

static void closing_answers_what_is_in_flight_and_keeps_what_it_said_yes_to(void **state)
{
    enum { FLIGHTS = 2000 };
    struct fixture *f = *state;
    struct flight *flights = calloc(FLIGHTS, sizeof *flights);
    assert_non_null(flights);
    for (int i = 0; i < FLIGHTS; i++) {
        struct flight *flight = &flights[i];
        flight->f = f;
        flight->task.payload = mr_slice_str("in flight");
        flight->req = (struct mr_req_enqueue){.req = {.op = MR_OP_ENQUEUE, .done = landed},
                                              .tasks = &flight->task,
                                              .n = 1,
                                              .results = &flight->result};
        mr_broker_submit(f->broker, &flight->req.req);
    }
    close_store(f);
    assert_int_equal(atomic_load(&f->finished) + atomic_load(&f->refused), FLIGHTS);
    for (int i = 0; i < FLIGHTS; i++)
        mr_req_done(&flights[i].req.req);
    free(flights);
    open_store(f);
    assert_int_equal(stats(f).tasks, atomic_load(&f->finished));
}

static void woken(struct mr_req *req)
{
    struct fixture *f = req->arg;
    atomic_fetch_add(req->err == MR_CLOSED ? &f->refused : &f->finished, 1);
}

static void closing_wakes_a_take_that_waits(void **state)
{
    struct fixture *f = *state;
    struct mr_req_take req = {.req = {.op = MR_OP_TAKE, .done = woken, .arg = f},
                              .node = open_node(f->broker),
                              .max = 1,
                              .wait_ms = 600000};
    mr_broker_submit(f->broker, &req.req);
    (void)stats(f); /* requests of one thread are carried out in order: now it waits */
    assert_int_equal(atomic_load(&f->refused) + atomic_load(&f->finished), 0);
    close_store(f);
    assert_int_equal(atomic_load(&f->refused), 1);
    mr_req_done(&req.req);
}

/* ---- opening -------------------------------------------------------------------------------- */

static void a_second_opener_in_the_same_process_is_refused_too(void **state)
{
    struct fixture *f = *state;
    struct mr_embedded_options options = {.dir = f->dir};
    struct mr_detail detail = {{0}};
    struct mr_broker *second = NULL;
    char self[32];
    assert_int_equal(mr_embedded_open(&options, &second, &detail), MR_IN_USE);
    assert_null(second);
    snprintf(self, sizeof self, "process %ld", (long)getpid());
    assert_non_null(strstr(detail.text, self));
    assert_non_null(strstr(detail.text, f->dir));
}

static void a_folder_that_cannot_be_made_is_named(void **state)
{
    (void)state;
    struct mr_embedded_options options = {.dir = "/dev/null/store"};
    struct mr_detail detail = {{0}};
    struct mr_broker *broker = NULL;
    assert_int_not_equal(mr_embedded_open(&options, &broker, &detail), MR_OK);
    assert_null(broker);
    assert_non_null(strstr(detail.text, "/dev/null/store"));
}

static void a_folder_is_known_by_the_same_name_in_all_its_lives(void **state)
{
    struct fixture *f = *state;
    char first[MR_UUID_TEXT_LEN + 1], second[MR_UUID_TEXT_LEN + 1];
    struct mr_broker other = {0};
    assert_true(mr_embedded_home(f->broker, first));
    assert_int_equal(strlen(first), MR_UUID_TEXT_LEN);
    close_store(f);
    open_store(f);
    assert_true(mr_embedded_home(f->broker, second));
    assert_string_equal(first, second);
    assert_false(mr_embedded_home(&other, second));
}

/* ---- memory --------------------------------------------------------------------------------- */

static void a_waiting_task_costs_at_most_128_bytes_of_memory(void **state)
{
    enum { BATCHES = 200, BATCH = 1000 };
    static const char payload[100];
    struct fixture *f = *state;
    struct mr_task_options *tasks = calloc(BATCH, sizeof *tasks);
    struct mr_enqueue_result *results = calloc(BATCH, sizeof *results);
    assert_true(tasks != NULL && results != NULL);
    for (int i = 0; i < BATCH; i++)
        tasks[i].payload = mr_slice_make(payload, sizeof payload);
    for (int i = 0; i < BATCHES; i++) {
        struct mr_req_enqueue req = {
            .req.op = MR_OP_ENQUEUE, .tasks = tasks, .n = BATCH, .results = results};
        assert_int_equal(mr_broker_call(f->broker, &req.req), MR_OK);
        assert_int_equal(results[BATCH - 1].err, MR_OK);
        mr_req_done(&req.req);
    }
    free(tasks);
    free(results);
    for (int round = 0; round < 2; round++) {
        struct mr_stats figures = stats(f);
        assert_int_equal(figures.tasks, BATCHES * BATCH);
        assert_int_equal(count(f, MR_PENDING), BATCHES * BATCH);
        assert_true(figures.memory_bytes / figures.tasks <= 128);
        assert_true(figures.memory_bytes / figures.tasks >= 64);
        close_store(f);
        open_store(f);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(threads_enqueue_while_others_take_and_finish_and_nothing_is_lost),
        TEST(many_waiting_threads_share_syncs),
        TEST(closing_answers_what_is_in_flight_and_keeps_what_it_said_yes_to),
        TEST(closing_wakes_a_take_that_waits),
        TEST(a_second_opener_in_the_same_process_is_refused_too),
        cmocka_unit_test(a_folder_that_cannot_be_made_is_named),
        TEST(a_folder_is_known_by_the_same_name_in_all_its_lives),
        TEST(a_waiting_task_costs_at_most_128_bytes_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
