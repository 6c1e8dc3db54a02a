/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /metrics for Prometheus: what the broker, its queues and nodes, the timers and this server have counted. One row of
 * a table for each name, in docs/metrics.md as well; nothing is counted here.
 *
 * Labels are few: a queue, a type, a state. Queues beyond QUEUES_MAX, by name, are left out, and types beyond
 * what the engine tells apart are one, "other".
 */
#include <stdio.h>
#include <stdlib.h>

#include "api/http_internal.h"
#include "api/metrics_text.h"
#include "job/service.h"
#include "timer/service.h"

enum { QUEUES_MAX = 1000 };
#define TYPE        "text/plain; version=0.0.4; charset=utf-8"
#define OTHER_TYPES "other"
#define US_PER_S    1e6

/* Rows are written when what they are made of is at hand: one answer of the broker after the other. */
enum stage { QUEUES, STATS, NODES, OWN };

struct scrape {
    struct http_call *call;
    struct mr_queue_info *queues;
    struct mr_queue_meters *meters;
    size_t queues_n;
    struct metrics_text text;
};

struct metric {
    const char *name, *type, *help;
    enum stage stage;
    void (*put)(struct scrape *scrape, const struct metric *metric);
    size_t offset; /* the function's own */
};

static void freed(struct http_call *call)
{
    struct scrape *scrape = call->data;
    if (scrape == NULL)
        return;
    free(scrape->queues);
    free(scrape->meters);
    mr_buf_done(&scrape->text.buf);
    free(scrape);
}

/* ---- lines ---------------------------------------------------------------------------------- */

struct pair {
    const char *name, *value;
};

static struct metrics_labels labels_of(struct pair first, struct pair second)
{
    struct metrics_labels labels = {.len = 0};
    metrics_label(&labels, first.name, mr_slice_str(first.value));
    if (second.name != NULL)
        metrics_label(&labels, second.name, mr_slice_str(second.value));
    return labels;
}

static void put_with(struct scrape *scrape, const char *name, const char *value, uint64_t count)
{
    struct metrics_labels labels = labels_of((struct pair){name, value}, (struct pair){0});
    metrics_count(&scrape->text, &labels, count);
}

static void put_with_two(struct scrape *scrape, struct pair first, struct pair second,
                         uint64_t count)
{
    struct metrics_labels labels = labels_of(first, second);
    metrics_count(&scrape->text, &labels, count);
}

/* ---- queues --------------------------------------------------------------------------------- */

static struct pair queue_at(const struct scrape *scrape, size_t i)
{
    return (struct pair){"queue", scrape->queues[i].name};
}

static void put_tally(struct scrape *scrape, const struct metric *metric, const char *queue,
                      struct mr_slice type, const struct mr_tally *tally)
{
    struct metrics_labels labels = labels_of((struct pair){"queue", queue}, (struct pair){0});
    metrics_label(&labels, "type", type);
    if (metric->offset == 0) {
        metrics_count(&scrape->text, &labels, tally->enqueued);
        return;
    }
    for (unsigned end = 0; end < MR_TASK_END_COUNT; end++) {
        struct metrics_labels whole = labels;
        metrics_label(&whole, "result", mr_slice_str(mr_task_end_name((enum mr_task_end)end)));
        metrics_count(&scrape->text, &whole, tally->ended[end]);
    }
}

static void add_tally(struct mr_tally *sum, const struct mr_tally *tally)
{
    sum->enqueued += tally->enqueued;
    for (unsigned end = 0; end < MR_TASK_END_COUNT; end++)
        sum->ended[end] += tally->ended[end];
}

static bool is_empty(const struct mr_tally *tally)
{
    static const struct mr_tally none;
    return memcmp(tally, &none, sizeof none) == 0;
}

