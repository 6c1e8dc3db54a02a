/* SPDX-License-Identifier: Apache-2.0 */
#include "jobs/rig.h"

#include <libpq-fe.h>
#include <sqlite3.h>
#include <stdio.h>
#include <time.h>

#include "base/rand.h"
#include "broker/embedded/embedded.h"
#include "broker/redis/redis.h"
#include "jobs/child.h"
#include "support/look.h"
#include "support/postgres_rig.h"
#include "support/redis_rig.h"
#include "unit/temp_dir.h"
#include "wire/job.h"
#include "worker/worker.h"

const struct mr_slice rig_echo[1] = {{"echo", 4}};

bool rig_full(void)
{
    const char *size = getenv("MR_ACCEPT");
    return size != NULL && strcmp(size, "full") == 0;
}

bool rig_is_shared(void)
{
    const char *on = getenv("MR_JOBS");
    return on != NULL && strcmp(on, "shared") == 0;
}

/* ---- time ------------------------------------------------------------------------------------ */

void rig_sleep_ms(int64_t ms)
{
    struct timespec left = {ms / 1000, ms % 1000 * 1000000};
    (void)nanosleep(&left, NULL);
}

int64_t rig_elapsed_ms(mr_mono since)
{
    return (mr_mono_now(mr_clock_system()).ns - since.ns) / MR_NS_PER_MS;
}

void rig_wait_a_moment(mr_mono since, const char *what, const char *file, int line)
{
    if (!look_again(since, RIG_WAIT_MS)) {
        print_error("waited for %s\n", what);
        _fail(file, line);
    }
}

/* ---- broker and store ------------------------------------------------------------------------ */

static struct postgres_rig *postgres;

void rig_shared_end(void)
{
    postgres_rig_stop(postgres);
    postgres = NULL;
}

void rig_open(struct rig *rig)
{
    struct mr_detail detail = {.text = ""};
    if (child_open(rig->broker_url, rig->store_url, &rig->broker, &rig->store, &detail) != MR_OK)
        fail_msg("%s", detail.text);
}

void rig_close(struct rig *rig)
{
    for (size_t i = 0; i < RIG_SERVICES_MAX; i++)
        rig_unserve(rig, i);
    for (size_t i = 0; i < RIG_WORKERS_MAX; i++)
        rig_unwork(rig, i);
    mr_store_close(rig->store);
    if (rig->broker != NULL)
        mr_broker_close(rig->broker);
    rig->store = NULL;
    rig->broker = NULL;
}

struct rig *rig_make(void)
{
    static unsigned number;
    struct rig *rig = calloc(1, sizeof *rig);
    assert_non_null(rig);
    temp_dir_make(rig->dir);
    mr_lock_init(&rig->lock);
    rig->settings = (struct mr_job_settings){.lease_ms = 1000,
                                             .renew_ms = 250,
                                             .master_ms = 1500,
                                             .look_ms = 100,
                                             .watch_ms = 20,
                                             .commands = true};
    rig->settings.temp_dir = rig->dir;
    if (rig_is_shared()) {
        if (postgres == NULL)
            postgres = postgres_rig_start(NULL);
        snprintf(rig->database, sizeof rig->database, "jobs%u", number++);
        snprintf(rig->store_url, sizeof rig->store_url, "%s",
                 postgres_rig_database(postgres, rig->database));
        rig->redis = redis_rig_standalone(NULL);
        snprintf(rig->broker_url, sizeof rig->broker_url, "%s", redis_rig_url(rig->redis));
    } else {
        snprintf(rig->store_url, sizeof rig->store_url, "sqlite:%s/store.db", rig->dir);
        snprintf(rig->broker_url, sizeof rig->broker_url, "file:%s/broker", rig->dir);
    }
    rig_open(rig);
    return rig;
}

void rig_free(struct rig *rig)
{
    rig_close(rig);
    redis_rig_stop(rig->redis);
    temp_dir_remove(rig->dir);
    mr_lock_done(&rig->lock);
    free(rig->order);
    free(rig);
}

