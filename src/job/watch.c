/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who watches a job is told of each version of it, in order. What is changed here comes with its row, and is told from it:
 * the store, which has work to do, is not asked. A job that is watched is read when it is not known how it was before, and every now
 * and then, since others change it too; when it has gone on by more than one version, those between are read as well. So
 * each watcher sees the same, on whichever server, from whichever version on.
 *
 * Watches come and go on any thread; what is told is told on the service's. The lists are under the lock, which is not
 * held during a callback.
 */
#include <stdlib.h>

#include "job/internal.h"

/* A job that somebody watches. */
struct watched {
    struct mr_link link;
    struct mr_uuid uid;
    struct mr_link watches;
    struct mr_link todo; /* those that are still to be told of the event that is on */
    bool dirty;          /* there may be something new */
    bool reading;        /* versions of it are being read */
    uint64_t known;      /* the greatest version that a row had; what was read before it is old */
    struct mr_slice definition; /* NULL: not known yet */
};

struct mr_job_watch {
    struct mr_link link; /* in a list of its job; in none: it is over */
    struct mr_job_service *s;
    struct mr_job_watch_options options;
    uint64_t seen; /* version; 0: none, it is to be told how the job is */
    bool freed;    /* by its own callback, which is under way */
};

/* Its address is another one in each thread. */
static _Thread_local char this_thread;

/* ---- events ---------------------------------------------------------------------------------- */

struct event {
    struct mr_job_event event;
    _Atomic uint32_t refs;
    struct mr_arena arena;
};

struct mr_job_event *mr_job_event_ref(struct mr_job_event *event)
{
    atomic_fetch_add(&mr_container(event, struct event, event)->refs, 1);
    return event;
}

void mr_job_event_unref(struct mr_job_event *event)
{
    struct event *e = event != NULL ? mr_container(event, struct event, event) : NULL;
    if (e == NULL || atomic_fetch_sub(&e->refs, 1) > 1)
        return;
    mr_arena_done(&e->arena);
    free(e);
}

/* NULL: no memory. */
static struct mr_job_event *event_new(const struct watched *watched, const struct mr_store_job *row)
{
    struct event *e = calloc(1, sizeof *e);
    if (e == NULL)
        return NULL;
    atomic_init(&e->refs, 1);
    e->event.end = mr_jobrow_is_ended(row->state);
    enum mr_err err = job_show(row, watched->definition, row->changed_ms, &e->arena, &e->event.job);
    if (err == MR_OK)
        return &e->event;
    mr_job_event_unref(&e->event);
    return NULL;
}

/* ---- telling --------------------------------------------------------------------------------- */

static void call_begin(struct mr_job_watch *watch)
{
    watch->s->calling = watch;
    watch->s->caller = &this_thread;
    mr_lock_leave(&watch->s->watch_lock);
}

/* False: it was freed. */
static bool call_end(struct mr_job_watch *watch)
{
    struct mr_job_service *s = watch->s;
    mr_lock_enter(&s->watch_lock);
    s->calling = NULL;
    s->caller = NULL;
    mr_lock_notify_all(&s->watch_lock);
    if (!watch->freed)
        return true;
    free(watch);
    return false;
}

/* With the lock. It is in no list after this. */
static void end_watch(struct mr_job_watch *watch, enum mr_err err)
{
    mr_list_remove(&watch->link);
    call_begin(watch);
    watch->options.ended(err, watch->options.arg);
    (void)call_end(watch);
}

static void end_all(struct watched *watched, enum mr_err err)
{
    while (!mr_list_empty(&watched->watches))
        end_watch(mr_container(watched->watches.next, struct mr_job_watch, link), err);
}

/* With the lock, as what follows. Those that have seen the job up to `from` or later, and not this version, are told of it.
 * from 0: it is how the job is now; those that have seen none, or one that there is not, are told as well, and to those
 * that have seen all of it that there is no more. */
