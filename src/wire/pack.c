/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/pack.h"

#include <string.h>

enum pack_head { HAS_MORE = 1, HAS_SHAPE = 2, HAS_SEGMENT = 4, HAS_SIZE = 8, HEAD_BITS = 15 };

/* ---- numbers -------------------------------------------------------------------------------- */

/* Differences wrap, so every pair of values has one. */
static uint8_t *put_difference(uint8_t *at, uint64_t value, uint64_t before)
{
    uint64_t less = value - before;
    uint64_t left = less << 1 ^ (less >> 63 ? UINT64_MAX : 0);
    for (; left >= 0x80; left >>= 7)
        *at++ = (uint8_t)(left | 0x80);
    *at++ = (uint8_t)left;
    return at;
}

struct reader {
    const uint8_t *at, *end;
    bool bad;
};

static const uint8_t *take(struct reader *r, size_t n)
{
    static const uint8_t nothing[MR_ENTRY_MORE_SIZE];
    if ((size_t)(r->end - r->at) < n) {
        r->bad = true;
        return nothing;
    }
    const uint8_t *at = r->at;
    r->at += n;
    return at;
}

/* One way to write a number: no byte that adds nothing, no bit above the 64th. */
static uint64_t take_difference(struct reader *r, uint64_t before)
{
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
        uint8_t byte = *take(r, 1);
        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte & 0x80)
            continue;
        r->bad |= (shift > 0 && byte == 0) || (shift == 63 && byte > 1);
        return before + (value >> 1 ^ (value & 1 ? UINT64_MAX : 0));
    }
    r->bad = true;
    return before;
}

/* ---- entries -------------------------------------------------------------------------------- */

static bool same_shape(const struct mr_entry *a, const struct mr_entry *b)
{
    return a->queue == b->queue && a->part == b->part && a->retried == b->retried &&
           a->max_retry == b->max_retry && a->state == b->state && a->flags == b->flags &&
           a->crashes == b->crashes;
}

static uint8_t *put_shape(uint8_t *at, const struct mr_entry *entry)
{
    mr_event_place_encode(entry->queue, entry->part, at);
    mr_store16(at + 4, entry->retried);
    mr_store16(at + 6, entry->max_retry);
    at[8] = entry->state;
    at[9] = entry->flags;
    at[10] = entry->crashes;
    return at + MR_PACK_SHAPE;
}

static uint8_t *put32(uint8_t *at, uint32_t value)
{
    mr_store32(at, value);
    return at + 4;
}

size_t mr_entry_pack(const struct mr_entry *entry, struct mr_entry *before,
                     uint8_t bytes[MR_PACK_MAX])
{
    bool shape = !same_shape(entry, before), segment = entry->segment != before->segment,
         size = entry->size != before->size;
    bytes[0] = (uint8_t)((entry->has_more ? HAS_MORE : 0) | (shape ? HAS_SHAPE : 0) |
                         (segment ? HAS_SEGMENT : 0) | (size ? HAS_SIZE : 0));
    memcpy(bytes + 1, entry->id.bytes, sizeof entry->id.bytes);
    uint8_t *at = bytes + 1 + sizeof entry->id.bytes;
    at = put_difference(at, (uint64_t)entry->key, (uint64_t)before->key);
    at = put_difference(at, entry->tie, before->tie);
    at = put_difference(at, entry->offset, before->offset);
    at = shape ? put_shape(at, entry) : at;
    at = segment ? put32(at, entry->segment) : at;
    at = size ? put32(at, entry->size) : at;
    if (entry->has_more) {
        mr_entry_more_encode(entry, at);
        at += MR_ENTRY_MORE_SIZE;
    }
    *before = *entry;
    return (size_t)(at - bytes);
}

static void take_shape(struct reader *r, struct mr_entry *entry)
{
    const uint8_t *at = take(r, MR_PACK_SHAPE);
    r->bad |= !mr_event_place_decode(at, &entry->queue, &entry->part);
    entry->retried = mr_load16(at + 4);
    entry->max_retry = mr_load16(at + 6);
    entry->state = at[8];
    entry->flags = at[9];
    entry->crashes = at[10];
}

enum mr_err mr_entry_unpack(struct mr_slice *bytes, struct mr_entry *entry)
{
    struct reader r = {.at = bytes->data, .end = (const uint8_t *)bytes->data + bytes->len};
    uint8_t head = *take(&r, 1);
    memcpy(entry->id.bytes, take(&r, sizeof entry->id.bytes), sizeof entry->id.bytes);
    entry->key = (int64_t)take_difference(&r, (uint64_t)entry->key);
    entry->tie = take_difference(&r, entry->tie);
    uint64_t offset = take_difference(&r, entry->offset);
    entry->offset = (uint32_t)offset;
    if (head & HAS_SHAPE)
        take_shape(&r, entry);
    if (head & HAS_SEGMENT)
        entry->segment = mr_load32(take(&r, 4));
    if (head & HAS_SIZE)
        entry->size = mr_load32(take(&r, 4));
    entry->has_more = head & HAS_MORE;
    if (entry->has_more)
        mr_entry_more_decode(take(&r, MR_ENTRY_MORE_SIZE), entry);
    if (r.bad || head > HEAD_BITS || offset > UINT32_MAX || !mr_entry_state_ok(entry->state))
        return MR_DAMAGED;
    *bytes = mr_slice_make(r.at, (size_t)(r.end - r.at));
    return MR_OK;
}
