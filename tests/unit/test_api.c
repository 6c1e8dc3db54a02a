/* SPDX-License-Identifier: Apache-2.0 */
/* Calls and streams over a real connection: what goes in, what comes out, how they end. */
#include "unit/api_rig.h"

static int begin(void **state)
{
    *state = rig_start(NULL);
    return 0;
}

static int end(void **state)
{
    rig_stop(*state);
    return 0;
}

static Millrace__V1__EnqueueRequest *request_of(struct rig *rig, size_t n, size_t payload)
{
    Millrace__V1__EnqueueRequest *request = mr_arena_alloc(&rig->arena, sizeof *request);
    Millrace__V1__NewTask *tasks = mr_arena_calloc(&rig->arena, n + 1, sizeof *tasks);
    uint8_t *bytes = mr_arena_calloc(&rig->arena, 1, payload + 1);
    millrace__v1__enqueue_request__init(request);
    request->tasks = mr_arena_calloc(&rig->arena, n + 1, sizeof *request->tasks);
    request->n_tasks = n;
    for (size_t i = 0; i < n; i++) {
        millrace__v1__new_task__init(&tasks[i]);
        tasks[i].payload = (ProtobufCBinaryData){.data = bytes, .len = payload};
        request->tasks[i] = &tasks[i];
    }
    return request;
}

static const Millrace__V1__EnqueueResponse *enqueue(struct rig *rig, struct talk *talk,
                                                    const Millrace__V1__EnqueueRequest *request)
{
    return (const void *)call_unary(talk, &rig->client, PATH("Tasks/Enqueue"), &request->base,
                                    &millrace__v1__enqueue_response__descriptor);
}

/* ---- enqueue -------------------------------------------------------------------------------- */

static void what_was_enqueued_is_there(void **state)
{
    struct rig *rig = *state;
    Millrace__V1__EnqueueRequest *request = request_of(rig, 3, 10);
    Millrace__V1__Header header = MILLRACE__V1__HEADER__INIT, *headers[] = {&header};
    struct talk talk = {0};
    header.name = (char *)(uintptr_t) "trace";
    header.value = mr_pb_of_bytes(MR_SLICE_LIT("a\0b"));
    request->tasks[1]->id = (char *)(uintptr_t) "mine";
    request->tasks[1]->queue = (char *)(uintptr_t) "mail";
    request->tasks[1]->type = (char *)(uintptr_t) "send";
    request->tasks[1]->priority = 2.5;
    request->tasks[1]->max_retry = -1;
    request->tasks[1]->headers = headers;
    request->tasks[1]->n_headers = 1;
    const Millrace__V1__EnqueueResponse *reply = enqueue(rig, &talk, request);
    assert_int_equal(talk.status, MR_RPC_OK);
    assert_int_equal(reply->n_results, 3);
    for (size_t i = 0; i < 3; i++) {
        assert_int_equal(reply->results[i]->code, MR_OK);
        assert_int_equal(reply->results[i]->state, MR_PENDING);
    }
    assert_string_equal(reply->results[1]->id, "mine");
    assert_int_equal(strlen(reply->results[0]->id), MR_UUID_TEXT_LEN);
    const Millrace__V1__Task *task = look(&rig->client, "mine");
    assert_string_equal(task->queue, "mail");
    assert_string_equal(task->type, "send");
    assert_true(task->priority == 2.5);
    assert_int_equal(task->max_retry, 0);
    assert_int_equal(task->payload.len, 10);
    assert_int_equal(task->n_headers, 1);
    assert_int_equal(task->headers[0]->value.len, 3);
}

