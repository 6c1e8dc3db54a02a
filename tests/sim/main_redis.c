/* SPDX-License-Identifier: Apache-2.0 */
/*
 * millrace-redis: real load on real Redis deployments while Sentinels fail over and the slots of a
 * Cluster move, and then the account of it: which tasks were acknowledged, which are there, which ends
 * were accepted and did not hold; and of each second task, which has a topic, whether its one result was taken and
 * committed. Producers, workers and the master have a connection each. Where all replicas were waited for, nothing may
 * be missing; without that the program says what was lost.
 *
 * MR_FAILOVERS and MR_MOVES say how many; MR_RISKY adds a round of failovers without waiting for
 * replicas.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "broker/redis/redis.h"
#include "broker/result.h"
#include "redis/slot.h"
#include "support/redis_rig.h"

enum {
    PRODUCERS = 2,
    WORKERS = 2,
    QUEUES = 4,
    TASKS_MAX = 400000, /* of one producer */
    BATCH = 8,
    PACE_MS = 10, /* between two batches of a producer */
    TAKE = 16,
    LEASE_MS = 3000,
    BEAT_MS = 500,
    SOME = 400,           /* tasks that must end before the next blow */
    PATIENCE_MS = 120000, /* what has not come by then never will */
};

/* What is known of a task. */
struct fate {
    _Atomic bool acked;
    _Atomic uint8_t runs, accepted; /* of its ends */
    _Atomic bool result;            /* it was committed, at some time */
    _Atomic uint8_t committed;      /* so often that was accepted */
    bool there, done;               /* in the end */
};

struct chaos {
    const char *name;
    struct redis_rig *rig;
    uint32_t wait_replicas;
    struct fate *fates; /* by producer and number */
    _Atomic uint32_t sent[PRODUCERS], doubts, ended, stale;
    _Atomic bool producers_stop, workers_stop, master_stops;
    struct thread {
        struct chaos *chaos;
        uint32_t number;
        pthread_t thread;
    } producers[PRODUCERS], workers[WORKERS], master;
};

static _Noreturn void die(const char *what, enum mr_err err)
{
    (void)fprintf(stderr, "millrace-redis: %s: %s\n", what, mr_err_text(err));
    exit(EXIT_FAILURE);
}

static void rest(int64_t ms)
{
    struct mr_event never;
    mr_event_init(&never);
    (void)mr_event_wait(&never, ms * MR_NS_PER_MS);
}

static int64_t now_ms(void)
{
    return mr_mono_now(mr_clock_system()).ns / MR_NS_PER_MS;
}

static struct mr_broker *open_broker(const struct chaos *chaos)
{
    struct mr_redis_broker_options options = {
        .url = redis_rig_url(chaos->rig), .wait_replicas = chaos->wait_replicas, .open_ms = 30000};
    struct mr_broker *broker = NULL;
    struct mr_detail detail = {.text = ""};
    enum mr_err err = mr_redis_broker_open(&options, &broker, &detail);
    if (err != MR_OK)
        die(detail.text, err);
    return broker;
}

static struct fate *fate_of(struct chaos *chaos, uint32_t producer, uint32_t number)
{
    return &chaos->fates[(size_t)producer * TASKS_MAX + number];
}

/* Of an id; NULL: it is none of ours. */
static struct fate *fate_by_id(struct chaos *chaos, struct mr_slice id)
{
    char text[MR_ID_MAX + 1] = "", *end = NULL;
    memcpy(text, id.data, id.len <= MR_ID_MAX ? id.len : 0);
    unsigned long producer = text[0] == 'p' ? strtoul(text + 1, &end, 10) : PRODUCERS;
    unsigned long number = end != NULL && *end == '-' ? strtoul(end + 1, &end, 10) : TASKS_MAX;
    return producer < PRODUCERS && number < TASKS_MAX
               ? fate_of(chaos, (uint32_t)producer, (uint32_t)number)
               : NULL;
}

static bool has_topic(uint32_t number)
{
    return number % 2 == 1;
}

/* ---- producers ------------------------------------------------------------------------------ */

/* An answer that leaves open what became of a task; it is sent again with the same id. */
static bool is_open_question(enum mr_err err)
{
    return err == MR_UNAVAILABLE || err == MR_TIMEOUT || err == MR_BUSY;
}

