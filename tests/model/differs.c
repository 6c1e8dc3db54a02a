/* SPDX-License-Identifier: Apache-2.0 */
/* Compares a task that a broker shows with the model's, field by field. */
#include <math.h>
#include <stdio.h>

#include "model/model.h"

static bool text_is(struct mr_slice got, const char *want)
{
    return mr_slice_equal(got, mr_slice_str(want));
}

static const char *names_differ(const struct model_task *want, const struct mr_task *got)
{
    if (!text_is(got->id, want->id))
        return "id";
    if (!text_is(got->queue, model_queue_names[want->queue]))
        return "queue";
    if (!text_is(got->type, model_type_names[want->type]))
        return "type";
    char key[16] = "", group[24] = "", part_key[24] = "";
    if (want->part_key != 0)
        (void)snprintf(part_key, sizeof part_key, "part-%u", want->part_key);
    if (!text_is(got->key, part_key))
        return "key";
    if (want->unique_said != 0)
        (void)snprintf(key, sizeof key, "key-%u", want->unique_said);
    if (want->group != 0)
        (void)snprintf(group, sizeof group, "group-%u", want->group);
    if (!text_is(got->group, group))
        return "group";
    return text_is(got->unique_key, key) ? NULL : "unique_key";
}

static const char *payload_differs(const struct model_task *want, const struct mr_task *got)
{
    uint8_t bytes[4096];
    mr_assert(want->payload_len <= sizeof bytes);
    model_payload(want->payload_seed, bytes, want->payload_len);
    return mr_slice_equal(got->payload, mr_slice_make(bytes, want->payload_len)) ? NULL : "payload";
}

/* One number that both know. A dead node is noticed within a tick of its time, so what that leaves
 * is not exact: slack. */
struct row {
    const char *what;
    int64_t want, got, slack;
};

static const char *rows_differ(const struct row *rows, size_t n)
{
    static char text[128];
    for (size_t i = 0; i < n; i++) {
        if (rows[i].got >= rows[i].want && rows[i].got <= rows[i].want + rows[i].slack)
            continue;
        (void)snprintf(text, sizeof text, "%s: %lld, expected %lld", rows[i].what,
                       (long long)rows[i].got, (long long)rows[i].want);
        return text;
    }
    return NULL;
}
#define ROWS_DIFFER(rows) rows_differ(rows, sizeof(rows) / sizeof((rows)[0]))

static const char *numbers_differ(const struct model_task *want, const struct mr_task *got)
{
    const struct row rows[] = {
        {"partition", want->part + 1, got->partition, 0},
        {"state", want->state, got->state, 0},
        {"retried", want->retried, got->retried, 0},
        {"crashes", want->crashes, got->crashes, 0},
        {"attempt", 1 + want->retried + want->crashes, got->attempt, 0},
        {"max_retry", want->max_retry, got->max_retry, 0},
        {"timeout_ms", want->timeout_ms, got->timeout_ms, 0},
        {"deadline_ms", want->deadline_ms, got->deadline_ms, 0},
        {"retention_ms", want->retention_ms, got->retention_ms, 0},
        {"created_ms", want->created_ms, got->created_ms, 0},
        {"held", want->held, got->held, 0},
        {"cancel_requested", want->cancel, got->cancel_requested, 0},
        {"priority_ms", want->priority_ms, llround(got->priority_s * 1000), 0},
    };
    return ROWS_DIFFER(rows);
}

static const char *times_differ(const struct model_task *want, const struct mr_task *got)
{
    bool waits = want->state == MR_SCHEDULED || want->state == MR_RETRY;
    bool ended = want->state == MR_ARCHIVED || want->state == MR_COMPLETED;
    bool active = want->state == MR_ACTIVE;
    const struct row rows[] = {
        {"due_ms", waits ? want->due_ms : 0, waits ? got->due_ms : 0, 0},
        {"order_time_ms", want->order_ms, got->order_time_ms, 0},
        {"epoch", active ? (int64_t)want->epoch : 0, active ? (int64_t)got->epoch : 0, 0},
        {"started_ms", active ? want->started_ms : 0, active ? got->started_ms : 0, 0},
        {"finished_ms", ended ? want->finished_ms : 0, ended ? got->finished_ms : 0,
         MODEL_TICK_MS / 2},
        {"last_failed_ms", active ? 0 : want->failed_ms, active ? 0 : got->last_failed_ms, 0},
    };
    return ROWS_DIFFER(rows);
}

static const char *texts_differ(const struct model_task *want, const struct mr_task *got)
{
    if (want->moved && !text_is(got->last_error, want->last_error))
        return "last_error";
    if (want->state == MR_COMPLETED)
        return text_is(got->result, want->result) ? NULL : "result";
    return want->state == MR_ACTIVE || text_is(got->last_error, want->last_error) ? NULL
                                                                                  : "last_error";
}

const char *model_differs(const struct model_task *want, const struct mr_task *got,
                          bool with_payload)
{
    const char *what = names_differ(want, got);
    what = what != NULL ? what : numbers_differ(want, got);
    what = what != NULL ? what : times_differ(want, got);
    what = what != NULL ? what : texts_differ(want, got);
    return what == NULL && with_payload ? payload_differs(want, got) : what;
}
