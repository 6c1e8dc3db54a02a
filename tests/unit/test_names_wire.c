/* SPDX-License-Identifier: Apache-2.0 */
/* Messages of nameservers and tables of subApps: against what protobuf-c makes of the same .proto file. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rand.h"
#include "millrace/v1/names.pb-c.h"
#include "names/wire.h"

static struct mr_slice encoded(const struct mr_names_msg *msg, struct mr_buf *buf)
{
    mr_buf_clear(buf);
    assert_int_equal(mr_names_encode(msg, buf), MR_OK);
    assert_true(buf->len <= MR_NAMES_WIRE_MAX);
    return mr_buf_slice(buf);
}

static Millrace__V1__NameMessage *unpacked(struct mr_slice bytes)
{
    Millrace__V1__NameMessage *message =
        millrace__v1__name_message__unpack(NULL, bytes.len, bytes.data);
    assert_non_null(message);
    return message;
}

static void assert_bytes(ProtobufCBinaryData got, const void *wanted, size_t len)
{
    assert_int_equal(got.len, len);
    assert_memory_equal(got.data, wanted, len);
}

static void test_a_digest(void **state)
{
    (void)state;
    uint64_t digest[MR_NAMES_BUCKETS];
    struct mr_buf buf = {0};
    struct mr_arena arena = {0};
    struct mr_names_msg msg = {.say = MR_SAY_DIGEST, .digest = digest}, back;
    mr_rand_bytes(mr_rand_of_thread(), digest, sizeof digest);
    struct mr_slice bytes = encoded(&msg, &buf);
    Millrace__V1__NameMessage *pb = unpacked(bytes);
    assert_int_equal(pb->say, MILLRACE__V1__NAME_SAY__SAY_DIGEST);
    assert_bytes(pb->digest, digest, sizeof digest);
    millrace__v1__name_message__free_unpacked(pb, NULL);
    assert_int_equal(mr_names_decode(bytes, &arena, &back), MR_OK);
    assert_int_equal(back.say, MR_SAY_DIGEST);
    assert_memory_equal(back.digest, digest, sizeof digest);
    mr_arena_done(&arena);
    mr_buf_done(&buf);
}

static void test_marks(void **state)
{
    (void)state;
    enum { N = 3 };
    struct mr_names_mark marks[N];
    struct mr_buf buf = {0};
    struct mr_arena arena = {0};
    struct mr_names_msg msg = {.say = MR_SAY_MARKS, .marks = marks, .marks_n = N}, back;
    mr_rand_bytes(mr_rand_of_thread(), marks, sizeof marks);
    msg.buckets[0] = 0x8001;
    msg.buckets[3] = 1ULL << 63;
    struct mr_slice bytes = encoded(&msg, &buf);
    Millrace__V1__NameMessage *pb = unpacked(bytes);
    assert_int_equal(pb->say, MILLRACE__V1__NAME_SAY__SAY_MARKS);
    assert_bytes(pb->buckets, msg.buckets, sizeof msg.buckets);
    assert_int_equal(pb->marks.len, N * 32);
    assert_memory_equal(pb->marks.data + 32, marks[1].id.bytes, 16);
    assert_int_equal(mr_load64(pb->marks.data + 48), marks[1].version);
    assert_int_equal(mr_load64(pb->marks.data + 56), marks[1].sum);
    millrace__v1__name_message__free_unpacked(pb, NULL);
    assert_int_equal(mr_names_decode(bytes, &arena, &back), MR_OK);
    assert_int_equal(back.marks_n, N);
    assert_memory_equal(back.marks, marks, sizeof marks);
    assert_memory_equal(back.buckets, msg.buckets, sizeof msg.buckets);
    mr_arena_done(&arena);
    mr_buf_done(&buf);
}

static void test_entries_and_what_is_wanted(void **state)
{
    (void)state;
    struct mr_names_entry entries[2] = {
        {.kind = MR_NAMES_WORKER,
         .name = mr_slice_str("w"),
         .incarnation = UINT64_MAX,
         .version = 1ULL << 63,
         .app = mr_slice_str("mail"),
         .address = mr_slice_str("host:1"),
         .server = mr_slice_str("s"),
         .body = mr_slice_make("\0\xff", 2),
         .age_ms = 12345},
        {.fate = MR_NAMES_LEFT, .name = mr_slice_str("s"), .incarnation = 1, .version = 2},
    };
    struct mr_uuid wants[2];
    struct mr_buf buf = {0};
    struct mr_arena arena = {0};
    struct mr_names_msg msg = {.say = MR_SAY_ENTRIES,
                               .entries = entries,
                               .entries_n = 2,
                               .wants = wants,
                               .wants_n = 2},
                        back;
    mr_rand_bytes(mr_rand_of_thread(), wants, sizeof wants);
    struct mr_slice bytes = encoded(&msg, &buf);
    Millrace__V1__NameMessage *pb = unpacked(bytes);
    assert_int_equal(pb->n_entries, 2);
    assert_int_equal(pb->entries[0]->kind, MILLRACE__V1__NAME_KIND__NAME_WORKER);
    assert_true(pb->entries[0]->incarnation == UINT64_MAX);
    assert_true(pb->entries[0]->version == 1ULL << 63);
    assert_string_equal(pb->entries[0]->name, "w");
    assert_string_equal(pb->entries[0]->app, "mail");
    assert_string_equal(pb->entries[0]->address, "host:1");
    assert_string_equal(pb->entries[0]->server, "s");
    assert_bytes(pb->entries[0]->body, "\0\xff", 2);
    assert_int_equal(pb->entries[0]->age_ms, 12345);
    assert_int_equal(pb->entries[1]->fate, MILLRACE__V1__NAME_FATE__NAME_LEFT);
    assert_bytes(pb->wants, wants, sizeof wants);
    millrace__v1__name_message__free_unpacked(pb, NULL);
    assert_int_equal(mr_names_decode(bytes, &arena, &back), MR_OK);
    assert_int_equal(back.entries_n, 2);
    assert_true(mr_slice_equal(back.entries[0].body, entries[0].body));
    assert_true(mr_slice_equal(back.entries[1].name, entries[1].name));
    assert_int_equal(back.entries[1].fate, MR_NAMES_LEFT);
    assert_int_equal(back.wants_n, 2);
    assert_memory_equal(back.wants, wants, sizeof wants);
    mr_arena_done(&arena);
    mr_buf_done(&buf);
}

static enum mr_err decode(const void *bytes, size_t len)
{
    struct mr_arena arena = {0};
    struct mr_names_msg msg;
    enum mr_err err = mr_names_decode(mr_slice_make(bytes, len), &arena, &msg);
    mr_arena_done(&arena);
    return err;
}

static void test_bytes_that_are_no_message_are_refused(void **state)
{
    (void)state;
    static char big[MR_NAMES_WIRE_MAX + 1];
    assert_int_equal(decode("", 0), MR_INVALID); /* a digest without one */
    assert_int_equal(decode("\x08\x03", 2), MR_INVALID);
    assert_int_equal(decode("\x08\x01", 2), MR_INVALID); /* marks without buckets */
    assert_int_equal(decode("\x08\x02\x2a\x01x", 5), MR_INVALID);
    assert_int_equal(decode("\x08\x02\x32\x02\x08\x02", 6), MR_INVALID); /* of no kind */
    assert_int_equal(decode("\x08\x02\x32\x05", 4), MR_INVALID);
    assert_int_equal(decode("\x08\x02", 2), MR_OK);
    assert_int_equal(decode(big, sizeof big), MR_TOO_BIG);
    struct mr_buf many = {0};
    assert_int_equal(mr_buf_append(&many, "\x08\x02", 2), MR_OK);
    for (size_t i = 0; i <= MR_NAMES_MSG_ENTRIES; i++)
        assert_int_equal(mr_buf_append(&many, "\x32\x00", 2), MR_OK);
    assert_int_equal(decode(many.data, many.len), MR_TOO_BIG);
    assert_int_equal(decode(many.data, many.len - 2), MR_OK);
    mr_buf_done(&many);
}

