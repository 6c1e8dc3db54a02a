/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processes of the selftest. Each has a client of its own, made for a server that is always
 * there: what it takes to go on when the server is killed is the library's business. Only an
 * enqueue that is answered with "out of reach" is repeated here where the task has an id of its own,
 * as every producer may do.
 *
 * One of the workers is a worker as everybody has it; the other speaks to the broker itself, so that
 * it hears the answer to each finish.
 */
#include <assert.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/diag.h"
#include "cli/cli.h"
#include "cli/selftest.h"
#include "client/client.h"

enum {
    THREADS = 2, /* of a producer */
    LANES = SELFTEST_PRODUCERS * THREADS,
    BATCH_MAX = 16,
    PACE_US = 400, /* of a thread, for each task: some 10 000 a second together */
    SLOTS = 4,
    TAKE_MAX = 8,
    TAKE_WAIT_MS = 200,
    LEASE_MS = 15000,
    BEAT_MS = 3000,
    RETRY_MS = 10,
    AGAIN_MS = 20, /* after what could not be done because nobody was there */
    RETENTION_MS = 24 * 3600 * 1000,
};

struct process {
    const struct selftest_load *load;
    struct mr_client *client;
    struct mr_event stop;
    _Atomic uint32_t finishes; /* under way */
};

/* ---- tokens ---------------------------------------------------------------------------------- */

size_t selftest_payload(uint32_t token, uint8_t payload[SELFTEST_PAYLOAD_MAX])
{
    size_t len = 8 + token * 37u % 500;
    for (size_t i = 0; i < len; i++)
        payload[i] = (uint8_t)(token * 31 + i * 7);
    mr_store32(payload, token);
    return len;
}

uint32_t selftest_token(struct mr_slice payload)
{
    uint8_t want[SELFTEST_PAYLOAD_MAX];
    if (payload.len < 8)
        return UINT32_MAX;
    uint32_t token = mr_load32(payload.data);
    size_t len = selftest_payload(token, want);
    return mr_slice_equal(payload, mr_slice_make(want, len)) ? token : UINT32_MAX;
}

bool selftest_fails_first(uint32_t token)
{
    return token % 13 == 0;
}

void selftest_id(uint32_t token, char id[32])
{
    id[0] = '\0';
    if (token % 3 != 0)
        snprintf(id, 32, "selftest-%u", token);
}

size_t selftest_result(uint32_t token, uint64_t epoch, char text[SELFTEST_RESULT_MAX])
{
    return (size_t)snprintf(text, SELFTEST_RESULT_MAX, "task %u under epoch %llu", token,
                            (unsigned long long)epoch);
}

/* Most runs take no time, some are long enough to be cut off by a kill. */
static int64_t run_ms(uint32_t token)
{
    return token % 997 == 0 ? 400 : token % 97 == 0 ? 20 : 0;
}

/* ---- saying ---------------------------------------------------------------------------------- */

static_assert(BATCH_MAX * sizeof(struct selftest_message) <= 4096, "a pipe takes it whole");

static void say(const struct process *self, const struct selftest_message *messages, size_t n)
{
    ssize_t done;
    do
        done = write(self->load->pipe, messages, n * sizeof *messages);
    while (done < 0 && errno == EINTR);
    if (done < 0)
        _exit(CLI_FAILED); /* nobody listens any more */
}

static void say_wrong(const struct process *self, uint32_t token, enum mr_err err)
{
    say(self, &(struct selftest_message){.kind = SELFTEST_WRONG, .token = token, .err = err}, 1);
}

/* ---- producing ------------------------------------------------------------------------------- */

struct producer {
    struct process *process;
    pthread_t thread;
    uint32_t lane;
};

struct batch {
    struct mr_task_options tasks[BATCH_MAX];
    struct mr_enqueue_result results[BATCH_MAX];
    uint8_t payloads[BATCH_MAX][SELFTEST_PAYLOAD_MAX];
    char ids[BATCH_MAX][32];
    uint32_t tokens[BATCH_MAX];
    size_t n;
};

