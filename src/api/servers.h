/* SPDX-License-Identifier: Apache-2.0 */
/* Who shares the store, how apps are cut and what moved: made of what the store and the registry say, for gRPC (servers.c) and for
 * HTTP (http_servers.c), and written as JSON, for commands too. */
#ifndef MR_API_SERVERS_H
#define MR_API_SERVERS_H

#include "api/internal.h"
#include "millrace/v1/nodes.pb-c.h"
#include "timer/plan_view.h"
#include "wire/jw.h"

struct servers_asked {
    struct mr_arena *arena; /* of the answer */
    const struct mr_token *token;
    const struct mr_plan_look *look;
    /* As in struct mr_api_options. */
    enum mr_err (*view)(struct mr_arena *arena, struct mr_view *ret_view, void *arg);
    void *view_arg;
};

MR_MUST_USE enum mr_err servers_answer(const struct servers_asked *asked,
                                       Millrace__V1__ServersResponse *ret_answer);

/* ---- servers_json.c: fields of an object that is open ----------------------------------------- */

void servers_list_json(struct jw *jw, const Millrace__V1__ServersResponse *answer);
void servers_apps_json(struct jw *jw, const Millrace__V1__ServersResponse *answer);
/* The planner, subApps and moves. */
void servers_plan_json(struct jw *jw, const Millrace__V1__ServersResponse *answer);

#endif