static void sql_sqlite(const char *path, const char *text)
{
    char *message = NULL;
    sqlite3 *db;
    assert_int_equal(sqlite3_open(path, &db), SQLITE_OK);
    (void)sqlite3_busy_timeout(db, RIG_WAIT_MS);
    if (sqlite3_exec(db, text, NULL, NULL, &message) != SQLITE_OK)
        fail_msg("%s: %s", text, message);
    (void)sqlite3_close(db);
}

static void sql_postgres(const char *url, const char *text)
{
    PGconn *conn = PQconnectdb(url);
    PQclear(PQexec(conn, "SET search_path = millrace"));
    PGresult *result = PQexec(conn, text);
    if (PQresultStatus(result) != PGRES_COMMAND_OK && PQresultStatus(result) != PGRES_TUPLES_OK)
        fail_msg("%s: %s", text, PQerrorMessage(conn));
    PQclear(result);
    PQfinish(conn);
}

void rig_sql(struct rig *rig, const char *text)
{
    if (rig_is_shared())
        sql_postgres(rig->store_url, text);
    else
        sql_sqlite(rig->store_url + strlen("sqlite:"), text);
}

/* ---- services -------------------------------------------------------------------------------- */

/* Steps of the service's own thread alone: others are the store's, and of whoever loads. */
static void on_step(enum mr_job_step step, void *arg)
{
    struct rig_freeze *freeze = arg;
    bool own = step >= MR_JOB_STEP_SUBMIT && step <= MR_JOB_STEP_SETTLED;
    while (own && atomic_load(&freeze->wanted)) {
        atomic_store(&freeze->is, true);
        rig_sleep_ms(1);
    }
    if (own)
        atomic_store(&freeze->is, false);
}

void rig_freeze(struct rig *rig, size_t i)
{
    atomic_store(&rig->freezes[i].wanted, true);
    RIG_UNTIL(atomic_load(&rig->freezes[i].is));
}

void rig_thaw(struct rig *rig, size_t i)
{
    atomic_store(&rig->freezes[i].wanted, false);
    RIG_UNTIL(!atomic_load(&rig->freezes[i].is));
}

void rig_serve(struct rig *rig, size_t i)
{
    struct mr_job_service_options options = {.broker = rig->broker,
                                             .store = rig->store,
                                             .node = "rig",
                                             .settings = rig->settings,
                                             .gate = rig->gate,
                                             .step = on_step,
                                             .step_arg = &rig->freezes[i]};
    struct mr_detail detail = {.text = ""};
    assert_null(rig->services[i]);
    if (mr_job_service_open(&options, &rig->services[i], &detail) != MR_OK)
        fail_msg("%s", detail.text);
}

void rig_unserve(struct rig *rig, size_t i)
{
    atomic_store(&rig->freezes[i].wanted, false);
    mr_job_service_close(rig->services[i]);
    rig->services[i] = NULL;
}

static struct mr_job_service *any_service(struct rig *rig)
{
    for (size_t i = 0; i < RIG_SERVICES_MAX; i++) {
        if (rig->services[i] != NULL)
            return rig->services[i];
    }
    fail_msg("no service is there");
    return NULL;
}

void rig_health(struct rig *rig, size_t i, struct mr_job_health *ret_health)
{
    mr_job_service_health(rig->services[i], ret_health);
}

/* ---- workers --------------------------------------------------------------------------------- */

static void note_run(struct rig *rig, const struct mr_task *task)
{
    mr_lock_enter(&rig->lock);
    if (rig->order_len + task->payload.len + 2 > rig->order_cap) {
        rig->order_cap = rig->order_cap * 2 + task->payload.len + 4096;
        rig->order = realloc(rig->order, rig->order_cap);
        assert_non_null(rig->order);
    }
    memcpy(rig->order + rig->order_len, task->payload.data, task->payload.len);
    rig->order_len += task->payload.len;
    rig->order[rig->order_len++] = '\n';
    rig->order[rig->order_len] = '\0';
    mr_lock_leave(&rig->lock);
}

