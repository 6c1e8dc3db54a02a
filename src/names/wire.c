/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of names.proto: see wire.h. */
#include "names/wire.h"

#include <assert.h>

#include "wire/flat.h"

/* Numbers of NameMessage, and of SubApps. */
enum {
    FIELD_SAY = 1,
    FIELD_DIGEST = 2,
    FIELD_BUCKETS = 3,
    FIELD_MARKS = 4,
    FIELD_WANTS = 5,
    FIELD_ENTRIES = 6
};
enum { FIELD_PARTS = 3, FIELD_PAGE_ENTRIES = 5 };
enum {
    DIGEST_BYTES = 8 * MR_NAMES_BUCKETS,
    BUCKETS_BYTES = MR_NAMES_BUCKETS / 8,
    ID_BYTES = 16,
    MARK_BYTES = ID_BYTES + 8 + 8,
    WIRE_OVERHEAD = 64, /* of an entry: tags, lengths and numbers */
};
static_assert(sizeof(struct mr_uuid) == ID_BYTES, "ids are their bytes");
static_assert((int)WIRE_OVERHEAD <= (int)MR_NAMES_ENTRY_OVERHEAD, "entries are counted for more");
static_assert(MR_NAMES_MSG_BYTES + MR_NAMES_MSG_MARKS * ID_BYTES + 64 <= MR_NAMES_WIRE_MAX &&
                  MR_NAMES_MSG_MARKS * MARK_BYTES + 64 <= MR_NAMES_WIRE_MAX,
              "any message fits");

#define ENTRY(kind, member)                                                                        \
    {                                                                                              \
        MR_FLAT_##kind, offsetof(struct mr_names_entry, member), 0                                 \
    }
static const struct mr_flat_field entry_fields[] = {
    {MR_FLAT_ENUM, offsetof(struct mr_names_entry, kind), MR_NAMES_KIND_COUNT - 1},
    {MR_FLAT_ENUM, offsetof(struct mr_names_entry, fate), MR_NAMES_LEFT},
    ENTRY(FIXED64, incarnation),
    ENTRY(64, version),
    ENTRY(SLICE, name),
    ENTRY(SLICE, app),
    ENTRY(SLICE, address),
    ENTRY(SLICE, server),
    ENTRY(SLICE, body),
    ENTRY(64, age_ms),
};
static MR_FLAT(struct mr_names_entry, entry_flat, entry_fields);

#define PART(kind, member)                                                                         \
    {                                                                                              \
        MR_FLAT_##kind, offsetof(struct mr_subapp, member), 0                                      \
    }
static const struct mr_flat_field part_fields[] = {
    PART(U32, id),
    PART(FIXED64, slots),
    PART(FIXED64, owner),
    PART(FIXED64, epoch),
};
static MR_FLAT(struct mr_subapp, part_flat, part_fields);

static const struct mr_flat_field table_fields[] = {
    {MR_FLAT_FIXED64, offsetof(struct mr_subapps, epoch), 0},
    {MR_FLAT_U32, offsetof(struct mr_subapps, next_id), 0},
};
static MR_FLAT(struct mr_subapps, table_flat, table_fields);

#define FIELD(type, kind, member)                                                                  \
    {                                                                                              \
        MR_FLAT_##kind, offsetof(struct type, member), 0                                           \
    }
static const struct mr_flat_field registered_fields[] = {
    {MR_FLAT_ENUM, offsetof(struct mr_names_registered, put), MR_PUT_OLD},
    FIELD(mr_names_registered, BOOL, complete),
    FIELD(mr_names_registered, FIXED64, from),
    FIELD(mr_names_registered, 64, servers),
    FIELD(mr_names_registered, 64, workers),
};
static MR_FLAT(struct mr_names_registered, registered_flat, registered_fields);

static const struct mr_flat_field query_fields[] = {
    {MR_FLAT_ENUM, offsetof(struct mr_names_query, kind), MR_NAMES_KIND_COUNT - 1},
    FIELD(mr_names_query, SLICE, app),
    FIELD(mr_names_query, FIXED64, from),
    FIELD(mr_names_query, 64, known),
    FIELD(mr_names_query, 64, wait_ms),
    FIELD(mr_names_query, SLICE, after_name),
    FIELD(mr_names_query, FIXED64, after_incarnation),
};
static MR_FLAT(struct mr_names_query, query_flat, query_fields);

static const struct mr_flat_field page_fields[] = {
    FIELD(mr_names_page, FIXED64, from),
    FIELD(mr_names_page, 64, changed),
    FIELD(mr_names_page, BOOL, complete),
    FIELD(mr_names_page, BOOL, more),
};
static MR_FLAT(struct mr_names_page, page_flat, page_fields);

