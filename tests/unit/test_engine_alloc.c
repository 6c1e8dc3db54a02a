/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The engine without memory: whichever allocation fails, opening and working answer MR_NOMEM (or
 * do without), nothing crashes, and what was acknowledged is there at the next start. On real
 * files, since the disk of the simulator needs memory of its own.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "broker/embedded/embedded.h"
#include "unit/failing_alloc.h"
#include "unit/temp_dir.h"

enum { TASKS = 40, CHORES = 16 };

/* Chores run between two turns. */
struct queue_exec {
    struct mr_exec exec;
    struct mr_chore *chores[CHORES];
    size_t n;
};

struct fixture {
    char base[TEMP_DIR_MAX], dir[TEMP_DIR_MAX + 16];
    struct queue_exec exec;
    struct mr_engine *engine;
};

static void submit(struct mr_exec *exec, struct mr_chore *chore)
{
    struct queue_exec *queue = (struct queue_exec *)exec;
    mr_assert(queue->n < CHORES);
    queue->chores[queue->n++] = chore;
}

static void run_chores(struct fixture *f)
{
    while (f->exec.n > 0) {
        struct mr_chore *chore = f->exec.chores[0];
        memmove(f->exec.chores, f->exec.chores + 1, --f->exec.n * sizeof *f->exec.chores);
        chore->run(chore);
        chore->done(chore);
    }
}

static int begin(void **state)
{
    struct fixture *f = calloc(1, sizeof *f);
    assert_non_null(f);
    f->exec.exec.submit = submit;
    temp_dir_make(f->base);
    snprintf(f->dir, sizeof f->dir, "%s/store", f->base);
    *state = f;
    return 0;
}

static void close_engine(struct fixture *f)
{
    if (f->engine == NULL)
        return;
    run_chores(f);
    mr_engine_finish(f->engine);
    mr_engine_abandon(f->engine);
    f->engine = NULL;
    f->exec.n = 0;
}

static int end(void **state)
{
    struct fixture *f = *state;
    close_engine(f);
    temp_dir_remove(f->base);
    free(f);
    return 0;
}

static enum mr_err open_engine(struct fixture *f)
{
    struct mr_engine_options options = {
        .base = {.dir = f->dir,
                 .segment_bytes = 64 * 1024,
                 .fs = mr_fs_system(),
                 .clock = mr_clock_system()},
        .sync_exec = &f->exec.exec,
        .file_exec = &f->exec.exec,
    };
    mr_rand_seed(&options.rand, 7);
    return mr_engine_open(&options, &f->engine, NULL);
}

static void answered(struct mr_req *req)
{
    *(bool *)req->arg = true;
}

static enum mr_err call(struct fixture *f, struct mr_req *req)
{
    bool done = false;
    req->done = answered;
    req->arg = &done;
    mr_broker_submit(mr_engine_broker(f->engine), req);
    for (int turns = 0; !done && turns < 1000; turns++) {
        mr_engine_turn(f->engine);
        run_chores(f);
    }
    mr_assert(done);
    return req->err;
}

/* MR_OK when the task was acknowledged. */
static enum mr_err enqueue(struct fixture *f, unsigned n)
{
    static const char payload[300];
    char id[32], key[32];
    snprintf(id, sizeof id, "task-%u", n);
    snprintf(key, sizeof key, "key-%u", n);
    struct mr_task_options task = {
        .id = mr_slice_str(id), .payload = {payload, sizeof payload}, .queue = {"q", 1}};
    if (n % 3 == 0) {
        task.unique_key = mr_slice_str(key);
        task.unique_ms = 1000000;
    }
    if (n % 4 == 0)
        task.delay_ms = 100000000;
    struct mr_enqueue_result result = {.err = MR_FAILED};
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = &task, .n = 1, .results = &result};
    enum mr_err err = call(f, &req.req);
    mr_req_done(&req.req);
    assert_true(err == MR_OK || result.err == err); /* also when it failed as a whole */
    return result.err;
}

static bool exists(struct fixture *f, unsigned n)
{
    char id[32];
    snprintf(id, sizeof id, "task-%u", n);
    struct mr_req_get req = {.req.op = MR_OP_GET, .id = mr_slice_str(id)};
    enum mr_err err = call(f, &req.req);
    assert_true(err == MR_OK || err == MR_NOT_FOUND);
    mr_req_done(&req.req);
    return err == MR_OK;
}

