/* SPDX-License-Identifier: Apache-2.0 */
/* Messages that mean harm, and a broker that does not answer. */
#include "unit/api_rig.h"

#include "api/api.h"
#include "base/rand.h"
#include "millrace/v1/timers.pb-c.h"

static int begin(void **state)
{
    *state = rig_start_as(NULL, RIG_HAS_ALL, NULL, NULL);
    return 0;
}

static int end(void **state)
{
    rig_stop(*state);
    return 0;
}

/* ---- a storm of malformed messages ---------------------------------------------------------- */

/* MR_MESSAGES says how many make a storm, MR_SEED which ones. */
enum { STORM_DEFAULT = 20000, STORM_SEED = 20, IN_FLIGHT = 128, TEMPLATE_MAX = 512 };

/* A message that is right, before it is made wrong. */
struct template
{
    const char *path;
    uint8_t bytes[TEMPLATE_MAX];
    size_t len;
};

/* Of every method but Server/Backup, which would write wherever a mutation says. */
static struct template templates[96];
static size_t templates_n;

static void add_template(const char *path, const ProtobufCMessage *message)
{
    assert_true(templates_n < sizeof templates / sizeof *templates);
    struct template *template = &templates[templates_n++];
    assert_true(protobuf_c_message_get_packed_size(message) <= TEMPLATE_MAX);
    template->path = path;
    template->len = protobuf_c_message_pack(message, template->bytes);
}

static void add_worker_templates(void)
{
    Millrace__V1__WorkerMessage message = MILLRACE__V1__WORKER_MESSAGE__INIT;
    Millrace__V1__Take take = MILLRACE__V1__TAKE__INIT;
    Millrace__V1__Finish finish = MILLRACE__V1__FINISH__INIT;
    Millrace__V1__FinishItem item = MILLRACE__V1__FINISH_ITEM__INIT, *items[] = {&item};
    Millrace__V1__Beat beat = MILLRACE__V1__BEAT__INIT;
    Millrace__V1__Progress progress = MILLRACE__V1__PROGRESS__INIT, *list[] = {&progress};
    Millrace__V1__Begun begun = MILLRACE__V1__BEGUN__INIT;
    uint32_t slot = 1;
    uint64_t epoch = 77;
    take.tag = 1;
    take.max = 3;
    message.kind_case = MILLRACE__V1__WORKER_MESSAGE__KIND_TAKE;
    message.take = &take;
    add_template(PATH("Work/Attach"), &message.base);
    item.id = (char *)(uintptr_t) "id";
    item.epoch = epoch;
    item.result = mr_pb_of_bytes(MR_SLICE_LIT("result"));
    finish.items = items;
    finish.n_items = 1;
    message.kind_case = MILLRACE__V1__WORKER_MESSAGE__KIND_FINISH;
    message.finish = &finish;
    add_template(PATH("Work/Attach"), &message.base);
    progress.epoch = epoch;
    progress.text = (char *)(uintptr_t) "half";
    beat.progress = list;
    beat.n_progress = 1;
    message.kind_case = MILLRACE__V1__WORKER_MESSAGE__KIND_BEAT;
    message.beat = &beat;
    add_template(PATH("Work/Attach"), &message.base);
    begun.slots = &slot;
    begun.epochs = &epoch;
    begun.n_slots = begun.n_epochs = 1;
    message.kind_case = MILLRACE__V1__WORKER_MESSAGE__KIND_BEGUN;
    message.begun = &begun;
    add_template(PATH("Work/Attach"), &message.base);
}

static struct template hello;

static void make_hello(void)
{
    Millrace__V1__WorkerMessage message = MILLRACE__V1__WORKER_MESSAGE__INIT;
    Millrace__V1__Hello in = MILLRACE__V1__HELLO__INIT;
    Millrace__V1__QueueWeight queue = MILLRACE__V1__QUEUE_WEIGHT__INIT, *queues[] = {&queue};
    queue.name = (char *)(uintptr_t) "q";
    in.node = (char *)(uintptr_t) "storm";
    in.incarnation = 5;
    in.slots = 4;
    in.lease_ms = 60000;
    in.queues = queues;
    in.n_queues = 1;
    message.kind_case = MILLRACE__V1__WORKER_MESSAGE__KIND_HELLO;
    message.hello = &in;
    add_template(PATH("Work/Attach"), &message.base);
    hello = templates[templates_n - 1];
}

