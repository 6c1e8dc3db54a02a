/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection of its own to the Redis: nothing of the engine is in what it measures. The main thread
 * waits; everything else happens on the loop of src/redis.
 */
#include "cli/bench/redis.h"

#include <stdlib.h>
#include <unistd.h>

#include "base/text.h"
#include "broker/door.h"
#include "cli/bench/server.h"
#include "cli/own_server.h"
#include "cli/server.h"
#include "redis/redis.h"
#include "wire/asynq.h"

/* As the engine connects: an attempt that takes too long is over before it is no longer waited for. */
enum { CONNECT_MS = MR_DOOR_OPEN_MS - 500 };

enum { PRIMARIES_MAX = 128, IN_FLIGHT_MAX = 16, ID_LEN = 36, CLEAR_STEP = 5000 };

#define PREFIX    "millrace:{" BENCH_QUEUE "-bare}:"
#define PUSH_LIST "millrace:" BENCH_QUEUE "-pushes"

enum { SCRIPT_BARE, SCRIPT_CLEAR };

static const struct mr_redis_script scripts[] = {
    [SCRIPT_BARE] = {"bare", "local now = '1700000000000000000'\n"
                             "for i = 2, #ARGV do\n"
                             "  local key = KEYS[1] .. 't:' .. ARGV[i]\n"
                             "  if redis.call('EXISTS', key) == 0 then\n"
                             "    redis.call('HSET', key, 'msg', ARGV[1], 'state', 'pending', "
                             "'pending_since', now)\n"
                             "    redis.call('LPUSH', KEYS[1] .. 'pending', ARGV[i])\n"
                             "  end\n"
                             "end\n"
                             "return #ARGV - 1\n"},
    [SCRIPT_CLEAR] = {"clear",
                      "for i = tonumber(ARGV[1]), tonumber(ARGV[2]) do\n"
                      "  redis.call('UNLINK', KEYS[1] .. 't:' .. string.format('%036d', i))\n"
                      "end\n"
                      "return redis.call('UNLINK', KEYS[1] .. 'pending')\n"},
};

struct bench_redis {
    struct bench *bench;
    struct mr_redis *redis;
    struct mr_door door; /* for the first connection */
    struct mr_event done;
    struct mr_msg begin;
    struct mr_buf message;
    struct mr_redis_call calls[PRIMARIES_MAX];
    unsigned in_flight;
    _Atomic bool running;
    /* The loop's while something is under way. */
    unsigned open;
    uint64_t next_id, answered;
    const char *name; /* of INFO */
    double number;
    uint64_t clear_to;
    enum mr_err err;
};

static void close_one(struct bench_redis *redis, enum mr_err err)
{
    if (redis->err == MR_OK)
        redis->err = err;
    if (--redis->open == 0)
        mr_event_set(&redis->done);
}

/* Begins something on the loop and waits for its end. */
static enum mr_err carry_out(struct bench_redis *redis,
                             void (*begin)(struct mr_msg *msg, void *receiver), double seconds)
{
    redis->open = 1;
    redis->err = MR_OK;
    redis->begin.deliver = begin;
    mr_event_reset(&redis->done);
    atomic_store(&redis->running, true);
    mr_redis_post(redis->redis, &redis->begin);
    if (seconds > 0)
        bench_sleep(seconds);
    atomic_store(&redis->running, seconds <= 0);
    mr_event_wait(&redis->done, INT64_MAX);
    return bench_interrupted() ? MR_CANCELLED : redis->err;
}

/* ---- opening -------------------------------------------------------------------------------- */

static void on_changed(struct mr_redis *connection, bool up, const char *why, void *arg)
{
    struct bench_redis *redis = arg;
    mr_door_changed(&redis->door, up, mr_redis_err(connection), why);
}

