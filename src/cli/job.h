/* SPDX-License-Identifier: Apache-2.0 */
/* What the verbs of `millrace job` share. */
#ifndef MR_CLI_JOB_H
#define MR_CLI_JOB_H

#include "cli/show.h"
#include "cli/watch.h"

/* ---- job_submit.c ---------------------------------------------------------------------------- */

struct job_submit_args {
    struct cli_value split, stage, pipeline, reduce, policy, queue, name, priority, retry, timeout,
        retention, speculate, watch;
};
enum { JOB_SUBMIT_OPTIONS_N = 13 };
extern const struct cli_option job_submit_options[JOB_SUBMIT_OPTIONS_N];
cli_run job_run_submit;

/* ---- job_watch.c ----------------------------------------------------------------------------- */

/* Shows the job until it has ended; the exit code says how. */
int job_watch(struct cli *cli, const char *id);
/* On file: nobody else could work meanwhile: CLI_USAGE after saying so, else 0. */
int job_check_watch(const struct cli *cli);
/* The stage that is at work. */
size_t job_stage(const struct mr_job_info *job);
/* How far it is, within so many columns. */
void job_progress(const struct mr_job_info *job, char *text, size_t columns);

/* ---- job_show.c ------------------------------------------------------------------------------ */

enum { JOB_HINDRANCE_MAX = 1024 };
/* Why nothing of it goes on, where somebody has to do something about it; else empty. A hint: what cannot be asked keeps still. */
void job_hindrance(const struct cli *cli, const struct mr_job_info *job,
                   char text[JOB_HINDRANCE_MAX]);

struct out_table *job_table(void);
void job_row(struct out_table *table, const struct mr_job_info *job);
struct out_table *part_table(void);
void part_row(struct out_table *table, const struct mr_part_info *part);
/* Field by field. */
void job_text(const struct cli *cli, const struct mr_job_info *job);
void job_print_json(const struct mr_job_info *job);

/* ---- job.c ----------------------------------------------------------------------------------- */

/* Says that there is no such job, that there are none here, and the like. id NULL: of all. */
int job_failed(const struct cli *cli, enum mr_err err, const char *id,
               const struct mr_detail *detail);

#endif
