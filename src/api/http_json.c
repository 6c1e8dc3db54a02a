/* SPDX-License-Identifier: Apache-2.0 */
/* What a request says: its query, and its body in JSON. */
#include "api/http_internal.h"
#include "base/text.h"

/* ---- behind the ? --------------------------------------------------------------------------- */

struct mr_slice http_query(const struct http_call *call, const char *name)
{
    const char *text = mr_http_query(call->request, name);
    return mr_slice_str(text != NULL ? text : "");
}

bool http_read_limit(struct http_call *call, size_t max, size_t *ret_limit)
{
    const char *text = mr_http_query(call->request, "limit");
    int64_t number = 0;
    if (text == NULL)
        return true;
    if (mr_parse_int64(text, &number) != MR_OK || number < 1 || number > (int64_t)max) {
        http_call_fail(call, MR_INVALID, "limit: must be a number from 1 to %zu", max);
        return false;
    }
    *ret_limit = (size_t)number;
    return true;
}

bool http_read_name(struct http_call *call, const char *what, struct mr_slice name)
{
    struct mr_detail detail;
    enum mr_err err = mr_name_check_of(what, name, &detail);
    if (err != MR_OK)
        http_call_fail(call, err, "%s", detail.text);
    return err == MR_OK;
}

bool http_read_word(struct http_call *call, const struct words *words, const char *what,
                    int *ret_number)
{
    struct mr_detail detail;
    enum mr_err err = words_read(words, what, http_query(call, what), ret_number, &detail);
    if (err != MR_OK)
        http_call_fail(call, err, "%s", detail.text);
    return err == MR_OK;
}

/* ---- bodies --------------------------------------------------------------------------------- */

/* What stands outside of texts, so far. */
struct shape {
    size_t depth, containers, commas;
    bool in_text, escaped;
};

static bool goes_on(struct shape *shape, const struct http_bounds *bounds, char c)
{
    if (shape->in_text) {
        shape->in_text = c != '"' || shape->escaped;
        shape->escaped = c == '\\' && !shape->escaped;
        return true;
    }
    shape->in_text = c == '"';
    if (c == '[' || c == '{')
        return ++shape->depth <= bounds->depth && ++shape->containers <= bounds->containers;
    if ((c == ']' || c == '}') && shape->depth > 0)
        shape->depth--;
    return c != ',' || ++shape->commas <= bounds->commas;
}

/* Before values are made of it, which are many bytes each. */
static bool is_bearable(struct mr_slice body, const struct http_bounds *bounds)
{
    struct shape shape = {0};
    const char *text = body.data;
    for (size_t i = 0; i < body.len; i++)
        if (!goes_on(&shape, bounds, text[i]))
            return false;
    return true;
}

bool http_read_json(struct http_call *call, const struct http_bounds *bounds)
{
    struct mr_slice body = mr_http_body(call->request);
    json_error_t error = {.text = "it is empty"};
    if (!is_bearable(body, bounds)) {
        http_call_fail(call, MR_TOO_BIG, "the body has more values, or deeper ones, than it may");
        return false;
    }
    if (body.len > 0)
        call->json =
            json_loadb(body.data, body.len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (call->json != NULL)
        return true;
    http_call_fail(call, MR_INVALID, "the body must be JSON: %s", error.text);
    return false;
}

static bool set(const struct http_field *field, const json_t *value)
{
    switch (field->kind) {
    case HTTP_TEXT:
        if (!json_is_string(value))
            return false;
        *(struct mr_slice *)field->value =
            mr_slice_make(json_string_value(value), json_string_length(value));
        return true;
    case HTTP_NUMBER:
        if (!json_is_integer(value) || json_integer_value(value) < 0)
            return false;
        *(int64_t *)field->value = json_integer_value(value);
        return true;
    case HTTP_FLAG:
        if (!json_is_boolean(value))
            return false;
        *(bool *)field->value = json_is_true(value);
        return true;
    case HTTP_ANY:
        *(const json_t **)field->value = value;
        return true;
    }
    return false;
}

enum mr_err http_read_object(const json_t *json, const struct http_field *fields, size_t n,
                             struct mr_detail *detail)
{
    static const char *const kinds[] = {"a string", "a whole number, 0 or more", "true or false",
                                        "there"};
    const char *key;
    json_t *value;
    if (!json_is_object(json)) {
        mr_detail_set(detail, "must be an object");
        return MR_INVALID;
    }
    json_object_foreach((json_t *)(uintptr_t)json, key, value)
    {
        size_t i = 0;
        while (i < n && strcmp(fields[i].name, key) != 0)
            i++;
        if (i < n && (json_is_null(value) || set(&fields[i], value)))
            continue;
        if (i < n)
            mr_detail_set(detail, "%s: must be %s", key, kinds[fields[i].kind]);
        else
            mr_detail_set(detail, "%.100s: there is no such field", key);
        return MR_INVALID;
    }
    return MR_OK;
}

/* ---- pages ---------------------------------------------------------------------------------- */

void http_page_begin(struct jw *jw)
{
    jw_object_begin(jw, NULL);
    jw_array_begin(jw, "items");
}

void http_page_end(struct jw *jw, const char *next)
{
    jw_array_end(jw);
    if (next[0] != '\0')
        jw_text(jw, "next", next);
    else
        jw_null(jw, "next");
    jw_object_end(jw);
}
