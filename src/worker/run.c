/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One run: what its handler may ask and say, how it is told to stop, and what is made of its
 * answer.
 *
 * What a handler decides (success, drop, failure for good) holds, also when it was told to stop
 * before. Otherwise the reason to stop decides what is reported, since the handler's failure is only
 * its consequence.
 */
#include <stdarg.h>
#include <stdio.h>

#include "base/diag.h"
#include "base/text.h"
#include "worker/internal.h"

enum {
    BACK_FIRST_MS = 1000, /* a task handed back again waits so long, then twice as long, ... */
    BACK_MAX_MS = 60 * 1000,
    BACK_FORGET_MS = 10 * BACK_MAX_MS, /* what was handed back longer ago does not count */
};

static struct mr_slot *slot_of(struct mr_run *run)
{
    return mr_container(run, struct mr_slot, run);
}

static struct mr_worker *worker_of(struct mr_run *run)
{
    return slot_of(run)->worker;
}

/* ---- what the handler sees ------------------------------------------------------------------ */

const struct mr_task *mr_run_task(struct mr_run *run)
{
    return &run->lease->task;
}

bool mr_run_cancelled(struct mr_run *run)
{
    return atomic_load_explicit(&run->stop, memory_order_relaxed) != RUN_GOES_ON;
}

bool mr_run_wait_cancelled(struct mr_run *run, int64_t timeout_ms)
{
    int64_t max_ns = INT64_MAX;
    if (timeout_ms < INT64_MAX / MR_NS_PER_MS)
        max_ns = timeout_ms * MR_NS_PER_MS;
    return mr_event_wait(&run->stopping, max_ns);
}

int64_t mr_run_deadline_ms(struct mr_run *run)
{
    int64_t due_ns = atomic_load(&slot_of(run)->due_ns);
    if (due_ns == INT64_MAX)
        return 0;
    struct mr_clock *clock = worker_of(run)->clock;
    int64_t left_ms = (due_ns - mr_mono_now(clock).ns) / MR_NS_PER_MS;
    return mr_wall_ms(mr_wall_now(clock)) + left_ms;
}

enum mr_err mr_run_result(struct mr_run *run, struct mr_slice bytes)
{
    if (bytes.len > MR_RESULT_MAX - run->result.len)
        return MR_TOO_BIG;
    return mr_buf_append_slice(&run->result, bytes);
}

enum mr_err mr_run_progress(struct mr_run *run, int percent, struct mr_slice text)
{
    if (percent < 0 || percent > 100 || (text.len > 0 && !text.data))
        return MR_INVALID;
    struct mr_worker *w = worker_of(run);
    mr_mono now = mr_mono_now(w->clock);
    mr_lock_enter(&w->lock);
    run->percent = percent;
    run->progress_len = mr_utf8_cut(text, MR_PROGRESS_TEXT_MAX);
    if (run->progress_len > 0)
        memcpy(run->progress, text.data, run->progress_len);
    run->progress_new = true;
    mr_mono beat_at = mr_mono_add_ms(now, PROGRESS_MS);
    if (beat_at.ns < w->beat_at.ns) {
        w->beat_at = beat_at;
        mr_monitor_by(w, beat_at);
    }
    mr_lock_leave(&w->lock);
    return MR_OK;
}

void mr_run_error(struct mr_run *run, const char *fmt, ...)
{
    char text[MR_ERROR_TEXT_MAX + 2]; /* one more, to see where the character at the limit begins */
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    text[mr_utf8_cut(mr_slice_str(text), MR_ERROR_TEXT_MAX)] = '\0';
    mr_buf_clear(&run->error);
    if (mr_buf_append(&run->error, text, strlen(text) + 1) != MR_OK)
        mr_buf_clear(&run->error); /* out of memory: the failure counts, its text is lost */
}

void mr_run_retry_after(struct mr_run *run, int64_t delay_ms)
{
    run->retry_after_ms = delay_ms > 0 ? delay_ms : 0;
}

/* ---- telling it to stop --------------------------------------------------------------------- */

static int64_t grace_ms(const struct mr_worker *w)
{
    return w->hurried ? 0 : w->options.grace_ms;
}

