/* SPDX-License-Identifier: Apache-2.0 */
/* Workers over their streams: takes, finishes, and streams that break. */
#include "unit/api_rig.h"

enum { SHORT_MS = 200 };

typedef Millrace__V1__WorkerMessage worker_message;
typedef Millrace__V1__ServerMessage server_message;
#define SAYS(kind)  MILLRACE__V1__WORKER_MESSAGE__KIND_##kind
#define HEARS(kind) MILLRACE__V1__SERVER_MESSAGE__KIND_##kind

static int begin(void **state)
{
    *state = rig_start(NULL);
    return 0;
}

static int begin_short(void **state)
{
    struct mr_api_options options = {.grace_ms = SHORT_MS};
    *state = rig_start(&options);
    return 0;
}

static int end(void **state)
{
    rig_stop(*state);
    return 0;
}

/* ---- what a worker says and hears ----------------------------------------------------------- */

struct worker {
    struct talk talk;
    const char *queue;
    uint64_t incarnation;
    uint32_t slots;
    int64_t lease_ms;
    const uint64_t *holds;
    size_t holds_n;
};

static void say(struct worker *worker, const worker_message *message)
{
    talk_send(&worker->talk, &message->base);
}

static const server_message *hear(struct worker *worker)
{
    return (const void *)talk_next(&worker->talk, &millrace__v1__server_message__descriptor);
}

static const server_message *hear_kind(struct worker *worker, int kind)
{
    const server_message *message = hear(worker);
    assert_non_null(message);
    assert_int_equal(message->kind_case, kind);
    return message;
}

static void say_hello(struct worker *worker)
{
    worker_message message = MILLRACE__V1__WORKER_MESSAGE__INIT;
    Millrace__V1__Hello hello = MILLRACE__V1__HELLO__INIT;
    Millrace__V1__QueueWeight queue = MILLRACE__V1__QUEUE_WEIGHT__INIT, *queues[] = {&queue};
    queue.name = (char *)(uintptr_t)(worker->queue != NULL ? worker->queue : "q");
    hello.node = (char *)(uintptr_t) "node";
    hello.incarnation = worker->incarnation != 0 ? worker->incarnation : 7;
    hello.slots = worker->slots != 0 ? worker->slots : 4;
    hello.lease_ms = worker->lease_ms != 0 ? worker->lease_ms : 60000;
    hello.queues = queues;
    hello.n_queues = 1;
    hello.holds = (uint64_t *)(uintptr_t)worker->holds;
    hello.n_holds = worker->holds_n;
    message.kind_case = SAYS(HELLO);
    message.hello = &hello;
    say(worker, &message);
}

static bool attach_with(struct worker *worker, struct client *client)
{
    worker->talk = (struct talk){.hold = worker->talk.hold};
    talk_begin(&worker->talk, client, PATH("Work/Attach"));
    say_hello(worker);
    return hear_kind(worker, HEARS(WELCOME))->welcome->resumed;
}

static void say_take(struct worker *worker, uint32_t tag, uint32_t max, int64_t wait_ms)
{
    worker_message message = MILLRACE__V1__WORKER_MESSAGE__INIT;
    Millrace__V1__Take take = MILLRACE__V1__TAKE__INIT;
    take.tag = tag;
    take.max = max;
    take.wait_ms = wait_ms;
    message.kind_case = SAYS(TAKE);
    message.take = &take;
    say(worker, &message);
}

static const Millrace__V1__Taken *hear_tasks(struct worker *worker, uint32_t tag)
{
    const Millrace__V1__Taken *tasks = hear_kind(worker, HEARS(TASKS))->tasks;
    assert_int_equal(tasks->tag, tag);
    return tasks;
}

/* One task, which must come. */
static const Millrace__V1__Task *take_one(struct worker *worker)
{
    say_take(worker, 1, 1, 60000);
    const Millrace__V1__Taken *tasks = hear_tasks(worker, 1);
    assert_int_equal(tasks->code, MR_OK);
    assert_int_equal(tasks->n_tasks, 1);
    return tasks->tasks[0];
}

