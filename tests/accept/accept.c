/* SPDX-License-Identifier: Apache-2.0 */
/* The life of a test, waiting, and what a test does with tasks. */
#include "accept/accept.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "support/look.h"

enum { QUEUES_MAX = 128, SEGMENT_BYTES = 4 * 1024 * 1024 };

/* ---- running -------------------------------------------------------------------------------- */

size_t accept_size(size_t full, size_t small)
{
    const char *size = getenv("MR_ACCEPT");
    return size && strcmp(size, "full") == 0 ? full : small;
}

int accept_run_part(const struct accept_engine *engine, const char *part, struct CMUnitTest *tests,
                    size_t n)
{
    char name[64];
    (void)snprintf(name, sizeof name, "%s %s", engine->name, part);
    for (size_t i = 0; i < n; i++)
        tests[i].initial_state = (void *)(uintptr_t)engine;
    return _cmocka_run_group_tests(name, tests, n, NULL, NULL);
}

static void make_audit(struct accept *t)
{
    const char *tmp = getenv("TMPDIR");
    (void)snprintf(t->audit, sizeof t->audit, "%s/millrace-audit-XXXXXX", tmp ? tmp : "/tmp");
    t->audit_fd = mkostemp(t->audit, O_CLOEXEC | O_APPEND);
    assert_true(t->audit_fd >= 0);
    char told[MR_PATH_MAX + 8];
    (void)snprintf(told, sizeof told, "%s.told", t->audit);
    t->told_fd = open(told, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    assert_true(t->told_fd >= 0);
}

static void remove_audit(struct accept *t)
{
    static const char *const ends[] = {"", ".told", ".figures", ".bosses"};
    char path[MR_PATH_MAX + 16];
    (void)close(t->audit_fd);
    (void)close(t->told_fd);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        (void)snprintf(path, sizeof path, "%s%s", t->audit, ends[i]);
        (void)unlink(path);
    }
}

int accept_setup(void **state)
{
    struct accept *t = calloc(1, sizeof *t);
    assert_non_null(t);
    t->engine = *state;
    *state = t;
    mr_lock_init(&t->lock);
    make_audit(t);
    (void)accept_place_more(t);
    accept_open(t);
    return 0;
}

int accept_teardown(void **state)
{
    struct accept *t = *state;
    atomic_store(&t->hold, false);
    while (t->workers_n > 0)
        accept_dismiss(t, t->workers[t->workers_n - 1]);
    for (size_t i = 0; i < ACCEPT_PROCESSES_MAX; i++)
        accept_kill_process(t, t->processes[i]);
    if (!t->client)
        accept_open(t);
    accept_conserve(t);
    accept_close(t);
    for (size_t i = 0; i < t->places_n; i++)
        t->engine->stop(&t->place[i]);
    remove_audit(t);
    mr_lock_done(&t->lock);
    free(t->ids);
    free(t->requeued);
    free(t);
    return 0;
}

struct accept_place *accept_place_more(struct accept *t)
{
    assert_true(t->places_n < ACCEPT_PLACES_MAX);
    struct accept_place *place = &t->place[t->places_n];
    t->engine->start(place);
    t->places_n++;
    return place;
}

struct mr_client *accept_open_at(struct accept_place *place, const char *namespace_)
{
    struct mr_client_options options = {.namespace_ = mr_slice_str(namespace_),
                                        .segment_bytes = SEGMENT_BYTES};
    struct mr_detail detail = {.text = ""};
    struct mr_client *client = NULL;
    enum mr_err err = mr_client_open(place->url, &options, &client, &detail);
    if (err != MR_OK)
        fail_msg("%s: %s: %s", place->url, mr_err_name(err), detail.text);
    return client;
}

void accept_open(struct accept *t)
{
    t->client = accept_open_at(&t->place[0], "");
}

void accept_close(struct accept *t)
{
    mr_client_close(t->client);
    t->client = NULL;
}

/* ---- waiting -------------------------------------------------------------------------------- */

mr_mono accept_now(void)
{
    return mr_mono_now(mr_clock_system());
}

