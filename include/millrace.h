/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Millrace: background work that is done once you hand it over.
 *
 * The whole public C API. Handles are opaque; option structs are made for designated initialisers
 * and zero means the default; input slices are borrowed for the length of the call; every function
 * that can fail returns enum mr_err and leaves its ret_ pointers untouched on failure. "Thread:
 * any" holds for every function here unless its comment says otherwise.
 */
#ifndef MILLRACE_H
#define MILLRACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define MR_MUST_USE          __attribute__((warn_unused_result))
#define MR_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))

/* ---- errors --------------------------------------------------------------------------------- */

/*
 * One list for every surface. Columns: name, what it means in one line, whether trying again later
 * can help (1) or not (0), exit code of the command line, gRPC status, HTTP status.
 */
#define MR_ERR_MAP(X)                                                                              \
    X(OK, "ok", 0, 0, 0, 200)                                                                      \
    X(FAILED, "failed", 0, 1, 13, 500)                                                             \
    X(NOMEM, "out of memory", 1, 1, 8, 503)                                                        \
    X(INVALID, "invalid argument", 0, 2, 3, 400)                                                   \
    X(TOO_BIG, "over the limit", 0, 2, 3, 413)                                                     \
    X(NOT_FOUND, "not found", 0, 3, 5, 404)                                                        \
    X(CONFLICT, "a task with this id exists", 0, 4, 6, 409)                                        \
    X(DUPLICATE, "a task with this unique key exists", 0, 4, 6, 409)                               \
    X(RUNNING, "the task is running", 0, 4, 9, 409)                                                \
    X(WRONG_STATE, "not possible in this state", 0, 4, 9, 409)                                     \
    X(STALE, "lease lost: another epoch holds the task", 0, 4, 10, 409)                            \
    X(DENIED, "not allowed", 0, 5, 7, 403)                                                         \
    X(IN_USE, "in use by another process", 1, 6, 14, 503)                                          \
    X(UNAVAILABLE, "broker out of reach", 1, 6, 14, 503)                                           \
    X(TIMEOUT, "timed out", 1, 7, 4, 504)                                                          \
    X(EMPTY, "nothing to take", 1, 3, 5, 404)                                                      \
    X(QUEUE_FULL, "the queue is at its maximum length", 1, 1, 8, 429)                              \
    X(BUSY, "too much in flight", 1, 1, 8, 429)                                                    \
    X(DISK_FULL, "disk full: new work is refused until there is space", 1, 1, 8, 503)              \
    X(IO, "input/output error", 0, 1, 13, 503)                                                     \
    X(DAMAGED, "damaged data", 0, 1, 15, 500)                                                      \
    X(VERSION, "written by a newer version", 0, 1, 9, 500)                                         \
    X(NOT_A_STORE, "not a Millrace store", 0, 1, 9, 500)                                           \
    X(CLOSED, "closed", 0, 1, 1, 503)                                                              \
    X(CANCELLED, "cancelled", 0, 1, 1, 499)                                                        \
    X(UNSUPPORTED, "not supported here", 0, 2, 12, 501)

enum mr_err {
#define MR_ERR_ENUM(name, text, retriable, exit, grpc, http) MR_##name,
    MR_ERR_MAP(MR_ERR_ENUM)
#undef MR_ERR_ENUM
        MR_ERR_COUNT
};

/* Name ("NOT_FOUND") and one-line text of an error; never NULL, also for unknown values. */
const char *mr_err_name(enum mr_err err);
const char *mr_err_text(enum mr_err err);
bool mr_err_retriable(enum mr_err err);
int mr_err_exit_code(enum mr_err err);

/* Text for humans about one failure: what, where, what next. Filled on failure where a function
 * takes it. */
struct mr_detail {
    char text[512];
};

/* ---- bytes, limits -------------------------------------------------------------------------- */

/* Bytes owned by somebody else. */
struct mr_slice {
    const void *data;
    size_t len;
};

/* A slice of a string literal or of a NUL-terminated string. */
struct mr_slice mr_slice_str(const char *text);

enum {
    MR_ID_MAX = 128,     /* bytes of a task id */
    MR_NAME_MAX = 128,   /* bytes of a queue, type, group, node, unique key name */
    MR_TOPIC_MAX = 127,  /* bytes of a result topic */
    MR_HEADERS_MAX = 64, /* headers of a task */
    MR_HEADER_BYTES_MAX = 16 * 1024,
    MR_PAYLOAD_MAX =
        1024 * 1024, /* default limit of a payload; a setting, never above MR_PAYLOAD_HARD_MAX */
    MR_PAYLOAD_HARD_MAX = 16 * 1024 * 1024,
    MR_RESULT_MAX = 1024 * 1024,
    MR_ERROR_TEXT_MAX = 4096,
    MR_PROGRESS_TEXT_MAX = 256, /* bytes kept of a progress text */
    MR_BATCH_MAX = 1000,        /* items of one call */
    MR_TAKE_QUEUES_MAX = 64,    /* queues one worker listens to */
    MR_RETRY_MAX = 65535,
    MR_CRASHES_MAX = 3, /* a task that lost its worker so often is quarantined in the archive */
    MR_SLOTS_MAX = 4096,
    MR_SLOTS_SHOWN = 256,   /* slots of a node that are shown one by one */
    MR_MACHINES_MAX = 16,   /* of a worker */
    MR_PARTITIONS_MAX = 64, /* of a queue */
    MR_LIMITS_MAX = 64,     /* of a queue, in all */
    MR_LIMIT_RATE_MAX = 100000,
};

/* ---- tasks ---------------------------------------------------------------------------------- */

enum mr_state {
    MR_STATE_NONE, /* no such task */
    MR_SCHEDULED,
    MR_PENDING,
    MR_ACTIVE,
    MR_RETRY,
    MR_ARCHIVED,
    MR_COMPLETED,
    MR_AGGREGATING, /* waits in its group to become part of one task */
    MR_STATE_COUNT
};

const char *mr_state_name(enum mr_state state);
/* MR_STATE_NONE for an unknown name. */
enum mr_state mr_state_parse(struct mr_slice name);

struct mr_header {
    struct mr_slice name;
    struct mr_slice value;
};

enum mr_on_duplicate {
    MR_DUPLICATE_REJECT,  /* MR_DUPLICATE, nothing changes */
    MR_DUPLICATE_IGNORE,  /* MR_OK with the id of the task that is there */
    MR_DUPLICATE_REPLACE, /* the waiting task takes the new order time (and due time); its id is
                             returned; MR_RUNNING when it runs; a member of a group stays there */
};

/* What a producer says about a task. Only payload is usually needed; zero is the default
 * everywhere. */
struct mr_task_options {
    struct mr_slice queue;   /* "default" */
    struct mr_slice type;    /* "task" */
    struct mr_slice payload; /* any bytes */
    struct mr_slice id;   /* a generated UUID; enqueue of an id that exists answers MR_CONFLICT */
    double priority_s;    /* seconds ahead: positive is earlier, within +- 10 years */
    int64_t delay_ms;     /* run this long from now at the earliest; negative is refused */
    int64_t at_ms;        /* or at this time (ms since the Unix epoch) */
    int32_t max_retry;    /* 0 means the default, 25; MR_NO_RETRY for none */
    int64_t timeout_ms;   /* one run may last this long; 0 means 30 min; MR_NO_TIMEOUT for none */
    int64_t deadline_ms;  /* no run after this time; 0 none */
    int64_t retention_ms; /* keep the completed task and its result this long */
    int64_t unique_ms;    /* hold the unique key this long at most; 0: no unique key */
    struct mr_slice
        unique_key; /* with unique_ms: the key, within its queue; empty: type + payload */
    enum mr_on_duplicate on_duplicate;
    struct mr_slice group;
    struct mr_slice topic; /* leave the outcome in this result topic */
    const struct mr_header *headers;
    size_t headers_n;
    /* Where in a queue of several partitions it goes: into this one, counted from 1; or to where all
     * with this key go; else where its unique key, its group or (on a Redis) its id lead to. One without
     * any of them goes where the next one's turn is. On a Redis a unique key is known within a partition:
     * with partition or key, another one may have it too. */
    struct mr_slice key;
    uint32_t partition; /* MR_INVALID: the queue has no such partition */
};

/* Priorities are within so many seconds, both ways. */
#define MR_PRIORITY_MAX_S (10 * 366 * 86400.0)

#define MR_NO_RETRY   (-1)
#define MR_NO_TIMEOUT (-1)

/* The answer for one enqueued task. */
struct mr_enqueue_result {
    enum mr_err err;
    enum mr_state
        state; /* of the new task, or with MR_CONFLICT and MR_DUPLICATE of the one that is there */
    char id[MR_ID_MAX + 1]; /* of the new task, or of the one that is there */
    bool
        unknown; /* with an error: it was sent, and may be there all the same; else it was refused, or not sent */
};

/* Everything that is known of a task. Slices live as long as the object they came from says. */
struct mr_task {
    struct mr_slice id, queue, type, payload, unique_key, group, topic, node, last_error, result,
        progress;
    const struct mr_header *headers;
    size_t headers_n;
    enum mr_state state;
    double priority_s;
    int64_t order_time_ms;
    uint32_t attempt, retried, max_retry, crashes;
    uint64_t epoch;
    int64_t timeout_ms, deadline_ms, retention_ms;
    int64_t created_ms, due_ms, started_ms, finished_ms, last_failed_ms;
    int64_t unique_until_ms; /* its unique key is its own until then; 0: it has none (any more) */
    bool cancel_requested;
    bool held;          /* carried here at started_ms, and not released yet (mr_carry) */
    uint32_t partition; /* of its queue, from 1 */
    struct mr_slice key;
    /* Only where one task is asked for by its id: its last runs that did not end well, and what people did to it, as far as that
     * is known. Each is a line "MS STARTED_MS ATTEMPT WHAT NODE_LEN TEXT_LEN", then so many bytes of the node's name and of what
     * was said, and a newline. */
    struct mr_slice past;
};