static enum mr_err make_message(struct bench_redis *redis)
{
    struct mr_task_options task = bench_task();
    struct mr_asynq_task message = {
        .type = MR_SLICE_LIT("task"),
        .payload = task.payload,
        .id = MR_SLICE_LIT("00000000-0000-0000-0000-000000000000"),
        .queue = MR_SLICE_LIT(BENCH_QUEUE),
        .retry = 25,
        .timeout_s = 1800,
    };
    return mr_asynq_task_encode(&message, &redis->message);
}

enum mr_err bench_redis_open(struct bench *bench, struct bench_redis **ret_redis)
{
    struct cli_tls tls = {0};
    struct bench_redis *redis = cli_alloc(1, sizeof *redis);
    redis->bench = bench;
    mr_door_init(&redis->door);
    mr_event_init(&redis->done);
    int code = cli_tls(bench->cli, &tls);
    if (code != CLI_OK) {
        bench_redis_close(redis);
        return bench_told(bench, code);
    }
    struct mr_redis_options options = {
        .url = bench->cli->broker,
        .tls_ca = tls.ca,
        .tls_cert = tls.cert,
        .tls_key = tls.key,
        .scripts = scripts,
        .scripts_n = CLI_LEN(scripts),
        .connect_ms = CONNECT_MS,
        .changed = on_changed,
        .arg = redis,
    };
    struct mr_detail why = {.text = ""};
    cli_must(make_message(redis));
    enum mr_err err = mr_redis_new("bench", &options, &redis->redis, &why);
    if (err == MR_OK)
        err = mr_door_await_up(&redis->door, 0, &why);
    if (err != MR_OK) {
        bench_redis_close(redis);
        return bench_told(bench, cli_fail_open(bench->cli, err, &why));
    }
    *ret_redis = redis;
    return MR_OK;
}

void bench_redis_close(struct bench_redis *redis)
{
    if (!redis)
        return;
    mr_redis_free(redis->redis);
    mr_door_done(&redis->door);
    mr_buf_done(&redis->message);
    free(redis);
}

/* ---- what it says of itself ----------------------------------------------------------------- */

static double info_number(struct mr_slice info, const char *name)
{
    char line[64], number[32] = "";
    int len = snprintf(line, sizeof line, "\n%s:", name);
    const char *at = memmem(info.data, info.len, line, (size_t)len);
    if (!at)
        return 0;
    at += len;
    size_t left = info.len - (size_t)(at - (const char *)info.data);
    for (size_t i = 0; i < left && i + 1 < sizeof number && at[i] >= '0' && at[i] <= '9'; i++)
        number[i] = at[i];
    return strtod(number, NULL);
}

static void on_info(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct bench_redis *redis = call->arg;
    if (err == MR_OK && reply->kind == MR_REPLY_TEXT)
        redis->number += info_number(reply->text, redis->name);
    close_one(redis, err);
}

static void begin_info(struct mr_msg *msg, void *receiver)
{
    struct bench_redis *redis = mr_container(msg, struct bench_redis, begin);
    static const struct mr_slice word = {"INFO", 4};
    (void)receiver;
    for (size_t i = 0; i < PRIMARIES_MAX; i++)
        redis->calls[i] =
            (struct mr_redis_call){.answered = on_info, .arg = redis, .repeatable = true};
    redis->open +=
        (unsigned)mr_redis_send_to_all(redis->redis, redis->calls, PRIMARIES_MAX, &word, 1);
    close_one(redis, MR_OK);
}

enum mr_err bench_redis_info(struct bench_redis *redis, const char *name, double *ret_number)
{
    redis->name = name;
    redis->number = 0;
    MR_TRY(carry_out(redis, begin_info, 0));
    *ret_number = redis->number;
    return MR_OK;
}

/* ---- the bare script ------------------------------------------------------------------------ */

static const struct mr_slice prefix = {PREFIX, sizeof PREFIX - 1};

static void on_bare(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply);

