/* SPDX-License-Identifier: Apache-2.0 */
/* See record.h for the layout. No IO here. */
#include "wire/record.h"

#include "base/crc.h"

enum {
    AT_CRC = 0,
    AT_LEN = 4,
    AT_SEQ = 8,
    AT_LAG = 16,
    AT_TERM = 20,
    AT_SEGMENT = 24,
    AT_TYPE = 28
};

static const char *const type_names[MR_RECORD_TYPE_COUNT] = {
    [MR_RECORD_NONE] = "none",         [MR_RECORD_OPEN] = "open",
    [MR_RECORD_CEILING] = "ceiling",   [MR_RECORD_MARK] = "mark",
    [MR_RECORD_SKIP] = "skip",         [MR_RECORD_QUEUE] = "queue",
    [MR_RECORD_TASK] = "task",         [MR_RECORD_UNQUEUE] = "unqueue",
    [MR_RECORD_COPY] = "copy",         [MR_RECORD_NOTE] = "note",
    [MR_RECORD_TAKE] = "take",         [MR_RECORD_DONE] = "done",
    [MR_RECORD_FINISH] = "finish",     [MR_RECORD_LOST] = "lost",
    [MR_RECORD_MOVE] = "move",         [MR_RECORD_DELETE] = "delete",
    [MR_RECORD_GATHERED] = "gathered", [MR_RECORD_TEXT] = "text",
    [MR_RECORD_CARRIED] = "carried",   [MR_RECORD_RESULT] = "result",
};

void mr_record_seal(uint8_t *at, const struct mr_record *record, uint32_t salt)
{
    size_t len = record->body.len;
    mr_assert(len <= MR_RECORD_BODY_MAX);
    mr_store32(at + AT_LEN, (uint32_t)len);
    mr_store64(at + AT_SEQ, record->seq);
    mr_store32(at + AT_LAG, record->lag);
    mr_store32(at + AT_TERM, record->term);
    mr_store32(at + AT_SEGMENT, record->segment);
    at[AT_TYPE] = record->type;
    at[AT_TYPE + 1] = record->version;
    at[AT_TYPE + 2] = at[AT_TYPE + 3] = 0;
    size_t end = MR_RECORD_HEADER + len;
    memset(at + end, 0, mr_record_size(len) - end);
    mr_store32(at + AT_CRC, mr_crc32c(salt, at + AT_LEN, end - AT_LEN));
}

enum mr_record_check mr_record_parse(struct mr_slice bytes, uint32_t salt,
                                     struct mr_record *ret_record)
{
    const uint8_t *at = bytes.data;
    if (bytes.len < MR_RECORD_HEADER) {
        ret_record->body = mr_slice_make(NULL, MR_RECORD_HEADER);
        return MR_RECORD_SHORT;
    }
    uint32_t len = mr_load32(at + AT_LEN);
    uint8_t type = at[AT_TYPE];
    if (len > MR_RECORD_BODY_MAX || type == MR_RECORD_NONE || mr_load16(at + AT_TYPE + 2) != 0)
        return MR_RECORD_BAD;
    if (bytes.len < MR_RECORD_HEADER + (size_t)len) {
        ret_record->body = mr_slice_make(NULL, MR_RECORD_HEADER + (size_t)len);
        return MR_RECORD_SHORT;
    }
#ifndef MR_PLANT_NO_CRC_CHECK
    if (mr_load32(at + AT_CRC) !=
        mr_crc32c(salt, at + AT_LEN, MR_RECORD_HEADER - AT_LEN + (size_t)len))
        return MR_RECORD_BAD;
#endif
    *ret_record = (struct mr_record){
        .seq = mr_load64(at + AT_SEQ),
        .lag = mr_load32(at + AT_LAG),
        .term = mr_load32(at + AT_TERM),
        .segment = mr_load32(at + AT_SEGMENT),
        .type = type,
        .version = at[AT_TYPE + 1],
        .body = mr_slice_make(at + MR_RECORD_HEADER, len),
    };
    return MR_RECORD_GOOD;
}

uint64_t mr_record_next(const struct mr_record *record, uint64_t at)
{
    uint64_t behind = at + mr_record_size(record->body.len);
    if (record->type != MR_RECORD_SKIP || record->body.len != MR_RECORD_SKIP_BODY)
        return behind;
    uint64_t to = mr_load64(record->body.data);
    return to > behind ? to : behind;
}

const char *mr_record_type_name(unsigned type)
{
    return type < MR_RECORD_TYPE_COUNT ? type_names[type] : "unknown";
}
