/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /openapi.json, made of the rows and of two tables more: what parameters mean, and what the objects are made of.
 *
 * A field of an object is "name:kind"; several have spaces between them. Kinds: s a string, i a whole number, n a
 * number, b true or false, h an object of strings, w one of whole numbers, y bytes (under NAME_base64 where they are no UTF-8), @x
 * an object of the schema x, ? before one of s i n: that or null; and [ before any of them: an array. A schema of kinds without names is
 * any of those.
 */
#include <stdio.h>

#include "api/http_internal.h"

struct text_row {
    const char *name, *text;
};

#define PAGE_OF(x) "items:[@" x " next:?s"

static const struct text_row schemas[] = {
    {"error", "id:y state:s error:@failure"},
    {"failure", "code:s message:s state:s"},
    {"task", "id:y queue:y operation:@operation partition:i type:y state:s payload:y headers:h "
             "priority:n order_time_ms:i attempt:i retried:i max_retry:i crashes:i epoch:i "
             "timeout_ms:i deadline_ms:i unique_key:y group:y topic:y key:y retention_ms:i "
             "created_ms:i due_ms:i started_ms:i finished_ms:i node:y progress:y last_error:y "
             "last_failed_ms:i result:y"},
    {"new_task", "id:s queue:s type:s payload:s payload_base64:s headers:h priority:n delay_ms:i "
                 "at_ms:i max_retry:i timeout_ms:i deadline_ms:i retention_ms:i unique_ms:i "
                 "unique_key:s on_duplicate:s group:s topic:s key:s partition:i"},
    {"new_tasks", "@new_task [@new_task"},
    {"answer", "id:y state:s error:@failure"},
    {"enqueued", "@answer [@answer"},
    {"results", "[@answer"},
    {"task_id", "id:y"},
    {"queue_name", "queue:y"},
    {"queue_settings", "max_length:i partitions:i assign:s rate:i rate_ms:i concurrency:i "
                       "retry_mode:s retry_wait_ms:i"},
    {"requeue", "ids:[s queue:s type:s error:s all:b dry_run:b max:i"},
    {"requeued", "[@answer @bulk_done"},
    {"bulk", "action:s queue:s state:s type:s text:s all:b dry_run:b max:i"},
    {"bulk_done", "matched:i done:i failed:i more:b"},
    {"dead_groups", PAGE_OF("dead_group") " more:b"},
    {"dead_group", "error:y queue:y type:y count:i first_ms:i last_ms:i sample_id:y"},
    {"why", "id:y state:s reasons:[@reason"},
    {"reason", "reason:s text:s"},
    {"task_events", PAGE_OF("task_event") " missing:i"},
    {"task_event", "ms:i event:s attempt:i node:y text:y"},
    {"history", "step_ms:i end_ms:i enqueued:[?i succeeded:[?i failed:[?i backlog:[?i "
                "wait_p50_ms:[?n wait_p99_ms:[?n run_p50_ms:[?n run_p99_ms:[?n"},
    {"session", "role:s token:?s queue:?s version:s"},
    {"take", "queues:w node:s max:i wait_ms:i lease_ms:i"},
    {"lease", "id:s epoch:i"},
    {"runs", "[@lease"},
    {"extended", "[@held"},
    {"held", "id:y cancelled:b error:@failure"},
    {"end", "id:s queue:s epoch:i outcome:s result:s error:s delay_ms:i"},
    {"ends", "@end [@end"},
    {"operation", "verb:s app:y timer:y version:i"},
    {"tasks", PAGE_OF("task")},
    {"queue", "queue:s partitions:i assign:s pending:i active:i scheduled:i retry:i archived:i "
              "completed:i aggregating:i paused:b oldest_pending_ms:i processed_total:i "
              "failed_total:i processed_today:i failed_today:i max_length:i retry_mode:s "
              "retry_wait_ms:i rate:i rate_ms:i concurrency:i limits:i wait_p50_us:i wait_p99_us:i "
              "run_p50_us:i run_p99_us:i trimmed:i quarantined:i"},
    {"queues", PAGE_OF("queue")},
    {"node", "node:y role:s state:s incarnation:i started_ms:i last_beat_ms:i in_hand:i "
             "concurrency:i slots:[s doing:[@run queues:[s types:[s partitions:[@owned tags:[s "
             "leader:b"},
    {"run", "slot:i machine:i state:s since_ms:i task_id:y type:y"},
    {"owned", "queue:y partitions:[i"},
    {"nodes", PAGE_OF("node")},
    {"leader", "node:y incarnation:i term:i since_ms:i leaderless_ms:i"},
    {"leaders", PAGE_OF("led") " watched_ms:i"},
    {"led", "node:y incarnation:i term:i since_ms:i until_ms:?i"},
    {"servers", "servers:[@server apps:[@app planner:s view:b complete:b balance:s "
                "subapps:[@subapp moves:[@move"},
    {"server", "server:s registered:b weight:i load:i apps:[s"},
    {"app", "app:s workers:i"},
    {"subapp", "app:s subapp:i cut:b slots:i owner:s epoch:i load:i"},
    {"move", "number:i at_ms:i app:s subapp:i from:s to:s reason:s"},
    {"timer", "name:y id:y app:y version:i kind:s expression:y tz:y queue:y type:y payload:y "
              "state:s next_ms:i last_ms:i misfire:s overlap:s strategy:y start_ms:i end_ms:i "
              "firings_total:i created_ms:i max_retry:i timeout_ms:i priority:n max_running:i "
              "jitter_ms:i times:i expire_ms:i exclude:y headers:h"},
    {"timers", PAGE_OF("timer")},
    {"timer_name", "name:y"},
    {"new_timer",
     "name:s app:s kind:s expression:s tz:s queue:s type:s payload:s payload_base64:s "
     "headers:h priority:n max_retry:i timeout_ms:i misfire:s overlap:s max_running:i "
     "strategy:s jitter_ms:i exclude:s start_ms:i end_ms:i times:i expire_ms:i state:s "
     "if_version:i"},
    {"times", "items:[i next:?s"},
    {"firing", "timer:y app:y planned_ms:i until_ms:i state:s cause:s reason:y task_id:y run:i "
               "attempt:i fired_ms:i started_ms:i finished_ms:i"},
    {"firings", PAGE_OF("firing")},
    {"new_job", "name:s queue:s split:s reduce:s input:s parts:[s stages:[s pipeline:b policy:s "
                "priority:n max_retry:i timeout_ms:i retention_ms:i speculate_ms:i"},
    {"job", "id:y name:y state:s queue:y total:i done:i failed:i running:i stages:[@stage rate:n "
            "eta_ms:i priority:n created_ms:i finished_ms:i segments:i"},
    {"stage", "type:y total:i done:i failed:i"},
    {"jobs", PAGE_OF("job")},
    {"part", "job:y index:i stage:i round:i state:s task_id:y error:y"},
    {"parts", PAGE_OF("part")},
    {"version", "version:s"},
};

/* "kind what it means"; a name that several lists have in meanings of their own stands behind a _. */
static const struct text_row parameters[] = {
    {"queue", "s only of this queue"},
    {"watch_queue",
     "s only queues of this pattern, where * stands for any text, and who works on them"},
    {"state", "s only in this state: aggregating, scheduled, pending, active, retry, archived, "
              "completed"},
    {"job_state", "s only in this state: created, running, succeeded, failed, cancelled"},
    {"part_state", "s only in this state"},
    {"timer_state", "s only in this state: active, paused, finished"},
    {"type", "s only of this type"},
    {"text", "s only with this in their id, type, payload or error, whatever its case"},
    {"cursor", "s where the page begins: next of the one before"},
    {"limit", "i at most so many, up to 1000"},
    {"app", "s the app of the timer; default"},
    {"force", "b also when there are tasks in it: they go with it"},
};

static const char *text_of(const struct text_row *rows, size_t n, const char *name, size_t len)
{
    for (size_t i = 0; i < n; i++)
        if (strlen(rows[i].name) == len && strncmp(rows[i].name, name, len) == 0)
            return rows[i].text;
    mr_assert(false); /* a row names what is in no table */
    return NULL;
}

/* ---- schemas -------------------------------------------------------------------------------- */

static void ref_json(struct jw *jw, const char *name, const char *schema, size_t len)
{
    char text[96];
    (void)snprintf(text, sizeof text, "#/components/schemas/%.*s", (int)len, schema);
    jw_object_begin(jw, name);
    jw_text(jw, "$ref", text);
    jw_object_end(jw);
}

static const char *simple_name(char kind)
{
    return kind == 'i'                  ? "integer"
           : kind == 'n'                ? "number"
           : kind == 'b'                ? "boolean"
           : strchr("hw", kind) != NULL ? "object"
                                        : "string";
}

static void kind_json(struct jw *jw, const char *name, const char *kind)
{
    if (*kind == '@') {
        ref_json(jw, name, kind + 1, strcspn(kind + 1, " "));
        return;
    }
    jw_object_begin(jw, name);
    if (*kind == '[') {
        jw_text(jw, "type", "array");
        kind_json(jw, "items", kind + 1);
    } else if (*kind == '?') {
        jw_array_begin(jw, "type");
        jw_text(jw, NULL, simple_name(kind[1]));
        jw_text(jw, NULL, "null");
        jw_array_end(jw);
    } else {
        jw_text(jw, "type", simple_name(*kind));
        if (strchr("hw", *kind) != NULL)
            kind_json(jw, "additionalProperties", *kind == 'h' ? "s" : "i");
    }
    jw_object_end(jw);
}

static void fields_json(struct jw *jw, const char *fields)
{
    jw_text(jw, "type", "object");
    jw_object_begin(jw, "properties");
    for (const char *at = fields; *at != '\0';) {
        char name[64];
        size_t len = strcspn(at, ":");
        (void)snprintf(name, sizeof name, "%.*s", (int)len, at);
        kind_json(jw, name, at + len + 1);
        if (at[len + 1] == 'y') {
            (void)snprintf(name, sizeof name, "%.*s_base64", (int)len, at);
            kind_json(jw, name, "s");
        }
        at += strcspn(at, " ");
        at += strspn(at, " ");
    }
    jw_object_end(jw);
}

static void choices_json(struct jw *jw, const char *kinds)
{
    jw_array_begin(jw, "anyOf");
    for (const char *at = kinds; *at != '\0'; at += strspn(at, " ")) {
        kind_json(jw, NULL, at);
        at += strcspn(at, " ");
    }
    jw_array_end(jw);
}

static void schemas_json(struct jw *jw)
{
    jw_object_begin(jw, "schemas");
    for (size_t i = 0; i < sizeof schemas / sizeof *schemas; i++) {
        const struct text_row *row = &schemas[i];
        jw_object_begin(jw, row->name);
        if (strchr(row->text, ':') != NULL)
            fields_json(jw, row->text);
        else
            choices_json(jw, row->text);
        jw_object_end(jw);
    }
    jw_object_end(jw);
}

/* ---- one route ------------------------------------------------------------------------------ */

static void parameter_json(struct jw *jw, struct mr_slice name, const char *in, const char *text)
{
    jw_object_begin(jw, NULL);
    jw_bytes(jw, "name", name);
    jw_text(jw, "in", in);
    jw_bool(jw, "required", strcmp(in, "path") == 0);
    jw_text(jw, "description", text + 2);
    kind_json(jw, "schema", text);
    jw_object_end(jw);
}

/* Without what it is a state of: see parameters. */
static struct mr_slice parameter_name(const char *name, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if (name[i] == '_')
            return mr_slice_make(name + i + 1, len - i - 1);
    return mr_slice_make(name, len);
}

static void parameters_json(struct jw *jw, const struct http_row *row)
{
    const char *any = strchr(row->path, '{');
    jw_array_begin(jw, "parameters");
    if (any != NULL)
        parameter_json(jw, mr_slice_make(any + 1, strcspn(any + 1, "}")), "path",
                       "s which one, percent-encoded");
    for (const char *at = row->query != NULL ? row->query : ""; *at != '\0';) {
        size_t len = strcspn(at, " ");
        parameter_json(jw, parameter_name(at, len), "query",
                       text_of(parameters, sizeof parameters / sizeof *parameters, at, len));
        at += len;
        at += strspn(at, " ");
    }
    jw_array_end(jw);
}

static void content_json(struct jw *jw, const char *type, const char *schema)
{
    jw_object_begin(jw, "content");
    jw_object_begin(jw, type);
    if (schema != NULL) {
        size_t len = strlen(schema);
        (void)text_of(schemas, sizeof schemas / sizeof *schemas, schema, len);
        ref_json(jw, "schema", schema, len);
    }
    jw_object_end(jw);
    jw_object_end(jw);
}

static void answers_json(struct jw *jw, const struct http_row *row)
{
    char status[16];
    (void)snprintf(status, sizeof status, "%d", row->status);
    jw_object_begin(jw, "responses");
    jw_object_begin(jw, status);
    jw_text(jw, "description", row->summary);
    content_json(jw, row->type != NULL ? row->type : HTTP_JSON, row->answer);
    jw_object_end(jw);
    jw_object_begin(jw, "default");
    jw_text(jw, "description", "What is wrong");
    content_json(jw, HTTP_JSON, "error");
    jw_object_end(jw);
    jw_object_end(jw);
}

static void roles_json(struct jw *jw, const struct http_row *row)
{
    jw_array_begin(jw, "x-roles");
    for (int role = MR_ROLE_NONE + 1; role < MR_ROLE_COUNT; role++)
        if (row->roles & MR_ROLE_BIT(role))
            jw_text(jw, NULL, mr_role_name((enum mr_role)role));
    jw_array_end(jw);
    jw_array_begin(jw, "security");
    if (row->roles != 0) {
        jw_object_begin(jw, NULL);
        jw_array_begin(jw, "token");
        jw_array_end(jw);
        jw_object_end(jw);
    }
    jw_array_end(jw);
}

static void row_json(struct jw *jw, const struct http_row *row)
{
    char method[16] = "";
    for (size_t i = 0; row->method[i] != '\0' && i + 1 < sizeof method; i++)
        method[i] = (char)(row->method[i] | 0x20); /* small letters */
    jw_object_begin(jw, method);
    jw_text(jw, "summary", row->summary);
    roles_json(jw, row);
    parameters_json(jw, row);
    if (row->body != NULL) {
        jw_object_begin(jw, "requestBody");
        jw_bool(jw, "required", true);
        content_json(jw, HTTP_JSON, row->body);
        jw_object_end(jw);
    }
    answers_json(jw, row);
    jw_object_end(jw);
}

/* ---- the whole ------------------------------------------------------------------------------ */

/* All methods of a path stand together, at its first row. */
static void path_json(struct jw *jw, size_t first)
{
    for (size_t i = 0; i < first; i++)
        if (strcmp(http_rows[i].path, http_rows[first].path) == 0)
            return;
    jw_object_begin(jw, http_rows[first].path);
    for (size_t i = first; i < http_rows_n; i++)
        if (strcmp(http_rows[i].path, http_rows[first].path) == 0)
            row_json(jw, &http_rows[i]);
    jw_object_end(jw);
}

static void token_json(struct jw *jw)
{
    jw_object_begin(jw, "securitySchemes");
    jw_object_begin(jw, "token");
    jw_text(jw, "type", "http");
    jw_text(jw, "scheme", "bearer");
    jw_object_end(jw);
    jw_object_end(jw);
}

enum mr_err http_openapi(struct mr_buf *ret_document)
{
    struct jw jw = {0};
    jw_object_begin(&jw, NULL);
    jw_text(&jw, "openapi", "3.1.0");
    jw_object_begin(&jw, "info");
    jw_text(&jw, "title", "Millrace");
    jw_text(&jw, "version", mr_version());
    jw_object_end(&jw);
    jw_array_begin(&jw, "servers"); /* where this document is, whatever is before it */
    jw_object_begin(&jw, NULL);
    jw_text(&jw, "url", ".");
    jw_object_end(&jw);
    jw_array_end(&jw);
    jw_object_begin(&jw, "paths");
    for (size_t i = 0; i < http_rows_n; i++)
        path_json(&jw, i);
    jw_object_end(&jw);
    jw_object_begin(&jw, "components");
    schemas_json(&jw);
    token_json(&jw);
    jw_object_end(&jw);
    jw_object_end(&jw);
    if (jw.err == MR_OK)
        *ret_document = jw.buf;
    else
        mr_buf_done(&jw.buf);
    return jw.err;
}
