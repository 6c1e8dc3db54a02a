/* SPDX-License-Identifier: Apache-2.0 */
/*
 * millrace-kill: a real process on a real folder, killed with SIGKILL at random instants. The child
 * has producers on several threads, a worker, and a node that speaks to the broker itself, so that
 * it hears the answer to each finish; it says what it sends and what was acknowledged through a
 * pipe. The parent kills it, opens the folder itself and lets the oracle judge what is there: what
 * was acknowledged is there, what was finished stays so. At the end a task whose handler kills the
 * process: after three crashes it must be in the archive, its neighbours done. MR_KILLS says how
 * often.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/client.h"
#include "sim/oracle_int.h"
#include "sim/rig.h"
#include "sim/simfs_int.h"

enum {
    KILLS_DEFAULT = 15,
    PRODUCERS = 4,
    SLOTS = 4,
    LIFE_MS_MAX = 400,
    POISON_CRASHES = MR_CRASHES_MAX,
    POISON_NEIGHBOURS = 20,
    VIEW_PAGES_MAX = 4096,
    DELAYED_MS_MAX = 10000, /* far more than any delay of the load */
    RETRY_MS = 10,
    TAKE_MAX = 8,
    LEASE_MS = 15000,
};

/* What the child says; written whole, so messages of several threads do not mix. */
struct message {
    char kind;
    enum mr_err err;
    uint32_t token, retried, crashes, attempt, note_len;
    enum mr_outcome outcome;
    uint64_t epoch;
    char id[MR_ID_MAX + 1];
};

enum {
    SAY_SENT = 'S',
    SAY_ANSWERED = 'A',
    SAY_RUNS = 'R',
    SAY_ENDS = 'E',
    SAY_FINISHED = 'F', /* the broker answered the end */
    SAY_WRONG = 'W',    /* a payload is not what was sent */
    SAY_READY = 'Y',
};

enum play { PLAY_LOAD, PLAY_POISON };

struct child {
    struct mr_client *client;
    int pipe;
    _Atomic uint32_t next_token;
    uint32_t last_token; /* exclusive; producers stop there */
};

/* Both sides derive a task from its token. */
static struct oracle_spec spec_of(uint32_t token, enum play play)
{
    static const char *const queues[] = {"default", "mail", "bulk"};
    struct oracle_spec spec = {.payload_len = 8 + token * 37 % 500};
    snprintf(spec.queue, sizeof spec.queue, "%s", queues[token % 3]);
    snprintf(spec.type, sizeof spec.type, "%s", play == PLAY_POISON ? "poison" : "work");
    if (token % 2)
        snprintf(spec.id, sizeof spec.id, "t-%u", token);
    spec.headers = token % ORACLE_HEADER_SETS;
    if (token % 5 == 0)
        spec.retention_ms = 3600 * MR_MS_PER_S;
    if (token % 7 == 0)
        spec.max_retry = 2;
    if (token % 11 == 0)
        spec.delay_ms = 1 + token % 200;
    return spec;
}

static void say(struct child *child, const struct message *message)
{
    ssize_t n = write(child->pipe, message, sizeof *message);
    mr_assert(n == (ssize_t)sizeof *message);
}

/* ---- the child ------------------------------------------------------------------------------ */

static void enqueue_one(struct child *child, struct oracle *specs, uint32_t token, enum play play)
{
    while (oracle_count(specs) <= token) {
        struct oracle_spec spec = spec_of(oracle_count(specs), play);
        oracle_add(specs, &spec);
    }
    struct mr_task_options options;
    uint8_t payload[1024];
    struct mr_enqueue_result result;
    oracle_options(specs, token, payload, &options);
    struct message message = {.kind = SAY_SENT, .token = token};
    say(child, &message);
    message.err = mr_enqueue(child->client, &options, 1, &result);
    message.kind = SAY_ANSWERED;
    if (message.err == MR_OK)
        message.err = result.err;
    if (message.err == MR_OK)
        memcpy(message.id, result.id, sizeof message.id);
    say(child, &message);
}

static void *produce(void *arg)
{
    struct child *child = arg;
    struct oracle *specs = oracle_new();
    for (;;) {
        uint32_t token = atomic_fetch_add(&child->next_token, 1);
        if (token >= child->last_token)
            break;
        enqueue_one(child, specs, token, PLAY_LOAD);
    }
    oracle_free(specs);
    return NULL;
}

