/* SPDX-License-Identifier: Apache-2.0 */
/* The JSON writer. Output is compact; numbers are written so that they read back exactly. */
#include "wire/jw.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void put(struct jw *jw, const char *text, size_t len)
{
    if (jw->err == MR_OK)
        jw->err = mr_buf_append(&jw->buf, text, len);
}

static void put_digits(struct jw *jw, bool negative, uint64_t value)
{
    char text[24], *at = text + sizeof text;
    do
        *--at = (char)('0' + value % 10);
    while ((value /= 10) > 0);
    if (negative)
        *--at = '-';
    put(jw, at, (size_t)(text + sizeof text - at));
}

/* What stands between the quotes. */
static void put_escaped(struct jw *jw, struct mr_slice text)
{
    static const char hex[] = "0123456789abcdef";
    const uint8_t *p = text.data;
    size_t plain = 0; /* start of the run that needs no escape */
    for (size_t i = 0; i < text.len; i++) {
        if (p[i] >= 0x20 && p[i] != '"' && p[i] != '\\' && p[i] != 0x7f)
            continue;
        put(jw, (const char *)p + plain, i - plain);
        plain = i + 1;
        if (p[i] == '"' || p[i] == '\\')
            put(jw, (const char[]){'\\', (char)p[i]}, 2);
        else if (p[i] == '\n')
            put(jw, "\\n", 2);
        else
            put(jw, (const char[]){'\\', 'u', '0', '0', hex[p[i] >> 4], hex[p[i] & 15]}, 6);
    }
    if (text.len > plain)
        put(jw, (const char *)p + plain, text.len - plain);
}

static void put_base64(struct jw *jw, struct mr_slice bytes)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    const uint8_t *p = bytes.data;
    for (size_t i = 0; i < bytes.len; i += 3) {
        size_t n = bytes.len - i < 3 ? bytes.len - i : 3;
        uint32_t v = (uint32_t)p[i] << 16;
        v |= n > 1 ? (uint32_t)p[i + 1] << 8 : 0;
        v |= n > 2 ? p[i + 2] : 0;
        char out[4] = {digits[v >> 18], digits[v >> 12 & 63], n > 1 ? digits[v >> 6 & 63] : '=',
                       n > 2 ? digits[v & 63] : '='};
        put(jw, out, sizeof out);
    }
}

/* What stands before a value: a comma when one is due, and its name. */
static void begin_value(struct jw *jw, const char *name, const char *name_end)
{
    if (jw->has_items[jw->depth])
        put(jw, ",", 1);
    jw->has_items[jw->depth] = true;
    if (!name)
        return;
    put(jw, "\"", 1);
    put_escaped(jw, mr_slice_str(name));
    put(jw, name_end, strlen(name_end));
    put(jw, "\":", 2);
}

static void open_level(struct jw *jw, const char *name, const char *bracket)
{
    begin_value(jw, name, "");
    put(jw, bracket, 1);
    mr_assert(jw->depth + 1 < JW_DEPTH_MAX);
    jw->has_items[++jw->depth] = false;
}

static void close_level(struct jw *jw, const char *bracket)
{
    mr_assert(jw->depth > 0);
    jw->depth--;
    put(jw, bracket, 1);
}

void jw_object_begin(struct jw *jw, const char *name)
{
    open_level(jw, name, "{");
}

void jw_object_end(struct jw *jw)
{
    close_level(jw, "}");
}

void jw_array_begin(struct jw *jw, const char *name)
{
    open_level(jw, name, "[");
}

void jw_array_end(struct jw *jw)
{
    close_level(jw, "]");
}

void jw_bytes(struct jw *jw, const char *name, struct mr_slice bytes)
{
    bool text = mr_utf8_valid(bytes);
    begin_value(jw, name, text ? "" : "_base64");
    put(jw, "\"", 1);
    if (text)
        put_escaped(jw, bytes);
    else
        put_base64(jw, bytes);
    put(jw, "\"", 1);
}

void jw_text(struct jw *jw, const char *name, const char *text)
{
    jw_bytes(jw, name, mr_slice_str(text));
}

void jw_int(struct jw *jw, const char *name, int64_t value)
{
    begin_value(jw, name, "");
    put_digits(jw, value < 0, value < 0 ? 0 - (uint64_t)value : (uint64_t)value);
}

void jw_uint(struct jw *jw, const char *name, uint64_t value)
{
    begin_value(jw, name, "");
    put_digits(jw, false, value);
}

void jw_real(struct jw *jw, const char *name, double value)
{
    enum { DIGITS_ENOUGH = 15, DIGITS_EXACT = 17 };
    char text[40] = "null"; /* JSON has no word for infinity and the like */
    for (int digits = DIGITS_ENOUGH; isfinite(value) && digits <= DIGITS_EXACT; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtod(text, NULL) == value)
            break;
    }
    begin_value(jw, name, "");
    put(jw, text, strlen(text));
}

void jw_null(struct jw *jw, const char *name)
{
    begin_value(jw, name, "");
    put(jw, "null", 4);
}

void jw_bool(struct jw *jw, const char *name, bool value)
{
    begin_value(jw, name, "");
    put(jw, value ? "true" : "false", value ? 4 : 5);
}

void jw_headers(struct jw *jw, const struct mr_header *headers, size_t n)
{
    struct mr_buf name = {0};
    jw_object_begin(jw, "headers");
    for (size_t i = 0; jw->err == MR_OK && i < n; i++) {
        mr_buf_clear(&name);
        enum mr_err err = mr_buf_append_slice(&name, headers[i].name);
        if (err == MR_OK)
            err = mr_buf_append(&name, "", 1);
        if (err == MR_OK)
            jw_bytes(jw, (const char *)name.data, headers[i].value);
        else
            jw->err = err;
    }
    jw_object_end(jw);
    mr_buf_done(&name);
}