/* Wakes whoever watches the run, which is given up when its grace is over. Under the lock. */
static void begin_grace(struct mr_slot *slot, mr_mono now)
{
    struct mr_worker *w = slot->worker;
    if (slot->run.watch)
        slot->run.watch(slot->run.watch_arg);
    mr_mono end = mr_mono_add_ms(now, grace_ms(w) + ABANDON_SLACK_MS);
    mr_wheel_start(w->wheel, &slot->timer, mr_worker_tick_up(w, end.ns));
    mr_monitor_by(w, end);
}

void mr_run_stop(struct mr_slot *slot, enum run_stop reason, mr_mono now)
{
    struct mr_run *run = &slot->run;
    if (!slot->running || atomic_load(&run->owner) != RUN_OPEN)
        return;
    bool told = atomic_load(&run->stop) != RUN_GOES_ON;
    if (told && reason != RUN_LOST)
        return;
    atomic_store(&run->stop, reason);
    if (told)
        return;
    mr_event_set(&run->stopping);
    begin_grace(slot, now);
}

void mr_run_hurry(struct mr_slot *slot, mr_mono now)
{
    struct mr_run *run = &slot->run;
    if (slot->running && atomic_load(&run->owner) == RUN_OPEN && mr_run_cancelled(run))
        begin_grace(slot, now);
}

void mr_run_watch(struct mr_run *run, void (*watch)(void *arg), void *arg)
{
    struct mr_worker *w = worker_of(run);
    mr_lock_enter(&w->lock);
    run->watch = watch;
    run->watch_arg = arg;
    if (watch && mr_run_cancelled(run))
        watch(arg);
    mr_lock_leave(&w->lock);
}

int64_t mr_run_grace_ms(struct mr_run *run)
{
    struct mr_worker *w = worker_of(run);
    mr_lock_enter(&w->lock);
    int64_t ms = grace_ms(w);
    mr_lock_leave(&w->lock);
    return ms;
}

/* ---- what is made of its answer ------------------------------------------------------------- */

/* One row per reason to stop: what a run that did not succeed counts as, and why. */
static const struct {
    enum mr_outcome outcome;
    const char *why;
    enum mr_finish_reason reason;
} stop_rows[RUN_STOP_COUNT] = {
    [RUN_CANCELLED] = {MR_FAIL_FOR_GOOD, "cancelled", MR_REASON_CANCELLED},
    [RUN_TIMEOUT] = {MR_FAIL, "timeout after ", MR_REASON_TIMEOUT},
    [RUN_DEADLINE] = {MR_FAIL_FOR_GOOD, "deadline passed", MR_REASON_TIMEOUT},
    [RUN_WORKER_STOPS] = {MR_HAND_BACK, NULL, MR_REASON_NONE},
};

/* The reason first, then what the handler had to say. Out of memory the text stays shorter. */
static void explain(struct mr_run *run, enum run_stop stop, const char *said, struct mr_buf *error)
{
    char timeout[32] = "";
    if (stop == RUN_TIMEOUT)
        mr_format_duration_ms(run->lease->task.timeout_ms, timeout);
    const char *why = stop_rows[stop].why ? stop_rows[stop].why : "";
    bool both = *why && *said;
    if (mr_buf_printf(error, "%s%s%s%s", why, timeout, both ? "\n" : "", said) != MR_OK)
        mr_buf_clear(error);
    if (error->len > MR_ERROR_TEXT_MAX)
        error->len = mr_utf8_cut(mr_buf_slice(error), MR_ERROR_TEXT_MAX);
    if (mr_buf_append(error, "", 1) != MR_OK)
        mr_buf_clear(error);
}

static enum mr_outcome settle(enum run_stop stop, enum mr_outcome outcome)
{
    bool decided = outcome == MR_DONE || outcome == MR_DROP || outcome == MR_FAIL_FOR_GOOD;
    return decided || stop == RUN_GOES_ON || stop == RUN_LOST ? outcome : stop_rows[stop].outcome;
}

