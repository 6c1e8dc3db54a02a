/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Every allocation on the server's loop fails once while a producer, a person and a worker call it:
 * each call ends or is answered, and when there is memory again everything works. A sanitizer has
 * its own allocator; there nothing fails.
 */
#include <errno.h>

#include "millrace/v1/events.pb-c.h"
#include "millrace/v1/nodes.pb-c.h"
#include "millrace/v1/timers.pb-c.h"
#include "unit/api_rig.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define FAILING 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define FAILING 0
#endif
#endif
#ifndef FAILING
#define FAILING 1
#endif

/* Of this thread: allocations before one fails; negative: none does. */
static _Thread_local long allocs_left = -1;
static _Thread_local long allocs_failed;

#if FAILING
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *memory, size_t size);

static int must_fail(void)
{
    if (allocs_left < 0 || allocs_left-- > 0)
        return 0;
    allocs_failed++;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t size)
{
    return must_fail() ? NULL : __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    return must_fail() ? NULL : __libc_calloc(n, size);
}

void *realloc(void *memory, size_t size)
{
    return must_fail() ? NULL : __libc_realloc(memory, size);
}
#endif

/* ---- arming the server's thread ------------------------------------------------------------- */

static void arm(void *arg)
{
    allocs_left = *(const long *)arg;
    allocs_failed = 0;
}

static void disarm(void *arg)
{
    *(long *)arg = allocs_failed;
    allocs_left = -1;
}

/* ---- what is called meanwhile --------------------------------------------------------------- */

static bool call_begin(struct talk *talk, struct client *client, const char *path)
{
    *talk = (struct talk){.deadline_ms = 3000, .client = client, .path = path};
    mr_lock_init(&talk->lock);
    mr_list_init(&talk->messages);
    mr_event_init(&talk->closed);
    on_loop(client->rig->loop, do_begin, talk);
    return talk->err == MR_OK;
}

static void call_once(struct client *client, const char *path, const ProtobufCMessage *message)
{
    struct talk talk;
    if (!call_begin(&talk, client, path))
        return; /* the connection was cut */
    talk_send(&talk, message);
    talk_half_close(&talk);
    int status = talk_end(&talk);
    assert_int_not_equal(status, MR_RPC_DEADLINE);
    talk_done(&talk);
}

static void produce(struct client *client)
{
    Millrace__V1__EnqueueRequest request = MILLRACE__V1__ENQUEUE_REQUEST__INIT;
    Millrace__V1__NewTask task = MILLRACE__V1__NEW_TASK__INIT, *tasks[] = {&task, &task};
    task.queue = (char *)(uintptr_t) "q";
    request.tasks = tasks;
    request.n_tasks = 2;
    call_once(client, PATH("Tasks/Enqueue"), &request.base);
    call_once(client, PATH("Tasks/EnqueueStream"), &request.base);
}

static void look_around(struct client *client)
{
    Millrace__V1__QueueListRequest queues = MILLRACE__V1__QUEUE_LIST_REQUEST__INIT;
    Millrace__V1__ListRequest list = MILLRACE__V1__LIST_REQUEST__INIT;
    Millrace__V1__ControlRequest change = MILLRACE__V1__CONTROL_REQUEST__INIT;
    Millrace__V1__ControlItem item = MILLRACE__V1__CONTROL_ITEM__INIT, *items[] = {&item};
    Grpc__Reflection__V1__ServerReflectionRequest ask =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__INIT;
    Grpc__Health__V1__HealthCheckRequest health = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    item.id = (char *)(uintptr_t) "x";
    change.items = items;
    change.n_items = 1;
    ask.message_request_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_LIST_SERVICES;
    ask.list_services = (char *)(uintptr_t) "*";
    call_once(client, PATH("Queues/List"), &queues.base);
    call_once(client, PATH("Tasks/List"), &list.base);
    call_once(client, PATH("Tasks/Control"), &change.base);
    call_once(client, "/grpc.health.v1.Health/Check", &health.base);
    call_once(client, "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", &ask.base);
}

static void wait_and_wonder(struct client *client)
{
    Millrace__V1__WaitRequest wait = MILLRACE__V1__WAIT_REQUEST__INIT;
    Millrace__V1__GetRequest why = MILLRACE__V1__GET_REQUEST__INIT;
    Millrace__V1__NodeListRequest nodes = MILLRACE__V1__NODE_LIST_REQUEST__INIT;
    wait.id = (char *)(uintptr_t) "nowhere";
    why.id = (char *)(uintptr_t) "waits";
    call_once(client, PATH("Tasks/Wait"), &wait.base);
    call_once(client, PATH("Tasks/Why"), &why.base);
    call_once(client, PATH("Nodes/List"), &nodes.base);
}

/* Jobs, and their streams; timers. */
static void look_at_jobs(struct client *client, const char *job)
{
    Millrace__V1__JobSubmitRequest submit = MILLRACE__V1__JOB_SUBMIT_REQUEST__INIT;
    Millrace__V1__JobDefinition definition = MILLRACE__V1__JOB_DEFINITION__INIT;
    Millrace__V1__JobRequest one = MILLRACE__V1__JOB_REQUEST__INIT;
    Millrace__V1__JobListRequest list = MILLRACE__V1__JOB_LIST_REQUEST__INIT;
    Millrace__V1__PartListRequest parts = MILLRACE__V1__PART_LIST_REQUEST__INIT;
    Millrace__V1__TimerListRequest timers = MILLRACE__V1__TIMER_LIST_REQUEST__INIT;
    ProtobufCBinaryData part = mr_pb_of_bytes(MR_SLICE_LIT("part"));
    definition.queue = (char *)(uintptr_t) "j";
    submit.definition = &definition;
    submit.parts = &part;
    submit.n_parts = 1;
    one.id = parts.id = (char *)(uintptr_t)job;
    list.limit = 1;
    call_once(client, PATH("Jobs/Submit"), &submit.base);
    call_once(client, PATH("Jobs/Get"), &one.base);
    call_once(client, PATH("Jobs/List"), &list.base);
    call_once(client, PATH("Jobs/ListParts"), &parts.base);
    call_once(client, PATH("Jobs/Result"), &one.base); /* there is none */
    call_once(client, PATH("Jobs/Retry"), &one.base);  /* nothing has failed */
    call_once(client, PATH("Timers/List"), &timers.base);
}