static void send_until_acked(struct chaos *chaos, struct mr_broker *broker, uint32_t producer,
                             uint32_t first)
{
    static const char *const queues[QUEUES] = {"q0", "q1", "q2", "q3"};
    char ids[BATCH][32];
    struct mr_task_options tasks[BATCH];
    struct mr_enqueue_result results[BATCH];
    for (uint32_t i = 0; i < BATCH; i++) {
        (void)snprintf(ids[i], sizeof ids[i], "p%u-%u", producer, first + i);
        tasks[i] = (struct mr_task_options){
            .queue = mr_slice_str(queues[(first / BATCH + producer) % QUEUES]),
            .id = mr_slice_str(ids[i]),
            .payload = mr_slice_str("work"),
            .topic = has_topic(first + i) ? MR_SLICE_LIT("ends") : (struct mr_slice){0},
            .retention_ms = MR_MS_PER_DAY};
    }
    for (uint32_t left = BATCH; left > 0;) {
        struct mr_req_enqueue req = {
            .req.op = MR_OP_ENQUEUE, .tasks = tasks, .n = left, .results = results};
        enum mr_err err = mr_broker_call(broker, &req.req);
        (void)err; /* it is in the items, too */
        mr_req_done(&req.req);
        uint32_t kept = 0;
        for (uint32_t i = 0; i < left; i++) {
            if (is_open_question(results[i].err)) {
                atomic_fetch_add(&chaos->doubts, 1);
                tasks[kept++] = tasks[i];
            } else if (results[i].err == MR_OK || results[i].err == MR_CONFLICT) {
                atomic_store(&fate_by_id(chaos, tasks[i].id)->acked, true);
            } else {
                die("enqueue", results[i].err);
            }
        }
        left = kept;
        rest(PACE_MS);
    }
}

static void *produce(void *arg)
{
    struct thread *self = arg;
    struct chaos *chaos = self->chaos;
    struct mr_broker *broker = open_broker(chaos);
    for (uint32_t n = 0; n + BATCH <= TASKS_MAX && !atomic_load(&chaos->producers_stop);
         n += BATCH) {
        atomic_store(&chaos->sent[self->number], n + BATCH);
        send_until_acked(chaos, broker, self->number, n);
    }
    mr_broker_close(broker);
    return NULL;
}

/* ---- workers -------------------------------------------------------------------------------- */

static void ignore_stop(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    (void)epoch, (void)reason, (void)arg;
}

static uint64_t open_node(struct mr_broker *broker, bool master)
{
    char topic[MR_NAME_MAX + 1];
    struct mr_worker_queue results = {.name = mr_result_queue(MR_SLICE_LIT("ends"), topic)};
    static const struct mr_worker_queue queues[QUEUES] = {
        {.name = MR_SLICE_LIT("q0"), .weight = 1},
        {.name = MR_SLICE_LIT("q1"), .weight = 1},
        {.name = MR_SLICE_LIT("q2"), .weight = 1},
        {.name = MR_SLICE_LIT("q3"), .weight = 1}};
    for (int64_t since = now_ms();; rest(PACE_MS)) {
        struct mr_req_node_open req = {.req.op = MR_OP_NODE_OPEN,
                                       .role = master ? MR_NODE_MASTER : MR_NODE_WORKER,
                                       .name = MR_SLICE_LIT("chaos"),
                                       .queues = master ? &results : queues,
                                       .queues_n = master ? 1 : QUEUES,
                                       .slots = master ? 0 : TAKE,
                                       .lease_ms = LEASE_MS,
                                       .events = {.stop = ignore_stop}};
        enum mr_err err = mr_broker_call(broker, &req.req);
        mr_req_done(&req.req);
        if (err == MR_OK)
            return req.node;
        if (!is_open_question(err) || now_ms() - since > PATIENCE_MS)
            die("node", err);
    }
}

/* Reports ends until each is accepted or refused. */
static void finish(struct chaos *chaos, struct mr_broker *broker, struct mr_finish *items, size_t n)
{
    enum mr_err errs[TAKE];
    for (int64_t since = now_ms(); n > 0; rest(n > 0 ? PACE_MS : 0)) {
        struct mr_req_finish req = {.req.op = MR_OP_FINISH, .items = items, .n = n, .errs = errs};
        enum mr_err err = mr_broker_call(broker, &req.req);
        (void)err; /* it is in the items, too */
        mr_req_done(&req.req);
        size_t kept = 0;
        for (size_t i = 0; i < n; i++) {
            struct fate *fate = fate_by_id(chaos, items[i].id);
            if (is_open_question(errs[i])) {
                items[kept++] = items[i];
            } else if (errs[i] == MR_OK) {
                atomic_fetch_add(&fate->accepted, 1);
                atomic_fetch_add(&chaos->ended, 1);
            } else {
                atomic_fetch_add(&chaos->stale, 1);
            }
        }
        n = kept;
        if (now_ms() - since > PATIENCE_MS)
            die("finish", errs[0]);
    }
}

