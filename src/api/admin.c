/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens, for admins. They are few and their changes are rare, so the store is called right here,
 * disk and all. */
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
    if (mr_access_all_queues(&u->token))
        return true;
    unary_fail(u, MR_DENIED, "token %s is for queues %s, and tokens are for every queue",
               u->token.id, u->token.queue);
    return false;
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

void tokens_create(struct unary *u)
{
    const Millrace__V1__TokenCreateRequest *in = (const void *)u->message;
    Millrace__V1__TokenCreateResponse out = MILLRACE__V1__TOKEN_CREATE_RESPONSE__INIT;
    Millrace__V1__Token row;
    Millrace__V1__PriorityLimit limit;
    struct mr_token wanted = {.role = (enum mr_role)in->role, .quota = in->quota}, made;
    struct mr_detail detail = {.text = ""};
    char text[MR_TOKEN_TEXT_LEN + 1];
    struct mr_tokens *tokens = store_of(u);
    if (tokens == NULL || !may_manage(u))
        return;
    if (strlen(in->queue) > MR_NAME_MAX) {
        unary_fail(u, MR_TOO_BIG, "queue: %zu bytes, the limit is %d", strlen(in->queue),
                   MR_NAME_MAX);
        return;
    }
    snprintf(wanted.queue, sizeof wanted.queue, "%s", in->queue);
    wanted.priority_limited = in->priority != NULL;
    wanted.priority_max_s = in->priority != NULL ? in->priority->max : 0;
    enum mr_err err = mr_tokens_create(tokens, &wanted, &made, text, &detail);
    if (err != MR_OK) {
        unary_fail(u, err, "%s", detail.text[0] != '\0' ? detail.text : mr_err_text(err));
        return;
    }
    u->about = mr_slice_str(made.id);
    of_token(&made, &row, &limit);
    out.token = &row;
    out.text = text;
    unary_send(u, &out.base);
}

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

void tokens_revoke(struct unary *u)
{
    const Millrace__V1__TokenRevokeRequest *in = (const void *)u->message;
    Millrace__V1__Empty out = MILLRACE__V1__EMPTY__INIT;
    struct mr_detail detail = {.text = ""};
    struct mr_tokens *tokens = store_of(u);
    if (tokens == NULL || !may_manage(u))
        return;
    u->about = mr_pb_text(in->id);
    enum mr_err err = mr_tokens_revoke(tokens, in->id, &detail);
    if (err != MR_OK)
        unary_fail(u, err, "%s", detail.text[0] != '\0' ? detail.text : mr_err_text(err));
    else
        unary_send(u, &out.base);
}
