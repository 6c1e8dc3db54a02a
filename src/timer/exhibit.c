/* SPDX-License-Identifier: Apache-2.0 */
/* See exhibit.h. */
#include "timer/exhibit.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/diag.h"
#include "broker/broker.h"
#include "store/store.h"
#include "timer/def.h"
#include "timer/scheduler.h"

enum {
    EVERY_MS = 10 * 1000, /* Asynq's */
    TTL_S = 20,
    SOON_MS = 500,      /* after a change, and no more often */
    FIRINGS_MAX = 100,  /* of a timer, each time */
    SLACK_MS = 2 * 1000 /* what was fired so long before the last time is shown again */
};

struct mr_exhibition {
    struct mr_broker *broker;
    struct mr_store *store;
    char prefix[MR_STORE_OWNER_MAX + 1]; /* of our leases */
    char name[MR_STORE_OWNER_MAX + MR_UUID_TEXT_LEN + 8];
    int64_t shown_ms; /* when that was last done */
    bool visible;     /* something is shown */
    bool failed;      /* the last time; that was said */
    struct mr_lock lock;
    bool changed, stopping; /* under the lock */
    pthread_t thread;
};

/* What is shown this time. */
struct show {
    struct mr_exhibition *exhibition;
    struct mr_arena arena;
    struct mr_exhibit *entries;
    struct mr_exhibited *done;
    size_t n, done_n;
    int64_t now_ms;
};

/* ---- a timer --------------------------------------------------------------------------------- */

/* As Asynq would write it down: "CRON_TZ=Europe/Berlin 30 2 * * *", "@every 10m". */
static enum mr_err put_spec(struct show *show, const struct mr_timer_options *timer,
                            struct mr_slice *ret_spec)
{
    struct mr_buf text = {0};
    enum mr_err err;
    int tz_len = (int)timer->tz.len, len = (int)timer->expression.len;
    const char *expression = len > 0 ? timer->expression.data : "";
    bool utc = timer->tz.len == 0 || mr_slice_equal(timer->tz, MR_SLICE_LIT("UTC"));
    if (timer->kind == MR_TIMER_CRON && utc)
        err = mr_buf_printf(&text, "%.*s", len, expression);
    else if (timer->kind == MR_TIMER_CRON)
        err = mr_buf_printf(&text, "CRON_TZ=%.*s %.*s", tz_len, (const char *)timer->tz.data, len,
                            expression);
    else
        err = mr_buf_printf(&text, "@%s%s%.*s", mr_timer_kind_name(timer->kind), len > 0 ? " " : "",
                            len, expression);
    if (err == MR_OK)
        err = mr_arena_copy(&show->arena, mr_buf_slice(&text), ret_spec);
    mr_buf_done(&text);
    return err;
}

static enum mr_err add_firings(struct show *show, const struct mr_uuid *uid, struct mr_slice id)
{
    struct mr_store_firing_list req = {
        .req.op = MR_STORE_FIRING_LIST, .uid = *uid, .max = FIRINGS_MAX};
    enum mr_err err = mr_store_call(show->exhibition->store, &req.req);
    int64_t since_ms = show->exhibition->shown_ms - SLACK_MS;
    for (size_t i = 0; err == MR_OK && i < req.n && show->done_n < MR_EXHIBITS_MAX; i++) {
        const struct mr_store_firing *row = &req.firings[i];
        char task_id[MR_FIRING_ID_MAX + 1];
        bool is_task = row->state >= MR_LEDGER_DISPATCHED && row->state < MR_LEDGER_SKIPPED &&
                       row->state != MR_LEDGER_CANCELLED;
        if (!is_task || row->fired_ms < since_ms)
            continue;
        size_t len = mr_firing_id(&row->uid, row->planned_ms, row->run, task_id);
        struct mr_exhibited *done = &show->done[show->done_n];
        *done = (struct mr_exhibited){.id = id, .at_ms = row->fired_ms};
        err = mr_arena_copy(&show->arena, mr_slice_make(task_id, len), &done->task_id);
        show->done_n += err == MR_OK;
    }
    mr_store_req_done(&req.req);
    return err;
}