int64_t accept_since_ms(mr_mono since)
{
    return (accept_now().ns - since.ns) / MR_NS_PER_MS;
}

int64_t accept_wall_ms(void)
{
    return mr_wall_ms(mr_wall_now(mr_clock_system()));
}

void accept_pass_ms(int64_t ms)
{
    mr_mono end = mr_mono_add_ms(accept_now(), ms);
    while (accept_now().ns < end.ns)
        (void)poll(NULL, 0, 1 + (int)((end.ns - accept_now().ns) / MR_NS_PER_MS));
}

void accept_look_again(mr_mono since, const char *what, const char *file, int line)
{
    if (!look_again(since, ACCEPT_WAIT_MS)) {
        print_error("waited in vain for: %s\n", what);
        _fail(file, line);
    }
}

void accept_assert_err(enum mr_err actual, enum mr_err expected, const char *what, const char *file,
                       int line)
{
    if (actual == expected)
        return;
    print_error("%s: %s, expected %s\n", what, mr_err_name(actual), mr_err_name(expected));
    _fail(file, line);
}

/* ---- tasks ---------------------------------------------------------------------------------- */

const char *accept_remember(struct accept *t, const char *id)
{
    static char recent[64][MR_ID_MAX + 1]; /* the table of ids moves when it grows */
    static size_t at;
    mr_lock_enter(&t->lock);
    if (t->ids_n == t->ids_max) {
        t->ids_max = t->ids_max ? 2 * t->ids_max : 1024;
        t->ids = realloc(t->ids, t->ids_max * sizeof *t->ids);
        assert_non_null(t->ids);
    }
    (void)snprintf(t->ids[t->ids_n++], sizeof *t->ids, "%s", id);
    char *copy = recent[at++ % 64];
    (void)snprintf(copy, sizeof *recent, "%s", id);
    mr_lock_leave(&t->lock);
    return copy;
}

struct mr_enqueue_result accept_try(struct accept *t, struct mr_task_options options)
{
    struct mr_enqueue_result result = {0};
    options.retention_ms = ACCEPT_RETENTION_MS;
    enum mr_err err = mr_enqueue(t->client, &options, 1, &result);
    assert_int_equal(err == MR_OK, result.err == MR_OK || err == MR_OK);
    return result;
}

static struct mr_slice text(const char *or_null)
{
    return mr_slice_str(or_null ? or_null : "");
}

static struct mr_task_options options_of(const struct accept_task *task)
{
    return (struct mr_task_options){.queue = text(task->queue),
                                    .type = text(task->type ? task->type : "echo"),
                                    .payload = text(task->payload),
                                    .id = text(task->id),
                                    .topic = text(task->topic),
                                    .priority_s = task->priority_s,
                                    .delay_ms = task->delay_ms,
                                    .timeout_ms = task->timeout_ms,
                                    .max_retry = task->max_retry,
                                    .retention_ms = task->unkept ? 0 : ACCEPT_RETENTION_MS};
}

const char *accept_put(struct accept *t, const struct accept_task *task)
{
    struct mr_enqueue_result result = accept_try(t, options_of(task));
    assert_err(result.err, MR_OK);
    return accept_remember(t, result.id);
}

void accept_put_many(struct accept *t, const char *prefix, size_t n, const struct accept_task *task)
{
    struct mr_task_options *options = calloc(MR_BATCH_MAX, sizeof *options);
    struct mr_enqueue_result *results = calloc(MR_BATCH_MAX, sizeof *results);
    char(*ids)[MR_ID_MAX + 1] = calloc(MR_BATCH_MAX, sizeof *ids);
    assert_true(options && results && ids);
    for (size_t done = 0, now; done < n; done += now) {
        now = n - done < MR_BATCH_MAX ? n - done : MR_BATCH_MAX;
        for (size_t i = 0; i < now; i++) {
            (void)snprintf(ids[i], sizeof ids[i], "%s%zu", prefix, done + i);
            options[i] = options_of(task);
            options[i].id = mr_slice_str(ids[i]);
        }
        assert_err(mr_enqueue(t->client, options, now, results), MR_OK);
        for (size_t i = 0; i < now; i++) {
            assert_err(results[i].err, MR_OK);
            if (task->unkept)
                t->unkept++;
            else
                (void)accept_remember(t, results[i].id);
        }
    }
    free(options);
    free(results);
    free(ids);
}

