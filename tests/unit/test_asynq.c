/* SPDX-License-Identifier: Apache-2.0 */
/* Against bytes that Asynq's own Go encoder wrote. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "wire/asynq.h"

#define PLAIN_HEX                                                                                  \
    "0a0a656d61696c3a73656e64120b7b2275736572223a34327d1a2430623062643162342d366131632d34663463"   \
    "2d396331652d336131663666306337653131220764656661756c74281940880e"
#define FULL_HEX                                                                                   \
    "0a0174120300ff0a1a0469642d312208637269746963616c280330023a04626f6f6d401e4890fecfaa06523a61"   \
    "73796e713a7b637269746963616c7d3a756e697175653a743a6461616261643964653463313337363562656236"   \
    "65306134656131346632356"                                                                      \
    "65880e2cfaa066080a30568e4e2cfaa06720267317a060a016b120176"
#define BARE_HEX "0a01741a0469642d32220764656661756c74"
#define SERVER_HEX                                                                                 \
    "0a01681092211a03732d31200a2a0b0a0764656661756c74100130013a0661637469766542090880e2cfaa0610f4" \
    "034802"
#define WORKER_HEX                                                                                 \
    "0a01681092211a03732d31220469642d312a01743201703a0764656661756c7442060880e2cfaa064a060888f0cf" \
    "aa06"
#define LOCK "asynq:{critical}:unique:t:daabad9de4c13765beb6e0a4ea14f25f"

static struct mr_arena arena;
static struct mr_buf out;

static int end(void **state)
{
    (void)state;
    mr_arena_done(&arena);
    mr_buf_done(&out);
    out = (struct mr_buf){0};
    return 0;
}

static struct mr_slice text(const char *chars)
{
    return mr_slice_make(chars, strlen(chars));
}

static uint8_t digit(char c)
{
    return (uint8_t)(c <= '9' ? c - '0' : c - 'a' + 10);
}

/* In memory of its exact size, so that reading behind its end is seen. */
static struct mr_slice bytes_of(const char *hex)
{
    size_t n = strlen(hex) / 2;
    uint8_t *bytes = test_malloc(n);
    for (size_t i = 0; i < n; i++)
        bytes[i] = (uint8_t)(digit(hex[2 * i]) << 4 | digit(hex[2 * i + 1]));
    return mr_slice_make(bytes, n);
}

static void forget(struct mr_slice bytes)
{
    test_free((void *)(uintptr_t)bytes.data);
}

static void assert_bytes(struct mr_slice a, struct mr_slice b)
{
    assert_int_equal(a.len, b.len);
    if (a.len > 0)
        assert_memory_equal(a.data, b.data, a.len);
}

static void assert_out(const char *hex)
{
    struct mr_slice bytes = bytes_of(hex);
    assert_bytes(mr_buf_slice(&out), bytes);
    forget(bytes);
}

static struct mr_asynq_task plain_task(void)
{
    return (struct mr_asynq_task){
        .type = text("email:send"),
        .payload = text("{\"user\":42}"),
        .id = text("0b0bd1b4-6a1c-4f4c-9c1e-3a1f6f0c7e11"),
        .queue = text("default"),
        .retry = 25,
        .timeout_s = 1800,
    };
}

static struct mr_asynq_task full_task(void)
{
    static const struct mr_header headers[] = {{{"k", 1}, {"v", 1}}};
    return (struct mr_asynq_task){
        .type = text("t"),
        .payload = mr_slice_make("\0\xff\n", 3),
        .id = text("id-1"),
        .queue = text("critical"),
        .retry = 3,
        .retried = 2,
        .error = text("boom"),
        .timeout_s = 30,
        .deadline_s = 1700003600,
        .unique_key = text(LOCK),
        .last_failed_s = 1700000000,
        .retention_s = 86400,
        .completed_s = 1700000100,
        .group = text("g1"),
        .headers = headers,
        .headers_n = 1,
    };
}

static struct mr_asynq_task bare_task(void)
{
    return (struct mr_asynq_task){.type = text("t"), .id = text("id-2"), .queue = text("default")};
}

