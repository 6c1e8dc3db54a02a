/* SPDX-License-Identifier: Apache-2.0 */
/* --replicas 1: who keeps copies of the operations on timers that this server accepts, and for whom it keeps some. */
#include <stdlib.h>

#include "base/text.h"
#include "cli/serve.h"
#include "cli/server.h"

static bool is_shared(const struct serve_plan *plan)
{
    return strncmp(plan->store, "postgres", strlen("postgres")) == 0;
}

/* Calls each for the addresses of "H:P,H:P"; false: it did, or one is too long. */
static bool each_peer(const char *text, bool (*each)(const char *address, void *arg), void *arg)
{
    for (;;) {
        char address[MR_REPLICA_WHERE_MAX + 1];
        size_t len = strcspn(text, ",");
        if (len >= sizeof address)
            return false;
        memcpy(address, text, len);
        address[len] = '\0';
        if (!each(address, arg))
            return false;
        if (text[len] == '\0')
            return true;
        text += len + 1;
    }
}

static bool check_peer(const char *address, void *arg)
{
    char host[MR_HOST_MAX + 1];
    uint16_t port;
    size_t *n = arg;
    return mr_host_parse(address, host, &port) == MR_OK && port != 0 &&
           ++*n <= MR_REPLICA_PEERS_MAX;
}

static int plan_peers(const struct cli *cli, const struct settings *settings)
{
    char name[SETTINGS_NAME_MAX];
    size_t n = 0;
    if (!settings->replica_peer.given)
        return CLI_OK;
    settings_name(settings, &settings->replica_peer, name);
    if (!each_peer(settings->replica_peer.text, check_peer, &n))
        return cli_usage(cli, "%s: \"%.200s\" is no list of HOST:PORT,... (at most %d)", name,
                         settings->replica_peer.text, MR_REPLICA_PEERS_MAX);
    return CLI_OK;
}

/* The others are like this one: they have TLS if it has. They know its token as an admin's. */
static int identify(const struct cli *cli, const struct settings *settings, struct serve_plan *plan)
{
    struct mr_buf token = {0};
    plan->replica_tls = (struct mr_rpc_tls){
        .ca_file = settings->replica_ca.given ? settings->replica_ca.text : NULL,
        .cert_file = settings->tls_cert.given ? settings->tls_cert.text : NULL,
        .key_file = settings->tls_key.given ? settings->tls_key.text : NULL,
    };
    int code = settings->nameserver_token_file.given
                   ? cli_token_read(settings->nameserver_token_file.text, &token)
                   : cli_token_text(cli, &token);
    if (code == CLI_OK && token.len > 0) {
        int len = snprintf(plan->replica_token, sizeof plan->replica_token, "Bearer %s",
                           (const char *)token.data);
        if (len < 0 || (size_t)len >= sizeof plan->replica_token)
            code = cli_usage(cli, "the token is too long");
    }
    mr_buf_done(&token);
    plan->replica = (struct mr_replica_options){
        .tls = settings->tls_cert.given ? &plan->replica_tls : NULL,
        .authorization = plan->replica_token[0] != '\0' ? plan->replica_token : NULL,
    };
    return code;
}

static int plan_files(const struct cli *cli, const struct settings *settings)
{
    const struct cli_value *const values[] = {&settings->replica_peer, &settings->replica_ca};
    char name[SETTINGS_NAME_MAX];
    for (size_t i = 0; settings->replicas.number == 0 && i < CLI_LEN(values); i++)
        if (values[i]->given)
            return cli_usage(cli, "%s needs --replicas 1 beside it",
                             settings_name(settings, values[i], name));
    if (!settings->replica_ca.given)
        return CLI_OK;
    settings_name(settings, &settings->replica_ca, name);
    if (!settings->tls_cert.given)
        return cli_usage(cli, "%s is for servers with TLS: --tls-cert and --tls-key", name);
    return cli_look_at_file(name, settings->replica_ca.text);
}

/* What a replica applies it applies to its own store, which must be the one of the server that is gone. */
int serve_replica_plan(const struct cli *cli, const struct settings *settings,
                       struct serve_plan *plan)
{
    char name[SETTINGS_NAME_MAX];
    plan->keeps_copies = plan->redis == NULL && is_shared(plan);
    plan->is_replicated = settings->replicas.number > 0;
    settings_name(settings, &settings->replicas, name);
    if (plan->is_replicated && plan->redis != NULL)
        return cli_usage(cli, "%s is for tasks in a folder; a Redis has --wait-replicas", name);
    if (plan->is_replicated && !is_shared(plan))
        return cli_usage(cli, "%s needs a store that the servers share: --store postgres://...",
                         name);
    int code = plan_files(cli, settings);
    if (code == CLI_OK)
        code = plan_peers(cli, settings);
    return code == CLI_OK && plan->is_replicated ? identify(cli, settings, plan) : code;
}

/* ---- who keeps ours --------------------------------------------------------------------------- */

struct peers {
    const char *addresses[MR_REPLICA_PEERS_MAX];
    size_t n;
};

static bool add_peer(const char *address, void *arg)
{
    struct peers *peers = arg;
    char *copy = strdup(address);
    cli_must(copy != NULL ? MR_OK : MR_NOMEM);
    peers->addresses[peers->n++] = copy;
    return peers->n < MR_REPLICA_PEERS_MAX;
}

void serve_replica_start(const struct settings *settings, struct mr_timer_service *timers)
{
    struct peers peers = {.n = 0};
    if (!settings->replica_peer.given)
        return;
    (void)each_peer(settings->replica_peer.text, add_peer, &peers);
    mr_timer_service_set_peers(timers, peers.addresses, peers.n);
    for (size_t i = 0; i < peers.n; i++)
        free((char *)peers.addresses[i]);
}

static int compare(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* In a ring by address, so that each server keeps copies of about one other. */
void serve_replica_peers(struct mr_timer_service *timers, const char *own,
                         const char *const *addresses, size_t n)
{
    const char **all = cli_alloc(n + 1, sizeof *all), **ring = cli_alloc(n + 1, sizeof *ring);
    size_t ring_n = 0;
    memcpy(all, addresses, n * sizeof *all);
    qsort(all, n, sizeof *all, compare);
    for (size_t i = 0; i < n; i++)
        if (strcmp(all[i], own) > 0)
            ring[ring_n++] = all[i];
    for (size_t i = 0; i < n; i++)
        if (strcmp(all[i], own) < 0)
            ring[ring_n++] = all[i];
    mr_timer_service_set_peers(timers, ring, ring_n);
    free(all);
    free(ring);
}
