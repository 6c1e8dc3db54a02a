/* SPDX-License-Identifier: Apache-2.0 */
/* The engine on a disk that is slow: syncs and new segments that do not end while work comes in. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "broker/embedded/embedded.h"
#include "log/log.h"
#include "unit/temp_dir.h"

enum { CHORES = 16, NAME = 120 };

/* Chores run when the test says so. */
struct held_exec {
    struct mr_exec exec;
    struct mr_chore *chores[CHORES];
    size_t n;
};

struct fixture {
    char base[TEMP_DIR_MAX], dir[TEMP_DIR_MAX + 16];
    struct held_exec sync, file;
    struct mr_engine *engine;
};

static void submit(struct mr_exec *exec, struct mr_chore *chore)
{
    struct held_exec *held = (struct held_exec *)exec;
    mr_assert(held->n < CHORES);
    held->chores[held->n++] = chore;
}

static void run(struct held_exec *held)
{
    while (held->n > 0) {
        struct mr_chore *chore = held->chores[0];
        memmove(held->chores, held->chores + 1, --held->n * sizeof *held->chores);
        chore->run(chore);
        chore->done(chore);
    }
}

static int begin(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->sync.exec.submit = submit;
    f->file.exec.submit = submit;
    temp_dir_make(f->base);
    snprintf(f->dir, sizeof f->dir, "%s/store", f->base);
    struct mr_engine_options options = {
        .base = {.dir = f->dir,
                 .segment_bytes = MR_SEGMENT_BYTES_MIN,
                 .fs = mr_fs_system(),
                 .clock = mr_clock_system()},
        .sync_exec = &f->sync.exec,
        .file_exec = &f->file.exec,
    };
    mr_rand_seed(&options.rand, 7);
    assert_int_equal(mr_engine_open(&options, &f->engine, NULL), MR_OK);
    *state = f;
    return 0;
}

static int end(void **state)
{
    struct fixture *f = *state;
    run(&f->sync);
    run(&f->file);
    mr_engine_finish(f->engine);
    mr_engine_abandon(f->engine);
    temp_dir_remove(f->base);
    free(f);
    return 0;
}

static void count(struct mr_req *req)
{
    ++*(size_t *)req->arg;
}

/* One task in a queue that is new. */
struct sent {
    struct mr_req_enqueue req;
    struct mr_task_options task;
    struct mr_enqueue_result result;
    char queue[NAME + 1];
};

static void send(struct fixture *f, struct sent *sent, unsigned n, size_t *answered)
{
    static const char payload[200];
    snprintf(sent->queue, sizeof sent->queue, "%0*u", NAME, n);
    sent->task = (struct mr_task_options){.queue = mr_slice_str(sent->queue),
                                          .payload = {payload, n * 37 % sizeof payload}};
    sent->req = (struct mr_req_enqueue){
        .req = {.op = MR_OP_ENQUEUE, .done = count, .arg = answered},
        .tasks = &sent->task,
        .n = 1,
        .results = &sent->result,
    };
    mr_broker_submit(mr_engine_broker(f->engine), &sent->req.req);
}

static void new_queues_during_a_long_sync_wait_like_everything_else(void **state)
{
    enum { TASKS = 600 };
    struct fixture *f = *state;
    struct sent *sent = calloc(TASKS, sizeof *sent);
    assert_non_null(sent);
    size_t answered = 0;
    for (unsigned i = 0; i < TASKS; i++) {
        send(f, &sent[i], i, &answered);
        mr_engine_turn(f->engine);
        run(&f->file);
        mr_engine_turn(f->engine);
    }
    assert_int_equal(answered, 0);
    for (int turns = 0; answered < TASKS && turns < 10 * TASKS; turns++) {
        run(&f->sync);
        run(&f->file);
        mr_engine_turn(f->engine);
    }
    assert_int_equal(answered, TASKS);
    for (size_t i = 0; i < TASKS; i++) {
        assert_int_equal(sent[i].result.err, MR_OK);
        mr_req_done(&sent[i].req.req);
    }
    free(sent);
}

static void told_to_stop(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    (void)epoch, (void)reason, (void)arg;
}

static void a_node_with_many_new_queues_waits_for_the_next_segment(void **state)
{
    enum { NODES = 4 };
    struct fixture *f = *state;
    for (unsigned k = 0; k < NODES; k++) {
        char names[MR_TAKE_QUEUES_MAX][NAME + 1];
        struct mr_worker_queue queues[MR_TAKE_QUEUES_MAX];
        for (unsigned i = 0; i < MR_TAKE_QUEUES_MAX; i++) {
            snprintf(names[i], sizeof names[i], "%0*u", NAME, k * MR_TAKE_QUEUES_MAX + i);
            queues[i] = (struct mr_worker_queue){mr_slice_str(names[i]), 1};
        }
        size_t answered = 0;
        struct mr_req_node_open req = {
            .req = {.op = MR_OP_NODE_OPEN, .done = count, .arg = &answered},
            .queues = queues,
            .queues_n = MR_TAKE_QUEUES_MAX,
            .slots = 1,
            .lease_ms = MR_MS_PER_DAY,
            .events = {.stop = told_to_stop},
        };
        mr_broker_submit(mr_engine_broker(f->engine), &req.req);
        for (int turns = 0; answered == 0 && turns < 20; turns++) {
            mr_engine_turn(f->engine);
            run(&f->sync);
            if (turns > 3)
                run(&f->file);
        }
        assert_int_equal(answered, 1);
        assert_int_equal(req.req.err, MR_OK);
        mr_req_done(&req.req);
    }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(new_queues_during_a_long_sync_wait_like_everything_else),
        TEST(a_node_with_many_new_queues_waits_for_the_next_segment),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
