/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The conformance suite: what every broker must do, written against broker/broker.h alone so that
 * any engine runs it unchanged. An engine comes in as a struct conform_engine; each test gets an
 * empty store of it, opened, as a struct conform.
 *
 * Tests wait for conditions up to CONFORM_WAIT_MS and never for time to pass. Thread: the test's,
 * except for the events of nodes, which the broker's thread records under a lock.
 */
#ifndef MR_TESTS_CONFORM_H
#define MR_TESTS_CONFORM_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "broker/broker.h"

enum {
    CONFORM_WAIT_MS = 20000, /* a condition that has not come by then never will */
    CONFORM_LEASE_MS = 200,  /* of nodes that shall die */
    CONFORM_STOPS_MAX = 64,  /* stop events kept per node */
};

/* A test, or a theme, that is no part of an engine's run, by its name, and why; the last of a list has none. */
struct conform_left_out {
    const char *test, *why;
};

struct conform_engine {
    const char *name;
    void *arg;
    /* Makes an empty store and opens it. */
    enum mr_err (*open)(void *arg, struct mr_broker **ret_broker);
    /* Opens the same store again, after mr_broker_close. */
    enum mr_err (*reopen)(void *arg, struct mr_broker **ret_broker);
    /* A folder for MR_OP_BACKUP, and a second broker on the copy made there. */
    const char *(*backup_dir)(void *arg);
    enum mr_err (*open_copy)(void *arg, struct mr_broker **ret_broker);
    /* Removes everything that open and backup made, after mr_broker_close. */
    void (*clean)(void *arg);
    bool can_reopen; /* without it the durability tests are not part of the run */
    bool can_backup;
    bool has_inner; /* queues that people do not see: no server has them for its callers */
    size_t payload_max;
    bool
        splits_batches; /* tasks of one request with ids may lose their order: so each is put by itself */
    const struct conform_left_out *left_out; /* NULL: nothing is */
};

/* A node of the test and what the broker told it. */
struct conform_node {
    struct conform_node *next;
    uint64_t node;
    uint32_t first_slot;
    struct mr_lock lock;
    struct {
        uint64_t epoch;
        enum mr_stop_reason reason;
    } stops[CONFORM_STOPS_MAX];
    size_t stops_n;
};

/* One test's broker and everything to be freed with it. */
struct conform {
    const struct conform_engine *engine;
    struct mr_broker *broker;
    struct conform_node *nodes;
    struct conform_kept *kept; /* answers whose slices the test looks at */
};

/* ---- running -------------------------------------------------------------------------------- */

int conform_setup(void **state);
int conform_teardown(void **state);

#define CONFORM_TEST(function)                                                                     \
    {                                                                                              \
#function, function, conform_setup, conform_teardown, NULL                                 \
    }

/* Runs one theme on an engine; answers the number of failed tests. */
int conform_run_theme(const struct conform_engine *engine, const char *theme,
                      struct CMUnitTest *tests, size_t n);
#define CONFORM_RUN(engine, theme, tests)                                                          \
    conform_run_theme(engine, theme, tests, sizeof(tests) / sizeof((tests)[0]))

/* The themes. */
int conform_enqueue(const struct conform_engine *engine);
int conform_limits(const struct conform_engine *engine);
int conform_unique(const struct conform_engine *engine);
int conform_order(const struct conform_engine *engine);
int conform_take(const struct conform_engine *engine);
int conform_leases(const struct conform_engine *engine);
int conform_finish(const struct conform_engine *engine);
int conform_control(const struct conform_engine *engine);
int conform_queues(const struct conform_engine *engine);
int conform_list(const struct conform_engine *engine);
int conform_await(const struct conform_engine *engine);
int conform_nodes(const struct conform_engine *engine);
int conform_stats(const struct conform_engine *engine);
int conform_scheduled(const struct conform_engine *engine);
int conform_threads(const struct conform_engine *engine);
int conform_durability(const struct conform_engine *engine);
int conform_groups(const struct conform_engine *engine);
int conform_backup(const struct conform_engine *engine);
int conform_carry(const struct conform_engine *engine);
int conform_results(const struct conform_engine *engine);
int conform_partitions(const struct conform_engine *engine);
int conform_ratelimits(const struct conform_engine *engine);
int conform_leader(const struct conform_engine *engine);
int conform_retries(const struct conform_engine *engine);
int conform_past(const struct conform_engine *engine);
int conform_addresses(const struct conform_engine *engine);
int conform_inner(const struct conform_engine *engine);

