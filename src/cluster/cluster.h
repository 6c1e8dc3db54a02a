/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a node does while it leads. Its beats tell whether it does (broker/broker.h, mr_req_beat); then a
 * thread of its own takes one step after the other, once for each beat, and between beats each second while a
 * queue has partitions: who came owns some then. A step that fails is noted, and the next one
 * is taken all the same. Each write carries the term, so a leader that was replaced without knowing it
 * changes nothing; it acts no longer than its own clock says that it leads.
 */
#ifndef MR_CLUSTER_CLUSTER_H
#define MR_CLUSTER_CLUSTER_H

#include "broker/broker.h"

struct mr_cluster;

/* For one node; the broker must outlive it. A thread is started when it leads for the first time. */
MR_MUST_USE enum mr_err mr_cluster_new(struct mr_broker *broker, struct mr_cluster **ret_cluster);
/* Waits for the step that is being taken. NULL is fine. Not from the broker's thread. */
void mr_cluster_free(struct mr_cluster *cluster);
/* It leads with this term until then, 0: it does not. Thread: any. */
void mr_cluster_leads(struct mr_cluster *cluster, uint64_t term, mr_mono until);

#endif
