/* SPDX-License-Identifier: Apache-2.0 */
/* Variables of a task. Values end at their first NUL byte, since an environment cannot hold one. */
#include "worker/exec_env.h"

#include <inttypes.h>
#include <stdio.h>

#include "wire/trace.h"

#define PREFIX        "MILLRACE_"
#define HEADER_PREFIX PREFIX "HEADER_"

/* Names after the prefix, one per variable that every task has. */
enum variable { TASK_ID, TASK_TYPE, QUEUE, ATTEMPT, EPOCH, DEADLINE, PROGRESS_FD, VARIABLES };
static const char *const names[VARIABLES] = {
    [TASK_ID] = "TASK_ID",         [TASK_TYPE] = "TASK_TYPE", [QUEUE] = "QUEUE",
    [ATTEMPT] = "ATTEMPT",         [EPOCH] = "EPOCH",         [DEADLINE] = "DEADLINE",
    [PROGRESS_FD] = "PROGRESS_FD",
};

static bool begins(const char *entry, const char *prefix)
{
    return strncmp(entry, prefix, strlen(prefix)) == 0;
}

/* Under these a process finds the trace it belongs to, whatever carries it. */
static const char *const trace_variables[MR_TRACE_PARTS] = {"TRACEPARENT", "TRACESTATE", "BAGGAGE"};

static bool is_trace(const char *entry)
{
    for (size_t i = 0; i < MR_TRACE_PARTS; i++)
        if (begins(entry, trace_variables[i]) && entry[strlen(trace_variables[i])] == '=')
            return true;
    return false;
}

/* Whether an inherited entry would be mistaken for one of this task. */
static bool is_ours(const char *entry)
{
    if (begins(entry, HEADER_PREFIX) || is_trace(entry))
        return true;
    if (!begins(entry, PREFIX))
        return false;
    const char *name = entry + strlen(PREFIX);
    size_t len = strcspn(name, "=");
    for (size_t i = 0; i < VARIABLES; i++)
        if (strlen(names[i]) == len && memcmp(names[i], name, len) == 0)
            return true;
    return false;
}

/* "PREFIX" name "=" value */
static enum mr_err add(struct mr_arena *arena, char **env, size_t *n, const char *prefix,
                       struct mr_slice name, struct mr_slice value)
{
    size_t prefix_len = strlen(prefix);
    char *entry = mr_arena_alloc(arena, prefix_len + name.len + value.len + 2);
    if (!entry)
        return MR_NOMEM;
    memcpy(entry, prefix, prefix_len);
    char *at = entry + prefix_len;
    memcpy(at, name.data, name.len);
    at += name.len;
    *at++ = '=';
    if (value.len > 0)
        memcpy(at, value.data, value.len);
    at[value.len] = '\0';
    env[(*n)++] = entry;
    return MR_OK;
}

static enum mr_err add_header(struct mr_arena *arena, char **env, size_t *n,
                              const struct mr_header *header)
{
    char name[MR_NAME_MAX];
    const unsigned char *bytes = header->name.data;
    size_t len = header->name.len < sizeof name ? header->name.len : sizeof name;
    for (size_t i = 0; i < len; i++) {
        unsigned char c = bytes[i];
        if (c >= 'a' && c <= 'z')
            name[i] = (char)(c - 'a' + 'A');
        else
            name[i] = (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ? (char)c : '_';
    }
    return add(arena, env, n, HEADER_PREFIX, mr_slice_make(name, len), header->value);
}

static enum mr_err add_trace(struct mr_arena *arena, char **env, size_t *n,
                             const struct mr_task *task)
{
    struct mr_trace_headers headers = {task->headers, task->headers_n};
    struct mr_trace trace;
    MR_TRY(mr_trace_read(mr_trace_of_headers, &headers, NULL, &trace));
    for (size_t i = 0; i < trace.n; i++)
        for (size_t part = 0; part < MR_TRACE_PARTS; part++)
            if (mr_slice_equal(trace.headers[i].name, mr_slice_str(mr_trace_names[part])))
                MR_TRY(add(arena, env, n, "", mr_slice_str(trace_variables[part]),
                           trace.headers[i].value));
    return MR_OK;
}

static enum mr_err add_number(struct mr_arena *arena, char **env, size_t *n, enum variable variable,
                              int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    return add(arena, env, n, PREFIX, mr_slice_str(names[variable]), mr_slice_str(text));
}

enum mr_err mr_exec_env(const struct mr_task *task, int64_t deadline_ms, int progress_fd,
                        char *const *base, struct mr_arena *arena, char ***ret_env)
{
    size_t base_n = 0;
    while (base[base_n])
        base_n++;
    size_t most = base_n + VARIABLES + task->headers_n + MR_TRACE_PARTS + 1;
    char **env = mr_arena_calloc(arena, most, sizeof *env);
    if (!env)
        return MR_NOMEM;
    size_t n = 0;
    for (size_t i = 0; i < base_n; i++)
        if (!is_ours(base[i]))
            env[n++] = base[i];
    MR_TRY(add(arena, env, &n, PREFIX, mr_slice_str(names[TASK_ID]), task->id));
    MR_TRY(add(arena, env, &n, PREFIX, mr_slice_str(names[TASK_TYPE]), task->type));
    MR_TRY(add(arena, env, &n, PREFIX, mr_slice_str(names[QUEUE]), task->queue));
    MR_TRY(add_number(arena, env, &n, ATTEMPT, task->attempt));
    MR_TRY(add_number(arena, env, &n, EPOCH, (int64_t)task->epoch));
    MR_TRY(add_number(arena, env, &n, DEADLINE, deadline_ms));
    MR_TRY(add_number(arena, env, &n, PROGRESS_FD, progress_fd));
    for (size_t i = 0; i < task->headers_n; i++)
        MR_TRY(add_header(arena, env, &n, &task->headers[i]));
    MR_TRY(add_trace(arena, env, &n, task));
    *ret_env = env;
    return MR_OK;
}