static void run_all(struct chaos *chaos, struct mr_broker *broker, struct mr_lease *leases)
{
    struct mr_finish items[TAKE];
    size_t n = 0;
    for (struct mr_lease *lease = leases; lease != NULL; lease = lease->next) {
        if (mr_broker_lease_open(broker, lease) != MR_OK || n == TAKE ||
            fate_by_id(chaos, lease->task.id) == NULL)
            die("a task that nobody sent", MR_DAMAGED);
        atomic_fetch_add(&fate_by_id(chaos, lease->task.id)->runs, 1);
        items[n++] = (struct mr_finish){
            .id = lease->task.id, .epoch = lease->epoch, .ref = lease->ref, .outcome = MR_DONE};
    }
    finish(chaos, broker, items, n);
    while (leases != NULL) {
        struct mr_lease *next = leases->next;
        mr_lease_free(leases);
        leases = next;
    }
}

/* One result, until it is known to be gone, or to be another's. */
static void commit(struct chaos *chaos, struct mr_broker *broker, const struct mr_lease *lease)
{
    struct mr_result result;
    struct fate *fate;
    if (mr_result_decode(lease->task.payload, &result) != MR_OK ||
        (fate = fate_by_id(chaos, result.task_id)) == NULL || !result.final)
        die("a result that nobody left", MR_DAMAGED);
    struct mr_finish item = {.id = lease->task.id, .epoch = lease->epoch, .ref = lease->ref};
    enum mr_err err = MR_BUSY;
    for (int64_t since = now_ms(); is_open_question(err); rest(PACE_MS / 5)) {
        struct mr_req_finish req = {.req.op = MR_OP_FINISH, .items = &item, .n = 1, .errs = &err};
        enum mr_err whole = mr_broker_call(broker, &req.req);
        (void)whole; /* it is in the item, too */
        mr_req_done(&req.req);
        if (now_ms() - since > PATIENCE_MS)
            die("commit", err);
    }
    atomic_fetch_add(&fate->committed, err == MR_OK);
    if (err == MR_OK || err == MR_NOT_FOUND)
        atomic_store(&fate->result, true);
}

static void commit_all(struct chaos *chaos, struct mr_broker *broker, struct mr_lease *leases)
{
    while (leases != NULL) {
        struct mr_lease *next = leases->next;
        if (mr_broker_lease_open(broker, leases) != MR_OK)
            die("a result that nobody left", MR_DAMAGED);
        commit(chaos, broker, leases);
        mr_lease_free(leases);
        leases = next;
    }
}

/* A worker, or the master. */
static void *work(void *arg)
{
    struct thread *self = arg;
    struct chaos *chaos = self->chaos;
    bool master = self == &chaos->master;
    struct mr_broker *broker = open_broker(chaos);
    uint64_t node = open_node(broker, master);
    int64_t beaten = now_ms();
    while (!atomic_load(master ? &chaos->master_stops : &chaos->workers_stop)) {
        struct mr_req_take take = {
            .req.op = MR_OP_TAKE, .node = node, .max = TAKE, .wait_ms = BEAT_MS / 2};
        enum mr_err err = mr_broker_call(broker, &take.req);
        if (err == MR_OK && master)
            commit_all(chaos, broker, take.leases);
        else if (err == MR_OK)
            run_all(chaos, broker, take.leases);
        mr_req_done(&take.req);
        if (now_ms() - beaten > BEAT_MS) {
            struct mr_req_beat beat = {.req.op = MR_OP_BEAT, .node = node};
            enum mr_err beat_err = mr_broker_call(broker, &beat.req);
            mr_req_done(&beat.req);
            err = beat_err != MR_OK ? beat_err : err;
            beaten = now_ms();
        }
        if (err == MR_NOT_FOUND || err == MR_CLOSED)
            node = open_node(broker, master); /* it was taken for dead */
        else if (err != MR_OK && err != MR_EMPTY)
            rest(PACE_MS);
    }
    mr_broker_close(broker);
    return NULL;
}

/* ---- the account ---------------------------------------------------------------------------- */

