/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A retry is many steps in the store (MR_STORE_JOB_RETRY). Who asked for it goes through them, and so does whoever has the
 * job's queue, as soon as it sees the job: who asked may be dead. A step is the same whoever takes it, and they share
 * the work. One that fails is taken again with the next walk through the queue.
 */
#include <stdlib.h>

#include "job/internal.h"

struct step {
    struct mr_errand errand;
    struct live *live; /* a reference */
    uint32_t generation;
    struct mr_store_job_act act;
};

static void step_done(struct mr_errand *errand)
{
    struct step *step = mr_container(errand, struct step, errand);
    struct live *live = step->live;
    enum mr_err err = step->act.req.err;
    if (live->generation == step->generation)
        live->stepping = false;
    if (err == MR_OK) {
        job_step(job_of(errand), MR_JOB_STEP_FORGIVEN);
        job_changed_one(job_of(errand), &step->act.job);
    } else {
        mr_diag(MR_DIAG_WARN, "job.retry", "job=%s error=%s", live->id, mr_err_name(err));
    }
    mr_store_req_done(&step->act.req);
    free(step);
    job_live_unref(live);
}

void job_retry_go_on(struct live *live)
{
    struct mr_job_service *s = live->queue->s;
    struct step *step = live->stepping || s->desk.stopping ? NULL : calloc(1, sizeof *step);
    if (step == NULL)
        return;
    step->errand = (struct mr_errand){.desk = &s->desk, .done = step_done};
    step->live = job_live_ref(live);
    step->generation = live->generation;
    step->act = (struct mr_store_job_act){.req.op = MR_STORE_JOB_RETRY,
                                          .uid = live->uid,
                                          .round = live->round - 2,
                                          .max = s->settings.retry_parts};
    live->stepping = true;
    mr_errand_store(&step->errand, &step->act.req);
}
