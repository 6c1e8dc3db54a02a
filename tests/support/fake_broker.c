/* SPDX-License-Identifier: Apache-2.0 */
/* One lock, one thread; requests are rows of a table. Clear rather than quick. */
#include "support/fake_broker.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "base/buf.h"

enum { TASKS_MAX = 60 * 1000, SLOTS_MAX = 64, ID_BYTES = 16 };

#define PATIENCE_NS (20 * MR_NS_PER_S)

struct fake_task {
    struct mr_task task;
    char id[ID_BYTES];
    struct fake_report report;
};

struct fake {
    struct mr_broker broker;
    struct mr_chan chan;
    pthread_t thread;
    struct mr_lock lock;
    /* Under the lock. */
    bool ends;
    struct fake_task *tasks;
    size_t tasks_n, first_pending, ended, taken, handed_back, nodes, beats, crashes;
    size_t take_bytes; /* of the take that got the most */
    uint64_t epoch;
    uint64_t begun[SLOTS_MAX];
    uint64_t node; /* 0: none is open */
    struct mr_node_events events;
    struct mr_req_take *waiting;
    mr_mono waiting_until;
    struct mr_req_beat *swallowed;
    bool swallow, held, stop_with_take;
    enum mr_stop_reason stop_reason;
    enum mr_err beat_err, finish_err;
    size_t finish_failures;
};

/* A message that is no request: op is beyond the list. */
struct notice {
    struct mr_req req;
    uint64_t epoch; /* 0: wanted */
    enum mr_stop_reason reason;
};

static struct fake *fake_of(struct mr_broker *broker)
{
    return (struct fake *)broker;
}

static void copy_text(char *to, size_t cap, struct mr_slice from)
{
    size_t len = from.len < cap - 1 ? from.len : cap - 1;
    if (len > 0)
        memcpy(to, from.data, len);
    to[len] = '\0';
}

/* ---- the broker's thread -------------------------------------------------------------------- */

static struct fake_task *task_of(struct fake *fake, struct mr_slice id)
{
    char text[ID_BYTES] = "";
    copy_text(text, sizeof text, id);
    size_t n = strtoul(text, NULL, 10);
    assert_true(id.len > 0 && n < fake->tasks_n);
    return &fake->tasks[n];
}

static struct mr_lease *lease_new(struct fake *fake, struct fake_task *task)
{
    struct mr_lease *lease = calloc(1, sizeof *lease + sizeof task);
    assert_non_null(lease);
    lease->epoch = task->report.epoch = ++fake->epoch;
    lease->ref = (uint64_t)(task - fake->tasks) + 1;
    lease->body_len = sizeof task;
    memcpy(lease->body, &task, sizeof task);
    task->report.state = FAKE_TAKEN;
    task->report.takes++;
    fake->taken++;
    return lease;
}

/* Fills a take with what is pending. */
static void hand_out(struct fake *fake, struct mr_req_take *take)
{
    struct mr_lease **at = &take->leases;
    size_t bytes = 0;
    for (; fake->first_pending < fake->tasks_n && take->n < take->max; fake->first_pending++) {
        struct fake_task *task = &fake->tasks[fake->first_pending];
        if (task->report.state != FAKE_PENDING)
            continue;
        if (take->bytes_max > 0 && bytes >= take->bytes_max)
            break;
        bytes += task->task.payload.len;
        *at = lease_new(fake, task);
        at = &(*at)->next;
        take->n++;
    }
    if (bytes > fake->take_bytes)
        fake->take_bytes = bytes;
}

/* The request that can be answered now, or NULL while it waits. */
static struct mr_req *do_take(struct fake *fake, struct mr_req *req)
{
    struct mr_req_take *take = (struct mr_req_take *)req;
    if (take->node != fake->node) {
        req->err = MR_CLOSED;
        return req;
    }
    if (!fake->held)
        hand_out(fake, take);
    mr_mono now = mr_mono_now(mr_clock_system());
    if (take->n > 0 && fake->stop_with_take) {
        fake->stop_with_take = false;
        mr_lock_leave(&fake->lock);
        for (struct mr_lease *lease = take->leases; lease; lease = lease->next)
            fake->events.stop(lease->epoch, fake->stop_reason, fake->events.arg);
        mr_lock_enter(&fake->lock);
    }
    if (take->n > 0 || take->wait_ms == 0) {
        req->err = take->n > 0 ? MR_OK : MR_EMPTY;
        return req;
    }
    fake->waiting = take;
    fake->waiting_until = mr_mono_add_ms(now, take->wait_ms);
    return NULL;
}

static struct mr_req *do_node_open(struct fake *fake, struct mr_req *req)
{
    struct mr_req_node_open *open = (struct mr_req_node_open *)req;
    assert_true(open->slots <= SLOTS_MAX);
    fake->events = open->events;
    fake->node = open->node = ++fake->nodes;
    return req;
}

