/* SPDX-License-Identifier: Apache-2.0 */
/* How far long work is: a line on stderr where that is a terminal, gone at the end. */
#ifndef MR_CLI_PROGRESS_H
#define MR_CLI_PROGRESS_H

#include "base/clock.h"
#include "cli/cli.h"

struct progress {
    const char *what;
    uint64_t whole; /* 0: nobody knows how much there is */
    bool shown;
    mr_mono started, drawn;
};

/* Shows nothing with --quiet, nor where stderr is no terminal. */
void progress_start(struct progress *progress, const struct cli *cli, const char *what,
                    uint64_t whole);
/* So many tasks are done; part: of the whole, in the same unit. Draws only now and then. */
void progress_at(struct progress *progress, uint64_t tasks, uint64_t part);
void progress_end(struct progress *progress);

/* The line after so long, within so many columns. */
void progress_text(const struct progress *progress, uint64_t tasks, uint64_t part,
                   int64_t elapsed_ms, char *text, size_t columns);

#endif