/* ---- client --------------------------------------------------------------------------------- */

struct mr_client;

/* What a server says with a refusal, in one line, right before what was refused is answered. Thread:
 * the broker's; do little. */
typedef void mr_refusal(enum mr_err err, const char *text, void *arg);

/* How several servers share the operations on timers. */
enum mr_affinity {
    MR_AFFINITY_NONE,  /* in turn */
    MR_AFFINITY_TIMER, /* those on one timer go to the same one while it lives */
};

struct mr_client_options {
    size_t payload_max;   /* MR_PAYLOAD_MAX */
    size_t segment_bytes; /* file: size of a log segment; 64 MiB; a payload fits a quarter of it */
    struct mr_slice namespace_; /* file: a store of its own inside DIR; empty is the default one.
                                   millrace: the one that the server must have; empty: any.
                                   redis: stands before every key; empty: Asynq's own keys */
    bool repair;                /* file: set damage in the log aside instead of refusing to open */
    const char *token;          /* millrace: what the server knows us by; NULL: nothing */
    const char *tls_ca; /* millraces, rediss: whom to trust, PEM; NULL: whom the system trusts */
    const char *tls_cert, *tls_key; /* ... our own certificate, PEM; NULL: none */
    const char *tls_name;           /* ... the name in the server's certificate; NULL: HOST */
    int64_t open_ms;        /* millrace, redis: wait so long for the first connection; 0: 3 s */
    uint32_t wait_replicas; /* redis: acknowledge only what so many replicas have */
    /* redis: of a queue the archive keeps the newest so many tasks (0: 9999), and so long (at least
     * 1 s; 0: 90 days). A run of ours that leaves one there removes, and counts, what is beyond. */
    uint32_t archive_max;
    int64_t archive_ms;
    mr_refusal *refused; /* millrace, redis: told why; NULL: nobody */
    void *refused_arg;
    const char
        *store; /* file: where timers and jobs are kept, sqlite:PATH or postgres://...; NULL: sqlite
                            in DIR. A Redis: where jobs are; NULL: they are with a server */
    int64_t
        answer_ms; /* millrace: operations on timers go to the next server after so long; 0: 5 s */
    uint32_t timers_max;       /* of mr_timer_send_async, not answered yet; 0: 100000 */
    enum mr_affinity affinity; /* millrace, names: which server gets an operation on a timer */
};

/*
 * Opens a broker by URL. "file:DIR" is the embedded engine, which creates DIR when it is missing;
 * "millrace://HOST:PORT" is a server, "millraces://" one with TLS. "millrace://H1:P1,H2:P2" are several, and
 * "names://H1:P1,H2:P2" those that one of these nameservers knows (TLS to all of them: "namess://"): tasks and operations
 * on timers go to those that are there in turn, workers work for all of them, and what is asked is asked of all; a task
 * with an id, a unique key or a group goes to a server that follows from that. A Redis, 6.2 or newer, is
 * "redis://[USER:PASSWORD@]HOST:PORT[/DB]", with TLS "rediss://"; "redis+unix:PATH" behind a socket;
 * "redis+sentinel://H1:P1,H2:P2/NAME" the primary that Sentinels name, "redis+cluster://H1:P1,H2:P2"
 * a Cluster, both with TLS as "rediss+...". Errors: MR_IN_USE (another process has DIR open; named in
 * detail), MR_DAMAGED (file and offset in detail), MR_VERSION, MR_NOT_A_STORE,
 * MR_DENIED (also a wrong password), MR_DISK_FULL, MR_IO, MR_INVALID; MR_UNAVAILABLE (no server there
 * in time; why in detail), MR_UNSUPPORTED (also a Redis that is too old). options and detail may be NULL.
 *
 * When the connection to a server breaks it is made again. Until then tasks that were not sent yet
 * wait, up to 10 s; of several servers, another one gets them. A task whose answer was lost is answered with
 * MR_UNAVAILABLE, and unknown is set in its result: it may have been accepted or not, and its id is in the result. No
 * other server gets it, since it would run twice. At one server, one with a generated id and a retention of a minute or
 * more is sent again by itself: if it was accepted, it has left a trace.
 */
MR_MUST_USE enum mr_err mr_client_open(const char *url, const struct mr_client_options *options,
                                       struct mr_client **ret_client, struct mr_detail *detail);
/* Closes; everything acknowledged stays. Workers must be freed before. NULL is fine. */
void mr_client_close(struct mr_client *client);

/* What the broker may lose of what it has acknowledged, in one line for people: for a Redis, by its
 * settings and replicas as they are now. Empty: nothing, or as its server says. MR_UNAVAILABLE. */
MR_MUST_USE enum mr_err mr_client_risk(struct mr_client *client, struct mr_detail *ret_line);

/*
 * Enqueues n <= MR_BATCH_MAX tasks and waits until they are on disk. ret_results has n entries. The
 * return value is MR_OK when the request was carried out, even if some items failed: see each
 * entry. When it was not, every entry has the same error (but for a batch over the limit); MR_IO
 * leaves open whether the task is there.
 */
MR_MUST_USE enum mr_err mr_enqueue(struct mr_client *client, const struct mr_task_options *tasks,
                                   size_t n, struct mr_enqueue_result *ret_results);

/* Called once, on the broker's thread: do little, and never call a waiting function of this API
 * from it. */
typedef void mr_enqueue_done(enum mr_err err, const struct mr_enqueue_result *results, size_t n,
                             void *arg);

/*
 * Like mr_enqueue, but returns at once and calls done when all n tasks are durable (or refused).
 * Everything in tasks is copied before it returns. Keep as many in flight as you like up to the
 * broker's limit; beyond it: MR_BUSY, nothing sent.
 */
MR_MUST_USE enum mr_err mr_enqueue_async(struct mr_client *client,
                                         const struct mr_task_options *tasks, size_t n,
                                         mr_enqueue_done *done, void *arg);

/* ---- inspection and control ----------------------------------------------------------------- */

/* One answer with many tasks; free it when done with its slices. */
struct mr_task_list;
size_t mr_task_list_count(const struct mr_task_list *list);
const struct mr_task *mr_task_list_at(const struct mr_task_list *list, size_t i);
/* Where the next page begins; empty when this was the last one. */
const char *mr_task_list_next(const struct mr_task_list *list);
void mr_task_list_free(struct mr_task_list *list);

struct mr_list_options {
    struct mr_slice queue; /* empty: all queues */
    enum mr_state state;   /* MR_STATE_NONE: all states */
    struct mr_slice type;  /* empty: all types */
    const char *cursor;    /* of the page before; NULL from the start */
    size_t limit;          /* 0: 50; at most MR_BATCH_MAX; a page of 2 MiB ends before it */
    bool with_payload;
    bool
        held; /* only those that mr_carry brought and nobody has released, which no other list has */
};

/* Lists in the order of each set: pending by order time, scheduled and retry by due time, archived
 * by the time of their end, completed by the time they will be removed. The cost of a page does not
 * depend on how far it is. */
MR_MUST_USE enum mr_err mr_task_list_get(struct mr_client *client,
                                         const struct mr_list_options *options,
                                         struct mr_task_list **ret_list);
/* One task by id, as a list of one. */
MR_MUST_USE enum mr_err mr_task_get(struct mr_client *client, struct mr_slice id,
                                    struct mr_task_list **ret_list);
/*
 * Waits up to timeout_ms (0: as long as it takes) until the task has ended, and answers it as it was
 * then: completed with its result, also when it is not kept, or archived. MR_NOT_FOUND when there is
 * none, or it was deleted; MR_TIMEOUT; MR_BUSY when too many wait, at a server more than 512 of one
 * client. There the wait goes on over a connection that breaks; MR_UNAVAILABLE after 30 s without one. The end of a task that is not kept can be missed then:
 * MR_NOT_FOUND.
 */
MR_MUST_USE enum mr_err mr_task_wait(struct mr_client *client, struct mr_slice id,
                                     int64_t timeout_ms, struct mr_task_list **ret_list);

enum mr_verb {
    MR_VERB_CANCEL,     /* waiting: to the archive; running: told to stop */
    MR_VERB_DELETE,     /* gone, counted; running: MR_RUNNING, flagged */
    MR_VERB_RUN,        /* scheduled, retry, archived: pending now (archived: counts start again;
                           MR_DUPLICATE when another task has its unique key) */
    MR_VERB_ARCHIVE,    /* waiting: to the archive */
    MR_VERB_PRIORITISE, /* waiting: new priority, in value */
    MR_VERB_MOVED,      /* not running: it goes on elsewhere, text says where. Completed, kept for a
                           day with "moved to TEXT" as its error, so that its id stays taken */
    MR_VERB_RELEASE,    /* held (mr_carry): takes its place; MR_WRONG_STATE when it is not held */
};

struct mr_control {
    enum mr_verb verb;
    struct mr_slice id;
    double value;         /* MR_VERB_PRIORITISE: seconds ahead */
    struct mr_slice text; /* MR_VERB_MOVED: where to, 1 to MR_MOVED_TEXT_MAX bytes of UTF-8 */
};
enum { MR_MOVED_TEXT_MAX = 1024 };
#define MR_MOVED_PREFIX  "moved to "      /* the error of a task that was moved begins so */
#define MR_MOVED_KEPT_MS (24 * 3600000LL) /* how long it stays */

