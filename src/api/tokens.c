/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens in memory, ordered by id. A change is written first and then takes the place of what was
 * there, so that memory never says what the disk does not (quotas apart, which are spent in memory
 * and written later). Changes wait for each other and for the disk; whoever only looks or spends
 * waits for neither.
 */
#include "api/tokens.h"

#include <math.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <openssl/sha.h>
#include <stdlib.h>

#include "api/tokens_file.h"
#include "base/chan.h"
#include "base/text.h"

#define PREFIX "mr_"

struct mr_tokens {
    struct mr_fs *fs;
    char dir[MR_PATH_MAX];
    _Atomic uint64_t generation;
    struct mr_lock writing; /* for the file; held while the disk works */
    struct mr_lock lock;    /* for what follows; taken within the other, and held but briefly */
    struct mr_token *list;
    size_t n;
    bool dirty; /* a quota was spent since the last copy that was written */
};

static const char *const role_names[MR_ROLE_COUNT] = {
    [MR_ROLE_NONE] = "none",     [MR_ROLE_ADMIN] = "admin",   [MR_ROLE_PRODUCER] = "producer",
    [MR_ROLE_WORKER] = "worker", [MR_ROLE_VIEWER] = "viewer",
};

const char *mr_role_name(enum mr_role role)
{
    return role_names[role < MR_ROLE_COUNT ? role : MR_ROLE_NONE];
}

enum mr_role mr_role_parse(struct mr_slice name)
{
    for (enum mr_role role = MR_ROLE_ADMIN; role < MR_ROLE_COUNT; role++)
        if (mr_slice_equal(name, mr_slice_str(role_names[role])))
            return role;
    return MR_ROLE_NONE;
}

/* ---- the list ------------------------------------------------------------------------------- */

static int compare_ids(const void *a, const void *b)
{
    return strcmp(((const struct mr_token *)a)->id, ((const struct mr_token *)b)->id);
}

static int compare_ages(const void *a, const void *b)
{
    const struct mr_token *x = a, *y = b;
    if (x->created_ms != y->created_ms)
        return x->created_ms < y->created_ms ? -1 : 1;
    return compare_ids(a, b);
}

static struct mr_token *find_in(struct mr_token *list, size_t n, const char *id)
{
    struct mr_token key = {0};
    if (strlen(id) != MR_TOKEN_ID_LEN || n == 0)
        return NULL;
    memcpy(key.id, id, MR_TOKEN_ID_LEN);
    return bsearch(&key, list, n, sizeof key, compare_ids);
}

/* With the lock held. */
static struct mr_token *find(const struct mr_tokens *tokens, const char *id)
{
    return find_in(tokens->list, tokens->n, id);
}

/* With the lock held. */
static void put_in_force(struct mr_tokens *tokens, struct mr_token *take_list, size_t n)
{
    free(tokens->list);
    tokens->list = take_list;
    tokens->n = n;
    atomic_fetch_add(&tokens->generation, 1);
}

/* A copy with room for one more, as it is to be written. */
static struct mr_token *copy_list(struct mr_tokens *tokens, size_t *ret_n)
{
    mr_lock_enter(&tokens->lock);
    struct mr_token *list = calloc(tokens->n + 1, sizeof *list);
    if (list && tokens->n > 0)
        memcpy(list, tokens->list, tokens->n * sizeof *list);
    *ret_n = tokens->n;
    mr_lock_leave(&tokens->lock);
    return list;
}

/* What was spent since the copy was made. With the lock held. */
static void keep_spent(const struct mr_tokens *tokens, struct mr_token *list, size_t n)
{
    for (size_t i = 0; i < tokens->n; i++) {
        struct mr_token *token = find_in(list, n, tokens->list[i].id);
        if (token)
            token->used = tokens->list[i].used;
    }
}

/* Writes the list, then puts it in force; frees it on failure. While writing. */
static enum mr_err change(struct mr_tokens *tokens, struct mr_token *take_list, size_t n,
                          struct mr_detail *detail)
{
    enum mr_err err = tokens_file_write(tokens->fs, tokens->dir, take_list, n, detail);
    if (err != MR_OK) {
        free(take_list);
        return err;
    }
    mr_lock_enter(&tokens->lock);
    keep_spent(tokens, take_list, n);
    put_in_force(tokens, take_list, n);
    mr_lock_leave(&tokens->lock);
    return MR_OK;
}

