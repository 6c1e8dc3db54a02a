/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls: written down once, in memory of their own that stays until the answer, since any of them may
 * have to be sent again; routed; kept while there is no line for them; answered.
 */
#include <hiredis.h>
#include <limits.h>
#include <stdlib.h>

#include "redis/internal.h"

static struct mr_redis_call *call_of(struct mr_link *link)
{
    return mr_container(link, struct mr_redis_call, own.link);
}

/* ---- writing down --------------------------------------------------------------------------- */

static enum mr_err grow_argv(struct mr_redis *redis, size_t n)
{
    if (n <= redis->argv_cap)
        return MR_OK;
    size_t cap = n + n / 2 + 16;
    const char **argv = realloc(redis->argv, cap * sizeof *argv);
    if (argv == NULL)
        return MR_NOMEM;
    redis->argv = argv;
    size_t *lens = realloc(redis->argv_len, cap * sizeof *lens);
    if (lens == NULL)
        return MR_NOMEM;
    redis->argv_len = lens;
    redis->argv_cap = cap;
    return MR_OK;
}

enum mr_err redis_call_format(struct mr_redis *redis, struct mr_redis_call *call,
                              const struct mr_slice *args, size_t n)
{
    enum { ARG_COST = 32 }; /* of its length, and what ends it */
    if (n > REDIS_COMMAND_MAX / ARG_COST)
        return MR_TOO_BIG;
    MR_TRY(grow_argv(redis, n));
    size_t bytes = 0;
    for (size_t i = 0; i < n; i++) {
        redis->argv[i] = args[i].len > 0 ? args[i].data : "";
        redis->argv_len[i] = args[i].len;
        if (args[i].len > REDIS_COMMAND_MAX ||
            (bytes += args[i].len + ARG_COST) > REDIS_COMMAND_MAX)
            return MR_TOO_BIG;
    }
    int len = redisFormatCommandArgv(&call->own.bytes, (int)n, redis->argv, redis->argv_len);
    if (len < 0) {
        call->own.bytes = NULL;
        return MR_NOMEM;
    }
    call->own.len = (size_t)len;
    return MR_OK;
}

void redis_call_free(struct mr_redis_call *call)
{
    if (!call->own.lent)
        redisFreeCommand(call->own.bytes);
    call->own.bytes = NULL;
}

/* ---- answers -------------------------------------------------------------------------------- */

static struct redis_line *line_for(struct mr_redis *redis, const struct mr_redis_call *call)
{
    if (call->own.line != NULL)
        return call->own.line;
    struct redis_node *node = redis->kind->route(redis, call->own.slot);
    return node != NULL ? &node->line : NULL;
}

void redis_call_answer(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    redis_call_free(call);
    call->answered(call, err, reply);
}

void redis_call_over(struct mr_redis *redis, struct mr_redis_call *call, enum mr_err err)
{
    const struct redis_line *line = err == MR_UNAVAILABLE ? line_for(redis, call) : NULL;
    call->own.err = err;
    call->gone = line != NULL && line->gone;
    mr_list_push_back(&redis->over, &call->own.link);
}

/* ---- routing -------------------------------------------------------------------------------- */

uint16_t redis_slot_of(const struct mr_redis *redis, struct mr_slice key)
{
    if (key.len == 0)
        return REDIS_SLOT_ANY;
    return redis->kind->slot != NULL ? redis->kind->slot(key) : 0;
}

static void arm_waiting(struct mr_redis *redis, mr_mono at)
{
    struct mr_timer *timer = &redis->waiting_timer;
    uint64_t tick = (uint64_t)((at.ns + MR_NS_PER_MS - 1) / MR_NS_PER_MS);
    if (!mr_timer_running(timer) || tick < timer->due)
        mr_redis_timer_start(redis, timer, at);
}

static mr_mono next_look(const struct mr_redis_call *call, mr_mono now)
{
    bool later = call->own.not_before.ns > now.ns && call->own.not_before.ns < call->own.until.ns;
    return later ? call->own.not_before : call->own.until;
}