/* Acts on n <= MR_BATCH_MAX tasks; ret_errs has n entries. A held task can only be released or
 * deleted: MR_WRONG_STATE. */
MR_MUST_USE enum mr_err mr_control(struct mr_client *client, const struct mr_control *items,
                                   size_t n, enum mr_err *ret_errs);

/*
 * Takes over n <= MR_BATCH_MAX tasks of another broker as they stand there, from a list with
 * payloads: state (any but active), times, order, counts, last error or result, and what is left of
 * a unique key's time, unless another task has that key here. No limit of a queue's length applies:
 * they were accepted before. Until MR_VERB_RELEASE they are held: durable, with their ids taken, but
 * nobody is given them and no time passes for them. So a task can change brokers without being lost or
 * run twice, whoever is killed when: mr_carry there, MR_VERB_MOVED here, MR_VERB_RELEASE there.
 * ret_results as for mr_enqueue: MR_CONFLICT with the state of the one that is there.
 */
MR_MUST_USE enum mr_err mr_carry(struct mr_client *client, const struct mr_task *tasks, size_t n,
                                 struct mr_enqueue_result *ret_results);

/* Which workers prefer which partitions of a queue. */
enum mr_assign {
    MR_ASSIGN_ROUND_ROBIN, /* as even as can be; when a worker comes or goes, as few as can be move */
    MR_ASSIGN_CONSISTENT_HASH, /* by their names alone; nobody has more than 1.25 of its share */
    MR_ASSIGN_COUNT
};
const char *mr_assign_name(enum mr_assign assign); /* NULL: none */

/* What becomes of a task of the queue that failed and is tried again after a delay. */
enum mr_retry_mode {
    MR_RETRY_GATE,  /* it waits for the delay, then has its place by the time when that was over */
    MR_RETRY_ORDER, /* it does not wait: the delay only puts it behind what comes until then */
    MR_RETRY_CLASS, /* it waits for the delay, and then until nothing else is ready, but not longer
                       than a bound; then it goes first */
    MR_RETRY_MODE_COUNT
};
const char *mr_retry_mode_name(enum mr_retry_mode mode); /* NULL: none */
#define MR_RETRY_WAIT_MS (60 * 1000LL)                   /* that bound, if nobody sets another */

/*
 * A limit on what is handed out of a queue, whoever the workers are: of all its tasks, of those of a
 * type, or of those with a key (mr_task_options.key). A task that may not run now is passed over, and
 * others behind it go first; once it may, its place is by its order time again.
 *
 * Each time that a task is handed out counts against a rate, also a second time, or when it is given
 * back. In no span of rate_ms, wherever it begins, are more than rate handed out; a broker that does not
 * remember how much it gave (a folder that was opened) takes it for used up until one has passed.
 * What is in the hands of workers counts against concurrency, and comes back with the end of its lease.
 */
enum mr_limit_scope { MR_LIMIT_QUEUE, MR_LIMIT_TYPE, MR_LIMIT_KEY, MR_LIMIT_SCOPE_COUNT };
const char *mr_limit_scope_name(enum mr_limit_scope scope); /* NULL: none */

#define MR_LIMIT_EACH   "*" /* as a name: each type, or key, on its own, that has no limit by name */
#define MR_LIMIT_MS_MAX (24 * 3600000LL)

struct mr_limit {
    enum mr_limit_scope scope;
    char name[MR_NAME_MAX + 1]; /* of the type or the key; MR_LIMIT_QUEUE: empty */
    uint32_t rate;              /* so many ..., to MR_LIMIT_RATE_MAX; 0: as many as there are */
    int64_t rate_ms;            /* ... in any span of so long, 1 ms to MR_LIMIT_MS_MAX */
    uint32_t concurrency;       /* so many at once; 0: as many as there are */
    /* How it stands, for the type or the key of a task where it is for each of them. */
    uint32_t active;       /* of what it limits, tasks in the hands of workers */
    int64_t rate_until_ms; /* no other is handed out before this time; 0: one may be, now */
};

struct mr_queue_info {
    char name[MR_NAME_MAX + 1];
    uint64_t counts[MR_STATE_COUNT];
    bool paused;
    int64_t oldest_pending_ms; /* longest wait among the first 64 in order; 0: none waits */
    uint64_t processed_total, failed_total, processed_today, failed_today;
    uint64_t max_length; /* 0: none */
    /* Of the runs that began, and that ended, in the last minute or so; 0: none did. */
    uint64_t wait_p50_us, wait_p99_us, run_p50_us, run_p99_us;
    uint32_t partitions; /* at least 1 */
    enum mr_assign assign;
    uint32_t rate; /* of all its tasks, see struct mr_limit; 0: no limit */
    int64_t rate_ms;
    uint32_t concurrency; /* 0: no limit */
    uint32_t limits;      /* how many it has for types and keys */
    uint64_t trimmed;     /* redis: tasks that the limits of the archive removed from it, ever */
    uint64_t quarantined; /* that lost their worker too often, since the start; a Redis: ever */
    enum mr_retry_mode retry_mode;
    int64_t retry_wait_ms; /* the bound of MR_RETRY_CLASS */
};

/* Fills up to max entries, ordered by name, starting after the name `after` (NULL: from the start).
 */
MR_MUST_USE enum mr_err mr_queue_list(struct mr_client *client, const char *after,
                                      struct mr_queue_info *ret_infos, size_t max, size_t *ret_n);
MR_MUST_USE enum mr_err mr_queue_get(struct mr_client *client, struct mr_slice queue,
                                     struct mr_queue_info *ret_info);
/* What a queue did in one day (UTC). */
struct mr_queue_day {
    int64_t start_ms;
    uint64_t processed, failed;
};
enum { MR_QUEUE_DAYS_MAX = 90 };
/* Fills up to max days, newest first, of the last MR_QUEUE_DAYS_MAX on which a run ended. */
MR_MUST_USE enum mr_err mr_queue_history(struct mr_client *client, struct mr_slice queue,
                                         struct mr_queue_day *ret_days, size_t max, size_t *ret_n);
MR_MUST_USE enum mr_err mr_queue_pause(struct mr_client *client, struct mr_slice queue);
MR_MUST_USE enum mr_err mr_queue_resume(struct mr_client *client, struct mr_slice queue);
/* Beyond max waiting tasks, enqueue answers MR_QUEUE_FULL; 0 lifts the limit. Creates the queue if
 * need be. */
MR_MUST_USE enum mr_err mr_queue_set_max_length(struct mr_client *client, struct mr_slice queue,
                                                uint64_t max);
/*
 * Spreads the queue over n partitions, 1 to MR_PARTITIONS_MAX: waiting lines that workers share out
 * among them; of a Redis Cluster, each can be at another node. The order of tasks, and the greatest length
 * of the queue, is that of each partition. With fewer of them than before, what waits in the others moves to
 * those that stay; on a Redis it is worked off where it is. Creates the queue if need be.
 */
MR_MUST_USE enum mr_err mr_queue_set_partitions(struct mr_client *client, struct mr_slice queue,
                                                uint32_t n);
MR_MUST_USE enum mr_err mr_queue_set_assign(struct mr_client *client, struct mr_slice queue,
                                            enum mr_assign assign);
/* Both create the queue if need be. What failed before is not moved, but served as the mode says. */
MR_MUST_USE enum mr_err mr_queue_set_retry_mode(struct mr_client *client, struct mr_slice queue,
                                                enum mr_retry_mode mode);
/* 0: MR_RETRY_WAIT_MS. */
MR_MUST_USE enum mr_err mr_queue_set_retry_wait(struct mr_client *client, struct mr_slice queue,
                                                int64_t wait_ms);
/* The limit of this scope and name gets another rate, or concurrency; the rest of it stays. 0 lifts it.
 * MR_TOO_BIG: the queue has MR_LIMITS_MAX already. MR_UNSUPPORTED: a Redis Cluster has limits for queues of
 * one partition only. Create the queue if need be. */
MR_MUST_USE enum mr_err mr_queue_set_rate(struct mr_client *client, struct mr_slice queue,
                                          const struct mr_limit *limit);
MR_MUST_USE enum mr_err mr_queue_set_concurrency(struct mr_client *client, struct mr_slice queue,
                                                 const struct mr_limit *limit);
/* Its limits, by scope and name; ret_limits has MR_LIMITS_MAX entries. MR_NOT_FOUND. */
MR_MUST_USE enum mr_err mr_queue_limits(struct mr_client *client, struct mr_slice queue,
                                        struct mr_limit *ret_limits, size_t *ret_n);
/* Those that hold for this task of the queue, MR_LIMIT_SCOPE_COUNT at most, and how they stand for it. */
MR_MUST_USE enum mr_err mr_task_limits(struct mr_client *client, struct mr_slice queue,
                                       struct mr_slice id, struct mr_limit *ret_limits,
                                       size_t *ret_n);
enum mr_queue_remove_mode {
    MR_QUEUE_REMOVE_EMPTY, /* MR_WRONG_STATE when it holds tasks */
    MR_QUEUE_REMOVE_FORCE, /* deletes its tasks too, counted; MR_RUNNING when some are running */
};
MR_MUST_USE enum mr_err mr_queue_remove(struct mr_client *client, struct mr_slice queue,
                                        enum mr_queue_remove_mode mode);

/* ---- nodes ---------------------------------------------------------------------------------- */

