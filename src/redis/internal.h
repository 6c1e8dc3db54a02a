/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of redis and how they meet. Everything here belongs to the loop thread.
 *
 *   redis.c     the loop: turns, posts, timers, the end; whether the deployment is up
 *   url.c       what a URL says
 *   line.c      a line: one connection, made again whenever it breaks, and the calls it carries
 *   hello.c     what a connection says and checks before its first call
 *   reply.c     answers out of bytes
 *   call.c      calls: written down, routed, kept while there is no line for them, answered
 *   lane.c      lines of their own, for commands that block
 *   channel.c   subscriptions
 *   single.c    the deployment that is one server
 *   sentinel.c  ... whose primary Sentinels name
 *   cluster.c   ... that is a Cluster
 *   scout.c     a line that asks where things are
 *   slot.c      the slot of a key
 *
 * A deployment is a row of functions (struct redis_kind): it knows which nodes there are and which
 * one has a slot. A call is in the list of an open line, or it waits in redis->waiting: whenever a
 * line opens or the nodes change, what waits is routed again (redis_route_all). So lines keep nothing
 * while they are down, and no kind of deployment has to move calls about.
 *
 * A turn: descriptors that are ready, posts, timers; then answers that are due without a reply and
 * lines that broke (settle of redis.c); the messages for the end of the turn; one write per line.
 */
#ifndef MR_REDIS_INTERNAL_H
#define MR_REDIS_INTERNAL_H

#include "base/arena.h"
#include "base/buf.h"
#include "base/exec.h"
#include "base/loop.h"
#include "base/net.h"
#include "base/rand.h"
#include "redis/redis.h"
#include "tls/tls.h"

enum {
    REDIS_HOSTS_MAX = 64,          /* in a URL */
    REDIS_ADDRS_MAX = 8,           /* of one host */
    REDIS_WHY_MAX = 240,           /* one line */
    REDIS_IN_MAX = 64 * 1024,      /* read at once */
    REDIS_OUT_MAX = 64 * 1024,     /* written at once */
    REDIS_TRIES_MAX = 16,          /* of a call that is sent elsewhere again and again */
    REDIS_AGAIN_MS = 20,           /* before a call that was refused for the moment is sent again */
    REDIS_COMMAND_MAX = 256 << 20, /* bytes of a call */
    REDIS_ITEMS_MAX = 1 << 20,     /* of an array */
    REDIS_BULK_MAX = 64 << 20,     /* bytes of a text */
    REDIS_REPLY_MAX = 512 << 20,   /* memory of one reply */
    REDIS_LINE_MAX = 64 * 1024,    /* bytes of a reply that is one line */
    REDIS_VERSION_MIN = 602,       /* 6.2 */
};

#define REDIS_SLOT_ANY 0xffffu

/* ---- URLs ----------------------------------------------------------------------------------- */

/* Where a server is. */
struct redis_host {
    char name[MR_HOST_MAX + 1]; /* empty: the socket of the URL's path */
    uint16_t port;
};

struct redis_url {
    enum mr_redis_kind kind;
    bool tls;
    char *user, *password; /* NULL: none */
    char *path;            /* of a unix socket; NULL: TCP */
    char *service;         /* the name that Sentinels know the deployment by; NULL: no Sentinels */
    int64_t db;
    struct redis_host hosts[REDIS_HOSTS_MAX];
    size_t hosts_n;
};

/* detail never holds the password. url is untouched on failure; done frees what it points to. */
MR_MUST_USE enum mr_err redis_url_parse(const char *text, struct redis_url *url,
                                        struct mr_detail *detail);
void redis_url_done(struct redis_url *url);

/* ---- answers -------------------------------------------------------------------------------- */

struct redisReader;

/* Replies out of bytes, in an arena that lives until redis_reader_reset. */
struct redis_reader {
    struct redisReader *reader;
    struct mr_arena arena;
    size_t arena_start; /* of the reply that is being read */
    size_t peak;        /* bytes that waited inside at once */
    const char *why;    /* of the last failure */
};

MR_MUST_USE enum mr_err redis_reader_init(struct redis_reader *reader);
void redis_reader_done(struct redis_reader *reader);
/* The bytes are copied. In pieces of 16 KiB at most, which is what hiredis is quick with. */
MR_MUST_USE enum mr_err redis_reader_feed(struct redis_reader *reader, const void *data,
                                          size_t len);
