/* SPDX-License-Identifier: Apache-2.0 */
/* The ledger: what the processes said, and what must be true of it at the end. */
#include <stdarg.h>
#include <stdlib.h>

#include "cli/cli.h"
#include "cli/selftest.h"

void ledger_done(struct selftest_ledger *ledger)
{
    free(ledger->entries);
    *ledger = (struct selftest_ledger){0};
}

bool ledger_is_clean(const struct selftest_ledger *ledger)
{
    return ledger->lost == 0 && ledger->twice == 0 && ledger->wrong == 0;
}

MR_PRINTF(3, 0)
static void find(struct selftest_ledger *ledger, uint64_t *count, const char *fmt, va_list ap)
{
    if (ledger_is_clean(ledger))
        vsnprintf(ledger->first.text, sizeof ledger->first.text, fmt, ap);
    ++*count;
}

void ledger_wrong(struct selftest_ledger *ledger, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    find(ledger, &ledger->wrong, fmt, ap);
    va_end(ap);
}

MR_PRINTF(2, 3) static void twice(struct selftest_ledger *ledger, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    find(ledger, &ledger->twice, fmt, ap);
    va_end(ap);
}

MR_PRINTF(2, 3) static void lost(struct selftest_ledger *ledger, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    find(ledger, &ledger->lost, fmt, ap);
    va_end(ap);
}

/* ---- while it goes on ------------------------------------------------------------------------ */

static struct selftest_entry *entry_of(struct selftest_ledger *ledger, uint32_t token)
{
    if (token >= ledger->cap) {
        size_t cap = ledger->cap ? ledger->cap : 4096;
        while (cap <= token)
            cap *= 2;
        ledger->entries = cli_grow(ledger->entries, cap, sizeof *ledger->entries);
        memset(ledger->entries + ledger->cap, 0, (cap - ledger->cap) * sizeof *ledger->entries);
        ledger->cap = cap;
    }
    if (token >= ledger->n)
        ledger->n = (size_t)token + 1;
    return &ledger->entries[token];
}

static void hear_run(struct selftest_ledger *ledger, const struct selftest_message *message)
{
    struct selftest_entry *entry = entry_of(ledger, message->token);
    ledger->runs++;
    entry->runs++;
    if (message->epoch == entry->last_run)
        twice(ledger, "task %u ran twice under epoch %llu", message->token,
              (unsigned long long)message->epoch);
    /* Messages of several processes may overtake each other; epochs do not. */
    if (entry->accepted != 0 && message->epoch > entry->accepted)
        twice(ledger, "task %u ran again, after its end had been accepted", message->token);
    if (message->epoch > entry->last_run)
        entry->last_run = message->epoch;
}

static void hear_accepted(struct selftest_ledger *ledger, const struct selftest_message *message)
{
    struct selftest_entry *entry = entry_of(ledger, message->token);
    if (message->outcome != MR_DONE) {
        if (++entry->failures > 1)
            twice(ledger, "task %u: its one failure was accepted twice", message->token);
        return;
    }
    ledger->accepted++;
    if (entry->accepted != 0)
        twice(ledger, "task %u: its end was accepted twice", message->token);
    else if (entry->last_run > message->epoch)
        twice(ledger, "task %u: an end was accepted under an old epoch", message->token);
    entry->accepted = message->epoch;
}

void ledger_hear(struct selftest_ledger *ledger, const struct selftest_message *message)
{
    switch ((enum selftest_kind)message->kind) {
    case SELFTEST_ACKNOWLEDGED:
        entry_of(ledger, message->token)->acknowledged = true;
        ledger->acknowledged++;
        return;
    case SELFTEST_IN_DOUBT:
        entry_of(ledger, message->token)->in_doubt = true;
        ledger->in_doubt++;
        return;
    case SELFTEST_RUNS:
        hear_run(ledger, message);
        return;
    case SELFTEST_ACCEPTED:
        hear_accepted(ledger, message);
        return;
    case SELFTEST_WRONG:
        break;
    }
    ledger_wrong(ledger, "task %u: %s", message->token, mr_err_text((enum mr_err)message->err));
}

/* ---- at the end ------------------------------------------------------------------------------ */

