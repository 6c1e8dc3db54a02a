/* SPDX-License-Identifier: Apache-2.0 */
/* The loop: one thread, its turns, and how others reach it. */
#include "redis/redis.h"

#include <openssl/evp.h>
#include <stdlib.h>

#include "redis/internal.h"

const struct redis_kind *const redis_kinds[] = {
    [MR_REDIS_SINGLE] = &redis_single,
    [MR_REDIS_SENTINEL] = &redis_sentinel,
    [MR_REDIS_CLUSTER] = &redis_cluster,
};

/* The loop that this thread runs, if it runs one. */
static _Thread_local const struct mr_redis *this_loop;

bool redis_is_loop(const struct mr_redis *redis)
{
    return this_loop == redis;
}

/* ---- time ----------------------------------------------------------------------------------- */

static uint64_t tick_of(mr_mono at)
{
    return (uint64_t)(at.ns / MR_NS_PER_MS);
}

void mr_redis_timer_start(struct mr_redis *redis, struct mr_timer *timer, mr_mono at)
{
    bool never = at.ns > INT64_MAX - MR_NS_PER_MS;
    /* Rounded up: never early. */
    mr_wheel_start(redis->wheel, timer,
                   never ? MR_TICK_NEVER - 1 : tick_of((mr_mono){at.ns + MR_NS_PER_MS - 1}));
}

void mr_redis_timer_stop(struct mr_redis *redis, struct mr_timer *timer)
{
    mr_wheel_stop(redis->wheel, timer);
}

mr_mono mr_redis_now(const struct mr_redis *redis)
{
    return redis->now;
}

/* ---- up and down ---------------------------------------------------------------------------- */

bool redis_err_lasts(enum mr_err err)
{
    return err != MR_OK && err != MR_UNAVAILABLE && err != MR_NOMEM;
}

void redis_is_up(struct mr_redis *redis)
{
    redis->up = true;
    redis->err = MR_OK;
    redis->why[0] = '\0';
    redis->changed_due = true;
}

void redis_is_down(struct mr_redis *redis, enum mr_err err, const char *why)
{
    redis->up = false;
    redis->err = err;
    snprintf(redis->why, sizeof redis->why, "%s", why);
    redis->changed_due = true;
    if (redis_err_lasts(err))
        redis_waiting_end(redis, NULL, err);
}

enum mr_redis_kind mr_redis_kind(const struct mr_redis *redis)
{
    return redis->url.kind;
}

mr_mono mr_redis_began(const struct mr_redis *redis)
{
    return redis->began_at;
}

const char *mr_redis_why(const struct mr_redis *redis)
{
    return redis->why;
}

enum mr_err mr_redis_err(const struct mr_redis *redis)
{
    return redis->err;
}

/* ---- nodes ---------------------------------------------------------------------------------- */

enum mr_err redis_node_new(struct mr_redis *redis, const struct redis_host *host,
                           const struct redis_line_ops *ops, struct redis_node **ret_node)
{
    struct redis_node *node = calloc(1, sizeof *node);
    if (node == NULL)
        return MR_NOMEM;
    redis_line_init(&node->line, redis, ops, node);
    mr_list_push_back(&redis->nodes, &node->link);
    redis_line_aim(&node->line, host);
    *ret_node = node;
    return MR_OK;
}

void redis_node_retire(struct redis_node *node)
{
    mr_list_remove(&node->link);
    redis_waiting_end(node->line.redis, &node->line, MR_UNAVAILABLE);
    redis_line_retire(&node->line, MR_UNAVAILABLE);
}

/* ---- turns ---------------------------------------------------------------------------------- */

static void deliver(struct mr_redis *redis, struct mr_msg *msg)
{
    struct mr_msg *next;
    for (; msg != NULL; msg = next) {
        next = msg->next;
        msg->deliver(msg, redis);
    }
}

static void deliver_end_of_turn(struct mr_redis *redis)
{
    struct mr_msg *all = redis->at_end;
    redis->at_end = NULL;
    redis->at_end_tail = &redis->at_end;
    deliver(redis, all);
}

void mr_redis_at_end_of_turn(struct mr_redis *redis, struct mr_msg *msg)
{
    mr_assert(redis_is_loop(redis));
    msg->next = NULL;
    *redis->at_end_tail = msg;
    redis->at_end_tail = &msg->next;
}

