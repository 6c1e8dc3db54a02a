/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A real server (embedded broker in a new folder, services, port of the kernel's choice) and clients
 * that speak to it in protobuf. Calls are driven from the thread of the test. Include it in one file
 * of a test program.
 */
#ifndef MR_TESTS_API_RIG_H
#define MR_TESTS_API_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "api/api.h"
#include "broker/embedded/embedded.h"
#include "grpc/health/v1/health.pb-c.h"
#include "grpc/reflection/v1/reflection.pb-c.h"
#include "job/service.h"
#include "millrace/v1/jobs.pb-c.h"
#include "millrace/v1/server.pb-c.h"
#include "millrace/v1/tokens.pb-c.h"
#include "store/store.h"
#include "support/on_loop.h"
#include "support/pb_of.h"
#include "support/slow_fs.h"
#include "timer/service.h"

enum { AUDIT_MAX = 64 };

struct client {
    struct rig *rig;
    struct mr_channel *channel;
    struct mr_event up;
};

struct rig {
    char dir[64];
    struct mr_broker *broker;
    /* NULL: it has none. */
    struct mr_store *store;
    struct mr_timer_service *timers;
    struct mr_job_service *jobs;
    struct mr_rpc *server, *loop; /* loop: of the clients */
    struct mr_api *api;
    struct mr_tokens *tokens;
    struct slow_fs disk; /* of the tokens */
    uint16_t port;
    struct client client; /* without a token */
    struct mr_arena arena;
    struct mr_lock lock; /* for the audit */
    char audit[AUDIT_MAX][256];
    size_t audit_n;
};

/* Waits a moment before the next look at a condition; fails the test when the time is up. */
static inline void look_again(int64_t *give_up_ns)
{
    struct mr_event tick;
    int64_t now = mr_mono_now(mr_clock_system()).ns;
    if (*give_up_ns == 0)
        *give_up_ns = now + patience_ns;
    assert_true(now < *give_up_ns);
    mr_event_init(&tick);
    mr_event_wait(&tick, MR_NS_PER_MS);
}

#define WAIT_UNTIL(cond)                                                                           \
    for (int64_t give_up_ = 0; !(cond);)                                                           \
    look_again(&give_up_)

/* ---- the server ----------------------------------------------------------------------------- */

static inline void note_audit(const struct mr_audit *line, void *arg)
{
    struct rig *rig = arg;
    mr_lock_enter(&rig->lock);
    if (rig->audit_n < AUDIT_MAX)
        snprintf(rig->audit[rig->audit_n++], sizeof rig->audit[0], "%s %s %.*s %s", line->token,
                 line->method, (int)line->about.len,
                 line->about.len > 0 ? (const char *)line->about.data : "", mr_err_name(line->err));
    mr_lock_leave(&rig->lock);
}

static inline void client_changed(struct mr_channel *channel, bool up, const char *why, void *arg)
{
    (void)channel, (void)why;
    struct client *client = arg;
    if (up)
        mr_event_set(&client->up);
}

static inline void client_open(struct rig *rig, struct client *client, const char *token)
{
    char address[32], authorization[128];
    snprintf(address, sizeof address, "127.0.0.1:%u", (unsigned)rig->port);
    snprintf(authorization, sizeof authorization, "Bearer %s", token != NULL ? token : "");
    struct mr_channel_options options = {.address = address,
                                         .authorization = token != NULL ? authorization : NULL,
                                         .changed = client_changed,
                                         .arg = client};
    client->rig = rig;
    mr_event_init(&client->up);
    assert_int_equal(mr_channel_new(rig->loop, &options, &client->channel, NULL), MR_OK);
    assert_true(mr_event_wait(&client->up, patience_ns));
}

static inline void client_close(struct client *client)
{
    mr_channel_free(client->channel);
    client->channel = NULL;
}

/* Whether it has timers and jobs, in a SQLite. */
enum rig_has { RIG_HAS_TASKS, RIG_HAS_ALL };

static inline void rig_open_services(struct rig *rig)
{
    char url[96];
    struct mr_detail detail = {.text = ""};
    snprintf(url, sizeof url, "sqlite:%s/jobs.db", rig->dir);
    struct mr_store_options store = {.url = url};
    assert_int_equal(mr_store_open(&store, &rig->store, &detail), MR_OK);
    struct mr_timer_service_options timers = {
        .broker = rig->broker, .store = rig->store, .node = "", .keeps_copies = true};
    assert_int_equal(mr_timer_service_open(&timers, &rig->timers, &detail), MR_OK);
    struct mr_job_service_options jobs = {.broker = rig->broker, .store = rig->store};
    assert_int_equal(mr_job_service_open(&jobs, &rig->jobs, &detail), MR_OK);
}

/* changes: options that are not the default; broker, rpc, tokens and services are set here. wrap: puts another
 * broker before the real one and owns it; NULL: none. */
typedef struct mr_broker *rig_wrap(struct mr_broker *real, void *arg);
static inline struct rig *rig_start_as(const struct mr_api_options *changes, enum rig_has has,
                                       rig_wrap *wrap, void *arg)
{
    struct rig *rig = calloc(1, sizeof *rig);
    struct mr_detail detail = {.text = ""};
    mr_assert(rig != NULL);
    mr_lock_init(&rig->lock);
    snprintf(rig->dir, sizeof rig->dir, "/tmp/millrace-api-XXXXXX");
    assert_non_null(mkdtemp(rig->dir));
    struct mr_embedded_options store = {.dir = rig->dir, .segment_bytes = 8 << 20};
    assert_int_equal(mr_embedded_open(&store, &rig->broker, &detail), MR_OK);
    if (wrap != NULL)
        rig->broker = wrap(rig->broker, arg);
    slow_fs_init(&rig->disk);
    assert_int_equal(mr_tokens_open(rig->dir, &rig->disk.fs, &rig->tokens, &detail), MR_OK);
    assert_int_equal(mr_rpc_new("server", NULL, &rig->server), MR_OK);
    assert_int_equal(mr_rpc_new("client", NULL, &rig->loop), MR_OK);
    struct mr_api_options options = changes != NULL ? *changes : (struct mr_api_options){0};
    if (has == RIG_HAS_ALL)
        rig_open_services(rig);
    options.broker = rig->broker;
    options.timers = rig->timers;
    options.jobs = rig->jobs;
    options.rpc = rig->server;
    options.access.tokens = rig->tokens;
    options.audit = note_audit;
    options.audit_arg = rig;
    assert_int_equal(mr_api_new(&options, &rig->api), MR_OK);
    struct mr_rpc_service service = {.address = "127.0.0.1:0", .arg = rig->api};
    service.methods = mr_api_methods(&service.methods_n);
    assert_int_equal(mr_rpc_listen(rig->server, &service, &rig->port, &detail), MR_OK);
    client_open(rig, &rig->client, NULL);
    return rig;
}

static inline struct rig *rig_start_behind(const struct mr_api_options *changes, rig_wrap *wrap,
                                           void *arg)
{
    return rig_start_as(changes, RIG_HAS_TASKS, wrap, arg);
}

static inline struct rig *rig_start(const struct mr_api_options *changes)
{
    return rig_start_as(changes, RIG_HAS_TASKS, NULL, NULL);
}

static inline void remove_dir(const char *dir)
{
    char command[128];
    snprintf(command, sizeof command, "rm -rf '%s'", dir);
    assert_int_equal(system(command), 0);
}

static inline void rig_stop_server(struct rig *rig, int64_t max_ms)
{
    mr_api_stop(rig->api, max_ms);
    mr_rpc_free(rig->server);
    mr_api_free(rig->api);
    mr_job_service_close(rig->jobs);
    mr_timer_service_close(rig->timers);
    mr_store_close(rig->store);
    mr_broker_close(rig->broker);
    rig->api = NULL;
}

static inline void rig_stop(struct rig *rig)
{
    client_close(&rig->client);
    if (rig->api != NULL)
        rig_stop_server(rig, 0);
    mr_rpc_free(rig->loop);
    mr_tokens_free(rig->tokens);
    mr_arena_done(&rig->arena);
    remove_dir(rig->dir);
    mr_lock_done(&rig->lock);
    free(rig);
}

/* Its text, with "mr_" and all; lives as long as the rig. */
static inline const char *make_token(struct rig *rig, enum mr_role role, const char *queue,
                                     struct mr_token *ret_token)
{
    struct mr_token wanted = {.role = role}, made;
    struct mr_detail detail = {.text = ""};
    char *text = mr_arena_alloc(&rig->arena, MR_TOKEN_TEXT_LEN + 1);
    snprintf(wanted.queue, sizeof wanted.queue, "%s", queue);
    assert_int_equal(mr_tokens_create(rig->tokens, &wanted, &made, text, &detail), MR_OK);
    if (ret_token != NULL)
        *ret_token = made;
    return text;
}

/* ---- calls ---------------------------------------------------------------------------------- */

struct got {
    struct mr_link link;
    struct mr_slice bytes; /* behind it */
};

struct talk {
    struct client *client;
    struct mr_call *call;
    struct mr_lock lock;
    struct mr_link messages; /* of struct got */
    struct mr_event closed;
    bool over;
    int status;
    char text[512], code[32]; /* how it ended */
    bool hold;                /* reads nothing */
    /* Arguments of what is done on the loop. */
    const char *path;
    int64_t deadline_ms;
    struct mr_slice bytes;
    enum mr_err err;
};

static inline void talk_message(struct mr_call *call, struct mr_slice bytes)
{
    struct talk *talk = mr_call_data(call);
    struct got *got = malloc(sizeof *got + bytes.len);
    mr_assert(got != NULL);
    if (bytes.len > 0)
        memcpy(got + 1, bytes.data, bytes.len);
    got->bytes = mr_slice_make(got + 1, bytes.len);
    mr_lock_enter(&talk->lock);
    mr_list_push_back(&talk->messages, &got->link);
    mr_lock_notify_all(&talk->lock);
    mr_lock_leave(&talk->lock);
}

static inline void talk_closed(struct mr_call *call, int status, struct mr_slice text)
{
    struct talk *talk = mr_call_data(call);
    struct mr_slice code = mr_call_metadata(call, "millrace-code");
    talk->status = status;
    snprintf(talk->text, sizeof talk->text, "%.*s", (int)text.len,
             text.len > 0 ? (const char *)text.data : "");
    snprintf(talk->code, sizeof talk->code, "%.*s", (int)code.len,
             code.len > 0 ? (const char *)code.data : "");
    talk->call = NULL;
    mr_lock_enter(&talk->lock);
    talk->over = true;
    mr_lock_notify_all(&talk->lock);
    mr_lock_leave(&talk->lock);
    mr_event_set(&talk->closed); /* last: it may be gone now */
}

static const struct mr_call_ops talk_ops = {.message = talk_message, .closed = talk_closed};

static inline void do_begin(void *arg)
{
    struct talk *talk = arg;
    talk->err = mr_channel_call(talk->client->channel, talk->path, talk->deadline_ms, &talk_ops,
                                talk, &talk->call);
    if (talk->err == MR_OK && talk->hold)
        mr_call_hold(talk->call, true);
}

static inline void talk_begin(struct talk *talk, struct client *client, const char *path)
{
    talk->client = client;
    talk->path = path;
    mr_lock_init(&talk->lock);
    mr_list_init(&talk->messages);
    mr_event_init(&talk->closed);
    on_loop(client->rig->loop, do_begin, talk);
    assert_int_equal(talk->err, MR_OK);
}

static inline void do_send(void *arg)
{
    struct talk *talk = arg;
    talk->err = talk->call != NULL ? mr_call_send(talk->call, talk->bytes) : MR_CLOSED;
}

static inline enum mr_err talk_send_bytes(struct talk *talk, struct mr_slice bytes)
{
    talk->bytes = bytes;
    on_loop(talk->client->rig->loop, do_send, talk);
    return talk->err;
}

static inline enum mr_err talk_send(struct talk *talk, const ProtobufCMessage *message)
{
    struct mr_buf buf = {0};
    assert_int_equal(pb_encode(message, &buf), MR_OK);
    enum mr_err err = talk_send_bytes(talk, mr_buf_slice(&buf));
    mr_buf_done(&buf);
    return err;
}

static inline void do_half_close(void *arg)
{
    struct talk *talk = arg;
    if (talk->call != NULL)
        mr_call_half_close(talk->call);
}

static inline void talk_half_close(struct talk *talk)
{
    on_loop(talk->client->rig->loop, do_half_close, talk);
}

static inline void do_cancel(void *arg)
{
    struct talk *talk = arg;
    if (talk->call != NULL)
        mr_call_cancel(talk->call);
}

static inline void do_read_on(void *arg)
{
    struct talk *talk = arg;
    if (talk->call != NULL)
        mr_call_hold(talk->call, false);
}

/* The next message, in the rig's arena; NULL when the call ended before. */
static inline ProtobufCMessage *talk_next(struct talk *talk, const ProtobufCMessageDescriptor *kind)
{
    ProtobufCMessage *message = NULL;
    mr_lock_enter(&talk->lock);
    while (mr_list_empty(&talk->messages) && !talk->over)
        mr_lock_wait(&talk->lock, patience_ns);
    struct mr_link *link = mr_list_pop_front(&talk->messages);
    mr_lock_leave(&talk->lock);
    if (link == NULL)
        return NULL;
    struct got *got = mr_container(link, struct got, link);
    assert_int_equal(mr_pb_decode(kind, got->bytes, &talk->client->rig->arena, &message), MR_OK);
    free(got);
    return message;
}

/* Waits for the end and answers the status. */
static inline int talk_end(struct talk *talk)
{
    assert_true(mr_event_wait(&talk->closed, patience_ns));
    return talk->status;
}

static inline void talk_done(struct talk *talk)
{
    struct mr_link *link;
    on_loop(talk->client->rig->loop, do_cancel, talk);
    talk_end(talk);
    while ((link = mr_list_pop_front(&talk->messages)) != NULL)
        free(mr_container(link, struct got, link));
    mr_lock_done(&talk->lock);
}

/* One unary call; how it ended is in talk, whose messages are gone. */
static inline ProtobufCMessage *call_unary(struct talk *talk, struct client *client,
                                           const char *path, const ProtobufCMessage *message,
                                           const ProtobufCMessageDescriptor *reply)
{
    *talk = (struct talk){.deadline_ms = talk->deadline_ms};
    talk_begin(talk, client, path);
    talk_send(talk, message);
    talk_half_close(talk);
    ProtobufCMessage *answer = talk_next(talk, reply);
    talk_end(talk);
    talk_done(talk);
    return answer;
}

/* ---- usual things --------------------------------------------------------------------------- */

#define PATH(method) "/millrace.v1." method

/* Enqueues one task that must be accepted. */
static inline const char *put(struct client *client, const char *queue, const char *id)
{
    Millrace__V1__EnqueueRequest request = MILLRACE__V1__ENQUEUE_REQUEST__INIT;
    Millrace__V1__NewTask task = MILLRACE__V1__NEW_TASK__INIT, *tasks[] = {&task};
    struct talk talk = {0};
    task.queue = (char *)(uintptr_t)queue;
    task.id = (char *)(uintptr_t)id;
    task.payload = mr_pb_of_bytes(MR_SLICE_LIT("payload"));
    request.tasks = tasks;
    request.n_tasks = 1;
    const Millrace__V1__EnqueueResponse *reply =
        (const void *)call_unary(&talk, client, PATH("Tasks/Enqueue"), &request.base,
                                 &millrace__v1__enqueue_response__descriptor);
    assert_int_equal(talk.status, MR_RPC_OK);
    assert_int_equal(reply->n_results, 1);
    assert_int_equal(reply->results[0]->code, MR_OK);
    return reply->results[0]->id;
}

/* Submits a job of two parts that nobody works on; its id. */
static inline const char *put_job(struct client *client, const char *queue)
{
    Millrace__V1__JobSubmitRequest request = MILLRACE__V1__JOB_SUBMIT_REQUEST__INIT;
    Millrace__V1__JobDefinition definition = MILLRACE__V1__JOB_DEFINITION__INIT;
    ProtobufCBinaryData parts[] = {mr_pb_of_bytes(MR_SLICE_LIT("one")),
                                   mr_pb_of_bytes(MR_SLICE_LIT("two"))};
    struct talk talk = {0};
    definition.queue = (char *)(uintptr_t)queue;
    request.definition = &definition;
    request.parts = parts;
    request.n_parts = 2;
    const Millrace__V1__Job *job = (const void *)call_unary(
        &talk, client, PATH("Jobs/Submit"), &request.base, &millrace__v1__job__descriptor);
    assert_int_equal(talk.status, MR_RPC_OK);
    assert_int_equal(job->total, 2);
    return job->id;
}

/* NULL: not found. */
static inline const Millrace__V1__Task *look(struct client *client, const char *id)
{
    Millrace__V1__GetRequest request = MILLRACE__V1__GET_REQUEST__INIT;
    struct talk talk = {0};
    request.id = (char *)(uintptr_t)id;
    return (const void *)call_unary(&talk, client, PATH("Tasks/Get"), &request.base,
                                    &millrace__v1__task__descriptor);
}

static inline Millrace__V1__State state_of(struct client *client, const char *id)
{
    const Millrace__V1__Task *task = look(client, id);
    return task != NULL ? task->state : MILLRACE__V1__STATE__STATE_NONE;
}

static inline int control(struct client *client, Millrace__V1__Verb verb, const char *id)
{
    Millrace__V1__ControlRequest request = MILLRACE__V1__CONTROL_REQUEST__INIT;
    Millrace__V1__ControlItem item = MILLRACE__V1__CONTROL_ITEM__INIT, *items[] = {&item};
    struct talk talk = {0};
    item.verb = verb;
    item.id = (char *)(uintptr_t)id;
    request.items = items;
    request.n_items = 1;
    const Millrace__V1__ControlResponse *reply =
        (const void *)call_unary(&talk, client, PATH("Tasks/Control"), &request.base,
                                 &millrace__v1__control_response__descriptor);
    return reply != NULL ? (int)reply->codes[0] : -talk.status;
}

#endif