/* Of jobs and timers that are there: what is wrong is found deep inside. */
static void add_job_templates(struct rig *rig)
{
    Millrace__V1__JobSubmitRequest submit = MILLRACE__V1__JOB_SUBMIT_REQUEST__INIT;
    Millrace__V1__JobDefinition definition = MILLRACE__V1__JOB_DEFINITION__INIT;
    Millrace__V1__JobRequest one = MILLRACE__V1__JOB_REQUEST__INIT;
    Millrace__V1__JobListRequest list = MILLRACE__V1__JOB_LIST_REQUEST__INIT;
    Millrace__V1__PartListRequest parts = MILLRACE__V1__PART_LIST_REQUEST__INIT;
    Millrace__V1__JobWatchRequest watch = MILLRACE__V1__JOB_WATCH_REQUEST__INIT;
    Millrace__V1__JobState state = MILLRACE__V1__JOB_STATE__JOB_CREATED;
    Millrace__V1__PartState part_state = MILLRACE__V1__PART_STATE__PART_SUBMITTED;
    char *stages[] = {(char *)(uintptr_t) "one", (char *)(uintptr_t) "two"};
    ProtobufCBinaryData bytes[] = {mr_pb_of_bytes(MR_SLICE_LIT("part")),
                                   mr_pb_of_bytes(MR_SLICE_LIT("part"))};
    definition.queue = definition.name = list.queue = (char *)(uintptr_t) "storm";
    definition.split = (char *)(uintptr_t) "lines:2";
    definition.reduce = (char *)(uintptr_t) "command:cat *";
    definition.stages = stages;
    definition.n_stages = 2;
    definition.priority = 5;
    submit.definition = &definition;
    submit.parts = bytes;
    submit.n_parts = 2;
    add_template(PATH("Jobs/Submit"), &submit.base);
    definition.reduce = (char *)(uintptr_t) "sum";
    add_template(PATH("Jobs/Submit"), &submit.base);
    one.id = parts.id = watch.id = (char *)(uintptr_t)put_job(&rig->client, "storm");
    list.states = &state;
    parts.states = &part_state;
    list.n_states = parts.n_states = 1;
    list.cursor = parts.cursor = (char *)(uintptr_t) "1";
    list.limit = parts.limit = 7;
    watch.after = 1;
    add_template(PATH("Jobs/List"), &list.base);
    add_template(PATH("Jobs/ListParts"), &parts.base);
    add_template(PATH("Jobs/Watch"), &watch.base);
    add_template(PATH("Jobs/Result"), &one.base);
    add_template(PATH("Jobs/Get"), &one.base);
    add_template(PATH("Jobs/Cancel"), &one.base);
    add_template(PATH("Jobs/Retry"), &one.base);
}

