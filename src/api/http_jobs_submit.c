/* SPDX-License-Identifier: Apache-2.0 */
/*
 * POST /api/v1/jobs: one object with what the job is, and its input, to be split here, or its parts. A larger input
 * than a request can have is for the command line or gRPC, which stream it.
 *
 * Somebody else has written the body, so nothing of it is larger in memory than it is: what JSON it is, is looked at before
 * it becomes values; the input is split piece by piece, as fast as the store takes the parts.
 */
#include <jansson.h>
#include <stdlib.h>

#include "api/http_jobs_internal.h"
#include "job/def.h"
#include "job/split.h"
#include "wire/job_json.h"

enum {
    STATUS_CREATED = 201,
    KEYS_MAX = 64,           /* of the object */
    PARTS_MAX = 100 * 1000,  /* in its array; a value of JSON is many bytes */
    DEPTH = 2,               /* of an array in the object */
    PIECE_BYTES = 64 * 1024, /* of an input that are split at once */
    MADE_BYTES_MAX =
        128 * 1024 * 1024, /* of all parts: a header stands before each row of a table */
};

struct posting {
    struct mr_http_jobs *jobs;
    struct mr_http_request *request;
    struct mr_token token;
    struct mr_arena arena;
    json_t *json; /* texts of the job, and parts, point into it */
    struct mr_job_options job;
    /* What the parts are made of: the rest of an input, or an array. */
    struct mr_split *split; /* NULL: an array */
    struct mr_slice input;
    const json_t *array;
    size_t array_at;
    bool whole; /* all of it was made into parts */
    uint64_t made_bytes;
    /* Some parts; those before `added` are in the load. Of an input they are copies. */
    struct mr_arena made;
    struct mr_slice *parts;
    size_t parts_n, parts_cap, added;
    struct mr_job_load *load;
    uint64_t spent;
    struct mr_msg msg; /* from the service's thread: there is room, or it is done */
    _Atomic bool waits;
    enum mr_err err;
    struct mr_detail detail;
    struct jw answer;
};

/* ---- the end -------------------------------------------------------------------------------- */

static void posting_free(struct posting *p)
{
    mr_job_load_free(p->load);
    mr_split_free(p->split);
    json_decref(p->json);
    mr_arena_done(&p->made);
    free(p->parts);
    mr_buf_done(&p->answer.buf);
    mr_arena_done(&p->arena);
    free(p);
}

static void posting_end(struct posting *p, enum mr_err err)
{
    const char *id = p->load != NULL ? mr_job_load_id(p->load) : "";
    http_door_audit(p->jobs->options.door, p->request, &p->token, mr_slice_str(id), err);
    if (p->spent > 0 && !mr_job_load_may_be_kept(p->load, err))
        mr_tokens_give_back(p->jobs->options.door->access->tokens, p->token.id, p->spent);
    if (err == MR_OK)
        mr_http_reply(p->request, STATUS_CREATED, HTTP_JSON, mr_buf_slice(&p->answer.buf));
    else
        mr_http_fail(p->request, err,
                     p->detail.text[0] != '\0' ? p->detail.text : mr_err_text(err));
    posting_free(p);
}

/* ---- what it says --------------------------------------------------------------------------- */

static enum mr_err wrong(struct posting *p, const char *key, const char *what)
{
    mr_detail_set(&p->detail, "%.100s: %s", key, what);
    return MR_INVALID;
}

static struct mr_slice text_of(const json_t *value)
{
    return mr_slice_make(json_string_value(value), json_string_length(value));
}

static enum mr_err read_text(struct posting *p, const char *key, const json_t *value,
                             struct mr_slice *ret_text)
{
    if (!json_is_string(value))
        return wrong(p, key, "must be a text");
    *ret_text = text_of(value);
    return MR_OK;
}

static enum mr_err read_number(struct posting *p, const char *key, const json_t *value,
                               int64_t *ret_number)
{
    if (!json_is_integer(value) || json_integer_value(value) < 0)
        return wrong(p, key, "must be a whole number, 0 or more");
    *ret_number = json_integer_value(value);
    return MR_OK;
}

static enum mr_err read_policy(struct posting *p, const char *key, const json_t *value)
{
    for (size_t i = 0; i < MR_JOB_POLICY_COUNT; i++) {
        const char *name = mr_job_policy_name((enum mr_job_policy)i);
        if (json_is_string(value) && strcmp(json_string_value(value), name) == 0) {
            p->job.policy = (enum mr_job_policy)i;
            return MR_OK;
        }
    }
    return wrong(p, key, "must be fail-fast or finish");
}