/* Why it may not wait; MR_OK: it may. */
static enum mr_err may_wait(const struct mr_redis *redis, const struct mr_redis_call *call)
{
    if (redis->stopping)
        return MR_CLOSED;
    if (!redis->up && redis_err_lasts(redis->err))
        return redis->err;
    bool urgent = call->urgent && !call->own.patient;
    if (urgent || call->own.until.ns <= redis->now.ns)
        return MR_UNAVAILABLE;
    return MR_OK;
}

/* To its line, or to the end of those that wait, or back to its caller. */
static void place(struct mr_redis *redis, struct mr_redis_call *call)
{
    struct redis_line *line = redis->stopping ? NULL : line_for(redis, call);
    bool too_early = call->own.not_before.ns > redis->now.ns;
    call->own.patient &= too_early;
    if (line != NULL && redis_line_is_open(line) && !too_early) {
        redis_line_push(line, call);
        return;
    }
    enum mr_err err = may_wait(redis, call);
    if (err != MR_OK) {
        redis_call_over(redis, call, err);
        return;
    }
    mr_list_push_back(&redis->waiting, &call->own.link);
    arm_waiting(redis, next_look(call, redis->now));
}

/* All of them are looked at in their order, so those for one line stay in it. */
static void place_all(struct mr_redis *redis)
{
    struct mr_link all, *link;
    mr_list_init(&all);
    mr_list_splice_back(&all, &redis->waiting);
    mr_wheel_stop(redis->wheel, &redis->waiting_timer);
    while ((link = mr_list_pop_front(&all)) != NULL)
        place(redis, call_of(link));
}

void redis_route_all(struct mr_redis *redis)
{
    redis_lanes_follow(redis);
    redis_channels_follow(redis);
    place_all(redis);
}

void redis_waiting_fired(struct mr_timer *timer, void *arg)
{
    (void)arg;
    place_all(mr_container(timer, struct mr_redis, waiting_timer));
}

void redis_waiting_end(struct mr_redis *redis, struct redis_line *line, enum mr_err err)
{
    struct mr_link all, *link;
    mr_list_init(&all);
    mr_list_splice_back(&all, &redis->waiting);
    while ((link = mr_list_pop_front(&all)) != NULL) {
        if (line == NULL || call_of(link)->own.line == line)
            redis_call_over(redis, call_of(link), err);
        else
            mr_list_push_back(&redis->waiting, link);
    }
}

bool redis_call_lost(struct mr_redis *redis, struct mr_redis_call *call)
{
    bool sent = call->own.sent;
    call->doubt |= sent;
    call->own.sent = false;
    call->own.asking = false;
    enum mr_err err = may_wait(redis, call);
    if (err == MR_OK && sent && !call->repeatable)
        err = MR_UNAVAILABLE;
    if (err != MR_OK)
        redis_call_over(redis, call, err);
    else
        arm_waiting(redis, next_look(call, redis->now));
    return err == MR_OK;
}

/* ---- what Redis refuses --------------------------------------------------------------------- */

enum cure {
    CURE_NONE,
    CURE_SOON,   /* it passes at once */
    CURE_LATER,  /* it passes */
    CURE_GONE,   /* it passes, and until then nobody can change anything there */
    CURE_SCRIPT, /* the script is loaded and the call sent again behind it */
    CURE_LEAVE,  /* this is not the primary any more: the line looks for it */
};

/* By the first word. In all of these, the command was not carried out. */
static const struct {
    const char *word;
    enum cure cure;
    enum mr_err err; /* where there is no cure */
} refusals[] = {
    {"NOSCRIPT", CURE_SCRIPT, MR_FAILED},       {"LOADING", CURE_GONE, MR_UNAVAILABLE},
    {"MASTERDOWN", CURE_LATER, MR_UNAVAILABLE}, {"BUSY", CURE_SOON, MR_UNAVAILABLE},
    {"TRYAGAIN", CURE_SOON, MR_UNAVAILABLE},    {"CLUSTERDOWN", CURE_LATER, MR_UNAVAILABLE},
    {"NOREPLICAS", CURE_GONE, MR_UNAVAILABLE},  {"READONLY", CURE_LEAVE, MR_UNAVAILABLE},
    {"NOAUTH", CURE_NONE, MR_DENIED},           {"WRONGPASS", CURE_NONE, MR_DENIED},
    {"NOPERM", CURE_NONE, MR_DENIED},           {"OOM", CURE_NONE, MR_DISK_FULL},
    {"MISCONF", CURE_GONE, MR_UNAVAILABLE}, /* it cannot write its disk, and takes no writes */
};