static enum mr_outcome handle(struct mr_run *run, void *arg)
{
    struct rig *rig = arg;
    const struct mr_task *task = mr_run_task(run);
    note_run(rig, task);
    atomic_fetch_add(&rig->runs, 1);
    atomic_fetch_add(&rig->running, 1);
    struct child_orders orders = {.luck = rig->luck, .let_go = &rig->let_go};
    bool stopped = false;
    enum mr_outcome outcome = child_handle(run, &orders, &stopped);
    atomic_fetch_add(&rig->stopped, stopped);
    atomic_fetch_sub(&rig->running, 1);
    return outcome;
}

void rig_work_on(struct rig *rig, size_t i, uint32_t slots, const char *queue)
{
    assert_null(rig->workers[i]);
    rig->workers[i] = child_work(rig->broker, slots, queue, handle, rig);
    assert_non_null(rig->workers[i]);
}

void rig_work(struct rig *rig, size_t i, uint32_t slots)
{
    rig_work_on(rig, i, slots, "default");
}

void rig_unwork(struct rig *rig, size_t i)
{
    mr_worker_free(rig->workers[i]);
    rig->workers[i] = NULL;
}

uint64_t rig_tasks(struct rig *rig, const char *queue, enum mr_state state)
{
    struct mr_queue_info info;
    struct mr_req_queue_list req = {
        .req.op = MR_OP_QUEUE_LIST, .only = mr_slice_str(queue), .infos = &info, .max = 1};
    enum mr_err err = mr_broker_call(rig->broker, &req.req);
    uint64_t n = err == MR_OK && req.n == 1 ? info.counts[state] : 0;
    if (state == MR_STATE_NONE && err == MR_OK && req.n == 1)
        n = info.counts[MR_PENDING] + info.counts[MR_ACTIVE];
    assert_true(err == MR_OK || err == MR_NOT_FOUND);
    mr_req_done(&req.req);
    return n;
}

/* ---- loading --------------------------------------------------------------------------------- */

struct mr_job_load *rig_load_begin(struct rig *rig, const struct mr_job_options *job)
{
    struct mr_buf definition = {0};
    struct mr_detail detail = {.text = ""};
    struct mr_job_load *load;
    assert_int_equal(mr_job_encode(job, &definition), MR_OK);
    struct mr_job_load_options options = {.definition = mr_buf_slice(&definition)};
    if (mr_job_load_new(any_service(rig), &options, &load, &detail) != MR_OK)
        fail_msg("%s", detail.text);
    mr_buf_done(&definition);
    return load;
}

static void load_end(struct mr_job_load *load, size_t n, char id[RIG_ID_MAX])
{
    struct mr_detail detail = {.text = ""};
    const struct mr_job_shown *shown;
    if (mr_job_load_commit_wait(load, &shown, &detail) != MR_OK)
        fail_msg("%s", detail.text);
    assert_int_equal(shown->info.total, n);
    snprintf(id, RIG_ID_MAX, "%s", mr_job_load_id(load));
    mr_job_load_free(load);
}

void rig_load(struct rig *rig, const struct mr_job_options *job, const char *format, size_t n,
              char id[RIG_ID_MAX])
{
    struct mr_job_load *load = rig_load_begin(rig, job);
    if (child_add(load, format, 0, n) != MR_OK)
        fail_msg("parts could not be added");
    load_end(load, n, id);
}

void rig_load_parts(struct rig *rig, const struct mr_job_options *job, const struct mr_slice *parts,
                    size_t n, char id[RIG_ID_MAX])
{
    struct mr_job_load *load = rig_load_begin(rig, job);
    struct mr_detail detail = {.text = ""};
    if (mr_job_load_add_wait(load, parts, n, &detail) != MR_OK)
        fail_msg("%s", detail.text);
    load_end(load, n, id);
}

/* ---- looking --------------------------------------------------------------------------------- */

