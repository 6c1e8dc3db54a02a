/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker as the level above makes it: on a broker instead of a client. Everything else of it is
 * in millrace.h.
 */
#ifndef MR_WORKER_WORKER_H
#define MR_WORKER_WORKER_H

#include "broker/broker.h"

/* The broker must outlive the worker. Errors: MR_INVALID, MR_TOO_BIG, MR_NOMEM. Thread: any. */
MR_MUST_USE enum mr_err mr_worker_new_on(struct mr_broker *broker,
                                         const struct mr_worker_options *options,
                                         struct mr_worker **ret_worker);

/* The same of a master. Also what opening a node can answer. */
MR_MUST_USE enum mr_err mr_master_open_on(struct mr_broker *broker,
                                          const struct mr_master_options *options,
                                          struct mr_master **ret_master);
/* Commits by receipts alone. */
MR_MUST_USE enum mr_err mr_result_commit_on(struct mr_broker *broker,
                                            const struct mr_slice *receipts, size_t n,
                                            enum mr_err *ret_errs);

#endif