static void assert_same_task(const struct mr_asynq_task *a, const struct mr_asynq_task *b)
{
    assert_bytes(a->type, b->type);
    assert_bytes(a->payload, b->payload);
    assert_bytes(a->id, b->id);
    assert_bytes(a->queue, b->queue);
    assert_bytes(a->error, b->error);
    assert_bytes(a->unique_key, b->unique_key);
    assert_bytes(a->group, b->group);
    assert_int_equal(a->retry, b->retry);
    assert_int_equal(a->retried, b->retried);
    assert_int_equal(a->timeout_s, b->timeout_s);
    assert_int_equal(a->deadline_s, b->deadline_s);
    assert_int_equal(a->last_failed_s, b->last_failed_s);
    assert_int_equal(a->retention_s, b->retention_s);
    assert_int_equal(a->completed_s, b->completed_s);
    assert_int_equal(a->headers_n, b->headers_n);
    for (size_t i = 0; i < a->headers_n; i++) {
        assert_bytes(a->headers[i].name, b->headers[i].name);
        assert_bytes(a->headers[i].value, b->headers[i].value);
    }
}

static void check_task(struct mr_asynq_task task, const char *hex)
{
    struct mr_asynq_task read;
    mr_buf_clear(&out);
    assert_int_equal(mr_asynq_task_encode(&task, &out), MR_OK);
    assert_out(hex);
    struct mr_slice bytes = bytes_of(hex);
    assert_int_equal(mr_asynq_task_decode(bytes, &arena, &read), MR_OK);
    assert_same_task(&read, &task);
    forget(bytes);
}

static void tasks_are_written_and_read_as_go_does(void **state)
{
    (void)state;
    check_task(plain_task(), PLAIN_HEX);
    check_task(full_task(), FULL_HEX);
    check_task(bare_task(), BARE_HEX);
}

/* Go writes key and value of a map's entry even where they are empty. */
static void an_empty_header_is_written_with_both_halves(void **state)
{
    static const struct mr_header headers[] = {{{"k", 1}, {NULL, 0}}};
    struct mr_asynq_task task = bare_task();
    (void)state;
    task.headers = headers;
    task.headers_n = 1;
    check_task(task, BARE_HEX "7a050a016b1200");
}

static void more_headers_than_we_would_take_are_kept(void **state)
{
    enum { MANY = 3 * MR_HEADERS_MAX };
    static struct mr_header headers[MANY];
    struct mr_asynq_task task = bare_task(), read;
    (void)state;
    for (size_t i = 0; i < MANY; i++)
        headers[i] = (struct mr_header){text("name"), text("value")};
    task.headers = headers;
    task.headers_n = MANY;
    assert_int_equal(mr_asynq_task_encode(&task, &out), MR_OK);
    assert_int_equal(mr_asynq_task_decode(mr_buf_slice(&out), &arena, &read), MR_OK);
    assert_same_task(&read, &task);
}

static void what_is_appended_leaves_what_was_there(void **state)
{
    struct mr_asynq_task task = bare_task();
    (void)state;
    assert_int_equal(mr_buf_append(&out, "\x01", 1), MR_OK);
    assert_int_equal(mr_asynq_task_encode(&task, &out), MR_OK);
    assert_out("01" BARE_HEX);
}

/* One text that is none would keep a Go program from recovering anything in its queues. */
static void an_error_text_that_is_not_utf8_is_made_so(void **state)
{
    struct mr_asynq_task task = bare_task(), read;
    (void)state;
    task.error = text("caf\xc3\xa9 \xff\xc3!");
    assert_int_equal(mr_asynq_task_encode(&task, &out), MR_OK);
    assert_int_equal(mr_asynq_task_decode(mr_buf_slice(&out), &arena, &read), MR_OK);
    assert_bytes(read.error, text("caf\xc3\xa9 ?"
                                  "?!"));
}

