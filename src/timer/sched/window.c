/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The window: timers of an app that are due soon are in memory, and no others but those whose runs are watched. It is
 * extended when half of it is over; in between, what was changed is read, by whichever server it was applied. What
 * is not seen in time does no harm: a transaction for another version than the row has does nothing.
 */
#include <stdlib.h>

#include "timer/def.h"
#include "timer/sched/internal.h"

/* ---- definitions ----------------------------------------------------------------------------- */

static enum mr_err def_fill(struct mr_scheduler *s, const struct mr_store_timer *row,
                            struct def *def, struct mr_detail *detail)
{
    struct mr_slice bytes;
    MR_TRY(mr_arena_copy(&def->arena, row->definition, &bytes));
    MR_TRY(mr_timer_decode(bytes, &def->arena, &def->options));
    MR_TRY(mr_timer_rule(s->zones, &def->options, row->created_ms, &def->rule, detail));
    const struct mr_timer_options *o = &def->options;
    def->limit = o->max_running > 0               ? o->max_running
                 : o->overlap == MR_OVERLAP_ALLOW ? UINT32_MAX
                                                  : 1;
    s->nodes_wanted = s->nodes_wanted || sched_needs_nodes(o);
    def->watched = def->limit != UINT32_MAX || o->expire_ms > 0 ||
                   mr_rule_kind_of(def->rule) == MR_TIMER_AFTER_DONE;
    return MR_OK;
}

enum mr_err sched_def_new(struct mr_scheduler *s, const struct mr_store_timer *row,
                          struct def **ret_def)
{
    struct mr_detail detail = {0};
    char name[MR_NAME_MAX * 4];
    struct def *def = *ret_def = calloc(1, sizeof *def);
    if (def == NULL)
        return MR_NOMEM;
    def->refs = 1;
    enum mr_err err = def_fill(s, row, def, &detail);
    if (err == MR_OK)
        return MR_OK;
    if (err != MR_NOMEM)
        mr_diag(MR_DIAG_ERROR, "timer.definition", "timer=\"%s\" error=%s text=\"%s\" ignoring",
                mr_diag_escape(row->name, name, sizeof name), mr_err_name(err), detail.text);
    sched_def_unref(def);
    *ret_def = NULL;
    return err;
}

struct def *sched_def_ref(struct def *def)
{
    def->refs++;
    return def;
}

void sched_def_unref(struct def *def)
{
    if (def == NULL || --def->refs > 0)
        return;
    mr_rule_free(def->rule);
    mr_arena_done(&def->arena);
    free(def);
}

/* ---- entries --------------------------------------------------------------------------------- */

static uint64_t map_hash(uint32_t handle, void *arg)
{
    return mr_uuid_hash(&((struct app *)arg)->entries[handle]->uid);
}

static bool map_equal(uint32_t handle, const void *key, void *arg)
{
    return memcmp(&((struct app *)arg)->entries[handle]->uid, key, sizeof(struct mr_uuid)) == 0;
}

static const struct mr_map_ops map_ops = {map_hash, map_equal, NULL};

struct entry *sched_entry_find(struct app *app, const struct mr_uuid *uid)
{
    uint32_t handle = mr_map_find(app->map, mr_uuid_hash(uid), uid);
    return handle != MR_MAP_NONE ? app->entries[handle] : NULL;
}

/* Into the list of what is due. */
static void sched_entry_due(struct entry *entry)
{
    mr_desk_cancel(&entry->app->s->desk, &entry->timer);
    mr_list_remove(&entry->link);
    mr_list_push_back(&entry->app->due, &entry->link);
    entry->state = ENTRY_DUE;
}

/* Its moment has come; or half of the way to it, when that is far. Who is there at its time fires it, also when many
 * others are due and the store takes longer than a misfire. */
static void come(struct mr_timer *timer, void *arg)
{
    struct entry *entry = mr_container(timer, struct entry, timer);
    struct mr_scheduler *s = entry->app->s;
    struct mr_plan_state *plan = &entry->plan;
    int64_t due_ms = mr_plan_due_ms(entry->def->rule, &entry->uid, plan->next_ms);
    (void)arg;
    if (sched_now_ms(s) - due_ms <= s->settings.misfire_ms && plan->admitted_ms < plan->next_ms)
        plan->admitted_ms = plan->next_ms;
    sched_entry_due(entry);
}

static enum mr_err room_for_one(struct app *app)
{
    if (app->entries_n < app->entries_cap)
        return MR_OK;
    uint32_t cap = app->entries_cap > 0 ? 2 * app->entries_cap : 64;
    struct entry **grown = realloc(app->entries, cap * sizeof *grown);
    if (grown == NULL)
        return MR_NOMEM;
    app->entries = grown;
    app->entries_cap = cap;
    return MR_OK;
}