static void say_finish(struct worker *worker, uint32_t tag, const char *id, uint64_t epoch)
{
    worker_message message = MILLRACE__V1__WORKER_MESSAGE__INIT;
    Millrace__V1__Finish finish = MILLRACE__V1__FINISH__INIT;
    Millrace__V1__FinishItem item = MILLRACE__V1__FINISH_ITEM__INIT, *items[] = {&item};
    item.id = (char *)(uintptr_t)id;
    item.epoch = epoch;
    finish.tag = tag;
    finish.items = items;
    finish.n_items = 1;
    message.kind_case = SAYS(FINISH);
    message.finish = &finish;
    say(worker, &message);
}

static int finish(struct worker *worker, const char *id, uint64_t epoch)
{
    say_finish(worker, 9, id, epoch);
    const Millrace__V1__Finished *finished = hear_kind(worker, HEARS(FINISHED))->finished;
    assert_int_equal(finished->tag, 9);
    assert_int_equal(finished->code, MR_OK);
    return finished->n_codes == 0 ? MR_OK : (int)finished->codes[0];
}

static void say_begun(struct worker *worker, uint32_t slot, uint64_t epoch)
{
    worker_message message = MILLRACE__V1__WORKER_MESSAGE__INIT;
    Millrace__V1__Begun begun = MILLRACE__V1__BEGUN__INIT;
    begun.slots = &slot;
    begun.epochs = &epoch;
    begun.n_slots = begun.n_epochs = 1;
    message.kind_case = SAYS(BEGUN);
    message.begun = &begun;
    say(worker, &message);
}

static int beat(struct worker *worker, uint64_t epoch, int percent, const char *text)
{
    worker_message message = MILLRACE__V1__WORKER_MESSAGE__INIT;
    Millrace__V1__Beat in = MILLRACE__V1__BEAT__INIT;
    Millrace__V1__Progress progress = MILLRACE__V1__PROGRESS__INIT, *list[] = {&progress};
    progress.epoch = epoch;
    progress.percent = percent;
    progress.text = (char *)(uintptr_t)text;
    in.tag = 5;
    in.progress = list;
    in.n_progress = 1;
    message.kind_case = SAYS(BEAT);
    message.beat = &in;
    say(worker, &message);
    const Millrace__V1__Beaten *beaten = hear_kind(worker, HEARS(BEATEN))->beaten;
    assert_int_equal(beaten->tag, 5);
    return (int)beaten->code;
}

static void say_bye(struct worker *worker)
{
    worker_message message = MILLRACE__V1__WORKER_MESSAGE__INIT;
    Millrace__V1__Bye bye = MILLRACE__V1__BYE__INIT;
    message.kind_case = SAYS(BYE);
    message.bye = &bye;
    say(worker, &message);
}

/* ---- working -------------------------------------------------------------------------------- */

static void a_worker_takes_runs_and_finishes(void **state)
{
    struct rig *rig = *state;
    struct worker worker = {0};
    assert_false(attach_with(&worker, &rig->client));
    put(&rig->client, "q", "t1");
    const Millrace__V1__Task *task = take_one(&worker);
    assert_string_equal(task->id, "t1");
    assert_string_equal(task->queue, "q");
    assert_int_equal(task->attempt, 1);
    assert_int_equal(task->state, MR_ACTIVE);
    assert_memory_equal(task->payload.data, "payload", task->payload.len);
    say_begun(&worker, 0, task->epoch);
    assert_int_equal(beat(&worker, task->epoch, 40, "half way"), MR_OK);
    const Millrace__V1__Task *seen = look(&rig->client, "t1");
    assert_string_equal(seen->progress, "40 half way");
    assert_string_equal(seen->node, "node");
    assert_int_equal(finish(&worker, "t1", task->epoch + 1), MR_STALE);
    assert_int_equal(finish(&worker, "t1", task->epoch), MR_OK);
    assert_int_equal(finish(&worker, "t1", task->epoch), MR_NOT_FOUND);
    assert_null(look(&rig->client, "t1"));
    talk_done(&worker.talk);
}

