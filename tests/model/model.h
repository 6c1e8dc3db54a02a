/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The naive model of a broker: plain arrays, every question answered by looking at everything. It
 * says what the answer to each request must be, and what the whole state must look like. Only the
 * choice between queues of a weighted node, and between partitions, is left open: there the model checks
 * what it is told.
 *
 * Times of the test are chosen so that nothing falls due at the moment of a request: the clock
 * stands at multiples of MODEL_TICK_MS, what is due lies between them.
 */
#ifndef MR_TESTS_MODEL_H
#define MR_TESTS_MODEL_H

#include "broker/broker.h"

enum {
    MODEL_TICK_MS = 10,
    MODEL_DOUBT_MS = 50, /* a node lives so much longer than its lease */
    MODEL_QUEUES = 4,
    MODEL_TYPES = 2,
    MODEL_NODES = 6,
    MODEL_SLOTS = 4,
    MODEL_TASKS_MAX = 900,
    MODEL_TEXT_MAX = 64,
    MODEL_UNIQUE_KEYS = 12,
    MODEL_GROUPS = 3,
    MODEL_PARTS = 5,
    MODEL_RESULTS_MAX = 4096,
    MODEL_KEYS = 8,                     /* that lead to partitions, and have limits */
    MODEL_LIMIT_NAMES = 1 + MODEL_KEYS, /* 0: each */
    MODEL_TIMES_MAX = 64,
};

#define MODEL_TOPIC "topic"

extern const char *const model_queue_names[MODEL_QUEUES];
extern const char *const model_type_names[MODEL_TYPES];

struct model_task {
    char id[MODEL_TEXT_MAX];
    uint64_t seq; /* order of creation */
    unsigned queue, type;
    unsigned group;     /* 0: none */
    unsigned part;      /* its partition, from 0 */
    unsigned partition; /* that its producer named, from 1; 0: none */
    unsigned part_key;  /* number of the key that leads to it; 0: none */
    enum mr_state state;
    uint32_t payload_seed;
    size_t payload_len;
    int64_t priority_ms;
    int64_t order_ms; /* order time: while pending, or once it is again */
    int64_t due_ms;   /* while scheduled or waiting for a retry */
    int64_t created_ms, started_ms, finished_ms, failed_ms;
    int64_t expires_ms; /* while completed */
    uint32_t retried, crashes, max_retry;
    int64_t timeout_ms, deadline_ms, retention_ms;
    unsigned unique;      /* number of the key it holds; 0: none */
    unsigned unique_said; /* the key it was enqueued with */
    int64_t unique_until_ms;
    uint64_t epoch; /* of the last lease */
    int node;       /* while active */
    bool was_retry; /* ... it was taken out of a class of retries */
    uint64_t begun; /* last epoch whose run began, whatever its slot does now */
    char last_error[MODEL_TEXT_MAX], result[MODEL_TEXT_MAX];
    bool cancel;
    uint64_t set; /* number of the set it is in; 0: none */
    int64_t set_until_ms;
    bool held;  /* carried here, and not released */
    bool moved; /* only its trace is here */
    bool topic; /* its runs leave results */
};

/* What a run has left, and nobody has committed. */
struct model_result {
    char id[MODEL_TEXT_MAX], text[MODEL_TEXT_MAX];
    enum mr_result_outcome outcome;
    uint32_t attempt;
    bool final, cancel;
};

struct model_rule {
    uint32_t rate, concurrency; /* 0: no limit */
    int64_t rate_ms;
    int64_t used_until_ms; /* the rate counts as used up: of a start */
};

/* When tasks were handed out, oldest first. */
struct model_times {
    int64_t at_ms[MODEL_TIMES_MAX];
    size_t n;
};

struct model_limits {
    struct model_rule rules[MR_LIMIT_SCOPE_COUNT][MODEL_LIMIT_NAMES];
    struct model_times times[MR_LIMIT_SCOPE_COUNT][MODEL_LIMIT_NAMES];
    int64_t taken_ms; /* the last one of the queue */
};

struct model_queue {
    bool exists, paused;
    struct model_limits limits;
    uint64_t max_length; /* of each partition */
    unsigned more_parts; /* beside the first one */
    enum mr_assign assign;
    enum mr_retry_mode retry_mode;
    int64_t retry_wait_ms;  /* 0: the usual */
    int64_t class_since_ms; /* retries that fall due from then on have a class of their own */
    unsigned turn;          /* partition that is next for tasks that may go into any */
    uint64_t processed, failed;
    int64_t day; /* that the next two count */
    uint64_t processed_day, failed_day;
};

struct model_node {
    bool open;
    uint64_t node;
    uint32_t first_slot;
    uint64_t slots[MODEL_SLOTS]; /* epoch whose run has begun there */
    unsigned queues[MODEL_QUEUES];
    size_t queues_n;
    enum mr_queue_order order;
    int64_t lease_ms, dead_at_ms;
};