/* offset: 0 for those that came, 1 for those that ended. */
static void put_types(struct scrape *scrape, const struct metric *metric)
{
    for (size_t i = 0; i < scrape->queues_n; i++) {
        const struct mr_queue_meters *meters = &scrape->meters[i];
        struct mr_tally others = meters->others;
        for (size_t t = 0; t < meters->types_n; t++) {
            const struct mr_type_tally *type = &meters->types[t];
            if (mr_slice_equal(type->type, MR_SLICE_LIT(OTHER_TYPES))) /* one line for each name */
                add_tally(&others, &type->tally);
            else
                put_tally(scrape, metric, scrape->queues[i].name, type->type, &type->tally);
        }
        if (!is_empty(&others))
            put_tally(scrape, metric, scrape->queues[i].name, MR_SLICE_LIT(OTHER_TYPES), &others);
    }
}

/* An engine that does not see all runs knows how many there were, and how many failed. */
static void put_attempts(struct scrape *scrape, const struct metric *metric)
{
    (void)metric;
    for (size_t i = 0; i < scrape->queues_n; i++) {
        const struct mr_queue_info *info = &scrape->queues[i];
        uint64_t seen[MR_ATTEMPT_COUNT] = {[MR_ATTEMPT_ERROR] = info->failed_total};
        if (info->processed_total > info->failed_total)
            seen[MR_ATTEMPT_OK] = info->processed_total - info->failed_total;
        const struct mr_queue_meters *meters = &scrape->meters[i];
        const uint64_t *attempts = meters->counted ? meters->attempts : seen;
        unsigned n = meters->counted ? MR_ATTEMPT_COUNT : MR_ATTEMPT_ERROR + 1;
        for (unsigned a = 0; a < n; a++)
            put_with_two(scrape, queue_at(scrape, i),
                         (struct pair){"outcome", mr_attempt_name((enum mr_attempt)a)},
                         attempts[a]);
    }
}

/* offset: of the meter. A queue that nothing was handed out of has none. */
static void put_times(struct scrape *scrape, const struct metric *metric)
{
    for (size_t i = 0; i < scrape->queues_n; i++) {
        const struct mr_meter *meter =
            (const void *)((const char *)&scrape->meters[i] + metric->offset);
        struct metrics_labels labels = labels_of(queue_at(scrape, i), (struct pair){0});
        if (mr_meter_count(meter) > 0)
            metrics_meter(&scrape->text, &labels, meter, mr_meter_us, US_PER_S);
    }
}

/* Of queues that have limits, or had any. */
static void put_throttled(struct scrape *scrape, const struct metric *metric)
{
    (void)metric;
    for (size_t i = 0; i < scrape->queues_n; i++) {
        const struct mr_queue_info *info = &scrape->queues[i];
        bool limited = info->rate > 0 || info->concurrency > 0 || info->limits > 0;
        for (unsigned scope = 0; scope < MR_LIMIT_SCOPE_COUNT; scope++)
            if (scrape->meters[i].counted && (limited || scrape->meters[i].throttled[scope] > 0))
                put_with_two(
                    scrape, queue_at(scrape, i),
                    (struct pair){"limit", mr_limit_scope_name((enum mr_limit_scope)scope)},
                    scrape->meters[i].throttled[scope]);
    }
}

static void put_states(struct scrape *scrape, const struct metric *metric)
{
    (void)metric;
    for (size_t i = 0; i < scrape->queues_n; i++)
        for (unsigned state = MR_STATE_NONE + 1; state < MR_STATE_COUNT; state++)
            put_with_two(scrape, queue_at(scrape, i),
                         (struct pair){"state", mr_state_name((enum mr_state)state)},
                         scrape->queues[i].counts[state]);
}

static void put_oldest(struct scrape *scrape, const struct metric *metric)
{
    (void)metric;
    for (size_t i = 0; i < scrape->queues_n; i++) {
        struct metrics_labels labels = labels_of(queue_at(scrape, i), (struct pair){0});
        metrics_number(&scrape->text, &labels,
                       (double)scrape->queues[i].oldest_pending_ms / MR_MS_PER_S);
    }
}

static void put_paused(struct scrape *scrape, const struct metric *metric)
{
    (void)metric;
    for (size_t i = 0; i < scrape->queues_n; i++)
        put_with(scrape, "queue", scrape->queues[i].name, scrape->queues[i].paused);
}

