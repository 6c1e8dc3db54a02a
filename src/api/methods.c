/* SPDX-License-Identifier: Apache-2.0 */
/* Every method: its path, who may call it, what it changes, what carries it out. A new
 * one is a row here and a function. */
#include "api/internal.h"
#include "grpc/health/v1/health.pb-c.h"
#include "millrace/v1/jobs.pb-c.h"
#include "millrace/v1/nodes.pb-c.h"
#include "millrace/v1/results.pb-c.h"
#include "millrace/v1/server.pb-c.h"
#include "millrace/v1/tokens.pb-c.h"

/* ---- the queue that a request names --------------------------------------------------------- */

static struct mr_slice of_queue(const ProtobufCMessage *message)
{
    return mr_pb_text(((const Millrace__V1__QueueRequest *)(const void *)message)->queue);
}

static struct mr_slice of_history(const ProtobufCMessage *message)
{
    return mr_pb_text(((const Millrace__V1__QueueHistoryRequest *)(const void *)message)->queue);
}

static struct mr_slice of_max_length(const ProtobufCMessage *message)
{
    return mr_pb_text(((const Millrace__V1__QueueMaxLengthRequest *)(const void *)message)->queue);
}

static struct mr_slice of_partitions(const ProtobufCMessage *message)
{
    return mr_pb_text(((const Millrace__V1__QueuePartitionsRequest *)(const void *)message)->queue);
}

static struct mr_slice of_assign(const ProtobufCMessage *message)
{
    return mr_pb_text(((const Millrace__V1__QueueAssignRequest *)(const void *)message)->queue);
}

static struct mr_slice of_retry_mode(const ProtobufCMessage *message)
{
    return mr_pb_text(((const Millrace__V1__QueueRetryModeRequest *)(const void *)message)->queue);
}

static struct mr_slice of_retry_wait(const ProtobufCMessage *message)
{
    return mr_pb_text(((const Millrace__V1__QueueRetryWaitRequest *)(const void *)message)->queue);
}

static struct mr_slice of_limit(const ProtobufCMessage *message)
{
    return mr_pb_text(((const Millrace__V1__QueueLimitRequest *)(const void *)message)->queue);
}

static struct mr_slice of_limits(const ProtobufCMessage *message)
{
    return mr_pb_text(((const Millrace__V1__QueueLimitsRequest *)(const void *)message)->queue);
}

static struct mr_slice of_gather(const ProtobufCMessage *message)
{
    return mr_pb_text(((const Millrace__V1__GatherRequest *)(const void *)message)->queue);
}

static struct mr_slice of_topic(const ProtobufCMessage *message)
{
    return mr_pb_text(((const Millrace__V1__TopicRequest *)(const void *)message)->topic);
}

static struct mr_slice of_remove(const ProtobufCMessage *message)
{
    return mr_pb_text(((const Millrace__V1__QueueRemoveRequest *)(const void *)message)->queue);
}

/* ---- what a change is done to --------------------------------------------------------------- */

static struct mr_slice about_queue(struct unary *u)
{
    return u->method->queue(u->message);
}

static struct mr_slice about_dir(struct unary *u)
{
    return mr_pb_text(((const Millrace__V1__BackupRequest *)(const void *)u->message)->dir);
}

static struct mr_slice about_token(struct unary *u)
{
    return mr_pb_text(((const Millrace__V1__TokenRevokeRequest *)(const void *)u->message)->id);
}

/* ---- the table ------------------------------------------------------------------------------ */

#define A       MR_ROLE_BIT(MR_ROLE_ADMIN)
#define P       MR_ROLE_BIT(MR_ROLE_PRODUCER)
#define W       MR_ROLE_BIT(MR_ROLE_WORKER)
#define V       MR_ROLE_BIT(MR_ROLE_VIEWER)
#define ANYBODY 0
#define KIND(k) &millrace__v1__##k##__descriptor
#define HEALTH  "/grpc.health.v1.Health/"
#define ALPHA   "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"
#define BETA    "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
#define OURS    "/millrace.v1."

