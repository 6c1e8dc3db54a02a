/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A line: one connection, made again whenever it breaks, and the calls it carries while it is open.
 *
 * Calls stand in the order of sending, first those that wait to be written, then those that wait for
 * their answer. Nothing is copied but what shares a write with others: a call keeps its bytes until
 * it is answered. What breaks a connection only dooms it; it is closed later in the turn
 * (settle_lines), so that no callback finds its line gone.
 */
#include <stdarg.h>
#include <stdlib.h>

#include "redis/internal.h"

enum {
    READS_MAX = 8, /* of one line in a turn */
    FEED_MAX = 16 * 1024,
    BACKOFF_MIN_MS = 20,
    BACKOFF_MAX_MS = 1000,
    STEADY_MS = 1000, /* a connection that lasted so long was a good one */
};

static const char ping_bytes[] = "*1\r\n$4\r\nPING\r\n";
static const char asking_bytes[] = "*1\r\n$6\r\nASKING\r\n";
enum { ASKING_LEN = sizeof asking_bytes - 1 };

static struct mr_redis_call *call_of(struct mr_link *link)
{
    return mr_container(link, struct mr_redis_call, own.link);
}

bool redis_host_equal(const struct redis_host *a, const struct redis_host *b)
{
    return a->port == b->port && strcmp(a->name, b->name) == 0;
}

const char *redis_host_text(const struct mr_redis *redis, const struct redis_host *host,
                            char text[MR_HOST_MAX + 16])
{
    bool is_ipv6 = strchr(host->name, ':') != NULL;
    if (host->name[0] == '\0')
        snprintf(text, MR_HOST_MAX + 16, "%s", redis->url.path != NULL ? redis->url.path : "?");
    else
        snprintf(text, MR_HOST_MAX + 16, "%s%s%s:%u", is_ipv6 ? "[" : "", host->name,
                 is_ipv6 ? "]" : "", (unsigned)host->port);
    return text;
}

bool redis_line_is_open(const struct redis_line *line)
{
    return line->phase == REDIS_OPEN && mr_list_empty(&line->doom_link) && !line->retired;
}

void redis_line_doom(struct redis_line *line, enum mr_err err, const char *fmt, ...)
{
    if (!mr_list_empty(&line->doom_link) || line->phase == REDIS_NOWHERE || line->retired)
        return;
    va_list args;
    va_start(args, fmt);
    vsnprintf(line->why, sizeof line->why, fmt, args);
    va_end(args);
    /* What a server says may be anything, but a reason is one line. */
    for (char *at = line->why; *at != '\0'; at++)
        if ((unsigned char)*at < ' ')
            *at = ' ';
    line->err = err;
    mr_list_push_back(&line->redis->doomed, &line->doom_link);
}

/* A reason that names the host. */
static void fail(struct redis_line *line, enum mr_err err, const char *why)
{
    char host[MR_HOST_MAX + 16];
    redis_line_doom(line, err, "Redis at %s: %s", redis_host_text(line->redis, &line->host, host),
                    why);
}

/* Whether it runs is not known. */
static void fail_silent(struct redis_line *line, const char *why)
{
    line->gone = false;
    fail(line, MR_UNAVAILABLE, why);
}

static void dirty(struct redis_line *line)
{
    if (mr_list_empty(&line->dirty_link))
        mr_list_push_back(&line->redis->dirty, &line->dirty_link);
}

/* ---- patience ------------------------------------------------------------------------------- */

/* Whoever blocks there would not notice that the server answers no more. */
static void doom_neighbours(struct redis_line *line)
{
    struct mr_link *lines = &line->redis->lines;
    for (struct mr_link *link = lines->next; link != lines; link = link->next) {
        struct redis_line *other = mr_container(link, struct redis_line, link);
        if (other != line && other->phase == REDIS_OPEN && other->ops->blocks &&
            redis_host_equal(&other->host, &line->host))
            fail(other, MR_UNAVAILABLE, "no answer in time");
    }
}

