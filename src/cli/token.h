/* SPDX-License-Identifier: Apache-2.0 */
/* Where tokens are kept, as `millrace token` sees it: in a folder, or at a server. */
#ifndef MR_CLI_TOKEN_H
#define MR_CLI_TOKEN_H

#include "api/tokens.h"
#include "cli/cli.h"

struct token_place {
    const struct cli *cli;
    const char *dir; /* of a folder; NULL: the server behind cli->broker */
};

/* Each answers 0, or the exit code after saying why not. */
struct token_ops {
    int (*create)(const struct token_place *place, const struct mr_token *wanted,
                  struct mr_token *ret_token, char ret_text[MR_TOKEN_TEXT_LEN + 1]);
    /* The list is to be freed. */
    int (*list)(const struct token_place *place, struct mr_token **ret_list, size_t *ret_n);
    int (*revoke)(const struct token_place *place, const char *id);
};

extern const struct token_ops token_folder, token_server;

#endif
