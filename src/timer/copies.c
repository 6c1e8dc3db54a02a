/* SPDX-License-Identifier: Apache-2.0 */
/* See copies.h. Who keeps something is remembered by name; after a start the copies themselves say it. */
#include "timer/copies.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/chan.h"
#include "base/diag.h"
#include "base/id.h"
#include "broker/hidden.h"
#include "timer/def.h"
#include "timer/door.h"

#define ORIGIN_HEADER "origin"

enum {
    LOOK_MS = 1000,
    LEASE_MS = 10 * 1000,
    ORIGINS_MAX = 256, /* lives of servers whose copies are here at a time */
    PAGE_MAX = 500,
    SERVERS_MAX = 1000,
    COPY_ID_MAX = MR_TIMER_ID_MAX + 1 + 16,
};

struct origin {
    char name[MR_STORE_OWNER_MAX + 1];
    mr_mono heard; /* 0: not since we started */
};

struct mr_copies {
    struct mr_copies_options options;
    char own[MR_STORE_OWNER_MAX + 1];
    int64_t lease_ms;
    pthread_t thread;
    struct mr_lock lock; /* over what follows */
    bool stopping;
    struct origin origins[ORIGINS_MAX];
    size_t origins_n;
};

/* ---- whose copies there are ------------------------------------------------------------------- */

/* Lock. NULL: there are too many. */
static struct origin *find_or_add(struct mr_copies *c, struct mr_slice name)
{
    for (size_t i = 0; i < c->origins_n; i++)
        if (mr_slice_equal(mr_slice_str(c->origins[i].name), name))
            return &c->origins[i];
    if (c->origins_n == ORIGINS_MAX)
        return NULL;
    struct origin *origin = &c->origins[c->origins_n++];
    *origin = (struct origin){.name = ""};
    memcpy(origin->name, name.data, name.len);
    return origin;
}

static enum mr_err hear(struct mr_copies *c, struct mr_slice name)
{
    if (name.len == 0 || name.len > MR_STORE_OWNER_MAX ||
        memchr(name.data, '\0', name.len) != NULL || mr_slice_equal(name, mr_slice_str(c->own)))
        return MR_INVALID;
    mr_lock_enter(&c->lock);
    bool first = c->origins_n == 0;
    struct origin *origin = find_or_add(c, name);
    if (origin != NULL)
        origin->heard = mr_mono_now(mr_clock_system());
    if (first)
        mr_lock_notify_all(&c->lock);
    mr_lock_leave(&c->lock);
    return origin != NULL ? MR_OK : MR_BUSY;
}

static bool is_silent(const struct mr_copies *c, const struct origin *origin)
{
    int64_t since_ns = mr_mono_now(mr_clock_system()).ns - origin->heard.ns;
    return origin->heard.ns == 0 || since_ns > c->lease_ms * MR_NS_PER_MS;
}

/* Unless it has sent something meanwhile. */
static void forget(struct mr_copies *c, const char *name)
{
    mr_lock_enter(&c->lock);
    for (size_t i = 0; i < c->origins_n; i++) {
        if (strcmp(c->origins[i].name, name) != 0 || !is_silent(c, &c->origins[i]))
            continue;
        c->origins[i] = c->origins[--c->origins_n];
        break;
    }
    mr_lock_leave(&c->lock);
}

/* ---- keeping ---------------------------------------------------------------------------------- */

/* An operation may be sent to two servers, and both may have their copies here. */
static size_t copy_id(struct mr_slice origin, struct mr_slice operation, char id[COPY_ID_MAX + 1])
{
    struct mr_uuid hash = mr_hash128((struct mr_hash_key){0}, origin);
    int len = snprintf(id, COPY_ID_MAX + 1, "%.*s.%016llx", (int)operation.len,
                       (const char *)operation.data, (unsigned long long)mr_uuid_hash(&hash));
    return (size_t)len;
}

struct kept {
    struct mr_copies *copies;
    struct mr_copies_keeping *keeping;
    struct mr_arena arena; /* of all that follows */
    struct mr_header origin;
    struct mr_req_enqueue enqueue;
    struct mr_req_control control;
};

static void kept_done(struct kept *k, enum mr_err err)
{
    struct mr_copies_keeping *keeping = k->keeping;
    mr_req_done(&k->enqueue.req);
    mr_req_done(&k->control.req);
    mr_arena_done(&k->arena);
    free(k);
    keeping->own = NULL;
    keeping->err = err;
    keeping->done(keeping);
}

/* What is not there any more was deleted before. */
static void deleted(struct mr_req *req)
{
    kept_done(req->arg, req->err);
}