/* ---- the broker ----------------------------------------------------------------------------- */

static const struct mr_req_stats *stats_of(const struct scrape *scrape)
{
    return &scrape->call->req.stats;
}

/* offset: of a number of mr_stats. */
static void put_stat(struct scrape *scrape, const struct metric *metric)
{
    uint64_t value;
    memcpy(&value, (const char *)&stats_of(scrape)->stats + metric->offset, sizeof value);
    metrics_count(&scrape->text, NULL, value);
}

static void put_flag(struct scrape *scrape, const struct metric *metric)
{
    bool value;
    memcpy(&value, (const char *)&stats_of(scrape)->stats + metric->offset, sizeof value);
    metrics_count(&scrape->text, NULL, value);
}

static void put_tombstones(struct scrape *scrape, const struct metric *metric)
{
    (void)metric;
    const struct mr_stats *stats = &stats_of(scrape)->stats;
    put_with(scrape, "reason", "deleted", stats->deleted);
    put_with(scrape, "reason", "expired", stats->expired);
    put_with(scrape, "reason", "gathered", stats->gathered);
    put_with(scrape, "reason", "moved", stats->moved);
    put_with(scrape, "reason", "trimmed", stats->trimmed);
}

static void put_bytes(struct scrape *scrape, const struct metric *metric)
{
    (void)metric;
    const struct mr_stats *stats = &stats_of(scrape)->stats;
    put_with(scrape, "kind", "disk", stats->disk_bytes);
    put_with(scrape, "kind", "live", stats->live_bytes);
    put_with(scrape, "kind", "memory", stats->memory_bytes);
}

static void put_free(struct scrape *scrape, const struct metric *metric)
{
    (void)metric;
    if (stats_of(scrape)->meters.free_known)
        metrics_count(&scrape->text, NULL, stats_of(scrape)->meters.free_bytes);
}

static void put_syncs(struct scrape *scrape, const struct metric *metric)
{
    (void)metric;
    const struct mr_store_meters *meters = &stats_of(scrape)->meters;
    if (meters->known)
        metrics_meter(&scrape->text, NULL, &meters->sync_us, mr_meter_us, US_PER_S);
}

static void put_groups(struct scrape *scrape, const struct metric *metric)
{
    (void)metric;
    const struct mr_store_meters *meters = &stats_of(scrape)->meters;
    if (meters->known)
        metrics_meter(&scrape->text, NULL, &meters->group, mr_meter_many, 1);
}

/* ---- nodes ---------------------------------------------------------------------------------- */

static const struct mr_req_node_list *nodes_of(const struct scrape *scrape)
{
    return &scrape->call->req.node_list;
}

static uint64_t count_role(const struct mr_req_node_list *list, enum mr_node_role role)
{
    uint64_t n = 0;
    for (size_t i = 0; i < list->n; i++)
        n += list->nodes[i].role == role;
    return n;
}

static void put_roles(struct scrape *scrape, const struct metric *metric)
{
    (void)metric;
    for (unsigned role = 0; role < MR_NODE_ROLE_COUNT; role++)
        put_with(scrape, "role", mr_node_role_name((enum mr_node_role)role),
                 count_role(nodes_of(scrape), (enum mr_node_role)role));
}

static void put_workers(struct scrape *scrape, const struct metric *metric)
{
    (void)metric;
    metrics_count(&scrape->text, NULL, count_role(nodes_of(scrape), MR_NODE_WORKER));
}

/* Of slots that say nothing of themselves it is known whether they run something. */
static void count_slots(const struct mr_node_info *node, uint64_t states[MR_SLOT_STATE_COUNT])
{
    uint64_t working = 0, silent = node->slots;
    for (size_t i = 0; i < node->slot_infos_n && silent > 0; i++, silent--) {
        states[node->slot_infos[i].state]++;
        working += node->slot_infos[i].state == MR_SLOT_WORKING;
    }
    uint64_t busy = node->busy > working ? node->busy - working : 0;
    busy = busy < silent ? busy : silent;
    states[MR_SLOT_WORKING] += busy;
    states[MR_SLOT_PENDING] += silent - busy;
}