/* MR_EMPTY: not a whole one yet. MR_DAMAGED, MR_TOO_BIG, MR_NOMEM: with why; there is no going on. */
MR_MUST_USE enum mr_err redis_reader_next(struct redis_reader *reader,
                                          const struct mr_reply **ret_reply);
/* Forgets the replies given so far. */
void redis_reader_reset(struct redis_reader *reader);

/* ---- lines ---------------------------------------------------------------------------------- */

enum redis_phase {
    REDIS_NOWHERE,   /* it has no host */
    REDIS_PAUSE,     /* until the next attempt */
    REDIS_RESOLVING, /* the name of its host */
    REDIS_CONNECTING,
    REDIS_TLS,
    REDIS_HELLO, /* what hello.c says is under way */
    REDIS_OPEN,
};

/* What a line says and checks before its first call. */
enum redis_hello {
    REDIS_HELLO_AUTH = 1,
    REDIS_HELLO_AUTH_IF_WANTED = 2, /* a server that has no password is fine, too */
    REDIS_HELLO_SELECT = 4,
    REDIS_HELLO_NAME = 8,
    REDIS_HELLO_PRIMARY = 16, /* it is no replica */
    REDIS_HELLO_VERSION = 32, /* it is not too old, and of the kind that the URL says */
    REDIS_HELLO_SCRIPTS = 64,
    REDIS_HELLO_ALL = REDIS_HELLO_AUTH | REDIS_HELLO_SELECT | REDIS_HELLO_NAME |
                      REDIS_HELLO_PRIMARY | REDIS_HELLO_VERSION | REDIS_HELLO_SCRIPTS,
};

enum { REDIS_HELLO_STEPS_MAX = 8 };

struct redis_line;

/* What the owner of a line is told. All may be NULL; none frees the line. */
struct redis_line_ops {
    unsigned hello; /* enum redis_hello */
    bool blocks;    /* its commands may be answered late: no answer_ms and no pings */
    bool listens;   /* what comes are no answers to calls: it goes to heard */
    void (*opened)(struct redis_line *line);
    /* It was open, or an attempt failed; line->err and why. Its calls are seen to afterwards, and it
     * tries again by itself, at another host if it is aimed there now. */
    void (*lost)(struct redis_line *line);
    void (*heard)(struct redis_line *line, const struct mr_reply *reply);
    /* After redis_line_retire: nothing refers to it any more. NULL: its owner is freed. */
    void (*retired)(struct redis_line *line);
};

struct redis_line {
    struct mr_watch watch; /* fd -1: none */
    struct mr_link link;   /* in redis->lines */
    struct mr_link dirty_link, doom_link;
    struct mr_redis *redis;
    const struct redis_line_ops *ops;
    void *owner;
    struct redis_host host;
    enum redis_phase phase;
    bool broken;  /* the socket takes nothing any more */
    bool retired; /* freed as soon as nothing refers to it */
    bool nobody;  /* so far: of its addresses, each says that nobody listens there */
    bool gone;    /* nobody gets an answer there: no server runs, or it is loading */
    struct mr_tls_session *tls;

    struct mr_buf raw; /* said before any call */
    size_t raw_at;
    struct mr_link unsent; /* calls, by own.link; of the first one head_at bytes have left */
    size_t head_at;
    struct mr_link sent; /* to be answered in this order */
    struct mr_link kept; /* answered, but replicas are waited for */
    struct redis_reader reader;

    /* Calls of our own; out: on their way. */
    struct mr_redis_call ping, load, wait;
    bool ping_out, load_out, wait_out;
    uint32_t durable_n; /* calls that no WAIT stands behind yet */

    uint8_t steps[REDIS_HELLO_STEPS_MAX]; /* of hello.c */
    uint8_t steps_n, step_at;
    size_t loads_left; /* answers of SCRIPT LOAD to come */

    struct mr_timer timer; /* the next attempt, or the end of patience */
    mr_mono phase_until;   /* before it is open */
    mr_mono progress;      /* when something was last answered, or sent with nothing before it */
    mr_mono opened_at;
    int64_t backoff_ms;

    struct mr_chore resolving;
    bool resolve_out; /* the chore is under way */
    bool aimed;       /* the host changed: no pause before the next attempt */
    enum mr_err resolve_err;
    struct redis_host resolve_host; /* the chore's */
    struct mr_detail resolve_detail;
    struct mr_addr addrs[REDIS_ADDRS_MAX];
    size_t addrs_n, addr_at;

    enum mr_err err; /* of the last end */
    char why[REDIS_WHY_MAX];
};

