/* SPDX-License-Identifier: Apache-2.0 */
/* Streams to the other nameservers. See service.h. */
#include <stdlib.h>

#include "base/diag.h"
#include "names/service_internal.h"

static void peer_message(struct mr_call *call, struct mr_slice bytes)
{
    struct peer *peer = mr_call_data(call);
    enum mr_err err = names_hear(peer->names, call, bytes);
    if (err != MR_INVALID && err != MR_TOO_BIG)
        return;
    mr_diag(MR_DIAG_WARN, "names.peer", "address=%s error=%s", peer->address, mr_err_name(err));
    mr_call_cancel(call);
}

static void peer_closed(struct mr_call *call, int status, struct mr_slice text)
{
    struct peer *peer = mr_call_data(call);
    if (peer->call == call)
        peer->call = NULL;
    if (status != MR_RPC_CANCELLED && status != MR_RPC_UNAVAILABLE)
        mr_diag(MR_DIAG_WARN, "names.peer", "address=%s status=%d text=\"%.*s\"", peer->address,
                status, (int)text.len, (const char *)text.data);
}

static const struct mr_call_ops peer_ops = {.message = peer_message, .closed = peer_closed};

static enum mr_err say_digest(const struct mr_names_msg *msg, void *arg)
{
    struct peer *peer = arg;
    return names_say(peer->names, peer->call, msg);
}

void peer_look(struct peer *peer)
{
    if (!peer->is_up || peer->call != NULL || peer->names->stopped)
        return;
    struct mr_call *call;
    if (mr_channel_call(peer->channel, NAMES_EXCHANGE, 0, &peer_ops, peer, &call) != MR_OK)
        return;
    peer->call = call;
    enum mr_err err = mr_registry_digest(peer->names->registry, say_digest, peer);
    if (err != MR_OK)
        mr_diag(MR_DIAG_DEBUG, "names.digest", "address=%s error=%s", peer->address,
                mr_err_name(err));
}

/* Not a stream at once: of a connection that was made a moment ago its calls are made by the loop. */
static void peer_changed(struct mr_channel *channel, bool up, const char *why, void *arg)
{
    struct peer *peer = arg;
    (void)channel;
    if (up != peer->is_up)
        mr_diag(MR_DIAG_INFO, "names.peer", "address=%s %s=\"%s\"", peer->address,
                up ? "up" : "down", why);
    peer->is_up = up;
}

enum mr_err peer_open(struct peer *peer, struct mr_names *names, const char *address,
                      struct mr_detail *detail)
{
    *peer = (struct peer){.names = names, .address = strdup(address)};
    if (peer->address == NULL)
        return MR_NOMEM;
    struct mr_channel_options options = {.address = peer->address,
                                         .haste = MR_CHANNEL_EAGER,
                                         .tls = names->options.tls,
                                         .authorization = names->options.authorization,
                                         .changed = peer_changed,
                                         .arg = peer};
    return mr_channel_new(names->options.rpc, &options, &peer->channel, detail);
}

void peer_close(struct peer *peer)
{
    mr_channel_free(peer->channel);
    peer->channel = NULL;
    peer->is_up = false;
}
