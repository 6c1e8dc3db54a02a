/* SPDX-License-Identifier: Apache-2.0 */
/* A process and the nameservers: see client.h. */
#include "names/client.h"

#include <stdlib.h>

#include "base/diag.h"
#include "base/list.h"
#include "base/net.h"
#include "base/rand.h"
#include "names/client_internal.h"

enum {
    LOOK_MS = 100,
    RETRY_MS = 500,  /* after a registration that failed */
    LEAVE_MS = 1000, /* for the good-bye */
};

/* ---- whom to ask ------------------------------------------------------------------------------ */

size_t names_client_pick(struct mr_names_client *client)
{
    for (size_t i = 0; i < client->nameservers_n; i++) {
        size_t at = (client->current + i) % client->nameservers_n;
        if (client->nameservers[at].is_up) {
            client->current = at;
            return at;
        }
    }
    return NAMES_NOBODY;
}

void names_client_pass_over(struct mr_names_client *client, size_t nameserver)
{
    if (nameserver != client->current)
        return;
    client->current = (client->current + 1) % client->nameservers_n;
    if (names_client_pick(client) == nameserver) /* there is no other */
        return;
    for (size_t i = 0; i < MR_NAMES_KIND_COUNT; i++) {
        struct known_list *list = &client->lists[i];
        if (list->call != NULL && list->asked == nameserver)
            mr_call_cancel(list->call);
    }
}

/* ---- what people are told ---------------------------------------------------------------------- */

/* Who has to register and cannot is not seen by anybody: so it says so, once for each reason. */
static void tell_trouble(struct mr_names_client *client, size_t nameserver, int status,
                         struct mr_slice text)
{
    char shown[256];
    if (status == client->told || client->entry.name.len == 0 || status == MR_RPC_CANCELLED)
        return;
    client->told = status;
    mr_diag(MR_DIAG_WARN, "names.register", "nameserver=%s status=%d text=\"%s\" trying again",
            client->nameservers[nameserver].address, status,
            mr_diag_escape(text, shown, sizeof shown));
}

void names_client_note(struct mr_names_client *client, size_t nameserver, int status,
                       struct mr_slice text)
{
    if (status == MR_RPC_DENIED || status == MR_RPC_UNAUTHENTICATED)
        mr_detail_set(&client->refusal, "%s: %.*s", client->nameservers[nameserver].address,
                      (int)text.len, (const char *)text.data);
    else if (status == MR_RPC_OK)
        client->refusal.text[0] = '\0';
}

static void tell_done(struct mr_names_client *client, size_t nameserver)
{
    if (client->told != MR_RPC_OK)
        mr_diag(MR_DIAG_INFO, "names.register", "nameserver=%s registered",
                client->nameservers[nameserver].address);
    client->told = MR_RPC_OK;
    client->tried = (mr_mono){0};
}

/* Nobody can be asked: when that lasts. */
static void tell_nobody(struct mr_names_client *client, mr_mono now)
{
    if (client->tried.ns == 0)
        client->tried = now;
    if (now.ns - client->tried.ns >= MR_NAMES_ANSWER_MS * MR_NS_PER_MS)
        tell_trouble(client, client->current, MR_RPC_UNAVAILABLE,
                     mr_slice_str("no nameserver can be reached"));
}

/* ---- registrations ---------------------------------------------------------------------------- */

static int64_t register_ms(const struct mr_names_client *client)
{
    return client->options.register_ms > 0         ? client->options.register_ms
           : client->entry.kind == MR_NAMES_SERVER ? MR_NAMES_SERVER_MS
                                                   : MR_NAMES_WORKER_MS;
}

static void say_good_bye(struct mr_names_client *client);

static void register_message(struct mr_call *call, struct mr_slice bytes)
{
    struct mr_names_client *client = mr_call_data(call);
    struct mr_names_registered answer;
    client->has_answer = mr_names_registered_decode(bytes, &answer) == MR_OK;
}