static void refused_tasks_say_why_and_the_others_stay(void **state)
{
    struct rig *rig = *state;
    struct talk talk = {0};
    char name[200];
    memset(name, 'x', sizeof name - 1);
    name[sizeof name - 1] = '\0';
    put(&rig->client, "", "taken");
    Millrace__V1__EnqueueRequest *request = request_of(rig, 4, 10);
    request->tasks[0]->id = (char *)(uintptr_t) "taken";
    request->tasks[1]->queue = name;
    request->tasks[3]->payload.len = 0;
    request->tasks[3]->delay_ms = -1;
    const Millrace__V1__EnqueueResponse *reply = enqueue(rig, &talk, request);
    assert_int_equal(talk.status, MR_RPC_OK);
    assert_int_equal(reply->results[0]->code, MR_CONFLICT);
    assert_int_equal(reply->results[0]->state, MR_PENDING);
    assert_string_equal(reply->results[0]->id, "taken");
    assert_int_equal(reply->results[1]->code, MR_TOO_BIG);
    assert_non_null(strstr(reply->results[1]->message, "queue: 199 bytes"));
    assert_int_equal(reply->results[2]->code, MR_OK);
    assert_string_equal(reply->results[2]->message, "");
    assert_int_equal(reply->results[3]->code, MR_INVALID);
    assert_non_null(strstr(reply->results[3]->message, "delay"));
}

static void a_call_with_too_many_tasks_is_refused_as_a_whole(void **state)
{
    struct rig *rig = *state;
    struct talk talk = {0};
    assert_null(enqueue(rig, &talk, request_of(rig, MR_BATCH_MAX + 1, 0)));
    assert_int_equal(talk.status, MR_RPC_INVALID);
    assert_string_equal(talk.code, "TOO_BIG");
    assert_non_null(strstr(talk.text, "1001 tasks"));
    assert_non_null(enqueue(rig, &talk, request_of(rig, MR_BATCH_MAX, 0)));
    assert_non_null(enqueue(rig, &talk, request_of(rig, 0, 0)));
}

static void a_message_over_the_limit_is_refused(void **state)
{
    struct rig *rig = *state;
    struct talk talk = {0};
    assert_null(enqueue(rig, &talk, request_of(rig, 5, 1024 * 1024)));
    assert_int_equal(talk.status, MR_RPC_EXHAUSTED);
    assert_non_null(enqueue(rig, &talk, request_of(rig, 3, 1024 * 1024)));
}

static void garbage_is_refused_in_one_line(void **state)
{
    struct rig *rig = *state;
    static const char *const paths[] = {
        PATH("Tasks/Enqueue"), PATH("Tasks/Get"),   PATH("Queues/Pause"),  PATH("Work/Attach"),
        PATH("Work/Finish"),   PATH("Work/Gather"), PATH("Work/Gathered"), PATH("Tasks/Carry"),
    };
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        struct talk talk = {0};
        talk_begin(&talk, &rig->client, paths[i]);
        talk_send_bytes(&talk, MR_SLICE_LIT("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"));
        assert_int_equal(talk_end(&talk), MR_RPC_INVALID);
        assert_string_equal(talk.text, "the message cannot be read");
        talk_done(&talk);
    }
}

static void a_call_without_a_message_is_refused(void **state)
{
    struct rig *rig = *state;
    static const char *const paths[] = {PATH("Tasks/Get"), PATH("Tasks/Wait"), PATH("Events/Watch"),
                                        "/grpc.health.v1.Health/Watch"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        struct talk talk = {0};
        talk_begin(&talk, &rig->client, paths[i]);
        talk_half_close(&talk);
        assert_int_equal(talk_end(&talk), MR_RPC_INVALID);
        assert_string_equal(talk.text, "no message");
        talk_done(&talk);
    }
}

static void an_unknown_method_is_unimplemented(void **state)
{
    struct rig *rig = *state;
    struct talk talk = {0};
    Millrace__V1__Empty empty = MILLRACE__V1__EMPTY__INIT;
    call_unary(&talk, &rig->client, PATH("Tasks/Juggle"), &empty.base,
               &millrace__v1__empty__descriptor);
    assert_int_equal(talk.status, MR_RPC_UNIMPLEMENTED);
}

/* ---- streams -------------------------------------------------------------------------------- */

