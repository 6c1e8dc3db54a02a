/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a connection says and checks before its first call, all in one write: who we are, which
 * database, whether this is a Redis we can work with, and the scripts. The first thing that is wrong
 * ends it. Where a user may not ask (NOPERM), what is not known is taken to be fine.
 */
#include "redis/internal.h"

/* A step: what is said, and what the answer must be. check answers whether to go on. */
struct step {
    unsigned flags; /* enum redis_hello */
    enum mr_err (*say)(struct redis_line *line);
    bool (*check)(struct redis_line *line, const struct mr_reply *reply);
};

static enum mr_err say(struct redis_line *line, const struct mr_slice *args, size_t n)
{
    struct mr_redis_call call = {0};
    MR_TRY(redis_call_format(line->redis, &call, args, n));
    enum mr_err err = mr_buf_append(&line->raw, call.own.bytes, call.own.len);
    redis_call_free(&call);
    return err;
}

static bool is_error(const struct mr_reply *reply, struct mr_slice word)
{
    return reply->kind == MR_REPLY_ERROR && mr_slice_starts_with(reply->text, word);
}

/* Ends it; with what Redis said, if that is an error. */
static bool end(struct redis_line *line, enum mr_err err, const char *what,
                const struct mr_reply *reply)
{
    char host[MR_HOST_MAX + 16];
    (void)redis_host_text(line->redis, &line->host, host);
    if (reply != NULL && reply->kind == MR_REPLY_ERROR)
        redis_line_doom(line, err, "Redis at %s %s: %.*s", host, what, (int)reply->text.len,
                        (const char *)reply->text.data);
    else
        redis_line_doom(line, err, "Redis at %s %s", host, what);
    return false;
}

/* ---- steps ---------------------------------------------------------------------------------- */

static enum mr_err say_auth(struct redis_line *line)
{
    const struct redis_url *url = &line->redis->url;
    struct mr_slice args[3] = {MR_SLICE_LIT("AUTH")};
    size_t n = 1;
    if (url->user != NULL)
        args[n++] = mr_slice_str(url->user);
    args[n++] = mr_slice_str(url->password);
    return say(line, args, n);
}

static bool check_auth(struct redis_line *line, const struct mr_reply *reply)
{
    if (reply->kind != MR_REPLY_ERROR)
        return true;
    return end(line, MR_DENIED, "refuses user or password", reply);
}

/* A Sentinel may know another user than its servers do, or none. */
static enum mr_err say_password(struct redis_line *line)
{
    struct mr_slice args[2] = {MR_SLICE_LIT("AUTH"), mr_slice_str(line->redis->url.password)};
    return say(line, args, 2);
}

/* Whoever wants what was refused here says so to what comes next. */
static bool check_nothing(struct redis_line *line, const struct mr_reply *reply)
{
    (void)line, (void)reply;
    return true;
}

static enum mr_err say_select(struct redis_line *line)
{
    char db[24];
    snprintf(db, sizeof db, "%lld", (long long)line->redis->url.db);
    struct mr_slice args[2] = {MR_SLICE_LIT("SELECT"), mr_slice_str(db)};
    return say(line, args, 2);
}

static bool check_select(struct redis_line *line, const struct mr_reply *reply)
{
    if (reply->kind != MR_REPLY_ERROR)
        return true;
    bool denied = is_error(reply, MR_SLICE_LIT("NOPERM"));
    return end(line, denied ? MR_DENIED : MR_INVALID, "refuses the database", reply);
}

static enum mr_err say_name(struct redis_line *line)
{
    struct mr_slice args[3] = {MR_SLICE_LIT("CLIENT"), MR_SLICE_LIT("SETNAME"),
                               MR_SLICE_LIT("millrace")};
    return say(line, args, 3);
}

static enum mr_err say_role(struct redis_line *line)
{
    struct mr_slice args[1] = {MR_SLICE_LIT("ROLE")};
    return say(line, args, 1);
}

static bool check_role(struct redis_line *line, const struct mr_reply *reply)
{
    if (!mr_slice_equal(mr_reply_at(reply, 0)->text, MR_SLICE_LIT("slave")))
        return true;
    return end(line, MR_UNAVAILABLE, "is a read-only replica: the primary is needed", NULL);
}

