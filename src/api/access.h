/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who calls, and whether it may. Every method has one row with the roles that may call it; a token
 * also has a pattern of queues, and everything a call touches is held against it.
 */
#ifndef MR_API_ACCESS_H
#define MR_API_ACCESS_H

#include "api/tokens.h"

enum mr_access_mode {
    MR_ACCESS_LOOPBACK, /* callers on this machine need no token; others do */
    MR_ACCESS_TOKENS,   /* everybody needs one */
    MR_ACCESS_OPEN,     /* nobody does */
};

struct mr_access {
    enum mr_access_mode mode;
    struct mr_tokens *tokens; /* NULL: there are none */
};

#define MR_ROLE_BIT(role) (1u << (role))
enum {
    MR_ROLES_ALL = MR_ROLE_BIT(MR_ROLE_ADMIN) | MR_ROLE_BIT(MR_ROLE_PRODUCER) |
                   MR_ROLE_BIT(MR_ROLE_WORKER) | MR_ROLE_BIT(MR_ROLE_VIEWER),
};

/* How a call was refused: what the caller must change. */
enum mr_verdict {
    MR_ALLOWED,
    MR_UNKNOWN_CALLER, /* no token, a wrong or a revoked one */
    MR_NOT_ALLOWED,    /* its role or its queues */
};

/* authorization: what the call carries, "Bearer TOKEN" or nothing. roles: of the method, 0: for
 * everybody. A token that is given counts, also where none is needed. ret_token: who it is; without
 * a token an admin with the id "". detail: why not, in one line. */
MR_MUST_USE enum mr_verdict mr_access_check(const struct mr_access *access,
                                            struct mr_slice authorization, bool is_loopback,
                                            unsigned roles, struct mr_token *ret_token,
                                            struct mr_detail *detail);
/* Whether the token's pattern covers this queue; an empty name is "default". Who may use Q may use Q@NAME: that
 * is for a worker of Q. */
bool mr_access_queue(const struct mr_token *token, struct mr_slice queue);
/* "token T is for queues mail-*, not for bank": why it may not. */
void mr_access_not_covered(const struct mr_token *token, struct mr_slice queue,
                           struct mr_detail *detail);
/* "token T is for queues mail-*", and rest: why it may not do what is of every queue. */
void mr_access_not_all(const struct mr_token *token, const char *rest, struct mr_detail *detail);
/* MR_DENIED: the topic is the server's own, whoever asks. What a task with it leaves counts as the end of a part, of a job
 * of any queue; and who took such results would keep them from their jobs. */
MR_MUST_USE enum mr_err mr_access_topic(struct mr_slice topic, struct mr_detail *detail);
/* Whether the token may enqueue this: its queue, its priority, its topic; and takes one task from its quota, which is given
 * back (mr_tokens_give_back) for what the broker does not accept. MR_DENIED with detail. */
MR_MUST_USE enum mr_err mr_access_enqueue(const struct mr_access *access,
                                          const struct mr_token *token,
                                          const struct mr_task_options *task,
                                          struct mr_detail *detail);
/* Whether it covers every queue. */
bool mr_access_all_queues(const struct mr_token *token);
/* Whether text is of this pattern: * stands for any text, everything else for itself. */
bool mr_glob_match(struct mr_slice pattern, struct mr_slice text);

#endif
