/* SPDX-License-Identifier: Apache-2.0 */
#include "store/job_kit.h"

#include <stdio.h>

enum { PAGE = 1000, TEXT = 24 };

#define KEPT(t, type, request) ((struct type *)suite_keep_call(t, &(request).req, sizeof(request)))

/* ---- loading --------------------------------------------------------------------------------- */

static enum mr_err call(struct suite *t, struct mr_store_req *req)
{
    enum mr_err err = mr_store_call(t->store, req);
    mr_store_req_done(req);
    return err;
}

enum mr_err kit_begin(struct suite *t, struct kit_job job)
{
    struct mr_store_job_begin begin = {
        .req.op = MR_STORE_JOB_BEGIN,
        .uid = suite_uid(job.uid > 0 ? job.uid : 1),
        .name = mr_slice_str(job.name != NULL ? job.name : ""),
        .queue = mr_slice_str(job.queue != NULL ? job.queue : "q"),
        .definition = mr_slice_str(job.definition != NULL ? job.definition : "def"),
        .stages_n = job.stages > 0 ? job.stages : 1,
        .policy = job.policy,
        .pipeline = job.pipeline,
        .priority_ms = job.priority_ms,
        .retention_ms = job.retention_ms,
    };
    return call(t, &begin.req);
}

enum mr_err kit_add(struct suite *t, unsigned uid, uint64_t first, uint64_t n,
                    uint32_t segment_parts)
{
    char(*texts)[TEXT] = calloc(n, sizeof *texts);
    struct mr_slice *inputs = calloc(n, sizeof *inputs);
    assert_true(texts != NULL && inputs != NULL);
    for (uint64_t i = 0; i < n; i++) {
        int len = snprintf(texts[i], TEXT, "p%llu", (unsigned long long)(first + i));
        inputs[i] = mr_slice_make(texts[i], (size_t)len);
    }
    struct mr_store_parts_add add = {.req.op = MR_STORE_PARTS_ADD,
                                     .uid = suite_uid(uid),
                                     .first = first,
                                     .inputs = inputs,
                                     .n = n,
                                     .segment_parts = segment_parts};
    enum mr_err err = call(t, &add.req);
    free(inputs);
    free(texts);
    return err;
}

enum mr_err kit_act(struct suite *t, enum mr_store_op op, struct mr_store_job_act act)
{
    act.req.op = op;
    return call(t, &act.req);
}

void kit_make(struct suite *t, struct kit_job job)
{
    unsigned uid = job.uid > 0 ? job.uid : 1;
    uint64_t parts = job.parts > 0 ? job.parts : 10;
    assert_err(kit_begin(t, job), MR_OK);
    for (uint64_t i = 0; i < parts; i += PAGE)
        assert_err(kit_add(t, uid, i, parts - i < PAGE ? parts - i : PAGE, job.segment_parts),
                   MR_OK);
    if (!job.loading)
        assert_err(ACT(t, MR_STORE_JOB_COMMIT, uid, .total = parts), MR_OK);
}

/* ---- looking --------------------------------------------------------------------------------- */

const struct mr_store_job *kit_get(struct suite *t, unsigned number)
{
    struct mr_uuid uid = suite_uid(number);
    struct mr_store_job_get get = {.req.op = MR_STORE_JOB_GET, .uids = &uid, .n = 1};
    return KEPT(t, mr_store_job_get, get)->jobs;
}

struct mr_store_job_list *kit_list(struct suite *t, struct mr_store_job_list list)
{
    list.req.op = MR_STORE_JOB_LIST;
    return KEPT(t, mr_store_job_list, list);
}

struct mr_store_job_live *kit_live(struct suite *t, struct mr_store_job_live live)
{
    live.req.op = MR_STORE_JOB_LIVE;
    live.queue = live.queue.len > 0 ? live.queue : MR_SLICE_LIT("q");
    return KEPT(t, mr_store_job_live, live);
}

struct mr_store_job_events *kit_events(struct suite *t, unsigned uid, uint64_t after, size_t max)
{
    struct mr_store_job_events events = {
        .req.op = MR_STORE_JOB_EVENTS, .uid = suite_uid(uid), .after = after, .max = max};
    return KEPT(t, mr_store_job_events, events);
}

struct mr_store_parts_list *kit_parts(struct suite *t, struct mr_store_parts_list list)
{
    list.req.op = MR_STORE_PARTS_LIST;
    return KEPT(t, mr_store_parts_list, list);
}

struct mr_store_parts_read *kit_read(struct suite *t, struct mr_store_parts_read read)
{
    read.req.op = MR_STORE_PARTS_READ;
    return KEPT(t, mr_store_parts_read, read);
}

