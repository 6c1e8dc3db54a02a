/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timers as entries of an Asynq scheduler, and the tasks they have become as its history, so that Asynq's tools
 * show them. Entries go away by themselves; a history does so as well, since nobody removes that of a server
 * that was killed.
 */
#include <inttypes.h>
#include <stdio.h>

#include "broker/redis/internal.h"
#include "wire/task.h"

enum {
    HISTORY_TTL_S = 30 * 24 * 3600,
    PAYLOAD_SHOWN = 4096, /* a longer one is left out */
    OPTIONS_MAX = 3,
    CALLS = 2, /* for the entries; and one for the history of each */
};

/* The history of one entry. */
struct group {
    struct mr_slice key, *args;
    size_t n;
};

struct show {
    struct ticket *ticket;
    struct mr_slice key, set;
    struct mr_slice *args; /* of exhibit.lua, n */
    size_t n;
    struct group *groups;
    size_t groups_n;
    struct mr_redis_call *calls;
    size_t left;
    enum mr_err err;
    char ttl[NUMBER_MAX], history_ttl[NUMBER_MAX], score[NUMBER_MAX];
};

/* ---- options, as Go prints them -------------------------------------------------------------- */

/* strconv.Quote, as far as names of queues need it. */
static enum mr_err put_quoted(struct mr_buf *text, struct mr_slice name)
{
    const char *bytes = name.data;
    MR_TRY(mr_buf_append(text, "\"", 1));
    for (size_t i = 0; i < name.len; i++) {
        if (bytes[i] == '"' || bytes[i] == '\\')
            MR_TRY(mr_buf_append(text, "\\", 1));
        MR_TRY(mr_buf_append(text, &bytes[i], 1));
    }
    return mr_buf_append(text, "\"", 1);
}

/* time.Duration: "1h0m0s", "1m30s", "5s", "250ms". */
static enum mr_err put_duration(struct mr_buf *text, int64_t ms)
{
    enum { MINUTE_S = 60, HOUR_S = 3600 };
    int64_t s = ms / MR_MS_PER_S, rest = ms % MR_MS_PER_S;
    if (s == 0)
        return mr_buf_printf(text, "%" PRId64 "ms", rest);
    if (s >= HOUR_S)
        MR_TRY(mr_buf_printf(text, "%" PRId64 "h", s / HOUR_S));
    if (s >= MINUTE_S)
        MR_TRY(mr_buf_printf(text, "%" PRId64 "m", s % HOUR_S / MINUTE_S));
    MR_TRY(mr_buf_printf(text, "%" PRId64, s % MINUTE_S));
    if (rest > 0) {
        char fraction[8];
        (void)snprintf(fraction, sizeof fraction, ".%03d", (int)rest);
        for (size_t len = strlen(fraction); fraction[len - 1] == '0'; len--)
            fraction[len - 1] = '\0';
        MR_TRY(mr_buf_printf(text, "%s", fraction));
    }
    return mr_buf_append(text, "s", 1);
}

static enum mr_err put_options(const struct mr_exhibit *entry, struct mr_arena *arena,
                               struct mr_slice options[OPTIONS_MAX])
{
    struct mr_buf text = {0};
    int32_t retry = entry->max_retry == 0 ? MR_DEFAULT_MAX_RETRY : entry->max_retry;
    int64_t timeout = entry->timeout_ms == 0 ? MR_DEFAULT_TIMEOUT_MS : entry->timeout_ms;
    enum mr_err err = mr_buf_printf(&text, "Queue(");
    if (err == MR_OK)
        err = put_quoted(&text, entry->queue);
    if (err == MR_OK)
        err = mr_buf_append(&text, ")", 1);
    if (err == MR_OK)
        err = mr_arena_copy(arena, mr_buf_slice(&text), &options[0]);
    mr_buf_clear(&text);
    if (err == MR_OK)
        err = mr_buf_printf(&text, "MaxRetry(%d)", retry > 0 ? retry : 0);
    if (err == MR_OK)
        err = mr_arena_copy(arena, mr_buf_slice(&text), &options[1]);
    mr_buf_clear(&text);
    if (err == MR_OK)
        err = mr_buf_printf(&text, "Timeout(");
    if (err == MR_OK)
        err = put_duration(&text, timeout > 0 ? timeout : 0);
    if (err == MR_OK)
        err = mr_buf_append(&text, ")", 1);
    if (err == MR_OK)
        err = mr_arena_copy(arena, mr_buf_slice(&text), &options[2]);
    mr_buf_done(&text);
    return err;
}