static void put_slots(struct scrape *scrape, const struct metric *metric)
{
    (void)metric;
    const struct mr_req_node_list *list = nodes_of(scrape);
    uint64_t states[MR_SLOT_STATE_COUNT] = {0};
    for (size_t i = 0; i < list->n; i++)
        count_slots(&list->nodes[i], states);
    for (unsigned state = 0; state < MR_SLOT_STATE_COUNT; state++)
        put_with(scrape, "state", mr_slot_state_name((enum mr_slot_state)state), states[state]);
}

static void put_leader(struct scrape *scrape, const struct metric *metric)
{
    (void)metric;
    const struct mr_leader *leader = &nodes_of(scrape)->leader;
    struct metrics_labels labels = {.len = 0};
    metrics_label(&labels, "node", leader->node);
    if (leader->incarnation != 0)
        metrics_count(&scrape->text, &labels, 1);
}

static void put_term(struct scrape *scrape, const struct metric *metric)
{
    (void)metric;
    metrics_count(&scrape->text, NULL, nodes_of(scrape)->leader.term);
}

static void put_leaderless(struct scrape *scrape, const struct metric *metric)
{
    (void)metric;
    metrics_number(&scrape->text, NULL,
                   (double)nodes_of(scrape)->leader.leaderless_ms / MR_MS_PER_S);
}

/* ---- timers and jobs ------------------------------------------------------------------------ */

static bool health_of(const struct scrape *scrape, struct mr_timer_health *ret_health)
{
    struct mr_timer_service *timers = atomic_load(&scrape->call->api->timers);
    if (timers != NULL)
        mr_timer_service_health(timers, ret_health);
    return timers != NULL;
}

/* What the services of this server have counted; those of one that is not here are not told. */
struct own {
    struct mr_timer_health timers;
    struct mr_job_health jobs;
};

/* What is told apart by one label. */
struct share {
    const char *metric, *label, *value;
    size_t offset; /* in struct own */
};
#define HEALTH(metric, label, value, member)                                                       \
    {                                                                                              \
        metric, label, value, offsetof(struct own, timers.member)                                  \
    }
#define JOBS(metric, label, value, member)                                                         \
    {                                                                                              \
        metric, label, value, offsetof(struct own, jobs.member)                                    \
    }
static const struct share shares[] = {
    HEALTH("schedule_fires_total", "result", "fired", fired),
    HEALTH("schedule_fires_total", "result", "caught_up", caught_up),
    HEALTH("schedule_fires_total", "result", "skipped_overlap", skipped),
    HEALTH("schedule_fires_total", "result", "missed", misfired),
    HEALTH("schedule_runs_total", "result", "succeeded", succeeded),
    HEALTH("schedule_runs_total", "result", "failed", failed),
    HEALTH("schedule_runs_total", "result", "cancelled", cancelled),
    HEALTH("schedule_operations_total", "result", "applied", applied),
    HEALTH("schedule_operations_total", "result", "stale", stale),
    HEALTH("schedule_operations_total", "result", "retried", retried),
    HEALTH("schedule_operations_total", "result", "rejected", rejected),
    HEALTH("schedule_operations_total", "result", "dead_letter", dead_letters),
    HEALTH("schedule_recovery_total", "event", "recovered", recovered),
    HEALTH("schedule_recovery_total", "event", "reconciled", reconciled),
    HEALTH("schedule_recovery_total", "event", "moved", moved),
    HEALTH("schedule_ownership_changes_total", "change", "taken", ownership_taken),
    HEALTH("schedule_ownership_changes_total", "change", "lost", ownership_lost),
    JOBS("jobs_total", "event", "loaded", jobs_loaded),
    JOBS("jobs_total", "event", "reduced", reduced),
    JOBS("jobs_total", "event", "ended", ended),
    JOBS("job_parts_total", "event", "loaded", parts_loaded),
    JOBS("job_parts_total", "event", "submitted", submitted),
    JOBS("job_parts_total", "event", "done", parts_done),
    JOBS("job_parts_total", "event", "failed", parts_failed),
    JOBS("job_parts_total", "event", "late", late),
    JOBS("job_parts_total", "event", "resubmitted", resubmitted),
    JOBS("job_parts_total", "event", "moved", moved),
    JOBS("job_parts_total", "event", "reconciled", reconciled),
    JOBS("job_parts_total", "event", "speculated", speculated),
    HEALTH("retention_removed_total", "kind", "firing", retained),
    JOBS("retention_removed_total", "kind", "job", removed),
    JOBS("retention_removed_total", "kind", "segment", segments_removed),
    JOBS("retention_removed_total", "kind", "load", loads_removed),
};

