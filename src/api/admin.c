/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens, for admins. A change waits for the disk, so it is made beside the loop. */
#include <stdio.h>
#include <stdlib.h>

#include "api/internal.h"
#include "millrace/v1/tokens.pb-c.h"

static struct mr_tokens *store_of(struct unary *u)
{
    struct mr_tokens *tokens = u->api->options.access.tokens;
    if (tokens == NULL)
        unary_fail(u, MR_UNSUPPORTED, "this server keeps no tokens");
    return tokens;
}

/* A token for some queues hands out none for others. */
static bool may_manage(struct unary *u)
{
    return unary_may_touch_all(u, ", and tokens are for every queue");
}

static void of_token(const struct mr_token *token, Millrace__V1__Token *out,
                     Millrace__V1__PriorityLimit *limit)
{
    millrace__v1__token__init(out);
    millrace__v1__priority_limit__init(limit);
    limit->max = token->priority_max_s;
    out->id = (char *)(uintptr_t)token->id;
    out->role = (Millrace__V1__Role)token->role;
    out->queue = (char *)(uintptr_t)token->queue;
    out->priority = token->priority_limited ? limit : NULL;
    out->quota = token->quota;
    out->used = token->used;
    out->created_ms = token->created_ms;
    out->revoked_ms = token->revoked_ms;
}

/* ---- changes -------------------------------------------------------------------------------- */

/* On its way to the disk and back. */
struct change {
    struct mr_chore chore;
    struct unary *u;
    struct mr_tokens *tokens;
    struct mr_token token;            /* as wanted, then as made */
    char text[MR_TOKEN_TEXT_LEN + 1]; /* of one that was made */
    struct mr_detail detail;
    enum mr_err err;
    void (*reply)(struct change *change);
};

static void changed(struct mr_chore *chore)
{
    struct change *change = mr_container(chore, struct change, chore);
    struct unary *u = change->u;
    struct mr_api *api = u->api;
    const char *text = change->detail.text;
    api->errands_n--;
    if (change->err == MR_OK)
        change->reply(change);
    else
        unary_fail(u, change->err, "%s", text[0] != '\0' ? text : mr_err_text(change->err));
    explicit_bzero(change->text, sizeof change->text);
    unary_idle(u);
    api_look_quiet(api);
}

/* NULL when it cannot be; the call is ended then. */
static struct change *change_new(struct unary *u, void (*run)(struct mr_chore *chore),
                                 void (*reply)(struct change *change))
{
    struct mr_tokens *tokens = store_of(u);
    if (tokens == NULL || !may_manage(u))
        return NULL;
    struct change *change = mr_arena_calloc(unary_arena(u), 1, sizeof *change);
    if (change == NULL) {
        unary_fail(u, MR_NOMEM, NULL);
        return NULL;
    }
    mr_chore_init(&change->chore, run, changed);
    change->u = u;
    change->tokens = tokens;
    change->reply = reply;
    return change;
}

static void change_submit(struct change *change)
{
    struct unary *u = change->u;
    struct mr_api *api = u->api;
    if (api->slow == NULL && mr_exec_thread_new("mr-tokens", false, mr_rpc_inbox(api->options.rpc),
                                                &api->slow) != MR_OK) {
        unary_fail(u, MR_NOMEM, NULL);
        return;
    }
    u->busy = true;
    api->errands_n++;
    struct mr_exec *exec = mr_exec_thread_exec(api->slow);
    exec->submit(exec, &change->chore);
}

static void run_create(struct mr_chore *chore)
{
    struct change *change = mr_container(chore, struct change, chore);
    const struct mr_token wanted = change->token;
    change->err =
        mr_tokens_create(change->tokens, &wanted, &change->token, change->text, &change->detail);
}

static void reply_created(struct change *change)
{
    Millrace__V1__TokenCreateResponse out = MILLRACE__V1__TOKEN_CREATE_RESPONSE__INIT;
    Millrace__V1__Token row;
    Millrace__V1__PriorityLimit limit;
    change->u->about = mr_slice_str(change->token.id);
    of_token(&change->token, &row, &limit);
    out.token = &row;
    out.text = change->text;
    unary_send(change->u, &out.base);
}

/* Until it has an id: what it was to be. */
struct mr_slice tokens_about_new(struct unary *u)
{
    const Millrace__V1__TokenCreateRequest *in = (const void *)u->message;
    enum { ROOM = MR_NAME_MAX + 64 };
    char *text = mr_arena_alloc(unary_arena(u), ROOM);
    if (text == NULL)
        return (struct mr_slice){0};
    int len = snprintf(text, ROOM, "%s for %.*s", mr_role_name((enum mr_role)in->role), MR_NAME_MAX,
                       in->queue[0] != '\0' ? in->queue : "*");
    return mr_slice_make(text, (size_t)len);
}

void tokens_create(struct unary *u)
{
    const Millrace__V1__TokenCreateRequest *in = (const void *)u->message;
    struct change *change = change_new(u, run_create, reply_created);
    if (change == NULL)
        return;
    if (strlen(in->queue) > MR_NAME_MAX) {
        unary_fail(u, MR_TOO_BIG, "queue: %zu bytes, the limit is %d", strlen(in->queue),
                   MR_NAME_MAX);
        return;
    }
    change->token.role = (enum mr_role)in->role;
    change->token.quota = in->quota;
    snprintf(change->token.queue, sizeof change->token.queue, "%s", in->queue);
    change->token.priority_limited = in->priority != NULL;
    change->token.priority_max_s = in->priority != NULL ? in->priority->max : 0;
    change_submit(change);
}

static void run_revoke(struct mr_chore *chore)
{
    struct change *change = mr_container(chore, struct change, chore);
    const Millrace__V1__TokenRevokeRequest *in = (const void *)change->u->message;
    change->err = mr_tokens_revoke(change->tokens, in->id, &change->detail);
}

static void reply_revoked(struct change *change)
{
    Millrace__V1__Empty out = MILLRACE__V1__EMPTY__INIT;
    unary_send(change->u, &out.base);
}

void tokens_revoke(struct unary *u)
{
    struct change *change = change_new(u, run_revoke, reply_revoked);
    if (change != NULL)
        change_submit(change);
}

/* ---- looking -------------------------------------------------------------------------------- */

void tokens_list(struct unary *u)
{
    Millrace__V1__TokenListResponse out = MILLRACE__V1__TOKEN_LIST_RESPONSE__INIT;
    struct mr_arena *arena = unary_arena(u);
    struct mr_tokens *tokens = store_of(u);
    struct mr_token *list;
    size_t n;
    if (tokens == NULL || !may_manage(u))
        return;
    if (mr_tokens_list(tokens, &list, &n) != MR_OK) {
        unary_fail(u, MR_NOMEM, NULL);
        return;
    }
    Millrace__V1__Token *rows = mr_arena_calloc(arena, n + 1, sizeof *rows);
    Millrace__V1__PriorityLimit *limits = mr_arena_calloc(arena, n + 1, sizeof *limits);
    out.tokens = mr_arena_calloc(arena, n + 1, sizeof *out.tokens);
    if (rows == NULL || limits == NULL || out.tokens == NULL) {
        unary_fail(u, MR_NOMEM, NULL);
    } else {
        for (out.n_tokens = 0; out.n_tokens < n; out.n_tokens++) {
            of_token(&list[out.n_tokens], &rows[out.n_tokens], &limits[out.n_tokens]);
            out.tokens[out.n_tokens] = &rows[out.n_tokens];
        }
        unary_send(u, &out.base);
    }
    free(list);
}