static void tell(struct watched *watched, const struct mr_store_job *row, uint64_t from)
{
    struct mr_job_event *event = NULL;
    struct mr_link *link;
    bool end = mr_jobrow_is_ended(row->state), now = from == 0;
    mr_list_splice_back(&watched->todo, &watched->watches);
    while ((link = mr_list_pop_front(&watched->todo)) != NULL) {
        struct mr_job_watch *watch = mr_container(link, struct mr_job_watch, link);
        bool first = now && (watch->seen == 0 || watch->seen > row->version);
        bool next = watch->seen > 0 && watch->seen >= from && watch->seen < row->version;
        mr_list_push_back(&watched->watches, &watch->link);
        if (!first && !next) {
            if (now && end && watch->seen == row->version)
                end_watch(watch, MR_OK);
            continue;
        }
        if (event == NULL)
            event = event_new(watched, row);
        if (event == NULL) {
            end_watch(watch, MR_NOMEM);
            continue;
        }
        watch->seen = row->version;
        call_begin(watch);
        watch->options.event(event, watch->options.arg);
        if (call_end(watch) && end && !mr_list_empty(&watch->link))
            end_watch(watch, MR_OK);
    }
    mr_job_event_unref(event);
}

/* The version from which on somebody has to be told; the row's own: nobody. */
static uint64_t least_seen(const struct watched *watched, uint64_t version)
{
    for (const struct mr_link *at = watched->watches.next; at != &watched->watches; at = at->next) {
        const struct mr_job_watch *watch = mr_container(at, struct mr_job_watch, link);
        if (watch->seen > 0 && watch->seen < version)
            version = watch->seen;
    }
    return version;
}

static struct watched *find(struct mr_job_service *s, const struct mr_uuid *uid)
{
    for (struct mr_link *at = s->watched.next; at != &s->watched; at = at->next) {
        struct watched *watched = mr_container(at, struct watched, link);
        if (memcmp(&watched->uid, uid, sizeof *uid) == 0)
            return watched;
    }
    return NULL;
}

static void make_dirty(struct watched *watched, struct mr_job_service *s)
{
    watched->dirty = true;
    s->watch_dirty = true;
}

/* ---- versions between ------------------------------------------------------------------------ */

struct versions {
    struct mr_errand errand;
    struct mr_uuid uid;
    struct mr_store_job_events req;
};

static void read_versions(struct mr_job_service *s, struct watched *watched, uint64_t after);

/* Those between are not kept any more: the next look says how the job is now. */
static void skip_versions(struct watched *watched, uint64_t after)
{
    for (struct mr_link *at = watched->watches.next; at != &watched->watches; at = at->next) {
        struct mr_job_watch *watch = mr_container(at, struct mr_job_watch, link);
        if (watch->seen == after)
            watch->seen = 0;
    }
}

static void versions_known(struct mr_errand *errand)
{
    struct versions *v = mr_container(errand, struct versions, errand);
    struct mr_job_service *s = job_of(errand);
    enum mr_err err = v->req.req.err;
    mr_lock_enter(&s->watch_lock);
    struct watched *watched = find(s, &v->uid);
    mr_assert(watched != NULL); /* it is kept while it is read */
    watched->reading = false;
    if (s->watch_closed || (err != MR_OK && err != MR_NOT_FOUND))
        make_dirty(watched, s); /* the store was away: once more */
    else if (err != MR_OK)
        end_all(watched, err);
    for (size_t i = 0; err == MR_OK && !s->watch_closed && i < v->req.n; i++)
        tell(watched, &v->req.jobs[i], v->req.after);
    if (err == MR_OK && v->req.n == 0)
        skip_versions(watched, v->req.after);
    if (err == MR_OK)
        make_dirty(watched, s); /* there may be more, by now */
    mr_lock_leave(&s->watch_lock);
    mr_store_req_done(&v->req.req);
    free(v);
}

static void read_versions(struct mr_job_service *s, struct watched *watched, uint64_t after)
{
    struct versions *v = calloc(1, sizeof *v);
    if (v == NULL) {
        end_all(watched, MR_NOMEM);
        return;
    }
    watched->reading = true;
    v->errand = (struct mr_errand){.desk = &s->desk, .done = versions_known};
    v->uid = watched->uid;
    v->req = (struct mr_store_job_events){
        .req.op = MR_STORE_JOB_EVENTS, .uid = v->uid, .after = after, .max = PAGE_MAX};
    mr_errand_store(&v->errand, &v->req.req);
}

/* ---- looking --------------------------------------------------------------------------------- */

struct looking {
    struct mr_errand errand;
    struct mr_store_job_get get;
    size_t n;
    struct mr_uuid uids[PAGE_MAX];
};