static void opening_without_memory_says_so_and_the_next_try_succeeds(void **state)
{
    struct fixture *f = *state;
    assert_int_equal(open_engine(f), MR_OK);
    for (unsigned i = 0; i < TASKS; i++)
        assert_int_equal(enqueue(f, i), MR_OK);
    close_engine(f);
    long failures = 0;
    for (long n = 0;; n++) {
        fail_alloc_after(n);
        enum mr_err err = open_engine(f);
        long failed = fail_alloc_stop();
        assert_true(err == MR_OK || (failed && err == MR_NOMEM));
        failures += failed;
        close_engine(f);
        if (failed == 0)
            break;
    }
    assert_true(!FAILING_ALLOC || failures > 15);
    assert_int_equal(open_engine(f), MR_OK);
    mr_engine_validate(f->engine);
    for (unsigned i = 0; i < TASKS; i++)
        assert_true(exists(f, i));
}

static void a_new_store_without_memory_can_be_made_at_the_next_try(void **state)
{
    struct fixture *f = *state;
    for (long n = 0;; n++) {
        fail_alloc_after(n);
        enum mr_err err = open_engine(f);
        long failed = fail_alloc_stop();
        assert_true(err == MR_OK || (failed && err == MR_NOMEM));
        close_engine(f);
        if (failed == 0)
            break;
    }
    assert_int_equal(open_engine(f), MR_OK);
    assert_int_equal(enqueue(f, 1), MR_OK);
}

static void work_without_memory_is_refused_and_nothing_acknowledged_is_lost(void **state)
{
    struct fixture *f = *state;
    static bool acknowledged[1000];
    unsigned tasks = 0;
    long failures = 0, fine = 0;
    assert_int_equal(open_engine(f), MR_OK);
    for (long n = 0; fine < 3 && tasks + 1 < 1000; n++) {
        fail_alloc_after(n % 12);
        enum mr_err err = enqueue(f, tasks);
        long failed = fail_alloc_stop();
        assert_true(err == MR_OK || err == MR_NOMEM ||
                    err == MR_FAILED); /* failed: it has stopped */
        assert_true(failed || err == MR_OK);
        acknowledged[tasks++] = err == MR_OK;
        failures += failed;
        fine = failed ? 0 : fine + 1;
        close_engine(f); /* the next step begins with a state that equals the log */
        assert_int_equal(open_engine(f), MR_OK);
        mr_engine_validate(f->engine);
    }
    assert_true(!FAILING_ALLOC || failures > 3);
    for (unsigned i = 0; i < tasks; i++)
        assert_true(!acknowledged[i] || exists(f, i));
}

static void on_stop(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    (void)epoch, (void)reason, (void)arg;
}

/* Opens a node, looks at it and closes it; the first error. */
static enum mr_err look_at_node(struct fixture *f)
{
    struct mr_worker_queue queue = {.name = MR_SLICE_LIT("q")};
    struct mr_slice types[] = {MR_SLICE_LIT("mail:*"), MR_SLICE_LIT("ping")};
    struct mr_req_node_open open = {.req.op = MR_OP_NODE_OPEN,
                                    .queues = &queue,
                                    .queues_n = 1,
                                    .types = types,
                                    .types_n = 2,
                                    .slots = 1,
                                    .lease_ms = 60000,
                                    .events = {.stop = on_stop}};
    struct mr_req_node_list list = {.req.op = MR_OP_NODE_LIST};
    enum mr_err err = call(f, &open.req);
    mr_req_done(&open.req);
    if (err != MR_OK)
        return err;
    err = call(f, &list.req);
    assert_true(err != MR_OK || (list.n == 1 && list.nodes[0].types_n == 2));
    mr_req_done(&list.req);
    struct mr_req_node_close close = {.req.op = MR_OP_NODE_CLOSE, .node = open.node};
    assert_int_equal(call(f, &close.req), MR_OK);
    mr_req_done(&close.req);
    return err;
}

/* Waits for the end of a task until that is taken back. */
static enum mr_err await_in_vain(struct fixture *f)
{
    bool done = false;
    struct mr_req_await await = {
        .req = {.op = MR_OP_AWAIT, .done = answered, .arg = &done},
        .id = MR_SLICE_LIT("task-1"),
        .wait_ms = 60000,
    };
    struct mr_req_unawait unawait = {.req.op = MR_OP_UNAWAIT, .await = &await};
    mr_broker_submit(mr_engine_broker(f->engine), &await.req);
    mr_engine_turn(f->engine);
    assert_int_equal(call(f, &unawait.req), MR_OK);
    assert_true(done);
    mr_req_done(&await.req);
    return await.req.err == MR_CANCELLED ? MR_OK : await.req.err;
}