/* Redis 6.2 wraps what a command in a script said: "ERR Error running script ...: -OOM ...". */
static struct mr_slice unwrapped(struct mr_slice text)
{
    if (!mr_slice_starts_with(text, MR_SLICE_LIT("ERR Error running script")))
        return text;
    const char *at = memmem(text.data, text.len, ": -", 3);
    if (at == NULL)
        return text;
    at += 3;
    return mr_slice_make(at, text.len - (size_t)(at - (const char *)text.data));
}

static bool has_word(struct mr_slice text, const char *word)
{
    size_t len = strlen(word);
    return mr_slice_starts_with(text, mr_slice_str(word)) &&
           (text.len == len || ((const char *)text.data)[len] == ' ');
}

/* What a user's rights refuse to a command in a script has a word of its own from Redis 7.2 on only. */
static bool is_denied(struct mr_slice text)
{
    static const char why[] = "The user executing the script can't";
    return memmem(text.data, text.len, why, sizeof why - 1) != NULL;
}

static void refuse(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    redis_call_answer(call, err, reply);
}

static void again(struct redis_line *line, struct mr_redis_call *call, const struct mr_reply *reply)
{
    if (++call->own.tries > REDIS_TRIES_MAX)
        refuse(call, MR_UNAVAILABLE, reply);
    else
        place(line->redis, call);
}

/* soon: also if it is urgent. */
static void again_later(struct redis_line *line, struct mr_redis_call *call,
                        const struct mr_reply *reply, bool soon)
{
    struct mr_redis *redis = line->redis;
    call->own.patient = soon;
    if (may_wait(redis, call) != MR_OK) {
        refuse(call, MR_UNAVAILABLE, reply);
        return;
    }
    call->own.not_before = mr_mono_add_ms(redis->now, REDIS_AGAIN_MS);
    place(redis, call);
}

static void cure(struct redis_line *line, struct mr_redis_call *call, const struct mr_reply *reply)
{
    struct mr_slice text = unwrapped(reply->text);
    enum cure how = CURE_NONE;
    enum mr_err err = is_denied(text) ? MR_DENIED : MR_FAILED;
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        if (has_word(text, refusals[i].word)) {
            how = refusals[i].cure;
            err = refusals[i].err;
        }
    }
    if (how == CURE_LEAVE) {
        char host[MR_HOST_MAX + 16];
        redis_line_doom(line, MR_UNAVAILABLE, "Redis at %s has become a read-only replica",
                        redis_host_text(line->redis, &line->host, host));
    }
    call->gone = how == CURE_GONE;
    if (how == CURE_SCRIPT && call->own.script >= 0) {
        redis_line_load(line);
        again(line, call, reply);
    } else if (how != CURE_NONE && how != CURE_SCRIPT) {
        again_later(line, call, reply, how == CURE_SOON);
    } else {
        refuse(call, err, reply);
    }
}

static void refused(struct redis_line *line, struct mr_redis_call *call,
                    const struct mr_reply *reply)
{
    const struct redis_kind *kind = line->redis->kind;
    enum redis_verdict verdict =
        kind->refused != NULL ? kind->refused(line, call, reply->text) : REDIS_TELL;
    if (verdict == REDIS_AGAIN)
        again(line, call, reply);
    else if (verdict == REDIS_AGAIN_SOON || verdict == REDIS_AGAIN_LATER)
        again_later(line, call, reply, verdict == REDIS_AGAIN_SOON);
    else if (verdict == REDIS_TELL)
        cure(line, call, reply);
}

void redis_call_replied(struct redis_line *line, struct mr_redis_call *call,
                        const struct mr_reply *reply)
{
    call->own.sent = false;
    call->own.asking = false;
    if (reply->kind == MR_REPLY_ERROR) {
        refused(line, call, reply);
        return;
    }
    if (call->durable && line->redis->options.wait_replicas > 0) {
        call->own.reply = reply;
        call->own.sent = true; /* it was carried out */
        mr_list_push_back(&line->kept, &call->own.link);
        return;
    }
    call->doubt = false;
    redis_call_answer(call, MR_OK, reply);
}

