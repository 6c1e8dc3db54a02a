/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /metrics for Prometheus, in its text form: what the broker, its queues and nodes, and the timers have counted. One row of
 * a table for each name; nothing is counted here.
 *
 * Labels are few: a queue, a state, a quantile. Queues beyond QUEUES_MAX, by name, are left out.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "api/http_internal.h"
#include "timer/service.h"

enum { QUEUES_MAX = 1000, LINE_MAX_BYTES = 2 * MR_NAME_MAX + 256 };
#define TYPE "text/plain; version=0.0.4; charset=utf-8"

/* What was asked for, one behind the other. */
struct scrape {
    struct mr_queue_info *queues;
    size_t queues_n;
    struct mr_stats stats;
    struct mr_buf text;
    enum mr_err err;
};

static void freed(struct http_call *call)
{
    struct scrape *scrape = call->data;
    if (scrape == NULL)
        return;
    free(scrape->queues);
    mr_buf_done(&scrape->text);
    free(scrape);
}

/* ---- lines ---------------------------------------------------------------------------------- */

static MR_PRINTF(2, 3) void put(struct scrape *scrape, const char *fmt, ...)
{
    char line[LINE_MAX_BYTES];
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    if (scrape->err == MR_OK)
        scrape->err = mr_buf_append(&scrape->text, line,
                                    (size_t)n < sizeof line ? (size_t)n : sizeof line - 1);
}

static void head(struct scrape *scrape, const char *name, const char *type, const char *help)
{
    put(scrape, "# HELP millrace_%s %s\n# TYPE millrace_%s %s\n", name, help, name, type);
}

/* As a value of a label: names have no control characters, so these two are all. */
static const char *label_of(const char *name, char text[2 * MR_NAME_MAX + 1])
{
    size_t n = 0;
    for (; *name != '\0'; name++) {
        if (*name == '"' || *name == '\\')
            text[n++] = '\\';
        text[n++] = *name;
    }
    text[n] = '\0';
    return text;
}

static double seconds(uint64_t us)
{
    return (double)us / 1e6;
}

/* ---- the broker ----------------------------------------------------------------------------- */

#define AT(member) offsetof(struct mr_stats, member)

static const struct {
    const char *name, *type, *help;
    size_t offset;
} stats_rows[] = {
    {"tasks", "gauge", "Tasks in every state.", AT(tasks)},
    {"store_memory_bytes", "gauge", "Memory spent on the index of tasks.", AT(memory_bytes)},
    {"store_disk_bytes", "gauge", "Bytes of all files of the store.", AT(disk_bytes)},
    {"store_live_bytes", "gauge", "Bytes of them that tasks need.", AT(live_bytes)},
    {"store_segments", "gauge", "Segments of the log.", AT(segments)},
    {"store_syncs_total", "counter", "Syncs of the log since the start.", AT(syncs)},
    {"store_snapshots_total", "counter", "Snapshots written since the start.", AT(snapshots)},
    {"store_corrupt_records_total", "counter", "Damaged records that were set aside.",
     AT(records_damaged)},
    {"stale_results_refused_total", "counter", "Finishes refused because their epoch was old.",
     AT(stale_refused)},
    {"tasks_gathered_total", "counter", "Members of groups that became part of one task.",
     AT(gathered)},
    {"texts_dropped_total", "counter", "Results and errors left out because the disk was full.",
     AT(texts_dropped)},
    {"results", "gauge", "Results that wait for a master or are in the hands of one.", AT(results)},
};

static void put_stats(struct scrape *scrape)
{
    const struct mr_stats *stats = &scrape->stats;
    for (size_t i = 0; i < sizeof stats_rows / sizeof *stats_rows; i++) {
        uint64_t value;
        memcpy(&value, (const char *)stats + stats_rows[i].offset, sizeof value);
        head(scrape, stats_rows[i].name, stats_rows[i].type, stats_rows[i].help);
        put(scrape, "millrace_%s %" PRIu64 "\n", stats_rows[i].name, value);
    }
    head(scrape, "tombstones_total", "counter",
         "Tasks removed since the store was made, by the reason.");
    put(scrape, "millrace_tombstones_total{reason=\"deleted\"} %" PRIu64 "\n", stats->deleted);
    put(scrape, "millrace_tombstones_total{reason=\"expired\"} %" PRIu64 "\n", stats->expired);
    head(scrape, "store_fsync_seconds", "gauge", "Duration of a sync, by quantile.");
    put(scrape, "millrace_store_fsync_seconds{quantile=\"0.5\"} %g\n", seconds(stats->sync_p50_us));
    put(scrape, "millrace_store_fsync_seconds{quantile=\"0.99\"} %g\n",
        seconds(stats->sync_p99_us));
    head(scrape, "store_full", "gauge", "1: the disk is full, new work is refused.");
    put(scrape, "millrace_store_full %d\n", stats->disk_full);
    head(scrape, "store_failed", "gauge", "1: a sync failed, the store must be opened again.");
    put(scrape, "millrace_store_failed %d\n", stats->failed);
}

