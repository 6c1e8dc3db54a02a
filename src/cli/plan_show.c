/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/plan_show.h"

#include "api/servers.h"
#include "cli/server.h"

plan_shown *plan_read(struct mr_slice bytes)
{
    return millrace__v1__servers_response__unpack(NULL, bytes.len, bytes.data);
}

void plan_free(plan_shown *plan)
{
    if (plan)
        millrace__v1__servers_response__free_unpacked(plan, NULL);
}

/* ---- tables ----------------------------------------------------------------------------------- */

static void cell_text(struct out_table *table, enum out_colour colour, const char *text)
{
    out_cell_bytes(table, colour, mr_slice_str(text[0] ? text : "-"));
}

static void table_end(struct out_table *table)
{
    out_table_flush(table);
    out_table_free(table);
}

static void plan_print_servers(const plan_shown *plan)
{
    static const struct out_column columns[] = {
        {"SERVER", OUT_LEFT},
        {"STATE", OUT_LEFT | OUT_SPARE(1)},
        {"SUBAPPS", OUT_RIGHT},
        {"LOAD", OUT_RIGHT},
        {"WEIGHT", OUT_RIGHT | OUT_SPARE(3)},
        {"APPS", OUT_STRETCH | OUT_SPARE(2)},
    };
    struct out_table *table = out_table_new(columns, CLI_LEN(columns));
    for (size_t i = 0; i < plan->n_servers; i++) {
        const Millrace__V1__ServerInfo *row = plan->servers[i];
        size_t owns = 0;
        for (size_t k = 0; k < plan->n_parts; k++)
            owns += strcmp(plan->parts[k]->owner, row->server) == 0;
        bool plans = strcmp(plan->planner, row->server) == 0;
        bool silent = plan->has_view && !row->is_registered;
        cell_text(table, OUT_BOLD, row->server);
        out_cellf(table, silent ? OUT_YELLOW : OUT_GREEN, "%s%s",
                  silent ? "not registered" : "live", plans ? ", plans" : "");
        out_cellf(table, OUT_PLAIN, "%zu", owns);
        if (plan->has_view)
            out_cellf(table, OUT_PLAIN, "%lld", (long long)row->load);
        else
            out_cell(table, OUT_PLAIN, "-");
        out_cellf(table, OUT_PLAIN, "%u", row->weight ? row->weight : 100);
        struct mr_buf apps = {0};
        for (size_t k = 0; k < row->n_apps; k++)
            cli_must(mr_buf_printf(&apps, "%s%s", k ? " " : "", row->apps[k]));
        out_cell_bytes(table, OUT_PLAIN, apps.len > 0 ? mr_buf_slice(&apps) : MR_SLICE_LIT("all"));
        mr_buf_done(&apps);
    }
    if (plan->n_servers > 0)
        table_end(table);
    else
        out_table_free(table);
}

static uint64_t workers_of(const plan_shown *plan, const char *app)
{
    for (size_t i = 0; i < plan->n_apps; i++)
        if (strcmp(plan->apps[i]->app, app) == 0)
            return plan->apps[i]->workers;
    return 0;
}

static unsigned slots_of(const Millrace__V1__SubAppInfo *part)
{
    return (unsigned)__builtin_popcountll(part->slots);
}