static void put_shares(struct scrape *scrape, const struct metric *metric)
{
    struct own own;
    struct mr_job_service *jobs = mr_http_jobs_service(scrape->call->api->jobs);
    bool timers = health_of(scrape, &own.timers);
    if (jobs != NULL)
        mr_job_service_health(jobs, &own.jobs);
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++) {
        const struct share *share = &shares[i];
        bool there = share->offset < offsetof(struct own, jobs) ? timers : jobs != NULL;
        uint64_t value;
        if (!there || strcmp(share->metric, metric->name) != 0)
            continue;
        memcpy(&value, (const char *)&own + share->offset, sizeof value);
        put_with(scrape, share->label, share->value, value);
    }
}

static void put_lateness(struct scrape *scrape, const struct metric *metric)
{
    (void)metric;
    struct mr_timer_health health;
    if (health_of(scrape, &health))
        metrics_meter(&scrape->text, NULL, &health.lateness_us, mr_meter_us, US_PER_S);
}

/* offset: of a number of mr_timer_health. */
static void put_timers(struct scrape *scrape, const struct metric *metric)
{
    struct mr_timer_health health;
    uint64_t value;
    if (!health_of(scrape, &health))
        return;
    memcpy(&value, (const char *)&health + metric->offset, sizeof value);
    metrics_count(&scrape->text, NULL, value);
}

static void put_apps(struct scrape *scrape, const struct metric *metric)
{
    (void)metric;
    struct mr_timer_health health;
    if (health_of(scrape, &health))
        metrics_count(&scrape->text, NULL, health.apps_owned);
}

static void put_timer_store(struct scrape *scrape, const struct metric *metric)
{
    (void)metric;
    struct mr_timer_health health;
    if (health_of(scrape, &health))
        metrics_count(&scrape->text, NULL, health.store == MR_OK);
}

/* ---- this server ---------------------------------------------------------------------------- */

static void put_build(struct scrape *scrape, const struct metric *metric)
{
    (void)metric;
    put_with(scrape, "version", mr_version(), 1);
}

static void put_requests(struct scrape *scrape, const struct metric *metric)
{
    (void)metric;
    const struct http_timings *timings = &scrape->call->api->timings;
    for (size_t i = 0; i < timings->n; i++) {
        const struct http_timing *timing = &timings->at[i];
        char route[256] = "none", code[16];
        if (timing->route != NULL)
            (void)snprintf(route, sizeof route, "%s %s", timing->route->method,
                           timing->route->path);
        (void)snprintf(code, sizeof code, "%d", timing->status);
        struct metrics_labels labels =
            labels_of((struct pair){"route", route}, (struct pair){"code", code});
        metrics_meter(&scrape->text, &labels, &timing->us, mr_meter_us, US_PER_S);
    }
}

/* ---- the table ------------------------------------------------------------------------------ */

#define AT(member) offsetof(struct mr_stats, member)
#define OF(member) offsetof(struct mr_queue_meters, member)
#define IN(member) offsetof(struct mr_timer_health, member)