enum mr_node_state { MR_NODE_LIVE, MR_NODE_SUSPECT, MR_NODE_DEAD, MR_NODE_STATE_COUNT };
const char *mr_node_state_name(enum mr_node_state state); /* NULL: no such state */

enum mr_node_role {
    MR_NODE_WORKER, /* runs tasks */
    MR_NODE_MASTER, /* takes results; its queues are topics */
    MR_NODE_ROLE_COUNT
};
const char *mr_node_role_name(enum mr_node_role role); /* NULL: no such role */

/*
 * What a slot of a worker does. From one task to the next it goes through PENDING, POLLING, WORKING and
 * REPORTING, or ERROR in its place; a poll that brings nothing leads back to PENDING. There is no
 * other way, but to STOPPING from PENDING or POLLING.
 */
enum mr_slot_state {
    MR_SLOT_PENDING,   /* waits until the next poll */
    MR_SLOT_POLLING,   /* asks the broker for a task */
    MR_SLOT_WORKING,   /* has one: its handler runs */
    MR_SLOT_REPORTING, /* tells the broker how it ended, until that is accepted or a task follows */
    MR_SLOT_ERROR,     /* tells it that it failed; or the run was given up, and its handler has not
                          returned */
    MR_SLOT_STOPPING,  /* takes no more */
    MR_SLOT_STATE_COUNT
};
const char *mr_slot_state_name(enum mr_slot_state state); /* NULL: no such state */

struct mr_slot_info {
    enum mr_slot_state state;
    uint32_t machine;         /* of its worker, from 0 */
    int64_t since_ms;         /* in this state; ms since the Unix epoch */
    struct mr_slice id, type; /* of the task that it runs or tells of; empty: none */
};

struct mr_node_info {
    struct mr_slice name;
    uint64_t incarnation; /* another one each time it registers */
    enum mr_node_state state;
    enum mr_node_role role;
    int64_t started_ms, last_beat_ms;
    uint64_t in_hand;     /* tasks or results leased to it */
    uint32_t slots, busy; /* how many it has, and of them run a task */
    const struct mr_worker_queue *queues;
    size_t queues_n;
    const struct mr_slice *types; /* patterns of what it handles; none: everything */
    size_t types_n;
    /* Its slots, the first MR_SLOTS_SHOWN, as it said about a second ago or less; none: it says
     * nothing of them. */
    const struct mr_slot_info *slot_infos;
    size_t slot_infos_n;
};
/* The tags of a node, which are seen by its queues (struct mr_worker_options, tags), up to max of them;
 * how many they are. They point into the node. */
size_t mr_node_tags(const struct mr_node_info *node, struct mr_slice *tags, size_t max);
/* Whether the i-th of its queues is one it serves for everybody: no address of another one. */
bool mr_node_serves(const struct mr_node_info *node, size_t i);

/*
 * The leader: one of the nodes, for as long as it beats. It shares out the partitions of queues among the
 * workers. Nothing else depends on it: without one, tasks come, run and end as always.
 */
struct mr_leader {
    struct mr_slice node; /* its name; empty: nobody leads */
    uint64_t incarnation; /* of that node; 0: nobody leads */
    uint64_t term;    /* of the last one there was; the next one has a higher one. 0: none was */
    int64_t since_ms; /* it leads since then; 0: nobody leads */
    int64_t leaderless_ms; /* nobody has led for so long; 0: somebody leads, or, without one, it may
                              not be seen: on a Redis by a user who has no right to */
};

/* A worker that prefers some partitions of a queue. */
struct mr_owner {
    struct mr_slice node;
    uint64_t incarnation;
    uint64_t owned; /* bits: the lowest is partition 1 */
};

/*
 * Whose the partitions of a queue are, as a leader has written it. It is never seen in parts: each
 * partition has an owner in every version, and the next version is a higher one.
 */
struct mr_assignment {
    struct mr_slice queue;
    enum mr_assign assign;
    uint32_t partitions;    /* of the queue as it is now */
    uint64_t version, term; /* 0: no leader has written one yet */
    const struct mr_owner *owners;
    size_t owners_n;
};

struct mr_node_list;
size_t mr_node_list_count(const struct mr_node_list *list);
const struct mr_node_info *mr_node_list_at(const struct mr_node_list *list, size_t i);
void mr_node_list_free(struct mr_node_list *list);
/* Who led when it was made. */
const struct mr_leader *mr_node_list_leader(const struct mr_node_list *list);
/* Of all queues with more than one partition; NULL beyond the last. */
const struct mr_assignment *mr_node_list_assignment(const struct mr_node_list *list, size_t i);
/* All nodes that are registered, oldest first. */
MR_MUST_USE enum mr_err mr_node_list_get(struct mr_client *client, struct mr_node_list **ret_list);

/* Figures of the broker behind a client. */
struct mr_stats {
    uint64_t tasks;        /* in every state */
    uint64_t memory_bytes; /* spent on the index of tasks */
    uint64_t disk_bytes;   /* of all its files */
    uint64_t live_bytes;   /* of them, needed by tasks that exist */
    uint64_t segments;
    uint64_t syncs; /* since the start */
    uint64_t sync_p50_us, sync_p99_us;
    uint64_t records_damaged; /* found and set aside since the start */
    uint64_t stale_refused;   /* finishes refused because their epoch was old */
    uint64_t deleted,
        expired;       /* tasks removed since the store was made: by a caller, by retention */
    uint64_t gathered; /* and members of groups that became part of one task */
    uint64_t carried,
        moved; /* tasks taken over from, and gone to another broker; since the start, a Redis: ever */
    uint64_t snapshots;     /* written since the start */
    uint64_t texts_dropped; /* results and errors left out since the start: the disk was full */
    bool disk_full;         /* new work is refused now */
    bool failed;            /* a sync failed: the store must be opened again */
    bool upkeep;            /* a snapshot is being written, or a segment emptied */
    uint64_t results;       /* that wait for a master, or are in the hands of one */
    uint64_t trimmed,
        quarantined;       /* of all queues, see mr_queue_info, also of those that are gone */
    int64_t leaderless_ms; /* nobody has led for so long; 0: somebody leads */
};
MR_MUST_USE enum mr_err mr_stats_get(struct mr_client *client, struct mr_stats *ret_stats);

/* Writes a consistent copy of the running store to the new or empty folder dir. A server makes it
 * on its own machine, and takes a whole path only, from /. */
MR_MUST_USE enum mr_err mr_backup(struct mr_client *client, const char *dir,
                                  struct mr_detail *detail);

/* ---- worker --------------------------------------------------------------------------------- */

struct mr_worker;
struct mr_run; /* one run of one task, as its handler sees it */

/* How a run ended. */
enum mr_outcome {
    MR_DONE, /* success; the result written with mr_run_result is kept as long as retention says */
    MR_FAIL, /* failure: retried by policy, then archived */
    MR_FAIL_FOR_GOOD, /* failure: archived at once */
    MR_HAND_BACK,     /* not now, not counted: pending again at once for another worker; after a
                       * growing delay where this one keeps handing it back */
    MR_DROP,          /* processed, nothing kept */
    MR_LATER,         /* not a failure: tried again after the retry delay, not counted as one */
};

typedef enum mr_outcome mr_handler(struct mr_run *run, void *arg);

/* Thread: the handler's own, for all mr_run functions. Slices live until the handler returns. */
const struct mr_task *mr_run_task(struct mr_run *run);
/* True once the task should stop: timeout, cancel, lost lease or the worker stopping past its
 * drain. */
bool mr_run_cancelled(struct mr_run *run);
/* Waits up to timeout_ms for that; true when it came. */
bool mr_run_wait_cancelled(struct mr_run *run, int64_t timeout_ms);
/* When this run must be over: ms since the Unix epoch, 0 for never. */
int64_t mr_run_deadline_ms(struct mr_run *run);
/* Appends to the result; MR_TOO_BIG beyond MR_RESULT_MAX. */
MR_MUST_USE enum mr_err mr_run_result(struct mr_run *run, struct mr_slice bytes);
/* Shown to people while the task runs; percent within 0..100. The text is cut at its limit, between
 * characters. */
MR_MUST_USE enum mr_err mr_run_progress(struct mr_run *run, int percent, struct mr_slice text);
/* The text kept with a failure. */
void mr_run_error(struct mr_run *run, const char *fmt, ...) MR_PRINTF(2, 3);
/* Overrides the retry delay for this failure. */
void mr_run_retry_after(struct mr_run *run, int64_t delay_ms);

struct mr_worker_queue {
    struct mr_slice name;
    uint32_t weight; /* 0 means 1 */
};

enum mr_queue_order {
    MR_QUEUES_WEIGHTED, /* in proportion to the weights */
    MR_QUEUES_STRICT,   /* an earlier queue is emptied first */
};

/* Retry delay in ms for the n-th failure (1, 2, ...) of a task. Thread: any of the worker's. */
typedef int64_t mr_retry_delay(const struct mr_task *task, uint32_t n, void *arg);
/* Whether this outcome counts as a failure; false turns MR_FAIL into MR_LATER. */
typedef bool mr_is_failure(const struct mr_task *task, const char *error, void *arg);
/* Told of every failed run. */
typedef void mr_error_handler(const struct mr_task *task, const char *error, void *arg);

/*
 * Groups: tasks that were enqueued with the same group wait until it is ripe, then become one task of
 * their queue. This function makes it: it looks at the members and calls mr_set_become. Where it does
 * not, whatever it answers, they go back to their group two minutes after they left it. Thread: one of
 * three of the worker's, beside its slots.
 */
struct mr_set;
typedef enum mr_err mr_aggregate(struct mr_set *set, void *arg);