static void row_known(struct mr_job_service *s, struct watched *watched,
                      const struct mr_store_job *row)
{
    if (row->state == MR_JOBROW_NONE) {
        end_all(watched, MR_NOT_FOUND);
        return;
    }
    bool old = row->version < watched->known;
    watched->known = row->version; /* should it have gone back, it has by the next look */
    if (old) {
        make_dirty(watched, s);
        return;
    }
    if (watched->definition.data == NULL && row->definition.len > 0) {
        void *copy = malloc(row->definition.len);
        if (copy == NULL)
            return;
        memcpy(copy, row->definition.data, row->definition.len);
        watched->definition = mr_slice_make(copy, row->definition.len);
    }
    uint64_t least = least_seen(watched, row->version);
    if (least + 1 >= row->version)
        tell(watched, row, 0);
    else
        read_versions(s, watched, least); /* then it is looked at again */
}

static void looked(struct mr_errand *errand)
{
    struct looking *l = mr_container(errand, struct looking, errand);
    struct mr_job_service *s = job_of(errand);
    mr_lock_enter(&s->watch_lock);
    s->watch_reading = false;
    for (size_t i = 0; i < l->n && !s->watch_closed; i++) {
        struct watched *watched = find(s, &l->uids[i]);
        if (watched == NULL || watched->reading)
            continue;
        if (l->get.req.err == MR_OK)
            row_known(s, watched, &l->get.jobs[i]);
    }
    if (l->get.req.err != MR_OK)
        mr_diag(MR_DIAG_WARN, "job.watch", "error=%s", mr_err_name(l->get.req.err));
    mr_lock_leave(&s->watch_lock);
    mr_store_req_done(&l->get.req);
    free(l);
}

static void watched_free(struct watched *watched)
{
    mr_list_remove(&watched->link);
    free((void *)watched->definition.data);
    free(watched);
}

/* With the lock: those that may have changed. Jobs that nobody watches any more are forgotten. */
static void collect(struct mr_job_service *s, struct looking *l, bool *ret_brief)
{
    *ret_brief = true;
    s->watch_dirty = false;
    for (struct mr_link *at = s->watched.next, *next; at != &s->watched; at = next) {
        struct watched *watched = mr_container(at, struct watched, link);
        next = at->next;
        if (watched->reading)
            continue;
        if (mr_list_empty(&watched->watches)) {
            watched_free(watched);
            continue;
        }
        if (!watched->dirty)
            continue;
        if (l->n == PAGE_MAX) {
            s->watch_dirty = true;
            break;
        }
        watched->dirty = false;
        *ret_brief = *ret_brief && watched->definition.data != NULL;
        l->uids[l->n++] = watched->uid;
    }
}

void job_watch_look(struct mr_job_service *s)
{
    bool brief;
    struct looking *l = NULL;
    mr_lock_enter(&s->watch_lock);
    if (s->watch_dirty && !s->watch_reading && !s->watch_closed)
        l = calloc(1, sizeof *l);
    if (l != NULL)
        collect(s, l, &brief);
    s->watch_reading = s->watch_reading || (l != NULL && l->n > 0);
    bool any = !mr_list_empty(&s->watched);
    mr_lock_leave(&s->watch_lock);
    if (any && !mr_timer_running(&s->watch_look) && !s->desk.stopping)
        mr_desk_after(&s->desk, &s->watch_look, s->settings.watch_ms);
    if (l == NULL)
        return;
    if (l->n == 0) {
        free(l);
        return;
    }
    l->errand = (struct mr_errand){.desk = &s->desk, .done = looked};
    l->get = (struct mr_store_job_get){
        .req.op = MR_STORE_JOB_GET, .uids = l->uids, .n = l->n, .brief = brief, .settled = true};
    mr_errand_store(&l->errand, &l->get.req);
}

/* Others change jobs as well. */
static void look_at_all(struct mr_timer *timer, void *arg)
{
    struct mr_job_service *s = arg;
    (void)timer;
    mr_lock_enter(&s->watch_lock);
    for (struct mr_link *at = s->watched.next; at != &s->watched; at = at->next)
        make_dirty(mr_container(at, struct watched, link), s);
    mr_lock_leave(&s->watch_lock);
}