/* What was there when it began: whoever sends again in its callback waits for the next turn. */
static void settle_calls(struct mr_redis *redis)
{
    struct mr_link over, *link;
    mr_list_init(&over);
    mr_list_splice_back(&over, &redis->over);
    while ((link = mr_list_pop_front(&over)) != NULL) {
        struct mr_redis_call *call = mr_container(link, struct mr_redis_call, own.link);
        enum mr_err err = call->own.err;
        bool known = err == redis->err && !redis->up;
        struct mr_reply reply = {
            .kind = MR_REPLY_ERROR,
            .text = mr_slice_str(known ? redis->why : mr_err_text(err)),
        };
        redis_call_answer(call, err, &reply);
    }
}

static void settle_lines(struct mr_redis *redis)
{
    struct mr_link gone, *link;
    while ((link = redis->doomed.next) != &redis->doomed)
        redis_line_close(mr_container(link, struct redis_line, doom_link));
    mr_list_init(&gone);
    mr_list_splice_back(&gone, &redis->gone);
    while ((link = mr_list_pop_front(&gone)) != NULL) {
        struct redis_line *line = mr_container(link, struct redis_line, link);
        if (!redis_line_end(line))
            mr_list_push_back(&redis->gone, &line->link);
    }
}

static void tell_changed(struct mr_redis *redis)
{
    if (!redis->changed_due)
        return;
    redis->changed_due = false;
    if (redis->options.changed != NULL)
        redis->options.changed(redis, redis->up, redis->why, redis->options.arg);
}

static void settle(struct mr_redis *redis)
{
    settle_lines(redis);
    settle_calls(redis);
    tell_changed(redis);
}

static void flush_all(struct mr_redis *redis)
{
    struct mr_link dirty, *link;
    mr_list_init(&dirty);
    mr_list_splice_back(&dirty, &redis->dirty);
    while ((link = dirty.next) != &dirty)
        redis_line_flush(mr_container(link, struct redis_line, dirty_link));
}

/* Nothing is left to do before something happens. Lines that are gone wait for a resolver. */
static bool settled(const struct mr_redis *redis)
{
    return mr_list_empty(&redis->over) && mr_list_empty(&redis->dirty) &&
           mr_list_empty(&redis->doomed) && redis->at_end == NULL && !redis->changed_due;
}

static int64_t wait_ns(struct mr_redis *redis)
{
    if (!settled(redis))
        return 0;
    uint64_t next = mr_wheel_next(redis->wheel);
    if (next >= (uint64_t)(INT64_MAX / MR_NS_PER_MS))
        return INT64_MAX;
    int64_t ns = (int64_t)next * MR_NS_PER_MS - mr_mono_now(mr_clock_system()).ns;
    return ns > 0 ? ns : 0;
}

void redis_turn(struct mr_redis *redis, int64_t max_ns)
{
    this_loop = redis;
    int64_t ns = wait_ns(redis);
    mr_loop_wait(redis->loop, ns < max_ns ? ns : max_ns);
    redis->now = mr_mono_now(mr_clock_system());
    mr_loop_dispatch(redis->loop);
    struct mr_msg *posted = mr_chan_take_all(mr_loop_inbox(redis->loop));
    /* Whoever posts counts from then: what he waits for must not end too early. */
    redis->now = mr_mono_now(mr_clock_system());
    deliver(redis, posted);
    mr_wheel_advance(redis->wheel, tick_of(redis->now), redis);
    settle(redis);
    deliver_end_of_turn(redis);
    flush_all(redis);
    settle(redis);
}

static void close_all(struct mr_redis *redis)
{
    redis->kind->stop(redis);
    redis_lanes_end(redis);
    if (redis->channel_begun)
        redis_line_retire(&redis->channel_line, MR_CLOSED);
    redis_waiting_end(redis, NULL, MR_CLOSED);
    settle(redis);
    while (!settled(redis) || !mr_list_empty(&redis->gone))
        redis_turn(redis, INT64_MAX);
    this_loop = NULL;
}

static void *run(void *arg)
{
    struct mr_redis *redis = arg;
    while (!redis->stopping)
        redis_turn(redis, INT64_MAX);
    close_all(redis);
    return NULL;
}

