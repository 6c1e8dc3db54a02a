/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Writes JSON, append only: the caller says what comes, commas and escapes follow. Bytes that are not UTF-8
 * appear under NAME_base64 instead of NAME. Zeroed memory is a writer.
 */
#ifndef MR_WIRE_JW_H
#define MR_WIRE_JW_H

#include "base/buf.h"

enum { JW_DEPTH_MAX = 16 };

struct jw {
    struct mr_buf buf; /* the writer's owner frees it */
    enum mr_err err;   /* MR_NOMEM: the text is not whole */
    unsigned depth;
    bool has_items[JW_DEPTH_MAX]; /* per open object or array: whether a comma is due */
};

/* name is NULL for items of arrays and for the outermost value. */
void jw_object_begin(struct jw *jw, const char *name);
void jw_object_end(struct jw *jw);
void jw_array_begin(struct jw *jw, const char *name);
void jw_array_end(struct jw *jw);
void jw_bytes(struct jw *jw, const char *name, struct mr_slice bytes);
void jw_text(struct jw *jw, const char *name, const char *text);
void jw_int(struct jw *jw, const char *name, int64_t value);
void jw_uint(struct jw *jw, const char *name, uint64_t value);
/* The shortest text that reads back as the same number. */
void jw_real(struct jw *jw, const char *name, double value);
void jw_null(struct jw *jw, const char *name);
/* An object of headers. */
void jw_headers(struct jw *jw, const struct mr_header *headers, size_t n);
void jw_bool(struct jw *jw, const char *name, bool value);

#endif