/* Says that a run begins, and how it will end. */
static struct message say_run(struct child *child, const struct mr_task *task)
{
    struct message message = {.kind = SAY_RUNS,
                              .token = mr_load32(task->payload.data),
                              .retried = task->retried,
                              .crashes = task->crashes,
                              .attempt = task->attempt,
                              .epoch = task->epoch};
    memcpy(message.id, task->id.data, task->id.len);
    uint8_t want[1024];
    payload_fill(message.token, want, task->payload.len < 1024 ? task->payload.len : 1024);
    if (task->payload.len > 1024 || memcmp(want, task->payload.data, task->payload.len) != 0)
        message.kind = SAY_WRONG;
    say(child, &message);
    if (mr_slice_equal(task->type, mr_slice_str("poison")))
        _exit(42);
    message.kind = SAY_ENDS;
    message.outcome = message.token % 13 == 0 && task->retried == 0 ? MR_FAIL : MR_DONE;
    if (message.token % 17 == 0)
        message.outcome = MR_DROP;
    if (message.outcome != MR_DROP)
        message.note_len = ORACLE_NOTE_MIN + message.token % 300;
    say(child, &message);
    return message;
}

static enum mr_outcome handle(struct mr_run *run, void *arg)
{
    struct message message = say_run(arg, mr_run_task(run));
    char note[ORACLE_NOTE_MAX];
    if (message.note_len)
        oracle_note(message.token, message.epoch, message.note_len, note);
    if (message.outcome == MR_FAIL) {
        mr_run_error(run, "%.*s", (int)message.note_len, note);
        mr_run_retry_after(run, RETRY_MS);
    }
    if (message.outcome == MR_DONE)
        mr_assert(mr_run_result(run, mr_slice_make(note, message.note_len)) == MR_OK);
    return message.outcome;
}

/* Failures are part of the load, not news. */
static void ignore(const struct mr_task *task, const char *error, void *arg)
{
    (void)task, (void)error, (void)arg;
}

static struct mr_worker *start_worker(struct child *child, uint32_t slots)
{
    static const struct mr_worker_queue queues[] = {
        {{"default", 7}, 2}, {{"mail", 4}, 1}, {{"bulk", 4}, 1}};
    struct mr_worker_options options = {
        .queues = queues, .queues_n = 3, .slots = slots, .on_error = ignore};
    struct mr_worker *worker = NULL;
    mr_assert(mr_worker_new(child->client, &options, &worker) == MR_OK);
    mr_assert(mr_worker_handle(worker, "*", handle, child) == MR_OK);
    mr_assert(mr_worker_start(worker) == MR_OK);
    return worker;
}

/* One finish of the child's own node, under way. */
struct ending {
    struct mr_req_finish req;
    struct mr_finish item;
    enum mr_err err;
    struct child *child;
    struct mr_lease *lease;
    struct message message;
    char note[ORACLE_NOTE_MAX];
};

static void finish_answered(struct mr_req *req)
{
    struct ending *ending = req->arg;
    ending->message.kind = SAY_FINISHED;
    ending->message.err = req->err != MR_OK ? req->err : ending->err;
    say(ending->child, &ending->message);
    mr_req_done(req);
    mr_lease_free(ending->lease);
    free(ending);
}

static void run_lease(struct child *child, struct mr_lease *lease, uint32_t slot)
{
    struct mr_broker *broker = child->client->broker;
    struct ending *ending = calloc(1, sizeof *ending);
    mr_assert(ending && mr_broker_lease_open(broker, lease) == MR_OK);
    mr_broker_begun(broker, slot, lease->epoch);
    ending->child = child;
    ending->lease = lease;
    ending->message = say_run(child, &lease->task);
    ending->item = (struct mr_finish){
        .id = lease->task.id,
        .epoch = lease->epoch,
        .ref = lease->ref,
        .outcome = ending->message.outcome,
        .delay_ms = ending->message.outcome == MR_FAIL ? RETRY_MS : 0,
    };
    struct mr_slice note = mr_slice_make(ending->note, ending->message.note_len);
    if (note.len)
        oracle_note(ending->message.token, lease->epoch, note.len, ending->note);
    *(ending->message.outcome == MR_DONE ? &ending->item.result : &ending->item.error) = note;
    ending->req = (struct mr_req_finish){.items = &ending->item, .n = 1, .errs = &ending->err};
    ending->req.req = (struct mr_req){.op = MR_OP_FINISH, .done = finish_answered, .arg = ending};
    mr_broker_begun(broker, slot, 0);
    mr_broker_submit(broker, &ending->req.req);
}

