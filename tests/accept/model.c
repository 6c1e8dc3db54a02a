/* SPDX-License-Identifier: Apache-2.0 */
/* Test 10: random operations, and after each some look at what the broker shows, against a model. */
#include <stdio.h>

#include "accept/accept.h"
#include "accept/hand.h"
#include "base/rand.h"

enum { QUEUES = 3, CHECK_EVERY = 10, HELD_MAX = 20 };

static const char *const queues[QUEUES] = {"red", "green", "blue"};

struct model_task {
    char id[32];
    size_t queue;
    enum mr_state state;
    int64_t order_ms;
    bool flagged; /* somebody wanted to delete it while it ran: it is not tried again */
    bool topic;   /* its runs leave results */
};

struct model {
    struct accept *t;
    struct mr_rand rand;
    struct hand *hand;
    struct model_task *tasks;
    size_t n;
    struct mr_lease *held[HELD_MAX];
    size_t held_n;
    struct mr_master *master;
    uint64_t results; /* that wait */
};

/* One of the tasks in this state; NULL: there is none. */
static struct model_task *pick(struct model *m, enum mr_state state)
{
    size_t start = m->n ? mr_rand_below(&m->rand, m->n) : 0;
    for (size_t i = 0; i < m->n; i++) {
        struct model_task *task = &m->tasks[(start + i) % m->n];
        if (task->state == state)
            return task;
    }
    return NULL;
}

static struct model_task *by_id(struct model *m, struct mr_slice id)
{
    char text[32];
    (void)snprintf(text, sizeof text, "%.*s", (int)id.len, (const char *)id.data);
    size_t i = strtoul(text + 1, NULL, 10);
    assert_true(i < m->n);
    return &m->tasks[i];
}

/* The order time is the broker's to say; what it says must be right to the ms. */
static void learn_order(struct model *m, struct model_task *task, double priority_s,
                        int64_t before_ms)
{
    struct mr_task_list *list = accept_get(m->t, task->id);
    assert_non_null(list);
    task->order_ms = mr_task_list_at(list, 0)->order_time_ms;
    mr_task_list_free(list);
    int64_t ahead_ms = (int64_t)(priority_s * 1000);
    assert_in_range(task->order_ms + ahead_ms, before_ms - 2, accept_wall_ms() + 2);
}

static void submit(struct model *m)
{
    struct model_task *task = &m->tasks[m->n];
    double priority_s = (double)mr_rand_below(&m->rand, 100);
    bool later = mr_rand_one_in(&m->rand, 5);
    int64_t before_ms = accept_wall_ms();
    (void)snprintf(task->id, sizeof task->id, "t%zu", m->n);
    task->queue = mr_rand_below(&m->rand, QUEUES);
    task->state = later ? MR_SCHEDULED : MR_PENDING;
    if (mr_rand_one_in(&m->rand, 2))
        priority_s = 0;
    task->topic = mr_rand_one_in(&m->rand, 2);
    PUT(m->t, .id = task->id, .queue = queues[task->queue], .priority_s = priority_s,
        .delay_ms = later ? 3600 * 1000 : 0, .topic = task->topic ? "model" : NULL);
    m->n++;
    if (!later)
        learn_order(m, task, priority_s, before_ms);
}

static void delete (struct model *m)
{
    static const enum mr_state from[] = {MR_PENDING, MR_SCHEDULED, MR_ARCHIVED, MR_ACTIVE};
    struct model_task *task = pick(m, from[mr_rand_below(&m->rand, 4)]);
    if (!task)
        return;
    enum mr_err err = accept_act(m->t, MR_VERB_DELETE, task->id, 0);
    assert_err(err, task->state == MR_ACTIVE ? MR_RUNNING : MR_OK);
    if (err == MR_OK)
        task->state = MR_STATE_NONE;
    else
        task->flagged = true;
}