/* The line's memory is its owner's, until retired is called. */
void redis_line_init(struct redis_line *line, struct mr_redis *redis,
                     const struct redis_line_ops *ops, void *owner);
/* Connects there. Where it was going elsewhere it goes there no more, its calls are seen to as when
 * a connection breaks; where it is there already nothing happens. */
void redis_line_aim(struct redis_line *line, const struct redis_host *host);
/* Its scripts are loaded before what is pushed from now on. */
void redis_line_load(struct redis_line *line);
bool redis_line_is_open(const struct redis_line *line);
/* Only on an open line. */
void redis_line_push(struct redis_line *line, struct mr_redis_call *call);
/* A command without a call, on an open line that listens. */
MR_MUST_USE enum mr_err redis_line_say(struct redis_line *line, const struct mr_slice *args,
                                       size_t n);
/* Closes the connection in this turn and makes a new one after the back-off; the first reason stays. */
void redis_line_doom(struct redis_line *line, enum mr_err err, const char *fmt, ...)
    MR_PRINTF(3, 4);
/* For good; calls that only it may carry are answered with err. */
void redis_line_retire(struct redis_line *line, enum mr_err err);
/* "127.0.0.1:6379", or the path. */
const char *redis_host_text(const struct mr_redis *redis, const struct redis_host *host,
                            char text[MR_HOST_MAX + 16]);
bool redis_host_equal(const struct redis_host *a, const struct redis_host *b);
/* For the turn. */
void redis_line_close(struct redis_line *line);
bool redis_line_end(struct redis_line *line); /* false: not yet */
void redis_line_flush(struct redis_line *line);

/* For line.c: writes what is to be said to line->raw and fills steps. */
MR_MUST_USE enum mr_err redis_hello_begin(struct redis_line *line);
/* One answer. MR_OK: all is said and done, MR_EMPTY: more is to come; else the line was doomed. */
MR_MUST_USE enum mr_err redis_hello_answer(struct redis_line *line, const struct mr_reply *reply);

/* ---- nodes and deployments ------------------------------------------------------------------ */

/* A server that calls go to. */
struct redis_node {
    struct redis_line line; /* shared by all calls */
    struct mr_link link;    /* in redis->nodes */
    bool primary;
    mr_mono keep_until; /* Cluster: it was asked for a slot of another node */
};

/* What becomes of a call that Redis refused. */
enum redis_verdict {
    REDIS_TELL,        /* its caller is told */
    REDIS_AGAIN,       /* routed again now */
    REDIS_AGAIN_SOON,  /* routed again after REDIS_AGAIN_MS */
    REDIS_AGAIN_LATER, /* likewise, unless it is urgent */
    REDIS_TAKEN,       /* the deployment has pushed it to a line itself */
};

struct redis_kind {
    const char *name; /* "redis_mode" of INFO on its nodes */
    /* Begins to find nodes; redis->url says where. */
    MR_MUST_USE enum mr_err (*start)(struct mr_redis *redis);
    /* Retires what it has made, nodes included. */
    void (*stop)(struct mr_redis *redis);
    /* NULL: all keys are in one place. */
    uint16_t (*slot)(struct mr_slice key);
    /* The node that has a slot, or, for REDIS_SLOT_ANY, one that is open if there is any. NULL: not
     * known now. */
    struct redis_node *(*route)(struct mr_redis *redis, uint16_t slot);
    /* The line of a node, or of a lane, got this error. REDIS_TELL: what is done everywhere (see
     * call.c). NULL: always that. */
    enum redis_verdict (*refused)(struct redis_line *line, struct mr_redis_call *call,
                                  struct mr_slice error);
};

extern const struct redis_kind redis_single, redis_sentinel, redis_cluster;
/* NULL: MR_UNSUPPORTED. By enum mr_redis_kind. */
extern const struct redis_kind *const redis_kinds[];

/* A node, its line aimed at the host. */
MR_MUST_USE enum mr_err redis_node_new(struct mr_redis *redis, const struct redis_host *host,
                                       const struct redis_line_ops *ops,
                                       struct redis_node **ret_node);
/* Calls that only it may carry are answered; the others are routed anew. */
void redis_node_retire(struct redis_node *node);

/* ---- calls ---------------------------------------------------------------------------------- */

/* Puts a command down in the call's own memory. */
MR_MUST_USE enum mr_err redis_call_format(struct mr_redis *redis, struct mr_redis_call *call,
                                          const struct mr_slice *args, size_t n);