/* ---- messages -------------------------------------------------------------------------------- */

static struct mr_asynq_time time_of(int64_t ms)
{
    if (ms == 0)
        return (struct mr_asynq_time){MR_ASYNQ_NEVER_S, 0};
    return (struct mr_asynq_time){ms / MR_MS_PER_S, (int32_t)(ms % MR_MS_PER_S * MR_NS_PER_MS)};
}

static enum mr_err entry_bytes(const struct mr_exhibit *entry, struct mr_arena *arena,
                               struct mr_slice *ret_bytes)
{
    struct mr_slice options[OPTIONS_MAX];
    struct mr_buf bytes = {0};
    MR_TRY(put_options(entry, arena, options));
    struct mr_asynq_entry asynq = {
        .id = entry->id,
        .spec = entry->spec,
        .task_type = entry->type,
        .task_payload = entry->payload.len <= PAYLOAD_SHOWN ? entry->payload : (struct mr_slice){0},
        .options = options,
        .options_n = OPTIONS_MAX,
        .next = time_of(entry->next_ms),
        .prev = time_of(entry->last_ms),
    };
    enum mr_err err = mr_asynq_entry_encode(&asynq, &bytes);
    if (err == MR_OK)
        err = mr_arena_copy(arena, mr_buf_slice(&bytes), ret_bytes);
    mr_buf_done(&bytes);
    return err;
}

static enum mr_err done_args(const struct mr_exhibited *done, struct mr_arena *arena,
                             struct mr_slice args[2])
{
    struct mr_asynq_time at = time_of(done->at_ms);
    char score[NUMBER_MAX];
    struct mr_buf bytes = {0};
    MR_TRY(mr_arena_copy(arena, number_arg(at.seconds, score), &args[0]));
    enum mr_err err = mr_asynq_enqueued_encode(done->task_id, &at, &bytes);
    if (err == MR_OK)
        err = mr_arena_copy(arena, mr_buf_slice(&bytes), &args[1]);
    mr_buf_done(&bytes);
    return err;
}

/* "asynq:scheduler_history:ID" and the like. */
static enum mr_err key_of(const struct engine *engine, const char *kind, struct mr_slice id,
                          struct mr_arena *arena, struct mr_slice *ret_key)
{
    struct mr_buf text = {0};
    enum mr_err err =
        mr_buf_printf(&text, "%.*sasynq:%s%.*s", (int)engine->prefix.len,
                      (const char *)engine->prefix.data, kind, (int)id.len, (const char *)id.data);
    if (err == MR_OK)
        err = mr_arena_copy(arena, mr_buf_slice(&text), ret_key);
    mr_buf_done(&text);
    return err;
}

static enum mr_err prepare_history(struct show *show, const struct mr_req_exhibit *req,
                                   struct mr_arena *arena)
{
    show->groups = mr_arena_calloc(arena, req->done_n + 1, sizeof *show->groups);
    if (show->groups == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < req->done_n; i++) {
        bool same = i > 0 && mr_slice_equal(req->done[i].id, req->done[i - 1].id);
        struct group *group = &show->groups[same ? show->groups_n - 1 : show->groups_n];
        if (!same) {
            show->groups_n++;
            group->args = mr_arena_calloc(arena, 1 + 2 * (req->done_n - i), sizeof *group->args);
            if (group->args == NULL)
                return MR_NOMEM;
            group->args[group->n++] = number_arg(HISTORY_TTL_S, show->history_ttl);
            MR_TRY(key_of(show->ticket->engine, "scheduler_history:", req->done[i].id, arena,
                          &group->key));
        }
        MR_TRY(done_args(&req->done[i], arena, &group->args[group->n]));
        group->n += 2;
    }
    return MR_OK;
}

