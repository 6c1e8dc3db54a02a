/* SPDX-License-Identifier: Apache-2.0 */
/*
 * millrace nameserver status: every nameserver of the list is asked what it knows; one that answers, for the servers and, if wanted, for
 * the workers; one of the servers, for subApps and moves, which are in their store. What cannot be asked is said, and the rest shown.
 */
#include <stdlib.h>

#include "api/servers.h"
#include "cli/names.h"
#include "cli/nameserver.h"
#include "cli/plan_show.h"
#include "cli/server.h"
#include "cli/watch.h"
#include "names/wire.h"

enum { ASK_MS = 5 * 1000, ENTRIES_MAX = 200 * 1000 };

/* A nameserver, and what it answered. */
struct asked {
    enum mr_err err;
    struct mr_detail why;
    struct mr_buf bytes;
    struct mr_names_look look;
};

struct entries {
    struct mr_names_entry *at;
    size_t n, cap;
};

struct status {
    struct cli *cli;
    const struct names_status_args *args;
    const char *list; /* NULL: as the arguments say */
    struct cli_names names;
    struct mr_arena arena; /* all that was read */
    struct asked asked[MR_NAMESERVERS_MAX];
    size_t first; /* that answered */
    struct entries servers, workers;
    plan_shown *plan; /* NULL: no server told */
    struct mr_detail plan_why;
};

/* ---- asking ----------------------------------------------------------------------------------- */

static struct cli_address address_of(const struct status *s, size_t i)
{
    return (struct cli_address){.address = s->names.addresses[i],
                                .tls = cli_names_tls(&s->names),
                                .authorization = s->names.authorization,
                                .ms = ASK_MS};
}

static void ask(struct status *s, size_t i)
{
    struct asked *asked = &s->asked[i];
    struct cli_address at = address_of(s, i);
    asked->err = cli_call_address(&at, "/millrace.v1.Names/Look", MR_SLICE_LIT(""), &asked->bytes,
                                  &asked->why);
    if (asked->err == MR_UNSUPPORTED) /* a server, mostly */
        mr_detail_set(&asked->why, "what answers there is no nameserver");
    if (asked->err != MR_OK)
        return;
    asked->err = mr_names_look_decode(mr_buf_slice(&asked->bytes), &s->arena, &asked->look);
    if (asked->err != MR_OK)
        mr_detail_set(&asked->why, "what answers there is no nameserver");
}

static int ask_all(struct status *s)
{
    s->first = s->names.n;
    for (size_t i = 0; i < s->names.n; i++) {
        ask(s, i);
        if (s->asked[i].err == MR_OK && s->first == s->names.n)
            s->first = i;
    }
    if (s->first < s->names.n)
        return CLI_OK;
    const struct asked *last = &s->asked[s->names.n - 1];
    if (s->names.n == 1)
        return cli_fail_detail(last->err, "cannot ask", s->names.addresses[0], &last->why);
    return cli_fail(mr_err_exit_code(last->err),
                    "none of %zu nameservers answers; the last, %s: %s", s->names.n,
                    s->names.addresses[s->names.n - 1], last->why.text);
}

static void keep(struct status *s, struct entries *to, const struct mr_names_entry *from)
{
    if (to->n == to->cap) {
        to->cap = to->cap > 0 ? 2 * to->cap : 64;
        to->at = cli_grow(to->at, to->cap, sizeof *to->at);
    }
    struct mr_names_entry *entry = &to->at[to->n++];
    *entry = *from;
    cli_must(mr_arena_copy(&s->arena, from->name, &entry->name));
    cli_must(mr_arena_copy(&s->arena, from->app, &entry->app));
    cli_must(mr_arena_copy(&s->arena, from->address, &entry->address));
    cli_must(mr_arena_copy(&s->arena, from->server, &entry->server));
    cli_must(mr_arena_copy(&s->arena, from->body, &entry->body));
}

