/* SPDX-License-Identifier: Apache-2.0 */
/* The public calls on the embedded engine, in a folder of their own per test. */
#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <millrace.h>

#include "base/chan.h"
#include "base/diag.h"
#include "client/client.h"

struct world {
    char dir[64];
    char url[80];
    struct mr_client *client;
    struct mr_detail detail;
};

static void quiet(enum mr_diag_level level, const char *line, void *arg)
{
    (void)level, (void)line, (void)arg;
}

/* Small segments keep a test's folder small. */
static const struct mr_client_options small = {.segment_bytes = 4 * 1024 * 1024};

static void open_client(struct world *world)
{
    enum mr_err err = mr_client_open(world->url, &small, &world->client, &world->detail);
    if (err != MR_OK)
        print_error("%s\n", world->detail.text);
    assert_int_equal(err, MR_OK);
}

static int make_world(void **state)
{
    struct world *world = calloc(1, sizeof *world);
    assert_non_null(world);
    mr_diag_set_sink(quiet, NULL);
    memcpy(world->dir, "/tmp/mr-client-XXXXXX", sizeof "/tmp/mr-client-XXXXXX");
    assert_non_null(mkdtemp(world->dir));
    snprintf(world->url, sizeof world->url, "file:%s/store", world->dir);
    open_client(world);
    *state = world;
    return 0;
}

static int remove_one(const char *path, const struct stat *stat, int flag, struct FTW *ftw)
{
    (void)stat, (void)flag, (void)ftw;
    return remove(path);
}

