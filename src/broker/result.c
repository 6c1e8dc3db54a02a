/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/result.h"

#include <inttypes.h>
#include <stdio.h>

#include "wire/flat.h"

struct mr_slice mr_result_queue(struct mr_slice topic, char name[MR_NAME_MAX + 1])
{
    size_t len = topic.len < MR_TOPIC_MAX ? topic.len : MR_TOPIC_MAX;
    name[0] = MR_RESULT_QUEUE_MARK;
    if (len > 0)
        memcpy(name + 1, topic.data, len);
    name[1 + len] = '\0';
    return mr_slice_make(name, 1 + len);
}

struct mr_slice mr_result_topic(struct mr_slice queue)
{
    const char *name = queue.data;
    if (queue.len == 0 || name[0] != MR_RESULT_QUEUE_MARK)
        return (struct mr_slice){0};
    return mr_slice_make(name + 1, queue.len - 1);
}

struct mr_uuid mr_result_id(struct mr_slice task_id, uint64_t epoch)
{
    const struct mr_hash_key key = {0}; /* the same in every process and every store */
    uint8_t bytes[sizeof epoch + MR_ID_MAX];
    size_t len = task_id.len < MR_ID_MAX ? task_id.len : MR_ID_MAX;
    mr_store64(bytes, epoch);
    if (len > 0)
        memcpy(bytes + sizeof epoch, task_id.data, len);
    return mr_hash128(key, mr_slice_make(bytes, sizeof epoch + len));
}

/* ---- encoding ------------------------------------------------------------------------------- */

#define FIELD(kind, member)                                                                        \
    {                                                                                              \
        MR_FLAT_##kind, offsetof(struct mr_result, member), 0                                      \
    }
static const struct mr_flat_field result_fields[] = {
    FIELD(SLICE, task_id),
    FIELD(SLICE, queue),
    FIELD(U32, partition),
    FIELD(SLICE, type),
    FIELD(SLICE, topic),
    {MR_FLAT_ENUM, offsetof(struct mr_result, outcome), MR_RESULT_OUTCOME_COUNT - 1},
    FIELD(U32, attempt),
    FIELD(BOOL, final),
    FIELD(BOOL, cancel_requested),
    FIELD(64, finished_ms),
    FIELD(SLICE, error),
    FIELD(SLICE, result),
};
static MR_FLAT(struct mr_result, result_flat, result_fields);

enum mr_err mr_result_encode(const struct mr_result *result, struct mr_buf *buf)
{
    return mr_flat_append(&result_flat, result, buf);
}

enum mr_err mr_result_decode(struct mr_slice bytes, struct mr_result *ret_result)
{
    enum mr_err err = mr_flat_read(&result_flat, bytes, NULL, ret_result);
    return err == MR_INVALID ? MR_DAMAGED : err;
}

/* ---- receipts ------------------------------------------------------------------------------- */

void mr_receipt_format(struct mr_slice id, uint64_t epoch, char text[MR_RECEIPT_MAX + 1])
{
    int len = (int)(id.len < MR_ID_MAX ? id.len : MR_ID_MAX);
    snprintf(text, MR_RECEIPT_MAX + 1, "%.*s.%" PRIu64, len, (const char *)id.data, epoch);
}

bool mr_receipt_parse(struct mr_slice receipt, struct mr_slice *ret_id, uint64_t *ret_epoch)
{
    const char *text = receipt.data;
    size_t dot = receipt.len, digits;
    uint64_t epoch = 0;
    while (dot > 0 && text[dot - 1] != '.')
        dot--;
    digits = receipt.len - dot;
    if (dot < 2 || dot - 1 > MR_ID_MAX || digits == 0 || digits > 19)
        return false;
    for (size_t i = dot; i < receipt.len; i++) {
        if (text[i] < '0' || text[i] > '9')
            return false;
        epoch = epoch * 10 + (uint64_t)(text[i] - '0');
    }
    *ret_id = mr_slice_make(text, dot - 1);
    *ret_epoch = epoch;
    return true;
}