/* Until it was told something, or the call has ended. */
static void watch_job(struct client *client, const char *job)
{
    Millrace__V1__JobWatchRequest request = MILLRACE__V1__JOB_WATCH_REQUEST__INIT;
    struct talk talk;
    if (!call_begin(&talk, client, PATH("Jobs/Watch")))
        return;
    request.id = (char *)(uintptr_t)job;
    talk_send(&talk, &request.base);
    talk_half_close(&talk);
    if (talk_next(&talk, &millrace__v1__job_event__descriptor) == NULL)
        assert_int_not_equal(talk_end(&talk), MR_RPC_DEADLINE);
    talk_done(&talk);
}

/* The same of all queues. */
static void watch(struct client *client)
{
    Millrace__V1__WatchRequest request = MILLRACE__V1__WATCH_REQUEST__INIT;
    struct talk talk;
    if (!call_begin(&talk, client, PATH("Events/Watch")))
        return;
    talk_send(&talk, &request.base);
    talk_half_close(&talk);
    if (talk_next(&talk, &millrace__v1__event__descriptor) == NULL)
        assert_int_not_equal(talk_end(&talk), MR_RPC_DEADLINE);
    talk_done(&talk);
}

static void work(struct client *client, uint64_t incarnation)
{
    Millrace__V1__WorkerMessage message = MILLRACE__V1__WORKER_MESSAGE__INIT;
    Millrace__V1__Hello hello = MILLRACE__V1__HELLO__INIT;
    Millrace__V1__QueueWeight queue = MILLRACE__V1__QUEUE_WEIGHT__INIT, *queues[] = {&queue};
    Millrace__V1__Take take = MILLRACE__V1__TAKE__INIT;
    Millrace__V1__Beat beat = MILLRACE__V1__BEAT__INIT;
    Millrace__V1__Finish finish = MILLRACE__V1__FINISH__INIT;
    struct talk talk;
    if (!call_begin(&talk, client, PATH("Work/Attach")))
        return;
    queue.name = (char *)(uintptr_t) "q";
    hello.incarnation = incarnation;
    hello.slots = 1;
    hello.lease_ms = 60000;
    hello.queues = queues;
    hello.n_queues = 1;
    message.kind_case = MILLRACE__V1__WORKER_MESSAGE__KIND_HELLO;
    message.hello = &hello;
    talk_send(&talk, &message.base);
    take.max = 2;
    message.kind_case = MILLRACE__V1__WORKER_MESSAGE__KIND_TAKE;
    message.take = &take;
    talk_send(&talk, &message.base);
    message.kind_case = MILLRACE__V1__WORKER_MESSAGE__KIND_BEAT;
    message.beat = &beat;
    talk_send(&talk, &message.base);
    message.kind_case = MILLRACE__V1__WORKER_MESSAGE__KIND_FINISH;
    message.finish = &finish;
    talk_send(&talk, &message.base);
    for (int answers = 0; answers < 4; answers++)
        if (talk_next(&talk, &millrace__v1__server_message__descriptor) == NULL)
            break;
    talk_half_close(&talk);
    assert_int_not_equal(talk_end(&talk), MR_RPC_DEADLINE);
    talk_done(&talk);
}

/* Whether a call goes through: a connection that was cut comes back. */
static bool is_up(struct client *client)
{
    Millrace__V1__StatsRequest request = MILLRACE__V1__STATS_REQUEST__INIT;
    struct talk talk;
    if (!call_begin(&talk, client, PATH("Server/Stats")))
        return false;
    talk_send(&talk, &request.base);
    talk_half_close(&talk);
    bool up = talk_end(&talk) == MR_RPC_OK;
    talk_done(&talk);
    return up;
}

static void without_memory_calls_end_and_nothing_is_left(void **state)
{
    (void)state;
    struct mr_api_options options = {.grace_ms = 50};
    struct rig *rig = rig_start_as(&options, RIG_HAS_ALL, NULL, NULL);
    long failed = 1;
    char job[64];
    put(&rig->client, "held", "waits");
    snprintf(job, sizeof job, "%s", put_job(&rig->client, "j"));
    for (long n = 0; failed > 0 && n < 3000; n++) {
        on_loop(rig->server, arm, &n);
        produce(&rig->client);
        work(&rig->client, (uint64_t)n + 1);
        look_around(&rig->client);
        wait_and_wonder(&rig->client);
        watch(&rig->client);
        look_at_jobs(&rig->client, job);
        watch_job(&rig->client, job);
        on_loop(rig->server, disarm, &failed);
        WAIT_UNTIL(is_up(&rig->client));
        mr_arena_reset(&rig->arena);
    }
    assert_int_equal(failed, 0); /* a round in which nothing was left to fail */
    put(&rig->client, "other", "after");
    assert_int_equal(state_of(&rig->client, "after"), MR_PENDING);
    rig_stop(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_memory_calls_end_and_nothing_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
