/* SPDX-License-Identifier: Apache-2.0 */
/* See progress.h. */
#include "cli/progress.h"

#include "cli/out.h"
#include "cli/term.h"

enum { DRAW_MS = 100, BAR = 20, BAR_COLUMNS = 70 /* below, there is no room for the bar */ };

void progress_start(struct progress *progress, const struct cli *cli, const char *what,
                    uint64_t whole)
{
    mr_mono now = mr_mono_now(mr_clock_system());
    bool shown = !cli->quiet && out_err_is_terminal();
    *progress = (struct progress){what, whole, shown, now, now};
}

/* "[#####     ] 25%", growing with part. */
static void put_bar(double share, char text[BAR + 16], bool with_bar)
{
    char bar[BAR + 1];
    size_t full = (size_t)(share * BAR);
    memset(bar, ' ', BAR);
    memset(bar, '#', full);
    bar[BAR] = '\0';
    if (with_bar)
        snprintf(text, BAR + 16, " [%s] %3.0f%%", bar, share * 100);
    else
        snprintf(text, BAR + 16, " %3.0f%%", share * 100);
}

void progress_text(const struct progress *progress, uint64_t tasks, uint64_t part,
                   int64_t elapsed_ms, char *text, size_t columns)
{
    double seconds = (double)(elapsed_ms > 0 ? elapsed_ms : 1) / MR_MS_PER_S;
    double share = progress->whole > 0 ? (double)part / (double)progress->whole : 0;
    char bar[BAR + 16] = "", left[64] = "", span[32];
    if (share > 1)
        share = 1;
    if (progress->whole > 0)
        put_bar(share, bar, columns >= BAR_COLUMNS);
    if (share > 0 && share < 1) {
        out_span((int64_t)((double)elapsed_ms * (1 - share) / share), span);
        snprintf(left, sizeof left, "  %s left", span);
    }
    snprintf(text, columns, "%s%s  %llu tasks  %.0f/s%s", progress->what, bar,
             (unsigned long long)tasks, (double)tasks / seconds, left);
}

void progress_at(struct progress *progress, uint64_t tasks, uint64_t part)
{
    char line[160];
    mr_mono now = mr_mono_now(mr_clock_system());
    if (!progress->shown || now.ns - progress->drawn.ns < DRAW_MS * MR_NS_PER_MS)
        return;
    progress->drawn = now;
    size_t columns = term_err_columns();
    progress_text(progress, tasks, part, (now.ns - progress->started.ns) / MR_NS_PER_MS, line,
                  columns < sizeof line ? columns : sizeof line);
    out_status("%s", line);
}

void progress_end(struct progress *progress)
{
    if (progress->shown)
        out_status_clear();
}
