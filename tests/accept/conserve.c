/* SPDX-License-Identifier: Apache-2.0 */
/* The conservation check, from what every user can see: lists, counts, nodes. */
#include <stdio.h>

#include "accept/accept.h"

enum { QUEUES_MAX = 128 };

struct book {
    char (*ids)[MR_ID_MAX + 1]; /* found in lists */
    size_t n, max;
    uint64_t states[MR_STATE_COUNT];
};

static int compare_ids(const void *a, const void *b)
{
    return strcmp(a, b);
}

static void note(struct book *book, const struct mr_task *task)
{
    if (book->n == book->max) {
        book->max = book->max ? 2 * book->max : 1024;
        book->ids = realloc(book->ids, book->max * sizeof *book->ids);
        assert_non_null(book->ids);
    }
    (void)snprintf(book->ids[book->n++], sizeof *book->ids, "%.*s", (int)task->id.len,
                   (const char *)task->id.data);
    book->states[task->state]++;
}

static bool is_live(const struct mr_node_list *nodes, struct mr_slice name)
{
    for (size_t i = 0; i < mr_node_list_count(nodes); i++) {
        const struct mr_node_info *node = mr_node_list_at(nodes, i);
        if (node->state != MR_NODE_DEAD && node->name.len == name.len &&
            memcmp(node->name.data, name.data, name.len) == 0)
            return true;
    }
    return false;
}

/* All pages of one state of a queue. */
static void read_set(struct accept *t, const char *queue, enum mr_state state, struct book *book)
{
    struct mr_task_list *page = NULL;
    struct mr_node_list *nodes = NULL;
    char cursor[256] = "";
    assert_err(mr_node_list_get(t->client, &nodes), MR_OK);
    do {
        struct mr_list_options options = {.queue = mr_slice_str(queue),
                                          .state = state,
                                          .cursor = cursor[0] ? cursor : NULL,
                                          .limit = MR_BATCH_MAX};
        assert_err(mr_task_list_get(t->client, &options, &page), MR_OK);
        for (size_t i = 0; i < mr_task_list_count(page); i++) {
            const struct mr_task *task = mr_task_list_at(page, i);
            assert_int_equal(task->state, state);
            note(book, task);
            if (state == MR_ACTIVE && !is_live(nodes, task->node))
                fail_msg("%.*s is active at %.*s, which does not live", (int)task->id.len,
                         (const char *)task->id.data, (int)task->node.len,
                         (const char *)task->node.data);
        }
        (void)snprintf(cursor, sizeof cursor, "%s", mr_task_list_next(page));
        mr_task_list_free(page);
    } while (cursor[0]);
    mr_node_list_free(nodes);
}

/* Lists against counts, queue by queue; answers how many good ends were counted. */
static uint64_t read_queues(struct accept *t, struct book *book)
{
    struct mr_queue_info *infos = calloc(QUEUES_MAX, sizeof *infos);
    uint64_t good = 0;
    size_t n = 0;
    assert_non_null(infos);
    assert_err(mr_queue_list(t->client, NULL, infos, QUEUES_MAX, &n), MR_OK);
    for (size_t i = 0; i < n; i++) {
        for (int state = MR_SCHEDULED; state < MR_STATE_COUNT; state++) {
            size_t before = book->n;
            read_set(t, infos[i].name, (enum mr_state)state, book);
            if (book->n - before != infos[i].counts[state])
                fail_msg("%s: %zu %s in the list, %llu counted", infos[i].name, book->n - before,
                         mr_state_name((enum mr_state)state),
                         (unsigned long long)infos[i].counts[state]);
        }
        good += infos[i].processed_total - infos[i].failed_total;
    }
    free(infos);
    return good;
}

/* What was accepted and is in no list must be gone, and have been deleted. */
static void check_missing(struct accept *t, const struct book *book)
{
    size_t missing = 0;
    for (size_t i = 0; i < t->ids_n; i++) {
        if (book->n > 0 && bsearch(t->ids[i], book->ids, book->n, sizeof *book->ids, compare_ids))
            continue;
        missing++;
        enum mr_state state = accept_state(t, t->ids[i]);
        if (state != MR_STATE_NONE)
            fail_msg("%s is %s and in no list", t->ids[i], mr_state_name(state));
    }
    if (missing != t->deleted)
        fail_msg("%zu of %zu tasks are gone, %zu were deleted", missing, t->ids_n,
                 (size_t)t->deleted);
    assert_int_equal(book->n + missing, t->ids_n);
}

void accept_conserve(struct accept *t)
{
    struct book book = {0};
    struct mr_stats stats;
    uint64_t good = read_queues(t, &book);
    if (book.n > 0)
        qsort(book.ids, book.n, sizeof *book.ids, compare_ids);
    for (size_t i = 1; i < book.n; i++)
        if (strcmp(book.ids[i - 1], book.ids[i]) == 0)
            fail_msg("%s is in two states", book.ids[i]);
    check_missing(t, &book);
    assert_err(mr_stats_get(t->client, &stats), MR_OK);
    assert_int_equal(stats.tasks, book.n);
    assert_int_equal(good, book.states[MR_COMPLETED] + t->unkept);
    free(book.ids);
}
