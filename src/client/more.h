/* SPDX-License-Identifier: Apache-2.0 */
/* What a worker with burst waits for beside its queues: parts of jobs. */
#ifndef MR_CLIENT_MORE_H
#define MR_CLIENT_MORE_H

#include "client/client.h"

/* Tells the worker, if it has burst, whom to ask. The client outlives it. MR_NOMEM. */
MR_MUST_USE enum mr_err mr_client_more(struct mr_client *client,
                                       const struct mr_worker_options *options,
                                       struct mr_worker *worker);

#endif
