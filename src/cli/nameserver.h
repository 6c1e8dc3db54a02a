/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of `millrace nameserver` share. */
#ifndef MR_CLI_NAMESERVER_H
#define MR_CLI_NAMESERVER_H

#include <stdatomic.h>

#include "cli/cli.h"
#include "http/http.h"
#include "names/service.h"

/* ---- nameserver_health.c ---------------------------------------------------------------------- */

/* Whether it takes calls. Thread: any. */
struct names_health {
    _Atomic bool is_ready;
};

/* /livez and /readyz, with a struct names_health as arg. */
extern const struct mr_http_route names_routes[];
extern const size_t names_routes_n;

enum { NAMES_METHODS_MAX = 16 };
/* The methods of a nameserver and the standard health service, for mr_rpc_listen with the names as arg. */
const struct mr_rpc_method *names_methods(size_t *ret_n);

/* ---- nameserver_status.c ---------------------------------------------------------------------- */

struct names_status_args {
    struct cli_value nameserver, workers, watch;
};
cli_run names_status;

#endif
