/* SPDX-License-Identifier: Apache-2.0 */
/* A process that is killed in the middle of its work: what was answered is there, once and whole. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "store/suite.h"

enum { STEP_MS = 1000, FLIGHT = 8 };

/* What one process does: fires the timer as fast as it can, several requests in flight, and tells each
 * answer. */
struct flight {
    struct mr_store_fire_batch fire;
    struct mr_store_fire item;
    struct mr_store_fired result;
    struct mr_event answered;
};

static void set_event(struct mr_store_req *req)
{
    mr_event_set(req->arg);
}

static void send(struct mr_store *store, struct flight *f, int64_t planned_ms)
{
    f->item = (struct mr_store_fire){.uid = suite_uid(1),
                                     .planned_ms = planned_ms,
                                     .state = MR_LEDGER_WAITING,
                                     .fired_ms = 1,
                                     .move = {.moves = true,
                                              .version = 1,
                                              .from_ms = planned_ms,
                                              .to_ms = planned_ms + STEP_MS,
                                              .counts = 1}};
    f->fire = (struct mr_store_fire_batch){.req = {.op = MR_STORE_FIRE, .done = set_event},
                                           .app = MR_SLICE_LIT("a"),
                                           .items = &f->item,
                                           .n = 1,
                                           .results = &f->result};
    f->fire.req.arg = &f->answered;
    mr_event_init(&f->answered);
    mr_store_submit(store, &f->fire.req);
}

_Noreturn static void work_until_killed(const char *url, int64_t next_ms, int out)
{
    struct mr_store *store = NULL;
    struct mr_detail detail;
    if (mr_store_open(&(struct mr_store_options){.url = url}, &store, &detail) != MR_OK)
        _exit(2);
    static struct flight flights[FLIGHT];
    for (size_t i = 0; i < FLIGHT; i++, next_ms += STEP_MS)
        send(store, &flights[i], next_ms);
    for (size_t i = 0;; i = (i + 1) % FLIGHT, next_ms += STEP_MS) {
        struct flight *f = &flights[i];
        mr_event_wait(&f->answered, INT64_MAX);
        if (f->fire.req.err != MR_OK || f->result.err != MR_OK)
            _exit(3);
        if (write(out, &f->item.planned_ms, sizeof f->item.planned_ms) < 0)
            _exit(4);
        send(store, f, next_ms);
    }
}

/* Answers the last that was acknowledged. */
static int64_t kill_one(struct suite *t, int64_t next_ms, unsigned acknowledged)
{
    int ends[2];
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0)
        work_until_killed(t->url, next_ms, ends[1]);
    (void)close(ends[1]);
    int64_t last = 0, at;
    for (unsigned i = 0; i < acknowledged && read(ends[0], &at, sizeof at) == sizeof at; i++)
        last = at;
    (void)kill(pid, SIGKILL);
    while (read(ends[0], &at, sizeof at) == sizeof at)
        last = at;
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    (void)close(ends[0]);
    return last;
}

/* The ledger has these and no others, newest first. */
static void check_whole(struct suite *t, uint64_t fired)
{
    struct mr_store_firing_list page = {.uid = suite_uid(1), .max = MR_STORE_BATCH_MAX};
    const struct mr_store_firing_list *list;
    do {
        list = suite_firing_list(t, page);
        for (size_t i = 0; i < list->n; i++, fired--)
            assert_int_equal(list->firings[i].planned_ms, (int64_t)fired * STEP_MS);
        page.before_ms = (int64_t)(fired + 1) * STEP_MS;
    } while (list->more);
    assert_int_equal(fired, 0);
}

static void test_what_was_answered_outlives_a_kill(void **state)
{
    struct suite *t = *state;
    assert_err(PUT(t, .next_ms = STEP_MS).err, MR_OK);
    uint64_t kills = suite_size("MR_STORE_KILLS", 4);
    for (unsigned round = 0; round < kills; round++) {
        int64_t next_ms = suite_get(t, "a", "n")->next_ms;
        suite_close(t); /* no thread of ours is alive when we fork */
        int64_t last = kill_one(t, next_ms, 1 + 7 * round);
        suite_open(t, NULL);
        const struct mr_store_timer *timer = suite_get(t, "a", "n");
        assert_true(timer->next_ms > last);
        assert_int_equal(timer->fired, timer->next_ms / STEP_MS - 1);
        check_whole(t, timer->fired);
    }
}

int suite_deaths(const struct suite_engine *engine)
{
    struct CMUnitTest tests[] = {
        SUITE_TEST(test_what_was_answered_outlives_a_kill),
    };
    return SUITE_RUN(engine, "deaths", tests);
}
