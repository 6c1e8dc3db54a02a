/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A process that did not run for longer than its lease (Ctrl-Z, a paused machine) and goes on has
 * lost nothing: a child with an embedded store and a worker is stopped and continued again and
 * again, then asked what became of its task.
 */
#include <ftw.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>
#include <millrace.h>

enum { BEAT_MS = 200, LEASE_MS = 3 * BEAT_MS, STALLS = MR_CRASHES_MAX + 1 };

/* What the child says at the end. */
struct news {
    enum mr_state state;
    uint32_t crashes, retried;
    int runs;
};

struct child {
    int orders, news; /* the child's ends of two pipes */
    _Atomic int runs;
};

static void must(bool fine)
{
    if (!fine)
        _exit(1);
}

/* Tells that it runs, and does so until the parent closes its end. */
static enum mr_outcome run_until_told(struct mr_run *run, void *arg)
{
    struct child *child = arg;
    char byte = 'r';
    if (atomic_fetch_add(&child->runs, 1) == 0) {
        must(write(child->news, &byte, 1) == 1);
        must(read(child->orders, &byte, 1) == 0);
    }
    return mr_run_cancelled(run) ? MR_FAIL : MR_DONE;
}

static _Noreturn void be_child(const char *url, struct child *child)
{
    struct mr_client *client;
    must(mr_client_open(url, NULL, &client, NULL) == MR_OK);
    struct mr_task_options task = {.id = mr_slice_str("t"), .retention_ms = 3600 * 1000};
    struct mr_enqueue_result result;
    must(mr_enqueue(client, &task, 1, &result) == MR_OK && result.err == MR_OK);
    struct mr_worker *worker;
    struct mr_worker_options options = {.slots = 2, .beat_ms = BEAT_MS, .burst = true};
    must(mr_worker_new(client, &options, &worker) == MR_OK);
    must(mr_worker_handle(worker, "*", run_until_told, child) == MR_OK);
    must(mr_worker_run(worker) == MR_OK);
    struct mr_task_list *list;
    must(mr_task_get(client, task.id, &list) == MR_OK);
    const struct mr_task *found = mr_task_list_at(list, 0);
    struct news news = {found->state, found->crashes, found->retried, atomic_load(&child->runs)};
    must(write(child->news, &news, sizeof news) == sizeof news);
    mr_task_list_free(list);
    mr_worker_free(worker);
    mr_client_close(client);
    _exit(0);
}

static void pass_ms(int64_t ms)
{
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};
    while (nanosleep(&left, &left) != 0)
        continue;
}

static int remove_one(const char *path, const struct stat *stat, int flag, struct FTW *ftw)
{
    (void)stat, (void)flag, (void)ftw;
    return remove(path);
}

static void a_worker_that_was_stopped_for_longer_than_its_lease_has_lost_nothing(void **state)
{
    (void)state;
    char dir[] = "/tmp/mr-stall-XXXXXX", url[64];
    int orders[2], reports[2];
    assert_non_null(mkdtemp(dir));
    snprintf(url, sizeof url, "file:%s/store", dir);
    assert_int_equal(pipe(orders), 0);
    assert_int_equal(pipe(reports), 0);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        close(orders[1]);
        be_child(url, &(struct child){.orders = orders[0], .news = reports[1]});
    }
    close(reports[1]);
    char byte;
    assert_int_equal(read(reports[0], &byte, 1), 1);
    for (int i = 0; i < STALLS; i++) {
        assert_int_equal(kill(pid, SIGSTOP), 0);
        pass_ms(2 * LEASE_MS);
        assert_int_equal(kill(pid, SIGCONT), 0);
        pass_ms(BEAT_MS); /* time enough to do the wrong thing */
    }
    close(orders[1]);
    struct news news = {0};
    assert_int_equal(read(reports[0], &news, sizeof news), sizeof news);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(news.state, MR_COMPLETED);
    assert_int_equal(news.crashes, 0);
    assert_int_equal(news.retried, 0);
    assert_int_equal(news.runs, 1);
    nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_worker_that_was_stopped_for_longer_than_its_lease_has_lost_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