static void a_stream_answers_every_request_in_order(void **state)
{
    enum { N = 500 };
    struct rig *rig = *state;
    struct talk talk = {0};
    talk_begin(&talk, &rig->client, PATH("Tasks/EnqueueStream"));
    for (int i = 0; i < N; i++) {
        Millrace__V1__EnqueueRequest *request = request_of(rig, (size_t)(1 + i % 3), 20);
        char *id = mr_arena_alloc(&rig->arena, 16);
        snprintf(id, 16, "s%d", i);
        request->tasks[0]->id = id;
        assert_int_equal(talk_send(&talk, &request->base), MR_OK);
    }
    talk_half_close(&talk);
    for (int i = 0; i < N; i++) {
        char id[16];
        snprintf(id, sizeof id, "s%d", i);
        const Millrace__V1__EnqueueResponse *reply =
            (const void *)talk_next(&talk, &millrace__v1__enqueue_response__descriptor);
        assert_non_null(reply);
        assert_int_equal(reply->n_results, 1 + i % 3);
        assert_string_equal(reply->results[0]->id, id);
        assert_int_equal(reply->results[0]->code, MR_OK);
    }
    assert_null(talk_next(&talk, &millrace__v1__enqueue_response__descriptor));
    assert_int_equal(talk_end(&talk), MR_RPC_OK);
    talk_done(&talk);
}

static const Millrace__V1__EnqueueResponse *next_response(struct talk *talk)
{
    return (const void *)talk_next(talk, &millrace__v1__enqueue_response__descriptor);
}

static void a_bad_request_is_answered_at_its_place_and_the_stream_goes_on(void **state)
{
    struct rig *rig = *state;
    struct talk talk = {0};
    talk_begin(&talk, &rig->client, PATH("Tasks/EnqueueStream"));
    for (int i = 0; i < 10; i++)
        talk_send(&talk, &request_of(rig, 2, 20)->base);
    talk_send(&talk, &request_of(rig, MR_BATCH_MAX + 1, 0)->base);
    talk_send_bytes(&talk, MR_SLICE_LIT("\xff\xff"));
    talk_send(&talk, &request_of(rig, 3, 20)->base);
    for (int i = 0; i < 10; i++)
        assert_int_equal(next_response(&talk)->n_results, 2);
    const Millrace__V1__EnqueueResponse *reply = next_response(&talk);
    assert_int_equal(reply->n_results, 0);
    assert_int_equal(reply->code, MR_TOO_BIG);
    assert_non_null(strstr(reply->message, "1001 tasks"));
    reply = next_response(&talk);
    assert_int_equal(reply->n_results, 0);
    assert_int_equal(reply->code, MR_INVALID);
    assert_string_equal(reply->message, "the message cannot be read");
    reply = next_response(&talk);
    assert_int_equal(reply->n_results, 3);
    assert_int_equal(reply->code, MR_OK);
    talk_half_close(&talk);
    assert_null(next_response(&talk));
    assert_int_equal(talk_end(&talk), MR_RPC_OK);
    talk_done(&talk);
}

static void a_message_too_big_for_the_transport_is_left_out_of_a_stream(void **state)
{
    struct rig *rig = *state;
    struct talk talk = {0};
    enum { N = 3 };
    talk_begin(&talk, &rig->client, PATH("Tasks/EnqueueStream"));
    for (int i = 0; i < N; i++) {
        talk_send(&talk, &request_of(rig, 1, 20)->base);
        talk_send(&talk, &request_of(rig, 5, 1024 * 1024)->base);
    }
    talk_send(&talk, &request_of(rig, 2, 20)->base);
    talk_half_close(&talk);
    for (int i = 0; i < N; i++) {
        assert_int_equal(next_response(&talk)->n_results, 1);
        const Millrace__V1__EnqueueResponse *reply = next_response(&talk);
        assert_int_equal(reply->code, MR_TOO_BIG);
        assert_non_null(strstr(reply->message, "over the server's limit"));
    }
    assert_int_equal(next_response(&talk)->n_results, 2);
    assert_int_equal(talk_end(&talk), MR_RPC_OK);
    talk_done(&talk);
}

