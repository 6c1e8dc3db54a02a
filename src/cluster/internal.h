/* SPDX-License-Identifier: Apache-2.0 */
/* The steps of a leader. One is a row in cluster.c. */
#ifndef MR_CLUSTER_INTERNAL_H
#define MR_CLUSTER_INTERNAL_H

#include "cluster/cluster.h"

/* Whose the partitions of all queues are: among those who are there now. What cannot be written of one
 * queue does not keep it from the others; answers the first of such errors. Again soon, if there are any. */
MR_MUST_USE enum mr_err mr_step_assign(struct mr_broker *broker, uint64_t term, bool *ret_again);

#endif
