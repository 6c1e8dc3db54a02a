/* SPDX-License-Identifier: Apache-2.0 */
#include "api/metrics_text.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>

#include "base/text.h"

enum { LINE_MAX_BYTES = METRICS_LABELS_MAX + 256 };

static MR_PRINTF(2, 3) void put(struct metrics_text *text, const char *fmt, ...)
{
    char line[LINE_MAX_BYTES];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    mr_assert(n >= 0 && (size_t)n < sizeof line);
    if (text->err == MR_OK)
        text->err = mr_buf_append(&text->buf, line, (size_t)n);
}

void metrics_head(struct metrics_text *text, const char *name, const char *type, const char *help)
{
    text->name = name;
    put(text, "# HELP " METRICS_PREFIX "%s %s\n# TYPE " METRICS_PREFIX "%s %s\n", name, help, name,
        type);
}

/* ---- labels --------------------------------------------------------------------------------- */

static void add(struct metrics_labels *labels, const char *bytes, size_t n)
{
    if (labels->len + n >= sizeof labels->text)
        return;
    memcpy(labels->text + labels->len, bytes, n);
    labels->len += n;
    labels->text[labels->len] = '\0';
}

void metrics_label(struct metrics_labels *labels, const char *name, struct mr_slice value)
{
    bool valid = mr_utf8_valid(value);
    const char *bytes = value.data;
    add(labels, ",", labels->len > 0);
    add(labels, name, strlen(name));
    add(labels, "=\"", 2);
    for (size_t i = 0; i < value.len; i++) {
        unsigned char c = (unsigned char)bytes[i];
        bool bad = c < 0x20 || c == 0x7f || (c >= 0x80 && !valid);
        if (c == '"' || c == '\\')
            add(labels, "\\", 1);
        add(labels, bad ? "?" : &bytes[i], 1);
    }
    add(labels, "\"", 1);
}

/* ---- lines ---------------------------------------------------------------------------------- */

static const char *open_of(const struct metrics_labels *labels)
{
    return labels != NULL && labels->len > 0 ? "{" : "";
}

static const char *close_of(const struct metrics_labels *labels)
{
    return labels != NULL && labels->len > 0 ? "}" : "";
}

static const char *text_of(const struct metrics_labels *labels)
{
    return labels != NULL ? labels->text : "";
}

void metrics_count(struct metrics_text *text, const struct metrics_labels *labels, uint64_t value)
{
    put(text, METRICS_PREFIX "%s%s%s%s %" PRIu64 "\n", text->name, open_of(labels), text_of(labels),
        close_of(labels), value);
}

void metrics_number(struct metrics_text *text, const struct metrics_labels *labels, double value)
{
    put(text, METRICS_PREFIX "%s%s%s%s %.15g\n", text->name, open_of(labels), text_of(labels),
        close_of(labels), value);
}

void metrics_meter(struct metrics_text *text, const struct metrics_labels *labels,
                   const struct mr_meter *meter, const uint64_t edges[MR_METER_EDGES], double per)
{
    const char *before = text_of(labels), *comma = before[0] != '\0' ? "," : "";
    uint64_t n = 0;
    for (size_t i = 0; i < MR_METER_EDGES; i++) {
        n += meter->counts[i];
        put(text, METRICS_PREFIX "%s_bucket{%s%sle=\"%g\"} %" PRIu64 "\n", text->name, before,
            comma, (double)edges[i] / per, n);
    }
    n += meter->counts[MR_METER_EDGES];
    put(text, METRICS_PREFIX "%s_bucket{%s%sle=\"+Inf\"} %" PRIu64 "\n", text->name, before, comma,
        n);
    put(text, METRICS_PREFIX "%s_sum%s%s%s %.15g\n", text->name, open_of(labels), before,
        close_of(labels), (double)meter->sum / per);
    put(text, METRICS_PREFIX "%s_count%s%s%s %" PRIu64 "\n", text->name, open_of(labels), before,
        close_of(labels), n);
}