static void register_closed(struct mr_call *call, int status, struct mr_slice text)
{
    struct mr_names_client *client = mr_call_data(call);
    mr_mono now = mr_rpc_now(client->options.rpc);
    client->registering = NULL;
    if (client->leaving) {
        say_good_bye(client);
        return;
    }
    client->nameservers[client->asked].is_done = true;
    names_client_note(client, client->asked, status, text);
    if (status == MR_RPC_OK && client->has_answer) {
        client->heard = now;
        tell_done(client, client->asked);
        return;
    }
    tell_trouble(client, client->asked, status != MR_RPC_OK ? status : MR_RPC_UNKNOWN, text);
    client->next = mr_mono_add_ms(now, RETRY_MS);
    if (client->options.is_brief)
        client->current = (client->asked + 1) % client->nameservers_n;
    else
        names_client_pass_over(client, client->asked);
}

static const struct mr_call_ops register_ops = {.message = register_message,
                                                .closed = register_closed};

/* What is said has a version of its own each time, also when it is said again: whoever got the one before and did not
 * answer does no harm. */
static enum mr_err encode(struct mr_names_client *client)
{
    struct mr_buf body = {0};
    enum mr_err err = MR_OK;
    client->entry.version++;
    client->entry.fate = client->leaving ? MR_NAMES_LEFT : MR_NAMES_LIVES;
    if (client->options.body != NULL && !client->leaving)
        err = client->options.body(&body, client->options.arg);
    client->entry.body = mr_buf_slice(&body);
    mr_buf_clear(&client->buf);
    if (err == MR_OK)
        err = mr_names_entry_encode(&client->entry, &client->buf);
    client->entry.body = (struct mr_slice){0};
    mr_buf_done(&body);
    return err;
}

static bool say(struct mr_names_client *client, int64_t deadline_ms)
{
    size_t whom = names_client_pick(client);
    if (whom == NAMES_NOBODY)
        tell_nobody(client, mr_rpc_now(client->options.rpc));
    if (whom == NAMES_NOBODY || client->registering != NULL || encode(client) != MR_OK)
        return false;
    client->asked = whom;
    client->has_answer = false;
    if (mr_channel_call(client->nameservers[whom].channel, "/millrace.v1.Names/Register",
                        deadline_ms, &register_ops, client, &client->registering) != MR_OK)
        return false;
    enum mr_err err = mr_call_send(client->registering, mr_buf_slice(&client->buf));
    if (err == MR_OK)
        mr_call_half_close(client->registering);
    else
        mr_call_cancel(client->registering);
    return true;
}

/* Once; behind a registration that was under way. */
static void say_good_bye(struct mr_names_client *client)
{
    bool is_known = client->entry.name.len > 0 && client->entry.version > 0;
    bool was_said = client->has_left;
    client->has_left = true;
    if (was_said || !is_known || !say(client, LEAVE_MS))
        mr_event_set(&client->left);
}

/* ---- connections for a moment ----------------------------------------------------------------- */

static enum mr_err open_channel(struct mr_names_client *client, size_t which,
                                struct mr_detail *detail);

static void close_channel(struct nameserver *nameserver)
{
    mr_channel_free(nameserver->channel);
    nameserver->channel = NULL;
    nameserver->is_up = nameserver->is_done = false;
}

static void connect_now(struct mr_names_client *client, mr_mono now)
{
    struct nameserver *nameserver = &client->nameservers[client->current];
    nameserver->until = mr_mono_add_ms(now, MR_NAMES_ANSWER_MS);
    if (open_channel(client, client->current, NULL) != MR_OK)
        client->next = mr_mono_add_ms(now, RETRY_MS);
}

/* Connects when it is time, says what there is to say once it can, and closes. */
static void look_briefly(struct mr_names_client *client, mr_mono now)
{
    struct nameserver *nameserver = &client->nameservers[client->current];
    for (size_t i = 0; client->registering == NULL && i < client->nameservers_n; i++)
        if (client->nameservers[i].is_done)
            close_channel(&client->nameservers[i]);
    if (client->registering != NULL || client->entry.name.len == 0 || now.ns < client->next.ns)
        return;
    if (nameserver->channel == NULL) {
        connect_now(client, now);
    } else if (nameserver->is_up) {
        if (say(client, MR_NAMES_ANSWER_MS))
            client->next = mr_mono_add_ms(now, register_ms(client));
    } else if (now.ns >= nameserver->until.ns) {
        tell_nobody(client, now);
        close_channel(nameserver);
        client->current = (client->current + 1) % client->nameservers_n;
    }
}

