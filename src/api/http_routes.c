/* SPDX-License-Identifier: Apache-2.0 */
/* Every route of HTTP: a new one is a row here and a function. Names of schemas and parameters: http_openapi.c. */
#include "api/http_internal.h"

#define A         MR_ROLE_BIT(MR_ROLE_ADMIN)
#define P         MR_ROLE_BIT(MR_ROLE_PRODUCER)
#define W         MR_ROLE_BIT(MR_ROLE_WORKER)
#define V         MR_ROLE_BIT(MR_ROLE_VIEWER)
#define ANYBODY   0
#define V1        "/api/v1"
#define LOOK      .owner = HTTP_API, .status = 200, .method = "GET"
#define ACT(code) .owner = HTTP_API, .status = (code)
#define LOOK_JOB  .owner = HTTP_JOBS, .status = 200, .method = "GET"
#define ELSE      .owner = HTTP_ELSEWHERE, .status = 200, .method = "GET", .type = "text/plain"

/* clang-format off */
const struct http_row http_rows[] = {
    {LOOK, .path = V1 "/queues", .roles = A | P | V, .summary = "Queues, by name",
     .query = "cursor limit", .answer = "queues", .handle = http_queues},
    {LOOK, .path = V1 "/queues/{queue}", .roles = A | P | V, .summary = "A queue",
     .answer = "queue", .handle = http_queue},
    {.method = "PATCH", .path = V1 "/queues/{queue}", ACT(200), .roles = A, .act = "Queues/Set",
     .summary = "Sets what is given, one after the other; a queue that is not there is made",
     .body = "queue_settings", .body_max = HTTP_SMALL_MAX, .answer = "queue_name",
     .handle = http_queue_set},
    {.method = "DELETE", .path = V1 "/queues/{queue}", ACT(200), .roles = A, .act = "Queues/Remove",
     .summary = "Removes a queue without tasks, or with them", .query = "force",
     .answer = "queue_name", .handle = http_queue_delete},
    {.method = "POST", .path = V1 "/queues/{queue}/pause", ACT(200), .roles = A,
     .act = "Queues/Pause", .summary = "Nothing is handed out of it", .answer = "queue_name",
     .handle = http_queue_pause},
    {.method = "POST", .path = V1 "/queues/{queue}/resume", ACT(200), .roles = A,
     .act = "Queues/Resume", .summary = "Ends its pause", .answer = "queue_name",
     .handle = http_queue_resume},

    {.method = "POST", .path = V1 "/tasks", ACT(200), .roles = A | P,
     .summary = "Enqueues a task, or an array of at most 1000 with an answer for each",
     .body = "new_tasks", .body_max = HTTP_BODY_MAX, .answer = "enqueued", .handle = http_enqueue},
    {LOOK, .path = V1 "/tasks", .roles = A | P | V,
     .summary = "Tasks, in the order of each state; a page costs the same wherever it is",
     .query = "queue state type cursor limit", .answer = "tasks", .handle = http_tasks},
    {LOOK, .path = V1 "/tasks/{id}", .roles = A | P | V, .summary = "A task",
     .answer = "task", .handle = http_task},
    {.method = "DELETE", .path = V1 "/tasks/{id}", ACT(200), .roles = A, .act = "Tasks/Delete",
     .summary = "Deletes a task that does not run", .answer = "task_id",
     .handle = http_task_delete},
    {.method = "POST", .path = V1 "/tasks/{id}/cancel", ACT(200), .roles = A, .act = "Tasks/Cancel",
     .summary = "One that waits goes to the archive, one that runs is told to stop",
     .answer = "task_id", .handle = http_task_cancel},
    {.method = "POST", .path = V1 "/tasks/{id}/run", ACT(200), .roles = A, .act = "Tasks/Run",
     .summary = "Makes it pending now, also from the archive", .answer = "task_id",
     .handle = http_task_run},
    {.method = "POST", .path = V1 "/tasks/{id}/archive", ACT(200), .roles = A,
     .act = "Tasks/Archive", .summary = "One that waits goes to the archive", .answer = "task_id",
     .handle = http_task_archive},

    {.method = "POST", .path = V1 "/take", ACT(200), .roles = A | W,
     .summary = "Takes tasks for a worker; waits for the first, so long as it says",
     .body = "take", .body_max = HTTP_SMALL_MAX, .answer = "tasks", .handle = http_take},
    {.method = "POST", .path = V1 "/extend", ACT(200), .roles = A | W,
     .summary = "Begins the leases of what was taken together anew", .body = "runs",
     .body_max = HTTP_SMALL_MAX, .answer = "extended", .handle = http_extend},
    {.method = "POST", .path = V1 "/finish", ACT(200), .roles = A | W,
     .summary = "Ends runs", .body = "ends", .body_max = HTTP_BODY_MAX, .answer = "results",
     .handle = http_finish},

    {LOOK, .path = V1 "/nodes", .roles = MR_ROLES_ALL, .summary = "Workers, masters and servers",
     .answer = "nodes", .handle = http_nodes},
    {LOOK, .path = V1 "/leader", .roles = MR_ROLES_ALL, .summary = "Who leads",
     .answer = "leader", .handle = http_leader},

    {LOOK, .path = V1 "/events", .roles = A | P | V,
     .summary = "How queues are, who works and who leads, as it changes: start, everything there is, "
                "ready, then changes",
     .query = "watch_queue", .type = "text/event-stream", .handle = http_events},

    {LOOK, .path = V1 "/timers", .roles = A | P | V, .summary = "Timers, by app and name",
     .query = "app timer_state cursor limit", .answer = "timers", .handle = http_timers},
    {LOOK, .path = V1 "/timers/{name}", .roles = A | P | V, .summary = "A timer",
     .query = "app", .answer = "timer", .handle = http_timer},
    {LOOK, .path = V1 "/timers/{name}/next", .roles = A | P | V, .summary = "When it fires next",
     .query = "app limit", .answer = "times", .handle = http_timer_next},
    {LOOK, .path = V1 "/timers/{name}/history", .roles = A | P | V,
     .summary = "Its firings, newest first",
     .query = "app cursor limit", .answer = "firings", .handle = http_timer_history},

    {.method = "POST", .path = V1 "/jobs", .owner = HTTP_JOBS, .roles = A | P, .act = "Jobs/Submit",
     .summary = "Gives a job in", .body = "new_job", .body_max = HTTP_BODY_MAX, .status = 201,
     .answer = "job", .handle = http_jobs_submit},
    {LOOK_JOB, .path = V1 "/jobs", .roles = A | P | V, .summary = "Jobs, newest first",
     .query = "queue job_state cursor limit", .answer = "jobs", .handle = http_jobs_list},
    {LOOK_JOB, .path = V1 "/jobs/{id}", .roles = A | P | V, .summary = "A job",
     .answer = "job", .handle = http_jobs_get},
    {LOOK_JOB, .path = V1 "/jobs/{id}/parts", .roles = A | P | V, .summary = "Its parts",
     .query = "part_state cursor limit", .answer = "parts", .handle = http_jobs_parts},
    {LOOK_JOB, .path = V1 "/jobs/{id}/result", .roles = A | P | V, .summary = "Its result, as bytes",
     .type = "application/octet-stream", .handle = http_jobs_result},
    {LOOK_JOB, .path = V1 "/jobs/{id}/events", .roles = A | P | V,
     .summary = "Its progress as it goes: events of the server, at last one named end",
     .type = "text/event-stream", .handle = http_jobs_events},
    {.method = "POST", .path = V1 "/jobs/{id}/cancel", .owner = HTTP_JOBS, .roles = A | P,
     .act = "Jobs/Cancel", .summary = "Ends it", .status = 200, .answer = "job",
     .handle = http_jobs_cancel},
    {.method = "POST", .path = V1 "/jobs/{id}/retry", .owner = HTTP_JOBS, .roles = A | P,
     .act = "Jobs/Retry", .summary = "Runs the parts that failed, and those that never ran, again",
     .status = 200, .answer = "job", .handle = http_jobs_retry},

    {LOOK, .path = V1 "/dead", .roles = A | P | V,
     .summary = "Archived tasks, then operations on timers that could not be applied",
     .query = "queue type cursor limit", .answer = "tasks", .handle = http_dead},
    {.method = "POST", .path = V1 "/dead/requeue", ACT(200), .roles = A, .act = "Tasks/Requeue",
     .summary = "Makes archived tasks pending again, their counts start anew", .body = "ids",
     .body_max = HTTP_SMALL_MAX, .answer = "results", .handle = http_requeue},
    {LOOK, .path = V1 "/version", .roles = MR_ROLES_ALL, .summary = "Which program this is",
     .answer = "version", .handle = http_version},

    {LOOK, .path = "/metrics", .roles = A | V, .summary = "Figures for Prometheus",
     .type = "text/plain", .handle = http_metrics},
    {LOOK, .path = "/openapi.json", .roles = ANYBODY, .summary = "This document",
     .type = HTTP_JSON, .handle = http_document},
    {ELSE, .path = "/livez", .roles = ANYBODY, .summary = "Whether the process lives"},
    {ELSE, .path = "/readyz", .roles = ANYBODY, .summary = "Whether it accepts work"},
};
/* clang-format on */
const size_t http_rows_n = sizeof http_rows / sizeof *http_rows;