static void add_timer_templates(void)
{
    Millrace__V1__TimerSendRequest send = MILLRACE__V1__TIMER_SEND_REQUEST__INIT;
    Millrace__V1__TimerOperation operation = MILLRACE__V1__TIMER_OPERATION__INIT;
    Millrace__V1__TimerOperation *operations[] = {&operation};
    Millrace__V1__TimerDefinition definition = MILLRACE__V1__TIMER_DEFINITION__INIT;
    Millrace__V1__TimerRequest one = MILLRACE__V1__TIMER_REQUEST__INIT;
    Millrace__V1__TimerListRequest list = MILLRACE__V1__TIMER_LIST_REQUEST__INIT;
    Millrace__V1__TimerNextRequest next = MILLRACE__V1__TIMER_NEXT_REQUEST__INIT;
    Millrace__V1__TimerHistoryRequest history = MILLRACE__V1__TIMER_HISTORY_REQUEST__INIT;
    definition.app = one.app = list.app = history.app = (char *)(uintptr_t) "storm";
    definition.name = one.name = history.name = (char *)(uintptr_t) "timer";
    definition.expression = (char *)(uintptr_t) "*/5 * * * *";
    definition.tz = (char *)(uintptr_t) "Europe/Berlin";
    operation.definition = &definition;
    send.operations = operations;
    send.n_operations = 1;
    send.wait = MILLRACE__V1__TIMER_WAIT__WAIT_DURABLE;
    next.definition = &definition;
    next.limit = 7;
    list.cursor = history.cursor = (char *)(uintptr_t) "1";
    add_template(PATH("Timers/Send"), &send.base);
    add_template(PATH("Timers/Get"), &one.base);
    add_template(PATH("Timers/List"), &list.base);
    add_template(PATH("Timers/Next"), &next.base);
    add_template(PATH("Timers/History"), &history.base);
    Millrace__V1__TimerKeepRequest keep = MILLRACE__V1__TIMER_KEEP_REQUEST__INIT;
    char *gone[] = {(char *)(uintptr_t) "00000000-0000-7000-8000-000000000001"};
    operation.operation = (char *)(uintptr_t) "00000000-0000-7000-8000-000000000002";
    keep.origin = (char *)(uintptr_t) "another server/1";
    keep.operations = operations;
    keep.n_operations = 1;
    keep.gone = gone;
    keep.n_gone = 1;
    add_template(PATH("Timers/Keep"), &keep.base);
}

static bool has_template(const char *path)
{
    for (size_t i = 0; i < templates_n; i++)
        if (strcmp(templates[i].path, path) == 0)
            return true;
    return strcmp(path, PATH("Server/Backup")) == 0;
}

/* What has none of its own. */
static void add_others(const ProtobufCMessage *message)
{
    size_t n;
    const struct mr_rpc_method *methods = mr_api_methods(&n);
    for (size_t i = 0; i < n; i++)
        if (!has_template(methods[i].path))
            add_template(methods[i].path, message);
}

static void make_templates(struct rig *rig)
{
    Millrace__V1__EnqueueRequest enqueue = MILLRACE__V1__ENQUEUE_REQUEST__INIT;
    Millrace__V1__Header header = MILLRACE__V1__HEADER__INIT, *headers[] = {&header};
    Millrace__V1__NewTask task = MILLRACE__V1__NEW_TASK__INIT, *tasks[] = {&task, &task};
    Millrace__V1__ControlRequest control_in = MILLRACE__V1__CONTROL_REQUEST__INIT;
    Millrace__V1__ControlItem item = MILLRACE__V1__CONTROL_ITEM__INIT, *items[] = {&item};
    Millrace__V1__ListRequest list = MILLRACE__V1__LIST_REQUEST__INIT;
    Millrace__V1__GetRequest get = MILLRACE__V1__GET_REQUEST__INIT;
    Millrace__V1__QueueRequest queue = MILLRACE__V1__QUEUE_REQUEST__INIT;
    Grpc__Reflection__V1__ServerReflectionRequest ask =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__INIT;
    header.name = task.queue = task.type = item.id = list.queue = list.cursor = get.id =
        queue.queue = (char *)(uintptr_t) "storm";
    task.headers = headers;
    task.n_headers = 1;
    task.unique_ms = 5;
    task.payload = mr_pb_of_bytes(MR_SLICE_LIT("payload"));
    enqueue.tasks = tasks;
    enqueue.n_tasks = 2;
    control_in.items = items;
    control_in.n_items = 1;
    ask.message_request_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_SYMBOL;
    ask.file_containing_symbol = (char *)(uintptr_t) "millrace.v1.Tasks";
    templates_n = 0;
    add_template(PATH("Tasks/Enqueue"), &enqueue.base);
    add_template(PATH("Tasks/EnqueueStream"), &enqueue.base);
    add_template(PATH("Tasks/Control"), &control_in.base);
    add_template(PATH("Tasks/List"), &list.base);
    add_template(PATH("Tasks/Get"), &get.base);
    add_template(PATH("Tasks/Wait"), &get.base);
    add_template(PATH("Tasks/Why"), &get.base);
    add_template(PATH("Work/Finish"), &control_in.base);
    add_template(PATH("Tokens/Revoke"), &get.base);
    add_template("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", &ask.base);
    add_worker_templates();
    make_hello();
    add_job_templates(rig);
    add_timer_templates();
    add_others(&queue.base);
}