/* clang-format off */
static const struct metric metrics[] = {
    {"tasks_enqueued_total", "counter", "Tasks accepted, by queue and type.", QUEUES, put_types, 0},
    {"tasks_finished_total", "counter", "Tasks whose last run has ended, by queue, type and how.", QUEUES, put_types, 1},
    {"task_attempts_total", "counter", "Runs that have ended, by queue and how.", QUEUES, put_attempts, 0},
    {"task_wait_seconds", "histogram", "From when a task could run to its hand-out, by queue.", QUEUES, put_times, OF(wait_us)},
    {"task_run_seconds", "histogram", "From the hand-out of a task to the end of its run, by queue.", QUEUES, put_times, OF(run_us)},
    {"limit_throttled_total", "counter", "How often a limit kept tasks back, by queue and what it is for.", QUEUES, put_throttled, 0},
    {"queue_tasks", "gauge", "Tasks of a queue, by their state.", QUEUES, put_states, 0},
    {"queue_oldest_pending_seconds", "gauge", "How long the oldest task that could run waits, by queue.", QUEUES, put_oldest, 0},
    {"queue_paused", "gauge", "1: nothing is handed out of the queue.", QUEUES, put_paused, 0},

    {"tasks", "gauge", "Tasks in every state.", STATS, put_stat, AT(tasks)},
    {"results", "gauge", "Results that wait for a master or are in the hands of one.", STATS, put_stat, AT(results)},
    {"stale_results_refused_total", "counter", "Finishes refused because their epoch was old.", STATS, put_stat, AT(stale_refused)},
    {"tasks_quarantined_total", "counter", "Tasks archived because they lost their worker too often.", STATS, put_stat, AT(quarantined)},
    {"tasks_carried_total", "counter", "Tasks taken over from another broker.", STATS, put_stat, AT(carried)},
    {"tombstones_total", "counter", "Tasks that are gone without a run, by the reason.", STATS, put_tombstones, 0},
    {"texts_dropped_total", "counter", "Results and errors left out because the disk was full.", STATS, put_stat, AT(texts_dropped)},
    {"store_bytes", "gauge", "Size of the store: its files, what of them tasks need, and memory for their index.", STATS, put_bytes, 0},
    {"store_free_bytes", "gauge", "Space left on the disk of the store.", STATS, put_free, 0},
    {"store_segments", "gauge", "Segments of the log.", STATS, put_stat, AT(segments)},
    {"store_fsync_seconds", "histogram", "How long a sync of the log took.", STATS, put_syncs, 0},
    {"store_group_commit_records", "histogram", "Records that one sync made durable.", STATS, put_groups, 0},
    {"store_syncs_total", "counter", "Syncs of the log.", STATS, put_stat, AT(syncs)},
    {"store_snapshots_total", "counter", "Snapshots written.", STATS, put_stat, AT(snapshots)},
    {"store_corrupt_records_total", "counter", "Damaged records that were set aside.", STATS, put_stat, AT(records_damaged)},
    {"store_full", "gauge", "1: the disk is full, new work is refused.", STATS, put_flag, AT(disk_full)},
    {"store_failed", "gauge", "1: a write or a sync failed, the store must be opened again.", STATS, put_flag, AT(failed)},

    {"nodes", "gauge", "Nodes, by role.", NODES, put_roles, 0},
    {"workers", "gauge", "Nodes that run tasks.", NODES, put_workers, 0},
    {"worker_slots", "gauge", "Slots of workers, by what they do.", NODES, put_slots, 0},
    {"leader", "gauge", "1, for the node that leads.", NODES, put_leader, 0},
    {"leader_term", "gauge", "Term of the last leader.", NODES, put_term, 0},
    {"leaderless_seconds", "gauge", "Nobody has led for so long; 0: somebody leads.", NODES, put_leaderless, 0},

    {"schedule_fires_total", "counter", "Firings of timers, by what became of them.", OWN, put_shares, 0},
    {"schedule_runs_total", "counter", "Runs of firings that have ended, by how.", OWN, put_shares, 0},
    {"schedule_lateness_seconds", "histogram", "From when a firing was planned to its task.", OWN, put_lateness, 0},
    {"schedule_operations_total", "counter", "Operations on timers, by what became of them.", OWN, put_shares, 0},
    {"schedule_recovery_total", "counter", "What this server did for firings that others, or it itself, had left open, by what.", OWN, put_shares, 0},
    {"schedule_clock_steps_total", "counter", "How often the wall clock was set.", OWN, put_timers, IN(clock_steps)},
    {"schedule_timers_in_memory", "gauge", "Timers that are due soon or have runs that matter.", OWN, put_timers, IN(in_memory)},
    {"schedule_ownership_changes_total", "counter", "How often this server took, or lost, the timers of an app.", OWN, put_shares, 0},
    {"schedule_apps_owned", "gauge", "Apps whose timers this server fires.", OWN, put_apps, 0},
    {"schedule_store_up", "gauge", "1: the store of timers and jobs can be used.", OWN, put_timer_store, 0},
    {"jobs_total", "counter", "Jobs, by what this server did with them.", OWN, put_shares, 0},
    {"job_parts_total", "counter", "Parts of jobs, by what this server did with them.", OWN, put_shares, 0},
    {"retention_removed_total", "counter", "What this server removed from the store of timers and jobs for its age, by kind.", OWN, put_shares, 0},
    {"http_request_seconds", "histogram", "How long answers took, by route and status; a long poll waits by itself.", OWN, put_requests, 0},
    {"build_info", "gauge", "1, for the version of this program.", OWN, put_build, 0},
};
/* clang-format on */

