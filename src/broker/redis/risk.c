/* SPDX-License-Identifier: Apache-2.0 */
#include "broker/redis/risk.h"

#include <stdlib.h>

#include "base/text.h"

enum { PRIMARIES_MAX = 128 };

/* ---- reading -------------------------------------------------------------------------------- */

/* The value of a line "NAME:VALUE" of INFO; NULL data: there is none. */
static struct mr_slice info_value(struct mr_slice info, const char *name)
{
    size_t name_len = strlen(name);
    const char *at = info.data, *end = at + info.len;
    while (at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        stop = stop != NULL ? stop : end;
        size_t len = (size_t)(stop - at);
        if (len > 0 && at[len - 1] == '\r')
            len--;
        if (len > name_len && memcmp(at, name, name_len) == 0 && at[name_len] == ':')
            return mr_slice_make(at + name_len + 1, len - name_len - 1);
        at = stop + 1;
    }
    return mr_slice_make(NULL, 0);
}

static bool is(struct mr_slice text, const char *word)
{
    return mr_slice_equal(text, mr_slice_str(word));
}

static enum redis_files files_of(const struct redis_says *says)
{
    static const struct {
        const char *word;
        enum redis_files files;
    } rows[] = {
        {"always", REDIS_FILES_ALWAYS},
        {"everysec", REDIS_FILES_SECOND},
        {"no", REDIS_FILES_KERNEL},
    };
    struct mr_slice enabled = info_value(says->info, "aof_enabled");
    if (is(enabled, "0"))
        return says->save_known && says->save.len == 0 ? REDIS_FILES_NONE : REDIS_FILES_SNAPSHOTS;
    if (is(enabled, "1") && is(says->appendfsync, "always") && is(says->truncated, "yes"))
        return REDIS_FILES_HALVES;
    for (size_t i = 0; is(enabled, "1") && i < sizeof rows / sizeof *rows; i++)
        if (is(says->appendfsync, rows[i].word))
            return rows[i].files;
    return is(enabled, "1") ? REDIS_FILES_SYNC_UNKNOWN : REDIS_FILES_UNKNOWN;
}

static enum redis_evicts evicts_of(struct mr_slice info, struct mr_slice policy)
{
    struct mr_slice limit = info_value(info, "maxmemory");
    if (limit.len == 0 || policy.len == 0)
        return REDIS_EVICTS_UNKNOWN;
    if (is(limit, "0") || is(policy, "noeviction"))
        return REDIS_EVICTS_NOTHING;
    bool some = mr_slice_starts_with(policy, MR_SLICE_LIT("volatile-"));
    return some ? REDIS_EVICTS_SOME : REDIS_EVICTS_ALL;
}

/* Those that are online; one that is still being filled takes nothing over. */
static int32_t replicas_of(struct mr_slice info)
{
    int32_t n = 0;
    if (info_value(info, "connected_slaves").len == 0)
        return -1;
    for (int i = 0; i < PRIMARIES_MAX; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "slave%d", i);
        struct mr_slice row = info_value(info, name);
        if (row.len == 0)
            break;
        n += memmem(row.data, row.len, "state=online", strlen("state=online")) != NULL;
    }
    return n;
}

void redis_facts_add(struct redis_facts *facts, const struct redis_says *says)
{
    enum redis_files files = files_of(says);
    struct mr_slice policy = info_value(says->info, "maxmemory_policy");
    enum redis_evicts evicts = evicts_of(says->info, policy);
    int32_t replicas = replicas_of(says->info);
    if (files > facts->files)
        facts->files = files;
    if (evicts >= facts->evicts) {
        facts->evicts = evicts;
        (void)snprintf(facts->policy, sizeof facts->policy, "%.*s", (int)policy.len,
                       policy.len > 0 ? (const char *)policy.data : "");
    }
    if (replicas < facts->replicas)
        facts->replicas = replicas;
}

/* ---- saying --------------------------------------------------------------------------------- */