struct storm {
    struct rig *rig;
    struct mr_rand rand;
    size_t size, sent, ended;
    size_t internal; /* ended in a way that is our own fault */
    struct mr_event over;
};

static size_t mutate(struct storm *storm, const struct template *template, uint8_t *bytes)
{
    size_t len = template->len;
    memcpy(bytes, template->bytes, len);
    for (uint64_t k = 1 + mr_rand_below(&storm->rand, 4); k > 0 && len > 0; k--)
        bytes[mr_rand_below(&storm->rand, len)] = (uint8_t)mr_rand_next(&storm->rand);
    if (mr_rand_below(&storm->rand, 4) == 0)
        len = mr_rand_below(&storm->rand, len + 1);
    if (mr_rand_below(&storm->rand, 8) == 0) {
        len = mr_rand_below(&storm->rand, TEMPLATE_MAX);
        mr_rand_bytes(&storm->rand, bytes, len);
    }
    return len;
}

static void storm_next(struct storm *storm);

static void storm_message(struct mr_call *call, struct mr_slice bytes)
{
    (void)call, (void)bytes;
}

static void storm_closed(struct mr_call *call, int status, struct mr_slice text)
{
    struct storm *storm = mr_call_data(call);
    (void)text;
    storm->internal += status == MR_RPC_INTERNAL;
    if (++storm->ended == storm->size)
        mr_event_set(&storm->over);
    storm_next(storm);
}

static const struct mr_call_ops storm_ops = {.message = storm_message, .closed = storm_closed};

static void storm_next(struct storm *storm)
{
    uint8_t bytes[TEMPLATE_MAX];
    struct mr_call *call;
    if (storm->sent == storm->size)
        return;
    storm->sent++;
    const struct template *template = &templates[mr_rand_below(&storm->rand, templates_n)];
    bool lasts = strstr(template->path, "Wa") != NULL; /* Wait, Watch */
    mr_assert(mr_channel_call(storm->rig->client.channel, template->path, lasts ? 20 : 10000,
                              &storm_ops, storm, &call) == MR_OK);
    bool works = strstr(template->path, "Attach") != NULL && mr_rand_below(&storm->rand, 2) == 0;
    if (works)
        mr_assert(mr_call_send(call, mr_slice_make(hello.bytes, hello.len)) == MR_OK);
    size_t len = mutate(storm, template, bytes);
    mr_assert(mr_call_send(call, mr_slice_make(bytes, len)) == MR_OK);
    mr_call_half_close(call);
}

static void storm_begin(void *arg)
{
    struct storm *storm = arg;
    for (int i = 0; i < IN_FLIGHT; i++)
        storm_next(storm);
}

static uint64_t from_env(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text != NULL ? strtoull(text, NULL, 10) : otherwise;
}

static void a_storm_of_malformed_messages_harms_nobody(void **state)
{
    struct rig *rig = *state;
    static struct storm storm;
    storm = (struct storm){.rig = rig, .size = from_env("MR_MESSAGES", STORM_DEFAULT)};
    mr_rand_seed(&storm.rand, from_env("MR_SEED", STORM_SEED));
    mr_event_init(&storm.over);
    make_templates(rig);
    put(&rig->client, "safe", "untouched");
    on_loop(rig->loop, storm_begin, &storm);
    assert_true(mr_event_wait(&storm.over, 5 * patience_ns));
    assert_int_equal(storm.internal, 0);
    assert_int_equal(state_of(&rig->client, "untouched"), MR_PENDING);
    assert_non_null(put(&rig->client, "safe", "after"));
    assert_non_null(put_job(&rig->client, "safe"));
}

/* ---- small messages that become large ------------------------------------------------------- */