/* Thread: the function's, for all mr_set functions. What they answer lives until it returns. */
struct mr_slice mr_set_queue(const struct mr_set *set);
const char *mr_set_group(const struct mr_set *set);
size_t mr_set_count(const struct mr_set *set);
/* Oldest first; NULL beyond the last. */
const struct mr_task *mr_set_task(const struct mr_set *set, size_t i);
/* In one step this task is enqueued, and the members are gone. It has no group, and no queue or the
 * set's. When it is refused, another may be tried; MR_STALE: the time of the set was over, and
 * nothing was done. ret_result may be NULL. */
MR_MUST_USE enum mr_err mr_set_become(struct mr_set *set, const struct mr_task_options *task,
                                      struct mr_enqueue_result *ret_result);

/*
 * Slots of a worker for some types only. A worker with machines has no other slots. Each takes from its
 * own queues as long as it has a slot free, whatever the others do: one that is stuck delays no other
 * that has other queues. From a queue that two of them share, a task for one that has no slot free may
 * come to the other: it goes back for a second or two, as one that nobody handles.
 */
struct mr_machine {
    const struct mr_slice *types; /* patterns, as of mr_worker_handle; none: everything */
    size_t types_n;
    const struct mr_slice *queues; /* of the worker's; none: all of them */
    size_t queues_n;
    uint32_t slots; /* runs at once; 0: 1 */
};

/* A slot has come from one state into another. Called with a lock of the worker held: do little, and
 * call nothing of this API. Thread: any of the worker's. */
struct mr_slot_change {
    uint32_t slot; /* from 0, those of the first machine first */
    enum mr_slot_state from, to;
    int64_t pause_us; /* to PENDING, after a poll that brought nothing: until the next one */
};
typedef void mr_slot_watch(const struct mr_slot_change *change, void *arg);

#define MR_NO_WAIT (-1)

/*
 * One worker, or those with a tag, are addressed by a queue: a worker named N with the tag T that serves Q takes
 * from Q@N and Q@T as well, with the weight of Q, and before Q where the order is strict. What nobody of those took within
 * fall_ms falls to this one, too: each worker of Q says itself how long it leaves to others what is addressed to
 * them. So no task is lost because its worker is. A priority does not make it fall sooner; what was given back, or
 * lost with a worker, falls by when it was ready first. Q and its addresses have limits of their own, each by its name;
 * while Q is paused, its workers take nothing of its addresses either.
 */
#define MR_NO_FALL (-1)
struct mr_worker_options {
    struct mr_slice node;                 /* name shown to people; default host:pid */
    const struct mr_worker_queue *queues; /* default: "default" */
    size_t queues_n;
    /* With its addresses, at most MR_TAKE_QUEUES_MAX; those by its name are left out where there is no
     * room for them, or the name of the queue would be too long. */
    const struct mr_slice *tags;
    size_t tags_n;
    int64_t fall_ms; /* 0: 60 s; MR_NO_FALL: nothing falls to this worker */
    enum mr_queue_order order;
    uint32_t slots;        /* runs at once; default: cores */
    int64_t drain_ms;      /* mr_worker_stop waits this long for runs; default 30 s */
    int64_t grace_ms;      /* a cancelled run gets this long to return; default 5 s */
    int64_t beat_ms;       /* heartbeat; default 5 s */
    uint32_t beats_missed; /* dead after so many, 2 at least; default 3 */
    bool never_leads;      /* it is no candidate; see struct mr_leader */
    int64_t leader_ms; /* it leads so long beyond a beat; 2 beats at least; default: until dead */
    const int64_t *retry_levels_ms; /* delay of the 1st, 2nd, ... failure; the last one repeats */
    size_t retry_levels_n;
    int64_t retry_max_ms;        /* upper limit of the exponential default; 0: 1 day */
    mr_retry_delay *retry_delay; /* or the caller's own */
    mr_is_failure *is_failure;
    mr_error_handler *on_error;
    void *arg;  /* for the three above */
    bool burst; /* mr_worker_run returns when the queues are empty, and jobs have no more for it */
    mr_aggregate *aggregate; /* NULL: this worker leaves groups alone */
    void *aggregate_arg;
    uint32_t group_max_size;    /* a group of so many is ripe; 0: MR_BATCH_MAX, the most of a set */
    int64_t group_max_delay_ms; /* so is one whose oldest has waited so long; 0: no matter */
    int64_t group_grace_ms;     /* or that nobody has joined for so long; 0: 60 s; 1 s at least */
    const struct mr_machine
        *machines;     /* up to MR_MACHINES_MAX, and then slots is 0; none: one that */
    size_t machines_n; /* has all slots, all queues and all types */
    /* A poll waits at the broker for a task; 0: 60 s. With MR_NO_WAIT it does not. */
    int64_t poll_ms;
    /* Behind a poll that brought nothing, the next one comes after a time that is drawn from these, to
     * a day; both 0: at once, with MR_NO_WAIT after 0.5 to 1 s, after an error 0.25 to 0.75 s. */
    int64_t pause_min_us, pause_max_us;
    mr_slot_watch *watch; /* NULL: nobody */
    void *watch_arg;
};

MR_MUST_USE enum mr_err mr_worker_new(struct mr_client *client,
                                      const struct mr_worker_options *options,
                                      struct mr_worker **ret_worker);
/*
 * Handles tasks whose type is pattern, or begins with it when it ends in '*'. The exact one wins,
 * then the longest prefix. Before mr_worker_start. A type nobody handles is handed back with a
 * delay.
 */
MR_MUST_USE enum mr_err mr_worker_handle(struct mr_worker *worker, const char *pattern,
                                         mr_handler *handler, void *arg);
/* At a server that is away it waits for it, as tasks do: MR_UNAVAILABLE after 10 s. */
MR_MUST_USE enum mr_err mr_worker_start(struct mr_worker *worker);
/* Takes no more; waits for runs up to drain_ms, cancels the rest, hands back what did not begin or
 * finish without counting an attempt. Returns when everything is reported. A second call while the
 * first waits (by another thread) ends the drain and the grace of what was told to stop. */
void mr_worker_stop(struct mr_worker *worker);
/* Starts, then waits until mr_worker_stop is called (by another thread), with burst the queues are
 * empty, or the store fails (MR_IO, say: a sync that failed); then stops. A worker on a store that
 * has failed takes nothing more, and what it says of its last runs is not kept: they run again when
 * the store is opened anew. */
MR_MUST_USE enum mr_err mr_worker_run(struct mr_worker *worker);
/* Stops if need be. Waits for handlers that have not returned, however long. NULL is fine. */
void mr_worker_free(struct mr_worker *worker);

struct mr_worker_figures {
    uint64_t done, failed;
    uint64_t handed_back; /* runs that ended so; what was held and never ran is not counted */
    uint64_t later;       /* MR_LATER */
    uint64_t dropped;
    uint64_t unhandled; /* of a type nobody handles */
    uint64_t stale;     /* refused: the lease was lost */
    uint64_t in_doubt;  /* not answered before the worker stopped: they count or not */
    uint64_t aggregated, not_aggregated; /* sets that became a task, and that did not */
    uint32_t slots[MR_SLOT_STATE_COUNT]; /* how many are in each state, just now */
};
void mr_worker_figures(struct mr_worker *worker, struct mr_worker_figures *ret_figures);

/* ---- results -------------------------------------------------------------------------------- */

/* How the run ended that left a result. */
enum mr_result_outcome {
    MR_RESULT_OK,
    MR_RESULT_ERROR,
    MR_RESULT_TIMEOUT,   /* its timeout, or the task's deadline */
    MR_RESULT_LOST,      /* its worker was lost */
    MR_RESULT_CANCELLED, /* by a caller */
    MR_RESULT_OUTCOME_COUNT
};
const char *mr_result_outcome_name(enum mr_result_outcome outcome); /* NULL: no such outcome */

/*
 * What a run of a task that names a topic has left there. A task may leave several: one for each run
 * that failed or was lost, and one that is final.
 */
struct mr_result {
    struct mr_slice receipt; /* to commit it with */
    struct mr_slice task_id, queue, type, topic;
    uint32_t partition; /* of its queue, from 1 */
    enum mr_result_outcome outcome;
    uint32_t attempt;
    bool final;            /* no other run follows */
    bool cancel_requested; /* somebody wanted the task deleted or cancelled while it ran */
    int64_t finished_ms;
    struct mr_slice error;  /* of all outcomes but MR_RESULT_OK */
    struct mr_slice result; /* MR_RESULT_OK */
};

/* Some results; free it when done with its slices. */
struct mr_result_list;
size_t mr_result_list_count(const struct mr_result_list *list);
const struct mr_result *mr_result_list_at(const struct mr_result_list *list, size_t i);
void mr_result_list_free(struct mr_result_list *list);

/*
 * A master: a node that takes results. What it took is in its hands until it commits it; while it
 * beats nobody else gets it. When it goes, or dies, the rest is at the head of its topic again, in the
 * old order.
 */
struct mr_master;

struct mr_master_options {
    struct mr_slice node;          /* name shown to people; default host:pid */
    const struct mr_slice *topics; /* up to MR_TAKE_QUEUES_MAX; default: "default" */
    size_t topics_n;
    int64_t beat_ms;       /* heartbeat; default 5 s */
    uint32_t beats_missed; /* dead after so many, 2 at least; default 3 */
    bool never_leads;      /* as of a worker */
    int64_t leader_ms;
    /* Not 0: it does not beat, and what it takes is its own for so long, also when this process ends
     * before (but a store in the same process ends with it). For one that takes and goes. */
    int64_t lease_ms;
};

