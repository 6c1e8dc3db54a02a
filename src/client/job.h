/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of jobs in the client share: they are in this process, or behind a server. */
#ifndef MR_CLIENT_JOB_H
#define MR_CLIENT_JOB_H

#include "client/client.h"
#include "job/service.h"

/* The jobs of this process, opened if need be, from the first MR_JOBS_RUN on also worked on; NULL: a server has them.
 * MR_UNSUPPORTED: a Redis, and no store. Errors of mr_store_open; detail may be NULL. Thread: any. */
enum mr_jobs_for { MR_JOBS_LOOK, MR_JOBS_RUN };
MR_MUST_USE enum mr_err mr_client_jobs(struct mr_client *client, enum mr_jobs_for for_,
                                       struct mr_job_service **ret_service,
                                       struct mr_detail *detail);

/* A page of jobs of this queue that have not ended. cursor: empty, from the start. Errors of mr_job_list_get. */
MR_MUST_USE enum mr_err mr_job_list_live(struct mr_client *client, struct mr_slice queue,
                                         const char *cursor, struct mr_job_list **ret_list);

/* A list of one, from a job that stands elsewhere: it is copied. */
MR_MUST_USE enum mr_err mr_job_list_of(const struct mr_job_info *info, struct mr_slice definition,
                                       struct mr_job_list **ret_list);
/* The same from its encoding: Job of proto/. */
MR_MUST_USE enum mr_err mr_job_list_read(struct mr_slice bytes, struct mr_job_list **ret_list);

#endif
