/* SPDX-License-Identifier: Apache-2.0 */
#include "jobs/child.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/rand.h"
#include "broker/embedded/embedded.h"
#include "broker/redis/redis.h"
#include "jobs/rig.h"
#include "wire/job.h"

#define FILE_SCHEME "file:"

enum { ADD_AT_ONCE = 100, NUMBERS = 8, TEXT_MAX = 32 };

enum mr_err child_open(const char *broker_url, const char *store_url, struct mr_broker **ret_broker,
                       struct mr_store **ret_store, struct mr_detail *detail)
{
    struct mr_store_options store = {.url = store_url};
    if (strncmp(broker_url, FILE_SCHEME, strlen(FILE_SCHEME)) == 0) {
        struct mr_embedded_options embedded = {.dir = broker_url + strlen(FILE_SCHEME),
                                               .segment_bytes = 8 * 1024 * 1024};
        MR_TRY(mr_embedded_open(&embedded, ret_broker, detail));
    } else {
        struct mr_redis_broker_options redis = {.url = broker_url};
        MR_TRY(mr_redis_broker_open(&redis, ret_broker, detail));
    }
    return mr_store_open(&store, ret_store, detail);
}

struct mr_worker *child_work(struct mr_broker *broker, uint32_t slots, const char *queue,
                             mr_handler *handler, void *arg)
{
    static const int64_t levels_ms[] = {10, 20, 40};
    struct mr_worker_queue queues = {.name = mr_slice_str(queue)};
    struct mr_worker_options options = {.queues = &queues,
                                        .queues_n = 1,
                                        .slots = slots,
                                        .beat_ms = 500,
                                        .retry_levels_ms = levels_ms,
                                        .retry_levels_n = 3,
                                        .drain_ms = 1000};
    struct mr_worker *worker;
    if (mr_worker_new_on(broker, &options, &worker) != MR_OK)
        return NULL;
    if (mr_worker_handle(worker, "*", handler, arg) == MR_OK && mr_worker_start(worker) == MR_OK)
        return worker;
    mr_worker_free(worker);
    return NULL;
}

size_t child_part(const char *format, size_t i, char part[CHILD_PART_MAX])
{
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    int len = snprintf(part, CHILD_PART_MAX, format, i);
#pragma GCC diagnostic pop
    assert_true(len > 0 && len < CHILD_PART_MAX);
    return (size_t)len;
}

enum mr_err child_add(struct mr_job_load *load, const char *format, size_t from, size_t to)
{
    char texts[ADD_AT_ONCE][CHILD_PART_MAX];
    struct mr_slice parts[ADD_AT_ONCE];
    while (from < to) {
        size_t n = to - from < ADD_AT_ONCE ? to - from : ADD_AT_ONCE;
        for (size_t i = 0; i < n; i++)
            parts[i] = mr_slice_make(texts[i], child_part(format, from + i, texts[i]));
        MR_TRY(mr_job_load_add_wait(load, parts, n, NULL));
        from += n;
    }
    return MR_OK;
}

/* ---- runs ------------------------------------------------------------------------------------ */

static enum mr_outcome put_result(struct mr_run *run)
{
    const struct mr_task *task = mr_run_task(run);
    bool echo = mr_slice_equal(task->type, MR_SLICE_LIT("echo"));
    enum mr_err err = MR_OK;
    if (!echo) {
        err = mr_run_result(run, task->type);
        err = err == MR_OK ? mr_run_result(run, MR_SLICE_LIT("(")) : err;
    }
    err = err == MR_OK ? mr_run_result(run, task->payload) : err;
    if (!echo && err == MR_OK)
        err = mr_run_result(run, MR_SLICE_LIT(")"));
    return err == MR_OK ? MR_DONE : MR_FAIL_FOR_GOOD;
}

static bool is_second(struct mr_slice id)
{
    return id.len > 2 && memcmp((const char *)id.data + id.len - 2, ".1", 2) == 0;
}

enum mr_outcome child_handle(struct mr_run *run, const struct child_orders *orders,
                             bool *ret_stopped)
{
    const struct mr_task *task = mr_run_task(run);
    int number = 0;
    char payload[64];
    snprintf(payload, sizeof payload, "%.*s", (int)task->payload.len,
             (const char *)task->payload.data);
    if (strncmp(payload, "hold", 4) == 0) {
        while (orders->let_go != NULL && !atomic_load(orders->let_go) && !*ret_stopped)
            *ret_stopped = mr_run_wait_cancelled(run, 5);
    } else if ((sscanf(payload, "sleep %d", &number) == 1 ||
                sscanf(payload, "slow %d", &number) == 1) &&
               !is_second(task->id)) {
        *ret_stopped = mr_run_wait_cancelled(run, number);
    }
    bool fails = sscanf(payload, "fail %d", &number) == 1 && (int)task->attempt <= number;
    if (strcmp(payload, "fail") == 0 || (strncmp(payload, "slow", 4) == 0 && is_second(task->id))) {
        mr_run_error(run, "as told");
        return MR_FAIL_FOR_GOOD;
    }
    if (orders->luck > 0 && mr_rand_below(mr_rand_of_thread(), 100) < orders->luck)
        fails = true;
    if (fails)
        mr_run_error(run, "as told");
    return fails || *ret_stopped ? MR_FAIL : put_result(run);
}