static void calls_that_are_given_up_leave_nothing(void **state)
{
    struct rig *rig = *state;
    for (int i = 0; i < 50; i++) {
        struct talk talk = {0}, stream = {0};
        talk_begin(&talk, &rig->client, PATH("Tasks/Enqueue"));
        talk_begin(&stream, &rig->client, PATH("Tasks/EnqueueStream"));
        talk_send(&talk, &request_of(rig, 100, 100)->base);
        talk_send(&stream, &request_of(rig, 100, 100)->base);
        talk_done(&talk);
        talk_done(&stream);
    }
    assert_non_null(put(&rig->client, "", "after"));
}

static void a_deadline_is_kept(void **state)
{
    struct rig *rig = *state;
    struct talk talk = {.deadline_ms = 50};
    talk_begin(&talk, &rig->client, PATH("Tasks/EnqueueStream"));
    assert_int_equal(talk_end(&talk), MR_RPC_DEADLINE);
    talk_done(&talk);
}

/* Answers that nobody reads stop the reading of requests: nothing grows. */
static void a_stream_that_reads_no_answers_is_not_read(void **state)
{
    enum { N = 3000 };
    struct rig *rig = *state;
    struct talk talk = {.hold = true};
    talk_begin(&talk, &rig->client, PATH("Tasks/EnqueueStream"));
    const Millrace__V1__EnqueueRequest *request = request_of(rig, 200, 0);
    size_t sent = 0;
    while (sent < N && talk_send(&talk, &request->base) == MR_OK)
        sent++;
    on_loop(rig->loop, do_read_on, &talk);
    talk_half_close(&talk);
    for (size_t i = 0; i < sent; i++) {
        assert_non_null(talk_next(&talk, &millrace__v1__enqueue_response__descriptor));
        mr_arena_reset(&rig->arena);
    }
    assert_int_equal(talk_end(&talk), MR_RPC_OK);
    talk_done(&talk);
}

/* ---- looking and acting --------------------------------------------------------------------- */

static void a_missing_task_is_named(void **state)
{
    struct rig *rig = *state;
    struct talk talk = {0};
    Millrace__V1__GetRequest request = MILLRACE__V1__GET_REQUEST__INIT;
    request.id = (char *)(uintptr_t) "nowhere";
    assert_null(call_unary(&talk, &rig->client, PATH("Tasks/Get"), &request.base,
                           &millrace__v1__task__descriptor));
    assert_int_equal(talk.status, 5);
    assert_string_equal(talk.code, "NOT_FOUND");
    assert_string_equal(talk.text, "task nowhere: not found");
}

