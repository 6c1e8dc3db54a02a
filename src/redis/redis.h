/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A Redis deployment as one thing: one server, the primary that Sentinels name, or a Cluster. What
 * the commands say is not known here.
 *
 * One thread, the loop, owns every connection; all callbacks come from it, and all functions are for
 * it alone unless they say otherwise. Others reach it with mr_redis_post. No function here calls back
 * before it returns. What a turn sends leaves in one write per connection.
 *
 * Commands for one node leave in the order of sending, without waiting for answers, and are answered
 * in that order. When a connection breaks, what was not sent yet is sent on the next one; what was
 * sent and not answered is sent again only if it is repeatable, else it is answered MR_UNAVAILABLE
 * with doubt = true: it may have been carried out or not. MOVED, ASK, TRYAGAIN, LOADING, NOSCRIPT and a
 * primary that became read-only are dealt with here and never seen outside.
 *
 * While nothing answers, calls are refused with MR_UNAVAILABLE at once if they are `urgent`, and after
 * away_ms otherwise: whoever produces fails fast, whoever reports a result waits. What will not pass
 * by itself (a wrong password, a Redis too old) is told at once to all.
 */
#ifndef MR_REDIS_REDIS_H
#define MR_REDIS_REDIS_H

#include "base/chan.h"
#include "base/list.h"
#include "base/slice.h"
#include "wheel/wheel.h"

struct mr_redis;
struct mr_redis_lane;

/* ---- answers -------------------------------------------------------------------------------- */

enum mr_reply_kind {
    MR_REPLY_NIL,
    MR_REPLY_TEXT, /* status or bulk: any bytes */
    MR_REPLY_ERROR,
    MR_REPLY_INTEGER,
    MR_REPLY_ARRAY,
};

/* Lives during the callback that brings it. An array has 2^20 items at most, a text 64 MiB, and a
 * reply takes 512 MiB in all: a server that sends more is left. */
struct mr_reply {
    enum mr_reply_kind kind;
    int64_t integer;
    struct mr_slice text; /* of an error as well */
    const struct mr_reply *items;
    size_t n;
};

/* Of an integer, or of a text that is one; otherwise `otherwise`. */
int64_t mr_reply_int(const struct mr_reply *reply, int64_t otherwise);
/* Item i of an array; a nil where there is none. */
const struct mr_reply *mr_reply_at(const struct mr_reply *reply, size_t i);

/* ---- a deployment --------------------------------------------------------------------------- */

struct mr_redis_script {
    const char *name; /* for messages */
    const char *text; /* lives as long as the program */
};

enum mr_redis_kind { MR_REDIS_SINGLE, MR_REDIS_SENTINEL, MR_REDIS_CLUSTER };

struct mr_redis_options {
    const char *url; /* redis://, rediss://, redis+unix:, redis+sentinel://, redis+cluster:// */
    const char *tls_ca, *tls_cert, *tls_key, *tls_name; /* PEM files; NULL: the system's, none */
    const struct mr_redis_script *scripts; /* loaded on every connection before its first command */
    size_t scripts_n;
    int64_t connect_ms;     /* 3 s: TCP, TLS, AUTH, SELECT, scripts */
    int64_t answer_ms;      /* 5 s: without an answer the connection is given up */
    int64_t away_ms;        /* 10 s: calls that are not urgent wait so long for a connection */
    uint32_t wait_replicas; /* durable calls are answered when so many replicas have them */
    int64_t wait_ms;        /* 1 s: ... else MR_TIMEOUT with doubt */
    /* The deployment answers, or has stopped to (why: one line, no secrets). May be NULL. */
    void (*changed)(struct mr_redis *redis, bool up, const char *why, void *arg);
    /* A subscription was refused, and is not asked for again before the next connection. May be NULL. */
    void (*unheard)(struct mr_redis *redis, const struct mr_reply *reply, void *arg);
    void *arg;
};

/* Only reads the URL; what is wrong with it is in detail, without the password. Thread: any. */
MR_MUST_USE enum mr_err mr_redis_url_check(const char *url, enum mr_redis_kind *ret_kind,
                                           struct mr_detail *detail);
/* Starts the loop and connects, with jittered back-off from 20 ms to 1 s for ever. Thread: any. */
MR_MUST_USE enum mr_err mr_redis_new(const char *thread_name,
                                     const struct mr_redis_options *options,
                                     struct mr_redis **ret_redis, struct mr_detail *detail);
/* Delivers what was posted, answers what is in flight with MR_CLOSED, ends the thread. NULL is fine.
 * Thread: any but the loop. */
void mr_redis_free(struct mr_redis *redis);

