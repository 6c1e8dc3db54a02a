/* SPDX-License-Identifier: Apache-2.0 */
/* Inside of the oracle: shared by the recording (oracle.c) and the judging of views
 * (oracle_check.c). */
#ifndef MR_TESTS_ORACLE_INT_H
#define MR_TESTS_ORACLE_INT_H

#include "sim/oracle.h"

/* Fates of a task, as bits. */
enum { GONE = 1, LIVE = 2, ARCHIVED = 4, COMPLETED = 8, FATES = 4 };

/* A count that is known, or known to lie within. */
struct range {
    uint32_t min, max;
};

/* The last result or error that was accepted. */
struct note {
    bool known, is_result;
    uint32_t len;
    uint64_t epoch;
};

struct fact {
    struct oracle_spec spec;
    char id[MR_ID_MAX + 1];
    uint8_t sure;           /* fates possible by what was answered */
    uint8_t adds[FATES];    /* requests under way that may bring each */
    bool cancelled, doomed; /* told to stop, or to go, while running */
    bool plain;             /* never delayed, failed or moved: hand-outs come in order */
    bool open;              /* the newest lease was not ended by an answer we saw */
    bool begun;             /* its run began */
    bool finish_under_way;
    bool in_doubt;  /* its last change may never become durable in this life */
    bool keyless;   /* left the archive, without its unique key */
    bool completed; /* ended well in this life, with retention */
    bool reordered; /* its priority may have been changed */
    bool grouped;   /* surely waits in its group: nobody has moved it */
    uint32_t part;  /* its partition; 0: not known */
    bool announced; /* may have been handed out before its enqueue was answered */
    uint8_t enqueues, controls, removals; /* requests of these kinds under way */
    uint64_t sent_seq;                    /* of the first enqueue under way */
    int64_t sent_ms;                      /* when that was sent */
    uint32_t sent_era;                    /* and by which clock */
    uint32_t era;                         /* the clock that gave its order time */
    int64_t order_min_ms, order_max_ms;   /* which lies within these */
    struct note note;
    int64_t born_ms;   /* when the enqueue that made it was sent */
    uint64_t epoch;    /* of the newest lease */
    uint64_t accepted; /* the newest epoch with an accepted outcome */
    uint64_t lost;     /* the newest epoch of which its node was told that it is over */
    uint64_t seq;      /* order of submission */
    struct range retried, crashes;
    uint32_t unseen;       /* crashes that a power cut could still undo, within crashes.min */
    int64_t not_before_ms; /* the earliest start */
    int64_t ended_ms;      /* when a finish with retention was sent first */
    uint32_t version;      /* rises with all that is heard of it */
    bool quarantined;      /* counted in the oracle's */
    bool seen;             /* scratch of a check */
};

enum { ORACLE_GATHERED_MAX = 32, ORACLE_QUEUES_MAX = 32, ORACLE_UNIQUE_SHORT_MS = 5000 };

struct queue_fact {
    char name[16];
    bool paused, running; /* surely; neither while unknown */
    uint32_t pauses;      /* requests under way */
    uint32_t parts;       /* partitions; 0: not known */
    uint32_t splits;      /* requests under way that may change that */
    uint64_t parts_seq;   /* it holds for what was sent behind this */
    enum mr_retry_mode mode;
    bool mode_doubt;  /* nobody knows */
    uint32_t modes;   /* requests under way that may change it */
    struct last_out { /* by partition and priority: the newest plain task handed out first */
        uint32_t part;
        double priority;
        uint64_t seq;
        uint32_t token, era; /* and the clock it came by */
    } lasts[64];
    size_t lasts_n;
    bool seen; /* scratch of a check */
};

/* A run of a task with a topic, and what became of its result. */
struct result_row {
    uint32_t token, note_len;
    uint64_t epoch;
    uint8_t sent; /* outcomes, as bits */
    bool accepted, committed, doubtful, seen;
    bool undecided;              /* a crash came upon the one good end that was sent */
    enum mr_outcome outcome;     /* that was accepted */
    enum mr_result_outcome left; /* seen */
};

