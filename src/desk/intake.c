/* SPDX-License-Identifier: Apache-2.0 */
#include "desk/intake.h"

#include <stdlib.h>

enum {
    BATCHES_MAX = 4, /* in hand at once */
    NODE_BEATS = 3,  /* within its lease */
    WAIT_MS = 30000, /* of a take */
    AGAIN_MS = 1000, /* a node that could not be opened, or was lost, is opened again after this */
};

/* ---- batches --------------------------------------------------------------------------------- */

/* What is behind the head that others see. */
struct taken {
    struct mr_intake_batch batch;
    struct mr_errand errand;
    struct mr_req_take take;
    struct mr_req_finish commit;
    size_t n;
    struct mr_finish *items;
    enum mr_err *errs;
    uint64_t node, round;
    struct mr_timer again;
};

static void take(struct mr_intake *intake);
static void node_close(struct mr_intake *intake, uint64_t node);

static struct taken *taken_of(struct mr_intake_batch *batch)
{
    return mr_container(batch, struct taken, batch);
}

/* Its node is there, as when it was taken. */
static bool is_ours(const struct taken *t)
{
    const struct mr_intake *intake = t->batch.intake;
    return intake->on && intake->round == t->round && intake->node == t->node;
}

static void taken_free(struct taken *t)
{
    struct mr_intake *intake = t->batch.intake;
    intake->calls->end(&t->batch);
    while (t->take.leases != NULL) {
        struct mr_lease *lease = t->take.leases;
        t->take.leases = lease->next;
        mr_lease_free(lease);
    }
    mr_req_done(&t->take.req);
    mr_req_done(&t->commit.req);
    mr_desk_cancel(intake->desk, &t->again);
    if (!mr_list_empty(&t->batch.link)) {
        mr_list_remove(&t->batch.link);
        intake->batches_n--;
    }
    free(t->items);
    free(t->errs);
    free(t);
}

/* It is gone, or of no use; what it holds goes back, and comes to the next one. */
static void node_lost(struct mr_intake *intake, uint64_t node, enum mr_err err)
{
    if (intake->node != node || node == 0)
        return;
    intake->calls->trouble(intake, err);
    intake->node = 0;
    intake->taking = false;
    node_close(intake, node);
    mr_desk_after(intake->desk, &intake->again, AGAIN_MS);
}

/* It is done with; if too many were not, the next ones were not asked for. */
static void taken_end(struct taken *t)
{
    struct mr_intake *intake = t->batch.intake;
    taken_free(t);
    if (intake->on && intake->node != 0 && !intake->taking)
        take(intake);
}

static void committed(struct mr_errand *errand)
{
    struct taken *t = mr_container(errand, struct taken, errand);
    struct mr_intake *intake = t->batch.intake;
    if (intake->calls->committed != NULL)
        intake->calls->committed(&t->batch);
    if (t->commit.req.err != MR_OK && is_ours(t))
        node_lost(intake, t->node, t->commit.req.err);
    taken_end(t);
}

static void commit(struct taken *t)
{
    t->commit = (struct mr_req_finish){.req.op = MR_OP_FINISH,
                                       .items = t->items,
                                       .n = t->n,
                                       .errs = t->errs,
                                       .only_results = true};
    t->errand.done = committed;
    mr_errand_broker(&t->errand, &t->commit.req);
}

void mr_intake_written(struct mr_intake_batch *batch, enum mr_err err, int64_t again_ms)
{
    struct taken *t = taken_of(batch);
    if (err == MR_OK) {
        commit(t);
    } else if (!is_ours(t)) {
        taken_end(t);
    } else {
        batch->intake->calls->trouble(batch->intake, err);
        mr_intake_later(batch, again_ms);
    }
}

void mr_intake_later(struct mr_intake_batch *batch, int64_t ms)
{
    mr_desk_after(batch->intake->desk, &taken_of(batch)->again, ms);
}

void mr_intake_now(struct mr_intake_batch *batch)
{
    struct taken *t = taken_of(batch);
    mr_desk_cancel(batch->intake->desk, &t->again);
    if (is_ours(t))
        batch->intake->calls->write(batch);
    else
        taken_end(t);
}