static void note_page(struct chaos *chaos, const struct mr_req_list *page)
{
    for (size_t i = 0; i < page->n; i++) {
        struct fate *fate = fate_by_id(chaos, page->tasks[i].id);
        if (fate == NULL)
            die("a task that nobody sent", MR_DAMAGED);
        fate->there = true;
        fate->done = page->tasks[i].state == MR_COMPLETED;
    }
}

static void note_what_is_there(struct chaos *chaos)
{
    struct mr_broker *broker = open_broker(chaos);
    char cursor[MR_CURSOR_MAX] = "";
    do {
        struct mr_req_list page = {.req.op = MR_OP_LIST,
                                   .options = {.limit = MR_BATCH_MAX, .cursor = cursor}};
        enum mr_err err = mr_broker_call(broker, &page.req);
        if (err != MR_OK)
            die("list", err);
        note_page(chaos, &page);
        memcpy(cursor, page.next, sizeof cursor);
        mr_req_done(&page.req);
    } while (cursor[0] != '\0');
    mr_broker_close(broker);
}

struct account {
    uint32_t sent, acked, lost, unfinished, ran_again, accepted_again;
    uint32_t results_lost, committed_again;
};

static struct account account(struct chaos *chaos)
{
    struct account sum = {0};
    for (uint32_t p = 0; p < PRODUCERS; p++) {
        uint32_t sent = atomic_load(&chaos->sent[p]);
        sum.sent += sent;
        for (uint32_t i = 0; i < sent; i++) {
            const struct fate *fate = fate_of(chaos, p, i);
            sum.acked += fate->acked;
            sum.lost += fate->acked && !fate->there;
            sum.unfinished += fate->there && !fate->done;
            sum.ran_again += fate->runs > 1;
            sum.accepted_again += fate->accepted > 1;
            sum.results_lost += has_topic(i) && fate->done && !fate->result;
            sum.committed_again += fate->committed > 1;
        }
    }
    return sum;
}

/* ---- a round -------------------------------------------------------------------------------- */

static void start(struct chaos *chaos, const char *name, struct redis_rig *rig,
                  uint32_t wait_replicas)
{
    *chaos = (struct chaos){.name = name, .rig = rig, .wait_replicas = wait_replicas};
    chaos->fates = calloc((size_t)PRODUCERS * TASKS_MAX, sizeof *chaos->fates);
    if (chaos->fates == NULL)
        die("start", MR_NOMEM);
    RIG_ALL(rig, "FLUSHALL");
    chaos->master = (struct thread){.chaos = chaos};
    if (mr_thread_start(&chaos->master.thread, "chaos", work, &chaos->master) != MR_OK)
        die("thread", MR_NOMEM);
    for (uint32_t i = 0; i < PRODUCERS + WORKERS; i++) {
        bool produces = i < PRODUCERS;
        struct thread *thread = produces ? &chaos->producers[i] : &chaos->workers[i - PRODUCERS];
        *thread = (struct thread){.chaos = chaos, .number = produces ? i : i - PRODUCERS};
        if (mr_thread_start(&thread->thread, "chaos", produces ? produce : work, thread) != MR_OK)
            die("thread", MR_NOMEM);
    }
}

/* Waits until so many more tasks have ended. */
static void go_on(struct chaos *chaos, uint32_t n)
{
    uint32_t until = atomic_load(&chaos->ended) + n;
    for (int64_t since = now_ms(); atomic_load(&chaos->ended) < until; rest(1))
        if (now_ms() - since > PATIENCE_MS)
            die("no task ends any more", MR_TIMEOUT);
}

static bool all_ended(struct chaos *chaos)
{
    for (uint32_t p = 0; p < PRODUCERS; p++)
        for (uint32_t i = 0; i < atomic_load(&chaos->sent[p]); i++)
            if (fate_of(chaos, p, i)->acked && fate_of(chaos, p, i)->accepted == 0)
                return false;
    return true;
}

static uint32_t results_missing(struct chaos *chaos)
{
    uint32_t n = 0;
    for (uint32_t p = 0; p < PRODUCERS; p++)
        for (uint32_t i = 0; i < atomic_load(&chaos->sent[p]); i++) {
            const struct fate *fate = fate_of(chaos, p, i);
            n += has_topic(i) && fate->accepted > 0 && !fate->result;
        }
    return n;
}

