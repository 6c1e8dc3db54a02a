/* SPDX-License-Identifier: Apache-2.0 */
/* Jobs and their parts, in JSON and for people. */
#include <stdlib.h>

#include "base/text.h"
#include "cli/job.h"
#include "client/why.h"
#include "wire/job_json.h"

void job_print_json(const struct mr_job_info *job)
{
    struct jw jw = {0};
    jw_job(&jw, NULL, job);
    jw_finish(&jw);
    out_flush();
}

static enum out_colour state_colour(enum mr_job_state state)
{
    static const enum out_colour colours[MR_JOB_STATE_COUNT] = {
        [MR_JOB_RUNNING] = OUT_CYAN,
        [MR_JOB_SUCCEEDED] = OUT_GREEN,
        [MR_JOB_FAILED] = OUT_RED,
        [MR_JOB_CANCELLED] = OUT_YELLOW,
    };
    return colours[state];
}

/* ---- lists ----------------------------------------------------------------------------------- */

struct out_table *job_table(void)
{
    static const struct out_column columns[] = {
        {"ID", OUT_LEFT},
        {"NAME", OUT_STRETCH | OUT_SPARE(1)},
        {"QUEUE", OUT_STRETCH | OUT_SPARE(3)},
        {"STATE", OUT_LEFT},
        {"DONE", OUT_RIGHT},
        {"FAILED", OUT_RIGHT},
        {"RATE", OUT_RIGHT | OUT_SPARE(4)},
        {"LEFT", OUT_RIGHT | OUT_SPARE(2)},
        {"CREATED", OUT_LEFT | OUT_SPARE(5)},
    };
    return out_table_new(columns, CLI_LEN(columns));
}

static void left_text(const struct mr_job_info *job, char text[32])
{
    if (job->state == MR_JOB_RUNNING && job->eta_ms >= 0)
        out_span(job->eta_ms, text);
    else
        snprintf(text, 32, "-");
}

void job_row(struct out_table *table, const struct mr_job_info *job)
{
    char left[32], created[48];
    left_text(job, left);
    out_relative(job->created_ms, out_now_ms(), created);
    out_cell_bytes(table, OUT_PLAIN, job->id);
    out_cell_bytes(table, OUT_PLAIN, job->job.name.len > 0 ? job->job.name : MR_SLICE_LIT("-"));
    out_cell_bytes(table, OUT_PLAIN, job->job.queue);
    out_cell(table, state_colour(job->state), mr_job_state_name(job->state));
    out_cellf(table, OUT_PLAIN, "%llu/%llu", (unsigned long long)job->done,
              (unsigned long long)job->total);
    out_cellf(table, job->failed > 0 ? OUT_RED : OUT_PLAIN, "%llu",
              (unsigned long long)job->failed);
    out_cellf(table, OUT_PLAIN, "%.1f/s", job->rate);
    out_cell(table, OUT_PLAIN, left);
    out_cell(table, OUT_DIM, created);
}

struct out_table *part_table(void)
{
    static const struct out_column columns[] = {
        {"INDEX", OUT_RIGHT},
        {"STAGE", OUT_RIGHT},
        {"STATE", OUT_LEFT},
        {"ROUND", OUT_RIGHT | OUT_SPARE(2)},
        {"TASK", OUT_LEFT | OUT_SPARE(1)},
        {"ERROR", OUT_STRETCH},
    };
    return out_table_new(columns, CLI_LEN(columns));
}

void part_row(struct out_table *table, const struct mr_part_info *part)
{
    static const enum out_colour colours[MR_PART_STATE_COUNT] = {
        [MR_PART_SUBMITTED] = OUT_CYAN, [MR_PART_DONE] = OUT_GREEN, [MR_PART_FAILED] = OUT_RED};
    struct mr_slice none = MR_SLICE_LIT("-");
    out_cellf(table, OUT_PLAIN, "%llu", (unsigned long long)part->index);
    out_cellf(table, OUT_PLAIN, "%u", part->stage);
    out_cell(table, colours[part->state], mr_part_state_name(part->state));
    out_cellf(table, OUT_PLAIN, "%u", part->round);
    out_cell_bytes(table, OUT_DIM, part->task_id.len > 0 ? part->task_id : none);
    out_cell_bytes(table, OUT_PLAIN, part->error);
}

/* ---- what keeps it --------------------------------------------------------------------------- */