static void push_own(struct redis_line *line, struct mr_redis_call *call, const char *bytes,
                     size_t len)
{
    memset(call, 0, sizeof *call);
    mr_list_init(&call->own.link);
    call->own.bytes = (char *)bytes;
    call->own.len = len;
    call->own.lent = true;
    call->own.script = -1;
    redis_line_push(line, call);
}

static void ping(struct redis_line *line)
{
    if (!line->ops->listens) {
        line->ping_out = true;
        push_own(line, &line->ping, ping_bytes, sizeof ping_bytes - 1);
    } else if (mr_buf_append(&line->raw, ping_bytes, sizeof ping_bytes - 1) == MR_OK) {
        line->ping_out = true;
        dirty(line);
    }
}

static void arm(struct redis_line *line, mr_mono at)
{
    mr_redis_timer_start(line->redis, &line->timer, at);
}

/* Open: something is due, or a ping asks whether anybody is there. */
static void be_patient(struct redis_line *line)
{
    struct mr_redis *redis = line->redis;
    int64_t limit_ms = redis->options.answer_ms + (line->wait_out ? redis->options.wait_ms : 0);
    bool busy = !mr_list_empty(&line->sent) || !mr_list_empty(&line->unsent) || line->ping_out;
    if (redis->now.ns >= mr_mono_add_ms(line->progress, limit_ms).ns) {
        if (busy) {
            fail_silent(line, "no answer in time");
            doom_neighbours(line);
            return;
        }
        ping(line);
        line->progress = redis->now;
    }
    arm(line, mr_mono_add_ms(line->progress, limit_ms));
}

static void attempt(struct redis_line *line);

static void tick(struct mr_timer *timer, void *arg)
{
    (void)arg;
    struct redis_line *line = mr_container(timer, struct redis_line, timer);
    if (!mr_list_empty(&line->doom_link))
        return;
    if (line->phase == REDIS_PAUSE)
        attempt(line);
    else if (line->phase == REDIS_OPEN)
        be_patient(line);
    else
        fail_silent(line, "no connection in time");
}

/* ---- answers -------------------------------------------------------------------------------- */

static void opened(struct redis_line *line)
{
    struct mr_redis *redis = line->redis;
    line->phase = REDIS_OPEN;
    line->progress = line->opened_at = redis->now;
    line->err = MR_OK;
    line->gone = false;
    line->why[0] = '\0';
    mr_wheel_stop(redis->wheel, &line->timer);
    if (!line->ops->blocks)
        arm(line, mr_mono_add_ms(redis->now, redis->options.answer_ms));
    if (line->ops->opened != NULL)
        line->ops->opened(line);
}

/* What WAIT says holds for everything that was answered before it. */
static void waited(struct redis_line *line, const struct mr_reply *reply)
{
    struct mr_redis *redis = line->redis;
    bool enough = mr_reply_int(reply, 0) >= (int64_t)redis->options.wait_replicas;
    static const struct mr_reply late = {
        .kind = MR_REPLY_ERROR, .text = MR_SLICE_LIT("not enough replicas have it in time")};
    struct mr_link kept, *link;
    mr_list_init(&kept);
    mr_list_splice_back(&kept, &line->kept);
    line->wait_out = false;
    if (line->durable_n > 0)
        dirty(line);
    while ((link = mr_list_pop_front(&kept)) != NULL) {
        struct mr_redis_call *call = call_of(link);
        call->own.sent = false;
        call->doubt = !enough;
        redis_call_answer(call, enough ? MR_OK : MR_TIMEOUT, enough ? call->own.reply : &late);
    }
}

static void answered(struct redis_line *line, const struct mr_reply *reply)
{
    if (mr_list_empty(&line->sent)) {
        fail(line, MR_UNAVAILABLE, "an answer that nobody asked for");
        return;
    }
    struct mr_redis_call *call = call_of(line->sent.next);
    if (call->own.skip > 0) {
        call->own.skip--;
        return;
    }
    mr_list_remove(&call->own.link);
    if (call == &line->ping)
        line->ping_out = false;
    else if (call == &line->load)
        line->load_out = false;
    else if (call == &line->wait)
        waited(line, reply);
    else
        redis_call_replied(line, call, reply);
}