static enum mr_err ask_page(struct status *s, enum mr_names_kind kind, struct entries *to,
                            bool *ret_more, struct mr_detail *why)
{
    struct mr_names_query query = {.kind = kind};
    struct mr_names_page page = {0};
    struct mr_buf request = {0}, answer = {0};
    struct mr_arena arena = {0};
    struct cli_address at = address_of(s, s->first);
    if (to->n > 0) {
        query.after_name = to->at[to->n - 1].name;
        query.after_incarnation = to->at[to->n - 1].incarnation;
    }
    cli_must(mr_names_query_encode(&query, &request));
    enum mr_err err =
        cli_call_address(&at, "/millrace.v1.Names/List", mr_buf_slice(&request), &answer, why);
    if (err == MR_OK)
        err = mr_names_page_decode(mr_buf_slice(&answer), &arena, &page);
    for (size_t i = 0; err == MR_OK && i < page.entries_n; i++)
        keep(s, to, &page.entries[i]);
    *ret_more = err == MR_OK && page.more && page.entries_n > 0 && to->n < ENTRIES_MAX;
    mr_arena_done(&arena);
    mr_buf_done(&request);
    mr_buf_done(&answer);
    return err;
}

static int ask_list(struct status *s, enum mr_names_kind kind, struct entries *to)
{
    struct mr_detail why = {0};
    bool more = true;
    while (more) {
        enum mr_err err = ask_page(s, kind, to, &more, &why);
        if (err != MR_OK)
            return cli_fail_detail(err, "cannot ask", s->names.addresses[s->first], &why);
    }
    return CLI_OK;
}

/* Any of the servers answers alike. */
static void ask_servers(struct status *s)
{
    mr_detail_set(&s->plan_why, "no server is registered");
    for (size_t i = 0; s->plan == NULL && i < s->servers.n; i++) {
        struct mr_names_server_body body = {0};
        struct mr_buf answer = {0};
        enum mr_err read = mr_names_server_body_decode(s->servers.at[i].body, &s->arena, &body);
        bool is_secure = read == MR_OK && body.is_secure;
        struct cli_address at = {.address = s->servers.at[i].address.data,
                                 .tls = is_secure ? &s->names.tls : NULL,
                                 .authorization = s->names.authorization,
                                 .ms = ASK_MS};
        enum mr_err err = cli_call_address(&at, PLAN_PATH, MR_SLICE_LIT(""), &answer, &s->plan_why);
        if (err == MR_OK)
            s->plan = plan_read(mr_buf_slice(&answer));
        mr_buf_done(&answer);
    }
}

/* ---- tables ----------------------------------------------------------------------------------- */

static size_t peers_up(const struct mr_names_look *look)
{
    size_t n = 0;
    for (size_t i = 0; i < look->peers_n; i++)
        n += look->peers[i].is_up;
    return n;
}

static void print_nameservers(const struct status *s)
{
    static const struct out_column columns[] = {
        {"NAMESERVER", OUT_LEFT}, {"STATE", OUT_LEFT},  {"SERVERS", OUT_RIGHT},
        {"WORKERS", OUT_RIGHT},   {"PEERS", OUT_RIGHT}, {"VIEW", OUT_STRETCH | OUT_SPARE(1)},
    };
    struct out_table *table = out_table_new(columns, CLI_LEN(columns));
    for (size_t i = 0; i < s->names.n; i++) {
        const struct asked *asked = &s->asked[i];
        const struct mr_names_look *look = &asked->look;
        out_cell_bytes(table, OUT_BOLD, mr_slice_str(s->names.addresses[i]));
        if (asked->err != MR_OK) {
            out_cell(table, OUT_RED, "does not answer");
            for (size_t k = 2; k < CLI_LEN(columns); k++)
                out_cell(table, OUT_PLAIN, "-");
            continue;
        }
        out_cell(table, look->complete ? OUT_GREEN : OUT_YELLOW,
                 look->complete ? "live" : "live, not complete");
        out_cellf(table, OUT_PLAIN, "%llu", (unsigned long long)look->servers);
        out_cellf(table, OUT_PLAIN, "%llu", (unsigned long long)look->workers);
        out_cellf(table, OUT_PLAIN, "%zu/%zu", peers_up(look), look->peers_n);
        out_cellf(table, OUT_DIM, "%016llx", (unsigned long long)look->view);
    }
    out_table_flush(table);
    out_table_free(table);
}