static const struct {
    const char *settings;
    const char *loss; /* NULL: none */
} files_rows[] = {
    [REDIS_FILES_ALWAYS] = {"appendonly yes, appendfsync always", NULL},
    [REDIS_FILES_HALVES] = {"appendonly yes, appendfsync always, aof-load-truncated yes",
                            "the places of tasks in a second crash, until fsck --repair"},
    [REDIS_FILES_SECOND] = {"appendonly yes, appendfsync everysec",
                            "the last second of acknowledged work in a crash"},
    [REDIS_FILES_KERNEL] = {"appendonly yes, appendfsync no",
                            "half a minute of acknowledged work in a crash of its machine"},
    [REDIS_FILES_SNAPSHOTS] = {"appendonly no",
                               "everything since its last snapshot when it ends or crashes"},
    [REDIS_FILES_NONE] = {"appendonly no, save \"\"", "everything when it ends or crashes"},
    [REDIS_FILES_SYNC_UNKNOWN] = {"appendonly yes, appendfsync unknown",
                                  "an unknown part of acknowledged work in a crash"},
    [REDIS_FILES_UNKNOWN] = {"appendonly unknown",
                             "an unknown part of acknowledged work in a crash"},
};

static const char *const evicts_losses[] = {
    [REDIS_EVICTS_NOTHING] = NULL,
    [REDIS_EVICTS_SOME] = "unique locks and the figures of a day when its memory is full",
    [REDIS_EVICTS_ALL] = "any task when its memory is full",
    [REDIS_EVICTS_UNKNOWN] = NULL,
};

static const char *failover_loss(const struct redis_facts *facts)
{
    if (facts->replicas < 0)
        return "in a failover what its replicas have not got yet, if it has any";
    if ((int64_t)facts->wait_replicas < facts->replicas)
        return "in a failover what the new primary had not got yet";
    return NULL;
}

static void append(struct mr_detail *line, const char *text)
{
    size_t len = strlen(line->text);
    (void)snprintf(line->text + len, sizeof line->text - len, "%s", text);
}

void redis_facts_line(const struct redis_facts *facts, struct mr_detail *ret_line)
{
    const char *losses[] = {files_rows[facts->files].loss, failover_loss(facts),
                            evicts_losses[facts->evicts]};
    char replicas[16] = "unknown";
    if (facts->replicas >= 0)
        (void)snprintf(replicas, sizeof replicas, "%d", (int)facts->replicas);
    mr_detail_set(ret_line, "this Redis (%s, maxmemory-policy %s, replicas %s, wait-replicas %u) ",
                  files_rows[facts->files].settings, facts->policy[0] ? facts->policy : "unknown",
                  replicas, (unsigned)facts->wait_replicas);
    if (facts->replicas >= 0 && (int64_t)facts->wait_replicas > facts->replicas) {
        append(ret_line, "acknowledges nothing: it has fewer replicas than are waited for");
        return;
    }
    const char *between = "can lose ";
    for (size_t i = 0; i < sizeof losses / sizeof *losses; i++) {
        if (losses[i] == NULL)
            continue;
        append(ret_line, between);
        append(ret_line, losses[i]);
        between = "; ";
    }
    if (between[0] == 'c')
        append(ret_line, "loses nothing that it has acknowledged");
}

/* ---- asking --------------------------------------------------------------------------------- */

enum { ASK_INFO, ASK_FSYNC, ASK_TRUNCATED, ASK_SAVE, ASKS };

static const struct {
    const char *words[3];
    size_t n;
} asks[ASKS] = {
    [ASK_INFO] = {{"INFO"}, 1},
    [ASK_FSYNC] = {{"CONFIG", "GET", "appendfsync"}, 3},
    [ASK_TRUNCATED] = {{"CONFIG", "GET", "aof-load-truncated"}, 3},
    [ASK_SAVE] = {{"CONFIG", "GET", "save"}, 3},
};