static void send_bare(struct bench_redis *redis, struct mr_redis_call *call)
{
    char ids[BENCH_BATCH][ID_LEN + 1];
    struct mr_slice args[1 + BENCH_BATCH] = {mr_buf_slice(&redis->message)};
    for (size_t i = 0; i < BENCH_BATCH; i++) {
        (void)snprintf(ids[i], sizeof ids[i], "%0*llu", ID_LEN,
                       (unsigned long long)redis->next_id++);
        args[1 + i] = mr_slice_make(ids[i], ID_LEN);
    }
    *call = (struct mr_redis_call){.answered = on_bare, .arg = redis};
    mr_redis_eval(redis->redis, call, SCRIPT_BARE, &prefix, 1, args, CLI_LEN(args));
}

static void on_bare(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct bench_redis *redis = call->arg;
    if (err == MR_OK && mr_reply_int(reply, 0) != BENCH_BATCH)
        err = MR_FAILED;
    redis->answered += err == MR_OK;
    if (err == MR_OK && atomic_load(&redis->running))
        send_bare(redis, call);
    else
        close_one(redis, err);
}

static void begin_bare(struct mr_msg *msg, void *receiver)
{
    struct bench_redis *redis = mr_container(msg, struct bench_redis, begin);
    (void)receiver;
    for (unsigned i = 0; i < redis->in_flight; i++) {
        redis->open++;
        send_bare(redis, &redis->calls[i]);
    }
    close_one(redis, MR_OK);
}

static void on_cleared(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply);

static void clear_some(struct bench_redis *redis)
{
    char from[24], to[24];
    uint64_t last = redis->clear_to + CLEAR_STEP - 1;
    (void)snprintf(from, sizeof from, "%llu", (unsigned long long)redis->clear_to);
    (void)snprintf(to, sizeof to, "%llu", (unsigned long long)last);
    struct mr_slice args[] = {mr_slice_str(from), mr_slice_str(to)};
    redis->clear_to = last + 1;
    redis->calls[0] =
        (struct mr_redis_call){.answered = on_cleared, .arg = redis, .repeatable = true};
    mr_redis_eval(redis->redis, &redis->calls[0], SCRIPT_CLEAR, &prefix, 1, args, CLI_LEN(args));
}

static void on_cleared(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply)
{
    struct bench_redis *redis = call->arg;
    (void)reply;
    if (err == MR_OK && redis->clear_to < redis->next_id)
        clear_some(redis);
    else
        close_one(redis, err);
}

static void begin_clear(struct mr_msg *msg, void *receiver)
{
    struct bench_redis *redis = mr_container(msg, struct bench_redis, begin);
    (void)receiver;
    clear_some(redis);
}

enum mr_err bench_redis_bare(struct bench_redis *redis, unsigned in_flight, double seconds,
                             uint64_t *tasks, double *total_seconds)
{
    mr_assert(in_flight <= IN_FLIGHT_MAX);
    int64_t start = bench_now_ns();
    redis->in_flight = in_flight;
    redis->next_id = redis->answered = redis->clear_to = 0;
    enum mr_err err = carry_out(redis, begin_bare, seconds);
    *total_seconds += bench_seconds_since(start);
    *tasks += redis->answered * BENCH_BATCH;
    enum mr_err cleared = carry_out(redis, begin_clear, 0);
    return err != MR_OK ? err : cleared;
}

/* ---- redis-benchmark ------------------------------------------------------------------------ */

enum { ARGS_MAX = 24 };

static void drop_list(struct mr_msg *msg, void *receiver)
{
    struct bench_redis *redis = mr_container(msg, struct bench_redis, begin);
    struct mr_slice words[] = {MR_SLICE_LIT("UNLINK"), MR_SLICE_LIT(PUSH_LIST)};
    (void)receiver;
    redis->clear_to = redis->next_id = 0; /* nothing follows */
    redis->calls[0] =
        (struct mr_redis_call){.answered = on_cleared, .arg = redis, .repeatable = true};
    mr_redis_send(redis->redis, &redis->calls[0], words[1], words, CLI_LEN(words));
}