static void cell_bytes(struct out_table *table, enum out_colour colour, struct mr_slice bytes)
{
    out_cell_bytes(table, colour, bytes.len > 0 ? bytes : MR_SLICE_LIT("-"));
}

static void cell_heard(struct out_table *table, int64_t age_ms)
{
    char heard[48];
    int64_t now_ms = out_now_ms();
    out_relative(now_ms - age_ms, now_ms, heard);
    out_cell(table, OUT_PLAIN, heard);
}

static struct mr_names_server_body body_of(struct status *s, const struct mr_names_entry *entry)
{
    struct mr_names_server_body body = {0};
    if (mr_names_server_body_decode(entry->body, &s->arena, &body) != MR_OK)
        body = (struct mr_names_server_body){0}; /* of another version, or nonsense */
    return body;
}

static void print_servers(struct status *s)
{
    static const struct out_column columns[] = {
        {"SERVER", OUT_LEFT},
        {"ADDRESS", OUT_LEFT},
        {"LOAD", OUT_RIGHT},
        {"WEIGHT", OUT_RIGHT},
        {"SUBAPPS", OUT_RIGHT},
        {"HEARD", OUT_LEFT | OUT_SPARE(2)},
        {"IN THE STORE", OUT_STRETCH | OUT_SPARE(1)},
    };
    struct out_table *table = out_table_new(columns, CLI_LEN(columns));
    for (size_t i = 0; i < s->servers.n; i++) {
        const struct mr_names_entry *entry = &s->servers.at[i];
        struct mr_names_server_body body = body_of(s, entry);
        cell_bytes(table, OUT_BOLD, entry->name);
        cell_bytes(table, OUT_PLAIN, entry->address);
        out_cellf(table, OUT_PLAIN, "%lld", (long long)body.load);
        out_cellf(table, OUT_PLAIN, "%u", body.weight ? body.weight : 100);
        out_cellf(table, OUT_PLAIN, "%u", body.owns);
        cell_heard(table, entry->age_ms);
        cell_bytes(table, OUT_DIM, body.server);
    }
    if (s->servers.n > 0) {
        out_printf("\n");
        out_table_flush(table);
    }
    out_table_free(table);
}

static struct mr_names_worker_body worker_of(const struct mr_names_entry *entry)
{
    struct mr_names_worker_body body = {0};
    if (mr_names_worker_body_decode(entry->body, &body) != MR_OK)
        body = (struct mr_names_worker_body){0};
    return body;
}

static void print_workers(const struct status *s)
{
    static const struct out_column columns[] = {
        {"WORKER", OUT_LEFT},   {"APP", OUT_LEFT},   {"SERVER", OUT_LEFT | OUT_SPARE(2)},
        {"BUSY", OUT_RIGHT},    {"DONE", OUT_RIGHT}, {"AN HOUR", OUT_RIGHT | OUT_SPARE(1)},
        {"HEARD", OUT_STRETCH},
    };
    struct out_table *table = out_table_new(columns, CLI_LEN(columns));
    for (size_t i = 0; i < s->workers.n; i++) {
        const struct mr_names_entry *entry = &s->workers.at[i];
        struct mr_names_worker_body body = worker_of(entry);
        cell_bytes(table, OUT_BOLD, entry->name);
        cell_bytes(table, OUT_PLAIN, entry->app);
        cell_bytes(table, OUT_PLAIN, entry->server);
        out_cellf(table, OUT_PLAIN, "%u/%u", body.busy, body.slots);
        out_cellf(table, OUT_PLAIN, "%llu", (unsigned long long)body.done);
        out_cellf(table, OUT_PLAIN, "%lld", (long long)body.in_hour);
        cell_heard(table, entry->age_ms);
    }
    if (s->workers.n > 0) {
        out_printf("\n");
        out_table_flush(table);
    }
    out_table_free(table);
}