/* name, path, roles, what it is done to, kind of the request, start, the queue it names */
#define UNARY_ROWS(X)                                                                              \
    X(enqueue, OURS "Tasks/Enqueue", A | P, NULL, NULL, tasks_enqueue, NULL)                       \
    X(get, OURS "Tasks/Get", A | P | V, NULL, KIND(get_request), tasks_get, NULL)                  \
    X(list, OURS "Tasks/List", A | P | V, NULL, KIND(list_request), tasks_list, NULL)              \
    X(wait, OURS "Tasks/Wait", A | P | V, NULL, KIND(wait_request), tasks_wait, NULL)              \
    X(why, OURS "Tasks/Why", A | P | V, NULL, KIND(get_request), tasks_why, NULL)                  \
    X(control, OURS "Tasks/Control", A, tasks_about, KIND(control_request), tasks_control, NULL)   \
    X(carry, OURS "Tasks/Carry", A, tasks_about_carried, NULL, tasks_carry, NULL)                  \
    X(qlist, OURS "Queues/List", A | P | V, NULL, KIND(queue_list_request), queues_list, NULL)     \
    X(qget, OURS "Queues/Get", A | P | V, NULL, KIND(queue_request), queues_get, of_queue)         \
    X(history, OURS "Queues/History", A | P | V, NULL, KIND(queue_history_request),                \
      queues_history, of_history)                                                                  \
    X(pause, OURS "Queues/Pause", A, about_queue, KIND(queue_request), queues_pause, of_queue)     \
    X(resume, OURS "Queues/Resume", A, about_queue, KIND(queue_request), queues_resume, of_queue)  \
    X(max_length, OURS "Queues/SetMaxLength", A, about_queue, KIND(queue_max_length_request),      \
      queues_set_max_length, of_max_length)                                                        \
    X(partitions, OURS "Queues/SetPartitions", A, about_queue, KIND(queue_partitions_request),     \
      queues_set_partitions, of_partitions)                                                        \
    X(assign, OURS "Queues/SetAssign", A, about_queue, KIND(queue_assign_request),                 \
      queues_set_assign, of_assign)                                                                \
    X(retry_mode, OURS "Queues/SetRetryMode", A, about_queue, KIND(queue_retry_mode_request),      \
      queues_set_retry_mode, of_retry_mode)                                                        \
    X(retry_wait, OURS "Queues/SetRetryWait", A, about_queue, KIND(queue_retry_wait_request),      \
      queues_set_retry_wait, of_retry_wait)                                                        \
    X(rate, OURS "Queues/SetRate", A, about_queue, KIND(queue_limit_request), queues_set_rate,     \
      of_limit)                                                                                    \
    X(concurrency, OURS "Queues/SetConcurrency", A, about_queue, KIND(queue_limit_request),        \
      queues_set_concurrency, of_limit)                                                            \
    X(limits, OURS "Queues/Limits", A | P | V, NULL, KIND(queue_limits_request), queues_limits,    \
      of_limits)                                                                                   \
    X(remove, OURS "Queues/Remove", A, about_queue, KIND(queue_remove_request), queues_remove,     \
      of_remove)                                                                                   \
    X(nodes, OURS "Nodes/List", MR_ROLES_ALL, NULL, KIND(node_list_request), nodes_list, NULL)     \
    X(servers, OURS "Nodes/Servers", MR_ROLES_ALL, NULL, KIND(servers_request), nodes_servers,     \
      NULL)                                                                                        \
    X(assigned, OURS "Nodes/Assign", A | P | W, NULL, NULL, nodes_assign, NULL)                    \
    X(finish, OURS "Work/Finish", A | W, NULL, NULL, work_finish, NULL)                            \
    X(topic, OURS "Results/Get", A | P | V, NULL, KIND(topic_request), results_get, of_topic)      \
    X(commit, OURS "Results/Commit", A | P, NULL, NULL, results_commit, NULL)                      \
    X(gather, OURS "Work/Gather", A | W, NULL, KIND(gather_request), groups_gather, of_gather)     \
    X(gathered, OURS "Work/Gathered", A | W, NULL, NULL, groups_gathered, NULL)                    \
    X(stats, OURS "Server/Stats", A | V, NULL, KIND(stats_request), server_stats, NULL)            \
    X(backup, OURS "Server/Backup", A, about_dir, KIND(backup_request), server_backup, NULL)       \
    X(tcreate, OURS "Tokens/Create", A, tokens_about_new, KIND(token_create_request),              \
      tokens_create, NULL)                                                                         \
    X(tlist, OURS "Tokens/List", A, NULL, KIND(token_list_request), tokens_list, NULL)             \
    X(revoke, OURS "Tokens/Revoke", A, about_token, KIND(token_revoke_request), tokens_revoke,     \
      NULL)                                                                                        \
    X(timer_send, OURS "Timers/Send", A | P, timers_about, NULL, timers_send, NULL)                \
    X(timer_get, OURS "Timers/Get", A | P | V, NULL, NULL, timers_get, NULL)                       \
    X(timer_list, OURS "Timers/List", A | P | V, NULL, NULL, timers_list, NULL)                    \
    X(timer_next, OURS "Timers/Next", A | P | V, NULL, NULL, timers_next, NULL)                    \
    X(timer_history, OURS "Timers/History", A | P | V, NULL, NULL, timers_history, NULL)           \
    X(timer_status, OURS "Timers/Status", A | P | V, NULL, NULL, timers_status, NULL)              \
    X(timer_keep, OURS "Timers/Keep", A, NULL, NULL, timers_keep, NULL)                            \
    X(job_get, OURS "Jobs/Get", A | P | V, NULL, KIND(job_request), jobs_get, NULL)                \
    X(job_list, OURS "Jobs/List", A | P | V, NULL, KIND(job_list_request), jobs_list, NULL)        \
    X(job_parts, OURS "Jobs/ListParts", A | P | V, NULL, KIND(part_list_request), jobs_parts,      \
      NULL)                                                                                        \
    X(job_cancel, OURS "Jobs/Cancel", A | P, jobs_about, KIND(job_request), jobs_cancel, NULL)     \
    X(job_retry, OURS "Jobs/Retry", A | P, jobs_about, KIND(job_request), jobs_retry, NULL)        \
    X(check, HEALTH "Check", ANYBODY, NULL, &grpc__health__v1__health_check_request__descriptor,   \
      health_check, NULL)

