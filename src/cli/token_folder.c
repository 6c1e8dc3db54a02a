/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens of a folder that no server has open. */
#include "cli/token.h"

struct opened {
    struct mr_file *lock;
    struct mr_tokens *tokens;
};

static void close_folder(struct opened *opened)
{
    mr_tokens_free(opened->tokens);
    mr_file_close(opened->lock);
}

static int check_folder(const struct token_place *place, bool may_create)
{
    enum mr_err err = cli_look_at_folder(place->dir);
    if (err == MR_NOT_FOUND && !may_create)
        return cli_fail(CLI_NOT_FOUND, "no store at %s; millrace token create makes one",
                        place->dir);
    if (err == MR_INVALID)
        return cli_usage(place->cli, "%s is not a folder", place->dir);
    return CLI_OK; /* what follows tells what else is wrong */
}

/* The lock of the store, so that no server starts or runs meanwhile. */
static int lock_folder(const struct token_place *place, struct opened *opened)
{
    struct mr_fs *fs = mr_fs_system();
    char path[MR_PATH_MAX];
    long pid = 0;
    enum mr_err err = fs->ops->dir_make(fs, place->dir);
    if (err == MR_OK)
        err = mr_path_join(path, place->dir, "lock");
    if (err == MR_OK)
        err = fs->ops->lock(fs, path, &opened->lock, &pid);
    if (err == MR_IN_USE)
        return cli_fail(CLI_UNREACHABLE,
                        "%s is in use by process %ld; a server takes tokens through itself: leave "
                        "--data out, or give --broker millrace://HOST:PORT",
                        place->dir, pid);
    return err == MR_OK ? CLI_OK : cli_fail_err(err, "cannot use %s", place->dir);
}

static int open_folder(const struct token_place *place, bool may_create, struct opened *opened)
{
    struct mr_detail detail = {0};
    *opened = (struct opened){0};
    int code = check_folder(place, may_create);
    if (code == CLI_OK)
        code = lock_folder(place, opened);
    if (code != CLI_OK)
        return code;
    enum mr_err err = mr_tokens_open(place->dir, NULL, &opened->tokens, &detail);
    if (err == MR_OK)
        return CLI_OK;
    close_folder(opened);
    return cli_fail_detail(err, "cannot read the tokens in", place->dir, &detail);
}

static int create(const struct token_place *place, const struct mr_token *wanted,
                  struct mr_token *ret_token, char ret_text[MR_TOKEN_TEXT_LEN + 1])
{
    struct opened opened;
    struct mr_detail detail = {0};
    int code = open_folder(place, true, &opened);
    if (code != CLI_OK)
        return code;
    enum mr_err err = mr_tokens_create(opened.tokens, wanted, ret_token, ret_text, &detail);
    if (err != MR_OK)
        code = cli_fail_detail(err, "cannot make a token in", place->dir, &detail);
    close_folder(&opened);
    return code;
}

/* Looking needs no lock, and makes no folder. */
static int list(const struct token_place *place, struct mr_token **ret_list, size_t *ret_n)
{
    struct mr_tokens *tokens;
    struct mr_detail detail = {0};
    int code = check_folder(place, false);
    if (code != CLI_OK)
        return code;
    enum mr_err err = mr_tokens_open(place->dir, NULL, &tokens, &detail);
    if (err == MR_OK) {
        err = mr_tokens_list(tokens, ret_list, ret_n);
        mr_tokens_free(tokens);
    }
    if (err != MR_OK)
        return cli_fail_detail(err, "cannot read the tokens in", place->dir, &detail);
    return CLI_OK;
}

static int revoke(const struct token_place *place, const char *id)
{
    struct opened opened;
    struct mr_detail detail = {0};
    int code = open_folder(place, false, &opened);
    if (code != CLI_OK)
        return code;
    enum mr_err err = mr_tokens_revoke(opened.tokens, id, &detail);
    if (err != MR_OK)
        code = cli_fail_detail(err, "cannot revoke a token in", place->dir, &detail);
    close_folder(&opened);
    return code;
}

const struct token_ops token_folder = {create, list, revoke};