static void take_reply(struct redis_line *line, const struct mr_reply *reply)
{
    if (line->phase == REDIS_HELLO) {
        if (redis_hello_answer(line, reply) == MR_OK)
            opened(line);
        if (line->raw.len > 0)
            dirty(line); /* it has more to say */
    } else if (line->ops->listens) {
        line->ping_out = false;
        if (line->ops->heard != NULL)
            line->ops->heard(line, reply);
    } else {
        answered(line, reply);
    }
}

static bool is_done_for(const struct redis_line *line)
{
    return !mr_list_empty(&line->doom_link) || line->retired;
}

static void take_bytes(struct redis_line *line, const uint8_t *data, size_t len)
{
    struct redis_reader *reader = &line->reader;
    while (len > 0 && !is_done_for(line)) {
        size_t piece = len < FEED_MAX ? len : FEED_MAX;
        const struct mr_reply *reply;
        enum mr_err err = redis_reader_feed(reader, data, piece);
        data += piece;
        len -= piece;
        while (err == MR_OK && (err = redis_reader_next(reader, &reply)) == MR_OK) {
            take_reply(line, reply);
            if (is_done_for(line))
                return;
            if (mr_list_empty(&line->kept))
                redis_reader_reset(reader);
        }
        if (err != MR_EMPTY)
            fail(line, MR_UNAVAILABLE, reader->why != NULL ? reader->why : mr_err_text(err));
    }
}

/* ---- bytes ---------------------------------------------------------------------------------- */

static enum mr_err read_bytes(struct redis_line *line, size_t *ret_n)
{
    uint8_t *in = line->redis->in;
    return line->tls != NULL ? mr_tls_read(line->tls, in, REDIS_IN_MAX, ret_n)
                             : mr_net_read(line->watch.fd, in, REDIS_IN_MAX, ret_n);
}

static void broke(struct redis_line *line, enum mr_err err)
{
    line->broken = true;
    if (line->tls != NULL && mr_tls_why(line->tls)[0] != '\0')
        fail(line, MR_UNAVAILABLE, mr_tls_why(line->tls));
    else
        fail(line, MR_UNAVAILABLE,
             err == MR_CLOSED ? "it closed the connection" : "the connection broke");
}

static void read_some(struct redis_line *line)
{
    for (int i = 0; i < READS_MAX && !is_done_for(line); i++) {
        size_t n;
        enum mr_err err = read_bytes(line, &n);
        if (err == MR_EMPTY)
            return;
        if (err != MR_OK) {
            broke(line, err);
            return;
        }
        line->progress = line->redis->now;
        take_bytes(line, line->redis->in, n);
        if (n < REDIS_IN_MAX && line->tls == NULL)
            return;
    }
}

static size_t call_len(const struct mr_redis_call *call)
{
    return call->own.len + (call->own.asking ? ASKING_LEN : 0);
}

/* Puts as much of a call as there is room for behind what is there; at: bytes of it that have left. */
static size_t collect_call(const struct mr_redis_call *call, size_t at, uint8_t *out, size_t room)
{
    size_t len = 0, prefix = call->own.asking ? ASKING_LEN : 0;
    if (at < prefix) {
        len = prefix - at < room ? prefix - at : room;
        memcpy(out, asking_bytes + at, len);
        at = prefix;
    }
    size_t left = call->own.len - (at - prefix);
    size_t more = left < room - len ? left : room - len;
    memcpy(out + len, call->own.bytes + (at - prefix), more);
    return len + more;
}

/* What is written next. One call that fills a write goes out from where it is. */
static struct mr_slice collect(struct redis_line *line)
{
    size_t raw_left = line->raw.len - line->raw_at;
    if (raw_left > 0 && line->head_at == 0)
        return mr_slice_make(line->raw.data + line->raw_at, raw_left);
    uint8_t *out = line->redis->out;
    size_t len = 0, at = line->head_at;
    for (struct mr_link *link = line->unsent.next; link != &line->unsent && len < REDIS_OUT_MAX;
         link = link->next) {
        struct mr_redis_call *call = call_of(link);
        if (len == 0 && !call->own.asking && call->own.len - at >= REDIS_OUT_MAX)
            return mr_slice_make(call->own.bytes + at, call->own.len - at);
        len += collect_call(call, at, out + len, REDIS_OUT_MAX - len);
        at = 0;
    }
    return mr_slice_make(out, len);
}