struct asking {
    struct mr_msg msg;
    struct mr_redis *redis;
    size_t open;     /* answers that are missing, and 1 while it is being asked */
    size_t n;        /* primaries */
    enum mr_err err; /* one of them does not answer */
    struct mr_redis_call calls[ASKS][PRIMARIES_MAX];
    struct mr_buf texts[ASKS][PRIMARIES_MAX];
    bool known[ASKS][PRIMARIES_MAX];
    struct mr_event done;
};

static void close_one(struct asking *asking)
{
    if (--asking->open == 0)
        mr_event_set(&asking->done);
}

/* What a user may not ask, or was renamed away, stays unknown. */
static void on_answer(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct asking *asking = call->arg;
    size_t place = (size_t)(call - &asking->calls[0][0]);
    size_t ask = place / PRIMARIES_MAX, i = place % PRIMARIES_MAX;
    if (err != MR_OK && err != MR_DENIED && err != MR_FAILED)
        asking->err = err;
    if (err == MR_OK && reply->kind == MR_REPLY_ARRAY)
        reply = mr_reply_at(reply, 1);
    if (err == MR_OK && reply->kind == MR_REPLY_TEXT)
        asking->known[ask][i] = mr_buf_append_slice(&asking->texts[ask][i], reply->text) == MR_OK;
    close_one(asking);
}

/* The loop. */
static void ask_all(struct mr_msg *msg, void *receiver)
{
    struct asking *asking = (struct asking *)msg;
    (void)receiver;
    asking->open = 1;
    for (size_t ask = 0; ask < ASKS; ask++) {
        struct mr_slice words[3];
        for (size_t i = 0; i < asks[ask].n; i++)
            words[i] = mr_slice_str(asks[ask].words[i]);
        for (size_t i = 0; i < PRIMARIES_MAX; i++)
            asking->calls[ask][i] = (struct mr_redis_call){
                .answered = on_answer, .arg = asking, .repeatable = true, .urgent = true};
        size_t n = mr_redis_send_to_all(asking->redis, asking->calls[ask], PRIMARIES_MAX, words,
                                        asks[ask].n);
        asking->open += n;
        asking->n = n < asking->n || ask == 0 ? n : asking->n;
    }
    close_one(asking);
}

static enum mr_err tell(struct asking *asking, uint32_t wait_replicas, struct mr_detail *ret_line)
{
    struct redis_facts facts = {.replicas = INT32_MAX, .wait_replicas = wait_replicas};
    for (size_t i = 0; i < asking->n; i++)
        redis_facts_add(&facts, &(struct redis_says){
                                    .info = mr_buf_slice(&asking->texts[ASK_INFO][i]),
                                    .appendfsync = mr_buf_slice(&asking->texts[ASK_FSYNC][i]),
                                    .truncated = mr_buf_slice(&asking->texts[ASK_TRUNCATED][i]),
                                    .save = mr_buf_slice(&asking->texts[ASK_SAVE][i]),
                                    .save_known = asking->known[ASK_SAVE][i]});
    if (asking->err != MR_OK || asking->n == 0)
        return asking->err != MR_OK ? asking->err : MR_UNAVAILABLE;
    redis_facts_line(&facts, ret_line);
    return MR_OK;
}

enum mr_err redis_risk(struct mr_redis *redis, uint32_t wait_replicas, struct mr_detail *ret_line)
{
    struct asking *asking = calloc(1, sizeof *asking);
    if (asking == NULL)
        return MR_NOMEM;
    asking->redis = redis;
    asking->msg.deliver = ask_all;
    mr_event_init(&asking->done);
    mr_redis_post(redis, &asking->msg);
    (void)mr_event_wait(&asking->done, INT64_MAX); /* every call is answered */
    enum mr_err err = tell(asking, wait_replicas, ret_line);
    for (size_t ask = 0; ask < ASKS; ask++)
        for (size_t i = 0; i < PRIMARIES_MAX; i++)
            mr_buf_done(&asking->texts[ask][i]);
    free(asking);
    return err;
}
