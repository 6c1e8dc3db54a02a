/* SPDX-License-Identifier: Apache-2.0 */
/* Who may do what with jobs: see jobs.h. Thread: any. */
#include "api/jobs.h"

enum mr_err jobs_admit(const struct mr_token *token, struct mr_job_options *job,
                       struct mr_detail *detail)
{
    if (!mr_access_queue(token, job->queue)) {
        mr_access_not_covered(token, job->queue, detail);
        return MR_DENIED;
    }
    if (!token->priority_limited)
        return MR_OK;
    if (job->priority_s > token->priority_max_s) {
        mr_detail_set(detail, "token %s may ask for a priority of at most %g s, not %g", token->id,
                      token->priority_max_s, job->priority_s);
        return MR_DENIED;
    }
    if (job->priority_s == 0 && token->priority_max_s > 0)
        job->priority_s = token->priority_max_s;
    return MR_OK;
}

enum mr_err jobs_check_quota(const struct mr_token *token, uint64_t parts, struct mr_detail *detail)
{
    uint64_t left = token->quota > token->used ? token->quota - token->used : 0;
    if (token->quota == 0 || parts <= left)
        return MR_OK;
    mr_detail_set(detail, "token %s has %llu of its quota of %llu left, and the job has more parts",
                  token->id, (unsigned long long)left, (unsigned long long)token->quota);
    return MR_DENIED;
}

enum mr_err jobs_may_touch(const struct mr_token *token, const struct mr_job_info *info,
                           struct mr_detail *detail)
{
    if (mr_access_queue(token, info->job.queue))
        return MR_OK;
    mr_access_not_covered(token, info->job.queue, detail);
    return MR_DENIED;
}

/* Leaves those of a list that it may see. */
static void jobs_filter(const struct mr_token *token, struct mr_job_ask *ask)
{
    size_t n = 0;
    for (size_t i = 0; i < ask->jobs_n; i++)
        if (mr_access_queue(token, ask->jobs[i].info.job.queue))
            ask->jobs[n++] = ask->jobs[i];
    ask->jobs_n = n;
}

static void answered(struct mr_job_ask *ask)
{
    struct jobs_asking *asking = ask->arg;
    if (ask->err == MR_OK && ask->kind == MR_JOB_LIST)
        jobs_filter(asking->token, ask);
    if (ask->err == MR_OK && ask->kind == MR_JOB_GET)
        ask->err = jobs_may_touch(asking->token, &ask->jobs[0].info, &ask->detail);
    if (ask->err != MR_OK || ask->kind == asking->wanted) {
        asking->done(asking);
        return;
    }
    struct mr_job_ask next = {.kind = asking->wanted,
                              .id = ask->id,
                              .states = ask->states,
                              .cursor = ask->cursor,
                              .limit = ask->limit,
                              .seq = ask->seq,
                              .stamp = ask->stamp,
                              .done = answered,
                              .arg = asking};
    mr_job_ask_done(ask);
    *ask = next;
    mr_job_service_ask(asking->service, ask);
}

void jobs_ask(struct jobs_asking *asking)
{
    struct mr_job_ask *ask = &asking->ask;
    asking->wanted = ask->kind;
    if (ask->kind != MR_JOB_LIST && !mr_access_all_queues(asking->token))
        ask->kind = MR_JOB_GET;
    ask->done = answered;
    ask->arg = asking;
    mr_job_service_ask(asking->service, ask);
}

void jobs_why(const struct mr_job_ask *ask, struct mr_detail *ret_text)
{
    if (ask->detail.text[0] != '\0')
        *ret_text = ask->detail;
    else if (ask->kind == MR_JOB_LIST)
        mr_detail_set(ret_text, "%s", mr_err_text(ask->err));
    else
        mr_detail_set(ret_text, "job %.*s: %s", (int)ask->id.len,
                      ask->id.len > 0 ? (const char *)ask->id.data : "", mr_err_text(ask->err));
}