struct mr_store_ready_read *kit_ready(struct suite *t, struct mr_store_ready_read read)
{
    read.req.op = MR_STORE_READY_READ;
    return KEPT(t, mr_store_ready_read, read);
}

struct mr_store_result_read *kit_result(struct suite *t, unsigned uid, uint32_t seq, size_t max)
{
    struct mr_store_result_read read = {
        .req.op = MR_STORE_RESULT_READ, .uid = suite_uid(uid), .seq = seq, .max = max};
    return KEPT(t, mr_store_result_read, read);
}

struct mr_store_segments *kit_segments_after(struct suite *t, uint64_t after)
{
    struct mr_store_segments segments = {.req.op = MR_STORE_SEGMENTS, .after = after, .max = 1000};
    return KEPT(t, mr_store_segments, segments);
}

struct mr_store_segments *kit_segments(struct suite *t)
{
    struct mr_store_segments *segments = kit_segments_after(t, 0);
    assert_false(segments->more);
    return segments;
}

struct mr_store_job_retain *kit_job_retain(struct suite *t, struct mr_store_job_retain retain)
{
    retain.req.op = MR_STORE_JOB_RETAIN;
    return KEPT(t, mr_store_job_retain, retain);
}

struct mr_store_segment_retain *kit_segment_retain(struct suite *t, int64_t age_ms, size_t max)
{
    struct mr_store_segment_retain retain = {
        .req.op = MR_STORE_SEGMENT_RETAIN, .age_ms = age_ms, .max = max};
    return KEPT(t, mr_store_segment_retain, retain);
}

uint64_t kit_segment_of(struct suite *t, unsigned uid, uint64_t index)
{
    struct mr_store_parts_read *read =
        kit_read(t, (struct mr_store_parts_read){.uid = suite_uid(uid), .from = index, .max = 1});
    return read->n == 1 && read->parts[0].index == index ? read->parts[0].segment : 1;
}

/* ---- submitting ------------------------------------------------------------------------------ */

enum mr_err kit_advance(struct suite *t, struct mr_store_fence fence, struct mr_store_advance item)
{
    enum mr_err result = MR_FAILED;
    struct mr_store_job_advance advance = {
        .req.op = MR_STORE_JOB_ADVANCE, .fence = fence, .items = &item, .n = 1, .results = &result};
    (void)call(t, &advance.req);
    return result;
}

uint64_t kit_submit(struct suite *t, unsigned uid, uint32_t stage)
{
    const struct mr_store_job *job = kit_get(t, uid);
    uint64_t from = job->stages[stage].cursor, sum = 0;
    while (from < job->total) {
        struct mr_store_parts_read *read =
            kit_read(t, (struct mr_store_parts_read){
                            .uid = suite_uid(uid), .stage = stage, .from = from, .max = PAGE});
        struct mr_store_advance item = {.uid = suite_uid(uid),
                                        .round = read->round,
                                        .stage = stage,
                                        .from = from,
                                        .to = read->next,
                                        .parts = read->n};
        assert_err(kit_advance(t, (struct mr_store_fence){0}, item), MR_OK);
        from = read->next;
        sum += read->n;
    }
    return sum;
}

uint64_t kit_submit_ready(struct suite *t, unsigned uid)
{
    const struct mr_store_job *job = kit_get(t, uid);
    uint64_t after = job->ready_cursor, sum = 0;
    while (after < job->ready_last) {
        struct mr_store_ready_read *read = kit_ready(
            t, (struct mr_store_ready_read){.uid = suite_uid(uid), .after = after, .max = PAGE});
        struct mr_store_advance item = {.uid = suite_uid(uid),
                                        .round = read->round,
                                        .stage = MR_STORE_STAGE_READY,
                                        .from = after,
                                        .to = read->next};
        assert_err(kit_advance(t, (struct mr_store_fence){0}, item), MR_OK);
        after = read->next;
        sum += read->n;
    }
    return sum;
}

enum mr_err kit_end(struct suite *t, struct mr_store_end item)
{
    enum mr_err result = MR_FAILED;
    struct mr_store_parts_end end = {
        .req.op = MR_STORE_PARTS_END, .items = &item, .n = 1, .results = &result};
    item.segment = item.segment > 0 ? item.segment : 1;
    (void)call(t, &end.req);
    return result;
}

