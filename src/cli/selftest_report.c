/* SPDX-License-Identifier: Apache-2.0 */
/* What the selftest has proved, for people and for programs. */
#include <stdlib.h>

#include "cli/cli.h"
#include "cli/jw.h"
#include "cli/out.h"
#include "cli/selftest.h"

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

struct spread {
    double median, max;
};

static struct spread spread_of(double *ms, size_t n)
{
    qsort(ms, n, sizeof *ms, compare);
    return n ? (struct spread){ms[n / 2], ms[n - 1]} : (struct spread){0, 0};
}

/* Runs beyond those that had to be: cut off by a kill, and repeated under a new epoch. */
static uint64_t repeated(const struct selftest_ledger *ledger)
{
    uint64_t needed = ledger->finished;
    for (uint32_t token = 0; token < ledger->n; token++)
        needed += ledger->entries[token].found && selftest_fails_first(token);
    return ledger->runs > needed ? ledger->runs - needed : 0;
}

void selftest_report_json(struct selftest_figures *figures, const struct selftest_ledger *ledger)
{
    struct spread restart = spread_of(figures->restart_ms, figures->restarts_n);
    struct spread outage = spread_of(figures->outage_ms, figures->outages_n);
    struct jw jw = {0};
    jw_object_begin(&jw, NULL);
    jw_bool(&jw, "passed", ledger_is_clean(ledger));
    jw_text(&jw, "problem", ledger->first.text);
    jw_uint(&jw, "crashes", figures->killed);
    jw_uint(&jw, "acknowledged", ledger->acknowledged);
    jw_uint(&jw, "in_doubt", ledger->in_doubt);
    jw_uint(&jw, "runs", ledger->runs);
    jw_uint(&jw, "runs_repeated", repeated(ledger));
    jw_uint(&jw, "ends_answered", ledger->accepted);
    jw_uint(&jw, "finished_once", ledger->finished);
    jw_uint(&jw, "lost", ledger->lost);
    jw_uint(&jw, "finished_twice", ledger->twice);
    jw_uint(&jw, "wrong", ledger->wrong);
    jw_real(&jw, "restart_ms_median", restart.median);
    jw_real(&jw, "restart_ms_max", restart.max);
    jw_real(&jw, "outage_ms_median", outage.median);
    jw_real(&jw, "outage_ms_max", outage.max);
    jw_uint(&jw, "sync_us_median", figures->stats.sync_p50_us);
    jw_uint(&jw, "sync_us_p99", figures->stats.sync_p99_us);
    jw_uint(&jw, "records_checked", figures->fsck.records);
    jw_uint(&jw, "seed", figures->seed);
    jw_object_end(&jw);
    jw_finish(&jw);
}

void selftest_report_text(struct selftest_figures *figures, const struct selftest_ledger *ledger)
{
    struct spread restart = spread_of(figures->restart_ms, figures->restarts_n);
    struct spread outage = spread_of(figures->outage_ms, figures->outages_n);
    out_printf("The server was killed %llu time%s under the load of %d producer and %d worker "
               "processes.\n\n",
               (unsigned long long)figures->killed, figures->killed == 1 ? "" : "s",
               SELFTEST_PRODUCERS, SELFTEST_WORKERS);
    const struct {
        const char *name;
        uint64_t n;
        const char *note;
    } rows[] = {
        {"acknowledged", ledger->acknowledged, "tasks; every one of them is accounted for"},
        {"finished once", ledger->finished, "tasks, those included whose answer a kill swallowed"},
        {"lost", ledger->lost, ""},
        {"finished twice", ledger->twice, ""},
        {"otherwise wrong", ledger->wrong, ""},
        {"runs repeated", repeated(ledger), "cut off by a kill, then run again"},
        {"records read", figures->fsck.records, "by fsck at the end; none damaged"},
    };
    for (size_t i = 0; i < CLI_LEN(rows); i++)
        out_printf("  %-16s %10llu  %s\n", rows[i].name, (unsigned long long)rows[i].n,
                   rows[i].note);
    out_printf("\n  ready again      %7.0f ms after the start in the middle, %.0f ms at most\n",
               restart.median, restart.max);
    out_printf("  work goes on     %7.0f ms after the kill in the middle, %.0f ms at most\n",
               outage.median, outage.max);
    out_printf("  a sync here      %7.2f ms in the middle, 99 of 100 below %.2f ms\n\n",
               (double)figures->stats.sync_p50_us / 1000,
               (double)figures->stats.sync_p99_us / 1000);
    out_printf("%spassed%s\n", out_colour(OUT_GREEN), out_colour(OUT_PLAIN));
}
