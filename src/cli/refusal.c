/* SPDX-License-Identifier: Apache-2.0 */
/* What a server said with its last refusal, kept for the line that tells of it. */
#include "base/chan.h"
#include "base/diag.h"
#include "cli/cli.h"

static struct {
    bool kept; /* somebody asked for it; before there is a second thread */
    bool told; /* at once, too */
    struct mr_lock lock;
    enum mr_err err; /* MR_OK: nothing was said */
    char text[sizeof(struct mr_detail)];
} last;

static void refused(enum mr_err err, const char *text, void *arg)
{
    (void)arg;
    mr_lock_enter(&last.lock);
    last.err = err;
    snprintf(last.text, sizeof last.text, "%s", text);
    mr_lock_leave(&last.lock);
    if (last.told && (err == MR_FAILED || err == MR_DENIED)) /* other words say enough */
        mr_diag(MR_DIAG_WARN, "redis.refused", "error=%s text=\"%s\"", mr_err_name(err), text);
}

void cli_refusals_tell(void)
{
    last.told = true;
}

mr_refusal *cli_refusals(void)
{
    if (!last.kept)
        mr_lock_init(&last.lock);
    last.kept = true;
    return refused;
}

/* What only repeats the error's own words says nothing new. */
static bool says_more(const char *text, const char *own)
{
    size_t len = strlen(text), own_len = strlen(own);
    return len < own_len || strcmp(text + len - own_len, own) != 0;
}

void cli_err_text(enum mr_err err, struct mr_detail *ret_text)
{
    if (!last.kept) {
        mr_detail_set(ret_text, "%s", mr_err_text(err));
        return;
    }
    mr_lock_enter(&last.lock);
    bool said = err != MR_OK && last.err == err && says_more(last.text, mr_err_text(err));
    mr_detail_set(ret_text, "%s", said ? last.text : mr_err_text(err));
    mr_lock_leave(&last.lock);
}