void kit_end_all(struct suite *t, unsigned uid, uint32_t stage, uint64_t first, uint64_t n)
{
    struct mr_store_end *items = calloc(n, sizeof *items);
    enum mr_err *results = calloc(n, sizeof *results);
    char(*texts)[TEXT] = calloc(n, sizeof *texts);
    assert_true(items != NULL && results != NULL && texts != NULL);
    for (uint64_t i = 0; i < n;) {
        struct mr_store_parts_read *read = kit_read(
            t, (struct mr_store_parts_read){
                   .uid = suite_uid(uid), .from = first + i, .max = n - i < PAGE ? n - i : PAGE});
        for (size_t j = 0; j < read->n; j++, i++) {
            uint64_t index = read->parts[j].index;
            int len = snprintf(texts[i], TEXT, "r%u.%llu", stage, (unsigned long long)index);
            items[i] = (struct mr_store_end){.uid = suite_uid(uid),
                                             .index = index,
                                             .segment = read->parts[j].segment,
                                             .stage = stage,
                                             .round = read->round,
                                             .bytes = mr_slice_make(texts[i], (size_t)len)};
        }
    }
    struct mr_store_parts_end end = {
        .req.op = MR_STORE_PARTS_END, .items = items, .n = n, .results = results};
    assert_err(call(t, &end.req), MR_OK);
    for (uint64_t i = 0; i < n; i++)
        assert_err(results[i], MR_OK);
    free(texts);
    free(results);
    free(items);
}

enum mr_err kit_again(struct suite *t, unsigned uid, uint32_t round, struct mr_store_again item)
{
    enum mr_err result = MR_FAILED;
    struct mr_store_parts_again again = {.req.op = MR_STORE_PARTS_AGAIN,
                                         .uid = suite_uid(uid),
                                         .round = round,
                                         .items = &item,
                                         .n = 1,
                                         .results = &result};
    (void)call(t, &again.req);
    return result;
}

enum mr_err kit_chunk(struct suite *t, struct mr_store_result_add add)
{
    add.req.op = MR_STORE_RESULT_ADD;
    return call(t, &add.req);
}

/* ---- that it fits together ------------------------------------------------------------------- */

static void check_parts(struct suite *t, const struct mr_store_job *job)
{
    uint64_t counts[MR_JOB_STAGES_MAX][MR_PART_STATE_COUNT] = {{0}};
    uint64_t listed = 0;
    for (uint64_t from = 0; from < job->total;) {
        struct mr_store_parts_list *list =
            kit_parts(t, (struct mr_store_parts_list){.uid = job->uid, .from = from, .max = PAGE});
        for (size_t i = 0; i < list->n; i++) {
            assert_int_equal(list->parts[i].index, listed++);
            counts[list->parts[i].stage][list->parts[i].state]++;
        }
        from = list->next;
    }
    assert_int_equal(listed, job->total);
    uint64_t behind = 0; /* parts that stand in a stage behind */
    for (size_t i = job->stages_n; i-- > 0;) {
        const struct mr_store_stage *stage = &job->stages[i];
        uint64_t done = counts[i][MR_PART_DONE] + behind;
        assert_int_equal(stage->done, done);
        assert_int_equal(stage->failed, counts[i][MR_PART_FAILED]);
        if (stage->sent >= stage->done + stage->failed)
            assert_int_equal(mr_store_stage_open(stage), counts[i][MR_PART_SUBMITTED]);
        behind += counts[i][MR_PART_DONE] + counts[i][MR_PART_FAILED] +
                  counts[i][MR_PART_SUBMITTED] + counts[i][MR_PART_WAITING];
    }
}

/* The last of what is kept of it is how it is; versions have no gap. */
static void check_events(struct suite *t, const struct mr_store_job *job)
{
    uint64_t after = job->version > PAGE ? job->version - PAGE : 0, version = after;
    struct mr_store_job_events *events = NULL;
    do {
        struct mr_uuid uid = job->uid;
        events = (struct mr_store_job_events *)suite_keep_call(
            t,
            &(struct mr_store_job_events){
                .req.op = MR_STORE_JOB_EVENTS, .uid = uid, .after = version, .max = PAGE}
                 .req,
            sizeof *events);
        for (size_t i = 0; i < events->n; i++)
            assert_int_equal(events->jobs[i].version, ++version);
    } while (events->more);
    assert_int_equal(version, job->version);
    const struct mr_store_job *last = &events->jobs[events->n - 1];
    assert_int_equal(last->state, job->state);
    assert_int_equal(last->round, job->round);
    assert_memory_equal(last->stages, job->stages, job->stages_n * sizeof *job->stages);
}

void kit_check(struct suite *t, unsigned uid)
{
    const struct mr_store_job *job = kit_get(t, uid);
    assert_true(job->state != MR_JOBROW_NONE);
    check_parts(t, job);
    check_events(t, job);
}