/* An array of texts. */
static enum mr_err read_texts(struct posting *p, const char *key, const json_t *value,
                              struct mr_slice **ret_texts, size_t *ret_n)
{
    size_t n = json_array_size(value);
    if (!json_is_array(value))
        return wrong(p, key, "must be an array of texts");
    *ret_texts = mr_arena_calloc(&p->arena, n + 1, sizeof **ret_texts);
    if (*ret_texts == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < n; i++)
        MR_TRY(read_text(p, key, json_array_get(value, i), &(*ret_texts)[i]));
    *ret_n = n;
    return MR_OK;
}

static enum mr_err read_stages(struct posting *p, const char *key, const json_t *value)
{
    struct mr_slice *stages = NULL;
    size_t n = 0;
    MR_TRY(read_texts(p, key, value, &stages, &n));
    if (n > MR_JOB_STAGES_MAX)
        return wrong(p, key, "there are too many");
    p->job.stages = stages;
    p->job.stages_n = n;
    return MR_OK;
}

static enum mr_err read_key(struct posting *p, const char *key, const json_t *value)
{
    int64_t number = 0;
    const struct {
        const char *key;
        struct mr_slice *text;
        int64_t *number;
    } rows[] = {
        {"name", &p->job.name, NULL},
        {"queue", &p->job.queue, NULL},
        {"split", &p->job.split, NULL},
        {"reduce", &p->job.reduce, NULL},
        {"retention_ms", NULL, &p->job.retention_ms},
        {"speculate_ms", NULL, &p->job.speculate_ms},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].key, key) == 0)
            return rows[i].text != NULL ? read_text(p, key, value, rows[i].text)
                                        : read_number(p, key, value, rows[i].number);
    if (strcmp(key, "timeout_ms") == 0) { /* 0 stands for none, as elsewhere in JSON */
        MR_TRY(read_number(p, key, value, &number));
        p->job.timeout_ms = number > 0 ? number : MR_NO_TIMEOUT;
        return MR_OK;
    }
    if (strcmp(key, "max_retry") == 0) {
        MR_TRY(read_number(p, key, value, &number));
        if (number > INT32_MAX)
            return wrong(p, key, "is too large");
        p->job.max_retry = number > 0 ? (int32_t)number : MR_NO_RETRY;
        return MR_OK;
    }
    if (strcmp(key, "priority") == 0 && json_is_number(value)) {
        p->job.priority_s = json_number_value(value);
        return MR_OK;
    }
    if (strcmp(key, "pipeline") == 0 && json_is_boolean(value)) {
        p->job.pipeline = json_is_true(value);
        return MR_OK;
    }
    if (strcmp(key, "policy") == 0)
        return read_policy(p, key, value);
    if (strcmp(key, "stages") == 0)
        return read_stages(p, key, value);
    return wrong(p, key, "is not known, or not of this kind");
}

/* ---- parts ---------------------------------------------------------------------------------- */

static enum mr_err push_part(struct posting *p, struct mr_slice part)
{
    if (p->parts_n == p->parts_cap) {
        size_t cap = p->parts_cap > 0 ? 2 * p->parts_cap : MR_BATCH_MAX;
        struct mr_slice *parts = realloc(p->parts, cap * sizeof *parts);
        if (parts == NULL)
            return MR_NOMEM;
        p->parts = parts;
        p->parts_cap = cap;
    }
    p->parts[p->parts_n++] = part;
    return MR_OK;
}

/* A part that was cut. */
static enum mr_err keep_part(struct mr_slice part, uint64_t index, void *arg)
{
    (void)index;
    struct posting *p = arg;
    struct mr_slice copy;
    p->made_bytes += part.len;
    if (p->made_bytes > MADE_BYTES_MAX) {
        mr_detail_set(&p->detail,
                      "the parts are more than %d MiB, all together: the command line "
                      "and gRPC take any number",
                      MADE_BYTES_MAX / (1024 * 1024));
        return MR_TOO_BIG;
    }
    MR_TRY(mr_arena_copy(&p->made, part, &copy));
    return push_part(p, copy);
}

/* What the splitter says is said unless its callback had something to say. */
static enum mr_err split_more(struct posting *p)
{
    struct mr_detail detail = {.text = ""};
    struct mr_slice piece = p->input;
    piece.len = piece.len < PIECE_BYTES ? piece.len : PIECE_BYTES;
    enum mr_err err = mr_split_write(p->split, piece, &detail);
    p->input = mr_slice_make((const char *)p->input.data + piece.len, p->input.len - piece.len);
    p->whole = p->input.len == 0;
    if (err == MR_OK && p->whole)
        err = mr_split_end(p->split, &detail);
    if (p->detail.text[0] == '\0')
        p->detail = detail;
    return err;
}

