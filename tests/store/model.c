/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Random requests to a store, several at once, and to a naive model of the contract; every answer must be
 * the same, and so must all that can be looked at. MR_STEPS requests with each of MR_SEEDS seeds; MR_SEED for one.
 */
#include <stdio.h>

#include "base/rand.h"
#include "store/suite.h"

enum {
    APPS = 2,
    NAMES = 4,
    TIMERS = APPS * NAMES,
    LIVES = 3, /* uids of a name */
    FIRINGS_MAX = 4096,
    BATCH = 8,
    TIMES = 12,      /* planned times, 1000 apart */
    LOOK_EVERY = 10, /* rounds between looks at everything */
    TOGETHER = 4,    /* requests that may share a transaction */
};

struct model_timer {
    struct mr_store_timer row; /* state MR_ROW_NONE: no row */
    uint64_t step;             /* when something was applied to it */
};

struct model {
    struct suite *t;
    struct mr_rand rand;
    uint64_t step;
    struct model_timer timers[TIMERS];
    struct mr_store_firing firings[FIRINGS_MAX];
    size_t firings_n;
    uint64_t tokens[APPS];                  /* of the leases app:a, app:b */
    int owners[APPS];                       /* 0: nobody */
    uint64_t since[APPS], since_step[APPS]; /* of a look at what is due */
};

/* A request: what it was, and what the model needs to know to judge its answer. */
struct step {
    void (*check)(struct model *m, struct step *step);
    struct mr_event answered;
    size_t app, n;
    union {
        struct mr_store_req head;
        struct mr_store_timers_apply apply;
        struct mr_store_fire_batch fire;
        struct mr_store_firing_set set;
        struct mr_store_lease lease;
        struct mr_store_due due;
    } req;
    union {
        struct mr_store_apply apply[BATCH];
        struct mr_store_fire fire[BATCH];
        struct mr_store_set set[BATCH];
        struct mr_store_lease_item lease;
    } items;
    union {
        struct mr_store_applied apply[BATCH];
        struct mr_store_fired fire[BATCH];
        struct mr_store_set_result set[BATCH];
        struct mr_store_lease_result lease;
    } results;
    size_t timers[BATCH]; /* of an apply */
    int owner;            /* of a lease */
    uint64_t since_step;  /* of a look at what is due */
};

static const char *const app_names[APPS] = {"a", "b"};
static const char *const timer_names[NAMES] = {"n0", "n1", "n2", "n3"};
static const char *const lease_names[APPS] = {"app:a", "app:b"};
static const char *const owner_names[] = {"", "me", "you"};
static const char *const texts[] = {"", "one", "two", "three"};

static bool in_slots(uint64_t slots, const struct mr_uuid *uid)
{
    return slots == 0 || (slots >> (uid->bytes[15] & 63) & 1) != 0;
}

static uint64_t below(struct model *m, uint64_t n)
{
    return mr_rand_below(&m->rand, n);
}

static bool one_in(struct model *m, uint64_t n)
{
    return mr_rand_one_in(&m->rand, n);
}

static int64_t some_time(struct model *m)
{
    return one_in(m, 8) ? MR_STORE_NEVER_MS : (int64_t)(1 + below(m, TIMES)) * 1000;
}