void job_watch_init(struct mr_job_service *s)
{
    mr_list_init(&s->watched);
    mr_lock_init(&s->watch_lock);
    mr_timer_init(&s->watch_look, look_at_all);
}

void job_watch_changed(struct mr_job_service *s, const struct mr_uuid *uid)
{
    mr_lock_enter(&s->watch_lock);
    struct watched *watched = find(s, uid);
    if (watched != NULL)
        make_dirty(watched, s);
    mr_lock_leave(&s->watch_lock);
}

void job_watch_row(struct mr_job_service *s, const struct mr_store_job *row)
{
    mr_lock_enter(&s->watch_lock);
    struct watched *watched = s->watch_closed ? NULL : find(s, &row->uid);
    bool next = watched != NULL && !watched->reading && watched->definition.data != NULL &&
                row->version > watched->known &&
                least_seen(watched, row->version) + 1 >= row->version;
    if (next) {
        watched->known = row->version;
        tell(watched, row, 0);
    } else if (watched != NULL && row->version > watched->known) {
        make_dirty(watched, s);
    }
    mr_lock_leave(&s->watch_lock);
}

void job_watch_close(struct mr_job_service *s)
{
    mr_desk_cancel(&s->desk, &s->watch_look);
    mr_lock_enter(&s->watch_lock);
    s->watch_closed = true;
    for (struct mr_link *at = s->watched.next; at != &s->watched; at = at->next)
        end_all(mr_container(at, struct watched, link), MR_CLOSED);
    mr_lock_leave(&s->watch_lock);
}

void job_watch_done(struct mr_job_service *s)
{
    while (!mr_list_empty(&s->watched))
        watched_free(mr_container(s->watched.next, struct watched, link));
    mr_lock_done(&s->watch_lock);
}

/* ---- watches --------------------------------------------------------------------------------- */

/* With the lock. NULL: no memory. */
static struct watched *find_or_make(struct mr_job_service *s, const struct mr_uuid *uid)
{
    struct watched *watched = find(s, uid);
    if (watched != NULL)
        return watched;
    watched = calloc(1, sizeof *watched);
    if (watched == NULL)
        return NULL;
    watched->uid = *uid;
    mr_list_init(&watched->watches);
    mr_list_init(&watched->todo);
    mr_list_push_back(&s->watched, &watched->link);
    return watched;
}

enum mr_err mr_job_service_watch(struct mr_job_service *service,
                                 const struct mr_job_watch_options *options,
                                 struct mr_job_watch **ret_watch)
{
    struct mr_job_service *s = service;
    struct mr_uuid uid;
    if (!mr_uuid_parse(options->id, &uid))
        return MR_INVALID;
    struct mr_job_watch *watch = calloc(1, sizeof *watch);
    if (watch == NULL)
        return MR_NOMEM;
    watch->s = s;
    watch->options = *options;
    watch->options.id = (struct mr_slice){0};
    watch->seen = options->after;
    mr_lock_enter(&s->watch_lock);
    struct watched *watched = s->watch_closed ? NULL : find_or_make(s, &uid);
    enum mr_err err = watched != NULL ? MR_OK : s->watch_closed ? MR_CLOSED : MR_NOMEM;
    if (err == MR_OK) {
        mr_list_push_back(&watched->watches, &watch->link);
        make_dirty(watched, s);
        *ret_watch = watch; /* before the first callback, which may free it */
    }
    mr_lock_leave(&s->watch_lock);
    if (err != MR_OK) {
        free(watch);
        return err;
    }
    JOB_COUNT(s, watches, 1);
    mr_chan_wake(&s->desk.inbox);
    return MR_OK;
}

void mr_job_watch_free(struct mr_job_watch *watch)
{
    if (watch == NULL)
        return;
    struct mr_job_service *s = watch->s;
    mr_lock_enter(&s->lock);
    s->figures.watches--;
    mr_lock_leave(&s->lock);
    mr_lock_enter(&s->watch_lock);
    while (s->calling == watch && s->caller != &this_thread)
        (void)mr_lock_wait(&s->watch_lock, INT64_MAX);
    mr_list_remove(&watch->link);
    watch->freed = s->calling == watch;
    bool now = !watch->freed;
    mr_lock_leave(&s->watch_lock);
    if (now)
        free(watch);
}