static void look(struct mr_timer *timer, void *arg)
{
    struct mr_names_client *client = mr_container(timer, struct mr_names_client, timer);
    mr_mono now = mr_rpc_now(arg);
    bool is_brief = client->options.is_brief;
    bool is_due = !is_brief && client->entry.name.len > 0 && now.ns >= client->next.ns;
    if (is_brief)
        look_briefly(client, now);
    if (is_due && say(client, MR_NAMES_ANSWER_MS))
        client->next = mr_mono_add_ms(now, register_ms(client));
    for (size_t i = 0; i < MR_NAMES_KIND_COUNT; i++)
        known_list_look(&client->lists[i], now);
    names_client_look(client, now);
    mr_rpc_timer_start(arg, timer, mr_mono_add_ms(now, LOOK_MS));
}

/* ---- life ------------------------------------------------------------------------------------- */

struct order {
    struct mr_msg msg;
    struct mr_names_client *client;
    struct mr_event done;
};

static void give_order(struct mr_names_client *client,
                       void (*deliver)(struct mr_msg *msg, void *receiver))
{
    struct order order = {.msg.deliver = deliver, .client = client};
    mr_event_init(&order.done);
    mr_rpc_post(client->options.rpc, &order.msg);
    mr_event_wait(&order.done, INT64_MAX);
}

static void begin(struct mr_msg *msg, void *receiver)
{
    struct order *order = mr_container(msg, struct order, msg);
    look(&order->client->timer, receiver);
    mr_event_set(&order->done);
}

/* There is something to say good-bye for, and nobody to say it to. */
static bool must_connect(const struct mr_names_client *client)
{
    return client->options.is_brief && client->entry.version > 0 &&
           client->nameservers[client->current].channel == NULL;
}

static void leave(struct mr_msg *msg, void *receiver)
{
    struct order *order = mr_container(msg, struct order, msg);
    struct mr_names_client *client = order->client;
    client->stopped = client->leaving = true;
    mr_rpc_timer_stop(receiver, &client->timer);
    if (client->registering != NULL)
        mr_call_cancel(client->registering);
    else if (must_connect(client))
        connect_now(client, mr_rpc_now(receiver)); /* and then it is said */
    else
        say_good_bye(client);
    mr_event_set(&order->done);
}

/* Whatever ends now, nothing more is said. */
static void give_up(struct mr_msg *msg, void *receiver)
{
    struct order *order = mr_container(msg, struct order, msg);
    (void)receiver;
    order->client->has_left = true;
    mr_event_set(&order->done);
}

static void changed(struct mr_channel *channel, bool up, const char *why, void *arg)
{
    struct nameserver *nameserver = arg;
    struct mr_names_client *client = nameserver->client;
    (void)channel, (void)why;
    nameserver->is_up = up;
    if (!client->options.is_brief)
        return;
    if (client->leaving && client->registering == NULL && !client->has_left)
        say_good_bye(client); /* if not now, then not at all */
    else if (!up)
        nameserver->until = (mr_mono){0}; /* nobody is there */
}

static enum mr_err copy_texts(struct mr_names_client *client)
{
    const struct mr_names_client_options *options = &client->options;
    struct mr_names_entry *e = &client->entry;
    *e = options->entry;
    e->version = 0;
    e->body = (struct mr_slice){0};
    MR_TRY(mr_arena_copy(&client->texts, options->entry.name, &e->name));
    MR_TRY(mr_arena_copy(&client->texts, options->entry.app, &e->app));
    MR_TRY(mr_arena_copy(&client->texts, options->entry.address, &e->address));
    MR_TRY(mr_arena_copy(&client->texts, options->entry.server, &e->server));
    return mr_arena_copy(&client->texts, options->workers_of, &client->workers_of);
}

static enum mr_err open_channel(struct mr_names_client *client, size_t which,
                                struct mr_detail *detail)
{
    const struct mr_names_client_options *options = &client->options;
    struct nameserver *nameserver = &client->nameservers[which];
    struct mr_channel_options channel = {.address = nameserver->address,
                                         .tls = options->tls,
                                         .authorization = options->authorization,
                                         .changed = changed,
                                         .arg = nameserver};
    return mr_channel_new(options->rpc, &channel, &nameserver->channel, detail);
}