/* So many bytes of what was collected have left. */
static void advance(struct redis_line *line, size_t n)
{
    line->progress = mr_list_empty(&line->sent) ? line->redis->now : line->progress;
    if (line->raw.len > line->raw_at && line->head_at == 0) {
        line->raw_at += n;
        if (line->raw_at == line->raw.len) {
            mr_buf_done(&line->raw); /* scripts are long, and rarely said */
            line->raw_at = 0;
        }
        return;
    }
    while (n > 0) {
        struct mr_redis_call *call = call_of(line->unsent.next);
        size_t left = call_len(call) - line->head_at;
        if (n < left) {
            line->head_at += n;
            return;
        }
        n -= left;
        line->head_at = 0;
        call->own.sent = true;
        mr_list_remove(&call->own.link);
        mr_list_push_back(&line->sent, &call->own.link);
    }
}

static void watch_for(struct redis_line *line, bool rest)
{
    bool writes = rest || (line->tls != NULL && mr_tls_wants_write(line->tls));
    mr_loop_change(line->redis->loop, &line->watch, MR_LOOP_READ | (writes ? MR_LOOP_WRITE : 0));
}

/* One WAIT is under way at a time; it covers all that was sent before it. */
static void add_wait(struct redis_line *line)
{
    if (line->durable_n == 0 || line->wait_out || !redis_line_is_open(line))
        return;
    line->wait_out = true;
    line->durable_n = 0;
    push_own(line, &line->wait, line->redis->wait_bytes, strlen(line->redis->wait_bytes));
}

void redis_line_flush(struct redis_line *line)
{
    add_wait(line);
    mr_list_remove(&line->dirty_link);
    if (line->phase < REDIS_HELLO || line->broken || is_done_for(line))
        return;
    struct mr_slice bytes;
    while ((bytes = collect(line)).len > 0) {
        size_t n;
        enum mr_err err = line->tls != NULL
                              ? mr_tls_write(line->tls, bytes.data, bytes.len, &n)
                              : mr_net_write(line->watch.fd, bytes.data, bytes.len, &n);
        if (err == MR_EMPTY)
            break;
        if (err != MR_OK) {
            broke(line, err);
            return;
        }
        advance(line, n);
    }
    watch_for(line, bytes.len > 0);
}

/* ---- calls ---------------------------------------------------------------------------------- */

void redis_line_push(struct redis_line *line, struct mr_redis_call *call)
{
    mr_assert(redis_line_is_open(line));
    if (mr_list_empty(&line->sent) && mr_list_empty(&line->unsent))
        line->progress = line->redis->now;
    call->own.skip =
        call == &line->load ? (uint16_t)(line->redis->options.scripts_n - 1) : call->own.asking;
    if (call->durable && line->redis->options.wait_replicas > 0)
        line->durable_n++;
    mr_list_push_back(&line->unsent, &call->own.link);
    dirty(line);
}

void redis_line_load(struct redis_line *line)
{
    if (line->load_out || !redis_line_is_open(line))
        return;
    line->load_out = true;
    push_own(line, &line->load, (const char *)line->redis->loads.data, line->redis->loads.len);
}

enum mr_err redis_line_say(struct redis_line *line, const struct mr_slice *args, size_t n)
{
    mr_assert(line->ops->listens && redis_line_is_open(line));
    struct mr_redis_call call = {0};
    MR_TRY(redis_call_format(line->redis, &call, args, n));
    enum mr_err err = mr_buf_append(&line->raw, call.own.bytes, call.own.len);
    redis_call_free(&call);
    dirty(line);
    return err;
}

/* ---- connecting ----------------------------------------------------------------------------- */