static int send_many(struct rig *rig, const char *path, const char *piece, size_t piece_len,
                     size_t n, struct talk *talk)
{
    uint8_t *bytes = malloc(n * piece_len);
    assert_non_null(bytes);
    for (size_t i = 0; i < n; i++)
        memcpy(bytes + i * piece_len, piece, piece_len);
    *talk = (struct talk){0};
    talk_begin(talk, &rig->client, path);
    talk_send_bytes(talk, mr_slice_make(bytes, n * piece_len));
    talk_half_close(talk);
    int status = talk_end(talk);
    talk_done(talk);
    free(bytes);
    return status;
}

static void millions_of_empty_items_are_refused_before_they_cost(void **state)
{
    struct rig *rig = *state;
    struct talk talk;
    enum { N = 1000000 };
    assert_int_equal(send_many(rig, PATH("Tasks/Control"), "\x0a\0", 2, N, &talk), MR_RPC_INVALID);
    assert_non_null(strstr(talk.text, "256 KiB"));
    assert_int_equal(send_many(rig, PATH("Tasks/Enqueue"), "\x0a\0", 2, N, &talk), MR_RPC_INVALID);
    assert_string_equal(talk.text, "1000000 tasks in one call, the limit is 1000");
    assert_int_equal(send_many(rig, PATH("Work/Finish"), "\x0a\0", 2, N, &talk), MR_RPC_INVALID);
    assert_non_null(strstr(talk.text, "1000 items"));
    assert_int_equal(send_many(rig, PATH("Queues/Pause"), "\x0a\0", 2, N, &talk), MR_RPC_INVALID);
    assert_int_equal(send_many(rig, PATH("Jobs/Submit"), "\x12\0", 2, N, &talk), MR_RPC_INVALID);
    assert_string_equal(talk.text, "1000000 parts in one message, the limit is 10000");
    assert_int_equal(send_many(rig, PATH("Jobs/Submit"), "\x0a\0", 2, N, &talk), MR_RPC_INVALID);
    assert_string_equal(talk.text, "one definition is asked for, not more");
    assert_int_equal(send_many(rig, PATH("Jobs/List"), "\x10\x01", 2, N, &talk), MR_RPC_INVALID);
    assert_int_equal(send_many(rig, PATH("Jobs/Watch"), "\x10\x01", 2, N, &talk), MR_RPC_INVALID);
    assert_int_equal(send_many(rig, PATH("Timers/Send"), "\x0a\0", 2, N, &talk), MR_RPC_INVALID);
    assert_int_equal(send_many(rig, PATH("Timers/Keep"), "\x12\0", 2, N, &talk), MR_RPC_INVALID);
    assert_string_equal(talk.text, "1000000 operations in one call, the limit is 1000");
    assert_int_equal(send_many(rig, PATH("Timers/Keep"), "\x1a\0", 2, N, &talk), MR_RPC_INVALID);
}

/* ---- jobs that are not whole ---------------------------------------------------------------- */

static size_t jobs_there(struct rig *rig)
{
    Millrace__V1__JobListRequest in = MILLRACE__V1__JOB_LIST_REQUEST__INIT;
    struct talk talk = {0};
    const Millrace__V1__JobListResponse *out =
        (const void *)call_unary(&talk, &rig->client, PATH("Jobs/List"), &in.base,
                                 &millrace__v1__job_list_response__descriptor);
    assert_int_equal(talk.status, MR_RPC_OK);
    return out->n_jobs;
}

static uint32_t loads_now(struct rig *rig)
{
    struct mr_job_health health;
    mr_job_service_health(rig->jobs, &health);
    return health.loads;
}

/* Begins a job; more parts may follow. */
static void begin_job(struct talk *talk, struct client *client, const char *reduce, size_t parts)
{
    Millrace__V1__JobSubmitRequest in = MILLRACE__V1__JOB_SUBMIT_REQUEST__INIT;
    Millrace__V1__JobDefinition definition = MILLRACE__V1__JOB_DEFINITION__INIT;
    ProtobufCBinaryData bytes[64];
    assert_true(parts <= sizeof bytes / sizeof *bytes);
    for (size_t i = 0; i < parts; i++)
        bytes[i] = mr_pb_of_bytes(MR_SLICE_LIT("part"));
    definition.reduce = (char *)(uintptr_t)reduce;
    in.definition = &definition;
    in.parts = bytes;
    in.n_parts = parts;
    *talk = (struct talk){0};
    talk_begin(talk, client, PATH("Jobs/Submit"));
    (void)talk_send(talk, &in.base); /* who is refused at once may be so before it */
}

