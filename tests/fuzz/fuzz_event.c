/* SPDX-License-Identifier: Apache-2.0 */
/* Bodies of records and entries of snapshots: judged without harm, and equal when written again. */
#include "wire/event.h"
#include "wire/pack.h"

#include <stdlib.h>

#include "fuzz/fuzz.h"

enum { BODY_MAX = 64 * 1024 };

static void check_task(struct mr_slice body)
{
    struct mr_event_task event;
    struct mr_slice message;
    if (mr_event_task_decode(body, &event, &message) != MR_OK)
        return;
    uint8_t again[MR_EVENT_TASK_SIZE];
    mr_assert(event.state < MR_STATE_COUNT && fuzz_within(message, body));
    mr_event_task_encode(&event, again);
    mr_assert(memcmp(again, body.data, sizeof again) == 0);
}

static void check_gathered(struct mr_slice body)
{
    struct mr_event_task event;
    struct mr_slice ids, message;
    if (mr_event_gathered_decode(body, &event, &ids, &message) != MR_OK)
        return;
    uint8_t again[MR_EVENT_TASK_SIZE + MR_EVENT_GATHERED_HEAD];
    mr_assert(ids.len > 0 && ids.len % sizeof(struct mr_uuid) == 0);
    mr_assert(fuzz_within(ids, body) && fuzz_within(message, body));
    mr_assert(sizeof again + ids.len + message.len == body.len);
    mr_event_gathered_encode(&event, ids.len / sizeof(struct mr_uuid), again);
    mr_assert(memcmp(again, body.data, sizeof again - 4) == 0); /* but for what must be zero */
}

static void check_result(struct mr_slice body)
{
    struct mr_event_result event;
    struct mr_slice message;
    if (mr_event_result_decode(body, &event, &message) != MR_OK)
        return;
    uint8_t again[MR_EVENT_RESULT_SIZE];
    mr_assert(fuzz_within(message, body) && fuzz_within(event.change.text, body));
    mr_assert(sizeof again + message.len == body.len && event.change.text.len <= message.len);
    mr_event_result_encode(&event, again);
    again[MR_EVENT_CHANGE_SIZE - 1] =
        ((const uint8_t *)body.data)[MR_EVENT_CHANGE_SIZE - 1]; /* where nothing is read */
    mr_assert(memcmp(again, body.data, sizeof again) == 0);
}

static void check_runs(struct mr_slice body)
{
    int64_t ms;
    size_t n;
    if (mr_event_runs_decode(body, &ms, &n) != MR_OK)
        return;
    mr_assert(n > 0 && body.len == n * MR_EVENT_RUN_SIZE + MR_EVENT_RUNS_TIME);
    for (size_t i = 0; i < n; i++) {
        struct mr_event_run run = mr_event_run_at(body, i);
        uint8_t again[MR_EVENT_RUN_SIZE];
        mr_event_run_encode(&run, again);
        const uint8_t *at = (const uint8_t *)body.data + i * sizeof again;
        mr_assert(memcmp(again, at, sizeof again) == 0);
    }
}

static void check_change(struct mr_slice body)
{
    struct mr_event_change event, back;
    if (mr_event_change_decode(body, &event) != MR_OK)
        return;
    mr_assert(event.state < MR_STATE_COUNT && fuzz_within(event.text, body));
    uint8_t *again = malloc(MR_EVENT_CHANGE_SIZE + event.text.len);
    mr_assert(again != NULL);
    mr_event_change_encode(&event, again);
    mr_assert(mr_event_change_decode(mr_slice_make(again, MR_EVENT_CHANGE_SIZE + event.text.len),
                                     &back) == MR_OK);
    mr_assert(mr_slice_equal(back.text, event.text) && back.key == event.key);
    mr_assert(back.state == event.state && back.epoch == event.epoch && back.ms == event.ms);
    free(again);
}

static void check_queue(struct mr_slice body)
{
    struct mr_event_queue event;
    if (mr_event_queue_decode(body, &event) != MR_OK)
        return;
    mr_assert(event.name.len >= 1 && event.name.len <= MR_NAME_MAX);
    mr_assert(fuzz_within(event.name, body));
    mr_assert(event.more_parts < MR_PARTITIONS_MAX && event.assign < MR_ASSIGN_COUNT);
    mr_assert(fuzz_within(event.settings, body));
    uint8_t *again = malloc(body.len);
    mr_assert(again != NULL);
    mr_event_queue_encode(&event, again);
    mr_assert(memcmp(again, body.data, body.len) == 0);
    free(again);
}

static void check_entries(struct mr_slice bytes)
{
    struct mr_entry entry;
    struct mr_slice rest = bytes;
    while (mr_entry_decode(&rest, &entry) == MR_OK) {
        size_t used = bytes.len - rest.len;
        uint8_t again[MR_ENTRY_MAX];
        mr_assert(used == MR_ENTRY_SIZE || used == MR_ENTRY_MAX);
        mr_assert(entry.state > MR_STATE_NONE && entry.state < MR_STATE_COUNT);
        mr_assert(mr_entry_encode(&entry, again) == used);
        mr_assert(memcmp(again, bytes.data, used) == 0);
        bytes = rest;
    }
    mr_assert(rest.len == bytes.len);
}

static void check_packed(struct mr_slice bytes)
{
    struct mr_entry entry = {0}, before = {0};
    struct mr_slice rest = bytes;
    while (mr_entry_unpack(&rest, &entry) == MR_OK) {
        size_t used = bytes.len - rest.len;
        uint8_t again[MR_PACK_MAX];
        struct mr_slice back = mr_slice_make(again, mr_entry_pack(&entry, &before, again));
        mr_assert(entry.state > MR_STATE_NONE && entry.state < MR_STATE_COUNT);
        mr_assert(back.len <= used && back.len <= MR_PACK_MAX); /* what is as before may be told */
        bytes = rest;
    }
    mr_assert(rest.len == bytes.len);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size > BODY_MAX)
        return 0;
    struct mr_slice body = mr_slice_make(data, size);
    check_task(body);
    check_gathered(body);
    check_result(body);
    check_runs(body);
    check_change(body);
    check_queue(body);
    check_entries(body);
    check_packed(body);
    return 0;
}