struct model {
    int64_t now_ms;
    struct model_task tasks[MODEL_TASKS_MAX]; /* by seq */
    size_t tasks_n;
    uint64_t last_seq, last_epoch;
    struct model_result results[MODEL_RESULTS_MAX]; /* in any order: several end at once */
    size_t results_n;
    struct model_queue queues[MODEL_QUEUES];
    struct model_node nodes[MODEL_NODES];
    uint64_t deleted, expired, stale, gathered;
    uint64_t last_set;
};

/* Lets everything happen that is due up to then, in the order of its time. */
void model_advance(struct model *model, int64_t now_ms);

void model_remove(struct model *model, struct model_task *task);
/* NULL when there is none. */
struct model_task *model_find(struct model *model, struct mr_slice id);
/* Keys hold within a queue. */
struct model_task *model_holder(struct model *model, unsigned queue, unsigned unique);

/* Carries out one enqueue. task: what is asked, id empty when the broker makes one. The answer's id
 * stays empty then, and the new task is the last of tasks. */
struct mr_enqueue_result model_put(struct model *model, const struct model_task *task,
                                   int64_t delay_ms, int64_t unique_ms,
                                   enum mr_on_duplicate on_duplicate);

/* The same without any check: there is room, and nobody has its id or key. */
struct model_task *model_add(struct model *model, const struct model_task *task, int64_t delay_ms,
                             int64_t unique_ms);

/* How many there are, how many tasks count for their greatest length, and which one's turn it is. */
unsigned model_parts(const struct model *model, unsigned queue);
uint64_t model_waiting(const struct model *model, unsigned queue, unsigned part);
bool model_full(const struct model *model, unsigned queue, unsigned part);
unsigned model_in_turn(struct model *model, unsigned queue);
/* Whose turn it is follows from how many tasks came. */
void model_parts_restarted(struct model *model, unsigned queue);
/* Where a new task goes; false: there is no such partition. */
bool model_choose(struct model *model, struct model_task *task, bool *ret_in_turns);
/* What is in those that go moves. */
void model_set_parts(struct model *model, unsigned queue, unsigned n);

/* Whether this may be the answer to a gather, and if so makes the set, whose number is last_set. NULL,
 * or what is wrong. */
const char *model_gather(struct model *model, unsigned queue, const struct mr_req_gather *got);
/* The set becomes this task, or goes back for NULL; MR_STALE in *ret_err when it is not there. */
struct mr_enqueue_result model_gathered(struct model *model, uint64_t set,
                                        const struct model_task *task, int64_t delay_ms,
                                        int64_t unique_ms, enum mr_err *ret_err);
void model_set_back(struct model *model, uint64_t set);

/* Whether a take of this node may answer this task now, and if so takes it. NULL, or what is wrong.
 */
const char *model_take(struct model *model, int node, struct mr_slice id, uint64_t epoch);
/* Whether a take of this node finds nothing. */
bool model_nothing_for(struct model *model, int node);

enum mr_err model_finish(struct model *model, const struct mr_finish *item);
/* The same as that; NULL: there is none. It goes when it is committed. */
struct model_result *model_result(struct model *model, const struct mr_result *got);
void model_commit(struct model *model, struct model_result *result);
enum mr_err model_act(struct model *model, const struct mr_control *item);
void model_node_lost(struct model *model, int node);
enum mr_err model_queue_set(struct model *model, unsigned queue, enum mr_queue_setting setting,
                            uint64_t value);
enum mr_err model_queue_remove(struct model *model, unsigned queue, enum mr_queue_remove_mode mode);
uint64_t model_count(const struct model *model, unsigned queue, enum mr_state state);
/* Of these, how many are held; MR_STATE_NONE: in any state. */
uint64_t model_held(const struct model *model, unsigned queue, enum mr_state state);
/* The task goes and comes back as it was, as a new one that is held. */
void model_carried(struct model *model, struct model_task *task);
/* A power cut also forgets which runs had begun. */
enum model_death { MODEL_KILLED, MODEL_POWER_CUT };
/* The process died: every node is gone, figures of the opening start again. */
void model_restarted(struct model *model, enum model_death death);
/* After a power cut: the crash of this task, which waits again, was counted after all. */
void model_crashed(struct model *model, struct model_task *task);

/* Limits. Whether one may be handed out now; one was; a rule of this name (0: each) changes. */
bool model_is_limited(const struct model *model, unsigned queue);
bool model_may_go(struct model *model, const struct model_task *task);
void model_limits_took(struct model *model, const struct model_task *task);
void model_limit_set(struct model *model, unsigned queue, const struct mr_req_queue_set *req,
                     unsigned name);
void model_limits_restarted(struct model *model, unsigned queue, enum model_death death);

/* Deterministic bytes of a payload. */
void model_payload(uint32_t seed, uint8_t *bytes, size_t len);

/* NULL when the task a broker shows is the model's, or what differs. */
const char *model_differs(const struct model_task *want, const struct mr_task *got,
                          bool with_payload);

#endif