static void drop(struct kept *k)
{
    if (k->control.n > 0)
        mr_broker_submit(k->copies->options.broker, &k->control.req);
    else
        kept_done(k, MR_OK);
}

static void enqueued(struct mr_req *req)
{
    struct kept *k = req->arg;
    enum mr_err err = req->err;
    for (size_t i = 0; err == MR_OK && i < k->enqueue.n; i++) /* MR_CONFLICT: it is here */
        if (k->enqueue.results[i].err != MR_CONFLICT)
            err = k->enqueue.results[i].err;
    if (err != MR_OK)
        kept_done(k, err);
    else
        drop(k);
}

static enum mr_err make_id(struct kept *k, struct mr_slice operation, struct mr_slice *ret_id)
{
    char *id = mr_arena_alloc(&k->arena, COPY_ID_MAX + 1);
    if (operation.len == 0 || operation.len > MR_TIMER_ID_MAX)
        return MR_INVALID;
    if (id == NULL)
        return MR_NOMEM;
    *ret_id = mr_slice_make(id, copy_id(k->keeping->origin, operation, id));
    return MR_OK;
}

static enum mr_err prepare_copies(struct kept *k)
{
    const struct mr_copies_keeping *keeping = k->keeping;
    struct mr_task_options *tasks = mr_arena_calloc(&k->arena, keeping->n + 1, sizeof *tasks);
    struct mr_enqueue_result *results = mr_arena_calloc(&k->arena, keeping->n + 1, sizeof *results);
    if (tasks == NULL || results == NULL)
        return MR_NOMEM;
    k->origin = (struct mr_header){MR_SLICE_LIT(ORIGIN_HEADER), keeping->origin};
    for (size_t i = 0; i < keeping->n; i++) {
        struct mr_timer_operation op;
        if (mr_timer_operation_decode(keeping->operations[i], &op) != MR_OK)
            return MR_INVALID;
        tasks[i] = (struct mr_task_options){.queue = MR_SLICE_LIT(MR_COPIES_QUEUE),
                                            .type = mr_slice_str(mr_timer_verb_name(op.verb)),
                                            .payload = keeping->operations[i],
                                            .timeout_ms = MR_NO_TIMEOUT,
                                            .headers = &k->origin,
                                            .headers_n = 1};
        MR_TRY(make_id(k, op.operation, &tasks[i].id));
    }
    k->enqueue = (struct mr_req_enqueue){
        .req = {.op = MR_OP_ENQUEUE, .done = enqueued, .arg = k},
        .tasks = tasks,
        .n = keeping->n,
        .results = results,
        .inner = true,
    };
    return MR_OK;
}

static enum mr_err prepare_drops(struct kept *k)
{
    const struct mr_copies_keeping *keeping = k->keeping;
    struct mr_control *items = mr_arena_calloc(&k->arena, keeping->gone_n + 1, sizeof *items);
    enum mr_err *errs = mr_arena_calloc(&k->arena, keeping->gone_n + 1, sizeof *errs);
    if (items == NULL || errs == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < keeping->gone_n; i++) {
        items[i].verb = MR_VERB_DELETE;
        MR_TRY(make_id(k, keeping->gone[i], &items[i].id));
    }
    k->control = (struct mr_req_control){
        .req = {.op = MR_OP_CONTROL, .done = deleted, .arg = k},
        .items = items,
        .n = keeping->gone_n,
        .errs = errs,
    };
    return MR_OK;
}

static enum mr_err prepare(struct kept *k)
{
    if (k->keeping->n > MR_BATCH_MAX || k->keeping->gone_n > MR_BATCH_MAX)
        return MR_TOO_BIG;
    MR_TRY(hear(k->copies, k->keeping->origin));
    MR_TRY(prepare_copies(k));
    return prepare_drops(k);
}

void mr_copies_keep(struct mr_copies *copies, struct mr_copies_keeping *keeping)
{
    struct kept *k = calloc(1, sizeof *k);
    if (k == NULL) {
        keeping->err = MR_NOMEM;
        keeping->done(keeping);
        return;
    }
    *k = (struct kept){.copies = copies, .keeping = keeping};
    keeping->own = k;
    enum mr_err err = prepare(k);
    if (err != MR_OK)
        kept_done(k, err);
    else if (k->enqueue.n > 0)
        mr_broker_submit(copies->options.broker, &k->enqueue.req);
    else
        drop(k);
}

/* ---- pages of what is kept -------------------------------------------------------------------- */

static bool is_stopping(struct mr_copies *c)
{
    mr_lock_enter(&c->lock);
    bool stopping = c->stopping;
    mr_lock_leave(&c->lock);
    return stopping;
}