static struct mr_req *do_node_close(struct fake *fake, struct mr_req *req)
{
    fake->node = 0;
    fake->swallow = false;
    for (size_t i = 0; i < SLOTS_MAX; i++)
        fake->crashes += fake->begun[i] != 0;
    memset(fake->begun, 0, sizeof fake->begun);
    if (fake->swallowed) {
        struct mr_req_beat *beat = fake->swallowed;
        fake->swallowed = NULL;
        beat->req.err = MR_NOT_FOUND;
        mr_lock_leave(&fake->lock);
        beat->req.done(&beat->req);
        mr_lock_enter(&fake->lock);
    }
    return req;
}

static struct mr_req *do_beat(struct fake *fake, struct mr_req *req)
{
    struct mr_req_beat *beat = (struct mr_req_beat *)req;
    fake->beats++;
    for (size_t i = 0; i < beat->progress_n; i++) {
        const struct mr_progress *progress = &beat->progress[i];
        struct fake_report *report = &fake->tasks[progress->ref - 1].report;
        if (report->epoch != progress->epoch)
            continue;
        report->percent = progress->percent;
        copy_text(report->progress, sizeof report->progress, progress->text);
    }
    if (fake->swallow && beat->node == fake->node) {
        fake->swallowed = beat;
        return NULL;
    }
    req->err = beat->node == fake->node ? fake->beat_err : MR_NOT_FOUND;
    return req;
}

static enum mr_err finish_one(struct fake *fake, const struct mr_finish *item)
{
    struct fake_task *task = task_of(fake, item->id);
    struct fake_report *report = &task->report;
    report->finishes++;
    bool active = report->state == FAKE_TAKEN || report->state == FAKE_BEGUN;
    if (!active || report->epoch != item->epoch)
        return MR_STALE;
    report->outcome = item->outcome;
    report->delay_ms = item->delay_ms;
    copy_text(report->error, sizeof report->error, item->error);
    copy_text(report->result, sizeof report->result, item->result);
    report->state = FAKE_ENDED;
    fake->ended++;
    if (item->outcome == MR_HAND_BACK) {
        fake->handed_back++;
        if (item->delay_ms == 0) {
            report->state = FAKE_PENDING;
            fake->ended--;
            size_t n = (size_t)(task - fake->tasks);
            fake->first_pending = n < fake->first_pending ? n : fake->first_pending;
        }
    }
    return MR_OK;
}

static struct mr_req *do_finish(struct fake *fake, struct mr_req *req)
{
    struct mr_req_finish *finish = (struct mr_req_finish *)req;
    if (fake->finish_failures > 0) {
        fake->finish_failures--;
        req->err = fake->finish_err;
        return req;
    }
    for (size_t i = 0; i < finish->n; i++)
        finish->errs[i] = finish_one(fake, &finish->items[i]);
    return req;
}

static struct mr_req *(*const rows[MR_OP_COUNT])(struct fake *fake, struct mr_req *req) = {
    [MR_OP_NODE_OPEN] = do_node_open, [MR_OP_NODE_CLOSE] = do_node_close, [MR_OP_TAKE] = do_take,
    [MR_OP_BEAT] = do_beat,           [MR_OP_FINISH] = do_finish,
};

static void give_notice(struct fake *fake, struct notice *notice)
{
    struct mr_node_events events = fake->events;
    bool open = fake->node != 0;
    mr_lock_leave(&fake->lock);
    if (open && notice->epoch > 0)
        events.stop(notice->epoch, notice->reason, events.arg);
    else if (open)
        events.wanted(events.arg);
    free(notice);
    mr_lock_enter(&fake->lock);
}

/* Carries out a request; done is called without the lock. */
static void carry_out(struct fake *fake, struct mr_req *req)
{
    if (req->op == MR_OP_COUNT) {
        give_notice(fake, (struct notice *)req);
        return;
    }
    struct mr_req *answered = rows[req->op](fake, req);
    mr_lock_notify_all(&fake->lock);
    mr_lock_leave(&fake->lock);
    if (answered)
        answered->done(answered);
    mr_lock_enter(&fake->lock);
}

/* Answers the waiting take when it can be. */
static void look_at_waiting(struct fake *fake)
{
    struct mr_req_take *take = fake->waiting;
    if (!take)
        return;
    if (mr_mono_now(mr_clock_system()).ns >= fake->waiting_until.ns)
        take->wait_ms = 0;
    fake->waiting = NULL;
    int64_t until_ns = fake->waiting_until.ns;
    struct mr_req *answered = do_take(fake, &take->req);
    fake->waiting_until.ns = until_ns;
    mr_lock_notify_all(&fake->lock);
    if (!answered)
        return;
    mr_lock_leave(&fake->lock);
    answered->done(answered);
    mr_lock_enter(&fake->lock);
}

