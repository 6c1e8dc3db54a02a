/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A Redis that sends anything: whatever it is, each call is answered once and nothing is left behind.
 * The first byte of the input says how the connections begin: with the answers of a good server, or at
 * once with what follows, which all connections get.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "fuzz/fuzz.h"
#include "redis/internal.h"

enum { CONNS_MAX = 8, TURNS_MAX = 30, CALLS = 4 };

static const char good_hello[] =
    "+OK\r\n$43\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\n\r\n"
    "*1\r\n$6\r\nmaster\r\n*1\r\n:1\r\n";

static const struct mr_redis_script scripts[] = {{.name = "one", .text = "return 1"}};

static int listener = -1;
static char dir[64], path[80], url[96];

static void remove_dir(void)
{
    (void)unlink(path);
    (void)rmdir(dir);
}

/* On a unix socket: of ports there are not enough for so many connections. */
static void listen_once(void)
{
    const char *tmp = getenv("TMPDIR");
    struct mr_addr addr;
    if (listener >= 0)
        return;
    snprintf(dir, sizeof dir, "%s/fuzz-redis-XXXXXX", tmp != NULL ? tmp : P_tmpdir);
    mr_assert(mkdtemp(dir) != NULL);
    (void)atexit(remove_dir);
    snprintf(path, sizeof path, "%s/socket", dir);
    snprintf(url, sizeof url, "redis+unix:%s", path);
    mr_assert(mr_addr_unix(path, &addr) == MR_OK);
    listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    mr_assert(bind(listener, (struct sockaddr *)&addr.storage, addr.len) == 0);
    mr_assert(listen(listener, CONNS_MAX) == 0);
}

/* ---- the server ----------------------------------------------------------------------------- */

struct conns {
    int fds[CONNS_MAX];
    size_t n;
};

static void serve(struct conns *conns, const uint8_t *data, size_t size)
{
    struct mr_addr peer;
    int fd;
    while (conns->n < CONNS_MAX && mr_net_accept(listener, &fd, &peer) == MR_OK) {
        size_t n;
        conns->fds[conns->n++] = fd;
        if (size > 0 && data[0] % 4 != 0)
            (void)!mr_net_write(fd, good_hello, sizeof good_hello - 1, &n);
        if (size > 1)
            (void)!mr_net_write(fd, data + 1, size - 1, &n);
    }
}

/* ---- the user ------------------------------------------------------------------------------- */

static size_t answers[CALLS];
static struct mr_redis_call calls[CALLS];

static void answered(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    mr_assert(reply != NULL && (err == MR_OK || reply->kind == MR_REPLY_ERROR));
    mr_assert(mr_reply_at(reply, reply->n)->kind == MR_REPLY_NIL);
    answers[call - calls]++;
}

static void heard(struct mr_redis_channel *channel, struct mr_slice bytes)
{
    (void)channel;
    (void)bytes;
}

static void begin(struct mr_redis *redis, struct mr_redis_lane *lane)
{
    struct mr_slice key = MR_SLICE_LIT("key");
    struct mr_slice get[] = {MR_SLICE_LIT("GET"), key};
    memset(calls, 0, sizeof calls);
    memset(answers, 0, sizeof answers);
    for (size_t i = 0; i < CALLS; i++)
        calls[i].answered = answered;
    calls[0].repeatable = true;
    calls[2].durable = true;
    mr_redis_send(redis, &calls[0], key, get, 2);
    mr_redis_eval(redis, &calls[1], 0, &key, 1, NULL, 0);
    mr_redis_send(redis, &calls[2], key, get, 2);
    mr_redis_lane_send(lane, &calls[3], get, 2);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct mr_redis_options options = {.scripts = scripts, .scripts_n = 1, .wait_replicas = 1};
    struct mr_redis_channel channel = {.name = MR_SLICE_LIT("news"), .message = heard};
    struct conns conns = {.n = 0};
    struct mr_redis *redis;
    struct mr_redis_lane *lane;
    listen_once();
    options.url = url;
    mr_assert(redis_new(&options, &redis, NULL) == MR_OK);
    redis_turn(redis, 0);
    mr_redis_subscribe(redis, &channel);
    mr_assert(mr_redis_lane_new(redis, MR_SLICE_LIT("key"), &lane) == MR_OK);
    begin(redis, lane);
    for (int i = 0; i < TURNS_MAX; i++) {
        serve(&conns, data, size);
        redis_turn(redis, 0);
    }
    mr_redis_unsubscribe(redis, &channel);
    redis_end(redis);
    for (size_t i = 0; i < CALLS; i++)
        mr_assert(answers[i] == 1);
    for (size_t i = 0; i < conns.n; i++)
        mr_net_close(conns.fds[i]);
    return 0;
}