static bool uid_is(const struct mr_uuid *a, const struct mr_uuid *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

static struct mr_uuid uid_of(size_t timer, uint64_t life)
{
    return suite_uid((unsigned)(1 + timer * LIVES + life));
}

static bool is_live(const struct mr_store_timer *row)
{
    return row->state >= MR_ROW_ACTIVE && row->state <= MR_ROW_FINISHED;
}

/* ---- applying ------------------------------------------------------------------------------- */

static struct mr_store_apply random_apply(struct model *m, size_t *ret_timer, bool alone)
{
    size_t timer = below(m, TIMERS);
    *ret_timer = timer;
    uint64_t there = m->timers[timer].row.version;
    struct mr_store_apply item = {
        .app = mr_slice_str(app_names[timer / NAMES]),
        .name = mr_slice_str(timer_names[timer % NAMES]),
        .uid = uid_of(alone && one_in(m, 5) ? below(m, TIMERS) : timer, below(m, LIVES)),
        .version = there + below(m, 4) > 1 ? there + below(m, 5) - (there > 1) : 1,
        .verb = one_in(m, 4) ? MR_APPLY_DELETE : MR_APPLY_PUT,
        .state = (enum mr_row_state)(one_in(m, 3) ? 1 + below(m, 3) : MR_ROW_ACTIVE),
        .definition = mr_slice_str(texts[below(m, 4)]),
        .next_ms = some_time(m),
        .created_ms = (int64_t)below(m, 100),
    };
    if (one_in(m, 4))
        item.keeps_of = there + (one_in(m, 4) ? 1 : 0);
    if (one_in(m, 6))
        item.if_version = one_in(m, 2) ? MR_STORE_IF_NONE : there + below(m, 2);
    if (item.version == 0)
        item.version = 1;
    return item;
}

/* Whether the first is what wins over the second. */
static int order_of(uint64_t version_a, bool delete_a, const struct mr_uuid *uid_a,
                    uint64_t version_b, bool delete_b, const struct mr_uuid *uid_b)
{
    if (version_a != version_b)
        return version_a < version_b ? -1 : 1;
    if (delete_a != delete_b)
        return delete_a ? 1 : -1;
    return delete_a ? 0 : memcmp(uid_a, uid_b, sizeof *uid_a);
}

static enum mr_err model_put(struct model *m, size_t timer, const struct mr_store_apply *item)
{
    struct mr_store_timer *row = &m->timers[timer].row;
    bool same = uid_is(&row->uid, &item->uid);
    bool kept = same && is_live(row) && item->keeps_of != 0 && item->keeps_of == row->version;
    bool ended = kept && row->state == MR_ROW_FINISHED && item->state != MR_ROW_PAUSED;
    row->uid = item->uid;
    row->version = item->version;
    row->state = ended ? MR_ROW_FINISHED : item->state;
    row->definition = item->definition;
    row->next_ms = kept ? row->next_ms : item->next_ms;
    if (!same) {
        row->fired = 0;
        row->last_ms = 0;
        row->created_ms = item->created_ms;
    }
    return MR_OK;
}

static enum mr_err model_delete(struct model *m, size_t timer, const struct mr_store_apply *item)
{
    struct mr_store_timer *row = &m->timers[timer].row;
    bool found = is_live(row), ever = found || row->state == MR_ROW_DELETED;
    row->version = item->version;
    row->state = ever ? MR_ROW_DELETED : MR_ROW_ABSENT;
    row->definition = MR_SLICE_LIT("");
    row->next_ms = MR_STORE_NEVER_MS;
    return found ? MR_OK : MR_NOT_FOUND;
}

static bool uid_is_taken(struct model *m, size_t timer, const struct mr_uuid *uid)
{
    for (size_t i = 0; i < TIMERS; i++)
        if (i != timer && is_live(&m->timers[i].row) && uid_is(&m->timers[i].row.uid, uid))
            return true;
    return false;
}

static enum mr_err model_apply(struct model *m, size_t timer, const struct mr_store_apply *item,
                               bool uid_taken)
{
    struct mr_store_timer *row = &m->timers[timer].row;
    bool deletes = item->verb == MR_APPLY_DELETE;
    if (row->state != MR_ROW_NONE) {
        int order =
            order_of(item->version, deletes, &item->uid, row->version, !is_live(row), &row->uid);
        if (order < 0)
            return MR_STALE;
        if (order == 0)
            return row->state == MR_ROW_ABSENT ? MR_NOT_FOUND : MR_OK;
    }
    if (!deletes && uid_taken)
        return MR_CONFLICT;
    if (item->if_version == MR_STORE_IF_NONE
            ? is_live(row)
            : item->if_version != 0 && (!is_live(row) || row->version != item->if_version))
        return MR_CONFLICT;
    m->timers[timer].step = m->step;
    return deletes ? model_delete(m, timer, item) : model_put(m, timer, item);
}

static void check_apply(struct model *m, struct step *step)
{
    const struct mr_store_apply *items = step->items.apply;
    const struct mr_store_applied *results = step->results.apply;
    bool taken[BATCH];
    for (size_t i = 0; i < step->n; i++)
        taken[i] = uid_is_taken(m, step->timers[i], &items[i].uid);
    for (size_t i = 0; i < step->n; i++) {
        assert_err(results[i].err, model_apply(m, step->timers[i], &items[i], taken[i]));
        const struct mr_store_timer *row = &m->timers[step->timers[i]].row;
        assert_int_equal(results[i].state, row->state);
        assert_int_equal(results[i].version, row->version);
        assert_true(row->state == MR_ROW_NONE || uid_is(&results[i].uid, &row->uid));
    }
}

static void make_apply(struct model *m, struct step *step)
{
    step->check = check_apply;
    step->n = one_in(m, 2) ? 1 : 1 + below(m, BATCH);
    for (size_t i = 0; i < step->n; i++)
        step->items.apply[i] = random_apply(m, &step->timers[i], step->n == 1);
    step->req.apply = (struct mr_store_timers_apply){.req.op = MR_STORE_TIMERS_APPLY,
                                                     .items = step->items.apply,
                                                     .n = step->n,
                                                     .results = step->results.apply};
}

/* ---- firing --------------------------------------------------------------------------------- */

static struct mr_store_timer *timer_by_uid(struct model *m, size_t app, const struct mr_uuid *uid)
{
    for (size_t i = app * NAMES; i < (app + 1) * NAMES; i++)
        if (is_live(&m->timers[i].row) && uid_is(&m->timers[i].row.uid, uid))
            return &m->timers[i].row;
    return NULL;
}

static struct mr_store_firing *firing_of(struct model *m, const struct mr_uuid *uid,
                                         int64_t planned_ms)
{
    for (size_t i = 0; i < m->firings_n; i++)
        if (m->firings[i].planned_ms == planned_ms && uid_is(&m->firings[i].uid, uid))
            return &m->firings[i];
    return NULL;
}

/* Mostly of a timer that is there, and as it is. */
static struct mr_store_move random_move(struct model *m, size_t app, const struct mr_uuid *uid)
{
    const struct mr_store_timer *row = timer_by_uid(m, app, uid);
    struct mr_store_move move = {
        .moves = true,
        .version = row && !one_in(m, 8) ? row->version : 1 + below(m, 5),
        .from_ms = row && !one_in(m, 8) ? row->next_ms : some_time(m),
        .to_ms = some_time(m),
        .state = one_in(m, 6)   ? MR_ROW_FINISHED
                 : one_in(m, 2) ? MR_ROW_ACTIVE
                                : MR_ROW_NONE,
        .counts = (uint32_t)below(m, 3),
        .last_ms = (int64_t)below(m, 3) * 1000,
    };
    while (move.to_ms == move.from_ms && move.state != MR_ROW_FINISHED)
        move.to_ms = some_time(m);
    return move;
}

static struct mr_uuid random_uid(struct model *m, size_t app)
{
    size_t timer = app * NAMES + below(m, NAMES);
    const struct mr_store_timer *row = &m->timers[timer].row;
    return is_live(row) && !one_in(m, 8) ? row->uid : uid_of(timer, below(m, LIVES));
}

static bool can_move(const struct mr_store_timer *row, const struct mr_store_move *move)
{
    return row && row->state == MR_ROW_ACTIVE && row->version == move->version &&
           row->next_ms == move->from_ms;
}

static bool is_time(const struct model *m, size_t app, const struct mr_uuid *uid,
                    const struct mr_store_move *move)
{
    bool open = false;
    for (size_t i = 0; i < m->firings_n; i++)
        open |= uid_is(&m->firings[i].uid, uid) && mr_ledger_is_open(m->firings[i].state) &&
                mr_slice_equal(m->firings[i].app, mr_slice_str(app_names[app]));
    return move->when == MR_STORE_ALWAYS || open == (move->when == MR_STORE_WHILE_OPEN);
}

static bool has_moved(const struct mr_store_timer *row, const struct mr_store_move *move)
{
    enum mr_row_state state = move->state == MR_ROW_NONE ? MR_ROW_ACTIVE : move->state;
    return row && row->state == state && row->version == move->version &&
           row->next_ms == move->to_ms;
}

static void do_move(struct mr_store_timer *row, const struct mr_store_move *move)
{
    row->state = move->state == MR_ROW_NONE ? MR_ROW_ACTIVE : move->state;
    row->next_ms = move->to_ms;
    row->fired += move->counts;
    row->last_ms = move->last_ms != 0 ? move->last_ms : row->last_ms;
}

static size_t running(const struct model *m, size_t app, const struct mr_uuid *uid)
{
    struct mr_slice name = mr_slice_str(app_names[app]);
    size_t n = 0;
    for (size_t i = 0; i < m->firings_n; i++) {
        const struct mr_store_firing *row = &m->firings[i];
        bool waits = row->state == MR_LEDGER_WAITING && row->reason.len > 0;
        n += uid_is(&row->uid, uid) && mr_slice_equal(row->app, name) &&
             mr_ledger_is_open(row->state) && !waits;
    }
    return n;
}

/* What is done without a lease is news for who has it. */
static void touch(struct model *m, size_t app, const struct mr_uuid *uid,
                  const struct mr_store_fence *fence)
{
    struct mr_store_timer *row = timer_by_uid(m, app, uid);
    if (fence->lease.len == 0 && row != NULL)
        mr_container(row, struct model_timer, row)->step = m->step;
}

static enum mr_err model_fire(struct model *m, size_t app, const struct mr_store_fire *item,
                              bool *ret_existed)
{
    struct mr_store_timer *row = timer_by_uid(m, app, &item->uid);
    struct mr_store_firing *firing =
        item->state != MR_LEDGER_NONE ? firing_of(m, &item->uid, item->planned_ms) : NULL;
    bool moves = item->move.moves && can_move(row, &item->move);
    *ret_existed = firing != NULL;
    if (firing == NULL && row == NULL)
        return MR_NOT_FOUND;
    if (firing == NULL && item->move.moves && !moves)
        return item->state == MR_LEDGER_NONE && has_moved(row, &item->move) ? MR_OK : MR_STALE;
    if (item->state == MR_LEDGER_NONE && !is_time(m, app, &item->uid, &item->move))
        return MR_WRONG_STATE;
    if (firing == NULL && item->state != MR_LEDGER_NONE && item->limit > 0 &&
        running(m, app, &item->uid) >= item->limit)
        return MR_RUNNING;
    if (firing == NULL && item->state != MR_LEDGER_NONE) {
        assert_true(m->firings_n < FIRINGS_MAX);
        m->firings[m->firings_n++] = (struct mr_store_firing){
            .app = row->app,
            .name = row->name,
            .uid = item->uid,
            .planned_ms = item->planned_ms,
            .until_ms = item->until_ms,
            .run = item->run,
            .kind = item->kind,
            .state = item->state,
            .reason = item->reason,
            .target = item->target,
            .fired_ms = item->fired_ms,
            .finished_ms = mr_ledger_is_open(item->state) ? 0 : item->fired_ms};
    }
    if (moves)
        do_move(row, &item->move);
    return MR_OK;
}

static struct mr_store_fence random_fence(struct model *m, size_t app)
{
    if (one_in(m, 3))
        return (struct mr_store_fence){0};
    struct mr_store_fence fence = {mr_slice_str(lease_names[app]), m->tokens[app]};
    if (one_in(m, 8))
        fence.token += one_in(m, 2) ? 1 : (uint64_t)-1;
    return fence;
}

static enum mr_err model_fence(const struct model *m, size_t app,
                               const struct mr_store_fence *fence)
{
    bool held = m->owners[app] != 0 && fence->token == m->tokens[app];
    return fence->lease.len == 0 || held ? MR_OK : MR_STALE;
}

static void check_fire(struct model *m, struct step *step)
{
    const struct mr_store_fired *results = step->results.fire;
    enum mr_err expected = model_fence(m, step->app, &step->req.fire.fence);
    assert_err(step->req.head.err, expected);
    for (size_t i = 0; i < step->n; i++) {
        bool existed = false;
        enum mr_err err = expected;
        if (err == MR_OK)
            err = model_fire(m, step->app, &step->items.fire[i], &existed);
        if (err == MR_OK)
            touch(m, step->app, &step->items.fire[i].uid, &step->req.fire.fence);
        assert_err(results[i].err, err);
        assert_int_equal(results[i].existed, existed);
    }
}

static struct mr_store_fire random_fire(struct model *m, size_t app)
{
    struct mr_store_fire item = {
        .uid = random_uid(m, app),
        .planned_ms = (int64_t)(1 + below(m, TIMES)) * 1000,
        .until_ms = (int64_t)below(m, 2) * 5000,
        .run = (uint32_t)below(m, 2),
        .kind = (enum mr_ledger_kind)below(m, 3),
        .state = (enum mr_ledger_state)(one_in(m, 3) ? below(m, MR_LEDGER_STATE_COUNT)
                                                     : MR_LEDGER_WAITING),
        .reason = mr_slice_str(texts[below(m, 4)]),
        .target = mr_slice_str(texts[below(m, 4)]),
        .fired_ms = (int64_t)(1 + below(m, 9)),
        .limit = (uint32_t)(one_in(m, 2) ? below(m, 4) : 0),
    };
    if (item.state == MR_LEDGER_NONE || !one_in(m, 3))
        item.move = random_move(m, app, &item.uid);
    if (item.state == MR_LEDGER_NONE)
        item.move.when = (enum mr_store_when)below(m, 3);
    return item;
}

static void make_fire(struct model *m, struct step *step)
{
    step->check = check_fire;
    step->n = 1 + below(m, BATCH);
    step->app = below(m, APPS);
    for (size_t i = 0; i < step->n; i++)
        step->items.fire[i] = random_fire(m, step->app);
    step->req.fire = (struct mr_store_fire_batch){.req.op = MR_STORE_FIRE,
                                                  .fence = random_fence(m, step->app),
                                                  .app = mr_slice_str(app_names[step->app]),
                                                  .items = step->items.fire,
                                                  .n = step->n,
                                                  .results = step->results.fire};
}

/* ---- setting -------------------------------------------------------------------------------- */

static enum mr_err model_set(struct model *m, size_t app, const struct mr_store_set *item,
                             struct mr_store_set_result *result)
{
    struct mr_store_firing *row = firing_of(m, &item->uid, item->planned_ms);
    if (row == NULL || !mr_slice_equal(row->app, mr_slice_str(app_names[app])))
        return MR_NOT_FOUND;
    bool allowed = (item->from & MR_LEDGER_BIT(row->state)) != 0;
    bool is_home = item->home.len == 0 || mr_slice_equal(item->home, row->home);
    bool done =
        row->run == item->run && (item->again || (row->state == item->to && !allowed && is_home));
    struct mr_store_timer *timer = item->move.moves ? timer_by_uid(m, app, &item->uid) : NULL;
    enum mr_err err = MR_OK;
    if (!done && row->run + (item->again ? 1 : 0) != item->run)
        err = MR_STALE;
    else if (!done && !allowed)
        err = MR_WRONG_STATE;
    else if (timer != NULL && timer->state == MR_ROW_ACTIVE &&
             timer->next_ms == item->move.from_ms && timer->version != item->move.version)
        err = MR_CONFLICT;
    else if (!done) {
        row->run = item->run;
        row->state = item->to;
        row->reason = item->reason;
        row->target = item->again ? item->target : row->target;
        row->home = item->again || item->home.len > 0 ? item->home : row->home;
        row->attempt = item->attempt != 0 || item->again ? item->attempt : row->attempt;
        row->started_ms = item->started_ms != 0 || item->again ? item->started_ms : row->started_ms;
        row->finished_ms =
            item->finished_ms != 0 || item->again ? item->finished_ms : row->finished_ms;
    }
    result->state = row->state;
    result->run = row->run;
    if (err == MR_OK && item->move.moves) {
        bool moves = can_move(timer, &item->move) && is_time(m, app, &item->uid, &item->move);
        result->moved = moves || has_moved(timer, &item->move);
        if (moves)
            do_move(timer, &item->move);
    }
    return err;
}

static struct mr_store_set random_set(struct model *m, size_t app)
{
    struct mr_store_set item = {
        .uid = random_uid(m, app),
        .planned_ms = (int64_t)(1 + below(m, TIMES)) * 1000,
        .again = one_in(m, 4),
        .from = one_in(m, 2) ? MR_LEDGER_OPEN : (unsigned)below(m, 1u << MR_LEDGER_STATE_COUNT),
        .to = (enum mr_ledger_state)(1 + below(m, MR_LEDGER_STATE_COUNT - 1)),
        .reason = mr_slice_str(texts[below(m, 4)]),
        .target = mr_slice_str(texts[below(m, 4)]),
        .home = mr_slice_str(texts[below(m, 4)]),
        .attempt = (uint32_t)below(m, 3),
        .started_ms = (int64_t)below(m, 3),
        .finished_ms = (int64_t)(1 + below(m, 3)), /* else it would be the clock's */
    };
    const struct mr_store_firing *row =
        m->firings_n > 0 ? &m->firings[below(m, m->firings_n)] : NULL;
    if (row != NULL && !one_in(m, 4)) {
        item.uid = row->uid;
        item.planned_ms = row->planned_ms;
        item.run = row->run + (item.again && !one_in(m, 3) ? 1 : 0);
    }
    if (item.again && item.run == 0)
        item.run = 1;
    if (one_in(m, 3)) {
        item.move = random_move(m, app, &item.uid);
        item.move.when = (enum mr_store_when)below(m, 3);
    }
    return item;
}

static void check_set(struct model *m, struct step *step)
{
    const struct mr_store_set_result *results = step->results.set;
    enum mr_err expected = model_fence(m, step->app, &step->req.set.fence);
    assert_err(step->req.head.err, expected);
    for (size_t i = 0; i < step->n; i++) {
        struct mr_store_set_result model = {.err = expected};
        if (expected == MR_OK)
            model.err = model_set(m, step->app, &step->items.set[i], &model);
        if (model.err == MR_OK)
            touch(m, step->app, &step->items.set[i].uid, &step->req.set.fence);
        assert_err(results[i].err, model.err);
        assert_int_equal(results[i].state, model.state);
        assert_int_equal(results[i].run, model.run);
        assert_int_equal(results[i].moved, model.moved);
    }
}

static void make_set(struct model *m, struct step *step)
{
    step->check = check_set;
    step->n = 1 + below(m, BATCH);
    step->app = below(m, APPS);
    for (size_t i = 0; i < step->n; i++)
        step->items.set[i] = random_set(m, step->app);
    step->req.set = (struct mr_store_firing_set){.req.op = MR_STORE_FIRING_SET,
                                                 .fence = random_fence(m, step->app),
                                                 .app = mr_slice_str(app_names[step->app]),
                                                 .items = step->items.set,
                                                 .n = step->n,
                                                 .results = step->results.set};
}

/* ---- leases, retention ---------------------------------------------------------------------- */

static void check_lease(struct model *m, struct step *step)
{
    const struct mr_store_lease_item *item = &step->items.lease;
    const struct mr_store_lease_result *got = &step->results.lease;
    size_t app = step->app;
    enum mr_err expected = MR_OK;
    if (item->verb == MR_LEASE_ACQUIRE) {
        if (m->owners[app] != 0 && m->owners[app] != step->owner)
            expected = MR_IN_USE;
        else if (m->owners[app] == 0)
            m->tokens[app]++;
    } else if (m->owners[app] != step->owner || item->token != m->tokens[app])
        expected = MR_STALE;
    /* A release that finds it released, by the same owner and number, is fine: it was that one. */
    bool again = item->verb == MR_LEASE_RELEASE && m->owners[app] == 0 && got->err == MR_OK;
    assert_err(got->err, again ? MR_OK : expected);
    if (got->err != MR_OK)
        return;
    m->owners[app] = item->verb == MR_LEASE_RELEASE ? 0 : step->owner;
    assert_int_equal(got->token, m->tokens[app]);
}

static void make_lease(struct model *m, struct step *step)
{
    step->check = check_lease;
    step->app = below(m, APPS);
    step->owner = 1 + (int)below(m, 2);
    step->items.lease =
        (struct mr_store_lease_item){.verb = (enum mr_lease_verb)below(m, 3),
                                     .name = mr_slice_str(lease_names[step->app]),
                                     .owner = mr_slice_str(owner_names[step->owner]),
                                     .token = m->tokens[step->app] + (one_in(m, 8) ? 1 : 0),
                                     .ttl_ms = 3600 * 1000};
    step->req.lease = (struct mr_store_lease){.req.op = MR_STORE_LEASE,
                                              .items = &step->items.lease,
                                              .n = 1,
                                              .results = &step->results.lease};
}

static void step_retain(struct model *m)
{
    struct mr_store_retain retain = {.req.op = MR_STORE_RETAIN,
                                     .firings_ms = MR_MS_PER_DAY,
                                     .tombstones_ms = MR_MS_PER_DAY,
                                     .max = MR_STORE_BATCH_MAX};
    assert_err(mr_store_call(m->t->store, &retain.req), MR_OK);
    size_t left = 0;
    for (size_t i = 0; i < m->firings_n; i++)
        if (mr_ledger_is_open(m->firings[i].state))
            m->firings[left++] = m->firings[i];
    assert_int_equal(retain.firings, m->firings_n - left);
    assert_int_equal(retain.tombstones, 0); /* none is a day old */
    m->firings_n = left;
}

/* ---- looking -------------------------------------------------------------------------------- */

static void compare_timer(const struct mr_store_timer *got, const struct mr_store_timer *row)
{
    assert_true(mr_slice_equal(got->app, row->app) && mr_slice_equal(got->name, row->name));
    assert_int_equal(got->state, row->state);
    assert_int_equal(got->version, row->version);
    assert_true(uid_is(&got->uid, &row->uid));
    assert_true(mr_slice_equal(got->definition, row->definition));
    assert_int_equal(got->next_ms, row->next_ms);
    assert_int_equal(got->fired, row->fired);
    assert_int_equal(got->last_ms, row->last_ms);
    assert_int_equal(got->created_ms, row->created_ms);
}

static void look_at_timers(struct model *m)
{
    struct mr_store_timer_list list = {
        .req.op = MR_STORE_TIMER_LIST, .states = ~0u, .max = 1 + below(m, TIMERS)};
    size_t at = 0;
    for (bool more = true; more;) {
        assert_err(mr_store_call(m->t->store, &list.req), MR_OK);
        for (size_t i = 0; i < list.n; i++, at++) {
            while (at < TIMERS && m->timers[at].row.state == MR_ROW_NONE)
                at++;
            assert_true(at < TIMERS);
            compare_timer(&list.timers[i], &m->timers[at].row);
        }
        more = list.more;
        if (at > 0) {
            list.after_app = m->timers[at - 1].row.app;
            list.after_name = m->timers[at - 1].row.name;
        }
    }
    for (; at < TIMERS; at++)
        assert_int_equal(m->timers[at].row.state, MR_ROW_NONE);
    mr_store_req_done(&list.req);
}

static void look_at_figures(struct model *m)
{
    struct mr_store_stats stats = {.req.op = MR_STORE_STATS};
    uint64_t timers[MR_ROW_STATE_COUNT] = {0}, firings[MR_LEDGER_STATE_COUNT] = {0};
    assert_err(mr_store_call(m->t->store, &stats.req), MR_OK);
    for (size_t i = 0; i < TIMERS; i++)
        timers[m->timers[i].row.state] += m->timers[i].row.state != MR_ROW_NONE;
    for (size_t i = 0; i < m->firings_n; i++)
        firings[m->firings[i].state] += mr_ledger_is_open(m->firings[i].state);
    assert_memory_equal(stats.timers, timers, sizeof timers);
    assert_memory_equal(stats.firings, firings, sizeof firings);
}

static void compare_firing(const struct mr_store_firing *got, const struct mr_store_firing *row)
{
    assert_non_null(row);
    assert_true(mr_slice_equal(got->app, row->app) && mr_slice_equal(got->name, row->name));
    assert_int_equal(got->until_ms, row->until_ms);
    assert_int_equal(got->run, row->run);
    assert_int_equal(got->kind, row->kind);
    assert_int_equal(got->state, row->state);
    assert_true(mr_slice_equal(got->reason, row->reason));
    assert_true(mr_slice_equal(got->target, row->target));
    assert_true(mr_slice_equal(got->home, row->home));
    assert_int_equal(got->attempt, row->attempt);
    assert_int_equal(got->fired_ms, row->fired_ms);
    assert_int_equal(got->started_ms, row->started_ms);
    assert_int_equal(got->finished_ms, row->finished_ms);
}

static void look_at_firings(struct model *m)
{
    size_t seen = 0, open_seen = 0, open = 0;
    for (size_t i = 0; i < TIMERS * LIVES; i++) {
        struct mr_store_firing_list list = {
            .req.op = MR_STORE_FIRING_LIST, .uid = uid_of(i / LIVES, i % LIVES), .max = 100};
        assert_err(mr_store_call(m->t->store, &list.req), MR_OK);
        for (size_t k = 0; k < list.n; k++)
            compare_firing(&list.firings[k], firing_of(m, &list.uid, list.firings[k].planned_ms));
        seen += list.n;
        mr_store_req_done(&list.req);
    }
    assert_int_equal(seen, m->firings_n);
    for (size_t app = 0; app < APPS; app++) {
        uint64_t slots = mr_rand_next(&m->rand) | 1; /* some, and all others */
        for (int half = 0; half < 2; half++, slots = ~slots) {
            struct mr_store_firing_open list = {.req.op = MR_STORE_FIRING_OPEN,
                                                .app = mr_slice_str(app_names[app]),
                                                .slots = slots,
                                                .max = 1000};
            assert_err(mr_store_call(m->t->store, &list.req), MR_OK);
            for (size_t i = 0; i < list.n; i++)
                assert_true(in_slots(slots, &list.firings[i].uid));
            open_seen += list.n;
            mr_store_req_done(&list.req);
        }
    }
    for (size_t i = 0; i < m->firings_n; i++)
        open += mr_ledger_is_open(m->firings[i].state);
    assert_int_equal(open_seen, open);
}

static bool has_timer(const struct mr_store_due *due, const struct mr_uuid *uid)
{
    for (size_t i = 0; i < due->n; i++)
        if (uid_is(&due->timers[i].uid, uid))
            return true;
    return false;
}

/* All that the model says, in their order; of those that changed some may be said once more. */
static void check_due(struct model *m, struct step *step)
{
    const struct mr_store_due *due = &step->req.due;
    size_t app = step->app, expected = 0;
    for (size_t i = 0; i < due->n; i++) {
        const struct mr_store_timer *row = timer_by_uid(m, app, &due->timers[i].uid);
        assert_non_null(row);
        compare_timer(&due->timers[i], row);
        assert_true(row->state == MR_ROW_ACTIVE && row->next_ms <= due->until_ms);
        assert_true(in_slots(due->slots, &row->uid));
        assert_true(i == 0 || due->timers[i - 1].next_ms <= due->timers[i].next_ms);
    }
    for (size_t i = app * NAMES; i < (app + 1) * NAMES; i++) {
        const struct model_timer *timer = &m->timers[i];
        bool wanted = timer->row.state == MR_ROW_ACTIVE && timer->row.next_ms <= due->until_ms &&
                      (due->since == 0 || timer->step > step->since_step) &&
                      in_slots(due->slots, &timer->row.uid);
        expected += wanted;
        assert_true(!wanted || has_timer(due, &timer->row.uid));
    }
    assert_true(due->since > 0 || due->n == expected);
    m->since[app] = due->changed;
    m->since_step[app] = m->step;
}

static void make_due(struct model *m, struct step *step)
{
    step->check = check_due;
    step->app = below(m, APPS);
    step->since_step = m->since_step[step->app];
    step->req.due = (struct mr_store_due){.req.op = MR_STORE_DUE,
                                          .app = mr_slice_str(app_names[step->app]),
                                          .slots = one_in(m, 2) ? mr_rand_next(&m->rand) : 0,
                                          .until_ms = (int64_t)below(m, TIMES + 2) * 1000,
                                          .since = one_in(m, 2) ? m->since[step->app] : 0,
                                          .max = 100};
}

/* ---- running -------------------------------------------------------------------------------- */

static void step_reopen(struct model *m)
{
    if (one_in(m, 4))
        suite_reopen(m->t);
    else if (m->t->engine->cut != NULL)
        (void)m->t->engine->cut(m->t->engine->arg);
}

static void set_event(struct mr_store_req *req)
{
    mr_event_set(req->arg);
}

static void make_step(struct model *m, struct step *step)
{
    static const struct {
        void (*make)(struct model *m, struct step *step);
        unsigned weight;
    } kinds[] = {
        {make_apply, 30}, {make_fire, 30}, {make_set, 20}, {make_lease, 10}, {make_due, 10}};
    uint64_t at = below(m, 100);
    size_t kind = 0;
    while (at >= kinds[kind].weight)
        at -= kinds[kind++].weight;
    memset(step, 0, sizeof *step);
    kinds[kind].make(m, step);
    step->req.head.done = set_event;
    step->req.head.arg = &step->answered;
    mr_event_init(&step->answered);
}

/* Requests are made of what is known before the first, carried out in their order, maybe in one
 * transaction, and judged in it. */
static void run_together(struct model *m)
{
    static struct step steps[TOGETHER];
    size_t n = one_in(m, 2) ? 1 : 1 + below(m, TOGETHER);
    for (size_t i = 0; i < n; i++)
        make_step(m, &steps[i]);
    for (size_t i = 0; i < n; i++)
        mr_store_submit(m->t->store, &steps[i].req.head);
    for (size_t i = 0; i < n; i++)
        assert_true(mr_event_wait(&steps[i].answered, SUITE_WAIT_MS * MR_NS_PER_MS));
    for (size_t i = 0; i < n; i++, m->step++) {
        assert_true(steps[i].req.head.err == MR_OK || steps[i].req.head.err == MR_STALE);
        steps[i].check(m, &steps[i]);
    }
    for (size_t i = 0; i < n; i++)
        mr_store_req_done(&steps[i].req.head);
}

static void run_steps(struct model *m, uint64_t steps)
{
    m->step = 1;
    for (uint64_t round = 1; m->step <= steps; round++) {
        run_together(m);
        if (one_in(m, 100))
            step_retain(m);
        if (one_in(m, 100))
            step_reopen(m);
        if (round % LOOK_EVERY == 0) {
            look_at_timers(m);
            look_at_firings(m);
            look_at_figures(m);
        }
    }
}

static void test_a_store_does_what_a_naive_model_of_the_contract_does(void **state)
{
    struct suite *t = *state;
    uint64_t steps = suite_size("MR_STEPS", 300), seeds = suite_size("MR_SEEDS", 2);
    uint64_t first = suite_size("MR_SEED", 0);
    for (uint64_t i = 0; i < (first != 0 ? 1 : seeds); i++) {
        static struct model one;
        struct model *m = &one;
        memset(m, 0, sizeof *m);
        uint64_t seed = first != 0 ? first : mr_rand_next(mr_rand_of_thread());
        print_message("seed %llu\n", (unsigned long long)seed);
        m->t = t;
        mr_rand_seed(&m->rand, seed);
        for (size_t k = 0; k < TIMERS; k++) {
            m->timers[k].row.app = mr_slice_str(app_names[k / NAMES]);
            m->timers[k].row.name = mr_slice_str(timer_names[k % NAMES]);
        }
        if (i > 0) {
            suite_close(t);
            t->engine->remove(t->engine->arg);
            t->engine->make(t->engine->arg, t->url);
            suite_open(t, NULL);
        }
        run_steps(m, steps);
    }
}

int suite_model(const struct suite_engine *engine)
{
    struct CMUnitTest tests[] = {
        SUITE_TEST(test_a_store_does_what_a_naive_model_of_the_contract_does),
    };
    return SUITE_RUN(engine, "model", tests);
}