static void check_end(struct selftest_ledger *ledger, const struct selftest_entry *entry,
                      uint32_t token, const struct mr_task *task)
{
    char result[SELFTEST_RESULT_MAX];
    size_t len = selftest_result(token, task->epoch, result);
    if (task->state != MR_COMPLETED)
        ledger_wrong(ledger, "task %u is %s: %.*s", token, mr_state_name(task->state),
                     (int)task->last_error.len, (const char *)task->last_error.data);
    else if (entry->accepted != 0 && entry->accepted != task->epoch)
        twice(ledger, "task %u: an end was accepted, and another one is kept", token);
    else if (!mr_slice_equal(task->result, mr_slice_make(result, len)))
        ledger_wrong(ledger, "task %u has another result than its run left", token);
    else if (task->epoch > entry->last_run)
        ledger_wrong(ledger, "task %u was ended by a run that nobody saw", token);
    else if (task->retried != selftest_fails_first(token))
        ledger_wrong(ledger, "task %u: %u failures were counted, not %d", token, task->retried,
                     selftest_fails_first(token));
    else if (task->crashes != 0)
        ledger_wrong(ledger, "task %u: a crash was counted, and no worker died", token);
    else
        ledger->finished++;
}

static void check_task(struct selftest_ledger *ledger, const struct mr_task *task)
{
    uint32_t token = selftest_token(task->payload);
    struct selftest_entry *entry = token < ledger->n ? &ledger->entries[token] : NULL;
    char id[32] = "";
    if (entry)
        selftest_id(token, id);
    if (!entry || (!entry->acknowledged && !entry->in_doubt))
        ledger_wrong(ledger, "task %.*s is there, and nobody sent it", (int)task->id.len,
                     (const char *)task->id.data);
    else if (entry->found)
        twice(ledger, "task %u is there twice", token);
    else if (*id && !mr_slice_equal(task->id, mr_slice_str(id)))
        ledger_wrong(ledger, "task %u has the id %.*s", token, (int)task->id.len,
                     (const char *)task->id.data);
    else
        check_end(ledger, entry, token, task);
    if (entry)
        entry->found = true;
}

static void check_missing(struct selftest_ledger *ledger)
{
    for (uint32_t token = 0; token < ledger->n; token++) {
        const struct selftest_entry *entry = &ledger->entries[token];
        if (entry->acknowledged && !entry->found)
            lost(ledger, "task %u was acknowledged and is lost", token);
        else if (entry->accepted != 0 && !entry->found)
            lost(ledger, "task %u had its end accepted and is lost", token);
    }
}

/* Each accepted end of a run is counted once by the queue, failures too. */
static enum mr_err check_counts(struct selftest_ledger *ledger, struct mr_client *client)
{
    struct mr_queue_info info;
    uint64_t failures = 0;
    MR_TRY(mr_queue_get(client, MR_SLICE_LIT(SELFTEST_QUEUE), &info));
    for (uint32_t token = 0; token < ledger->n; token++)
        failures += ledger->entries[token].found && selftest_fails_first(token);
    if (ledger_is_clean(ledger) &&
        (info.processed_total != ledger->finished + failures || info.failed_total != failures))
        twice(ledger, "%llu ends were counted, %llu of them failures, and there were %llu and %llu",
              (unsigned long long)info.processed_total, (unsigned long long)info.failed_total,
              (unsigned long long)(ledger->finished + failures), (unsigned long long)failures);
    return MR_OK;
}

enum mr_err ledger_check(struct selftest_ledger *ledger, struct mr_client *client)
{
    struct mr_list_options options = {
        .queue = MR_SLICE_LIT(SELFTEST_QUEUE), .limit = MR_BATCH_MAX, .with_payload = true};
    char cursor[256] = "";
    do {
        struct mr_task_list *list = NULL;
        options.cursor = *cursor ? cursor : NULL;
        MR_TRY(mr_task_list_get(client, &options, &list));
        for (size_t i = 0; i < mr_task_list_count(list); i++)
            check_task(ledger, mr_task_list_at(list, i));
        snprintf(cursor, sizeof cursor, "%s", mr_task_list_next(list));
        mr_task_list_free(list);
    } while (*cursor);
    check_missing(ledger);
    return check_counts(ledger, client);
}