static void say_hello(struct redis_line *line)
{
    line->phase = REDIS_HELLO;
    mr_loop_change(line->redis->loop, &line->watch, MR_LOOP_READ);
    enum mr_err err = redis_reader_init(&line->reader);
    if (err == MR_OK)
        err = redis_hello_begin(line);
    if (err == MR_EMPTY)
        dirty(line);
    else if (err == MR_OK)
        opened(line);
    else
        fail(line, err, mr_err_text(err));
}

static void shake_hands(struct redis_line *line)
{
    enum mr_err err = mr_tls_handshake(line->tls);
    if (err == MR_OK)
        say_hello(line);
    else if (err == MR_EMPTY)
        watch_for(line, false);
    else
        broke(line, err);
}

static void start_tls(struct redis_line *line)
{
    struct mr_redis *redis = line->redis;
    const char *name = redis->tls_name != NULL ? redis->tls_name : line->host.name;
    line->phase = REDIS_TLS;
    if (mr_tls_start(redis->tls, line->watch.fd, name, &line->tls) != MR_OK) {
        fail(line, MR_NOMEM, "out of memory");
        return;
    }
    mr_loop_change(redis->loop, &line->watch, MR_LOOP_READ);
    shake_hands(line);
}

static void close_socket(struct redis_line *line)
{
    if (line->watch.fd < 0)
        return;
    mr_tls_stop(line->tls, line->broken ? MR_TLS_BROKEN : MR_TLS_SAY_BYE);
    line->tls = NULL;
    mr_loop_remove(line->redis->loop, &line->watch);
    mr_net_close(line->watch.fd);
    line->watch.fd = -1;
}

static void try_addresses(struct redis_line *line, enum mr_err last);

static void connected(struct redis_line *line)
{
    enum mr_err err = mr_net_connected(line->watch.fd);
    if (err != MR_OK) {
        line->broken = true;
        close_socket(line);
        line->addr_at++;
        try_addresses(line, err);
    } else if (line->redis->tls != NULL && line->host.name[0] != '\0') {
        start_tls(line);
    } else {
        say_hello(line);
    }
}

static void ready(struct mr_watch *watch, unsigned events)
{
    struct redis_line *line = mr_container(watch, struct redis_line, watch);
    if (is_done_for(line))
        return;
    if (line->phase == REDIS_CONNECTING) {
        connected(line);
    } else if (line->phase == REDIS_TLS) {
        shake_hands(line);
    } else {
        if (events & MR_LOOP_WRITE)
            dirty(line);
        if (events & MR_LOOP_READ || (line->tls != NULL && mr_tls_wants_write(line->tls)))
            read_some(line);
    }
}

static enum mr_err begin_connect(struct redis_line *line)
{
    struct mr_redis *redis = line->redis;
    int fd;
    MR_TRY(mr_net_connect(&line->addrs[line->addr_at], &fd));
    line->watch = (struct mr_watch){.fd = fd, .ready = ready};
    enum mr_err err = mr_loop_add(redis->loop, &line->watch, MR_LOOP_WRITE);
    if (err != MR_OK) {
        mr_net_close(fd);
        line->watch.fd = -1;
        return err;
    }
    mr_net_keepalive(fd, 2 * redis->options.answer_ms);
    line->phase = REDIS_CONNECTING;
    line->broken = false;
    arm(line, mr_mono_add_ms(redis->now, redis->options.connect_ms));
    return MR_OK;
}

/* From the address whose turn it is; last: how it went with the one before it. */
static void try_addresses(struct redis_line *line, enum mr_err last)
{
    line->nobody &= last == MR_OK || last == MR_UNAVAILABLE;
    for (; line->addr_at < line->addrs_n; line->addr_at++) {
        last = begin_connect(line);
        if (last == MR_OK)
            return;
        line->nobody &= last == MR_UNAVAILABLE || last == MR_NOT_FOUND;
    }
    line->gone = line->nobody && line->addrs_n > 0;
    fail(line, MR_UNAVAILABLE,
         line->gone           ? "nobody listens there"
         : line->addrs_n == 0 ? "the path is too long"
         : last == MR_TIMEOUT ? "it is out of reach"
                              : mr_err_text(last));
}