static enum mr_err say_info(struct redis_line *line)
{
    struct mr_slice args[2] = {MR_SLICE_LIT("INFO"), MR_SLICE_LIT("server")};
    return say(line, args, 2);
}

/* The value of a line "name:value"; empty when there is none. */
static struct mr_slice info_value(struct mr_slice info, struct mr_slice name)
{
    const char *at = memmem(info.data, info.len, name.data, name.len);
    if (at == NULL)
        return (struct mr_slice){0};
    at += name.len;
    size_t left = info.len - (size_t)(at - (const char *)info.data), len = 0;
    while (len < left && at[len] != '\r' && at[len] != '\n')
        len++;
    return mr_slice_make(at, len);
}

/* "6.2.14": 602; 0 when it is no such thing. One that was never released says 255.255.255. */
static int version_number(struct mr_slice text)
{
    char copy[32];
    int major, minor;
    snprintf(copy, sizeof copy, "%.*s", (int)text.len, (const char *)text.data);
    if (sscanf(copy, "%4d.%4d", &major, &minor) != 2 || major < 0 || minor < 0)
        return 0;
    return major * 100 + (minor < 100 ? minor : 99);
}

/* One that does not say it is taken to be new enough. */
static bool check_version(struct redis_line *line, struct mr_slice version)
{
    char what[96];
    int number = version_number(version);
    if (version.len == 0 || number >= REDIS_VERSION_MIN)
        return true;
    snprintf(what, sizeof what, "%s %.*s; 6.2.0 or newer is needed",
             number > 0 ? "is version" : "gives a version that cannot be read:",
             (int)(version.len < 16 ? version.len : 16), (const char *)version.data);
    return end(line, MR_UNSUPPORTED, what, NULL);
}

static bool check_mode(struct redis_line *line, struct mr_slice mode)
{
    const struct redis_kind *kind = line->redis->kind;
    if (mode.len == 0 || mr_slice_equal(mode, mr_slice_str(kind->name)))
        return true;
    if (mr_slice_equal(mode, MR_SLICE_LIT("cluster")))
        return end(line, MR_UNSUPPORTED, "is part of a Cluster: use redis+cluster://", NULL);
    if (mr_slice_equal(mode, MR_SLICE_LIT("sentinel")))
        return end(line, MR_UNSUPPORTED, "is a Sentinel: use redis+sentinel://", NULL);
    return end(line, MR_UNSUPPORTED, "is not part of a Cluster: use redis://", NULL);
}

static void note_age(struct redis_line *line, struct mr_slice seconds)
{
    struct mr_redis *redis = line->redis;
    const struct mr_reply text = {.kind = MR_REPLY_TEXT, .text = seconds};
    int64_t age_s = mr_reply_int(&text, -1);
    if (age_s >= 0)
        redis->began_at = mr_mono_add_ms(redis->now, -age_s * MR_MS_PER_S);
}

static bool check_info(struct redis_line *line, const struct mr_reply *reply)
{
    if (reply->kind != MR_REPLY_TEXT)
        return true;
    if (!check_version(line, info_value(reply->text, MR_SLICE_LIT("redis_version:"))))
        return false;
    note_age(line, info_value(reply->text, MR_SLICE_LIT("uptime_in_seconds:")));
    return check_mode(line, info_value(reply->text, MR_SLICE_LIT("redis_mode:")));
}

/* They are some hundred kilobytes in all, and mostly there. */
static enum mr_err say_exists(struct redis_line *line)
{
    const struct mr_redis *redis = line->redis;
    return mr_buf_append_slice(&line->raw, mr_buf_slice(&redis->exists));
}

/* One that cannot be asked about is loaded. */
static bool load_missing(struct redis_line *line, const struct mr_reply *there)
{
    const struct mr_redis *redis = line->redis;
    for (size_t i = 0; i < redis->options.scripts_n; i++) {
        if (mr_reply_int(mr_reply_at(there, i), 0) == 1)
            continue;
        size_t start = i > 0 ? redis->load_ends[i - 1] : 0;
        struct mr_slice load =
            mr_slice_make(redis->loads.data + start, redis->load_ends[i] - start);
        if (mr_buf_append_slice(&line->raw, load) != MR_OK)
            return end(line, MR_NOMEM, "cannot be used: out of memory", NULL);
        line->loads_left++;
    }
    return true;
}