static enum mr_err add_timer(struct show *show, const struct mr_store_timer *row)
{
    struct mr_exhibit *entry = &show->entries[show->n];
    struct mr_timer_options timer;
    struct mr_slice definition;
    char id[MR_UUID_TEXT_LEN + 1];
    MR_TRY(mr_arena_copy(&show->arena, row->definition, &definition));
    MR_TRY(mr_timer_decode(definition, &show->arena, &timer));
    *entry = (struct mr_exhibit){
        .type = timer.type,
        .payload = timer.payload,
        .queue = timer.queue,
        .max_retry = timer.max_retry,
        .timeout_ms = timer.timeout_ms,
        .next_ms = row->next_ms != MR_STORE_NEVER_MS ? row->next_ms : 0,
        .last_ms = row->last_ms,
    };
    mr_uuid_format(&row->uid, id);
    MR_TRY(mr_arena_copy(&show->arena, mr_slice_str(id), &entry->id));
    MR_TRY(put_spec(show, &timer, &entry->spec));
    show->n++;
    bool fired = row->last_ms >= show->exhibition->shown_ms - SLACK_MS - EVERY_MS;
    return fired ? add_firings(show, &row->uid, entry->id) : MR_OK;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static enum mr_err add_app(struct show *show, struct mr_slice app)
{
    struct mr_store_timer_list req = {
        .req.op = MR_STORE_TIMER_LIST,
        .app = app,
        .states = MR_ROW_BIT(MR_ROW_ACTIVE),
    };
    struct mr_arena places = {0};
    enum mr_err err = MR_OK;
    for (req.more = true; err == MR_OK && req.more && show->n < MR_EXHIBITS_MAX;) {
        req.max = MR_EXHIBITS_MAX - show->n;
        err = mr_store_call(show->exhibition->store, &req.req);
        for (size_t i = 0; err == MR_OK && i < req.n; i++)
            err = add_timer(show, &req.timers[i]);
        if (err == MR_OK)
            err = mr_arena_copy(&places, req.place_name, &req.after_name);
        mr_store_req_done(&req.req);
    }
    mr_arena_done(&places);
    return err;
}

/* Apps whose lease is ours. */
static enum mr_err add_apps(struct show *show)
{
    struct mr_exhibition *exhibition = show->exhibition;
    struct mr_store_lease_list req = {.req.op = MR_STORE_LEASE_LIST,
                                      .prefix = MR_SLICE_LIT(MR_APP_LEASE_PREFIX),
                                      .max = MR_BATCH_MAX};
    struct mr_slice prefix = mr_slice_str(exhibition->prefix);
    size_t skip = strlen(MR_APP_LEASE_PREFIX);
    enum mr_err err = mr_store_call(exhibition->store, &req.req);
    for (size_t i = 0; err == MR_OK && i < req.n; i++) {
        const struct mr_store_lease_row *row = &req.leases[i];
        if (row->until_ms > req.now_ms && mr_slice_starts_with(row->owner, prefix))
            err = add_app(show,
                          mr_slice_make((const char *)row->name.data + skip, row->name.len - skip));
    }
    mr_store_req_done(&req.req);
    return err;
}

static enum mr_err send(struct mr_exhibition *exhibition, const struct show *show, int64_t ttl_s)
{
    struct mr_req_exhibit req = {
        .req.op = MR_OP_EXHIBIT,
        .name = mr_slice_str(exhibition->name),
        .ttl_s = ttl_s,
        .entries = show->entries,
        .n = show->n,
        .done = show->done,
        .done_n = show->done_n,
    };
    enum mr_err err = mr_broker_call(exhibition->broker, &req.req);
    mr_req_done(&req.req);
    return err;
}

static void show_all(struct mr_exhibition *exhibition)
{
    struct show show = {.exhibition = exhibition,
                        .now_ms = mr_wall_ms(mr_wall_now(mr_clock_system()))};
    show.entries = mr_arena_calloc(&show.arena, MR_EXHIBITS_MAX, sizeof *show.entries);
    show.done = mr_arena_calloc(&show.arena, MR_EXHIBITS_MAX, sizeof *show.done);
    enum mr_err err = show.entries != NULL && show.done != NULL ? add_apps(&show) : MR_NOMEM;
    if (err == MR_OK && (show.n > 0 || exhibition->visible))
        err = send(exhibition, &show, show.n > 0 ? TTL_S : 0);
    exhibition->visible |= show.n > 0;
    if (err == MR_OK) {
        exhibition->shown_ms = show.now_ms;
        exhibition->visible = show.n > 0;
    } else if (!exhibition->failed) {
        mr_diag(MR_DIAG_WARN, "timers.exhibit", "error=\"%s\" trying=again", mr_err_text(err));
    }
    exhibition->failed = err != MR_OK;
    mr_arena_done(&show.arena);
}

/* ---- the thread ------------------------------------------------------------------------------ */

/* With the lock held: until it is time. False: to stop. */
static bool wait_for_time(struct mr_exhibition *exhibition)
{
    mr_mono began = mr_mono_now(mr_clock_system());
    while (!exhibition->stopping) {
        int64_t wait_ms = exhibition->changed ? SOON_MS : EVERY_MS;
        int64_t left = mr_mono_add_ms(began, wait_ms).ns - mr_mono_now(mr_clock_system()).ns;
        if (left <= 0)
            return true;
        (void)mr_lock_wait(&exhibition->lock, left);
    }
    return false;
}

static void *run(void *arg)
{
    struct mr_exhibition *exhibition = arg;
    struct show nothing = {0};
    mr_lock_enter(&exhibition->lock);
    while (wait_for_time(exhibition)) {
        exhibition->changed = false;
        mr_lock_leave(&exhibition->lock);
        show_all(exhibition);
        mr_lock_enter(&exhibition->lock);
    }
    mr_lock_leave(&exhibition->lock);
    if (exhibition->visible)
        (void)!send(exhibition, &nothing, 0); /* it goes by itself, too */
    return NULL;
}

enum mr_err mr_exhibition_start(struct mr_broker *broker, struct mr_store *store, const char *node,
                                struct mr_exhibition **ret_exhibition)
{
    struct mr_exhibition *exhibition = calloc(1, sizeof *exhibition);
    struct mr_uuid uuid;
    char text[MR_UUID_TEXT_LEN + 1];
    if (exhibition == NULL)
        return MR_NOMEM;
    mr_wall now = mr_wall_now(mr_clock_system());
    mr_uuid_make(&uuid, now, mr_rand_of_thread());
    mr_uuid_format(&uuid, text);
    exhibition->broker = broker;
    exhibition->store = store;
    exhibition->shown_ms = mr_wall_ms(now);
    exhibition->changed = true;
    (void)snprintf(exhibition->prefix, sizeof exhibition->prefix, "%.*s/", MR_NAME_MAX, node);
    (void)snprintf(exhibition->name, sizeof exhibition->name, "%.*s:%s", MR_NAME_MAX, node, text);
    mr_lock_init(&exhibition->lock);
    enum mr_err err = mr_thread_start(&exhibition->thread, "mr-exhibit", run, exhibition);
    if (err != MR_OK) {
        mr_lock_done(&exhibition->lock);
        free(exhibition);
        return err;
    }
    *ret_exhibition = exhibition;
    return MR_OK;
}

void mr_exhibition_stop(struct mr_exhibition *exhibition)
{
    if (exhibition == NULL)
        return;
    mr_lock_enter(&exhibition->lock);
    exhibition->stopping = true;
    mr_lock_notify_all(&exhibition->lock);
    mr_lock_leave(&exhibition->lock);
    mr_thread_join(exhibition->thread);
    mr_lock_done(&exhibition->lock);
    free(exhibition);
}

void mr_exhibition_changed(struct mr_exhibition *exhibition)
{
    if (exhibition == NULL)
        return;
    mr_lock_enter(&exhibition->lock);
    exhibition->changed = true;
    mr_lock_notify_one(&exhibition->lock);
    mr_lock_leave(&exhibition->lock);
}