/* Runs all of them, or the tests whose names fit the pattern of the first argument ("*waiter*"); answers
 * what main returns. */
int conform_main(const struct conform_engine *engine, int argc, char **argv);

/* ---- waiting -------------------------------------------------------------------------------- */

int64_t conform_wall_ms(void);
mr_mono conform_mono(void);
int64_t conform_elapsed_ms(mr_mono since);
/* Sleeps for a moment between two looks at a condition; fails the test when the time is up. */
void conform_look_again(mr_mono since, const char *what, const char *file, int line);
/* Lets ms pass where the test is about time itself. */
void conform_pass_ms(int64_t ms);

#define WAIT_UNTIL(cond)                                                                           \
    for (mr_mono since_ = conform_mono(); !(cond);)                                                \
    conform_look_again(since_, #cond, __FILE__, __LINE__)

/* ---- requests ------------------------------------------------------------------------------- */

#define assert_err(actual, expected)                                                               \
    conform_assert_err((actual), (expected), #actual, __FILE__, __LINE__)
void conform_assert_err(enum mr_err actual, enum mr_err expected, const char *what,
                        const char *file, int line);

#define assert_slice(actual, text)                                                                 \
    conform_assert_slice((actual), mr_slice_str(text), #actual, __FILE__, __LINE__)
#define assert_slices(actual, expected)                                                            \
    conform_assert_slice((actual), (expected), #actual, __FILE__, __LINE__)
void conform_assert_slice(struct mr_slice actual, struct mr_slice expected, const char *what,
                          const char *file, int line);

/* Enqueues n tasks; the request itself must succeed. */
void conform_put_all(struct conform *t, const struct mr_task_options *tasks, size_t n,
                     struct mr_enqueue_result *results);
struct mr_enqueue_result conform_put_one(struct conform *t, const struct mr_task_options *task);
/* As above with the options written in place; PUT_OK asserts the item and answers its id. */
#define PUT(t, ...)    conform_put_one(t, &(struct mr_task_options){__VA_ARGS__})
#define PUT_OK(t, ...) conform_put_ok(t, &(struct mr_task_options){__VA_ARGS__})
/* The id lives until the test ends. */
const char *conform_put_ok(struct conform *t, const struct mr_task_options *task);
/* n tasks with ids prefix0, prefix1, ... in this queue. */
/* So many, or a share of them where MR_CONFORM_PART says how small: what takes long where somebody stands between. */
size_t conform_many(size_t n);
void conform_put_many(struct conform *t, const char *queue, const char *prefix, size_t n);

/* queues: "a=6 b=3 c"; types: "mail:* ping"; at most 8. */
struct conform_node_options {
    const char *name;   /* "node" */
    const char *queues; /* "default" */
    const char *types;  /* everything */
    const char *topics; /* it is a master of these, and has no queues */
    enum mr_queue_order order;
    uint32_t slots;    /* 16 */
    int64_t lease_ms;  /* 0: too long to end within a test */
    int64_t leader_ms; /* not 0: it is a candidate, and leads so long */
    int64_t fall_ms;   /* what is addressed to others falls to it then; 0: never */
    bool inner;        /* its queues are inner ones */
};
struct conform_node *conform_node_open(struct conform *t, const struct conform_node_options *o);
#define NODE(t, ...) conform_node_open(t, &(struct conform_node_options){__VA_ARGS__})
/* The stop event; arg is the struct conform_node. */
void conform_node_stop(uint64_t epoch, enum mr_stop_reason reason, void *arg);
enum mr_err conform_node_close(struct conform *t, const struct conform_node *node);
enum mr_err conform_beat(struct conform *t, const struct conform_node *node);
bool conform_was_stopped(struct conform_node *node, uint64_t epoch, enum mr_stop_reason reason);

/* A take that is under way on the broker's side. */
struct conform_take {
    struct mr_req_take req;
    struct mr_event done;
    mr_mono done_at;
};
void conform_take_start(struct conform *t, struct conform_take *take,
                        const struct conform_node *node, size_t max, int64_t wait_ms);
/* The same, with what stands in req. */
void conform_take_submit(struct conform *t, struct conform_take *take);
/* Waits for its answer; opens the leases. */
enum mr_err conform_take_end(struct conform *t, struct conform_take *take);

/* Takes up to max; answers the list, NULL when MR_EMPTY. */
struct mr_lease *conform_take_list(struct conform *t, const struct conform_node *node, size_t max,
                                   int64_t wait_ms, size_t *ret_n);
/* One task, waiting for it as long as it takes. */
struct mr_lease *conform_take_one(struct conform *t, const struct conform_node *node);
/* Asserts that there is nothing to take. */
void conform_take_none(struct conform *t, const struct conform_node *node);
/* Takes one and asserts that it is this task; gives the lease back to the test. */
struct mr_lease *conform_take_id(struct conform *t, const struct conform_node *node,
                                 const char *id);

/* Ends the run; the lease stays the test's. */
enum mr_err conform_finish_one(struct conform *t, const struct mr_lease *lease,
                               struct mr_finish item);
#define FINISH(t, lease, ...) conform_finish_one(t, lease, (struct mr_finish){__VA_ARGS__})
/* Ends the run, which must be accepted, and frees the lease. */
#define FINISH_OK(t, lease, ...)                                                                   \
    conform_finish_ok(t, lease, (struct mr_finish){__VA_ARGS__}, __FILE__, __LINE__)
void conform_finish_ok(struct conform *t, struct mr_lease *lease, struct mr_finish item,
                       const char *file, int line);
/* Ends every run of a list with one request and frees the leases. */
void conform_finish_list(struct conform *t, struct mr_lease *leases, enum mr_outcome outcome);

/* NULL when there is no such task; slices live until the test ends. */
const struct mr_task *conform_get(struct conform *t, const char *id);
enum mr_state conform_state(struct conform *t, const char *id);
/* The list of nodes, who leads, and what is assigned; it lives until the test ends. */
const struct mr_req_node_list *conform_node_list(struct conform *t);
/* All nodes; slices live until the test ends. */
const struct mr_node_info *conform_list_nodes(struct conform *t, size_t *ret_n);
enum mr_err conform_act(struct conform *t, enum mr_verb verb, const char *id, double value);

/* One page; tasks live until the test ends. */
struct conform_page {
    enum mr_err err;
    const struct mr_task *tasks;
    size_t n;
    const char *next;
};
struct conform_page conform_list_page(struct conform *t, const struct mr_list_options *options);
#define PAGE(t, ...) conform_list_page(t, &(struct mr_list_options){__VA_ARGS__})

enum mr_err conform_queue_get(struct conform *t, const char *queue, struct mr_queue_info *info);
struct mr_queue_info conform_queue(struct conform *t, const char *queue);
enum mr_err conform_queue_set(struct conform *t, const char *queue, enum mr_queue_setting setting,
                              uint64_t value);
enum mr_err conform_queue_remove(struct conform *t, const char *queue,
                                 enum mr_queue_remove_mode mode);
struct mr_stats conform_stats_now(struct conform *t);

/* Closes the broker and opens the same store again; nodes and leases of before are gone. */
void conform_reopen(struct conform *t);

/* Puts a task of this id into a state by the shortest way, in the queue "default". */
void conform_make_state(struct conform *t, const char *id, enum mr_state state);

#endif
