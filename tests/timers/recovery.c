/* SPDX-License-Identifier: Apache-2.0 */
/* B: what was acknowledged is applied, whoever is killed when. */
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "broker/embedded/embedded.h"
#include "timers/rig.h"
#include "wire/timer.h"

/* In a process of its own: sends operations t0, t1, ... one by one or in batches, and writes a byte to fd for
 * each that was acknowledged; until it is killed. */
static void produce(const char *dir, int fd, size_t batch, size_t n)
{
    struct rig rig = {0};
    struct rig_op *ops = calloc(batch, sizeof *ops);
    struct mr_timer_operation *send = calloc(batch, sizeof *send);
    struct mr_timer_result *results = calloc(batch, sizeof *results);
    char name[32];
    (void)snprintf(rig.dir, sizeof rig.dir, "%s", dir);
    if (mr_zones_new(mr_fs_system(), NULL, &rig.zones) != MR_OK)
        _exit(1);
    struct rig_broker *b = rig_broker(&rig, 0);
    for (size_t i = 0; i < n;) {
        for (size_t j = 0; j < batch; j++) {
            (void)snprintf(name, sizeof name, "t%zu", i + j);
            rig_op_put(&ops[j], RIG_TIMER(name), NULL, rig_version());
            send[j] = ops[j].op;
        }
        rig_send_all(b, send, batch, MR_TIMER_DURABLE, results);
        for (size_t j = 0; j < batch; j++, i++) {
            rig_op_done(&ops[j]);
            if (results[j].err != MR_OK || write(fd, "+", 1) != 1)
                _exit(1);
        }
    }
    for (;;)
        (void)pause();
}

/* Starts it; answers its id and where its acknowledgements come from. */
static pid_t start(struct rig *rig, size_t batch, size_t n, int *ret_fd)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)close(ends[0]);
        produce(rig->dir, ends[1], batch, n);
    }
    (void)close(ends[1]);
    *ret_fd = ends[0];
    return pid;
}

/* Reads up to max acknowledgements; all that there are once it is dead. */
static size_t read_acks(int fd, size_t max)
{
    char bytes[256];
    size_t n = 0;
    ssize_t got = 1;
    while (n < max && got > 0) {
        size_t want = max - n < sizeof bytes ? max - n : sizeof bytes;
        got = read(fd, bytes, want);
        n += got > 0 ? (size_t)got : 0;
    }
    return n;
}

static void kill_it(pid_t pid)
{
    int status;
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
}

static void test_16_what_was_acknowledged_is_applied_after_a_kill(void **state)
{
    enum { N = 1000 };
    struct rig *rig = rig_make_idle();
    int fd;
    (void)state;
    rig_close(rig_broker(rig, 0)); /* the folder is the child's */
    pid_t pid = start(rig, 100, N, &fd);
    assert_int_equal(read_acks(fd, N), N);
    kill_it(pid);
    (void)close(fd);
    rig_apply(rig_broker(rig, 0));
    rig_await_count(rig, N);
    rig_free(rig);
}

static void assert_has(struct rig *rig, const char *prefix, size_t n)
{
    char name[32];
    for (size_t i = 0; i < n; i++) {
        (void)snprintf(name, sizeof name, "%s%zu", prefix, i);
        assert_int_equal(rig_state(rig, name), MR_ROW_ACTIVE);
    }
}

static void test_18_a_kill_at_any_time_loses_no_acknowledged_operation(void **state)
{
    size_t rounds = rig_full() ? 200 : 4;
    (void)state;
    for (size_t round = 0; round < rounds; round++) {
        struct rig *rig = rig_make_idle();
        int fd;
        rig_close(rig_broker(rig, 0));
        pid_t pid = start(rig, 10, 1000000, &fd);
        size_t acked = read_acks(fd, 1 + mr_rand_next(mr_rand_of_thread()) % 500);
        kill_it(pid);
        acked += read_acks(fd, SIZE_MAX); /* said before it died */
        (void)close(fd);
        struct rig_broker *b = rig_broker(rig, 0);
        rig_apply(b);
        rig_await_operations(b, MR_PENDING, 0);
        rig_await_operations(b, MR_ACTIVE, 0);
        assert_has(rig, "t", acked);
        /* One batch may have been under way: each of its operations is there wholly, or not at all. */
        assert_true(rig_count(rig) >= acked && rig_count(rig) <= acked + 10);
        assert_int_equal(rig_operations(b, MR_ARCHIVED), 0);
        rig_free(rig);
    }
}