static void told_to_stop(uint64_t epoch, enum mr_stop_reason reason, void *arg)
{
    (void)epoch, (void)reason, (void)arg;
}

/* A node without a worker around it: it lives shorter than its lease and need not beat. */
static void *work(void *arg)
{
    static const struct mr_worker_queue queues[] = {
        {{"default", 7}, 1}, {{"mail", 4}, 1}, {{"bulk", 4}, 1}};
    struct child *child = arg;
    struct mr_broker *broker = child->client->broker;
    struct mr_req_node_open open = {.req.op = MR_OP_NODE_OPEN,
                                    .name = MR_SLICE_LIT("bare"),
                                    .queues = queues,
                                    .queues_n = 3,
                                    .slots = 1,
                                    .lease_ms = LEASE_MS,
                                    .events = {.stop = told_to_stop}};
    mr_assert(mr_broker_call(broker, &open.req) == MR_OK);
    for (;;) {
        struct mr_req_take take = {
            .req.op = MR_OP_TAKE, .node = open.node, .max = TAKE_MAX, .wait_ms = LEASE_MS};
        enum mr_err err = mr_broker_call(broker, &take.req);
        mr_assert(err == MR_OK || err == MR_EMPTY);
        for (struct mr_lease *lease = take.leases, *next; lease; lease = next) {
            next = lease->next;
            run_lease(child, lease, open.first_slot);
        }
        mr_req_done(&take.req);
    }
    return NULL;
}

static struct mr_client *open_store(const char *dir)
{
    char url[256];
    snprintf(url, sizeof url, "file:%s", dir);
    struct mr_client_options options = {.segment_bytes = 256 * 1024};
    struct mr_client *client = NULL;
    struct mr_detail detail = {{0}};
    enum mr_err err = mr_client_open(url, &options, &client, &detail);
    if (err != MR_OK) {
        printf("the store does not open: %s: %s\n", mr_err_name(err), detail.text);
        exit(1);
    }
    return client;
}

/* Never returns: it is killed, or kills itself by the poison. */
static _Noreturn void run_child(const char *dir, int pipe, uint32_t first, uint32_t count,
                                enum play play)
{
    struct child child = {.pipe = pipe, .last_token = UINT32_MAX};
    atomic_init(&child.next_token, first);
    child.client = open_store(dir);
    if (play == PLAY_POISON && count) {
        struct oracle *specs = oracle_new();
        for (uint32_t i = 0; i < first; i++) {
            struct oracle_spec spec = spec_of(i, PLAY_LOAD);
            oracle_add(specs, &spec);
        }
        for (uint32_t i = 0; i < count; i++)
            enqueue_one(&child, specs, first + i, i == count / 2 ? PLAY_POISON : PLAY_LOAD);
        oracle_free(specs);
    }
    start_worker(&child, play == PLAY_POISON ? 1 : SLOTS);
    say(&child, &(struct message){.kind = SAY_READY});
    pthread_t threads[PRODUCERS + 1];
    for (int i = 0; play == PLAY_LOAD && i < PRODUCERS; i++)
        mr_assert(mr_thread_start(&threads[i], "producer", produce, &child) == MR_OK);
    if (play == PLAY_LOAD)
        mr_assert(mr_thread_start(&threads[PRODUCERS], "node", work, &child) == MR_OK);
    for (;;)
        pause();
}

/* ---- the parent ----------------------------------------------------------------------------- */

struct parent {
    const char *dir;
    struct oracle *oracle;
    struct oracle_op *ops;  /* by token: the enqueue under way */
    struct oracle_op *ends; /* by token: the finish under way */
    size_t ops_cap, ends_cap;
    struct mr_rand rand;
    uint32_t poison; /* its token; UINT32_MAX before */
    bool ready;
    uint64_t acked, runs, finished, poison_runs;
};