static void resolve(struct mr_chore *chore)
{
    struct redis_line *line = mr_container(chore, struct redis_line, resolving);
    line->resolve_err =
        mr_host_resolve(line->resolve_host.name, line->resolve_host.port, MR_RESOLVE_NAMES,
                        line->addrs, REDIS_ADDRS_MAX, &line->addrs_n, &line->resolve_detail);
}

static void resolved(struct mr_chore *chore)
{
    struct redis_line *line = mr_container(chore, struct redis_line, resolving);
    line->resolve_out = false;
    if (is_done_for(line) || line->phase != REDIS_RESOLVING)
        return;
    if (!redis_host_equal(&line->host, &line->resolve_host))
        attempt(line);
    else if (line->resolve_err == MR_OK)
        try_addresses(line, MR_OK);
    else
        redis_line_doom(line, MR_UNAVAILABLE, "%s", line->resolve_detail.text);
}

static void start_resolve(struct redis_line *line)
{
    struct mr_redis *redis = line->redis;
    if (redis->resolver == NULL &&
        mr_exec_thread_new("mr-resolve", false, mr_loop_inbox(redis->loop), &redis->resolver) !=
            MR_OK) {
        fail(line, MR_UNAVAILABLE, "out of memory");
        return;
    }
    line->phase = REDIS_RESOLVING;
    if (line->resolve_out)
        return; /* it will see what is to be done when it comes back */
    line->resolve_host = line->host;
    line->resolve_out = true;
    mr_chore_init(&line->resolving, resolve, resolved);
    struct mr_exec *exec = mr_exec_thread_exec(redis->resolver);
    exec->submit(exec, &line->resolving);
}

static void attempt(struct redis_line *line)
{
    struct mr_redis *redis = line->redis;
    mr_wheel_stop(redis->wheel, &line->timer);
    line->phase = REDIS_PAUSE;
    line->aimed = false;
    line->addr_at = 0;
    line->nobody = true;
    if (line->host.name[0] == '\0') {
        line->addrs_n = mr_addr_unix(redis->url.path, &line->addrs[0]) == MR_OK;
        try_addresses(line, MR_OK);
    } else if (mr_host_resolve(line->host.name, line->host.port, MR_RESOLVE_NUMBERS, line->addrs,
                               REDIS_ADDRS_MAX, &line->addrs_n, NULL) == MR_OK) {
        try_addresses(line, MR_OK);
    } else {
        start_resolve(line);
    }
}

void redis_line_aim(struct redis_line *line, const struct redis_host *host)
{
    if (line->retired)
        return;
    if (line->phase != REDIS_NOWHERE && redis_host_equal(&line->host, host))
        return;
    line->host = *host;
    line->gone = false;
    line->backoff_ms = 0;
    line->aimed = true;
    if (line->phase > REDIS_RESOLVING)
        redis_line_doom(line, MR_UNAVAILABLE, "the server is elsewhere now");
    else if (line->phase < REDIS_RESOLVING && mr_list_empty(&line->doom_link))
        attempt(line);
}

/* ---- the end -------------------------------------------------------------------------------- */

/* Between half and all of it, so that many clients do not come back at the same moment. */
static void pause_line(struct redis_line *line)
{
    struct mr_redis *redis = line->redis;
    line->backoff_ms = line->backoff_ms == 0 ? BACKOFF_MIN_MS : 2 * line->backoff_ms;
    if (line->backoff_ms > BACKOFF_MAX_MS)
        line->backoff_ms = BACKOFF_MAX_MS;
    uint64_t half = (uint64_t)line->backoff_ms / 2;
    arm(line, mr_mono_add_ms(redis->now, (int64_t)(half + mr_rand_below(&redis->rand, half + 1))));
}

static bool is_own(const struct redis_line *line, const struct mr_redis_call *call)
{
    return call == &line->ping || call == &line->load || call == &line->wait;
}