/* The array has no holes: the last one takes the place of one that goes. */
static struct entry *entry_new(struct app *app, const struct mr_uuid *uid)
{
    struct entry *entry = room_for_one(app) == MR_OK ? calloc(1, sizeof *entry) : NULL;
    if (entry == NULL)
        return NULL;
    entry->app = app;
    entry->uid = *uid;
    entry->handle = app->entries_n;
    entry->plan.next_ms = MR_NEVER_MS;
    mr_timer_init(&entry->timer, come);
    mr_list_init(&entry->link);
    app->entries[entry->handle] = entry;
    if (mr_map_insert(app->map, mr_uuid_hash(uid), entry->handle) != MR_OK) {
        free(entry);
        return NULL;
    }
    app->entries_n++;
    SCHED_COUNT(app->s, in_memory, 1);
    return entry;
}

static void entry_free(struct entry *entry)
{
    struct app *app = entry->app;
    struct entry *last = app->entries[app->entries_n - 1];
    mr_map_remove(app->map, mr_uuid_hash(&entry->uid), entry->handle);
    if (last != entry) {
        mr_map_remove(app->map, mr_uuid_hash(&last->uid), last->handle);
        last->handle = entry->handle;
        app->entries[last->handle] = last;
        /* There was room for it a moment ago. */
        enum mr_err err = mr_map_insert(app->map, mr_uuid_hash(&last->uid), last->handle);
        mr_assert(err == MR_OK);
    }
    app->entries_n--;
    mr_desk_cancel(&app->s->desk, &entry->timer);
    mr_list_remove(&entry->link);
    sched_def_unref(entry->def);
    free(entry->open);
    free(entry);
    SCHED_COUNT(app->s, in_memory, (uint64_t)-1);
}

void sched_entry_settle(struct entry *entry)
{
    struct app *app = entry->app;
    if (entry->state == ENTRY_FIRING || entry->state == ENTRY_ASKS)
        return;
    mr_list_remove(&entry->link);
    if (entry->plan.next_ms != MR_NEVER_MS && entry->plan.next_ms <= app->until_ms) {
        entry->state = ENTRY_WAITS;
        sched_at(app->s, &entry->timer,
                 mr_plan_due_ms(entry->def->rule, &entry->uid, entry->plan.next_ms));
    } else if (entry->open_n > 0) {
        entry->state = ENTRY_RESTS;
        mr_desk_cancel(&app->s->desk, &entry->timer);
    } else {
        entry_free(entry);
    }
}

static struct open_run *open_find(struct entry *entry, int64_t planned_ms)
{
    for (uint32_t i = 0; i < entry->open_n; i++) {
        if (entry->open[i].planned_ms == planned_ms)
            return &entry->open[i];
    }
    return NULL;
}

void sched_entry_opened(struct entry *entry, int64_t planned_ms, uint32_t run, bool held)
{
    struct open_run *open = open_find(entry, planned_ms);
    if (!entry->def->watched && open == NULL)
        return;
    if (open == NULL && entry->open_n == entry->open_cap) {
        uint32_t cap = entry->open_cap > 0 ? 2 * entry->open_cap : 4;
        struct open_run *grown = realloc(entry->open, cap * sizeof *grown);
        if (grown == NULL)
            return; /* a run too many at worst */
        entry->open = grown;
        entry->open_cap = cap;
    }
    if (open == NULL)
        open = &entry->open[entry->open_n++];
    *open = (struct open_run){planned_ms, run, held};
}

void sched_entry_maybe_opened(struct entry *entry, int64_t planned_ms, uint32_t run, bool held)
{
    entry->unsure |= entry->def->watched && open_find(entry, planned_ms) == NULL;
    sched_entry_opened(entry, planned_ms, run, held);
}

void sched_entry_make_sure(struct entry *entry)
{
    if (!entry->unsure || entry->state == ENTRY_ASKS)
        return;
    if (entry->state == ENTRY_FIRING)
        entry->changed = true;
    else
        sched_entry_ask_open(entry);
}

void sched_entry_open_are(struct entry *entry, const struct mr_store_firing *rows, size_t n)
{
    for (uint32_t i = entry->open_n; i-- > 0;) {
        size_t at = 0;
        while (at < n && rows[at].planned_ms != entry->open[i].planned_ms)
            at++;
        if (at == n)
            entry->open[i] = entry->open[--entry->open_n];
    }
    for (size_t i = 0; i < n; i++) {
        const struct open_run *open = open_find(entry, rows[i].planned_ms);
        bool waits = rows[i].state == MR_LEDGER_WAITING && rows[i].reason.len > 0;
        /* One that was let go is on its way, and its row does not say so yet. */
        bool let_go = open != NULL && !open->held && open->run == rows[i].run;
        sched_entry_opened(entry, rows[i].planned_ms, rows[i].run, waits && !let_go);
    }
}