/* ---- life ----------------------------------------------------------------------------------- */

enum { SHA_LEN = 20 };

static enum mr_err sha1_hex(const char *text, char hex[2 * SHA_LEN + 1])
{
    uint8_t sha[EVP_MAX_MD_SIZE];
    unsigned len;
    if (EVP_Digest(text, strlen(text), sha, &len, EVP_sha1(), NULL) != 1 || len != SHA_LEN)
        return MR_NOMEM;
    for (size_t i = 0; i < SHA_LEN; i++)
        snprintf(hex + 2 * i, 3, "%02x", sha[i]);
    return MR_OK;
}

static enum mr_err append(struct mr_redis *redis, struct mr_buf *buf, const struct mr_slice *args,
                          size_t n)
{
    struct mr_redis_call call = {0};
    MR_TRY(redis_call_format(redis, &call, args, n));
    enum mr_err err = mr_buf_append(buf, call.own.bytes, call.own.len);
    redis_call_free(&call);
    return err;
}

static enum mr_err prepare_exists(struct mr_redis *redis)
{
    size_t n = redis->options.scripts_n;
    struct mr_slice *args = calloc(n + 2, sizeof *args);
    if (args == NULL)
        return MR_NOMEM;
    args[0] = MR_SLICE_LIT("SCRIPT");
    args[1] = MR_SLICE_LIT("EXISTS");
    for (size_t i = 0; i < n; i++)
        args[2 + i] = mr_slice_str(redis->shas[i]);
    enum mr_err err = append(redis, &redis->exists, args, n + 2);
    free(args);
    return err;
}

static enum mr_err prepare_scripts(struct mr_redis *redis)
{
    size_t n = redis->options.scripts_n;
    if (n == 0)
        return MR_OK;
    redis->shas = calloc(n, sizeof *redis->shas);
    redis->load_ends = calloc(n, sizeof *redis->load_ends);
    if (redis->shas == NULL || redis->load_ends == NULL)
        return MR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        const char *text = redis->options.scripts[i].text;
        struct mr_slice args[3] = {MR_SLICE_LIT("SCRIPT"), MR_SLICE_LIT("LOAD"),
                                   mr_slice_str(text)};
        MR_TRY(sha1_hex(text, redis->shas[i]));
        MR_TRY(append(redis, &redis->loads, args, 3));
        redis->load_ends[i] = redis->loads.len;
    }
    return prepare_exists(redis);
}

#define OTHERWISE(value, otherwise) ((value) > 0 ? (value) : (otherwise))

static void prepare_options(struct mr_redis *redis, const struct mr_redis_options *given)
{
    struct mr_redis_options *options = &redis->options;
    *options = *given;
    options->url = options->tls_ca = options->tls_cert = options->tls_key = options->tls_name =
        NULL;
    options->connect_ms = OTHERWISE(options->connect_ms, 3 * MR_MS_PER_S);
    options->answer_ms = OTHERWISE(options->answer_ms, 5 * MR_MS_PER_S);
    options->away_ms = OTHERWISE(options->away_ms, 10 * MR_MS_PER_S);
    options->wait_ms = OTHERWISE(options->wait_ms, MR_MS_PER_S);
    char replicas[16], ms[24];
    int replicas_len = snprintf(replicas, sizeof replicas, "%u", options->wait_replicas);
    int ms_len = snprintf(ms, sizeof ms, "%lld", (long long)options->wait_ms);
    snprintf(redis->wait_bytes, sizeof redis->wait_bytes,
             "*3\r\n$4\r\nWAIT\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", replicas_len, replicas, ms_len, ms);
}

static enum mr_err prepare_tls(struct mr_redis *redis, const struct mr_redis_options *options,
                               struct mr_detail *detail)
{
    if (!redis->url.tls)
        return MR_OK;
    struct mr_tls_options tls = {
        .side = MR_TLS_CLIENT,
        .cert_file = options->tls_cert,
        .key_file = options->tls_key,
        .ca_file = options->tls_ca,
    };
    MR_TRY(mr_tls_new(&tls, &redis->tls, detail));
    if (options->tls_name == NULL)
        return MR_OK;
    redis->tls_name = strdup(options->tls_name);
    return redis->tls_name != NULL ? MR_OK : MR_NOMEM;
}