static void prioritise(struct model *m)
{
    struct model_task *task = pick(m, MR_PENDING);
    double priority_s = (double)mr_rand_below(&m->rand, 100);
    if (!task)
        return;
    assert_err(accept_act(m->t, MR_VERB_PRIORITISE, task->id, priority_s), MR_OK);
    struct mr_task_list *list = accept_get(m->t, task->id);
    task->order_ms = mr_task_list_at(list, 0)->order_time_ms;
    mr_task_list_free(list);
}

static void archive(struct model *m)
{
    struct model_task *task = pick(m, mr_rand_one_in(&m->rand, 2) ? MR_PENDING : MR_SCHEDULED);
    if (!task)
        return;
    assert_err(accept_act(m->t, MR_VERB_ARCHIVE, task->id, 0), MR_OK);
    task->state = MR_ARCHIVED;
}

static void run_now(struct model *m)
{
    struct model_task *task = pick(m, mr_rand_one_in(&m->rand, 2) ? MR_ARCHIVED : MR_SCHEDULED);
    if (!task)
        return;
    assert_err(accept_act(m->t, MR_VERB_RUN, task->id, 0), MR_OK);
    task->state = MR_PENDING;
    task->flagged = false;
    struct mr_task_list *list = accept_get(m->t, task->id);
    task->order_ms = mr_task_list_at(list, 0)->order_time_ms;
    mr_task_list_free(list);
}

static const struct model_task *top(const struct model *m, size_t queue)
{
    const struct model_task *first = NULL;
    for (size_t i = 0; i < m->n; i++)
        if (m->tasks[i].queue == queue && m->tasks[i].state == MR_PENDING &&
            (!first || m->tasks[i].order_ms < first->order_ms))
            first = &m->tasks[i];
    return first;
}

static void take(struct model *m)
{
    if (m->held_n == HELD_MAX)
        return;
    struct mr_lease *lease = hand_take(m->hand, 0, NULL);
    if (!lease) {
        assert_null(pick(m, MR_PENDING));
        return;
    }
    struct model_task *task = by_id(m, lease->task.id);
    assert_int_equal(task->state, MR_PENDING);
    assert_int_equal(task->order_ms, top(m, task->queue)->order_ms);
    task->state = MR_ACTIVE;
    m->held[m->held_n++] = lease;
}

static void finish(struct model *m)
{
    if (m->held_n == 0)
        return;
    size_t i = mr_rand_below(&m->rand, m->held_n);
    struct mr_lease *lease = m->held[i];
    struct model_task *task = by_id(m, lease->task.id);
    m->held[i] = m->held[--m->held_n];
    m->results += task->topic;
    switch (mr_rand_below(&m->rand, 3)) {
    case 0:
        task->state = task->flagged ? MR_ARCHIVED : MR_RETRY;
        assert_err(hand_finish(m->hand, lease,
                               (struct mr_finish){.outcome = MR_FAIL, .delay_ms = 3600 * 1000}),
                   MR_OK);
        mr_lease_free(lease);
        break;
    case 1:
        task->state = MR_ARCHIVED;
        assert_err(hand_finish(m->hand, lease, (struct mr_finish){.outcome = MR_FAIL_FOR_GOOD}),
                   MR_OK);
        mr_lease_free(lease);
        break;
    default:
        task->state = MR_COMPLETED;
        hand_done(m->hand, lease);
    }
}

/* Some are taken and committed. */
static void commit(struct model *m)
{
    struct mr_result_list *list = NULL;
    enum mr_err err = mr_master_take(m->master, 2, 0, &list);
    if (err == MR_EMPTY) {
        assert_int_equal(m->results, 0);
        return;
    }
    assert_err(err, MR_OK);
    for (size_t i = 0; i < mr_result_list_count(list); i++, m->results--) {
        struct mr_slice receipt = mr_result_list_at(list, i)->receipt;
        assert_err(mr_master_commit(m->master, &receipt, 1, &err), MR_OK);
        assert_err(err, MR_OK);
    }
    mr_result_list_free(list);
}

