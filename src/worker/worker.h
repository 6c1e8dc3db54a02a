/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The worker as the level above makes it: on a broker instead of a client. Everything else of it is
 * in millrace.h.
 */
#ifndef MR_WORKER_WORKER_H
#define MR_WORKER_WORKER_H

#include "broker/broker.h"

/* Whoever leads when a node does (broker/broker.h, mr_req_beat). A node without it is no candidate. */
struct mr_leading {
    /* Each beat tells: with this term until then; 0: it does not. Thread: any. */
    void (*leads)(void *arg, uint64_t term, mr_mono until);
    void (*free)(void *arg); /* the node is closed, and nothing is told any more */
    void *arg;
};

/* The broker must outlive the worker. Errors: MR_INVALID, MR_TOO_BIG, MR_NOMEM. Thread: any. */
MR_MUST_USE enum mr_err mr_worker_new_on(struct mr_broker *broker,
                                         const struct mr_worker_options *options,
                                         struct mr_worker **ret_worker);
/* Before it is started; it is the worker's from then on. */
void mr_worker_leading(struct mr_worker *worker, const struct mr_leading *leading);

/*
 * Whoever knows of work that is no task yet: with burst it is asked once the queues are empty, again and again while it says
 * that some will come.
 */
struct mr_more {
    /* Whether some will come for this worker. It may wait. Thread: that of mr_worker_run. */
    bool (*comes)(const struct mr_worker *worker, void *arg);
    void (*free)(void *arg); /* the worker is */
    void *arg;
};
/* Before it is started; it is the worker's from then on. */
void mr_worker_more(struct mr_worker *worker, const struct mr_more *more);
/* The name of a node, by default host:pid, written to name. Thread: any. */
struct mr_slice mr_node_name(struct mr_slice given, char name[MR_NAME_MAX + 1]);
/* Whether tasks of this type are run by it. Thread: any, once it is started. */
bool mr_worker_handles(const struct mr_worker *worker, struct mr_slice type);

/* The same of a master, to whom leading (NULL: none) goes, also when it cannot be opened. Errors also: what
 * opening a node can answer. */
MR_MUST_USE enum mr_err mr_master_open_on(struct mr_broker *broker,
                                          const struct mr_master_options *options,
                                          const struct mr_leading *leading,
                                          struct mr_master **ret_master);
/* Commits by receipts alone. */
MR_MUST_USE enum mr_err mr_result_commit_on(struct mr_broker *broker,
                                            const struct mr_slice *receipts, size_t n,
                                            enum mr_err *ret_errs);

#endif