/* As long as some come: the master commits them one by one, and may be far behind. */
static void await_results(struct chaos *chaos)
{
    int64_t since = now_ms();
    for (uint32_t missing = results_missing(chaos); missing > 0 && now_ms() - since < 8 * LEASE_MS;
         rest(PACE_MS)) {
        uint32_t now_missing = results_missing(chaos);
        since = now_missing < missing ? now_ms() : since;
        missing = now_missing;
    }
}

/* Ends the load and answers whether all is as it must be. */
static bool end(struct chaos *chaos, uint32_t blows)
{
    atomic_store(&chaos->producers_stop, true);
    for (size_t i = 0; i < PRODUCERS; i++)
        mr_thread_join(chaos->producers[i].thread);
    /* What was lost never ends; leases of what was in hand at a blow must run out first. */
    for (int64_t since = now_ms(); !all_ended(chaos) && now_ms() - since < 8 * LEASE_MS;)
        rest(PACE_MS);
    atomic_store(&chaos->workers_stop, true);
    for (size_t i = 0; i < WORKERS; i++)
        mr_thread_join(chaos->workers[i].thread);
    await_results(chaos);
    atomic_store(&chaos->master_stops, true);
    mr_thread_join(chaos->master.thread);
    note_what_is_there(chaos);
    struct account sum = account(chaos);
    (void)printf("%s, %u blows, %s: %u tasks sent, %u acknowledged, %u open answers; lost %u, "
                 "unfinished %u, ends that did not hold %u, results lost %u, committed twice %u; "
                 "%u ran again, %u late ends refused\n",
                 chaos->name, blows,
                 chaos->wait_replicas > 0 ? "all replicas waited for" : "no replica waited for",
                 sum.sent, sum.acked, atomic_load(&chaos->doubts), sum.lost, sum.unfinished,
                 sum.accepted_again, sum.results_lost, sum.committed_again, sum.ran_again,
                 atomic_load(&chaos->stale));
    (void)fflush(stdout);
    free(chaos->fates);
    return sum.lost == 0 && sum.unfinished == 0 && sum.accepted_again == 0 &&
           sum.results_lost == 0 && sum.committed_again == 0;
}

static bool fail_over(struct redis_rig *rig, uint32_t failovers, uint32_t wait_replicas)
{
    static struct chaos chaos;
    start(&chaos, "sentinel", rig, wait_replicas);
    for (uint32_t i = 0; i < failovers; i++) {
        go_on(&chaos, SOME);
        struct redis_rig_server *primary = redis_rig_primary(rig);
        redis_rig_failover(primary, i % 4 == 3 ? REDIS_RIG_GENTLY : REDIS_RIG_BY_KILL);
        redis_rig_start(primary);
        redis_rig_wait_healthy(rig);
    }
    go_on(&chaos, SOME);
    return end(&chaos, failovers) || wait_replicas == 0;
}

static bool move_slots(struct redis_rig *rig, uint32_t moves)
{
    static struct chaos chaos;
    start(&chaos, "cluster", rig, 1);
    for (uint32_t i = 0; i < moves; i++) {
        char queue[8];
        (void)snprintf(queue, sizeof queue, "q%u", i % QUEUES);
        unsigned slot = redis_slot(mr_slice_str(queue));
        struct redis_rig_server *owner = redis_rig_owner(rig, slot), *to = owner;
        for (unsigned at = i; to == owner; at += 1000)
            to = redis_rig_owner(rig, at);
        go_on(&chaos, SOME);
        redis_rig_move_slot(rig, slot, to);
    }
    go_on(&chaos, SOME);
    return end(&chaos, moves);
}

static uint32_t wanted(const char *name, uint32_t otherwise)
{
    const char *text = getenv(name);
    int64_t value = otherwise;
    return text != NULL && mr_parse_int64(text, &value) == MR_OK ? (uint32_t)value : otherwise;
}

int main(void)
{
    bool ok = true;
    struct redis_rig *rig = redis_rig_sentinel(NULL);
    ok = fail_over(rig, wanted("MR_FAILOVERS", 1), REDIS_RIG_REPLICAS) && ok;
    if (getenv("MR_RISKY") != NULL)
        ok = fail_over(rig, wanted("MR_FAILOVERS", 1), 0) && ok;
    redis_rig_stop(rig);
    rig = redis_rig_cluster(NULL);
    ok = move_slots(rig, wanted("MR_MOVES", 1)) && ok;
    redis_rig_stop(rig);
    return ok ? EXIT_SUCCESS : EXIT_FAILURE;
}
