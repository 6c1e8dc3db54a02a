/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The oracle: one judge of the invariants for every harness (simulator, crash points, bit rot,
 * kill).
 *
 * It is told what was asked and what was answered, and knows for each task which fates are
 * possible: waiting or running (live), archived, completed, gone. A request without an answer may
 * or may not have happened; an answer narrows the fates, and so does a listing, because an answer
 * is given only when all it rests on is durable. A crash keeps exactly the fates that were possible
 * at that moment.
 *
 * Checked: no acknowledged task is lost; nothing ended or unknown appears; one state per task and
 * counters that equal a recount; epochs rise for ever; one accepted outcome per epoch and none from
 * an old one; failures and crashes add up; one live task per unique key; payloads, headers,
 * settings, results and errors are byte for byte what was sent; a task is in a partition that its queue
 * has, the one that was named, and stays there; first hand-outs come in the order of submission and of
 * priority within a partition; nothing early; nothing from a paused queue or a group; members of a set
 * go when its task comes, and not without it; each accepted end of a run of a task with a topic has left
 * one result, which stays until it is committed, once; an end that somebody
 * waited for and was told of is durable. A clock that jumps takes none of this away, except for what
 * was under way when it did.
 *
 * The first violation is kept as text; nothing aborts, so a test can plant a bug and see it caught.
 * A task is known by its token: its place in the oracle, carried in its id or in its payload.
 * Thread: one.
 */
#ifndef MR_TESTS_ORACLE_H
#define MR_TESTS_ORACLE_H

#include "broker/broker.h"
#include "broker/result.h"

struct oracle;
struct result_row;

enum {
    ORACLE_KEYS_MAX = 8,
    ORACLE_GROUPS_MAX = 3,
    ORACLE_MEMBERS_MAX = 8, /* of a set */
    ORACLE_HEADER_SETS = 4,
    ORACLE_NOTE_MIN = 48, /* bytes of a result or error */
    ORACLE_NOTE_MAX = 2048,
};

/* What was asked of a task. The payload follows from token and payload_len. */
struct oracle_spec {
    char id[40]; /* empty: the engine makes one, and then payload_len >= 8 */
    char queue[16], type[16];
    size_t payload_len;
    double priority_s;
    int64_t delay_ms;
    int32_t max_retry; /* as for mr_task_options: 0 is the default */
    int64_t retention_ms, deadline_ms, timeout_ms;
    uint32_t headers; /* which set of headers (and, but for 0, a topic); below ORACLE_HEADER_SETS */
    uint32_t unique;  /* number of the unique key; 0: none */
    bool unique_forever; /* its time to live is beyond the end of the test */
    enum mr_on_duplicate on_duplicate;
    uint32_t group;     /* number of the group; 0: none */
    uint32_t partition; /* that it goes into; 0: not said */
    uint32_t key;       /* number of the key that leads there, to ORACLE_KEYS_MAX; 0: none */
};

/* A request on one task that is on its way; the caller keeps it between sent and answered. */
struct oracle_op {
    uint32_t token;
    uint8_t adds; /* fates it may bring */
    bool old;     /* finish: a newer epoch was handed out before it was sent */
    bool ended;   /* finish: the task had surely ended before it was sent */
    bool must;    /* finish: the lease is surely alive */
    enum mr_outcome outcome;
    enum mr_verb verb;
    uint64_t epoch, seq;
    uint32_t era;                  /* of the clock, when it was sent */
    uint32_t retried, retried_max; /* finish: of the lease */
    uint32_t note_len;             /* finish: of its result or error */
    int64_t sent_ms;
    int64_t not_before_ms; /* finish: the earliest next start */
};

/* A set on its way to become a task; the caller keeps it between sent and answered. */
struct oracle_gathered {
    uint32_t members[ORACLE_MEMBERS_MAX];
    size_t n;
    uint32_t made;       /* token of the task, which has an id of the engine's */
    struct oracle_op op; /* its enqueue */
    uint64_t number;     /* the oracle's; 0: it is over */
    bool crashed;        /* whether it happened shows in the next life, all of it or nothing */
};