/* MR_INVALID, MR_TOO_BIG: a topic or a setting is not as it must be. */
MR_MUST_USE enum mr_err mr_master_open(struct mr_client *client,
                                       const struct mr_master_options *options,
                                       struct mr_master **ret_master);
/* Takes up to max <= MR_BATCH_MAX results, in the order in which their runs ended; waits up to wait_ms
 * for the first. MR_EMPTY; MR_UNAVAILABLE; MR_CLOSED once it was stopped. */
MR_MUST_USE enum mr_err mr_master_take(struct mr_master *master, size_t max, int64_t wait_ms,
                                       struct mr_result_list **ret_list);
/*
 * These n <= MR_BATCH_MAX results were dealt with: they are gone once it is answered. ret_errs has n
 * entries: MR_OK; MR_NOT_FOUND: it was committed before, which does no harm, or never given here;
 * MR_STALE: the lease was lost, and another master has got it since; MR_INVALID: this is no receipt;
 * MR_UNAVAILABLE: of several servers the one that may have it is away.
 */
MR_MUST_USE enum mr_err mr_master_commit(struct mr_master *master, const struct mr_slice *receipts,
                                         size_t n, enum mr_err *ret_errs);
/* The same by anybody who has the receipts, in any process. */
MR_MUST_USE enum mr_err mr_result_commit(struct mr_client *client, const struct mr_slice *receipts,
                                         size_t n, enum mr_err *ret_errs);
/* Gives back what it holds; takes that wait are answered with MR_CLOSED. */
void mr_master_stop(struct mr_master *master);
/* Stops if need be. No other thread may be in a call of it. NULL is fine. */
void mr_master_free(struct mr_master *master);

/* How many results of a topic wait, and how many are in the hands of masters; 0 of one that nobody has
 * named. */
MR_MUST_USE enum mr_err mr_topic_get(struct mr_client *client, struct mr_slice topic,
                                     uint64_t *ret_waiting, uint64_t *ret_in_hand);

/* ---- timers --------------------------------------------------------------------------------- */

/* What decides when a timer fires; docs/timers.md says what the expressions mean. */
enum mr_timer_kind {
    MR_TIMER_CRON,       /* "0 9 * * MON-FRI" */
    MR_TIMER_EVERY,      /* "10m": from the start (or the creation) on, whatever runs take */
    MR_TIMER_AFTER_DONE, /* "10m": after the end of the last run */
    MR_TIMER_AT,         /* "2026-12-24T18:00:00+01:00", Unix seconds */
    MR_TIMER_DELAY,      /* "10m": once, after the creation */
    MR_TIMER_DAILY,      /* "09:00-18:00/10m@mon-fri" */
    MR_TIMER_MANUAL,     /* "": on demand only */
    MR_TIMER_KIND_COUNT
};
const char *mr_timer_kind_name(enum mr_timer_kind kind); /* "after-done"; NULL: no such kind */

/* What becomes of planned times that nobody was there for. */
enum mr_misfire {
    MR_MISFIRE_ONCE, /* one firing, for the last of them */
    MR_MISFIRE_SKIP, /* none */
    MR_MISFIRE_ALL,  /* each of them, as far back as the server's catch-up goes */
    MR_MISFIRE_COUNT
};
const char *mr_misfire_name(enum mr_misfire misfire); /* NULL: none */

/* What becomes of a firing whose time comes while max_running others of the timer are not over. */
enum mr_overlap {
    MR_OVERLAP_ALLOW,  /* it does not run; but there is no limit unless max_running is set */
    MR_OVERLAP_SKIP,   /* it does not run */
    MR_OVERLAP_QUEUE,  /* one waits for its turn; those behind it do not run */
    MR_OVERLAP_CANCEL, /* the oldest of them is cancelled, and it runs */
    MR_OVERLAP_COUNT
};
const char *mr_overlap_name(enum mr_overlap overlap); /* NULL: none */

/* Which worker runs a firing. */
enum mr_strategy {
    MR_STRATEGY_ANY,
    MR_STRATEGY_ROUND_ROBIN, /* the next one each time */
    MR_STRATEGY_HEALTHIEST,  /* the one with the most room */
    MR_STRATEGY_KEY,         /* always the same for a key, while it lives; target is the key */
    MR_STRATEGY_TAG,         /* one that has the tag; target is the tag */
    MR_STRATEGY_BROADCAST,   /* each that lives, once */
    MR_STRATEGY_COUNT
};
const char *mr_strategy_name(enum mr_strategy strategy); /* without its target; NULL: none */

enum {
    MR_TIMER_ID_MAX = 36,          /* bytes of the id of a timer or an operation: a UUID */
    MR_TIMER_EXPRESSION_MAX = 512, /* bytes of an expression, and of a calendar */
    MR_TIMER_WHY_MAX = 200,        /* bytes of the reason of a refusal */
    MR_TIMER_REASON_MAX = 512,     /* bytes kept of why a firing was skipped or failed */
    MR_FIRING_ID_MAX = 32 + 1 + 19 + 1 + 10, /* bytes of the id of its task: "UID-PLANNED-RUN" */
};

/* The definition of a timer. Zero is the default everywhere; name and what the kind takes are needed. */
struct mr_timer_options {
    struct mr_slice app;  /* "default" */
    struct mr_slice name; /* unique within its app */
    enum mr_timer_kind kind;
    struct mr_slice expression;
    struct mr_slice tz;       /* "Europe/Berlin"; empty: UTC */
    struct mr_slice exclude;  /* days without firings */
    int64_t start_ms, end_ms; /* nothing is planned before start or after end; 0: no limit */
    int64_t jitter_ms;        /* fires up to so much later than planned */
    uint64_t times;           /* so many firings, then it is finished; 0: no limit */
    bool paused;              /* it fires nothing until it is resumed */
    enum mr_misfire misfire;
    enum mr_overlap overlap;
    uint32_t max_running; /* runs at once; 0: 1, with MR_OVERLAP_ALLOW as many as come */
    enum mr_strategy strategy;
    struct mr_slice target; /* of MR_STRATEGY_KEY and MR_STRATEGY_TAG */
    int64_t expire_ms; /* a firing that has not run so long after its time fails; 0: it waits */
    /* What each firing's task is, as in struct mr_task_options. */
    struct mr_slice queue; /* empty: the app's name */
    struct mr_slice type;
    struct mr_slice payload;
    int32_t max_retry;
    int64_t timeout_ms;
    double priority_s;
    const struct mr_header *headers;
    size_t headers_n;
};

enum mr_timer_state {
    MR_TIMER_STATE_NONE, /* no such timer */
    MR_TIMER_ACTIVE,
    MR_TIMER_PAUSED,
    MR_TIMER_FINISHED, /* nothing is planned any more */
    MR_TIMER_STATE_COUNT
};
const char *mr_timer_state_name(enum mr_timer_state state); /* NULL: no such state */

/* Everything that is known of a timer. Slices live as long as the list they came in. */
struct mr_timer_info {
    struct mr_timer_options timer; /* in its canonical form, defaults filled in */
    struct mr_slice id;            /* a UUID; a timer that is deleted and made anew has another */
    uint64_t version;              /* another one, and a higher one, with each change */
    enum mr_timer_state state;
    int64_t created_ms;
    int64_t next_ms; /* planned; 0: nothing is */
    int64_t last_ms; /* the last planned time that was fired; 0: none was */
    uint64_t firings_total;
};

enum mr_firing_state {
    MR_FIRING_NONE,       /* no such firing */
    MR_FIRING_WAITING,    /* to be dispatched: for its turn, or for the broker */
    MR_FIRING_DISPATCHED, /* it is a task */
    MR_FIRING_RUNNING,
    MR_FIRING_FAILED,
    MR_FIRING_SUCCEEDED,
    MR_FIRING_CANCELLED, /* before it ran */
    MR_FIRING_STOPPED,   /* while it ran */
    MR_FIRING_SKIPPED,   /* it never ran; reason says why */
    MR_FIRING_MISFIRED,  /* nobody was there at its time, and it was not made up for */
    MR_FIRING_STATE_COUNT
};
const char *mr_firing_state_name(enum mr_firing_state state); /* NULL: no such state */

/* Why there is a firing. */
enum mr_firing_cause {
    MR_FIRING_PLANNED,
    MR_FIRING_MANUAL,    /* somebody ran it */
    MR_FIRING_CAUGHT_UP, /* planned, but fired later than it should have been */
    MR_FIRING_CAUSE_COUNT
};
const char *mr_firing_cause_name(enum mr_firing_cause cause); /* NULL: none */

/* One row of the ledger: there is one for each planned time of a timer, or for a row of them that
 * nothing was done about. */
struct mr_firing_info {
    struct mr_slice app, timer, timer_id;
    int64_t planned_ms;
    int64_t until_ms; /* it stands for all planned times up to this one; 0: for one */
    uint32_t run;     /* 0; counts up when it is run again */
    enum mr_firing_state state;
    enum mr_firing_cause cause;
    struct mr_slice reason;                    /* why it was skipped, failed, stopped, ... */
    struct mr_slice task_id;                   /* what it has become; empty: nothing */
    uint32_t attempt;                          /* of its task */
    int64_t fired_ms, started_ms, finished_ms; /* 0: not yet */
};

/*
 * What is done to timers are operations. One is acknowledged when it is durable, in the broker's log, and
 * applied soon after, by whichever server: once, however often it arrives, and never over a newer one,
 * in whatever order they come. An operation carries the whole definition and a version, which the client
 * makes by its clock; the highest version wins.
 */
