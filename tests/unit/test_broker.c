/* SPDX-License-Identifier: Apache-2.0 */
/* What all engines share: the checks at the door, waiting for an answer, freeing leases. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

#include "broker/broker.h"
#include "support/fake_broker.h"

enum { PAYLOAD_LIMIT = 1000 };

static char long_name[MR_NAME_MAX + 2];
static char long_value[MR_HEADER_BYTES_MAX + 1];

static struct mr_slice s(const char *text)
{
    return mr_slice_str(text);
}

static int make_texts(void **state)
{
    (void)state;
    memset(long_name, 'n', sizeof long_name - 1);
    memset(long_value, 'v', sizeof long_value - 1);
    return 0;
}

/* The error, and a text for people exactly when there is one. */
static enum mr_err check(struct mr_task_options task)
{
    struct mr_detail detail = {.text = ""};
    enum mr_err err = mr_task_options_check(&task, PAYLOAD_LIMIT, &detail);
    assert_int_equal(err, mr_task_options_check(&task, PAYLOAD_LIMIT, NULL));
    assert_int_equal(err != MR_OK, detail.text[0] != '\0');
    return err;
}

static void defaults_and_full_options_pass(void **state)
{
    (void)state;
    assert_int_equal(check((struct mr_task_options){0}), MR_OK);
    struct mr_header headers[MR_HEADERS_MAX];
    for (size_t i = 0; i < MR_HEADERS_MAX; i++)
        headers[i] = (struct mr_header){s("name"), s("value")};
    struct mr_slice longest = {long_name, MR_NAME_MAX};
    struct mr_task_options task = {
        .queue = longest,
        .type = longest,
        .id = longest,
        .group = longest,
        .topic = {long_name, MR_TOPIC_MAX},
        .unique_key = longest,
        .unique_ms = 1,
        .payload = {long_value, PAYLOAD_LIMIT},
        .priority_s = -315576000,
        .delay_ms = 1,
        .max_retry = MR_RETRY_MAX,
        .timeout_ms = MR_NO_TIMEOUT,
        .deadline_ms = 1,
        .retention_ms = 1,
        .on_duplicate = MR_DUPLICATE_REPLACE,
        .headers = headers,
        .headers_n = MR_HEADERS_MAX,
    };
    assert_int_equal(check(task), MR_OK);
    task.max_retry = MR_NO_RETRY;
    task.id = s("{braces} are fine in an id");
    assert_int_equal(check(task), MR_OK);
}

static void names_over_the_limit_or_not_text_are_refused(void **state)
{
    (void)state;
    static const size_t names[] = {
        offsetof(struct mr_task_options, queue),      offsetof(struct mr_task_options, type),
        offsetof(struct mr_task_options, unique_key), offsetof(struct mr_task_options, group),
        offsetof(struct mr_task_options, topic),      offsetof(struct mr_task_options, id),
    };
    const struct {
        struct mr_slice name;
        enum mr_err err;
    } rows[] = {
        {{long_name, MR_NAME_MAX + 1}, MR_TOO_BIG},
        {s("line\nbreak"), MR_INVALID},
        {s("\xff\xfe"), MR_INVALID},
        {{"nul\0inside", 10}, MR_INVALID},
        {{NULL, 3}, MR_INVALID},
        {s("a\x7f"), MR_INVALID},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        for (size_t j = 0; j < sizeof rows / sizeof *rows; j++) {
            struct mr_task_options task = {.unique_ms = 1};
            memcpy((char *)&task + names[i], &rows[j].name, sizeof rows[j].name);
            assert_int_equal(check(task), rows[j].err);
        }
    }
    assert_int_equal(check((struct mr_task_options){.queue = s("a{b}")}), MR_INVALID);
    assert_int_equal(check((struct mr_task_options){.topic = {long_name, MR_NAME_MAX}}),
                     MR_TOO_BIG);
}