enum mr_err mr_tokens_open(const char *dir, struct mr_fs *fs, struct mr_tokens **ret_tokens,
                           struct mr_detail *detail)
{
    if (strlen(dir) >= MR_PATH_MAX)
        return MR_TOO_BIG;
    struct mr_tokens *tokens = calloc(1, sizeof *tokens);
    if (!tokens)
        return MR_NOMEM;
    tokens->fs = fs ? fs : mr_fs_system();
    memcpy(tokens->dir, dir, strlen(dir) + 1);
    mr_lock_init(&tokens->writing);
    mr_lock_init(&tokens->lock);
    enum mr_err err = mr_tokens_reload(tokens, detail);
    if (err != MR_OK) {
        mr_tokens_free(tokens);
        return err;
    }
    *ret_tokens = tokens;
    return MR_OK;
}

void mr_tokens_free(struct mr_tokens *tokens)
{
    if (!tokens)
        return;
    mr_lock_done(&tokens->writing);
    mr_lock_done(&tokens->lock);
    free(tokens->list);
    free(tokens);
}

enum mr_err mr_tokens_reload(struct mr_tokens *tokens, struct mr_detail *detail)
{
    struct mr_token *list;
    size_t n;
    mr_lock_enter(&tokens->writing);
    enum mr_err err = tokens_file_read(tokens->fs, tokens->dir, &list, &n, detail);
    if (err == MR_OK) {
        if (n > 0)
            qsort(list, n, sizeof *list, compare_ids);
        mr_lock_enter(&tokens->lock);
        put_in_force(tokens, list, n);
        mr_lock_leave(&tokens->lock);
    }
    mr_lock_leave(&tokens->writing);
    return err;
}

/* ---- looking -------------------------------------------------------------------------------- */

static void hash_secret(const char *secret, uint8_t hash[MR_TOKEN_HASH_LEN])
{
    SHA256((const unsigned char *)secret, MR_TOKEN_SECRET_LEN, hash);
}

/* Id and secret of a token's text; false when it has another shape. */
static bool split_text(struct mr_slice text, char id[MR_TOKEN_ID_LEN + 1], const char **ret_secret)
{
    const char *p = text.data;
    if (text.len != MR_TOKEN_TEXT_LEN || memcmp(p, PREFIX, strlen(PREFIX)) != 0)
        return false;
    p += strlen(PREFIX);
    if (p[MR_TOKEN_ID_LEN] != '_' || memchr(p, '\0', MR_TOKEN_ID_LEN))
        return false;
    memcpy(id, p, MR_TOKEN_ID_LEN);
    id[MR_TOKEN_ID_LEN] = '\0';
    *ret_secret = p + MR_TOKEN_ID_LEN + 1;
    return true;
}

enum mr_err mr_tokens_check(struct mr_tokens *tokens, struct mr_slice text,
                            struct mr_token *ret_token, struct mr_detail *detail)
{
    static const struct mr_token nobody;
    char id[MR_TOKEN_ID_LEN + 1];
    const char *secret;
    uint8_t hash[MR_TOKEN_HASH_LEN];
    if (!split_text(text, id, &secret)) {
        mr_detail_set(detail, "not a token: it has the form " PREFIX "ID_SECRET");
        return MR_DENIED;
    }
    hash_secret(secret, hash);
    mr_lock_enter(&tokens->lock);
    const struct mr_token *found = find(tokens, id);
    struct mr_token token = found ? *found : nobody;
    mr_lock_leave(&tokens->lock);
    bool same = CRYPTO_memcmp(token.hash, hash, sizeof hash) == 0;
    if (!found || !same) {
        mr_detail_set(detail, "unknown token");
        return MR_DENIED;
    }
    if (token.revoked_ms != 0) {
        mr_detail_set(detail, "token %s was revoked", token.id);
        return MR_DENIED;
    }
    *ret_token = token;
    return MR_OK;
}

uint64_t mr_tokens_generation(struct mr_tokens *tokens)
{
    return atomic_load(&tokens->generation);
}

bool mr_tokens_valid(struct mr_tokens *tokens, const char *id)
{
    mr_lock_enter(&tokens->lock);
    const struct mr_token *token = find(tokens, id);
    bool valid = token && token->revoked_ms == 0;
    mr_lock_leave(&tokens->lock);
    return valid;
}