static struct mr_slice origin_of(const struct mr_task *task)
{
    for (size_t i = 0; i < task->headers_n; i++)
        if (mr_slice_equal(task->headers[i].name, MR_SLICE_LIT(ORIGIN_HEADER)))
            return task->headers[i].value;
    return (struct mr_slice){0};
}

/* All pages, each given to the caller; MR_CLOSED: it is to stop. */
static enum mr_err
each_page(struct mr_copies *c, bool with_payload,
          enum mr_err (*page)(struct mr_copies *c, struct mr_req_list *list, void *arg), void *arg)
{
    char cursor[MR_CURSOR_MAX] = "";
    do {
        struct mr_req_list list = {
            .req = {.op = MR_OP_LIST},
            .options = {.queue = MR_SLICE_LIT(MR_COPIES_QUEUE),
                        .cursor = cursor[0] != '\0' ? cursor : NULL,
                        .limit = PAGE_MAX,
                        .with_payload = with_payload},
        };
        enum mr_err err = mr_broker_call(c->options.broker, &list.req);
        if (err == MR_OK)
            err = page(c, &list, arg);
        memcpy(cursor, list.next, sizeof cursor);
        mr_req_done(&list.req);
        if (err != MR_OK)
            return err == MR_NOT_FOUND ? MR_OK : err; /* there was never any */
        if (is_stopping(c))
            return MR_CLOSED;
    } while (cursor[0] != '\0');
    return MR_OK;
}

static enum mr_err learn_page(struct mr_copies *c, struct mr_req_list *list, void *arg)
{
    (void)arg;
    mr_lock_enter(&c->lock);
    for (size_t i = 0; i < list->n; i++) {
        struct mr_slice origin = origin_of(&list->tasks[i]);
        if (origin.len > 0 && origin.len <= MR_STORE_OWNER_MAX)
            (void)find_or_add(c, origin);
    }
    mr_lock_leave(&c->lock);
    return MR_OK;
}

/* ---- those of a server that is gone ----------------------------------------------------------- */

/* Operations of one page, on their way into our own queue. */
struct moving {
    const char *origin;
    struct mr_header copied; /* says that */
    size_t n, moved;
    struct mr_task_options tasks[PAGE_MAX];
    struct mr_enqueue_result results[PAGE_MAX];
    struct mr_control items[PAGE_MAX];
    enum mr_err errs[PAGE_MAX];
};

static void add_task(struct moving *m, const struct mr_task *copy)
{
    struct mr_timer_operation op;
    struct mr_task_options *task = &m->tasks[m->n];
    bool fine = mr_timer_operation_decode(copy->payload, &op) == MR_OK;
    *task = (struct mr_task_options){
        .queue = MR_SLICE_LIT(MR_TIMERS_QUEUE),
        .type = copy->type,
        .payload = copy->payload,
        .max_retry = MR_RETRY_MAX,
        .timeout_ms = MR_NO_TIMEOUT,
        .headers = &m->copied,
        .headers_n = 1,
        .id = fine ? op.operation : (struct mr_slice){0}, /* else it is a dead letter soon */
    };
    m->items[m->n++] = (struct mr_control){.verb = MR_VERB_DELETE, .id = copy->id};
}

/* MR_CONFLICT: it was sent to us as well. */
static enum mr_err move_on(struct mr_copies *c, struct moving *m)
{
    struct mr_req_enqueue enqueue = {.req = {.op = MR_OP_ENQUEUE},
                                     .tasks = m->tasks,
                                     .n = m->n,
                                     .results = m->results,
                                     .inner = true};
    enum mr_err err = mr_broker_call(c->options.broker, &enqueue.req);
    mr_req_done(&enqueue.req);
    for (size_t i = 0; err == MR_OK && i < m->n; i++)
        if (m->results[i].err != MR_CONFLICT)
            err = m->results[i].err;
    if (err != MR_OK)
        return err;
    struct mr_req_control control = {
        .req = {.op = MR_OP_CONTROL}, .items = m->items, .n = m->n, .errs = m->errs};
    err = mr_broker_call(c->options.broker, &control.req);
    mr_req_done(&control.req);
    m->moved += m->n;
    return err;
}

static enum mr_err move_page(struct mr_copies *c, struct mr_req_list *list, void *arg)
{
    struct moving *m = arg;
    m->n = 0;
    for (size_t i = 0; i < list->n; i++)
        if (mr_slice_equal(origin_of(&list->tasks[i]), mr_slice_str(m->origin)))
            add_task(m, &list->tasks[i]);
    return m->n > 0 ? move_on(c, m) : MR_OK;
}

