/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TZif files (RFC 9636). Version 1 has one block with 32-bit times; later ones have a second block
 * with 64-bit times, which is read instead, and a footer. Of a block we want when the offset
 * changes; abbreviations and marks are passed over. A file with leap seconds is refused: its
 * seconds are not those of the system's clock.
 *
 *     header   44 bytes: "TZif", version, 15 reserved, then six counts of 32 bits, big-endian
 *     block    times, types (a byte each), type records (offset 4, daylight 1, name 1), names,
 *              leap seconds, standard/wall marks, UT/local marks
 *     footer   newline, POSIX rule, newline
 */
#include <stdlib.h>

#include "timer/internal.h"

enum { HEADER_LEN = 44, TYPE_LEN = 6, COUNT_MAX = 100000, TYPES_MAX = 256 };

struct header {
    char version;
    uint32_t isut, isstd, leap, time, type, chars; /* counts */
};

struct block {
    const uint8_t *times, *kinds, *types;
    size_t time_len; /* of a time: 4 or 8 */
    struct header header;
};

static uint32_t big32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static int64_t time_at(const struct block *block, size_t i)
{
    const uint8_t *at = block->times + i * block->time_len;
    if (block->time_len == 4)
        return (int32_t)big32(at);
    return (int64_t)((uint64_t)big32(at) << 32 | big32(at + 4));
}

static const char *read_header(struct mr_slice *file, struct header *header)
{
    const uint8_t *at = file->data;
    if (file->len < HEADER_LEN || memcmp(at, "TZif", 4) != 0)
        return "it is no TZif file";
    header->version = (char)at[4];
    uint32_t *const counts[] = {&header->isut, &header->isstd, &header->leap,
                                &header->time, &header->type,  &header->chars};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        *counts[i] = big32(at + 20 + 4 * i);
        if (*counts[i] > COUNT_MAX)
            return "it has more of something than any zone";
    }
    *file = mr_slice_make(at + HEADER_LEN, file->len - HEADER_LEN);
    return NULL;
}

/* Takes a block off the front of file. */
static const char *read_block(struct mr_slice *file, size_t time_len, struct block *block)
{
    const char *fault = read_header(file, &block->header);
    if (fault != NULL)
        return fault;
    const struct header *h = &block->header;
    size_t len = h->time * (time_len + 1) + h->type * (size_t)TYPE_LEN + h->chars +
                 h->leap * (time_len + 4) + h->isstd + h->isut;
    if (len > file->len)
        return "it is cut short";
    block->time_len = time_len;
    block->times = file->data;
    block->kinds = block->times + h->time * time_len;
    block->types = block->kinds + h->time;
    *file = mr_slice_make(block->times + len, file->len - len);
    return NULL;
}

static int32_t offset_of(const struct block *block, size_t type)
{
    return (int32_t)big32(block->types + type * TYPE_LEN);
}

static const char *check_block(const struct block *block)
{
    const struct header *h = &block->header;
    if (h->leap != 0)
        return "it counts leap seconds";
    if (h->type == 0 || h->type > TYPES_MAX)
        return "it has no kind of time, or too many";
    for (size_t i = 0; i < h->type; i++) {
        int32_t offset = offset_of(block, i);
        if (offset < -TIMER_OFFSET_MAX || offset > TIMER_OFFSET_MAX)
            return "an offset is over 26 hours";
    }
    for (size_t i = 0; i < h->time; i++) {
        if (block->kinds[i] >= h->type)
            return "a change leads to no kind of time";
        if (i > 0 && time_at(block, i) <= time_at(block, i - 1))
            return "its changes are not in order";
    }
    return NULL;
}

static enum mr_err add_block(const struct block *block, struct zone_list *list, int64_t *ret_last)
{
    *ret_last = INT64_MIN;
    MR_TRY(zone_list_add(list, INT64_MIN, offset_of(block, 0)));
    for (size_t i = 0; i < block->header.time; i++) {
        *ret_last = time_at(block, i);
        MR_TRY(zone_list_add(list, *ret_last, offset_of(block, block->kinds[i])));
    }
    return MR_OK;
}