static void numbers_out_of_range_are_refused(void **state)
{
    (void)state;
    const struct mr_task_options rows[] = {
        {.delay_ms = -1},           {.at_ms = -1},
        {.timeout_ms = -2},         {.deadline_ms = -1},
        {.retention_ms = -1},       {.unique_ms = -1},
        {.delay_ms = INT64_MAX},    {.at_ms = INT64_MAX},
        {.timeout_ms = INT64_MAX},  {.delay_ms = 5, .at_ms = 5},
        {.max_retry = -2},          {.max_retry = MR_RETRY_MAX + 1},
        {.priority_s = 400e6},      {.priority_s = -400e6},
        {.priority_s = NAN},        {.priority_s = INFINITY},
        {.unique_key = {"key", 3}}, {.on_duplicate = (enum mr_on_duplicate)3},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        assert_int_equal(check(rows[i]), MR_INVALID);
}

static void payload_and_headers_have_limits(void **state)
{
    (void)state;
    struct mr_task_options task = {.payload = {long_value, PAYLOAD_LIMIT + 1}};
    assert_int_equal(check(task), MR_TOO_BIG);
    assert_int_equal(check((struct mr_task_options){.payload = {NULL, 1}}), MR_INVALID);

    struct mr_header headers[MR_HEADERS_MAX + 1];
    for (size_t i = 0; i <= MR_HEADERS_MAX; i++)
        headers[i] = (struct mr_header){s("n"), s("v")};
    task = (struct mr_task_options){.headers = headers, .headers_n = MR_HEADERS_MAX + 1};
    assert_int_equal(check(task), MR_TOO_BIG);
    task.headers_n = 1;
    headers[0] = (struct mr_header){s("n"), {long_value, MR_HEADER_BYTES_MAX - 1}};
    assert_int_equal(check(task), MR_OK);
    headers[0].value.len++;
    assert_int_equal(check(task), MR_TOO_BIG);
    headers[0].value.len = SIZE_MAX;
    assert_int_equal(check(task), MR_TOO_BIG);
    headers[0] = (struct mr_header){s(""), s("v")};
    assert_int_equal(check(task), MR_INVALID);
    headers[0] = (struct mr_header){s("n"), {NULL, 2}};
    assert_int_equal(check(task), MR_INVALID);
    task.headers = NULL;
    assert_int_equal(check(task), MR_INVALID);
}

static void a_call_waits_for_its_answer(void **state)
{
    (void)state;
    struct fake *fake = fake_new();
    struct mr_broker *broker = fake_broker(fake);
    struct mr_req_node_open open = {.req = {.op = MR_OP_NODE_OPEN}, .slots = 1};
    assert_int_equal(mr_broker_call(broker, &open.req), MR_OK);
    mr_req_done(&open.req);
    size_t task = fake_add(fake, &(struct mr_task){.payload = s("bytes")});
    struct mr_req_take take = {
        .req = {.op = MR_OP_TAKE}, .node = open.node, .max = 5, .wait_ms = 10000};
    assert_int_equal(mr_broker_call(broker, &take.req), MR_OK);
    mr_req_done(&take.req);
    assert_int_equal(take.n, 1);
    assert_int_equal(mr_broker_lease_open(broker, take.leases), MR_OK);
    assert_true(mr_slice_equal(take.leases->task.payload, s("bytes")));
    mr_broker_begun(broker, 0, take.leases->epoch);
    assert_int_equal(fake_look(fake, task).state, FAKE_BEGUN);
    mr_lease_free(take.leases);
    mr_lease_free(NULL);
    mr_broker_close(NULL);
    struct mr_req_take empty = {.req = {.op = MR_OP_TAKE}, .node = open.node, .max = 1};
    assert_int_equal(mr_broker_call(broker, &empty.req), MR_EMPTY);
    fake_free(fake);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults_and_full_options_pass),
        cmocka_unit_test(names_over_the_limit_or_not_text_are_refused),
        cmocka_unit_test(numbers_out_of_range_are_refused),
        cmocka_unit_test(payload_and_headers_have_limits),
        cmocka_unit_test(a_call_waits_for_its_answer),
    };
    return cmocka_run_group_tests(tests, make_texts, NULL);
}