static void test_22_an_operation_whose_end_was_lost_has_no_second_effect(void **state)
{
    struct rig *rig = rig_make();
    struct rig_broker *b = rig_broker(rig, 0);
    struct rig_timer before, after;
    struct rig_op op;
    (void)state;
    rig_op_put(&op, RIG_RULE("a", MR_TIMER_EVERY, "10ms"), NULL, rig_version());
    assert_int_equal(rig_send(b, &op.op, MR_TIMER_APPLIED).err, MR_OK);
    rig_get(rig, "a", &before);
    /* As after a crash between the effect and the end of its task: it is there again. */
    struct mr_buf bytes = {0};
    struct mr_arena arena;
    struct mr_task task;
    char id[MR_ID_MAX + 1];
    assert_int_equal(mr_flat_append(&mr_flat_timer_operation, &op.op, &bytes), MR_OK);
    rig_smuggle(b, mr_buf_slice(&bytes), id);
    enum mr_err err = rig_end(b, id, &arena, &task);
    assert_true(err == MR_OK || err == MR_NOT_FOUND); /* it leaves nothing */
    assert_true(err == MR_NOT_FOUND || task.state == MR_COMPLETED);
    rig_get(rig, "a", &after);
    assert_int_equal(after.row.version, before.row.version);
    assert_int_equal(after.row.next_ms, before.row.next_ms);
    assert_int_equal(after.row.fired, before.row.fired);
    mr_arena_done(&arena);
    mr_buf_done(&bytes);
    rig_timer_done(&before);
    rig_timer_done(&after);
    rig_op_done(&op);
    rig_free(rig);
}

static struct mr_stats stats(struct rig_broker *b)
{
    struct mr_req_stats req = {.req = {.op = MR_OP_STATS}};
    assert_int_equal(mr_broker_call(b->broker, &req.req), MR_OK);
    mr_req_done(&req.req);
    return req.stats;
}

static void test_23_segments_roll_go_when_they_are_applied_and_no_send_waits_for_it(void **state)
{
    enum { PAYLOAD = 60 * 1024, ROLLS = 10, SEGMENT = 4 * 1024 * 1024 };
    struct rig *rig = rig_make();
    struct rig_broker *b = rig_broker(rig, 0);
    char *payload = calloc(1, PAYLOAD);
    size_t slow = 0;
    (void)state;
    memset(payload, 'x', PAYLOAD);
    for (size_t bytes = 0; bytes < (size_t)ROLLS * SEGMENT + SEGMENT / 2; bytes += PAYLOAD) {
        struct rig_op op;
        rig_op_put(&op, RIG_TIMER("big", .payload = mr_slice_make(payload, PAYLOAD)), NULL,
                   rig_version());
        mr_mono begin = rig_mono();
        assert_int_equal(rig_send(b, &op.op, MR_TIMER_DURABLE).err, MR_OK);
        slow += rig_elapsed_ms(begin) > 100;
        rig_op_done(&op);
    }
    rig_await_operations(b, MR_PENDING, 0);
    mr_mono since = rig_mono();
    while (stats(b).segments > ROLLS / 2) /* more than that were written */
        rig_wait_a_moment(since, "for segments to go");
    /* A pause for each new segment would be seen each time; beside others there are other reasons. */
    assert_true(slow < ROLLS / 2 || !rig_alone());
    free(payload);
    rig_free(rig);
}

/* One of some that send at the same time. */
struct sender {
    struct rig_broker *b;
    pthread_t thread;
    size_t number, n;
    size_t payload; /* bytes, as the name says; 0: none */
};

/* What timer i of a sender carries: bytes that follow from both. */
static struct mr_slice payload_of(size_t sender, size_t i, size_t len, uint8_t *bytes)
{
    for (size_t j = 0; j < len; j++)
        bytes[j] = (uint8_t)((sender * 31 + i * 7 + j * 13) ^ (j >> 3));
    return mr_slice_make(bytes, len);
}

static void *send_some(void *arg)
{
    struct sender *sender = arg;
    uint8_t bytes[512];
    char name[32];
    for (size_t i = 0; i < sender->n; i++) {
        struct rig_op op;
        size_t len = sender->payload > 0 ? 1 + (i * 37) % sender->payload : 0;
        (void)snprintf(name, sizeof name, "s%zu-%zu", sender->number, i);
        rig_op_put(&op, RIG_TIMER(name, .payload = payload_of(sender->number, i, len, bytes)), NULL,
                   rig_version());
        struct mr_timer_result result = rig_send(sender->b, &op.op, MR_TIMER_DURABLE);
        rig_op_done(&op);
        if (result.err != MR_OK)
            return (void *)1;
    }
    return NULL;
}