static void test_a_table_of_subapps(void **state)
{
    (void)state;
    struct mr_subapp_server server = {.id = UINT64_MAX - 1, .may = true};
    struct mr_subapp_seen seen = {.servers = &server, .servers_n = 1, .workers_n = 7};
    struct mr_subapp_plan plan;
    struct mr_subapps table, back;
    struct mr_buf buf = {0};
    mr_subapps_init(&table);
    mr_subapps_plan(&table, &seen, &plan);
    assert_int_equal(mr_subapps_encode(&plan.table, &buf), MR_OK);
    Millrace__V1__SubApps *pb = millrace__v1__sub_apps__unpack(NULL, buf.len, buf.data);
    assert_non_null(pb);
    assert_int_equal(pb->n_parts, 4);
    assert_int_equal(pb->epoch, 1);
    assert_true(pb->parts[3]->slots == plan.table.parts[3].slots);
    assert_true(pb->parts[3]->owner == server.id);
    millrace__v1__sub_apps__free_unpacked(pb, NULL);
    assert_int_equal(mr_subapps_decode(mr_buf_slice(&buf), &back), MR_OK);
    assert_int_equal(back.n, plan.table.n);
    assert_int_equal(back.next_id, plan.table.next_id);
    for (size_t i = 0; i < back.n; i++) {
        assert_int_equal(back.parts[i].id, plan.table.parts[i].id);
        assert_int_equal(back.parts[i].slots, plan.table.parts[i].slots);
        assert_int_equal(back.parts[i].epoch, plan.table.parts[i].epoch);
    }
    for (size_t len = 0; len < buf.len; len++) /* nothing shorter is one */
        assert_int_equal(mr_subapps_decode(mr_slice_make(buf.data, len), &back), MR_DAMAGED);
    mr_buf_done(&buf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_digest),
        cmocka_unit_test(test_marks),
        cmocka_unit_test(test_entries_and_what_is_wanted),
        cmocka_unit_test(test_bytes_that_are_no_message_are_refused),
        cmocka_unit_test(test_a_table_of_subapps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