bool http_figure_at(size_t i, struct http_figure *ret_figure)
{
    if (i >= sizeof metrics / sizeof *metrics)
        return false;
    *ret_figure = (struct http_figure){metrics[i].name, metrics[i].type, metrics[i].help};
    return true;
}

static void put_stage(struct scrape *scrape, enum stage stage)
{
    for (size_t i = 0; i < sizeof metrics / sizeof *metrics; i++)
        if (metrics[i].stage == stage) {
            metrics_head(&scrape->text, metrics[i].name, metrics[i].type, metrics[i].help);
            metrics[i].put(scrape, &metrics[i]);
        }
}

/* ---- asking --------------------------------------------------------------------------------- */

static void got_nodes(struct http_call *call)
{
    struct scrape *scrape = call->data;
    put_stage(scrape, NODES);
    put_stage(scrape, OWN);
    http_call_text(call, TYPE, scrape->text.err, mr_buf_slice(&scrape->text.buf));
}

static void got_stats(struct http_call *call)
{
    put_stage(call->data, STATS);
    http_call_clear(call);
    http_call_submit(call, MR_OP_NODE_LIST, got_nodes);
}

static void got_queues(struct http_call *call)
{
    struct scrape *scrape = call->data;
    scrape->queues_n = call->req.queue_list.n;
    put_stage(scrape, QUEUES);
    http_call_clear(call);
    call->req.stats.meters_wanted = true;
    http_call_submit(call, MR_OP_STATS, got_stats);
}

static struct scrape *scrape_new(struct http_call *call)
{
    struct scrape *scrape = calloc(1, sizeof *scrape);
    call->data = scrape;
    call->freed = freed;
    if (scrape == NULL)
        return NULL;
    scrape->call = call;
    scrape->queues = calloc(QUEUES_MAX, sizeof *scrape->queues);
    scrape->meters = calloc(QUEUES_MAX, sizeof *scrape->meters);
    return scrape->queues != NULL && scrape->meters != NULL ? scrape : NULL;
}

void http_metrics(struct mr_http_request *request, void *arg)
{
    struct http_call *call = http_call_new_heavy(arg, request);
    if (call == NULL)
        return;
    struct scrape *scrape = scrape_new(call);
    if (scrape == NULL) {
        http_call_fail(call, MR_NOMEM, "%s", mr_err_text(MR_NOMEM));
    } else if (http_may_touch_all(call, ", and figures are of every queue")) {
        call->req.queue_list.infos = scrape->queues;
        call->req.queue_list.meters = scrape->meters;
        call->req.queue_list.max = QUEUES_MAX;
        http_call_submit(call, MR_OP_QUEUE_LIST, got_queues);
    }
}