/* Its parts wait as a task of its stage would; only what somebody has to do something about is of interest. */
static void why_parts_wait(const struct mr_job_info *job, const struct mr_queue_info *queue,
                           const struct mr_node_list *nodes, char text[JOB_HINDRANCE_MAX])
{
    struct mr_task task = {
        .queue = job->job.queue, .type = job->stages[job_stage(job)].type, .state = MR_PENDING};
    struct mr_why_facts facts = {.task = &task,
                                 .queue = queue,
                                 .nodes = mr_node_list_at(nodes, 0),
                                 .nodes_n = mr_node_list_count(nodes),
                                 .now_ms = out_now_ms()};
    struct mr_why *why = cli_alloc(1, sizeof *why);
    mr_why(&facts, why);
    enum mr_why_reason reason = why->n > 0 ? why->reasons[0].reason : MR_WHY_NEXT;
    if (reason == MR_WHY_NO_WORKER)
        snprintf(text, JOB_HINDRANCE_MAX, "%.700s: millrace work -q %.*s -- CMD",
                 why->reasons[0].text, (int)task.queue.len, (const char *)task.queue.data);
    else if (reason == MR_WHY_PAUSED || reason == MR_WHY_NO_HANDLER)
        snprintf(text, JOB_HINDRANCE_MAX, "%s", why->reasons[0].text);
    free(why);
}

void job_hindrance(const struct cli *cli, const struct mr_job_info *job,
                   char text[JOB_HINDRANCE_MAX])
{
    struct mr_node_list *nodes = NULL;
    struct mr_queue_info queue;
    text[0] = '\0';
    if (job->state >= MR_JOB_SUCCEEDED || job->reducing || job->stages_n == 0)
        return;
    enum mr_err err = mr_queue_get(cli->client, job->job.queue, &queue);
    if (err == MR_NOT_FOUND) /* nothing was in it yet */
        queue = (struct mr_queue_info){.paused = false};
    else if (err != MR_OK)
        return;
    if (mr_node_list_get(cli->client, &nodes) != MR_OK)
        return;
    why_parts_wait(job, &queue, nodes, text);
    mr_node_list_free(nodes);
}

/* ---- one ------------------------------------------------------------------------------------- */

static void stage_lines(const struct mr_job_info *job)
{
    struct mr_buf type = {0};
    for (size_t i = 0; i < job->stages_n; i++) {
        const struct mr_job_stage *stage = &job->stages[i];
        char name[32], text[256];
        snprintf(name, sizeof name, "stage %zu", i);
        snprintf(text, sizeof text, "%.128s  %llu of %llu done, %llu failed",
                 out_escaped(&type, stage->type), (unsigned long long)stage->done,
                 (unsigned long long)stage->total, (unsigned long long)stage->failed);
        show_field(name, OUT_PLAIN, text);
    }
    mr_buf_done(&type);
}

static void how_lines(const struct mr_job_info *job)
{
    const struct mr_job_options *options = &job->job;
    char text[64];
    show_bytes("split", OUT_PLAIN, options->split.len > 0 ? options->split : MR_SLICE_LIT("parts"));
    show_bytes("reduce", OUT_PLAIN, options->reduce);
    show_field("policy", OUT_PLAIN, mr_job_policy_name(options->policy));
    if (options->pipeline)
        show_field("pipeline", OUT_PLAIN, "yes");
    if (options->priority_s != 0) {
        snprintf(text, sizeof text, "%g s ahead", options->priority_s);
        show_field("priority", OUT_PLAIN, text);
    }
    show_span("speculate", options->speculate_ms);
    if (job->round > 0) {
        snprintf(text, sizeof text, "%u", job->round);
        show_field("retried", OUT_PLAIN, text);
    }
    snprintf(text, sizeof text, "%llu to %llu", (unsigned long long)job->first_segment,
             (unsigned long long)job->last_segment);
    show_field("segments", OUT_PLAIN, text);
}

void job_text(const struct cli *cli, const struct mr_job_info *job)
{
    char line[160], size[32], hindrance[JOB_HINDRANCE_MAX];
    show_bytes("id", OUT_BOLD, job->id);
    show_bytes("name", OUT_PLAIN, job->job.name);
    show_bytes("queue", OUT_PLAIN, job->job.queue);
    show_field("state", state_colour(job->state), mr_job_state_name(job->state));
    show_bytes("reason", OUT_RED, job->reason);
    job_progress(job, line, sizeof line);
    show_field("progress", OUT_PLAIN, line);
    job_hindrance(cli, job, hindrance);
    show_bytes("waits", OUT_YELLOW, mr_slice_str(hindrance));
    stage_lines(job);
    how_lines(job);
    if (job->state == MR_JOB_SUCCEEDED) {
        out_size(job->result_bytes, size);
        show_field("result", OUT_PLAIN, size);
    }
    show_time("created", job->created_ms);
    show_time("started", job->started_ms);
    show_time("finished", job->finished_ms);
}