/* The next parts, perhaps none; those before them are in the load. */
static enum mr_err make_parts(struct posting *p)
{
    mr_arena_done(&p->made);
    p->made = (struct mr_arena){0};
    p->parts_n = p->added = 0;
    if (p->split != NULL)
        return split_more(p);
    for (size_t i = 0; i < MR_BATCH_MAX && p->array_at < json_array_size(p->array); i++)
        MR_TRY(push_part(p, text_of(json_array_get(p->array, p->array_at++))));
    p->whole = p->array_at == json_array_size(p->array);
    return MR_OK;
}

/* ---- the document --------------------------------------------------------------------------- */

/* What stands outside of texts, so far. */
struct shape {
    size_t depth, keys, items;
    bool in_text, escaped;
};

/* Whether it can still be an object of texts, numbers and arrays of those, of a bearable size. */
static bool shape_goes_on(struct shape *shape, char c)
{
    if (shape->in_text) {
        shape->in_text = c != '"' || shape->escaped;
        shape->escaped = c == '\\' && !shape->escaped;
        return true;
    }
    shape->in_text = c == '"';
    if (c == '{' && shape->depth > 0)
        return false;
    if (c == '[' || c == '{')
        return ++shape->depth <= DEPTH;
    if ((c == ']' || c == '}') && shape->depth > 0)
        shape->depth--;
    if (c == ',' && shape->depth < DEPTH)
        return ++shape->keys < KEYS_MAX;
    return c != ',' || ++shape->items < PARTS_MAX;
}

static enum mr_err check_shape(struct posting *p, struct mr_slice body)
{
    struct shape shape = {.depth = 0};
    const char *text = body.data;
    for (size_t i = 0; i < body.len; i++) {
        if (shape_goes_on(&shape, text[i]))
            continue;
        mr_detail_set(&p->detail,
                      "offset %zu: must be one object of texts, numbers and arrays of texts, with "
                      "at most %d parts; the command line and gRPC take any number",
                      i, PARTS_MAX);
        return shape.items >= PARTS_MAX ? MR_TOO_BIG : MR_INVALID;
    }
    return MR_OK;
}

static enum mr_err begin_split(struct posting *p, const json_t *input)
{
    struct mr_split_options options = {
        .part_max = p->jobs->options.payload_max, .part = keep_part, .arg = p};
    MR_TRY(read_text(p, "input", input, &p->input));
    MR_TRY(mr_split_parse(p->job.split, &options.spec, &p->detail));
    if (options.spec.kind == MR_SPLIT_COMMAND)
        return wrong(p, "split", "a command is run by the command line alone");
    if (p->job.split.len == 0)
        p->job.split = MR_SLICE_LIT("lines");
    return mr_split_new(&options, &p->split);
}

/* Parts as they are given. */
static enum mr_err begin_array(struct posting *p, const json_t *parts)
{
    size_t n = json_array_size(parts);
    if (!json_is_array(parts) || n == 0)
        return wrong(p, "parts", "must be an array of texts that is not empty");
    for (size_t i = 0; i < n; i++)
        if (!json_is_string(json_array_get(parts, i)))
            return wrong(p, "parts", "must be an array of texts");
    p->array = parts;
    p->job.split = (struct mr_slice){0};
    return MR_OK;
}

static enum mr_err read_document(struct posting *p)
{
    struct mr_slice body = mr_http_body(p->request);
    json_error_t error;
    const char *key;
    json_t *value;
    MR_TRY(check_shape(p, body));
    p->json = json_loadb(body.data, body.len, JSON_REJECT_DUPLICATES | JSON_ALLOW_NUL, &error);
    if (!json_is_object(p->json)) {
        mr_detail_set(&p->detail, "the body must be an object of JSON%s%s",
                      p->json != NULL ? "" : ": ", p->json != NULL ? "" : error.text);
        return MR_INVALID;
    }
    json_object_foreach(p->json, key, value)
    {
        if (strcmp(key, "input") != 0 && strcmp(key, "parts") != 0)
            MR_TRY(read_key(p, key, value));
    }
    const json_t *input = json_object_get(p->json, "input");
    const json_t *parts = json_object_get(p->json, "parts");
    if ((input != NULL) == (parts != NULL))
        return wrong(p, "input", "give it, or parts, and not both");
    return input != NULL ? begin_split(p, input) : begin_array(p, parts);
}

