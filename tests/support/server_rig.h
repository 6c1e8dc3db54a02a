/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server inside the test: a broker, the services on it, a port of this machine. It has threads of
 * its own and is reached over the network like any other.
 */
#ifndef MR_TESTS_SERVER_RIG_H
#define MR_TESTS_SERVER_RIG_H

#include <stdio.h>

#include "api/api.h"

struct server_rig {
    struct mr_broker *broker; /* behind it; not the rig's */
    struct mr_rpc *rpc;
    struct mr_api *api;
    uint16_t port; /* kept over a restart */
    int64_t grace_ms;
    const struct mr_rpc_tls *tls;
    struct mr_access access;
    const char *namespace_;
    struct mr_timer_service *timers; /* NULL: it has none; not the rig's */
    char address[64];
};

static inline enum mr_err server_rig_listen(struct server_rig *rig)
{
    struct mr_rpc_service service = {.address = rig->address, .tls = rig->tls, .arg = rig->api};
    struct mr_detail detail = {.text = ""};
    service.methods = mr_api_methods(&service.methods_n);
    (void)snprintf(rig->address, sizeof rig->address, "127.0.0.1:%u", rig->port);
    enum mr_err err = mr_rpc_listen(rig->rpc, &service, &rig->port, &detail);
    if (err != MR_OK)
        (void)fprintf(stderr, "%s: %s\n", rig->address, detail.text);
    (void)snprintf(rig->address, sizeof rig->address, "127.0.0.1:%u", rig->port);
    return err;
}

static inline enum mr_err server_rig_start(struct server_rig *rig, struct mr_broker *broker)
{
    struct mr_api_options options = {.broker = broker,
                                     .access = rig->access,
                                     .namespace_ = rig->namespace_,
                                     .grace_ms = rig->grace_ms,
                                     .timers = rig->timers};
    rig->broker = broker;
    MR_TRY(mr_rpc_new("server", NULL, &rig->rpc));
    options.rpc = rig->rpc;
    MR_TRY(mr_api_new(&options, &rig->api));
    return server_rig_listen(rig);
}

/* After max_ms everything is cut; the broker is the caller's to close. */
static inline void server_rig_stop(struct server_rig *rig, int64_t max_ms)
{
    if (rig->rpc == NULL)
        return;
    mr_api_stop(rig->api, max_ms);
    mr_rpc_free(rig->rpc);
    mr_api_free(rig->api);
    rig->rpc = NULL;
    rig->api = NULL;
}

#endif
