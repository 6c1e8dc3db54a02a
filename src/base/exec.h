/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work that blocks, done beside the thread that owns the state. A job runs once, elsewhere; then
 * its done function runs on the owner's thread. Real executors are threads; the simulator runs jobs
 * at a virtual time.
 */
#ifndef MR_BASE_EXEC_H
#define MR_BASE_EXEC_H

#include "base/chan.h"
#include "base/list.h"

struct mr_job {
    struct mr_msg msg; /* for the executor */
    void (*run)(
        struct mr_job *job); /* beside the owner: touches nothing but the job and its files */
    void (*done)(struct mr_job *job); /* on the owner's thread */
};

static inline void mr_job_deliver(struct mr_msg *msg, void *receiver)
{
    (void)receiver;
    struct mr_job *job = mr_container(msg, struct mr_job, msg);
    job->done(job);
}

static inline void mr_job_init(struct mr_job *job, void (*run)(struct mr_job *job),
                               void (*done)(struct mr_job *job))
{
    *job = (struct mr_job){.msg.deliver = mr_job_deliver, .run = run, .done = done};
}

/* From now on the calling thread leaves the processor to others that want it, and still gets a share. */
void mr_thread_gives_way(void);

struct mr_exec {
    /* Jobs of one executor run one after another, in the order given. */
    void (*submit)(struct mr_exec *exec, struct mr_job *job);
};

/* An executor with one thread of its own; one that gives way leaves the processor to other threads
 * that want it, and still gets a share. Finished jobs are sent to owner as their msg, whose
 * deliver function (set by whoever made the job) calls job->done. */
struct mr_exec_thread;
MR_MUST_USE enum mr_err mr_exec_thread_new(const char *name, bool gives_way, struct mr_chan *owner,
                                           struct mr_exec_thread **ret_exec);
struct mr_exec *mr_exec_thread_exec(struct mr_exec_thread *exec);
/* Waits for the jobs that are there. NULL is fine. */
void mr_exec_thread_free(struct mr_exec_thread *exec);

#endif