/* ---- into the store ------------------------------------------------------------------------- */

static void add_parts(struct posting *p);

static void done_delivered(struct mr_msg *msg, void *receiver)
{
    struct posting *p = mr_container(msg, struct posting, msg);
    mr_http_release(receiver);
    posting_end(p, p->err);
}

/* Thread: the service's. */
static void on_done(struct mr_job_load *load, enum mr_err err, const struct mr_job_shown *job,
                    const struct mr_detail *detail, void *arg)
{
    (void)load;
    struct posting *p = arg;
    p->err = err;
    if (detail != NULL)
        p->detail = *detail;
    if (err == MR_OK) {
        jw_job(&p->answer, NULL, &job->info);
        p->err = p->answer.err;
    }
    p->msg.deliver = done_delivered;
    mr_http_post(p->jobs->http, &p->msg);
}

static void room_delivered(struct mr_msg *msg, void *receiver)
{
    struct posting *p = mr_container(msg, struct posting, msg);
    mr_http_release(receiver);
    add_parts(p);
}

/* Thread: the service's. */
static void on_room(struct mr_job_load *load, void *arg)
{
    (void)load;
    struct posting *p = arg;
    if (!atomic_exchange(&p->waits, false))
        return;
    p->msg.deliver = room_delivered;
    mr_http_post(p->jobs->http, &p->msg);
}

static void commit(struct posting *p)
{
    uint64_t n = mr_job_load_count(p->load);
    enum mr_err err = MR_OK;
    if (p->token.quota > 0)
        err = mr_tokens_spend(p->jobs->options.door->access->tokens, p->token.id, n, &p->detail);
    if (err != MR_OK) {
        posting_end(p, err);
        return;
    }
    p->spent = p->token.quota > 0 ? n : 0;
    mr_http_hold(p->jobs->http);
    mr_job_load_commit(p->load);
}

/* Some of them; false: the load has no room, or has some again, and a message goes on from here. `waits` and the hold are
 * there before it says so, since room may come at once. */
static bool add_some(struct posting *p, enum mr_err *ret_err)
{
    size_t left = p->parts_n - p->added, n = left < MR_BATCH_MAX ? left : MR_BATCH_MAX;
    *ret_err = jobs_check_quota(&p->token, mr_job_load_count(p->load) + n, &p->detail);
    if (*ret_err != MR_OK)
        return true;
    mr_http_hold(p->jobs->http);
    atomic_store(&p->waits, true);
    *ret_err = mr_job_load_add(p->load, &p->parts[p->added], n, &p->detail);
    if (*ret_err == MR_BUSY)
        return false;
    if (*ret_err == MR_OK)
        p->added += n;
    if (!atomic_exchange(&p->waits, false))
        return false;
    mr_http_release(p->jobs->http);
    return true;
}

static void add_parts(struct posting *p)
{
    enum mr_err err = MR_OK;
    while (err == MR_OK && (p->added < p->parts_n || !p->whole))
        if (p->added == p->parts_n)
            err = make_parts(p);
        else if (!add_some(p, &err))
            return;
    if (err == MR_OK)
        commit(p);
    else
        posting_end(p, err);
}

static enum mr_err begin(struct posting *p, struct mr_job_service *service)
{
    struct mr_buf definition = {0};
    MR_TRY(read_document(p));
    MR_TRY(jobs_admit(&p->token, &p->job, &p->detail));
    enum mr_err err = mr_job_encode(&p->job, &definition);
    struct mr_job_load_options options = {
        .definition = mr_buf_slice(&definition), .room = on_room, .done = on_done, .arg = p};
    if (err == MR_OK)
        err = mr_job_load_new(service, &options, &p->load, &p->detail);
    mr_buf_done(&definition);
    return err;
}

void http_jobs_submit(struct mr_http_request *request, void *arg)
{
    struct mr_http_jobs *jobs = arg;
    struct mr_token token;
    struct mr_job_service *service;
    if (!http_admit(jobs, request, &token, &service) || !http_pay(jobs, request, &token))
        return;
    struct posting *p = calloc(1, sizeof *p);
    if (p == NULL) {
        mr_http_fail(request, MR_NOMEM, mr_err_text(MR_NOMEM));
        return;
    }
    p->jobs = jobs;
    p->request = request;
    p->token = token;
    mr_http_later(request);
    enum mr_err err = begin(p, service);
    if (err == MR_OK)
        add_parts(p);
    else
        posting_end(p, err);
}