void plan_print_parts(const plan_shown *plan)
{
    static const struct out_column columns[] = {
        {"APP", OUT_LEFT},
        {"WORKERS", OUT_RIGHT | OUT_SPARE(2)},
        {"SUBAPP", OUT_RIGHT},
        {"SLOTS", OUT_RIGHT | OUT_SPARE(1)},
        {"LOAD", OUT_RIGHT | OUT_SPARE(3)},
        {"EPOCH", OUT_RIGHT | OUT_SPARE(4)},
        {"OWNER", OUT_STRETCH},
    };
    struct out_table *table = out_table_new(columns, CLI_LEN(columns));
    for (size_t i = 0; i < plan->n_parts; i++) {
        const Millrace__V1__SubAppInfo *row = plan->parts[i];
        cell_text(table, OUT_BOLD, row->app);
        if (plan->has_view)
            out_cellf(table, OUT_PLAIN, "%llu", (unsigned long long)workers_of(plan, row->app));
        else
            out_cell(table, OUT_PLAIN, "-");
        if (row->is_cut)
            out_cellf(table, OUT_PLAIN, "%u", row->part);
        else
            out_cell(table, OUT_PLAIN, "-");
        out_cellf(table, OUT_PLAIN, "%u", slots_of(row));
        out_cellf(table, OUT_PLAIN, "%lld", (long long)row->load);
        out_cellf(table, OUT_PLAIN, "%llu", (unsigned long long)row->epoch);
        cell_text(table, row->owner[0] ? OUT_PLAIN : OUT_YELLOW,
                  row->owner[0] ? row->owner : "nobody");
    }
    if (plan->n_parts > 0) {
        out_printf("\n");
        out_table_flush(table);
    }
    out_table_free(table);
}

void plan_print_moves(const plan_shown *plan)
{
    static const struct out_column columns[] = {
        {"MOVED", OUT_LEFT}, {"APP", OUT_LEFT}, {"SUBAPP", OUT_RIGHT},
        {"FROM", OUT_LEFT},  {"TO", OUT_LEFT},  {"WHY", OUT_STRETCH},
    };
    struct out_table *table = out_table_new(columns, CLI_LEN(columns));
    int64_t now_ms = out_now_ms();
    if (plan->balance[0])
        out_printf("\nbalance: %s\n", plan->balance);
    for (size_t i = 0; i < plan->n_moves; i++) {
        const Millrace__V1__Move *row = plan->moves[i];
        char when[48];
        out_relative(row->at_ms, now_ms, when);
        out_cell(table, OUT_PLAIN, when);
        cell_text(table, OUT_BOLD, row->app);
        out_cellf(table, OUT_PLAIN, "%u", row->part);
        cell_text(table, OUT_PLAIN, row->from);
        cell_text(table, OUT_PLAIN, row->to);
        cell_text(table, OUT_PLAIN, row->reason);
    }
    if (plan->n_moves > 0) {
        out_printf("\n");
        out_table_flush(table);
    }
    out_table_free(table);
}

/* ---- node list --servers ---------------------------------------------------------------------- */

static int ask_server(struct cli *cli, plan_shown **ret_plan)
{
    struct mr_buf answer = {0};
    int code =
        cli_call_any(cli, "cannot list the servers of", PLAN_PATH, MR_SLICE_LIT(""), &answer);
    if (code == CLI_OK)
        *ret_plan = plan_read(mr_buf_slice(&answer));
    mr_buf_done(&answer);
    if (code == CLI_OK && !*ret_plan)
        code = cli_fail(CLI_FAILED, "%s answered something else than a server of this version",
                        cli->shown);
    return code;
}

int plan_show_servers(struct cli *cli)
{
    plan_shown *plan = NULL;
    if (!cli_is_server(cli->broker) && !cli_is_names(cli->broker))
        return cli_usage(cli, "--servers: asks a server, millrace://HOST:PORT, not %.200s",
                         cli->shown);
    int code = cli_is_names(cli->broker) ? names_plan(cli, &plan) : ask_server(cli, &plan);
    if (code != CLI_OK)
        return code;
    if (cli->json) {
        struct jw jw = {0};
        jw_object_begin(&jw, NULL);
        servers_list_json(&jw, plan);
        servers_apps_json(&jw, plan);
        servers_plan_json(&jw, plan);
        jw_object_end(&jw);
        jw_finish(&jw);
    } else {
        plan_print_servers(plan);
        plan_print_parts(plan);
        plan_print_moves(plan);
    }
    plan_free(plan);
    return CLI_OK;
}