static void check_results(struct model *m)
{
    uint64_t waiting, in_hand;
    assert_err(mr_topic_get(m->t->client, mr_slice_str("model"), &waiting, &in_hand), MR_OK);
    assert_int_equal(waiting, m->results);
    assert_int_equal(in_hand, 0);
}

static void check_top(struct model *m, size_t queue)
{
    struct mr_list_options options = {
        .queue = mr_slice_str(queues[queue]), .state = MR_PENDING, .limit = 1};
    const struct model_task *first = top(m, queue);
    struct mr_task_list *list = NULL;
    enum mr_err err = mr_task_list_get(m->t->client, &options, &list);
    assert_true(err == MR_OK || (err == MR_NOT_FOUND && !first));
    assert_int_equal(list ? mr_task_list_count(list) : 0, first ? 1 : 0);
    if (first)
        assert_int_equal(mr_task_list_at(list, 0)->order_time_ms, first->order_ms);
    mr_task_list_free(list);
}

static void check(struct model *m)
{
    uint64_t all = 0;
    for (size_t queue = 0; queue < QUEUES; queue++) {
        uint64_t counts[MR_STATE_COUNT] = {0};
        for (size_t i = 0; i < m->n; i++)
            if (m->tasks[i].queue == queue)
                counts[m->tasks[i].state]++;
        counts[MR_STATE_NONE] = 0;
        struct mr_queue_info info = accept_queue(m->t, queues[queue]);
        for (int state = MR_SCHEDULED; state < MR_STATE_COUNT; state++) {
            if (counts[state] != info.counts[state])
                fail_msg("%s: %llu %s, must be %llu", queues[queue],
                         (unsigned long long)info.counts[state],
                         mr_state_name((enum mr_state)state), (unsigned long long)counts[state]);
            all += counts[state];
        }
        check_top(m, queue);
    }
    struct mr_stats stats;
    assert_err(mr_stats_get(m->t->client, &stats), MR_OK);
    assert_int_equal(stats.tasks, all);
    struct mr_node_list *nodes = NULL;
    assert_err(mr_node_list_get(m->t->client, &nodes), MR_OK);
    assert_int_equal(mr_node_list_count(nodes), 2);
    for (size_t i = 0; i < mr_node_list_count(nodes); i++) {
        const struct mr_node_info *node = mr_node_list_at(nodes, i);
        assert_int_equal(node->in_hand, node->role == MR_NODE_WORKER ? m->held_n : 0);
    }
    mr_node_list_free(nodes);
    check_results(m);
}

static void test_10_what_is_shown_equals_a_model(void **state)
{
    static void (*const acts[])(struct model *) = {submit,  submit,  submit, submit, take,
                                                   take,    finish,  finish, delete, prioritise,
                                                   archive, run_now, commit};
    size_t steps = accept_size(10000, 600);
    struct model m = {.t = *state};
    const char *seed = getenv("MR_SEED");
    mr_rand_seed(&m.rand, seed ? strtoull(seed, NULL, 10) : 1);
    m.hand = hand_open(m.t, "hand", "red green blue", 0);
    const struct mr_slice topic = mr_slice_str("model");
    struct mr_master_options master = {.topics = &topic, .topics_n = 1};
    assert_err(mr_master_open(m.t->client, &master, &m.master), MR_OK);
    m.tasks = calloc(steps, sizeof *m.tasks);
    assert_non_null(m.tasks);
    for (size_t i = 0; i < steps; i++) {
        acts[mr_rand_below(&m.rand, sizeof acts / sizeof *acts)](&m);
        if (i % CHECK_EVERY == 0)
            check(&m);
    }
    while (m.held_n > 0)
        finish(&m);
    check(&m);
    mr_master_free(m.master);
    hand_close(m.hand);
    free(m.tasks);
}

int accept_model(const struct accept_engine *engine)
{
    struct CMUnitTest tests[] = {
        ACCEPT_TEST(test_10_what_is_shown_equals_a_model),
    };
    return ACCEPT_RUN(engine, "A: a model", tests);
}