/* ---- queues --------------------------------------------------------------------------------- */

static void put_states(struct scrape *scrape)
{
    char label[2 * MR_NAME_MAX + 1];
    head(scrape, "queue_tasks", "gauge", "Tasks of a queue, by their state.");
    for (size_t i = 0; i < scrape->queues_n; i++)
        for (int state = MR_STATE_NONE + 1; state < MR_STATE_COUNT; state++)
            put(scrape, "millrace_queue_tasks{queue=\"%s\",state=\"%s\"} %" PRIu64 "\n",
                label_of(scrape->queues[i].name, label), mr_state_name((enum mr_state)state),
                scrape->queues[i].counts[state]);
}

/* Ends of runs, those that failed apart. */
static void put_attempts(struct scrape *scrape)
{
    char label[2 * MR_NAME_MAX + 1];
    head(scrape, "task_attempts_total", "counter", "Runs that have ended, by how.");
    for (size_t i = 0; i < scrape->queues_n; i++) {
        const struct mr_queue_info *info = &scrape->queues[i];
        uint64_t well = info->processed_total > info->failed_total
                            ? info->processed_total - info->failed_total
                            : 0;
        label_of(info->name, label);
        put(scrape, "millrace_task_attempts_total{queue=\"%s\",outcome=\"ok\"} %" PRIu64 "\n",
            label, well);
        put(scrape, "millrace_task_attempts_total{queue=\"%s\",outcome=\"error\"} %" PRIu64 "\n",
            label, info->failed_total);
    }
}

static void put_one(struct scrape *scrape, const char *name, const char *help,
                    double (*value)(const struct mr_queue_info *info))
{
    char label[2 * MR_NAME_MAX + 1];
    head(scrape, name, "gauge", help);
    for (size_t i = 0; i < scrape->queues_n; i++)
        put(scrape, "millrace_%s{queue=\"%s\"} %.17g\n", name,
            label_of(scrape->queues[i].name, label), value(&scrape->queues[i]));
}

static double oldest_of(const struct mr_queue_info *info)
{
    return (double)info->oldest_pending_ms / 1000;
}

static double paused_of(const struct mr_queue_info *info)
{
    return info->paused;
}

static void put_quantiles(struct scrape *scrape, const char *name, const char *help, size_t p50,
                          size_t p99)
{
    char label[2 * MR_NAME_MAX + 1];
    head(scrape, name, "gauge", help);
    for (size_t i = 0; i < scrape->queues_n; i++) {
        const char *info = (const char *)&scrape->queues[i];
        uint64_t half, most;
        memcpy(&half, info + p50, sizeof half);
        memcpy(&most, info + p99, sizeof most);
        label_of(scrape->queues[i].name, label);
        put(scrape, "millrace_%s{queue=\"%s\",quantile=\"0.5\"} %g\n", name, label, seconds(half));
        put(scrape, "millrace_%s{queue=\"%s\",quantile=\"0.99\"} %g\n", name, label, seconds(most));
    }
}

static void put_queues(struct scrape *scrape)
{
    put_states(scrape);
    put_attempts(scrape);
    put_one(scrape, "queue_oldest_pending_seconds", "How long the oldest one waits.", oldest_of);
    put_one(scrape, "queue_paused", "1: nothing is handed out of it.", paused_of);
    put_quantiles(
        scrape, "task_wait_seconds", "From ready to run, of the last minute, by quantile.",
        offsetof(struct mr_queue_info, wait_p50_us), offsetof(struct mr_queue_info, wait_p99_us));
    put_quantiles(scrape, "task_run_seconds", "Runs, of the last minute, by quantile.",
                  offsetof(struct mr_queue_info, run_p50_us),
                  offsetof(struct mr_queue_info, run_p99_us));
}

/* ---- nodes and timers ----------------------------------------------------------------------- */

