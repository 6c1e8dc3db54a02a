/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens at a running server. */
#include <stdlib.h>

#include "cli/server.h"
#include "cli/token.h"
#include "millrace/v1/tokens.pb-c.h"

/* Packs the request, calls, and gives the bytes of the answer. */
static int call(const struct token_place *place, const char *what, const char *path,
                const ProtobufCMessage *request, struct mr_buf *ret_answer)
{
    struct mr_buf bytes = {0};
    cli_must(mr_buf_reserve(&bytes, protobuf_c_message_get_packed_size(request)));
    bytes.len = protobuf_c_message_pack(request, bytes.data);
    int code = cli_call(place->cli, what, path, mr_buf_slice(&bytes), ret_answer);
    mr_buf_done(&bytes);
    return code;
}

static int fail_answer(const struct token_place *place)
{
    return cli_fail(CLI_FAILED, "%s answered something else than a server of this version",
                    place->cli->shown);
}

static bool read_token(const Millrace__V1__Token *in, struct mr_token *ret_token)
{
    if (!in || strlen(in->id) > MR_TOKEN_ID_LEN || strlen(in->queue) > MR_NAME_MAX)
        return false;
    *ret_token = (struct mr_token){
        .role = (enum mr_role)in->role,
        .priority_limited = in->priority != NULL,
        .priority_max_s = in->priority ? in->priority->max : 0,
        .quota = in->quota,
        .used = in->used,
        .created_ms = in->created_ms,
        .revoked_ms = in->revoked_ms,
    };
    snprintf(ret_token->id, sizeof ret_token->id, "%s", in->id);
    snprintf(ret_token->queue, sizeof ret_token->queue, "%s", in->queue);
    return true;
}

static int create(const struct token_place *place, const struct mr_token *wanted,
                  struct mr_token *ret_token, char ret_text[MR_TOKEN_TEXT_LEN + 1])
{
    Millrace__V1__TokenCreateRequest request = MILLRACE__V1__TOKEN_CREATE_REQUEST__INIT;
    Millrace__V1__PriorityLimit limit = MILLRACE__V1__PRIORITY_LIMIT__INIT;
    struct mr_buf answer = {0};
    limit.max = wanted->priority_max_s;
    request.role = (Millrace__V1__Role)wanted->role;
    request.queue = (char *)(uintptr_t)wanted->queue;
    request.priority = wanted->priority_limited ? &limit : NULL;
    request.quota = wanted->quota;
    int code =
        call(place, "cannot make a token at", "/millrace.v1.Tokens/Create", &request.base, &answer);
    if (code == CLI_OK) {
        Millrace__V1__TokenCreateResponse *made =
            millrace__v1__token_create_response__unpack(NULL, answer.len, answer.data);
        if (made && strlen(made->text) <= MR_TOKEN_TEXT_LEN && read_token(made->token, ret_token))
            snprintf(ret_text, MR_TOKEN_TEXT_LEN + 1, "%s", made->text);
        else
            code = fail_answer(place);
        millrace__v1__token_create_response__free_unpacked(made, NULL);
    }
    mr_buf_done(&answer);
    return code;
}

static int list(const struct token_place *place, struct mr_token **ret_list, size_t *ret_n)
{
    Millrace__V1__TokenListRequest request = MILLRACE__V1__TOKEN_LIST_REQUEST__INIT;
    struct mr_buf answer = {0};
    int code = call(place, "cannot list the tokens of", "/millrace.v1.Tokens/List", &request.base,
                    &answer);
    if (code == CLI_OK) {
        Millrace__V1__TokenListResponse *all =
            millrace__v1__token_list_response__unpack(NULL, answer.len, answer.data);
        size_t n = all ? all->n_tokens : 0;
        struct mr_token *tokens = cli_alloc(n, sizeof *tokens);
        bool good = all != NULL;
        for (size_t i = 0; good && i < n; i++)
            good = read_token(all->tokens[i], &tokens[i]);
        millrace__v1__token_list_response__free_unpacked(all, NULL);
        if (good) {
            *ret_list = tokens;
            *ret_n = n;
        } else {
            free(tokens);
            code = fail_answer(place);
        }
    }
    mr_buf_done(&answer);
    return code;
}

static int revoke(const struct token_place *place, const char *id)
{
    Millrace__V1__TokenRevokeRequest request = MILLRACE__V1__TOKEN_REVOKE_REQUEST__INIT;
    struct mr_buf answer = {0};
    request.id = (char *)(uintptr_t)id;
    int code = call(place, "cannot revoke a token at", "/millrace.v1.Tokens/Revoke", &request.base,
                    &answer);
    mr_buf_done(&answer);
    return code;
}

const struct token_ops token_server = {create, list, revoke};
