/* SPDX-License-Identifier: Apache-2.0 */
/* What a task carries. All of it follows from its token, so that it can be compared byte for byte
 * with what is shown or handed out. See oracle.h. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sim/oracle_int.h"
#include "sim/simfs_int.h"

enum { DEFAULT_RETRY = 25, DEFAULT_TIMEOUT_MS = 30 * 60 * 1000 };

#define LONG_VALUE                                                                                 \
    "0123456789abcdefghijklmnopqrstuvwxyz-0123456789abcdefghijklmnopqrstuvwxyz-"                   \
    "0123456789abcdefghijklmnopqrstuvwxyz-0123456789abcdefghijklmnopqrstuvwxyz"

#define TEXT(text)                                                                                 \
    {                                                                                              \
        (text), sizeof(text) - 1                                                                   \
    }

static const struct {
    struct mr_header headers[2];
    size_t n;
} header_sets[ORACLE_HEADER_SETS] = {
    {.n = 0},
    {{{TEXT("trace"), TEXT("00-4bf92f3577b34da6")}}, 1},
    {{{TEXT("tenant"), TEXT("")}, {TEXT("name"), TEXT("gr\xc3\xbc\xc3\x9f \xe2\x82\xac")}}, 2},
    {{{TEXT("long"), TEXT(LONG_VALUE)}}, 1},
};

static const char *const keys[ORACLE_KEYS_MAX + 1] = {"",      "key-1", "key-2", "key-3", "key-4",
                                                      "key-5", "key-6", "key-7", "key-8"};

void payload_fill(uint32_t token, uint8_t *payload, size_t len)
{
    uint64_t x = token * 0x9e3779b97f4a7c15ULL + len;
    for (size_t i = 0; i < len; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        payload[i] = (uint8_t)x;
    }
    if (len >= 8) {
        mr_store32(payload, token);
        mr_store32(payload + 4, 0x51a51a51);
    }
}

uint32_t retry_limit(const struct oracle_spec *spec)
{
    if (spec->max_retry == 0)
        return DEFAULT_RETRY;
    return spec->max_retry < 0 ? 0 : (uint32_t)spec->max_retry;
}

const char *oracle_topic(const struct oracle_spec *spec)
{
    return spec->headers > 0 ? "outcomes" : "";
}

void oracle_options(const struct oracle *oracle, uint32_t token, uint8_t *payload,
                    struct mr_task_options *ret_options)
{
    const struct oracle_spec *spec = oracle_spec(oracle, token);
    mr_assert(spec->unique <= ORACLE_KEYS_MAX && spec->key <= ORACLE_KEYS_MAX &&
              spec->headers < ORACLE_HEADER_SETS);
    payload_fill(token, payload, spec->payload_len);
    *ret_options = (struct mr_task_options){
        .queue = mr_slice_str(spec->queue),
        .type = mr_slice_str(spec->type),
        .payload = mr_slice_make(payload, spec->payload_len),
        .id = mr_slice_str(spec->id),
        .priority_s = spec->priority_s,
        .delay_ms = spec->delay_ms,
        .max_retry = spec->max_retry,
        .timeout_ms = spec->timeout_ms,
        .retention_ms = spec->retention_ms,
        .deadline_ms = spec->deadline_ms,
        .unique_key = mr_slice_str(keys[spec->unique]),
        .on_duplicate = spec->on_duplicate,
        .group = mr_slice_str(oracle_group(spec)),
        .key = mr_slice_str(keys[spec->key]),
        .partition = spec->partition,
        .topic = mr_slice_str(oracle_topic(spec)),
        .headers = header_sets[spec->headers].headers,
        .headers_n = header_sets[spec->headers].n,
    };
    if (spec->unique)
        ret_options->unique_ms =
            spec->unique_forever ? 3650 * MR_MS_PER_DAY : ORACLE_UNIQUE_SHORT_MS;
}

void oracle_task(const struct oracle *oracle, uint32_t token, uint8_t *payload,
                 struct mr_task *ret_task)
{
    struct mr_task_options options;
    oracle_options(oracle, token, payload, &options);
    *ret_task = (struct mr_task){
        .id = mr_slice_str(oracle_id(oracle, token)),
        .queue = options.queue,
        .type = options.type,
        .payload = options.payload,
        .unique_key = options.unique_key,
        .topic = options.topic,
        .group = options.group,
        .key = options.key,
        .partition = options.partition > 0 ? options.partition : 1,
        .headers = options.headers,
        .headers_n = options.headers_n,
        .priority_s = options.priority_s,
        .max_retry = retry_limit(oracle_spec(oracle, token)),
        .timeout_ms = options.timeout_ms == 0  ? DEFAULT_TIMEOUT_MS
                      : options.timeout_ms < 0 ? 0
                                               : options.timeout_ms,
        .deadline_ms = options.deadline_ms,
        .retention_ms = options.retention_ms,
    };
}

static bool same_headers(const struct mr_task *a, const struct mr_task *b)
{
    bool same = a->headers_n == b->headers_n;
    for (size_t i = 0; same && i < a->headers_n; i++)
        same = mr_slice_equal(a->headers[i].name, b->headers[i].name) &&
               mr_slice_equal(a->headers[i].value, b->headers[i].value);
    return same;
}

/* The name of what differs; NULL when nothing does. */
static const char *difference(const struct mr_task *want, const struct mr_task *task)
{
    const struct {
        const char *name;
        bool same;
    } fields[] = {
        {"payload", mr_slice_equal(want->payload, task->payload)},
        {"queue", mr_slice_equal(want->queue, task->queue)},
        {"type", mr_slice_equal(want->type, task->type)},
        {"headers", same_headers(want, task)},
        {"unique key", mr_slice_equal(want->unique_key, task->unique_key)},
        {"topic", mr_slice_equal(want->topic, task->topic)},
        {"group", mr_slice_equal(want->group, task->group)},
        {"key", mr_slice_equal(want->key, task->key)},
        {"retry limit", want->max_retry == task->max_retry},
        {"timeout", want->timeout_ms == task->timeout_ms},
        {"deadline", want->deadline_ms == task->deadline_ms},
        {"retention", want->retention_ms == task->retention_ms},
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (!fields[i].same)
            return fields[i].name;
    return NULL;
}

void check_body(struct oracle *oracle, uint32_t token, const struct mr_task *task)
{
    struct fact *fact = fact_at(oracle, token);
    struct mr_task want;
    uint8_t *payload = sim_alloc(fact->spec.payload_len);
    oracle_task(oracle, token, payload, &want);
    const char *what = difference(&want, task);
    free(payload);
    if (what)
        oracle_fail(oracle, "task %u: %s differs from what was sent", token, what);
    if (!fact->reordered && !fact->spec.unique && want.priority_s != task->priority_s)
        oracle_fail(oracle, "task %u: priority %g, sent with %g", token, task->priority_s,
                    want.priority_s);
    if (!fact->id[0] && task->id.len <= MR_ID_MAX)
        memcpy(fact->id, task->id.data, task->id.len);
    if (!mr_slice_equal(task->id, mr_slice_str(fact->id)))
        oracle_fail(oracle, "task %u: known as %s, shown as %.*s", token, fact->id,
                    (int)task->id.len, (const char *)task->id.data);
}

/* ---- results and errors --------------------------------------------------------------------- */

void oracle_note(uint32_t token, uint64_t epoch, size_t len, char *ret_text)
{
    char head[ORACLE_NOTE_MIN];
    mr_assert(len >= ORACLE_NOTE_MIN && len <= ORACLE_NOTE_MAX);
    int n = snprintf(head, sizeof head, "note %u %llu ", token, (unsigned long long)epoch);
    memcpy(ret_text, head, (size_t)n);
    for (size_t i = (size_t)n; i < len; i++)
        ret_text[i] = (char)('a' + (i * 7 + token + epoch) % 26);
}

uint64_t note_epoch(uint32_t token, struct mr_slice text)
{
    char head[ORACLE_NOTE_MIN + 1] = {0}, want[ORACLE_NOTE_MAX];
    unsigned of = 0;
    unsigned long long epoch = 0;
    if (text.len < ORACLE_NOTE_MIN || text.len > ORACLE_NOTE_MAX)
        return 0;
    memcpy(head, text.data, ORACLE_NOTE_MIN);
    if (sscanf(head, "note %u %llu ", &of, &epoch) != 2 || of != token)
        return 0;
    oracle_note(token, epoch, text.len, want);
    return memcmp(want, text.data, text.len) == 0 ? epoch : 0;
}

static bool is_note(struct mr_slice text)
{
    return text.len >= 5 && memcmp(text.data, "note ", 5) == 0;
}

static bool as_known(const struct note *note, uint32_t token, struct mr_slice text)
{
    return text.len == note->len && (note->len == 0 || note_epoch(token, text) == note->epoch);
}

void check_note(struct oracle *oracle, uint32_t token, const struct mr_task *task)
{
    struct fact *fact = fact_at(oracle, token);
    uint8_t fates = may(oracle, fact);
    bool readable = !oracle->allow_loss && oracle->reads_failed == 0;
    bool sure = (fates & (fates - 1)) == 0 && readable;
    const struct note *note = &fact->note;
    if (task->result.len && (task->state != MR_COMPLETED || !note_epoch(token, task->result)))
        oracle_fail(oracle, "task %u: a result that nobody sent", token);
    if (is_note(task->last_error) && !note_epoch(token, task->last_error))
        oracle_fail(oracle, "task %u: an error that nobody sent", token);
    bool dropped = oracle->short_of_space && task->result.len == 0 && !is_note(task->last_error);
    if (sure && note->known && note->is_result && task->state == MR_COMPLETED && !dropped &&
        !as_known(note, token, task->result))
        oracle_fail(oracle, "task %u: the result is not that of epoch %llu", token,
                    (unsigned long long)note->epoch);
    if (sure && note->known && !note->is_result && task->state != MR_COMPLETED && !dropped &&
        !as_known(note, token, task->last_error))
        oracle_fail(oracle, "task %u: the error is not that of epoch %llu", token,
                    (unsigned long long)note->epoch);
}
