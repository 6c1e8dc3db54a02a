/* SPDX-License-Identifier: Apache-2.0 */
/* What tasks have left in a topic, counted when a test is over. */
#include <stdio.h>

#include "accept/accept.h"

enum { TAKE = 500 };

struct accept_finals {
    struct accept *t;
    char (*ids)[MR_ID_MAX + 1]; /* of all that were accepted, sorted */
    size_t *n, *doubts;         /* for each of them */
};

static int compare_ids(const void *a, const void *b)
{
    return strcmp(a, b);
}

static size_t find(const struct accept_finals *finals, const char *id)
{
    char(*at)[MR_ID_MAX + 1] =
        bsearch(id, finals->ids, finals->t->ids_n, sizeof *finals->ids, compare_ids);
    if (!at)
        fail_msg("a result of %s, which nobody has sent", id);
    return (size_t)(at - finals->ids);
}

void accept_finals_add(struct accept_finals *finals, const char *id, size_t n)
{
    if (n > 0)
        finals->n[find(finals, id)] += n;
}

void accept_finals_doubt(struct accept_finals *finals, const char *id, size_t n)
{
    finals->doubts[find(finals, id)] += n;
}

static void count_one(struct accept_finals *finals, const struct mr_result *result)
{
    char id[MR_ID_MAX + 1];
    (void)snprintf(id, sizeof id, "%.*s", (int)result->task_id.len,
                   (const char *)result->task_id.data);
    finals->n[find(finals, id)] += result->final;
}

static void drain(struct accept_finals *finals, struct mr_master *master)
{
    struct mr_result_list *list = NULL;
    for (;;) {
        enum mr_err err = mr_master_take(master, TAKE, 0, &list), errs[TAKE];
        struct mr_slice receipts[TAKE];
        if (err == MR_EMPTY)
            return;
        assert_err(err, MR_OK);
        size_t n = mr_result_list_count(list);
        for (size_t i = 0; i < n; i++) {
            count_one(finals, mr_result_list_at(list, i));
            receipts[i] = mr_result_list_at(list, i)->receipt;
        }
        assert_err(mr_master_commit(master, receipts, n, errs), MR_OK);
        for (size_t i = 0; i < n; i++)
            assert_err(errs[i], MR_OK);
        mr_result_list_free(list);
    }
}

static void drain_topic(struct accept_finals *finals, const char *topic)
{
    struct mr_slice topics = mr_slice_str(topic);
    struct mr_master_options options = {.node = mr_slice_str("counts"),
                                        .topics = &topics,
                                        .topics_n = 1,
                                        .beat_ms = 10 * ACCEPT_BEAT_MS};
    struct mr_master *master = NULL;
    uint64_t waiting = 0, in_hand = 0;
    assert_err(mr_master_open(finals->t->client, &options, &master), MR_OK);
    do { /* what a master that died had in hand comes back */
        drain(finals, master);
        assert_err(mr_topic_get(finals->t->client, topics, &waiting, &in_hand), MR_OK);
        accept_pass_ms(waiting + in_hand ? ACCEPT_BEAT_MS / 10 : 0);
    } while (waiting + in_hand > 0);
    mr_master_free(master);
}

struct accept_finals *accept_finals_take(struct accept *t, const char *topic)
{
    struct accept_finals *finals = calloc(1, sizeof *finals);
    assert_non_null(finals);
    finals->t = t;
    finals->ids = calloc(t->ids_n + 1, sizeof *finals->ids);
    finals->n = calloc(t->ids_n + 1, sizeof *finals->n);
    finals->doubts = calloc(t->ids_n + 1, sizeof *finals->doubts);
    assert_true(finals->ids && finals->n && finals->doubts);
    memcpy(finals->ids, t->ids, t->ids_n * sizeof *finals->ids);
    qsort(finals->ids, t->ids_n, sizeof *finals->ids, compare_ids);
    drain_topic(finals, topic);
    return finals;
}

void accept_finals_check(struct accept_finals *finals)
{
    struct accept *t = finals->t;
    for (size_t i = 0; i < t->ids_n; i++) {
        enum mr_state state = accept_state(t, finals->ids[i]);
        size_t ended = state == MR_COMPLETED || state == MR_ARCHIVED;
        for (size_t k = 0; k < t->requeued_n; k++)
            ended += strcmp(t->requeued[k], finals->ids[i]) == 0;
        if (finals->n[i] > ended || finals->n[i] + finals->doubts[i] < ended)
            fail_msg("%s is %s and left %zu final results, %zu more perhaps", finals->ids[i],
                     mr_state_name(state), finals->n[i], finals->doubts[i]);
    }
    free(finals->ids);
    free(finals->n);
    free(finals->doubts);
    free(finals);
}

void accept_one_final_each(struct accept *t, const char *topic)
{
    accept_finals_check(accept_finals_take(t, topic));
}