/* Where it is, in the words of redis-benchmark. False: it has none for this. */
static bool benchmark_place(const struct cli *cli, const struct cli_tls *tls, const char **args,
                            size_t *n)
{
    static const char unix_scheme[] = "redis+unix:";
    const char *url = cli->broker;
    const struct {
        const char *flag, *file;
    } files[] = {{"--cacert", tls->ca}, {"--cert", tls->cert}, {"--key", tls->key}};
    if (strncmp(url, unix_scheme, strlen(unix_scheme)) == 0 && !strchr(url, '?') &&
        strncmp(url + strlen(unix_scheme), "//", 2) != 0) {
        args[(*n)++] = "-s";
        args[(*n)++] = url + strlen(unix_scheme);
        return true;
    }
    bool secure = strncmp(url, "rediss://", strlen("rediss://")) == 0;
    if (!secure && strncmp(url, "redis://", strlen("redis://")) != 0)
        return false;
    args[(*n)++] = "-u";
    args[(*n)++] = url;
    for (size_t i = 0; secure && i < CLI_LEN(files); i++) {
        if (!files[i].file)
            continue;
        args[(*n)++] = files[i].flag;
        args[(*n)++] = files[i].file;
    }
    return true;
}

/* Calls a second, from its line of CSV: "NAME","RATE",... */
static enum mr_err read_rate(int fd, double *ret_rate)
{
    char text[BENCH_TOOL_TEXT];
    MR_TRY(bench_tool_read(fd, text));
    const char *line = strstr(text, PUSH_LIST);
    const char *comma = line ? strstr(line, "\",\"") : NULL;
    *ret_rate = comma ? strtod(comma + strlen("\",\""), NULL) : 0;
    return *ret_rate > 0 ? MR_OK : MR_FAILED;
}

static enum mr_err run_benchmark(struct bench *bench, uint64_t n, double *ret_rate)
{
    char count[24];
    struct cli_tls tls = {0};
    const char *args[ARGS_MAX] = {"timeout", "60", "redis-benchmark"};
    size_t args_n = 3;
    int fd = -1;
    (void)snprintf(count, sizeof count, "%llu", (unsigned long long)n);
    if (cli_tls(bench->cli, &tls) != CLI_OK || !benchmark_place(bench->cli, &tls, args, &args_n)) {
        mr_detail_set(&bench->detail,
                      "redis-benchmark, the yardstick, needs a broker of one server");
        return MR_UNSUPPORTED;
    }
    const char *const rest[] = {"-P",  "1",     "-c",    "50",      "-n",
                                count, "--csv", "lpush", PUSH_LIST, "xxx"};
    memcpy(args + args_n, rest, sizeof rest);
    pid_t pid = bench_tool_start(args, &fd);
    if (pid < 0)
        return MR_FAILED;
    enum mr_err err = read_rate(fd, ret_rate);
    close(fd);
    int status = bench_tool_end(pid, 0);
    if (err != MR_OK || status != 0)
        mr_detail_set(&bench->detail,
                      "redis-benchmark, the yardstick, did not run; is it installed "
                      "(package redis-tools)?");
    return status == 0 ? err : MR_FAILED;
}

enum mr_err bench_redis_pushes(struct bench_redis *redis, double seconds, uint64_t *pushes,
                               double *total_seconds)
{
    static const double GUESS = 50 * 1000; /* a second */
    uint64_t n = (uint64_t)(seconds * GUESS) + 1000;
    double rate = 0;
    enum mr_err err = run_benchmark(redis->bench, n, &rate);
    if (err == MR_OK) {
        *pushes += n;
        *total_seconds += (double)n / rate;
    }
    enum mr_err dropped = carry_out(redis, drop_list, 0);
    return err != MR_OK ? err : dropped;
}