static void fill(struct batch *batch, uint32_t first, uint32_t step, size_t n)
{
    batch->n = n;
    for (size_t i = 0; i < n; i++) {
        uint32_t token = batch->tokens[i] = first + (uint32_t)i * step;
        size_t len = selftest_payload(token, batch->payloads[i]);
        selftest_id(token, batch->ids[i]);
        batch->tasks[i] = (struct mr_task_options){
            .queue = MR_SLICE_LIT(SELFTEST_QUEUE),
            .id = mr_slice_str(batch->ids[i]),
            .payload = mr_slice_make(batch->payloads[i], len),
            .retention_ms = RETENTION_MS,
        };
    }
}

/* Says what became of the tasks; keeps those that may be sent again. */
static void settle(const struct process *self, struct batch *batch, bool again)
{
    struct selftest_message messages[BATCH_MAX];
    size_t said = 0, left = 0;
    for (size_t i = 0; i < batch->n; i++) {
        enum mr_err err = batch->results[i].err;
        bool has_id = batch->tasks[i].id.len > 0;
        if (again && has_id && err == MR_CONFLICT)
            err = MR_OK; /* the try before was accepted */
        if (mr_err_retriable(err) && has_id) {
            batch->tasks[left] = batch->tasks[i];
            batch->tokens[left++] = batch->tokens[i];
            continue;
        }
        uint32_t kind = err == MR_OK            ? SELFTEST_ACKNOWLEDGED
                        : mr_err_retriable(err) ? SELFTEST_IN_DOUBT
                                                : SELFTEST_WRONG;
        messages[said++] = (struct selftest_message){
            .kind = kind, .token = batch->tokens[i], .err = (uint32_t)err};
    }
    if (said > 0)
        say(self, messages, said);
    batch->n = left;
}

/* What cannot be sent again because we stop is in doubt. */
static void give_up(const struct process *self, struct batch *batch)
{
    for (size_t i = 0; i < batch->n; i++)
        say(self, &(struct selftest_message){.kind = SELFTEST_IN_DOUBT, .token = batch->tokens[i]},
            1);
}

static void *produce(void *arg)
{
    struct producer *producer = arg;
    struct process *self = producer->process;
    struct batch *batch = cli_alloc(1, sizeof *batch);
    struct mr_rand rand;
    mr_rand_seed_system(&rand);
    for (uint32_t token = producer->lane; !mr_event_is_set(&self->stop);) {
        uint32_t n = 1 + (uint32_t)mr_rand_below(&rand, BATCH_MAX);
        fill(batch, token, LANES, n);
        token += n * LANES;
        for (bool again = false; batch->n > 0 && !(again && mr_event_is_set(&self->stop));
             again = true) {
            if (again)
                mr_event_wait(&self->stop, AGAIN_MS * MR_NS_PER_MS);
            enum mr_err err = mr_enqueue(self->client, batch->tasks, batch->n, batch->results);
            if (err != MR_OK && !mr_err_retriable(err))
                say_wrong(self, batch->tokens[0], err);
            settle(self, batch, again);
        }
        give_up(self, batch);
        mr_event_wait(&self->stop, (int64_t)n * PACE_US * MR_NS_PER_US);
    }
    free(batch);
    return NULL;
}

static int produce_all(struct process *self)
{
    struct producer producers[THREADS];
    for (uint32_t i = 0; i < THREADS; i++) {
        producers[i] = (struct producer){.process = self, .lane = self->load->number * THREADS + i};
        cli_must(mr_thread_start(&producers[i].thread, "producer", produce, &producers[i]));
    }
    mr_event_wait(&self->stop, INT64_MAX);
    for (size_t i = 0; i < THREADS; i++)
        mr_thread_join(producers[i].thread);
    return CLI_OK;
}

/* ---- working --------------------------------------------------------------------------------- */

/* Says that a run begins; answers how it ends. */
static enum mr_outcome begin_run(const struct process *self, const struct mr_task *task,
                                 uint32_t *ret_token)
{
    uint32_t token = selftest_token(task->payload);
    *ret_token = token;
    if (token == UINT32_MAX) {
        say_wrong(self, token, MR_DAMAGED);
        return MR_FAIL_FOR_GOOD;
    }
    say(self,
        &(struct selftest_message){.kind = SELFTEST_RUNS, .token = token, .epoch = task->epoch}, 1);
    return selftest_fails_first(token) && task->retried == 0 ? MR_FAIL : MR_DONE;
}

