/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tokens: who a caller is and what it may do. A token is the text "mr_ID_SECRET", shown once when
 * it is made; kept is the SHA-256 of the secret, in the file DIR/tokens. Every change is on disk
 * before it is answered and in force at once. Thread: any.
 */
#ifndef MR_API_TOKENS_H
#define MR_API_TOKENS_H

#include "base/fs.h"

enum mr_role {
    MR_ROLE_NONE,
    MR_ROLE_ADMIN,
    MR_ROLE_PRODUCER,
    MR_ROLE_WORKER,
    MR_ROLE_VIEWER,
    MR_ROLE_COUNT
};

/* "admin", "producer", "worker", "viewer". */
const char *mr_role_name(enum mr_role role);
/* MR_ROLE_NONE for an unknown name. */
enum mr_role mr_role_parse(struct mr_slice name);

enum {
    MR_TOKENS_MAX = 10000,    /* in one file, revoked ones included */
    MR_TOKEN_ID_LEN = 12,     /* hexadecimal digits */
    MR_TOKEN_SECRET_LEN = 64, /* hexadecimal digits: 256 random bits */
    MR_TOKEN_TEXT_LEN = 3 + MR_TOKEN_ID_LEN + 1 + MR_TOKEN_SECRET_LEN,
    MR_TOKEN_HASH_LEN = 32,
};

struct mr_token {
    char id[MR_TOKEN_ID_LEN + 1];
    enum mr_role role;
    char queue[MR_NAME_MAX + 1]; /* pattern: * stands for any text */
    bool priority_limited;
    double priority_max_s; /* seconds ahead at most, when limited */
    uint64_t quota;        /* tasks it may enqueue in all; 0: no limit */
    uint64_t used;         /* of its quota */
    int64_t created_ms;
    int64_t revoked_ms; /* 0: it is not */
    uint8_t hash[MR_TOKEN_HASH_LEN];
};

struct mr_tokens;

/* dir need not exist yet; without a file there are no tokens. fs NULL: the system's. MR_DAMAGED and
 * MR_VERSION name file and line in detail. */
MR_MUST_USE enum mr_err mr_tokens_open(const char *dir, struct mr_fs *fs,
                                       struct mr_tokens **ret_tokens, struct mr_detail *detail);
/* NULL is fine. */
void mr_tokens_free(struct mr_tokens *tokens);
/* Reads the file again; on failure what was known stays in force. */
MR_MUST_USE enum mr_err mr_tokens_reload(struct mr_tokens *tokens, struct mr_detail *detail);

/* Whose text this is. MR_DENIED when it is nobody's, with what is wrong in detail ("unknown token",
 * "token ID was revoked"), never with the secret. Takes the same time for every wrong secret. */
MR_MUST_USE enum mr_err mr_tokens_check(struct mr_tokens *tokens, struct mr_slice text,
                                        struct mr_token *ret_token, struct mr_detail *detail);
/* Another number after every change: who keeps what it was told looks here first. */
uint64_t mr_tokens_generation(struct mr_tokens *tokens);
/* Whether the token may be used still. */
bool mr_tokens_valid(struct mr_tokens *tokens, const char *id);
/* How many may be used. */
size_t mr_tokens_live(struct mr_tokens *tokens);

/* wanted: role, queue (empty: every one), limits. ret_text: the only time the secret is told.
 * MR_INVALID, MR_TOO_BIG (MR_TOKENS_MAX), and what writing can answer; with detail. */
MR_MUST_USE enum mr_err mr_tokens_create(struct mr_tokens *tokens, const struct mr_token *wanted,
                                         struct mr_token *ret_token,
                                         char ret_text[MR_TOKEN_TEXT_LEN + 1],
                                         struct mr_detail *detail);
/* Fine when it was revoked before. MR_NOT_FOUND. */
MR_MUST_USE enum mr_err mr_tokens_revoke(struct mr_tokens *tokens, const char *id,
                                         struct mr_detail *detail);
/* A copy of all, oldest first, to be freed. */
MR_MUST_USE enum mr_err mr_tokens_list(struct mr_tokens *tokens, struct mr_token **ret_list,
                                       size_t *ret_n);

/* Takes n tasks from the quota, all or none: MR_DENIED. give_back: they were not accepted. What is
 * used up is on disk with the next mr_tokens_flush or change. */
MR_MUST_USE enum mr_err mr_tokens_spend(struct mr_tokens *tokens, const char *id, uint64_t n,
                                        struct mr_detail *detail);
void mr_tokens_give_back(struct mr_tokens *tokens, const char *id, uint64_t n);
MR_MUST_USE enum mr_err mr_tokens_flush(struct mr_tokens *tokens);

#endif