/* First the answer which of them are there, then one for each that was not. */
static bool check_scripts(struct redis_line *line, const struct mr_reply *reply)
{
    if (line->loads_left == 0)
        return load_missing(line, reply);
    line->loads_left--;
    if (reply->kind == MR_REPLY_TEXT)
        return true;
    bool denied = is_error(reply, MR_SLICE_LIT("NOPERM"));
    return end(line, denied ? MR_DENIED : MR_UNSUPPORTED, "does not take a script", reply);
}

/* In the order of saying. */
static const struct step steps[REDIS_HELLO_STEPS_MAX] = {
    {REDIS_HELLO_AUTH, say_auth, check_auth},
    {REDIS_HELLO_AUTH_IF_WANTED, say_auth, check_nothing},
    {REDIS_HELLO_AUTH_IF_WANTED, say_password, check_nothing},
    {REDIS_HELLO_SELECT, say_select, check_select},
    {REDIS_HELLO_NAME, say_name, check_nothing},
    {REDIS_HELLO_VERSION, say_info, check_info},
    {REDIS_HELLO_PRIMARY, say_role, check_role},
    {REDIS_HELLO_SCRIPTS, say_exists, check_scripts},
};

static unsigned needless(const struct mr_redis *redis)
{
    unsigned flags = 0;
    if (redis->url.password == NULL)
        flags |= REDIS_HELLO_AUTH | REDIS_HELLO_AUTH_IF_WANTED;
    if (redis->url.db == 0)
        flags |= REDIS_HELLO_SELECT;
    if (redis->options.scripts_n == 0)
        flags |= REDIS_HELLO_SCRIPTS;
    return flags;
}

enum mr_err redis_hello_begin(struct redis_line *line)
{
    unsigned hello = line->ops->hello & ~needless(line->redis);
    line->steps_n = line->step_at = 0;
    line->loads_left = 0;
    for (uint8_t i = 0; i < REDIS_HELLO_STEPS_MAX; i++) {
        if (!(hello & steps[i].flags))
            continue;
        MR_TRY(steps[i].say(line));
        line->steps[line->steps_n++] = i;
    }
    return line->steps_n > 0 ? MR_EMPTY : MR_OK;
}

/* What any command may be answered with instead. */
static bool check_any(struct redis_line *line, const struct mr_reply *reply)
{
    if (is_error(reply, MR_SLICE_LIT("NOAUTH")))
        return end(line, MR_DENIED, "wants a password", reply);
    if (is_error(reply, MR_SLICE_LIT("DENIED")))
        return end(line, MR_DENIED, "is in protected mode: it takes nobody from another machine",
                   NULL);
    if (is_error(reply, MR_SLICE_LIT("ERR max number of clients")))
        return end(line, MR_UNAVAILABLE, "has no room for another client", NULL);
    line->gone = is_error(reply, MR_SLICE_LIT("LOADING"));
    if (line->gone)
        return end(line, MR_UNAVAILABLE, "is loading its data", NULL);
    if (is_error(reply, MR_SLICE_LIT("MASTERDOWN")))
        return end(line, MR_UNAVAILABLE, "is a replica without a primary", NULL);
    if (is_error(reply, MR_SLICE_LIT("BUSY ")))
        return end(line, MR_UNAVAILABLE, "is busy with a script", NULL);
    return true;
}

enum mr_err redis_hello_answer(struct redis_line *line, const struct mr_reply *reply)
{
    mr_assert(line->step_at < line->steps_n);
    const struct step *step = &steps[line->steps[line->step_at]];
    if (!check_any(line, reply) || !step->check(line, reply))
        return line->err;
    if (line->loads_left > 0)
        return MR_EMPTY;
    return ++line->step_at < line->steps_n ? MR_EMPTY : MR_OK;
}