static int64_t now_ms(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * MR_MS_PER_S + now.tv_nsec / 1000000;
}

static void know(struct parent *parent, uint32_t token)
{
    while (oracle_count(parent->oracle) <= token) {
        uint32_t next = oracle_count(parent->oracle);
        struct oracle_spec spec = spec_of(next, next == parent->poison ? PLAY_POISON : PLAY_LOAD);
        oracle_add(parent->oracle, &spec);
        parent->ops = sim_grow(parent->ops, next, &parent->ops_cap, sizeof *parent->ops);
        parent->ends = sim_grow(parent->ends, next, &parent->ends_cap, sizeof *parent->ends);
    }
}

static void hear_run(struct parent *parent, const struct message *message)
{
    uint8_t payload[1024];
    struct mr_lease *lease = calloc(1, sizeof *lease);
    mr_assert(lease);
    struct mr_task *task = &lease->task;
    oracle_task(parent->oracle, message->token, payload, task); /* compared by the child */
    lease->epoch = task->epoch = message->epoch;
    task->id = mr_slice_str(message->id);
    task->state = MR_ACTIVE;
    task->retried = message->retried;
    task->crashes = message->crashes;
    task->attempt = message->attempt;
    if (oracle_leased(parent->oracle, lease) != UINT32_MAX)
        oracle_begun(parent->oracle, message->token, message->epoch);
    parent->runs++;
    parent->poison_runs += message->token == parent->poison;
    free(lease);
}

static void hear(struct parent *parent, const struct message *message)
{
    struct oracle *oracle = parent->oracle;
    if (message->kind == SAY_READY) {
        parent->ready = true;
        return;
    }
    know(parent, message->token);
    struct mr_enqueue_result result = {.err = message->err};
    struct mr_finish finish = {.epoch = message->epoch,
                               .outcome = message->outcome,
                               .error.len = message->note_len,
                               .result.len = message->note_len};
    memcpy(result.id, message->id, sizeof result.id);
    switch (message->kind) {
    case SAY_SENT:
        oracle_enqueue_sent(oracle, message->token, &parent->ops[message->token]);
        return;
    case SAY_ANSWERED:
        oracle_enqueue_answered(oracle, &parent->ops[message->token], MR_OK, &result);
        parent->acked += message->err == MR_OK;
        return;
    case SAY_RUNS:
        hear_run(parent, message);
        return;
    case SAY_ENDS:
        oracle_finish_sent(oracle, message->token, &finish, false, &parent->ends[message->token]);
        return;
    case SAY_FINISHED:
        oracle_finish_answered(oracle, &parent->ends[message->token], message->err);
        parent->finished += message->err == MR_OK;
        return;
    default:
        oracle_fail(oracle, "task %u: the handler got another payload", message->token);
    }
}

/* Reads what the child says until the deadline or its end; true at its end. */
static bool listen_until(struct parent *parent, int pipe, int64_t deadline_ms)
{
    for (;;) {
        int64_t left_ms = deadline_ms - now_ms();
        struct pollfd poll_fd = {.fd = pipe, .events = POLLIN};
        int n = poll(&poll_fd, 1, left_ms > 0 ? (int)left_ms : 0);
        if (n == 0)
            return false;
        struct message message;
        ssize_t got = read(pipe, &message, sizeof message);
        if (got == 0)
            return true;
        if (got < 0 && errno == EINTR)
            continue;
        mr_assert(got == (ssize_t)sizeof message);
        hear(parent, &message);
    }
}

static pid_t start_child(struct parent *parent, enum play play, uint32_t count, int *ret_pipe)
{
    int ends[2];
    mr_assert(pipe(ends) == 0);
    uint32_t first = oracle_count(parent->oracle);
    fflush(stdout);
    pid_t pid = fork();
    mr_assert(pid >= 0);
    if (pid == 0) {
        close(ends[0]);
        run_child(parent->dir, ends[1], first, count, play);
    }
    close(ends[1]);
    *ret_pipe = ends[0];
    return pid;
}