/* Newline, rule, newline; the rule may be empty. */
static const char *read_footer(struct mr_slice file, struct mr_slice *ret_rule)
{
    const char *at = file.data;
    const char *end = file.len > 1 && at[0] == '\n' ? memchr(at + 1, '\n', file.len - 1) : NULL;
    if (end == NULL)
        return "it has no footer";
    *ret_rule = mr_slice_make(at + 1, (size_t)(end - at - 1));
    return NULL;
}

static const char *read_file(struct mr_slice file, struct block *block, struct mr_slice *ret_rule)
{
    const char *fault = read_block(&file, 4, block);
    *ret_rule = mr_slice_make("", 0);
    if (fault == NULL && block->header.version >= '2') {
        fault = read_block(&file, 8, block);
        if (fault == NULL)
            fault = read_footer(file, ret_rule);
    }
    return fault != NULL ? fault : check_block(block);
}

/* ---- the list of changes --------------------------------------------------------------------- */

enum mr_err zone_list_add(struct zone_list *list, int64_t at, int32_t offset)
{
    struct zone_change change = {at, offset};
    return mr_buf_append(&list->buf, &change, sizeof change);
}

/* By time; of those at the same moment the one added last stays last. The changes of the years
 * follow each other nearly always, so moving each to its place is quick. */
static void sort_changes(struct zone_change *changes, size_t count)
{
    for (size_t i = 1; i < count; i++) {
        struct zone_change change = changes[i];
        size_t at = i;
        for (; at > 0 && changes[at - 1].at > change.at; at--)
            changes[at] = changes[at - 1];
        changes[at] = change;
    }
}

/* Of changes at one moment the last counts, and one that changes nothing is none. */
static size_t thin_changes(struct zone_change *changes, size_t count)
{
    size_t kept = 1;
    for (size_t i = 1; i < count; i++) {
        if (i + 1 < count && changes[i + 1].at == changes[i].at)
            continue;
        if (changes[i].offset != changes[kept - 1].offset)
            changes[kept++] = changes[i];
    }
    return kept;
}

static enum mr_err make_zone(const char *name, struct zone_list *list, struct mr_zone **ret_zone)
{
    struct zone_change *changes = (struct zone_change *)list->buf.data;
    size_t count = list->buf.len / sizeof *changes;
    sort_changes(changes, count);
    count = thin_changes(changes, count);
    struct mr_zone *zone = malloc(sizeof *zone + count * sizeof *changes);
    if (zone == NULL)
        return MR_NOMEM;
    zone->next = NULL;
    (void)snprintf(zone->name, sizeof zone->name, "%s", name);
    zone->count = count;
    memcpy(zone->changes, changes, count * sizeof *changes);
    *ret_zone = zone;
    return MR_OK;
}

enum mr_err mr_zone_parse(const char *name, struct mr_slice file, struct mr_zone **ret_zone,
                          struct mr_detail *detail)
{
    struct block block;
    struct mr_slice rule;
    struct zone_list list = {0};
    const char *fault = read_file(file, &block, &rule);
    if (fault != NULL) {
        mr_detail_set(detail, "zone '%s' cannot be used: %s", name, fault);
        return MR_INVALID;
    }
    int64_t last;
    enum mr_err err = add_block(&block, &list, &last);
    if (err == MR_OK && rule.len > 0)
        err = zone_posix_add(rule, last, &list);
    if (err == MR_OK)
        err = make_zone(name, &list, ret_zone);
    else if (err == MR_INVALID)
        mr_detail_set(detail, "zone '%s' cannot be used: its footer is no rule", name);
    mr_buf_done(&list.buf);
    return err;
}

void mr_zone_free(struct mr_zone *zone)
{
    free(zone);
}