static void a_header_that_is_not_utf8_is_refused_and_leaves_nothing(void **state)
{
    static const struct mr_header value[] = {{{"k", 1}, {"\xff", 1}}};
    static const struct mr_header name[] = {{{"a", 1}, {"b", 1}}, {{"\xff", 1}, {"v", 1}}};
    struct mr_asynq_task task = bare_task();
    (void)state;
    task.headers = value;
    task.headers_n = 1;
    assert_int_equal(mr_asynq_task_encode(&task, &out), MR_INVALID);
    task.headers = name;
    task.headers_n = 2;
    assert_int_equal(mr_asynq_task_encode(&task, &out), MR_INVALID);
    assert_int_equal(out.len, 0);
}

static void fields_of_later_versions_are_skipped_and_any_order_is_read(void **state)
{
    struct mr_asynq_task read, task = bare_task();
    struct mr_slice bytes = bytes_of("8201026869"
                                     "220764656661756c74"
                                     "8001ff01"
                                     "1a0469642d32"
                                     "0a0174");
    (void)state;
    assert_int_equal(mr_asynq_task_decode(bytes, &arena, &read), MR_OK);
    assert_same_task(&read, &task);
    forget(bytes);
}

static void what_is_no_message_is_damaged(void **state)
{
    static const char *const bad[] = {
        "0a",                     /* cut behind the tag */
        "0a0574",                 /* cut in a text */
        "08",                     /* cut in a number */
        "0801",                   /* a number where a text must be */
        "2a0101",                 /* a text where a number must be */
        "7a030a0501",             /* a header that is none */
        "00",                     /* field 0 */
        "0f",                     /* a type that does not exist */
        "4880808080808080808080", /* a number that does not end */
    };
    struct mr_asynq_task read;
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct mr_slice bytes = bytes_of(bad[i]);
        assert_int_equal(mr_asynq_task_decode(bytes, &arena, &read), MR_DAMAGED);
        forget(bytes);
    }
}

static void every_cut_of_a_message_is_judged_without_harm(void **state)
{
    struct mr_asynq_task read;
    size_t whole = sizeof FULL_HEX / 2;
    char hex[sizeof FULL_HEX] = FULL_HEX;
    (void)state;
    for (size_t len = whole - 1; len > 0; len--) {
        hex[2 * len] = '\0';
        struct mr_slice bytes = bytes_of(hex);
        enum mr_err err = mr_asynq_task_decode(bytes, &arena, &read);
        assert_true(err == MR_OK || err == MR_DAMAGED);
        forget(bytes);
    }
}

static void assert_lock(struct mr_slice prefix, struct mr_slice payload, const char *key)
{
    mr_buf_clear(&out);
    assert_int_equal(mr_asynq_unique_key(prefix, text("critical"), text("t"), payload, &out),
                     MR_OK);
    assert_bytes(mr_buf_slice(&out), text(key));
}

static void locks_are_those_that_go_takes(void **state)
{
    struct mr_slice none = {0};
    (void)state;
    assert_lock(none, mr_slice_make("\0\xff\n", 3), LOCK);
    assert_lock(none, mr_slice_make(NULL, 0), "asynq:{critical}:unique:t:");
    assert_lock(none, text(""), "asynq:{critical}:unique:t:d41d8cd98f00b204e9800998ecf8427e");
    assert_lock(text("ns:"), mr_slice_make("\0\xff\n", 3), "ns:" LOCK);
}

static void servers_are_written_and_read_as_go_does(void **state)
{
    static const struct mr_worker_queue queues[] = {{{"default", 7}, 0}}; /* 0 means 1 */
    struct mr_asynq_server read, server = {
                                     .host = text("h"),
                                     .pid = 4242,
                                     .id = text("s-1"),
                                     .concurrency = 10,
                                     .queues = queues,
                                     .queues_n = 1,
                                     .strict = true,
                                     .status = text("active"),
                                     .started = {1700000000, 500},
                                     .active = 2,
                                 };
    (void)state;
    assert_int_equal(mr_asynq_server_encode(&server, &out), MR_OK);
    assert_out(SERVER_HEX);
    assert_int_equal(mr_asynq_server_decode(mr_buf_slice(&out), &arena, &read), MR_OK);
    assert_bytes(read.host, server.host);
    assert_bytes(read.id, server.id);
    assert_bytes(read.status, server.status);
    assert_int_equal(read.pid, 4242);
    assert_int_equal(read.concurrency, 10);
    assert_int_equal(read.active, 2);
    assert_true(read.strict);
    assert_int_equal(read.queues_n, 1);
    assert_bytes(read.queues[0].name, text("default"));
    assert_int_equal(read.queues[0].weight, 1);
    assert_int_equal(read.started.seconds, 1700000000);
    assert_int_equal(read.started.nanos, 500);
}

