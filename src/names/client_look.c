/* SPDX-License-Identifier: Apache-2.0 */
/* What the nameserver shows of itself, asked for again and again. See client.h. */
#include "names/client_internal.h"

enum { RETRY_MS = 500 };

/* NULL: nobody has answered. */
static void tell(struct mr_names_client *client, const struct mr_names_look *look)
{
    if (!client->stopped)
        client->options.looked(client, look, client->options.arg);
}

static void look_message(struct mr_call *call, struct mr_slice bytes)
{
    struct mr_names_client *client = mr_call_data(call);
    struct mr_arena arena = {0};
    struct mr_names_look look;
    if (!client->has_look && mr_names_look_decode(bytes, &arena, &look) == MR_OK) {
        client->has_look = true;
        tell(client, &look);
    }
    mr_arena_done(&arena);
}

static void look_closed(struct mr_call *call, int status, struct mr_slice text)
{
    struct mr_names_client *client = mr_call_data(call);
    mr_mono now = mr_rpc_now(client->options.rpc);
    (void)text;
    client->looking = NULL;
    if (client->stopped)
        return;
    if (status == MR_RPC_OK && client->has_look) {
        client->heard = now;
        return;
    }
    tell(client, NULL);
    client->next_look = mr_mono_add_ms(now, RETRY_MS);
    names_client_pass_over(client, client->look_asked);
}

static const struct mr_call_ops look_ops = {.message = look_message, .closed = look_closed};

void names_client_look(struct mr_names_client *client, mr_mono now)
{
    if (client->options.looked == NULL || client->looking != NULL || now.ns < client->next_look.ns)
        return;
    int64_t every = client->options.look_ms > 0 ? client->options.look_ms : MR_NAMES_LOOK_MS;
    size_t whom = names_client_pick(client);
    client->next_look = mr_mono_add_ms(now, every);
    client->has_look = false;
    if (whom == NAMES_NOBODY ||
        mr_channel_call(client->nameservers[whom].channel, "/millrace.v1.Names/Look",
                        MR_NAMES_ANSWER_MS, &look_ops, client, &client->looking) != MR_OK) {
        tell(client, NULL);
        return;
    }
    client->look_asked = whom;
    enum mr_err err = mr_call_send(client->looking, MR_SLICE_LIT(""));
    if (err == MR_OK)
        mr_call_half_close(client->looking);
    else
        mr_call_cancel(client->looking);
}