/* Where no server told how apps are cut, it is at least known who works for them. */
static void print_apps(const struct status *s)
{
    static const struct out_column columns[] = {{"APP", OUT_LEFT}, {"WORKERS", OUT_RIGHT}};
    const struct mr_names_look *look = &s->asked[s->first].look;
    struct out_table *table = out_table_new(columns, CLI_LEN(columns));
    for (size_t i = 0; i < look->apps_n; i++) {
        cell_bytes(table, OUT_BOLD, look->apps[i].name);
        out_cellf(table, OUT_PLAIN, "%zu", look->apps[i].workers);
    }
    if (look->apps_n > 0) {
        out_printf("\n");
        out_table_flush(table);
    }
    out_table_free(table);
}

static void print_all(struct status *s)
{
    print_nameservers(s);
    print_servers(s);
    print_apps(s);
    print_workers(s);
    if (s->plan) {
        plan_print_parts(s->plan);
        plan_print_moves(s->plan);
    }
}

/* ---- JSON ------------------------------------------------------------------------------------- */

static void nameserver_json(struct jw *jw, const char *address, const struct asked *asked)
{
    const struct mr_names_look *look = &asked->look;
    char view[24];
    jw_object_begin(jw, NULL);
    jw_text(jw, "address", address);
    jw_bool(jw, "answers", asked->err == MR_OK);
    if (asked->err != MR_OK) {
        jw_text(jw, "error", asked->why.text);
        jw_object_end(jw);
        return;
    }
    snprintf(view, sizeof view, "%016llx", (unsigned long long)look->view);
    jw_bool(jw, "complete", look->complete);
    jw_uint(jw, "servers", look->servers);
    jw_uint(jw, "workers", look->workers);
    jw_uint(jw, "graves", look->graves);
    jw_uint(jw, "expired", look->expired);
    jw_uint(jw, "left", look->left);
    jw_uint(jw, "refused", look->refused);
    jw_uint(jw, "stalls", look->stalls);
    jw_text(jw, "view", view);
    jw_array_begin(jw, "peers");
    for (size_t i = 0; i < look->peers_n; i++) {
        jw_object_begin(jw, NULL);
        jw_bytes(jw, "address", look->peers[i].address);
        jw_bool(jw, "up", look->peers[i].is_up);
        jw_object_end(jw);
    }
    jw_array_end(jw);
    jw_object_end(jw);
}

static void server_json(struct jw *jw, struct status *s, const struct mr_names_entry *entry)
{
    struct mr_names_server_body body = body_of(s, entry);
    jw_object_begin(jw, NULL);
    jw_bytes(jw, "server", entry->name);
    jw_bytes(jw, "address", entry->address);
    jw_uint(jw, "incarnation", entry->incarnation);
    jw_bytes(jw, "store_name", body.server);
    jw_int(jw, "load", body.load);
    jw_uint(jw, "weight", body.weight ? body.weight : 100);
    jw_uint(jw, "subapps", body.owns);
    jw_int(jw, "age_ms", entry->age_ms);
    jw_object_end(jw);
}

static void worker_json(struct jw *jw, const struct mr_names_entry *entry)
{
    struct mr_names_worker_body body = worker_of(entry);
    jw_object_begin(jw, NULL);
    jw_bytes(jw, "worker", entry->name);
    jw_bytes(jw, "app", entry->app);
    jw_bytes(jw, "address", entry->address);
    jw_bytes(jw, "server", entry->server);
    jw_uint(jw, "incarnation", entry->incarnation);
    jw_uint(jw, "concurrency", body.slots);
    jw_uint(jw, "busy", body.busy);
    jw_uint(jw, "done", body.done);
    jw_int(jw, "an_hour", body.in_hour);
    jw_int(jw, "age_ms", entry->age_ms);
    jw_object_end(jw);
}

