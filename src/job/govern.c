/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is old is removed: jobs whose retention is over, loads that nobody goes on with, segments all of whose parts have
 * ended. Whoever has the lease does it, a few rows at a time, so that nothing else waits for long.
 */
#include <stdlib.h>

#include "job/internal.h"

enum { ROWS_MAX = 5000, PAUSE_MS = 20 };

struct governing {
    struct mr_errand errand;
    struct mr_store_lease lease;
    struct mr_store_lease_item item;
    struct mr_store_lease_result result;
    struct mr_store_job_retain jobs;
    struct mr_store_segment_retain segments;
    uint64_t token;
    struct mr_timer again;
};

static int64_t ttl_ms(const struct mr_job_service *s)
{
    return s->settings.govern_ms * 2 > s->settings.lease_ms ? s->settings.govern_ms * 2
                                                            : s->settings.lease_ms;
}

static void govern_end(struct governing *g)
{
    struct mr_job_service *s = job_of(&g->errand);
    mr_store_req_done(&g->lease.req);
    mr_store_req_done(&g->jobs.req);
    mr_store_req_done(&g->segments.req);
    mr_desk_cancel(&s->desk, &g->again);
    s->governing = NULL;
    free(g);
    if (!s->desk.stopping)
        mr_desk_after(&s->desk, &s->govern, s->settings.govern_ms);
}

static struct mr_store_fence fence_of(const struct governing *g)
{
    return (struct mr_store_fence){MR_SLICE_LIT(GOVERN_LEASE), g->token};
}

static void retain_jobs(struct governing *g);
static void retain_segments(struct governing *g);

/* The rest after a moment: others have something to write, too. */
static void pause_then(struct governing *g, void (*step)(struct mr_timer *timer, void *arg))
{
    if (job_of(&g->errand)->desk.stopping) {
        govern_end(g);
        return;
    }
    mr_timer_init(&g->again, step);
    mr_desk_after(g->errand.desk, &g->again, PAUSE_MS);
}

static void segments_again(struct mr_timer *timer, void *arg)
{
    (void)arg;
    retain_segments(mr_container(timer, struct governing, again));
}

static void jobs_again(struct mr_timer *timer, void *arg)
{
    (void)arg;
    retain_jobs(mr_container(timer, struct governing, again));
}

static void segments_retained(struct mr_errand *errand)
{
    struct governing *g = mr_container(errand, struct governing, errand);
    enum mr_err err = g->segments.req.err;
    if (err == MR_OK)
        JOB_COUNT(job_of(errand), segments_removed, g->segments.segments);
    else
        mr_diag(MR_DIAG_WARN, "job.retain", "segments=%s", mr_err_name(err));
    if (err == MR_OK && g->segments.more)
        pause_then(g, segments_again);
    else
        govern_end(g);
}

static void retain_segments(struct governing *g)
{
    mr_store_req_done(&g->segments.req);
    g->segments =
        (struct mr_store_segment_retain){.req.op = MR_STORE_SEGMENT_RETAIN,
                                         .fence = fence_of(g),
                                         .age_ms = job_of(&g->errand)->settings.segment_ms,
                                         .max = ROWS_MAX};
    g->errand.done = segments_retained;
    mr_errand_store(&g->errand, &g->segments.req);
}

static void jobs_retained(struct mr_errand *errand)
{
    struct governing *g = mr_container(errand, struct governing, errand);
    struct mr_job_service *s = job_of(errand);
    if (g->jobs.req.err != MR_OK) {
        mr_diag(MR_DIAG_WARN, "job.retain", "error=%s", mr_err_name(g->jobs.req.err));
        govern_end(g);
        return;
    }
    JOB_COUNT(s, removed, g->jobs.ended);
    JOB_COUNT(s, loads_removed, g->jobs.loads);
    if (g->jobs.more)
        pause_then(g, jobs_again);
    else
        retain_segments(g);
}

static void retain_jobs(struct governing *g)
{
    mr_store_req_done(&g->jobs.req);
    g->jobs = (struct mr_store_job_retain){.req.op = MR_STORE_JOB_RETAIN,
                                           .fence = fence_of(g),
                                           .load_ms = job_of(&g->errand)->settings.load_ms,
                                           .max = ROWS_MAX};
    g->errand.done = jobs_retained;
    mr_errand_store(&g->errand, &g->jobs.req);
}

static void lease_known(struct mr_errand *errand)
{
    struct governing *g = mr_container(errand, struct governing, errand);
    if (g->lease.req.err != MR_OK || g->result.err != MR_OK || job_of(errand)->desk.stopping) {
        govern_end(g);
        return;
    }
    g->token = g->result.token;
    retain_jobs(g);
}

static void govern(struct mr_timer *timer, void *arg)
{
    struct mr_job_service *s = arg;
    struct governing *g = s->desk.stopping ? NULL : calloc(1, sizeof *g);
    if (g == NULL) {
        mr_desk_after(&s->desk, timer, s->settings.govern_ms);
        return;
    }
    s->governing = g;
    mr_timer_init(&g->again, jobs_again);
    g->item = (struct mr_store_lease_item){.verb = MR_LEASE_ACQUIRE,
                                           .name = MR_SLICE_LIT(GOVERN_LEASE),
                                           .owner = mr_slice_str(s->desk.owner),
                                           .ttl_ms = ttl_ms(s)};
    g->lease = (struct mr_store_lease){
        .req.op = MR_STORE_LEASE, .items = &g->item, .n = 1, .results = &g->result};
    g->errand = (struct mr_errand){.desk = &s->desk, .done = lease_known};
    mr_errand_store(&g->errand, &g->lease.req);
}

void job_govern_begin(struct mr_job_service *s)
{
    mr_timer_init(&s->govern, govern);
    mr_desk_after(&s->desk, &s->govern, s->settings.govern_ms);
}

void job_govern_end(struct mr_job_service *s)
{
    mr_desk_cancel(&s->desk, &s->govern);
    if (s->governing != NULL && mr_timer_running(&s->governing->again))
        govern_end(s->governing); /* nothing of it is under way */
}
