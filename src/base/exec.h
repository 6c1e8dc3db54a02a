/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work that blocks, done beside the thread that owns the state. A chore runs once, elsewhere; then
 * its done function runs on the owner's thread. Real executors are threads; the simulator runs chores
 * at a virtual time.
 */
#ifndef MR_BASE_EXEC_H
#define MR_BASE_EXEC_H

#include "base/chan.h"
#include "base/list.h"

struct mr_chore {
    struct mr_msg msg; /* for the executor */
    void (*run)(
        struct mr_chore *chore); /* beside the owner: touches nothing but the chore and its files */
    void (*done)(struct mr_chore *chore); /* on the owner's thread */
};

static inline void mr_chore_deliver(struct mr_msg *msg, void *receiver)
{
    (void)receiver;
    struct mr_chore *chore = mr_container(msg, struct mr_chore, msg);
    chore->done(chore);
}

static inline void mr_chore_init(struct mr_chore *chore, void (*run)(struct mr_chore *chore),
                                 void (*done)(struct mr_chore *chore))
{
    *chore = (struct mr_chore){.msg.deliver = mr_chore_deliver, .run = run, .done = done};
}

/* From now on the calling thread leaves the processor to others that want it, and still gets a share. */
void mr_thread_gives_way(void);

struct mr_exec {
    /* Chores of one executor run one after another, in the order given. */
    void (*submit)(struct mr_exec *exec, struct mr_chore *chore);
};

/* An executor with one thread of its own; one that gives way leaves the processor to other threads
 * that want it, and still gets a share. Finished chores are sent to owner as their msg, whose
 * deliver function (set by whoever made the chore) calls chore->done. */
struct mr_exec_thread;
MR_MUST_USE enum mr_err mr_exec_thread_new(const char *name, bool gives_way, struct mr_chan *owner,
                                           struct mr_exec_thread **ret_exec);
struct mr_exec *mr_exec_thread_exec(struct mr_exec_thread *exec);
/* Waits for the chores that are there. NULL is fine. */
void mr_exec_thread_free(struct mr_exec_thread *exec);

#endif
