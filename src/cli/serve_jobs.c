/* SPDX-License-Identifier: Apache-2.0 */
/* The jobs of a server: from settings to a service that runs. */
#include <unistd.h>

#include "broker/embedded/embedded.h"
#include "cli/serve.h"

void serve_node(char node[SERVE_NODE_MAX])
{
    char host[MR_HOST_MAX + 1] = "";
    (void)gethostname(host, sizeof host - 1);
    snprintf(node, SERVE_NODE_MAX, "%s:%ld", host, (long)getpid());
}

int serve_jobs_open(const struct settings *settings, const struct serve_plan *plan,
                    struct mr_broker *broker, struct mr_store *store,
                    struct mr_job_service **ret_service)
{
    struct mr_detail detail = {0};
    char node[SERVE_NODE_MAX];
    serve_node(node);
    struct mr_job_service_options options = {
        .broker = broker,
        .store = store,
        .node = node,
        .gate = plan->keeps_copies ? mr_embedded_gate(broker) : NULL,
        .payload_max = (size_t)settings->payload_max.number,
        .settings = {.window = (uint32_t)settings->job_window.number,
                     .segment_parts = (uint32_t)settings->job_segment.number,
                     .retention_ms = settings->job_retention.number,
                     .commands = settings->job_commands.given},
    };
    enum mr_err err = mr_job_service_open(&options, ret_service, &detail);
    return err == MR_OK ? CLI_OK : cli_fail_detail(err, "cannot start", "the jobs", &detail);
}