void sched_entry_closed(struct entry *entry, int64_t planned_ms)
{
    struct open_run *open = open_find(entry, planned_ms);
    entry->unsure |= entry->state == ENTRY_ASKS; /* the answer may be from before */
    if (open == NULL)
        return;
    *open = entry->open[--entry->open_n];
    if (entry->state == ENTRY_RESTS)
        sched_entry_settle(entry);
}

uint32_t sched_entry_held(const struct entry *entry)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < entry->open_n; i++)
        n += entry->open[i].held;
    return n;
}

uint32_t sched_entry_running(const struct entry *entry)
{
    return sched_entry_running_without(entry, -1);
}

uint32_t sched_entry_running_without(const struct entry *entry, int64_t planned_ms)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < entry->open_n; i++)
        n += !entry->open[i].held && entry->open[i].planned_ms != planned_ms;
    return n;
}

/* ---- rows become entries --------------------------------------------------------------------- */

/* There is no memory to look at it now: it is read again as if it were new. */
static void entry_forget(struct entry *entry)
{
    entry->seen = 0;
    entry->app->forgot = true;
}

/* A timer that fires no more is kept for its runs only. */
static void entry_unplan(struct entry *entry)
{
    entry->plan.next_ms = MR_NEVER_MS;
    if (entry->state == ENTRY_FIRING)
        entry->changed = true;
    else
        sched_entry_settle(entry);
}

struct asking {
    struct mr_errand errand;
    struct mr_uuid uid;
    struct mr_store_timer_key key;
    struct mr_store_timer_get get;
    struct mr_store_firing_open open;
};

static void open_asked(struct mr_errand *errand)
{
    struct asking *a = mr_container(errand, struct asking, errand);
    struct entry *entry =
        sched_errand_current(errand) ? sched_entry_find(sched_app_of(errand), &a->uid) : NULL;
    if (entry != NULL && entry->state == ENTRY_ASKS) {
        if (a->open.req.err == MR_OK)
            sched_entry_open_are(entry, a->open.firings, a->open.n);
        entry->state = ENTRY_RESTS;
        if (entry->unsure && a->open.req.err == MR_OK)
            sched_entry_ask_open(entry);
        else
            sched_entry_settle(entry);
    }
    mr_store_req_done(&a->open.req);
    free(a);
}

static struct asking *ask_new(struct entry *entry, void (*done)(struct mr_errand *errand))
{
    struct asking *a = calloc(1, sizeof *a);
    if (a == NULL)
        return NULL;
    a->errand = (struct mr_errand){.desk = &entry->app->s->desk, .of = entry->app, .done = done};
    a->uid = entry->uid;
    mr_desk_cancel(&entry->app->s->desk, &entry->timer);
    mr_list_remove(&entry->link);
    entry->state = ENTRY_ASKS;
    return a;
}

void sched_entry_ask_open(struct entry *entry)
{
    struct asking *a = ask_new(entry, open_asked);
    entry->unsure = a == NULL;
    if (a == NULL) {
        entry->state = ENTRY_RESTS;
        entry_forget(entry);
        sched_entry_settle(entry);
        return;
    }
    a->open = (struct mr_store_firing_open){.req.op = MR_STORE_FIRING_OPEN,
                                            .app = mr_slice_str(entry->app->name),
                                            .uid = entry->uid,
                                            .max = PAGE_MAX};
    sched_errand_store(&a->errand, &a->open.req);
}

/* The entry is as the row says. How many of its runs are open is looked at when the store finds too many of them, or
 * when others have done something to them: then the version is the same. */
static void entry_take(struct entry *entry, const struct mr_store_timer *row, struct def *def)
{
    bool acted = entry->def != NULL && entry->version == row->version && row->changed > entry->seen;
    sched_def_unref(entry->def);
    entry->def = def;
    entry->version = row->version;
    entry->seen = row->changed;
    entry->plan = (struct mr_plan_state){.next_ms = row->next_ms, .fired = row->fired};
    if (def->watched && (acted || entry->unsure))
        sched_entry_ask_open(entry);
    else
        sched_entry_settle(entry);
}