static enum mr_outcome handle(struct mr_run *run, void *arg)
{
    const struct process *self = arg;
    char result[SELFTEST_RESULT_MAX];
    uint32_t token;
    enum mr_outcome outcome = begin_run(self, mr_run_task(run), &token);
    if (outcome == MR_FAIL_FOR_GOOD)
        return outcome;
    /* Told to stop, it says its end all the same: that must be refused. */
    mr_run_wait_cancelled(run, run_ms(token));
    if (outcome == MR_FAIL) {
        mr_run_error(run, "the first run fails");
        mr_run_retry_after(run, RETRY_MS);
    } else {
        size_t len = selftest_result(token, mr_run_task(run)->epoch, result);
        cli_must(mr_run_result(run, mr_slice_make(result, len)));
    }
    return outcome;
}

/* Failures are part of the plan, not news. */
static void ignore(const struct mr_task *task, const char *error, void *arg)
{
    (void)task, (void)error, (void)arg;
}

static int work_plainly(struct process *self)
{
    static const struct mr_worker_queue queue = {MR_SLICE_LIT(SELFTEST_QUEUE), 1};
    struct mr_worker_options options = {
        .queues = &queue, .queues_n = 1, .slots = SLOTS, .on_error = ignore};
    struct mr_worker *worker = NULL;
    cli_must(mr_worker_new(self->client, &options, &worker));
    cli_must(mr_worker_handle(worker, "*", handle, self));
    cli_must(mr_worker_start(worker));
    mr_event_wait(&self->stop, INT64_MAX);
    mr_worker_free(worker);
    return CLI_OK;
}

/* A finish under way, of the worker that hears the answers. */
struct ending {
    struct mr_req_finish req;
    struct mr_finish item;
    enum mr_err err;
    struct process *process;
    struct mr_lease *lease;
    uint32_t token;
    char result[SELFTEST_RESULT_MAX];
};

/* Broker's thread. */
static void finish_answered(struct mr_req *req)
{
    struct ending *ending = req->arg;
    struct process *self = ending->process;
    if (req->err == MR_OK && ending->err == MR_OK)
        say(self,
            &(struct selftest_message){.kind = SELFTEST_ACCEPTED,
                                       .token = ending->token,
                                       .epoch = ending->item.epoch,
                                       .outcome = ending->item.outcome},
            1);
    mr_req_done(req);
    mr_lease_free(ending->lease);
    free(ending);
    atomic_fetch_sub(&self->finishes, 1);
}

static void run_lease(struct process *self, struct mr_lease *take_lease, uint32_t slot)
{
    struct mr_broker *broker = self->client->broker;
    struct ending *ending = cli_alloc(1, sizeof *ending);
    cli_must(mr_broker_lease_open(broker, take_lease));
    mr_broker_begun(broker, slot, take_lease->epoch);
    ending->process = self;
    ending->lease = take_lease;
    ending->item = (struct mr_finish){.id = take_lease->task.id,
                                      .epoch = take_lease->epoch,
                                      .ref = take_lease->ref,
                                      .error = MR_SLICE_LIT("the first run fails"),
                                      .delay_ms = RETRY_MS};
    ending->item.outcome = begin_run(self, &take_lease->task, &ending->token);
    if (ending->item.outcome == MR_DONE) {
        size_t len = selftest_result(ending->token, take_lease->epoch, ending->result);
        ending->item.result = mr_slice_make(ending->result, len);
    }
    ending->req = (struct mr_req_finish){.items = &ending->item, .n = 1, .errs = &ending->err};
    ending->req.req = (struct mr_req){.op = MR_OP_FINISH, .done = finish_answered, .arg = ending};
    mr_broker_begun(broker, slot, 0);
    atomic_fetch_add(&self->finishes, 1);
    mr_broker_submit(broker, &ending->req.req);
}

static void told_to_stop(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    (void)epoch, (void)reason, (void)arg;
}

static bool open_node(struct process *self, struct mr_req_node_open *open)
{
    static const struct mr_worker_queue queue = {MR_SLICE_LIT(SELFTEST_QUEUE), 1};
    *open = (struct mr_req_node_open){.req.op = MR_OP_NODE_OPEN,
                                      .name = MR_SLICE_LIT("selftest"),
                                      .queues = &queue,
                                      .queues_n = 1,
                                      .slots = 1,
                                      .lease_ms = LEASE_MS,
                                      .events = {.stop = told_to_stop}};
    enum mr_err err = mr_broker_call(self->client->broker, &open->req);
    mr_req_done(&open->req);
    if (err != MR_OK)
        mr_event_wait(&self->stop, AGAIN_MS * MR_NS_PER_MS);
    return err == MR_OK;
}