/* ---- out -------------------------------------------------------------------------------------- */

static size_t field_size(size_t len)
{
    return len > 0 ? mr_flat_head_size(len) + len : 0;
}

static size_t msg_size(const struct mr_names_msg *msg)
{
    size_t size = msg->say != MR_SAY_DIGEST ? 2 : 0;
    if (msg->say == MR_SAY_DIGEST)
        return size + field_size(DIGEST_BYTES);
    if (msg->say == MR_SAY_MARKS)
        return size + field_size(BUCKETS_BYTES) + field_size(msg->marks_n * MARK_BYTES);
    size += field_size(msg->wants_n * ID_BYTES);
    for (size_t i = 0; i < msg->entries_n; i++) {
        size_t len = mr_flat_size(&entry_flat, &msg->entries[i]);
        size += mr_flat_head_size(len) + len;
    }
    return size;
}

static uint8_t *put(uint8_t *at, const void *bytes, size_t len)
{
    memcpy(at, bytes, len);
    return at + len;
}

static uint8_t *put_marks(uint8_t *at, const struct mr_names_msg *msg)
{
    at = put(mr_flat_put_head(at, FIELD_BUCKETS, BUCKETS_BYTES), msg->buckets, BUCKETS_BYTES);
    if (msg->marks_n > 0)
        at = mr_flat_put_head(at, FIELD_MARKS, msg->marks_n * MARK_BYTES);
    for (size_t i = 0; i < msg->marks_n; i++, at += MARK_BYTES) {
        memcpy(at, msg->marks[i].id.bytes, ID_BYTES);
        mr_store64(at + ID_BYTES, msg->marks[i].version);
        mr_store64(at + ID_BYTES + 8, msg->marks[i].sum);
    }
    return at;
}

static uint8_t *put_entries(uint8_t *at, const struct mr_names_msg *msg)
{
    if (msg->wants_n > 0)
        at = put(mr_flat_put_head(at, FIELD_WANTS, msg->wants_n * ID_BYTES), msg->wants,
                 msg->wants_n * ID_BYTES);
    for (size_t i = 0; i < msg->entries_n; i++) {
        size_t len = mr_flat_size(&entry_flat, &msg->entries[i]);
        at = mr_flat_write(&entry_flat, &msg->entries[i], mr_flat_put_head(at, FIELD_ENTRIES, len));
    }
    return at;
}

enum mr_err mr_names_encode(const struct mr_names_msg *msg, struct mr_buf *buf)
{
    size_t size = msg_size(msg);
    MR_TRY(mr_buf_reserve(buf, size));
    uint8_t *at = buf->data + buf->len, *end = at + size;
    if (msg->say != MR_SAY_DIGEST)
        at = mr_flat_put_varint(at, FIELD_SAY, msg->say);
    if (msg->say == MR_SAY_DIGEST)
        at = put(mr_flat_put_head(at, FIELD_DIGEST, DIGEST_BYTES), msg->digest, DIGEST_BYTES);
    else if (msg->say == MR_SAY_MARKS)
        at = put_marks(at, msg);
    else
        at = put_entries(at, msg);
    mr_assert(at == end);
    buf->len += size;
    return MR_OK;
}

/* ---- in --------------------------------------------------------------------------------------- */

/* The fields of a message that are bytes, as they stand there. */
struct raw {
    uint64_t say;
    struct mr_slice digest, buckets, marks, wants, all;
    size_t entries_n;
};

static enum mr_err read_raw(struct mr_slice bytes, struct raw *raw)
{
    *raw = (struct raw){.all = bytes};
    struct mr_slice *const fields[] = {[FIELD_DIGEST] = &raw->digest,
                                       [FIELD_BUCKETS] = &raw->buckets,
                                       [FIELD_MARKS] = &raw->marks,
                                       [FIELD_WANTS] = &raw->wants};
    while (bytes.len > 0) {
        struct mr_flat_item item;
        MR_TRY(mr_flat_next(&bytes, &item));
        if (item.number == FIELD_SAY && item.type == MR_FLAT_VARINT)
            raw->say = item.value;
        else if (item.number >= FIELD_DIGEST && item.number <= FIELD_WANTS &&
                 item.type == MR_FLAT_BYTES)
            *fields[item.number] = item.bytes;
        else
            raw->entries_n += item.number == FIELD_ENTRIES && item.type == MR_FLAT_BYTES;
    }
    return MR_OK;
}

