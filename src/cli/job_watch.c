/* SPDX-License-Identifier: Apache-2.0 */
/* How far a job is: a bar on a terminal, lines of JSON, and how it ended as the exit code. */
#include "cli/interrupt.h"
#include "cli/job.h"
#include "cli/term.h"

enum { DRAW_MS = 100, BAR = 24, BAR_COLUMNS = 60 /* below, there is no room for the bar */ };

struct watching {
    struct cli *cli;
    mr_mono drawn;
    /* Of the last one that was seen. */
    enum mr_job_state state;
    uint64_t total, done, failed;
    int64_t lasted_ms;
    double rate;
    char reason[256];
};

/* ---- the bar --------------------------------------------------------------------------------- */

/* Of the runs that all stages take; a part that failed needs no more of them. */
static double share_of(const struct mr_job_info *job)
{
    double ended = 0, whole = (double)job->total * (double)job->stages_n;
    for (size_t i = 0; i < job->stages_n; i++)
        ended += (double)job->stages[i].done +
                 (double)job->stages[i].failed * (double)(job->stages_n - i);
    if (whole <= 0)
        return 0;
    return ended < whole ? ended / whole : 1;
}

static void put_bar(double share, char text[BAR + 4], bool with_bar)
{
    size_t full = (size_t)(share * BAR);
    text[0] = '\0';
    if (!with_bar)
        return;
    text[0] = '[';
    memset(text + 1, '#', full);
    memset(text + 1 + full, ' ', BAR - full);
    memcpy(text + 1 + BAR, "] ", sizeof "] ");
}

size_t job_stage(const struct mr_job_info *job)
{
    size_t at = 0;
    while (at + 1 < job->stages_n &&
           job->stages[at].done + job->stages[at].failed >= job->stages[at].total)
        at++;
    return at;
}

/* Where there are several. */
static void put_stage(const struct mr_job_info *job, char *text, size_t room)
{
    size_t at = job_stage(job);
    struct mr_buf type = {0};
    text[0] = '\0';
    if (job->stages_n > 1)
        snprintf(text, room, "  stage %zu/%zu %.40s", at + 1, job->stages_n,
                 out_escaped(&type, job->stages[at].type));
    mr_buf_done(&type);
}

void job_progress(const struct mr_job_info *job, char *text, size_t columns)
{
    char bar[BAR + 4], left[64] = "", failed[48] = "", stage[80], span[32];
    double share = share_of(job);
    put_bar(share, bar, columns >= BAR_COLUMNS);
    put_stage(job, stage, sizeof stage);
    if (job->reducing) {
        snprintf(left, sizeof left, "  putting it together");
    } else if (job->state == MR_JOB_RUNNING && job->eta_ms > 0) {
        out_span(job->eta_ms, span);
        snprintf(left, sizeof left, "  %s left", span);
    }
    if (job->failed > 0)
        snprintf(failed, sizeof failed, "  %llu failed", (unsigned long long)job->failed);
    snprintf(text, columns, "%s%3.0f%%  %llu/%llu  %.1f/s%s%s%s", bar, share * 100,
             (unsigned long long)job->done, (unsigned long long)job->total, job->rate, left, failed,
             stage);
}

static void draw(struct watching *watching, const struct mr_job_info *job)
{
    char line[160];
    mr_mono now = mr_mono_now(mr_clock_system());
    bool ended = job->state >= MR_JOB_SUCCEEDED;
    if (watching->cli->quiet || (!ended && now.ns - watching->drawn.ns < DRAW_MS * MR_NS_PER_MS))
        return;
    watching->drawn = now;
    size_t columns = term_err_columns();
    job_progress(job, line, columns < sizeof line ? columns : sizeof line);
    out_status("%s", line);
}

/* ---- watching -------------------------------------------------------------------------------- */

static enum mr_err seen(const struct mr_job_info *job, void *arg)
{
    struct watching *watching = arg;
    watching->state = job->state;
    watching->total = job->total;
    watching->done = job->done;
    watching->failed = job->failed;
    watching->rate = job->rate;
    int64_t until = job->finished_ms > 0 ? job->finished_ms : out_now_ms();
    watching->lasted_ms = job->started_ms > 0 ? until - job->started_ms : 0;
    snprintf(watching->reason, sizeof watching->reason, "%.*s", (int)job->reason.len,
             job->reason.len > 0 ? (const char *)job->reason.data : "");
    if (watching->cli->json)
        job_print_json(job);
    else
        draw(watching, job);
    return out_broken() ? MR_CANCELLED : MR_OK; /* nobody reads it any more */
}

/* What has become of it, in one line. */
static int report(const struct cli *cli, const char *id, const struct watching *watching)
{
    char span[32], failed[48] = "";
    out_span(watching->lasted_ms, span);
    if (watching->failed > 0)
        snprintf(failed, sizeof failed, ", %llu failed", (unsigned long long)watching->failed);
    if (watching->state == MR_JOB_SUCCEEDED) {
        cli_note(cli, "job %s succeeded: %llu of %llu parts in %s, %.1f/s%s", id,
                 (unsigned long long)watching->done, (unsigned long long)watching->total, span,
                 watching->rate, failed);
        return CLI_OK;
    }
    return cli_fail(CLI_TASK_FAILED, "job %s %s: %llu of %llu parts done%s%s%s", id,
                    watching->state == MR_JOB_CANCELLED ? "was cancelled" : "failed",
                    (unsigned long long)watching->done, (unsigned long long)watching->total, failed,
                    watching->reason[0] ? "; " : "", watching->reason);
}

int job_check_watch(const struct cli *cli)
{
    if (cli_file_dir(cli->broker) == NULL)
        return CLI_OK;
    return cli_usage(cli, "to watch a job needs a server: a file: broker is open in this process "
                          "alone, and nobody works meanwhile");
}

/* Who looks at a bar that stands still wants to know why; with --json there is no bar. */
static void note_hindrance(const struct cli *cli, const char *id)
{
    char text[JOB_HINDRANCE_MAX];
    struct mr_buf line = {0};
    struct mr_job_list *list = NULL;
    if (cli->quiet || cli->json || mr_job_get(cli->client, mr_slice_str(id), &list) != MR_OK)
        return;
    job_hindrance(cli, mr_job_list_at(list, 0), text);
    if (text[0])
        cli_note(cli, "job %s waits: %s", id, out_escaped(&line, mr_slice_str(text)));
    mr_buf_done(&line);
    mr_job_list_free(list);
}

int job_watch(struct cli *cli, const char *id)
{
    struct watching watching = {.cli = cli};
    char line[MR_JOB_ID_MAX + 80];
    note_hindrance(cli, id);
    snprintf(line, sizeof line, "interrupted; job %.36s goes on: millrace job watch shows it again",
             id);
    interrupt_say(line);
    enum mr_err err = mr_job_watch(cli->client, mr_slice_str(id), 0, seen, &watching);
    interrupt_say(NULL);
    out_status_clear();
    if (err == MR_CANCELLED && out_broken())
        return CLI_OK;
    if (err != MR_OK)
        return job_failed(cli, err, id, NULL);
    return report(cli, id, &watching);
}