struct entry *sched_entry_load(struct app *app, const struct mr_store_timer *row)
{
    struct entry *entry = sched_entry_find(app, &row->uid);
    if (entry != NULL && row->version <= entry->version && row->changed <= entry->seen) {
        /* It is known, and we alone have moved it since; but the window may have come up to it. */
        if (entry->state == ENTRY_RESTS)
            sched_entry_settle(entry);
        return sched_entry_find(app, &row->uid);
    }
    if (row->state != MR_ROW_ACTIVE) {
        if (entry != NULL) {
            entry->version = row->version;
            entry_unplan(entry);
        }
        return NULL;
    }
    if (entry != NULL && entry->state == ENTRY_FIRING) {
        entry->changed = true;
        return entry;
    }
    struct def *def;
    enum mr_err err = sched_def_new(app->s, row, &def);
    if (err == MR_OK && entry == NULL)
        entry = entry_new(app, &row->uid);
    if (err == MR_OK && entry == NULL)
        err = MR_NOMEM;
    if (err != MR_OK) {
        app->forgot |= err == MR_NOMEM;
        sched_def_unref(def);
        return NULL;
    }
    entry_take(entry, row, def);
    return sched_entry_find(app, &row->uid);
}

struct entry *sched_entry_rest(struct app *app, const struct mr_store_timer *row)
{
    struct def *def;
    enum mr_err err = sched_def_new(app->s, row, &def);
    struct entry *entry = err == MR_OK && def->watched ? entry_new(app, &row->uid) : NULL;
    if (entry == NULL) {
        sched_def_unref(def);
        return NULL;
    }
    entry->def = def;
    entry->version = row->version;
    entry->seen = row->changed;
    entry->plan.fired = row->fired;
    if (row->state == MR_ROW_ACTIVE)
        entry->plan.next_ms = row->next_ms;
    return entry;
}

static void row_asked(struct mr_errand *errand)
{
    struct asking *a = mr_container(errand, struct asking, errand);
    struct entry *entry =
        sched_errand_current(errand) ? sched_entry_find(sched_app_of(errand), &a->uid) : NULL;
    if (entry != NULL && entry->state == ENTRY_ASKS && a->get.req.err == MR_OK) {
        const struct mr_store_timer *row = &a->get.timers[0];
        struct def *def = NULL;
        enum mr_err err = row->state == MR_ROW_ACTIVE ? sched_def_new(sched_of(errand), row, &def)
                                                      : MR_WRONG_STATE;
        entry->state = ENTRY_RESTS;
        if (err == MR_NOMEM)
            entry_forget(entry);
        if (err == MR_OK)
            entry_take(entry, row, def);
        else
            entry_unplan(entry);
    } else if (entry != NULL && entry->state == ENTRY_ASKS) {
        /* What it was will do: the next transaction says if it is not so any more. */
        entry->state = ENTRY_RESTS;
        sched_entry_settle(entry);
    }
    mr_store_req_done(&a->get.req);
    free(a);
}

void sched_entry_ask(struct entry *entry)
{
    struct asking *a = ask_new(entry, row_asked);
    entry->changed = false;
    if (a == NULL) {
        entry->state = ENTRY_RESTS;
        entry_forget(entry);
        entry_unplan(entry);
        return;
    }
    a->key.uid = entry->uid;
    a->get = (struct mr_store_timer_get){.req.op = MR_STORE_TIMER_GET, .keys = &a->key, .n = 1};
    sched_errand_store(&a->errand, &a->get.req);
}

/* ---- reading --------------------------------------------------------------------------------- */

struct reading {
    struct mr_errand errand;
    struct mr_store_due req;
    bool extends;    /* reads what is behind the old end of the window */
    bool anew;       /* ... and what is before it */
    int64_t from_ms; /* that old end; 0: there was none */
    uint64_t changed;
    bool begun, more;
};

static void read_next(struct reading *r)
{
    struct mr_store_due req = {.req.op = MR_STORE_DUE,
                               .app = mr_slice_str(sched_app_of(&r->errand)->name),
                               .slots = sched_app_of(&r->errand)->slots,
                               .until_ms = sched_app_of(&r->errand)->until_ms,
                               .since = r->extends ? 0 : sched_app_of(&r->errand)->since,
                               .after_ms = r->req.after_ms,
                               .after_uid = r->req.after_uid,
                               .max = PAGE_MAX};
    r->req = req;
    sched_errand_store(&r->errand, &r->req.req);
}

static void read_done(struct mr_errand *errand);