struct oracle {
    struct fact *facts;
    size_t n, cap;
    struct result_row *results;
    size_t results_n, results_cap;
    bool counts_results; /* all that are there are being looked at */
    struct queue_fact queues[ORACLE_QUEUES_MAX];
    size_t queues_n;
    uint64_t seq;
    uint64_t epoch_max, epoch_floor; /* ever, and when the last life ended */
    int64_t now_ms, wall_max_ms;
    uint32_t era; /* how often the clock jumped */
    bool unordered, allow_loss, short_of_space;
    uint32_t reads_failed; /* at most */
    uint32_t quarantined;  /* tasks that cannot be in the archive for another reason */
    struct oracle_gathered gathered[ORACLE_GATHERED_MAX]; /* without an answer so far */
    uint64_t gathered_n;
    bool failed;
    char error[512];
};

struct fact *fact_at(struct oracle *oracle, uint32_t token);
/* The token of a task by what it carries; UINT32_MAX when nobody asked for it. */
uint32_t token_of(const struct oracle *oracle, const struct mr_task *task);
uint8_t may(const struct oracle *oracle, const struct fact *fact);
/* Requests that may bring these fates come (1) or are answered (-1). */
void fact_add(struct fact *fact, uint8_t fates, int by);
bool fact_busy(const struct fact *fact);
/* The enqueue was carried out. */
void fact_begin(struct oracle *oracle, struct fact *fact);
uint32_t retry_limit(const struct oracle_spec *spec);
/* Failures and crashes may have begun to count anew. */
void fact_forget_counts(struct fact *fact);
struct queue_fact *queue_at(struct oracle *oracle, const char *name);
/* How many partitions a queue has may change from now on; and no longer, n of them (0: not known). */
void parts_unsettled(struct oracle *oracle, const char *queue);
/* n: as many as there are now; 0: nobody knows. What is in doubt stays unsettled: as it is shown now it need not be
 * after the next start. */
void parts_settled(struct oracle *oracle, const char *queue, uint32_t n, enum mr_err err);
void parts_crashed(struct oracle *oracle);
/* Its enqueue was carried out; false: where it went may have changed since. Or it was refused. */
bool part_begins(struct oracle *oracle, struct fact *fact);
void part_refused(struct oracle *oracle, const struct oracle_op *op);
void check_part(struct oracle *oracle, uint32_t token, const struct mr_task *task);
void check_parts(struct oracle *oracle, struct queue_fact *queue, uint32_t shown);
/* What becomes of retries may change from now on; and no longer. */
void mode_unsettled(struct oracle *oracle, const char *queue);
void mode_settled(struct oracle *oracle, const char *queue, enum mr_err err,
                  enum mr_retry_mode mode);
void modes_crashed(struct oracle *oracle);
void check_mode(struct oracle *oracle, struct queue_fact *queue, enum mr_retry_mode shown);
/* A task of this queue that fails now surely waits for its delay. */
bool retries_wait(struct oracle *oracle, const char *queue);
/* All that it carries is what was sent. */
void check_body(struct oracle *oracle, uint32_t token, const struct mr_task *task);
/* Result and error are those of its runs. */
void check_note(struct oracle *oracle, uint32_t token, const struct mr_task *task);
void check_counts(struct oracle *oracle, uint32_t token, const struct mr_task *task);
bool same_key(const struct oracle_spec *a, const struct oracle_spec *b);
/* Whether they happened is not known; a view of the next life tells. */
void gathered_crashed(struct oracle *oracle);
void check_gathered(struct oracle *oracle);
/* The epoch of a run of this task that may have left the text; 0: none. */
uint64_t note_epoch(uint32_t token, struct mr_slice text);
/* Something else than a crash may have ended it, or made it again. */
void results_touched(struct oracle *oracle, uint32_t token);
void results_leased(struct oracle *oracle, uint32_t token, uint64_t epoch);
void results_sent(struct oracle *oracle, const struct oracle_op *op);
void results_accepted(struct oracle *oracle, const struct oracle_op *op);
/* Before the facts of the tasks are: whether a run has ended shows in the next life, with its result or
 * not at all. */
void results_crashed(struct oracle *oracle);
uint8_t fate_of(enum mr_state state);
void payload_fill(uint32_t token, uint8_t *payload, size_t len);

#endif