static void what_is_wrong_with_a_list_is_named(void **state)
{
    struct rig *rig = *state;
    static const struct {
        const char *queue, *cursor, *text;
        uint32_t limit;
        int state;
    } rows[] = {
        {"", "", "limit: 5000, the most is 1000", 5000, 0},
        {"", "",
         "state: 42 is none of STATE_NONE, SCHEDULED, PENDING, ACTIVE, RETRY, ARCHIVED, COMPLETED, "
         "AGGREGATING",
         0, 42},
        {"", "x", "cursor x: invalid argument", 0, 0},
        {"nowhere", "", "queue nowhere: not found", 0, 0},
        {"nowhere", "x", "queue nowhere, cursor x: invalid argument", 0, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct talk talk = {0};
        Millrace__V1__ListRequest request = MILLRACE__V1__LIST_REQUEST__INIT;
        request.queue = (char *)(uintptr_t)rows[i].queue;
        request.cursor = (char *)(uintptr_t)rows[i].cursor;
        request.limit = rows[i].limit;
        request.state = (Millrace__V1__State)rows[i].state;
        assert_null(call_unary(&talk, &rig->client, PATH("Tasks/List"), &request.base,
                               &millrace__v1__list_response__descriptor));
        assert_string_equal(talk.text, rows[i].text);
    }
}

static void pages_of_big_tasks_end_early_and_lose_nothing(void **state)
{
    enum { N = 9 };
    struct rig *rig = *state;
    struct talk talk = {0};
    for (int i = 0; i < N; i++)
        assert_non_null(enqueue(rig, &talk, request_of(rig, 1, 1000 * 1000)));
    Millrace__V1__ListRequest request = MILLRACE__V1__LIST_REQUEST__INIT;
    size_t seen = 0, pages = 0;
    request.with_payload = true;
    do {
        const Millrace__V1__ListResponse *page =
            (const void *)call_unary(&talk, &rig->client, PATH("Tasks/List"), &request.base,
                                     &millrace__v1__list_response__descriptor);
        assert_int_equal(talk.status, MR_RPC_OK);
        assert_in_range(page->n_tasks, 1, 4);
        seen += page->n_tasks;
        pages++;
        request.cursor = page->next;
    } while (request.cursor[0] != '\0');
    assert_int_equal(seen, N);
    assert_in_range(pages, 3, N);
}

static void queues_are_listed_paused_and_removed(void **state)
{
    struct rig *rig = *state;
    struct talk talk = {0};
    put(&rig->client, "a", "a1");
    put(&rig->client, "b", "b1");
    Millrace__V1__QueueRequest one = MILLRACE__V1__QUEUE_REQUEST__INIT;
    one.queue = (char *)(uintptr_t) "a";
    assert_non_null(call_unary(&talk, &rig->client, PATH("Queues/Pause"), &one.base,
                               &millrace__v1__empty__descriptor));
    const Millrace__V1__Queue *queue = (const void *)call_unary(
        &talk, &rig->client, PATH("Queues/Get"), &one.base, &millrace__v1__queue__descriptor);
    assert_true(queue->paused);
    assert_int_equal(queue->pending, 1);
    assert_non_null(call_unary(&talk, &rig->client, PATH("Queues/Resume"), &one.base,
                               &millrace__v1__empty__descriptor));
    Millrace__V1__QueueListRequest list = MILLRACE__V1__QUEUE_LIST_REQUEST__INIT;
    list.limit = 1;
    const Millrace__V1__QueueListResponse *page =
        (const void *)call_unary(&talk, &rig->client, PATH("Queues/List"), &list.base,
                                 &millrace__v1__queue_list_response__descriptor);
    assert_int_equal(page->n_queues, 1);
    assert_string_equal(page->next, "a");
    Millrace__V1__QueueRemoveRequest gone = MILLRACE__V1__QUEUE_REMOVE_REQUEST__INIT;
    gone.queue = (char *)(uintptr_t) "a";
    assert_null(call_unary(&talk, &rig->client, PATH("Queues/Remove"), &gone.base,
                           &millrace__v1__empty__descriptor));
    assert_string_equal(talk.code, "WRONG_STATE");
    gone.force = true;
    assert_non_null(call_unary(&talk, &rig->client, PATH("Queues/Remove"), &gone.base,
                               &millrace__v1__empty__descriptor));
    assert_null(call_unary(&talk, &rig->client, PATH("Queues/Get"), &one.base,
                           &millrace__v1__queue__descriptor));
    assert_string_equal(talk.text, "queue a: not found");
    assert_null(look(&rig->client, "a1"));
}

static void figures_and_backups_are_given(void **state)
{
    struct rig *rig = *state;
    struct talk talk = {0};
    char dir[96];
    put(&rig->client, "", "x");
    Millrace__V1__StatsRequest ask = MILLRACE__V1__STATS_REQUEST__INIT;
    const Millrace__V1__StatsResponse *stats =
        (const void *)call_unary(&talk, &rig->client, PATH("Server/Stats"), &ask.base,
                                 &millrace__v1__stats_response__descriptor);
    assert_int_equal(stats->tasks, 1);
    assert_true(stats->syncs > 0 && stats->disk_bytes > 0 && !stats->failed);
    Millrace__V1__BackupRequest backup = MILLRACE__V1__BACKUP_REQUEST__INIT;
    snprintf(dir, sizeof dir, "%s-backup", rig->dir);
    backup.dir = dir;
    assert_non_null(call_unary(&talk, &rig->client, PATH("Server/Backup"), &backup.base,
                               &millrace__v1__empty__descriptor));
    assert_null(call_unary(&talk, &rig->client, PATH("Server/Backup"), &backup.base,
                           &millrace__v1__empty__descriptor));
    assert_non_null(strstr(talk.text, dir));
    remove_dir(dir);
}

/* ---- health and reflection ------------------------------------------------------------------ */

static int health_of(struct rig *rig, const char *service, int *ret_status)
{
    struct talk talk = {0};
    Grpc__Health__V1__HealthCheckRequest request = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    request.service = (char *)(uintptr_t)service;
    const Grpc__Health__V1__HealthCheckResponse *reply =
        (const void *)call_unary(&talk, &rig->client, "/grpc.health.v1.Health/Check", &request.base,
                                 &grpc__health__v1__health_check_response__descriptor);
    *ret_status = talk.status;
    return reply != NULL ? (int)reply->status : -1;
}

static void health_knows_every_service(void **state)
{
    struct rig *rig = *state;
    int status;
    assert_int_equal(health_of(rig, "", &status), 1);
    assert_int_equal(health_of(rig, "millrace.v1.Tasks", &status), 1);
    assert_int_equal(health_of(rig, "millrace.v1.Nothing", &status), -1);
    assert_int_equal(status, 5);
}

static void watchers_hear_that_the_server_stops(void **state)
{
    struct rig *rig = *state;
    struct talk talk = {0}, unknown = {0};
    Grpc__Health__V1__HealthCheckRequest request = GRPC__HEALTH__V1__HEALTH_CHECK_REQUEST__INIT;
    const ProtobufCMessageDescriptor *kind = &grpc__health__v1__health_check_response__descriptor;
    const Grpc__Health__V1__HealthCheckResponse *reply;
    talk_begin(&talk, &rig->client, "/grpc.health.v1.Health/Watch");
    talk_begin(&unknown, &rig->client, "/grpc.health.v1.Health/Watch");
    talk_send(&talk, &request.base);
    request.service = (char *)(uintptr_t) "nobody";
    talk_send(&unknown, &request.base);
    reply = (const void *)talk_next(&talk, kind);
    assert_int_equal(reply->status, 1);
    reply = (const void *)talk_next(&unknown, kind);
    assert_int_equal(reply->status, 3);
    rig_stop_server(rig, 1000);
    reply = (const void *)talk_next(&talk, kind);
    assert_int_equal(reply->status, 2);
    assert_int_equal(talk_end(&talk), MR_RPC_UNAVAILABLE);
    talk_done(&talk);
    talk_done(&unknown);
}

typedef Grpc__Reflection__V1__ServerReflectionRequest reflection_request;
typedef Grpc__Reflection__V1__ServerReflectionResponse reflection_response;
#define ASKS(kind) GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_##kind
#define SAYS(kind) GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_##kind

static const reflection_response *reflect(struct talk *talk, int asks, const char *about)
{
    reflection_request request = GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__INIT;
    request.message_request_case = (unsigned)asks;
    request.file_containing_symbol = (char *)(uintptr_t)about;
    talk_send(talk, &request.base);
    return (const void *)talk_next(talk,
                                   &grpc__reflection__v1__server_reflection_response__descriptor);
}

static void reflection_describes_everything(void **state)
{
    struct rig *rig = *state;
    static const char *const symbols[] = {
        "millrace.v1.Tasks",   "millrace.v1.Tasks.Enqueue",
        "millrace.v1.NewTask", "millrace.v1.Stop.Reason",
        "millrace.v1.State",   "grpc.health.v1.HealthCheckResponse.ServingStatus",
    };
    static const char *const paths[] = {
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
    };
    for (size_t k = 0; k < 2; k++) {
        struct talk talk = {0};
        talk_begin(&talk, &rig->client, paths[k]);
        const reflection_response *reply = reflect(&talk, ASKS(LIST_SERVICES), "*");
        assert_int_equal(reply->message_response_case, SAYS(LIST_SERVICES_RESPONSE));
        assert_int_equal(reply->list_services_response->n_service, 13);
        for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
            reply = reflect(&talk, ASKS(FILE_CONTAINING_SYMBOL), symbols[i]);
            assert_int_equal(reply->message_response_case, SAYS(FILE_DESCRIPTOR_RESPONSE));
            assert_string_equal(reply->original_request->file_containing_symbol, symbols[i]);
        }
        reply = reflect(&talk, ASKS(FILE_BY_FILENAME), "millrace/v1/work.proto");
        assert_int_equal(reply->message_response_case, SAYS(FILE_DESCRIPTOR_RESPONSE));
        reply = reflect(&talk, ASKS(FILE_CONTAINING_SYMBOL), "millrace.v1.Task.id.x");
        assert_int_equal(reply->message_response_case, SAYS(ERROR_RESPONSE));
        talk_half_close(&talk);
        assert_int_equal(talk_end(&talk), MR_RPC_OK);
        talk_done(&talk);
    }
}