void redis_call_free(struct mr_redis_call *call);
/* Begins a call: to its line, or to wait. line: the only one that may carry it; NULL: that of the
 * slot. */
void redis_call_send(struct mr_redis *redis, struct mr_redis_call *call, struct redis_line *line,
                     uint16_t slot, const struct mr_slice *args, size_t n);
uint16_t redis_slot_of(const struct mr_redis *redis, struct mr_slice key);
/* A reply came for it. */
void redis_call_replied(struct redis_line *line, struct mr_redis_call *call,
                        const struct mr_reply *reply);
/* Its line broke. True: it waits for another one, the caller puts it there. */
bool redis_call_lost(struct mr_redis *redis, struct mr_redis_call *call);
/* Answered later in this turn, without a reply. */
void redis_call_over(struct mr_redis *redis, struct mr_redis_call *call, enum mr_err err);
/* Answers it now, its memory given back before. */
void redis_call_answer(struct mr_redis_call *call, enum mr_err err, const struct mr_reply *reply);
/* Routes again, or first of all, what waits; lanes and channels follow. For deployments, whenever the
 * nodes changed, and for lines that opened. */
void redis_route_all(struct mr_redis *redis);
/* Of waiting_timer. */
void redis_waiting_fired(struct mr_timer *timer, void *arg);
/* Those that only this line may carry are answered with err; NULL: all. */
void redis_waiting_end(struct mr_redis *redis, struct redis_line *line, enum mr_err err);

/* ---- the loop ------------------------------------------------------------------------------- */

struct mr_redis {
    struct mr_loop *loop;
    struct mr_wheel *wheel;
    mr_mono now; /* of this turn */
    struct mr_rand rand;
    pthread_t thread;
    struct mr_redis_options options; /* without its strings */
    struct redis_url url;
    struct mr_tls *tls;
    char *tls_name;
    const struct redis_kind *kind;
    void *of_kind; /* what the kind keeps */

    struct mr_link nodes;         /* by link */
    struct mr_link lines;         /* all of them */
    struct mr_link lanes;         /* by link */
    struct mr_link channels;      /* by link */
    struct mr_link *channel_next; /* while messages are told: the next one to be told */
    struct redis_line channel_line;
    bool channel_begun; /* the line is there */

    struct mr_link waiting; /* calls without a line, by own.link */
    struct mr_timer waiting_timer;

    /* What this turn still has to do. */
    struct mr_link over;   /* calls to be answered */
    struct mr_link dirty;  /* lines, by dirty_link: something to write */
    struct mr_link doomed; /* lines, by doom_link: to be closed */
    struct mr_link gone;   /* lines, by link: retired */
    struct mr_msg *at_end, **at_end_tail;

    char (*shas)[41];     /* of the scripts */
    struct mr_buf exists; /* SCRIPT EXISTS of all */
    struct mr_buf loads;  /* SCRIPT LOAD of each */
    size_t *load_ends;    /* where they end */
    char wait_bytes[96];  /* WAIT */
    const char **argv;    /* scratch of redis_call_format */
    size_t *argv_len, argv_cap;
    struct mr_slice *slices; /* scratch of mr_redis_eval */
    size_t slices_cap;
    uint8_t *in;
    uint8_t *out;

    struct mr_exec_thread *resolver; /* made for the first host that is a name */
    struct mr_msg stop_msg;
    bool stopping;

    bool up, changed_due;
    mr_mono began_at; /* of the server that was connected to last */
    enum mr_err err;
    char why[REDIS_WHY_MAX];
};

/* Without its thread; whoever calls redis_turn is the loop, and redis_end ends it. max_ns: how long it
 * may wait. */
MR_MUST_USE enum mr_err redis_new(const struct mr_redis_options *options,
                                  struct mr_redis **ret_redis, struct mr_detail *detail);
void redis_turn(struct mr_redis *redis, int64_t max_ns);
void redis_end(struct mr_redis *redis);

/* For deployments: whether calls can be answered; told to the owner at the end of the turn. err is
 * MR_UNAVAILABLE, or something that does not pass: then what waits is answered with it. */
void redis_is_up(struct mr_redis *redis);
void redis_is_down(struct mr_redis *redis, enum mr_err err, const char *why);
bool redis_err_lasts(enum mr_err err);
bool redis_is_loop(const struct mr_redis *redis);

/* Lanes and channels go where their keys are now. */
void redis_lanes_follow(struct mr_redis *redis);
void redis_lanes_end(struct mr_redis *redis);
void redis_channels_follow(struct mr_redis *redis);

#endif