static enum mr_err read_digest(const struct raw *raw, struct mr_arena *arena,
                               struct mr_names_msg *msg)
{
    uint64_t *digest = mr_arena_alloc(arena, DIGEST_BYTES);
    if (digest == NULL)
        return MR_NOMEM;
    if (raw->digest.len != DIGEST_BYTES)
        return MR_INVALID;
    memcpy(digest, raw->digest.data, DIGEST_BYTES);
    msg->digest = digest;
    return MR_OK;
}

static enum mr_err read_marks(const struct raw *raw, struct mr_arena *arena,
                              struct mr_names_msg *msg)
{
    size_t n = raw->marks.len / MARK_BYTES;
    if (raw->buckets.len != BUCKETS_BYTES || raw->marks.len % MARK_BYTES != 0)
        return MR_INVALID;
    if (n > MR_NAMES_MSG_MARKS)
        return MR_TOO_BIG;
    struct mr_names_mark *marks = mr_arena_calloc(arena, n + 1, sizeof *marks);
    if (marks == NULL)
        return MR_NOMEM;
    const uint8_t *at = raw->marks.data;
    for (size_t i = 0; i < n; i++, at += MARK_BYTES) {
        memcpy(marks[i].id.bytes, at, ID_BYTES);
        marks[i].version = mr_load64(at + ID_BYTES);
        marks[i].sum = mr_load64(at + ID_BYTES + 8);
    }
    memcpy(msg->buckets, raw->buckets.data, BUCKETS_BYTES);
    msg->marks = marks;
    msg->marks_n = n;
    return MR_OK;
}

static enum mr_err read_each_entry(struct mr_slice bytes, uint32_t number, struct mr_arena *arena,
                                   struct mr_names_entry *to)
{
    while (bytes.len > 0) {
        struct mr_flat_item item;
        MR_TRY(mr_flat_next(&bytes, &item));
        if (item.number == number && item.type == MR_FLAT_BYTES)
            MR_TRY(mr_flat_read(&entry_flat, item.bytes, arena, to++));
    }
    return MR_OK;
}

static enum mr_err read_entries(const struct raw *raw, struct mr_arena *arena,
                                struct mr_names_msg *msg)
{
    size_t n = raw->wants.len / ID_BYTES;
    if (raw->wants.len % ID_BYTES != 0)
        return MR_INVALID;
    if (n > MR_NAMES_MSG_MARKS || raw->entries_n > MR_NAMES_MSG_ENTRIES)
        return MR_TOO_BIG;
    struct mr_uuid *wants = mr_arena_calloc(arena, n + 1, sizeof *wants);
    struct mr_names_entry *entries = mr_arena_calloc(arena, raw->entries_n + 1, sizeof *entries);
    if (wants == NULL || entries == NULL)
        return MR_NOMEM;
    if (n > 0)
        memcpy(wants, raw->wants.data, raw->wants.len);
    MR_TRY(read_each_entry(raw->all, FIELD_ENTRIES, arena, entries));
    msg->wants = wants;
    msg->wants_n = n;
    msg->entries = entries;
    msg->entries_n = raw->entries_n;
    return MR_OK;
}

enum mr_err mr_names_decode(struct mr_slice bytes, struct mr_arena *arena,
                            struct mr_names_msg *ret_msg)
{
    struct raw raw;
    struct mr_names_msg msg = {0};
    if (bytes.len > MR_NAMES_WIRE_MAX)
        return MR_TOO_BIG;
    MR_TRY(read_raw(bytes, &raw));
    if (raw.say > MR_SAY_ENTRIES)
        return MR_INVALID;
    msg.say = (enum mr_names_say)raw.say;
    if (msg.say == MR_SAY_DIGEST)
        MR_TRY(read_digest(&raw, arena, &msg));
    else if (msg.say == MR_SAY_MARKS)
        MR_TRY(read_marks(&raw, arena, &msg));
    else
        MR_TRY(read_entries(&raw, arena, &msg));
    *ret_msg = msg;
    return MR_OK;
}

/* ---- registrations and lists ------------------------------------------------------------------ */

/* None of them has headers, which alone need memory. */
static enum mr_err decode(const struct mr_flat *flat, struct mr_slice bytes, void *out)
{
    struct mr_arena unused = {0};
    return bytes.len > MR_NAMES_WIRE_MAX ? MR_TOO_BIG : mr_flat_read(flat, bytes, &unused, out);
}

enum mr_err mr_names_entry_encode(const struct mr_names_entry *entry, struct mr_buf *buf)
{
    return mr_flat_append(&entry_flat, entry, buf);
}

enum mr_err mr_names_entry_decode(struct mr_slice bytes, struct mr_names_entry *ret_entry)
{
    return decode(&entry_flat, bytes, ret_entry);
}