static void lists_json(struct jw *jw, struct status *s)
{
    const struct mr_names_look *look = &s->asked[s->first].look;
    jw_array_begin(jw, "servers");
    for (size_t i = 0; i < s->servers.n; i++)
        server_json(jw, s, &s->servers.at[i]);
    jw_array_end(jw);
    jw_array_begin(jw, "apps");
    for (size_t i = 0; i < look->apps_n; i++) {
        jw_object_begin(jw, NULL);
        jw_bytes(jw, "app", look->apps[i].name);
        jw_uint(jw, "workers", look->apps[i].workers);
        jw_object_end(jw);
    }
    jw_array_end(jw);
    if (!s->args->workers.given)
        return;
    jw_array_begin(jw, "workers");
    for (size_t i = 0; i < s->workers.n; i++)
        worker_json(jw, &s->workers.at[i]);
    jw_array_end(jw);
}

static void print_json(struct status *s)
{
    struct jw jw = {0};
    jw_object_begin(&jw, NULL);
    jw_array_begin(&jw, "nameservers");
    for (size_t i = 0; i < s->names.n; i++)
        nameserver_json(&jw, s->names.addresses[i], &s->asked[i]);
    jw_array_end(&jw);
    lists_json(&jw, s);
    if (s->plan)
        servers_plan_json(&jw, s->plan);
    jw_object_end(&jw);
    jw_finish(&jw);
}

/* ---- the command ------------------------------------------------------------------------------ */

static void tell_missing(const struct status *s)
{
    for (size_t i = 0; i < s->names.n; i++)
        if (s->asked[i].err != MR_OK)
            cli_note(s->cli, "%s: %s", s->names.addresses[i], s->asked[i].why.text);
    if (s->plan == NULL)
        cli_note(s->cli, "no subApps and moves: %s", s->plan_why.text);
}

static int gather(struct status *s)
{
    const char *name = "--broker", *list = s->list;
    if (!list)
        list = cli_names_given(&s->args->nameserver, &name);
    int code = cli_names_read(s->cli, name, list ? list : NAMES_DEFAULT, &s->names);
    if (code == CLI_OK)
        code = cli_names_identify(s->cli, &s->names);
    if (code == CLI_OK)
        code = ask_all(s);
    if (code == CLI_OK)
        code = ask_list(s, MR_NAMES_SERVER, &s->servers);
    if (code == CLI_OK && s->args->workers.given)
        code = ask_list(s, MR_NAMES_WORKER, &s->workers);
    if (code == CLI_OK)
        ask_servers(s);
    return code;
}

static void status_free(struct status *s)
{
    for (size_t i = 0; i < s->names.n; i++)
        mr_buf_done(&s->asked[i].bytes);
    plan_free(s->plan);
    free(s->servers.at);
    free(s->workers.at);
    mr_arena_done(&s->arena);
    cli_names_done(&s->names);
    free(s);
}

static int show_once(struct cli *cli, void *args)
{
    struct status *s = cli_alloc(1, sizeof *s);
    s->cli = cli;
    s->args = args;
    int code = gather(s);
    if (code == CLI_OK && cli->json)
        print_json(s);
    else if (code == CLI_OK)
        print_all(s);
    if (code == CLI_OK)
        tell_missing(s);
    status_free(s);
    return code;
}

int names_plan(struct cli *cli, plan_shown **ret_plan)
{
    static const struct names_status_args none;
    struct status *s = cli_alloc(1, sizeof *s);
    s->cli = cli;
    s->args = &none;
    s->list = cli->broker;
    int code = gather(s);
    if (code == CLI_OK && s->plan == NULL)
        code = cli_fail(CLI_UNREACHABLE, "cannot list the servers: %s", s->plan_why.text);
    *ret_plan = s->plan;
    s->plan = NULL;
    status_free(s);
    return code;
}

int names_status(struct cli *cli, void *args)
{
    const struct names_status_args *given = args;
    return watch_run(cli, &given->watch, show_once, args);
}
