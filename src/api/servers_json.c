/* SPDX-License-Identifier: Apache-2.0 */
#include "api/servers.h"

void servers_list_json(struct jw *jw, const Millrace__V1__ServersResponse *answer)
{
    jw_array_begin(jw, "servers");
    for (size_t i = 0; i < answer->n_servers; i++) {
        const Millrace__V1__ServerInfo *row = answer->servers[i];
        jw_object_begin(jw, NULL);
        jw_text(jw, "server", row->server);
        jw_bool(jw, "registered", row->is_registered);
        jw_uint(jw, "weight", row->weight ? row->weight : 100);
        jw_int(jw, "load", row->load);
        jw_array_begin(jw, "apps");
        for (size_t k = 0; k < row->n_apps; k++)
            jw_text(jw, NULL, row->apps[k]);
        jw_array_end(jw);
        jw_object_end(jw);
    }
    jw_array_end(jw);
}

static void part_json(struct jw *jw, const Millrace__V1__SubAppInfo *row)
{
    jw_object_begin(jw, NULL);
    jw_text(jw, "app", row->app);
    jw_uint(jw, "subapp", row->part);
    jw_bool(jw, "cut", row->is_cut);
    jw_uint(jw, "slots", (unsigned)__builtin_popcountll(row->slots));
    jw_text(jw, "owner", row->owner);
    jw_uint(jw, "epoch", row->epoch);
    jw_int(jw, "load", row->load);
    jw_object_end(jw);
}

static void move_json(struct jw *jw, const Millrace__V1__Move *row)
{
    jw_object_begin(jw, NULL);
    jw_uint(jw, "number", row->number);
    jw_int(jw, "at_ms", row->at_ms);
    jw_text(jw, "app", row->app);
    jw_uint(jw, "subapp", row->part);
    jw_text(jw, "from", row->from);
    jw_text(jw, "to", row->to);
    jw_text(jw, "reason", row->reason);
    jw_object_end(jw);
}

void servers_plan_json(struct jw *jw, const Millrace__V1__ServersResponse *answer)
{
    jw_text(jw, "planner", answer->planner);
    jw_bool(jw, "view", answer->has_view);
    jw_bool(jw, "complete", answer->is_complete);
    jw_text(jw, "balance", answer->balance);
    jw_array_begin(jw, "subapps");
    for (size_t i = 0; i < answer->n_parts; i++)
        part_json(jw, answer->parts[i]);
    jw_array_end(jw);
    jw_array_begin(jw, "moves");
    for (size_t i = 0; i < answer->n_moves; i++)
        move_json(jw, answer->moves[i]);
    jw_array_end(jw);
}

void servers_apps_json(struct jw *jw, const Millrace__V1__ServersResponse *answer)
{
    jw_array_begin(jw, "apps");
    for (size_t i = 0; i < answer->n_apps; i++) {
        jw_object_begin(jw, NULL);
        jw_text(jw, "app", answer->apps[i]->app);
        jw_uint(jw, "workers", answer->apps[i]->workers);
        jw_object_end(jw);
    }
    jw_array_end(jw);
}