struct mr_task_list *accept_get(struct accept *t, const char *id)
{
    struct mr_task_list *list = NULL;
    enum mr_err err = mr_task_get(t->client, mr_slice_str(id), &list);
    assert_true(err == MR_OK || err == MR_NOT_FOUND);
    return list;
}

enum mr_state accept_state(struct accept *t, const char *id)
{
    struct mr_task_list *list = accept_get(t, id);
    enum mr_state state = list ? mr_task_list_at(list, 0)->state : MR_STATE_NONE;
    mr_task_list_free(list);
    return state;
}

enum mr_err accept_act(struct accept *t, enum mr_verb verb, const char *id, double value)
{
    struct mr_control item = {.verb = verb, .id = mr_slice_str(id), .value = value};
    enum mr_err err = MR_FAILED;
    assert_err(mr_control(t->client, &item, 1, &err), MR_OK);
    if (verb == MR_VERB_DELETE && err == MR_OK)
        t->deleted++;
    return err;
}

struct mr_queue_info accept_queue(struct accept *t, const char *queue)
{
    struct mr_queue_info info = {0};
    enum mr_err err = mr_queue_get(t->client, mr_slice_str(queue), &info);
    assert_true(err == MR_OK || err == MR_NOT_FOUND);
    return info;
}

uint64_t accept_count(struct accept *t, const char *queue, enum mr_state state)
{
    return accept_queue(t, queue).counts[state];
}

void accept_await_echo(struct accept *t, const char *id)
{
    struct mr_task_list *list = NULL;
    assert_err(mr_task_wait(t->client, mr_slice_str(id), ACCEPT_WAIT_MS, &list), MR_OK);
    const struct mr_task *task = mr_task_list_at(list, 0);
    assert_int_equal(task->state, MR_COMPLETED);
    assert_int_equal(task->result.len, task->payload.len);
    assert_memory_equal(task->result.data, task->payload.data, task->payload.len);
    mr_task_list_free(list);
}

uint64_t accept_total(struct accept *t, enum mr_state state)
{
    struct mr_queue_info *infos = calloc(QUEUES_MAX, sizeof *infos);
    size_t n = 0;
    uint64_t total = 0;
    assert_non_null(infos);
    assert_err(mr_queue_list(t->client, NULL, infos, QUEUES_MAX, &n), MR_OK);
    for (size_t i = 0; i < n; i++)
        total += infos[i].counts[state];
    free(infos);
    return total;
}

static void requeue_quarantined(struct accept *t)
{
    struct mr_list_options options = {.state = MR_ARCHIVED, .limit = MR_BATCH_MAX};
    struct mr_task_list *list = NULL;
    if (accept_total(t, MR_ARCHIVED) == 0)
        return;
    assert_err(mr_task_list_get(t->client, &options, &list), MR_OK);
    for (size_t i = 0; i < mr_task_list_count(list); i++) {
        const struct mr_task *task = mr_task_list_at(list, i);
        char id[MR_ID_MAX + 1];
        (void)snprintf(id, sizeof id, "%.*s", (int)task->id.len, (const char *)task->id.data);
        assert_int_equal(task->crashes, MR_CRASHES_MAX);
        assert_err(accept_act(t, MR_VERB_RUN, id, 0), MR_OK);
        t->requeued = realloc(t->requeued, (t->requeued_n + 1) * sizeof *t->requeued);
        assert_non_null(t->requeued);
        memcpy(t->requeued[t->requeued_n++], id, sizeof id);
    }
    mr_task_list_free(list);
}

bool accept_all_completed(struct accept *t)
{
    struct mr_stats stats;
    requeue_quarantined(t);
    assert_err(mr_stats_get(t->client, &stats), MR_OK);
    return accept_total(t, MR_COMPLETED) == t->ids_n && stats.tasks == t->ids_n;
}