static int end_world(void **state)
{
    struct world *world = *state;
    mr_client_close(world->client);
    nftw(world->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    free(world);
    return 0;
}

static struct mr_slice s(const char *text)
{
    return mr_slice_str(text);
}

static struct mr_enqueue_result add(struct world *world, struct mr_task_options task)
{
    struct mr_enqueue_result result;
    assert_int_equal(mr_enqueue(world->client, &task, 1, &result), MR_OK);
    return result;
}

static enum mr_state state_of(struct world *world, const char *id)
{
    struct mr_task_list *list;
    enum mr_err err = mr_task_get(world->client, s(id), &list);
    if (err == MR_NOT_FOUND)
        return MR_STATE_NONE;
    assert_int_equal(err, MR_OK);
    enum mr_state state = mr_task_list_at(list, 0)->state;
    mr_task_list_free(list);
    return state;
}

static enum mr_err control(struct world *world, enum mr_verb verb, const char *id, double value)
{
    struct mr_control item = {.verb = verb, .id = s(id), .value = value};
    enum mr_err err;
    assert_int_equal(mr_control(world->client, &item, 1, &err), MR_OK);
    return err;
}

/* ---- URLs ----------------------------------------------------------------------------------- */

static void a_url_names_a_folder(void **state)
{
    (void)state;
    char dir[MR_PATH_MAX];
    assert_int_equal(mr_url_dir("file:data", (struct mr_slice){0}, dir, NULL), MR_OK);
    assert_string_equal(dir, "data");
    assert_int_equal(mr_url_dir("file:data", s("blue"), dir, NULL), MR_OK);
    assert_string_equal(dir, "data/ns-blue");
}

static void options_of_a_server_must_make_sense(void **state)
{
    (void)state;
    const struct {
        const char *url;
        struct mr_client_options options;
    } rows[] = {
        {"millrace://127.0.0.1:1", {.token = "two words"}},
        {"millrace://127.0.0.1:1", {.token = "line\n"}},
        {"millrace://127.0.0.1:1", {.tls_ca = "ca.pem"}},
        {"millraces://127.0.0.1:1", {.tls_cert = "cert.pem"}},
        {"millraces://127.0.0.1:1", {.tls_key = "key.pem"}},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct mr_client *client = NULL;
        struct mr_detail detail = {.text = ""};
        assert_int_equal(mr_client_open(rows[i].url, &rows[i].options, &client, &detail),
                         MR_INVALID);
        assert_null(client);
        assert_true(detail.text[0] != '\0');
        assert_null(strstr(detail.text, "words"));
    }
}

static void a_url_is_shown_without_its_password(void **state)
{
    static const struct {
        const char *url, *shown;
    } rows[] = {
        {"redis://mill:hunter2@cache:6379/0", "redis://***@cache:6379/0"},
        {"redis://:p@ss/w@cache", "redis://***@cache"},
        {"redis+sentinel://u:p@a:1,b:2/m", "redis+sentinel://***@a:1,b:2/m"},
        {"millrace://127.0.0.1:7401", "millrace://127.0.0.1:7401"},
        {"file:/a//b@c", "file:/a//b@c"},
        {"", ""},
    };
    char text[MR_URL_SHOWN_MAX];
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_string_equal(mr_url_shown(rows[i].url, text), rows[i].shown);
}

static void a_redis_that_is_not_there_is_told_without_its_password(void **state)
{
    struct mr_client_options options = {.open_ms = 50};
    struct mr_client *client = NULL;
    struct mr_detail detail = {.text = ""};
    (void)state;
    assert_int_equal(mr_client_open("redis://:hunter2@127.0.0.1:1", &options, &client, &detail),
                     MR_UNAVAILABLE);
    assert_null(client);
    assert_true(detail.text[0] != '\0');
    assert_null(strstr(detail.text, "hunter2"));
    options.tls_ca = "ca.pem";
    assert_int_equal(mr_client_open("redis://127.0.0.1:1", &options, &client, &detail), MR_INVALID);
    assert_non_null(strstr(detail.text, "rediss://"));
}

static void other_engines_and_bad_urls_are_refused_with_a_text(void **state)
{
    (void)state;
    char long_url[MR_PATH_MAX + 10];
    memset(long_url, 'x', sizeof long_url);
    memcpy(long_url, "file:", 5);
    long_url[sizeof long_url - 1] = '\0';
    const struct {
        const char *url, *namespace_;
        enum mr_err err;
    } rows[] = {
        {"redis://", "", MR_INVALID},
        {"redis://h:99999", "", MR_INVALID},
        {"redis+other://h", "", MR_INVALID},
        {"redis+sentinel://h:1", "", MR_INVALID},
        {"redis://127.0.0.1:1", "a{b", MR_INVALID},
        {"memcached://h", "", MR_UNSUPPORTED},
        {"millrace://127.0.0.1:1", "", MR_UNAVAILABLE},
        {"millrace://127.0.0.1:1", "blue", MR_UNAVAILABLE},
        {"millrace://", "", MR_INVALID},
        {"millrace:///", "", MR_INVALID},
        {"millrace://h:0x1", "", MR_INVALID},
        {"millrace://h:65536", "", MR_INVALID},
        {"millrace://h:1/path", "", MR_INVALID},
        {"millraces://", "", MR_INVALID},
        {"data", "", MR_INVALID},
        {"", "", MR_INVALID},
        {NULL, "", MR_INVALID},
        {"file:", "", MR_INVALID},
        {long_url, "", MR_TOO_BIG},
        {"file:data", "../x", MR_INVALID},
        {"file:data", "a{b", MR_INVALID},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct mr_client_options options = {.namespace_ = s(rows[i].namespace_), .open_ms = 50};
        struct mr_client *client = NULL;
        struct mr_detail detail = {.text = ""};
        assert_int_equal(mr_client_open(rows[i].url, &options, &client, &detail), rows[i].err);
        assert_null(client);
        assert_true(detail.text[0] != '\0');
        struct mr_client_options plain = {.namespace_ = s(rows[i].namespace_)};
        assert_int_equal(mr_client_open(rows[i].url, &plain, &client, NULL), rows[i].err);
    }
    mr_client_close(NULL);
}

static void a_second_opener_is_refused(void **state)
{
    struct world *world = *state;
    struct mr_client *second = NULL;
    assert_int_equal(mr_client_open(world->url, &small, &second, &world->detail), MR_IN_USE);
    assert_non_null(strstr(world->detail.text, "store"));
}

static void namespaces_do_not_see_each_other(void **state)
{
    struct world *world = *state;
    struct mr_client_options blue = small;
    blue.namespace_ = s("blue");
    struct mr_client *client;
    assert_int_equal(mr_client_open(world->url, &blue, &client, NULL), MR_OK);
    assert_int_equal(add(world, (struct mr_task_options){.id = s("a")}).err, MR_OK);
    struct mr_task_list *list;
    assert_int_equal(mr_task_get(client, s("a"), &list), MR_NOT_FOUND);
    mr_client_close(client);
}

/* ---- producing ------------------------------------------------------------------------------ */

static void an_enqueued_task_is_there_after_a_restart(void **state)
{
    struct world *world = *state;
    struct mr_header header = {s("trace"), s("1")};
    struct mr_task_options task = {
        .id = s("mine"), .payload = s("bytes"), .headers = &header, .headers_n = 1};
    struct mr_enqueue_result result = add(world, task);
    assert_int_equal(result.err, MR_OK);
    assert_string_equal(result.id, "mine");
    assert_int_equal(result.state, MR_PENDING);
    mr_client_close(world->client);
    open_client(world);
    struct mr_task_list *list;
    assert_int_equal(mr_task_get(world->client, s("mine"), &list), MR_OK);
    assert_int_equal(mr_task_list_count(list), 1);
    assert_null(mr_task_list_at(list, 1));
    assert_string_equal(mr_task_list_next(list), "");
    const struct mr_task *found = mr_task_list_at(list, 0);
    assert_memory_equal(found->payload.data, "bytes", 5);
    assert_int_equal(found->headers_n, 1);
    mr_task_list_free(list);
    mr_task_list_free(NULL);
    assert_int_equal(add(world, task).err, MR_CONFLICT);
}

static void items_of_a_batch_are_answered_one_by_one(void **state)
{
    struct world *world = *state;
    const struct mr_task_options tasks[] = {
        {.id = s("a")}, {.queue = s("bad{")}, {.id = s("a")}, {.delay_ms = -1}, {.id = s("b")}};
    struct mr_enqueue_result results[5];
    assert_int_equal(mr_enqueue(world->client, tasks, 5, results), MR_OK);
    assert_int_equal(results[0].err, MR_OK);
    assert_int_equal(results[1].err, MR_INVALID);
    assert_int_equal(results[2].err, MR_CONFLICT);
    assert_int_equal(results[3].err, MR_INVALID);
    assert_int_equal(results[4].err, MR_OK);
    assert_int_equal(mr_enqueue(world->client, tasks, 0, results), MR_OK);
    assert_int_equal(mr_enqueue(world->client, tasks, MR_BATCH_MAX + 1, results), MR_TOO_BIG);
}

struct flights {
    _Atomic size_t stored, answers;
    struct mr_event all;
    size_t expected;
};

static void note_answer(enum mr_err err, const struct mr_enqueue_result *results, size_t n,
                        void *arg)
{
    struct flights *flights = arg;
    for (size_t i = 0; i < n; i++)
        flights->stored += err == MR_OK && results[i].err == MR_OK && results[i].id[0];
    if (++flights->answers == flights->expected)
        mr_event_set(&flights->all);
}

static void thousands_can_be_in_flight(void **state)
{
    struct world *world = *state;
    enum { FLIGHTS = 400, BATCH = 50 };
    struct flights flights = {.expected = FLIGHTS};
    mr_event_init(&flights.all);
    struct mr_header header = {s("h"), s("v")};
    for (int i = 0; i < FLIGHTS; i++) {
        struct mr_task_options tasks[BATCH];
        char payload[16];
        for (int j = 0; j < BATCH; j++)
            tasks[j] = (struct mr_task_options){.payload = {payload, sizeof payload},
                                                .headers = &header,
                                                .headers_n = (size_t)(j % 2)};
        memset(payload, 'p', sizeof payload);
        assert_int_equal(mr_enqueue_async(world->client, tasks, BATCH, note_answer, &flights),
                         MR_OK);
        memset(payload, 'x', sizeof payload); /* everything was copied */
    }
    assert_true(mr_event_wait(&flights.all, 60 * MR_NS_PER_S));
    assert_int_equal(flights.stored, FLIGHTS * BATCH);
    struct mr_task_list *list;
    struct mr_list_options options = {.limit = MR_BATCH_MAX, .with_payload = true};
    assert_int_equal(mr_task_list_get(world->client, &options, &list), MR_OK);
    assert_int_equal(mr_task_list_count(list), MR_BATCH_MAX);
    for (size_t i = 0; i < MR_BATCH_MAX; i++)
        assert_memory_equal(mr_task_list_at(list, i)->payload.data, "pppppppppppppppp", 16);
    mr_task_list_free(list);
}

static void what_is_in_flight_is_answered_by_a_close(void **state)
{
    struct world *world = *state;
    struct flights flights = {.expected = 100};
    mr_event_init(&flights.all);
    struct mr_task_options task = {.payload = s("x")};
    for (int i = 0; i < 100; i++)
        assert_int_equal(mr_enqueue_async(world->client, &task, 1, note_answer, &flights), MR_OK);
    mr_client_close(world->client);
    assert_int_equal(flights.answers, 100);
    size_t stored = flights.stored;
    open_client(world);
    struct mr_stats stats;
    assert_int_equal(mr_stats_get(world->client, &stats), MR_OK);
    assert_true(stats.tasks >= stored);
}

static void too_much_in_flight_is_refused_at_once(void **state)
{
    struct world *world = *state;
    struct mr_client *client = world->client;
    struct flights flights = {.expected = SIZE_MAX};
    mr_event_init(&flights.all);
    struct mr_task_options task = {.payload = s("x")};
    assert_int_equal(mr_enqueue_async(client, &task, 0, note_answer, &flights), MR_INVALID);
    assert_int_equal(mr_enqueue_async(client, &task, 1, NULL, &flights), MR_INVALID);
    assert_int_equal(mr_enqueue_async(client, &task, MR_BATCH_MAX + 1, note_answer, &flights),
                     MR_TOO_BIG);
    atomic_store(&client->bytes, (size_t)MR_IN_FLIGHT_BYTES_MAX);
    assert_int_equal(mr_enqueue_async(client, &task, 1, note_answer, &flights), MR_BUSY);
    atomic_store(&client->bytes, (size_t)0);
    atomic_store(&client->tasks, (size_t)MR_IN_FLIGHT_TASKS_MAX);
    assert_int_equal(mr_enqueue_async(client, &task, 1, note_answer, &flights), MR_BUSY);
    atomic_store(&client->tasks, (size_t)0);
    assert_int_equal(flights.answers, 0);
}

/* ---- looking and acting --------------------------------------------------------------------- */

static void lists_come_in_pages(void **state)
{
    struct world *world = *state;
    struct mr_task_options tasks[25];
    struct mr_enqueue_result results[25];
    for (size_t i = 0; i < 25; i++)
        tasks[i] = (struct mr_task_options){.type = s(i % 5 ? "common" : "rare")};
    assert_int_equal(mr_enqueue(world->client, tasks, 25, results), MR_OK);
    char cursor[MR_CURSOR_MAX] = "";
    size_t seen = 0, pages = 0;
    do {
        struct mr_list_options options = {.state = MR_PENDING, .cursor = cursor, .limit = 10};
        struct mr_task_list *list;
        assert_int_equal(mr_task_list_get(world->client, &options, &list), MR_OK);
        seen += mr_task_list_count(list);
        pages++;
        snprintf(cursor, sizeof cursor, "%s", mr_task_list_next(list));
        mr_task_list_free(list);
    } while (*cursor && pages < 10);
    assert_int_equal(seen, 25);
    struct mr_list_options wrong = {.limit = MR_BATCH_MAX + 1};
    struct mr_task_list *list;
    assert_int_equal(mr_task_list_get(world->client, &wrong, &list), MR_TOO_BIG);
    assert_int_equal(mr_task_list_get(world->client, NULL, &list), MR_OK);
    assert_int_equal(mr_task_list_count(list), 25);
    mr_task_list_free(list);
}

static void verbs_move_a_task(void **state)
{
    struct world *world = *state;
    add(world, (struct mr_task_options){.id = s("t"), .delay_ms = 3600 * 1000});
    assert_int_equal(state_of(world, "t"), MR_SCHEDULED);
    assert_int_equal(control(world, MR_VERB_RUN, "t", 0), MR_OK);
    assert_int_equal(state_of(world, "t"), MR_PENDING);
    assert_int_equal(control(world, MR_VERB_PRIORITISE, "t", 100), MR_OK);
    assert_int_equal(control(world, MR_VERB_ARCHIVE, "t", 0), MR_OK);
    assert_int_equal(state_of(world, "t"), MR_ARCHIVED);
    assert_int_equal(control(world, MR_VERB_DELETE, "t", 0), MR_OK);
    assert_int_equal(state_of(world, "t"), MR_STATE_NONE);
    assert_int_equal(control(world, MR_VERB_RUN, "t", 0), MR_NOT_FOUND);
}

static void queues_can_be_paused_limited_and_removed(void **state)
{
    struct world *world = *state;
    struct mr_queue_info infos[4];
    size_t n = 9;
    assert_int_equal(mr_queue_get(world->client, s("q"), infos), MR_NOT_FOUND);
    add(world, (struct mr_task_options){.queue = s("q"), .id = s("one")});
    assert_int_equal(mr_queue_pause(world->client, s("q")), MR_OK);
    assert_int_equal(mr_queue_set_max_length(world->client, s("q"), 1), MR_OK);
    assert_int_equal(add(world, (struct mr_task_options){.queue = s("q")}).err, MR_QUEUE_FULL);
    assert_int_equal(mr_queue_get(world->client, s("q"), infos), MR_OK);
    assert_true(infos[0].paused);
    assert_int_equal(infos[0].max_length, 1);
    assert_int_equal(infos[0].counts[MR_PENDING], 1);
    assert_int_equal(mr_queue_list(world->client, NULL, infos, 4, &n), MR_OK);
    assert_int_equal(n, 1);
    assert_string_equal(infos[0].name, "q");
    assert_int_equal(mr_queue_list(world->client, "q", infos, 4, &n), MR_OK);
    assert_int_equal(n, 0);
    assert_int_equal(mr_queue_resume(world->client, s("q")), MR_OK);
    assert_int_equal(mr_queue_remove(world->client, s("q"), MR_QUEUE_REMOVE_EMPTY), MR_WRONG_STATE);
    assert_int_equal(mr_queue_remove(world->client, s("q"), MR_QUEUE_REMOVE_FORCE), MR_OK);
    assert_int_equal(state_of(world, "one"), MR_STATE_NONE);
    assert_int_equal(mr_queue_pause(world->client, s("")), MR_INVALID);
}

static void a_backup_can_be_opened(void **state)
{
    struct world *world = *state;
    add(world, (struct mr_task_options){.id = s("kept")});
    char dir[80], url[90];
    snprintf(dir, sizeof dir, "%s/copy", world->dir);
    snprintf(url, sizeof url, "file:%s", dir);
    assert_int_equal(mr_backup(world->client, dir, &world->detail), MR_OK);
    assert_int_equal(mr_backup(world->client, "", &world->detail), MR_INVALID);
    struct mr_client *copy;
    assert_int_equal(mr_client_open(url, &small, &copy, &world->detail), MR_OK);
    struct mr_task_list *list;
    assert_int_equal(mr_task_get(copy, s("kept"), &list), MR_OK);
    mr_task_list_free(list);
    mr_client_close(copy);
}

/* ---- working -------------------------------------------------------------------------------- */

struct work {
    struct world *world;
    struct mr_event entered, go;
    _Atomic size_t runs;
};

static enum mr_outcome run_upper(struct mr_run *run, void *arg)
{
    struct work *work = arg;
    work->runs++;
    const struct mr_task *task = mr_run_task(run);
    const char *bytes = task->payload.data;
    for (size_t i = 0; i < task->payload.len; i++) {
        char upper = (char)(bytes[i] - 'a' + 'A');
        assert_int_equal(mr_run_result(run, mr_slice_make(&upper, 1)), MR_OK);
    }
    return MR_DONE;
}

static enum mr_outcome run_fail_once(struct mr_run *run, void *arg)
{
    struct work *work = arg;
    work->runs++;
    if (mr_run_task(run)->retried > 0)
        return MR_DONE;
    mr_run_error(run, "the first time");
    return MR_FAIL;
}

static enum mr_outcome run_until_stopped(struct mr_run *run, void *arg)
{
    struct work *work = arg;
    mr_event_set(&work->entered);
    mr_run_wait_cancelled(run, INT64_MAX);
    return MR_FAIL;
}

static struct mr_worker *make_worker(struct work *work, struct mr_worker_options options)
{
    mr_event_init(&work->entered);
    mr_event_init(&work->go);
    struct mr_worker *worker;
    assert_int_equal(mr_worker_new(work->world->client, &options, &worker), MR_OK);
    assert_int_equal(mr_worker_handle(worker, "upper", run_upper, work), MR_OK);
    assert_int_equal(mr_worker_handle(worker, "once", run_fail_once, work), MR_OK);
    assert_int_equal(mr_worker_handle(worker, "wait", run_until_stopped, work), MR_OK);
    return worker;
}

static void a_worker_runs_tasks_and_results_are_kept(void **state)
{
    struct work work = {.world = *state};
    add(work.world,
        (struct mr_task_options){
            .id = s("t"), .type = s("upper"), .payload = s("abc"), .retention_ms = 3600 * 1000});
    struct mr_worker *worker =
        make_worker(&work, (struct mr_worker_options){.slots = 2, .burst = true});
    assert_int_equal(mr_worker_run(worker), MR_OK);
    mr_worker_free(worker);
    struct mr_task_list *list;
    assert_int_equal(mr_task_get(work.world->client, s("t"), &list), MR_OK);
    const struct mr_task *task = mr_task_list_at(list, 0);
    assert_int_equal(task->state, MR_COMPLETED);
    assert_int_equal(task->result.len, 3);
    assert_memory_equal(task->result.data, "ABC", 3);
    mr_task_list_free(list);
}

static void a_failed_task_is_retried_after_its_level(void **state)
{
    struct work work = {.world = *state};
    static const int64_t levels[] = {20};
    add(work.world,
        (struct mr_task_options){.id = s("t"), .type = s("once"), .retention_ms = 3600 * 1000});
    struct mr_worker *worker = make_worker(
        &work,
        (struct mr_worker_options){.slots = 1, .retry_levels_ms = levels, .retry_levels_n = 1});
    assert_int_equal(mr_worker_start(worker), MR_OK);
    struct mr_event never;
    mr_event_init(&never);
    for (int i = 0; i < 4000 && state_of(work.world, "t") != MR_COMPLETED; i++)
        mr_event_wait(&never, 5 * MR_NS_PER_MS);
    assert_int_equal(state_of(work.world, "t"), MR_COMPLETED);
    assert_int_equal(work.runs, 2);
    mr_worker_free(worker);
}

static void a_running_task_can_be_cancelled(void **state)
{
    struct work work = {.world = *state};
    add(work.world, (struct mr_task_options){.id = s("t"), .type = s("wait")});
    struct mr_worker *worker = make_worker(&work, (struct mr_worker_options){.slots = 1});
    assert_int_equal(mr_worker_start(worker), MR_OK);
    assert_true(mr_event_wait(&work.entered, 20 * MR_NS_PER_S));
    assert_int_equal(control(work.world, MR_VERB_CANCEL, "t", 0), MR_OK);
    struct mr_event never;
    mr_event_init(&never);
    for (int i = 0; i < 4000 && state_of(work.world, "t") != MR_ARCHIVED; i++)
        mr_event_wait(&never, 5 * MR_NS_PER_MS);
    assert_int_equal(state_of(work.world, "t"), MR_ARCHIVED);
    mr_worker_free(worker);
}

static void a_stopped_worker_leaves_its_task_as_it_found_it(void **state)
{
    struct work work = {.world = *state};
    add(work.world, (struct mr_task_options){.id = s("t"), .type = s("wait")});
    struct mr_worker *worker =
        make_worker(&work, (struct mr_worker_options){.slots = 1, .drain_ms = 1});
    assert_int_equal(mr_worker_start(worker), MR_OK);
    assert_true(mr_event_wait(&work.entered, 20 * MR_NS_PER_S));
    mr_worker_free(worker);
    struct mr_task_list *list;
    assert_int_equal(mr_task_get(work.world->client, s("t"), &list), MR_OK);
    const struct mr_task *task = mr_task_list_at(list, 0);
    assert_int_equal(task->state, MR_PENDING);
    assert_int_equal(task->retried + task->crashes, 0);
    mr_task_list_free(list);
}

static void two_workers_share_a_backlog_without_doubling(void **state)
{
    struct work work = {.world = *state};
    enum { BATCHES = 20, BATCH = 500 };
    struct mr_worker *first = make_worker(&work, (struct mr_worker_options){.slots = 4});
    struct mr_worker *second = make_worker(&work, (struct mr_worker_options){.slots = 4});
    assert_int_equal(mr_worker_start(first), MR_OK);
    assert_int_equal(mr_worker_start(second), MR_OK);
    struct mr_task_options tasks[BATCH];
    static struct mr_enqueue_result results[BATCH];
    for (int i = 0; i < BATCH; i++)
        tasks[i] = (struct mr_task_options){.type = s("upper")};
    for (int i = 0; i < BATCHES; i++)
        assert_int_equal(mr_enqueue(work.world->client, tasks, BATCH, results), MR_OK);
    struct mr_event never;
    mr_event_init(&never);
    struct mr_stats stats = {.tasks = 1};
    for (int i = 0; i < 4000 && stats.tasks > 0; i++) {
        mr_event_wait(&never, 5 * MR_NS_PER_MS);
        assert_int_equal(mr_stats_get(work.world->client, &stats), MR_OK);
    }
    mr_worker_free(first);
    mr_worker_free(second);
    assert_int_equal(stats.tasks, 0);
    assert_int_equal(stats.stale_refused, 0);
    assert_int_equal(work.runs, BATCHES * BATCH);
}

/* ---- offline -------------------------------------------------------------------------------- */

static void note_line(const char *text, void *arg)
{
    assert_non_null(text);
    ++*(int *)arg;
}

static void fsck_finds_nothing_in_a_sound_store(void **state)
{
    struct world *world = *state;
    for (int i = 0; i < 20; i++)
        add(world, (struct mr_task_options){.payload = s("x")});
    mr_client_close(world->client);
    world->client = NULL;
    struct mr_fsck_report report = {0};
    int lines = 0;
    assert_int_equal(mr_fsck(world->url, MR_FSCK_CHECK, note_line, &lines, &report, &world->detail),
                     MR_OK);
    assert_int_equal(report.tasks, 20);
    assert_int_equal(report.damaged + report.mismatches, 0);
    assert_int_equal(mr_fsck("http://x", MR_FSCK_CHECK, note_line, &lines, &report, NULL),
                     MR_UNSUPPORTED);
}

#define WITH_WORLD(test) cmocka_unit_test_setup_teardown(test, make_world, end_world)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_url_names_a_folder),
        cmocka_unit_test(a_url_is_shown_without_its_password),
        cmocka_unit_test(a_redis_that_is_not_there_is_told_without_its_password),
        cmocka_unit_test(other_engines_and_bad_urls_are_refused_with_a_text),
        cmocka_unit_test(options_of_a_server_must_make_sense),
        WITH_WORLD(a_second_opener_is_refused),
        WITH_WORLD(namespaces_do_not_see_each_other),
        WITH_WORLD(an_enqueued_task_is_there_after_a_restart),
        WITH_WORLD(items_of_a_batch_are_answered_one_by_one),
        WITH_WORLD(thousands_can_be_in_flight),
        WITH_WORLD(what_is_in_flight_is_answered_by_a_close),
        WITH_WORLD(too_much_in_flight_is_refused_at_once),
        WITH_WORLD(lists_come_in_pages),
        WITH_WORLD(verbs_move_a_task),
        WITH_WORLD(queues_can_be_paused_limited_and_removed),
        WITH_WORLD(a_backup_can_be_opened),
        WITH_WORLD(a_worker_runs_tasks_and_results_are_kept),
        WITH_WORLD(a_failed_task_is_retried_after_its_level),
        WITH_WORLD(a_running_task_can_be_cancelled),
        WITH_WORLD(a_stopped_worker_leaves_its_task_as_it_found_it),
        WITH_WORLD(two_workers_share_a_backlog_without_doubling),
        WITH_WORLD(fsck_finds_nothing_in_a_sound_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
