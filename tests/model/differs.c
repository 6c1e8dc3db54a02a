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
    char key[16] = "";
    if (want->unique_said != 0)
        (void)snprintf(key, sizeof key, "key-%u", want->unique_said);
    return text_is(got->unique_key, key) ? NULL : "unique_key";
}

static const char *payload_differs(const struct model_task *want, const struct mr_task *got)
{
    uint8_t bytes[4096];
    mr_assert(want->payload_len <= sizeof bytes);
    model_payload(want->payload_seed, bytes, want->payload_len);
    return mr_slice_equal(got->payload, mr_slice_make(bytes, want->payload_len)) ? NULL : "payload";
}

static const char *numbers_differ(const struct model_task *want, const struct mr_task *got)
{
    const struct {
        const char *what;
        int64_t want, got;
    } rows[] = {
        {"state", want->state, got->state},
        {"retried", want->retried, got->retried},
        {"crashes", want->crashes, got->crashes},
        {"attempt", 1 + want->retried + want->crashes, got->attempt},
        {"max_retry", want->max_retry, got->max_retry},
        {"timeout_ms", want->timeout_ms, got->timeout_ms},
        {"deadline_ms", want->deadline_ms, got->deadline_ms},
        {"retention_ms", want->retention_ms, got->retention_ms},
        {"created_ms", want->created_ms, got->created_ms},
        {"cancel_requested", want->cancel, got->cancel_requested},
        {"priority_s", want->priority_ms, llround(got->priority_s * 1000)},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if (rows[i].want != rows[i].got)
            return rows[i].what;
    return NULL;
}

/* A dead node is noticed within a tick of its time, so what that leaves is not exact. */
static bool near(int64_t want_ms, int64_t got_ms)
{
    return got_ms >= want_ms && got_ms < want_ms + MODEL_TICK_MS / 2;
}

static const char *state_differs(const struct model_task *want, const struct mr_task *got)
{
    switch (want->state) {
    case MR_SCHEDULED:
    case MR_RETRY:
        if (got->due_ms != want->due_ms)
            return "due_ms";
        break;
    case MR_PENDING:
        if (got->order_time_ms != want->order_ms)
            return "order_time_ms";
        break;
    case MR_ACTIVE:
        if (got->epoch != want->epoch)
            return "epoch";
        if (got->started_ms != want->started_ms)
            return "started_ms";
        break;
    case MR_COMPLETED:
        if (!text_is(got->result, want->result))
            return "result";
        /* fall through */
    case MR_ARCHIVED:
        if (!near(want->finished_ms, got->finished_ms))
            return "finished_ms";
        break;
    default:
        return "state";
    }
    return NULL;
}

const char *model_differs(const struct model *model, const struct model_task *want,
                          const struct mr_task *got, bool with_payload)
{
    (void)model;
    const char *what = names_differ(want, got);
    what = what != NULL ? what : numbers_differ(want, got);
    what = what != NULL ? what : state_differs(want, got);
    if (what == NULL && with_payload)
        what = payload_differs(want, got);
    bool told = want->state != MR_COMPLETED && want->state != MR_ACTIVE;
    if (what == NULL && told && !text_is(got->last_error, want->last_error))
        what = "last_error";
    return what;
}