/* name, path, roles, open, whether a person changes something by it */
#define STREAM_ROWS(X)                                                                             \
    X(enqueue_stream, OURS "Tasks/EnqueueStream", A | P, enqueue_stream_open, false)               \
    X(attach, OURS "Work/Attach", A | P | W, attach_open, false)                                   \
    X(events, OURS "Events/Watch", A | P | V, events_watch_open, false)                            \
    X(job_submit, OURS "Jobs/Submit", A | P, jobs_submit_open, true)                               \
    X(job_watch, OURS "Jobs/Watch", A | P | V, jobs_watch_open, false)                             \
    X(job_result, OURS "Jobs/Result", A | P | V, jobs_result_open, false)                          \
    X(watch, HEALTH "Watch", ANYBODY, health_watch_open, false)                                    \
    X(reflect, BETA, MR_ROLES_ALL, reflection_open, false)                                         \
    X(reflect_alpha, ALPHA, MR_ROLES_ALL, reflection_open, false)

#define UNARY_BEGIN(name, path_, roles_, about_, kind_, start_, queue_)                            \
    static void begin_##name(struct mr_call *call, void *arg)                                      \
    {                                                                                              \
        static const struct method method = {.path = path_,                                        \
                                             .roles = roles_,                                      \
                                             .about = about_,                                      \
                                             .kind = kind_,                                        \
                                             .start = start_,                                      \
                                             .queue = queue_};                                     \
        method_begin(call, arg, &method);                                                          \
    }
#define STREAM_BEGIN(name, path_, roles_, open_, changes_)                                         \
    static void begin_##name(struct mr_call *call, void *arg)                                      \
    {                                                                                              \
        static const struct method method = {                                                      \
            .path = path_, .roles = roles_, .open = open_, .changes = changes_};                   \
        method_begin(call, arg, &method);                                                          \
    }
UNARY_ROWS(UNARY_BEGIN)
STREAM_ROWS(STREAM_BEGIN)

#define UNARY_PATH(name, path, roles, about, kind, start, queue) {path, begin_##name},
#define STREAM_PATH(name, path, roles, open, changes)            {path, begin_##name},
static const struct mr_rpc_method methods[] = {UNARY_ROWS(UNARY_PATH) STREAM_ROWS(STREAM_PATH)};

const struct mr_rpc_method *mr_api_methods(size_t *ret_n)
{
    *ret_n = sizeof methods / sizeof *methods;
    return methods;
}