static void read_begin(struct app *app, bool extends)
{
    struct reading *r = calloc(1, sizeof *r);
    if (r == NULL)
        return;
    r->errand = (struct mr_errand){.desk = &app->s->desk, .of = app, .done = read_done};
    r->anew = app->forgot;
    r->extends = extends || r->anew;
    r->from_ms = r->anew ? 0 : app->until_ms;
    app->forgot = false;
    if (extends && r->from_ms != 0) {
        r->req.after_ms = r->from_ms;
        memset(&r->req.after_uid, 0xff, sizeof r->req.after_uid);
    }
    /* From here on what moves into the new part of the window stays in memory, so that it does not
     * matter whether it is moved before or after it is read. */
    if (r->extends)
        app->until_ms = sched_now_ms(app->s) + app->s->settings.window_ms;
    app->reading = true;
    read_next(r);
}

static bool half_over(const struct app *app)
{
    return sched_now_ms(app->s) + app->s->settings.window_ms / 2 >= app->until_ms;
}

static void read_end(struct reading *r, enum mr_err err)
{
    struct app *app = sched_app_of(&r->errand);
    bool extends = r->extends;
    free(r);
    app->reading = false;
    if (!extends && err == MR_OK && half_over(app)) {
        read_begin(app, true);
    } else if (app->read_again) {
        app->read_again = false;
        sched_window_read(app);
    }
}

static void read_page(struct reading *r)
{
    struct app *app = sched_app_of(&r->errand);
    if (!r->begun)
        r->changed = r->req.changed; /* of the first page: what comes between is said again */
    r->begun = true;
    for (size_t i = 0; i < r->req.n; i++)
        sched_entry_load(app, &r->req.timers[i]);
    r->more = r->req.more && r->req.n > 0;
    if (r->more) {
        r->req.after_ms = r->req.timers[r->req.n - 1].next_ms;
        r->req.after_uid = r->req.timers[r->req.n - 1].uid;
    } else if (!r->extends || r->from_ms == 0) {
        app->since = r->changed;
    }
}

/* After a long time without a server all timers may be overdue. They are not needed in memory at once: the oldest are
 * fired first. */
static bool is_too_much(const struct reading *r)
{
    const struct app *app = sched_app_of(&r->errand);
    return app->entries_n >= app->s->settings.backlog_max && r->req.after_ms < sched_now_ms(app->s);
}

void sched_window_go_on(struct app *app)
{
    struct reading *r = app->held;
    if (r == NULL || (is_too_much(r) && sched_is_firing(app)))
        return;
    app->held = NULL;
    read_next(r);
}

static void read_done(struct mr_errand *errand)
{
    struct reading *r = mr_container(errand, struct reading, errand);
    enum mr_err err = r->req.req.err;
    bool current = sched_errand_current(errand);
    r->more = false;
    if (current && err == MR_OK)
        read_page(r);
    else if (current && r->anew) /* not read: once more, later */
        sched_app_of(errand)->forgot = true;
    else if (current && r->extends)
        sched_app_of(errand)->until_ms = r->from_ms;
    mr_store_req_done(&r->req.req);
    if (!current)
        free(r); /* the app has begun anew, or not at all */
    else if (r->more && is_too_much(r))
        sched_app_of(errand)->held = r;
    else if (r->more)
        read_next(r);
    else
        read_end(r, err);
}

void sched_window_read(struct app *app)
{
    if (app->recovering)
        return; /* it reads when that is done */
    if (app->reading)
        app->read_again = true;
    else
        read_begin(app, app->until_ms == 0);
}

void sched_window_rewind(struct app *app)
{
    if (!app->owned)
        return;
    for (uint32_t i = 0; i < app->entries_n; i++) {
        if (app->entries[i]->state == ENTRY_WAITS)
            sched_entry_due(app->entries[i]); /* where it is seen how it stands now */
    }
    sched_window_read(app);
}

void sched_window_moved(struct app *app, const struct mr_uuid *uid)
{
    struct entry *entry = app->owned ? sched_entry_find(app, uid) : NULL;
    if (entry != NULL && entry->state == ENTRY_FIRING)
        entry->changed = true;
    else if (entry != NULL && entry->state != ENTRY_ASKS)
        sched_entry_ask(entry);
}

enum mr_err sched_window_init(struct app *app)
{
    mr_list_init(&app->due);
    return mr_map_new(&map_ops, app, &app->map);
}

void sched_window_drop(struct app *app)
{
    while (app->entries_n > 0)
        entry_free(app->entries[app->entries_n - 1]);
    free(app->held);
    app->held = NULL;
    app->until_ms = 0;
    app->since = 0;
    app->reading = app->read_again = app->forgot = false;
    app->fires = 0;
}

void sched_window_done(struct app *app)
{
    sched_window_drop(app);
    mr_map_free(app->map);
    free(app->entries);
}