/* Everything in the store, over as many pages as it takes; nobody else has it open. */
struct look {
    struct mr_task_list *lists[VIEW_PAGES_MAX];
    size_t lists_n;
    struct mr_task *tasks;
    size_t n, cap;
    struct mr_queue_info infos[8];
    size_t infos_n;
    struct mr_stats stats;
};

static enum mr_err look_at(struct mr_client *client, struct look *look)
{
    const char *cursor = NULL;
    do {
        struct mr_list_options options = {
            .limit = MR_BATCH_MAX, .with_payload = true, .cursor = cursor};
        mr_assert(look->lists_n < VIEW_PAGES_MAX);
        struct mr_task_list *list = NULL;
        MR_TRY(mr_task_list_get(client, &options, &list));
        look->lists[look->lists_n++] = list;
        for (size_t i = 0; i < mr_task_list_count(list); i++) {
            look->tasks = sim_grow(look->tasks, look->n, &look->cap, sizeof *look->tasks);
            look->tasks[look->n++] = *mr_task_list_at(list, i);
        }
        cursor = mr_task_list_next(list);
    } while (cursor[0]);
    MR_TRY(mr_queue_list(client, NULL, look->infos, 8, &look->infos_n));
    return mr_stats_get(client, &look->stats);
}

static void look_done(struct look *look)
{
    for (size_t i = 0; i < look->lists_n; i++)
        mr_task_list_free(look->lists[i]);
    free(look->tasks);
    free(look);
}

/* Until nothing waits for its time any more: then no task changes its state by itself. */
static void await_due(struct parent *parent, struct mr_client *client)
{
    uint64_t waiting = 1;
    for (int64_t end_ms = now_ms() + DELAYED_MS_MAX; waiting && now_ms() < end_ms;) {
        struct mr_queue_info infos[8];
        size_t n = 0;
        if (mr_queue_list(client, NULL, infos, 8, &n) != MR_OK)
            break;
        waiting = 0;
        for (size_t i = 0; i < n; i++)
            waiting += infos[i].counts[MR_SCHEDULED] + infos[i].counts[MR_RETRY];
        poll(NULL, 0, waiting ? 5 : 0);
    }
    if (waiting)
        oracle_fail(parent->oracle, "%llu tasks do not become due", (unsigned long long)waiting);
}

static void check_store(struct parent *parent)
{
    struct mr_client *client = open_store(parent->dir);
    struct look *look = calloc(1, sizeof *look);
    mr_assert(look);
    await_due(parent, client);
    enum mr_err err = look_at(client, look);
    struct oracle_view view = {look->tasks, look->n, look->infos, look->infos_n, &look->stats};
    if (err != MR_OK)
        oracle_fail(parent->oracle, "a look at the store is answered %s", mr_err_name(err));
    else
        oracle_check(parent->oracle, &view);
    look_done(look);
    mr_client_close(client);
}

static bool reap(struct parent *parent, pid_t pid, int pipe, int want_signal)
{
    int status = 0;
    while (!listen_until(parent, pipe, now_ms() + MR_MS_PER_S))
        ;
    close(pipe);
    mr_assert(waitpid(pid, &status, 0) == pid);
    bool as_planned = want_signal ? WIFSIGNALED(status) && WTERMSIG(status) == want_signal
                                  : WIFEXITED(status) && WEXITSTATUS(status) == 42;
    if (!as_planned)
        oracle_fail(parent->oracle, "the child ended by itself (status %x)", status);
    return as_planned;
}

static void kill_once(struct parent *parent)
{
    int pipe;
    parent->ready = false;
    pid_t pid = start_child(parent, PLAY_LOAD, 0, &pipe);
    bool ended = false;
    while (!parent->ready && !ended)
        ended = listen_until(parent, pipe, now_ms() + 20);
    if (!ended)
        listen_until(parent, pipe, now_ms() + (int64_t)mr_rand_below(&parent->rand, LIFE_MS_MAX));
    kill(pid, SIGKILL);
    if (!reap(parent, pid, pipe, SIGKILL))
        return;
    oracle_crashed(parent->oracle, ORACLE_UNSEEN);
    check_store(parent);
}

/* A neighbour of the poison that has not surely ended: one whose end is under way may be there after a kill.
 * UINT32_MAX: all have. */
