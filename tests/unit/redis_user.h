/* SPDX-License-Identifier: Apache-2.0 */
/* A user of a Redis deployment: sends commands from the test's thread and waits for what becomes of
 * them. */
#ifndef MR_TESTS_REDIS_USER_H
#define MR_TESTS_REDIS_USER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "redis/redis.h"

static const int64_t user_patience_ns = 30 * MR_NS_PER_S;

enum { USER_ARGS_MAX = 16, USER_TEXT_MAX = 512 };

struct user {
    struct mr_redis *redis;
    struct mr_event changed; /* since it was last reset */
    _Atomic uint32_t ups, downs;
    struct mr_lock lock;
    char why[512]; /* of the last down; under the lock */
};

/* A command and what became of it. */
struct ask {
    struct mr_msg msg;
    struct mr_redis_call call;
    struct user *user;
    struct mr_redis_lane *lane; /* NULL: none */
    int script;                 /* -1: none */
    size_t keys_n;              /* of a script */
    struct mr_slice args[USER_ARGS_MAX];
    size_t n;
    struct mr_event done;
    unsigned answers;
    enum mr_err err;
    enum mr_reply_kind kind;
    char text[USER_TEXT_MAX]; /* items of an array with a space between them */
};

static inline void user_print(const struct mr_reply *reply, char *text, size_t *at)
{
    size_t room = USER_TEXT_MAX - *at;
    int n = 0;
    if (reply->kind == MR_REPLY_INTEGER)
        n = snprintf(text + *at, room, "%lld", (long long)reply->integer);
    else if (reply->kind == MR_REPLY_NIL)
        n = snprintf(text + *at, room, "(nil)");
    else if (reply->kind != MR_REPLY_ARRAY)
        n = snprintf(text + *at, room, "%.*s", (int)reply->text.len,
                     (const char *)reply->text.data);
    *at += (size_t)n < room ? (size_t)n : room - 1;
    for (size_t i = 0; reply->kind == MR_REPLY_ARRAY && i < reply->n; i++) {
        if (i > 0 && *at < USER_TEXT_MAX - 1)
            text[(*at)++] = ' ';
        user_print(mr_reply_at(reply, i), text, at);
    }
    text[*at] = '\0';
}

static inline void ask_answered(struct mr_redis_call *call, enum mr_err err,
                                const struct mr_reply *reply)
{
    struct ask *ask = mr_container(call, struct ask, call);
    size_t at = 0;
    ask->answers++;
    ask->err = err;
    ask->kind = reply->kind;
    user_print(reply, ask->text, &at);
    mr_event_set(&ask->done);
}

static inline void ask_begin(struct mr_msg *msg, void *receiver)
{
    struct ask *ask = mr_container(msg, struct ask, msg);
    struct mr_redis *redis = receiver;
    if (ask->lane != NULL)
        mr_redis_lane_send(ask->lane, &ask->call, ask->args, ask->n);
    else if (ask->script >= 0)
        mr_redis_eval(redis, &ask->call, (size_t)ask->script, ask->args, ask->keys_n,
                      ask->args + ask->keys_n, ask->n - ask->keys_n);
    else
        mr_redis_send(redis, &ask->call, ask->n > 1 ? ask->args[1] : (struct mr_slice){0},
                      ask->args, ask->n);
    assert_int_equal(ask->answers, 0); /* nothing calls back before it returns */
}

/* Fills a command; the strings live as long as it. */
static inline void ask_init(struct ask *ask, struct user *user, ...)
{
    *ask = (struct ask){.msg.deliver = ask_begin, .user = user, .script = -1};
    ask->call.answered = ask_answered;
    mr_event_init(&ask->done);
    va_list args;
    va_start(args, user);
    const char *arg;
    while ((arg = va_arg(args, const char *)) != NULL) {
        assert_true(ask->n < USER_ARGS_MAX);
        ask->args[ask->n++] = mr_slice_str(arg);
    }
    va_end(args);
}

static inline void ask_start(struct ask *ask)
{
    mr_redis_post(ask->user->redis, &ask->msg);
}

static inline enum mr_err ask_wait(struct ask *ask)
{
    assert_true(mr_event_wait(&ask->done, user_patience_ns));
    assert_int_equal(ask->answers, 1);
    return ask->err;
}

static inline enum mr_err ask_run(struct ask *ask)
{
    ask_start(ask);
    return ask_wait(ask);
}

/* The text of a command that must succeed. */
#define ASK(user, ask, ...)                                                                        \
    (ask_init(ask, user, __VA_ARGS__, NULL), assert_int_equal(ask_run(ask), MR_OK), (ask)->text)

static inline void user_changed(struct mr_redis *redis, bool up, const char *why, void *arg)
{
    struct user *user = arg;
    (void)redis;
    if (up) {
        atomic_fetch_add(&user->ups, 1);
    } else {
        mr_lock_enter(&user->lock);
        snprintf(user->why, sizeof user->why, "%s", why);
        mr_lock_leave(&user->lock);
        atomic_fetch_add(&user->downs, 1);
    }
    mr_event_set(&user->changed);
}

static inline void user_open(struct user *user, struct mr_redis_options options)
{
    struct mr_detail detail = {0};
    memset(user, 0, sizeof *user);
    mr_event_init(&user->changed);
    mr_lock_init(&user->lock);
    options.changed = user_changed;
    options.arg = user;
    enum mr_err err = mr_redis_new("test-redis", &options, &user->redis, &detail);
    if (err != MR_OK)
        fail_msg("%s: %s", mr_err_text(err), detail.text);
}

/* Whether the last reason for being down has these words. */
static inline bool user_was_told(struct user *user, const char *words)
{
    mr_lock_enter(&user->lock);
    bool has = strstr(user->why, words) != NULL;
    mr_lock_leave(&user->lock);
    return has;
}

static inline void user_wait_up(struct user *user, uint32_t ups)
{
    while (atomic_load(&user->ups) < ups) {
        assert_true(mr_event_wait(&user->changed, user_patience_ns));
        mr_event_reset(&user->changed);
    }
}

static inline void user_wait_down(struct user *user, uint32_t downs)
{
    while (atomic_load(&user->downs) < downs) {
        assert_true(mr_event_wait(&user->changed, user_patience_ns));
        mr_event_reset(&user->changed);
    }
}

static inline void user_close(struct user *user)
{
    mr_redis_free(user->redis);
    user->redis = NULL;
    mr_lock_done(&user->lock);
}

/* Runs a function on the loop and waits for its end. */
struct user_job {
    struct mr_msg msg;
    void (*run)(struct mr_redis *redis, void *arg);
    void *arg;
    struct mr_event done;
};

static inline void user_deliver(struct mr_msg *msg, void *receiver)
{
    struct user_job *job = mr_container(msg, struct user_job, msg);
    job->run(receiver, job->arg);
    mr_event_set(&job->done);
}

static inline void user_do(struct user *user, void (*run)(struct mr_redis *redis, void *arg),
                           void *arg)
{
    struct user_job job = {.msg.deliver = user_deliver, .run = run, .arg = arg};
    mr_event_init(&job.done);
    mr_redis_post(user->redis, &job.msg);
    assert_true(mr_event_wait(&job.done, user_patience_ns));
}

#endif