static void looking_without_memory_changes_nothing(void **state)
{
    struct fixture *f = *state;
    long failures = 0;
    assert_int_equal(open_engine(f), MR_OK);
    assert_int_equal(enqueue(f, 1), MR_OK);
    for (long n = 0;; n++) {
        fail_alloc_after(n);
        enum mr_err err = look_at_node(f);
        if (err == MR_OK)
            err = await_in_vain(f);
        long failed = fail_alloc_stop();
        assert_true(err == MR_OK || (failed && err == MR_NOMEM));
        mr_engine_validate(f->engine);
        failures += failed;
        if (failed == 0)
            break;
    }
    assert_true(!FAILING_ALLOC || failures > 3);
}

static enum mr_err join_group(struct fixture *f, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        struct mr_task_options task = {.queue = MR_SLICE_LIT("q"), .group = MR_SLICE_LIT("g")};
        struct mr_enqueue_result result;
        struct mr_req_enqueue req = {
            .req.op = MR_OP_ENQUEUE, .tasks = &task, .n = 1, .results = &result};
        enum mr_err err = call(f, &req.req);
        mr_req_done(&req.req);
        if (err != MR_OK || result.err != MR_OK)
            return err != MR_OK ? err : result.err;
    }
    return MR_OK;
}

/* Gathers a set, gives it back, gathers it again and makes a task of it; the first error. */
static enum mr_err gather_twice(struct fixture *f)
{
    enum mr_err err = MR_OK;
    for (int i = 0; i < 2 && err == MR_OK; i++) {
        struct mr_task_options task = {.payload = MR_SLICE_LIT("whole")};
        struct mr_req_gather gather = {
            .req.op = MR_OP_GATHER, .queue = MR_SLICE_LIT("q"), .max_size = 3, .grace_ms = 60000};
        err = call(f, &gather.req);
        assert_true(err != MR_OK || gather.n == 3);
        struct mr_req_gathered gathered = {.req.op = MR_OP_GATHERED,
                                           .queue = gather.queue,
                                           .set = mr_slice_str(gather.set),
                                           .task = i == 0 ? NULL : &task};
        if (err == MR_OK)
            err = call(f, &gathered.req);
        if (err == MR_OK)
            err = gathered.result.err;
        mr_req_done(&gather.req);
        mr_req_done(&gathered.req);
    }
    return err;
}

/* All of them, or the tasks that were made of all. */
static void gathering_without_memory_loses_no_member(void **state)
{
    struct fixture *f = *state;
    long failures = 0, made = 0;
    assert_int_equal(open_engine(f), MR_OK);
    assert_int_equal(join_group(f, 3), MR_OK);
    for (long n = 0;; n++) {
        fail_alloc_after(n);
        enum mr_err err = gather_twice(f);
        long failed = fail_alloc_stop();
        if (err != MR_OK && (!failed || (err != MR_NOMEM && err != MR_FAILED)))
            fail_msg("allocation %ld, %ld failed: %s", n, failed, mr_err_name(err));
        failures += failed;
        close_engine(f); /* the next step begins with a state that equals the log */
        assert_int_equal(open_engine(f), MR_OK);
        mr_engine_validate(f->engine);
        struct mr_req_stats req = {.req.op = MR_OP_STATS};
        assert_int_equal(call(f, &req.req), MR_OK);
        mr_req_done(&req.req);
        bool is_made = req.stats.gathered == 3 * (uint64_t)(made + 1);
        made += is_made;
        assert_int_equal(req.stats.gathered, 3 * made);
        assert_int_equal(req.stats.tasks, made + (is_made ? 0 : 3));
        assert_true(is_made || err != MR_OK);
        if (failed == 0)
            break;
        if (is_made)
            assert_int_equal(join_group(f, 3), MR_OK);
    }
    assert_true(!FAILING_ALLOC || failures > 3);
}

/* Sets a limit for its type, takes what that allows of three tasks and passes over the rest. */
static enum mr_err work_under_limit(struct fixture *f)
{
    struct mr_worker_queue queue = {.name = MR_SLICE_LIT("q")};
    struct mr_req_queue_set set = {.req.op = MR_OP_QUEUE_SET,
                                   .queue = queue.name,
                                   .setting = MR_QUEUE_CONCURRENCY,
                                   .value = 1,
                                   .scope = MR_LIMIT_TYPE,
                                   .name = MR_SLICE_LIT(MR_LIMIT_EACH)};
    struct mr_req_node_open open = {.req.op = MR_OP_NODE_OPEN,
                                    .queues = &queue,
                                    .queues_n = 1,
                                    .slots = 4,
                                    .lease_ms = 60000,
                                    .events = {.stop = on_stop}};
    enum mr_err err = call(f, &set.req);
    mr_req_done(&set.req);
    if (err == MR_OK)
        err = call(f, &open.req);
    mr_req_done(&open.req);
    if (err != MR_OK)
        return err;
    struct mr_req_take take = {.req.op = MR_OP_TAKE, .node = open.node, .max = 4};
    err = call(f, &take.req);
    assert_true(err != MR_OK || take.n == 1);
    for (struct mr_lease *lease = take.leases, *next; lease != NULL; lease = next) {
        next = lease->next;
        mr_lease_free(lease);
    }
    mr_req_done(&take.req);
    struct mr_req_node_close close = {.req.op = MR_OP_NODE_CLOSE, .node = open.node};
    enum mr_err closed = call(f, &close.req);
    mr_req_done(&close.req);
    return err != MR_OK ? err : closed;
}

