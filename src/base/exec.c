/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The executor with one thread: chores come in over one channel and leave over another, so a chore
 * belongs to exactly one thread at any time and needs no lock.
 */
#include "base/exec.h"

#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/list.h"

struct mr_exec_thread {
    struct mr_exec exec;
    struct mr_chan chores;
    struct mr_chan *owner; /* where finished chores go */
    _Atomic bool stopping; /* set after the last submit */
    bool gives_way;
    pthread_t thread;
};

/* A third of the share of a thread that does not give way: enough to get on under any load. */
enum { NICE = 5 };

void mr_thread_gives_way(void)
{
    (void)setpriority(PRIO_PROCESS, (id_t)gettid(), NICE);
}

static void run_all(struct mr_exec_thread *exec)
{
    struct mr_msg *next;
    for (struct mr_msg *msg = mr_chan_take_all(&exec->chores); msg != NULL; msg = next) {
        next = msg->next; /* the sending below reuses it, and gives the chore away */
        struct mr_chore *chore = mr_container(msg, struct mr_chore, msg);
        chore->run(chore);
        mr_chan_send(exec->owner, &chore->msg);
    }
}

static void *exec_run(void *arg)
{
    struct mr_exec_thread *exec = arg;
    if (exec->gives_way)
        mr_thread_gives_way();
    for (;;) {
        /* Read before the chores are taken: whoever sees it set then sees every chore submitted before.
         */
        bool stopping = atomic_load(&exec->stopping);
        run_all(exec);
        if (stopping)
            return NULL;
        mr_chan_wait(&exec->chores, INT64_MAX);
    }
}

static void submit(struct mr_exec *base, struct mr_chore *chore)
{
    struct mr_exec_thread *exec = mr_container(base, struct mr_exec_thread, exec);
    mr_assert(!atomic_load(&exec->stopping));
    mr_chan_send(&exec->chores, &chore->msg);
}

enum mr_err mr_exec_thread_new(const char *name, bool gives_way, struct mr_chan *owner,
                               struct mr_exec_thread **ret_exec)
{
    struct mr_exec_thread *exec = calloc(1, sizeof *exec);
    if (exec == NULL)
        return MR_NOMEM;
    exec->exec.submit = submit;
    exec->gives_way = gives_way;
    exec->owner = owner;
    mr_chan_init(&exec->chores);
    atomic_init(&exec->stopping, false);
    enum mr_err err = mr_thread_start(&exec->thread, name, exec_run, exec);
    if (err != MR_OK) {
        free(exec);
        return err;
    }
    *ret_exec = exec;
    return MR_OK;
}

struct mr_exec *mr_exec_thread_exec(struct mr_exec_thread *exec)
{
    return &exec->exec;
}

void mr_exec_thread_free(struct mr_exec_thread *exec)
{
    if (exec == NULL)
        return;
    atomic_store(&exec->stopping, true);
    mr_chan_wake(&exec->chores);
    mr_thread_join(exec->thread);
    free(exec);
}
