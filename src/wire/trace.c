/* SPDX-License-Identifier: Apache-2.0 */
#include "wire/trace.h"

#include <strings.h>

enum {
    PARENT_LEN = 55, /* of version 00 */
    TRACE_AT = 3,
    TRACE_LEN = 32,
    SPAN_AT = 36,
    SPAN_LEN = 16,
    FLAGS_AT = 53,
    STATE_MAX = 512,
    BAGGAGE_MAX = 8192,
};

const char *const mr_trace_names[MR_TRACE_PARTS] = {"traceparent", "tracestate", "baggage"};

/* ---- what it is ----------------------------------------------------------------------------- */

static bool is_hex(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!((text[i] >= '0' && text[i] <= '9') || (text[i] >= 'a' && text[i] <= 'f')))
            return false;
    return true;
}

static bool is_zero(const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (text[i] != '0')
            return false;
    return true;
}

bool mr_traceparent_valid(struct mr_slice slice)
{
    const char *text = slice.data;
    if (slice.len < PARENT_LEN)
        return false;
    bool first = memcmp(text, "00", 2) == 0;
    bool dashes =
        text[TRACE_AT - 1] == '-' && text[SPAN_AT - 1] == '-' && text[FLAGS_AT - 1] == '-';
    bool hex = is_hex(text, 2) && is_hex(text + TRACE_AT, TRACE_LEN) &&
               is_hex(text + SPAN_AT, SPAN_LEN) && is_hex(text + FLAGS_AT, 2);
    bool ends = slice.len == PARENT_LEN || (!first && text[PARENT_LEN] == '-');
    return dashes && hex && ends && memcmp(text, "ff", 2) != 0 &&
           !is_zero(text + TRACE_AT, TRACE_LEN) && !is_zero(text + SPAN_AT, SPAN_LEN);
}

static bool is_plain(struct mr_slice value, size_t max)
{
    const char *text = value.data;
    for (size_t i = 0; i < value.len && value.len <= max; i++)
        if (text[i] < ' ' || text[i] > '~')
            return false;
    return value.len > 0 && value.len <= max;
}

static const size_t lengths_max[MR_TRACE_PARTS] = {STATE_MAX, STATE_MAX, BAGGAGE_MAX};

enum mr_err mr_trace_read(mr_trace_look *look, void *arg, struct mr_arena *arena,
                          struct mr_trace *ret_trace)
{
    bool traced = false;
    *ret_trace = (struct mr_trace){.n = 0};
    for (enum mr_trace_part part = 0; part < MR_TRACE_PARTS; part++) {
        struct mr_slice value = look(part, arg);
        bool good = is_plain(value, lengths_max[part]);
        if (part == MR_TRACE_PARENT)
            good = traced = good && mr_traceparent_valid(value);
        if (part == MR_TRACE_STATE) /* it belongs to that */
            good = good && traced;
        if (!good)
            continue;
        if (arena != NULL)
            MR_TRY(mr_arena_copy(arena, value, &value));
        ret_trace->headers[ret_trace->n++] =
            (struct mr_header){mr_slice_str(mr_trace_names[part]), value};
    }
    return MR_OK;
}

/* ---- a task's ------------------------------------------------------------------------------- */

static const struct mr_header *find(const struct mr_header *headers, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (headers[i].name.len == strlen(name) &&
            strncasecmp(headers[i].name.data, name, headers[i].name.len) == 0)
            return &headers[i];
    return NULL;
}

struct mr_slice mr_trace_of_headers(enum mr_trace_part part, void *arg)
{
    const struct mr_trace_headers *all = arg;
    const struct mr_header *header = find(all->headers, all->n, mr_trace_names[part]);
    return header != NULL ? header->value : (struct mr_slice){0};
}

size_t mr_trace_missing(const struct mr_trace *trace, const struct mr_header *headers, size_t n,
                        struct mr_header ret_headers[MR_TRACE_PARTS])
{
    const char *state = mr_trace_names[MR_TRACE_STATE];
    bool own = find(headers, n, mr_trace_names[MR_TRACE_PARENT]) != NULL;
    size_t bytes = 0, missing = 0;
    for (size_t i = 0; i < n; i++)
        bytes += headers[i].name.len + headers[i].value.len;
    for (size_t i = 0; i < trace->n; i++) {
        struct mr_header header = trace->headers[i];
        size_t len = header.name.len + header.value.len;
        bool of_own = own && mr_slice_equal(header.name, mr_slice_str(state));
        if (of_own || find(headers, n, header.name.data) != NULL || n + missing >= MR_HEADERS_MAX ||
            bytes + len > MR_HEADER_BYTES_MAX)
            continue;
        bytes += len;
        ret_headers[missing++] = header;
    }
    return missing;
}

enum mr_err mr_trace_add(const struct mr_trace *trace, struct mr_arena *arena,
                         struct mr_task_options *task)
{
    struct mr_header missing[MR_TRACE_PARTS];
    size_t n = task->headers_n <= MR_HEADERS_MAX
                   ? mr_trace_missing(trace, task->headers, task->headers_n, missing)
                   : 0; /* it is refused for that */
    if (n == 0)
        return MR_OK;
    struct mr_header *all = mr_arena_calloc(arena, task->headers_n + n, sizeof *all);
    if (all == NULL)
        return MR_NOMEM;
    if (task->headers_n > 0)
        memcpy(all, task->headers, task->headers_n * sizeof *all);
    memcpy(all + task->headers_n, missing, n * sizeof *all);
    task->headers = all;
    task->headers_n += n;
    return MR_OK;
}