static void what_is_half_sent_or_empty_or_a_command_is_no_job(void **state)
{
    struct rig *rig = *state;
    struct talk talk;
    begin_job(&talk, &rig->client, "concat", 3);
    talk_done(&talk); /* the client gives up */
    begin_job(&talk, &rig->client, "concat", 0);
    talk_half_close(&talk);
    assert_int_equal(talk_end(&talk), MR_RPC_INVALID);
    talk_done(&talk);
    begin_job(&talk, &rig->client, "command:touch /tmp/never", 1); /* this server runs none */
    talk_half_close(&talk);
    assert_int_not_equal(talk_end(&talk), MR_RPC_OK);
    assert_string_equal(talk.code, "UNSUPPORTED");
    talk_done(&talk);
    assert_int_equal(jobs_there(rig), 0);
}

/* Who begins many jobs and goes on with none is told to wait, and holds up nobody once it has gone. */
static void jobs_that_are_begun_have_a_limit(void **state)
{
    struct rig *rig = *state;
    static struct talk talks[MR_JOB_LOADS_MAX];
    struct talk talk;
    for (size_t i = 0; i < MR_JOB_LOADS_MAX; i++)
        begin_job(&talks[i], &rig->client, "concat", 1);
    begin_job(&talk, &rig->client, "concat", 1);
    assert_int_not_equal(talk_end(&talk), MR_RPC_OK);
    assert_string_equal(talk.code, "BUSY");
    assert_non_null(strstr(talk.text, "the limit is 256: try again"));
    talk_done(&talk);
    for (size_t i = 0; i < MR_JOB_LOADS_MAX; i++)
        talk_done(&talks[i]);
    WAIT_UNTIL(loads_now(rig) == 0);
    put_job(&rig->client, "after");
    assert_int_equal(jobs_there(rig), 1);
}

static void a_quota_ends_a_job_before_it_fills_the_store(void **state)
{
    struct rig *rig = *state;
    struct mr_token wanted = {.role = MR_ROLE_PRODUCER, .queue = "*", .quota = 5}, made;
    char text[MR_TOKEN_TEXT_LEN + 1];
    struct client few;
    struct talk talk;
    assert_int_equal(mr_tokens_create(rig->tokens, &wanted, &made, text, NULL), MR_OK);
    client_open(rig, &few, text);
    begin_job(&talk, &few, "concat", 6); /* and it does not say that this was all */
    assert_int_not_equal(talk_end(&talk), MR_RPC_OK);
    assert_string_equal(talk.code, "DENIED");
    talk_done(&talk);
    begin_job(&talk, &few, "concat", 5);
    talk_half_close(&talk);
    assert_int_equal(talk_end(&talk), MR_RPC_OK);
    talk_done(&talk);
    assert_int_equal(jobs_there(rig), 1);
    client_close(&few);
}

static void who_may_not_submit_leaves_a_line_of_audit(void **state)
{
    struct rig *rig = *state;
    struct mr_token token;
    const char *text = make_token(rig, MR_ROLE_VIEWER, "*", &token);
    char line[128];
    struct client viewer;
    struct talk talk;
    client_open(rig, &viewer, text);
    begin_job(&talk, &viewer, "concat", 1);
    assert_int_not_equal(talk_end(&talk), MR_RPC_OK);
    assert_string_equal(talk.code, "DENIED");
    talk_done(&talk);
    snprintf(line, sizeof line, "%s Jobs/Submit  DENIED", token.id);
    assert_int_equal(rig->audit_n, 1);
    assert_string_equal(rig->audit[0], line);
    client_close(&viewer);
}

/* ---- a broker that does not answer ---------------------------------------------------------- */