/* What the whole store shows at one moment. */
struct oracle_view {
    const struct mr_task *tasks; /* of every state, with payload */
    size_t tasks_n;
    const struct mr_queue_info *queues;
    size_t queues_n;
    const struct mr_stats *stats; /* NULL: not asked */
};

enum oracle_crash {
    ORACLE_KILLED,    /* whatever the process had written is there */
    ORACLE_POWER_CUT, /* only what was synced */
    ORACLE_UNSEEN,    /* killed, and we may not have heard of the last runs that began */
};

struct oracle *oracle_new(void);
struct oracle *oracle_clone(const struct oracle *oracle);
void oracle_free(struct oracle *oracle);
/* The first violation, or NULL. */
const char *oracle_error(const struct oracle *oracle);
/* Reports a violation found by a harness. */
void oracle_fail(struct oracle *oracle, const char *fmt, ...) MR_PRINTF(2, 3);

/* The wall clock, whenever it moves. */
void oracle_time(struct oracle *oracle, int64_t wall_ms);
/* It jumps, from the time told last. */
void oracle_clock_jumped(struct oracle *oracle);
/* Order and times are not known well enough to this harness to be judged. */
void oracle_ignore_order(struct oracle *oracle);
/* There was too little space: results and errors may be missing, but never wrong. */
void oracle_short_of_space(struct oracle *oracle);

/* ---- producing */
/* Registers a task that may be enqueued any number of times; its token. */
uint32_t oracle_add(struct oracle *oracle, const struct oracle_spec *spec);
uint32_t oracle_count(const struct oracle *oracle); /* tokens are 0 .. count - 1 */
const struct oracle_spec *oracle_spec(const struct oracle *oracle, uint32_t token);
/* Fills options from the spec; payload is the caller's memory of payload_len bytes. Queue, type and
 * id are the oracle's, until the next oracle_add. */
void oracle_options(const struct oracle *oracle, uint32_t token, uint8_t *payload,
                    struct mr_task_options *ret_options);
/* The same as it must be shown: what does not change in the life of the task. */
void oracle_task(const struct oracle *oracle, uint32_t token, uint8_t *payload,
                 struct mr_task *ret_task);
void oracle_enqueue_sent(struct oracle *oracle, uint32_t token, struct oracle_op *ret_op);
void oracle_enqueue_answered(struct oracle *oracle, const struct oracle_op *op, enum mr_err err,
                             const struct mr_enqueue_result *result);

/* The topic of the task; empty: none. */
const char *oracle_topic(const struct oracle_spec *spec);

/* ---- results */
/* One that was handed out, opened; NULL after a violation. Valid until the next lease of a task. */
struct result_row *oracle_result(struct oracle *oracle, const struct mr_lease *lease);
/* The same again, without a judgement. */
struct result_row *oracle_result_known(struct oracle *oracle, const struct mr_lease *lease);
/* It is being committed; and how that was answered. */
void oracle_commit_sent(struct result_row *row);
void oracle_committed(struct oracle *oracle, struct result_row *row, enum mr_err err);
/* Between these all that are there are handed out, once. */
void oracle_results_begin(struct oracle *oracle);
void oracle_results_end(struct oracle *oracle);

/* ---- working */
/* The token of an opened lease, or UINT32_MAX after a violation. */
uint32_t oracle_leased(struct oracle *oracle, const struct mr_lease *lease);
void oracle_begun(struct oracle *oracle, uint32_t token, uint64_t epoch);
/* The result or error that the run under this epoch leaves, if any: len bytes of text. */
void oracle_note(uint32_t token, uint64_t epoch, size_t len, char *ret_text);
void oracle_finish_sent(struct oracle *oracle, uint32_t token, const struct mr_finish *finish,
                        bool alive, struct oracle_op *ret_op);
/* Its node was told that this lease is over. */
void oracle_lease_lost(struct oracle *oracle, uint64_t epoch);
void oracle_finish_answered(struct oracle *oracle, const struct oracle_op *op, enum mr_err err);