enum mr_redis_kind mr_redis_kind(const struct mr_redis *redis);
/* When the server that was connected to last had begun, as it says; in whole seconds. Zero: it does not. */
mr_mono mr_redis_began(const struct mr_redis *redis);
/* Why it is not: one line; and MR_UNAVAILABLE, or, if that does not pass by itself, MR_DENIED,
 * MR_UNSUPPORTED (too old), MR_INVALID (no such database). MR_OK while it is up. */
const char *mr_redis_why(const struct mr_redis *redis);
enum mr_err mr_redis_err(const struct mr_redis *redis);

/* deliver is called on the loop with receiver = redis. Thread: any. */
void mr_redis_post(struct mr_redis *redis, struct mr_msg *msg);
mr_mono mr_redis_now(const struct mr_redis *redis);
/* As in rpc: fires once, at this time or some ms after. */
void mr_redis_timer_start(struct mr_redis *redis, struct mr_timer *timer, mr_mono at);
void mr_redis_timer_stop(struct mr_redis *redis, struct mr_timer *timer);
/* Called once at the end of the turn in which it was asked for, before the writes leave. */
void mr_redis_at_end_of_turn(struct mr_redis *redis, struct mr_msg *msg);

/* ---- calls ---------------------------------------------------------------------------------- */

/* One command on its way; the caller's memory, zeroed before its first use, until answered. */
struct mr_redis_call {
    /*
     * MR_OK: reply is what Redis said. MR_FAILED: reply is its error. MR_DENIED: NOAUTH, WRONGPASS,
     * NOPERM. MR_DISK_FULL: OOM. MR_UNAVAILABLE (also while it takes no writes: MISCONF, NOREPLICAS),
     * MR_TIMEOUT: see doubt. MR_CLOSED, MR_CANCELLED, MR_NOMEM, MR_TOO_BIG. reply is never NULL: where Redis said
     * nothing it is an error with our reason. The call may be used again in the callback.
     */
    void (*answered)(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply);
    void *arg;
    bool repeatable; /* a second time does no harm */
    bool urgent;     /* refused at once while nothing answers */
    bool
        durable; /* wait_replicas holds for it; what is sent behind it to the same node waits too */
    bool doubt;  /* answer: it may have been carried out */
    bool gone;   /* ... of MR_UNAVAILABLE: nobody else could change anything there either */
    struct {     /* the module's */
        struct mr_link link;
        struct redis_line *line;      /* the only one that may carry it; NULL: that of its slot */
        const struct mr_reply *reply; /* kept while replicas are waited for */
        char *bytes;
        size_t len;
        mr_mono until, not_before;
        enum mr_err err;
        int32_t script; /* -1: none */
        uint16_t slot;
        uint16_t skip; /* so many replies come before the one that counts */
        uint8_t tries;
        bool asking, sent, lent, patient;
    } own;
};

/* Which node gets it: the one of this key; an empty key: any. Copies the arguments. A call that cannot
 * be formatted is answered as any other, later. */
void mr_redis_send(struct mr_redis *redis, struct mr_redis_call *call, struct mr_slice key,
                   const struct mr_slice *args, size_t n);
/* EVALSHA of scripts[script]; the node is that of keys[0]. */
void mr_redis_eval(struct mr_redis *redis, struct mr_redis_call *call, size_t script,
                   const struct mr_slice *keys, size_t keys_n, const struct mr_slice *args,
                   size_t args_n);

/* A connection of its own to the node of a key, for commands that block: no answer_ms. It follows the
 * key when that moves. */
MR_MUST_USE enum mr_err mr_redis_lane_new(struct mr_redis *redis, struct mr_slice key,
                                          struct mr_redis_lane **ret_lane);
/* Closes the connection; its calls are answered MR_CANCELLED by the loop afterwards. NULL is fine. */
void mr_redis_lane_free(struct mr_redis_lane *lane);
void mr_redis_lane_send(struct mr_redis_lane *lane, struct mr_redis_call *call,
                        const struct mr_slice *args, size_t n);

/* ---- messages to all ------------------------------------------------------------------------ */

struct mr_redis_channel {
    struct mr_slice name; /* lives as long as the subscription */
    /* A message; or, with an empty slice whose data is NULL: the subscription has begun (again), and
     * messages before it may be missing. */
    void (*message)(struct mr_redis_channel *channel, struct mr_slice bytes);
    void *arg;
    struct mr_link link; /* the module's */
};

/* One connection carries all subscriptions. */
void mr_redis_subscribe(struct mr_redis *redis, struct mr_redis_channel *channel);
void mr_redis_unsubscribe(struct mr_redis *redis, struct mr_redis_channel *channel);

/* ---- all nodes ------------------------------------------------------------------------------ */

/* Sends the command to every primary: answered is called once for each of the n calls that are used,
 * n_max at most. Answers how many there are. */
size_t mr_redis_send_to_all(struct mr_redis *redis, struct mr_redis_call *calls, size_t n_max,
                            const struct mr_slice *args, size_t n);

#endif