static void limits_without_memory_lose_no_task(void **state)
{
    struct fixture *f = *state;
    long failures = 0;
    assert_int_equal(open_engine(f), MR_OK);
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(enqueue(f, 5 + 6 * i), MR_OK);
    for (long n = 0;; n++) {
        fail_alloc_after(n);
        enum mr_err err = work_under_limit(f);
        long failed = fail_alloc_stop();
        assert_true(err == MR_OK || (failed && (err == MR_NOMEM || err == MR_FAILED)));
        failures += failed;
        close_engine(f); /* the next step begins with a state that equals the log */
        assert_int_equal(open_engine(f), MR_OK);
        mr_engine_validate(f->engine);
        for (unsigned i = 0; i < 3; i++)
            assert_true(exists(f, 5 + 6 * i));
        if (failed == 0)
            break;
    }
    assert_true(!FAILING_ALLOC || failures > 3);
}

/* Without its headers it is not run, and what is not run has to be given back. */
static void a_task_that_cannot_be_read_can_be_given_back(void **state)
{
    struct fixture *f = *state;
    struct mr_header header = {MR_SLICE_LIT("trace"), MR_SLICE_LIT("1")};
    struct mr_task_options task = {
        .id = MR_SLICE_LIT("told"), .queue = MR_SLICE_LIT("q"), .headers = &header, .headers_n = 1};
    struct mr_enqueue_result result;
    struct mr_req_enqueue put = {
        .req.op = MR_OP_ENQUEUE, .tasks = &task, .n = 1, .results = &result};
    struct mr_worker_queue queue = {.name = MR_SLICE_LIT("q")};
    struct mr_req_node_open open = {.req.op = MR_OP_NODE_OPEN,
                                    .queues = &queue,
                                    .queues_n = 1,
                                    .slots = 1,
                                    .lease_ms = 60000,
                                    .events = {.stop = on_stop}};
    assert_int_equal(open_engine(f), MR_OK);
    assert_int_equal(call(f, &put.req), MR_OK);
    assert_int_equal(call(f, &open.req), MR_OK);
    struct mr_req_take take = {.req.op = MR_OP_TAKE, .node = open.node, .max = 1};
    assert_int_equal(call(f, &take.req), MR_OK);
    struct mr_lease *lease = take.leases;
    fail_alloc_after(0);
    enum mr_err err = mr_broker_lease_open(mr_engine_broker(f->engine), lease);
    long failed = fail_alloc_stop();
    assert_int_equal(err, failed ? MR_NOMEM : MR_OK);
    assert_int_equal(lease->task.headers_n, failed ? 0 : 1);
    struct mr_finish item = {
        .id = lease->task.id, .epoch = lease->epoch, .ref = lease->ref, .outcome = MR_HAND_BACK};
    assert_true(mr_slice_equal(item.id, MR_SLICE_LIT("told")));
    assert_int_equal(mr_broker_lease_open(mr_engine_broker(f->engine), lease), MR_OK);
    assert_true(mr_slice_equal(lease->task.headers[0].value, MR_SLICE_LIT("1")));
    struct mr_req_finish finish = {
        .req.op = MR_OP_FINISH, .items = &item, .n = 1, .errs = &(enum mr_err){MR_FAILED}};
    assert_int_equal(call(f, &finish.req), MR_OK);
    assert_int_equal(finish.errs[0], MR_OK);
    mr_lease_free(lease);
    mr_req_done(&put.req);
    mr_req_done(&open.req);
    mr_req_done(&take.req);
    mr_req_done(&finish.req);
    assert_true(!FAILING_ALLOC || failed > 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(opening_without_memory_says_so_and_the_next_try_succeeds),
        TEST(a_new_store_without_memory_can_be_made_at_the_next_try),
        TEST(work_without_memory_is_refused_and_nothing_acknowledged_is_lost),
        TEST(looking_without_memory_changes_nothing),
        TEST(gathering_without_memory_loses_no_member),
        TEST(limits_without_memory_lose_no_task),
        TEST(a_task_that_cannot_be_read_can_be_given_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