/* All calls of the line, oldest first; ours are forgotten. */
static void take_calls(struct redis_line *line, struct mr_link *calls)
{
    struct mr_link *lists[] = {&line->kept, &line->sent, &line->unsent}, *link;
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        while ((link = mr_list_pop_front(lists[i])) != NULL)
            if (!is_own(line, call_of(link)))
                mr_list_push_back(calls, link);
    line->ping_out = line->load_out = line->wait_out = false;
    line->durable_n = 0;
    line->head_at = 0;
}

static void drop_connection(struct redis_line *line)
{
    close_socket(line);
    redis_reader_done(&line->reader);
    mr_buf_done(&line->raw);
    line->raw_at = 0;
    mr_list_remove(&line->dirty_link);
    mr_list_remove(&line->doom_link);
    mr_wheel_stop(line->redis->wheel, &line->timer);
}

/* Those that may wait come before what waits already: they are older. */
static void lose_calls(struct redis_line *line, struct mr_link *calls)
{
    struct mr_redis *redis = line->redis;
    struct mr_link older, *link;
    mr_list_init(&older);
    while ((link = mr_list_pop_front(calls)) != NULL)
        if (redis_call_lost(redis, call_of(link)))
            mr_list_push_back(&older, link);
    /* There may be another line for them already. */
    if (!mr_list_empty(&older))
        mr_redis_timer_start(redis, &redis->waiting_timer, redis->now);
    mr_list_splice_back(&older, &redis->waiting);
    mr_list_splice_back(&redis->waiting, &older);
}

void redis_line_close(struct redis_line *line)
{
    struct mr_redis *redis = line->redis;
    struct mr_link calls;
    mr_list_init(&calls);
    bool steady =
        line->phase == REDIS_OPEN && redis->now.ns >= mr_mono_add_ms(line->opened_at, STEADY_MS).ns;
    drop_connection(line);
    take_calls(line, &calls);
    if (steady)
        line->backoff_ms = 0;
    line->phase = REDIS_PAUSE;
    if (line->ops->lost != NULL)
        line->ops->lost(line);
    lose_calls(line, &calls);
    if (line->retired || line->phase != REDIS_PAUSE || mr_timer_running(&line->timer))
        return;
    if (line->aimed)
        attempt(line);
    else
        pause_line(line);
}

void redis_line_init(struct redis_line *line, struct mr_redis *redis,
                     const struct redis_line_ops *ops, void *owner)
{
    *line = (struct redis_line){.redis = redis, .ops = ops, .owner = owner};
    line->watch.fd = -1;
    mr_list_init(&line->dirty_link);
    mr_list_init(&line->doom_link);
    mr_list_init(&line->unsent);
    mr_list_init(&line->sent);
    mr_list_init(&line->kept);
    mr_timer_init(&line->timer, tick);
    mr_list_push_back(&redis->lines, &line->link);
}

void redis_line_retire(struct redis_line *line, enum mr_err err)
{
    if (line->retired)
        return;
    line->retired = true;
    line->err = err;
    mr_list_remove(&line->doom_link);
    mr_list_remove(&line->link);
    mr_list_push_back(&line->redis->gone, &line->link);
}

/* Only here the connection goes, so that a line may retire in a callback of its own. */
bool redis_line_end(struct redis_line *line)
{
    struct mr_redis *redis = line->redis;
    struct mr_link calls, *link;
    mr_list_init(&calls);
    struct mr_link others;
    mr_list_init(&others);
    drop_connection(line);
    take_calls(line, &calls);
    while ((link = mr_list_pop_front(&calls)) != NULL) {
        struct mr_redis_call *call = call_of(link);
        if (call->own.line != line) {
            mr_list_push_back(&others, link);
            continue;
        }
        call->doubt |= call->own.sent;
        redis_call_over(redis, call, redis->stopping ? MR_CLOSED : line->err);
    }
    lose_calls(line, &others);
    if (line->resolve_out)
        return false;
    if (line->ops->retired != NULL)
        line->ops->retired(line);
    else
        free(line->owner);
    return true;
}
