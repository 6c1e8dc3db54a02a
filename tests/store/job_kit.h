/* SPDX-License-Identifier: Apache-2.0 */
/* Helpers of the themes about jobs: each request as one call that waits. */
#ifndef MR_TESTS_STORE_JOB_KIT_H
#define MR_TESTS_STORE_JOB_KIT_H

#include "store/jobs.h"
#include "store/suite.h"

/* A job that is loaded; zero is the default: uid 1, queue "q", one stage, 10 parts "p0".."p9", segments of 100000. */
struct kit_job {
    unsigned uid;
    const char *queue, *name, *definition;
    size_t stages;
    enum mr_job_policy policy;
    bool pipeline;
    int64_t priority_ms, retention_ms;
    uint64_t parts;
    uint32_t segment_parts;
    bool loading; /* it is not committed */
};
void kit_make(struct suite *t, struct kit_job job);
#define MAKE(t, ...) kit_make(t, (struct kit_job){__VA_ARGS__})

enum mr_err kit_begin(struct suite *t, struct kit_job job);
/* Parts first..first+n-1, "pN" each. */
enum mr_err kit_add(struct suite *t, unsigned uid, uint64_t first, uint64_t n,
                    uint32_t segment_parts);
enum mr_err kit_act(struct suite *t, enum mr_store_op op, struct mr_store_job_act act);
#define ACT(t, op, number, ...)                                                                    \
    kit_act(t, op, (struct mr_store_job_act){.uid = suite_uid(number), __VA_ARGS__})

/* Answers live until the test ends. */
const struct mr_store_job *kit_get(struct suite *t, unsigned uid);
struct mr_store_job_list *kit_list(struct suite *t, struct mr_store_job_list list);
struct mr_store_job_live *kit_live(struct suite *t, struct mr_store_job_live live);
struct mr_store_job_events *kit_events(struct suite *t, unsigned uid, uint64_t after, size_t max);
struct mr_store_parts_list *kit_parts(struct suite *t, struct mr_store_parts_list list);
struct mr_store_parts_read *kit_read(struct suite *t, struct mr_store_parts_read read);
struct mr_store_ready_read *kit_ready(struct suite *t, struct mr_store_ready_read read);
struct mr_store_result_read *kit_result(struct suite *t, unsigned uid, uint32_t seq, size_t max);
/* All of them, which are less than a page; and a page of them. */
struct mr_store_segments *kit_segments(struct suite *t);
struct mr_store_segments *kit_segments_after(struct suite *t, uint64_t after);
struct mr_store_job_retain *kit_job_retain(struct suite *t, struct mr_store_job_retain retain);
struct mr_store_segment_retain *kit_segment_retain(struct suite *t, int64_t age_ms, size_t max);

/* All of a job's parts in a stage, as somebody who submits does: read, and the cursor moves. Answers how many. */
uint64_t kit_submit(struct suite *t, unsigned uid, uint32_t stage);
/* The same of the ready list. */
uint64_t kit_submit_ready(struct suite *t, unsigned uid);
enum mr_err kit_advance(struct suite *t, struct mr_store_fence fence, struct mr_store_advance item);

/* One outcome; its segment is looked for when it is 0. */
enum mr_err kit_end(struct suite *t, struct mr_store_end item);
#define END(t, number, ...) kit_end(t, (struct mr_store_end){.uid = suite_uid(number), __VA_ARGS__})
/* Successes of parts first..first+n-1, with the results "rS.N"; all must be accepted. */
void kit_end_all(struct suite *t, unsigned uid, uint32_t stage, uint64_t first, uint64_t n);
/* In which segment a part is. */
uint64_t kit_segment_of(struct suite *t, unsigned uid, uint64_t index);

enum mr_err kit_again(struct suite *t, unsigned uid, uint32_t round, struct mr_store_again item);
enum mr_err kit_chunk(struct suite *t, struct mr_store_result_add add);

/* All that can be known of a job fits together: counters, parts, ranges, events. */
void kit_check(struct suite *t, unsigned uid);

#endif