/* ---- sending -------------------------------------------------------------------------------- */

static void begin(struct mr_redis *redis, struct mr_redis_call *call, enum mr_err err)
{
    mr_assert(call->answered != NULL);
    call->doubt = call->gone = false;
    if (err != MR_OK)
        redis_call_over(redis, call, err);
    else
        place(redis, call);
}

static void clear(struct mr_redis *redis, struct mr_redis_call *call)
{
    mr_assert(redis_is_loop(redis));
    mr_assert(call->own.bytes == NULL); /* not on its way */
    memset(&call->own, 0, sizeof call->own);
    mr_list_init(&call->own.link);
    call->own.script = -1;
    call->own.until = mr_mono_add_ms(redis->now, redis->options.away_ms);
}

void redis_call_send(struct mr_redis *redis, struct mr_redis_call *call, struct redis_line *line,
                     uint16_t slot, const struct mr_slice *args, size_t n)
{
    clear(redis, call);
    call->own.line = line;
    call->own.slot = slot;
    begin(redis, call, redis_call_format(redis, call, args, n));
}

void mr_redis_send(struct mr_redis *redis, struct mr_redis_call *call, struct mr_slice key,
                   const struct mr_slice *args, size_t n)
{
    redis_call_send(redis, call, NULL, redis_slot_of(redis, key), args, n);
}

static enum mr_err grow_slices(struct mr_redis *redis, size_t n)
{
    if (n <= redis->slices_cap)
        return MR_OK;
    struct mr_slice *slices = realloc(redis->slices, (n + n / 2 + 16) * sizeof *slices);
    if (slices == NULL)
        return MR_NOMEM;
    redis->slices = slices;
    redis->slices_cap = n + n / 2 + 16;
    return MR_OK;
}

static enum mr_err format_eval(struct mr_redis *redis, struct mr_redis_call *call,
                               const struct mr_slice *keys, size_t keys_n,
                               const struct mr_slice *args, size_t args_n)
{
    char number[24];
    if (keys_n > INT_MAX || args_n > INT_MAX)
        return MR_TOO_BIG;
    MR_TRY(grow_slices(redis, 3 + keys_n + args_n));
    struct mr_slice *slices = redis->slices;
    snprintf(number, sizeof number, "%zu", keys_n);
    slices[0] = MR_SLICE_LIT("EVALSHA");
    slices[1] = mr_slice_str(redis->shas[call->own.script]);
    slices[2] = mr_slice_str(number);
    if (keys_n > 0)
        memcpy(slices + 3, keys, keys_n * sizeof *keys);
    if (args_n > 0)
        memcpy(slices + 3 + keys_n, args, args_n * sizeof *args);
    return redis_call_format(redis, call, slices, 3 + keys_n + args_n);
}

void mr_redis_eval(struct mr_redis *redis, struct mr_redis_call *call, size_t script,
                   const struct mr_slice *keys, size_t keys_n, const struct mr_slice *args,
                   size_t args_n)
{
    mr_assert(script < redis->options.scripts_n);
    clear(redis, call);
    call->own.slot = keys_n > 0 ? redis_slot_of(redis, keys[0]) : REDIS_SLOT_ANY;
    call->own.script = (int32_t)script;
    begin(redis, call, format_eval(redis, call, keys, keys_n, args, args_n));
}

size_t mr_redis_send_to_all(struct mr_redis *redis, struct mr_redis_call *calls, size_t n_max,
                            const struct mr_slice *args, size_t n)
{
    size_t used = 0;
    for (struct mr_link *at = redis->nodes.next; at != &redis->nodes && used < n_max;
         at = at->next) {
        struct redis_node *node = mr_container(at, struct redis_node, link);
        if (node->primary)
            redis_call_send(redis, &calls[used++], &node->line, REDIS_SLOT_ANY, args, n);
    }
    /* None is known yet: one stands for them all. */
    if (used == 0 && n_max > 0)
        redis_call_send(redis, &calls[used++], NULL, REDIS_SLOT_ANY, args, n);
    return used;
}
