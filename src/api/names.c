/* SPDX-License-Identifier: Apache-2.0 */
#include "api/names.h"

#define A MR_ROLE_BIT(MR_ROLE_ADMIN)
#define W MR_ROLE_BIT(MR_ROLE_WORKER)

static const unsigned roles[] = {
    [MR_NAMES_LOOK] = MR_ROLES_ALL,
    [MR_NAMES_LOOK_ALL] = MR_ROLES_ALL,
    [MR_NAMES_WORK] = A | W,
    [MR_NAMES_SERVE] = A,
};

static bool is_of_all(enum mr_names_right right)
{
    return right == MR_NAMES_LOOK_ALL || right == MR_NAMES_SERVE;
}

static bool covers(const struct mr_token *token, enum mr_names_right right, struct mr_slice app)
{
    if (is_of_all(right))
        return mr_access_all_queues(token);
    return app.len == 0 || mr_access_queue(token, app);
}

static void refuse(struct mr_call *call, int status, const char *text)
{
    mr_call_trailer(call, "millrace-code", mr_slice_str(mr_err_name(MR_DENIED)));
    mr_call_end(call, status, mr_slice_str(text));
}

bool mr_names_access(struct mr_call *call, enum mr_names_right right, struct mr_slice app,
                     void *arg)
{
    const struct mr_access *access = arg;
    struct mr_token token;
    struct mr_detail detail = {.text = ""};
    enum mr_verdict verdict =
        mr_access_check(access, mr_call_metadata(call, "authorization"), mr_call_is_loopback(call),
                        roles[right], &token, &detail);
    if (verdict == MR_ALLOWED && covers(&token, right, app))
        return true;
    if (verdict == MR_ALLOWED && is_of_all(right))
        mr_access_not_all(&token, ", and this is of all apps", &detail);
    else if (verdict == MR_ALLOWED)
        mr_access_not_covered(&token, app, &detail);
    refuse(call, verdict == MR_UNKNOWN_CALLER ? MR_RPC_UNAUTHENTICATED : MR_RPC_DENIED,
           detail.text);
    return false;
}