static void workers_are_written_as_go_does(void **state)
{
    struct mr_asynq_worker worker = {
        .host = text("h"),
        .pid = 4242,
        .server_id = text("s-1"),
        .task_id = text("id-1"),
        .task_type = text("t"),
        .task_payload = text("p"),
        .queue = text("default"),
        .started = {1700000000, 0},
        .deadline = {1700001800, 0},
    };
    (void)state;
    assert_int_equal(mr_asynq_worker_encode(&worker, &out), MR_OK);
    assert_out(WORKER_HEX);
}

static void entries_of_schedulers_are_written_as_go_does(void **state)
{
    const struct mr_slice options[] = {text("Queue(\"low\")"), text("MaxRetry(3)")};
    struct mr_asynq_entry entry = {.id = text("e-1"),
                                   .spec = text("@every 5s"),
                                   .task_type = text("t"),
                                   .task_payload = text("p"),
                                   .options = options,
                                   .options_n = 2,
                                   .next = {1700000005, 0},
                                   .prev = {MR_ASYNQ_NEVER_S, 0}};
    (void)state;
    assert_int_equal(mr_asynq_entry_encode(&entry, &out), MR_OK);
    assert_out(
        "0a03652d3112094065766572792035731a01742201702a0c517565756528226c6f7722292a0b4d61785265"
        "747279283329"
        "32060885e2cfaa063a0b088092b8c398feffffff01");
}

static void what_they_enqueued_is_written_as_go_does(void **state)
{
    struct mr_asynq_time at = {1700000005, 1000};
    (void)state;
    assert_int_equal(mr_asynq_enqueued_encode(text("id-1"), &at, &out), MR_OK);
    assert_out("0a0469642d3112090885e2cfaa0610e807");
}

/* Go's zero time: the year 1, ten bytes of a number. */
static void times_before_1970_have_their_sign(void **state)
{
    struct mr_asynq_worker worker = {.started = {-62135596800, 0}};
    (void)state;
    assert_int_equal(mr_asynq_worker_encode(&worker, &out), MR_OK);
    assert_out("420b088092b8c398feffffff01");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(tasks_are_written_and_read_as_go_does, end),
        cmocka_unit_test_teardown(an_empty_header_is_written_with_both_halves, end),
        cmocka_unit_test_teardown(more_headers_than_we_would_take_are_kept, end),
        cmocka_unit_test_teardown(what_is_appended_leaves_what_was_there, end),
        cmocka_unit_test_teardown(an_error_text_that_is_not_utf8_is_made_so, end),
        cmocka_unit_test_teardown(a_header_that_is_not_utf8_is_refused_and_leaves_nothing, end),
        cmocka_unit_test_teardown(fields_of_later_versions_are_skipped_and_any_order_is_read, end),
        cmocka_unit_test_teardown(what_is_no_message_is_damaged, end),
        cmocka_unit_test_teardown(every_cut_of_a_message_is_judged_without_harm, end),
        cmocka_unit_test_teardown(locks_are_those_that_go_takes, end),
        cmocka_unit_test_teardown(servers_are_written_and_read_as_go_does, end),
        cmocka_unit_test_teardown(workers_are_written_as_go_does, end),
        cmocka_unit_test_teardown(entries_of_schedulers_are_written_as_go_does, end),
        cmocka_unit_test_teardown(what_they_enqueued_is_written_as_go_does, end),
        cmocka_unit_test_teardown(times_before_1970_have_their_sign, end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
