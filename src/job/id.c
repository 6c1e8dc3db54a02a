/* SPDX-License-Identifier: Apache-2.0 */
#include "job/id.h"

/* A million of them are made for a job of a million parts: no printf. */
static char *put_number(char *at, uint64_t value)
{
    char digits[20];
    size_t n = 0;
    do {
        digits[n++] = (char)('0' + value % 10);
        value /= 10;
    } while (value > 0);
    *at++ = '.';
    while (n > 0)
        *at++ = digits[--n];
    return at;
}

size_t mr_part_id_format(const struct mr_part_id *id, char text[MR_PART_ID_MAX + 1])
{
    mr_uuid_format(&id->job, text);
    char *at = put_number(text + MR_UUID_TEXT_LEN, id->segment);
    at = put_number(at, id->index);
    at = put_number(at, id->stage);
    at = put_number(at, id->round);
    *at = '\0';
    mr_assert(at - text <= MR_PART_ID_MAX);
    return (size_t)(at - text);
}

/* A point and a number without zeros before it, off the front of text. */
static bool take_number(struct mr_slice *text, uint64_t min, uint64_t max, uint64_t *ret_value)
{
    const char *p = text->data;
    size_t i = 1;
    uint64_t value = 0;
    if (text->len < 2 || p[0] != '.')
        return false;
    for (; i < text->len && p[i] >= '0' && p[i] <= '9'; i++) {
        if (__builtin_mul_overflow(value, 10, &value) ||
            __builtin_add_overflow(value, (uint64_t)(p[i] - '0'), &value))
            return false;
    }
    if (i == 1 || (p[1] == '0' && i > 2) || value < min || value > max)
        return false;
    *text = mr_slice_make(p + i, text->len - i);
    *ret_value = value;
    return true;
}

bool mr_part_id_parse(struct mr_slice text, struct mr_part_id *ret_id)
{
    struct mr_part_id id;
    uint64_t stage, round;
    if (text.len < MR_UUID_TEXT_LEN || text.len > MR_PART_ID_MAX ||
        !mr_uuid_parse(mr_slice_make(text.data, MR_UUID_TEXT_LEN), &id.job))
        return false;
    text = mr_slice_make((const char *)text.data + MR_UUID_TEXT_LEN, text.len - MR_UUID_TEXT_LEN);
    if (!take_number(&text, 1, INT64_MAX, &id.segment) ||
        !take_number(&text, 0, INT64_MAX, &id.index) ||
        !take_number(&text, 0, MR_JOB_STAGES_MAX - 1, &stage) ||
        !take_number(&text, 0, UINT32_MAX, &round) || text.len > 0)
        return false;
    id.stage = (uint32_t)stage;
    id.round = (uint32_t)round;
    *ret_id = id;
    return true;
}
