/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server and its nameservers: it registers with its load, and passes on what it hears, to the planner of its timers and to whoever asks
 * for the servers. Without --nameserver there is none of it.
 */
#ifndef MR_CLI_SERVE_NAMES_H
#define MR_CLI_SERVE_NAMES_H

#include "base/net.h"
#include "cli/settings.h"
#include "timer/plan_view.h"

struct mr_rpc;
struct serve_names;

/* Of the plan: whether what is said of nameservers can be. 0, or the exit code. */
int serve_names_plan(const struct cli *cli, const struct settings *settings);

/* Reads the token; says and hears nothing yet. *ret_names stays NULL without --nameserver. 0, or the exit code after saying why
 * not. */
int serve_names_new(const struct cli *cli, const struct settings *settings,
                    struct serve_names **ret_names);

struct serve_names_options {
    struct mr_rpc *rpc; /* outlives it, as what follows */
    struct mr_timer_service *timers;
    struct mr_addr grpc;            /* where it listens */
    bool is_secure;                 /* with TLS */
    const _Atomic uint64_t *handed; /* tasks that workers have got from here, ever */
};
/* From now on it is registered. 0, or the exit code after saying why not. NULL is fine, as below. */
int serve_names_open(struct serve_names *names, const struct serve_names_options *options);
/* Says good-bye; from now on nothing is heard. Before the rpc is freed. Thread: any but the loop. */
void serve_names_leave(struct serve_names *names);
void serve_names_free(struct serve_names *names);

/* For mr_api_options, with the names as arg: a copy of what was last heard. Thread: any. */
MR_MUST_USE enum mr_err serve_names_view(struct mr_arena *arena, struct mr_view *ret_view,
                                         void *arg);

#endif