enum mr_err mr_names_registered_encode(const struct mr_names_registered *answer, struct mr_buf *buf)
{
    return mr_flat_append(&registered_flat, answer, buf);
}

enum mr_err mr_names_registered_decode(struct mr_slice bytes,
                                       struct mr_names_registered *ret_answer)
{
    return decode(&registered_flat, bytes, ret_answer);
}

enum mr_err mr_names_query_encode(const struct mr_names_query *query, struct mr_buf *buf)
{
    return mr_flat_append(&query_flat, query, buf);
}

enum mr_err mr_names_query_decode(struct mr_slice bytes, struct mr_names_query *ret_query)
{
    return decode(&query_flat, bytes, ret_query);
}

enum mr_err mr_names_page_encode(struct mr_names_page *page, struct mr_buf *buf)
{
    size_t n = 0, size = 0;
    for (; n < page->entries_n; n++) {
        size_t len = mr_flat_size(&entry_flat, &page->entries[n]);
        if (n == MR_NAMES_PAGE_MAX || size + mr_flat_head_size(len) + len > MR_NAMES_MSG_BYTES)
            break;
        size += mr_flat_head_size(len) + len;
    }
    page->more = page->more || n < page->entries_n;
    page->entries_n = n;
    MR_TRY(mr_flat_append(&page_flat, page, buf));
    MR_TRY(mr_buf_reserve(buf, size + 1));
    uint8_t *at = buf->data + buf->len;
    for (size_t i = 0; i < n; i++) {
        size_t len = mr_flat_size(&entry_flat, &page->entries[i]);
        at = mr_flat_put_head(at, FIELD_PAGE_ENTRIES, len);
        at = mr_flat_write(&entry_flat, &page->entries[i], at);
    }
    buf->len += size;
    return MR_OK;
}

enum mr_err mr_names_page_decode(struct mr_slice bytes, struct mr_arena *arena,
                                 struct mr_names_page *ret_page)
{
    struct mr_names_page page;
    size_t n;
    MR_TRY(decode(&page_flat, bytes, &page));
    MR_TRY(mr_flat_count(bytes, FIELD_PAGE_ENTRIES, &n));
    if (n > MR_NAMES_PAGE_MAX)
        return MR_TOO_BIG;
    struct mr_names_entry *entries = mr_arena_calloc(arena, n + 1, sizeof *entries);
    if (entries == NULL)
        return MR_NOMEM;
    MR_TRY(read_each_entry(bytes, FIELD_PAGE_ENTRIES, arena, entries));
    page.entries = entries;
    page.entries_n = n;
    *ret_page = page;
    return MR_OK;
}

/* ---- tables ----------------------------------------------------------------------------------- */

enum mr_err mr_subapps_encode(const struct mr_subapps *table, struct mr_buf *buf)
{
    mr_assert(mr_subapps_valid(table));
    size_t size = mr_flat_size(&table_flat, table);
    for (size_t i = 0; i < table->n; i++) {
        size_t len = mr_flat_size(&part_flat, &table->parts[i]);
        size += mr_flat_head_size(len) + len;
    }
    MR_TRY(mr_buf_reserve(buf, size));
    uint8_t *at = mr_flat_write(&table_flat, table, buf->data + buf->len);
    for (size_t i = 0; i < table->n; i++) {
        size_t len = mr_flat_size(&part_flat, &table->parts[i]);
        at = mr_flat_write(&part_flat, &table->parts[i], mr_flat_put_head(at, FIELD_PARTS, len));
    }
    mr_assert(at == buf->data + buf->len + size);
    buf->len += size;
    return MR_OK;
}

static enum mr_err read_table(struct mr_slice bytes, struct mr_subapps *table)
{
    struct mr_arena unused = {0};
    *table = (struct mr_subapps){0};
    MR_TRY(mr_flat_read(&table_flat, bytes, &unused, table));
    while (bytes.len > 0) {
        struct mr_flat_item item;
        MR_TRY(mr_flat_next(&bytes, &item));
        if (item.number != FIELD_PARTS || item.type != MR_FLAT_BYTES)
            continue;
        if (table->n == MR_SUBAPPS_MAX)
            return MR_INVALID;
        MR_TRY(mr_flat_read(&part_flat, item.bytes, &unused, &table->parts[table->n++]));
    }
    return mr_subapps_valid(table) ? MR_OK : MR_INVALID;
}

enum mr_err mr_subapps_decode(struct mr_slice bytes, struct mr_subapps *ret_table)
{
    struct mr_subapps table;
    enum mr_err err = read_table(bytes, &table);
    if (err != MR_OK)
        return err == MR_INVALID ? MR_DAMAGED : err;
    *ret_table = table;
    return MR_OK;
}