struct rig_job rig_job(struct rig *rig, const char *id)
{
    struct mr_job_ask ask = {.kind = MR_JOB_GET, .id = mr_slice_str(id)};
    struct rig_job job = {.state = MR_JOB_STATE_NONE};
    enum mr_err err = mr_job_service_ask_wait(any_service(rig), &ask);
    if (err == MR_OK) {
        const struct mr_job_info *info = &ask.jobs[0].info;
        job = (struct rig_job){.state = info->state,
                               .reducing = info->reducing,
                               .version = info->version,
                               .total = info->total,
                               .done = info->done,
                               .failed = info->failed,
                               .running = info->running,
                               .first_segment = info->first_segment,
                               .last_segment = info->last_segment,
                               .result_bytes = info->result_bytes,
                               .round = info->round,
                               .stages_n = info->stages_n};
        memcpy(job.stages, info->stages, info->stages_n * sizeof *info->stages);
        snprintf(job.reason, sizeof job.reason, "%.*s", (int)info->reason.len,
                 (const char *)info->reason.data);
    }
    mr_job_ask_done(&ask);
    if (err != MR_OK && err != MR_NOT_FOUND)
        fail_msg("%s: %s", id, mr_err_text(err));
    return job;
}

enum mr_job_state rig_state(struct rig *rig, const char *id)
{
    return rig_job(rig, id).state;
}

uint64_t rig_ended(struct rig *rig, const char *id)
{
    struct rig_job job = rig_job(rig, id);
    return job.done + job.failed;
}

void rig_await_end(struct rig *rig, const char *id)
{
    mr_mono since = mr_mono_now(mr_clock_system());
    for (struct rig_job job, last = {.version = 0};; last = job) {
        job = rig_job(rig, id);
        if (rig_is_end(job.state))
            return;
        if (job.version != last.version)
            since = mr_mono_now(mr_clock_system());
        if (rig_elapsed_ms(since) > look_most_ms(RIG_WAIT_MS))
            fail_msg("%s does not go on: %llu of %llu, %llu running", id,
                     (unsigned long long)job.done, (unsigned long long)job.total,
                     (unsigned long long)job.running);
        rig_sleep_ms(5);
    }
}

size_t rig_jobs(struct rig *rig)
{
    struct mr_job_ask ask = {.kind = MR_JOB_LIST, .limit = MR_BATCH_MAX};
    assert_int_equal(mr_job_service_ask_wait(any_service(rig), &ask), MR_OK);
    size_t n = ask.jobs_n;
    mr_job_ask_done(&ask);
    return n;
}

enum mr_err rig_act(struct rig *rig, enum mr_job_ask_kind kind, const char *id)
{
    struct mr_job_ask ask = {.kind = kind, .id = mr_slice_str(id)};
    enum mr_err err = mr_job_service_ask_wait(any_service(rig), &ask);
    mr_job_ask_done(&ask);
    return err;
}

void rig_result(struct rig *rig, const char *id, struct mr_buf *ret_result)
{
    bool more = true;
    for (uint32_t seq = 0; more; seq++) {
        struct mr_job_ask ask = {.kind = MR_JOB_RESULT, .id = mr_slice_str(id), .seq = seq};
        enum mr_err err = mr_job_service_ask_wait(any_service(rig), &ask);
        if (err != MR_OK)
            fail_msg("%s: %s", id, mr_err_text(err));
        assert_int_equal(mr_buf_append(ret_result, ask.bytes.data, ask.bytes.len), MR_OK);
        more = ask.more;
        mr_job_ask_done(&ask);
    }
}

void rig_check_result(struct rig *rig, const char *id, const char *format, size_t n)
{
    struct mr_buf result = {0};
    size_t at = 0;
    struct rig_job job = rig_job(rig, id);
    if (job.state != MR_JOB_SUCCEEDED)
        fail_msg("%s: state %d, %s", id, job.state, job.reason);
    assert_int_equal(job.done, n);
    assert_int_equal(job.failed, 0);
    rig_result(rig, id, &result);
    for (size_t i = 0; i < n; i++) {
        char part[CHILD_PART_MAX];
        size_t len = child_part(format, i, part);
        if (at + len > result.len || memcmp(result.data + at, part, len) != 0)
            fail_msg("%s: part %zu is not in its place of the result", id, i);
        at += len;
    }
    assert_int_equal(at, result.len);
    assert_int_equal(job.result_bytes, result.len);
    mr_buf_done(&result);
}