enum mr_timer_verb {
    MR_TIMER_PUT,    /* this is the timer from now on */
    MR_TIMER_DELETE, /* nothing of it is fired any more; MR_NOT_FOUND when there is none */
    MR_TIMER_RUN,    /* a firing now, beside those that are planned */
    /* The firing planned for planned_ms (0: the next one): one that runs is told to stop, one that waits or
     * has not come yet is cancelled. MR_WRONG_STATE: it is over. */
    MR_TIMER_STOP,
    MR_TIMER_RERUN, /* the firing planned for planned_ms, which failed or was stopped, runs again */
    MR_TIMER_VERB_COUNT
};
const char *mr_timer_verb_name(enum mr_timer_verb verb); /* NULL: no such verb */

/* As if_version: there must be no timer of this name. */
#define MR_TIMER_NEW UINT64_MAX

struct mr_timer_op {
    enum mr_timer_verb verb;
    const struct mr_timer_options *timer; /* MR_TIMER_PUT */
    struct mr_slice app, name;            /* all other verbs; app: "default" */
    /* MR_TIMER_PUT: of the timer that is changed, as mr_timer_get said. Empty and 0: it is a new one, which
     * takes the place of another of its name; its firings are counted from the beginning. */
    struct mr_slice id;
    int64_t created_ms;
    uint64_t if_version; /* only if the timer has this version; 0: whichever. Else MR_CONFLICT */
    int64_t planned_ms;  /* MR_TIMER_STOP, MR_TIMER_RERUN */
};

/* What became of one operation. */
struct mr_timer_result {
    /* MR_OK: done, or durable if that was waited for. Applied, or not: MR_STALE (a newer version is
     * there), MR_CONFLICT (if_version), MR_NOT_FOUND, MR_WRONG_STATE. Refused, nothing was sent: MR_INVALID,
     * MR_TOO_BIG, MR_DISK_FULL, MR_QUEUE_FULL, MR_BUSY, MR_DENIED; also MR_UNAVAILABLE and MR_TIMEOUT without
     * unknown. */
    enum mr_err err;
    bool unknown; /* the answer was lost: it may be applied or not. Sending it again does no harm */
    char operation[MR_TIMER_ID_MAX + 1]; /* its id */
    char id[MR_TIMER_ID_MAX + 1];        /* of the timer, where that is known */
    uint64_t version;                    /* that it gives the timer; MR_STALE: that is there */
    char why[MR_TIMER_WHY_MAX + 1];      /* why it was refused, in one line; or empty */
};

enum mr_timer_wait {
    MR_TIMER_APPLIED, /* until it is applied, and seen by everybody who looks */
    MR_TIMER_DURABLE, /* until it is acknowledged: it will be applied */
};

/*
 * Sends n <= MR_BATCH_MAX operations and waits. Those of one timer are in the order of the array. MR_OK: they were
 * carried out, each with its own err. When a server does not answer within answer_ms (struct
 * mr_client_options), they go to the next one of the URL, once around; then they are MR_UNAVAILABLE or
 * MR_TIMEOUT. What has not had its effect after 30 s is MR_TIMEOUT, too, and unknown. MR_TOO_BIG: several that
 * have more than 3 MiB together. MR_UNSUPPORTED: this broker has no timers.
 */
MR_MUST_USE enum mr_err mr_timer_send(struct mr_client *client, const struct mr_timer_op *ops,
                                      size_t n, enum mr_timer_wait wait,
                                      struct mr_timer_result *ret_results);

/* Called once, on a thread of the client: do little, and never call a waiting function of this API
 * from it. */
typedef void mr_timer_done(enum mr_err err, const struct mr_timer_result *results, size_t n,
                           void *arg);
/*
 * Like mr_timer_send with MR_TIMER_DURABLE, but returns at once and calls done when it is known of all n.
 * ret_ids (n entries, may be NULL) has the ids and versions, and what is refused at once. Everything is
 * copied before it returns. Keep as many under way as you like up to the client's limit; beyond it: MR_BUSY,
 * nothing sent, and done is not called.
 */
MR_MUST_USE enum mr_err mr_timer_send_async(struct mr_client *client, const struct mr_timer_op *ops,
                                            size_t n, struct mr_timer_result *ret_ids,
                                            mr_timer_done *done, void *arg);

/* One operation, applied. ret_result may be NULL; they answer its err. A put is of a new timer, or puts
 * it in the place of another. */
MR_MUST_USE enum mr_err mr_timer_put(struct mr_client *client, const struct mr_timer_options *timer,
                                     struct mr_timer_result *ret_result);
MR_MUST_USE enum mr_err mr_timer_delete(struct mr_client *client, struct mr_slice app,
                                        struct mr_slice name, struct mr_timer_result *ret_result);
MR_MUST_USE enum mr_err mr_timer_run(struct mr_client *client, struct mr_slice app,
                                     struct mr_slice name, struct mr_timer_result *ret_result);
/* These look at the timer and put it as it is, paused or not; again when somebody changed it meanwhile. */
MR_MUST_USE enum mr_err mr_timer_pause(struct mr_client *client, struct mr_slice app,
                                       struct mr_slice name, struct mr_timer_result *ret_result);
MR_MUST_USE enum mr_err mr_timer_resume(struct mr_client *client, struct mr_slice app,
                                        struct mr_slice name, struct mr_timer_result *ret_result);

/* Some timers; free it when done with its slices. */
struct mr_timer_list;
size_t mr_timer_list_count(const struct mr_timer_list *list);
const struct mr_timer_info *mr_timer_list_at(const struct mr_timer_list *list, size_t i);
/* Where the next page begins; empty when this was the last one. */
const char *mr_timer_list_next(const struct mr_timer_list *list);
void mr_timer_list_free(struct mr_timer_list *list);

struct mr_timer_list_options {
    struct mr_slice app;       /* empty: of all apps */
    enum mr_timer_state state; /* MR_TIMER_STATE_NONE: in all states */
    const char *cursor;        /* of the page before; NULL from the start */
    size_t limit;              /* 0: 50; at most MR_BATCH_MAX */
};
/* By app and name. On a Redis itself, without a server: MR_UNSUPPORTED, as for all that follow. */
MR_MUST_USE enum mr_err mr_timer_list_get(struct mr_client *client,
                                          const struct mr_timer_list_options *options,
                                          struct mr_timer_list **ret_list);
/* One timer, as a list of one. MR_NOT_FOUND. */
MR_MUST_USE enum mr_err mr_timer_get(struct mr_client *client, struct mr_slice app,
                                     struct mr_slice name, struct mr_timer_list **ret_list);
/* The next planned times from now on, up to max <= MR_BATCH_MAX; also of a paused timer. */
MR_MUST_USE enum mr_err mr_timer_next(struct mr_client *client, struct mr_slice app,
                                      struct mr_slice name, int64_t *ret_times_ms, size_t max,
                                      size_t *ret_n);

struct mr_firing_list;
size_t mr_firing_list_count(const struct mr_firing_list *list);
const struct mr_firing_info *mr_firing_list_at(const struct mr_firing_list *list, size_t i);
const char *mr_firing_list_next(const struct mr_firing_list *list);
void mr_firing_list_free(struct mr_firing_list *list);

struct mr_timer_history_options {
    struct mr_slice app, name;
    const char *cursor;
    size_t limit; /* 0: 50; at most MR_BATCH_MAX */
};
/* Its firings, newest first. */
MR_MUST_USE enum mr_err mr_timer_history(struct mr_client *client,
                                         const struct mr_timer_history_options *options,
                                         struct mr_firing_list **ret_list);

/* ---- jobs ----------------------------------------------------------------------------------- */

/*
 * A job is one big input in many parts, each of which is a task; their results are put together into one.
 * docs/jobs.md says how an input is split and how results are reduced.
 */
enum {
    MR_JOB_ID_MAX = 36,     /* bytes of the id of a job: a UUID */
    MR_JOB_STAGES_MAX = 16, /* of a job */
    MR_JOB_SPEC_MAX = 4096, /* bytes of split and of reduce */
};
#define MR_JOB_RETENTION_MS (7 * 24 * 3600000LL) /* of a job that names none */

/* What becomes of a job when a part of it has failed for good. */
enum mr_job_policy {
    MR_JOB_FAIL_FAST, /* it fails, and what of it waits or runs is cancelled */
    MR_JOB_FINISH,    /* the other parts go on; it succeeds, and says how many failed */
    MR_JOB_POLICY_COUNT
};
const char *mr_job_policy_name(enum mr_job_policy policy); /* "fail-fast"; NULL: none */

/* What a job is, beside its parts. Zero is the default everywhere. */
struct mr_job_options {
    struct mr_slice name;  /* for people; need not be unique, may be empty */
    struct mr_slice queue; /* "default" */
    /* Types of tasks, one behind the other: the result of a part in one stage is its payload in the next. None:
     * one stage of "task". */
    const struct mr_slice *stages;
    size_t stages_n;
    struct mr_slice split;  /* how an input that is not given in parts is cut; empty: "lines" */
    struct mr_slice reduce; /* what is made of the results; empty: "concat" */
    enum mr_job_policy policy;
    bool pipeline;      /* a part goes on to the next stage when it is through, not when all are */
    double priority_s;  /* seconds ahead, of the job and of its tasks */
    int32_t max_retry;  /* of a task of it, as in struct mr_task_options; as timeout_ms */
    int64_t timeout_ms; /* of one run of a task */
    int64_t retention_ms; /* kept so long after its end, with its result; 0: MR_JOB_RETENTION_MS */
    int64_t
        speculate_ms; /* the last tasks of a stage are run once more when they last longer than this, at
                             least 1 s, and what ends first counts; 0: never */
};

