/* SPDX-License-Identifier: Apache-2.0 */
#include "support/themes.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/diag.h"

static void hush(enum mr_diag_level level, const char *line, void *arg)
{
    (void)level, (void)line, (void)arg;
}

void themes_prepare(void)
{
    (void)signal(SIGPIPE, SIG_IGN);
    (void)setvbuf(stdout, NULL, _IOLBF, 0);
    if (getenv("MR_LOUD") == NULL)
        mr_diag_set_sink(hush, NULL);
}

bool themes_in_share(size_t theme)
{
    const char *text = getenv("MR_SHARE");
    unsigned share, of;
    if (text == NULL)
        return true;
    if (sscanf(text, "%u/%u", &share, &of) != 2 || of == 0) {
        (void)fprintf(stderr, "MR_SHARE is '%s'; it must be like 1/3\n", text);
        exit(2);
    }
    return theme % of + 1 == share;
}