static void close_node(struct process *self, uint64_t node)
{
    struct mr_req_node_close close = {.req.op = MR_OP_NODE_CLOSE, .node = node};
    enum mr_err err = mr_broker_call(self->client->broker, &close.req);
    (void)err; /* it may be gone already */
    mr_req_done(&close.req);
}

/* False when the node is gone. */
static bool take_and_run(struct process *self, const struct mr_req_node_open *node)
{
    struct mr_req_take take = {
        .req.op = MR_OP_TAKE, .node = node->node, .max = TAKE_MAX, .wait_ms = TAKE_WAIT_MS};
    enum mr_err err = mr_broker_call(self->client->broker, &take.req);
    for (struct mr_lease *lease = err == MR_OK ? take.leases : NULL, *next; lease; lease = next) {
        next = lease->next;
        run_lease(self, lease, node->first_slot);
    }
    mr_req_done(&take.req);
    return err == MR_OK || err == MR_EMPTY;
}

static bool beat(struct process *self, uint64_t node, int64_t *last_ns)
{
    int64_t now_ns = mr_mono_now(mr_clock_system()).ns;
    if (now_ns - *last_ns < BEAT_MS * MR_NS_PER_MS)
        return true;
    *last_ns = now_ns;
    struct mr_req_beat beat = {.req.op = MR_OP_BEAT, .node = node};
    enum mr_err err = mr_broker_call(self->client->broker, &beat.req);
    mr_req_done(&beat.req);
    return err == MR_OK;
}

static void *work_on(void *arg)
{
    struct process *self = arg;
    struct mr_req_node_open node;
    bool open = false;
    int64_t beat_ns = 0;
    while (!mr_event_is_set(&self->stop)) {
        if (!open && !open_node(self, &node))
            continue;
        open = take_and_run(self, &node) && beat(self, node.node, &beat_ns);
        if (!open)
            close_node(self, node.node);
    }
    struct mr_event never;
    mr_event_init(&never);
    while (atomic_load(&self->finishes) > 0)
        mr_event_wait(&never, AGAIN_MS * MR_NS_PER_MS);
    if (open)
        close_node(self, node.node);
    return NULL;
}

static int work_hearing(struct process *self)
{
    pthread_t thread;
    cli_must(mr_thread_start(&thread, "node", work_on, self));
    mr_event_wait(&self->stop, INT64_MAX);
    mr_thread_join(thread);
    return CLI_OK;
}

/* ---- processes ------------------------------------------------------------------------------- */

struct waiter {
    struct mr_event *stop;
    sigset_t signals;
};

static void *await_signal(void *arg)
{
    struct waiter *waiter = arg;
    int number;
    sigwait(&waiter->signals, &number);
    mr_event_set(waiter->stop);
    return NULL;
}

static int live(const struct selftest_load *load, int (*work)(struct process *self))
{
    struct process self = {.load = load};
    struct waiter waiter = {.stop = &self.stop};
    struct mr_detail detail = {0};
    pthread_t thread;
    mr_event_init(&self.stop);
    mr_diag_set_level(MR_DIAG_ERROR); /* connections that break are the plan */
    sigemptyset(&waiter.signals);
    sigaddset(&waiter.signals, SIGTERM);
    sigprocmask(SIG_BLOCK, &waiter.signals, NULL);
    cli_must(mr_thread_start(&thread, "signals", await_signal, &waiter));
    enum mr_err err = mr_client_open(load->url, NULL, &self.client, &detail);
    if (err != MR_OK)
        return cli_fail_detail(err, "cannot open", load->url, &detail);
    int code = work(&self);
    mr_client_close(self.client);
    mr_thread_join(thread);
    return code;
}

static int producer_body(const struct selftest_load *load)
{
    return live(load, produce_all);
}

static int worker_body(const struct selftest_load *load)
{
    return live(load, work_plainly);
}

static int hearing_worker_body(const struct selftest_load *load)
{
    return live(load, work_hearing);
}

selftest_body *const selftest_bodies[SELFTEST_LOADS] = {producer_body, producer_body, worker_body,
                                                        hearing_worker_body};