size_t mr_tokens_live(struct mr_tokens *tokens)
{
    size_t live = 0;
    mr_lock_enter(&tokens->lock);
    for (size_t i = 0; i < tokens->n; i++)
        live += tokens->list[i].revoked_ms == 0;
    mr_lock_leave(&tokens->lock);
    return live;
}

enum mr_err mr_tokens_list(struct mr_tokens *tokens, struct mr_token **ret_list, size_t *ret_n)
{
    struct mr_token *list = copy_list(tokens, ret_n);
    if (!list)
        return MR_NOMEM;
    qsort(list, *ret_n, sizeof *list, compare_ages);
    *ret_list = list;
    return MR_OK;
}

/* ---- changes -------------------------------------------------------------------------------- */

static enum mr_err check_wanted(const struct mr_token *wanted, struct mr_detail *detail)
{
    if (wanted->role <= MR_ROLE_NONE || wanted->role >= MR_ROLE_COUNT) {
        mr_detail_set(detail, "role: must be admin, producer, worker or viewer");
        return MR_INVALID;
    }
    if (wanted->queue[0] && mr_name_check(mr_slice_str(wanted->queue)) != MR_OK) {
        mr_detail_set(detail,
                      "queue: must be at most %d bytes of UTF-8 without control characters or "
                      "braces; * stands for any text",
                      MR_NAME_MAX);
        return MR_INVALID;
    }
    if (wanted->priority_limited && !isfinite(wanted->priority_max_s)) {
        mr_detail_set(detail, "priority-max: must be a number of seconds");
        return MR_INVALID;
    }
    if (wanted->quota > INT64_MAX) {
        mr_detail_set(detail, "quota: over the limit");
        return MR_INVALID;
    }
    return MR_OK;
}

