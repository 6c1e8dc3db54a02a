/* SPDX-License-Identifier: Apache-2.0 */
/* The table of routes: what every row must have, and that the document is made of all of them. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "api/http_internal.h"

#define FOR_EACH_ROW(row)                                                                          \
    for (const struct http_row *row = http_rows; row < http_rows + http_rows_n; row++)

static void a_row_is_there_once(void **state)
{
    (void)state;
    FOR_EACH_ROW(a)
    for (const struct http_row *b = http_rows; b < a; b++)
        if (strcmp(a->path, b->path) == 0 && strcmp(a->method, b->method) == 0)
            fail_msg("%s %s is there twice", a->method, a->path);
}

static void a_row_says_what_it_is(void **state)
{
    (void)state;
    FOR_EACH_ROW(row)
    {
        assert_non_null(row->summary);
        assert_true(row->status >= 200 && row->status < 300);
        assert_true((row->handle == NULL) == (row->owner == HTTP_ELSEWHERE));
        assert_true((row->answer == NULL) == (row->type != NULL));
        assert_true((row->body == NULL) == (row->body_max == 0));
        assert_true(row->body_max <= HTTP_BODY_MAX);
    }
}

/* Nobody looks at tasks, or changes them, without being asked who he is. */
static void what_is_of_tasks_has_roles(void **state)
{
    (void)state;
    FOR_EACH_ROW(row)
    if (strncmp(row->path, "/api/", strlen("/api/")) == 0) {
        assert_true(row->roles != 0);
        assert_true(row->roles & MR_ROLE_BIT(MR_ROLE_ADMIN));
    }
}

/* A viewer changes nothing. */
static void only_who_looks_is_a_viewer(void **state)
{
    (void)state;
    FOR_EACH_ROW(row)
    if (strcmp(row->method, "GET") != 0)
        assert_false(row->roles & MR_ROLE_BIT(MR_ROLE_VIEWER));
    else
        assert_null(row->act);
}

/* Against the rate of who asks: all that changes something, but for what workers do. */
static void what_changes_something_counts(void **state)
{
    (void)state;
    FOR_EACH_ROW(row)
    {
        bool is_work = (row->roles & MR_ROLE_BIT(MR_ROLE_WORKER)) != 0;
        assert_true(row->counts == (strcmp(row->method, "GET") != 0 && !is_work));
    }
}

static const json_t *in(const json_t *json, const char *key)
{
    const json_t *value = json_object_get(json, key);
    if (value == NULL)
        fail_msg("the document has no %s", key);
    return value;
}

static void the_document_has_every_row(void **state)
{
    (void)state;
    struct mr_buf buf = {0};
    json_error_t error;
    assert_int_equal(http_openapi(&buf), MR_OK);
    json_t *json = json_loadb((const char *)buf.data, buf.len, JSON_REJECT_DUPLICATES, &error);
    if (json == NULL)
        fail_msg("%s at byte %d", error.text, error.position);
    FOR_EACH_ROW(row)
    {
        char method[16] = "";
        for (size_t i = 0; row->method[i] != '\0'; i++)
            method[i] = (char)(row->method[i] | 0x20);
        const json_t *operation = in(in(in(json, "paths"), row->path), method);
        assert_string_equal(json_string_value(in(operation, "summary")), row->summary);
        assert_int_equal(json_object_get(operation, "requestBody") != NULL, row->body != NULL);
    }
    json_decref(json);
    mr_buf_done(&buf);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_row_is_there_once),
        cmocka_unit_test(a_row_says_what_it_is),
        cmocka_unit_test(what_is_of_tasks_has_roles),
        cmocka_unit_test(only_who_looks_is_a_viewer),
        cmocka_unit_test(what_changes_something_counts),
        cmocka_unit_test(the_document_has_every_row),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