static enum mr_err open_channels(struct mr_names_client *client, struct mr_detail *detail)
{
    const struct mr_names_client_options *options = &client->options;
    for (size_t i = 0; i < options->nameservers_n; i++) {
        struct nameserver *nameserver = &client->nameservers[client->nameservers_n++];
        struct mr_slice address = mr_slice_str(options->nameservers[i]);
        char host[MR_HOST_MAX + 1];
        uint16_t port;
        nameserver->client = client;
        MR_TRY(mr_arena_copy(&client->texts, address, &address));
        nameserver->address = address.data;
        if (!options->is_brief)
            MR_TRY(open_channel(client, i, detail));
        else
            MR_TRY(mr_host_parse(nameserver->address, host, &port));
    }
    return MR_OK;
}

static void client_destroy(struct mr_names_client *client)
{
    for (size_t i = 0; i < client->nameservers_n; i++)
        mr_channel_free(client->nameservers[i].channel);
    for (size_t i = 0; i < MR_NAMES_KIND_COUNT; i++)
        known_list_done(&client->lists[i]);
    mr_arena_done(&client->texts);
    mr_buf_done(&client->buf);
    free(client);
}

static void init(struct mr_names_client *client, const struct mr_names_client_options *options)
{
    client->options = *options;
    mr_timer_init(&client->timer, look);
    mr_event_init(&client->left);
    for (size_t i = 0; i < MR_NAMES_KIND_COUNT; i++)
        client->lists[i] = (struct known_list){
            .client = client, .kind = (enum mr_names_kind)i, .is_wanted = !options->is_brief};
    if (options->workers_of.len == 0)
        client->lists[MR_NAMES_WORKER].is_wanted = false;
    client->current = mr_rand_below(mr_rand_of_thread(), options->nameservers_n);
}

enum mr_err mr_names_client_new(const struct mr_names_client_options *options,
                                struct mr_names_client **ret_client, struct mr_detail *detail)
{
    if (options->nameservers_n == 0 || options->nameservers_n > MR_NAMESERVERS_MAX) {
        mr_detail_set(detail, "%zu nameservers: 1 to %d are possible", options->nameservers_n,
                      MR_NAMESERVERS_MAX);
        return MR_INVALID;
    }
    struct mr_names_client *client = calloc(1, sizeof *client);
    if (client == NULL)
        return MR_NOMEM;
    init(client, options);
    enum mr_err err = copy_texts(client);
    if (err == MR_OK)
        err = open_channels(client, detail);
    client->options.nameservers = NULL; /* the caller's */
    if (err != MR_OK) {
        client_destroy(client);
        return err;
    }
    give_order(client, begin);
    *ret_client = client;
    return MR_OK;
}

void mr_names_client_free(struct mr_names_client *client)
{
    if (client == NULL)
        return;
    give_order(client, leave);
    mr_event_wait(&client->left, 2 * LEAVE_MS * MR_NS_PER_MS);
    give_order(client, give_up);
    client_destroy(client);
}

const struct mr_names_entry *mr_names_client_list(struct mr_names_client *client,
                                                  enum mr_names_kind kind, size_t *ret_n)
{
    *ret_n = client->lists[kind].n;
    return client->lists[kind].entries;
}

bool mr_names_client_complete(const struct mr_names_client *client, enum mr_names_kind kind)
{
    return client->lists[kind].is_complete;
}

struct asking {
    struct order order;
    enum mr_err err;
    struct mr_detail *detail;
};

static void look_for_trouble(struct mr_msg *msg, void *receiver)
{
    struct order *order = mr_container(msg, struct order, msg);
    struct asking *asking = mr_container(order, struct asking, order);
    const struct mr_names_client *client = order->client;
    (void)receiver;
    asking->err = client->refusal.text[0] != '\0' ? MR_DENIED
                  : client->heard.ns == 0         ? MR_UNAVAILABLE
                                                  : MR_OK;
    if (asking->err != MR_OK)
        mr_detail_set(asking->detail, "%s",
                      asking->err == MR_DENIED ? client->refusal.text : "no nameserver answers");
    mr_event_set(&order->done);
}

enum mr_err mr_names_client_trouble(struct mr_names_client *client, struct mr_detail *detail)
{
    struct asking asking = {.order = {.msg.deliver = look_for_trouble, .client = client},
                            .detail = detail};
    mr_event_init(&asking.order.done);
    mr_rpc_post(client->options.rpc, &asking.order.msg);
    mr_event_wait(&asking.order.done, INT64_MAX);
    return asking.err;
}