/* ---- limits --------------------------------------------------------------------------------- */

/* Far more under way than a connection may have: it is slowed down, and nothing is refused. */
static void a_connection_with_much_under_way_waits(void **state)
{
    (void)state;
    enum { N = 200 };
    struct mr_api_options options = {.limits = {.requests_max = 4, .bytes_max = 64 * 1024}};
    struct rig *rig = rig_start(&options);
    static struct talk talks[N];
    for (size_t i = 0; i < N; i++) {
        talks[i] = (struct talk){0};
        talk_begin(&talks[i], &rig->client, PATH("Tasks/Enqueue"));
        talk_send(&talks[i], &request_of(rig, 10, 1000)->base);
    }
    for (size_t i = 0; i < N; i++) {
        const Millrace__V1__EnqueueResponse *reply =
            (const void *)talk_next(&talks[i], &millrace__v1__enqueue_response__descriptor);
        assert_non_null(reply);
        assert_int_equal(reply->n_results, 10);
        assert_int_equal(talk_end(&talks[i]), MR_RPC_OK);
        talk_done(&talks[i]);
    }
    rig_stop(rig);
}

static void a_server_with_too_much_under_way_says_so(void **state)
{
    (void)state;
    struct mr_api_options options = {.limits = {.bytes_total = 1000}};
    struct rig *rig = rig_start(&options);
    struct talk talk = {0};
    assert_null(enqueue(rig, &talk, request_of(rig, 1, 2000)));
    assert_int_equal(talk.status, MR_RPC_EXHAUSTED);
    assert_string_equal(talk.code, "BUSY");
    rig_stop(rig);
}