static void a_take_waits_and_is_woken(void **state)
{
    struct rig *rig = *state;
    struct worker worker = {0};
    attach_with(&worker, &rig->client);
    say_take(&worker, 1, 5, 0);
    assert_int_equal(hear_tasks(&worker, 1)->code, MR_EMPTY);
    say_take(&worker, 2, 5, 20);
    assert_int_equal(hear_tasks(&worker, 2)->code, MR_EMPTY);
    say_take(&worker, 3, 5, 60000);
    put(&rig->client, "q", "t1");
    assert_int_equal(hear_tasks(&worker, 3)->n_tasks, 1);
    say_take(&worker, 4, 0, 0);
    assert_int_equal(hear_tasks(&worker, 4)->code, MR_INVALID);
    for (uint32_t i = 0; i < 65; i++)
        say_take(&worker, 100 + i, 1, 60000);
    assert_int_equal(hear_tasks(&worker, 164)->code, MR_BUSY);
    talk_done(&worker.talk);
}

static void big_tasks_come_in_messages_that_fit(void **state)
{
    enum { N = 8 };
    struct rig *rig = *state;
    struct worker worker = {0};
    struct talk talk = {0};
    Millrace__V1__EnqueueRequest request = MILLRACE__V1__ENQUEUE_REQUEST__INIT;
    Millrace__V1__NewTask task = MILLRACE__V1__NEW_TASK__INIT, *tasks[] = {&task};
    uint8_t *payload = calloc(1, MR_PAYLOAD_MAX);
    task.queue = (char *)(uintptr_t) "q";
    task.payload = (ProtobufCBinaryData){.data = payload, .len = MR_PAYLOAD_MAX};
    request.tasks = tasks;
    request.n_tasks = 1;
    for (int i = 0; i < N; i++)
        assert_non_null(call_unary(&talk, &rig->client, PATH("Tasks/Enqueue"), &request.base,
                                   &millrace__v1__enqueue_response__descriptor));
    attach_with(&worker, &rig->client);
    for (size_t seen = 0; seen < N;) {
        say_take(&worker, 1, N, 60000);
        const Millrace__V1__Taken *taken = hear_tasks(&worker, 1);
        assert_in_range(taken->n_tasks, 1, 3);
        for (size_t i = 0; i < taken->n_tasks; i++)
            assert_int_equal(finish(&worker, taken->tasks[i]->id, taken->tasks[i]->epoch), MR_OK);
        seen += taken->n_tasks;
    }
    free(payload);
    talk_done(&worker.talk);
}

static void a_cancelled_run_is_told_to_stop(void **state)
{
    struct rig *rig = *state;
    struct worker worker = {0};
    attach_with(&worker, &rig->client);
    put(&rig->client, "q", "t1");
    const Millrace__V1__Task *task = take_one(&worker);
    assert_int_equal(control(&rig->client, MILLRACE__V1__VERB__CANCEL, "t1"), MR_OK);
    const Millrace__V1__Stop *stop = hear_kind(&worker, HEARS(STOP))->stop;
    assert_int_equal(stop->epoch, task->epoch);
    assert_int_equal(stop->reason, MILLRACE__V1__STOP__REASON__CANCELLED_BY_CALLER);
    talk_done(&worker.talk);
}

/* Somebody waits while another holds more than it has slots for. */
static void a_hoarder_is_told_that_others_wait(void **state)
{
    struct rig *rig = *state;
    struct worker hoarder = {.slots = 1}, poor = {.incarnation = 8};
    attach_with(&hoarder, &rig->client);
    for (int i = 0; i < 3; i++)
        put(&rig->client, "q", "");
    say_take(&hoarder, 1, 3, 0);
    assert_int_equal(hear_tasks(&hoarder, 1)->n_tasks, 3);
    attach_with(&poor, &rig->client);
    say_take(&poor, 1, 1, 60000);
    hear_kind(&hoarder, HEARS(WANTED));
    talk_done(&hoarder.talk);
    talk_done(&poor.talk);
}