/* Stands before a real one and keeps requests of one kind until it is told to go on. */
struct dam {
    struct mr_broker broker;
    struct mr_broker *real;
    struct mr_lock lock;
    _Atomic enum mr_op keeps; /* MR_OP_FINISH unless a test says otherwise */
    bool open;
    struct mr_link kept; /* requests, through their link */
    size_t kept_n;
    _Atomic size_t beats;
};

static void dam_submit(struct mr_broker *broker, struct mr_req *req)
{
    struct dam *dam = mr_container(broker, struct dam, broker);
    bool keep = false;
    if (req->op == MR_OP_BEAT)
        atomic_fetch_add(&dam->beats, 1);
    mr_lock_enter(&dam->lock);
    if (req->op == dam->keeps && !dam->open) {
        keep = true;
        mr_list_push_back(&dam->kept, &req->link);
        dam->kept_n++;
    }
    mr_lock_leave(&dam->lock);
    if (!keep)
        mr_broker_submit(dam->real, req);
}

static void dam_begun(struct mr_broker *broker, uint32_t slot, uint64_t epoch)
{
    mr_broker_begun(mr_container(broker, struct dam, broker)->real, slot, epoch);
}

static enum mr_err dam_lease_open(struct mr_broker *broker, struct mr_lease *lease)
{
    return mr_broker_lease_open(mr_container(broker, struct dam, broker)->real, lease);
}

static void dam_close(struct mr_broker *broker)
{
    struct dam *dam = mr_container(broker, struct dam, broker);
    mr_broker_close(dam->real);
    mr_lock_done(&dam->lock);
    free(dam);
}

static const struct mr_broker_ops dam_ops = {
    .submit = dam_submit, .begun = dam_begun, .lease_open = dam_lease_open, .close = dam_close};

static struct mr_broker *dam_build(struct mr_broker *real, void *arg)
{
    struct dam **ret_dam = arg;
    struct dam *dam = calloc(1, sizeof *dam);
    assert_non_null(dam);
    dam->broker.ops = &dam_ops;
    dam->real = real;
    dam->keeps = MR_OP_FINISH;
    mr_lock_init(&dam->lock);
    mr_list_init(&dam->kept);
    *ret_dam = dam;
    return &dam->broker;
}

static void dam_open(struct dam *dam)
{
    struct mr_link *link;
    mr_lock_enter(&dam->lock);
    dam->open = true;
    while ((link = mr_list_pop_front(&dam->kept)) != NULL)
        mr_broker_submit(dam->real, mr_container(link, struct mr_req, link));
    mr_lock_leave(&dam->lock);
}

static size_t dam_kept(struct dam *dam)
{
    mr_lock_enter(&dam->lock);
    size_t n = dam->kept_n;
    mr_lock_leave(&dam->lock);
    return n;
}