static void a_connection_over_its_rate_is_refused_until_later(void **state)
{
    (void)state;
    struct mr_api_options options = {.limits = {.rate = 20}};
    struct rig *rig = rig_start(&options);
    struct talk talk = {0};
    struct client other;
    assert_non_null(enqueue(rig, &talk, request_of(rig, 15, 1)));
    assert_null(enqueue(rig, &talk, request_of(rig, 19, 1)));
    assert_int_equal(talk.status, MR_RPC_EXHAUSTED);
    assert_string_equal(talk.code, "BUSY");
    assert_string_equal(talk.text, "over the rate of 20 a second: try again in 1 s");
    WAIT_UNTIL(enqueue(rig, &talk, request_of(rig, 19, 1)) != NULL);
    client_open(rig, &other, NULL);
    assert_non_null(put(&other, "", ""));
    client_close(&other);
    rig_stop(rig);
}

static void a_batch_over_the_rate_goes_at_once_and_what_follows_waits(void **state)
{
    (void)state;
    struct mr_api_options options = {.limits = {.rate = 20}};
    struct rig *rig = rig_start(&options);
    struct talk talk = {0};
    assert_non_null(enqueue(rig, &talk, request_of(rig, 1000, 1)));
    assert_null(enqueue(rig, &talk, request_of(rig, 1, 1)));
    assert_int_equal(talk.status, MR_RPC_EXHAUSTED);
    const char *told = strstr(talk.text, "over the rate of 20 a second: try again in ");
    assert_non_null(told);
    assert_int_equal(strlen(told), strlen("over the rate of 20 a second: try again in 49 s"));
    rig_stop(rig);
}