static void send_at_once(struct rig_broker *b, struct sender *senders, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        senders[i].b = b;
        senders[i].number = i;
        assert_int_equal(mr_thread_start(&senders[i].thread, "sender", send_some, &senders[i]),
                         MR_OK);
    }
    for (size_t i = 0; i < count; i++)
        mr_thread_join(senders[i].thread);
}

static void test_26_many_senders_share_syncs_and_one_waits_for_about_one(void **state)
{
    enum { SENDERS = 64, EACH = 20, TRIES = 4 };
    struct rig *rig = rig_make_idle();
    struct rig_broker *b = rig_broker(rig, 0);
    struct sender senders[SENDERS] = {{0}}, alone = {.n = 20};
    (void)state;
    for (size_t i = 0; i < SENDERS; i++)
        senders[i].n = EACH;
    uint64_t before = 0, shared = SENDERS * EACH;
    /* On a busy machine they come one by one, or nearly. */
    for (size_t i = 1; i <= TRIES && shared >= SENDERS * EACH / 4; i++) {
        before = stats(b).syncs;
        send_at_once(b, senders, SENDERS);
        shared = stats(b).syncs - before;
        assert_int_equal(rig_operations(b, MR_PENDING), i * SENDERS * EACH);
    }
    assert_true(shared < (rig_alone() ? SENDERS * EACH / 4 : SENDERS * EACH));
    before = stats(b).syncs;
    send_at_once(b, &alone, 1);
    uint64_t syncs = stats(b).syncs - before;
    assert_true(syncs >= alone.n / 2 && syncs <= 2 * alone.n); /* and no interval to wait for */
    rig_free(rig);
}

static void test_27_what_many_senders_write_is_applied_byte_by_byte(void **state)
{
    enum { SENDERS = 8 };
    struct rig *rig = rig_make();
    struct rig_broker *b = rig_broker(rig, 0);
    struct sender senders[SENDERS] = {{0}};
    size_t each = rig_full() ? 125000 : 150;
    uint8_t bytes[512];
    char name[32];
    (void)state;
    for (size_t i = 0; i < SENDERS; i++)
        senders[i] = (struct sender){.n = each, .payload = sizeof bytes};
    send_at_once(b, senders, SENDERS);
    rig_await_operations(b, MR_PENDING, 0);
    rig_await_operations(b, MR_ACTIVE, 0);
    assert_int_equal(rig_operations(b, MR_ARCHIVED), 0); /* each could be read */
    assert_int_equal(rig_count(rig), SENDERS * each);
    for (size_t i = 0; i < SENDERS * each; i++) {
        struct rig_timer timer;
        size_t len = 1 + (i / SENDERS * 37) % sizeof bytes;
        (void)snprintf(name, sizeof name, "s%zu-%zu", i % SENDERS, i / SENDERS);
        rig_get(rig, name, &timer);
        assert_true(mr_slice_equal(timer.options.payload,
                                   payload_of(i % SENDERS, i / SENDERS, len, bytes)));
        rig_timer_done(&timer);
    }
    rig_free(rig);
}

static void test_28_a_second_one_on_the_same_folder_is_refused(void **state)
{
    struct rig *rig = rig_make();
    struct mr_embedded_options options = {.dir = rig_broker(rig, 0)->dir};
    struct mr_broker *second;
    struct mr_detail detail = {.text = ""};
    (void)state;
    assert_int_equal(mr_embedded_open(&options, &second, &detail), MR_IN_USE);
    assert_non_null(strstr(detail.text, options.dir));
    rig_free(rig);
}

int timers_recovery(void)
{
    struct CMUnitTest tests[] = {
        cmocka_unit_test(test_16_what_was_acknowledged_is_applied_after_a_kill),
        cmocka_unit_test(test_18_a_kill_at_any_time_loses_no_acknowledged_operation),
        cmocka_unit_test(test_22_an_operation_whose_end_was_lost_has_no_second_effect),
        cmocka_unit_test(test_23_segments_roll_go_when_they_are_applied_and_no_send_waits_for_it),
        cmocka_unit_test(test_26_many_senders_share_syncs_and_one_waits_for_about_one),
        cmocka_unit_test(test_27_what_many_senders_write_is_applied_byte_by_byte),
        cmocka_unit_test(test_28_a_second_one_on_the_same_folder_is_refused),
    };
    return TIMERS_RUN("recovery", tests);
}