static void *fake_main(void *arg)
{
    struct fake *fake = arg;
    mr_lock_enter(&fake->lock);
    while (!fake->ends) {
        struct mr_msg *msg;
        while ((msg = mr_chan_take_all(&fake->chan))) {
            while (msg) {
                struct mr_msg *next = msg->next;
                carry_out(fake, mr_container(msg, struct mr_req, msg));
                msg = next;
            }
        }
        look_at_waiting(fake);
        int64_t max_ns = INT64_MAX;
        if (fake->waiting)
            max_ns = fake->waiting_until.ns - mr_mono_now(mr_clock_system()).ns;
        mr_lock_leave(&fake->lock);
        mr_chan_wait(&fake->chan, max_ns > 0 ? max_ns : 1);
        mr_lock_enter(&fake->lock);
    }
    mr_lock_leave(&fake->lock);
    return NULL;
}

/* ---- the broker's operations ---------------------------------------------------------------- */

static void fake_submit(struct mr_broker *broker, struct mr_req *req)
{
    mr_chan_send(&fake_of(broker)->chan, &req->msg);
}

static void fake_begun(struct mr_broker *broker, uint32_t slot, uint64_t epoch)
{
    struct fake *fake = fake_of(broker);
    assert_true(slot < SLOTS_MAX);
    mr_lock_enter(&fake->lock);
    fake->begun[slot] = epoch;
    for (size_t i = 0; epoch > 0 && i < fake->tasks_n && fake->tasks_n < 10000; i++) {
        struct fake_report *report = &fake->tasks[i].report;
        if (report->epoch == epoch && report->state == FAKE_TAKEN)
            report->state = FAKE_BEGUN;
    }
    mr_lock_notify_all(&fake->lock);
    mr_lock_leave(&fake->lock);
}

static enum mr_err fake_lease_open(struct mr_broker *broker, struct mr_lease *lease)
{
    (void)broker;
    struct fake_task *task;
    memcpy(&task, lease->body, sizeof task);
    lease->task = task->task;
    lease->task.epoch = lease->epoch;
    return MR_OK;
}

static void fake_close(struct mr_broker *broker)
{
    (void)broker;
}

static const struct mr_broker_ops ops = {
    .submit = fake_submit,
    .begun = fake_begun,
    .lease_open = fake_lease_open,
    .close = fake_close,
};

/* ---- the test's side ------------------------------------------------------------------------ */

struct fake *fake_new(void)
{
    struct fake *fake = calloc(1, sizeof *fake);
    assert_non_null(fake);
    fake->broker.ops = &ops;
    fake->epoch = 1000;
    fake->tasks = calloc(TASKS_MAX, sizeof *fake->tasks);
    assert_non_null(fake->tasks);
    mr_chan_init(&fake->chan);
    mr_lock_init(&fake->lock);
    assert_int_equal(mr_thread_start(&fake->thread, "fake", fake_main, fake), MR_OK);
    return fake;
}

void fake_free(struct fake *fake)
{
    mr_lock_enter(&fake->lock);
    fake->ends = true;
    mr_lock_leave(&fake->lock);
    mr_chan_wake(&fake->chan);
    mr_thread_join(fake->thread);
    assert_null(fake->waiting);
    mr_lock_done(&fake->lock);
    free(fake->tasks);
    free(fake);
}

struct mr_broker *fake_broker(struct fake *fake)
{
    return &fake->broker;
}

static size_t add_locked(struct fake *fake, const struct mr_task *task)
{
    assert_true(fake->tasks_n < TASKS_MAX);
    size_t n = fake->tasks_n++;
    struct fake_task *added = &fake->tasks[n];
    added->task = *task;
    snprintf(added->id, sizeof added->id, "%zu", n);
    added->task.id = mr_slice_str(added->id);
    if (added->task.type.len == 0)
        added->task.type = mr_slice_str("task");
    added->report.percent = -1;
    return n;
}

size_t fake_add(struct fake *fake, const struct mr_task *task)
{
    mr_lock_enter(&fake->lock);
    size_t n = add_locked(fake, task);
    mr_lock_leave(&fake->lock);
    mr_chan_wake(&fake->chan);
    return n;
}

void fake_add_many(struct fake *fake, const char *type, size_t n)
{
    struct mr_task task = {.type = mr_slice_str(type)};
    mr_lock_enter(&fake->lock);
    for (size_t i = 0; i < n; i++)
        add_locked(fake, &task);
    mr_lock_leave(&fake->lock);
    mr_chan_wake(&fake->chan);
}

size_t fake_crashes(struct fake *fake)
{
    mr_lock_enter(&fake->lock);
    size_t n = fake->crashes;
    mr_lock_leave(&fake->lock);
    return n;
}

