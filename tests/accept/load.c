/* SPDX-License-Identifier: Apache-2.0 */
#include "accept/load.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "broker/broker.h"
#include "client/client.h"

enum { THREADS = 3, BATCH = 4, PACE_MS = 10, LATER_MS = 3600 * 1000, LEASE_MS = 5000 };

enum fact { SENT, ACCEPTED, DELETING, DELETED, ENDING, ENDED };

struct note {
    enum fact fact;
    char id[MR_ID_MAX + 1];
};

static void path_of(const char *audit, char path[MR_PATH_MAX + 16])
{
    (void)snprintf(path, MR_PATH_MAX + 16, "%s.load", audit);
}

/* ---- the process ---------------------------------------------------------------------------- */

struct load {
    const char *prefix;
    struct mr_client *client;
    int fd;
    size_t number;
    pthread_t thread;
};

static volatile sig_atomic_t told_to_end;

static void on_term(int number)
{
    (void)number;
    told_to_end = 1;
}

static void note(const struct load *load, enum fact fact, struct mr_slice id)
{
    struct note line = {.fact = fact};
    (void)snprintf(line.id, sizeof line.id, "%.*s", (int)id.len, (const char *)id.data);
    if (write(load->fd, &line, sizeof line) != (ssize_t)sizeof line)
        abort();
}

/* Some that run, and one that is deleted before its time. */
static void submit(const struct load *load, size_t *sent)
{
    struct mr_task_options tasks[BATCH];
    struct mr_enqueue_result results[BATCH];
    char ids[BATCH][64];
    for (size_t i = 0; i < BATCH; i++) {
        (void)snprintf(ids[i], sizeof ids[i], "%s-%zu-%zu", load->prefix, load->number, (*sent)++);
        tasks[i] = (struct mr_task_options){.id = mr_slice_str(ids[i]),
                                            .payload = mr_slice_str(ids[i]),
                                            .delay_ms = i == 0 ? LATER_MS : 0,
                                            .retention_ms = ACCEPT_RETENTION_MS};
        note(load, SENT, tasks[i].id);
    }
    if (mr_enqueue(load->client, tasks, BATCH, results) != MR_OK)
        return;
    for (size_t i = 0; i < BATCH; i++)
        if (results[i].err == MR_OK)
            note(load, ACCEPTED, tasks[i].id);
    struct mr_control item = {.verb = MR_VERB_DELETE, .id = tasks[0].id};
    enum mr_err err = MR_FAILED;
    note(load, DELETING, item.id);
    if (mr_control(load->client, &item, 1, &err) == MR_OK && err == MR_OK)
        note(load, DELETED, item.id);
}

static void on_stop(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    (void)epoch, (void)reason, (void)arg;
}

/* 0: there is none yet. */
static uint64_t node_open(const struct load *load)
{
    struct mr_worker_queue queue = {.name = mr_slice_str("default")};
    struct mr_req_node_open req = {.req.op = MR_OP_NODE_OPEN,
                                   .queues = &queue,
                                   .queues_n = 1,
                                   .slots = BATCH,
                                   .lease_ms = LEASE_MS,
                                   .events = {.stop = on_stop}};
    uint64_t node = mr_broker_call(load->client->broker, &req.req) == MR_OK ? req.node : 0;
    mr_req_done(&req.req);
    return node;
}

static void finish(const struct load *load, struct mr_lease *lease)
{
    enum mr_err err = MR_FAILED;
    if (mr_broker_lease_open(load->client->broker, lease) != MR_OK)
        abort();
    struct mr_finish item = {.id = lease->task.id,
                             .epoch = lease->epoch,
                             .ref = lease->ref,
                             .outcome = MR_DONE,
                             .result = lease->task.payload};
    struct mr_req_finish req = {.req.op = MR_OP_FINISH, .items = &item, .n = 1, .errs = &err};
    note(load, ENDING, item.id);
    if (mr_broker_call(load->client->broker, &req.req) == MR_OK && err == MR_OK)
        note(load, ENDED, item.id);
    mr_req_done(&req.req);
}

static void work(const struct load *load, uint64_t *node)
{
    if (*node == 0)
        *node = node_open(load);
    struct mr_req_take req = {.req.op = MR_OP_TAKE, .node = *node, .max = BATCH};
    struct mr_req_beat beat = {.req.op = MR_OP_BEAT, .node = *node};
    if (*node == 0)
        return;
    enum mr_err err = mr_broker_call(load->client->broker, &beat.req);
    mr_req_done(&beat.req);
    if (err == MR_OK)
        err = mr_broker_call(load->client->broker, &req.req);
    for (struct mr_lease *lease = err == MR_OK ? req.leases : NULL, *next; lease; lease = next) {
        next = lease->next;
        finish(load, lease);
        mr_lease_free(lease);
    }
    mr_req_done(&req.req);
    if (err == MR_CLOSED || err == MR_NOT_FOUND)
        *node = 0;
}

static void *run(void *arg)
{
    const struct load *load = arg;
    uint64_t node = 0;
    size_t sent = 0;
    for (; !told_to_end; accept_pass_ms(PACE_MS)) {
        submit(load, &sent);
        work(load, &node);
    }
    return NULL;
}