static void put_nodes(struct scrape *scrape, const struct mr_req_node_list *list)
{
    uint64_t nodes[MR_NODE_ROLE_COUNT] = {0}, slots = 0, busy = 0;
    for (size_t i = 0; i < list->n; i++) {
        nodes[list->nodes[i].role]++;
        slots += list->nodes[i].slots;
        busy += list->nodes[i].busy;
    }
    head(scrape, "nodes", "gauge", "Nodes, by role.");
    for (int role = 0; role < MR_NODE_ROLE_COUNT; role++)
        put(scrape, "millrace_nodes{role=\"%s\"} %" PRIu64 "\n",
            mr_node_role_name((enum mr_node_role)role), nodes[role]);
    head(scrape, "worker_slots", "gauge", "Slots of workers, by whether they run a task.");
    put(scrape, "millrace_worker_slots{state=\"busy\"} %" PRIu64 "\n", busy);
    put(scrape, "millrace_worker_slots{state=\"free\"} %" PRIu64 "\n",
        slots > busy ? slots - busy : 0);
    head(scrape, "leader_term", "gauge", "Term of the last leader.");
    put(scrape, "millrace_leader_term %" PRIu64 "\n", list->leader.term);
    head(scrape, "leaderless_seconds", "gauge", "Nobody has led for so long; 0: somebody leads.");
    put(scrape, "millrace_leaderless_seconds %g\n", (double)list->leader.leaderless_ms / 1000);
}

static void put_timers(struct scrape *scrape, struct mr_timer_service *timers)
{
    struct mr_timer_health health;
    if (timers == NULL)
        return;
    mr_timer_service_health(timers, &health);
    head(scrape, "schedule_fires_total", "counter", "Firings of timers since the start, by how.");
    put(scrape, "millrace_schedule_fires_total{result=\"fired\"} %" PRIu64 "\n", health.fired);
    put(scrape, "millrace_schedule_fires_total{result=\"caught_up\"} %" PRIu64 "\n",
        health.caught_up);
    put(scrape, "millrace_schedule_fires_total{result=\"skipped\"} %" PRIu64 "\n", health.skipped);
    put(scrape, "millrace_schedule_fires_total{result=\"missed\"} %" PRIu64 "\n", health.misfired);
    head(scrape, "schedule_lateness_seconds", "gauge",
         "From when it was to happen to its task, by quantile.");
    put(scrape, "millrace_schedule_lateness_seconds{quantile=\"0.5\"} %g\n",
        seconds(health.lateness_p50_us));
    put(scrape, "millrace_schedule_lateness_seconds{quantile=\"0.99\"} %g\n",
        seconds(health.lateness_p99_us));
}

/* ---- asking --------------------------------------------------------------------------------- */

static void got_nodes(struct http_call *call)
{
    struct scrape *scrape = call->data;
    struct mr_http_api *api = call->api;
    head(scrape, "build_info", "gauge", "Which program this is.");
    put(scrape, "millrace_build_info{version=\"%s\"} 1\n", mr_version());
    put_stats(scrape);
    put_queues(scrape);
    put_nodes(scrape, &call->req.node_list);
    put_timers(scrape, atomic_load(&api->timers));
    http_call_text(call, TYPE, scrape->err, mr_buf_slice(&scrape->text));
}

static void got_stats(struct http_call *call)
{
    struct scrape *scrape = call->data;
    scrape->stats = call->req.stats.stats;
    http_call_clear(call);
    http_call_submit(call, MR_OP_NODE_LIST, got_nodes);
}

static void got_queues(struct http_call *call)
{
    struct scrape *scrape = call->data;
    scrape->queues_n = call->req.queue_list.n;
    http_call_clear(call);
    http_call_submit(call, MR_OP_STATS, got_stats);
}

void http_metrics(struct mr_http_request *request, void *arg)
{
    struct http_call *call = http_call_new_heavy(arg, request);
    if (call == NULL)
        return;
    struct scrape *scrape = calloc(1, sizeof *scrape);
    call->data = scrape;
    call->freed = freed;
    if (scrape != NULL)
        scrape->queues = calloc(QUEUES_MAX, sizeof *scrape->queues);
    if (scrape == NULL || scrape->queues == NULL) {
        http_call_fail(call, MR_NOMEM, "%s", mr_err_text(MR_NOMEM));
    } else if (!mr_access_all_queues(&call->token)) {
        http_call_fail(call, MR_DENIED, "token %s is for queues %s: figures are of all of them",
                       call->token.id, call->token.queue);
    } else {
        call->req.queue_list.infos = scrape->queues;
        call->req.queue_list.max = QUEUES_MAX;
        http_call_submit(call, MR_OP_QUEUE_LIST, got_queues);
    }
}
