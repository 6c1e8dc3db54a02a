/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a nameserver hears from another: judged without harm. What was read reads the same when written again, a registry that hears it
 * stays in order, and what it answers is a message again. The same bytes as a table of subApps, as questions and lists, and as
 * what nameservers show and processes say of themselves.
 */
#include "fuzz/fuzz.h"
#include "names/look.h"
#include "names/wire.h"

static const mr_mono start = {MR_NS_PER_S};

static enum mr_err answer(const struct mr_names_msg *msg, void *arg)
{
    struct mr_buf *buf = arg;
    struct mr_arena arena = {0};
    struct mr_names_msg back;
    mr_buf_clear(buf);
    mr_assert(mr_names_encode(msg, buf) == MR_OK && buf->len <= MR_NAMES_WIRE_MAX);
    mr_assert(mr_names_decode(mr_buf_slice(buf), &arena, &back) == MR_OK);
    mr_assert(back.entries_n == msg->entries_n && back.wants_n == msg->wants_n &&
              back.marks_n == msg->marks_n);
    mr_arena_done(&arena);
    return MR_OK;
}

static void put(struct mr_registry *r, const char *name, uint64_t incarnation,
                enum mr_names_fate fate)
{
    struct mr_names_entry e = {.kind = MR_NAMES_WORKER,
                               .fate = fate,
                               .name = mr_slice_str(name),
                               .app = mr_slice_str("a"),
                               .incarnation = incarnation,
                               .version = 2};
    enum mr_names_put put;
    mr_assert(mr_registry_register(r, start, &e, &put) == MR_OK);
}

static void hear(const struct mr_names_msg *msg, struct mr_buf *buf)
{
    struct mr_registry_options options = {.entries_max = 8};
    struct mr_registry *r = NULL;
    mr_assert(mr_registry_new(&options, start, &r) == MR_OK);
    put(r, "w", 1, MR_NAMES_LIVES);
    put(r, "v", 2, MR_NAMES_LEFT);
    mr_assert(mr_registry_hear(r, start, msg, answer, buf) == MR_OK);
    mr_registry_validate(r);
    mr_registry_tick(r, mr_mono_add_ms(start, 24LL * 3600 * 1000));
    mr_registry_tick(r, mr_mono_add_ms(start, 24LL * 3600 * 1000 + 60 * 1000));
    mr_registry_validate(r);
    mr_registry_free(r);
}

static void check_page(struct mr_slice bytes, struct mr_buf *buf)
{
    struct mr_arena arena = {0};
    struct mr_names_page page, back;
    struct mr_names_query query;
    struct mr_names_registered registered;
    mr_buf_clear(buf);
    if (mr_names_query_decode(bytes, &query) == MR_OK)
        mr_assert(mr_names_query_encode(&query, buf) == MR_OK);
    mr_buf_clear(buf);
    if (mr_names_registered_decode(bytes, &registered) == MR_OK)
        mr_assert(mr_names_registered_encode(&registered, buf) == MR_OK);
    mr_buf_clear(buf);
    if (mr_names_page_decode(bytes, &arena, &page) == MR_OK) {
        mr_assert(mr_names_page_encode(&page, buf) == MR_OK);
        mr_assert(mr_names_page_decode(mr_buf_slice(buf), &arena, &back) == MR_OK);
        mr_assert(back.entries_n == page.entries_n && back.changed == page.changed);
    }
    mr_arena_done(&arena);
}

static void check_look(struct mr_slice bytes, struct mr_buf *buf)
{
    struct mr_arena arena = {0};
    struct mr_names_look look, look_back;
    struct mr_names_server_body server, server_back;
    struct mr_names_worker_body worker;
    mr_buf_clear(buf);
    if (mr_names_look_decode(bytes, &arena, &look) == MR_OK) {
        mr_assert(mr_names_look_encode(&look, buf) == MR_OK);
        mr_assert(mr_names_look_decode(mr_buf_slice(buf), &arena, &look_back) == MR_OK);
        mr_assert(look_back.apps_n == look.apps_n && look_back.view == look.view);
    }
    mr_buf_clear(buf);
    if (mr_names_server_body_decode(bytes, &arena, &server) == MR_OK) {
        mr_assert(mr_names_server_body_encode(&server, buf) == MR_OK);
        mr_assert(mr_names_server_body_decode(mr_buf_slice(buf), &arena, &server_back) == MR_OK);
        mr_assert(server_back.loads_n <= server.loads_n && server_back.load == server.load);
    }
    mr_buf_clear(buf);
    if (mr_names_worker_body_decode(bytes, &worker) == MR_OK)
        mr_assert(mr_names_worker_body_encode(&worker, buf) == MR_OK);
    mr_arena_done(&arena);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mr_arena arena = {0};
    struct mr_buf buf = {0};
    struct mr_names_msg msg;
    struct mr_subapps table;
    if (mr_names_decode(mr_slice_make(data, size), &arena, &msg) == MR_OK) {
        (void)answer(&msg, &buf);
        hear(&msg, &buf);
    }
    check_page(mr_slice_make(data, size), &buf);
    check_look(mr_slice_make(data, size), &buf);
    if (mr_subapps_decode(mr_slice_make(data, size), &table) == MR_OK) {
        mr_buf_clear(&buf);
        mr_assert(mr_subapps_encode(&table, &buf) == MR_OK);
        mr_assert(mr_subapps_decode(mr_buf_slice(&buf), &table) == MR_OK);
    }
    mr_buf_done(&buf);
    mr_arena_done(&arena);
    return 0;
}