static void a_stream_over_its_rate_goes_on(void **state)
{
    (void)state;
    struct mr_api_options options = {.limits = {.rate = 10}};
    struct rig *rig = rig_start(&options);
    struct talk talk = {0};
    const Millrace__V1__EnqueueResponse *reply;
    talk_begin(&talk, &rig->client, PATH("Tasks/EnqueueStream"));
    talk_send(&talk, &request_of(rig, 9, 1)->base);
    talk_send(&talk, &request_of(rig, 11, 1)->base);
    reply = (const void *)talk_next(&talk, &millrace__v1__enqueue_response__descriptor);
    assert_int_equal(reply->results[8]->code, MR_OK);
    reply = next_response(&talk);
    assert_int_equal(reply->code, MR_BUSY);
    assert_string_equal(reply->message, "over the rate of 10 a second: try again in 1 s");
    do {
        talk_send(&talk, &request_of(rig, 1, 1)->base);
        reply = next_response(&talk);
    } while (reply->code != MILLRACE__V1__CODE__OK);
    assert_int_equal(reply->results[0]->code, MR_OK);
    talk_done(&talk);
    rig_stop(rig);
}

static void stopping_answers_what_is_under_way(void **state)
{
    struct rig *rig = *state;
    struct talk talk = {0}, stream = {0};
    talk_begin(&stream, &rig->client, PATH("Tasks/EnqueueStream"));
    talk_send(&stream, &request_of(rig, 100, 100)->base);
    assert_non_null(talk_next(&stream, &millrace__v1__enqueue_response__descriptor));
    talk_begin(&talk, &rig->client, PATH("Tasks/Enqueue"));
    talk_send(&talk, &request_of(rig, 100, 100)->base);
    const Millrace__V1__EnqueueResponse *reply =
        (const void *)talk_next(&talk, &millrace__v1__enqueue_response__descriptor);
    rig_stop_server(rig, 5000);
    assert_int_equal(talk_end(&stream), MR_RPC_UNAVAILABLE);
    assert_non_null(reply);
    talk_done(&talk);
    talk_done(&stream);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#define TEST(name) cmocka_unit_test_setup_teardown(name, begin, end)
        TEST(what_was_enqueued_is_there),
        TEST(refused_tasks_say_why_and_the_others_stay),
        TEST(a_call_with_too_many_tasks_is_refused_as_a_whole),
        TEST(a_message_over_the_limit_is_refused),
        TEST(garbage_is_refused_in_one_line),
        TEST(a_call_without_a_message_is_refused),
        TEST(an_unknown_method_is_unimplemented),
        TEST(a_stream_answers_every_request_in_order),
        TEST(a_bad_request_is_answered_at_its_place_and_the_stream_goes_on),
        TEST(a_message_too_big_for_the_transport_is_left_out_of_a_stream),
        TEST(calls_that_are_given_up_leave_nothing),
        TEST(a_deadline_is_kept),
        TEST(a_stream_that_reads_no_answers_is_not_read),
        TEST(a_missing_task_is_named),
        TEST(what_is_wrong_with_a_list_is_named),
        TEST(pages_of_big_tasks_end_early_and_lose_nothing),
        TEST(queues_are_listed_paused_and_removed),
        TEST(figures_and_backups_are_given),
        TEST(health_knows_every_service),
        TEST(watchers_hear_that_the_server_stops),
        TEST(reflection_describes_everything),
        TEST(stopping_answers_what_is_under_way),
        cmocka_unit_test(a_connection_with_much_under_way_waits),
        cmocka_unit_test(a_server_with_too_much_under_way_says_so),
        cmocka_unit_test(a_connection_over_its_rate_is_refused_until_later),
        cmocka_unit_test(a_batch_over_the_rate_goes_at_once_and_what_follows_waits),
        cmocka_unit_test(a_stream_over_its_rate_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