enum mr_job_state {
    MR_JOB_STATE_NONE, /* no such job */
    MR_JOB_CREATED,    /* nothing of it was submitted yet */
    MR_JOB_RUNNING,
    MR_JOB_SUCCEEDED, /* perhaps with parts that failed, by its policy */
    MR_JOB_FAILED,
    MR_JOB_CANCELLED,
    MR_JOB_STATE_COUNT
};
const char *mr_job_state_name(enum mr_job_state state); /* NULL: no such state */
/* MR_JOB_STATE_NONE for an unknown name. */
enum mr_job_state mr_job_state_parse(struct mr_slice name);

struct mr_job_stage {
    struct mr_slice type;
    uint64_t total, done,
        failed; /* parts: that come to it, that succeeded in it, that failed in it */
};

/* Everything that is known of a job. Slices live as long as the object they came in. */
struct mr_job_info {
    struct mr_job_options job; /* as it is kept, defaults filled in */
    struct mr_slice id;        /* a UUID */
    uint64_t version;          /* rises by one with each change */
    enum mr_job_state state;
    bool reducing;          /* MR_JOB_RUNNING: all parts have ended, the result is being made */
    struct mr_slice reason; /* why it failed; empty: it did not */
    uint64_t total;         /* parts */
    uint64_t done, failed;  /* parts that are through all stages; that failed in one of them */
    uint64_t running;       /* tasks that were submitted and have not ended */
    const struct mr_job_stage *stages;
    size_t stages_n;
    double rate;    /* ends of tasks a second, since it began */
    int64_t eta_ms; /* until the last one at this rate; -1: not known; 0 at the end */
    int64_t created_ms, started_ms, finished_ms; /* 0: not yet */
    uint64_t first_segment, last_segment;        /* of the store, that its parts are in */
    uint32_t round;                              /* so often it was retried */
    uint64_t result_bytes;
};

enum mr_part_state {
    MR_PART_WAITING,
    MR_PART_SUBMITTED, /* it is a task */
    MR_PART_DONE,
    MR_PART_FAILED,
    MR_PART_STATE_COUNT
};
const char *mr_part_state_name(enum mr_part_state state); /* NULL: no such state */

/* How a part stands: in the furthest stage that it has come to. */
struct mr_part_info {
    struct mr_slice job; /* its id */
    uint64_t index;      /* from 0 */
    uint32_t stage, round;
    enum mr_part_state state;
    struct mr_slice task_id; /* empty: it is none yet */
    struct mr_slice error;   /* MR_PART_FAILED */
    int64_t finished_ms;     /* 0: not yet */
    uint64_t segment;
};

/* Jobs: of one of mr_job_list_get, or a list of one. Free it when done with its slices. */
struct mr_job_list;
size_t mr_job_list_count(const struct mr_job_list *list);
const struct mr_job_info *mr_job_list_at(const struct mr_job_list *list, size_t i);
/* Where the next page begins; empty when this was the last one. */
const char *mr_job_list_next(const struct mr_job_list *list);
void mr_job_list_free(struct mr_job_list *list);

/*
 * Giving a job in: begun, written in pieces of any size or part by part, submitted. Until mr_job_submit has
 * answered nobody sees anything of it, and after a crash there is none, or all of it. A thread at a time.
 *
 * Jobs are with a server, or in this process, on file:DIR; of a Redis itself where a store is named
 * (struct mr_client_options), else MR_UNSUPPORTED, for every function here.
 */
struct mr_job_input;

/* MR_INVALID, MR_TOO_BIG, with detail (may be NULL, as everywhere). What options points to is copied. */
MR_MUST_USE enum mr_err mr_job_begin(struct mr_client *client, const struct mr_job_options *options,
                                     struct mr_job_input **ret_input, struct mr_detail *detail);
/* The next bytes of the input, which is cut as split says. Of "command:CMD" they are what the command has printed;
 * running it is the caller's. Waits while the store does not take more. Once it has failed it stays so. */
MR_MUST_USE enum mr_err mr_job_write(struct mr_job_input *input, struct mr_slice bytes,
                                     struct mr_detail *detail);
/* Or: the next part as a whole. Not both for one job: MR_WRONG_STATE. */
MR_MUST_USE enum mr_err mr_job_part(struct mr_job_input *input, struct mr_slice part,
                                    struct mr_detail *detail);
/* That was all: there is a job now, in ret_list (may be NULL), or why not: MR_INVALID without any part, MR_DENIED, ...
 * The input is gone in either case. MR_UNAVAILABLE: the server may have it or not. */
MR_MUST_USE enum mr_err mr_job_submit(struct mr_job_input *input, struct mr_job_list **ret_list,
                                      struct mr_detail *detail);
/* Nothing is left of it. NULL is fine. */
void mr_job_abandon(struct mr_job_input *input);

struct mr_job_list_options {
    struct mr_slice queue;   /* empty: of all queues */
    enum mr_job_state state; /* MR_JOB_STATE_NONE: in all states */
    const char *cursor;      /* of the page before; NULL from the start */
    size_t limit;            /* 0: 50; at most MR_BATCH_MAX */
};
/* Newest first. */
MR_MUST_USE enum mr_err mr_job_list_get(struct mr_client *client,
                                        const struct mr_job_list_options *options,
                                        struct mr_job_list **ret_list);
/* One job, as a list of one. MR_NOT_FOUND. */
MR_MUST_USE enum mr_err mr_job_get(struct mr_client *client, struct mr_slice id,
                                   struct mr_job_list **ret_list);
/* What waits is removed, what runs is told to stop, what ends later does not count. MR_WRONG_STATE: it has ended
 * otherwise. ret_list (may be NULL): how it is then, as of mr_job_retry. */
MR_MUST_USE enum mr_err mr_job_cancel(struct mr_client *client, struct mr_slice id,
                                      struct mr_job_list **ret_list, struct mr_detail *detail);
/* Runs the parts that failed, and those that never ran, again. MR_WRONG_STATE: there are none, or it goes on. */
MR_MUST_USE enum mr_err mr_job_retry(struct mr_client *client, struct mr_slice id,
                                     struct mr_job_list **ret_list, struct mr_detail *detail);

struct mr_part_list;
size_t mr_part_list_count(const struct mr_part_list *list);
const struct mr_part_info *mr_part_list_at(const struct mr_part_list *list, size_t i);
const char *mr_part_list_next(const struct mr_part_list *list);
void mr_part_list_free(struct mr_part_list *list);

struct mr_part_list_options {
    struct mr_slice id; /* of the job */
    unsigned states;    /* bits, 1 << state of enum mr_part_state; 0: all */
    const char *cursor;
    size_t limit; /* 0: 50; at most MR_BATCH_MAX */
};
/* By index. */
MR_MUST_USE enum mr_err mr_part_list_get(struct mr_client *client,
                                         const struct mr_part_list_options *options,
                                         struct mr_part_list **ret_list);

/* What is not MR_OK ends the watch, which answers it. The job lives during the call. */
typedef enum mr_err mr_job_seen(const struct mr_job_info *job, void *arg);
/*
 * Tells how the job is (after 0), or what came behind the version `after`; then each change, by the thread that
 * called. Returns MR_OK when the job has ended, and that was told. Goes on over a connection that breaks; MR_UNAVAILABLE
 * after 30 s without one. Who is slow is told how it is then, not every step. MR_NOT_FOUND.
 */
MR_MUST_USE enum mr_err mr_job_watch(struct mr_client *client, struct mr_slice id, uint64_t after,
                                     mr_job_seen *seen, void *arg);
/* Waits until it has ended, at most so long (0: as long as it takes), and answers it. MR_TIMEOUT, MR_NOT_FOUND. */
MR_MUST_USE enum mr_err mr_job_wait(struct mr_client *client, struct mr_slice id,
                                    int64_t timeout_ms, struct mr_job_list **ret_list);

/* A piece of it, in order; it lives during the call. What is not MR_OK ends it, and is answered. */
typedef enum mr_err mr_job_bytes(struct mr_slice bytes, void *arg);
/* The result, by the thread that called. MR_WRONG_STATE: there is none (yet), detail says why. */
MR_MUST_USE enum mr_err mr_job_result(struct mr_client *client, struct mr_slice id,
                                      mr_job_bytes *piece, void *arg, struct mr_detail *detail);

/* ---- offline -------------------------------------------------------------------------------- */

enum mr_fsck_mode { MR_FSCK_CHECK, MR_FSCK_REPAIR };

struct mr_fsck_report {
    uint64_t segments, records, tasks;
    uint64_t damaged;     /* places with damage, those that repair has dealt with apart */
    uint64_t repaired;    /* places that repair has mended or set aside */
    uint64_t bytes_aside; /* moved to the folder's quarantine by repair */
    uint64_t torn_bytes;  /* of a torn tail: not an error */
    uint64_t mismatches;  /* tasks whose own record cannot be read */
};

/* Called for each finding, one line of text. */
typedef void mr_fsck_line(const char *text, void *arg);

/* Reads every byte of a store that nobody has open, or every key of a Redis, which may be in use. MR_OK
 * also when damage was found: see the report; of a Redis it has records, tasks, damaged, repaired. */
MR_MUST_USE enum mr_err mr_fsck(const char *url, enum mr_fsck_mode mode, mr_fsck_line *line,
                                void *arg, struct mr_fsck_report *ret_report,
                                struct mr_detail *detail);

const char *mr_version(void);

#ifdef __cplusplus
}
#endif

#endif