/* --load URL AUDIT PREFIX */
int load_main(int argc, char **argv)
{
    static struct load loads[THREADS];
    char path[MR_PATH_MAX + 16];
    struct mr_client *client = NULL;
    struct mr_client_options options = {.segment_bytes = 4 * 1024 * 1024};
    if (argc != 5)
        return 2;
    path_of(argv[3], path);
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    accept_on_term(on_term);
    if (fd < 0 || mr_client_open(argv[2], &options, &client, NULL) != MR_OK)
        return 1;
    for (size_t i = 0; i < THREADS; i++) {
        loads[i] = (struct load){.prefix = argv[4], .client = client, .fd = fd, .number = i};
        if (mr_thread_start(&loads[i].thread, "load", run, &loads[i]) != MR_OK)
            return 1;
    }
    for (size_t i = 0; i < THREADS; i++)
        mr_thread_join(loads[i].thread);
    mr_client_close(client);
    return 0;
}

pid_t load_spawn(struct accept *t, const char *url, const char *prefix)
{
    return accept_spawn_kept(
        t, (const char *const[]){"/proc/self/exe", "--load", url, t->audit, prefix, NULL});
}

/* ---- what it knows -------------------------------------------------------------------------- */

struct load_book {
    struct accept *t;
    int fd;
    off_t read; /* so much of the notes */
    struct known {
        char id[MR_ID_MAX + 1];
        unsigned facts; /* bits */
    } * all;
    size_t n, max, news;
};

struct load_book *load_book_open(struct accept *t)
{
    char path[MR_PATH_MAX + 16];
    struct load_book *book = calloc(1, sizeof *book);
    assert_non_null(book);
    book->t = t;
    path_of(t->audit, path);
    book->fd = open(path, O_RDONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(book->fd >= 0);
    return book;
}

/* A thread notes its tasks one after the other: the last ones are looked at first. */
static struct known *known_of(struct load_book *book, const char *id, enum fact fact)
{
    for (size_t i = fact == SENT ? 0 : book->n; i-- > 0;)
        if (strcmp(book->all[i].id, id) == 0)
            return &book->all[i];
    assert_int_equal(fact, SENT);
    if (book->n == book->max) {
        book->max = book->max ? 2 * book->max : 1024;
        book->all = realloc(book->all, book->max * sizeof *book->all);
        assert_non_null(book->all);
    }
    struct known *known = &book->all[book->n++];
    *known = (struct known){0};
    (void)snprintf(known->id, sizeof known->id, "%s", id);
    return known;
}

size_t load_read(struct load_book *book)
{
    struct note line;
    size_t n = 0;
    for (; pread(book->fd, &line, sizeof line, book->read) == (ssize_t)sizeof line; n++) {
        book->read += (off_t)sizeof line;
        known_of(book, line.id, line.fact)->facts |= 1u << line.fact;
    }
    return n;
}

static bool knows(const struct known *known, enum fact fact)
{
    return (known->facts & 1u << fact) != 0;
}

/* It is all there, or not at all. */
static enum mr_state state_of(struct load_book *book, const struct known *known)
{
    struct mr_task_list *list = accept_get(book->t, known->id);
    if (!list)
        return MR_STATE_NONE;
    const struct mr_task *task = mr_task_list_at(list, 0);
    enum mr_state state = task->state;
    struct mr_slice id = mr_slice_str(known->id);
    assert_int_equal(task->payload.len, id.len);
    assert_memory_equal(task->payload.data, id.data, id.len);
    if (state == MR_COMPLETED)
        assert_memory_equal(task->result.data, id.data, id.len);
    mr_task_list_free(list);
    return state;
}

/* While the load goes on: what was noted before the look was in force then, and what the look saw was noted
 * by the time it is over. */
static enum mr_state check(struct load_book *book, size_t i)
{
    const struct known before = book->all[i];
    enum mr_state state = state_of(book, &before);
    (void)load_read(book);
    const struct known *after = &book->all[i];
    const char *name = state == MR_STATE_NONE ? "gone" : mr_state_name(state);
    bool there = state != MR_STATE_NONE;
    if (knows(&before, DELETED) && there)
        fail_msg("%s was deleted and is %s", before.id, name);
    if (knows(&before, ACCEPTED) && !knows(after, DELETING) && !there)
        fail_msg("%s was accepted and is %s", before.id, name);
    if (knows(&before, ENDED) && state != MR_COMPLETED)
        fail_msg("%s was done and is %s", before.id, name);
    if (state == MR_COMPLETED && !knows(after, ENDING))
        fail_msg("%s is %s, and nobody has run it", before.id, name);
    return state;
}

void load_check_news(struct load_book *book)
{
    for (size_t n = book->n; book->news < n; book->news++)
        (void)check(book, book->news);
}

void load_settle(struct load_book *book)
{
    struct accept *t = book->t;
    char path[MR_PATH_MAX + 16];
    for (size_t i = 0; i < book->n; i++) {
        bool there = check(book, i) != MR_STATE_NONE;
        if (!there && !knows(&book->all[i], ACCEPTED))
            continue;
        (void)accept_remember(t, book->all[i].id);
        t->deleted += !there;
    }
    path_of(t->audit, path);
    (void)unlink(path);
    (void)close(book->fd);
    free(book->all);
    free(book);
}
