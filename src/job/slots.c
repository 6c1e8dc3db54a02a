/* SPDX-License-Identifier: Apache-2.0 */
/* How many slots of live workers serve each queue: so many times the window are submitted. */
#include <stdlib.h>

#include "job/internal.h"

struct looking {
    struct mr_errand errand;
    struct mr_req_node_list req;
};

static bool serves(const struct mr_node_info *node, struct mr_slice queue)
{
    for (size_t i = 0; i < node->queues_n; i++) {
        if (mr_slice_equal(node->queues[i].name, queue) && mr_node_serves(node, i))
            return true;
    }
    return false;
}

static uint64_t slots_of(const struct mr_req_node_list *list, struct mr_slice queue)
{
    uint64_t slots = 0;
    for (size_t i = 0; i < list->n; i++) {
        const struct mr_node_info *node = &list->nodes[i];
        if (node->role == MR_NODE_WORKER && node->state == MR_NODE_LIVE && serves(node, queue))
            slots += node->slots;
    }
    return slots;
}

static void looked(struct mr_errand *errand)
{
    struct looking *l = mr_container(errand, struct looking, errand);
    struct mr_job_service *s = job_of(errand);
    s->slots_asking = false;
    for (struct mr_link *at = s->queues.next; at != &s->queues; at = at->next) {
        struct queue *queue = mr_container(at, struct queue, link);
        if (l->req.req.err == MR_OK)
            queue->slots = slots_of(&l->req, mr_slice_str(queue->name));
    }
    mr_req_done(&l->req.req);
    free(l);
}

static bool are_wanted(const struct mr_job_service *s)
{
    for (const struct mr_link *at = s->queues.next; at != &s->queues; at = at->next) {
        if (mr_container(at, struct queue, link)->owned)
            return true;
    }
    return false;
}

void job_slots_look(struct mr_job_service *s)
{
    struct looking *l = s->slots_asking || !are_wanted(s) ? NULL : calloc(1, sizeof *l);
    if (l == NULL)
        return;
    l->errand = (struct mr_errand){.desk = &s->desk, .done = looked};
    l->req.req.op = MR_OP_NODE_LIST;
    s->slots_asking = true;
    mr_errand_broker(&l->errand, &l->req.req);
}
