/* SPDX-License-Identifier: Apache-2.0 */
/* The servers that share a store, how their apps are cut, and what moved: what Nodes.Servers answers, for people. As JSON: api/servers.h. */
#ifndef MR_CLI_PLAN_SHOW_H
#define MR_CLI_PLAN_SHOW_H

#include "cli/cli.h"
#include "cli/jw.h"
#include "cli/out.h"
#include "millrace/v1/nodes.pb-c.h"

#define PLAN_PATH "/millrace.v1.Nodes/Servers"

typedef Millrace__V1__ServersResponse plan_shown;

/* NULL: it is no such answer. */
plan_shown *plan_read(struct mr_slice bytes);
void plan_free(plan_shown *plan); /* NULL is fine */

/* Tables, each with a line above it unless there is nothing in it; before what moved, why nothing does. */
void plan_print_parts(const plan_shown *plan);
void plan_print_moves(const plan_shown *plan);

/* nameserver_status.c: asks a server that the nameservers of cli->broker know. 0, or the exit code after saying why not. */
int names_plan(struct cli *cli, plan_shown **ret_plan);

/* node list --servers: asks the server behind cli->broker. The exit code. */
int plan_show_servers(struct cli *cli);

#endif
