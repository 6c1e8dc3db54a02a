/* SPDX-License-Identifier: Apache-2.0 */
/* What a server said with its last refusal, kept for the line that tells of it. */
#include "base/chan.h"
#include "base/diag.h"
#include "base/id.h"
#include "cli/cli.h"

static struct {
    bool kept; /* somebody asked for it; before there is a second thread */
    bool told; /* at once, too */
    struct mr_lock lock;
    enum mr_err err; /* MR_OK: nothing was said */
    char text[sizeof(struct mr_detail)];
} last;

/* What was said in the last minute is not said again: it may come many times a second. */
void cli_refusal_tell(enum mr_err err, const char *text)
{
    enum { SAID = 16 };
    static struct {
        uint64_t hash;
        int64_t at_ns;
    } said[SAID]; /* broker's thread */
    static size_t next;
    struct mr_uuid wide = mr_hash128((struct mr_hash_key){(uint64_t)err, 0}, mr_slice_str(text));
    uint64_t hash = mr_uuid_hash(&wide);
    int64_t now_ns = mr_mono_now(mr_clock_system()).ns;
    for (size_t i = 0; i < SAID; i++)
        if (said[i].hash == hash && now_ns - said[i].at_ns < 60 * MR_NS_PER_S)
            return;
    said[next].hash = hash;
    said[next].at_ns = now_ns;
    next = (next + 1) % SAID;
    mr_diag(MR_DIAG_WARN, "redis.refused", "error=%s text=\"%s\"", mr_err_name(err), text);
}

static void refused(enum mr_err err, const char *text, void *arg)
{
    (void)arg;
    mr_lock_enter(&last.lock);
    last.err = err;
    snprintf(last.text, sizeof last.text, "%s", text);
    mr_lock_leave(&last.lock);
    if (last.told && (err == MR_FAILED || err == MR_DENIED)) /* other words say enough */
        cli_refusal_tell(err, text);
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