static void finishes_without_a_stream_count(void **state)
{
    struct rig *rig = *state;
    struct worker worker = {0};
    struct talk talk = {0};
    attach_with(&worker, &rig->client);
    put(&rig->client, "q", "t1");
    const Millrace__V1__Task *task = take_one(&worker);
    Millrace__V1__FinishRequest request = MILLRACE__V1__FINISH_REQUEST__INIT;
    Millrace__V1__FinishItem item = MILLRACE__V1__FINISH_ITEM__INIT, *items[] = {&item};
    item.id = (char *)(uintptr_t) "t1";
    item.epoch = task->epoch;
    request.items = items;
    request.n_items = 1;
    const Millrace__V1__FinishResponse *reply =
        (const void *)call_unary(&talk, &rig->client, PATH("Work/Finish"), &request.base,
                                 &millrace__v1__finish_response__descriptor);
    assert_int_equal(reply->n_codes, 0);
    reply = (const void *)call_unary(&talk, &rig->client, PATH("Work/Finish"), &request.base,
                                     &millrace__v1__finish_response__descriptor);
    assert_int_equal(reply->codes[0], MR_NOT_FOUND);
    talk_done(&worker.talk);
}

/* ---- bad manners ---------------------------------------------------------------------------- */

static void hello_comes_first_and_once(void **state)
{
    struct rig *rig = *state;
    struct worker worker = {0};
    talk_begin(&worker.talk, &rig->client, PATH("Work/Attach"));
    say_take(&worker, 1, 1, 0);
    assert_int_equal(talk_end(&worker.talk), MR_RPC_INVALID);
    assert_string_equal(worker.talk.text, "Hello comes first");
    talk_done(&worker.talk);
    attach_with(&worker, &rig->client);
    say_hello(&worker);
    assert_int_equal(talk_end(&worker.talk), MR_RPC_INVALID);
    talk_done(&worker.talk);
}

