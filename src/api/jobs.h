/* SPDX-License-Identifier: Apache-2.0 */
/* What gRPC and HTTP share of jobs. */
#ifndef MR_API_JOBS_H
#define MR_API_JOBS_H

#include "api/access.h"
#include "job/service.h"

/* Whether this token may give such a job in; its priority becomes what the token stands for, where it says none.
 * MR_DENIED with detail. */
MR_MUST_USE enum mr_err jobs_admit(const struct mr_token *token, struct mr_job_options *job,
                                   struct mr_detail *detail);
/* Whether so many parts are within what is left of its quota, as far as that is known: nobody fills a store with what the
 * commit will refuse. The same. */
MR_MUST_USE enum mr_err jobs_check_quota(const struct mr_token *token, uint64_t parts,
                                         struct mr_detail *detail);
/* Whether it may see and change this one. The same. */
MR_MUST_USE enum mr_err jobs_may_touch(const struct mr_token *token, const struct mr_job_info *info,
                                       struct mr_detail *detail);

/*
 * Asks what the token may ask: of one that is for some queues it is found out first whose queue the job is.
 * Then done is called, on whichever thread, with ask.err and ask.detail; MR_DENIED among them.
 */
struct jobs_asking {
    struct mr_job_ask ask; /* kind and what is asked; done and arg are not the caller's */
    struct mr_job_service *service;
    const struct mr_token *token; /* lives until done */
    void (*done)(struct jobs_asking *asking);
    enum mr_job_ask_kind wanted;
};
void jobs_ask(struct jobs_asking *asking);
/* What to say of an error of it, in one line. */
void jobs_why(const struct mr_job_ask *ask, struct mr_detail *ret_text);

#endif