static void write_again(struct mr_timer *timer, void *arg)
{
    (void)arg;
    mr_intake_now(&mr_container(timer, struct taken, again)->batch);
}

static enum mr_err open_leases(struct taken *t)
{
    const struct mr_intake_calls *calls = t->batch.intake->calls;
    size_t n = t->take.n;
    t->items = calloc(n, sizeof *t->items);
    t->errs = calloc(n, sizeof *t->errs);
    if (t->items == NULL || t->errs == NULL)
        return MR_NOMEM;
    MR_TRY(calls->begin(&t->batch, n));
    for (struct mr_lease *lease = t->take.leases; lease != NULL && t->n < n; lease = lease->next) {
        struct mr_result result;
        MR_TRY(mr_broker_lease_open(t->errand.desk->broker, lease));
        t->items[t->n++] = (struct mr_finish){
            .id = lease->task.id, .epoch = lease->epoch, .ref = lease->ref, .outcome = MR_DONE};
        if (mr_result_decode(lease->task.payload, &result) == MR_OK)
            calls->read(&t->batch, &result);
    }
    return MR_OK;
}

static void took(struct mr_errand *errand)
{
    struct taken *t = mr_container(errand, struct taken, errand);
    struct mr_intake *intake = t->batch.intake;
    enum mr_err err = t->take.req.err;
    bool ours = is_ours(t);
    if (ours)
        intake->taking = false;
    if (ours && err == MR_OK)
        err = open_leases(t);
    if (!ours || err != MR_OK) {
        if (ours && err != MR_EMPTY)
            node_lost(intake, t->node, err);
        else if (ours)
            take(intake);
        taken_free(t);
        return;
    }
    mr_list_push_back(&intake->batches, &t->batch.link);
    if (++intake->batches_n < BATCHES_MAX)
        take(intake);
    mr_intake_now(&t->batch);
}

static void take(struct mr_intake *intake)
{
    struct taken *t = calloc(1, sizeof *t);
    if (t == NULL) {
        node_lost(intake, intake->node, MR_NOMEM);
        return;
    }
    t->batch.intake = intake;
    mr_list_init(&t->batch.link);
    t->errand = (struct mr_errand){.desk = intake->desk, .done = took};
    t->node = intake->node;
    t->round = intake->round;
    mr_timer_init(&t->again, write_again);
    t->take = (struct mr_req_take){.req.op = MR_OP_TAKE,
                                   .node = t->node,
                                   .max = MR_BATCH_MAX,
                                   .bytes_max = MR_TAKE_BYTES,
                                   .wait_ms = WAIT_MS};
    intake->taking = true;
    mr_errand_broker(&t->errand, &t->take.req);
}

/* ---- the node -------------------------------------------------------------------------------- */

struct beating {
    struct mr_errand errand;
    struct mr_intake *intake;
    struct mr_req_node_open open;
    struct mr_req_beat beat;
    struct mr_req_node_close close;
    struct mr_worker_queue queue;
    char queue_name[MR_NAME_MAX + 1];
    uint64_t round;
};

static struct beating *beating_new(struct mr_intake *intake, void (*done)(struct mr_errand *errand))
{
    struct beating *b = calloc(1, sizeof *b);
    if (b == NULL)
        return NULL;
    b->intake = intake;
    b->round = intake->round;
    b->errand = (struct mr_errand){.desk = intake->desk, .done = done};
    return b;
}

static void beating_free(struct beating *b)
{
    mr_req_done(&b->open.req);
    mr_req_done(&b->beat.req);
    mr_req_done(&b->close.req);
    free(b);
}

static void beat_later(struct mr_intake *intake)
{
    mr_desk_after(intake->desk, &intake->beat, intake->lease_ms / NODE_BEATS);
}

static void closed(struct mr_errand *errand)
{
    beating_free(mr_container(errand, struct beating, errand));
}

/* What it holds goes back. */
static void node_close(struct mr_intake *intake, uint64_t node)
{
    struct beating *b = beating_new(intake, closed);
    if (b == NULL)
        return; /* it does not beat any more */
    b->close = (struct mr_req_node_close){.req.op = MR_OP_NODE_CLOSE, .node = node};
    mr_errand_broker(&b->errand, &b->close.req);
}