/* A task that a handler hands back is for another worker, at once. When it comes back to this one
 * all the same, it waits, longer each time, so that the two do not chase each other. Where there are
 * more of them than can be remembered, each may be one that came back, and waits a little. */
static int64_t back_delay_ms(struct mr_worker *w, const struct mr_task *task, struct mr_rand *rand)
{
    struct mr_uuid mixed = mr_hash128(w->back_key, task->id);
    uint64_t hash = mr_uuid_hash(&mixed);
    struct back_row *row = &w->back[hash % BACK_ROWS];
    mr_mono now = mr_mono_now(w->clock);
    mr_lock_enter(&w->lock);
    int64_t since_ms = (now.ns - row->last.ns) / MR_NS_PER_MS;
    if (row->hash != hash)
        *row = (struct back_row){.hash = hash, .n = since_ms < BACK_FIRST_MS};
    else if (since_ms > BACK_FORGET_MS)
        row->n = 0;
    uint32_t before = row->n++;
    row->last = now;
    mr_lock_leave(&w->lock);
    if (before == 0)
        return 0;
    int64_t most_ms = BACK_FIRST_MS;
    for (uint32_t i = 1; i < before && most_ms < BACK_MAX_MS; i++)
        most_ms *= 2;
    most_ms = most_ms < BACK_MAX_MS ? most_ms : BACK_MAX_MS;
    return most_ms / 2 + (int64_t)mr_rand_below(rand, (uint64_t)most_ms / 2 + 1);
}

static int64_t delay_of(struct mr_run *run, enum mr_outcome outcome, int64_t retry_after_ms,
                        struct mr_rand *rand)
{
    int64_t delay_ms = 0;
    const struct mr_task *task = &run->lease->task;
    if (retry_after_ms >= 0)
        delay_ms = retry_after_ms;
    else if (outcome == MR_HAND_BACK && !mr_run_cancelled(run))
        delay_ms = back_delay_ms(worker_of(run), task, rand);
    else if (outcome == MR_FAIL || outcome == MR_LATER)
        delay_ms = mr_retry_delay_ms(&worker_of(run)->retry, task, task->retried + 1, rand);
    return delay_ms < MR_DELAY_MAX_MS ? delay_ms : MR_DELAY_MAX_MS;
}

static void tell_failure(struct mr_worker *w, const struct mr_task *task, const char *error)
{
    char id[MR_ID_MAX * 4 + 1], type[MR_NAME_MAX * 4 + 1], text[256];
    bool told = w->options.on_error != NULL;
    mr_diag(told ? MR_DIAG_DEBUG : MR_DIAG_WARN, "task.failed",
            "id=%s type=%s attempt=%u error=\"%s\"", mr_diag_escape(task->id, id, sizeof id),
            mr_diag_escape(task->type, type, sizeof type), task->attempt,
            mr_diag_escape(mr_slice_str(error), text, sizeof text));
    if (told)
        w->options.on_error(task, error, w->options.arg);
}

void mr_run_judge(struct mr_run *run, struct run_answer answer, struct mr_rand *rand,
                  struct mr_report *report)
{
    struct mr_worker *w = worker_of(run);
    const struct mr_task *task = &run->lease->task;
    enum run_stop stop = (enum run_stop)atomic_load(&run->stop);
    enum mr_outcome outcome = settle(stop, answer.outcome);
    report->item.outcome = outcome;
    if (outcome == MR_DONE)
        return;
    if (outcome == MR_FAIL || outcome == MR_FAIL_FOR_GOOD) {
        explain(run, stop, *answer.error || stop ? answer.error : "failed", &report->error);
        report->item.reason = stop_rows[stop].reason;
        const char *error = report->error.len > 0 ? (const char *)report->error.data : "";
        mr_is_failure *is_failure = w->options.is_failure;
        if (outcome == MR_FAIL && is_failure && !is_failure(task, error, w->options.arg))
            report->item.outcome = MR_LATER;
        else
            tell_failure(w, task, error);
        if (report->error.len > 0)
            report->item.error = mr_slice_make(error, report->error.len - 1);
    }
    report->item.delay_ms = delay_of(run, report->item.outcome, answer.retry_after_ms, rand);
}