size_t fake_take_bytes(struct fake *fake)
{
    mr_lock_enter(&fake->lock);
    size_t bytes = fake->take_bytes;
    mr_lock_leave(&fake->lock);
    return bytes;
}

struct fake_report fake_look(struct fake *fake, size_t task)
{
    mr_lock_enter(&fake->lock);
    struct fake_report report = fake->tasks[task].report;
    mr_lock_leave(&fake->lock);
    return report;
}

/* A condition on the fake, with the lock held. */
typedef bool holds(struct fake *fake, size_t a, int64_t b);

static void await(struct fake *fake, holds *condition, size_t a, int64_t b)
{
    int64_t until_ns = mr_mono_now(mr_clock_system()).ns + PATIENCE_NS;
    bool there;
    mr_lock_enter(&fake->lock);
    while (!(there = condition(fake, a, b))) {
        int64_t left_ns = until_ns - mr_mono_now(mr_clock_system()).ns;
        if (left_ns <= 0)
            break;
        mr_lock_wait(&fake->lock, left_ns);
    }
    mr_lock_leave(&fake->lock);
    assert_true(there);
}

static bool has_state(struct fake *fake, size_t task, int64_t state)
{
    return fake->tasks[task].report.state == (enum fake_state)state;
}

static bool has_progress(struct fake *fake, size_t task, int64_t percent)
{
    return fake->tasks[task].report.percent == percent;
}

static bool has_counts(struct fake *fake, size_t ended, int64_t unused)
{
    (void)unused;
    return fake->ended >= ended;
}

static bool has_taken(struct fake *fake, size_t taken, int64_t unused)
{
    (void)unused;
    return fake->taken >= taken;
}

static bool has_handed_back(struct fake *fake, size_t n, int64_t unused)
{
    (void)unused;
    return fake->handed_back >= n;
}

static bool has_nodes(struct fake *fake, size_t n, int64_t unused)
{
    (void)unused;
    return fake->nodes >= n;
}

static bool has_beats(struct fake *fake, size_t n, int64_t unused)
{
    (void)unused;
    return fake->beats >= n;
}

void fake_await_more_beats(struct fake *fake, size_t n)
{
    mr_lock_enter(&fake->lock);
    size_t beats = fake->beats + n;
    mr_lock_leave(&fake->lock);
    await(fake, has_beats, beats, 0);
}

void fake_await_state(struct fake *fake, size_t task, enum fake_state state)
{
    await(fake, has_state, task, state);
}

void fake_await_progress(struct fake *fake, size_t task, int percent)
{
    await(fake, has_progress, task, percent);
}

void fake_await_taken(struct fake *fake, size_t taken)
{
    await(fake, has_taken, taken, 0);
}

void fake_await_ended(struct fake *fake, size_t ended)
{
    await(fake, has_counts, ended, 0);
}

void fake_await_handed_back(struct fake *fake, size_t n)
{
    await(fake, has_handed_back, n, 0);
}

void fake_await_nodes(struct fake *fake, size_t opened)
{
    await(fake, has_nodes, opened, 0);
}

static void notify(struct fake *fake, uint64_t epoch, enum mr_stop_reason reason)
{
    struct notice *notice = calloc(1, sizeof *notice);
    assert_non_null(notice);
    *notice = (struct notice){.req = {.op = MR_OP_COUNT}, .epoch = epoch, .reason = reason};
    mr_chan_send(&fake->chan, &notice->req.msg);
}

void fake_stop(struct fake *fake, size_t task, enum mr_stop_reason reason)
{
    notify(fake, fake_look(fake, task).epoch, reason);
}

void fake_want(struct fake *fake)
{
    notify(fake, 0, MR_STOP_CANCEL);
}

void fake_stop_with_take(struct fake *fake, enum mr_stop_reason reason)
{
    mr_lock_enter(&fake->lock);
    fake->stop_with_take = true;
    fake->stop_reason = reason;
    mr_lock_leave(&fake->lock);
}

void fake_answer_beats(struct fake *fake, enum mr_err err)
{
    mr_lock_enter(&fake->lock);
    fake->beat_err = err;
    mr_lock_leave(&fake->lock);
}

void fake_swallow_beats(struct fake *fake)
{
    mr_lock_enter(&fake->lock);
    fake->swallow = true;
    mr_lock_leave(&fake->lock);
}

void fake_fail_finishes(struct fake *fake, size_t n, enum mr_err err)
{
    mr_lock_enter(&fake->lock);
    fake->finish_failures = n;
    fake->finish_err = err;
    mr_lock_leave(&fake->lock);
}

void fake_hold(struct fake *fake, bool held)
{
    mr_lock_enter(&fake->lock);
    fake->held = held;
    mr_lock_leave(&fake->lock);
    mr_chan_wake(&fake->chan);
}