enum mr_err exhibit_prepare(struct ticket *ticket)
{
    struct mr_req_exhibit *req = mr_container(ticket->req, struct mr_req_exhibit, req);
    struct mr_arena *arena = &req->req.arena;
    const struct engine *engine = ticket->engine;
    if (req->n > MR_EXHIBITS_MAX || req->done_n > MR_EXHIBITS_MAX)
        return MR_TOO_BIG;
    struct show *show = mr_arena_calloc(arena, 1, sizeof *show);
    if (show == NULL)
        return MR_NOMEM;
    req->prepared = show;
    show->ticket = ticket;
    show->args = mr_arena_calloc(arena, req->n + 1, sizeof *show->args);
    show->set = global_key(engine, "schedulers", arena);
    if (show->args == NULL || show->set.len == 0)
        return MR_NOMEM;
    show->args[show->n++] = number_arg(req->ttl_s, show->ttl);
    for (size_t i = 0; i < req->n; i++)
        MR_TRY(entry_bytes(&req->entries[i], arena, &show->args[show->n++]));
    struct mr_slice tag;
    char text[512];
    int len =
        snprintf(text, sizeof text, "{%.*s}", (int)req->name.len, (const char *)req->name.data);
    if (len < 0 || (size_t)len >= sizeof text)
        return MR_TOO_BIG;
    tag = mr_slice_make(text, (size_t)len);
    MR_TRY(key_of(engine, "schedulers:", tag, arena, &show->key));
    MR_TRY(prepare_history(show, req, arena));
    show->calls = mr_arena_calloc(arena, CALLS + show->groups_n, sizeof *show->calls);
    return show->calls != NULL ? MR_OK : MR_NOMEM;
}

/* ---- calls ----------------------------------------------------------------------------------- */

static void answered(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct show *show = call->arg;
    if (err != MR_OK)
        show->err = engine_refused(show->ticket->engine, err, reply);
    if (--show->left == 0)
        ticket_done(show->ticket, show->err);
}

static struct mr_redis_call *next_call(struct show *show)
{
    struct mr_redis_call *call = &show->calls[show->left++];
    *call = (struct mr_redis_call){
        .answered = answered, .arg = show, .repeatable = true, .urgent = true};
    return call;
}

void exhibit_begin(struct ticket *ticket)
{
    const struct mr_req_exhibit *req = mr_container(ticket->req, struct mr_req_exhibit, req);
    struct show *show = req->prepared;
    struct engine *engine = ticket->engine;
    int64_t now_ms = mr_wall_ms(mr_wall_now(mr_clock_system())) + engine->ahead_ms;
    int64_t until_s = req->ttl_s > 0 ? now_ms / MR_MS_PER_S + req->ttl_s : 0;
    struct mr_slice member[] = {show->key, number_arg(until_s, show->score), MR_SLICE_LIT("1")};
    mr_redis_eval(engine->redis, next_call(show), SCRIPT_EXHIBIT, &show->key, 1, show->args,
                  show->n);
    mr_redis_eval(engine->redis, next_call(show), SCRIPT_MEMBER, &show->set, 1, member, 3);
    for (size_t i = 0; i < show->groups_n; i++)
        mr_redis_eval(engine->redis, next_call(show), SCRIPT_EXHIBITED, &show->groups[i].key, 1,
                      show->groups[i].args, show->groups[i].n);
}