/* ---- groups */
/* The name of its group, or "". */
const char *oracle_group(const struct oracle_spec *spec);
/* A gather showed this task. */
void oracle_in_set(struct oracle *oracle, uint32_t token, uint32_t version);
void oracle_gathered_sent(struct oracle *oracle, struct oracle_gathered *gathered);
void oracle_gathered_answered(struct oracle *oracle, const struct oracle_gathered *gathered,
                              enum mr_err err, const struct mr_enqueue_result *result);

/* ---- control */
void oracle_control_sent(struct oracle *oracle, uint32_t token, enum mr_verb verb,
                         struct oracle_op *ret_op);
void oracle_control_answered(struct oracle *oracle, const struct oracle_op *op, enum mr_err err);
void oracle_remove_sent(struct oracle *oracle, const char *queue, struct oracle_op *ret_op);
void oracle_remove_answered(struct oracle *oracle, const char *queue, const struct oracle_op *op,
                            enum mr_err err);
void oracle_pause_sent(struct oracle *oracle, const char *queue);
void oracle_pause_answered(struct oracle *oracle, const char *queue, bool paused, enum mr_err err);
/* The number of its partitions is set. */
void oracle_split_sent(struct oracle *oracle, const char *queue);
void oracle_split_answered(struct oracle *oracle, const char *queue, uint32_t n, enum mr_err err);

/* What becomes of its retries is set. */
void oracle_mode_sent(struct oracle *oracle, const char *queue);
void oracle_mode_answered(struct oracle *oracle, const char *queue, enum mr_retry_mode mode,
                          enum mr_err err);

/* ---- crashes and checks */
/* A broker that answers so has to be opened again, and only then is known what became of it. */
static inline bool is_doubt(enum mr_err err)
{
    return err == MR_IO || err == MR_CLOSED;
}

void oracle_crashed(struct oracle *oracle, enum oracle_crash kind);
/* One answer about one task: MR_OK with the task, or MR_NOT_FOUND. version is that of the task when
 * it was asked for; if more was heard since, the answer may be older than that and only its bytes
 * are judged. */
uint32_t oracle_version(const struct oracle *oracle, uint32_t token);
void oracle_saw(struct oracle *oracle, uint32_t token, uint32_t version, enum mr_err err,
                const struct mr_task *task);
/* The same for an answer about its end, which is durable: it stays ended unless somebody makes it run,
 * or makes it again. */
void oracle_awaited(struct oracle *oracle, uint32_t token, uint32_t version, enum mr_err err,
                    const struct mr_task *task);
void oracle_check(struct oracle *oracle, const struct oracle_view *view);
/* The store has stopped: what nobody was changing must still be shown, and nothing wrong. */
void oracle_check_stopped(struct oracle *oracle, const struct oracle_view *view);
/* Only that somebody asked for it and its bytes are right, whatever its state. */
void oracle_check_task_body(struct oracle *oracle, const struct mr_task *task);
/* After the heal phase: nothing may wait any more. */
void oracle_check_idle(struct oracle *oracle, const struct oracle_view *view);
/* Of whatever was heard since `before` was cloned from it, everything is possible: for judging a
 * copy of the store that was made somewhere in between. */
void oracle_forget_since(struct oracle *oracle, const struct oracle *before);
/* n reads more may fail. Each may send one task to the archive, or show it as damaged for once; no
 * other may suffer. */
void oracle_reads_fail(struct oracle *oracle, uint32_t n);
/* There is damage: tasks may be missing, or shown without a type, but nothing may be wrong. */
void oracle_allow_loss(struct oracle *oracle);
/* Everything that must be equal between two recoveries of the same store. */
uint64_t oracle_digest(const struct oracle_view *view);

/* For choosing what to do: whether the task is surely there, in a state nobody is changing; its
 * id. */
bool oracle_is_settled(const struct oracle *oracle, uint32_t token);
bool oracle_may_live(const struct oracle *oracle, uint32_t token);
bool oracle_may_be_gone(const struct oracle *oracle, uint32_t token);
const char *oracle_id(const struct oracle *oracle, uint32_t token); /* empty while unknown */
/* UINT32_MAX when nobody asked for it. */
uint32_t oracle_token(const struct oracle *oracle, const struct mr_task *task);

#endif