static enum mr_err random_hex(char *text, size_t digits)
{
    uint8_t bytes[MR_TOKEN_SECRET_LEN / 2];
    mr_assert(digits / 2 <= sizeof bytes);
    if (RAND_bytes(bytes, (int)(digits / 2)) != 1)
        return MR_FAILED;
    for (size_t i = 0; i < digits / 2; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    OPENSSL_cleanse(bytes, sizeof bytes);
    return MR_OK;
}

static enum mr_err make_token(const struct mr_token *wanted, struct mr_token *token,
                              char text[MR_TOKEN_TEXT_LEN + 1])
{
    char secret[MR_TOKEN_SECRET_LEN + 1];
    *token = (struct mr_token){
        .role = wanted->role,
        .priority_limited = wanted->priority_limited,
        .priority_max_s = wanted->priority_limited ? wanted->priority_max_s : 0,
        .quota = wanted->quota,
        .created_ms = mr_wall_ms(mr_wall_now(mr_clock_system())),
    };
    snprintf(token->queue, sizeof token->queue, "%s", wanted->queue[0] ? wanted->queue : "*");
    MR_TRY(random_hex(token->id, MR_TOKEN_ID_LEN));
    MR_TRY(random_hex(secret, MR_TOKEN_SECRET_LEN));
    hash_secret(secret, token->hash);
    snprintf(text, MR_TOKEN_TEXT_LEN + 1, PREFIX "%s_%s", token->id, secret);
    OPENSSL_cleanse(secret, sizeof secret);
    return MR_OK;
}

/* While writing. */
static enum mr_err add(struct mr_tokens *tokens, const struct mr_token *token,
                       struct mr_detail *detail)
{
    size_t n;
    struct mr_token *list = copy_list(tokens, &n);
    enum mr_err err = list ? MR_OK : MR_NOMEM;
    if (list && n == MR_TOKENS_MAX) {
        mr_detail_set(detail, "%s/tokens: holds %d tokens already", tokens->dir, MR_TOKENS_MAX);
        err = MR_TOO_BIG;
    } else if (list && find_in(list, n, token->id)) {
        err = MR_CONFLICT; /* one in 2^48 */
    }
    if (err != MR_OK) {
        free(list);
        return err;
    }
    list[n] = *token;
    qsort(list, n + 1, sizeof *list, compare_ids);
    return change(tokens, list, n + 1, detail);
}

enum mr_err mr_tokens_create(struct mr_tokens *tokens, const struct mr_token *wanted,
                             struct mr_token *ret_token, char ret_text[MR_TOKEN_TEXT_LEN + 1],
                             struct mr_detail *detail)
{
    struct mr_token token;
    char text[MR_TOKEN_TEXT_LEN + 1];
    MR_TRY(check_wanted(wanted, detail));
    MR_TRY(make_token(wanted, &token, text));
    mr_lock_enter(&tokens->writing);
    enum mr_err err = add(tokens, &token, detail);
    mr_lock_leave(&tokens->writing);
    if (err == MR_OK) {
        *ret_token = token;
        memcpy(ret_text, text, sizeof text);
    }
    OPENSSL_cleanse(text, sizeof text);
    return err;
}

/* While writing. */
static enum mr_err revoke(struct mr_tokens *tokens, const char *id, struct mr_detail *detail)
{
    size_t n;
    struct mr_token *list = copy_list(tokens, &n);
    if (!list)
        return MR_NOMEM;
    struct mr_token *token = find_in(list, n, id);
    if (!token || token->revoked_ms != 0) {
        enum mr_err err = token ? MR_OK : MR_NOT_FOUND;
        if (!token)
            mr_detail_set(detail, "no token %.40s", id);
        free(list);
        return err;
    }
    token->revoked_ms = mr_wall_ms(mr_wall_now(mr_clock_system()));
    return change(tokens, list, n, detail);
}

enum mr_err mr_tokens_revoke(struct mr_tokens *tokens, const char *id, struct mr_detail *detail)
{
    mr_lock_enter(&tokens->writing);
    enum mr_err err = revoke(tokens, id, detail);
    mr_lock_leave(&tokens->writing);
    return err;
}

/* ---- quotas --------------------------------------------------------------------------------- */

/* With the lock held. */
static enum mr_err spend(struct mr_tokens *tokens, const char *id, uint64_t n,
                         struct mr_detail *detail)
{
    struct mr_token *token = find(tokens, id);
    if (!token)
        return MR_DENIED;
    if (token->quota == 0)
        return MR_OK;
    uint64_t left = token->used < token->quota ? token->quota - token->used : 0;
    if (n > left) {
        mr_detail_set(detail, "token %s: %llu task%s, %llu left of its quota of %llu", token->id,
                      (unsigned long long)n, mr_plural(n), (unsigned long long)left,
                      (unsigned long long)token->quota);
        return MR_DENIED;
    }
    token->used += n;
    tokens->dirty = true;
    return MR_OK;
}

enum mr_err mr_tokens_spend(struct mr_tokens *tokens, const char *id, uint64_t n,
                            struct mr_detail *detail)
{
    mr_lock_enter(&tokens->lock);
    enum mr_err err = spend(tokens, id, n, detail);
    mr_lock_leave(&tokens->lock);
    return err;
}

void mr_tokens_give_back(struct mr_tokens *tokens, const char *id, uint64_t n)
{
    mr_lock_enter(&tokens->lock);
    struct mr_token *token = find(tokens, id);
    if (token && token->quota > 0) {
        token->used -= n < token->used ? n : token->used;
        tokens->dirty = true;
    }
    mr_lock_leave(&tokens->lock);
}

static bool take_dirty(struct mr_tokens *tokens)
{
    mr_lock_enter(&tokens->lock);
    bool dirty = tokens->dirty;
    tokens->dirty = false;
    mr_lock_leave(&tokens->lock);
    return dirty;
}

/* While writing. */
static enum mr_err flush(struct mr_tokens *tokens)
{
    size_t n;
    if (!take_dirty(tokens))
        return MR_OK;
    struct mr_token *list = copy_list(tokens, &n);
    enum mr_err err = list ? tokens_file_write(tokens->fs, tokens->dir, list, n, NULL) : MR_NOMEM;
    free(list);
    if (err != MR_OK) {
        mr_lock_enter(&tokens->lock);
        tokens->dirty = true;
        mr_lock_leave(&tokens->lock);
    }
    return err;
}

enum mr_err mr_tokens_flush(struct mr_tokens *tokens)
{
    mr_lock_enter(&tokens->writing);
    enum mr_err err = flush(tokens);
    mr_lock_leave(&tokens->writing);
    return err;
}