/* ---- the test's side ------------------------------------------------------------------------- */

void child_start(struct child *child)
{
    char numbers[NUMBERS][TEXT_MAX];
    const uint64_t values[NUMBERS] = {child->slots,         child->serves,     child->step,
                                      child->times,         child->load,       child->luck,
                                      child->segment_parts, child->retry_parts};
    int ends[2];
    for (size_t i = 0; i < NUMBERS; i++)
        snprintf(numbers[i], sizeof numbers[i], "%llu", (unsigned long long)values[i]);
    assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
    child->pid = fork();
    assert_true(child->pid >= 0);
    if (child->pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)dup2(ends[1], STDOUT_FILENO);
        execl("/proc/self/exe", "jobs", "--child", child->broker_url, child->store_url, numbers[0],
              numbers[1], numbers[2], numbers[3], numbers[4], numbers[5], numbers[6], numbers[7],
              (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    child->output = ends[0];
}

static void buried(struct child *child, int status)
{
    close(child->output);
    child->pid = 0;
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL)
        fail_msg("the child ended by itself: status %x", (unsigned)status);
}

bool child_is_dead(struct child *child)
{
    int status;
    if (child->pid == 0)
        return true;
    pid_t pid = waitpid(child->pid, &status, WNOHANG);
    assert_true(pid >= 0);
    if (pid == 0)
        return false;
    buried(child, status);
    return true;
}

void child_await_death(struct child *child)
{
    RIG_UNTIL(child_is_dead(child));
}

void child_kill(struct child *child)
{
    int status;
    if (child->pid == 0)
        return;
    (void)kill(child->pid, SIGKILL);
    assert_int_equal(waitpid(child->pid, &status, 0), child->pid);
    buried(child, status);
}

bool child_loaded(struct child *child, int ms)
{
    struct pollfd polled = {.fd = child->output, .events = POLLIN};
    char byte;
    return poll(&polled, 1, ms) == 1 && read(child->output, &byte, 1) == 1;
}

/* ---- the child's ----------------------------------------------------------------------------- */

static struct child self;
static _Atomic unsigned steps;

static void on_step(enum mr_job_step step, void *arg)
{
    (void)arg;
    if (self.times > 0 && step == self.step && atomic_fetch_add(&steps, 1) + 1 == self.times)
        (void)kill(getpid(), SIGKILL);
}

static enum mr_outcome on_run(struct mr_run *run, void *arg)
{
    struct child_orders orders = {.luck = self.luck};
    bool stopped = false;
    (void)arg;
    return child_handle(run, &orders, &stopped);
}

static enum mr_err load_job(struct mr_job_service *service)
{
    struct mr_job_options job = {.stages = rig_echo, .stages_n = 1};
    struct mr_buf definition = {0};
    struct mr_job_load *load;
    MR_TRY(mr_job_encode(&job, &definition));
    struct mr_job_load_options options = {.definition = mr_buf_slice(&definition)};
    MR_TRY(mr_job_load_new(service, &options, &load, NULL));
    mr_buf_done(&definition);
    enum mr_err err = child_add(load, "part %zu\n", 0, self.load);
    if (err == MR_OK)
        err = mr_job_load_commit_wait(load, NULL, NULL);
    mr_job_load_free(load);
    return err;
}

static void read_arguments(char **argv)
{
    self.broker_url = argv[2];
    self.store_url = argv[3];
    self.slots = (uint32_t)strtoul(argv[4], NULL, 10);
    self.serves = strtoul(argv[5], NULL, 10) != 0;
    self.step = (enum mr_job_step)strtoul(argv[6], NULL, 10);
    self.times = (unsigned)strtoul(argv[7], NULL, 10);
    self.load = strtoul(argv[8], NULL, 10);
    self.luck = (unsigned)strtoul(argv[9], NULL, 10);
    self.segment_parts = (uint32_t)strtoul(argv[10], NULL, 10);
    self.retry_parts = (uint32_t)strtoul(argv[11], NULL, 10);
}

int child_main(int argc, char **argv)
{
    struct mr_broker *broker;
    struct mr_store *store;
    struct mr_job_service *service = NULL;
    if (argc != 12)
        return 2;
    read_arguments(argv);
    if (child_open(self.broker_url, self.store_url, &broker, &store, NULL) != MR_OK)
        return 3;
    struct mr_job_service_options options = {
        .broker = broker,
        .store = store,
        .settings = {.lease_ms = 1000,
                     .renew_ms = 250,
                     .master_ms = 1500,
                     .look_ms = 100,
                     .segment_parts = self.segment_parts,
                     .retry_parts = self.retry_parts},
        .looks = !self.serves,
        .step = on_step,
    };
    if (mr_job_service_open(&options, &service, NULL) != MR_OK)
        return 4;
    if (self.slots > 0 && child_work(broker, self.slots, "default", on_run, NULL) == NULL)
        return 5;
    if (self.load > 0 && (load_job(service) != MR_OK || write(STDOUT_FILENO, "+", 1) != 1))
        return 6;
    for (;;) /* until it is killed */
        (void)pause();
}