/* A disk that stalls keeps a worker's finishes, and its stream is not read; but it lives. */
static void a_worker_that_is_not_read_stays_alive(void **state)
{
    (void)state;
    enum { LEASE_MS = 600, REQUESTS = 8 };
    struct dam *dam;
    struct mr_api_options options = {.limits = {.requests_max = REQUESTS}};
    struct rig *rig = rig_start_behind(&options, dam_build, &dam);
    struct talk talk = {0};
    Millrace__V1__WorkerMessage message = MILLRACE__V1__WORKER_MESSAGE__INIT;
    Millrace__V1__Hello in = MILLRACE__V1__HELLO__INIT;
    Millrace__V1__QueueWeight queue = MILLRACE__V1__QUEUE_WEIGHT__INIT, *queues[] = {&queue};
    Millrace__V1__Finish finish = MILLRACE__V1__FINISH__INIT;
    queue.name = (char *)(uintptr_t) "q";
    in.slots = 1;
    in.lease_ms = LEASE_MS;
    in.queues = queues;
    in.n_queues = 1;
    message.kind_case = MILLRACE__V1__WORKER_MESSAGE__KIND_HELLO;
    message.hello = &in;
    talk_begin(&talk, &rig->client, PATH("Work/Attach"));
    talk_send(&talk, &message.base);
    assert_non_null(talk_next(&talk, &millrace__v1__server_message__descriptor));
    message.kind_case = MILLRACE__V1__WORKER_MESSAGE__KIND_FINISH;
    message.finish = &finish;
    for (uint32_t i = 0; i < 3 * REQUESTS; i++) {
        finish.tag = i;
        talk_send(&talk, &message.base);
    }
    WAIT_UNTIL(dam_kept(dam) == REQUESTS);
    WAIT_UNTIL(atomic_load(&dam->beats) >= 6); /* twice its lease */
    assert_int_equal(dam_kept(dam), REQUESTS);
    dam_open(dam);
    for (uint32_t i = 0; i < 3 * REQUESTS; i++) {
        const Millrace__V1__ServerMessage *answer =
            (const void *)talk_next(&talk, &millrace__v1__server_message__descriptor);
        assert_int_equal(answer->kind_case, MILLRACE__V1__SERVER_MESSAGE__KIND_FINISHED);
        assert_int_equal(answer->finished->tag, i);
    }
    Millrace__V1__Beat beat = MILLRACE__V1__BEAT__INIT;
    message.kind_case = MILLRACE__V1__WORKER_MESSAGE__KIND_BEAT;
    message.beat = &beat;
    talk_send(&talk, &message.base);
    const Millrace__V1__ServerMessage *answer =
        (const void *)talk_next(&talk, &millrace__v1__server_message__descriptor);
    assert_int_equal(answer->beaten->code, MR_OK);
    talk_done(&talk);
    rig_stop(rig);
}

/* What is asked in few bytes may be answered in many. */
static void a_connection_has_few_big_answers_under_way(void **state)
{
    (void)state;
    enum { CALLS = 40, AT_A_TIME = 8, MIB = 1024 * 1024 };
    struct dam *dam;
    struct mr_api_options options = {.limits = {.bytes_total = 4 * (2 * AT_A_TIME + 1) * MIB}};
    struct rig *rig = rig_start_behind(&options, dam_build, &dam);
    struct client other;
    struct talk talk = {0};
    static struct talk talks[CALLS];
    Millrace__V1__ListRequest list = MILLRACE__V1__LIST_REQUEST__INIT;
    list.with_payload = true;
    client_open(rig, &other, NULL);
    dam->keeps = MR_OP_LIST;
    for (size_t i = 0; i < CALLS; i++) {
        talks[i] = (struct talk){0};
        talk_begin(&talks[i], &rig->client, PATH("Tasks/List"));
        talk_send(&talks[i], &list.base);
        talk_half_close(&talks[i]);
    }
    WAIT_UNTIL(dam_kept(dam) == AT_A_TIME);
    assert_non_null(put(&other, "q", "meanwhile"));
    /* All together may have no more of them either; everything else goes on. */
    assert_null(call_unary(&talk, &other, PATH("Tasks/List"), &list.base,
                           &millrace__v1__list_response__descriptor));
    assert_string_equal(talk.code, "BUSY");
    assert_int_equal(dam_kept(dam), AT_A_TIME);
    dam_open(dam);
    for (size_t i = 0; i < CALLS; i++) {
        assert_int_equal(talk_end(&talks[i]), MR_RPC_OK);
        talk_done(&talks[i]);
    }
    client_close(&other);
    rig_stop(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_storm_of_malformed_messages_harms_nobody, begin, end),
        cmocka_unit_test_setup_teardown(millions_of_empty_items_are_refused_before_they_cost, begin,
                                        end),
        cmocka_unit_test_setup_teardown(what_is_half_sent_or_empty_or_a_command_is_no_job, begin,
                                        end),
        cmocka_unit_test_setup_teardown(jobs_that_are_begun_have_a_limit, begin, end),
        cmocka_unit_test_setup_teardown(a_quota_ends_a_job_before_it_fills_the_store, begin, end),
        cmocka_unit_test_setup_teardown(who_may_not_submit_leaves_a_line_of_audit, begin, end),
        cmocka_unit_test(a_worker_that_is_not_read_stays_alive),
        cmocka_unit_test(a_connection_has_few_big_answers_under_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