static enum mr_err prepare(struct mr_redis *redis, const struct mr_redis_options *options,
                           struct mr_detail *detail)
{
    MR_TRY(redis_url_parse(options->url, &redis->url, detail));
    redis->kind = redis_kinds[redis->url.kind];
    if (redis->kind == NULL)
        return MR_UNSUPPORTED;
    prepare_options(redis, options);
    MR_TRY(prepare_tls(redis, options, detail));
    MR_TRY(prepare_scripts(redis));
    redis->now = mr_mono_now(mr_clock_system());
    redis->err = MR_UNAVAILABLE;
    snprintf(redis->why, sizeof redis->why, "not connected to Redis yet");
    mr_rand_seed_system(&redis->rand);
    MR_TRY(mr_loop_new(&redis->loop));
    MR_TRY(mr_wheel_new(tick_of(redis->now), &redis->wheel));
    redis->in = malloc(REDIS_IN_MAX);
    redis->out = malloc(REDIS_OUT_MAX);
    return redis->in != NULL && redis->out != NULL ? MR_OK : MR_NOMEM;
}

static void init_lists(struct mr_redis *redis)
{
    mr_list_init(&redis->nodes);
    mr_list_init(&redis->lines);
    mr_list_init(&redis->lanes);
    mr_list_init(&redis->channels);
    mr_list_init(&redis->waiting);
    mr_list_init(&redis->over);
    mr_list_init(&redis->dirty);
    mr_list_init(&redis->doomed);
    mr_list_init(&redis->gone);
    redis->at_end_tail = &redis->at_end;
    mr_timer_init(&redis->waiting_timer, redis_waiting_fired);
}

static void free_memory(struct mr_redis *redis)
{
    mr_exec_thread_free(redis->resolver);
    mr_tls_free(redis->tls);
    free(redis->tls_name);
    redis_url_done(&redis->url);
    free(redis->shas);
    free(redis->load_ends);
    mr_buf_done(&redis->exists);
    mr_buf_done(&redis->loads);
    free(redis->argv);
    free(redis->argv_len);
    free(redis->slices);
    free(redis->in);
    free(redis->out);
    mr_wheel_free(redis->wheel);
    mr_loop_free(redis->loop);
    free(redis);
}

enum mr_err redis_new(const struct mr_redis_options *options, struct mr_redis **ret_redis,
                      struct mr_detail *detail)
{
    struct mr_redis *redis = calloc(1, sizeof *redis);
    if (redis == NULL)
        return MR_NOMEM;
    init_lists(redis);
    enum mr_err err = prepare(redis, options, detail);
    if (err != MR_OK) {
        free_memory(redis);
        return err;
    }
    this_loop = redis; /* until its thread is there */
    err = redis->kind->start(redis);
    this_loop = NULL;
    if (err != MR_OK) {
        redis_end(redis);
        return err;
    }
    *ret_redis = redis;
    return MR_OK;
}

void redis_end(struct mr_redis *redis)
{
    redis->stopping = true;
    close_all(redis);
    free_memory(redis);
}

enum mr_err mr_redis_new(const char *thread_name, const struct mr_redis_options *options,
                         struct mr_redis **ret_redis, struct mr_detail *detail)
{
    struct mr_redis *redis;
    MR_TRY(redis_new(options, &redis, detail));
    enum mr_err err = mr_thread_start(&redis->thread, thread_name, run, redis);
    if (err != MR_OK) {
        redis_end(redis);
        return err;
    }
    *ret_redis = redis;
    return MR_OK;
}

static void stop(struct mr_msg *msg, void *receiver)
{
    (void)msg;
    ((struct mr_redis *)receiver)->stopping = true;
}

void mr_redis_free(struct mr_redis *redis)
{
    if (redis == NULL)
        return;
    mr_assert(!redis_is_loop(redis));
    redis->stop_msg.deliver = stop;
    mr_redis_post(redis, &redis->stop_msg);
    mr_thread_join(redis->thread);
    free_memory(redis);
}

void mr_redis_post(struct mr_redis *redis, struct mr_msg *msg)
{
    mr_chan_send(mr_loop_inbox(redis->loop), msg);
}