static void opened(struct mr_errand *errand)
{
    struct beating *b = mr_container(errand, struct beating, errand);
    struct mr_intake *intake = b->intake;
    enum mr_err err = b->open.req.err;
    bool ours = intake->on && intake->round == b->round;
    if (err == MR_OK && !ours) {
        node_close(intake, b->open.node);
    } else if (err == MR_OK) {
        intake->node = b->open.node;
        beat_later(intake);
        take(intake);
    } else if (ours) {
        intake->calls->trouble(intake, err);
        mr_desk_after(intake->desk, &intake->again, AGAIN_MS);
    }
    beating_free(b);
}

/* Of a node that goes there is nothing to tell: what it holds is found out by who commits it. */
static void event_stop(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    (void)epoch, (void)reason, (void)arg;
}

static void node_open(struct mr_intake *intake)
{
    struct beating *b = beating_new(intake, opened);
    if (b == NULL) {
        mr_desk_after(intake->desk, &intake->again, AGAIN_MS);
        return;
    }
    b->queue.name = mr_result_queue(mr_slice_str(intake->topic), b->queue_name);
    b->open = (struct mr_req_node_open){.req.op = MR_OP_NODE_OPEN,
                                        .role = MR_NODE_MASTER,
                                        .name = mr_slice_str(intake->topic),
                                        .queues = &b->queue,
                                        .queues_n = 1,
                                        .lease_ms = intake->lease_ms,
                                        .events = {.stop = event_stop}};
    mr_errand_broker(&b->errand, &b->open.req);
}

static void beat_done(struct mr_errand *errand)
{
    struct beating *b = mr_container(errand, struct beating, errand);
    struct mr_intake *intake = b->intake;
    bool gone = b->beat.req.err == MR_NOT_FOUND || b->beat.req.err == MR_CLOSED;
    if (intake->on && intake->node == b->beat.node) {
        if (gone)
            node_lost(intake, b->beat.node, b->beat.req.err);
        else
            beat_later(intake);
    }
    beating_free(b);
}

static void beat(struct mr_timer *timer, void *arg)
{
    struct mr_intake *intake = mr_container(timer, struct mr_intake, beat);
    struct beating *b = intake->node != 0 ? beating_new(intake, beat_done) : NULL;
    (void)arg;
    if (b == NULL)
        return;
    b->beat = (struct mr_req_beat){.req.op = MR_OP_BEAT, .node = intake->node};
    mr_errand_broker(&b->errand, &b->beat.req);
}

static void open_again(struct mr_timer *timer, void *arg)
{
    struct mr_intake *intake = mr_container(timer, struct mr_intake, again);
    (void)arg;
    if (intake->on && intake->node == 0)
        node_open(intake);
}

/* ---- life ------------------------------------------------------------------------------------ */

void mr_intake_init(struct mr_intake *intake, struct mr_desk *desk,
                    const struct mr_intake_calls *calls, void *of)
{
    *intake = (struct mr_intake){.desk = desk, .calls = calls, .of = of};
    mr_list_init(&intake->batches);
    mr_timer_init(&intake->beat, beat);
    mr_timer_init(&intake->again, open_again);
}

void mr_intake_begin(struct mr_intake *intake, const char *topic, int64_t lease_ms)
{
    if (intake->on)
        return;
    intake->topic = topic;
    intake->lease_ms = lease_ms;
    intake->on = true;
    intake->round++;
    node_open(intake);
}

void mr_intake_end(struct mr_intake *intake)
{
    if (!intake->on)
        return;
    mr_desk_cancel(intake->desk, &intake->beat);
    mr_desk_cancel(intake->desk, &intake->again);
    if (intake->node != 0)
        node_close(intake, intake->node);
    intake->on = intake->taking = false;
    intake->round++;
    intake->node = 0;
    /* Those that wait to be tried again; the others are under way, and find the node gone. */
    for (struct mr_link *at = intake->batches.next, *next; at != &intake->batches; at = next) {
        struct taken *t = taken_of(mr_container(at, struct mr_intake_batch, link));
        next = at->next;
        if (mr_timer_running(&t->again))
            taken_free(t);
    }
}