static uint32_t neighbour_left(const struct parent *parent, uint32_t first)
{
    for (uint32_t i = first; i < first + POISON_NEIGHBOURS; i++)
        if (i != parent->poison && (parent->oracle->facts[i].sure & ~(GONE | COMPLETED)) != 0)
            return i;
    return UINT32_MAX;
}

/* The state of the poison task, and whether all its neighbours ended. */
static void judge_poison(struct parent *parent, uint32_t first)
{
    struct mr_client *client = open_store(parent->dir);
    struct mr_task_list *list = NULL;
    enum mr_err err =
        mr_task_get(client, mr_slice_str(oracle_id(parent->oracle, parent->poison)), &list);
    if (err != MR_OK) {
        oracle_fail(parent->oracle, "the poison task is not found: %s", mr_err_name(err));
    } else {
        const struct mr_task *task = mr_task_list_at(list, 0);
        if (task->state != MR_ARCHIVED || task->crashes != POISON_CRASHES)
            oracle_fail(parent->oracle, "the poison task is %s after %u crashes",
                        mr_state_name(task->state), task->crashes);
        mr_task_list_free(list);
    }
    mr_client_close(client);
    if (parent->poison_runs != POISON_CRASHES)
        oracle_fail(parent->oracle, "the poison task ran %llu times",
                    (unsigned long long)parent->poison_runs);
    uint32_t left = neighbour_left(parent, first);
    if (left != UINT32_MAX)
        oracle_fail(parent->oracle, "task %u, a neighbour of the poison, did not end", left);
}

static void poison(struct parent *parent)
{
    uint32_t first = oracle_count(parent->oracle);
    parent->poison = first + POISON_NEIGHBOURS / 2;
    /* Three lives end by the poison; in the fourth its neighbours are worked off. */
    for (int life = 0; life <= POISON_CRASHES && !oracle_error(parent->oracle); life++) {
        int pipe;
        pid_t pid = start_child(parent, PLAY_POISON, life == 0 ? POISON_NEIGHBOURS : 0, &pipe);
        if (life < POISON_CRASHES) {
            reap(parent, pid, pipe, 0);
        } else {
            bool ended = false;
            int64_t end_ms = now_ms() + 30 * MR_MS_PER_S;
            while (!ended && now_ms() < end_ms && neighbour_left(parent, first) != UINT32_MAX)
                ended = listen_until(parent, pipe, now_ms() + 20);
            kill(pid, SIGKILL);
            reap(parent, pid, pipe, SIGKILL);
        }
        oracle_crashed(parent->oracle, ORACLE_UNSEEN);
        check_store(parent);
    }
    if (!oracle_error(parent->oracle))
        judge_poison(parent, first);
}

int main(void)
{
    uint64_t kills = rig_env("MR_KILLS", KILLS_DEFAULT), done = 0;
    const char *tmp = getenv("TMPDIR");
    char dir[200], command[256];
    snprintf(dir, sizeof dir, "%s/millrace-kill-XXXXXX", tmp ? tmp : "/tmp");
    mr_assert(mkdtemp(dir));
    struct parent parent = {.dir = dir, .oracle = oracle_new(), .poison = UINT32_MAX};
    mr_rand_seed_system(&parent.rand);
    oracle_ignore_order(parent.oracle);
    while (done < kills && !oracle_error(parent.oracle)) {
        kill_once(&parent);
        done++;
    }
    if (parent.finished == 0)
        oracle_fail(parent.oracle, "no finish was ever answered");
    if (!oracle_error(parent.oracle))
        poison(&parent);
    printf("%llu kills, %llu tasks acknowledged, %llu runs, %llu ends acknowledged\n",
           (unsigned long long)done, (unsigned long long)parent.acked,
           (unsigned long long)parent.runs, (unsigned long long)parent.finished);
    const char *error = oracle_error(parent.oracle);
    if (error)
        printf("%s\n  the store is kept in %s\n", error, dir);
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    if (!error && system(command) != 0)
        printf("%s is left behind\n", dir);
    printf("%llu passed, %d failed\n", (unsigned long long)(error ? done - 1 : done),
           error ? 1 : 0);
    int failed = error ? 1 : 0;
    oracle_free(parent.oracle);
    free(parent.ops);
    free(parent.ends);
    return failed;
}