static void take_over(struct mr_copies *c, const char *origin)
{
    char text[2 * MR_STORE_OWNER_MAX];
    struct moving *m = calloc(1, sizeof *m);
    if (m == NULL)
        return;
    m->origin = origin;
    m->copied = (struct mr_header){MR_SLICE_LIT(MR_TIMER_COPIED_HEADER), mr_slice_str(origin)};
    enum mr_err err = each_page(c, true, move_page, m);
    if (err != MR_OK && err != MR_CLOSED)
        mr_diag(MR_DIAG_WARN, "timer.copies", "error=%s trying again", mr_err_name(err));
    if (m->moved > 0)
        mr_diag(MR_DIAG_INFO, "timer.copies", "server=\"%s\" is gone; operations=%zu",
                mr_diag_escape(mr_slice_str(origin), text, sizeof text), m->moved);
    if (err == MR_OK)
        forget(c, origin);
    free(m);
}

/* ---- the thread ------------------------------------------------------------------------------- */

static bool is_listed(const struct mr_store_server_list *list, const char *name)
{
    for (size_t i = 0; i < list->n; i++)
        if (mr_slice_equal(list->servers[i].server, mr_slice_str(name)))
            return true;
    return false;
}

/* The name of one that is gone, the i-th or behind it; false: there is none. */
static bool next_gone(struct mr_copies *c, const struct mr_store_server_list *list, size_t *i,
                      char name[MR_STORE_OWNER_MAX + 1])
{
    bool found = false;
    mr_lock_enter(&c->lock);
    for (; !found && *i < c->origins_n; ++*i) {
        const struct origin *origin = &c->origins[*i];
        found = is_silent(c, origin) && !is_listed(list, origin->name);
        if (found)
            memcpy(name, origin->name, sizeof origin->name);
    }
    mr_lock_leave(&c->lock);
    return found;
}

/* Who is not listed because the list is too long is not gone for that. */
static void look(struct mr_copies *c)
{
    char name[MR_STORE_OWNER_MAX + 1];
    struct mr_store_server_list list = {.req.op = MR_STORE_SERVER_LIST, .max = SERVERS_MAX};
    enum mr_err err = mr_store_call(c->options.store, &list.req);
    for (size_t i = 0; err == MR_OK && !list.more && next_gone(c, &list, &i, name);)
        take_over(c, name);
    mr_store_req_done(&list.req);
}

/* False: it is to stop. Without copies it sleeps until there are some. */
static bool wait_for_look(struct mr_copies *c)
{
    mr_lock_enter(&c->lock);
    while (!c->stopping && c->origins_n == 0)
        mr_lock_wait(&c->lock, INT64_MAX);
    if (!c->stopping)
        mr_lock_wait(&c->lock, LOOK_MS * MR_NS_PER_MS);
    bool goes_on = !c->stopping;
    mr_lock_leave(&c->lock);
    return goes_on;
}

static bool pause_now(struct mr_copies *c)
{
    mr_lock_enter(&c->lock);
    if (!c->stopping)
        mr_lock_wait(&c->lock, LOOK_MS * MR_NS_PER_MS);
    bool goes_on = !c->stopping;
    mr_lock_leave(&c->lock);
    return goes_on;
}

static void *copies_main(void *arg)
{
    struct mr_copies *c = arg;
    while (each_page(c, false, learn_page, NULL) != MR_OK)
        if (!pause_now(c))
            return NULL;
    while (wait_for_look(c))
        look(c);
    return NULL;
}

enum mr_err mr_copies_start(const struct mr_copies_options *options, struct mr_copies **ret_copies)
{
    struct mr_copies *c = calloc(1, sizeof *c);
    if (c == NULL)
        return MR_NOMEM;
    c->options = *options;
    (void)snprintf(c->own, sizeof c->own, "%s", options->own);
    c->lease_ms = options->lease_ms > 0 ? options->lease_ms : LEASE_MS;
    mr_lock_init(&c->lock);
    enum mr_err err = mr_thread_start(&c->thread, "mr-copies", copies_main, c);
    if (err != MR_OK) {
        mr_lock_done(&c->lock);
        free(c);
        return err;
    }
    *ret_copies = c;
    return MR_OK;
}

void mr_copies_stop(struct mr_copies *copies)
{
    if (copies == NULL)
        return;
    mr_lock_enter(&copies->lock);
    copies->stopping = true;
    mr_lock_notify_all(&copies->lock);
    mr_lock_leave(&copies->lock);
    mr_thread_join(copies->thread);
    mr_lock_done(&copies->lock);
    free(copies);
}