static void hellos_out_of_bounds_are_refused(void **state)
{
    struct rig *rig = *state;
    static const struct worker bad[] = {
        {.slots = MR_SLOTS_MAX + 1}, {.lease_ms = -1}, {.lease_ms = 3600001}, {.queue = "br{ace"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct worker worker = bad[i];
        talk_begin(&worker.talk, &rig->client, PATH("Work/Attach"));
        say_hello(&worker);
        assert_null(hear(&worker));
        assert_int_equal(talk_end(&worker.talk), MR_RPC_INVALID);
        talk_done(&worker.talk);
    }
}

static void a_slot_that_is_not_there_ends_the_stream(void **state)
{
    struct rig *rig = *state;
    struct worker worker = {.slots = 2};
    attach_with(&worker, &rig->client);
    say_begun(&worker, 2, 0);
    assert_int_equal(talk_end(&worker.talk), MR_RPC_INVALID);
    talk_done(&worker.talk);
}

/* ---- streams that end ----------------------------------------------------------------------- */

static void what_is_in_hand_goes_back_with_bye(void **state)
{
    struct rig *rig = *state;
    put(&rig->client, "q", "t1");
    for (int polite = 0; polite < 2; polite++) {
        struct worker worker = {0};
        attach_with(&worker, &rig->client);
        take_one(&worker);
        if (polite)
            say_bye(&worker);
        else
            talk_half_close(&worker.talk);
        assert_int_equal(talk_end(&worker.talk), MR_RPC_OK);
        assert_int_equal(state_of(&rig->client, "t1"), MR_PENDING);
        talk_done(&worker.talk);
    }
}

static void a_worker_that_comes_back_keeps_its_leases(void **state)
{
    struct rig *rig = *state;
    struct worker worker = {0};
    attach_with(&worker, &rig->client);
    put(&rig->client, "q", "kept");
    const Millrace__V1__Task *kept = take_one(&worker);
    put(&rig->client, "q", "lost");
    const Millrace__V1__Task *lost = take_one(&worker);
    assert_string_equal(lost->id, "lost");
    talk_done(&worker.talk);
    assert_int_equal(state_of(&rig->client, "kept"), MR_ACTIVE);
    assert_int_equal(control(&rig->client, MILLRACE__V1__VERB__CANCEL, "kept"), MR_OK);
    /* It says that "lost" never arrived, and that it holds something that nobody gave it. */
    uint64_t holds[] = {12345, kept->epoch};
    worker.holds = holds;
    worker.holds_n = 2;
    assert_true(attach_with(&worker, &rig->client));
    const Millrace__V1__Stop *stop = hear_kind(&worker, HEARS(STOP))->stop;
    assert_int_equal(stop->epoch, 12345);
    assert_int_equal(stop->reason, MILLRACE__V1__STOP__REASON__LEASE_LOST);
    stop = hear_kind(&worker, HEARS(STOP))->stop;
    assert_int_equal(stop->epoch, kept->epoch);
    assert_int_equal(stop->reason, MILLRACE__V1__STOP__REASON__CANCELLED_BY_CALLER);
    const Millrace__V1__Task *again = take_one(&worker);
    assert_string_equal(again->id, "lost");
    assert_true(again->epoch > lost->epoch);
    assert_int_equal(again->crashes, 0);
    assert_int_equal(finish(&worker, "lost", lost->epoch), MR_STALE);
    assert_int_equal(finish(&worker, "kept", kept->epoch), MR_OK);
    talk_done(&worker.talk);
}

static void another_incarnation_is_another_node(void **state)
{
    struct rig *rig = *state;
    struct worker worker = {0}, other = {.incarnation = 8};
    attach_with(&worker, &rig->client);
    put(&rig->client, "q", "t1");
    take_one(&worker);
    talk_done(&worker.talk);
    assert_false(attach_with(&other, &rig->client));
    say_take(&other, 1, 1, 0);
    assert_int_equal(hear_tasks(&other, 1)->code, MR_EMPTY);
    talk_done(&other.talk);
}

static void a_second_stream_takes_over(void **state)
{
    struct rig *rig = *state;
    struct worker worker = {0}, second = {0};
    attach_with(&worker, &rig->client);
    put(&rig->client, "q", "t1");
    uint64_t epoch = take_one(&worker)->epoch;
    say_take(&worker, 2, 1, 60000);
    second.holds = &epoch;
    second.holds_n = 1;
    assert_true(attach_with(&second, &rig->client));
    assert_int_equal(talk_end(&worker.talk), 10);
    assert_string_equal(worker.talk.code, "STALE");
    /* The take of the old stream must swallow nothing. */
    put(&rig->client, "q", "t2");
    assert_string_equal(take_one(&second)->id, "t2");
    assert_int_equal(finish(&second, "t1", epoch), MR_OK);
    talk_done(&worker.talk);
    talk_done(&second.talk);
}

static void after_the_grace_others_get_the_tasks(void **state)
{
    struct rig *rig = *state;
    struct worker worker = {0}, other = {.incarnation = 8};
    attach_with(&worker, &rig->client);
    put(&rig->client, "q", "begun");
    uint64_t epoch = take_one(&worker)->epoch;
    say_begun(&worker, 1, epoch);
    put(&rig->client, "q", "held");
    take_one(&worker);
    assert_int_equal(beat(&worker, 0, 0, ""), MR_OK); /* so that begun was heard */
    talk_done(&worker.talk);
    attach_with(&other, &rig->client);
    const Millrace__V1__Task *first = take_one(&other), *second = take_one(&other);
    assert_string_equal(first->id, "begun");
    assert_int_equal(first->crashes, 1);
    assert_string_equal(second->id, "held");
    assert_int_equal(second->crashes, 0);
    assert_false(attach_with(&worker, &rig->client));
    assert_int_equal(finish(&worker, "begun", epoch), MR_STALE);
    talk_done(&other.talk);
    talk_done(&worker.talk);
}

static void a_take_answered_to_nobody_goes_back_at_once(void **state)
{
    struct rig *rig = *state; /* with the long grace */
    struct worker worker = {0}, other = {.incarnation = 8};
    attach_with(&worker, &rig->client);
    say_take(&worker, 1, 10, 60000);
    assert_int_equal(beat(&worker, 0, 0, ""), MR_OK); /* so that the take was heard */
    talk_done(&worker.talk);
    put(&rig->client, "q", "t1");
    attach_with(&other, &rig->client);
    const Millrace__V1__Task *task = take_one(&other);
    assert_string_equal(task->id, "t1");
    assert_int_equal(task->crashes, 0);
    talk_done(&other.talk);
}

static void a_node_without_beats_is_dead_and_begins_anew(void **state)
{
    struct rig *rig = *state;
    struct worker worker = {.lease_ms = SHORT_MS};
    attach_with(&worker, &rig->client);
    put(&rig->client, "q", "t1");
    uint64_t epoch = take_one(&worker)->epoch;
    const Millrace__V1__Stop *stop = hear_kind(&worker, HEARS(STOP))->stop;
    assert_int_equal(stop->epoch, epoch);
    assert_int_equal(stop->reason, MILLRACE__V1__STOP__REASON__LEASE_LOST);
    assert_int_equal(beat(&worker, 0, 0, ""), MR_NOT_FOUND);
    say_take(&worker, 3, 1, 0);
    assert_int_equal(hear_tasks(&worker, 3)->code, MR_CLOSED);
    assert_int_equal(finish(&worker, "t1", epoch), MR_STALE);
    talk_done(&worker.talk);
    assert_false(attach_with(&worker, &rig->client));
    assert_string_equal(take_one(&worker)->id, "t1");
    talk_done(&worker.talk);
}

/* While its stream is broken a node dies: whoever comes back then begins anew on the same call. */
static void a_worker_that_comes_back_too_late_begins_anew(void **state)
{
    struct rig *rig = *state;
    struct worker worker = {.lease_ms = SHORT_MS}, second;
    attach_with(&worker, &rig->client);
    put(&rig->client, "q", "t1");
    uint64_t epoch = take_one(&worker)->epoch;
    hear_kind(&worker, HEARS(STOP));
    second = worker;
    second.holds = &epoch;
    second.holds_n = 1;
    assert_false(attach_with(&second, &rig->client));
    assert_string_equal(take_one(&second)->id, "t1");
    talk_done(&worker.talk);
    talk_done(&second.talk);
}

/* ---- slow readers --------------------------------------------------------------------------- */

static void nothing_is_taken_for_a_worker_that_does_not_read(void **state)
{
    enum { TAKES = 60, N = 40 };
    struct rig *rig = *state;
    struct worker slow = {.slots = N}, other = {.incarnation = 8, .slots = N};
    struct talk talk = {0};
    Millrace__V1__EnqueueRequest request = MILLRACE__V1__ENQUEUE_REQUEST__INIT;
    Millrace__V1__NewTask task = MILLRACE__V1__NEW_TASK__INIT, *tasks[] = {&task};
    uint8_t *payload = calloc(1, MR_PAYLOAD_MAX);
    task.queue = (char *)(uintptr_t) "q";
    task.payload = (ProtobufCBinaryData){.data = payload, .len = MR_PAYLOAD_MAX};
    request.tasks = tasks;
    request.n_tasks = 1;
    for (int i = 0; i < N; i++)
        assert_non_null(call_unary(&talk, &rig->client, PATH("Tasks/Enqueue"), &request.base,
                                   &millrace__v1__enqueue_response__descriptor));
    struct client lazy;
    client_open(rig, &lazy, NULL);
    slow.talk.hold = true;
    talk_begin(&slow.talk, &lazy, PATH("Work/Attach"));
    say_hello(&slow);
    for (uint32_t i = 0; i < TAKES; i++)
        say_take(&slow, i, 1, 0);
    attach_with(&other, &rig->client);
    size_t seen = 0;
    for (; seen < N / 2; seen++) { /* the rest may be in windows and buffers */
        take_one(&other);
        mr_arena_reset(&rig->arena);
    }
    on_loop(rig->loop, do_read_on, &slow.talk);
    hear_kind(&slow, HEARS(WELCOME));
    for (uint32_t i = 0; i < TAKES; i++) {
        seen += hear_kind(&slow, HEARS(TASKS))->tasks->n_tasks;
        mr_arena_reset(&rig->arena);
    }
    for (; seen < N; seen++)
        take_one(&other);
    say_take(&other, 1, 1, 0);
    assert_int_equal(hear_tasks(&other, 1)->code, MR_EMPTY);
    free(payload);
    talk_done(&slow.talk);
    talk_done(&other.talk);
    client_close(&lazy);
}

/* ---- tokens --------------------------------------------------------------------------------- */

static void a_worker_of_some_queues_is_kept_to_them(void **state)
{
    struct rig *rig = *state;
    struct worker worker = {.queue = "bank"}, thief = {.queue = "mail"};
    struct client mail;
    client_open(rig, &mail, make_token(rig, MR_ROLE_WORKER, "mail", NULL));
    thief.queue = "bank";
    talk_begin(&thief.talk, &mail, PATH("Work/Attach"));
    say_hello(&thief);
    assert_int_equal(talk_end(&thief.talk), MR_RPC_DENIED);
    assert_non_null(strstr(thief.talk.text, "not for bank"));
    talk_done(&thief.talk);
    thief.queue = "mail";
    attach_with(&thief, &mail);
    attach_with(&worker, &rig->client); /* the same name and incarnation, another caller */
    put(&rig->client, "bank", "gold");
    uint64_t epoch = take_one(&worker)->epoch;
    assert_int_equal(finish(&thief, "gold", epoch), MR_STALE);
    assert_int_equal(finish(&worker, "gold", epoch), MR_OK);
    talk_done(&thief.talk);
    talk_done(&worker.talk);
    client_close(&mail);
}

static void a_revoked_worker_is_cut_off_without_grace(void **state)
{
    struct rig *rig = *state;
    struct worker worker = {0};
    struct client client;
    struct mr_token token;
    struct mr_detail detail;
    client_open(rig, &client, make_token(rig, MR_ROLE_WORKER, "", &token));
    attach_with(&worker, &client);
    put(&rig->client, "q", "t1");
    take_one(&worker);
    assert_int_equal(mr_tokens_revoke(rig->tokens, token.id, &detail), MR_OK);
    assert_int_equal(talk_end(&worker.talk), MR_RPC_UNAUTHENTICATED);
    int64_t before = mr_mono_now(mr_clock_system()).ns;
    WAIT_UNTIL(state_of(&rig->client, "t1") == MILLRACE__V1__STATE__PENDING);
    assert_true(mr_mono_now(mr_clock_system()).ns - before < 4 * MR_NS_PER_S);
    talk_done(&worker.talk);
    client_close(&client);
}

/* ---- the server stops ----------------------------------------------------------------------- */

struct stopper {
    struct rig *rig;
    pthread_t thread;
};

static void *stop_server(void *arg)
{
    struct stopper *stopper = arg;
    rig_stop_server(stopper->rig, 60000);
    return NULL;
}

static void a_stopping_server_lets_workers_finish_what_they_hold(void **state)
{
    struct rig *rig = *state;
    struct worker worker = {0}, idle = {.incarnation = 8};
    struct stopper stopper = {.rig = rig};
    attach_with(&worker, &rig->client);
    attach_with(&idle, &rig->client);
    say_take(&idle, 1, 1, 60000);
    put(&rig->client, "other", "x");
    put(&rig->client, "q", "t1");
    assert_int_equal(hear_tasks(&idle, 1)->n_tasks, 1);
    put(&rig->client, "q", "t2");
    uint64_t epoch = take_one(&worker)->epoch;
    say_bye(&idle);
    assert_int_equal(talk_end(&idle.talk), MR_RPC_OK);
    assert_int_equal(mr_thread_start(&stopper.thread, "stop", stop_server, &stopper), MR_OK);
    assert_int_equal(finish(&worker, "t2", epoch), MR_OK);
    assert_int_equal(talk_end(&worker.talk), MR_RPC_UNAVAILABLE);
    mr_thread_join(stopper.thread);
    talk_done(&worker.talk);
    talk_done(&idle.talk);
}

/* Says that it watches, and that the server stops. */
static void watch_begin(struct rig *rig, struct talk *talk)
{
    Grpc__Health__V1__HealthCheckRequest request = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    talk_begin(talk, &rig->client, "/grpc.health.v1.Health/Watch");
    talk_send(talk, &request.base);
    (void)talk_next(talk, &grpc__health__v1__health_check_response__descriptor);
}

static void put_behind(struct rig *rig, const char *id)
{
    struct mr_task_options task = {.queue = MR_SLICE_LIT("q"), .id = mr_slice_str(id)};
    struct mr_enqueue_result result;
    struct mr_req_enqueue req = {
        .req.op = MR_OP_ENQUEUE, .tasks = &task, .n = 1, .results = &result};
    assert_int_equal(mr_broker_call(rig->broker, &req.req), MR_OK);
    assert_int_equal(result.err, MR_OK);
    mr_req_done(&req.req);
}

/* A take that waits when the stop comes gets a task meanwhile: it goes back, and the stop does not wait for it. */
static void a_stopping_server_hands_out_nothing_to_takes_that_wait(void **state)
{
    struct rig *rig = *state;
    struct worker worker = {0};
    struct talk watch = {0};
    struct stopper stopper = {.rig = rig};
    attach_with(&worker, &rig->client);
    put(&rig->client, "q", "t1");
    uint64_t epoch = take_one(&worker)->epoch;
    say_take(&worker, 5, 1, 60000);
    watch_begin(rig, &watch);
    assert_int_equal(beat(&worker, epoch, 1, ""), MR_OK); /* so the take is there */
    assert_int_equal(mr_thread_start(&stopper.thread, "stop", stop_server, &stopper), MR_OK);
    (void)talk_next(&watch, &grpc__health__v1__health_check_response__descriptor);
    mr_mono since = mr_mono_now(mr_clock_system());
    put_behind(rig, "t2");
    assert_int_equal(finish(&worker, "t1", epoch), MR_OK);
    assert_int_equal(talk_end(&worker.talk), MR_RPC_UNAVAILABLE);
    mr_thread_join(stopper.thread);
    assert_true(mr_mono_now(mr_clock_system()).ns - since.ns < 20 * MR_NS_PER_S);
    talk_done(&worker.talk);
    talk_done(&watch);
}

static void stopping_with_workers_attached_gives_their_tasks_back(void **state)
{
    struct rig *rig = *state;
    struct worker workers[10];
    for (uint64_t i = 0; i < 10; i++) {
        workers[i] = (struct worker){.incarnation = 1 + i};
        attach_with(&workers[i], &rig->client);
        put(&rig->client, "q", "");
        take_one(&workers[i]);
    }
    for (size_t i = 0; i < 10; i++)
        say_take(&workers[i], 5, 1, 60000);
    rig_stop_server(rig, 0);
    for (size_t i = 0; i < 10; i++) {
        assert_int_equal(talk_end(&workers[i].talk), MR_RPC_UNAVAILABLE);
        talk_done(&workers[i].talk);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name)       cmocka_unit_test_setup_teardown(name, begin, end)
#define TEST_SHORT(name) cmocka_unit_test_setup_teardown(name, begin_short, end)
        TEST(a_worker_takes_runs_and_finishes),
        TEST(a_take_waits_and_is_woken),
        TEST(big_tasks_come_in_messages_that_fit),
        TEST(a_cancelled_run_is_told_to_stop),
        TEST(a_hoarder_is_told_that_others_wait),
        TEST(finishes_without_a_stream_count),
        TEST(hello_comes_first_and_once),
        TEST(hellos_out_of_bounds_are_refused),
        TEST(a_slot_that_is_not_there_ends_the_stream),
        TEST(what_is_in_hand_goes_back_with_bye),
        TEST(a_worker_that_comes_back_keeps_its_leases),
        TEST(another_incarnation_is_another_node),
        TEST(a_second_stream_takes_over),
        TEST_SHORT(after_the_grace_others_get_the_tasks),
        TEST(a_take_answered_to_nobody_goes_back_at_once),
        TEST(a_node_without_beats_is_dead_and_begins_anew),
        TEST(a_worker_that_comes_back_too_late_begins_anew),
        TEST(nothing_is_taken_for_a_worker_that_does_not_read),
        TEST(a_worker_of_some_queues_is_kept_to_them),
        TEST(a_revoked_worker_is_cut_off_without_grace),
        TEST(a_stopping_server_lets_workers_finish_what_they_hold),
        TEST(a_stopping_server_hands_out_nothing_to_takes_that_wait),
        TEST(stopping_with_workers_attached_gives_their_tasks_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