size_t rig_parts(struct rig *rig, const char *id, enum mr_part_state state)
{
    size_t n = 0;
    char next[MR_JOB_CURSOR_MAX] = "";
    do {
        struct mr_job_ask ask = {.kind = MR_JOB_PARTS,
                                 .id = mr_slice_str(id),
                                 .states = 1u << state,
                                 .limit = MR_BATCH_MAX,
                                 .cursor = mr_slice_str(next)};
        assert_int_equal(mr_job_service_ask_wait(any_service(rig), &ask), MR_OK);
        n += ask.parts_n;
        memcpy(next, ask.next, sizeof next);
        mr_job_ask_done(&ask);
    } while (next[0] != '\0');
    return n;
}

void rig_segments(struct rig *rig, uint64_t *ret_begin, uint64_t *ret_end)
{
    struct mr_store_segments req = {.req.op = MR_STORE_SEGMENTS, .max = 100};
    assert_int_equal(mr_store_call(rig->store, &req.req), MR_OK);
    *ret_begin = req.begin;
    *ret_end = req.end;
    mr_store_req_done(&req.req);
}

/* ---- watching -------------------------------------------------------------------------------- */

static void say_fault(struct rig_watch *w, const char *what, uint64_t was, uint64_t is)
{
    if (w->fault[0] == '\0')
        snprintf(w->fault, sizeof w->fault, "%s: %llu, then %llu", what, (unsigned long long)was,
                 (unsigned long long)is);
}

static void on_event(struct mr_job_event *event, void *arg)
{
    struct rig_watch *w = arg;
    const struct mr_job_info *info = &event->job.info;
    uint64_t ended = info->done + info->failed;
    mr_lock_enter(&w->lock);
    if (w->over)
        say_fault(w, "an event after the end", w->version, info->version);
    if (w->events > 0 && info->version != w->version + 1)
        say_fault(w, "version", w->version, info->version);
    if (ended < w->last_ended)
        say_fault(w, "ended", w->last_ended, ended);
    if (ended > info->total)
        say_fault(w, "more have ended than there are", info->total, ended);
    for (size_t i = 0; i < info->stages_n; i++) {
        uint64_t stage = info->stages[i].done + info->stages[i].failed;
        if (stage < w->seen[i])
            say_fault(w, "stage", w->seen[i], stage);
        w->seen[i] = stage;
    }
    if (w->events == w->remaining_cap) {
        w->remaining_cap = w->remaining_cap * 2 + 256;
        w->remaining = realloc(w->remaining, w->remaining_cap * sizeof *w->remaining);
    }
    w->remaining[w->events] = info->total - ended;
    w->first = w->events == 0 ? info->version : w->first;
    w->version = info->version;
    w->last_ended = ended;
    w->total = info->total;
    w->state = info->state;
    w->events++;
    mr_lock_leave(&w->lock);
}

static void on_ended(enum mr_err err, void *arg)
{
    struct rig_watch *w = arg;
    mr_lock_enter(&w->lock);
    w->over = true;
    w->err = err;
    mr_lock_leave(&w->lock);
}

struct rig_watch *rig_watch(struct rig *rig, size_t service, const char *id, uint64_t after)
{
    struct rig_watch *w = calloc(1, sizeof *w);
    assert_non_null(w);
    mr_lock_init(&w->lock);
    struct mr_job_watch_options options = {
        .id = mr_slice_str(id), .after = after, .event = on_event, .ended = on_ended, .arg = w};
    assert_int_equal(mr_job_service_watch(rig->services[service], &options, &w->watch), MR_OK);
    return w;
}

bool rig_watch_is_over(struct rig_watch *w)
{
    mr_lock_enter(&w->lock);
    bool over = w->over;
    mr_lock_leave(&w->lock);
    return over;
}

void rig_watch_await_end(struct rig_watch *w)
{
    RIG_UNTIL(rig_watch_is_over(w));
    if (w->fault[0] != '\0')
        fail_msg("%s", w->fault);
    assert_int_equal(w->err, MR_OK);
}

void rig_watch_free(struct rig_watch *w)
{
    mr_job_watch_free(w->watch);
    mr_lock_done(&w->lock);
    free(w->remaining);
    free(w);
}
