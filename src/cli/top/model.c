/* SPDX-License-Identifier: Apache-2.0 */
/* What the broker says, look by look. */
#include <stdlib.h>

#include "cli/show.h"
#include "cli/top/top.h"

enum { PAGE = 100 };

/* ---- rates ---------------------------------------------------------------------------------- */

/* Tasks that have not succeeded; done and they together grow by what is enqueued. */
static uint64_t unfinished(const struct mr_queue_info *info)
{
    return info->counts[MR_PENDING] + info->counts[MR_ACTIVE] + info->counts[MR_SCHEDULED] +
           info->counts[MR_RETRY] + info->counts[MR_ARCHIVED];
}

static uint64_t succeeded(const struct mr_queue_info *info)
{
    return info->processed_total - info->failed_total;
}

static double rate(uint64_t before, uint64_t now, double seconds)
{
    return now > before && seconds > 0 ? (double)(now - before) / seconds : 0;
}

struct top_rates top_rates_between(const struct mr_queue_info *before,
                                   const struct mr_queue_info *now, double seconds)
{
    return (struct top_rates){
        .enqueued =
            rate(unfinished(before) + succeeded(before), unfinished(now) + succeeded(now), seconds),
        .done = rate(succeeded(before), succeeded(now), seconds),
        .failed = rate(before->failed_total, now->failed_total, seconds),
    };
}

/* Both lists are by name, so one pass finds what each was. A queue that was not there before began with
 * nothing. */
static struct top_rates fill_rates(const struct top_model *model, struct top_queue *queues,
                                   size_t n, double seconds)
{
    static const struct mr_queue_info nothing;
    struct top_rates all = {0};
    size_t was = 0;
    for (size_t i = 0; i < n && model->has_rates; i++) {
        const char *name = queues[i].info.name;
        while (was < model->queues_n && strcmp(model->queues[was].info.name, name) < 0)
            was++;
        bool known = was < model->queues_n && strcmp(model->queues[was].info.name, name) == 0;
        queues[i].rates = top_rates_between(known ? &model->queues[was].info : &nothing,
                                            &queues[i].info, seconds);
        all.enqueued += queues[i].rates.enqueued;
        all.done += queues[i].rates.done;
        all.failed += queues[i].rates.failed;
    }
    return all;
}

/* ---- looking -------------------------------------------------------------------------------- */

static enum mr_err look_at_queues(struct mr_client *client, struct top_queue **queues, size_t *n)
{
    struct mr_queue_info *infos = cli_alloc(PAGE, sizeof *infos);
    enum mr_err err = MR_OK;
    size_t got = PAGE;
    while (err == MR_OK && got == PAGE) {
        const char *after = *n > 0 ? (*queues)[*n - 1].info.name : NULL;
        err = mr_queue_list(client, after, infos, PAGE, &got);
        if (err != MR_OK)
            break;
        *queues = cli_grow(*queues, *n + got, sizeof **queues);
        for (size_t i = 0; i < got; i++)
            (*queues)[(*n)++] = (struct top_queue){.info = infos[i]};
    }
    free(infos);
    return err;
}

static void take_nodes(struct top_model *model, struct mr_node_list *list)
{
    mr_node_list_free(model->node_list);
    model->node_list = list;
    model->nodes_n = mr_node_list_count(list);
    model->nodes = cli_grow(model->nodes, model->nodes_n, sizeof *model->nodes);
    for (size_t i = 0; i < model->nodes_n; i++)
        model->nodes[i] = mr_node_list_at(list, i);
}

/* Of the queues that are shown: a server tells a token for some queues no number over all. */
static uint64_t count_tasks(const struct top_queue *queues, size_t n)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        for (size_t state = 0; state < MR_STATE_COUNT; state++)
            sum += queues[i].info.counts[state];
    return sum;
}

enum mr_err top_look(struct top_model *model, struct mr_client *client)
{
    struct top_queue *queues = NULL;
    size_t n = 0;
    struct mr_node_list *nodes = NULL;
    struct mr_stats stats;
    enum mr_err err = look_at_queues(client, &queues, &n);
    if (err == MR_OK)
        err = mr_stats_get(client, &stats);
    if (err == MR_OK)
        err = mr_node_list_get(client, &nodes);
    model->err = err;
    if (err != MR_OK) {
        free(queues);
        return err;
    }
    mr_mono now = mr_mono_now(mr_clock_system());
    double seconds = (double)(now.ns - model->looked.ns) / 1e9;
    model->rates = fill_rates(model, queues, n, seconds);
    free(model->queues);
    model->queues = queues;
    model->queues_n = n;
    model->stats = stats;
    model->stats.tasks = count_tasks(queues, n);
    take_nodes(model, nodes);
    model->looked = now;
    model->at_ms = mr_wall_ms(mr_wall_now(mr_clock_system()));
    model->has_rates = true;
    return MR_OK;
}

void top_model_done(struct top_model *model)
{
    free(model->queues);
    free(model->nodes);
    mr_node_list_free(model->node_list);
}

/* ---- JSON ----------------------------------------------------------------------------------- */

static void rates_json(struct jw *jw, const struct top_rates *rates)
{
    jw_real(jw, "enqueued_per_s", rates->enqueued);
    jw_real(jw, "done_per_s", rates->done);
    jw_real(jw, "failed_per_s", rates->failed);
}

static void stats_json(struct jw *jw, const struct mr_stats *stats)
{
    jw_uint(jw, "tasks", stats->tasks);
    jw_uint(jw, "memory_bytes", stats->memory_bytes);
    jw_uint(jw, "disk_bytes", stats->disk_bytes);
    jw_uint(jw, "live_bytes", stats->live_bytes);
    jw_uint(jw, "segments", stats->segments);
    jw_uint(jw, "syncs", stats->syncs);
    jw_uint(jw, "sync_p50_us", stats->sync_p50_us);
    jw_uint(jw, "sync_p99_us", stats->sync_p99_us);
    jw_bool(jw, "disk_full", stats->disk_full);
    jw_bool(jw, "failed", stats->failed);
    jw_int(jw, "leaderless_ms", stats->leaderless_ms);
}

void top_json(struct jw *jw, const struct top_model *model)
{
    jw_object_begin(jw, NULL);
    jw_int(jw, "time_ms", model->at_ms);
    rates_json(jw, &model->rates);
    stats_json(jw, &model->stats);
    jw_array_begin(jw, "queues");
    for (size_t i = 0; i < model->queues_n; i++) {
        jw_queue_open(jw, &model->queues[i].info);
        rates_json(jw, &model->queues[i].rates);
        jw_object_end(jw);
    }
    jw_array_end(jw);
    struct jw_crew crew = node_crew(model->node_list);
    jw_array_begin(jw, "nodes");
    for (size_t i = 0; i < model->nodes_n; i++)
        jw_node(jw, &crew, model->nodes[i]);
    jw_array_end(jw);
    jw_object_end(jw);
}
